#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node dies and its fence fails for a while. What it had marked stays held: reads wait, a write that needs a new
# lock waits, and so do writes where the dead node may have been writing, too (R5); the status says for whom. When
# the fence succeeds, all goes on.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
writers_start 1 2 3
fences_forget
fence_break
step "node 3 is powered off, and its fence fails"
began=${EPOCHREALTIME/[.,]/}
node_kill 3
within 20 "node 2 says that it waits for the fence of node 3" holds 2 \
	'a["waits"] and "fence" in a["waits"]["for"] and a["waits"]["node"] == 3'
members_check || fail "the members: $(raw 'r["problems"]')"
marked=$(raw '[s["dirty"] for s in r["slots"] if s["node"] == 3][0]')
[ "$marked" != "[]" ] || fail "node 3 had nothing marked"

# A read where node 3 had a mark, and a write where nobody has one.
last=$(($(tells 1 'a["geometry"]["size_bytes"]') - 4096))
nbd_do 1 'h.pread(4096, 0)' >"$CLUSTER_DIR/read.out" 2>&1 &
reader=$!
nbd_do 2 "h.pwrite(bytearray(4096), $last)" >"$CLUSTER_DIR/write.out" 2>&1 &
writer=$!
sleep 3
kill -0 $reader 2>/dev/null || fail "a read in a marked region of a node that was not fenced: $(cat "$CLUSTER_DIR/read.out")"
kill -0 $writer 2>/dev/null || fail "a lock was granted before the fence: $(cat "$CLUSTER_DIR/write.out")"
ctl 1 status vol0 >"$CLUSTER_DIR/status"
grep -E "fence.*node 3.* [0-9.]+ s" "$CLUSTER_DIR/status" || fail "the status does not say it: $(cat "$CLUSTER_DIR/status")"
full_fence 3 && fail "it was fenced"
holds 1 'a["nodes_unfenced"] == 1' || fail "the status does not count it"
leader=$(tells 1 '[n["id"] for n in a["nodes"] if n["leader"]][0]')
holds "$leader" "'fence failed after' in [n['detail'] for n in a['nodes'] if n['id'] == 3][0]" ||
	fail "the leader's status does not say why: $(ctl "$leader" status vol0)"
measured "held for $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms, marked by node 3: $marked"
fence_mend
step "the fence works again"
mended=${EPOCHREALTIME/[.,]/}
wait $reader || fail "the read: $(cat "$CLUSTER_DIR/read.out")"
wait $writer || fail "the write: $(cat "$CLUSTER_DIR/write.out")"
measured "served $(((${EPOCHREALTIME/[.,]/} - mended) / 1000)) ms after the fence worked"
fence_proof 3 || fail "requests after the fence"
serve 1 2
writers_go_on 300 1 2
writers_stop 1 2
compare_on 1 2
finish 1 2
