#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file system on the array as a block device, disk-cache.sh VIA: its machine loses power in the middle of writes, and with it
# all members, which lose what was in their caches, some of it in any order. What fsync had promised is there, and the file
# system is whole: FLUSH and FUA come through from the device to the disks; twice.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
cluster_volatile || { echo "skipped: no nbdkit-plugin.h (tools/deps)"; exit 77; }
via=${1:-shim}
MEMBER_SIZE=48M
export EXPORTER_VOLATILE=yes
mnt=/run/mnt

array_up 1 1
disk_driver 1 "$via"
disk_attach 1 --via "$via"
node_exec 1 mkfs.ext4 -q -E nodiscard /dev/ddraid/vol0 || fail "mkfs.ext4"

mounted() {
	node_exec 1 sh -c "modprobe ext4; mkdir -p $mnt && mount -t ext4 /dev/ddraid/vol0 $mnt" || fail "mount: $(node_exec 1 dmesg | tail -n 5)"
}
durable() { # COUNT
	[ "$(cat "$CLUSTER_DIR/fs.1" 2>/dev/null | grep -c '^A')" -ge "$1" ]
}

had=0 lost=0
for _ in 1 2; do
	mounted
	node_exec 1 /usr/bin/python3 -SE "$SCENARIO_LIB/fsload.py" write $mnt 1 "$CLUSTER_DIR/fs.1" >>"$CLUSTER_DIR/fs.1.out" 2>&1 &
	writer=$!
	# Beside it, so that there is always something that no flush has covered.
	node_exec 1 sh -c "while dd if=/dev/zero of=$mnt/noise bs=64k count=256 oflag=direct conv=notrunc; do :; done" >/dev/null 2>&1 &
	noise=$!
	within 40 "it writes" durable $((had + 60))
	step "all is powered off"
	cluster_port_set n1 down
	for i in "${ARRAY_MEMBERS[@]}"; do
		sectors=$(exporter_power_cut "$i") || fail "exporter $i"
		lost=$((lost + sectors))
	done
	node_kill 1
	wait $writer $noise
	had=$(grep -c '^A' "$CLUSTER_DIR/fs.1")
	for i in "${ARRAY_MEMBERS[@]}"; do
		exporter_restart "$i" || fail "exporter $i does not come back"
	done
	node_start 1 || fail "the machine does not start"
	disk_driver 1 "$via"
	daemon_up 1
	serve 1
	within 20 "the device" disk_is_there 1
	mounted
	node_exec 1 /usr/bin/python3 -SE "$SCENARIO_LIB/fsload.py" check $mnt "$CLUSTER_DIR/fs.1" || fail "what was durable is not there"
	node_exec 1 umount $mnt || fail "umount"
	node_exec 1 e2fsck -fn /dev/ddraid/vol0 >"$CLUSTER_DIR/fsck" 2>&1 || fail "e2fsck: $(cat "$CLUSTER_DIR/fsck")"
done
[ $lost -gt 0 ] || fail "the caches had nothing to lose"
measured "$lost sectors were lost"
disk_finish 1
