#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trace.py SKEIN - the trace of a run is JSON; on each track where one thing
follows another nothing overlaps; what begins ends; all tracks have names; the
trace changes nothing of the run."""

import json
import os
import subprocess
import sys
import tempfile


def run(skein, *args):
    out = subprocess.run([skein, 'sim', 'rpc-basic', '--seed', '4', '--json',
                          *args], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def check_slices(events):
    tracks = {}
    for e in events:
        if e['ph'] == 'X':
            tracks.setdefault((e['pid'], e['tid']), []).append(
                (round(e['ts'] * 1000), round(e['dur'] * 1000), e['name']))
    for track, spans in tracks.items():
        spans.sort()
        for (a, dur, what), (b, _, then) in zip(spans, spans[1:]):
            assert a + dur <= b, f'{track}: {what} and {then} overlap'
    return tracks


def check_asyncs(events):
    begun, ended = {}, 0
    for e in events:
        key = (e.get('cat'), e.get('id'))
        if e['ph'] == 'b':
            assert key not in begun, f'{key} begins twice'
            begun[key] = e['ts']
        elif e['ph'] == 'e':
            assert begun.pop(key) < e['ts'], f'{key} ends too early'
            ended += 1
    assert not begun, f'{len(begun)} never end'
    return ended


def main():
    skein = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'trace.json')
        report = run(skein, '--trace', path)
        with open(path, encoding='utf-8') as f:
            events = json.load(f)['traceEvents']
    assert report['event_log_hash'] == run(skein)['event_log_hash']
    named = {(e['pid'], e['tid']) for e in events
             if e['ph'] == 'M' and e['name'] == 'thread_name'}
    nodes = {e['pid'] for e in events
             if e['ph'] == 'M' and e['name'] == 'process_name'}
    tracks = check_slices(events)
    requests = check_asyncs(events)
    used = {(e['pid'], e['tid']) for e in events if e['ph'] != 'M'}
    assert used <= named, f'no names: {used - named}'
    assert {pid for pid, _ in used} == nodes
    names = {e['name'] for e in events}
    for name in ('works', 'WRITE', 'request', 'out', 'in'):
        assert name in names, f'no {name}'
    assert len(tracks) > 10 and requests > 100, (len(tracks), requests)
    faults = sum(int(report['figures'][k]) for k in (
        'kill', 'crash', 'link-down', 'loss', 'link-slow', 'delay',
        'node-slow', 'pause', 'stall', 'qp-error', 'memory'))
    seen = sum(e['ph'] == 'b' and e['tid'] == 1 for e in events)
    assert faults and seen == faults, (seen, faults)
    print(f'{len(events)} events, {len(tracks)} tracks, {requests} requests '
          f'and faults')


main()
