#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A block device that somebody has for himself is taken by no create, add or start, by force neither, and nothing of it is
# written; while an array has one, nobody else gets it. As root, on loop devices.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs losetup mkfs.ext4 e2fsck addpart delpart mount
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
begin claimed
loops=() partition=
at_end() {
	local device
	umount "$tmp/mnt" 2>/dev/null || true
	[ -z "$partition" ] || delpart "$partition" 1 2>/dev/null || true
	for device in "${loops[@]}"; do
		losetup -d "$device"
	done
}
# takes DEVICE: for itself, as a file system does. EBUSY: it can't.
takes() {
	/usr/bin/python3 -IS -c 'import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)' "$1" 2>"$tmp/err"
}
# refused TEXT STATUS COMMAND...: by the daemon, with these words.
refused() {
	local status=0
	"${@:3}" >"$tmp/out" 2>&1 || status=$?
	[ "$status" = "$2" ] || fail "status $status, not $2: ${*:3}: $(cat "$tmp/out")"
	grep -qF "$1" "$tmp/out" || fail "not said: $1; but: $(cat "$tmp/out")"
}
error_is() { # MEMBER TEXT: in the status of vol0
	holds vol0 '"'"$2"'" in a["members"]['"$1"'].get("error", "")'
}

for i in 0 1 2 3; do
	truncate -s 24M "$tmp/l$i"
	device=$(losetup -P -f --show "$tmp/l$i" 2>"$tmp/err") || { echo "skipped: no loop device to be had: $(tail -n 1 "$tmp/err")"; exit 77; }
	loops+=("$device")
done
mkdir "$tmp/mnt"
mounted="in use by the kernel: mounted at $tmp/mnt; unmount it, or name another device"
as b configure '[fence]' 'fence = none'
configure '[fence]' 'fence = none'
daemon_up

echo "create, with a mounted file system"
mkfs.ext4 -q "${loops[0]}"
mount "${loops[0]}" "$tmp/mnt" 2>"$tmp/err" || { echo "skipped: $(cat "$tmp/err")"; exit 77; }
echo precious >"$tmp/mnt/file"
sync -f "$tmp/mnt"
mount -o remount,ro "$tmp/mnt" # from here on the kernel writes nothing there either
before=$(sha256sum <"$tmp/l0")
refused "member 0 (${loops[0]}) can't be used: $mounted" 6 ctl create vol0 --order 1 --wipe "${loops[@]:0:3}"
refused "member 2 (${loops[0]}) can't be used: $mounted" 6 ctl create vol0 --order 1 --wipe "${loops[@]:1:2}" "${loops[0]}"
[ "$(sha256sum <"$tmp/l0")" = "$before" ] || fail "something was written to a mounted device"
umount "$tmp/mnt"
e2fsck -fn "${loops[0]}" >"$tmp/out" 2>&1 || fail "the file system: $(cat "$tmp/out")"
refused "so it is not zero from end to end: leave --zeroed out" 1 ctl create vol0 --order 1 --zeroed --wipe "${loops[@]:0:3}"
ctl create vol0 --order 1 --wipe "${loops[@]:0:3}" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
until_true 20 holds vol0 'a["io_allowed"]'
! grep -q "in use" "$tmp/log" || fail "it met itself: $(cat "$tmp/log")"

echo "an array has its devices for itself"
for device in "${loops[@]:0:3}"; do
	! takes "$device" || fail "$device was to be had"
done
! mount "${loops[0]}" "$tmp/mnt" 2>"$tmp/err" || fail "mounted"
"$top_builddir/ddraidctl" examine "${loops[0]}" >"$tmp/out" 2>&1 || fail "examine: $(cat "$tmp/out")"
refused "is member 0 of the array vol0" 1 ctl create vol1 --order 1 --wipe --old-member "${loops[0]}" "${loops[3]}" "$tmp/l0"
as b daemon_up
refused "member 0 (${loops[0]}) can't be used: in use: process ${pid[daemon]} (ddraidd) has it open" 6 \
	as b ctl create vol1 --order 1 --wipe --old-member "${loops[0]}" "${loops[3]}" "$tmp/l0"
end b TERM

echo "add, with a mounted file system"
mkfs.ext4 -q "${loops[3]}"
mount "${loops[3]}" "$tmp/mnt"
ctl fail vol0 2 >"$tmp/out" 2>&1 || fail "fail: $(cat "$tmp/out")"
! takes "${loops[2]}" || fail "one that was failed was to be had, and may be added again"
refused "${loops[3]} can't be used: $mounted" 6 ctl add vol0 2 "${loops[3]}" --wipe
umount "$tmp/mnt"
e2fsck -fn "${loops[3]}" >"$tmp/out" 2>&1 || fail "the file system: $(cat "$tmp/out")"
ctl add vol0 2 "${loops[3]}" --wipe --wait >"$tmp/out" 2>&1 || fail "add: $(cat "$tmp/out")"
! takes "${loops[3]}" || fail "${loops[3]} was to be had"

echo "start, with a partition that is mounted and a disk that a process has"
ctl stop vol0 >"$tmp/out" 2>&1 || fail "stop: $(cat "$tmp/out")"
for device in "${loops[@]}"; do
	until_true 5 takes "$device"
done
addpart "${loops[0]}" 1 40000 8000
partition=${loops[0]}
IFS=: read -r major minor <"/sys/block/${partition##*/}/${partition##*/}p1/dev"
mknod "$tmp/part" b "$major" "$minor"
mkfs.ext4 -q "$tmp/part"
mount "$tmp/part" "$tmp/mnt"
/usr/bin/python3 -IS -c 'import os, sys, time
f = os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
open(sys.argv[2], "w").close()
time.sleep(600)' "${loops[1]}" "$tmp/held" &
pid[holder]=$!
until_true 5 test -e "$tmp/held"
ctl start vol0 --timeout 3 >"$tmp/out" 2>&1 || true
until_true 10 error_is 0 "in use by the kernel: ${partition##*/}p1 is mounted at $tmp/mnt; unmount it, or name another device"
until_true 10 error_is 1 "in use: process ${pid[holder]} (python3"
! holds vol0 'a["io_allowed"]' || fail "it serves with one member"
umount "$tmp/mnt"
delpart "$partition" 1
partition=
end holder KILL
until_true 30 holds vol0 'a["io_allowed"]'

echo "killed"
end daemon KILL
for device in "${loops[@]:0:2}" "${loops[3]}"; do
	until_true 5 takes "$device"
done
