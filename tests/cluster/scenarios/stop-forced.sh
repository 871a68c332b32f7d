#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An array is stopped by force while a client's write waits for members. Nobody is told an error of a write that may still be written: if
# the members come back in time, the client hears that it succeeded; if not, it hears of the error when its node writes no more, and what
# another node writes in the same place then, stays.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# A connection is tried again after 200 ms and then twice as long each time: the last attempt before the members are back may be the one
# after three seconds, the next comes three later.
CLUSTER_CONF='stop_timeout = 12s\n'

# write_begins VALUE: by node 1, into the first block, where it waits.
write_begins() {
	rm -f "$CLUSTER_DIR"/write.*
	nbd_do 1 "
try:
    h.pwrite(b'$1' * 4096, 0)
    said = 'success'
except nbd.Error as e:
    said = 'error: %s' % e.string
open('$CLUSTER_DIR/write.new', 'w').write(said)
import os
os.rename('$CLUSTER_DIR/write.new', '$CLUSTER_DIR/write.said')" >"$CLUSTER_DIR/write.out" 2>&1 &
	writer=$!
	within 10 "a write waits on node 1" holds 1 'a["requests"] > 0'
}
stop_begins() {
	began=$SECONDS
	ctl 1 stop vol0 --disconnect >"$CLUSTER_DIR/stop" 2>&1 &
	stopper=$!
}
block_is() { # N VALUE
	nbd_do "$1" "sys.exit(h.pread(4096, 0) != b'$2' * 4096)"
}
two_die() {
	exporter_kill 1
	exporter_kill 2
}
two_come_back() {
	exporter_restart 1 && exporter_restart 2 || fail "an exporter does not start"
}

array_up 3 1
nbd_do 2 "h.pwrite(b'o' * 4096, 0)" || fail "node 2 can't write"
two_die
write_begins a
stop_begins
step "it is stopped by force"
sleep 2
[ ! -e "$CLUSTER_DIR/write.said" ] || fail "the write was answered before it had ended: $(cat "$CLUSTER_DIR/write.said")"
two_come_back
wait $stopper || fail "stop: $(cat "$CLUSTER_DIR/stop")"
wait $writer
[ "$(cat "$CLUSTER_DIR/write.said")" = success ] || fail "the write that was written: $(cat "$CLUSTER_DIR/write.said" "$CLUSTER_DIR/write.out")"
! full_fence 1 || fail "node 1 has left cleanly, and was fenced"
block_is 2 a || fail "node 2 does not read what was written"
step "what waited was written in time"
ctl 1 start vol0 >/dev/null || fail "start"
serve 1 2 3

two_die
write_begins b
stop_begins
step "again, and no member comes back in time"
sleep 3
[ ! -e "$CLUSTER_DIR/write.said" ] || fail "the write was answered before it had ended: $(cat "$CLUSTER_DIR/write.said")"
wait $stopper || fail "stop: $(cat "$CLUSTER_DIR/stop")"
measured "the stop took $((SECONDS - began)) s of the 12 that it may wait"
wait $writer
grep -q ^error "$CLUSTER_DIR/write.said" || fail "the write that was given up: $(cat "$CLUSTER_DIR/write.said" "$CLUSTER_DIR/write.out")"
log_has 1 "not drained within 12000 ms" || fail "node 1 does not say that it was not drained"
two_come_back
within 30 "the fence of node 1" full_fence 1
serve 2 3
nbd_do 2 "h.pwrite(b'c' * 4096, 0)" || fail "node 2 can't write"
sleep 2
node_kill 1
node_back 1
ctl 1 start vol0 >"$CLUSTER_DIR/start" 2>&1 || grep -q running "$CLUSTER_DIR/start" || fail "start: $(cat "$CLUSTER_DIR/start")"
serve 1 2 3
for n in 1 2 3; do
	block_is "$n" c || fail "node $n does not read what was written last"
done
finish 1 2 3
