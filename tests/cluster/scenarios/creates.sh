#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# create on several nodes at once: one name, or members that overlap: exactly one gets them, the others are told who has what.
# A create whose node loses its power half-way is undone when the node is back, and the same create works then, on another node.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

# at_once_create NAME ARGUMENT...: what `create NAME` answered on nodes 1 to 3; in RC, and in $CLUSTER_DIR/create.N
at_once_create() {
	local n name=$1 pids=()
	shift
	for n in 1 2 3; do
		ctl "$n" create "$name" --order 1 "$@" >"$CLUSTER_DIR/create.$n" 2>&1 &
		pids+=($!)
	done
	RC=()
	for n in "${pids[@]}"; do
		wait "$n"
		RC+=($?)
	done
}
won() {
	local n=0 rc
	for rc in "${RC[@]}"; do
		[ "$rc" != 0 ] || n=$((n + 1))
	done
	echo $n
}
gone() { # NODE NAME
	! ctl "$1" status "$2" >/dev/null 2>&1
}
away() { # NAME
	local n
	ctl 1 stop "$1" --all-nodes >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
	ctl 1 forget "$1" >"$CLUSTER_DIR/forget" 2>&1 || fail "forget: $(cat "$CLUSTER_DIR/forget")"
	for n in 1 2 3; do
		within 10 "node $n has forgotten $1" gone $n "$1"
	done
}

array_up 3 1
uris=()
for i in "${ARRAY_MEMBERS[@]}"; do
	uris+=("$(exporter_uri "$i")")
done
away vol0

step "the same create on three nodes at once"
for k in 1 2 3; do
	at_once_create vol0 --old-member "${uris[@]}"
	[ "$(won)" = 1 ] || fail "round $k: exit ${RC[*]}: $(tail -qn1 "$CLUSTER_DIR"/create.[123])"
	for n in 1 2 3; do
		[ "${RC[n - 1]}" = 0 ] || grep -q "create of vol0 on node [123]\|node [123] knows" "$CLUSTER_DIR/create.$n" ||
			fail "node $n does not say who has it: $(cat "$CLUSTER_DIR/create.$n")"
	done
	serve 1 2 3
	uuid=$(tells 1 'a["uuid"]')
	for n in 2 3; do
		[ "$(tells $n 'a["uuid"]')" = "$uuid" ] || fail "node $n has another vol0"
	done
	nbd_do 1 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "it can't be written"
	away vol0
done

step "its node loses its power half-way"
for at in 0.4 1.2; do
	ctl 1 create vol0 --order 1 --old-member "${uris[@]}" >"$CLUSTER_DIR/create.1" 2>&1 &
	pid=$!
	within 10 "the create writes" test -e "$CLUSTER_DIR/node1/var-lib-ddraid/vol0.making"
	sleep "$at"
	node_kill 1
	wait "$pid" && fail "the create of a node without power succeeds"
	node_back 1
	within 30 "the create is undone" test ! -e "$CLUSTER_DIR/node1/var-lib-ddraid/vol0.making"
	log_has 1 "a create that was cut off is undone" || fail "node 1 does not say so"
	gone 2 vol0 || fail "half an array is left"
	ctl 2 create vol0 --order 1 "${uris[@]}" >"$CLUSTER_DIR/create.2" 2>&1 || fail "again: $(cat "$CLUSTER_DIR/create.2")"
	serve 1 2 3
	[ "$at" = 1.2 ] || away vol0
done
nbd_do 1 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "it can't be written"
ctl 1 status vol0 --wait --timeout 40 >/dev/null 2>&1 || fail "it is not whole: $(ctl 1 status vol0)"
finish 1 2 3
