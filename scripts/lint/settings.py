#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/settings.md has every setting that the code reads, and no other: the
rows of configuration (CONF_ROW, CONF_RANGE; the defaults are compared too) and what
getenv() is asked for, where the name begins with SKEIN_. So has the table by
which `skein info` knows a name."""

import os
import re

import common

FOLDERS = ('src', 'include', 'lib', 'tools', 'apps')
ROW = re.compile(r'CONF_(?:ROW|RANGE)\(\s*struct \w+,\s*\w+,\s*"([A-Z_0-9]+)",'
                 r'\s*"([^"]*)"')
GETENV = re.compile(r'\bgetenv\(\s*"(SKEIN_[A-Z_0-9]+)"\s*\)')
COMMENT = re.compile(r'/\*.*?\*/', re.S)
PAGE = os.path.join('docs', 'settings.md')
TABLE = os.path.join('tools', 'settings.c')
KNOWN = re.compile(r'const char \*const known\[\] = \{(.*?)\};', re.S)
LINE = re.compile(r'^\| `(SKEIN_[A-Z_0-9]+)` \| (.*?) \| (.*?) \|$', re.M)


def read(path):
    try:
        with open(path, encoding='utf-8') as file:
            return file.read()
    except FileNotFoundError:
        return ''


def in_code(tree):
    """name: its default where a row has one, else None."""
    found = {}
    for path in common.c_files(tree, FOLDERS):
        text = COMMENT.sub('', read(os.path.join(tree, path)))
        for name in GETENV.findall(text):
            found.setdefault(name, None)
        for name, default in ROW.findall(text):
            found['SKEIN_' + name] = default
    return found


def check(tree):
    code = in_code(tree)
    rows = LINE.findall(read(os.path.join(tree, PAGE)))
    page = {name: default.strip('`') for name, default, _ in rows}
    found = [f'{PAGE}: {name}: there twice' for name in sorted(page)
             if [row[0] for row in rows].count(name) > 1]
    found += [f'{PAGE}: {name}: says nothing' for name, _, text in rows
              if not text.strip()]
    table = KNOWN.search(read(os.path.join(tree, TABLE)))
    known = re.findall(r'"(\w+)"', table.group(1)) if table else []
    known = {'SKEIN_' + each for each in known}
    for name in sorted((page.keys() & code.keys()) - known |
                       known - code.keys()):
        found.append(f'{TABLE}: {name} is in one of known[] and {PAGE}')
    for name in sorted(code.keys() | page.keys()):
        if name not in page:
            found.append(f'{PAGE}: {name} is missing: the code reads it')
        elif name not in code:
            found.append(f'{PAGE}: {name}: nothing reads it')
        elif code[name] is not None and code[name] != page[name]:
            found.append(f'{PAGE}: {name}: the default is {code[name]}, not '
                         f'{page[name]}')
    return found


CODE = ('CONF_ROW(struct a, ring, "RING", "4M",\n "bytes", conf_size, NULL)\n'
        'getenv("SKEIN_LOG"); getenv("HOME");\n')
GOOD = {'src/a.c': CODE,
        'tools/settings.c': 'static const char *const known[] = {\n'
                            '\t"RING", "LOG",\n};\n',
        'docs/settings.md': '| `SKEIN_RING` | `4M` | bytes |\n'
                            '| `SKEIN_LOG` | `warn` | what |\n'}


def with_page(text):
    return {**GOOD, 'docs/settings.md': text}


CASES = [
    ('a whole page passes', GOOD, None),
    ('a row that is missing is seen',
     with_page('| `SKEIN_LOG` | `warn` | what |\n'), 'SKEIN_RING is missing'),
    ('and a name of the environment',
     with_page('| `SKEIN_RING` | `4M` | bytes |\n'), 'SKEIN_LOG is missing'),
    ('and another default',
     with_page(GOOD['docs/settings.md'].replace('4M', '8M')),
     'the default is 4M'),
    ('and what nothing reads',
     with_page(GOOD['docs/settings.md'] + '| `SKEIN_OLD` | 1 | old |\n'),
     'SKEIN_OLD: nothing reads it'),
    ('and a name that stands twice',
     with_page(GOOD['docs/settings.md'] + '| `SKEIN_LOG` | `x` | y |\n'),
     'SKEIN_LOG: there twice'),
    ('and a name that the table lacks',
     {**GOOD, 'tools/settings.c': 'const char *const known[] = {"RING"};'},
     'SKEIN_LOG is in one of'),
    ('a comment reads nothing',
     {**GOOD, 'src/b.h': '/* getenv("SKEIN_NOT") */\n'}, None),
]

if __name__ == '__main__':
    common.main(check, CASES, 'settings')
