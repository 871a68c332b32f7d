#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `ddraidctl examine` says what is on a member: good ones, damaged ones, ones that are none, and by NBD.
set -eu
export LC_ALL=C

top_builddir=${top_builddir:-$(cd "$(dirname "$0")/../.." && pwd)}
ctl=$top_builddir/ddraidctl
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
mkdir members
"$top_builddir/tests/checker/mkmembers" members state=1:5:3 dirty=1:2 dirty=2:3 dirty=2:9 missed=1:4

status=0
# expect STATUS WORDS...: examines, and looks at the exit status.
expect() {
	local want=$1

	shift
	status=0
	"$ctl" examine "$@" >out 2>err || status=$?
	[ "$status" = "$want" ] || {
		echo "FAILED: 'examine $*' ended with $status, wanted $want"
		cat out err
		exit 1
	}
}
# holds EXPRESSION: of the JSON in out, as said, and of its members, as d.
holds() {
	/usr/bin/python3 -IS -c 'import json, sys
said = json.load(open("out"))
d = said["members"]
if not eval(sys.argv[1]):
    print("FAILED:", sys.argv[1]); print(json.dumps(d, indent=1)); sys.exit(1)' "$1"
}
says() {
	grep -qF -- "$1" "${2:-out}" || {
		echo "FAILED: not said: $1"
		cat out err
		exit 1
	}
}
flip() { # FILE OFFSET
	printf 'U' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

expect 0 members/m0 --ranges
says "superblock 1  good"
says "3 of 12"
says "dirty regions 2 to 3"
says "dirty regions 9 to 9"

expect 0 members/m0 members/m4 --json --ranges
holds 'len(d) == 2 and d[1]["index"] == 4 and d[0]["error"] is None'
holds 'd[0]["slots"][1]["dirty"] == 1 and d[0]["slots"][1]["missed"] == 1 and d[0]["slots"][2]["dirty"] == 2'
holds 'd[0]["map"][1]["state"] == "rebuilding" and d[0]["map"][1]["rebuilt_upto"] == 3'
holds 'd[0]["dirty"] == [{"first": 2, "count": 2}, {"first": 9, "count": 1}]'
holds 'd[0]["geometry"]["order"] == 2 and d[0]["geometry"]["regions"] == 12'

# Who uses the array, since when nothing was heard of it, whose it is, and which epochs came before.
expect 0 members/m0
says "  cluster       none, a daemon by itself"
says "  used by       nobody"
mkdir used
"$top_builddir/tests/checker/mkmembers" used cluster=main used=3:1000000000 past=2:5 past=3:5 past=4:5 past=6:70
expect 0 used/m1
says "  cluster       main"
says "  used by       node 3 (h1) of cluster main, process 123, incarnation 0x0000000000000046"
says "last sign of it 2001-09-09 01:46:40 UTC by its node's clock, "
says "; without a sign for 5.0 s it is gone"
says "  history       epoch 6 of incarnation 0x0000000000000046"
says "                epochs 2 to 4 of incarnation 0x0000000000000005"
expect 0 used/m1 --json
holds 'd[0]["clustered"] and d[0]["cluster"] == "main"'
holds '{k: d[0]["use"][k] for k in ("state", "node", "host", "cluster", "process", "written_at", "patience_ms")} == {
	"state": "used", "node": 3, "host": "h1", "cluster": "main", "process": 123,
	"written_at": "2001-09-09T01:46:40Z", "patience_ms": 5000}'
holds '[e["epoch"] for e in d[0]["history"]] == [6, 4, 3, 2] and int(d[0]["history"][3]["incarnation"], 16) == 5'
flip used/m1 12500
expect 0 used/m1
says "  used by       somebody who is not known: the use block is damaged"
expect 0 used/m1 --json
holds 'd[0]["use"] == {"state": "damaged"}'
"$top_builddir/tests/checker/mkmembers" used array=0x11
dd if=members/m0 of=used/m1 bs=4096 skip=3 seek=3 count=1 conv=notrunc status=none
expect 0 used/m1 --json
holds 'd[0]["use"] == {"state": "nobody"}'

# Where the areas are, as stored and not as create would choose today; a feature of a later build.
mkdir other
"$top_builddir/tests/checker/mkmembers" other member_mib=24 slots=2 log_pages=3 journal=524288 data_offset=3145728 \
	dirty=1:2 dead=1:77
expect 0 other/m1
says "data from 3 MiB on"
says "  blocks        chunks of 1 KiB on a member, logical blocks of 4 KiB for users"
says "2 slots of 3 pages"
says "  journal       room for 2 rings of 512 KiB"
says "  slot 1: entries of the journal below 77 are dead"
expect 0 other/m1 --json
holds '[d[0]["geometry"][k] for k in ("log_pages", "journal_bytes", "data_offset", "chunk_bytes",
	"logical_block_bytes")] == [3, 524288, 3145728, 1024, 4096]'
holds '[s["dead_below"] for s in d[0]["slots"]] == [0, 77, 0] and d[0]["slots"][1]["dirty"] == 1'
expect 0 members/m0
grep -q "journal" out && { echo "FAILED: there is no journal" && exit 1; }
"$top_builddir/tests/checker/mkmembers" other incompat=4
expect 1 other/m0
says "superblock 1  the array uses the feature p+q, which this build doesn't have: update ddraid"
says "other/m0 carries no good superblock: the array uses the feature p+q, " err

# A create that was cut off.
"$top_builddir/tests/checker/mkmembers" used claimed=1
expect 1 used/m1
says "a claim: 'create' of the array claimed (dddddddd-dddd-dddd-dddd-dddddddddddd) is under way, or was cut off"

# One bad copy of the superblock, then both; one bad copy of a log page, then both.
flip members/m0 8300
expect 0 members/m0 --json
holds 'not d[0]["superblocks"][1]["good"] and d[0]["superblocks"][0]["counts"]'
flip members/m0 4200
expect 1 members/m0 --json
holds '"checksum" in d[0]["error"] and "geometry" not in d[0] and not any(s["good"] for s in d[0]["superblocks"])'
expect 1 members/m0
says "checksum"
flip members/m1 65800
expect 0 members/m1 --json
holds 'd[0]["slots"][0]["pages_torn"] == 1'
flip members/m1 69900
expect 1 members/m1
says "1 LOST"
says "members/m1: 1 page of its dirty log has no good copy; " err

# What is no member.
head -c 3000000 /dev/urandom >noise
head -c 3000000 /dev/zero >zero
head -c 5000 members/m2 >short
: >empty
mkfifo fifo
expect 1 noise zero --json
holds 'not any(s["good"] for m in d for s in m["superblocks"])'
holds 'all(m["error"] == "there is no ddraid superblock here" for m in d)'
holds 'said["error"].startswith("noise carries no good superblock: there is no")'
expect 1 noise
says "superblock 0  there is no ddraid superblock here"
says "noise carries no good superblock: there is no ddraid superblock here; check the path or URI" err
for f in short empty fifo . nothing ftp://x/y nbd://; do
	expect 1 "$f"
	says "can't be examined" err
	expect 1 "$f" --json
	holds 'd[0]["error"]'
done
head -c 70000 members/m2 >cut # the log ends in the middle
expect 1 cut
says "it ends before" err

if command -v nbdkit >/dev/null; then
	nbdkit --exit-with-parent -U nbd.sock -f file members/m3 &
	for _ in $(seq 100); do [ -S nbd.sock ] && break; sleep 0.05; done
	expect 0 "nbd+unix:///?socket=$tmp/nbd.sock" --json
	kill %1
	holds 'd[0]["index"] == 3'
	# A sector that can't be read is a damaged copy, and hides nothing else: of the superblock, of a log page.
	for at in 4096 8192 65536; do
		rm -f nbd.sock
		nbdkit --exit-with-parent -U nbd.sock sh - 2>nbd.log <<-END &
			case \$1 in
			get_size) stat -c %s "$tmp/members/m3" ;;
			pread)
				if [ "\$4" -le $at ] && [ $at -lt \$((\$4 + \$3)) ]; then
					echo EIO a bad sector >&2
					exit 1
				fi
				dd if="$tmp/members/m3" iflag=skip_bytes,count_bytes bs=4096 skip="\$4" count="\$3" status=none ;;
			*) exit 2 ;;
			esac
		END
		for _ in $(seq 100); do [ -S nbd.sock ] && break; sleep 0.05; done
		expect $((at == 65536)) "nbd+unix:///?socket=$tmp/nbd.sock" --json
		kill $!
		case $at in
		65536) holds '"no good copy" in d[0]["error"] and [s["pages_lost"] for s in d[0]["slots"]] == [1, 0, 0, 0, 0]' ;;
		*) holds 'd[0]["error"] is None and d[0]["index"] == 3 and [s["good"] for s in d[0]["superblocks"]] == '"$([ $at = 4096 ] && echo '[False, True]' || echo '[True, False]')" ;;
		esac
	done
fi
