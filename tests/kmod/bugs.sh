#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Deliberate bugs in the kernel driver: each must be caught by the test that is there for it, which must pass without it.
# bugs.sh [NAME...]. One machine of the lab, that is started anew when a bug has left it unfit for more; those come last. As root.
set -u
export top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
export top_builddir=${top_builddir:-$top_srcdir}
export CLUSTER_FLAVOUR=lab LAB_BARE=yes LAB_CPUS=${LAB_CPUS:-2} LAB_MEMORY=${LAB_MEMORY:-1536} LAB_APPEND="slub_debug=FZP log_buf_len=4M"
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"

# The bug's name, the test, and what is there instead of what (Python's strings).
bugs='
any-pass	malformed	"|| r->pass != a->pass)"				")"
pass-kept	answered_late	"r->pass = atomic64_inc_return(&dd_pass);"	"r->pass = r->pass ?: atomic64_inc_return(&dd_pass);"
one-at-a-time	several		"while (got < room && !list_empty(&q->waiting)) {"	"if (got < room && !list_empty(&q->waiting)) {"
any-result	malformed	"a->result > 0 || "					""
no-fault	malformed	"if (n != bv.bv_len)"					"if (0)"
no-fua		flags		"rq->cmd_flags & REQ_FUA ? DDRAID_FUA : 0"		"0"
no-unmap	flags		"out->flags = fua | DDRAID_UNMAP;"			"out->flags = fua;"
detach-open	detach		"if (disk->openers) {"					"if (0) {"
fails-for-ever	away		"disk->queue[i].failing = false;"			";"
never-fails	away		"mod_delayed_work(dd_away_wq, &disk->away, msecs_to_jiffies(ms));"	";"
hotplug-waits	cpu_offline	" | BLK_MQ_F_STACKING"					""
never-back	answered_late	"list_splice_init(&q->handed, &q->waiting);"		";"
back-last	answered_late	"list_splice_init(&q->handed, &q->waiting);"	"list_splice_tail_init(&q->handed, &q->waiting);"
deep-queue	bad_input	"is->depth > DDRAID_DEPTH_MAX)"				"0)"
any-user	bad_input	"if (!capable(CAP_SYS_ADMIN))"				"if (0)"
no-optimal	geometry	"blk_queue_io_opt(q, is->io_opt);"			";"
setrw		read_only	"return !on && disk->is.flags & DDRAID_READ_ONLY ? -EACCES : 0;"	"return 0;"
ro-writes	read_only	"return !(disk->is.flags & DDRAID_READ_ONLY);"		"return true;"
never-fresh	fresh		"if (there && !(is->flags & DDRAID_FRESH))"		"if (there)"
no-cookie	cookie		"disk->cookie = is->cookie;"				";"
no-attributes	udev		"device_add_disk(NULL, gd, dd_groups)"			"device_add_disk(NULL, gd, NULL)"
one-disk	two_disks	"if (!memcmp(disk->is.uuid, is->uuid, DDRAID_UUID_BYTES))"	"if (1)"
no-space	errors		"\tcase -ENOSPC:\n"					""
any-errno	errors		"default:\n\t\treturn BLK_STS_IOERR;"			"default:\n\t\treturn errno_to_blk_status(err);"
never-grows	grow		"set_capacity_and_notify(disk->gd, is->size >> SECTOR_SHIFT);"	";"
openers-stay	dying_consumer	"disk->openers--;"					";"
patience-stays	away		"cancel_delayed_work_sync(&disk->away);\n\tfor (i"	"for (i"
stale-tag	scheduler	"q->tag[blk_mq_rq_from_pdu(r)->tag] = NULL;"		"if (!blk_mq_rq_from_pdu(r)->q->elevator)\n\t\tq->tag[blk_mq_rq_from_pdu(r)->tag] = NULL;"
first-bio	filesystems	"rq_for_each_segment(bv, rq, it)"			"bio_for_each_segment(bv, rq->bio, it.iter)"
error-at-end	killed		"ddr_take_back(disk);"					"ddr_fail_all(disk, true);"
last-tag	one_queue	"tag >= disk->is.depth)"				"tag + 1 >= disk->is.depth)"
in-order	reverse		"|| r->pass != a->pass)"				"|| r->pass != a->pass || r != list_first_entry(&q->handed, struct dd_rq, entry))"
revoke-leaves	revoke		"return dd_unbind(s, DD_REVOKE);"			"return dd_unbind(s, DD_LEAVE);"
disk-unowned	unload		".owner = THIS_MODULE,\n\t.open = dd_open,"		".open = dd_open,"
session-unowned	unload		".owner = THIS_MODULE,\n\t.open = dd_control_open,"	".open = dd_control_open,"
timer-ends	away		"return BLK_EH_RESET_TIMER;"				"blk_mq_end_request(rq, BLK_STS_TIMEOUT);\n\treturn BLK_EH_DONE;"
pid-twice	races		"disk->pid = NULL;"					";"
exit-leaks	reload		"ddr_forget(disk);\n\t\tddr_kill(disk, false);"		"ddr_forget(disk);"
'

bug_build() { # DIR CHANGE
	mkdir "$1" && cp "$top_srcdir"/kmod/*.[ch] "$top_srcdir/kmod/Kbuild" "$1/" && /usr/bin/python3 -c 'import ast, sys
old, new = ast.literal_eval("(" + sys.argv[1].replace("\t", ",") + ")")
text = {file: open(file).read() for file in sys.argv[2:]}
has = [file for file in text if old in text[file]]
count = sum(text[file].count(old) for file in has)
if count != 1:
	sys.exit("%d times in the driver: %s" % (count, old))
open(has[0], "w").write(text[has[0]].replace(old, new))' "$2" "$1"/*.c && make -s -C "$kdir" M="$1" modules
}

cluster_requires make fio || exit 77
lab_image && kdir=$(lab_kdir) && lab_driver || exit 1
make -C "$top_builddir" -s tests/kmod/disk-server tests/kmod/bad-input || exit 1
top_builddir=$(cd "$top_builddir" && pwd)
cluster_trap
cluster_up 1 || { cluster_say "FAILED: the machine did not come up"; exit 1; }
cp "$top_srcdir/tests/kmod/inside.sh" "$CLUSTER_DIR/inside.sh" || exit 1
console=$CLUSTER_DIR/node1/log/console.log console_from=0

# panicked: the kernel has died since the test began, with the driver in it. Prints of what.
panicked() {
	local said
	said=$(tail -c "+$((console_from + 1))" "$console" | tr -d '\r')
	grep -q "Kernel panic" <<<"$said" && grep -q "Modules linked in:.* ddraid" <<<"$said" &&
		grep -E "Kernel panic" <<<"$said" | tail -n 1
}

# test_run MODULE TEST OUT: what inside.sh says is in OUT. A machine that has died says nothing more.
test_run() {
	local limit=40 end pid
	console_from=$(wc -c <"$console")
	case $2 in
	away) limit=90 ;;
	races | filesystems) limit=120 ;;
	esac
	end=$((SECONDS + 3 * limit + 60))
	node_exec 1 env "top_srcdir=$top_srcdir" "top_builddir=$top_builddir" KMOD_LIMIT=$limit \
		bash "$CLUSTER_DIR/inside.sh" "$1" "$2" >"$3" 2>&1 &
	pid=$!
	while kill -0 $pid 2>/dev/null && ((SECONDS < end)) && ! panicked >/dev/null; do
		sleep 0.2
	done
	! kill -0 $pid 2>/dev/null || kill_all $pid
	wait $pid
}

kill_all() { # PID: with its children
	pkill -P "$1"
	kill "$1"
} 2>/dev/null

# It answers, and takes another module.
machine_fit() {
	local client
	lab_client 1
	timeout -k 5 60 "${client[@]}" sh -c 'rmmod ddraid 2>/dev/null; ! test -e /sys/module/ddraid' </dev/null >/dev/null 2>&1
}

machine_anew() {
	cluster_say "the machine is not fit for more, and is started anew"
	node_kill 1
	node_start 1 || { cluster_say "FAILED: the machine did not come up again"; exit 1; }
}

declare -A passes=()
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
	if [ -z "${passes[$test]:-}" ]; then
		passes[$test]=no
		test_run "$top_builddir/kmod/ddraid.ko" "$test" "$CLUSTER_DIR/$test.out"
		! grep -q "^ok *$test " "$CLUSTER_DIR/$test.out" || passes[$test]=yes
		[ "${passes[$test]}" = yes ] || cat "$CLUSTER_DIR/$test.out"
		machine_fit || machine_anew
	fi
	if [ "${passes[$test]}" = no ]; then
		echo "FAILED $name: $test does not pass without it"
		bad=$((bad + 1))
		continue
	fi
	test_run "$dir/ddraid.ko" "$test" "$dir/out"
	# Its own verdict, or the kernel's: a machine that never took the module has not caught anything.
	if grep -qE "^(FAILED|HUNG) *$test\b" "$dir/out" && ! grep -q "can't be loaded anew" "$dir/out"; then
		echo "caught $name by $test: $(grep -E "^HUNG|^    \|" "$dir/out" | tail -n 1)"
		good=$((good + 1))
	elif died=$(panicked); then
		echo "caught $name by $test: $died"
		good=$((good + 1))
	elif grep -qE "^ok *$test\b" "$dir/out"; then
		echo "MISSED $name by $test"
		bad=$((bad + 1))
	else
		tail -n 20 "$dir/out"
		echo "FAILED $name: $test came to no end"
		bad=$((bad + 1))
	fi
	machine_fit || machine_anew
done 3<<<"$bugs"
echo "$good passed, $bad failed"
[ $bad = 0 ]
