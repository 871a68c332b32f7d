#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Members that were restored from a backup are older than what the nodes know: at the next boot the array is refused on all
# nodes (R1). `start --stale` on a node that does not lead takes effect then, and what the backup had is there.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

refused() { # with the reason, also where another node leads
	[ "$(tells "$1" 'a["state"]')" = refused ] && ctl "$1" status vol0 | grep -q "only stale members"
}

array_up 3 1
nbd_do 1 'h.pwrite(b"backup!!" * 8192, 0); h.flush()' || fail "it can't be written"
for n in 1 2 3; do
	daemon_stop $n
done
members_copy
for n in 1 2 3; do
	daemon_start $n
done
serve 1 2 3
ctl 1 fail vol0 0 >/dev/null 2>&1 || fail "fail"
ctl 1 add vol0 0 "$(exporter_uri "${ARRAY_MEMBERS[0]}")" --old-member --wait --timeout 30 >"$CLUSTER_DIR/add" 2>&1 ||
	fail "add: $(cat "$CLUSTER_DIR/add")"
for n in 1 2 3; do
	daemon_stop $n
done
for i in "${ARRAY_MEMBERS[@]}"; do
	cp --sparse=always "$CLUSTER_DIR/copy$i" "$(exporter_disk "$i")"
done
step "boot with the backup"
for n in 1 2 3; do
	daemon_start $n
done
for n in 1 2 3; do
	within 20 "node $n is refused" refused $n
done
ctl 3 start vol0 --stale --wait --timeout 20 >"$CLUSTER_DIR/start" 2>&1 || fail "start --stale: $(cat "$CLUSTER_DIR/start")"
log_has 3 "is assembled also in an older state" || fail "the log does not tell"
serve 1 2 3
nbd_do 2 'assert h.pread(65536, 0) == b"backup!!" * 8192' || fail "it does not have what the backup had"
ctl 2 start vol0 --stale >"$CLUSTER_DIR/start" 2>&1 || fail "start --stale of one that is active: $(cat "$CLUSTER_DIR/start")"
grep -q "that was not needed" "$CLUSTER_DIR/start" || fail "it does not say that it was not needed: $(cat "$CLUSTER_DIR/start")"
ctl 1 status vol0 --wait --timeout 40 >/dev/null 2>&1 || fail "it is not whole: $(ctl 1 status vol0)"
finish 1 2 3
