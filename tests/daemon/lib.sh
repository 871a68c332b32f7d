# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# For a test with a ddraidd of its own, as any user: its folder, its processes, its start and its end. To be sourced; then
#
#	needs [COMMAND | nbd]...	what must be installed, or the test is skipped; nbd is Python's
#	begin NAME			$tmp, the folder; the daemon's name; all is ended and removed when the test ends
#	at_end() { ...; }		may be defined: what else there is to end
#	configure LINE...		the daemon's configuration; what is not said is as for one node alone
#
# What the test starts it puts into pid[NAME]: `end NAME SIGNAL` ends one of them, and the rest end with the test.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
tmp='' why=''
# The daemon that the functions below speak of: its name in pid, its ipc_name, its folder. See `as`.
who=daemon name='' dir=''
declare -A pid=()

needs() {
	local p
	for p in "$@"; do
		if [ "$p" = nbd ]; then
			/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
		else
			command -v "$p" >/dev/null || { echo "skipped: $p is missing (tools/deps)"; exit 77; }
		fi
	done
	[ -x "$top_builddir/ddraidd" ] && [ -x "$top_builddir/ddraidctl" ] || { echo "skipped: not built"; exit 77; }
}
begin() { # NAME
	name=ddraid-$1-$$
	tmp=$(mktemp -d "/tmp/ddraid-$1-XXXXXX")
	dir=$tmp
	mkdir "$dir/state" "$dir/run"
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
}
at_end() { :; }
finish() {
	local status=$? p
	trap '' INT TERM
	for p in "${!pid[@]}"; do
		end "$p" KILL
	done
	case $status in
	0 | 77) ;;
	*)
		for p in "$tmp/log" "$tmp"/*/log "$tmp/nbdkit.log"; do
			[ ! -f "$p" ] || { echo "--- $p"; cat "$p"; }
		done
		echo "${why:-FAILED: a command, status $status}"
		;;
	esac
	at_end
	rm -rf "$tmp"
	exit "$status"
}
end() { # NAME SIGNAL
	local p=${pid[$1]:-}
	[ -n "$p" ] || return 0
	unset "pid[$1]"
	kill -s "$2" "$p" 2>/dev/null || true
	! is_stopped "$p" || kill -s CONT "$p" 2>/dev/null || true
	if ! until_ended "$p" 2>/dev/null; then
		stands "$p"
		kill -s KILL "$p" 2>/dev/null || true
		until_ended "$p" 2>/dev/null || true
		[ "$2" = KILL ] || fail "$1 ($p) does not end after $2"
	fi
}
# By a signal. To one that ends, SIGCONT is none of our business: a sanitizer's search for leaks stops its threads by ptrace
# then, and waits for ever for one whose SIGSTOP has been taken away by that.
is_stopped() { # PID
	case $(ps -o stat= -p "$1") in T*) ;; *) return 1 ;; esac
}
until_ended() { # PID, a child of ours: far longer than the daemon gives itself
	local end=$((SECONDS + 150))
	while kill -0 "$1" 2>/dev/null; do
		((SECONDS < end)) || return 1
		sleep 0.02
	done
	wait "$1" || true # and bash's word on how it ended
}
stands() { # PID: where its threads stand
	ps -L -o pid,lwp,stat,etimes,wchan:24,comm -p "$1" || true
	! command -v gdb >/dev/null || timeout -k 5 60 gdb -batch -p "$1" -ex 'thread apply all bt 30' </dev/null 2>&1 || true
}
# record_edit FILE PYTHON...: of its 1024 bytes, as b; its checksum is made right. There is no need of a FILE.
record_edit() {
	/usr/bin/python3 -IS -c 'import os, struct, sys, uuid
b = bytearray(open(sys.argv[1], "rb").read() if os.path.exists(sys.argv[1]) else bytes(1024))
exec(sys.argv[2])
b[8:12] = bytes(4)
c = 0xffffffff
for byte in b:
    c ^= byte
    for _ in range(8):
        c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
b[8:12] = struct.pack("<I", c ^ 0xffffffff)
open(sys.argv[1], "wb").write(b)' "$@"
}
configure() {
	{
		printf '%s\n' "[daemon]" "state_dir = $dir/state" "run_dir = $dir/run" "ipc_name = $name" "[cluster]" "cluster = alone"
		printf '%s\n' "$@"
	} >"$dir/conf"
}
daemon_up() { # [COMMAND that runs it...]
	"$@" "$top_builddir/ddraidd" --foreground --config "$dir/conf" 2>>"$dir/log" &
	pid[$who]=$!
	until_true 10 ctl version
}
# as NAME COMMAND...: where there are several daemons, what follows is about this one.
as() {
	local who=$1 name=$name-$1 dir=$tmp/$1
	mkdir -p "$dir/state" "$dir/run"
	shift
	"$@"
}
# An exporter, at `uri NAME`.
kit_up() { # NAME ARGUMENTS...
	rm -f "$tmp/$1.sock"
	nbdkit -f -U "$tmp/$1.sock" "${@:2}" 2>>"$tmp/nbdkit.log" &
	pid[$1]=$!
	until_true 5 test -S "$tmp/$1.sock"
}
uri() { # NAME
	echo "nbd+unix:///?socket=$tmp/$1.sock"
}

# An array on files $tmp/m0 to m2, which serves.
array_up() { # NAME
	truncate -s 24M "$tmp/m0" "$tmp/m1" "$tmp/m2"
	daemon_up
	ctl create "$1" --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
	until_true 10 holds "$1" 'a["io_allowed"]'
}

fail() {
	why="FAILED: $*"
	echo "$why"
	exit 1
}
# Limits are for what hangs. DDRAID_PATIENCE: so many times as long, on hosts and with builds that are slow (tools/check sets it).
until_true() { # SECONDS COMMAND...
	local limit=$(($1 * ${DDRAID_PATIENCE:-1})) tries=0 end
	end=$((SECONDS + limit))
	shift
	while ((SECONDS <= end)); do
		! "$@" >/dev/null 2>&1 || return 0
		# What is asked costs more than the wait, and several tests run at once.
		if ((tries++ < 6)); then sleep 0.05; else sleep 0.3; fi
	done
	fail "not within $limit s: $*"
}
socket() { # of ddraidctl
	echo "$dir/run/$name.ctl"
}
ctl() {
	timeout -k 10 50 "$top_builddir/ddraidctl" --ipc "$(socket)" "$@"
}
holds() { # ARRAY EXPRESSION: of the array in `status --json`, as a
	{ ctl status "$1" --json || true; } | /usr/bin/python3 -IS -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$2"
}
nbd() { # ARRAY CODE: Python, with the array opened as h
	timeout -k 10 60 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
exec(sys.argv[2])' "nbd+unix:///$1?socket=$dir/run/$1.nbd" "$2"
}
