# SPDX-License-Identifier: MIT
"""skein cp: files of all kinds to receivers in processes of their own; what is
refused; keys; receivers through ssh."""

import json
import os
import random
import subprocess
import sys

from cp import MIB, RECEIVERS, content, copy, finish, read, receivers, \
    report, same_tree, send, targets, write
from harness import Case, DEVICES, MODE, run_cases, tool, whole


def files_of_all_sizes():
    with Case() as case:
        group = receivers(case)
        names = []
        for size in (0, 1, 4095, 65536, 65537, 3 * MIB + 7):
            names.append(os.path.join(case.folder, f'size{size}'))
            write(names[-1], content(size, size))
        got = copy(case, group, '--verify', '--sync', *names)
        assert got['ok'] and got['files'] == len(names), got
        assert [t['state'] for t in got['targets']] == ['done'] * RECEIVERS
        assert {t['bytes'] for t in got['targets']} == {got['data_bytes']}, got
        for receiver in group:
            assert len(receiver.names()) == len(names), receiver.names()
            for name in names:
                same_tree(name, receiver.path(os.path.basename(name)))
        for receiver in group:
            receiver.process.expect('a copy is complete')
        finish(case, group)


def every_algorithm():
    with Case() as case:
        group = receivers(case)
        name = os.path.join(case.folder, 'f')
        for number, algorithm in enumerate(
                ['pipeline', 'sequential', 'chain', 'tree', 'hybrid']):
            write(name, content(2 * MIB + 11, number))
            copy(case, group, '--algorithm', algorithm, '--block-size', '64K',
                 name)
            for receiver in group:
                same_tree(name, receiver.path('f'))
        finish(case, group)


def racks_of_a_file():
    with Case() as case:
        group = receivers(case)
        name = os.path.join(case.folder, 'f')
        racks = os.path.join(case.folder, 'racks')
        write(name, content(MIB + 3, 5))
        write(racks, b'# one rack, and one of another machine\n'
                     b'127.0.0.1\nn[1-4]\n')
        copy(case, group, '--algorithm', 'hybrid', '--racks', racks, name)
        for receiver in group:
            same_tree(name, receiver.path('f'))
        finish(case, group)


def a_sparse_file():
    with Case() as case:
        group = receivers(case)
        name = os.path.join(case.folder, 'sparse')
        with open(name, 'wb') as file:
            file.truncate(1 << 30)
            file.seek(700 * MIB + 5)
            file.write(content(MIB))
        got = copy(case, group, name)
        assert got['bytes'] == 1 << 30, got
        if got['data_bytes'] < 1 << 30:
            assert got['sent_bytes'] < 4 * MIB, got
        for receiver in group:
            stat = os.stat(receiver.path('sparse'))
            assert stat.st_size == 1 << 30
            if got['data_bytes'] < 1 << 30:
                assert stat.st_blocks * 512 < 4 * MIB, stat.st_blocks
            with open(receiver.path('sparse'), 'rb') as file:
                file.seek(700 * MIB)
                assert file.read(5) == bytes(5)
                assert file.read(MIB) == content(MIB)
        finish(case, group)


def many_small_files():
    with Case() as case:
        group = receivers(case)
        top = os.path.join(case.folder, 'tree')
        rng = random.Random(5)
        count = 20 if MODE.harsh else 100 if whole() else 40
        for d in range(count):
            folder = os.path.join(top, f'd{d % 10}', f'e{d}')
            os.makedirs(folder)
            for f in range(100):
                write(os.path.join(folder, f'f{f}'),
                      rng.randbytes(rng.randrange(300)))
        os.symlink('d1/e1/f1', os.path.join(top, 'link'))
        os.symlink('/nowhere', os.path.join(top, 'd2', 'broken'))
        os.chmod(os.path.join(top, 'd3'), 0o555)
        os.chmod(os.path.join(top, 'd4', 'e4', 'f4'), 0o751)
        os.utime(os.path.join(top, 'd5'), ns=(1, 123456789123456789))
        got = copy(case, group, top)
        assert got['files'] == 100 * count and got['links'] == 2, got
        # one stream: not a multicast for each file
        assert got['rounds'] == 1 and got['sent_blocks'] < 100, got
        for receiver in group:
            assert same_tree(top, receiver.path('tree')) == \
                13 + 101 * count
            assert receiver.names() == ['tree'], receiver.names()
        finish(case, group)


def standard_input():
    with Case() as case:
        group = receivers(case, 2)
        name = os.path.join(case.folder, 'input')
        write(name, content(MIB + 3))
        with open(name, 'rb') as stdin:
            sender = send(case, '--json', '--name', 'all.tar', '-',
                          targets(group), stdin=stdin)
        assert report(sender)['bytes'] == MIB + 3
        for receiver in group:
            assert read(receiver.path('all.tar')) == content(MIB + 3)
        finish(case, group)


def command_lines_that_make_no_sense():
    with Case() as case:
        name = os.path.join(case.folder, 'f')
        write(name, b'x')
        for words, text in [
                (['x'], 'wants FILE'),
                ([name, 'h[1-'], 'a range wants a number'),
                ([name, 'a,a'], 'named twice'),
                (['--block-size', '5000', name, 'a'], 'power of two'),
                (['--serve', case.folder, name], 'takes no files'),
                ([name, '--once', 'a'], "--serve's"),
                (['--racks', '/none', name, 'a'], "hybrid's"),
                (['--racks', '/none', '--algorithm', 'hybrid', name, 'a'],
                 '/none'),
                ([name, '--hosts', '/none'], '/none')]:
            sender = send(case, *words)
            sender.exits(2)
            assert text in sender.text('err'), (words, sender.text('err'))
        for words, text in [
                (['/none', 'a'], '/none: No such file'),
                ([name, name, 'a'], 'two operands would both be "f"'),
                (['/dev/null', 'a'], 'is neither a file')]:
            sender = send(case, *words)
            sender.exits(1)
            assert text in sender.text('err'), (words, sender.text('err'))
        finish(case)


def what_receivers_refuse():
    with Case() as case:
        group = receivers(case, 2)
        first = group[0]
        name = os.path.join(case.folder, 'f')
        write(name, content(1000))
        out = os.path.join(case.folder, 'out')
        os.mkdir(out)
        os.symlink(out, first.path('link'))
        for path, text in [
                ('/etc', 'does not lie below'),
                ('../out', 'does not lie below'),
                ('a/../../out', 'does not lie below'),
                ('link', 'a link is in the way'),
                ('link/x', 'a link is in the way')]:
            got = report(send(case, '--json', name,
                              f'{first.address}:{path},{group[1].address}'), 1)
            assert not got['ok']
            assert [t['state'] for t in got['targets']] == ['failed', 'done']
            assert text in got['targets'][0]['error'], got
        assert os.listdir(out) == [], os.listdir(out)
        assert first.names() == ['link'], first.names()
        # below it, by both ways to say it
        for path in ('a/b', first.path('c')):
            report(send(case, '--json', name, f'{first.address}:{path}'))
        same_tree(name, first.path('a', 'b', 'f'))
        same_tree(name, first.path('c', 'f'))
        finish(case, group)


def a_key():
    with Case() as case:
        key, other = (os.path.join(case.folder, n) for n in ('key', 'other'))
        name = os.path.join(case.folder, 'f')
        write(name, b'bytes')
        for path in (key, other):
            write(path, path.encode() + b'\n')
            os.chmod(path, 0o600)
        group = receivers(case, 1, '--key', key)
        copy(case, group, '--key', key, name)
        for words in ([], ['--key', other]):
            got = copy(case, group, *words, '--connect-timeout', '2s',
                       name + '', status=1)
            assert got['targets'][0]['state'] == 'failed', got
        os.chmod(key, 0o644)
        sender = send(case, '--key', key, name, targets(group))
        sender.exits(1)
        assert 'others may read' in sender.text('err')
        finish(case, group)


def safe_by_default():
    """Without a key or a word it serves this host, and says why not others."""
    with Case() as case:
        name = os.path.join(case.folder, 'f')
        write(name, content(1000))
        for words, says in [
                (['--listen', '0.0.0.0'], '--key FILE, or --insecure'),
                (['--listen', '::'], '--key FILE, or --insecure'),
                (['--listen', ''], '--key FILE, or --insecure'),
                (['--insecure', '--key', name], 'exclude each other'),
                (['--allow', '10.0.0.0/33'], 'no ADDRESS/BITS')]:
            bad = case.start([tool(), 'cp', '--serve', case.folder, '--port',
                              0, *words], device=DEVICES.server)
            bad.exits(2)
            assert says in bad.text('err'), bad.text('err')
        for words, host in [([], '127.0.0.1'), (['--insecure'], '')]:
            open_to = case.start([tool(), 'cp', '--serve', case.folder,
                                  '--port', 0, *words], device=DEVICES.server)
            at = open_to.expect(r'listening on (\S+):\d+,').group(1)
            assert (at == host) if host else at in ('0.0.0.0', '[::]'), at
            open_to.stop()
        for words, why in [(['--allow', '10.0.0.0/8'], '--allow'),
                           (['--max-size', '999'], '--max-size')]:
            group = receivers(case, 1, *words)
            got = copy(case, group, name, status=1)
            assert why in got['targets'][0]['error'], got
            finish_one(group)
        group = receivers(case, 1, '--allow', DEVICES.host, '--max-size',
                          '1000')
        copy(case, group, name)
        finish(case, group)


def finish_one(group):
    for receiver in group:
        receiver.process.stop()


def once_and_eof():
    with Case() as case:
        group = receivers(case, 1, '--once')
        name = os.path.join(case.folder, 'f')
        write(name, b'x')
        copy(case, group, name)
        group[0].process.exits(0)
        reading, writing = os.pipe()
        waiting = case.start([tool(), 'cp', '--serve', case.folder, '--port',
                              0, '--until-eof'], stdin=reading,
                             device=DEVICES.server)
        os.close(reading)
        waiting.expect('listening on')
        os.close(writing)
        waiting.exits(0)
        finish(case, group)


FAKE_SSH = '''#!/bin/sh
# ssh as far as a test needs it: -x, a host, and what a shell there runs
[ "$1" = -x ] && shift
echo "$1" >>"$(dirname "$0")/hosts"
shift
exec sh -c "$*"
'''


def through_ssh():
    with Case() as case:
        ssh = os.path.join(case.folder, 'ssh')
        write(ssh, FAKE_SSH.encode())
        os.chmod(ssh, 0o755)
        name = os.path.join(case.folder, 'f')
        write(name, content(MIB))
        dirs = [os.path.join(case.folder, n) for n in ('one', "t'wo")]
        for path in dirs:
            os.mkdir(path)
        host = DEVICES.host
        sender = send(case, '--json', '--ssh', '--ssh-command', f'{ssh} -x',
                      '--remote-skein', tool(), name,
                      f"me@{host}:{dirs[0]},me@{host}:{dirs[1]}")
        got = report(sender)
        assert len(got['targets']) == 2, got
        for path in dirs:
            same_tree(name, os.path.join(path, 'f'))
        assert read(os.path.join(case.folder, 'hosts')).decode().split() == \
            [f'me@{host}'] * 2
        # nothing is left of them, also when one cannot be started
        sender = send(case, '--ssh', '--ssh-command', f'{ssh} -x',
                      '--remote-skein', '/none', name, f'{host}:{dirs[0]}')
        sender.exits(1)
        assert 'started no receiver' in sender.text('err')
        finish(case)


ALL = [files_of_all_sizes, every_algorithm, racks_of_a_file, a_sparse_file,
       many_small_files,
       standard_input, command_lines_that_make_no_sense, what_receivers_refuse,
       a_key, safe_by_default, once_and_eof, through_ssh]

if __name__ == '__main__':
    names = sys.argv[1:]
    run_cases(*[test for test in ALL if not names or test.__name__ in names])
