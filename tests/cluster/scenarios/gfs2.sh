#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# GFS2 with lock_dlm on the array, mounted by three machines that all write to it, while there is a fault: gfs2.sh FAULT.
#
#	node	the power of one machine is cut
#	member	an exporter is killed; a daemon, too, and started again; then the exporter comes back
#	both	an exporter is killed and the power of a machine cut, at once
#	cut	a machine loses the network to the others, and still reaches the members
#
# The others go on: ddraid takes the dead node over and resyncs what it was writing, the DLM recovers after the machine's
# fence, GFS2 replays its journal. Then everything that fsync had said is durable is there, on all machines, and fsck.gfs2 finds
# nothing.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
command -v mkfs.gfs2 >/dev/null || { echo "skipped: no mkfs.gfs2 (tools/deps --lab)"; exit 77; }

fault=$1
MEMBER_SIZE=40M
mnt=/mnt/vol0
declare -A loads=()

disk_up() { # N
	disk_driver "$1" shim
	disk_attach "$1"
}
disk_down() { # N
	disk_detach "$1"
	kernel_is_fine "$1"
}
mount_on() { # N
	node_exec "$1" sh -c "modprobe gfs2 && mkdir -p $mnt && mount -t gfs2 -o noatime /dev/ddraid/vol0 $mnt" ||
		fail "node $1 does not mount it"
}

umount_on() { # N
	node_exec "$1" umount "$mnt" || fail "umount on node $1"
}

# All of the load lets the daemons go first: it is endless, and they are what is waited for.
load_start() { # COUNT N...: and each has so many records durable
	local n count=$1
	shift
	for n; do
		rm -f "$CLUSTER_DIR/fs.$n.stop"
		node_exec "$n" nice -n 10 /usr/bin/python3 -SE "$SCENARIO_LIB/fsload.py" write "$mnt" "$n" "$CLUSTER_DIR/fs.$n" \
			>>"$CLUSTER_DIR/fs.out.$n" 2>&1 &
		loads[$n]=$!
	done
	load_goes_on "$count" "$@"
}
durable() { # N
	cat "$CLUSTER_DIR/fs.$1" 2>/dev/null | grep -c '^A append'
}
durable_at_least() { # N COUNT
	[ "$(durable "$1")" -ge "$2" ]
}
load_goes_on() { # COUNT N...
	local n count=$1 before=()
	shift
	for n; do
		before[n]=$(durable "$n")
	done
	for n; do
		within 40 "node $n goes on writing" durable_at_least "$n" $((before[n] + count))
	done
}
load_stop() { # N...: must end well
	local n
	load_may_stop "$@"
	for n; do
		wait "${loads[$n]}" || fail "the load on node $n: $(tail -n 3 "$CLUSTER_DIR/fs.out.$n")"
		tail -n 1 "$CLUSTER_DIR/fs.out.$n"
	done
}
load_may_stop() { # N...
	local n
	for n; do
		touch "$CLUSTER_DIR/fs.$n.stop"
	done
}
compare_one_files() {
	node_exec "$1" sh -c 'echo 3 >/proc/sys/vm/drop_caches'
	node_exec "$1" /usr/bin/python3 -SE "$SCENARIO_LIB/fsload.py" check "$mnt" "$CLUSTER_DIR"/fs.[0-9] ||
		fail "wrong data, read on node $1"
}
compare_files() { # N...
	at_once compare_one_files "$@"
}
# What fio writes and compares: beside all that, on the nodes that live on.
fio_end() { # N...
	local n
	disk_fio_end "$@"
	for n; do
		step "node $n: $(disk_fio_did "$n")"
	done
}
# A tree of sources, unpacked on each node, again and again until the fault has come: so it comes while all do that. With rests, as
# three machines that all do as much as they can would have two processors to themselves.
unpack_start() { # N
	node_exec "$1" sh -c "mkdir $mnt/src.$1 && touch $CLUSTER_DIR/unpacking.$1 &&
		while nice -n 10 tar --checkpoint=4 --checkpoint-action=exec='sleep 0.7' --overwrite -C $mnt/src.$1 -xf $CLUSTER_DIR/src.tar || exit; [ ! -e $CLUSTER_DIR/fault ]; do sleep 1; done && sync -f $mnt && touch $CLUSTER_DIR/unpacked.$1" \
		>"$CLUSTER_DIR/tar.out.$1" 2>&1 &
}
unpacked_is_whole() { # N: read on another
	local on=$(($1 % 3 + 1)) out=$CLUSTER_DIR/compared.$1
	node_exec $on tar -C "$mnt/src.$1" -df "$CLUSTER_DIR/src.tar" >"$out" 2>&1 ||
		fail "the tree of node $1, read on node $on: $(head -n 3 "$out")"
}

# What GFS2 itself may leave of a node that dies fsck.gfs2 may find, and nothing else: gfs2_rest.awk.
fsck_clean() {
	local logs=$CLUSTER_DIR/node2/log unborn unlinked counts rest status
	! node_exec 2 fsck.gfs2 -n /dev/ddraid/vol0 >"$logs/fsck" 2>&1 || return 0
	node_exec 2 gfs2_edit savemeta /dev/ddraid/vol0 "$logs/savemeta" >"$logs/savemeta.out" 2>&1
	# Its two streams in one, line by line.
	node_exec 2 sh -c 'exec stdbuf -oL fsck.gfs2 -y /dev/ddraid/vol0 2>&1' >"$logs/fsck.y"
	status=$? # 1: all was corrected
	tr '\r' '\n' <"$logs/fsck.y" | awk -f "$SCENARIO_LIB/gfs2_rest.awk" >"$logs/fsck.rest"
	read -r unborn unlinked counts <"$logs/fsck.rest"
	rest=$(tail -n +2 "$logs/fsck.rest")
	# Three programs were writing on node 3.
	[ "$victim" = 3 ] && [ $status = 1 ] && [ -z "$rest" ] && [ $((unborn + unlinked)) -le 3 ] ||
		fail "fsck.gfs2 -y, status $status, says what it should not ($unborn inodes to be, $unlinked unlinked): $rest; all of it: $(tail -n 60 "$logs/fsck.y")"
	measured "left by GFS2: $unborn blocks of inodes to be, $unlinked unlinked inodes, $counts counts off"
	node_exec 2 fsck.gfs2 -n /dev/ddraid/vol0 >"$logs/fsck" 2>&1 || fail "fsck.gfs2: $(tail -n 40 "$logs/fsck")"
	mount_on 2
	compare_files 2
	umount_on 2
}
# Node 3 and the others: what they send to each other goes nowhere; exporters are as before.
nowhere=02:00:00:00:00:fe
part() {
	local n
	for n in 1 2; do
		node_exec $n ip neigh replace "$(node_address 3)" lladdr $nowhere nud permanent dev eth0 &&
			node_exec 3 ip neigh replace "$(node_address $n)" lladdr $nowhere nud permanent dev eth0 || fail "part"
	done
}
# Node 3 calls a member, over and over: a line in CLUSTER_DIR/reached for each time that it answers.
calls_start() {
	: >"$CLUSTER_DIR/reached"
	node_exec 3 bash -c 'while exec 3<>/dev/tcp/10.77.1.1/10809; do
			read -r -N 8 -u 3 hello && [ "$hello" = NBDMAGIC ] && echo reached
			sleep 0.3
		done' >>"$CLUSTER_DIR/reached" 2>/dev/null &
	caller=$!
	within 10 "node 3 reaches a member" test -s "$CLUSTER_DIR/reached"
}
join() {
	local n
	for n in 1 2; do
		node_exec $n ip neigh del "$(node_address 3)" dev eth0 || fail "join"
	done
}
# Journals of which nodes 1 and 2 have replayed something, by what their kernels say.
journals_replayed() {
	local n
	for n in 1 2; do
		node_exec $n dmesg
	done | grep -cE 'jid=[0-9]+: Replayed [1-9][0-9]* of'
}
journal_replayed() {
	[ "$(journals_replayed)" -gt "$journals" ]
}
# Without a member there is nothing to resync from. But the slot of node 3 has been read, what it was writing is known, and it
# is told what may be garbage.
taken_over_degraded() {
	local r="([r for r in a['recoveries'] if r['node'] == 3][-1])" n
	within 20 "node 3 is recovered" holds 1 "${r}['recovered_at']"
	tells 1 "$r"
	holds 1 "${r}['slot'] is not None and ${r}['fenced_at'] and ${r}['slot_read_at'] and ${r}['regions_marked'] > 0" || fail "node 3 was not writing, or nobody knows it: $(tells 1 "$r")"
	for n in 1 2; do
		within 5 "node $n tells of what may be garbage" log_has $n "node 3 died while a member is missing: .* [1-9][0-9]* marked regions"
	done
	measured "$(tells 1 "${r}['regions_marked']") regions of node 3 in its slot; $(tells 1 "${r}['fence_ms']") ms to the fence"
}
# Node 3 is in the middle of something that it has not been told to be durable, and what was durable last, half a second before
# that at most, is marked still when the fault comes: GFS2 may wait for a lock for longer than regions stay marked by default.
# Before an append it waits for the others' flock as well.
in_the_middle() {
	local log=$CLUSTER_DIR/fs.3
	holds 3 'a["regions_dirty"] > 0' && [[ $(tail -n 1 "$log") = S\ [bf]* ]] && [ -n "$(find "$log" -newermt '1 second ago')" ]
}

array_up 3 1
ctl 1 set vol0 release_delay=5s >/dev/null || fail "set"
tar -C /usr/include -cf "$CLUSTER_DIR/src.tar" asm-generic linux/byteorder linux/usb || fail "no tree to unpack"
at_once disk_up 1 2 3
step "three nodes have it as /dev/ddraid/vol0"
node_exec 1 mkfs.gfs2 -O -q -p lock_dlm -t "$CLUSTER_NAME:vol0" -j 3 -J 8 /dev/ddraid/vol0 || fail "mkfs.gfs2"
at_once mount_on 1 2 3
step "three nodes have it mounted"
load_start 3 1 2 3
for n in 1 2 3; do
	FIO_SIZE=1m FIO_RATE=--rate_iops=10 disk_fio $n $mnt/fio.$n
done
for n in 1 2 3; do
	unpack_start $n
done
fences_forget
journals=$(journals_replayed)
for n in 1 2 3; do
	within 20 "node $n unpacks its tree" test -e "$CLUSTER_DIR/unpacking.$n"
done
[ "$fault" != cut ] || calls_start
within 10 "node 3 is in the middle of a write" in_the_middle
victim=3 survivors=(1 2)
began=${EPOCHREALTIME/[.,]/}
case $fault in
node) node_kill 3; step "node 3 is powered off" ;;
member) exporter_kill 2; step "exporter 2 is killed"; victim='' survivors=(1 2 3) ;;
both) exporter_kill 2; node_kill 3; step "exporter 2 is killed, and node 3 powered off" ;;
cut) part; reached=$(grep -c . "$CLUSTER_DIR/reached"); step "node 3 is cut off from the other nodes" ;;
esac
: >"$CLUSTER_DIR/fault"
load_goes_on 2 "${survivors[@]}" # one may have been written before
measured "$fault: the others went on $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after the fault"
if [ -n "$victim" ]; then
	within 20 "the fence of node 3" full_fence 3
	within 20 "its power is cut" grep -q "off 3 " "$CLUSTER_DIR/power.log"
	[ "$fault" != cut ] || ! grep -q "was-off" "$CLUSTER_DIR/power.log" || fail "node 3 was off before it was fenced"
	within 20 "GFS2 replays its journal" journal_replayed
	fence_proof 3 || fail "requests after the fence"
	if [ "$fault" = both ]; then
		taken_over_degraded
	else
		resynced 3 1 2
		[ "$marked" -gt 0 ] || fail "node 3 was not writing"
	fi
	if [ "$fault" = cut ]; then
		reached=$(($(grep -c . "$CLUSTER_DIR/reached") - reached))
		[ "$reached" -gt 1 ] || fail "node 3 was cut off from the members, too" # one may have been under way
		measured "after the cut node 3 reached a member $reached times"
	fi
	node_kill 3 # what is left of it on this side, where its DLM has been faster
	wait "${loads[3]}" "${FIO[3]}" ${caller:+"$caller"} 2>/dev/null
fi
if [ "$fault" = member ]; then
	daemon_kill 1
	daemon_up 1
	load_goes_on 2 1 2 3
	step "ddraidd of node 1 was killed, and is back"
	exporter_restart 2 || fail "exporter 2"
fi
if [ -n "$victim" ]; then
	[ "$fault" != cut ] || join
	node_power 3 || fail "node 3 does not start" # it boots; corosync waits for node_ready
fi
load_may_stop "${survivors[@]}"
fio_end "${survivors[@]}"
for n in "${survivors[@]}"; do
	within 60 "the tree of node $n is unpacked" test -e "$CLUSTER_DIR/unpacked.$n"
done
load_stop "${survivors[@]}"
compare_files "${survivors[@]}"
if [ -n "$victim" ]; then
	step "node 3 comes back"
	node_ready 3 && nodes_complete 3 || fail "node 3 does not start"
	disk_driver 3 shim
	daemon_up 3
	serve 3
	within 20 "its disk" disk_is_there 3
	mount_on 3
fi
at_once unpacked_is_whole "${survivors[@]}"
if [ "$fault" = member ]; then
	# It is given up after member_retry; then an operator takes it back.
	! holds 1 'a["members"][1]["state"] == "missing"' || ctl 1 re-add vol0 1 >"$CLUSTER_DIR/re-add" 2>&1 || fail "re-add: $(cat "$CLUSTER_DIR/re-add")"
	within 40 "exporter 2 is in sync" holds 1 'not a["degraded"]'
	step "exporter 2 is in sync again"
fi
load_start 1 1 2 3
load_stop 1 2 3
compare_files 3
for n in 1 2 3; do # in turn: of two lock spaces that are left at once each may wait for the other for minutes, in the kernel
	umount_on $n
done
fsck_clean
step "fsck.gfs2 finds nothing"
at_once disk_down 1 2 3
finish 1 2 3
