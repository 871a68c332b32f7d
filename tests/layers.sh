#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The walls of the house (HACKING.md, Layers): which folder may include from which. Reads the #include lines of daemon/ and
# tools/, and fails on one that points outward.
#
# top_srcdir: as `make check` sets it; default: here.
set -eu
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
cd "$top_srcdir"

# "." means the folder itself, without those below it. A folder that stands on several lines has the longest that fits.
RULES='
daemon/base		daemon/base
daemon/ports		daemon/ports daemon/base
daemon/core		daemon/core daemon/ports daemon/base proto
daemon/core/level	daemon/core/level daemon/base
daemon/core/format	daemon/core/format daemon/core/level daemon/base
daemon/core/data	daemon/core/data daemon/core/format daemon/core/level daemon/core/. daemon/ports daemon/base
daemon/core/cluster	daemon/core/cluster daemon/core/format daemon/core/. daemon/ports daemon/base proto
daemon/adapters		daemon/adapters daemon/ports daemon/base kmod
daemon/state		daemon/state daemon/core daemon/ports daemon/base proto
daemon/runtime		daemon/runtime daemon/state daemon/core daemon/ports daemon/base proto kmod
daemon/catalog		daemon/catalog daemon/runtime daemon/state daemon/core daemon/ports daemon/base proto
daemon/ctl		daemon/ctl daemon/catalog daemon/runtime daemon/state daemon/core daemon/ports daemon/base proto
daemon/.		daemon proto
tools			tools daemon/core/format daemon/base proto
'

# FILE INCLUDED, one line each, of the tree DIR.
includes() { # DIR
	(cd "$1" && find daemon tools -name '*.[ch]' -exec grep -H '^#include "' {} + |
		sed 's/^\([^:]*\):#include "\([^"]*\)".*/\1 \2/' | sort)
}

# What breaks a rule, with the rule.
broken() {
	awk -v rules="$RULES" '
	function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
	function inside(dir, of) {
		if (of ~ /\/\.$/)
			return dir == substr(of, 1, length(of) - 2)
		return index(dir "/", of "/") == 1
	}
	BEGIN {
		count = split(rules, line, "\n")
		for (i = 1; i <= count; i++)
			if (split(line[i], word, /[ \t]+/) > 1) {
				allowed[word[1]] = line[i]
				sub(/^[^ \t]+[ \t]+/, "", allowed[word[1]])
			}
	}
	{
		dir = folder($1)
		to = $2 ~ /\// ? folder($2) : dir # its own folder, by the short name
		best = ""
		for (rule in allowed)
			if (inside(dir, rule) && length(rule) > length(best))
				best = rule
		if (best == "") {
			print $1 " has no rule: name its folder in tests/layers.sh"
			next
		}
		ok = 0
		n = split(allowed[best], may, " ")
		for (i = 1; i <= n; i++)
			if (inside(to, may[i]))
				ok = 1
		if (!ok)
			print $1 " includes " $2 ": " best " may include " allowed[best] " only"
	}'
}

all=$(includes .)
[ "$(wc -l <<<"$all")" -gt 100 ] || { echo "only $(wc -l <<<"$all") includes found"; exit 1; }
# A test that can fail.
for wrong in "daemon/base/x.c daemon/core/engine.h" "daemon/core/data/x.c daemon/core/cluster/msg.h" \
	"daemon/core/x.c daemon/runtime/array.h" "daemon/adapters/member/x.c daemon/core/engine.h" \
	"daemon/core/cluster/x.c daemon/core/level/parity.h" "daemon/catalog/x.c daemon/ctl/ctl.h" \
	"daemon/new/x.c daemon/daemon.h" "tools/ctl/x.c daemon/state/store.h"; do
	[ -n "$(broken <<<"$wrong")" ] || { echo "does not notice: $wrong"; exit 1; }
done
found=$(broken <<<"$all")
[ -z "$found" ] || { echo "$found"; exit 1; }
echo "$(wc -l <<<"$all") includes"
