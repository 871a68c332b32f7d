# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The lab: the clusters of cluster.sh with virtual machines for nodes, with the distribution's kernel and its DLM.
# Sourced by cluster.sh when CLUSTER_FLAVOUR=lab; replaces what concerns a node, so that scripts run on both.
#
# Exporters, the switch and the fence command are the host's, as there. A node is a qemu in the switch's namespace:
# eth0 is a tap into br0 (nN, 10.77.0.N), eth1 one into br1 (mN, 10.78.0.N), the management network, by which
# node_exec gets in (lab-run), people do (dropbear) and by which a node asks the host to fence (lab-ask, lab-host).
# Its root is the host's, read only (9p), with a layer of its own in memory; CLUSTER_DIR is shared and writable.
#
# node_kill is a power cut, as there. node_freeze stops all processes but pid 1; the kernel, and with it the DLM, goes on.
#
# What uses an export (node_use) runs on the host, by a relay in the node: an emulated processor has
# better things to do than to check data. It freezes and ends with its node.

LAB_CACHE=${LAB_CACHE:-/var/cache/ddraid-lab}
LAB_MEMORY=${LAB_MEMORY:-768}
LAB_PORT=4001 # lab-run's, of each machine
CLUSTER_SLOWER=${CLUSTER_SLOWER:-3}
CLUSTER_POLL_TIMES=${CLUSTER_POLL_TIMES:-3} # a command in a node takes a tenth of a second of it
CLUSTER_POLL_MS=${CLUSTER_POLL_MS:-200}     # and one here, a few processes of the host
HEARTBEAT=${HEARTBEAT:-$((CLUSTER_TOKEN_MS / 8))ms} # and these, three nodes' and five in a second, a tenth of each; fewer are too few
LOAD_SLOWER=${LOAD_SLOWER:-60} # with 30, an array of three nodes takes a tenth of a processor more
ROUND_RATE=${ROUND_RATE:-$((133 * LOAD_SLOWER))}
export LOAD_READS=${LOAD_READS:-3}
export LOAD_BURST=${LOAD_BURST:-16} # so that there are several in flight now and then, nevertheless
# A folder of lab-image's that is there, instead of the one in LAB_CACHE, which is made.
LAB_GIVEN_IMAGE=${LAB_IMAGE:-}
LAB_IMAGE=${LAB_IMAGE:-$LAB_CACHE/image}
# LAB_KEPT: a folder for machines that stay up from one scenario to the next (run.sh).
# LAB_CPUS (1), LAB_APPEND (words for the kernel), LAB_BARE=yes: a machine without corosync and DLM. LAB_DLM=no: without
# dlm_controld. LAB_INIT=systemd: a bare machine that boots as Debian does, and has a disk: what is written to its root is
# there after a power cut, as far as it was synced.

lab_requires() {
	local p
	for p in qemu-system-x86_64 busybox socat ssh dropbear dropbearkey dlm_controld dlm_tool python3; do
		command -v "$p" >/dev/null || { cluster_say "skipped: $p is missing (tools/deps --lab)"; return 1; }
	done
	[ -x "${top_builddir:-$CLUSTER_SRC}/tests/lib/lab-run" ] || { cluster_say "skipped: tests/lib/lab-run is not built"; return 1; }
}

lab_image() {
	[ -z "${LAB_PREPARED:-}" ] || return 0
	if [ -n "$LAB_GIVEN_IMAGE" ]; then
		[ -e "$LAB_IMAGE/made" ] || { cluster_say "LAB_IMAGE=$LAB_IMAGE: no image of tests/lib/lab-image is there"; return 1; }
		return 0
	fi
	(flock 8 && bash "$CLUSTER_SRC/tests/lib/lab-image" "$LAB_IMAGE") 8>"$LAB_CACHE.lock" >&2
}

# What modules for the lab's kernel are built against.
lab_kdir() {
	local dir
	dir=/usr/src/linux-headers-$(cat "$LAB_IMAGE/release")
	[ ! -e "$LAB_IMAGE/build" ] || dir=$LAB_IMAGE/build
	[ -e "$dir/Makefile" ] || { cluster_say "$dir is missing: the headers of the lab's kernel (tools/deps --lab)"; return 1; }
	echo "$dir"
}

# Builds the driver for the lab's kernel: top_builddir/kmod/ddraid.ko.
lab_driver() {
	local kdir
	[ "${LAB_PREPARED:-}" != driver ] || return 0
	lab_image && kdir=$(lab_kdir) || return 1
	(flock 8 && make -C "$top_builddir" -s kmod "KDIR=$kdir" >/dev/null) 8>"$top_builddir/kmod.lock" 9>&-
}

# lab_prepare FILE: once for a whole run what each of its scenarios would look after; lab_often's list to FILE, since ldd
# takes as long as half a boot. What fails here they try again, and say why.
lab_prepare() {
	if lab_image >/dev/null 2>&1; then
		export LAB_PREPARED=image
		if lab_driver >/dev/null 2>&1; then LAB_PREPARED=driver; fi
		lab_often >"$1" && export LAB_OFTEN=$1
	fi
}

# lab_often: files that are read at almost each command, and all links on the way to them. A machine has them in its memory from its
# boot on (lab-init.sh, lab-systemd.sh): the host's are asked for by 9p, some twenty requests for an exec, which then takes more
# than twice the time. Of the build only where nobody builds meanwhile (run.sh), since it stays as it was.
lab_often() {
	local programs=(bash dash cat chmod cp dd env grep head insmod ip kill ls mkdir mount mountpoint nice readlink rm rmmod sed
		setsid sleep sort sync tail tar test timeout touch true umount uname wc dmesg modprobe mawk cmp md5sum
		socat corosync corosync-quorumtool dlm_controld dlm_tool)
	[ -z "${LAB_PREPARED:-}" ] || programs+=("$top_builddir"/{ddraidd,ddraidctl,tests/lib/lab-run})
	[ "${LAB_INIT:-}" != systemd ] || programs+=(systemctl udevadm journalctl hostname /lib/systemd/systemd{,-journald,-udevd,-modules-load})
	mapfile -t programs < <(type -P "${programs[@]}")
	mapfile -t programs < <(
		ldd "${programs[@]}" 2>/dev/null | sed -n 's|^\t\([^/]* => \)\?\(/[^ ]*\) .*|\2|p'
		printf '%s\n' /etc/ld.so.cache /etc/nsswitch.conf /etc/passwd "${programs[@]}"
	)
	{
		printf '%s\n' /bin /sbin /lib /lib64 "${programs[@]}"
		readlink -f "${programs[@]}"
	} | sort -u | xargs -d '\n' stat -L -c '%s %n' | awk '$1 < 4000000 { print $2 }'
}

# What is there before the first node: the management network, keys, the service for the nodes' fence requests.
lab_up() {
	local n nodes=()
	lab_image || return 1
	# Knet's threads take as much as the rest of corosync; `operating` and the clusters in namespaces have it. Its thread that writes
	# the log, by 9p here, has the lock for which its other one spins: in real time, on the only processor, until that is throttled,
	# a second and more (sched_rr).
	[ "$(cat "$LAB_IMAGE/accel")" != tcg ] || sed -i 's/transport: knet/transport: udpu/
		$a\system {\n\tsched_rr: no\n}' "$CLUSTER_DIR"/node*/etc-corosync/corosync.conf
	ip -n "$CLUSTER_NAME-br" link add br1 type bridge forward_delay 0 stp_state 0 mcast_snooping 0 &&
		ip -n "$CLUSTER_NAME-br" addr add 10.78.0.254/16 dev br1 &&
		ip -n "$CLUSTER_NAME-br" link set lo up &&
		ip -n "$CLUSTER_NAME-br" link set br1 up || return 1
	dropbearkey -t ed25519 -f "$CLUSTER_DIR/host_key" >/dev/null 2>&1 &&
		ssh-keygen -q -t ed25519 -N '' -f "$CLUSTER_DIR/key" || return 1
	mv "$CLUSTER_DIR/fence" "$CLUSTER_DIR/fence-here"
	cat >"$CLUSTER_DIR/fence" <<-FENCE
		#!/bin/bash
		[ -e /dev/vport0p1 ] || exec $CLUSTER_DIR/fence-here "\$@"
		exec $CLUSTER_SRC/tests/lib/lab-ask fence "\$@"
	FENCE
	chmod +x "$CLUSTER_DIR/fence"
	for ((n = 1; n <= $1; n++)); do
		nodes+=("node$n=$(node_address "$n")")
	done
	bash "$CLUSTER_SRC/cluster-conf/generate" --dlm "$CLUSTER_SRC/tests/lib/fence_lab" --post-join-delay 5 "${nodes[@]}" \
		>"$CLUSTER_DIR/dlm.conf" || return 1
	if [ -n "${LAB_OFTEN:-}" ] && [ "${LAB_INIT:-}" != systemd ]; then
		cp "$LAB_OFTEN" "$CLUSTER_DIR/often"
	else
		lab_often >"$CLUSTER_DIR/often"
	fi || return 1
	# Not in a pid namespace of its own: it ends machines.
	CLUSTER_MARK=$CLUSTER_NAME setsid ip netns exec "$CLUSTER_NAME-br" "$CLUSTER_SRC/tests/lib/lab-host" serve "$CLUSTER_DIR" \
		</dev/null >>"$CLUSTER_DIR/host.log" 2>&1 9>&- &
	disown $!
	cluster_record host.outer $!
}

lab_tap() { # PORT BRIDGE
	local at=(ip -n "$CLUSTER_NAME-br")
	"${at[@]}" link show dev "$1" >/dev/null 2>&1 || "${at[@]}" tuntap add dev "$1" mode tap || return 1
	"${at[@]}" link set "$1" master "$2" up
}

node_power() {
	local n=$1 dir=$CLUSTER_DIR/node$1 accel cpu=max cpus=${LAB_CPUS:-1} words='' disk=() devices=()
	rm -f "$dir/ready" "$dir/word.in" "$dir/word.out"
	mkfifo "$dir/word.in" "$dir/word.out" || return 1
	accel=$(cat "$LAB_IMAGE/accel")
	# Emulated code is kept by its address, so that with random ones each new process would be translated anew: an exec takes 40 ms
	# instead of 10. What newer processors have, as AVX and SMAP, is emulated at a loss.
	if [ "$accel" = tcg ]; then
		accel=tcg,thread=multi cpu=Westmere,+rdrand words="norandmaps init_on_alloc=0"
		# What a kernel does beside its work at each call, switch and page, and what no test is about: a quarter of an exec.
		words+=" lsm=capability audit=0 psi=0 cgroup_disable=memory randomize_kstack_offset=off noautogroup"
		# Each timer that is set anew is a call of qemu's and a wake-up of its other thread; by the tick, fewer are: a tenth under load.
		words+=" highres=off"
		# Where the host lets a machine wait in its first second, its timer seems not to work, and its kernel panics.
		words+=" no_timer_check tsc=reliable"
		# ACPI's programs that find each device's interrupt, which no device here has (MSI), and tests of ciphers: a quarter of a boot.
		words+=" acpi=noirq cryptomgr.notests"
		# String instructions (rep movs) are emulated one word at a time: the kernel's loops, for processors where they are slow, are
		# faster, some hundredths of all. And without what it does now and then of itself.
		words+=" clearcpuid=rep_good sysctl.vm.compaction_proactiveness=0 sysctl.vm.stat_interval=600"
		# And a look at all of its page tables before it starts init, with those of each module: where no driver is tried for itself.
		[ "${LAB_BARE:-no}" = yes ] || words+=" rodata=off"
		# What is given to a network card goes out at once, by the thread that emulates the processor, which then need not wake another:
		# a tenth of all, as process accounting has it. With disks and 9p too it was no more.
		devices=(-global virtio-net-pci.ioeventfd=off)
		# Where there can be one processor only, qemu makes locked instructions plain ones. But Linux takes them for barriers between
		# itself and qemu's own threads, too: without, each can miss that the other waits, and a network card is deaf from then on.
		[ "$cpus" != 1 ] || cpus=1,maxcpus=2 words+=" nr_cpus=1"
	fi
	# And found by a table of some megabytes, which is slow to search in pages of 4 KiB (hugetlb): a tenth of all. Where there are
	# more machines than processors, they would interrupt each other some thousand times a second (chrt): a quarter of all.
	if [ "${LAB_INIT:-}" = systemd ]; then
		words+=" lab_init=systemd"
		disk=(-drive "file=$dir/disk.img,format=raw,if=virtio,cache=unsafe")
		[ -e "$dir/disk.img" ] || { truncate -s 1G "$dir/disk.img" && mkfs.ext4 -q "$dir/disk.img"; } || return 1
	fi
	(
		flock 9
		unfence_locked "$n"
		lab_tap "n$n" br0 && lab_tap "m$n" br1 && date +%s%N >"$dir/boot_ns" &&
			cluster_spawn "node$n" "$dir/log/console.log" "$CLUSTER_NAME-br" \
				env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 chrt --batch 0 qemu-system-x86_64 -name "node$n" -nodefaults -no-reboot -display none \
				-accel "$accel" -cpu $cpu -smp "$cpus" -m "$LAB_MEMORY" "${devices[@]}" \
				-kernel "$LAB_IMAGE/vmlinux" -initrd "$LAB_IMAGE/initrd" \
				-append "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off lab_node=$n lab_dir=$CLUSTER_DIR lab_src=$CLUSTER_SRC lab_image=$LAB_IMAGE lab_run=${top_builddir:-$CLUSTER_SRC}/tests/lib/lab-run lab_port=$LAB_PORT $words ${LAB_APPEND:-}" \
				-serial stdio -monitor none -device virtio-serial-pci,max_ports=2 \
				-chardev "pipe,id=word,path=$dir/word" -device virtserialport,chardev=word \
				-netdev "tap,id=a,ifname=n$n,script=no,downscript=no" \
				-device "virtio-net-pci,netdev=a,romfile=,mac=$(cluster_mac "10.77.0.$n")" \
				-netdev "tap,id=b,ifname=m$n,script=no,downscript=no" \
				-device "virtio-net-pci,netdev=b,romfile=,mac=$(cluster_mac "10.78.0.$n")" \
				-virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
				-virtfs "local,path=$CLUSTER_DIR,mount_tag=run,security_model=none,multidevs=remap" \
				"${disk[@]}" -object rng-random,id=rng,filename=/dev/urandom -device virtio-rng-pci,rng=rng
	) 9>"$CLUSTER_DIR/fence.lock"
}

# lab_booted N: there is no more to wait for; it is ready, or has ended.
lab_booted() {
	[ -e "$CLUSTER_DIR/node$1/ready" ] || ! cluster_alive "node$1.init"
}

node_ready() {
	local n=$1 log=$CLUSTER_DIR/node$1/log/corosync.log
	wait_until 60 "start of node $n" lab_booted "$n" && [ -e "$CLUSTER_DIR/node$n/ready" ] || {
		tail -n 20 "$CLUSTER_DIR/node$n/log/console.log" >&2
		return 1
	}
	[ "${LAB_BARE:-no}" = no ] || return 0
	[ ! -e "$log" ] || { cat "$log" >>"$log.1" && rm "$log"; } # lab_corosync_serves is about this start
	node_spawn "$n" corosync corosync -f
}

# Not before corosync of all of them runs: dlm_controld fences who does not come soon after the others.
nodes_complete() {
	local n
	[ "${LAB_BARE:-no}${LAB_DLM:-yes}" = noyes ] || return 0
	for n; do
		wait_until 20 "corosync of node $n" lab_corosync_serves "$n" && lab_dlm_start "$n" || return 1
	done
}

# From its log: each time that it is asked itself, it maps and locks megabytes for that, a tenth of a second of an emulated processor.
lab_corosync_serves() {
	grep -qs 'ready to provide service' "$CLUSTER_DIR/node$1/log/corosync.log"
}

# Only a member says so in the end, but none needs to be asked as long as its log says that it isn't one.
node_members_are() {
	local said
	said=$(sed -n 's/.*\[QUORUM\] Members\[[0-9]*\]: //p' "$CLUSTER_DIR/node$1/log/corosync.log" 2>/dev/null | tail -n 1)
	[ -z "$said" ] || [ "$said" = "${2% *}" ] && [ "$(node_members "$1")" = "$2" ]
}

lab_dlm_start() {
	node_spawn "$1" dlm_controld dlm_controld --foreground
}

# lab_dlm_ready N: the DLM of machine N opens lock spaces. dlm_controld answers before it has told the kernel the nodes.
lab_dlm_ready() {
	node_exec "$1" sh -c "dlm_tool status 2>&1 | grep -q '^node $1 M'"
}

# ---- machines that stay ----

# Three machines as most scenarios want them stay up for the next one of a run: they take most of a short one's time to boot.

# What is in their folder.
lab_things() {
	(cd "$CLUSTER_DIR" && find . -mindepth 1 -maxdepth 1 && find node[0-9]* -mindepth 1 -maxdepth 1 ! -name '*.pid')
}

lab_may_stay() { # COUNT
	[ -n "${LAB_KEPT:-}" ] && [ "$1${LAB_CPUS:-}${LAB_APPEND:-}${LAB_BARE:-}" = 3 ]
}

lab_is_new() {
	echo "$CLUSTER_DIR" >"$LAB_KEPT/dir"
	lab_things >"$LAB_KEPT/things"
}

# Instead of their end; 1: they have to end after all. One that is off or fenced boots again when they are taken; of two, the
# third would have no quorum to go on with.
lab_keep() {
	local n f off=0
	[ -n "${LAB_KEPT:-}" ] && [ "$(cat "$LAB_KEPT/dir" 2>/dev/null)" = "$CLUSTER_DIR" ] || return 1
	lab_users KILL ''
	for f in "$CLUSTER_DIR"/exporter[0-9]*; do
		[ ! -d "$f" ] || exporter_remove "${f##*/exporter}" || return 1
	done
	for n in 1 2 3; do
		if [ -e "$CLUSTER_DIR/node$n/fenced" ] || ! node_alive "$n" corosync; then
			off=$((off + 1))
			[ $off = 1 ] && node_kill "$n" || return 1
		else
			node_heal "$n" && node_exec "$n" "$CLUSTER_SRC/tests/lib/lab-reset" || return 1
		fi
	done
	lab_things | grep -vxF -f "$LAB_KEPT/things" | (cd "$CLUSTER_DIR" && xargs -r -d '\n' rm -rf)
	for n in 1 2 3; do
		find "$CLUSTER_DIR/node$n"/{etc,var-lib}-ddraid -mindepth 1 -delete
		find "$CLUSTER_DIR/node$n/log" -type f -exec truncate -s 0 {} +
	done
	: >"$CLUSTER_DIR/fence.log"
}

# Those that stayed; 1: there are none.
lab_take() {
	local n dir
	dir=$(cat "$LAB_KEPT/dir" 2>/dev/null) && [ -d "$dir/pids" ] && cluster_attach "$dir" || return 1
	cluster_trap
	for n in 1 2 3; do
		if ! cluster_alive "node$n.init"; then
			node_start $n || exit 1
		elif [ "${LAB_DLM:-yes}" = yes ]; then
			node_alive $n dlm_controld || lab_dlm_start $n
		elif node_alive $n dlm_controld; then
			node_signal $n dlm_controld TERM
			wait_until 10 "the end of dlm_controld on node $n" eval "! node_alive $n dlm_controld" || exit 1
		fi
	done
	cluster_wait_quorum 30 1 2 3 || exit 1
}

# What is in the machines' memory only goes to their log folders.
lab_logs() {
	local n client
	for n in "$CLUSTER_DIR"/node[1-9]; do
		n=${n##*/node}
		lab_client "$n"
		! cluster_alive "node$n.init" || timeout -k 10 10 "${client[@]}" sh -c "cd '$CLUSTER_DIR/node$n/log' && "'dmesg >dmesg; for w in status ls dump; do
			dlm_tool $w >dlm_tool.$w 2>&1; done; ps -ef >ps' </dev/null >/dev/null 2>&1 9>&-
	done
}

lab_down() {
	lab_users KILL ''
}

node_kill() {
	local n=$1
	cluster_port_set "n$n" down 2>/dev/null
	cluster_end "node$n" || return 1
	lab_users KILL "$n"
}

# lab_client N: sets client, a command that runs its arguments in machine N. With LAB_USER as in node_exec it ends with the machine.
lab_client() {
	client=("${top_builddir:-$CLUSTER_SRC}/tests/lib/lab-run" exec "$CLUSTER_NAME-br" "10.78.0.$1" "$LAB_PORT" "CLUSTER_MARK=$CLUSTER_NAME" "CLUSTER_DIR=$CLUSTER_DIR" ${LAB_ALARM:+"LAB_ALARM=$LAB_ALARM"} --)
}

node_exec() {
	local client n=$1
	cluster_alive "node$n.init" || { cluster_say "node $n is off"; return 1; }
	lab_client "$n"
	shift
	if [ -p /dev/stdin ] || [ -f /dev/stdin ]; then
		LAB_USER=$CLUSTER_NAME.$n "${client[@]}" "$@" 9>&-
	else
		LAB_USER=$CLUSTER_NAME.$n "${client[@]}" "$@" </dev/null 9>&-
	fi
}

node_exec_within() {
	LAB_ALARM=$1 node_exec "${@:2}"
}

node_use() {
	local n=$1
	shift
	CLUSTER_MARK=$CLUSTER_NAME LAB_USER=$CLUSTER_NAME.$n ip netns exec "$CLUSTER_NAME-br" "$@" 9>&-
}
node_uri() {
	echo "nbd://10.78.0.$1:10809/$2"
}

# lab_users SIGNAL NODE|''
lab_users() {
	"$CLUSTER_SRC/tests/lib/lab-host" signal "$1" "$CLUSTER_NAME.$2"
}

node_freeze() {
	echo freeze >"$CLUSTER_DIR/node$1/word.in" && lab_users STOP "$1"
}
node_thaw() {
	echo thaw >"$CLUSTER_DIR/node$1/word.in" && lab_users CONT "$1"
}
