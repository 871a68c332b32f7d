#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What README.md says to try on one machine works when it is pasted as a block, however long the daemon takes to start; and it
# comes to an end when that does not start. As any user.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbdinfo
begin readme
sed -n '/^## To try it on one machine/,/^## Build/s/^    //p' "$top_srcdir/README.md" >"$tmp/block"
grep -q '^ddraidctl .* create' "$tmp/block" || fail "README.md has no such block any more: $(cat "$tmp/block")"
mkdir "$tmp/bin" "$tmp/home"
ln -s "$(realpath "$top_builddir/ddraidctl")" "$tmp/bin"
cat >"$tmp/bin/ddraidd" <<-EOF
	#!/bin/sh
	echo \$\$ >"$tmp/daemon"
	sleep 2
	exec "$(realpath "$top_builddir/ddraidd")" "\$@"
EOF
chmod +x "$tmp/bin/ddraidd"
pasted() {
	HOME=$tmp/home PATH=$tmp/bin:$PATH timeout -k 10 50 bash "$tmp/block" >"$tmp/out" 2>&1
}
at_end() { # bash does not wait for it
	[ ! -s "$tmp/daemon" ] || kill -s KILL "$(cat "$tmp/daemon")" 2>/dev/null || true
}
gone() {
	! kill -0 "$(cat "$tmp/daemon")"
}

pasted || fail "the last command: $(cat "$tmp/out")"
! grep -q "^ddraidctl: " "$tmp/out" || fail "a command: $(cat "$tmp/out")"
grep -q "^v0: active, I/O is served" "$tmp/out" || fail "not served: $(cat "$tmp/out")"
grep -q "export-size: 2[01][0-9]\{8\}" "$tmp/out" || fail "nbdinfo: $(cat "$tmp/out")"
kill -s TERM "$(cat "$tmp/daemon")"
until_true 20 gone
rm "$tmp/daemon"

printf '#!/bin/sh\nexit 1\n' >"$tmp/bin/ddraidd"
! pasted || fail "it works without a daemon"
grep -q "can't be reached" "$tmp/out" || fail "not said: $(cat "$tmp/out")"
