#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Settings of an array that runs, on plain files, as any user: what counts at once, what from its next start on, and that
# `set` and `get` say which. A restart changes nothing.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
[ -x "$top_builddir/ddraidd" ] && [ -x "$top_builddir/ddraidctl" ] || { echo "skipped: not built"; exit 77; }

tmp=$(mktemp -d /tmp/ddraid-settings-XXXXXX)
name=ddraid-settings-$$
daemon=
daemon_end() { # SIGNAL
	[ -n "$daemon" ] || return 0
	kill -s "$1" "$daemon" 2>/dev/null || true
	wait "$daemon" 2>/dev/null || true
	rm -rf /dev/shm/qb-"$daemon"-*
	daemon=
}
finish() {
	local status=$?
	trap '' INT TERM
	[ "$status" = 0 ] || { echo "--- the daemon's log"; cat "$tmp/log" 2>/dev/null || true; }
	daemon_end KILL
	rm -rf "$tmp"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
	echo "FAILED: $*"
	exit 1
}
until_true() { # SECONDS COMMAND...
	local limit=$(($1 * 20)) i
	shift
	for ((i = 0; i < limit; i++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.05
	done
	fail "not within $((limit / 20)) s: $*"
}
ctl() {
	timeout 20 "$top_builddir/ddraidctl" --ipc "$name" "$@"
}
daemon_up() {
	"$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>>"$tmp/log" &
	daemon=$!
	until_true 10 ctl version
	until_true 10 holds 'a["io_allowed"]'
}
holds() {
	{ ctl status vol0 --json || true; } | /usr/bin/python3 -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$1"
}
write_some() {
	timeout 20 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(b"x" * 65536, 0)' "nbd+unix:///vol0?socket=$tmp/run/vol0.nbd"
}
# set_says WORDS SETTING..., set_is_quiet SETTING...: whether it has to wait for the next start.
set_says() {
	ctl set vol0 "$2" >"$tmp/out" 2>&1 || fail "set $2: $(cat "$tmp/out")"
	grep -q "$1" "$tmp/out" || fail "set $2 does not say '$1': $(cat "$tmp/out")"
}
set_is_quiet() {
	ctl set vol0 "$1" >"$tmp/out" 2>&1 || fail "set $1: $(cat "$tmp/out")"
	! grep -q "start" "$tmp/out" || fail "set $1 is said to count later: $(cat "$tmp/out")"
}

mkdir "$tmp/state" "$tmp/run"
cat >"$tmp/conf" <<-EOC
	[daemon]
	state_dir = $tmp/state
	run_dir = $tmp/run
	ipc_name = $name
	[cluster]
	cluster = alone
	[fence]
	fence = none
EOC
for i in 0 1 2; do
	truncate -s 24M "$tmp/m$i"
done
"$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>>"$tmp/log" &
daemon=$!
until_true 10 ctl version
ctl create vol0 --order 1 --stripe 4K --zeroed --force --set release_delay=10min "$tmp/m0" "$tmp/m1" "$tmp/m2" \
	>"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"

write_some
sleep 0.3
holds 'a["regions_dirty"] > 0' || fail "a mark is cleared before the release delay"
set_is_quiet release_delay=100ms
until_true 3 holds 'a["regions_dirty"] == 0'
set_is_quiet member_retry=5s
set_is_quiet checkpoint_regions=7
set_is_quiet when_lost=eio
set_is_quiet mark_ahead=no

set_says "it counts from the array's next start" listen=tcp:127.0.0.1:1
ctl get vol0 listen | grep -q "here it is none until then" || fail "get: $(ctl get vol0 listen)"
set_is_quiet mark_ahead=yes
ctl set vol0 listen= >"$tmp/out" 2>&1 || fail "listen: $(cat "$tmp/out")"
! ctl get vol0 | grep "until then" || fail "get says that something waits"
set_says "it counts from the array's next start" force_members=yes
ctl get vol0 force_members | grep -q "yes.*set.*here it is no until then" || fail "get: $(ctl get vol0 force_members)"
! ctl status vol0 | grep "force_members is on" || fail "status warns of what does not count yet"

daemon_end TERM
daemon_up
ctl get vol0 >"$tmp/out"
grep -q "^release_delay = 100ms .*set" "$tmp/out" && grep -q "^member_retry = 5000ms .*set" "$tmp/out" ||
	fail "lost by a restart: $(cat "$tmp/out")"
! grep "until then" "$tmp/out" || fail "something waits after the start"
ctl status vol0 | grep -q "force_members is on" || fail "status does not warn of force_members"
set_says "next start" force_members=no
ctl status vol0 | grep -q "force_members is on" || fail "the warning ended before what it warns of"
write_some
until_true 3 holds 'a["regions_dirty"] == 0'
ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
echo "ok"
