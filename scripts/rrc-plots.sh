#!/bin/bash
# SPDX-License-Identifier: MIT
#
# rrc-plots.sh - RR-Compound's figures 4 to 6 and 8 from the simulator:
# docs/img/rrc-*.svg, and on stdout, as Markdown, all that the paper's text gives
# beside ours. Takes some seconds. The same sources and the same gnuplot make the
# same files.
#
#	scripts/rrc-plots.sh SKEIN [DIRECTORY]
set -eu
[ $# -ge 1 ] || { sed -n '4,10s/^# \{0,1\}//p' "$0"; exit 2; }
skein=$1
img=${2:-$(dirname "$0")/../docs/img}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$img"

# A scenario's table, a file for each name of its lines for gnuplot; and as
# Markdown on stdout the lines that the paper has too.
table() {
	"$skein" sim "rrc-$1" --json >"$tmp/json"
	echo "$1:"
	python3 - "$tmp/json" "$tmp/$1" <<'END'
import json, re, sys
lines = json.load(open(sys.argv[1]))["table"]
cols = [c for c in lines[0] if c != "name"]
for l in lines:
    name = re.sub(r"[^0-9A-Za-z]", "", l.get("name", ""))
    with open(sys.argv[2] + "." + name, "a") as out:
        print(*("NaN" if l[c] is None else "%.6g" % l[c] for c in cols),
              file=out)
print("\n| | clients | paper | ours | error |\n| --- | --- | --- | --- | --- |")
for l in lines:
    if l.get("paper") and l.get("error_%") is not None and "ours" in l:
        print("| %s | %d | %.4g | %.4g | %s |" % (
            l["name"], l["clients"], l["paper"], l["ours"],
            "fitted" if l["fitted"] else "%+.0f %%" % l["error_%"]))
print()
END
}

for name in waiting scale timeout ring util ycsb; do
	table $name
done

common='set terminal svg size 920,400 font "sans-serif,12" background "white"
set grid lc rgb "#dddddd" lt 1
set style line 1 lc rgb "#1b5e9e" lw 2.5 pt 7 ps 0.5
set style line 2 lc rgb "#c0392b" lw 1.5 pt 5 ps 0.4
set style line 3 lc rgb "#27802f" lw 1.5 pt 9 ps 0.4
set style line 4 lc rgb "#8e5aa8" lw 1.5 pt 11 ps 0.4
set style line 5 lc rgb "#777777" lw 1.5 pt 13 ps 0.4
set logscale x 2
set xlabel "clients"'

gnuplot <<END
$common
set output "$img/rrc-waiting.svg"
set multiplot layout 1,3 title "Busy polling and events (RR-Compound fig. 4, 5, 6)"
set ylabel "us, mean"
set logscale y
set yrange [1:2000]
set key left top opaque
do for [us in "0 300 100"] {
	set title us." us between two calls"
	one = "< awk '\$1 == ".us."' $tmp/waiting."
	plot one."bp" using 2:3 with linespoints ls 1 title "busy polling", \
		one."event" using 2:3 with linespoints ls 2 title "events"
}
unset multiplot
END

gnuplot <<END
$common
set output "$img/rrc-scale.svg"
set multiplot layout 1,2
set ylabel "thousands of calls a second"
set key left top opaque
set title "Five ways to wait (RR-Compound fig. 8a); points: the paper's text"
plot for [i=1:5] "$tmp/scale.8a".word("bp bpts bpev event tcp", i)."Ks" using 1:2 with linespoints ls i title word("BP BPTS BPEV EVENT TCP", i), \
	for [i=1:5] "$tmp/scale.8a".word("bp bpts bpev event tcp", i)."Ks" using 1:(\$3 > 0 ? \$3 : NaN) with points ls i ps 1 notitle
set ylabel "millions of calls a second"
set title "32 short calls outstanding (fig. 10a)"
plot "$tmp/scale.10aMs" using 1:2 with linespoints ls 1 title "ours", \
	"$tmp/scale.10aMs" using 1:(\$3 > 0 ? \$3 : NaN) with points ls 2 ps 1 title "the paper", \
	"$tmp/scale.10amRPCsquoted" using 1:(\$3 > 0 ? \$3 : NaN) with points ls 5 ps 1 title "mRPC, quoted"
unset multiplot
END
