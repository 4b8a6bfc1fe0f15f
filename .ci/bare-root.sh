#!/bin/bash
# SPDX-License-Identifier: MIT
#
# bare-root.sh - minimal Debian 12 roots, and commands in them.
#
#	.ci/bare-root.sh new DIR	makes DIR a fresh root: minbase with what
#					the README asks for, and nothing else
#	.ci/bare-root.sh run DIR COMMAND...
#					runs COMMAND there, as its root user
#	.ci/bare-root.sh folder		prints where roots are made
#
# The first root is made by mmdebstrap from this machine's own apt sources, and
# kept as an archive beside the roots; later ones are unpacked from it. COMMAND
# sees the root as / (not by chroot, where nobody may make a user namespace),
# processes, mounts and IPC of its own, the machine's network, and an empty
# /dev/shm of SKEIN_CI_SHM (8g). Its environment is that of a login, its stdin
# is empty. All that it leaves running ends with it. Needs root.
set -u

packages=git,make,ca-certificates
die() { echo "bare-root: $*" >&2; exit 1; }

# A folder that outlives the run, where programs may run, with 8 GiB free.
folder() {
	local place probe free

	for place in "${SKEIN_CI_ROOTS:-}" /var/tmp/skein-ci /tmp/skein-ci \
		"${HOME:-/root}/.cache/skein-ci"; do
		[ -n "$place" ] && mkdir -p "$place" 2>/dev/null || continue
		probe=$(mktemp "$place/probe.XXXXXX" 2>/dev/null) || continue
		printf '#!/bin/sh\n' > "$probe"
		free=$(df --output=avail -k "$place" | tail -1)
		if chmod +x "$probe" && "$probe" 2>/dev/null &&
			[ "$free" -gt $((8 << 20)) ]; then
			rm -f "$probe"
			echo "$place"
			return 0
		fi
		rm -f "$probe"
	done
	die "no folder with 8 GiB free (SKEIN_CI_ROOTS names one)"
}

# This machine's own sources of bookworm: those whose key the root will have.
sources() {
	local file

	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
		/etc/apt/sources.list.d/*.sources; do
		[ -f "$file" ] && grep -q '^[^#]*\bbookworm\b' "$file" &&
			! grep -i 'signed-by' "$file" |
			grep -qv debian-archive-keyring && echo "$file"
	done
}

# archive FILE: makes the archive that roots are unpacked from.
archive() {
	local acquire lists

	command -v mmdebstrap >/dev/null || {
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get \
			-qq install -y --no-install-recommends mmdebstrap \
			>/dev/null
	} || die "mmdebstrap cannot be installed"
	# How this machine reaches its mirror: proxies, certificates.
	acquire=$(mktemp) || exit 1
	apt-config dump Acquire | grep -E '^Acquire::(http|https|Check-|Retries)' \
		> "$acquire"
	mapfile -t lists < <(sources)
	mmdebstrap --quiet --variant=minbase --include="$packages" \
		--aptopt="$acquire" \
		--setup-hook='mkdir -p "$1/usr/local/share"' \
		--customize-hook='cp -rL /usr/local/share/ca-certificates \
			"$1/usr/local/share/" 2>/dev/null; chroot "$1" \
			update-ca-certificates >/dev/null 2>&1; true' \
		bookworm "$1.new.tar" "${lists[@]}" >&2 ||
		die "mmdebstrap failed"
	rm -f "$acquire"
	mv "$1.new.tar" "$1"
}

new() {
	local dir=$1 place key kept

	[ "$(id -u)" = 0 ] || die "making a root needs root"
	place=$(folder) || exit 1
	mapfile -t lists < <(sources)
	key=$(cat "$0" "${lists[@]}" /dev/null | sha256sum | cut -c 1-12)
	kept=$place/bookworm-$key.tar
	(
		flock 9
		[ -s "$kept" ] || archive "$kept"
	) 9> "$place/lock" || exit 1
	rm -rf "$dir"
	mkdir -p "$dir"
	tar -x --numeric-owner -f "$kept" -C "$dir" || die "cannot unpack $kept"
	cp -L /etc/resolv.conf "$dir/etc/resolv.conf"
	rm -f "$dir/etc/hosts"
}

# The first process in the root reaps what loses its parent, as an init does.
inside='
dir=$1
shm=$2
shift 2
proxies=()
for name in http_proxy https_proxy no_proxy; do
	[ -z "${!name:-}" ] || proxies+=("$name=${!name}")
done
mount --make-rprivate / && mount --bind "$dir" "$dir" && cd "$dir" &&
	mount -t proc proc proc && mount --rbind /dev dev &&
	mount -t tmpfs -o "size=$shm,mode=1777" tmpfs dev/shm &&
	{ mount -t sysfs sys sys 2>/dev/null || mount --rbind /sys sys; } &&
	pivot_root . . && umount -l . || exit 125
cd /
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	HOME=/root TERM=dumb "${proxies[@]}" "$@" </dev/null &
wait $!
'

case ${1:-} in
folder)
	folder
	;;
new)
	[ $# = 2 ] || die "new DIR"
	new "$2"
	;;
run)
	[ $# -ge 3 ] || die "run DIR COMMAND..."
	dir=$(readlink -f "$2")
	shift 2
	exec unshare --mount --pid --fork --ipc --kill-child bash -c "$inside" \
		bare-root "$dir" "${SKEIN_CI_SHM:-8g}" "$@"
	;;
*)
	sed -n '4,20s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
