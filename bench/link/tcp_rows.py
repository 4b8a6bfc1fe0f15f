# SPDX-License-Identifier: MIT
"""Rows of the link's bars for its TCP carrier, in the shape of bars.py's BARS:
what it is, < at most or > at least, the bar, skein perf's words, its field, the
kind of plain socket beside it, bytes, whether the sender's device segments."""

# What both ends of such a row have in their environment.
ENV = {'SKEIN_LINK': 'tcp'}


def rows():
    return {
        'write_bw_1m_tcp_x_tcp': (
            'WRITE 1 MiB over TCP / TCP', '>', 0.75,
            ['write', '--bw', '-s', '1M', '-t', '4'], 'bytes_per_s', 'tcp-bw',
            1 << 20, True),
        'read_bw_1m_tcp_x_tcp': (
            'READ 1 MiB over TCP / TCP', '>', 0.7,
            ['read', '--bw', '-s', '1M', '-t', '4'], 'bytes_per_s', 'tcp-bw',
            1 << 20, True),
        'send_lat_tcp_x_tcp_spin': (
            'SEND 64 B there and back over TCP, p50 / TCP, spinning', '<', 1.35,
            ['send', '-s', '64'], 'p50_ns', 'tcp-ping', 64, True),
        'rpc64_spin_x_tcp_spin': (
            'call of 64 B over TCP, p50 / TCP, spinning', '<', 1.4,
            ['rpc', '-s', '64', '--wait', 'spin'], 'p50_ns', 'tcp-ping', 64,
            True),
    }
