#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node whose daemon did not run when the array was made learns of it when it joins, and serves. Then it has URIs of
# its own, in another order too: what counts is the UUID that is read back. Then one of its URIs leads to another
# device: it says so and touches nothing there, and then to an older copy of the member. The member is out of use for all
# until that is put right, and whole again then without an operator. Before all that, somebody who creates an array there at
# once, before corosync has said whether there is a quorum, of the members of the array that this node has not heard of, by
# --old-member: it waits until it has.
set -u
# Longer than corosync of node 3 is held still. Machines that stay up have a shorter one, and are told.
token=8000
[ "${CLUSTER_FLAVOUR:-}" = lab ] || export CLUSTER_TOKEN_MS=$token
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

# Longer than the daemons of nodes 1 and 2 are: a slow host takes seconds for a signal.
CLUSTER_CONF='evict = 10s\n'
known=var-lib-ddraid/vol0.array

# uris URI...: the members' as node 3 knows them, in this order; its daemon starts with these.
uris() {
	local uri file=$CLUSTER_DIR/node3/$known
	daemon_stop 3
	sed '/^member = /,$d' "$file" >"$file.new"
	for uri; do
		echo "member = $uri" >>"$file.new"
	done
	sed '1,/^member = /d; /^member = /d' "$file" >>"$file.new"
	mv "$file.new" "$file"
	log_mark 3
	daemon_up 3
}

LATE_NODES=3
array_up 3 1 1
cp "$(exporter_disk 2)" "$CLUSTER_DIR/copy" || fail "a copy of member 1"
ctl 1 set vol0 member_retry=10min >/dev/null || fail "set" # the member comes back in time on a slow host, too
[ $token = "$CLUSTER_TOKEN_MS" ] || token_is $token
writers_start 1 2
step "corosync of node 3 is slow to answer its daemon"
node_signal 3 corosync STOP
daemon_up 3
ctl 3 create other --old-member --order 1 "$(exporter_uri 1)" "$(exporter_uri 2)" "$(exporter_uri 3)" >"$CLUSTER_DIR/other" 2>&1 &
creating=$!
sleep 0.5
kill -0 $creating 2>/dev/null || fail "create does not wait for corosync: $(cat "$CLUSTER_DIR/other")"
for n in 1 2; do
	node_signal $n ddraidd STOP # they tell of vol0 only after the word of quorum
done
node_signal 3 corosync CONT
sleep 1.5
kill -0 $creating 2>/dev/null || fail "create does not wait for the other daemons: $(cat "$CLUSTER_DIR/other")"
for n in 1 2; do
	node_signal $n ddraidd CONT
done
! wait $creating || fail "create took the members of vol0"
grep -q "vol0.*which \(this cluster has\|does not serve here now\)" "$CLUSTER_DIR/other" || fail "create does not say whose these devices are: $(cat "$CLUSTER_DIR/other")"
daemon_stop 3
rm -r "$CLUSTER_DIR"/node3/var-lib-ddraid/*

step "node 3 starts its daemon"
began=${EPOCHREALTIME/[.,]/}
daemon_up 3
within 20 "node 3 serves" active 3
measured "learnt and served $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after the daemon's start"
writers_start 3
writers_stop 1 2 3
compare_on 3

step "node 3 has other URIs, in another order"
uris "$(exporter_uri 3)/" "$(exporter_uri 1)" "$(exporter_uri 2)/"
writers_start 1 2
within 20 "node 3 serves" active 3
writers_start 3
tells 3 '[m["uri"] for m in a["members"]]'
holds 3 "[m['uri'] for m in a['members']] == ['$(exporter_uri 1)', '$(exporter_uri 2)/', '$(exporter_uri 3)/']" ||
	fail "node 3 does not tell what it uses"
holds 1 "[m['uri'] for m in a['members']] == ['$(exporter_uri 1)', '$(exporter_uri 2)', '$(exporter_uri 3)']" ||
	fail "the others' URIs changed: $(tells 1 '[m["uri"] for m in a["members"]]')"
writers_stop 1 2 3
compare_on 1 3

step "an option is set"
told() { # VERSION: it has come to all, and to their disks
	local n
	for n in 1 2 3; do
		grep -qx "version = $1" "$CLUSTER_DIR/node$n/$known" || return 1
	done
}
version=$(sed -n 's/^version = //p' "$CLUSTER_DIR/node1/$known")
for n in 1 3; do
	log_mark $n
	ctl $n set vol0 release_delay ${n}s >/dev/null || fail "set"
	version=$((version + 1))
	within 5 "version $version on all nodes" told $version
	sleep 3 # the URIs are looked at twice a second
	told $version || fail "the version moves on: $(grep -h ^version "$CLUSTER_DIR"/node?/"$known" | tr '\n' ' ')"
	holds 3 "[m['uri'] for m in a['members']] == ['$(exporter_uri 1)', '$(exporter_uri 2)/', '$(exporter_uri 3)/']" ||
		fail "node 3 lost its own URIs: $(tells 3 '[m["uri"] for m in a["members"]]')"
	! log_has $n "is connected" || fail "node $n opened a member a second time"
done
grep -q "^member = $(exporter_uri 3)/$" "$CLUSTER_DIR/node3/$known" || fail "node 3 keeps its own URIs in memory only"
! grep -q "^member = .*/$" "$CLUSTER_DIR/node1/$known" || fail "node 1 took a URI of node 3"

step "one of them leads to another device"
uris "$(exporter_uri 1)" "$(exporter_uri 4)" "$(exporter_uri 3)"
within 15 "node 3 says so" log_has 3 "$(exporter_uri 4) is not member 1: it carries no superblock of this array"
holds 3 'not a["members"][1]["connected"] and "is not member 1" in a["members"][1]["error"]' ||
	fail "the status does not say it: $(ctl 3 status vol0)"
ctl 3 status vol0 | grep "is not member 1" || fail "the status for people does not say it"
writers_start 1 2
within 20 "node 3 serves" active 3
writers_start 3
for n in 1 2 3; do
	holds $n 'a["members"][1]["state"] == "suspect"' || fail "node $n uses a member that node 3 does not reach"
done
[ "$(exporter_requests 4 3 Write)" = 0 ] || fail "node 3 wrote to a device that is no member"
measured "refused: $(tells 3 'a["members"][1]["error"]')"
writers_stop 1 2 3
compare_on 1 3
step "it leads to an older copy of the member"
cp "$CLUSTER_DIR/copy" "$(exporter_disk 4)" || fail "the copy"
writers_start 1 2
uris "$(exporter_uri 1)" "$(exporter_uri 4)" "$(exporter_uri 3)"
within 30 "node 3 says so" log_has 3 "$(exporter_uri 4) is not member 1: it is an older copy of the member"
holds 3 'not a["members"][1]["connected"] and "older copy" in a["members"][1]["error"]' || fail "the status does not say it: $(ctl 3 status vol0)"
within 20 "node 3 serves" active 3
for n in 1 2 3; do
	within 10 "node $n uses no member that node 3 does not reach" holds $n 'a["members"][1]["state"] == "suspect"'
done
epoch=$(tells 1 'a["epoch"]["number"]')
sleep 5
[ "$(tells 1 'a["epoch"]["number"]')" = "$epoch" ] || fail "it is tried again and again: epoch $epoch, then $(tells 1 'a["epoch"]["number"]')"
writers_start 3
writers_stop 1 2 3
compare_on 1 3
step "it is right again"
writers_start 1 2
uris "$(exporter_uri 1)" "$(exporter_uri 2)" "$(exporter_uri 3)"
within 20 "node 3 serves" active 3
for n in 1 2 3; do
	within 20 "node $n: not degraded" holds $n 'not a["degraded"]'
done
writers_start 3
writers_stop 1 2 3
compare_on 1 2 3
[ $token = "$CLUSTER_TOKEN_MS" ] || token_is "$CLUSTER_TOKEN_MS"
finish 1 2 3
