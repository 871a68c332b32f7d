#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file that is a member is removed, or replaced, while it is in use: status and log say so at once, it goes on being used, and a
# new file of its name takes its place, as any other device would.
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
