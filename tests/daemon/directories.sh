#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The directories of a daemon that can't be used: one that can't be read, a run_dir in which no socket fits, or that another
# daemon has, is refused at the start, by its name and with what to do. A create whose array does not fit there is refused before
# anything is written; and one whose last step fails says that the array is there.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs
begin dirs
conf() { # RUN_DIR [STATE_DIR]
	cat >"$tmp/conf" <<-EOC
		[daemon]
		state_dir = ${2:-$tmp/state}
		run_dir = $1
		ipc_name = $name
		[cluster]
		cluster = alone
		[fence]
		fence = none
	EOC
}
# refused WORDS [COMMAND that runs it...]: at the start, with $wrong.
wrong=1
refused() {
	local words=$1 status=0
	shift
	timeout -k 10 20 "$@" "$top_builddir/ddraidd" --foreground --config "$tmp/conf" 2>"$tmp/err" || status=$?
	[ $status = $wrong ] || fail "status $status, not $wrong: $(cat "$tmp/err")"
	grep -q "$words" "$tmp/err" || fail "not '$words': $(tail -1 "$tmp/err")"
}
chars() { # COUNT
	printf "%0$1d" 0
}
long=$tmp/$(chars $((102 - ${#tmp} - 1))) # 102 characters: "/a.nbd" does not fit behind them

conf "$long"
wrong=2 # as any other value that can't be
refused "run_dir = $long has 102 characters, .* at most 107 .*: set a run_dir of at most 101 characters .*, 39 for names of any length"
[ ! -e "$long" ] || fail "a refused run_dir was made"
status=0 # in the background, too
"$top_builddir/ddraidd" --config "$tmp/conf" 2>"$tmp/err" || status=$?
[ $status = 2 ] && grep -q "^ddraidd: run_dir = $long has 102 characters" "$tmp/err" || fail "in the background: $status, $(cat "$tmp/err")"
wrong=1

# What can't be used as one.
: >"$tmp/plain"
conf "$tmp/plain"
refused "run_dir = $tmp/plain can't be used: .* Not a directory; name a directory in ddraid.conf"
conf "$tmp/no/where"
refused "run_dir = $tmp/no/where can't be created: .*; create it, or set another run_dir"
conf "$tmp/run" "$tmp/plain"
refused "state directory $tmp/plain can't be opened: Not a directory; name a directory in ddraid.conf"
conf "$tmp/run" "$tmp/no/where"
refused "state directory $tmp/no/where can't be created: .*; create it, or set another state_dir"

for file in "$tmp" "$tmp/no.conf"; do # a directory, and nothing
	status=0
	"$top_builddir/ddraidd" --foreground --config "$file" 2>"$tmp/err" || status=$?
	[ $status = 2 ] || fail "--config $file: status $status"
	grep -q "$file.* can't be read: .*; .*--config" "$tmp/err" || fail "--config $file: $(cat "$tmp/err")"
done

# What this user can't read.
user=()
chmod 711 "$tmp"
mkdir -m 700 "$tmp/closed" "$tmp/closed.run"
if [ "$(id -u)" = 0 ]; then
	user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	chmod 644 "$tmp/conf"
	"${user[@]}" test -x "$top_builddir/ddraidd" || user=()
else
	chmod 000 "$tmp/closed" "$tmp/closed.run"
	user=(env)
fi
if [ ${#user[@]} != 0 ]; then
	conf "$tmp/run" "$tmp/closed"
	refused "state directory $tmp/closed can't be opened: Permission denied; give ddraidd's user the right to read and write" "${user[@]}"
	mkdir -m 777 "$tmp/open"
	conf "$tmp/closed.run" "$tmp/open"
	refused "run_dir = $tmp/closed.run can't be used: .*Permission denied; give ddraidd's user the right" "${user[@]}"
fi

# One that another daemon has.
conf "$tmp/run"
daemon_up
sed "s|^state_dir.*|state_dir = $tmp/state2|; s|^ipc_name.*|ipc_name = $name-2|" "$tmp/conf" >"$tmp/conf2"
status=0
timeout -k 10 20 "$top_builddir/ddraidd" --foreground --config "$tmp/conf2" 2>"$tmp/err" || status=$?
[ $status = 1 ] || fail "two daemons share a run_dir: $status"
grep -q "another ddraidd uses run_dir = $tmp/run; stop it first, or set another run_dir" "$tmp/err" || fail "$(cat "$tmp/err")"

# The last step of a create fails: the array is there, and that is said.
for i in 0 1 2; do
	truncate -s 24M "$tmp/m$i"
done
: >"$tmp/run/v0.nbd"
status=0
ctl create v0 --order 1 --zeroed "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || status=$?
[ $status = 1 ] || fail "create: $status, $(cat "$tmp/out")"
grep -q "array v0 is made, .* but does not run on this node: .*not a socket; remove it.*; mend that, then 'ddraidctl start v0', or give it up with 'ddraidctl forget v0'" \
	"$tmp/out" || fail "not said: $(cat "$tmp/out")"
rm "$tmp/run/v0.nbd"
ctl start v0 >"$tmp/out" 2>&1 || fail "start: $(cat "$tmp/out")"
until_true 10 holds v0 'a["io_allowed"]'
ctl stop v0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
end daemon KILL
daemon_up # what had it was killed
end daemon TERM

# Only short names fit.
run=$tmp/$(chars $((95 - ${#tmp} - 1))) # 7 characters are left for a name
conf "$run"
wrong=2
refused "ddraidctl's socket would be $run/$name.ctl, of 1[0-9]* characters, .* 107 at most: set a shorter run_dir or ipc_name"
[ ! -e "$run" ] || fail "a refused run_dir was made"
name=sevench
conf "$run"
socket() {
	echo "$run/$name.ctl"
}
daemon_up
for i in 3 4 5; do
	truncate -s 24M "$tmp/m$i"
done
status=0
ctl create eightchr --order 1 --zeroed "$tmp/m3" "$tmp/m4" "$tmp/m5" >"$tmp/out" 2>&1 || status=$?
[ $status = 1 ] || fail "create: $status, $(cat "$tmp/out")"
grep -q "array eightchr can't be made: .*socket would be .*/eightchr.nbd, of 108 characters, and the kernel takes 107 at most: take a name of at most 7 characters, or set a shorter run_dir" \
	"$tmp/out" || fail "not said: $(cat "$tmp/out")"
! ctl get eightchr >/dev/null 2>&1 || fail "a refused array is there"
[ "$(tr -d '\0' <"$tmp/m3" | wc -c)" = 0 ] || fail "the refused create has written"
ctl create sevench --order 1 --zeroed "$tmp/m3" "$tmp/m4" "$tmp/m5" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
test -S "$run/sevench.nbd" || fail "no socket"
echo "ok"
