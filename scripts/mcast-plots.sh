#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mcast-plots.sh - RDMC's figures from the simulator: docs/img/mcast-*.svg, and on
# stdout the tables of docs/measurements/mcast.md, as Markdown. The same sources and the same
# gnuplot make the same files.
#
#	scripts/mcast-plots.sh SKEIN [DIRECTORY]
set -eu
[ $# -ge 1 ] || { sed -n '4,8s/^# \{0,1\}//p' "$0"; exit 2; }
skein=$1
img=${2:-$(dirname "$0")/../docs/img}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$img"

# A scenario's table: as columns for gnuplot in a file of its name, and as
# Markdown on stdout.
table() {
	"$skein" sim "mcast-$1" --json >"$tmp/json"
	python3 - "$tmp/json" "$tmp/$1" <<'END'
import json, sys
lines = json.load(open(sys.argv[1]))["table"]
cols = list(lines[0])
with open(sys.argv[2], "w") as out:
    for line in lines:
        print(*("%.6g" % line[c] for c in cols), file=out)
print("| " + " | ".join(c.replace("_", " ") for c in cols) + " |")
print("| --- " * len(cols) + "|")
for line in lines:
    print("| " + " | ".join("%.4g" % line[c] for c in cols) + " |")
END
}

for name in scaling algorithms blocks overlap apt racks slow-link; do
	echo "$name:"
	table $name
	echo
done

common='set terminal svg size 720,440 font "sans-serif,13" background "white"
set grid lc rgb "#dddddd" lt 1
set key opaque
set style line 1 lc rgb "#1b5e9e" lw 2.5 pt 7 ps 0.5
set style line 2 lc rgb "#c0392b" lw 1.5 pt 5 ps 0.4
set style line 3 lc rgb "#27802f" lw 1.5 pt 9 ps 0.4
set style line 4 lc rgb "#8e5aa8" lw 1.5 pt 11 ps 0.5
set style line 5 lc rgb "#777777" lw 1.5 dt 2
set style line 6 lc rgb "#d68910" lw 2.5 pt 13 ps 0.5'

gnuplot <<END
$common
set output "$img/mcast-scaling.svg"
set title "256 MB to many, 40 Gb/s, blocks of 1 MB (RDMC fig. 8)"
set xlabel "nodes"
set ylabel "seconds"
set logscale xy
set xtics (2, 4, 8, 16, 32, 64, 128, 256, 512)
set xrange [1.8:570]
set yrange [0.03:50]
set key left top
set label "RDMC: 127, 255 and 511 copies take almost the same time" at 550,0.1 right
plot "$tmp/scaling" using 1:(\$6/1000) with linespoints ls 2 title "sequential", \
	"" using 1:(\$2/1000) with linespoints ls 1 title "binomial pipeline", \
	"" using 1:(\$3/1000) with lines ls 5 title "its steps at line rate"
END

gnuplot <<END
$common
set terminal svg size 920,440
set output "$img/mcast-algorithms.svg"
set multiplot layout 1,2 title "100 Gb/s, blocks of 1 MB (RDMC fig. 4)"
set xlabel "nodes"
set ylabel "ms"
set xrange [1.5:16.5]
set key left top
set title "256 MB"
set yrange [0:340]
plot "< awk '\$1 == 256' $tmp/algorithms" using 2:3 with linespoints ls 2 title "sequential", \
	"" using 2:5 with linespoints ls 3 title "binomial tree", \
	"" using 2:4 with linespoints ls 4 title "chain", \
	"" using 2:6 with linespoints ls 1 title "binomial pipeline"
set title "8 MB"
set yrange [0:11]
plot "< awk '\$1 == 8' $tmp/algorithms" using 2:3 with linespoints ls 2 title "sequential", \
	"" using 2:5 with linespoints ls 3 title "binomial tree", \
	"" using 2:4 with linespoints ls 4 title "chain", \
	"" using 2:6 with linespoints ls 1 title "binomial pipeline"
unset multiplot
END

gnuplot <<END
$common
set output "$img/mcast-blocks.svg"
set title "Pipeline to 3 receivers, 100 Gb/s (RDMC fig. 6)"
set xlabel "KiB of a block"
set ylabel "Gb/s"
set logscale x 2
set xrange [14:18500]
set yrange [0:105]
set key outside right top
plot for [i=0:6] "$tmp/blocks" using 1:8-i with linespoints lw 2 pt 7 ps 0.4 \
	title word("128MB 64MB 32MB 8MB 1MB 128KB 16KB", i + 1)
END

gnuplot <<END
$common
set terminal svg size 920,440
set output "$img/mcast-overlap.svg"
set multiplot layout 1,2 title "Groups of the same members with different roots (RDMC fig. 10)"
set xlabel "nodes"
set ylabel "Gb/s of all objects together"
set title "100 Gb/s, 100 MB each"
set yrange [0:210]
plot "$tmp/overlap" using 1:2 with linespoints ls 1 title "all send", \
	"" using 1:3 with linespoints ls 3 title "half of them", \
	"" using 1:4 with linespoints ls 2 title "one", \
	100 with lines ls 5 title "a cable"
set title "56 Gb/s, racks of 8, 3.5 to one, 16 MB each"
set yrange [0:80]
plot "$tmp/apt" using 1:2 with linespoints ls 1 title "all send", \
	"" using 1:3 with linespoints ls 3 title "half of them", \
	"" using 1:4 with linespoints ls 2 title "one", \
	16 with lines ls 5 title "RDMC: approaches 16"
unset multiplot
END

gnuplot <<END
$common
set terminal svg size 920,440
set output "$img/mcast-racks.svg"
set multiplot layout 1,2 title "256 MB across oversubscribed racks, 100 Gb/s, blocks of 1 MB"
set xlabel "oversubscription, to one"
set ylabel "Gb/s"
set logscale x 2
set xtics (1, 2, 4, 8)
set xrange [0.9:9]
set yrange [0:140]
set key top right
set title "64 nodes in racks of 8"
plot "< awk '\$1 == 64' $tmp/racks" using 3:7 with linespoints ls 6 title "hybrid", \
	"" using 3:6 with linespoints ls 4 title "chain", \
	"" using 3:5 with linespoints ls 1 title "pipeline, rack by rack", \
	"" using 3:4 with linespoints ls 2 title "pipeline, at random"
set title "256 nodes in racks of 32"
plot "< awk '\$1 == 256' $tmp/racks" using 3:7 with linespoints ls 6 title "hybrid", \
	"" using 3:6 with linespoints ls 4 title "chain", \
	"" using 3:5 with linespoints ls 1 title "pipeline, rack by rack", \
	"" using 3:4 with linespoints ls 2 title "pipeline, at random"
unset multiplot
END
