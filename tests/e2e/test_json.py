# SPDX-License-Identifier: MIT
"""Every subcommand with --json prints one JSON object on stdout also when it
fails: a bad option, a device that is not there, a host that nobody listens on,
a port that is taken, a file that is missing. stderr has the reason once."""

import json
import os
import re
import socket
import subprocess
import tempfile

from harness import DEVICES, Case, Failure, built, run_cases, tool

# A label has 63 bytes at most: no name server is asked.
NO_HOST = 'a' * 70
NO_HOST_SAID = f'cannot find host {NO_HOST}: check the name, or give an address'
NO_DEVICE = 'no device is called "nosuch"'


def taken_port():
    """A port with a listener that is no Skein, on the address under test."""
    listener = socket.create_server((DEVICES.host, 0))
    return listener, listener.getsockname()[1]


def free_port():
    """One that refuses: bound, and nobody listens."""
    holder = socket.socket()
    holder.bind((DEVICES.host, 0))
    return holder, holder.getsockname()[1]


def failures(folder, taken, refused):
    """subcommand: (arguments, what the reason must say, exit status)."""
    here, there = (f'{DEVICES.host}:{port}' for port in (taken, refused))
    with open(f'{folder}/file', 'w', encoding='utf-8') as file:
        file.write('bytes')
    return {
        'info': [
            (['-d', 'nosuch'], NO_DEVICE, 1),
            (['--require', 'nosuch'], 'nosuch', 2),
            (['extra'], 'extra', 2),
        ],
        'perf': [
            ([], 'say what to measure', 2),
            (['nosuch'], 'nosuch', 2),
            (['rpc', '--self', '-d', 'nosuch'], NO_DEVICE, 1),
            (['write', '--self', '-d', 'nosuch'], NO_DEVICE, 1),
            (['write', '--self', '-d', 'soft', '-x', '99'], 'GID 99', 1),
            (['write', DEVICES.host, '-p', refused], 'Connection refused', 1),
            (['write', '--cores', '0,1'], '--cores', 2),
            (['write', '-p', taken, *DEVICES.exposed], 'in use', 1),
            (['write', NO_HOST], NO_HOST_SAID, 1),
            (['write', ''], 'HOST is empty', 2),
            (['write', '--threads', '-5'], 'a whole number from 1 to 256', 2),
        ],
        'kv': [
            ([], 'serve', 2),
            (['serve', '--device', 'nosuch'], NO_DEVICE, 1),
            (['serve', '-l', here], 'in use', 1),
            (['serve', '-l', here, '--tcp', 'block'], 'in use', 1),
            (['serve', '-l', f'{NO_HOST}:0'], NO_HOST_SAID, 2),
            (['serve', '-l', f'{NO_HOST}:0', '--insecure'], 'no such host', 1),
            (['serve', '--workers', '2', '--tcp', 'spin'], '--tcp', 2),
            (['serve', '--nosuch'], '--nosuch', 2),
        ],
        'ycsb': [
            ([], '--server', 2),
            (['-s', there, '--device', 'nosuch'], NO_DEVICE, 1),
            (['-s', there], 'Connection refused', 1),
            (['-s', f'{NO_HOST}:1'], 'no such host', 1),
            (['-s', f'{NO_HOST}:1', '--transport', 'tcp-spin'],
             'no such host', 1),
            (['-s', there, '--transport', 'tcp-block'], 'Connection refused',
             1),
            (['-s', there, '-w', 'z'], '--workload', 2),
            (['-s', 'x'], '--server=x is no HOST:PORT', 2),
            (['-s', there, '--rows'], '--rows', 2),
        ],
        'cp': [
            ([], 'TARGETS', 2),
            ([f'{folder}/none', there], 'No such file', 1),
            ([f'{folder}/file', there, '--device', 'nosuch'], NO_DEVICE, 1),
            ([f'{folder}/file', there], 'Connection refused', 1),
            ([f'{folder}/file', NO_HOST], 'no such host', 1),
            ([f'{folder}/file', 'node[1-'], 'a range wants a number', 2),
            (['--serve', f'{folder}/none'], 'No such file', 1),
            (['--serve', folder, '--device', 'nosuch'], NO_DEVICE, 1),
            (['--serve', folder, '--listen', DEVICES.host, '-p',
              taken], 'in use', 1),
            (['--serve', folder, '--key', f'{folder}/none'], 'No such file',
             1),
        ],
        'meta': [
            (['--device', 'nosuch'], NO_DEVICE, 1),
            (['-l', here], 'in use', 1),
            (['-l', '0.0.0.0:0'], '--insecure', 2),
            (['-l', '127.0.0.1'], 'is no HOST:PORT', 2),
            (['-l', '127.0.0.1', '--insecure'], 'write HOST:PORT', 1),
            (['-l', f'{NO_HOST}:0'], NO_HOST_SAID, 2),
            (['extra'], 'extra', 2),
        ],
        'node': [
            ([], '--listen', 2),
            (['-l', f'{folder}/s', '--device', 'nosuch'], NO_DEVICE, 1),
            (['-l', f'{folder}/s', 'extra'], 'extra', 2),
            (['-l', f'{folder}/s', '--meta', 'a,b,c'],
             '--meta: two servers at most', 2),
            (['-l', f'{folder}/s', '--meta', DEVICES.host], '--meta: "', 2),
            (['-l', f'{folder}/s', '--meta', f'{NO_HOST}:1'], NO_HOST_SAID, 1),
            (['-l', ''], 'the path is empty', 1),
            (['-l', f'{folder}/s:'], 'the domain after the colon is empty', 1),
            (['-l', f'{folder}/{"x" * 108}:red'],
             f'{len(folder) + 109} bytes are too long', 1),
            (['-l', f'{folder}/{"x" * 300}'],
             f'{len(folder) + 301} bytes are too long', 1),
            (['-l', f'{folder}/none/s'], f'no folder {folder}/none: make', 1),
            (['-l', f'{folder}/file/s'], f'no folder {folder}/file: make', 1),
            (['-l', folder], 'is a folder: give another', 1),
            (['-l', f'{folder}/file'], 'is a file and no socket', 1),
            *([] if os.geteuid() == 0 else
              [(['-l', '/s'], 'the folder / cannot be written', 1)]),
        ],
        'race': [
            ([], 'serve, run TABLE', 2),
            (['serve', 'extra'], 'serve, run TABLE', 2),
            (['run'], 'serve, run TABLE', 2),
            (['serve', '--device', 'nosuch'], NO_DEVICE, 1),
            (['serve', '--dir-bits', '13'], '--dir-bits', 2),
            (['run', f'{DEVICES.host}:1/1/1', '--meta', f'{NO_HOST}:1'],
             NO_HOST_SAID, 1),
            (['run', 'x'], 'a table is NODE/ID/ADDRESS', 2),
        ],
        'run': [
            ([], 'no command', 2),
            (['--verbs'], 'no command', 2),
            (['ls', '-l'], 'no option', 2),
            (['--list', 'extra'], '--list', 2),
            (['--verbs', '--link', 'nosuch', '--', 'true'], '--link', 2),
            # Builds with a sanitizer have no library to preload.
            *([(['--verbs', '--', f'{folder}/none'], 'No such file', 127),
               (['--verbs', '--', folder], 'Permission denied', 126)]
              if os.path.exists(built('src/bind/verbs/libskein-verbs.so'))
              else []),
        ],
        'top': [
            (['--pid', '1'], 'process 1 has no Skein context', 1),
            (['--pid', '0'], '--pid', 2),
            (['--count', '2'], '--count', 2),
            (['--prometheus'], '--prometheus', 2),
            (['extra'], 'extra', 2),
        ],
        'sim': [
            ([], 'scenario', 2),
            (['nosuch'], 'nosuch', 2),
            (['nosuch', 'rpc-basic'], 'nosuch', 2),
            (['rpc-basic', 'extra'], 'extra', 2),
            (['rpc-basic', '--trace', '/dev/full'], 'No space left', 1),
            (['rpc-basic', '--nic', f'{folder}/none'], 'No such file', 2),
            (['rpc-basic', '--fault', 'nosuch'], '--fault', 2),
            # the last of the names that there are
            (['rpc-basic', '--set', 'nosuch=1'], 'reg_page_ns', 2),
            (['flock-nodes', '--cost', 'nosuch=1'], ', sum', 2),
            (['flock-nodes', '--cost', 'sum=no'], 'from 1 to', 2),
            (['rpc-basic', '--trace', f'{folder}/no/trace'], 'No such file',
             1),
            (['fuzz', 'rpc-basic', '--seeds', 'nosuch'], 'nosuch', 2),
            (['rpc-basic', '--seeds', '1..2'], '--seeds', 2),
            (['fuzz', '--seeds', '1..2', '--seed', '1'], '--seed ', 2),
            (['fuzz', '--seeds', '1..2', '--trace', 'x'], '--trace', 2),
            (['fuzz', '--seeds', '1..2', '--fault', 'link-down:1@10ms'],
             '--fault', 2),
            (['rpc-basic', '--no-faults', '--fault', 'link-down:1@10ms'],
             'exclude', 2),
        ],
    }


def words_of(got):
    """All strings of an object: a reason may stand with one of its targets."""
    if isinstance(got, dict):
        return ' '.join(words_of(value) for value in got.values())
    if isinstance(got, list):
        return ' '.join(words_of(value) for value in got)
    return str(got)


def check(case, command, words, reason, status):
    end = words.index('--') if '--' in words else len(words)
    process = case.start([tool(), command, *words[:end], '--json',
                          *words[end:]])
    got = process.exits(None)
    out, err = process.text('out'), process.text('err')
    line = ' '.join(map(str, [command, *words]))
    if got != status:
        raise Failure(f'{line}: status {got}, not {status}')
    try:
        answer = json.loads(out)
    except ValueError as error:
        raise Failure(f'{line}: {error}: {out!r}') from None
    if not isinstance(answer, dict) or not answer.get('error'):
        raise Failure(f'{line}: no object with an error: {out!r}')
    if reason not in words_of(answer):
        raise Failure(f'{line}: "{reason}" is not in {out!r}')
    if reason == NO_DEVICE and err.count(reason) != 1:
        raise Failure(f'{line}: the reason is not said once: {err!r}')
    if reason not in err:
        raise Failure(f'{line}: "{reason}" is not in {err!r}')
    case.forget(process)


def each_fails():
    with Case() as case:
        taken, port = taken_port()
        nobody, refused = free_port()
        with taken, nobody:
            table = failures(case.folder, port, refused)
            for command, rows in table.items():
                bad = (['--nosuch'], '--nosuch', 2)
                for words, reason, status in [bad, *rows]:
                    check(case, command, words, reason, status)
        os.remove(f'{case.folder}/file')


def none_is_missing():
    """The tool's own list: a new subcommand has rows here."""
    text = subprocess.run([tool(), '--help'], capture_output=True, text=True,
                          check=True).stdout
    listed = set(re.findall(r'^  (\w+) {2,}\S', text, re.M))
    with tempfile.TemporaryDirectory() as folder:
        known = set(failures(folder, 1, 2))
    if listed != known:
        raise Failure(f'subcommands without failures here: {listed ^ known}')


def no_such_command():
    for words in (['nosuch', '--json'], ['help', 'nosuch', '--json'],
                  ['--json']):
        done = subprocess.run([tool(), *words], capture_output=True,
                              text=True, check=False)
        answer = json.loads(done.stdout)
        if done.returncode != 2 or answer['status'] != 2 or \
                not answer['error']:
            raise Failure(f'{words}: {done}')


def full_disk():
    """What cannot be written is an error, of help and version, too."""
    for words in (['--version'], ['--help'], ['ycsb', '--help'],
                  ['sim', '--list', '--json'],
                  ['kv', 'serve', '-l', '127.0.0.1:0']):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            done = subprocess.run([tool(), *words], stdout=full, text=True,
                                  stderr=subprocess.PIPE, check=False)
        if done.returncode != 1 or 'write' not in done.stderr:
            raise Failure(f'{words}: {done}')


def bytes_that_are_no_text():
    """A name need not be UTF-8; the object is."""
    done = subprocess.run([tool(), 'cp', b'/no/\xff\xfe', 'localhost:1',
                           '--json'], capture_output=True, check=False)
    if done.returncode != 1 or not json.loads(done.stdout)['error']:
        raise Failure(str(done))


run_cases(each_fails, none_is_missing, no_such_command,
          full_disk, bytes_that_are_no_text)
