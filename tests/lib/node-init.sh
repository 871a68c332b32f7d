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

# shellcheck source=tests/lib/node-state.sh
. "$(dirname "$0")/node-state.sh"

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
while read -r path _; do
	[ -z "$path" ] || [ -d "$path" ] || mount_point "$path"
done <<<"$node_state"
node_state_mount "$dir"
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir /run/ddraid /run/lock

trap : TERM INT HUP
touch "$dir/ready"
while :; do
	sleep 86400 &
	wait $! || true
done
