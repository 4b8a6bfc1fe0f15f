# SPDX-License-Identifier: MIT
"""Network namespaces without root, for tests of several hosts.

    here, there = enter(2)              # the test runs again, in the first
    there.ip('addr', 'add', ...)
    case.start([*there.inside, ...])
"""

import os
import shutil
import subprocess
import sys

from harness import Case, skip

INSIDE = 'SKEIN_TEST_NAMESPACES'
# The processes of the others are no children of the test, which has to leave
# none behind.
OUTER = f'''
pids=
count=$1
shift
while [ $count -gt 1 ]; do
    unshare -n setpriv --pdeathsig KILL sleep infinity & pids="$pids $!"
    count=$((count - 1))
done
{INSIDE}=$pids "$@"
status=$?
kill $pids
exit $status
'''


class Namespace:
    def __init__(self, pid=None):
        self.pid = pid or os.getpid()
        self.inside = ['nsenter', '-t', str(pid), '-n'] if pid else []

    def ip(self, *args):
        subprocess.run([*self.inside, 'ip', *args], check=True)


def enter(count, device=('veth', 'peer', 'name', 'y')):
    """Namespaces, their loopbacks up; the first is that of the caller."""
    if INSIDE not in os.environ:
        again(count, device)
    spaces = [Namespace()] + [Namespace(pid)
                              for pid in os.environ[INSIDE].split()]
    with Case() as case:
        for space in spaces[1:]:
            case.until('another namespace', lambda space=space:
                       os.readlink(f'/proc/{space.pid}/ns/net') !=
                       os.readlink('/proc/self/ns/net'))
    for space in spaces:
        space.ip('link', 'set', 'lo', 'up')
    return spaces


def again(count, device):
    for program in ('unshare', 'nsenter', 'ip'):
        if not shutil.which(program):
            skip(f'{program} is not installed')
    make = ['ip', 'tuntap', 'add', 'x', 'mode', 'tun'] if device == 'tun' else \
        ['ip', 'link', 'add', 'x', 'type', *device]
    tried = subprocess.run(['unshare', '-Urn', *make], capture_output=True,
                           text=True, check=False)
    if tried.returncode:
        skip('no user namespaces, or no such device: ' + tried.stderr.strip())
    os.execvp('unshare', ['unshare', '-Urn', 'sh', '-c', OUTER, 'namespaces',
                          str(count), sys.executable,
                          os.path.abspath(sys.argv[0]), *sys.argv[1:]])
