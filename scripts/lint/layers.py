#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Dependencies point down only: fails on an #include that points up.

    base < env < dev < conn < (vqp, rpc, stream, mcast) < bind < apps < sim < tools

The four in brackets are siblings and do not know each other; nor do the
devices below dev/. src/modules.c is the one file of src/ that stands above all
modules. Examples see the public headers alone. Tests may look anywhere.
"""

import os
import re

import common

RANK = {'base': 0, 'env': 1, 'dev': 2, 'conn': 3, 'vqp': 4, 'rpc': 4,
        'stream': 4, 'mcast': 4, 'bind': 5, 'modules': 6, 'apps': 7,
        'sim': 8, 'tools': 9, 'bench': 9, 'examples': 9}
# A public header belongs to the layer of its concept.
PUBLIC = {'version': 'base', 'error': 'base', 'ctx': 'env', 'conn': 'conn',
          'mem': 'conn', 'rpc': 'rpc', 'mcast': 'mcast', 'stream': 'stream', 'vqp': 'vqp',
          'skein': 'modules'}
DEVICES = ('soft', 'verbs', 'sim')
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
FOLDERS = ('src', 'include', 'tools', 'apps', 'sim', 'bench', 'examples')


def layer(path):
    """The layer of a file of the tree; None when it has none."""
    parts = path.split('/')
    if parts[0] == 'src':
        if len(parts) == 2:
            return 'modules'
        return parts[1] if parts[1] in RANK else None
    if parts[:2] == ['include', 'skein']:
        return PUBLIC.get(parts[-1][:-2])
    return parts[0] if parts[0] in RANK else None


def device(path):
    parts = path.split('/')
    if parts[:2] == ['src', 'dev'] and len(parts) > 3 and parts[2] in DEVICES:
        return parts[2]
    return None


def resolve(tree, path, quote, name):
    """The file that an #include names, relative to the tree; None when it is
    not one of ours."""
    places = ['include', 'src']
    if quote == '"':
        places.insert(0, os.path.dirname(path))
    if path.startswith(('apps/', 'sim/', 'tools/', 'bench/')):
        places += ['apps', 'tools', '.']
    for place in places:
        hit = os.path.normpath(os.path.join(place, name))
        if os.path.isfile(os.path.join(tree, hit)):
            return hit
    return None


def upward(path, target):
    """Why path must not include target; None when it may."""
    mine, its = layer(path), layer(target)
    if its is None:
        return f'{target} belongs to no layer (scripts/lint/layers.py)'
    if mine == 'examples' and not target.startswith(('include/', 'examples/')):
        return 'examples use the public headers only'
    if mine == its:
        a, b = device(path), device(target)
        return f'devices {a} and {b} are siblings' if a and b and a != b \
            else None
    if RANK[its] > RANK[mine]:
        return f'{its} lies above {mine}'
    if RANK[its] == RANK[mine]:
        return f'{mine} and {its} are siblings'
    return None


def check(tree):
    found = []
    for path in common.c_files(tree, FOLDERS):
        if layer(path) is None:
            found.append(f'{path}: belongs to no layer')
            continue
        with open(os.path.join(tree, path), encoding='utf-8') as lines:
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                target = resolve(tree, path, *match.groups())
                why = target and upward(path, target)
                if why:
                    found.append(f'{path}:{number}: includes {target}: {why}')
    return found


HEADERS = {'src/base/list.h': '', 'src/env/env.h': '', 'src/dev/dev.h': '',
           'src/conn/conn.h': '', 'src/rpc/ring.h': '', 'src/vqp/pool.h': '',
           'src/dev/soft/qp.h': '', 'include/skein/rpc.h': '',
           'include/skein/error.h': '', 'tools/tool.h': ''}


def tree_with(path, text):
    return {**HEADERS, path: text}


CASES = [
    ('a tree in order passes',
     tree_with('src/rpc/a.c', '#include "ring.h"\n#include "conn/conn.h"\n'
               '#include <stdio.h>\n#include <skein/rpc.h>\n'), None),
    ('base must not include env',
     tree_with('src/base/a.c', '#include "env/env.h"\n'), 'env lies above'),
    ('a relative path is seen through',
     tree_with('src/env/a.h', '#include "../conn/conn.h"\n'),
     'conn lies above env'),
    ('angle brackets too',
     tree_with('src/conn/a.c', '# include <skein/rpc.h>\n'), 'rpc lies above'),
    ('siblings do not know each other',
     tree_with('src/vqp/a.c', '#include "rpc/ring.h"\n'), 'siblings'),
    ('nor do devices',
     tree_with('src/dev/verbs/a.c', '#include "dev/soft/qp.h"\n'),
     'devices verbs and soft'),
    ('dev itself may know its devices',
     tree_with('src/dev/a.c', '#include "soft/qp.h"\n'), None),
    ('src/modules.c may include every module',
     tree_with('src/modules.c', '#include "rpc/ring.h"\n'
               '#include "vqp/pool.h"\n'), None),
    ('src/ must not include tools/',
     tree_with('src/rpc/a.c', '#include "../../tools/tool.h"\n'),
     'tools lies above rpc'),
    ('an example must not look inside',
     tree_with('examples/01-echo/a.c', '#include "base/list.h"\n'),
     'public headers only'),
    ('a folder without a layer is noticed',
     tree_with('src/misc/a.c', ''), 'no layer'),
    ('so is a public header without one',
     {**HEADERS, 'include/skein/new.h': ''}, 'no layer'),
]

if __name__ == '__main__':
    common.main(check, CASES, 'layers')
