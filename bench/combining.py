#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""combining.py [--json] [--rounds N] [--counts | --rates | --baselines] [BUILD]
- what is said of combining, as found on this machine (docs/measurements/performance.md).

Counts: messages and doorbells of each call at forced degrees (skein perf rpc
--degree), and instructions on either side under callgrind, which hold whatever
else the machine does. The queue's own function, in which threads wait, is taken
at its cost at degree 1, where nobody waits.

Rates: slices by turns, combining and a spin lock, in the next round the other
way round; the figure is the median over the rounds of a round's ratio. With a
batch, either way a thread hands over together what it has at hand; else each
call is a message's beginning, either way. Always exits 0 when everything could
be run: a bench is no test.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, 'peers'))

# pylint: disable=wrong-import-position
from kinds import last_object
from procs import Bench, Failed

DEGREES = (1, 2, 4, 8)
PARTS = ('send', 'round', 'reap', 'server')
CALLS = 2000
# Where threads of a forced degree wait, and what they wait by.
WAITS = ('combiner_go_on', 'await', 'lead', 'env_yield', 'real_yield',
         'sched_yield', 'real_now_ns', 'clock_gettime')
THREADS = 8
# Of so many threads: each way's options of skein perf rpc, of both ends; or the
# server's threads of ud_rpc. The first is what the others are divided by.
BASELINES = [
    ('a QP each (-q 8)', ['-q', 8, '--no-combining']),
    ('a lock by 2 (-q 4)', ['-q', 4, '--no-combining']),
    ('a lock by 4 (-q 2)', ['-q', 2, '--no-combining']),
    ('a lock by 8 (-q 1)', ['-q', 1, '--no-combining']),
    ('one handle, -q 4', ['-q', 4]),
    ('one handle, -q 2', ['-q', 2]),
    ('one handle, -q 1', ['-q', 1]),
    ('datagrams, a server thread', 1),
    ('datagrams, 8 server threads', THREADS),
]


def fail(text):
    print(f'combining.py: {text}', file=sys.stderr)
    sys.exit(1)


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f'{" ".join(words)}: {done.stderr.strip()}')
    return done.stdout


def perf(options, *words):
    return json.loads(run([
        os.path.join(options.build, 'tools', 'skein'), 'perf', 'rpc', '--self',
        '--device', 'soft', '--json', *map(str, words)]))


def count(options, *words):
    """Instructions of each call, and those of the functions that wait."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, 'callgrind')
        n = int(run(['valgrind', '--tool=callgrind', '--collect-atstart=no',
                     '--fair-sched=try', f'--callgrind-out-file={out}',
                     os.path.join(options.build, 'bench', 'count_combine'),
                     *map(str, words)]))
        text = run(['callgrind_annotate', '--threshold=100', out])
    total = waits = 0
    for line in text.splitlines():
        found = re.match(r' *([\d,]+) \([^)]*\) +(.*)$', line)
        if not found:
            continue
        cost = int(found.group(1).replace(',', ''))
        name = found.group(2).split(' [')[0].split(':')[-1]
        if name == 'PROGRAM TOTALS' or 'PROGRAM' in name:
            total = cost
        elif name.split('@')[0].split("'")[0] in WAITS:
            waits += cost
    return total / n, waits / n


def sent(options, degree):
    found = perf(options, '--threads', THREADS, '-q', 1, '--degree', degree,
                 '-n', 4000)
    sharing = found['sharing']
    return {name: sharing[name] for name in (
        'degree', 'messages_per_call', 'doorbells_per_call', 'answer_degree',
        'answers_per_call', 'answer_doorbells_per_call')}


def counts(options):
    queue = 0
    for degree in DEGREES:
        row = {'degree': degree, **sent(options, degree)}
        for part in PARTS:
            total, waits = count(options, part, degree, CALLS)
            if part == 'send' and degree == 1:
                queue = waits
            row[part] = total - waits + queue if part == 'send' else total
        row['client'] = row['send'] + row['round'] + row['reap']
        yield row


def rates(options, threads, window, batch):
    """Combining by spin lock: calls a second, of each round."""
    ratios = []
    ways = {'combining': [], 'lock': ['--no-combining']}
    for i in range(options.rounds):
        rate = {}
        for way in sorted(ways, reverse=i % 2 == 1):
            rate[way] = perf(options, '--threads', threads, '-q', 1, '--bw',
                             '-t', window, '-l', batch, '-D', '100ms',
                             '--slice', '10ms',
                             *ways[way])['rate_per_s']
        ratios.append(rate['combining'] / rate['lock'])
    return {'threads': threads, 'window': window, 'batch': batch,
            'rounds': len(ratios),
            'ratio': statistics.median(ratios),
            'quartiles': statistics.quantiles(ratios, n=4)[::2]}


def baseline(bench, way, window):
    """Calls a second, and p50 in ns."""
    if isinstance(way, list):
        tool = [os.path.join(bench.build, 'tools', 'skein'), 'perf', 'rpc',
                '--device', 'soft']
        serve, call = tool, [*tool, '--threads', THREADS, *way, '--bw',
                             '--slice', '100ms']
    else:
        tool = [os.path.join(bench.build, 'bench', 'ud', 'ud_rpc'),
                '--device', 'soft']
        serve, call = [*tool, '--threads', way], [*tool, '--threads', THREADS]

    def ready(text):
        found = re.search(r'on port (\d+)$', text, re.M)
        return found and found.group(1)

    text, _ = bench.pair(
        [*serve, '-p', '0'], ready,
        lambda port: [*call, '-t', window, '-D', '100ms', '-p', port, '--json',
                      '127.0.0.1'])
    found = last_object(text)
    return found['rate_per_s'], found['p50_ns']


def baselines(options, window):
    """Each way's rate by the first one's of the same round."""
    bench = Bench(options.build)
    rounds = []
    try:
        for i in range(options.rounds):
            order = BASELINES if i % 2 else BASELINES[::-1]
            rounds.append({name: baseline(bench, way, window)
                           for name, way in order})
    except Failed as failed:
        fail(failed)
    finally:
        bench.close()
    first = BASELINES[0][0]
    for name, _ in BASELINES:
        ratios = [one[name][0] / one[first][0] for one in rounds]
        yield {'way': name, 'window': window, 'rounds': len(rounds),
               'rate_per_s': statistics.median(one[name][0]
                                               for one in rounds),
               'p50_ns': statistics.median(one[name][1] for one in rounds),
               'ratio': statistics.median(ratios),
               'quartiles': statistics.quantiles(ratios, n=4)[::2]}


def table(heads, rows):
    cells = [heads] + [[f'{cell:.3g}' if isinstance(cell, float) and cell < 10
                        else f'{cell:.0f}' if isinstance(cell, float)
                        else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print('  '.join(cell.rjust(width) for cell, width in zip(row, widths)))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', action='store_true',
                        help='one JSON object instead of tables')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--counts', action='store_true', help='only these')
    parser.add_argument('--rates', action='store_true', help='only these')
    parser.add_argument('--baselines', action='store_true', help='only these')
    parser.add_argument('build', nargs='?', default='build')
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error('--rounds from 2')
    return options


def main():
    options = arguments()
    found = {}
    every = not (options.counts or options.rates or options.baselines)
    if every or options.counts:
        if not shutil.which('valgrind'):
            fail('valgrind is missing: scripts/deps.sh test')
        found['counts'] = list(counts(options))
        found['alone'] = {way: count(options, way, CALLS)[0]
                          for way in ('private', 'shared')}
    if every or options.baselines:
        found['baselines'] = [row for window in (1, 8)
                              for row in baselines(options, window)]
    if every or options.rates:
        found['rates'] = [rates(options, *case) for case in (
            (1, 8, 1), (THREADS, 1, 1), (THREADS, 8, 1), (THREADS, 8, 8))]
        found['alone_ns'] = run([os.path.join(
            options.build, 'bench', 'count_combine'), 'ns', '200000']).strip()
    if options.json:
        print(json.dumps(found))
        return
    if 'counts' in found:
        heads = list(found['counts'][0])
        table(heads, [list(row.values()) for row in found['counts']])
        print('alone, a blocking call, instructions:', found['alone'])
    if 'rates' in found:
        table(['threads', 'window', 'batch', 'rounds', 'combining/lock',
               'quartiles'],
              [[row['threads'], row['window'], row['batch'], row['rounds'],
                row['ratio'],
                ' '.join(f'{q:.2f}' for q in row['quartiles'])]
               for row in found['rates']])
        print('alone, a blocking call:', found['alone_ns'])
    if 'baselines' in found:
        table(['way', 'window', 'rounds', 'M/s', 'p50 us', 'ratio',
               'quartiles'],
              [[row['way'], row['window'], row['rounds'],
                row['rate_per_s'] * 1e-6, row['p50_ns'] * 1e-3, row['ratio'],
                ' '.join(f'{q:.2f}' for q in row['quartiles'])]
               for row in found['baselines']])


main()
