# SPDX-License-Identifier: MIT
"""Stock servers and the load generators that go with them, for bars.py: each runs
plain or under `skein run`, pinned to a core, and a slice of load gives one
number."""

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

USER = pwd.getpwuid(os.getuid()).pw_name
PG_BIN = '/usr/lib/postgresql/15/bin'
# How the server runs for a kind of slice, and which modes are `skein run`'s.
SERVER_OF = {'unix': 'tcp', 'plain': 'tcp'}
WRAPPED = {'stream': 'adaptive', 'event': 'event', 'bpev': 'bpev',
           'plain': 'adaptive'}
STREAMS = ('stream', 'event', 'bpev')
PATIENCE_S = 120
FEW_CALLS = 100


class Missing(Exception):
    """A program that is not installed, or cannot run here."""


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def pss(pid):
    """Bytes of memory that are a process's own, and its share of the rest."""
    with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as rollup:
        return 1024 * int(re.search(r'^Pss: +(\d+)', rollup.read(), re.M)[1])


def cpu_s(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
        fields = stat.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def all_on(report):
    """Every connection that was used was on a stream. One that said a few words
    and ended, before that was decided, was a load generator's first look, or
    iperf3's control connection."""
    with open(report, encoding='utf-8') as lines:
        found = [json.loads(line) for line in lines]
    used = [line for line in found if line['calls_before'] >=
            (FEW_CALLS if line['undecided'] else 8)]
    return used and all(line['carrier'] == 'stream' for line in used)


class Place:
    """Where everything runs: a build, a folder, and what was started."""

    def __init__(self, build, folder):
        self.build = build
        self.folder = folder
        self.tool = os.path.join(build, 'tools', 'skein')
        self.report = os.path.join(folder, 'report')
        self.servers = {}

    def path(self, name):
        return os.path.join(self.folder, name)

    def words(self, kind, core, report=False, user=()):
        """What stands before a program's own words."""
        found = ['taskset', '-c', str(core), *user]
        if kind in WRAPPED:
            found += [self.tool, 'run', '--wait', WRAPPED[kind]]
            found += ['--report', self.report] if report else []
            found += ['--']
        return found

    def start(self, name, words):
        with open(self.path(name + '.log'), 'w', encoding='utf-8') as log:
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log,
                                    text=True)

    def load(self, words):
        """What a load generator said."""
        if os.path.exists(self.report):
            os.unlink(self.report)
        return subprocess.run(words, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE_S, check=True).stdout

    def on_streams(self, kind):
        return kind not in STREAMS or all_on(self.report)

    def server(self, program, kind, core):
        """The program's server for this kind of slice: started once."""
        kind = SERVER_OF.get(kind, kind)
        key = (program, kind, core)
        if key not in self.servers:
            port = free_port()
            name = f'{program.__name__}-{kind}-{core}'
            process = program.serve(self, kind, core, port, name)
            wait_for(port, process)
            self.servers[key] = (process, port, self.path(name))
        return self.servers[key]

    def close(self):
        for process, _, _ in self.servers.values():
            process.send_signal(signal.SIGTERM)
        for process, _, _ in self.servers.values():
            process.wait(PATIENCE_S)


def wait_for(port, process):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(('127.0.0.1', port)) == 0:
                return
        time.sleep(0.02)
    raise Missing(f'no server at port {port}')


def number(pattern, said):
    found = re.search(pattern, said)
    if not found:
        raise Missing(f'nothing like {pattern} in: {said[-300:]}')
    return float(found.group(1))


class Redis:
    needs = ['redis-server', 'redis-benchmark']

    @staticmethod
    def serve(place, kind, core, port, name):
        return place.start(name, [
            *place.words(kind, core), 'redis-server', '--port', str(port),
            '--bind', '127.0.0.1', '--unixsocket', place.path(name),
            '--maxclients', '11000', '--save', '', '--dir', place.folder])

    @staticmethod
    def load(place, kind, cores, options, count):
        """Requests a second."""
        _, port, path = place.server(Redis, kind, cores[0])
        where = ['-s', path] if kind == 'unix' else ['-p', str(port)]
        # A connection a request: no slice looks at the lines of those.
        report = '-k' not in options
        said = place.load([*place.words(kind, cores[1], report),
                           'redis-benchmark', '-t', 'get', '--csv', '-n',
                           str(count), *options, *where])
        return number(r'"GET","([\d.]+)"', said)


class Clients:
    """Our own load on redis: bench/run/clients.c."""
    needs = Redis.needs

    @staticmethod
    def words(place, kind, cores, *args):
        """Its words, and redis's process."""
        program = os.path.join(place.build, 'bench', 'run', 'clients')
        if not os.path.exists(program):
            raise Missing(f'no {program}: make bench builds it')
        process, port, _ = place.server(Redis, kind, cores[0])
        how, *rest = args
        return [*place.words(kind, cores[1], True), program, how, str(port),
                *map(str, rest)], process

    @staticmethod
    def load(place, kind, cores, options, seconds):
        """Open loop: CPU seconds of both ends."""
        words, server = Clients.words(place, kind, cores, 'open', *options,
                                      seconds)
        before = cpu_s(server.pid)
        own = json.loads(place.load(words))['cpu_s']
        return own + cpu_s(server.pid) - before

    @staticmethod
    def accept(place, kind, cores, conns):
        """p99 from connect() to the first answer, in us."""
        words, _ = Clients.words(place, kind, cores, 'accept', conns)
        return json.loads(place.load(words))['p99_us']

    @staticmethod
    def idle(place, kind, cores, conns):
        """Both ends with so many connections that have gone quiet: the server,
        and the client, which ends with its stdin."""
        words, server = Clients.words(place, kind, cores, 'idle', conns)
        client = subprocess.Popen(words, stdin=subprocess.PIPE, text=True,
                                  stdout=subprocess.PIPE)
        if not client.stdout.readline():
            raise Missing(f'no {conns} connections')
        return server, client


class Memcached:
    needs = ['memcached', 'memcslap']

    @staticmethod
    def serve(place, kind, core, port, name):
        return place.start(name, [
            *place.words(kind, core), 'memcached', '-l', '127.0.0.1', '-p',
            str(port), '-t', '1', '-u', USER])

    @staticmethod
    def load(place, kind, cores, options, count):
        """GETs a second, of one connection."""
        port = place.server(Memcached, kind, cores[0])[1]
        said = place.load([*place.words(kind, cores[1], True), 'memcslap',
                           f'--servers=127.0.0.1:{port}', '--test=get',
                           '--initial-load=100', '--concurrency=1',
                           f'--execute-number={count}', *options])
        return count / number(r'Time to get .*:\s*([\d.]+) seconds', said)


NGINX = """
worker_processes 1;
daemon off;
user {user};
pid {folder}/{name}.pid;
error_log stderr error;
events {{ worker_connections 64; }}
http {{
  access_log off;
  sendfile on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/t;
  proxy_temp_path {folder}/t;
  fastcgi_temp_path {folder}/t;
  uwsgi_temp_path {folder}/t;
  scgi_temp_path {folder}/t;
  server {{
    listen 127.0.0.1:{port};
    root {folder};
    location /short {{ return 200 "short"; }}
  }}
}}
"""


class Nginx:
    needs = ['nginx', 'wrk']

    @staticmethod
    def serve(place, kind, core, port, name):
        os.makedirs(place.path('t'), exist_ok=True)
        os.chmod(place.folder, 0o755)
        with open(place.path('file'), 'wb') as out:
            out.write(bytes(4096))
        conf = place.path(name + '.conf')
        with open(conf, 'w', encoding='ascii') as out:
            out.write(NGINX.format(folder=place.folder, port=port, name=name,
                                   user=USER))
        return place.start(name, [*place.words(kind, core), 'nginx', '-p',
                                  place.folder, '-c', conf])

    @staticmethod
    def load(place, kind, cores, options, count):
        """Requests a second, in `count` seconds."""
        port = place.server(Nginx, kind, cores[0])[1]
        said = place.load([*place.words(kind, cores[1], True), 'wrk', '-t',
                           '1', '-c', '1', '-d', f'{count}s',
                           f'http://127.0.0.1:{port}/{options[0]}'])
        return number(r'Requests/sec:\s*([\d.]+)', said)


class Grpc:
    """bench/peers' pair of C++ programs; its server ends with its client."""
    needs = ['protoc', 'grpc_cpp_plugin']

    @staticmethod
    def load(place, kind, cores, options, count):
        """p50 in ns of one call at a time; messages a second of a window."""
        how, size, window = options
        pair = os.path.join(place.build, 'bench', 'peers', 'peer_grpc')
        if not os.path.exists(pair):
            raise Missing('bench/peers/build.sh did not build its pair')
        carrier = 'unix' if kind == 'unix' else 'tcp'
        where = place.path('grpc.sock') if kind == 'unix' else '0'
        server = place.start('grpc', [*place.words(kind, cores[0]), pair,
                                      'serve', carrier, how, where])
        try:
            where = server.stdout.readline().split()[-1]
            said = place.load([*place.words(kind, cores[1], True), pair,
                               'call', carrier, how, where, str(size),
                               str(window), str(count)])
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
        found = json.loads(said[said.index('{'):])
        if window == 1 and size < 1 << 20:
            return found['p50_ns']
        return found['ops'] / found['seconds']


class Iperf3:
    needs = ['iperf3']

    @staticmethod
    def serve(place, kind, core, port, name):
        return place.start(name, [*place.words(kind, core), 'iperf3', '-s',
                                  '-B', '127.0.0.1', '-p', str(port)])

    @staticmethod
    def load(place, kind, cores, options, count):
        """Bits a second, in `count` seconds. (Its control connection says too
        little for a stream: the report counts what was used.)"""
        port = place.server(Iperf3, kind, cores[0])[1]
        said = place.load([*place.words(kind, cores[1], True), 'iperf3', '-c',
                           '127.0.0.1', '-p', str(port), '-J', '-t',
                           str(count), *options])
        end = json.loads(said[said.index('{'):])['end']
        return end['sum_received']['bits_per_second']


class Pgbench:
    needs = [f'{PG_BIN}/postgres', f'{PG_BIN}/pgbench']

    @staticmethod
    def user(place):
        """PostgreSQL refuses root; another user must reach our tool."""
        if os.getuid():
            return []
        words = ['setpriv', '--reuid=nobody', '--regid=nogroup',
                 '--clear-groups']
        there = subprocess.run([*words, place.tool, 'run', '--', 'true'],
                               check=False, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        if there.returncode:
            raise Missing('PostgreSQL refuses root, and "nobody" cannot '
                          'start our tool')
        return words

    @staticmethod
    def serve(place, kind, core, port, name):
        user = Pgbench.user(place)
        home = place.path(name)
        os.chmod(place.folder, 0o777)
        run = {'check': True, 'stdout': subprocess.DEVNULL,
               'stderr': subprocess.DEVNULL}
        subprocess.run([*user, f'{PG_BIN}/initdb', '-D', home, '--no-sync',
                        '-A', 'trust', '-U', 'skein', '--locale=C'], **run)
        process = place.start(name, [
            *place.words(kind, core, user=user), f'{PG_BIN}/postgres', '-D',
            home, '-p', str(port), '-k', '', '-c',
            'listen_addresses=127.0.0.1', '-c', 'fsync=off'])
        wait_for(port, process)
        for _ in range(50):
            if not subprocess.run([
                    *user, f'{PG_BIN}/pgbench', '-h', '127.0.0.1', '-p',
                    str(port), '-U', 'skein', '-i', '-q', 'postgres'],
                    **{**run, 'check': False}).returncode:
                return process
            time.sleep(0.1)
        raise Missing('PostgreSQL does not answer')

    @staticmethod
    def load(place, kind, cores, options, count):
        """Transactions a second: one SELECT each."""
        port = place.server(Pgbench, kind, cores[0])[1]
        user = Pgbench.user(place)
        said = place.load([*place.words(kind, cores[1], True, user),
                           f'{PG_BIN}/pgbench', '-h', '127.0.0.1', '-p',
                           str(port), '-U', 'skein', '-n', '-S', '-t',
                           str(count), *options, 'postgres'])
        return number(r'tps = ([\d.]+)', said)


def lacking(program):
    return [name for name in program.needs if not shutil.which(name)]
