#!/bin/bash
# SPDX-License-Identifier: MIT
#
# setup.sh - everything rdma-vm.sh needs, once: packages by apt, Debian's newest
# kernel package (kept in the cache, never installed), and an initrd of
# busybox, the RDMA modules and init. Does nothing when the image is current.
set -eu
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=scripts/rdma-vm/common.sh
. "$here/rdma-vm/common.sh"

packages="qemu-system-x86 busybox-static cpio kmod xz-utils python3
	iproute2 rdma-core ibverbs-providers libibverbs1"

# In load order, their dependencies come by themselves. rxe needs a crc32 that
# nothing depends on; modules that the kernel has built in drop out.
modules="crc32_generic crc32c_generic virtio_pci virtio_console 9pnet_virtio 9p
	overlay veth ib_core ib_uverbs rdma_rxe sch_netem bridge"

install_packages() {
	local p missing=
	for p in $packages; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null |
			grep -q 'install ok installed' || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	say "apt-get install$missing"
	[ "$(id -u)" = 0 ] ||
		die "run as root once: apt-get install$missing"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	# shellcheck disable=SC2086
	apt-get install -y -qq --no-install-recommends $missing
}

newest_kernel() {
	apt-cache depends linux-image-amd64 |
		sed -n 's/^ *Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1
}

# The kernel package as $cache/NAME.deb: a later image needs no network.
fetch_kernel() {
	local pkg=$1
	[ ! -s "$cache/$pkg.deb" ] || return 0
	say "downloading $pkg"
	mkdir "$tmp/get"
	(cd "$tmp/get" &&
		apt-get -o APT::Sandbox::User=root download -qq "$pkg")
	rm -f "$cache"/linux-image-*.deb
	mv "$tmp"/get/*.deb "$cache/$pkg.deb"
}

build_initrd() {
	local root=$1 version=$2 ir=$tmp/initrd m
	mkdir -p "$ir"/{bin,proc,sys,dev,mod,host,cow,new,ctl}
	cp "$(command -v busybox)" "$ir/bin/busybox"
	cp "$here/rdma-vm/init" "$ir/init"
	chmod 755 "$ir/init"
	[ -f "$root/lib/modules/$version/modules.dep.bin" ] ||
		depmod -b "$root" "$version"
	for m in $modules; do
		modprobe -d "$root" -S "$version" --show-depends "$m" || true
	done 2>/dev/null | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
		while read -r m; do
			case $m in
			*.xz) xz -dc "$m" >"$ir/mod/$(basename "$m" .xz)" ;;
			*) cp "$m" "$ir/mod/" ;;
			esac
			basename "$m" .xz
		done >"$ir/mod/order"
	grep -q '^rdma_rxe.ko$' "$ir/mod/order" ||
		die "kernel $version has no rdma_rxe"
	(cd "$ir" && find . | cpio -o -H newc --quiet) >"$tmp/initrd.cpio"
}

main() {
	local pkg version stamp
	mkdir -p "$cache"
	# Of what is read now: these files may change while we work.
	stamp=$(image_stamp)
	# Two lanes may start at once; the second finds the image made.
	exec 9>"$cache/lock"
	flock 9
	image_is_current && return 0
	[ "$(dpkg --print-architecture)" = amd64 ] ||
		die "only on amd64 so far"
	install_packages
	pkg=${SKEIN_VM_KERNEL:-$(newest_kernel)}
	if [ -z "$pkg" ]; then
		apt-get update -qq
		pkg=$(newest_kernel)
	fi
	[ -n "$pkg" ] || die "apt knows no linux-image-amd64"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	fetch_kernel "$pkg"
	dpkg-deb -x "$cache/$pkg.deb" "$tmp/kernel"
	version=${pkg#linux-image-}
	rm -f "$cache/stamp"
	python3 "$here/rdma-vm/unpack-kernel.py" \
		"$tmp/kernel/boot/vmlinuz-$version" "$tmp/vmlinux"
	build_initrd "$tmp/kernel" "$version"
	mv "$tmp/vmlinux" "$tmp/initrd.cpio" "$cache/"
	mv "$cache/initrd.cpio" "$cache/initrd"
	echo "$stamp" >"$cache/stamp"
	say "image of $version in $cache"
}

main
