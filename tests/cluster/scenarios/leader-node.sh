#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two nodes die in one take-over: leader-node.sh STEP[:COUNT]. Five nodes write. One loses power; the daemon of the
# leader dies where it takes that one over, at STEP, and then its node loses power, too: it does not come back to
# finish what it began. A third node does, for both, with three of five. The steps are those of
# daemon/runtime/failpoint.c.
set -u
FAILPOINTS=yes
# Five emulated machines that boot at once leave corosync without a processor for seconds.
[ "${CLUSTER_FLAVOUR:-}" != lab ] || export CLUSTER_TOKEN_MS=8000
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
export LOAD_RATE=200

at=$1

array_up 5 1
writers_start 1 2 3 4 5
fences_forget
# Each round makes the lowest of those that serve the leader.
echo "${at/:/ }" >"$CLUSTER_DIR/node1/failpoint"
step "node 5 is powered off"
killed=${EPOCHREALTIME/[.,]/}
node_kill 5
within 20 "node 1 comes to $at" daemon_gone 1
node_kill 1
step "node 1 died at $at, and is powered off"
for n in 2 3 4; do
	within 25 "node $n serves" active $n
done
holds 2 'a["leading"]' || fail "node 2 does not lead"
writers_go_on 100 2 3 4
measured "$at: three nodes went on $(((${EPOCHREALTIME/[.,]/} - killed) / 1000)) ms after the first power cut"
writers_stop 2 3 4
serve 2 3 4
for n in 1 5; do
	full_fence $n || fail "node $n was not fenced"
	fence_proof $n || fail "requests of node $n after its fence"
	holds 2 "[r for r in a['recoveries'] if r['node'] == $n][-1]['recovered_at']" ||
		fail "node $n is not recovered: $(tells 2 'a["recoveries"]')"
done
compare_on 2 3 4
step "both come back"
for n in 1 5; do
	node_start $n || fail "node $n does not start"
	daemon_start $n
done
serve 1 2 3 4 5
writers_start 1 2 3 4 5
writers_stop 1 2 3 4 5
compare_on 1 5
finish 1 2 3 4 5
