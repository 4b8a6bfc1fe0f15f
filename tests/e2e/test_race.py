#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A RACE table, its clients at once, and one of them killed in the middle: nobody
waits for the dead one, no value is wrong, every key can be written after it."""

import os
import random
import time

from harness import (Case, DEVICES, Failure, MODE, built, rounds, run_cases,
                     skip)

SEED = int(os.environ.get('SKEIN_TEST_SEED') or random.randrange(1 << 32))
KEYS = 80 if MODE.harsh else 1500
OPS = 150 if MODE.harsh else 3000


class Table:
    def __init__(self, case):
        self.case = case
        self.meta = case.start([built('tools/skein'), 'meta', '--listen',
                                DEVICES.listen], device=DEVICES.server)
        addr = self.meta.expect(r'^meta: listening on (\S+), ').group(1)
        self.env = {'SKEIN_META': addr}
        # two groups: a split each 30 keys or so
        self.server = self.start('serve', '--groups=2', '--memory=256M')
        self.name = self.server.expect(r'^race: table (\S+)$').group(1)

    def start(self, *args):
        return self.case.start([built('tools/skein'), 'race', *args],
                               device=DEVICES.server, env=self.env)

    def client(self, what='run', ops=OPS, table=None):
        return self.start(what, table or self.name, f'--keys={KEYS}',
                          *([f'--ops={ops}'] if what == 'run' else []))

    def end(self):
        self.server.stop()
        self.meta.stop()


def counts(client):
    client.exits(0, 60)
    m = client.expect(r'^race: (\d+) gets \((\d+) absent\), (\d+) inserts, '
                      r'(\d+) updates, (\d+) deletes, (\d+) wrong; '
                      r'(\d+) splits$')
    return [int(n) for n in m.groups()]


def check(table):
    gets, absent, inserts, updates, _, wrong, _ = counts(
        table.client('check'))
    if (gets, inserts, updates, wrong) != (2 * KEYS, absent, KEYS, 0):
        raise Failure(f'check: {gets} gets, {absent} absent, {inserts} '
                      f'inserts, {updates} updates, {wrong} wrong')


def clients_at_once():
    with Case() as case:
        table = Table(case)
        clients = [table.client() for _ in range(3)]
        got = [counts(c) for c in clients]
        if not sum(c[6] for c in got):
            raise Failure('no split')
        present = sum(c[2] - c[4] for c in got)
        # Each key is there as often as it was inserted and not deleted.
        probe = counts(table.client('check'))
        if KEYS - probe[1] != present or probe[5]:
            raise Failure(f'{KEYS - probe[1]} keys, not {present}')
        table.end()


def client_killed():
    choose = random.Random(SEED)
    with Case() as case:
        table = Table(case)
        for _ in range(rounds(10)):
            victim = table.client(ops=1 << 31)
            victim.expect('^race: running$')
            other = table.client()
            other.expect('^race: running$')
            time.sleep(choose.random() * 0.05)  # the moment, not a wait
            victim.kill()
            case.forget(victim)
            if counts(other)[5]:
                raise Failure('a wrong value')
        check(table)
        table.end()


def refused():
    with Case() as case:
        table = Table(case)
        node, region, addr = table.name.split('/')
        wrong = f'{int(addr, 16) + 64:x}'
        for name, why, status in (
                (f'{node}/{region}/{wrong}', 'no table', 1),
                (f'{node}/77/{addr}', 'memory is gone', 1),
                (node, 'NODE/ID/ADDRESS', 2)):
            client = table.client(table=name)
            client.expect(why)
            client.exits(status)
        for words in (('serve', '--ops=1'), ('run', table.name, '--groups=4'),
                      ('check', table.name, '--ops=1')):
            client = table.start(*words)
            client.expect('is no option here')
            client.exits(2)
        table.end()


if not DEVICES.soft:
    skip('no DC but on soft')
run_cases(clients_at_once, client_killed, refused)
