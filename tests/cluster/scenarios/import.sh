#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All nodes are installed anew: their power fails within the writes, and their state directories are gone. One of them imports
# the array by its members, and all serve it with all that was acknowledged. Then the same with one member missing.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

installed_anew() {
	local n
	for n in 1 2 3; do
		node_kill $n
	done
	writers_stop
	for n in 1 2 3; do
		rm -rf "$CLUSTER_DIR/node$n/var-lib-ddraid"/*
	done
	nodes_power 1 2 3
	at_once daemon_up 1 2 3
	for n in 1 2 3; do
		ctl $n status | grep -q "no arrays are known here" || fail "node $n knows an array: $(ctl $n status)"
	done
}
uris() { # MEMBER...: in another order than they were created in
	local i
	uris=()
	for i; do
		uris=("$(exporter_uri "${ARRAY_MEMBERS[$i]}")" "${uris[@]}")
	done
}

array_up 3 1
uuid=$(tells 1 'a["uuid"]')
writers_start 1 2 3
writers_go_on 300 1 2 3
writers_stop 1 2 3
writers_start 1 2 3
step "all nodes are installed anew, in the midst of their writes"
installed_anew
uris 0 1 2
ctl 2 import "${uris[@]}" >"$CLUSTER_DIR/import" 2>&1 || fail "import: $(cat "$CLUSTER_DIR/import")"
grep -q "runs on 3 nodes" "$CLUSTER_DIR/import" || fail "not on all nodes: $(cat "$CLUSTER_DIR/import")"
serve 1 2 3
[ "$(tells 3 'a["uuid"]')" = "$uuid" ] || fail "it is another array"
compare_on 1 2 3
writers_start 1 2 3
writers_go_on 300 1 2 3
writers_stop 1 2 3
step "once more, and a member is missing"
for n in 1 2 3; do
	daemon_stop $n
done
exporter_cut "${ARRAY_MEMBERS[1]}"
installed_anew
uris 0 1 2
! ctl 1 import "${uris[@]}" >"$CLUSTER_DIR/import" 2>&1 || fail "what can't be reached is not refused"
grep -q -- "--degraded" "$CLUSTER_DIR/import" || fail "it does not say what to do: $(cat "$CLUSTER_DIR/import")"
ctl 3 import --degraded "${uris[@]}" >"$CLUSTER_DIR/import" 2>&1 || fail "import: $(cat "$CLUSTER_DIR/import")"
serve 1 2 3
compare_on 1 2 3
writers_start 1 2 3
writers_go_on 300 1 2 3
step "it is back"
exporter_heal "${ARRAY_MEMBERS[1]}"
within 30 "node 1 reaches it" holds 1 'a["members"][1]["connected"]'
# It was away for longer than member_retry, or just not.
ctl 1 re-add vol0 1 >"$CLUSTER_DIR/re-add" 2>&1 || holds 1 'a["members"][1]["state"] != "missing"' || fail "re-add: $(cat "$CLUSTER_DIR/re-add")"
within 30 "node 1 has all members" holds 1 'all(m["state"] == "in-sync" for m in a["members"])'
writers_stop 1 2 3
finish 1 2 3
