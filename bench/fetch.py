#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""fetch.py [--json] [--seconds S] [BUILD] - what fetching gives on this device,
by the server's time for a call: calls a second with results that are replied,
fetched, and with the mode chosen by the library, by turns (bench/fetch.c).

Figures are medians of ratios of slices that follow each other.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

SERVICE_US = [0, 1, 5, 20, 100]
WINDOWS = {'alone': 1, 'window_32': 32}


def measure(build, service_us, window, seconds):
    words = [os.path.join(build, 'bench', 'fetch'), str(service_us * 1000),
             str(window), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f'fetch.py: {" ".join(words)}: {done.stderr.strip()}',
              file=sys.stderr)
        sys.exit(1)
    lines = done.stdout.split('\n')[:-1]
    slices = [[float(x) for x in line.split()] for line in lines[:-1]]
    switches, fetched, replied = (int(x) for x in lines[-1].split()[1:])
    return {
        'service_us': service_us,
        'slices': len(slices),
        'reply': statistics.median(s[0] for s in slices),
        'fetch_over_reply': statistics.median(s[1] / s[0] for s in slices),
        'auto_over_best': statistics.median(s[2] / max(s[0], s[1])
                                            for s in slices),
        'auto_over_reply': statistics.median(s[2] / s[0] for s in slices),
        'switches': switches,
        'fetched_share': fetched / max(fetched + replied, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('build', nargs='?', default='build')
    args = parser.parse_args()
    found = {name: [measure(args.build, us, window, args.seconds)
                    for us in SERVICE_US]
             for name, window in WINDOWS.items()}
    rows = [row for name in found for row in found[name]]
    found['fetch_over_reply_max'] = max(r['fetch_over_reply'] for r in rows)
    found['auto_over_best_min'] = min(r['auto_over_best'] for r in rows)
    if args.json:
        print(json.dumps(found))
        return
    print(f'{"":10} {"us":>4} {"reply/s":>9} {"fetch/reply":>11} '
          f'{"auto/best":>9} {"switches":>8} {"fetched":>7}')
    for name in WINDOWS:
        for r in found[name]:
            print(f'{name:10} {r["service_us"]:4} {r["reply"]:9.0f} '
                  f'{r["fetch_over_reply"]:11.2f} {r["auto_over_best"]:9.2f} '
                  f'{r["switches"]:8} {r["fetched_share"]:7.2f}')
    print(f'fetch_over_reply_max {found["fetch_over_reply_max"]:.2f}, '
          f'auto_over_best_min {found["auto_over_best_min"]:.2f}')


if __name__ == '__main__':
    main()
