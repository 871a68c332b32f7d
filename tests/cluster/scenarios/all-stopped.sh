#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All daemons are stopped at the same moment, and started again, some times: each ends before long, without a fence, and leaves
# its lock space, if it had one. (Two that leave the kernel's DLM at once may wait three minutes for each other.)
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
longest=0
for ((i = 1; i <= 5; i++)); do
	fences_forget
	stopped=${EPOCHREALTIME/[.,]/}
	for n in 1 2 3; do
		node_signal $n ddraidd TERM
	done
	for n in 1 2 3; do
		within 20 "the end of ddraidd on node $n" daemon_gone $n
		[ "$CLUSTER_FLAVOUR" != lab ] || ! node_exec $n sh -c 'ls -d /sys/kernel/dlm/ddraid-* >/dev/null 2>&1' ||
			fail "node $n has not left its lock space"
	done
	took=$(((${EPOCHREALTIME/[.,]/} - stopped) / 1000))
	[ "$took" -le "$longest" ] || longest=$took
	for n in 1 2 3; do
		daemon_start $n
	done
	serve 1 2 3
	for n in 1 2 3; do
		! full_fence $n || fail "node $n was fenced: $(cat "$CLUSTER_DIR/fence.log")"
	done
done
measured "the longest stop of all three took $longest ms"
finish 1 2 3
