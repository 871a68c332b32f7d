/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nodes that are configured to fence otherwise than the others: one whose file says something else,
 * or all, and each daemon goes by it from its next start on. One of them starts anew at once, at
 * times while another node dies; later all are made alike. What may serve beside what,
 * checks_serves says.
 */
#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

static bool fits(const struct sim *s, const struct simnode *n)
{
	return n->powered && n->proc && !n->frozen && !n->stopped &&
	       s->now > s->planner.cluster_down_until;
}

static void on_alike(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (!s->planner.healing)
		differs_heal(s);
}

static void on_differs(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x646966);
	struct simnode *n = &s->node[r % s->o.nodes];
	struct simnode *other = &s->node[(n->idx + 1 + r / 8 % (s->o.nodes - 1)) % s->o.nodes];

	(void)ev;
	if (s->planner.healing)
		return;
	if (!fits(s, n)) {
		sim_at(s, 20 * MS, on_differs, 0, 0, NULL);
		return;
	}
	stats_look(s);
	stats_fault(s, F_FENCES_OTHERWISE);
	trace(s, "f  n%u is configured to fence otherwise", n->id);
	for (uint32_t i = 0; i < s->o.nodes; i++)
		s->node[i].conf_differs |= i == n->idx || r / 64 % 2;
	node_kill_daemon(s, n);
	node_start_later(s, n, 1 * MS + r / 128 % (300 * MS));
	if (r / 128 % 3 == 0 && other->powered) {
		node_crash(s, other);
		node_power_on_later(s, other, 30 * MS + r / 512 % (1000 * MS));
	}
	stats_look_end(s);
	sim_at(s, 200 * MS + r / 1024 % (2500 * MS), on_alike, 0, 0, NULL);
}

/* The operator makes the files alike, and starts those daemons anew that went by the other. */
void differs_heal(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];

		n->conf_differs = false;
		if (!n->fences_otherwise || !n->proc || n->frozen || n->stopped)
			continue;
		trace(s, "w  n%u is configured as the others", n->id);
		node_kill_daemon(s, n);
		node_start_later(s, n, 1 * MS + mix64(s->seed ^ s->now ^ i) % (300 * MS));
	}
}

/* Of its own randomness. */
void differs_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x64696666657273ull);

	if (s->o.faultless || s->o.nodes == 1 || (s->cli && s->cli->only) || r % 100 >= 30)
		return;
	sim_at(s, (100 + r / 100 % 3500) * MS, on_differs, 0, 0, NULL);
}
