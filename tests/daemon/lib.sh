# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# For a test with one ddraidd of its own, as any user: its folder, its start and its end. To be sourced; then
#
#	needs [COMMAND | nbd]...	what must be installed, or the test is skipped; nbd is Python's
#	begin NAME			$tmp, the folder; the daemon's IPC name; all is ended and removed when the test ends
#	at_end() { ...; }		may be defined: what else there is to end
#
# The test writes $tmp/conf, with ipc_name = $name.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
tmp='' name='' daemon=''

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
	mkdir "$tmp/state" "$tmp/run"
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
}
at_end() { :; }
finish() {
	local status=$?
	trap '' INT TERM
	[ "$status" = 0 ] || { echo "--- the daemon's log"; cat "$tmp/log" 2>/dev/null || true; }
	daemon_end KILL
	at_end
	rm -rf "$tmp"
	exit "$status"
}
daemon_end() { # SIGNAL
	[ -n "$daemon" ] || return 0
	kill -s "$1" "$daemon" 2>/dev/null || true
	wait "$daemon" 2>/dev/null || true
	rm -rf /dev/shm/qb-"$daemon"-*
	daemon=
}
daemon_up() {
	"$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>>"$tmp/log" &
	daemon=$!
	until_true 10 ctl version
}

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
ctl() {
	timeout 50 "$top_builddir/ddraidctl" --ipc "$name" "$@"
}
holds() { # ARRAY EXPRESSION: of the array in `status --json`, as a
	{ ctl status "$1" --json || true; } | /usr/bin/python3 -c 'import json, sys
a = json.load(sys.stdin)["arrays"][0]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$2"
}
nbd() { # ARRAY CODE: Python, with the array opened as h
	timeout 20 /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
exec(sys.argv[2])' "nbd+unix:///$1?socket=$tmp/run/$1.nbd" "$2"
}
