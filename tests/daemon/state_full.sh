#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The state directory is full: each request that would change something is refused, names the directory, and
# changes nothing, now or after a restart; the status warns meanwhile, and I/O goes on. As root: it mounts a tmpfs.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
[ -x "$top_builddir/ddraidd" ] && [ -x "$top_builddir/ddraidctl" ] || { echo "skipped: not built"; exit 77; }
tmp=$(mktemp -d /tmp/ddraid-full-XXXXXX)
mkdir "$tmp/state" "$tmp/run"
mount -t tmpfs -o size=128K ddraid-full "$tmp/state" 2>/dev/null || { rm -rf "$tmp"; echo "skipped: can't mount (no root)"; exit 77; }
name=ddraid-full-$$
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
	umount "$tmp/state" || umount -l "$tmp/state"
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
	timeout 40 "$top_builddir/ddraidctl" --ipc "$name" "$@"
}
daemon_up() {
	"$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>>"$tmp/log" &
	daemon=$!
	until_true 10 ctl version
}
holds() {
	{ ctl status vol0 --json || true; } | /usr/bin/python3 -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$1"
}
io() {
	timeout 20 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(b"x" * 65536, 0)
h.flush()' "nbd+unix:///vol0?socket=$tmp/run/vol0.nbd"
}
dir_full() {
	dd if=/dev/zero of="$tmp/state/fill" bs=1k 2>/dev/null || true
}
dir_free() {
	rm "$tmp/state/fill"
}
# refused WORDS COMMAND...: nothing came of it.
refused() {
	local words=$1
	shift
	! ctl "$@" >"$tmp/out" 2>&1 || fail "$* is answered with success while the state directory can't be written"
	grep -q "the state directory $tmp/state can't be written: .*$words" "$tmp/out" || fail "$*: $(cat "$tmp/out")"
	[ "$(ls "$tmp/state" | grep -c '\.new$')" = 0 ] || fail "$* leaves half a file: $(ls "$tmp/state")"
}
all_refused() { # WORDS
	refused "$1" set vol0 release_delay=300ms
	refused "$1" fail vol0 2
	refused "$1" stop vol0
	refused "$1" stop vol0 --all-nodes
	refused "$1" forget vol0 --force
	refused "$1" create vol1 --order 1 --zeroed "$tmp/m3" "$tmp/m4" "$tmp/m5"
	holds "any('$tmp/state' in w for w in a['warnings'])" || fail "status does not warn: $(ctl status vol0)"
	ctl status vol0 | grep -q "WARNING.*$tmp/state" || fail "the table does not warn: $(ctl status vol0)"
	io || fail "no I/O while the state directory can't be written"
}
unchanged() {
	until_true 10 holds 'a["io_allowed"] and all(m["state"] == "in-sync" for m in a["members"])'
	ctl get vol0 release_delay | grep -q "1000ms" || fail "release_delay was changed"
	! ctl status vol1 >/dev/null 2>&1 || fail "an array was made"
}

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
for i in 0 1 2 3 4 5; do
	truncate -s 24M "$tmp/m$i"
done
daemon_up
ctl create vol0 --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds 'a["io_allowed"]'

dir_full
all_refused "No space left on device.*make room there"
unchanged
dir_free
until_true 5 holds "not any('$tmp/state' in w for w in a['warnings'])"
daemon_end KILL
daemon_up
unchanged

for m in 3 4 5; do # what was refused has left nothing on them
	[ "$(tr -d '\0' <"$tmp/m$m" | wc -c)" = 0 ] || fail "the refused create has written to m$m"
done

# What can be written is answered, and outlives a kill.
ctl stop vol0 >/dev/null 2>&1 || fail "stop"
daemon_end KILL
daemon_up
holds 'a["state"] == "stopped"' || fail "a stop is undone by a restart: $(ctl status vol0)"
ctl start vol0 >/dev/null 2>&1 || fail "start"
until_true 10 holds 'a["io_allowed"]'
echo "ok"
