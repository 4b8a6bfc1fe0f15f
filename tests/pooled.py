# SPDX-License-Identifier: MIT
"""Runs a test with pooled connections (SKEIN_POOLED=pool) beside a meta server of
its own. Ends as the test does."""

import os
import re
import signal
import subprocess
import sys

# The meta server is not pooled, and has the kind device.
plain = {name: value for name, value in os.environ.items()
         if name not in ('SKEIN_SOFT_HARSH', 'SKEIN_TEST_MODE')}
meta = subprocess.Popen([sys.argv[1], 'meta', '--listen', '127.0.0.1:0'],
                        stdout=subprocess.PIPE, text=True, env=plain)
try:
    line = meta.stdout.readline()
    address = re.match(r'meta: listening on (\S+), ', line).group(1)
    sys.exit(subprocess.run(
        sys.argv[2:], env=dict(os.environ, SKEIN_POOLED='pool',
                               SKEIN_META=address)).returncode)
finally:
    meta.send_signal(signal.SIGTERM)
    meta.wait()
