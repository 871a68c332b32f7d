#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""disk-hold.py DEVICE NODE: opens the device once, and writes, flushes, reads and compares a block of the node's own until
/run/hold-end is there. A line "ok N" after each round, or "failed ERRNO" and the end; an error must last."""
import errno
import mmap
import os
import sys
import time

BLOCK = 4096
device, node = sys.argv[1], int(sys.argv[2])
try:
	os.unlink("/run/hold-end")
except FileNotFoundError:
	pass
fd = os.open(device, os.O_RDWR | os.O_DIRECT)
data, back = mmap.mmap(-1, BLOCK), mmap.mmap(-1, BLOCK)
count = 0
try:
	while not os.path.exists("/run/hold-end"):
		count += 1
		at = (node * 64 + count % 64) * BLOCK
		data[:] = (b"%d %d " % (node, count)).ljust(BLOCK, b".")
		os.pwritev(fd, [data], at)
		os.fsync(fd)
		os.preadv(fd, [back], at)
		if back[:] != data[:]:
			print("wrong bytes in round %d" % count, flush=True)
			sys.exit(1)
		print("ok %d" % count, flush=True)
		time.sleep(0.05)
except OSError as e:
	print("failed", errno.errorcode[e.errno], flush=True)
	# A device that is gone may also be one of no size.
	for call in [lambda: os.preadv(fd, [back], 0), lambda: os.pwritev(fd, [data], 0)] * 10:
		try:
			if call():
				print("an open that had failed works again", flush=True)
		except OSError:
			pass
		time.sleep(0.1)
