#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The machine of a member loses its power while all nodes write, and with it what its cache had not written yet; it comes back at
# once, then after a while, then without a node that has written there. What it lost is rebuilt each time: no byte is missing, and
# in the end the disks alone have all of it.
set -u
LOAD_SLOWER=30 # in the lab: what is under way at the fault is what this is about
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster_volatile || { echo "skipped: no nbdkit-plugin.h (tools/deps)"; exit 77; }
export EXPORTER_VOLATILE=yes
lost=0

# power_cut SECONDS: exporter 2, for so long.
power_cut() {
	local sectors
	sectors=$(exporter_power_cut 2) || fail "exporter 2"
	lost=$((lost + sectors))
	step "exporter 2 is off for $1 s, with $sectors sectors of its cache"
	[ "$1" = 0 ] || sleep "$1"
	exporter_restart 2 || fail "exporter 2 does not come back"
}

# back N...: member 1 is in sync again, by a rebuild, since log_mark.
back() {
	local n
	within 30 "the rebuild" log_has "$1" "member 1: .* -> in-sync"
	for n; do
		within 30 "node $n: not degraded" holds "$n" 'not a["degraded"]'
	done
}

array_up 3 1
writers_start 1 2 3
for seconds in 0 0 3; do
	log_mark 1
	power_cut $seconds
	back 1 2 3
	writers_go_on 300 1 2 3
done

step "node 3 is off, too"
LOST=(--lost "$CLUSTER_DIR/load.3")
log_mark 1
node_kill 3
power_cut 0
within 30 "node 3 is recovered" holds 1 '[r for r in a["recoveries"] if r["node"] == 3][-1]["recovered_at"]'
back 1 2
writers_go_on 300 1 2
writers_stop 1 2
[ $lost -gt 0 ] || fail "the cache had nothing to lose"
measured "$lost sectors were lost"
compare_on 1 2
finish 1 2
