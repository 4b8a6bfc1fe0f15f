#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""regress.py [options] OLD NEW - is NEW slower than OLD?

Builds two commits alike, each in a git worktree of its own (removed at the end;
--build OLD=FOLDER or NEW=FOLDER takes a build that is there), and runs the bars
by turns: old, new, old, new. A figure is the median of its turns, a ratio is
new / old: above 1 is slower. Each is a ratio to what the machine itself needs
in the same moments, where `skein perf` has one; beside it stands the machine's
state. A ratio above 1.10 is marked. Exits 0 when everything could be run.

bars:
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

# name, what, skein perf's words, field, whether more is better
BARS = [
    ('rpc_1', 'RPC 64 B, one outstanding', ['rpc', '-s', '64'],
     'rtt_ratio', False),
    ('rpc_32', 'RPC 64 B, 32 outstanding', ['rpc', '-s', '64', '-t', '32'],
     'ns_per_op_ratio', False),
    ('rpc_32_doorbells', 'the same, doorbells a call',
     ['rpc', '-s', '64', '-t', '32'], 'doorbells', False),
    ('send', 'SEND 8 B', ['send', '-s', '8'], 'rtt_ratio', False),
    ('write', 'WRITE 8 B', ['write', '-s', '8'], 'rtt_ratio', False),
    ('read', 'READ 8 B', ['read', '-s', '8'], 'rtt_ratio', False),
    ('stream', 'stream, 64 B back and forth', ['stream', '-s', '64'],
     'rtt_ratio', False),
    ('stream_bw', 'stream, 64 KiB at once', ['stream', '--bw', '-s', '64K'],
     'bytes_per_s', True),
]
SLOWER = 1.10


def fail(text):
    print(f'regress.py: {text}', file=sys.stderr)
    sys.exit(1)


def run(words, **how):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          **how)
    if done.returncode:
        fail(f'{" ".join(words)}: {done.stderr.strip()[-400:]}')
    return done.stdout


def build(commit, folder):
    """The build folder of the commit's worktree, which is at `folder`."""
    run(['git', 'worktree', 'add', '--detach', folder, commit])
    out = os.path.join(folder, 'build')
    if not os.path.exists(os.path.join(folder, 'meson.build')):
        fail(f'{commit} has no meson.build')
    run(['meson', 'setup', out], cwd=folder)
    run(['ninja', '-C', out, 'tools/skein'])
    return out


def figure(found, field):
    """The field of a run, per operation where it counts; None: no figure."""
    value = found.get(field)
    if field == 'doorbells' and value is not None:
        return value / found['operations_run'] if found['operations_run'] \
            else None
    return value


def measure(tool, words, seconds):
    text = run([tool, 'perf', *words, '--self', '--device', 'soft', '--json',
                '-D', str(seconds)])
    try:
        return json.loads(text)
    except ValueError:
        fail(f'{tool} perf {" ".join(words)}: no JSON: {text[:80]!r}')


def middle(values):
    steady = [value for value in values if value is not None]
    return statistics.median(steady) if steady else None


def row(bar, turns):
    """turns: of each side a list of runs."""
    name, what, _, field, more = bar
    old, new = (middle([figure(found, field) for found in side])
                for side in turns)
    ratio = None
    if old and new:
        ratio = old / new if more else new / old
    both = [found for side in turns for found in side]
    return {'bar': name, 'what': what, 'field': field, 'old': old, 'new': new,
            'ratio': ratio, 'slower': ratio is not None and ratio > SLOWER,
            'load': os.getloadavg()[0],
            'cacheline_rtt_ns': middle([found.get('cacheline_rtt_ns')
                                        for found in both]),
            'modes': sorted({found.get('mode') or '-' for found in both})}


def bars(tools, wanted, turns, seconds):
    runs = {}
    for bar in wanted:
        key = tuple(bar[2])
        if key not in runs:
            runs[key] = ([], [])
            for _ in range(turns):
                for side, tool in enumerate(tools):
                    runs[key][side].append(measure(tool, bar[2], seconds))
        yield row(bar, runs[key])


def text(value):
    return '-' if value is None else f'{value:.4g}'


def show(rows):
    line = '{:<30} {:<16} {:>9} {:>9} {:>8} {:<7} {:>6} {:>9} {}'
    print(line.format('bar', 'field', 'old', 'new', 'new/old', '', 'load',
                      'line[ns]', 'mode'))
    for r in rows:
        print(line.format(r['what'], r['field'], text(r['old']),
                          text(r['new']), text(r['ratio']),
                          'SLOWER' if r['slower'] else '', text(r['load']),
                          text(r['cacheline_rtt_ns']),
                          ','.join(r['modes'])))


def options():
    parser = argparse.ArgumentParser(
        description=__doc__ + '\n'.join(f'  {bar[0]:<18} {bar[1]}'
                                        for bar in BARS),
        formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('old', metavar='OLD')
    parser.add_argument('new', metavar='NEW')
    parser.add_argument('--only', action='append', metavar='NAME',
                        help='bars with this in the name; may be repeated')
    parser.add_argument('--turns', type=int, default=5)
    parser.add_argument('--duration', type=float, default=1.0,
                        help='seconds of a turn (default 1)')
    parser.add_argument('--build', action='append', default=[],
                        metavar='SIDE=FOLDER', help='a build that is there')
    parser.add_argument('--json', action='store_true',
                        help='one JSON object instead of the table')
    given = parser.parse_args()
    given.bars = [bar for bar in BARS if not given.only or
                  any(name in bar[0] for name in given.only)]
    if not given.bars or given.turns < 1:
        parser.error('no bar has such a name' if not given.bars
                     else 'at least one turn')
    return given


def main():
    given = options()
    made = []
    builds = dict(part.split('=', 1) for part in given.build)
    folder = tempfile.mkdtemp(prefix='skein-regress-')
    try:
        tools = []
        for side, commit in (('OLD', given.old), ('NEW', given.new)):
            out = builds.get(side)
            if not out:
                made.append(os.path.join(folder, side))
                out = build(commit, made[-1])
            tools.append(os.path.join(out, 'tools', 'skein'))
        rows = list(bars(tools, given.bars, given.turns, given.duration))
    finally:
        for tree in made:
            subprocess.run(['git', 'worktree', 'remove', '--force', tree],
                           check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        print(json.dumps({'old': given.old, 'new': given.new, 'bars': rows},
                         indent=2))
    else:
        show(rows)


if __name__ == '__main__':
    main()
