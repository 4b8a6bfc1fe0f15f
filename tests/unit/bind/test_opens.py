#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All functions by which the library opens descriptors are in own/wrap.c, so
that what a preloaded library opens is kept out of the program's numbers.

    test_opens.py WRAP... -- ARCHIVE...
"""

import re
import subprocess
import sys

OPENS = re.compile(
    r'(accept4?|creat|dup|epoll_create1?|eventfd|fanotify_init|fcntl|fopen|'
    r'inotify_init1?|memfd_\w+|mk\w*s?temps?|open|openat2?|opendir|'
    r'perf_event_open|pidfd_\w+|pipe2?|popen|recvmsg|shm_open|signalfd|socket|'
    r'socketpair|syscall|timerfd_create|tmpfile|userfaultfd|close|closedir|'
    r'fclose)(64)?')

wraps = set(sys.argv[1:sys.argv.index('--')])
text = subprocess.run(['nm', '-u', *sys.argv[sys.argv.index('--') + 1:]],
                      check=True, stdout=subprocess.PIPE, text=True).stdout
found = {name for name in re.findall(r'^ +U (\w+)$', text, re.M)
         if OPENS.fullmatch(name)}
print(f'{len(found)} functions open and close: {sorted(found)}')
if 'socket' not in found or found - wraps:
    sys.exit(f'not in src/bind/own: {sorted(found - wraps)}')
