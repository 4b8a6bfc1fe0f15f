# SPDX-License-Identifier: MIT
"""Pooled connections: calls and deaths over virtual queue pairs, and what is
refused."""

import os
import re

from harness import DEVICES, Case, built, run_cases
from peers import COUNTS, ENDED, calls_work, check_ended, client, serve

NOTICE_S = 20
LOST = re.compile(r'^skein: \w+: lost the connection to (\S+) ', re.M)


def meta_start(case, at=None):
    """A meta server, and the environment of pooled processes."""
    meta = case.start([built('tools/skein'), 'meta', '--insecure', '--listen',
                       at or DEVICES.listen], device=DEVICES.server)
    address = meta.expect(r'^meta: listening on (\S+), ').group(1)
    return meta, {'SKEIN_POOLED': 'pool', 'SKEIN_META': address}


def over_a_vqp(case, server):
    """Its clients are nodes, with the device's address, and none is a socket's
    address."""
    case.until('it says so', lambda: LOST.search(server.text('err')))
    names = LOST.findall(server.text('err'))
    if DEVICES.soft:
        assert not any(name.startswith('127.') for name in names), names


def deaths():
    """Each end sees the other's death."""
    with Case() as case:
        _, env = meta_start(case)
        server = serve(case, env=env)
        calls_work(case, server.address, env=env)
        check_ended(server.expect(ENDED.pattern).string, 200)
        victim = client(case, server.address, calls=0, env=env)
        victim.expect('^running$')
        victim.kill()
        case.forget(victim)
        check_ended(server.expect(ENDED.pattern, NOTICE_S).string)
        over_a_vqp(case, server)
        survivor = client(case, server.address, 'again', 0, env=env)
        survivor.expect('^running$')
        server.kill()
        case.forget(server)
        survivor.expect(r'^broken: .*: lost the connection to \S+ \(pid \d+\) '
                        r'on \S+ \(\S+\): the peer is gone: its node does '
                        'not answer', NOTICE_S)
        counts = COUNTS.search(survivor.expect(COUNTS.pattern).string)
        assert not int(counts.group(2)), counts.group()
        survivor.expect('^closed$')
        survivor.kill()
        case.forget(survivor)


def idle_death():
    """So does an end that sends nothing."""
    with Case() as case:
        _, env = meta_start(case)
        server = case.start([built('examples/07-event-loop-server'),
                             DEVICES.listen], device=DEVICES.server, env=env)
        address = server.expect(r'^listening on (\S+)$').group(1)
        ours, line = os.pipe()
        victim = case.start([built('examples/07-event-loop-client'), address],
                            device=DEVICES.client, stdin=ours, env=env)
        os.close(ours)
        os.write(line, b'goose\n')
        victim.expect('^answer: goose$')
        victim.kill()
        case.forget(victim)
        os.close(line)
        server.expect('lost the connection to .*its node does not answer',
                      NOTICE_S)
        server.stop()


def meta_dies():
    """Connections go on. One that comes back learns of the listeners again."""
    with Case() as case:
        meta, env = meta_start(case)
        server = serve(case, env=env)
        caller = client(case, server.address, calls=0, env=env)
        caller.expect('^running$')
        meta.kill()
        case.forget(meta)
        caller.stop()
        check_ended(server.expect(ENDED.pattern).string)
        meta_start(case, env['SKEIN_META'])

        def finds():
            process = client(case, server.address, calls=1, env=env)
            status = process.exits(None)
            case.forget(process)
            return status == 0
        case.until('a client finds the server again', finds)
        server.stop()


def mixed():
    """A pooled listener takes others too; a pooled client finds no other
    listener."""
    with Case() as case:
        _, env = meta_start(case)
        pooled, plain = serve(case, env=env), serve(case)
        calls_work(case, pooled.address)
        process = client(case, plain.address, env=env)
        process.exits(1)
        process.expect('the meta server knows no such node')
        pooled.stop()
        plain.stop()


def refused():
    """More than one QP: a line that says so."""
    with Case() as case:
        _, env = meta_start(case)
        server = serve(case, env=env)
        process = client(case, server.address, env=dict(env, SKEIN_QPS='2'))
        process.exits(1)
        process.expect('a pooled connection has one QP, not 2')
        server.stop()


run_cases(deaths, idle_death, meta_dies, mixed, refused)
