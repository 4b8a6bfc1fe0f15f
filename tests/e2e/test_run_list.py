#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`skein run --list`: which connections of live processes are on streams, and why
the others are not. The two ends are programs that do what they are told by
lines on stdin, so that each look finds a state that stands.
"""

import json
import os
import re
import subprocess
import sys
import time

from harness import BUILD, SCALE, Case, Failure, run_cases, tool

SERVER = """
import socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
print('port', listener.getsockname()[1], flush=True)
def serve(one):
    while data := one.recv(100):
        one.sendall(data)
while True:
    threading.Thread(target=serve, args=listener.accept()[:1],
                     daemon=True).start()
"""
# "N": so many requests of 4 bytes; "back": to TCP; "fork": a child connects.
CLIENT = """
import os, socket, sys
def dial():
    return socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def talk(one, times):
    for _ in range(times):
        one.sendall(b'PING')
        assert one.recv(100) == b'PING'
s = dial()
parent = os.getpid()
forks = 0
for line in sys.stdin:
    word = line.strip()
    if word == 'back':
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2)
    elif word == 'fork':
        forks += 1
        if not os.fork():
            s.close()
            s = dial()
            talk(s, 3)
            print('child', os.getpid(), flush=True)
            continue
    else:
        talk(s, int(word))
    print('did', word, flush=True)
while os.getpid() == parent and forks:
    os.wait()
    forks -= 1
"""
FAKE = """
import os, socket, struct, sys
listener = socket.create_server(('127.0.0.1', 0))
s = socket.create_connection(listener.getsockname())
page = os.memfd_create('skein-run-status')
text = b'"\\\\\\xff\\n' * 30
os.write(page, struct.pack('<QII', 0x32736e7572766b73, 128, 2 ** 32 - 1)
         + text[:48] + bytes(64))
for fd in s.fileno(), 0, 99999:
    os.write(page, struct.pack('<IiQII4Q', 3, fd, 2 ** 64 - 1, 0, 2 ** 32 - 1,
                               1, 2, 3, 2 ** 64 - 1) + text[:72])
print('there', flush=True)
sys.stdin.read()
"""


def listed(**wanted):
    """Connections of the list with these values."""
    done = subprocess.run([tool(), 'run', '--list', '--json'], check=True,
                          stdout=subprocess.PIPE, timeout=90 * SCALE)
    found = json.loads(done.stdout)['connections']
    return [row for row in found
            if all(row[key] == value for key, value in wanted.items())]


def one(**wanted):
    found = listed(**wanted)
    if len(found) != 1:
        raise Failure(f'not one: {found}')
    return found[0]


class Ends:
    """The server, and clients under skein run or not."""

    def __init__(self, case):
        self.case = case
        self.server = case.start([tool(), 'run', '--', sys.executable, '-c',
                                  SERVER])
        self.port = self.server.expect(r'port (\d+)').group(1)
        self.told = {}

    def client(self, wrapped=True):
        front = [tool(), 'run', '--'] if wrapped else []
        ours, its = os.pipe()
        process = self.case.start([*front, sys.executable, '-c', CLIENT,
                                   self.port], stdin=ours)
        os.close(ours)
        self.told[process] = its
        return process

    def tell(self, process, word, answer=r'did \w+'):
        os.write(self.told[process], f'{word}\n'.encode())
        return process.expect(answer)

    def promoted(self, process):
        """Talks until both ends are on a stream; how many requests."""
        count = 0

        def both():
            nonlocal count
            self.tell(process, 20)
            count += 20
            return len(listed(pid=process.pid, carrier='stream')) == 1 and \
                len(listed(pid=self.server.pid, carrier='stream')) == 1
        self.case.until('streams', both)
        return count

    def end(self):
        for process, its in self.told.items():
            os.close(its)
            process.exits(0)
        self.server.kill()


def on_a_stream():
    """Both ends, their bytes, and a process that is stopped; then back to TCP,
    and the end."""
    with Case() as case:
        ends = Ends(case)
        client = ends.client()
        count = ends.promoted(client)
        mine = one(pid=client.pid)
        its = one(pid=ends.server.pid)
        if (mine['local'], mine['peer']) != (its['peer'], its['local']) or \
                mine['peer'] != f'127.0.0.1:{ends.port}':
            raise Failure(f'{mine} {its}')
        for row in mine, its:
            for way in 'rx', 'tx':
                if row[way + '_tcp'] + row[way + '_stream'] != 4 * count:
                    raise Failure(f'{count} requests of 4 bytes: {row}')
            if row['reason'] or row['demotions'] or row['since_s'] < 0 or \
                    row['rx_tcp'] < 8 * 4 or not row['rx_stream']:
                raise Failure(f'{row}')
        if not mine['program'].startswith('python') or \
                (mine['tx_tcp'], mine['tx_stream']) != \
                (its['rx_tcp'], its['rx_stream']):
            raise Failure(f'{mine} {its}')
        client.pause()
        if one(pid=client.pid)['rx_stream'] != mine['rx_stream']:
            raise Failure('a stopped process is listed otherwise')
        text = subprocess.run([tool(), 'run', '--list'], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=90 * SCALE).stdout
        if not re.search(rf'^ *{client.pid} .* stream ', text, re.M):
            raise Failure(text)
        client.resume()
        told = time.monotonic()
        ends.tell(client, 'back')
        back = one(pid=client.pid)
        if (back['carrier'], back['demotions'], back['reason']) != \
                ('tcp', 1, 'SO_RCVLOWAT') or \
                time.monotonic() - back['since_s'] < told:
            raise Failure(f'{back}')
        case.until('the way back of the server', lambda: one(
            pid=ends.server.pid)['reason'] == 'the other end went back to TCP')
        ends.tell(client, 5)
        after = one(pid=client.pid)
        if after['tx_tcp'] != back['tx_tcp'] + 20 or \
                after['tx_stream'] != back['tx_stream']:
            raise Failure(f'{back} then {after}')
        ends.end()
        if listed(pid=client.pid) or listed(pid=ends.server.pid):
            raise Failure('it is listed when it has ended')


def on_tcp():
    """A plain client; one that has said too little; a child's own connection."""
    with Case() as case:
        ends = Ends(case)
        plain = ends.client(wrapped=False)
        ends.tell(plain, 100)
        its = one(pid=ends.server.pid)
        if its['carrier'] != 'tcp' or its['reason'] not in (
                'the other end has not answered',
                'the other end did not answer',
                'the other end does not run under skein run') or \
                its['rx_tcp'] != 400 or its['since_s'] < 0:
            raise Failure(f'{its}')
        os.close(ends.told.pop(plain))
        plain.exits(0)
        case.until('its end', lambda: not listed(pid=ends.server.pid))
        short = ends.client()
        ends.tell(short, 3)
        mine = one(pid=short.pid)
        if mine['reason'] != 'too few calls' or mine['tx_tcp'] != 12:
            raise Failure(f'{mine}')
        its = one(pid=ends.server.pid)
        if its['rx_tcp'] != 12 or its['reason'] != 'too few calls':
            raise Failure(f'of the connection before: {its}')
        child = int(ends.tell(short, 'fork', r'child (\d+)').group(1))
        own = one(pid=child)
        if own['local'] == mine['local'] or own['tx_tcp'] != 12 or \
                one(pid=short.pid)['reason'] != \
                'a forked child may have it too':
            raise Failure(f'{own}')
        ends.end()


def counted():
    """A process under skein run is one before its first connection."""
    def running():
        done = subprocess.run([tool(), 'run', '--list', '--json'], check=True,
                              stdout=subprocess.PIPE, timeout=90 * SCALE)
        return json.loads(done.stdout)['running']

    with Case() as case:
        ours, its = os.pipe()
        quiet = case.start([tool(), 'run', '--', 'cat'], stdin=ours)
        plain = case.start(['cat'], stdin=ours)
        os.close(ours)
        case.until('it is listed', lambda: quiet.pid in running())
        if plain.pid in running():
            raise Failure('a plain process is listed')
        text = subprocess.run([tool(), 'run', '--list'], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=90 * SCALE).stdout
        if not re.search(r'^[1-9]\d* process(es)? under skein run.*, \d+ with a '
                         r'TCP connection so far$', text, re.M):
            raise Failure(text)
        os.close(its)
        for process in quiet, plain:
            process.exits(0)
        if quiet.pid in running():
            raise Failure('it is listed when it has ended')


def what_pages_say_is_checked():
    """A page that no library of ours wrote."""
    with Case() as case:
        ours, its = os.pipe()
        fake = case.start([sys.executable, '-c', FAKE], stdin=ours)
        os.close(ours)
        fake.expect('there')
        row = one(pid=fake.pid)
        if '\n' in row['reason'] + row['program'] or \
                len(row['reason']) > 71 or row['since_s'] != 0:
            raise Failure(f'{row}')
        os.close(its)
        fake.exits(0)


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(on_a_stream, on_tcp, counted, what_pages_say_is_checked)
