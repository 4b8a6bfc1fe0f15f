#!/bin/sh
# SPDX-License-Identifier: MIT
# seeds.sh SKEIN SCENARIO - 100 seeds under all faults, each twice and the same
# both times; ten times SKEIN_TEST_ROUNDS of them where that is set (make soak).
set -eu
if [ -n "${SKEIN_TEST_ROUNDS:-}" ]; then
	exec "$1" sim fuzz "$2" --seeds "1..$((10 * SKEIN_TEST_ROUNDS))"
fi
"$1" sim fuzz "$2" --seeds 1..100 --twice
"$1" sim fuzz "$2" --seeds 1..20 --twice --calm
