# SPDX-License-Identifier: MIT
"""Few descriptors and 64 KiB of lockable memory: what cannot work fails with one
clear line, and nothing else is disturbed."""

import resource

from harness import DEVICES, Case, Failure, run_cases
from peers import COUNTS, calls_work, client, footprint, serve, settles

MEMLOCK = 64 * 1024


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


def few_descriptors_client():
    """For every limit from none to plenty."""
    with Case() as case:
        server = serve(case)
        calls_work(case, server.address)
        before = footprint(server)
        worked = []
        for limit in range(3, 64):
            process = client(case, server.address, calls=20, limits=[
                (resource.RLIMIT_NOFILE, limit)])
            worked.append(ended_in_words(process, f'{limit} descriptors'))
            case.forget(process)
        if not worked[-1] or worked[0]:
            raise Failure(f'limits tell nothing: {worked}')
        # Once there are enough there are enough.
        if worked != sorted(worked):
            raise Failure(f'more descriptors, less success: {worked}')
        calls_work(case, server.address)
        settles(case, server, before, 'the server holds what it held')
        server.stop()


def few_descriptors_server():
    """The server runs out with live clients: they go on, further ones are
    refused, and when some leave there is room again."""
    with Case() as case:
        spare = serve(case)
        calls_work(case, spare.address)
        base = sum(footprint(spare)[0].values())
        spare.stop()
        server = serve(case, limits=[(resource.RLIMIT_NOFILE, base + 24)])
        kept = []
        for _ in range(40):
            process = client(case, server.address, calls=0)
            try:
                process.expect('^running$', timeout=8)
            except Failure:
                if ended_in_words(process, 'one client too many'):
                    raise
                case.forget(process)
                break
            kept.append(process)
        else:
            raise Failure('40 clients on 24 descriptors')
        if not kept:
            raise Failure('not even one client found room')
        for process in kept:
            if not process.running():
                raise Failure('a live client was disturbed')
            process.stop()
            wrong, not_sent, unknown = map(int, COUNTS.search(
                process.expect(COUNTS.pattern).string).groups()[1:])
            if wrong or not_sent or unknown:
                raise Failure('a live client lost calls')
        case.until('room again', lambda: 'ended, 0 live' in server.text())
        calls_work(case, server.address)
        server.stop()


def little_lockable_memory():
    """soft pins nothing and works; a real device names the limit."""
    with Case() as case:
        server = serve(case)
        process = client(case, server.address, calls=200, limits=[
            (resource.RLIMIT_MEMLOCK, MEMLOCK)])
        worked = ended_in_words(process, '64 KiB of lockable memory')
        if DEVICES.soft and not worked:
            raise Failure('soft needs no lockable memory')
        if not worked and 'MEMLOCK' not in process.text('err'):
            raise Failure('the limit is not named: ' + process.text('err'))
        calls_work(case, server.address)
        server.stop()


run_cases(few_descriptors_client, few_descriptors_server,
          little_lockable_memory)
