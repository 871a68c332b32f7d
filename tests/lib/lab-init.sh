#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Pid 1 of a machine of the lab (tests/lib/lab.sh), on the host's root with a writable layer of its own in memory.
# The initrd (lab-image) has seen to devices, modules and networks, by a program that needs no files of the host's.
# This makes what a node has for itself, says so by ready in its folder, and then only reaps what was orphaned
# and obeys the host, a word a line by the virtual console: freeze, thaw. What survives a power cut is in
# the run's folder (lab_dir), which the host shares with all of its machines.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# shellcheck disable=SC2154 # from the kernel's command line
dir=$lab_dir/node$lab_node

# shellcheck source=tests/lib/node-state.sh
. "$(dirname "$0")/node-state.sh"

# With another time of access each file has to be this machine's own: the kernel copies it into the layer in memory.
mapfile -t often <"$lab_dir/often"
touch -cah "${often[@]}"

# It would take a tenth of what an idle machine takes. A kernel of another build may not have it.
khugepaged=/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
[ ! -e "$khugepaged" ] || echo 600000 >"$khugepaged"

paths=(/etc/dlm /root/.ssh)
while read -r path _; do
	[ -z "$path" ] || paths+=("$path")
done <<<"$node_state"
mkdir -p "${paths[@]}"
node_state_mount "$dir"
echo "$(<"$lab_dir/dlm.conf")" >/etc/dlm/dlm.conf

# Not the host's start-up files of a shell, nor its keys.
for name in .bashrc .bash_profile .profile; do
	: >"/root/$name"
done
echo "$(<"$lab_dir/key.pub")" >/root/.ssh/authorized_keys
chmod go= /root /root/.ssh /root/.ssh/authorized_keys
dropbear -r "$lab_dir/host_key" -s -p "10.78.0.$lab_node:22" -P /run/dropbear.pid
# shellcheck disable=SC2154
setsid env USER=root LOGNAME=root SHELL=/bin/bash "$lab_run" serve "10.78.0.$lab_node" "$lab_port" </dev/null >/dev/console 2>&1 &

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
