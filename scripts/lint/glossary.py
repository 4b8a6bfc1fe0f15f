#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each word that a type, a file or a public function of src/ and include/ is
named by is in docs/glossary.md (in bold, before a colon) or, as an ordinary word,
in scripts/lint/nouns.txt.

And words that say nothing of what they name (mail, news, calm) are in no name.
Rooms that were written before this rule are exempt until they are renamed.
"""

import os
import re

import common

PAGE = os.path.join('docs', 'glossary.md')
ORDINARY = os.path.join('scripts', 'lint', 'nouns.txt')
FOLDERS = ('src', 'include')
# In no name at all.
MOODS = set('mail news told attend heed doubt hungry calm restless drowsy '
            'tcq desk inbox'.split())
# In no type, file or public function; a variable may well be a share of time.
NOUNS = MOODS | {'seat', 'later', 'share'}
HELD = ('src', 'include', 'sim')
# A function that shares memory with other processes' connections.
ALLOWED = {'skein_mem_share'}

TYPE = re.compile(r'^(?:struct|enum|union)\s+(\w+)\s*\{', re.M)
PUBLIC = re.compile(r'\b(skein_\w+)\s*\(')
NAME = re.compile(r'\b[A-Za-z_]\w*\b')
ROW = re.compile(r'^\* \*\*(.*?)\*\*:', re.M)
NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def read(tree, path):
    with open(os.path.join(tree, path), encoding='utf-8') as file:
        return file.read()


def known(tree):
    """The words of the page and of the list, in lower case."""
    words = set()
    if os.path.isfile(os.path.join(tree, PAGE)):
        for row in ROW.findall(read(tree, PAGE)):
            words |= set(re.findall(r'\w+', row.lower()))
    if os.path.isfile(os.path.join(tree, ORDINARY)):
        for line in read(tree, ORDINARY).split('\n'):
            if not line.startswith('#'):
                words |= set(line.split())
    return words


def is_known(word, words):
    forms = {word}
    if word.endswith('s'):
        forms.add(word[:-1])
    if word.endswith('es'):
        forms.add(word[:-2])
    return bool(forms & words) or len(word) < 2 or word.isdigit()


def names(path, text):
    """(name, what it names) of a file."""
    yield os.path.basename(path)[:-2], 'file'
    for name in TYPE.findall(text):
        yield name, 'type'
    if path.startswith('include/'):
        for name in PUBLIC.findall(text):
            yield name, 'public name'


def parts(name):
    return [word for word in name.lower().split('_') if word]


def held(path):
    return path.startswith(tuple(room + '/' for room in HELD))


def forms(banned):
    return banned | {word + 's' for word in banned}


def check(tree):
    words = known(tree)
    found, seen = [], set()
    texts = {path: NO_CODE.sub(' ', read(tree, path))
             for path in common.c_files(tree, set(FOLDERS + HELD))}
    for path, text in sorted(texts.items()):
        for name, what in names(path, text):
            for word in parts(name):
                if held(path) and word in forms(NOUNS) and \
                        name not in ALLOWED and (name, word) not in seen:
                    seen.add((name, word))
                    found.append(f'{path}: {what} {name}: "{word}" does not '
                                 'say what it is')
                elif path.startswith(FOLDERS) and word not in seen and \
                        word not in forms(NOUNS) and \
                        not is_known(word, words):
                    seen.add(word)
                    found.append(f'{path}: {what} {name}: "{word}" is not in '
                                 f'{PAGE} or {ORDINARY}')
        if held(path):
            for name in sorted(set(NAME.findall(text)) - ALLOWED):
                bad = set(parts(name)) & forms(MOODS)
                if bad and (name, min(bad)) not in seen:
                    seen.add((name, min(bad)))
                    found.append(f'{path}: name {name}: "{min(bad)}" does not '
                                 'say what is so')
    return found


GLOSSARY = {PAGE: '# G\n\n* **ring, send queue**: a\n',
            ORDINARY: '# eat\nopen skein\n'}

CASES = [
    ('words of the page pass',
     {**GLOSSARY, 'src/base/ring.h': 'struct send_queue {\n};\n'}, None),
    ('a type that it has not fails',
     {**GLOSSARY, 'src/base/ring.h': 'enum ring_place {\n};\n'},
     '"place" is not in'),
    ('a file too', {**GLOSSARY, 'src/base/tub.c': ''}, 'file tub'),
    ('a public name too',
     {**GLOSSARY, 'include/skein/ring.h': 'int skein_ring_eat(int a);\n'},
     'skein_ring_eat: "eat"'),
    ('a name inside src/ is free',
     {**GLOSSARY, 'src/base/ring.c': 'int ring_eat(int a);\n'}, None),
    ('ordinary words and plurals pass',
     {**GLOSSARY, 'src/base/rings.h': 'struct open_rings {\n};\n'}, None),
    ('a mood is in no name',
     {**GLOSSARY, 'src/base/ring.c': 'static bool hungry;\n'}, 'name hungry'),
    ('nor in a file of its own', {**GLOSSARY, 'src/base/seat.c': ''}, 'file seat'),
    ('a variable may be a share',
     {**GLOSSARY, 'src/base/ring.c': 'static double share;\n'}, None),
]

if __name__ == '__main__':
    common.main(check, CASES, 'glossary')
