#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The others' dlm_controld have to fence a node, and its power switch does not work at first: dlm-fence.sh cut|killed.
#
#	cut	it is cut off
#	killed	its dlm_controld is killed, upon which the others' end its corosync
#
# ddraid's own fence of it succeeds; its own daemon, with all members out of reach, waits. The DLM grants nothing of what it held;
# the status says what it waits for. When the switch works the node is off, and the others go on; started
# again, it serves again.
set -u
what=$1
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
writers_start 1 2 3
fences_forget
touch "$CLUSTER_DIR/power-broken"
began=${EPOCHREALTIME/[.,]/}
case $what in
cut)
	node_cut 3
	step "node 3 is cut off, and its power switch does not work"
	;;
killed)
	node_signal 3 dlm_controld KILL
	step "dlm_controld of node 3 is killed, and its power switch does not work"
	;;
esac
within 20 "ddraid's fence of node 3" full_fence 3
for n in 1 2; do
	within 30 "node $n says that the DLM waits for the fencing of node 3" holds $n \
		'"fencing" in a["lock_waits"] and "3" in a["lock_waits"]'
done
! grep -q "off 3" "$CLUSTER_DIR/power.log" 2>/dev/null || fail "node 3 is off already"

# A region that nobody has a lock on: no lock is granted, so the write waits.
last=$(($(tells 1 'a["geometry"]["size_bytes"]') - 4096))
nbd_do 1 "h.pwrite(bytearray(4096), $last)" >"$CLUSTER_DIR/write.out" 2>&1 &
writer=$!
sleep "$(patience 4)"
kill -0 $writer 2>/dev/null || fail "a lock was granted before the DLM's fence: $(cat "$CLUSTER_DIR/write.out")"
node_alive 3 ddraidd || fail "ddraidd of node 3 has ended: $(tail -n 3 "$CLUSTER_DIR/node3/log/ddraidd.out")"
! active 3 || fail "node 3 serves"
CTL_SECONDS=10 ctl 1 status vol0 | grep -E "locks +dlm, waits for: .*fencing" || fail "the status does not say it: $(ctl 1 status vol0)"
measured "held for $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"

step "the power switch works again"
mended=${EPOCHREALTIME/[.,]/}
rm "$CLUSTER_DIR/power-broken"
wait $writer || fail "the write: $(cat "$CLUSTER_DIR/write.out")"
measured "served $(((${EPOCHREALTIME/[.,]/} - mended) / 1000)) ms after that"
grep -q "off 3" "$CLUSTER_DIR/power.log" || fail "a lock was granted, and node 3 is not off"
fence_proof 3 || fail "requests after the fence"
writers_go_on 300 1 2
writers_stop 1 2
compare_on 1 2
step "node 3 comes back"
[ "$what" != cut ] || node_heal 3
node_back 3
serve 1 2 3
compare_on 3
finish 1 2 3
