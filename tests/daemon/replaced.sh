#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Devices that were, or are, members: `add` and `create` tell what they are to their arrays, and name only what helps: whatever a
# refusal suggests is tried here, and works.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin replaced
configure '[fence]' 'fence = none'
clear() { # DISK...
	local i
	for i; do
		rm -f "$tmp/$i"
		truncate -s 24M "$tmp/$i"
	done
}
done_() { # COMMAND...
	ctl "$@" >"$tmp/out" 2>&1 || fail "$*: $(cat "$tmp/out")"
}
# refused WORDS COMMAND...: with these words, and without a hint at --old-member unless they have one.
refused() {
	local words=$1 status=0
	shift
	ctl "$@" >"$tmp/out" 2>&1 || status=$?
	[ $status = 1 ] || fail "$*: status $status, $(cat "$tmp/out")"
	grep -q -- "$words" "$tmp/out" || fail "$*: not '$words': $(cat "$tmp/out")"
	case $words in *--old-member*) return ;; esac
	! grep -q -- "--old-member" "$tmp/out" || fail "$*: speaks of --old-member: $(cat "$tmp/out")"
}
create() { # NAME DISK...
	local a=$1
	shift
	done_ create "$a" --order 1 --zeroed "${@/#/$tmp/}"
	until_true 10 holds "$a" 'a["io_allowed"]'
}
whole() { # ARRAY
	done_ status "$1" --wait --timeout 40
	holds "$1" 'not a["degraded"]' || fail "$1 is degraded: $(ctl status "$1")"
}

clear m0 m1 m2 m3 m4 m5
daemon_up
create v0 m0 m1 m2
nbd v0 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "I/O to v0"

echo "add in the place of a member that is in use"
done_ add v0 0 "$tmp/m0" # it is there: an add whose answer was lost
head -c 1M /dev/urandom >"$tmp/nothing"
mkfs.ext4 -q "$tmp/m4" 2>/dev/null || printf 'LABELONE' | dd of="$tmp/m4" bs=1 seek=512 conv=notrunc 2>/dev/null
for disk in m1 m3 m4 nothing nowhere; do
	refused "member 0 of v0 is in use (in-sync), and $tmp/$disk is not its device: .* first 'ddraidctl fail v0 0'" add v0 0 "$tmp/$disk"
	refused "member 0 of v0 is in use (in-sync), .* first 'ddraidctl fail v0 0'" add v0 0 "$tmp/$disk" --old-member
done
clear m4
done_ fail v0 0
refused "member 1 of v0 is in use (in-sync), .*: it can't be replaced now, since the data needs all that are in sync" add v0 1 "$tmp/m3"

echo "add of a device of the same array"
refused "$tmp/m1 is member 1 of this array, and in use (in-sync), or a copy of that: name another device, or, if it is a copy that nobody needs, overwrite its first 16 KiB with zeroes" add v0 0 "$tmp/m1"
refused "$tmp/m1 is member 1 of this array, and in use (in-sync), or a copy of that: name another device, or, if it is a copy that nobody needs, overwrite its first 16 KiB with zeroes" add v0 0 "$tmp/m1" --old-member
refused "$tmp/m0 is member 0 of this array, which is faulty: name another device, or --old-member" add v0 0 "$tmp/m0"
done_ add v0 0 "$tmp/m0" --old-member
whole v0
done_ fail v0 0
done_ add v0 0 "$tmp/m3"
whole v0
done_ fail v0 2
refused "$tmp/m0 was a member of this array: name another device, or --old-member to use it as a new one" add v0 2 "$tmp/m0"
done_ add v0 2 "$tmp/m0" --old-member
whole v0

echo "create on a device that was replaced"
refused "is member 1 of the array v0, which this cluster has: .*'ddraidctl forget v0'" create v1 --order 1 --zeroed "$tmp/m1" "$tmp/m4" "$tmp/m5"
refused "is member 1 of the array v0, which this cluster has: .*'ddraidctl forget v0'" \
	create v1 --order 1 --zeroed --old-member --stripe 8K "$tmp/m1" "$tmp/m4" "$tmp/m5" # whatever may be overwritten
done_ fail v0 2 # what has replaced m2: then the old data may be the last
for more in "" --old-member; do
	refused "was member 2 of the array v0, and the device that has its place is not in sync yet: wait .*, or name another device" \
		create v1 --order 1 --zeroed $more "$tmp/m2" "$tmp/m4" "$tmp/m5"
done
clear m6
done_ add v0 2 "$tmp/m6"
whole v0
refused "was member 2 of the array v0, which has another device in that place by now, .*: name another device, or --old-member" \
	create v1 --order 1 --zeroed "$tmp/m2" "$tmp/m4" "$tmp/m5"
done_ stop v0 # then nobody can tell
for more in "" --old-member; do
	refused "is or was member 2 of the array v0, which does not serve here now, .*'ddraidctl start v0' and try again" \
		create v1 --order 1 --zeroed $more "$tmp/m2" "$tmp/m4" "$tmp/m5"
done
done_ start v0
until_true 10 holds v0 'a["io_allowed"]'
done_ create v1 --order 1 --zeroed --stripe 8K --old-member "$tmp/m2" "$tmp/m4" "$tmp/m5"
until_true 10 holds v1 'a["io_allowed"]'
nbd v1 'h.pwrite(b"y" * 65536, 0); h.flush()' || fail "I/O to v1"
nbd v0 'assert h.pread(65536, 0) == b"x" * 65536' || fail "v0 has lost data"
holds v0 'not a["degraded"]' || fail "v0: $(ctl status v0)"

echo "add of another array's device"
done_ fail v1 1
refused "$tmp/m1 is member 1 of the array v0, which this cluster has" add v1 1 "$tmp/m1"
refused "$tmp/m1 is member 1 of the array v0, which this cluster has" add v1 1 "$tmp/m1" --old-member
refused "$tmp/m0 was member 2 of the array v0, which has another device in that place by now, .* or --old-member" add v1 1 "$tmp/m0"
done_ add v1 1 "$tmp/m0" --old-member
whole v1
nbd v1 'assert h.pread(65536, 0) == b"y" * 65536' || fail "v1 has lost data"

echo "a device of a known array on which no superblock is intact"
done_ stop v0
done_ fail v1 1
cp "$tmp/m1" "$tmp/m1.kept"
dd if=/dev/zero of="$tmp/m1" bs=4096 seek=1 count=2 conv=notrunc 2>/dev/null
clear m7 m8
ln -s "$tmp/m1" "$tmp/m1.link"
for disk in m1 m1.link; do
	for more in "" --old-member; do
		refused "is named as member 1 of the array v0, which this cluster has, .*'ddraidctl forget v0'" \
			create v2 --order 1 --zeroed --stripe 8K $more "$tmp/$disk" "$tmp/m7" "$tmp/m8"
		refused "is named as member 1 of the array v0, which this cluster has" add v1 1 "$tmp/$disk" $more
	done
done
mv "$tmp/m1.kept" "$tmp/m1"
done_ add v1 1 "$tmp/m0" --old-member
whole v1
done_ start v0
until_true 10 holds v0 'a["io_allowed"]'
holds v0 'not a["degraded"]' || fail "v0: $(ctl status v0)"

echo "devices of an array that nobody knows any more"
done_ forget v1 --disconnect
done_ fail v0 0
refused "$tmp/m5 carries a superblock of ddraid that is damaged, or of an array that was forgotten: name another device, or --old-member to overwrite it" add v0 0 "$tmp/m5"
done_ add v0 0 "$tmp/m5" --old-member
whole v0
nbd v0 'assert h.pread(65536, 0) == b"x" * 65536' || fail "v0 has lost data"

echo "a device that shrank and was set right, while its exporter went on with what it had found"
done_ stop v0
truncate -s 16M "$tmp/m1"
done_ start v0
until_true 10 holds v0 'a["io_allowed"] and "16777216 bytes" in a["members"][1]["error"]'
holds v0 'not a["members"][1]["connected"]' || fail "it counts as connected: $(ctl status v0)"
sleep 6 # it is looked at again meanwhile, and nothing has changed
[ "$(grep -c "m1 can't be member 1: it has 16777216 bytes" "$tmp/log")" = 1 ] || fail "not told once: $(grep "m1 can't" "$tmp/log")"
truncate -s 24M "$tmp/m1"
until_true 15 holds v0 'a["members"][1]["connected"]'
done_ add v0 1 "$tmp/m1" --old-member
whole v0
nbd v0 'assert h.pread(65536, 0) == b"x" * 65536' || fail "v0 has lost data"

echo "a device that lost its end while it was open, and was extended before somebody brought it back"
nbd v0 'h.pwrite(b"z" * 1048576, h.get_size() - 1048576); h.flush()' || fail "I/O to v0"
until_true 10 holds v0 'a["regions_dirty"] == 0'
truncate -s 16M "$tmp/m1"
nbd v0 'for i in range(h.get_size() >> 20): h.pread(1048576, i << 20)' || fail "v0 can't be read"
until_true 10 holds v0 'a["members"][1]["state"] in ("missing", "faulty")'
until_true 15 holds v0 'a["members"][1]["state"] == "faulty"'
truncate -s 24M "$tmp/m1"
! ctl re-add v0 1 >"$tmp/out" 2>&1 || fail "it comes back without what it lost"
done_ add v0 1 "$tmp/m1" --old-member
whole v0
nbd v0 'assert h.pread(1048576, h.get_size() - 1048576) == b"z" * 1048576' || fail "v0 has lost data"

echo "the same, of an array that can't do without it"
done_ stop v0
first=$(ctl status v0 --json | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["arrays"][0]["members"][0]["uri"].split("://")[-1])')
mv "$first" "$tmp/away"
truncate -s 16M "$tmp/m1"
ctl start v0 --timeout 2 >"$tmp/out" 2>&1 || true
until_true 10 holds v0 '"16777216 bytes" in a["members"][1]["error"]'
truncate -s 24M "$tmp/m1"
until_true 20 holds v0 'a["members"][1]["connected"] and "too small for a while" in str(a)'
mv "$tmp/away" "$first"
until_true 20 holds v0 'a["io_allowed"]'
until_true 10 holds v0 'a["members"][1]["state"] == "faulty"'
nbd v0 'assert h.pread(1048576, h.get_size() - 1048576) == b"z" * 1048576' || fail "v0 has lost data"
done_ add v0 1 "$tmp/m1" --old-member
whole v0
nbd v0 'assert h.pread(1048576, h.get_size() - 1048576) == b"z" * 1048576' || fail "v0 has lost data"

echo "overwriting, while the file of an array is damaged: which devices it has can't be told"
end daemon TERM
cp "$tmp/state/v0.array" "$tmp/v0.kept"
echo nothing >"$tmp/state/v0.array"
daemon_up
clear m7 m8
status=0
ctl create v3 --order 1 --zeroed --old-member --stripe 8K "$tmp/m1" "$tmp/m7" "$tmp/m8" >"$tmp/out" 2>&1 || status=$?
[ $status != 0 ] || fail "a device of v0 is overwritten"
grep -q "nothing is overwritten while it can't be told which devices the array v0 has: .*v0.array" "$tmp/out" || fail "$(cat "$tmp/out")"
end daemon TERM
cp "$tmp/v0.kept" "$tmp/state/v0.array"
daemon_up
whole v0
nbd v0 'assert h.pread(65536, 0) == b"x" * 65536' || fail "v0 has lost data"

echo "a blank disk in a member's place"
done_ set v0 member_retry=1s
done_ stop v0
clear m1
done_ start v0
until_true 20 holds v0 'a["members"][1]["state"] == "missing"'
status=0
ctl re-add v0 1 >"$tmp/out" 2>&1 || status=$?
words="it carries no superblock of this array; connect the right device, or add this one as a new one by 'ddraidctl add v0 1 URI'"
[ $status = 6 ] && grep -q "$words" "$tmp/out" || fail "re-add of a blank disk: status $status, $(cat "$tmp/out")"
done_ add v0 1 "$tmp/m1"
whole v0
nbd v0 'assert h.pread(1048576, h.get_size() - 1048576) == b"z" * 1048576' || fail "v0 has lost data"
refused "member 1 of v0: only a missing member .* in-sync; nothing is to be done" re-add v0 1
done_ fail v0 1
refused "member 1 of v0: .* faulty; add its device or another as a new one by 'ddraidctl add v0 1 URI'" re-add v0 1
echo "ok"
