#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Pid 1 of a node of a test cluster (tests/lib/cluster.sh): node-init.sh NODE-DIR NUMBER
#
# It runs in network, mount, pid and UTS namespaces of its own. It makes private what a node has for
# itself, says so by NODE-DIR/ready, and then only reaps what was orphaned. As it is pid 1, its death
# by SIGKILL ends every process of the node at once: the power cut.
set -eu

dir=$1 number=$2

# What survives a power cut lies in NODE-DIR: a path, and what is there for it.
persistent='
/etc/corosync		etc-corosync
/etc/ddraid		etc-ddraid
/var/lib/corosync	var-lib-corosync
/var/lib/ddraid		var-lib-ddraid
/var/log/corosync	log
'

# Where the machine lacks the mount point, an overlay provides it, so that nothing is created outside of
# NODE-DIR. All of these come before the first bind mount: they would hide it.
mount_point() {
	local parent
	parent=$(dirname "$1")
	mkdir -p "$dir/overlay$parent/upper" "$dir/overlay$parent/work"
	mount -t overlay node -o \
		"lowerdir=$parent,upperdir=$dir/overlay$parent/upper,workdir=$dir/overlay$parent/work" \
		"$parent"
	mkdir -p "$1"
}

hostname "node$number"
while read -r path state; do
	[ -z "$path" ] || [ -d "$path" ] || mount_point "$path"
done <<<"$persistent"
while read -r path state; do
	[ -n "$path" ] || continue
	mkdir -p "$dir/$state"
	mount --bind "$dir/$state" "$path"
done <<<"$persistent"
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir /run/ddraid /run/lock

trap : TERM INT HUP
touch "$dir/ready"
while :; do
	sleep 86400 &
	wait $! || true
done
