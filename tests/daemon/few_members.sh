#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two of three members are away: what is asked of the map is refused with that reason, and is not carried out when they are back
# and nobody thinks of it any more.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit
begin few
configure '[fence]' 'fence = none'
truncate -s 24M "$tmp/m0" "$tmp/m1" "$tmp/m2"
for m in 0 1 2; do
	kit_up m$m file "$tmp/m$m"
done
daemon_up
ctl create v --order 1 --zeroed "$(uri m0)" "$(uri m1)" "$(uri m2)" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
ctl status v --wait --timeout 40 >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"

end m1 KILL
end m2 KILL
waits() { # WORDS
	ctl status v | grep -q "waits for.*$1"
}
until_true 20 waits 'fewer can be used than the data needs'
sleep 4 # the node's lease is over, too, and that is not the reason
waits 'fewer can be used than the data needs' || fail "$(ctl status v)"
status=0
ctl fail v 1 >"$tmp/out" 2>&1 || status=$?
[ $status = 6 ] && grep -q 'fewer of the other members can be used now' "$tmp/out" || fail "fail: $status, $(cat "$tmp/out")"
status=0
ctl fail v 1 --timeout 4 >"$tmp/out" 2>&1 || status=$?
[ $status = 6 ] && grep -q 'fewer can be used than the data needs' "$tmp/out" || fail "fail --timeout: $status, $(cat "$tmp/out")"

sleep 12 # also that one is over
kit_up m1 file "$tmp/m1"
kit_up m2 file "$tmp/m2"
ctl status v --wait --timeout 60 >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
holds v 'all(m["state"] == "in-sync" for m in a["members"])' || fail "$(ctl status v)"
! grep -q faulty "$tmp/log" || fail "a member is faulty"
