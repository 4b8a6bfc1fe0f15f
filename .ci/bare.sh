#!/bin/bash
# SPDX-License-Identifier: MIT
#
# bare.sh - the README's commands as a newcomer gives them, in minimal Debian 12
# roots (bare-root.sh), and what is made with them there. BARE chooses:
#
#	user	in a fresh root: make demo, as a user with sudo, in a folder
#		with a space; then make install and its like (install.sh)
#	test	in the same root: make test
#	root	in a fresh root: make demo, as root
#	read-only
#		in a fresh root: make test, from a source tree that is
#		read-only, with BUILD in the environment; make demo there, too
#
# The committed tree is taken. The commands are read from README.md. Ends with
# "bare: demo ok, test ok" and a line of counts, that of make test included; exit
# status 0 only when nothing failed. What fails before "test" ends the run: the
# rest would only fail for the same reason. CI_LOGS, a folder, gets the
# logs that are made in the roots. Needs root; default: BARE="user test".
set -u
cd "$(dirname "$0")/.." || exit 1
root=.ci/bare-root.sh
passed=0
failed=0
skipped=0
demo="not run"
test="not run"
begun=$SECONDS
wanted=" ${BARE:-user test} "

close() {
	echo
	echo "bare: demo $demo, test $test"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ] && [ $passed != 0 ]
	exit
}

die() {
	echo "bare: $*" >&2
	demo=FAILED
	test=FAILED
	failed=$((failed + 1))
	close
}

place=$($root folder) || die "no place for roots"
work=$(mktemp -d "$place/root.XXXXXX") || die "no place for roots"
trap 'rm -rf --one-file-system "$work"' EXIT
dir=$work/root
log=$work/log
logs=${CI_LOGS:-$work}

# The first block of code in the README; "#" begins a remark.
lines=$(sed -n '/^    /{:more;s/^    //;s/ *#.*//;p;n;/^    /b more;q}' README.md)
for line in "git clone REPOSITORY skein" "make demo" "make test"; do
	grep -q "$line" <<< "$lines" || die "README.md has no line \"$line\""
done
lines=${lines/REPOSITORY//srv/skein}

# commands WITHOUT: the README's lines but one, as the body of a script.
commands() {
	echo 'set -e'
	echo 'echo "bare: $(id -un) in $PWD"'
	grep -v "^make $1\$" <<< "$lines"
}

# fresh: a root with the committed tree in /srv/skein, as a repository.
fresh() {
	rm -rf --one-file-system "$dir"
	$root new "$dir" || die "no bare root can be made here"
	mkdir -p "$dir/srv/skein" "$dir/ci"
	git -c safe.directory='*' archive HEAD | tar -x -C "$dir/srv/skein" ||
		die "no committed tree"
	cat > "$dir/ci/repository" <<-'END'
		set -e
		cd /srv/skein
		git init -q -b main
		git add -A
		git -c user.name=ci -c user.email=ci@localhost commit -qm tree
	END
	$root run "$dir" bash /ci/repository || die "no command runs in a root here"
}

# step NAME SECONDS FILE: runs FILE in the root; its output is in $log.
step() {
	local name=$1 limit=$2 status since=$SECONDS

	echo
	echo "==== bare, $name"
	timeout --kill-after=20 "$limit" $root run "$dir" bash "$3" 2>&1 |
		tee "$log"
	status=${PIPESTATUS[0]}
	echo "==== bare, $name: status $status, $((SECONDS - since)) s"
	return "$status"
}

# add STATUS: the counts that the step printed; one failure when it has none, or
# none that explain its status.
add() {
	local line p f s

	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" |
		tail -1)
	p=0 f=1 s=0
	[ -z "$line" ] || read -r p _ f _ s _ <<< "${line//,/ }"
	[ "$1" = 0 ] || [ "$f" != 0 ] || f=1
	passed=$((passed + p))
	failed=$((failed + f))
	skipped=$((skipped + s))
}

# demo_step NAME FILE: one case.
demo_step() {
	if step "$1" 1200 "$2" && grep -q '^No value was wrong or missing' "$log"
	then
		passed=$((passed + 1))
		[ "$demo" = FAILED ] || demo=ok
	else
		demo=FAILED
		failed=$((failed + 1))
	fi
}

# keep NAME: Meson's own log of the build folder in the root.
keep() {
	find "$dir" -path '*/meson-logs/testlog*.txt' \
		-exec cp {} "$logs/$1.testlog" \; 2>/dev/null
}

# When the tests of the root end, if that was said to this script.
clock() {
	[ -z "${TESTS_END:-}" ] ||
		echo "export TESTS_END=$TESTS_END"
}

# test_step NAME SECONDS FILE
test_step() {
	step "$@"
	local status=$?
	[ $status = 0 ] || test=FAILED
	[ "$test" = FAILED ] || test=ok
	keep "${1// /-}"
	add $status
}

if [[ $wanted == *" root "* ]]; then
	fresh
	{ echo 'cd /root'; commands test; } > "$dir/ci/demo"
	demo_step "make demo as root" /ci/demo
fi

if [[ $wanted == *" user "* ]]; then
	fresh
	cat > "$dir/ci/user" <<-'END'
		set -e
		apt-get -qq update
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
			--no-install-recommends sudo >/dev/null
		useradd --create-home --shell /bin/bash goose
		echo 'goose ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/goose
		mkdir "/home/goose/my code"
		chown -R goose: /srv/skein "/home/goose/my code"
		cd "/home/goose/my code"
		sudo -u goose -H bash /ci/demo
	END
	commands test | sed 's/apt-get/sudo &/g' > "$dir/ci/demo"
	demo_step "make demo as a user" /ci/user
	echo 'cd "/home/goose/my code/skein" && .ci/install.sh' \
		> "$dir/ci/install"
	step "make install" 600 /ci/install
	add $?
	[ $failed = 0 ] || close
fi

if [[ $wanted == *" test "* ]]; then
	[ -d "$dir/home/goose" ] || die "test runs in the root of user"
	{
		clock
		echo 'cd "/home/goose/my code/skein" && make test'
	} > "$dir/ci/test"
	test_step "make test" 4200 /ci/test
fi

if [[ $wanted == *" read-only "* ]]; then
	fresh
	cat > "$dir/ci/read-only" <<-'END'
		export BUILD="$HOME/my build"
		mount --bind . . && cd "$PWD"
		mount -o remount,bind,ro .
		if touch README.md 2>/dev/null; then
			echo "bare: the tree is not read-only"
			exit 1
		fi
	END
	{
		clock
		echo 'mkdir -p "$HOME/my code" && cd "$HOME/my code"'
		commands demo | sed 's/^make test$/. \/ci\/read-only\n&/'
		# What it compiled is there already.
		echo 'SKEIN_DEMO_TIME=0.3s make demo'
		echo '[ -x "$BUILD/tools/skein" ]'
	} > "$dir/ci/test"
	test_step "make test read-only" 4200 /ci/test
fi

echo
echo "bare: $((SECONDS - begun)) s"
close
