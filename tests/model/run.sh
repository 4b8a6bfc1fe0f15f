#!/bin/sh
# SPDX-License-Identifier: MIT
# Verifies a Promela model exhaustively, then every variant that breaks it on
# purpose: the model must hold, and each variant must be reported.
# Usage: run.sh MODEL.pml [-DOPTION...] [BROKEN_VARIANT...]
# Exit: 0 as expected, 1 not, 77 without spin.
set -eu

model=$(realpath "$1")
shift
command -v spin >/dev/null || { echo "skip: spin is not installed"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"

# verify NAME LEVEL DEFINES: prints the outcome; 0 no error, 1 errors, 2
# incomplete. LEVEL: of optimization; the search takes longer than the compiler
# where there is no error to find, and only there.
verify() {
	name=$1 level=$2
	shift 2
	spin -a "$@" "$model" >spin.log || { cat spin.log; return 2; }
	${CC:-cc} "$level" -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=3000 \
		-o pan pan.c
	./pan -m2000000 >pan.log 2>&1 || true
	if ! grep -q 'State-vector' pan.log; then
		cat pan.log
		return 2
	fi
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
	echo "$name: $errors errors, $states states"
	if grep -q 'Search not completed' pan.log && [ "$errors" = 0 ]; then
		cat pan.log
		return 2
	fi
	[ "$errors" = 0 ]
}

defines=
variants=
for a; do
	case $a in
	-D*) defines="$defines $a" ;;
	*) variants="$variants $a" ;;
	esac
done

if ! verify "$(basename "$model")$defines" -O1 $defines; then
	cat pan.log
	[ -f "$(basename "$model").trail" ] && spin -p -t $defines "$model"
	exit 1
fi
for v in $variants; do
	rc=0
	verify "$v" -O0 $defines "-D$v" || rc=$?
	if [ $rc != 1 ]; then
		echo "$v: the model does not notice"
		exit 1
	fi
done
