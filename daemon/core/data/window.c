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
#include "daemon/core/level/parity.h"

#define WINDOW_ALIGN 64u
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
	assert(!j->r && !j->busy);
	j->region = region;
	j->stripe = stripe;
	j->end = end;
	j->cancelled = false;
	TRACE_DATA(e, "wants region %llu to itself, to %s", (unsigned long long)region,
		   job_name[j->kind]);
	j->r = region_get(e, region);
	lock_job_add(e, j);
}

static void job_end(struct engine *e, struct job *j)
{
	bool cancelled = j->cancelled;

	free(j->win);
	j->win = NULL;
	plan_free(&j->plan);
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

/* The owner has no more use for it. It may still be `busy` for a moment: look before starting it.
 */
void job_cancel(struct engine *e, struct job *j)
{
	if (!j->r || j->cancelled)
		return;
	j->cancelled = true;
	if (!j->busy)
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
	j->stripe += j->count;
	if (j->stripe >= j->end || !lock_yield(e, j->r->lock))
		window_start(e, j);
}

static void window_written(struct engine *e, struct batch *b)
{
	struct job *j = list_entry(b, struct job, batch);

	j->busy = false;
	if (j->cancelled || e->state == ENGINE_REMOVED)
		job_end(e, j);
	else if (j->wrote & ~b->ok)
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

static bool all_zero(const struct plan *p, const struct plan_req *r)
{
	for (uint32_t i = 0; i < r->iov_count; i++)
		if (!mem_is_zero(p->iov[r->iov_first + i].iov_base,
				 p->iov[r->iov_first + i].iov_len))
			return false;
	return true;
}

/* Where there is nothing a thin member needs no space: a rebuild must not use up what its users
 * have trimmed, or never written. A request for zeroes is a write like another: it is in the same
 * batch, and durable by the same flush. */
static void window_send(struct engine *e, struct job *j)
{
	enum dev_kind kind = j->kind == JOB_REBUILD ? KIND_REBUILD : KIND_RESYNC;

	for (uint32_t i = 0; i < j->plan.req_count; i++) {
		const struct plan_req *r = &j->plan.req[i];
		const struct iovec *iov = j->plan.iov + r->iov_first;

		if (all_zero(&j->plan, r))
			member_io_start(e, &j->batch, r->member, DEV_ZEROES, kind, DEV_F_UNMAP,
					r->offset, r->bytes, NULL, 0, j->region);
		else
			member_io_start(e, &j->batch, r->member, DEV_WRITE, kind, 0, r->offset,
					r->bytes, iov, r->iov_count, j->region);
	}
}

static void window_write(struct engine *e, struct job *j, uint32_t rows)
{
	if (!member_io_room(e, e->geo.n, false)) {
		window_wait(e, j); /* and is read again */
		return;
	}
	j->wrote = rows;
	j->plan.req_count = j->plan.iov_count = 0;
	plan_window(&e->geo, j->stripe, j->count, j->win, rows, &j->plan);
	j->busy = true;
	batch_init(&j->batch, window_written);
	batch_open(&j->batch);
	window_send(e, j);
	batch_close(e, &j->batch);
}

static void window_read(struct engine *e, struct batch *b)
{
	struct job *j = list_entry(b, struct job, batch);
	uint32_t all = (1u << e->geo.n) - 1, rows = 0;

	j->busy = false;
	if (j->cancelled || e->state == ENGINE_REMOVED) {
		job_end(e, j);
		return;
	}
	if (b->unreadable && b->failed == b->unreadable && j->map_num == e->map.epoch.num) {
		unreadable_met(e, b->unreadable, j->stripe, j->count);
		j->unreadable = true;
		job_end(e, j);
		return;
	}
	if (b->failed || j->map_num != e->map.epoch.num) {
		window_wait(e, j);
		return;
	}
	if (j->target) {
		window_decode(&e->geo, j->stripe, j->count, j->win, b->ok, j->target);
		rows = j->target;
	} else if (b->ok == all) {
		e->d->n_parity_fixed +=
		    window_reparity(&e->geo, j->stripe, j->count, j->win, NULL, &rows);
	} else {
		window_decode(&e->geo, j->stripe, j->count, j->win, b->ok, all & ~b->ok);
	}
	if (j->kind == JOB_READ)
		window_to_user(&e->geo, j->stripe, j->count, j->win,
			       j->data + (j->stripe - j->first) * e->geo.p.stripe_bytes);
	if (rows)
		window_write(e, j, rows);
	else
		window_advance(e, j);
}

/*
 * CHECK looks only at what was written, unless the whole region is in doubt. It reads across a
 * short gap: nodes that write in turns leave many, and a window of its own costs more than a few
 * stripes. What it sets right in the gap is so anyway, and under EX nobody writes in the region.
 */
static uint32_t window_next(struct engine *e, struct job *j)
{
	uint32_t max = DDR_WINDOW_BYTES / e->geo.p.stripe_bytes, n = 0;
	uint64_t first = geo_region_first(&e->geo, j->region);

	if (max == 0)
		max = 1;
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
	uint32_t rows = read_mask(e), all = (1u << e->geo.n) - 1;
	unsigned count = (unsigned)__builtin_popcount(rows);

	*skip = false;
	if (j->kind == JOB_REBUILD) {
		*skip = (map_write_mask(&e->map) & j->target) != j->target ||
			map_insync_mask(&e->map) & j->target;
		return count >= e->geo.k && (write_targets(e) & j->target) == j->target ? rows : 0;
	}
	if (rows == all)
		return rows;
	if (j->kind != JOB_READ) {
		*skip = map_degraded(&e->map) && !rebuilding_mask(&e->map);
		return rebuilding_mask(&e->map) && count >= e->geo.k ? rows : 0;
	}
	return map_degraded(&e->map) && count >= e->geo.k ? rows : 0;
}

void window_start(struct engine *e, struct job *j)
{
	uint32_t max = DDR_WINDOW_BYTES / e->geo.p.stripe_bytes, rows;
	bool skip;

	list_del(&j->wait);
	j->count = window_next(e, j);
	rows = window_rows(e, j, &skip);
	if (!j->count || skip) {
		job_end(e, j);
		return;
	}
	if (!rows || !gate_open(e) || writes_held(e) || !member_io_room(e, e->geo.n, false)) {
		window_wait(e, j);
		return;
	}
	if (!j->win) {
		size_t bytes = (size_t)e->geo.n * (max ? max : 1) * e->geo.frag_bytes;

		j->win = aligned_alloc(WINDOW_ALIGN,
				       (bytes + WINDOW_ALIGN - 1) & ~(size_t)(WINDOW_ALIGN - 1));
		if (!j->win || plan_alloc(&j->plan, &e->geo, max ? max : 1)) {
			free(j->win);
			j->win = NULL;
			window_wait(e, j);
			return;
		}
	}
	j->map_num = e->map.epoch.num;
	if (j->kind == JOB_RESYNC || j->kind == JOB_CHECK)
		j->target = rebuilding_mask(&e->map);
	j->plan.req_count = j->plan.iov_count = 0;
	plan_window(&e->geo, j->stripe, j->count, j->win, rows, &j->plan);
	j->busy = true;
	batch_init(&j->batch, window_read);
	batch_open(&j->batch);
	member_io_start_plan(e, &j->batch, &j->plan, DEV_READ, kind_of(j), 0, j->region);
	batch_close(e, &j->batch);
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
