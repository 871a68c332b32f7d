#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The core makes no system calls: nothing in libddraidcore.a needs a symbol from outside that is
# not in core-symbols.allow. Also proves that this check can fail.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
CC=${CC:-cc} NM=${NM:-nm} AR=${AR:-ar}
allow=$top_srcdir/tests/core-symbols.allow

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

patterns=()
while read -r line; do
	case $line in '' | '#'*) continue ;; esac
	patterns+=("$line")
done <"$allow"
[ ${#patterns[@]} -gt 0 ] || { echo "$allow: no symbols in it"; exit 1; }

# Symbols that an archive needs and does not itself define.
needs() {
	"$NM" -P -u "$1" >"$tmp/u"
	"$NM" -P -g --defined-only "$1" >"$tmp/d"
	sed -n 's/^\([^ ]*\) [Uwv].*/\1/p' "$tmp/u" | sort -u >"$tmp/undefined"
	awk 'NF > 1 { print $1 }' "$tmp/d" | sort -u >"$tmp/defined"
	comm -23 "$tmp/undefined" "$tmp/defined"
}

allowed() {
	local p
	for p in "${patterns[@]}"; do
		# shellcheck disable=SC2254 # a pattern on purpose
		case $1 in $p) return 0 ;; esac
	done
	return 1
}

# Prints the symbols that are not allowed.
forbidden() {
	local s
	needs "$1" >"$tmp/needs"
	while read -r s; do
		allowed "$s" || echo "$s"
	done <"$tmp/needs"
}

# Makes $tmp/NAME.a of the C text on standard input.
archive() {
	cat >"$tmp/$1.c"
	# shellcheck disable=SC2086 # CC may carry options
	$CC -w -c -o "$tmp/$1.o" "$tmp/$1.c"
	rm -f "$tmp/$1.a"
	"$AR" cr "$tmp/$1.a" "$tmp/$1.o"
}

status=0
fail() {
	echo "FAILED: $*"
	status=1
}

# The check rejects what it must...
archive writes <<'C'
#include <unistd.h>
int f(void);
int f(void) { return (int)write(1, "x", 1); }
C
[ "$(forbidden "$tmp/writes.a")" = write ] || fail "a call of write(2) was not rejected"
calls=(read open socket ioctl syscall clock_gettime gettimeofday time rand random getrandom
	pthread_create pthread_mutex_lock memfd_create printf fopen getenv sleep)
for s in "${calls[@]}"; do
	echo "extern char $s[]; char *f_$s(void) { return $s; }"
done | archive calls
[ "$(forbidden "$tmp/calls.a")" = "$(printf '%s\n' "${calls[@]}" | sort)" ] ||
	fail "of ${calls[*]} only these were rejected: $(forbidden "$tmp/calls.a" | tr '\n' ' ')"
# ... and accepts what it should.
archive copies <<'C'
#include <string.h>
void g(void);
void f(void *a, const void *b, size_t n) { memcpy(a, b, n); g(); }
void g(void) { }
C
[ -z "$(forbidden "$tmp/copies.a")" ] || fail "memcpy or an own symbol was rejected"

lib=$top_builddir/libddraidcore.a
[ -e "$lib" ] || { echo "FAILED: $lib is missing: run make"; exit 1; }
bad=$(forbidden "$lib")
[ -s "$tmp/defined" ] || fail "$lib defines nothing"
for s in $bad; do
	fail "libddraidcore.a needs $s, which is not in tests/core-symbols.allow. In:"
	"$NM" -A -u "$lib" | awk -v s="$s" '$NF == s { print "  " $1 }'
done
echo "$(wc -l <"$tmp/needs") symbols from outside, $(wc -l <"$tmp/defined") of its own"
exit $status
