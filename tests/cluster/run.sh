#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The cluster scenarios: three ddraidd on real corosync in network namespaces, faults while all write, and
# a comparison of every byte. As root, with a build.
#
#	run.sh				all of them
#	run.sh SCENARIO...		these
#	run.sh --repeat N SCENARIO	one, N times; stops at the first failure
#	run.sh --list			those that a run without names takes
#	run.sh --jobs N ...		so many at a time
#	run.sh --turns-within S ...	after S seconds, none but those that are always run, and one more: the others are left out, by name
#	run.sh --whole			in the lab: all that there is for it
#	run.sh --no-skip ...		what is skipped has failed
#	run.sh --keep-logs ...		of those that come through, too
#
# With CLUSTER_FLAVOUR=lab the nodes are virtual machines (tools/lab run), and there are further scenarios. Of the many
# with a leader that dies at a named step a run there takes one, with two of its steps, and of those with a node that is removed under a block device
# one, each day others; elsewhere all are taken, those of ALWAYS first. The others take turns: it begins each day with others, so
# that a run with little time comes to each of them some day.
#
# One line per scenario: its seconds, and what it measured. When one fails, the end of its output follows, with the
# daemons' logs; all of its logs are kept, in one folder of the run, whose name is printed. The last line counts. A scenario is a script in
# scenarios/ on top of lib.sh; it is ended after LIMIT seconds. It must leave nothing behind.
set -u
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
export top_srcdir top_builddir=${top_builddir:-$top_srcdir}
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"

# name, limit in seconds, where, script with its arguments. Where: netns, lab, both; one: in the lab, one of those
# that have this script; turn: in the lab, one of all these, and elsewhere all; named: in the lab, by its name only. In the
# lab first those that load the processors, last those that mostly wait, short ones between (next_end). all-nodes waits for
# a moment of milliseconds, which machines that are emulated do not meet.
SCENARIOS='
operating		150	lab	tests/cluster/scenarios/operating.sh
gfs2-node		120	lab	tests/cluster/scenarios/gfs2.sh node
gfs2-member		120	lab	tests/cluster/scenarios/gfs2.sh member
gfs2-both		120	lab	tests/cluster/scenarios/gfs2.sh both
gfs2-cut		120	lab	tests/cluster/scenarios/gfs2.sh cut
kmod			300	lab	tests/kmod/run.sh
disk			100	lab	tests/cluster/scenarios/disk.sh shim
disk-nbd		100	lab	tests/cluster/scenarios/disk.sh nbd
disk-kills		110	lab	tests/cluster/scenarios/disk-kills.sh shim
disk-cache		110	lab	tests/cluster/scenarios/disk-cache.sh shim
disk-cache-nbd		110	named	tests/cluster/scenarios/disk-cache.sh nbd
disk-memory		90	lab	tests/cluster/scenarios/disk-memory.sh
leader-node-1		75	turn	tests/cluster/scenarios/leader-node.sh fenced
leader-node-2		75	turn	tests/cluster/scenarios/leader-node.sh slot-read-done
leader-node-3		75	turn	tests/cluster/scenarios/leader-node.sh propose-sent
leader-node-4		75	turn	tests/cluster/scenarios/leader-node.sh superblock-done
leader-node-5		75	turn	tests/cluster/scenarios/leader-node.sh commit-sent
leader-node-6		75	turn	tests/cluster/scenarios/leader-node.sh resync
selftest		150	netns	tests/cluster/selftest.sh
group-port		150	netns	tests/port/group.sh
kmod-check		60	lab	tests/kmod/check.sh
member-killed		45	both	tests/cluster/scenarios/member-killed.sh
node-cut		45	both	tests/cluster/scenarios/node-cut.sh
dlm-mixed		60	lab	tests/cluster/scenarios/dlm-mixed.sh
fence-fails		45	both	tests/cluster/scenarios/fence-fails.sh
lock-port		100	lab	tests/port/lock_dlm.sh
site-cut		75	both	tests/cluster/scenarios/site-cut.sh
node-frozen		45	both	tests/cluster/scenarios/node-frozen.sh
member-cut		45	both	tests/cluster/scenarios/member-cut.sh
cache-lost		60	both	tests/cluster/scenarios/cache-lost.sh
node-killed		45	both	tests/cluster/scenarios/node-killed.sh
node-killed-degraded	45	both	tests/cluster/scenarios/node-killed-degraded.sh
storage-cut		45	both	tests/cluster/scenarios/storage-cut.sh
daemon-frozen		45	both	tests/cluster/scenarios/daemon-frozen.sh
corosync-restarted	60	netns	tests/cluster/scenarios/corosync-restarted.sh
daemon-killed		45	both	tests/cluster/scenarios/daemon-killed.sh
all-killed		45	both	tests/cluster/scenarios/all-killed.sh
all-stopped		75	both	tests/cluster/scenarios/all-stopped.sh
stale-member		45	both	tests/cluster/scenarios/stale-member.sh
late-node		45	both	tests/cluster/scenarios/late-node.sh
forgotten		45	both	tests/cluster/scenarios/forgotten.sh
import			100	netns	tests/cluster/scenarios/import.sh
creates			120	netns	tests/cluster/scenarios/creates.sh
alone-beside		60	netns	tests/cluster/scenarios/alone-beside.sh
start-forced		60	netns	tests/cluster/scenarios/start-forced.sh
two-nodes		45	both	tests/cluster/scenarios/two-nodes.sh
all-nodes		45	netns	tests/cluster/scenarios/all-nodes.sh
operating-vm		45	netns	tests/cluster/scenarios/operating-vm.sh
stop-forced		60	both	tests/cluster/scenarios/stop-forced.sh
disk-removed-1		70	one	tests/cluster/scenarios/disk-removed.sh shim killed
disk-removed-2		70	one	tests/cluster/scenarios/disk-removed.sh shim fenced cut
disk-removed-3		70	one	tests/cluster/scenarios/disk-removed.sh shim frozen cut-killed
disk-removed-4		70	one	tests/cluster/scenarios/disk-removed.sh shim away
disk-removed-nbd	70	one	tests/cluster/scenarios/disk-removed.sh nbd fenced cut
dlm-fence-cut		70	one	tests/cluster/scenarios/dlm-fence.sh cut
dlm-fence-killed	70	one	tests/cluster/scenarios/dlm-fence.sh killed
dlm-freed		60	lab	tests/cluster/scenarios/dlm-freed.sh
zombie-timeout		45	both	tests/cluster/scenarios/zombie-timeout.sh
zombie-cut		45	both	tests/cluster/scenarios/zombie-cut.sh
zombie-frozen		45	both	tests/cluster/scenarios/zombie-frozen.sh
dlm-left		60	lab	tests/cluster/scenarios/dlm-left.sh
dlm-frozen-killed	60	one	tests/cluster/scenarios/dlm-frozen.sh killed
dlm-frozen-goes-on	60	one	tests/cluster/scenarios/dlm-frozen.sh goes-on
lock-port-nodes		100	lab	tests/port/lock_dlm.sh nodes
leader-join-1		45	turn	tests/cluster/scenarios/leader.sh join query query-sent hello-sent state state-sent
leader-join-2		45	turn	tests/cluster/scenarios/leader.sh join claim-sent ready ready-sent assign assign-sent
leader-fail-add-1	45	turn	tests/cluster/scenarios/leader.sh fail-add propose admin-sent propose-sent superblock
leader-fail-add-2	45	turn	tests/cluster/scenarios/leader.sh fail-add ack superblock-done ack-sent propose-sent
leader-fail-add-3	45	turn	tests/cluster/scenarios/leader.sh fail-add record commit recorded commit-sent
leader-fail-add-4	45	turn	tests/cluster/scenarios/leader.sh fail-add superblock rebuild superblock-done flush
leader-fail-add-5	45	turn	tests/cluster/scenarios/leader.sh fail-add commit propose-sent:2 commit-sent superblock-done:4
leader-fail-add-6	45	turn	tests/cluster/scenarios/leader.sh fail-add admin-done commit:2 admin-done-sent commit-sent:2
leader-fail-add-7	45	turn	tests/cluster/scenarios/leader.sh fail-add admin-sent propose record:2 ack
leader-fail-add-8	45	turn	tests/cluster/scenarios/leader.sh fail-add recorded:2 ack-sent superblock:2 record
leader-fail-add-9	45	turn	tests/cluster/scenarios/leader.sh fail-add superblock-done:2 recorded propose admin-done
leader-fail-add-10	45	turn	tests/cluster/scenarios/leader.sh fail-add ack admin-done-sent commit flush
leader-fail-add-11	45	turn	tests/cluster/scenarios/leader.sh fail-add record slot-clear commit-sent slot-clear-done
leader-take-over-1	75	turn	tests/cluster/scenarios/leader.sh take-over query query-sent
leader-take-over-2	75	turn	tests/cluster/scenarios/leader.sh take-over hello-sent state state-sent
leader-take-over-3	75	turn	tests/cluster/scenarios/leader.sh take-over record recorded claim-sent
leader-take-over-4	75	turn	tests/cluster/scenarios/leader.sh take-over fence fence-asked fenced
leader-take-over-5	75	turn	tests/cluster/scenarios/leader.sh take-over fenced-sent slot-read slot-read-done
leader-take-over-6	75	turn	tests/cluster/scenarios/leader.sh take-over propose propose-sent ack-sent
leader-take-over-7	75	turn	tests/cluster/scenarios/leader.sh take-over superblock superblock-done commit
leader-take-over-8	75	turn	tests/cluster/scenarios/leader.sh take-over commit-sent dirty-sent ready
leader-take-over-9	75	turn	tests/cluster/scenarios/leader.sh take-over ready-sent resync flush
leader-take-over-10	75	turn	tests/cluster/scenarios/leader.sh take-over slot-clear slot-clear-done ack
kmod-short		100	named	tests/kmod/run.sh bad_input malformed killed revoke unload
lab-tool		100	lab	tests/cluster/scenarios/lab-tool.sh
'

# What a run without much time takes in any case: each kind of fault once.
ALWAYS='creates member-cut all-killed node-killed'

usage() {
	sed -n 's/^#\t\(run.sh.*\)/\1/p' "$0"
}

line_of() {
	awk -v n="$1" '$1 == n { $1 = ""; print }' <<<"$SCENARIOS"
}

# names [whole]: those for the flavour that is set, which a run without names takes, or all.
names() {
	awk -v f="$CLUSTER_FLAVOUR" -v always=" $ALWAYS " -v whole="${1:-}" -v day=$(($(date -u +%s) / 86400)) '
		NF {
			name[++count] = $1; where[count] = $3; among[count] = $3 == "turn" ? $3 : $4; number[count] = of[among[count]]++
		}
		END {
			for (i = 1; i <= count; i++) {
				take = where[i] == f || where[i] == "both"
				if (f == "netns" && (where[i] == "turn" || (take && !index(always, " " name[i] " ")))) {
					turn[turns++] = name[i]
					take = 0
				}
				if (f == "lab" && (where[i] == "turn" || where[i] == "one"))
					take = whole || number[i] == day % of[among[i]]
				if (where[i] == "named")
					take = f == "lab" && whole
				if (take)
					print name[i]
			}
			step = turns % 13 ? 13 : 11 # of all kinds some
			for (i = 0; i < turns; i++)
				print turn[(step * i + 11 * day) % turns]
		}' <<<"$SCENARIOS"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/ddraid-scenarios.XXXXXX")
chmod 755 "$work"
passed=0 failed=0 skipped=0
recap= # of what failed, for the end, where a reader looks first
declare -A running=() dir_of=() since=() limit_of=() lab_of=() end_of=() # by process
labs=()                                                      # folders for machines that stay up, not in use

interrupted() {
	trap '' INT TERM HUP
	[ ${#running[@]} = 0 ] || { kill -TERM "${!running[@]}" 2>/dev/null; wait "${!running[@]}"; }
	for dir in "$work"/lab.*; do
		swept "$dir"
	done
	echo "interrupted; logs: $work"
	exit 130
}
trap interrupted INT TERM HUP

# What a scenario that was ended hard left behind: 1, and 2 if not all of it could be ended. Its logs, if LOGS is given, go there.
swept() { # DIR [LOGS]
	local d clean=0
	for d in "$1"/ddraid-*; do
		[ -e "$d/name" ] || continue
		[ $clean != 0 ] || clean=1
		(cluster_attach "$d" && { [ -z "${2:-}" ] || [ -e "$2" ] || cluster_logs "$2"; } && cluster_down) || clean=2
		echo "$d was left behind"
	done
	return $clean
}

begin() { # END NAME LIMIT WHERE SCRIPT ARGUMENT...
	local end=$1 name=$2 limit=$3 script=$5 dir lab=${labs[0]}
	shift 5
	limit=$((${SCENARIO_TIMES:-5} * limit)) # of emulated machines, which boot; elsewhere of hosts in a slow hour
	dir=$(mktemp -d "$work/$name.XXX")
	labs=("${labs[@]:1}")
	LAB_KEPT=$lab CLUSTER_TMP=$dir CLUSTER_KEEP_LOGS=$dir/logs timeout --kill-after=60 "$limit" \
		bash "$top_srcdir/$script" "$@" >"$dir/out" 2>&1 </dev/null &
	running[$!]=$name dir_of[$!]=$dir lab_of[$!]=$lab since[$!]=$SECONDS limit_of[$!]=$limit end_of[$!]=$end
}

# Waits for one of those that run; 1 if it failed.
end_one() {
	local pid status name dir seconds result
	wait -n -p pid "${!running[@]}"
	status=$?
	name=${running[$pid]} dir=${dir_of[$pid]} seconds=$((SECONDS - since[$pid]))
	[ $status != 124 ] || echo "stopped after its limit of ${limit_of[$pid]} s" >>"$dir/out"
	unset "running[$pid]" "end_of[$pid]"
	swept "$dir" "$dir/logs" >>"$dir/out" 2>&1 || [ $status != 0 ] || status=1
	[ $status = 0 ] || swept "${lab_of[$pid]}" "$dir/logs" >>"$dir/out" 2>&1
	labs+=("${lab_of[$pid]}")
	[ "$status$no_skip" != 77yes ] || status=1
	case $status in
	0) result=ok passed=$((passed + 1)) ;;
	77) result=skip skipped=$((skipped + 1)) ;;
	*) result=FAIL failed=$((failed + 1)) ;;
	esac
	printf '%-4s %-20s %3d s  %s\n' $result "$name" "$seconds" "$(summary "$dir/out" $status)"
	if [ $result = FAIL ]; then
		tail -n 120 "$dir/out" | sed 's/^/    | /'
		echo "    all of it: $dir"
		recap+=$(printf '\nFAIL %s\n' "$name"; grep -v '^measured' "$dir/out" | tail -n 8 | sed 's/^/    | /')
	elif [ -z "$keep_logs" ]; then
		rm -rf "$dir"
	fi
	[ $result != FAIL ]
}

summary() { # OUTPUT STATUS
	if [ "$2" = 0 ]; then
		sed -n 's/^measured //p; s/^\([0-9]* passed, 0 failed\)$/\1/p' "$1" |
			awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 }'
	else
		grep -E '^FAIL|^skipped|^stopped|left behind' "$1" | head -n 1
	fi
}

# Which end of the list the next one is taken from. In the lab, so that one that waits runs beside each that loads the processors:
# two of these take longer than one after the other, two of those leave a fifth of the time unused.
next_end() {
	if [ "$CLUSTER_FLAVOUR" = lab ] && [[ " ${end_of[*]} " = *' first '* ]]; then
		echo last
	else
		echo first
	fi
}

# too_late NAME: there is no time left for it, which is said. For the first of those that take turns there is: what is always run may
# take longer than that time on a slow host, which would come to none of them.
turns=0 left_out=()
too_late() {
	[ -n "$turns_within" ] && [[ " $ALWAYS " != *" $1 "* ]] || return 1
	[ "$SECONDS" -gt "$turns_within" ] && [ $turns != 0 ] || { turns=$((turns + 1)); return 1; }
	left_out+=("$1")
}

todo=() repeat=1 jobs=1 turns_within='' whole='' list=no no_skip='' keep_logs=''
while [ $# -gt 0 ]; do
	case $1 in
	--list) list=yes ;;
	--repeat)
		if [ $# != 3 ] || ! [[ $2 =~ ^[1-9][0-9]*$ ]]; then
			usage >&2
			exit 2
		fi
		repeat=$2
		shift
		;;
	--whole) whole=yes ;;
	--no-skip) no_skip=yes ;;
	--keep-logs) keep_logs=yes ;;
	--jobs | --turns-within)
		if ! [[ ${2:-} =~ ^[1-9][0-9]*$ ]]; then
			usage >&2
			exit 2
		fi
		if [ "$1" = --jobs ]; then jobs=$2; else turns_within=$2; fi
		shift
		;;
	-*)
		usage >&2
		exit 2
		;;
	*) todo+=("$1") ;;
	esac
	shift
done
if [ ${#todo[@]} = 0 ]; then
	mapfile -t todo < <(names $whole)
	[ "$CLUSTER_FLAVOUR$whole" != lab ] || export LEADER_STEPS=2
fi
if [ $list = yes ]; then
	printf '%s\n' "${todo[@]}"
	rmdir "$work"
	exit
fi
for name in "${todo[@]}"; do
	names whole | grep -qx -- "$name" || { echo "no scenario $name for $CLUSTER_FLAVOUR; run.sh --list prints them" >&2; exit 2; }
done

[ "$CLUSTER_FLAVOUR" != lab ] || lab_prepare "$work/often"
for ((i = 1; i <= jobs; i++)); do
	labs+=("$(mktemp -d "$work/lab.XXX")")
done
queue=()
for ((i = 1; i <= repeat; i++)); do
	queue+=("${todo[@]}")
done
while [ ${#queue[@]} -gt 0 ]; do
	if [ ${#running[@]} -ge "$jobs" ]; then
		end_one || [ "$repeat" = 1 ] || break
	fi
	end=$(next_end)
	index=0
	[ "$end" = first ] || index=$((${#queue[@]} - 1))
	name=${queue[index]}
	unset "queue[index]"
	queue=("${queue[@]}")
	! too_late "$name" || continue
	# shellcheck disable=SC2046 # words
	begin "$end" "$name" $(line_of "$name")
done
while [ ${#running[@]} -gt 0 ]; do
	end_one
done
for dir in "${labs[@]}"; do
	# Machines that stayed up are no scenario's; what is left of them after their end is of all.
	swept "$dir" >"$dir/out" 2>&1
	if [ $? = 2 ]; then
		failed=$((failed + 1))
		text=$(printf 'FAIL %-20s        %s' "the machines' end" "$(grep -v 'was left behind' "$dir/out" | tr '\n' ' ')")
		echo "$text"
		recap+=$'\n'$text
	else
		rm -rf "$dir"
	fi
done
rm -f "$work/often"
rmdir "$work" 2>/dev/null || echo "logs: $work"
[ -z "$recap" ] || echo "again, what failed:$recap"
[ ${#left_out[@]} = 0 ] || echo "left out, since $turns_within s were over: ${left_out[*]}"
printf '%d passed, %d failed' $passed $failed
[ $skipped = 0 ] || printf ', %d skipped' $skipped
echo
[ $failed = 0 ]
