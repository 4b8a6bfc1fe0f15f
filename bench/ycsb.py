#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ycsb.py [--json] [--time TIME] [--rounds N] [-w A,...] [--build BUILD] - YCSB A
to F, uniform and zipfian, with results replied, fetched, and as auto decides: operations a second,
fetched and auto over replied. Every value that is read is verified; a wrong or
missing one ends the run.

The three modes run by turns, each on its own server with one thread; figures
are medians over the rounds.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

MODES = ('reply', 'fetch', 'auto')
DISTRIBUTIONS = ('uniform', 'zipfian')


def run(skein, mode, distribution, workloads, time):
    """{workload: operations a second}"""
    server = subprocess.Popen([skein, 'kv', 'serve', '--listen', '127.0.0.1:0',
                               '--wait', 'poll'], stdout=subprocess.PIPE,
                              text=True)
    try:
        address = re.search(r'listening on (\S+) over',
                            server.stdout.readline()).group(1)
        done = subprocess.run(
            [skein, 'ycsb', '--server', address, '-w', workloads,
             '--time', time, '-W', '8', '--wait', 'poll', '--distribution',
             distribution, '--return', mode, '--json'],
            stdout=subprocess.PIPE, check=False)
    finally:
        server.terminate()
        server.wait()
    if done.returncode:
        sys.exit(f'ycsb.py: {mode}, {distribution}: the run failed')
    results = json.loads(done.stdout)['results']
    assert all(r['bad'] == 0 for r in results), results
    return {r['workload']: r['ops'] / r['seconds'] for r in results}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--time', default='300ms')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('-w', '--workloads', default='a,b,c,d,e,f')
    parser.add_argument('--build', default='build')
    args = parser.parse_args()
    skein = os.path.join(args.build, 'tools', 'skein')
    found = []
    for distribution in DISTRIBUTIONS:
        rounds = [{mode: run(skein, mode, distribution,
                             args.workloads, args.time)
                   for mode in MODES} for _ in range(args.rounds)]
        for w in args.workloads.split(','):
            row = {'distribution': distribution, 'workload': w,
                   'reply': statistics.median(r['reply'][w] for r in rounds)}
            for mode in MODES[1:]:
                row[mode + '_over_reply'] = statistics.median(
                    r[mode][w] / r['reply'][w] for r in rounds)
            found.append(row)
    print(f'{"":10}{"":3}{"reply/s":>9}{"fetch":>7}{"auto":>7}',
          file=sys.stderr)
    for r in found:
        print(f'{r["distribution"]:10}{r["workload"].upper():3}'
              f'{r["reply"]:9.0f}{r["fetch_over_reply"]:7.2f}'
              f'{r["auto_over_reply"]:7.2f}', file=sys.stderr)
    if args.json:
        print(json.dumps({'results': found}))


if __name__ == '__main__':
    main()
