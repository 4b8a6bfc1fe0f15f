#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
""""who", "whose", "whom" and "whoever" stand for people only: comments, messages,
help and pages count them, and a folder with more than words.txt allows it
fails.

A thread, a process, a message or a queue is called by its name. words.txt holds
a ceiling for each folder that was written before this rule; a folder that is not
listed has 0. Ceilings only fall: the script says where one can be lowered, and
--lower rewrites the file.
"""

import os
import re
import sys

import common

TABLE = os.path.join('scripts', 'lint', 'words.txt')
TOPS = common.C_FOLDERS + ('docs', 'scripts')
FILES = ('README.md', 'Makefile', 'meson.build', 'meson_options.txt')
KINDS = ('.c', '.h', '.md', '.py', '.sh', '.pml', '.build', '.txt')
# Generated from the Markdown beside them, and data.
SKIP = ('scripts/lint/words.py', 'scripts/lint/words.txt')
TEXT_OF_C = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
WORD = re.compile(r'\b(?:who|whose|whom|whoever)\b', re.I)
# People: the reader must be able to tell from the word before it.
PEOPLE = re.compile(
    r'\b(?:people|persons?|users?|authors?|readers?|reviewers?|operators?|'
    r'engineers?|programmers?|attackers?|newcomers?|anyone|someone)'
    r'[\s*#]+(?:who|whose|whom)\b', re.I)


def files(tree):
    for top in TOPS:
        for place, dirs, names in os.walk(os.path.join(tree, top)):
            dirs[:] = sorted(d for d in dirs
                             if not d.startswith('.') and d != 'corpus')
            for name in sorted(names):
                path = os.path.relpath(os.path.join(place, name), tree)
                if path not in SKIP and (name.endswith(KINDS) or
                                         '.' not in name):
                    yield path
    for name in FILES:
        if os.path.isfile(os.path.join(tree, name)):
            yield name


def count(path, text):
    if path.endswith(('.c', '.h')):
        text = '\n'.join(TEXT_OF_C.findall(text))
    return len(WORD.findall(text)) - len(PEOPLE.findall(text))


def ceilings(tree):
    """{folder or file: most}, as the table says."""
    table = {}
    path = os.path.join(tree, TABLE)
    if os.path.isfile(path):
        with open(path, encoding='utf-8') as lines:
            for line in lines:
                if line.strip() and not line.startswith('#'):
                    room, most = line.split()
                    table[room] = int(most)
    return table


def room_of(path, table):
    """The longest row that holds the file; a file without one is alone."""
    while path and path not in table:
        path = os.path.dirname(path)
    return path


def measure(tree, table):
    """{room: [count, {file: count}]}"""
    rooms = {room: [0, {}] for room in table}
    for path in files(tree):
        with open(os.path.join(tree, path), encoding='utf-8',
                  errors='replace') as file:
            found = count(path, file.read())
        if found:
            room = rooms.setdefault(room_of(path, table) or path, [0, {}])
            room[0] += found
            room[1][path] = found
    return rooms


def check(tree):
    table = ceilings(tree)
    found = []
    for room, (n, by_file) in sorted(measure(tree, table).items()):
        most = table.get(room, 0)
        if n > most:
            worst = sorted(by_file, key=by_file.get, reverse=True)[:3]
            found.append(f'{room}: {n} of who/whose/whom, at most {most}; '
                         'call the thread, process or message by its name ('
                         + ', '.join(f'{p}: {by_file[p]}' for p in worst)
                         + ')')
        elif n < most and tree == common.ROOT:
            print(f'note: {room} has {n}: scripts/lint/words.py --lower')
    return found


def lower():
    table = ceilings(common.ROOT)
    rooms = measure(common.ROOT, table)
    path = os.path.join(common.ROOT, TABLE)
    with open(path, encoding='utf-8') as lines:
        head = [line for line in lines if line.startswith('#')]
    with open(path, 'w', encoding='utf-8') as out:
        out.writelines(head)
        for room in sorted(table):
            out.write(f'{room} {min(table[room], rooms[room][0])}\n')


ROW = {TABLE: '# rooms\nsrc 1\nsrc/rpc 0\n'}

CASES = [
    ('a comment below its ceiling passes',
     {**ROW, 'src/a.c': '/* who comes */\n'}, None),
    ('one above it fails',
     {**ROW, 'src/a.c': '/* Who comes */\n// whose\n'}, 'src: 2 of who'),
    ('a row of its own counts first',
     {**ROW, 'src/rpc/a.c': '/* whom */\n'}, 'src/rpc: 1'),
    ('a message counts', {'tools/a.c': 'puts("who");\n'}, 'tools/a.c: 1'),
    ('a name in code does not', {'tools/a.c': 'int who;\n'}, None),
    ('pages count, without a row too',
     {'docs/a.md': 'The thread whose turn it is.\n'}, 'docs/a.md: 1'),
    ('people may', {'docs/a.md': 'Users who read this. An author\nwhose.\n'},
     None),
    ('a longer word is another', {'docs/a.md': 'whole\n'}, None),
]

if __name__ == '__main__':
    if sys.argv[1:] == ['--lower']:
        lower()
    else:
        common.main(check, CASES, 'words')
