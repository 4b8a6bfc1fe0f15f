#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cp.py [--json FILE] [--rounds N] [--size MIB] [--receivers N]
[--ways NAME,...] [BUILD] - `skein cp` of one file to directories on tmpfs, all
on this machine, beside what people use: scp and rsync (its daemon: no
encryption), one target after the other, and nc to all at once. "cp" is cp(1) of
the file to each directory, all at once: what writing the files costs, without
sending or checking anything; a bound.

All ways are run in turns, round by round, into directories that are empty; a
ratio is the median over the rounds of one time by the other, since the machine
changes more between rounds. `skein cp` verifies every block, rsync every file,
nc nothing; "nc+sum" is nc, then xxh128sum at each target, all at once. What
arrived is compared with what was sent, out of the time. Before each way as much is
written and removed, out of the time, too: in a virtual machine the first process that writes
after a pause waits for the host's pages. The processors' time of
all processes of a way, with that of those that were started before the clock
was, is told apart: on a machine that does other things besides it says more
than the clock. A way that is not there is named with the reason. Exits 0 when
skein cp and one other could be run.
"""

import argparse
import filecmp
import json
import os
import pwd
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60


class Missing(Exception):
    """A way that cannot be measured here; its text says why."""


def program(name, *folders):
    path = shutil.which(name, path=':'.join([os.environ['PATH'], *folders]))
    if not path:
        raise Missing(f'{name} is not installed')
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def listens(port):
    with open('/proc/net/tcp', encoding='ascii') as a, \
            open('/proc/net/tcp6', encoding='ascii') as b:
        return any(f':{port:04X} ' in line and ' 0A ' in line
                   for line in [*a, *b])


def until(what, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise Missing(f'{what}: not within {PATIENCE_S} s')
        time.sleep(0.01)


class Bed:
    """The file, the directories, and what was started."""

    def __init__(self, args):
        self.folder = tempfile.mkdtemp(prefix='skein-bench-', dir='/dev/shm')
        self.file = os.path.join(self.folder, 'file')
        self.dirs = [os.path.join(self.folder, f'd{n}')
                     for n in range(args.receivers)]
        self.started = []
        with open('/dev/urandom', 'rb') as random, \
                open(self.file, 'wb') as file:
            for _ in range(args.size):
                file.write(random.read(1 << 20))

    def clear(self):
        for path in self.dirs:
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path)

    def touch(self):
        """As much memory as a way will write, from the host if need be."""
        for path in self.dirs:
            shutil.copyfile(self.file, os.path.join(path, 'file'))
        self.clear()

    def check(self):
        for path in self.dirs:
            if not filecmp.cmp(self.file, os.path.join(path, 'file'), False):
                raise Missing(f'{path}/file is not what was sent')

    def start(self, words, **options):
        process = subprocess.Popen(words, start_new_session=True, **options)
        self.started.append(process)
        return process

    def stop(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.started:
            process.wait()
        self.started = []

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def call(words, **options):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          **options)
    if done.returncode:
        text = done.stderr.decode(errors='replace').strip()
        raise Missing(f'{words[0]}: {text or done.returncode}')
    return done.stdout.decode()


# Each way prepares out of the time, and returns what is timed.

def way_skein(bed, args):
    tool = os.path.join(args.build, 'tools', 'skein')
    env = {**os.environ, 'SKEIN_DEVICE': args.device}
    targets = []
    for path in bed.dirs:
        receiver = bed.start([tool, 'cp', '--serve', path, '--port', '0',
                              '--listen', '127.0.0.1'],
                             stdout=subprocess.PIPE, env=env)
        line = receiver.stdout.readline().decode()
        targets.append(re.search(r'listening on (\S+),', line).group(1))
    return lambda: call([tool, 'cp', bed.file, ','.join(targets)], env=env)


def way_rsync(bed, args):
    rsync = program('rsync')
    port = free_port()
    conf = os.path.join(bed.folder, 'rsyncd.conf')
    with open(conf, 'w', encoding='ascii') as file:
        file.write('use chroot = no\nmax verbosity = 0\n')
        if not os.geteuid():
            file.write('uid = root\ngid = root\n')
        for number, path in enumerate(bed.dirs):
            file.write(f'[d{number}]\npath = {path}\nread only = no\n')
    bed.start([rsync, '--daemon', '--no-detach', f'--port={port}',
               '--address=127.0.0.1', f'--config={conf}'],
              stderr=subprocess.DEVNULL)
    until('rsync --daemon', lambda: listens(port))

    def run():
        for number in range(len(bed.dirs)):
            call([rsync, '--whole-file', bed.file,
                  f'rsync://127.0.0.1:{port}/d{number}/'])
    return run


def way_scp(bed, args):
    sshd = program('sshd', '/usr/sbin')
    scp = program('scp')
    keys = os.path.join(bed.folder, 'ssh')
    if not os.path.isdir(keys):
        os.mkdir(keys, 0o700)
        for name in ('host', 'user'):
            call([program('ssh-keygen'), '-q', '-t', 'ed25519', '-N', '',
                  '-f', os.path.join(keys, name)])
    if not os.geteuid():
        os.makedirs('/run/sshd', exist_ok=True)
    port = free_port()
    bed.start([sshd, '-D', '-f', '/dev/null', '-p', str(port), '-h',
               f'{keys}/host', '-o', 'ListenAddress=127.0.0.1', '-o',
               f'AuthorizedKeysFile={keys}/user.pub', '-o', 'StrictModes=no',
               '-o', 'PermitRootLogin=prohibit-password', '-o', 'PidFile=none',
               '-o', 'Subsystem=sftp internal-sftp'],
              stderr=subprocess.DEVNULL)
    until('sshd', lambda: listens(port))
    user = pwd.getpwuid(os.geteuid()).pw_name
    words = [scp, '-q', '-F', '/dev/null', '-i', f'{keys}/user', '-P',
             str(port), '-o', 'StrictHostKeyChecking=no', '-o',
             'UserKnownHostsFile=/dev/null', '-o', 'LogLevel=ERROR', bed.file]
    return lambda: [call([*words, f'{user}@127.0.0.1:{path}/'])
                    for path in bed.dirs]


def way_nc(bed, args):
    nc = program('nc')
    ports = []
    for path in bed.dirs:
        ports.append(free_port())
        with open(os.path.join(path, 'file'), 'wb') as file:
            bed.start([nc, '-l', '-d', '127.0.0.1', str(ports[-1])],
                      stdout=file, stderr=subprocess.DEVNULL)
        until('nc -l', lambda: listens(ports[-1]))
    servers = list(bed.started)

    def run():
        senders = []
        for port in ports:
            with open(bed.file, 'rb') as file:
                senders.append(bed.start([nc, '-N', '127.0.0.1', str(port)],
                                         stdin=file,
                                         stdout=subprocess.DEVNULL))
        for process in senders + servers:
            if process.wait():
                raise Missing(f'nc: status {process.returncode}')
    return run


def way_nc_sum(bed, args):
    xxh = program('xxh128sum')
    run = way_nc(bed, args)

    def both():
        run()
        sums = [bed.start([xxh, os.path.join(path, 'file')],
                          stdout=subprocess.PIPE) for path in bed.dirs]
        texts = {process.communicate()[0].split()[0] for process in sums}
        if len(texts) != 1:
            raise Missing('nc: the sums differ')
    return both


def way_cp(bed, _):
    cp = program('cp')

    def run():
        for path in bed.dirs:
            bed.start([cp, bed.file, os.path.join(path, 'file')])
        for process in bed.started:
            if process.wait():
                raise Missing(f'cp: status {process.returncode}')
    return run


WAYS = {'skein cp': way_skein, 'nc, parallel': way_nc,
        'nc+sum, parallel': way_nc_sum, 'rsync, in turn': way_rsync,
        'scp, in turn': way_scp, 'cp, parallel': way_cp}


def cpu_seconds():
    """Of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(bed, name, args):
    """Seconds by the clock, and of the processors."""
    bed.clear()
    bed.touch()
    before = cpu_seconds()
    try:
        run = WAYS[name](bed, args)
        begun = time.monotonic()
        run()
        seconds = time.monotonic() - begun
        bed.stop()
        used = cpu_seconds() - before
        bed.check()
        return seconds, used
    finally:
        bed.stop()


def rounds(bed, args):
    seconds = {name: [] for name in WAYS}
    cpu = {name: [] for name in WAYS}
    missing = {}
    if args.ways:
        missing = {name: 'not asked for' for name in WAYS
                   if name != 'skein cp' and
                   name.split(',')[0] not in args.ways.split(',')}
    for number in range(args.rounds):
        for name in WAYS:
            if name in missing:
                continue
            if sys.stderr.isatty():
                print(f'\rround {number + 1}, {name}\033[K', end='',
                      file=sys.stderr)
            try:
                took, used = measure(bed, name, args)
                seconds[name].append(took)
                cpu[name].append(used)
            except Missing as why:
                missing[name] = str(why)
    if sys.stderr.isatty():
        print('\r\033[K', end='', file=sys.stderr)
    return seconds, cpu, missing


def ratios(values, name):
    return [other / mine for mine, other in zip(values['skein cp'],
                                                values[name])]


def report(args, seconds, cpu, missing):
    got = {'size_bytes': args.size << 20, 'receivers': args.receivers,
           'device': args.device, 'rounds': args.rounds,
           'load': os.getloadavg(), 'ways': {}}
    print(f'{args.size} MiB to {args.receivers} directories on tmpfs, '
          f'{args.rounds} rounds, load {os.getloadavg()[0]:.1f} on '
          f'{os.cpu_count()} CPUs\n')
    print(f'{"way":18} {"seconds":>8} {"least":>8} {"x skein cp":>11} '
          f'{"CPU s":>8} {"x skein cp":>11}')
    for name in WAYS:
        if name in missing or not seconds[name]:
            got['ways'][name] = {'missing': missing.get(name, 'not run')}
            print(f'{name:18} {missing.get(name, "not run")}')
            continue
        ratio = statistics.median(ratios(seconds, name))
        cpu_ratio = statistics.median(ratios(cpu, name))
        got['ways'][name] = {'seconds': seconds[name], 'ratio': ratio,
                             'ratios': ratios(seconds, name),
                             'cpu_seconds': cpu[name], 'cpu_ratio': cpu_ratio}
        print(f'{name:18} {statistics.median(seconds[name]):8.2f} '
              f'{min(seconds[name]):8.2f} {ratio:11.2f} '
              f'{statistics.median(cpu[name]):8.2f} {cpu_ratio:11.2f}')
    return got


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('] - ')[0])
    parser.add_argument('--json', metavar='FILE')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--size', type=int, default=1024, help='MiB')
    parser.add_argument('--receivers', type=int, default=7)
    parser.add_argument('--ways', metavar='NAME,...',
                        help='of nc, nc+sum, rsync, scp, cp; default all')
    parser.add_argument('--device', default='soft')
    parser.add_argument('build', nargs='?', default='build')
    args = parser.parse_args()
    # an end by a signal, too, removes what was made
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bed = Bed(args)
    try:
        seconds, cpu, missing = rounds(bed, args)
    finally:
        bed.close()
    got = report(args, seconds, cpu, missing)
    if args.json:
        with open(args.json, 'w', encoding='utf-8') as file:
            json.dump(got, file, indent=2)
    compared = set(WAYS) - {'skein cp', 'cp, parallel'} - set(missing)
    sys.exit(0 if seconds['skein cp'] and compared else 1)


if __name__ == '__main__':
    main()
