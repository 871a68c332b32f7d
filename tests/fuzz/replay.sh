#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every fuzz target takes all files of its corpus, under whatever sanitizers this build has.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
cd "$top_srcdir/tests/fuzz"

targets=0 inputs=0
for source in fuzz_*.c; do
	name=${source#fuzz_} name=${name%.c}
	program=$top_builddir/tests/fuzz/fuzz_$name
	[ -x "$program" ] || { echo "FAILED: $source has no line in FUZZERS of Makemodule.am"; exit 1; }
	files=("corpus/$name"/*)
	[ -f "${files[0]}" ] || { echo "FAILED: there is no file in tests/fuzz/corpus/$name"; exit 1; }
	targets=$((targets + 1)) inputs=$((inputs + ${#files[@]}))
	"$program" "${files[@]}" >/dev/null 2>&1 && continue
	for file in "${files[@]}"; do
		"$program" "$file" >/dev/null 2>&1 && continue
		echo "FAILED: $program $PWD/$file"
		"$program" "$file" 2>&1 | tail -n 40
	done
	echo "FAILED: fuzz_$name, on the files above, or on all files together"
	exit 1
done
[ $targets -gt 0 ] || { echo "FAILED: found no fuzz target"; exit 1; }
echo "$targets targets, $inputs inputs"
