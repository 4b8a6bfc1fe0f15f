#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What TCP's rules say of a connection holds on a stream, too.

Two programs run on plain TCP and under `skein run`, where their connection is on
a stream when the case begins; they must say the same:

* bytes that TCP's buffers take block no writer whose peer does not read.
"""

import json
import os
import subprocess
import sys

from harness import BUILD, SCALE, Case, Failure, run_cases, tool

# A case's two functions follow. The ends talk until the client is told to go on.
ENDS = """
import fcntl, select, socket, struct, sys, termios
WAIT = %f
def say(*words):
    print(*words, flush=True)
def take(s, n):
    got = b''
    while len(got) < n:
        piece = s.recv(n - len(got))
        if not piece:
            raise EOFError(len(got))
        got += piece
    return got
def main():
    if sys.argv[1] == 'server':
        listener = socket.create_server(('127.0.0.1', 0))
        say(listener.getsockname()[1])
        s = listener.accept()[0]
        while take(s, 4) != b'LAST':
            s.sendall(b'PONG')
        s.sendall(b'LAST')
    else:
        s = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
        while not select.select([0], [], [], 0)[0]:
            s.sendall(b'PING')
            take(s, 4)
        s.sendall(b'LAST')
        take(s, 4)
    s.settimeout(WAIT)
    try:
        server(s) if sys.argv[1] == 'server' else client(s)
    except OSError as error:
        say('failed:', repr(error))
""" % (60 * SCALE)

# Both write all before they read.
BOTH = """
def server(s):
    s.sendall(bytes(i % 251 for i in range(SIZE)))
    say(all(b == i % 251 for i, b in enumerate(take(s, SIZE))))
client = server
"""
# A client that sends all its requests before it reads an answer.
PIPELINE = """
def server(s):
    for i in range(2000):
        s.sendall(2 * take(s, 100))
    say('served')
def client(s):
    s.sendall(200000 * b'q')
    say(take(s, 400000) == 400000 * b'q')
"""


def on_streams(port):
    said = subprocess.run([tool(), 'run', '--list', '--json'], check=True,
                          capture_output=True, text=True, timeout=90 * SCALE)
    found = [line['carrier'] for line in json.loads(said.stdout)['connections']
             if f':{port}' in line['local'] + line['peer']]
    return found == ['stream', 'stream']


def ends(case, program, wrapped):
    """What the server and the client say."""
    words = [tool(), 'run', '--'] if wrapped else []
    words += [sys.executable, '-c', f'{ENDS}\n{program}\nmain()']
    server = case.start([*words, 'server'], 'server')
    port = server.expect(r'^(\d+)$').group(1)
    ours, tell = os.pipe()
    client = case.start([*words, 'client', port], 'client', stdin=ours)
    os.close(ours)
    if wrapped:
        case.until('streams', lambda: on_streams(port), 60)
    os.close(tell)
    for process in client, server:
        process.exits(0, 150)
    return [server.text('out').split('\n')[1:],
            client.text('out').split('\n')]


def same(program):
    with Case() as case:
        right = ends(case, program, False)
        found = ends(case, program, True)
    if not all(right) or 'failed' in str(right):
        raise Failure(f'plain TCP says {right}')
    if found != right:
        raise Failure(f'a stream says {found}, plain TCP {right}')


def test_both_write():
    for size in 400000, 2000000:
        same(f'SIZE = {size}\n' + BOTH)


def test_pipeline():
    same(PIPELINE)


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(test_both_write, test_pipeline)
