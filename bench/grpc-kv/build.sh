#!/bin/bash
# SPDX-License-Identifier: MIT
#
# build.sh [BUILD] - compiles the key-value service over gRPC and its YCSB client
# to BUILD/bench/grpc-kv, unless they are newer than their sources. BUILD has
# been built. Without gRPC's compiler and headers it fails: scripts/deps.sh peers.
set -eu
build=$(readlink -f "${1:-build}")
here=$(dirname "$(readlink -f "$0")")
root=$here/../..
out=$build/bench/grpc-kv
made=$out/made

for tool in grpc_cpp_plugin protoc g++; do
	command -v $tool >/dev/null || {
		echo "build.sh: no $tool: scripts/deps.sh peers" >&2
		exit 1
	}
done
libs="$build/apps/kv/libskein_kv.a $build/libskein_internal.a"
# shellcheck disable=SC2086 # a list of words
newest=$(ls -t "$here"/* $libs | head -n 1)
if [ "$out/grpc_kv_ycsb" -nt "$newest" ]; then
	exit 0
fi
mkdir -p "$made"
protoc --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" \
	--proto_path="$here" --cpp_out="$made" --grpc_out="$made" kv.proto
flags="-O2 -Wall -Wextra -I$root/apps -I$root/src -I$root/include"
# shellcheck disable=SC2086
gcc -std=gnu11 $flags -c "$here/load.c" -o "$made/load.o"
cxx() {
	# shellcheck disable=SC2046,SC2086 # lists of words
	g++ -std=c++17 $flags -isystem "$made" \
		$(pkg-config --cflags grpc++ protobuf | sed 's/-I/-isystem /g') \
		"$@"
}
cxx -c "$made/kv.pb.cc" -o "$made/kv.pb.o"
cxx -c "$made/kv.grpc.pb.cc" -o "$made/kv.grpc.pb.o"
cxx -c "$here/serve.cc" -o "$made/serve.o"
cxx -c "$here/ycsb.cc" -o "$made/ycsb.o"
for name in serve ycsb; do
	# shellcheck disable=SC2046,SC2086
	g++ -o "$out/grpc_kv_$name.new" "$made/$name.o" "$made"/kv*.o \
		"$made/load.o" $libs $(pkg-config --libs grpc++ protobuf) -lm
	mv "$out/grpc_kv_$name.new" "$out/grpc_kv_$name"
done
