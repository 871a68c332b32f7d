#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An address in `listen` that another process has: the array is served without it, status and log say which and what to do,
# and it is served there when it is free. What keeps an array from being started at all is told with the time since when.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin listen
holder=
at_end() {
	let_go
}
let_go() {
	[ -z "$holder" ] || kill -s KILL "$holder" || true
	[ -z "$holder" ] || wait "$holder" 2>/dev/null || true
	holder=
}
# take [PORT]: listens there; $port is it.
take() {
	: >"$tmp/port"
	/usr/bin/python3 -c 'import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
print(s.getsockname()[1], flush=True)
time.sleep(100)' "${1:-0}" >"$tmp/port" &
	holder=$!
	until_true 5 test -s "$tmp/port"
	port=$(cat "$tmp/port")
}
also() { # ADDRESS...: where it is served, beside its socket
	holds vol0 "a['front_ends'][0]['also'] == '$*'.split()"
}

configure '[fence]' 'fence = none'
array_up vol0
take
ctl set vol0 listen="tcp:127.0.0.1:$port" >/dev/null 2>&1 || fail "set"
ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"

ctl start vol0 --wait >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
until_true 10 holds vol0 'a["io_allowed"]'
nbd vol0 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "not served at its socket"
words="tcp:127.0.0.1:$port: another process has this address ('ss -ltnp' shows which); stop that, or set listen otherwise"
ctl status vol0 | grep -qF "$words" || fail "the table does not say it: $(ctl status vol0)"
W=$words holds vol0 'any(__import__("os").environ["W"] in w for w in a["warnings"])' || fail "JSON does not: $(ctl status vol0 --json)"
also "" || fail "it says that it is served there"
sleep 1.2 # it has been tried again
[ "$(grep -cF "$words; it is tried again" "$tmp/log")" = 1 ] || fail "not said once"

let_go
until_true 5 also "nbd://127.0.0.1:$port/vol0"
! ctl status vol0 | grep -F "$words" || fail "it still warns"
grep -q "vol0: is served on tcp:127.0.0.1:$port now" "$tmp/log" || fail "the log does not say that it is"
/usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
assert h.pread(65536, 0) == b"x" * 65536' "nbd://127.0.0.1:$port/vol0" || fail "not served there"
ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"

# Its Unix socket it must have.
echo >"$tmp/run/vol0.nbd"
! ctl start vol0 >"$tmp/out" 2>&1 || fail "started without its socket"
grep -q "unix:$tmp/run/vol0.nbd: that file is not a socket; remove it" "$tmp/out" || fail "$(cat "$tmp/out")"
until_true 5 holds vol0 'a["state"] == "refused" and a["waits"]["ms"] >= 1000'
ctl status vol0 | grep -q "^  because .*remove it.*, [1-9]" || fail "not since when: $(ctl status vol0)"
rm "$tmp/run/vol0.nbd"
ctl start vol0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
echo "ok"
