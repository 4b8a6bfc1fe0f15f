#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check_symbols.sh FILE.. - no FILE (archive, shared library, program) may need
# libibverbs: no undefined ibv_*, _ibv_*, mlx5dv_* or rdma_* symbol, no such
# library in DT_NEEDED. One binary must start where rdma-core is not installed.
# With --self-test CC: shows that it can fail.
set -u

check() {
	local f bad=0 found
	for f; do
		found=$(nm -u "$f" 2>/dev/null; nm -uD "$f" 2>/dev/null)
		found=$(echo "$found" |
			grep -oE '\b(_?ibv|mlx5dv|rdma)_[a-z0-9_]+' | sort -u)
		found+=$(readelf -d "$f" 2>/dev/null |
			grep -oE 'NEEDED.*lib(ibverbs|rdmacm|mlx5)[^]]*')
		[ -z "$found" ] && continue
		echo "$f needs ${found//$'\n'/ }"
		bad=1
	done
	return $bad
}

self_test() {
	local rc=0
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT # tmp outlives the function
	cd "$tmp" || exit 1
	echo 'int ibv_fork_init(void); int f(void){return ibv_fork_init();}' >a.c
	echo 'int f(void){return 0;}' >b.c
	"$1" -c a.c -o a.o && ar rc a.a a.o && "$1" -c b.c -o b.o &&
		"$1" -shared -fPIC a.c -o a.so || exit 1
	check a.a >/dev/null && rc=1
	check a.so >/dev/null && rc=1
	check b.o || rc=1
	return $rc
}

if [ "${1:-}" = --self-test ]; then
	self_test "$2"
else
	check "$@"
fi
