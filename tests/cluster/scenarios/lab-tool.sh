#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tools/lab as who works with it types it: up, and an array and its block device as it says; shell, cut, heal, kill, start,
# logs and down; what can't be is refused with a reason; nothing is left after `down`, nor after an interrupt of `up`.
set -u
export LC_ALL=C CLUSTER_FLAVOUR=lab LAB_CACHE=${LAB_CACHE:-/var/cache/ddraid-lab}
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../../.." && pwd)}
top_builddir=$(cd "${top_builddir:-$top_srcdir}" && pwd)
export top_srcdir top_builddir
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"
cluster_requires && lab_image || exit 77

# A lab of its own, beside one that may be up: its state is there.
CLUSTER_TMP=$(mktemp -d "${CLUSTER_TMP:-/tmp}/ddraid-lab-tool.XXXXXX") || exit 1
mkdir "$CLUSTER_TMP/cache"
export CLUSTER_TMP LAB_IMAGE LAB_CACHE=$CLUSTER_TMP/cache
unset LAB_KEPT
export CLUSTER_TOKEN_MS=10000 # a cable that is pulled for a moment is nothing that one is fenced for
upper=

lab() {
	"$top_srcdir/tools/lab" "$@"
}
step() {
	printf '%3d s  %s\n' "$SECONDS" "$*"
}
fail() {
	echo "FAILED: $*"
	exit 1
}
the_end() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP
	[ -z "$upper" ] || { kill -TERM "$upper" 2>/dev/null; wait "$upper"; }
	lab down >/dev/null 2>&1
	wait_until 2 "nothing is left" nothing_left || { echo "FAILED: left: $(left)"; status=1; }
	[ $status != 0 ] || rm -rf "$CLUSTER_TMP"
	exit $status
}
trap the_end EXIT
trap 'exit 130' INT TERM HUP

# says TEXT COMMAND...: the command succeeds and says it.
says() {
	local text=$1 out
	shift
	out=$("$@" 2>&1) || fail "$*: $out"
	[[ $out = *"$text"* ]] || fail "$* does not say '$text': $out"
}
refused() {
	local text=$1 out
	shift
	! out=$(lab "$@" 2>&1) || fail "tools/lab $* was done: $out"
	[[ $out = *"$text"* ]] || fail "tools/lab $*: $out"
}
# reached FROM TO, by the cluster's network.
reached() {
	lab shell "$1" busybox ping -c 1 -W 3 "10.77.0.$2" >/dev/null 2>&1
}
not_reached() {
	! reached "$@"
}
# Prints what is there of labs of this test.
left() {
	local p
	ip netns list | awk -v p="${marked:-none}-" 'index($1, p) == 1'
	grep -F " $CLUSTER_TMP" /proc/self/mountinfo
	for p in /proc/[0-9]*; do
		! grep -qzxs "CLUSTER_TMP=$CLUSTER_TMP" "$p/environ" || [ "${p#/proc/}" = $$ ] ||
			[ "$(awk '/^PPid:/ { print $2 }' "$p/status" 2>/dev/null)" = $$ ] || tr '\0' ' ' <"$p/cmdline" 2>/dev/null
	done
	find "$CLUSTER_TMP" -mindepth 1 -maxdepth 1 ! -name cache
	find "$CLUSTER_TMP/cache" -name current
}
nothing_left() {
	[ -z "$(left)" ]
}

step "without a lab"
refused "no lab is up" shell 1
refused "1 to 9 machines" up 10
refused "tools/lab down" fly

step "up"
lab up >"$CLUSTER_TMP/cache/up" 2>&1 || fail "up: $(tail -n 20 "$CLUSTER_TMP/cache/up")"
seconds=$(sed -n 's/^3 machines, quorum and DLM after \([0-9]*\) s.*/\1/p' "$CLUSTER_TMP/cache/up")
[ "${seconds:-0}" -gt 0 ] && [ "$seconds" -le 120 ] || fail "up: $(cat "$CLUSTER_TMP/cache/up")" # 40 where nothing else runs
echo "measured quorum and DLM after $seconds s"
dir=$(cat "$LAB_CACHE/current")
marked=$(cat "$dir/name")
refused "a lab is up" up
for n in 1 2 3; do
	says "Quorate:          Yes" lab shell $n corosync-quorumtool -s
	says "quorate 1" lab shell $n dlm_tool status
done
says "Linux" lab shell 2 uname
lab shell 2 sh -c 'exit 7'
[ $? = 7 ] || fail "shell loses the exit status"
out=$(echo 'echo "in $(uname -n), $PWD"' | lab shell 2 2>&1) || fail "a shell: $out"
[[ $out = *"in node2, $PWD"* ]] || fail "a shell: $out"
# What it writes is its own.
lab shell 2 touch "/usr/lib/$marked" || fail "the root of machine 2 can't be written to"
[ ! -e "/usr/lib/$marked" ] && ! lab shell 1 test -e "/usr/lib/$marked" || fail "what machine 2 writes is not its own"
refused "there is no machine '4'" shell 4
refused "there is no machine 'x'" kill x

step "an array, as up says"
uris=()
for i in 1 2 3; do
	uris+=("$(lab exporter $i)") || fail "exporter $i"
done
grep -qF "create vol0 --order 1 ${uris[*]}" "$CLUSTER_TMP/cache/up" || fail "up does not name ${uris[*]}"
refused "a number from 1 to 99" exporter 0
lab shell 1 ddraidctl create vol0 --order 1 "${uris[@]}" || fail "create"
for n in 1 2 3; do
	lab shell $n ddraidctl status vol0 --wait >/dev/null || fail "machine $n does not serve"
done
if ! grep -q "no driver" "$CLUSTER_TMP/cache/up"; then
	says "/dev/ddraid/vol0" lab shell 1 ddraidctl attach vol0
	says "" lab shell 1 dd if=/dev/ddraid/vol0 of=/dev/null bs=64k count=1
fi

step "cut and heal"
reached 1 2 || fail "machine 1 does not reach 2"
lab cut 2 || fail "cut"
not_reached 1 2 || fail "machine 1 reaches 2, whose cable is pulled"
lab shell 2 true || fail "no shell in a machine whose cable is pulled"
lab heal 2 || fail "heal"
wait_until 10 "machine 1 reaches 2" reached 1 2 || fail "not healed"

step "kill and start"
lab kill 3 || fail "kill"
refused "machine 3 is off; tools/lab start 3" shell 3 true
refused "machine 3 is off" kill 3
refused "machine 3 is off" cut 3
lab start 3 || fail "start"
refused "machine 3 is on" start 3
lab shell 3 ddraidctl status vol0 --wait >/dev/null || fail "machine 3 does not serve"

step "logs and down"
says "$CLUSTER_TMP/cache/logs" lab logs "$CLUSTER_TMP/cache/logs"
for n in 1 2 3; do
	for f in console.log ddraidd.out; do
		[ -s "$CLUSTER_TMP/cache/logs/node$n/log/$f" ] || fail "logs: no $f of machine $n: $(find "$CLUSTER_TMP/cache/logs" -type f)"
	done
done
lab down || fail "down"
nothing_left || fail "left after down: $(left)"
refused "no lab is up" down

step "up is interrupted"
for signal in TERM INT; do
	[ $signal = TERM ] && process=node1.init || process=node3.init
	# In a job's own group, as a terminal's; a background one would ignore INT.
	set -m
	lab up >"$CLUSTER_TMP/cache/up" 2>&1 &
	upper=$!
	set +m
	begun() {
		compgen -G "$CLUSTER_TMP/ddraid-*/pids/$process" >/dev/null
	}
	wait_until 20 "its machines start" begun || fail "up: $(cat "$CLUSTER_TMP/cache/up")"
	marked=$(cat "$CLUSTER_TMP"/ddraid-*/name)
	kill -$signal -- "-$upper"
	wait "$upper"
	status=$?
	upper=
	[ $status != 0 ] || fail "up, interrupted by $signal, says 0"
	# What it had just begun, a poll, ends by itself in a moment.
	wait_until 2 "nothing is left" nothing_left || fail "left after $signal: $(left)"
done
echo "measured nothing is left"
