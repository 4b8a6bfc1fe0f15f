#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wake.py [--json] [--calls N] - a 64-byte call when both ends sleep: system
calls (strace) and wake-ups (voluntary context switches) of each end for a call,
and its time over that of a Unix socket and of TCP in the same run."""

import bed


def times(place, opts, server, tcp):
    """By turns."""
    found = {'skein': [], 'unix': [], 'tcp': []}
    for _ in range(opts.rounds):
        found['skein'].append(place.run('calls', server.addr, 'sleep',
                                        opts.calls, 0)['p50_ns'])
        found['unix'].append(place.run('unix-calls', opts.calls)['p50_ns'])
        found['tcp'].append(place.run('tcp-calls', tcp.addr, opts.calls,
                                      0)['p50_ns'])
    return found


def counts(place, opts, server):
    """Two runs that differ by so many calls, for each end."""
    few, more = opts.calls // 4, opts.calls
    run = ('calls', server.addr, 'sleep')
    return {
        'client': bed.per_call(bed.syscalls(place, *run, few, 0),
                               bed.syscalls(place, *run, more, 0),
                               more - few),
        'server': bed.per_call(
            bed.syscalls(place, *run, few, 0, pid=server.pid),
            bed.syscalls(place, *run, more, 0, pid=server.pid), more - few),
    }


def wakes(place, opts):
    """The server's of its whole life, less what a life without calls has."""
    lives, client = [], 0
    for calls in (1, opts.calls):
        with place.server('serve', 'sleep') as server:
            got = place.run('calls', server.addr, 'sleep', calls, 0)
        lives.append(server.said['switches'])
        client = got['switches'] / calls
    return {'client': client,
            'server': (lives[1] - lives[0]) / (opts.calls - 1)}


def bench(place, opts):
    with place.server('serve', 'sleep') as server, \
            place.server('tcp-serve') as tcp:
        found = times(place, opts, server, tcp)
        called = counts(place, opts, server)
    woken = wakes(place, opts)
    result = {
        'calls': opts.calls,
        'asleep_over_unix': bed.median(
            [a / b for a, b in zip(found['skein'], found['unix'])]),
        'asleep_over_tcp': bed.median(
            [a / b for a, b in zip(found['skein'], found['tcp'])]),
        'p50_us': {name: bed.median(ns) / 1000 for name, ns in found.items()},
        'wake_ups': woken, 'system_calls': called,
        'system_calls_sum': {
            end: None if names is None else round(sum(names.values()), 3)
            for end, names in called.items()},
    }
    rows = [(end, woken[end], result['system_calls_sum'][end],
             ', '.join(f'{name} {count:.2f}'
                       for name, count in (called[end] or {}).items()))
            for end in ('client', 'server')]
    rows.append(('over unix', result['asleep_over_unix'], None, ''))
    rows.append(('over tcp', result['asleep_over_tcp'], None, ''))
    return result, ('', 'wake-ups', 'system calls', 'which'), rows


bed.main(bench, bed.options(
    __doc__,
    lambda p: p.add_argument('--calls', type=int, default=4000),
    lambda p: p.add_argument('--rounds', type=int, default=3)))
