#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""elastic.py [--json] [-n 180] [--rounds N] - an application that grows: so many
processes start together while another one loads their server; each connects,
makes one call and ends (KRCore's figure 16 as a real run). By the node service,
and directly with clients that sleep or poll; each over the same number of
processes that do nothing."""

import contextlib
import os
import re
import subprocess
import tempfile

import bed


@contextlib.contextmanager
def running(words, env, wanted):
    """A command until the end of the block; what `wanted` found in its output."""
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        try:
            for line in process.stdout:
                found = re.match(wanted, line)
                if found:
                    break
            else:
                raise bed.Failed(f'{words}: ended')
            yield found
        finally:
            process.terminate()


@contextlib.contextmanager
def node_service(place, opts, folder):
    """Meta server and node service; the bed's programs find them."""
    tool = os.path.join(opts.build, 'tools', 'skein')
    path = os.path.join(folder, 'node')
    with running([tool, 'meta', '--listen', '127.0.0.1:0'], place.env,
                 r'meta: listening on (\S+), ') as meta, \
            running([tool, 'node', '--listen', path, '--meta',
                     meta.group(1), f'--clients={opts.n + 8}',
                     '--user-times=64'], place.env, 'node: '):
        place.env.update(SKEIN_NODE=path)
        yield


def storm(place, server, load, words, n):
    """One storm beside the load: (seconds, how many failed)."""
    with place.server(load[0], server.addr, *load[1:]):
        found = place.run('spawn', n, words[0], server.addr, *words[1:])
    return found['ns'] / 1e9, found['failed']


def bench(place, opts):
    ways = [('node', ('vqp-serve',), ('vqp-calls',), ('vqp-one',)),
            ('direct, sleep', ('serve', 'sleep'), ('load', 'sleep'),
             ('one', 'sleep')),
            ('direct, poll', ('serve', 'sleep'), ('load', 'sleep'),
             ('one', 'poll'))]
    seconds = {name: [] for name in ('nothing', *(way[0] for way in ways))}
    failed = dict.fromkeys(seconds, 0)
    with tempfile.TemporaryDirectory() as folder, \
            node_service(place, opts, folder):
        for _ in range(opts.rounds):
            nothing = place.run('spawn', opts.n, 'nothing')
            seconds['nothing'].append(nothing['ns'] / 1e9)
            for name, serve, load, words in ways:
                with place.server(*serve) as server:
                    took, lost = storm(place, server, load, words, opts.n)
                seconds[name].append(took)
                failed[name] += lost
    base = bed.median(seconds['nothing'])
    found = {name: {'seconds': bed.median(took), 'failed': failed[name],
                    'over_nothing': bed.median(took) / base}
             for name, took in seconds.items()}
    node = found['node']['seconds']
    return ({'n': opts.n, 'rounds': opts.rounds, 'ways': found,
             'node_over_spawn_only': node / base,
             'node_over_direct': node / found['direct, sleep']['seconds'],
             'failed': sum(failed.values())},
            ('way', 'seconds', 'over nothing', 'failed'),
            [(name, row['seconds'], row['over_nothing'], row['failed'])
             for name, row in found.items()])


if __name__ == '__main__':
    bed.main(bench, bed.options(
        __doc__,
        lambda p: p.add_argument('-n', type=int, default=180),
        lambda p: p.add_argument('--rounds', type=int, default=3)))
