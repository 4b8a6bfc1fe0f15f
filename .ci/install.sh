#!/bin/bash
# SPDX-License-Identifier: MIT
#
# install.sh - what `make install` leaves, checked as an application finds it:
# .ci/bare.sh runs it in a bare root, in the tree, after `make demo`. It installs
# into the system there. A line for each check; the last has their counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

check() {
	local name=$1
	shift
	# Not inside the condition: there -e would count for nothing.
	(set -e; "$@") > "$work/log" 2>&1
	if [ $? = 0 ]; then
		echo "install: $name: ok"
		passed=$((passed + 1))
	else
		cat "$work/log"
		echo "install: $name: FAILED"
		failed=$((failed + 1))
	fi
}

# echo_pair FLAGS...: a server and a client, compiled as the README says, that
# talk to each other.
echo_pair() {
	local side server line

	for side in server client; do
		# shellcheck disable=SC2046,SC2068 # lists of words
		gcc "examples/01-echo/$side.c" -o "$work/$side" $@
	done
	: > "$work/says"
	"$work/server" 127.0.0.1:0 >> "$work/says" &
	server=$!
	for ((i = 0; i < 200; i++)); do
		line=$(sed -n 's/^listening on //p' "$work/says")
		[ -z "$line" ] || break
		sleep 0.1
	done
	"$work/client" "$line" "hello, goose" | grep ' answers: hello, goose$'
	kill "$server"
	wait "$server"
}

defaults() {
	make install
	[ "$(pkg-config --variable=prefix skein)" = /usr/local ]
	echo_pair $(pkg-config --cflags --libs skein)
	ldd "$work/client" | grep 'libskein.so.0 => /usr/local/lib'
	(cd / && skein info --device soft)
}

# What man pages name is there.
pages() {
	local page names

	names=$(zgrep -oh 'docs/[a-z/-]*\.md' /usr/local/share/man/man?/skein* |
		sort -u)
	[ -n "$names" ]
	for page in $names; do
		[ -f "/usr/local/share/doc/skein/$page" ]
	done
}

prefix() {
	make install PREFIX=/opt/skein
	PKG_CONFIG_PATH=$(dirname "$(find /opt/skein -name skein.pc)")
	export PKG_CONFIG_PATH
	[ "$(pkg-config --variable=prefix skein)" = /opt/skein ]
	LD_LIBRARY_PATH=$(pkg-config --variable=libdir skein)
	export LD_LIBRARY_PATH
	echo_pair $(pkg-config --cflags --libs skein)
	ldd "$work/client" | grep 'libskein.so.0 => /opt/skein/lib'
	(cd / && /opt/skein/bin/skein info --device soft)
}

destdir() {
	make install PREFIX=/opt/packed DESTDIR="$work/a stage"
	cd "$work/a stage/opt/packed"
	[ -x bin/skein ]
	[ -f include/skein/skein.h ]
	[ -f share/man/man1/skein.1 ]
	grep '^prefix=/opt/packed$' "$(find . -name skein.pc)"
	[ ! -e /opt/packed ]
}

remembered() {
	make install DESTDIR="$work/again"
	[ -x "$work/again/opt/packed/bin/skein" ]
}

# absent COMMAND...: it must fail.
absent() {
	if "$@"; then
		return 1
	fi
}

# shared: the client brings no libskein along.
shared() {
	ldd "$work/client" | grep libskein
}

# The library alone, then the whole program.
static() {
	local libs

	libs=$(PKG_CONFIG_PATH=$(dirname "$(find /opt/skein -name skein.pc)") \
		pkg-config --static --cflags --libs skein)
	echo_pair "${libs/-lskein/-l:libskein.a}"
	absent shared
	echo_pair "-static $libs"
	absent ldd "$work/client"
}

without_tools() {
	absent command -v column
	[ "$(make -s help | grep -c '^[a-z-]* .*[a-z]')" -ge 18 ]
	make -s help | grep '^demo  *the main job'
}

# A user with sudo: the folder stays the user's.
by_sudo() {
	local user

	user=$(stat -c %U .)
	as_user() { sudo -u "$user" -H "$@"; }
	touch "$work/begun"
	as_user sudo make install PREFIX=/opt/by-sudo
	[ -x /opt/by-sudo/bin/skein ]
	as_user make install PREFIX=/tmp/own
	[ -x /tmp/own/bin/skein ]
	absent grep . <(find build -newer "$work/begun" -user root)
	as_user sudo scripts/build.sh --configure build-new
	[ "$(stat -c %U build-new)" = "$user" ]
	rm -rf build-new
	absent as_user make install PREFIX=/usr/local > "$work/refused" 2>&1
	grep '? sudo make install$' "$work/refused"
}

check "by sudo, and by the same user" by_sudo
check "make install, and a program finds it" defaults
check "the pages that man pages name" pages
check "PREFIX of a folder that was built for another" prefix
check "DESTDIR, with a space" destdir
check "PREFIX is remembered" remembered
check "libskein.a" static
check "make help without column" without_tools
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed != 0 ]
