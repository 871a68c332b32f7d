#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A copied state directory, with a fence command: the last life that it names is another daemon's that serves. It is not fenced,
# the status says whose it is, and it is fenced once it has ended. As any user.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdkit nbd
begin copied

members=()
for i in 0 1 2; do
	truncate -s 32M "$tmp/m$i"
	kit_up "m$i" -t 1 file "$tmp/m$i"
	members+=("$(uri "m$i")")
done
# Who has it run, and for whom: a line each.
cat >"$tmp/fence" <<END
#!/bin/sh
[ "\$1" != --check ] || exit 0
echo "\$*" >>"$tmp/fences"
END
chmod +x "$tmp/fence"
: >"$tmp/fences"
fences() { # NUMBER
	[ "$(wc -l <"$tmp/fences")" = "$1" ]
}
for d in a b; do
	as $d configure '[fence]' 'fence = command' "fence_command = $tmp/fence"
done
copy() {
	rm -rf "$tmp/b/state"
	cp -a "$tmp/a/state" "$tmp/b/state"
	rm "$tmp/b/state/lock"
}
# As an older ddraidd has written it, or one on another machine: nobody knows the process.
unnamed() {
	record_edit "$tmp/b/state/vol0.record" 'assert any(b[880:920]), "no process there"; b[880:920] = bytes(40)'
}
waits() { # WORDS: b does, and says so to people and programs
	until_true 20 as b holds vol0 '"has not ended" in a["waits"]["for"] and "'"$1"'" in a["waits"]["for"]'
	as b ctl status vol0 >"$tmp/out" 2>&1 || true
	grep -q "this state directory is a copy" "$tmp/out" || fail "not said: $(cat "$tmp/out")"
}

as a daemon_up
as a ctl create vol0 --order 1 --zeroed "${members[@]}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 20 as a holds vol0 'a["io_allowed"]'

echo "its process is one of this machine"
copy
as b daemon_up
waits "process ${pid[a]} of this machine"
as b end b TERM

echo "its process is not known: its use blocks tell"
copy
unnamed
as b daemon_up
waits "process ${pid[a]}"
fences 0 || fail "fenced: $(cat "$tmp/fences")"
as a nbd vol0 'h.pwrite(b"A" * 8192, 0); h.flush()' || fail "the first does not go on"

echo "it has ended: then it is fenced"
end a KILL
until_true 40 as b holds vol0 'a["io_allowed"]'
fences 1 || fail "fences: $(cat "$tmp/fences")"
as b nbd vol0 'assert h.pread(8192, 0) == b"A" * 8192'

echo "a daemon that was killed and is back"
end b KILL
as b daemon_up
until_true 40 as b holds vol0 'a["io_allowed"]'
fences 2 || fail "fences: $(cat "$tmp/fences")"

echo "one that ends while it watches"
end b KILL
unnamed
as b daemon_up
until_true 10 as b holds vol0 '"has ended" in a["waits"]["for"]'
end b TERM
fences 2 || fail "fences: $(cat "$tmp/fences")"
as b daemon_up
until_true 40 as b holds vol0 'a["io_allowed"]'
