/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rebuild of a member, by the leader.
 *
 *   IDLE -> GATHER (partial: what each slot has missed, R15) -> COPY -> FLUSH -> LOG (R11)
 *        -> QUIET (nobody writes; FLUSH again) -> PROMOTE
 *
 * A full rebuild copies every region and keeps its cursor in the map, which moves only after a
 * FLUSH; a partial one copies the regions that are dirty or missed in any slot, of living nodes
 * (they tell theirs after the commit that let the member in) and of nobody. Each region is copied
 * under EX; so writes that were planned before the member was let in have ended, and all later ones
 * go to it too.
 *
 * R15: nor before whoever has been given a slot has read it, and written it to this member too.
 * What stands there nobody else knows (slots_rewrite leaves it alone), and this member may have
 * nothing of it, or something old; were it in sync, and one that has it left, that would be read.
 *
 * R18: nobody is promoted while a slot of nobody is dirty. A region below the cursor may be: what
 * its owner had in flight is old or new per fragment, reads decode it from the others, and so it is
 * decoded onto this member too. In sync before that, its own fragment would be the truth. For what
 * is in flight when it is promoted see quiet.c.
 */
#include <assert.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

#define QUIET_AGAIN_US 2000000ull
#define QUIET_TRIES_MAX 5u

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
	    [RB_LOG] = 1 << RB_IDLE | 1 << RB_GATHER | 1 << RB_COPY | 1 << RB_QUIET,
	    [RB_QUIET] =
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

	job_cancel(e, &rb->job);
	rb_move(e, RB_IDLE);
	rb->running = false;
	rb->checkpoint = rb->done = rb->total = 0;
	rb->quiet_us = 0;
	rb->quiet_tries = 0;
	rb->quiet_node = 0;
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
	if (rb->job.r && (rb->member != m || e->map.member[m].flags & MEMBER_F_PARTIAL)) {
		job_cancel(e, &rb->job);
		rb->running = false;
	}
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
	return node || (rb->state != RB_QUIET && rb->state != RB_LOG) ? node : rb->quiet_node;
}

static void copied(struct engine *e, struct job *j)
{
	struct rebuild *rb = &e->c->rebuild;

	rb->running = false;
	if (j->unreadable)
		rb->again_us = e->now + UNREADABLE_AGAIN_US;
	if (rb->state != RB_COPY || !rebuilding(&e->map, rb->member) ||
	    j->target != 1u << rb->member || j->stripe < j->end)
		return; /* abandoned */
	/* A job of before a map came that has the cursor further on moves nothing back. */
	if (j->region < rb->next)
		return;
	rb->next = j->region + 1;
	rb->done++;
}

static void rb_flushed(struct engine *e, struct batch *b)
{
	struct rebuild *rb = &e->c->rebuild;

	rb->busy = false;
	if (e->state == ENGINE_REMOVED || !leading(e) || !(b->ok >> rb->member & 1) ||
	    rb->flush_num != e->map.epoch.num || rb->map_num != e->map.epoch.num)
		return;
	if (rb->state == RB_FLUSH) {
		rb_move(e, RB_LOG);
		rb->gather_us = e->now;
		e->c->resync.rewriting = false; /* what an earlier rebuild had begun */
	} else if (rb->state == RB_QUIET) {
		rb_move(e, RB_PROMOTE);
	} else if (rb->state == RB_COPY && !rb->partial)
		rb->checkpoint = rb->next;
}

static void rb_flush(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;

	rb->busy = true;
	rb->flush_num = e->map.epoch.num;
	batch_init(&rb->batch, rb_flushed);
	batch_open(&rb->batch);
	flush_members(e, &rb->batch, 1u << rb->member);
	batch_close(e, &rb->batch);
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

static void copy_advance(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;
	struct job *j = &rb->job;
	uint64_t r = rb->partial ? rset_next(&rb->set, rb->next) : rb->next, first;
	uint64_t cursor = e->map.member[rb->member].rebuilt_upto;

	if (r >= e->geo.regions && !slots_dirty(e)) {
		rb_move(e, RB_FLUSH);
		return;
	}
	/* Nothing more is begun, no resync of a dead slot either; what is copied by now is kept. */
	if (e->view.stopping && !leave_held(e)) {
		if (rebuild_keeps(e) && rb->checkpoint < rb->next)
			rb_flush(e);
		return;
	}
	if (r >= e->geo.regions)
		return;
	if (!rb->partial && rb->checkpoint <= cursor &&
	    r - cursor >= e->cfg.tun.checkpoint_regions) {
		rb_flush(e);
		return;
	}
	first = geo_region_first(&e->geo, r);
	rb->running = true;
	job_init(j, JOB_REBUILD, copied, NULL);
	j->target = 1u << rb->member;
	job_start(e, j, r, first, first + geo_region_count(&e->geo, r));
}

/* A write, or the FLUSH, takes long: everybody writes again, and next time more patience is asked
 * for, but later. */
static void quiet_give_up(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;
	uint32_t tries = rb->quiet_tries < QUIET_TRIES_MAX ? rb->quiet_tries : QUIET_TRIES_MAX;
	uint64_t limit_us = e->cfg.tun.evict_ms * 1000ull >> (tries < 2 ? 2 - tries : 0);

	if (rb->state != RB_QUIET || e->now - e->c->quiet.asked_us < limit_us)
		return;
	rb->quiet_node = quiet_lacks(e);
	quiet_take_back(e);
	rb_move(e, RB_LOG);
	rb->quiet_us = e->now + (QUIET_AGAIN_US << tries);
	rb->quiet_tries++;
}

void rebuild_advance(struct engine *e)
{
	struct rebuild *rb = &e->c->rebuild;
	bool current = rebuild_current(e);

	if (e->c->quiet.wanted && rb->state != RB_QUIET && rb->state != RB_PROMOTE)
		quiet_take_back(e);
	quiet_give_up(e);
	if (!current || rb->busy || rb->running || rb->job.r || rb->job.busy ||
	    e->now < rb->again_us || vouch_lacks(e) || !member_usable(e, rb->member) ||
	    !(write_targets(e) >> rb->member & 1))
		return; /* or a proposal drops it again */
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
		copy_advance(e);
		break;
	case RB_FLUSH:
		rb_flush(e);
		break;
	case RB_LOG:
		/* A commit ends it: not one that was asked for before. */
		if (e->now < rb->quiet_us || e->c->lead.own_prop || e->view.proposing ||
		    !slots_rewrite(e) || slot_unread(e))
			break;
		rb_move(e, RB_QUIET);
		quiet_ask(e);
		break;
	case RB_QUIET: /* what is in the member's cache then is all that may ever be lost of it */
		if (quiet_lacks(e))
			break;
		rb->quiet_node = 0;
		rb_flush(e);
		break;
	case RB_PROMOTE:
		if (!e->c->lead.wanted[rb->member])
			want_why(e, rb->member, MEMBER_IN_SYNC, WHY_REBUILT, 0);
		break;
	}
}
