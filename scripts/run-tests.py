#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs Meson's tests and closes with one line: N passed, M failed, K skipped.

    run-tests.py [--build DIR] [MESON TEST'S OPTIONS]

Counts cases: a cmocka program counts as many as it holds, any other test as
one. A test that ends with status 77 is skipped, and its last line says why. The
output of what failed is shown in full. Just before the count stand once more the
lines of it that say why, wherever they stood, and its last lines, so that the
tail of a long log says what failed. Exit status 0 only when something ran and
nothing failed.

Many tests wait for time-outs of a dead peer, so half as many again run at once
as there are cores; the last lines say how busy the cores were.
"""

import argparse
import glob
import json
import os
import re
import resource
import subprocess
import sys
import time

SKIPPED_CASES = re.compile(r'^\[ +SKIPPED +\] (\d+) test\(s\)', re.M)
PASSED_CASES = re.compile(r'^\[ +PASSED +\] (\d+) test\(s\)', re.M)
FAILED_CASES = re.compile(r'^\[ +FAILED +\] (\d+) test\(s\)', re.M)

# What a failure says where it happens: cmocka (and the line behind it), an
# assertion, our scripts, Python, sanitizers (and the stack behind it).
REASON = re.compile(r'^\[ +(ERROR|LINE|FAILED) +\]|FAILED|^ERROR|Could not run'
                    r'|Assertion|assert|^Traceback|runtime error:'
                    r'|(ERROR|WARNING): \w+Sanitizer')
FOLLOW = [(re.compile('Sanitizer|runtime error:'), 10),
          (re.compile(r'^\[ +ERROR|^ERROR'), 1)]

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
    if result in ('OK', 'EXPECTEDFAIL'):
        # A program that skips all its cases has passed nothing.
        return (passed if passed or skipped else 1), failed, skipped
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


def report(log):
    passed = failed = skipped = 0
    skips, failures = [], []
    for line in log:
        test = json.loads(line)
        text = test.get('stdout', '') + test.get('stderr', '')
        name, result = test['name'], test['result']
        counts = count(result, text)
        passed += counts[0]
        failed += counts[1]
        skipped += counts[2]
        if result == 'SKIP':
            skips.append(f'{name}: {last_line(text)}')
        elif counts[2]:
            skips.append(f'{name}: {counts[2]} case(s)')
        if counts[1]:
            failures.append((name, result, test.get('returncode'), text))
    for name, result, status, text in failures:
        print(f'\n==== {name}: {result}, status {status}\n{text}')
    if skips:
        print('\nskipped:')
        for line in skips:
            print(f'  {line}')
    if failures:
        print('\nfailed:')
        for name, result, status, text in failures:
            print(f'  {name}: {result}, status {status}')
            for line in repeated(text):
                print(f'    {line}')
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', default='build')
    options, rest = parser.parse_known_args()
    # With a --wrapper the log has its name, too.
    logs = os.path.join(options.build, 'meson-logs', 'testlog*.json')
    for path in glob.glob(logs):
        os.unlink(path)
    sys.stdout.flush()
    cores = len(os.sched_getaffinity(0))
    begun = time.monotonic()
    # What `rest` says stands behind ours, and wins.
    status = subprocess.run(['meson', 'test', '-C', options.build,
                             '--no-rebuild',
                             f'--num-processes={cores + (cores + 1) // 2}',
                             *rest],
                            stdin=subprocess.DEVNULL, check=False).returncode
    took = max(time.monotonic() - begun, 1e-3)
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = (use.ru_utime + use.ru_stime) / took / cores
    passed = failed = skipped = 0
    for path in glob.glob(logs):
        with open(path, encoding='utf-8') as log:
            passed, failed, skipped = report(log)
    if status and not failed:
        print(f'\nmeson test ended with status {status}')
        failed = 1
    if not passed + failed + skipped:
        print('\nno test ran')
        failed = 1
    print(f'\n{took:.0f} s, {cores} cores, {busy:.0%} busy with tests')
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
