#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# disk-kills.sh VIA: on one machine with two processors ddraidd is killed 20 times while fio writes to the block devices of two
# arrays of different geometries and compares. No error reaches it, and in the end the members hold what the devices have.
set -u
export LAB_CPUS=2
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
via=${1:-shim}

array_up 1 1
disk_driver 1 "$via"
disk_attach 1 --via "$via"

# A second array beside the first.
uris=()
for i in 4 5 6 7 8; do
	MEMBER_SIZE=16M member_up $i
	uris+=("$(exporter_uri $i)")
done
ctl 1 create vol1 --order 2 --band 16K "${uris[@]}" >"$CLUSTER_DIR/create" 2>&1 || fail "create: $(cat "$CLUSTER_DIR/create")"
ctl 1 status vol1 --wait --timeout "$(patience 30)" >/dev/null || fail "vol1 does not serve"
ctl 1 attach vol1 --via "$via" >"$CLUSTER_DIR/attach" 2>&1 || fail "attach: $(cat "$CLUSTER_DIR/attach")"
devices=$(node_exec 1 readlink -f /dev/ddraid/vol0 /dev/ddraid/vol1)
[ "$(sort -u <<<"$devices" | grep -c '^/dev/[a-z]*[0-9]*$')" = 2 ] || fail "two arrays have the devices $devices"
if [ "$via" = shim ]; then # each has the limits of its own geometry
	disk_limit_is 1 "$(disk_of 1)" optimal_io_size 1048576
	other=${devices##*/}
	disk_limit_is 1 "$other" optimal_io_size 65536
	disk_limit_is 1 "$other" logical_block_size 4096
	disk_limit_is 1 "$other" physical_block_size 4096
	[ "$(node_exec 1 blockdev --getsize64 /dev/ddraid/vol1)" = "$(ARRAY=vol1 tells 1 'a["geometry"]["size_bytes"]')" ] || fail "the size of vol1"
fi
[ "$(node_exec 1 nproc)" = 2 ] || fail "not two processors"
[ "$via" != shim ] || [ "$(node_exec 1 ls "/sys/block/$(disk_of 1)/mq" | wc -l)" = 2 ] || fail "not a queue for each"

step "fio, and ddraidd is killed 20 times"
FIO_RATE=--rate=256k,256k disk_fio 1
node_exec 1 sh -c 'while [ ! -e /run/fio-end ]; do "$@" || exit; done' sh \
	nice -n 10 fio --name=v --filename=/dev/ddraid/vol1 --direct=1 --ioengine=libaio --iodepth=4 --rw=randrw --bsrange=4k-64k --blockalign=4k \
	--size=4m --io_size=3m --rate=128k,128k --verify=crc32c --verify_fatal=1 --fsync=16 --randrepeat=0 >"$CLUSTER_DIR/fio.vol1" 2>&1 &
other=$!
vol1_was_taken_over() { # COUNT
	[ "$(grep -c "vol1.* is taken over" "$CLUSTER_DIR/node1/log/ddraidd.out")" -ge "$1" ]
}
for ((i = 1; i <= 20; i++)); do
	disk_kills 1 1
	within 30 "vol1 is taken over after kill $i" vol1_was_taken_over "$i"
done
disk_fio_end 1
wait $other || fail "fio on vol1: $(tail -n 25 "$CLUSTER_DIR/fio.vol1")"
! grep -q "err=[^ ]* *[1-9]" "$CLUSTER_DIR/fio.vol1" || fail "fio on vol1: $(grep err= "$CLUSTER_DIR/fio.vol1")"
for array in vol0 vol1; do
	taken=$(grep -c "$array.* is taken over" "$CLUSTER_DIR/node1/log/ddraidd.out")
	[ "$taken" -ge 20 ] || fail "the device of $array was taken over $taken times"
done
taken=$(grep -c 'is taken over' "$CLUSTER_DIR/node1/log/ddraidd.out")
measured "$taken times taken over; $(disk_fio_did 1)"

sum=$(node_exec 1 sh -c 'echo 3 >/proc/sys/vm/drop_caches; cat /dev/ddraid/vol1' | sha256sum) || fail "can't read vol1"
ctl 1 stop vol1 >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
first=("${ARRAY_MEMBERS[@]}")
ARRAY_MEMBERS=(4 5 6 7 8)
members_check --strict --compare-left-out --extract "$CLUSTER_DIR/user" || fail "the members of vol1: $(raw 'r["problems"]')"
[ "$(sha256sum <"$CLUSTER_DIR/user")" = "$sum" ] || fail "the members of vol1 hold other bytes than its device had"
ARRAY_MEMBERS=("${first[@]}")
disk_finish 1
