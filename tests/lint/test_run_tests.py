# SPDX-License-Identifier: MIT
"""What scripts/run-tests.py counts: a wrong count would hide a failure."""

import contextlib
import importlib.util
import io
import json
import os
import tempfile

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
    # an end-to-end test, without some of its cases; the seeds say the same
    ('OK', 'a: ok\n' + 2 * 'left out: b: no NIC\nleft out: c: no\n', 0,
     (1, 0, 2)),
    ('FAIL', 'left out: b: no NIC\n', 1, (0, 1, 1)),
]

for result, text, status, expected in CASES:
    found = run_tests.count(result, text)
    assert found == expected, (result, text, found, expected)



def ran(name, text, result, status, seconds=1):
    test = run_tests.Test({'name': name})
    test.ran({'result': result, 'returncode': status, 'stdout': text,
              'duration': seconds})
    return test


tests = [ran(f't{number}', text, result, status)
         for number, (result, text, status, _) in enumerate(CASES)]
tests.append(run_tests.Test({'name': 'too late'}))
out = io.StringIO()
with contextlib.redirect_stdout(out):
    totals = run_tests.report(tests)
assert totals == (*(sum(case[3][i] for case in CASES) for i in range(2)),
                  sum(case[3][2] for case in CASES) + 1), totals
assert 't7: skipped: no NIC here' in out.getvalue()
assert 't8: 2 case(s); b: no NIC; c: no\n' in out.getvalue()
assert 'not run: too late\n' in out.getvalue()

# What the clock has ended: it was about to end by itself, or hangs.
for seconds, counts in (20, (0, 0, 1)), (2000, (0, 1, 0)):
    assert ran('a', '', 'INTERRUPT', -15, seconds).counts() == counts, seconds

# The tail of the report names each failed test and how it ended.
LONG = ''.join(f'line {i}\n' for i in range(100)) + 'x' * 500 + '\n\n'
out = io.StringIO()
with contextlib.redirect_stdout(out):
    run_tests.report([ran('long', LONG, 'FAIL', 1),
                      ran('silent', '', 'TIMEOUT', -9),
                      ran('good', CMOCKA, 'OK', 0),
                      ran('skip', 'no NIC\n', 'SKIP', 77)])
ending = out.getvalue().split('\nfailed:\n')[1].splitlines()
assert ending == (['  long: FAIL, status 1', '    ...'] +
                  [f'    line {i}' for i in range(86, 100)] +
                  ['    ' + 'x' * 200, '  silent: TIMEOUT, status -9']), ending

# Only what is a matter of time may run again.
LATE = '[  ERROR   ] --- not within 20 s: an answer\n'
WRONG = '[  ERROR   ] --- 0x1 != 0x2\n'
for result, status, text, again in [
        ('TIMEOUT', -15, '', True),
        ('TIMEOUT', -15, '[ RUN      ] test_a\n', True),
        ('FAIL', 1, LATE, True),
        ('FAIL', 1, '[  ERROR   ] --- 0xffffffffffffff92 != 0\n', True),
        ('FAIL', 1, 'FAILED: server: still running after 20 s\n', True),
        ('FAIL', 1, "FAILED: kv: no line matches 'x' (deadline)\n", True),
        ('FAIL', 1, "subprocess.TimeoutExpired: Command 'x' timed out after "
                    '300 seconds\n', True),
        # it says nothing, or has died
        ('FAIL', 1, '', False),
        ('FAIL', -11, LATE, False),
        ('FAIL', 1, 'FAILED: client: still running after 20 s\n---- server '
                    '(skein kv): killed by SIGSEGV\n', False),
        ('TIMEOUT', -15, '==7== Invalid read of size 8\n', False),
        # a wrong value, alone or beside
        ('FAIL', 1, WRONG, False),
        ('FAIL', 1, LATE + WRONG, False),
        # it should have timed out
        ('FAIL', 1, '[  ERROR   ] --- 0 != 0xffffffffffffff92\n', False),
        ('TIMEOUT', -15, WRONG, False),
        # a test that has such a name
        ('FAIL', 1, '[ RUN      ] test_deadline\n' + WRONG, False),
        # a sanitizer
        ('TIMEOUT', -15, 'WARNING: ThreadSanitizer: data race\n', False),
        ('FAIL', 1, LATE + 'x.c:1:2: runtime error: overflow\n', False)]:
    why = ran('a', text, result, status).late()
    assert bool(why) == again, (result, status, text, why)

# It passes if it does so each time, alone; the VM lane (tests/hw/guest.py) has the
# same rule.
OK, FAIL = {'result': 'OK'}, {'result': 'FAIL'}
for text, many, alone, runs, unstable in [
        (LATE, 1, [OK] * 3, 1, 1), (LATE, 1, [OK, OK, FAIL], 1, 0),
        (LATE, 1, [OK, OK], 1, 0), (WRONG, 1, [OK] * 3, 0, 0),
        (LATE, 8, [OK] * 3, 8, 8), (LATE, 9, [OK] * 3, 0, 0)]:
    asked = []
    tests = [ran(f'a{number}', text, 'FAIL', 1) for number in range(many)]
    with contextlib.redirect_stdout(io.StringIO()):
        lines = run_tests.run_again(
            tests, lambda test: asked.append(test) or alone,
            lambda test: [f'tests/{test.name}.c', 'tests/rig.c'])
    assert (len(asked), len(lines)) == (runs, unstable), (alone, asked, lines)
    assert sum(test.counts()[1] for test in tests) == many - unstable, alone
    for line in lines[:1]:
        assert line.startswith('unstable: a0: [  ERROR   ] --- not within 20 s'
                               ': an answer; load '), line
        assert line.endswith('; from tests/a0.c, tests/rig.c'), line

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

# What meson does not reach is not run at the end of the clock, else lost.
for is_late, counts in (True, (0, 0, 1)), (False, (0, 1, 0)):
    for entries in [], [{'name': 'x:unit / a', 'result': 'INTERRUPT',
                         'returncode': -15, 'duration': 1}]:
        test = run_tests.Test({'name': 'a'})
        run_tests.take([test], entries, -15, is_late)
        assert test.counts() == counts, (is_late, entries)

# Of a part only its own programs are compiled, and what belongs to no test.
with tempfile.TemporaryDirectory() as folder:
    def info(name, value):
        path = os.path.join(folder, 'meson-info', f'{name}.json')
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(value, file)

    def target(name, where):
        return {'id': name, 'build_by_default': True,
                'defined_in': f'/s/{where}/meson.build',
                'filename': [f'{os.path.realpath(folder)}/{where}/{name}'],
                'target_sources': [{'sources': [f'/s/{where}/{name}.c']}]}

    os.mkdir(os.path.join(folder, 'meson-info'))
    info('meson-info', {'directories': {'source': '/s'}})
    info('intro-targets', [target('tool', 'tools'), target('peer', 'tests'),
                           target('a', 'tests'), target('b', 'tests')])
    info('intro-tests', [
        {'name': 'a', 'suite': ['x:unit'], 'cmd': ['/o/a'], 'depends': ['a']},
        {'name': 'b', 'suite': ['x:unit'], 'cmd': ['/o/b'], 'depends': ['b']},
        {'name': 'c', 'suite': ['x:lint'], 'cmd': ['/s/o/../tests/c.sh'],
         'depends': ['tool', 'a']}])
    build = run_tests.Build(folder)

    def chosen(*words):
        return list(build.choose(run_tests.parse(list(words))))

    assert [t.name for t in chosen('--no-suite', 'lint')] == ['a', 'b']
    for part, name in ('1/2', 'a'), ('0/2', 'b'):
        tests = chosen('--suite', 'unit', '--share', part)
        assert [t.name for t in tests] == [name], part
        assert sorted(build.wanted(tests)) == \
            [f'tests/{name}', 'tests/peer', 'tools/tool'], part
        assert build.sources(tests[0]) == [f'tests/{name}.c']
    assert build.sources(chosen('c')[0]) == ['tests/a.c', 'tests/c.sh']

# What root makes by sudo in a user's folder becomes the user's, and no more.
if os.geteuid() == 0:
    with tempfile.TemporaryDirectory() as top:
        def make(*words):
            path = os.path.join(top, *words)
            with open(path, 'w', encoding='ascii'):
                return path

        def owner(path):
            return os.lstat(path).st_uid

        os.makedirs(os.path.join(top, 'build', 'meson-logs'))
        os.chown(os.path.join(top, 'build'), 1234, 1234)
        outside, log = make('outside'), make('build', 'meson-logs', 'log')
        other, link = make('build', 'other'), os.path.join(top, 'build', 'link')
        os.chown(other, 77, 77)
        os.symlink(outside, link)
        for sudo, owners in ('', [0, 0, 0]), ('77', [0, 0, 0]), \
                ('1234', [1234, 1234, 1234]):
            os.environ['SUDO_UID'] = sudo
            run_tests.give_back(os.path.join(top, 'build'))
            assert [owner(os.path.dirname(log)), owner(log),
                    owner(link)] == owners, sudo
            assert (owner(outside), owner(other)) == (0, 77)
print(f'{len(CASES)} results counted')
