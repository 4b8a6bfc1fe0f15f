#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A node service and clients in roots of their own (unshare), with a user, mount
and network namespace each, which share with it the programs that they run and a
socket's file. Regions are reached through the ports of their --listen PATH:DOMAIN
alone."""

import os
import subprocess

from harness import BUILD, Case, DEVICES, built, run_cases, skip

# Programs and libraries, to be read; the socket; /proc, for sanitizers.
ROOT = r'''
set -eu
root=$1 socket=$2 build=$3
shift 3
mount -t tmpfs none "$root"
for dir in usr lib lib64 build run proc; do
	mkdir "$root/$dir"
done
for dir in usr lib lib64; do
	[ -d "/$dir" ] || continue
	mount --rbind "/$dir" "$root/$dir"
	mount -o remount,bind,ro "$root/$dir"
done
mount --bind "$build" "$root/build"
: > "$root/run/node"
mount --bind "$socket" "$root/run/node"
mount --rbind /proc "$root/proc"
exec chroot "$root" /usr/bin/env -i SKEIN_NODE=/run/node "$@"
'''
UNSHARE = ['unshare', '-Urmn']


class Roots:
    def __init__(self, case):
        self.case = case
        self.count = 0

    def start(self, socket, *words, stdin=None):
        root = os.path.join(self.case.folder, f'root{self.count}')
        self.count += 1
        os.mkdir(root)
        return self.case.start(
            [*UNSHARE, 'sh', '-c', ROOT, 'root', root, socket, BUILD,
             '/build/tests/e2e/metas', *words], stdin=stdin)

    def end(self):
        for i in range(self.count):
            os.rmdir(os.path.join(self.case.folder, f'root{i}'))


def domains():
    with Case() as case:
        meta = case.start([built('tools/skein'), 'meta', '--listen',
                           DEVICES.listen], device=DEVICES.server)
        address = meta.expect(r'^meta: listening on (\S+), ').group(1)
        one, two = (os.path.join(case.folder, name) for name in ('one', 'two'))
        service = case.start(
            [built('tools/skein'), 'node', '--meta', address, '--listen',
             f'{one}:red', '--listen', f'{two}:blue'], device=DEVICES.server)
        service.expect(r'^node: \S+, listening at ')
        second = case.start([built('tools/skein'), 'node', '--meta', address,
                             '--listen', one], device=DEVICES.server)
        second.exits(1)
        second.expect('one: another node service listens there: stop it')
        roots = Roots(case)
        # port 1 is red's, port 2 is blue's
        nodes = [roots.start(one, 'nodes', '1', '1'),
                 roots.start(two, 'nodes', '1', '2')]
        node = [each.expect(r'^node (.*)$').group(1) for each in nodes]
        ours, line = os.pipe()
        client = roots.start(two, 'client', stdin=ours)
        os.close(ours)
        client.expect('^client$')
        for region, port, result in ((0, 1, 'connected'), (1, 2, 'connected'),
                                     (0, 2, r'failed \S+ Permission denied'),
                                     (1, 1, r'failed \S+ Permission denied')):
            os.write(line, f'{node[region]} 10000 {port}\n'.encode())
            client.expect(f'^{result}')
        os.close(line)
        client.exits(0)
        for each in nodes:
            each.kill()
        service.stop()
        meta.stop()
        roots.end()


if not DEVICES.soft:
    skip('no DC but on soft')
if subprocess.run([*UNSHARE, 'sh', '-c',
                   'mount -t tmpfs none /mnt && mkdir /mnt/proc && '
                   'mount --rbind /proc /mnt/proc'],
                  check=False, capture_output=True).returncode:
    skip('user namespaces with mounts of their own are not permitted')
run_cases(domains)
