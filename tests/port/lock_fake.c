/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subject `dlm` of the lock suite: the simulator's fake DLM (tests/sim/lock.c), in the simulator's
 * world of three nodes without engines. Each world has another seed, so messages take other times.
 *
 * Where the suite wants engines on top of it, those of lock_engines.c live beside this world, in
 * the same time: a node there and a node here die together.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/port/lock_conformance.h"
#include "tests/sim/seed.h"

static struct sim sim;
static struct sim_cli cli;
static struct stats stats;
static uint64_t seed;
static bool there, engines;
static struct fake {
	struct lockspace ls;
	uint32_t node;
	bool open;
	const struct lock_cb *cb;
	void *arg;
} fake[SUBJECT_NODES + 1];

static struct simnode *node_of(uint32_t node)
{
	return &sim.node[node - 1];
}

static uint64_t fake_inc(uint32_t node)
{
	return sim.inc[node_of(node)->ii].inc;
}

/* ---- the port ------------------------------------------------------------------------------- */

static struct fake *fake_of(struct lockspace *ls)
{
	return (struct fake *)(void *)ls;
}

static int fake_open(const struct lock_cfg *cfg, struct lockspace **out)
{
	struct fake *f;

	if (!cfg->node || cfg->node > SUBJECT_NODES || !cfg->name[0] ||
	    strlen(cfg->name) >= LOCK_SPACE_BYTES)
		return -EINVAL;
	f = &fake[cfg->node];
	HOLDS(!f->open && node_of(cfg->node)->proc);
	f->open = true;
	sim.inc[node_of(cfg->node)->ii].served = true; /* else its loss is none to this world */
	f->cb = cfg->cb;
	f->arg = cfg->arg;
	*out = &f->ls;
	return 0;
}

static void fake_request(struct lockspace *ls, uint64_t id, enum lock_mode mode, bool try_only)
{
	HOLDS(fake_of(ls)->open);
	dlm_lock(&sim, node_of(fake_of(ls)->node), id, mode, try_only);
}

static void fake_release(struct lockspace *ls, uint64_t id)
{
	HOLDS(fake_of(ls)->open);
	dlm_unlock(&sim, node_of(fake_of(ls)->node), id);
}

static void end_daemon(uint32_t node)
{
	struct simnode *n = node_of(node);

	fake[node].open = false;
	node_end_daemon(&sim, n);
	group_leave(&sim, n->idx);
}

/* The fake knows an incarnation by its daemon: that goes with its handle. */
static void fake_close(struct lockspace *ls, bool ended)
{
	uint32_t node = fake_of(ls)->node, ii = node_of(node)->ii;

	end_daemon(node);
	if (ended)
		dlm_left(&sim, ii);
	else
		dlm_ended(&sim, ii, 0);
}

static const struct lock_ops fake_ops = {
    .name = "dlm",
    .open = fake_open,
    .request = fake_request,
    .release = fake_release,
    .close = fake_close,
};

/* ---- the world ------------------------------------------------------------------------------ */

static void hear(struct sim *s, struct simnode *n, const struct nev *nev)
{
	struct fake *f = &fake[n->id];
	const struct event *ev = &nev->ev;

	(void)s;
	if (!f->open)
		return;
	if (ev->type == EV_LOCK_GRANTED)
		f->cb->granted(f->arg, ev->lock.id, ev->lock.mode);
	else if (ev->type == EV_LOCK_REFUSED)
		f->cb->refused(f->arg, ev->lock.id, ev->lock.mode);
	else if (ev->type == EV_LOCK_CALLBACK)
		f->cb->callback(f->arg, ev->lock.id, ev->lock.mode);
}

static void fake_run(uint32_t ms)
{
	while (ms--) {
		world_run(&sim, sim.now + MS, false);
		sim.now += MS;
		if (sim.failed)
			subject_fail(__FILE__, __LINE__, sim.violation);
		if (engines)
			engines_ms();
	}
}

static void fake_end(void)
{
	engines_end();
	if (there)
		world_close(&sim);
	there = engines = false;
	memset(fake, 0, sizeof(fake));
}

static void fake_rewind(void)
{
	seed = 0;
}

static void fake_start(void)
{
	fake_end();
	cli.nodes = SUBJECT_NODES;
	HOLDS(seed_open(&sim, ++seed, &cli, &stats));
	there = true;
	sim.planner.healing = true; /* no faults but ours */
	sim.hook = hear;
	sim.o.locks = LOCK_EXTERNAL;
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++) {
		fake[i].ls.ops = &fake_ops;
		fake[i].node = i;
	}
	fake_run(1000);
	HOLDS(group_whole(&sim));
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		HOLDS(node_of(i)->proc);
}

static void fake_kill(uint32_t node)
{
	fake[node].open = false;
	node_kill_daemon(&sim, node_of(node));
	if (engines)
		engines_kill(node);
}

static void fake_crash(uint32_t node)
{
	fake[node].open = false;
	node_crash(&sim, node_of(node));
	if (engines)
		engines_crash(node);
}

static void fake_cut(uint32_t node)
{
	uint32_t comp[SIM_MAX_NODES] = {0};

	comp[node - 1] = 1;
	group_partition(&sim, comp);
}

static void fake_restart(uint32_t node)
{
	node_start(&sim, node_of(node));
}

static void fake_start_engines(void)
{
	engines_start(SUBJECT_NODES, &fake_ops);
	engines = true;
}

const struct lock_subject lock_dlm = {
    .name = "dlm",
    .ops = &fake_ops,
    .nodes = SUBJECT_NODES,
    .traits = LOCKS_LOSE_NODES | LOCKS_TAKE_ENGINES | LOCKS_GRANT_ALONE,
    .worlds = 10,
    .rewind = fake_rewind,
    .start = fake_start,
    .end = fake_end,
    .run = fake_run,
    .inc = fake_inc,
    .kill = fake_kill,
    .crash = fake_crash,
    .cut = fake_cut,
    .restart = fake_restart,
    .fences = engines_fences,
    .start_engines = fake_start_engines,
};
