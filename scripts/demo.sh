#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh - the main job end to end, on this machine: `make demo`.
#
#	scripts/demo.sh [BUILD]
#
# Each demo_* function below starts its own processes and adds lines to one
# table by row(); a module that lands adds a function and a word in `demos`.
# Ends with status 0 only when every process did. Nothing is left running.
#
# Environment: SKEIN_DEMO_TIME, measuring time for each workload and transport
# (1.5s); SKEIN_DEVICE, the RDMA device (soft when there is no other).
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
skein=$build/tools/skein
time=${SKEIN_DEMO_TIME:-1.5s}
demos="kv run"

[ -x "$skein" ] || {
	echo "demo: $skein is not built: run make first" >&2
	exit 1
}
work=$(mktemp -d) || exit 1
pids=()

clean_up() {
	local pid
	for pid in "${pids[@]}"; do
		kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	done
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
	echo "demo: FAILED: $*" >&2
	exit 1
}

# row WHAT TRANSPORT RATE P50 P99 RATIO...: one line of the table.
row() {
	local IFS=$'\t'
	echo "$*" >> "$work/rows"
}

print_table() {
	awk -F'\t' '
	{
		for (i = 1; i <= NF; i++) {
			cell[NR, i] = $i
			if (length($i) > width[i])
				width[i] = length($i)
		}
		if (NF > cols)
			cols = NF
	}
	END {
		for (r = 1; r <= NR; r++) {
			# a blank line between workloads
			if (r > 1 && cell[r, 1] != cell[r - 1, 1])
				print ""
			line = "  "
			for (i = 1; i <= cols; i++) {
				left = i <= 2 ? "-" : ""
				same = i == 1 && r > 1 && \
					cell[r, 1] == cell[r - 1, 1]
				line = line sprintf("%" left width[i] "s  ", \
					same ? "" : cell[r, i])
			}
			sub(/ +$/, "", line)
			print line
		}
	}' "$work/rows"
}

# start NAME READY-PATTERN COMMAND...: starts a server, waits for the line that
# says it is ready, and puts what the pattern's group matched into $ready.
start() {
	local name=$1 pattern=$2 line pid
	shift 2
	mkfifo "$work/$name" || die "mkfifo"
	"$@" > "$work/$name" 2> "$work/$name.err" &
	pid=$!
	pids+=("$pid")
	# Both ends: opening does not block, and later lines find room.
	exec {fd}<> "$work/$name"
	while ! read -r -t 0.2 -u "$fd" line; do
		kill -0 "$pid" 2>/dev/null || {
			cat "$work/$name.err" >&2
			die "$name ended at once"
		}
		[ $((SECONDS - begun)) -lt 50 ] || die "$name is not ready"
	done
	echo "  $line"
	[[ $line =~ $pattern ]] || die "$name said: $line"
	ready=${BASH_REMATCH[1]}
	names[pid]=$name
}

# stop_all: SIGTERM to all servers; each must end in order.
stop_all() {
	local pid
	for pid in "${pids[@]}"; do
		kill -TERM "$pid" || die "${names[pid]} has gone"
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || {
			cat "$work/${names[pid]}.err" >&2
			die "${names[pid]} ended with status $?"
		}
	done
	pids=()
}

# The key-value server and YCSB: Skein beside plain TCP, the same code on both.
demo_kv() {
	local pin_server= pin_client= skein_at spin_at block_at line
	local pattern='listening on ([^ ]+) '

	if [ "$(nproc)" -ge 2 ]; then
		pin_client="--pin 0"
		pin_server="--pin 1"
	fi
	echo "Key-value servers, one process each (idle ones sleep):"
	start kv-skein "$pattern" "$skein" kv serve --listen 127.0.0.1:0 \
		--wait poll $pin_server
	skein_at=$ready
	start kv-tcp-spin "$pattern" "$skein" kv serve --listen 127.0.0.1:0 \
		--tcp spin $pin_server
	spin_at=$ready
	start kv-tcp-block "$pattern" "$skein" kv serve --listen 127.0.0.1:0 \
		--tcp block $pin_server
	block_at=$ready
	echo
	echo "YCSB client process: loads 10000 records of 1000 bytes into each,"
	echo "then runs workloads A, B, C, E in turns of 50 ms, one operation at"
	echo "a time, and verifies every value that it reads ..."
	"$skein" ycsb --server "$skein_at" \
		--against "tcp-spin=$spin_at,tcp-block=$block_at" \
		--workload a,b,c,e --records 10000 --time "$time" \
		--slice 50ms --warm 5ms --wait poll $pin_client --rows \
		> "$work/kv.rows" || die "the YCSB client"
	row workload transport "ops/s" "p50 us" "p99 us" "x tcp-spin" \
		"x tcp-block"
	while IFS= read -r line; do
		echo "$line" >> "$work/rows"
	done < "$work/kv.rows"
	[ "$(wc -l < "$work/kv.rows")" = 12 ] || die "lines are missing"

	echo "Four more clients at once, verifying all they read ..."
	local client clients=()
	for client in 1 2 3 4; do
		"$skein" ycsb --server "$skein_at" --no-load --workload b,c \
			--records 10000 --operations 5000 --seed "$client" \
			> "$work/client$client" 2>&1 &
		clients+=($!)
		pids+=($!)
		names[$!]=client$client
	done
	for client in 1 2 3 4; do
		wait "${clients[client - 1]}" || {
			cat "$work/client$client" >&2
			die "client $client"
		}
		unset "pids[-1]"
	done
	stop_all
}

# free_port: one that nobody listens at, below those that the kernel gives out.
# A process id makes none: in containers it is the same one again and again.
free_port() {
	python3 - <<'PY'
import random, socket
for port in random.sample(range(20000, 30000), 1000):
    with socket.socket() as probe:
        try:
            probe.bind(('127.0.0.1', port))
        except OSError:
            continue
    print(port)
    break
else:
    raise SystemExit(1)
PY
}

# redis_start NAME COMMAND...: a redis-server that is ready; its socket in $ready.
redis_start() {
	local name=$1
	shift
	"$@" redis-server --port "$port" --bind 127.0.0.1 --save "" \
		--dir "$work" --unixsocket "$work/$name.sock" \
		> "$work/$name.err" 2>&1 &
	pids+=("$!")
	names[$!]=$name
	until [ -S "$work/$name.sock" ]; do
		kill -0 "${pids[-1]}" 2>/dev/null || {
			cat "$work/$name.err" >&2
			die "$name ended at once"
		}
		[ $((SECONDS - begun)) -lt 100 ] || die "$name is not ready"
		sleep 0.05
	done
}

# Stock redis under skein run, beside itself on TCP.
demo_run() {
	local port tcp ours on pin0= pin1=
	echo
	command -v redis-server > /dev/null &&
		command -v redis-benchmark > /dev/null || {
		echo "skein run: no redis here (apt-get install redis-server" \
			"redis-tools): left out."
		return
	}
	echo "Stock redis-server and redis-benchmark, one client, GET:"
	if [ "$(nproc)" -ge 2 ]; then
		pin0="taskset -c 0"
		pin1="taskset -c 1"
	fi
	port=$(free_port) || die "no port is free"
	redis_start redis-tcp $pin0
	tcp=$($pin1 redis-benchmark -p "$port" -c 1 -n 20000 -t get --csv |
		awk -F'"' '/^"GET"/ { print $4 }') || die "redis on TCP"
	stop_all
	redis_start redis-run $pin0 "$skein" run --report "$work/report" --
	ours=$($pin1 "$skein" run -- redis-benchmark -p "$port" -c 1 -n 200000 \
		-t get --csv | awk -F'"' '/^"GET"/ { print $4 }') ||
		die "redis under skein run"
	stop_all
	on=$(grep -c '"carrier": "stream"' "$work/report")
	[ "$on" -ge 1 ] || die "no connection was on a stream: $(cat "$work/report")"
	echo "  plain TCP: $tcp requests a second; under skein run: $ours," \
		"its connection moved onto a stream in mid-stream."
}

begun=$SECONDS
names=()
echo "RDMA on this machine (skein info):"
"$skein" info > "$work/info" || die "skein info"
sed '/^ *$/,$d; s/^/  /' "$work/info"
echo
for demo in $demos; do
	"demo_$demo"
done
echo
print_table
echo
echo "x tcp-spin, x tcp-block: how many times as many operations a second as"
echo "the same code over TCP sockets, spinning or blocking, in the same turns."
echo "No value was wrong or missing, every process ended in order:" \
	"$((SECONDS - begun)) s."
