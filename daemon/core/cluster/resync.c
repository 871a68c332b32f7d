/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Orphan slots, once they are read: the leader resyncs their dirty regions, which is a pass
 * (pass.h), and writes their pages.
 *
 *   pick a region -> job RESYNC -> done set -> (batch full or nothing left) FLUSH -> pages without
 *   the done bits, FUA -> told to all
 *
 * If it dies, the next leader goes on from what the slots still say.
 */
#include <assert.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

#define CLEAR_BATCH 32u

/* ---- writing pages of an orphan slot ------------------------------------------------------ */

/* The run is written, or has failed. */
static void pages_written(struct engine *e)
{
	struct resync *rec = &e->c->resync;
	struct slotinfo *s = &e->c->lead.slot[rec->slot];
	bool over = e->state == ENGINE_REMOVED || !leading(e) || !s->stale || rec->doubted;

	rec->writing = rec->again = false;
	for (uint32_t i = 0; i < rec->count; i++) {
		struct pagewrite *w = &rec->run[i];
		struct pageinfo *p = &s->page[w->page];

		if (w->durable)
			continue;
		w->durable = !(write_musts(e) & ~w->batch.ok);
		if (w->durable) {
			p->before = p->told ? p->told : p->seq;
			p->told = p->seq;
			slot_untold(e, s);
		}
		if (over) {
			/* Some may lack it: the next one goes to the same copy (page_take). */
			p->seq += !w->durable;
			continue;
		}
		rec->again |= !w->durable;
		if (!w->durable || p->changed || !p->stale)
			continue;
		p->stale = false;
		s->stale--;
		if (p->untold)
			page_announce(e, rec->slot, w->page);
		p->untold = false;
	}
	if (!over)
		s->cleared &= s->stale > 0;
}

static void page_written(struct engine *e, struct batch *b)
{
	(void)b;
	if (!--e->c->resync.pending)
		pages_written(e);
}

static void page_encode(struct engine *e, uint32_t slot, uint32_t page, uint8_t *block)
{
	struct slotinfo *s = &e->c->lead.slot[slot];
	struct logpage *lp = &e->c->resync.image;

	memset(lp, 0, sizeof(*lp));
	memcpy(lp->array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);
	lp->slot = (uint16_t)slot;
	lp->page = (uint16_t)page;
	lp->seq = s->page[page].seq = logpage_seq_next(e->map.epoch.num, s->page[page].seq);
	lp->owner_node = s->owner_node;
	lp->owner_inc = s->owner_inc;
	lp->dead_below = page ? 0 : s->dead_below;
	memcpy(lp->dirty, rset_plane(&s->dirty, page), LOG_PLANE_BYTES);
	memcpy(lp->missed, rset_plane(&s->missed, page), LOG_PLANE_BYTES);
	logpage_encode(lp, block);
	s->page[page].changed = false;
}

/* The first pages that are stale. The room for one is always there (MEMBER_IO_SINGLE). */
static void pages_encode(struct engine *e, uint32_t slot)
{
	struct resync *rec = &e->c->resync;
	const struct slotinfo *s = &e->c->lead.slot[slot];
	uint32_t most = member_io_room(e, WR_PAGES * e->geo.n, false) ? WR_PAGES : 1;

	rec->slot = slot;
	rec->count = 0;
	for (uint32_t p = 0; p < e->geo.log_pages && rec->count < most; p++) {
		if (!s->page[p].stale)
			continue;
		page_encode(e, slot, p, rec->block[rec->count]);
		rec->run[rec->count].durable = false;
		rec->run[rec->count++].page = p;
	}
}

static void page_send(struct engine *e, struct pagewrite *w, uint8_t *block)
{
	struct resync *rec = &e->c->resync;
	uint64_t seq = e->c->lead.slot[rec->slot].page[w->page].seq;

	w->iov = (struct iovec){block, DDR_BLOCK_BYTES};
	rec->pending++;
	batch_init(&w->batch, page_written);
	batch_open(&w->batch);
	log_write(e, &w->batch, rec->slot, w->page, seq, write_targets(e), &w->iov);
	batch_close(e, &w->batch);
}

static void pages_send(struct engine *e)
{
	struct resync *rec = &e->c->resync;

	rec->writing = true;
	rec->doubted = false;
	rec->pending = 1; /* until all are begun */
	for (uint32_t i = 0; i < rec->count; i++)
		if (!rec->run[i].durable)
			page_send(e, &rec->run[i], rec->block[i]);
	if (!--rec->pending)
		pages_written(e);
}

/* What only few say is left as it is, unless it has bits: the next leader is to see it, too. */
static bool slot_is_due(const struct engine *e, uint32_t slot)
{
	const struct slotinfo *s = &e->c->lead.slot[slot];

	return s->stale && !slot_is_owned(e, slot) &&
	       (!s->hear_inc || e->c->resync.rewriting || s->cleared);
}

/*
 * Writes what is stale, some pages at a time. True: nothing is. What did not reach all members goes
 * to them once more before all else, as it is and with the same number: no member is ever ahead by
 * more than one image, since its other copy may be the last one that is intact.
 */
static bool stale_written(struct engine *e)
{
	struct resync *rec = &e->c->resync;
	uint32_t slot = 0;

	if (rec->writing || pass_flushing(&rec->pass) ||
	    !members_ready(e, write_musts(e) | write_targets(e)))
		return false;
	if (rec->again && !rec->doubted && slot_is_due(e, rec->slot)) {
		if (rec->count == 1 || member_io_room(e, rec->count * e->geo.n, false))
			pages_send(e);
		return false;
	}
	while (slot <= e->geo.p.slots && !slot_is_due(e, slot))
		slot++;
	if (slot > e->geo.p.slots)
		return true;
	pages_encode(e, slot);
	pages_send(e);
	return false;
}

/* As a whole: nothing that the nodes were told has changed by that. */
static void slot_stale(struct engine *e, uint32_t slot)
{
	struct slotinfo *s = &e->c->lead.slot[slot];

	for (uint32_t p = 0; p < e->geo.log_pages && !slot_is_owned(e, slot); p++) {
		bool untold = s->page[p].untold;

		page_stale(s, p);
		s->page[p].untold = untold;
	}
}

/* R11, for a member that was added: all orphan slots are written to it. True when they are. What
 * is stale already comes before: its first pages may have been written without this member. */
bool slots_rewrite(struct engine *e)
{
	struct resync *rec = &e->c->resync;

	if (!rec->rewriting) {
		if (!stale_written(e))
			return false;
		rec->rewriting = true;
		for (uint32_t i = 0; i <= e->geo.p.slots; i++)
			slot_stale(e, i);
	}
	if (!stale_written(e))
		return false;
	rec->rewriting = false;
	return true;
}

/* ---- the pass ------------------------------------------------------------------------------- */

/* Pages come first: what the last FLUSH has cleared is on all members before more is resynced. */
static bool resync_may_run(struct engine *e)
{
	if (!stale_written(e))
		return false;
	rset_clear(&e->c->resync.clearing);
	return true;
}

/* The first region that is dirty in an orphan slot and not resynced yet; dead nodes' slots go
 * before the array's own. */
static uint64_t resync_next(struct engine *e)
{
	for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
		const struct slotinfo *s = &e->c->lead.slot[i];

		if (slot_is_owned(e, i) || !s->known)
			continue;
		for (uint64_t r = rset_next(&s->dirty, 0); r < e->geo.regions;
		     r = rset_next(&s->dirty, r + 1))
			if (!rset_has(&e->c->resync.done, r)) {
				e->c->resync.of_slot = i;
				return r;
			}
	}
	return e->geo.regions;
}

static void resync_region_done(struct engine *e, const struct job *j)
{
	rset_put(&e->c->resync.done, j->region, true);
	recovery_region(e);
}

static bool resync_flush_due(struct engine *e, uint64_t next, bool stops)
{
	uint64_t done = e->c->resync.done.count;

	return done && (done >= CLEAR_BATCH || next >= e->geo.regions || stops);
}

/* All members have flushed what was resynced: the bits may go (R15: to the missed set while a
 * member is missing). */
static void bits_clear(struct engine *e)
{
	struct resync *rec = &e->c->resync;
	bool missing = map_degraded(&e->map) || (e->view.proposing && map_degraded(&e->view.prop));

	for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
		struct slotinfo *s = &e->c->lead.slot[i];

		if (slot_is_owned(e, i))
			continue;
		for (uint64_t r = rset_next(&rec->done, 0); r < e->geo.regions;
		     r = rset_next(&rec->done, r + 1)) {
			if (!rset_has(&s->dirty, r))
				continue;
			rset_put(&s->dirty, r, false);
			rset_put(&rec->clearing, r, true);
			if (missing)
				rset_put(&s->missed, r, true);
			page_stale(s, (uint32_t)(r / LOG_REGIONS_PER_PAGE));
			s->cleared = e->c->lead.cleared = true;
		}
	}
	TRACE(e, "%llu regions of orphan slots are %s: all members have flushed",
	      (unsigned long long)rec->done.count, missing ? "noted as missed" : "clean");
	rset_clear(&rec->done);
}

/* As dlog_dropped, of orphan slots: what was cleared in pages that a member may not have. */
void slots_dropped(struct engine *e)
{
	uint64_t r;

	if (!e->view.slot_owned)
		return; /* nowhere to note it */
	for (r = rset_next(&e->c->resync.clearing, 0); r < e->geo.regions;
	     r = rset_next(&e->c->resync.clearing, r + 1))
		dlog_miss(e, r);
}

static void names_clear(struct engine *e)
{
	for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
		struct slotinfo *s = &e->c->lead.slot[i];

		if (slot_is_owned(e, i) || !s->owner_inc || s->dirty.count)
			continue;
		s->owner_node = 0;
		s->owner_inc = 0;
		page_stale(s, 0);
	}
}

static void resync_flushed(struct engine *e)
{
	bits_clear(e);
	names_clear(e);
}

static void resync_rest(struct engine *e, uint64_t next)
{
	(void)next;
	names_clear(e);
	if (!e->c->lead.cleared || slots_unrecovered(e))
		return;
	e->c->lead.cleared = false;
	e->c->lead.cleared_num = map_next(e)->epoch.num; /* some members may carry it */
}

void resync_setup(struct engine *e)
{
	static const struct pass_ops ops = {
	    .name = "the resync",
	    .kind = JOB_RESYNC,
	    .may_run = resync_may_run,
	    .next = resync_next,
	    .region_done = resync_region_done,
	    .flush_due = resync_flush_due,
	    .flushed = resync_flushed,
	    .rest = resync_rest,
	};

	pass_init(&e->c->resync.pass, &ops);
}

void slots_advance(struct engine *e)
{
	pass_advance(e, &e->c->resync.pass);
}

/* What was resynced but not cleared will be resynced again. */
void slots_doubt(struct engine *e)
{
	struct resync *rec = &e->c->resync;

	if (!rec->done.page)
		return;
	pass_cancel(e, &rec->pass);
	rset_clear(&rec->done);
}

/* A round ends. What was to be written again, as it was, is written anew: to the same copy, since
 * some members may lack it (page_take). */
void slots_reset(struct engine *e)
{
	struct resync *rec = &e->c->resync;

	slots_doubt(e);
	for (uint32_t i = 0; i < rec->count && rec->again && !rec->writing; i++)
		if (!rec->run[i].durable)
			e->c->lead.slot[rec->slot].page[rec->run[i].page].seq++;
	rec->again &= rec->writing;
	rec->rewriting = false;
	rec->doubted = true; /* what is under way may be another leader's by now */
}
