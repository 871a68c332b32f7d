#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An exporter's cable is pulled while all nodes write, and plugged in again: service goes on degraded meanwhile, and
# the member comes back by itself. Then it is away for longer than member_retry: it is given up, and stays so when it
# can be reached again, until an operator takes it back. Both times only that is copied which it has missed (R15):
# the regions that are written all the time, and one that was written once and has long been idle.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

FENCE_CONF='fence = command\nfence_command = %s\n[members]\nrequest_timeout = 2s'
region=$((4 << 20))
MEMBER_SIZE=24M # for ten regions

member_is() { # STATE N...
	local n state=$1
	shift
	for n; do
		holds "$n" "a['members'][1]['state'] == '$state'" || return 1
	done
}

linked() {
	local n
	for n in 1 2 3; do
		holds $n 'a["members"][1]["connected"]' || return 1
	done
}

# cut_off TEXT STATE REGION: until the member has STATE for all; then REGION is written, once.
cut_off() {
	step "exporter 2 is cut off $1"
	began=${EPOCHREALTIME/[.,]/}
	exporter_cut 2
	within 15 "member 1 is $2 for all" member_is "$2" 1 2 3
	measured "$2 for all $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after the cut"
	holds 1 'a["degraded"] and a["io_allowed"]' || fail "it does not serve degraded"
	nbd_do 2 "h.pwrite(b'$3' * ($region // len('$3')), $3 * $region)" || fail "region $3 can't be written"
	writers_go_on 500 1 2 3
	within 10 "region $3 is missed, and no longer dirty" missed_is "$3"
}

# The members' own words: the regions that were dirty or missed in any slot; and that region $1 is missed only.
missed_is() {
	members_check
	[ $? -lt 2 ] || fail "the members: $(raw 'r["problems"]')"
	missed=$(raw '" ".join(map(str, sorted(set().union(*(set(s["dirty"]) | set(s["missed"]) for s in r["slots"])))))')
	[ "$(raw "any($1 in s['missed'] for s in r['slots']) and not any($1 in s['dirty'] for s in r['slots'])")" = True ]
}

# Since the exporter was healed: every byte of a missed region was copied to it once; and nothing, by whomever, was
# written outside of these regions. A data member's part of a region is half of it. A window of the rebuild is 64 KiB of
# it, whole and aligned; those of a check (R19), which are written to the member too, begin with what was written.
only_missed() {
	find "$(dirname "$(exporter_disk 2)")/req" -name '*.log' -exec cat {} + | /usr/bin/python3 -c '
import re, sys
healed, data, region, missed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) // 2, set(map(int, sys.argv[4].split()))
window, copied, elsewhere = 65536, 0, set()
for line in sys.stdin:
    m = re.match(r"(\S+ \S+) .*connection=\d+ (?:Write|Zero|Trim) id=\d+ offset=(\w+) count=(\w+)", line)
    if not m or m[1] < healed or int(m[2], 0) < data:
        continue
    at, count = int(m[2], 0) - data, int(m[3], 0)
    elsewhere |= set(range(at // region, (at + count - 1) // region + 1)) - missed
    if at % window == 0 and count == window:
        copied += count
print(copied)
if elsewhere:
    sys.exit("written to, but missed by nobody: regions %s" % sorted(elsewhere))
if not len(missed) * region <= copied <= len(missed) * region * 1.1:
    sys.exit("%d bytes were copied, %d regions of %d were missed" % (copied, len(missed), region))
' "$healed" "$(raw 'r["geometry"]["data_offset"]')" $region "$missed" >"$CLUSTER_DIR/copied" || fail "more than what was missed, or less"
	measured "$(($(cat "$CLUSTER_DIR/copied") >> 10)) KiB copied: regions $missed of $(raw 'r["geometry"]["regions"]')"
}

heal() {
	healed=$(cluster_now)
	began=${EPOCHREALTIME/[.,]/}
	exporter_heal 2
}

# back TEXT REGION: in sync for all, and the region that was written meanwhile is whole, up to REGION.
back() {
	local r
	within 40 "member 1 is in sync" member_is in-sync 1 2 3
	measured "in sync $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after $1"
	writers_go_on 300 1 2 3
	only_missed
	writers_stop 1 2 3
	serve 1 2 3
	compare_on 1 2 3
	for r in 5 9; do
		[ "$2" -lt $r ] || nbd_do 3 "assert h.pread($region, $r * $region) == b'$r' * $region" || fail "region $r is wrong"
	done
	members_check --compare-left-out || fail "the members: $(raw 'r["problems"]')"
}

array_up 3 1
for n in 1 2 3; do # so that an attempt to connect ends before the kernel waits for long between two packets
	node_exec $n sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_syn_retries' || fail "tcp_syn_retries"
done
fences_forget
writers_start 1 2 3
cut_off "for a while" suspect 5
heal
back "the cable was plugged in" 5

step "member_retry is shorter"
ctl 1 set vol0 member_retry=3s >/dev/null || fail "set"
ctl 3 stop vol0 --all-nodes >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
ctl 3 start vol0 --all-nodes --wait >"$CLUSTER_DIR/start" 2>&1 || fail "start: $(cat "$CLUSTER_DIR/start")"
serve 1 2 3
writers_start 1 2 3
cut_off "for longer" missing 9
heal
within 15 "it can be reached again" linked
sleep 1
member_is missing 1 2 3 || fail "what was given up came back by itself"
step "an operator takes it back"
began=${EPOCHREALTIME/[.,]/}
ctl 2 re-add vol0 1 --wait >"$CLUSTER_DIR/re-add" 2>&1 || fail "re-add: $(cat "$CLUSTER_DIR/re-add")"
back "re-add" 9
[ ! -s "$CLUSTER_DIR/fence.log" ] || fail "somebody was fenced: $(cat "$CLUSTER_DIR/fence.log")"
finish 1 2 3
