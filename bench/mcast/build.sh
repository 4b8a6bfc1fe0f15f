#!/bin/bash
# SPDX-License-Identifier: MIT
#
# build.sh [BUILD] - compiles MPI_Bcast's program with each of Debian's MPIs
# that is there, to BUILD/bench/mcast/bcast_mpich and bcast_openmpi. One that
# is not is named; its row is left out.
set -eu
build=${1:-build}
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$build/bench/mcast"
for mpi in mpich openmpi; do
	out=$build/bench/mcast/bcast_$mpi
	if ! command -v mpicc.$mpi >/dev/null; then
		echo "build.sh: $mpi is not installed (scripts/deps.sh peers)"
	elif [ ! "$out" -nt "$here/bcast.c" ]; then
		mpicc.$mpi -std=c17 -O2 -Wall -Wextra "$here/bcast.c" -o "$out"
	fi
done
