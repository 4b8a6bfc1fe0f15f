# SPDX-License-Identifier: MIT
"""`skein top`: two processes that call each other, one that is stopped, one that
is killed, pages that hold anything; as a table, JSON and Prometheus text."""

import json
import os
import resource
import pty
import re
import socket
import sys

from harness import BUILD, Case, DEVICES, Failure, MODE, Port, run_cases, \
    tool

LABELS = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(r'(\w+)\{(.*)\} (\d+)')
COUNTERS = {'connections_opened', 'connections_accepted', 'connections_broken',
            'garbage', 'handshakes_refused', 'handshakes_timed_out',
            'peers_dead', 'calls', 'calls_served', 'messages', 'message_bytes',
            'wakeups', 'stream_read_bytes', 'stream_written_bytes'}
GAUGES = {'contexts', 'opened_connections', 'accepted_connections',
          'udp_connections', 'tcp_connections', 'streams'}
LINK = {'sent', 'taken', 'retries', 'gaps', 'rnr_naks', 'dropped_behind_gap',
        'dropped_repeated', 'dropped_no_receive', 'dropped_refused',
        'dropped_strange', 'dropped_state', 'dropped_malformed',
        'dropped_icrc', 'dropped_no_qp', 'dropped_address', 'dropped_clear',
        'dropped_ud'}
RUN = {'stream_read_bytes', 'stream_written_bytes'}

# Writes pages of its own: a kind a line.
FAKE = """
import fcntl, os, struct, sys
ADD_SEALS, SHRINK = 1033, 2
def page(data, sealed=True, name='skein-counters'):
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if sealed:
        fcntl.fcntl(fd, ADD_SEALS, SHRINK)
def link(pid, rows):
    row = struct.pack('16s17Q', b'', *[2 ** 63 - 1] * 17)
    return struct.pack('<QIIII', 0x316b6e696c6b73, 4888, pid, rows, 0) + 32 * row
def whole(pid, magic=0x31746e756f636b73):
    return struct.pack('<QII16s96sQ19Q', magic, 288, pid, b'c' * 16,
                       b'soft (a"b\\\\\\x1b)', 2 ** 64 - 1, *[2 ** 63 - 1] * 19)
kind = sys.argv[1]
if kind == 'garbage':
    page(os.urandom(4096))
elif kind == 'short':
    page(whole(os.getpid())[:100])
elif kind == 'unsealed':
    page(whole(os.getpid()), False)
elif kind == 'child':
    page(whole(os.getppid()))
elif kind == 'begun':
    page(whole(os.getpid(), 0))
elif kind == 'short link':
    page(link(os.getpid(), 1)[:100], name='skein-link')
elif kind == 'long link':
    page(link(os.getpid(), 33), name='skein-link')
elif kind == 'link':
    page(link(os.getpid(), 32), name='skein-link')
else:
    page(whole(os.getpid()))
print('there', flush=True)
sys.stdin.read()
"""


def check(condition, what):
    if not condition:
        raise Failure(what)


def top(case, *args, status=0):
    process = case.start([tool(), 'top', *args], name='top')
    process.exits(status, timeout=60)
    return process


def shown_now(case, *args):
    shown = json.loads(top(case, '--json', '-i', '200ms', *args).text('out'))
    check(set(shown) == {'processes', 'link_peers'}, f'keys: {list(shown)}')
    return shown


def peers(case, *processes):
    """{address: the counters of these processes together}"""
    sums = {}
    for row in shown_now(case)['link_peers']:
        check(set(row) == LINK | {'pid', 'program', 'peer'}, f'{sorted(row)}')
        if row['pid'] in [process.pid for process in processes]:
            of = sums.setdefault(row['peer'], dict.fromkeys(LINK, 0))
            for name in LINK:
                of[name] += row[name]
    return sums


def rows(case, *args):
    """{(pid, device is "skein run"): row}"""
    shown = shown_now(case, *args)
    return {(row['pid'], row['device'] == 'skein run'): row
            for row in shown['processes']}


def row_of(case, process):
    return rows(case).get((process.pid, False))


def serve(case, path=None, env=None):
    server = case.start([path or tool(), 'kv', 'serve', '--listen',
                         DEVICES.listen, *DEVICES.exposed], name='server',
                        device=DEVICES.server, env=env)
    server.address = server.expect(r'listening on (\S+) over').group(1)
    return server


def talk(case, server, env=None):
    return case.start([tool(), 'ycsb', '--server', server.address, '-w', 'c',
                       '-n', 50, '--time', '10min'], name='client',
                      device=DEVICES.client, env=env)


def both_at_work(case, server, client):
    """Rows of both, once calls flow."""
    def seen():
        got = rows(case)
        its, mine = got.get((server.pid, False)), got.get((client.pid, False))
        return its and mine and (its['per_s']['calls_served'] or 0) > 0 and \
            (mine['per_s']['calls'] or 0) > 0 and (its, mine)
    return case.until('both at work', seen, timeout=60)


def live():
    """Rates of two processes; then one is stopped, then killed."""
    with Case() as case:
        server = serve(case)
        case.until('an idle server is shown', lambda: row_of(case, server))
        client = talk(case, server)
        its, mine = both_at_work(case, server, client)
        for row in its, mine:
            check(COUNTERS | GAUGES < set(row), f'keys: {sorted(row)}')
            check(set(row['per_s']) == COUNTERS, f'{row["per_s"]}')
            check(row['contexts'] == 1 and row['program'] == 'skein' and
                  row['uid'] == os.getuid() and
                  row['device'].startswith(DEVICES.server.split(':')[0]),
                  f'{row}')
            check(row['per_s']['messages'] > 0 and
                  row['per_s']['message_bytes'] > row['per_s']['messages'],
                  f'{row}')
            check(not row['connections_broken'] and not row['garbage'] and
                  not row['streams'], f'{row}')
        check((its['accepted_connections'], its['opened_connections'],
               its['calls']) == (1, 0, 0), f'{its}')
        check((mine['opened_connections'], mine['accepted_connections'],
               mine['calls_served']) == (1, 0, 0), f'{mine}')
        for row in its, mine:
            check(not row['udp_connections'] and not row['tcp_connections'],
                  f'{row}')
        server.pause()
        first, second = row_of(case, server), row_of(case, server)
        check(first['calls_served'] >= its['calls_served'] > 0 and
              second['calls_served'] == first['calls_served'] and
              second['per_s']['calls_served'] == 0 and
              second['accepted_connections'] == 1, f'stopped: {second}')
        check(rows(case, '--pid', server.pid).keys() == {(server.pid, False)},
              '--pid')
        table = top(case, '-i', '200ms').text('out')
        check(re.search(rf'^ *{server.pid} +{os.getuid()} +skein +1 ', table,
                        re.M), table)
        server.kill()
        check(not row_of(case, server), 'it is shown when it has ended')
        said = top(case, '--pid', server.pid, '--json', status=1)
        check(str(server.pid) in json.loads(said.text('out'))['error'],
              said.text())
        if DEVICES.soft:
            # The client sees the death and ends; until then it is lost.
            client.exits(None, timeout=60)


def link():
    """What carries connections between hosts, here made to by a setting."""
    for carrier in 'tcp', 'udp':
        with Case() as case:
            env = {'SKEIN_LINK': carrier}
            server = serve(case, env=env)
            client = talk(case, server, env=env)
            for row in both_at_work(case, server, client):
                check(row['tcp_connections'] == (carrier == 'tcp') and
                      row['udp_connections'] == (carrier == 'udp'), f'{row}')
                table = top(case, '-i', '200ms').text('out')
                check(re.search(rf'^ *{row["pid"]} .*\) +{carrier} ', table,
                                re.M), table)


def link_peers():
    """What goes to a peer, what comes from it, and what strangers send."""
    for carrier in 'tcp', 'udp':
        with Case() as case:
            # A stranger's packet goes to any process at a port.
            port = Port()
            env = {'SKEIN_LINK': carrier, 'SKEIN_LINK_PORT': str(port.number)}
            server = serve(case, env=env)
            client = talk(case, server, env=env)
            both_at_work(case, server, client)
            got = peers(case, server)
            # This host, by the address that others would use.
            check(None in got and len(got) == 2, f'{got}')
            address, its = next(kv for kv in got.items() if kv[0])
            check(its['sent'] and its['taken'], f'{its}')
            check(not got[None]['sent'], f'{got}')

            def more():
                now = peers(case, server)[address]
                check(all(now[name] >= its[name] for name in LINK),
                      f'{its}, then {now}')
                return now['sent'] > its['sent'] and now['taken'] > its['taken']
            case.until('more packets', more)
            if carrier == 'tcp':
                continue
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b'12345', ('127.0.0.1', port.number))
            case.until('a stranger is counted', lambda: peers(
                case, server, client)[None]['dropped_malformed'] == 1)
            table = top(case, '-i', '200ms').text('out')
            check(re.search(r'^ *PID +PROGRAM +PEER +SENT +TAKEN', table,
                            re.M) and
                  re.search(rf'^ *{server.pid} +skein +{re.escape(address)}'
                            r'( +\d+){6}$',
                            table, re.M), table)
            text = top(case, '--prometheus').text('out')
            check(re.search(rf'^skein_link_sent_total{{pid="{server.pid}",'
                            rf'program="skein",peer="{address}"}} [1-9]', text,
                            re.M), text)


def parsed(text):
    """Prometheus text: {(name, labels): value}, and the types."""
    types, helped, values, current = {}, set(), {}, None
    check(text.endswith('\n'), 'the last line has no end')
    for line in text.splitlines():
        words = line.split(' ', 3)
        if line.startswith('# HELP '):
            current = words[2]
            check(current not in helped and words[3], line)
            helped.add(current)
        elif line.startswith('# TYPE '):
            check(words[2] == current and current not in types and
                  words[3] in ('counter', 'gauge'), line)
            types[current] = words[3]
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            check(name == current and name in types, line)
            check(LABELS.sub('', labels) == ',,', line)
            found = LABELS.findall(labels)
            third = 'peer' if name.startswith('skein_link_') else 'device'
            check([key for key, _ in found] == ['pid', 'program', third], line)
            key = (name, *(re.sub(r'\\(.)', r'\1', text) for _, text in found))
            check(key not in values, f'twice: {line}')
            values[key] = int(value)
    return values, types


def prometheus():
    with Case() as case:
        odd = os.path.join(case.folder, 'a"b\\c')
        os.symlink(tool(), odd)
        server = serve(case, odd)
        client = talk(case, server)
        its, _ = both_at_work(case, server, client)
        os.unlink(odd)
        values, types = parsed(
            top(case, '--prometheus').text('out') + '\n')
        check(set(types) == {f'skein_{name}_total' for name in COUNTERS} |
              {f'skein_link_{name}_total' for name in LINK} |
              {f'skein_{name}' for name in GAUGES | {'run_tcp_connections'}},
              f'names: {sorted(types)}')
        for name, kind in types.items():
            check((kind == 'counter') == name.endswith('_total'), name)
        mine = ('a"b\\c', its['device'])
        pid = str(server.pid)
        check(values[('skein_calls_served_total', pid, *mine)] >=
              its['calls_served'] and
              values[('skein_accepted_connections', pid, *mine)] == 1,
              f'{values}')
        check(('skein_run_tcp_connections', pid, *mine) not in values,
              'no program under skein run')


def what_pages_say_is_checked():
    """Pages that no library of ours wrote: one line each, and no more harm."""
    with Case() as case:
        ends = {}
        for kind in ('garbage', 'short', 'unsealed', 'child', 'begun', 'whole',
                     'short link', 'long link', 'link'):
            ours, its = os.pipe()
            fake = case.start([sys.executable, '-c', FAKE, kind], name=kind,
                              stdin=ours)
            os.close(ours)
            fake.expect('there')
            ends[kind] = (fake, its)
        shown = top(case, '--json', '-i', '100ms')
        got = json.loads(shown.text('out'))
        links = [row['pid'] for row in got['link_peers']]
        got = {row['pid']: row for row in got['processes']}
        for kind, (fake, _) in ends.items():
            said = shown.text('err').count(f'process {fake.pid} (')
            check(said == (kind in ('garbage', 'short', 'unsealed',
                                    'short link', 'long link')),
                  f'{kind}: {shown.text("err")}')
            # Row 0, and 31 with the same address.
            check(links.count(fake.pid) == 2 * (kind == 'link'), f'{links}')
            check((fake.pid in got) == (kind == 'whole'), f'{kind}: {got}')
        whole = ends['whole'][0]
        row = got[whole.pid]
        check(row['device'] == 'soft (a"b\\?)' and
              row['calls'] == 2 ** 63 - 1 and row['per_s']['calls'] == 0,
              f'{row}')
        values, _ = parsed(top(case, '--prometheus').text('out') + '\n')
        check(('skein_calls_total', str(whole.pid), row['program'],
               row['device']) in values, f'{values}')
        for fake, its in ends.values():
            os.close(its)
            fake.exits(0)


def tables():
    """How many; on a terminal until it is ended; and what does not go
    together."""
    with Case() as case:
        server = serve(case)
        case.until('it is shown', lambda: row_of(case, server))
        text = top(case, '-i', '100ms', '-n', '3').text('out')
        check(len(re.findall(r'^ *PID +UID +PROGRAM ', text, re.M)) == 3 and
              '\x1b' not in text, text)
        for args in (('--json', '--prometheus'), ('--json', '-n', '2'),
                     ('-i', '1ms'), ('-n', '0'), ('--pid', '0')):
            top(case, *args, status=2)
        ours, its = pty.openpty()
        shown = case.start(['sh', '-c', f'exec "$0" top -i 100ms >{os.ttyname(its)}',
                            tool()], name='terminal')
        screen = b''
        while screen.count(b'\x1b[H\x1b[2J') < 3:
            screen += os.read(ours, 4096)
        check(str(server.pid).encode() in screen, str(screen))
        shown.signal(2)
        shown.exits(-2)
        os.close(ours)
        os.close(its)


def under_run():
    """Programs under skein run are rows of the same table."""
    from test_run_list import Ends
    with Case() as case:
        ends = Ends(case)
        client = ends.client()
        ends.promoted(client)
        for process in client, ends.server:
            row = rows(case)[(process.pid, True)]
            check(RUN | {'streams', 'run_tcp_connections', 'per_s'} < set(row)
                  and set(row['per_s']) == RUN, f'{row}')
            check((row['streams'], row['run_tcp_connections']) == (1, 0),
                  f'{row}')
        before = rows(case)[(client.pid, True)]
        check(before['stream_read_bytes'] > 0, f'{before}')
        ends.tell(client, 100)
        after = rows(case)[(client.pid, True)]
        for way in 'stream_read_bytes', 'stream_written_bytes':
            check(after[way] == before[way] + 400, f'{before} then {after}')
        values, _ = parsed(top(case, '--prometheus').text('out') + '\n')
        key = (str(client.pid), after['program'], 'skein run')
        check(values[('skein_stream_read_bytes_total', *key)] ==
              after['stream_read_bytes'] and
              ('skein_calls_total', *key) not in values, f'{values}')
        # What the server's connection did stays when it has ended.
        its = rows(case)[(ends.server.pid, True)]['stream_read_bytes']
        os.close(ends.told.pop(client))
        client.exits(0)

        def ended():
            row = rows(case)[(ends.server.pid, True)]
            check(row['stream_read_bytes'] == its, f'{its} bytes: {row}')
            return row['streams'] == 0
        case.until('the end of its stream', ended)
        ends.end()


def few_descriptors():
    """What cannot look at all does not say that there is nothing."""
    with Case() as case:
        for limit in 4, 5:
            for words in (['top'], ['top', '-p', str(os.getpid())],
                          ['run', '--list']):
                process = case.start([tool(), *words], limits=[
                    (resource.RLIMIT_NOFILE, limit)])
                process.exits(1)
                process.expect('Too many open files')


if __name__ == '__main__':
    CASES = [few_descriptors, live, prometheus, what_pages_say_is_checked, tables]
    if DEVICES.soft:
        CASES += [link, link_peers]
    # skein run is not made for harsh mode, nor built with a sanitizer.
    if not MODE.harsh and os.path.exists(os.path.join(
            BUILD, 'src', 'bind', 'socket', 'libskein-socket.so')):
        CASES.append(under_run)
    run_cases(*CASES)
