#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Deliberate bugs in the kernel driver: each must be caught by the test that is there for it. bugs.sh [NAME...].
# One machine of the lab for all; one that a bug leaves unfit for more is the end of it, so those come last. As root.
set -u
export top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
export top_builddir=${top_builddir:-$top_srcdir}
export CLUSTER_FLAVOUR=lab LAB_BARE=yes LAB_CPUS=${LAB_CPUS:-2} LAB_MEMORY=${LAB_MEMORY:-1536} LAB_APPEND="slub_debug=FZPU log_buf_len=4M"
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"

# The bug's name, the test, and what is there instead of what (Python's strings).
bugs='
any-pass	malformed	"|| r->pass != a->pass)"				")"
any-result	malformed	"a->result > 0 || "					""
no-fault	malformed	"if (n != bv.bv_len)"					"if (0)"
no-fua		flags		"rq->cmd_flags & REQ_FUA ? DDRAID_FUA : 0"		"0"
no-unmap	flags		"out->flags = fua | DDRAID_UNMAP;"			"out->flags = fua;"
detach-open	detach		"if (disk->openers) {"					"if (0) {"
fails-for-ever	away		"disk->queue[i].failing = false;"			";"
never-fails	away		"mod_delayed_work(dd_wq, &disk->away, msecs_to_jiffies(ms));"	";"
hotplug-waits	cpu_offline	" | BLK_MQ_F_STACKING"					""
never-back	answered_late	"list_splice_init(&q->handed, &q->waiting);"		";"
'

bug_build() { # DIR CHANGE
	mkdir "$1" && cp "$top_srcdir"/kmod/*.[ch] "$top_srcdir/kmod/Kbuild" "$1/" && python3 -c 'import ast, sys
old, new = ast.literal_eval("(" + sys.argv[2].replace("\t", ",") + ")")
text = open(sys.argv[1]).read()
if text.count(old) != 1:
	sys.exit("%d times in the driver: %s" % (text.count(old), old))
open(sys.argv[1], "w").write(text.replace(old, new))' "$1/ddraid.c" "$2" && make -s -C "$kdir" M="$1" modules
}

cluster_requires make fio || exit 77
lab_image && kdir=$(lab_kdir) || exit 1
make -C "$top_builddir" -s tests/kmod/disk-server tests/kmod/bad-input || exit 1
top_builddir=$(cd "$top_builddir" && pwd)
cluster_trap
cluster_up 1 || { cluster_say "FAILED: the machine did not come up"; exit 1; }
cp "$top_srcdir/tests/kmod/inside.sh" "$CLUSTER_DIR/inside.sh" || exit 1
good=0 bad=0
while read -r name test change <&3; do
	[ -n "$name" ] || continue
	[ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
	dir=$CLUSTER_DIR/bug-$name
	if ! bug_build "$dir" "$(tr -s '\t' <<<"$change")" >"$dir.log" 2>&1; then
		cat "$dir.log"
		echo "FAILED $name: not built"
		bad=$((bad + 1))
		continue
	fi
	if node_exec 1 env "top_srcdir=$top_srcdir" "top_builddir=$top_builddir" KMOD_LIMIT=30 timeout 100 \
		bash "$CLUSTER_DIR/inside.sh" "$dir/ddraid.ko" "$test" >"$dir/out" 2>&1; then
		echo "MISSED $name by $test"
		bad=$((bad + 1))
	else
		echo "caught $name by $test: $(grep '^    |' "$dir/out" | tail -n 1)"
		good=$((good + 1))
	fi
done 3<<<"$bugs"
echo "$good passed, $bad failed"
[ $bad = 0 ]
