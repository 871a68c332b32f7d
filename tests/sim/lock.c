/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fake DLM, for LOCK_EXTERNAL.
 *
 * One master without a place, which hears of requests and is heard with delays (in order per node),
 * grants first come first served, and calls back who is in the way. As the real one it
 * frees a killed daemon's locks at once, whatever that had under way (R10), and a dead or expelled
 * node's when its own recovery is through, which has nothing to do with our fence.
 * While it recovers, it grants nothing. A node without quorum is granted nothing; but one that was
 * cut off is, until its group tells, what has its place on this side of the cut.
 *
 * With --readers somebody who is no node of the array queues behind a request now and then, and has
 * the lock in PR for a while. Engines don't ask for PR yet; so they are called back by it at least,
 * and wait for it. When they come is drawn from the seed and the time alone, so that a seed without
 * readers is what it was.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define DLM_MOST 16
#define READER (NONE - 1) /* in place of an incarnation */

struct dentry {
	uint32_t ii;
	enum lock_mode mode;
	uint64_t want;
	bool called; /* those in its way were told */
};
struct dlock {
	uint64_t id;
	struct dentry held[DLM_MOST], waits[DLM_MOST];
	uint32_t held_count, waits_count;
	uint64_t want[SIM_MAX_NODES]; /* a node's newest request or release */
};
struct dlm {
	struct dlock *v;
	uint32_t count, cap;
	uint64_t paused_until;
	uint64_t arrive_us[SIM_MAX_NODES], answer_us[SIM_MAX_NODES];
	bool purged[SIM_MAX_INCS]; /* holds nothing, and never will */
	struct dmsg **inbox;       /* what came while it recovers, in order */
	uint32_t inbox_count, inbox_cap;
	uint32_t deaths; /* of holders, when they were called back */
};
struct dmsg {
	uint64_t id, want;
	uint32_t ii;
	enum lock_mode mode;
	enum ev_type answer;
	bool unlock, try_only;
};

void dlm_init(struct sim *s)
{
	s->dlm = xcalloc(1, sizeof(*s->dlm));
}

void dlm_free(struct sim *s)
{
	for (uint32_t i = 0; s->dlm && i < s->dlm->inbox_count; i++)
		free(s->dlm->inbox[i]);
	if (s->dlm) {
		free(s->dlm->inbox);
		free(s->dlm->v);
	}
	free(s->dlm);
	s->dlm = NULL;
}

static struct dlock *lock_get(struct sim *s, uint64_t id)
{
	struct dlm *d = s->dlm;

	for (uint32_t i = 0; i < d->count; i++)
		if (d->v[i].id == id)
			return &d->v[i];
	if (d->count == d->cap) {
		d->cap = d->cap ? 2 * d->cap : 64;
		d->v = xrealloc(d->v, d->cap * sizeof(*d->v));
	}
	d->v[d->count] = (struct dlock){.id = id};
	return &d->v[d->count++];
}

static uint64_t travel(struct sim *s, uint64_t *last_us)
{
	uint64_t at = s->now + rng_range(&s->rng, s->o.net_lo_us, 2 * s->o.net_hi_us);

	if (at < *last_us)
		at = *last_us;
	*last_us = at;
	return at - s->now;
}

/* ---- to the nodes --------------------------------------------------------------------------- */

static bool io_in_region(const struct sim *s, uint32_t ii, uint64_t id)
{
	for (uint32_t i = 0; i < s->reqs; i++)
		if (s->req[i]->used && s->req[i]->ii == ii && s->req[i]->kind == KIND_DATA &&
		    s->req[i]->op != DEV_READ && LOCK_ID(LOCK_KIND_REGION, s->req[i]->region) == id)
			return true;
	return false;
}

/*
 * A daemon that dies with requests under way in a region that somebody waits for. The waiter may
 * have the lock before anybody hears of the death.
 */
static bool holder_dies(struct sim *s, struct simnode *n, const struct dmsg *m)
{
	uint32_t kinds = 0;

	if (!s->o.late_leave || s->planner.healing || s->dlm->deaths == 3)
		return false;
	for (uint32_t i = 0; i < s->reqs; i++)
		if (s->req[i]->used && s->req[i]->ii == m->ii && s->req[i]->op == DEV_WRITE &&
		    LOCK_ID(LOCK_KIND_REGION, s->req[i]->region) == m->id)
			kinds |= 1u << s->req[i]->kind;
	kinds &= 1u << KIND_DATA | 1u << KIND_RESYNC | 1u << KIND_REBUILD | 1u << KIND_CHECK;
	if (!kinds || !rng_chance(&s->rng, kinds == 1u << KIND_DATA ? 300 : 600))
		return false;
	s->dlm->deaths++;
	trace(s, "l  node %u dies as it is called back from %lx, kinds %x", n->id, m->id, kinds);
	node_kill_daemon(s, n);
	node_start_later(s, n, rng_range(&s->rng, 1 * MS, 600 * MS));
	return true;
}

/*
 * A node that is made to leave the lock space while it writes in a region that somebody waits for,
 * to have it alone. It is not called back any more, and the waiter has the lock at once.
 */
static bool holder_leaves(struct sim *s, struct simnode *n, const struct dmsg *m)
{
	if (m->mode != LOCK_MODE_EX || !io_in_region(s, m->ii, m->id) || !givesup_leaves(s, n))
		return false;
	trace(s, "l  node %u leaves as it is called back from %lx", n->id, m->id);
	return true;
}

static void on_answer(struct sim *s, struct hev *ev)
{
	const struct dmsg *m = ev->p;
	struct simnode *n = &s->node[s->inc[m->ii].node];
	struct event out = {.type = m->answer, .lock = {.id = m->id, .mode = m->mode}};

	if (!n->proc || n->ii != m->ii)
		return;
	/* The port drops what the daemon has given up meanwhile; callbacks may be stale. */
	if (m->answer != EV_LOCK_CALLBACK && lock_get(s, m->id)->want[n->idx] != m->want)
		return;
	if (m->answer == EV_LOCK_CALLBACK) {
		stats_fault(s, F_LOCK_CALLBACK);
		if (io_in_region(s, m->ii, m->id))
			stats_fault(s, F_LOCK_CALLBACK_IO);
	}
	if (m->answer == EV_LOCK_REFUSED)
		stats_fault(s, F_LOCK_REFUSED);
	if (m->answer == EV_LOCK_CALLBACK && (holder_dies(s, n, m) || holder_leaves(s, n, m)))
		return;
	node_post(s, n, 0, &out);
}

static void reader_told(struct sim *s, uint64_t id, enum ev_type type);

static void tell(struct sim *s, const struct dentry *to, uint64_t id, enum ev_type type,
		 enum lock_mode mode)
{
	struct dmsg *m;

	if (to->ii == READER) {
		reader_told(s, id, type);
		return;
	}
	m = xmalloc(sizeof(*m));
	*m = (struct dmsg){.id = id, .want = to->want, .ii = to->ii, .mode = mode, .answer = type};
	sim_at(s, travel(s, &s->dlm->answer_us[s->inc[to->ii].node]), on_answer, 0, 0, m);
}

/* ---- the master ----------------------------------------------------------------------------- */

static bool in_the_way(const struct dentry *h, const struct dentry *w)
{
	static const bool together[4][4] = {
	    [LOCK_MODE_PR][LOCK_MODE_PR] = true,
	    [LOCK_MODE_CW][LOCK_MODE_CW] = true,
	};

	return h->ii != w->ii && !together[h->mode][w->mode];
}

/* Nobody hears yet that the ring of this node is broken. */
static bool in_broken_ring(const struct sim *s, uint32_t ii)
{
	uint32_t cur = ii == READER ? NONE : s->group.cur[s->inc[ii].node];

	return cur != NONE && s->group.ring[cur]->broken;
}

static bool is_served(const struct sim *s, uint32_t ii, uint64_t id)
{
	uint32_t place = (uint32_t)(id % s->o.nodes), node, cur;

	if (ii == READER)
		return true;
	node = s->inc[ii].node;
	cur = s->group.cur[node];
	if (cur == NONE || !s->group.ring[cur]->quorate)
		return false;
	return !s->group.ring[cur]->broken ||
	       (s->node[place].powered && s->group.comp[place] == s->group.comp[node]);
}

static void remove_at(struct dentry *v, uint32_t *count, uint32_t i)
{
	memmove(&v[i], &v[i + 1], (--*count - i) * sizeof(*v));
}

static void drop_held(struct dlock *l, uint32_t ii)
{
	for (uint32_t i = l->held_count; i--;)
		if (l->held[i].ii == ii)
			remove_at(l->held, &l->held_count, i);
}

static void drop_waits(struct dlock *l, uint32_t ii)
{
	for (uint32_t i = l->waits_count; i--;)
		if (l->waits[i].ii == ii)
			remove_at(l->waits, &l->waits_count, i);
}

static bool grant_first(struct sim *s, struct dlock *l)
{
	struct dentry w = l->waits[0];
	bool blocked = l->held_count == DLM_MOST;

	if (!is_served(s, w.ii, l->id))
		return false;
	for (uint32_t i = 0; i < l->held_count; i++) {
		if (!in_the_way(&l->held[i], &w))
			continue;
		blocked = true;
		if (!w.called)
			tell(s, &l->held[i], l->id, EV_LOCK_CALLBACK, w.mode);
	}
	l->waits[0].called = true;
	if (blocked)
		return false;
	remove_at(l->waits, &l->waits_count, 0);
	drop_held(l, w.ii); /* a conversion keeps the old mode until it gets the new one */
	l->held[l->held_count++] = w;
	if (in_broken_ring(s, w.ii))
		stats_fault(s, F_LOCK_CUT_OFF);
	tell(s, &w, l->id, EV_LOCK_GRANTED, w.mode);
	return true;
}

static void grant(struct sim *s, struct dlock *l)
{
	if (s->now < s->dlm->paused_until)
		return;
	while (l->waits_count && grant_first(s, l))
		;
}

/* EX to PR: that goes before whoever waits. */
static bool converts_down(const struct dlock *l, const struct dentry *w)
{
	for (uint32_t i = 0; i < l->held_count; i++)
		if (l->held[i].ii == w->ii)
			return l->held[i].mode == LOCK_MODE_EX && w->mode == LOCK_MODE_PR;
	return false;
}

static bool try_fails(const struct dlock *l, const struct dentry *w)
{
	for (uint32_t i = 0; i < l->held_count; i++)
		if (in_the_way(&l->held[i], w))
			return true;
	return l->waits_count > 0;
}

static bool reader_there(const struct dlock *l)
{
	for (uint32_t i = 0; i < l->held_count; i++)
		if (l->held[i].ii == READER)
			return true;
	for (uint32_t i = 0; i < l->waits_count; i++)
		if (l->waits[i].ii == READER)
			return true;
	return false;
}

static void reader_comes(struct sim *s, struct dlock *l)
{
	if (!s->cli->readers || s->planner.healing || mix64(s->seed ^ s->now ^ l->id) % 4 ||
	    l->waits_count == DLM_MOST || reader_there(l))
		return;
	l->waits[l->waits_count++] = (struct dentry){.ii = READER, .mode = LOCK_MODE_PR};
	grant(s, l);
}

static void on_reader_leaves(struct sim *s, struct hev *ev)
{
	struct dlock *l = lock_get(s, ev->a);

	trace(s, "l  a reader gives up lock %lx", l->id);
	drop_held(l, READER);
	grant(s, l);
}

/* It is heard at once, and reads for as long as it likes: a callback does not hurry it. */
static void reader_told(struct sim *s, uint64_t id, enum ev_type type)
{
	if (type != EV_LOCK_GRANTED)
		return;
	trace(s, "l  a reader has lock %lx", id);
	sim_at(s, 1 + mix64(s->seed ^ s->now ^ id) % (40 * MS), on_reader_leaves, id, 0, NULL);
}

/* What the DLM has freed behind the back of its holder is not looked at: that one writes until it
 * is told, and nobody but a reader takes a grant for more than it is (Settle). */
bool dlm_reader_in(struct sim *s, uint32_t ii, uint64_t id)
{
	if (!s->cli->readers || s->o.locks != LOCK_EXTERNAL || s->dlm->purged[ii])
		return false;
	for (uint32_t i = 0; i < s->dlm->count; i++)
		for (uint32_t k = 0; s->dlm->v[i].id == id && k < s->dlm->v[i].held_count; k++)
			if (s->dlm->v[i].held[k].ii == READER)
				return true;
	return false;
}

static void request(struct sim *s, const struct dmsg *m)
{
	struct dentry w = {.ii = m->ii, .mode = m->mode, .want = m->want};
	struct dlock *l;

	if (s->dlm->purged[m->ii])
		return;
	l = lock_get(s, m->id);
	drop_waits(l, m->ii); /* a node has one request per lock, the newest */
	if (m->unlock) {
		drop_held(l, m->ii);
		grant(s, l);
	} else if (m->try_only && try_fails(l, &w)) {
		tell(s, &w, l->id, EV_LOCK_REFUSED, w.mode);
	} else if (l->waits_count < DLM_MOST && converts_down(l, &w)) {
		l->waits[0].called = false; /* about PR it is told anew */
		memmove(&l->waits[1], &l->waits[0], l->waits_count++ * sizeof(w));
		l->waits[0] = w;
		grant(s, l);
	} else if (l->waits_count < DLM_MOST) {
		l->waits[l->waits_count++] = w;
		grant(s, l);
		reader_comes(s, l);
	}
}

static void drain(struct sim *s)
{
	struct dlm *d = s->dlm;

	if (s->now < d->paused_until)
		return;
	for (uint32_t i = 0; i < d->inbox_count; i++) {
		request(s, d->inbox[i]);
		free(d->inbox[i]);
	}
	d->inbox_count = 0;
}

static void on_request(struct sim *s, struct hev *ev)
{
	struct dlm *d = s->dlm;

	if (d->inbox_count == d->inbox_cap) {
		d->inbox_cap = d->inbox_cap ? 2 * d->inbox_cap : 64;
		d->inbox = xrealloc(d->inbox, d->inbox_cap * sizeof(*d->inbox));
	}
	d->inbox[d->inbox_count++] = ev->p;
	ev->p = NULL;
	drain(s);
}

static void on_resume(struct sim *s, struct hev *ev)
{
	(void)ev;
	drain(s);
	for (uint32_t i = 0; i < s->dlm->count; i++)
		grant(s, &s->dlm->v[i]);
}

static void ask(struct sim *s, struct simnode *n, struct dmsg m)
{
	struct dmsg *copy = xmalloc(sizeof(*copy));

	m.ii = n->ii;
	m.want = ++lock_get(s, m.id)->want[n->idx];
	*copy = m;
	sim_at(s, travel(s, &s->dlm->arrive_us[n->idx]), on_request, 0, 0, copy);
}

void dlm_lock(struct sim *s, struct simnode *n, uint64_t id, enum lock_mode mode, bool try_only)
{
	ask(s, n, (struct dmsg){.id = id, .mode = mode, .try_only = try_only});
}

void dlm_unlock(struct sim *s, struct simnode *n, uint64_t id)
{
	ask(s, n, (struct dmsg){.id = id, .unlock = true});
}

/* ---- ends and recovery ---------------------------------------------------------------------- */

static void free_locks(struct sim *s, uint32_t ii)
{
	struct dlm *d = s->dlm;

	if (d->purged[ii])
		return;
	d->purged[ii] = true;
	trace(s, "l  locks of inc %lu are freed, %u outstanding", s->inc[ii].inc,
	      s->inc[ii].outstanding);
	if (!s->inc[ii].fenced && s->inc[ii].outstanding)
		stats_fault(s, F_LOCK_FREED_EARLY);
	for (uint32_t i = 0; i < d->count; i++) {
		drop_held(&d->v[i], ii);
		drop_waits(&d->v[i], ii);
	}
}

static void pause_us(struct sim *s, uint64_t us)
{
	struct dlm *d = s->dlm;

	if (s->now + us > d->paused_until)
		d->paused_until = s->now + us;
	sim_at(s, d->paused_until - s->now, on_resume, 0, 0, NULL);
}

/* Without a DLM: the draw that was always made here keeps the other seeds what they are. */
static void on_nothing(struct sim *s, struct hev *ev)
{
	(void)ev;
	rng_range(&s->rng, 5 * MS, 250 * MS);
}

static void at(struct sim *s, uint64_t delay_us, void (*fn)(struct sim *s, struct hev *ev),
	       uint64_t a, uint64_t b)
{
	sim_at(s, delay_us, s->o.locks == LOCK_EXTERNAL ? fn : on_nothing, a, b, NULL);
}

static void on_leave(struct sim *s, struct hev *ev)
{
	free_locks(s, (uint32_t)ev->a);
	on_resume(s, ev);
}

/* It left, with all that it held. */
void dlm_left(struct sim *s, uint32_t ii)
{
	at(s, 0, on_leave, ii, 0);
}

/* A daemon ends, and its node lives: its locks are free at once, whatever it had under way (R10).
 */
void dlm_ended(struct sim *s, uint32_t ii, uint64_t delay_us)
{
	at(s, delay_us, on_leave, ii, 0);
}

/*
 * The node is not there any more, for the DLM: b is the last of its incarnations that are meant.
 * Its own recovery takes a while, and in one seed of four seconds, as where fencing is slow.
 */
static void on_node_gone(struct sim *s, struct hev *ev)
{
	for (uint32_t ii = 0; ii <= ev->b; ii++) {
		const struct incn *in = &s->inc[ii];

		if (in->node != ev->a)
			continue;
		if (in->live && !checks_left(s, in) && !in->removed && !in->fenced)
			continue; /* it came back, and had never served */
		if (!s->dlm->purged[ii])
			stats_fault(s, F_LOCK_RECOVERY);
		free_locks(s, ii);
	}
	pause_us(s, s->o.slow_recovery ? rng_range(&s->rng, 500 * MS, 4000 * MS)
				       : rng_range(&s->rng, 5 * MS, 250 * MS));
}

void dlm_node_gone(struct sim *s, uint32_t ii, uint64_t delay_us)
{
	at(s, delay_us, on_node_gone, s->inc[ii].node, ii);
}

void dlm_quorate(struct sim *s, uint32_t ring)
{
	const struct gring *r = s->group.ring[ring];

	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (!(r->nodes >> i & 1) && s->group.member_ii[i] != NONE)
			dlm_node_gone(s, s->group.member_ii[i],
				      rng_range(&s->rng, 50 * MS, 900 * MS));
	sim_at(s, 1 * MS, on_resume, 0, 0, NULL);
}
