/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two exporters come back at each other's addresses: their cables, or their containers, were
 * exchanged. Each node's device that led to one leads to the other from then on, for most of these
 * seeds until they are exchanged back. The members carry who they are (R1), so nothing is lost by
 * it, and nobody is waited for at the old address.
 *
 * Both are gone for a moment, as in switch-flap. Of its own randomness.
 */
#include <string.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

static uint64_t draw(const struct sim *s, uint64_t what, uint64_t below)
{
	return mix64(s->seed ^ mix64(what ^ 0x65786368)) % below;
}

static void ways_swap(struct simnode *n, uint32_t a, uint32_t b)
{
	uint32_t da = dev_slot_of_disk(n, a), db = dev_slot_of_disk(n, b);

	if (da != NONE)
		n->dev[da].disk = b;
	if (db != NONE)
		n->dev[db].disk = a;
}

static void exchange(struct sim *s, uint32_t a, uint32_t b)
{
	char uri[sizeof(s->disk[a].uri)];

	stats_fault(s, F_EXCHANGED);
	trace(s, "f  disks %u and %u are exchanged", a, b);
	for (uint32_t i = 0; i < 2; i++)
		fault_hide(s, i ? a : b, (1 + draw(s, s->now + i, 60)) * MS);
	for (uint32_t i = 0; i < s->o.nodes; i++)
		ways_swap(&s->node[i], a, b);
	memcpy(uri, s->disk[a].uri, sizeof(uri));
	memcpy(s->disk[a].uri, s->disk[b].uri, sizeof(uri));
	memcpy(s->disk[b].uri, uri, sizeof(uri));
}

static void on_exchange(struct sim *s, struct hev *ev)
{
	uint8_t m = (uint8_t)draw(s, 1, s->geo.n);
	uint32_t a = s->checks.disk_of[m];
	uint32_t b = s->checks.disk_of[(m + 1 + draw(s, 2, s->geo.n - 1)) % s->geo.n];

	if (s->planner.healing)
		return;
	if (a == NONE || b == NONE || !fault_fits(s, F_SWITCH_FLAP) || s->copy.stands) {
		sim_at(s, 20 * MS, on_exchange, ev->a, 0, NULL);
		return;
	}
	exchange(s, a, b);
	if (ev->a)
		sim_at(s, draw(s, 3, 1500 * MS), on_exchange, ev->a - 1, 0, NULL);
}

void exchange_init(struct sim *s)
{
	if (s->o.faultless || s->geo.n < 2 || (s->cli && (s->cli->nodes == 1 || s->cli->only)) ||
	    draw(s, 0, 100) >= 20)
		return;
	sim_at(s, (300 + draw(s, 4, 2500)) * MS, on_exchange, draw(s, 5, 3), 0, NULL);
}
