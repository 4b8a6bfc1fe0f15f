# SPDX-License-Identifier: MIT
"""A sandbox that comes after start: both ends of a connection forbid themselves
system calls while they run, first membarrier(2) alone, then a dozen. Calls,
memory operations, deregistration, a further connection and both ways to close go
on, by slower ways; what has none fails with the error of the kernel."""

import os

from harness import Case, DEVICES, built, run_cases

# LeakSanitizer looks through /proc at the end, which the sandbox forbids.
os.environ['ASAN_OPTIONS'] = (os.environ.get('ASAN_OPTIONS', '') +
                              ':detect_leaks=0')


def sandbox(calls):
    with Case() as case:
        server = case.start([built('tests/e2e/sandbox'), 'server', calls],
                            device=DEVICES.server)
        address = server.expect(r'listening on (\S+)').group(1)
        client = case.start([built('tests/e2e/sandbox'), 'client', calls,
                             address], device=DEVICES.client)
        client.expect(r'worked', 60)
        client.exits(0)
        server.stop()


def without_membarrier():
    sandbox('barrier')


def without_a_dozen_calls():
    sandbox('all')


run_cases(without_membarrier, without_a_dozen_calls)
