#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The public headers, lib/skein.map and the library, shared or static, name the
same functions: one that is missing in the map would be declared and not there.

    exports.py [LIBRARY]    (without one: headers and map only)
"""

import os
import re
import subprocess
import sys

import common

PROTOTYPE = re.compile(r'SKEIN_API\b[^;{]*?\b(skein_\w+)\s*\(')
ENTRY = re.compile(r'^\t+(skein_\w+);', re.M)


def declared(tree):
    names = set()
    folder = os.path.join(tree, 'include', 'skein')
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding='utf-8') as file:
            text = re.sub(r'/\*.*?\*/', '', file.read(), flags=re.S)
        names |= set(PROTOTYPE.findall(text))
    return names


def mapped(tree):
    with open(os.path.join(tree, 'lib', 'skein.map'), encoding='utf-8') as file:
        return set(ENTRY.findall(file.read()))


def exported(library):
    table = '-g' if library.endswith('.a') else '-D'
    nm = subprocess.run(['nm', table, '--defined-only', library], check=True,
                        stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split() for line in nm.split('\n')]
    # The map's versions are themselves (absolute) symbols.
    return {row[2].split('@')[0] for row in rows
            if len(row) == 3 and row[1] != 'A'}


def check(tree, library=None):
    sets = [('the headers', declared(tree)), ('lib/skein.map', mapped(tree))]
    if library:
        sets.append(('the library', exported(library)))
    everything = set().union(*(names for _, names in sets))
    return [f'{name}: not in {what}' for name in sorted(everything)
            for what, names in sets if name not in names]


MAP = 'SKEIN_0.1 {\nglobal:\n\tskein_a;\n\tskein_b;\nlocal:\n\t*;\n};\n'
HEADER = ('SKEIN_API int skein_a(void);\n/* see SKEIN_API int skein_c(void) */'
          '\nSKEIN_API const struct x *\nskein_b(int x);\n')
CASES = [
    ('the same names pass',
     {'include/skein/a.h': HEADER, 'lib/skein.map': MAP}, None),
    ('a function missing in the map is seen',
     {'include/skein/a.h': HEADER + 'SKEIN_API void skein_d(void);\n',
      'lib/skein.map': MAP}, 'skein_d: not in lib/skein.map'),
    ('and one without a prototype',
     {'include/skein/a.h': 'SKEIN_API int skein_a(void);\n',
      'lib/skein.map': MAP}, 'skein_b: not in the headers'),
]

if __name__ == '__main__':
    LIBRARY = [word for word in sys.argv[1:] if word != '--self-test']
    if LIBRARY:
        del sys.argv[1:]
    common.main(lambda tree: check(tree, *LIBRARY), CASES, 'exports')
