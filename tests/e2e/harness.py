# SPDX-License-Identifier: MIT
"""What end-to-end tests share: start processes, wait for what they print, stop,
kill and collect them, and see what they leave behind.

    from harness import Case, DEVICES, tool

    with Case() as case:
        server = case.start([tool(), 'kv', 'serve', '127.0.0.1:0'],
                            device=DEVICES.server)
        address = server.expect(r'listening on (\\S+)').group(1)
        client = case.start([...], device=DEVICES.client)
        client.exits(0)
        server.stop()

Rules:
* No sleeping: wait for a line (expect), an exit (exits), or a state of the
  world (case.until), each with a deadline that fails the test.
* A Case kills and reaps all it started when it ends, grandchildren too: it is
  a subreaper. Processes die with the test itself.
* Each Case has a folder of its own (case.folder, also TMPDIR of its processes),
  removed at the end; what is left in it by then fails the test.
* Ports: listen on port 0 and read the address that the server prints; a program
  that cannot gets a Port().

* A process that was given a device must have opened that one, in that mode: it
  says so in its log, which the Case reads. Each device met is printed.

Environment:
  SKEIN_BUILD               the build folder (default: build beside the sources)
  SKEIN_TEST_DEVICE         the server's device (soft)
  SKEIN_TEST_DEVICE2        the client's device (the server's)
  SKEIN_TEST_HOST           the server's address: 127.0.0.1 with soft, else
                            that of rxe0 in scripts/rdma-vm.sh's guest
  SKEIN_TEST_MODE           harsh: soft's harsh mode (docs/soft.md)
  SKEIN_TEST_HARSH_SEED     the first seed of harsh mode (1)
  SKEIN_TEST_HARSH_SEEDS    how many seeds, one after the other (1)
  SKEIN_TEST_TIME_SCALE     multiplies every deadline (1; slow guests: more)
  SKEIN_TEST_ROUNDS         rounds of tests that repeat (their own default)
"""

import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get('SKEIN_BUILD') or
                        os.path.join(ROOT, 'build'))
SCALE = float(os.environ.get('SKEIN_TEST_TIME_SCALE') or 1)
# Long enough for a loaded machine; a test that needs it is failing.
DEADLINE_S = 20.0
PORTS = range(20000, 30000)  # below those that the kernel gives out
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PF_EXITING = 4  # of /proc/PID/stat
LIBC = ctypes.CDLL(None, use_errno=True)


# What src/dev/dev.c logs of a device that was opened.
DEVICE_LINE = re.compile(r'^skein: (?:info: )?device (\S+) \(([^,)]+)'
                         r'(?:, ([^)]*))?\), GID (\S+): ')
INFO_LINE = re.compile(r'^skein: info: ')
# A context has this page from its first tenth of a second on: what compares two
# moments leaves it out.
COUNTERS = 'memfd:skein-counters'


class Mode:
    """Kind, or harsh with a seed for each process."""

    def __init__(self, env):
        self.harsh = env.get('SKEIN_TEST_MODE') == 'harsh'
        self.first = int(env.get('SKEIN_TEST_HARSH_SEED') or 1)
        self.seed = self.first
        self.seeds = int(env.get('SKEIN_TEST_HARSH_SEEDS') or 1) \
            if self.harsh else 1
        self.asked = 0  # processes that were told which device to take
        self.met = {}  # device, GID, mode as printed: how often

    def env(self, number):
        """For the number-th process of a Case: each has a seed of its own."""
        if not self.harsh:
            return {'SKEIN_SOFT_HARSH': ''}
        return {'SKEIN_SOFT_HARSH': str(self.seed + number)}

    def replay(self):
        words = [f'SKEIN_BUILD={BUILD}']
        if self.harsh:
            words += ['SKEIN_TEST_MODE=harsh',
                      f'SKEIN_TEST_HARSH_SEED={self.seed}']
        return ' '.join(words + ['python3', '-B', *sys.argv])


class Devices:
    """Which device each end takes, and the server's address without port."""

    def __init__(self, env):
        self.server = env.get('SKEIN_TEST_DEVICE') or 'soft'
        self.client = env.get('SKEIN_TEST_DEVICE2') or self.server
        self.soft = self.server == 'soft'
        self.host = env.get('SKEIN_TEST_HOST') or (
            '127.0.0.1' if self.soft else '10.99.0.1')

    @property
    def listen(self):
        return self.host + ':0'

    @property
    def exposed(self):
        """What a server of the tool wants to be told of that address."""
        return [] if self.host.startswith('127.') else ['--insecure']


DEVICES = Devices(os.environ)
MODE = Mode(os.environ)


class Failure(Exception):
    """The test has failed; its text says how."""


def tool():
    return built('tools/skein')


def built(path):
    return os.path.join(BUILD, path)


def whole():
    """In `make soak` all is done of what other runs do a part of."""
    return bool(os.environ.get('SKEIN_TEST_ROUNDS'))


def rounds(default, part=None):
    """Of a test that repeats: a part of them, but in `make soak`; where seeds
    are many, each has few."""
    if not whole():
        return part or default
    return default if MODE.seeds > 1 else int(os.environ['SKEIN_TEST_ROUNDS'])


def fewer(count):
    """Operations of one after the other, where each takes its time: harsh mode
    delays each by up to milliseconds, a sanitizer's or a slow guest's deadlines
    are SCALE times as long."""
    return max(count // 100, 10) if MODE.harsh else int(count / SCALE)


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


class LeftOut(Exception):
    """A case that cannot be tried here; its text says why."""


def left_out(name, why):
    """scripts/run-tests.py counts such a line as a skip."""
    print(f'left out: {name}: {why}')


def status_text(status):
    if status is None:
        return 'still running'
    if status < 0:
        return f'killed by {signal.Signals(-status).name}'
    return f'status {status}'


def dying(pid):
    """A SIGKILL is on its way to it: the kernel's, for the end of its parent
    (LeakSanitizer's own process, where its program was killed as it ended)."""
    with open(f'/proc/{pid}/status', encoding='utf-8') as status:
        pending = int(re.search(r'^SigPnd:\s*(\w+)', status.read(), re.M)[1],
                      16)
    if pending >> (signal.SIGKILL - 1) & 1:
        return True
    with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
        flags = int(stat.read().rsplit(')', 1)[1].split()[6])
    if not flags & PF_EXITING:
        return False
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ended.si_status == signal.SIGKILL


class Process:
    """One started process. stdout and stderr are read at once by threads, so
    it never blocks on a full pipe; lines are kept for expect()."""

    def __init__(self, argv, name, env, preexec, stdin):
        self.name = name
        self.argv = argv
        self.device = None
        self.harsh_seed = None
        self.opened = []  # (kind, name, mode, GID) of its devices
        self.log = []
        self.lines = []
        self.seen = {'out': 0, 'err': 0}
        self.changed = threading.Condition()
        self.popen = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=env, preexec_fn=preexec,
            start_new_session=True)
        self.pid = self.popen.pid
        self.readers = [threading.Thread(target=self._read, args=stream,
                                         daemon=True)
                        for stream in ((self.popen.stdout, 'out'),
                                       (self.popen.stderr, 'err'))]
        self.open = len(self.readers)
        for reader in self.readers:
            reader.start()

    def _read(self, stream, kind):
        for line in stream:
            line = line.decode(errors='replace').rstrip('\n')
            with self.changed:
                if self._logged(line):
                    continue
                self.lines.append((kind, line))
                self.changed.notify_all()
        with self.changed:
            self.open -= 1
            self.changed.notify_all()

    def _logged(self, line):
        """What is in the log for the harness alone: tests do not see it."""
        match = DEVICE_LINE.match(line)
        if match:
            kind, name, mode, gid = match.groups()
            self.opened.append((kind, name, mode or '', gid))
        elif not INFO_LINE.match(line):
            return False
        self.log.append(line)
        return True

    def check_devices(self):
        """It took what it was told to take, and nothing else."""
        if not self.device:
            return
        MODE.asked += 1
        kind, _, name = self.device.partition(':')
        mode = f'harsh, seed {self.harsh_seed}' if kind == 'soft' and \
            self.harsh_seed else ''
        for opened in self.opened:
            if opened[0] != kind or (name and opened[1] != name) or \
                    opened[2] != mode:
                raise Failure(f'{self.name}: told to take {self.device} '
                              f'({mode or "not harsh"}), took {opened}')
            words = f'device {opened[0]} ({opened[1]}), GID {opened[3]}, ' + \
                ('harsh' if mode else 'not harsh')
            MODE.met[words] = MODE.met.get(words, 0) + 1

    def text(self, kind=None):
        with self.changed:
            return '\n'.join(line for which, line in self.lines
                             if kind in (None, which))

    def expect(self, pattern, timeout=DEADLINE_S):
        """Waits for a line that matches, after those of its pipe that earlier
        calls found: lines of two pipes have no order. Returns the match."""
        limit = time.monotonic() + timeout * SCALE
        with self.changed:
            at = min(self.seen.values())
            while True:
                while at < len(self.lines):
                    kind, line = self.lines[at]
                    at += 1
                    match = at > self.seen[kind] and re.search(pattern, line)
                    if match:
                        self.seen[kind] = at
                        return match
                left = limit - time.monotonic()
                if self.open == 0 or left <= 0:
                    break
                self.changed.wait(left)
        raise Failure(f'{self.name}: no line matches {pattern!r} '
                      f'({"ended" if self.open == 0 else "deadline"})')

    def exits(self, status=0, timeout=DEADLINE_S):
        """Waits for the end, which must have this status (a negative one: that
        signal; None: any). Returns the status."""
        try:
            got = self.popen.wait(timeout * SCALE)
        except subprocess.TimeoutExpired:
            raise Failure(f'{self.name}: still running after '
                          f'{timeout * SCALE:g} s') from None
        for reader in self.readers:
            reader.join(1)
        if status is not None and got != status:
            raise Failure(f'{self.name}: ended with {status_text(got)}, '
                          f'expected {status_text(status)}')
        return got

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        """kill -9, and its end."""
        self.signal(signal.SIGKILL)
        self.exits(-signal.SIGKILL)

    def stop(self, status=0, timeout=DEADLINE_S):
        """SIGTERM, and an end in order."""
        self.signal(signal.SIGTERM)
        self.exits(status, timeout)

    def pause(self):
        """SIGSTOP, and every thread stopped when it returns."""
        self.signal(signal.SIGSTOP)
        limit = time.monotonic() + DEADLINE_S * SCALE
        while any(state not in 'Tt' for state in self.states()):
            if time.monotonic() > limit:
                raise Failure(f'{self.name}: did not stop')
            time.sleep(0.001)

    def resume(self):
        self.signal(signal.SIGCONT)

    def states(self):
        """One letter a thread."""
        return [text.rsplit(')', 1)[1].split()[0]
                for text in self.of_threads('stat')]

    def ran_ns(self):
        """Processor time of the threads that it has."""
        return sum(int(text.split()[0])
                   for text in self.of_threads('schedstat'))

    def of_threads(self, name):
        """This file of each thread; one may end while it is looked at."""
        for task in os.listdir(f'/proc/{self.pid}/task'):
            try:
                with open(f'/proc/{self.pid}/task/{task}/{name}',
                          encoding='utf-8') as file:
                    yield file.read()
            except (FileNotFoundError, ProcessLookupError):
                continue

    def descriptors(self):
        """What its descriptors are: {kind: count}, kinds like socket,
        memfd:NAME, anon_inode:[eventfd], or a path."""
        kinds = {}
        for number in os.listdir(f'/proc/{self.pid}/fd'):
            try:
                kind = os.readlink(f'/proc/{self.pid}/fd/{number}')
            except FileNotFoundError:
                continue
            kind = re.sub(r':\[\d+\]$', '', kind)
            kind = re.sub(r'^/(memfd:\S*).*', r'\1', kind)
            kind = re.sub(r'^/proc/\d+', '/proc/PID', kind)
            if kind == COUNTERS:
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
        return kinds

    def mappings(self):
        """How many shared mappings of memfds it has, and of how many bytes."""
        count = size = 0
        with open(f'/proc/{self.pid}/maps', encoding='utf-8') as maps:
            for line in maps:
                if COUNTERS not in line and \
                        ('/memfd:' in line or '/dev/shm/' in line):
                    low, high = line.split()[0].split('-')
                    count += 1
                    size += int(high, 16) - int(low, 16)
        return count, size

    def threads(self):
        return len(os.listdir(f'/proc/{self.pid}/task'))


class Port:
    """A port that no other test of ours takes: an abstract socket is the
    lock, and goes with this process. A process id would do for no lock: other
    PID namespaces on this machine have the same ones."""

    def __init__(self):
        while True:
            self.number = random.choice(PORTS)
            self.lock = socket.socket(socket.AF_UNIX)
            try:
                self.lock.bind(f'\0skein-test-port-{self.number}')
                for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
                    with socket.socket(socket.AF_INET, kind) as probe:
                        probe.bind(('', self.number))
                return
            except OSError:
                self.lock.close()

    def close(self):
        self.lock.close()


def shm_files():
    try:
        return {name for name in os.listdir('/dev/shm') if 'skein' in name}
    except FileNotFoundError:
        return set()


class Case:
    """One test: all that it starts is gone when it ends."""

    def __init__(self):
        self.processes = []
        self.started = 0
        self.folder = None
        self.shm = set()

    def __enter__(self):
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.folder = tempfile.mkdtemp(prefix='skein-test-')
        self.shm = shm_files()
        return self

    def start(self, argv, name=None, device=None, env=None, limits=None,
              stdin=subprocess.DEVNULL):
        """Starts a process. device becomes its SKEIN_DEVICE; limits is a list
        of (resource.RLIMIT_X, soft limit)."""
        mode = MODE.env(self.started)
        self.started += 1
        surroundings = {**os.environ, 'TMPDIR': self.folder, **mode,
                        'SKEIN_LOG': 'info',
                        **({'SKEIN_DEVICE': device} if device else {}),
                        **(env or {})}
        parent = os.getpid()

        def preexec():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(125)
            if limits:
                import resource
                for which, value in limits:
                    hard = resource.getrlimit(which)[1]
                    resource.setrlimit(which, (value, hard))

        process = Process([str(word) for word in argv],
                          name or os.path.basename(argv[0]), surroundings,
                          preexec, stdin)
        process.device = device
        process.harsh_seed = surroundings['SKEIN_SOFT_HARSH']
        self.processes.append(process)
        return process

    def until(self, what, condition, timeout=DEADLINE_S):
        """Waits until condition() holds: for what another process or the
        kernel does in its own time and nobody prints."""
        limit = time.monotonic() + timeout * SCALE
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > limit:
                raise Failure(f'not within {timeout * SCALE:g} s: {what}')
            time.sleep(0.002)

    def strangers(self):
        """Children of ours that we did not start: orphans of our processes."""
        known = {process.pid for process in self.processes}
        with open(f'/proc/self/task/{os.getpid()}/children',
                  encoding='utf-8') as children:
            return [int(pid) for pid in children.read().split()
                    if int(pid) not in known]

    def forget(self, process):
        """Drops an ended process and its lines (tests of many rounds)."""
        process.exits(None)
        process.check_devices()
        self.processes.remove(process)

    def _collect(self):
        """Ends what runs, and its orphans; returns those."""
        # All before the first is waited for: one that sees another's end
        # would end by itself, half-way through when its own signal comes.
        for process in self.processes:
            if process.running():
                process.signal(signal.SIGKILL)
        for process in self.processes:
            process.popen.wait()
        orphans = []
        for pid in self.strangers():
            if not dying(pid):
                orphans.append(pid)
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return orphans

    def __exit__(self, kind, error, trace):
        if kind is LeftOut:
            kind = error = None
        orphans = self._collect()
        # ThreadSanitizer's own, of a process that was killed as it began.
        files = [name for name in os.listdir(self.folder)
                 if not name.startswith('tsan.')]
        shutil.rmtree(self.folder, ignore_errors=True)
        # Other tests run beside this one: only names with our pids count.
        shared = [name for name in shm_files() - self.shm
                  if any(str(process.pid) in name
                         for process in self.processes)]
        left = [f'process {pid}' for pid in orphans] + \
            [f'file {name}' for name in files] + \
            [f'/dev/shm/{name}' for name in shared]
        if kind is None:
            try:
                if left:
                    raise Failure('left behind: ' + ', '.join(left))
                for process in self.processes:
                    process.check_devices()
            except Failure as failure:
                self.tell(failure)
                raise
        if error:
            self.tell(error)
        return False

    def tell(self, error):
        print(f'FAILED: {error}')
        for process in self.processes:
            print(f'---- {process.name} ({" ".join(process.argv)}): '
                  f'{status_text(process.popen.poll())}')
            if process.harsh_seed:
                print(f'SKEIN_SOFT_HARSH={process.harsh_seed}')
            print('\n'.join(process.log[:4]))
            print(process.text()[-8000:])


def run_case(case):
    begun = time.monotonic()
    try:
        case()
    except LeftOut as why:
        left_out(case.__name__, why)
        return
    except BaseException as error:
        if not isinstance(error, SystemExit):
            print(f'{case.__name__}: FAILED: {error}')
            print(f'again: {MODE.replay()}')
        if isinstance(error, Failure):
            sys.exit(1)
        raise
    print(f'{case.__name__}: ok ({time.monotonic() - begun:.2f} s)')


def run_cases(*cases):
    """Runs test functions in order, once for each seed; exit status 1 at the
    first that fails; one that raises LeftOut counts as a skip. It is a failure too when processes were told to take a
    device and none said that it did."""
    for MODE.seed in range(MODE.first, MODE.first + MODE.seeds):
        if MODE.harsh:
            print(f'harsh mode, seed {MODE.seed}')
        for case in cases:
            run_case(case)
    for words, count in sorted(MODE.met.items()):
        print(f'{words}: opened {count} times')
    if MODE.asked and not MODE.met:
        print('FAILED: no process said which device it took')
        sys.exit(1)
