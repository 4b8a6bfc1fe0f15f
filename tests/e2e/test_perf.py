# SPDX-License-Identifier: MIT
"""skein perf: every operation measures, says what it measured in valid JSON,
and fails in one line. No time is asserted."""

import functools
import json
import math
import os
import re
import shutil
import signal
import socket
import stat
import subprocess

from harness import (DEVICES, MODE, Case, LeftOut, fewer, run_cases, skip,
                     tool)

FIELDS = ('op device size window batch threads iterations p50_ns p99_ns p999_ns '
          'rate_per_s bytes_per_s cacheline_rtt_ns rtt_ratio mode '
          'ns_per_op_ratio rtt_ratio_p99 slices_kept slices_dropped doorbells '
          'wrs messages').split()
# Short slices: this checks what is reported, not how fast it is.
QUICK = ['--slice', '5ms' if MODE.harsh else '2ms']
OPS = ['write', 'read', 'send', 'atomic']
# Two ends that spin, on a machine with other things to do: each step takes a
# turn of the scheduler. Counts are small for the same reason.
PATIENCE_S = 200


def run_self(case, *words, exits=0, env=None):
    process = case.start([tool(), 'perf', *words], device=DEVICES.client,
                         env=env)
    process.exits(exits, timeout=PATIENCE_S)
    return process


def measured(process):
    """The one object on stdout, with sane values."""
    found = json.loads(process.text('out'))
    sane(found)
    return found


def sane(found):
    missing = [name for name in FIELDS if name not in found]
    assert not missing, f'no {missing}'
    assert 0 < found['p50_ns'] <= found['p99_ns'] <= found['p999_ns']
    assert found['iterations'] > 0
    assert math.isclose(found['bytes_per_s'],
                        found['rate_per_s'] * found['size'], rel_tol=1e-6)
    if found['slices_kept'] and found['self']:
        assert found['cacheline_rtt_ns'] > 0
        assert found['rtt_ratio'] > 0
        assert found['mode'] in ('near', 'far')


def link():
    """What carried the bytes; null where the device has one wire."""
    ways = {'auto': 'shared memory', 'udp': 'udp', 'tcp': 'tcp'} \
        if DEVICES.soft else {'auto': None}
    with Case() as case:
        for mode, way in ways.items():
            for op in ['write', 'rpc', *(['stream'] if DEVICES.soft else [])]:
                found = measured(run_self(case, op, '--self', '-n', '50',
                                          '--json', *QUICK,
                                          env={'SKEIN_LINK': mode}))
                assert found['link'] == way, (mode, op, found['link'])
        table = run_self(case, 'write', '--self', '-n', '50', *QUICK)
        assert (', by shared memory' in table.text('out')) == DEVICES.soft, \
            table.text('out')


def latency():
    with Case() as case:
        for op in OPS:
            found = measured(run_self(case, op, '--self', '-n', fewer(400),
                                      '--json', *QUICK))
            assert found['op'] == op
            assert found['size'] == 8
            assert (found['window'], found['batch']) == (1, 1)
            assert found['kind'] == 'latency'
            assert found['iterations'] >= fewer(400)
            assert found['wrs'] == found['operations_run'] > 0
            assert found['messages'] == found['wrs']
            assert found['device'].startswith(DEVICES.client.split(':')[0])


def throughput():
    with Case() as case:
        for op in OPS[:2] if MODE.harsh else OPS:
            found = measured(run_self(
                case, op, '--self', '-n', fewer(4096), '-s', '8', '-t', '32', '-l',
                '8', '-q', '2', '--json', *QUICK))
            assert found['kind'] == 'throughput'
            assert (found['window'], found['batch'], found['qps']) == (32, 8, 2)
            assert found['wrs'] == found['operations_run']
            # lists of 8: one doorbell each
            assert found['doorbells'] * 8 == found['wrs']


def rpc():
    with Case() as case:
        found = measured(run_self(case, 'rpc', '--self', '-n', fewer(400),
                                  '--json', *QUICK))
        assert (found['op'], found['size']) == ('rpc', 64)
        assert found['kind'] == 'latency'
        # one message a call; those that end slices are not counted
        assert found['operations_run'] == found['messages']
        assert found['wrs'] is None
        found = measured(run_self(case, 'rpc', '--self', '-n', fewer(20000),
                                  '-t', '64', '-l', '8', '--json', *QUICK))
        assert found['kind'] == 'throughput'
        assert found['messages'] < found['operations_run'] / 4
        # from outside done() they gather, too: what is submitted between two
        # polls. A slow device may bring each answer to a poll of its own.
        found = measured(run_self(case, 'rpc', '--self', '-n', fewer(8000),
                                  '-t', '32', '--outside', '--json', *QUICK))
        assert found['outside'] and not found['flush']
        assert found['messages'] + (not MODE.harsh) <= found['operations_run']
        # each by itself: what would have left together does not
        found = measured(run_self(case, 'rpc', '--self', '-n', fewer(8000),
                                  '-t', '32', '--flush', '--json', *QUICK))
        assert found['outside'] and found['flush']
        assert found['messages'] > found['operations_run'] / 2
        found = measured(run_self(case, 'rpc', '--self', '-n', fewer(4000), '-t',
                                  '8', '--threads', '2', '--wait', 'poll',
                                  '--json', *QUICK))
        assert (found['threads'], found['sharing']) == (2, None)


def shares(case, *words, env=None):
    """Many threads on few QPs: the sums that hold whatever the machine does."""
    found = measured(run_self(case, 'rpc', '--self', '--json', *QUICK, *words,
                              env=env))
    sharing = found['sharing']
    assert sharing['calls'] == found['operations_run'] > 0
    assert 0 < found['messages'] <= sharing['calls']
    assert 0 < sharing['answers'] <= sharing['calls']
    assert math.isclose(sharing['degree'],
                        sharing['calls'] / found['messages'], rel_tol=1e-6)
    assert math.isclose(sharing['answer_degree'],
                        sharing['calls'] / sharing['answers'], rel_tol=1e-6)
    return found, sharing


def rpc_fetched():
    """The server posts nothing but what it was asked to reply."""
    with Case() as case:
        for words in ([], ['--bw', '-t', '8', '-l', '8']):
            found = measured(run_self(case, 'rpc', '--self', '--return',
                                      'fetch', '--wait', 'poll', '-n',
                                      fewer(2000), '--json', *QUICK, *words))
            fetch = found['fetch']
            assert fetch['return'] == 'fetch', fetch
            assert fetch['fetched'] > 0 and fetch['reads'] > 0, fetch
            # each has one result
            assert (fetch['fetched'] + fetch['replied'] ==
                    found['operations_run']), found
            assert fetch['switches'] == 0, fetch
            # a recall may ask for all that is under way: 8 messages here
            assert fetch['server_posts'] <= 8 * fetch['recalls'], fetch
        found = measured(run_self(case, 'rpc', '--self', '--return', 'reply',
                                  '-n', fewer(400), '--json', *QUICK))
        assert found['fetch']['fetched'] == 0, found
        assert found['fetch']['replied'] == found['operations_run'], found


def calibrate():
    with Case() as case:
        kept = os.path.join(case.folder, 'calibration')
        found = json.loads(run_self(
            case, 'calibrate', '--pairs', '2', '-n', '2', '--slice', '2ms',
            '--file', kept, '--json').text('out'))
        assert found['file'] == kept and found['pairs'] == 2, found
        assert [row['service_us'] for row in found['times']] == \
            [0, 1, 2, 5, 7, 10, 20], found
        assert all(row['replied'] > 0 and row['fetched'] > 0
                   for row in found['times']), found
        assert all(row['reads'] > 0 for row in found['read_rates']), found
        assert 0 < found['read_bytes_least'] <= found['read_bytes_most']
        text = open(kept, encoding='utf-8').read()
        assert found['key'] in text, text
        # The library takes the file, and not one that was changed. In harsh
        # mode each process has another device, by its seed.
        taken = 'another device' if MODE.harsh else ''
        for change, says in (('', taken), ('x', 'not used: damaged')):
            with open(kept, 'a', encoding='utf-8') as file:
                file.write(change)
            log = run_self(case, 'rpc', '--self', '-n', '20', *QUICK,
                           '--wait', 'poll', '--return', 'auto',
                           env={'SKEIN_RPC_CALIBRATION': kept}).text('err')
            assert ('calibration' in log) == bool(says), log
            assert log.count('not used') == bool(says) and says in log, log
        cache = os.path.join(case.folder, 'cache')
        found = json.loads(run_self(
            case, 'calibrate', '-n', '1', '--slice', '1ms', '--json',
            env={'XDG_CACHE_HOME': cache}).text('out'))
        assert bool(found['file']) == os.path.exists(cache) != DEVICES.soft, \
            found
        fails(case, 1, 'calibrate', '-n', '1', '--slice', '1ms', '--file',
              '/proc/none/calibration', says='cannot be written')
        fails(case, 2, 'calibrate', '--file=', says='--file')
        os.unlink(kept)
        shutil.rmtree(cache, ignore_errors=True)


def calibrate_file():
    """Of what --file names only a regular file is replaced, behind its links.
    No folder is made for it."""
    short = ['calibrate', '--pairs', '1', '-n', '1', '--slice', '1ms',
             '--file']
    with Case() as case:
        top = os.path.join(case.folder, 'top')
        at = functools.partial(os.path.join, top)
        os.mkdir(top)
        os.mkdir(at('folder'))
        os.mkfifo(at('fifo'))
        for name, target in (('to_fifo', 'fifo'), ('dangling', 'none'),
                             ('link', 'folder/file')):
            os.symlink(at(target), at(name))
        for name, says in (('fifo', 'no regular file'),
                           ('to_fifo', 'no regular file'),
                           ('folder', 'no regular file'),
                           ('dangling', 'No such file'),
                           ('new/file', 'No such file')):
            fails(case, 1, *short, at(name), says=says)
        assert stat.S_ISFIFO(os.lstat(at('fifo')).st_mode)
        assert sorted(os.listdir(top)) == \
            ['dangling', 'fifo', 'folder', 'link', 'to_fifo']
        with open(at('folder/file'), 'w', encoding='utf-8') as old:
            old.write('old')
        run_self(case, *short, at('link'))
        assert os.path.islink(at('link')) and os.path.islink(at('to_fifo'))
        assert os.path.getsize(at('folder/file')) > len('old')
        shutil.rmtree(top)


def rpc_shared():
    with Case() as case:
        for words in (['-q', '1'], ['-q', '2', '--threads', '4', '-t', '4']):
            found, sharing = shares(case, *words, '-n', fewer(1000))
            assert found['doorbells'] >= found['messages']
            assert sharing['combining'] and sharing['forced_degree'] is None
            assert sharing['degree_median'] >= 1
            # of every lane, and none has more than twice 32; one QP has none
            if found['qps'] > 1:
                assert 0 < sharing['credits'] <= 64 * found['qps']
            else:
                assert sharing['credits'] == 0
            assert 1 <= sharing['active_qps'] <= found['qps'], sharing
            assert (sharing['answer_doorbells'] - sharing['answers'] ==
                    sharing['credit_grants'] + sharing['credit_declines'])
        # one thread alone combines with nobody
        found, sharing = shares(case, '-q', '1', '-n', fewer(500))
        assert found['messages'] == sharing['calls']
        # a ring of eight calls, and 128 that want to be under way; how often
        # Head is READ then is test_deferred's
        shares(case, '-q', '1', '--threads', '2', '-t', '64', '-s', '1000',
               '-n', fewer(5000), env={'SKEIN_RPC_RING': '8K'})


def rpc_together():
    """A thread hands over up to four calls of its own at once, either way."""
    with Case() as case:
        for words in ([], ['--no-combining']):
            found, _ = shares(case, '-q', '1', '-t', '8', '-l', '4', *words,
                              '-n', fewer(2000))
            assert 1.5 < found['sharing']['degree'] <= 4, found['sharing']


def rpc_spin_lock():
    with Case() as case:
        for words in (['--threads', '2'],
                      ['-q', '2', '--threads', '4', '-t', '4']):
            found, sharing = shares(case, '--no-combining', *words, '-n',
                                    fewer(1000))
            assert not sharing['combining']
            assert sharing['credits'] is sharing['degree_median'] is None
            assert sharing['active_qps'] is None
            # each call in a message of its own, and with a doorbell
            assert found['messages'] == sharing['calls']
            assert found['doorbells'] >= sharing['calls']


def rpc_degree():
    with Case() as case:
        for degree, words in ((1, []), (2, []), (4, ['-t', '2'])):
            found, sharing = shares(case, '--threads', '4', '--degree', degree,
                                    '-n', fewer(64), *words)
            assert sharing['forced_degree'] == degree
            # a leader gives up when its company does not come for long
            assert sharing['degree'] <= degree
            if degree > 1:
                assert found['messages'] < sharing['calls']
        table = run_self(case, 'rpc', '--self', '--threads', '2', '--degree',
                         '2', '-n', fewer(64), *QUICK).text('out')
        assert 'shared by combining 2 calls' in table, table
        assert re.search(r'^#bytes +degree .* head fetches$', table, re.M), table


def rpc_events():
    with Case() as case:
        found = measured(run_self(case, 'rpc', '--self', '-n', fewer(200), '--wait',
                                  'event', '--json', *QUICK))
        if found['slices_kept']:
            assert found['eventfd_rtt_ns'] > 0
            assert found['event_ratio'] > 0


def threads():
    with Case() as case:
        found = measured(run_self(case, 'write', '--self', '-n', fewer(4096), '-s',
                                  '64', '-t', '16', '--threads', '2', '--json',
                                  *QUICK))
        assert found['threads'] == 2
        found = measured(run_self(case, 'send', '--self', '-n', fewer(64),
                                  '--threads', '2', '--json', *QUICK))
        assert found['threads'] == 2


def all_sizes():
    with Case() as case:
        largest = 16 if MODE.harsh else 512
        found = json.loads(run_self(case, 'write', '--self', '-a', '-s', largest,
                                    '-n', fewer(200), '--json',
                                    *QUICK).text('out'))
        assert [one['size'] for one in found['results']] == [
            2 << shift for shift in range(largest.bit_length() - 1)]
        for one in found['results']:
            sane(one)
        table = run_self(case, 'send', '--self', '-a', '-s', '16', '-n', fewer(200),
                         *QUICK).text('out')
        assert len(re.findall(r'^ *\d+  ', table, re.M)) == 4, table


def beside_memcpy():
    with Case() as case:
        found = measured(run_self(case, 'write', '--self', '--bw', '-s', '1M',
                                  '-n', '64', '--json', *QUICK))
        if found['slices_kept']:
            assert found['memcpy_bytes_per_s'] > 0
            assert found['memcpy_ratio'] > 0


def stream():
    """Bytes, checked by their reader; both ways, and in place."""
    if not DEVICES.soft:
        raise LeftOut('streams were not tried on another device')
    with Case() as case:
        for words in ([], ['--bw', '--no-copy', '-s', '200000'],
                      ['--bw', '--both-ways', '-s', '70000']):
            found = measured(run_self(case, 'stream', '--self', '-n',
                                      fewer(300), '--json', *QUICK, *words))
            assert found['op'] == 'stream'
            assert found['kind'] == ('throughput' if '--bw' in words
                                     else 'latency')
            assert found['copy'] == ('--no-copy' not in words), found
            assert found['both_ways'] == ('--both-ways' in words)
            # a record has 65,512 bytes at most
            records = -(-found['size'] // 65512)
            assert found['messages'] >= \
                found['operations_run'] * records, found
            assert found['wrs'] >= found['messages']
            if found['copy'] and found['size'] == 70000:
                # several records in a list
                assert found['doorbells'] < found['wrs'], found


def two_hosts():
    """Client and server started apart: no probe, and so no ratio. Nothing
    pins them: perf gives way by itself, an engine only if it is told to."""
    with Case() as case:
        for words in (['write'], ['send', '--bw'], ['read', '-t', '8'],
                      ['rpc', '--wait', 'poll'],
                      ['rpc', '-q', '1', '--threads', '2'],
                      *([['stream', '--bw', '--no-copy']] if DEVICES.soft
                        else [])):
            server = case.start([tool(), 'perf', words[0], '-p', '0',
                                 '--json', *DEVICES.exposed],
                                name='server', device=DEVICES.server)
            port = server.expect(r'on port (\d+)$').group(1)
            client = case.start([tool(), 'perf', *words, '-s', '256', '-n',
                                 fewer(500), '-p', port, '--json', *QUICK,
                                 DEVICES.host], device=DEVICES.client)
            client.exits(0)
            server.exits(0)
            served = json.loads(server.text('out'))
            assert served['role'] == 'server', served
            assert (served['op'], served['port']) == (words[0], int(port))
            assert served['device'].startswith(DEVICES.server.split(':')[0])
            found = measured(client)
            assert found['size'] == 256
            assert found['cacheline_rtt_ns'] is None
            assert found['rtt_ratio'] is None


def fails(case, status, *words, says):
    process = run_self(case, *words, exits=status)
    lines = process.text('err').splitlines()
    assert process.text('out') == '', process.text('out')
    assert len(lines) == 1 and re.search(says, lines[0]), lines


def errors():
    with Case() as case:
        fails(case, 2, says='say what to measure')
        fails(case, 2, 'fly', says='no operation is called "fly"')
        fails(case, 2, 'write', '--self', '-s', 'big', says='--size cannot be')
        fails(case, 2, 'write', '--self', '-q', '0', says='from 1 to')
        fails(case, 2, 'write', '--self', '--nonsense', says='no option')
        fails(case, 2, 'write', '--self', '--lat', '-t', '4', says='--lat')
        fails(case, 2, 'write', '--self', '-t', '4', '-l', '8',
              says='--batch 8 is larger than .*is 4 here: give -t 8')
        fails(case, 2, 'write', '--self', 'host', says='--self')
        fails(case, 2, 'atomic', '--self', '-s', '16', says='8 bytes')
        fails(case, 2, 'write', '--self', '--wait', 'event', says='--wait')
        rpc_self = ['rpc', '--self']
        fails(case, 2, *rpc_self, '-q', '4', '--threads', '2',
              says='--qp is larger than --threads')
        fails(case, 2, *rpc_self, '-q', '1', '-t', '0', says='from 1 to')
        for option in '--flush', '--outside':
            fails(case, 2, *rpc_self, '-q', '1', '-t', '8', option,
                  says='leave out --qp')
        fails(case, 2, *rpc_self, '--threads', '8', '-q', '1', '-t', '8',
              '-l', '4', '--degree', '4', says='leave out --batch')
        fails(case, 2, *rpc_self, '--threads', '4', '-q', '2', '--degree', '3',
              says='--degree is larger than --threads by --qp')
        fails(case, 2, *rpc_self, '--no-combining', '--degree', '1',
              says='no --degree')
        fails(case, 2, *rpc_self, '--no-combining', '--wait', 'event',
              says='does not sleep')
        fails(case, 2, 'write', '--self', '--no-combining', says='for rpc')
        fails(case, 2, *rpc_self, '--return', 'fetch', '--wait', 'event',
              says='needs a client that polls.*--wait=poll')
        fails(case, 2, 'write', '--self', '--no-copy', says='for stream')
        fails(case, 2, 'stream', '--self', '--both-ways', says='with --bw')
        for given, name in (('-t', '--window'), ('-l', '--batch'),
                            ('-q', '--qp'), ('--threads', '--threads')):
            fails(case, 2, 'stream', '--self', given, '8',
                  says=f'leave out (-./)?{name}$')
        fails(case, 1, 'write', '-p', '1', DEVICES.host,
              says='cannot reach a server')
        fails(case, 1, 'write', '--self', '-d', 'nosuch', says='nosuch')
        fails(case, 1, 'write', '-d', 'nosuch', says='nosuch')
        fails(case, 1, 'write', '-d', 'nosuch', '-p', '1', DEVICES.host,
              says='nosuch')
        fails(case, 1, 'write', '--self', '-d', 'soft', '--require', 'verbs',
              says='verbs is required.* give -d verbs')
        ours = sorted(os.sched_getaffinity(0))
        fails(case, 1, 'write', '--self', '--cores', f'{ours[0]},1023',
              says=f'core 1023 is not ours to use: .* {ours[0]}\\b.*'
                   f'\\b{ours[-1]}$')
        with socket.create_server(('', 0)) as taken:
            fails(case, 1, 'write', '-p', taken.getsockname()[1],
                  says='Address already in use: give -p another')
        fails(case, 2, 'write', '--self', '--cores', '0', says='two cores')
        fails(case, 2, 'write', '--self', '--require=foo',
              says='--require takes soft or verbs, not "foo"')
        fails(case, 2, 'connect', '--via=', says='node, pool')
        for name, value, *words in (('STREAM_RING', '7', 'stream'),
                                    ('STREAM_MEM', '1K', 'stream'),
                                    ('STREAM_MEM', '40K', 'stream'),
                                    ('RETRY_TIMEOUT', 'soon', 'write'),
                                    ('RETRY_TIMEOUT', 'soon', 'stream'),
                                    ('WAIT', 'foo', 'rpc')):
            process = run_self(case, *words, '--self', '-n', '20', exits=1,
                               env={'SKEIN_' + name: value})
            assert 'SKEIN_' + name in process.text('err'), name
        # the other end has ended in order: it is not to blame
        full = case.start(['sh', '-c', 'exec "$0" perf write --self -n 9 '
                           '--slice 1ms > /dev/full', tool()],
                          device=DEVICES.client)
        full.exits(1, timeout=PATIENCE_S)
        said = full.text('err')
        assert 'perf: cannot write the result: No space left' in said, said


def wrong_pairing():
    with Case() as case:
        server = case.start([tool(), 'perf', 'read', '-p', '0',
                             *DEVICES.exposed],
                            name='server', device=DEVICES.server)
        port = server.expect(r'on port (\d+)$').group(1)
        client = case.start([tool(), 'perf', 'write', '-p', port,
                             DEVICES.host], device=DEVICES.client)
        client.exits(1)
        client.expect('asks for write, this server runs read')
        server.exits(1)


def waiting(case, op):
    """A server, and its port."""
    server = case.start([tool(), 'perf', op, '-p', '0', *DEVICES.exposed],
                        name='server', device=DEVICES.server)
    return server, server.expect(r'on port (\d+)$').group(1)


def served(case, server, port):
    """It has waited on: a client is served."""
    run_self(case, 'write', '-n', '50', '-p', port, *QUICK, DEVICES.host)
    server.exits(0)


def mistyped():
    """A client without its device leaves the server to wait."""
    with Case() as case:
        server, port = waiting(case, 'write')
        fails(case, 1, 'write', '-d', 'nosuch', '-p', port, DEVICES.host,
              says='nosuch')
        served(case, server, port)


def others_connect():
    """What is no client does not end the server's wait: a browser, and a
    program that looks whether the port is open."""
    with Case() as case:
        server, port = waiting(case, 'write')
        with socket.create_connection((DEVICES.host, port)) as other:
            other.sendall(b'GET / HTTP/1.0\r\n\r\n')
            try:
                assert other.recv(1) == b''
            except ConnectionResetError:
                pass  # it did not read the word
        socket.create_connection((DEVICES.host, port)).close()
        served(case, server, port)
        said = server.text('err')
        assert said.count('what connected is no skein perf') == 2, said


def others_listen():
    """The client says that a port is another program's."""
    with Case() as case:
        for op in 'write', 'rpc', 'stream':
            with socket.create_server(('127.0.0.1', 0)) as other:
                port = other.getsockname()[1]
                client = case.start([tool(), 'perf', op, '-p', port,
                                     '127.0.0.1'], device=DEVICES.client)
                with other.accept()[0] as conn:
                    # whole, so that closing does not reset the connection
                    conn.recv(1 << 16)
                    conn.sendall(b'HTTP/1.0 400 Bad Request\r\n\r\n<html>\n')
                client.exits(1)
                client.expect(f'^skein perf: what listens at 127.0.0.1 port '
                              f'{port} is no skein perf: .*-p')


def peer_killed():
    """The end that is left says so, and does not wait for ever."""
    with Case() as case:
        for victim in ('server', 'client'):
            server = case.start([tool(), 'perf', 'write', '-p', '0',
                                 *DEVICES.exposed],
                                name='server', device=DEVICES.server)
            port = server.expect(r'on port (\d+)$').group(1)
            client = case.start([tool(), 'perf', 'write', '-D', '60', '-p',
                                 port, '--json', DEVICES.host],
                                name='client', device=DEVICES.client)
            # connected: it holds more than its control socket
            case.until('both ends run',
                       lambda: client.mappings()[0] > 0
                       and server.mappings()[0] > 0)
            (server if victim == 'server' else client).kill()
            left = client if victim == 'server' else server
            left.exits(1)
            left.expect('^skein perf: ')
            if left is client:
                # Killed while they connect, or after: either is its end.
                error = json.loads(left.text('out'))['error']
                assert 'gone' in error or 'reset' in error, error
            else:
                assert left.text('out') == ''


def killed_in_a_wait():
    """The end that is left waits for a completion or for bytes: it names
    the one that is gone, not how its queue pair noticed."""
    with Case() as case:
        for op in ('send', 'read', 'stream'):
            for victim in ('server', 'client'):
                server = case.start([tool(), 'perf', op, '-p', '0', '--json',
                                     *DEVICES.exposed],
                                    name='server', device=DEVICES.server)
                port = server.expect(r'on port (\d+)$').group(1)
                client = case.start([tool(), 'perf', op, '-D', '60', '-p',
                                     port, '--json', DEVICES.host],
                                    name='client', device=DEVICES.client)
                case.until('both ends run',
                           lambda: client.mappings()[0] > 0
                           and server.mappings()[0] > 0)
                (server if victim == 'server' else client).kill()
                left = client if victim == 'server' else server
                left.exits(1)
                error = json.loads(left.text('out'))['error']
                assert error.startswith(f'the {victim} is gone'), error


def rpc_client_killed():
    """Calls wait in an engine: the server says what has become of its client."""
    with Case() as case:
        server = case.start([tool(), 'perf', 'rpc', '-p', '0', '--json',
                             *DEVICES.exposed],
                            name='server', device=DEVICES.server)
        port = server.expect(r'on port (\d+)$').group(1)
        client = case.start([tool(), 'perf', 'rpc', '-D', '60', '-p', port,
                             '--wait', 'event', DEVICES.host],
                            name='client', device=DEVICES.client)
        # soft: each has mapped the other's memory; else: it has a device
        least = 2 if DEVICES.client.startswith('soft') else 0
        case.until('both ends run', lambda: client.mappings()[0] > least
                   and server.mappings()[0] > least)
        client.kill()
        server.exits(1)
        error = json.loads(server.text('out'))['error']
        assert error.startswith('the client is gone'), error


def ended():
    """By SIGTERM: one object, that says so."""
    with Case() as case:
        server = case.start([tool(), 'perf', 'write', '-p', '0', '--json',
                             *DEVICES.exposed], device=DEVICES.server)
        server.expect(r'on port (\d+)$')
        server.stop(-signal.SIGTERM)
        assert json.loads(server.text('out'))['error'] == 'ended by SIGTERM'


def system_calls(log):
    """Of a run, without those of waiting for an end that has lost its core: it
    yields, and after each 16 yields looks at the control link (perf_spin_on())."""
    with open(log, encoding='utf-8') as lines:
        calls = {name: int(count) for count, name in
                 re.findall(r'^ *(\d+) (\w+)$', lines.read(), re.M)}
    yields = calls.pop('sched_yield', 0)
    return calls.pop('total') - yields - min(calls.get('poll', 0),
                                             yields // 16)


def no_system_call():
    """The operation makes none: 30,000 more add less than a tenth of a call
    each. What a busy machine adds, slices and waiting, does not count."""
    if not DEVICES.soft:
        raise LeftOut('a kernel device makes system calls')
    if MODE.harsh:
        raise LeftOut('in harsh mode a thread of its own, which sleeps, '
                      'executes what is late')
    if 'ASAN_OPTIONS' in os.environ or 'TSAN_OPTIONS' in os.environ:
        raise LeftOut('sanitizers make system calls, and cannot be traced')
    try:
        subprocess.run(['strace', '-c', '-o', '/dev/null', 'true'], check=True,
                       capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise LeftOut('strace is missing or may not trace here') from None
    for words in (['write'], ['read', '-t', '16'],
                  ['write', '--bw', '-s', '64K', '-t', '4']):
        with Case() as case:
            calls = {}
            for count in (2000, 32000):
                log = f'{case.folder}/strace'
                process = case.start(
                    ['strace', '-f', '-c', '-U', 'calls,name', '-o', log,
                     tool(), 'perf', *words, '--self', '-n', count, '--json',
                     '--slice', '5ms'], device='soft')
                process.exits(0, timeout=PATIENCE_S)
                calls[count] = system_calls(log)
                os.unlink(log)
            assert calls[32000] - calls[2000] < 3000, calls


if MODE.harsh and 'TSAN_OPTIONS' in os.environ:
    skip('a buffer is used again when the other process has answered: TSan '
         'does not see the order that another process makes')
run_cases(link, latency, throughput, stream, rpc, rpc_fetched, calibrate,
          calibrate_file, rpc_shared, rpc_together,
          rpc_spin_lock, rpc_degree, rpc_events, threads, all_sizes,
          beside_memcpy, two_hosts, errors, wrong_pairing, mistyped,
          others_connect, others_listen, peer_killed,
          killed_in_a_wait, rpc_client_killed, ended, no_system_call)
