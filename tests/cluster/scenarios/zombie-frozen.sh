#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# There is no fence command, only a wait (zombie_timeout). The daemon of node 1 stands still in the middle of a heavy
# load, with megabytes of writes that wait in its own queues, where no kernel gives them up. The others
# go on without it and write the same blocks. When it wakes up, none of the old writes may be sent: its
# connections are open still, and nothing has ended them (R7).
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# dlm_controld would cut this machine's power, and nothing of it would wake up (dlm-fence-cut does that).
LAB_DLM=no

FENCE_CONF="fence = zombie_timeout\nzombie_timeout = 9s\n[members]\nrequest_timeout = 3s"
lost='[r for r in a["recoveries"] if r["node"] == 1]'
tries=1

now_ms() {
	echo $((${EPOCHREALTIME/[.,]/} / 1000))
}
copy() {
	node_use "$1" timeout -k 10 "$(patience 40)" nbdcopy --flush "${@:2}" || fail "nbdcopy on node $1"
}

for i in 1 2 3; do
	EXPORTER_ARGS[$i]="--filter=delay delay-write=100ms"
done
users=()
# Of data: that begins at 1 MiB at least. Its place in the log is written again when it has joined again.
writes_of_1() {
	find "$CLUSTER_DIR"/exporter?/req -name "$(node_address 1).*" -exec cat {} + |
		grep -cE ' Write id=[0-9]+ offset=0x[0-9a-f]{6,} '
}
array_up 3 1
size=$(tells 1 'a["geometry"]["size_bytes"]')
head -c "$size" /dev/urandom >"$CLUSTER_DIR/old"
head -c "$size" /dev/urandom >"$CLUSTER_DIR/new"
head -c "$size" /dev/zero >"$CLUSTER_DIR/zero"
dropped() {
	log_has 1 "given up with writes that were not sent yet" || log_has 1 "was not answered within"
}
all_marked() {
	[ "$(tells 1 'a["counters"]["write_bytes"]')" -ge $((written + size + size / 2)) ]
}
# It counts if there were writes in node 1's queues when it stood still.
attempt() {
	step "node 1 writes"
	rm -f "$CLUSTER_DIR/old.stop"
	written=$(tells 1 'a["counters"]["write_bytes"]')
	# Three, so that one is always in the midst of it. They are gone when the daemon wakes up.
	for i in 1 2 3; do
		node_use 1 bash -c 'while [ ! -e "$1.stop" ] && timeout -s KILL "$3" nbdcopy "$1" "$2"; do :; done' \
			- "$CLUSTER_DIR/old" "$(array_uri 1)" "$(patience 5)" >/dev/null 2>&1 &
		users[i]=$!
	done
	within 30 "node 1 has written everywhere" all_marked
	step "ddraidd of node 1 is stopped"
	node_stop_daemon 1
	touch "$CLUSTER_DIR/old.stop"
	within 25 "node 1 is recovered" holds 2 "len($lost) == $tries and ${lost}[-1]['recovered_at'] is not None"
	wait "${users[@]}"
	copy 2 "$CLUSTER_DIR/new" "$(array_uri 2)"
	sent=$(writes_of_1)
	log_mark 1
	step "it goes on"
	woken=$(now_ms)
	node_cont_daemon 1
	within 30 "node 1 has a new incarnation" log_has 1 "joins again as incarnation"
	[ "$(writes_of_1)" = "$sent" ] || fail "it has sent $(($(writes_of_1) - sent)) writes after it woke up"
	for n in 3 2; do
		copy $n "$(array_uri $n)" "$CLUSTER_DIR/read"
		cmp "$CLUSTER_DIR/new" "$CLUSTER_DIR/read" || fail "an old write of node 1 has landed, read through node $n"
	done
	serve 1 2 3
	dropped
}
until attempt; do
	[ $((tries++)) -lt 4 ] || fail "no run counted: writes that were not sent yet are wanted"
	step "that did not count: once more"
done
measured "$sent writes came in before it stood still, and none when it woke up; it serves again after $(($(now_ms) - woken)) ms"
copy 1 "$(array_uri 1)" "$CLUSTER_DIR/read"
cmp "$CLUSTER_DIR/new" "$CLUSTER_DIR/read" || fail "wrong data, read through node 1"
copy 3 "$CLUSTER_DIR/zero" "$(array_uri 3)"
writers_start 1 2 3
writers_stop 1 2 3
compare_on 1 2 3
finish 1 2 3
