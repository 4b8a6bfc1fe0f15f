#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The ways to wait (`skein run --wait MODE`, docs/waiting.md).

* In each mode random programs of socket calls, and redis with one client and
  with 20, say the same as on plain TCP, on streams.
* one_core: both ends on one core, in each mode, serve each other. A poller that
  spins without giving the core to its only peer would do a call a time slice:
  seen in processor time a call, not in time that passes.
* Polling threads sleep when nothing moves: they take no processor time, and are
  there again when something does.
"""

import os
import sys
import time

from harness import BUILD, Case, Failure, run_cases, tool
from test_run import SET, Redis, pair, refused, report, streams

MODES = 'adaptive', 'bp', 'bpts', 'event', 'bpev'
WAYS = [(mode, None) for mode in MODES] + [('bpev', 1), ('bpev', 2)]
CALLS = 4000


def put(mode, pollers=None):
    os.environ['SKEIN_RUN_WAIT'] = mode
    if pollers is None:
        os.environ.pop('SKEIN_RUN_POLLERS', None)
    else:
        os.environ['SKEIN_RUN_POLLERS'] = str(pollers)


def threads(pid, name):
    """The threads of this name, each with the nanoseconds that it ran."""
    found = {}
    for tid in os.listdir(f'/proc/{pid}/task'):
        task = f'/proc/{pid}/task/{tid}/'
        with open(task + 'comm', encoding='ascii') as comm:
            if comm.read().strip() != name:
                continue
        with open(task + 'schedstat', encoding='ascii') as stat:
            found[tid] = int(stat.read().split()[0])
    return found


def test_differential():
    on = dict.fromkeys(WAYS, 0)
    with Case() as case:
        for seed in range(1, 31):
            # A few for all; on a busy machine the other end's answer may come
            # too late, then more for those that were on no stream.
            ways = [way for way in WAYS if seed < 4 or not on[way]]
            if not ways:
                break
            os.environ.pop('SKEIN_RUN_WAIT', None)
            plain, _ = pair(case.folder, seed, [], '')
            for way in ways:
                put(*way)
                ours, path = pair(case.folder, seed, [tool(), 'run'], 'r')
                if plain != ours or plain[0][0] or plain[1][0]:
                    raise Failure(f'seed {seed}, {way}: plain TCP says\n'
                                  f'{plain}\nunder skein run:\n{ours}')
                on[way] += len(streams(report(path)))
                os.unlink(path)
    print(f'ends on streams: {on}')
    if not all(on.values()):
        raise Failure('none was on a stream')


def test_sets():
    """Four threads, each with an epoll set: some bells are taken by a thread
    that they are not for, or by a forked child that waits at the first set.
    All bytes come, and nobody hears of what the program has not added."""
    for mode in 'event', 'adaptive', 'bpev':
        put(mode)
        with Case() as case:
            path = os.path.join(case.folder, 'report')
            words = [tool(), 'run', '--report', path, '--', SET]
            server = case.start([*words, 'server', 'sets'])
            port = server.expect(r'port (\d+)').group(1)

            def served():
                clients = [case.start([*words, 'client', port, '2'])
                           for _ in range(2)]
                for client in clients:
                    client.exits(0)
                return streams(report(path))

            case.until('connections on streams', served, 60)
            if not server.running():
                raise Failure(f'{mode}: the server has ended')
            server.kill()
            print(f'{mode}: {len(streams(report(path)))} ends on streams')
            os.unlink(path)


def test_redis():
    for way in WAYS:
        put(*way)
        with Case() as case:
            redis = Redis(case)
            redis.on_streams('-c', '1', '-n', '2000', '-t', 'set,get')
            redis.bench('-c', '20', '-n', '4000', '-r', '10', 'SET',
                        'k:__rand_int__', 'v' * 5000)
            value = redis.cli('GET', 'k:000000000003').strip()
            found = redis.stop()
        if value != 'v' * 5000:
            raise Failure(f'{way}: {len(value)} bytes, {len(found)} lines')


# A thread that spins until the kernel takes the core away burns a slice a call:
# 3 ms, and never less than 0.75 ms. A call takes some 20 to 100 us.
CALL_CPU_S = 0.4e-3


def cpu_s(pid):
    """Processor time of all threads of the process."""
    with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
        words = stat.read().rpartition(')')[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def test_one_core():
    """Processor time, no time that passes: other processes do not add to it."""
    all_cores = os.sched_getaffinity(0)
    core = {min(all_cores)}
    try:
        os.sched_setaffinity(0, core)
        for way in WAYS:
            put(*way)
            with Case() as case:
                redis = Redis(case)
                redis.bench('-c', '1', '-n', '500', '-t', 'get')

                def took():
                    """Processor time of the calls, if they were on a stream."""
                    on = len(streams(report(redis.report)))
                    was = cpu_s(redis.process.pid)
                    redis.bench('-c', '1', '-n', str(CALLS), '-t', 'get')
                    spent = cpu_s(redis.process.pid) - was
                    return len(streams(report(redis.report))) > on and spent
                call_s = case.until(f'{way}: on a stream', took, 100) / CALLS
                redis.stop()
            print(f'{way}: {call_s * 1e6:.0f} us of the core a call')
            if call_s > CALL_CPU_S:
                raise Failure(f'{way}: {call_s * 1e6:.0f} us of the core a '
                              'call: a slice?')
    finally:
        os.sched_setaffinity(0, all_cores)


def test_rest():
    put('bpev', 2)
    with Case() as case:
        redis = Redis(case)
        load = case.start([tool(), 'run', '--', 'redis-benchmark', '-p',
                           str(redis.port), '-c', '4', '-n', '30000', '-q',
                           '-t', 'get'])
        load.exits(0, timeout=90)
        pid = redis.process.pid
        if len(threads(pid, 'skein-poll')) != 2:
            raise Failure(f'{threads(pid, "skein-poll")}')
        case.until('them to rest', lambda: rested(pid))
        was = threads(pid, 'skein-poll')
        redis.bench('-c', '4', '-n', '30000', '-t', 'get')
        if sum(threads(pid, 'skein-poll').values()) <= sum(was.values()):
            raise Failure('no bell made them look again')
        case.until('them to rest again', lambda: rested(pid))
        redis.stop()


def rested(pid):
    """For a fifth of a second none of them ran."""
    was = threads(pid, 'skein-poll')
    time.sleep(.2)
    return threads(pid, 'skein-poll') == was


def test_options():
    for value in ('', '-1', 'two', '17', '1 '):
        refused([], SKEIN_RUN_POLLERS=value)
    refused(['--pollers', '99'])
    refused(['--wait', 'spin'])


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(test_options, test_sets, test_one_core, test_redis, test_rest,
              test_differential)
