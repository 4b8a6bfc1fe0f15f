# SPDX-License-Identifier: MIT
"""Bars of the link between hosts that are no ratio of two slices: each function
takes bars.py's Bed and gives (value, what else was measured), or raises NotRun
with the reason. Those with `wire` go over a relay (tests/e2e/wire.c)."""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

DEADLINE = 120
MBIT = 125_000


class NotRun(Exception):
    """Why a row has no value here."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise NotRun(f'{program} is not installed')


class Space:
    """A further network namespace."""

    def __init__(self, bed, index):
        self.process = subprocess.Popen(['unshare', '-n', 'sleep', '3600'])
        self.inside = ['nsenter', '-t', str(self.process.pid), '-n']
        self.name = f'wire{index}'
        self.address = f'10.79.0.{index + 1}'
        end = time.monotonic() + 10
        own = os.readlink('/proc/self/ns/net')
        while os.readlink(f'/proc/{self.process.pid}/ns/net') == own:
            if time.monotonic() > end:
                raise NotRun('no further namespace')
            time.sleep(0.01)
        bed.ip('link', 'set', 'lo', 'up', far=self.inside)


class Wire:
    """with Wire(bed, 2, rate=..) as spaces: namespaces joined by the relay."""

    def __init__(self, bed, count, **faults):
        self.bed = bed
        self.program = os.path.join(bed.build, 'tests', 'e2e', 'wire')
        if not os.path.exists(self.program):
            raise NotRun('tests/e2e/wire is not built: make test')
        self.faults = faults
        self.count = count

    def __enter__(self):
        self.spaces = [Space(self.bed, i) for i in range(self.count)]
        words = [word for name, value in self.faults.items()
                 for word in ('--' + name.replace('_', '-'), str(value))]
        self.process = subprocess.Popen(
            [self.program, *words,
             *(f'{s.name}:{s.process.pid}:{s.address}' for s in self.spaces)],
            stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != 'ready\n':
            raise NotRun('no TUN device')
        for s in self.spaces:
            self.bed.ip('addr', 'add', s.address + '/24', 'dev', s.name,
                        far=s.inside)
            self.bed.ip('link', 'set', s.name, 'txqueuelen', '10000', 'up',
                        far=s.inside)
        return self.spaces

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()
        for s in self.spaces:
            s.process.kill()
            s.process.wait()


class Pair:
    """A server and a client, started; end() gives what the client said."""

    def __init__(self, server, client, there, here, env):
        env = {**os.environ, **env}
        self.server = subprocess.Popen([*there, *server], env=env,
                                       stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
        for line in self.server.stdout:
            if 'waiting' in line or 'listening' in line:
                break
        self.client = subprocess.Popen([*here, *client], env=env,
                                       stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)

    def end(self, stops=False):
        try:
            out, err = self.client.communicate(timeout=DEADLINE)
            if self.client.returncode:
                raise NotRun(f'{self.client.args}: {err.strip()[-300:]}')
            if stops:
                self.server.send_signal(signal.SIGTERM)
            self.server.communicate(timeout=DEADLINE)
            return out
        except subprocess.TimeoutExpired as late:
            raise NotRun(f'{late.cmd}: not within {DEADLINE} s') from None
        finally:
            for process in self.client, self.server:
                process.kill()
                process.wait()


def perf(bed, words, link, there, here, seconds):
    """`skein perf`, started."""
    bed.port += 1
    port = ['-p', str(bed.port)]
    return Pair([bed.tool, 'perf', words[0], '--insecure', *port],
                [bed.tool, 'perf', *words, '--json', '-D', str(seconds), *port,
                 there.address],
                there.inside, here.inside,
                {'SKEIN_LINK': link, 'SKEIN_DEVICE': 'soft'})


def plain(bed, there, here, seconds):
    bed.port += 1
    return Pair([bed.plain, 'tcp-bw', 'serve', str(bed.port)],
                [bed.plain, 'tcp-bw', there.address, str(bed.port),
                 str(seconds), str(1 << 20)], there.inside, here.inside, {})


BULK = ['write', '--bw', '-s', '1M', '-t', '4']


# Of a slow wire: what is on its way when the time is over is little.
SMALL = ['write', '--bw', '-s', '64K', '-t', '1']


def rate(pair):
    return json.loads(pair.end())['bytes_per_s']


def loss1(bed, link):
    ratios = []
    with Wire(bed, 2, lost=10, delay_us=5000) as (here, there):
        for _ in range(bed.slices):
            theirs = float(plain(bed, there, here, 3 * bed.seconds).end())
            ours = rate(perf(bed, SMALL, link, there, here, 3 * bed.seconds))
            ratios.append(ours / theirs)
    with open('/proc/sys/net/ipv4/tcp_congestion_control',
              encoding='utf-8') as file:
        return statistics.median(ratios), {'slices': ratios,
                                           'tcp': file.read().strip()}


def udp_share(bed):
    seconds = 30 * bed.seconds
    with Wire(bed, 2, rate=100 * MBIT, queue=250_000, delay_us=1000) as (
            here, there):
        ours = perf(bed, SMALL, 'udp', there, here, seconds)
        theirs = plain(bed, there, here, seconds)
        theirs, ours = float(theirs.end()), rate(ours)
    return ours / (ours + theirs), {'ours': ours, 'plain': theirs}


def incast(bed):
    seconds = 5 * bed.seconds
    with Wire(bed, 9, rate=400 * MBIT, queue=250_000, delay_us=100) as spaces:
        there, senders = spaces[0], spaces[1:]
        one = rate(perf(bed, SMALL, 'udp', there, senders[0], seconds))
        pairs = [perf(bed, SMALL, 'udp', there, s, seconds) for s in senders]
        every = [rate(pair) for pair in pairs]
    return sum(every) / one, {'one': one, 'each': every}


def copy_seconds(bed, spaces, size, folder):
    source = os.path.join(folder, 'file')
    if not os.path.exists(source):
        with open(source, 'wb') as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
    servers, targets = [], []
    env = {**os.environ, 'SKEIN_LINK': 'tcp', 'SKEIN_DEVICE': 'soft'}
    try:
        for i, space in enumerate(spaces[1:]):
            target = os.path.join(folder, f'to{i}')
            os.makedirs(target, exist_ok=True)
            servers.append(subprocess.Popen(
                [*space.inside, bed.tool, 'cp', '--serve', target,
                 '--insecure', '--once'], env=env, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True))
            for line in servers[-1].stdout:
                if 'listening' in line:
                    break
            targets.append(space.address)
        done = subprocess.run(
            [*spaces[0].inside, bed.tool, 'cp', '--json', source,
             ','.join(targets)], env=env, capture_output=True, text=True,
            timeout=DEADLINE, check=False)
        if done.returncode:
            raise NotRun(f'skein cp: {done.stderr.strip()[-300:]}')
        for server in servers:
            server.communicate(timeout=DEADLINE)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    for i in range(len(targets)):
        shutil.rmtree(os.path.join(folder, f'to{i}'))
    return json.loads(done.stdout)['seconds']


def mcast(bed):
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder, \
            Wire(bed, 5, rate=100 * MBIT, queue=500_000,
                 delay_us=100) as spaces:
        one = copy_seconds(bed, spaces[:2], 32 << 20, folder)
        four = copy_seconds(bed, spaces, 32 << 20, folder)
    return four / one, {'one_s': one, 'four_s': four}


class Veth:
    def __init__(self, inside, address):
        self.inside, self.address = inside, address


def ends(bed):
    return Veth(bed.far, bed.addresses[1]), Veth([], bed.addresses[0])


def cp_1g(bed):
    there, here = ends(bed)
    size = bed.cp_bytes
    ratios = []
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        for _ in range(bed.slices):
            theirs = float(plain(bed, there, here, bed.seconds).end())
            took = copy_seconds(bed, [here, there], size, folder)
            ratios.append(size / took / theirs)
    return statistics.median(ratios), {'slices': ratios, 'bytes': size}


def sealed(bed):
    """Their pairs: (ours, TCP, TLS 1.3 of OpenSSL)."""
    need('openssl')
    there, here = ends(bed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, 'key')
        with open(key, 'w', encoding='ascii',
                  opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write('a key of a bench\n')
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048',
                        '-nodes', '-keyout', f'{folder}/k', '-out',
                        f'{folder}/c', '-days', '2', '-subj', '/CN=bench'],
                       check=True, capture_output=True)
        for _ in range(bed.slices):
            tcp = float(plain(bed, there, here, bed.seconds).end())
            tls = tls_rate(bed, there, here, folder)
            os.environ['SKEIN_LINK_KEY'] = key
            try:
                ours = rate(perf(bed, BULK, 'tcp', there, here, bed.seconds))
            finally:
                del os.environ['SKEIN_LINK_KEY']
            rows.append((ours, tcp, tls))
    return rows


TLS = '''
import socket, ssl, sys, time
kind, host, port, folder, seconds = sys.argv[1:]
buf = bytearray(1 << 20)
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if kind == 'serve' else
                   ssl.PROTOCOL_TLS_CLIENT)
c.minimum_version = ssl.TLSVersion.TLSv1_3
if kind == 'serve':
    c.load_cert_chain(folder + '/c', folder + '/k')
    s = socket.create_server((host, int(port)))
    print('waiting', flush=True)
    s = c.wrap_socket(s.accept()[0], server_side=True)
    while s.recv_into(buf):
        pass
else:
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    s = c.wrap_socket(socket.create_connection((host, int(port))))
    begin, n = time.monotonic(), 0
    while time.monotonic() - begin < float(seconds):
        s.sendall(buf)
        n += len(buf)
    s.close()
    print(n / (time.monotonic() - begin))
'''


def tls_rate(bed, there, here, folder):
    bed.port += 1
    words = [there.address, str(bed.port), folder, str(bed.seconds)]
    return float(Pair(['python3', '-c', TLS, 'serve', *words],
                      ['python3', '-c', TLS, 'send', *words],
                      there.inside, here.inside, {}).end())


def sealed_tcp(bed):
    bed.sealed = sealed(bed)
    return statistics.median(row[0] / row[1] for row in bed.sealed), {
        'ours': statistics.median(row[0] for row in bed.sealed)}


def sealed_tls(bed):
    rows = getattr(bed, 'sealed', None) or sealed(bed)
    return statistics.median(row[0] / row[2] for row in rows), {
        'tls': statistics.median(row[2] for row in rows)}


# Processes of bench/link/qps.c.

def qps(bed, link, *words):
    there, here = ends(bed)
    bed.port += 1
    program = os.path.join(bed.build, 'bench', 'link', 'qps')
    return Pair([program, 'serve', there.address, str(bed.port)],
                [program, words[0], there.address, str(bed.port),
                 *map(str, words[1:])], there.inside, here.inside,
                {'SKEIN_LINK': link})


def beside_bulk(bed):
    """By turns, so that a busy machine is so for both."""
    alone, beside, rates = [], [], []
    for _ in range(bed.slices):
        for found, size in ((alone, 0), (beside, 1 << 20)):
            p50, p99, bulk = map(float, qps(bed, 'tcp', 'calls', bed.seconds,
                                            size).end().split())
            found.append((p50, p99))
            if size:
                rates.append(bulk)
    ratios = [b[1] / a[1] for a, b in zip(alone, beside)]
    return statistics.median(ratios), {
        'p99_ns': statistics.median(b[1] for b in beside),
        'alone_p99_ns': statistics.median(a[1] for a in alone),
        'p50_ratio': statistics.median(b[0] / a[0]
                                       for a, b in zip(alone, beside)),
        'bulk_bytes_per_s': statistics.median(rates)}


def switches(pid):
    count = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/status', encoding='utf-8') as file:
            count += int(re.search(r'^voluntary_ctxt_switches:\s+(\d+)',
                                   file.read(), re.M).group(1))
    return count


def real_pid(process):
    """nsenter -n execs: it is the program itself."""
    return process.pid


def idle_wakeups(bed):
    seconds = max(5, 5 * bed.seconds)
    found = {}
    for link in 'udp', 'tcp':
        pair = qps(bed, link, 'hold', 100)
        pair.client.stdout.readline()
        time.sleep(2)  # what the handshakes set off is over
        pids = [real_pid(p) for p in (pair.client, pair.server)]
        before = [switches(pid) for pid in pids]
        time.sleep(seconds)
        found[link] = [(switches(pid) - was) / seconds
                       for pid, was in zip(pids, before)]
        pair.end()
    return max(max(each) for each in found.values()), found


def qp_bytes(bed):
    found = {}
    for link in 'tcp', 'udp':
        pair = qps(bed, link, 'hold', bed.qps)
        found[link] = int(pair.client.stdout.readline() or 0)
        pair.end()
        if not found[link]:
            raise NotRun(f'{bed.qps} QPs by {link}: {pair.client.args}')
    return max(found.values()) / 2, {'qps': bed.qps, 'both_ends': found}


def dead_peer(bed):
    found = {}
    for link in 'udp', 'tcp':
        pair = qps(bed, link, 'dead', 14, 4)
        pair.client.stdout.readline()
        pair.server.kill()
        pair.server.wait()
        out, err = pair.client.communicate('now\n', timeout=DEADLINE)
        if pair.client.returncode:
            raise NotRun(err.strip())
        found[link] = float(out)
    return max(found.values()), found


def post_instructions(bed):
    need('valgrind')
    out = subprocess.run(
        ['bash', os.path.join(bed.root, 'bench', 'instructions.sh'), '--json',
         bed.build], capture_output=True, text=True, check=False,
        env={**os.environ, 'SKEIN_LINK': ''})
    try:
        found = json.loads(out.stdout)
    except ValueError:
        raise NotRun(out.stderr.strip()[-300:]) from None
    posts = {key: value for key, value in found.items() if 'post' in key}
    if not posts:
        raise NotRun('instructions.sh counts no post')
    return next(iter(posts.values())), posts


def verbs_sleep(bed):
    need('ib_write_lat')
    there, here = ends(bed)
    ratios = []
    for _ in range(bed.slices):
        bed.port += 1
        rtt = float(Pair(
            [bed.plain, 'udp-wait-ping', 'serve', str(bed.port), '0', '64'],
            [bed.plain, 'udp-wait-ping', there.address, str(bed.port),
             str(bed.seconds), '64'], there.inside, here.inside, {}).end())
        bed.port += 1
        words = ['ib_write_lat', '-F', '-m', '1024', '-s', '64', '-n', '2000',
                 '-p', str(bed.port)]
        run = [bed.tool, 'run', '--verbs', '--soft-only', '--']
        pair = Pair([*run, *words], [*run, *words, there.address],
                    there.inside, here.inside, {'SKEIN_LINK': 'udp'})
        line = re.search(r'^\s*64\s+\d+\s+(.*)$', pair.end(), re.M)
        ratios.append(2000 * float(line.group(1).split()[2]) / rtt)
    return statistics.median(ratios), {'slices': ratios}


def conform(bed):
    """Failed programs of tame ones, both carriers."""
    program = os.path.join(bed.build, 'tests', 'conform', 'conform')
    if not os.path.exists(program):
        raise NotRun('tests/conform/conform is not built: make test')
    failed = 0
    for link in 'udp', 'tcp':
        done = subprocess.run(
            [program, '--tame', '--seeds', f'1..{bed.seeds}', '--stop', '1000'],
            env={**os.environ, 'SKEIN_LINK': link, 'SKEIN_TEST_DEVICE': 'soft'},
            capture_output=True, text=True, check=False)
        found = re.search(r'(\d+) failed', done.stdout + done.stderr)
        failed += int(found.group(1)) if found else bool(done.returncode)
    return failed, {'seeds': bed.seeds}


def elsewhere(how):
    def row(_):
        raise NotRun(how)
    return row


# field: what it is, < at most, > at least or = reported, the bar, how
ROWS = {
    'write_lat_udp_x_udp_sleep': (
        'ib_write_lat, 64 B, p50 / UDP, asleep', '<', 1.3, verbs_sleep),
    'call_p99_beside_bulk_x_alone': (
        '64 B there and back beside 1 MiB WRITEs, p99 / alone', '<', 8,
        beside_bulk),
    'cp_1g_x_tcp': ('skein cp / TCP', '>', 0.7, cp_1g),
    'sealed_bw_1m_x_tcp': ('sealed WRITE 1 MiB / TCP', '>', 0.35, sealed_tcp),
    'sealed_bw_1m_x_tls': ('the same / TLS 1.3', '=', 0, sealed_tls),
    'loss1_bw_tcp_x_tcp': ('1 % loss, 10 ms: WRITE 1 MiB by TCP / TCP', '>',
                           0.85, lambda bed: loss1(bed, 'tcp')),
    'loss1_bw_udp_x_tcp': ('the same by UDP / TCP', '>', 0.25,
                           lambda bed: loss1(bed, 'udp')),
    'udp_share_beside_tcp': ('of 100 Mbit/s, beside one TCP flow', '>', 0.2,
                             udp_share),
    'udp_share_beside_tcp_most': ('the same', '<', 0.8, udp_share),
    'incast8_udp_x_one': ('8 senders to one / one sender', '>', 0.5, incast),
    'mcast_4_x_1': ('skein cp to 4 / to 1, 100 Mbit/s a host', '<', 1.3,
                    mcast),
    'same_host_post_instructions': ('WRITE on one host', '<', 234,
                                    post_instructions),
    'idle_wakeups_per_s': ('a process, 100 QPs connected', '<', 2,
                           idle_wakeups),
    'qp_bytes': ('of a QP at an end', '<', 16384, qp_bytes),
    'dead_peer_x_timers': ('until a dead peer is found / the timers', '<', 1.2,
                           dead_peer),
    'conform_unlisted': ('tame programs that differ, both carriers', '<', 0,
                         conform),
    'streams_x_tcp': ('skein run between namespaces', '>', 0.95,
                      elsewhere('bench/run/bars.py has skein run on one host')),
    'capture_malformed': ('packets that tshark does not decode', '<', 0,
                          elsewhere('make test: e2e/link')),
    'interop_rows_failed': ('rows against rxe', '<', 0,
                            elsewhere('make test-hw: link_interop')),
}
