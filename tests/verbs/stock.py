# SPDX-License-Identifier: MIT
"""What the tests of stock verbs programs share: a pair of one program, server
and client, both under `skein run --verbs --soft-only`, and a table of rows.

    ROWS = [Row('ibv_rc_pingpong', '-g 0 -e', says=r'usec/iter'), ...]
    run_rows(ROWS)

A row passes when both ends end with 0 within the deadline and the client has
printed what the row says. Programs that are not installed, or a build without
the library, skip the test with the reason.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '..', 'e2e'))
# pylint: disable=wrong-import-position
from harness import MODE, Case, Failure, Port, built, skip, tool  # noqa: E402

LIBRARY = 'src/bind/verbs/libskein-verbs.so'
# Pairs that poll keep a core busy at each end; more of them at a time only
# wait for one another.
PAIRS = max(1, (os.cpu_count() or 1) // 2)


def need(*programs, group='test'):
    """Skips the whole test where something is not there, and says which
    version of each program is tested."""
    if not os.path.exists(built(LIBRARY)):
        skip('libskein-verbs.so is not built here: a sanitizer stands in '
             'front of malloc() itself')
    for program in programs:
        path = shutil.which(program)
        if not path:
            skip(f'{program} is not installed (scripts/deps.sh {group})')
        owner = subprocess.run(['dpkg-query', '-S', path], text=True,
                               stdout=subprocess.PIPE, check=False,
                               stderr=subprocess.DEVNULL).stdout.split(':')[0]
        version = owner and subprocess.run(
            ['dpkg-query', '-W', '-f=${Package} ${Version}', owner],
            text=True, stdout=subprocess.PIPE, check=False).stdout
        print(f'{program}: {version or path}')
    print(f'device: soft, skein0{", harsh" if MODE.harsh else ""}')


def skein_run(*argv, link='ethernet'):
    return [tool(), 'run', '--verbs', '--soft-only', '--link', link, '--',
            *argv]


def gid_of(version):
    """The index of skein0's first GID that is an IPv4 or an IPv6 address, or
    None."""
    text = subprocess.run(skein_run('ibv_devinfo', '-v'), check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    for index, gid in re.findall(r'GID\[ *(\d+)\]:\s+([\w:.]+)', text):
        if (version == 4) == ('.' in gid):
            return int(index)
    return None


def listens(port):
    want = f':{port:04X}'
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            with open(table, encoding='ascii') as lines:
                if any(fields[1].endswith(want) and fields[3] == '0A'
                       for fields in map(str.split, list(lines)[1:])):
                    return True
        except FileNotFoundError:
            pass
    return False


class Row:
    """One line of a table: a program, the options of both ends, and what the
    client prints when it has done its work."""

    def __init__(self, program, options='', says='', client='', env=None,
                 timeout=200, link='ethernet'):
        self.program = program
        self.options = options.split()
        self.client = client.split()
        self.says = says
        self.env = env
        self.timeout = timeout
        self.link = link

    def __str__(self):
        return ' '.join([self.program, *self.options, *self.client] +
                        ([f'({self.link})'] if self.link != 'ethernet' else
                         []))

    @property
    def lossy(self):
        """Messages may be lost, and in harsh mode are: these programs then
        wait for ever."""
        return self.program in ('ibv_uc_pingpong', 'ibv_ud_pingpong') or \
            any(kind in self.options for kind in ('UC', 'UD'))

    def run(self, case):
        """Returns the client's output."""
        port = Port()
        try:
            argv = skein_run(self.program, '-p', str(port.number),
                             *self.options, link=self.link)
            server = case.start(argv, name=f'{self} (server)', env=self.env)
            case.until(f'{self}: the server listens',
                       lambda: listens(port.number) or not server.running())
            client = case.start([*argv, *self.client, '127.0.0.1'],
                                name=f'{self} (client)', env=self.env)
            client.exits(0, self.timeout)
            server.exits(0, self.timeout)
        finally:
            port.close()
        text = client.text('out')
        if not re.search(self.says, text, re.M):
            raise Failure(f'{self}: does not say {self.says!r}')
        case.processes.remove(server)
        case.processes.remove(client)
        return text


def run_rows(rows, pairs=PAIRS):
    """All rows, some at a time; each that fails is told, then the test
    fails."""
    failed = []
    begun = time.monotonic()
    if MODE.harsh:
        rows = [row for row in rows if not row.lossy]

    try:
        # One Case watches over all: it looks for strangers among our children.
        with Case() as case, \
                concurrent.futures.ThreadPoolExecutor(pairs) as pool:
            futures = {pool.submit(row.run, case): row for row in rows}
            for future in concurrent.futures.as_completed(futures):
                try:
                    future.result()
                    print(f'ok: {futures[future]}', flush=True)
                except Failure as failure:
                    failed.append(str(failure))
                    print(f'FAILED: {failure}', flush=True)
            if failed:
                raise Failure('; '.join(failed))
    except Failure:
        sys.exit(1)  # told by the Case
    print(f'{len(rows)} passed, {time.monotonic() - begun:.1f} s')
