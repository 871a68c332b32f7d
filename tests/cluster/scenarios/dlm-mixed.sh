#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Not every node has the kernel's DLM (lab only): one without it waits, says for what, and disturbs nobody; an array that is made
# meanwhile keeps its locks over corosync, and is not made at all when the DLM is insisted on. So does one whose DLM
# has no fencing. Then the node gets it.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

LATE_NODES=3
array_up 3 1 3
node_signal 3 dlm_controld TERM
within 10 "the end of dlm_controld on node 3" eval '! node_alive 3 dlm_controld'
daemon_up 3
within 15 "node 3 says what it lacks" holds 3 '"dlm_controld does not run on this node" in a["lock_waits"]'
ctl 3 status vol0 | grep -E "waits for +dlm_controld does not run on this node; start it: systemctl start dlm" || fail "the status does not say it: $(ctl 3 status vol0)"
writers_start 1 2
writers_go_on 100 1 2
! active 3 || fail "node 3 serves"

uris=("$(exporter_uri 4)" "$(exporter_uri 5)" "$(exporter_uri 6)")
! ctl 1 create vol1 --order 1 --set locks=dlm "${uris[@]}" >"$CLUSTER_DIR/refused" 2>&1 || fail "created with the DLM's locks"
grep -q "node 3 has no dlm_controld" "$CLUSTER_DIR/refused" || fail "create says $(cat "$CLUSTER_DIR/refused")"
ctl 1 create vol1 --order 1 "${uris[@]}" >"$CLUSTER_DIR/create" 2>&1 || fail "create: $(cat "$CLUSTER_DIR/create")"
vol1() { # N: it serves there
	ARRAY=vol1 holds "$1" 'a["state"] == "active" and a["lock_backend"] == "cpg"'
}
for n in 1 2 3; do
	within 15 "node $n serves vol1, with locks over corosync" vol1 $n
done
step "an array beside it has its locks over corosync"

node_spawn 3 dlm_controld dlm_controld --foreground --enable_fencing 0
within 15 "node 3 says that nobody is fenced" holds 3 '"enable_fencing=0" in a["lock_waits"]'
! active 3 || fail "node 3 serves without fencing"
node_signal 3 dlm_controld TERM
within 10 "the end of dlm_controld on node 3" eval '! node_alive 3 dlm_controld'
step "without fencing, it does not join"

lab_dlm_start 3
serve 1 2 3
holds 3 'a["lock_backend"] == "dlm"' || fail "the locks are not the DLM's"
step "node 3 has the DLM, and serves"
writers_start 3
writers_go_on 100 1 2 3
writers_stop 1 2 3
compare_on 1 2 3
ctl 2 stop vol1 --all-nodes || fail "stop of vol1"
finish 1 2 3
