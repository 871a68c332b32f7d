#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All nodes and all machines of members lose power at once in the middle of writes, and the members what was in their caches. What
# a flush had been answered for, and what had FUA, is there when all are back, and the parity is right everywhere; in namespaces twice.
set -u
LOAD_SLOWER=30 # in the lab: what is under way at the fault is what this is about
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster_volatile || { echo "skipped: no nbdkit-plugin.h (tools/deps)"; exit 77; }
export EXPORTER_VOLATILE=yes
LOST=(--durable)

rounds=2 counted=0
[ "$CLUSTER_FLAVOUR" != lab ] || rounds=1 # whose machines take their time to boot

array_up 3 1
for ((round = 1; round <= 5 && counted < rounds; round++)); do
	writers_start 1 2 3
	step "all is powered off"
	for n in 1 2 3; do
		cluster_port_set "n$n" down
	done
	lost=0
	for i in "${ARRAY_MEMBERS[@]}"; do
		sectors=$(exporter_power_cut "$i") || fail "exporter $i"
		lost=$((lost + sectors))
	done
	for n in 1 2 3; do
		node_kill $n
	done
	writers_stop
	[ $lost = 0 ] || counted=$((counted + 1)) # it may be that all was flushed in that moment
	measured "$lost sectors were lost"
	for i in "${ARRAY_MEMBERS[@]}"; do
		exporter_restart "$i" || fail "exporter $i does not come back"
	done
	nodes_power 1 2 3
	for n in 1 2 3; do
		daemon_start $n
	done
	serve 1 2 3
	step "all serve again"
	compare_on 1 2 3
	mkdir "$CLUSTER_DIR/round$round"
	mv "$CLUSTER_DIR"/load.[0-9] "$CLUSTER_DIR/round$round/"
	[ $counted = $rounds ] || nbd_do 1 "h.zero(3072 * 4096, 0, nbd.CMD_FLAG_FUA)" || fail "node 1 can't write"
done
[ $counted = $rounds ] || fail "the caches had nothing to lose"
members_check || fail "the members: $(raw 'r["problems"]')"
finish 1 2 3
