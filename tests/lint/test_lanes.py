# SPDX-License-Identifier: MIT
"""What .ci/lanes.py decides: a lane that is misread would land what is broken."""

import contextlib
import importlib.util
import io
import os
import signal
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
spec = importlib.util.spec_from_file_location(
    'lanes', os.path.join(ROOT, '.ci', 'lanes.py'))
lanes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lanes)
lanes.GRACE_S = 1
FAR = time.time() + 3600


def ran(script, end=FAR):
    """The lane of a shell script, and what was said."""
    lane = lanes.Lane('x', 100, ['sh', '-c', script], KNOWN='1')
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(out):
        lanes.run_lane(lane, folder, end)
        with open(os.path.join(folder, 'x'), encoding='utf-8') as log:
            assert log.read() == lane.text
    return lane, out.getvalue()


def closed(*done, missed=()):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = lanes.close(list(done), list(missed), time.monotonic())
    return status, out.getvalue()


# Counts, and ends that they do not explain.
for script, counts in [
        ('echo 3 passed, 0 failed, 1 skipped', [3, 0, 1]),
        ('echo 1 passed, 0 failed, 0 skipped; echo $KNOWN passed, 2 failed, '
         '0 skipped; exit 1', [1, 2, 0]),
        ('echo 3 passed, 0 failed, 1 skipped; exit 1', [3, 1, 1]),
        ('echo 3 passed, 0 failed', [0, 1, 0]),
        ('true', [0, 1, 0])]:
    lane, _ = ran(script)
    assert lane.counts == counts, (script, lane.counts)
    assert closed(lane)[0] == (1 if counts[1] else 0)

# The clock ends a lane that hangs, whatever holds its pipe; a command that has
# ended is not waited for.
lanes.PIPE_S = 1
HOLDS = 'setsid sleep 600 & echo $! >&3; '
for script, end, counts in [
        (HOLDS + 'sleep 600', time.time() + 2, [0, 1, 0]),
        (HOLDS + 'echo 1 passed, 0 failed, 0 skipped', FAR, [1, 0, 0])]:
    with tempfile.NamedTemporaryFile('r') as holder:
        lane, _ = ran(f'exec 3>{holder.name}; {script}', end)
        os.kill(int(holder.read()), signal.SIGKILL)  # it is there
    assert lane.counts == counts, (script, lane.counts)

# A command that the clock does not reach is not run; in the bare root that fails.
for name, status in ('x', 0), ('bare', 1):
    lane = lanes.Lane(name, 1, ['false'])
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(io.StringIO()):
        lanes.run_lane(lane, folder, time.time())
    good, _ = ran('echo 1 passed, 0 failed, 0 skipped')
    assert lane.counts == [0, 0, 1]
    assert closed(good, lane)[0] == status, name

# What the table and the closing lines have.
lane, _ = ran("""echo 'compiled: b: 7 s'; echo 'tested: b: 5 s'
echo '==== bare, make demo: status 0, 9 s'
echo 'not run: e2e/kv'; echo '4 passed, 0 failed, 1 skipped'""")
status, text = closed(lane, missed=[lanes.Lane('fuzz', 1)])
assert status == 0
assert text.endswith('\n4 passed, 0 failed, 2 skipped\n'), text
for words in ('not run: e2e/kv\n', 'not run: lane fuzz\n',
              'make demo                       9\n'):
    assert words in text, (words, text)
assert [line.split()[2:4] for line in text.splitlines()
        if line.startswith('x ')] == [['7', '5']], text

# A bare root where make demo or make install fails ends the run.
for script, goes_on in [
        ('echo 1 passed, 0 failed, 0 skipped', True),
        ('echo 0 passed, 1 failed, 0 skipped', False),
        ("echo '==== bare, make test'; echo 9 passed, 1 failed, 0 skipped",
         True)]:
    lane, _ = ran(script)
    lane.name = 'bare'
    assert lanes.readme_true([lane]) == goes_on, script

# What the last half day's commits touch: in another user's tree, and in a clone
# that may end within it.
os.environ.update({'GIT_CONFIG_GLOBAL': os.devnull, 'GIT_CONFIG_NOSYSTEM': '1',
                   **{f'GIT_{role}_{what}': 'ci@localhost'
                      for role in ('AUTHOR', 'COMMITTER')
                      for what in ('NAME', 'EMAIL')}})
with tempfile.TemporaryDirectory() as folder:
    def repository(name, *command):
        os.chdir(folder)
        lanes.output('git', *command, name)
        os.chdir(name)

    repository('whole', 'init', '-q', '-b', 'main')
    for name, hours in ('old', 1), ('before', 14), ('last', 24):
        with open(name, 'w', encoding='utf-8'):
            pass
        lanes.output('git', 'add', name)
        lanes.output('git', 'commit', '-qm', name,
                     f'--date={1700000000 + hours * 3600} +0000')
    os.environ['GIT_TEST_ASSUME_DIFFERENT_OWNER'] = '1'
    assert lanes.touched() == {'before', 'last'}, lanes.touched()
    del os.environ['GIT_TEST_ASSUME_DIFFERENT_OWNER']
    for depth, files in ('1', None), ('2', None), ('3', {'before', 'last'}):
        repository(depth, 'clone', '-q', f'--depth={depth}',
                   f'file://{folder}/whole')
        assert lanes.touched() == files, (depth, lanes.touched())
    os.chdir(ROOT)

# Unstable tests: three, but none that was changed.
LINE = 'unstable: a/{0}: its limit; load 3.0; from tests/{0}.c, tests/rig.c'
for many, changed, status in [(3, {'src/a.c'}, 0), (4, {'src/a.c'}, 1),
                              (1, {'tests/rig.c'}, 1), (1, None, 1)]:
    lanes.touched = lambda: changed
    lane, _ = ran('; '.join(f"echo '{LINE.format(i)}'" for i in range(many)) +
                  '; echo 9 passed, 0 failed, 0 skipped')
    assert closed(lane)[0] == status, (many, changed)

# A commit has one plan; each part of the rest is some commit's.
plans = {tuple(' '.join(lane.commands[0]) for lane in lanes.gate(f'{i:08x}'))
         for i in range(200)}
assert {plan[2].split()[2] for plan in plans} == \
    {'test-hw', 'tsan', 'test', 'fuzz-smoke'}
assert len({plan[2] for plan in plans}) == 8, plans  # 4 quarters
assert len({plan[1] for plan in plans}) == 2
print(f'{len(plans)} plans')
