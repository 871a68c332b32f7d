#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file that is a member is removed, or replaced, while it is in use: status and log say so at once, it goes on being used, and a
# new file of its name takes its place, as any other device would. One that is cut off, or a block device that has shrunk, is given
# up: the next write behind its end would make it as long as before, with zeroes where data was. The device only as root.
# A file's size is looked at before a write of the last bytes that the array uses, too: that one would hide it from every later look.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin removed
configure '[fence]' 'fence = none'
array_up v
nbd v 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "I/O"
error() { # WORDS: of member 0
	holds v '"'"$1"'" in (a["members"][0]["error"] or "")'
}

echo "moved away, and back"
mv "$tmp/m0" "$tmp/away"
until_true 10 error "was removed"
grep -q "m0: the file that is in use was removed" "$tmp/log" || fail "the log does not say it"
mv "$tmp/away" "$tmp/m0"
until_true 10 holds v 'not a["members"][0]["error"]'

for how in removed "replaced by another one"; do
	echo "$how"
	rm "$tmp/m0"
	[ "$how" = removed ] || truncate -s 24M "$tmp/m0"
	until_true 10 error "$how"
	holds v 'a["members"][0]["state"] == "in-sync" and a["members"][0]["connected"]' || fail "$(ctl status v)"
	nbd v 'assert h.pread(65536, 0) == b"x" * 65536; h.pwrite(b"y" * 8192, 1 << 20)' || fail "I/O"
	ctl fail v 0 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
	truncate -s 24M "$tmp/m0"
	ctl add v 0 "$tmp/m0" >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"
	ctl status v --wait --timeout 40 >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
	holds v 'not a["degraded"] and not a["members"][0]["error"]' || fail "$(ctl status v)"
done

echo "the new file is the member: without another one"
ctl fail v 1 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
nbd v 'assert h.pread(65536, 0) == b"x" * 65536; assert h.pread(8192, 1 << 20) == b"y" * 8192' || fail "I/O"

# cut_off ARRAY URI COMMAND...: the command cuts member 1 off to 12 MiB. It is faulty then, and all that was written is there.
cut_off() {
	local array=$1 uri=$2
	shift 2
	nbd "$array" 'h.pwrite(b"z" * (1 << 20), 0); h.pwrite(b"z" * (1 << 20), 40 << 20); h.flush()' || fail "I/O"
	"$@" || fail "$*"
	until_true 10 holds "$array" 'a["members"][1]["state"] == "faulty" and not a["members"][1]["connected"]'
	grep -q "$array: $uri: it was cut off while in use: it has 12582912 bytes, and had 25165824 when it was opened" "$tmp/log" ||
		fail "the log does not say it"
	holds "$array" '"it has 12582912 bytes" in a["members"][1]["error"]' || fail "$(ctl status "$array")"
	nbd "$array" 'h.pwrite(b"w" * 65536, 44 << 20); h.flush()
for at, byte in (0, b"z"), (40 << 20, b"z"):
	assert h.pread(1 << 20, at) == byte * (1 << 20)' || fail "read wrong"
	ctl status "$array" | grep -q "^$array: active, degraded, I/O is served" || fail "$(ctl status "$array")"
}
echo "a file is cut off"
truncate -s 24M "$tmp/c0" "$tmp/c1" "$tmp/c2"
ctl create c --order 1 --zeroed "$tmp/c0" "$tmp/c1" "$tmp/c2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds c 'a["io_allowed"]'
cut_off c "$tmp/c1" truncate -s 12M "$tmp/c1"
[ "$(stat -c %s "$tmp/c1")" = $((12 << 20)) ] || fail "it was written after that"

# cut_and_extended ARRAY BYTES: files of so many bytes; one is cut off, and the array's last stripe, which would make it as long as
# the array needs, is written at once.
cut_and_extended() {
	local array=$1 m
	for m in 0 1 2; do
		truncate -s "$2" "$tmp/$array$m"
	done
	ctl create "$array" --order 1 --zeroed "$tmp/${array}0" "$tmp/${array}1" "$tmp/${array}2" >"$tmp/out" 2>&1 ||
		fail "create: $(cat "$tmp/out")"
	until_true 10 holds "$array" 'a["io_allowed"]'
	nbd "$array" 'import os
size = h.get_size()
for at in (0, 40 << 20):
	h.pwrite(b"z" * (1 << 20), at)
h.flush()
os.truncate("'"$tmp/${array}1"'", 12 << 20)
h.pwrite(b"w" * 65536, size - 65536)
h.flush()
for at in (0, 40 << 20):
	assert h.pread(1 << 20, at) == b"z" * (1 << 20)
assert h.pread(65536, size - 65536) == b"w" * 65536' || fail "read wrong"
	until_true 10 holds "$array" 'a["members"][1]["state"] == "faulty" and not a["members"][1]["connected"]'
	[ "$(stat -c %s "$tmp/${array}1")" = $((12 << 20)) ] || fail "it was written after that"
	holds "$array" '"it has 12582912 bytes" in a["members"][1]["error"]' || fail "$(ctl status "$array")"
	grep -q "$array: $tmp/${array}1: it was cut off while in use: it has 12582912 bytes, and had $2 when" "$tmp/log" ||
		fail "the log does not say it"
	nbd "$array" 'for at in (0, 40 << 20):
	assert h.pread(1 << 20, at) == b"z" * (1 << 20)' || fail "read wrong"
	ctl status "$array" | grep -q "^$array: active, degraded, I/O is served" || fail "$(ctl status "$array")"
}
echo "a file is cut off, and the array's last stripe is written at once"
cut_and_extended d $((24 << 20))
echo "a file that is longer than the array needs"
cut_and_extended e $(((24 << 20) + 1000000))

echo "a block device shrinks"
truncate -s 24M "$tmp/b0" "$tmp/b1" "$tmp/b2"
loop=$(losetup --show -f "$tmp/b1" 2>/dev/null) || { echo "ok, without a block device"; exit 0; }
at_end() {
	losetup -d "$loop" || true
}
shrink() {
	truncate -s 12M "$tmp/b1" && losetup -c "$loop"
}
ctl create b --order 1 --zeroed "$tmp/b0" "$loop" "$tmp/b2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds b 'a["io_allowed"]'
cut_off b "$loop" shrink
echo "ok"
