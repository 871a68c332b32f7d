#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Proves that the checks can fail: each patch puts one deliberate bug into a copy of the core, and
#
# - tests/sim/bugs/*.patch: the simulator must go red on it within SEEDS seeds, with one node; cluster/*.patch: with several;
#   two/*.patch: with two. The patch's line "Expect:" names the check that is meant to catch it, and what it says (an extended
#   regular expression): one of the seeds must fail by that. Others may fail by another check that sees the same bug first, but a
#   bug that only others see fails. A line "From:" names the seed to begin with.
# - unit/*.patch: what almost no seed meets. Of the unit program in its line "Test:", the test "Expect:" must go red.
#
# A patch that no longer applies or doesn't compile fails. The core itself carries no switch for it.
#
#	tests/sim/bugs.sh [NAME...]		all, or those named; as many at a time as there are processors
#	tests/sim/bugs.sh --third N		a third of all, another one for each N; the others' patches must apply
#	tests/sim/bugs.sh --settle [NAME...]	the same, and writes the seed that caught it into each patch's line "From:"
#
# A change of the core shifts what the seeds meet. Then a patch is hunted from its old seed on, which takes its time: settle anew.
#
# Needs a built tree, with the simulator. The control at the start shows that the seeds are green without a bug.
#
# top_srcdir, top_builddir: as `make check` sets them; default: here.

set -u
src=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${top_builddir:-$src}
seeds=${SEEDS:-1000}
cc=${CC:-gcc}
jobs=$(nproc)
passed=0 failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/ddraid-bugs.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

for need in patch "$cc" ar; do
	command -v "$need" >/dev/null || { echo "bugs.sh: $need is missing; run tools/deps"; exit 77; }
done
objects=$build/tests/sim/ddraid_sim-main.o
world=$build/tests/sim/libworld.a
[ -f "$build/libddraidcore.a" ] && [ -f "$world" ] && [ -f "$objects" ] || {
	echo "bugs.sh: $build has no libddraidcore.a, tests/sim/libworld.a and tests/sim/*.o; run make simulator first"
	exit 1
}
flags="-std=gnu11 -D_GNU_SOURCE -O2 -g -fno-tree-dse"

# The core's archive with the sources named compiled anew from the tree DIR, and the objects of PROGRAM linked with it as DIR/sim.
relink() { # DIR PROGRAM FILE...
	local dir=$1 program=$2 f member
	cp "$build/libddraidcore.a" "$dir/core.a"
	shift 2
	for f in "$@"; do
		# shellcheck disable=SC2086
		$cc $flags -I"$dir" -I"$src" -I"$build" -c "$dir/$f" -o "$dir/$(basename "$f" .c).o" \
			2>>"$dir/log" || { echo "it doesn't compile: $(tail -3 "$dir/log")"; return 1; }
		# The archive's members carry automake's prefix.
		member=$(ar t "$dir/core.a" | grep -E "(^|-)$(basename "$f" .c)\.o$")
		ar d "$dir/core.a" "$member" && ar r "$dir/core.a" "$dir/$(basename "$f" .c).o" 2>/dev/null
	done
	# shellcheck disable=SC2086
	$cc -o "$dir/sim" $program "$dir/core.a" ${SIM_LIBS:--lprotobuf-c -lisal} >>"$dir/log" 2>&1 ||
		{ echo "it doesn't link: $(tail -3 "$dir/log")"; return 1; }
}

# Without a bug the same way of building must give a simulator that is green; else a bug would seem
# to be caught that the build brought in.
control() {
	local dir=$work/control
	mkdir -p "$dir/daemon" && cp -r "$src/daemon/core" "$dir/daemon/" || return 1
	relink "$dir" "$objects $world" daemon/core/data/dlog.c daemon/core/data/io.c || return 1
	timeout -k 10 "${LIMIT:-300}" "$dir/sim" --quiet --jobs "$jobs" --seeds 1..100 >"$dir/out" 2>&1 && return
	echo "without any bug the simulator is red: $(head -c 300 "$dir/out")"
	return 1
}

head_line() { # PATCH WORD
	sed -n "/^---/q; s/^$2: *//p" "$1"
}

one() { # NAME PATCH OPTIONS -> prints what caught it, or why it failed
	local dir=$work/$1 expect test program="$objects $world"
	expect=$(head_line "$2" Expect)
	test=$(head_line "$2" Test)
	[ -n "$expect" ] || { echo "no line 'Expect:' says which check is meant to catch it"; return 1; }
	[[ $2 != */unit/* ]] || [ -n "$test" ] || { echo "no line 'Test:' names the unit program"; return 1; }
	mkdir -p "$dir/daemon" && cp -r "$src/daemon/core" "$dir/daemon/" || return 1
	patch -s -p1 -d "$dir" <"$2" >"$dir/log" 2>&1 || { echo "the patch no longer applies"; return 1; }
	if [ -n "$test" ]; then
		program=$dir/test.o
		# shellcheck disable=SC2086
		$cc $flags -I"$src" -I"$src/tests/unit" -I"$build" -c "$src/tests/unit/$test.c" -o "$program" 2>>"$dir/log" ||
			{ echo "$test doesn't compile: $(tail -3 "$dir/log")"; return 1; }
	fi
	# shellcheck disable=SC2046
	relink "$dir" "$program" $(sed -n 's,^+++ b/,,p' "$2") || return 1
	if [ -n "$test" ]; then
		(ulimit -v 4000000; exec timeout -k 10 "${LIMIT:-300}" "$dir/sim" "$expect") >"$dir/out" 2>&1
		grep -m1 -E "^FAIL $expect" "$dir/out" | sed "s/^FAIL/$test:/" | cut -c1-130 | grep . && return
		echo "$test does not fail by '$expect'"
		return 1
	fi
	hunt "$dir" "$expect" "$3" "$(head_line "$2" From)" || return 1
}

# Runs more and more seeds, until one fails by the check that is meant to. A bug may make an engine
# eat memory without end: that is a failing seed like any other.
hunt() { # DIR EXPECT OPTIONS [FIRST-SEED]
	local dir=$1 first=${4:-1} from to status end=$((SECONDS + ${LIMIT:-300}))
	from=$first
	: >"$dir/all"
	for to in 1 20 60 150 300 500 "$seeds"; do
		[ "$to" -le "$seeds" ] || to=$seeds
		to=$((first - 1 + to))
		[ "$from" -le "$to" ] || break
		[ "$SECONDS" -lt "$end" ] || { echo "nothing of the kind in ${LIMIT:-300} s"; return 1; }
		# shellcheck disable=SC2086
		(ulimit -v 4000000
		exec timeout $((end - SECONDS)) "$dir/sim" --quiet --keep-going $3 \
			--seeds "$from..$to") >"$dir/out" 2>&1
		status=$?
		cat "$dir/out" >>"$dir/all"
		grep -m1 -E "^seed [0-9]+: VIOLATION $2" "$dir/out" | cut -c1-130 | grep . && return
		[ $status != 124 ] || { echo "the simulator hangs"; return 1; }
		from=$((to + 1))
	done
	if grep -q VIOLATION "$dir/all"; then
		echo "in $seeds seeds none fails by '$2', but: $(grep -m1 VIOLATION "$dir/all" | cut -c1-110)"
	else
		echo "not noticed within $seeds seeds"
	fi
	return 1
}

# One line of what became of it, and its status for the end.
report() { # NAME PATCH OPTIONS
	local why status=0 word=caught
	why=$(one "$1" "$2" "$3") || status=1 word=MISSED
	printf '%s  %-28s %s\n' "$word" "$1" "$why"
	[ $status = 1 ] || [ "$settle" = no ] || [[ $2 = */unit/* ]] || settle_from "$2" "$(sed -n 's/^seed \([0-9]*\):.*/\1/p' <<<"$why")"
	echo $status >"$work/$1.status"
	rm -rf "${work:?}/$1"
}

# A patch's seed is the one that catches it: the next run begins with that.
settle_from() { # PATCH SEED
	sed -i '/^From: /d' "$1" && sed -i "0,/^Expect:/{/^Expect:/a From: $2
}" "$1"
}

settle=no third=
if [ "${1:-}" = --settle ]; then
	settle=yes
	shift
elif [ "${1:-}" = --third ]; then
	third=$2
	shift 2
fi
why=$(control) || { echo "bugs.sh: $why"; exit 1; }
number=0 rest=()
for p in "$src"/tests/sim/bugs/{,cluster/,two/,unit/}*.patch; do
	name=$(basename "$p" .patch)
	nodes="--nodes 1"
	[[ $p != */cluster/* ]] || nodes=""
	[[ $p != */two/* ]] || nodes="--nodes 2"
	if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
		continue
	fi
	number=$((number + 1))
	if [ -n "$third" ] && [ $(((number + third) % 3)) != 0 ]; then
		if patch -s -p1 -d "$src" --dry-run <"$p" >"$work/log" 2>&1; then
			rest+=("$name")
		else
			echo "MISSED  $name: the patch no longer applies" && echo 1 >"$work/$name.status"
		fi
		continue
	fi
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
		wait -n
	done
	report "$name" "$p" "$nodes" &
done
wait
for p in "$work"/*.status; do
	[ -e "$p" ] || continue
	if [ "$(cat "$p")" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
[ ${#rest[@]} = 0 ] || echo "left out today: ${rest[*]}"
printf '%d passed, %d failed' "$passed" "$failed"
echo
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
