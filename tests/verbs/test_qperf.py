# SPDX-License-Identifier: MIT
"""qperf, unmodified: its RC, UC and UD tests, by LID (it knows no GIDs). Its
server forks a child for each client."""

import re

import stock
from harness import Case, Failure, run_cases

TESTS = ('rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw '
         'rc_rdma_write_lat rc_rdma_write_bw rc_rdma_write_poll_lat '
         'rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap '
         'ver_rc_fetch_add uc_lat uc_bw uc_bi_bw uc_rdma_write_lat '
         'uc_rdma_write_bw uc_rdma_write_poll_lat ud_lat ud_bw ud_bi_bw').split()

# On an event these poll once, for 1,024 completions, where sends and
# receives together may be 2,048: what is left behind raises no event, and when
# both ends have left some, both wait for ever. So they poll.
POLLING = ('rc_bi_bw', 'uc_bi_bw', 'ud_bi_bw')


def run(case, name, port):
    poll = ['-cp1'] if name in POLLING else []
    # a second: it takes whole ones only
    client = case.start(stock.skein_run(
        'qperf', '-lp', str(port.number), '-t', '1', *poll, '127.0.0.1',
        name, link='infiniband'), name=f'qperf {name}')
    client.exits(0)
    if not re.search(r'^ +(latency|bw|\w+_bw|msg_rate) += +[1-9]',
                     client.text('out'), re.M):
        raise Failure(f'qperf {name} measured nothing')
    print(f'ok: qperf {name}')


def children(process):
    """Those of its first thread that have not ended."""
    found = []
    with open(f'/proc/{process.pid}/task/{process.pid}/children',
              encoding='ascii') as pids:
        for pid in pids.read().split():
            try:
                with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
                    state = stat.read().rsplit(')', 1)[1].split()[0]
            except FileNotFoundError:
                continue
            if state not in 'ZX':
                found.append(pid)
    return found


def qperf():
    port = stock.Port()
    with Case() as case:
        server = case.start(stock.skein_run(
            'qperf', '-lp', str(port.number), link='infiniband'))
        case.until('the server listens', lambda: stock.listens(port.number))
        for name in TESTS:
            run(case, name, port)
        # The last client has its answer before the child that served it ends.
        case.until("the server's children to end",
                   lambda: not children(server))
        server.kill()
    port.close()


if __name__ == '__main__':
    stock.need('qperf')
    run_cases(qperf)
