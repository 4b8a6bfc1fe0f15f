#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs Meson's tests and closes with one line: N passed, M failed, K skipped.

    run-tests.py [options] [NAME ...]

Counts cases: a cmocka program counts as many as it holds, any other test as
one. A test that ends with status 77 is skipped, and its last line says why; a case
that an end-to-end test leaves out counts as one skipped, besides. The
end of what fails is shown when it fails, the whole is in the build folder's
meson-logs/testlog.txt. Just before the count stand once more
the lines of it that say why, wherever they stood, and its last lines, so that the
tail of a long log says what failed. Exit status 0 only when something ran and
nothing failed.

Many tests wait for time-outs of a dead peer, so half as many again run at once
as there are cores; the last lines say how busy the cores were.

A test that fails by time (its own limit, or a reason in the words of BY_TIME)
runs three times more, alone, behind all others. If it passes each time, it
counts as passed and a line says "unstable: NAME: REASON; load L; from FILES". A
wrong value, a crash and a sanitizer's report are failures at once.

TESTS_END, in seconds of the epoch, is when the run ends; a line "not run:
NAME" for each test that it did not reach, and they count as skipped. One that had
run for HANG_S by then has failed.
"""

import argparse
import contextlib
import fnmatch
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

SKIPPED_CASES = re.compile(r'^\[ +SKIPPED +\] (\d+) test\(s\)', re.M)
PASSED_CASES = re.compile(r'^\[ +PASSED +\] (\d+) test\(s\)', re.M)
FAILED_CASES = re.compile(r'^\[ +FAILED +\] (\d+) test\(s\)', re.M)
# A case of an end-to-end test (harness.py), perhaps once for each seed.
LEFT_OUT = re.compile(r'^left out: (.*)$', re.M)

# What a failure says where it happens: cmocka (and the line behind it), an
# assertion, our scripts, Python, sanitizers (and the stack behind it).
REASON = re.compile(r'^\[ +(ERROR|LINE|FAILED) +\]|FAILED|^ERROR|Could not run'
                    r'|Assertion|assert|^Traceback|runtime error:'
                    r'|(ERROR|WARNING): \w+Sanitizer')
FOLLOW = [(re.compile('Sanitizer|runtime error:'), 10),
          (re.compile(r'^\[ +ERROR|^ERROR'), 1)]

# The lines that name a cause, and those causes that are a matter of time:
# the words of tests/e2e/harness.py and tests/unit/patience.h, Python's, and a
# call's -ETIMEDOUT as cmocka prints it.
CAUSE = re.compile(r'^\[ +ERROR +\] --- |FAILED: |^ERROR: |^FAIL: '
                   r'|^(\w+\.)*\w*(Error|Expired|Failure|Exception)\b.*: ')
BY_TIME = re.compile(r'not within|still running|\bdeadline\b|timed out'
                     r'|did not stop|--- 0xf*ffffff92 != ')
CRASH = re.compile(r'\w+Sanitizer|runtime error:|Assertion|core dumped'
                   r'|skein_assert|Test failed with exception'
                   r'|killed by SIG(SEGV|ABRT|BUS|ILL|FPE)'
                   r'|^==\d+== (Invalid|Conditional|Use of)', re.M)

AGAIN_MAX = 8  # more tests than these fail for another reason than noise
AGAIN_TIMES = 3
HANG_S = 300

TAIL_LINES = 15
REPEATED_LINES = 40
TAIL_COLUMNS = 200


def total(pattern, text):
    return sum(int(count) for count in pattern.findall(text))


def count(result, text):
    """(passed, failed, skipped) of one test program."""
    if result == 'SKIP':
        return 0, 0, 1
    passed = total(PASSED_CASES, text)
    failed = total(FAILED_CASES, text)
    skipped = total(SKIPPED_CASES, text)
    if result in ('OK', 'EXPECTEDFAIL') and not passed and not skipped:
        passed = 1  # else a program that skips all its cases has passed nothing
    skipped += len(set(LEFT_OUT.findall(text)))
    if result in ('OK', 'EXPECTEDFAIL'):
        return passed, failed, skipped
    # It failed as a whole: a crash may come before cmocka's own count.
    return passed, max(failed, 1), skipped


def last_line(text):
    lines = [line.strip() for line in text.split('\n') if line.strip()]
    return lines[-1] if lines else 'no reason given'


def repeated(text):
    """The lines of a test's output that say why it failed, and the last ones:
    cut, none of them empty, "..." where some are left out."""
    lines = [line.rstrip()[:TAIL_COLUMNS] for line in text.split('\n')
             if line.strip()]
    chosen = set(range(max(len(lines) - TAIL_LINES, 0), len(lines)))
    for at, line in enumerate(lines):
        if not REASON.search(line):
            continue
        behind = max([count for pattern, count in FOLLOW
                      if pattern.search(line)], default=0)
        for near in range(at, min(at + behind + 1, len(lines))):
            if len(chosen) < REPEATED_LINES:
                chosen.add(near)
    shown, last = [], -1
    for at in sorted(chosen):
        if at != last + 1:
            shown.append('...')
        shown.append(lines[at])
        last = at
    return shown


def by_time(result, status, text):
    """Why a test failed, if that is a matter of time alone; else None."""
    causes = [line.strip() for line in text.split('\n') if CAUSE.search(line)]
    if CRASH.search(text) or not all(map(BY_TIME.search, causes)):
        return None
    if result == 'TIMEOUT':
        return 'its limit'
    if result == 'FAIL' and status > 0 and causes:
        return causes[0][:TAIL_COLUMNS]
    return None


class Test:
    """One test, and what its last run said."""

    def __init__(self, row):
        self.name = row['name']
        self.row = row
        self.result = None
        self.status = None
        self.text = ''
        self.seconds = 0

    def ran(self, entry):
        self.result = entry['result']
        self.status = entry.get('returncode')
        self.text = entry.get('stdout', '') + entry.get('stderr', '')
        self.seconds = entry.get('duration', 0)

    @property
    def reached(self):
        return self.result is not None and (
            self.result != 'INTERRUPT' or self.seconds > HANG_S)

    def counts(self):
        return count(self.result, self.text) if self.reached else (0, 0, 1)

    def late(self):
        """Why it failed, if that is a matter of time alone; else None."""
        return self.reached and self.counts()[1] and \
            by_time(self.result, self.status, self.text)


class Build:
    """A build folder: its tests, and the programs that they are."""

    def __init__(self, folder):
        self.folder = folder
        self.rows = self.info('intro-tests')
        self.targets = self.info('intro-targets')
        self.source = self.info('meson-info')['directories']['source']

    def info(self, what):
        path = os.path.join(self.folder, 'meson-info', f'{what}.json')
        with open(path, encoding='utf-8') as file:
            return json.load(file)

    def inside(self, path):
        return os.path.relpath(path, self.source)

    def choose(self, options):
        """The tests that the options name, in Meson's order."""
        part, parts = options.share
        seen = 0
        for row in self.rows:
            suites = {suite.split(':')[-1] for suite in row['suite']}
            if options.names and not any(
                    fnmatch.fnmatchcase(row['name'], name)
                    for name in options.names):
                continue
            if (options.suite and not suites & set(options.suite)) or \
                    suites & set(options.no_suite):
                continue
            seen += 1
            if seen % parts == part % parts:
                yield Test(row)

    def wanted(self, tests):
        """All but the programs of other tests; tests depend on the tool, too,
        which processes of any test may start."""
        chosen = {target for test in tests for target in test.row['depends']}
        others = {target for row in self.rows
                  for target in row['depends']} - chosen
        return [os.path.relpath(target['filename'][0],
                                os.path.realpath(self.folder))
                for target in self.targets if target['build_by_default'] and
                not (target['id'] in others and
                     self.inside(target['defined_in']).startswith('tests/'))]

    def compile(self, tests):
        begun = time.monotonic()
        status = subprocess.run(['ninja', '-C', self.folder,
                                 *self.wanted(tests)],
                                stdin=subprocess.DEVNULL, check=False)
        print(f'compiled: {self.folder}: {time.monotonic() - begun:.0f} s',
              flush=True)
        return status.returncode == 0

    def sources(self, test):
        """The files of tests/ that a test is made of."""
        paths = [word for word in test.row['cmd'] if os.path.isabs(word)]
        for target in self.targets:
            if target['id'] in test.row['depends']:
                paths += [path for group in target['target_sources']
                          for path in group.get('sources', [])]
        return sorted({path for path in map(self.inside, paths)
                       if path.startswith('tests/')})


def run_meson(options, tests, processes, base='testlog', more=()):
    """Runs the tests by name. Returns their results, meson's own status, and
    whether the clock ended it: then what was not reached has no result."""
    logs = os.path.join(options.build, 'meson-logs', f'{base}*.json')
    for path in glob.glob(logs):
        os.unlink(path)
    sys.stdout.flush()
    end = float(os.environ.get('TESTS_END') or 'inf')
    is_late = False
    with subprocess.Popen(['meson', 'test', '-C', options.build, '--no-rebuild',
                           '--print-errorlogs', f'--num-processes={processes}',
                           f'--timeout-multiplier={options.timeout_multiplier}',
                           f'--logbase={base}',
                           *(['--wrapper', options.wrapper]
                             if options.wrapper else []),
                           *more, *[test.name for test in tests]],
                          stdin=subprocess.DEVNULL) as meson:
        try:
            meson.wait(max(end - time.time(), 1) if end < 1e12 else None)
        except subprocess.TimeoutExpired:
            is_late = True
            print('the clock has ended', flush=True)
            meson.send_signal(signal.SIGTERM)
    entries = []
    for path in glob.glob(logs):
        with open(path, encoding='utf-8') as log:
            entries += [json.loads(line) for line in log]
    return entries, meson.returncode, is_late


def take(tests, entries, status, is_late):
    """Gives each test its result. Without one, and before the end of the clock,
    meson died: that test is lost, and has failed."""
    named = {test.name: test for test in tests}
    for entry in entries:
        named[entry['name'].split(' / ')[-1]].ran(entry)
    for test in tests:
        if not (is_late or test.reached):
            test.ran({'result': 'LOST', 'returncode': status})


def run_again(tests, alone, sources):
    """What failed by time, by alone(test), which gives the results of AGAIN_TIMES
    runs or of those up to a failure; the lines of the tests that pass, with the
    files sources(test)."""
    again = [test for test in tests if test.late()]
    unstable = []
    if len(again) > AGAIN_MAX:
        print(f'\n{len(again)} tests failed by time: too many to run again')
        return unstable
    for test in again:
        load = os.getloadavg()[0]
        why = test.late()
        print(f'\n{test.name} again, alone: {why}', flush=True)
        good = [entry for entry in alone(test)
                if entry['result'] in ('OK', 'EXPECTEDFAIL')]
        if len(good) == AGAIN_TIMES:
            test.ran(good[-1])
            unstable.append(f'unstable: {test.name}: {why}; '
                            f'load {load:.1f}; from '
                            f'{", ".join(sources(test))}')
    return unstable


def cpu_s():
    """Of all processes that ended below this one."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def report(tests):
    """Says what was skipped, not run and failed; the counts of all."""
    counts = [test.counts() for test in tests]
    skips = [(test, last_line(test.text) if test.result == 'SKIP' else
              '; '.join([f'{skipped} case(s)',
                         *sorted(set(LEFT_OUT.findall(test.text)))]))
             for test, (_, _, skipped) in zip(tests, counts)
             if skipped and test.reached]
    failures = [test for test, (_, failed, _) in zip(tests, counts) if failed]
    if skips:
        print('\nskipped:')
        for test, why in skips:
            print(f'  {test.name}: {why}')
    if failures:
        print('\nfailed:')
        for test in failures:
            print(f'  {test.name}: {test.result}, status {test.status}')
            for line in repeated(test.text):
                print(f'    {line}')
    for test in tests:
        if not test.reached:
            print(f'not run: {test.name}')
    return tuple(sum(column) for column in zip(*counts))


def close(passed, failed, skipped):
    print(f'{passed} passed, {failed} failed, {skipped} skipped', flush=True)
    sys.exit(1 if failed else 0)


def give_back(folder):
    """A user's folder stays the user's when root runs this by sudo
    (scripts/build.sh, too)."""
    own = os.stat(folder)
    if os.geteuid() or not own.st_uid or \
            os.environ.get('SUDO_UID') != str(own.st_uid):
        return
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            with contextlib.suppress(FileNotFoundError):
                if not os.lstat(path).st_uid:
                    os.lchown(path, own.st_uid, own.st_gid)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', default='build')
    parser.add_argument('--suite', action='append', default=[])
    parser.add_argument('--no-suite', action='append', default=[])
    parser.add_argument('--share', default='0/1', metavar='K/N',
                        type=lambda text: tuple(map(int, text.split('/'))),
                        help='every N-th of the tests, from the K-th')
    parser.add_argument('--compile', action='store_true',
                        help='compile what these tests need first')
    parser.add_argument('--timeout-multiplier', type=float, default=1)
    parser.add_argument('--wrapper', help='a command in front of each test')
    parser.add_argument('names', nargs='*', metavar='NAME',
                        help="a test's name, or a pattern of names")
    return parser.parse_args(argv)


def main(argv):
    options = parse(argv)
    try:
        run(options)
    finally:
        give_back(options.build)


def run(options):
    build = Build(options.build)
    tests = list(build.choose(options))
    if not tests:
        print('\nno test has such a name')
        close(0, 1, 0)
    if options.compile and not build.compile(tests):
        print('\nit does not compile')
        close(0, 1, 0)
    cores = len(os.sched_getaffinity(0))
    begun = time.monotonic()
    before = cpu_s()
    entries, status, is_late = run_meson(options, tests,
                                         3 * cores)
    take(tests, entries, status, is_late)
    took = max(time.monotonic() - begun, 1e-3)
    busy = (cpu_s() - before) / took / cores
    unstable = run_again(
        tests, lambda test: run_meson(options, [test], 1, 'again',
                                      [f'--repeat={AGAIN_TIMES}'])[0],
        build.sources)
    passed, failed, skipped = report(tests)
    for line in unstable:
        print(line)
    if status and not (failed or unstable or is_late):
        print(f'\nmeson test ended with status {status}')
        failed = 1
    if not (is_late or any(test.reached for test in tests)):
        print('\nno test ran')
        failed = 1
    print(f'\n{took:.0f} s, {cores} cores, {busy:.0%} busy with tests')
    print(f'tested: {options.build}: {time.monotonic() - begun:.0f} s')
    close(passed, failed, skipped)


if __name__ == '__main__':
    main(sys.argv[1:])
