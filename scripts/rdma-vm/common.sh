# SPDX-License-Identifier: MIT
# common.sh - what rdma-vm.sh and its setup share. Sourced; $here is scripts/.
# shellcheck shell=bash disable=SC2034,SC2154

cache=${SKEIN_VM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skein-vm}

say() {
	echo "rdma-vm: $*" >&2
}

die() {
	say "$@"
	exit 125
}

# The image is rebuilt when what goes into it has changed.
image_stamp() {
	cat "$here/rdma-vm/init" "$here/rdma-vm/setup.sh" \
		"$here/rdma-vm/unpack-kernel.py" | sha256sum | cut -d' ' -f1
}

image_is_current() {
	[ -s "$cache/vmlinux" ] && [ -s "$cache/initrd" ] &&
		[ "$(cat "$cache/stamp" 2>/dev/null)" = "$(image_stamp)" ] &&
		command -v qemu-system-x86_64 >/dev/null
}
