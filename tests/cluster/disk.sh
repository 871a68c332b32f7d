# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What the scenarios with a block device share, on top of lib.sh.

DDRAID_KO=$top_builddir/kmod/ddraid.ko # built for the lab's kernel

disk_requires() {
	[ "$CLUSTER_FLAVOUR" = lab ] || { echo "skipped: for the lab only"; exit 77; }
	lab_image && lab_kdir >/dev/null || { echo "skipped: no headers of the lab's kernel (tools/deps --lab)"; exit 77; }
	lab_driver || { echo "FAILED: the driver can't be built"; exit 1; }
	command -v fio >/dev/null || { echo "skipped: no fio (tools/deps)"; exit 77; }
}

disk_driver() { # N VIA
	[ "$2" = nbd ] || node_exec "$1" insmod "$DDRAID_KO" || fail "the driver can't be loaded"
}

# disk_other_driver: prints the path of a driver that speaks another version; 1: it can't be built here.
disk_other_driver() {
	local dir=$CLUSTER_DIR/other build
	build=$(lab_kdir) && mkdir "$dir" && cp "$CLUSTER_SRC"/kmod/{Kbuild,*.[ch]} "$dir/" || return 1
	sed -i 's/^#define DDRAID_API_VERSION 1$/#define DDRAID_API_VERSION 4711/' "$dir/ddraid_uapi.h"
	make -s -C "$build" M="$dir" modules >"$dir/log" 2>&1 && echo "$dir/ddraid.ko"
}

# disk_of N: its name, without /dev.
disk_of() {
	local path
	path=$(node_exec "$1" readlink -f /dev/ddraid/vol0) && echo "${path#/dev/}"
}

disk_attach() { # N [OPTION...]
	local n=$1 out
	shift
	out=$(ctl "$n" attach vol0 "$@" 2>&1) || fail "attach: $out"
	[[ $out = "/dev/ddraid/vol0 (/dev/"*", by "*")" ]] || fail "attach says $out"
	disk_is_there "$n" || fail "attach ended, and there is no device"
}

disk_is_there() {
	holds "$1" 'any(f.get("device") for f in a["front_ends"])' && node_exec "$1" test -b /dev/ddraid/vol0
}

# disk_serves N: that, and the array does (active), by one look at the status.
disk_serves() {
	holds "$1" 'a["state"] == "active" and a["io_allowed"] and any(f.get("device") for f in a["front_ends"])' &&
		node_exec "$1" test -b /dev/ddraid/vol0
}

disk_limit_is() { # N DEVICE NAME VALUE
	local is
	is=$(node_exec "$1" cat "/sys/block/$2/queue/$3")
	[ "$is" = "$4" ] || fail "$3 of $2 is $is, not $4"
}

disk_detach() {
	local out
	out=$(ctl "$@" detach vol0 2>&1) || fail "detach: $out"
	! node_exec "$1" test -e /dev/ddraid/vol0 || fail "detached, and the link is there"
}

# disk_fio N [FILE]: writes and compares on node N until disk_fio_end, on the device or in a file.
declare -A FIO=()
disk_fio() {
	node_exec "$1" rm -f /run/fio-end
	# shellcheck disable=SC2016,SC2086 # the node's shell; words
	node_exec "$1" sh -c 'while [ ! -e /run/fio-end ]; do "$@" || exit; done' sh \
		nice -n 10 fio --name=v --filename="${2:-/dev/ddraid/vol0}" --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw \
		--bsrange=4k-256k --blockalign=4k --size="${FIO_SIZE:-8m}" --io_size="${FIO_SIZE:-6m}" ${FIO_RATE:---rate=512k,512k} --verify=crc32c --verify_fatal=1 \
		--fsync=32 --fdatasync=0 --continue_on_error=none --randrepeat=0 >"$CLUSTER_DIR/fio.$1" 2>&1 &
	FIO[$1]=$!
}

# disk_kills N COUNT: ddraidd of node N is killed so often, and comes back each time, under disk_fio.
disk_kills() {
	local i
	for ((i = 1; i <= $2; i++)); do
		sleep "0.$((RANDOM % 10))"
		daemon_kill "$1"
		daemon_start "$1"
		within 30 "the device after kill $i" disk_serves "$1"
		disk_fio_lives "$1" || fail "fio ended after kill $i: $(tail -n 20 "$CLUSTER_DIR/fio.$1")"
	done
}

disk_fio_lives() {
	kill -0 "${FIO[$1]}" 2>/dev/null
}

disk_fio_end() { # N...
	local n
	for n; do
		node_exec "$n" touch /run/fio-end
	done
	for n; do
		wait "${FIO[$n]}" || fail "fio: $(tail -n 25 "$CLUSTER_DIR/fio.$n")"
		! grep -q "err=[^ ]* *[1-9]" "$CLUSTER_DIR/fio.$n" || fail "fio: $(grep err= "$CLUSTER_DIR/fio.$n")"
	done
}

disk_fio_did() {
	awk '/^ *(READ|WRITE):/ { n[$1]++ } END { print "fio: " n["WRITE:"] " rounds" }' "$CLUSTER_DIR/fio.$1"
}

# disk_hold N: one open of the device for as long as it takes, with a write, a flush and a read of it all the time.
declare -A holder=()
disk_hold() {
	: >"$CLUSTER_DIR/hold.$1"
	node_exec "$1" /usr/bin/python3 "$SCENARIO_LIB/disk-hold.py" /dev/ddraid/vol0 "$1" >>"$CLUSTER_DIR/hold.$1" 2>&1 &
	holder[$1]=$!
	within 20 "node $1 uses its device" disk_holds "$1" 3
}

disk_holds() { # N COUNT
	[ "$(grep -c ^ok "$CLUSTER_DIR/hold.$1")" -ge "$2" ]
}

disk_hold_goes_on() {
	within 40 "the open of node $1 goes on" disk_holds "$1" $(($(grep -c ^ok "$CLUSTER_DIR/hold.$1") + 10))
	! grep -qv ^ok "$CLUSTER_DIR/hold.$1" || fail "the open of node $1: $(grep -v ^ok "$CLUSTER_DIR/hold.$1")"
}

disk_hold_failed() {
	grep -q '^failed' "$CLUSTER_DIR/hold.$1"
}

# It must end by EIO, once and for all.
disk_hold_fails() {
	within 40 "the open of node $1 fails" disk_hold_failed "$1"
	wait "${holder[$1]}"
	[ "$(grep -v ^ok "$CLUSTER_DIR/hold.$1" | sort | uniq -c | awk '{ print $2, $3 }')" = "failed EIO" ] ||
		fail "the open of node $1: $(grep -v ^ok "$CLUSTER_DIR/hold.$1")"
	unset "holder[$1]"
}

disk_hold_end() {
	[ -z "${holder[$1]:-}" ] || { node_exec "$1" touch /run/hold-end; wait "${holder[$1]}"; unset "holder[$1]"; }
}

# disk_leaks_nothing N: on a kernel with kmemleak, and KMOD_LEAKS set. What is found for the first time may be a pointer on its way.
disk_leaks_nothing() {
	[ -n "${KMOD_LEAKS:-}" ] || return 0
	# shellcheck disable=SC2016 # the node's shell
	node_exec "$1" sh -ec 'mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
		echo scan >/sys/kernel/debug/kmemleak; echo scan >/sys/kernel/debug/kmemleak; cat /sys/kernel/debug/kmemleak; echo asked' \
		>"$CLUSTER_DIR/leaks.$1" 2>&1 && [ "$(tail -n 1 "$CLUSTER_DIR/leaks.$1")" = asked ] || fail "kmemleak: $(cat "$CLUSTER_DIR/leaks.$1")"
	! grep -qE '\[ddraid\]' "$CLUSTER_DIR/leaks.$1" || fail "the driver leaks: $(cat "$CLUSTER_DIR/leaks.$1")"
}

# disk_finish N...: as finish, and the raw members have what the device of the first of these nodes read last.
disk_finish() {
	local n
	# By the shared folder: an emulated processor takes long to encrypt it for ssh.
	node_exec "$1" sh -c "echo 3 >/proc/sys/vm/drop_caches; exec cat /dev/ddraid/vol0 >$CLUSTER_DIR/device" || fail "can't read the device"
	ctl "$1" stop vol0 --all-nodes >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
	for n; do
		daemon_stop "$n"
		kernel_is_fine "$n"
		disk_leaks_nothing "$n"
		! node_exec "$n" test -d /sys/module/ddraid || node_exec "$n" rmmod ddraid || fail "the driver of node $n can't be unloaded"
	done
	members_check --strict --compare-left-out --extract "$CLUSTER_DIR/user" || fail "the members: $(raw 'r["problems"]')"
	cmp "$CLUSTER_DIR/device" "$CLUSTER_DIR/user" || fail "the members hold other bytes than the device had"
	step "$(raw '"the members: %d stripes, %d wrong, %d regions dirty" % (r["geometry"]["stripes"],
		r["stripes_wrong"], len(r["regions_dirty"]))')"
	cluster_down || exit 1
	exit 0
}
