#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Load on an array, and what must be on it afterwards.

	load.py write NODE NODES URI LOG FIRST SECONDS   writes, 16 in flight
	load.py check URI LOG...                         compares

Block b belongs to node b % NODES, so that nodes interleave block by block within the same regions. Each
512-byte sector says which node wrote it, with which sequence number. The log has a line per
request sent (S block seq) and acknowledged (A block seq), written through at once: what is in it
survives SIGKILL. check: every sector is of a request that was sent, and none older than the last one that
was acknowledged.
"""
import os
import struct
import sys
import time

import nbd

BLOCK = 4096
BLOCKS = 3072
DEPTH = 16


def write(node, nodes, uri, log, first, seconds):
	out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
	h = nbd.NBD()
	h.connect_uri(uri)
	mine = [b for b in range(min(h.get_size() // BLOCK, BLOCKS)) if b % nodes == node - 1]
	seq, n, flying, end = first, 0, [], time.time() + seconds

	def reap(room):
		nonlocal flying
		while len(flying) > room:
			h.poll(1000)
			done = [f for f in flying if h.aio_command_completed(f[0])]
			flying = [f for f in flying if f not in done]
			if done:
				os.write(out, "".join("A %d %d\n" % f[1:3] for f in done).encode())

	while time.time() < end:
		seq += 1
		block = mine[n % len(mine)]
		n += 1
		buf = nbd.Buffer.from_bytearray(bytearray(struct.pack("<QQ", node, seq).ljust(512, b"\x5a") * 8))
		os.write(out, b"S %d %d\n" % (block, seq))
		flying.append((h.aio_pwrite(buf, block * BLOCK), block, seq, buf))
		reap(DEPTH - 1)
	reap(0)
	print("node %d wrote %d blocks" % (node, n))


def check(uri, logs):
	acked, sent = {}, {}
	for name in logs:
		with open(name) as f:
			for line in f:
				kind, block, seq = line.split()
				block, seq = int(block), int(seq)
				if kind == "A":
					acked[block] = max(acked.get(block, 0), seq)
				else:
					sent.setdefault(block, set()).add(seq)
	h = nbd.NBD()
	h.connect_uri(uri)
	bad = 0
	for block in sorted(sent):
		data = h.pread(BLOCK, block * BLOCK)
		for at in range(0, BLOCK, 512):
			node, seq = struct.unpack_from("<QQ", data, at)
			fine = seq in sent[block] if seq else block not in acked
			if fine and seq >= acked.get(block, 0):
				continue
			bad += 1
			if bad <= 5:
				print("block %d + %d: node %d seq %d, acknowledged was %d" %
					(block, at, node, seq, acked.get(block, 0)))
	print("%d blocks written, %d acknowledged, %d sectors wrong" % (len(sent), len(acked), bad))
	return bad > 0


if sys.argv[1] == "write":
	write(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]), float(sys.argv[7]))
else:
	sys.exit(check(sys.argv[2], sys.argv[3:]))
