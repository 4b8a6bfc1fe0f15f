#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`skein run`: a socket becomes another connection, or another program's, while it
is on a stream. Both ends say what they say on plain TCP.

* connect() with AF_UNSPEC, and a second connect().
* A child has the socket: posix_spawn(), system(), popen(), vfork() and exec, and
  children that no handler of fork() knows.
* A forked child has it when its parent has gone, in any way but a kill.
* A filter forbids system calls, before and after it came onto a stream.
"""

import os
import re
import sys

from harness import BUILD, Case, Failure, LeftOut, run_cases, tool
from test_run import listed, reaped, report, streams

# Both ends speak until the client's input ends; then each does its part.
HEAD = """
import ctypes, errno, os, select, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def say(*words):
    print(*words, flush=True)
def recvn(s, n):
    got = b''
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            break
        got += more
    return got
"""
CLIENT = HEAD + """
port = int(sys.argv[1])
s = socket.create_connection(('127.0.0.1', port))
def ping(s, count):
    for i in range(count):
        s.sendall(b'PING')
        assert recvn(s, 4) == b'PING', i
while not select.select([0], [], [], 0)[0]:
    ping(s, 20)
s.sendall(b'OVER')
"""
SERVER = HEAD + """
listener = socket.create_server(('127.0.0.1', 0))
say('port', listener.getsockname()[1])
def pong(s):
    while True:
        word = recvn(s, 4)
        if word != b'PING':
            return word
        s.sendall(word)
s, _ = listener.accept()
word = pong(s)
assert word == b'OVER', word
"""


def both_on(port):
    ends = [line['carrier'] for line in listed()
            if f':{port}' in line['local'] + line['peer']]
    return ends == ['stream', 'stream']


def said(case, words, client, server, on, killed=False):
    """What both ends print; under skein run they are on streams when each does
    its part, but without `on`."""
    words = [*words, sys.executable, '-c']
    env = {'SKEIN_RUN_IDLE': '0'} # an idle stream goes back by itself
    serves = case.start([*words, SERVER + server], 'server', env=env)
    port = serves.expect(r'port (\d+)').group(1)
    ours, tell = os.pipe()
    if not on:
        os.close(tell)
    speaks = case.start([*words, CLIENT + client, port], 'client', env=env,
                        stdin=ours)
    os.close(ours)
    if len(words) > 2 and on:
        case.until('both ends are on streams', lambda: both_on(port), 60)
    if on:
        os.close(tell)
    speaks.exits(-9 if killed else 0, 30)
    serves.exits(0, 60)
    case.until('children that were left have ended', reaped, 60)
    return [re.sub(r'port \d+\n', '', process.text('out'))
            for process in (serves, speaks)]


def same(client, server, wanted, on=True, wait='adaptive'):
    """The ends say this on TCP and on streams. Returns the report."""
    with Case() as case:
        path = os.path.join(case.folder, 'report')
        for words in [], [tool(), 'run', '--wait', wait, '--report', path,
                          '--']:
            found = said(case, words, client, server, on)
            if found != wanted:
                raise Failure(f'{words}: server and client say {found}, not '
                              f'{wanted}')
        lines = report(path)
        os.unlink(path)
        return lines


# --- another peer ------------------------------------------------------------

AGAIN_SERVER = """
t, _ = listener.accept()
word = recvn(t, 6)
say('second', word)
t.sendall(word)
s.settimeout(20)
try:
    say('first', s.recv(9))
except ConnectionResetError:
    say('first reset')
say('second', pong(t))
"""
# With a set: it goes on to report the socket, by the same word.
AGAIN = """
ends = select.epoll()
WITH_SET and ends.register(s, select.EPOLLIN)
try:
    s.connect(('127.0.0.1', port))
except OSError as why:
    say(why.errno == errno.EISCONN)
assert DISCONNECT(s.fileno(), struct.pack('H14x', 0), 16) == 0
try:
    s.send(b'lost', socket.MSG_NOSIGNAL)
except ConnectionResetError:
    say('not connected')
s.connect(('127.0.0.1', port))
s.sendall(b'second')
assert not WITH_SET or ends.poll(20)[0][0] == s.fileno()
say(recvn(s, 6))
ping(s, 500)
s.close()
"""


# The same of a socket that this program has from the one before. Nobody knows what
# has it.
INHERITED = """
s.set_inheritable(True)
os.execv(sys.executable, [sys.executable, '-c', PROGRAM, str(port), str(s.fileno())])
"""
AGAIN_INHERITED = HEAD + """
port, s = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
ends = select.epoll()
ends.register(s, select.EPOLLIN)
assert DISCONNECT(s.fileno(), struct.pack('H14x', 0), 16) == 0
s.connect(('127.0.0.1', port))
s.sendall(b'second')
say(recvn(s, 6))
for i in range(500):
    s.sendall(b'PING')
    assert ends.poll(20) == [(s.fileno(), select.EPOLLIN)]
    assert recvn(s, 4) == b'PING', i
ends.unregister(s)
s.close()
"""


def again_inherited():
    for call in 'libc.connect', 'lambda *args: libc.syscall(42, *args)':
        if os.uname().machine != 'x86_64' and 'syscall' in call:
            continue
        program = AGAIN_INHERITED.replace('DISCONNECT', f'({call})')
        same(f'PROGRAM = {program!r}\n' + INHERITED, AGAIN_SERVER,
             ["second b'second'\nfirst reset\nsecond b''", "b'second'"])


# Reset behind bytes that have just gone back to TCP, while one before them is not
# acknowledged: its answer came by the stream.
OVERTAKEN = HEAD + """
import array, fcntl, termios
def unacknowledged(s):
    count = array.array('i', [0])
    fcntl.ioctl(s.fileno(), termios.TIOCOUTQ, count)
    return count[0]
def switched(s):
    for i in range(3000):
        s.sendall(b'PING')
        assert recvn(s, 4) == b'PING', i
        if unacknowledged(s):
            return True
    return False
port = int(sys.argv[1])
s = socket.create_connection(('127.0.0.1', port))
while not switched(s):
    s.close()
    s = socket.create_connection(('127.0.0.1', port))
s.sendall(b'STOP')
s.sendall(b'OVER')
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2)
assert libc.connect(s.fileno(), struct.pack('H14x', 0), 16) == 0
say('reset')
sys.stdin.read()
"""
OVERTAKEN_SERVER = HEAD + """
listener = socket.create_server(('127.0.0.1', 0))
say('port', listener.getsockname()[1])
word = b''
while word != b'STOP':
    s, _ = listener.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    while (word := recvn(s, 4)) == b'PING':
        s.sendall(word)
sys.stdin.read()
say(recvn(s, 4))
try:
    s.recv(4)
except ConnectionResetError:
    say('reset')
"""


def overtaken():
    with Case() as case:
        words = [tool(), 'run', '--', sys.executable, '-c']
        waits, tell = os.pipe()
        serves = case.start([*words, OVERTAKEN_SERVER], 'server', stdin=waits)
        port = serves.expect(r'port (\d+)').group(1)
        speaks = case.start([*words, OVERTAKEN, port], 'client', stdin=waits)
        os.close(waits)
        speaks.expect('reset')
        os.close(tell)
        serves.expect("b'OVER'")
        serves.expect('reset')
        speaks.exits(0)
        serves.exits(0)


# A signal that the mask lets through, for a thread that polls and does not sleep,
# and for one that has no time. (epoll_pwait() without time leaves it pending, by the
# kernel, too.) A thread that sleeps after all, where another program wants its core,
# shows nothing.
MASKED_SERVER = """
say(recvn(s, 4))
"""
MASKED = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
signal.signal(signal.SIGALRM, lambda *args: None)
none, events = ctypes.create_string_buffer(128), ctypes.create_string_buffer(12)
fd = ctypes.create_string_buffer(struct.pack('ihh', s.fileno(), select.POLLIN, 0))
fds = ctypes.create_string_buffer(128)
fds[s.fileno() // 8] = bytes([1 << s.fileno() % 8])
now = ctypes.create_string_buffer(16)
ends = select.epoll()
ends.register(s, select.EPOLLIN)
for call in (lambda: libc.ppoll(fd, 1, None, none),
             lambda: libc.epoll_pwait(ends.fileno(), events, 1, -1, none)):
    signal.setitimer(signal.ITIMER_REAL, .05)
    say(call(), ctypes.get_errno())
for call in (lambda: libc.ppoll(fd, 1, now, none),
             lambda: libc.pselect(s.fileno() + 1, fds, None, None, now, none)):
    signal.raise_signal(signal.SIGALRM)
    say(call(), ctypes.get_errno())
signal.raise_signal(signal.SIGALRM)
say(libc.epoll_pwait(ends.fileno(), events, 1, 0, none), signal.sigpending())
s.sendall(b'done')
"""


def masked():
    wanted = '-1 4\n-1 4\n-1 4\n-1 4\n0 {<Signals.SIGALRM: 14>}'
    for wait in 'bp', 'bpts', 'adaptive':
        same(MASKED, MASKED_SERVER, ["b'done'", wanted], wait=wait)


# What was written to a connection that exec closes is read.
CLOSED_SERVER = """
left = 0
while data := s.recv(1 << 16):
    left += len(data)
say(left)
"""
CLOSED = """
s.sendall(bytes(300000))
os.execv('/bin/true', ['true'])
"""


def closed_by_exec():
    """That exec waits for the peer is shown by unit/socket/hold_up: here the bytes
    may all be in time without."""
    same(CLOSED, CLOSED_SERVER, ['300000', ''])


def again(name, with_set, call):
    def case():
        if os.uname().machine != 'x86_64' and 'syscall' in call:
            raise LeftOut('the number is that of x86-64')
        wanted = ["second b'second'\nfirst reset\nsecond b''",
                  "True\nnot connected\nb'second'"]
        lines = same(f'WITH_SET = {with_set}\nDISCONNECT = {call}\n' + AGAIN,
                     AGAIN_SERVER, wanted)
        if len(lines) < 3 or len(streams(lines)) < 2:
            raise Failure(f'{lines}')
    case.__name__ = name
    return case


# --- a child -----------------------------------------------------------------

CHILD_SERVER = """
s.sendall(b'two\\n')
say('child', recvn(s, 8))
say('parent', pong(s))
"""
CHILD = """
n = s.fileno()
assert n < 10, n # a shell has no others
SHELL = ['sh', '-c', 'read a; echo got $a']
NUMBER = f'read a <&{n}; echo got $a >&{n}'
def wait(pid):
    assert pid > 0, pid
    return os.waitpid(pid, 0)[1]
def itself(pid):
    if pid == 0:
        s.sendall(b'got ' + recvn(s, 4))
        os._exit(0)
    return wait(pid)
def inherited(call, *args):
    s.set_inheritable(True)
    return call(*args)
def spawned():
    to = [(os.POSIX_SPAWN_DUP2, n, 0), (os.POSIX_SPAWN_DUP2, n, 1)]
    return wait(os.posix_spawn('/bin/sh', SHELL, os.environ, file_actions=to))
def piped():
    libc.popen.restype = ctypes.c_void_p
    return libc.pclose(ctypes.c_void_p(libc.popen(NUMBER.encode(), b'r')))
def cloned():
    stack = ctypes.create_string_buffer(1 << 20)
    main = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: itself(0))
    top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 19))
    return wait(libc.clone(main, top, 17, None))
ways = {
    'spawned': spawned,
    'spawned_number': lambda: inherited(lambda: wait(os.posix_spawn(
        '/bin/sh', ['sh', '-c', NUMBER], os.environ))),
    'system': lambda: inherited(libc.system, NUMBER.encode()),
    'popen': lambda: inherited(piped),
    'vfork': lambda: subprocess.run(SHELL, stdin=s, stdout=s).returncode,
    'vfork_number': lambda: subprocess.run(['sh', '-c', NUMBER],
                                           pass_fds=[n]).returncode,
    'Fork': lambda: itself(libc._Fork()),
    'clone': cloned,
    'syscall_fork': lambda: itself(libc.syscall(57)),
    'syscall_clone': lambda: itself(libc.syscall(56, 17, 0, 0, 0, 0)),
}
say(ways[WAY]())
ping(s, 300)
s.close()
"""


def child(way):
    def case():
        if os.uname().machine != 'x86_64' and 'syscall' in way:
            raise LeftOut('the numbers are those of x86-64')
        lines = same(f'WAY = {way!r}\n' + CHILD, CHILD_SERVER,
                     ["child b'got two\\n'\nparent b''", '0'])
        if not any(line['back'] not in ('', 'the other end went back to TCP')
                   for line in streams(lines)):
            raise Failure(f'{way}: {lines}')
    case.__name__ = 'child_' + way
    return case


# An exec that finds no program, of the usual kinds.
NOTHING = """
s.set_inheritable(True)
nobody = 'no-such-program'
def forked(execs):
    child = os.fork()
    if not child:
        try:
            execs()
        finally:
            os._exit(127)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def failed(starts, *words, **more):
    try:
        starts(*words, **more)
    except OSError as e:
        return e.errno
args = (ctypes.c_char_p * 2)(nobody.encode(), None)
say(libc.execvp(args[0], args), ctypes.get_errno())
say(forked(lambda: libc.execvp(args[0], args)))
say(forked(lambda: os.execvp(nobody, [nobody])))
say(failed(subprocess.Popen, [nobody], pass_fds=[s.fileno()]))
say(failed(os.posix_spawnp, nobody, [nobody], os.environ))
ping(s, 100)
s.sendall(b'OVER')
os._exit(0) # a close would hand back what a child has had; no report
"""


def found_nowhere():
    lines = same(NOTHING, 'say(pong(s))', ["b'OVER'", '-1 2\n127\n127\n2\n2'])
    if [line['demotions'] for line in streams(lines)] != [0]:
        raise Failure(f'{lines}')


# --- a child that is left -----------------------------------------------------

LEFT_SERVER = """
word = pong(s)
s.sendall(b'bye!')
say('child', word, recvn(s, 4))
"""
LEFT = """
ends = os.pipe()
def leave(part=None):
    if os.fork() == 0:
        os.close(ends[1])
        part and part()
        return
    os.close(ends[0])
    if HOW == 'close':
        s.close()
    if HOW == 'exit':
        libc.exit(0) # Python's own would close it first
    if HOW == 'exec':
        os.execv('/bin/true', ['true'])
    if HOW == 'syscall':
        libc.syscall(231, 0)
    if HOW == '_Exit':
        libc._Exit(0)
    os._exit(0)
def second():
    ends[:] = os.pipe()
    leave()
ends = list(ends)
leave(second if HOW == 'twice' else None)
assert os.read(ends[0], 1) == b'' # the parent has gone
ping(s, 100)
s.sendall(b'OVER')
assert recvn(s, 4) == b'bye!'
os._exit(0)
"""


# A child of a child has it, on the stream of a parent that stays.
GRAND = """
done = os.pipe()
child = os.fork()
if child:
    os.close(done[1])
    wait = os.waitpid(child, 0)
    os._exit(os.read(done[0], 1) != b'')
if os.fork():
    os._exit(0)
ping(s, 100)
s.sendall(b'OVER')
assert recvn(s, 4) == b'bye!'
s.close()
"""


# A parent that is killed hands nothing back; what is on TCP by then goes on.
KILLED = """
ends, spare = os.pipe(), os.open('/dev/null', os.O_RDONLY)
if os.fork():
    if BACK:
        os.dup2(s.fileno(), spare)
    os.kill(os.getpid(), 9)
os.close(ends[1])
os.read(ends[0], 1)
begun = time.monotonic()
try:
    ping(s, 100)
    s.sendall(b'OVER')
    say(recvn(s, 4))
except ConnectionResetError:
    say('reset, late:', time.monotonic() - begun > WAIT)
os._exit(0)
"""
KILLED_SERVER = """
try:
    word = pong(s)
    s.sendall(b'bye!')
    say('child', word, recvn(s, 4))
except OSError:
    say('reset')
"""


def killed():
    """The child is told at once, not after the 10 s of a parent that is slow."""
    with Case() as case:
        for back, right in (True, "b'bye!'"), (False, 'reset, late: False'):
            found = said(case, [tool(), 'run', '--'],
                         f'BACK, WAIT = {back}, 8\n' + KILLED, KILLED_SERVER,
                         True, killed=True)
            if found[1] != right:
                raise Failure(f'{back}: {found}')


# Of many connections each one is reset, at both ends: the child uses its own when
# all threads of the server have ended.
MANY = """
import threading
N, ends = 20, os.pipe()
def echo(t):
    try:
        pong(t)
    except OSError:
        pass
def pong(t):
    while (word := t.recv(4)):
        t.sendall(word)
listener = socket.create_server(('127.0.0.1', 0), backlog=N)
port = listener.getsockname()[1]
if not os.fork():
    say('port', port)
    for i in range(N):
        threading.Thread(target=echo, args=listener.accept()[:1]).start()
    sys.exit(0)
all = [socket.create_connection(('127.0.0.1', port)) for i in range(N)]
def ping(s):
    s.sendall(b'PING')
    return recvn(s, 4)
while not select.select([0], [], [], 0)[0]:
    for s in all:
        ping(s)
if os.fork():
    os.kill(os.getpid(), 9)
os.close(ends[1])
os.read(ends[0], 1)
resets = 0
for s in all:
    try:
        ping(s)
    except ConnectionResetError:
        resets += 1
say('resets', resets)
os._exit(0)
"""


def killed_with_many():
    """One line says how many connections are reset, and no reader sleeps on."""
    def all_on(port):
        return sum(line['carrier'] == 'stream' for line in listed()
                   if f':{port}' in line['local'] + line['peer']) == 40
    with Case() as case:
        ours, tell = os.pipe()
        both = case.start([tool(), 'run', '--', sys.executable, '-c',
                           HEAD + MANY], env={'SKEIN_RUN_IDLE': '0'},
                          stdin=ours)
        os.close(ours)
        port = both.expect(r'port (\d+)').group(1)
        case.until('all are on streams', lambda: all_on(port), 60)
        os.close(tell)
        both.expect('resets 20')
        both.exits(-9, 30)
        lines = both.text('err').splitlines()
        if len(lines) > 5 or '; 19 more are on its streams' not in lines[0]:
            raise Failure(f'{len(lines)} lines: {lines[:3]}')
        case.until('children that were left have ended', reaped, 60)


def child_of_a_child():
    same(GRAND, LEFT_SERVER, ["child b'OVER' b''", ''])


def left(how):
    def case():
        if os.uname().machine != 'x86_64' and how == 'syscall':
            raise LeftOut('the number is that of x86-64')
        lines = same(f'HOW = {how!r}\n' + LEFT, LEFT_SERVER,
                     ["child b'OVER' b''", ''])
        if not streams(lines):
            raise Failure(f'{lines}')
    case.__name__ = 'left_by_' + how
    return case


# --- a sandbox ----------------------------------------------------------------

# Kills the process for calls that the library makes and the program does not.
# The numbers are those of x86-64.
FILTER = """
KILLED = (16, 24, 25, 28, 41, 43, 46, 47, 51, 52, 53, 54, 55, 56, 57, 58, 77, 137,
          202, 203, 204, 213, 233, 271, 281, 284, 288, 290, 291, 293, 310,
          311, 319, 324, 434, 435, 441, 449)
def forbid(tsync):
    def step(*words):
        return struct.pack('=HBBI', *words)
    steps = [step(0x20, 0, 0, 0)]
    for i, n in enumerate(KILLED):
        steps.append(step(0x15, len(KILLED) - i, 0, n))
    steps += step(6, 0, 0, 0x7fff0000), step(6, 0, 0, 0x80000000)
    filter = ctypes.create_string_buffer(b''.join(steps))
    prog = struct.pack('@HP', len(steps), ctypes.addressof(filter))
    # As libraries ask whether there are filters.
    assert libc.prctl(22, 2, None, 0, 0) == -1
    assert libc.syscall(317, 1, 0, None) == -1
    assert not libc.prctl(38, 1, 0, 0, 0)
    if tsync:
        assert not libc.syscall(317, 1, 1, prog), ctypes.get_errno()
    else:
        assert not libc.prctl(22, 2, prog, 0, 0), ctypes.get_errno()
"""
SANDBOX = FILTER + """
ends = select.poll()
ends.register(s, select.POLLIN)
forbid(TSYNC)
for i in range(300):
    s.sendall(b'PING')
    assert ends.poll(20000)
    assert recvn(s, 4) == b'PING', i
s.sendall(b'DONE')
s.close()
say('done')
os._exit(0)
"""
SANDBOXED_SET = FILTER + """
ends = select.epoll()
ends.register(s, select.EPOLLIN)
for i in range(100):
    s.sendall(b'PING')
    assert ends.poll(20)
    assert recvn(s, 4) == b'PING', i
forbid(TSYNC)
for i in range(300):
    s.sendall(b'PING')
    assert ends.poll(20) == [(s.fileno(), select.EPOLLIN)]
    assert recvn(s, 4) == b'PING', i
s.sendall(b'DONE')
s.close()
say('done')
os._exit(0)
"""


def sandbox(name, client, tsync, early):
    def case():
        if os.uname().machine != 'x86_64':
            raise LeftOut('the filter is written for x86-64')
        found = same(f'TSYNC = {tsync}\n' + client, "say(pong(s))",
                     ["b'DONE'", 'done'], not early)
        if early == bool(streams(found)):
            raise Failure(f'{found}')
    case.__name__ = name
    return case


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(again('again', False, 'libc.connect'),
              again('again_in_a_set', True, 'libc.connect'),
              again('again_by_syscall', False,
                    'lambda *args: libc.syscall(42, *args)'),
              again_inherited, overtaken, closed_by_exec, masked,
              *map(child, ('spawned', 'spawned_number', 'system', 'popen',
                           'vfork', 'vfork_number', 'Fork', 'clone',
                           'syscall_fork', 'syscall_clone')),
              *map(left, ('close', 'exit', '_exit', '_Exit', 'syscall', 'exec',
                          'twice')), child_of_a_child, killed,
              killed_with_many, found_nowhere,
              sandbox('sandbox', SANDBOX, False, False),
              sandbox('sandbox_of_all_threads', SANDBOX, True, False),
              sandbox('sandbox_with_a_set', SANDBOXED_SET, True, False),
              sandbox('early_sandbox', SANDBOX, True, True))
