# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Clusters in network namespaces, with real corosync, for tests and the quickstart. To be sourced:
#
#	. tests/lib/cluster.sh
#	cluster_requires || exit 77
#	cluster_up 3			# three nodes, quorate; sets CLUSTER_DIR
#	exporter_up 1 64M		# a member: exporter_uri 1 prints its URI
#	node_exec 2 command...		# in node 2
#	node_kill 3; node_start 3; cluster_wait_quorum 3 1 2 3
#	cluster_down			# also by itself at exit and on an interrupt
#
# What there is. One namespace holds a bridge, the switch. Each node has a network, mount, pid and UTS
# namespace (tests/lib/node-init.sh is its pid 1) and a veth into the bridge: eth0 inside,
# nN at the bridge, address 10.77.0.N. Each exporter has a network and a pid namespace, port xI,
# address 10.77.1.I; its pid 1 is tests/lib/exporter.c. Nothing is added to the machine's own
# network. All names carry CLUSTER_NAME, which is unique per run, so clusters don't meet.
#
# What is real. node_kill is a power cut: first the port goes down, so that no FIN or RST of dying
# processes gets out and the exporters still have the node's connections; then pid 1 gets SIGKILL
# and with it all processes; then the network namespace goes, so that nothing the kernel had
# still buffered is sent when the node starts again. What a node keeps over that is in
# CLUSTER_DIR/nodeN: /etc/corosync, /etc/ddraid, /var/lib/corosync, /var/lib/ddraid and
# /var/log/corosync; /run and /dev/shm are empty after each start. exporter_kill is SIGKILL to all of the
# exporter's processes; its file keeps what was written. exporter_power_cut loses what is not flushed, too, of an exporter that
# was made while EXPORTER_VOLATILE was yes.
#
# Fencing. `fence N` runs CLUSTER_DIR/fence, which is cluster-conf/fence-exporter-ns with this
# cluster's state, the same command that ddraidd is given as fence_command. Its reasoning is at the head of
# that script and of exporter.c. fence_proof holds the exporters' request logs against fence.log:
# no request of a fenced node ran after the fence had answered.
#
# Everything that is started is recorded by pid and start time in CLUSTER_DIR/pids, and
# ended by these and nothing else. cluster_down ends with a self-check (cluster_leftovers).
# State is in CLUSTER_DIR only: `cluster_attach DIR` in another shell takes over a
# cluster that was left running (CLUSTER_KEEP=yes).
#
# With CLUSTER_FLAVOUR=lab the nodes are virtual machines with a kernel of their own (tests/lib/lab.sh, at its end).
#
# Settings, from the environment: CLUSTER_TOKEN_MS (1000), CLUSTER_TMP (/tmp; not below /run or /dev),
# CLUSTER_KEEP=yes (no clean-up at exit), CLUSTER_KEEP_LOGS=DIR (copies logs there at the end),
# DDRAID_EXPORTER (the built tests/lib/exporter; else it is compiled).

CLUSTER_SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CLUSTER_DIR=
CLUSTER_NAME=
CLUSTER_FLAVOUR=${CLUSTER_FLAVOUR:-netns}
CLUSTER_TOKEN_MS=${CLUSTER_TOKEN_MS:-1000}

cluster_say() {
	printf '%s\n' "$*" >&2
}

cluster_now() {
	TZ=UTC date '+%F %T.%6N'
}

# 0, or 1 with a sentence on what is missing.
cluster_requires() {
	local p
	[ "$(id -u)" = 0 ] || { cluster_say "skipped: needs root"; return 1; }
	for p in ip unshare nsenter setsid flock pgrep hostname corosync corosync-quorumtool nbdkit "$@"; do
		command -v "$p" >/dev/null || { cluster_say "skipped: $p is missing (tools/deps)"; return 1; }
	done
	unshare --net --pid --mount --uts --fork true 2>/dev/null ||
		{ cluster_say "skipped: no namespaces here"; return 1; }
	[ "$CLUSTER_FLAVOUR" = netns ] || lab_requires
}

# patience SECONDS: what that is for these nodes; those of the lab are slower.
patience() {
	echo $(($1 * ${CLUSTER_SLOWER:-1}))
}

# wait_until SECONDS WHAT COMMAND...: 0 as soon as COMMAND is, 1 and a sentence after SECONDS (patience), and as many
# again: hosts have slow hours, and what hangs still hangs then. It rests CLUSTER_POLL_TIMES (1) as long as COMMAND took, and after
# two seconds three times as long, so that a slow host has time for what is waited for; CLUSTER_POLL_MS (50) at least, or
# three times that.
wait_until() {
	local limit what=$2 start=${EPOCHREALTIME/[.,]/} asked rest least now
	limit=$((2 * $1 * ${CLUSTER_SLOWER:-1})) # patience, without a process for it
	shift 2
	while asked=${EPOCHREALTIME/[.,]/}; ! "$@"; do
		now=${EPOCHREALTIME/[.,]/}
		if ((now - start > limit * 1000000)); then
			cluster_say "not within $limit s: $what"
			return 1
		fi
		rest=$(((now - asked) / 1000)) least=${CLUSTER_POLL_MS:-50}
		if ((now - start < 2000000)); then
			rest=$((rest * ${CLUSTER_POLL_TIMES:-1}))
		else
			rest=$((3 * rest)) least=$((3 * least))
		fi
		((rest > least)) || rest=$least
		printf -v rest '%d.%03d' $((rest / 1000)) $((rest % 1000))
		cluster_rest "$rest"
	done
}

# cluster_rest SECONDS: sleep, without a program's start: nobody writes there. In a process of its own: a shell that
# a trap ends in the middle of read -t takes its time limit along, and crashes in what it cleans up (bash 5.2).
exec {CLUSTER_REST}<> <(:)
cluster_rest() {
	(read -rt "$1" -u "$CLUSTER_REST") || :
}

# ---- processes, by id ----

# cluster_start_time PID: sets started; 1 if there is no such process. Without a process of its own, as what is asked
# for with each command in a node is.
cluster_start_time() {
	local stat=
	started=
	{ IFS= read -rd '' stat <"/proc/$1/stat"; } 2>/dev/null
	[ -n "$stat" ] || return 1
	stat=${stat##*) }
	# shellcheck disable=SC2086 # words
	set -- $stat
	[ "$1" != Z ] && started=${20}
}

# cluster_record NAME PID
cluster_record() {
	local started
	cluster_start_time "$2"
	echo "$2 $started" >"$CLUSTER_DIR/pids/$1"
}

# cluster_alive NAME: the recorded process is alive, and no other that got its id.
cluster_alive() {
	local pid start started
	{ read -r pid start <"$CLUSTER_DIR/pids/$1"; } 2>/dev/null || return 1
	cluster_start_time "$pid" && [ "$started" = "$start" ]
}

cluster_gone() {
	! cluster_alive "$1"
}

cluster_pid() {
	cut -d' ' -f1 "$CLUSTER_DIR/pids/$1"
}

# Ends pid namespace NAME: SIGKILL to its pid 1, and waits until nothing of it is left.
cluster_end() {
	[ -e "$CLUSTER_DIR/pids/$1.init" ] || return 0
	! cluster_alive "$1.init" || kill -KILL "$(cluster_pid "$1.init")" 2>/dev/null
	wait_until 20 "the end of all processes of $1" cluster_gone "$1.init" || return 1
	# One that was interrupted while it was recorded is not known; --kill-child sees to it.
	! cluster_alive "$1.outer" || kill -KILL "$(cluster_pid "$1.outer")" 2>/dev/null
	wait_until 20 "the end of $1" cluster_gone "$1.outer" || return 1
	rm -f "$CLUSTER_DIR/pids/$1.init" "$CLUSTER_DIR/pids/$1.outer"
}

# cluster_spawn NAME LOG NETNS COMMAND...: COMMAND as pid 1 of a pid namespace in NETNS.
cluster_spawn() {
	local name=$1 log=$2 ns=$3 outer
	shift 3
	TZ=UTC CLUSTER_MARK=$CLUSTER_NAME setsid ip netns exec "$ns" unshare --mount --uts --pid --mount-proc --fork \
		--kill-child=SIGKILL "$@" </dev/null >>"$log" 2>&1 9>&- &
	outer=$!
	disown "$outer"
	cluster_record "$name.outer" "$outer"
	wait_until 10 "a process for $name" cluster_has_child "$outer" || {
		tail -n 5 "$log" >&2
		return 1
	}
	cluster_record "$name.init" "$(pgrep -P "$outer")"
}

cluster_has_child() {
	pgrep -P "$1" >/dev/null
}

# ---- the network ----

cluster_mac() { # A.B.C.D
	local bytes
	IFS=. read -ra bytes <<<"$1"
	printf '02:00:%02x:%02x:%02x:%02x' "${bytes[@]}"
}

# cluster_port NETNS PORT ADDRESS: NETNS gets an eth0 that is plugged into the bridge. The
# hardware address follows from the IP address, so that a restarted node is found at once.
cluster_port() {
	local ns=$1 port=$2 address=$3
	ip -n "$CLUSTER_NAME-br" link add "$port" type veth peer name eth0 address "$(cluster_mac "$address")" netns "$ns" &&
		ip -n "$CLUSTER_NAME-br" link set "$port" master br0 up &&
		ip -n "$ns" link set lo up &&
		ip -n "$ns" addr add "$address/16" dev eth0 &&
		ip -n "$ns" link set eth0 up
}

cluster_port_set() {
	ip -n "$CLUSTER_NAME-br" link set "$1" "$2"
}

# ---- the cluster ----

# cluster_up N: N nodes and quorum among them.
cluster_up() {
	local n count=$1 nodes=()
	if [ "$CLUSTER_FLAVOUR" = lab ] && lab_may_stay "$count"; then
		! lab_take || return 0
		local CLUSTER_TMP=$LAB_KEPT
	fi
	CLUSTER_DIR=$(mktemp -d "${CLUSTER_TMP:-/tmp}/ddraid-XXXXXX") || return 1
	case $(readlink -f "$CLUSTER_DIR") in
	/run/* | /dev/*)
		cluster_say "CLUSTER_TMP=$CLUSTER_TMP: nodes have a /run and /dev/shm of their own"
		return 1
		;;
	esac
	CLUSTER_NAME=ddr-${CLUSTER_DIR##*-}
	chmod 755 "$CLUSTER_DIR"
	mkdir "$CLUSTER_DIR/pids"
	: >"$CLUSTER_DIR/fence.log"
	echo "$CLUSTER_NAME" >"$CLUSTER_DIR/name"
	[ "${CLUSTER_KEEP:-no}" = yes ] || cluster_trap

	cluster_exporter_program && ip netns add "$CLUSTER_NAME-br" &&
		ip -n "$CLUSTER_NAME-br" link add br0 type bridge forward_delay 0 stp_state 0 mcast_snooping 0 &&
		ip -n "$CLUSTER_NAME-br" link set br0 up || return 1
	# Nodes have no /run/netns; the fence command finds the switch here.
	touch "$CLUSTER_DIR/bridge.net"
	mount --bind "/run/netns/$CLUSTER_NAME-br" "$CLUSTER_DIR/bridge.net" || return 1
	printf '#!/bin/sh\nDDRAID_CLUSTER_DIR=%s exec %s "$@"\n' "$CLUSTER_DIR" \
		"$CLUSTER_SRC/cluster-conf/fence-exporter-ns" >"$CLUSTER_DIR/fence"
	chmod +x "$CLUSTER_DIR/fence"

	for ((n = 1; n <= count; n++)); do
		nodes+=("node$n=10.77.0.$n")
	done
	bash "$CLUSTER_SRC/cluster-conf/generate" --cluster "$CLUSTER_NAME" --no-crypto --no-syslog \
		--token "$CLUSTER_TOKEN_MS" --token-coefficient 0 "${nodes[@]}" \
		>"$CLUSTER_DIR/corosync.conf" || return 1
	# Corosync lets the token go round 30 times after each message before it holds it: a tenth of a processor for each node, in
	# several clusters at once; a fifth of one that is emulated, idle.
	sed -i '/^\ttoken:/a\	seqno_unchanged_const: 1' "$CLUSTER_DIR/corosync.conf" || return 1
	for ((n = 1; n <= count; n++)); do
		mkdir "$CLUSTER_DIR/node$n" "$CLUSTER_DIR/node$n/etc-corosync" "$CLUSTER_DIR/node$n/log"
		cp "$CLUSTER_DIR/corosync.conf" "$CLUSTER_DIR/node$n/etc-corosync/"
	done
	[ "$CLUSTER_FLAVOUR" = netns ] || lab_up "$count" || return 1
	for ((n = 1; n <= count; n++)); do
		node_power "$n" || return 1
	done
	for ((n = 1; n <= count; n++)); do
		node_ready "$n" || return 1
	done
	# shellcheck disable=SC2046 # words
	nodes_complete $(seq "$count") || return 1
	[ "${LAB_BARE:-no}" = no ] || return 0
	# shellcheck disable=SC2046 # words
	cluster_wait_quorum 30 $(seq "$count") || return 1
	[ "$CLUSTER_FLAVOUR" = netns ] || ! lab_may_stay "$count" || lab_is_new
}

cluster_trap() {
	# shellcheck disable=SC2154 # assigned there
	trap 'cluster_status=$?; cluster_down || cluster_status=1; exit $cluster_status' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
}

# Works on a cluster that another shell started.
cluster_attach() {
	CLUSTER_DIR=$(cd "$1" && pwd) && read -r CLUSTER_NAME <"$CLUSTER_DIR/name"
}

# The exporters' programs, once for a cluster: its exporters may be started at the same time.
cluster_exporter_program() {
	local built=${DDRAID_EXPORTER:-${top_builddir:-$CLUSTER_SRC}/tests/lib/exporter}
	if cluster_volatile; then
		cp "${top_builddir:-$CLUSTER_SRC}/tests/lib/volatile.so" "$CLUSTER_DIR/" || return 1
	fi
	if [ -x "$built" ]; then
		cp "$built" "$CLUSTER_DIR/exporter"
	else
		"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O1 -o "$CLUSTER_DIR/exporter" \
			"$CLUSTER_SRC/tests/lib/exporter.c"
	fi
}

# cluster_volatile: exporters with a cache that can be lost can be made here (EXPORTER_VOLATILE).
cluster_volatile() {
	[ -e "${top_builddir:-$CLUSTER_SRC}/tests/lib/volatile.so" ]
}

# Ends everything. 0 if nothing is left.
cluster_down() {
	local name f bad=0
	if [ -z "$CLUSTER_DIR" ] || [ ! -d "$CLUSTER_DIR/pids" ]; then return 0; fi
	trap '' INT TERM HUP
	trap - EXIT
	[ "$CLUSTER_FLAVOUR" = netns ] || [ "${cluster_status:-0}" = 0 ] || lab_logs
	[ -z "${CLUSTER_KEEP_LOGS:-}" ] || cluster_logs "$CLUSTER_KEEP_LOGS"
	if [ "$CLUSTER_FLAVOUR" != netns ] && [ "${cluster_status:-0}" = 0 ] && lab_keep; then
		CLUSTER_DIR=
		trap - INT TERM HUP
		return 0
	fi
	[ "$CLUSTER_FLAVOUR" = netns ] || lab_down
	for f in "$CLUSTER_DIR"/pids/*.init; do
		[ ! -e "$f" ] || kill -KILL "$(cut -d' ' -f1 "$f")" 2>/dev/null
	done
	# One that was interrupted in its start has no .init yet; --kill-child sees to its child.
	for f in "$CLUSTER_DIR"/pids/*.outer; do
		[ -e "$f" ] || continue
		name=$(basename "$f" .outer)
		if [ -e "${f%.outer}.init" ]; then
			cluster_end "$name" || bad=1
		elif cluster_alive "$name.outer"; then
			kill -KILL "$(cluster_pid "$name.outer")" 2>/dev/null
			wait_until 20 "the end of $name" cluster_gone "$name.outer" || bad=1
		fi
	done
	for name in $(ip netns list | awk -v p="$CLUSTER_NAME-" 'index($1, p) == 1 { print $1 }'); do
		ip netns del "$name" || bad=1
	done
	! mountpoint -q "$CLUSTER_DIR/bridge.net" || umount "$CLUSTER_DIR/bridge.net" || bad=1
	wait_until 10 "the end of all namespaces" cluster_no_leftovers || { cluster_leftovers >&2; bad=1; }
	[ $bad != 0 ] || rm -rf --one-file-system "$CLUSTER_DIR" || bad=1
	[ $bad = 0 ] || cluster_say "cluster_down: something is left, see above and $CLUSTER_DIR"
	CLUSTER_DIR=
	trap - INT TERM HUP
	return $bad
}

# Prints what is left of the cluster: names of namespaces, mounts, and processes, each of which
# carries the cluster's name in its environment. Listening sockets end with these.
cluster_leftovers() {
	local p
	ip netns list | awk -v p="$CLUSTER_NAME-" 'index($1, p) == 1 { print "namespace " $1 }'
	awk -v d="$CLUSTER_DIR" 'index($5, d) == 1 { print "mount " $5 }' /proc/self/mountinfo
	while IFS=/ read -r _ _ p _; do
		echo "process $p $(tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline")"
	done < <(grep -lzxs "CLUSTER_MARK=$CLUSTER_NAME" /proc/[0-9]*/environ)
}

cluster_no_leftovers() {
	[ -z "$(cluster_leftovers)" ]
}

# cluster_logs DIR: copies what helps to understand a failure.
cluster_logs() {
	mkdir -p "$1"
	(cd "$CLUSTER_DIR" && tar -cf - --ignore-failed-read ./*.log ./*.conf node*/log node*/*.log \
		exporter*/*.log exporter*/req 2>/dev/null) | tar -C "$1" -xf -
}

# ---- nodes ----

node_address() {
	echo "10.77.0.$1"
}

# Power on; returns when corosync was started (in the lab, serves), not when it has quorum.
node_start() {
	node_power "$1" && node_ready "$1" && nodes_complete "$1"
}

# A new boot is not fenced.
node_power() {
	local n=$1 ns=$CLUSTER_NAME-n$1 dir=$CLUSTER_DIR/node$1
	rm -f "$dir/ready"
	(
		flock 9
		unfence_locked "$n"
		ip netns add "$ns" && cluster_port "$ns" "n$n" "$(node_address "$n")" &&
			date +%s%N >"$dir/boot_ns" &&
			cluster_spawn "node$n" "$dir/init.log" "$ns" \
				bash "$CLUSTER_SRC/tests/lib/node-init.sh" "$dir" "$n"
	) 9>"$CLUSTER_DIR/fence.lock"
}

node_ready() {
	local n=$1 dir=$CLUSTER_DIR/node$1
	wait_until 10 "start of node $n" test -e "$dir/ready" || { cat "$dir/init.log" >&2; return 1; }
	node_spawn "$n" corosync corosync -f
}

# nodes_complete N...: what runs in them besides corosync, once that runs in all that were started at once: in the lab, the DLM.
nodes_complete() {
	return 0
}

# Power cut.
node_kill() {
	local n=$1
	cluster_port_set "n$n" down 2>/dev/null
	cluster_end "node$n" || return 1
	ip -n "$CLUSTER_NAME-br" link del "n$n" 2>/dev/null
	ip netns del "$CLUSTER_NAME-n$n"
}

# node_exec N COMMAND...: in all namespaces of node N, in this working directory.
node_exec() {
	local init
	cluster_alive "node$1.init" || { cluster_say "node $1 is off"; return 1; }
	read -r init _ <"$CLUSTER_DIR/pids/node$1.init" || return 1
	shift
	CLUSTER_MARK=$CLUSTER_NAME nsenter --target "$init" --net --mount --pid --uts --wdns="$PWD" "$@" 9>&-
}

# node_exec_within SECONDS N COMMAND...: and its end, by a signal, if it takes longer.
node_exec_within() {
	local seconds=$1 n=$2
	shift 2
	node_exec "$n" timeout -k 10 "$seconds" "$@"
}

# node_use N COMMAND...: COMMAND uses what ddraidd of node N exports, by node_uri. It ends with the node. node_uri N ARRAY.
node_use() {
	node_exec "$@"
}
node_uri() {
	echo "nbd+unix:///$2?socket=/run/ddraid/$2.nbd"
}

# node_spawn N NAME COMMAND...: in the background, as a child of the node's pid 1. Its output goes to
# CLUSTER_DIR/nodeN/log/NAME.out, its id within the node to CLUSTER_DIR/nodeN/NAME.pid.
node_spawn() {
	local n=$1 name=$2
	shift 2
	# shellcheck disable=SC2016 # the inner shell's
	node_exec "$n" sh -c '
		pid=$1 out=$2
		shift 2
		setsid "$@" </dev/null >>"$out" 2>&1 &
		echo $! >"$pid"' sh "$CLUSTER_DIR/node$n/$name.pid" "$CLUSTER_DIR/node$n/log/$name.out" "$@"
}

# node_pid N NAME: the id within the node of what node_spawn started.
node_pid() {
	cat "$CLUSTER_DIR/node$1/$2.pid"
}

# node_signal N NAME SIGNAL
node_signal() {
	node_exec "$1" kill -s "$3" "$(node_pid "$1" "$2")"
}

# node_alive N NAME
node_alive() {
	node_signal "$1" "$2" 0 2>/dev/null
}

# node_stop_daemon N [NAME]: frozen, while corosync lives. node_cont_daemon: goes on.
node_stop_daemon() {
	node_signal "$1" "${2:-ddraidd}" STOP
}
node_cont_daemon() {
	node_signal "$1" "${2:-ddraidd}" CONT
}

# Freezes the whole node, as a stalled virtual machine: all processes but its pid 1, which does nothing.
# What its kernel has in its sockets is still sent and received.
node_freeze() {
	node_exec "$1" sh -c "kill -s STOP -- -1"
}
node_thaw() {
	local p
	node_exec "$1" sh -c "kill -s CONT -- -1"
	# Out here, the nsenter of each node_exec that is under way has stopped with its command.
	for p in $(pgrep -f "^nsenter --target $(cluster_pid "node$1.init") "); do
		kill -s CONT "$p" 2>/dev/null
	done
}

# Pulls and plugs the node's cable.
node_cut() {
	cluster_port_set "n$1" down
}
node_heal() {
	cluster_port_set "n$1" up
}

# node_members N: ids of the members as node N sees them, e.g. "1 2 3 quorate".
node_members() {
	node_exec "$1" corosync-quorumtool -sp 2>/dev/null | awk '
		/^Quorate:/ { q = $2 }
		list && $1 ~ /^[0-9]+$/ { m = m $1 " " }
		/^Membership information/ { list = 1 }
		END { print m (q == "Yes" ? "quorate" : "inquorate") }'
}

node_members_are() {
	[ "$(node_members "$1")" = "$2" ]
}

# cluster_wait_quorum SECONDS N...: just these are members, all of them say so and are quorate.
cluster_wait_quorum() {
	local limit=$1 n
	shift
	for n; do
		wait_until "$limit" "node $n sees members $* and quorum" node_members_are "$n" "$* quorate" || {
			cluster_say "node $n sees: $(node_members "$n")"
			tail -n 10 "$CLUSTER_DIR/node$n/log/corosync.log" >&2
			return 1
		}
	done
}

# ---- exporters ----

exporter_uri() {
	echo "nbd://10.77.1.$1:10809"
}

# The member's bytes, for checkers.
exporter_disk() {
	echo "$CLUSTER_DIR/exporter$1/disk"
}

# exporter_up I SIZE [NBDKIT-ARG...]: a new exporter with an empty disk. The arguments go to nbdkit,
# e.g. --filter=delay wdelay=20ms.
exporter_up() {
	local i=$1 size=$2 dir=$CLUSTER_DIR/exporter$1 ns=$CLUSTER_NAME-x$1 f
	shift 2
	mkdir "$dir" "$dir/deny" "$dir/req" "$dir/fenced" && truncate -s "$size" "$dir/disk" || return 1
	for f in "$CLUSTER_DIR"/node*/fenced; do
		[ -e "$f" ] || continue
		f=$(basename "$(dirname "$f")")
		: >"$dir/deny/$(node_address "${f#node}")"
	done
	: >"$dir/args"
	[ $# = 0 ] || printf '%s\0' "$@" >"$dir/args"
	if [ "${EXPORTER_VOLATILE:-}" = yes ]; then
		: >"$dir/unflushed" && exporter_lose_cache "$i" >/dev/null || return 1
	fi
	if [ ! -e "/run/netns/$ns" ]; then
		ip netns add "$ns" && cluster_port "$ns" "x$i" "10.77.1.$i" || return 1
	fi
	exporter_restart "$i"
}

exporter_answers() {
	"$CLUSTER_DIR/exporter" ctl "$CLUSTER_DIR/exporter$1" ping >/dev/null 2>&1
}

# Starts an exporter that was killed, with the disk as it is.
exporter_restart() {
	local i=$1 dir=$CLUSTER_DIR/exporter$1 args=()
	mapfile -d '' -t args <"$dir/args"
	cluster_spawn "exporter$i" "$dir/start.log" "$CLUSTER_NAME-x$i" \
		"$CLUSTER_DIR/exporter" serve "$dir" "10.77.1.$i" 10809 "${args[@]}" || return 1
	wait_until 10 "exporter $i answers" exporter_answers "$i" || {
		cat "$dir/start.log" "$dir/exporter.log" >&2
		return 1
	}
}

# SIGKILL to all of its processes; clients see their connections reset.
exporter_kill() {
	cluster_end "exporter$1"
}

# exporter_lose_cache I: of one that is down; prints how many sectors are lost.
exporter_lose_cache() {
	local dir=$CLUSTER_DIR/exporter$1
	tr -d '\0' <"$dir/unflushed" | wc -c
	cp --sparse=always "$dir/disk" "$dir/cache" && : >"$dir/unflushed" &&
		truncate -s $(($(stat -c %s "$dir/disk") / 512)) "$dir/unflushed"
}

exporter_power_cut() {
	exporter_kill "$1" && exporter_lose_cache "$1"
}

# It and its disk are gone for good. Its namespace stays, for the next one of this number.
exporter_remove() {
	exporter_kill "$1" && exporter_heal "$1" && rm -rf "$CLUSTER_DIR/exporter$1"
}

# Freezes and thaws an exporter: connections stay, nothing is answered.
exporter_stop() {
	"$CLUSTER_DIR/exporter" ctl "$CLUSTER_DIR/exporter$1" stop >/dev/null
}
exporter_cont() {
	"$CLUSTER_DIR/exporter" ctl "$CLUSTER_DIR/exporter$1" cont >/dev/null
}

# exporter_stall I N: freezes the connections of node N only, for good: nothing more of it lands here.
exporter_stall() {
	"$CLUSTER_DIR/exporter" ctl "$CLUSTER_DIR/exporter$1" stall "$(node_address "$2")" >/dev/null
}

# Pulls and plugs the exporter's cable.
exporter_cut() {
	cluster_port_set "x$1" down
}
exporter_heal() {
	cluster_port_set "x$1" up
}

# exporter_requests I N [KIND]: how many requests (Read, Write, Flush, Zero, Trim) of node N came in.
exporter_requests() {
	local kind=${3:-[A-Z][a-z]*}
	find "$CLUSTER_DIR/exporter$1/req" -name "$(node_address "$2").*" -exec cat {} + |
		grep -cE "connection=[0-9]+ $kind id=" || true
}

# ---- fencing ----

# fence NODE [INCARNATION [URI...]]: without an incarnation, whatever runs on it now.
fence() {
	local node=$1 incarnation=${2:-$(date +%s%N)}
	shift $(($# > 2 ? 2 : $#))
	"$CLUSTER_DIR/fence" "$node" "$incarnation" "$@"
}

# The node's port goes up again and the exporters accept it again.
unfence() {
	(flock 9 && unfence_locked "$1" && node_heal "$1") 9>"$CLUSTER_DIR/fence.lock"
}

unfence_locked() {
	[ -e "$CLUSTER_DIR/node$1/fenced" ] || return 0
	printf '%s unfence %s - -\n' "$(cluster_now)" "$1" >>"$CLUSTER_DIR/fence.log"
	rm -f "$CLUSTER_DIR"/exporter*/deny/"$(node_address "$1")" "$CLUSTER_DIR/node$1/fenced"
}

# Makes the fence command fail, and work again.
fence_break() {
	touch "$CLUSTER_DIR/fence-broken"
}
fence_mend() {
	rm -f "$CLUSTER_DIR/fence-broken"
}

# fence_proof NODE: the exporters' logs hold no request, and no answer to one, of a connection that the
# last fence of NODE covers after the time at which that fence had answered; and, if it was a full one,
# none of NODE at all until it was unfenced. Prints one line per exporter; 1 if it isn't so.
fence_proof() {
	local node=$1 e line answered mode unfenced='~' before bad=0
	line=$(awk -v n="$node" '$3 == "answered" && $4 == n && $6 != "again"' "$CLUSTER_DIR/fence.log" | tail -n 1)
	[ -n "$line" ] || { cluster_say "fence_proof: node $node was never fenced"; return 1; }
	answered=${line:0:26} mode=${line##* }
	before=$answered
	[ "$mode" != boot ] || before=$(TZ=UTC date -d "@$(sed 's/.\{9\}$/.&/' "$CLUSTER_DIR/node$node/boot_ns")" '+%F %T.%6N')
	[ "$mode" != full ] || unfenced=$(awk -v n="$node" -v t="$answered" '
		$3 == "unfence" && $4 == n && $1 " " $2 > t { print $1 " " $2; exit }' "$CLUSTER_DIR/fence.log")
	for e in "$CLUSTER_DIR"/exporter[0-9]*; do
		# shellcheck disable=SC2016 # awk's
		find "$e/req" -name "$(node_address "$node").*.log" -print0 | sort -z |
			xargs -0 -r awk -v answered="$answered" -v before="$before" -v mode="$mode" \
			-v unfenced="${unfenced:-~}" -v node="$node" -v e="${e##*/}" '
			{ t = $1 " " $2 }
			FNR == 1 { covered = t <= before }
			covered && / id=/ && !/\.\.\.[A-Z]/ { n++; last = t }
			t > answered && (covered || (mode == "full" && t < unfenced)) { late++; print "LATE " FILENAME ": " $0 }
			END {
				printf "%s: %d requests of node %d, the last came in at %s; after the fence answered at %s: %d\n",
					e, n, node, last, answered, late
				exit late > 0
			}' || bad=1
	done
	return $bad
}

if [ "$CLUSTER_FLAVOUR" = lab ]; then
	# shellcheck source=tests/lib/lab.sh
	. "$CLUSTER_SRC/tests/lib/lab.sh"
fi
