/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Regions on this node: their marks, and what is at the members in them. A write of one region goes
 *
 *   queue --(lock CW or EX, no overlap)--> marking --(mark durable)--> active --> done
 *
 * and a job (resync, check, rebuild, repairing read) has the region to itself under EX. Who is let
 * in is the lock's to say (lock.h); whether another node may have written here, too, is remembered
 * by the region, until its mark is cleared (R19).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

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
	list_init(&r->marking);
	list_init(&r->active);
	list_init(&r->readers);
	r->lock = lock_new(e, r, lock_id_of(e, geo_region_first(&e->geo, idx)));
	htable_add(&e->d->region_of, &r->hash, idx);
	list_add_tail(&e->d->regions, &r->all);
	return r;
}

static void region_free(struct engine *e, struct region *r)
{
	htable_del(&e->d->region_of, &r->hash);
	list_del(&r->all);
	if (r->check) {
		job_free(r->check);
	}
	lock_free(e, r->lock);
	free(r->check);
	free(r->written);
	free(r);
}

/* At the end of an incarnation: ops and jobs are their owners' to free. */
void regions_drop_all(struct engine *e)
{
	while (!list_empty(&e->d->regions))
		region_free(e, list_first(&e->d->regions, struct region, all));
}

/* ---- what its lock says of it --------------------------------------------------------------- */

bool region_written(const struct engine *e, const struct region *r)
{
	for (uint32_t i = 0; i < e->geo.region_stripes / 8 + 1; i++)
		if (r->written[i])
			return true;
	return false;
}

void region_left(const struct engine *e, struct region *r)
{
	if (region_written(e, r))
		r->shared = true;
	r->ex_tested = false;
}

void region_test_ex(struct engine *e, struct region *r)
{
	struct lock *l = r->lock;

	if (l->held == LOCK_MODE_EX) {
		r->ex_tested = true;
	} else if (l->held == LOCK_MODE_NONE) {
		r->shared = true;
	} else if (l->state == LK_HELD) {
		r->test_writes = r->writes;
		lock_try_ex(e, l);
	}
}

void region_tried(struct region *r, bool alone)
{
	if (alone)
		r->ex_tested = !r->lock->users && r->test_writes == r->writes;
	else
		r->shared = true;
}

/* ---- ops ------------------------------------------------------------------------------------ */

static bool overlaps(const struct list *l, const struct op *op)
{
	list_for_each(it, tmp, l)
	{
		const struct op *o = list_entry(it, struct op, link);

		if (o != op && o->s.first < op->s.first + op->s.count &&
		    op->s.first < o->s.first + o->s.count)
			return true;
	}
	return false;
}

bool region_overlaps(const struct region *r, const struct op *op)
{
	return overlaps(&r->active, op) || overlaps(&r->marking, op);
}

static void op_activate(struct engine *e, struct op *op)
{
	list_del(&op->link);
	list_add_tail(&op->r->active, &op->link);
	op_move(op, OPS_IO);
	io_start_op(e, op);
}

void region_enter(struct engine *e, struct op *op)
{
	struct region *r = op->r;
	uint64_t first = geo_region_first(&e->geo, r->idx);

	r->writes++;
	r->ex_tested = r->flushing = false;
	for (uint32_t i = 0; i < op->s.count; i++)
		bit_set(r->written, (uint32_t)(op->s.first - first) + i);
	list_del(&op->link);
	list_add_tail(&r->marking, &op->link);
	op_move(op, OPS_WAIT_MARK);
	dlog_mark(e, r);
	if (dlog_marked(e, r->idx))
		op_activate(e, op);
}

/* The region's mark is durable: those who waited for it go on. */
void region_marked(struct engine *e, struct region *r)
{
	while (!list_empty(&r->marking) && !lock_writes_wait(e, r->lock))
		op_activate(e, list_first(&r->marking, struct op, link));
	lock_kick(e, r->lock);
}

/* The departed are fenced, or the moment without writes is over: who waited for that goes on. */
void regions_advance(struct engine *e)
{
	locks_advance(e);
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
			lock_kick(e, r->lock);
	}
}

/* R12, R17: the parity of any stripe may be wrong; also of those that a check has done already. */
void region_doubt(struct region *r)
{
	r->resync_all = true;
	r->doubted = r->check != NULL;
}

void region_put(struct engine *e, struct region *r)
{
	struct lock *l = r->lock;

	if (l->users || r->want_mark || lock_asks(l) || l->running || !list_empty(&l->queue) ||
	    !list_empty(&l->jobs) || !list_empty(&r->readers))
		return;
	if (l->held != LOCK_MODE_NONE) {
		memset(r->written, 0, e->geo.region_stripes / 8 + 1);
		lock_give_up(e, l);
	}
	region_free(e, r);
}

void region_op_add(struct engine *e, struct op *op)
{
	op_move(op, OPS_WAIT_REGION);
	list_add_tail(&op->r->lock->queue, &op->link);
	lock_kick(e, op->r->lock);
}

void region_op_done(struct engine *e, struct op *op)
{
	struct region *r = op->r;

	list_del(&op->link);
	assert(r->lock->users);
	r->lock->users--;
	r->last_us = e->now;
	list_for_each(it, tmp, &r->readers)
	{
		list_del(it);
		list_add_tail(&e->d->retry, it);
	}
	lock_kick(e, r->lock);
}

void region_op_cancel(struct engine *e, struct op *op)
{
	if (op->state == OPS_WAIT_MARK) {
		region_op_done(e, op);
		return;
	}
	assert(op->state == OPS_WAIT_REGION);
	list_del(&op->link);
	lock_kick(e, op->r->lock);
}

/* A read waits for our own writes of the same blocks: half a stripe of each would not decode. */
bool region_read_waits(struct engine *e, struct op *op)
{
	struct region *r = region_find(e, geo_region_of(&e->geo, op->s.first));

	if (!r || !overlaps(&r->active, op))
		return false;
	list_del(&op->link);
	list_add_tail(&r->readers, &op->link);
	return true;
}

void regions_doubt(struct engine *e)
{
	list_for_each(it, tmp, &e->d->regions) region_doubt(list_entry(it, struct region, all));
}

bool regions_any(const struct engine *e)
{
	return !list_empty(&e->d->regions);
}
