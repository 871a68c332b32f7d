#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node dies in the midst of its writes and is away while its array is forgotten and another one gets its name and its
# members. When it comes back, the old array does not: neither there, nor by its word on the others, nor after a restart of all.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

is_new() {
	[ "$(tells "$1" 'a["uuid"]')" = "$new" ]
}

array_up 3 1
old=$(tells 1 'a["uuid"]')
[ "$(tells 3 'a["uuid"]')" = "$old" ] || fail "node 3 has another vol0"
writers_start 1 2 3
node_kill 3
within 20 "the fence of node 3" full_fence 3
writers_go_on 300 1 2
writers_stop 1 2
fence_proof 3 || fail "requests after the fence"
serve 1 2
compare_on 1 2
step "it is forgotten without node 3"
ctl 2 stop vol0 >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
ctl 1 stop vol0 --all-nodes >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
ctl 2 forget vol0 >"$CLUSTER_DIR/forget" 2>&1 || fail "forget: $(cat "$CLUSTER_DIR/forget")"
for n in 1 2; do
	within 10 "node $n has no array" test ! -e "$CLUSTER_DIR/node$n/var-lib-ddraid/vol0.array"
done
uris=()
for i in "${ARRAY_MEMBERS[@]}"; do
	uris+=("$(exporter_uri "$i")")
done
ctl 1 create vol0 --order 1 --old-member "${uris[@]}" >"$CLUSTER_DIR/create" 2>&1 || fail "$(cat "$CLUSTER_DIR/create")"
serve 1 2
# What it holds of the old one, nobody has promised.
rm "$CLUSTER_DIR"/load.*
nbd_do 1 'for at in range(0, 12 << 20, 1 << 20): h.zero(1 << 20, at)' || fail "it can't be written"
new=$(tells 1 'a["uuid"]')
[ "$new" != "$old" ] || fail "the new array has the old UUID"
LOAD_RATE=$ROUND_RATE writers_start 1 2
step "node 3 comes back"
node_back 3
within 30 "node 3 serves" active 3
for n in 1 2 3; do
	is_new $n || fail "node $n has the forgotten array"
done
log_has 3 "another node has forgotten it" || fail "node 3 did not give its copy up"
LOAD_RATE=$ROUND_RATE writers_start 3
writers_go_round 1 2 3
writers_stop 1 2 3
compare_on 1 2 3
step "all start again"
for n in 1 2 3; do
	daemon_stop $n
done
for n in 1 2 3; do
	daemon_start $n
done
serve 1 2 3
for n in 1 2 3; do
	is_new $n || fail "node $n has the forgotten array after a restart"
done
compare_on 3 1
finish 1 2 3
