#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The tests of the kernel driver: builds it for the lab's kernel, boots one machine of the lab, and runs
# tests/kmod/inside.sh there: run.sh [TEST...]. As root; needs the packages of `tools/deps --lab`. KMOD_MODULE=FILE tests
# that module instead.
set -u
export top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
export top_builddir=${top_builddir:-$top_srcdir}
export CLUSTER_FLAVOUR=lab LAB_BARE=yes LAB_CPUS=${LAB_CPUS:-2} LAB_MEMORY=${LAB_MEMORY:-1536}
# SLUB: freed and allocated objects are poisoned and checked.
export LAB_APPEND="${LAB_APPEND:-slub_debug=FZP log_buf_len=4M}"
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"

cluster_requires make fio mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.vfat || exit 77
top_builddir=$(cd "$top_builddir" && pwd)
module=${KMOD_MODULE:-$top_builddir/kmod/ddraid.ko}

[ -n "${KMOD_MODULE:-}" ] || lab_driver || exit 1
make -C "$top_builddir" -s tests/kmod/disk-server tests/kmod/bad-input || exit 1
cluster_trap
cluster_up 1 || { cluster_say "FAILED: the machine did not come up"; exit 1; }
# A copy, which an edit doesn't change under the shell that reads it.
cp "$top_srcdir/tests/kmod/inside.sh" "$CLUSTER_DIR/inside.sh" || exit 1
node_exec 1 env "top_srcdir=$top_srcdir" "top_builddir=$top_builddir" "KMOD_LIMIT=${KMOD_LIMIT:-120}" "KMOD_LEAKS=${KMOD_LEAKS:-}" \
	bash "$CLUSTER_DIR/inside.sh" "$module" "$@" || {
	status=$?
	[ $status != 77 ] || exit 77
	cluster_say "the machine's console:"
	tail -n 60 "$CLUSTER_DIR/node1/log/console.log" >&2
	exit $status
}
