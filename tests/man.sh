#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The manual pages know every command, option, exit status, configuration key and failpoint that the programs know,
# and no others; and they format without a warning.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
man=$top_srcdir/doc/man
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0
fail() {
	echo "FAILED: $*"
	status=1
}

# same WHAT PROGRAM'S MANUAL'S: two lists in files.
same() {
	[ -s "$2" ] || fail "found no $1"
	diff "$2" "$3" >"$tmp/diff" || {
		fail "$1: < the program, > the manual"
		cat "$tmp/diff"
	}
}

"$top_builddir/ddraidctl" help >"$tmp/help"
grep -oE -- '--[a-z][a-z-]+' "$tmp/help" | grep -v '^--help$' | sort -u >"$tmp/has"
sed -n 's/^\.\(It\|Op\) Fl Fl \([a-z-]*\).*/--\2/p; s/^\.Fl Fl \(order\|daemon\).*/--\1/p
	s/.*| Ns Fl Fl \([a-z-]*\).*/--\1/p' "$man/ddraidctl.8" | sort -u >"$tmp/says"
same "options of ddraidctl" "$tmp/has" "$tmp/says"
sed -n 's/^  \([a-z][a-z-]*\).*/\1/p' "$tmp/help" | sort -u >"$tmp/has"
sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESC/s/^\.Cm \([a-z-]*\)$/\1/p' "$man/ddraidctl.8" | sort -u >"$tmp/says"
same "commands of ddraidctl" "$tmp/has" "$tmp/says"
sed -n 's/^	EXIT_[A-Z_]* = \([0-9]*\),.*/\1/p' "$top_srcdir/tools/ctl/ctl.h" >"$tmp/has"
sed -n '/^\.Sh EXIT/,/^\.Sh EX[^I]/s/^\.It \([0-9]\)$/\1/p' "$man/ddraidctl.8" >"$tmp/says"
same "exit statuses" "$tmp/has" "$tmp/says"

"$top_builddir/ddraidd" --help | grep -oE -- '--[a-z][a-z-]+' | sort -u >"$tmp/has"
sed -n 's/^\.It .*Fl Fl \([a-z-]*\).*/--\1/p' "$man/ddraidd.8" | sort -u >"$tmp/says"
same "options of ddraidd" "$tmp/has" "$tmp/says"

if command -v /usr/bin/python3 >/dev/null; then
	/usr/bin/python3 "$top_srcdir/tests/checker/ddraid-check-members" --help | grep -oE -- '^ *--[a-z][a-z-]+' |
		tr -d ' ' | sort -u >"$tmp/has"
	sed -n 's/^\.It Fl Fl \([a-z-]*\).*/--\1/p' "$man/ddraid-check-members.8" | sort -u >"$tmp/says"
	same "options of ddraid-check-members" "$tmp/has" "$tmp/says"
fi

"$top_srcdir/cluster-conf/ddraid-export" --help | awk '{ print $2 }' | sort -u >"$tmp/has"
sed -n '/^\.Sh DESC/,/^\.Sh FILES/s/^\.It Cm \([a-z]*\)$/\1/p' "$man/ddraid-export.8" | sort -u >"$tmp/says"
same "commands of ddraid-export" "$tmp/has" "$tmp/says"
sed -n "s/^	\([a-z]*\))$/\1/p" "$top_srcdir/cluster-conf/fence-exports" | sort -u >"$tmp/has"
sed -n 's/^\.It Ic \([a-z]*\) .*/\1/p' "$man/fence-exports.8" | sort -u >"$tmp/says"
same "lines of fence-exports.conf" "$tmp/has" "$tmp/says"

# Settings of an array, as in the table of daemon/state/options.c.
if [ -e "$top_srcdir/daemon/state/options.c" ]; then
	sed -n 's/^ *{"\([a-z_]*\)", KIND_.*/\1/p' "$top_srcdir/daemon/state/options.c" | sort -u >"$tmp/has"
	sed -n '/^\.Sh SETTINGS/,/^\.Sh STATUS/s/^\.It Ic \([a-z_]*\)$/\1/p' "$man/ddraidctl.8" | sort -u >"$tmp/says"
	same "settings of an array" "$tmp/has" "$tmp/says"
fi

# Section and key, as in the table of daemon/state/config.c.
if [ -e "$top_srcdir/daemon/state/config.c" ]; then
	sed -n 's/^[ \t]*{"\([a-z]*\)", "\([a-z_]*\)", KIND_.*/\1 \2/p' "$top_srcdir/daemon/state/config.c" |
		sort -u >"$tmp/has"
	awk '/^\.Ss \[/ { s = $2; gsub(/[][]/, "", s) } /^\.Sh/ { s = "" }
		/^\.It Cm / && s && !inner { print s, $3 }
		/^\.Bl/ { depth++; inner = depth > 1 } /^\.El/ { depth--; inner = depth > 1 }' \
		"$man/ddraid.conf.5" | sort -u >"$tmp/says"
	same "keys of ddraid.conf" "$tmp/has" "$tmp/says"
fi

# Each step at which a daemon can be made to die is told.
DDRAIDD_FAILPOINT=? "$top_builddir/ddraidd" 2>&1 | sed 's/.*the steps: //' | tr ' ' '\n' | sort >"$tmp/has"
sed -n '/^\.It Ev DDRAIDD_FAILPOINT/,/^\.Sh/s/^\.It Cm //p' "$man/ddraidd.8" | sort >"$tmp/says"
same "failpoints" "$tmp/has" "$tmp/says"

if command -v groff >/dev/null && [ -e /usr/share/groff/current/tmac/doc.tmac ]; then
	for page in "$man"/*.[58]; do
		groff -mdoc -ww -Tascii "$page" 2>&1 >"$tmp/page" | grep -v 'cannot adjust' >"$tmp/warnings" || true
		[ ! -s "$tmp/warnings" ] || fail "$page: $(head -3 "$tmp/warnings")"
		[ -s "$tmp/page" ] || fail "$page: nothing came out"
	done
fi
exit $status
