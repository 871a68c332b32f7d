/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The own slot of the dirty log.
 *
 * Order, always: lock and durable mark -> member writes -> answer -> idle for the release delay ->
 * FLUSH of every member -> clear. Each page has the image that is wanted, and one write of it at
 * most under way. A region counts as marked only if its bit is in the last durable image *and* in
 * the one under way: so a clear that has been sent counts at once, a mark only when it is on every
 * member of the map (R11, R13).
 *
 * Clears ride along with marks; without one they go out after CLEAR_DELAY_US. While a member is
 * missing a clear moves the bit to the missed plane (R15).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"
#include "daemon/core/rset.h"

#define CLEAR_DELAY_US 50000ull

int dlog_alloc(struct engine *e)
{
	e->d->page = calloc(e->geo.log_pages, sizeof(*e->d->page));
	for (uint32_t i = 0; e->d->page && i < e->geo.log_pages; i++)
		list_init(&e->d->page[i].link);
	return e->d->page ? 0 : -1;
}

void dlog_reset(struct engine *e)
{
	free(e->d->page);
	e->d->page = NULL;
	list_init(&e->d->pages_due);
	e->d->own_dirty = e->d->own_missed = 0;
}

static struct lpage *page_of(const struct engine *e, uint64_t region, uint32_t *bit)
{
	*bit = (uint32_t)(region % LOG_REGIONS_PER_PAGE);
	return &e->d->page[region / LOG_REGIONS_PER_PAGE];
}

bool dlog_marked(const struct engine *e, uint64_t region)
{
	uint32_t bit;
	const struct lpage *p = page_of(e, region, &bit);

	return e->view.slot_owned && bit_get(p->want.dirty, bit) && bit_get(p->durable, bit) &&
	       (!p->writing || bit_get(p->inflight, bit));
}

static void page_need(struct engine *e, struct lpage *p, bool urgent)
{
	if (!p->need)
		p->need_us = e->now;
	p->need = true;
	p->urgent |= urgent;
	if (list_empty(&p->link))
		list_add_tail(&e->d->pages_due, &p->link);
}

void dlog_mark(struct engine *e, struct region *r)
{
	uint32_t bit;
	struct lpage *p = page_of(e, r->idx, &bit);

	r->want_mark = true;
	if (bit_get(p->want.dirty, bit))
		return;
	TRACE_DATA(e, "marks region %llu", (unsigned long long)r->idx);
	bit_set(p->want.dirty, bit);
	e->d->own_dirty++;
	e->d->n_marks++;
	page_need(e, p, true);
}

static bool degraded(const struct engine *e)
{
	return map_degraded(&e->map) || map_degraded(map_next(e));
}

/* A member that is out of the map may lack what this node has written there. */
void dlog_miss(struct engine *e, uint64_t region)
{
	uint32_t bit;
	struct lpage *p = page_of(e, region, &bit);

	if (bit_get(p->want.missed, bit))
		return;
	bit_set(p->want.missed, bit);
	e->d->own_missed++;
	p->misses = true;
	page_need(e, p, true);
}

/*
 * A member has left the map. What was cleared just before, in an image that it has not
 * acknowledged, is dirty in the one that it has: if it comes back as an older copy, that tells
 * nothing (back.c).
 */
void dlog_dropped(struct engine *e)
{
	list_for_each(it, tmp, &e->d->pages_due)
	{
		struct lpage *p = list_entry(it, struct lpage, link);
		uint64_t first = (uint64_t)(p - e->d->page) * LOG_REGIONS_PER_PAGE;

		for (uint32_t i = 0; e->view.slot_owned && i < LOG_REGIONS_PER_PAGE; i++)
			if ((bit_get(p->durable, i) || (p->writing && bit_get(p->inflight, i))) &&
			    !bit_get(p->want.dirty, i))
				dlog_miss(e, first + i);
	}
}

/* All such is durable. */
bool dlog_missed_settled(const struct engine *e)
{
	list_for_each(it, tmp, &e->d->pages_due)
	{
		const struct lpage *p = list_entry(it, struct lpage, link);

		if (p->misses || p->misses_sent)
			return false;
	}
	return true;
}

static void dlog_clear(struct engine *e, struct region *r)
{
	uint32_t bit;
	struct lpage *p = page_of(e, r->idx, &bit);

	TRACE_DATA(e, "clears the mark of region %llu: all members have flushed",
		   (unsigned long long)r->idx);
	bit_clear(p->want.dirty, bit);
	e->d->own_dirty--;
	if (degraded(e) && !bit_get(p->want.missed, bit)) {
		bit_set(p->want.missed, bit);
		e->d->own_missed++;
	}
	r->want_mark = r->flushing = r->shared = r->ex_tested = r->resync_all = false;
	memset(r->written, 0, e->geo.region_stripes / 8 + 1);
	e->d->n_clears++;
	page_need(e, p, false);
}

/* ---- pages out ------------------------------------------------------------------------------ */

static void page_send(struct engine *e, struct lpage *p, uint32_t mask)
{
	uint32_t page = (uint32_t)(p - e->d->page);

	p->waiting = false;
	batch_open(&p->batch);
	log_write(e, &p->batch, e->view.slot, page, p->want.seq, mask, &p->iov);
	back_sent(e, page, mask);
	batch_close(e, &p->batch);
}

static uint32_t usable_of(const struct engine *e, uint32_t mask)
{
	uint32_t u = 0;

	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1 && member_usable(e, i))
			u |= 1u << i;
	return u & write_targets(e);
}

static void page_written(struct engine *e, struct batch *b)
{
	struct lpage *p = list_entry(b, struct lpage, batch);

	p->ok |= b->ok;
	if (e->state != ENGINE_REMOVED)
		back_told(e, (uint32_t)(p - e->d->page), p->want.seq, b->ok);
	p->waiting = true; /* dlog_advance looks at what it reached */
}

static void page_start(struct engine *e, struct lpage *p)
{
	p->need = p->urgent = false;
	p->misses_sent = p->misses;
	p->misses = false;
	p->writing = true;
	p->ok = 0;
	p->want.seq = logpage_seq_next(e->map.epoch.num, p->want.seq);
	memcpy(p->inflight, p->want.dirty, LOG_PLANE_BYTES);
	logpage_encode(&p->want, p->block);
	p->iov = (struct iovec){p->block, DDR_BLOCK_BYTES};
	e->d->n_page_writes++;
	batch_init(&p->batch, page_written);
	page_send(e, p, write_targets(e));
}

static void page_done(struct engine *e, struct lpage *p)
{
	uint64_t first = (uint64_t)(p - e->d->page) * LOG_REGIONS_PER_PAGE;

	p->writing = p->waiting = false;
	p->rewrite = p->misses_sent = false;
	TRACE_DATA(e, "page %llu of its dirty log is durable on the members",
		   (unsigned long long)(p - e->d->page));
	memcpy(p->durable, p->inflight, LOG_PLANE_BYTES);
	list_for_each(it, tmp, &e->d->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		if (r->idx >= first && r->idx - first < LOG_REGIONS_PER_PAGE &&
		    (!list_empty(&r->marking) || !list_empty(&r->lock->jobs)) &&
		    dlog_marked(e, r->idx))
			region_marked(e, r);
	}
}

static void page_advance(struct engine *e, struct lpage *p)
{
	uint32_t missing = write_musts(e) & ~p->ok;

	if (p->writing && p->waiting) {
		if (!missing)
			page_done(e, p);
		else if (usable_of(e, missing) && member_io_room(e, e->geo.n, false))
			page_send(e, p, usable_of(e, missing));
	}
	if (p->need && !p->writing && member_io_room(e, e->geo.n, false) &&
	    (p->urgent || e->now - p->need_us >= CLEAR_DELAY_US))
		page_start(e, p);
	if (!p->need && !p->writing)
		list_del(&p->link);
}

static void pages_advance(struct engine *e)
{
	if (e->view.left_sent)
		return; /* R5: the slot is nobody's from then on, and nobody fences us */
	list_for_each(it, tmp, &e->d->pages_due)
	    page_advance(e, list_entry(it, struct lpage, link));
}

bool dlog_settled(const struct engine *e)
{
	if (e->view.slot == NO_SLOT)
		return true;
	list_for_each(it, tmp, &e->d->pages_due)
	{
		const struct lpage *p = list_entry(it, struct lpage, link);

		/* What a proposal drops is not waited for: it goes with the commit. */
		if (p->need ||
		    (p->writing && (!p->waiting || write_musts(e) & write_targets(e) & ~p->ok)))
			return false;
	}
	return true;
}

/* R11: a member was added: everything of this slot goes to it as well. */
void dlog_rewrite_all(struct engine *e)
{
	for (uint32_t i = 0; e->view.slot_owned && i < e->geo.log_pages; i++) {
		e->d->page[i].rewrite = true;
		page_need(e, &e->d->page[i], true);
	}
}

/*
 * R11: each page was written since, to every member that stays. A page that waits for a member
 * which the proposal drops may have its next image waiting behind it until the commit; so nothing
 * more is asked here.
 */
bool dlog_rewritten(const struct engine *e)
{
	if (e->view.slot == NO_SLOT)
		return true;
	list_for_each(it, tmp, &e->d->pages_due)
	{
		const struct lpage *p = list_entry(it, struct lpage, link);

		if (p->rewrite &&
		    !(p->writing && p->waiting && !(write_musts(e) & write_targets(e) & ~p->ok)))
			return false;
	}
	return true;
}

/* ---- the slot ------------------------------------------------------------------------------- */

bool dlog_ready(const struct engine *e)
{
	return e->d->page;
}

void dlog_take_page(struct engine *e, uint32_t page, uint64_t seq, uint64_t dead_below,
		    const uint8_t *dirty, const uint8_t *missed)
{
	struct lpage *p = &e->d->page[page];

	list_del(&p->link);
	memset(p, 0, sizeof(*p));
	list_init(&p->link);
	memcpy(p->want.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);
	p->want.slot = (uint16_t)e->view.slot;
	p->want.page = (uint16_t)page;
	p->want.owner_node = e->cfg.node;
	p->want.owner_inc = e->inc;
	p->want.seq = seq;
	p->want.dead_below = dead_below;
	if (dirty)
		memcpy(p->want.dirty, dirty, LOG_PLANE_BYTES);
	memcpy(p->want.missed, missed, LOG_PLANE_BYTES);
	e->d->own_dirty += plane_count(p->want.dirty);
	e->d->own_missed += plane_count(p->want.missed);
	p->rewrite = true;
	page_need(e, p, true);
}

void dlog_name(struct engine *e, uint32_t node, uint64_t inc)
{
	e->d->page[0].want.owner_node = node;
	e->d->page[0].want.owner_inc = inc;
	page_need(e, &e->d->page[0], true);
}

bool dlog_named(const struct engine *e)
{
	return e->d->page[0].want.owner_inc;
}

void dlog_plane(const struct engine *e, uint32_t page, uint8_t plane[LOG_PLANE_BYTES])
{
	const struct lpage *p = &e->d->page[page];

	for (uint32_t j = 0; j < LOG_PLANE_BYTES; j++)
		plane[j] = p->want.dirty[j] | p->want.missed[j] | p->durable[j] |
			   (p->writing ? p->inflight[j] : 0);
}

/* ---- release -------------------------------------------------------------------------------- */

static void check_done(struct engine *e, struct job *j)
{
	struct region *r = region_find(e, j->region);

	if (!r || r->check != j)
		return;
	r->check = NULL;
	if (j->unreadable) {
		r->doubted = false; /* as doubtful as before; begun again at a later scan */
		free(j);
		return;
	}
	r->shared = false;
	r->resync_all = r->doubted;
	r->doubted = false;
	/* Nothing was let in meanwhile: what was written has been checked. */
	memset(r->written, 0, e->geo.region_stripes / 8 + 1);
	free(j);
}

static void check_start(struct engine *e, struct region *r)
{
	uint64_t first = geo_region_first(&e->geo, r->idx);

	r->check = malloc(sizeof(*r->check));
	if (!r->check)
		return; /* tried again at the next scan */
	job_init(r->check, JOB_CHECK, check_done, NULL);
	job_start(e, r->check, r->idx, first, first + geo_region_count(&e->geo, r->idx));
}

static bool idle(const struct engine *e, const struct region *r)
{
	uint64_t delay = e->view.stopping ? 0 : e->cfg.tun.release_delay_ms * 1000ull;

	return r->want_mark && !r->lock->users && list_empty(&r->lock->queue) &&
	       list_empty(&r->lock->jobs) && e->now - r->last_us >= delay && dlog_marked(e, r->idx);
}

/* May it be flushed and cleared? If not, does what is needed to get there. */
static bool clearable(struct engine *e, struct region *r)
{
	if (r->resync_all || r->shared) {
		if (!r->check)
			check_start(e, r);
		return false;
	}
	if (!region_written(e, r) || alone(e) || r->ex_tested)
		return true;
	region_test_ex(e, r);
	return r->ex_tested;
}

static void flushed(struct engine *e, struct batch *b)
{
	bool good = !(write_musts(e) & ~b->ok) && e->d->flush.map_num == e->map.epoch.num;

	e->d->flush.busy = false;
	if (e->state == ENGINE_REMOVED)
		return;
	list_for_each(it, tmp, &e->d->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		if (!r->flushing)
			continue;
		r->flushing = false;
		/* R13: only what nobody wrote since the FLUSH was issued (admission takes the flag
		 * away), and only if every member that its writes went to has flushed. */
		if (good && idle(e, r) && !r->shared) {
			dlog_clear(e, r);
			lock_kick(e, r->lock);
		}
	}
}

static void release_advance(struct engine *e)
{
	uint64_t every = e->cfg.tun.release_delay_ms * 250ull;
	bool any = false;

	/* What was written to one that has entered may have gone elsewhere (member_entered). */
	if (e->d->flush.busy || !members_ready(e, write_musts(e) | write_targets(e)) ||
	    devs_entering(e) || e->view.phase != PH_READY || !gate_open(e) ||
	    (e->now < e->d->scan_us && !e->view.stopping))
		return;
	e->d->scan_us = e->now + (every > 1000 ? every : 1000);
	list_for_each(it, tmp, &e->d->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		r->flushing = idle(e, r) && clearable(e, r);
		any |= r->flushing;
	}
	if (!any)
		return;
	e->d->flush.busy = true;
	e->d->flush.map_num = e->map.epoch.num;
	batch_init(&e->d->flush.batch, flushed);
	batch_open(&e->d->flush.batch);
	flush_members(e, &e->d->flush.batch, write_targets(e));
	batch_close(e, &e->d->flush.batch);
}

/* ---- the missed set ------------------------------------------------------------------------- */

/* Every member is in sync: nothing is missed any more. */
void dlog_release_missed(struct engine *e)
{
	for (uint32_t i = 0; e->view.slot_owned && e->d->own_missed && i < e->geo.log_pages; i++) {
		struct lpage *p = &e->d->page[i];
		uint32_t n = plane_count(p->want.missed);

		if (!n)
			continue;
		e->d->own_missed -= n;
		memset(p->want.missed, 0, LOG_PLANE_BYTES);
		page_need(e, p, false);
	}
}

uint64_t dlog_count(const struct engine *e, bool missed)
{
	if (!e->view.slot_owned)
		return 0;
	return missed ? e->d->own_missed : e->d->own_dirty;
}

void dlog_advance(struct engine *e)
{
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || !e->view.have_map ||
	    !e->d->page || e->view.slot == NO_SLOT || e->view.slot_wanted)
		return;
	pages_advance(e);
	if (e->view.slot_owned)
		release_advance(e);
}
