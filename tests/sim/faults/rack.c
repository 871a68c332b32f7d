/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A node and an exporter lose power together, as in one rack. The exporter is back before anybody
 * can know that the node has gone: what the others say of it meanwhile comes nowhere, and when a
 * round begins all are connected again. What it had in its cache is lost nevertheless.
 */
#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

static void on_rack(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x7261636b);
	struct simnode *n = &s->node[r % s->o.nodes];
	uint32_t disk = s->checks.disk_of[r / 8 % s->geo.n];

	if (s->planner.healing)
		return;
	if (disk == NONE || !n->powered || !fault_fits(s, F_EXPORTER_POWER) ||
	    !s->disk[disk].unflushed_mask || s->copy.stands) { /* that would be two faults */
		sim_at(s, 5 * MS, on_rack, ev->a, 0, NULL);
		return;
	}
	stats_look(s);
	stats_fault(s, F_RACK_POWER);
	trace(s, "f  n%u and exporter %u lose power", n->id, disk);
	fault_exporter_power(s, disk, 5 * MS + r / 128 % (s->o.token_us / 2), false);
	node_crash(s, n);
	node_power_on_later(s, n, 30 * MS + r / 65536 % (1500 * MS));
	stats_look_end(s);
	if (ev->a)
		sim_at(s, 200 * MS + r / 1024 % (1500 * MS), on_rack, ev->a - 1, 0, NULL);
}

/* Of its own randomness. */
void rack_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x7261636b2d70ull);

	if (s->o.faultless || (s->o.nodes < 3 && !s->o.two_node) || (s->cli && s->cli->only) ||
	    r % 100 >= 25)
		return;
	sim_at(s, (200 + r / 100 % 1500) * MS, on_rack, r / 1000000 % 2, 0, NULL);
}
