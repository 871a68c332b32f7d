#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Load on an array, and what must be on it afterwards.

	load.py write NODE NODES URI LOG [--reconnect]   writes, DEPTH in flight, until LOG.stop is there
	load.py check URI|FILE [--lost LOG] LOG...       compares; FILE holds the user's view of the array
	load.py pending LOG...                           prints the blocks that were in flight at the end

Block b belongs to node b % NODES, so that nodes interleave block by block within the same regions; a
node takes its own in a shuffled order, and so keeps writing in all of the regions. Each 512-byte sector says where it belongs, which node wrote it, with which sequence number, and has a checksum.
Numbers only grow, over several runs too. The log has a line per request sent (S block number),
acknowledged (A) and failed (E), written through at once: what is in it survives SIGKILL.

check: every sector is of a request that was sent, and none is older than the last one that was
acknowledged; what nobody wrote is zero. A request that failed or was never answered may have
left its sectors or not.

--lost LOG: its writer died while a member was missing. A block that was in flight at its end, and that it has not
written since, may be garbage; how many are is said, and a sum over all of them, which must be the
same wherever they are read. No other block may.

Without --reconnect the first error ends `write` with status 1. With it, the writer opens the array
again until it is let in, and goes on. At the end it says what it saw.
"""
import os
import random
import struct
import sys
import time
import zlib

import nbd

BLOCK = 4096
SECTOR = 512
BLOCKS = 3072
DEPTH = 16
RATE = int(os.environ.get("LOAD_RATE", "1000"))  # writes per second at most: not all of the machine
CHUNK = 64  # blocks that check reads at once
MAGIC = b"ddrload\n"
HEAD = struct.Struct("<8sIIQQ")  # magic, node, sector within the block, block, number
MASK = (1 << 64) - 1


def fill_of(seq, i):
	"""Of each sector another, and not by XOR: else the parity of a block would be the same whatever is written
	there (a CRC is linear), and a stripe that is half new would decode to the old or the new block."""
	return struct.pack("<Q", (seq * 8 + i) * 0x9E3779B97F4A7C15 & MASK) * 60


def make_block(node, block, seq):
	out = bytearray()
	for i in range(BLOCK // SECTOR):
		text = (HEAD.pack(MAGIC, node, i, block, seq) + fill_of(seq, i))[:SECTOR - 4]
		out += text + struct.pack("<I", zlib.crc32(text))
	return out


def number_of(data, at, block):
	"""The number in a sector, or a word for what is wrong with it."""
	sector = data[at:at + SECTOR]
	if not any(sector):
		return 0
	magic, node, i, where, seq = HEAD.unpack_from(sector)
	if magic != MAGIC or zlib.crc32(sector[:-4]) != struct.unpack("<I", sector[-4:])[0]:
		return "no sector of ours, or damaged"
	if where != block or i != at % BLOCK // SECTOR:
		return "sector %d of block %d, written by node %d" % (i, where, node)
	# The checksum alone is not enough: that of the XOR of three sectors is the XOR of theirs.
	if sector[HEAD.size:-4] != fill_of(seq, i)[:SECTOR - 4 - HEAD.size]:
		return "a mixture of sectors of ours"
	return seq


class Writer:
	def __init__(self, node, nodes, uri, log, reconnect):
		self.node, self.uri, self.reconnect = node, uri, reconnect
		self.out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
		self.stop = log + ".stop"
		self.mine = [b for b in range(BLOCKS) if b % nodes == node - 1]
		random.Random(node).shuffle(self.mine)
		self.seq = time.time_ns() // 1000
		self.h, self.flying = None, []
		self.sent = self.acked = self.failed = self.opens = 0
		self.longest = 0.0

	def say(self, kind, requests):
		os.write(self.out, "".join("%s %d %d\n" % (kind, r[1], r[2]) for r in requests).encode())

	def open(self):
		while True:
			try:
				self.h = nbd.NBD()
				self.h.connect_uri(self.uri)
				self.opens += 1
				return True
			except nbd.Error as e:
				if not self.reconnect:
					raise
				if os.path.exists(self.stop + ".now"):
					return False
				time.sleep(0.1)

	def reap(self, room):
		while len(self.flying) > room:
			self.h.poll(1000)
			done = [r for r in self.flying if self.h.aio_command_completed(r[0])]
			if not done:
				continue
			now = time.monotonic()
			self.longest = max(self.longest, max(now - r[3] for r in done))
			self.flying = [r for r in self.flying if r not in done]
			self.say("A", done)
			self.acked += len(done)

	def one(self):
		block = self.mine[self.sent % len(self.mine)]
		self.seq += 1
		self.sent += 1
		buf = nbd.Buffer.from_bytearray(make_block(self.node, block, self.seq))
		self.say("S", [(0, block, self.seq)])
		self.flying.append((self.h.aio_pwrite(buf, block * BLOCK), block, self.seq, time.monotonic(), buf))
		self.reap(DEPTH - 1)

	def run(self):
		self.open()
		began = time.monotonic()
		while True:
			try:
				if os.path.exists(self.stop):
					self.reap(0)
					break
				if self.sent > RATE * (time.monotonic() - began):
					self.reap(max(0, len(self.flying) - 1))
					time.sleep(0.005)
				else:
					self.one()
			except nbd.Error as e:
				self.failed += 1
				print("node %d: %s" % (self.node, e), flush=True)
				if not self.reconnect:
					return 1
				self.say("E", self.flying)
				self.flying = []
				if not self.open():
					return 1
		print("node %d: %d writes acknowledged, %d times thrown out, the longest took %.1f s" %
			(self.node, self.acked, self.failed, self.longest), flush=True)
		return 0


class Image:
	"""A file, as if it were a connection."""

	def __init__(self, path):
		self.f = open(path, "rb")

	def pread(self, count, offset):
		self.f.seek(offset)
		return self.f.read(count)


def logs_read(logs):
	acked, sent = {}, {}
	for name in logs:
		with open(name) as f:
			for line in f:
				kind, block, seq = line.split()
				block, seq = int(block), int(seq)
				if kind == "A":
					acked[block] = max(acked.get(block, 0), seq)
				elif kind == "S":
					sent.setdefault(block, set()).add(seq)
	return acked, sent


def in_flight(name):
	requests = set()
	with open(name) as f:
		for line in f:
			kind, block, seq = line.split()
			if kind == "S":
				requests.add((int(block), int(seq)))
			else:
				requests.discard((int(block), int(seq)))
	return requests


def check(source, logs, lost):
	acked, sent = logs_read(logs)
	may_be_garbage = {block for block, seq in in_flight(lost) if seq > acked.get(block, 0)} if lost else ()
	garbage, total = set(), 0
	if source.startswith("nbd"):
		h = nbd.NBD()
		h.connect_uri(source)
	else:
		h = Image(source)
	bad = unacked = 0
	for first in range(0, BLOCKS, CHUNK):
		data = h.pread(CHUNK * BLOCK, first * BLOCK)
		for block in range(first, first + CHUNK):
			if block in may_be_garbage:
				total = zlib.crc32(data[(block - first) * BLOCK:(block - first + 1) * BLOCK], total)
		for at in range(0, CHUNK * BLOCK, SECTOR):
			block = first + at // BLOCK
			seq, known = number_of(data, at, block), acked.get(block, 0)
			if seq == known:
				continue
			if isinstance(seq, int) and seq > known and seq in sent.get(block, ()):
				unacked += 1
				continue
			if block in may_be_garbage:
				garbage.add(block)
				continue
			bad += 1
			if bad <= 5:
				print("block %d + %d: %s, acknowledged was %d" %
					(block, at % BLOCK, seq if isinstance(seq, str) else "number %d" % seq, known))
	print("%d blocks acknowledged, %d sectors of requests that were not, %d sectors wrong" %
		(len(acked), unacked, bad))
	if lost:
		print("%d of %d lost blocks are garbage, sum %08x" % (len(garbage), len(may_be_garbage), total))
	return bad > 0


def pending(logs):
	for name in logs:
		for block, _ in sorted(in_flight(name)):
			print(block)


if sys.argv[1] == "write":
	sys.exit(Writer(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], "--reconnect" in sys.argv).run())
elif sys.argv[1] == "pending":
	pending(sys.argv[2:])
elif sys.argv[3] == "--lost":
	sys.exit(check(sys.argv[2], sys.argv[5:], sys.argv[4]))
else:
	sys.exit(check(sys.argv[2], sys.argv[3:], None))
