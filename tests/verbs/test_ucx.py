# SPDX-License-Identifier: MIT
"""ucx_perftest, unmodified, over rc_verbs and ud_verbs: UCX's own protocols
(active messages, tags, remote memory, atomics) on the device."""

from stock import Row, need, run_rows

DONE = r'^Final: +\d+'
# Version 1.13 takes the kind of a datagram's header from what only mlx5 writes
# into a completion, so UD over IPv4 is dropped by UCX itself: by LID, or by an
# IPv6 GID, it is not.
LINK = 'infiniband'
RC = {'UCX_TLS': 'rc_verbs,ud_verbs', 'UCX_NET_DEVICES': 'skein0:1'}
UD = {'UCX_TLS': 'ud_verbs', 'UCX_NET_DEVICES': 'skein0:1'}
FEW = '-n 200 -w 10'
ROWS = [
    Row('ucx_perftest', f'-t am_lat -x rc_verbs -d skein0:1 {FEW}', DONE),
    Row('ucx_perftest', f'-t put_lat -x rc_verbs -d skein0:1 {FEW}', DONE),
    Row('ucx_perftest', f'-t am_bw -x ud_verbs -d skein0:1 {FEW}', DONE,
        link=LINK),
    *(Row('ucx_perftest', f'-t {test} {FEW} -s {size}', DONE, link=LINK,
          env=RC)
      for test, size in (('tag_lat', 8), ('tag_bw', 65536),
                         ('tag_bw', 4194304), ('ucp_put_lat', 8),
                         ('ucp_put_bw', 65536), ('ucp_get', 65536),
                         ('ucp_fadd', 8), ('ucp_cswap', 8),
                         ('stream_bw', 4096), ('ucp_am_bw', 1024))),
    Row('ucx_perftest', f'-t tag_lat {FEW} -s 8', DONE, link=LINK, env=UD),
    Row('ucx_perftest', f'-t tag_bw {FEW} -s 100000', DONE, link=LINK, env=UD),
]

if __name__ == '__main__':
    need('ucx_perftest')
    run_rows(ROWS)
