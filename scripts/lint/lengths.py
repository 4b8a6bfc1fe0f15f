#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions of more than 70 lines fail; files of more than 800 are noted.

A long file is a question to its reviewer: does it hold a second idea? It is no
reason to cut one object in pieces.

Leans on .clang-format: the braces of a function's body stand alone in column
0. A function's length is that of its body, both braces included.
"""

import os
import re

import common

FILE_MAX = 800
FUNCTION_MAX = 70
NAME = re.compile(r'(\w+)\s*\(')


def functions(lines):
    """(line number, name, length) of each function."""
    head, start = '', 0
    for number, line in enumerate(lines, 1):
        if line == '{':
            start = number
        elif line == '}' and start:
            match = NAME.search(head)
            yield start, match.group(1) if match else '?', number - start + 1
            head, start = '', 0
        elif not start:
            # The head is what stands between the last '}' or ';' and '{'.
            head = '' if line.endswith((';', '}')) or not line \
                else head + ' ' + line


def check(tree):
    found = []
    for path in common.c_files(tree):
        with open(os.path.join(tree, path), encoding='utf-8') as file:
            lines = file.read().split('\n')
        count = len(lines) - (lines[-1] == '')
        if count > FILE_MAX and tree == common.ROOT:
            print(f'note: {path}: {count} lines; is there a second idea in it?')
        found += [f'{path}:{at}: {name}() has {length} lines, '
                  f'at most {FUNCTION_MAX}'
                  for at, name, length in functions(lines)
                  if length > FUNCTION_MAX]
    return found


def function(name, length):
    return f'static int {name}(void)\n{{\n' + '\tx();\n' * (length - 2) + '}\n'


CASES = [
    ('70 lines pass', {'src/a.c': function('f', 70)}, None),
    ('71 lines fail', {'src/a.c': function('f', 10) + '\n' +
                       function('long_one', 71)}, 'long_one() has 71'),
    ('a struct is no function',
     {'src/a.c': 'struct a\n{\n\tint b;\n};\n' + function('f', 3)}, None),
    ('a long file passes', {'tests/a.h': '\n' * 801}, None),
]

if __name__ == '__main__':
    common.main(check, CASES, 'lengths')
