#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon whose locks are the DLM's dies while its writes are at a member that does not answer, and while a rebuild waits for
# one of its regions. The kernel frees its locks at once, and grants the rebuild what it waits for before
# anybody is told of the death (corosync stands still on the others just then). But a grant counts for the others only when it is
# fenced (R4, R10): nobody writes in that region, and nobody reads where its writes may still land, before that. With
# tests/sim/bugs/cluster/grant-without-settle.patch the rebuild does, and has let go of the lock, by the time that the others' heartbeats are late.
set -u
LOAD_SLOWER=30 # in the lab: what is under way at the fault is what this is about
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

SLOW=2 # the exporter

# locks N...: what the kernels of these nodes know of the array's locks, from debugfs, each line with its node before it. From there
# on: id, holder's node or, of a lock held here, its master's (0: this one), ..., status (1 waits, 2 is granted), mode granted, mode wanted
# (5 is EX), ..., the resource's master (0: this one), ..., its name.
locks() {
	local n
	for n; do
		node_exec "$n" sh -c 'mount -t debugfs none /sys/kernel/debug 2>/dev/null; cat /sys/kernel/debug/dlm/ddraid-*_locks' | sed "s/^/$n /; s/\"//g"
	done
}

# Locks that node 3 has, of those of which node 1 or 2 is the master.
of_3() {
	locks 1 2 | awk '$3 == 3 && $9 == 2 && $13 == 0' | wc -l
}
none_left() {
	[ "$(of_3)" = 0 ]
}

# Sets waits_for: a lock that somebody waits for, to have it alone, and that nobody has but node 3.
one_waits() {
	waits_for=$(locks 1 2 3 | awk '
		$13 != 0 { next }
		$9 == 1 && $11 == 5 { waits[$NF] = 1 }
		$9 > 1 { has[$NF] = has[$NF] ($3 ? $3 : $1) }
		END { for (name in waits) if (has[name] == "3") { print name; exit } }')
	[ -n "$waits_for" ]
}
# Node 1, which leads, has it as EX, or node 2.
granted_now() {
	not_written '~'
	locks 1 2 | awk -v name="$waits_for" '$NF == name && $9 == 2 && $10 == 5' | grep -q .
}

# Writes by the nodes 1 and 2 in region $1 at any member, from $2 to $3.
writes_there() {
	find "$CLUSTER_DIR"/exporter[0-9]*/req -name '10.77.0.[12].*.log' -exec cat {} + | /usr/bin/python3 -c '
import re, sys
first, last, at, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for line in sys.stdin:
    m = re.match(r"(\S+ \S+) .*connection=\d+ (?:Write|Zero|Trim) id=\d+ offset=(\w+) count=(\w+)", line)
    if m and first < m[1] < last and at - int(m[3], 0) < int(m[2], 0) < at + size:
        print(line, end="")
' "$2" "$3" $((data + $1 * part)) $part
}

# not_written UNTIL
not_written() {
	local early
	early=$(writes_there "$region" "$killed" "$1")
	[ -z "$early" ] || fail "written in region $region before the fence of node 3: $(head -n 3 <<<"$early")"
}

# Node 1 has written to the new member's data (from 1 MiB on) as rebuilds do. The regions that the nodes write in are its first ones, and it is
# through with them in a second, so nobody in a machine is asked.
rebuilds() {
	cat "$CLUSTER_DIR"/exporter3/req/10.77.0.1.*.log | grep -qE "Write id=[0-9]+ offset=0x[1-9a-f][0-9a-f]{5,} count=0x10000 "
}

acknowledged() {
	cat "$CLUSTER_DIR"/load.[12] | grep -c ^A
}

array_up_led_by_1 3 1
part=$(($(tells 1 'a["geometry"]["region_bytes"]') / 2)) # of a region, on a member
members_check
[ $? -lt 2 ] || fail "the members: $(raw 'r["problems"]')"
data=$(raw 'r["geometry"]["data_offset"]')
[ "$data" -gt 0 ] || fail "where the members' data begins is not known"
writers_start 1 2 3
ctl 1 fail vol0 2 >/dev/null || fail "fail"
within 10 "member 2 has left" holds 1 "a['members'][2]['state'] == 'faulty'"
writers_go_on 100 1 2 3
fences_forget
fence_break
! rebuilds || fail "the requests of a rebuild are not what is looked for"
ctl 1 add vol0 2 "$(exporter_uri 3)" --old-member >"$CLUSTER_DIR/add" 2>&1 &
add=$!
CLUSTER_POLL_TIMES=1 CLUSTER_POLL_MS=50 within 20 "the rebuild" rebuilds
exporter_stall $SLOW 3 || fail "stall"
wait $add || fail "add: $(cat "$CLUSTER_DIR/add")"
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
for n in 1 2; do
	node_signal $n corosync CONT
done
step "the kernel has freed its locks ($held were seen), and granted the rebuild its"
within 10 "the end of ddraidd on node 3" daemon_gone 3
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
not_written "$mended"
[ -n "$(writes_there "$region" "$mended" '~')" ] || within 20 "the rebuild goes on in region $region" eval '[ -n "$(writes_there "$region" "$mended" "~")" ]'
measured "nothing written in region $region for $(($(date -d "$mended" +%s) - $(date -d "$killed" +%s))) s after its lock was free"
serve 1 2
writers_go_on 100 1 2
writers_stop 1 2
LOST=(--lost "$CLUSTER_DIR/load.3") # a member was missing: what was in flight may be garbage, and nothing else
compare_on 1 2
within 40 "the rebuild is done" holds 1 'not a["degraded"]'
finish 1 2
