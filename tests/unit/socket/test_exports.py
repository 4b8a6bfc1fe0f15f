#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libskein-socket.so exports what real.h lists and socket.map names, and nothing
else.

    test_exports.py LIBRARY REAL_H
"""

import re
import subprocess
import sys

library, header = sys.argv[1:]
with open(header, encoding='utf-8') as text:
    wanted = set(re.findall(r'\bX\((\w+), ', text.read())) - {'function'}
text = subprocess.run(['nm', '-D', '--defined-only', library], check=True,
                      stdout=subprocess.PIPE, text=True).stdout
found = {line.split()[-1].split('@')[0] for line in text.splitlines()}
if found != wanted:
    print(f'only in real.h: {sorted(wanted - found)}')
    print(f'only exported: {sorted(found - wanted)}')
    sys.exit(1)
print(f'{len(found)} functions')
