# SPDX-License-Identifier: MIT
"""A server that runs out of descriptors: live clients go on, further ones are
refused, and there is room again when some leave. A call too large for a
message may be refused alone: it needs memory that peers can reach, and so a
descriptor."""

import resource

from harness import Case, Failure, run_cases
from peers import (COUNTS, calls_work, client, ended_in_words, footprint,
                   serve)


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
                process.expect('^running$', timeout=60)
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


run_cases(few_descriptors_server)
