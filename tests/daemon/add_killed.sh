#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon is killed within an `add`: before the device is opened, once the map has the new member, and at each step between.
# Whatever has become of it, the next daemon finds the member where it is, and another `add` of it brings the array back whole.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin addkilled
configure '[fence]' 'fence = none'
array_up v
nbd v 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "I/O"
new=3
for step in record superblock-done commit commit-sent; do
	echo "killed at $step"
	ctl fail v 0 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
	ctl stop v >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
	end daemon TERM
	export DDRAIDD_FAILPOINT=$tmp/failpoint
	daemon_up
	unset DDRAIDD_FAILPOINT
	ctl start v >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
	until_true 10 holds v 'a["io_allowed"] and a["members"][0]["state"] in ("faulty", "missing")'
	truncate -s 24M "$tmp/m$new"
	echo "$step" >"$tmp/failpoint"
	ctl add v 0 "$tmp/m$new" >"$tmp/out" 2>&1 || true
	until_true 10 eval '! kill -0 "${pid[daemon]}"'
	end daemon KILL
	rm -f "$tmp/failpoint"
	# It is noted as the member as soon as the map that is proposed has it: at the last steps maybe already.
	grep -qE "^(adding|member) = $tmp/m$new$" "$tmp/state/v.array" || fail "$step: $(cat "$tmp/state/v.array")"
	daemon_up
	until_true 20 holds v 'a["io_allowed"]'
	if holds v 'a["members"][0]["state"] in ("faulty", "missing")'; then
		ctl add v 0 "$tmp/m$new" --old-member >"$tmp/out" 2>&1 || fail "$step: add: $(cat "$tmp/out")"
	elif [ "$step" = record ]; then
		fail "$step: nobody had committed it: $(ctl status v)"
	fi
	ctl status v --wait --timeout 40 >"$tmp/out" 2>&1 || fail "$step: $(cat "$tmp/out")"
	holds v 'not a["degraded"] and a["members"][0]["uri"] == "'"$tmp/m$new"'"' || fail "$step: $(ctl status v)"
	until_true 5 eval '! grep -q "^adding" "$tmp/state/v.array"'
	grep -q "^member = $tmp/m$new$" "$tmp/state/v.array" || fail "$step: $(cat "$tmp/state/v.array")"
	nbd v 'assert h.pread(65536, 0) == b"x" * 65536' || fail "$step: I/O"
	new=$((new + 1))
done
