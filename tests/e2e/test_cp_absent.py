# SPDX-License-Identifier: MIT
"""skein cp beside targets that are not there: a port that refuses, a peer that
accepts and says nothing, one that says something else, an address without a
route. The others get their copy, and the missing one is named."""

import os
import socket
import subprocess
import threading

from cp import Receiver, content, finish, receivers, report, same_tree, send, \
    targets, write
from harness import DEVICES, Case, run_cases

# TEST-NET-3 of RFC 5737: no host has it.
NO_ROUTE = '203.0.113.77:7450'


class Stranger:
    """Accepts, says what it is told to, and reads for ever."""

    def __init__(self, says=b'', hangs_up=False):
        self.socket = socket.create_server((DEVICES.host, 0))
        self.says = says
        self.hangs_up = hangs_up
        self.held = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                peer = self.socket.accept()[0]
            except OSError:
                return
            peer.sendall(self.says)
            if self.hangs_up:
                peer.close()
            else:
                self.held.append(peer)

    @property
    def address(self):
        host, port = self.socket.getsockname()[:2]
        return f'{host}:{port}'

    def close(self):
        self.socket.close()
        for peer in self.held:
            peer.close()


def refusing():
    holder = socket.socket()
    holder.bind((DEVICES.host, 0))
    return holder, '%s:%d' % holder.getsockname()


def beside(case, group, address, *words):
    """A copy to the group and one more; the report's rows."""
    name = os.path.join(case.folder, 'f')
    if not os.path.exists(name):
        write(name, content(300000))
    sender = send(case, '--json', *words, name,
                  ','.join([targets(group), address]))
    got = report(sender, status=1)
    rows = {row['target']: row for row in got['targets']}
    assert len(rows) == len(group) + 1, rows
    return got, rows, sender.text('err')


def one_is_missing(case, group, address, why, *words):
    got, rows, said = beside(case, group, address, *words)
    for receiver in group:
        assert rows[receiver.address]['state'] == 'done', rows
        same_tree(os.path.join(case.folder, 'f'), receiver.path('f'))
        os.remove(receiver.path('f'))
    assert rows[address]['state'] == 'failed', rows
    assert why in rows[address]['error'], rows
    # said as the copy begins, and once
    assert said.count(f'begins without {address}') == 1, said
    assert said.count(f'skein cp: {address}') == 0, said
    assert got['error'] == f'1 of {len(rows)} targets failed', got
    return got


def refused():
    with Case() as case:
        group = receivers(case)
        holder, address = refusing()
        with holder:
            # far beyond what the test would wait for
            one_is_missing(case, group, address, 'Connection refused',
                           '--greeting', '300s', '--connect-timeout', '300s')
        finish(case, group)


def not_skein():
    """What is no Skein is known by its first word, or by its hanging up."""
    with Case() as case:
        group = receivers(case)
        for stranger in (Stranger(b'SSH-2.0-OpenSSH_9.2p1 Debian\r\n' * 4),
                         Stranger(hangs_up=True)):
            one_is_missing(case, group, stranger.address, stranger.address,
                           '--greeting', '300s', '--connect-timeout', '300s')
            stranger.close()
        finish(case, group)


def silent():
    with Case() as case:
        group = receivers(case)
        stranger = Stranger()
        one_is_missing(case, group, stranger.address,
                       'nothing there answers as Skein does',
                       '--greeting', '3s', '--connect-timeout', '300s')
        stranger.close()
        finish(case, group)


def no_route():
    with Case() as case:
        group = receivers(case)
        got, rows, said = beside(case, group, NO_ROUTE, '--greeting', '3s',
                                 '--connect-timeout', '300s')
        for receiver in group:
            assert rows[receiver.address]['state'] == 'done', rows
        assert rows[NO_ROUTE]['state'] == 'failed', rows
        assert f'begins without {NO_ROUTE}' in said, said
        finish(case, group)


def wait_for_all():
    """Nobody gets anything when one is missing."""
    with Case() as case:
        group = receivers(case)
        holder, address = refusing()
        with holder:
            got, rows, said = beside(case, group, address, '--wait-for', 'all',
                                     '--connect-timeout', '2s')
        assert got['rounds'] == 0, got
        for receiver in group:
            assert '--wait-for' in rows[receiver.address]['error'], rows
            assert not receiver.names()
        assert 'Connection refused' in rows[address]['error'], rows
        finish(case, group)


def wait_for_all_that_start():
    """Until one that is being started listens."""
    with Case() as case:
        group = receivers(case, 2)
        name = os.path.join(case.folder, 'f')
        write(name, content(300000))
        holder, address = refusing()
        sender = send(case, '--wait-for', 'all', '--connect-timeout', '300s',
                      name, ','.join([targets(group), address]),
                      env={'SKEIN_LOG': 'debug'})
        sender.expect('Connection refused')
        holder.close()
        late = Receiver(case, 9, '--port', address.rsplit(':', 1)[1])
        sender.exits(0, timeout=60)
        for receiver in [*group, late]:
            same_tree(name, receiver.path('f'))
        finish(case, group, [late])


def one_target_alone():
    """Refused: known at once."""
    with Case() as case:
        name = os.path.join(case.folder, 'f')
        write(name, content(1000))
        holder, address = refusing()
        with holder:
            sender = send(case, '--connect-timeout', '300s', name, address)
            sender.exits(1)
            assert 'Connection refused' in sender.text('err')
        subprocess.run(['rm', name], check=True)


run_cases(refused, not_skein, silent, no_route, wait_for_all,
          wait_for_all_that_start, one_target_alone)
