#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whoever reads the daemon's log stands still: the array serves, the daemon answers, warns and ends by TERM all the same.
# When the reader goes on it gets what was kept, and how many lines were lost.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin log
configure '[fence]' 'fence = none'
truncate -s 24M "$tmp/m0" "$tmp/m1" "$tmp/m2"
mkfifo "$tmp/fifo"

# With a pipe that has room for a few lines; the reader begins when $tmp/go is there.
blocked_up() {
	rm -f "$tmp/go"
	/usr/bin/python3 -IS -c 'import fcntl, os, sys, time
tmp = sys.argv[1]
fd = os.open(tmp + "/fifo", os.O_RDONLY)
fcntl.fcntl(fd, 1031, 4096)  # F_SETPIPE_SZ
while not os.path.exists(tmp + "/go"):
    time.sleep(0.05)
log = os.open(tmp + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    text = os.read(fd, 65536)
    if not text:
        break
    os.write(log, text)' "$tmp" &
	pid[reader]=$!
	"$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>"$tmp/fifo" &
	pid[daemon]=$!
	until_true 10 ctl version
}
# Each client whose message is too long is a line of the log.
say_much() { # LINES
	timeout -k 10 60 /usr/bin/python3 -IS -c 'import socket, struct, sys
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(sys.argv[1])
        if not s.recv(4096):
            sys.exit("no greeting")
        s.send(struct.pack("<II", 1, 1 << 19))
        if s.recv(4096):
            sys.exit("not disconnected")' "$(socket)" "$1" || fail "clients are not answered"
}
serves() {
	nbd vol0 'h.pwrite(b"x" * 65536, 1 << 20); h.flush(); assert h.pread(65536, 1 << 20) == b"x" * 65536' ||
		fail "the array does not serve"
}
answers() {
	timeout -k 10 20 "$top_builddir/ddraidctl" --ipc "$(socket)" "$@" >"$tmp/out" 2>&1 || fail "$*: status $?, $(cat "$tmp/out")"
}
ends_by_term() {
	local began=$SECONDS
	kill -s TERM "${pid[daemon]}"
	until_true 20 ended
	wait "${pid[daemon]}" || fail "the daemon's end: status $?"
	[ $((SECONDS - began)) -le 20 ] || fail "the end took $((SECONDS - began)) s"
	end daemon TERM
}
ended() {
	[ "$(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/${pid[daemon]}/status" 2>/dev/null)" = Z ] || ! kill -0 "${pid[daemon]}"
}

blocked_up
answers create vol0 --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2"
until_true 10 holds vol0 'a["io_allowed"]'
say_much 2500
answers status vol0
grep -q "the log can't be written, [0-9]* lines are lost so far" "$tmp/out" || fail "status does not warn: $(cat "$tmp/out")"
answers set vol0 release_delay=100ms
serves
ends_by_term
end reader KILL

blocked_up
until_true 10 holds vol0 'a["io_allowed"]'
say_much 2500
serves
answers status vol0
: >"$tmp/go"
until_true 20 grep -q "warning [1-9][0-9]* lines of the log were lost: its reader stood still" "$tmp/log"
grep -q "ddraidd .* is ready" "$tmp/log" || fail "what was kept did not come"
[ "$(grep -c "a client of the control socket is disconnected" "$tmp/log")" -ge 400 ] || fail "less was kept than there is room for"
! grep -vE "^[A-Z][a-z]{2} [0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} [a-z]+ [^ ]" "$tmp/log" || fail "these lines are not whole"
answers status vol0
! grep "lines are lost" "$tmp/out" || fail "status warns of what is over"
serves
ends_by_term
until_true 20 grep -q "Terminated: stopping" "$tmp/log"
echo "ok"
