# SPDX-License-Identifier: GPL-2.0-or-later
"""Row `size`: the cost of a request does not depend on the size of the array.

Arrays of order 1 with members of 1 GiB, 64 GiB and 100 TiB in RAM, all at once; 4 KiB requests at random in
256 MiB of each, 16 at a time on each node. Each load runs for half a second before it counts.
"""
import frame

SIZES = {"1G": 1 << 30, "64G": 64 << 30, "100T": 100 << 40}
RANGE_MB = 256
LEAST = 0.95


def load(run, world, name, kind, size, filled=True):
	"""RANGE_MB in the middle of the array, all nodes at once, each in its own part."""
	part = RANGE_MB // len(world.nodes)
	at = size & ~((1 << 20) - 1) # the middle: two members' worth of data
	words = ["--rw=write", "--bs=1M", "--iodepth=4"]
	if filled:
		words = ["--rw=rand" + kind, "--bs=4k", "--iodepth=16", "--time_based", "--runtime=%g" % run.seconds,
			"--ramp_time=0.5"]
	return frame.rate([world.fio(n, name, *words, "--size=%dM" % part, "--offset=%d" % (at + i * part * (1 << 20)))
		for i, n in enumerate(world.nodes)])


def measure(run):
	for world, nodes in ((frame.Alone(run.build), "one node"), (frame.Cluster(run.build, 3), "three nodes")):
		with world:
			for size in SIZES:
				frame.say("%s: an array with members of %s" % (nodes, size))
				world.create("m" + size, 1, world.members(3, ["memory", size]))
				for _ in range(2): # the first touch of memory is slow
					load(run, world, "m" + size, "write", SIZES[size] - (RANGE_MB << 20), filled=False)
			for kind in ("read", "write"):
				run.turns("4 KiB %ss, %s" % (kind, nodes), "1/s", {
					size: lambda size=size, kind=kind: load(run, world, "m" + size, kind,
						SIZES[size] - (RANGE_MB << 20))
					for size in SIZES}, LEAST)
