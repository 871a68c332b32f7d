#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# doc/operating-cluster.md and doc/operating-gfs2.md, from three machines with nothing on them to GFS2: what they tell an operator
# to type is read from them, and typed, in machines that boot with systemd as Debian does, have Debian's units and udev, and keep what is written to
# their disk. Then its last step: the power of one is pulled, and switched on again, and all is back by itself. Then
# one is switched off in the usual way, and the array is stopped.
#
# Not as there: packages come from this machine; ddraid and, by DKMS, the driver are built on this machine, by the pages' commands,
# and installed in each; one machine more offers all three disks, at three addresses; and heartbeats are fewer.
set -u
export LAB_BARE=yes LAB_INIT=systemd
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
for p in dkms mkfs.gfs2 /usr/lib/sftp-server /lib/systemd/systemd; do
	command -v "$p" >/dev/null || { echo "skipped: no $p (tools/deps --lab)"; exit 77; }
done
. "$CLUSTER_SRC/tests/cluster/pages.sh"
ARRAY_MEMBERS=(1 2 3)
MEMBER_SIZE=36M
names=(- a b c)

eval "lib_$(declare -f fail)"
fail() {
	local n
	for n in 1 2 3 4; do
		cluster_alive "node$n.init" || continue
		{
			date "+it is %F %T.%N"
			node_exec "$n" sh -c 'date "+and there %F %T.%N, %s"; cat /proc/uptime /sys/devices/system/clocksource/*/current_clocksource
				systemctl list-jobs --no-pager; journalctl -b -o short-precise --no-pager'
		} >"$CLUSTER_DIR/node$n/log/journal" 2>&1
	done
	lib_fail "$@"
}

# block PAGE SECTION NUMBER: the commands there, with this cluster's addresses.
block() {
	page_block "$@" | sed -e 's/10\.0\.0\./10.77.0./g; s/10\.0\.1\./10.77.1./g' -e "s|AGENT|$CLUSTER_SRC/tests/lib/fence_lab|" |
		grep . || fail "doc/operating-$1.md: no commands $3 in '$2'"
}

# type_in N PAGE SECTION NUMBER: on node N, in the folder of the sources. What it said is in CLUSTER_DIR/typed.N.
type_in() {
	local file=$CLUSTER_DIR/typed.$1.sh
	block "$2" "$3" "$4" >"$file" || exit 1
	node_exec "$1" sh -c "cd $sources && set -e && . $file" >"$CLUSTER_DIR/typed.$1" 2>&1
}
# typed N PAGE SECTION NUMBER: and it must end well.
typed() {
	type_in "$@" || fail "node $1: $(cat "$CLUSTER_DIR/typed.$1.sh"): $(tail -n 20 "$CLUSTER_DIR/typed.$1")"
}
typed_on_all() {
	local n pids=()
	for n in 1 2 3; do
		typed "$n" "$@" &
		pids+=($!)
	done
	for n in "${pids[@]}"; do
		wait "$n" || exit 1
	done
}
said() { # N TEXT
	grep -q -- "$2" "$CLUSTER_DIR/typed.$1"
}
# says N TEXT PAGE SECTION NUMBER: until it does.
says() {
	type_in "$1" "$3" "$4" "$5" && said "$1" "$2"
}

ctl() {
	local n=$1
	shift
	node_exec_within "$CTL_SECONDS" "$n" ddraidctl "${@//vol0/data}"
}
mounted() {
	node_exec "$1" mountpoint -q /srv 2>/dev/null
}
written() { # N FILE
	node_exec "$1" sh -c "date >/srv/$2 && sync /srv/$2"
}

# The programs as step 2 for the cluster has it, and the driver as step 3 for GFS2 has it; once for a state of the sources.
sources=$LAB_CACHE/guide/ddraid
build() {
	local at=$LAB_CACHE/guide made
	mkdir -p "$at"
	lab_image
	tar -C "$CLUSTER_SRC" --sort=name --mtime=@0 --exclude=./.git --exclude='./build*' --exclude='*.[oa]' --exclude=./autom4te.cache --exclude=./tests/cluster/scenarios -cf "$at/sources.tar" .
	made=$(cat "$at/sources.tar" "$LAB_IMAGE/made" "$CLUSTER_SRC/tests/cluster/scenarios/operating.sh" | sha256sum)
	[ "$(cat "$at/made" 2>/dev/null)" != "$made" ] || return 0
	rm -rf "$sources" "$at/installed" "$at/made" "$at/dkms" "$at/bin"
	mkdir -p "$sources" "$at/bin"
	tar -C "$sources" -xf "$at/sources.tar"
	cd "$sources"
	[ ! -e Makefile ] || make -s distclean
	printf '#!/bin/sh\nshift 2; exec dpkg-query -W "$@"\n' >"$at/bin/apt-get"
	printf '#!/bin/sh\n[ "$*" != -r ] || exec cat %s\nexec /bin/uname "$@"\n' "$LAB_IMAGE/release" >"$at/bin/uname"
	chmod +x "$at"/bin/*
	(block cluster "2. Programs" 2 | sed "s|make install|make install DESTDIR=$at/installed|") >"$at/typed"
	sh -ec ". $at/typed"
	tar -C "$at/installed" -cf "$at/installed.tar" .
	(block gfs2 "3. The driver" 1) >"$at/typed"
	LAB_IMAGE=$LAB_IMAGE unshare --mount bash -euc "$(declare -f driver); driver $at"
	echo "$made" >"$at/made"
}

# In a view of this machine whose kernel is the lab's, and to which nothing is done that stays.
driver() {
	local at=$1 release over path lower
	release=$(cat "$LAB_IMAGE/release")
	while read -r path lower; do
		over=$at/dkms$path
		mkdir -p "$path" "$over/upper" "$over/work"
		mount -t overlay over -o "lowerdir=$lower,upperdir=$over/upper,workdir=$over/work" "$path"
	done <<-END
		/usr/src /usr/src
		/var/lib/dkms /var/lib/dkms
		/lib/modules $LAB_IMAGE/few/lib/modules
	END
	ln -s "/usr/src/linux-headers-$release" "/lib/modules/$release/build"
	PATH=$at/bin:$PATH
	. "$at/typed"
	tar -C / -cf "$at/driver.tar" "lib/modules/$release/updates" "/lib/modules/$release"/modules.*
}

# Before there are machines that it would keep from their boot, and that cost half a processor while they wait for it.
(set -e; flock 8; build) >"${CLUSTER_TMP:-/tmp}/guide.out" 2>&1 </dev/null 8>"$LAB_CACHE/guide.lock" &
wait $! || fail "step 2: $(tail -n 20 "${CLUSTER_TMP:-/tmp}/guide.out")"
rm -f "${CLUSTER_TMP:-/tmp}/guide.out"
step "ddraid is built"
cluster_up 4 || exit 1
ARRAY_NODES=3
step "four machines have booted"
# As cluster_up does, and why.
sed -i '/seqno_unchanged_const/d; /^\ttoken:/a\	seqno_unchanged_const: 1' "$sources/cluster-conf/corosync.conf.in" || fail "corosync.conf.in"
shims="mkdir -p /usr/local/sbin; { echo '#!/bin/sh'; echo 'shift 2; dpkg-query -W \"\$@\" || exit; for p; do [ \$p != dlm-controld ] || systemctl enable --now dlm || :; done'; } >/usr/local/sbin/apt-get; chmod +x /usr/local/sbin/apt-get"
for n in 1 2 3; do
	ssh-keygen -q -t ed25519 -N '' -f "$CLUSTER_DIR/nodes_key.$n" || fail "ssh-keygen"
	node_exec $n tar -C / -m --keep-directory-symlink -xf "$LAB_CACHE/guide/installed.tar" || fail "install"
	node_exec $n sh -c "$shims; echo ${names[$n]} >/etc/hostname; hostname ${names[$n]}
		printf '%s\n' '10.77.0.1 a' '10.77.0.2 b' '10.77.0.3 c' >>/etc/hosts
		cp $CLUSTER_DIR/key /root/.ssh/id_harness; cp $CLUSTER_DIR/nodes_key.$n /root/.ssh/id_ed25519; chmod go= /root/.ssh/*
		printf '%s\n' 'Host b' 'HostName 10.78.0.2' 'IdentityFile /root/.ssh/id_harness' 'Host c' 'HostName 10.78.0.3' \
			'IdentityFile /root/.ssh/id_harness' 'Host 10.77.1.*' 'HostName 10.78.0.4' 'Host *' 'StrictHostKeyChecking no' \
			'LogLevel ERROR' >/root/.ssh/config
		systemctl daemon-reload" || fail "node $n"
done
node_exec 4 sh -c "$shims; systemctl stop corosync; cp $CLUSTER_SRC/cluster-conf/ddraid-export /tmp/
	for n in 1 2 3; do
		printf 'restrict,command=\"/usr/local/sbin/ddraid-export ssh %s\" %s\n' 10.77.0.\$n \"\$(cat $CLUSTER_DIR/nodes_key.\$n.pub)\"
	done >>/root/.ssh/authorized_keys" || fail "the disks' machine"
for i in "${ARRAY_MEMBERS[@]}"; do
	mkdir "$CLUSTER_DIR/exporter$i" && truncate -s "$MEMBER_SIZE" "$(exporter_disk "$i")" || fail "disk $i"
	block cluster "1. Disks" 1 | sed "s|sdb|sd$i|; s|/dev/disk/by-id/DISK|$(exporter_disk "$i")|; s|10809|10.77.1.$i:10809|" >"$CLUSTER_DIR/disk.sh"
	node_exec 4 sh -ec "ip addr add 10.77.1.$i/16 dev eth0; cd /tmp; . $CLUSTER_DIR/disk.sh" >"$CLUSTER_DIR/disk.out" 2>&1 || fail "step 1: $(cat "$CLUSTER_DIR/disk.out")"
done
step "ddraid is installed"

typed 1 cluster "3. corosync" 1
typed_on_all cluster "3. corosync" 2
within 20 "three votes" says 2 "Total votes: *3" cluster "3. corosync" 3
said 2 "Quorate: *Yes" || fail "quorum: $(cat "$CLUSTER_DIR/typed.2")"
step "corosync"
typed_on_all cluster "4. Fencing" 1
typed_on_all cluster "4. Fencing" 2
[ ! -s "$CLUSTER_DIR/typed.1" ] || fail "fence-exports --admit says $(cat "$CLUSTER_DIR/typed.1")"
# By knet, three nodes' heartbeats, five in a second, take a third of each emulated processor.
for n in 1 2 3; do
	node_exec $n sh -c "printf '%s\n' '[cluster]' 'heartbeat = 500ms' >>/etc/ddraid/ddraid.conf" || fail "node $n"
done
typed_on_all gfs2 "1. The DLM" 1
typed_on_all gfs2 "1. The DLM" 2
within 20 "all in the DLM's cluster" says 3 "^node 1 M" gfs2 "1. The DLM" 3
step "the DLM"
typed_on_all gfs2 "2. The array" 1
three_online() {
	type_in 1 gfs2 "2. The array" 2 && [ "$(grep " online" "$CLUSTER_DIR/typed.1" | grep -vc "without ddraidd")" = 3 ]
}
within 20 "three nodes are online" three_online
typed 1 gfs2 "2. The array" 3
said 1 "locks.*DLM" || fail "create: $(cat "$CLUSTER_DIR/typed.1")"
step "the array"
for n in 1 2 3; do
	node_exec $n tar -C / -m --keep-directory-symlink -xf "$LAB_CACHE/guide/driver.tar" || fail "the driver on node $n"
done
typed_on_all gfs2 "3. The driver" 2
said 3 "^/dev/ddraid/data (/dev/ddraid[0-9]*, by shim)$" || fail "attach says $(cat "$CLUSTER_DIR/typed.3")"
step "the driver"
typed 2 gfs2 "4. GFS2" 1 < <(yes)
typed_on_all gfs2 "4. GFS2" 2
for n in 1 2 3; do
	written $n first.$n || fail "node $n can't write"
done
step "GFS2"

refused() {
	node_exec 4 ddraid-export list | grep -q "^refused: 10.77.0.3"
}
node_exec 3 sync # what was just installed there
node_kill 3
began=${EPOCHREALTIME/[.,]/}
# Of the lost node: its slot, when, and the seconds until it was fenced.
within 20 "status tells of the fence" says 1 "^ *3 *[0-9] *20[0-9-]* [0-9:]* *[0-9.]* s" gfs2 "5. Try it" 1
said 1 " 0 to be fenced" || fail "$(cat "$CLUSTER_DIR/typed.1")"
within 60 "node 1 writes" written 1 second.1
measured "written again $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after the power of another was pulled"
refused || fail "the disks do not refuse node 3: $(node_exec 4 ddraid-export list)"
# The DLM has had it fenced, too: it is told by its list of lock spaces.
dlm_has_fenced() {
	[ -s "$CLUSTER_DIR/power.log" ] && says 1 "^name " gfs2 "5. Try it" 1 && ! said 1 "wait fencing"
}
within 20 "dlm_tool no longer waits for the fence" dlm_has_fenced
step "node 3 is switched on"
node_start 3 || fail "node 3 does not boot"
within 60 "node 3 mounts it by itself" mounted 3
node_exec 3 cat /srv/first.3 /srv/second.1 >/dev/null || fail "files are missing"
! refused || fail "node 3 is back, and refused"
step "node 2 is switched off in the usual way"
off=$SECONDS
node_exec 2 systemctl poweroff
within 40 "node 2 is off" cluster_gone node2.init
measured "its orderly end took $((SECONDS - off)) s"
written 1 third.1 || fail "node 1 can't write"
! node_exec 4 ddraid-export list | grep refused && [ "$(grep -c . "$CLUSTER_DIR/power.log")" = 1 ] ||
	fail "an orderly end was taken for a death: $(cat "$CLUSTER_DIR/power.log")"
kernel_is_fine 1
kernel_is_fine 3
step "the end"
typed 1 gfs2 "6. Stop" 1
typed 3 gfs2 "6. Stop" 1
typed 1 gfs2 "6. Stop" 2
members_check --strict --compare-left-out || fail "the members: $(raw 'r["problems"]')"
cluster_down || exit 1
exit 0
