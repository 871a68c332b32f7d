# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# For a test of ddraidctl against a ddraidd that answers with canned replies (fake_ddraidd.c). To be sourced; then
#
#	plan_new	nothing is planned, and nobody listens
#	reply TEXT	plans one Reply, in protobuf's text format
#	plan LINE	plans something else
#	start_fake	listens at $socket, with what is planned; stop_fake ends that
#
# $tmp is the test's folder; $tmp/d has the requests that came.
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
ctl=$top_builddir/ddraidctl fake=$top_builddir/tests/ctl/fake_ddraidd
command -v protoc >/dev/null || { echo "skipped: no protoc here"; exit 77; }

tmp=$(mktemp -d)
fake_pid=
stop_fake() {
	[ -z "$fake_pid" ] || kill "$fake_pid" 2>/dev/null || true
	[ -z "$fake_pid" ] || wait "$fake_pid" 2>/dev/null || true
	fake_pid=
}
trap 'stop_fake; rm -rf "$tmp"' EXIT
socket=$tmp/ctl

plan_new() {
	stop_fake
	rm -rf "$tmp/d"
	mkdir "$tmp/d"
	: >"$tmp/d/plan"
	replies=0
}

reply() {
	protoc --proto_path="$top_srcdir/proto" --encode=ddraid.ctl.Reply ctl.proto <<<"version: 1 $1" \
		>"$tmp/d/reply.$replies" 2>/dev/null # it complains of text that isn't UTF-8
	plan "send reply.$replies"
	replies=$((replies + 1))
}

plan() {
	echo "$*" >>"$tmp/d/plan"
}

start_fake() {
	: >"$socket.ready"
	"$fake" "$socket" "$tmp/d" >"$socket.ready" &
	fake_pid=$!
	for _ in $(seq 200); do
		! grep -q ready "$socket.ready" || return 0
		sleep 0.02
	done
	echo "FAILED: $fake does not start"
	exit 1
}
