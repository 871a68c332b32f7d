#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon that was killed fences its last life before it serves again: status and log say how long that took. On plain
# files, as any user.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin lost-node
configure '[fence]' "fence_command = $tmp/fence"
cat >"$tmp/fence" <<-EOC
	#!/bin/sh
	[ "\$1" = --check ] || sleep 3
EOC
chmod +x "$tmp/fence"
array_up vol0
nbd vol0 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "a write" # so it has marked a region
end daemon KILL
daemon_up
until_true 20 holds vol0 'a["io_allowed"] and a["recoveries"] and a["recoveries"][0]["recovered_at"]'
holds vol0 'len(a["recoveries"]) == 1 and 3000 <= a["recoveries"][0]["fence_ms"] < 10000' ||
	fail "the fence took 3 s: $(ctl status vol0 --json)"
ctl status vol0 | grep -qE "^  1 +0 .* [3-9]\.[0-9][0-9] s +[3-9]\.[0-9]" || fail "the fence took 3 s: $(ctl status vol0)"
until_true 5 grep -qE "vol0: node 1: its fence answered after [3-9]\.[0-9] s" "$tmp/log"
echo "ok"
