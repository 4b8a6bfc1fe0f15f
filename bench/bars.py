#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bars.py [--json] [--duration S] [--only NAME] [BUILD] - the project's bars, as
measured on this machine: what was wanted, what was found.

Ratios are medians over slices between probes of the machine itself (see
docs/measurements/performance.md), so they may be compared between machines; absolute
figures may not. A figure without a slice that held still is "unsteady", which
is neither met nor missed. Always exits 0 when everything could be run: a bench
is no test.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# name, what is measured, skein perf's words, the field, bound: at most (<) or
# at least (>)
BARS = [
    ('write_8', 'WRITE 8 B round trip / cache line', ['write', '-s', '8'],
     'rtt_ratio', '<', 1.5),
    ('write_1m', 'WRITE 1 MiB / memcpy',
     ['write', '--bw', '-s', '1M', '-t', '4'], 'memcpy_ratio', '>', 0.9),
    ('rpc_64', 'RPC 64 B, p50 / cache line', ['rpc', '-s', '64'],
     'rtt_ratio', '<', 1.8),
    ('rpc_64_p99', 'RPC 64 B, p99 / cache line', ['rpc', '-s', '64'],
     'rtt_ratio_p99', '<', 3.0),
    ('rpc_32', 'RPC 64 B, 32 outstanding, ns each / cache line',
     ['rpc', '-s', '64', '-t', '32'], 'ns_per_op_ratio', '<', 0.40),
    ('rpc_batch', 'RPC 64 B, batches of 8, 64 outstanding, same',
     ['rpc', '-s', '64', '-t', '64', '-l', '8'], 'ns_per_op_ratio', '<', 0.22),
    ('rpc_event', 'RPC 64 B, both asleep, p50 / eventfd round trip',
     ['rpc', '-s', '64', '--wait', 'event'], 'event_ratio', '<', 1.3),
]
# A ratio of copies hangs on which physical pages each process was given (its
# buffers just fill a core's cache): the median of so many runs, each with pages
# of its own.
RUNS = {'write_1m': 9}
HERE = os.path.dirname(os.path.abspath(__file__))
SYSCALL_OPS = (20000, 220000)


def fail(text):
    print(f'bars.py: {text}', file=sys.stderr)
    sys.exit(1)


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f'{" ".join(words)}: {done.stderr.strip()}')
    return done.stdout


def bar(name, what, bound, wanted, measured, detail):
    if measured is None:
        verdict = 'unsteady'
    elif (measured <= wanted) if bound == '<' else (measured >= wanted):
        verdict = 'ok'
    else:
        verdict = 'NOT'
    return {'bar': name, 'what': what, 'bound': bound, 'wanted': wanted,
            'measured': measured, 'verdict': verdict, **detail}


def middle(runs, field):
    """The run with the median figure of those that have one."""
    steady = [found for found in runs if found[field] is not None]
    steady.sort(key=lambda found: found[field])
    return steady[len(steady) // 2] if steady else runs[0]


def perf_bars(tool, options):
    measured = {}
    for name, what, words, field, bound, wanted in BARS:
        if options.only and options.only not in name:
            continue
        key = tuple(words)
        if key not in measured:
            measured[key] = middle([json.loads(run(
                [tool, 'perf', *words, '--self', '--device', 'soft', '--json',
                 '-D', str(options.duration)]))
                for _ in range(RUNS.get(name, 1))], field)
        found = measured[key]
        yield bar(name, what, bound, wanted, found[field], {
            'runs': RUNS.get(name, 1),
            'mode': found['mode'],
            'cacheline_rtt_ns': found['cacheline_rtt_ns'],
            'p50_ns': found['p50_ns'], 'ns_per_op': found['ns_per_op'],
            'slices_kept': found['slices_kept'],
            'slices_dropped': found['slices_dropped']})


def system_calls(tool, words, count, folder):
    log = os.path.join(folder, 'strace')
    run(['strace', '-f', '-c', '-U', 'calls,name', '-o', log, tool, 'perf',
         *words, '--self', '--device', 'soft', '--json', '-n', str(count)])
    with open(log, encoding='utf-8') as text:
        rows = re.findall(r'^\s*(\d+)\s+(\w+)$', text.read(), re.M)
    # poll: the tool's spinning wait looks at its control socket now and then,
    # by the clock and not by the operation
    return sum(int(n) for n, name in rows if name not in ('poll', 'total'))


def syscall_bars(tool, options):
    if not shutil.which('strace'):
        print('bars.py: no strace: system calls are not counted',
              file=sys.stderr)
        return
    for name, what, words, scale in (
            ('write_8_calls', 'WRITE 8 B, system calls each', ['write'], 1),
            ('write_1m_calls', 'WRITE 1 MiB, system calls each',
             ['write', '--bw', '-s', '1M', '-t', '4'], 100)):
        if options.only and options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            few, many = (count // scale for count in SYSCALL_OPS)
            more = (system_calls(tool, words, many, folder) -
                    system_calls(tool, words, few, folder))
        yield bar(name, what, '<', 0.05, max(0, more) / (many - few), {})


def idle_bar(options):
    if options.only and options.only not in 'idle':
        return
    shares = re.findall(r'[\d.]+', run(
        [os.path.join(options.build, 'bench', 'idle'), '4']))
    # signs of life, a few a second, are not nothing
    yield bar('idle', 'connected and idle, share of a core', '<', 0.001,
              max(float(share) for share in shares), {})


def instruction_bars(options):
    if options.only and options.only not in 'instructions':
        return
    if not shutil.which('valgrind'):
        print('bars.py: no valgrind: instructions are not counted',
              file=sys.stderr)
        return
    counts = json.loads(run([os.path.join(HERE, 'instructions.sh'), '--json',
                             options.build]))
    yield bar('post_instructions', 'WRITE 8 B, instructions of a post', '<',
              300, counts['post_write_8'], {'counts': counts})


def show(rows):
    line = '{:<52} {:>8} {:>9} {:>8}  {:<5} {:>9} {:>7}'
    print(line.format('bar', 'wanted', 'measured', '', 'mode', 'line[ns]',
                      'slices'))
    for row in rows:
        sign = '<=' if row['bound'] == '<' else '>='
        got = row['measured']
        kept = row.get('slices_kept')
        rtt = row.get('cacheline_rtt_ns')
        print(line.format(
            row['what'], f'{sign} {row["wanted"]:g}',
            '-' if got is None else f'{got:.4g}', row['verdict'],
            row.get('mode') or '-', '-' if rtt is None else f'{rtt:.0f}',
            '-' if kept is None
            else f'{kept}/{kept + row["slices_dropped"]}'))
    for row in rows:
        counts = {key: value for key, value in row.get('counts', {}).items()
                  if key != 'device'}
        if counts:
            print('\ninstructions on soft')
            for key, value in counts.items():
                print(f'  {key.replace("_", " "):<28} {value:>8.1f}')


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', action='store_true',
                        help='one JSON object instead of the table')
    parser.add_argument('--duration', type=float, default=0.5,
                        help='seconds of each measurement (default 0.5)')
    parser.add_argument('--only', help='bars with this in the name')
    parser.add_argument('build', nargs='?', default='build')
    options = parser.parse_args()
    tool = os.path.join(options.build, 'tools', 'skein')
    if not os.path.exists(tool):
        fail(f'{tool} is missing: make')
    rows = [*perf_bars(tool, options), *syscall_bars(tool, options),
            *idle_bar(options), *instruction_bars(options)]
    if options.json:
        json.dump({'bars': rows}, sys.stdout, indent=2)
        print()
    else:
        show(rows)
    with open(os.path.join(options.build, 'bars.json'), 'w',
              encoding='utf-8') as out:
        json.dump({'bars': rows}, out, indent=2)


main()
