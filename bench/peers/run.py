#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""run.py [options] [BUILD] - Skein beside what people use: raw sockets, UCX,
gRPC and redis, and a baseline over datagrams, all on this machine.

Each figure is taken in rounds; in a round every row has one slice, one after
the other, and is divided by Skein's own row of the same kind (call, asleep,
message) in the same round. The table has medians over the rounds. Both ends
are processes, each pinned to one core. A peer that is not installed is named
in the table, with the reason. "awake" rows: the same with a spinner of lowest
priority on each core, since waking a core that has gone to sleep takes longer
than the operation. Writes BUILD/peers.json and BUILD/peers.svg. Always exits 0
when Skein's own rows could be measured: a bench is no test.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time

import report
from kinds import FIGURES, Counted, all_kinds
from procs import SIGNALS, Bench, Failed

FAILS_MAX = 2


def fail(text):
    print(f'run.py: {text}', file=sys.stderr)
    sys.exit(1)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--json', action='store_true',
                        help='one JSON object instead of the table')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--slice', type=int, default=100, metavar='MS',
                        help='milliseconds of a slice (default 100)')
    parser.add_argument('--budget', type=int, default=270, metavar='S',
                        help='seconds after which no round begins, and what '
                             'is under way ends (default 270)')
    parser.add_argument('--only', metavar='TEXT', action='append',
                        help='rows with this in the name, and those that '
                             'they are divided by; may be given more than once')
    parser.add_argument('--figure', action='append', choices=list(FIGURES),
                        help='only this; may be given more than once')
    parser.add_argument('--merge', metavar='FILE', nargs='+',
                        help='measures nothing: the table of earlier runs '
                             'that had different figures')
    parser.add_argument('build', nargs='?', default='build')
    options = parser.parse_args()
    if options.rounds < 1 or not 5 <= options.slice <= 1000:
        parser.error('--rounds from 1, --slice from 5 to 1000')
    options.figure = options.figure or list(FIGURES)
    return options


def machine():
    model = platform.processor() or platform.machine()
    with open('/proc/cpuinfo', encoding='utf-8') as file:
        for line in file:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return {'processor': model, 'cores': len(os.sched_getaffinity(0)),
            'kernel': platform.release(), 'load_before': os.getloadavg()[0]}


class Row:
    """A kind and what was found of it, by figure and round."""

    def __init__(self, kind, why):
        self.kind = kind
        self.why = why  # not measured because
        self.fails = 0
        self.found = {figure: {} for figure in FIGURES}

    def take(self, bench, figure, number, ms):
        """One slice, its outcome kept unless number is None."""
        if self.why or (number is not None and
                        figure not in self.kind.figures):
            return
        try:
            bench.awake(self.kind.awake)
            if number is None:
                self.kind.calibrate(bench)
            else:
                self.found[figure][number] = self.kind.measure(
                    bench, figure, ms)
        except Failed as failed:
            if time.monotonic() >= bench.limit:
                raise
            self.fails += 1
            if number is None or self.fails > FAILS_MAX:
                self.why = str(failed)

    def middle(self, figure, field, base=None):
        """The median over rounds; over those of base too, of the quotients."""
        values = []
        for number, found in self.found[figure].items():
            value = found.get(field)
            if base is not None:
                under = base.found[figure].get(number, {}).get(field)
                value = value / under if value and under else None
            if value is not None:
                values.append(value)
        return statistics.median(values) if values else None

    def figure(self, figure, base):
        got = self.found[figure]
        if not got:
            return None
        fields = ('p50_ns', 'p99_ns') if figure == 'latency' else \
            ('rate', 'bytes_per_s')
        out = {field: self.middle(figure, field) for field in fields}
        if base is not None:
            out['ratio'] = self.middle(figure, fields[0], base)
            if figure == 'latency':
                out['ratio_p99'] = self.middle(figure, 'p99_ns', base)
        out['cpu_s_per_mop'] = statistics.median(
            one['cpu_s'] * 1e6 / one['ops'] for one in got.values())
        out['rounds'] = len(got)
        return out

    def told(self, rows):
        base = next((row for row in rows if row.kind.base and
                     row.kind.group == self.kind.group and
                     row.kind.awake == self.kind.awake), None)
        measured = {figure: self.figure(figure, base) for figure in FIGURES}
        return {'name': self.kind.name, 'group': self.kind.group,
                'awake': self.kind.awake, 'base': self.kind.base,
                'note': self.kind.note, 'skipped': self.why,
                'never': [name for name in FIGURES
                          if name not in self.kind.figures],
                'failed_slices': self.fails,
                'figures': {name: one for name, one in measured.items()
                            if one}}


def wanted(kind, options):
    return kind.base or not options.only or any(
        text.lower() in kind.name.lower() for text in options.only)


def measure(bench, options):
    """The rows, and how many rounds they have."""
    Counted.slice_ms = options.slice
    bench.figures = options.figure
    rows = [Row(kind, kind.missing(bench)) for kind in all_kinds()
            if wanted(kind, options)]
    done = 0
    try:
        for row in rows:
            row.take(bench, None, None, options.slice)
        for number in range(options.rounds):
            for figure in options.figure:
                # there and back, so that no row always follows the same one
                for row in rows if number % 2 else reversed(rows):
                    row.take(bench, figure, number, options.slice)
                    say(f'round {number + 1}/{options.rounds} {figure}: '
                        f'{row.kind.name}')
            done += 1
    except Failed:
        pass  # the budget is spent: what was found stands
    say('')
    return rows, done


def say(text):
    """Where it is, on a terminal alone."""
    if sys.stderr.isatty():
        print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)


def run(options):
    begun = time.monotonic()
    about = machine()
    bench = Bench(options.build)
    bench.limit = begun + options.budget
    try:
        rows, rounds = measure(bench, options)
    finally:
        bench.close()
    broken = [row for row in rows if row.kind.base and row.why]
    if broken:
        fail(f'{broken[0].kind.name}: {broken[0].why}')
    about['load_after'] = os.getloadavg()[0]
    return {'machine': about, 'slice_ms': options.slice, 'rounds': rounds,
            'rounds_wanted': options.rounds,
            'seconds': round(time.monotonic() - begun, 1),
            'peers': [row.told(rows) for row in rows]}


def merged(paths):
    """One object of several runs: the figures of the later ones are added."""
    whole = None
    for path in paths:
        with open(path, encoding='utf-8') as file:
            one = json.load(file)
        if whole is None:
            whole = one
            continue
        whole['seconds'] = round(whole['seconds'] + one['seconds'], 1)
        whole['rounds'] = min(whole['rounds'], one['rounds'])
        known = {(row['name'], row['awake']): row for row in whole['peers']}
        for row in one['peers']:
            mine = known.get((row['name'], row['awake']))
            if mine is None:
                whole['peers'].append(row)
                continue
            mine['figures'].update(row['figures'])
            mine['failed_slices'] += row['failed_slices']
            mine['skipped'] = mine['skipped'] or row['skipped']
    return whole


def interrupted(number, frame):
    for again in SIGNALS:  # cleaning up is not interrupted
        signal.signal(again, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main():
    options = arguments()
    for number in SIGNALS:
        signal.signal(number, interrupted)
    try:
        found = merged(options.merge) if options.merge else run(options)
    except (Failed, OSError) as failed:
        fail(failed)
    place = os.path.join(options.build, 'peers')
    with open(place + '.json', 'w', encoding='utf-8') as out:
        json.dump(found, out, indent=2)
    with open(place + '.svg', 'w', encoding='utf-8') as out:
        out.write(report.svg(found))
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        print(report.markdown(found))


main()
