# SPDX-License-Identifier: MIT
"""perftest, unmodified: write, read, send and atomic, latency and bandwidth,
over a sample of their options; with SKEIN_TEST_ROUNDS (make soak) over all
sizes, and all combinations that the programs allow. No time is asserted: bench/verbs.sh
measures."""

import os

from stock import Row, need, run_rows

# A line of the result's table: bytes, iterations, numbers.
DONE = r'^ *\d+ +\d+ +[0-9.]+'
LAST = r'^ *8388608 +\d+ +[0-9.]+'
PROGRAMS = [f'ib_{op}_{what}' for op in ('write', 'read', 'send', 'atomic')
            for what in ('lat', 'bw')]
# -F: says nothing of CPU frequencies
FEW = '-F -n 100'
# a turn of the scheduler each, where pollers share a core
LAT = '-F -n 20'
ALL = '-F -n 10 -a'
ROWS = [
    Row('ib_write_lat', f'{LAT} -s 8', DONE),
    Row('ib_write_lat', f'{LAT} -c UC -I 0', DONE),
    Row('ib_write_lat', f'{LAT} --use_old_post_send -I 64 -s 64', DONE),
    Row('ib_write_bw', f'{FEW} -s 1048576', DONE),
    Row('ib_write_bw', ALL, LAST),
    Row('ib_write_bw', f'{FEW} -c UC -q 4', DONE),
    Row('ib_write_bw', f'{FEW} -b -s 65536', DONE),
    Row('ib_write_bw', '-F -n 96 -q 16 -l 8 -Q 8 -t 64', DONE),
    Row('ib_write_bw', f'{FEW} --use_old_post_send -I 128 -s 128', DONE),
    Row('ib_read_lat', f'{LAT} -s 8', DONE),
    Row('ib_read_lat', f'{LAT} -e', DONE),
    Row('ib_read_bw', f'{FEW} -q 4 -b', DONE),
    Row('ib_read_bw', f'{FEW} --use_old_post_send -o 4', DONE),
    Row('ib_send_lat', f'{LAT} -s 8', DONE),
    Row('ib_send_lat', f'{ALL} -e', LAST),
    Row('ib_send_lat', '-F -n 100 -c UC -e', DONE),
    Row('ib_send_lat', f'{LAT} --use_old_post_send -I 0', DONE),
    Row('ib_send_bw', f'{FEW} -s 65536', DONE),
    Row('ib_send_bw', f'{FEW} -b -q 2', DONE),
    Row('ib_send_bw', f'{FEW} -r 64 -t 32', DONE),
    Row('ib_send_bw', f'{FEW} -c UC -r 512', DONE),
    Row('ib_send_bw', f'{FEW} --use_old_post_send -l 4', DONE),
    Row('ib_atomic_lat', f'{LAT}', DONE),
    Row('ib_atomic_lat', f'{LAT} -A CMP_AND_SWAP -e', DONE),
    Row('ib_atomic_bw', f'{FEW} -A FETCH_AND_ADD -q 4', DONE),
    Row('ib_atomic_bw', f'{FEW} -A CMP_AND_SWAP --use_old_post_send', DONE),
    Row('ib_send_lat', f'{LAT} -c UD -s 64', DONE),
    Row('ib_send_lat', f'{LAT} -c UD -e -s 1024', DONE),
    Row('ib_send_bw', f'{FEW} -c UD -s 4096', DONE),
    Row('ib_send_bw', f'{FEW} -c UD -q 4 -e -s 1024', DONE),
    Row('ib_send_bw', f'{FEW} --use-srq -q 4', DONE),
    Row('ib_send_lat', f'{LAT} --use-srq -s 8', DONE),
    Row('ib_send_lat', f'{LAT} -c UD --use-srq -s 64', DONE),
    # One QP: the queue has a receive for each message of one, whatever -r says,
    # and a datagram that finds none is lost, for which the server waits.
    Row('ib_send_bw', f'{FEW} -c UD --use-srq -s 1024', DONE),
    Row('ib_send_lat', f'{LAT} -c UD -g -s 64', DONE),
    # memory that peers cannot map: ordinary malloc()
    Row('ib_write_lat', f'{LAT} -s 8', DONE, env={'SKEIN_VERBS_BACK': ''}),
    Row('ib_send_bw', f'{FEW} -s 65536', DONE, env={'SKEIN_VERBS_BACK': ''}),
]
# Each takes ten times as long as one of those.
ALL_SIZES = [
    Row('ib_write_lat', ALL, LAST),
    Row('ib_read_bw', ALL, LAST),
    Row('ib_send_bw', f'{ALL} -e', LAST),
    Row('ib_send_bw', f'{ALL} --use-srq -e', LAST),
    Row('ib_send_bw', ALL, LAST, env={'SKEIN_VERBS_BACK': ''}),
]


def matrix():
    """Every program with every combination of these that it takes."""
    for program in PROGRAMS:
        op, what = program.split('_')[1:]
        kinds = {'write': ('RC', 'UC'), 'read': ('RC',), 'atomic': ('RC',),
                 'send': ('RC', 'UC', 'UD')}[op]
        sizes = ('',) if op == 'atomic' else ('-s 1', '-s 4096', '-s 1048576')
        inlines = ('', '-I 0', '-I 220') if op in ('write', 'send') else ('',)
        waits = ('',) if op == 'write' else ('', '-e')
        widths = ('', '-q 8', '-b', '-l 4') if what == 'bw' else ('',)
        if op == 'send':
            widths += ('--use-srq',)
        for kind in kinds:
            # a datagram is one packet
            for size in sizes[:2] if kind == 'UD' else sizes:
                for inline in inlines:
                    for wait in waits:
                        for width in widths:
                            for post in ('', '--use_old_post_send'):
                                yield Row(program, f'-F -n 48 -c {kind} {size} '
                                          f'{inline} {wait} {width} {post}',
                                          DONE)


if __name__ == '__main__':
    need(*PROGRAMS)
    run_rows([*ROWS, *ALL_SIZES, *matrix()]
             if os.environ.get('SKEIN_TEST_ROUNDS') else ROWS)
