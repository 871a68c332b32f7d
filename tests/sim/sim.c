/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One seed.
 *
 *   SAFETY  work and faults
 *   HEAL    no more faults; everything that can be healed is; the cluster must become whole
 *   IDLE    no more work; every region must become clean
 *   READ    one node reads the whole array
 *   DONE    the media are checked raw
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define SAFETY_LEAST_US (700 * MS)
#define SAFETY_MOST_US (15000 * MS)
#define HEAL_MOST_US (60000 * MS)
#define IDLE_MOST_US (20000 * MS)
#define EVENTS_MOST 3000000u

void *xmalloc(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	assert(p);
	return p;
}

void *xcalloc(size_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	assert(p);
	return p;
}

void *xrealloc(void *old, size_t bytes)
{
	void *p = realloc(old, bytes);

	assert(p);
	return p;
}

void sim_fail(struct sim *s, const char *check, const char *fmt, ...)
{
	va_list ap;
	int at;

	if (s->failed)
		return;
	s->failed = true;
	at = snprintf(s->violation, sizeof(s->violation), "%s: at %lu us: ", check, s->now);
	va_start(ap, fmt);
	vsnprintf(s->violation + at, sizeof(s->violation) - (size_t)at, fmt, ap);
	va_end(ap);
	trace(s, "!! %s", s->violation);
}

void sim_at(struct sim *s, uint64_t delay_us, void (*fn)(struct sim *, struct hev *), uint64_t a,
	    uint64_t b, void *p)
{
	heap_add(&s->heap, s->now + delay_us, fn, a, b, p);
}

uint64_t sim_stamp(struct sim *s)
{
	return ++s->stamp;
}

/* ---- set-up --------------------------------------------------------------------------------- */

static int poke(void *arg, uint64_t offset, const uint8_t *block)
{
	disk_poke(arg, offset, block);
	return 0;
}

static void make_uuid(struct sim *s, uint8_t *uuid)
{
	for (uint32_t i = 0; i < DDR_UUID_BYTES; i++)
		uuid[i] = (uint8_t)rng_u64(&s->rng);
}

static void make_array(struct sim *s)
{
	struct create_params p = {.geo = s->o.geo, .clean = s->o.clean, .name = "sim"};

	p.inc = s->next_inc = rng_range(&s->rng, 1, 100);
	memcpy(p.array_uuid, s->array_uuid, DDR_UUID_BYTES);
	for (uint32_t i = 0; i < s->o.members; i++)
		make_uuid(s, p.member_uuid[i]);
	for (uint32_t i = 0; i < s->o.disks; i++) {
		struct disk *d = &s->disk[i];

		disk_init(s, d, i,
			  (s->o.geo.member_bytes + 4095) / 4096 * 4096 +
			      rng_below(&s->rng, 8) * 4096ull);
		d->instance = s->o.instance_known ? mix64(s->seed + i) | 1 : 0;
		snprintf(d->uri, sizeof(d->uri), "sim:disk%u", i);
		if (!s->o.clean && (i < s->o.members || rng_chance(&s->rng, 500)))
			disk_fill(s, d, s->geo.data_offset);
		if (i < s->o.members && create_member(&p, (uint8_t)i, poke, d))
			sim_fail(s, "SIM", "create_member %u failed", i);
	}
	for (uint32_t i = 0; i < s->o.members; i++)
		disk_scan(s, &s->disk[i]);
}

static void on_shift(struct sim *s, struct hev *ev)
{
	(void)ev;
	s->shift++;
	if (s->phase == PHASE_SAFETY)
		sim_at(s, rng_range(&s->rng, 200 * MS, 1500 * MS), on_shift, 0, 0, NULL);
}

static void make_nodes(struct sim *s)
{
	bool together = rng_chance(&s->rng, 500);

	group_init(s);
	dlm_init(s);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		s->node[i].idx = i;
		s->node[i].id = i + 1;
	}
	for (uint32_t i = 0; i < s->o.nodes; i++)
		node_power_on_later(s, &s->node[i], together ? 0 : rng_range(&s->rng, 0, 300 * MS));
}

/* With room for their log, and the data as large as before. Where small pages make that too large
 * for the members, there are as many slots as were drawn. */
static void slots_force(struct sim *s, uint8_t slots)
{
	uint64_t data = s->o.geo.member_bytes - DATA_ALIGN;
	struct geo_params p = s->o.geo;
	struct geo g;

	p.slots = slots;
	for (uint32_t i = 0; i < 4; i++, p.member_bytes += DATA_ALIGN) {
		if (geo_init(&g, &p, NULL) || p.member_bytes - g.data_offset != data)
			continue;
		s->o.geo = p;
		return;
	}
}

bool sim_setup(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st)
{
	const char *why = "";

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->cli = cli;
	s->stats = st;
	rng_seed(&s->rng, seed);
	trace_init(s);
	opts_draw(s, cli->nodes);
	make_uuid(s, s->array_uuid);
	if (cli->slots)
		slots_force(s, (uint8_t)cli->slots);
	if (geo_init(&s->geo, &s->o.geo, NULL)) {
		s->o.geo.slots = (uint8_t)(s->o.nodes + 1); /* many small log pages */
		s->o.geo.member_bytes += DATA_ALIGN;
	}
	if (geo_init(&s->geo, &s->o.geo, &why)) {
		sim_fail(s, "SIM", "geometry: %s", why);
		return false;
	}
	assert(s->geo.regions <= SIM_MAX_REGIONS && s->geo.log_pages <= SIM_MAX_PAGES);
	make_array(s);
	if (s->failed)
		return false;
	oracle_init(s);
	risk_init(s);
	checks_init(s);
	if (!s->o.clean)
		risk_set_all(s);
	make_nodes(s);
	plan_init(s);
	operator_init(s);
	on_shift(s, NULL);
	trace(s, "seed %lu: %u nodes, order %u, %lu regions of %u stripes, %s locks%s", seed,
	      s->o.nodes, s->geo.p.order, s->geo.regions, s->geo.region_stripes,
	      s->o.locks == LOCK_TABLE ? "table" : "external", s->o.clean ? "" : ", unsynced");
	return true;
}

void sim_teardown(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		node_end_daemon(s, &s->node[i]);
	heap_clear(&s->heap);
	group_free(s);
	dlm_free(s);
	for (uint32_t i = 0; i < s->reqs; i++) {
		free(s->req[i]->buf);
		free(s->req[i]);
	}
	free(s->req);
	for (uint32_t i = 0; i < s->o.disks; i++)
		disk_free(&s->disk[i]);
	oracle_free(s);
	risk_free(s);
	checks_free(s);
	free(s->outq.v);
	for (uint32_t i = 0; i < SIM_MAX_NODES; i++)
		free(s->node[i].taken.v);
	free(s->copy.image);
	free(s->rollback.image);
	trace_free(s);
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

/* One that refused a write just before all were in sync may leave once more. */
static bool clean(const struct sim *s)
{
	if (!s->checks.map_full)
		return false;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].st.regions_dirty || s->node[i].st.slots_unrecovered)
			return false;
	return !s->checks.dirty_mask;
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
		if (clean(s))
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

static bool one_event(struct sim *s, uint64_t until_us)
{
	struct hev ev;

	if (!s->heap.count || s->heap.v[0].at > until_us || !heap_take(&s->heap, &ev))
		return false;
	s->now = ev.at;
	s->events++;
	s->stamp++;
	ev.fn(s, &ev);
	free(ev.p);
	return true;
}

void sim_run_events(struct sim *s, uint64_t until_us)
{
	while (!s->failed && one_event(s, until_us))
		;
}

bool sim_seed(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st)
{
	bool ok;

	sim_setup(s, seed, cli, st);
	while (!s->failed && s->phase != PHASE_DONE) {
		if (!one_event(s, NEVER))
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
	sim_teardown(s);
	return ok;
}
