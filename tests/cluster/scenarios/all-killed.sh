#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All nodes lose power at once in the middle of their writes. They come back and start the array from what each of
# them has stored; every acknowledged byte is there.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
writers_start 1 2 3
step "all nodes are powered off"
for n in 1 2 3; do
	cluster_port_set "n$n" down
done
for n in 1 2 3; do
	node_kill $n
done
writers_stop
nodes_power 1 2 3
began=${EPOCHREALTIME/[.,]/}
for n in 1 2 3; do
	daemon_start $n
done
for n in 1 2 3; do
	within 30 "node $n serves" active $n
done
measured "served again $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after the daemons' start"
step "all serve again"
compare_on 1 2 3
members_check || fail "the members: $(raw 'r["problems"]')"
serve 1 2 3
writers_start 1 2 3
writers_stop 1 2 3
compare_on 1 2 3
finish 1 2 3
