/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Regions on this node. A write of one region goes
 *
 *   queue --(lock CW or EX, no overlap)--> marking --(mark durable)--> active --> done
 *
 * and a job (resync, check, rebuild, repairing read) has the region to itself under EX.
 *
 *   held   what the lock manager gave us; cached until called back, or until the mark is cleared
 *   pend   what we asked for and have no answer to; one request at a time; never an upward
 *          conversion that waits: CW is released before EX is queued for. A *try* may stand
 *          beside CW
 *
 * A called back region lets nobody in but those who waited when the lock came (else two busy nodes
 * would pass it to and fro without either doing anything), and gives it up when the last is done.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

/* As long as a region has waited for EX, but no longer than this, its jobs keep it when it is
 * called back: else a slow cluster with busy nodes would pass the lock to and fro for one window
 * each time.
 */
#define TURN_MAX_US 500000ull

struct region *region_find(const struct engine *e, uint64_t idx)
{
	struct hentry *n = htable_find(&e->d->region_of, idx);

	return n ? list_entry(n, struct region, hash) : NULL;
}

struct region *region_get(struct engine *e, uint64_t idx)
{
	struct region *r = region_find(e, idx);

	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	assert(r);
	r->written = calloc(1, e->geo.region_stripes / 8 + 1);
	assert(r->written);
	r->idx = idx;
	r->last_us = e->now;
	list_init(&r->queue);
	list_init(&r->marking);
	list_init(&r->active);
	list_init(&r->readers);
	list_init(&r->jobs);
	htable_add(&e->d->region_of, &r->hash, idx);
	list_add_tail(&e->d->regions, &r->all);
	return r;
}

static void region_free(struct engine *e, struct region *r)
{
	htable_del(&e->d->region_of, &r->hash);
	list_del(&r->all);
	if (r->check) {
		free(r->check->win);
		plan_free(&r->check->plan);
	}
	free(r->check);
	free(r->written);
	free(r);
}

/* At the end of an incarnation: ops and jobs are their owners' to free. */
void regions_drop_all(struct engine *e)
{
	while (!list_empty(&e->d->regions)) {
		struct region *r = list_first(&e->d->regions, struct region, all);

		list_for_each(it, tmp, &r->jobs)
		{
			struct job *j = list_entry(it, struct job, link);

			list_del(&j->link);
			list_del(&j->wait);
			j->r = NULL;
		}
		region_free(e, r);
	}
}

/* ---- the lock ------------------------------------------------------------------------------- */

static void region_ask(struct engine *e, struct region *r, enum lock_mode mode, bool try_only)
{
	assert(r->pend == LOCK_MODE_NONE);
	r->pend = mode;
	r->pend_try = try_only;
	r->asked_us = e->now;
	r->test_writes = r->writes;
	TRACE_DATA(e, "asks for the lock %s of region %llu%s", lock_mode_name(mode),
		   (unsigned long long)r->idx, try_only ? ", if it is free" : "");
	lock_ask(e, LOCK_ID(LOCK_KIND_REGION, r->idx), mode, try_only);
}

static bool region_written(const struct engine *e, const struct region *r)
{
	for (uint32_t i = 0; i < e->geo.region_stripes / 8 + 1; i++)
		if (r->written[i])
			return true;
	return false;
}

static void region_drop(struct engine *e, struct region *r)
{
	assert(r->held != LOCK_MODE_NONE && !r->users && !r->running);
	/* R19: from now on another node may write what we wrote. */
	if (region_written(e, r))
		r->shared = true;
	r->held = LOCK_MODE_NONE;
	r->called_back = false;
	r->ex_tested = false;
	TRACE_DATA(e, "gives up the lock of region %llu", (unsigned long long)r->idx);
	lock_drop(e, LOCK_ID(LOCK_KIND_REGION, r->idx));
}

/* R19: is anybody else in here? */
void region_test_ex(struct engine *e, struct region *r)
{
	if (r->held == LOCK_MODE_EX) {
		r->ex_tested = true;
		return;
	}
	if (r->pend == LOCK_MODE_NONE && r->held == LOCK_MODE_CW)
		region_ask(e, r, LOCK_MODE_EX, true);
	else if (r->held == LOCK_MODE_NONE)
		r->shared = true;
}

static void region_grant(struct engine *e, struct region *r, enum lock_mode mode)
{
	bool was_try = r->pend_try;

	TRACE_DATA(e, "has the lock %s of region %llu", lock_mode_name(mode),
		   (unsigned long long)r->idx);
	r->pend = LOCK_MODE_NONE;
	r->pend_try = false;
	r->held = mode;
	if (was_try)
		r->ex_tested = !r->users && r->test_writes == r->writes;
	r->turn_us = e->now - r->asked_us;
	if (r->turn_us > TURN_MAX_US)
		r->turn_us = TURN_MAX_US;
	r->turn_end = 0;
	list_for_each(it, tmp, &r->queue) r->admit++;
	region_kick(e, r);
}

void region_granted(struct engine *e, uint64_t id, enum lock_mode mode, bool refused)
{
	struct region *r =
	    id >> 56 == LOCK_KIND_REGION ? region_find(e, id & ((1ull << 56) - 1)) : NULL;

	if (!r || r->pend != mode || e->state == ENGINE_REMOVED) {
		if (!refused && e->state != ENGINE_REMOVED && !(r && lock_covers(r->held, mode)))
			lock_drop(e, id);
		return;
	}
	if (refused) {
		r->pend = LOCK_MODE_NONE;
		r->pend_try = false;
		r->shared = true;
		region_kick(e, r);
	} else if (e->cfg.lock_backend == LOCK_EXTERNAL) {
		r->early = mode;
		r->early_num = settle_want(e);
		e->d->locks_early = true;
	} else {
		region_grant(e, r, mode);
	}
}

void region_called_back(struct engine *e, uint64_t id, enum lock_mode wanted)
{
	struct region *r =
	    id >> 56 == LOCK_KIND_REGION ? region_find(e, id & ((1ull << 56) - 1)) : NULL;

	if (!r || (r->held == LOCK_MODE_NONE && !r->early))
		return;
	if (r->held != LOCK_MODE_NONE && lock_compatible(r->held, wanted))
		return;
	TRACE_DATA(e, "is asked to give up the lock of region %llu", (unsigned long long)r->idx);
	r->called_back = true;
	region_kick(e, r);
}

/* A round is Ready: what was asked for and not granted is asked again, of the new leader. */
void region_resend_locks(struct engine *e)
{
	if (e->cfg.lock_backend == LOCK_EXTERNAL) {
		/* What was asked in another round is answered by nobody. */
		settle_void(e, e->d->locks_early);
		return;
	}
	list_for_each(it, tmp, &e->d->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		if (r->pend != LOCK_MODE_NONE)
			lock_ask(e, LOCK_ID(LOCK_KIND_REGION, r->idx), r->pend, r->pend_try);
	}
}

/* What an external manager has granted counts now, as far as the others have answered. */
static void early_advance(struct engine *e)
{
	uint64_t answered;

	if (!e->d->locks_early || !settle_passed(e, &answered))
		return;
	e->d->locks_early = false;
	list_for_each(it, tmp, &e->d->regions)
	{
		struct region *r = list_entry(it, struct region, all);
		enum lock_mode mode = r->early;

		if (mode == LOCK_MODE_NONE)
			continue;
		if (r->early_num > answered) {
			e->d->locks_early = true;
			continue;
		}
		r->early = LOCK_MODE_NONE;
		region_grant(e, r, mode);
	}
}

/* ---- ops ------------------------------------------------------------------------------------ */

static bool overlaps(const struct list *l, const struct op *op)
{
	list_for_each(it, tmp, l)
	{
		const struct op *o = list_entry(it, struct op, link);

		if (o != op && o->stripe < op->stripe + op->count &&
		    op->stripe < o->stripe + o->count)
			return true;
	}
	return false;
}

/*
 * R5: under CW a node that is dead now may have been writing here, and what it has sent may land
 * until it is fenced: over what is written now and answered before that. And see quiet.c.
 */
static bool writes_wait(struct engine *e, const struct region *r)
{
	bool wait = (r->held != LOCK_MODE_EX && lost_unfenced(e)) || writes_held(e);

	e->d->writes_waited |= wait;
	return wait;
}

static void op_activate(struct engine *e, struct op *op)
{
	list_del(&op->link);
	list_add_tail(&op->r->active, &op->link);
	op_move(op, OPS_IO);
	io_start_op(e, op);
}

static void region_admit(struct engine *e, struct region *r)
{
	while (!list_empty(&r->queue)) {
		struct op *op = list_first(&r->queue, struct op, link);
		uint64_t first = geo_region_first(&e->geo, r->idx);

		if ((r->called_back && !r->admit) || writes_wait(e, r))
			return;
		if (overlaps(&r->active, op) || overlaps(&r->marking, op))
			return; /* R19: one after the other */
		r->admit -= r->admit > 0;
		r->users++;
		r->writes++;
		r->ex_tested = r->flushing = false;
		for (uint32_t i = 0; i < op->count; i++)
			bit_set(r->written, (uint32_t)(op->stripe - first) + i);
		list_del(&op->link);
		list_add_tail(&r->marking, &op->link);
		op_move(op, OPS_WAIT_MARK);
		dlog_mark(e, r);
		if (dlog_marked(e, r->idx))
			op_activate(e, op);
	}
}

/* The region's mark is durable: those who waited for it go on. */
void region_marked(struct engine *e, struct region *r)
{
	while (!list_empty(&r->marking) && !writes_wait(e, r))
		op_activate(e, list_first(&r->marking, struct op, link));
	region_kick(e, r);
}

/* The departed are fenced, or the moment without writes is over: who waited for that goes on. */
void regions_advance(struct engine *e)
{
	early_advance(e);
	if (!e->d->writes_waited || lost_unfenced(e) || writes_held(e) ||
	    e->state == ENGINE_REMOVED)
		return;
	e->d->writes_waited = false;
	list_for_each(it, tmp, &e->d->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		if (dlog_marked(e, r->idx))
			region_marked(e, r);
		else
			region_kick(e, r);
	}
}

/* R12, R17: the parity of any stripe may be wrong; also of those that a check has done already. */
void region_doubt(struct region *r)
{
	r->resync_all = true;
	r->doubted = r->check != NULL;
}

static bool job_may_run(struct engine *e, struct region *r, const struct job *j)
{
	if (j->kind != JOB_READ)
		return true;
	dlog_mark(e, r); /* rewriting parity needs a mark of our own */
	return dlog_marked(e, r->idx);
}

/* A grant has one turn, for all jobs together: were it one for each, a node that always has one
 * more, as of its readers in a region in doubt, would never let others in, nor the resync. */
static bool turn_over(const struct engine *e, const struct region *r)
{
	return r->called_back && r->turn_end && e->now >= r->turn_end;
}

static void region_kick_job(struct engine *e, struct region *r)
{
	struct job *j = list_first(&r->jobs, struct job, link);

	if (r->users || r->pend != LOCK_MODE_NONE)
		return;
	if (r->held == LOCK_MODE_EX && !turn_over(e, r)) {
		if (job_may_run(e, r, j)) {
			if (!r->turn_end)
				r->turn_end = e->now + r->turn_us;
			r->running = j;
			window_start(e, j);
		}
		return;
	}
	/* Let the others in, then queue again. */
	if (r->held != LOCK_MODE_NONE)
		region_drop(e, r);
	region_ask(e, r, LOCK_MODE_EX, false);
}

static void region_put(struct engine *e, struct region *r)
{
	if (r->users || r->want_mark || r->pend != LOCK_MODE_NONE || r->running ||
	    !list_empty(&r->queue) || !list_empty(&r->jobs) || !list_empty(&r->readers))
		return;
	if (r->held != LOCK_MODE_NONE) {
		memset(r->written, 0, e->geo.region_stripes / 8 + 1);
		region_drop(e, r);
	}
	region_free(e, r);
}

void region_kick(struct engine *e, struct region *r)
{
	if (r->running || e->state == ENGINE_REMOVED)
		return;
	/* A job keeps new ops out, but not those whose lock has just come. */
	if (r->held != LOCK_MODE_NONE && (list_empty(&r->jobs) || r->admit))
		region_admit(e, r);
	if (list_empty(&r->queue))
		r->admit = 0;
	if (!list_empty(&r->jobs)) {
		if (!r->admit || r->held == LOCK_MODE_NONE)
			region_kick_job(e, r);
		return;
	}
	if (r->called_back && r->held != LOCK_MODE_NONE && !r->users && r->pend == LOCK_MODE_NONE)
		region_drop(e, r);
	if (!list_empty(&r->queue) && r->held == LOCK_MODE_NONE && r->pend == LOCK_MODE_NONE)
		region_ask(e, r, LOCK_MODE_CW, false);
	region_put(e, r);
}

void region_op_add(struct engine *e, struct op *op)
{
	op_move(op, OPS_WAIT_REGION);
	list_add_tail(&op->r->queue, &op->link);
	region_kick(e, op->r);
}

void region_op_done(struct engine *e, struct op *op)
{
	struct region *r = op->r;

	list_del(&op->link);
	assert(r->users);
	r->users--;
	r->last_us = e->now;
	list_for_each(it, tmp, &r->readers)
	{
		list_del(it);
		list_add_tail(&e->d->retry, it);
	}
	region_kick(e, r);
}

void region_op_cancel(struct engine *e, struct op *op)
{
	if (op->state == OPS_WAIT_MARK) {
		region_op_done(e, op);
		return;
	}
	assert(op->state == OPS_WAIT_REGION);
	list_del(&op->link);
	region_kick(e, op->r);
}

/* A read waits for our own writes of the same blocks: half a stripe of each would not decode. */
bool region_read_waits(struct engine *e, struct op *op)
{
	struct region *r = region_find(e, geo_region_of(&e->geo, op->stripe));

	if (!r || !overlaps(&r->active, op))
		return false;
	list_del(&op->link);
	list_add_tail(&r->readers, &op->link);
	return true;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* Between two windows of the running job; true: it has lost the region, and comes again. */
bool region_yield(struct engine *e, struct region *r)
{
	if (!turn_over(e, r))
		return false;
	r->running = NULL;
	region_kick(e, r);
	return true;
}

void region_job_add(struct engine *e, struct job *j)
{
	list_add_tail(&j->r->jobs, &j->link);
	region_kick(e, j->r);
}

void region_job_done(struct engine *e, struct job *j)
{
	struct region *r = j->r;

	list_del(&j->link);
	j->r = NULL;
	if (r->running == j)
		r->running = NULL; /* a queued one may be cancelled while another runs */
	r->last_us = e->now;
	region_kick(e, r);
}

bool regions_writing(const struct engine *e)
{
	list_for_each(it, tmp, &e->d->regions)
	{
		const struct region *r = list_entry(it, struct region, all);

		if (r->running && r->running->busy)
			return true;
	}
	return false;
}

void regions_doubt(struct engine *e)
{
	list_for_each(it, tmp, &e->d->regions) region_doubt(list_entry(it, struct region, all));
}

bool regions_any(const struct engine *e)
{
	return !list_empty(&e->d->regions);
}

uint32_t regions_held(const struct engine *e, uint64_t *after, uint64_t id[], uint32_t mode[],
		      uint32_t max)
{
	const struct list *it = *after ? &region_find(e, *after - 1)->all : &e->d->regions;
	uint32_t n = 0;

	for (it = it->next; it != &e->d->regions && n < max; it = it->next) {
		const struct region *r = list_entry(it, struct region, all);

		*after = r->idx + 1;
		if (r->held == LOCK_MODE_NONE)
			continue;
		id[n] = LOCK_ID(LOCK_KIND_REGION, r->idx);
		mode[n++] = (uint32_t)r->held;
	}
	return n;
}
