#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare.py [--json FILE] [--slices N] [--clients N,N] [--workloads ABCDEF]
[--ops N] [BUILD] - YCSB's core workloads over a gRPC key-value service, on
streams beside plain TCP.

The server runs on one core, the clients on another one. Slices of TCP and of
`skein run` take turns; a row is the median ratio of neighbouring slices. A slice
on streams counts only if the report says that each connection was on a stream.
20,000 records, and by default as many operations: the paper's settings
(RR-Compound, section V-E). Its own ratios, on 40 cores and a NIC, stand beside.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'run'))

from programs import Missing, Place  # noqa: E402

PAPER = {'A': 1.63, 'B': 2.24, 'C': 2.04, 'D': 2.33, 'E': 1.97, 'F': 2.35}
RECORDS = 20000
CORES = (0, 1)


class Kv:
    """grpc_kv_serve with RECORDS records."""
    @staticmethod
    def program(place, name):
        return os.path.join(place.build, 'bench', 'grpc-kv', 'grpc_kv_' + name)

    @staticmethod
    def serve(place, kind, core, _, name):
        process = place.start(name, [*place.words(kind, core),
                                     Kv.program(place, 'serve'), '0'])
        line = process.stdout.readline().split()
        if len(line) != 3:
            raise Missing('grpc_kv_serve has ended')
        place.ports[kind] = line[2]
        Kv.client(place, 'tcp', ['load', line[2], '4', str(RECORDS)])
        return process

    @staticmethod
    def client(place, kind, words):
        said = place.load([*place.words(kind, CORES[1], True),
                           Kv.program(place, 'ycsb'), *words])
        return json.loads(said[said.index('{'):])

    @staticmethod
    def load(place, kind, workload, clients, ops):
        """A run of a workload."""
        if kind not in place.servers:
            name = f'kv-{kind}'
            place.servers[kind] = (Kv.serve(place, kind, CORES[0], None, name),
                                   None, None)
        return Kv.client(place, kind, [workload, place.ports[kind],
                                       str(clients), str(RECORDS), str(ops)])


def measure(place, workload, clients, options):
    ratios, found, dropped = [], {'tcp': [], 'stream': []}, 0
    for _ in range(options.slices):
        base = Kv.load(place, 'tcp', workload, clients, options.ops)
        mine = Kv.load(place, 'stream', workload, clients, options.ops)
        if not place.on_streams('stream'):
            dropped += 1
            continue
        ratios.append(mine['rate'] / base['rate'])
        found['tcp'].append(base)
        found['stream'].append(mine)
    row = {'workload': workload, 'clients': clients, 'dropped': dropped,
           'paper': PAPER[workload]}
    if not ratios:
        return {**row, 'rate_x_tcp': None}
    row['rate_x_tcp'] = round(statistics.median(ratios), 3)
    row['ratios'] = [round(ratio, 2) for ratio in sorted(ratios)]
    row['verified'] = sum(run['verified'] for run in found['stream'])
    for kind, runs in found.items():
        for what in ('rate', 'p50_ns', 'p99_ns'):
            row[f'{what}_{kind}'] = statistics.median(
                run[what] for run in runs)
    return row


def tell(row):
    if row['rate_x_tcp'] is None:
        print(f'{row["workload"]}  {row["clients"]:4}  not on streams')
        return
    print(f'{row["workload"]}  {row["clients"]:4}  {row["rate_x_tcp"]:6.2f}  '
          f'{row["paper"]:6.2f}  {row["rate_tcp"]:9.0f}  '
          f'{row["rate_stream"]:9.0f}  {row["p50_ns_tcp"] / 1000:8.0f}  '
          f'{row["p50_ns_stream"] / 1000:8.0f}  {row["verified"]:9}',
          flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', metavar='FILE')
    parser.add_argument('--slices', type=int, default=3)
    parser.add_argument('--clients', default='4,16,64,128')
    parser.add_argument('--workloads', default='ABCDEF')
    parser.add_argument('--ops', type=int, default=20000)
    parser.add_argument('build', nargs='?', default='build')
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    subprocess.run([os.path.join(HERE, 'build.sh'), build], check=True)
    print('   clients  ratio   paper        TCP     stream   us p50 TCP, '
          'stream   verified')
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(build, folder)
        place.ports = {}
        try:
            for clients in options.clients.split(','):
                for workload in options.workloads.upper():
                    rows.append(measure(place, workload, int(clients),
                                        options))
                    tell(rows[-1])
        except subprocess.CalledProcessError as why:
            sys.exit(f'compare.py: {why}\n{why.stdout or ""}')
        finally:
            place.close()
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as out:
            json.dump({'rows': rows, 'load': os.getloadavg()[0]}, out,
                      indent=2)


main()
