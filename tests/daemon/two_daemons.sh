#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two daemons that know nothing of each other have the same members: one has a copy of the other's state directory, as after a
# restore of a backup on another machine. As any user, on three NBD exports. The second is refused by the first's name, and
# has the array when the first has given it back, or stands still for too long; then the first writes nothing any more.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin two
# refused DAEMON BY: it says whose process has the members, to people and to programs.
refused() {
	until_true 15 as "$1" holds vol0 'a["state"] == "refused" and ", process '"${pid[$2]}"';" in a["waits"]["for"]'
	as "$1" ctl status vol0 >"$tmp/out" || true
	grep -q "^  because .*in use by a daemon by itself on .*, process ${pid[$2]}; stop it there first" "$tmp/out" ||
		fail "not said: $(cat "$tmp/out")"
}
serves() {
	until_true 20 as "$1" holds vol0 'a["io_allowed"]'
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
	kit_up "m$i" -t 1 file "$tmp/m$i"
	members+=("$(uri "m$i")")
done
for d in a b; do
	as $d configure '[fence]' 'fence = none'
done
as a daemon_up
as a ctl create vol0 --order 1 --zeroed "${members[@]}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as a ctl set vol0 listen=tcp:127.0.0.1:"$port" >"$tmp/out" 2>&1 || fail "listen: $(cat "$tmp/out")"
as a ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
as a ctl start vol0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
cp -a "$tmp/a/state/." "$tmp/b/state"
rm "$tmp/b/state/lock"

echo "a copied state directory"
serves a
as a holds vol0 'a["front_ends"][0]["also"]' || fail "not at its address: $(as a ctl status vol0)"
until_true 20 as a holds vol0 'a["regions_dirty"] == 0'
until_true 20 settled
as b daemon_up
refused b a
# The first has its address as well, which does not hide who has the members.
as b holds vol0 "any('127.0.0.1:$port' in w and 'ss -ltnp' in w for w in a['warnings'])" || fail "its address: $(as b ctl status vol0)"
[ "$(sum)" = "$before" ] || fail "the second has written to the members"
"$top_builddir/ddraidctl" examine "$tmp/m0" >"$tmp/out" || fail "examine: $(cat "$tmp/out")"
grep -q "^  used by .*of no cluster, process ${pid[a]}, incarnation" "$tmp/out" || fail "examine: $(cat "$tmp/out")"
grep -q " last sign of it .* ago by this one's; without a sign for 5.0 s it is gone" "$tmp/out" || fail "examine: $(cat "$tmp/out")"
for option in --stale --alone; do # neither makes it harmless
	! as b ctl start vol0 $option --timeout 2 >"$tmp/out" 2>&1 || fail "it starts with $option"
done
! as b ctl start vol0 --take-over >"$tmp/out" 2>&1 || fail "it starts with --take-over"
grep -q "in no cluster .*--alone" "$tmp/out" || fail "--take-over: $(cat "$tmp/out")"
refused b a
as a nbd vol0 'h.pwrite(b"A" * 8192, 0); h.flush()' || fail "the first does not go on"

echo "a third one, which knows nothing of that array, takes none of its members, whatever may be overwritten"
as c configure '[fence]' 'fence = none'
as c daemon_up
taken() { # WORDS COMMAND...
	local words=$1 status=0
	shift
	as c ctl "$@" >"$tmp/out" 2>&1 || status=$?
	[ $status = 6 ] && grep -q "$words, by a daemon by itself on .*, process ${pid[a]}" "$tmp/out" || fail "$*: status $status, $(cat "$tmp/out")"
}
taken "is in use" create mine --order 1 --old-member "${members[@]}"
for i in 0 1 2; do truncate -s 32M "$tmp/o$i"; done
as c ctl create other --order 1 --zeroed "$tmp/o0" "$tmp/o1" "$tmp/o2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
as c ctl fail other 0 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
taken "is in use" add other 0 "${members[0]}" --old-member
as c ctl create third --order 1 "${members[@]}" >"$tmp/out" 2>&1 && fail "it is taken"
grep -q "ddraid array vol0 .*, which a daemon by itself on .*, process ${pid[a]} uses" "$tmp/out" || fail "create: $(cat "$tmp/out")"
as a nbd vol0 'assert h.pread(8192, 0) == b"A" * 8192; h.pwrite(b"A" * 8192, 0); h.flush()' || fail "the first does not go on"
as a holds vol0 'not a["degraded"]' || fail "the first: $(as a ctl status vol0)"

echo "the first is stopped"
as a ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
serves b
until_true 5 as b holds vol0 'a["front_ends"][0]["also"]'
as b nbd vol0 'assert h.pread(8192, 0) == b"A" * 8192' || fail "the second reads something else"
as a ctl start vol0 --timeout 2 >"$tmp/out" 2>&1 && fail "both run"
refused a b
as b ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
serves a
! as b ctl start vol0 --timeout 2 >"$tmp/out" 2>&1 || fail "both run"
refused b a

echo "it is killed, and started again on its machine, which knows that it has ended"
as b ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
mark=$(wc -l <"$tmp/a/log")
end a KILL
as a daemon_up
serves a
! tail -n +$((mark + 1)) "$tmp/a/log" | grep "to be gone" | grep -v "its process has ended" || fail "it waited for a process that had ended"
as b ctl start vol0 --timeout 2 >"$tmp/out" 2>&1 && fail "both run"
refused b a

echo "the first stands still while it writes"
as a nbd vol0 '
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
as b nbd vol0 '
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
as b nbd vol0 '
for i in range(200):
    assert h.pread(8192, i * 8192) == b"B" * 8192, "block %d of the second was overwritten" % i' || fail "the second"
as b ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
serves a
as a nbd vol0 'assert h.pread(200 * 8192, 0) == b"B" * 200 * 8192' || fail "the first reads something else"

echo "killed, it need not wait for itself"
end a KILL
: >"$tmp/a/log"
as a daemon_up
serves a
! grep "without a sign of it" "$tmp/a/log" | grep -v "its process has ended" || fail "it waits for what it was before"
as a ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
"$top_srcdir/tests/checker/ddraid-check-members" "$tmp"/m[012] >"$tmp/out" || fail "$(cat "$tmp/out")"
grep -q "dirty 0, wrong 0" "$tmp/out" || fail "$(cat "$tmp/out")"
"$top_builddir/ddraidctl" examine "$tmp/m0" >"$tmp/out" || fail "examine: $(cat "$tmp/out")"
grep -q "^  used by       nobody" "$tmp/out" || fail "it was not given back: $(cat "$tmp/out")"

echo "one that stands still for long enough is gone, and writes nothing any more when it goes on"
as a ctl start vol0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
serves a
kill -s STOP "${pid[a]}"
as c ctl create mine --order 1 --old-member "${members[@]}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
grep -q "watching for .* s whether anybody uses the members" "$tmp/out" || fail "nobody was looked for: $(cat "$tmp/out")"
until_true 10 as c holds mine 'a["io_allowed"]'
as c nbd mine 'h.pwrite(b"C" * 8192 * 200, 0); h.flush()' || fail "the third"
kill -s CONT "${pid[a]}"
! as a nbd vol0 'h.pwrite(b"A" * 8192 * 200, 0)' 2>"$tmp/err" & # it waits, or is told that it failed
pid[late]=$!
until_true 20 as a holds vol0 'not a["io_allowed"]'
sleep 3 # it does not become that again
as a holds vol0 'not a["io_allowed"]' || fail "the first serves: $(as a ctl status vol0)"
as c nbd mine 'assert h.pread(8192 * 200, 0) == b"C" * 8192 * 200' || fail "what the third wrote was overwritten"
end late KILL
