#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node loses power in the middle of its writes. One member is slow to this node just then, and lacks what the others
# have: some stripes' parity is wrong. Exactly the regions that the node had marked are resynced.
#
# What makes a run count is asserted, and tried again if it was not so: at its death the node had at least 8
# writes in flight, marked regions, and at least one stripe of its own with wrong parity, seen on the
# raw disks. The fence fails until these are copied, so no resync can come before; and nothing more of the node can land,
# since its connection to the slow member is frozen until the fence ends it.
set -u
LOAD_SLOWER=30 # in the lab: what is under way at the fault is what this is about
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

SLOW=2 # the exporter
export LOAD_READS=5 # what a read has resynced, the leader resyncs once more

# The node's writes that were never answered, and how many of their stripes have wrong parity. A stripe is a block.
look() {
	load pending "$CLUSTER_DIR/load.3" >"$CLUSTER_DIR/pending"
	pending=$(wc -l <"$CLUSTER_DIR/pending")
	members_check --copied # wrong parity in dirty regions is fine, elsewhere not
	[ $? -lt 2 ] || fail "the members: $(raw 'r["problems"]')"
	wrong=$(raw "len(set(r['stripes_wrong_at']) & set(map(int, open('$CLUSTER_DIR/pending'))))")
	[ "$(raw 'r["stripes_wrong_clean"]')" = 0 ] || fail "wrong parity in regions that nobody marked"
	marked=$(raw '[len(s["dirty"]) for s in r["slots"] if s["node"] == 3][0]')
}

attempt() {
	fences_forget
	writers_start 1 2 3
	fence_break
	exporter_stall $SLOW 3 || fail "stall"
	sleep 0.3
	[ "$(load pending "$CLUSTER_DIR/load.3" | wc -l)" -ge 12 ] || sleep 0.5
	step "node 3 is powered off, while exporter $SLOW is slow"
	killed=${EPOCHREALTIME/[.,]/}
	node_kill 3
	within 20 "its loss is noticed" holds 1 '[r for r in a["recoveries"] if r["node"] == 3 and r["fenced_at"] is None]'
	members_copy
	fence_mend
	within 20 "the fence of node 3" full_fence 3
	look
	step "fenced: $pending writes of node 3 were in flight, $wrong stripes of them have wrong parity, $marked regions marked"
	writers_go_on 300 1 2
	measured "the others went on $(((${EPOCHREALTIME/[.,]/} - killed) / 1000)) ms after the power cut"
	writers_stop 1 2
	fence_proof 3 || fail "requests after the fence"
	serve 1 2
	in_the_log=$marked
	resynced 3 1 2
	[ "$marked" = "$in_the_log" ] || fail "the status tells of other regions than the log"
	[ "$resynced_bytes" -ge $((marked * $(tells 1 'a["geometry"]["region_bytes"]') / 2)) ] || fail "only $resynced_bytes bytes were resynced"
	compare_on 1 2
	[ "$pending" -ge 8 ] && [ "$wrong" -ge 1 ] && [ "$marked" -ge 1 ]
}

array_up 3 2
tries=1
until attempt; do
	[ $((tries++)) -lt 5 ] || fail "no run counted: at least 8 writes in flight and a stripe with wrong parity are wanted"
	step "that did not count: once more"
	node_back 3
	serve 1 2 3
done
measured "$pending writes in flight, $wrong stripes with wrong parity, $marked regions marked"
step "node 3 comes back"
node_back 3
serve 1 2 3
compare_on 3
finish 1 2 3
