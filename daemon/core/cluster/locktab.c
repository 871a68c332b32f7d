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
 * Modes: any number of PR, or any number of CW, or one EX. A queued request calls the holders back.
 * Requests are served in order; a node that asks for no more than it holds has it at once, whoever
 * waits. So a holder of EX converts it to PR. A holder of PR or CW may try EX; it is refused unless
 * it is the only holder.
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

struct holder {
	uint32_t node;
	enum lock_mode mode;
};

struct lock {
	struct hentry hash; /* by id */
	uint64_t id;
	struct holder holder[DDR_MAX_NODES];
	uint32_t holders;  /* they go together, unless it is disputed */
	bool disputed;     /* claimed by two that can't both have it: see dispute() */
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

/* NULL: that node has none of it. */
static const struct holder *holder_find(const struct lock *l, uint32_t node)
{
	for (uint32_t i = 0; i < l->holders; i++)
		if (l->holder[i].node == node)
			return &l->holder[i];
	return NULL;
}

static void holder_remove(struct lock *l, uint32_t node)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->holders; i++)
		if (l->holder[i].node != node)
			l->holder[n++] = l->holder[i];
	l->holders = n;
	l->disputed &= n > 0;
}

static void holder_add(struct lock *l, uint32_t node, enum lock_mode mode)
{
	holder_remove(l, node);
	if (l->holders < DDR_MAX_NODES)
		l->holder[l->holders++] = (struct holder){node, mode};
}

/* Does nothing that others hold keep that node from it? */
static bool compatible(const struct lock *l, uint32_t node, enum lock_mode mode)
{
	for (uint32_t i = 0; i < l->holders; i++)
		if (l->holder[i].node != node &&
		    (l->disputed || !lock_compatible(l->holder[i].mode, mode)))
			return false;
	return true;
}

/*
 * May it be granted before all who wait? A node that asks for no more than it holds waits for
 * nobody, who may all wait for that node: it converts EX to PR, or it has done so, and asks again
 * in a new round, to which it claimed PR.
 */
static bool at_once(const struct lock *l, uint32_t node, enum lock_mode mode)
{
	const struct holder *h = holder_find(l, node);

	return (h && lock_covers(h->mode, mode)) ||
	       (list_empty(&l->queue) && compatible(l, node, mode));
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
	if (!l->holders)
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

		if (!holder_find(l, q->node) || q == p)
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
	if (!compatible(l, node, mode)) {
		dispute(e, l, node);
		l->disputed = true; /* what its holders have makes no difference any more */
	}
	holder_add(l, node, mode);
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

	if (l && at_once(l, node, mode)) {
		holder_add(l, node, mode);
		answer(e, node, id, mode, false);
		if (!list_empty(&l->queue))
			serve(e, l);
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
	for (uint32_t i = 0; i < l->holders; i++)
		if (l->holder[i].node != w->node)
			return l->holder[i].node;
	return 0;
}
