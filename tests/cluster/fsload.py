#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Load on a cluster file system, and what must be in it afterwards.

	fsload.py write DIR NODE LOG    until LOG.stop is there
	fsload.py check DIR LOG...      compares

Each round of a node: some blocks of its own file are overwritten, a file of its tree is written beside, renamed over
the old one and its folder synced, and a record is appended to a file of all nodes, under flock. Each of these is one
line in the log before (S) and one when fsync has said that it is durable (A):

	S|A block NUMBER SEQ      S|A file PATH SEQ      S|A append - SEQ

Contents follow from node, place and sequence number, which only grows, over several runs too. A block or record is one
block of the array (4 KiB), so that nothing durable shares one with what was in flight when a node died.

check: what was durable last is there, or what was begun after it; what was begun and never
durable may be there, or not, or, a block or record, be anything. Each durable record is there once.
"""
import fcntl
import os
import random
import struct
import sys
import time
import zlib

BLOCK = 4096
BLOCKS = 256
FILES = 200
HEAD = struct.Struct("<8sIIQ")  # magic, node, block, seq
MAGIC = b"fsload\n\0"


def content(node, place, seq, size=BLOCK):
	text = HEAD.pack(MAGIC, node, place, seq)
	text += random.Random("%d %d %d" % (node, place, seq)).randbytes(max(0, size - len(text) - 4))
	return (text + struct.pack("<I", zlib.crc32(text))) if size >= len(text) + 4 else text


def seq_of(data):
	"""(node, place, seq) of what content() made, or None."""
	if len(data) < HEAD.size + 4 or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
		return None
	magic, node, place, seq = HEAD.unpack_from(data)
	return (node, place, seq) if magic == MAGIC else None


def size_of(seq):
	return 64 + seq * 2654435761 % 20000


def path_of(node, file):
	return "tree.%d/d%d/d%d/f%d" % (node, file % 5, file % 7, file)


class Writer:
	def __init__(self, folder, node, log):
		self.dir, self.node, self.stop = folder, node, log + ".stop"
		self.out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
		self.seq = time.time_ns() // 1000
		self.random = random.Random(self.seq)
		self.rounds = 0

	def say(self, word, *things):
		os.write(self.out, "".join("%s %s\n" % (word, t) for t in things).encode())

	def next(self):
		self.seq += 1
		return self.seq

	def blocks(self):
		todo = [(b, self.next()) for b in self.random.sample(range(BLOCKS), 4)]
		lines = ["block %d %d" % t for t in todo]
		self.say("S", *lines)
		for b, seq in todo:
			os.pwrite(self.own, content(self.node, b, seq), b * BLOCK)
		os.fsync(self.own)
		self.say("A", *lines)

	def file(self):
		n, seq = self.random.randrange(FILES), self.next()
		path = path_of(self.node, n)
		full = os.path.join(self.dir, path)
		line = "file %s %d" % (path, seq)
		os.makedirs(os.path.dirname(full), exist_ok=True)
		self.say("S", line)
		with open(full + ".new", "wb") as f:
			f.write(content(self.node, n, seq, size_of(seq)))
			f.flush()
			os.fsync(f.fileno())
		os.rename(full + ".new", full)
		folder = os.open(os.path.dirname(full), os.O_RDONLY)
		os.fsync(folder)
		os.close(folder)
		self.say("A", line)

	def append(self):
		seq = self.next()
		line = "append - %d" % seq
		fcntl.flock(self.all, fcntl.LOCK_EX)
		try:
			self.say("S", line)
			os.lseek(self.all, 0, os.SEEK_END)
			os.write(self.all, content(self.node, 0, seq))
			os.fsync(self.all)
			self.say("A", line)
		finally:
			fcntl.flock(self.all, fcntl.LOCK_UN)

	def run(self):
		self.own = os.open(os.path.join(self.dir, "blocks.%d" % self.node), os.O_RDWR | os.O_CREAT, 0o644)
		self.all = os.open(os.path.join(self.dir, "append"), os.O_RDWR | os.O_CREAT, 0o644)
		longest = 0.0
		while not os.path.exists(self.stop):
			for what in self.blocks, self.file, self.append:
				began = time.monotonic()
				what()
				longest = max(longest, time.monotonic() - began)
			self.rounds += 1
			time.sleep(0.4) # there may be several machines to a processor
		print("node %d: %d rounds, the longest step took %.1f s" % (self.node, self.rounds, longest), flush=True)


class Known:
	def __init__(self, logs):
		self.acked, self.sent = {}, {}  # of (node, what): seq; sent: those since
		self.records, self.begun = set(), set()  # appended: (node, seq)
		for name in logs:
			node = int(name.rsplit(".", 1)[1])
			with open(name) as f:
				for line in f:
					if line.endswith("\n"):
						self.line(node, *line.split())

	def line(self, node, word, kind, place, seq):
		seq = int(seq)
		if kind == "append":
			(self.begun if word == "S" else self.records).add((node, seq))
		elif word == "S":
			self.sent.setdefault((node, kind, place), set()).add(seq)
		else:
			self.acked[node, kind, place] = seq
			self.sent[node, kind, place] = {s for s in self.sent[node, kind, place] if s > seq}


def check(folder, logs):
	known, bad = Known(logs), []
	for (node, kind, place), pending in sorted(known.sent.items()):
		acked = known.acked.get((node, kind, place))
		if kind == "block":
			if pending:
				continue # its old content may be gone with the new one
			with open(os.path.join(folder, "blocks.%d" % node), "rb") as f:
				f.seek(int(place) * BLOCK)
				got = seq_of(f.read(BLOCK))
			if got != (node, int(place), acked):
				bad.append("block %s of node %d: %s, durable was %d" % (place, node, got, acked))
			continue
		try:
			with open(os.path.join(folder, place), "rb") as f:
				data = f.read()
		except FileNotFoundError:
			data = None
		number = int(place.rsplit("f", 1)[1])
		may = pending | ({acked} if acked else set())
		if data is None:
			if acked:
				bad.append("%s is not there, durable was %d" % (place, acked))
		elif not any(data == content(node, number, s, size_of(s)) for s in may):
			bad.append("%s: %d bytes, %s, durable was %s" % (place, len(data), seq_of(data), acked))
	seen, torn = {}, 0
	if known.begun:
		with open(os.path.join(folder, "append"), "rb") as f:
			while data := f.read(BLOCK):
				got = seq_of(data)
				if not got:
					torn += 1
				else:
					seen[got[0], got[2]] = seen.get((got[0], got[2]), 0) + 1
	for record in sorted(known.records):
		if seen.get(record) != 1:
			bad.append("record %d of node %d is there %d times" % (record[1], record[0], seen.get(record, 0)))
	bad += ["a record that nobody wrote: %s" % (r,) for r in seen if r not in known.begun]
	if torn > len(known.begun - known.records):
		bad.append("%d appended blocks are none of ours" % torn)
	for line in bad[:10]:
		print(line)
	print("%d blocks and files, %d records durable, %d records that were not, %d torn; %d wrong" %
		(len(known.acked), len(known.records), len(set(seen) - known.records), torn, len(bad)))
	return bool(bad) or not known.records


if sys.argv[1] == "write":
	sys.exit(Writer(sys.argv[2], int(sys.argv[3]), sys.argv[4]).run())
sys.exit(check(sys.argv[2], sys.argv[3:]))
