# SPDX-License-Identifier: MIT
"""harsh_unit.py PROGRAM [ARG..] - a unit test program that opens real devices,
run in soft's harsh mode: once for each seed, and every device that it opens
must be in that mode. Environment: SKEIN_TEST_HARSH_SEED, .._SEEDS (harness.py).
"""

import os
import subprocess
import sys

from harness import DEVICE_LINE, MODE

FIRST = MODE.first
SEEDS = int(os.environ.get('SKEIN_TEST_HARSH_SEEDS') or 1)


def fail(seed, why):
    print(f'FAILED in harsh mode: {why}\nagain: SKEIN_SOFT_HARSH={seed} '
          + ' '.join(sys.argv[1:]))
    sys.exit(1)


def run(seed):
    done = subprocess.run(
        sys.argv[1:], env={**os.environ, 'SKEIN_SOFT_HARSH': str(seed),
                           'SKEIN_LOG': 'info', 'SKEIN_TEST_DEVICE': 'soft',
                           'SKEIN_TEST_DEVICE2': 'soft'},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        errors='replace')
    said = {}
    for line in done.stdout.splitlines():
        match = DEVICE_LINE.match(line)
        if match:
            said.setdefault(match.groups(), line)
        elif not line.startswith('skein: info: '):
            print(line)
    if done.returncode:
        fail(seed, f'status {done.returncode}')
    if not said:
        fail(seed, 'no device said its name')
    for (kind, name, mode, gid), line in said.items():
        if (kind, mode) != ('soft', f'harsh, seed {seed}'):
            fail(seed, f'another device: {line}')
        print(f'device {kind} ({name}), GID {gid}, {mode}')


for number in range(FIRST, FIRST + SEEDS):
    run(number)
