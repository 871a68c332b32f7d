#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Holds tests/lib/cluster.sh to what it promises, before anything is tested with it: starts, power
# cuts, cut cables, fencing, and that nothing is left at the end, after an interrupt too.
set -u

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"
cluster_requires fio nbdinfo || exit 77

passed=0 failed=0
# check WHAT COMMAND...
check() {
	local what=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		echo "ok   $what"
	else
		failed=$((failed + 1))
		echo "FAIL $what"
	fi
}

not() {
	! "$@"
}

# writer N I: node N writes to exporter I without end, 16 requests at once, and connects again
# whenever it is thrown out.
writer() {
	# shellcheck disable=SC2016 # the inner shell's
	node_spawn "$1" "writer$2" sh -c '
		cd "$2" || exit
		while :; do
			fio --name=w --ioengine=nbd --uri="$1" --rw=randwrite --bs=4k --iodepth=16 \
				--size=32m --time_based --runtime=600 --thread
			sleep 0.1
		done' sh "$(exporter_uri "$2")" /run
}

wrote() { # I N AT-LEAST
	[ "$(exporter_requests "$1" "$2" Write)" -ge "$3" ]
}

requests_since() { # I N TIME: requests of node N that ended at exporter I after TIME
	find "$CLUSTER_DIR/exporter$1/req" -name "$(node_address "$2").*.log" -exec cat {} + |
		awk -v t="$3" '$1 " " $2 > t && /\.\.\.Write id=.*return=0/ { n++ } END { print n + 0 }'
}

sum() {
	md5sum <"$(exporter_disk "$1")"
}

connects() { # N I
	node_exec "$1" timeout -k 10 5 nbdinfo --size "$(exporter_uri "$2")" >/dev/null 2>&1
}

connected() { # N I: the exporter holds a connection of the node
	"$CLUSTER_DIR/exporter" ctl "$CLUSTER_DIR/exporter$2" list | grep -q "^$(node_address "$1") "
}

sees_only_itself() {
	node_members_are "$1" "$1 inquorate"
}

state_is() { # N NAME LETTER
	node_exec "$1" sh -c "sed 's/.*) //' /proc/$(node_pid "$1" "$2")/stat" | grep -q "^$3"
}

nodes_come_and_go() {
	local start=${EPOCHREALTIME/[.,]/} us
	cluster_up 3 || exit 1
	us=$((${EPOCHREALTIME/[.,]/} - start))
	echo "three nodes quorate after $((us / 1000)) ms"
	check "three nodes have quorum within 10 s" test "$us" -lt 10000000
	node_spawn 3 sleeper sleep 1000
	check "a program runs in a node" node_alive 3 sleeper
	node_stop_daemon 3 sleeper
	check "it can be stopped" wait_until 2 "stopped" state_is 3 sleeper T
	node_cont_daemon 3 sleeper
	check "and goes on" wait_until 2 "going on" state_is 3 sleeper S
	echo kept | node_exec 3 tee /var/lib/ddraid/kept /etc/ddraid/kept /run/lost >/dev/null

	node_kill 3
	check "a power cut is seen by the others" cluster_wait_quorum 10 1 2
	check "a node that is off runs nothing" not node_exec 3 true 2>/dev/null
	node_start 3
	check "it comes back" cluster_wait_quorum 15 1 2 3
	check "with its state" node_exec 3 cmp /var/lib/ddraid/kept /etc/ddraid/kept
	check "without its /run" not node_exec 3 test -e /run/lost

	node_cut 2
	check "a node that is cut off loses quorum" wait_until 10 "alone" sees_only_itself 2
	check "the others keep it" cluster_wait_quorum 10 1 3
	node_heal 2
	check "healed, they are three" cluster_wait_quorum 15 1 2 3
}

fencing() {
	local t before
	exporter_up 1 32M
	exporter_up 2 32M --filter=delay wdelay=400ms
	exporter_up 3 32M
	for e in 1 2 3; do writer 3 $e; done
	check "node 3 writes to exporter 1" wait_until 10 "writes" wrote 1 3 100
	check "node 3 writes to exporter 2" wait_until 10 "writes" wrote 2 3 32

	# What the fence is compared with: a cut cable alone.
	t=$(cluster_now)
	node_cut 3
	sleep 1
	t=$(requests_since 2 3 "$t")
	echo "after the cable was cut, $t writes of node 3 still ran at exporter 2"
	check "a cut cable is no fence" test "$t" -gt 0
	node_heal 3
	exporter_kill 3

	wait_until 15 "node 3 back" cluster_wait_quorum 10 1 2 3
	before=$(exporter_requests 2 3 Write)
	check "node 3 writes again" wait_until 15 "writes" wrote 2 3 $((before + 32))
	fence_break
	check "a fence that fails says so" not fence 3 2>/dev/null
	fence_mend
	check "the fence answers" fence 3
	before=$(sum 1)$(sum 2)
	sleep 1.5
	check "after that no request of it runs" fence_proof 3
	check "and not a byte changes" test "$before" = "$(sum 1)$(sum 2)"
	check "it is refused by an exporter that was dead then" eval 'exporter_restart 3 && ! connects 3 3'
	check "the fenced node is cut off" wait_until 10 "alone" sees_only_itself 3
	unfence 3
	check "unfenced, it comes back" cluster_wait_quorum 15 1 2 3
	check "and writes" wait_until 15 "connection" connects 3 3
}

# The incarnation that a fence ends may be older than the node's present life.
fencing_after_a_power_cut() {
	local old n
	n=$(exporter_requests 3 3 Write)
	check "node 3 writes to exporter 3" wait_until 20 "writes" wrote 3 3 $((n + 100))
	exporter_stop 3
	old=$(date +%s%N)
	node_kill 3
	check "a power cut leaves connections at the exporters" connected 3 3
	node_start 3
	writer 3 1
	n=$(exporter_requests 1 3 Write)
	check "the node's new life writes" wait_until 10 "writes" wrote 1 3 $((n + 100))
	check "its former life is fenced" fence 3 "$old"
	check "although its exporter is frozen" not connected 3 3
	exporter_cont 3
	check "by that life's connections only" grep -q "answered 3 $old boot" "$CLUSTER_DIR/fence.log"
	check "of which no request runs any more" fence_proof 3
	n=$(exporter_requests 1 3 Write)
	check "the new life goes on" wait_until 10 "writes" wrote 1 3 $((n + 100))
	check "a second fence of the former life answers at once" fence 3 "$old"
	check "a node may fence its own former life" node_exec 3 "$CLUSTER_DIR/fence" 3 "$(date +%s%N)" \
		"$(exporter_uri 1)" "$(exporter_uri 2)"
	check "which ends its connections" fence_proof 3
	check "but it is not refused" connects 3 1
	check "an unknown member is not fenced" not fence 3 "$old" nbd://10.77.1.9:10809 2>/dev/null
}

nothing_is_left_of() { # DIR NAME
	local left
	left=$(CLUSTER_DIR=$1 CLUSTER_NAME=$2 cluster_leftovers
		ls -d "$1" 2>/dev/null
		ss -Hltn 2>/dev/null | grep 10.77.)
	[ -z "$left" ] || { echo "$left"; return 1; }
}

interrupts() {
	local sig dir
	for sig in INT TERM; do
		# shellcheck disable=SC2016 # the inner shell's
		env --default-signal=INT bash -c '. "$1"; cluster_up 2; exporter_up 1 1M; echo "$CLUSTER_DIR"
			wait_until 60 "an interrupt" false' bash "$top_srcdir/tests/lib/cluster.sh" >"$tmp/$sig" &
		wait_until 30 "a cluster" test -s "$tmp/$sig"
		dir=$(cat "$tmp/$sig")
		kill -"$sig" $!
		wait $!
		check "interrupted by SIG$sig, a cluster leaves nothing" nothing_is_left_of "$dir" "ddr-${dir##*-}"
	done
}

tmp=$(mktemp -d)
nodes_come_and_go
fencing
fencing_after_a_power_cut
dir=$CLUSTER_DIR name=$CLUSTER_NAME
check "the cluster ends" cluster_down
check "nothing is left" nothing_is_left_of "$dir" "$name"
interrupts
rm -rf "$tmp"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
