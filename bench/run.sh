#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh [BUILD] - what `make bench` runs: each benchmark's table on stdout, its
# JSON in BUILD/*.json.
set -eu
build=${1:-build}
here=$(dirname "$(readlink -f "$0")")

"$build/tools/skein" info --device soft
echo
python3 "$here/bars.py" "$build"
