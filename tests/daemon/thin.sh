#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Members that take space only for what is written: initial sync and rebuild keep it so, and what was there is there.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin thin
configure '[fence]' 'fence = none'
truncate -s 128M "$tmp/m0" "$tmp/m1" "$tmp/m2" "$tmp/new" "$tmp/m3"
kit_up m3 file "$tmp/m3"
daemon_up
taken() { # FILE
	echo $(($(stat -c %b "$1") / 2))
}
is_thin() { # FILE: the log, and a little data
	[ "$(taken "$1")" -lt 16384 ] || fail "$1 takes $(taken "$1") KiB"
}
ctl create v --order 1 --wait --timeout 60 "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
nbd v 'h.pwrite(b"x" * (1 << 20), 20 << 20); h.pwrite(b"y" * (1 << 20), 200 << 20); h.flush()' || fail "write"
for i in 0 1 2; do
	is_thin "$tmp/m$i"
done

# Of a file, and of an export; what the device had before is not there any more.
dd if=/dev/zero bs=1M count=64 2>/dev/null | tr '\0' z | dd of="$tmp/new" bs=1M seek=32 conv=notrunc 2>/dev/null
for device in "$tmp/new" "$(uri m3)"; do
	ctl fail v 0 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
	ctl add v 0 "$device" --wait --timeout 60 >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"
done
is_thin "$tmp/new"
is_thin "$tmp/m3"
ctl fail v 1 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
nbd v 'zero = bytes(1 << 20)
for at in range(0, h.get_size() - (1 << 20), 1 << 20):
    want = {20: b"x" * (1 << 20), 200: b"y" * (1 << 20)}.get(at >> 20, zero)
    assert h.pread(1 << 20, at) == want, at'
