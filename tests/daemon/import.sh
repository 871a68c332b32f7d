#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `ddraidctl import`, as any user: an array comes back by its members alone when the state directory is gone, with all of
# them and with one missing, after an orderly end and after a kill; and what is refused, with which sentence. Nothing is
# remembered of what was refused, and nothing written.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin import
# A new machine: the daemon ends, and its state is gone.
reinstalled() { # SIGNAL
	end daemon "$1"
	rm -rf "$dir/state" "$dir/run"
	mkdir "$dir/state" "$dir/run"
	daemon_up
}
imports() {
	ctl import "$@" >"$tmp/out" 2>&1 || fail "import $*: $(cat "$tmp/out")"
}
refused() { # WORDS ARGUMENT...
	local sums
	sums=$(cat "$tmp"/m? "$tmp"/x? | sha256sum)
	! ctl import "${@:2}" >"$tmp/out" 2>&1 || fail "import ${*:2} is not refused"
	grep -qF -- "$1" "$tmp/out" || fail "import ${*:2} does not say '$1': $(cat "$tmp/out")"
	[ "$(cat "$tmp"/m? "$tmp"/x? | sha256sum)" = "$sums" ] || fail "an import that is refused writes"
	[ -z "$(find "$dir/state" -name '*.array')" ] || fail "an import that is refused is remembered"
}
same() { # NUMBER: what the last `put` wrote is there
	nbd vol0 "assert h.pread(65536, 1 << 20) == bytes([$1]) * 65536" || fail "the data are not there"
}
put() {
	nbd vol0 "h.pwrite(bytes([$1]) * 65536, 1 << 20); h.flush()"
}
serves() {
	until_true 20 holds vol0 'a["io_allowed"]'
}

configure '[fence]' 'fence = none'
array_up vol0
put 1
truncate -s 24M "$tmp/x0" "$tmp/x1" "$tmp/x2" "$tmp/x3"
ctl create other --order 1 --zeroed "$tmp/x0" "$tmp/x1" "$tmp/x2" >/dev/null 2>&1
until_true 10 holds other 'a["io_allowed"]'

# All members, in any order; the settings are the defaults.
ctl set vol0 release_delay=100ms >/dev/null
reinstalled TERM
ctl status >"$tmp/out"
grep -q "import" "$tmp/out" || fail "status does not say that there is import: $(cat "$tmp/out")"
! ctl create new --order 1 "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create takes members of an array"
grep -q "ddraidctl import" "$tmp/out" || fail "create does not say import: $(cat "$tmp/out")"
! grep -qe --old-member -e --wipe "$tmp/out" || fail "create proposes to destroy an array: $(cat "$tmp/out")"
ctl examine "$tmp/m0" | grep -q "ddraidctl import" || fail "examine does not say import"
imports "$tmp/m2" "$tmp/m0" "$tmp/m1"
serves
same 1
holds vol0 '[m["uri"][-1] for m in a["members"]] == ["0", "1", "2"] and all(m["state"] == "in-sync" for m in a["members"])' ||
	fail "the members are not in their places: $(ctl status vol0)"
ctl get vol0 release_delay | grep -q "default" || fail "a setting is not the default: $(ctl get vol0)"
put 2
! ctl import "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "an array that is known is imported"
grep -q "which is known here: 'ddraidctl start vol0'" "$tmp/out" || fail "$(cat "$tmp/out")"

# A kill, and one member missing. Its place is known later, and it is made right.
reinstalled KILL
ctl import --json "$tmp/m0" "$tmp/m2" >"$tmp/out" 2>"$tmp/err" || fail "import --json: $(cat "$tmp/err")"
/usr/bin/python3 -IS -c 'import json, sys; a = json.load(sys.stdin); assert a["name"] == "vol0" and a["size_bytes"] and a["nodes"]' <"$tmp/out" ||
	fail "--json: $(cat "$tmp/out")"
serves
same 2
holds vol0 'a["members"][1]["uri"] == "none" and "nobody has said where it is" in a["members"][1]["error"]' ||
	fail "$(ctl status vol0)"
put 3
! ctl add vol0 1 "$tmp/m1" >"$tmp/out" 2>&1 || fail "a member that may come back is overwritten"
grep -q "has lost its device (suspect).*'ddraidctl import' of all members says where it is" "$tmp/out" || fail "$(cat "$tmp/out")"
! ctl re-add vol0 1 >"$tmp/out" 2>&1 || fail "a member is taken back whose place nobody knows"
! grep -q "$tmp/m[02]" "$tmp/out" || fail "another member is meant: $(cat "$tmp/out")"
imports "$tmp/m0" "$tmp/m1" "$tmp/m2"
until_true 20 holds vol0 'a["members"][1]["uri"][-1] == "1" and a["members"][1]["connected"]'
holds vol0 'a["members"][1]["state"] in ("in-sync", "rebuilding")' || ctl re-add vol0 1 >"$tmp/out" 2>&1 || true
until_true 30 holds vol0 'all(m["state"] == "in-sync" for m in a["members"])'
same 3
grep -c "^agreed = /" "$dir/state/vol0.array" | grep -qx 3 || fail "$(cat "$dir/state/vol0.array")"

# What is named has to be there.
reinstalled TERM
refused "$tmp/gone can't be used" "$tmp/m0" "$tmp/m1" "$tmp/gone"
grep -q -- "--degraded" "$tmp/out" || fail "$(cat "$tmp/out")"
imports --degraded "$tmp/m0" "$tmp/m1" "$tmp/gone"
serves
same 3
holds vol0 'a["members"][2]["uri"][-4:] == "gone"' || fail "$(ctl status vol0)"
put 4
mv "$tmp/m2" "$tmp/gone"
until_true 20 holds vol0 'a["members"][2]["connected"]'
holds vol0 'a["members"][2]["state"] in ("in-sync", "rebuilding")' || ctl re-add vol0 2 >"$tmp/out" 2>&1 || true
until_true 30 holds vol0 'all(m["state"] == "in-sync" for m in a["members"])'
same 4
ctl stop vol0 >/dev/null 2>&1
mv "$tmp/gone" "$tmp/m2"

# What is not to be imported.
reinstalled TERM
refused "needs 2 of its 3 members, and 1 is there" "$tmp/m0"
refused "is a member of the array other" "$tmp/m0" "$tmp/m1" "$tmp/x0"
refused "carries no superblock of ddraid" "$tmp/m0" "$tmp/m1" "$tmp/x3"
cp "$tmp/m0" "$tmp/x4"
refused "is member 0 of the array, and so is $tmp/m0" "$tmp/m0" "$tmp/m1" "$tmp/x4"
rm "$tmp/x4"
# Members that were left behind: the newest map has members 0 and 1 in sync, and of these only one is there as it was.
imports "$tmp/m0" "$tmp/m1" "$tmp/m2"
serves
put 4
ctl stop vol0 >/dev/null 2>&1
cp "$tmp/m1" "$tmp/x4"
cp "$tmp/m2" "$tmp/x5"
ctl start vol0 >/dev/null 2>&1
ctl fail vol0 2 >/dev/null 2>&1
put 5
reinstalled TERM
refused "needs 2 members that are in sync, and 1 of those that are there is; not there: 1: " "$tmp/m0" "$tmp/x5"
grep -q -- "--stale does not help" "$tmp/out" || fail "$(cat "$tmp/out")"
refused "--stale does not help" --stale "$tmp/m0" "$tmp/x5"
refused "an older copy: 1: " "$tmp/m0" "$tmp/x4" "$tmp/x5"
grep -q -- "--stale goes on with an older state" "$tmp/out" || fail "$(cat "$tmp/out")"
imports --stale "$tmp/m0" "$tmp/x4" "$tmp/x5"
serves
same 4

# A description that is damaged is in the way, and it says what to do. What a node knew before, and tells later, does not count.
end daemon TERM
version=$(sed -n 's/^version = //p' "$dir/state/vol0.array")
[ "$version" -gt 1000000000 ] || fail "an older description would count more than the import: $version"
sed -i '/^uuid/d' "$dir/state/vol0.array"
daemon_up
! ctl import "$tmp/x4" "$tmp/x5" >"$tmp/out" 2>&1 || fail "imported beside a damaged description"
grep -q "vol0.array is damaged.*remove the file, and start it again.*'ddraidctl import'" "$tmp/out" || fail "$(cat "$tmp/out")"
end daemon TERM
rm "$dir/state/vol0.array"
daemon_up
refused "the array was run twice at once" "$tmp/m0" "$tmp/x4" "$tmp/x5"
imports "$tmp/x4" "$tmp/x5"
serves
same 4

# What was forgotten stays so.
ctl stop vol0 >/dev/null 2>&1
ctl forget vol0 >/dev/null 2>&1
until_true 10 test ! -e "$dir/state/vol0.array"
refused "which was forgotten" "$tmp/x4" "$tmp/x5"
! ctl create new --order 1 "$tmp/x4" "$tmp/x1" "$tmp/x2" >"$tmp/out" 2>&1 || fail "create takes it"
grep -qF "x4) was member 1 of the array vol0, which was forgotten: name another device, or --old-member" "$tmp/out" || fail "$(cat "$tmp/out")"

# A member of an array that nobody knows is not proposed to be overwritten by add either.
truncate -s 24M "$tmp/y0" "$tmp/y1" "$tmp/y2"
ctl create third --order 1 --zeroed "$tmp/y0" "$tmp/y1" "$tmp/y2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 10 holds third 'a["io_allowed"]'
ctl fail third 0 >/dev/null 2>&1
! ctl add third 0 "$tmp/x0" >"$tmp/out" 2>&1 || fail "add takes it"
grep -q "x0 is member 0 of the ddraid array other, which this cluster does not know: .*'ddraidctl import'" "$tmp/out" || fail "$(cat "$tmp/out")"
! grep -q -- --old-member "$tmp/out" || fail "add proposes to destroy an array: $(cat "$tmp/out")"

# What a newer version has written is told from what is damaged, by all that look at a device.
newer() { # FILE: both its superblocks are of version 99
	/usr/bin/python3 -IS - "$1" <<-'EOF'
		import struct, sys
		def crc32c(data):
		    crc = 0xffffffff
		    for byte in data:
		        crc ^= byte
		        for _ in range(8):
		            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
		    return crc ^ 0xffffffff
		with open(sys.argv[1], "r+b") as f:
		    for at in 4096, 8192:
		        f.seek(at)
		        block = bytearray(f.read(4096))
		        block[8:16] = struct.pack("<II", 0, 99)
		        block[8:12] = struct.pack("<I", crc32c(block))
		        f.seek(at)
		        f.write(block)
	EOF
}
cp "$tmp/x0" "$tmp/x9"
newer "$tmp/x9"
words="x9.* carries a superblock of ddraid that a newer version has written: name another device, or --old-member"
! ctl add third 0 "$tmp/x9" >"$tmp/out" 2>&1 || fail "add takes it"
grep -q "$words" "$tmp/out" || fail "add: $(cat "$tmp/out")"
! ctl create new --order 1 "$tmp/x9" "$tmp/x1" "$tmp/x2" >"$tmp/out" 2>&1 || fail "create takes it"
grep -q "$words" "$tmp/out" || fail "create: $(cat "$tmp/out")"
! ctl import "$tmp/x9" "$tmp/x1" "$tmp/x2" >"$tmp/out" 2>&1 || fail "import takes it"
grep -q "x9.*a newer version of ddraid has written: .*update ddraid" "$tmp/out" || fail "import: $(cat "$tmp/out")"
end daemon TERM
