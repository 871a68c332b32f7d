#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two daemons with one state directory, copied: the second is refused and told who has the array, and writes nothing. It has the
# array once the first has given it back. One that was killed is not waited for by the next on its machine. One that
# stands still loses the array, and writes nothing when it wakes up.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
for p in nbdkit /usr/bin/python3; do
	command -v "$p" >/dev/null || { echo "skipped: $p is missing (tools/deps)"; exit 77; }
done
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
[ -x "$top_builddir/ddraidd" ] && [ -x "$top_builddir/ddraidctl" ] || { echo "skipped: not built"; exit 77; }

tmp=$(mktemp -d /tmp/ddraid-two-XXXXXX)
daemon=([1]="" [2]="")
kits=()
daemon_end() { # N SIGNAL
	[ -n "${daemon[$1]}" ] || return 0
	kill -s "$2" "${daemon[$1]}" 2>/dev/null || true
	[ "$2" != KILL ] || kill -s CONT "${daemon[$1]}" 2>/dev/null || true
	wait "${daemon[$1]}" 2>/dev/null || true
	rm -rf /dev/shm/qb-"${daemon[$1]}"-*
	daemon[$1]=
}
finish() {
	local status=$? p
	trap '' INT TERM
	[ "$status" = 0 ] || for p in 1 2; do echo "--- daemon $p"; cat "$tmp/log$p" 2>/dev/null || true; done
	daemon_end 1 KILL
	daemon_end 2 KILL
	for p in "${kits[@]}"; do
		kill -KILL "$p" 2>/dev/null || true
	done
	rm -rf "$tmp"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
	echo "FAILED: $*"
	exit 1
}
until_true() { # SECONDS COMMAND...
	local limit=$(($1 * 20)) i
	shift
	for ((i = 0; i < limit; i++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.05
	done
	fail "not within $((limit / 20)) s: $*"
}
ctl() { # N ARG...
	timeout 90 "$top_builddir/ddraidctl" --ipc "ddraid-two-$$-$1" "${@:2}"
}
daemon_up() { # N
	"$top_builddir/ddraidd" --foreground --config "$tmp/conf$1" 2>>"$tmp/log$1" &
	daemon[$1]=$!
	until_true 10 ctl "$1" version
}
holds() { # N EXPRESSION
	{ ctl "$1" status v --json || true; } | /usr/bin/python3 -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$2"
}
serves() { # N
	holds "$1" 'a["io_allowed"]'
}
refused() { # N PID
	holds "$1" 'a["state"] == "refused"' && ctl "$1" status v | grep -q "in use by a daemon by itself on .*, process $2"
}
nbd() { # N CODE
	timeout 20 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
exec(sys.argv[2])' "nbd+unix:///v?socket=$tmp/run$1/v.nbd" "$2"
}
# All of the members but the use blocks, which are renewed.
sum() {
	local i
	for i in 0 1 2; do
		{ head -c 12288 "$tmp/m$i"; tail -c +16385 "$tmp/m$i"; } | sha256sum
	done
}

for n in 1 2; do
	mkdir "$tmp/state$n" "$tmp/run$n"
	cat >"$tmp/conf$n" <<-EOC
		[daemon]
		state_dir = $tmp/state$n
		run_dir = $tmp/run$n
		ipc_name = ddraid-two-$$-$n
		[cluster]
		cluster = alone
		[fence]
		fence = none
	EOC
done
uris=()
for i in 0 1 2; do
	truncate -s 32M "$tmp/m$i"
	nbdkit -f -U "$tmp/m$i.sock" file "$tmp/m$i" 2>>"$tmp/nbdkit.log" &
	kits+=($!)
	until_true 5 test -S "$tmp/m$i.sock"
	uris+=("nbd+unix:///?socket=$tmp/m$i.sock")
done
daemon_up 1
ctl 1 create v --order 1 --stripe 4K --zeroed --force "${uris[@]}" >/dev/null || fail "create"
until_true 20 serves 1
nbd 1 'h.pwrite(b"1" * 65536, 0); h.flush()'
cp -a "$tmp/state1/." "$tmp/state2"
rm -f "$tmp/state2/lock"
# Until all that follows a write is through, too.
until_true 20 holds 1 'a["regions_dirty"] == 0'
settled() {
	before=$(sum)
	sleep 0.5
	[ "$(sum)" = "$before" ]
}
until_true 20 settled
daemon_up 2
until_true 30 refused 2 "${daemon[1]}"
[ "$(sum)" = "$before" ] || fail "the second daemon has written to the members"
serves 1 || fail "the first one does not serve any more"
ctl 2 start v --alone --timeout 5 >"$tmp/start" 2>&1 && fail "start --alone beside a user"
refused 2 "${daemon[1]}" || fail "--alone: $(ctl 2 status v)"

# It is given back.
mark=$(wc -l <"$tmp/log2")
waited() {
	tail -n +$((mark + 1)) "$tmp/log2" | grep -q "to be gone"
}
daemon_end 1 TERM
until_true 30 serves 2
nbd 2 'assert h.pread(65536, 0) == b"1" * 65536; h.pwrite(b"2" * 65536, 0); h.flush()'
! waited || fail "it waited for one that had given the members back"

# Killed: this machine knows that it has ended.
daemon_end 2 KILL
daemon_up 2
until_true 30 serves 2
nbd 2 'assert h.pread(65536, 0) == b"2" * 65536'
! waited || fail "it waited for a process that had ended"

# It stands still, with a client that goes on writing.
timeout 90 /usr/bin/python3 -c 'import nbd, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
n = 0
try:
    while True:
        h.pwrite(b"s" * 4096, 1 << 20)
        open(sys.argv[2], "w").write("%d" % n)
        n += 1
        time.sleep(0.01)
except nbd.Error:
    pass' "nbd+unix:///v?socket=$tmp/run2/v.nbd" "$tmp/count" &
writer=$!
until_true 10 test -s "$tmp/count"
kill -STOP "${daemon[2]}"
daemon_up 1
until_true 60 serves 1
nbd 1 'h.pwrite(b"f" * 4096, 1 << 20); h.flush()'
before=$(cat "$tmp/count")
kill -CONT "${daemon[2]}"
until_true 30 refused 2 "${daemon[1]}"
wait $writer || fail "the client of the one that stood still hangs"
# One that was under way in its kernel may have been answered late, no more.
[ "$(cat "$tmp/count")" -le $((before + 1)) ] || fail "writes were acknowledged after it woke up"
nbd 1 'assert h.pread(4096, 1 << 20) == b"f" * 4096'
daemon_end 2 TERM
ctl 1 stop v >/dev/null || fail "stop"
daemon_end 1 TERM
"$top_srcdir/tests/checker/ddraid-check-members" "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/check" 2>&1 || fail "$(tail -3 "$tmp/check")"
