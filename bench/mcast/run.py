#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""run.py [options] [BUILD] - one object from memory to the memory of processes
of this machine: Skein's multicast beside MPI_Bcast of Debian's MPICH and Open
MPI.

All ways are run in turns, round by round, each as processes of its own; of each
the first message is a warm-up, the best of the next counts. A ratio is the
median over the rounds of one time by Skein's binomial pipeline's in the same
round. MPI's ranks yield when idle, as their manuals ask for when there are more
ranks than cores. Skein's rows say whether every block's checksum was verified;
MPI has none. What arrived is compared, out of the time. A way that is not there
is named with the reason. Exits 0 when Skein's could be run.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

MESSAGES = 3
PATIENCE_S = 300
PIPELINE, SEQUENTIAL, CHAIN = 0, 1, 2
FIRST = 'skein, pipeline, no checksums'


class Missing(Exception):
    """A way that cannot be measured here; its text says why."""


def seconds_of(words, env=None):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=env, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Missing(f'no end in {PATIENCE_S} s') from None
    if done.returncode:
        text = done.stderr.decode(errors='replace').strip().splitlines()
        raise Missing(text[0] if text else f'status {done.returncode}')
    return min(float(line) for line in done.stdout.split()[1:])


def skein(algorithm, checksum):
    def run(args):
        return seconds_of(
            [os.path.join(args.build, 'bench', 'mcast', 'group'),
             str(args.receivers), str(args.size << 20), str(MESSAGES),
             str(algorithm), str(args.block << 10), str(checksum)],
            {**os.environ, 'SKEIN_DEVICE': args.device})
    return run


def mpi(name, words, **more):
    def run(args):
        program = os.path.join(args.build, 'bench', 'mcast', f'bcast_{name}')
        launcher = f'mpiexec.{name}'
        if not os.path.exists(program) or not shutil.which(launcher):
            raise Missing(f'{name} is not installed')
        return seconds_of([launcher, '-n', str(1 + args.receivers), *words,
                           program, str(args.size << 20), str(MESSAGES)],
                          {**os.environ, **more})
    return run


WAYS = {
    FIRST: skein(PIPELINE, 0),
    'skein, pipeline': skein(PIPELINE, 1),
    'skein, chain, no checksums': skein(CHAIN, 0),
    'skein, one after the other, no checksums': skein(SEQUENTIAL, 0),
    'MPICH, MPI_Bcast': mpi('mpich', [], MPIR_CVAR_POLLS_BEFORE_YIELD='1'),
    'Open MPI, MPI_Bcast': mpi(
        'openmpi', ['--oversubscribe', '--mca', 'mpi_yield_when_idle', '1'],
        OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1'),
}


def measure(args):
    seconds = {name: [] for name in WAYS}
    missing = {}
    for number in range(args.rounds):
        for name, way in WAYS.items():
            if name in missing:
                continue
            if sys.stderr.isatty():
                print(f'\rround {number + 1}, {name}\033[K', end='',
                      file=sys.stderr)
            try:
                seconds[name].append(way(args))
            except Missing as why:
                missing[name] = str(why)
    if sys.stderr.isatty():
        print('\r\033[K', end='', file=sys.stderr)
    return seconds, missing


def result_of(args, seconds, missing):
    rows = []
    for name in WAYS:
        if name in missing or not seconds[name]:
            rows.append({'way': name, 'missing': missing.get(name, '')})
            continue
        ratios = [b / a for a, b in zip(seconds[FIRST], seconds[name])]
        rows.append({'way': name, 'seconds': seconds[name],
                     'seconds_median': statistics.median(seconds[name]),
                     'ratios': ratios,
                     'ratio_median': statistics.median(ratios)})
    return {'size_mib': args.size, 'receivers': args.receivers,
            'block_kib': args.block, 'device': args.device,
            'cores': len(os.sched_getaffinity(0)),
            'load': os.getloadavg()[0], 'rows': rows}


def show(result):
    print(f'{result["size_mib"]} MiB to {result["receivers"]} processes, '
          f'{result["cores"]} cores, device {result["device"]}; '
          f'load {result["load"]:.1f} at the end\n')
    print('| way | seconds | x pipeline (least - most) |\n|---|---|---|')
    for row in result['rows']:
        if 'missing' in row:
            print(f'| {row["way"]} | not measured: {row["missing"]} | |')
        else:
            print(f'| {row["way"]} | {row["seconds_median"]:.3f} | '
                  f'{row["ratio_median"]:.2f} ({min(row["ratios"]):.2f} - '
                  f'{max(row["ratios"]):.2f}) |')


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--size', type=int, default=1024, metavar='MIB')
    parser.add_argument('--receivers', type=int, default=3)
    parser.add_argument('--block', type=int, default=0, metavar='KIB',
                        help="of Skein's; 0: the default")
    parser.add_argument('--device', default='soft')
    parser.add_argument('build', nargs='?', default='build')
    args = parser.parse_args()
    if args.rounds < 1 or args.size < 1 or not 1 <= args.receivers <= 63:
        parser.error('--rounds and --size from 1, --receivers from 1 to 63')
    seconds, missing = measure(args)
    result = result_of(args, seconds, missing)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)
    sys.exit(1 if FIRST in missing else 0)


if __name__ == '__main__':
    main()
