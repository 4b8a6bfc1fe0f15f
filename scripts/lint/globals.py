#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No mutable globals and no thread-locals in src/ outside src/env/.

    globals.py OBJECT...|ARCHIVE

All state hangs from a context, because the simulator has many in one process.
Reads nm: a symbol in .data, .bss, .tdata or .tbss, or a common one, fails.
Constant tables lie in .rodata or .data.rel.ro and pass. Objects are named by
Meson after their source (src_env_clock.c.o is src/env/clock.c); those of
src/env/, the seam to the world, may hold state. So may one file of an
interposer (libskein_verbs.a, state.c.o): malloc() brings no context to hang
it from; docs/design/verbs.md argues it.
"""

import os
import subprocess
import sys
import tempfile

import common

EXEMPT = 'src_env_'
# (archive, object)
STATE = [('libskein_verbs.a', 'state.c.o'),
         ('libskein_socket.a', 'state.c.o'),
         # close() brings none either
         ('libskein_verbs.a', '.._own_own.c.o'),
         ('libskein_socket.a', '.._own_own.c.o')]
MUTABLE = ('.data', '.bss', '.tdata', '.tbss', '*COM*', '.sdata', '.sbss')


def mutable(section):
    if section.startswith('.data.rel.ro'):
        return False
    return any(section == name or section.startswith(name + '.')
               for name in MUTABLE)


def check(objects):
    nm = subprocess.run(['nm', '--format=sysv', *objects], check=True,
                        stdout=subprocess.PIPE, text=True).stdout
    found, source, exempt = [], '', False
    seen = 0
    for line in nm.split('\n'):
        if line.startswith('Symbols from '):
            # "Symbols from lib.a[dir/src_base_x.c.o]:" or plain path
            name = line[len('Symbols from '):].rstrip(':')
            archive = ''
            if name.endswith(']'):
                archive, name = name[:-1].split('[')
            source = os.path.basename(name)
            exempt = source.startswith(EXEMPT) or \
                (os.path.basename(archive), source) in STATE
            seen += 1
            continue
        columns = [column.strip() for column in line.split('|')]
        if len(columns) != 7 or exempt:
            continue
        name, _, _, kind, _, _, section = columns
        if kind != 'SECTION' and mutable(section):
            found.append(f'{source}: {name} is in {section}')
    if not seen:
        found.append('nm listed no object at all')
    return found


CASES = [
    ('constants pass', 'src_rpc_a.c.o', '''
        static const char *const table[] = {"a", "b"};
        const char *f(int i) { static const int k[] = {1, 0};
                return table[k[i]]; }''', None),
    ('.data is seen', 'src_rpc_a.c.o', 'int level = 7;', 'level is in .data'),
    ('.bss is seen', 'src_dev_soft_a.c.o',
     'int *f(void) { static int count; return &count; }', 'is in .bss'),
    ('pointers that could change are seen', 'src_rpc_a.c.o',
     'extern int x; static int *where = &x; int **f(void) '
     '{ return &where; }', 'where is in .data'),
    ('.tbss is seen', 'src_rpc_a.c.o', '_Thread_local int mine;',
     'mine is in .tbss'),
    ('a common symbol is seen', 'src_rpc_a.c.o',
     'int shared __attribute__((common));', 'shared is in *COM*'),
    ('env may', 'src_env_clock.c.o', 'int level = 7;', None),
    ('a state.c of any other archive may not', 'state.c.o', 'int level = 7;',
     'level is in .data'),
]


def state_test():
    """The one file of the interposer may, its others may not."""
    wrong = 0
    for name, expected in (('state.c.o', 0), ('other.c.o', 1)):
        with tempfile.TemporaryDirectory() as tree:
            common.write_tree(tree, {'a.c': 'int level = 7;'})
            target = os.path.join(tree, name)
            subprocess.run(['cc', '-c', os.path.join(tree, 'a.c'), '-o',
                            target], check=True)
            archive = os.path.join(tree, 'libskein_verbs.a')
            subprocess.run(['ar', 'csrT', archive, target], check=True)
            good = len(check([archive])) == expected
        print(f'{"ok" if good else "WRONG"}: {name} of the interposer')
        wrong += not good
    return wrong


def self_test():
    wrong = 0
    for what, name, text, expected in CASES:
        with tempfile.TemporaryDirectory() as tree:
            source = os.path.join(tree, 'a.c')
            target = os.path.join(tree, name)
            common.write_tree(tree, {'a.c': text, 'b.c': 'int g(void) '
                                     '{ return 1; }'})
            subprocess.run(['cc', '-fPIC', '-O2', '-c', source, '-o', target],
                           check=True)
            other = os.path.join(tree, 'src_rpc_b.c.o')
            subprocess.run(['cc', '-c', os.path.join(tree, 'b.c'),
                            '-o', other], check=True)
            archive = os.path.join(tree, 'lib.a')
            subprocess.run(['ar', 'csrT', archive, target, other], check=True)
            found = check([archive])
            same = check([target, other]) == found
        good = same and (not found if expected is None else
                         len(found) == 1 and expected in found[0])
        print(f'{"ok" if good else "WRONG"}: {what}')
        if not good:
            print(f'  expected: {expected}\n  found: {found}')
            wrong += 1
    return wrong


if __name__ == '__main__':
    if sys.argv[1:] == ['--self-test']:
        sys.exit(1 if self_test() + state_test() else 0)
    results = check(sys.argv[1:])
    for result in results:
        print(result)
    print(f'globals: {len(results)} finding(s)')
    sys.exit(1 if results else 0)
