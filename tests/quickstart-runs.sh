#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tools/quickstart as a whole, as root: interrupted in its build; then to its end, each other day with --keep, where the commands
# that it prints work, until --down; with --all both, and interrupted in the middle of its writes. None of them leaves anything. A
# stage of tools/check.
set -u
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
quickstart=$top_srcdir/tools/quickstart
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ddraid-quickstarts.XXXXXX")
# All that it starts inherits this, and all its files are there.
mkdir "$tmp/work"
export TMPDIR=$tmp/work DDRAID_QUICKSTART_STATE=$tmp/state
running=
finish() {
	trap '' INT TERM HUP
	[ -z "$running" ] || { kill -TERM "$running" 2>/dev/null; wait "$running"; }
	[ ! -e "$tmp/state" ] || bash "$quickstart" --down
	rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

passed=0 failed=0
# check WHAT COMMAND...
check() {
	local what=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		echo "ok   $what"
	else
		failed=$((failed + 1))
		echo "FAIL $what"
		tail -n 40 "$tmp/out" | sed 's/^/    | /'
	fi
}

# run ARG...: in the background, its output in $tmp/out.
run() {
	: >"$tmp/names"
	touch "$tmp/began"
	# Else SIGINT would be ignored from the start.
	env --default-signal=INT bash "$quickstart" "$@" >"$tmp/out" 2>&1 </dev/null &
	running=$!
}

# over [CONDITION...]: until it has ended, or CONDITION holds; remembers its clusters' names meanwhile.
over() {
	while kill -0 "$running" 2>/dev/null; do
		cat "$TMPDIR"/ddraid-quickstart.*/ddraid-*/name 2>/dev/null >>"$tmp/names"
		[ $# = 0 ] || ! "$@" || return 0
		sleep 0.2
	done
	[ $# = 0 ]
}
ended() { # STATUS
	local status=0
	over
	wait "$running" || status=$?
	running=
	[ $status = "$1" ] || { echo "it ended with status $status"; return 1; }
}
since() { # SECONDS
	[ $((SECONDS - start)) -ge "$1" ]
}
says() {
	grep -q -- "$1" "$tmp/out"
}
interrupt() {
	start=$SECONDS
	kill -INT "$running"
	ended 130 && ! since 30
}

nothing_is_left() {
	local name p
	{
		for p in /proc/[0-9]*; do
			[ "$p" = /proc/$$ ] || ! grep -qzxs "TMPDIR=$TMPDIR" "$p/environ" ||
				echo "process $p $(tr '\0' ' ' <"$p/cmdline")"
		done
		grep -F "$tmp" /proc/self/mountinfo
		sort -u "$tmp/names" | while read -r name; do
			ip netns list | grep "^$name"
			ip -o link | grep -F "$name"
		done
		find "$TMPDIR" -mindepth 1
		ls -d "$DDRAID_QUICKSTART_STATE" 2>/dev/null
		# What nodes keep is in their own directories, and the machine's own have nothing new.
		find /run /etc /var/lib /var/log -xdev -newer "$tmp/began" \
			\( -name '*ddraid*' -o -name '*corosync*' -o -path '/*/ddraid/*' -o -path '/*/corosync/*' \)
	} >"$tmp/left" 2>/dev/null
	[ ! -s "$tmp/left" ] || { head -n 20 "$tmp/left"; return 1; }
}
had_a_cluster() {
	[ -s "$tmp/names" ]
}

says_all() {
	for text in 'in flight\|were under way' 'no request of node 3 after its fence' 'every checksum is right' \
		'e2fsck: clean' '^PASSED: '; do
		check "it says: $text" says "$text"
	done
}

run
start=$SECONDS
check "it runs for 10 s" over since 10
check "interrupted then, it ends with 130" interrupt
check "and nothing is left" nothing_is_left

to_its_end() {
	run
	check "it runs to its end" ended 0
	says_all
	check "there was a cluster" had_a_cluster
	check "nothing is left of it" nothing_is_left
}
interrupted_in_its_writes() {
	run
	check "it comes to its writes" over says 'node 3 is killed'
	check "interrupted then, it ends with 130" interrupt
	check "there was a cluster" had_a_cluster
	check "and nothing is left" nothing_is_left
}

try() {
	bash "$TMPDIR"/ddraid-quickstart.*/try "$@" >>"$tmp/out" 2>&1
}
says_status() { # NODE TEXT
	bash "$TMPDIR"/ddraid-quickstart.*/try node "$1" ddraidctl status >"$tmp/status" 2>>"$tmp/out"
	grep -q "$2" "$tmp/status" || { cat "$tmp/status"; return 1; }
}
kept() {
	run --keep
	check "with --keep it runs to its end" ended 0
	says_all
	check "there was a cluster" had_a_cluster
	check "the cluster serves" says_status 1 'active, I/O is served'
	check "node 3 comes back" try on 3
	check "and serves" says_status 3 'active, I/O is served'
	check "node 1 can be killed" try off 1
	check "another run is refused" eval '! bash "$quickstart" >"$tmp/again" 2>&1 && grep -q "left its cluster running" "$tmp/again"'
	check "--down ends it" bash "$quickstart" --down
	check "and nothing is left" nothing_is_left
}

day=$(($(date -u +%s) / 86400))
case ${1:-}$((day % 2)) in
--all*)
	to_its_end
	interrupted_in_its_writes
	kept
	;;
0)
	kept
	echo "left out: without --keep, interrupted in its writes"
	;;
*)
	to_its_end
	echo "left out: with --keep, interrupted in its writes"
	;;
esac
echo "$passed passed, $failed failed"
[ $failed = 0 ]
