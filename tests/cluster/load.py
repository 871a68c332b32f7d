#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Load on an array, and what must be on it afterwards.

	load.py write NODE NODES URI LOG [--reconnect]   writes, DEPTH in flight, until LOG.stop is there
	load.py read NODE URI LOG [--reconnect]          reads anywhere meanwhile, and compares
	load.py check URI|FILE [--durable] [--lost LOG] LOG...
	                                                 compares; FILE holds the user's view of the array
	load.py pending LOG...                           prints the blocks that were in flight at the end

Block b belongs to node b % NODES, so that nodes interleave block by block within the same regions; but of every 32 blocks
eight belong to the nodes in runs of four. A node takes its own in a shuffled order, and so keeps writing in all of the regions;
a run at once. Most of it are plain writes; some have FUA, some are zeroes or a trim, which must read as zeroes here, and now and
then there is a flush: the same ones in every run of a node. Each 512-byte sector says where it belongs, which node wrote it, with which
sequence number, and has a checksum. Numbers only grow, over several runs too. The log has a line per block of a request
sent (S block number, or Z for zeroes), acknowledged (A), that also as durable (D, it had FUA) and failed (E), and one for
a flush sent (F 0 number) and answered (G 0 number), written through at once: what is in it survives SIGKILL.

check: every sector is of a request that was sent, and none is older than the last one that was
acknowledged; what nobody wrote is zero. A request that failed or was never answered may have
left its sectors or not.

read: the same while all write. What had been acknowledged in any log, which all lie beside LOG, when the read began is
the least that it must see; and of nothing that was not sent when it ended. A block to which something was in flight meanwhile
may read as a mixture.

--durable: all exporters lost what was in their caches. What was acknowledged when a flush was sent that was answered, and
what had FUA, is the least then.

--lost LOG: its writer died while a member was missing. A block that was in flight at its end, and that it has not
written since, may be garbage; how many are is said, and a sum over all of them, which must be the
same wherever they are read. No other block may.

Without --reconnect the first error ends `write` and `read` with status 1. With it, they open the array
again until they are let in, and go on. At the end they say what they saw.
"""
import glob
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
BURST = int(os.environ.get("LOAD_BURST", "1"))  # of these at once
READS = int(os.environ.get("LOAD_READS", "20"))  # reads per second of each reader
READ = 8  # blocks of one of them
CHUNK = 64  # blocks that check reads at once
RUN = 4  # blocks that one node has side by side
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


def units_of(node, nodes):
	"""What this node writes at once: a block, or a run of them."""
	units = []
	for first in range(0, BLOCKS, RUN):
		if first // RUN % 8 >= 6:
			# The two runs of every 32 blocks go round, so that each node gets as many.
			if (first // RUN // 8 * 2 + first // RUN % 2) % nodes == node - 1:
				units.append(list(range(first, first + RUN)))
		else:
			units += [[b] for b in range(first, first + RUN) if b % nodes == node - 1]
	return units


def opened(uri, reconnect, stop):
	"""The array, or None if it is to stop meanwhile."""
	while True:
		try:
			h = nbd.NBD()
			h.connect_uri(uri)
			return h
		except nbd.Error:
			if not reconnect:
				raise
			if os.path.exists(stop):
				return None
			time.sleep(0.1)


class Writer:
	def __init__(self, node, nodes, uri, log, reconnect):
		self.node, self.uri, self.reconnect = node, uri, reconnect
		self.out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
		self.stop = log + ".stop"
		self.units = units_of(node, nodes)
		self.random = random.Random(node)
		self.random.shuffle(self.units)
		self.seq = time.time_ns() // 1000
		self.h, self.flying = None, []
		self.sent = self.acked = self.failed = 0
		self.longest = 0.0

	def say(self, kind, blocks):
		os.write(self.out, "".join("%s %d %d\n" % (kind, b, seq) for b, seq in blocks).encode())

	def take(self, ms):
		"""What is answered within this time."""
		self.h.poll(ms)
		done = [r for r in self.flying if self.h.aio_command_completed(r[0])]
		if not done:
			return
		now = time.monotonic()
		self.longest = max(self.longest, max(now - r[2] for r in done))
		self.flying = [r for r in self.flying if r not in done]
		for r in done:
			for kind in r[4]:
				self.say(kind, r[1])
		self.acked += len(done)

	def reap(self, room):
		while len(self.flying) > room:
			self.take(1000)

	def one(self):
		unit = self.units[self.sent % len(self.units)]
		at, count = unit[0] * BLOCK, len(unit) * BLOCK
		kind, flags, buf = self.random.random(), 0, None
		self.sent += 1
		self.seq += 1
		blocks = [(b, self.seq) for b in unit]
		if kind < 0.05:
			flags = nbd.CMD_FLAG_FUA
		if 0.04 <= kind < 0.12:
			self.say("Z", blocks)
			if kind < 0.08:
				id = self.h.aio_zero(count, at, flags=flags | (nbd.CMD_FLAG_NO_HOLE if kind < 0.06 else 0))
			else:
				id = self.h.aio_trim(count, at)
		else:
			data = b"".join(make_block(self.node, b, self.seq) for b in unit)
			buf = nbd.Buffer.from_bytearray(bytearray(data))
			self.say("S", blocks)
			id = self.h.aio_pwrite(buf, at, flags=flags)
		self.flying.append((id, blocks, time.monotonic(), buf, "AD" if flags & nbd.CMD_FLAG_FUA else "A"))
		if kind > 0.995:
			self.say("F", [(0, self.seq)])
			self.flying.append((self.h.aio_flush(), [(0, self.seq)], time.monotonic(), None, "G"))
		self.reap(DEPTH - 1)

	def run(self):
		self.h = opened(self.uri, self.reconnect, self.stop + ".now")
		began, until = time.monotonic(), 0
		while self.h:
			try:
				if os.path.exists(self.stop):
					self.reap(0)
					break
				due = int(RATE * (time.monotonic() - began))
				if due >= self.sent + BURST:
					until = due
				if self.sent >= until:
					if self.flying:
						self.take(0)
					time.sleep(0.005)
				else:
					self.one()
			except nbd.Error as e:
				self.failed += 1
				print("node %d: %s" % (self.node, e), flush=True)
				if not self.reconnect:
					return 1
				self.say("E", [b for r in self.flying for b in r[1] if r[4] != "G"])
				self.flying = []
				self.h = opened(self.uri, self.reconnect, self.stop + ".now")
		if not self.h:
			return 1
		print("node %d: %d writes acknowledged, %d times thrown out, the longest took %.1f s" %
			(self.node, self.acked, self.failed, self.longest), flush=True)
		return 0


class Known:
	"""What the logs say of each block. A log that grows can be read on."""

	def __init__(self, logs=()):
		self.acked = {}  # block: number
		self.durable = {}  # the same, of what had FUA, or was acknowledged before a flush
		self.own = {}  # log: what is acknowledged there
		self.flushed = {}  # number of a flush: what was acknowledged in its log when it was sent
		self.sent = {}  # block: {number: is it zeroes?}
		self.flying = {}  # block: numbers
		self.failed = {}  # the same; may still land, or have landed in part
		self.files = {}
		self.read(logs)

	def read(self, logs):
		for name in logs:
			if name not in self.files:
				self.files[name] = open(name, "rb")
			f = self.files[name]
			while True:
				at = f.tell()
				line = f.readline()
				if not line.endswith(b"\n"):
					f.seek(at)
					break
				kind, block, seq = line.split()
				self.line(kind, int(block), int(seq), self.own.setdefault(name, {}))

	def line(self, kind, block, seq, own):
		if kind in (b"S", b"Z"):
			self.sent.setdefault(block, {})[seq] = kind == b"Z"
			self.flying.setdefault(block, set()).add(seq)
			return
		if kind == b"D":
			self.durable[block] = max(self.durable.get(block, 0), seq)
			return
		if kind == b"F":
			self.flushed[seq] = dict(own)
			return
		if kind == b"G":
			for b, n in self.flushed.pop(seq).items():
				self.durable[b] = max(self.durable.get(b, 0), n)
			return
		flying, failed = self.flying.setdefault(block, set()), self.failed.setdefault(block, set())
		flying.discard(seq)
		if kind == b"A":
			# A block has one writer, with one request at a time; so what was before it is over.
			self.acked[block] = own[block] = max(self.acked.get(block, 0), seq)
			flying -= {n for n in flying if n < seq}
			failed -= {n for n in failed if n < seq}
		else:
			failed.add(seq)

	def acked_is(self, block, acked, seq):
		"""Is a sector with this number (0: zeroes) what was acknowledged?"""
		if self.sent.get(block, {}).get(acked, True):
			return seq == 0
		return seq == acked

	def newer(self, block, acked, seq):
		"""Is it of a request that was sent after the acknowledged one?"""
		sent = self.sent.get(block, {})
		if seq == 0:
			return any(zeroes and n > acked for n, zeroes in sent.items())
		return isinstance(seq, int) and seq > acked and not sent.get(seq, True)


class Reader:
	def __init__(self, node, uri, log, reconnect):
		self.node, self.uri, self.reconnect = node, uri, reconnect
		self.logs = log[:-1] + "[0-9]"
		self.stop = log + ".stop"
		self.random = random.Random(1000 + node)
		self.known = Known()
		self.reads = self.sectors = self.newer = self.mixed = self.failed = self.bad = 0

	def one(self, h):
		known = self.known
		first = self.random.randrange(BLOCKS - READ + 1)
		blocks = range(first, first + READ)
		known.read(glob.glob(self.logs))
		acked = {b: known.acked.get(b, 0) for b in blocks}
		busy = {b for b in blocks if known.flying.get(b) or known.failed.get(b)}
		began = {b: set(known.sent.get(b, ())) for b in blocks}
		data = h.pread(READ * BLOCK, first * BLOCK)
		known.read(glob.glob(self.logs))
		self.reads += 1
		for at in range(0, READ * BLOCK, SECTOR):
			b = first + at // BLOCK
			seq = number_of(data, at, b)
			self.sectors += 1
			if known.acked_is(b, acked[b], seq):
				continue
			if known.newer(b, acked[b], seq):
				self.newer += 1
			elif (b in busy or set(known.sent.get(b, ())) != began[b]) and not isinstance(seq, int):
				self.mixed += 1
			else:
				self.bad += 1
				print("node %d reads block %d + %d: %s, acknowledged was %d" % (self.node, b, at % BLOCK, seq, acked[b]), flush=True)

	def run(self):
		h = opened(self.uri, self.reconnect, self.stop)
		while h and self.bad < 5 and not (self.reads and os.path.exists(self.stop)):
			try:
				self.one(h)
				time.sleep(1 / READS)
			except nbd.Error as e:
				self.failed += 1
				print("the reader of node %d: %s" % (self.node, e), flush=True)
				if not self.reconnect:
					return 1
				h = opened(self.uri, self.reconnect, self.stop)
		print("node %d: %d reads, %d sectors, %d of them newer than acknowledged, %d a mixture, %d wrong; %d times thrown out" %
			(self.node, self.reads, self.sectors, self.newer, self.mixed, self.bad, self.failed), flush=True)
		return self.bad > 0 or not self.reads


class Image:
	"""A file, as if it were a connection."""

	def __init__(self, path):
		self.f = open(path, "rb")

	def pread(self, count, offset):
		self.f.seek(offset)
		return self.f.read(count)


def in_flight(name):
	return {(block, seq) for block, numbers in Known([name]).flying.items() for seq in numbers}


def check(source, logs, durable, lost):
	known = Known(logs)
	acked, word = (known.durable, "durable") if durable else (known.acked, "acknowledged")
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
			seq, least = number_of(data, at, block), acked.get(block, 0)
			if known.acked_is(block, least, seq):
				continue
			if known.newer(block, least, seq):
				unacked += 1
				continue
			if block in may_be_garbage:
				garbage.add(block)
				continue
			bad += 1
			if bad <= 5:
				print("block %d + %d: %s, %s was %d" %
					(block, at % BLOCK, seq if isinstance(seq, str) else "number %d" % seq, word, least))
	print("%d blocks %s, %d sectors of requests that were not, %d sectors wrong" %
		(len(acked), word, unacked, bad))
	if lost:
		print("%d of %d lost blocks are garbage, sum %08x" % (len(garbage), len(may_be_garbage), total))
	return bad > 0


def pending(logs):
	for name in logs:
		for block, _ in sorted(in_flight(name)):
			print(block)


if sys.argv[1] == "write":
	sys.exit(Writer(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], "--reconnect" in sys.argv).run())
elif sys.argv[1] == "read":
	sys.exit(Reader(int(sys.argv[2]), sys.argv[3], sys.argv[4], "--reconnect" in sys.argv).run())
elif sys.argv[1] == "pending":
	pending(sys.argv[2:])
else:
	rest, durable, lost = sys.argv[3:], False, None
	while rest[0].startswith("--"):
		if rest.pop(0) == "--durable":
			durable = True
		else:
			lost = rest.pop(0)
	sys.exit(check(sys.argv[2], rest, durable, lost))
