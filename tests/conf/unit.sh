#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The unit for systemd: each of its keys is one that systemd knows, and what the daemon may do is little.
set -eu
export LC_ALL=C

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
most=3.9 # `systemd-analyze security`, from 0 to 10

command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is missing (tools/deps)"; exit 77; }
tmp=$(mktemp -d /tmp/ddraid-unit-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
printf '#!/bin/sh\n' >"$tmp/ddraidd"
chmod +x "$tmp/ddraidd"
sed "s|@sbindir@|$tmp|; /^Documentation/d" "$top_srcdir/cluster-conf/ddraidd.service.in" >"$tmp/ddraidd.service"

systemd-analyze verify "$tmp/ddraidd.service" >"$tmp/out" 2>&1 || true
! grep "ddraidd.service" "$tmp/out" || { echo "FAILED: systemd does not take it"; exit 1; }
systemd-analyze security --offline=true "$tmp/ddraidd.service" >"$tmp/out" 2>&1 || true
exposure=$(sed -n 's/.*exposure level for ddraidd.service: \([0-9.]*\) .*/\1/p' "$tmp/out")
awk -v is="$exposure" -v most="$most" 'BEGIN { exit !(is != "" && is + 0 <= most) }' || {
	cat "$tmp/out"
	echo "FAILED: its exposure is '$exposure', and was $most"
	exit 1
}
for line in Restart=always RestartPreventExitStatus=2 'ExecReload=/bin/kill -HUP $MAINPID'; do
	grep -qxF "$line" "$tmp/ddraidd.service" || { echo "FAILED: no $line"; exit 1; }
done
[ "$(sed -n 's/^WatchdogSec=//p' "$tmp/ddraidd.service")" -ge 10 ] || { echo "FAILED: no WatchdogSec"; exit 1; }
