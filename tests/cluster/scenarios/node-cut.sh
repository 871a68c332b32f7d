#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node's cable is pulled while all write. The others fence it and go on. Its own I/O waits while it does not know
# (losing quorum removes nobody), and nothing of it lands. Healed, it learns that it was removed: its
# requests fail, its clients are thrown out, and it serves again as a new incarnation only.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# dlm_controld would cut this machine's power, and nothing of it would wake up (dlm-fence-cut does that).
LAB_DLM=no

array_up 3 1
writers_start 1 2
writers_start --reconnect 3
fences_forget
log_mark 3
step "node 3 is cut off"
cut=${EPOCHREALTIME/[.,]/}
node_cut 3
within 20 "the fence of node 3" full_fence 3
writers_go_on 500 1 2
measured "the others went on $(((${EPOCHREALTIME/[.,]/} - cut) / 1000)) ms after the cut"
seen=$(grep -c ^A "$CLUSTER_DIR/load.3")
holds 3 'a["io_allowed"]' && fail "node 3 says that it may do I/O"
sleep 1
[ "$(grep -c ^A "$CLUSTER_DIR/load.3")" = "$seen" ] || fail "node 3 acknowledged writes after it was fenced"
step "it is healed"
unfence 3
cluster_wait_quorum 20 1 2 3 || fail "no quorum"
within 30 "node 3 has a new incarnation" log_has 3 "joins again as incarnation"
writers_go_on 300 1 2 3
fence_proof 3 || fail "requests after the fence"
writers_stop 1 2 3
grep -q "thrown out" "$CLUSTER_DIR/load.3.out" || fail "the writer of node 3 did not end"
! grep -q " 0 times thrown out" "$CLUSTER_DIR/load.3.out" || fail "the writer of node 3 kept its open (R6)"
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
