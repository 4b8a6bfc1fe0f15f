#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bars.py [--json FILE] [--slices N] [--only FIELD] [--wait MODE] [BUILD] - what
`skein run` is worth to stock programs, beside plain TCP and Unix sockets in the same run.

Both ends are pinned to a core each (one_core: both to one; busy: a program that
computes is on each core too). Slices of load take turns: TCP, Unix socket,
streams. A field is the median ratio of neighbouring slices. A slice on streams
counts only if the report says that every connection of it that was used was on a
stream. Rates are the load generators' own. Absolute rates are for orientation; a
loaded machine shows in the spread. No figure here is one of a NIC.

A row is left out, and says so, where its programs are not installed:
scripts/deps.sh peers.
"""

import argparse
import json
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time

from programs import (Clients, Grpc, Iperf3, Memcached, Missing, Nginx, Pgbench,
                      Place, Redis, cpu_s, lacking, pss)

AT_LEAST, AT_MOST = operator.ge, operator.le
# field, ours, what it is divided by, program, its options, load of a slice
# (of the divisor, of ours), the bar
C1 = ['-c', '1']
BARS = [
    ('redis_c1_rate_x_tcp', 'stream', 'tcp', Redis, C1, (8000, 80000),
     AT_LEAST, 15),
    ('redis_c1_rate_x_unix', 'stream', 'unix', Redis, C1, (8000, 80000),
     AT_LEAST, 12),
    ('redis_c50_rate_x_tcp', 'stream', 'tcp', Redis, ['-c', '50'],
     (30000, 100000), AT_LEAST, 8),
    ('redis_c50_p16_rate_x_tcp', 'stream', 'tcp', Redis,
     ['-c', '50', '-P', '16'], (100000, 200000), AT_LEAST, 1.5),
    ('memcached_c1_rate_x_tcp', 'stream', 'tcp', Memcached, [],
     (8000, 80000), AT_LEAST, 12),
    ('nginx_return_c1_rate_x_tcp', 'stream', 'tcp', Nginx, ['short'], (1, 1),
     AT_LEAST, 12),
    ('nginx_file_c1_rate_x_tcp', 'stream', 'tcp', Nginx, ['file'], (1, 1),
     AT_LEAST, 5),
    ('grpc_unary_p50_x_tcp', 'stream', 'tcp', Grpc, ['unary', 64, 1],
     (500, 500), AT_MOST, 0.35),
    ('grpc_unary_p50_x_unix', 'stream', 'unix', Grpc, ['unary', 64, 1],
     (500, 500), AT_MOST, 0.45),
    ('grpc_unary_w64_rate_x_tcp', 'stream', 'tcp', Grpc, ['unary', 64, 64],
     (500, 500), AT_LEAST, 1.2),
    ('grpc_stream_rate_x_tcp', 'stream', 'tcp', Grpc, ['stream', 32, 32],
     (500, 500), AT_LEAST, 2.0),
    ('grpc_1m_rate_x_tcp', 'stream', 'tcp', Grpc, ['unary', 1 << 20, 1],
     (500, 500), AT_LEAST, 1.0),
    ('pgbench_select_c1_rate_x_tcp', 'stream', 'tcp', Pgbench, C1,
     (3000, 6000), AT_LEAST, 1.3),
    ('iperf3_rate_x_tcp', 'stream', 'tcp', Iperf3, [], (1, 1), AT_LEAST, 1.5),
    ('event_redis_c1_rate_x_tcp', 'event', 'tcp', Redis, C1, (8000, 8000),
     AT_LEAST, 0.95),
    ('plain_peer_redis_c1_rate_x_tcp', 'plain', 'tcp', Redis, C1, (8000, 8000),
     AT_LEAST, 0.95),
    ('short_rate_x_tcp', 'stream', 'tcp', Redis, [*C1, '-k', '0'],
     (3000, 3000), AT_LEAST, 0.95),
    ('one_core_redis_c1_rate_x_tcp', 'stream', 'tcp', Redis, C1, (8000, 20000),
     AT_LEAST, 1.4),
    ('busy_redis_c1_rate_x_tcp', 'stream', 'tcp', Redis, C1, (4000, 8000),
     AT_LEAST, 1.0),
    ('open_loop_redis_10k_cpu_x_tcp', 'stream', 'tcp', Clients, [10, 10000],
     (3, 3), AT_MOST, 1.2),
]
# What --wait=event and bpev need of each row that has no bar of its own.
AS_TCP = 0.95
MODES = ('adaptive', 'event', 'bpev')
IDLE_S = 15  # after which the rings of idle connections are gone
QUIET, MANY = 1000, 10000


def verdict(found, holds, wanted):
    return 'ok' if holds(found, wanted) else 'NOT'


def measure(place, bar, slices):
    field, ours, theirs, program, options, load, holds, wanted = bar
    cores = (0, 0) if 'one_core' in field else (0, 1)
    row = {'field': field, 'measured': None, 'wanted': wanted,
           'at': 'least' if holds is AT_LEAST else 'most'}
    ratios, values, dropped = [], {ours: [], theirs: []}, 0
    for _ in range(slices):
        base = program.load(place, theirs, cores, options, load[0])
        mine = program.load(place, ours, cores, options, load[1])
        # A short connection ends before it is worth a meeting.
        if 'short' not in field and not place.on_streams(ours):
            dropped += 1
            continue
        ratios.append(mine / base)
        values[ours].append(mine)
        values[theirs].append(base)
    if not ratios:
        return {**row, 'verdict': 'not on streams', 'dropped': dropped}
    found = statistics.median(ratios)
    return {**row, 'measured': round(found, 3),
            'verdict': verdict(found, holds, wanted),
            'ratios': [round(ratio, 2) for ratio in sorted(ratios)],
            'value': statistics.median(values[ours]),
            'value_' + theirs: statistics.median(values[theirs]),
            'dropped': dropped}


def row_of(place, bar, slices):
    field, program = bar[0], bar[3]
    gone = lacking(program)
    busy = []
    if 'busy' in field:
        busy = [subprocess.Popen(['taskset', '-c', core, 'sh', '-c',
                                  'while :; do :; done']) for core in '01']
    try:
        if gone:
            raise Missing(f'no {" ".join(gone)}')
        return measure(place, bar, slices)
    except (Missing, subprocess.SubprocessError) as why:
        return {'field': field, 'measured': None, 'wanted': bar[7],
                'verdict': f'left out: {why}'}
    finally:
        for process in busy:
            process.kill()
            process.wait()


def idle_cpu(place, kind):
    """Both ends' share of a core beside QUIET connections that say nothing;
    redis itself wakes 10 times a second."""
    server, client = Clients.idle(place, kind, (0, 1), QUIET)
    try:
        time.sleep(IDLE_S)
        begun = cpu_s(server.pid) + cpu_s(client.pid)
        time.sleep(IDLE_S)
        return (cpu_s(server.pid) + cpu_s(client.pid) - begun) / IDLE_S
    finally:
        client.communicate()


def idle_bytes(place):
    """What an idle connection holds at both ends, over plain TCP's."""
    held = []
    for kind in 'tcp', 'stream':
        sizes = []
        for conns in 1, MANY:
            server, client = Clients.idle(place, kind, (0, 1), conns)
            try:
                time.sleep(IDLE_S)
                sizes.append(pss(server.pid) + pss(client.pid))
            finally:
                client.communicate()
        held.append((sizes[1] - sizes[0]) / MANY)
    return held[1] - held[0]


def accept_ms(place, kind):
    """p99 from connect() to the first answer, beside 50 clients."""
    _, port, _ = place.server(Redis, kind, 0)
    busy = subprocess.Popen(
        [*place.words(kind, 1), 'redis-benchmark', '-t', 'get', '-c', '50',
         '-n', '1000000000', '-p', str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        return Clients.accept(place, kind, (0, 1), 2000) / 1e3
    finally:
        busy.kill()
        busy.wait()


# field, what measures it, the bar: at most.
ALONE = [
    *((f'idle_cpu_share_{mode}', idle_cpu, kind, 0.01)
      for mode, kind in zip(MODES, ('stream', 'event', 'bpev'))),
    ('accept_ms_p99', accept_ms, 'stream', 5),
    ('accept_ms_p99_tcp', accept_ms, 'tcp', None),
    ('idle_bytes_per_conn', idle_bytes, None, 4096),
]


def alone(place, bar):
    field, find, kind, wanted = bar
    row = {'field': field, 'measured': None, 'wanted': wanted, 'at': 'most'}
    try:
        found = find(place, kind) if kind else find(place)
    except (Missing, subprocess.SubprocessError) as why:
        return {**row, 'verdict': f'left out: {why}'}
    return {**row, 'measured': round(found, 4),
            'verdict': verdict(found, AT_MOST, wanted) if wanted else 'reported'}


def waiting(bars, mode):
    """The rows of streams, with both ends waiting in that mode."""
    if mode == 'adaptive':
        return bars
    return [(f'{mode}_{field}', mode, *rest[1:-2], rest[-2],
             AS_TCP if rest[-2] is AT_LEAST else round(1 / AS_TCP, 3))
            for field, *rest in bars if rest[0] == 'stream' and
            rest[1] == 'tcp' and f'{mode}_{field}' not in
            [bar[0] for bar in BARS] and 'open_loop' not in field]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', metavar='FILE', help='the rows, with all '
                        'ratios')
    parser.add_argument('--slices', type=int, default=9,
                        help='of each kind a field (9)')
    parser.add_argument('--only', default='',
                        help='fields that have this in their name')
    parser.add_argument('--wait', choices=MODES, default='adaptive',
                        help='how both ends wait (adaptive); of another mode '
                        'no row may be\nslower than TCP')
    parser.add_argument('build', nargs='?', default='build',
                        help='the build folder (build)')
    options = parser.parse_args()
    if lacking(Redis):
        sys.exit('bars.py: no redis-benchmark: scripts/deps.sh peers')
    here = os.path.dirname(os.path.abspath(__file__))
    build = os.path.abspath(options.build)
    bars = [bar for bar in waiting(BARS, options.wait)
            if options.only in bar[0]]
    alones = [bar for bar in ALONE if options.only in bar[0] and
              options.wait == 'adaptive']
    if not bars and not alones:
        parser.error(f'no field has "{options.only}" in its name')
    if options.slices < 1:
        parser.error('--slices is at least 1')
    if not os.access(os.path.join(build, 'tools', 'skein'), os.X_OK):
        parser.error(f'{build} has no tools/skein: name a build folder')
    if any(bar[3] is Grpc for bar in bars):
        subprocess.run([os.path.join(here, '..', 'peers', 'build.sh'), build],
                       check=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(build, folder)
        try:
            for bar in bars:
                rows.append(row_of(place, bar, options.slices))
                tell(rows[-1])
            for bar in alones:
                rows.append(alone(place, bar))
                tell(rows[-1])
        finally:
            place.close()
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as out:
            json.dump({'bars': rows, 'load': os.getloadavg()[0]}, out,
                      indent=2)


def tell(row):
    print(f'{row["field"]:<34} {row["measured"]!s:>9}  bar '
          f'{row["wanted"] or "-":>5}  {row["verdict"]}', flush=True)


main()
