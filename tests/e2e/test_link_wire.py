# SPDX-License-Identifier: MIT
"""The link between hosts on a bad wire: a relay between TUN devices of network
namespaces (wire.c), from a seed. Each fault alone, and all at once; random
requests of both ends, each value verified (values.c); then calls and a copy.
And strangers: a third namespace sends packets in the name of a peer.

SKEIN_TEST_ROUNDS: seeds of each wire."""

import os
import random
import re
import shutil
import signal
import socket
import struct
import sys
import zlib

from harness import (DEVICES, Case, Failure, built, fewer, rounds,
                     run_cases, tool)
from namespaces import enter
from peers import COUNTS, client, serve

ADDRESSES = ['10.79.0.1', '10.79.0.2', '10.79.0.3']
HERE, THERE, STRANGE = ADDRESSES
NAMES = ['here', 'there', 'strange']
REQUESTS = 400
# 0.5 s, eight times that in all: a busy machine gives each process its turn. And
# 1 s, for TCP sends again by its own clock, each time later.
TIMEOUT = {'udp': 17, 'tcp': 18}
# of 1,000 packets; and what else the wire is
WIRES = {
    'lost': {'lost': 20},
    'twice': {'twice': 50, 'late-us': 5000},
    'late': {'late': 50, 'late-us': 2000},
    'flipped': {'flipped': 20},
    'short': {'short': 20},
    'marked': {'marked': 100},
    'cut': {'cut': 2, 'cut-ms': 40},
    'full': {'rate': 4_000_000, 'queue': 20_000, 'delay-us': 500},
}
ALL = {'lost': 5, 'twice': 10, 'late': 10, 'flipped': 5, 'short': 5,
       'marked': 10, 'cut': 1, 'cut-ms': 20, 'rate': 25_000_000,
       'queue': 100_000, 'delay-us': 200}
PATIENT = {'SKEIN_RETRY_TIMEOUT': '100ms'}
# TCP finds what is wrong by itself, and drops it.
TCP_SEES = {'lost', 'twice', 'late', 'cut', 'full'}
spaces = []


class Wire:
    """with Wire(case, seed, faults) as wire: ..; wire.counts"""

    def __init__(self, case, seed, faults):
        words = [word for name, value in faults.items()
                 for word in (f'--{name}', value)]
        self.process = case.start(
            [built('tests/e2e/wire'), '--seed', seed, *words,
             *(f'{name}:{space.pid}:{address}' for name, space, address in
               zip(NAMES, spaces, ADDRESSES))])
        self.counts = {}

    def __enter__(self):
        self.process.expect('^ready$')
        for name, space, address in zip(NAMES, spaces, ADDRESSES):
            space.ip('addr', 'add', address + '/24', 'dev', name)
            space.ip('link', 'set', name, 'up')
        return self

    def __exit__(self, *error):
        if error[0]:
            return False
        self.process.stop()
        for name in 'here', 'there':
            line = self.process.expect(f'^{name} ').string
            for kind, count in re.findall(r'(\w+)=(\d+)', line):
                self.counts[kind] = self.counts.get(kind, 0) + int(count)
        return False


def values(case, link, seed, between=None):
    """Runs both ends, for as long as between(QPN, QPN there) takes, if given."""
    env = {'SKEIN_LINK': link}
    server = case.start([*spaces[1].inside, built('tests/e2e/values'), 'serve',
                         THERE, TIMEOUT[link]], name='server', env=env)
    port = server.expect(r'^on port (\d+)$').group(1)
    process = case.start([built('tests/e2e/values'), THERE, port, seed,
                          0 if between else fewer(REQUESTS), TIMEOUT[link]],
                         name='client', env=env)
    if between:
        between(*(int(end.expect('^QP (0x.*)$').group(1), 0)
                  for end in (process, server)))
        process.signal(signal.SIGTERM)
    for end in process, server:
        end.exits(0, 60)
        end.expect('all values are right$')
    return process, server


def one(link, seed, faults, kinds):
    with Case() as case, Wire(case, seed, faults) as wire:
        values(case, link, seed)
    met = {kind for kind, count in wire.counts.items() if count}
    print(f'seed {seed} {link} {" ".join(sorted(kinds))}: {wire.counts}')
    if not kinds <= met:
        raise Failure(f'the wire had no packet {kinds - met}: {wire.counts}')


def alone():
    for seed in range(1, 1 + rounds(1)):
        for kind, faults in WIRES.items():
            one('udp', seed, faults, {kind})


def together():
    kinds = set(WIRES) - {'cut', 'full'}  # these may not come to pass
    for seed in range(1, 1 + rounds(1)):
        one('udp', seed, ALL, kinds)
        one('tcp', seed, ALL, TCP_SEES & kinds)


def programs():
    """What users run."""
    for link in 'udp', 'tcp':
        env = {**PATIENT, 'SKEIN_LINK': link}
        with Case() as case, Wire(case, 1, ALL):
            server = case.start(
                [*spaces[1].inside, built('tests/e2e/peer'), 'serve',
                 THERE + ':0'], name='server', device=DEVICES.server, env=env)
            server.address = server.expect(r'^listening on (\S+)$').group(1)
            caller = client(case, server.address, calls=fewer(200), env=env)
            found = COUNTS.search(
                caller.expect(COUNTS.pattern, timeout=60).string)
            if tuple(map(int, found.groups())) != (fewer(200), 0, 0, 0):
                raise Failure(found.group())
            caller.exits(0)
            server.stop()
    copy()


def copy():
    data = os.urandom(1_000_001)
    with Case() as case, Wire(case, 1, ALL):
        env = {**PATIENT, 'SKEIN_LINK': 'udp'}
        source = os.path.join(case.folder, 'file')
        target = os.path.join(case.folder, 'target')
        os.mkdir(target)
        with open(source, 'wb') as file:
            file.write(data)
        server = case.start([*spaces[1].inside, tool(), 'cp', '--serve',
                             target, '--insecure', '--once'],
                            device=DEVICES.server, env=env)
        server.expect('listening on')
        case.start([tool(), 'cp', source, THERE], device=DEVICES.client,
                   env=env).exits(0, 60)
        server.exits(0)
        with open(os.path.join(target, 'file'), 'rb') as file:
            if file.read() != data:
                raise Failure('the copy differs')
        shutil.rmtree(target)
        os.remove(source)


# Strangers.

PORT = 4791
RETH, ATOMIC = 16, 28
# opcode: bytes of headers behind the BTH
KINDS = {0x04: 0, 0x00: 0, 0x01: 0, 0x0a: RETH, 0x06: RETH, 0x0c: RETH,
         0x13: ATOMIC, 0x14: ATOMIC, 0x10: 4, 0x0d: 4, 0x11: 4, 0x12: 12,
         0x2a: RETH, 0x24: 0, 0x64: 8, 0x81: 0, 0xff: 0}
SYNDROMES = [0x1f, 0x20, 0x3f, 0x60, 0x61, 0x62, 0x63]


def packet(source, target, opcode, qpn, psn, rng):
    """With a right check value."""
    head = KINDS[opcode]
    body = bytearray(rng.randbytes(head))
    if opcode in (0x10, 0x0d, 0x11, 0x12):
        body[0] = rng.choice(SYNDROMES)
    if head == RETH:
        body[12:16] = struct.pack('!I', 64)
    payload = rng.randbytes(1024 if opcode in (0, 1, 6) else 64) \
        if opcode in (0, 1, 4, 6, 0x0a, 0x0d, 0x10, 0x24, 0x2a, 0x64) else \
        bytes(16) if opcode == 0x81 else b''
    bth = struct.pack('!BBHII', opcode, 0x40, 0xffff, qpn, 1 << 31 | psn)
    data = bth + body + payload
    udp = struct.pack('!HHHH', rng.randrange(0xc000, 0xffff), PORT,
                      8 + len(data) + 4, 0)
    ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + 8 + len(data) + 4, 1,
                     0x4000, 64, 17, 0, socket.inet_aton(source),
                     socket.inet_aton(target))
    masked = bytearray(ip + udp + data)
    for at in (1, 8, 10, 11, 26, 27, 32):
        masked[at] = 0xff
    check = zlib.crc32(b'\xff' * 8 + masked)
    return ip + udp + data + struct.pack('<I', check)


def forge(qpns):
    """In the third namespace: prints a line when enough is sent."""
    rng = random.Random(1)
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    for n in range(3000):
        side = n % 2
        target, peer = (HERE, THERE) if side else (THERE, HERE)
        # A guessed PSN of the window is believed, as by any NIC: not
        # these. From an address of our own no PSN helps.
        if rng.randrange(2):
            psn = rng.choice([rng.randrange(0x200000, 0x700000),
                              rng.randrange(0x900000, 0xe00000)])
            source = peer
        else:
            psn = (0xfffff0 + rng.randrange(8192)) & 0xffffff
            source = STRANGE
        raw.sendto(packet(source, target, rng.choice(list(KINDS)),
                          qpns[1 - side], psn, rng), (target, 0))
    for n in range(80):
        strange = socket.socket()
        strange.settimeout(1)
        try:
            strange.connect((HERE if n % 2 else THERE, PORT))
            strange.sendall(rng.choice([b'GET / HTTP/1.1\r\n\r\n',
                                        b'SKLT\1' + rng.randbytes(60),
                                        rng.randbytes(100)]))
        except OSError:
            pass  # nobody listens where the link is UDP
    print('forged', flush=True)


def strangers():
    """No byte is written, no QP breaks, nobody is answered for long."""
    for link in 'udp', 'tcp':
        with Case() as case, Wire(case, 1, {}):
            def attack(here_qpn, there_qpn, case=case):
                forger = case.start(
                    [*spaces[2].inside, sys.executable, '-B',
                     os.path.abspath(__file__), 'forge', here_qpn, there_qpn])
                forger.expect('^forged$', timeout=60)
                forger.exits(0)
            ends = values(case, link, 1, attack)
        for end in ends:
            text = end.text('err')
            for what in ('from a wrong address', 'for no QP'):
                if not int(re.search(what + r' (\d+)', text).group(1)):
                    raise Failure(f'{link}: no packet {what}: {text}')


if __name__ == '__main__':
    if sys.argv[1:2] == ['forge']:
        forge([int(word) for word in sys.argv[2:]])
        sys.exit(0)
    spaces = enter(3, 'tun')
    run_cases(alone, together, programs, strangers)
