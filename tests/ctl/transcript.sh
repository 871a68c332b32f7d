#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# ddraidctl against a ddraidd that answers with canned replies. What it asked, what it printed and
# its exit status go into a transcript, which must be the one in transcript.expected. `--update` writes
# that file anew: look at the difference before it is committed.
set -eu
export LC_ALL=C TZ=UTC
. "$(dirname "$0")/lib.sh"
expected=$top_srcdir/tests/ctl/transcript.expected
own_version='s/^ddraidctl [0-9].*/ddraidctl VERSION/; s/"ddraidctl": "[^"]*"/"ddraidctl": "VERSION"/'
own_names="s|$tmp|TMP|g; s/its process [0-9]*/its process PID/"
out=$tmp/transcript
: >"$out"

new() {
	printf '==== %s\n' "$1" >>"$out"
	plan_new
}

say_command() {
	printf '$ ddraidctl' >>"$out"
	[ $# = 0 ] || printf ' %q' "$@" >>"$out"
	echo >>"$out"
}

# Progress goes to a file, so it is printed as for a log.
run() {
	local status=0 f

	start_fake
	say_command "$@"
	(cd "$tmp/d" && timeout -k 10 20 "$ctl" --ipc "$socket" "$@" >"$tmp/stdout" 2>"$tmp/stderr") || status=$?
	for f in $(ls "$tmp/d" | grep '^request' | sort); do
		protoc --proto_path="$top_srcdir/proto" --decode=ddraid.ctl.Request ctl.proto \
			<"$tmp/d/$f" | sed "s|$tmp|TMP|g; s/^/> /" >>"$out"
	done
	sed "$own_names; s/^/! /" "$tmp/stderr" >>"$out"
	sed "$own_version; $own_names; s/^/| /" "$tmp/stdout" >>"$out"
	case " $* " in *' --json '*)
		if [ -s "$tmp/stdout" ] && ! /usr/bin/python3 -m json.tool "$tmp/stdout" >/dev/null; then
			echo "NOT JSON" >>"$out"
		fi
		;;
	esac
	echo "exit $status" >>"$out"
	stop_fake
}

# As run, with standard error on a terminal, and without what was asked. This side keeps the terminal
# open and ends the text itself: after the last close a reader may get EIO with text still unread.
on_terminal() {
	local status=0

	start_fake
	say_command "$@"
	/usr/bin/python3 - "$ctl" --ipc "$socket" "$@" >>"$out" <<-'EOF' || status=$?
	import os, pty, subprocess, sys, threading
	end = b"\0end"
	leader, terminal = pty.openpty()
	p = subprocess.Popen(sys.argv[1:], stderr=terminal)
	threading.Thread(target=lambda: (p.wait(), os.write(terminal, end))).start()
	text = b""
	while not text.endswith(end):
	    text += os.read(leader, 4096)
	text = text[:-len(end)]
	for line in text.replace(b"\r\n", b"\n").splitlines(True):
	    print("!", repr(line)[2:-1])
	sys.exit(p.wait())
	EOF
	echo "exit $status" >>"$out"
	stop_fake
}

geometry='geometry { order: 2 parity: 1 slots: 32 stripe_bytes: 4096 band_bytes: 65536
	region_bytes: 4194304 member_bytes: 1073741824 size_bytes: 4290772992 regions: 1023 }'
member() { # INDEX FIELDS
	echo "member { index: $1 uri: \"nbd://10.0.0.$1/m$1\" $2 }"
}
up='state: 1 connected: true size_bytes: 1073741824'
members="$(member 0 "$up") $(member 1 "$up") $(member 2 "$up") $(member 3 "$up")"
nodes='
	node { id: 1 name: "n1" state: NODE_ACTIVE self: true leader: true inc: 17 slot: 1 }
	node { id: 2 name: "n2" state: NODE_ACTIVE inc: 18 slot: 2 }'
array="name: \"vol0\" uuid: \"0123456789abcdef\" state: ARRAY_ACTIVE leader: 1 leading: true
	epoch_num: 12 epoch_inc: 17 $geometry nodes: 3 slot: 1 regions_dirty: 3
	counters { marks: 12 clears: 9 page_writes: 30 lock_requests: 14 reads: 100 writes: 2000
		read_bytes: 409600 write_bytes: 8192000 }
	lock_backend: \"cpg\" fence: \"command /etc/ddraid/fence\" incarnation: 17
	front_end { kind: \"nbd\" address: \"nbd+unix:///vol0?socket=/run/ddraid/vol0.nbd\"
		also: \"nbd://127.0.0.1:10809/vol0\"
		client { peer: \"pid 4711\" since_ms: 61000 ios: 3 } }"
whole="$array io_allowed: true $members $(member 4 "$up") $nodes
	node { id: 3 name: \"n3\" state: NODE_ACTIVE inc: 19 slot: 3 }"
held="$array degraded: true missed_from: 9 regions_missed: 40
	waits: \"the fence of a departed node\" waits_node: 3 waits_ms: 12345
	unfenced: 1 slots_unrecovered: 1 regions_to_resync: 7
	warning: \"fence is none: a dead node's writes may still land\"
	recovery { node: 2 inc: 11 slot: 2 lost_at_ms: 1700000000123 fenced_at_ms: 1700000000373
		read_at_ms: 1700000000400 done_at_ms: 1700000001500 marked: 12 regions: 12 bytes: 50331648
		read_bytes: 4096 }
	recovery { node: 1 inc: 10 slot: 1 lost_at_ms: 1700000050000 fenced_at_ms: 1700000050002 fenced_before: true
		read_at_ms: 1700000050010 done_at_ms: 1700000050020 }
	recovery { node: 3 inc: 19 slot: 3 lost_at_ms: 1700000100000 }
	unsynced { first: 4 count: 3 } unsynced { first: 90 count: 4 }
	$members $(member 4 'state: 3 down_ms: 75000 left: 9 reason: "its connection broke off, on node 2" changed_at_ms: 1700000000123 error: "Connection refused"')
	$nodes node { id: 3 name: \"n3\" state: NODE_UNFENCED since_ms: 12345
		detail: \"/etc/ddraid/fence failed after 12 ms: no answer\" }"
rebuilding="name: \"vol1\" uuid: \"fedcba9876543210\" state: ARRAY_ACTIVE io_allowed: true degraded: true
	leader: 2 epoch_num: 30 $geometry nodes: 2 lock_backend: \"cpg\" fence: \"zombie_timeout 10 s\"
	progress { text: \"rebuild of member 0\" done: 300 total: 1023 rate: 20 unit: \"regions\" unit_bytes: 4194304 }
	$(member 0 'state: 5 connected: true rebuilt_upto: 300 rebuilt_permille: 293')"

new "status of an array that is whole"
reply "final: true status { $whole }"
run status

new "a rebuild that waits for a node says so, users are served"
reply "final: true status { name: \"vol1\" uuid: \"fedcba9876543210\" state: ARRAY_ACTIVE io_allowed: true degraded: true
	$geometry progress { text: \"rebuild\" total: 1023 unit: \"regions\" unit_bytes: 4194304
		waits: \"a node to read its slot of the dirty log\" waits_node: 2 waits_ms: 4200 } $nodes }"
run status vol1

new "an array that is refused says because of what"
reply 'final: true status { name: "vol0" uuid: "0123456789abcdef" state: ARRAY_REFUSED waits: "its members are in use by node 2 (x) of cluster other; stop it there first" waits_ms: 4200 }'
run status vol0
run status vol0 --json

new "so does its start"
reply 'progress { text: "starting" waits: "the leader'"'s"' recovery" waits_ms: 500 }'
reply 'progress { text: "refused" waits: "its members are in use by node 2 (x) of cluster other; stop it there first" waits_ms: 4200 }'
reply 'final: true err: -110 error: "vol0 is not active after 60 s"'
run start vol0

new "of what is refused it says since when only if that is known"
reply 'final: true status { name: "vol0" state: ARRAY_REFUSED waits: "its file is damaged" }'
run status vol0

new "status says why something waits, and for whom"
reply "final: true status { $held }"
run status vol0 --ranges

new "status of several arrays: the worst one decides"
reply "status { name: \"old\" state: ARRAY_STOPPED }"
reply "final: true status { $rebuilding }"
run status

new "degraded but served"
reply "final: true status { $rebuilding }"
run status vol1

new "status as JSON, with text that needs escapes"
reply "status { $held }"
reply 'final: true status { name: "a\"b\\c\n\001" waits: "\303\244 \377 \355\240\200" }'
run status --json --ranges

new "no arrays"
reply 'final: true'
run status

new "no arrays, as JSON"
reply 'final: true'
run status --json

new "no arrays, and what is wrong with the state directory"
reply 'final: true warning: "vol0.record is there"'
run status
run status --json

new "terminal escapes from the daemon are not passed on"
reply 'final: true status { name: "\033[2Jx" waits: "\033]0;title\007" }'
run status

new "no such array"
reply 'final: true err: -19 error: "there is no array vol9 on this node: see \"ddraidctl status\" for those that are known"'
run status vol9

new "create"
reply 'progress { text: "checking member 0 of 3" done: 0 total: 3 unit: "members" }'
reply 'progress { text: "writing the log of member 0 of 3" done: 0 total: 3 unit: "members" }'
reply 'final: true warning: "the member nbd://b/1 does not say its block size" created { name: "vol0" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 node: 2 node: 3 }'
run create vol0 --order 1 --layout=dedicated --stripe 16K --band 1M --region-size 8MiB --slots 8 \
	--set release_delay_ms=500 --wipe --old-member --unaligned nbd://a/0 nbd://b/1 disk2

new "create says which stripe was chosen"
reply 'final: true created { name: "vol0" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 stripe_bytes: 8192 stripe_why: "stripe 8 KiB: member 1 (nbd://b/1) has blocks of 4 KiB" lock_backend: "dlm" }'
run create vol0 --order 1 nbd://a/0 nbd://b/1 nbd://c/2

new "create, as JSON"
reply 'final: true created { name: "vol0" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 node: 2 stripe_bytes: 8192 stripe_why: "so" lock_backend: "cpg" }'
run create vol0 --order 1 nbd://a/0 nbd://b/1 --json /dev/c

new "create is refused"
reply 'final: true err: -17 error: "member 2 (/dev/c) carries a file system (ext4): name another device, wipe this one with '"'wipefs -a'"', or --wipe to overwrite it"'
run create vol0 --order 1 nbd://a/0 nbd://b/1 /dev/c

new "create is refused, as JSON"
reply 'final: true err: -17 error: "member 2 (/dev/c) carries \"x\": name another device"'
run create vol0 --order 1 nbd://a/0 nbd://b/1 /dev/c --json

new "create, as JSON, and its initial sync ends"
reply 'final: true created { name: "vol0" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 }'
plan next
reply 'final: true err: -125 error: "the array does not run here; start it"'
run create vol0 --order 1 /dev/a /dev/b /dev/c --wait --json

new "create waits for the initial sync"
reply 'final: true created { name: "vol0" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 }'
plan next
reply 'progress { text: "initial sync" done: 100 total: 1023 rate: 25 unit: "regions" unit_bytes: 4194304 }'
reply 'progress { text: "initial sync" done: 200 total: 1023 rate: 25 unit: "regions" unit_bytes: 4194304 }'
reply 'progress { text: "initial sync, again" done: 1 total: 0 }'
reply 'final: true'
run create vol0 --order 1 /dev/a /dev/b /dev/c --wait

new "import"
reply 'final: true created { name: "vol0" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 node: 2 stripe_bytes: 8192 }'
run import nbd://b/1 /dev/c nbd://a/0 --degraded --stale

new "import, as JSON, and it waits"
reply 'final: true created { name: "vol7" uuid: "0123456789abcdef" size_bytes: 4290772992 node: 1 stripe_bytes: 8192 }'
plan next
reply 'final: true'
run import /dev/a /dev/b --json --wait

new "import is refused"
reply 'final: true err: -22 error: "the array vol0 needs 2 of its 3 members, and 1 is there: name the others as well"'
run import /dev/a

new "start, here"
reply 'final: true'
run start vol0

new "start on all nodes, and wait until it serves"
reply 'final: true'
plan next
reply 'progress { text: "start" waits: "quorum" waits_ms: 3000 }'
reply 'progress { text: "start" waits: "the fence of a departed node" waits_node: 3 waits_ms: 3000 }'
reply 'final: true'
run start vol0 --all-nodes --stale --wait

new "stop an array that is in use"
reply 'final: true err: -1 error: "array vol0 is open by 2 clients: let them close it, or --disconnect to cut them off"'
run stop vol0

new "fail a member by its number"
reply 'final: true'
run fail vol0 3

new "fail a member by its URI"
reply "final: true status { $whole }"
plan next
reply 'final: true'
run fail vol0 nbd://10.0.0.2/m2

new "fail a member that isn't there"
reply "final: true status { $whole }"
run fail vol0 nbd://10.0.0.9/m9

new "not now"
reply 'final: true err: -11 error: "the cluster is settling; ask again"'
run fail vol0 3

new "add and wait for the rebuild"
reply 'final: true'
plan next
reply 'progress { text: "rebuild of member 3" done: 1 total: 10 unit: "regions" }'
reply 'final: true err: -125 error: "the rebuild of member 3 ended: nbd://new/3 failed; name another device with add"'
run add vol0 3 nbd://new/3 --wait

new "progress on a terminal is one line that is redrawn"
reply 'final: true'
plan next
reply 'progress { text: "rebuild of member 3" done: 1 total: 10 rate: 2 unit: "regions" unit_bytes: 4194304 }'
reply 'progress { text: "rebuild of member 3" done: 4 total: 10 rate: 2 unit: "regions" unit_bytes: 4194304 }'
reply 'progress { text: "resync of node 2" done: 4 total: 10 unit: "regions" }'
reply 'final: true err: -125 error: "member 3 failed"'
on_terminal add vol0 3 nbd://new/3 --wait

new "re-add"
reply 'final: true'
run re-add vol0 3

new "forget"
reply 'final: true'
run forget vol0 --disconnect

new "attach"
reply 'final: true attached { via: "shim" device: "/dev/ddraid0" link: "/dev/ddraid/vol0" }'
run attach vol0

new "attach, as JSON, by one way"
reply 'final: true attached { via: "nbd" device: "/dev/nbd3" link: "/dev/ddraid/vol0" }'
run attach vol0 --via nbd --json

new "attach that is not to wait for ever"
reply 'final: true attached { via: "shim" device: "/dev/ddraid0" link: "/dev/ddraid/vol0" away: "30s" }'
run attach vol0 --away 30s

new "attach that is to wait for ever again, as JSON"
reply 'final: true attached { via: "shim" device: "/dev/ddraid0" link: "/dev/ddraid/vol0" away: "hold" }'
run attach vol0 --away=hold --json

new "attach by an older ddraidd that can't wait less"
reply 'final: true attached { via: "shim" device: "/dev/ddraid0" link: "/dev/ddraid/vol0" }'
run attach vol0 --away 1500ms

new "attach is refused"
reply 'final: true err: -95 error: "vol0 is not attached: the kernel has no driver ddraid"'
run attach vol0 --via=shim

new "attach is refused, as JSON"
reply 'final: true err: -95 error: "vol0 is not attached: the kernel has no driver ddraid"'
run attach vol0 --json

new "settings of no array, as JSON"
reply 'final: true err: -19 error: "there is no array vol9 on this node"'
run get vol9 --json

new "no such array, as JSON"
reply 'final: true err: -19 error: "there is no array vol9 on this node"'
run status vol9 --json

new "status of block devices"
reply "status { $rebuilding front_end { kind: \"shim\" address: \"/dev/ddraid/vol1\" device: \"/dev/ddraid0\" opens: 1 inflight: 12 waiting: 3 away: \"30s\" } }"
reply 'final: true status { name: "vol2" state: ARRAY_ACTIVE front_end { kind: "nbd" address: "nbd://x" } front_end { kind: "nbd device" address: "/dev/ddraid/vol2" error: "the kernel has no driver nbd" away: "hold" } }'
run status

new "status of a block device, as JSON"
reply 'final: true status { name: "vol2" state: ARRAY_ACTIVE front_end { kind: "shim" address: "/dev/ddraid/vol2" device: "/dev/ddraid7" opens: 2 away: "90s" } }'
run status --json

new "detach"
reply 'final: true'
run detach vol0

new "detach what is open"
reply 'final: true err: -16 error: "/dev/ddraid0 is open (1 open: a mount, a process, or another device on it); close it"'
run detach vol0

new "detach it all the same"
reply 'final: true'
run detach vol0 --disconnect

new "nodes"
reply "final: true nodes { quorate: true cluster: \"corosync\" node { id: 1 name: \"n1\" state: NODE_ACTIVE self: true leader: true array: \"vol0\" }
	node { id: 2 name: \"n2\" state: NODE_OFFLINE since_ms: 90061000 } node { id: 3 state: NODE_ONLINE detail: \"without ddraidd\" } }"
run nodes

new "nodes, as JSON, without quorum"
reply "final: true nodes { cluster: \"corosync\" $nodes }"
run nodes --json

new "set"
reply 'final: true settings { setting { key: "release_delay_ms" value: "500" origin: "set" } }'
run set vol0 release_delay_ms=500

new "set, in two words"
reply 'final: true settings { setting { key: "when_lost" value: "eio" origin: "set" } }'
run set vol0 when_lost eio

new "set without a value"
run set vol0 release_delay_ms

new "get"
reply 'final: true settings { setting { key: "evict_ms" value: "4000" origin: "default" help: "silence that evicts a node" }
	setting { key: "release_delay_ms" value: "500" origin: "set" help: "idle time before a region is cleared" } }'
run get vol0

new "get, as JSON"
reply 'final: true settings { setting { key: "evict_ms" value: "4000" } }'
run get vol0 evict_ms --json

new "version"
reply 'final: true version_is { version: "0.1.0" ctl_version: 1 ondisk_version: 1 node: 2 uptime_ms: 7200000 pid: 99 }'
run version

new "version, as JSON"
reply 'final: true version_is { version: "0.1.0" ctl_version: 1 ondisk_version: 1 node: 2 uptime_ms: 7200000 pid: 99 }'
run version --json

new "the daemon dies within a request"
plan sleep 300
plan die
run stop vol0

new "a timeout"
plan hang
run stop vol0 --timeout 1

new "a timeout, with progress"
for i in 1 2 3 4 5 6 7 8; do
	plan sleep 250
	reply "progress { text: \"stop\" done: 0 total: 0 }"
done
run stop vol0 --timeout 1

new "a timeout says what was waited for"
for i in 1 2 3 4 5 6 7 8; do
	reply 'progress { text: "starting" waits: "the fence of a departed node" waits_node: 3 waits_ms: 500 }'
	plan sleep 250
done
run start vol0 --timeout 1

new "a timeout says why the array is refused"
reply 'progress { text: "starting" waits: "members" waits_ms: 500 }'
for i in 1 2 3 4 5 6 7 8; do
	reply 'progress { text: "refused" waits: "fewer members in sync are reachable than the data needs; connect the others" waits_ms: 4200 }'
	plan sleep 250
done
run start vol0 --timeout 1

new "a reply that is none"
head -c 100 /dev/urandom >"$tmp/d/noise"
plan raw noise
run stop vol0

new "a reply whose body is not one"
printf '\377\377\377\377' >"$tmp/d/noise"
plan send noise
run stop vol0

new "a reply that is too long"
printf '\2\0\0\0\1\0\4\0' >"$tmp/d/noise" # 256 KiB and a byte
plan raw noise
run stop vol0

new "half a reply, and the daemon's end"
printf '\2\0\0\0\100\0\0\0half' >"$tmp/d/noise"
plan raw noise
plan die
run stop vol0

new "a daemon that lets no more clients in"
reply 'final: true err: -16 error: "64 clients are connected to ddraidd, and no more are served"'
sed -i 's/^send/greet/' "$tmp/d/plan"
run stop vol0
run version

new "something else listens there"
echo '220 ready' >"$tmp/d/noise"
plan greet-raw noise
run stop vol0
run status --json

new "an older daemon"
reply 'final: true err: -38'
run nodes

stop_fake
no_daemon() {
	local status=0

	say_command "$@"
	"$ctl" --ipc "$tmp/none" "$@" >"$tmp/stdout" 2>"$tmp/stderr" || status=$?
	sed "$own_names; s/^/! /" "$tmp/stderr" >>"$out"
	sed "$own_version; $own_names; s/^/| /" "$tmp/stdout" >>"$out"
	echo "exit $status" >>"$out"
}
printf '==== %s\n' "no daemon" >>"$out"
no_daemon status
no_daemon --version
no_daemon version
no_daemon version --json
no_daemon create vol0 --order 1 a b c --json
no_daemon status --json
no_daemon status --ipc ddraid-no-such
printf '==== %s\n' "wrong usage" >>"$out"
no_daemon
no_daemon frobnicate
no_daemon status a b
no_daemon status --frob
no_daemon status --force
no_daemon status -x
no_daemon status --wait
no_daemon status --ipc 'a b'
no_daemon status --ipc "/$(printf %0107d 0)"
no_daemon status a b --json
no_daemon create
no_daemon create vol0 a b c
no_daemon create vol0 --order 4 a b c
no_daemon create vol0 --order
no_daemon create vol0 --order 1 --stripe 4KB a b c
no_daemon create vol0 --order 1 --stripe 0 a b c
no_daemon create vol0 --order 1 --band 16E a b c
no_daemon create vol0 --order 1 --layout diagonal a b c
no_daemon create vol/0 --order 1 a b c
no_daemon create vol0 --order 2 a b c
no_daemon create vol0 --order 1 --wipe=yes a b c
no_daemon create vol0 --order 1 --force a b c
no_daemon add vol0 1 a --force
no_daemon start vol0 --force
no_daemon stop vol0 --force
no_daemon detach vol0 --force
no_daemon forget vol0 --force --json
no_daemon import --force a b c
no_daemon set vol0
no_daemon set --daemon log_level=debug
no_daemon get
no_daemon attach
no_daemon attach vol0 --via
no_daemon attach vol0 --via floppy
no_daemon attach vol0 --away
no_daemon attach vol0 --away soon
no_daemon attach vol0 --away 999ms
no_daemon attach vol0 --away 1441min
no_daemon attach vol0 vol1
no_daemon attach vol0 --force
no_daemon detach vol0 --via nbd
no_daemon status --timeout 0
no_daemon help create
no_daemon help frobnicate
no_daemon create --help

if [ "${1:-}" = --update ]; then
	cp "$out" "$expected"
	exit
fi
grep -c '^====' "$out"
diff -u "$expected" "$out" || {
	echo "FAILED: ddraidctl's transcript is another; if that is right, run 'tests/ctl/transcript.sh --update'"
	exit 1
}
