#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two nodes, of which one alone has quorum (corosync's two_node). With a fence that is only a wait that is refused: both would
# go on when they lose sight of each other. With a fence command one is cut off, and then lost, and the other goes on.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 2 1
step "a wait is no fence for two nodes"
ctl 1 stop vol0 --all-nodes || fail "stop"
conf=$CLUSTER_DIR/node1/etc-ddraid/ddraid.conf
cp "$conf" "$CLUSTER_DIR/conf"
daemon_stop 1
sed -i '/^fence/d' "$conf"
daemon_up 1
ctl 1 start vol0 >"$CLUSTER_DIR/start" 2>&1 && fail "it started"
grep -q "two_node" "$CLUSTER_DIR/start" || fail "start says $(cat "$CLUSTER_DIR/start")"
daemon_stop 1
cp "$CLUSTER_DIR/conf" "$conf"
# The test's fence knows no loser: only the half that is to go on has one that works in the end.
printf '#!/bin/sh\n[ ! -e %s/no-fence ] || exit 1\nexec %s/fence "$@"\n' "$CLUSTER_DIR" "$CLUSTER_DIR" >"$CLUSTER_DIR/fence-2"
chmod +x "$CLUSTER_DIR/fence-2"
daemon_stop 2
sed -i "s|^fence_command.*|fence_command = $CLUSTER_DIR/fence-2|" "$CLUSTER_DIR/node2/etc-ddraid/ddraid.conf"
daemon_up 1
daemon_up 2
ctl 1 start vol0 --all-nodes || fail "start"
serve 1 2

writers_start 1 2
step "node 2 is cut off"
killed=${EPOCHREALTIME/[.,]/}
# In the lab their dlm_controld have the other one's power cut as well, both at once.
touch "$CLUSTER_DIR/no-fence" "$CLUSTER_DIR/power-broken-2"
node_cut 2
within 20 "the fence of node 2" full_fence 2
writers_go_on 300 1
measured "the other went on $(((${EPOCHREALTIME/[.,]/} - killed) / 1000)) ms after the cut"
fence_proof 2 || fail "requests after the fence"
step "node 2 is switched off"
node_kill 2
writers_stop 1
compare_on 1
rm "$CLUSTER_DIR/no-fence" "$CLUSTER_DIR/power-broken-2"
node_back 2
serve 1 2
compare_on 2

step "both are switched off, and one stays off: the status names both steps"
node_kill 1
node_kill 2
node_back 1
says() { # WORDS
	ctl 1 status vol0 | grep -qe "$1"
}
within 20 "the status names what gives it quorum" says 'corosync-cmapctl -s quorum.cancel_wait_for_all u8 1'
says '--alone' || fail "the second step is missing: $(ctl 1 status vol0)"
node_exec 1 corosync-cmapctl -s quorum.cancel_wait_for_all u8 1 || fail "cancel_wait_for_all"
within 20 "the status says --alone, with quorum" says 'if that node is off'
active 1 && fail "it began alone"
ctl 1 start vol0 --stale --timeout 2 >"$CLUSTER_DIR/start" 2>&1 && fail "--stale is enough"
ctl 1 start vol0 --alone --wait --timeout 40 >"$CLUSTER_DIR/start" 2>&1 || fail "start --alone: $(cat "$CLUSTER_DIR/start")"
serve 1
compare_on 1

step "a token time-out that is changed while it runs"
says 'token time-out' && fail "it warns already"
sed -i "s/^\ttoken: .*/\ttoken: 7000/" "$CLUSTER_DIR/node1/etc-corosync/corosync.conf"
node_exec 1 corosync-cfgtool -R || fail "reload"
within 20 "the status warns of it" says "WARNING.*corosync's token time-out is 7000 ms now"
finish 1
