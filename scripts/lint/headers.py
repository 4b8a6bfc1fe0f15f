#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each public header compiles alone, as strict C11, C++11 and C++17. No function has
the name of a type: C++ would take the type's name for the function. Each struct
begins with its size, or is one that never grows."""

import os
import re
import sys

import common

FLAGS = ['-pedantic', '-Wall', '-Wextra', '-Werror', '-fsyntax-only',
         '-D_POSIX_C_SOURCE=200809L']
CXX = ['c++', '-std=c++11', '-x', 'c++']
COMPILERS = (['cc', '-std=c11', '-x', 'c'], CXX,
             ['c++', '-std=c++17', '-x', 'c++'])

STRUCT = re.compile(r'^struct (\w+) \{\n(.*?)^\}', re.M | re.S)
# Those without a size: tests/unit/conn/test_sizes.c holds the layout of what an
# application allocates; the library allocates the others.
FIXED = {'skein_path', 'skein_rpc_result', 'skein_rpc_entry', 'skein_mcast_msg',
         'skein_mcast_failure', 'skein_mcast_ops', 'skein_vqp_msg',
         'skein_mcast_block', 'skein_mcast_dest'}


def unsized(text):
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    return [name for name, body in STRUCT.findall(text)
            if name not in FIXED and not body.split(';')[0].split()
            == ['size_t', 'size']]


TYPE = re.compile(r'^(?:struct|enum) (skein_\w+)', re.M)


def uses(text):
    """Each type of the header by its name alone, as C++ programs write it."""
    return ''.join(f'extern {name} *use_{name};\n'
                   for name in sorted(set(TYPE.findall(text))))


def check(tree):
    found = []
    folder = os.path.join(tree, 'include', 'skein')
    for name in sorted(os.listdir(folder)):
        if not name.endswith('.h'):
            continue
        with open(os.path.join(folder, name), encoding='utf-8') as file:
            text = file.read()
        found += [f'skein/{name}: struct {s} does not begin with size_t size'
                  for s in unsized(text)]
        # From stdin: a header as the main file is warned about in itself.
        unit = f'#include <skein/{name}>\nextern int skein_alone;\n'
        types = uses(text)
        for compiler in COMPILERS:
            argv = [*compiler, *FLAGS, '-I', os.path.join(tree, 'include'),
                    '-']
            status, said = common.run(
                argv, unit + types if compiler is CXX else unit)
            if status:
                found.append(f'skein/{name} with {" ".join(compiler[:2])}:\n'
                             + said)
    return found


CASES = [
    ('a plain header passes',
     {'include/skein/a.h': '#include <stddef.h>\nstruct a {\n\tsize_t size;\n};\n'},
     None),
    ('a struct without a size is seen',
     {'include/skein/a.h': 'struct a {\n\t/* size_t size; */\n\tint n;\n};\n'},
     'struct a does not begin'),
    ('a header that leans on another fails',
     {'include/skein/a.h': '#include <skein/b.h>\n'
      'static inline int f(void) { return (int)sizeof(struct b); }\n',
      'include/skein/b.h': 'struct b;\n'}, 'skein/a.h with cc -std=c11'),
    ('a function with the name of a type is seen',
     {'include/skein/a.h': 'struct skein_a;\nint skein_a(struct skein_a *);\n'},
     'skein/a.h with c++ -std=c++11'),
    ('C++ keywords are seen',
     {'include/skein/a.h': 'struct a { int class; };\n'}, 'std=c++11'),
    ('GNU extensions are seen',
     {'include/skein/a.h': 'typedef struct { int x; struct {} y; } z;\n'},
     'std=c11'),
]


def first(tree):
    """One finding at most: a bad header fails with both compilers."""
    return check(tree)[:1]


if __name__ == '__main__':
    common.main(first if '--self-test' in sys.argv else check, CASES,
                'headers')
