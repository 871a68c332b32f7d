#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The tests of the kernel driver, with its stand-in server and with ddraidd, on a kernel that looks for faults: KASAN, lockdep,
# kmemleak, debug objects (tests/kmod/debug.config). Builds it from Debian's linux-source-6.1 in LAB_CACHE, which takes
# 20 to 60 minutes once and 5 GB. As root.
#
#	debug-kernel.sh [SCENARIO...]	of the lab's (tests/cluster/run.sh); without one, those of the driver
#	debug-kernel.sh --test TEST...	of tests/kmod/run.sh
#	debug-kernel.sh --build		builds only
set -eu
export top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
cache=${LAB_CACHE:-/var/cache/ddraid-lab}
dir=$cache/debug-kernel
tar=/usr/src/linux-source-6.1.tar.xz

for need in flex bison bc; do
	command -v $need >/dev/null || { echo "debug-kernel: $need is missing: install flex bison bc libelf-dev libssl-dev" >&2; exit 1; }
done
[ -e "$tar" ] || { echo "debug-kernel: $tar is missing: install linux-source-6.1 flex bison bc libelf-dev libssl-dev" >&2; exit 1; }
mkdir -p "$dir"
# The source that it was unpacked from, and how it was configured.
want=$(cat "$tar" "$top_srcdir/tests/kmod/debug.config" | sha256sum | cut -c1-32)
if [ "$(cat "$dir/want" 2>/dev/null)" != "$want" ]; then
	rm -rf "$dir/source" "$dir/build" "$dir/want"
	mkdir "$dir/source" "$dir/build"
	tar -xJf "$tar" -C "$dir/source" --strip-components=1
	make -s -C "$dir/source" O="$dir/build" KCONFIG_ALLCONFIG="$top_srcdir/tests/kmod/debug.config" allnoconfig
	while IFS='=' read -r name value; do
		[ "$value" = n ] || grep -qx "$name=$value" "$dir/build/.config" ||
			{ echo "debug-kernel: $name=$value did not make it into the configuration" >&2; exit 1; }
	done < <(grep ^CONFIG_ "$top_srcdir/tests/kmod/debug.config")
	echo "$want" >"$dir/want"
fi
make -s -C "$dir/build" -j"$(nproc)" LOCALVERSION=-ddraid-debug bzImage modules
bash "$top_srcdir/tests/lib/lab-image" "$dir/image" "$dir/build"
[ "${1:-}" != --build ] || exit 0

# All of it is several times slower; KASAN does what slub_debug would. ACPI's interpreter of interrupt routes runs out of its
# time there; the MP table tells of interrupts and CPUs instead.
export LAB_IMAGE=$dir/image LAB_CPUS=2 LAB_MEMORY=${LAB_MEMORY:-3072} LAB_APPEND=${LAB_APPEND:-"log_buf_len=16M kmemleak=on acpi=noirq"}
export CLUSTER_SLOWER=${CLUSTER_SLOWER:-6} KMOD_LIMIT=${KMOD_LIMIT:-400} KMOD_LEAKS=yes
if [ "${1:-}" = --test ]; then
	shift
	exec bash "$top_srcdir/tests/kmod/run.sh" "$@"
fi
# ddraidd's heartbeats, and the answers of its members, may be late by seconds. A tenth of the memory is KASAN's, and as much
# kmemleak's; of what is left, what was written is more.
export CLUSTER_FLAVOUR=lab SCENARIO_TIMES=20 CLUSTER_TOKEN_MS=20000 HEARTBEAT=2s EVICT=20
export CLUSTER_CONF="evict = ${EVICT}s\nstop_timeout = 30s\n[members]\nrequest_timeout = 60s\n"
# After a kill the writes wait for what is resynced, a MiB in a second.
export DISK_MEMORY=1024 DISK_SECONDS=400 DISK_WRITTEN=300 DISK_STALL=200
[ $# != 0 ] || set -- kmod disk disk-nbd disk-kills disk-cache disk-memory
exec bash "$top_srcdir/tests/cluster/run.sh" --no-skip --keep-logs "$@"
