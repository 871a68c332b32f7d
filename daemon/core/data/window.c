/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Jobs work through a region window by window, under EX:
 *
 *   RESYNC   a dead node's dirty region: parity computed anew from the data fragments
 *   CHECK    the same for what this node wrote while others may have written it too (R19)
 *   READ     a front-end read in a dirty region: resynced first, so that it can't flip (R18)
 *   REBUILD  a member's fragments decoded from the others
 *
 * A window is: read rows - compute - write the rows that changed. If the map changes, or a member
 * is lost on the way, the window is begun again (R8); nothing of it has to be undone, because each
 * of its writes is what the stripe says anyway. When the region is called back and has had its
 * turn, the job gives it up between two windows and queues for it again.
 *
 * With one member missing (m = 1) there is nothing to resync: the k fragments that are left are the
 * truth. The caller moves such regions to the missed set. But if that member is being rebuilt,
 * RESYNC and CHECK decode onto it: it may have been copied already, before the region came to be in
 * doubt. If one of the k then has a bad spot, the job ends there and gives the region up, so that
 * its blocks can be written anew; its owner tries again later.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

#define CHECK_GAP 8u /* stripes */

void job_init(struct job *j, enum job_kind kind, void (*done)(struct engine *, struct job *),
	      void *arg)
{
	memset(j, 0, sizeof(*j));
	j->kind = kind;
	j->done = done;
	j->arg = arg;
	list_init(&j->link);
	list_init(&j->wait);
}

static const char *const job_name[] = {"resync it", "check it", "rebuild it", "read it"};

void job_start(struct engine *e, struct job *j, uint64_t region, uint64_t stripe, uint64_t end)
{
	assert(!j->r && !job_busy(j));
	j->region = region;
	j->stripe = stripe;
	j->end = end;
	j->cancelled = false;
	TRACE_DATA(e, "wants region %llu to itself, to %s", (unsigned long long)region,
		   job_name[j->kind]);
	j->r = region_get(e, region);
	lock_job_add(e, j);
}

bool job_busy(const struct job *j)
{
	return stripes_busy(&j->s);
}

void job_free(struct job *j)
{
	stripes_free(&j->s);
}

static void job_end(struct engine *e, struct job *j)
{
	bool cancelled = j->cancelled;

	job_free(j);
	list_del(&j->wait);
	if (j->r && e->state != ENGINE_REMOVED)
		lock_job_done(e, j);
	list_del(&j->link); /* removed: its owner may free it before the region goes */
	j->r = NULL;
	if (!cancelled)
		j->done(e, j);
}

/* For the status. */
void unreadable_met(struct engine *e, uint32_t members, uint64_t stripe, uint32_t count)
{
	e->d->unreadable = (struct unreadable){
	    .members = members,
	    .offset = stripe * e->geo.p.stripe_bytes,
	    .bytes = count * e->geo.p.stripe_bytes,
	    .us = e->now,
	};
}

/* The owner has no more use for it. It may still be busy for a moment: look before starting it. */
void job_cancel(struct engine *e, struct job *j)
{
	if (!j->r || j->cancelled)
		return;
	j->cancelled = true;
	if (!job_busy(j))
		job_end(e, j);
}

static void window_wait(struct engine *e, struct job *j)
{
	list_del(&j->wait);
	list_add_tail(&e->d->job_wait, &j->wait);
}

static void window_advance(struct engine *e, struct job *j)
{
	recovery_window(e, j);
	j->stripe += j->s.count;
	if (j->stripe >= j->end || !lock_yield(e, j->r->lock))
		window_start(e, j);
}

static void window_written(struct engine *e, struct stripes *s)
{
	struct job *j = list_entry(s, struct job, s);

	if (j->cancelled || e->state == ENGINE_REMOVED)
		job_end(e, j);
	else if (j->wrote & ~s->batch.ok)
		window_wait(e, j);
	else
		window_advance(e, j);
}

static enum dev_kind kind_of(const struct job *j)
{
	return j->kind == JOB_REBUILD ? KIND_REBUILD
	       : j->kind == JOB_CHECK ? KIND_CHECK
				      : KIND_RESYNC;
}

static void window_write(struct engine *e, struct job *j, uint32_t rows)
{
	if (!member_io_room(e, e->geo.n, false)) {
		window_wait(e, j); /* and is read again */
		return;
	}
	j->wrote = rows;
	stripes_write(e, &j->s, rows, j->kind == JOB_REBUILD ? KIND_REBUILD : KIND_RESYNC, 0,
		      window_written);
}

/* Which rows are to be written. */
static uint32_t window_compute(struct engine *e, struct job *j)
{
	uint32_t rows = j->target, wrong = 0;

	if (j->target)
		stripes_decode(e, &j->s, j->target);
	else if (j->s.rows == geo_all(&e->geo))
		rows = stripes_reparity(e, &j->s, &wrong);
	else
		stripes_decode(e, &j->s, geo_all(&e->geo) & ~j->s.rows);
	e->d->n_parity_fixed += wrong;
	if (j->kind == JOB_READ)
		stripes_to_user(e, &j->s, j->data + (j->stripe - j->first) * e->geo.p.stripe_bytes);
	return rows;
}

static void window_read(struct engine *e, struct stripes *s)
{
	struct job *j = list_entry(s, struct job, s);
	const struct batch *b = &s->batch;
	uint32_t rows;

	if (j->cancelled || e->state == ENGINE_REMOVED) {
		job_end(e, j);
		return;
	}
	if (b->unreadable && b->failed == b->unreadable && j->map_num == e->map.epoch.num) {
		unreadable_met(e, b->unreadable, j->stripe, s->count);
		j->unreadable = true;
		job_end(e, j);
		return;
	}
	if (b->failed || j->map_num != e->map.epoch.num) {
		window_wait(e, j);
		return;
	}
	rows = window_compute(e, j);
	if (rows)
		window_write(e, j, rows);
	else
		window_advance(e, j);
}

static uint32_t window_max(const struct geo *g)
{
	uint32_t max = DDR_WINDOW_BYTES / g->p.stripe_bytes;

	return max ? max : 1;
}

/*
 * CHECK looks only at what was written, unless the whole region is in doubt. It reads across a
 * short gap: nodes that write in turns leave many, and a window of its own costs more than a few
 * stripes. What it sets right in the gap is so anyway, and under EX nobody writes in the region.
 */
static uint32_t window_next(struct engine *e, struct job *j)
{
	uint64_t first = geo_region_first(&e->geo, j->region);
	uint32_t max = window_max(&e->geo), n = 0;

	if (j->kind != JOB_CHECK || j->r->resync_all)
		return j->end - j->stripe < max ? (uint32_t)(j->end - j->stripe) : max;
	while (j->stripe < j->end && !bit_get(j->r->written, (uint32_t)(j->stripe - first)))
		j->stripe++;
	for (uint32_t i = 0; i < max && j->stripe + i < j->end && i - n <= CHECK_GAP; i++)
		if (bit_get(j->r->written, (uint32_t)(j->stripe - first) + i))
			n = i + 1;
	return n;
}

static uint32_t rebuilding_mask(const struct map *m)
{
	return map_write_mask(m) & ~map_insync_mask(m);
}

/* Which rows to read now: 0 = wait for a change of the map; *skip = nothing is left to do. */
static uint32_t window_rows(struct engine *e, const struct job *j, bool *skip)
{
	uint32_t rows = read_mask(e);
	unsigned count = (unsigned)__builtin_popcount(rows);

	*skip = false;
	if (j->kind == JOB_REBUILD) {
		*skip = (map_write_mask(&e->map) & j->target) != j->target ||
			map_insync_mask(&e->map) & j->target;
		return count >= e->geo.k && (write_targets(e) & j->target) == j->target ? rows : 0;
	}
	if (rows == geo_all(&e->geo))
		return rows;
	if (j->kind != JOB_READ) {
		*skip = map_degraded(&e->map) && !rebuilding_mask(&e->map);
		return rebuilding_mask(&e->map) && count >= e->geo.k ? rows : 0;
	}
	return map_degraded(&e->map) && count >= e->geo.k ? rows : 0;
}

void window_start(struct engine *e, struct job *j)
{
	uint32_t count, rows;
	bool skip;

	list_del(&j->wait);
	count = window_next(e, j);
	rows = window_rows(e, j, &skip);
	stripes_set(&j->s, j->stripe, count);
	if (!count || skip) {
		job_end(e, j);
		return;
	}
	if (!rows || !gate_open(e) || writes_held(e) || !member_io_room(e, e->geo.n, false) ||
	    !stripes_mem_window(&j->s, &e->geo, window_max(&e->geo))) {
		window_wait(e, j);
		return;
	}
	j->map_num = e->map.epoch.num;
	if (j->kind == JOB_RESYNC || j->kind == JOB_CHECK)
		j->target = rebuilding_mask(&e->map);
	stripes_read(e, &j->s, rows, kind_of(j), window_read);
}

void jobs_advance(struct engine *e)
{
	if (e->state == ENGINE_REMOVED)
		return;
	list_for_each(it, tmp, &e->d->job_wait)
	{
		struct job *j = list_entry(it, struct job, wait);
		bool skip;

		if (j->r && gate_open(e) && !writes_held(e) && member_io_room(e, e->geo.n, false) &&
		    (window_rows(e, j, &skip) || skip)) {
			window_start(e, j);
			return; /* the list may have changed; the next pass takes the next */
		}
	}
}
