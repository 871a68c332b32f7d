#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The fence command is asked whether it could fence at the members before it has to: by `create` and `add`, which refuse
# what it could not, and from the daemon's start on, which tells. A command that does not know the question works as before.
# On plain files, as any user.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs
begin fence-check
daemon_anew() {
	: >"$tmp/log"
	daemon_up
}
warns() {
	ctl status vol0 | grep "WARNING.*could not be fenced at all members.*$1"
}
warns_not() {
	! ctl status vol0 | grep -q "could not be fenced"
}
refused() { # WORDS COMMAND...
	local words=$1
	shift
	! ctl "$@" >"$tmp/out" 2>&1 || fail "$* was taken"
	grep -q -- "$words" "$tmp/out" || fail "$* is refused, but not with '$words': $(cat "$tmp/out")"
}

configure '[fence]' "fence_command = $tmp/fence"
for i in 0 1 2 3 bad; do
	truncate -s 24M "$tmp/m$i"
done
# Can't fence at what $tmp/no names.
cat >"$tmp/knows" <<-EOC
	#!/bin/sh
	echo "\$*" >>$tmp/asked
	[ "\$1" = --check ] || exit 0
	for uri; do
		if grep -qx "\$uri" $tmp/no; then echo "nothing is known of \$uri"; exit 78; fi
	done
EOC
# As one that was written before there was the question.
cat >"$tmp/knows-not" <<-EOC
	#!/bin/sh
	echo "\$*" >>$tmp/asked
	case \$1 in [1-9]*) exit 0 ;; esac
	echo "usage: fence NODE INCARNATION URI..."
	exit 1
EOC
chmod +x "$tmp/knows" "$tmp/knows-not"
echo "$tmp/mbad" >"$tmp/no"
cp "$tmp/knows" "$tmp/fence"
: >"$tmp/asked"

daemon_anew
refused "could not be fenced at these members.*nothing is known of $tmp/mbad" create vol0 --order 1 "$tmp/m0" "$tmp/m1" "$tmp/mbad"
refused "nothing is known of $tmp/mbad" create vol0 --order 1 --old-member "$tmp/m0" "$tmp/m1" "$tmp/mbad"
[ -z "$(tr -d '\0' <"$tmp/mbad" | head -c 1)$(tr -d '\0' <"$tmp/m0" | head -c 1)" ] || fail "something was written to a member"
ctl create vol0 --order 1 "$tmp/m0" "$tmp/m1" "$tmp/m2" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
grep -qx -- "--check $tmp/m0 $tmp/m1 $tmp/m2" "$tmp/asked" || fail "it was asked: $(cat "$tmp/asked")"
ctl fail vol0 1 || fail "fail"
refused "nothing is known of $tmp/mbad" add vol0 1 "$tmp/mbad"
ctl add vol0 1 "$tmp/m3" || fail "add"
until_true 20 grep -q -- "--check .*$tmp/m3" "$tmp/asked"
warns_not || fail "it warns"

# The command is another at the next start, or what it needs has changed.
ctl status vol0 --wait --timeout 20 >"$tmp/out" || fail "it is not synced: $(cat "$tmp/out")"
end daemon TERM
echo "$tmp/m3" >>"$tmp/no"
daemon_anew
until_true 10 warns "nothing is known of $tmp/m3"
grep -q "could not be fenced at all members.*nothing is known of $tmp/m3" "$tmp/log" || fail "the log does not say it"
echo none >"$tmp/no"
until_true 30 warns_not
grep -q "could be fenced at all members now" "$tmp/log" || fail "the log does not say that it can"

# One that does not know the question.
end daemon TERM
cp "$tmp/knows-not" "$tmp/fence"
: >"$tmp/asked"
daemon_anew
until_true 10 grep -q "does not answer --check" "$tmp/log"
warns_not || fail "it warns of what it does not know"
truncate -s 0 "$tmp/m1" && truncate -s 24M "$tmp/m1"
for i in 4 5; do truncate -s 24M "$tmp/m$i"; done
ctl create vol1 --order 1 "$tmp/m1" "$tmp/m4" "$tmp/m5" >"$tmp/out" 2>&1 || fail "create: $(cat "$tmp/out")"
ctl forget vol1 --disconnect || fail "forget"
# The fence itself goes on as before: a life that was not ended well is fenced at the next start.
end daemon KILL
: >"$tmp/asked"
daemon_anew
until_true 10 grep -q "^1 [1-9][0-9]* $tmp/m0" "$tmp/asked"
end daemon TERM
