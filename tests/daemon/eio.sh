#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# when_lost=eio: two of three exporters are killed, or stand still. Reads, writes and flushes fail then within the time
# that ddraidctl(8) says, and the array goes on when the exporters are back.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin eio
configure '[fence]' 'fence = none' 'zombie_timeout = 6s' '[members]' 'zombie_timeout = 2s' 'request_timeout = 3s'
for i in 0 1 2; do
	truncate -s 64M "$tmp/m$i"
	kit_up m$i -t 1 file "$tmp/m$i"
done
daemon_up
ctl create v --order 1 --zeroed --set when_lost=eio "$(uri m0)" "$(uri m1)" "$(uri m2)" >"$tmp/out" 2>&1 ||
	fail "create: $(cat "$tmp/out")"
until_true 10 holds v 'a["io_allowed"]'
# all_fail SECONDS: each of these, each by a client of its own.
all_fail() {
	local op status
	for op in 'h.pread(4096, 0)' 'h.pwrite(b"x" * 4096, 0)' 'h.pwrite(b"x" * 4096, 32 << 20)' 'h.flush()'; do
		nbd v "import errno
try:
    $op
    sys.exit(2)
except nbd.Error as e:
    sys.exit(0 if e.errnum == errno.EIO else 3)" &
		pid[$op]=$!
	done
	for op in "${!pid[@]}"; do
		case $op in h.*) ;; *) continue ;; esac
		status=0
		wait "${pid[$op]}" || status=$?
		unset "pid[$op]"
		[ $status = 0 ] || fail "$op: status $status; $(ctl status v)"
	done
	[ $((SECONDS - began)) -le "$1" ] || fail "it took $((SECONDS - began)) s"
}

began=$SECONDS
end m0 KILL
end m1 KILL
all_fail 12 # evict, 4 s, and twice that and zombie_timeout if a part was on its way
for i in 0 1; do
	kit_up m$i -t 1 file "$tmp/m$i"
done
until_true 20 holds v 'a["io_allowed"]'
nbd v 'h.pwrite(b"y" * 4096, 0); h.flush(); assert h.pread(4096, 0) == b"y" * 4096'

began=$SECONDS
kill -s STOP "${pid[m0]}" "${pid[m1]}"
all_fail 18 # request_timeout comes first for what was sent
kill -s CONT "${pid[m0]}" "${pid[m1]}"
until_true 20 holds v 'a["io_allowed"]'
nbd v 'h.pwrite(b"z" * 4096, 0); h.flush(); assert h.pread(4096, 0) == b"z" * 4096'
