#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# There is no fence command, only a wait (zombie_timeout), and a node's cable is pulled while all write. Its kernel has
# requests that it would send for minutes. It must not: when the node is plugged in again, the others have
# recovered its regions long ago. So no request comes in on a connection from before the cut.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# dlm_controld would cut this machine's power, and nothing of it would wake up (dlm-fence-cut does that).
LAB_DLM=no

# Longer than request_timeout, or the daemon does not start.
FENCE_CONF='fence = zombie_timeout\nzombie_timeout = 7s\n[members]\nrequest_timeout = 3s'

# What came in at the exporters on the connections that node 3 had at the cut.
old_requests() {
	cat "${connections[@]}" | grep -c " id="
}

array_up 3 1
writers_start 1 2
writers_start --reconnect 3
log_mark 3
connections=("$CLUSTER_DIR"/exporter*/req/"$(node_address 3)".*.log)
step "node 3 is cut off"
cut=${EPOCHREALTIME/[.,]/}
node_cut 3
within 20 "the time is over" log_has 1 "fence of node 3.*zombie_timeout is over"
writers_go_on 500 1 2
measured "the others went on $(((${EPOCHREALTIME/[.,]/} - cut) / 1000)) ms after the cut"
seen=$(old_requests)
step "it is healed"
node_heal 3
cluster_wait_quorum 20 1 2 3 || fail "no quorum"
within 30 "node 3 has a new incarnation" log_has 3 "joins again as incarnation"
writers_go_on 300 1 2 3
late=$(($(old_requests) - seen))
[ $late = 0 ] || fail "$late requests of node 3 came in on connections from before the cut"
measured "${#connections[@]} connections of before, nothing on them after $seen requests"
writers_stop 1 2 3
! grep -q " 0 times thrown out" "$CLUSTER_DIR/load.3.out" || fail "the writer of node 3 kept its open (R6)"
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
