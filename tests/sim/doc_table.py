#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""doc_table.py SKEIN PAGE - the calibration that `skein sim calibrate` finds is
the one that the page's table shows: every point, within 3 %, and no others."""
import json
import re
import subprocess
import sys


def table(page):
    rows = {}
    for line in open(page, encoding="utf-8"):
        m = re.match(r"\| \*?(cx\d: [^|]*?)\*? \| (\S+) \| (\S+) \| \S+ % \|$",
                     line)
        if m:
            rows[m[1]] = float(m[2]), float(m[3])
    return rows


def main(skein, page):
    done = subprocess.run([skein, "sim", "calibrate", "--json"],
                          stdout=subprocess.PIPE, check=True)
    points = json.loads(done.stdout)["table"]
    rows = table(page)
    wrong = sorted(set(rows) - {p["name"] for p in points})
    for p in points:
        paper, model = rows.get(p["name"], (0, 0))
        if paper != p["paper"] or abs(model / p["model"] - 1) > 0.03:
            wrong.append("%s: %g, and the page has %g" %
                         (p["name"], p["model"], model))
    for line in wrong:
        print("%s: %s (make sim-plots prints the table)" % (page, line))
    return 1 if wrong or not points else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
