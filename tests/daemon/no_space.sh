#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Members whose stores have no space for a moment, more of them than may be lost: the write waits, log and status
# name the member and the cause, and it is through as soon as there is space again.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin space
configure '[fence]' 'fence = none'
for i in 0 1 2; do # the writes of m$i fail while full$i exists
	kit_up m$i -t 1 --filter=error memory 64M error-pwrite=ENOSPC error-pwrite-rate=1 error-file="$tmp/full$i"
done
daemon_up
ctl create v --order 1 --zeroed --set release_delay=60000 "$(uri m0)" "$(uri m1)" "$(uri m2)" >"$tmp/out" 2>&1 ||
	fail "create: $(cat "$tmp/out")"
until_true 10 holds v 'a["io_allowed"]'
# Its region is marked from then on: else it is the mark that fails, and that is not tried again (R14).
nbd v 'h.pwrite(b"a" * 4096, 0)'
for pair in "0 1" "2"; do # the second time one member is missing already
	for i in $pair; do
		: >"$tmp/full$i"
	done
	nbd v 'h.pwrite(b"'"${pair: -1}"'" * 4096, 0); assert h.pread(4096, 0) == b"'"${pair: -1}"'" * 4096' &
	pid[write]=$!
	if [ "$pair" = 2 ]; then
		until_true 30 grep -q "member 2: write at byte [0-9]* failed: No space left on device" "$tmp/log"
		until_true 30 holds v '"tried again each second" in a["waits"]["for"] and "No space left" in a["members"][2]["error"]'
	else
		until_true 30 grep -q "member 0: write at byte [0-9]* failed: No space left on device" "$tmp/log"
		until_true 30 grep -q "member 1: write at byte [0-9]* failed: No space left on device" "$tmp/log"
	fi
	kill -0 "${pid[write]}" || fail "the write has ended: $(ctl status v)"
	rm "$tmp"/full?
	wait "${pid[write]}" || fail "the write failed"
	unset "pid[write]"
	until_true 30 holds v 'a["io_allowed"] and not a["waits"]'
done
holds v '[m["state"] for m in a["members"]].count("in-sync") == 2' || fail "$(ctl status v)"
