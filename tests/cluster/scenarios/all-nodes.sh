#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is said on one node for all. A setting counts on the others at once, while they serve. `stop --all-nodes` cuts
# nobody off on another node: it is refused while somebody has the array open there, and names the node. Somebody
# who opens it in the very moment goes on there, whatever the other nodes do. With --disconnect all is stopped.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

# user_start N: opens the array there and reads every 50 ms, until told to end; a read that fails is its end.
declare -A user=()
user_start() {
	rm -f "$CLUSTER_DIR/user.$1".*
	nbd_do "$1" "import os, time
open('$CLUSTER_DIR/user.$1.open', 'w')
while not os.path.exists('$CLUSTER_DIR/user.$1.stop'):
    h.pread(4096, 0)
    time.sleep(0.05)
open('$CLUSTER_DIR/user.$1.well', 'w')" >"$CLUSTER_DIR/user.$1.out" 2>&1 &
	user[$1]=$!
	within 10 "a user on node $1" test -e "$CLUSTER_DIR/user.$1.open"
}
user_stop() { # it has read all the time
	touch "$CLUSTER_DIR/user.$1.stop"
	wait "${user[$1]}"
	[ -e "$CLUSTER_DIR/user.$1.well" ] || fail "the user of node $1 was cut off: $(tail -n 1 "$CLUSTER_DIR/user.$1.out")"
}
refused() { # WORDS
	ctl 1 stop vol0 --all-nodes >"$CLUSTER_DIR/stop" 2>&1
	[ $? = 6 ] || fail "stop was not refused: $(cat "$CLUSTER_DIR/stop")"
	grep -qE -- "$1" "$CLUSTER_DIR/stop" || fail "not said: $1, but $(cat "$CLUSTER_DIR/stop")"
}
stopped() {
	holds "$1" 'a["state"] == "stopped"'
}

array_up 3 1
step "the release delay is set on node 3"
ctl 3 set vol0 release_delay=10min >/dev/null || fail "set"
within 5 "node 1 knows it" grep -qx "option release_delay = 600000ms" "$CLUSTER_DIR/node1/var-lib-ddraid/vol0.array"
writers_start 1
writers_stop 1
sleep 2 # twice the delay that it had
holds 1 'a["regions_dirty"] > 0' || fail "node 1 goes by the old release delay"
ctl 3 set vol0 release_delay=100ms >/dev/null || fail "set"
within 5 "node 1 goes by the new release delay" holds 1 'a["regions_dirty"] == 0'
step "two other nodes use it"
user_start 2
user_start 3
sleep 1 # until they have told it
refused 'in use on node 2 \(node2\): 1 client, node 3 \(node3\): 1 client; close what uses it, or --disconnect'
user_stop 3
refused 'in use on node 2 \(node2\): 1 client; close'
for n in 1 2 3; do
	active $n || fail "node $n stopped although that was refused"
done
user_stop 2

step "node 2 begins to use it in the same moment"
for ((i = 0; i < 30; i++)); do
	sleep 1 # nobody uses it, and all know
	log_mark 2
	user_start 2
	refused 'node 2 \(node2\): 1 client'
	! grep -q "goes on where it was opened meanwhile" "$CLUSTER_DIR/stop" || break
	user_stop 2
done
[ $i -lt 30 ] || fail "the moment was not met"
measured "the moment was met after $i others: $(tail -n 1 "$CLUSTER_DIR/stop")"
for n in 1 3; do
	within 10 "node $n stops" stopped $n
done
log_has 2 "not stopped here, 1 client has it open" || fail "node 2 does not say that it goes on"
ctl 2 status vol0 | grep -q "WARNING.*it was to be stopped" || fail "the status of node 2 does not say it"
user_stop 2
user_start 2
step "by force"
ctl 1 start vol0 >/dev/null || fail "start"
ctl 1 stop vol0 --all-nodes --disconnect >"$CLUSTER_DIR/stop" 2>&1 || fail "stop --disconnect: $(cat "$CLUSTER_DIR/stop")"
for n in 1 2 3; do
	stopped $n || fail "node $n goes on"
done
touch "$CLUSTER_DIR/user.2.stop.now"
wait "${user[2]}" && fail "the user of node 2 read on"

step "and all start again"
ctl 2 start vol0 --all-nodes >/dev/null || fail "start"
serve 1 2 3
compare_on 2
finish 1 2 3
