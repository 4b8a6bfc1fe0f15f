# SPDX-License-Identifier: MIT
"""What the library stands in front of behaves as what it hides: memory, fork,
signals, and the calls of verbs programs that the stock ones do not make; and
it exports what libibverbs exports."""

import glob
import re
import subprocess

import stock
from harness import Case, built, run_cases


def preloaded():
    with Case() as case:
        for env in ({}, {'SKEIN_VERBS_BACK': 'heap,mmap,shm'}):
            check = case.start(stock.skein_run(built(
                'tests/verbs/check_preload')), env=env)
            check.exits(0, timeout=60)
            assert 'all as it should be' in check.text('out'), check.text()


def dlopened():
    """A program that loads libibverbs itself has the device, too."""
    with Case() as case:
        check = case.start(stock.skein_run(built('tests/verbs/check_dlopen')))
        check.exits(0)
        assert 'all as it should be' in check.text('out'), check.text()


def stranger():
    """With another libibverbs than the one that this was built with: of newer
    functions, and other versions of private ones."""
    with Case() as case:
        check = case.start([stock.tool(), 'run', '--verbs', '--', built(
            'tests/verbs/stranger/check_stranger')])
        check.exits(0)
        assert 'all as it should be' in check.text('out'), check.text()


def daemon():
    """A program that closes all descriptors goes on, and its memory is then
    ordinary memory."""
    script = ('import ctypes, os, subprocess; '
              'a = ctypes.create_string_buffer(1 << 20); '
              'os.closerange(3, 65536); '
              'b = ctypes.create_string_buffer(200 << 20); '
              'b[5] = b"x"; '
              'assert a.raw == bytes(1 << 20); '
              'subprocess.run(["true"], check=True); '
              'pid = os.fork(); '
              'assert a[7] == b"\\0" and b[5] == b"x"; '
              'pid or os._exit(0); '
              'assert os.waitpid(pid, 0)[1] == 0; print("fine")')
    with Case() as case:
        process = case.start(stock.skein_run('python3', '-c', script))
        process.exits(0)
        assert process.text('out') == 'fine', process.text()


def names(library):
    """{function: default version}"""
    text = subprocess.run(['nm', '-D', '--defined-only', library], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return dict(re.findall(r' [TW] (\w+)@@(IBVERBS_\w[\w.]*)$', text, re.M))


# What libibverbs exports and needs nothing in front: it takes no object of a
# device, or one that only a provider or a kernel's file can give.
ALONE = re.compile(
    r'ibv_(cmd_\w+|copy_\w+|register_driver|fork_init|is_fork_initialized|'
    r'dontfork_range|dofork_range|\w+_str|rate_to_\w+|get_sysfs_path|'
    r'read_\w+|import_device|unimport_dm)|mult_to_ibv_rate|mbps_to_ibv_rate|'
    r'_?_?verbs_\w+|_verbs_\w+|execute_ioctl|__ioctl_\w+')


def exports():
    found = glob.glob('/usr/lib/*/libibverbs.so.1') + \
        glob.glob('/usr/lib64/libibverbs.so.1')
    assert found, 'no libibverbs.so.1: a program under test needs it'
    theirs = names(found[0])
    ours = names(built(stock.LIBRARY))
    for name, version in theirs.items():
        if 'PRIVATE' in version:
            assert name not in ours, f'{name}@@{ours[name]}: it is private'
        elif not ALONE.fullmatch(name):
            assert ours.get(name) == version, \
                f'{name}@@{version}: ours is {ours.get(name)}'
    # Ours has functions of later releases, too, under later versions.
    for name in set(ours) - set(theirs):
        assert ours[name] not in theirs.values(), f'{name}@@{ours[name]}'


if __name__ == '__main__':
    stock.need()
    run_cases(preloaded, dlopened, stranger, daemon, exports)
