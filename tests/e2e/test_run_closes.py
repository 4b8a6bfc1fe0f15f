#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`skein run`: a program that closes or replaces numbers that it does not know,
as daemons do. They are not the library's: the connections stay on their streams,
and what the program opens next is the program's alone."""

import os
import sys

from harness import BUILD, Failure, LeftOut, run_cases
from test_run import echo, streams
from test_run_others import HEAD

# The ways to close all but what is kept. Numbers that are open but not the
# program's are the library's.
CLOSES = HEAD + """
import ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
s = dial()
until_on(s)
keep = {0, 1, 2, s.fileno()}
def numbers():
    found = {int(n) for n in os.listdir('/proc/self/fd')}
    return {n for n in found if os.path.exists(f'/proc/self/fd/{n}')}
def fails(err, call, *args):
    assert call(*args) == -1 and ctypes.get_errno() == err, (args, err)
def ranges(close):
    at = 3
    for n in sorted(keep - {0, 1, 2}):
        if n > at:
            close(at, n - 1)
        at = n + 1
    close(at, 0xffffffff)
def one_by_one():
    for n in range(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        if n not in keep:
            libc.close(n)
def from_a_number():
    assert s.fileno() == 3, s
    libc.closefrom(4)
ways = {
    'close': one_by_one,
    'closerange': lambda: ranges(lambda a, b: os.closerange(a, min(b, 65535) + 1)),
    'close_range': lambda: ranges(lambda a, b: libc.close_range(a, ctypes.c_uint(b), 0)),
    'closefrom': from_a_number,
    'syscall close_range': lambda: ranges(
        lambda a, b: libc.syscall(436, a, ctypes.c_uint(b), 0)),
    'syscall close': lambda: [libc.syscall(3, n) for n in range(3, 1024)
                              if n not in keep],
}
ours = numbers() - keep
assert ours and min(ours) > 100, ours
for n in ours:
    fails(errno.EBADF, libc.close, n)
    fails(errno.EBADF, libc.syscall, 3, n)
    fails(errno.EBUSY, libc.dup2, 0, n)
    fails(errno.EBUSY, libc.dup3, 0, n, 0)
    fails(errno.EBUSY, libc.syscall, 33, 0, n)
    fails(errno.EBUSY, libc.syscall, 292, 0, n, 0)
stranger = os.open('/dev/null', os.O_RDONLY)
ways[WAY]()
try:
    os.fstat(stranger)
    sys.exit('a number of the program is still open')
except OSError as why:
    assert why.errno == errno.EBADF
assert ours <= numbers(), ours - numbers()
files = [os.memfd_create('mine') for _ in range(12)]
lowest = [n for n in range(64) if n not in keep][:12]
assert files == lowest, (files, lowest)
ends = [end for _ in range(6) for end in socket.socketpair()]
speak(s, 300)
two = dial()
speak(two, 300)
assert not any(os.fstat(n).st_size for n in files)
for end in ends:
    end.setblocking(False)
    try:
        sys.exit(f'somebody wrote {end.recv(99)}')
    except BlockingIOError:
        pass
two.close()
speak(s, 300)
"""

# The C library's stream over a socket closes the number unseen by close(): the
# next connection that has it comes onto a stream as any other.
FILE = HEAD + """
import ctypes
libc = ctypes.CDLL(None)
libc.fdopen.restype = libc.freopen.restype = ctypes.c_void_p
for _ in range(10):
    s = dial()
    speak(s, 3)
    n = s.detach()
    file = ctypes.c_void_p(libc.fdopen(n, b'r+'))
    libc.fputs(b'PING', file)
    libc.fflush(file)
    got = ctypes.create_string_buffer(4)
    assert libc.fread(got, 1, 4, file) == 4 and got.raw == b'PING'
    if n % 2:
        assert libc.freopen(b'/dev/null', b'r', file)
    assert not libc.fclose(file)
s = dial()
assert s.fileno() == n
until_on(s)
"""


def closed_by_a_file():
    if len(streams(echo(FILE, ['stream'], 22))) < 2:
        raise Failure('no connection was on a stream')


def closes(way):
    def case():
        if os.uname().machine != 'x86_64' and 'syscall' in way:
            raise LeftOut('the numbers are those of x86-64')
        found = echo(f'WAY = {way!r}\n' + CLOSES, ['stream'], 4)
        if len(streams(found)) < 2 or any(line['demotions'] for line in found):
            raise Failure(f'{way}: {found}')
    case.__name__ = 'closes_by_' + way.replace(' ', '_')
    return case


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(closed_by_a_file, *map(closes, ('close', 'closerange', 'close_range', 'closefrom',
                            'syscall close_range', 'syscall close')))
