#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Idle connections under `skein run` (SKEIN_RUN_IDLE): they go back to TCP, give
their memory back, and come onto streams again.

* The list says so at both ends, as often as wanted; no ring is mapped any more.
* Random programs that pause at random bytes say the same as on plain TCP.
* A client that is killed while its connections go to and fro: the server has read
  what the client wrote, in order, and hears of the end.

The last two only with SKEIN_TEST_ROUNDS: how many random programs.
"""

import json
import os
import random
import subprocess
import sys

from harness import BUILD, SCALE, Case, Failure, run_cases, tool
from test_run import TALK, refused, report, streams
from test_run_list import Ends, listed, one

ROUNDS = int(os.environ.get('SKEIN_TEST_ROUNDS') or 0)


def rings(process):
    with open(f'/proc/{process.pid}/maps', encoding='ascii') as maps:
        return sum('/memfd:skein-stream' in line for line in maps)


def test_to_and_fro():
    os.environ['SKEIN_RUN_IDLE'] = '0.3'
    with Case() as case:
        ends = Ends(case)
        client = ends.client()
        for turn in range(2):
            def went():
                """On streams, or back from there: idle while we looked."""
                ends.tell(client, 20)
                rows = [one(pid=process.pid)
                        for process in (client, ends.server)]
                return all(row['carrier'] == 'stream' or
                           row['demotions'] > turn for row in rows)
            case.until('streams', went, 60)

            rows = []

            def rests():
                """An end may be on its way to a stream while it is looked at:
                then another reason stands there for a while."""
                rows[:] = [one(pid=process.pid)
                           for process in (client, ends.server)]
                return all(row['carrier'] == 'tcp' and
                           row['reason'] == 'it was idle' and
                           row['demotions'] > turn for row in rows)
            try:
                case.until('both to rest', rests)
            except Failure as failure:
                raise Failure(f'{failure}: {rows}') from None
            for process in client, ends.server:
                case.until('the rings to go', lambda: not rings(process))
        ends.end()
    del os.environ['SKEIN_RUN_IDLE']
    for value in ('', 'soon', '-1', '1 s', '1.2.3'):
        refused([], SKEIN_RUN_IDLE=value)


def pair(folder, seed, words, name):
    """Both ends of one random program; what each printed."""
    path = os.path.join(folder, name)
    words = [*words, '--report', path, '--'] if words else []
    env = {**os.environ, 'SKEIN_RUN_AFTER': str(1 + seed % 4),
           'SKEIN_RUN_IDLE': '0.003', 'RUN_TALK_PAUSES': '1'}
    with subprocess.Popen([*words, TALK, 'server', str(seed)], env=env,
                          stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().split()[1]
        client = subprocess.run([*words, TALK, 'client', str(seed), port],
                                env=env, stdout=subprocess.PIPE, text=True,
                                timeout=90 * SCALE,
                                check=False)
        out = server.stdout.read()
        server.wait(90 * SCALE)
    return ((server.returncode, out), (client.returncode, client.stdout)), path


def test_differential():
    times, on = 0, 0
    with Case() as case:
        for seed in range(1, ROUNDS + 1):
            plain, _ = pair(case.folder, seed, [], '')
            ours, path = pair(case.folder, seed, [tool(), 'run'], f'r{seed}')
            if plain != ours or plain[0][0] or plain[1][0]:
                raise Failure(f'seed {seed}: plain TCP says\n{plain}\nunder '
                              f'skein run:\n{ours}')
            found = streams(report(path))
            on += len(found)
            times += sum(line['demotions'] for line in found)
            os.unlink(path)
    print(f'{ROUNDS} programs, {on} ends were on streams, and {times} times '
          'went back')
    if times <= on or not on:
        raise Failure('hardly any went to and fro')


SERVER = """
import socket, threading
listener = socket.create_server(('127.0.0.1', 0))
print('port', listener.getsockname()[1], flush=True)
def serve(one):
    got = b''
    at = 0
    try:
        while data := one.recv(1000):
            got += data
            while len(got) >= 8:
                assert int(got[:8]) == at, (got[:8], at)
                at += 1
                one.sendall(got[:8])
                got = got[8:]
    except OSError:
        pass
    except AssertionError as wrong:
        print(f'wrong {wrong}\\n', end='', flush=True)
    one.close()
    print('ended\\n', end='', flush=True)
while True:
    threading.Thread(target=serve, args=listener.accept()[:1],
                     daemon=True).start()
"""
CLIENT = """
import random, socket, sys, threading, time
def talk(seed):
    draw = random.Random(seed)
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    for at in range(100000000):
        s.sendall(b'%08d' % at)
        if at == 300:
            print('under way\\n', end='', flush=True)
        assert int(s.recv(8, socket.MSG_WAITALL)) == at
        if not draw.randrange(30):
            time.sleep(draw.random() / 50)
for i in range(4):
    threading.Thread(target=talk, args=(i,)).start()
"""


def test_killed():
    draw = random.Random(1)
    os.environ['SKEIN_RUN_IDLE'] = '0.003'
    with Case() as case:
        server = case.start([tool(), 'run', '--', sys.executable, '-c',
                             SERVER])
        port = server.expect(r'port (\d+)').group(1)
        for _ in range(max(3, ROUNDS // 2)):
            client = case.start([tool(), 'run', '--', sys.executable, '-c',
                                 CLIENT, port])
            for _ in range(4):
                client.expect('^under way$')
            # Killed after so many of its thread's rounds: at any step.
            count = draw.randrange(3)
            found = []

            def often():
                found[:] = listed(pid=client.pid)
                return sum(row['demotions'] for row in found) > count
            try:
                case.until('to and fro', often)
            except Failure as failure:
                raise Failure(f'{failure}: {found}') from None
            client.kill()
            for _ in range(4):
                line = server.expect('^(ended|wrong.*)$').group(1)
                if line != 'ended':
                    raise Failure(line)
        server.kill()
    del os.environ['SKEIN_RUN_IDLE']


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(test_to_and_fro, *([test_differential, test_killed] if ROUNDS
                                 else []))
