#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bars.py [--json FILE] [--slices N] [--only FIELD] [BUILD] - what `skein run` is
worth to stock programs, beside plain TCP and Unix sockets in the same run.

Both ends are pinned to a core each. Slices of a fixed number of requests take
turns: TCP, Unix socket, streams. A field is the median ratio of neighbouring
slices. A slice on streams counts only if the report says that every connection
of it that was used was on a stream. Rates are redis-benchmark's. Absolute rates
are for orientation; a loaded machine shows in the spread. No figure here is one
of a NIC.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# field, what, what it is divided by, options of redis-benchmark, requests in a
# slice (TCP's, ours), bound, wanted
BARS = [
    ('redis_c1_rate_x_tcp', 'stream', 'tcp', ['-c', '1'], (8000, 80000), 15),
    ('redis_c1_rate_x_unix', 'stream', 'unix', ['-c', '1'], (8000, 80000), 12),
    ('redis_c50_rate_x_tcp', 'stream', 'tcp', ['-c', '50'],
     (30000, 100000), 8),
    ('redis_c50_p16_rate_x_tcp', 'stream', 'tcp', ['-c', '50', '-P', '16'],
     (100000, 200000), 1.5),
    ('event_redis_c1_rate_x_tcp', 'event', 'tcp', ['-c', '1'], (8000, 8000),
     0.95),
    ('plain_peer_redis_c1_rate_x_tcp', 'plain', 'tcp', ['-c', '1'],
     (8000, 8000), 0.95),
]
BOTH = [('one_core_redis_c1_rate_x_tcp', 'stream', 'tcp', ['-c', '1'],
         (8000, 20000), 1.4)]
IDLE_S = 3


def free_port():

    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Bench:
    def __init__(self, build, folder):
        self.tool = os.path.join(build, 'tools', 'skein')
        self.folder = folder
        self.servers = {}

    def server(self, kind, core):
        """A redis-server: plain, or under skein run."""
        key = (kind, core)
        if key in self.servers:
            return self.servers[key]
        port = free_port()
        path = os.path.join(self.folder, f'{kind}{core}.sock')
        words = ['taskset', '-c', str(core)]
        if kind != 'tcp':
            words += [self.tool, 'run', '--wait',
                      'event' if kind == 'event' else 'adaptive', '--']
        words += ['redis-server', '--port', str(port), '--bind', '127.0.0.1',
                  '--unixsocket', path, '--save', '', '--dir', self.folder]
        log = open(os.path.join(self.folder, f'{kind}{core}.log'), 'w',
                   encoding='utf-8')
        process = subprocess.Popen(words, stdout=log, stderr=log)
        for _ in range(200):
            if os.path.exists(path):
                break
            time.sleep(0.05)
        self.servers[key] = (process, port, path)
        return self.servers[key]

    def close(self):
        for process, _, _ in self.servers.values():
            process.send_signal(signal.SIGTERM)
        for process, _, _ in self.servers.values():
            process.wait(20)

    def slice(self, kind, options, requests, cores):
        """One run of redis-benchmark: requests a second, or None."""
        server = {'unix': 'tcp', 'plain': 'tcp'}.get(kind, kind)
        _, port, path = self.server(server, cores[0])
        words = ['taskset', '-c', str(cores[1])]
        report = os.path.join(self.folder, 'report')
        if os.path.exists(report):
            os.unlink(report)
        if kind in ('stream', 'event', 'plain'):
            words += [self.tool, 'run', '--report', report, '--wait',
                      'event' if kind == 'event' else 'adaptive', '--']
        words += ['redis-benchmark', '-t', 'get', '--csv', '-n',
                  str(requests), *options]
        words += ['-s', path] if kind == 'unix' else ['-p', str(port)]
        out = subprocess.run(words, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True,
                             timeout=120, check=True).stdout
        rate = float([line for line in out.splitlines()
                      if line.startswith('"GET"')][0].split('"')[3])
        if kind in ('stream', 'event') and not all_on(report):
            return None
        return rate


def all_on(report):
    """Every connection that was used was on a stream."""
    with open(report, encoding='utf-8') as lines:
        found = [json.loads(line) for line in lines]
    used = [line for line in found if line['calls_before'] >= 8]
    return used and all(line['carrier'] == 'stream' for line in used)


def measure(bench, bar, slices, cores):
    field, ours, theirs, options, requests, wanted = bar
    ratios, rates, dropped = [], {ours: [], theirs: []}, 0
    for _ in range(slices):
        base = bench.slice(theirs, options, requests[0], cores)
        mine = bench.slice(ours, options, requests[1], cores)
        if mine is None:
            dropped += 1
            continue
        ratios.append(mine / base)
        rates[ours].append(mine)
        rates[theirs].append(base)
    if not ratios:
        return {'field': field, 'measured': None, 'wanted': wanted,
                'verdict': 'not on streams', 'dropped': dropped}
    found = statistics.median(ratios)
    return {'field': field, 'measured': round(found, 3), 'wanted': wanted,
            'verdict': 'ok' if found >= wanted else 'NOT',
            'ratios': [round(ratio, 2) for ratio in sorted(ratios)],
            'rate': statistics.median(rates[ours]),
            'rate_' + theirs: statistics.median(rates[theirs]),
            'dropped': dropped}


def cpu_s(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
        fields = stat.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def idle(bench):
    """An idle server that has had streams; redis itself wakes 10 times a
    second."""
    process = bench.server('stream', 0)[0]
    begun = cpu_s(process.pid)
    time.sleep(IDLE_S)
    share = (cpu_s(process.pid) - begun) / IDLE_S
    return {'field': 'idle_server_cpu_share', 'measured': round(share, 4),
            'wanted': 0.01, 'verdict': 'ok' if share < 0.01 else 'NOT'}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', metavar='FILE')
    parser.add_argument('--slices', type=int, default=9)
    parser.add_argument('--only', help='fields that have this in their name')
    parser.add_argument('build', nargs='?', default='build')
    options = parser.parse_args()
    if not shutil.which('redis-benchmark'):
        sys.exit('bars.py: no redis-benchmark: scripts/deps.sh peers')
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(options.build), folder)
        try:
            todo = [(bar, (0, 1)) for bar in BARS] + \
                [(bar, (0, 0)) for bar in BOTH]
            for bar, cores in todo:
                if not options.only or options.only in bar[0]:
                    rows.append(measure(bench, bar, options.slices, cores))
            if not options.only or options.only in 'idle_server_cpu_share':
                rows.append(idle(bench))
        finally:
            bench.close()
    for row in rows:
        print(f'{row["field"]:<34} {row["measured"]!s:>9}  bar '
              f'{row["wanted"]:>5}  {row["verdict"]}')
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as out:
            json.dump({'bars': rows, 'load': os.getloadavg()[0]}, out,
                      indent=2)


main()
