# SPDX-License-Identifier: MIT
"""The ping-pong programs of rdma-core, unmodified: RC, UC, UD, SRQ; polling
and sleeping, with and without their check of the data."""

from stock import Row, need, run_rows

DONE = r'usec/iter'
# Iterations are few: on a busy machine with fewer cores than pollers each one
# takes a turn of the scheduler.
FEW = '-n 200'
ROWS = [
    Row('ibv_rc_pingpong', f'-g 0 {FEW}', DONE),
    Row('ibv_rc_pingpong', '-g 0 -e -c', DONE),
    Row('ibv_rc_pingpong', f'-g 0 -c {FEW} -s 1', DONE),
    Row('ibv_rc_pingpong', '-g 0 -e -c -n 50 -s 4194304', DONE),
    Row('ibv_rc_pingpong', f'-g 0 -N -c {FEW}', DONE),
    Row('ibv_rc_pingpong', '-g 0 -N -e -c', DONE),
    Row('ibv_rc_pingpong', f'-g 0 -r 1 {FEW} -m 4096', DONE),
    Row('ibv_uc_pingpong', f'-g 0 {FEW}', DONE),
    Row('ibv_uc_pingpong', '-g 0 -e -c', DONE),
    Row('ibv_uc_pingpong', '-g 0 -e -c -n 50 -s 1048576', DONE),
    Row('ibv_ud_pingpong', f'-g 0 {FEW}', DONE),
    Row('ibv_ud_pingpong', '-g 0 -e -c', DONE),
    Row('ibv_ud_pingpong', f'-g 0 -c {FEW} -s 1', DONE),
    Row('ibv_srq_pingpong', f'-g 0 {FEW}', DONE),
    Row('ibv_srq_pingpong', '-g 0 -e -c', DONE),
    Row('ibv_srq_pingpong', '-g 0 -e -c -q 4 -n 50 -s 1048576', DONE),
    Row('ibv_srq_pingpong', f'-g 0 -q 64 -r 256 {FEW}', DONE),
    # as on InfiniBand: no GID
    Row('ibv_rc_pingpong', '-e -c', DONE, link='infiniband'),
    Row('ibv_uc_pingpong', '-e -c', DONE, link='infiniband'),
    Row('ibv_ud_pingpong', '-e -c', DONE, link='infiniband'),
    Row('ibv_srq_pingpong', '-e -c', DONE, link='infiniband'),
]

if __name__ == '__main__':
    need('ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong',
         'ibv_srq_pingpong')
    run_rows(ROWS)
