#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The NBD URIs that status prints can be opened as they are, whatever the run directory is called.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin uri
opens() { # URI
	timeout -k 10 60 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
assert h.pread(65536, 0) == b"here" * 16384' "$1"
}
run="$tmp/a b%41?c&d#e;f+g'\"äÿ[1]"
mkdir "$run"
socket() {
	echo "$run/$name.ctl"
}
there() {
	exec "$@" --run-dir "$run" # a line of the configuration would end at '#'
}
configure "[fence]" "fence = none"
truncate -s 24M "$tmp/m0" "$tmp/m1" "$tmp/m2"
daemon_up there
ctl create vol0 --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds vol0 'a["io_allowed"]'
[ -S "$run/vol0.nbd" ] || fail "no socket: $(ls "$run")"
port=$(/usr/bin/python3 -IS -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
ctl set vol0 listen="tcp:127.0.0.1:$port" >/dev/null 2>&1 || fail "set"
ctl stop vol0 >"$tmp/out" 2>&1 && ctl start vol0 --wait >"$tmp/out" 2>&1 || fail "stop and start: $(cat "$tmp/out")"

ctl status vol0 >"$tmp/out" || fail "status: $(cat "$tmp/out")"
sed -n 's/.* \(nbd[+:][^ ,]*\).*/\1/p' "$tmp/out" >"$tmp/text"
ctl status vol0 --json | /usr/bin/python3 -IS -c 'import json, sys
f = json.load(sys.stdin)["arrays"][0]["front_ends"][0]
print(f["address"], *f["also"], sep="\n")' >"$tmp/json"
cmp "$tmp/text" "$tmp/json" || fail "text and JSON have other addresses: $(cat "$tmp/text" "$tmp/json")"
mapfile -t uri <"$tmp/text"
[ ${#uri[@]} = 2 ] || fail "not two addresses: $(cat "$tmp/out")"
want="nbd+unix:///vol0?socket=$tmp/a%20b%2541%3Fc%26d%23e%3Bf%2Bg%27%22%C3%A4%C3%BF%5B1%5D/vol0.nbd"
[ "${uri[0]}" = "$want" ] || fail "${uri[0]}, not $want"
[ "${uri[1]}" = "nbd://127.0.0.1:$port/vol0" ] || fail "${uri[1]}"
timeout -k 10 60 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_unix(sys.argv[1])
h.pwrite(b"here" * 16384, 0)' "$run/vol0.nbd" || fail "no write"
for u in "${uri[@]}"; do
	opens "$u" || fail "can't be opened: $u"
	! command -v nbdinfo >/dev/null || nbdinfo --size "$u" >"$tmp/size" || fail "nbdinfo can't open it: $u"
	! command -v qemu-img >/dev/null || qemu-img info "$u" >"$tmp/info" || fail "qemu-img can't open it: $u"
done
ctl stop vol0 --disconnect >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
