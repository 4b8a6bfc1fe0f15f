#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults.py SKEIN - faults by a script: each kind strikes when and where it is
told, the run ends well all the same, and what makes no sense is refused."""

import json
import os
import subprocess
import sys

SKEIN = sys.argv[1]
SCALE = float(os.environ.get('SKEIN_TEST_TIME_SCALE') or 1)
KINDS = ('kill crash link-down loss link-slow delay node-slow pause stall '
         'qp-error memory').split()
WRONG = ('kill', 'kill:0', 'kill:0@', 'kill:x@1ms', 'flood:0@1ms',
         'kill:0@1ms+', 'kill:0@1ms+0', 'kill:0@soon', ',kill:0@1ms,x',
         ','.join(['kill:0@1ms'] * 65))


def sim(*words):
    return subprocess.run([SKEIN, 'sim', *words], capture_output=True,
                          text=True, timeout=100 * SCALE,
                          check=False)


def scripted(scenario, script, counts):
    done = sim(scenario, '--seed', '5', '--fault', script, '--json')
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    assert report['ok'], report['why']
    for kind in KINDS:
        assert report['figures'][kind] == counts.get(kind, 0), (kind, script)
    return report


for scenario in ('rpc-basic', 'kv', 'rpc-handles'):
    calm = scripted(scenario, '', {})
    for kind in KINDS:
        # not in order, and once after the time that chance would have had
        hit = scripted(scenario, f'{kind}:1@90ms+20ms,{kind}:0@10ms+30ms',
                       {kind: 2})
        assert hit['event_log_hash'] != calm['event_log_hash'], kind
    print(f'{scenario}: {len(KINDS)} kinds of faults by script: ok')

# a node that has crashed is heard of late, a process that was killed at once
kill = scripted('rpc-basic', 'kill:0@10ms', {'kill': 1})
crash = scripted('rpc-basic', 'crash:0@10ms+900ms', {'crash': 1})
assert crash['virtual_ns'] > kill['virtual_ns'] + 500000000, (kill, crash)

for script in WRONG:
    done = sim('rpc-basic', '--fault', script)
    assert done.returncode == 2, (script, done.stdout)
    assert len(done.stderr.splitlines()) == 1, done.stderr
print(f'{len(WRONG)} scripts that make no sense: refused')
