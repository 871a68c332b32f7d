#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon of node 1, which leads, is stopped in the middle of its writes for longer than its limit, while
# corosync lives. It is evicted and fenced; when it goes on, it does nothing more under its old name.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# The DLM keeps the locks of a daemon that is stopped until it ends (doc/locking.md).
LAB_DLM=no

array_up_led_by_1 3 1
writers_start 2 3
writers_start --reconnect 1
fences_forget
log_mark 1
step "ddraidd of node 1 is stopped"
began=${EPOCHREALTIME/[.,]/}
node_stop_daemon 1
within 20 "the fence of node 1" full_fence 1
measured "evicted and fenced after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
writers_go_on 500 2 3
step "it goes on"
node_cont_daemon 1
sleep 1
unfence 1
cluster_wait_quorum 20 1 2 3 || fail "no quorum"
within 30 "node 1 has a new incarnation" log_has 1 "joins again as incarnation"
writers_go_on 300 1 2 3
fence_proof 1 || fail "requests after the fence"
writers_stop 1 2 3
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
