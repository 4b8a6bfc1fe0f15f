#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/regress.py with programs that only print figures: the ratios, which way
is slower, what a missing figure is, that the sides take turns."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REGRESS = os.path.join(HERE, '..', '..', 'bench', 'regress.py')

# Turn n of a side prints figures[n].
FAKE = '''#!{python}
import json, os, sys
side, log, figures = {side!r}, {log!r}, {figures!r}
mine = 0
if os.path.exists(log):
    mine = open(log).read().split().count(side)
open(log, 'a').write(side + ' ')
assert '--json' in sys.argv and '--self' in sys.argv
print(json.dumps(figures[mine]))
'''


def fake(folder, side, figures):
    tools = os.path.join(folder, side, 'tools')
    os.makedirs(tools)
    path = os.path.join(tools, 'skein')
    with open(path, 'w', encoding='utf-8') as out:
        out.write(FAKE.format(python=sys.executable, side=side,
                              log=os.path.join(folder, 'log'),
                              figures=figures))
    os.chmod(path, 0o755)
    return os.path.join(folder, side)


def regress(old, new, *words):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, '-B', REGRESS, 'A', 'B', '--json', '--turns',
             str(len(old)), '--build', f'OLD={fake(folder, "OLD", old)}',
             '--build', f'NEW={fake(folder, "NEW", new)}', *words],
            capture_output=True, text=True, check=False)
        if done.returncode:
            return done, None
        with open(os.path.join(folder, 'log'), encoding='utf-8') as log:
            return json.loads(done.stdout)['bars'], log.read().split()


def turn(value, field='ns_per_op_ratio', **more):
    return {field: value, 'mode': 'near', 'cacheline_rtt_ns': 100,
            'doorbells': 10, 'operations_run': 100, **more}


def main():
    old = [turn(0.2), turn(9.0), turn(0.1)]
    new = [turn(0.3, doorbells=20), turn(0.5, doorbells=20),
           turn(0.1, doorbells=20, mode='far')]
    (first, second), log = regress(old, new, '--only', 'rpc_32')
    assert (first['old'], first['new']) == (0.2, 0.3), first
    assert abs(first['ratio'] - 1.5) < 1e-9 and first['slower'], first
    assert first['modes'] == ['far', 'near'], first
    assert first['cacheline_rtt_ns'] == 100, first
    assert (second['old'], second['new'], second['slower']) == (0.1, 0.2, True)
    assert log == ['OLD', 'NEW'] * 3, log
    # more bytes a second are faster
    (bar,), _ = regress([turn(200, 'bytes_per_s')], [turn(400, 'bytes_per_s')],
                        '--only', 'stream_bw')
    assert bar['ratio'] == 0.5 and not bar['slower'], bar
    # without a slice that held still there is no figure, and no ratio
    (bar, _), _ = regress([turn(None)], [turn(0.1)], '--only', 'rpc_32')
    assert bar['ratio'] is None and not bar['slower'], bar
    done, _ = regress([turn(1)], [turn(1)], '--only', 'nothing')
    assert done.returncode == 2 and 'no bar' in done.stderr, done


main()
