# SPDX-License-Identifier: MIT
"""ucx_perftest, unmodified, over rc_verbs and ud_verbs: UCX's own protocols
(active messages, tags, remote memory, atomics) on the device."""

from stock import Row, gid_of, need, run_rows

DONE = r'^Final: +\d+'
RC = {'UCX_TLS': 'rc_verbs,ud_verbs', 'UCX_NET_DEVICES': 'skein0:1'}
UD = {'UCX_TLS': 'ud_verbs', 'UCX_NET_DEVICES': 'skein0:1'}
FEW = '-n 200 -w 10'
# By LID, as on InfiniBand.
LID = 'infiniband'
ROWS = [
    Row('ucx_perftest', f'-t am_lat -x rc_verbs -d skein0:1 {FEW}', DONE),
    Row('ucx_perftest', f'-t put_lat -x rc_verbs -d skein0:1 {FEW}', DONE),
    *(Row('ucx_perftest', f'-t am_bw -x ud_verbs -d skein0:1 {FEW}', DONE,
          link=link) for link in ('ethernet', LID)),
    *(Row('ucx_perftest', f'-t {test} {FEW} -s {size}', DONE, env=RC)
      for test, size in (('tag_lat', 8), ('tag_bw', 65536),
                         ('tag_bw', 4194304), ('ucp_put_lat', 8),
                         ('ucp_put_bw', 65536), ('ucp_get', 65536),
                         ('ucp_fadd', 8), ('ucp_cswap', 8),
                         ('stream_bw', 4096), ('ucp_am_bw', 1024))),
    Row('ucx_perftest', f'-t tag_lat {FEW} -s 8', DONE, env=RC, link=LID),
    Row('ucx_perftest', f'-t tag_lat {FEW} -s 8', DONE, env=UD),
    *(Row('ucx_perftest', f'-t tag_bw {FEW} -s 100000', DONE, env=UD,
          link=link) for link in ('ethernet', LID)),
]


def ipv6_rows():
    """The same over the first GID that is an IPv6 address."""
    index = gid_of(6)
    if index is None:
        print('no rows over IPv6: no such address here')
        return []
    env = {'UCX_IB_GID_INDEX': str(index)}
    return [Row('ucx_perftest', f'-t tag_bw {FEW} -s 100000', DONE,
                env={**transports, **env}) for transports in (RC, UD)]


if __name__ == '__main__':
    need('ucx_perftest', 'ibv_devinfo')
    run_rows(ROWS + ipv6_rows())
