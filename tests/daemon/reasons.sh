#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Why a member has left: the log has one line for each change, with the reason, also if it is back within half a second; status
# and JSON tell when and why it changed last.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin reasons
configure '[fence]' 'fence = none' '[members]' 'zombie_timeout = 1s'
truncate -s 64M "$tmp/m0" "$tmp/m1" "$tmp/m2"
kit_up m0 --filter=error file "$tmp/m0" error-pwrite=ENOSPC error-pwrite-rate=1 error-pwrite-file="$tmp/full"
for i in 1 2; do
	kit_up m$i file "$tmp/m$i"
done
daemon_up
ctl create v --order 1 --zeroed "$(uri m0)" "$(uri m1)" "$(uri m2)" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds v 'a["io_allowed"]'
holds v 'all(m["reason"] is None and m["changed_at"] is None for m in a["members"])' || fail "$(ctl status v --json)"
said() { # EXPRESSION: a line of the log
	grep -qE "v: $1" "$tmp/log"
}

echo "an error, with its request"
: >"$tmp/full"
nbd v 'h.pwrite(b"x" * (1 << 20), 0); h.flush()'
reason='durable write at byte [0-9]+ failed: No space left on device'
until_true 10 said "member 0: in-sync -> faulty \(epoch [0-9]+\): $reason"
holds v "__import__('re').fullmatch('$reason', a['members'][0]['reason'])" || fail "$(ctl status v --json)"
holds v 'a["members"][0]["changed_at"][-1] == "Z"' || fail "$(ctl status v --json)"
ctl status v | grep -qE "^ *0 +faulty .*$reason" || fail "$(ctl status v)"

echo "the operator, whose device is well again"
rm "$tmp/full"
ctl add v 0 "$(uri m0)" --old-member --wait --timeout 30 >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"
said 'member 0: faulty -> rebuilding \(epoch [0-9]+\): an operator said so' || fail "$(cat "$tmp/log")"
said 'member 0: rebuilding -> in-sync \(epoch [0-9]+\): its rebuild is through' || fail "$(cat "$tmp/log")"
holds v 'a["members"][0]["state"] == "in-sync" and a["members"][0]["error"] is None' || fail "$(ctl status v --json)"
ctl fail v 0 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
until_true 10 holds v 'a["members"][0]["reason"] == "an operator said so"'
ctl status v | grep -qE "^ *0 +faulty .*since [0-9-]+ [0-9:]+: an operator said so" || fail "$(ctl status v)"
ctl add v 0 "$(uri m0)" --old-member --wait --timeout 30 >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"

echo "a connection that breaks off, and is back at once"
end m1 KILL
kit_up m1 file "$tmp/m1"
until_true 20 said 'member 1: in-sync -> suspect \(epoch [0-9]+\): its connection broke off'
until_true 20 said 'member 1: suspect -> rebuilding \(epoch [0-9]+\): it is back'
until_true 20 said 'member 1: rebuilding -> in-sync \(epoch [0-9]+\): its rebuild is through'
