/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rebuild of a member, by the leader.
 *
 *   IDLE -> GATHER (partial: what each slot has missed, R15) -> COPY -> FLUSH -> LOG (R11)
 *        -> QUIESCE (nobody writes; FLUSH again) -> PROMOTE
 *
 * COPY is a pass (pass.h) that writes to this member only. A full one copies every region and keeps
 * its cursor in the map, which moves only after a FLUSH; a partial one copies the regions that are
 * dirty or missed in any slot, of living nodes (they tell theirs after the commit that let the
 * member in) and of nobody. Each region is copied under EX; so writes that were planned before the
 * member was let in have ended, and all later ones go to it too.
 *
 * R15: nor before whoever has been given a slot has read it, and written it to this member too.
 * What stands there nobody else knows (slots_rewrite leaves it alone), and this member may have
 * nothing of it, or something old; were it in sync, and one that has it left, that would be read.
 *
 * R18: nobody is promoted while an orphan slot is dirty. A region below the cursor may be: what
 * its owner had in flight is old or new per fragment, reads decode it from the others, and so it is
 * decoded onto this member too. In sync before that, its own fragment would be the truth. For what
 * is in flight when it is promoted see quiesce.c.
 */
#include <assert.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

#define QUIESCE_AGAIN_US 2000000ull
#define QUIESCE_TRIES_MAX 5u

static bool rebuilding(const struct map *m, uint8_t i)
{
	return i < m->n && m->member[i].state == MEMBER_REBUILDING;
}

static void rb_move(struct engine *e, enum rebuild_state to)
{
	struct rebuild *rb = &e->c->rebuild;
	static const char *const name[] = {"is over",
					   "waits for what each node has missed",
					   "copies",
					   "flushes the member",
					   "writes the log to it",
					   "waits for a moment without writes",
					   "asks for its promotion"};
	static const uint8_t legal[] = {
	    [RB_IDLE] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY,
	    [RB_GATHER] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY,
	    [RB_COPY] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY | 1 << RB_FLUSH,
	    [RB_FLUSH] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY | 1 << RB_LOG,
	    [RB_LOG] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY | 1 << RB_QUIESCE,
	    [RB_QUIESCE] =
		1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY | 1 << RB_LOG | 1 << RB_PROMOTE,
	    [RB_PROMOTE] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY,
	};

	assert(legal[rb->state] >> to & 1);
	if (rb->state != to)
		TRACE(e, "the rebuild of member %u %s", rb->member, name[to]);
	rb->state = to;
}

void rebuild_reset(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;

	pass_cancel(e, &rb->pass);
	rb_move(e, RB_IDLE);
	rb->checkpoint = rb->done = rb->total = 0;
	rb->quiesce_us = 0;
	rb->quiesce_tries = 0;
	rb->quiesce_node = 0;
}

/*
 * R15: what is missed in the slots that this leader speaks for: those of nobody, and those that it
 * has given away since it read them, whose new owners may have answered before they got them. All
 * other slots have an owner that answers once it has read its slot (own_slot.c, missed_advance);
 * what this leader remembers of them is not what stands there.
 */
static void slots_missed(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;

	for (uint32_t s = 0; s <= e->geo.p.slots; s++) {
		const struct slotinfo *slot = &e->c->lead.slot[s];
		bool given = s < e->geo.p.slots && e->c->lead.assigned[s];

		if (!given && slot_is_owned(e, s))
			continue;
		for (uint32_t p = 0; p < e->geo.log_pages && !given && !slot->known; p++)
			rset_plane_fill(&rb->set, p);
		if (!given && !slot->known)
			continue;
		rset_add(&rb->set, &slot->dirty);
		rset_add(&rb->set, &slot->missed);
	}
}

/* Begins, or begins again because the map changed. A full copy under way goes on. */
static void rebuild_begin(struct engine *e, uint8_t m)
{
	struct rebuild *rb = &e->c->rebuild;
	const struct map_member *mm = &e->map.member[m];
	bool partial = mm->flags & MEMBER_F_PARTIAL;
	bool goes_on = !partial && rb->state == RB_COPY && rb->member == m && !rb->partial &&
		       mm->rebuilt_upto <= rb->next;

	rb->map_num = e->map.epoch.num;
	if (goes_on)
		return;
	rb->member = m;
	rb->pass.target = 1u << m;
	rb->partial = partial;
	rb->done = rb->checkpoint = 0;
	rb->next = mm->rebuilt_upto;
	rb_move(e, partial ? RB_GATHER : RB_COPY);
	rb->gather_us = e->now;
	rb->done = rb->next;
	rb->total = e->geo.regions;
	if (!partial)
		return;
	rb->done = 0;
	rset_clear(&rb->set);
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		e->c->round.peer[i].sent_missed = false;
	slots_missed(e);
}

static bool rebuild_current(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;
	uint8_t m = 0;

	while (m < e->map.n && !rebuilding(&e->map, m))
		m++;
	if (m == e->map.n) {
		if (rb->state != RB_IDLE)
			rebuild_reset(e);
		return false;
	}
	if (rb->state != RB_IDLE && rb->map_num == e->map.epoch.num && rb->member == m)
		return true;
	if (rb->member != m || e->map.member[m].flags & MEMBER_F_PARTIAL)
		pass_cancel(e, &rb->pass);
	rebuild_begin(e, m);
	return true;
}

void rebuild_missed(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__Missed *d = m->missed;

	if (!epoch_is(d->epoch, &e->map.epoch) || !rebuild_current(e) ||
	    e->c->rebuild.state != RB_GATHER)
		return;
	if (d->plane.len == LOG_PLANE_BYTES && d->page < e->geo.log_pages)
		rset_plane_add(&e->c->rebuild.set, d->page, d->plane.data);
	if (d->end)
		peer_find(e, from)->sent_missed = true;
}

/* A node that has yet to read its slot of the log; 0 = none. */
static uint32_t slot_unread(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (!p->member)
			continue;
		if ((e->c->rebuild.state == RB_GATHER && !p->sent_missed) ||
		    (e->c->rebuild.state == RB_LOG && p->slot != NO_SLOT && !p->active))
			return p->node;
	}
	return 0;
}

uint32_t rebuild_waits(const struct engine *e, const char **why)
{
	const struct rebuild *rb = &e->c->rebuild;
	uint32_t node = slot_unread(e);

	*why = node ? "a node to read its slot of the dirty log, which may tell what the member "
		      "has missed"
		    : "a node to end the writes that it has under way";
	return node || (rb->state != RB_QUIESCE && rb->state != RB_LOG) ? node : rb->quiesce_node;
}

/* A full copy has come further than the map says. */
bool rebuild_keeps(const struct engine *e)
{
	const struct rebuild *rb = &e->c->rebuild;
	uint8_t m = rb->member;

	return leading(e) && rb->state == RB_COPY && !rb->partial && rebuilding(&e->map, m) &&
	       rb->map_num == e->map.epoch.num && e->map.member[m].rebuilt_upto < rb->next &&
	       member_usable(e, m) && write_targets(e) >> m & 1;
}

/* ---- the pass ------------------------------------------------------------------------------- */

static uint64_t copy_next(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;

	return rb->partial ? rset_next(&rb->set, rb->next) : rb->next;
}

static void copy_region_done(struct engine *e, const struct job *j)
{
	struct rebuild *rb = &e->c->rebuild;

	if (j->stripe < j->end || !rebuilding(&e->map, rb->member))
		return; /* abandoned */
	/* A job of before a map came that has the cursor further on moves nothing back. */
	if (j->region < rb->next)
		return;
	rb->next = j->region + 1;
	rb->done++;
}

static bool copy_over(const struct engine *e, uint64_t next)
{
	return next >= e->geo.regions && !slots_dirty(e);
}

/* For a checkpoint of a full copy. That of the whole copy is the state FLUSH. */
static bool copy_flush_due(struct engine *e, uint64_t next, bool stops)
{
	struct rebuild *rb = &e->c->rebuild;
	uint64_t cursor = e->map.member[rb->member].rebuilt_upto;

	if (copy_over(e, next))
		return false;
	if (stops) /* no resync of a dead slot goes on either; what is copied by now is kept */
		return rebuild_keeps(e) && rb->checkpoint < rb->next;
	return !rb->partial && next < e->geo.regions && rb->checkpoint <= cursor &&
	       next - cursor >= e->cfg.tun.checkpoint_regions;
}

static void copy_rest(struct engine *e, uint64_t next)
{
	if (copy_over(e, next))
		rb_move(e, RB_FLUSH);
}

static void rb_flushed(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;

	if (rb->state == RB_FLUSH) {
		rb_move(e, RB_LOG);
		rb->gather_us = e->now;
		e->c->resync.rewriting = false; /* what an earlier rebuild had begun */
	} else if (rb->state == RB_QUIESCE) {
		rb_move(e, RB_PROMOTE);
	} else if (rb->state == RB_COPY && !rb->partial) {
		TRACE(e, "the rebuild of member %u has %llu of %llu regions flushed", rb->member,
		      (unsigned long long)rb->next, (unsigned long long)e->geo.regions);
		rb->checkpoint = rb->next;
	}
}

void rebuild_setup(struct engine *e)
{
	static const struct pass_ops ops = {
	    .name = "the rebuild",
	    .kind = JOB_REBUILD,
	    .one_epoch = true,
	    .next = copy_next,
	    .region_done = copy_region_done,
	    .flush_due = copy_flush_due,
	    .flushed = rb_flushed,
	    .rest = copy_rest,
	};

	pass_init(&e->c->rebuild.pass, &ops);
}

/* ---- its steps ------------------------------------------------------------------------------ */

/* A write, or the FLUSH, takes long: everybody writes again, and next time more patience is asked
 * for, but later. */
static void quiesce_give_up(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;
	uint32_t tries =
	    rb->quiesce_tries < QUIESCE_TRIES_MAX ? rb->quiesce_tries : QUIESCE_TRIES_MAX;
	uint64_t limit_us = e->cfg.tun.evict_ms * 1000ull >> (tries < 2 ? 2 - tries : 0);

	if (rb->state != RB_QUIESCE || e->now - e->c->quiesce.asked_us < limit_us)
		return;
	rb->quiesce_node = quiesce_lacks(e);
	quiesce_take_back(e);
	rb_move(e, RB_LOG);
	rb->quiesce_us = e->now + (QUIESCE_AGAIN_US << tries);
	rb->quiesce_tries++;
}

void rebuild_advance(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;
	bool current = rebuild_current(e);

	if (e->c->quiesce.wanted && rb->state != RB_QUIESCE && rb->state != RB_PROMOTE)
		quiesce_take_back(e);
	quiesce_give_up(e);
	if (!current || !pass_ready(e, &rb->pass))
		return;
	switch (rb->state) {
	case RB_IDLE:
		break;
	case RB_GATHER:
		if (!slot_unread(e)) {
			rb->total = rb->set.count;
			rb_move(e, RB_COPY);
		}
		break;
	case RB_COPY:
		pass_advance(e, &rb->pass);
		break;
	case RB_FLUSH:
		pass_flush(e, &rb->pass);
		break;
	case RB_LOG:
		/* A commit ends it: not one that was asked for before. */
		if (e->now < rb->quiesce_us || e->c->lead.own_prop || e->view.proposing ||
		    !slots_rewrite(e) || slot_unread(e))
			break;
		rb_move(e, RB_QUIESCE);
		quiesce_ask(e);
		break;
	case RB_QUIESCE: /* what is in the member's cache then is all that may ever be lost of it */
		if (quiesce_lacks(e))
			break;
		rb->quiesce_node = 0;
		pass_flush(e, &rb->pass);
		break;
	case RB_PROMOTE:
		if (!e->c->lead.requested[rb->member])
			request_state(e, rb->member, MEMBER_IN_SYNC, WHY_REBUILT, 0);
		break;
	}
}
