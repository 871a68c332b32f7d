#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon whose locks are the DLM's dies while its writes are at a member that does not answer. The kernel frees its
# locks at once; but a grant counts for the others only when it is fenced (R4, R10), so nobody writes
# where its writes may still land, and nobody reads there.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

SLOW=2 # the exporter

# Locks of the array that node $2 has, as node $1 knows them.
locks_of() {
	node_exec "$1" sh -c 'mount -t debugfs none /sys/kernel/debug 2>/dev/null
		cat /sys/kernel/debug/dlm/ddraid-*_locks' | awk -v n="$2" '$2 == n && $8 == 2' | wc -l
}

none_left() {
	[ "$(($(locks_of 1 3) + $(locks_of 2 3)))" = 0 ]
}

acknowledged() {
	cat "$CLUSTER_DIR"/load.[12] | grep -c ^A
}

array_up 3 1
writers_start 1 2 3
fences_forget
fence_break
exporter_stall $SLOW 3 || fail "stall"
sleep 1
held=$(($(locks_of 1 3) + $(locks_of 2 3)))
step "ddraidd of node 3 dies, while exporter $SLOW holds its writes"
node_signal 3 ddraidd KILL
within 10 "the end of ddraidd on node 3" daemon_gone 3
[ "$held" -gt 0 ] || fail "node 3 had no lock that others master"
within 10 "the kernel frees its locks" none_left
step "the kernel has freed its locks ($held were seen)"
load pending "$CLUSTER_DIR/load.3" >"$CLUSTER_DIR/pending"
block=$(head -n 1 "$CLUSTER_DIR/pending")
[ -n "$block" ] || fail "node 3 had no write under way"
within 40 "node 1 waits for the fence of node 3" holds 1 \
	'a["waits"] and "fence" in a["waits"]["for"] and a["waits"]["node"] == 3'
nbd_do 2 "h.pread(4096, $block * 4096)" >"$CLUSTER_DIR/read.out" 2>&1 &
reader=$!
seen=$(acknowledged)
sleep "$(patience 3)"
[ "$(acknowledged)" = "$seen" ] || fail "writes went on where those of node 3 may land, before its fence"
kill -0 $reader 2>/dev/null || fail "so did a read: $(cat "$CLUSTER_DIR/read.out")"
fence_mend
step "the fence works again"
wait $reader || fail "the read: $(cat "$CLUSTER_DIR/read.out")"
fence_proof 3 || fail "requests after the fence"
serve 1 2
writers_go_on 300 1 2
writers_stop 1 2
compare_on 1 2
finish 1 2
