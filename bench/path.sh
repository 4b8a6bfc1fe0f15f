#!/bin/bash
# SPDX-License-Identifier: MIT
#
# path.sh [--json] [--list] [BUILD] - the functions, and the files they stand in,
# that one warm call of 64 bytes passes through at either end. Inline functions
# count too: the build, BUILD (default build-path), inlines nothing. --list names
# them, file by file.
set -eu
json=0 list=0
while :; do
	case ${1:-} in
	--json) json=1 ;;
	--list) list=1 ;;
	*) break ;;
	esac
	shift
done
build=${1:-build-path}
export SKEIN_DEVICE=${SKEIN_DEVICE:-soft}

command -v valgrind >/dev/null || {
	echo "path.sh: valgrind is missing: scripts/deps.sh test" >&2
	exit 77
}
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
"$(dirname "$0")"/../scripts/build.sh "$build" -Dbuildtype=plain \
	-Dwerror=false \
	-Dc_args="-O0 -g -fno-inline" -Dbenches=true bench/count_rpc \
	>"$log" 2>&1 || { cat "$log" >&2; exit 1; }

# path SIDE: "FILE FUNCTION" of each function of the library that ran.
path() {
	rm -f "$log".out*
	valgrind --tool=callgrind --collect-atstart=no --compress-strings=no \
		--callgrind-out-file="$log.out" --log-file="$log.log" \
		"$build/bench/count_rpc" "$1" 64 1 1 >/dev/null || {
		tail -n 5 "$log.log" >&2
		return 1
	}
	# fl= and fn= name what ran, cfi= and cfn= what it called
	awk -F= '$1 == "fl" {
			ours = $2 ~ /(^|\/)(src|include\/skein)\//
			file = $2
			sub(/.*\/(src|include)\//, "", file)
		}
		$1 == "fn" && ours { print file, $2 }' "$log.out" | sort -u
}

for side in client server; do
	path $side >"$log.$side"
	[ -s "$log.$side" ] || {
		echo "path.sh: nothing of the library ran" >&2
		exit 1
	}
done
files() { cut -d' ' -f1 "$log.$1" | sort -u | wc -l; }
functions() { wc -l <"$log.$1"; }
if [ $json = 1 ]; then
	printf '{"device": "%s", ' "$SKEIN_DEVICE"
	printf '"client_files": %d, "client_functions": %d, ' \
		"$(files client)" "$(functions client)"
	printf '"server_files": %d, "server_functions": %d}\n' \
		"$(files server)" "$(functions server)"
	exit
fi
printf '%-8s %8s %10s\n' end files functions
for side in client server; do
	printf '%-8s %8d %10d\n' $side "$(files $side)" "$(functions $side)"
	[ $list = 0 ] || awk '$1 != file { file = $1; printf "  %s\n", file }
		{ printf "    %s\n", $2 }' "$log.$side"
done
