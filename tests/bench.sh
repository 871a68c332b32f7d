#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What tools/bench stands on: its emulated disk serves one request after the other, each for its time, counts them, and keeps what
# was written; and what it is asked for wrongly it refuses. That the rows themselves run is seen by `tools/check --all`.
set -eu
export LC_ALL=C

top_srcdir=$(cd "${top_srcdir:-$(dirname "$0")/..}" && pwd)
top_builddir=$(cd "${top_builddir:-$top_srcdir}" && pwd)
for p in nbdkit fio; do
	command -v $p >/dev/null || { echo "skipped: $p is missing (tools/deps)"; exit 77; }
done
/usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "skipped: no python3-libnbd (tools/deps)"; exit 77; }
[ -e "$top_builddir/tools/bench.d/disk.so" ] || { echo "skipped: tools/bench.d/disk.so is not built"; exit 77; }
tmp=$(mktemp -d /tmp/ddraid-bench-test-XXXXXX)
trap 'rm -rf "$tmp"' EXIT

for words in 'nonsense' '--turns 0' '--seconds 0' '--turns many' "--build $tmp"; do
	status=0
	# shellcheck disable=SC2086 # words
	/usr/bin/python3 "$top_srcdir/tools/bench" $words --json "$tmp/json" >"$tmp/out" 2>&1 || status=$?
	[ $status = 2 ] && grep -q '^tools/bench: ' "$tmp/out" || { echo "FAILED: $words: $status, $(cat "$tmp/out")"; exit 1; }
	[ ! -e "$tmp/json" ] || { echo "FAILED: $words: it has measured"; exit 1; }
done

# Some sanitizer builds of the plugin need a program that has the sanitizer, which nbdkit is not.
nbdkit "$top_builddir/tools/bench.d/disk.so" --dump-plugin >/dev/null 2>&1 || { echo "skipped: nbdkit does not load this disk.so"; exit 77; }
cat >"$tmp/client.py" <<'END'
import struct, sys, time
import nbd

def counters():
	with open(sys.argv[2], "rb") as f:
		return struct.unpack("6Q", f.read())

h = nbd.NBD()
h.connect_uri(sys.argv[1])
assert h.get_size() == 100 << 40
end = h.get_size() - 4096
began = time.monotonic()
bufs = [nbd.Buffer.from_bytearray(bytearray([i + 1] * 4096)) for i in range(64)]
cookies = [h.aio_pwrite(b, end - i * 4096) for i, b in enumerate(bufs)]
for c in cookies:
	while not h.aio_command_completed(c):
		h.poll(-1)
took = time.monotonic() - began
reads, read_bytes, writes, write_bytes, flushes, busy_us = counters()
assert (reads, read_bytes, flushes) == (0, 0, 0), counters()
assert (writes, write_bytes) == (64, 64 * 4096), counters()
assert busy_us == 64 * 1409, busy_us # 1000 us and 4096 bytes at 10 MB/s, rounded down
assert took >= busy_us / 1e6, (took, busy_us)
for i in range(64):
	assert h.pread(4096, end - i * 4096) == bytes([i + 1] * 4096), i
h.flush()
assert counters()[0:2] == (64, 64 * 4096) and counters()[4] == 1, counters()
END
# shellcheck disable=SC2016 # nbdkit's shell
U=$tmp timeout -k 10 60 nbdkit -U - -t 64 "$top_builddir/tools/bench.d/disk.so" size=100T latency-us=1000 rate=10000000 counters="$tmp/counters" \
	--run '/usr/bin/python3 "$U/client.py" "$uri" "$U/counters"' || { echo "FAILED: the emulated disk"; exit 1; }
