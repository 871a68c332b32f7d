/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * This node's side of the locks: what it asks of the leader's table (locktab.c), or of an external
 * manager, and when a grant of that counts.
 */
#include "daemon/core/cluster/msg.h"

void lock_ask(struct engine *e, uint64_t id, enum lock_mode mode, bool try_only)
{
	NODEMSG(m, b, LOCK, Lock, lock);

	e->c->locks.requests++;
	if (e->cfg.lock_backend == LOCK_EXTERNAL) {
		struct out *o = out_add(e, OUT_LOCK);

		o->lock.id = id;
		o->lock.mode = mode;
		o->lock.try_only = try_only;
		return;
	}
	if (e->view.phase != PH_READY)
		return; /* sent at Ready */
	b.id = id;
	b.mode = (uint32_t)mode;
	b.try_only = try_only;
	msg_send(e, &m);
}

void lock_drop(struct engine *e, uint64_t id)
{
	NODEMSG(m, b, UNLOCK, Unlock, unlock);

	if (e->cfg.lock_backend == LOCK_EXTERNAL) {
		out_add(e, OUT_UNLOCK)->lock.id = id;
		return;
	}
	if (e->view.phase < PH_STATE)
		return; /* the claims of the coming round don't name it */
	b.id = id;
	msg_send(e, &m);
}

/* ---- Settle: LOCK_EXTERNAL ------------------------------------------------------------------ */

/*
 * R4, R10: an external manager may grant what a dead node held before that is fenced, and even
 * before anybody hears of the death. A dead node's: that takes longer than the token's time-out, so
 * the round is not Ready, or the own heartbeat is late. A dead daemon's it may grant at once. So a
 * grant counts only when every other node of the round has said something that it can't have said
 * before the grant: an answer to our Settle. Who does not answer is going to be lost, and the grant
 * waits for the next Ready.
 */
static bool lock_counts(const struct engine *e)
{
	return e->view.phase == PH_READY && gate_open(e);
}

uint64_t settle_want(struct engine *e)
{
	e->c->locks.settle_due = true;
	return e->c->locks.settle_num + 1;
}

void settle_void(struct engine *e, bool waits)
{
	e->c->locks.settle_floor = e->c->locks.settle_num + 1;
	e->c->locks.settle_due = waits;
}

/* The newest Settle that all others have answered. */
static uint64_t settled(const struct engine *e)
{
	uint64_t num = e->c->locks.settle_num;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->member && p->node != e->cfg.node && p->settled < num)
			num = p->settled;
	}
	return num;
}

/* One at a time: what is granted meanwhile goes with the next. */
static void settle_ask(struct engine *e, uint64_t answered)
{
	NODEMSG(m, b, SETTLE, Settle, settle);

	if (!e->c->locks.settle_due || (e->c->locks.settle_num >= e->c->locks.settle_floor &&
					answered < e->c->locks.settle_num))
		return;
	e->c->locks.settle_due = false;
	b.num = ++e->c->locks.settle_num;
	e->c->locks.settle_us = e->now;
	msg_send(e, &m);
}

/* R7: others answer at once. One that does not, though it is heard, would hold up every write here.
 */
static void settle_evict(struct engine *e)
{
	if (e->now - e->c->locks.settle_us <= e->cfg.tun.evict_ms * 1000ull)
		return;
	e->c->locks.settle_us = e->now;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->member && p->node != e->cfg.node && p->settled < e->c->locks.settle_num)
			evict(e, p);
	}
}

bool settle_passed(struct engine *e, uint64_t *answered)
{
	if (!lock_counts(e))
		return false;
	settle_ask(e, settled(e));
	*answered = settled(e);
	if (*answered < e->c->locks.settle_num)
		settle_evict(e);
	return *answered >= e->c->locks.settle_floor;
}

void settle_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	NODEMSG(reply, b, SETTLED, Settled, settled);
	struct peer *p = peer_find(e, from);

	if (m->body_case == DDRAID__NODE_MSG__BODY_SETTLE) {
		/* Who gives up may have lost what the lock manager is to know of it. */
		if (from == e->cfg.node || e->c->round.give_up_us)
			return;
		b.node = from;
		b.num = m->settle->num;
		msg_send(e, &reply);
	} else if (m->settled->node == e->cfg.node && p && p->settled < m->settled->num &&
		   m->settled->num <= e->c->locks.settle_num) {
		p->settled = m->settled->num;
	}
}
