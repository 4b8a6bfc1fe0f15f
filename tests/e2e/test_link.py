# SPDX-License-Identifier: MIT
"""The link between hosts: two network namespaces joined by a veth pair, made
without root (unshare -Urn); and the same packets on this host's own addresses
(SKEIN_LINK=udp). Each by datagrams, and over TCP."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import zlib

from harness import DEVICES, Case, Failure, built, run_cases, tool
from namespaces import enter
from peers import client, serve

HERE, THERE = '10.77.0.1', '10.77.0.2'
# A starved peer is not a dead one: the machine may be busy.
PATIENT = {'SKEIN_RETRY_TIMEOUT': '1s'}
# 50 operations of two ends that spin, on a busy machine.
PATIENCE_S = 200
UD = built('bench/ud/ud_rpc')
BULK = ['send', 'read']
OPS = ['write', 'send', 'read', 'atomic', 'rpc']
LISTEN, PORT = '0A', ':12B7'
ETH_P_ALL = 3
here = there = None


def join():
    here.ip('link', 'add', 'here', 'type', 'veth', 'peer', 'name', 'there',
            'netns', there.pid)
    for space, name, address in ((here, 'here', HERE),
                                 (there, 'there', THERE)):
        space.ip('addr', 'add', address + '/24', 'dev', name)
        space.ip('link', 'set', name, 'up')


def perf(case, op, host=THERE, env=None, far_env=None, size=None):
    env = {**PATIENT, **(env or {})}
    far = there.inside if host == THERE else []
    server = case.start([*far, tool(), 'perf', op, '--insecure'],
                        device=DEVICES.server,
                        env={**env, **(far_env or {})})
    server.expect(r'waiting for a client')
    client = case.start([tool(), 'perf', op, '-n', '50',
                         *(['-s', size] if size else []), host],
                        device=DEVICES.client, env=env)
    client.exits(0, timeout=PATIENCE_S)
    server.exits(0)
    return client.text('out')


def operations():
    for link in 'udp', 'tcp':
        for op in OPS:
            with Case() as case:
                perf(case, op, env={'SKEIN_LINK': link})
    for op in BULK:
        with Case() as case:
            perf(case, op, env={'SKEIN_LINK': 'udp'}, size='100k')


def same_host():
    for op in OPS:
        with Case() as case:
            perf(case, op, '127.0.0.1', {'SKEIN_LINK': 'udp'})
    with Case() as case:
        perf(case, 'rpc', '127.0.0.1', {'SKEIN_LINK': 'tcp'})


def another_port():
    """Where something else has the port, its name is said, and another goes."""
    for link, kind in (('udp', socket.SOCK_DGRAM), ('tcp', socket.SOCK_STREAM)):
        with Case() as case, socket.socket(socket.AF_INET, kind) as other:
            if link == 'tcp':
                # Connections of before may linger.
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(('', 4791))
            if link == 'tcp':
                other.listen()
            client = case.start([tool(), 'perf', 'write', '--self', '-n', '50'],
                                device=DEVICES.client,
                                env={**PATIENT, 'SKEIN_LINK': link})
            client.exits(1)
            client.expect(f'its {link.upper()} port .*set SKEIN_LINK_PORT')
            perf(case, 'write', '127.0.0.1',
                 {'SKEIN_LINK': link, 'SKEIN_LINK_PORT': '4792'})


def connections():
    """To the port, from either namespace: those that have ended linger a
    minute, longer than a seed of harsh mode may take."""
    rows = subprocess.run(['cat', '/proc/net/tcp'], capture_output=True,
                          text=True, check=True).stdout.splitlines()[1:]
    rows += subprocess.run([*there.inside, 'cat', '/proc/net/tcp'], text=True,
                           capture_output=True, check=True
                           ).stdout.splitlines()[1:]
    rows = [row.split()[1:4] for row in rows]
    return {(local, remote) for local, remote, state in rows
            if state != LISTEN and PORT in local + remote}


def vqps():
    """A pool's messages, and calls of pooled connections, by RC queue pairs. Over
    TCP: a pool's patience with a lost datagram is 0.3 s."""
    with Case() as case:
        env = {**PATIENT, 'SKEIN_LINK': 'auto'}
        meta = case.start([*there.inside, tool(), 'meta', '--insecure',
                           '--listen', f'{THERE}:0'], device=DEVICES.server,
                          env=env)
        env['SKEIN_META'] = meta.expect(
            r'^meta: listening on (\S+), ').group(1)
        server = case.start([*there.inside, built('examples/06-pool-server'),
                             env['SKEIN_META']], device=DEVICES.server,
                            env=env)
        node = server.expect(r'^server: node (\S+), port 1$').group(1)
        case.start([built('examples/06-pool-client'), node,
                    env['SKEIN_META']], device=DEVICES.client,
                   env=env).expect('^client: "hello back"$')
        env['SKEIN_POOLED'] = 'pool'
        server = case.start([*there.inside, built('examples/01-echo-server'),
                             f'{THERE}:0'], device=DEVICES.server, env=env)
        address = server.expect(r'listening on (\S+)').group(1)
        case.start([built('examples/01-echo-client'), address, 'goose'],
                   device=DEVICES.client, env=env
                   ).expect(f'^{THERE}:.* answers: goose$')


def unasked():
    """A node that was started without SKEIN_LINK hears no strangers of another
    host: it says so, and so does the client."""
    with Case() as case:
        meta = case.start([*there.inside, tool(), 'meta', '--insecure',
                           '--listen', f'{THERE}:0'], device=DEVICES.server)
        env = {'SKEIN_META': meta.expect(
            r'^meta: listening on (\S+), ').group(1)}
        at = os.path.join(case.folder, 'node')
        node = case.start([*there.inside, tool(), 'node', '--listen', at],
                          device=DEVICES.server, env=env)
        node.expect('^node: nodes of other hosts do not reach this one: '
                    'start it with SKEIN_LINK=auto')
        server = case.start([*there.inside, built('examples/06-pool-server')],
                            device=DEVICES.server,
                            env={**env, 'SKEIN_NODE': at})
        name = server.expect(r'^server: node (\S+), port 1$').group(1)
        asks = case.start([built('examples/06-pool-client'), name],
                          device=DEVICES.client, env=env)
        asks.expect('does not answer: .*started without SKEIN_LINK=auto')
        asks.exits(1)
        server.kill()
        node.stop()


def chosen():
    """auto takes datagrams where nobody listens, else a connection."""
    for link in 'udp', 'auto':
        before = connections()
        with Case() as case:
            said = perf(case, 'write', far_env={'SKEIN_LINK': link})
        made = connections() - before
        if bool(made) != (link == 'auto'):
            raise Failure(f'the server has {link}: connections {made}')
        if (', by tcp' in said, ', by udp' in said) != \
                (link == 'auto', link == 'udp'):
            raise Failure(f'the server has {link}: {said}')


def stopped():
    """Processes of other connections hold the shared port, and stand still."""
    env = {**PATIENT, 'SKEIN_LINK': 'udp'}
    with Case() as case:
        standing = []
        for _ in range(2):
            server = serve(case, env=env)
            caller = client(case, server.address, calls=0, env=env)
            caller.expect('^running$')
            standing += [caller, server]
        for process in standing:
            process.pause()
        perf(case, 'rpc', '127.0.0.1', {'SKEIN_LINK': 'udp'})
        for process in standing:
            process.resume()
        for process in standing:
            process.stop()


def killed():
    """kill -9 of either end of connections between two processes: the other
    one serves, or says what happened."""
    env = {**PATIENT, 'SKEIN_LINK': 'tcp'}
    with Case() as case:
        server = serve(case, env=env)
        victim = client(case, server.address, calls=0, env=env)
        victim.expect('^running$')
        victim.kill()
        server.expect('^ended')
        caller = client(case, server.address, env=env)
        caller.expect('^200 done, 0 wrong, 0 not sent, 0 unknown')
        caller.exits(0)
        victim = client(case, server.address, calls=0, env=env)
        victim.expect('^running$')
        server.kill()
        victim.exits(None)
        if not victim.text('err').strip():
            raise Failure('the client does not say that its server is gone')


def datagrams():
    """The server hears strangers, for SKEIN_LINK is set there."""
    for far, host, link in ((there.inside, THERE, 'auto'), ([], HERE, 'udp')):
        env = {'SKEIN_LINK': link}
        with Case() as case:
            server = case.start([*far, UD, '-p', 0], device=DEVICES.server,
                                env=env)
            port = server.expect(r'on port (\d+)$').group(1)
            case.start([UD, '-p', port, '-n', 200, '--threads', 1, '--check',
                        host], device=DEVICES.client,
                       env=env).exits(0, timeout=PATIENCE_S)
            server.exits(0)


def copy(env=PATIENT, data=None):
    data = data or os.urandom(3_000_001)
    with Case() as case:
        source = os.path.join(case.folder, 'file')
        target = os.path.join(case.folder, 'target')
        os.mkdir(target)
        with open(source, 'wb') as file:
            file.write(data)
        server = case.start([*there.inside, tool(), 'cp', '--serve', target,
                             '--insecure', '--once'], device=DEVICES.server,
                            env=env)
        server.expect('listening on')
        case.start([tool(), 'cp', source, THERE], device=DEVICES.client,
                   env=env).exits(0)
        server.exits(0)
        with open(os.path.join(target, 'file'), 'rb') as file:
            if file.read() != data:
                raise Failure('the copy differs')
        shutil.rmtree(target)
        os.remove(source)


class Listener(threading.Thread):
    """What passes the near end of the pair; a little may be missed."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                    socket.htons(ETH_P_ALL))
        self.socket.bind(('here', 0))
        self.socket.settimeout(0.5)
        self.frames, self.over = [], False
        self.start()

    def run(self):
        while not self.over:
            try:
                self.frames.append(self.socket.recv(1 << 17))
            except TimeoutError:
                continue

    def heard(self):
        self.over = True
        self.join()
        self.socket.close()
        return b''.join(self.frames)


def key_file(case, name, line):
    path = os.path.join(case.folder, name)
    with open(path, 'w', encoding='ascii',
              opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
        file.write(line + '\n')
    return path


def sealed():
    """With a key nothing of a file is to be seen on its way, and calls go; with
    another one, or none at one end, both ends say what to do."""
    mark = b'nobody else may read this line: '
    for link in 'auto', 'tcp':
        with Case() as case:
            key = key_file(case, 'key', 'a key')
            env = {**PATIENT, 'SKEIN_LINK': link, 'SKEIN_LINK_KEY': key}
            listener = Listener()
            copy(env, mark * 3_000)
            heard = listener.heard()
            if len(heard) < 10_000 or mark in heard:
                raise Failure(f'{len(heard)} bytes passed, readable: '
                              f'{mark in heard}')
            perf(case, 'rpc', env=env)
            os.remove(key)
    # it would be seen
    listener = Listener()
    copy({**PATIENT, 'SKEIN_LINK': 'tcp'}, mark * 3_000)
    if mark not in listener.heard():
        raise Failure('nothing is to be seen of a clear copy')
    for theirs, said_here, said_there in (
            ('b key', 'has another key', 'has another key'),
            (None, 'does not seal its packets: set SKEIN_LINK_KEY there',
             'takes sealed packets alone: set SKEIN_LINK_KEY here')):
        with Case() as case:
            key = key_file(case, 'key', 'a key')
            keys = [key] + ([key_file(case, 'other', theirs)] if theirs
                            else [])
            server = case.start([*there.inside, tool(), 'perf', 'write',
                                 '--insecure'], device=DEVICES.server,
                                env={'SKEIN_LINK_KEY': keys[1]} if theirs
                                else {})
            server.expect('waiting for a client')
            client = case.start([tool(), 'perf', 'write', '-n', '50', THERE],
                                device=DEVICES.client,
                                env={'SKEIN_LINK_KEY': key})
            client.expect(f'peer at {THERE} {said_here}')
            # nor by datagrams
            client.expect('gives up by TCP')
            server.expect(f'peer at {HERE} {said_there}')
            client.signal(signal.SIGKILL)
            client.exits(None)
            server.exits(1)
            for path in keys:
                os.remove(path)


def refused():
    """Either end has no link: both say so."""
    for op, *links in (('write', 'off', 'auto'), ('write', 'auto', 'off'),
                       ('rpc', 'off', 'auto'), ('rpc', 'auto', 'off'),
                       ('stream', 'auto', 'off')):
        with Case() as case:
            server = case.start([*there.inside, tool(), 'perf', op, '--insecure'],
                                device=DEVICES.server,
                                env={'SKEIN_LINK': links[0]})
            server.expect('waiting for a client')
            client = case.start([tool(), 'perf', op, '-n', '50', THERE],
                                device=DEVICES.client,
                                env={'SKEIN_LINK': links[1]})
            for end in server, client:
                end.exits(1)
                end.expect('^skein perf: .*SKEIN_LINK=off')
    # calls: the log of the library says it, too
    with Case() as case:
        server = case.start([*there.inside, tool(), 'kv', 'serve', '--listen',
                             f'{THERE}:0', '--insecure'],
                            device=DEVICES.server)
        address = server.expect(r'listening on (\S+)').group(1)
        client = case.start([tool(), 'ycsb', '--server', address],
                            device=DEVICES.client,
                            env={'SKEIN_LINK': 'off'})
        client.exits(1)
        client.expect('SKEIN_LINK=off there')
        server.expect('handshake failed with .*SKEIN_LINK=off there')
        server.stop()


def check_values(pcap):
    """Of each packet of a capture; the identifications that there were."""
    at, ids = 24, set()
    while at < len(pcap):
        length, = struct.unpack_from('=8xI', pcap, at)
        packet = bytearray(pcap[at + 16 + 14:at + 16 + length])
        at += 16 + length
        ids.add(struct.unpack_from('!H', packet, 4)[0])
        for masked in (1, 8, 10, 11, 26, 27, 32):
            packet[masked] = 0xff
        want = zlib.crc32(b'\xff' * 8 + packet[:-4])
        if want != struct.unpack('<I', packet[-4:])[0]:
            raise Failure(f'wrong ICRC: {packet.hex()}')
    return ids


def captured():
    """tshark decodes what passes: all of it, none of it malformed; and check
    values are those of the headers on the wire, identification included, as a
    NIC would check them."""
    if not shutil.which('tshark'):
        print('captured: skipped, tshark is not installed')
        return
    with Case() as case:
        path = os.path.join(case.folder, 'capture')
        # The kernel cuts runs of packets before they pass, as for a NIC that
        # cannot.
        for space, name in ((here, 'here'), (there, 'there')):
            space.ip('link', 'set', name, 'gso_max_segs', '1')
        tshark = case.start(['tshark', '-i', 'here', '-F', 'pcap', '-w', path,
                             '-f', 'udp port 4791'])
        tshark.expect('Capturing on')
        # It says so before it does: packets of an operation prove it.
        for op in OPS:
            perf(case, op, env={'SKEIN_LINK': 'udp'})
        perf(case, 'write', env={'SKEIN_LINK': 'udp'}, size='100k')
        tshark.popen.send_signal(signal.SIGINT)
        tshark.exits(0)
        got = subprocess.run(
            ['tshark', '-r', path, '-T', 'fields', '-e',
             'infiniband.bth.opcode', '-e', '_ws.malformed'],
            capture_output=True, text=True, check=True).stdout
        with open(path, 'rb') as file:
            ids = check_values(file.read())
        os.remove(path)
    # runs, or their end, had more than one packet
    if not {0, 1, 2} <= ids:
        raise Failure(f'identifications: {sorted(ids)}')
    opcodes = set()
    for line in got.splitlines():
        opcode, _, malformed = line.partition('\t')
        # tshark guesses what the payload may be, and finds that malformed.
        if '[Malformed Packet: IB]' in malformed or not opcode:
            raise Failure(f'not decoded: {line!r}')
        opcodes.add(int(opcode))
    # SEND only, WRITE only, READ and its answer, ACK, an atomic and its answer
    if not {4, 10, 12, 16, 17, 18} <= opcodes:
        raise Failure(f'opcodes captured: {sorted(opcodes)}')


if __name__ == '__main__':
    here, there = enter(2)
    join()
    run_cases(chosen, vqps, unasked, operations, same_host, another_port,
              stopped, killed, datagrams, copy, sealed, refused, captured)
