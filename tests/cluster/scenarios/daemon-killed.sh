#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon of a node dies in the middle of its writes, while the node and its corosync live. Started again at once, it
# fences its own last life and is back: no other node cuts it off, its clients reconnect. The same with the daemon
# that leads. Then one dies for good: the others wait for restart_wait, and fence the node.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
writers_start --reconnect 1 2 3
for n in 2 1; do
	fences_forget
	log_mark $n
	step "ddraidd of node $n is killed and starts again"
	killed=${EPOCHREALTIME/[.,]/}
	daemon_kill $n
	daemon_start $n
	within 20 "node $n serves again" active $n
	measured "node $n served again after $(((${EPOCHREALTIME/[.,]/} - killed) / 1000)) ms"
	writers_go_on 300 1 2 3
	grep -q "answered $n .* self" "$CLUSTER_DIR/fence.log" || fail "node $n did not fence its own last life"
	for m in 1 2 3; do
		! full_fence $m || fail "node $m was cut off: $(cat "$CLUSTER_DIR/fence.log")"
	done
	fence_proof $n || fail "requests after the fence"
done

fences_forget
step "ddraidd of node 3 is killed for good"
killed=${EPOCHREALTIME/[.,]/}
node_signal 3 ddraidd KILL
within 20 "the fence of node 3" full_fence 3
writers_go_on 300 1 2
measured "without a restart, the others went on $(((${EPOCHREALTIME/[.,]/} - killed) / 1000)) ms after its end"
fence_proof 3 || fail "requests after the fence"
writers_stop 1 2
serve 1 2
compare_on 1 2
finish 1 2
