#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The lock port's conformance suite on the kernel's DLM: three machines of the lab, a lock_agent on each, and the
# suite (lock_conformance, subject `remote`) here.
set -u

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
programs=$(cd "$top_builddir/tests/port" 2>/dev/null && pwd)
export CLUSTER_FLAVOUR=lab CLUSTER_TOKEN_MS=${CLUSTER_TOKEN_MS:-3000}
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"
# shellcheck disable=SC2119 # no further programs
cluster_requires || exit 77
for program in lock_agent lock_conformance; do
	[ -x "$programs/$program" ] && continue
	echo "skipped: $program is not built in $programs (make check, with libdlm)"
	exit 77
done

cluster_trap
cluster_up 3 || exit 1
for n in 1 2 3; do
	wait_until 60 "the DLM of machine $n" node_exec "$n" dlm_tool status >/dev/null 2>&1 || exit 1
done
dir=$CLUSTER_DIR/locks
mkdir "$dir"
agents=()
for n in 1 2 3; do
	mkfifo "$dir/in.$n" "$dir/out.$n"
	node_exec "$n" "$programs/lock_agent" dlm "$n" <"$dir/in.$n" >"$dir/out.$n" &
	agents+=($!)
done
LOCK_AGENTS=$dir "$programs/lock_conformance" remote "$@"
status=$?
wait "${agents[@]}"
exit $status
