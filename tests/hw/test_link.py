# SPDX-License-Identifier: MIT
"""The cable between client and server is pulled (link.sh): for less than the
retries last nothing is lost; for longer the connection ends in one clear line,
and comes back once the cable is in again."""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '..', 'e2e'))
# pylint: disable=wrong-import-position
from harness import Case, Failure, run_cases  # noqa: E402
from peers import COUNTS, ENDED, check_ended, client, serve  # noqa: E402

# The port of the client's device; the server keeps its own.
STATE = '/sys/class/infiniband/rxe8/ports/1/state'
# 1.07 s, 8 times; and 17 ms, 3 times.
PATIENT = {'SKEIN_RETRY_TIMEOUT': '1s'}
HASTY = {'SKEIN_RETRY_TIMEOUT': '10ms', 'SKEIN_RETRY_COUNT': '2'}


def active():
    with open(STATE, encoding='ascii') as f:
        return 'ACTIVE' in f.read()


def cable(case, state):
    subprocess.run(['ip', 'link', 'set', 'wbm', state], check=True)
    case.until(f'the port is {state}', lambda: active() == (state == 'up'))


def short():
    with Case() as case:
        server = serve(case, env=PATIENT)
        process = client(case, server.address, calls=0, env=PATIENT)
        process.expect('^running')
        cable(case, 'down')
        time.sleep(1)  # this is how long it is out, no wait for anything
        cable(case, 'up')
        process.stop()
        found = COUNTS.search(process.text('out').split('\n')[-2])
        if not found:
            raise Failure(process.text())
        done, wrong, not_sent, unknown = map(int, found.groups())
        if not done or wrong or not_sent or unknown:
            raise Failure(f'not all calls: {found.group()}')
        if 'broken' in process.text('out'):
            raise Failure('the connection broke: ' + process.text('out'))
        check_ended(server.expect(ENDED.pattern).string)
        server.stop()


def long():
    with Case() as case:
        server = serve(case, env=HASTY)
        process = client(case, server.address, way='again', calls=0, env=HASTY)
        process.expect('^running')
        cable(case, 'down')
        line = process.expect('^broken: (.*)').string
        if 'rxe8' not in line and 'peer' not in line:
            raise Failure(f'not a clear line: {line}')
        print(line)
        cable(case, 'up')
        process.expect('^running')
        process.stop(None)
        server.stop(None)


run_cases(short, long)
