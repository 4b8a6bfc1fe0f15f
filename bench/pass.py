#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pass.py [--json] [--sizes 1024,...] [--count N] [--rounds N] - one process hands
some kilobytes to another that it has no connection to yet (KRCore's figure 12):
connect, send, an answer of 64 bytes, the end. Both processes are warm. By the
node service, by TCP and directly, in turns. `parts`: by the node service in
messages of at most 3,968 bytes, which are copied; a longer one is READ (zero
copy)."""

import os
import tempfile

import bed
from elastic import node_service


def bench(place, opts):
    rows = []
    with tempfile.TemporaryDirectory() as folder, \
            node_service(place, opts, folder), \
            place.server('vqp-serve') as node, \
            place.server('serve', 'poll') as direct:
        for size in opts.sizes:
            found = {'node': [], 'parts': [], 'tcp': [], 'direct': []}
            with place.server('tcp-take', size) as tcp:
                for _ in range(opts.rounds):
                    for name, words in (
                            ('node', ('vqp-pass', node.addr)),
                            ('parts', ('vqp-parts', node.addr)),
                            ('tcp', ('tcp-pass', tcp.addr)),
                            ('direct', ('pass', direct.addr, 'poll'))):
                        said = place.run(*words, size, opts.count)
                        found[name].append(said['p50_ns'] / 1000)
            row = {name + '_us': bed.median(us) for name, us in found.items()}
            row['bytes'] = size
            row['node_over_parts'] = row['node_us'] / row['parts_us']
            row['node_over_tcp'] = row['node_us'] / row['tcp_us']
            row['direct_over_tcp'] = row['direct_us'] / row['tcp_us']
            rows.append(row)
    heads = ('bytes', 'node_us', 'parts_us', 'tcp_us', 'direct_us',
             'node_over_parts', 'node_over_tcp', 'direct_over_tcp')
    return ({'cores': os.cpu_count(), 'count': opts.count,
             'rounds': opts.rounds, 'rows': rows}, heads,
            [[row[head] for head in heads] for row in rows])


if __name__ == '__main__':
    bed.main(bench, bed.options(
        __doc__,
        lambda p: p.add_argument('-n', type=int, default=16,
                                 help='clients that the node service takes'),
        lambda p: p.add_argument('--sizes', type=bed.numbers,
                                 default='1024,3072,5120,7168,9216'),
        lambda p: p.add_argument('--count', type=int, default=200),
        lambda p: p.add_argument('--rounds', type=int, default=3)))
