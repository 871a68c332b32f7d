#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All daemons, with two arrays each, are stopped at the same moment, and started again, some times: each ends before long, without a
# fence, and leaves its lock spaces, if it had any. (Two that leave the kernel's DLM at once may wait three minutes for each other.)
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
uris=()
for i in 4 5 6; do
	member_up $i
	uris+=("$(exporter_uri $i)")
done
ctl 1 create vol1 --order 1 "${uris[@]}" >"$CLUSTER_DIR/create" 2>&1 || fail "create: $(cat "$CLUSTER_DIR/create")"
second() { # N EXPRESSION, in Python, of vol1 as a
	ARRAY=vol1 holds "$@"
}
both_serve() {
	local n
	serve 1 2 3
	for n in 1 2 3; do
		within 30 "node $n serves vol1" second $n 'a["state"] == "active" and a["io_allowed"]'
	done
}
both_serve
second 1 'a["lock_backend"] == "'"$(tells 1 'a["lock_backend"]')"'"' || fail "the arrays' locks are of two kinds"
step "two arrays"
longest=0
for ((i = 1; i <= 3; i++)); do
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
	both_serve
	for n in 1 2 3; do
		! full_fence $n || fail "node $n was fenced: $(cat "$CLUSTER_DIR/fence.log")"
	done
done
measured "the longest stop of all three took $longest ms"
ctl 1 stop vol1 --all-nodes >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
finish 1 2 3
