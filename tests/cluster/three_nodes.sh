#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three nodes with real corosync, all of them writing: one is powered off in the middle of it and comes back, a
# member is killed and replaced, a daemon is killed, another is frozen until it is evicted. After each, every
# acknowledged byte is there, read through every node that lives; in the end the members are read raw.
set -u
top_builddir=${top_builddir:-$(cd "$(dirname "$0")/../.." && pwd)}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/cluster.sh"
cluster_requires || exit 77
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
[ -x "$top_builddir/ddraidd" ] && [ -x "$top_builddir/ddraidctl" ] || { echo "skipped: not built"; exit 77; }

U="nbd+unix:///vol0?socket=/run/ddraid/vol0.nbd"
writers=()
began=$SECONDS
step() {
	printf '%3d s  %s\n' $((SECONDS - began)) "$*"
}
fail() {
	local n
	echo "FAILED: $*"
	for n in 1 2 3; do
		echo "--- node $n"
		tail -n 40 "$CLUSTER_DIR/node$n/log/ddraidd.out"
	done
	exit 1
}
ctl() {
	local n=$1
	shift
	node_exec "$n" timeout 40 "$top_builddir/ddraidctl" "$@"
}
daemon_up() {
	node_spawn "$1" ddraidd "$top_builddir/ddraidd" --foreground
	wait_until 10 "ddraidd of node $1" ctl "$1" version >/dev/null 2>&1 || fail "no daemon on node $1"
}
# serves N: node N lets its users in, and nothing is left to be recovered
serves() {
	ctl "$1" status vol0 --wait --timeout 30 >/dev/null 2>&1
	[ $? = 0 ] || [ $? = 5 ]
}
write_on() {
	local n first=$1 seconds=$2
	shift 2
	writers=()
	for n; do
		node_exec "$n" /usr/bin/python3 "$here/load.py" write "$n" 3 "$U" "$CLUSTER_DIR/load.$n" "$first" \
			"$seconds" &
		writers[n]=$!
	done
	sleep 1.5
}
# written N...: these must end well, the others are waited for
written() {
	local n
	for n; do
		wait "${writers[n]}" || fail "the writer of node $n failed"
		unset "writers[n]"
	done
	for n in "${!writers[@]}"; do
		wait "${writers[n]}" 2>/dev/null
	done
}
compare_on() {
	local n
	for n; do
		node_exec "$n" timeout 30 /usr/bin/python3 "$here/load.py" check "$U" "$CLUSTER_DIR"/load.* ||
			fail "wrong data, read through node $n"
	done
}
holds() { # NODE EXPRESSION of the array in `status --json`, as a
	ctl "$1" status vol0 --json 2>/dev/null | python3 -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$2"
}
fenced() {
	grep -q "answered $1 .* full" "$CLUSTER_DIR/fence.log"
}

cluster_up 3 || exit 1
for i in 1 2 3 4; do
	exporter_up $i 64M || exit 1
done
for n in 1 2 3; do
	mkdir -p "$CLUSTER_DIR/node$n/etc-ddraid"
	cat >"$CLUSTER_DIR/node$n/etc-ddraid/ddraid.conf" <<-EOC
		[fence]
		fence = command
		fence_command = $CLUSTER_DIR/fence
		[members]
		zombie_timeout = 2s
	EOC
	daemon_up $n
done
step "create"
ctl 1 create vol0 --order 1 --force "$(exporter_uri 1)" "$(exporter_uri 2)" "$(exporter_uri 3)" 2>&1 | tail -n 1
for n in 1 2 3; do
	serves $n || fail "node $n does not serve"
done

step "node 3 is powered off while all write"
write_on 0 6 1 2 3
node_kill 3
written 1 2
fence_proof 3 || fail "requests after the fence"
compare_on 1 2
step "and comes back"
node_start 3 && cluster_wait_quorum 20 1 2 3 || fail "no quorum"
daemon_up 3
serves 3 || fail "node 3 does not serve"
compare_on 3

step "a member is killed while all write, and replaced"
write_on 1000000 6 1 2 3
exporter_kill 2
wait_until 10 "degraded" holds 1 'a["degraded"]' || fail "not degraded"
ctl 2 fail vol0 1 || fail "fail"
ctl 3 add vol0 1 "$(exporter_uri 4)" --wait 2>/dev/null || fail "add"
written 1 2 3
holds 2 'not a["degraded"]' || fail "still degraded"
compare_on 1 2 3

step "the daemon of node 2 is killed while all write"
: >"$CLUSTER_DIR/fence.log"
write_on 2000000 6 1 2 3
node_signal 2 ddraidd KILL
written 1 3
compare_on 1 3
fenced 2 || fail "node 2 was not fenced"
node_kill 2
node_start 2 && cluster_wait_quorum 20 1 2 3 || fail "no quorum"
daemon_up 2
serves 2 || fail "node 2 does not serve"

step "the daemon of node 1, the leader, is frozen while all write"
: >"$CLUSTER_DIR/fence.log"
write_on 3000000 10 1 2 3
node_stop_daemon 1
wait_until 15 "the fence of node 1" fenced 1 || fail "node 1 was not fenced"
sleep 1
node_cont_daemon 1
written 2 3
unfence 1
compare_on 2 3
step "and thaws"
cluster_wait_quorum 20 1 2 3 || fail "no quorum"
wait_until 30 "node 1 serves again" serves 1 || fail "node 1 does not come back"
grep -q "joins again as incarnation" "$CLUSTER_DIR/node1/log/ddraidd.out" || fail "no new incarnation"
compare_on 1 2 3

step "stop everywhere"
ctl 2 stop vol0 --all-nodes 2>/dev/null || fail "stop"
for n in 1 2 3; do
	node_signal $n ddraidd TERM
done
for n in 1 2 3; do
	wait_until 15 "the end of ddraidd on node $n" eval "! node_alive $n ddraidd" || fail "it does not end"
done
"$CLUSTER_SRC/tests/checker/ddraid-check-members" "$(exporter_disk 1)" "$(exporter_disk 4)" "$(exporter_disk 3)" |
	tail -n 2 || fail "the members"
step "done"
