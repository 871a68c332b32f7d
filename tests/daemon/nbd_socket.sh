#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The NBD socket of an array: the mode and the group that the configuration says, from its first moment on; and a socket whose
# file was removed is made again, for those who are connected as if nothing were.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin nbd
sock=$tmp/run/vol0.nbd
is() { # MODE GROUP
	[ -S "$sock" ] && [ "$(stat -c '%a %g' "$sock")" = "$1 $2" ]
}
with() { # LINE...: of [daemon]
	configure '[fence]' 'fence = none'
	printf '%s\n' '[daemon]' "$@" >>"$tmp/conf"
}
again() { # LINE...: the daemon, with these
	end daemon TERM
	with "$@"
	daemon_up
	until_true 10 holds vol0 'a["io_allowed"]'
}

with
array_up vol0
own=$(id -g)
is 660 "$own" || fail "the defaults: $(stat "$sock")"
again 'socket_mode = 600'
is 600 "$own" || fail "600: $(stat "$sock")"
again 'socket_mode = 0666' "socket_group = $own"
is 666 "$own" || fail "666: $(stat "$sock")"
ctl get --daemon >"$tmp/out"
grep -qE "daemon.socket_mode .*0666" "$tmp/out" && grep -qE "daemon.socket_group .*$own" "$tmp/out" || fail "get: $(cat "$tmp/out")"

echo "the file is removed"
nbd vol0 '
import os, stat, time
sock = sys.argv[1].split("socket=")[1]
run = os.path.dirname(sock)
h.pwrite(b"x" * 65536, 0)
for whole in False, True:
    os.unlink(sock)
    if whole:
        for name in os.listdir(run):
            os.unlink(os.path.join(run, name))
        os.rmdir(run)
    end = time.monotonic() + 20
    while not os.path.exists(sock) or stat.S_IMODE(os.stat(sock).st_mode) != 0o666:
        assert time.monotonic() < end, "not made again"
        time.sleep(0.05)
    g = nbd.NBD()
    g.connect_uri(sys.argv[1])
    assert g.pread(65536, 0) == b"x" * 65536
    h.flush()
    g.shutdown()' || fail "it is not made again, or somebody was disturbed"
[ "$(grep -c "warning vol0: .*$sock was removed: made again" "$tmp/log")" = 2 ] || fail "not said once each: $(grep removed "$tmp/log")"
until_true 10 ctl version # its socket was removed, too

echo "it can't be made again, and can"
rm "$sock"
mkdir "$sock"
until_true 10 holds vol0 'any("is not a socket" in w and "vol0.nbd" in w for w in a["warnings"])'
rmdir "$sock"
until_true 10 holds vol0 'not any("vol0.nbd" in w for w in a["warnings"])'
nbd vol0 'h.flush()' || fail "not opened again"

echo "what is wrong is told at the start, with its line"
end daemon TERM
refused() { # LINE WORDS
	with "$1"
	status=0
	timeout -k 10 20 "$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>"$tmp/err" || status=$?
	[ $status = 2 ] && grep -q "^ddraidd: $tmp/conf:[0-9]*: $2" "$tmp/err" || fail "$1: status $status, $(cat "$tmp/err")"
}
refused 'socket_mode = 0777' "socket_mode = 0777 can't be used: write three octal digits"
refused 'socket_mode = rw' "socket_mode = rw can't be used"
refused 'socket_group = no-such-group' "socket_group = no-such-group is no group of /etc/group; make it with 'groupadd no-such-group'"

if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null; then
	echo "skipped: only root can give files away"
	exit 77
fi
echo "another group"
other=$(sed -n 's/^daemon:[^:]*:\([0-9]*\):.*/\1/p' /etc/group)
with 'socket_group = daemon'
daemon_up
until_true 10 holds vol0 'a["io_allowed"]'
[ -n "$other" ] && is 660 "$other" || fail "of group daemon ($other): $(stat "$sock")"
chmod 755 "$tmp" "$tmp/run"
connects() { # GROUP
	timeout -k 10 20 setpriv --reuid 65534 --regid "$1" --clear-groups /usr/bin/python3 -IS -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
assert s.recv(8) == b"NBDMAGIC"' "$sock" 2>"$tmp/err"
}
connects "$other" || fail "its group does not come in: $(cat "$tmp/err")"
! connects 65534 || fail "others come in"
end daemon TERM

# Not allowed to: the array does not start, and says why.
daemon_up setpriv --bounding-set=-chown --inh-caps=-chown
until_true 10 holds vol0 'a["state"] == "refused"'
ctl status vol0 | grep -q "can't be given to group $other: Operation not permitted; give ddraidd CAP_CHOWN, or change socket_group" ||
	fail "not said: $(ctl status vol0)"
[ ! -e "$sock" ] || fail "a socket of another group is there"
echo "ok"
