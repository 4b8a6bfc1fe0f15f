# SPDX-License-Identifier: MIT
"""What the tests of skein cp share: senders, receivers, trees that must be the
same."""

import json
import os
import random
import subprocess

from harness import DEVICES, tool

MIB = 1 << 20
RECEIVERS = 3


def content(size, seed=1):
    return random.Random(seed).randbytes(size)


def write(path, data):
    with open(path, 'wb') as file:
        file.write(data)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


class Receiver:
    def __init__(self, case, number, *options, limits=None, mount=None):
        self.dir = os.path.join(case.folder, f'dst{number}')
        os.makedirs(self.dir, exist_ok=True)
        words = [] if not mount else \
            ['unshare', '-m', 'sh', '-c', f'mount -t tmpfs -o {mount} none '
             f'{self.dir} && exec "$@"', 'sh']
        self.process = case.start(
            [*words, tool(), 'cp', '--serve', self.dir, '--port', 0,
             '--listen', DEVICES.host,
             *([] if '--key' in options else DEVICES.exposed), *options],
            name=f'receiver {number}', device=DEVICES.server, limits=limits)
        match = self.process.expect(r'listening on (\S+), serving (\S+), dev')
        self.address = match.group(1)
        assert match.group(2) == os.path.realpath(self.dir)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def names(self):
        return sorted(os.listdir(self.dir))


def receivers(case, count=RECEIVERS, *options):
    return [Receiver(case, n, *options) for n in range(count)]


def targets(group):
    return ','.join(receiver.address for receiver in group)


def send(case, *words, stdin=subprocess.DEVNULL, env=None):
    # a busy machine is no failure, where that is not what is tested
    if '--patience' not in words:
        words = ('--patience', '60s', *words)
    return case.start([tool(), 'cp', *words], name='sender',
                      device=DEVICES.client, stdin=stdin, env=env)


def report(sender, status=0):
    sender.exits(status, timeout=200)
    return json.loads(sender.text('out'))


def copy(case, group, *words, status=0):
    return report(send(case, '--json', *words, targets(group)), status)


def finish(case, *groups):
    """Ends receivers in order and removes what tests have made."""
    for group in groups:
        for receiver in group:
            if receiver.process.running():
                receiver.process.stop()
    for name in os.listdir(case.folder):
        subprocess.run(['chmod', '-R', 'u+rwx', '--',
                        os.path.join(case.folder, name)], check=True)
        subprocess.run(['rm', '-rf', '--', os.path.join(case.folder, name)],
                       check=True)


def look(path):
    """What a copy keeps of a file or directory."""
    stat = os.lstat(path)
    if os.path.islink(path):
        return 'link', os.readlink(path), stat.st_mtime_ns
    kind = 'directory' if os.path.isdir(path) else 'file'
    return kind, stat.st_mode & 0o777, stat.st_mtime_ns


def same_tree(a, b):
    """Names, kinds, modes, times and bytes."""
    assert look(a) == look(b), (a, look(a), look(b))
    if os.path.islink(a):
        return 1
    if not os.path.isdir(a):
        assert read(a) == read(b), a
        return 1
    names = sorted(os.listdir(a))
    assert names == sorted(os.listdir(b)), (a, b)
    return 1 + sum(same_tree(os.path.join(a, name), os.path.join(b, name))
                   for name in names)
