#!/bin/bash
# SPDX-License-Identifier: MIT
#
# build.sh [BUILD] - compiles gRPC's pair of programs to
# BUILD/bench/peers/peer_grpc, unless it is newer than its sources. Without
# gRPC's compiler and headers it says so and succeeds: the row is left out.
set -eu
build=${1:-build}
here=$(dirname "$(readlink -f "$0")")
out=$build/bench/peers
made=$out/peer_grpc.d

if ! plugin=$(command -v grpc_cpp_plugin) || ! command -v protoc >/dev/null ||
	! command -v g++ >/dev/null || ! pkg-config --exists grpc++ protobuf
then
	echo "build.sh: gRPC is not installed (scripts/deps.sh peers)"
	exit 0
fi
newest=$(ls -t "$here/grpc.cc" "$here/echo.proto" "$0" | head -n 1)
if [ "$out/peer_grpc" -nt "$newest" ]; then
	exit 0
fi
mkdir -p "$made"
protoc --plugin=protoc-gen-grpc="$plugin" --proto_path="$here" \
	--cpp_out="$made" --grpc_out="$made" echo.proto
# shellcheck disable=SC2046 # lists of words
g++ -std=c++17 -O2 -Wall -Wextra -isystem "$made" \
	$(pkg-config --cflags grpc++ protobuf | sed 's/-I/-isystem /g') \
	"$here/grpc.cc" "$made"/echo.pb.cc "$made"/echo.grpc.pb.cc \
	-o "$out/peer_grpc.new" $(pkg-config --libs grpc++ protobuf)
mv "$out/peer_grpc.new" "$out/peer_grpc"
