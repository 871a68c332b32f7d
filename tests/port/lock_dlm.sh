#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The lock port's conformance suite on the kernel's DLM: three machines of the lab, a lock_agent on each, and the
# suite (lock_conformance, subject `remote`) here. lock_dlm.sh nodes: with machines that lose their power, or the network, or that are
# made to leave the lock space.
set -u

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
programs=$(cd "$top_builddir/tests/port" 2>/dev/null && pwd)
export CLUSTER_FLAVOUR=lab CLUSTER_TOKEN_MS=${CLUSTER_TOKEN_MS:-4000}
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"
# shellcheck disable=SC2119 # no further programs
cluster_requires || exit 77
if ! grep -qxF 'S["WITH_DLM_TRUE"]=""' "$top_builddir/config.status" 2>/dev/null; then
	echo "skipped: $top_builddir is built without libdlm"
	exit 77
fi
(flock 8 && make -C "$top_builddir" -s tests/port/lock_agent tests/port/lock_conformance) 8>"$top_builddir/lock_port.lock" >/dev/null || exit 1

subject=(remote)
[ "${1:-}" != nodes ] || subject=(remote-nodes a_crashed_node cut_off_is_granted made_to_leave)

cluster_trap
cluster_up 3 || exit 1
dir=$CLUSTER_DIR/locks
mkdir "$dir"
mkfifo "$dir/host" "$dir/answer"
declare -A agents=()
agent_start() { # N
	wait_until 60 "the DLM of machine $1" lab_dlm_ready "$1" || exit 1
	rm -f "$dir/in.$1" "$dir/out.$1"
	mkfifo "$dir/in.$1" "$dir/out.$1"
	node_exec "$1" "$programs/lock_agent" dlm "$1" <"$dir/in.$1" >"$dir/out.$1" &
	agents[$1]=$!
}
obey() { # WHAT N: what the suite asks for, of the lab
	echo "host: $1 $2"
	case $1 in
	crash) node_kill "$2" ;;
	cut) node_cut "$2" ;;
	leave) node_exec "$2" dlm_tool leave conformance & ;; # through when the daemon has closed it
	back)
		node_kill "$2"
		wait "${agents[$2]}"
		node_start "$2" && cluster_wait_quorum 30 1 2 3 && agent_start "$2"
		;;
	esac
}

for n in 1 2 3; do
	agent_start $n
done
exec 3<>"$dir/host" 4<>"$dir/answer"
LOCK_AGENTS=$dir "$programs/lock_conformance" "${subject[@]}" 3<&- 4<&- &
suite=$!
while kill -0 $suite 2>/dev/null; do
	read -r -t 1 -u 3 what n || continue
	# shellcheck disable=SC2154 # read
	if obey "$what" "$n"; then echo ok >&4; else echo failed >&4; fi
done
wait $suite
status=$?
wait "${agents[@]}"
exit $status
