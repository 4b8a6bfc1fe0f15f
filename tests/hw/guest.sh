#!/bin/bash
# SPDX-License-Identifier: MIT
#
# guest.sh LIST - the guest's side of run.sh: runs each line of LIST, a failing
# one's output below its name. A new kernel complaint (a warning, an oops) is a
# failure of the test it came with: rxe is under test through us too.
set -u
passed=0 failed=0 skipped=0
out=$(mktemp)

kernel_complaints() {
	dmesg 2>/dev/null | grep -cE 'WARNING:|BUG:|Oops|rcu.*stall|hung task'
}

while read -r name limit command <&3; do
	before=$(kernel_complaints)
	begun=$SECONDS
	timeout -k 2 "$limit" bash -c "$command" >"$out" 2>&1 </dev/null
	status=$?
	if [ "$(kernel_complaints)" != "$before" ]; then
		dmesg | tail -n 40 >>"$out"
		[ $status != 0 ] || status=kernel
	fi
	case $status in
	0)
		echo "ok $name ($((SECONDS - begun)) s)"
		passed=$((passed + 1))
		continue
		;;
	77)
		echo "skip $name ($(tail -n 1 "$out"))"
		skipped=$((skipped + 1))
		continue
		;;
	124 | 137) why="no end after $limit s" ;;
	127) why="cannot run: $command" ;;
	kernel) why="the kernel complained" ;;
	*) why="exit status $status" ;;
	esac
	echo "FAIL $name ($why)"
	tail -n 60 "$out" | sed 's/^/    /'
	failed=$((failed + 1))
done 3<"$1"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed != 0 ]
