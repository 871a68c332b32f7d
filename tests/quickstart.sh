#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tools/quickstart says clearly why it doesn't start, and then leaves nothing. tests/quickstart-runs.sh runs the whole of it.
set -eu

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
quickstart=$top_srcdir/tools/quickstart
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export DDRAID_QUICKSTART_STATE=$tmp/state

# says STATUS TEXT ARG...: it ends with STATUS and prints TEXT.
says() {
	local want=$1 text=$2 got=0
	shift 2
	bash "$quickstart" "$@" >"$tmp/out" 2>&1 || got=$?
	if [ "$got" != "$want" ] || ! grep -q -- "$text" "$tmp/out"; then
		echo "FAILED: quickstart $*: exit $got, wanted $want and '$text':"
		cat "$tmp/out"
		exit 1
	fi
}

says 0 'usage: .*quickstart' --help
says 2 'usage: .*quickstart' --nonsense
says 2 'usage: .*quickstart' --keep --down
if [ "$(id -u)" != 0 ]; then
	says 1 'needs root'
	says 1 'needs root' --down
	exit 0
fi
says 0 'nothing is running' --down
echo 'ID=fedora' >"$tmp/os-release"
DDRAID_OS_RELEASE=$tmp/os-release says 1 'knows only Debian'
[ ! -e "$tmp/state" ]

# Not every machine on which `make check` runs has the room, or may make namespaces.
sed -i 's/.*/ID=debian/' "$tmp/os-release"
export DDRAID_OS_RELEASE=$tmp/os-release
unshare --net --pid --mount --uts --fork true 2>/dev/null || exit 0
[ "$(df -Pm "${TMPDIR:-/tmp}" | awk 'NR == 2 { print $4 }')" -gt 4000 ] || exit 0
mkdir "$tmp/state"
says 1 'ended without cleaning up'
echo "$$ $(sed 's/.*) //' "/proc/$$/stat" | cut -d' ' -f20)" >"$tmp/state/pid"
says 1 'another one is running'
says 1 'still at work' --down
touch "$tmp/state/kept"
says 1 'left its cluster running'
says 0 'nothing is left' --down
[ ! -e "$tmp/state" ]
