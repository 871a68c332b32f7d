/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What three nodes say that they do, in the order in which they do it: an array's first start, a
 * write, a node's death, a member's loss and return, a rebuild. Each is a file beside this one, for
 * people to read, and has to stay as it is: a line that comes, goes or moves is a change of
 * behaviour.
 *
 * They happen in the simulator's world (tests/sim/world.h), in virtual time, so they are the same
 * on every machine. Its judges watch: a story that loses data, or breaks a rule, fails.
 *
 * `make update-stories` writes the files anew.
 */
#include "tests/lib/test.h"

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define STORY_BYTES (64u << 10)
#define SEED 3
#define BEFORE_MS 3000 /* what comes before a story takes no longer */

static struct sim sim;
static struct sim_cli cli;
static struct stats stats;
static char story[STORY_BYTES];
static size_t story_at;
static uint64_t began;

/* Three members of four regions, a spare disk, and neither luck nor bad luck in the latencies. */
static const struct opts options = {
    .nodes = 3,
    .members = 3,
    .disks = 4,
    .geo = {.order = 1,
	    .m = 1,
	    .layout = GEO_ROTATE,
	    .slots = 4,
	    .stripe_bytes = 4096,
	    .band_bytes = 16384,
	    .region_bytes = 65536,
	    .member_bytes = DATA_ALIGN + 4 * 32768},
    .clean = true,
    .fence_cuts = true,
    .instance_known = true,
    .locks = LOCK_TABLE,
    .tun = {.release_delay_ms = 100,
	    .heartbeat_ms = 20,
	    .heartbeat_limit_ms = 150,
	    .evict_ms = 400,
	    .settle_ms = 50,
	    .member_retry_ms = 500,
	    .renew_ms = 100,
	    .patience_ms = 1200,
	    .claim_ms = 20,
	    .checkpoint_regions = 4},
    .max_ios = 256,
    .token_us = 300 * MS,
    .zombie_us = 100 * MS,
    .disk_lo_us = 300,
    .disk_hi_us = 900,
    .net_lo_us = 50,
    .net_hi_us = 150,
};

/* ---- telling -------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	story_at += (size_t)vsnprintf(story + story_at, STORY_BYTES - story_at, format, ap);
	va_end(ap);
	CHECK(story_at + 256 < STORY_BYTES);
}

static void hear(struct sim *s, const struct simnode *n, const char *words)
{
	uint64_t us = s->now - began;

	line("%6lu.%lu ms  ", us / 1000, us / 100 % 10);
	if (n)
		line("node %u: ", n->id);
	line("%s\n", words);
}

static void story_begin(const char *title, enum engine_trace what)
{
	story_at = 0;
	began = sim.now;
	line("%s\n\n", title);
	world_hear(&sim, hear, what);
}

/* What the reader has to know from here on. */
static void say(const char *words)
{
	line("\n%s\n\n", words);
}

static void story_is(const char *name)
{
	static char golden[STORY_BYTES];
	const char *top = getenv("top_srcdir");
	char path[512];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/trace/%s.txt", top ? top : ".", name);
	if (getenv("UPDATE")) {
		f = fopen(path, "w");
		CHECK(f && fwrite(story, 1, story_at, f) == story_at && !fclose(f));
		return;
	}
	f = fopen(path, "r");
	CHECK_MSG(f, "%s is not there", path);
	n = fread(golden, 1, sizeof(golden) - 1, f);
	fclose(f);
	golden[n] = '\0';
	for (size_t i = 0, at = 0; i <= n || i <= story_at; i++) {
		if (i < n && i < story_at && golden[i] == story[i]) {
			at = story[i] == '\n' ? i + 1 : at;
			continue;
		}
		CHECK_MSG(i == n && i == story_at, "%s differs: \"%.*s\", it was \"%.*s\"", path,
			  (int)strcspn(story + at, "\n"), story + at,
			  (int)strcspn(golden + at, "\n"), golden + at);
		return;
	}
}

/* ---- the world ------------------------------------------------------------------------------ */

static struct simnode *node(uint32_t id)
{
	return &sim.node[id - 1];
}

static void run_until(uint64_t us)
{
	world_run(&sim, us, true);
	if (sim.failed)
		FAIL("%s", sim.violation);
	sim.now = us;
}

static void run_ms(uint32_t ms)
{
	run_until(sim.now + ms * MS);
}

/* It must come to that within so long. */
static void until(bool (*is_so)(void), uint32_t most_ms)
{
	uint64_t end = sim.now + most_ms * MS;

	while (!is_so()) {
		CHECK_MSG(sim.heap.count && sim.heap.v[0].at < end, "at %lu us", sim.now);
		run_until(sim.heap.v[0].at);
	}
}

static bool serves(uint32_t id)
{
	return node(id)->proc && node(id)->st.state == ENGINE_ACTIVE && node(id)->st.io_allowed;
}

static bool all_serve(void)
{
	return serves(1) && serves(2) && serves(3);
}

static bool clean(void)
{
	return world_clean(&sim);
}

static bool answered(void)
{
	return !front_inflight(&sim);
}

static bool degraded(void)
{
	return !sim.checks.map_full;
}

/* All nodes serve, nothing is dirty, and nobody listens. */
static void serving(void)
{
	CHECK(world_open(&sim, SEED, &options, &cli, &stats));
	for (uint32_t i = 1; i <= 3; i++)
		node_power_on(&sim, node(i), 0);
	until(all_serve, BEFORE_MS);
	run_ms(500);
	CHECK(clean());
}

static void writes(uint32_t id, uint64_t block)
{
	CHECK(front_request(&sim, node(id), IO_WRITE, block, 1));
}

/* Afterwards the array is whole: each node that is left reads all of it, and the media agree. */
static void end(void)
{
	world_hear(&sim, NULL, TRACE_NOTHING);
	until(clean, 20000);
	for (uint32_t id = 1; id <= 3; id++) {
		node(id)->front.seq_block = 0;
		while (node(id)->proc && !front_read_all(&sim, node(id)))
			until(answered, 1000);
	}
	until(clean, 20000);
	checks_final(&sim);
	if (sim.failed)
		FAIL("%s", sim.violation);
	world_close(&sim);
}

/* ---- the stories ---------------------------------------------------------------------------- */

TEST(create)
{
	struct opts o = options;

	o.clean = false;
	CHECK(world_open(&sim, SEED, &o, &cli, &stats));
	story_begin(
	    "`create` has written a superblock and an empty log to three members. Nothing is\n"
	    "known of the blocks that lie there, so each region has to be made to fit first.\n"
	    "\n"
	    "The cluster stack runs on all nodes; node 1 is the first to start the array.",
	    TRACE_CLUSTER);
	node_power_on(&sim, node(1), 0);
	node_power_on(&sim, node(2), 500 * MS);
	node_power_on(&sim, node(3), 1000 * MS);
	run_ms(490);
	CHECK(serves(1));
	say("Node 2 joins.");
	run_ms(500);
	CHECK(serves(2));
	say("Node 3 joins.");
	until(all_serve, BEFORE_MS);
	story_is("create");
	end();
}

TEST(a_write)
{
	serving();
	story_begin(
	    "Node 1 writes a block. Before any member gets it, the region is marked dirty in\n"
	    "node 1's slot of the log: should it die now, somebody knows where to look.\n"
	    "\n"
	    "Locks: CW is had by all who write there, EX by one alone.",
	    TRACE_ALL);
	writes(1, 0);
	run_ms(10);
	say("Node 2 writes the block beside it, in the same region.");
	writes(2, 1);
	run_ms(50);
	say("Both have written, so each checks the parity before it takes its mark back.");
	until(clean, 5000);
	run_ms(50);
	story_is("write");
	end();
}

/* Some of its members have the write, and some don't. */
static bool half_written(void)
{
	uint32_t done = 0, open = 0;

	for (uint32_t i = 0; i < sim.reqs; i++) {
		const struct req *r = sim.req[i];

		if (!r->used || r->kind != KIND_DATA || r->op != DEV_WRITE)
			continue;
		done += r->exec == EXEC_DONE;
		open += r->exec == EXEC_NOT;
	}
	return done && open;
}

TEST(a_node_dies)
{
	serving();
	story_begin("Node 3 dies in the middle of a write: some of the members have it.",
		    TRACE_ALL);
	writes(3, 17);
	until(half_written, 1000);
	node_crash(&sim, node(3));
	run_ms(300);
	say("The others miss it when its cluster stack has been silent for the token time-out.\n"
	    "What node 3 sent may arrive late, as member 2 shows. So nobody goes by its slot of\n"
	    "the log before it is fenced.");
	until(clean, 5000);
	run_ms(50);
	story_is("node-death");
	end();
}

TEST(a_member_is_lost_and_back)
{
	uint32_t disk;

	serving();
	disk = sim.checks.disk_of[2];
	story_begin("No node reaches the exporter of member 2 any more.", TRACE_ALL);
	fault_hide(&sim, disk, 400 * MS);
	until(degraded, 1000);
	run_ms(10);
	say("Node 1 writes meanwhile. It remembers in its slot that member 2 has missed that.");
	writes(1, 16);
	run_ms(350);
	say("The exporter is back. What member 2 has missed is rebuilt, and nothing else.");
	until(clean, 5000);
	run_ms(50);
	story_is("member-loss");
	end();
}

static bool rebuilds(void)
{
	return sim.checks.map.member[2].state == MEMBER_REBUILDING;
}

TEST(a_member_is_replaced)
{
	serving();
	for (uint32_t id = 1; id <= 3; id++)
		writes(id, 15 * id);
	run_ms(1000);
	story_begin(
	    "Member 2 is replaced by another disk. It holds nothing of the array, so all of it\n"
	    "is rebuilt from the other members.",
	    TRACE_CLUSTER);
	CHECK(operator_ask(&sim, ADMIN_FAIL, 2, NONE));
	until(degraded, 1000);
	run_ms(50);
	say("The array goes on without member 2. Now the other disk comes.");
	CHECK(operator_ask(&sim, ADMIN_ADD, 2, 3));
	until(rebuilds, 1000);
	writes(2, 40); /* the new member gets this at once, wherever the rebuild is */
	until(clean, 5000);
	run_ms(50);
	story_is("rebuild");
	end();
}
