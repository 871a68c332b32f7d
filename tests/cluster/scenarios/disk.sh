#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The array as a block device of one machine, disk.sh VIA: attached, its limits, what is refused and why; then ddraidd is
# killed some times, and ended in an orderly way, while fio writes and compares: no error reaches it. With --away, one does
# after that time, and not before, and without it what waits waits on. A file system on the device is whole after that, and
# after a power cut, after which the device is there again by itself.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
via=${1:-shim}
KILLS=2             # disk-kills.sh has more
EVICT=${EVICT:-4}   # s; as in ddraid.conf
AWAY=$((EVICT + 1)) # s
MEMBER_SIZE=32M
[ "$via" = shim ] || MEMBER_SIZE=60M # for btrfs

array_up 1 1

# refused EXIT-STATUS TEXT COMMAND...: ddraidctl says TEXT.
refused() {
	local want=$1 text=$2 out status
	shift 2
	out=$(ctl 1 "$@" 2>&1)
	status=$?
	[ $status = "$want" ] || fail "ddraidctl $*: exit status $status, not $want: $out"
	[[ $out = *"$text"* ]] || fail "ddraidctl $*: $out"
}

step "what can't be"
refused 4 "there is no array other" attach other
[ "$via" = nbd ] || refused 1 "modprobe ddraid" attach vol0 --via shim
refused 2 "shim (ddraid's driver)" attach vol0 --via floppy
refused 2 "from 1s to 1440min" attach vol0 --away 999ms
refused 1 "is not attached" detach vol0
holds 1 'len(a["front_ends"]) == 1' || fail "an attach that failed is in the status"
! grep -q attach "$CLUSTER_DIR/node1/var-lib-ddraid/vol0.array" || fail "an attach that failed is kept"

if [ "$via" = shim ] && other=$(disk_other_driver); then
	node_exec 1 insmod "$other" || fail "the driver of another version"
	refused 1 "driver speaks version 4711 of its interface, and ddraidd version 1" attach vol0 --via shim
	refused 1 "driver speaks version 4711" attach vol0
	node_exec 1 rmmod ddraid || fail "rmmod: an attach that failed has the driver"
fi

step "attach"
disk_driver 1 "$via"
began=${EPOCHREALTIME/[.,]/}
if [ "$via" = nbd ]; then
	disk_attach 1 # what is there: the driver is not
else
	disk_attach 1 --via "$via"
fi
measured "attached after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
disk_attach 1
[ "$via" = nbd ] && other=shim || other=nbd
refused 1 "is attached by $via" attach vol0 --via $other
dev=$(disk_of 1)
limit_is() {
	disk_limit_is 1 "$dev" "$@"
}
limit_is logical_block_size 4096
limit_is physical_block_size 4096
limit_is fua 1
if [ "$via" = shim ]; then
	limit_is optimal_io_size 1048576 # a row has 2 MiB, and no more than 1 MiB is told
	limit_is max_hw_sectors_kb 1024
	limit_is write_zeroes_max_bytes 33554432
	limit_is discard_max_bytes 33554432
fi
limit_is write_cache "write back"
[ "$(node_exec 1 blockdev --getsize64 /dev/ddraid/vol0)" = "$(tells 1 'a["geometry"]["size_bytes"]')" ] || fail "its size"
refused 4 "there is no array other" detach other

step "open, it is neither detached nor stopped"
node_exec 1 sh -c 'exec 3</dev/ddraid/vol0; echo $$ >/run/opener; exec sleep 60' &
opener=$!
opens_are() {
	holds 1 "a['front_ends'][1]['opens'] == $1"
}
if [ "$via" = shim ]; then
	within 5 "one open" opens_are 1
	refused 6 "in use: 1 client has it open, 1 of them as /dev/$dev" stop vol0
else
	sleep 1 # nobody tells
	refused 6 "1 client" stop vol0
fi
refused 6 "is open (1 open" detach vol0
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'kill $(cat /run/opener)'
wait $opener
node_exec 1 rm /run/opener
within 5 "no open" opens_are 0

if [ "$via" = nbd ]; then
	step "udev knows its name"
	# shellcheck disable=SC2016 # the node's shell
	node_exec 1 sh -c 'mkdir -p /run/udev/rules.d && cp "$0/kmod/60-ddraid.rules" /run/udev/rules.d/ && /lib/systemd/systemd-udevd --daemon &&
		udevadm trigger --action=change "/sys/block/$1" && udevadm settle && udevadm info -q symlink "/dev/$1"; status=$?
		pkill -x systemd-udevd; rm /run/udev/rules.d/60-ddraid.rules; exit $status' "$CLUSTER_SRC" "$dev" >"$CLUSTER_DIR/udev" 2>&1 ||
		fail "udev: $(cat "$CLUSTER_DIR/udev")"
	grep -qw "ddraid/vol0" "$CLUSTER_DIR/udev" || fail "udev: $(cat "$CLUSTER_DIR/udev")"
	step "so it is by a mount that is not in ddraidd's namespace, of a file system with a number of its own"
	# shellcheck disable=SC2016 # the node's shell
	node_exec 1 unshare -m sh -c 'modprobe btrfs; mkdir -p /mnt/t && mkfs.btrfs -q -f /dev/ddraid/vol0 2>/dev/null && mount -t btrfs /dev/ddraid/vol0 /mnt/t &&
		echo $$ >/run/opener && exec sleep 60' &
	opener=$!
	within 20 "the mount" node_exec 1 test -s /run/opener
	refused 6 "is open" detach vol0
	refused 6 "1 client" stop vol0
	# shellcheck disable=SC2016 # the node's shell
	node_exec 1 sh -c 'kill $(cat /run/opener)'
	wait $opener
	detached() {
		ctl 1 detach vol0 >/dev/null 2>&1
	}
	within 20 "no mount" detached
	disk_attach 1 --via nbd
	dev=$(disk_of 1)
fi

step "stopped and started, it is there again"
ctl 1 stop vol0 || fail "stop"
! node_exec 1 test -e /dev/ddraid/vol0 || fail "a stopped array has a link"
[ "$via" = nbd ] || ! node_exec 1 test -e "/sys/block/$dev" || fail "a stopped array has a disk"
refused 6 "does not run here" attach vol0
ctl 1 start vol0 --wait || fail "start"
within 10 "the device" disk_is_there 1

step "fio, and ddraidd is killed $KILLS times"
disk_fio 1
disk_kills 1 "$KILLS"
step "ended in an orderly way"
daemon_stop 1
sleep 1
daemon_up 1
within 30 "the device" disk_serves 1
disk_fio_end 1
measured "$(grep -c 'is taken over' "$CLUSTER_DIR/node1/log/ddraidd.out") times taken over; $(disk_fio_did 1)"

step "what is discarded or zeroed reads as zeroes, and nothing beside it does"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -ec 'head -c 4M /dev/urandom >/run/want
	dd if=/run/want of=/dev/ddraid/vol0 bs=1M seek=8 oflag=direct status=none
	blkdiscard -o $(((9 << 20) + 4096)) -l $(((1 << 20) + 12288)) /dev/ddraid/vol0
	blkdiscard -z -o $(((11 << 20) + 8192)) -l 200704 /dev/ddraid/vol0
	dd if=/dev/zero of=/run/want bs=4096 seek=257 count=259 conv=notrunc status=none
	dd if=/dev/zero of=/run/want bs=4096 seek=770 count=49 conv=notrunc status=none
	dd if=/dev/ddraid/vol0 of=/run/got bs=1M skip=8 count=4 iflag=direct status=none
	cmp /run/want /run/got
	rm /run/want /run/got' >"$CLUSTER_DIR/discard" 2>&1 || fail "discard: $(cat "$CLUSTER_DIR/discard")"

away_is() {
	holds 1 "any(f.get('away') == '$1' for f in a['front_ends'])" || fail "the status does not tell --away $1"
	[ "$via" = nbd ] || [ "$(node_exec 1 cat "/sys/block/$dev/ddraid/away_ms")" = "$2" ] || fail "the driver does not wait $1"
}
read_direct() {
	node_exec 1 dd if=/dev/ddraid/vol0 of=/dev/null bs=4096 count=1 iflag=direct
}

step "ddraidd stays away for more than $AWAY s: EIO then, and not before"
away_is hold 0
# Not before the other nodes, if there were any, would know: twice heartbeat_limit, which is half of evict.
[[ $(ctl 1 attach vol0 --away 1s) = "/dev/ddraid/vol0 (/dev/$dev, by $via, away ${EVICT}s)" ]] || fail "attach --away 1s: $(ctl 1 attach vol0)"
[[ $(ctl 1 attach vol0 --away ${AWAY}s) = "/dev/ddraid/vol0 (/dev/$dev, by $via, away ${AWAY}s)" ]] || fail "attach --away"
disk_attach 1 # and changes nothing
away_is ${AWAY}s ${AWAY}000
# What had been sent to a daemon before its end fails too, then or when the next one is there, and is not written.
read_block() {
	node_exec 1 dd if=/dev/ddraid/vol0 bs=4096 skip=100 count=1 iflag=direct status=none
}
read_block >"$CLUSTER_DIR/block" || fail "can't read"
node_signal 1 ddraidd STOP
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'head -c 4096 /dev/urandom | dd of=/dev/ddraid/vol0 bs=4096 seek=100 oflag=direct iflag=fullblock status=none' >"$CLUSTER_DIR/away.sent" 2>&1 &
sent=$!
within 10 "a write under way" node_exec 1 awk '{ exit !$2 }' "/sys/block/$dev/inflight"
began=${EPOCHREALTIME/[.,]/}
daemon_kill 1
! read_direct >"$CLUSTER_DIR/away" 2>&1 || fail "a read without ddraidd was answered"
took=$(((${EPOCHREALTIME/[.,]/} - began) / 1000))
grep -q "Input/output error" "$CLUSTER_DIR/away" || fail "a read without ddraidd: $(cat "$CLUSTER_DIR/away")"
[ $took -ge ${AWAY}000 ] || fail "a read without ddraidd failed after $took ms"
[ $took -le "$(patience $((AWAY + 10)))000" ] || fail "a read without ddraidd waited $took ms"
! read_direct 2>/dev/null || fail "another read without ddraidd was answered"
measured "failed after $took ms"
daemon_up 1
within 30 "the device" disk_serves 1
read_direct 2>"$CLUSTER_DIR/away" || fail "a read after ddraidd's return: $(cat "$CLUSTER_DIR/away")"
! wait $sent || fail "a write that had been sent before others failed was done"
grep -q "Input/output error" "$CLUSTER_DIR/away.sent" || fail "a write that had been sent: $(cat "$CLUSTER_DIR/away.sent")"
read_block | cmp - "$CLUSTER_DIR/block" || fail "a write that has failed is there"
dev=$(disk_of 1)
away_is ${AWAY}s ${AWAY}000

step "no error while a daemon that ends has a write under way"
exporter_kill 2
exporter_kill 3
node_exec 1 dd if=/dev/zero of=/dev/ddraid/vol0 bs=4096 count=1 oflag=direct >"$CLUSTER_DIR/away.write" 2>&1 &
write=$!
within 10 "the write waits" holds 1 'a["requests"] > 0'
node_signal 1 ddraidd TERM # it waits for stop_timeout
read_direct >"$CLUSTER_DIR/away" 2>&1 &
read=$!
sleep $((AWAY + 2))
kill -0 $read 2>/dev/null || fail "a read that came while a write was under way: $(cat "$CLUSTER_DIR/away")"
exporter_restart 2 && exporter_restart 3 || fail "an exporter does not start"
within 20 "the end of ddraidd" daemon_gone 1
daemon_up 1
within 30 "the device" disk_serves 1
wait $write $read # which may have waited for too long after its end

step "a file system, and ddraidd stays away for more than $AWAY s, but --away hold"
[[ $(ctl 1 attach vol0 --away hold) = "/dev/ddraid/vol0 (/dev/$dev, by $via)" ]] || fail "attach --away hold"
away_is hold 0
node_exec 1 mkfs.ext4 -q -E lazy_itable_init=0 /dev/ddraid/vol0 || fail "mkfs"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'modprobe ext4; mkdir -p /mnt/t && mount /dev/ddraid/vol0 /mnt/t && head -c 6000000 /dev/urandom >/mnt/t/a &&
	md5sum </mnt/t/a >/run/sum && sync' || fail "mount"
daemon_kill 1
node_exec 1 sh -c 'cp /mnt/t/a /mnt/t/b && sync /mnt/t/b' &
copy=$!
read_direct 2>"$CLUSTER_DIR/away" &
read=$!
sleep $((AWAY + 2))
kill -0 $copy && kill -0 $read || fail "I/O without ddraidd did not wait: $(cat "$CLUSTER_DIR/away")"
daemon_up 1
wait $copy || fail "cp while ddraidd was away"
wait $read || fail "a read while ddraidd was away: $(cat "$CLUSTER_DIR/away")"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'umount /mnt/t && e2fsck -fn /dev/ddraid/vol0 && mount /dev/ddraid/vol0 /mnt/t && echo 3 >/proc/sys/vm/drop_caches &&
	[ "$(md5sum </mnt/t/b)" = "$(cat /run/sum)" ] && fstrim /mnt/t && umount /mnt/t && e2fsck -fn /dev/ddraid/vol0' \
	>"$CLUSTER_DIR/fs" 2>&1 || fail "the file system: $(cat "$CLUSTER_DIR/fs")"

step "a power cut, with --away"
ctl 1 attach vol0 --away 10min >/dev/null || fail "attach --away"
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'mount /dev/ddraid/vol0 /mnt/t && cp /mnt/t/a /mnt/t/c && sync /mnt/t/c /mnt/t && cat /run/sum' >"$CLUSTER_DIR/sum" || fail "mount"
node_exec 1 sh -c 'while :; do cp /mnt/t/a /mnt/t/d; rm /mnt/t/d; done' >/dev/null 2>&1 &
sleep 3
node_kill 1
wait $!
node_back 1
within 60 "the array" active 1
! disk_is_there 1 || [ "$via" = nbd ] || fail "a device without its driver"
disk_driver 1 "$via"
within 20 "the device, by itself" disk_is_there 1
dev=$(disk_of 1)
away_is 600s 600000
# shellcheck disable=SC2016 # the node's shell
node_exec 1 sh -c 'modprobe ext4; mkdir -p /mnt/t && mount /dev/ddraid/vol0 /mnt/t && md5sum </mnt/t/c && umount /mnt/t && e2fsck -fn /dev/ddraid/vol0 >&2' \
	>"$CLUSTER_DIR/sum2" 2>"$CLUSTER_DIR/fs" || fail "the file system: $(cat "$CLUSTER_DIR/fs")"
cmp "$CLUSTER_DIR/sum" "$CLUSTER_DIR/sum2" || fail "a file that was synced is not there"

step "more is written than ddraidd takes in, while the array can't run: detached all the same"
dev=$(disk_of 1)
exporter_kill 1
exporter_kill 2
node_exec 1 fio --name=w --filename=/dev/ddraid/vol0 --rw=write --bs=128k --iodepth=128 --direct=1 --ioengine=libaio \
	--size=32m >"$CLUSTER_DIR/fio.w" 2>&1 &
fio=$!
within 20 "more requests than NBD_CLIENT_REQS" node_exec 1 awk '{ exit !($1 + $2 > 64) }' "/sys/block/$dev/inflight"
log_mark 1
ctl 1 detach vol0 --disconnect >"$CLUSTER_DIR/detach" 2>&1 &
detach=$!
detach_ended() {
	! kill -0 $detach 2>/dev/null
}
within 20 "detach --disconnect" detach_ended
wait $detach || fail "detach --disconnect: $(cat "$CLUSTER_DIR/detach")"
! wait $fio || fail "fio has written to no device"
log_has 1 "this incarnation gives up, so that none of them is written later" || fail "what it had is written later"
holds 1 'len(a["front_ends"]) == 1' || fail "a detached disk is in the status"
exporter_restart 1 && exporter_restart 2 || fail "the exporters"
within 40 "the array" active 1
disk_attach 1 --via "$via"

step "its daemon is dead, its array can't run: detached all the same"
disk_hold 1
daemon_kill 1
exporter_kill 1
exporter_kill 2
daemon_up 1
refused 6 "is open (1 open" detach vol0
! disk_hold_failed 1 || fail "the open did not wait"
ctl 1 detach vol0 --disconnect || fail "detach --disconnect"
disk_hold_fails 1
exporter_restart 1 && exporter_restart 2 || fail "the exporters"
within 40 "the array" active 1
disk_attach 1 --via "$via"

step "detach"
disk_detach 1
holds 1 'len(a["front_ends"]) == 1' || fail "a detached disk is in the status"
daemon_stop 1
daemon_up 1
within 20 "the array" active 1
sleep 1
! node_exec 1 test -e /dev/ddraid/vol0 || fail "a detached disk is back after a restart"
disk_attach 1 --via "$via"
disk_finish 1
