#!/bin/bash
# SPDX-License-Identifier: MIT
#
# build.sh - set up a build folder, or change what it was set up with, and
# compile.
#
#	scripts/build.sh [--configure] FOLDER [-DOPTION=VALUE...] [TARGET...]
#
# A folder that is there keeps every option that is not named here; it is
# configured again only when a named one differs, and then compiles only what
# that adds. A new one has the prefix /usr/local, and libraries where Debian's
# own compiler, loader and pkg-config look for them; MESON_ARGS adds arguments. A
# relative prefix is taken from the current folder. --configure: without the
# compiling, which scripts/run-tests.py --compile does for what it runs.
set -eu

root=$(dirname "$(readlink -f "$0")")/..
folder=$1
[ "$1" != --configure ] || folder=$2
# A user's folder stays the user's when root calls this by sudo (sudo make install).
owner=$(cd "$root" && stat -c %u "$folder" 2>/dev/null ||
	stat -c %u "$(dirname "$folder")" 2>/dev/null) || owner=0
if [ "$(id -u)" = 0 ] && [ "$owner" != 0 ] && [ "$owner" = "${SUDO_UID:-}" ]; then
	exec setpriv --reuid="$SUDO_UID" --regid="$SUDO_GID" --init-groups env \
		HOME="$(getent passwd "$SUDO_UID" | cut -d: -f6)" "$0" "$@"
fi
compile=1
[ "$1" != --configure ] || { compile=; shift; }
shift
options=()
targets=()
for arg; do
	case $arg in
	-Dprefix=*) options+=("-Dprefix=$(realpath -ms "${arg#*=}")") ;;
	-D*) options+=("$arg") ;;
	*) targets+=("$arg") ;;
	esac
done

# The options that differ from what the folder has, one a line.
differing() {
	python3 - "$folder" "${options[@]}" <<'PY'
import json, sys
with open(sys.argv[1] + '/meson-info/intro-buildoptions.json',
          encoding='utf-8') as file:
    has = {row['name']: row['value'] for row in json.load(file)}
for option in sys.argv[2:]:
    name, value = option[2:].split('=', 1)
    now = has.get(name)
    if isinstance(now, bool):
        now = str(now).lower()
    elif isinstance(now, list):
        now = ','.join(now)
    if now != value:
        print(option)
PY
}

cd "$root"
if [ ! -f "$folder/build.ninja" ]; then
	given=" ${options[*]-} ${MESON_ARGS:-}"
	[[ $given == *prefix[=\ ]* ]] || options+=(-Dprefix=/usr/local)
	# Meson alone asks a tool of dpkg-dev for the folder of the libraries,
	# and takes lib64 where that is missing.
	# shellcheck disable=SC2086 # CC may be two words
	arch=$(${CC:-cc} -print-multiarch 2>/dev/null) || arch=
	[ ! -f /etc/debian_version ] || [ -z "$arch" ] ||
		[[ $given == *libdir[=\ ]* ]] || options+=("-Dlibdir=lib/$arch")
	# What is left of a set-up that was killed passes for a whole one.
	rm -rf "$folder/meson-private"
	# shellcheck disable=SC2086 # a list of words
	meson setup "$folder" "${options[@]}" ${MESON_ARGS:-}
elif [ ${#options[@]} != 0 ]; then
	mapfile -t options < <(differing)
	[ ${#options[@]} = 0 ] || meson setup --reconfigure "$folder" \
		"${options[@]}"
fi
[ -n "$compile" ] || exit 0
begun=$SECONDS
ninja -C "$folder" "${targets[@]}"
echo "compiled: $folder: $((SECONDS - begun)) s"
