#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whose opens of the block device go on (R6), disk-removed.sh VIA CASE...: on node 3 something has the device open, and
#
#	killed	its daemon is killed and comes back: the open goes on, as after the end of another node's daemon, and
#		after an orderly restart that takes longer than restart_wait
#	fenced	its daemon is killed and stays away, so the others fence the node. When it is back, without having
#		been started anew, the open has failed for good, and what is opened then works
#	away	the same with a fence that does not touch the network: the epoch tells
#	cut	its cable is pulled, and plugged in again
#	cut-killed	the same, and its daemon dies meanwhile: the next one can't know what the last one missed
#	frozen	the machine stands still, and goes on
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
via=${1:?by which way?}
shift

[ "$1" != away ] || FENCE_CONF='fence = none # %s'
# With dlm_controld a machine that is cut off or stands still would lose its power, and what it has open with it.
case "$*" in *cut* | *frozen*) LAB_DLM=no ;; esac
array_up 3 1
disk_driver 3 "$via"
disk_attach 3 --via "$via"
disk_hold 3

back() {
	daemon_up 3
	within 40 "node 3 serves" active 3
	within 20 "the device of node 3" disk_is_there 3
}

# As whoever takes the consumer of node 3 over: its blocks are written on node 1. The open on node 3 still wants to write there.
takes_over() {
	nbd_do 1 "h.pwrite(b'1' * 64 * 4096, 3 * 64 * 4096); h.flush()" || fail "node 1 can't write"
}

# The open of before has failed, and written nothing since; another one works, on another device.
reopened() {
	local n
	disk_hold_fails 3
	within 30 "node 3 serves" active 3
	for n in 1 2 3; do
		nbd_do $n "assert h.pread(64 * 4096, 3 * 64 * 4096) == b'1' * 64 * 4096" || fail "what node 1 wrote was overwritten, read on node $n"
	done
	within 20 "the device of node 3" disk_is_there 3
	[ "$via" != shim ] || [ "$(disk_of 3)" != "$first" ] || fail "it is the same device"
	disk_hold 3
	disk_hold_goes_on 3
}

for case; do
	first=$(disk_of 3)
	fences_forget
	log_mark 3
	case $case in
	killed)
		step "ddraidd of node 3 is killed and comes back"
		node_signal 3 ddraidd KILL
		back
		log_has 3 "is taken over" || fail "not taken over"
		disk_hold_goes_on 3
		! full_fence 3 || fail "node 3 was fenced"
		step "the one of node 2"
		node_signal 2 ddraidd KILL
		daemon_up 2
		disk_hold_goes_on 3
		step "the one of node 3 ends in an orderly way, and comes back after restart_wait"
		daemon_stop 3
		sleep "$(($(patience 6) + 2))"
		log_mark 3
		back
		log_has 3 "is taken over" || fail "not taken over"
		disk_hold_goes_on 3
		[ "$(disk_of 3)" = "$first" ] || fail "it is another device"
		;;
	fenced | away)
		step "ddraidd of node 3 is killed for longer than restart_wait"
		node_signal 3 ddraidd KILL
		[ "$case" = away ] || within 40 "the fence of node 3" full_fence 3
		# Not before: until somebody has, it is not too late to come back.
		within 30 "the others go on" holds 1 'a["nodes_active"] == 2 and a["io_allowed"] and not a["nodes_unfenced"]'
		takes_over
		if [ "$case" = fenced ]; then
			unfence 3
			cluster_wait_quorum 40 1 2 3 || fail "no quorum"
		fi
		disk_holds 3 1 && ! disk_hold_failed 3 || fail "the open did not wait"
		back
		if [ "$case" = away ]; then
			log_has 3 "have fenced it and gone on" || fail "it does not say why"
		else
			log_has 3 "membership has changed" || log_has 3 "have fenced it and gone on" || fail "it does not say why"
		fi
		reopened
		;;
	cut | cut-killed)
		step "node 3 is cut off"
		node_cut 3
		within 40 "the fence of node 3" full_fence 3
		takes_over
		disk_hold_failed 3 && fail "the open did not wait"
		flood=
		if [ "$via" = nbd ]; then
			# More than ddraidd takes in: a worker of the kernel's stands in the socket when the node hears of it.
			node_exec 3 fio --name=w --filename=/dev/ddraid/vol0 --rw=write --bs=128k --iodepth=128 --direct=1 --ioengine=libaio \
				--size=32m >"$CLUSTER_DIR/fio.w" 2>&1 &
			flood=$!
			within 20 "more requests than NBD_CLIENT_REQS" node_exec 3 awk '{ exit !($1 + $2 > 64) }' "/sys/block/$first/inflight"
		fi
		if [ "$case" = cut-killed ]; then
			daemon_kill 3
		fi
		unfence 3
		cluster_wait_quorum 40 1 2 3 || fail "no quorum"
		[ "$case" = cut ] || back
		[ -z "$flood" ] || ! wait "$flood" || fail "fio has written to a device that was removed"
		reopened
		;;
	frozen)
		step "node 3 stands still"
		node_freeze 3
		within 40 "the fence of node 3" full_fence 3
		takes_over
		unfence 3
		node_thaw 3
		reopened
		;;
	*)
		fail "there is no case $case"
		;;
	esac
done
disk_hold_end 3
within 30 "node 1 serves" active 1
serve 1 2 3
disk_finish 3 1 2
