# SPDX-License-Identifier: MIT
"""fork and exec in the middle: a forked child is refused and disturbs nothing;
an exec ends the connection for the peer and takes no descriptor along."""

from harness import Case, Failure, run_cases
from peers import COUNTS, ENDED, check_ended, client, serve

CALLS = 400
BEFORE_EXEC = 100


def counts_of(process):
    line = process.expect(COUNTS.pattern).string
    return tuple(map(int, COUNTS.search(line).groups()))


def fork_in_the_middle():
    with Case() as case:
        server = serve(case)
        parent = client(case, server.address, 'fork', CALLS)
        parent.exits(0)
        if counts_of(parent) != (CALLS, 0, 0, 0):
            raise Failure('the parent lost calls')
        check_ended(server.expect(ENDED.pattern).string, CALLS)
        server.stop()


def exec_in_the_middle():
    with Case() as case:
        server = serve(case)
        process = client(case, server.address, 'exec', CALLS)
        if counts_of(process) != (BEFORE_EXEC, 0, 0, 0):
            raise Failure('calls were lost before the exec')
        if counts_of(process) != (CALLS, 0, 0, 0):
            raise Failure('calls were lost after the exec')
        process.exits(0)
        totals = sorted(int(ENDED.search(server.expect(ENDED.pattern).string)
                            .group(2)) for _ in range(2))
        if totals != [BEFORE_EXEC, CALLS]:
            raise Failure(f'the server counted {totals}')
        server.stop()


def held(process):
    """Its descriptors, but for the buffers of large payloads: how many it keeps
    depends on how its calls met."""
    kinds = process.descriptors()
    kinds.pop('memfd:skein-rpc-large', None)
    return kinds


def exec_takes_nothing_along():
    with Case() as case:
        server = serve(case)
        plain = client(case, server.address, 'call', 0)
        plain.expect('^running$')
        expected = held(plain)
        plain.stop()
        process = client(case, server.address, 'exec', 0)
        counts_of(process)
        process.expect('^running$')
        if held(process) != expected:
            raise Failure(f'after exec: {held(process)}, '
                          f'plain: {expected}')
        process.stop()
        server.stop()


run_cases(fork_in_the_middle, exec_in_the_middle, exec_takes_nothing_along)
