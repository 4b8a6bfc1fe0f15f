# SPDX-License-Identifier: MIT
"""What run.py found, as a Markdown table and as an SVG."""

import math
from xml.sax.saxutils import escape

GROUPS = [
    ('call', False, 'Calls, both ends polling'),
    ('asleep', False, 'Calls, ends that sleep while they wait'),
    ('asleep', True, 'The same, the cores kept awake by a spinner each'),
    ('message', False, 'One-sided operations and messages, polling'),
]
HEAD = ['', 'p50 us', 'p99 us', 'x', 'M/s, 32', 'x', 'M/s, 64', 'x',
        '1 MiB, GiB/s', 'x', 'CPU s/M, 1', 'CPU s/M, 32']
LEGEND = '''\
Latencies are round trips of 64 bytes, one at a time; M/s: million operations of
64 bytes a second with 32 and 64 outstanding; 1 MiB: 4 outstanding, bytes counted
once also where they are sent back (calls and sockets); x: median over the rounds
of the figure by that of the section's first row (for latencies p50; below 1 is
faster, for the others above 1 is). CPU s/M: seconds of a core, both ends
together, for a million operations, with 1 and with 32 outstanding.'''


def number(value, scale=1.0):
    if value is None:
        return ''
    value *= scale
    if value >= 100:
        return f'{value:.0f}'
    return f'{value:.2f}' if value >= 1 else f'{value:.3f}'


def cells(row):
    figures = row['figures']

    def of(figure, field, scale=1.0):
        if figure in row.get('never', []):
            return 'n/a'
        return number(figures.get(figure, {}).get(field), scale)

    return [row['name'],
            of('latency', 'p50_ns', 1e-3), of('latency', 'p99_ns', 1e-3),
            of('latency', 'ratio'),
            of('rate32', 'rate', 1e-6), of('rate32', 'ratio'),
            of('rate64', 'rate', 1e-6), of('rate64', 'ratio'),
            of('bandwidth', 'bytes_per_s', 2 ** -30),
            of('bandwidth', 'ratio'),
            of('latency', 'cpu_s_per_mop'), of('rate32', 'cpu_s_per_mop')]


def section(title, rows):
    lines = [f'**{title}**', '', '| ' + ' | '.join(HEAD) + ' |',
             '| --- |' + ' ---: |' * (len(HEAD) - 1)]
    for row in rows:
        if row['figures']:
            lines.append('| ' + ' | '.join(cells(row)) + ' |')
        else:
            lines.append(f'| {row["name"]} | not measured: '
                         f'{row["skipped"] or "no time was left"} |' +
                         ' |' * (len(HEAD) - 2))
    return lines + ['']


def notes(rows):
    """Each note once, with the rows that it is about."""
    about = {}
    for row in rows:
        names = about.setdefault(row['note'], [])
        if row['name'] not in names:
            names.append(row['name'])
    lines = [f'* {", ".join(names)}: {note}.' for note, names in about.items()]
    for row in rows:
        awake = ' (awake)' if row['awake'] else ''
        if row['figures'] and row['skipped']:
            lines.append(f'* {row["name"]}{awake}: given up: '
                         f'{row["skipped"]}.')
        elif row['figures'] and row['failed_slices']:
            lines.append(f'* {row["name"]}{awake}: {row["failed_slices"]} '
                         'slices failed.')
    return lines


def markdown(found):
    about = found['machine']
    lines = [f'{about["processor"]}, {about["cores"]} cores, Linux '
             f'{about["kernel"]}; load {about["load_before"]:.1f} before, '
             f'{about["load_after"]:.1f} after; {found["rounds"]} rounds of '
             f'{found["slice_ms"]} ms slices, {found["seconds"]:.0f} s.', '']
    if found['rounds'] < found['rounds_wanted']:
        lines[0] += (f' Time for {found["rounds_wanted"]} rounds was not '
                     'left.')
    for group, awake, title in GROUPS:
        rows = [row for row in found['peers']
                if (row['group'], row['awake']) == (group, awake)]
        if rows:
            lines += section(title, rows)
    return '\n'.join(lines + [LEGEND, ''] + notes(found['peers']))


# The plot: a panel of bars for each figure, one scale for all its sections.
PANELS = [
    ('p50 of a round trip, 64 B, us', 'latency', 'p50_ns', 1e-3),
    ('operations of 64 B, 32 outstanding, M/s', 'rate32', 'rate', 1e-6),
    ('1 MiB, 4 outstanding, GiB/s', 'bandwidth', 'bytes_per_s', 2 ** -30),
    ('CPU seconds per million, 32 outstanding', 'rate32', 'cpu_s_per_mop', 1),
]
COLOURS = {True: '#1f6f8b', False: '#c9a66b'}
NAMES_W, PANEL_W, BAR_W, ROW_H, TOP_H = 220, 230, 150, 17, 44


def bars(rows, place, panel):
    """One panel: the longest bar is the largest value, by its logarithm from
    a tenth of the smallest on, for values differ by thousands."""
    title, figure, field, scale = panel
    values = [(row['figures'].get(figure, {}).get(field) or 0) * scale
              for _, row in rows]
    known = [value for value in values if value > 0]
    out = [text(place, 28, title, 'font-weight="bold"')]
    for (y, row), value in zip(rows, values):
        if value <= 0:
            continue
        width = BAR_W * share(value, min(known) / 10, max(known))
        mine = row['name'].startswith('Skein')
        out.append(f'<rect x="{place}" y="{y - 11}" width="{width:.1f}" '
                   f'height="13" fill="{COLOURS[mine]}"/>')
        out.append(text(place + width + 4, y, number(value)))
    return out


def share(value, low, high):
    return math.log(value / low) / math.log(high / low)


def text(x, y, words, more=''):
    return f'<text x="{x:.1f}" y="{y}" {more}>{escape(words)}</text>'


def svg(found):
    y = TOP_H
    rows, heads = [], []
    for group, awake, title in GROUPS:
        mine = [row for row in found['peers'] if row['figures'] and
                (row['group'], row['awake']) == (group, awake)]
        if not mine:
            continue
        y += ROW_H + 8
        heads.append(text(8, y, title, 'font-style="italic"'))
        for row in mine:
            y += ROW_H
            rows.append((y, row))
    width = NAMES_W + PANEL_W * len(PANELS)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{y + 34}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{y + 34}" fill="white"/>', *heads]
    out += [text(16, at, row['name']) for at, row in rows]
    if rows:
        for index, panel in enumerate(PANELS):
            out += bars(rows, NAMES_W + PANEL_W * index, panel)
    out.append(text(8, y + 24, 'Bars are logarithmic. Dark: Skein. ' +
                    found['machine']['processor']))
    return '\n'.join(out + ['</svg>']) + '\n'
