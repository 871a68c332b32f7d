#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A machine of 512 MiB writes far more than it has memory to a filesystem on its array, disk-memory.sh [SECONDS [KILLS]]: for 30
# seconds, through the page cache, while somebody else wants what memory there is left. Its ddraidd, which dirty pages need to
# get out, is killed meanwhile. What must not be: a time of more than STALL seconds without a request done while some are under
# way, or without one done and a page dirtied; a complaint of the kernel, or other data than was written.
# DISK_MEMORY, DISK_SECONDS, DISK_WRITTEN (MiB at least), DISK_STALL: other ones (tests/kmod/debug-kernel.sh).
set -u
export LAB_MEMORY=${DISK_MEMORY:-512} # MiB
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
seconds=${1:-${DISK_SECONDS:-30}} kills=${2:-2}
STALL=${DISK_STALL:-20}
MEMBER_SIZE=420M

array_up 1 1
disk_driver 1 shim
disk_attach 1 --via shim
dev=$(disk_of 1)

step "a file system, and who wants memory"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'modprobe ext4; mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/ddraid/vol0 &&
	mkdir -p /mnt/t && mount /dev/ddraid/vol0 /mnt/t' || fail "mkfs or mount"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'echo 1000 >/proc/self/oom_score_adj; echo $$ >/run/hog; exec /usr/bin/python3 -c "
import time
have = next(int(l.split()[1]) for l in open(\"/proc/meminfo\") if l.startswith(\"MemAvailable:\"))
b = bytearray(have // 3 << 10)
print(\"%d MiB were free\" % (have >> 10), flush=True)
while True:
	for i in range(0, len(b), 4096):
		b[i] = (b[i] + 1) & 255
	time.sleep(0.2)"' >"$CLUSTER_DIR/hog" 2>&1 &
hog=$!
within 20 "who wants memory" test -s "$CLUSTER_DIR/hog"

step "written for $seconds s, with ddraidd killed $kills times"
node_exec 1 fio --name=w --directory=/mnt/t --rw=write --bs=128k --size=250m --numjobs=2 --ioengine=psync --direct=0 \
	--time_based --runtime="$seconds" --output=/run/fio.w >"$CLUSTER_DIR/fio.w" 2>&1 &
fio=$!
# shellcheck disable=SC2016 # the node's shell
node_exec 1 bash -c 'last= dirtied= since=$SECONDS worst=0
	until [ -e /run/watch-end ]; do
		sleep 1
		read -ra fields <"/sys/block/$1/stat"
		now=$((fields[0] + fields[4]))
		[[ $(</proc/vmstat) =~ nr_dirtied\ ([0-9]+) ]] && pages=${BASH_REMATCH[1]}
		[ "$now" = "$last" ] && { [ "${fields[8]}" != 0 ] || [ "$pages" = "$dirtied" ]; } || last=$now since=$SECONDS
		dirtied=$pages
		((SECONDS - since <= worst)) || worst=$((SECONDS - since))
		if ((SECONDS - since > $2)); then
			echo "no request was done for $((SECONDS - since)) s, ${fields[8]} are under way, $pages pages were dirtied"
			echo w >/proc/sysrq-trigger
			dmesg | tail -n 100
			exit 1
		fi
		((SECONDS % 10)) || echo "$SECONDS s: $((fields[6] / 2048)) MiB written, $(awk "/^(Dirty|Writeback|MemFree):/ { printf \"%s %d MiB \", \$1, \$2 / 1024 }" /proc/meminfo)"
	done
	read -ra fields <"/sys/block/$1/stat"
	echo "$((fields[6] / 2048)) $SECONDS $worst"' bash "$dev" "$STALL" >"$CLUSTER_DIR/watch" 2>&1 &
watch=$!
for ((i = 1; i <= kills; i++)); do
	sleep $((seconds / (kills + 1)))
	daemon_kill 1
	daemon_start 1
	within 40 "the array after kill $i" active 1
	within 10 "the device after kill $i" disk_is_there 1
done
wait $fio || fail "fio: $(cat "$CLUSTER_DIR/fio.w"; node_exec 1 cat /run/fio.w)"
node_exec 1 touch /run/watch-end
wait $watch || fail "$(cat "$CLUSTER_DIR/watch")"
cat "$CLUSTER_DIR/watch"
read -r mib took worst < <(tail -n 1 "$CLUSTER_DIR/watch")
[ "$mib" -gt "${DISK_WRITTEN:-$LAB_MEMORY}" ] || fail "$mib MiB were written, that is not more than ${DISK_WRITTEN:-the memory}"
measured "$(cat "$CLUSTER_DIR/hog"), $mib MiB written in $took s, at most $worst s without progress"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'kill "$(cat /run/hog)"'
wait $hog

step "and compared"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'rm /mnt/t/w.* && set -- --name=v --directory=/mnt/t --bs=64k --size=550m --ioengine=psync --direct=0 --verify=crc32c &&
	fio "$@" --rw=write --do_verify=0 && sync && echo 3 >/proc/sys/vm/drop_caches && fio "$@" --rw=read --verify_only &&
	umount /mnt/t && fsck.ext4 -fn /dev/ddraid/vol0' >"$CLUSTER_DIR/fio.v" 2>&1 || fail "$(tail -n 40 "$CLUSTER_DIR/fio.v")"
disk_finish 1
