#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""connect.py [--json] [--runs N] - what a connection costs: from main() to the
first answered call, a further connection and its first call, and opening a
context, each over floor_us of the same run: fork, exec, a Unix socket connected,
one byte there and back."""

import bed

PARTS = ('context', 'connection', 'first_call', 'to_first_answer', 'further')


def bench(place, opts):
    runs = {part: [] for part in PARTS}
    floors = []
    with place.server('serve', opts.wait) as server:
        for _ in range(opts.runs):
            floors.append(place.floor_us(8))
            found = place.run('first', server.addr, opts.wait)
            for part in PARTS:
                runs[part].append(found[part + '_ns'] / 1000)
    floor = bed.median(floors)
    result = {'runs': opts.runs, 'wait': opts.wait, 'floor_us': floor}
    rows = [('floor', floor, 1.0)]
    for part in PARTS:
        over = bed.median([us / at for us, at in zip(runs[part], floors)])
        result[part + '_us'] = bed.median(runs[part])
        result[part + '_over_floor'] = over
        rows.append((part, result[part + '_us'], over))
    return result, ('', 'us', 'over floor'), rows


bed.main(bench, bed.options(
    __doc__,
    lambda p: p.add_argument('--runs', type=int, default=20),
    lambda p: p.add_argument('--wait', default='sleep',
                             choices=('sleep', 'poll', 'default'))))
