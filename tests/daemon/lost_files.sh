#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Files of the state directory are lost: an array's description while its record is there, and part of the list of the
# forgotten; or a description is restored from a backup that is too old. The status says so, whatever arrays there are, and what
# it says to do mends it, to the letter. What is deleted while ddraidd runs is written anew. As any user.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin lost
state=$tmp/state
again() {
	end daemon TERM
	daemon_up
}
warns() { # TEXT: people and programs, with and without arrays
	ctl status >"$tmp/out" 2>&1 || true
	grep -qF "$1" "$tmp/out" || fail "status does not say: $1; but: $(cat "$tmp/out")"
	{ ctl status --json 2>"$tmp/err" || true; } | /usr/bin/python3 -IS -c 'import json, sys
s = json.load(sys.stdin)
of = [w for a in s["arrays"] for w in a["warnings"]] + s.get("warnings", [])
sys.exit(0 if any(sys.argv[1] in w for w in of) else 1)' "$1" || fail "status --json does not say: $1"
}
warns_not() {
	ctl status >"$tmp/out" 2>&1 || true
	! grep -qF "$1" "$tmp/out" || fail "it still says: $(cat "$tmp/out")"
}

configure '[fence]' 'fence = none'
array_up old
uuid=$(sed -n 's/^uuid = //p' "$state/old.array")
nbd old 'h.pwrite(b"precious" * 8192, 0); h.flush()'
end daemon TERM

echo "a record without an array"
mv "$state/old.array" "$tmp"
daemon_up
lost="$state/old.record is there, and old.array is not: the array old ($uuid) was known here"
warns "$lost"
grep -q "no arrays are known here" "$tmp/out" || fail "$(cat "$tmp/out")"
for what in 'forget old' 'start old' 'status old'; do
	status=0
	# shellcheck disable=SC2086 # words
	ctl $what >"$tmp/out" 2>&1 || status=$?
	[ "$status" = 4 ] && grep -qF "there is no array old on this node: $lost" "$tmp/out" || fail "$what: $status, $(cat "$tmp/out")"
done
truncate -s 24M "$tmp/n0" "$tmp/n1" "$tmp/n2"
cp "$state/old.record" "$tmp"
status=0
ctl create old --order 1 --zeroed "$tmp/n0" "$tmp/n1" "$tmp/n2" >"$tmp/out" 2>&1 || status=$?
[ "$status" != 0 ] && grep -qF "the name old is that of an array which node 1 has lost; take another name, or see to that one: $lost" "$tmp/out" ||
	fail "create of its name: $status, $(cat "$tmp/out")"
cmp "$state/old.record" "$tmp/old.record" || fail "the record of the lost array has changed"
warns "$lost"
ctl create new --order 1 --zeroed "$tmp/n0" "$tmp/n1" "$tmp/n2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
warns "$lost"

echo "restored"
cp "$tmp/old.array" "$state"
warns "restart ddraidd, and the array old ($uuid) is known here again"
again
until_true 10 holds old 'a["io_allowed"]'
warns_not old.record

echo "imported, as it says"
end daemon TERM
rm "$state/old.array"
daemon_up
warns "'ddraidctl import' with its members brings it back"
ctl import "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "import: $(cat "$tmp/out")"
until_true 10 holds old 'a["io_allowed"]'
warns_not old.record
nbd old 'assert h.pread(65536, 0) == b"precious" * 8192'

echo "an older one, of before two members were replaced"
cp "$state/old.array" "$tmp/older.array"
for i in 0 1; do
	truncate -s 24M "$tmp/r$i"
	ctl fail old $i >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
	ctl add old $i "$tmp/r$i" >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"
	until_true 20 holds old "a['members'][$i]['state'] == 'in-sync'"
done
end daemon TERM
cp "$state/old.array" "$tmp/right.array"
cp "$tmp/older.array" "$state/old.array"
daemon_up
until_true 20 holds old '"was a member once and is none now" in str(a)'
ctl status >"$tmp/out" 2>&1 || true
grep -qF "set its member = lines right" "$tmp/out" || fail "status does not say what to do: $(cat "$tmp/out")"
end daemon TERM
sed -i "s|$tmp/m0|$tmp/r0|; s|$tmp/m1|$tmp/r1|" "$state/old.array"
cmp <(grep ^member "$state/old.array") <(grep ^member "$tmp/right.array") || fail "other members: $(diff "$state/old.array" "$tmp/right.array")"
daemon_up
until_true 10 holds old 'a["io_allowed"]'
nbd old 'assert h.pread(65536, 0) == b"precious" * 8192'

echo "not wanted"
end daemon TERM
rm "$state/old.array"
daemon_up
warns "$lost"
rm "$state/old.record"
warns_not old.record

echo "the list of the forgotten"
ctl forget new --disconnect >"$tmp/out" 2>&1 || fail "forget: $(cat "$tmp/out")"
until_true 10 test ! -e "$state/new.record"
end daemon TERM
cp "$state/forgotten" "$tmp/whole"
sed -i 's/^end/01000000-d0d0-/' "$state/forgotten"
daemon_up
damaged="the list of the forgotten was damaged, and is $state/forgotten.damaged"
warns "$damaged"
for i in 0 1 2; do
	truncate -s 0 "$tmp/n$i"
	truncate -s 24M "$tmp/n$i"
done
ctl create new --order 1 --zeroed "$tmp/n0" "$tmp/n1" "$tmp/n2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
warns "$damaged"
ctl forget new --disconnect >"$tmp/out" 2>&1 || fail "forget: $(cat "$tmp/out")"
again
warns "$damaged"
cp "$tmp/whole" "$state/forgotten.damaged"
again
until_true 5 test ! -e "$state/forgotten.damaged"
warns_not forgotten
[ "$(grep -c '^[0-9a-f]\{8\}-' "$state/forgotten")" = 2 ] || fail "the list: $(cat "$state/forgotten")"
end daemon TERM
: >"$state/forgotten"
daemon_up
warns "$damaged"
rm "$state/forgotten.damaged"
warns_not forgotten

echo "what a power cut has left of a forgotten array"
uuid=$(sed -n 's/^\([0-9a-f-]\{36\}\) .*/\1/p' "$tmp/whole")
end daemon TERM
cp "$tmp/whole" "$state/forgotten"
record_edit "$state/left.record" 'b[:8] = b"DDRAIDRC"; b[12:16] = struct.pack("<I", 1); b[16:32] = uuid.UUID(sys.argv[3]).bytes' "$uuid"
daemon_up
[ ! -e "$state/left.record" ] || fail "it is still there: $(ctl status 2>&1)"

echo "deleted while it is in use"
files=(incarnation forgotten old.array old.record lock)
kept() { # they are what they were; the record goes on
	local f
	for f in "${files[@]}"; do
		[ -e "$state/$f" ] || return 1
	done
	cmp "$state/old.array" "$tmp/kept/old.array" && cmp "$state/forgotten" "$tmp/kept/forgotten"
}
second() { # another daemon on this state directory is refused
	sed "s|^run_dir.*|run_dir = $tmp/run2|; s|^ipc_name.*|ipc_name = $name-2|" "$tmp/conf" >"$tmp/conf2"
	mkdir -p "$tmp/run2"
	status=0
	timeout -k 10 20 "$top_builddir/ddraidd" --foreground --config "$tmp/conf2" 2>"$tmp/err" || status=$?
	[ "$status" = 1 ] && grep -q "another ddraidd uses the state directory $state" "$tmp/err" || fail "a second one: $status, $(cat "$tmp/err")"
}
for i in 0 1 2; do
	truncate -s 0 "$tmp/n$i"
	truncate -s 24M "$tmp/n$i"
done
ctl create old --order 1 --zeroed "$tmp/n0" "$tmp/n1" "$tmp/n2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds old 'a["io_allowed"]'
until_true 10 test -e "$state/incarnation"
nbd old 'h.pwrite(b"precious" * 8192, 0); h.flush()'
cp -r "$state" "$tmp/kept"
warns_not deleted
rm -rf "${state:?}"/*
until_true 10 kept
second
for f in "${files[@]}"; do
	warns "$f"
done
warns "files were deleted from the state directory $state while ddraidd uses it"
grep -q "warning files were deleted from the state directory $state .*old.array" "$tmp/log" || fail "the log does not say it"
nbd old 'assert h.pread(65536, 0) == b"precious" * 8192; h.pwrite(b"new" * 8192, 1 << 20); h.flush()'
end daemon KILL
daemon_up
until_true 20 holds old 'a["io_allowed"]'
nbd old 'assert h.pread(24576, 1 << 20) == b"new" * 8192'

echo "deleted, and it ends at once"
rm -rf "${state:?}"/*
end daemon TERM
kept || fail "an orderly end left: $(ls "$state")"
daemon_up
until_true 20 holds old 'a["io_allowed"]'
warns_not deleted

echo "another daemon has its lock since"
/usr/bin/python3 -IS -c 'import fcntl, os, sys, time
f = open(sys.argv[1] + ".other", "w")
fcntl.lockf(f, fcntl.LOCK_EX)
os.rename(sys.argv[1] + ".other", sys.argv[1])
time.sleep(600)' "$state/lock" &
pid[other]=$!
locked="the state directory $state can't be written: .* another ddraidd has locked it since"
says_locked() {
	ctl status | grep -q "$locked"
}
until_true 10 says_locked
! ctl set old release_delay=2s >"$tmp/out" 2>&1 || fail "set: $(cat "$tmp/out")"
grep -q "$locked" "$tmp/out" || fail "set does not say it: $(cat "$tmp/out")"
cmp "$state/old.array" "$tmp/kept/old.array" || fail "it was written over"
end other KILL
until_true 10 ctl set old release_delay=2s
second
ctl status | grep -q "can't be written" && fail "it still says: $(ctl status)"

echo "deleted by ddraidd"
ctl forget old --disconnect >"$tmp/out" 2>&1 || fail "forget: $(cat "$tmp/out")"
until_true 10 test ! -e "$state/old.record"
sleep 2.5 # longer than until the next look
[ ! -e "$state/old.array" ] && [ ! -e "$state/old.record" ] || fail "it is back: $(ls "$state")"
echo "ok"
