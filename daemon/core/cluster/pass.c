/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A pass through the regions, one at a time: region, FLUSH, and what that allows (pass.h). */
#include <assert.h>
#include <stdlib.h>

#include "daemon/core/cluster/cluster.h"

/* Region by region is what the data plane does, and is traced with that; FLUSHes are rare. */
static void pass_move(struct engine *e, struct pass *p, enum pass_state to)
{
	static const char *const begins[] = {
	    [PASS_REGION] = "goes to its next region",
	    [PASS_FLUSH] = "sends a FLUSH",
	    [PASS_DRAIN] = "waits for the end of what counts no more",
	};
	static const char *const ends[] = {
	    [PASS_REGION] = "leaves that region",
	    [PASS_FLUSH] = "has the answers to its FLUSH",
	    [PASS_DRAIN] = "has nothing under way any more",
	};
	static const uint8_t legal[] = {
	    [PASS_IDLE] = 1 << PASS_REGION | 1 << PASS_FLUSH,
	    [PASS_REGION] = 1 << PASS_IDLE | 1 << PASS_DRAIN,
	    [PASS_FLUSH] = 1 << PASS_IDLE | 1 << PASS_DRAIN,
	    [PASS_DRAIN] = 1 << PASS_IDLE,
	};

	assert(legal[p->state] >> to & 1);
	if (to == PASS_IDLE)
		TRACE_DATA(e, "%s %s", p->ops->name, ends[p->state]);
	else if (to == PASS_REGION)
		TRACE_DATA(e, "%s %s", p->ops->name, begins[to]);
	else
		TRACE(e, "%s %s", p->ops->name, begins[to]);
	p->state = to;
}

void pass_init(struct pass *p, const struct pass_ops *ops)
{
	p->ops = ops;
}

void pass_free(struct pass *p)
{
	job_free(&p->job);
}

/* What counts no more may have ended: a cancelled job ends without a word. */
static void drain_advance(struct engine *e, struct pass *p)
{
	if (p->state == PASS_DRAIN && !p->job.r && !job_busy(&p->job) && !pass_flushing(p))
		pass_move(e, p, PASS_IDLE);
}

void pass_cancel(struct engine *e, struct pass *p)
{
	job_cancel(e, &p->job);
	if (p->state == PASS_REGION || p->state == PASS_FLUSH)
		pass_move(e, p, PASS_DRAIN);
	drain_advance(e, p);
}

/* May what it did be told to its user? */
static bool still_leads(const struct engine *e)
{
	return e->state != ENGINE_REMOVED && leading(e);
}

/* ---- a region ------------------------------------------------------------------------------- */

static void region_ended(struct engine *e, struct job *j)
{
	struct pass *p = j->arg;

	pass_move(e, p, PASS_IDLE);
	if (j->unreadable) {
		TRACE(e, "%s met a bad spot in region %llu, and tries that again later",
		      p->ops->name, (unsigned long long)j->region);
		p->again_us = e->now + UNREADABLE_AGAIN_US;
	} else if (still_leads(e)) {
		p->ops->region_done(e, j);
	}
}

static void region_begin(struct engine *e, struct pass *p, uint64_t r)
{
	uint64_t first = geo_region_first(&e->geo, r);

	pass_move(e, p, PASS_REGION);
	job_init(&p->job, p->ops->kind, region_ended, p);
	p->job.target = p->target;
	job_start(e, &p->job, r, first, first + geo_region_count(&e->geo, r));
}

/* ---- the FLUSH ------------------------------------------------------------------------------ */

bool pass_flushing(const struct pass *p)
{
	return p->batch.pending;
}

/* Whom the FLUSH goes to: new writes go there, so jobs do. */
static uint32_t flush_targets(const struct engine *e, const struct pass *p)
{
	return p->target ? p->target : write_targets(e);
}

/* Without these it does not count: one that has entered meanwhile was not asked. */
static uint32_t flush_musts(const struct engine *e, const struct pass *p)
{
	return p->target ? p->target : write_musts(e);
}

static void flush_ended(struct engine *e, struct batch *b)
{
	struct pass *p = list_entry(b, struct pass, batch);

	if (p->state == PASS_DRAIN) {
		drain_advance(e, p);
		return;
	}
	pass_move(e, p, PASS_IDLE);
	if (!still_leads(e))
		return;
	if (flush_musts(e, p) & ~b->ok || (p->ops->one_epoch && p->flush_num != e->map.epoch.num))
		TRACE(e, "%s: that flush does not count", p->ops->name);
	else
		p->ops->flushed(e);
}

void pass_flush(struct engine *e, struct pass *p)
{
	pass_move(e, p, PASS_FLUSH);
	p->flush_num = e->map.epoch.num;
	batch_init(&p->batch, flush_ended);
	batch_open(&p->batch);
	flush_members(e, &p->batch, flush_targets(e, p));
	batch_close(e, &p->batch);
}

/* ---- the loop ------------------------------------------------------------------------------- */

bool pass_ready(struct engine *e, struct pass *p)
{
	drain_advance(e, p);
	return p->state == PASS_IDLE && e->now >= p->again_us && !vouch_lacks(e) &&
	       members_ready(e, flush_musts(e, p) | flush_targets(e, p)) &&
	       !(p->target & ~write_targets(e)); /* a proposal may drop it again */
}

void pass_advance(struct engine *e, struct pass *p)
{
	bool stops = e->view.stopping && !leave_held(e); /* nothing more is begun */
	uint64_t r;

	if (!pass_ready(e, p) || (p->ops->may_run && !p->ops->may_run(e)))
		return;
	r = p->ops->next(e);
	if (p->ops->flush_due(e, r, stops))
		pass_flush(e, p);
	else if (r < e->geo.regions && !stops)
		region_begin(e, p, r);
	else
		p->ops->rest(e, r);
}
