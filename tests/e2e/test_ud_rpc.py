# SPDX-License-Identifier: MIT
"""bench/ud, the baseline over datagrams, as two processes: every response is
the request's bytes and every request is executed once, whatever is lost. In
harsh mode the device loses and reorders as well."""

import json
import os
import signal

from harness import DEVICES, MODE, Case, built, fewer, run_cases

PROGRAM = built('bench/ud/ud_rpc')
# What orders two threads' writes into one receive is the other process, of
# which ThreadSanitizer sees nothing: there each client thread has a server
# thread to itself.
APART = 'TSAN_OPTIONS' in os.environ


def start(case, *words):
    """A server and its port."""
    server = case.start([PROGRAM, '-p', 0, *words], 'server',
                        device=DEVICES.server)
    return server, server.expect(r'on port (\d+)$').group(1)


def client(case, port, *words):
    return case.start([PROGRAM, '-p', port, *words, DEVICES.host], 'client',
                      device=DEVICES.client)


def pair(calls, serve, call, threads=1):
    """Both ends, calls of each thread; what they counted."""
    calls = fewer(calls)
    with Case() as case:
        server, port = start(case, *serve)
        caller = client(case, port, '-n', calls, '--threads', threads,
                        '--check', '--json', *call)
        caller.exits(0, timeout=200)
        server.exits(0)
        found = json.loads(caller.text('out'))
    assert found['operations'] == found['operations_run'] == calls * threads
    assert found['server']['executed'] == calls * threads, found
    assert 0 < found['p50_ns'] <= found['p99_ns'], found
    assert found['rate_per_s'] > 0
    assert found['strange'] == found['server']['strange'] == 0, found
    assert 0 < found['under_way_max'] <= found['credits'], found
    return found


def threads_and_sessions():
    found = pair(5000, ['--threads', 5 if APART else 2], ['-t', 8], threads=5)
    assert found['under_way_max'] == found['credits'] == 8
    assert found['lost'] == found['server']['lost'] == 0


def large():
    """What is too long to be copied at the post."""
    pair(5000, [], ['-s', 3000, '-t', 16])


def few_credits():
    found = pair(5000, [], ['-t', 32, '--credits', 3])
    assert found['credits'] == found['under_way_max'] == 3


def receives_run_out():
    found = pair(300, ['--recvs', 2], ['-t', 32, '--timeout', '2ms'])
    assert found['sent_again'] > 0, found


def lossy():
    for size in (64, 2000):
        found = pair(2000, ['--lose', 20, '--threads', 3 if APART else 2],
                     ['--lose', 20, '-s', size, '-t', 16, '--timeout', '2ms'],
                     threads=3)
        served = found['server']
        assert found['lost'] > 0 and served['lost'] > 0, found
        # each of them was noticed, but copies of what had arrived
        assert found['sent_again'] >= served['answered_again'] > 0, found


def lone_calls():
    found = pair(2000, [], [])
    # a receive and a send of each end, but the first receives
    if not MODE.harsh and not found['sent_again']:
        assert found['doorbells'] == 2 * found['operations_run'] + 1, found


def timed():
    with Case() as case:
        server, port = start(case)
        caller = client(case, port, '-t', 4, '-D', '50ms')
        caller.exits(0)
        server.exits(0)
        caller.expect(r'^\d+ calls of 64 B, \d+ a second, p50 \d+ ns')


def calls(process):
    """Its thread that calls, or answers, runs."""
    for task in os.listdir(f'/proc/{process.pid}/task'):
        with open(f'/proc/{process.pid}/task/{task}/comm',
                  encoding='utf-8') as name:
            if name.read() == 'ud\n':
                return True
    return False


def gone():
    """An end that dies is one line at the other."""
    for victim in ('server', 'client'):
        with Case() as case:
            server, port = start(case)
            caller = client(case, port, '-t', 4, '-D', '60s')
            case.until('calls are made',
                       lambda: calls(server) and calls(caller))
            if victim == 'server':
                os.kill(server.pid, signal.SIGKILL)
                caller.exits(1)
                assert 'ud_rpc: the server has gone' in caller.text('err')
            else:
                os.kill(caller.pid, signal.SIGKILL)
                server.exits(1)
                assert 'ud_rpc: the client went away' in server.text('err')


def refused():
    with Case() as case:
        for words, status, line in (
                (['--help'], 0, 'usage: ud_rpc'),
                (['--windows', 1], 2, 'unrecognized option'),
                (['-t', 0, 'host'], 2, 'ud_rpc: -t cannot be "0"'),
                (['--duration=5kg'], 2, 'cannot be "5kg"'),
                (['a', 'b'], 2, 'ud_rpc: one HOST, not "b" too'),
                (['--device', 'hard'], 1, 'hard'),
                (['-p', 1, '127.0.0.1'], 1, 'cannot reach 127.0.0.1, port 1')):
            process = case.start([PROGRAM, *words])
            process.exits(status)
            assert line in process.text(), (words, process.text())
        for words, line in (
                (['-s', 5000], 'is one datagram, here at most 4096 bytes'),
                (['-t', 4096, '--threads', 8], 'the server refuses: 8 '
                 'sessions of 4096 credits')):
            server, port = start(case)
            process = client(case, port, *words)
            process.exits(1)
            server.exits(1)
            assert line in process.text(), (words, process.text())


run_cases(threads_and_sessions, large, few_credits, receives_run_out, lossy,
          lone_calls, timed, gone, refused)
