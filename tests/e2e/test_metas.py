#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two meta servers: either is killed while a program connects to nodes that it has
not met; the one that comes back is full again; without both, what is known goes
on and the rest is a clear error."""

import os

from harness import Case, DEVICES, built, run_cases, skip

NODES = 8


def meta_start(case, where):
    meta = case.start([built('tools/skein'), 'meta', '--listen', where],
                      device=DEVICES.server)
    return meta, meta.expect(r'^meta: listening on (\S+), ').group(1)


def full(meta):
    """All nodes, and the client."""
    meta.expect(rf'^meta: {NODES + 1} nodes$')


class Client:
    def __init__(self, case, env):
        ours, self.line = os.pipe()
        self.process = case.start([built('tests/e2e/metas'), 'client'],
                                  device=DEVICES.client, env=env, stdin=ours)
        os.close(ours)
        self.process.expect('^client$')

    def visit(self, node, result='connected', ms=10000):
        os.write(self.line, f'{node} {ms}\n'.encode())
        return self.process.expect(rf'^{result} {node.split()[0]}')

    def end(self):
        os.close(self.line)
        self.process.exits(0)


def servers_die():
    with Case() as case:
        first, one = meta_start(case, DEVICES.listen)
        second, two = meta_start(case, DEVICES.listen)
        env = {'SKEIN_META': f'{one},{two}'}
        nodes = case.start([built('tests/e2e/metas'), 'nodes', str(NODES),
                            '1'],
                           device=DEVICES.server, env=env)
        node = [nodes.expect(r'^node (.*)$').group(1) for _ in range(NODES)]
        client = Client(case, env)
        full(first)
        full(second)
        client.visit(node[0])
        first.kill()
        client.visit(node[1])
        client.visit(node[2])
        first, _ = meta_start(case, one)
        full(first)
        second.kill()
        client.visit(node[3])
        client.visit(node[4])
        first.kill()
        client.visit(node[0])
        client.visit(node[5], 'failed', ms=300)
        second, _ = meta_start(case, two)
        full(second)
        client.visit(node[5])
        # one alone is enough to come up
        late = Client(case, env)
        late.visit(node[6])
        late.end()
        client.end()
        nodes.kill()
        second.stop()


if not DEVICES.soft:
    skip('no DC but on soft')
run_cases(servers_die)
