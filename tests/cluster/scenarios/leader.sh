#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The leader dies at a named step of a change, while all write: leader.sh OPERATION STEP[:COUNT]...
#
#	join		a daemon that was stopped starts again
#	fail-add	a member is failed, with the leader dying at the first STEP; added, dying at the second; and so on
#	take-over	a node has died
#
# The dead daemon starts again at once, as under a service manager. What was asked for must then be so, if need
# be when asked again; all nodes serve, and every byte is there. The steps are those of daemon/runtime/failpoint.c.
set -u
FAILPOINTS=yes
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
export LOAD_RATE=300

operation=$1
shift
# A run of all takes so many of its steps, in one round of days the first, in the next the last ones.
if [ "${LEADER_STEPS:-$#}" -lt $# ]; then
	[ $(($(date -u +%s) / 86400 % 2)) = 0 ] && set -- "${@:1:LEADER_STEPS}" || set -- "${@: -LEADER_STEPS}"
fi

leader_find() {
	for leader in 1 2 3; do
		! holds "$leader" 'a["leading"]' || return 0
	done
	return 1
}

# choose: the leader, and who else asks. Each round makes the lowest of those that serve the leader.
choose() {
	case $operation in
	fail-add) within 20 "a leader" leader_find ;;
	*) leader=1 ;;
	esac
	other=$((leader % 2 + 1)) third=3
}

# arm STEP: for the leader
arm() {
	echo "${1/:/ }" >"$CLUSTER_DIR/node$leader/failpoint"
}

# The leader has come to its step; its daemon starts again.
died() {
	wait_until 15 "$operation: node $leader comes to $1" daemon_gone "$leader" || fail "$1 did not come: $(cat "$CLUSTER_DIR/asked" 2>/dev/null)"
	step "node $leader died at $1"
	daemon_start "$leader"
}

member_is() { # STATE
	holds "$other" "a['members'][1]['state'] == '$1'"
}

# change STATE COMMAND...: member 1 is to come to STATE. By a node that does not lead, and asked again as long as the
# cluster says that it settles; not while it rebuilds.
change() {
	wait_until 60 "member 1 is $1" changed "$@" || fail "${*:2}: $(cat "$CLUSTER_DIR/asked"): $(tells "$other" 'a["members"][1]')"
}
changed() {
	! member_is "$1" || return 0
	member_is rebuilding || ctl "$other" "${@:2}" >"$CLUSTER_DIR/asked" 2>&1
	return 1
}

with_join() {
	daemon_stop "$third"
	arm "$1"
	daemon_start "$third"
	died "$1"
}

# Whoever is asked tells all the others of it: for that step, the leader.
with_fail() {
	local asked=$other
	[ "$1" != admin-sent ] || asked=$leader
	arm "$1"
	ctl "$asked" fail vol0 1 >"$CLUSTER_DIR/asked" 2>&1 &
	died "$1"
	wait $!
	change faulty fail vol0 1
}

# The device that was failed is the next spare.
spare=4
with_add() {
	local is=${ARRAY_MEMBERS[1]}
	arm "$1"
	ctl "$other" add vol0 1 "$(exporter_uri $spare)" --old-member >"$CLUSTER_DIR/asked" 2>&1 &
	died "$1"
	wait $!
	change in-sync add vol0 1 "$(exporter_uri $spare)" --old-member
	ARRAY_MEMBERS[1]=$spare spare=$is
}

# Its daemon is killed, and corosync leaves: a node that is off, without the time-outs. The fence need not
# cut it off, since its daemon's last life is over. In the lab its power is cut at once: dlm_controld has that done to
# a machine that is lost, whatever became of it.
cut=
third_dies() {
	if [ "$CLUSTER_FLAVOUR" = lab ]; then
		cut=$third offs=$(offs)
		node_kill "$third"
		return
	fi
	daemon_kill "$third"
	date +%s%N >"$CLUSTER_DIR/node$third/boot_ns"
	node_signal "$third" corosync TERM
	within 10 "the end of corosync on node $third" eval "! node_alive $third corosync"
}

offs() {
	cat "$CLUSTER_DIR/power.log" 2>/dev/null | wc -l
}
powered_off() { # also what was off already; else it would be while it boots
	[ "$(offs)" -gt "$offs" ]
}

third_has_corosync() {
	serve "$leader" "$other"
	if [ -n "$cut" ]; then
		within 20 "dlm_controld has node $third powered off" powered_off
		node_start "$third" || fail "node $third does not start"
	else
		node_spawn "$third" corosync corosync -f
	fi
	within 15 "corosync of node $third" eval "node_members $third | grep -q '1 2 3 quorate'"
}

with_take-over() {
	arm "$1"
	third_dies
	died "$1"
	third_has_corosync
	daemon_start "$third"
}

array_up 3 1 1
writers_start --reconnect 1 2 3
turn=0
for at; do
	choose
	case $operation in
	fail-add) if ((turn++ % 2)); then with_add "$at"; else with_fail "$at"; fi ;;
	*) "with_$operation" "$at" ;;
	esac
	for n in 1 2 3; do
		within 20 "node $n serves after $at" active $n
	done
	[ -z "$cut" ] || writers_start --reconnect "$cut"
	writers_go_on 30 1 2 3
	for n in 1 2 3; do
		[ "$n" = "$cut" ] || ! full_fence $n || fail "node $n was cut off after $at: $(cat "$CLUSTER_DIR/fence.log")"
	done
done
measured "$operation: $*"
writers_stop 1 2 3
serve 1 2 3
compare_on 1 2 3
finish 1 2 3
