#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""flock.py SKEIN - FLOCK's figures with one to four clients: what holds there
as with 23, and for both beds that a second run is the same. Virtual time: nothing
here depends on the machine."""
import json
import subprocess
import sys


class Run:
    def __init__(self, skein, scenario, *options):
        self.what = " ".join(("skein sim", scenario) + options)
        done = subprocess.run(
            [skein, "sim", scenario, "--json", *options],
            stdout=subprocess.PIPE)
        assert done.returncode == 0, self.what + " failed: " + \
            done.stdout.decode()
        out = json.loads(done.stdout)
        self.lines, self.figures = out["table"], out["figures"]

    def of(self, name, field, **where):
        """The only value of a line with this name and these values."""
        got = [l[field] for l in self.lines if l["name"] == name and
               all(l[k] == v for k, v in where.items())]
        assert len(got) == 1, "%s: %d lines %s %s" % (self.what, len(got),
                                                      name, where)
        return got[0]

    def more(self, a, b, what):
        assert a > b, "%s: %s: %g is not more than %g" % (self.what, what, a,
                                                          b)


def sharing(skein):
    # With two clients the fuller ones of 11 lanes are a tenth above the even
    # tail of threads that share nothing.
    r = Run(skein, "flock-sharing", "--nodes", "4", "--threads", "48")
    r.more(r.of("lanes", "mops"), r.of("no sharing", "mops"), "rate")
    r.more(r.of("no sharing", "p99_us"), r.of("lanes", "p99_us"), "p99")
    r.more(r.of("lanes", "degree"), 1, "combined")
    r.more(r.of("lanes", "answers"), 1, "answers combined")
    assert r.of("no sharing", "degree") == 1
    assert r.of("lanes", "qps") == 44, "11 lanes a client are FLOCK's 256 QPs"
    assert r.figures["clients"] == 4 and r.figures["clients_paper"] == 23


def ud(skein):
    r = Run(skein, "flock-ud", "--nodes", "2", "--threads", "8", "--twice")
    for system in "UD", "lanes":
        # One outstanding: a call takes what the way there and back takes.
        rate = 2 * 8 / r.of(system, "p50_us", window=1)
        assert 0.9 < r.of(system, "mops", window=1) / rate < 1.1, system
        r.more(r.of(system, "mops", window=8), r.of(system, "mops", window=1),
               system)


def combining(skein):
    r = Run(skein, "flock-combining", "--nodes", "1", "--threads", "48")
    r.more(r.of("combined", "mops", window=8),
           r.of("one a message", "mops", window=8), "rate")
    r.more(r.of("combined", "degree", window=8),
           r.of("combined", "degree", window=1), "degree")
    r.more(r.of("one a message", "nic_out", window=8),
           r.of("combined", "nic_out", window=8), "messages of the NIC")
    for window in 1, 4, 8:
        assert r.of("one a message", "degree", window=window) == 1
        # Calls under way at the interval's ends are counted at one side only.
        answers = r.of("one a message", "answers", window=window)
        assert 0.99 < answers < 1.01, answers


def threads(skein):
    r = Run(skein, "flock-threads", "--nodes", "1", "--threads", "20")
    for name in "two threads a QP", "scheduled":
        rates = [l["mops"] for l in r.lines if l["name"] == name]
        r.more(rates[0], rates[-1], "large requests cost")
    assert r.of("two threads a QP", "qps", large_bytes=64) == 10


def nodes(skein):
    r = Run(skein, "flock-nodes", "--nodes", "1")
    for clients in 1, 2, 4, 8, 16:
        own = r.of("2 threads, 2 QPs", "qps", clients=clients)
        assert own == 2 * clients
        assert r.of("2 threads, 1 QP", "qps", clients=clients) == clients
        # Threads combine with others, never with themselves.
        assert r.of("1 thread, 1 QP", "degree", clients=clients) == 1
        assert r.of("2 threads, 2 QPs", "degree", clients=clients) == 1
        r.more(r.of("2 threads, 1 QP", "degree", clients=clients), 1,
               "combined")


def costs(skein):
    size = "--nodes", "1", "--threads", "4"
    r = Run(skein, "flock-ud", *size)
    slow = Run(skein, "flock-ud", *size, "--cost", "message=2000")
    more = slow.of("UD", "mops", window=8) / r.of("UD", "mops", window=8)
    assert more < 0.2, "UD: %g times the rate" % more
    # A call's messages, found and made, at both ends.
    more = slow.of("lanes", "p50_us", window=1) - \
        r.of("lanes", "p50_us", window=1)
    assert 7 < more < 9, "lanes: %g us more" % more
    for bad in ("flock-ud", "message=0"), ("flock-ud", "massage=1"), \
            ("flock-ud", "message=x"), ("kv", "message=1"):
        done = subprocess.run([skein, "sim", bad[0], "--cost", bad[1]],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 2, bad


def main(skein):
    for test in sharing, ud, combining, threads, nodes, costs:
        test(skein)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
