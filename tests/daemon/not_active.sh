#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An array that is not active, as one that is refused for want of members, and one whose node's former life is to be fenced: what
# is asked of it is refused with what it waits for and with the members that are not reached; a start that runs out of its time, too.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs
begin inactive
configure '[fence]' 'fence = command' "fence_command = $tmp/fence"
cat >"$tmp/fence" <<-EOC
	#!/bin/sh
	while [ -e "$tmp/fence.waits" ] && [ -d "$tmp" ]; do sleep 0.1; done
EOC
chmod +x "$tmp/fence"
at_end() {
	rm -f "$tmp/fence.waits"
}
for i in 0 1 2 3; do
	truncate -s 24M "$tmp/m$i"
done
# not_now MOST_SECONDS WORDS COMMAND...: with status 6, by then, and with these words on the last line.
not_now() {
	local most=$1 words=$2 status=0 began=$SECONDS
	shift 2
	ctl "$@" >"$tmp/out" 2>&1 || status=$?
	[ $status = 6 ] || fail "$*: status $status, $(cat "$tmp/out")"
	[ $((SECONDS - began)) -le "$most" ] || fail "$* took $((SECONDS - began)) s: $(cat "$tmp/out")"
	tail -1 "$tmp/out" | grep -q "$words" || fail "$*: not '$words': $(cat "$tmp/out")"
}

daemon_up
ctl create v0 --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds v0 'a["io_allowed"]'

echo "refused for want of a member"
ctl fail v0 2 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
ctl stop v0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
mv "$tmp/m0" "$tmp/away"
why="refused: fewer members in sync are reachable .*; this node does not reach member 0 ($tmp/m0: can't open it .*No such file"
not_now 15 "not through within the timeout; .* but the array is $why" start v0 --timeout 10
until_true 20 holds v0 'a["state"] == "refused"'
for command in "re-add v0 0" "re-add v0 2" "fail v0 1" "add v0 2 $tmp/m3"; do
	# shellcheck disable=SC2086
	not_now 8 "member [0-9] of v0: nothing is changed, since the array is $why" $command
done
! grep -q "settling" "$tmp/out" || fail "it is not settling: $(cat "$tmp/out")"
mv "$tmp/away" "$tmp/m0"
until_true 20 holds v0 'a["io_allowed"]'
ctl stop v0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
mv "$tmp/m0" "$tmp/away"
mv "$tmp/m1" "$tmp/away1"
not_now 9 "not through within the timeout; .*; this node does not reach member 0 ($tmp/m0: .*), member 1 (" start v0 --timeout 4
mv "$tmp/away" "$tmp/m0"
mv "$tmp/away1" "$tmp/m1"
until_true 20 holds v0 'a["io_allowed"]'

echo "its former life is being fenced"
: >"$tmp/fence.waits"
end daemon KILL
daemon_up
for command in "fail v0 2" "re-add v0 2" "add v0 2 $tmp/m3"; do
	# shellcheck disable=SC2086
	not_now 8 "member 2 of v0: nothing is changed, since the array is not active here yet: it waits for .*fence" $command
done
not_now 8 "not through within the timeout; it goes on in the background, and waits for .*fence" start v0 --timeout 2
rm "$tmp/fence.waits"
until_true 20 holds v0 'a["io_allowed"]'
ctl add v0 2 "$tmp/m3" --wait >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"

echo "stopped"
ctl stop v0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
for command in "fail v0 2" "re-add v0 2" "add v0 2 $tmp/m2"; do
	# shellcheck disable=SC2086
	not_now 8 "nothing is changed, since the array does not run here; start it first" $command
done

echo "stopped and started at once: each of the two is answered"
ctl start v0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
for i in 1 2 3; do
	began=$SECONDS
	ctl stop v0 >"$tmp/stop" 2>&1 &
	stop=$!
	# Either may come first.
	status=0
	ctl start v0 >"$tmp/start" 2>&1 || status=$?
	case $status in
	0) ;;
	6) grep -q "somebody has stopped v0 meanwhile" "$tmp/start" || fail "start: $(cat "$tmp/start")" ;;
	*) fail "start: status $status, $(cat "$tmp/start")" ;;
	esac
	status=0
	wait "$stop" || status=$?
	[ $((SECONDS - began)) -lt 20 ] || fail "it took $((SECONDS - began)) s"
	case $status in
	0) ;;
	6) grep -q "somebody has started v0 again meanwhile" "$tmp/stop" || fail "stop: $(cat "$tmp/stop")" ;;
	*) fail "stop: status $status, $(cat "$tmp/stop")" ;;
	esac
	ctl start v0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
done
echo "ok"
