#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stock programs under `skein run`, both ends: bytes are compared, and the report
says that they went by streams. A program that is not installed is left out, and
named. docs/run-compat.md has a row for each.
"""

import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys

from harness import (BUILD, Case, Failure, LeftOut, built, left_out, run_cases,
                     tool)

PYTHON = '/usr/bin/python3'
FILE_LEN = 3 << 20
TIMES = 10
# Another user's connections stay on TCP: a worker must not change its own.
USER = pwd.getpwuid(os.getuid()).pw_name


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return str(probe.getsockname()[1])


class Bench:
    """A folder with a file of random bytes, and a report."""

    def __init__(self, case):
        self.case = case
        self.port = free_port()
        self.file = self.path('file')
        self.report = self.path('report')
        self.data = os.urandom(FILE_LEN)
        with open(self.file, 'wb') as out:
            out.write(self.data)

    def path(self, name):
        return os.path.join(self.case.folder, name)

    def start(self, *words, **options):
        process = self.case.start([tool(), 'run', '--report', self.report,
                                   '--', *words], **options)
        return process

    def listens(self):
        def there():
            with socket.socket() as probe:
                return probe.connect_ex(('127.0.0.1', int(self.port))) == 0
        self.case.until('a listener', there)

    def connections(self, program):
        """The report's lines of those that have ended."""
        with open(self.report, encoding='utf-8') as lines:
            found = [json.loads(line) for line in lines]
        return [line for line in found if line['program'].startswith(program)]

    def streams(self, program):
        """What its connections moved by streams."""
        found = self.connections(program)
        moved = sum(line['rx_stream'] + line['tx_stream'] for line in found)
        if not moved:
            raise Failure(f'{program} was on no stream: {found}')
        print(f'{program}: {moved} bytes by streams')
        return moved

    def clean(self):
        for name in os.listdir(self.case.folder):
            path = self.path(name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)


def same(path, wanted):
    with open(path, 'rb') as found:
        digest = hashlib.sha256(found.read()).hexdigest()
    if digest != hashlib.sha256(wanted).hexdigest():
        raise Failure(f'{path} has other bytes')


def fetch(bench, url):
    """The file, many times on one connection, by curl."""
    got = bench.path('got')
    # Quick, for a file of 3 MiB is a few calls by TCP.
    curl = bench.start('sh', '-c', f'exec curl -sS {" ".join([url] * TIMES)} '
                       f'> {got}')
    curl.exits(0)
    same(got, bench.data * TIMES)


def test_http_server():
    with Case() as case:
        bench = Bench(case)
        server = bench.start(PYTHON, '-u', '-m', 'http.server', '--bind',
                             '127.0.0.1', '--protocol', 'HTTP/1.1', '-d',
                             case.folder, '0')
        port = server.expect(r'port (\d+)').group(1)
        # All of its 600 calls may be over before the ends have met, which takes
        # time of both libraries' threads: then another one comes.
        case.until('a curl that meets the server', lambda: (
            fetch(bench, f'http://127.0.0.1:{port}/file') or
            any(line['rx_stream'] for line in bench.connections('curl'))))
        server.kill()
        bench.streams('curl')
        bench.clean()


def test_socat():
    """The writer exits as soon as it has written."""
    with Case() as case:
        bench = Bench(case)
        got = bench.path('got')
        server = bench.start('socat', '-d', '-d', '-u',
                             f'TCP-LISTEN:{bench.port},bind=127.0.0.1',
                             f'OPEN:{got},creat')
        server.expect('listening on')
        bench.start('socat', '-u', f'OPEN:{bench.file}',
                    f'TCP:127.0.0.1:{bench.port}').exits(0)
        server.exits(0)
        same(got, bench.data)
        bench.clean()


VALUES = """
import socket, sys
s = [socket.create_connection(('127.0.0.1', int(sys.argv[1])))
     for _ in range(4)]
f = [one.makefile('rb') for one in s]
for i in range(1600):
    value = bytes([i % 251]) * (i * 7919 % (60000 if i % 9 == 0 else 900) + 1)
    s[i % 4].sendall(b'set k%d 0 0 %d\\r\\n%s\\r\\n' % (
        i % 50, len(value), value))
    assert f[i % 4].readline() == b'STORED\\r\\n'
    s[(i + 1) % 4].sendall(b'get k%d\\r\\n' % (i % 50))
    head = f[(i + 1) % 4].readline()
    assert head == b'VALUE k%d 0 %d\\r\\n' % (i % 50, len(value)), head
    assert f[(i + 1) % 4].read(len(value) + 7) == value + b'\\r\\nEND\\r\\n'
"""


def test_memcached():
    with Case() as case:
        bench = Bench(case)
        server = bench.start('memcached', '-l', '127.0.0.1', '-p', bench.port,
                             '-t', '2', '-u', USER)
        bench.listens()
        bench.start(PYTHON, '-c', VALUES, bench.port).exits(0)
        server.kill()
        bench.streams('python3')
        bench.clean()


NGINX = """
worker_processes 2;
daemon off;
user {user};
pid {folder}/pid;
error_log stderr notice;
events {{ worker_connections 64; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_body_temp_path {folder}/t;
  proxy_temp_path {folder}/t;
  fastcgi_temp_path {folder}/t;
  uwsgi_temp_path {folder}/t;
  scgi_temp_path {folder}/t;
  server {{
    listen 127.0.0.1:{port} reuseport;
    root {folder};
    location /short {{ return 200 "short"; }}
  }}
}}
"""


def test_nginx():
    """Two workers; a file by sendfile; a reload while curl reads."""
    with Case() as case:
        bench = Bench(case)
        os.mkdir(bench.path('t'))
        os.chmod(case.folder, 0o755)
        with open(bench.path('conf'), 'w', encoding='ascii') as conf:
            conf.write(NGINX.format(folder=case.folder, port=bench.port,
                                    user=USER))
        server = bench.start('nginx', '-p', case.folder, '-c',
                             bench.path('conf'))
        bench.listens()
        url = f'http://127.0.0.1:{bench.port}/'
        fetch(bench, url + 'file')
        load = bench.start('curl', '-sS', '--fail', '-o', bench.path('o'),
                           url + 'short?[1-3000]')
        case.start(['nginx', '-p', case.folder, '-c', bench.path('conf'),
                    '-s', 'reload']).exits(0)
        load.exits(0)
        fetch(bench, url + 'file')
        server.stop()
        bench.streams('curl')
        bench.streams('nginx')
        bench.clean()


PG_BIN = '/usr/lib/postgresql/15/bin'
PG_WORDS = ['-k', '', '-c', 'listen_addresses=127.0.0.1', '-c', 'fsync=off',
            '-c', 'shared_buffers=16MB', '-c', 'max_connections=20']
SUMS = """select (select sum(abalance) from pgbench_accounts),
(select sum(bbalance) from pgbench_branches),
(select sum(tbalance) from pgbench_tellers),
(select sum(delta) from pgbench_history),
(select count(*) from pgbench_history)"""


def as_user(mine):
    """The words before a program that refuses to run as root; None: there is no
    other user here who could run ours."""
    if os.getuid():
        return []
    words = ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups']
    there = subprocess.run([*words, mine, 'run', '--', 'true'], check=False,
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    return None if there.returncode else words


def copy_ours(folder):
    """The tool and its library, where every user may read them."""
    os.chmod(folder, 0o755)
    for path in 'tools/skein', 'src/bind/socket/libskein-socket.so':
        there = os.path.join(folder, path)
        os.makedirs(os.path.dirname(there))
        shutil.copy(built(path), there)
    return os.path.join(folder, 'tools/skein')


def test_postgres():
    """The parent accepts, a child of its own serves each connection."""
    with Case() as case:
        bench = Bench(case)
        mine = copy_ours(case.folder)
        user = as_user(mine)
        if user is None:
            bench.clean()
            raise LeftOut('PostgreSQL refuses root, and "nobody" cannot start '
                          'our tool')
        home = bench.path('pg')
        os.mkdir(home)
        if user:
            shutil.chown(home, 'nobody')
        bench.report = f'{home}/report'

        def run(*words):
            case.start([*user, *words]).exits(0)

        def ours(name, *words):
            return [*user, mine, 'run', '--report', bench.report, '--',
                    f'{PG_BIN}/{name}', *words]
        run(f'{PG_BIN}/initdb', '-D', f'{home}/data', '--no-sync', '-A',
            'trust', '-U', 'skein', '--locale=C')
        server = case.start(ours('postgres', '-D', f'{home}/data', '-p',
                                 bench.port, *PG_WORDS))
        server.expect('ready to accept connections')
        there = ['-h', '127.0.0.1', '-p', bench.port, '-U', 'skein']
        run(f'{PG_BIN}/pgbench', *there, '-i', '-q', 'postgres')
        load = case.start(ours('pgbench', *there, '-n', '-c', '2', '-t',
                               '300', 'postgres'))
        load.exits(0)
        plain = case.start([f'{PG_BIN}/psql', *there, '-AtF', ' ', '-c', SUMS,
                            'postgres'])
        plain.exits(0)
        sums = plain.text('out').split()
        if len(set(sums[:4])) != 1 or sums[4] != '600':
            raise Failure(f'the tables do not agree: {sums}')
        server.signal(signal.SIGINT)
        server.exits(0)
        bench.streams('pgbench')
        bench.streams('postgres')
        bench.clean()


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    NEEDED = {test_http_server: ['curl'], test_socat: ['socat'],
              test_memcached: ['memcached'], test_nginx: ['nginx', 'curl'],
              test_postgres: [f'{PG_BIN}/postgres', f'{PG_BIN}/pgbench']}
    TESTS = []
    for test, programs in NEEDED.items():
        lacking = [name for name in programs if not shutil.which(name)]
        if lacking:
            left_out(test.__name__, f'no {" ".join(lacking)}')
        else:
            TESTS.append(test)
    if not TESTS:
        print('skipped: none of the programs is here')
        sys.exit(77)
    run_cases(*TESTS)
