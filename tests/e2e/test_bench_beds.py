# SPDX-License-Identifier: MIT
"""Small runs of connect.py, storm.py, quiet.py, big.py, wake.py, crowd.py, elastic.py,
pass.py and ycsb.py: each prints one JSON object that has its figures. Of the figures themselves nothing
is said, but of counts that cannot be otherwise."""

import json
import os
import shutil
import subprocess
import sys

from harness import BUILD, ROOT, SCALE, Failure, run_cases, skip

# LeakSanitizer does not work below strace, which wake.py uses.
if 'ASAN_OPTIONS' in os.environ:
    os.environ['ASAN_OPTIONS'] += ':detect_leaks=0'


def bench(name, *words):
    done = subprocess.run(
        [sys.executable, '-B', os.path.join(ROOT, 'bench', name), '--json',
         '--build', BUILD, *map(str, words)], capture_output=True, text=True,
        check=False, timeout=100 * SCALE)
    if done.returncode:
        raise Failure(f'{name}: {done.stdout}{done.stderr}')
    if not done.stderr.strip():
        raise Failure(f'{name}: no table for people')
    return json.loads(done.stdout)


def connect():
    got = bench('connect.py', '--runs', 2)
    for part in ('context', 'connection', 'first_call', 'to_first_answer',
                 'further'):
        assert got[part + '_us'] > 0 and got[part + '_over_floor'] > 0, got
    assert got['floor_us'] > 0, got


def storm():
    for wait in ('sleep', 'poll'):
        got = bench('storm.py', '-n', 4, '--wait', wait)
        assert got['failed'] == 0 and got['n'] == 4, got
        assert got['over_nothing'] > 0, got


def quiet():
    counted = shutil.which('valgrind') and not (
        os.environ.get('ASAN_OPTIONS') or os.environ.get('TSAN_OPTIONS'))
    got = bench('quiet.py', '--idle', '0,3', '--calls', 50, '--units', 4,
                '--pause', 0.1, *([] if counted else ['--no-counts']))
    none, some = got['rows']
    assert (none['idle'], some['idle']) == (0, 3), got
    assert some['shared_kib_each'] > 0, got
    assert some['last_open_over_first'] > 0, got
    assert some['p50_ratio'] > 0, got
    if counted:
        # a round and a call are some, and a call's rounds more than one
        assert 0 < none['round_instructions'] < none['call_instructions'], got
        assert some['round_ratio'] > 0 and some['call_ratio'] > 0, got


def big():
    got = bench('big.py', '--len', 300000, '--count', 2, '--ms', 50)
    assert got['len'] == 300000 and got['gib_per_s_each_way'] > 0, got
    # the other client's calls and the large ones: rounds that moved something
    assert got['round_most_us'] >= got['round_p99_us'] > 0, got
    assert got['other_p99_us'] > 0 and got['other_p99_alone_us'] > 0, got


def wake():
    got = bench('wake.py', '--calls', 200, '--rounds', 1)
    for end in ('client', 'server'):
        assert 0 <= got['wake_ups'][end] < 100, got
        # strace may not be there, or may not trace
        calls = got['system_calls_sum'][end]
        assert calls is None or calls < 1000, got
    assert got['asleep_over_unix'] > 0, got


def crowd():
    got = bench('crowd.py', '--clients', '1,3', '--ms', 50)
    assert [row['clients'] for row in got['rows']] == [1, 3], got
    for row in got['rows']:
        assert row['skein']['calls_per_s'] > 0, got
        assert row['tcp']['most_over_least'] >= 1, got


def elastic():
    got = bench('elastic.py', '-n', 4, '--rounds', 1)
    assert set(got['ways']) == {'nothing', 'node', 'direct, sleep',
                                'direct, poll'}, got
    assert got['failed'] == 0 and got['node_over_spawn_only'] > 0, got


def ycsb():
    got = bench('ycsb.py', '-w', 'a', '--rounds', 1, '--time', '20ms')
    assert [(r['workload'], r['distribution']) for r in got['results']] == \
        [('a', 'uniform'), ('a', 'zipfian')], got
    for r in got['results']:
        for field in 'reply', 'fetch_over_reply', 'auto_over_reply':
            assert r[field] > 0, got


def passing():
    got = bench('pass.py', '--sizes', '1024,5120', '--count', 3, '--rounds', 1)
    assert [row['bytes'] for row in got['rows']] == [1024, 5120], got
    for row in got['rows']:
        assert row['node_us'] > 0 and row['direct_over_tcp'] > 0, got


def what_cannot_be_run():
    done = subprocess.run(
        [sys.executable, '-B', os.path.join(ROOT, 'bench', 'connect.py'),
         '--json', '--build', '/nosuch'], capture_output=True, text=True,
        check=False)
    assert done.returncode == 1, done
    assert 'many' in json.loads(done.stdout)['error'], done


if not os.path.exists(os.path.join(BUILD, 'bench', 'many', 'many')):
    skip('bench/many is not built')
run_cases(connect, storm, quiet, big, wake, crowd, elastic, ycsb, passing,
          what_cannot_be_run)
