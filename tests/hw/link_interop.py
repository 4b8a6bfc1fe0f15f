# SPDX-License-Identifier: MIT
"""soft's link between hosts against the kernel's rxe: stock programs, rxe7 in
the first network namespace and skein0 in another, each end once as server and
once as client. rxe drops a packet whose ICRC is wrong, so it proves ours.

    link_interop.py [all]

Without `all` a few rows, which the VM lane runs. Run as root in the guest of
scripts/rdma-vm.sh; docs/link.md has what came out."""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '..', 'e2e'))
# pylint: disable=wrong-import-position
from harness import Case, Failure, skip, tool  # noqa: E402

RXE, SOFT = '10.94.0.1', '10.94.0.2'
PORT = 18515
PING, PERF = '-m 1024 -n 20', '-m 1024 -F -n 20'
BOTH = (('rxe', 'soft'), ('soft', 'rxe'))
# program, options, (server, client)..
FEW = [
    ('ibv_rc_pingpong', PING + ' -s 4097', BOTH),
    ('ib_read_bw', PERF + ' -s 40000', BOTH[:1]),
    ('ib_atomic_lat', PERF + ' -A FETCH_AND_ADD', BOTH[1:]),
    ('ibv_uc_pingpong', PING, BOTH[:1]),
    ('ibv_ud_pingpong', '-n 50 -s 1024', BOTH[1:]),
]
ALL = [(program, options, BOTH) for program, options in [
    ('ibv_rc_pingpong', PING + ' -s 4097'),
    ('ib_write_lat', PERF + ' -s 64'),
    ('ib_read_bw', PERF + ' -s 40000'),
    ('ib_atomic_lat', PERF + ' -A FETCH_AND_ADD'),
    ('ibv_rc_pingpong', PING + ' -s 1'),
    ('ibv_rc_pingpong', PING + ' -s 65536 -e'),
    ('ibv_rc_pingpong', '-m 256 -n 50 -s 3000'),
    ('ibv_srq_pingpong', PING + ' -q 4'),
    ('ibv_uc_pingpong', PING),
    ('ibv_ud_pingpong', '-n 50 -s 1024'),
    ('ib_write_lat', PERF + ' -s 1'),
    ('ib_write_lat', PERF + ' -s 200 -I 220'),
    ('ib_write_lat', PERF + ' -s 1000000'),
    ('ib_write_bw', PERF + ' -s 65536'),
    ('ib_write_bw', '-m 1024 -F -n 5 -s 8388608'),
    ('ib_write_bw', PERF + ' -s 4096 -q 4'),
    ('ib_write_bw', PERF + ' -s 4096 -b'),
    ('ib_read_lat', PERF + ' -s 64'),
    ('ib_read_lat', PERF + ' -s 100000'),
    ('ib_read_bw', '-m 1024 -F -n 5 -s 1000000'),
    ('ib_send_lat', PERF + ' -s 1'),
    ('ib_send_lat', PERF + ' -s 100000'),
    ('ib_send_lat', PERF + ' -s 64 -e'),
    ('ib_send_bw', PERF + ' -s 65536'),
    ('ib_send_bw', PERF + ' -s 2000 -b'),
    ('ib_atomic_lat', PERF + ' -A CMP_AND_SWAP'),
    ('ib_atomic_bw', PERF + ' -A FETCH_AND_ADD'),
]]


def run(*argv):
    subprocess.run(argv, check=True)


def lay():
    """rxe7 on one end of a veth pair, namespace `far` with the other."""
    run('ip', 'netns', 'add', 'far')
    run('ip', 'link', 'add', 'la', 'type', 'veth', 'peer', 'name', 'lb',
        'netns', 'far')
    run('ip', 'addr', 'add', RXE + '/24', 'dev', 'la')
    run('ip', '-n', 'far', 'addr', 'add', SOFT + '/24', 'dev', 'lb')
    run('ip', 'link', 'set', 'la', 'up')
    run('ip', '-n', 'far', 'link', 'set', 'lb', 'up')
    run('ip', '-n', 'far', 'link', 'set', 'lo', 'up')
    for a, b, there in (('la', 'lb', SOFT), ('lb', 'la', RXE)):
        far = ['-n', 'far'] if a == 'lb' else []
        other = [] if a == 'lb' else ['-n', 'far']
        mac = re.search(r'link/ether (\S+)', subprocess.run(
            ['ip', *other, 'link', 'show', b], check=True, text=True,
            capture_output=True).stdout).group(1)
        run('ip', *far, 'neigh', 'add', there, 'lladdr', mac, 'dev', a, 'nud',
            'permanent')
    run('rdma', 'link', 'add', 'rxe7', 'type', 'rxe', 'netdev', 'la')


def lift():
    subprocess.run(['rdma', 'link', 'delete', 'rxe7'], check=False)
    subprocess.run(['ip', 'netns', 'delete', 'far'], check=False)


SIDES = {
    'rxe': ([], 'rxe7', RXE),
    'soft': (['ip', 'netns', 'exec', 'far', tool(), 'run', '--verbs',
              '--soft-only', '--'], 'skein0', SOFT),
}


def gid_index(side):
    prefix, device, address = SIDES[side]
    text = subprocess.run([*prefix, 'ibv_devinfo', '-v', '-d', device],
                          check=True, text=True, capture_output=True).stdout
    for index, gid in re.findall(r'GID\[ *(\d+)\]:\s*(\S+)', text):
        if gid.rstrip(',').endswith(':' + address):
            return index
    raise Failure(f'{device} has no GID {address}: {text}')


def listens(netns, port):
    text = subprocess.run(['ss', *netns, '-Htln', f'sport = :{port}'],
                          check=True, text=True, capture_output=True).stdout
    return bool(text.strip())


def one(program, options, server, client, indices, port):
    with Case() as case:
        def start(side, *more):
            prefix, device, _ = SIDES[side]
            gid = '-g' if program.startswith('ibv_') else '-x'
            return case.start([*prefix, program, '-d', device, gid,
                               indices[side], '-p', str(port),
                               *options.split(), *more], name=side)
        a = start(server)
        netns = ['-N', 'far'] if server == 'soft' else []
        case.until('the server listens',
                   lambda: listens(netns, port) or not a.running())
        b = start(client, SIDES[server][2])
        b.exits(0)
        a.exits(0)


def main():
    for program in ('ibv_rc_pingpong', 'ib_write_lat'):
        if not shutil.which(program):
            skip(f'{program} is not installed')
    rows = ALL if sys.argv[1:] == ['all'] else FEW
    failed = 0
    port = PORT
    lay()
    try:
        indices = {side: gid_index(side) for side in SIDES}
        for program, options, ends in rows:
            for server, client in ends:
                port += 1
                words = f'{program} {options}: {client} to {server}'
                try:
                    one(program, options, server, client, indices, port)
                    print(f'ok {words}', flush=True)
                except Failure as failure:
                    failed += 1
                    print(f'FAILED {words}: {failure}', flush=True)
    finally:
        lift()
    sys.exit(bool(failed))


if __name__ == '__main__':
    main()
