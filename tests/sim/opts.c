/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a seed draws before anything happens.
 */
#include "tests/sim/world.h"

#define MOST_USER_BYTES (3u << 20) /* small, so that a seed takes some milliseconds */
#define SPARES 3u
#define LONG_RUN 64u

static uint32_t draw(struct sim *s, uint32_t lo, uint32_t hi)
{
	return (uint32_t)rng_range(&s->rng, lo, hi);
}

static void draw_geometry(struct sim *s)
{
	struct opts *o = &s->o;
	uint32_t dice = rng_below(&s->rng, 100), regions, most;
	uint64_t stripes;

	o->geo.order = (uint8_t)(dice < 55 ? 1 : dice < 90 ? 2 : 3);
	o->geo.m = 1;
	o->geo.layout = rng_chance(&s->rng, 700) ? GEO_ROTATE : GEO_DEDICATED;
	o->geo.slots = (uint8_t)draw(s, o->nodes < 4 ? 4 : o->nodes, 8);
	o->geo.stripe_bytes = DDR_BLOCK_BYTES;
	o->geo.band_bytes = 16384u << rng_below(&s->rng, 3);
	o->geo.region_bytes = 65536u << rng_below(&s->rng, 3);
	most = MOST_USER_BYTES / o->geo.region_bytes;
	regions = draw(s, 6, most > 40 ? 40 : most);
	stripes = (uint64_t)regions * o->geo.region_bytes / DDR_BLOCK_BYTES;
	if (rng_chance(&s->rng, 500)) /* the last region is a short one */
		stripes -= rng_below(&s->rng, o->geo.region_bytes / DDR_BLOCK_BYTES);
	o->geo.member_bytes = DATA_ALIGN + stripes * (DDR_BLOCK_BYTES >> o->geo.order);
	o->members = (1u << o->geo.order) + o->geo.m;
	o->disks = o->members + SPARES;
	o->clean = rng_chance(&s->rng, 750);
}

static uint64_t array_blocks(const struct geo_params *p)
{
	return ((p->member_bytes - DATA_ALIGN) << p->order) / DDR_BLOCK_BYTES;
}

static void draw_tunables(struct sim *s)
{
	struct tunables *t = &s->o.tun;

	t->release_delay_ms = draw(s, 20, 200);
	t->heartbeat_ms = 20;
	t->heartbeat_limit_ms = 150;
	t->evict_ms = 400;
	t->settle_ms = 50;
	t->reach_ms = mix64(s->seed ^ 0x7265616368) % 3 ? 0 : 1000;
	t->member_retry_ms = 500;
	t->renew_ms = 100;
	t->patience_ms = 1200; /* the token, `evict`, and what a fence of them takes */
	t->claim_ms = 20;
	t->checkpoint_regions = draw(s, 2, 8);
	t->eio_when_lost = rng_chance(&s->rng, 300);
	t->mark_ahead = rng_chance(&s->rng, 700);
}

static void draw_workload(struct sim *s)
{
	struct opts *o = &s->o;

	o->races = rng_chance(&s->rng, 300);
	o->writes = draw(s, 200, 350);
	o->depth = draw(s, 2, 14);
	o->max_blocks = draw(s, 1, rng_chance(&s->rng, 200) ? 80 : 20);
	o->read_permille = draw(s, 150, 500);
	o->flush_permille = draw(s, 0, 120);
	o->zeroes_permille = draw(s, 0, 150);
	o->fua_permille = draw(s, 0, 200);
	o->think_us = draw(s, 2000, 20000);
}

void opts_draw(struct sim *s, uint32_t force_nodes)
{
	struct opts *o = &s->o;
	uint32_t dice = rng_below(&s->rng, 100);

	*o = (struct opts){0};
	o->nodes = dice < 50 ? 3 : dice < 75 ? 4 : 5;
	if (force_nodes)
		o->nodes = force_nodes;
	draw_geometry(s);
	draw_tunables(s);
	draw_workload(s);
	o->fence_cuts = rng_chance(&s->rng, 700);
	o->instance_known = rng_chance(&s->rng, 700);
	o->cancel_drops = rng_chance(&s->rng, 600);
	o->locks = rng_chance(&s->rng, 300) && o->nodes > 1 ? LOCK_EXTERNAL : LOCK_TABLE;
	o->max_ios = rng_chance(&s->rng, 500) ? 256 : draw(s, 2, 16);
	o->token_us = 300 * MS;
	o->zombie_us = draw(s, 60, 300) * MS;
	o->disk_lo_us = draw(s, 30, 200);
	o->disk_hi_us = o->disk_lo_us + draw(s, 50, 2500);
	o->net_lo_us = draw(s, 20, 100);
	o->net_hi_us = o->net_lo_us + draw(s, 100, 2500);
	o->slow_permille = rng_chance(&s->rng, 500) ? 0 : draw(s, 1, 6);
	o->fence_fail_permille = rng_chance(&s->rng, 500) ? 0 : 400;
	o->faultless = rng_chance(&s->rng, 30);
	o->faults = draw(s, 3, 7);
	o->run_blocks = 32;
	if (mix64(s->seed) >> 6 & 1 &&
	    array_blocks(&o->geo) >= 2ull * o->nodes * LONG_RUN) { /* requests of several parts */
		o->run_blocks = LONG_RUN;
		o->max_blocks = LONG_RUN;
	}
	o->fences_itself = o->fence_cuts && mix64(s->seed) & 1;
	o->own_fence_fails = o->fences_itself && mix64(s->seed) >> 4 & 1;
	o->strikes_rebuilds = o->nodes > 1 && mix64(s->seed) >> 2 & 1;
	o->promotion_permille = mix64(s->seed) >> 8 & 1 ? 700 : 150;
	/* The fake DLM has one master, which two halves can't both have. */
	o->two_node = o->nodes == 2 && o->fence_cuts && o->locks == LOCK_TABLE;
	o->lone_commits = (o->nodes > 2 || o->two_node) && mix64(s->seed) >> 5 & 1;
	o->late_leave = o->locks == LOCK_EXTERNAL && mix64(s->seed) >> 7 & 1;
	o->slow_recovery = o->locks == LOCK_EXTERNAL && !(mix64(s->seed) >> 8 & 3);
	o->quick_restarts = o->nodes > 1 && mix64(s->seed) >> 3 & 1;
	o->tun.restart_wait_ms = mix64(s->seed) & 2 ? 150 : 0;
}
