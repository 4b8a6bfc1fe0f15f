#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""grpc_talk.py server [PORT] | client PORT [long] - a gRPC service and its
client, for test_run_grpc.py: no generated code, messages are bytes. They print
what does not hang on time, so that two runs can be compared. long: 64 MiB come
back, too."""

import hashlib
import os
import sys
import threading
import time
from concurrent import futures

import grpc

OPTIONS = [('grpc.max_receive_message_length', 1 << 27),
           ('grpc.max_send_message_length', 1 << 27)]
BIG = 64 << 20
# Nothing that is compared hangs on it: what a busy machine may take.
PATIENCE_S = 120 * float(os.environ.get('SKEIN_TEST_TIME_SCALE') or 1)


def say(*words):
    print(*words, flush=True)


class Service(grpc.GenericRpcHandler):
    def __init__(self):
        self.cancelled = threading.Semaphore(0)
        self.begun = threading.Event()
        self.kinds = {
            'Unary': grpc.unary_unary_rpc_method_handler(self.unary),
            'Up': grpc.stream_unary_rpc_method_handler(self.up),
            'Down': grpc.unary_stream_rpc_method_handler(self.down),
            'Both': grpc.stream_stream_rpc_method_handler(self.both),
            'Slow': grpc.unary_unary_rpc_method_handler(self.slow),
            'Asked': grpc.unary_unary_rpc_method_handler(self.asked),
        }

    def service(self, details):
        return self.kinds.get(details.method.rpartition('/')[2])

    def unary(self, request, context):
        found = dict(context.invocation_metadata())
        context.send_initial_metadata((('first', found.get('word', '')),))
        context.set_trailing_metadata((('last-bin', b'\0\1\2'),))
        return request[::-1]

    def up(self, requests, _):
        digest = hashlib.sha256()
        for request in requests:
            digest.update(request)
        return digest.digest()

    def down(self, request, _):
        for i in range(int(request)):
            yield b'%d' % i * (i % 50)

    def both(self, requests, _):
        for request in requests:
            yield request + b'!'

    def slow(self, _, context):
        over = threading.Event()
        context.add_callback(over.set)
        self.begun.set()
        if over.wait(PATIENCE_S):
            self.cancelled.release()
        return b'late'

    def asked(self, request, _):
        """Did the server hear of the call, of its end?"""
        if request == b'begun':
            return b'yes' if self.begun.wait(PATIENCE_S) else b'no'
        self.begun.clear()
        return b'yes' if self.cancelled.acquire(timeout=PATIENCE_S) else b'no'


def serve(port):
    server = grpc.server(futures.ThreadPoolExecutor(8), options=OPTIONS)
    service = Service()
    server.add_generic_rpc_handlers((service,))
    # Dual-stack, as most services are written.
    port = server.add_insecure_port(f'[::]:{port}')
    server.start()
    say('port', port)
    sys.stdin.read()
    server.stop(1).wait()


def one(channel, kind, request, **options):
    return channel.unary_unary(f'/t/{kind}')(request, timeout=PATIENCE_S, **options)


def unary(channel):
    for i in range(60):
        assert one(channel, 'Unary', b'abc%d' % i) == b'%dcba' % i \
            if i < 10 else one(channel, 'Unary', b'ab') == b'ba'
    call = channel.unary_unary('/t/Unary').with_call
    _, info = call(b'x', metadata=(('word', 'w' * 3000),), timeout=PATIENCE_S)
    say('metadata', len(dict(info.initial_metadata())['first']),
        dict(info.trailing_metadata())['last-bin'])


def streams(channel):
    got = channel.stream_unary('/t/Up')(
        (b'%d' % i * 100 for i in range(300)), timeout=PATIENCE_S)
    say('up', got.hex()[:16])
    got = list(channel.unary_stream('/t/Down')(b'300', timeout=PATIENCE_S))
    say('down', len(got), sum(len(part) for part in got))
    got = list(channel.stream_stream('/t/Both')(
        (b'%d' % i for i in range(300)), timeout=PATIENCE_S))
    say('both', got[0], got[-1], len(got))


def big(channel):
    request = bytes(range(256)) * (BIG // 256)
    say('big', channel.stream_unary('/t/Up')(iter([request]),
                                             timeout=PATIENCE_S).hex())
    if len(sys.argv) > 3:
        say('back', one(channel, 'Unary', request) == request[::-1])


def ends(channel):
    try:
        channel.unary_unary('/t/Slow')(b'', timeout=0.2)
    except grpc.RpcError as error:
        say('deadline', error.code())
    say('asked', one(channel, 'Asked', b''))
    call = channel.unary_unary('/t/Slow').future(b'')
    say('begun', one(channel, 'Asked', b'begun'))
    call.cancel()
    say('cancel', call.cancelled(), call.code())
    say('asked', one(channel, 'Asked', b''))
    try:
        one(channel, 'None', b'')
    except grpc.RpcError as error:
        say('none', error.code())


def many(port):
    """Channels with a connection each."""
    pool = [grpc.insecure_channel(f'127.0.0.1:{port}', OPTIONS +
                                  [('grpc.use_local_subchannel_pool', 1)])
            for _ in range(16)]
    calls = [channel.unary_unary('/t/Unary').future(b'%02d' % (i % 16))
             for i, channel in enumerate(pool * 20)]
    assert all(call.result(PATIENCE_S) == (b'%02d' % (i % 16))[::-1]
               for i, call in enumerate(calls))
    for channel in pool:
        channel.close()
    say('many', len(calls))


def again(channel):
    """The server ends and another one comes at the same port."""
    say('restart')
    sys.stdin.readline()
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            say('restarted', channel.unary_unary('/t/Unary')(
                b'back', timeout=PATIENCE_S, wait_for_ready=True))
            break
        except grpc.RpcError as error:
            # The old connection's end may be heard of only now.
            if error.code() != grpc.StatusCode.UNAVAILABLE or \
                    time.monotonic() > until:
                raise
    for _ in range(30):
        assert one(channel, 'Unary', b'ab') == b'ba'


def talk(port):
    with grpc.insecure_channel(f'127.0.0.1:{port}', OPTIONS) as channel:
        unary(channel)
        streams(channel)
        big(channel)
        ends(channel)
        many(port)
        again(channel)


if sys.argv[1] == 'server':
    serve(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
else:
    talk(int(sys.argv[2]))
