# SPDX-License-Identifier: MIT
"""MPI programs over UCX, unmodified: test_mpi.py mpich|openmpi. UCX itself
chooses the device, and says in its log that it did."""

import os
import re
import subprocess
import sys

from stock import gid_of, need, skein_run
from harness import Case, Failure

HERE = __file__.rsplit('/', 1)[0]
# Debian's settings turn UCX off in Open MPI, whatever the device is.
RUN = {
    'mpich': ['mpirun.mpich'],
    'openmpi': ['mpirun.openmpi', '--oversubscribe', '--mca', 'pml', 'ucx'],
}
ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def run(case, program, count, env, transport):
    """The ring of count processes; every process took that transport."""
    what = f'{count} processes, {env or "no options"}'
    process = case.start(
        skein_run(*RUN[sys.argv[1]], '-np', str(count), program), name=what,
        env={**ROOT, 'UCX_LOG_LEVEL': 'info', **env})
    process.exits(0, 200)
    text = process.text()
    if f'{count} processes, sum {count * (count + 1) // 2}' not in text:
        raise Failure(f'{what}: no sum')
    took = set(re.findall(rf':(\d+):\d+\].*{transport}/skein0:1', text))
    if len(took) != count:
        raise Failure(f'{what}: {len(took)} took {transport} on skein0')
    print(f'ok: {what}: {transport}', flush=True)


def main():
    mpi = sys.argv[1]
    compiler = f'mpicc.{mpi}'
    need(compiler, RUN[mpi][0], 'ibv_devinfo', group='peers')
    ipv6 = gid_of(6)
    with Case() as case:
        program = f'{case.folder}/ring'
        subprocess.run([compiler, '-O1', '-o', program, f'{HERE}/mpi_ring.c'],
                       check=True)
        for count in (2, 8):
            run(case, program, count, {}, 'rc_verbs')
        run(case, program, 2, {'UCX_TLS': 'rc'}, 'rc_verbs')
        run(case, program, 2, {'UCX_TLS': 'ud'}, 'ud_verbs')
        if ipv6 is None:
            print('not over IPv6: no such address here')
        else:
            run(case, program, 2, {'UCX_TLS': 'ud', 'UCX_IB_GID_INDEX':
                                   str(ipv6)}, 'ud_verbs')
        os.remove(program)


main()
