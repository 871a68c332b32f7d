#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The same seed gives the same run: a few seeds run twice, in another order of seeds, in other
# processes, in memory that is filled otherwise; all that happens must be the same to the byte.
set -eu
export LC_ALL=C

top_builddir=${top_builddir:-$(cd "$(dirname "$0")/../.." && pwd)}
seeds=1..6

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# What uninitialised memory holds, and where it lies, must not matter.
run() { # PERTURB PROGRAM OPTION...
	local perturb=$1 program=$2
	shift 2
	MALLOC_PERTURB_=$perturb REPLAY=$(head -c "$((perturb * 9))" /dev/zero | tr '\0' x) \
		"$top_builddir/tests/sim/$program" "$@"
}

same() { # WHAT FILE FILE
	cmp -s "$2" "$3" && return
	echo "FAILED: $1 differs from run to run:"
	diff "$2" "$3" | head -n 6 | cut -c1-160
	exit 1
}

for program in ddraid-sim ddraid-sim-pages; do
	run 0 $program --seeds $seeds --digest --quiet | sort >"$tmp/one"
	run 165 $program --seeds $seeds --digest --quiet --jobs 2 | sort >"$tmp/two"
	[ "$(grep -c digest "$tmp/one")" = "${seeds#*..}" ] || {
		echo "FAILED: $program is not green on seeds $seeds:"
		head -n 4 "$tmp/one" | cut -c1-300
		exit 1
	}
	same "the digest of $program" "$tmp/one" "$tmp/two"
	[ "$(cut -d' ' -f4 "$tmp/one" | sort -u | wc -l)" = "${seeds#*..}" ] || {
		echo "FAILED: two seeds of $program have the same digest"
		exit 1
	}
done
# The trace says more than the digest, and a digest of nothing would always be the same.
run 0 ddraid-sim --seed 2 --trace >"$tmp/one"
run 165 ddraid-sim --seed 2 --trace >"$tmp/two"
[ "$(wc -l <"$tmp/one")" -gt 1000 ] || { echo "FAILED: a trace of nothing"; exit 1; }
same "the trace of seed 2" "$tmp/one" "$tmp/two"
