#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""verbs.py [--json FILE] [--rounds N] [BUILD] - perftest, unmodified, on the
software device by `skein run --verbs`: latency beside `skein perf write`,
bandwidth beside memcpy, with memory that the peer maps (the library's own) and
without (plain malloc(), through /proc/PID/mem).

Both programs run on the same two cores, one after the other, round by round;
a ratio is the median over the rounds of one by the other, since the machine
changes more between rounds than the programs differ. A bandwidth is MiB by the
time that the client's core worked for it, and so is memcpy's; perftest's own
average over its usual 5,000 messages, which is by the wall clock, and its peak
stand beside it. Always exits 0 when all could be run.
"""

import argparse
import ctypes
import json
import mmap
import os
import random
import re
import statistics
import subprocess
import sys
import time

# name, perftest's words
LATENCY = [('write', ['ib_write_lat', '-s', '8']),
           ('send', ['ib_send_lat', '-s', '8'])]
BANDWIDTH = [('write', ['ib_write_bw', '-s', '1048576']),
             ('read', ['ib_read_bw', '-s', '1048576']),
             ('send', ['ib_send_bw', '-s', '1048576'])]
BACKS = [('mapped', None), ('unmapped', '')]


def fail(text):
    print(f'verbs.py: {text}', file=sys.stderr)
    sys.exit(1)


def cores():
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        fail('needs two cores: both ends poll')
    return allowed[0], allowed[1]


def listens(port):
    with open('/proc/net/tcp', encoding='ascii') as a, \
            open('/proc/net/tcp6', encoding='ascii') as b:
        return any(f':{port:04X} ' in line and ' 0A ' in line
                   for line in [*a, *b])


def perftest(options, words, back):
    """The columns of the last line of the client's table, and the seconds of
    a core that the client took."""
    env = dict(os.environ)
    if back is not None:
        env['SKEIN_VERBS_BACK'] = back
    port = random.randrange(20000, 30000)
    run = [os.path.join(options.build, 'tools', 'skein'), 'run', '--verbs',
           '--soft-only', '--', 'taskset', '-c']
    words = [*words, '-F', '-p', str(port)]
    server = subprocess.Popen([*run, str(options.cores[0]), *words], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not listens(port):
        if server.poll() is not None:
            fail(f'{words[0]}: the server ended: {server.stdout.read()}')
        time.sleep(0.01)
    client = subprocess.Popen([*run, str(options.cores[1]), *words,
                               '127.0.0.1'], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = client.stdout.read()
    _, status, used = os.wait4(client.pid, 0)
    client.returncode = os.waitstatus_to_exitcode(status)
    server.communicate(timeout=60)
    lines = re.findall(r'^ *\d+ +\d+ +[0-9. \t]+$', text, re.M)
    if client.returncode or server.returncode or not lines:
        fail(f'{" ".join(words)}: {text}')
    return ([float(word) for word in lines[-1].split()],
            used.ru_utime + used.ru_stime)


def skein_perf(options, *words):
    done = subprocess.run(
        [os.path.join(options.build, 'tools', 'skein'), 'perf', *words,
         '--self', '--device', 'soft', '--json', '-D', '0.3'],
        capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f'skein perf {" ".join(words)}: {done.stderr}')
    return json.loads(done.stdout)


def latency(options):
    """ns, typical, one way: perftest's column t_typical, and half of ours."""
    for name, words in LATENCY:
        found = {kind: [] for kind, _ in BACKS}
        ours = []
        for _ in range(options.rounds):
            ours.append(skein_perf(options, name, '-s', '8')['p50_ns'] / 2)
            for kind, back in BACKS:
                found[kind].append(perftest(
                    options, [*words, '-n', '20000'], back)[0][4] * 1000)
        for kind, values in found.items():
            yield {'test': ' '.join(words), 'memory': kind, 'unit': 'ns',
                   'value': statistics.median(values),
                   'beside': f'skein perf {name}, half',
                   'base': statistics.median(ours),
                   'ratio': statistics.median(
                       a / b for a, b in zip(values, ours)),
                   'wanted': '<= 2' if (name, kind) == ('write', 'mapped')
                             else ''}


class Copy:
    """memcpy of libc's on one core, between memory of the same kind as the
    library's: MiB/s by the time that the core worked, the average over thousands
    of copies, for machines on which a core is not always
    equally fast."""

    def __init__(self, size=1 << 20):
        self.size = size
        self.maps = [self._map() for _ in range(2)]
        self.at = [ctypes.addressof(ctypes.c_char.from_buffer(one))
                   for one in self.maps]

    def _map(self):
        fd = os.memfd_create('copy')
        os.ftruncate(fd, self.size)
        one = mmap.mmap(fd, self.size)
        os.close(fd)
        one[:] = bytes(self.size)
        return one

    def rate(self, core):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        begun = time.process_time_ns()
        for _ in range(COPIES):
            ctypes.memmove(self.at[1], self.at[0], self.size)
        took = time.process_time_ns() - begun
        os.sched_setaffinity(0, before)
        return COPIES * self.size / (1 << 20) / (took / 1e9)


FEW, MANY = 2000, 17000
COPIES = 6000


def copy_rates(options, words, back):
    """MiB/s: the average and the peak that perftest prints, and by the time
    that the client's core worked: what two more runs differ by, so that neither
    their start nor others on that core count. Those do without the peak (-N),
    which perftest looks for with work that grows with the square of the count:
    18 million steps for 6,000 messages, a tenth of the time of their copies."""
    columns, _ = perftest(options, words, back)
    _, few = perftest(options, [*words, '-N', '-n', str(FEW)], back)
    _, many = perftest(options, [*words, '-N', '-n', str(MANY)], back)
    worked = (MANY - FEW) / (many - few) if many > few else columns[3]
    return {'average': columns[3], 'peak': columns[2], 'worked': worked}


def bandwidth(options):
    for name, words in BANDWIDTH:
        found = {kind: [] for kind, _ in BACKS}
        copies = []
        for _ in range(options.rounds):
            # other pages each time: which ones decides what a cache holds
            copies.append(Copy().rate(options.cores[1]))
            for kind, back in BACKS:
                found[kind].append(copy_rates(options, words, back))
        for kind, values in found.items():
            middle = {key: statistics.median(value[key] for value in values)
                      for key in values[0]}
            yield {'test': ' '.join(words), 'memory': kind, 'unit': 'MiB/s',
                   'value': middle['worked'], **middle,
                   'beside': 'memcpy, one core',
                   'base': statistics.median(copies),
                   'ratio': statistics.median(
                       a['worked'] / b for a, b in zip(values, copies)),
                   'average_ratio': statistics.median(
                       a['average'] / b for a, b in zip(values, copies)),
                   'wanted': '>= 0.8' if (name, kind) == ('write', 'mapped')
                             else ''}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', metavar='FILE')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--only', choices=['latency', 'bandwidth'])
    parser.add_argument('build', nargs='?', default='build')
    options = parser.parse_args()
    options.cores = cores()
    rows = []
    line = '{:<28} {:<9} {:>10} {:<6} {:>10}  {:<24} {:>6} {:>7} {}'
    print(line.format('program', 'memory', 'found', '', 'beside', '', 'ratio',
                      'wanted', 'peak, average, its ratio'))
    parts = {'latency': latency, 'bandwidth': bandwidth}
    for name in [options.only] if options.only else parts:
        for row in parts[name](options):
            rows.append(row)
            print(line.format(row['test'], row['memory'],
                              f'{row["value"]:.0f}', row['unit'],
                              f'{row["base"]:.0f}', row['beside'],
                              f'{row["ratio"]:.2f}', row['wanted'],
                              f'{row["peak"]:.0f} {row["average"]:.0f} '
                              f'{row["average_ratio"]:.2f}'
                              if 'peak' in row else ''), flush=True)
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as out:
            json.dump(rows, out, indent=1)
            out.write('\n')


if __name__ == '__main__':
    main()
