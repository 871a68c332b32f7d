#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two at once who want one device, on one node. By one name for it, the daemon decides; by two (an exporter that offers a file
# on two sockets), the device itself: `create` against `create`, and against `add`. One has it at most, and keeps its data. Then a
# create whose client is killed, and one whose daemon is, at several moments: the same create, asked for again, works.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin creates
# Each disk is offered on two sockets, by two servers that know nothing of each other.
disk_up() {
	local way
	truncate -s 32M "$tmp/m$1"
	for way in a b; do
		kit_up "m$1.$way" --filter=delay file "$tmp/m$1" wdelay=20ms
	done
}
disk_clear() {
	local i
	for i; do
		truncate -s 0 "$tmp/m$i"
		truncate -s 32M "$tmp/m$i"
	done
}
away() { # ARRAY...
	local a
	for a; do
		! ctl get "$a" >/dev/null 2>&1 || ctl forget "$a" --disconnect >/dev/null 2>&1 || fail "forget $a"
	done
}
whole() { # ARRAY
	until_true 10 holds "$1" 'a["io_allowed"] and all(m["state"] == "in-sync" for m in a["members"])'
	nbd "$1" 'h.pwrite(b"x" * (1 << 20), 0); h.flush(); assert h.pread(1 << 20, 0) == b"x" * (1 << 20)' || fail "I/O to $1"
}

configure '[fence]' 'fence = none' '[members]' 'zombie_timeout = 500ms'
for i in 0 1 2 3 4 5 6; do
	disk_up $i
done
daemon_up

race() { # WAY of the second
	local a b
	ctl create one --order 1 --stripe 4K --zeroed --old-member --unaligned "$(uri m0.a)" "$(uri m1.a)" "$(uri m2.a)" >"$tmp/out.1" 2>&1 &
	a=$!
	ctl create two --order 1 --stripe 4K --zeroed --old-member --unaligned "$(uri "m2.$1")" "$(uri m3.a)" "$(uri m4.a)" >"$tmp/out.2" 2>&1 &
	b=$!
	ra=0 rb=0
	wait $a || ra=$?
	wait $b || rb=$?
	[ $ra != 0 ] || whole one
	[ $rb != 0 ] || whole two
}
# Each round of these takes half a minute: DDRAID_TEST_ROUNDS of them (tools/check --all). One dies at other moments each day.
rounds=${DDRAID_TEST_ROUNDS:-1}
moments=(0.02 0.3 0.9 1.5 2.2)
day=$(($(date -u +%s) / 86400))
[ "$rounds" -gt 1 ] || moments=("${moments[day % 5]}" "${moments[(day + 2) % 5]}")
# By one name: exactly one, and the other hears who has it.
race a
[ $((ra == 0)) != $((rb == 0)) ] || fail "exit $ra and $rb: $(tail -qn1 "$tmp"/out.[12])"
grep -q "is wanted by the create of \(one\|two\) on node 1" "$tmp"/out.[12] || fail "who has it: $(tail -qn1 "$tmp"/out.[12])"
away one two
# By two: at most one; and nobody's data is another's. Both may lose now and then.
won=0
lost_it='taken at the same time\|was made a member of .* at the same time\|being made a member\|which this cluster has'
for ((k = 1; k <= rounds; k++)); do
	disk_clear 0 1 2 3 4
	race b
	won=$((won + (ra == 0) + (rb == 0)))
	[ $ra != 0 ] || [ $rb != 0 ] || fail "both have disk 2"
	[ $ra = 0 ] || grep -q "$lost_it" "$tmp/out.1" ||
		fail "one: $(cat "$tmp/out.1")"
	[ $rb = 0 ] || grep -q "$lost_it" "$tmp/out.2" ||
		fail "two: $(cat "$tmp/out.2")"
	[ -z "$(ls "$tmp/state" | grep making)" ] || fail "left: $(ls "$tmp/state")"
	away one two
done
[ "$rounds" = 1 ] || [ $won != 0 ] || fail "in $rounds rounds nobody had disk 2"

# add against create, by two names.
for ((k = 1; k <= rounds; k++)); do
	disk_clear 0 1 2 3 4 5
	ctl create w --order 1 --stripe 4K --zeroed --old-member --unaligned "$(uri m0.a)" "$(uri m1.a)" "$(uri m2.a)" >"$tmp/out" 2>&1 || fail "w: $(cat "$tmp/out")"
	whole w
	ctl fail w 1 >/dev/null 2>&1 || fail "fail"
	ctl add w 1 "$(uri m3.a)" --old-member >"$tmp/out.1" 2>&1 &
	a=$!
	ctl create y --order 1 --stripe 4K --zeroed --old-member --unaligned "$(uri m3.b)" "$(uri m4.a)" "$(uri m5.a)" >"$tmp/out.2" 2>&1 &
	b=$!
	ra=0 rb=0
	wait $a || ra=$?
	wait $b || rb=$?
	[ $ra != 0 ] || [ $rb != 0 ] || fail "both have disk 3"
	if [ $ra = 0 ]; then
		ctl status w --wait --timeout 40 >/dev/null 2>&1 || fail "w is not rebuilt: $(ctl status w)"
		whole w
	fi
	if [ $rb = 0 ]; then
		whole y
	fi
	nbd w 'assert h.pread(1 << 20, 0) == b"x" * (1 << 20)' || fail "w has lost data"
	away w y
done

# A client, then a daemon, that is killed; asked for again, without a word on what to overwrite.
disk_clear 0 1 2
create_v=(create v --order 1 --stripe 4K --zeroed)
for i in 0 1 2; do
	create_v+=("$(uri m$i.a)")
done
for who in client daemon; do
	for at in "${moments[@]}"; do
		disk_clear 0 1 2
		"$top_builddir/ddraidctl" --ipc "$(socket)" "${create_v[@]}" --unaligned --old-member >"$tmp/out" 2>&1 &
		a=$!
		sleep $at
		case $who in
		client) kill -KILL $a 2>/dev/null || true ;;
		daemon)
			end daemon KILL
			daemon_up
			;;
		esac
		wait $a 2>/dev/null || true
		if ! ctl get v >/dev/null 2>&1 || [ $who = client ]; then
			ctl "${create_v[@]}" --unaligned --old-member >"$tmp/out" 2>&1 || grep -q "there is an array v already" "$tmp/out" ||
				fail "$who killed after $at s, again: $(cat "$tmp/out")"
		fi
		whole v
		until_true 5 test ! -e "$tmp/state/v.making"
		away v
	done
done

carries() { # FILE EXPRESSION: before its log, all of whose blocks are one line to grep
	head -c 64K "$1" | grep -qa "$2"
}
# What a killed one has left stays known until it is undone, whatever another create of that name comes to meanwhile.
disk_clear 0 1 2
end m0.a KILL
kit_up m0.a --filter=delay file "$tmp/m0" wdelay=2 # for so long the claim is seen before the superblock is written over it
ctl "${create_v[@]}" --unaligned --old-member >"$tmp/out" 2>&1 &
a=$!
until_true 20 carries "$tmp/m0" ddraidcl
end daemon KILL
wait $a 2>/dev/null || true
end m0.a KILL
daemon_up
! ctl "${create_v[@]}" --unaligned --old-member >"$tmp/out" 2>&1 || fail "created without m0"
grep -q "m0.a" "$tmp/out" || fail "not for m0: $(cat "$tmp/out")"
[ -e "$tmp/state/v.making" ] || fail "nobody knows any more what the killed create has left"
end daemon KILL
kit_up m0.a --filter=delay file "$tmp/m0" wdelay=20ms
daemon_up
until_true 20 test ! -e "$tmp/state/v.making"
# What it had written of the log by then is nobody's, and stays.
! carries "$tmp/m0" "ddraid\(cl\|sb\|us\)" || fail "something of the killed create is left"
echo "ok"
