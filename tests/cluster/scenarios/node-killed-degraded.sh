#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A member is lost, and then a node loses power in the middle of its writes, which one of the members that are left has
# not got yet. So stripes are half written, and nothing is left to make them whole: the blocks that were in flight may
# be garbage (README, "What it does not promise"). Just these, at most as many as were in flight; through every
# node they read the same, and after the rebuild of a new member, and on the raw members; and they are right when
# their writer has written them again.
set -u
LOAD_SLOWER=30 # in the lab: what is under way at the fault is what this is about
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

SLOW=3 # the exporter

# same WHO COMMAND...: which is a check with --lost; what it says must be what it said before.
said=
same() {
	local who=$1 text
	shift
	text=$("$@") || fail "wrong data, read $who: $text"
	text=${text##*$'\n'}
	[ "${said:=$text}" = "$text" ] || fail "$who: $text; before it was: $said"
}
same_on() {
	local n
	for n; do
		same "through node $n" node_use "$n" timeout -k 10 "$(patience 30)" /usr/bin/python3 "$SCENARIO_LIB/load.py" check "$(array_uri "$n")" \
			--lost "$CLUSTER_DIR/load.3" "$CLUSTER_DIR"/load.[0-9]
	done
}

array_up 3 1 1
writers_start 1 2 3
step "exporter 2 is killed"
exporter_kill 2
within 15 "degraded" holds 1 'a["degraded"]'
ctl 2 fail vol0 1 || fail "fail"
writers_go_on 200 1 2 3
# Of the writes that wait for it the other member must have its part: none may wait for the log.
half_way() {
	holds 3 'a["member_requests"] >= 8'
}
for try in 1 2 3 4 5 6; do
	exporter_stall $SLOW 3 || fail "stall"
	! wait_until 1 "eight writes of node 3 half-way (try $try)" half_way || break
	sleep 3
done
step "node 3 is powered off, while exporter $SLOW is slow"
killed=${EPOCHREALTIME/[.,]/}
node_kill 3
within 20 "the fence of node 3" full_fence 3
writers_go_on 300 1 2
measured "the others went on $(((${EPOCHREALTIME/[.,]/} - killed) / 1000)) ms after the power cut"
writers_stop 1 2
fence_proof 3 || fail "requests after the fence"
serve 1 2
for n in 1 2; do
	within 5 "node $n tells of what may be garbage" log_has $n "node 3 died while a member is missing: .* [1-9] marked regions"
done
pending=$(load pending "$CLUSTER_DIR/load.3" | wc -l)
same_on 1 2 1
measured "$pending writes in flight; $said"
[ "$pending" -ge 8 ] && [[ $said =~ ^[1-9] ]] || fail "this proves nothing: $pending writes in flight, $said"

step "a new member"
ctl 2 add vol0 1 "$(exporter_uri 4)" --wait >"$CLUSTER_DIR/add" 2>&1 || fail "add: $(cat "$CLUSTER_DIR/add")"
ARRAY_MEMBERS=(1 4 3)
for n in 1 2; do
	within 10 "node $n: not degraded" holds $n 'not a["degraded"]'
done
same_on 1 2
members_check --compare-left-out --extract "$CLUSTER_DIR/user" || fail "the members: $(raw 'r["problems"]')"
same "from the members" load check "$CLUSTER_DIR/user" --lost "$CLUSTER_DIR/load.3" "$CLUSTER_DIR"/load.[0-9]
step "node 3 comes back"
node_back 3
serve 1 2 3
same_on 3
writers_start 1 2
LOAD_RATE=$ROUND_RATE writers_start 3
writers_go_round 3
writers_stop 1 2 3
compare_on 1 2 3
finish 1 2 3
