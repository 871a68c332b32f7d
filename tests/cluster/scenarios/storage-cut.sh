#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The node that leads loses its network to the exporters, and keeps the one to the other nodes, while all write. It is
# removed and the others go on (R7). A member may be out of the map by then, because that node could not reach it; so what
# it had in flight may be garbage, as when a node dies while a member is missing, until it is written
# again. There is no fence but a wait, so it comes back by itself, and reaches no member: the
# others serve nevertheless, with all members. Then all daemons are killed and started again: the lowest node, which is
# still cut off, is not in the way of those that can assemble the array. Mended, it serves.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

FENCE_CONF='fence = zombie_timeout\nzombie_timeout = 4s\n[members]\nrequest_timeout = 2s\n[cluster]\nevict = 2s'

storage_cut() {
	node_exec "$1" ip route add blackhole 10.77.1.0/24 || fail "node $1 has such a route already"
}
storage_heal() {
	node_exec "$1" ip route del blackhole 10.77.1.0/24 || fail "node $1 was not cut off"
}
waits_aside() {
	holds 1 'a["state"] == "joining" and "this node reaches fewer" in a["waits"]["for"]'
}
compare_but_flying() {
	local n
	for n; do
		node_use "$n" timeout -k 10 "$(patience 30)" /usr/bin/python3 "$SCENARIO_LIB/load.py" check "$(array_uri "$n")" --lost "$CLUSTER_DIR/load.1" \
			"$CLUSTER_DIR"/load.[0-9] || fail "wrong data, read through node $n"
	done
}
whole() {
	holds 2 'not a["degraded"] and all(m["state"] == "in-sync" for m in a["members"])'
}

array_up_led_by_1 3 1
writers_start 2 3
writers_start --reconnect 1
log_mark 1
step "node 1 is cut off from the exporters"
cut=${EPOCHREALTIME/[.,]/}
storage_cut 1
within 20 "node 1 is removed" log_has 1 "joins again as incarnation"
writers_go_on 500 2 3
measured "the others went on $(((${EPOCHREALTIME/[.,]/} - cut) / 1000)) ms after the cut"
within 10 "node 1 waits for members" waits_aside
within 10 "all members are in sync" whole
writers_go_on 1000 2 3
# Where this took long node 1 has just joined anew: no member lets it in, which a fenced life would see, too.
within 10 "node 1 still waits for members" waits_aside
whole || fail "node 1 is in the way of the others"
step "all daemons are killed, and started again"
for n in 1 2 3; do
	node_signal $n ddraidd KILL
done
writers_stop
began=${EPOCHREALTIME/[.,]/}
for n in 1 2 3; do
	daemon_start $n
done
for n in 2 3; do
	within 20 "node $n serves" active $n
done
measured "without it they assembled the array $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after the daemons' start"
compare_but_flying 2 3
whole || fail "a member is not in sync"
step "node 1 reaches the exporters again"
began=${EPOCHREALTIME/[.,]/}
storage_heal 1
within 20 "node 1 serves" active 1
measured "it served $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after that"
compare_but_flying 1
writers_start 2 3
LOAD_RATE=$ROUND_RATE writers_start 1
writers_go_round 1
writers_stop 1 2 3
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
