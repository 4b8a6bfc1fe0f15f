# SPDX-License-Identifier: MIT
"""The harness itself: it must see every failure that the tests lean on."""

import contextlib
import io
import os
import resource
import signal
import sys

from harness import MODE, Case, Failure, LeftOut, run_case, run_cases

SHELL = '/bin/sh'


def fails(words, action):
    try:
        action()
    except Failure as failure:
        if words not in str(failure):
            raise Failure(f'{words!r} is not in {str(failure)!r}') \
                from None
        return
    raise Failure(f'did not fail: {words}')


def expects_lines_in_order():
    with Case() as case:
        child = case.start([SHELL, '-c', 'echo one; echo port 7 >&2; echo two;'
                            'exec cat'], stdin=open_pipe())
        assert child.expect(r'port (\d)').group(1) == '7'
        fails('deadline', lambda: child.expect('never', timeout=0.05))
        child.kill()
        fails('ended', lambda: child.expect('never'))


def expects_in_each_pipe():
    """Between two pipes there is no order: one is read before the other."""
    with Case() as case:
        ours, tell = os.pipe()
        child = case.start([SHELL, '-c', 'echo one; echo two; read on;'
                            'echo port 7 >&2'], stdin=ours)
        os.close(ours)
        case.until('two is read', lambda: 'two' in child.text('out'))
        os.close(tell)
        assert child.expect(r'port (\d)').group(1) == '7'
        child.expect('two')
        fails('ended', lambda: child.expect('one'))
        fails('ended', lambda: child.expect('port'))


def sees_statuses():
    with Case() as case:
        fails('ended with status 3',
              lambda: case.start([SHELL, '-c', 'exit 3']).exits(0))
        case.start([SHELL, '-c', 'exit 3']).exits(3)
        case.start([SHELL, '-c', 'kill -9 $$']).exits(-signal.SIGKILL)
        fails('killed by SIGKILL',
              lambda: case.start([SHELL, '-c', 'kill -9 $$']).exits(0))
        fails('still running', lambda: case.start(
            [SHELL, '-c', 'read line'], stdin=open_pipe()).exits(
                0, timeout=0.05))


def open_pipe():
    reader, _ = os.pipe()
    return reader


def quiet(action):
    """Runs it without the report that a failing Case prints."""
    keep, sys.stdout = sys.stdout, open(os.devnull, 'w', encoding='utf-8')
    try:
        action()
    finally:
        sys.stdout.close()
        sys.stdout = keep


def sees_what_is_left():
    def leaves_a_file():
        with Case() as case:
            case.start([SHELL, '-c', 'echo > $TMPDIR/mine']).exits(0)

    def leaves_a_process():
        with Case() as case:
            case.start([SHELL, '-c', 'setsid sh -c "echo $$; exec sleep 60" '
                        '>/dev/null 2>&1 &']).exits(0)

    fails('left behind: file mine', lambda: quiet(leaves_a_file))
    fails('left behind: process', lambda: quiet(leaves_a_process))


def kills_what_runs():
    with Case() as case:
        child = case.start([SHELL, '-c', 'echo on; exec sleep 60'])
        child.expect('on')
    assert not child.running()


def pauses():
    with Case() as case:
        child = case.start(['/usr/bin/env', 'cat'], stdin=open_pipe())
        child.pause()
        assert child.states() == ['T']
        child.resume()
        case.until('it runs', lambda: child.states() != ['T'])


def sets_limits():
    with Case() as case:
        child = case.start([SHELL, '-c', 'ulimit -n; echo $SKEIN_DEVICE'],
                           limits=[(resource.RLIMIT_NOFILE, 33)],
                           device='soft')
        child.expect('^33$')
        child.expect('^soft$')
        child.exits(0)


def sees_another_device():
    def says(line, device):
        with Case() as case:
            case.start([SHELL, '-c', f'echo "skein: info: device {line}"'],
                       device=device).exits(0)

    mode = f', harsh, seed {MODE.seed}' if MODE.harsh else ''
    says(f'soft (skein0{mode}), GID ::1: why', 'soft')
    says('verbs (rxe0), GID ::1: why', 'verbs:rxe0')
    for line, device in ((f'soft (skein0{mode}), GID ::1: why', 'verbs'),
                         ('verbs (rxe1), GID ::1: why', 'verbs:rxe0'),
                         ('soft (skein0, harsh, seed 77), GID ::1: why',
                          'soft')):
        fails('told to take', lambda: quiet(lambda: says(line, device)))


def leaves_out():
    def cannot():
        with Case():
            raise LeftOut('no NIC')

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run_case(cannot)
    assert said.getvalue() == 'left out: cannot: no NIC\n', said.getvalue()


run_cases(expects_lines_in_order, expects_in_each_pipe, sees_statuses,
          sees_what_is_left, kills_what_runs, pauses, sets_limits,
          sees_another_device, leaves_out)
