#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The group port's conformance suite on corosync: what one node can see (group_conformance), and what three
# nodes must see alike (group_agent): order, views and their ids, rings, over crashes of daemons, nodes
# and corosync, frozen daemons, cuts and merges.
set -u

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
programs=$(cd "$top_builddir/tests/port" 2>/dev/null && pwd)
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"
# shellcheck disable=SC2119 # no further programs
cluster_requires || exit 77
for program in group_agent group_conformance; do
	[ -x "$programs/$program" ] && continue
	echo "skipped: $program is not built in $programs (make check)"
	exit 77
done

passed=0 failed=0
check() { # WHAT COMMAND...
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

lives=0
declare -A transcript # of the agent that runs on a node

# agent N: starts a daemon on node N.
agent() {
	lives=$((lives + 1))
	transcript[$1]=$dir/node$1.life$lives
	rm -f "$dir/fifo$1"
	mkfifo "$dir/fifo$1"
	node_spawn "$1" agent "$programs/group_agent" corosync group "l$lives" "$dir/fifo$1" \
		"${transcript[$1]}"
	wait_until 5 "agent on node $1" test -s "${transcript[$1]}"
}

tell() { # N COMMAND
	local n=$1
	shift
	echo "$*" >"$dir/fifo$n"
}

kill_agent() {
	node_signal "$1" agent KILL
}

last() { # N KIND: the last line of that kind in the transcript
	grep "^$2 " "${transcript[$1]}" 2>/dev/null | tail -n 1
}

# agree N...: they all are in one view of just these, under one id, and its ring is the quorum's.
agree() {
	local members ids='' n
	members=$(printf '%s,' "$@")
	for n; do
		# shellcheck disable=SC2046 # words
		set -- $(last "$n" view) $(last "$n" quorum)
		[ $# = 9 ] || return 1
		[ "$4" = "${members%,}" ] && [ "$3" = "$7" ] && [ "$8" = 1 ] || return 1
		case $ids in '' | "$2") ids=$2 ;; *) return 1 ;; esac
	done
}

agreement() { # N...
	local n
	wait_until 20 "one view of $* with the quorum's ring" agree "$@" && return
	for n; do echo "node $n: $(last "$n" view); $(last "$n" quorum)"; done
	return 1
}

members_are() { # MEMBERS N...: all these nodes are in one view with these members
	local want=$1 n ids=''
	shift
	for n; do
		[[ $(last "$n" view) == *" $want "* ]] || return 1
		ids+=$(last "$n" view | cut -d' ' -f2)$'\n'
	done
	[ "$(sort -u <<<"${ids%?}" | wc -l)" = 1 ]
}

ring_of() {
	last "$1" view | cut -d' ' -f3
}

has() { # N WHAT COUNT: the transcript has at least COUNT lines that begin so
	[ "$(grep -c "^$2" "${transcript[$1]}")" -ge "$3" ]
}

marked() { # WORD N...
	local word=$1 n
	shift
	for n; do grep -q "^sum .* ${word//./\\.}\$" "${transcript[$n]}" || return 1; done
}

# same_up_to WORD N...: a mark by each, and what came before it was the same for all. A mark that is
# overtaken by a view comes nowhere: tried again.
same_up_to() {
	local word=$1 n try marks
	shift
	for n; do
		for try in 1 2 3 4 5; do
			tell "$n" mark "$word$n.$try"
			wait_until 10 "mark $word$n.$try" marked "$word$n.$try" "$@" 2>/dev/null && break
		done
		marks=$(for m; do grep "^sum .* $word$n\\.$try\$" "${transcript[$m]}"; done | sort -u)
		if [ -z "$marks" ] || [ "$(wc -l <<<"$marks")" != 1 ]; then
			printf '%s\n' "$marks"
			return 1
		fi
	done
}

one_node_alone() {
	check "the suite for one node, on corosync" node_exec 1 env GROUP_ADAPTER=corosync \
		"$programs/group_conformance"
}

messages() {
	local n us start=${EPOCHREALTIME/[.,]/}
	for n in 1 2 3; do agent $n; done
	check "three daemons are in one view" agreement 1 2 3
	for n in 1 2 3; do tell $n send 3334 1000; done
	for n in 1 2 3; do wait_until 60 "10000 messages at node $n" has $n got 10; done
	us=$((${EPOCHREALTIME/[.,]/} - start))
	echo "10000 messages of 32..1000 bytes from three nodes, start included: $((us / 1000)) ms"
	check "10000 messages come in one order" same_up_to many 1 2 3
	for n in 1 2 3; do tell $n send 20 524288; done
	for n in 1 2 3; do wait_until 60 "big messages are taken" has $n "sent 20" 1; done
	check "big ones too" same_up_to big 1 2 3
}

daemons_crash_and_leave() {
	local ring
	ring=$(ring_of 1)
	for n in 1 2 3; do tell $n send 5000 2000; done
	sleep 0.2
	kill_agent 3
	check "a crashed daemon is out of the view" agreement 1 2
	check "without a change of the ring" test "$ring" = "$(ring_of 1)"
	agent 3
	check "it comes back under one id for all" agreement 1 2 3
	check "still the same ring" test "$ring" = "$(ring_of 1)"
	check "and gets what the others get" same_up_to back 1 2 3

	tell 2 send 500 1000
	tell 2 mark leaving
	tell 2 leave
	check "who leaves is out of the view" agreement 1 3
	check "after its last message" marked leaving 1 2 3
	check "and knows when it is through" wait_until 5 "left" has 2 left 1
	agent 2
	check "and may come back" agreement 1 2 3
}

a_frozen_daemon() {
	tell 1 send 20000 500
	node_stop_daemon 3 agent
	kill_agent 2
	wait_until 10 "node 2 out of the view of 1" members_are 1,3 1
	agent 2
	check "a newcomer's view doesn't wait for a frozen daemon" \
		wait_until 5 "node 2 in a view of 1, 2, 3" members_are 1,2,3 1 2
	tell 1 mark thaw
	wait_until 30 "all at node 2" marked thaw 1 2
	node_cont_daemon 3 agent
	check "thawed, it gets everything in the same order" same_up_to thawed 1 2 3
	check "and every view" agreement 1 2 3
}

nodes_crash() {
	local ring
	ring=$(ring_of 1)
	for n in 1 2 3; do tell $n send 3000 2000; done
	node_kill 3
	check "a node's power cut takes its daemon out of the view" agreement 1 2
	check "by another ring" not test "$ring" = "$(ring_of 1)"
	check "what came before it is the same" same_up_to cut 1 2
	ring=$(ring_of 1)
	node_start 3
	cluster_wait_quorum 15 1 2 3
	check "a node without a daemon is a new ring with the view as before" agreement 1 2
	check "and another id" not test "$ring" = "$(ring_of 1)"
	agent 3
	check "its daemon joins" agreement 1 2 3
}

a_frozen_node() {
	for n in 1 2 3; do tell $n send 10000 500; done
	node_freeze 3
	check "a frozen node is given up" agreement 1 2
	tell 1 send 100 100
	node_thaw 3
	check "thawed, it is taken in again" agreement 1 2 3
	check "and in the order" same_up_to frozen 1 2 3
}

alone_inquorate() {
	[[ $(last "$1" view) == *" $1 "* && $(last "$1" quorum) == *" 0 $1" ]]
}

partition_and_merge() {
	for n in 1 2 3; do tell $n send 10000 500; done
	node_cut 3
	check "cut off, a node is alone without quorum" wait_until 15 "alone" alone_inquorate 3
	check "the others go on" agreement 1 2
	tell 1 send 100 100
	tell 3 send 100 100
	node_heal 3
	check "healed, all have one view" agreement 1 2 3
	check "and one order" same_up_to healed 1 2 3
	# All at once, each for itself.
	for n in 1 2 3; do node_cut $n; done
	for n in 1 2 3; do wait_until 15 "node $n alone" alone_inquorate $n; done
	for n in 1 2 3; do node_heal $n; done
	check "also after all were alone" agreement 1 2 3
	check "again one order" same_up_to again 1 2 3
}

corosync_dies() {
	tell 3 send 20000 500
	node_signal 3 corosync KILL
	check "a daemon sees corosync die" wait_until 5 "lost" has 3 lost 1
	check "the others go on without it" agreement 1 2
	node_spawn 3 corosync corosync -f
	check "it finds the new one by itself" agreement 1 2 3
	check "and is in the order again" same_up_to again3 1 2 3
}

daemons_restart_all_the_time() {
	local i
	for n in 1 2 3; do tell $n send 20000 200; done
	for ((i = 0; i < 10; i++)); do
		kill_agent 2
		kill_agent 3
		agent 3
		agent 2
		[ $i != 5 ] || node_cut 1
		[ $i != 7 ] || { sleep 1.5; node_heal 1; }
	done
	check "after ten restarts of two daemons all agree" agreement 1 2 3
	check "on the order too" same_up_to storm 1 2 3
}

# Over all transcripts: an id means one ring and one list of members, and comes once per node; who went
# from one view to the same next one got the same messages; nobody saw a broken promise.
transcripts_agree() {
	# shellcheck disable=SC2016 # awk's
	awk '
	function bad(what) { print "  " FILENAME ":" FNR ": " what ": " $0; n++ }
	FNR == 1 { node = FILENAME; sub(/.*node/, "", node); sub(/\..*/, "", node) }
	/^BAD/ { bad("broken promise") }
	/^view/ {
		views++
		if (($2, node) in seen) bad("id twice on a node")
		seen[$2, node] = 1
		is = $3 " " $4
		if ($2 in means && means[$2] != is) bad("elsewhere it is " means[$2])
		if (!($2 in means)) ids++
		means[$2] = is
	}
	/^end/ {
		is = $3 " " $4
		k = $2 " " $5
		if (k in ends && $5 != "left") { compared++; if (ends[k] != is) bad("elsewhere " ends[k]) }
		ends[k] = is
	}
	/^sum/ {
		is = $3 " " $4
		k = $2 " " $5
		if (k in sums) { compared++; if (sums[k] != is) bad("elsewhere " sums[k]) }
		sums[k] = is
	}
	/^got/ { got[FILENAME] = $2 }
	/^sent/ { again += $4 }
	END {
		for (f in got) messages += got[f]
		printf "%d views under %d ids, over %d messages; %d times two nodes compared; ",
			views, ids, messages, compared
		printf "corosync said %d times \"try again\"\n", again
		exit n > 0
	}' "$dir"/node*.life*
}

cluster_up 3 || exit 1
dir=$CLUSTER_DIR/group
mkdir "$dir"
one_node_alone
messages
daemons_crash_and_leave
a_frozen_daemon
nodes_crash
a_frozen_node
partition_and_merge
corosync_dies
daemons_restart_all_the_time
check "all transcripts agree" transcripts_agree
[ $failed = 0 ] || [ -z "${GROUP_KEEP:-}" ] || cp -r "$dir" "$GROUP_KEEP"
cluster_down || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ $failed = 0 ]
