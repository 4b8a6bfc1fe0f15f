#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stock gRPC (Debian's python3-grpcio on libgrpc 1.51) under `skein run`: all
kinds of calls, metadata, deadline, cancel, 64 MiB, 17 channels, a server that
is restarted. It says what it says on plain TCP, and the report says that the
first channel was on a stream from its first calls on.

SKEIN_TEST_ROUNDS: a hundredth of it is how often; then 64 MiB come back, too.
"""

import json
import os
import subprocess
import sys

from harness import BUILD, Case, Failure, run_cases, tool

TALK = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    'grpc_talk.py')
# Debian's: its packages are not those of another Python in the path.
PYTHON = '/usr/bin/python3'
ROUNDS = int(os.environ.get('SKEIN_TEST_ROUNDS') or 0)


def server(front, *words):
    # pylint: disable=consider-using-with
    process = subprocess.Popen([*front, PYTHON, '-B', TALK, 'server', *words],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    return process, process.stdout.readline().split()[1]


def stop(process):
    process.stdin.close()
    if process.wait(30):
        raise Failure(f'the server ended with {process.returncode}')
    process.stdout.close()


def talk(front):
    """What the client printed."""
    first, port = server(front)
    words = [*front, PYTHON, '-B', TALK, 'client', port]
    lines = []
    with subprocess.Popen(words + (['long'] if ROUNDS else []),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as client:
        for line in client.stdout:
            lines.append(line)
            if line != 'restart\n':
                continue
            stop(first)
            first, _ = server(front, port)
            client.stdin.write('\n')
            client.stdin.flush()
        client.wait(60)
    stop(first)
    if client.returncode:
        raise Failure(f'the client ended with {client.returncode}: {lines}')
    return lines


def test_grpc():
    with Case() as case:
        path = os.path.join(case.folder, 'report')
        plain = talk([])
        ours = talk([tool(), 'run', '--report', path, '--'])
        with open(path, encoding='utf-8') as lines:
            found = [json.loads(line) for line in lines]
        os.unlink(path)
        if plain != ours:
            raise Failure(f'plain TCP says {plain}, skein run {ours}')
        big = [line for line in found if line['tx_stream'] > 64 << 20]
        if not big or big[0]['calls_before'] > 2000:
            raise Failure(f'64 MiB went by no stream: {found}')
        on = sum(line['carrier'] == 'stream' for line in found)
        print(f'{len(plain)} lines the same, {on} of {len(found)} ends were '
              'on streams')


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    if subprocess.run([PYTHON, '-c', 'import grpc'], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        print('skipped: no python3-grpcio')
        sys.exit(77)
    run_cases(*[test_grpc] * max(ROUNDS // 100, 1))
