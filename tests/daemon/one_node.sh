#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One node without a cluster: a real ddraidd and ddraidctl on three NBD exports, as any user. Data in and out,
# the daemon killed under I/O, a member killed, a new one rebuilt, a stop; what lies on the members
# in the end is read by the independent checker. Then arrays on files and on block devices, of other orders and
# layouts, under the clients that people use.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbdcopy nbdinfo nbdsh qemu-img qemu-io fio nbd
begin one
loops=() skipped=
at_end() {
	local device
	for device in "${loops[@]}"; do
		losetup -d "$device"
	done
}
step() {
	printf '%5.1f s  %s\n' "$(bc -l <<<"(${EPOCHREALTIME/[.,]/} - $began) / 1000000")" "$*"
}
began=${EPOCHREALTIME/[.,]/}
command -v bc >/dev/null || step() { echo "$*"; }

# Its reads fail while m$1.bad exists. One thread per connection: with more, nbdkit 1.32 can abort when a client is killed under load.
member_up() {
	kit_up "m$1" -t 1 --filter=blocksize-policy --filter=error file "$tmp/m$1" \
		blocksize-minimum=1 blocksize-preferred=4096 blocksize-maximum=32M \
		error-pread=EIO error-pread-rate=1 error-pread-file="$tmp/m$1.bad"
}

mkfifo "$tmp/hold"
configure '[fence]' 'fence = none' '[members]' 'zombie_timeout = 500ms'
U="nbd+unix:///vol0?socket=$tmp/run/vol0.nbd"
for i in 0 1 2 3; do
	truncate -s 48M "$tmp/m$i"
	member_up $i
done
: >"$tmp/log"

# A configuration that is wrong says where.
printf '[daemon]\nstate_dir = %s\nstate_dri = x\n' "$tmp/state" >"$tmp/bad"
! "$top_builddir/ddraidd" --foreground --config "$tmp/bad" 2>"$tmp/err" || fail "a wrong key was taken"
grep -q "bad:3: there is no key state_dri" "$tmp/err" || fail "not said where: $(cat "$tmp/err")"

# Nor is a wait taken that ends before a node's kernel has given up what it sends.
for text in '[fence]\nzombie_timeout = 10s' '[members]\nrequest_timeout = 0'; do
	printf "[daemon]\nstate_dir = $tmp/state\n$text\n" >"$tmp/bad"
	! "$top_builddir/ddraidd" --foreground --config "$tmp/bad" 2>"$tmp/err" || fail "$text was taken"
	grep -q "is not longer than request_timeout" "$tmp/err" || fail "not said why: $(cat "$tmp/err")"
done

# So does a fence that can't be run.
: >"$tmp/plain"
for command in "$tmp/nothing" "$tmp/plain" "$tmp"; do
	printf '[fence]\nfence = command\nfence_command = %s\n' "$command" >"$tmp/bad"
	status=0
	"$top_builddir/ddraidd" --foreground --state-dir "$tmp/state" --config "$tmp/bad" 2>"$tmp/err" || status=$?
	[ $status = 2 ] || fail "fence_command = $command: status $status"
	grep -q "fence_command = $command can't be run: .*; " "$tmp/err" || fail "not said why: $(cat "$tmp/err")"
done

# In the background it is started when it is ready, and ends with what is in its way.
status=0
"$top_builddir/ddraidd" --config "$tmp/conf" --state-dir "$tmp/plain" >"$tmp/out" 2>"$tmp/err" || status=$?
[ $status = 1 ] || fail "with a state directory that is a file: status $status"
grep -q "ddraidd: the state directory $tmp/plain can't be opened: Not a directory; name " "$tmp/err" || fail "not said why: $(cat "$tmp/err")"
"$top_builddir/ddraidd" --config "$tmp/conf" || fail "it does not start in the background"
pid[daemon]=$(ctl version --json | /usr/bin/python3 -IS -c 'import json, sys; print(json.load(sys.stdin)["ddraidd"]["pid"])')
for other in run state; do # what another daemon has
	case $other in
	run) set -- --state-dir "$tmp/state2" ;;
	state) set -- --run-dir "$tmp/run2" ;;
	esac
	status=0
	"$top_builddir/ddraidd" --config "$tmp/conf" "$@" >"$tmp/out" 2>"$tmp/err" || status=$?
	[ $status = 1 ] && [ -s "$tmp/err" ] || fail "a second daemon, with the same $other: $status, $(cat "$tmp/err")"
done
kill -s TERM "${pid[daemon]}"
until_true 10 eval "! kill -0 ${pid[daemon]}"
unset "pid[daemon]"

printf 'version = 1\n\033]0;x' >"$tmp/state/bad.array"
NOTIFY_SOCKET=$tmp/notify /usr/bin/python3 - "$top_builddir/ddraidd" --foreground --config "$tmp/conf" <<-'EOC' || fail "systemd is not told"
	import os, socket, subprocess, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(os.environ["NOTIFY_SOCKET"])
	s.settimeout(10)
	p = subprocess.Popen(sys.argv[1:], stderr=subprocess.DEVNULL)
	try:
	    assert s.recv(100) == b"READY=1"
	finally:
	    p.terminate()
	    assert p.wait() == 0
EOC
# Its first life lacks what root may have, and says in the status what that means.
unprivileged() {
	ulimit -l 64
	[ "$(id -u)" != 0 ] || set -- setpriv --bounding-set=-sys_resource,-ipc_lock --inh-caps=-sys_resource,-ipc_lock "$@"
	exec "$@"
}
daemon_up unprivileged
status=0
ctl status bad >"$tmp/out" 2>&1 || status=$?
[ $status = 6 ] || fail "a damaged file: status $status, $(cat "$tmp/out")"
grep -q "bad.array is damaged: line 2, ?]0;x, is not understood; restore it" "$tmp/out" || fail "$(cat "$tmp/out")"
! ctl start bad >"$tmp/out" 2>&1 || fail "an array with a damaged file was started"
grep -q "restore it" "$tmp/out" || fail "start does not say why: $(cat "$tmp/out")"
rm "$tmp/state/bad.array"
step "create"
# With nbdkit's filter it says what most servers say by themselves.
ctl create vol0 --order 1 --set release_delay=200 "$(uri m0)" "$(uri m1)" \
	"$(uri m2)" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
grep -q "stripe 8 KiB: member 0 .* has blocks of 4 KiB" "$tmp/out" || fail "which stripe? $(cat "$tmp/out")"
status=0
ctl create vol1 --order 1 --stripe 8K "$(uri m0)" "$(uri m1)" "$(uri m2)" \
	>"$tmp/out" 2>&1 || status=$?
[ $status = 1 ] || fail "members were taken twice, or may be later: $status"
grep -q "is member 0 of the array vol0" "$tmp/out" || fail "not said: $(cat "$tmp/out")"
ctl status vol0 --wait >/dev/null || fail "the initial sync"
ctl status vol0 >"$tmp/out"
unlocked="memory can't be locked .* raise LimitMEMLOCK"
! grep -q __asan_init "$top_builddir/ddraidd" || unlocked= # mlockall does nothing under the sanitizer, and says it did
for text in "fence = none: .* configure a fence_command" "this process can't be marked as an I/O flusher .* CAP_SYS_RESOURCE" \
	${unlocked:+"$unlocked"}; do
	grep -q "^ *WARNING .*$text" "$tmp/out" || fail "the status does not warn: $text: $(cat "$tmp/out")"
	grep -q "warning $text" "$tmp/log" || fail "the log does not warn: $text"
done
for listen in tcp:0.0.0.0:1 tcp:127.0.0.1 tcp:127.0.0.1:99999 tcp:localhost:1; do
	! ctl set vol0 listen=$listen >"$tmp/out" 2>&1 || fail "listen=$listen was taken; no start would be"
done

step "data in and out"
head -c 40M /dev/urandom >"$tmp/in"
nbdcopy "$tmp/in" "$U"
size=$(nbdinfo --size "$U")
[ "$size" -gt $((80 << 20)) ] || fail "size $size"
nbdcopy "$U" "$tmp/copy"
cmp -n $((40 << 20)) "$tmp/in" "$tmp/copy"

step "the daemon is killed under I/O and comes back"
nbdcopy "$tmp/in" "$U" 2>/dev/null &
pid[copy]=$!
sleep 0.05
end daemon KILL
end copy KILL
daemon_up
ctl status vol0 --wait >/dev/null || fail "no recovery: $(ctl status vol0)"
nbdcopy "$U" "$tmp/copy"
cmp -n $((40 << 20)) "$tmp/in" "$tmp/copy" # what was in flight was the same data

step "a member is killed under I/O"
head -c 40M /dev/urandom >"$tmp/in"
nbdcopy "$tmp/in" "$U" &
pid[copy]=$!
sleep 0.05
end m1 KILL
wait "${pid[copy]}" || fail "writing went wrong when a member died"
unset "pid[copy]"
holds vol0 'a["degraded"] and a["io_allowed"]' || fail "not degraded: $(ctl status vol0)"
nbdcopy "$U" "$tmp/copy"
cmp -n $((40 << 20)) "$tmp/in" "$tmp/copy"

step "a new one is added and rebuilt"
ctl fail vol0 1 >/dev/null 2>&1 || true # it may be suspect still
until_true 10 holds vol0 'a["members"][1]["state"] in ("faulty", "missing")'
end m3 KILL
for refusal in 'has blocks of 16 KiB' 'is too small: it has'; do
	case $refusal in
	has*) kit_up m3 -t 1 --filter=blocksize-policy file "$tmp/m3" blocksize-minimum=1 \
		blocksize-preferred=16384 blocksize-maximum=32M ;;
	is*) kit_up m3 -t 1 --filter=truncate file "$tmp/m3" truncate=44M ;;
	esac
	! ctl add vol0 1 "$(uri m3)" >"$tmp/out" 2>&1 || fail "add took a member that $refusal"
	grep -q "m3.sock $refusal" "$tmp/out" || fail "not refused for its blocks or size: $(cat "$tmp/out")"
	end m3 KILL
done
member_up 3

step "reads of another fail: that is what they do, and all else goes on"
touch "$tmp/m0.bad"
! nbd vol0 'h.pread(8192, 0)' 2>"$tmp/err" || fail "read what can't be read"
grep -q "Input/output error" "$tmp/err" || fail "not EIO: $(cat "$tmp/err")"
nbd vol0 'h.pwrite(b"x" * 8192, 41 << 20, nbd.CMD_FLAG_FUA)' || fail "writing doesn't go on"
holds vol0 'a["state"] == "active" and a["io_allowed"] and a["counters"]["unreadable_reads"] > 0' ||
	fail "not serving: $(ctl status vol0)"
holds vol0 'any(w.startswith("member 0 could not be read, and no other could stand in: 8 KiB of the " +
	"array from byte 0,") for w in a["warnings"])' || fail "no warning: $(ctl status vol0)"
until_true 5 grep -q "a read error of the members 0x1" "$tmp/log"
ctl add vol0 1 "$(uri m3)" >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"
until_true 10 holds vol0 'any("and the rebuild or resync waits for it" in w for w in a["warnings"])'
nbd vol0 'h.pwrite(b"x" * 8192, 41 << 20, nbd.CMD_FLAG_FUA)' || fail "writing doesn't go on in a rebuild"
rm "$tmp/m0.bad"
nbd vol0 'assert h.pread(8192, 41 << 20) == b"x" * 8192' || fail "what was written meanwhile is wrong"
ctl status vol0 --wait >"$tmp/out" 2>&1 || fail "the rebuild does not go on: $(cat "$tmp/out")"
holds vol0 'not a["degraded"] and a["members"][1]["uri"].endswith("m3.sock")' || fail "$(ctl status vol0)"
ctl add vol0 1 "$(uri m3)" >"$tmp/out" 2>&1 && grep -q "nothing is done" "$tmp/out" || fail "add, once more: $(cat "$tmp/out")"
member_up 1 # its cut-off writes must be over before a clean stop (R5)
end m2 KILL # what was rebuilt must do now
nbdcopy "$U" "$tmp/copy"
cmp -n $((40 << 20)) "$tmp/in" "$tmp/copy"
member_up 2
until_true 30 holds vol0 'not a["degraded"]'

step "idle"
# A host that is slow makes the same work take longer, so what counts is how often it wakes; the
# processor's time only has to show that nothing spins.
wakes() {
	awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }' "/proc/${pid[daemon]}"/task/*/status
}
ticks() {
	awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/${pid[daemon]}/stat"
}
woken=$(wakes)
before=$(ticks)
sleep 10
used=$(($(ticks) - before)) # of 100 per second
woken=$(($(wakes) - woken))
[ "$woken" -le 600 ] || fail "idle for 10 s, it woke $woken times"
[ "$used" -le 100 ] || fail "idle for 10 s, it used $used hundredths of a second"

step "stop"
nbdcopy --connections=1 - "$U" <"$tmp/hold" &
pid[user]=$!
exec 9>"$tmp/hold"
until_true 10 holds vol0 'a["front_ends"][0]["clients"]'
! ctl stop vol0 >"$tmp/out" 2>&1 || fail "an array that is open was stopped"
grep -q "in use: 1 client has it open; close" "$tmp/out" || fail "$(cat "$tmp/out")"
exec 9>&-
wait "${pid[user]}"
unset "pid[user]"
ctl stop vol0 >/dev/null 2>&1 || fail "stop"
! grep -q "not drained" "$tmp/log" || fail "the stop was not clean"
"$top_srcdir/tests/checker/ddraid-check-members" "$tmp/m0" "$tmp/m3" "$tmp/m2" >"$tmp/out" ||
	fail "$(cat "$tmp/out")"
grep -q "dirty 0, wrong 0" "$tmp/out" || fail "the log is not clean: $(cat "$tmp/out")"
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ctl set vol0 listen=tcp:127.0.0.1:$port >/dev/null || fail "listen"
mv "$tmp/state/incarnation" "$tmp/incarnation"
echo x >"$tmp/state/incarnation"
! ctl start vol0 --timeout 4 >"$tmp/out" 2>&1 || fail "started without an incarnation"
holds vol0 '"incarnation is damaged" in a["waits"]["for"]' || fail "$(ctl status vol0)"
[ "$(grep -c "incarnation is damaged.*tried again" "$tmp/log")" = 1 ] || fail "not said once"
mv "$tmp/incarnation" "$tmp/state/incarnation"
ctl start vol0 --wait >/dev/null 2>&1 || fail "start again"
[ "$(nbdinfo --size "$(ctl status vol0 --json | /usr/bin/python3 -IS -c 'import json, sys
print(json.load(sys.stdin)["arrays"][0]["front_ends"][0]["also"][0])')")" = "$size" ] || fail "not at its TCP address"
nbdcopy "$U" "$tmp/copy"
cmp -n $((40 << 20)) "$tmp/in" "$tmp/copy"

step "a name is free again"
ctl stop vol0 --all-nodes >/dev/null 2>&1 || fail "stop before forget"
ctl forget vol0 >/dev/null 2>&1 || fail "forget"
ctl create vol0 --order 1 --stripe 8K --zeroed --old-member "$(uri m0)" "$(uri m3)" \
	"$(uri m2)" --timeout 20 >"$tmp/out" 2>&1 || fail "create again: $(cat "$tmp/out")"
holds vol0 'a["io_allowed"]' || fail "the second vol0 does not serve: $(ctl status vol0)"

# nbdsh takes the first python3 in PATH; the module is the system's.
shell() {
	PATH=/usr/bin:$PATH timeout -k 10 40 nbdsh "$@"
}
# The clients that people use, on the array ARRAY; then a member fails, is replaced, and the raw members hold what
# was written: clients ARRAY NEW-MEMBER MEMBER... Another path than the first is the new one's.
clients() {
	local array=$1 new=$2 u block bytes
	shift 2
	u="nbd+unix:///$array?socket=$tmp/run/$array.nbd"
	bytes=$(nbdinfo --size "$u")
	shell -u "$u" -c '
b = h.get_block_size(nbd.SIZE_MINIMUM)
M = 1 << 20
h.pwrite(b"a" * 2 * M, 0)
h.pwrite(b"b" * b, 3 * b, nbd.CMD_FLAG_FUA)
h.flush()
h.zero(M // 2, M // 2)
h.zero(b, M, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.trim(M // 4, 3 * M // 2)
h.flush()
want = bytearray(b"a" * 2 * M)
want[3 * b:4 * b] = b"b" * b
want[M // 2:M] = bytes(M // 2)
want[M:M + b] = bytes(b)
want[3 * M // 2:7 * M // 4] = bytes(M // 4)
assert h.pread(2 * M, 0) == want
at = h.get_size() - b
h.pwrite(b"z" * b, at)
assert h.pread(b, at) == b"z" * b
' || fail "$array: nbdsh"
	timeout -k 10 40 qemu-io -f raw -c 'write -P 1 4M 1M' -c 'write -P 2 -f 5M 64k' -c 'write -z 4608k 256k' -c 'discard 4352k 128k' \
		-c 'aio_write -P 3 6M 512k' -c 'aio_write -P 4 6656k 512k' -c 'aio_flush' -c 'write -P 5 7680k 512' -c flush \
		-c 'read -P 1 4M 256k' -c 'read -P 0 4352k 128k' -c 'read -P 0 4608k 256k' -c 'read -P 1 4864k 256k' \
		-c 'read -P 2 5M 64k' -c 'read -P 3 6M 512k' -c 'read -P 4 6656k 512k' -c 'read -P 5 7680k 512' "$u" >"$tmp/out" 2>&1 ||
		fail "$array: qemu-io: $(cat "$tmp/out")"
	! grep -iE 'fail|error' "$tmp/out" || fail "$array: qemu-io"
	block=$(shell -u "$u" -c 'print(h.get_block_size(nbd.SIZE_MINIMUM))')
	timeout -k 10 40 fio --name=v --ioengine=nbd --uri="$u" --rw=randwrite --bs=$((2 * block)) --size=12m --iodepth=16 --fsync=64 \
		--verify=crc32c --verify_fatal=1 --verify_state_save=0 >"$tmp/out" 2>&1 || fail "$array: fio: $(cat "$tmp/out")"
	cp --sparse=always "$tmp/in" "$tmp/image"
	truncate -s "$bytes" "$tmp/image"
	timeout -k 10 40 qemu-img convert -n -f raw -O raw "$tmp/image" "$u" || fail "$array: qemu-img convert"
	timeout -k 10 40 qemu-img compare -q -f raw -F raw "$tmp/image" "$u" || fail "$array: qemu-img compare"
	ctl fail "$array" 1 >/dev/null || fail "$array: fail"
	timeout -k 10 40 qemu-img compare -q -f raw -F raw "$tmp/image" "$u" || fail "$array: other data without member 1"
	shell -u "$u" -c 'h.pwrite(b"x" * (1 << 20), 0); h.zero(1 << 20, 1 << 20); h.flush()' || fail "$array: degraded"
	{ head -c $((1 << 20)) /dev/zero | tr '\0' x; head -c $((1 << 20)) /dev/zero; } |
		dd of="$tmp/image" bs=1M conv=notrunc status=none
	ctl add "$array" 1 "$new" --wait >"$tmp/out" 2>&1 || fail "$array: add: $(cat "$tmp/out")"
	timeout -k 10 40 qemu-img compare -q -f raw -F raw "$tmp/image" "$u" || fail "$array: other data after the rebuild"
	ctl stop "$array" >/dev/null 2>&1 || fail "$array: stop"
	"$top_srcdir/tests/checker/ddraid-check-members" --json --strict --compare-left-out --extract "$tmp/user" "$1" "$new" "${@:3}" \
		>"$tmp/raw.json" || fail "$array: $(cat "$tmp/raw.json")"
	cmp "$tmp/image" "$tmp/user" || fail "$array: the members hold other data"
	rm "$tmp/image" "$tmp/user"
}
# raw EXPRESSION: of what the checker said, as r and g, its geometry.
raw() {
	/usr/bin/python3 -IS -c 'import json, sys
r = json.load(open(sys.argv[1]))
g = r["geometry"]
sys.exit(0 if eval(sys.argv[2]) else 1)' "$tmp/raw.json" "$1" || fail "not so: $1: $(cat "$tmp/raw.json")"
}

step "members are files; dedicated parity, other bands, slots and regions"
head -c 20M /dev/urandom >"$tmp/in"
for i in 0 1 2 3; do
	truncate -s 24M "$tmp/f$i"
done
ctl create files --order 1 --layout dedicated --band 32K --slots 4 --region-size 8M "$tmp/f0" "file://$tmp/f1" "$tmp/f2" \
	>"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
clients files "$tmp/f3" "$tmp/f0" "$tmp/f1" "$tmp/f2"
raw '(g["layout"], g["band_bytes"], g["slots"], g["region_bytes"]) == ("dedicated", 32768, 4, 8 << 20)'

step "order 3"
files=()
for i in 0 1 2 3 4 5 6 7 8 9; do
	truncate -s 8M "$tmp/o$i"
	files+=("$tmp/o$i")
done
ctl create order3 --order 3 "${files[@]:0:9}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
clients order3 "${files[9]}" "${files[@]:0:9}"
raw '(g["order"], g["layout"], len(r["members"])) == (3, "rotate", 9)'

step "members are block devices"
for i in 0 1 2 3; do
	truncate -s 24M "$tmp/l$i"
	device=$(losetup -f --show "$tmp/l$i" 2>"$tmp/err") || { skipped="no loop device to be had: $(tail -n 1 "$tmp/err")"; break; }
	loops+=("$device")
done
if [ -z "$skipped" ]; then
	ctl create blocks --order 1 "${loops[@]:0:3}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
	clients blocks "${loops[3]}" "${loops[@]:0:3}"
else
	echo "skipped: $skipped"
fi

step "SIGTERM"
kill -s TERM "${pid[daemon]}"
wait "${pid[daemon]}" || fail "the daemon ended with status $?"
unset "pid[daemon]"
"$top_srcdir/tests/checker/ddraid-check-members" "$tmp/m0" "$tmp/m3" "$tmp/m2" >"$tmp/out" ||
	fail "after SIGTERM: $(cat "$tmp/out")"
step "done"
[ -z "$skipped" ] || { echo "skipped: $skipped"; exit 77; }
