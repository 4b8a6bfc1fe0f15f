#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The lanes of continuous integration, one after the other: .ci/run calls it.

    lanes.py gate [LANE...]     what must pass before a change lands
    lanes.py soak [LANE...]     all that there is; hours

The gate is the README's commands in a bare root, then half of the tests under
AddressSanitizer, then one part of the rest. The commit's hash chooses the half and
the part, so that a commit always gets the same, and soon all are run. LANE...: of
all lanes only those.

One clock counts for the whole: a lane's budget is what it should take on two quiet
cores, and is printed, not enforced; a lane begins only if the clock has as much
left. What the clock does not reach is "not run", by name, and skipped; but the
tests of the bare root must all run. At most three tests may be unstable
(scripts/run-tests.py), none of them made of files that the commits of the last
half day touch.

Beside its build folders a run leaves logs/ and ccache/ in the folder of the roots
(bare-root.sh folder). The next run removes what a killed one leaves there.
"""

import fcntl
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

CLOCK_S = {'gate': 75 * 60, 'soak': 24 * 3600}
GRACE_S = 300  # for a lane to close behind the clock's end
PIPE_S = 10  # for the rest of the output of a command that has ended
UNSTABLE_MAX = 3
RECENT_S = 12 * 3600

COUNTS = re.compile(r'^(\d+) passed, (\d+) failed, (\d+) skipped$', re.M)
COMPILED = re.compile(r'^compiled: .*: (\d+) s$', re.M)
TESTED = re.compile(r'^tested: .*: (\d+) s$', re.M)
STEP = re.compile(r'^==== bare, (.*): status \d+, (\d+) s$', re.M)
UNSTABLE = re.compile(r'^unstable: .*', re.M)
NOT_RUN = re.compile(r'^not run: .*', re.M)

MAKE = ['make', '--no-print-directory']
TAIL_LINES = 80


class Lane:
    """Commands, each of which closes with a line of counts."""

    def __init__(self, name, budget_s, *commands, **env):
        self.name = name
        self.budget_s = budget_s
        self.commands = commands
        self.env = env
        self.took_s = 0
        self.counts = [0, 0, 0]
        self.text = ''

    def seconds(self, pattern):
        return sum(int(took) for took in pattern.findall(self.text))


def gate(commit, names=()):
    """The lanes for a commit."""
    part = int(commit[:8], 16)
    rest = [
        Lane('test-hw', 300, [*MAKE, 'test-hw']),
        Lane('tsan', 300, [*MAKE, 'tsan', f'SHARE={part // 10 % 4}/4']),
        Lane('figures', 300, [*MAKE, 'test', 'T=--suite model --suite figures']),
        Lane('harsh', 300,
             [*MAKE, 'test', 'T=--suite seeds --suite harsh --suite soak '
              '--no-suite figures --no-suite big'],
             [*MAKE, 'valgrind', 'V=--short']),
        Lane('fuzz', 300, [*MAKE, 'fuzz-smoke', 'FUZZ_SECONDS=10'])]
    first = [Lane('bare', 630, ['.ci/bare.sh']),
             Lane('asan', 540, [*MAKE, 'asan', f'SHARE={part % 2}/2',
                                'T=--no-suite seeds --no-suite harsh'])]
    if names:
        return [lane for lane in first + rest if lane.name in names]
    return [*first, rest[part // 2 % 5]]


def soak(_, names=()):
    hour = 3600
    lanes = [Lane('bare', 2 * hour, ['.ci/bare.sh'],
                  BARE='root user test read-only'),
             Lane('all', hour, [*MAKE, 'test', 'T=--no-suite big']),
             Lane('rounds', 8 * hour, [*MAKE, 'test-rounds']),
             Lane('lint', hour, [*MAKE, 'lint']),
             Lane('test-hw', hour, [*MAKE, 'test-hw']),
             Lane('asan', 2 * hour, [*MAKE, 'asan']),
             Lane('tsan', 3 * hour, [*MAKE, 'tsan']),
             Lane('valgrind', 2 * hour, [*MAKE, 'valgrind']),
             Lane('fuzz', hour, [*MAKE, 'fuzz-smoke', 'FUZZ_SECONDS=120'])]
    return [lane for lane in lanes if not names or lane.name in names]


def say(*words):
    print(*words, flush=True)


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True,
                          check=True).stdout


def git(*words):
    """The tree may be another user's."""
    return output('git', '-c', 'safe.directory=*', *words)


def clear(place):
    """Removes what a run left that was killed. Its processes ended with its
    PID namespace, and their sockets, mounts and shared memory with them."""
    for name in sorted(os.listdir(place)):
        if name.startswith(('work.', 'root.')):
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)
            say(f'removed: {name}, left by an earlier run')


def pressure():
    with open('/proc/loadavg', encoding='utf-8') as file:
        words = ['load ' + ' '.join(file.read().split()[:3])]
    for kind in ('cpu', 'memory', 'io'):
        try:
            with open(f'/proc/pressure/{kind}', encoding='utf-8') as file:
                some = re.search(r'avg60=(\S+)', file.read())
            words.append(f'{kind} pressure {some[1]} %')
        except OSError:
            pass
    return ', '.join(words)


def run_command(lane, command, log, end):
    """Runs it until it or the clock ends; adds its output and counts. What it
    leaves may hold its pipe: that is not waited for."""
    say(f'==== {lane.name}: {" ".join(command)}')
    text = []
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={**os.environ, **lane.env}, text=True,
                               errors='replace', start_new_session=True)

    def read():
        for line in process.stdout:
            if log.closed:
                break
            sys.stdout.write(line)
            sys.stdout.flush()
            log.write(line)
            text.append(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        status = process.wait(max(end - time.time(), 0) + GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        say(f'{lane.name}: still running when the clock had ended')
    reader.join(PIPE_S)
    text = ''.join(text)
    lane.text += text
    last = COUNTS.findall(text)[-1:]
    counts = [int(number) for number in last[0]] if last else [0, 0, 0]
    if not last or (status and not counts[1]):
        say(f'{lane.name}: status {status}, ' +
            ('which no count explains' if last else 'no counts'))
        counts[1] += 1
    lane.counts = [old + new for old, new in zip(lane.counts, counts)]


def run_lane(lane, logs, end):
    begun, began = time.monotonic(), time.time()
    with open(os.path.join(logs, lane.name), 'w', encoding='utf-8') as log:
        for command in lane.commands:
            if time.time() < end:
                run_command(lane, command, log, end)
            else:
                line = f'not run: {" ".join(command)}\n'
                log.write(line)
                lane.text += line
                lane.counts[2] += 1
    for path in glob.glob('build*/meson-logs/*.txt'):
        if os.path.getmtime(path) >= began:
            shutil.copy(path, os.path.join(
                logs, f'{lane.name}.{os.path.basename(path)}'))
    lane.took_s = time.monotonic() - begun


def touched():
    """The files of the commits written in the half day before the last; None
    where a shallow clone ends within it."""
    newest = None
    files = set()
    for line in git('log', '-500', '--name-only',
                    '--format=commit %at').splitlines():
        if line.startswith('commit '):
            written = int(line.split()[1])
            newest = newest or written
            recent = newest - written <= RECENT_S
        elif line and recent:
            files.add(line)
    if recent and git('rev-parse', '--is-shallow-repository') == 'true\n':
        return None
    return files


def unstable_verdict(lines):
    """Why the unstable tests are too many; empty when they are not."""
    why = []
    if len(lines) > UNSTABLE_MAX:
        why.append(f'{len(lines)} unstable tests: more than {UNSTABLE_MAX}')
    files = touched() if lines else set()
    if files is None:
        why.append('unstable, and this shallow clone does not say what changed '
                   'just now')
        files = set()
    for line in lines:
        for path in line.split('; from ')[-1].split(', '):
            if path in files:
                why.append(f'unstable, and changed just now: {path}')
    return why


def readme_true(lanes):
    """The bare root's first steps did not fail: else no other lane counts."""
    return not lanes or lanes[0].name != 'bare' or not lanes[0].counts[1] or \
        '==== bare, make test' in lanes[0].text


def table(lanes):
    say(f'\n{"lane":<28}{"s":>7}{"compiling":>11}{"testing":>9}{"budget":>8}'
        f'{"used":>7}')
    for lane in lanes:
        say(f'{lane.name:<28}{lane.took_s:>7.0f}{lane.seconds(COMPILED):>11}'
            f'{lane.seconds(TESTED):>9}{lane.budget_s:>8}'
            f'{lane.took_s / lane.budget_s:>7.0%}')
        for name, took in STEP.findall(lane.text):
            say(f'  {name:<26}{took:>7}')


def close(lanes, missed, begun):
    for lane in lanes:
        if lane.name == 'bare' and NOT_RUN.search(lane.text):
            say('bare: not all of its tests ran')
            lane.counts[1] += 1
    passed, failed, skipped = (sum(lane.counts[i] for lane in lanes)
                               for i in range(3))
    for lane in lanes:
        if lane.counts[1]:
            say(f'\n==== what failed in {lane.name}')
            say('\n'.join(line[:200] for line in
                          lane.text.splitlines()[-TAIL_LINES:]))
    table(lanes)
    text = ''.join(lane.text for lane in lanes)
    unstable = UNSTABLE.findall(text)
    not_run = NOT_RUN.findall(text) + [f'not run: lane {lane.name}'
                                       for lane in missed]
    say()
    for line in unstable + not_run:
        say(line)
    for why in unstable_verdict(unstable):
        say(why)
        failed += 1
    skipped += len(missed)
    say(f'all lanes: {time.monotonic() - begun:.0f} s; {pressure()}')
    say(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 1 if failed or not passed else 0


def main(which, *names):
    place = output('.ci/bare-root.sh', 'folder').strip()
    with open(os.path.join(place, 'lanes.lock'), 'w', encoding='utf-8') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say('another run is under way: waiting for its end')
            fcntl.flock(lock, fcntl.LOCK_EX)
        begun = time.monotonic()
        end = time.time() + CLOCK_S[which]
        clear(place)
        logs = os.path.join(place, 'logs')
        shutil.rmtree(logs, ignore_errors=True)
        os.makedirs(logs)
        work = tempfile.mkdtemp(prefix='work.', dir=place)
        os.chmod(work, 0o1777)
        os.environ.update({
            'TMPDIR': work, 'CI_LOGS': logs,
            'TESTS_END': str(int(end)),
            # Objects of the same text are the same in whatever folder.
            'CCACHE_DIR': os.path.join(place, 'ccache'),
            'CCACHE_NOHASHDIR': '1', 'CCACHE_MAXSIZE': '4G'})
        commit = git('rev-parse', 'HEAD').strip()
        plan = {'gate': gate, 'soak': soak}[which](commit, names)
        unknown = set(names) - {lane.name for lane in plan}
        if unknown:
            say(f'{which} has no lane {", ".join(sorted(unknown))}')
            return 2
        say(f'{which} of {commit[:12]}: ' +
            ', '.join(' '.join([lane.name, *(word for command in lane.commands
                                             for word in command
                                             if '=' in word)])
                      for lane in plan))
        say(f'{pressure()}; logs in {logs}')
        lanes, missed = [], []
        for lane in plan:
            if time.time() + (lane.budget_s if lanes else 0) >= end or \
                    not readme_true(lanes):
                missed.append(lane)
                continue
            run_lane(lane, logs, end)
            lanes.append(lane)
        shutil.rmtree(work, ignore_errors=True)
        return close(lanes, missed, begun)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
