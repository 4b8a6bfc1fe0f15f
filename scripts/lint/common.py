# SPDX-License-Identifier: MIT
"""What the checks of scripts/lint share: the list of files, and the self-test.

A check is a function of a tree (a folder) that returns its findings, one line
each. main() runs it on the repository, or, with --self-test, on small trees of
which the author knows whether they are in order: a check that cannot fail
fails its self-test.
"""

import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
C_FOLDERS = ('src', 'include', 'lib', 'tools', 'apps', 'bench', 'examples',
             'tests', 'sim')


def c_files(tree, folders=C_FOLDERS):
    """Every .c and .h file below the folders, relative to the tree."""
    found = []
    for folder in folders:
        for place, dirs, names in os.walk(os.path.join(tree, folder)):
            dirs[:] = sorted(d for d in dirs if not d.startswith('.'))
            found += [os.path.relpath(os.path.join(place, name), tree)
                      for name in sorted(names)
                      if name.endswith(('.c', '.h'))]
    return found


def write_tree(tree, files):
    for path, text in files.items():
        path = os.path.join(tree, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as out:
            out.write(text)


def self_test(check, cases):
    """cases: (what it shows, {path: text}, words of the one finding or None).
    """
    wrong = 0
    for what, files, expected in cases:
        with tempfile.TemporaryDirectory() as tree:
            write_tree(tree, files)
            found = check(tree)
        good = (not found if expected is None else
                len(found) == 1 and expected in found[0])
        print(f'{"ok" if good else "WRONG"}: {what}')
        if not good:
            wrong += 1
            print(f'  expected: {expected}\n  found: {found}')
    return wrong


def main(check, cases, summary):
    if sys.argv[1:] == ['--self-test']:
        sys.exit(1 if self_test(check, cases) else 0)
    found = check(ROOT)
    for line in found:
        print(line)
    print(f'{summary}: {len(found)} finding(s)')
    sys.exit(1 if found else 0)


def run(argv, text_in=''):
    """(exit status, output) of a command; 127 when there is none such."""
    try:
        done = subprocess.run(argv, input=text_in, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              errors='replace', check=False)
    except FileNotFoundError:
        return 127, ''
    return done.returncode, done.stdout
