/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One seed, phase by phase (seed.h).
 */
#include <stdio.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/seed.h"

#define SAFETY_LEAST_US (700 * MS)
#define SAFETY_MOST_US (15000 * MS)
#define HEAL_MOST_US (60000 * MS)
#define IDLE_MOST_US (20000 * MS)
#define EVENTS_MOST 3000000u

/* ---- set-up --------------------------------------------------------------------------------- */

/* With room for their log, and the data as large as before. Where small pages make that too large
 * for the members, there are as many slots as were drawn. */
static void slots_force(struct sim *s, uint8_t slots)
{
	uint64_t data = s->o.geo.member_bytes - DATA_ALIGN;
	struct geo_params p = s->o.geo;
	struct geo g;

	p.slots = slots;
	for (uint32_t i = 0; i < 4; i++, p.member_bytes += DATA_ALIGN) {
		if (geo_choose(&g, &p, NULL) || p.member_bytes - g.data_offset != data)
			continue;
		s->o.geo = p;
		return;
	}
}

static void geometry_fit(struct sim *s)
{
	struct geo g;

	if (s->cli->slots)
		slots_force(s, (uint8_t)s->cli->slots);
	if (geo_choose(&g, &s->o.geo, NULL)) {
		s->o.geo.slots = (uint8_t)(s->o.nodes + 1); /* many small log pages */
		s->o.geo.member_bytes += DATA_ALIGN;
	}
}

static void on_shift(struct sim *s, struct hev *ev)
{
	(void)ev;
	s->shift++;
	if (s->phase == PHASE_SAFETY)
		sim_at(s, rng_range(&s->rng, 200 * MS, 1500 * MS), on_shift, 0, 0, NULL);
}

bool seed_open(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st)
{
	bool together;

	world_begin(s, seed, cli, st);
	opts_draw(s, cli->nodes);
	geometry_fit(s);
	if (!world_make(s))
		return false;
	together = rng_chance(&s->rng, 500);
	for (uint32_t i = 0; i < s->o.nodes; i++)
		node_power_on_later(s, &s->node[i], together ? 0 : rng_range(&s->rng, 0, 300 * MS));
	plan_init(s);
	operator_init(s);
	on_shift(s, NULL);
	trace(s, "seed %lu: %u nodes, order %u, %lu regions of %u stripes, %s locks%s", seed,
	      s->o.nodes, s->geo.p.order, s->geo.regions, s->geo.region_stripes,
	      s->o.locks == LOCK_TABLE ? "table" : "external", s->o.clean ? "" : ", unsynced");
	return true;
}

/* ---- phases --------------------------------------------------------------------------------- */

static bool faults_over(const struct sim *s)
{
	const struct planner *p = &s->planner;

	if (s->now > SAFETY_MOST_US)
		return true;
	return (!p->left || s->o.faultless) && p->armed == F_COUNT && s->writes >= s->o.writes &&
	       s->now > SAFETY_LEAST_US && s->now > p->quiet_since_us + 300 * MS &&
	       (p->done >= 3 || s->o.faultless);
}

static bool node_whole(const struct simnode *n)
{
	const struct engine_status *st = &n->st;

	return n->powered && n->proc && !n->frozen && !n->stopped && st->state == ENGINE_ACTIVE &&
	       st->io_allowed && !st->proposing && !st->unfenced && !st->slots_unrecovered &&
	       !n->front.inflight;
}

static bool whole(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (!node_whole(&s->node[i]))
			return false;
	return s->checks.map_full && group_whole(s) && !rollback_holds(s) &&
	       s->now > s->phase_us + 200 * MS;
}

static void not_live(struct sim *s, const char *what)
{
	char text[800];
	size_t at = 0;

	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct simnode *n = &s->node[i];
		const struct engine_status *st = &n->st;

		at += (size_t)snprintf(
		    text + at, sizeof(text) - at,
		    " | n%u%s %s%s ios %u unfenced %u slots %u dirty %lx map %lu%s"
		    " waits: %s",
		    n->id, n->proc ? "" : " (down)", engine_state_name(st->state),
		    st->leading ? " leads" : "", n->front.inflight, st->unfenced,
		    st->slots_unrecovered, st->regions_dirty, st->map.epoch.num,
		    st->proposing ? " proposing" : "", st->waits ? st->waits : "-");
		if (at >= sizeof(text) - 1)
			break;
	}
	sim_fail(s, "LIVENESS", "%s: map %lu%s, dirty %lx%s", what, s->checks.map.epoch.num,
		 s->checks.map_full ? "" : " degraded", s->checks.dirty_mask, text);
}

static void phase_next(struct sim *s)
{
	s->phase++;
	s->phase_us = s->now;
	trace(s, "== phase %d", (int)s->phase);
	if (s->phase == PHASE_HEAL)
		plan_heal(s);
	if (s->phase == PHASE_READ)
		s->node[s->seed % s->o.nodes].front.seq_block = 0;
}

static void phase_advance(struct sim *s)
{
	switch (s->phase) {
	case PHASE_SAFETY:
		if (faults_over(s))
			phase_next(s);
		break;
	case PHASE_HEAL:
		if (whole(s) && rollback_act(s))
			s->phase_us = s->now;
		else if (whole(s))
			phase_next(s);
		else if (s->now > s->phase_us + HEAL_MOST_US)
			not_live(s, "not whole again");
		break;
	case PHASE_IDLE:
		if (world_clean(s))
			phase_next(s);
		else if (s->now > s->phase_us + IDLE_MOST_US)
			not_live(s, "regions stay dirty");
		break;
	case PHASE_READ:
		if (front_read_all(s, &s->node[s->seed % s->o.nodes]))
			phase_next(s);
		else if (s->now > s->phase_us + IDLE_MOST_US)
			not_live(s, "the last reads don't end");
		break;
	case PHASE_DONE:
		break;
	}
}

bool seed_run(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st)
{
	bool ok;

	seed_open(s, seed, cli, st);
	while (!s->failed && s->phase != PHASE_DONE) {
		if (!world_event(s, NEVER))
			sim_fail(s, "LIVENESS", "nothing is left to happen");
		if (s->failed)
			break;
		checks_event(s);
		if (s->phase == PHASE_SAFETY)
			plan_event(s);
		phase_advance(s);
		if (s->events > EVENTS_MOST)
			not_live(s, "too many events");
	}
	if (!s->failed)
		checks_final(s);
	ok = !s->failed;
	if (!ok && cli->tail)
		trace_tail(s);
	stats_seed(s);
	world_close(s);
	return ok;
}
