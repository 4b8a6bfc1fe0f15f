# SPDX-License-Identifier: MIT
"""The examples, as their READMEs run them."""

import filecmp
import os
import signal
import sys

from harness import DEVICES, Case, built, run_cases


def meta_start(case):
    """A meta server, and the environment of pooled processes."""
    meta = case.start([built('tools/skein'), 'meta', '--insecure', '--listen',
                       DEVICES.listen], device=DEVICES.server)
    return {'SKEIN_POOLED': 'pool', 'SKEIN_META':
            meta.expect(r'^meta: listening on (\S+), ').group(1)}


def pair(case, example, pooled):
    """The example's server, running, and a function that runs its client."""
    env = meta_start(case) if pooled else {}
    server = case.start([built(f'examples/{example}-server'), DEVICES.listen],
                        device=DEVICES.server, env=env)
    address = server.expect(r'^listening on (\S+)$').group(1)

    def client(*words):
        process = case.start([built(f'examples/{example}-client'), address,
                              *words], device=DEVICES.client, env=env)
        process.exits(0)
        return process

    return server, client


def echo(pooled=False):
    with Case() as case:
        server, client = pair(case, '01-echo', pooled)
        client('hello, goose').expect(r' answers: hello, goose$')
        client('').expect(r' answers: $')
        server.stop()


def async_calls(pooled=False):
    calls = 10000
    total = sum(n * n for n in range(1, calls + 1))
    with Case() as case:
        server, client = pair(case, '02-async', pooled)
        line = client().expect(rf'^{calls} calls, 0 failed, sum {total}, '
                               r'in (\d+) messages$')
        assert 0 < int(line.group(1)) <= calls
        server.stop()


def one_sided(pooled=False):
    texts = [f'goose {number}' for number in range(8)]
    with Case() as case:
        server, client = pair(case, '03-one-sided', pooled)
        for number, text in enumerate(texts):
            client(text).expect(f'^line {number} of {number + 1}: {text}$')
        server.stop()
        for number, text in enumerate(texts):
            server.expect(f'^{number}: {text}$')


def over_vqps():
    """The first three over virtual queue pairs, unchanged."""
    for example in (echo, async_calls, one_sided):
        example(pooled=True)


def no_count():
    """What is no number of bytes is not taken for 0."""
    with Case() as case:
        for word in ('-5', 'many', '5x', ''):
            client = case.start([built('examples/04-multicast-client'), word,
                                 '127.0.0.1:1'])
            client.exits(2)
            client.expect('^usage: ')


def multicast():
    with Case() as case:
        servers = [case.start([built('examples/04-multicast-server'),
                               DEVICES.listen], device=DEVICES.server)
                   for _ in range(3)]
        addresses = [server.expect(r'^listening on (\S+)$').group(1)
                     for server in servers]
        for size in (5000000, 0):
            client = case.start([built('examples/04-multicast-client'),
                                 str(size), *addresses],
                                device=DEVICES.client)
            client.exits(0)
            digest = client.expect(r'^sent: digest (\w+)$').group(1)
            client.expect(f'^{size} bytes at 3 receivers$')
            for server in servers:
                server.expect(f'^message 0: {size} bytes, digest {digest}$')
                server.expect('^group: everybody has everything$')
        for server in servers:
            server.stop()


def resume():
    """One of three receivers kills itself; the others get the rest."""
    with Case() as case:
        source = os.path.join(case.folder, 'source')
        files = [os.path.join(case.folder, f'file{i}') for i in range(3)]
        with open(source, 'wb') as file:
            file.write(os.urandom(10000001))
        servers = [case.start([built('examples/05-resume-server'),
                               DEVICES.listen, files[i],
                               *(['40'] if i == 1 else [])],
                              device=DEVICES.server)
                   for i in range(3)]
        addresses = [server.expect(r'^listening on (\S+)$').group(1)
                     for server in servers]
        client = case.start([built('examples/05-resume-client'), source,
                             *addresses], device=DEVICES.client)
        client.exits(0)
        client.expect(f'^failed: {addresses[1]}$')
        digest = client.expect(r'^sent: digest (\w+)$').group(1)
        client.expect('^10000001 bytes at 2 receivers$')
        servers[1].exits(-signal.SIGKILL)
        for i in (0, 2):
            here = servers[i].expect(r'^here are (\d+) blocks$').group(1)
            assert 0 < int(here) < 153, here
            servers[i].expect(f'^whole: 10000001 bytes, digest {digest}$')
            servers[i].expect('^group 1: everybody has everything$')
            servers[i].stop()
            assert filecmp.cmp(source, files[i], shallow=False), i
        for name in (source, *files):
            os.unlink(name)


def pool_client(case, server, node, address, env=None):
    """It connects twice: by asking the meta server, and without."""
    client = case.start([built('examples/06-pool-client'), node, address],
                        device=DEVICES.client, env=env)
    client.exits(0)
    for _ in range(2):
        client.expect(r'^client: connected in \d+ us$')
        client.expect('^client: "hello back"$')
    server.expect('^server: "hello"$')
    server.expect('^server: "hello again"$')


def nodes(env=None):
    """The same through a node service, which is killed and started again: its
    clients go on."""
    with Case() as case:
        meta = case.start([built('tools/skein'), 'meta', '--insecure',
                           '--listen', DEVICES.listen],
                          device=DEVICES.server, env=env)
        address = meta.expect(r'^meta: listening on (\S+), ').group(1)
        path = os.path.join(case.folder, 'node')
        alone = env or {}
        through = {'SKEIN_NODE': path, **alone}
        server = None
        for envs in ((through, alone, through), (through,)):
            service = case.start([built('tools/skein'), 'node', '--listen',
                                  path, '--meta', address],
                                 device=DEVICES.server, env=env)
            service.expect(r'^node: \S+, listening at ')
            server = server or case.start([built('examples/06-pool-server')],
                                          device=DEVICES.server, env=through)
            node = server.expect(r'^server: node (\S+), port 1$').group(1)
            for each in envs:
                pool_client(case, server, node, address, each)
            service.kill()
            server.expect('^server: the node service is gone$')
        server.stop()
        os.unlink(path)
        meta.stop()


def event_loop():
    """Answers come while the input stays open; its end ends the client."""
    with Case() as case:
        server = case.start([built('examples/07-event-loop-server'),
                             DEVICES.listen], device=DEVICES.server)
        address = server.expect(r'^listening on (\S+)$').group(1)
        ours, line = os.pipe()
        client = case.start([built('examples/07-event-loop-client'), address],
                            device=DEVICES.client, stdin=ours)
        os.close(ours)
        for text in ('hello', 'goose'):
            os.write(line, f'{text}\n'.encode())
            client.expect(f'^answer: {text}$')
        os.close(line)
        client.exits(0)
        server.stop()


def stream():
    """More than a ring, a few bytes, and none."""
    with Case() as case:
        server = case.start([built('examples/08-stream-server'),
                             DEVICES.listen], device=DEVICES.server)
        address = server.expect(r'^listening on (\S+)$').group(1)
        for lines in (100000, 1, 0):
            ours, pipe = os.pipe()
            client = case.start([built('examples/08-stream-client'), address],
                                device=DEVICES.client, stdin=ours)
            os.close(ours)
            with os.fdopen(pipe, 'w', encoding='ascii') as file:
                file.writelines(f'line {i}\n' for i in range(lines))
            client.exits(0)
            client.expect(f'^{lines} lines$')
        server.stop()


def pools(env=None):
    """Two clients, each with a connection that asks the meta server and one
    that need not."""
    with Case() as case:
        meta = case.start([built('tools/skein'), 'meta', '--insecure',
                           '--listen', DEVICES.listen],
                          device=DEVICES.server, env=env)
        address = meta.expect(r'^meta: listening on (\S+), ').group(1)
        server = case.start([built('examples/06-pool-server'), address],
                            device=DEVICES.server, env=env)
        node = server.expect(r'^server: node (\S+), port 1$').group(1)
        for _ in range(2):
            pool_client(case, server, node, address, env)
        server.stop()
        meta.stop()


def pools_without_dc():
    """Both once more, by RC queue pairs alone."""
    if DEVICES.server.startswith('soft'):
        pools({'SKEIN_SOFT_DC': 'off'})
        nodes({'SKEIN_SOFT_DC': 'off'})


def no_server():
    """One line that says what failed, and status 1."""
    with Case() as case:
        client = case.start([built('examples/01-echo-client'),
                             DEVICES.host + ':1'], device=DEVICES.client)
        client.exits(1)
        client.expect('^client: .')


ALL = [echo, async_calls, one_sided, over_vqps, no_count, multicast, resume, event_loop, stream,
       pools, nodes, pools_without_dc,
       no_server]
run_cases(*[test for test in ALL
            if not sys.argv[1:] or test.__name__ in sys.argv[1:]])
