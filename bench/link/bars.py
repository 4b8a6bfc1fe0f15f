#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bars of the link between hosts: two network namespaces, made without root
and joined by a veth pair of 1,500 bytes, the ends pinned to a core each. What
runs on the link takes turns with plain sockets (plain.c); a field is the median
ratio of neighbouring slices. rows.py has the other fields. Only ratios may be
compared between machines, and none means much on a busy one: the load is in the
output.

Exit status 0 when everything could be run: a bench is no test. The JSON is
valid then and else, with "error"."""

import argparse
import array
import ctypes
import fcntl
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time

from rows import ROWS, NotRun

HERE, THERE = '10.78.0.1', '10.78.0.2'
INSIDE = 'SKEIN_BENCH_LINK_INSIDE'
OUTER = f'''
unshare -n sleep 3600 & other=$!
{INSIDE}=$other "$@"
status=$?
kill $other
exit $status
'''
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
DEADLINE = 60
WRITE = ['write', '--bw', '-s', '1M', '-t', '4']
READ = ['read', *WRITE[1:]]
SEND = ['send', '-s', '64']
CALL = ['rpc', '-s', '64', '--wait', 'spin']
EVENT = ['rpc', '-s', '64', '--wait', 'event']
BULK = ('bytes_per_s', 'tcp-bw', 1 << 20)
# field: SKEIN_LINK at both ends, what it is, < at most or > at least, the bar,
# skein perf's words, its field, plain's kind, bytes, whether the sender's device
# segments
BARS = {
    'write_bw_1m_udp_x_tcp': (
        'udp', 'WRITE 1 MiB / TCP', '>', 0.55, WRITE, *BULK, True),
    'write_bw_1m_udp_nogso_x_tcp': (
        'udp', 'the same, no segmentation by the device', '>', 0.35, WRITE,
        *BULK, False),
    'send_lat_udp_x_udp_spin': (
        'udp', 'SEND 64 B there and back, p50 / UDP, spinning', '<', 1.35,
        SEND, 'p50_ns', 'udp-ping', 64, True),
    'rpc64_spin_udp_x_tcp_spin': (
        'udp', 'call of 64 B, p50 / TCP, spinning', '<', 1.4, CALL, 'p50_ns',
        'tcp-ping', 64, True),
    'write_bw_1m_tcp_x_tcp': (
        'tcp', 'WRITE 1 MiB / TCP', '>', 0.75, WRITE, *BULK, True),
    'read_bw_1m_tcp_x_tcp': (
        'tcp', 'READ 1 MiB / TCP', '>', 0.7, READ, *BULK, True),
    'send_lat_tcp_x_tcp_spin': (
        'tcp', 'SEND 64 B there and back, p50 / TCP, spinning', '<', 1.35,
        SEND, 'p50_ns', 'tcp-ping', 64, True),
    'rpc64_spin_x_tcp_spin': (
        'tcp', 'call of 64 B, p50 / TCP, spinning', '<', 1.4, CALL, 'p50_ns',
        'tcp-ping', 64, True),
    'rpc64_event_x_tcp_sleep': (
        'tcp', 'call of 64 B, p50 / TCP, asleep', '<', 1.4, EVENT, 'p50_ns',
        'tcp-wait-ping', 64, True),
}
ETHTOOL, STRINGS_INFO, STRINGS, SET = 0x8946, 0x37, 0x1b, 0x3b
FEATURES = 4


class Failed(Exception):
    pass


def enter():
    for program in ('unshare', 'nsenter', 'ip', 'taskset'):
        if not shutil.which(program):
            raise Failed(f'{program} is not installed')
    tried = subprocess.run(['unshare', '-Urn', 'ip', 'link', 'add', 'x', 'type',
                            'veth', 'peer', 'name', 'y'],
                           capture_output=True, text=True, check=False)
    if tried.returncode:
        raise Failed('no user namespaces, or no veth: ' + tried.stderr.strip())
    os.execvp('unshare', ['unshare', '-Urn', 'sh', '-c', OUTER, 'bars',
                          sys.executable, '-B', os.path.abspath(__file__),
                          *sys.argv[1:]])


class Bed:
    def __init__(self, options):
        self.tool = os.path.join(options.build, 'tools', 'skein')
        self.plain = os.path.join(options.build, 'bench', 'link', 'plain')
        for program in (self.tool, self.plain):
            if not os.path.exists(program):
                raise Failed(f'{program} is missing: make bench')
        self.far = ['nsenter', '-t', os.environ[INSIDE], '-n']
        self.root, self.build = ROOT, options.build
        self.addresses = HERE, THERE
        self.seconds = options.duration
        self.slices, self.cp_bytes = options.slices, options.cp_mib << 20
        self.qps, self.seeds = options.qps, options.seeds
        cores = sorted(os.sched_getaffinity(0))
        self.cores = (cores[0], cores[-1])
        self.port = 20000
        end = time.monotonic() + 10
        while os.readlink(f'/proc/{os.environ[INSIDE]}/ns/net') == os.readlink(
                '/proc/self/ns/net'):
            if time.monotonic() > end:
                raise Failed('no second namespace')
            time.sleep(0.01)
        self.ip('link', 'add', 'here', 'type', 'veth', 'peer', 'name', 'there',
                'netns', os.environ[INSIDE])
        for far, name, address in (((), 'here', HERE),
                                   (self.far, 'there', THERE)):
            self.ip('link', 'set', 'lo', 'up', far=far)
            self.ip('addr', 'add', address + '/24', 'dev', name, far=far)
            self.ip('link', 'set', name, 'up', far=far)

    @staticmethod
    def ip(*words, far=()):
        subprocess.run([*far, 'ip', *words], check=True)

    def pair(self, server, client):
        """Runs both; what the client printed, and CPU seconds of both."""
        before = os.times()
        there = subprocess.Popen(
            [*self.far, 'taskset', '-c', str(self.cores[1]), *server],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            while True:
                line = there.stdout.readline()
                if not line:
                    raise Failed(f'{" ".join(server)} ended')
                if 'waiting' in line:
                    break
            done = subprocess.run(
                ['taskset', '-c', str(self.cores[0]), *client],
                capture_output=True, text=True, timeout=DEADLINE, check=False)
            if done.returncode:
                raise Failed(f'{" ".join(client)}: {done.stderr.strip()}')
            there.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired as late:
            raise Failed(f'{" ".join(late.cmd)}: took too long') from late
        finally:
            there.kill()
            there.wait()
        after = os.times()
        return done.stdout, (after.children_user + after.children_system -
                             before.children_user - before.children_system)

    def ours(self, words):
        self.port += 1
        port = ['-p', str(self.port)]
        out, cpu = self.pair(
            [self.tool, 'perf', words[0], '--insecure', '--device', 'soft',
             *port],
            [self.tool, 'perf', *words, '--device', 'soft', '--json', *port,
             '-D', str(self.seconds), THERE])
        return json.loads(out), cpu

    def theirs(self, kind, size):
        self.port += 1
        out, cpu = self.pair(
            [self.plain, kind, 'serve', str(self.port), '0', str(size)],
            [self.plain, kind, THERE, str(self.port), str(self.seconds),
             str(size)])
        return float(out), cpu


def ethtool(sock, name, request):
    buf = ctypes.create_string_buffer(request, len(request))
    fcntl.ioctl(sock, ETHTOOL, struct.pack('16sP', name.encode(),
                                           ctypes.addressof(buf)))
    return buf.raw


def segmentation(name, on):
    """`ethtool -K NAME tx-udp-segmentation on|off`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        info = ethtool(sock, name, struct.pack('=IIQI', STRINGS_INFO, 0,
                                               1 << FEATURES, 0))
        count, = struct.unpack_from('=I', info, 16)
        raw = ethtool(sock, name, struct.pack('=III', STRINGS, FEATURES, count)
                      + bytes(32 * count))
        names = [raw[12 + 32 * i:44 + 32 * i].split(b'\0')[0].decode()
                 for i in range(count)]
        bit = names.index('tx-udp-segmentation')
        blocks = (count + 31) // 32
        words = array.array('I', [SET, blocks] + [0] * (2 * blocks))
        words[2 + bit // 32 * 2] = 1 << bit % 32
        words[3 + bit // 32 * 2] = on << bit % 32
        ethtool(sock, name, words.tobytes())


def measure(bed, bar, slices):
    link, _, _, _, words, field, kind, size, segments = bar
    os.environ['SKEIN_LINK'] = link
    segmentation('here', segments)
    pairs = []
    for _ in range(slices):
        theirs, their_cpu = bed.theirs(kind, size)
        ours, our_cpu = bed.ours(words)
        pair = {'ours': ours[field], 'plain': theirs,
                'ratio': ours[field] / theirs}
        if field == 'bytes_per_s':
            # with the setting up of processes
            pair['cpu_s_per_gib'] = our_cpu * 2 ** 30 / (
                ours['operations_run'] * size)
            pair['plain_cpu_s_per_gib'] = their_cpu * 2 ** 30 / (
                theirs * bed.seconds)
        pairs.append(pair)
    return pairs


def report(field, pairs):
    link, what, bound, bar = BARS[field][:4]
    ratio = statistics.median(pair['ratio'] for pair in pairs)
    met = ratio <= bar if bound == '<' else ratio >= bar
    row = {'link': link, 'what': what, 'bound': bound, 'bar': bar, 'ratio': ratio,
           'met': met}
    for key in pairs[0]:
        if key != 'ratio':
            row[key] = statistics.median(pair[key] for pair in pairs)
    row['slices'] = pairs
    return row


def other_row(bed, field):
    """Of rows.py."""
    what, bound, bar, how = ROWS[field]
    row = {'what': what, 'bound': bound, 'bar': bar}
    try:
        value, more = how(bed)
    except NotRun as why:
        return {**row, 'ratio': None, 'met': None, 'not_run': str(why)}
    met = {'<': value <= bar, '>': value >= bar, '=': None}[bound]
    return {**row, 'ratio': value, 'met': met, **more}


def show(field, row):
    words = {'<': 'at most', '>': 'at least', '=': 'reported'}[row['bound']]
    said = {True: 'ok', False: 'NOT', None: ''}[row['met']]
    value = f'{row["ratio"]:9.3f}' if row['ratio'] is not None else \
        f'not run: {row["not_run"]}'
    print(f'{field:<30} {value}  {words} {row["bar"]:<5} {said}',
          file=sys.stderr, flush=True)


def run(options, result):
    os.environ['SKEIN_RETRY_TIMEOUT'] = '1s'
    bed = Bed(options)
    for field, bar in BARS.items():
        if options.only and options.only not in field:
            continue
        row = report(field, measure(bed, bar, options.slices))
        result[field] = row['ratio']
        result['rows'][field] = row
        show(field, row)
    segmentation('here', True)
    for field in ROWS:
        if options.only and options.only not in field:
            continue
        row = other_row(bed, field)
        result[field] = row['ratio']
        result['rows'][field] = row
        show(field, row)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', metavar='FILE',
                        help='one JSON object; - is stdout')
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'))
    parser.add_argument('--duration', type=float, default=1.0,
                        help='seconds of a slice (default 1)')
    parser.add_argument('--slices', type=int, default=5,
                        help='of each kind (default 5)')
    parser.add_argument('--only', help='fields with this in the name')
    parser.add_argument('--cp-mib', type=int, default=1024,
                        help='of the file that is copied (default 1024)')
    parser.add_argument('--qps', type=int, default=10000,
                        help='of qp_bytes (default 10000)')
    parser.add_argument('--seeds', type=int, default=200,
                        help='of conform, each carrier (default 200)')
    options = parser.parse_args()
    result = {'error': None, 'load': os.getloadavg(), 'rows': {}}
    try:
        if INSIDE not in os.environ:
            enter()
        run(options, result)
    except (Failed, OSError, ValueError, subprocess.SubprocessError) as err:
        result['error'] = str(err)
        print(f'bars.py: {err}', file=sys.stderr)
    result['load_after'] = os.getloadavg()
    if options.json == '-':
        print(json.dumps(result, indent=2))
    elif options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump(result, file, indent=2)
    return 1 if result['error'] else 0


if __name__ == '__main__':
    sys.exit(main())
