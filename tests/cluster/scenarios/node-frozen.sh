#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A whole node, which leads, stands still in the middle of its writes, as a virtual machine that is paused: corosync, ddraidd
# and its users. The others fence it and write the same blocks. Its port is plugged in again and it is let
# back to the disks while it still stands; so when it goes on, nothing but its own daemon keeps it from sending what
# it had begun. It comes back as a new incarnation, and none of its old writes has landed.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# dlm_controld would cut this machine's power, and nothing of it would wake up (dlm-fence-cut does that).
LAB_DLM=no

FIRST=$((16 << 20)) BYTES=$((12 << 20)) # behind what the writers use

# write_all N FILE: through node N, to these blocks. blocks_are_new N: so they read through node N.
write_all() {
	nbd_do "$1" "d = open('$2', 'rb').read()
for at in range(0, $BYTES, 1 << 20):
	h.pwrite(d[at:at + (1 << 20)], $FIRST + at)
h.flush()"
}
blocks_are_new() {
	nbd_do "$1" "d = open('$CLUSTER_DIR/new', 'rb').read()
for at in range(0, $BYTES, 1 << 20):
	assert h.pread(1 << 20, $FIRST + at) == d[at:at + (1 << 20)], at" || fail "an old write of node 1 has landed, read through node $1"
}

for i in 1 2 3; do
	EXPORTER_ARGS[$i]="--filter=delay delay-write=10ms"
done
array_up_led_by_1 3 1
head -c $BYTES /dev/urandom >"$CLUSTER_DIR/old"
head -c $BYTES /dev/urandom >"$CLUSTER_DIR/new"
writers_start 2 3
writers_start --reconnect 1
# Many at once, and always some under way.
node_use 1 timeout -s KILL "$(patience 40)" /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
d = open(sys.argv[2], "rb").read()
first, flying, at = int(sys.argv[3]), [], 0
while True:
	flying.append(h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(d[at:at + 65536])), first + at))
	at = (at + 65536) % len(d)
	while len(flying) > 63:
		h.poll(100)
		flying = [f for f in flying if not h.aio_command_completed(f)]' \
	"$(array_uri 1)" "$CLUSTER_DIR/old" $FIRST >"$CLUSTER_DIR/old.out" 2>&1 &
old_writer=$!
written() {
	[ "$(tells 1 'a["counters"]["write_bytes"]')" -ge $BYTES ]
}
within 10 "node 1 has written to all of these blocks" written
fences_forget
log_mark 1
flying=$(tells 1 'a["member_requests"]')
step "node 1 stands still, with $flying requests at members"
began=${EPOCHREALTIME/[.,]/}
node_freeze 1
within 20 "the fence of node 1" full_fence 1
writers_go_on 500 2 3
measured "the others went on $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after it stood still, with $flying requests under way"
write_all 2 "$CLUSTER_DIR/new" || fail "node 2 can't write"
step "it may use network and disks again, and goes on"
unfence 1
woken=${EPOCHREALTIME/[.,]/}
node_thaw 1
within 30 "node 1 has a new incarnation" log_has 1 "joins again as incarnation"
cluster_wait_quorum 20 1 2 3 || fail "no quorum"
writers_go_on 300 1 2 3
measured "it wrote again $(((${EPOCHREALTIME/[.,]/} - woken) / 1000)) ms after it went on"
! wait $old_writer || fail "its writer kept its open (R6)"
for n in 3 2 1; do
	blocks_are_new $n
done
fence_proof 1 || fail "requests after the fence"
writers_stop 1 2 3
! grep -q " 0 times thrown out" "$CLUSTER_DIR/load.1.out" || fail "the writer of node 1 kept its open (R6)"
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
