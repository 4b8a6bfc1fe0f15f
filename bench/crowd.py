#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""crowd.py [--json] [--clients 1,2,8,32,64] [--ms N] - so many client processes
call one server at once, by turns with blocking TCP (a thread a client): calls a
second of all, the busiest client over the last one, p99."""

import bed


def crowd(place, server, words, clients, ms):
    """All at once: (calls a second, most over least, p99 in us)."""
    running = [place.start(words[0], server.addr, *words[1:], 0, ms)
               for _ in range(clients)]
    total = 0.0
    counts, tails = [], []
    for process in running:
        out, err = process.communicate()
        if process.returncode:
            raise bed.Failed(f'{words}: {err.strip()}')
        said = bed.values(out)
        counts.append(said['count'])
        tails.append(said['p99_ns'])
        total += said['count'] / (said['ns'] / 1e9)
    return (total, max(counts) / max(min(counts), 1),
            bed.median(tails) / 1000)


def bench(place, opts):
    rows, shown = [], []
    for clients in opts.clients:
        row = {'clients': clients}
        with place.server('serve', 'default') as skein, \
                place.server('tcp-serve') as tcp:
            found = {'skein': [], 'tcp': []}
            for _ in range(opts.rounds):
                found['skein'].append(crowd(place, skein, ('calls', 'default'),
                                            clients, opts.ms))
                found['tcp'].append(crowd(place, tcp, ('tcp-calls',), clients,
                                          opts.ms))
        for name, runs in found.items():
            total, spread, tail = (bed.median(column)
                                   for column in zip(*runs))
            row[name] = {'calls_per_s': total, 'most_over_least': spread,
                         'p99_us': tail}
        row['over_tcp'] = bed.median(
            [a[0] / b[0] for a, b in zip(found['skein'], found['tcp'])])
        rows.append(row)
        shown.append((clients, row['skein']['calls_per_s'],
                      row['tcp']['calls_per_s'], row['over_tcp'],
                      row['skein']['most_over_least'],
                      row['tcp']['most_over_least'], row['skein']['p99_us'],
                      row['tcp']['p99_us']))
    return {'rows': rows}, ('clients', 'calls/s', 'TCP', 'over TCP',
                            'most/least', 'TCP', 'p99 us', 'TCP'), shown


bed.main(bench, bed.options(
    __doc__,
    lambda p: p.add_argument('--clients', type=bed.numbers,
                             default=[1, 2, 8, 32, 64]),
    lambda p: p.add_argument('--ms', type=int, default=500),
    lambda p: p.add_argument('--rounds', type=int, default=1)))
