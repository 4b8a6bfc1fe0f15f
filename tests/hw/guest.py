#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The guest's side of run.sh: guest.py LIST runs each line of LIST, and shows the
output of what fails. A new kernel complaint (a warning, an oops) is a failure of
the test it came with: rxe is under test through us too. What fails by time runs
again, by the rule of scripts/run-tests.py.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

spec = importlib.util.spec_from_file_location(
    'run_tests', os.path.join(os.environ['SRC'], 'scripts', 'run-tests.py'))
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)

COMPLAINT = re.compile(r'WARNING:|BUG:|Oops|rcu.*stall|hung task')
RESULTS = {0: 'OK', 77: 'SKIP'}


def kernel_log():
    return subprocess.run(['dmesg'], stdout=subprocess.PIPE, text=True,
                          errors='replace', check=False).stdout.splitlines()


def run(test):
    """Runs it once, and says how that ended. Its result, as Meson's log has it."""
    known = set(kernel_log())
    begun = time.monotonic()
    with tempfile.TemporaryFile('w+', errors='replace') as out:
        status = subprocess.run(['timeout', '-k', '2', test.row['limit'],
                                 'bash', '-c', test.row['command']],
                                stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, check=False).returncode
        took = time.monotonic() - begun
        out.seek(0)
        text = out.read()
    if status > 128:
        status = 128 - status  # a signal, as the shell says it
    result = RESULTS.get(status) or (
        'TIMEOUT' if took >= float(test.row['limit']) else 'FAIL')
    new = [line for line in kernel_log() if line not in known]
    if any(map(COMPLAINT.search, new)):
        result = 'KERNEL'
        text += '\n'.join(new[-40:])
    if result == 'OK':
        print(f'ok {test.name} ({took:.0f} s)')
    elif result == 'SKIP':
        print(f'skip {test.name} ({run_tests.last_line(text)})')
    else:
        print(f'FAIL {test.name} ({result}, status {status}, {took:.0f} s)')
        for line in text.splitlines()[-60:]:
            print(f'    {line}')
    sys.stdout.flush()
    return {'result': result, 'returncode': status, 'stdout': text,
            'duration': took}


def alone(test):
    results = []
    while len(results) < run_tests.AGAIN_TIMES:
        results.append(run(test))
        if results[-1]['result'] != 'OK':
            break
    return results


def sources(test):
    """The files of tests/ in its command: scripts, and what programs are made of."""
    build = run_tests.Build(os.getcwd())
    words = shlex.split(os.path.expandvars(test.row['command']))
    test.row['cmd'] = [os.path.realpath(word) for word in words]
    test.row['depends'] = [target['id'] for target in build.targets
                           if target['filename'][0] in test.row['cmd']]
    return build.sources(test)


def main(path):
    with open(path, encoding='utf-8') as lines:
        tests = [run_tests.Test(dict(zip(('name', 'limit', 'command'),
                                         line.split(maxsplit=2))))
                 for line in lines]
    for test in tests:
        test.ran(run(test))
    for line in run_tests.run_again(tests, alone, sources):
        print(line)
    results = [test.result for test in tests]
    passed, skipped = results.count('OK'), results.count('SKIP')
    failed = len(results) - passed - skipped
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 0 if passed and not failed else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
