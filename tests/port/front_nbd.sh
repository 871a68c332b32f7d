#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The NBD front-end under the clients that people use, in front of memory (front_nbd_ram).
# Each case has a server of its own. Names of cases as arguments run only those.
set -u

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
ram=$top_builddir/tests/port/front_nbd_ram
here=$top_srcdir/tests/port
[ -x "$ram" ] || { echo "FAILED: $ram is not built"; exit 1; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/front_nbd.XXXXXX") || exit 1
server=
cleanup() {
	[ -z "$server" ] || kill -KILL "$server" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

sock=$dir/s
uri="nbd+unix:///?socket=$sock"
export sock uri dir
mib=$((1 << 20))

fail() { echo "FAILED: $*"; exit 1; }
requires() { type -P "$1" >/dev/null || { echo "skipped: no $1 here"; exit 77; }; }

# A client that hangs is a failure, not a hanging test. The limit is for the slowest host, with sanitizers.
limit=300
for tool in nbdinfo nbdcopy qemu-img qemu-io fio; do
	eval "$tool() { timeout -k 5 $limit $tool \"\$@\"; }"
done

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $end ] || fail "waited too long for: $*"
		sleep 0.02
	done
}

# start [ARGUMENT...]: the server; returns when it listens.
start() {
	rm -f "$dir/control"
	mkfifo "$dir/control"
	"$ram" --control "$dir/control" "$@" "unix:$sock" >>"$dir/out" 2>>"$dir/err" &
	server=$!
	wait_for 10 test -S "$sock"
	wait_for 10 listening
}
listening() { grep -q "[0-9] $sock\$" /proc/net/unix || ! kill -0 "$server"; }

# A line to the server. It holds the FIFO open itself, so this can't block while it lives.
say() {
	kill -0 "$server" 2>/dev/null || fail "the server is gone: $(tail -3 "$dir/err")"
	echo "$1" >"$dir/control"
}

# stat NAME: one figure of the server's, now.
stat_of() {
	local before
	before=$(wc -l <"$dir/out")
	say stats
	wait_for 10 more_lines "$before"
	tail -1 "$dir/out" | tr ' ' '\n' | grep -A1 -x "$1" | tail -1
}
more_lines() { [ "$(wc -l <"$dir/out")" -gt "$1" ]; }
stat_is() { [ "$(stat_of "$1")" = "$2" ]; }

# The server ends well: no client left behind, no buffer, no sanitizer's finding.
stop() {
	wait_for 10 stat_is clients 0
	stat_is buffers 0 || fail "buffers are left: $(tail -1 "$dir/out")"
	say quit
	wait "$server"
	local rc=$?
	server=
	[ $rc = 0 ] || fail "the server ended with $rc: $(tail -20 "$dir/err")"
	[ ! -e "$sock" ] || fail "the socket file is left"
}

python_case() {
	local python
	for python in python3 /usr/bin/python3 ""; do
		"$python" -c 'import nbd' 2>/dev/null && break
	done
	[ -n "$python" ] || { echo "skipped: no python3 with libnbd's module here"; exit 77; }
	timeout -k 5 "$limit" "$python" "$here/front_nbd.py" "$1" || fail "$1"
}

case_nbdinfo() {
	requires nbdinfo
	start --size $((64 * mib)) --name tank
	nbdinfo "$uri" >"$dir/info" || fail nbdinfo
	for line in 'export="tank"' 'description: memory for tests' 'export-size: 67108864' \
		'can_multi_conn: true' 'can_fua: true' 'can_flush: true' 'can_trim: true' \
		'can_zero: true' 'can_fast_zero: false' 'is_read_only: false' \
		'block_size_minimum: 4096' 'block_size_preferred: 65536' \
		'block_size_maximum: 33554432'; do
		grep -q "$line" "$dir/info" || fail "nbdinfo doesn't say $line"
	done
	nbdinfo --list "$uri" | grep -q 'export="tank"' || fail "LIST"
	nbdinfo --list --json "$uri" | grep -q '"export-name": "tank"' || fail "LIST --json"
	[ "$(nbdinfo --size "nbd+unix:///tank?socket=$sock")" = 67108864 ] || fail "by name"
	! nbdinfo "nbd+unix:///other?socket=$sock" 2>/dev/null || fail "an unknown export was served"
	stop
}

case_nbdcopy() {
	requires nbdcopy
	head -c $((16 * mib)) /dev/urandom >"$dir/in"
	for mode in "" --sync; do
		start --size $((16 * mib)) $mode
		nbdcopy "$dir/in" "$uri" || fail "copy in"
		nbdcopy "$uri" "$dir/back" || fail "copy out"
		cmp "$dir/in" "$dir/back" || fail "differs"
		nbdcopy --connections=16 --requests=64 --flush "$uri" "$dir/back2" || fail "16 connections"
		cmp "$dir/in" "$dir/back2" || fail "differs over 16 connections"
		nbdcopy --synchronous "$uri" - | cmp - "$dir/in" || fail "differs when synchronous"
		[ "$(stat_of failed)$(stat_of rejected)$(stat_of violations)" = 000 ] || fail "errors"
		stop
	done
	# By way of the largest requests, and sparse: the zeroes become WRITE_ZEROES.
	truncate -s $((256 * mib)) "$dir/sparse"
	dd if="$dir/in" of="$dir/sparse" bs=1M seek=100 conv=notrunc status=none
	start --size $((256 * mib))
	nbdcopy --request-size=$((32 * mib)) "$dir/sparse" "$uri" || fail "32 MiB requests"
	nbdcopy --request-size=$((32 * mib)) "$uri" "$dir/back" || fail "32 MiB requests"
	cmp "$dir/sparse" "$dir/back" || fail "sparse differs"
	[ "$(stat_of zeroes)" -gt 0 ] || fail "no zeroes"
	stop
}

case_tcp() {
	requires nbdcopy
	local port=$((20000 + RANDOM % 10000))
	head -c $((8 * mib)) /dev/urandom >"$dir/in"
	start --size $((8 * mib)) "tcp:127.0.0.1:$port" "tcp:[::1]:$port"
	nbdcopy "$dir/in" "nbd://127.0.0.1:$port" || fail "IPv4"
	nbdcopy "nbd://[::1]:$port" - | cmp - "$dir/in" || fail "IPv6"
	stop
}

case_addresses() {
	requires nbdinfo
	start --size $mib
	[ "$(stat -c %a "$sock")" = 660 ] || fail "mode $(stat -c %a "$sock")"
	refused "another program serves there" "unix:$sock"
	nbdinfo --size "$uri" >/dev/null || fail "the first server suffered"
	kill -KILL "$server"
	wait "$server" 2>/dev/null
	[ -S "$sock" ] || fail "no leftover to test with"
	(umask 077 && start --size $mib && [ "$(stat -c %a "$sock")" = 660 ] &&
		nbdinfo --size "$uri" >/dev/null && stop) || fail "over a leftover"
	server=
	echo data >"$dir/file"
	refused "not a socket" "unix:$dir/file"
	[ "$(cat "$dir/file")" = data ] || fail "a file was removed"
	refused "only loopback" tcp:0.0.0.0:10809
	refused "only loopback" tcp:10.0.0.1:10809
	refused "only loopback" 'tcp:[::]:10809'
	for a in tcp:localhost:10809 tcp:127.0.0.1:0 tcp:127.0.0.1:70000 tcp:127.0.0.1 tcp:1x \
		'tcp:[::1' unix:relative "unix:/$(printf 'x%.0s' {1..108})" http://x; do
		refused "write \|absolute path" "$a"
	done
}
refused() {
	"$ram" --size $mib "$2" 2>"$dir/why" && fail "$2 was taken"
	grep -q "$1" "$dir/why" || fail "$2: $(cat "$dir/why")"
}

case_qemu_img() {
	requires qemu-img
	head -c $((32 * mib)) /dev/urandom >"$dir/in"
	truncate -s $((64 * mib)) "$dir/in"
	start --size $((64 * mib))
	qemu-img info "$uri" | grep -q 'virtual size: 64 MiB' || fail info
	qemu-img convert -n -f raw -O raw "$dir/in" "$uri" || fail "convert in"
	qemu-img compare -f raw -F raw "$dir/in" "$uri" || fail compare
	qemu-img convert -f raw -O qcow2 "$uri" "$dir/out.qcow2" || fail "convert out"
	qemu-img compare -f raw -F qcow2 "$dir/in" "$dir/out.qcow2" || fail "compare out"
	qemu-img create -q -f qcow2 "$uri" 32M || fail "a qcow2 on it"
	qemu-img check -q "$uri" || fail check
	stop
}

case_qemu_io() {
	requires qemu-io
	start --size $((256 * mib))
	qemu-io -f raw \
		-c 'write -P 1 0 1M' -c 'write -P 2 -f 1M 64k' -c 'write -z 2M 1M' \
		-c 'write -z -u 3M 1M' -c 'discard 4M 1M' -c 'read -P 1 0 1M' -c 'read -P 2 1M 64k' \
		-c 'read -P 0 2M 3M' -c 'write -z 0 200M' -c 'read -P 0 0 32M' \
		-c 'write -P 5 512 512' -c 'read -P 5 512 512' -c 'read -P 0 0 512' \
		-c 'aio_write -P 6 8M 1M' -c 'aio_write -P 7 9M 1M' -c 'aio_flush' \
		-c 'read -P 6 8M 1M' -c 'read -P 7 9M 1M' -c flush "$uri" >"$dir/qio" 2>&1 ||
		{ cat "$dir/qio"; fail qemu-io; }
	! grep -iE 'failed|error|mismatch' "$dir/qio" || fail "qemu-io"
	[ "$(stat_of fua)" -gt 0 ] || fail "no FUA came"
	[ "$(stat_of unmap)" -gt 0 ] || fail "no discard came"
	[ "$(stat_of rejected)" = 0 ] || fail "qemu-io's small write was not widened"
	stop
}

case_fio() {
	requires fio
	fio --enghelp=nbd >/dev/null 2>&1 || { echo "skipped: this fio has no nbd engine"; exit 77; }
	for mode in "" --sync; do
		start --size $((64 * mib)) $mode
		for bs in 4k 64k 1m; do
			fio --name=v --ioengine=nbd --uri="$uri" --rw=randwrite --bs=$bs \
				--size=24m --iodepth=32 --verify=crc32c --verify_fatal=1 \
				--verify_state_save=0 --end_fsync=1 >"$dir/fio" 2>&1 ||
				{ cat "$dir/fio"; fail "fio $bs"; }
		done
		fio --name=m --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=4k-256k --blockalign=4k \
			--size=16m --numjobs=4 --offset_increment=16m --iodepth=16 --fsync=64 \
			>"$dir/fio" 2>&1 || { cat "$dir/fio"; fail "fio mixed"; }
		[ -n "$mode" ] || [ "$(stat_of depth)" -ge 8 ] || fail "never more than $(stat_of depth) in flight"
		[ "$(stat_of failed)" = 0 ] || fail "failed requests"
		stop
	done
}

case_libnbd() { start --size $((8192 * mib)); python_case libnbd; stop; }
case_libnbd_sync() { start --size $((8192 * mib)) --sync; python_case libnbd; stop; }
case_multi_conn() { start --size $((64 * mib)); python_case multi_conn; stop; }
case_malformed() { start --size $((64 * mib)); python_case malformed; stop; }
case_hundred_clients() { start --size $((64 * mib)); python_case hundred_clients; stop; }
case_too_many_clients() { start --size $((64 * mib)); python_case too_many_clients; stop; }
case_disconnect_waits() { start --size $((64 * mib)); python_case disconnect_waits; stop; }
case_half_close() { start --size $((64 * mib)); python_case half_close; stop; }
case_killed_client() { start --size $((64 * mib)); python_case killed_client; stop; }
case_reset() { start --size $((64 * mib)); python_case reset; stop; }
case_held() { start --size $((256 * mib)); python_case held; stop; }
case_stalled_client() { start --size $((64 * mib)); python_case stalled_client; stop; }
case_half_a_request() { start --size $((64 * mib)); python_case half_a_request; stop; }
case_slow_handshake() { start --size $((64 * mib)); python_case slow_handshake; stop; }
case_removed() { start --size $((64 * mib)); python_case removed; stop; }
case_quit_with_requests_held() {
	start --size $((64 * mib))
	python_case quit_with_requests_held
	wait "$server" || fail "the server ended with $?: $(tail -20 "$dir/err")"
	server=
}

cases=${*:-$(declare -F | sed -n 's/^declare -f case_//p')}
failed=0 skipped=0
for c in $cases; do
	: >"$dir/out"
	: >"$dir/err"
	begin=$SECONDS
	(trap 'cleanup_case' EXIT; cleanup_case() { [ -z "$server" ] || kill -KILL "$server" 2>/dev/null; }
		"case_$c")
	rc=$?
	rm -f "$sock"
	case $rc in
	0) echo "ok   $c ($((SECONDS - begin)) s)" ;;
	77) echo "skip $c"; skipped=$((skipped + 1)) ;;
	*) echo "FAIL $c"; sed 's/^/  server: /' "$dir/err" | tail -30; failed=$((failed + 1)) ;;
	esac
done
[ $failed = 0 ] || exit 1
[ $skipped = 0 ] || exit 77
exit 0
