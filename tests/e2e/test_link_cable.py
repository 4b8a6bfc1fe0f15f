# SPDX-License-Identifier: MIT
"""A cable of the link between hosts is out for a while: two network namespaces,
and a third one with a switch between them, whose port goes down. One end loses
its carrier then, the other one hears nothing. Calls, a copy and a stream, each by
both carriers, go on as TCP would; and for an end that is killed nobody waits.

SKEIN_TEST_ROUNDS: the long outage, too."""

import os
import re
import shutil
import subprocess
import time

from harness import (DEVICES, Case, Failure, built, run_cases, skip, tool,
                     whole)
from namespaces import enter
from peers import COUNTS, client

HERE, THERE = '10.80.0.1', '10.80.0.2'
SECONDS = [1, 3] + ([10] if whole() else [])
# TCP tries again after up to twice the outage; and a busy machine.
PATIENCE_S = 60
# Until the cable is pulled the server's port is slow: so copies last.
SLOW = ['tbf', 'rate', '40mbit', 'burst', '100k', 'latency', '50ms']
SIZE, BEGUN = 16_000_000, 200_000
LINES = b'a line\n' * 1000
here = there = switch = None


def join():
    made = subprocess.run(
        [*switch.inside, 'ip', 'link', 'add', 'name', 'sw', 'type', 'bridge'],
        check=False)
    if made.returncode:
        skip('no bridge')
    switch.ip('link', 'set', 'sw', 'up')
    for space, name, address in ((here, 'here', HERE), (there, 'there', THERE)):
        space.ip('link', 'add', 'name', name, 'type', 'veth', 'peer', 'name',
                 'to-' + name, 'netns', switch.pid)
        space.ip('addr', 'add', address + '/24', 'dev', name)
        switch.ip('link', 'set', 'to-' + name, 'master', 'sw', 'up')
        space.ip('link', 'set', name, 'up')
    if port('add', SLOW):
        skip('no traffic control')
    port('del', [])


def port(change, words):
    return subprocess.run([*switch.inside, 'tc', 'qdisc', change, 'dev',
                           'to-there', 'root', *words], check=False).returncode


def cable(end, state):
    switch.ip('link', 'set', 'to-' + end, state)


class Calls:
    def __init__(self, case, env):
        server = case.start([*there.inside, built('tests/e2e/peer'), 'serve',
                             THERE + ':0'], device=DEVICES.server, env=env)
        address = server.expect(r'^listening on (\S+)$').group(1)
        self.client = client(case, address, calls=0, env=env)
        self.ends = [self.client, server]

    def begins(self):
        self.client.expect('^running$')

    def goes_on(self):
        """Those that are under way are answered, or it does not end so."""
        self.client.stop(timeout=PATIENCE_S)
        done, *bad = map(int, COUNTS.search(
            self.client.text('out').split('\n')[-2]).groups())
        if not done or any(bad) or 'broken' in self.client.text('out'):
            raise Failure(self.client.text())
        self.ends[1].stop()


class Copy:
    def __init__(self, case, env):
        self.case, link = case, env['SKEIN_LINK']
        self.source = os.path.join(case.folder, 'file-' + link)
        self.target = os.path.join(case.folder, 'target-' + link)
        os.mkdir(self.target)
        with open(self.source, 'wb') as file:
            file.write(os.urandom(SIZE))
        server = case.start([*there.inside, tool(), 'cp', '--serve',
                             self.target, '--port', '0', '--insecure',
                             '--once'], device=DEVICES.server, env=env)
        port = server.expect(r'listening on \S+:(\d+),').group(1)
        self.client = case.start([tool(), 'cp', self.source,
                                  f'{THERE}:{port}'], device=DEVICES.client,
                                 env=env)
        self.ends = [self.client, server]

    def begins(self):
        self.case.until('a part of the file', lambda: self.written() >= BEGUN)

    def written(self):
        with open(f'/proc/{self.ends[1].pid}/io', encoding='ascii') as file:
            return int(re.search(r'^wchar: (\d+)$', file.read(), re.M)[1])

    def goes_on(self):
        for end in self.ends:
            end.exits(0, timeout=PATIENCE_S)
            # no new round, without a member that was taken for dead
            if end.text('err'):
                raise Failure(end.text('err'))
        name = os.path.join(self.target, os.path.basename(self.source))
        with open(name, 'rb') as got, open(self.source, 'rb') as sent:
            if got.read() != sent.read():
                raise Failure('the copy differs')
        shutil.rmtree(self.target)
        os.remove(self.source)


class Stream:
    def __init__(self, case, env):
        server = case.start([*there.inside, built('examples/08-stream-server'),
                             THERE + ':0'], device=DEVICES.server, env=env)
        address = server.expect(r'listening on (\S+)').group(1)
        self.client = case.start([built('examples/08-stream-client'), address],
                                 device=DEVICES.client, env=env,
                                 stdin=subprocess.PIPE)
        self.ends = [self.client, server]
        self.lines = 0

    def begins(self):
        self.write()

    def write(self):
        self.client.popen.stdin.write(LINES)
        self.client.popen.stdin.flush()
        self.lines += 1000

    def goes_on(self):
        self.write()
        self.client.popen.stdin.close()
        self.client.exits(0, timeout=PATIENCE_S)
        self.client.expect(f'^{self.lines} lines$')
        self.ends[1].stop()


def outage(seconds, end):
    port('add', SLOW)
    with Case() as case:
        # copies last, for they end
        work = [kind(case, {'SKEIN_LINK': link})
                for kind in (Calls, Stream, Copy) for link in ('tcp', 'udp')]
        for one in work:
            one.begins()
        if not all(one.client.running() for one in work):
            raise Failure('one has ended before the cable was pulled')
        cable(end, 'down')
        for one in work:
            if isinstance(one, Stream):
                one.write()
        time.sleep(seconds)  # so long it is out: no wait for anything
        port('del', [])
        cable(end, 'up')
        for one in work:
            one.goes_on()


def outages():
    for number, seconds in enumerate(SECONDS):
        outage(seconds, ('here', 'there')[number % 2])


def pooled():
    """Pooled calls wait for 1.3 s alone: nobody tells them of a death."""
    with Case() as case:
        env = {'SKEIN_LINK': 'udp'}
        meta = case.start([*there.inside, tool(), 'meta', '--insecure',
                           '--listen', f'{THERE}:0'], device=DEVICES.server,
                          env=env)
        env['SKEIN_META'] = meta.expect(
            r'^meta: listening on (\S+), ').group(1)
        env['SKEIN_POOLED'] = 'pool'
        calls = Calls(case, env)
        calls.begins()
        cable('there', 'down')
        time.sleep(0.2)  # so long it is out: no wait for anything
        cable('there', 'up')
        calls.goes_on()


def killed():
    """Nobody waits for the retries: its control link says that it has ended."""
    for link in 'tcp', 'udp':
        with Case() as case:
            calls = Calls(case, {'SKEIN_LINK': link})
            calls.begins()
            calls.ends[1].kill()
            calls.client.expect('^broken: .*the process has ended')
            calls.client.exits(None)


if __name__ == '__main__':
    here, there, switch = enter(3)
    join()
    run_cases(outages, pooled, killed)
