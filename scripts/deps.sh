#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deps.sh - install the Debian packages that a group of jobs needs.
#
#	scripts/deps.sh [--dry-run] GROUP...
#
# Groups:
#	build	compile the library, the tool and the examples
#	test	make test: the test library, and what the checks run
#	lint	make lint, make tsan, make fuzz-smoke: clang's tools, cppcheck
#	hw	make test-hw: QEMU and what the guest's image is made from
#	ci	.ci/run: what makes bare roots, and keeps objects
#	docs	make docs: pandoc
#	plots	make sim-plots: gnuplot
#	peers	make bench-peers, bench-cp, bench-mcast: what Skein is measured
#		beside
#
# Asks dpkg first: when all is there it does nothing, needs no root and no
# network. Otherwise it says what it will install, then installs it by apt-get,
# through sudo when it does not run as root. Reads nothing from stdin.
set -u

build="gcc libc6-dev make meson ninja-build pkg-config
	libibverbs-dev libxxhash-dev libdeflate-dev libjansson-dev
	nettle-dev"
test="libcmocka-dev python3 git g++ binutils procps clang-format-14
	strace valgrind spin musl-tools
	ibverbs-utils perftest qperf rdmacm-utils ucx-utils
	python3-pyverbs
	iproute2 tshark
	redis-server redis-tools python3-grpcio curl socat postgresql-15
	memcached nginx-light"
lint="clang-14 clang-tidy-14 clang-format-14 cppcheck libclang-rt-14-dev
	python3 binutils g++"
hw="qemu-system-x86 busybox-static cpio kmod xz-utils rdma-core
	ibverbs-providers ibverbs-utils iproute2 python3"
ci="mmdebstrap ccache git python3"
docs="pandoc"
plots="gnuplot-nox python3"
peers="python3 ucx-utils redis-server redis-tools memcached
	libmemcached-tools nginx-light wrk iperf3 postgresql-15
	rsync netcat-openbsd openssh-client openssh-server xxhash
	mpich libmpich-dev openmpi-bin libopenmpi-dev
	g++ pkg-config libgrpc++-dev libprotobuf-dev
	protobuf-compiler protobuf-compiler-grpc"

say() { echo "deps: $*"; }
die() { echo "deps: $*" >&2; exit 1; }
usage() { sed -n '3,24s/^# \{0,1\}//p' "$0"; }

dry=0
wanted=
[ $# -gt 0 ] || { usage >&2; exit 2; }
for arg; do
	case $arg in
	--dry-run) dry=1 ;;
	-h | --help) usage; exit 0 ;;
	build) wanted="$wanted $build" ;;
	test) wanted="$wanted $test" ;;
	lint) wanted="$wanted $lint" ;;
	hw) wanted="$wanted $hw" ;;
	ci) wanted="$wanted $ci" ;;
	docs) wanted="$wanted $docs" ;;
	plots) wanted="$wanted $plots" ;;
	peers) wanted="$wanted $peers" ;;
	*) die "no group '$arg' (build, test, lint, hw, ci, docs, plots, peers)" ;;
	esac
done
# One name a line, each once.
wanted=$(printf '%s\n' $wanted | sort -u)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	say "no apt here: Skein is developed on Debian 12. Install the like of:"
	say "$(echo $wanted)"
	say "going on; Meson will name what is missing"
	exit 0
fi

installed() {
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=
for package in $wanted; do
	installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

say "will install by apt:$missing"
[ $dry = 0 ] || exit 0

root=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null ||
		die "needs root (or sudo). As root: apt-get install$missing"
	root="sudo"
fi

# A busy dpkg lock (another apt at work) is waited for, not an error.
apt() {
	$root env DEBIAN_FRONTEND=noninteractive apt-get -qq \
		-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
		-o Dpkg::Use-Pty=0 "$@" </dev/null
}

apt update || die "apt-get update failed"
# shellcheck disable=SC2086 # a list of words
apt install -y --no-install-recommends $missing >/dev/null ||
	die "apt-get install failed"
for package in $missing; do
	installed "$package" || die "apt-get did not install $package"
done
say "done"
