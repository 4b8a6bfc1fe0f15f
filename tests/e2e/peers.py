# SPDX-License-Identifier: MIT
"""The two ends of the reliability tests, as processes (tests/e2e/peer*.c)."""

import re

from harness import DEVICES, Failure, built

COUNTS = re.compile(r'^(\d+) done, (\d+) wrong, (\d+) not sent, (\d+) unknown')
ENDED = re.compile(r'^ended, (\d+) live, (\d+) calls, (\d+) missing, '
                   r'(\d+) twice, (\d+) wrong')


def serve(case, address=None, **how):
    server = case.start([built('tests/e2e/peer'), 'serve',
                         address or DEVICES.listen], name='server',
                        device=DEVICES.server, **how)
    server.address = server.expect(r'^listening on (\S+)$').group(1)
    return server


def client(case, address, way='call', calls=200, **how):
    return case.start([built('tests/e2e/peer'), way, address, calls],
                      name='client', device=DEVICES.client, **how)


def calls_work(case, address, calls=200, **how):
    """A new process connects and calls, at once and without an error."""
    process = client(case, address, calls=calls, **how)
    found = COUNTS.search(process.expect(COUNTS.pattern).string)
    process.exits(0)
    if tuple(map(int, found.groups())) != (calls, 0, 0, 0):
        raise Failure(f'of {calls} calls: {found.group()}')
    case.forget(process)


def check_ended(line, calls=None):
    """A connection's totals, as the server prints them: nothing lost, doubled
    or changed."""
    _, came, missing, twice, wrong = map(int, ENDED.search(line).groups())
    if missing or twice or wrong or (calls is not None and came != calls):
        raise Failure(f'the server counted: {line}')


def footprint(process):
    return process.descriptors(), process.mappings(), process.threads()


def no_more(now, before):
    descriptors, mappings, threads = now
    return threads <= before[2] and \
        all(map(int.__le__, mappings, before[1])) and \
        all(count <= before[0].get(kind, 0)
            for kind, count in descriptors.items())


def settles(case, process, before, what, measure=footprint):
    """The process holds no more than before: descriptors, shared mappings,
    threads. Less is no leak: what was measured may have held something of a
    peer that was about to be given up."""
    def settled():
        now = measure(process)
        if not process.running():
            raise Failure(f'{process.name} has ended')
        return no_more(now, before)
    try:
        case.until(what, settled)
    except Failure as failure:
        raise Failure(f'{failure}: held {before}, '
                      f'holds {measure(process)}') from None


def ended_in_words(process, what):
    """It worked, or said in a line why not; no crash, no hang. True: worked."""
    status = process.exits(None)
    if status == 0:
        return True
    if status == 127 and 'loading shared libraries' in process.text('err'):
        return False  # even the loader needs one
    if status != 1 or not process.text('err').strip():
        raise Failure(f'{what}: status {status}, '
                      f'stderr {process.text("err")!r}')
    return False
