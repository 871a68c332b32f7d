/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Half-open connections: an exporter loses power and is back, and some nodes don't know. What they
 * sent it is never answered, until their connection breaks some time later. New connections work at
 * once, and show what is left of what was in its cache: most of all to a node that joins, so some
 * of these strike just before that connects.
 *
 * Of its own randomness: seeds in which none strikes are as without them.
 */
#include <errno.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/faults/halfopen.h"
#include "tests/sim/world.h"

static uint64_t draw(const struct sim *s, uint32_t node, uint32_t disk)
{
	return mix64(s->seed ^ s->now << 20 ^ (uint64_t)node << 8 ^ disk ^ 0x68616c66ull);
}

static void on_break(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a >> 32];
	uint32_t dev = (uint32_t)ev->a;

	if (ev->b == n->gen && n->proc && n->dev[dev].half_open)
		halfopen_end(s, n, dev, -ECONNRESET);
}

void halfopen_end(struct sim *s, struct simnode *n, uint32_t dev, int err)
{
	n->dev[dev].half_open = false;
	dev_break(s, n, dev, err);
	dev_try(s, n, dev, 1 * MS + draw(s, n->idx, dev) % (30 * MS));
}

/* The exporter is off: does this node not hear of it? */
bool halfopen_strikes(struct sim *s, struct simnode *n, uint32_t dev)
{
	uint64_t r = draw(s, n->idx, n->dev[dev].disk), all = draw(s, SIM_MAX_NODES, 0);

	if (!s->o.half_open || s->planner.healing || !n->dev[dev].up || (r % 2 && all % 2))
		return false;
	if (n->dev[dev].half_open)
		return true;
	stats_look(s);
	stats_fault(s, F_HALF_OPEN);
	n->dev[dev].half_open = true;
	trace(s, "f  n%u does not know that exporter %u was off", n->id, n->dev[dev].disk);
	sim_at(s, (5 + r / 2 % 395) * MS << r / 1024 % 3, on_break, (uint64_t)n->idx << 32 | dev,
	       n->gen, NULL);
	stats_look_end(s);
	return true;
}

/* This node is about to connect it for the first time. */
void halfopen_connects(struct sim *s, const struct simnode *n, uint32_t disk)
{
	bool others = false;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		others |= s->node[i].proc && s->node[i].st.state == ENGINE_ACTIVE;
	if (!s->o.half_open || s->planner.healing || !others || n->st.state != ENGINE_JOINING ||
	    !s->disk[disk].unflushed_mask || s->copy.stands || draw(s, n->idx, disk) % 4 ||
	    !fault_fits(s, F_EXPORTER_POWER))
		return;
	trace(s, "f  exporter %u is off for a moment, and n%u joins", disk, n->id);
	dev_power_loss(s, disk, false);
	s->disk[disk].powered = true;
	dev_try_disk(s, disk);
}

void halfopen_heal(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		for (uint32_t k = 0; k < DDR_MAX_DEVS; k++)
			if (s->node[i].proc && s->node[i].dev[k].half_open)
				halfopen_end(s, &s->node[i], k, -ECONNRESET);
}

void halfopen_init(struct sim *s)
{
	s->o.half_open = !s->o.faultless && s->o.nodes > 1 && !(s->cli && s->cli->only) &&
			 mix64(s->seed ^ 0x68616c662d6full) % 100 < 30;
}
