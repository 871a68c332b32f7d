# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What the cluster scenarios share: an array on a cluster of tests/lib/cluster.sh, writers on its nodes, and the
# comparison of what they wrote. A scenario sources this, does its worst, and ends with finish. Every
# helper that finds something wrong ends the scenario by itself (fail); so a scenario reads as a list.
#
#	array_up NODES ORDER [SPARES]	nodes, exporters, daemons, vol0 on all of them
#	writers_start N... ; writers_stop N...
#	compare_on N...
#	finish N...			stops the array, reads the members raw
#
# A line `measured TEXT` becomes a part of the scenario's line in run.sh.

top_builddir=${top_builddir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
# Slow and shared machines let corosync wait for more than the library's second.
export CLUSTER_TOKEN_MS=${CLUSTER_TOKEN_MS:-2000}
SCENARIO_LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/lib/cluster.sh
. "$SCENARIO_LIB/../lib/cluster.sh"
cluster_requires || exit 77
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
for program in ddraidd ddraidctl; do
	[ -x "$top_builddir/$program" ] || { echo "skipped: $program is not built"; exit 77; }
done

ARRAY_NODES=0
ARRAY_MEMBERS=()   # the exporter of each member
MEMBER_SIZE=24M
CREATE_OPTIONS=
# Emulated machines take seconds to sync a new array. lab-tool, operating and forgotten have one synced there, too.
[ "$CLUSTER_FLAVOUR" != lab ] || MEMBER_SIZE=16M CREATE_OPTIONS=--zeroed
declare -A writers=() readers=()

# ---- saying ----

SECONDS=0
SCENARIO_BEGAN=${EPOCHREALTIME/[.,]/}
step() {
	printf '%3d s  %s\n' "$SECONDS" "$*"
}

measured() {
	printf 'measured %s\n' "$*"
}

fail() {
	local n f
	echo "FAILED: $*"
	for ((n = 1; n <= ARRAY_NODES; n++)); do
		f=$CLUSTER_DIR/node$n/log/ddraidd.out
		echo "--- node $n"
		[ ! -e "$f" ] || tail -n "${SCENARIO_TAIL:-25}" "$f"
		! node_alive "$n" ddraidd 2>/dev/null || ctl "$n" status vol0 2>&1 |
			grep -vE '^  (UUID|size|layout|log|locks|fence|WARNING|nbd|users|counters|      )' 
	done
	echo "--- fences"
	tail -n 5 "$CLUSTER_DIR/fence.log"
	exit 1
}

# within SECONDS WHAT COMMAND...: wait_until, or the end.
within() {
	wait_until "$@" || fail "$2"
}

# at_once FUNCTION N...: FUNCTION N for all of these nodes at the same time; what they say comes in order. If one fails, the scenario ends.
at_once() {
	local n status=0 function=$1
	local -A job=()
	shift
	for n; do
		"$function" "$n" >"$CLUSTER_DIR/at_once.$n" 2>&1 &
		job[$n]=$!
	done
	for n; do
		wait "${job[$n]}" || status=1
		cat "$CLUSTER_DIR/at_once.$n"
	done
	[ $status = 0 ] || exit 1
}

# ---- daemons ----

CTL_SECONDS=$(patience 40)
ctl() {
	local n=$1
	shift
	node_exec_within "$CTL_SECONDS" "$n" "$top_builddir/ddraidctl" "$@"
}

answers() {
	ctl "$1" version >/dev/null 2>&1
}

# With FAILPOINTS=yes, CLUSTER_DIR/nodeN/failpoint arms one (daemon/runtime/failpoint.h).
daemon_start() {
	local failpoint=()
	[ "${FAILPOINTS:-no}" = no ] || failpoint=("DDRAIDD_FAILPOINT=$CLUSTER_DIR/node$1/failpoint")
	node_spawn "$1" ddraidd env "${failpoint[@]}" "$top_builddir/ddraidd" --foreground
}

daemon_up() {
	daemon_start "$1"
	within 15 "ddraidd of node $1 answers" answers "$1"
}

dlm_runs() {
	within 15 "dlm_controld of node $1" node_exec "$1" test -e /sys/kernel/config/dlm/cluster
}

daemon_gone() {
	! node_alive "$1" ddraidd
}

# daemon_end N SIGNAL: and its end is waited for there, since each command costs a machine of the lab a tenth of a second.
# As long as wait_until would: twice the patience.
daemon_end() {
	# shellcheck disable=SC2016 # the node's shell
	node_exec "$1" sh -c 'kill -s "$2" "$1" || exit
		while kill -s 0 "$1" 2>/dev/null; do
			[ "$3" -gt 0 ] || exit
			set -- "$1" "$2" $(($3 - 1))
			sleep 0.1
		done' sh "$(node_pid "$1" ddraidd)" "$2" $((20 * $(patience 20))) || fail "ddraidd of node $1 does not end by $2"
}
daemon_kill() { # N: what its sockets hold, the kernel still sends
	daemon_end "$1" KILL
}
daemon_stop() { # N
	daemon_end "$1" TERM
}

# nodes_power N...: power on for all at once, up to quorum: dlm_controld fences who does not come soon after the others.
nodes_power() {
	local n
	for n; do
		node_power "$n" || fail "node $n does not start"
	done
	for n; do
		node_ready "$n" || fail "node $n does not start"
	done
	nodes_complete "$@" || fail "the DLM does not start"
	cluster_wait_quorum 20 "$@" || fail "no quorum"
}

# Power on, and everything up to the daemon.
node_back() {
	node_start "$1" || fail "node $1 does not start"
	daemon_up "$1"
}

# JSON is Python but for three words, and the module that reads it takes as long to load as all of Python.
STATUS_CODE='import sys
a = eval(sys.stdin.read(), {"true": True, "false": False, "null": None})["arrays"][0]
'
# holds N EXPRESSION: EXPRESSION, in Python, about vol0, or ARRAY, as node N sees it (status --json), as a.
holds() {
	ctl "$1" status "${ARRAY:-vol0}" --json 2>/dev/null | /usr/bin/python3 -IS -c "$STATUS_CODE"'sys.exit(0 if eval(sys.argv[1]) else 1)' "$2" 2>/dev/null
}

# tells N EXPRESSION: prints it.
tells() {
	ctl "$1" status "${ARRAY:-vol0}" --json | /usr/bin/python3 -IS -c "$STATUS_CODE"'print(eval(sys.argv[1]))' "$2"
}

# By the first line of the table: it is asked for often, and takes no Python.
active() {
	local said
	said=$(ctl "$1" status vol0 2>/dev/null)
	[[ ${said%%$'\n'*} = *': active,'*' I/O is served' ]]
}

# All of these nodes serve and nothing is left to recover or to rebuild; degraded is all right.
serve() {
	at_once serves "$@"
	at_once recovered "$@"
}
serves() {
	within 30 "node $1 serves" active "$1"
}
recovered() {
	ctl "$1" status vol0 --wait --timeout "$(patience 30)" >/dev/null 2>&1
	case $? in 0 | 5) ;; *) fail "node $1: still something to recover" ;; esac
}

# full_fence N: N was fenced by cutting it off, since fences_forget.
full_fence() {
	grep -q "answered $1 .* full" "$CLUSTER_DIR/fence.log"
}

# token_is MS: corosync's token timeout on all nodes, which all run, from now on. It stalls as it takes it over: not beside a load.
token_is() {
	sed -i "s/^\ttoken: .*/\ttoken: $1/" "$CLUSTER_DIR"/node*/etc-corosync/corosync.conf
	node_exec 1 corosync-cfgtool -R >"$CLUSTER_DIR/cfgtool" 2>&1 || fail "corosync does not reload: $(cat "$CLUSTER_DIR/cfgtool")"
	token_ms=$1
	# shellcheck disable=SC2046 # words
	at_once token_was_told $(seq "$ARRAY_NODES")
}
token_was_told() { # N
	within 5 "node $1 has a token timeout of $token_ms ms" token_of_node_is "$1" "$token_ms"
}
token_of_node_is() { # N MS
	[ "$(node_exec "$1" corosync-cmapctl -g runtime.config.totem.token)" = "runtime.config.totem.token (u32) = $2" ]
}

fences_forget() {
	: >"$CLUSTER_DIR/fence.log"
}

# log_has N TEXT: the daemon of node N logged it, since log_mark.
declare -A LOG_FROM=()
log_mark() {
	LOG_FROM[$1]=$(wc -l <"$CLUSTER_DIR/node$1/log/ddraidd.out")
}
log_has() {
	tail -n "+$((${LOG_FROM[$1]:-0} + 1))" "$CLUSTER_DIR/node$1/log/ddraidd.out" | grep -q -- "$2"
}

# ---- the array ----

# Options of nbdkit for exporter I, in EXPORTER_ARGS[I].
declare -A EXPORTER_ARGS=()

# Nodes whose daemons do not run yet when the array is made.
LATE_NODES=

# Further lines of ddraid.conf's [cluster]; slow machines bring theirs (tests/kmod/debug-kernel.sh).
CLUSTER_CONF=${CLUSTER_CONF:-}
# The last lines of ddraid.conf, from within [fence] on.
FENCE_CONF='fence = command\nfence_command = %s'

member_up() {
	# shellcheck disable=SC2086 # words
	exporter_up "$1" "$MEMBER_SIZE" ${EXPORTER_ARGS[$1]:-} || fail "exporter $1"
}

# load_fits: sets LOAD_SLOWER by the time that making the array took, which is 3 to 4 s. On a host that is in a slow hour, the
# same load would take all of it, and what the scenario waits for would get nothing.
load_fits() {
	local took=$(((${EPOCHREALTIME/[.,]/} - SCENARIO_BEGAN) / 100000))
	LOAD_SLOWER=$((took * took / (40 * 40)))
	((LOAD_SLOWER >= 1)) || LOAD_SLOWER=1
	((LOAD_SLOWER <= 20)) || LOAD_SLOWER=20
	[ $LOAD_SLOWER = 1 ] || step "a slow host: the load is 1/$LOAD_SLOWER"
}

# parts_up NODES ORDER [SPARES]: all that an array needs, but no array: nodes with their daemons, and the exporters 1 to
# 2^ORDER + 1, whose URIs are in `uris`; spares follow.
parts_up() {
	local n i nodes=() members=() count=$(((1 << $2) + 1))
	uris=()
	cluster_up "$1" || exit 1
	ARRAY_NODES=$1
	for ((i = 1; i <= count + ${3:-0}; i++)); do
		members+=("$i")
	done
	at_once member_up "${members[@]}"
	for ((i = 1; i <= count; i++)); do
		uris+=("$(exporter_uri "$i")")
		ARRAY_MEMBERS+=("$i")
	done
	for ((n = 1; n <= ARRAY_NODES; n++)); do
		mkdir -p "$CLUSTER_DIR/node$n/etc-ddraid"
		# shellcheck disable=SC2059 # a format
		printf "[cluster]\nheartbeat = ${HEARTBEAT:-200ms}\n$CLUSTER_CONF[members]\nzombie_timeout = 2s\n[fence]\nrestart_wait = $(patience 6)s\n$FENCE_CONF\n" "$CLUSTER_DIR/fence" \
			>"$CLUSTER_DIR/node$n/etc-ddraid/ddraid.conf"
		[[ " $LATE_NODES " = *" $n "* ]] || nodes+=("$n")
	done
	[ "$CLUSTER_FLAVOUR" != lab ] || [ "${LAB_DLM:-yes}" = no ] || at_once dlm_runs "${nodes[@]}"
	at_once daemon_up "${nodes[@]}"
}

# array_up NODES ORDER [SPARES]: vol0 on the exporters 1 to 2^ORDER + 1; spares follow. `create` must
# choose the DLM for its locks where the nodes have one.
array_up() {
	local n want=cpg nodes=()
	[ "$CLUSTER_FLAVOUR" != lab ] || [ "${LAB_DLM:-yes}" = no ] || want=dlm
	parts_up "$@"
	for ((n = 1; n <= ARRAY_NODES; n++)); do
		[[ " $LATE_NODES " = *" $n "* ]] || nodes+=("$n")
	done
	# shellcheck disable=SC2086 # words
	ctl 1 create vol0 --order "$2" $CREATE_OPTIONS "${uris[@]}" >"$CLUSTER_DIR/create" 2>&1 ||
		fail "create: $(cat "$CLUSTER_DIR/create")"
	step "vol0 is created"
	[ "$CLUSTER_FLAVOUR" = lab ] || load_fits
	serve "${nodes[@]}"
	holds 1 "a['lock_backend'] == '$want'" || fail "the locks are not those of $want"
	step "${#nodes[@]} nodes serve"
}

# The same, and node 1 leads for certain: the daemons of the others start when it serves.
array_up_led_by_1() {
	LATE_NODES=$(seq -s " " 2 "$1")
	array_up "$@"
	# shellcheck disable=SC2086 # words
	at_once daemon_up $LATE_NODES
	# shellcheck disable=SC2086 # words
	serve 1 $LATE_NODES
	holds 1 'a["leading"]' || fail "node 1 does not lead"
}

# ---- load ----

load() {
	/usr/bin/python3 "$SCENARIO_LIB/load.py" "$@"
}

array_uri() { # N
	node_uri "$1" vol0
}

# nbd_do N CODE: Python, in node N, with the array opened as h.
nbd_do() {
	node_use "$1" timeout -k 10 "$(patience 40)" /usr/bin/python3 -c 'import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
exec(sys.argv[2])' "$(array_uri "$1")" "$2"
}

# load_share COUNT: as much of it as is asked of these nodes, which may be slower ones (LOAD_SLOWER).
load_share() {
	local share=$(($1 / ${LOAD_SLOWER:-1}))
	echo $((share > 10 ? share : 10))
}

wrote() { # N AT-LEAST: acknowledged in this run
	[ "$(tail -n "+$((${WRITERS_FROM[$1]:-0} + 1))" "$CLUSTER_DIR/load.$1" 2>/dev/null | grep -c ^A)" -ge "$2" ]
}

# writers_start [--reconnect] N...: and waits until each has written something. On each of these nodes there is also one
# that reads what all of them write, and compares.
declare -A WRITERS_FROM=()
writers_start() {
	local n option=
	[ "$1" != --reconnect ] || { option=$1; shift; }
	for n; do
		rm -f "$CLUSTER_DIR/load.$n.stop"*
		WRITERS_FROM[$n]=$(grep -c . "$CLUSTER_DIR/load.$n" 2>/dev/null)
		# shellcheck disable=SC2086 # a word or none
		node_use "$n" env LOAD_RATE="$(load_share "${LOAD_RATE:-1000}")" \
			/usr/bin/python3 "$SCENARIO_LIB/load.py" write "$n" "$ARRAY_NODES" "$(array_uri "$n")" \
			"$CLUSTER_DIR/load.$n" $option >>"$CLUSTER_DIR/load.$n.out" 2>&1 &
		writers[$n]=$!
		# shellcheck disable=SC2086 # a word or none
		node_use "$n" /usr/bin/python3 "$SCENARIO_LIB/load.py" read "$n" "$(array_uri "$n")" "$CLUSTER_DIR/load.$n" \
			$option >>"$CLUSTER_DIR/load.$n.read.out" 2>&1 &
		readers[$n]=$!
	done
	for n; do
		within 20 "node $n writes" wrote "$n" "$(load_share 200)"
	done
}

# writers_go_on COUNT N...: since now, each of these has had so many blocks acknowledged (load_share).
writers_go_on() {
	local count
	count=$(load_share "$1")
	shift
	writers_went_on "$count" "$@"
}
# writers_go_round N...: each of these has written all of its blocks. ROUND_RATE is for one that has to, where it is not alone.
ROUND_RATE=${ROUND_RATE:-1000}
writers_go_round() {
	writers_went_on 1100 "$@"
}
writers_went_on() {
	local n count=$1 before=()
	shift
	for n; do
		before[n]=$(grep -c ^A "$CLUSTER_DIR/load.$n")
	done
	for n; do
		within 25 "node $n goes on writing" went_on "$n" $((before[n] + count))
	done
}
went_on() {
	[ "$(grep -c ^A "$CLUSTER_DIR/load.$1")" -ge "$2" ]
}

# The writers and readers of these nodes must end well; those of others, which were killed, are waited for.
writers_stop() {
	local n
	for n in "${!writers[@]}"; do
		touch "$CLUSTER_DIR/load.$n.stop"
	done
	for n; do
		wait "${writers[$n]}" || fail "the writer of node $n: $(tail -n 3 "$CLUSTER_DIR/load.$n.out")"
		tail -n 1 "$CLUSTER_DIR/load.$n.out"
		wait "${readers[$n]}" || fail "the reader of node $n: $(tail -n 6 "$CLUSTER_DIR/load.$n.read.out")"
		tail -n 1 "$CLUSTER_DIR/load.$n.read.out"
		unset "writers[$n]" "readers[$n]"
	done
	for n in "${!writers[@]}"; do
		touch "$CLUSTER_DIR/load.$n.stop.now"
		wait "${writers[$n]}" "${readers[$n]}" 2>/dev/null
		! grep -q "^node $n reads" "$CLUSTER_DIR/load.$n.read.out" || fail "node $n read: $(grep "^node $n reads" "$CLUSTER_DIR/load.$n.read.out")"
		unset "writers[$n]" "readers[$n]"
	done
}

# Options of `load check`: --lost LOG, where a node died while a member was missing.
LOST=()

# compare_on N...: every acknowledged byte, read through each of these nodes.
compare_one() {
	node_use "$1" timeout -k 10 "$(patience 30)" /usr/bin/python3 "$SCENARIO_LIB/load.py" check "$(array_uri "$1")" "${LOST[@]}" \
		"$CLUSTER_DIR"/load.[0-9] || fail "wrong data, read through node $1"
}
compare_on() {
	at_once compare_one "$@"
}

# ---- what a node's death left ----

# resynced N SURVIVOR...: what node N had marked when it was lost last, and nothing else, is resynced by these. What is read there
# before its turn is resynced twice, once for the read. Sets marked and resynced_bytes.
resynced() {
	local n r regions=0 limit node=$1 for_reads=0
	shift
	r="([r for r in a['recoveries'] if r['node'] == $node][-1])"
	marked=$(tells "$1" "${r}['regions_marked']") resynced_bytes=0
	for n; do
		resynced_bytes=$((resynced_bytes + $(tells "$n" "${r}['bytes_resynced_here']")))
		for_reads=$((for_reads + $(tells "$n" "${r}['bytes_resynced_for_reads_here']")))
		regions=$((regions + $(tells "$n" "${r}['regions_resynced_here']")))
	done
	limit=$((marked * $(tells "$1" 'a["geometry"]["region_bytes"]')))
	[ "$regions" = "$marked" ] || fail "$marked regions were marked, $regions resynced"
	[ "$resynced_bytes" -le "$limit" ] || fail "$resynced_bytes bytes were resynced, at most $limit were to be"
	measured "$marked regions of node $node, $((resynced_bytes >> 20)) MiB, resynced, and $((for_reads >> 20)) MiB for reads; $(tells "$1" "${r}['fence_ms']") ms to the fence, $(tells "$1" "${r}['resync_ms']") ms of resync"
}

# ---- the end ----

# kernel_unknown: a kernel's log without the two warnings that Debian's DLM gives by itself: of a message that came within a
# recovery, and when its own scan for unused resources would tell a node to which the connection is closed already. So would
# who frees the locks of a lock space that was left by hand, LEFT_BY_HAND: a thread's name.
kernel_unknown() {
	awk '
		/WARNING: / { if (!inside) { block = ""; warnings = 0 } inside = 1; warnings++ }
		!inside
		inside { block = block $0 "\n" }
		inside && /end trace/ {
			inside = 0
			if (warnings > 1 || (block !~ /at fs\/dlm\/requestqueue\.c/ &&
			    (block !~ /dlm_midcomms_get_mhandle/ || block !~ "Comm: (dlm_scand|'"${LEFT_BY_HAND:-dlm_scand}"') ")))
				printf "%s", block
		}
		END { if (inside) printf "%s", block }'
}

# The kernel of node N has said nothing that it should not.
kernel_is_fine() {
	local all bad
	all=$(node_exec "$1" sh -c 'dmesg || echo "Call Trace: dmesg failed"; echo whole')
	[[ $all = *whole ]] || fail "no dmesg of node $1"
	bad=$(kernel_unknown <<<"$all" |
		grep -E 'BUG|WARNING|Oops|Call Trace|general protection|hung task|blocked for more|slab.*corrupt|list_(add|del) corruption|EXT4-fs error|fsid=.*(fatal|withdraw)' | head -n 5)
	[ -z "$bad" ] || fail "the kernel of node $1: $bad"
}

# members_copy: of the raw disks as they are now, for members_check --copied.
members_copy() {
	local i
	for i in "${ARRAY_MEMBERS[@]}"; do
		cp --sparse=always "$(exporter_disk "$i")" "$CLUSTER_DIR/copy$i" || fail "no copy of member $i"
	done
}

# members_check [--copied] [OPTION...]: the checker on the members' raw disks; its result is in
# CLUSTER_DIR/raw.json.
members_check() {
	local i disks=() copied=no
	[ "${1:-}" != --copied ] || { copied=yes; shift; }
	for i in "${ARRAY_MEMBERS[@]}"; do
		if [ $copied = yes ]; then disks+=("$CLUSTER_DIR/copy$i"); else disks+=("$(exporter_disk "$i")"); fi
	done
	"$CLUSTER_SRC/tests/checker/ddraid-check-members" --json "$@" "${disks[@]}" >"$CLUSTER_DIR/raw.json"
}

# raw EXPRESSION: about its result, as r.
raw() {
	/usr/bin/python3 -IS -c 'import json, sys
r = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$CLUSTER_DIR/raw.json" "$1"
}

finish_node() {
	daemon_stop "$1"
	[ "$CLUSTER_FLAVOUR" != lab ] || kernel_is_fine "$1"
}
# finish N...: stops the array on these nodes, which are all that run; then no bit may be dirty, no
# stripe's parity wrong, and the members alone must give every acknowledged byte, each of them left out too.
finish() {
	local n strict=--strict
	! holds "$1" 'a["degraded"]' || strict=
	ctl "$1" stop vol0 --all-nodes >"$CLUSTER_DIR/stop" 2>&1 || fail "stop: $(cat "$CLUSTER_DIR/stop")"
	at_once finish_node "$@"
	members_check $strict --compare-left-out --extract "$CLUSTER_DIR/user" ||
		fail "the members: $(raw 'r["problems"]')"
	[ -z "$(compgen -G "$CLUSTER_DIR/load.[0-9]")" ] || load check "$CLUSTER_DIR/user" "${LOST[@]}" "$CLUSTER_DIR"/load.[0-9] ||
		fail "the members hold wrong data"
	step "$(raw '"the members: %d stripes, %d wrong, %d regions dirty" % (r["geometry"]["stripes"],
		r["stripes_wrong"], len(r["regions_dirty"]))')"
	cluster_down || exit 1
	exit 0
}
