#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The tests of the kernel driver, in a machine that may crash (tests/kmod/run.sh boots one):
# inside.sh MODULE [TEST...]. Each t_NAME below is a test; it runs in a shell of its own with errexit. One that hangs
# is left behind with the kernel's account of who is blocked. What the kernel complains of fails a test, always.
set -u
top_srcdir=${top_srcdir:?} top_builddir=${top_builddir:?} module=$1
shift
bin=$top_builddir/tests/kmod
work=/run/kmod-test
shm=/dev/shm
limit_all=${KMOD_LIMIT:-120}
mkdir -p "$work"

# ---- servers ----

# Without a process: an emulated machine takes tens of milliseconds for one.
mkfifo "$work/never" 2>/dev/null
exec 8<>"$work/never"
pause() {
	read -r -t "${1:-0.02}" -u 8 _ || true
}

# server N [OPTION...]: serves disk N, 64 MiB if it isn't said, from $shm/dN; sets dev, and taken and cookie as it was
# told. Its pid is in $work/N.pid.
server() {
	local n=$1 line
	shift
	: >"$work/$n.out"
	"$bin/disk-server" --uuid "$n" --name "d$n" --size $((64 << 20)) --file "$shm/d$n" "$@" >"$work/$n.out" 2>"$work/$n.err" &
	echo $! >"$work/$n.pid"
	disown
	until read -r line <"$work/$n.out"; do
		alive "$n" || { cat "$work/$n.err"; echo "server $n did not start"; return 1; }
		pause
	done
	read -r _ dev _ taken _ cookie <<<"$line"
	dev=/dev/$dev
	until [ -b "$dev" ]; do pause; done
}

# tell N SIGNAL: and waits for what it says, or for its end.
tell() {
	local lines
	lines=$(wc -l <"$work/$1.out")
	kill -s "$2" "$(cat "$work/$1.pid")"
	until [ "$(wc -l <"$work/$1.out")" != "$lines" ] || ! alive "$1"; do pause; done
}

# One that has ended is not, though nobody has waited for it yet.
alive() {
	local pid state
	read -r pid <"$work/$1.pid"
	read -r _ _ state _ 2>/dev/null <"/proc/$pid/stat" && [ "$state" != Z ]
} 2>/dev/null

dead() {
	! alive "$1"
}

# As a crash: nothing of it is left when this returns.
crash() {
	kill -s KILL "$(cat "$work/$1.pid")" 2>/dev/null || true
	while alive "$1"; do pause 0.01; done
}

status() { # N KEY
	"$bin/disk-server" --status "$1" | sed -n "s/^$2 //p"
}

# within SECONDS COMMAND...
within() {
	local end=$((SECONDS + $1))
	shift
	while ((SECONDS <= end)); do
		! "$@" >/dev/null 2>&1 || return 0
		pause 0.05
	done
	echo "not in time: $*"
	return 1
}

is() { # WHAT GOT WANTED
	[ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; return 1; }
}

refused() {
	! "$@" >"$work/refused" 2>&1 || { echo "went well: $*"; return 1; }
}

of_queue() {
	cat "/sys/block/${dev#/dev/}/queue/$1"
}

attribute_is() { # NAME VALUE: of the disk in sysfs
	is "$1 in sysfs" "$(cat "/sys/block/${dev#/dev/}/ddraid/$1")" "$2"
}

waits() { # N COUNT
	[ "$(status "$1" waiting)" -ge "$2" ]
}
holds() { # N COUNT
	[ "$(status "$1" handed)" -ge "$2" ]
}
opened() { # N COUNT
	[ "$(status "$1" openers)" = "$2" ]
}
gone() {
	! [ -e "/sys/block/${1#/dev/}" ]
}

# Random blocks with checksums, verified as it goes and at the end.
fio_verify() { # DEVICE SECONDS [OPTION...]
	local on=$1 seconds=$2
	shift 2
	fio --name=v --filename="$on" --rw=randrw --bsrange=4k-128k --blockalign=4k --size=48m --direct=1 --ioengine=libaio \
		--iodepth=16 --verify=crc32c --verify_backlog=64 --verify_fatal=1 --fsync=32 --time_based --runtime="$seconds" \
		--group_reporting --output="$work/fio.$BASHPID" "$@" || { cat "$work/fio.$BASHPID"; return 1; }
}

# Of a read by an open descriptor: "read", or "dead" for EIO, or the end of a device that has no size any more.
read_by() { # FD
	/usr/bin/python3 -c 'import errno, fcntl, mmap, os, sys
fd = int(sys.argv[1])
# What the page cache still has is no request.
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
try:
	print("read" if os.preadv(fd, [mmap.mmap(-1, 4096)], 1 << 20) else "dead")
except OSError as e:
	print("dead" if e.errno == errno.EIO else e)' "$1"
}

# ---- tests ----

t_bad_input() {
	"$bin/bad-input"
}

t_flags() {
	local l=$work/requests
	server 1 --log "$l"
	dd if=/dev/urandom of="$work/data" bs=1M count=4 status=none
	dd if="$work/data" of="$dev" bs=4096 count=1 seek=3 oflag=direct status=none
	grep -q '^write 12288 4096 [0-9]' "$l"
	refused grep -q '^flush' "$l"
	dd if="$work/data" of="$dev" bs=4096 count=1 seek=5 oflag=direct,dsync status=none
	grep -q '^write 20480 4096 fua ' "$l"
	dd if="$work/data" of="$dev" bs=4096 count=1 seek=7 conv=fsync status=none
	[ "$(grep -n '^write 28672 4096 [0-9]' "$l" | cut -d: -f1)" -lt "$(grep -n '^flush 0 0 [0-9]' "$l" | tail -n 1 | cut -d: -f1)" ]
	# Longer ones than io_max come in pieces; the server ends if one is longer.
	dd if="$work/data" of="$dev" bs=4M count=1 oflag=direct status=none
	dd if="$dev" of="$work/back" bs=4M count=1 iflag=direct status=none
	cmp "$work/data" "$work/back"
	cmp -n $((4 << 20)) "$work/data" "$shm/d1"
	grep -q '^write [0-9]* 1048576 ' "$l"
	grep -q '^read [0-9]* 1048576 ' "$l"
	blkdiscard -o 1M -l 1M "$dev"
	grep -q '^zeroes 1048576 1048576 unmap ' "$l"
	blkdiscard -z -o 2M -l 1M "$dev"
	grep -q '^zeroes 2097152 1048576 [0-9]' "$l"
	fallocate -p -o 3M -l 4096 "$dev"
	grep -q '^zeroes 3145728 4096 unmap ' "$l"
	blkdiscard "$dev"
	grep -q '^zeroes 0 67108864 unmap ' "$l"
	cmp -n $((64 << 20)) "$dev" /dev/zero
	alive 1
}

t_geometry() {
	local mq
	server 1 --physical 16384 --io-opt 65536 --io-max 524288 --zeroes-max 1048576 --depth 32
	is logical "$(of_queue logical_block_size)" 4096
	is physical "$(of_queue physical_block_size)" 16384
	is minimum "$(of_queue minimum_io_size)" 16384
	is optimal "$(of_queue optimal_io_size)" 65536
	is largest "$(of_queue max_hw_sectors_kb)" 512
	is zeroes "$(of_queue write_zeroes_max_bytes)" 1048576
	is discard "$(of_queue discard_max_bytes)" 1048576
	is granularity "$(of_queue discard_granularity)" 16384
	is cache "$(of_queue write_cache)" 'write back'
	is FUA "$(of_queue fua)" 1
	is rotational "$(of_queue rotational)" 0
	is depth "$(of_queue nr_requests)" 32
	is scheduler "$(of_queue scheduler | tr ' ' '\n' | grep '\[')" '[none]'
	mq=("/sys/block/${dev#/dev/}/mq"/*/)
	is queues "${#mq[@]}" "$(nproc)"
	is size "$(blockdev --getsize64 "$dev")" $((64 << 20))
	is 'read-only' "$(blockdev --getro "$dev")" 0
	is name "$(cat "/sys/block/${dev#/dev/}/ddraid/name")" d1
	is uuid "$(cat "/sys/block/${dev#/dev/}/ddraid/uuid")" 01010101-0101-0101-0101-010101010101
	is major "$(stat -c %Hr "$dev")" "$(awk '$2 == "ddraid" { print $1 }' /proc/devices)"
	# One with a partition table has no partitions.
	/usr/bin/python3 -c 'import struct, sys
sys.stdout.buffer.write(bytes(446) + struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 2048, 8192) + bytes(48) + b"\x55\xaa")' |
		dd of="$dev" bs=512 conv=notrunc,fsync status=none
	is 'a partition table' "$(blkid -p -o value -s PTTYPE "$dev")" dos
	refused blockdev --rereadpt "$dev"
	refused addpart "$dev" 1 2048 8192
	refused compgen -G "/sys/block/${dev#/dev/}/*/partition"
	fio_verify "$dev" 1
}

t_one_queue() {
	server 1 --queues 1 --depth 1
	fio_verify "$dev" 3
}

t_read_only() {
	dd if=/dev/urandom of="$shm/d1" bs=1M count=64 status=none
	server 1 --read-only --log "$work/requests"
	is 'read-only' "$(blockdev --getro "$dev")" 1
	refused dd if=/dev/zero of="$dev" bs=4096 count=1 oflag=direct
	refused blockdev --setrw "$dev"
	is 'still read-only' "$(blockdev --getro "$dev")" 1
	refused blkdiscard "$dev"
	cmp -n $((64 << 20)) "$dev" "$shm/d1"
	# A device on top of it writes without asking whether it may.
	modprobe dm_mod
	export DM_DISABLE_UDEV=1
	dmsetup create kmod-test --table "0 $((64 << 11)) linear $dev 0"
	refused dd if=/dev/zero of=/dev/mapper/kmod-test bs=4096 count=1 oflag=direct
	grep -q 'Input/output error' "$work/refused"
	dmsetup remove kmod-test
	refused grep -qv '^read' "$work/requests"
	server 2
	blockdev --setro "$dev"
	is 'read-only by request' "$(blockdev --getro "$dev")" 1
	refused dd if=/dev/zero of="$dev" bs=4096 count=1 oflag=direct
	blockdev --setrw "$dev"
	dd if=/dev/zero of="$dev" bs=4096 count=1 oflag=direct status=none
}

t_unload() {
	server 1
	# By its session alone,
	is openers "$(status 1 openers)" 0
	refused rmmod ddraid
	# and by an open of the disk alone.
	exec 9<"$dev"
	tell 1 TERM
	refused rmmod ddraid
	exec 9<&-
	# The disk is without a session, and nobody has it open.
	rmmod ddraid
	gone "$dev"
	insmod "$module"
}

t_malformed() {
	server 1 --probe
	fio_verify "$dev" 4
	blkdiscard -o 1M -l 1M "$dev"
	alive 1 || { cat "$work/1.err"; return 1; }
	[ "$(status 1 rejected)" -gt 1000 ]
	fio_verify "$dev" 1
	alive 1
}

t_reverse() {
	server 1 --reverse
	fio_verify "$dev" 4
}

t_answered_late() {
	local requests
	server 1 --hold --log "$work/first"
	requests=$(cat "/sys/block/${dev#/dev/}/ddraid/requests")
	attribute_is daemon "$(cat "$work/1.pid")"
	attribute_is openers 0
	attribute_is rejected 0
	dd if=/dev/urandom of="$work/data" bs=64k count=1 status=none
	dd if="$work/data" of="$dev" bs=64k count=1 oflag=direct status=none &
	pid=$!
	within 5 holds 1 1
	attribute_is openers 1
	attribute_is handed 1
	attribute_is waiting 0
	crash 1
	within 5 waits 1 1
	attribute_is daemon 0
	attribute_is handed 0
	attribute_is waiting 1
	server 1 --stale "$work/first"
	wait "$pid"
	[ "$taken" -ge 1 ]
	attribute_is daemon "$(cat "$work/1.pid")"
	attribute_is waiting 0
	attribute_is requests $((requests + 1))
	# Before it took a request, and when it had the same one again, under the same tag.
	[ "$(grep -c '^stale [1-9]' "$work/1.out")" = 2 ]
	attribute_is rejected "$(awk '$1 == "stale" { n += $2 } END { print n }' "$work/1.out")"
	cmp "$work/data" <(head -c 65536 "$shm/d1")
	# What was handed out before comes again before what has come since.
	server 2 --queues 1 --hold --log "$work/first"
	dd if=/dev/zero of="$dev" bs=4096 count=1 seek=3 oflag=direct status=none &
	pid=$!
	within 5 holds 2 1
	kill -s STOP "$(cat "$work/2.pid")"
	dd if=/dev/zero of="$dev" bs=4096 count=1 seek=5 oflag=direct status=none &
	within 5 waits 2 1
	crash 2
	within 5 waits 2 2
	server 2 --queues 1 --log "$work/second"
	wait "$pid" $!
	is first "$(head -n 1 "$work/second" | cut -d ' ' -f 1-3)" 'write 12288 4096'
}

t_several() {
	server 1
	kill -s STOP "$(cat "$work/1.pid")"
	fio --name=s --filename="$dev" --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=8 --iodepth_batch_submit=8 \
		--number_ios=8 --output="$work/fio.several" &
	pid=$!
	within 30 waits 1 8
	kill -s CONT "$(cat "$work/1.pid")"
	wait "$pid"
	tell 1 TERM
	grep -qx 'at once [89] requests, [89] answers' "$work/1.out" || { tail -n 1 "$work/1.out"; return 1; }
}

t_killed() {
	local i when=(taken pulled 'done') all=0 pid
	server 1
	(until [ -e "$work/enough" ]; do fio_verify "$dev" 2 || exit; done) &
	pid=$!
	for ((i = 0; i < 20; i++)); do
		if ((i % 2)); then
			within 30 dead 1
		else
			pause 0.4
			crash 1
		fi
		# Every other one dies by itself, with a request in a known state.
		if ((i % 2)); then server 1; else server 1 --die-after $((RANDOM % 300)) --die-when "${when[i / 2 % 3]}"; fi
		all=$((all + taken))
	done
	touch "$work/enough"
	wait "$pid"
	echo "$all requests were taken over"
	[ "$all" -gt 20 ]
}

t_away() {
	local began
	server 1 --away-ms 1000
	crash 1
	began=$SECONDS
	refused dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct
	grep -q 'Input/output error' "$work/refused"
	[ $((SECONDS - began)) -le 5 ]
	is failing "$(status 1 failing)" 1
	attribute_is failing 1
	refused dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct
	server 1
	is failing "$(status 1 failing)" 0
	attribute_is failing 0
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none
	fio_verify "$dev" 1
	# No patience was set: it waits, until it is told otherwise.
	crash 1
	echo 500 >"/sys/block/${dev#/dev/}/queue/io_timeout"
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>"$work/dd" &
	pid=$!
	within 5 waits 1 1
	# However long, and whatever the block layer's own patience is.
	sleep 2
	kill -0 "$pid"
	echo 1 >"/sys/block/${dev#/dev/}/ddraid/away_ms"
	refused wait "$pid"
	grep -q 'Input/output error' "$work/dd"
	server 1
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none
	# And what waits is served if the daemon comes in time.
	crash 1
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none &
	pid=$!
	within 5 waits 1 1
	server 1
	wait "$pid"
	# Nor is its patience remembered against the one that came in time.
	crash 1
	server 1 --away-ms 1500
	crash 1
	server 1
	sleep 3
	is failing "$(status 1 failing)" 0
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none
}

t_revoke() {
	local old
	server 1
	mkfs.ext4 -q "$dev"
	mkdir -p "$work/mnt"
	mount "$dev" "$work/mnt"
	crash 1
	server 1 --hold
	old=$dev
	exec 9<>"$dev"
	dd if=/dev/zero of="$work/mnt/file" bs=1M count=4 conv=fsync status=none 2>"$work/dd" &
	pid=$!
	within 5 holds 1 1
	tell 1 USR2
	grep -q '^revoked' "$work/1.out"
	refused wait "$pid"
	is 'an open of the revoked disk' "$(read_by 9)" dead
	# Another disk, beside the opens of the old one.
	server 1
	[ "$dev" != "$old" ]
	is 'an open of the revoked disk' "$(read_by 9)" dead
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none
		umount "$work/mnt"
	exec 9<&-
	within 5 gone "$old"
	fsck.ext4 -fy "$dev" >"$work/fsck" || [ $? = 1 ]
	mount "$dev" "$work/mnt"
	umount "$work/mnt"
}

t_fresh() {
	local old
	server 1 --hold --cookie 7
	old=$dev
	exec 9<"$dev"
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>"$work/dd" &
	pid=$!
	within 5 holds 1 1
	crash 1
	# With other values, too: it is another disk.
	server 1 --fresh --io-max 65536
	refused wait "$pid"
	grep -q 'Input/output error' "$work/dd"
	[ "$dev" != "$old" ]
	is cookie "$cookie" 0
	is 'an open of the old disk' "$(read_by 9)" dead
	exec 9<&-
	fio_verify "$dev" 1
}

t_cookie() {
	server 1 --cookie 4711
	crash 1
	server 1 --cookie 4712
	is 'the cookie before' "$cookie" 4711
	is cookie "$(status 1 cookie)" 4712
}

linked() { # NAME DEVICE
	[ "$(readlink -f "/dev/ddraid/$1")" = "$2" ]
}

# /dev/ddraid/NAME, by the rule that is installed.
t_udev() {
	local udevd=/lib/systemd/systemd-udevd old
	[ -x $udevd ] || { echo "$udevd is missing"; return 77; }
	mkdir -p /run/udev/rules.d
	cp "$top_srcdir/kmod/60-ddraid.rules" /run/udev/rules.d/
	pgrep -x systemd-udevd >/dev/null || $udevd --daemon
	server 1
	within 20 test -b /dev/ddraid/d1
	is link "$(readlink -f /dev/ddraid/d1)" "$dev"
	is link "$(readlink -f /dev/disk/by-id/ddraid-01010101-0101-0101-0101-010101010101)" "$dev"
	# It follows the disk that is served now.
	old=$dev
	exec 9<"$dev"
	crash 1
	server 1 --fresh
	[ "$dev" != "$old" ]
	within 20 linked d1 "$dev"
	exec 9<&-
	within 20 gone "$old"
	udevadm settle
	is link "$(readlink -f /dev/ddraid/d1)" "$dev"
	# What is on it, as soon as somebody has written it.
	mkfs.ext4 -q -L ddraid-label -U 6b8b4567-327b-43c6-a3c9-869d66334873 "$dev"
	within 20 linked ../disk/by-label/ddraid-label "$dev"
	udevadm settle
	is link "$(readlink -f /dev/disk/by-uuid/6b8b4567-327b-43c6-a3c9-869d66334873)" "$dev"
	is type "$(udevadm info -q property --property=ID_FS_TYPE --value "$dev")" ext4
	tell 1 USR1
	is answer "$(tail -n 1 "$work/1.out")" detached
	udevadm settle
	refused ls /dev/disk/by-label/ddraid-label
	refused ls /dev/ddraid/d1
	kill "$(pgrep -x systemd-udevd | head -n 1)"
	rm -f /run/udev/rules.d/60-ddraid.rules
}

t_two_disks() {
	local a b pid
	server 1
	a=$dev
	server 2
	b=$dev
	[ "$a" != "$b" ]
	fio_verify "$a" 5 &
	pid=$!
	fio_verify "$b" 3
	crash 2
	wait "$pid"
	server 2
	fio_verify "$b" 1
}

t_detach() {
	server 1
	exec 9<"$dev"
	is openers "$(status 1 openers)" 1
	tell 1 USR1
	is answer "$(tail -n 1 "$work/1.out")" busy
	alive 1
	dd if=/dev/fd/9 of=/dev/null bs=4096 count=1 iflag=direct status=none
	exec 9<&-
	tell 1 USR1
	is answer "$(tail -n 1 "$work/1.out")" detached
	gone "$dev"
	refused "$bin/disk-server" --status 1
}

t_errors() {
	server 1 --fail-writes 28
	refused dd if=/dev/zero of="$dev" bs=4096 count=1 oflag=direct
	grep -q 'No space left' "$work/refused"
	for e in 5 11 12 16 4095; do
		crash 1
		server 1 --fail-writes "$e"
		refused dd if=/dev/zero of="$dev" bs=4096 count=1 oflag=direct
		grep -q 'Input/output error' "$work/refused"
	done
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none
}

t_grow() {
	server 1
	exec 9<"$dev"
	crash 1
	server 1 --size $((128 << 20))
	is size "$(blockdev --getsize64 "$dev")" $((128 << 20))
	dd if=/dev/zero of="$dev" bs=1M seek=127 count=1 oflag=direct status=none
}

# What freezes the queue waits for requests, and they for the daemon.
t_scheduler() {
	local pid s had=0
	for s in mq-deadline bfq kyber-iosched; do
		modprobe $s 2>/dev/null || true
	done
	server 1
	fio_verify "$dev" 5 &
	pid=$!
	for s in mq-deadline none bfq none kyber none; do
		# Which there are is the kernel's business, but for the first.
		if [ $s = mq-deadline ] || grep -qw "$s" "/sys/block/${dev#/dev/}/queue/scheduler"; then
			echo "$s" >"/sys/block/${dev#/dev/}/queue/scheduler"
			is scheduler "$(of_queue scheduler | tr ' ' '\n' | grep '\[')" "[$s]"
			had=$((had + 1))
		fi
		sleep 0.3
	done
	echo 8 >"/sys/block/${dev#/dev/}/queue/nr_requests"
	crash 1
	server 1
	wait "$pid"
	echo "$had times another scheduler"
}

# A CPU goes while requests wait for the daemon.
t_cpu_offline() {
	[ -e /sys/devices/system/cpu/cpu1/online ] || { echo "one CPU only"; return 77; }
	server 1
	crash 1
	taskset -c 1 dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none &
	pid=$!
	within 5 waits 1 1
	echo 0 >/sys/devices/system/cpu/cpu1/online
	server 1
	wait "$pid"
	fio_verify "$dev" 1
	echo 1 >/sys/devices/system/cpu/cpu1/online
	fio_verify "$dev" 1
}

# Killed while it waits in the kernel: it goes when its request has been answered.
t_dying_consumer() {
	server 1 --hold
	dd if="$dev" of=/dev/null bs=4096 count=1 iflag=direct status=none &
	pid=$!
	within 5 holds 1 1
	kill -s KILL "$pid"
	crash 1
	server 1
	refused wait "$pid"
	within 5 opened 1 0
}

# All at once, at random: errors are nothing here, but it must go on, and the kernel have nothing to say.
t_races() {
	local end=$((SECONDS + 15)) late=$((SECONDS + limit_all * 5 / 8)) pids=() n p d seen over=0 requests=0
	for n in 1 2 3; do
		(set +e; trap - ERR; while [ ! -e "$work/enough" ]; do
			for d in /dev/ddraid[0-9]*; do
				# nocreat: else a file takes the place of the next disk's node.
				dd if=/dev/zero of="$d" bs=64k count=8 oflag=direct conv=nocreat status=none 2>/dev/null
				dd if="$d" of=/dev/null bs=64k count=8 status=none 2>/dev/null
			done
			pause
		done; true) &
		pids+=($!)
	done
	(set +e; trap - ERR; while [ ! -e "$work/enough" ]; do
		for d in /sys/block/ddraid*/ddraid; do
			cat "$d"/* >/dev/null 2>&1
			# Seldom: what has failed is not there to be taken over.
			((RANDOM % 16)) || echo $((RANDOM % 4)) >"$d/away_ms"
		done 2>/dev/null
		"$bin/disk-server" --status 1 >/dev/null 2>&1
	done; true) &
	pids+=($!)
	# A slow machine takes longer until enough has happened.
	while ((SECONDS < end || (SECONDS < late && (over < 3 || requests < 100)))); do
		n=$((RANDOM % 2 + 1))
		p=(--away-ms $((RANDOM % 4 ? 0 : RANDOM % 5)))
		((RANDOM % 4)) || p+=(--fresh)
		((RANDOM % 3)) || p+=(--hold)
		((RANDOM % 2)) || p+=(--die-after $((RANDOM % 20)) --die-when pulled)
		[ ! -e "$work/$n.pid" ] || crash "$n"
		# It may have died again.
		taken=0
		server "$n" "${p[@]}" >/dev/null 2>&1 || true
		((taken == 0)) || over=$((over + 1))
		pause 0.$((RANDOM % 5))
		seen=$(status "$n" requests 2>/dev/null)
		requests=$((requests + ${seen:-0}))
		case $((RANDOM % 4)) in
		0) kill -s USR2 "$(cat "$work/$n.pid")" 2>/dev/null ;;
		1) kill -s USR1 "$(cat "$work/$n.pid")" 2>/dev/null ;;
		2) kill -s TERM "$(cat "$work/$n.pid")" 2>/dev/null ;;
		esac || true
	done
	touch "$work/enough"
	crash 1
	crash 2
	for d in /sys/block/ddraid*/ddraid/away_ms; do echo 1 >"$d"; done 2>/dev/null || true
	wait "${pids[@]}"
	server 1 --fresh
	fio_verify "$dev" 1
	# All of that did happen.
	echo "$over times requests were taken over; $requests requests"
	[ "$over" -ge 3 ] && [ "$requests" -ge 100 ]
}

t_reload() {
	local i
	for ((i = 0; i < 24; i++)); do
		rmmod ddraid
		insmod "$module"
		server 1
		dd if=/dev/zero of="$dev" bs=64k count=4 oflag=direct status=none
		case $((i % 3)) in
		0) crash 1 ;;
		1) tell 1 USR1 ;;
		2) tell 1 USR2 ;;
		esac
		# It says so before it has closed its session.
		within 20 dead 1
	done
}

t_filesystems() {
	local fs make check opt
	mkdir -p "$work/mnt"
	while read -r fs make check opt; do
		rm -f "$shm/d1"
		server 1 --size $((320 << 20))
		modprobe "$fs" 2>/dev/null || true
		# shellcheck disable=SC2086 # words
		"mkfs.$fs" $make "$dev" >"$work/mkfs" 2>&1 || { cat "$work/mkfs"; return 1; }
		mount -t "$fs" ${opt:+-o "$opt"} "$dev" "$work/mnt"
		cp -r "$top_srcdir/daemon" "$top_srcdir/doc" "$top_srcdir/kmod" "$work/mnt/"
		fallocate -l 1M "$work/mnt/allocated" 2>/dev/null || true
		(cd "$work/mnt" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/sums"
		[ "$(wc -l <"$work/sums")" -gt 20 ]
		umount "$work/mnt"
		mount -t "$fs" "$dev" "$work/mnt"
		(cd "$work/mnt" && sha256sum --quiet -c "$work/sums")
		rm -rf "${work:?}/mnt"/*
		fstrim "$work/mnt" 2>/dev/null || [ "$fs" = vfat ]
		umount "$work/mnt"
		${check//:/ } "$dev" >"$work/fsck" 2>&1 || { cat "$work/fsck"; echo "$check on $fs"; return 1; }
		tell 1 USR1
		is answer "$(tail -n 1 "$work/1.out")" detached
	done <<-'LIST'
		ext4 -q fsck.ext4:-fn
		xfs -q xfs_repair:-n
		btrfs -q btrfs:check
		vfat -F32 fsck.vfat:-n
	LIST
}

# ---- the runner ----

group=
complaints='WARNING:|BUG:|BUG |Oops|KASAN|UBSAN|general protection|possible (circular|recursive)|suspicious RCU|inconsistent lock|INFO: task .* blocked|INFO: rcu|soft lockup|refcount_t|Call Trace|list_(add|del) corruption|unreferenced object|Kernel panic|sleeping function|INFO: (Slab|Object|Allocated|Freed)'

# What a test may have left: servers, mounts, disks, the module.
clean() {
	local f
	rm -f "$work/enough"
	# Who waits in the kernel goes on, and can end.
	for f in /sys/block/ddraid*/ddraid/away_ms; do
		[ ! -e "$f" ] || echo 1 >"$f"
	done
	[ -z "$group" ] || kill -s KILL -- "-$group" 2>/dev/null
	group=
	! mountpoint -q "$work/mnt" || umount -l "$work/mnt"
	[ ! -e /dev/mapper/kmod-test ] || DM_DISABLE_UDEV=1 dmsetup remove --retry kmod-test
	for f in "$work"/*.pid; do
		[ ! -e "$f" ] || kill -s KILL "$(cat "$f")" 2>/dev/null
		rm -f "$f"
	done
	rm -f "$shm"/d* "$work"/fio.*
	for ((i = 0; i < 100; i++)); do
		[ -e /sys/module/ddraid ] || break
		! rmmod ddraid 2>/dev/null || break
		pause 0.05
	done
	insmod "$module"
}

kernel_says() {
	dmesg -c >>"$work/dmesg"
	tail -n "+$(($(cat "$work/dmesg.seen") + 1))" "$work/dmesg" >"$work/dmesg.new"
	wc -l <"$work/dmesg" >"$work/dmesg.seen"
}

# When all tests are through, and what they left is gone: two scans take half a minute. The module is loaded, for it tells whose an
# object is. The kernel names what two scans have found, and that is older than five seconds.
leaks_nothing() {
	[ -n "$leaks" ] || return 0
	pause 6
	echo scan >"$leaks"
	echo scan >"$leaks"
	cat "$leaks" >"$work/leaks"
	! grep -qE '\[ddraid\]|\] 0xffffffff' "$work/leaks" # or of a module that is gone
}

run() { # NAME
	local name=$1 began=$SECONDS status=0 pid limit=$limit_all
	case $name in
	killed | reload | filesystems) limit=$((3 * limit)) ;;
	esac
	clean 2>"$work/clean" || { echo "FAILED $name: the module can't be loaded anew: $(cat "$work/clean")"; return 1; }
	# A process group of its own, to be ended with all that it left.
	set -m
	(set -eE; trap 'echo "line $LINENO: $BASH_COMMAND"' ERR; "t_$name") >"$work/out" 2>&1 &
	pid=$!
	set +m
	group=$pid
	while kill -0 $pid 2>/dev/null; do
		if ((SECONDS - began > limit)); then
			echo w >/proc/sysrq-trigger
			status=124
			break
		fi
		pause 0.1
	done
	if [ $status = 0 ]; then
		wait "$pid"
		status=$?
	fi
	kernel_says
	if [ $status != 124 ] && grep -qE "$complaints" "$work/dmesg.new"; then
		echo "the kernel complained" >>"$work/out"
		status=1
	fi
	case $status in
	0) echo "ok     $name ($((SECONDS - began)) s) $(tail -n 1 "$work/out")" ;;
	77) echo "skip   $name: $(head -n 1 "$work/out")" ;;
	124) echo "HUNG   $name, after $limit s" ;;
	*) echo "FAILED $name ($((SECONDS - began)) s)" ;;
	esac
	case $status in
	0 | 77) return $status ;;
	esac
	sed 's/^/    | /' "$work/out"
	tail -n 150 "$work/dmesg.new" | sed 's/^/    # /'
	return $status
}

ln -sfn /proc/self/fd /dev/fd
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
leaks=
if [ -n "${KMOD_LEAKS:-}" ]; then
	leaks=/sys/kernel/debug/kmemleak
	[ -e "$leaks" ] || { echo "FAILED: this kernel has no kmemleak"; exit 1; }
fi
dmesg -c >"$work/dmesg"
if grep -qE "$complaints" "$work/dmesg"; then
	echo "the kernel complained before the first test:"
	grep -E -A 20 "$complaints" "$work/dmesg" | head -n 60
fi
wc -l <"$work/dmesg" >"$work/dmesg.seen"
sysctl -q kernel.hung_task_timeout_secs=40 2>/dev/null
# shellcheck disable=SC2046 # words
[ $# -gt 0 ] || set -- $(sed -n 's/^t_\([a-z_]*\)() {$/\1/p' "$0")
bad=0 good=0 skipped=
for t; do
	# Not in a condition: a shell has no errexit there, nor have its children.
	run "$t"
	status=$?
	case $status in
	0) good=$((good + 1)) ;;
	77) skipped+=" $t" ;;
	*) bad=$((bad + 1)) ;;
	esac
	# The machine is not fit for more.
	[ $status != 124 ] || break
done
clean 2>/dev/null
leaked=
leaks_nothing || { leaked=', it leaks'; cat "$work/leaks"; }
rmmod ddraid
status=$?$leaked
kernel_says
if [ "$status" != 0 ] || grep -qE "$complaints" "$work/dmesg.new"; then
	echo "FAILED the end: rmmod's status is $status, the kernel says"
	tail -n 150 "$work/dmesg.new" | sed 's/^/    # /'
	bad=$((bad + 1))
fi
[ -z "$skipped" ] || echo "skipped:$skipped"
# shellcheck disable=SC2086 # words
set -- $skipped
echo "$good passed, $bad failed$([ $# = 0 ] || echo ", $# skipped")"
[ $bad = 0 ] || exit 1
[ $# = 0 ] || exit 77
