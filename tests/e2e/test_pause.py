# SPDX-License-Identifier: MIT
"""A peer stopped for three seconds is not taken for dead: no call is lost,
doubled or changed, on either side."""

import time

from harness import Case, Failure, run_cases
from peers import COUNTS, ENDED, check_ended, client, serve

PAUSE_S = 3.0  # what the test is about; nothing is waited for by it


def pause(which):
    with Case() as case:
        server = serve(case)
        caller = client(case, server.address, calls=0)
        caller.expect('^running$')
        stopped = {'server': server, 'client': caller}[which]
        stopped.pause()
        time.sleep(PAUSE_S)
        for process in (server, caller):
            if not process.running():
                raise Failure(f'{process.name} ended in the pause')
        stopped.resume()
        # It goes on: the end in order proves that calls were answered after
        # the pause, and the counts that none was lost.
        caller.stop()
        done, wrong, not_sent, unknown = map(int, COUNTS.search(
            caller.expect(COUNTS.pattern).string).groups())
        if wrong or not_sent or unknown:
            raise Failure(f'{done} done, {wrong} wrong, {not_sent} not sent, '
                          f'{unknown} unknown')
        check_ended(server.expect(ENDED.pattern).string, done)
        server.stop()


def pause_server():
    pause('server')


def pause_client():
    pause('client')


run_cases(pause_server, pause_client)
