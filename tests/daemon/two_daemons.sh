#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two daemons that know nothing of each other have the same members: one has a copy of the other's state directory, as after a
# restore of a backup on another machine. As any user, on three NBD exports. The second is refused by the first's name, and
# has the array when the first has given it back, or stands still for too long; then the first writes nothing any more.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
command -v nbdkit >/dev/null || { echo "skipped: nbdkit is missing (tools/deps)"; exit 77; }
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
[ -x "$top_builddir/ddraidd" ] && [ -x "$top_builddir/ddraidctl" ] || { echo "skipped: not built"; exit 77; }

tmp=$(mktemp -d /tmp/ddraid-two-XXXXXX)
declare -A pid=()
end() { # NAME SIGNAL
	[ -n "${pid[$1]:-}" ] || return 0
	kill -s "$2" "${pid[$1]}" 2>/dev/null || true
	kill -s CONT "${pid[$1]}" 2>/dev/null || true
	wait "${pid[$1]}" 2>/dev/null || true
	rm -rf /dev/shm/qb-"${pid[$1]}"-*
	unset "pid[$1]"
}
finish() {
	local status=$? p
	trap '' INT TERM
	[ "$status" = 0 ] || { echo "--- the daemons' logs"; cat "$tmp/a.log" - "$tmp/b.log" <<<"---" 2>/dev/null || true; }
	for p in "${!pid[@]}"; do
		end "$p" KILL
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
ctl() { # DAEMON ARGUMENTS...
	local d=$1
	shift
	timeout 20 "$top_builddir/ddraidctl" --ipc "ddraid-two-$$-$d" "$@"
}
# holds DAEMON EXPRESSION: of the array in its `status --json`, as a.
holds() {
	{ ctl "$1" status vol0 --json || true; } | /usr/bin/python3 -IS -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$2"
}
daemon_up() { # a|b
	local d=$1

	mkdir -p "$tmp/$d.run" "$tmp/$d.state"
	cat >"$tmp/$d.conf" <<-EOC
		[daemon]
		state_dir = $tmp/$d.state
		run_dir = $tmp/$d.run
		ipc_name = ddraid-two-$$-$d
		[cluster]
		cluster = alone
		[fence]
		fence = none
	EOC
	"$top_builddir/ddraidd" --foreground --config "$tmp/$d.conf" 2>>"$tmp/$d.log" &
	pid[$d]=$!
	until_true 10 ctl "$d" version
}
# refused DAEMON BY: it says whose process has the members, to people and to programs.
refused() {
	until_true 15 holds "$1" 'a["state"] == "refused" and ", process '"${pid[$2]}"';" in a["waits"]["for"]'
	ctl "$1" status vol0 >"$tmp/out" || true
	grep -q "^  because .*in use by a daemon by itself on .*, process ${pid[$2]}; stop it there first" "$tmp/out" ||
		fail "not said: $(cat "$tmp/out")"
}
serves() {
	until_true 20 holds "$1" 'a["io_allowed"]'
}
# nbd DAEMON CODE...: Python, with the array opened as h.
nbd() {
	timeout 60 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
exec(sys.argv[2])' "nbd+unix:///vol0?socket=$tmp/$1.run/vol0.nbd" "$2"
}

# All of the members but the use blocks, which are renewed.
sum() {
	local i
	for i in 0 1 2; do
		{ head -c 12288 "$tmp/m$i"; tail -c +16385 "$tmp/m$i"; } | sha256sum
	done
}
settled() {
	before=$(sum)
	sleep 0.5
	[ "$(sum)" = "$before" ]
}

members=()
for i in 0 1 2; do
	truncate -s 32M "$tmp/m$i"
	# One thread per connection: with more, nbdkit 1.32 can abort when a client is killed under load.
	nbdkit -f -t 1 -U "$tmp/m$i.sock" file "$tmp/m$i" 2>>"$tmp/nbdkit.log" &
	pid[m$i]=$!
	until_true 5 test -S "$tmp/m$i.sock"
	members+=("nbd+unix:///?socket=$tmp/m$i.sock")
done
daemon_up a
ctl a create vol0 --order 1 --zeroed "${members[@]}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ctl a set vol0 listen=tcp:127.0.0.1:"$port" >"$tmp/out" 2>&1 || fail "listen: $(cat "$tmp/out")"
ctl a stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
ctl a start vol0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
cp -a "$tmp/a.state" "$tmp/b.state"
rm "$tmp/b.state/lock"

echo "a copied state directory"
serves a
holds a 'a["front_ends"][0]["also"]' || fail "not at its address: $(ctl a status vol0)"
until_true 20 holds a 'a["regions_dirty"] == 0'
until_true 20 settled
daemon_up b
refused b a
# The first has its address as well, which does not hide who has the members.
holds b "any('127.0.0.1:$port' in w and 'ss -ltnp' in w for w in a['warnings'])" || fail "its address: $(ctl b status vol0)"
[ "$(sum)" = "$before" ] || fail "the second has written to the members"
"$top_builddir/ddraidctl" examine "$tmp/m0" >"$tmp/out" || fail "examine: $(cat "$tmp/out")"
grep -q "^  used by .*of no cluster, process ${pid[a]}, incarnation" "$tmp/out" || fail "examine: $(cat "$tmp/out")"
grep -q " last sign of it .* ago by this one's; without a sign for 5.0 s it is gone" "$tmp/out" || fail "examine: $(cat "$tmp/out")"
for option in --force --alone; do # neither makes it harmless
	! ctl b start vol0 $option --timeout 2 >"$tmp/out" 2>&1 || fail "it starts with $option"
done
! ctl b start vol0 --take-over >"$tmp/out" 2>&1 || fail "it starts with --take-over"
grep -q "in no cluster .*--alone" "$tmp/out" || fail "--take-over: $(cat "$tmp/out")"
refused b a
nbd a 'h.pwrite(b"A" * 8192, 0); h.flush()' || fail "the first does not go on"

echo "the first is stopped"
ctl a stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
serves b
until_true 5 holds b 'a["front_ends"][0]["also"]'
nbd b 'assert h.pread(8192, 0) == b"A" * 8192' || fail "the second reads something else"
ctl a start vol0 --timeout 2 >"$tmp/out" 2>&1 && fail "both run"
refused a b
ctl b stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
serves a
! ctl b start vol0 --timeout 2 >"$tmp/out" 2>&1 || fail "both run"
refused b a

echo "it is killed, and started again on its machine, which knows that it has ended"
ctl b stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
mark=$(wc -l <"$tmp/a.log")
end a KILL
daemon_up a
serves a
! tail -n +$((mark + 1)) "$tmp/a.log" | grep "to be gone" || fail "it waited for a process that had ended"
ctl b start vol0 --timeout 2 >"$tmp/out" 2>&1 && fail "both run"
refused b a

echo "the first stands still while it writes"
nbd a '
i = 0
while True:
    try:
        h.pwrite(b"A" * 8192, i % 200 * 8192)
    except nbd.Error as e:
        print("ended", i, e.errno, flush=True)
        sys.exit(3)
    i += 1
    if i % 200 == 1:
        print(i, flush=True)' >"$tmp/writer" &
pid[writer]=$!
until_true 10 grep -q "^401$" "$tmp/writer" # each block has been written, and acknowledged, twice
kill -s STOP "${pid[a]}"
serves b
nbd b '
for i in range(200):
    assert h.pread(8192, i * 8192) == b"A" * 8192, "block %d of the first was lost" % i
for i in range(200):
    h.pwrite(b"B" * 8192, i * 8192)
h.flush()' || fail "the second"
kill -s CONT "${pid[a]}"
status=0
wait "${pid[writer]}" || status=$?
unset "pid[writer]"
[ $status = 3 ] && grep -q "^ended" "$tmp/writer" || fail "the writer of the first: status $status, $(tail -1 "$tmp/writer")"
refused a b
nbd b '
for i in range(200):
    assert h.pread(8192, i * 8192) == b"B" * 8192, "block %d of the second was overwritten" % i' || fail "the second"
ctl b stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
serves a
nbd a 'assert h.pread(200 * 8192, 0) == b"B" * 200 * 8192' || fail "the first reads something else"

echo "killed, it need not wait for itself"
end a KILL
: >"$tmp/a.log"
daemon_up a
serves a
! grep -q "without a sign of it" "$tmp/a.log" || fail "it waits for what it was before"
ctl a stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
"$top_srcdir/tests/checker/ddraid-check-members" "$tmp"/m[012] >"$tmp/out" || fail "$(cat "$tmp/out")"
grep -q "dirty 0, wrong 0" "$tmp/out" || fail "$(cat "$tmp/out")"
"$top_builddir/ddraidctl" examine "$tmp/m0" >"$tmp/out" || fail "examine: $(cat "$tmp/out")"
grep -q "^  used by       nobody" "$tmp/out" || fail "it was not given back: $(cat "$tmp/out")"
