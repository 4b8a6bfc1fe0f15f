#!/bin/bash
# SPDX-License-Identifier: MIT
#
# rdma-vm.sh - run a command on the kernel's own RDMA stack (soft-RoCE),
# without RDMA hardware, KVM or a change to this machine: boots Debian's stock
# kernel in QEMU with this host's / as a read-only root, so that what was built
# here runs there unchanged. See docs/vm-lane.md.
#
#   rdma-vm.sh setup                     install and download what is missing,
#                                        build the image (once; cached)
#   rdma-vm.sh [OPTION].. -- CMD [ARG]..  boot, run CMD in this directory
#
#   --net rxe2|none   rxe2 (default): rxe0 on 10.99.0.1 and rxe1 on 10.99.0.2,
#                     joined by a veth pair, path MTU 4096; none: no device
#   --env NAME=VALUE  set in CMD's environment (repeatable)
#   --rw DIR          what CMD writes below DIR stays (repeatable); all other
#                     writes go to memory and are lost
#   --timeout S       give up after S seconds (300)
#   --smp N (2)  --mem SIZE (1536M)
#   -v                the guest's kernel log and boot times on stderr
#
# CMD's stdout and stderr come out here; its stdin is empty. Exit status: CMD's;
# 124 when time ran out; 125 when there was no guest to run it.
# Cache: $SKEIN_VM_DIR, default ${XDG_CACHE_HOME:-~/.cache}/skein-vm
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=scripts/rdma-vm/common.sh
. "$here/rdma-vm/common.sh"

usage() {
	sed -n '/^#   rdma-vm/,/^# Cache/s/^# \{0,1\}//p' "$0"
}

run_in_guest() {
	local work qemu=0 rc
	work=$(mktemp -d "${TMPDIR:-/tmp}/skein-vm.XXXXXX") || die "no temp dir"
	trap 'kill "${qemu_pid:-}" "${cat_out:-}" "${cat_err:-}" 2>/dev/null
	      rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM HUP
	mkdir "$work/ctl"
	mkfifo "$work/out" "$work/err"
	write_control "$work/ctl" "$@"
	cat "$work/out" &
	cat_out=$!
	cat "$work/err" >&2 &
	cat_err=$!

	start_qemu "$work" &
	qemu_pid=$!
	wait "$qemu_pid"
	qemu=$?
	# A qemu that died early never opened the pipes: end the readers.
	: 8<>"$work/out" 9<>"$work/err"
	wait "$cat_out" "$cat_err"

	[ "$verbose" = 1 ] && cat "$work/console" >&2
	if [ -s "$work/ctl/status" ]; then
		rc=$(cat "$work/ctl/status")
		exit "$rc"
	fi
	tail -n 25 "$work/console" "$work/qemu.err" "$work/ctl/setup.log" \
		>&2 2>/dev/null
	if [ "$qemu" = 124 ]; then
		say "no end after $limit s"
		exit 124
	fi
	die "the guest gave no exit status (qemu: $qemu)"
}

# What the guest's init reads: settings, the shares, the command.
write_control() {
	local ctl=$1 e d
	shift
	echo "NET=$net" >"$ctl/settings"
	for d in ${rw[@]+"${rw[@]}"}; do
		echo "$d"
	done >"$ctl/shares"
	{
		echo "export HOME=/root PATH=$(printf %q "$PATH")"
		for e in ${envs[@]+"${envs[@]}"}; do
			echo "export $(printf %q "$e")"
		done
		echo "ulimit -l unlimited"
		echo "cd $(printf %q "$PWD") || exit 125"
		printf 'exec'
		printf ' %q' "$@"
		echo
	} >"$ctl/command"
}

start_qemu() {
	local work=$1 shares=() d i=0
	local fs=security_model=none,multidevs=remap
	for d in ${rw[@]+"${rw[@]}"}; do
		shares+=(-virtfs "local,path=$d,mount_tag=rw$i,$fs")
		i=$((i + 1))
	done
	# The clock flags keep TCG from calibrating against a host that is
	# busy; mitigations cost much there and guard nothing.
	exec timeout -k 5 "$limit" qemu-system-x86_64 \
		-accel tcg -cpu max -smp "$smp" -m "$mem" -M q35 \
		-nodefaults -no-user-config -display none -vga none -nic none \
		-no-reboot -kernel "$cache/vmlinux" -initrd "$cache/initrd" \
		-append "console=ttyS0 panic=-1 quiet loglevel=6 mitigations=off tsc=reliable clocksource=tsc lpj=4000000 audit=0 no_timer_check" \
		-chardev "file,id=con,path=$work/console" -serial chardev:con \
		-virtfs "local,path=/,mount_tag=host,readonly=on,$fs" \
		-virtfs "local,path=$work/ctl,mount_tag=ctl,$fs" \
		${shares[@]+"${shares[@]}"} -device virtio-serial-pci \
		-chardev "file,id=out,path=$work/out" \
		-device virtserialport,chardev=out,name=out \
		-chardev "file,id=err,path=$work/err" \
		-device virtserialport,chardev=err,name=err \
		</dev/null 2>"$work/qemu.err"
}

net=rxe2 limit=300 smp=2 mem=1536M verbose=0 rw=() envs=()
case ${1:-} in
setup)
	exec "$here/rdma-vm/setup.sh"
	;;
-h | --help)
	usage
	exit 0
	;;
esac
while [ $# -gt 0 ]; do
	case $1 in
	--net | --env | --rw | --timeout | --smp | --mem)
		[ $# -ge 2 ] || die "$1 needs a value"
		;;&
	--net) net=$2 && shift 2 ;;
	--env) envs+=("$2") && shift 2 ;;
	--rw)
		rw+=("$(readlink -e "$2")") || die "--rw $2: no such directory"
		shift 2
		;;
	--timeout) limit=$2 && shift 2 ;;
	--smp) smp=$2 && shift 2 ;;
	--mem) mem=$2 && shift 2 ;;
	-v) verbose=1 && shift ;;
	--)
		shift
		break
		;;
	*) die "what is \"$1\"? see $0 --help" ;;
	esac
done
[ $# -gt 0 ] || die "no command: see $0 --help"
case $net in rxe2 | none) ;; *) die "--net is rxe2 or none" ;; esac
image_is_current || "$here/rdma-vm/setup.sh" >&2 || die "setup failed"
run_in_guest "$@"
