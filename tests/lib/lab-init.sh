#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Pid 1 of a machine of the lab (tests/lib/lab.sh), on the host's root with a writable layer of its own in memory.
# It makes what a node has for itself, says so by ready in its folder, and then only reaps what was orphaned
# and obeys the host, a word a line by the virtual console: freeze, thaw. What survives a power cut is in
# the run's folder (lab_dir), which the host shares with all of its machines.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# shellcheck disable=SC2154 # from the kernel's command line
dir=$lab_dir/node$lab_node image=$lab_image

# shellcheck source=tests/lib/node-state.sh
. "$(dirname "$0")/node-state.sh"

mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/pts /dev/shm /run/ddraid /run/lock /run/dlm_controld /etc/dlm
mount -t devpts -o gid=5,mode=620 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$image/modules/lib/modules" /lib/modules
hostname "node$lab_node"

ip link set lo up
ip addr add "10.77.0.$lab_node/16" dev eth0
ip link set eth0 up
ip addr add "10.78.0.$lab_node/16" dev eth1
ip link set eth1 up

while read -r path _; do
	[ -z "$path" ] || mkdir -p "$path"
done <<<"$node_state"
node_state_mount "$dir"
cp "$lab_dir/dlm.conf" /etc/dlm/dlm.conf

for m in configfs dlm nbd; do
	modprobe "$m"
done
mount -t configfs configfs /sys/kernel/config
# Without udev: where libdlm looks for its devices.
mkdir -p /dev/misc
for name in dlm-control dlm-monitor dlm_plock; do
	ln -sf "../$name" "/dev/misc/$name"
done

# Not the host's start-up files of a shell, nor its keys.
mkdir -p /root/.ssh
for name in .bashrc .bash_profile .profile; do
	: >"/root/$name"
done
cp "$lab_dir/key.pub" /root/.ssh/authorized_keys
chmod 700 /root /root/.ssh
chmod 600 /root/.ssh/authorized_keys
dropbear -r "$lab_dir/host_key" -s -p "10.78.0.$lab_node:22" -P /run/dropbear.pid

# A smaller shell for node_exec.
sed -i '/^root:/s,:[^:]*$,:/bin/dash,' /etc/passwd
# For node_use: the export of the tests' array.
setsid socat -b 131072 "TCP-LISTEN:10809,bind=10.78.0.$lab_node,reuseaddr,fork,nodelay" \
	UNIX-CONNECT:/run/ddraid/vol0.nbd </dev/null >/dev/null 2>&1 &

trap : TERM INT HUP
touch "$dir/ready"
exec 3</dev/vport0p1 4>/dev/console
while :; do
	word=
	read -r -u 3 word || sleep 0.1
	case $word in
	freeze) kill -s STOP -- -1 ;;
	thaw) kill -s CONT -- -1 ;;
	'') continue ;;
	*) echo "lab: unknown word '$word'" >&4 ;;
	esac
done
