# SPDX-License-Identifier: MIT
"""What is compared: Skein's own operations and each peer, and how to take one
slice of one figure from it.

measure(figure, ms) gives a dict: p50_ns and p99_ns for 'latency', else rate (per
second) and bytes_per_s; and ops and cpu_s, both ends' processor time for these
operations, start and end of the processes taken off (start_cpu_s, by a run
that does next to nothing).
"""

import json
import os
import re
import shutil
import socket
import time

from procs import Failed, free_port, reaches

MIB = 1 << 20
# figure: bytes, outstanding
FIGURES = {'latency': (64, 1), 'rate32': (64, 32), 'rate64': (64, 64),
           'bandwidth': (MIB, 4)}
IDLE_MS = 1


class Kind:
    """One row. group: which of Skein's own rows it is divided by."""
    start_cpu_s = 0.0
    base = False
    figures = tuple(FIGURES)  # that it has

    def __init__(self, name, group, note, awake=False):
        self.name = name
        self.group = group
        self.note = note
        self.awake = awake

    def missing(self, bench):
        """Why it cannot run here, or None."""
        return None

    def calibrate(self, bench):
        """Before the first round: finds what start and end cost."""
        self.start_cpu_s = min(
            self.slice(bench, 'latency', IDLE_MS)['cpu_s'] for _ in range(2))

    def measure(self, bench, figure, ms):
        found = self.slice(bench, figure, ms)
        found['cpu_s'] = max(0.0, found['cpu_s'] - self.start_cpu_s)
        return found

    def slice(self, bench, figure, ms):
        raise NotImplementedError


def figures(size, rate, ops, cpu_s, p50=None, p99=None):
    return {'rate': rate, 'bytes_per_s': rate * size, 'ops': ops,
            'cpu_s': cpu_s, 'p50_ns': p50, 'p99_ns': p99}


def last_object(text):
    """The JSON object among what was printed (warnings may stand before)."""
    begin, end = text.find('{'), text.rfind('}')
    if begin < 0 or end < begin:
        raise Failed(f'no JSON in: {text.strip()[-120:]}')
    return json.loads(text[begin:end + 1])


def not_installed(program):
    if shutil.which(program):
        return None
    return f'{program} is not installed (scripts/deps.sh peers)'


class Skein(Kind):
    """skein perf, both ends started apart: no probes between the slices."""

    def __init__(self, name, group, note, op, wait=None, base=False,
                 awake=False):
        super().__init__(name, group, note, awake)
        self.op = op
        self.wait = ['--wait', wait] if wait else []
        self.base = base

    def program(self, bench):
        return os.path.join(bench.build, 'tools', 'skein')

    def missing(self, bench):
        path = self.program(bench)
        return None if os.path.exists(path) else f'{path} is missing: make'

    def words(self, bench):
        return [self.program(bench), 'perf', self.op, '--device', 'soft']

    def load(self, window, ms):
        load = [] if window == 1 else ['--bw', '-t', window]
        return [*load, *self.wait, '-D', f'{ms}ms', '--slice', f'{ms}ms']

    def slice(self, bench, figure, ms):
        size, window = FIGURES[figure]
        words = self.words(bench)

        def ready(text):
            found = re.search(r'on port (\d+)$', text, re.M)
            return found and found.group(1)

        text, cpu_s = bench.pair(
            [*words, '-p', '0'], ready,
            lambda port: [*words, '-s', size, *self.load(window, ms), '-p',
                          port, '--json', '127.0.0.1'])
        found = last_object(text)
        return figures(size, found['rate_per_s'], found['operations_run'],
                       cpu_s, found['p50_ns'], found['p99_ns'])


class Datagrams(Skein):
    """bench/ud: asks and answers as skein perf does."""
    figures = ('latency', 'rate32', 'rate64')

    def program(self, bench):
        return os.path.join(bench.build, 'bench', 'ud', 'ud_rpc')

    def words(self, bench):
        return [self.program(bench), '--device', 'soft']

    def load(self, window, ms):
        return ['-t', window, '-D', f'{ms}ms']


class Program(Kind):
    """A pair of this folder's own programs: serve and call."""

    def __init__(self, name, group, note, program, words, local, awake=False):
        super().__init__(name, group, note, awake)
        self.program = program
        self.words = words
        self.local = local

    def path(self, bench):
        return os.path.join(bench.build, 'bench', 'peers', self.program)

    def missing(self, bench):
        if os.path.exists(self.path(bench)):
            return None
        return f'{self.program} is not built (make bench-peers)'

    def slice(self, bench, figure, ms):
        size, window = FIGURES[figure]
        at = os.path.join(bench.folder, f's{bench.number()}') \
            if self.local else '0'

        def ready(text):
            found = re.search(r'^listening on (\S+)$', text, re.M)
            return found and found.group(1)

        text, cpu_s = bench.pair(
            [self.path(bench), 'serve', *self.words, at], ready,
            lambda address: [self.path(bench), 'call', *self.words, address,
                             size, window, ms])
        if self.local and os.path.exists(at):
            os.unlink(at)
        found = last_object(text)
        rate = found['ops'] / found['seconds'] if found['seconds'] else 0
        if not found['ops'] and ms > IDLE_MS:
            raise Failed('no operation was done in a slice')
        return figures(size, rate, found['ops_all'], cpu_s, found['p50_ns'],
                       found['p99_ns'])


class Counted(Kind):
    """A program that takes a number of operations and not a time: the number
    follows from the rate at which it did the last ones."""
    FIRST = {'latency': 500, 'rate32': 5000, 'rate64': 5000, 'bandwidth': 20}
    GROWTH = 20

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.next = dict(self.FIRST)
        self.rates = {}

    def calibrate(self, bench):
        super().calibrate(bench)
        for figure in bench.figures:
            self.slice(bench, figure, 20)

    def operations(self, figure, ms):
        if ms <= IDLE_MS:
            return 10
        return self.next[figure]

    def learn(self, figure, ops, rate, ms):
        if ms > IDLE_MS:
            wanted = int(rate * max(ms, self.slice_ms) / 1000)
            self.next[figure] = max(10, min(wanted, ops * self.GROWTH))

    slice_ms = 0


class Ucx(Counted):
    """ucx_perftest. Latencies are printed one way and doubled here."""

    def __init__(self, name, note, tests, tls, group='message', more=(),
                 awake=False):
        super().__init__(name, group, note, awake=awake)
        self.tests = tests
        self.more = list(more)
        self.env = {'UCX_TLS': tls, 'UCX_NET_DEVICES': 'lo',
                    'UCX_WARN_UNUSED_ENV_VARS': 'n'}

    def missing(self, bench):
        return not_installed('ucx_perftest')

    def columns(self, bench, figure, ops, rank):
        size, window = FIGURES[figure]
        test = self.tests[0 if figure == 'latency' else 1]
        port = free_port()
        words = ['ucx_perftest', '-p', port]
        load = ['-t', test, '-s', size, '-n', ops, '-w', max(1, ops // 10),
                '-f', '-v', '-R', rank, *self.more]
        if window > 1:
            load += ['-O', window]
        text, cpu_s = bench.pair(words, lambda _: reaches(port),
                                 lambda _: [*words, *load, '127.0.0.1'],
                                 self.env)
        rows = re.findall(r'^ *\d+(?:, *[\d.]+){7} *$', text, re.M)
        if not rows:
            raise Failed(f'ucx_perftest printed: {text.strip()[-120:]}')
        return [float(word) for word in rows[-1].split(',')], cpu_s

    def slice(self, bench, figure, ms):
        size, _ = FIGURES[figure]
        ops = self.operations(figure, ms)
        row, cpu_s = self.columns(bench, figure, ops, 50)
        if figure != 'latency':
            self.learn(figure, ops, row[7], ms)
            return figures(size, row[7], ops * 1.1, cpu_s)
        # typical, not the mean: a core lost once must not shrink the next
        self.learn(figure, ops, 1e6 / (2 * max(row[1], 0.01)) / 2, ms)
        tail = None
        if ms > IDLE_MS:
            tail = 2000 * self.columns(bench, figure, ops, 99)[0][1]
        return figures(size, 1e6 / (2 * row[3]), ops * 1.1, cpu_s,
                       2000 * row[1], tail)


class Redis(Counted):
    """redis-server, one for all slices, and redis-benchmark."""
    server = None
    folder_socket = None
    port = 0

    def __init__(self, name, note, local, awake=False):
        super().__init__(name, 'asleep', note, awake=awake)
        self.local = local

    def missing(self, bench):
        return not_installed('redis-server') or not_installed('redis-benchmark')

    @classmethod
    def begin(cls, bench):
        """Starts the server and gives it its two values."""
        cls.port = free_port()
        cls.folder_socket = os.path.join(bench.folder, 'redis')
        cls.server = bench.start(
            ['redis-server', '--port', cls.port, '--bind', '127.0.0.1',
             '--unixsocket', cls.folder_socket, '--save', '', '--appendonly',
             'no', '--dir', bench.folder], bench.server_core)
        cls.server.until(lambda: os.path.exists(cls.folder_socket) and
                         reaches(cls.port), bench.deadline(10))
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(10)
            link.connect(cls.folder_socket)
            for size in (64, MIB):
                key = b'key%d' % size
                link.sendall(b'*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n'
                             % (len(key), key, size, b'x' * size))
                answer = link.recv(64)
                if answer != b'+OK\r\n':
                    raise Failed(f'redis-server said {answer!r}')

    def server_cpu_s(self):
        # the kernel's clock of a process's processor time: CPUCLOCK_SCHED
        return time.clock_gettime((~self.server.pid << 3) | 2)

    def slice(self, bench, figure, ms):
        size, window = FIGURES[figure]
        if not Redis.server or Redis.server.ended():
            Redis.begin(bench)
        ops = self.operations(figure, ms)
        to = ['-s', self.folder_socket] if self.local else \
            ['-h', '127.0.0.1', '-p', self.port]
        words = ['redis-benchmark', *to, '-c', 1, '-P', window, '-n', ops,
                 '--csv', 'get', f'key{size}']
        before = self.server_cpu_s()
        client = bench.start(words, bench.client_core)
        try:
            text = client.wait(bench.deadline(20))
            cpu_s = client.cpu_s + self.server_cpu_s() - before
        finally:
            bench.drop(client)
        rows = re.findall(r'^"get [^"]*",(.*)$', text, re.M)
        if not rows:
            raise Failed(f'redis-benchmark printed: {text.strip()[-120:]}')
        row = [float(word.strip('"')) for word in rows[-1].split(',')]
        self.learn(figure, ops, row[0], ms)
        return figures(size, row[0], ops, cpu_s, row[3] * 1e6, row[5] * 1e6)


GATHER = 'calls made in callbacks; they leave together when they gather'
UD = ('calls over unreliable datagrams on the same device: session credits, '
      'a list of receives and one of sends each burst, no congestion '
      'control; 1 MiB is no datagram')
SOCKET = 'no framing, no dispatch: bytes sent back; what came leaves together'
REDIS = ('GET of 64 B; parses a protocol, one thread, epoll; outstanding = '
         'pipelined (-P); latencies in whole microseconds')
GRPC = 'HTTP/2 and protobuf; server and client have helper threads'
ONE_WAY = 'one way: outstanding = not yet completed at the sender'


def sleepers(awake):
    """Rows with ends that sleep, as they are or with the cores kept awake."""
    yield Skein('Skein RPC, asleep', 'asleep', GATHER + '; sleeps in epoll',
                'rpc', 'event', True, awake)
    yield Skein('Skein RPC, adaptive', 'asleep',
                'the default: polls a while, then sleeps', 'rpc', 'adaptive',
                False, awake)
    for local, where in ((False, 'TCP'), (True, 'Unix')):
        yield Program(f'{where} socket, blocking', 'asleep', SOCKET,
                      'peer_sock', ['unix' if local else 'tcp', 'block'],
                      local, awake)
    for style in ('unary', 'stream'):
        for local, where in ((False, 'TCP'), (True, 'Unix socket')):
            yield Program(
                f'gRPC {style}, {where}', 'asleep', GRPC, 'peer_grpc',
                ['unix' if local else 'tcp', style], local, awake)
    for local, where in ((False, 'TCP'), (True, 'Unix socket')):
        yield Redis(f'redis GET, {where}', REDIS, local, awake)


def all_kinds():
    yield Skein('Skein RPC, polling', 'call', GATHER, 'rpc', 'spin', True)
    yield Datagrams("UD RPC (eRPC's manner)", 'call', UD, None)
    for local, where in ((False, 'TCP'), (True, 'Unix')):
        yield Program(f'{where} socket, spinning', 'call', SOCKET, 'peer_sock',
                      ['unix' if local else 'tcp', 'spin'], local)
    yield from sleepers(False)
    yield from sleepers(True)
    yield Skein('Skein WRITE', 'message', 'latency: ping-pong, found by '
                'polling memory; else ' + ONE_WAY, 'write', None, True)
    yield Skein('Skein SEND', 'message', 'ping-pong, else ' + ONE_WAY, 'send')
    yield Skein('Skein READ', 'message', 'post to completion: on soft the '
                'poster copies, nothing travels', 'read')
    for tls, where in (('posix,sysv,cma', 'shared memory'), ('tcp', 'TCP')):
        for test, lat, rate in (
                ('tag', 'tag_lat', 'tag_bw'),
                ('active message', 'ucp_am_lat', 'ucp_am_bw'),
                ('put', 'ucp_put_lat', 'ucp_put_bw')):
            yield Ucx(f'UCX {test}, {where}', 'ping-pong x 2, else ' + ONE_WAY,
                      (lat, rate), tls)
