#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A machine of 512 MiB writes far more than it has memory to a filesystem on a disk of the kernel driver, for SECONDS
# (30): memory.sh [SECONDS]. The disk's server is in that machine, and its backing is an NBD export outside, so that dirty
# pages can only go through it. What must not be: a time of more than KMOD_STALL (20) seconds without a request done
# while some are under way, a complaint of the kernel, or other data than was written. As root, in the lab.
set -u
export top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
export top_builddir=${top_builddir:-$top_srcdir}

# In the machine.
inside() { # MODULE URI SECONDS
	local seconds=$3 began=$SECONDS stall=${KMOD_STALL:-20} work=/run/kmod-memory server sys last=0 now since=$SECONDS
	local writers=() hog fields worst=0
	set -e
	mkdir -p $work/mnt
	dmesg -c >/dev/null
	insmod "$1"
	modprobe ext4
	"$top_builddir/tests/kmod/disk-server" --uuid 1 --name big --size $((1 << 30)) --nbd "$2" >$work/out 2>$work/err &
	server=$!
	echo -1000 >/proc/$server/oom_score_adj
	until grep -q ^attached $work/out; do
		kill -0 $server || { cat $work/err; return 1; }
		sleep 0.1
	done
	sys=/sys/block/ddraid0
	mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/ddraid0
	mount /dev/ddraid0 $work/mnt
	# And somebody who wants what memory there is left.
	python3 -c 'import time
b = bytearray(100 << 20)
while True:
	for i in range(0, len(b), 4096):
		b[i] = (b[i] + 1) & 255
	time.sleep(0.2)' &
	hog=$!
	echo 1000 >/proc/$hog/oom_score_adj
	fio --name=w --directory=$work/mnt --rw=write --bs=128k --size=350m --numjobs=2 --ioengine=psync --direct=0 \
		--time_based --runtime="$seconds" --output=$work/fio &
	writers+=($!)
	set +e
	while kill -0 "${writers[0]}" 2>/dev/null; do
		sleep 1
		read -ra fields <$sys/stat
		now=$((fields[0] + fields[4]))
		if [ "$now" != "$last" ] || [ "${fields[8]}" = 0 ]; then
			last=$now since=$SECONDS
		fi
		((SECONDS - since <= worst)) || worst=$((SECONDS - since))
		if ((SECONDS - since > stall)); then
			echo "STALL: no request was done for $((SECONDS - since)) s, ${fields[8]} are under way"
			echo w >/proc/sysrq-trigger
			dmesg | tail -n 100
			return 1
		fi
		((SECONDS % 10)) || echo "$((SECONDS - began)) s: $((fields[6] / 2048)) MiB written, $(awk '/^(Dirty|Writeback|MemFree):/ { printf "%s %d MiB ", $1, $2 / 1024 }' /proc/meminfo)"
	done
	wait "${writers[0]}" || { cat $work/fio; return 1; }
	read -ra fields <$sys/stat
	echo "$((fields[6] / 2048)) MiB were written in $((SECONDS - began)) s; longest time without progress: $worst s"
	((fields[6] / 2048 > 512)) || { echo "that is not more than the memory"; return 1; }
	kill $hog
	rm -f $work/mnt/w.*
	fio --name=v --directory=$work/mnt --rw=write --bs=64k --size=600m --ioengine=psync --direct=0 --verify=crc32c \
		--do_verify=0 --output=$work/fio || { cat $work/fio; return 1; }
	sync
	echo 3 >/proc/sys/vm/drop_caches
	fio --name=v --directory=$work/mnt --rw=read --bs=64k --size=600m --ioengine=psync --direct=0 --verify=crc32c \
		--verify_only --output=$work/fio || { cat $work/fio; return 1; }
	umount $work/mnt
	kill -0 $server || { cat $work/err; return 1; }
	if dmesg | grep -E 'WARNING:|BUG|Oops|INFO: task .* blocked|page allocation failure|Call Trace'; then
		dmesg | tail -n 150
		echo "the kernel complained"
		return 1
	fi
	fsck.ext4 -fn /dev/ddraid0 || return 1
	echo "ok"
}

if [ "${1:-}" = inside ]; then
	shift
	inside "$@"
	exit
fi

export CLUSTER_FLAVOUR=lab LAB_BARE=yes LAB_CPUS=${LAB_CPUS:-2} LAB_MEMORY=${LAB_MEMORY:-512} LAB_APPEND=${LAB_APPEND:-}
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"
cluster_requires make fio mkfs.ext4 || exit 77
top_builddir=$(cd "$top_builddir" && pwd)
lab_image && kdir=$(lab_kdir) || exit 1
make -C "$top_builddir" -s kmod "KDIR=$kdir" >/dev/null || exit 1
make -C "$top_builddir" -s tests/kmod/disk-server || exit 1
cluster_trap
cluster_up 1 || { cluster_say "FAILED: the machine did not come up"; exit 1; }
exporter_up 1 1G || exit 1
node_exec 1 env "top_srcdir=$top_srcdir" "top_builddir=$top_builddir" "KMOD_STALL=${KMOD_STALL:-20}" \
	bash "$top_srcdir/tests/kmod/memory.sh" inside "$top_builddir/kmod/ddraid.ko" "$(exporter_uri 1)" "${1:-30}" || {
	status=$?
	tail -n 40 "$CLUSTER_DIR/node1/log/console.log" >&2
	exit $status
}
