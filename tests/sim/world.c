/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world as a whole: how it begins, goes on from event to event, and ends.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

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

/* ---- the array ------------------------------------------------------------------------------ */

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

/* ---- the world ------------------------------------------------------------------------------ */

void world_begin(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st)
{
	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->cli = cli;
	s->stats = st;
	rng_seed(&s->rng, seed);
	trace_init(s);
}

bool world_make(struct sim *s)
{
	char why[FORMAT_WHY_BYTES];

	make_uuid(s, s->array_uuid);
	if (geo_choose(&s->geo, &s->o.geo, why)) {
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
	group_init(s);
	dlm_init(s);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		s->node[i].idx = i;
		s->node[i].id = i + 1;
	}
	return true;
}

bool world_open(struct sim *s, uint64_t seed, const struct opts *o, const struct sim_cli *cli,
		struct stats *st)
{
	world_begin(s, seed, cli, st);
	s->o = *o;
	s->o.faultless = s->scripted = s->planner.healing = true;
	return world_make(s);
}

void world_close(struct sim *s)
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

/* ---- events --------------------------------------------------------------------------------- */

bool world_event(struct sim *s, uint64_t until_us)
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

void world_run(struct sim *s, uint64_t until_us, bool judged)
{
	while (!s->failed && world_event(s, until_us))
		if (judged && !s->failed)
			checks_event(s);
}

/* One that refused a write just before all were in sync may leave once more. */
bool world_clean(const struct sim *s)
{
	if (!s->checks.map_full)
		return false;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].st.regions_dirty || s->node[i].st.slots_unrecovered)
			return false;
	return !s->checks.dirty_mask;
}

/* ---- words ---------------------------------------------------------------------------------- */

void world_hear(struct sim *s, world_hear_fn *hear, enum engine_trace what)
{
	s->hear = hear;
	s->hear_what = what;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].e)
			engine_trace(s->node[i].e, what);
}

void world_tell(struct sim *s, const struct simnode *n, const char *fmt, ...)
{
	char words[256];
	va_list ap;

	if (!s->hear)
		return;
	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	s->hear(s, n, words);
}
