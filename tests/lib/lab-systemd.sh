#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Pid 1 of a machine of the lab with LAB_INIT=systemd, until it is systemd: at the first boot it makes the host's root, of which
# the machine has a copy of its own, one of a fresh Debian: without the host's own units, mounts and name. Of the packages' own
# corosync is enabled, as tools/deps leaves it, and remote-fs.target.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck disable=SC2154 # from the kernel's command line
dir=$lab_dir/node$lab_node

first_boot() {
	local unit often
	mapfile -t often <"$lab_dir/often" # as in lab-init.sh; to its disk
	touch -cah "${often[@]}"
	rm -rf /etc/systemd/system /etc/systemd/network /etc/fstab /etc/ddraid /var/lib/ddraid /var/lib/corosync/* /root/.ssh
	mkdir -p /etc/systemd/system/multi-user.target.wants /root/.ssh
	ln -s /lib/systemd/system/corosync.service /lib/systemd/system/remote-fs.target /etc/systemd/system/multi-user.target.wants/
	# Nothing that a machine with one slow processor and no console could do without.
	for unit in networking systemd-timesyncd systemd-tmpfiles-clean.timer systemd-update-utmp systemd-random-seed getty.target \
		systemd-hwdb-update systemd-journal-catalog-update systemd-update-done ldconfig systemd-pstore \
		systemd-logind dbus dbus.socket systemd-binfmt proc-sys-fs-binfmt_misc.automount \
		modprobe@{drm,dm_mod,fuse,loop,efi_pstore} dev-hugepages.mount dev-mqueue.mount sys-kernel-{debug,tracing}.mount \
		sys-fs-fuse-connections.mount systemd-{sysusers,user-sessions,sysctl,tmpfiles-setup-dev,update-utmp-runlevel} \
		kmod-static-nodes systemd-initctl.socket systemd-ask-password-{console,wall}.path; do
		case $unit in *.*) ;; *) unit+=.service ;; esac
		ln -s /dev/null "/etc/systemd/system/$unit"
	done
	# What was there before udev has its name from the kernel, but for the DLM's device: not a hundred events at each boot.
	mkdir -p /etc/systemd/system/systemd-udev-trigger.service.d
	printf '[Service]\nExecStart=\nExecStart=udevadm trigger --action=add --subsystem-match=misc\n' \
		>/etc/systemd/system/systemd-udev-trigger.service.d/lab.conf
	mkdir -p /etc/systemd/system-generators # all of them run at each reload
	for unit in /lib/systemd/system-generators/*; do
		case $unit in *-fstab-generator) ;; *) ln -s /dev/null "/etc/systemd/system-generators/${unit##*/}" ;; esac
	done
	ln -s /lib/systemd/system/multi-user.target /etc/systemd/system/default.target
	ln -s /dev/null /etc/tmpfiles.d/tmp.conf # would empty /tmp
	cat >/etc/systemd/system/lab.service <<-UNIT
		[Unit]
		Description=The way in for the lab's host
		DefaultDependencies=no
		[Service]
		Environment=HOME=/root USER=root LOGNAME=root SHELL=/bin/bash
		Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
		ExecStartPre=/usr/sbin/dropbear -r $lab_dir/host_key -s -p 10.78.0.$lab_node:22 -P /run/lab-dropbear.pid
		ExecStart=$lab_run serve 10.78.0.$lab_node $lab_port
		ExecStartPost=/usr/bin/touch $dir/ready
		KillMode=process
		[Install]
		WantedBy=multi-user.target
	UNIT
	ln -s ../lab.service /etc/systemd/system/multi-user.target.wants/
	: >/etc/fstab
	ln -s "/usr/src/linux-headers-$(uname -r)" "/lib/modules/$(uname -r)/build"
	rm -f /.dockerenv
	tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id # not a first boot, at which all there is would be enabled
	echo "${lab_names:-node$lab_node}" >/etc/hostname
	for name in .bashrc .bash_profile .profile; do
		: >"/root/$name"
	done
	cat "$lab_dir/key.pub" >/root/.ssh/authorized_keys
	chmod go= /root /root/.ssh /root/.ssh/authorized_keys
	sync
	touch /etc/lab-booted
}

[ -e /etc/lab-booted ] || first_boot
exec /lib/systemd/systemd --log-target=journal --show-status=0
