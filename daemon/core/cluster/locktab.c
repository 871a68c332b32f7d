/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lock table of the back ends `cpg` and `local`: kept by the leader alone, rebuilt in each
 * round from what the holders claim.
 *
 * Why one node grants, and not each node for itself from the total order of requests (as the design
 * first had it): without safe delivery a request may be seen by its sender only, and another's
 * later request by everybody but the first; both would grant themselves what conflicts, and both
 * before either learns of the partition. A grant by one master can't conflict with another grant of
 * the same round, and a new round grants nothing before everybody who left is fenced and everybody
 * who stayed has said what he holds (R9).
 *
 * Modes: any number of CW, or one EX. A queued request calls the holders back. A holder of CW may
 * try EX; it is refused unless it is the only holder. Requests are served in order.
 */
#include <stdlib.h>

#include "daemon/core/cluster/msg.h"

struct lock;

struct waiter {
	struct list link; /* of the lock */
	struct list all;  /* of the table, the oldest first */
	const struct lock *lock;
	uint64_t since_us;
	uint32_t node;
	enum lock_mode mode;
};

struct lock {
	struct hentry hash; /* by id */
	uint64_t id;
	uint32_t cw[DDR_MAX_NODES], cw_count;
	uint32_t ex;       /* node, 0 = nobody */
	bool disputed;     /* claimed by two that can't both have it: see locktab_claim */
	struct list queue; /* at most one waiter of each node */
};

static struct lock *lock_find(struct engine *e, uint64_t id)
{
	struct hentry *n = htable_find(&e->c->locktab.table, id);

	return n ? list_entry(n, struct lock, hash) : NULL;
}

/* NULL: no memory. There is one lock for each region, so no node can ask for more than these. */
static struct lock *lock_get(struct engine *e, uint64_t id)
{
	struct lock *l = lock_find(e, id);

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->id = id;
	list_init(&l->queue);
	htable_add(&e->c->locktab.table, &l->hash, id);
	return l;
}

static void waiter_free(struct waiter *w)
{
	list_del(&w->link);
	list_del(&w->all);
	free(w);
}

static void lock_free(struct engine *e, struct lock *l)
{
	while (!list_empty(&l->queue))
		waiter_free(list_first(&l->queue, struct waiter, link));
	htable_del(&e->c->locktab.table, &l->hash);
	free(l);
}

void locktab_reset(struct engine *e)
{
	struct hentry *n;
	uint32_t from = 0;

	while ((n = htable_any(&e->c->locktab.table, &from)))
		lock_free(e, list_entry(n, struct lock, hash));
}

static void holder_remove(struct lock *l, uint32_t node)
{
	uint32_t n = 0;

	if (l->ex == node)
		l->ex = 0;
	for (uint32_t i = 0; i < l->cw_count; i++)
		if (l->cw[i] != node)
			l->cw[n++] = l->cw[i];
	l->cw_count = n;
	l->disputed &= l->ex || n;
}

static bool holder_others(const struct lock *l, uint32_t node)
{
	if (l->ex && l->ex != node)
		return true;
	for (uint32_t i = 0; i < l->cw_count; i++)
		if (l->cw[i] != node)
			return true;
	return false;
}

static void holder_add(struct lock *l, uint32_t node, enum lock_mode mode)
{
	holder_remove(l, node);
	if (mode == LOCK_MODE_EX)
		l->ex = node;
	else if (l->cw_count < DDR_MAX_NODES)
		l->cw[l->cw_count++] = node;
}

static bool compatible(const struct lock *l, uint32_t node, enum lock_mode mode)
{
	return mode == LOCK_MODE_EX || l->disputed ? !holder_others(l, node)
						   : !l->ex || l->ex == node;
}

static void answer(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode, bool refused)
{
	struct peer *p = peer_find(e, node);
	pb_inc to;
	NODEMSG(m, b, GRANT, Grant, grant);

	if (!p)
		return;
	to = pb_inc_of(node, p->inc, NO_SLOT, false);
	b.to = &to;
	b.id = id;
	b.mode = (uint32_t)mode;
	b.refused = refused;
	msg_send(e, &m);
}

static void call_back(struct engine *e, const struct lock *l, const struct waiter *w)
{
	NODEMSG(m, b, CALLBACK, Callback, callback);

	b.id = l->id;
	b.mode = (uint32_t)w->mode;
	b.wanted_by = w->node;
	msg_send(e, &m);
}

static void serve(struct engine *e, struct lock *l)
{
	while (!list_empty(&l->queue)) {
		struct waiter *w = list_first(&l->queue, struct waiter, link);

		if (!compatible(l, w->node, w->mode)) {
			call_back(e, l, w);
			return;
		}
		holder_add(l, w->node, w->mode);
		answer(e, w->node, l->id, w->mode, false);
		waiter_free(w);
	}
	if (!l->ex && !l->cw_count)
		lock_free(e, l);
}

/*
 * What survivors hold was granted by one master, so it can't conflict. If it does, a node claims
 * what it was never granted. Which one?
 *
 *  1. The leader's own engine knows what it holds itself: whoever claims against that is wrong.
 *  2. Only one node is broken, and each dispute has it on one side. So whoever disputes with two
 *     others is it.
 *  3. Of two that dispute with nobody else nothing says which is wrong, and none is evicted: one
 *     works. Both keep what they claim, for a node that works stops at nothing less than a
 *     callback; and it is granted to nobody before all who claim it have given it up. So the one
 *     that works has the region to itself among those that work, as it was granted.
 */
static void dispute(struct engine *e, const struct lock *l, uint32_t node)
{
	struct peer *p = peer_find(e, node);

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *q = &e->c->round.peer[i];
		bool holds = l->ex == q->node;

		for (uint32_t c = 0; c < l->cw_count; c++)
			holds |= l->cw[c] == q->node;
		if (!holds || q == p)
			continue;
		p->disputes |= 1ull << i;
		q->disputes |= 1ull << (p - e->c->round.peer);
		if (p->node != e->cfg.node &&
		    (q->node == e->cfg.node || p->disputes & (p->disputes - 1)))
			msg_rejected(e, p, p->inc, "claims locks that others hold", true);
		else if (p->node == e->cfg.node || q->disputes & (q->disputes - 1))
			msg_rejected(e, q, q->inc, "claims locks that others hold", true);
	}
}

void locktab_claim(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode)
{
	struct lock *l = lock_get(e, id);

	if (!l) { /* what is not known as held would be granted to others */
		round_give_up(e);
		return;
	}
	if (compatible(l, node, mode)) {
		holder_add(l, node, mode);
		return;
	}
	dispute(e, l, node);
	l->disputed = true;
	/* As one of several, whatever its mode: while it is disputed that makes no difference. */
	if (l->ex != node && mode == LOCK_MODE_EX && !l->ex)
		l->ex = node;
	else if (l->ex != node)
		holder_add(l, node, LOCK_MODE_CW);
}

static bool waits(const struct lock *l, uint32_t node)
{
	list_for_each(it, tmp, &l->queue)
	{
		if (list_entry(it, struct waiter, link)->node == node)
			return true;
	}
	return false;
}

void locktab_request(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode,
		     bool try_only)
{
	struct lock *l = lock_get(e, id);
	struct waiter *w;

	if (l && list_empty(&l->queue) && compatible(l, node, mode)) {
		holder_add(l, node, mode);
		answer(e, node, id, mode, false);
		return;
	}
	if (l && waits(l, node))
		return; /* a node that works has one request of a lock under way */
	w = l && !try_only ? calloc(1, sizeof(*w)) : NULL;
	if (!w) {
		answer(e, node, id, mode, true);
		return;
	}
	w->lock = l;
	w->node = node;
	w->mode = mode;
	w->since_us = e->now;
	list_add_tail(&l->queue, &w->link);
	list_add_tail(&e->c->locktab.waiters, &w->all);
	if (l->queue.next == &w->link)
		call_back(e, l, w);
}

void locktab_release(struct engine *e, uint32_t node, uint64_t id)
{
	struct lock *l = lock_find(e, id);

	if (!l)
		return;
	holder_remove(l, node);
	serve(e, l);
}

/* Whoever was called back gives up what he holds when what he does with it has ended. */
uint32_t locktab_held_by(const struct engine *e, uint64_t *since_us)
{
	const struct waiter *w;
	const struct lock *l;

	if (list_empty(&e->c->locktab.waiters))
		return 0;
	w = list_first(&e->c->locktab.waiters, struct waiter, all);
	l = w->lock;
	*since_us = w->since_us;
	if (l->ex && l->ex != w->node)
		return l->ex;
	for (uint32_t i = 0; i < l->cw_count; i++)
		if (l->cw[i] != w->node)
			return l->cw[i];
	return 0;
}
