#!/bin/bash
# SPDX-License-Identifier: MIT
#
# rfrpc-plots.sh - RF-RPC's figures 2, 5, 7 to 16 and tables 3 and 4 from the simulator,
# on both models of its NIC: docs/img/rfrpc-*.svg, and on stdout the tables, as Markdown,
# with what the paper's text says beside ours. Takes eight minutes. The same
# sources and the same gnuplot make the same files.
#
#	scripts/rfrpc-plots.sh SKEIN [DIRECTORY]
set -eu
[ $# -ge 1 ] || { sed -n '4,9s/^# \{0,1\}//p' "$0"; exit 2; }
skein=$1
img=${2:-$(dirname "$0")/../docs/img}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$img"

# A scenario's table, a file for each name of its lines for gnuplot; and as
# Markdown on stdout the figures that the paper has too.
table() {
	"$skein" sim "rfrpc-$1" ${2:+--nic "$2"} --json >"$tmp/json"
	echo "$1${2:+, $2}:"
	python3 - "$tmp/json" "$tmp/$1${2:+.$2}" <<'END'
import json, sys
run = json.load(open(sys.argv[1]))
lines = run["table"]
cols = [c for c in lines[0] if c != "name"]
for l in lines:
    name = l.get("name", "").replace(" ", "").replace(",", "")
    if "wait_paper" in l: # tables 3 and 4: labelled bars
        name = l["name"][:7].replace(" ", "")
        print('"%s"' % l["name"][9:], end=" ", file=open(sys.argv[2] + "." + name, "a"))
    with open(sys.argv[2] + "." + name, "a") as out:
        print(*("%.6g" % l[c] for c in cols), file=out)
fig = run["figures"]
print("\n| | RF-RPC | ours | error |\n| --- | --- | --- | --- |")
for name in fig:
    if name + "_paper" in fig:
        paper, is_ = fig[name + "_paper"], fig[name]
        print("| %s | %.4g | %.4g | %+.0f %% |" %
              (name.replace("_", " "), paper, is_, 100 * (is_ / paper - 1)))
    elif name.startswith("crossover_us_reply"):
        print("| %s | 7 | %.4g | |" % (name.replace("_", " "), fig[name]))
print()
END
}

for nic in connectx3 connectx3-outbound; do
	table kv $nic
	table bypass $nic
	table latency $nic
	table batch $nic
	table time $nic
	table posts $nic
	table qps $nic
	table skew $nic
done
table roce connectx3-roce
table nics ''

common='set terminal svg size 920,400 font "sans-serif,12" background "white"
set grid lc rgb "#dddddd" lt 1
set style line 1 lc rgb "#1b5e9e" lw 2.5 pt 7 ps 0.5
set style line 2 lc rgb "#c0392b" lw 1.5 pt 5 ps 0.4
set style line 3 lc rgb "#27802f" lw 1.5 pt 9 ps 0.4
set style line 4 lc rgb "#8e5aa8" lw 1.5 pt 11 ps 0.5
mops = "millions of calls a second"
nics = "connectx3 connectx3-outbound"'

gnuplot <<END
$common
set output "$img/rfrpc-kv.svg"
set multiplot layout 1,2 title "35 callers, one call outstanding (RF-RPC fig. 7)"
set xlabel "threads of the server"
set ylabel mops
set logscale x 2
set xrange [0.9:18]
set yrange [0:9]
set key left top opaque
set arrow from 0.9,5.5 to 18,5.5 nohead lc rgb "#1b5e9e" dt 3
set arrow from 0.9,2.1 to 18,2.1 nohead lc rgb "#27802f" dt 3
set label "RF-RPC: 5.5" at 1,5.8 tc rgb "#1b5e9e"
set label "2.1" at 1,2.4 tc rgb "#27802f"
do for [n in nics] {
	set title n
	plot "$tmp/kv.".n.".fetch" using 1:2 with linespoints ls 1 title "fetch", \
		"$tmp/kv.".n.".reply" using 1:2 with linespoints ls 2 title "reply", \
		"$tmp/kv.".n.".reply-waitinline" using 1:2 with linespoints ls 3 title "reply-wait, inline"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rfrpc-latency.svg"
set multiplot layout 1,2 title "How long calls take, at each way's highest rate (RF-RPC fig. 8)"
set xlabel "us"
set ylabel "% of calls"
set xrange [0:50]
set yrange [0:100]
set key right bottom opaque
set arrow from 5.78,0 to 5.78,100 nohead lc rgb "#1b5e9e" dt 3
set arrow from 12.06,0 to 12.06,100 nohead lc rgb "#27802f" dt 3
set label "RF-RPC's means:\n5.78, 12.06" at 20,60
do for [n in nics] {
	set title n
	plot "$tmp/latency.".n.".fetch" using 2:1 with linespoints ls 1 title "fetch", \
		"$tmp/latency.".n.".reply" using 2:1 with linespoints ls 2 title "reply", \
		"$tmp/latency.".n.".reply-waitinline" using 2:1 with linespoints ls 3 title "reply-wait, inline"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rfrpc-time.svg"
set multiplot layout 1,2 title "By service time, 16 threads, one call outstanding (RF-RPC fig. 9)"
set xlabel "us that the handler takes"
set ylabel mops
set xrange [0:20]
set yrange [0:8]
set key right top opaque
set arrow from 7,0 to 7,8 nohead lc rgb "#999999" dt 2
set label "RF-RPC: equal from here on" at 7.3,4.5
do for [n in nics] {
	set title n
	one = "< awk '\$1 == 16 && \$2 == 1' $tmp/time.".n."."
	plot one using 3:5 with linespoints ls 1 title "fetch", \
		one using 3:4 with linespoints ls 2 title "reply", \
		one using 3:6 with linespoints ls 3 title "reply-wait", \
		one using 3:7 with linespoints ls 4 title "auto"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rfrpc-batch.svg"
set multiplot layout 1,2 title "Batches of 1 to 96 calls, 35 callers, 16 threads (RF-RPC fig. 13)"
set xlabel "us, mean"
set ylabel mops
set xrange [0:70]
set yrange [0:90]
set key right bottom opaque
set label "RF-RPC:\n4: 21.5 at 6.17" at 8,22 tc rgb "#1b5e9e"
set label "24: 45.8 at 12.63" at 13,46 tc rgb "#1b5e9e"
do for [n in nics] {
	set title n
	plot "$tmp/batch.".n.".fetch" using 3:2 with linespoints ls 1 title "fetch", \
		"$tmp/batch.".n.".reply" using 3:2 with linespoints ls 2 title "reply", \
		"$tmp/batch.".n.".reply-waitinline" using 3:2 with linespoints ls 3 title "reply-wait, inline"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rfrpc-posts.svg"
set xlabel "callers, and calls of a batch"
set multiplot layout 1,2 title "Fetched calls: inline requests, no wait for a completion (RF-RPC fig. 10: 1.3 for both)"
set ylabel mops
set style data histograms
set style fill solid
set key left top opaque
set xtics ("7" 0, "35" 1, "7 x 16" 2, "35 x 16" 3)
do for [n in nics] {
	set title n
	rows(k) = "< sort -n -k2,2 -k1,1 $tmp/posts.".n.".".k
	set logscale y
	plot rows("neither") using 3 ls 1 title "neither", \
		rows("inline") using 3 ls 2 title "inline", \
		rows("unsignalled") using 3 ls 3 title "unsignalled", \
		rows("both") using 3 ls 4 title "both"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rfrpc-qps.svg"
set multiplot layout 1,2 title "42 callers: 14 threads with 3 QPs, 42 with one (RF-RPC fig. 11, 12); 14 with 42 each"
set ylabel mops
set style data histograms
set style fill solid
set yrange [0:9]
set key right top opaque
set xtics ("14 x 3" 0, "42 x 1" 1, "uniform" 2, "zipfian" 3)
set label "RF-RPC: 4.73 and 3.13" at 1.5,6 tc rgb "#1b5e9e"
do for [n in nics] {
	set title n
	all(k) = "< cat $tmp/qps.".n.".".k." $tmp/qps.".n.".".k."uniform $tmp/qps.".n.".".k."zipfian"
	plot all("fetch") using 2 ls 1 title "fetch", \
		all("reply-waitinline") using 2 ls 3 title "reply-wait, inline"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rfrpc-skew.svg"
set multiplot layout 1,2 title "Batches of 1 to 96 calls, keys uniform and zipfian, 560 QPs (RF-RPC fig. 15)"
set xlabel "us, mean"
set ylabel mops
set xrange [0:70]
set yrange [0:90]
set key right bottom opaque
do for [n in nics] {
	set title n
	plot "$tmp/skew.".n.".fetchuniform" using 3:2 with linespoints ls 1 title "fetch, uniform", \
		"$tmp/skew.".n.".fetchzipfian" using 3:2 with linespoints ls 2 title "fetch, zipfian", \
		"$tmp/skew.".n.".reply-waitinlineuniform" using 3:2 with linespoints ls 3 title "reply-wait, uniform", \
		"$tmp/skew.".n.".reply-waitinlinezipfian" using 3:2 with linespoints ls 4 title "reply-wait, zipfian"
}
unset multiplot
END

gnuplot <<END
$common
set terminal svg size 720,400 font "sans-serif,12" background "white"
set output "$img/rfrpc-roce.svg"
set title "Batches of 1 to 96 calls over 10 GbE, 16 callers, 8 threads (RF-RPC fig. 16)"
set xlabel "us, mean"
set ylabel mops
set xrange [0:80]
set yrange [0:25]
set key right bottom opaque
f(k) = "$tmp/roce.connectx3-roce.".k
plot f("fetch") using 3:2 with linespoints ls 1 title "fetch", \
	f("reply") using 3:2 with linespoints ls 2 title "reply", \
	f("reply-waitinline") using 3:2 with linespoints ls 3 title "reply-wait, inline"
END

gnuplot <<END
$common
set output "$img/rfrpc-nics.svg"
set terminal svg size 920,520 font "sans-serif,12" background "white"
set multiplot layout 1,2 title "Other NICs, RF-RPC's numbers beside ours (tables 3, 4)"
set ylabel mops
set logscale y
set yrange [1:60]
set style data histograms
set style fill solid
set xtics rotate by -35
set key left top opaque
do for [n in "table3 table4"] {
	set title n
	plot "$tmp/nics.".n using 2:xtic(1) lc rgb "#a9d6ae" title "reply-wait, RF-RPC", \
		"" using 3 lc rgb "#27802f" title "ours", \
		"" using 5 lc rgb "#a9c8e8" title "fetch, RF-RPC", \
		"" using 6 lc rgb "#1b5e9e" title "ours"
}
unset multiplot
END
