#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All C files look as clang-format 14 writes them by .clang-format.

    format.py [--fix | --self-test]

Exit status 77 where clang-format 14 is not installed: other versions disagree
with it in small things.
"""

import os
import shutil
import sys

import common


def program():
    for name in ('clang-format-14', 'clang-format'):
        if shutil.which(name) and 'version 14.' in common.run(
                [name, '--version'])[1]:
            return name
    print('skipped: clang-format 14 is not installed '
          '(scripts/deps.sh lint)')
    sys.exit(77)


def check(tree, fix=False):
    files = [os.path.join(tree, path) for path in common.c_files(tree)]
    style = os.path.join(common.ROOT, '.clang-format')
    how = ['-i'] if fix else ['--dry-run', '-Werror']
    _, text = common.run([program(), f'--style=file:{style}', *how, *files])
    return [line.replace(tree + '/', '') for line in text.split('\n')
            if ': error: ' in line]


CASES = [
    ('kernel style passes',
     {'src/a.c': 'int f(void)\n{\n\treturn 1;\n}\n'}, None),
    ('four blanks fail',
     {'src/a.c': 'int f(void)\n{\n    return 1;\n}\n'}, 'src/a.c:2'),
]

if __name__ == '__main__':
    if sys.argv[1:] == ['--fix']:
        sys.exit(1 if check(common.ROOT, fix=True) else 0)
    common.main(check, CASES, 'format')
