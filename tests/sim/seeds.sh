#!/bin/sh
# SPDX-License-Identifier: MIT
# seeds.sh SKEIN SCENARIO [SEEDS] - 40 seeds, or so many, under all faults, each
# twice and the same both times; ten times SKEIN_TEST_ROUNDS of them where that is
# set (make soak).
set -eu
seeds=${3:-40}
if [ -n "${SKEIN_TEST_ROUNDS:-}" ]; then
	exec "$1" sim fuzz "$2" --seeds "1..$((10 * SKEIN_TEST_ROUNDS))"
fi
"$1" sim fuzz "$2" --seeds "1..$seeds" --twice
"$1" sim fuzz "$2" --seeds "1..$((seeds / 5))" --twice --no-faults
