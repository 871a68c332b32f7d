#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every command of ddraidctl takes --json, and its standard output is one JSON object whatever happens: with the "error" and the
# "warnings" that are on standard error, and with the exit status that it has without --json.
set -eu
export LC_ALL=C
. "$(dirname "$0")/lib.sh"
cases=$tmp/cases runs=0
: >"$cases"

# What follows a command, and the daemon's answer if all is well; "alone": it asks no daemon.
command_is() { # NAME
	body=''
	case $1 in
	create) words='vol0 --order 1 /a /b /c' body='created { name: "vol0" size_bytes: 4096 node: 1 }' ;;
	import) words='/a /b /c' body='created { name: "vol0" size_bytes: 4096 node: 1 }' ;;
	start | stop | detach | forget) words=vol0 ;;
	status) words=vol0 body='status { name: "vol0" state: ARRAY_ACTIVE io_allowed: true }' ;;
	fail | re-add) words='vol0 1' ;;
	add) words='vol0 1 /d' ;;
	attach) words=vol0 body='attached { via: "shim" device: "/dev/ddraid0" link: "/dev/ddraid/vol0" }' ;;
	nodes) words='' body='nodes { quorate: true }' ;;
	set) words='vol0 key=value' body='settings { setting { key: "key" value: "value" } }' ;;
	get) words=vol0 body='settings { setting { key: "key" value: "value" } }' ;;
	version) words='' body='version_is { version: "0" }' ;;
	examine) words=$tmp/members/m0 body=alone ;;
	help) words='' body=alone ;;
	*)
		echo "FAILED: ddraidctl has a command $1: say in tests/ctl/json.sh with which words it is run, and how it is answered"
		exit 1
		;;
	esac
}

# run STATUS WORDS...: as it is, and with --json, which must not change the exit status.
run() {
	local want=$1 got=0 base=$tmp/run.$runs
	shift
	timeout -k 10 30 "$ctl" "$@" >"$base.text" 2>&1 || got=$?
	[ "$got" = "$want" ] || { echo "FAILED: ddraidctl $*: status $got, not $want"; cat "$base.text"; exit 1; }
	run_json "$want" "$@"
}
run_json() { # STATUS WORDS...
	local want=$1 got=0 base=$tmp/run.$runs
	shift
	timeout -k 10 30 "$ctl" "$@" --json >"$base.out" 2>"$base.err" || got=$?
	echo "$base $want $got $*" >>"$cases"
	runs=$((runs + 1))
}
# answered STATUS WORDS...: the plan is carried out twice.
answered() {
	plan next
	cat "$tmp/d/plan" "$tmp/d/plan" >"$tmp/twice"
	mv "$tmp/twice" "$tmp/d/plan"
	start_fake
	run "$1" --ipc "$socket" "${@:2}"
}
fine() {
	reply "final: true warning: \"a \\\"b\\\"\" warning: \"c\" $body"
}
progress() {
	reply 'progress { text: "rebuild" done: 1 total: 4 unit: "regions" }'
}

mkdir "$tmp/members"
"$top_builddir/tests/checker/mkmembers" "$tmp/members"
head -c 3000000 /dev/zero >"$tmp/zero"
"$ctl" help --json >"$tmp/help"
/usr/bin/python3 -IS -c 'import json, sys
for c in json.load(sys.stdin)["commands"]:
    print(c["name"], "wait" if "[--wait]" in c["usage"] else "-")' <"$tmp/help" >"$tmp/commands"

while read -r command waits; do
	command_is "$command"
	run 2 "$command" $words --frobnicate
	run 0 "$command" --help
	if [ "$body" = alone ]; then
		run 0 "$command" $words
		continue
	fi
	run 3 --ipc "$socket-none" "$command" $words
	plan_new
	fine
	answered 0 "$command" $words
	plan_new
	progress
	reply 'final: true err: -16 error: "vol0 is \"busy\": wait for it"'
	answered 6 "$command" $words
	plan_new
	plan die
	start_fake
	run_json 7 --ipc "$socket" "$command" $words
	[ "$waits" = wait ] || continue
	for end in 0 6; do
		plan_new
		[ "$command" = status ] || { fine; plan next; }
		progress
		progress
		case $end in
		0) reply 'final: true' ;;
		6) reply 'final: true err: -16 error: "it was stopped meanwhile"' ;;
		esac
		[ "$command$end" != status0 ] || { plan next; fine; }
		answered $end "$command" $words --wait
	done
done <"$tmp/commands"

# A daemon that says nothing. All of them at the same time, each with one of its own.
plan_new
plan hang
hangs() { # COMMAND WORDS...
	local socket=$socket.$1 status=0
	start_fake
	run_json 6 --ipc "$socket" --timeout 6 "$@" || status=$?
	stop_fake
	return $status
}
hanging=()
while read -r command waits; do
	command_is "$command"
	[ "$body" != alone ] || continue
	hangs "$command" $words &
	hanging+=($!)
	runs=$((runs + 1))
done <"$tmp/commands"
for p in "${hanging[@]}"; do
	wait "$p"
done

for usage in "" frobnicate "status a b" get "create vol0 a b c" "help frobnicate" "start v --timeout 0" -y; do
	run 2 $usage
done
plan_new
start_fake
run 2 --ipc "$socket" set vol0 novalue
stop_fake
run 0 --version
run 0 help create
run 1 examine "$tmp/zero"
run 1 examine "$tmp/nothing" "$tmp/members/m1"

/usr/bin/python3 -IS - "$cases" "$runs" <<-'EOF'
	import json, sys
	bad = count = 0
	for line in open(sys.argv[1]):
	    count += 1
	    base, want, got, words = line.rstrip("\n").split(" ", 3)
	    out, err = open(base + ".out").read(), open(base + ".err").read()
	    said = [l[11:] for l in err.splitlines() if l.startswith("ddraidctl: ")]
	    warned = [l[9:] for l in said if l.startswith("warning: ")]
	    failed = [l for l in said if not l.startswith("warning: ")]
	    try:
	        assert got == want, "status %s, not %s" % (got, want)
	        d = json.loads(out)
	        assert isinstance(d, dict), "no object"
	        assert d["warnings"] == warned, "other warnings than on standard error"
	        assert d["error"] == (failed[0] if failed else None), "another error than on standard error"
	        assert (d["error"] is None) == (got == "0"), "an error, or none, and status " + got
	        for m in d.get("members", []):
	            assert bool(m["error"]) == (got != "0" and "/m1" not in m["uri"]), "an error, or none, of " + m["uri"]
	    except (AssertionError, KeyError, ValueError) as e:
	        bad += 1
	        print("FAILED: ddraidctl %s --json: %r" % (words, e), out, err, sep="\n")
	assert count == int(sys.argv[2]) > 100, "%d of %s runs" % (count, sys.argv[2])
	print(count, "runs")
	sys.exit(bad > 0)
EOF
