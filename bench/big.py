#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""big.py [--json] [--len BYTES] [--count N] [--ms N] - a large payload there and
back, by a handler in a pool's thread: the rate each way, the longest round of the
server's engine in CPU time, memory of each end over the payload (the client's has
the program's own request and result in it), and the p99 of another client's 64-byte
calls meanwhile and alone."""

import argparse
import threading

import bed


class Most:
    """`with Most(pid) as m`: m.kib, the most memory that the process has had
    meanwhile, looked at each 5 ms."""

    def __init__(self, pid):
        self.pid = pid
        self.kib = 0
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.end.wait(0.005):
            try:
                self.kib = max(self.kib, sum(bed.memory_kib(self.pid)))
            except (OSError, AttributeError):
                return  # it has ended

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.end.set()
        self.thread.join()
        return False


def alone(place, server, opts):
    """The large calls of one client: p50 in ns, memory of either end in KiB."""
    before = sum(bed.memory_kib(server.pid))
    client = place.start('big', server.addr, opts.len, opts.count)
    with Most(server.pid) as at_server, Most(client.pid) as at_client:
        out, err = client.communicate()
    if client.returncode:
        raise bed.Failed(f'big: {err.strip()}')
    return (bed.values(out)['p50_ns'], at_server.kib - before, at_client.kib)


def beside(place, server, opts):
    """Another client's p99 in ns while one makes large calls."""
    with place.server('big', server.addr, opts.len, 0):
        return place.run('calls', server.addr, 'default', 0, opts.ms)['p99_ns']


def bench(place, opts):
    with place.server('big-serve') as server:
        p99_alone = place.run('calls', server.addr, 'default', 0,
                              opts.ms)['p99_ns']
        p50, at_server, at_client = alone(place, server, opts)
        p99 = beside(place, server, opts)
    payload = opts.len / 1024
    found = {
        'len': opts.len, 'count': opts.count,
        # half of the time for each way
        'gib_per_s_each_way': opts.len / 2**30 / (p50 / 2e9),
        'round_most_us': server.said['most_ns'] / 1000,
        'round_p99_us': server.said['p99_ns'] / 1000,
        'server_memory_over_payload': at_server / payload,
        'client_memory_over_payload': at_client / payload,
        'other_p99_us': p99 / 1000, 'other_p99_alone_us': p99_alone / 1000,
    }
    return found, ('', ''), list(found.items())


def some(text):
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no number above 0')
    return int(text)


bed.main(bench, bed.options(
    __doc__,
    lambda p: p.add_argument('--len', type=some, default=256 << 20,
                             help='bytes each way of a large call (256 MiB)'),
    lambda p: p.add_argument('--count', type=some, default=5,
                             help='large calls (5)'),
    lambda p: p.add_argument('--ms', type=some, default=2000,
                             help="the other client's time in ms (2000)")))
