#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Members that were left behind. One that failed is offered at the next start: it is not believed. Then only stale ones
# can be reached, which agree with each other: the array refuses to start and says why, and
# starts by itself when the right ones are back.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

daemons_stop() {
	local n
	at_once daemon_stop 1 2 3
}

daemons_start() {
	local n
	for n in 1 2 3; do
		daemon_start $n
	done
	for n in 1 2 3; do
		within 15 "ddraidd of node $n answers" answers $n
	done
}

array_up 3 1
writers_start 1 2 3
step "member 1 is left behind"
exporter_cut 2
ctl 1 fail vol0 1 || fail "fail"
writers_go_on 500 1 2 3
writers_stop 1 2 3
exporter_heal 2
daemons_stop
cp --sparse=always "$(exporter_disk 1)" "$CLUSTER_DIR/old1"
cp --sparse=always "$(exporter_disk 2)" "$CLUSTER_DIR/old2"
cp --sparse=always "$(exporter_disk 3)" "$CLUSTER_DIR/old3"
daemons_start
step "it is offered at the start"
for n in 1 2 3; do
	within 20 "node $n serves" active $n
	holds $n 'a["degraded"] and a["members"][1]["state"] == "faulty" and a["members"][1]["connected"]' ||
		fail "the stale member is believed: $(tells $n 'a["members"]')"
done
compare_on 1 2 3
ctl 2 fail vol0 1 >/dev/null 2>&1
writers_start 1 2 3
writers_stop 1 2 3
daemons_stop

step "only stale members can be reached"
for i in 1 2 3; do
	exporter_kill $i
	mv "$(exporter_disk $i)" "$CLUSTER_DIR/new$i"
	cp --sparse=always "$CLUSTER_DIR/old$i" "$(exporter_disk $i)"
	exporter_restart $i || fail "exporter $i"
done
daemons_start
within 25 "node 1 refuses" holds 1 'a["state"] == "refused"'
measured "refused: $(tells 1 'a["waits"]["for"]')"
holds 1 '"stale" in a["waits"]["for"]' || fail "it does not say why: $(tells 1 'a["waits"]')"
for n in 2 3; do
	! active $n || fail "node $n serves stale data"
done
step "the right ones are back"
for i in 1 2 3; do
	exporter_kill $i
	cp --sparse=always "$CLUSTER_DIR/new$i" "$(exporter_disk $i)"
	exporter_restart $i || fail "exporter $i"
done
for n in 1 2 3; do
	within 30 "node $n serves" active $n
done
compare_on 1 2 3
finish 1 2 3
