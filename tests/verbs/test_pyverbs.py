# SPDX-License-Identifier: MIT
"""rdma-core's own tests of its Python binding, as Debian's python3-pyverbs has
them. Those for mlx5 and EFA devices skip themselves, and so do those for what
the device does not have: it must say EOPNOTSUPP."""

import glob
import gzip
import os
import re
import shutil

from stock import need, skein_run
from harness import Case, Failure, skip

TESTS = '/usr/share/doc/rdma-core/tests'
PYTHON = '/usr/bin/python3'  # the binding is for Debian's own
PASS = 83  # at least: some skip themselves by what the machine has


def unpack(folder):
    for path in glob.glob(f'{TESTS}/*'):
        name = os.path.basename(path)
        if name.endswith('.gz'):
            with gzip.open(path) as packed, \
                    open(f'{folder}/{name[:-3]}', 'wb') as out:
                shutil.copyfileobj(packed, out)
        else:
            shutil.copy(path, folder)


def main():
    need()
    if not os.path.exists(f'{TESTS}/run_tests.py'):
        skip('python3-pyverbs is not installed, or without its documents '
             '(scripts/deps.sh test)')
    with Case() as case:
        folder = f'{case.folder}/tests'
        os.mkdir(folder)
        unpack(folder)
        tests = case.start(skein_run(PYTHON, '-B', f'{folder}/run_tests.py',
                                     '-v'), name='pyverbs')
        status = tests.exits(None, 200)
        shutil.rmtree(folder)
        text = tests.text('err')
        bad = re.findall(r'^(?:FAIL|ERROR): (\S+)', text, re.M)
        skipped = re.search(r'^(?:OK|FAILED).*skipped=(\d+)', text, re.M)
        ran = re.search(r'^Ran (\d+) tests', text, re.M)
        if bad or status or not skipped or not ran:
            raise Failure(f'status {status}, failed: {", ".join(bad)}')
        passed = int(ran[1]) - int(skipped[1])
        print(f'{passed} passed, {skipped[1]} skipped')
        if passed < PASS:
            raise Failure(f'only {passed} passed, not {PASS}')


main()
