# SPDX-License-Identifier: MIT
"""Clients are killed that have many virtual queue pairs to a server which answers
nothing: the server hears of the end of each. One that is stopped has not ended."""

import os
import signal

from harness import DEVICES, Case, built, run_cases, skip

NOTICE_S = 60
VQPS = 300


def start(case, *words, env, device):
    ours, line = os.pipe()
    process = case.start([built('tests/e2e/pool_ends'), *words],
                         device=device, env=env, stdin=ours)
    os.close(ours)
    return process, line


def client(case, node, env, vqps=VQPS):
    process, line = start(case, 'client', node, str(vqps), env=env,
                          device=DEVICES.client)
    process.expect('^sent$', NOTICE_S)
    return process, line


def meta_start(case):
    meta = case.start([built('tools/skein'), 'meta', '--insecure', '--listen',
                       DEVICES.listen], device=DEVICES.server)
    return {'SKEIN_META':
            meta.expect(r'^meta: listening on (\S+), ').group(1)}


def killed(case, env, of_server):
    """A server of the environment of_server."""
    server, _ = start(case, 'server', env=of_server, device=DEVICES.server)
    node = server.expect(r'^node (\S+)$').group(1)
    idle, line = client(case, node, env, 1)
    for ended in (0, VQPS):
        victim, _ = client(case, node, env)
        server.expect(f'^messages {ended + VQPS + 1} ', NOTICE_S)
        victim.kill()
        case.forget(victim)
        server.expect(f' ended {ended + VQPS}$', NOTICE_S)
        os.kill(idle.pid, signal.SIGSTOP)
    os.kill(idle.pid, signal.SIGCONT)
    os.write(line, b'\n')
    idle.expect('^sent$', NOTICE_S)
    server.expect(f'^messages {2 * VQPS + 2} ended {2 * VQPS}$', NOTICE_S)
    return server


def embedded():
    with Case() as case:
        env = meta_start(case)
        killed(case, env, env)


def without_dc():
    """By RC queue pairs, of which each client keeps one."""
    with Case() as case:
        env = dict(meta_start(case), SKEIN_SOFT_DC='off')
        killed(case, env, env)


def by_node():
    """The server is a client of a node service."""
    with Case() as case:
        env = meta_start(case)
        at = os.path.join(case.folder, 'node')
        node = case.start([built('tools/skein'), 'node', '--listen', at,
                           '--meta', env['SKEIN_META']],
                          device=DEVICES.server)
        node.expect('^node: ')
        killed(case, env, {'SKEIN_NODE': at}).kill()
        node.stop()


if not DEVICES.soft:
    skip('no DC but on soft')
run_cases(embedded, without_dc, by_node)
