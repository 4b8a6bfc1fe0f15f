#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pages: every relative link leads to a file, prose wraps at 100 columns, and
docs/ and README.md together, without man pages, have at most so many words. A
word has a letter or a digit: the bars and rules of a table are none.

Tables, code blocks, links alone, and of man pages prototypes and what is defined
may be longer.
"""

import os
import re

import common

COLUMNS = 100
WORDS = 30000
WORD = re.compile(r'\S*[0-9A-Za-z]\S*')
LINK = re.compile(r'\]\(([^)#\s]+)(?:#[^)]*)?\)')


def pages(tree):
    if os.path.isfile(os.path.join(tree, 'README.md')):
        yield 'README.md'
    for place, dirs, names in os.walk(os.path.join(tree, 'docs')):
        dirs.sort()
        for name in sorted(names):
            if name.endswith('.md'):
                yield os.path.relpath(os.path.join(place, name), tree)


def links(tree, path, text):
    for target in LINK.findall(text):
        if re.match(r'\w+:', target):
            continue
        place = os.path.join(tree, os.path.dirname(path), target)
        if not os.path.exists(place):
            yield f'{path}: link to {target}, which is not there'


def long_lines(path, text):
    code = False
    lines = text.split('\n')
    for number, line in enumerate(lines, 1):
        if line.startswith('```'):
            code = not code
        if code or line.lstrip().startswith(('|', '![', '    ')):
            continue
        if line.endswith((');**', '\\')) or \
                ''.join(lines[number:number + 1]).startswith(':'):
            continue
        if len(line) > COLUMNS:
            yield f'{path}:{number}: {len(line)} columns, at most {COLUMNS}'


def check(tree):
    found, words = [], 0
    for path in pages(tree):
        with open(os.path.join(tree, path), encoding='utf-8') as file:
            text = file.read()
        found += links(tree, path, text)
        found += long_lines(path, text)
        if not path.startswith('docs/man/'):
            words += len(WORD.findall(text))
    if words > WORDS:
        found.append(f'docs/ and README.md have {words} words, at most '
                     f'{WORDS}')
    elif tree == common.ROOT:
        print(f'note: {words} words')
    return found


CASES = [
    ('links and lines in order pass',
     {'docs/a.md': '[b](b.md) [c](https://c)\n', 'docs/b.md': 'x ' * 50}, None),
    ('a link to nothing fails', {'README.md': '[b](docs/b.md#c)\n'},
     'link to docs/b.md'),
    ('a long line fails', {'docs/a.md': 'x' * 101}, '101 columns'),
    ('not in a table or code',
     {'docs/a.md': '| ' + 'x' * 101 + '\n```\n' + 'x' * 101 + '\n```\n'}, None),
    ('nor of a prototype and what is defined',
     {'docs/man/a.md': 'x' * 101 + ');**\n' + 'y' * 101 + '\n: z\n'}, None),
    ('as many words as there may be, and a table of marks, pass',
     {'docs/a.md': 'a\n' * WORDS + '| --- |\n'}, None),
    ('too many words fail', {'docs/a.md': 'a\n' * (WORDS + 1)}, f'{WORDS + 1} words'),
]

if __name__ == '__main__':
    common.main(check, CASES, 'pages')
