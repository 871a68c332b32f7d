#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every member adapter keeps the port's promises, on members that work and on members that don't.
# Exporters are ended by their process ids, with SIGKILL if they don't end within a second: nbdkit waits for clients.
# Names as arguments run only those cases. Exit: 0 passed, 1 failed, 77 a case could not be run and none failed.
set -u

top_builddir=${top_builddir:-$(cd "$(dirname "$0")/../.." && pwd)}
test=${MEMBER_CONFORMANCE:-$top_builddir/tests/port/member_conformance}
[ -x "$test" ] || { echo "FAILED: $test is not built"; exit 1; }
# Each wait in it ends after 30 s; this is for one that spins.
suite() { timeout -k 1 200 "$test" "$@"; }
size=$((64 << 20))
dir=$(mktemp -d "${TMPDIR:-/tmp}/ddraid-member.XXXXXX") || exit 1
only=" $* "
passed=0 failed=0 skipped=0
loops=()

# Each exporter has a pid file in $dir.
kill_exporters() {
	local i pids=()
	mapfile -t pids < <(cat "$dir"/*.pid 2>/dev/null)
	[ ${#pids[@]} != 0 ] || return 0
	rm -f "$dir"/*.pid
	kill -TERM "${pids[@]}" 2>/dev/null
	for ((i = 0; i < 50; i++)); do
		kill -0 "${pids[@]}" 2>/dev/null || return 0
		sleep 0.02
	done
	kill -KILL "${pids[@]}" 2>/dev/null
}
cleanup() {
	kill_exporters
	for l in ${loops[@]+"${loops[@]}"}; do losetup -d "$l"; done
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# run NAME COMMAND...: runs it, kills what it left.
run() {
	local name=$1 rc start=$EPOCHREALTIME
	shift
	[ "$only" = "  " ] || [[ $only == *" $name "* ]] || return 0
	"$@" >"$dir/log" 2>&1
	rc=$?
	kill_exporters
	start=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }")
	case $rc in
	0) passed=$((passed + 1)) && echo "ok      $name (${start}s)" ;;
	77) skipped=$((skipped + 1)) && echo "skipped $name: $(tail -n 1 "$dir/log")" ;;
	*) failed=$((failed + 1)) && echo "FAILED  $name:" && sed 's/^/    /' "$dir/log" ;;
	esac
}

skip() { echo "$*"; exit 77; }
need() { command -v "$1" >/dev/null || { echo "no $1"; return 1; }; }

# One thread per connection: with more, nbdkit 1.32 aborts when a client goes away under load
# ("raw_send_socket: Assertion `sock >= 0' failed").
nbdkit="nbdkit -t 1"

# $pid: nbdkit writes its pid file after it has gone into the background.
wait_pid() {
	while [ ! -s "$dir/$1.pid" ]; do sleep 0.01; done
	pid=$(cat "$dir/$1.pid")
}

# serve NAME ARG...: an nbdkit on a Unix socket; returns when it accepts connections. $uri, $pid.
serve() {
	local name=$1
	shift
	rm -f "$dir/$name.sock"
	$nbdkit -P "$dir/$name.pid" -U "$dir/$name.sock" "$@" </dev/null || return 1
	uri="nbd+unix:///?socket=$dir/$name.sock"
	wait_pid "$name"
}

# The same on a port of 127.0.0.1 that is free.
serve_tcp() {
	local name=$1 try port
	shift
	for try in 1 2 3 4 5 6 7 8 9 10; do
		port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
		$nbdkit -P "$dir/$name.pid" -i 127.0.0.1 -p $port "$@" </dev/null || continue
		uri="nbd://127.0.0.1:$port/"
		wait_pid "$name"
		return 0
	done
	echo "no port is free, or nbdkit doesn't start"
	return 1
}

file_on() {
	local f
	[ -d "$1" ] && [ -w "$1" ] || { echo "no $1"; return 77; }
	f=$(mktemp "$1/ddraid-member.XXXXXX") || return 1
	truncate -s "$size" "$f" && suite conform "$2$f" "$size"
	set -- $?
	rm -f "$f"
	return "$1"
}
odd_size() {
	truncate -s $((size + 300)) "$dir/odd" && suite conform "$dir/odd" "$size"
}
loop_device() {
	local l
	[ "$(id -u)" = 0 ] && need losetup || { echo "not root or no losetup"; return 77; }
	truncate -s "$size" "$dir/disk" && l=$(losetup "$@" -f --show "$dir/disk" 2>/dev/null) || {
		echo "no loop device to be had"
		return 77
	}
	loops+=("$l")
	if [[ " $* " == *" -r "* ]]; then
		suite readonly "$l" && suite refused "$l" 30
	else
		suite conform "$l" "$size"
	fi
}
readonly_file() {
	truncate -s "$size" "$dir/ro" && chmod 444 "$dir/ro" && suite readonly "file://$dir/ro"
}
no_such() { # ENOENT, ENOTBLK (a directory can't be opened for writing: EISDIR), any for names
	suite refused /no/such/file 2 && suite refused "$dir" 21 &&
		suite refused /dev/null 15 &&
		suite refused "nbd+unix:///?socket=$dir/none" 0 &&
		suite refused nbd://no-such-host.invalid/ 0
}
conform_nbd() { # OPTIONS -- nbdkit arguments
	local opts=()
	while [ "$1" != -- ]; do opts+=("$1") && shift; done
	shift
	serve s "$@" && suite ${opts[@]+"${opts[@]}"} conform "$uri" "$size"
}
conform_tcp() { serve_tcp s memory "$size" && suite -c "$1" conform "$uri" "$size"; }
refused_nbd() { # ERRNO, nbdkit arguments
	local errno=$1
	shift
	serve s "$@" && suite refused "$uri" "$errno"
}
readonly_nbd() {
	serve s -r memory "$size" && suite readonly "$uri" && suite refused "$uri" 30
}
no_flush() {
	serve s eval get_size="echo $size" can_write='exit 0' pread='exit 1' pwrite='exit 1' &&
		suite refused "$uri" 95
}
killed() { # unix | tcp
	local again=$dir/again
	if [ "$1" = tcp ]; then
		serve_tcp k memory "$size" || return 1
		port=${uri##*:}
		echo "$nbdkit -P '$dir/k.pid' -i 127.0.0.1 -p ${port%/} memory $size" >"$again"
	else
		serve k memory "$size" || return 1
		echo "rm -f '$dir/k.sock' '$dir/k.pid' &&
$nbdkit -P '$dir/k.pid' -U '$dir/k.sock' memory $size" >"$again"
	fi
	suite killed "$uri" "$pid" "sh '$again' </dev/null"
}
frozen() {
	serve$1 z memory "$size" && suite frozen "$uri" "$pid"
}
overdue() {
	serve$1 o memory "$size" && suite overdue "$uri" "$pid"
}
flaps() {
	serve flaps --filter=error memory "$size" error-pread=ESHUTDOWN error-pread-rate=1 || return 1
	suite flaps "$uri"
}
errors() {
	serve e --filter=error memory "$size" error=EIO error-rate=100% error-file="$dir/trigger" &&
		suite errors "$uri" "$dir/trigger"
}
slow() { # its delays must not add up, and nobody goes away under load
	nbdkit=nbdkit
	serve d --filter=delay memory "$size" wdelay=300ms && suite slow "$uri" 300
}
# durable FUA FLUSHES nbdkit arguments: so many commands with FUA, so many flushes, by its log
durable() {
	local fua=$1 flushes=$2 got
	shift 2
	serve l --filter=log "$@" logfile="$dir/commands" && suite durable "$uri" || return 1
	got=$(grep -c 'fua=1' "$dir/commands")/$(grep -c ' Flush ' "$dir/commands")
	[ "$got" = "$fua/$flushes" ] || { echo "FUA/flushes: $got, want $fua/$flushes"; return 1; }
}
# A disk without FLUSH, but with FUA.
fua_only() {
	durable 30 0 eval get_size="echo $size" can_write='exit 0' can_fua='echo native' \
		can_multi_conn='exit 0' can_zero='exit 0' pread='exit 1' pwrite='cat >/dev/null' \
		zero='exit 0'
}
qemu() {
	need qemu-nbd || return 77
	truncate -s "$size" "$dir/qemu"
	qemu-nbd --fork --pid-file="$dir/q.pid" -k "$dir/q.sock" -e 0 -t -f raw --discard=unmap \
		"$dir/qemu" </dev/null || return 1
	suite conform "nbd+unix:///?socket=$dir/q.sock" "$size"
}

run file file_on "${TMPDIR:-/tmp}" file://
run tmpfs file_on /dev/shm ""
run odd-size odd_size
run loop loop_device
run loop-4k loop_device -b 4096
run loop-readonly loop_device -r
run readonly-file readonly_file
if command -v nbdkit >/dev/null; then
	run no-such no_such
	run nbd-unix conform_nbd -- memory "$size"
	run nbd-tcp conform_tcp 1
	run nbd-tcp-4 conform_tcp 4
	run nbd-no-fua conform_nbd -- --filter=fua memory "$size"
	run nbd-no-fua-4 conform_nbd -c 4 -- --filter=fua memory "$size"
	run nbd-no-zero conform_nbd -- --filter=nozero memory "$size" zeromode=none
	run nbd-blocks conform_nbd -- --filter=blocksize-policy memory "$size" \
		blocksize-minimum=4096 blocksize-preferred=65536 blocksize-maximum=65536 \
		blocksize-error-policy=error
	run nbd-qemu qemu
	run nbd-fua durable 20 1 memory "$size"
	run nbd-fua-by-flush durable 0 21 --filter=fua memory "$size"
	run nbd-fua-only fua_only
	run nbd-single-refused refused_nbd 95 --filter=multi-conn memory "$size" \
		multi-conn-mode=disable
	run nbd-single-forced conform_nbd -f -c 4 -- --filter=multi-conn memory "$size" \
		multi-conn-mode=disable
	run nbd-no-flush no_flush
	run nbd-readonly readonly_nbd
	run nbd-killed-unix killed unix
	run nbd-killed-tcp killed tcp
	run nbd-frozen-unix frozen ""
	run nbd-frozen-tcp frozen _tcp
	run nbd-overdue-unix overdue ""
	run nbd-overdue-tcp overdue _tcp
	run nbd-errors errors
	run nbd-flaps flaps
	run nbd-slow slow
else
	skipped=$((skipped + 1)) && echo "skipped nbd: no nbdkit"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] || exit 1
[ $skipped = 0 ] || exit 77
