#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon that stands still: the limits of ddraidctl hold all the same, its own and --timeout, while it connects, sends and
# waits; and it says that the daemon does not answer, and what to look at. When the daemon goes on, so does all else.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs
begin still
configure '[fence]' 'fence = none'
array_up vol0

# ends STATUS AT_LEAST AT_MOST OUT COMMAND...: with that status, after so many seconds.
ends() {
	local want=$1 least=$2 most=$3 out=$4 status=0 began=$SECONDS took
	shift 4
	ctl "$@" >"$out" 2>&1 || status=$?
	took=$((SECONDS - began))
	[ $status = "$want" ] || fail "$*: status $status: $(cat "$out")"
	[ $took -ge "$least" ] && [ $took -le $((most * ${DDRAID_PATIENCE:-1})) ] || fail "$* took $took s: $(cat "$out")"
}
says_stopped() { # OUT
	grep -q "ddraidd (socket $(socket)) does not answer, .*process ${pid[daemon]} is stopped .*'kill -CONT ${pid[daemon]}'" "$1" ||
		fail "not said: $(cat "$1")"
}

kill -s STOP "${pid[daemon]}"
default=
if [ "${DDRAID_TEST_ROUNDS:-1}" -gt 1 ]; then # with tools/check --all: its own limit
	ends 3 29 35 "$tmp/out.default" version &
	default=$!
fi
ends 3 1 5 "$tmp/out" status --timeout 2
says_stopped "$tmp/out"
waits=()
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do # more than the kernel keeps for a daemon that takes none
	ends 3 1 6 "$tmp/out.$i" status vol0 --timeout 2 &
	waits+=($!)
done
for i in "${waits[@]}"; do
	wait "$i" || fail "one of many clients: $(tail -qn1 "$tmp"/out.[0-9]*)"
done
grep -lq "process ${pid[daemon]} is stopped" "$tmp"/out.[0-9]* || fail "none of them says it: $(cat "$tmp"/out.[0-9]*)"
if [ -n "$default" ]; then
	wait $default || fail "without --timeout"
	says_stopped "$tmp/out.default"
fi
kill -s CONT "${pid[daemon]}"
until_true 10 ctl version --timeout 5

# It stops while a request is under way: a start that lacks members.
ctl fail vol0 2 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
mv "$tmp/m0" "$tmp/m0.away"
ends 6 5 9 "$tmp/out" start vol0 --timeout 6 &
started=$!
sleep 3
kill -s STOP "${pid[daemon]}"
wait $started || fail "while it waits"
grep -q "did not answer within the timeout; what was asked for goes on when it does: its process ${pid[daemon]} is stopped" "$tmp/out" ||
	fail "while it waits: $(cat "$tmp/out")"
kill -s CONT "${pid[daemon]}"
mv "$tmp/m0.away" "$tmp/m0"
until_true 20 holds vol0 'a["io_allowed"]'
echo "ok"
