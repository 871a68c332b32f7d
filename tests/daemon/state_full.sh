#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The state directory is full: each request that would change something is refused, names the directory, and
# changes nothing, now or after a restart; the status warns meanwhile, and I/O goes on. But when a member is lost, writes wait
# for the record: the status says so, and since when. As root: it mounts a tmpfs.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd nbdkit
begin full
exporter=
mount -t tmpfs -o size=128K ddraid-full "$tmp/state" 2>/dev/null || { echo "skipped: can't mount (no root)"; exit 77; }
at_end() {
	[ -z "$exporter" ] || kill -s KILL "$exporter" || true
	umount "$tmp/state" || umount -l "$tmp/state"
}
io() {
	nbd vol0 'h.pwrite(b"x" * 65536, 0); h.flush()'
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
	refused "$1" forget vol0 --disconnect
	refused "$1" create vol1 --order 1 --zeroed "$tmp/m3" "$tmp/m4" "$tmp/m5"
	holds vol0 "any('$tmp/state' in w for w in a['warnings'])" || fail "status does not warn: $(ctl status vol0)"
	ctl status vol0 | grep -q "WARNING.*$tmp/state" || fail "the table does not warn: $(ctl status vol0)"
	io || fail "no I/O while the state directory can't be written"
}
unchanged() {
	until_true 10 holds vol0 'a["io_allowed"] and all(m["state"] == "in-sync" for m in a["members"])'
	ctl get vol0 release_delay | grep -q "1000ms" || fail "release_delay was changed"
	! ctl status vol1 >/dev/null 2>&1 || fail "an array was made"
}

configure '[fence]' 'fence = none'
for i in 0 1 2 3 4 5 6 7 8; do
	truncate -s 24M "$tmp/m$i"
done
daemon_up
ctl create vol0 --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds vol0 'a["io_allowed"]'

dir_full
all_refused "No space left on device.*make room there"
unchanged
dir_free
until_true 5 holds vol0 "not any('$tmp/state' in w for w in a['warnings'])"
end daemon KILL
daemon_up
unchanged

for m in 3 4 5; do # what was refused has left nothing on them
	[ "$(tr -d '\0' <"$tmp/m$m" | wc -c)" = 0 ] || fail "the refused create has written to m$m"
done

# What can be written is answered, and outlives a kill.
ctl stop vol0 >/dev/null 2>&1 || fail "stop"
end daemon KILL
daemon_up
holds vol0 'a["state"] == "stopped"' || fail "a stop is undone by a restart: $(ctl status vol0)"
ctl start vol0 >/dev/null 2>&1 || fail "start"
until_true 10 holds vol0 'a["io_allowed"]'

# A member is lost meanwhile: a map without it is in no record.
nbdkit -f -t 1 -U "$tmp/m8.sock" file "$tmp/m8" 2>>"$tmp/nbdkit.log" &
exporter=$!
until_true 5 test -S "$tmp/m8.sock"
ctl create vol2 --order 1 --zeroed "$tmp/m6" "$tmp/m7" "nbd+unix:///?socket=$tmp/m8.sock" >"$tmp/out" 2>&1 ||
	fail "create: $(cat "$tmp/out")"
until_true 10 holds vol2 'a["io_allowed"] and not a["regions_dirty"]'
dir_full
ctl status vol2 >"$tmp/out" || fail "status $?, and nothing waits for the record: $(cat "$tmp/out")"
kill -s KILL "$exporter"
wait "$exporter" 2>/dev/null || true
exporter=
nbd vol2 'h.pwrite(b"y" * 65536, 0); h.flush()' &
writer=$!
until_true 5 holds vol2 'not a["io_allowed"] and a["degraded"] and a["waits"]["ms"] >= 1000 and "writes wait" in a["waits"]["for"]'
kill -s 0 $writer || fail "a write did not wait"
status=0
ctl status vol2 >"$tmp/out" || status=$?
[ $status = 6 ] || fail "status ends with $status while writes wait"
grep -qx "vol2: active, degraded, I/O is held" "$tmp/out" || fail "$(cat "$tmp/out")"
grep -q "^  waits for .*record, and writes wait for it: the state directory $tmp/state can't .*: make room there, [1-9]" "$tmp/out" ||
	fail "$(cat "$tmp/out")"
holds vol0 'a["io_allowed"] and not a["waits"]' || fail "vol0 waits for nothing: $(ctl status vol0)"
dir_free
wait $writer || fail "the write that waited has failed"
until_true 5 holds vol2 'a["io_allowed"] and a["degraded"] and not a["waits"]'

# Another file system is mounted over it: what was written below would be gone with the next start.
mount -t tmpfs -o size=128K ddraid-full "$tmp/state" || fail "mount"
! ctl set vol0 release_delay=2s >"$tmp/out" 2>&1 || fail "set is undone by a restart, and says nothing"
grep -q "the state directory $tmp/state can't .* it is another one than when ddraidd began" "$tmp/out" || fail "$(cat "$tmp/out")"
umount "$tmp/state"
ctl set vol0 release_delay=2s >"$tmp/out" 2>&1 || fail "set afterwards: $(cat "$tmp/out")"
echo "ok"
