#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# For each operation at which the leader may die, the scenarios leader-* of tests/cluster/run.sh kill it at every step that the
# daemon knows, but for those that the operation does not have. Which these are, and why, is said here. One
# that is taken nevertheless, or that the daemon does not know, is an error as well.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}

# Operation, what it lacks, steps. (Seen with a daemon that wrote down each step which its engine came to.)
lacks='
join: whoever joins has left cleanly, or was fenced before: fence fence-asked fenced fenced-sent
join: no slot was left dirty: slot-read slot-read-done dirty-sent resync flush slot-clear slot-clear-done
join: no operator asks: admin-sent admin-done admin-done-sent
join: no member comes: rebuild
join: whoever was there before is known to be over, so the map need not say so: record recorded propose propose-sent ack ack-sent superblock superblock-done commit commit-sent
fail: there is no round: query query-sent hello-sent state state-sent claim-sent ready ready-sent
fail: no node comes or goes: assign assign-sent fence fence-asked fenced fenced-sent
fail: no slot has lost its node: slot-read slot-read-done dirty-sent resync flush slot-clear slot-clear-done
fail: no member comes: rebuild
add: there is no round: query query-sent hello-sent state state-sent claim-sent ready ready-sent
add: no node comes or goes: assign assign-sent fence fence-asked fenced fenced-sent
add: orphan slots are only written anew, for the new member; what is dirty in them stays as it was told: slot-read slot-read-done dirty-sent
add: what the new member lacks is rebuilt: resync
take-over: nobody joins: assign assign-sent
take-over: no operator asks: admin-sent admin-done admin-done-sent
take-over: no member comes: rebuild
'

steps=$(DDRAIDD_FAILPOINT='?' "$top_builddir/ddraidd" 2>&1 | sed -n 's/.*the steps: //p')
[ -n "$steps" ] || { echo "FAILED: the daemon does not tell its steps"; exit 1; }
awk -v lacks="$lacks" -v steps="$steps" '
	# What a node that was lost does when it is back is a join, too.
	function kill_at(op, step) {
		sub(/:.*/, "", step)
		taken[op, step] = 1
	}
	function wrong(text) { print "FAILED: " text; bad = 1 }
	$4 !~ /\/leader\.sh$/ { next }
	{
		for (i = 6; i <= NF; i++)
			kill_at($5 == "fail-add" ? (i % 2 ? "add" : "fail") : $5, $i)
	}
	END {
		n = split(steps, line, " ")
		for (i = 1; i <= n; i++)
			known[line[i]] = 1
		n = split(lacks, line, "\n")
		for (i = 1; i <= n; i++) {
			if (split(line[i], part, ": ") != 3)
				continue
			m = split(part[3], step, " ")
			for (j = 1; j <= m; j++)
				excused[part[1], step[j]] = part[2]
		}
		split("join fail add take-over", ops, " ")
		for (o in ops) for (s in known)
			if (!((ops[o], s) in taken) && !((ops[o], s) in excused))
				wrong(ops[o] ": no scenario kills the leader at " s ", and no reason is given")
		for (k in taken) {
			split(k, part, SUBSEP)
			if (!(part[2] in known))
				wrong(part[1] ": the daemon has no step " part[2])
			if (k in excused)
				wrong(part[1] ": said not to have " part[2] ", and a scenario takes it")
		}
		for (k in excused) {
			split(k, part, SUBSEP)
			if (!(part[2] in known))
				wrong(part[1] ": the daemon has no step " part[2] ", which it is said to lack")
		}
		exit bad
	}' "$top_srcdir/tests/cluster/run.sh"
