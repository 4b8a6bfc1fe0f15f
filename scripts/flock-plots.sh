#!/bin/bash
# SPDX-License-Identifier: MIT
#
# flock-plots.sh - the figures of FLOCK's chapter 4 from the simulator:
# docs/img/flock-*.svg, and on stdout the tables of docs/measurements/simulation.md, as Markdown,
# with what the paper's text says beside ours. With all of the paper's 23 clients,
# unless told otherwise, this takes a quarter of an hour. The same sources and the
# same gnuplot make the same files.
#
#	scripts/flock-plots.sh SKEIN [DIRECTORY [CLIENTS]]
set -eu
[ $# -ge 1 ] || { sed -n '4,10s/^# \{0,1\}//p' "$0"; exit 2; }
skein=$1
img=${2:-$(dirname "$0")/../docs/img}
clients=${3:-23}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$img"

# A scenario's table, a file for each name of its lines for gnuplot; and as
# Markdown on stdout, behind it the figures that the paper has too.
table() {
	"$skein" sim "flock-$1" --nodes "$clients" --json >"$tmp/json"
	python3 - "$tmp/json" "$tmp/$1" <<'END'
import json, sys
run = json.load(open(sys.argv[1]))
lines = run["table"]
cols = [c for c in lines[0] if c != "name"]
names = list(dict.fromkeys(l["name"] for l in lines))
for name in names:
    with open(sys.argv[2] + "." + name.replace(" ", "").replace(",", ""), "w") as out:
        for l in lines:
            if l["name"] == name:
                print(*("%.6g" % l[c] for c in cols), file=out)
print("| | " + " | ".join(c.replace("_", " ") for c in cols) + " |")
print("| --- " * (len(cols) + 1) + "|")
for l in lines:
    print("| %s | " % l["name"] + " | ".join("%.4g" % l[c] for c in cols) + " |")
fig = run["figures"]
print("\n| | FLOCK | ours |\n| --- | --- | --- |")
for name in fig:
    if name + "_paper" in fig:
        print("| %s | %.4g | %.4g |" %
              (name.replace("_", " "), fig[name + "_paper"], fig[name]))
END
}

for name in ud sharing combining threads nodes; do
	echo "$name:"
	table $name
	echo
done

common='set terminal svg size 920,400 font "sans-serif,12" background "white"
set grid lc rgb "#dddddd" lt 1
set key left top opaque
set style line 1 lc rgb "#1b5e9e" lw 2.5 pt 7 ps 0.5
set style line 2 lc rgb "#c0392b" lw 1.5 pt 5 ps 0.4
set style line 3 lc rgb "#27802f" lw 1.5 pt 9 ps 0.4
set style line 4 lc rgb "#8e5aa8" lw 1.5 pt 11 ps 0.5
set style line 5 lc rgb "#777777" lw 1.5 pt 13 ps 0.4
mops = "millions of calls a second"'

for plot in "4:millions of calls a second:throughput:1:right bottom" \
	"5:us:median:2:left top" "6:us:p99:3:left top"; do
	IFS=: read -r col unit what number key <<<"$plot"
	gnuplot <<END
$common
set output "$img/flock-$what.svg"
set multiplot layout 1,3 title "Calls of 64 bytes, $clients clients: $what (FLOCK fig. 4.$number)"
set xlabel "threads a client"
set ylabel "$unit"
set yrange [0:*]
set xrange [0:50]
set key $key
do for [w in "1 4 8"] {
	set title w." outstanding"
	plot "< awk '\$2 == ".w."' $tmp/ud.lanes" using 1:$col with linespoints ls 1 title "handles", \
		"< awk '\$2 == ".w."' $tmp/ud.UD" using 1:$col with linespoints ls 2 title "UD"
}
unset multiplot
END
done

gnuplot <<END
$common
set output "$img/flock-sharing.svg"
set multiplot layout 1,2 title "How threads share QPs, $clients clients, 8 outstanding (FLOCK fig. 4.4)"
set xlabel "threads a client"
set xrange [0:52]
set ylabel mops
set yrange [0:*]
set label 1 "FLOCK: +62 %" at 32,5 right
set label 2 "+133 %" at 51,5 right
set yrange [0:110]
plot "$tmp/sharing.lanes" using 1:4 with linespoints ls 1 title "handles", \
	"$tmp/sharing.nosharing" using 1:4 with linespoints ls 2 title "a QP a thread", \
	"$tmp/sharing.lock2threads" using 1:4 with linespoints ls 3 title "2 under a lock", \
	"$tmp/sharing.lock4threads" using 1:4 with linespoints ls 4 title "4 under a lock"
set ylabel "us, p99"
set yrange [0:*]
set label 1 "FLOCK: -27 %" at 32,15 right
set label 2 "-49 %" at 51,15 right
plot "$tmp/sharing.lanes" using 1:6 with linespoints ls 1 title "handles", \
	"$tmp/sharing.nosharing" using 1:6 with linespoints ls 2 title "a QP a thread", \
	"$tmp/sharing.lock2threads" using 1:6 with linespoints ls 3 title "2 under a lock", \
	"$tmp/sharing.lock4threads" using 1:6 with linespoints ls 4 title "4 under a lock"
unset multiplot
END

gnuplot <<END
$common
set terminal svg size 720,400
set output "$img/flock-combining.svg"
set title "32 threads a client, $clients clients (FLOCK fig. 4.5)"
set xlabel "outstanding"
set ylabel mops
set xrange [0:9]
set yrange [0:90]
set label "FLOCK: 1.4 times,\n1.56 a message" at 1.1,16 center
set label "1.7 times,\n1.7 a message" at 4,16 center
set label "1.7 times,\n2 a message" at 8,16 center
plot "$tmp/combining.combined" using 1:2 with linespoints ls 1 title "combined", \
	"" using 1:2:(sprintf("%.2f", \$5)) with labels offset 0,1 title "(requests a message)", \
	"$tmp/combining.oneamessage" using 1:2 with linespoints ls 2 title "one a message"
END

gnuplot <<END
$common
set terminal svg size 720,400
set output "$img/flock-threads.svg"
set title "A tenth of 32 threads with large requests, $clients clients (FLOCK fig. 4.6)"
set xlabel "bytes of a large request"
set ylabel mops
set logscale x 2
set xrange [50:10000]
set yrange [0:*]
set key right top
plot "$tmp/threads.scheduled" using 1:4 with linespoints ls 1 title "scheduled (FLOCK: up to 1.5 times)", \
	"$tmp/threads.twothreadsaQP" using 1:4 with linespoints ls 2 title "two threads a QP"
END

gnuplot <<END
$common
set terminal svg size 720,400
set output "$img/flock-nodes.svg"
set title "Processes on $clients nodes, 8 outstanding a thread (FLOCK fig. 4.7)"
set xlabel "client processes"
set ylabel mops
set xrange [0:400]
set yrange [0:100]
plot "$tmp/nodes.UD" using 1:4 with linespoints ls 2 title "UD (FLOCK: 1 thread, 1 QP is 74 % faster)", \
	"$tmp/nodes.1thread1QP" using 1:4 with linespoints ls 5 title "1 thread, 1 QP", \
	"$tmp/nodes.2threads2QPs" using 1:4 with linespoints ls 3 title "2 threads, 2 QPs", \
	"$tmp/nodes.2threads1QP" using 1:4 with linespoints ls 1 title "2 threads, 1 QP (FLOCK: 10 to 30 % faster than 2)"
END
