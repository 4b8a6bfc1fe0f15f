# SPDX-License-Identifier: MIT
"""1,000 UD senders to one receiver, 200 of them killed at random, others stopped
for a while: no hang, and the messages of all others arrive. Once as 20 QPs in
each of 50 processes, once as processes: 300, and in `make soak` 1,000."""

import os

from harness import Case, DEVICES, MODE, Failure, built, run_cases

# what a process of it takes, generously
PROCESS_KB = 4096


def memory_kb():
    with open('/proc/meminfo', encoding='ascii') as f:
        for line in f:
            if line.startswith('MemAvailable:'):
                return int(line.split()[1])
    return 0


def storm(processes, qps, killed, stopped):
    with Case() as case:
        run = case.start([built('tests/e2e/ud_storm'), str(processes),
                          str(qps), str(killed), str(stopped)],
                         device=DEVICES.server)
        # It ends by itself when nothing moves; this is for more than that.
        line = run.expect(r'messages arrived', 400).string
        run.exits(0, 20)
        print('    ' + line.strip())
        if f'{processes * qps} senders in {processes} processes' not in line:
            raise Failure(f'not what was asked for: {line}')


def of_50_processes():
    storm(50, 20, 10, 5)


def of_many_processes():
    # where messages are lost, and sent again, fewer say as much
    # (and under sanitizers, where a process takes a tenth of a second to start)
    slow = 'ASAN_OPTIONS' in os.environ or 'TSAN_OPTIONS' in os.environ
    whole = 'SKEIN_TEST_ROUNDS' in os.environ
    n = min(100 if MODE.harsh or slow else 1000 if whole else 300,
            memory_kb() // 2 // PROCESS_KB)
    if n < 20:
        raise Failure('hardly any memory')
    storm(n, 1, n // 5, n // 50)


run_cases(of_50_processes, of_many_processes)
