#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# ddraid-check-members reads what the core writes, finds what is wrong, and only that.
set -eu

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
check=$top_srcdir/tests/checker/ddraid-check-members
make=$top_builddir/tests/checker/mkmembers

command -v /usr/bin/python3 >/dev/null || { echo "skipped: no python3 here"; exit 77; }
[ -x "$make" ] || { echo "FAILED: $make is missing: run make check"; exit 1; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

fail() {
	echo "FAILED at line ${BASH_LINENO[0]}: $*"
	exit 1
}

# make_array OPTION...: m0.. and user in ./a
make_array() {
	rm -rf a
	mkdir a
	"$make" a "$@"
}

# run STATUS ARGUMENT...: runs the checker; its result is in ./json
run() {
	local want=$1 got=0
	shift
	/usr/bin/python3 -I -S "$check" --json "$@" >json 2>err || got=$?
	[ "$got" = "$want" ] || {
		cat json err
		echo "FAILED at line ${BASH_LINENO[0]}: exit $got, wanted $want: $*"
		exit 1
	}
}

# holds EXPRESSION: about the result r, in Python
holds() {
	/usr/bin/python3 -I -S -c 'import json, sys
r = json.load(open("json"))
sys.exit(0 if eval("(" + sys.argv[1] + ")") else 1)' "$1" || {
		cat json
		echo "FAILED at line ${BASH_LINENO[0]}: $1"
		exit 1
	}
}

# flip FILE OFFSET: inverts a byte
flip() {
	/usr/bin/python3 -I -S -c 'import sys
f = open(sys.argv[1], "r+b")
f.seek(int(sys.argv[2]))
b = f.read(1)
f.seek(-1, 1)
f.write(bytes([b[0] ^ 255]))' "$1" "$2"
}

data=$((1 << 20)) # data_offset of all these arrays

echo "every geometry: clean, and the same data whichever member is left out"
for order in 1 2 3; do
	for layout in 0 1; do
		for shape in "4096 65536" "16384 8192" "131072 1048576"; do
			read -r stripe band <<<"$shape"
			make_array order=$order layout=$layout stripe="$stripe" band="$band" \
				region=131072 member_mib=2 seed=$((order * 10 + layout))
			run 0 --strict --compare-left-out --extract x a/m?
			cmp x a/user
			holds 'r["stripes_checked"] == r["geometry"]["stripes"] > 0 and
				all(d["differing"] == 0 for d in r["left_out"])'
			# One member is only passed over, another is really absent.
			run 0 --extract x --without 0 a/m?
			cmp x a/user
			rm a/m$((1 << order))
			run 0 --extract x a/m?
			cmp x a/user
		done
	done
done

echo "one wrong byte is found on every member, and belongs to its region"
# F = 1024, a region of 64 KiB has 16 stripes: 16 KiB of each member
for i in 0 2 4; do
	make_array region=65536 dirty=1:5 dirty=3:7
	run 0 a/m?
	holds 'r["regions_dirty"] == [5, 7] and r["slots"][1]["dirty"] == [5]'
	run 1 --strict a/m?
	# the first and last byte of dirty regions: tolerated
	flip a/m$i $((data + 5 * 16384))
	flip a/m$i $((data + 8 * 16384 - 1))
	run 0 a/m?
	holds 'r["stripes_wrong"] == 2 and r["stripes_wrong_clean"] == 0'
	run 1 --strict a/m?
	# the first byte after one: not
	flip a/m$i $((data + 6 * 16384))
	run 1 a/m?
	holds 'r["regions_wrong"] == [5, 6, 7] and r["regions_wrong_clean"] == [6]'
	flip a/m$i $((data + 6 * 16384))
	flip a/m$i $((data + 5 * 16384 - 1))
	run 1 a/m?
	holds 'r["regions_wrong_clean"] == [4]'
done
make_array
flip a/m0 $(((4 << 20) - 1)) # the array's last stripe
run 1 a/m?
rm a/m4 # nothing left to compare with: told, and not good enough for --strict
run 0 a/m?
holds 'r["stripes_checked"] == 0'
run 1 --strict a/m?

echo "data differs without each member that carries data of a wrong stripe"
make_array
flip a/m1 $data # band 0: fragments 0 to 3 on members 0 to 3, parity on 4
run 1 --compare-left-out a/m?
holds '[d["differing"] for d in r["left_out"]] == [1, 1, 1, 1, 0]'
make_array
flip a/m1 $((data + 65536)) # band 1: parity on member 0
run 1 --compare-left-out a/m?
holds '[d["differing"] for d in r["left_out"]] == [0, 1, 1, 1, 1]'
make_array region=65536 dirty=0:0
flip a/m1 $data
run 0 --compare-left-out a/m?
holds '[d["differing_clean"] for d in r["left_out"]] == [0] * 5'

echo "log: missed bits are told, torn pages fall back, unreadable ones are dirty"
make_array region=65536 missed=4:3 slots=4
run 0 --strict a/m?
holds 'r["slots"][4]["missed"] == [3] and r["slots"][4]["array"] and not r["regions_dirty"]'
holds 'r["slots"][2]["node"] == 3 and r["slots"][2]["incarnation"] == 0xabc002'
page() { echo $((65536 + ($1 * 2 + $2) * 4096 + 100)); } # slot, copy
flip a/m0 "$(page 2 1)"
run 0 --strict a/m? # member 1 still has it
flip a/m1 "$(page 2 1)"
run 0 a/m? # the copy before it, which has every bit
holds 'len(r["slots"][2]["dirty"]) == r["geometry"]["regions"]'
holds 'r["slots"][2]["unreadable_pages"] == []'
for i in 0 1 2 3 4; do flip a/m$i "$(page 2 0)"; done
flip a/m3 $((data + 200000))
run 0 a/m?
holds 'r["slots"][2]["unreadable_pages"] == [0]'
holds 'len(r["regions_dirty"]) == r["geometry"]["regions"] and r["stripes_wrong"] == 1'
run 1 --strict a/m?

echo "only what may be read is read"
make_array region=65536 state=1:4
dd if=/dev/urandom of=a/m1 bs=1M seek=1 count=3 conv=notrunc status=none
run 0 --compare-left-out --extract x a/m?
cmp x a/user
holds 'r["members"][1]["state"] == "faulty" and r["stripes_checked"] == 0'
run 1 --strict a/m?
make_array region=65536 state=2:5:10
dd if=/dev/urandom of=a/m2 bs=16384 seek=74 count=100 conv=notrunc status=none
run 0 --extract x a/m?
cmp x a/user
holds 'r["stripes_checked"] == 10 * 16 and r["members"][2]["rebuilt_upto"] == 10'
flip a/m2 $((data + 10 * 16384 - 1)) # the last byte that was rebuilt
run 1 a/m?
holds 'r["regions_wrong_clean"] == [9]'
make_array region=65536
cp -r a b
make_array region=65536 epoch=8
cp b/m3 a/m3 # was left behind at epoch 7
flip a/m3 $((data + 5))
run 0 --extract x a/m?
cmp x a/user
holds 'r["members"][3]["stale"] and r["epoch"]["number"] == 8'
rm -rf b

echo "where log and data lie is stored, and what is out of bounds is refused"
make_array member_mib=24 slots=2 log_pages=3 journal=524288 data_offset=$((3 << 20)) region=65536 dirty=1:5 dead=2:77
run 0 --compare-left-out --extract x a/m?
cmp x a/user
holds 'r["regions_dirty"] == [5] and r["slots"][1]["dirty"] == [5]'
holds '[s["dead_below"] for s in r["slots"]] == [0, 0, 77]'
holds '[r["geometry"][k] for k in ("log_pages", "journal_bytes", "data_offset", "chunk_bytes",
	"logical_block_bytes")] == [3, 524288, 3 << 20, 1024, 4096]'
flip a/m0 $(((3 << 20) - 1)) # the last byte before the data
run 0 a/m?
flip a/m0 $((3 << 20))
run 1 a/m?
holds 'r["regions_wrong_clean"] == [0]'
# patch OFFSET FORMAT VALUE: another number in all superblocks, with a good checksum
patch() {
	/usr/bin/python3 -I -S -c 'import struct, sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
offset, form, value = int(sys.argv[1]), "<" + sys.argv[2], int(sys.argv[3])
for path in sys.argv[4:]:
    with open(path, "r+b") as f:
        for at in (4096, 8192):
            f.seek(at)
            block = bytearray(f.read(4096))
            struct.pack_into(form, block, offset, value)
            struct.pack_into("<I", block, 8, 0)
            struct.pack_into("<I", block, 8, crc32c(block))
            f.seek(at)
            f.write(block)' "$@" a/m?
}
# bounded OFFSET FORMAT VALUE WORDS
bounded() {
	patch "$1" "$2" "$3"
	run 2 a/m?
	holds '"'"$4"'" in r["problems"][0]'
}
make_array
patch 232 Q 0 # what is there
run 0 --strict a/m?
bounded 168 Q 0 "data_offset 0"
bounded 168 Q $(((1 << 20) + 4096)) "data_offset 1052672"
bounded 168 Q $((4 << 20)) "data_offset 4194304"
bounded 168 Q $((1 << 62)) "data_offset 4611686018427387904"
patch 168 Q $((1 << 20))
bounded 176 I 0 "log_pages 0"
bounded 176 I 1025 "log_pages 1025"
bounded 176 I 40 "data_offset 1048576"
patch 176 I 1
bounded 232 Q 1 "journal_bytes 1"
bounded 232 Q 4096 "journal_bytes 4096"
bounded 232 Q 131072 "journal_bytes 131072"
patch 232 Q 65536 # there is room for it
run 0 --strict a/m?
patch 232 Q 0
bounded 240 I 2048 "chunk 2048"
patch 240 I 1024
bounded 244 I 512 "logical block 512"
patch 244 I 4096
run 0 --strict a/m?
bounded 32 Q 1 "partial-stripes"
bounded 32 Q 31 "partial-stripes, journal, p+q, mirror, external-log"
bounded 32 Q $((1 << 40)) "incompat feature 40"
patch 32 Q 0
bounded 24 Q 4 "ro-compat feature 2"

echo "devices that do not belong are told apart"
make_array
mkdir b
"$make" b ids=0x50 epoch=3 zero=1
run 0 --strict --extract x a/m? b/m2
cmp x a/user
holds 'r["strangers"] == ["b/m2"]'
"$make" b array=0x22 zero=1
run 2 a/m? b/m2
holds '"another array" in r["problems"][0]'
"$make" b order=1 zero=1
run 2 a/m0 b/m1
holds '"geometry" in r["problems"][0]'
run 2 a/m0 a/m0
holds '"same member" in r["problems"][0]'
flip a/m0 5000
run 0 --strict a/m?
holds 'r["members"][0]["superblocks"] == ["checksum", "ok"]'
flip a/m0 9000
run 2 a/m?
holds '"no superblock" in r["problems"][0]'
: >empty
run 2 empty
run 2 no-such-file
truncate -s 3M a/m1
run 2 a/m1 a/m2 a/m3 a/m4
run 2 --extract x a/m2 a/m3 a/m4
holds '"are needed" in r["problems"][0]'

echo "the report for people"
make_array region=65536 dirty=1:5
flip a/m0 $data
"$check" a/m? >out && fail "wrong parity was accepted"
grep -q '^member 4: in-sync, a/m4$' out
grep -q '^slot 1: node 2/abc001, 1 dirty \[5\], 0 missed \[\]$' out
grep -q '^wrong and clean: regions 0$' out
grep -q '^FAILED$' out
"$check" --help | grep -q -- --compare-left-out
