# SPDX-License-Identifier: MIT
"""Few descriptors and 64 KiB of lockable memory: what cannot work fails with one
clear line, and nothing else is disturbed."""

import re
import resource

from harness import DEVICES, Case, Failure, run_cases
from peers import (calls_work, client, ended_in_words, footprint, serve,
                   settles)

MEMLOCK = 64 * 1024


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
            said = process.text('err')
            # of anything else it has enough
            if re.search('Cannot allocate memory|No data available', said):
                raise Failure(f'{limit} descriptors, the wrong cause: {said}')
            case.forget(process)
        if not worked[-1] or worked[0]:
            raise Failure(f'limits tell nothing: {worked}')
        # Once there are enough there are enough.
        if worked != sorted(worked):
            raise Failure(f'more descriptors, less success: {worked}')
        calls_work(case, server.address)
        settles(case, server, before, 'the server holds what it held')
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


run_cases(few_descriptors_client, little_lockable_memory)
