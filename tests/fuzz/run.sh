#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Runs fuzz targets with libFuzzer, ASan and UBSan, in a clang build of its own: build-fuzz/ in the build tree. Its last line
# is "N passed, N failed".
#
#	run.sh [--seconds N] [--jobs N] [NAME...]   each of these targets, or all, for N seconds
#	run.sh --minimise NAME...                   what was found, into tests/fuzz/corpus/NAME/: the smallest files that reach as much
#	run.sh --list                               the names
#
# What a target found that reaches new code is kept in build-fuzz/corpus/NAME, and the next run starts with it. An input that
# fails is kept in build-fuzz/findings.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir/build}
TREE=$top_builddir/build-fuzz
SEEDS=$top_srcdir/tests/fuzz/corpus
MOST_FILES=100 # of a corpus that is committed

usage() {
	sed -n '/^#	run.sh/s/^#	/  /p' "$0" >&2
	exit 2
}

list() {
	local source
	for source in "$top_srcdir"/tests/fuzz/fuzz_*.c; do
		source=${source##*/fuzz_}
		echo "${source%.c}"
	done
}

build() {
	local cc=${FUZZ_CC:-clang}
	command -v "$cc" >/dev/null || {
		echo "run.sh: there is no $cc, which libFuzzer comes with; on Debian run 'sudo tools/deps --fuzz'" >&2
		exit 1
	}
	[ ! -e "$top_srcdir/config.status" ] || {
		echo "run.sh: $top_srcdir is configured itself, so no second build can be made from it: 'make distclean', and build outside of it" >&2
		exit 1
	}
	mkdir -p "$TREE/findings"
	[ -e "$TREE/config.status" ] || (
		cd "$TREE"
		"$top_srcdir/configure" -q --enable-fuzz CC="$cc" CFLAGS='-g -O1' >configure.log 2>&1 ||
			{ tail -n 20 configure.log >&2; exit 1; }
	)
	# What clang warns of that gcc does not is no business of a fuzzer.
	env -u MAKEFLAGS -u MFLAGS make -C "$TREE" -j"$(nproc)" WARN_CFLAGS=-w fuzzers >"$TREE/make.log" 2>&1 ||
		{ tail -n 20 "$TREE/make.log" >&2; exit 1; }
}

# Prints how it went; fails with its target.
fuzz_one() { # NAME
	local name=$1 log=$TREE/$1.log status=0 found tmp args=()
	mkdir -p "$TREE/corpus/$name"
	[ ! -e "$top_srcdir/tests/fuzz/$name.dict" ] || args+=("-dict=$top_srcdir/tests/fuzz/$name.dict")
	# A target's own files go to a folder that goes with it.
	tmp=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
	(cd "$tmp" && TMPDIR=$tmp "$TREE/tests/fuzz/fuzz_$name" "${args[@]}" -max_total_time="$SECONDS_EACH" -timeout=20 \
		-rss_limit_mb=1500 -artifact_prefix="$TREE/findings/$name-" -print_final_stats=1 \
		"$TREE/corpus/$name" "$SEEDS/$name") >"$log" 2>&1 || status=$?
	rm -rf "$tmp"
	awk -v name="$name" -v status="$status" '
		/ cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
		/number_of_executed_units/ { runs = $2 }
		/new_units_added/ { fresh = $2 }
		END { printf "%-16s %s: %d runs, coverage %d, %d new inputs\n", name,
			status == 0 ? "ok" : "FAILED", runs, cov, fresh }' "$log"
	[ "$status" != 0 ] || return 0
	found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
	grep -E '^(==[0-9]+==|.*runtime error:|.*Assertion .* failed|SUMMARY|    #[0-9]+ )' "$log" | grep -v ' in fuzzer::' |
		sed -E 's/0x[0-9a-f]+ in //; s/ \(BuildId.*//; s/^/    | /' | head -n 20 || true
	if [ -n "$found" ]; then
		echo "    again:   $TREE/tests/fuzz/fuzz_$name $found"
		echo "    keep it: cp $found $SEEDS/$name/ # once it is mended"
	else
		echo "    its output: $log"
	fi
	return 1
}

# Files of the corpus with names of their own were put there by hand and stay.
minimise() { # NAME
	local name=$1 out file files most hash='.*/[0-9a-f]{40}'
	out=$(mktemp -d "$TREE/minimised.XXXXXX")
	mkdir -p "$TREE/corpus/$name"
	# A copy: a run that goes on replaces files.
	cp -r "$TREE/corpus/$name" "$out.all" 2>/dev/null || true
	"$TREE/tests/fuzz/fuzz_$name" -set_cover_merge=1 "$out" "$SEEDS/$name" "$out.all" >"$TREE/$name-merge.log" 2>&1 ||
		{ echo "run.sh: the corpus of $name can't be minimised; see $TREE/$name-merge.log" >&2; exit 1; }
	files=$(find "$out" -type f | wc -l)
	find "$SEEDS/$name" -regextype posix-extended -type f -regex "$hash" -delete
	find "$SEEDS/$name" -type f | while read -r file; do
		rm -f "$out/$(sha1sum <"$file" | cut -d' ' -f1)"
	done
	# Their names are hashes: in this order small and large ones are mixed.
	most=$((MOST_FILES - $(find "$SEEDS/$name" -type f | wc -l)))
	find "$out" -type f -size -8k | sort | head -n "$most" | while read -r file; do
		cp "$file" "$SEEDS/$name/"
	done
	rm -rf "$out" "$out.all"
	echo "$name: $files files reach all, $(find "$SEEDS/$name" -type f | wc -l) are in the corpus, $(du -sb "$SEEDS/$name" | cut -f1) bytes"
}

SECONDS_EACH=60 JOBS=1 what=fuzz names=()
while [ $# -gt 0 ]; do
	case $1 in
	--list) list; exit ;;
	--minimise) what=minimise ;;
	--seconds | --jobs)
		[[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage
		if [ "$1" = --jobs ]; then JOBS=$2; else SECONDS_EACH=$2; fi
		shift
		;;
	-*) usage ;;
	*)
		[ -e "$top_srcdir/tests/fuzz/fuzz_$1.c" ] || { echo "run.sh: there is no target $1; --list names them" >&2; exit 2; }
		names+=("$1")
		;;
	esac
	shift
done
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(list)

build
if [ $what = minimise ]; then
	for name in "${names[@]}"; do minimise "$name"; done
	exit
fi

passed=0 failed=0
one_ended() {
	if wait -n; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
trap 'trap - INT TERM; kill $(jobs -p) 2>/dev/null || true; exit 130' INT TERM
running=0
for name in "${names[@]}"; do
	[ $running -lt "$JOBS" ] || { one_ended; running=$((running - 1)); }
	fuzz_one "$name" &
	running=$((running + 1))
done
while [ $running -gt 0 ]; do one_ended; running=$((running - 1)); done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
