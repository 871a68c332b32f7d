#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# ddraidctl's socket: nobody else can take its name before the daemon does. Its file is the daemon's user's alone, in the run
# directory; either side looks who the other one is; a leftover is replaced, and a file that was removed is made again.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs
begin control
configure '[fence]' 'fence = none'
socket=$(socket)

is_private() { # the file is there, for its owner alone
	[ -S "$socket" ] && [ "$(stat -c '%a %u' "$socket")" = "600 $(id -u)" ]
}
fails() { # STATUS WORDS COMMAND...
	local want=$1 words=$2 status=0
	shift 2
	"$@" >"$tmp/out" 2>&1 || status=$?
	[ $status = "$want" ] && grep -q "$words" "$tmp/out" || fail "$*: status $status, $(cat "$tmp/out")"
}

mask=$(umask)
umask 0
daemon_up
umask "$mask"
is_private || fail "not private: $(stat "$socket")"
! grep -q "@$name" /proc/net/unix || fail "it has a name in the abstract space"
! ls -d /dev/shm/qb-"${pid[daemon]}"-* 2>/dev/null || fail "it has files in /dev/shm"

echo "as a path, relative too, and as a name"
(cd "$tmp/run" && "$top_builddir/ddraidctl" --ipc "./$name.ctl" version >/dev/null) || fail "by a relative path"
fails 3 "can't be reached on this machine (socket /run/ddraid/$name-none.ctl): No such file or directory; start it" \
	"$top_builddir/ddraidctl" --ipc "$name-none" status

echo "a leftover"
end daemon KILL
[ -S "$socket" ] || fail "a killed daemon removes its socket"
fails 3 "can't be reached on this machine (socket $socket): Connection refused; start it" ctl status
daemon_up
is_private || fail "not private: $(stat "$socket")"

echo "the file is removed"
ctl status >/dev/null || fail "status"
for what in file directory; do
	mark=$(wc -l <"$tmp/log")
	kill -s STOP "${pid[daemon]}" # else it may have made it again by now
	if [ $what = file ]; then rm "$socket"; else rm -r "$tmp/run"; fi
	fails 3 "No such file or directory" ctl status
	kill -s CONT "${pid[daemon]}"
	until_true 10 is_private
	ctl status >/dev/null || fail "status, after the $what was removed"
	[ "$(tail -n +$((mark + 1)) "$tmp/log" | grep -c "warning $socket was removed, which ddraidctl needs: made again")" = 1 ] ||
		fail "not said once: $(tail -n +$((mark + 1)) "$tmp/log")"
done
sed "s|^state_dir.*|state_dir = $tmp/second|" "$tmp/conf" >"$tmp/second.conf"
fails 1 "another ddraidd uses run_dir = $tmp/run" "$top_builddir/ddraidd" --foreground --config "$tmp/second.conf"
end daemon TERM
[ ! -e "$socket" ] || fail "a daemon that ends leaves its socket"

if [ "$(id -u)" != 0 ] || ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$top_builddir/ddraidctl"; then
	echo "skipped: only root can be two users, who both may run ddraid"
	exit 77
fi
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)

echo "another user asks"
daemon_up
chmod 755 "$tmp" "$tmp/run"
fails 3 "ddraidd (socket $socket) does not let this user in: use sudo" "${nobody[@]}" "$top_builddir/ddraidctl" --ipc "$socket" status
chmod 666 "$socket"
fails 3 "user 65534 may not control ddraidd: only root may; use sudo" "${nobody[@]}" "$top_builddir/ddraidctl" --ipc "$socket" status
grep -q "warning a client of the control socket is refused: user 65534 " "$tmp/log" || fail "not in the log"
ctl status >/dev/null || fail "status"
end daemon TERM

echo "another user's daemon"
mkdir "$tmp/theirs"
chown 65534 "$tmp/theirs"
as_nobody() { # it is told nothing
	"${nobody[@]}" /usr/bin/python3 -IS -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
while True:
    c, _ = s.accept()
    c.settimeout(20)
    try:
        c.send(bytes([2, 0, 0, 0, 10, 0, 0, 0, 8, 1]))
        heard = c.recv(4096)
    except ConnectionError:
        heard = b""
    print("%d bytes" % len(heard), flush=True)' "$tmp/theirs/x.ctl" >"$tmp/heard" &
	pid[theirs]=$!
	until_true 10 test -S "$tmp/theirs/x.ctl"
}
as_nobody
fails 3 "on $tmp/theirs/x.ctl listens user 65534 (process ${pid[theirs]}), neither root nor this user: it is not trusted, .*--ipc" \
	"$top_builddir/ddraidctl" --ipc "$tmp/theirs/x.ctl" stop vol0
until_true 10 test -s "$tmp/heard"
[ "$(cat "$tmp/heard")" = "0 bytes" ] || fail "it was asked: $(cat "$tmp/heard")"
end theirs KILL
rm "$tmp/theirs/x.ctl"

echo "their own they trust, and so does root's daemon root alone"
sed "s|^state_dir.*|state_dir = $tmp/theirs/state|; s|^run_dir.*|run_dir = $tmp/theirs/run|; s|^ipc_name.*|ipc_name = own|" \
	"$tmp/conf" >"$tmp/theirs/conf"
chmod 644 "$tmp/theirs/conf"
"${nobody[@]}" "$top_builddir/ddraidd" --foreground --config "$tmp/theirs/conf" 2>>"$tmp/theirs/log" &
pid[theirs]=$!
until_true 10 "${nobody[@]}" "$top_builddir/ddraidctl" --ipc "$tmp/theirs/run/own.ctl" version
fails 3 "neither root nor this user" "$top_builddir/ddraidctl" --ipc "$tmp/theirs/run/own.ctl" status
end theirs TERM
echo "ok"
