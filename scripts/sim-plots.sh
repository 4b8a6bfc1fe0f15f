#!/bin/bash
# SPDX-License-Identifier: MIT
#
# sim-plots.sh - the simulator's curves beside what the papers give of theirs:
# docs/img/qp-scaling.svg (FLOCK fig. 2.2), docs/img/inbound-outbound.svg (RF-RPC
# fig. 1), and on stdout the tables of docs/measurements/simulation.md, as Markdown. The same
# sources and the same gnuplot make the same files.
#
#	scripts/sim-plots.sh SKEIN [DIRECTORY]
set -eu
[ $# -ge 1 ] || { sed -n '4,9s/^# \{0,1\}//p' "$0"; exit 2; }
skein=$1
img=${2:-$(dirname "$0")/../docs/img}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$img"

# columns NAME...: of the tables of the JSON objects on stdin.
columns() {
	python3 -c '
import json, sys
for line in json.load(sys.stdin)["table"]:
    print(*("%.6g" % line[c] for c in sys.argv[1:]))' "$@"
}

run() { "$skein" sim "$@" --json; }

run qp-scaling | columns qps read_mops ud_mops >"$tmp/as-is"
for set in ctx_entries=600 ctx_entries=2400 ctx_miss=250 ctx_miss=1000; do
	run qp-scaling --set "$set" | columns qps read_mops >"$tmp/$set"
done
run inbound-outbound | columns bytes in_mops out_mops >"$tmp/in-out"
run calibrate >"$tmp/calibrate"

common='set terminal svg size 720,440 font "sans-serif,13" background "white"
set grid lc rgb "#dddddd" lt 1
set key opaque
set style line 1 lc rgb "#1b5e9e" lw 2.5 pt 7 ps 0.5
set style line 2 lc rgb "#c0392b" lw 1.5 pt 5 ps 0.4 dt 2
set style line 3 lc rgb "#27802f" lw 1.5 pt 5 ps 0.4 dt 2
set style line 4 lc rgb "#c0392b" lw 1.5 pt 9 ps 0.4 dt 3
set style line 5 lc rgb "#27802f" lw 1.5 pt 9 ps 0.4 dt 3
set style line 6 lc rgb "#777777" lw 2.5 pt 7 ps 0.5'

gnuplot <<END
$common
set output "$img/qp-scaling.svg"
set title "READs of 16 bytes from one server, connectx5 (FLOCK fig. 2.2)"
set xlabel "QPs at the server"
set ylabel "millions a second"
set logscale x 2
set xtics ("22" 22, "88" 88, "176" 176, "352" 352, "704" 704, "1408" 1408, "2816" 2816, "5632" 5632)
set xrange [20:6200]
set yrange [0:150]
set object rectangle from 176,0 to 704,150 fc rgb "#f0e6c8" fs solid noborder behind
set label "FLOCK: the peak\nis in here" at 352,20 center
set terminal svg size 920,440
set key outside right top Left reverse
plot "$tmp/as-is" using 1:2 with linespoints ls 1 title "1200 QPs, a miss 500 ns", \
	"$tmp/ctx_entries=600" with linespoints ls 2 title "a cache of 600 QPs", \
	"$tmp/ctx_entries=2400" with linespoints ls 3 title "a cache of 2400 QPs", \
	"$tmp/ctx_miss=1000" with linespoints ls 4 title "a miss 1000 ns", \
	"$tmp/ctx_miss=250" with linespoints ls 5 title "a miss 250 ns", \
	"$tmp/as-is" using 1:3 with linespoints ls 6 title "calls over UD"
END

gnuplot <<END
$common
set output "$img/inbound-outbound.svg"
set title "One operation outstanding a thread, connectx3 (RF-RPC fig. 1)"
set xlabel "bytes"
set ylabel "millions a second"
set logscale x 2
set xrange [7:9500]
set yrange [0:13]
set arrow from 2048,0 to 2048,13 nohead lc rgb "#999999" dt 2
set label "RF-RPC:\nequal from\nhere on" at 2300,8
set arrow from 7,11.26 to 256,11.26 nohead lc rgb "#c0392b" dt 3
set arrow from 7,2.11 to 256,2.11 nohead lc rgb "#c0392b" dt 3
set label "RF-RPC: 11.26" at 8,12 tc rgb "#c0392b"
set label "RF-RPC: 2.11" at 8,2.7 tc rgb "#c0392b"
plot "$tmp/in-out" using 1:2 with linespoints ls 1 title "in-bound READs", \
	"$tmp/in-out" using 1:3 with linespoints ls 6 title "out-bound WRITEs"
END

python3 - "$tmp/calibrate" <<'END'
import json, sys
print("| point | paper | model | error |\n| --- | --- | --- | --- |")
for p in json.load(open(sys.argv[1]))["table"]:
    name = p["name"] if p["fitted"] else "*" + p["name"] + "*"
    print("| %s | %.4g | %.4g | %+.1f %% |" %
          (name, p["paper"], p["model"], p["error_%"]))
END
echo
python3 - "$tmp" <<'END'
import sys
sets = ["as-is", "ctx_entries=600", "ctx_entries=2400", "ctx_miss=250",
        "ctx_miss=1000"]
cols = [dict(l.split()[:2] for l in open(sys.argv[1] + "/" + s)) for s in sets]
print("| QPs |", " | ".join(["1200 QPs, 500 ns", "600 QPs", "2400 QPs",
                             "250 ns", "1000 ns"]), "|")
print("| --- |" + " --- |" * 5)
for qps in cols[0]:
    print("| %s |" % qps,
          " | ".join("%.0f" % float(c[qps]) for c in cols), "|")
END
