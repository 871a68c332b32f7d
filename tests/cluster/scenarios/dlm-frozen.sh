#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon whose locks are the DLM's stands still (SIGSTOP) in the middle of its writes, and its node lives on. It is evicted and
# fenced, but nothing takes its locks from it: what others want of them waits, and the status says for what. It is
# killed in the end, or goes on and finds out what has become of it: dlm-frozen.sh killed|goes-on.
set -u
how=$1
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up_led_by_1 3 1
writers_start 1 2
writers_start --reconnect 3
writers_go_on 100 1 2 3
fences_forget
log_mark 3
began=${EPOCHREALTIME/[.,]/}
node_stop_daemon 3
step "ddraidd of node 3 is stopped"
within 20 "the fence of node 3" full_fence 3
measured "evicted and fenced after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
unfence 3 # at once: else the DLM's fencing takes its power off, and its locks are free
within 20 "node 1 says what it waits for" holds 1 '"another node does not let go of a lock" in a["lock_waits"]'
holds 1 'a["regions_to_resync"] > 0' || fail "the resync did not wait for the locks of node 3"
case $how in
killed)
	step "it is killed"
	daemon_kill 3
	;;
goes-on)
	step "it goes on"
	node_cont_daemon 3
	within 30 "node 3 has a new incarnation" log_has 3 "joins again as incarnation"
	;;
esac
writers_go_on 100 1 2
[ "$how" != killed ] || { daemon_start 3; within 30 "node 3 serves" active 3; }
writers_go_on 100 3
fence_proof 3 || fail "requests after the fence"
writers_stop 1 2 3
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
