#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh BUILD_DIR [NAME..] - runs tests/hw/tests.list (or those named) on the
# kernel's RDMA stack, all in one boot of scripts/rdma-vm.sh. Prints a line a
# test and a last line "N passed, M failed, K skipped". Exit status 0 only when
# something passed and nothing failed. With SKEIN_BUILD_ASAN those that the list
# names for it run a second time, from that build, as asan_NAME.
set -u
here=$(dirname "$(readlink -f "$0")")
src=$(dirname "$(dirname "$here")")

if [ $# -lt 1 ] || [ ! -d "$1" ]; then
	echo "usage: $0 BUILD_DIR [NAME..]" >&2
	exit 2
fi
build=$(readlink -f "$1")
shift
asan=${SKEIN_BUILD_ASAN:+$(readlink -f "$SKEIN_BUILD_ASAN")}
sanitizers="ASAN_OPTIONS=detect_leaks=1:abort_on_error=1"
sanitizers+=" UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"
with_asan=$(sed -n 's/^# asan: //p' "$here/tests.list")
cd "$build" || exit 2
list=$(mktemp "${TMPDIR:-/tmp}/skein-hw.XXXXXX") || exit 2
trap 'rm -f "$list"' EXIT
while read -r name limit command; do
	case $name in '' | \#*) continue ;; esac
	[ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
	echo "$name $limit $command"
	[ -n "$asan" ] && [[ " $with_asan " == *" $name "* ]] || continue
	echo "asan_$name $((2 * limit)) cd $(printf %q "$asan") && $sanitizers $command"
done <"$here/tests.list" >"$list"
if [ ! -s "$list" ]; then
	echo "$0: no such test: $*" >&2
	exit 2
fi
"$src/scripts/rdma-vm.sh" --timeout 1380 \
	--env SKEIN_TEST_DEVICE=verbs:rxe0 --env SKEIN_TEST_DEVICE2=verbs:rxe1 \
	--env SRC="$src" --env SKEIN_BUILD="$build" \
	--env SKEIN_TEST_TIME_SCALE=3 -- "$here/guest.py" "$list"
status=$?
[ $status -le 1 ] || echo "FAIL lane (exit status $status of the VM)"
exit $status
