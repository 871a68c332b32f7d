#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A member whose exporter ends each time soon after it is back: from the third time in a row on it is kept out for a while, and the
# status says so; then it is let in again.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit
begin breaks_off
configure '[fence]' 'fence = none'
uris=()
for i in 0 1 2; do
	truncate -s 32M "$tmp/m$i"
	kit_up m$i file "$tmp/m$i"
	uris+=("$(uri m$i)")
done
daemon_up
ctl create v --order 1 --stripe 4K --zeroed --old-member --unaligned "${uris[@]}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
# From the third time in a row on it is kept out, each time for longer: on a slow host it may be back before it is looked at.
kept_out() {
	ctl status v >"$tmp/status" 2>&1 || true
	grep -q "it broke off [0-9]* times in a row soon after it was back, and is let in again in .* at the earliest" "$tmp/status" &&
		grep -q "^  2  *suspect " "$tmp/status" && grep -q "I/O is served" "$tmp/status"
}
for time in $(seq 12); do
	until_true 20 holds v 'a["io_allowed"] and a["members"][2]["state"] == "in-sync"'
	end m2 KILL
	until_true 20 holds v 'a["members"][2]["state"] == "suspect"'
	kit_up m2 file "$tmp/m2"
	[ "$time" -ge 4 ] || continue
	until_true 3 holds v 'a["members"][2]["connected"]'
	! kept_out || break
	[ "$time" -lt 12 ] || fail "the status does not say why it is out: $(cat "$tmp/status")"
done
until_true 40 holds v 'a["members"][2]["state"] == "in-sync" and not a["members"][2]["error"]'
echo "ok"
