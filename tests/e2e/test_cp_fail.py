# SPDX-License-Identifier: MIT
"""skein cp when something fails: receivers that die, stop and fill up, a
sender that dies, a source that changes; what is left, and how --resume goes
on."""

import json
import os
import resource
import subprocess
import sys
import time

from cp import MIB, Receiver, content, copy, finish, read, receivers, report, \
    same_tree, send, targets, write
from harness import Case, run_cases


def full(case, group, small, what, why, size):
    name = os.path.join(case.folder, 'f')
    with open(name, 'wb') as file:
        file.truncate(size)
        file.seek(size - MIB)
        file.write(content(MIB))
    many = os.path.join(case.folder, 'many')
    os.mkdir(many)
    for number in range(200):
        write(os.path.join(many, str(number)), content(60000))
    got = copy(case, group + [small], *([many] if 'small' in what else []),
               name, status=1)
    assert [t['state'] for t in got['targets']] == \
        ['done', 'done', 'failed'], got
    assert what in got['targets'][2]['error'], got
    assert why in got['targets'][2]['error'], got
    # it was known before anything was sent
    assert got['rounds'] == 1, got
    for receiver in group:
        same_tree(name, receiver.path('f'))


def a_file_too_large():
    with Case() as case:
        group = receivers(case, 2)
        # what the device itself needs is smaller
        small = Receiver(case, 2,
                         limits=[(resource.RLIMIT_FSIZE, 100 * MIB)])
        full(case, group, small, 'making room for f', 'File too large',
             110 * MIB)
        assert small.names() == [], small.names()
        finish(case, group, [small])


def a_full_disk():
    """In a mount name space of its own, with a small tmpfs."""
    if subprocess.run(['unshare', '-m', 'true'], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        print('not done here: unshare -m is not permitted')
        return
    for room, what, why in [
            ('512k', 'making room for f', 'No space left on device'),
            ('4m', 'making room for small files', '12288000 bytes are')]:
        with Case() as case:
            group = receivers(case, 2)
            small = Receiver(case, 2, mount=f'size={room}')
            full(case, group, small, what, why, 8 * MIB)
            small.process.expect('a copy failed: making room for')
            finish(case, group, [small])


def slow_copy(case, group, name, *words):
    """A copy that takes longer than the test."""
    return send(case, '--json', '--limit-rate', 4 * MIB, '--block-size', '64K',
                *words, name, targets(group))


def staged(receiver):
    """The numbers of the blocks that the receiver's state file claims."""
    for name in receiver.names():
        if name.startswith('.skein-cp.'):
            try:
                state = read(receiver.path(name, 'state'))[40:]
            except FileNotFoundError:
                return set()
            return {i for i in range(0, len(state), 8) if any(state[i:i + 8])}
    return set()


def one_receiver_dies():
    with Case() as case:
        group = receivers(case)
        victim = group[1]
        name = os.path.join(case.folder, 'f')
        write(name, content(8 * MIB))
        sender = slow_copy(case, group, name)
        case.until('the victim has blocks', lambda: len(staged(victim)) > 5)
        victim.process.kill()
        got = report(sender, 1)
        assert [t['state'] for t in got['targets']] == \
            ['done', 'failed', 'done'], got
        for receiver in (group[0], group[2]):
            same_tree(name, receiver.path('f'))
            assert receiver.names() == ['f'], receiver.names()
        assert victim.names()[0].startswith('.skein-cp.')
        assert 'f' not in victim.names()
        # it comes back, and gets the rest alone
        there = len(staged(victim))
        again = Receiver(case, 1)
        group[1] = again
        got = copy(case, group, '--resume', '--verify', '--block-size', '64K',
                   name)
        assert got['rounds'] == 1, got
        assert 0 < got['sent_blocks'] <= 128 - there + 1, (got, there)
        assert (got['sent_blocks'] - 1) * got['block_size'] < \
            got['sent_bytes'] <= got['sent_blocks'] * got['block_size'], got
        for receiver in group:
            same_tree(name, receiver.path('f'))
            assert receiver.names() == ['f'], receiver.names()
        finish(case, group)


def one_receiver_stops():
    with Case() as case:
        group = receivers(case)
        victim = group[2]
        name = os.path.join(case.folder, 'f')
        write(name, content(8 * MIB))
        sender = slow_copy(case, group, name, '--patience', '1500ms')
        case.until('the victim has blocks', lambda: len(staged(victim)) > 5)
        victim.process.pause()
        got = report(sender, 1)
        assert [t['state'] for t in got['targets']] == \
            ['done', 'done', 'failed'], got
        assert [t['bytes'] == 8 * MIB for t in got['targets']] == \
            [True, True, False], got
        for receiver in group[:2]:
            same_tree(name, receiver.path('f'))
        victim.process.resume()
        victim.process.expect('a copy failed')
        assert 'f' not in victim.names()
        finish(case, group)


def one_receiver_is_a_hundred_times_slower():
    """It runs for a hundredth of the time: the others wait for it, nobody is
    given up, nothing is sent twice. On a busy machine it may not get the core
    in its turn: a turn lasts until it ran, or has nothing to do. So many turns
    at most, then it is left alone: a copy has 32 blocks."""
    with Case() as case:
        group = receivers(case)
        name = os.path.join(case.folder, 'f')
        write(name, content(8 * MIB))
        sender = send(case, '--json', '--block-size', '256K', name,
                      targets(group))
        slow = group[1].process
        turns = 0
        while sender.running() and turns < 100:
            slow.pause()
            time.sleep(0.099)  # how slow it is, no wait for anything
            ran = slow.ran_ns()
            slow.resume()
            time.sleep(0.001)
            case.until('the slow receiver to run', lambda: slow.ran_ns() != ran
                       or not set(slow.states()) - set('S')
                       or not sender.running())
            turns += 1
        got = report(sender)
        assert turns > 3, turns
        assert got['rounds'] == 1 and got['sent_blocks'] == 32, got
        for receiver in group:
            same_tree(name, receiver.path('f'))
            assert receiver.names() == ['f'], receiver.names()
        finish(case, group)


def the_sender_dies():
    with Case() as case:
        group = receivers(case)
        name = os.path.join(case.folder, 'f')
        write(name, content(8 * MIB))
        sender = slow_copy(case, group, name)
        case.until('all have some blocks',
                   lambda: all(len(staged(r)) > 5 for r in group))
        sender.kill()
        for receiver in group:
            receiver.process.expect('a copy failed: ', timeout=30)
            assert 'f' not in receiver.names()
        # Each has others.
        common = len(set.intersection(*(staged(r) for r in group)))
        got = copy(case, group, '--resume', '--block-size', '64K', name)
        assert got['sent_blocks'] <= 128 - common, (got, common)
        for receiver in group:
            same_tree(name, receiver.path('f'))
            assert receiver.names() == ['f'], receiver.names()
        finish(case, group)


def without_resume_what_is_left_goes():
    with Case() as case:
        group = receivers(case, 1)
        name = os.path.join(case.folder, 'f')
        write(name, content(8 * MIB))
        sender = slow_copy(case, group, name)
        case.until('some blocks', lambda: len(staged(group[0])) > 5)
        group[0].process.kill()
        sender.exits(1)
        assert staged(group[0])
        group = receivers(case, 1)
        other = os.path.join(case.folder, 'g')
        write(other, b'other')
        copy(case, group, other)
        assert group[0].names() == ['g'], group[0].names()
        finish(case, group)


def a_source_that_changes():
    with Case() as case:
        group = receivers(case, 2)
        name = os.path.join(case.folder, 'f')
        write(name, content(8 * MIB))
        sender = slow_copy(case, group, name)
        case.until('some blocks', lambda: len(staged(group[0])) > 5)
        with open(name, 'r+b') as file:
            file.truncate(MIB // 2)
        sender.exits(1)
        assert 'while it was copied' in sender.text('err')
        assert not json.loads(sender.text('out'))['ok']
        for receiver in group:
            receiver.process.expect('a copy failed')
            assert 'f' not in receiver.names()
        finish(case, group)


ALL = [a_file_too_large, a_full_disk, one_receiver_dies, one_receiver_stops,
       one_receiver_is_a_hundred_times_slower, the_sender_dies, without_resume_what_is_left_goes,
       a_source_that_changes]

if __name__ == '__main__':
    names = sys.argv[1:]
    run_cases(*[test for test in ALL if not names or test.__name__ in names])
