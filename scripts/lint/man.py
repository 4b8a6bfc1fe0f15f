#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every committed man page was made from its Markdown as it stands now
(`make docs`), docs/man/meson.build installs it, and what it names as docs/...
is there."""

import hashlib
import os
import re

import common

NAMED = re.compile(r'\bdocs/[a-z/-]+\.md')


def read(path):
    try:
        with open(path, 'rb') as file:
            return file.read()
    except FileNotFoundError:
        return b''


def check(tree):
    found = []
    folder = os.path.join(tree, 'docs', 'man')
    installed = read(os.path.join(folder, 'meson.build')).decode()
    names = set(os.listdir(folder)) - {'meson.build'}
    for name in sorted(names):
        if name.endswith('.md'):
            page = name[:-3]
            for other in sorted(set(NAMED.findall(
                    read(os.path.join(folder, name)).decode()))):
                if not os.path.exists(os.path.join(tree, other)):
                    found.append(f'docs/man/{name}: {other} is not there')
            digest = hashlib.sha256(read(os.path.join(folder, name)))
            first = read(os.path.join(folder, page)).split(b'\n')[0].decode()
            if digest.hexdigest() not in first:
                found.append(f'docs/man/{page}: not made from {name} as it '
                             'is: make docs')
            elif f"'{page}'" not in installed:
                found.append(f'docs/man/{page}: meson.build does not '
                             'install it')
        elif name + '.md' not in names:
            found.append(f'docs/man/{name}: has no {name}.md')
    return found


TEXT = '# NAME\n'


def tree_of(text):
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {'docs/man/a.1.md': text,
            'docs/man/meson.build': "install_man('a.1')",
            'docs/man/a.1': f'.\\" made from a.1.md {digest}; do not edit\n'}


GOOD = tree_of(TEXT)
CASES = [
    ('a fresh page passes', GOOD, None),
    ('a stale one is seen', {**GOOD, 'docs/man/a.1.md': TEXT + 'new'},
     'a.1: not made from'),
    ('and one never made', {**GOOD, 'docs/man/b.1.md': TEXT}, 'b.1: not made'),
    ('and one that names what is not there',
     tree_of(TEXT + '*docs/b.md*\n'), 'docs/b.md is not there'),
    ('and one without a source', {**GOOD, 'docs/man/c.1': ''}, 'no c.1.md'),
    ('and one that is not installed', {**GOOD, 'docs/man/meson.build': ''},
     'does not install'),
]

if __name__ == '__main__':
    common.main(check, CASES, 'man')
