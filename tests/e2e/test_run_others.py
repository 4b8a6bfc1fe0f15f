#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`skein run`: what broke other libraries that stand in front of sockets.

* An epoll set inside another one (libvma #219).
* A number in an epoll set that is another file now (libvma #1037).
* New connections while one keeps both ends busy (Onload #223).
* accept() ends when another thread shuts the listener down (libvma #32).
* readv() in a daemon (libvma #969).
* A program of musl, which starts, and stays on TCP.
* Descriptors above FD_SETSIZE, and none that stay behind (F-Stack #831).

The others have their tests elsewhere: a plain peer, fork, an idle server and a
killed client in e2e/run, a reload in e2e/run_programs, the list in e2e/run_list.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, Failure, LeftOut, run_cases, tool
from test_run import echo, streams

HEAD = """
import errno, os, resource, select, socket, sys, threading, time
def dial():
    return socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def speak(s, count, wait=lambda: True):
    for i in range(count):
        s.sendall(b'PING')
        assert wait()
        assert s.recv(100) == b'PING', i
def waiter(ends):
    return lambda: ends.poll(60)
# Until the other end of the test's pipe is closed: the connection is on a stream.
def until_on(s, wait=lambda: True):
    while not select.select([0], [], [], 0)[0]:
        speak(s, 20, wait)
"""

NESTED = HEAD + """
s, inner, outer = dial(), select.epoll(), select.epoll()
inner.register(s, select.EPOLLIN)
until_on(s, waiter(inner))
outer.register(inner, select.EPOLLIN)
speak(s, 500, lambda: outer.poll(60) and inner.poll(60))
"""

NUMBERS = HEAD + """
s, ends = dial(), select.epoll()
n = s.fileno()
ends.register(n, select.EPOLLIN)
until_on(s, waiter(ends))
other = dial()
os.dup2(other.fileno(), n)
try:
    ends.modify(n, select.EPOLLIN)
    sys.exit('a number that left the set was modified')
except FileNotFoundError:
    pass
ends.register(n, select.EPOLLIN)
speak(s, 500, waiter(ends))
"""

BUSY = HEAD + """
s, enough = dial(), False
def keep_on():
    while not enough:
        speak(s, 20)
thread = threading.Thread(target=keep_on)
until_on(s)
thread.start()
for _ in range(50):
    with dial() as one:
        speak(one, 3)
enough = True
thread.join()
"""

SHUT = HEAD + """
s, listener, said = dial(), socket.create_server(('127.0.0.1', 0)), []
def take():
    try:
        listener.accept()
    except OSError as why:
        said.append(why.errno)
until_on(s)
thread = threading.Thread(target=take)
thread.start()
# Again and again: the thread may not be in accept() yet.
while thread.is_alive():
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError as why:
        assert why.errno == errno.ENOTCONN
    thread.join(0.01)
assert said == [errno.EINVAL], said
speak(s, 500)
"""

DAEMON = HEAD + """
for _ in range(2):
    child = os.fork()
    if child:
        os._exit(os.waitpid(child, 0)[1] != 0)
    os.setsid()
s = dial()
def exchange():
    parts = bytearray(1), bytearray(2), bytearray(10)
    s.sendall(b'PING')
    assert os.readv(s.fileno(), parts) == 4
    assert b''.join(parts)[:4] == b'PING'
while not select.select([0], [], [], 0)[0]:
    exchange()
s.close()
"""

HIGH = HEAD + """
resource.setrlimit(resource.RLIMIT_NOFILE,
                   (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
filler = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]
s, ends = dial(), select.poll()
assert s.fileno() > 1024
ends.register(s, select.POLLIN)
until = select.poll()
until.register(0, select.POLLIN)
while not until.poll(0):
    speak(s, 20, lambda: ends.poll(60000))
def count():
    return len(os.listdir('/proc/self/fd'))
had = count()
for _ in range(30):
    with dial() as one:
        speak(one, 50)
end = time.monotonic() + 60
while count() > had and time.monotonic() < end:
    speak(s, 20)
assert count() <= had, ('not within 60 s', count(), had)
"""


def test_nested_sets():
    found = echo(NESTED, ['stream'])
    if not any('epoll set' in line['back'] for line in found):
        raise Failure(f'did not go back to TCP: {found}')


def test_numbers():
    echo(NUMBERS, ['stream'], 3)


def test_accept_of_a_busy_server():
    found = echo(BUSY, ['stream'], 52)
    if len(streams(found)) < 2:
        raise Failure(f'{found}')


def test_accept_and_shutdown():
    echo(SHUT, ['stream'])


def test_readv_in_a_daemon():
    if len(streams(echo(DAEMON, ['stream']))) != 2:
        raise Failure('the daemon was not on a stream')


def test_high_numbers():
    echo(HIGH, ['stream'], 30)


# The loader of another C library takes no library of glibc's.
MUSL = """
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0), i;
	char got[4];
	sa.sin_port = htons(atoi(argv[1]));
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (void *)&sa, sizeof(sa)))
		return 1;
	for (i = 0; i < 100; i++)
		if (write(fd, "PING", 4) != 4 || read(fd, got, 4) != 4 ||
		    memcmp(got, "PING", 4))
			return 2;
	return 0;
}
"""


def test_musl():
    if not shutil.which('musl-gcc'):
        raise LeftOut('no musl-gcc')
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'speak')
        subprocess.run(['musl-gcc', '-xc', '-', '-o', path], input=MUSL,
                       text=True, check=True)
        found = echo('import os, sys\n'
                     f'os.execv({path!r}, [{path!r}, sys.argv[1]])', lines=1)
        said = subprocess.run([tool(), 'run', '--', path, '0'], check=False,
                              capture_output=True, text=True).stderr
        verbs = subprocess.run([tool(), 'run', '--verbs', '--', path, '0'],
                               check=False).returncode
    if streams(found) or verbs != 1 or \
            f'{path} is not a program of glibc: it stays on TCP' not in said:
        raise Failure(f'{found} {verbs} {said}')


if __name__ == '__main__':
    if not os.path.exists(os.path.join(BUILD, 'src', 'bind', 'socket',
                                       'libskein-socket.so')):
        print('skipped: libskein-socket is not built with a sanitizer')
        sys.exit(77)
    run_cases(test_musl, test_nested_sets, test_numbers, test_accept_of_a_busy_server,
              test_accept_and_shutdown, test_readv_in_a_daemon,
              test_high_numbers)
