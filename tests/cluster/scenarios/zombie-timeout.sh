#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# There is no fence command, only a wait (zombie_timeout). A node loses power in the middle of its writes; the
# exporters keep its connections, and one of them still has writes that it runs seconds later. Until the time is
# over nothing of the node is taken over: no slot is read, nothing resynced, no lock granted, reads wait, and the
# status says for whom and how long. Then it is recovered, the late writes included. When the node
# comes back, it waits for its own last life as well.
set -u
LOAD_SLOWER=30 # in the lab: what is under way at the fault is what this is about
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

BOUND_MS=8000
FENCE_CONF="fence = zombie_timeout\nzombie_timeout = ${BOUND_MS}ms\n[members]\nrequest_timeout = 3s"
SLOW=2 # the exporter
lost='([r for r in a["recoveries"] if r["node"] == 3][-1])'

now_ms() {
	echo $((${EPOCHREALTIME/[.,]/} / 1000))
}

array_up 3 1
ctl 1 status vol0 >"$CLUSTER_DIR/status"
for text in "fence .*only a wait.*zombie_timeout, 8.0 s" "WARNING .*zombie_timeout"; do
	grep -q "$text" "$CLUSTER_DIR/status" || fail "the status does not say that the fence is only a wait: $(cat "$CLUSTER_DIR/status")"
done
if grep -q "^flags.* hypervisor" /proc/cpuinfo; then
	grep -q "WARNING .*virtual machine" "$CLUSTER_DIR/status" || fail "the status does not warn of a machine that may be paused: $(cat "$CLUSTER_DIR/status")"
fi
writers_start 1 2 3
exporter_stall $SLOW 3 || fail "stall"
waits() {
	[ "$(load pending "$CLUSTER_DIR/load.3" | wc -l)" -ge 4 ]
}
within 5 "node 3 has writes under way" waits
sleep 0.3
step "node 3 is powered off, while exporter $SLOW is slow"
killed=$(now_ms)
node_kill 3
within 20 "node 2 says that it waits for node 3" holds 2 \
	'a["waits"] and "fence" in a["waits"]["for"] and a["waits"]["node"] == 3'
asked=$(now_ms)
ctl 1 status vol0 >"$CLUSTER_DIR/status"
grep -qE "waits for .*fence.*node 3.* [0-9.]+ m?s" "$CLUSTER_DIR/status" || fail "the status does not say it: $(cat "$CLUSTER_DIR/status")"
within 5 "the log says it" log_has 1 "fencing node 3.*waiting for zombie_timeout, $BOUND_MS ms"
members_check || fail "the members: $(raw 'r["problems"]')"
marked=$(raw '[s["dirty"] for s in r["slots"] if s["node"] == 3][0]')
[ "$marked" != "[]" ] || fail "node 3 had nothing marked"

# A read where node 3 had a mark, and a write where nobody has one; both say when they were served.
last=$(($(tells 1 'a["geometry"]["size_bytes"]') - 4096))
nbd_do 1 'h.pread(4096, 0); import time; print(time.time_ns() // 1000000)' >"$CLUSTER_DIR/read.out" 2>&1 &
reader=$!
nbd_do 2 "h.pwrite(bytearray(4096), $last); import time; print(time.time_ns() // 1000000)" >"$CLUSTER_DIR/write.out" 2>&1 &
writer=$!

while [ $(($(now_ms) - asked)) -lt 2000 ]; do
	sleep 0.1
done
step "late writes of node 3 land"
landed=$(exporter_requests $SLOW 3 Write)
exporter_cont $SLOW
late_writes() {
	late=$(($(exporter_requests $SLOW 3 Write) - landed))
	[ $late -gt 0 ]
}
within 2 "a late write" late_writes
[ $(($(now_ms) - asked)) -lt $((BOUND_MS - 500)) ] || fail "this machine is too slow: the time is nearly over"
holds 1 "${lost}['fenced_at'] is None and ${lost}['resync_ms'] is None and a['nodes_unfenced'] == 1" ||
	fail "node 3 counts as fenced: $(tells 1 "$lost")"
[ ! -s "$CLUSTER_DIR/read.out" ] || fail "a read in a marked region of a node that may still write: $(cat "$CLUSTER_DIR/read.out")"
[ ! -s "$CLUSTER_DIR/write.out" ] || fail "a lock was granted before the time was over: $(cat "$CLUSTER_DIR/write.out")"
! log_has 1 "its slot .* was read" || fail "its slot was read before the time was over"
late_writes

wait $reader || fail "the read: $(cat "$CLUSTER_DIR/read.out")"
wait $writer || fail "the write: $(cat "$CLUSTER_DIR/write.out")"
log_has 1 "fence of node 3.*zombie_timeout is over" || fail "the log does not say that the time is over"
waited=$(tells 1 "${lost}['fence_ms']")
[ "$waited" -ge $BOUND_MS ] || fail "the fence answered after $waited ms"
for f in read write; do
	served=$(($(cat "$CLUSTER_DIR/$f.out") - killed))
	[ $served -ge $BOUND_MS ] || fail "a $f was served $served ms after the power cut"
	measured "a $f served $served ms after the power cut"
done
measured "waited $waited ms for the fence; $late late writes landed meanwhile"
step "the time is over"
serve 1 2
writers_go_on 200 1 2
writers_stop 1 2
compare_on 1 2
step "node 3 comes back"
began=$(now_ms)
node_back 3
within 30 "node 3 serves" active 3
[ $(($(now_ms) - began)) -ge $BOUND_MS ] || fail "it did not wait for its own last life"
serve 1 2 3
compare_on 3
finish 1 2 3
