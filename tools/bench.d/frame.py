# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rows of tools/bench share: where things run, the load, turns and medians, the report.

A row is a module with a function measure(run). It makes a world (Alone or Cluster), arrays in it, and
calls run.turns for what is to be compared.
"""
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


class Failed(Exception):
	"""It can't be measured here; the text says why, and what to do."""


def say(text):
	print(text, file=sys.stderr, flush=True)


def wait_for(seconds, what, ready):
	end = time.monotonic() + seconds
	while not ready():
		if time.monotonic() > end:
			raise Failed("not within %d s: %s" % (seconds, what))
		time.sleep(0.05)


def output(command, **more):
	p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
		text=True, check=False, **more)
	if p.returncode:
		raise Failed("%s: %s" % (" ".join(command), p.stdout.strip()))
	return p.stdout


def build_found(told):
	"""The folder with the programs; they must be those that users have."""
	for d in [told] if told else [os.path.join(TOP, "build"), TOP]:
		if not os.access(os.path.join(d, "ddraidd"), os.X_OK):
			continue
		with open(os.path.join(d, "config.status"), encoding="utf-8", errors="replace") as f:
			if "fsanitize" in f.read():
				raise Failed("%s is a sanitizer build: name another with --build" % d)
		return os.path.realpath(d)
	raise Failed("ddraid is not built%s: README has the commands" % (" in " + told if told else ""))


class World:
	"""Nodes and members. Used as a context: what it started ends with it, by id."""

	def __init__(self, build):
		self.build = build
		self.started = []

	def __enter__(self):
		self.tmp = tempfile.mkdtemp(prefix="ddraid-bench-")
		try:
			self.up()
		except BaseException:
			self.__exit__()
			raise
		return self

	def __exit__(self, *_):
		self.down()
		shutil.rmtree(self.tmp, ignore_errors=True)

	def spawn(self, command, log, **more):
		with open(os.path.join(self.tmp, log), "ab") as f:
			p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=f, stderr=f,
				start_new_session=True, **more)
		self.started.append(p)
		return p

	def end(self):
		for p in reversed(self.started):
			if p.poll() is None:
				p.terminate()
			try:
				p.wait(30)
			except subprocess.TimeoutExpired:
				p.kill()
				p.wait()
		self.started = []

	def ctl(self, node, *words):
		return output(self.within(node, [os.path.join(self.build, "ddraidctl"), *words]))

	def create(self, name, order, uris, *options):
		self.ctl(1, "create", name, "--order", str(order), "--zeroed", *options, *uris)
		for n in self.nodes:
			wait_for(60, "%s is served on node %d" % (name, n),
				lambda n=n: self.status(n, name)["io_allowed"])

	def status(self, node, name):
		return json.loads(self.ctl(node, "status", name, "--json"))["arrays"][0]

	def fio(self, node, name, *words):
		"""A load on array NAME at this node, as a process; see rate()."""
		command = ["fio", "--name=load", "--ioengine=nbd", "--uri=" + self.uri(name), "--output-format=json",
			*words]
		return subprocess.Popen(self.within(node, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
			stderr=subprocess.STDOUT, text=True, start_new_session=True)


class Alone(World):
	"""One node, which is no cluster's; members on Unix sockets."""

	nodes = [1]

	def up(self):
		for d in ("state", "run"):
			os.mkdir(os.path.join(self.tmp, d))
		self.ipc = os.path.join(self.tmp, "run", "ddraid.ctl")
		self.conf = os.path.join(self.tmp, "conf")
		with open(self.conf, "w", encoding="utf-8") as f:
			f.write("[daemon]\nstate_dir = %s/state\nrun_dir = %s/run\n"
				"[cluster]\ncluster = alone\n[fence]\nfence = none\n" % (self.tmp, self.tmp))
		self.daemon = self.spawn([os.path.join(self.build, "ddraidd"), "--foreground", "--config", self.conf],
			"ddraidd.log")
		wait_for(10, "ddraidd answers", self.answers)

	def answers(self):
		if self.daemon.poll() is not None:
			with open(os.path.join(self.tmp, "ddraidd.log"), encoding="utf-8", errors="replace") as f:
				raise Failed("ddraidd ended: %s" % f.read().strip())
		try:
			self.ctl(1, "version")
		except Failed:
			return False
		return True

	def down(self):
		self.end()

	def within(self, _node, command):
		if os.path.basename(command[0]) == "ddraidctl":
			return [command[0], "--ipc", self.ipc, *command[1:]]
		return command

	def uri(self, name):
		return "nbd+unix:///%s?socket=%s/run/%s.nbd" % (name, self.tmp, name)

	def members(self, count, plugin):
		"""So many new ones; their URIs. PLUGIN: nbdkit's, with its parameters."""
		uris = []
		for _ in range(count):
			path = os.path.join(self.tmp, "member%d" % len(self.started))
			self.spawn(["nbdkit", "-f", "-t", "64", "-U", path, *plugin], "nbdkit.log")
			wait_for(10, "nbdkit listens", lambda path=path: os.path.exists(path))
			uris.append("nbd+unix:///?socket=" + path)
		return uris


class Cluster(World):
	"""Nodes of a corosync cluster in namespaces (tests/lib/cluster.sh), members on TCP."""

	def __init__(self, build, nodes):
		super().__init__(build)
		self.nodes = list(range(1, nodes + 1))
		self.init = {}

	def up(self):
		if os.geteuid():
			raise Failed("nodes need namespaces: run it as root")
		env = dict(os.environ, top_builddir=self.build, top_srcdir=TOP, CLUSTER_TMP=self.tmp)
		self.shell = subprocess.Popen(["bash", os.path.join(TOP, "tools/bench.d/cluster"), str(len(self.nodes))],
			stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
		for n in self.nodes:
			self.init[n] = self.told("node %d" % n)

	def told(self, what):
		line = self.shell.stdout.readline()
		if not line.startswith(what + " "):
			raise Failed("the cluster: %s" % (line + self.shell.stdout.read()).strip())
		return line[len(what) + 1:].strip()

	def down(self):
		self.shell.stdin.close()
		try:
			self.shell.wait(60)
		except subprocess.TimeoutExpired:
			self.shell.terminate() # it has a trap
			self.shell.wait()

	def within(self, node, command):
		return ["nsenter", "--target", self.init[node], "--net", "--mount", "--pid", "--uts", *command]

	def uri(self, name):
		return "nbd+unix:///%s?socket=/run/ddraid/%s.nbd" % (name, name)

	def members(self, count, plugin):
		uris = []
		for _ in range(count):
			self.shell.stdin.write(" ".join(plugin) + "\n")
			self.shell.stdin.flush()
			uris.append(self.told("member"))
		return uris


def rate(processes):
	"""Requests a second of all these loads together, which have run at once."""
	total = 0
	for p in processes:
		text, _ = p.communicate()
		if p.returncode or "{" not in text:
			raise Failed("fio: %s" % text.strip())
		job = json.loads(text[text.index("{"):])["jobs"][0]
		total += job["read"]["iops"] + job["write"]["iops"]
	return total


class Run:
	"""Rows, their figures, and whether they are as they must be."""

	def __init__(self, build, turns, seconds):
		for program in ("fio", "nbdkit"):
			if not shutil.which(program):
				raise Failed("%s is missing: sudo tools/deps" % program)
		self.build, self.count, self.seconds = build_found(build), turns, seconds
		self.result = {"machine": machine(), "version": version(self.build), "turns": turns, "seconds": seconds,
			"rows": []}

	def row(self, name, module):
		self.now = {"row": name, "figures": [], "ratios": []}
		module.measure(self)
		self.result["rows"].append(self.now)

	def turns(self, what, unit, cases, least):
		"""CASES: name -> function that measures once. Ratios are to the first; each must be LEAST at least."""
		values = {name: [] for name in cases}
		for turn in range(self.count):
			for name, once in cases.items():
				values[name].append(once())
			say("%s, turn %d of %d: %s" % (what, turn + 1, self.count,
				", ".join("%s %.0f" % (name, v[-1]) for name, v in values.items())))
		base = None
		for name, v in values.items():
			median = statistics.median(v)
			self.now["figures"].append({"what": what, "case": name, "unit": unit, "values": v,
				"median": median, "least": min(v), "most": max(v)})
			if base is None:
				base, base_name = median, name
				continue
			self.now["ratios"].append({"what": what, "case": name, "to": base_name, "ratio": median / base,
				"must": least, "holds": median / base >= least})

	def holds(self):
		return all(r["holds"] for row in self.result["rows"] for r in row["ratios"])

	def report(self):
		lines = []
		for row in self.result["rows"]:
			lines.append("%-30s %-10s %10s %10s %10s   %s" % (row["row"], "", "median", "least", "most", "ratio"))
			ratios = {(r["what"], r["case"]): r for r in row["ratios"]}
			for f in row["figures"]:
				r, text = ratios.get((f["what"], f["case"])), ""
				if r:
					text = "%.3f of %s, must be %.2f%s" % (r["ratio"], r["to"], r["must"],
						"" if r["holds"] else ": TOO LOW")
				lines.append("  %-28s %-10s %10.0f %10.0f %10.0f   %s" % (f["what"], f["case"], f["median"],
					f["least"], f["most"], text))
		return "\n".join(line.rstrip() for line in lines)


def machine():
	cpu = "unknown"
	with open("/proc/cpuinfo", encoding="utf-8") as f:
		for line in f:
			if line.startswith("model name"):
				cpu = line.split(":", 1)[1].strip()
				break
	return {"cpu": cpu, "cpus": os.cpu_count(), "kernel": platform.release(),
		"load": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d")}


def version(build):
	return output([os.path.join(build, "ddraidd"), "--version"]).splitlines()[0]
