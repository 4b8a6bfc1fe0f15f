#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""storm.py [--json] [-n 180|500] [--wait poll|sleep] - so many client processes
start together, connect to one server, make one call each and end: how long, how
many fail, and that over the time of as many processes that do nothing."""

import bed


def bench(place, opts):
    ratios, seconds, failed = [], [], 0
    for _ in range(opts.rounds):
        nothing = place.run('spawn', opts.n, 'nothing')
        with place.server('serve', 'sleep') as server:
            storm = place.run('spawn', opts.n, 'one', server.addr, opts.wait)
        failed += storm['failed']
        seconds.append(storm['ns'] / 1e9)
        ratios.append(storm['ns'] / nothing['ns'])
    result = {'n': opts.n, 'wait': opts.wait, 'rounds': opts.rounds,
              'failed': failed, 'seconds': bed.median(seconds),
              'over_nothing': bed.median(ratios)}
    return result, ('clients', 'wait', 'failed', 'seconds', 'over nothing'), [
        (opts.n, opts.wait, failed, result['seconds'],
         result['over_nothing'])]


bed.main(bench, bed.options(
    __doc__,
    lambda p: p.add_argument('-n', type=int, default=180),
    lambda p: p.add_argument('--rounds', type=int, default=1),
    lambda p: p.add_argument('--wait', default='sleep',
                             choices=('sleep', 'poll', 'default'))))
