# SPDX-License-Identifier: MIT
"""kill -9 of either end at a random moment, SKEIN_TEST_ROUNDS (25) rounds: the
other end notices, a new connection works at once, nothing is left behind."""

import os
import random
import time

from harness import DEVICES, MODE, Case, Failure, rounds, run_cases
from peers import (COUNTS, ENDED, calls_work, check_ended, client, footprint,
                   serve, settles)

SEED = int(os.environ.get('SKEIN_TEST_SEED') or random.randrange(1 << 32))
# A peer's death is noticed within a second on a machine that has the time.
NOTICE_S = 60
# A death is told as one, not as silence. Where no device tells it (harsh mode, a
# NIC) requests under way may run out of retries before the link's end is seen.
CAUSE = 'process has ended'
if not DEVICES.soft or MODE.harsh:
    CAUSE += '|device does not answer'
PIDFD = 'anon_inode:[pidfd]'


def kill_clients():
    choose = random.Random(SEED)
    with Case() as case:
        server = serve(case)
        # The first connection makes what stays: it is the measure.
        calls_work(case, server.address)
        check_ended(server.expect(ENDED.pattern).string, 200)
        before = footprint(server)
        for number in range(rounds(50, 25)):
            victim = client(case, server.address, calls=0)
            # Every other one dies in or near its handshake.
            if number % 2:
                victim.expect('^running$')
            time.sleep(choose.random() * 0.02)  # the moment, not a wait
            victim.kill()
            case.forget(victim)
            calls_work(case, server.address, calls=20)
            live = None
            while live != 0:
                line = server.expect(ENDED.pattern, NOTICE_S).string
                check_ended(line)
                live = int(ENDED.search(line).group(1))
            if not server.running():
                raise Failure(f'the server ended in round {number}')
        settles(case, server, before, 'the server holds what it held')
        server.stop()
        server.expect(r'^served \d+ calls, 0 twice, 0 wrong, 0 live$')


def unconnected(process):
    """What it holds while it has no connection; the socket by which it tries
    to get one comes and goes."""
    descriptors, mappings, threads = footprint(process)
    descriptors.pop('socket', None)
    return descriptors, mappings, threads


def kill_servers():
    choose = random.Random(SEED + 1)
    with Case() as case:
        server = serve(case)
        address = server.address
        survivor = client(case, address, 'again', 0)
        before = None
        for number in range(rounds(50, 25)):
            survivor.expect('^running$')
            time.sleep(choose.random() * 0.02)  # the moment, not a wait
            server.kill()
            case.forget(server)
            # What failed, with whom, on which device, why.
            survivor.expect(r'^broken: .*: lost the connection to \S+ '
                            r'\(pid \d+\) on \S+ \(\S+\): the peer is gone: '
                            f'.*({CAUSE})', NOTICE_S)
            counts = COUNTS.search(survivor.expect(COUNTS.pattern).string)
            if int(counts.group(2)):
                raise Failure(f'round {number}: {counts.group()}')
            survivor.expect('^closed$')
            # The first round makes what stays: it is the measure, once the
            # dead server's own descriptors have gone, a moment later.
            if number == 0:
                case.until('the dead server is given up', lambda: PIDFD
                           not in unconnected(survivor)[0])
                before = unconnected(survivor)
            settles(case, survivor, before, 'the client holds what it held',
                    unconnected)
            server = serve(case, address)
        survivor.expect('^running$')
        survivor.stop()
        server.stop()


print(f'SKEIN_TEST_SEED={SEED}')
run_cases(kill_clients, kill_servers)
