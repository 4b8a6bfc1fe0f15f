#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`skein run`: random lives of connections. Programs that close and reuse numbers,
end their connections in every way, connect again, fork, spawn, exec, are cancelled
and interrupted, say the same on plain TCP and under skein run (run_lives.c), in
each way to wait.

SKEIN_TEST_ROUNDS: half as many as programs (25 programs). SKEIN_TEST_SEED: the
first one (1).
"""

import json
import os
import signal
import subprocess
import sys

from harness import BUILD, SCALE, Case, Failure, run_cases, tool
from test_run_turns import reaped

ROUNDS = 2 * int(os.environ.get('SKEIN_TEST_ROUNDS') or 0) or 25
FIRST = int(os.environ.get('SKEIN_TEST_SEED') or 1)
LIVES = os.path.join(BUILD, 'tests', 'e2e', 'run_lives')
MODES = 'adaptive', 'bp', 'bpts', 'event', 'bpev'


def lives(seed, words, **settings):
    """What each end says; the last line may be what an end failed with."""
    with subprocess.Popen([*words, LIVES, str(seed)], text=True,
                          stdout=subprocess.PIPE, start_new_session=True,
                          env={**os.environ, **settings}) as both:
        try:
            said = both.communicate(timeout=90 * SCALE)[0]
        except subprocess.TimeoutExpired:
            os.killpg(both.pid, signal.SIGKILL)
            said = both.communicate()[0] + 'server timed out\n'
    return [[line for line in said.splitlines() if line.startswith(end)]
            for end in ('server', 'client')]


def differ(right, found):
    """The first lines that are not the same."""
    for said, other in zip(right, found):
        for n in range(max(len(said), len(other))):
            if said[n:n + 1] != other[n:n + 1]:
                return (f'after {said[max(0, n - 3):n]} plain TCP says '
                        f'{said[n:n + 1]}, a stream {other[n:n + 2]}')
    return None


def test_lives():
    on = 0
    with Case() as case:
        path = os.path.join(case.folder, 'report')
        for seed in range(FIRST, FIRST + ROUNDS):
            mode = MODES[seed % len(MODES)]
            right = lives(seed, [])
            if any('FAILED' in line or 'timed out' in line
                   for said in right for line in said):
                raise Failure(f'seed {seed}, plain TCP: {right}')
            found = lives(seed, [tool(), 'run', '--wait', mode, '--report',
                                 path, '--'],
                          RUN_LIVES_ON='1', SKEIN_RUN_AFTER=str(1 + seed % 7))
            why = differ(right, found)
            if why:
                raise Failure(f'seed {seed}, --wait {mode}: {why}')
            with open(path, encoding='utf-8') as lines:
                on += sum(json.loads(line)['carrier'] == 'stream'
                          for line in lines)
            os.unlink(path)
            case.until('children that were left have ended', reaped, 60)
    print(f'{ROUNDS} programs, {on} ends were on streams')
    if on < 2 * ROUNDS:
        raise Failure('hardly any connection was on a stream')


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(test_lives)
