# SPDX-License-Identifier: MIT
"""What connect.py, storm.py, quiet.py, big.py, wake.py, crowd.py, elastic.py and
pass.py share: the program `many`, servers that live as long as a `with`, counts by
callgrind and strace, a table for people and one JSON object.

A bench prints what it found and exits 0 when everything could be run: no time is
judged here."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Failed(Exception):
    """A program could not be run; its text says which and why."""


def options(text, *extra):
    """The command line: --json, --build, and what extra() adds."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', action='store_true',
                        help='one JSON object on stdout, the table on stderr')
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'),
                        help='the build folder')
    for add in extra:
        add(parser)
    return parser.parse_args()


def numbers(text):
    return [int(word) for word in text.split(',')]


class Bed:
    def __init__(self, opts):
        self.many = os.path.join(opts.build, 'bench', 'many', 'many')
        self.quiet = os.path.join(opts.build, 'bench', 'count_quiet')
        self.env = {**os.environ, 'SKEIN_DEVICE': 'soft'}

    def start(self, *words, prefix=()):
        if not os.path.exists(self.many):
            raise Failed(f'{self.many} is not there: make bench builds it')
        return subprocess.Popen(
            [*prefix, self.many, *map(str, words)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.env)

    def run(self, *words, prefix=(), timeout=600):
        """One run to its end: its words."""
        process = self.start(*words, prefix=prefix)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed(f'{words}: not within {timeout} s') from None
        if process.returncode:
            raise Failed(f'{" ".join(map(str, words))}: {err.strip()}')
        return values(out)

    def floor_us(self, count=40):
        """fork, exec, a Unix socket connected, a byte there and back."""
        return self.run('floor', count)['p50_ns'] / 1000

    def server(self, *words):
        return Server(self, *words)

    def instructions(self, *words):
        """Of one unit, between a program's marks, under callgrind."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, 'callgrind')
            done = subprocess.run(
                ['valgrind', '--tool=callgrind', '--collect-atstart=no',
                 f'--callgrind-out-file={out}', *map(str, words)],
                capture_output=True, text=True, check=False, env=self.env)
            if done.returncode:
                raise Failed(f'{words}: {done.stderr[-500:].strip()}')
            with open(out, encoding='utf-8') as file:
                total = re.search(r'^(?:summary|totals): (\d+)', file.read(),
                                  re.M)
        return int(total.group(1)) / int(done.stdout)


class Server:
    """`with bed.server('serve', 'sleep') as s`: s.addr, s.pid; afterwards
    s.said has its last words."""

    def __init__(self, bed, *words):
        self.bed = bed
        self.words = words
        self.said = {}

    def __enter__(self):
        self.process = self.bed.start(*self.words)
        self.pid = self.process.pid
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f'{self.words}: {self.process.communicate()[1]}')
        self.said = values(line)
        self.addr = self.said.get('addr')
        return self

    def __exit__(self, *error):
        out, _ = self.process.communicate()
        self.said.update(values(out))
        return False


def memory_kib(*pids):
    """Of these processes together: (shared, private). Shared: the pages of the
    memory files that they have open, each file and each page once. Private: what is
    resident of heap and stacks."""
    files, private = {}, 0
    for pid in pids:
        for fd in os.listdir(f'/proc/{pid}/fd'):
            path = f'/proc/{pid}/fd/{fd}'
            try:
                if os.readlink(path).startswith('/memfd:'):
                    stat = os.stat(path)
                    files[stat.st_dev, stat.st_ino] = stat.st_blocks / 2
            except FileNotFoundError:
                continue  # it was closed meanwhile
        with open(f'/proc/{pid}/status', encoding='utf-8') as status:
            private += int(re.search(r'RssAnon:\s+(\d+)',
                                     status.read()).group(1))
    return sum(files.values()), private


def values(text):
    """"a=1 b=x" to a dict; numbers where they are."""
    found = {}
    for name, value in re.findall(r'(\w+)=(\S+)', text):
        found[name] = int(value) if re.fullmatch(r'-?\d+', value) else value
    return found


def syscalls(bed, *words, pid=None):
    """Counts of system calls by strace: of a run, or of a running process while
    the run lasts. {name: count}, or None where strace may not trace."""
    if not shutil.which('strace'):
        return None
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, 'log')
        strace = ['strace', '-f', '-c', '-U', 'calls,name', '-o', log]
        if pid is None:
            bed.run(*words, prefix=strace)
        else:
            tracer = subprocess.Popen([*strace, '-p', str(pid)],
                                      stderr=subprocess.PIPE, text=True)
            line = tracer.stderr.readline()
            if 'attached' not in line:
                tracer.kill()
                tracer.wait()
                return None
            bed.run(*words)
            tracer.terminate()
            tracer.communicate()
        with open(log, encoding='utf-8') as file:
            return {name: int(count) for count, name in
                    re.findall(r'^\s*(\d+)\s+(\w+)$', file.read(), re.M)
                    if name != 'total'}


def per_call(few, many, calls):
    """Of counts of two runs that differ by so many calls: what each call adds,
    most first."""
    if few is None or many is None:
        return None
    found = {name: (count - few.get(name, 0)) / calls
             for name, count in many.items()}
    return {name: round(count, 3) for name, count in
            sorted(found.items(), key=lambda item: -item[1]) if count > 0.01}


def median(found):
    return statistics.median(found)


def table(heads, rows, file):
    cells = [[str(head) for head in heads]] + [
        ['-' if cell is None else f'{cell:.3g}' if isinstance(cell, float)
         and abs(cell) < 1000 else f'{cell:.0f}' if isinstance(cell, float)
         else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        print('  '.join(cell.ljust(width) if not i else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))),
              file=file)


def main(bench, opts):
    """bench() returns (object, heads, rows)."""
    try:
        found, heads, rows = bench(Bed(opts), opts)
    except Failed as failure:
        print(f'{os.path.basename(sys.argv[0])}: {failure}', file=sys.stderr)
        if opts.json:
            print(json.dumps({'error': str(failure)}))
        sys.exit(1)
    table(heads, rows, sys.stderr if opts.json else sys.stdout)
    if opts.json:
        print(json.dumps(found, indent=2))
