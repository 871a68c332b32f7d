/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A node whose network to the members, or to all but one, is cut, while the one between the nodes
 * is whole: none of its incarnations reaches them until it is mended. Mostly the leader; and often
 * another node dies with it, or all do, so that a round begins in which the one that is cut off
 * should lead.
 */
#include <errno.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

static bool fits(const struct sim *s, const struct simnode *n)
{
	return n->powered && n->proc && !n->frozen && !n->stopped && breaks_unharmed(s);
}

static void on_mended(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	n->cut_off = 0;
	trace(s, "w  n%u reaches the members again", n->id);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (n->dev[i].used)
			dev_try(s, n, i, 1 * MS + mix64(s->seed ^ s->now ^ i) % (40 * MS));
}

static void cut_off(struct sim *s, struct simnode *n, uint64_t r)
{
	struct simnode *other = &s->node[(n->idx + 1 + r % (s->o.nodes - 1)) % s->o.nodes];
	uint32_t left = s->checks.disk_of[r / 512 % s->geo.n];

	stats_fault(s, F_STORAGE_CUT);
	trace(s, "f  n%u is cut off from the members", n->id);
	n->cut_off = UINT32_MAX;
	if (r / 128 % 3 == 0 && left != NONE)
		n->cut_off &= ~(1u << left);
	n->cut_inc = n->ii + 1;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (n->dev[i].used && n->cut_off >> n->dev[i].disk & 1)
			dev_break(s, n, i, -ECONNRESET);
	sim_at(s, 50 * MS + r / 8 % (2500 * MS), on_mended, n->idx, 0, NULL);
	if (r / 16 % 8 == 0) {
		fault_cluster_power(s, false);
	} else if (r / 16 % 8 < 6 && other->powered) {
		node_crash(s, other);
		node_power_on_later(s, other, 30 * MS + r / 16 % (1000 * MS));
	}
}

static void on_cut(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x637574);
	struct simnode *n = node_leader(s);

	(void)ev;
	if (s->planner.healing)
		return;
	if (!n || r % 4 == 0)
		n = &s->node[r / 4 % s->o.nodes];
	if (!fits(s, n)) {
		sim_at(s, 20 * MS, on_cut, 0, 0, NULL);
		return;
	}
	stats_look(s);
	cut_off(s, n, r / 32);
	stats_look_end(s);
}

/* Of its own randomness. */
void storage_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x73746f72616765ull);

	if (s->o.faultless || s->o.nodes == 1 || (s->cli && s->cli->only) || r % 100 >= 40)
		return;
	sim_at(s, (r / 100 % 3500) * MS, on_cut, 0, 0, NULL);
}
