# SPDX-License-Identifier: MIT
"""The key-value server and YCSB's workloads, each in its own process: every
transport, several shards, and servers that die, stop or fill up."""

import json
import os
import sys

from harness import Case, DEVICES, Failure, MODE, run_cases, tool

# Harsh mode is of Skein's device: TCP knows nothing of it.
TRANSPORTS = ['skein'] if MODE.harsh else ['skein', 'tcp-spin', 'tcp-block']
if len(sys.argv) > 1:
    TRANSPORTS = sys.argv[1:]


def serve(case, transport, *options):
    tcp = [f'--tcp={transport[4:]}'] if transport != 'skein' else []
    server = case.start([tool(), 'kv', 'serve', '--listen', DEVICES.listen,
                         *DEVICES.exposed,
                         *tcp, *options], name='server',
                        device=DEVICES.server)
    server.address = server.expect(r'listening on (\S+) over').group(1)
    return server


def ycsb(case, server, transport, *options):
    return case.start([tool(), 'ycsb', '--server', server.address,
                       '--transport', transport, *options], name='client',
                      device=DEVICES.client)


def report(client):
    client.exits(0, timeout=200)
    return json.loads(client.text('out'))


def every_workload(transport, threads, clients, window, *options):
    with Case() as case:
        server = serve(case, transport, '--threads', threads, *options)
        got = report(ycsb(case, server, transport, '-w', 'a,b,c,d,e,f', '-n',
                          500, '-o', 600, '-t', clients, '-W', window,
                          '--json'))
        assert got['targets'][0]['shards'] == threads, got['targets']
        assert [r['workload'] for r in got['results']] == list('abcdef')
        for result in got['results']:
            assert result['ops'] == 600, result
            assert result['bad'] == 0, result
            assert result['latency']['all']['count'] == 600, result
            assert result['latency']['all']['p50_ns'] > 0, result
        reads = got['results'][2]
        assert reads['verified'] == 600, reads
        scans = got['results'][4]
        # lengths are uniform from 1 to 100: never fewer than a quarter of that
        assert scans['scanned'] > 13 * scans['latency']['scan']['count'], scans
        assert scans['verified'] == scans['scanned'], scans
        server.stop()
        inserted = sum(r['latency'].get('insert', {}).get('count', 0)
                       for r in got['results'])
        server.expect(rf'stopped: {500 + inserted} records, .* 0 refused')


def all_transports_serve_all_workloads():
    for transport in TRANSPORTS:
        every_workload(transport, 1, 1, 1)
        every_workload(transport, 2, 2, 8)


def one_client_loads_others_read():
    for transport in TRANSPORTS:
        with Case() as case:
            server = serve(case, transport, '--threads', 2)
            report(ycsb(case, server, transport, '-w', '', '-n', 1000,
                        '--json'))
            clients = [ycsb(case, server, transport, '-w', 'b,c', '-n', 1000,
                            '-o', 1000, '--no-load', '--seed', seed, '--json')
                       for seed in (1, 2, 3)]
            for client in clients:
                assert report(client)['results'][1]['verified'] == 1000
            server.stop()


def workers_serve_all_workloads():
    every_workload('skein', 1, 1, 1, '--workers', 1)
    every_workload('skein', 2, 2, 8, '--workers', 3)


def several_clients_and_workers():
    """Clients that read and change the same records: every value that
    one of them gets is whole, and the server counts what they did."""
    with Case() as case:
        server = serve(case, 'skein', '--threads', 2, '--workers', 4)
        report(ycsb(case, server, 'skein', '-w', '', '-n', 300, '--json'))
        clients = [ycsb(case, server, 'skein', '-w', workload, '-n', 300,
                        '-o', 500, '-t', 2, '-W', 4, '--no-load', '--seed',
                        seed, '--json')
                   for seed, workload in enumerate('aafb', start=1)]
        gets = 0
        for client in clients:
            result = report(client)['results'][0]
            assert (result['ops'], result['bad']) == (500, 0), result
            gets += result['verified']
        server.stop()
        told = server.expect(r'stopped: 300 records, (\d+) get, 300 put, '
                             r'(\d+) update, 0 delete, 0 scan, 0 refused')
        assert int(told.group(1)) == gets > 0, (told.group(0), gets)
        assert int(told.group(2)) > 0, told.group(0)


def waits_in_every_way():
    for wait in ('adaptive', 'poll', 'event'):
        with Case() as case:
            server = serve(case, 'skein', '--wait', wait)
            got = report(ycsb(case, server, 'skein', '-w', 'a', '-n', 100,
                              '-o', 300, '--wait', wait, '--json'))
            assert got['results'][0]['ops'] == 300
            server.stop()


def results_are_fetched():
    """Clients READ their results, always or as auto decides; those that sleep
    recall them. Every value that is read is right, over threads, workers and a
    window."""
    for mode, wait, options in (('fetch', 'poll', []),
                                ('fetch', 'poll', ['--workers', '2']),
                                ('fetch', 'adaptive', []),
                                ('auto', 'poll', []),
                                ('auto', 'adaptive', ['--workers', '2'])):
        with Case() as case:
            server = serve(case, 'skein', '--threads', 2, *options)
            got = report(ycsb(case, server, 'skein', '-w', 'a,e', '-n', 300,
                              '-o', 400, '-t', 2, '-W', 4, '--return', mode,
                              '--wait', wait, '--json'))
            for result in got['results']:
                assert (result['ops'], result['bad']) == (400, 0), result
            server.stop()


def missing_records_fail_the_run():
    with Case() as case:
        server = serve(case, TRANSPORTS[-1])
        client = ycsb(case, server, TRANSPORTS[-1], '--no-load', '-w', 'c')
        client.exits(1)
        client.expect('the record is missing')
        server.stop()


def wrong_values_fail_the_run():
    """What another field length wrote does not pass for ours."""
    with Case() as case:
        server = serve(case, TRANSPORTS[-1])
        ycsb(case, server, TRANSPORTS[-1], '-w', '', '--fields', 5,
             '--field-length', 200).exits(0)
        client = ycsb(case, server, TRANSPORTS[-1], '--no-load', '-w', 'c')
        client.exits(1)
        client.expect(r'the value of user\d+ is wrong')
        server.stop()


def a_full_server_says_so():
    for transport in TRANSPORTS:
        with Case() as case:
            server = serve(case, transport, '--memory', '100K')
            client = ycsb(case, server, transport, '-n', 1000)
            client.exits(1)
            client.expect('insert of user.*No space left on device .*--memory')
            # and goes on serving what it has
            ycsb(case, server, transport, '--no-load', '-n', 50, '-w', 'c',
                 '-o', 100).exits(0)
            server.stop()


def a_cache_evicts_and_counts():
    """More records than a cache has slots for: PUTs go on, and each
    read is a value that is right, or a miss."""
    for transport in TRANSPORTS[:1]:
        with Case() as case:
            server = serve(case, transport, '--store', 'cache', '--memory',
                           '4M', '--threads', 2)
            got = report(ycsb(case, server, transport, '--cache', '-n',
                              40000, '-w', 'b,f', '-o', 3000, '-t', 2, '-W',
                              8, '--distribution', 'uniform', '--json'))
            assert (got['field_count'], got['field_length']) == (1, 32), got
            for result in got['results']:
                assert (result['ops'], result['bad']) == (3000, 0), result
                # a read, or the first half of a read-modify-write
                assert 0 < result['misses'] < 3000, result
                assert result['verified'] > 500, result
            # no SCAN: not by default, and not if asked for
            got = report(ycsb(case, server, transport, '--cache', '--no-load',
                              '-n', 100, '-o', 10, '--json'))
            assert [r['workload'] for r in got['results']] == list('abc'), got
            refused = ycsb(case, server, transport, '--cache', '-w', 'a,e')
            refused.exits(2)
            refused.expect('e scans, and --store=cache has no SCAN')
            refused = ycsb(case, server, transport, '--no-load', '-n', 100,
                           '-w', 'e')
            refused.exits(1)
            refused.expect('scan of .* failed: Operation not supported '
                           '.*--store=cache has no SCAN')
            server.stop()
            told = server.expect(r'stopped: (\d+) records, .* 0 refused, '
                                 r'(\d+) evicted')
            assert int(told.group(1)) + int(told.group(2)) == 40000, \
                told.group(0)


def a_killed_server_is_an_error():
    for transport in TRANSPORTS:
        with Case() as case:
            server = serve(case, transport, '--threads', 2)
            client = ycsb(case, server, transport, '-w', 'a', '--time', '60s',
                          '-t', 2, '-W', 4, '--timeout', '5s')
            # in the middle of the work: a second client sees its records
            case.until('the client has loaded', lambda: loaded(
                case, server, transport))
            server.kill()
            client.exits(1)
            error = client.text('err')
            if 'failed:' not in error and 'no connection' not in error:
                raise Failure(f'no clear error: {error!r}')


def loaded(case, server, transport):
    probe = ycsb(case, server, transport, '--no-load', '-w', 'c', '-o', 1)
    return probe.exits(None) == 0


def nobody_there_is_an_error():
    for transport in TRANSPORTS:
        with Case() as case:
            server = serve(case, transport)
            server.stop()
            client = ycsb(case, server, transport)
            client.exits(1)
            client.expect('no connection to')


def stops_while_clients_work():
    """SIGTERM ends the server in order, and the client with an error."""
    for transport in TRANSPORTS:
        with Case() as case:
            server = serve(case, transport)
            client = ycsb(case, server, transport, '-w', 'a', '--time', '60s',
                          '--timeout', '5s')
            case.until('the client has loaded', lambda: loaded(
                case, server, transport))
            server.stop()
            client.exits(1)


def compares_transports():
    if len(TRANSPORTS) < 3:
        return
    with Case() as case:
        servers = [serve(case, transport) for transport in TRANSPORTS]
        client = ycsb(case, servers[0], TRANSPORTS[0], '--against',
                      ','.join(f'{transport}={server.address}'
                               for transport, server in
                               zip(TRANSPORTS[1:], servers[1:])),
                      '-w', 'a', '--time', '60ms', '--slice', '20ms', '--json')
        results = report(client)['results']
        assert [r['transport'] for r in results] == TRANSPORTS, results
        for result in results:
            assert result['rounds'] == 3 and result['ops'] > 0, result
            assert len(result['ratio_to']) == 2, result
        for server in servers:
            server.stop()


def idle_servers_sleep():
    """A server without clients takes no CPU, spinning kinds included."""
    for transport, options in [('skein', ['--wait', 'poll']),
                               ('tcp-spin', []), ('tcp-block', [])]:
        if transport not in TRANSPORTS:
            continue
        with Case() as case:
            server = serve(case, transport, *options)
            ycsb(case, server, transport, '-w', 'c', '-n', 100, '-o',
                 100).exits(0)
            case.until('all threads sleep', lambda: sleeps(server))
            server.stop()


def sleeps(server):
    """No thread runs, and none has got CPU time between two looks."""
    before = cpu_ticks(server)
    if any(state != 'S' for state in server.states()):
        return False
    for _ in range(20):
        if any(state != 'S' for state in server.states()):
            return False
    return cpu_ticks(server) == before


def cpu_ticks(server):
    fields = open(f'/proc/{server.pid}/stat', encoding='utf-8').read() \
        .rsplit(')', 1)[1].split()
    return int(fields[11]) + int(fields[12])


def at_a_rate():
    """An open loop takes as long as its rate says, and owns up to what it could
    not begin."""
    transport = TRANSPORTS[0]
    with Case() as case:
        server = serve(case, transport)
        got = report(ycsb(case, server, transport, '-w', 'f', '-n', 100,
                          '-o', 500, '--rate', 1000, '--arrival', 'even',
                          '-t', 2, '-W', 8, '--json'))
        assert (got['rate'], got['arrival']) == (1000, 'even'), got
        run = got['results'][0]
        assert (run['ops'], run['bad'], run['late']) == (500, 0, 0), run
        # the last of 500 is due 499 ms after the first
        assert run['seconds'] >= 0.498, run
        got = report(ycsb(case, server, transport, '--no-load', '-n', 100,
                          '-w', 'c', '--rate', 900000000, '--time', '200ms',
                          '-W', 4, '--json'))
        run = got['results'][0]
        # far more than anything does: most of it waits, and is charged for
        assert run['late'] > run['ops'] > 0, run
        assert run['latency']['all']['p50_ns'] > 10000000, run
        server.stop()


def wrong_command_lines():
    with Case() as case:
        for words in (['kv'], ['kv', 'sell'], ['kv', 'serve', 'x'],
                      ['kv', 'serve', '--pin', '999'],
                      ['kv', 'serve', '--workers', '65'],
                      ['kv', 'serve', '--workers', '-1'],
                      ['kv', 'serve', '--workers', 'many'],
                      ['kv', 'serve', '--workers', '2', '--tcp', 'spin'],
                      ['kv', 'serve', '--store', 'cache'],
                      ['kv', 'serve', '--store', 'cache', '--memory', '3M',
                       '--threads', '2'],
                      ['kv', 'serve', '--store', 'cache', '--memory', '3M',
                       '--workers', '2'],
                      ['ycsb'],
                      ['ycsb', '-s', 'x', '-w', 'z'],
                      ['ycsb', '-s', 'x', '--fields', '1024',
                       '--field-length', '1M']):
            process = case.start([tool(), *words])
            process.exits(2)
            assert len(process.text('err').splitlines()) == 1, \
                process.text('err')
        # the cause, and not what follows from it
        for words, says in (
                (['kv', 'serve', '-l', '127.0.0.1:99999'], 'is no HOST:PORT'),
                (['kv', 'serve', '-l', '::1:7999'], 'is no HOST:PORT'),
                (['kv', 'serve', '-l', '127.0.0.1:+79'], 'is no HOST:PORT'),
                (['kv', 'serve', '-l', 'a' * 70 + ':0'], 'cannot find host a'),
                (['ycsb', '-s', 'x', '--transport', 'tcp-spin', '--return',
                  'fetch'], '--return is for'),
                (['ycsb', '-s', 'x', '--return=fetch', '--wait=event'],
                 'needs a client that polls.*--wait=poll')):
            process = case.start([tool(), *words])
            process.exits(2)
            process.expect(says)
            assert len(process.text('err').splitlines()) == 1, \
                process.text('err')
        for words in (['kv', '--help'], ['kv', 'serve', '--help'],
                      ['ycsb', '--help']):
            case.start([tool(), *words]).exits(0)


if __name__ == '__main__':
    os.environ.setdefault('SKEIN_LOG', 'warn')
    run_cases(wrong_command_lines,
              all_transports_serve_all_workloads,
              one_client_loads_others_read,
              at_a_rate,
              *([waits_in_every_way, results_are_fetched, workers_serve_all_workloads,
                 several_clients_and_workers]
                if 'skein' in TRANSPORTS else []),
              missing_records_fail_the_run,
              wrong_values_fail_the_run,
              a_full_server_says_so,
              a_cache_evicts_and_counts,
              a_killed_server_is_an_error,
              nobody_there_is_an_error,
              stops_while_clients_work,
              compares_transports,
              idle_servers_sleep)
