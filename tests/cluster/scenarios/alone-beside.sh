#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Somebody sets a node to `cluster = alone`, while the cluster uses the array. That node is refused, whatever it is told:
# it neither writes nor fences. The cluster loses a member meanwhile, so that its map and that node's would part. Then
# the node is put right, all start anew, and nothing that was acknowledged is lost.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

refused() { # N WORDS
	[ "$(tells "$1" 'a["state"]')" = refused ] && ctl "$1" status vol0 | grep -q "$2"
}

array_up 3 1
writers_start 1 2
daemon_stop 3
conf=$CLUSTER_DIR/node3/etc-ddraid/ddraid.conf
sed -i 's/^\[cluster\]/[cluster]\ncluster = alone/' "$conf"
daemon_up 3
step "node 3 is alone"
within 20 "node 3 is refused" refused 3 "belongs to cluster"
ctl 3 start vol0 --take-over >"$CLUSTER_DIR/start" 2>&1 && fail "--take-over on a daemon alone"
grep -q "say --alone" "$CLUSTER_DIR/start" || fail "what to say instead: $(cat "$CLUSTER_DIR/start")"
ctl 3 start vol0 --alone --timeout 3 >"$CLUSTER_DIR/start" 2>&1 && fail "--alone beside the cluster"
within 20 "node 3 is told who uses the array" refused 3 "in use by node [12] (.*) of cluster"
step "the cluster's map goes on"
ctl 1 fail vol0 0 || fail "fail"
writers_go_on 300 1 2
refused 3 "in use by node" || fail "node 3: $(ctl 3 status vol0)"
[ ! -s "$CLUSTER_DIR/fences" ] || fail "somebody was fenced: $(cat "$CLUSTER_DIR/fences")"
writers_stop 1 2
at_once daemon_stop 1 2 3
sed -i '/^cluster = alone/d' "$conf"
at_once daemon_up 1 2 3
serve 1 2 3
compare_on 3
ctl 1 add vol0 0 "$(exporter_uri "${ARRAY_MEMBERS[0]}")" --old-member --wait --timeout 40 >"$CLUSTER_DIR/add" 2>&1 ||
	fail "add: $(cat "$CLUSTER_DIR/add")"
finish 1 2 3
