#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon whose locks are the DLM's dies while its writes are at a member that does not answer, and while a rebuild waits for
# one of its regions. The kernel frees its locks at once, and grants the rebuild what it waits for before
# anybody is told of the death (corosync stands still on the others just then). But a grant counts for the others only when it is
# fenced (R4, R10): nobody writes in that region, and nobody reads where its writes may still land, before that.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

SLOW=2 # the exporter

# What the kernels of nodes 1 and 2 know of the array's locks: lines of debugfs.
locks() {
	local n
	for n in 1 2; do
		node_exec $n sh -c 'mount -t debugfs none /sys/kernel/debug 2>/dev/null; cat /sys/kernel/debug/dlm/ddraid-*_locks'
	done
}

# Locks that node 3 has.
of_3() {
	locks | awk '$2 == 3 && $8 == 2' | wc -l
}
none_left() {
	[ "$(of_3)" = 0 ]
}

# The region for which somebody waits, to have it alone, twice in a row: it is node 3 that can't give it up.
waited_for() {
	locks | awk '$8 == 1 && $10 == 5 { gsub(/"/, "", $NF); print $NF; exit }'
}
one_waits() {
	local before
	before=$(waited_for)
	sleep 0.5
	waits_for=$(waited_for)
	[ -n "$waits_for" ] && [ "$before" = "$waits_for" ]
}
granted_now() {
	[ -z "$(waited_for)" ]
}

# Writes by the nodes 1 and 2 in region $1 at any member, from $2 to $3.
writes_there() {
	find "$CLUSTER_DIR"/exporter[0-9]*/req -name '10.77.0.[12].*.log' -exec cat {} + | python3 -c '
import re, sys
first, last, at, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for line in sys.stdin:
    m = re.match(r"(\S+ \S+) .*connection=\d+ (?:Write|Zero|Trim) id=\d+ offset=(\w+) count=(\w+)", line)
    if m and first < m[1] < last and at - int(m[3], 0) < int(m[2], 0) < at + size:
        print(line, end="")
' "$2" "$3" $(($(raw 'r["geometry"]["data_offset"]') + $1 * part)) $part
}

acknowledged() {
	cat "$CLUSTER_DIR"/load.[12] | grep -c ^A
}

array_up_led_by_1 3 1
part=$(($(tells 1 'a["geometry"]["region_bytes"]') / 2)) # of a region, on a member
writers_start 1 2 3
ctl 1 fail vol0 2 >/dev/null || fail "fail"
within 10 "member 2 is missing" holds 1 "a['members'][2]['state'] == 'missing'"
writers_go_on 100 1 2 3
fences_forget
fence_break
ctl 1 re-add vol0 2 >"$CLUSTER_DIR/re-add" 2>&1 || fail "re-add: $(cat "$CLUSTER_DIR/re-add")"
within 10 "the rebuild" holds 1 "a['members'][2]['state'] == 'rebuilding'"
exporter_stall $SLOW 3 || fail "stall"
within 3 "the rebuild waits for a region of node 3" one_waits
region=$((16#${waits_for: -8}))
held=$(of_3)
step "the rebuild waits for region $region, which node 3 can't give up, since exporter $SLOW holds its writes"
for n in 1 2; do
	node_signal $n corosync STOP
done
node_signal 3 ddraidd KILL
killed=$(cluster_now)
within 10 "the kernel frees its locks" none_left
within 10 "the rebuild's lock is granted" granted_now
sleep 0.5
told=$(cluster_now)
for n in 1 2; do
	node_signal $n corosync CONT
done
step "the kernel has freed its locks ($held were seen), and granted the rebuild its"
within 10 "the end of ddraidd on node 3" daemon_gone 3
[ "$held" -gt 0 ] || fail "node 3 had no lock"
load pending "$CLUSTER_DIR/load.3" >"$CLUSTER_DIR/pending"
block=$(head -n 1 "$CLUSTER_DIR/pending")
[ -n "$block" ] || fail "node 3 had no write under way"
within 40 "node 1 waits for the fence of node 3" holds 1 \
	'a["waits"] and "fence" in a["waits"]["for"] and a["waits"]["node"] == 3'
nbd_do 2 "h.pread(4096, $block * 4096)" >"$CLUSTER_DIR/read.out" 2>&1 &
reader=$!
seen=$(acknowledged)
sleep "$(patience 3)"
[ "$(acknowledged)" = "$seen" ] || fail "writes went on where those of node 3 may land, before its fence"
kill -0 $reader 2>/dev/null || fail "so did a read: $(cat "$CLUSTER_DIR/read.out")"
mended=$(cluster_now)
fence_mend
step "the fence works again"
wait $reader || fail "the read: $(cat "$CLUSTER_DIR/read.out")"
fence_proof 3 || fail "requests after the fence"
members_check
[ $? -lt 2 ] || fail "the members: $(raw 'r["problems"]')"
early=$(writes_there "$region" "$killed" "$mended")
[ -z "$early" ] || fail "written in region $region before the fence of node 3 (all were told at $told): $(head -n 3 <<<"$early")"
[ -n "$(writes_there "$region" "$mended" '~')" ] || within 20 "the rebuild goes on in region $region" eval '[ -n "$(writes_there "$region" "$mended" "~")" ]'
measured "nothing written in region $region for $(($(date -d "$mended" +%s) - $(date -d "$killed" +%s))) s after its lock was free"
serve 1 2
writers_go_on 100 1 2
writers_stop 1 2
compare_on 1 2
within 40 "the rebuild is done" holds 1 'not a["degraded"]'
finish 1 2
