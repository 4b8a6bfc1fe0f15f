# SPDX-License-Identifier: MIT
"""What scripts/run-tests.py counts: a wrong count would hide a failure."""

import contextlib
import importlib.util
import io
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
spec = importlib.util.spec_from_file_location(
    'run_tests', os.path.join(ROOT, 'scripts', 'run-tests.py'))
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)

CMOCKA = '[==========] Running 3 test(s).\n[  PASSED  ] 3 test(s).\n'
MIXED = ('[==========] 6 test(s) run.\n[  PASSED  ] 3 test(s).\n'
         '[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] a\n'
         '[  FAILED  ] 2 test(s), listed below:\n[  FAILED  ] b\n')
CASES = [
    ('OK', '', 0, (1, 0, 0)),
    ('OK', CMOCKA, 0, (3, 0, 0)),
    ('FAIL', MIXED, 2, (3, 2, 1)),
    ('FAIL', '', 1, (0, 1, 0)),
    # crashed after cmocka's count: still a failure
    ('FAIL', CMOCKA, -11, (3, 1, 0)),
    ('TIMEOUT', '', -9, (0, 1, 0)),
    ('ERROR', '', 99, (0, 1, 0)),
    ('SKIP', 'skipped: no NIC here\n', 77, (0, 0, 1)),
]

for result, text, status, expected in CASES:
    found = run_tests.count(result, text)
    assert found == expected, (result, text, found, expected)

log = [json.dumps({'name': f't{number}', 'stdout': text, 'result': result,
                   'returncode': status})
       for number, (result, text, status, _) in enumerate(CASES)]
out = io.StringIO()
with contextlib.redirect_stdout(out):
    totals = run_tests.report(log)
assert totals == tuple(sum(case[3][i] for case in CASES) for i in range(3))
assert 't7: skipped: no NIC here' in out.getvalue()

# The tail of the report names each failed test and how it ended.
LONG = ''.join(f'line {i}\n' for i in range(100)) + 'x' * 500 + '\n\n'
log = [json.dumps({'name': name, 'stdout': text, 'result': result,
                   'returncode': status})
       for name, text, result, status in (
           ('long', LONG, 'FAIL', 1), ('silent', '', 'TIMEOUT', -9),
           ('good', CMOCKA, 'OK', 0), ('skip', 'no NIC\n', 'SKIP', 77))]
out = io.StringIO()
with contextlib.redirect_stdout(out):
    run_tests.report(log)
ending = out.getvalue().split('\nfailed:\n')[1].splitlines()
assert ending == (['  long: FAIL, status 1', '    ...'] +
                  [f'    line {i}' for i in range(86, 100)] +
                  ['    ' + 'x' * 200, '  silent: TIMEOUT, status -9']), ending

# What says why is repeated, wherever it stood, and not without end.
REASON = ('[  ERROR   ] --- 0 != -0xb\n[   LINE   ] --- test_x.c:205: error: '
          'Failure!\n')
STACK = '==7==ERROR: AddressSanitizer: bad\n' + ''.join(
    f'    #{i} f{i}\n' for i in range(10))
for first in (REASON, STACK):
    shown = run_tests.repeated(LONG + first + LONG)
    assert shown[1:-16] == first.splitlines(), shown
    assert shown[0] == shown[-16] == '...', shown
assert len(run_tests.repeated(REASON * 99 + LONG)) == 41
# cmocka's two streams.
shown = run_tests.repeated('[ RUN      ] a\n[  FAILED  ] a\n' +
                           '[       OK ] b\n' * 30 + REASON +
                           'skein: info: x\n' * 30)
assert [line for line in REASON.splitlines() if line not in shown] == [], shown
print(f'{len(CASES)} results counted')
