# SPDX-License-Identifier: MIT
"""bench/peers/run.py in a small form: Skein and raw sockets, slices of 20 ms.
Checks what it reports and what it leaves behind, not how fast anything is.
"""

import json
import math
import os
import signal
import sys

from harness import BUILD, ROOT, SCALE, Case, run_cases, skip

SCRIPT = os.path.join(ROOT, 'bench', 'peers', 'run.py')
# What a busy machine may take; the script gives up before the test does.
BUDGET_S = 250
PATIENCE_S = 280
TINY = [sys.executable, '-B', SCRIPT, '--rounds', '1', '--slice', '20',
        '--budget', f'{BUDGET_S * SCALE:.0f}', '--figure', 'latency', '--only']


def out_folder(case):
    """The build's programs, and a place for what the script writes."""
    folder = os.path.join(case.folder, 'build')
    os.makedirs(folder)
    for name in ('tools', 'bench', 'lib'):
        os.symlink(os.path.join(BUILD, name), os.path.join(folder, name))
    return folder


def remove(folder):
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


def positive(one, *fields):
    """What was measured; where others had the cores for a whole slice, nothing
    was, which the rate says."""
    if one.get('rate') == 0:
        assert one['ratio'] is None, one
        return
    for field in fields:
        assert math.isfinite(one[field]) and one[field] > 0, (field, one)


def shape():
    with Case() as case:
        folder = out_folder(case)
        script = case.start([*TINY, 'socket, ', '--only', 'UD RPC',
                             '--figure', 'rate32', '--json', folder])
        script.exits(0, timeout=PATIENCE_S)
        found = json.loads(script.text('out'))
        assert found['rounds'] == 1 and found['machine']['cores'] >= 2
        names = {(row['name'], row['awake']): row for row in found['peers']}
        for name in ('Skein RPC, polling', "UD RPC (eRPC's manner)",
                     'TCP socket, spinning',
                     'Unix socket, spinning', 'Skein RPC, asleep',
                     'TCP socket, blocking', 'Unix socket, blocking'):
            row = names[name, False]
            assert row['skipped'] is None, row
            figures = row['figures']
            assert sorted(figures) == ['latency', 'rate32'], row
            positive(figures['latency'], 'p50_ns', 'p99_ns', 'ratio')
            positive(figures['rate32'], 'rate', 'bytes_per_s', 'ratio')
            if row['base']:
                assert figures['rate32']['ratio'] in (
                    [1] if figures['rate32']['rate'] else [None]), row
        assert names['TCP socket, blocking', True]['figures']
        with open(os.path.join(folder, 'peers.json'),
                  encoding='utf-8') as file:
            assert json.load(file) == found
        with open(os.path.join(folder, 'peers.svg'),
                  encoding='utf-8') as file:
            assert '<svg ' in file.read()
        remove(folder)


def never():
    """A figure that a row cannot have: n/a, and neither run nor failed."""
    with Case() as case:
        folder = out_folder(case)
        script = case.start([*TINY, 'UD RPC', '--figure', 'bandwidth', folder])
        script.exits(0, timeout=PATIENCE_S)
        text = script.text('out')
        mine = next(line for line in text.split('\n')
                    if line.startswith('| UD RPC'))
        cells = [cell.strip() for cell in mine.split('|')[2:-1]]
        assert all(cells[:3]) and cells[7:9] == ['n/a', 'n/a'], mine
        assert 'slices failed' not in text and 'given up' not in text, text
        remove(folder)


def merges():
    """Two runs of one figure each make one table, and what is missing is
    named with its reason."""
    with Case() as case:
        folder = out_folder(case)
        parts = []
        for figure in ('latency', 'rate32'):
            words = [figure if word == 'latency' else word for word in TINY]
            script = case.start([*words, 'TCP socket, spin', folder])
            script.exits(0, timeout=PATIENCE_S)
            parts.append(os.path.join(folder, figure))
            os.rename(os.path.join(folder, 'peers.json'), parts[-1])
        with open(parts[0], encoding='utf-8') as file:
            first = json.load(file)
        row = first['peers'][0]
        first['peers'].append({**row, 'name': 'Nobody', 'figures': {},
                               'base': False, 'skipped': 'is not installed'})
        with open(parts[0], 'w', encoding='utf-8') as file:
            json.dump(first, file)
        table = case.start([*TINY, 'all', folder, '--merge', *parts])
        table.exits(0)
        lines = table.text('out').split('\n')
        assert any('| Nobody | not measured: is not installed |' in line
                   for line in lines), lines
        mine = next(line for line in lines
                    if line.startswith('| TCP socket, spinning'))
        # p50, p99, x, rate and its x; nothing of the other figures
        cells = [cell.strip() for cell in mine.split('|')[2:-1]]
        assert all(cells[:5]) and not any(cells[5:9]), mine
        remove(folder)


def interrupted():
    """Ctrl-C in the midst: it ends at once and takes its processes along."""
    with Case() as case:
        folder = out_folder(case)
        script = case.start([*TINY, 'socket, ', '--rounds', '1000', folder])
        # the first pair runs: the folder of a run exists
        case.until('a run has begun', lambda: any(
            name.startswith('skein-peers-') and
            os.listdir(os.path.join(case.folder, name))
            for name in os.listdir(case.folder)))
        os.kill(script.pid, signal.SIGINT)
        script.exits(128 + signal.SIGINT)
        assert not [name for name in os.listdir(case.folder)
                    if name.startswith('skein-peers-')]
        remove(folder)


if len(os.sched_getaffinity(0)) < 2:
    skip('one core: both ends of most peers poll')
run_cases(shape, never, merges, interrupted)
