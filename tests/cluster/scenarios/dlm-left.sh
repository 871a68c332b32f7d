#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# While all nodes write, and a rebuild takes one region after the other for itself, somebody makes node 3 leave the lock space of the
# array by hand. The kernel gives its locks to the others, and tells nothing to the daemon. That must find out before it tells any
# node that a grant counts: it gives up, is evicted and fenced as if its locks had been lost in any other way, and joins again.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

# The kernel tells the masters of node 3's locks, to which it is not connected any more, and says so.
LEFT_BY_HAND=dlm

array_up_led_by_1 3 1
space=$(node_exec 3 ls /sys/kernel/dlm | grep '^ddraid-') || fail "no lock space on node 3"
writers_start 1 2
writers_start --reconnect 3
ctl 1 fail vol0 2 >/dev/null || fail "fail"
within 10 "member 2 has left" holds 1 "a['members'][2]['state'] == 'faulty'"
writers_go_on 100 1 2 3
fences_forget
log_mark 3
began=${EPOCHREALTIME/[.,]/}
node_exec 3 dlm_tool leave "$space" >"$CLUSTER_DIR/leave" 2>&1 &
leave=$!
ctl 1 add vol0 2 "$(exporter_uri 3)" --old-member >"$CLUSTER_DIR/add" 2>&1 &
add=$!
step "node 3 is made to leave the lock space, and a rebuild begins"
within 10 "ddraidd of node 3 knows" log_has 3 "made this node leave the lock space"
within 10 "the fence of node 3" full_fence 3
measured "evicted and fenced after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
unfence 3 # at once: else the DLM's fencing takes its power off
wait $add || fail "add: $(cat "$CLUSTER_DIR/add")"
within 30 "dlm_tool has left" eval "! kill -0 $leave 2>/dev/null"
within 30 "node 3 has a new incarnation" log_has 3 "joins again as incarnation"
writers_go_on 100 1 2 3
fence_proof 3 || fail "requests after the fence"
writers_stop 1 2 3
within 40 "the rebuild is done" holds 1 'not a["degraded"]'
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
