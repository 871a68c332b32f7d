# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What of a test cluster's node survives a power cut: a path in the node, and what is there for it in the node's folder.
# For node-init.sh and lab-init.sh.
node_state='
/etc/corosync		etc-corosync
/etc/ddraid		etc-ddraid
/var/lib/corosync	var-lib-corosync
/var/lib/ddraid		var-lib-ddraid
/var/log/corosync	log
'

# node_state_mount NODE-DIR. The mount points are there.
node_state_mount() {
	local path state
	while read -r path state; do
		[ -n "$path" ] || continue
		mkdir -p "$1/$state"
		mount --bind "$1/$state" "$path"
	done <<<"$node_state"
}
