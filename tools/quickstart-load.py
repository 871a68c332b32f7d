#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What the nodes of tools/quickstart write, and what must be on the array afterwards.

	quickstart-load.py write NODE URI LOG AT MB RATE   writes until LOG.stop is there
	quickstart-load.py check URI AT MB LOG...          compares
	quickstart-load.py open LOG                        counts the writes without an answer

The range is MB megabytes at byte AT of the array. Of its 4 KiB blocks the even ones are node 2's, the odd
ones node 3's, so both write in the same regions all the time: 16 requests at once, RATE a second.
Each 512-byte sector says where it belongs, who wrote it, with which number, and has a
checksum. The log has a line per request sent (S block number) and acknowledged (A), and is what a
reader would know of them: it survives the writer.

check: each sector is of a request that was sent, and none is older than the last that was
acknowledged.
"""
import os
import random
import struct
import sys
import time
import zlib

import nbd

BLOCK, SECTOR, DEPTH, READ = 4096, 512, 16, 1 << 20
HEAD = struct.Struct("<8sIIQQ")  # magic, node, sector of the block, block, number
MAGIC = b"ddrquick"


def fill_of(number, i):
	"""Of each sector another, and not by XOR: else the parity would be the same whatever is written."""
	return b"%c" % (number * (2 * i + 1) % 251)


def make(node, block, number):
	out = bytearray()
	for i in range(BLOCK // SECTOR):
		text = HEAD.pack(MAGIC, node, i, block, number).ljust(SECTOR - 4, fill_of(number, i))
		out += text + struct.pack("<I", zlib.crc32(text))
	return out


def write(node, uri, log, at, mb, rate):
	out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
	h = nbd.NBD()
	h.connect_uri(uri)
	mine = list(range(node % 2, mb * (1 << 20) // BLOCK, 2))
	random.Random(node).shuffle(mine)
	flying, number, begin, longest = [], 0, time.monotonic(), 0.0

	def collect(wait_ms):
		nonlocal flying, longest
		if flying:
			h.poll(wait_ms)
		else:
			time.sleep(wait_ms / 1000)
		done = [f for f in flying if h.aio_command_completed(f[0])]
		flying = [f for f in flying if f not in done]
		longest = max([longest] + [time.monotonic() - f[4] for f in done])
		if done:
			os.write(out, "".join("A %d %d\n" % f[1:3] for f in done).encode())

	while not os.path.exists(log + ".stop"):
		early_ms = int((begin + number / rate - time.monotonic()) * 1000)
		if early_ms > 0 or len(flying) == DEPTH:
			collect(min(max(early_ms, 1), 50) if early_ms > 0 else 1000)
			continue
		block = mine[number % len(mine)]
		number += 1
		buf = nbd.Buffer.from_bytearray(make(node, block, number))
		os.write(out, b"S %d %d\n" % (block, number))
		flying.append((h.aio_pwrite(buf, at + block * BLOCK), block, number, buf, time.monotonic()))
	while flying:
		collect(1000)
	with open(log + ".longest", "w") as f:
		print("%.1f" % longest, file=f)


def read_log(logs):
	sent, acked = {}, {}
	for name in logs:
		with open(name) as f:
			for line in f:
				kind, block, number = line.split()
				block, number = int(block), int(number)
				if kind == "S":
					sent.setdefault(block, set()).add(number)
				else:
					acked[block] = max(acked.get(block, 0), number)
	return sent, acked


def number_of(data, block, i):
	"""The number in a sector; 0: it is empty; -1: it is nobody's."""
	if not any(data):
		return 0
	magic, node, sector, where, number = HEAD.unpack_from(data)
	if magic != MAGIC or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
		return -1
	# The checksum alone is not enough: that of the XOR of three sectors is the XOR of theirs.
	if data[HEAD.size:-4].strip(fill_of(number, i)):
		return -1
	return number if (node % 2, sector, where) == (block % 2, i, block) else -1


def check(uri, at, mb, logs):
	sent, acked = read_log(logs)
	h = nbd.NBD()
	h.connect_uri(uri)
	bad = 0
	for offset in range(0, mb << 20, READ):
		data = h.pread(READ, at + offset)
		for k in range(0, READ, SECTOR):
			block, i = divmod((offset + k) // SECTOR, BLOCK // SECTOR)
			number = number_of(data[k:k + SECTOR], block, i)
			if number >= acked.get(block, 0) and (not number or number in sent.get(block, ())):
				continue
			bad += 1
			if bad <= 5:
				print("block %d, sector %d: number %d, acknowledged was %d" %
					(block, i, number, acked.get(block, 0)), file=sys.stderr)
	print("%d %d %d" % (sum(len(s) for s in sent.values()), len(acked), bad))
	return bad > 0


def unanswered(log):
	n = 0
	with open(log) as f:
		for line in f:
			n += 1 if line[0] == "S" else -1
	print(n)


if sys.argv[1] == "write":
	write(int(sys.argv[2]), sys.argv[3], sys.argv[4], *map(int, sys.argv[5:8]))
elif sys.argv[1] == "open":
	unanswered(sys.argv[2])
else:
	sys.exit(check(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
