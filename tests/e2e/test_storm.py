# SPDX-License-Identifier: MIT
"""60 clients, and in `make soak` 500, start together and make one call each:
while they wait they poll, or sleep. None is refused for good, none is lost."""

import os
import subprocess

from harness import DEVICES, MODE, SCALE, Case, Failure, built, run_cases

# What a loaded machine may take: the test is not about time.
PATIENCE_S = int(200 * SCALE)


def clients():
    if MODE.harsh or 'ASAN_OPTIONS' in os.environ or \
            'TSAN_OPTIONS' in os.environ:
        return 20
    return 500 if 'SKEIN_TEST_ROUNDS' in os.environ else 60


def storm(wait):
    many, n = built('bench/many/many'), clients()
    with Case() as case:
        server = case.start([many, 'serve', 'sleep', str(PATIENCE_S)],
                            name='server', device=DEVICES.server,
                            stdin=subprocess.PIPE)
        address = server.expect(r'^addr=(\S+)$').group(1)
        run = case.start([many, 'spawn', str(n), 'one', address, wait,
                          str(PATIENCE_S)], name='clients',
                         device=DEVICES.server)
        line = run.expect(r'^ns=\d+ failed=(\d+)$', PATIENCE_S / SCALE)
        run.exits(0)
        if line.group(1) != '0':
            raise Failure(f'{line.group(1)} of {n} clients failed')
        server.popen.stdin.close()
        server.exits(0)


def polling():
    storm('poll')


def sleeping():
    storm('sleep')


run_cases(polling, sleeping)
