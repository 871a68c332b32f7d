#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A member dies while all nodes write: service goes on degraded; a new one is added and rebuilt under the writes.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1 1
writers_start 1 2 3
step "exporter 2 is killed"
exporter_kill 2
within 15 "degraded" holds 1 'a["degraded"]'
writers_go_on 500 1 2 3
ctl 2 fail vol0 1 || fail "fail"
step "a new member"
began=${EPOCHREALTIME/[.,]/}
ctl 3 add vol0 1 "$(exporter_uri 4)" --wait >"$CLUSTER_DIR/add" 2>&1 || fail "add: $(cat "$CLUSTER_DIR/add")"
measured "rebuilt in $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms under writes"
ARRAY_MEMBERS=(1 4 3)
writers_go_on 500 1 2 3
writers_stop 1 2 3
for n in 1 2 3; do
	within 10 "node $n: not degraded" holds $n 'not a["degraded"]'
done
compare_on 1 2 3
finish 1 2 3
