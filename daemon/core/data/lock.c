/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks of this node: see lock.h for what they are, and their states. */
#include <assert.h>
#include <stdlib.h>

#include "daemon/core/data/data.h"

/*
 * As long as a lock has waited for EX, but no longer than this, its jobs keep it when it is called
 * back: else a slow cluster with busy nodes would pass the lock to and fro for one window each
 * time.
 */
#define TURN_MAX_US 500000ull

uint64_t lock_id_of(const struct engine *e, uint64_t stripe)
{
	return LOCK_ID(LOCK_KIND_REGION, geo_lock_of(&e->geo, stripe));
}

struct lock *lock_find(const struct engine *e, uint64_t id)
{
	struct hentry *n = htable_find(&e->d->lock_of, id);

	return n ? list_entry(n, struct lock, hash) : NULL;
}

struct lock *lock_new(struct engine *e, struct region *r, uint64_t id)
{
	struct lock *l = calloc(1, sizeof(*l));

	assert(l);
	l->id = id;
	l->r = r;
	l->serial = e->d->n_locks++;
	list_init(&l->early);
	list_init(&l->busy);
	list_init(&l->queue);
	list_init(&l->jobs);
	htable_add(&e->d->lock_of, &l->hash, id);
	list_add_tail(&e->d->locks, &l->all);
	return l;
}

void lock_free(struct engine *e, struct lock *l)
{
	assert(l->state == LK_IDLE || e->state == ENGINE_REMOVED);
	list_for_each(it, tmp, &l->jobs)
	{
		struct job *j = list_entry(it, struct job, link);

		list_del(&j->link);
		list_del(&j->wait);
		j->r = NULL;
	}
	htable_del(&e->d->lock_of, &l->hash);
	list_del(&l->all);
	list_del(&l->early);
	list_del(&l->busy);
	free(l);
}

/* ---- its states ----------------------------------------------------------------------------- */

static uint64_t number(const struct lock *l)
{
	return l->id & LOCK_INDEX_MASK;
}

/* The only way to another state: each move is checked, and whoever makes it says it in words. */
static void lock_move(struct lock *l, enum lock_state to)
{
	static const uint8_t legal[] = {
	    [LK_IDLE] = 1 << LK_ASKED,
	    [LK_ASKED] = 1 << LK_IDLE | 1 << LK_EARLY | 1 << LK_HELD,
	    [LK_EARLY] = 1 << LK_HELD,
	    [LK_HELD] = 1 << LK_IDLE | 1 << LK_TRIES,
	    [LK_TRIES] = 1 << LK_HELD | 1 << LK_TRIED,
	    [LK_TRIED] = 1 << LK_HELD,
	};
	static const bool holds[] = {[LK_HELD] = true, [LK_TRIES] = true, [LK_TRIED] = true};

	assert(legal[l->state] >> to & 1);
	l->state = to;
	assert((l->held != LOCK_MODE_NONE) == holds[to]);
	assert((l->wanted != LOCK_MODE_NONE) == lock_asks(l));
}

bool lock_asks(const struct lock *l)
{
	return l->state != LK_IDLE && l->state != LK_HELD;
}

static bool is_try(const struct lock *l)
{
	return l->state == LK_TRIES || l->state == LK_TRIED;
}

static void lock_want(struct engine *e, struct lock *l, enum lock_mode mode)
{
	bool try_only = l->state == LK_HELD;

	l->wanted = mode;
	l->asked_us = e->now;
	lock_move(l, try_only ? LK_TRIES : LK_ASKED);
	TRACE_DATA(e, "asks for the lock %s of region %llu%s", lock_mode_name(mode),
		   (unsigned long long)number(l), try_only ? ", if it is free" : "");
	lock_ask(e, l->id, mode, try_only);
}

void lock_try_ex(struct engine *e, struct lock *l)
{
	assert(l->state == LK_HELD && l->held != LOCK_MODE_EX);
	lock_want(e, l, LOCK_MODE_EX);
}

void lock_give_up(struct engine *e, struct lock *l)
{
	assert(!l->users && !l->running);
	region_left(e, l->r);
	l->held = LOCK_MODE_NONE;
	l->called_back = false;
	lock_move(l, LK_IDLE);
	TRACE_DATA(e, "gives up the lock of region %llu", (unsigned long long)number(l));
	lock_drop(e, l->id);
}

static void lock_take(struct engine *e, struct lock *l)
{
	bool was_try = is_try(l);

	l->held = l->wanted;
	l->wanted = LOCK_MODE_NONE;
	lock_move(l, LK_HELD);
	TRACE_DATA(e, "has the lock %s of region %llu", lock_mode_name(l->held),
		   (unsigned long long)number(l));
	if (was_try)
		region_tried(l->r, true);
	l->turn_us = e->now - l->asked_us;
	if (l->turn_us > TURN_MAX_US)
		l->turn_us = TURN_MAX_US;
	l->turn_end = 0;
	list_for_each(it, tmp, &l->queue) l->admit++;
	lock_kick(e, l);
}

static void lock_refused(struct engine *e, struct lock *l)
{
	TRACE_DATA(e, "does not get the lock %s of region %llu", lock_mode_name(l->wanted),
		   (unsigned long long)number(l));
	l->wanted = LOCK_MODE_NONE;
	lock_move(l, is_try(l) ? LK_HELD : LK_IDLE);
	region_tried(l->r, false);
	lock_kick(e, l);
}

/* The order of those that count at once is that of all locks. Few are early at a time. */
static void early_add(struct engine *e, struct lock *l)
{
	struct list *at = e->d->locks_early.prev;

	while (at != &e->d->locks_early && list_entry(at, struct lock, early)->serial > l->serial)
		at = at->prev;
	list_add_tail(at->next, &l->early);
}

static void lock_early(struct engine *e, struct lock *l)
{
	TRACE_DATA(e, "is granted the lock %s of region %llu, which counts when all have answered",
		   lock_mode_name(l->wanted), (unsigned long long)number(l));
	lock_move(l, is_try(l) ? LK_TRIED : LK_EARLY);
	l->settle_num = settle_want(e);
	early_add(e, l);
}

void lock_granted(struct engine *e, uint64_t id, enum lock_mode mode, bool refused)
{
	struct lock *l = lock_find(e, id);
	bool awaited = l && l->wanted == mode;

	if (!awaited || e->state == ENGINE_REMOVED) {
		if (!refused && e->state != ENGINE_REMOVED && !(l && lock_covers(l->held, mode)))
			lock_drop(e, id);
	} else if (l->state != LK_ASKED && l->state != LK_TRIES) {
		return; /* it is granted already */
	} else if (refused) {
		lock_refused(e, l);
	} else if (e->cfg.lock_backend == LOCK_EXTERNAL) {
		lock_early(e, l);
	} else {
		lock_take(e, l);
	}
}

void lock_called_back(struct engine *e, uint64_t id, enum lock_mode wanted)
{
	struct lock *l = lock_find(e, id);

	if (!l || l->state == LK_IDLE || l->state == LK_ASKED)
		return;
	if (l->held != LOCK_MODE_NONE && lock_compatible(l->held, wanted))
		return;
	TRACE_DATA(e, "is asked to give up the lock of region %llu", (unsigned long long)number(l));
	l->called_back = true;
	lock_kick(e, l);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* A round is Ready: what was asked for and not granted is asked again, of the new leader. */
void locks_resend(struct engine *e)
{
	if (e->cfg.lock_backend == LOCK_EXTERNAL) {
		/* What was asked in another round is answered by nobody. */
		settle_void(e, !list_empty(&e->d->locks_early));
		return;
	}
	list_for_each(it, tmp, &e->d->locks)
	{
		struct lock *l = list_entry(it, struct lock, all);

		if (lock_asks(l))
			lock_ask(e, l->id, l->wanted, is_try(l));
	}
}

void locks_advance(struct engine *e)
{
	uint64_t answered;

	if (list_empty(&e->d->locks_early) || !settle_passed(e, &answered))
		return;
	list_for_each(it, tmp, &e->d->locks_early)
	{
		struct lock *l = list_entry(it, struct lock, early);

		if (l->settle_num > answered)
			continue;
		list_del(&l->early);
		lock_take(e, l);
	}
}

uint32_t locks_held(const struct engine *e, uint64_t *after, uint64_t id[], uint32_t mode[],
		    uint32_t max)
{
	const struct list *it = *after ? &lock_find(e, *after)->all : &e->d->locks;
	uint32_t n = 0;

	for (it = it->next; it != &e->d->locks && n < max; it = it->next) {
		const struct lock *l = list_entry(it, struct lock, all);

		*after = l->id;
		if (l->held == LOCK_MODE_NONE)
			continue;
		id[n] = l->id;
		mode[n++] = (uint32_t)l->held;
	}
	return n;
}

bool regions_writing(const struct engine *e)
{
	list_for_each(it, tmp, &e->d->locks_busy)
	{
		if (job_busy(list_entry(it, struct lock, busy)->running))
			return true;
	}
	return false;
}

/* ---- who is let in -------------------------------------------------------------------------- */

/*
 * R5: under CW a node that is dead now may have been writing here, and what it has sent may land
 * until it is fenced: over what is written now and answered before that. And see quiesce.c.
 */
bool lock_writes_wait(struct engine *e, const struct lock *l)
{
	bool wait = (l->held != LOCK_MODE_EX && lost_unfenced(e)) || writes_held(e);

	e->d->writes_waited |= wait;
	return wait;
}

static void lock_admit(struct engine *e, struct lock *l)
{
	while (!list_empty(&l->queue)) {
		struct op *op = list_first(&l->queue, struct op, link);

		if ((l->called_back && !l->admit) || lock_writes_wait(e, l))
			return;
		if (region_overlaps(op->r, op))
			return; /* R19: one after the other */
		l->admit -= l->admit > 0;
		l->users++;
		region_enter(e, op);
	}
}

static void lock_run(struct engine *e, struct lock *l, struct job *j)
{
	l->running = j;
	list_del(&l->busy);
	if (j)
		list_add_tail(&e->d->locks_busy, &l->busy);
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
static bool turn_over(const struct engine *e, const struct lock *l)
{
	return l->called_back && l->turn_end && e->now >= l->turn_end;
}

static void lock_kick_job(struct engine *e, struct lock *l)
{
	struct job *j = list_first(&l->jobs, struct job, link);

	if (l->users || lock_asks(l))
		return;
	if (l->held == LOCK_MODE_EX && !turn_over(e, l)) {
		if (job_may_run(e, j->r, j)) {
			if (!l->turn_end)
				l->turn_end = e->now + l->turn_us;
			lock_run(e, l, j);
			window_start(e, j);
		}
		return;
	}
	/* Let the others in, then queue again. */
	if (l->state == LK_HELD)
		lock_give_up(e, l);
	lock_want(e, l, LOCK_MODE_EX);
}

void lock_kick(struct engine *e, struct lock *l)
{
	if (l->running || e->state == ENGINE_REMOVED)
		return;
	/* A job keeps new ops out, but not those whose lock has just come. */
	if (l->held != LOCK_MODE_NONE && (list_empty(&l->jobs) || l->admit))
		lock_admit(e, l);
	if (list_empty(&l->queue))
		l->admit = 0;
	if (!list_empty(&l->jobs)) {
		if (!l->admit || l->held == LOCK_MODE_NONE)
			lock_kick_job(e, l);
		return;
	}
	if (l->called_back && l->state == LK_HELD && !l->users)
		lock_give_up(e, l);
	if (!list_empty(&l->queue) && l->state == LK_IDLE)
		lock_want(e, l, LOCK_MODE_CW);
	region_put(e, l->r);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

bool lock_yield(struct engine *e, struct lock *l)
{
	if (!turn_over(e, l))
		return false;
	lock_run(e, l, NULL);
	lock_kick(e, l);
	return true;
}

void lock_job_add(struct engine *e, struct job *j)
{
	struct lock *l = j->r->lock;

	list_add_tail(&l->jobs, &j->link);
	lock_kick(e, l);
}

void lock_job_done(struct engine *e, struct job *j)
{
	struct region *r = j->r;

	list_del(&j->link);
	j->r = NULL;
	if (r->lock->running == j)
		lock_run(e, r->lock, NULL); /* a queued one may be cancelled while another runs */
	r->last_us = e->now;
	lock_kick(e, r->lock);
}
