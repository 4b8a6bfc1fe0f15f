# SPDX-License-Identifier: MIT
"""Processes of a comparison: two pinned ends, what they print, the processor
time they take, and that none is left behind.

Every process is a session of its own and dies with this one, however that ends
(PR_SET_PDEATHSIG). The script that makes a Bench calls close(), which kills and reaps
what still runs and removes the folder.
"""

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PR_SET_PDEATHSIG = 1
# That end a run, in order.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """One measurement could not be taken; its text says why."""


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def reaches(port):
    """A process of this network namespace listens there."""
    with open('/proc/net/tcp', encoding='ascii') as a, \
            open('/proc/net/tcp6', encoding='ascii') as b:
        return any(f':{port:04X} ' in line and ' 0A ' in line
                   for line in [*a, *b])


class End:
    """One started process. Its output goes to a file, so it never waits."""

    def __init__(self, bench, words, core, env=None):
        self.words = [str(word) for word in words]
        self.cpu_s = 0.0
        self.status = None
        out = os.path.join(bench.folder, f'out{bench.number()}')
        self.path = out

        def ready():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            if core is not None:
                os.sched_setaffinity(0, {core})

        with open(out, 'wb') as file:
            # pylint: disable-next=subprocess-popen-preexec-fn
            self.popen = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
                cwd=bench.folder, preexec_fn=ready, start_new_session=True)
        self.pid = self.popen.pid

    def text(self):
        with open(self.path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def _reap(self, flags):
        if self.status is None:
            pid, status, used = os.wait4(self.pid, flags)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                self.popen.returncode = self.status
                self.cpu_s = used.ru_utime + used.ru_stime
        return self.status is not None

    def ended(self):
        return self._reap(os.WNOHANG)

    def _sleep_till_end(self, limit):
        ends = os.pidfd_open(self.pid)
        try:
            waiter = select.poll()
            waiter.register(ends, select.POLLIN)
            waiter.poll(max(0, limit - time.monotonic()) * 1000)
        finally:
            os.close(ends)
        if not self.ended():
            self.kill()
            raise Failed(f'{os.path.basename(self.words[0])}: '
                         'not done in time')

    def wait(self, limit):
        """Until it ends; it must do so before the time limit, with status 0."""
        if self.status is None:
            self._sleep_till_end(limit)
        if self.status:
            last = self.text().strip().split('\n')[-1]
            raise Failed(f'{os.path.basename(self.words[0])}: status '
                         f'{self.status}: {last[:160]}')
        return self.text()

    def until(self, what, limit):
        """Waits for what() to be true of a process that lives."""
        while True:
            found = what()
            if found:
                return found
            if self.ended():
                self.wait(limit)
                raise Failed(f'{self.words[0]}: ended at once')
            if time.monotonic() > limit:
                raise Failed(f'{self.words[0]}: not ready in time')
            time.sleep(0.002)

    def kill(self):
        if self.status is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._reap(0)

    def done(self):
        os.unlink(self.path)


class Bench:
    """The cores, the folder and the processes."""

    def __init__(self, build):
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise Failed('needs two cores: both ends of most peers poll')
        self.client_core, self.server_core = allowed[:2]
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix='skein-peers-')
        self.ends = []
        self.count = 0
        self.limit = time.monotonic() + 3600
        self.spinners = []

    def number(self):
        self.count += 1
        return self.count

    def deadline(self, seconds):
        return min(time.monotonic() + seconds, self.limit)

    def start(self, words, core, env=None):
        # A signal between the start and the note of it would leave it behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            end = End(self, words, core, env)
            self.ends.append(end)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return end

    def drop(self, end):
        end.kill()
        end.done()
        if end in self.ends:
            self.ends.remove(end)

    def pair(self, server, ready, client, env=None, seconds=20):
        """Runs server until ready(its text) gives an address, then
        client(address) until both have ended. What the client printed, and
        the seconds of a core that the two took together."""
        limit = self.deadline(seconds)
        one = self.start(server, self.server_core, env)
        try:
            address = one.until(lambda: ready(one.text()), limit)
            two = self.start(client(address), self.client_core, env)
            try:
                text = two.wait(limit)
                one.wait(limit)
                return text, one.cpu_s + two.cpu_s
            except Failed:
                # the other end's reason is often the better one
                if one.ended() and one.status and one.status > 0:
                    one.wait(limit)
                raise
            finally:
                self.drop(two)
        finally:
            self.drop(one)

    def awake(self, on):
        """Keeps both cores from sleeping, by a spinner on each that gives way
        to everybody (SCHED_IDLE)."""
        if on and not self.spinners:
            for core in (self.client_core, self.server_core):
                spinner = self.start(['sh', '-c', 'while :; do :; done'],
                                     core)
                os.sched_setscheduler(spinner.pid, os.SCHED_IDLE,
                                      os.sched_param(0))
                self.spinners.append(spinner)
        for spinner in self.spinners:
            os.kill(spinner.pid, signal.SIGCONT if on else signal.SIGSTOP)

    def close(self):
        for end in self.ends:
            end.kill()
        self.ends = []
        shutil.rmtree(self.folder, ignore_errors=True)
