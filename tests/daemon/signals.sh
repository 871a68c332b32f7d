#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Signals, and what the service manager is told, as any user. SIGHUP reads the configuration anew: what can change while
# ddraidd runs does, the rest is named, and one that is wrong changes nothing. Signals that nobody means end nothing. The
# watchdog is fed as long as the threads of all arrays turn, and is not while one of them stands still.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin signals

# What comes by the socket, a line each; it is there when the file is.
cat >"$tmp/notify.py" <<'END'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
out = open(sys.argv[2], "a")
while True:
    out.write(s.recv(4096).decode() + "\n")
    out.flush()
END
# Stops one thread of a process, until a line comes; the others go on.
cat >"$tmp/halt.py" <<'END'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
tid = int(sys.argv[1])
if libc.ptrace(SEIZE, tid, None, None) or libc.ptrace(INTERRUPT, tid, None, None):
    print("cannot:", os.strerror(ctypes.get_errno()), flush=True)
    sys.exit(77)
os.waitpid(tid, 0x40000000)
print("halted", flush=True)
sys.stdin.readline()
libc.ptrace(DETACH, tid, None, None)
END
told() { # HOW-MANY LINE
	[ "$(grep -cx "$2" "$tmp/told" 2>/dev/null)" -ge "$1" ]
}
logged() {
	grep -q "$1" "$tmp/log"
}
is_set() { # KEY VALUE
	ctl get --daemon "$1" --json | grep -q "\"$2\""
}
alive() {
	kill -0 "${pid[daemon]}" 2>/dev/null || fail "ddraidd ended at $1"
	ctl version >/dev/null || fail "ddraidd does not answer after $1"
}
hangup() {
	kill -HUP "${pid[daemon]}"
}

/usr/bin/python3 "$tmp/notify.py" "$tmp/notify" "$tmp/told" &
pid[notify]=$!
until_true 5 test -S "$tmp/notify"
configure 'stop_timeout = 2s' '[fence]' 'fence = none'
export NOTIFY_SOCKET=$tmp/notify WATCHDOG_USEC=2000000
array_up vol0
unset NOTIFY_SOCKET WATCHDOG_USEC
until_true 5 told 1 READY=1
until_true 10 told 3 WATCHDOG=1

# SIGHUP
is_set log_level info || fail "log_level: $(ctl get --daemon log_level)"
configure 'stop_timeout = 3s' '[fence]' 'fence = none' '[daemon]' 'log_level = debug'
hangup
until_true 10 is_set log_level debug
until_true 5 logged "stop_timeout = 3000ms counts from the next start of ddraidd; until then it is 2000ms"
is_set stop_timeout 2000ms || fail "stop_timeout was changed, and is said not to be"
until_true 5 told 1 RELOADING=1
until_true 5 told 2 READY=1
alive SIGHUP

configure 'stop_timeout = soon' '[daemon]' 'log_level = err'
hangup
until_true 5 logged "the configuration stays as it was: $tmp/conf:[0-9]*: stop_timeout = soon is out of range"
is_set log_level debug || fail "a wrong configuration changes something: $(ctl get --daemon log_level)"
rm "$tmp/conf"
hangup
until_true 5 logged "the configuration stays as it was: $tmp/conf can't be read: there is no such file"
configure 'stop_timeout = 2s' '[fence]' 'fence = none'
hangup
until_true 5 is_set log_level info

ctl get --daemon heartbeat_limit | grep -q "heartbeat_limit = [1-9][0-9]*ms" || fail "not as it is in force: $(ctl get --daemon heartbeat_limit)"

for s in USR1 USR2 ALRM VTALRM PROF IO PWR PIPE; do
	kill -s "$s" "${pid[daemon]}"
	sleep 0.05
	alive "SIG$s"
done
nbd vol0 'h.pwrite(b"x" * 65536, 0); assert h.pread(65536, 0) == b"x" * 65536'

# One thread stands still.
for t in "/proc/${pid[daemon]}/task/"*; do
	! grep -qx "ddr:vol0" "$t/comm" || tid=${t##*/}
done
mkfifo "$tmp/go_on"
/usr/bin/python3 "$tmp/halt.py" "$tid" <"$tmp/go_on" >"$tmp/halted" &
pid[halt]=$!
exec 3>"$tmp/go_on"
until_true 5 test -s "$tmp/halted"
if grep -q halted "$tmp/halted"; then
	until_true 10 logged "vol0: its thread stands still"
	fed=$(grep -cx WATCHDOG=1 "$tmp/told")
	sleep 2
	! told $((fed + 1)) WATCHDOG=1 || fail "the watchdog is fed while the thread of an array stands still"
	echo >&3
	until_true 10 told $((fed + 2)) WATCHDOG=1
else
	echo "a single thread can't be halted here: $(cat "$tmp/halted")"
	echo >&3
fi
exec 3>&-
until_true 10 holds vol0 'a["io_allowed"]'

end daemon TERM
until_true 5 told 1 STOPPING=1
end notify KILL

# Where journald reads standard error, each line begins with its priority, and has no time; elsewhere it has one.
configure '[fence]' 'fence = none'
: >"$tmp/journal"
JOURNAL_STREAM=$(stat -c %d:%i "$tmp/journal") "$top_builddir/ddraidd" --foreground --config "$dir/conf" 2>>"$tmp/journal" &
pid[daemon]=$!
until_true 10 ctl version
end daemon TERM
grep -q "^<5>ddraidd .* is ready" "$tmp/journal" && grep -q "^<4>fence = none" "$tmp/journal" && ! grep -v "^<[0-7]>" "$tmp/journal" ||
	fail "not what journald takes: $(cat "$tmp/journal")"
JOURNAL_STREAM=1:1 daemon_up
end daemon TERM
! grep "^<" "$dir/log" || fail "a log that is no journal has its form"

# In the background, with a path that began in another directory.
cp "$dir/conf" "$tmp/relative"
(cd "$tmp" && "$top_builddir/ddraidd" --config relative)
pid[background]=$(ctl version --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
echo 'log_level = debug' | sed '1i [daemon]' >>"$tmp/relative"
kill -HUP "${pid[background]}"
until_true 10 is_set log_level debug
end background TERM
