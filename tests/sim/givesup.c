/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A daemon gives its incarnation up, as when its locks are lost or an operator cuts off a consumer
 * whose requests can't end; mostly in the middle of writes. Nobody else has removed it, or knows.
 */
#include "sim.h"

#define TOLD_US (20 * MS) /* how much later than the first node the last one hears a message */

static void on_all_told(struct sim *s, struct hev *ev)
{
	s->inc[ev->a].told_all = sim_stamp(s);
}

/* Its own Evict has come back, unless it waited for that in vain; the others have it soon. */
void givesup_removed(struct sim *s, uint32_t ii)
{
	const struct incn *in = &s->inc[ii];

	if (in->gave_up_us && s->now < in->gave_up_us + s->o.tun.evict_ms * MS)
		sim_at(s, TOLD_US, on_all_told, ii, 0, NULL);
}

static void on_give_up(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x676976657570);
	struct simnode *n = &s->node[r % s->o.nodes];
	struct event up = {.type = EV_GIVE_UP};

	if (s->planner.healing)
		return;
	if (!n->proc || !n->front.open || n->frozen || n->stopped || n->removing ||
	    (r / 8 % 4 && !dev_writes_at(s, n))) {
		sim_at(s, 1 * MS + r / 32 % (5 * MS), on_give_up, ev->a, 0, NULL);
		return;
	}
	stats_look(s);
	s->inc[n->ii].gave_up_us = s->now;
	stats_fault(s, F_GIVES_UP);
	trace(s, "f  n%u gives up", n->id);
	node_post(s, n, 0, &up);
	stats_look_end(s);
	if (ev->a)
		sim_at(s, 10 * MS + r / 32 % (900 * MS), on_give_up, ev->a - 1, 0, NULL);
}

/* Of its own randomness. */
void givesup_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x67697665732d7570ull);

	if (s->o.faultless || (s->cli && s->cli->only) || r % 100 >= 25)
		return;
	sim_at(s, (r / 100 % 3000) * MS, on_give_up, r / 1000000 % 3, 0, NULL);
}
