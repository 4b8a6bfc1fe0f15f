#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`skein run -- CMD`: programs whose TCP connections move onto streams.

* Random programs of socket calls say the same on plain TCP and under skein run,
  and their connections were on streams, and handed back to TCP at a random byte
  (the report says so); also where soft's link carries the streams.
* redis: values that were set come back, while connections are promoted; BGSAVE
  under load; a server whose client is plain, and the other way round; a client
  that is killed; an idle server takes no processor time.

SKEIN_TEST_ROUNDS: how many random programs (15).
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

from harness import (BUILD, SCALE, Case, Failure, LeftOut, left_out, run_cases,
                     tool)

ROUNDS = int(os.environ.get('SKEIN_TEST_ROUNDS') or 15)
SET = os.path.join(BUILD, 'tests', 'e2e', 'run_set')
TALK = os.path.join(BUILD, 'tests', 'e2e', 'run_talk')


def report(path):
    with open(path, encoding='utf-8') as lines:
        return [json.loads(line) for line in lines]


def streams(lines):
    return [line for line in lines if line['carrier'] == 'stream']


def pair(folder, seed, words, name, **settings):
    """Both ends of one random program; what each printed."""
    path = os.path.join(folder, name)
    words = [*words, '--report', path, '--'] if words else []
    env = {**os.environ, 'SKEIN_RUN_AFTER': str(1 + seed % 7), **settings}
    with subprocess.Popen([*words, TALK, 'server', str(seed)], env=env,
                          stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().split()[1]
        client = subprocess.run([*words, TALK, 'client', str(seed), port],
                                env=env, stdout=subprocess.PIPE, text=True,
                                timeout=90 * SCALE, check=False)
        out = server.stdout.read()
        server.wait(90 * SCALE)
    return ((server.returncode, out), (client.returncode, client.stdout)), path


def test_differential():
    on, back = 0, set()
    with Case() as case:
        for seed in range(1, ROUNDS + 1):
            plain, _ = pair(case.folder, seed, [], '')
            ours, path = pair(case.folder, seed, [tool(), 'run'], f'r{seed}')
            if plain != ours:
                raise Failure(f'seed {seed}: plain TCP says\n{plain}\nunder '
                              f'skein run:\n{ours}')
            if plain[0][0] or plain[1][0]:
                raise Failure(f'seed {seed}: {plain}')
            found = report(path)
            on += len(streams(found))
            back |= {line['back'] for line in streams(found)}
            os.unlink(path)
    print(f'{ROUNDS} programs, {on} ends were on streams, back by: {back}')
    if back <= {''}:
        raise Failure('none was handed back to TCP')
    if on < ROUNDS:
        raise Failure('hardly any connection was on a stream')


def test_link():
    """The sockets of soft's own link are not the program's: nothing of them is
    promoted, counted or waited for. The link may give a queue pair up that
    another process on its port starves: the program is told, and ends."""
    with Case() as case:
        for link in ('tcp', 'udp'):
            on = 0
            # On a busy machine the other end's answer may come too late.
            for seed in range(1, 41):
                if on and seed > 4:
                    break
                ours, path = pair(case.folder, seed, [tool(), 'run'], link,
                                  SKEIN_LINK=link)
                if any(end[0] == -signal.SIGALRM for end in ours):
                    raise Failure(f'{link}, seed {seed}: timed out: an end '
                                  'stands still')
                found = report(path)
                os.unlink(path)
                on += len(streams(found))
                if any(':4791' in line['local'] + line['peer']
                       for line in found):
                    raise Failure(f'{link}, seed {seed}: {found}')
            if not on:
                raise Failure(f'{link}: no connection was on a stream')


def refused(words, status=None, **env):
    """What `skein run` says instead of starting the command."""
    done = subprocess.run([tool(), 'run', *words, '--', 'sh', '-c',
                           'echo started'], env={**os.environ, **env},
                          capture_output=True, text=True, check=False,
                          timeout=90 * SCALE)
    if not done.returncode or done.stdout or done.stderr.count('\n') != 1 \
            or status not in (None, done.returncode):
        raise Failure(f'{words} {env}: {done}')
    return done.stderr


def test_options():
    """Settings that make no sense end `skein run`, not the command."""
    for name, value in (('WAIT', 'often'), ('REQUIRE', 'yes'),
                        ('AFTER', '0'), ('AFTER', '8 calls'),
                        ('REPORT', '/no/folder/report')):
        line = refused([], **{'SKEIN_RUN_' + name: value})
        if value not in line:
            raise Failure(line)
    for name, value in (('RING', '5000'), ('RING', '0'), ('QPS', '9'),
                        ('MEM', '1K')):
        line = refused([], status=1, **{'SKEIN_STREAM_' + name: value})
        if f'SKEIN_STREAM_{name}={value}: ' not in line:
            raise Failure(line)
    for words, name in (([], 'SKEIN_SOCKET_LIB'),
                        (['--verbs'], 'SKEIN_VERBS_LIB')):
        line = refused(words, status=1, **{name: '/no/library.so'})
        if f'{name}=/no/library.so: No such file' not in line:
            raise Failure(line)
    refused(['--verbs'], status=1, SKEIN_VERBS_DEVICES='foo')
    refused(['--report', '/no/folder/report'])
    refused(['--wait', 'tcp', '--require'])
    refused(['--require'], SKEIN_RUN_WAIT='tcp')
    for words, option in ((['--pollers', '17'], '--pollers'),
                          (['--pollers', '2'], '--wait=bpev'),
                          (['--wait', 'spin'], '--wait'),
                          (['--verbs', '--back', 'heap,'], '--back'),
                          (['--verbs', '--back', 'stack'], '--back'),
                          (['--verbs', '--link', 'token'], '--link')):
        if option not in refused(words, status=2):
            raise Failure(words)
    refused(['--verbs'], SKEIN_VERBS_BACK='stack')
    for words, env, wanted in (
            ([], {}, ''), ([], {'SKEIN_RUN_WAIT': 'event'}, 'event'),
            (['--wait', 'event'], {'SKEIN_RUN_WAIT': 'tcp'}, 'event')):
        said = subprocess.run(
            [tool(), 'run', *words, '--', 'sh', '-c',
             'echo "$SKEIN_RUN_WAIT"'], env={**os.environ, **env},
            capture_output=True, text=True, check=True,
            timeout=90 * SCALE).stdout
        if said != wanted + '\n':
            raise Failure(f'{words} {env}: {said}')


def test_unknown_setting():
    """A name that nothing reads is a line, and the command runs."""
    done = subprocess.run([tool(), 'run', '--', 'true'], capture_output=True,
                          env={**os.environ, 'SKEIN_RUN_AFTR': '3'},
                          text=True, check=True, timeout=90 * SCALE)
    if 'SKEIN_RUN_AFTR: no such setting; did you mean SKEIN_RUN_AFTER?' \
            not in done.stderr:
        raise Failure(done)


class Redis:
    """redis-server on a free port, under skein run or not."""

    def __init__(self, case, wrapped=True, words=()):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.port = probe.getsockname()[1]
        self.report = os.path.join(case.folder, 'server.report')
        self.folder = os.path.join(case.folder, 'redis')
        os.mkdir(self.folder)
        front = [tool(), 'run', '--report', self.report, '--'] if wrapped \
            else []
        self.case = case
        self.process = case.start(
            [*front, 'redis-server', '--port', str(self.port), '--bind',
             '127.0.0.1', '--save', '', '--dir', self.folder, *words])
        self.process.expect(r'Ready to accept connections')

    def talk(self, *words, wrapped=True, name='client.report', **options):
        front = [tool(), 'run', '--report',
                 os.path.join(self.case.folder, name), '--'] if wrapped else []
        return subprocess.run([*front, *words], stdout=subprocess.PIPE,
                              text=True, timeout=100 * SCALE, check=True,
                              **options).stdout

    def bench(self, *words, **options):
        return self.talk('redis-benchmark', '-p', str(self.port), '-q',
                         *words, **options)

    def cli(self, *words, **options):
        return self.talk('redis-cli', '-p', str(self.port), *words,
                         wrapped=False, **options)

    def on_streams(self, *words, count=1):
        """Connections make these calls, until so many were on streams: on a
        busy machine the other end's answer may come too late for some."""
        def promoted():
            self.bench(*words)
            return len(streams(report(self.report))) >= count
        self.case.until(f'{count} connections on streams', promoted, 100)

    def stop(self):
        self.process.stop()
        shutil.rmtree(self.folder)
        found = report(self.report) if os.path.exists(self.report) else []
        for name in os.listdir(self.case.folder):
            if name.endswith('.report'):
                os.unlink(os.path.join(self.case.folder, name))
        return found


def test_redis():
    """Values that redis-benchmark sets through a promoted connection are those
    that a plain client reads."""
    with Case() as case:
        redis = Redis(case)
        redis.bench('-c', '1', '-n', '5000', '-d', '3', '-t', 'set,get')
        redis.bench('-c', '10', '-n', '5000', '-r', '10', 'SET',
                    'k:__rand_int__', 'v' * 20000)
        value = redis.cli('GET', 'k:000000000003').strip()
        if value != 'v' * 20000:
            raise Failure(f'a value of {len(value)} bytes came back')
        redis.on_streams('-c', '5', '-P', '16', '-n', '20000', '-t', 'set,get',
                         count=10)
        found = redis.stop()
    for line in streams(found):
        if line['calls_before'] < 8 or not line['rx_stream']:
            raise Failure(f'not promoted in mid-stream: {line}')
        if bool(line['tx_stream']) > line['records'] or \
                line['records'] > line['tx_stream'] + 2:
            raise Failure(f'miscounted: {line}')


def test_bgsave():
    """A fork under load: the child saves, the parent's streams go on."""
    with Case() as case:
        redis = Redis(case)
        redis.bench('-c', '4', '-n', '4000', '-r', '1000', '-t', 'set')
        load = case.start([tool(), 'run', '--', 'redis-benchmark', '-p',
                           str(redis.port), '-c', '4', '-n', '30000', '-t',
                           'set,get', '-q'])
        redis.cli('BGSAVE')
        case.until('the end of BGSAVE', lambda: 'rdb_bgsave_in_progress:0' in
                   redis.cli('INFO', 'persistence'))
        if 'rdb_last_bgsave_status:ok' not in redis.cli('INFO', 'persistence'):
            raise Failure('BGSAVE failed')
        load.exits(0, timeout=90)
        redis.on_streams('-c', '4', '-n', '4000', '-t', 'set')
        redis.stop()


def test_plain_peers():
    """One end only: plain TCP, and the report says why."""
    with Case() as case:
        redis = Redis(case)
        redis.bench('-c', '2', '-n', '3000', '-t', 'get', wrapped=False)
        found = redis.stop()
    if streams(found) or not found:
        raise Failure(f'{found}')
    with Case() as case:
        redis = Redis(case, wrapped=False)
        redis.bench('-c', '1', '-n', '3000', '-t', 'get')
        found = report(os.path.join(case.folder, 'client.report'))
        redis.stop()
    reasons = {line['reason'] for line in found}
    if streams(found) or not reasons & {
            'the other end does not run under skein run',
            'the other end did not answer',
            'the other end has not answered'}:
        raise Failure(f'{found}')


SERVER = """
import asyncio
async def echo(reader, writer):
    while data := await reader.read(100):
        writer.write(data)
    writer.close()
async def main():
    server = await asyncio.start_server(echo, '127.0.0.1', 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
# It speaks 2000 times, and on until its input ends.
CLIENT = """
import select, socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
i = 0
while i < 2000 or not select.select([0], [], [], 0)[0]:
    s.sendall(b'PING')
    assert s.recv(100) == b'PING', i
    i += 1
"""
# A thread that is in poll() all the time keeps this end from being promoted;
# when it is told to, dup() keeps it on TCP for good.
UNFIT = """
import os, select, socket, sys, threading
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def speak(count):
    for i in range(count):
        s.sendall(b'%012d' % i)
        assert s.recv(100) == b'%012d' % i, i
ends = select.poll()
ends.register(s, 0)
# Only a call that waits lets the other thread go on: poll() is the first.
sys.setswitchinterval(100)
threading.Thread(target=ends.poll, daemon=True).start()
while not select.select([0], [], [], 0)[0]:
    speak(20)
speak(200) # the server's next call that finds it idle promotes its end
os.close(os.dup(s.fileno()))
speak(2000)
"""

# A sandbox forbids getsockopt(TCP_INQ), without which no end is promoted. It is
# there before the library, which would see it come. The client is hardly ever in
# a call, so that the library's own thread tries.
FORBIDDEN = """
import ctypes, os, socket, struct, sys, time
def step(*words):
    return struct.pack('=HBBI', *words)
steps = (step(0x20, 0, 0, 0),                # the call's number
         step(0x15, 0, 3, 55),               # getsockopt()?
         step(0x20, 0, 0, 32),               # the option
         step(0x15, 0, 1, 36),               # TCP_INQ?
         step(0x06, 0, 0, 0x50000 | 1),      # EPERM
         step(0x06, 0, 0, 0x7fff0000))       # allowed
filter = ctypes.create_string_buffer(b''.join(steps))
prog = struct.pack('@HP', len(steps), ctypes.addressof(filter))
libc = ctypes.CDLL(None, use_errno=True)
if 'LIBRARY' not in os.environ:
    os.environ['LIBRARY'] = os.environ.pop('LD_PRELOAD')
    os.execv(sys.executable, sys.orig_argv)
if 'LD_PRELOAD' not in os.environ:
    assert not libc.prctl(38, 1, 0, 0, 0)
    assert not libc.syscall(317, 1, 1, prog), ctypes.get_errno()
    os.environ['LD_PRELOAD'] = os.environ['LIBRARY']
    os.execv(sys.executable, sys.orig_argv)
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
for i in range(400):
    s.sendall(b'PING')
    assert s.recv(100) == b'PING', i
    time.sleep(0.002)
"""

# Another program takes the client's place, or a forked child's, while an answer
# is under way.
EXEC = """
import os, select, socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def speak(count):
    for i in range(count):
        s.sendall(b'PING')
        assert s.recv(100) == b'PING', i
while not select.select([0], [], [], 0)[0]:
    speak(20)
NEW = '''
import socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
assert s.recv(4, socket.MSG_WAITALL) == b'LAST'
for i in range(100):
    s.sendall(b'PONG')
    assert s.recv(100) == b'PONG', i
'''
s.sendall(b'LAST')
s.set_inheritable(True)
if FORKS and os.fork():
    assert os.wait()[1] == 0
    speak(100)
else:
    os.execl(sys.executable, 'python3', '-c', NEW, str(s.fileno()))
"""

# A spawned child that has no copy of the socket leaves the stream as it is.
SPAWN = """
import json, os, select, socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def speak(count):
    for i in range(count):
        s.sendall(b'PING')
        assert s.recv(100) == b'PING', i
while not select.select([0], [], [], 0)[0]:
    speak(20)
child = os.posix_spawn('/bin/sleep', ['sleep', '600'], os.environ)
speak(300)
s.close()
def server_ended():
    with open(os.environ['SKEIN_RUN_REPORT']) as lines:
        return any(json.loads(line)['pid'] != os.getpid() for line in lines)
end = time.monotonic() + 60
while not server_ended():
    assert time.monotonic() < end, 'the report: not within 60 s'
    time.sleep(.01)
assert os.waitpid(child, os.WNOHANG) == (0, 0)
os.kill(child, 9)
"""


def listed():
    """The connections of all programs under skein run."""
    said = subprocess.run([tool(), 'run', '--list', '--json'], check=True,
                          capture_output=True, text=True, timeout=90 * SCALE)
    return json.loads(said.stdout)['connections']


def speak(case, words, client, port, wanted):
    """Runs a client: to its end, or until each end of its connection is in one
    of these states of the list, for promoting takes as long as it takes."""
    def states():
        return sorted(line['reason'] or line['carrier'] for line in listed()
                      if f':{port}' in line['local'] + line['peer'])

    def reached():
        found = states()
        return len(found) == 2 and not set(found) - set(wanted)

    if not wanted:
        case.start([*words, client, port], 'client').exits(0, 90)
        return
    ours, tell = os.pipe()
    speaker = case.start([*words, client, port], 'client', stdin=ours)
    os.close(ours)
    try:
        case.until(f'{wanted}', reached, 60)
    except Failure as failure:
        raise Failure(f'{failure}, but {states()}') from None
    os.close(tell)
    speaker.exits(0, 90)


def echo(client, wanted=None, lines=2, **settings):
    """An asyncio server, with these settings, and a client in Python: the
    report."""
    with Case() as case:
        path = os.path.join(case.folder, 'report')
        words = [tool(), 'run', '--report', path, '--', sys.executable, '-c']
        server = case.start([*words, SERVER], 'server', env=settings)
        port = server.expect(r'^(\d+)$').group(1)
        speak(case, words, client, port, wanted)
        case.until('the ends of the server',
                   lambda: len(report(path)) >= lines)
        server.stop(None)
        found = report(path)
        os.remove(path)
    return found


# The parent accepts, a child serves. "close": the parent closes its copy; "keep":
# it does so only when the child has gone, and then answers itself; "used": it
# has served before; "set": its epoll set has the connection.
FORKS = """
import os, select, socket, sys
how = sys.argv[1]
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
one = listener.accept()[0]
listener.close()
def serve(times):
    for _ in range(times):
        data = one.recv(100)
        if not data:
            break
        one.sendall(data)
if how == 'used':
    serve(1)
if how == 'set':
    ends = select.epoll()
    ends.register(one, select.EPOLLIN)
child = os.fork()
if child == 0:
    if how == 'set':
        for _ in range(1990):
            assert ends.poll(30)
            serve(1)
    serve(1990 if how == 'keep' else 10 ** 9)
    sys.exit(0)
if how != 'keep':
    one.close()
assert os.waitpid(child, 0)[1] == 0
if how == 'keep':
    serve(3000)
"""


def test_forking_server():
    """A child has what its parent accepted and never used for itself."""
    for how, carrier, reason in (
            ('close', 'stream', ''),
            ('keep', 'tcp', 'another process has it too'),
            ('used', 'tcp', 'a forked child may have it too'),
            ('set', 'tcp', None)):
        with Case() as case:
            path = os.path.join(case.folder, 'report')
            words = [tool(), 'run', '--report', path, '--', sys.executable,
                     '-c']
            server = case.start([*words, FORKS, how])
            port = server.expect(r'(\d+)').group(1)
            if how == 'close':
                speak(case, words, CLIENT, port, ['stream'])
            else:
                case.start([*words, CLIENT, port]).exits(0, 90)
            server.exits(0)
            found = report(path)
            os.unlink(path)
        ends = {line['local'].split(':')[1] == port: line for line in found}
        if {line['carrier'] for line in found} != {carrier}:
            raise Failure(f'{how}: {found}')
        if reason is not None and reason not in [
                line['reason'] for line in found]:
            raise Failure(f'{how}: no such reason: {found}')
        if how == 'close' and not (ends[True]['rx_stream'] and
                                   ends[False]['rx_stream']):
            raise Failure(f'{found}')


def test_blocking_client():
    found = echo(CLIENT, ['stream'])
    if len(streams(found)) != 2:
        raise Failure(f'{found}')


def test_late_end():
    """The accepting end listens when the calls after which the other one dials
    are long over."""
    found = echo(CLIENT, ['stream'], SKEIN_RUN_AFTER='20000')
    if len(streams(found)) != 2:
        raise Failure(f'{found}')


def test_shared_set():
    """Connections are closed while threads sleep at their epoll set."""
    with Case() as case:
        path = os.path.join(case.folder, 'report')
        words = [tool(), 'run', '--report', path, '--', SET]
        server = case.start([*words, 'server'])
        port = server.expect(r'port (\d+)').group(1)
        case.start([*words, 'client', port, '12']).exits(0)
        if not server.running():
            raise Failure('the server has ended')
        server.kill()
        if not streams(report(path)):
            raise Failure('no connection was on a stream')
        os.unlink(path)


def test_unfit_end():
    """An end that cannot be promoted after all: the other one goes back."""
    found = echo(UNFIT, ['a call was in the kernel at all times',
                         'the other end could not be promoted'])
    reasons = [line['reason'] for line in found]
    if sorted(reasons) != ['fcntl(F_DUPFD)',
                           'the other end could not be promoted']:
        raise Failure(f'{found}')


def test_forbidden():
    """An end that a sandbox keeps from being promoted goes on by TCP."""
    if os.uname().machine != 'x86_64':
        raise LeftOut("the sandbox's filter is written for x86-64")
    reasons = sorted(line['reason'] for line in echo(FORBIDDEN))
    # The second: the server's end was promoted already, or not yet.
    if reasons[0] != 'a system call for it failed' or reasons[1] not in (
            'the other end could not be promoted',
            'the other end went back to TCP'):
        raise Failure(f'{reasons}')


# Speaks ARGV[2] times with the server at ARGV[1]; then does as it is told.
TOLD = """
import socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    s.sendall(b'x')
    s.recv(1)
print('said', flush=True)
if input() == 'close':
    s.close()
else:
    s.detach()
print('done', flush=True)
"""


def unanswered(process):
    """Has an attempt of its to meet the other end come to nothing?"""
    return any(line['pid'] == process.pid and
               line['reason'] == 'the other end did not answer'
               for line in listed())


def test_exec():
    """A socket that is not close-on-exec goes back to TCP before an exec."""
    for forks in (False, True):
        found = echo(f'FORKS = {forks}\n' + EXEC, ['stream'],
                     1 + forks)
        backs = [line['back'] for line in found]
        if 'the other end went back to TCP' not in backs:
            raise Failure(f'forks {forks}: {found}')


def test_spawn():
    found = echo(SPAWN, ['stream'])
    if len(streams(found)) != 2 or any(line['demotions'] for line in found):
        raise Failure(f'{found}')


def test_closed():
    """A program finds the standard descriptors closed that skein run was given
    closed."""
    with Case() as case:
        case.start(['sh', '-c', '"$0" run -- sh -c "echo x 2>/dev/null || exit 7" '
                    '>&-', tool()]).exits(7)


def test_require():
    """A connection that was to be met, and was on TCP to its end, is fatal;
    one that ended before it was worth a meeting is not."""
    with Case() as case, socket.create_server(('127.0.0.1', 0)) as plain:
        path = os.path.join(case.folder, 'report')

        def run(words, count, told):
            ours, tell = os.pipe()
            client = case.start(
                [tool(), 'run', *words, '--report', path, '--',
                 sys.executable, '-c', TOLD, str(plain.getsockname()[1]),
                 str(count)], stdin=ours)
            os.close(ours)
            server, _ = plain.accept()
            with server:
                for _ in range(count):
                    server.sendall(server.recv(1))
                client.expect('^said$')
                if count > 8:
                    case.until('no answer', lambda: unanswered(client))
                os.write(tell, f'{told}\n'.encode())
                os.close(tell)
                client.exits(70 if words and count > 8 else 0)
            line, = report(path)
            os.unlink(path)
            if line['carrier'] != 'tcp' or not line['undecided']:
                raise Failure(f'{line}')
            return client, line['reason']

        for told in ('close', 'exit'):
            _, reason = run(['--require'], 3, told)
            if reason != 'too few calls':
                raise Failure(reason)
            for words in ([], ['--require']):
                client, reason = run(words, 10, told)
                if reason != 'the other end did not answer':
                    raise Failure(reason)
            client.expect(rf'with 127\.0\.0\.1:{plain.getsockname()[1]} was on '
                          'TCP to its end: the other end did not answer; it has '
                          'to be started by skein run, too$')


# Speaks ARGV[2] times, and until it is told; then does as CASE says.
CHILDREN = """
import os, select, socket, subprocess, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def speak(count):
    for i in range(count):
        s.sendall(b'PING')
        assert s.recv(100) == b'PING', i
speak(3)
while not EARLY and not select.select([0], [], [], 0)[0]:
    speak(20)
def exits(code):
    pid = os.fork()
    if pid == 0:
        os._exit(0) if code is None else os.execv('/bin/true', ['true'])
    os.waitpid(pid, 0)
    speak(100)
if CASE == 'vfork':
    subprocess.run(['/bin/true'], pass_fds=[s.fileno()])
    speak(100)
if CASE in ('idle', 'idle at exit'):
    exits(None)
if CASE in ('execs', 'execs at exit'):
    exits('exec')
if 'exit' in CASE:
    s.detach()
"""


def reaped():
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return True
    return False


def children(case, early, status):
    """The status of a program under --require that has had a child, none of
    which is left. Returns the report."""
    with Case() as run:
        path = os.path.join(run.folder, 'report')
        words = [tool(), 'run', '--report', path]
        server = run.start([*words, '--', sys.executable, '-c', SERVER])
        port = server.expect(r'^(\d+)$').group(1)
        ours, tell = os.pipe()
        program = f'CASE, EARLY = {case!r}, {early}\n{CHILDREN}'
        client = run.start([*words, '--require', '--', sys.executable, '-c', program,
                            port], stdin=ours)
        os.close(ours)
        if not early:
            run.until('streams', lambda: [
                line['carrier'] for line in listed() if f':{port}' in
                line['local'] + line['peer']] == 2 * ['stream'], 60)
        os.close(tell)
        client.exits(status, 60)
        server.stop(None)
        run.until('no child is left', reaped, 60)
        lines = report(path)
        os.unlink(path)
        return lines


def test_require_vfork():
    """A child of vfork() that is to have the connection ends with its parent."""
    for early in False, True:
        children('vfork', early, 70)


def test_require_forked():
    """A connection that was on a stream to its end is not fatal, though its end
    hands the stream back for a child that may have it."""
    for case in 'idle', 'idle at exit', 'execs', 'execs at exit':
        for line in children(case, False, 0):
            if bool(line['demotions']) != bool(line['back']):
                raise Failure(f'{case}: {line}')


# Sends more than TCP's buffers take at once and closes, ARGV[1] times.
SENDER = """
import socket, sys
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    for _ in range(int(sys.argv[1])):
        one, _ = listener.accept()
        with one:
            for _ in range(40):
                one.sendall(bytes(5000))
"""

# Reads what SENDER at ARGV[1] sends, to its end, ARGV[2] times.
READER = """
import socket, sys
for _ in range(int(sys.argv[2])):
    with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as s:
        n = 0
        while data := s.recv(5000):
            n += len(data)
        assert n == 200000, n
"""


def test_require_ended():
    """A connection that its end overtakes was not refused, which --require
    would end its program for."""
    with Case() as case:
        path = os.path.join(case.folder, 'report')
        words = [tool(), 'run', '--report', path, '--', sys.executable, '-c']
        server = case.start([*words, SENDER, '60'])
        port = server.expect(r'(\d+)').group(1)
        case.start([*words, READER, port, '60']).exits(0)
        server.exits(0)
        refused = [line for line in report(path)
                   if line['carrier'] == 'tcp' and not line['undecided']]
        os.unlink(path)
    if refused:
        raise Failure(f'{refused}')


def test_killed_client():
    """The server hears of it, and serves on."""
    with Case() as case:
        redis = Redis(case)
        load = case.start([tool(), 'run', '--', 'redis-benchmark', '-p',
                           str(redis.port), '-c', '3', '-l', '-t', 'set', '-q'])

        def clients():
            text = redis.cli('INFO', 'clients')
            return int(re.search(r'connected_clients:(\d+)', text).group(1))

        case.until('clients', lambda: clients() >= 4)
        case.until('a value', lambda: int(redis.cli('DBSIZE').split()[-1]) > 0)
        os.kill(load.pid, signal.SIGKILL)
        case.until('the end of the killed clients', lambda: clients() == 1)
        load.exits(-signal.SIGKILL)
        redis.bench('-c', '1', '-n', '1000', '-t', 'get')
        redis.stop()


def cpu_s(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
        fields = stat.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    TESTS = [test_options, test_differential, test_link, test_shared_set,
             test_blocking_client, test_late_end, test_forking_server,
             test_unfit_end, test_forbidden, test_exec, test_spawn, test_closed,
             test_require, test_require_vfork, test_require_forked, test_require_ended]
    if shutil.which('redis-server') and shutil.which('redis-benchmark'):
        TESTS += [test_redis, test_bgsave, test_plain_peers,
                  test_killed_client]
    else:
        left_out('the tests of redis', 'it is not installed')
    run_cases(*TESTS)
