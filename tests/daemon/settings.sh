#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Settings of an array that runs, on plain files, as any user: what counts at once, what from its next start on, and that
# `set` and `get` say which. A restart changes nothing.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin settings
serves() {
	daemon_up
	until_true 10 holds vol0 'a["io_allowed"]'
}
write_some() {
	nbd vol0 'h.pwrite(b"x" * 65536, 0)'
}
# set_says WORDS SETTING..., set_is_quiet SETTING...: whether it has to wait for the next start.
set_says() {
	ctl set vol0 "$2" >"$tmp/out" 2>&1 || fail "set $2: $(cat "$tmp/out")"
	grep -q "$1" "$tmp/out" || fail "set $2 does not say '$1': $(cat "$tmp/out")"
}
set_is_quiet() {
	ctl set vol0 "$1" >"$tmp/out" 2>&1 || fail "set $1: $(cat "$tmp/out")"
	! grep -q "start" "$tmp/out" || fail "set $1 is said to count later: $(cat "$tmp/out")"
}

configure '[fence]' 'fence = none'
for i in 0 1 2; do
	truncate -s 24M "$tmp/m$i"
done
daemon_up
! ctl create vol0 --order 1 --set foo=1 "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "an option that there is not"
options=$(sed -n '/^\.Sh SETTINGS/,/^\.Sh STATUS/s/^\.It Ic //p' "$top_srcdir/doc/man/ddraidctl.8" | paste -sd , | sed 's/,/, /g')
grep -qF "there is no option foo; there are $options; see SETTINGS in ddraidctl(8)" "$tmp/out" || fail "not said: $(cat "$tmp/out")"
ctl create vol0 --order 1 --stripe 4K --zeroed --old-member --unaligned --set release_delay=10min "$tmp/m0" "$tmp/m1" "$tmp/m2" \
	>"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"

write_some
sleep 0.3
holds vol0 'a["regions_dirty"] > 0' || fail "a mark is cleared before the release delay"
set_is_quiet release_delay=100ms
until_true 3 holds vol0 'a["regions_dirty"] == 0'
set_is_quiet member_retry=5s
set_is_quiet checkpoint_regions=7
set_is_quiet when_lost=eio
set_is_quiet mark_ahead=no

! ctl set vol0 listen=tcp:127.0.0.1:1,tcp:127.0.0.1:1 >"$tmp/out" 2>&1 || fail "one address twice was taken"
grep -q "names tcp:127.0.0.1:1 twice" "$tmp/out" || fail "$(cat "$tmp/out")"
set_says "it counts from the array's next start" listen=tcp:127.0.0.1:1
ctl get vol0 listen | grep -q "here it is none until then" || fail "get: $(ctl get vol0 listen)"
set_is_quiet mark_ahead=yes
ctl set vol0 listen= >"$tmp/out" 2>&1 || fail "listen: $(cat "$tmp/out")"
! ctl get vol0 | grep "until then" || fail "get says that something waits"
set_says "it counts from the array's next start" force_members=yes
ctl get vol0 force_members | grep -q "yes.*set.*here it is no until then" || fail "get: $(ctl get vol0 force_members)"
! ctl status vol0 | grep "force_members is on" || fail "status warns of what does not count yet"

end daemon TERM
serves
ctl get vol0 >"$tmp/out"
grep -q "^release_delay = 100ms .*set" "$tmp/out" && grep -q "^member_retry = 5000ms .*set" "$tmp/out" ||
	fail "lost by a restart: $(cat "$tmp/out")"
! grep "until then" "$tmp/out" || fail "something waits after the start"
ctl status vol0 | grep -q "force_members is on" || fail "status does not warn of force_members"
set_says "next start" force_members=no
ctl status vol0 | grep -q "force_members is on" || fail "the warning ended before what it warns of"
write_some
until_true 3 holds vol0 'a["regions_dirty"] == 0'
ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
echo "ok"
