#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""quiet.py [--json] [--idle 0,100,1000,4000] - what connections that say nothing
cost: instructions of a server's round, of a call, and of one more connection with
its first call beside them (callgrind, both ends in one process), the p50 of a call
of another process over that beside none, the time to open the last of them over the
first, memory of one of them, and the server's share of a core while nobody calls.
Memory is that of both ends together, after one call: shared pages, each counted
once, and the heap's; the kernel's own (descriptors, page tables) is not in it."""

import os
import time

import bed


def cpu_s(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
        words = file.read().rsplit(')', 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def live(place, opts, idle):
    """With processes of their own."""
    row = {}
    with place.server('serve', 'sleep') as server:
        # a first client, with one connection: what all of them share is there
        with place.server('idle', server.addr, 'sleep', 1) as one:
            before = bed.memory_kib(server.pid, one.pid)
        if not idle:
            row.update(place.run('calls', server.addr, 'default', opts.calls,
                                 0))
            return {'p50_ns': row['p50_ns']}
        with place.server('idle', server.addr, 'sleep', idle) as crowd:
            after = bed.memory_kib(server.pid, crowd.pid)
            begun, used = time.monotonic(), cpu_s(server.pid)
            time.sleep(opts.pause)
            used = (cpu_s(server.pid) - used) / (time.monotonic() - begun)
            calls = place.run('calls', server.addr, 'default', opts.calls, 0)
            said = crowd.said
    shared, private = ((most - least) / max(idle - 1, 1)
                       for most, least in zip(after, before))
    return {'p50_ns': calls['p50_ns'],
            'last_open_over_first': said['last_ns'] / said['first_ns'],
            'first_open_us': said['first_ns'] / 1000,
            'kib_each': shared + private, 'shared_kib_each': shared,
            'idle_core_share': used}


def bench(place, opts):
    rows = []
    for idle in opts.idle:
        row = {'idle': idle}
        for what in ('round', 'call', 'open'):
            row[f'{what}_instructions'] = None if opts.no_counts else \
                place.instructions(place.quiet, what, idle, opts.units)
        row.update(live(place, opts, idle))
        rows.append(row)
    first = rows[0]
    for row in rows:
        row['p50_ratio'] = row['p50_ns'] / first['p50_ns']
        for what in ('round', 'call', 'open'):
            name = f'{what}_instructions'
            row[f'{what}_ratio'] = row[name] / first[name] \
                if row[name] else None
    heads = ('idle', 'round_instructions', 'call_instructions',
             'open_instructions', 'p50_ns', 'p50_ratio',
             'last_open_over_first', 'kib_each', 'shared_kib_each',
             'idle_core_share')
    return ({'rows': rows}, heads,
            [[row.get(head) for head in heads] for row in rows])


bed.main(bench, bed.options(
    __doc__,
    lambda p: p.add_argument('--idle', type=bed.numbers,
                             default=[0, 100, 1000, 4000]),
    lambda p: p.add_argument('--calls', type=int, default=2000),
    lambda p: p.add_argument('--units', type=int, default=64),
    lambda p: p.add_argument('--pause', type=float, default=2.0),
    lambda p: p.add_argument('--no-counts', action='store_true',
                             help='without callgrind')))
