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

#include "daemon/core/cluster/msg.h"

#define CLEAR_DELAY_US 50000ull

int dlog_alloc(struct engine *e)
{
	e->page = calloc(e->geo.log_pages, sizeof(*e->page));
	for (uint32_t i = 0; e->page && i < e->geo.log_pages; i++)
		list_init(&e->page[i].link);
	return e->page ? 0 : -1;
}

void dlog_reset(struct engine *e)
{
	free(e->page);
	e->page = NULL;
	list_init(&e->pages_due);
	e->own_dirty = e->own_missed = 0;
}

static struct lpage *page_of(const struct engine *e, uint64_t region, uint32_t *bit)
{
	*bit = (uint32_t)(region % LOG_REGIONS_PER_PAGE);
	return &e->page[region / LOG_REGIONS_PER_PAGE];
}

bool dlog_marked(const struct engine *e, uint64_t region)
{
	uint32_t bit;
	const struct lpage *p = page_of(e, region, &bit);

	return e->slot_owned && bit_get(p->want.dirty, bit) && bit_get(p->durable, bit) &&
	       (!p->writing || bit_get(p->inflight, bit));
}

static void page_need(struct engine *e, struct lpage *p, bool urgent)
{
	if (!p->need)
		p->need_us = e->now;
	p->need = true;
	p->urgent |= urgent;
	if (list_empty(&p->link))
		list_add_tail(&e->pages_due, &p->link);
}

void dlog_mark(struct engine *e, struct region *r)
{
	uint32_t bit;
	struct lpage *p = page_of(e, r->idx, &bit);

	r->want_mark = true;
	if (bit_get(p->want.dirty, bit))
		return;
	bit_set(p->want.dirty, bit);
	e->own_dirty++;
	e->n_marks++;
	page_need(e, p, true);
}

static bool degraded(const struct engine *e)
{
	return map_degraded(&e->map) || (e->proposing && map_degraded(&e->prop));
}

/* A member that is out of the map may lack what this node has written there. */
void dlog_miss(struct engine *e, uint64_t region)
{
	uint32_t bit;
	struct lpage *p = page_of(e, region, &bit);

	if (bit_get(p->want.missed, bit))
		return;
	bit_set(p->want.missed, bit);
	e->own_missed++;
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
	list_for_each(it, tmp, &e->pages_due)
	{
		struct lpage *p = list_entry(it, struct lpage, link);
		uint64_t first = (uint64_t)(p - e->page) * LOG_REGIONS_PER_PAGE;

		for (uint32_t i = 0; e->slot_owned && i < LOG_REGIONS_PER_PAGE; i++)
			if ((bit_get(p->durable, i) || (p->writing && bit_get(p->inflight, i))) &&
			    !bit_get(p->want.dirty, i))
				dlog_miss(e, first + i);
	}
}

/* All such is durable. */
bool dlog_missed_settled(const struct engine *e)
{
	list_for_each(it, tmp, &e->pages_due)
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

	bit_clear(p->want.dirty, bit);
	e->own_dirty--;
	if (degraded(e) && !bit_get(p->want.missed, bit)) {
		bit_set(p->want.missed, bit);
		e->own_missed++;
	}
	r->want_mark = r->flushing = r->shared = r->ex_tested = r->resync_all = false;
	memset(r->written, 0, e->geo.region_stripes / 8 + 1);
	e->n_clears++;
	page_need(e, p, false);
}

/* ---- pages out ------------------------------------------------------------------------------ */

static void page_send(struct engine *e, struct lpage *p, uint32_t mask)
{
	uint32_t page = (uint32_t)(p - e->page);

	p->waiting = false;
	batch_open(&p->batch);
	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1)
			dio_start(
			    e, &p->batch, i, DEV_WRITE, KIND_LOG, DEV_F_FUA,
			    geo_log_offset(&e->geo, e->slot, page, (uint32_t)(p->want.seq & 1)),
			    DDR_BLOCK_BYTES, &p->iov, 1, 0);
	back_sent(e, p, mask);
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
		back_told(e, p, b->ok);
	p->waiting = true; /* dlog_advance looks at what it reached */
}

static void page_start(struct engine *e, struct lpage *p)
{
	p->need = p->urgent = false;
	p->misses_sent = p->misses;
	p->misses = false;
	p->writing = true;
	p->ok = 0;
	p->want.seq = log_seq_next(e, p->want.seq);
	memcpy(p->inflight, p->want.dirty, LOG_PLANE_BYTES);
	logpage_encode(&p->want, p->block);
	p->iov = (struct iovec){p->block, DDR_BLOCK_BYTES};
	e->n_page_writes++;
	batch_init(&p->batch, page_written);
	page_send(e, p, write_targets(e));
}

static void page_done(struct engine *e, struct lpage *p)
{
	uint64_t first = (uint64_t)(p - e->page) * LOG_REGIONS_PER_PAGE;

	p->writing = p->waiting = false;
	p->rewrite = p->misses_sent = false;
	memcpy(p->durable, p->inflight, LOG_PLANE_BYTES);
	list_for_each(it, tmp, &e->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		if (r->idx >= first && r->idx - first < LOG_REGIONS_PER_PAGE &&
		    (!list_empty(&r->marking) || !list_empty(&r->jobs)) && dlog_marked(e, r->idx))
			region_marked(e, r);
	}
}

static void page_advance(struct engine *e, struct lpage *p)
{
	uint32_t missing = write_musts(e) & ~p->ok;

	if (p->writing && p->waiting) {
		if (!missing)
			page_done(e, p);
		else if (usable_of(e, missing) && dio_room(e, e->geo.n, false))
			page_send(e, p, usable_of(e, missing));
	}
	if (p->need && !p->writing && dio_room(e, e->geo.n, false) &&
	    (p->urgent || e->now - p->need_us >= CLEAR_DELAY_US))
		page_start(e, p);
	if (!p->need && !p->writing)
		list_del(&p->link);
}

static void pages_advance(struct engine *e)
{
	if (e->left_sent)
		return; /* R5: the slot is nobody's from then on, and nobody fences us */
	list_for_each(it, tmp, &e->pages_due) page_advance(e, list_entry(it, struct lpage, link));
}

bool dlog_settled(const struct engine *e)
{
	if (e->slot == NO_SLOT)
		return true;
	list_for_each(it, tmp, &e->pages_due)
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
	for (uint32_t i = 0; e->slot_owned && i < e->geo.log_pages; i++) {
		e->page[i].rewrite = true;
		page_need(e, &e->page[i], true);
	}
}

/*
 * R11: each page was written since, to every member that stays. A page that waits for a member
 * which the proposal drops may have its next image waiting behind it until the commit; so nothing
 * more is asked here.
 */
bool dlog_rewritten(const struct engine *e)
{
	if (e->slot == NO_SLOT)
		return true;
	list_for_each(it, tmp, &e->pages_due)
	{
		const struct lpage *p = list_entry(it, struct lpage, link);

		if (p->rewrite &&
		    !(p->writing && p->waiting && !(write_musts(e) & write_targets(e) & ~p->ok)))
			return false;
	}
	return true;
}

/* ---- the slot: taking, leaving -------------------------------------------------------------- */

/* The leader gave us a slot: read it (sequence numbers, missed set), put our name on it. */
void dlog_acquire(struct engine *e, uint32_t slot)
{
	e->slot = slot;
	e->slot_wanted = true;
	e->ld.slot[slot].known = false;
}

static void slot_take(struct engine *e)
{
	const struct slotinfo *s = &e->ld.slot[e->slot];

	e->slot_wanted = false;
	for (uint32_t i = 0; i < e->geo.log_pages; i++) {
		struct lpage *p = &e->page[i];

		list_del(&p->link);
		memset(p, 0, sizeof(*p));
		list_init(&p->link);
		memcpy(p->want.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);
		p->want.slot = (uint16_t)e->slot;
		p->want.page = (uint16_t)i;
		p->want.owner_node = e->cfg.node;
		p->want.owner_inc = e->inc;
		p->want.seq = s->page[i].seq;
		/* Nothing is dirty (R16: the leader gives away only clean slots); were a bit set,
		 * no region of ours would ever clear it. What could not be read only counts as
		 * dirty, or what only some members say, and the leader knows better. */
		if (!s->lost && !s->unlike)
			memcpy(p->want.dirty, rset_plane(&s->dirty, i), LOG_PLANE_BYTES);
		memcpy(p->want.missed, rset_plane(&s->missed, i), LOG_PLANE_BYTES);
		e->own_dirty += plane_count(p->want.dirty);
		e->own_missed += plane_count(p->want.missed);
		p->rewrite = true;
		page_need(e, p, true);
	}
}

/* The slot is ours when its pages are durable; then, once in each round, everybody is told. */
static void slot_advance(struct engine *e)
{
	pb_inc me = pb_inc_of(e->cfg.node, e->inc, e->slot, true);
	NODEMSG(m, b, JOINED, Joined, joined);

	if (e->slot_wanted) {
		if (e->ld.reading)
			return;
		if (e->ld.slot[e->slot].known)
			slot_take(e);
		else
			slot_read(e, e->slot);
		return;
	}
	if (!e->slot_owned)
		e->slot_owned = dlog_settled(e);
	if (!e->slot_owned || e->state != ENGINE_JOINING || e->phase != PH_READY || e->joined_sent)
		return;
	if (leader_differs(e) /* not the leader that assigned it */ || vouch_lacks(e))
		return;
	b.me = &me;
	e->joined_sent = true;
	msg_send(e, &m);
}

static void left_send(struct engine *e)
{
	pb_inc me = pb_inc_of(e->cfg.node, e->inc, e->slot, false);
	NODEMSG(m, b, LEFT, Left, left);

	b.me = &me;
	e->left_sent = true;
	msg_send(e, &m);
}

/* R5: nobody fences who has left; so nothing of ours may still be on its way. */
static bool zombies(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->dev[i].zombie)
			return true;
	return false;
}

static bool under_way(const struct engine *e)
{
	return e->dio_under_way || !list_empty(&e->dio_held);
}

/*
 * ADMIN_STOP of a node that does not serve: it waits for quorum or for others, or is refused. Who
 * has been in no round yet has nobody to tell. Whose name stands in superblocks is going to be
 * fenced for it by the next to assemble the array (R4), so it does not say that it has left.
 */
static void leave_unserved(struct engine *e)
{
	const struct peer *me = peer_find(e, e->cfg.node);
	bool known = me && me->member_inc == e->inc;

	e->leaving = false;
	if (e->left_sent || e->slot != NO_SLOT || (known && me->slot != NO_SLOT) ||
	    e->sb_names_us || zombies(e) || flush_error_untold(e))
		return;
	e->leaving = true;
	if (under_way(e))
		return;
	if (!known && e->phase == PH_HELLO && !(e->leader == e->cfg.node && !e->ld.begun))
		return; /* a State may be on its way that counts this node in */
	/* Whoever is not fenced yet may use the array by this claim. */
	if (known && e->phase >= PH_STATE && !gone_unfenced(e) && !use_given_back(e))
		return;
	if (!known)
		e->state = ENGINE_STOPPED;
	else if (me->member && e->phase >= PH_STATE)
		left_send(e);
}

/* What no end of requests changes keeps this node from leaving. */
bool leave_held(const struct engine *e)
{
	/* The next to assemble the array would have to fence us for it (R4). */
	if (leading(e) && e->sb_names_us && e->map.epoch.inc == e->inc)
		return true;
	return zombies(e) || flush_error_untold(e); /* R14: until the map says it */
}

/*
 * If the whole array is stopped, somebody has to see that he is the last one, to seal the array and
 * to give its use block back. So each node says first that it is to leave, and waits for those that
 * have said so before it: all nodes hear them in the same order.
 */
static bool others_first(const struct engine *e)
{
	const struct peer *me = peer_find((struct engine *)e, e->cfg.node);

	if (alone(e) || e->now - e->drained_us > e->cfg.tun.evict_ms * 1000ull)
		return false;
	if (!me->stops)
		return true;
	for (uint32_t i = 0; i < e->peer_count; i++)
		if (e->peer[i].member && e->peer[i].stops && e->peer[i].stops < me->stops)
			return true;
	return false;
}

/* No other node serves, or may before long. One that reaches no member, say, joins for ever. */
static bool last_here(const struct engine *e)
{
	for (uint32_t i = 0; i < e->peer_count; i++) {
		const struct peer *p = &e->peer[i];

		if (p->member && p->node != e->cfg.node && (p->active || p->slot != NO_SLOT))
			return false;
	}
	return true;
}

/*
 * Nothing is written to the array any more. The last node commits its map twice more as it is: then
 * each member tells of an epoch that was committed after the last write (R1), and one that comes
 * back as a copy of what it was during this run is told by that. While its name is on the slot
 * (R4). What keeps it from that does not keep it from leaving.
 */
static bool leave_sealed(struct engine *e)
{
	if (!leading(e) || !last_here(e))
		return true;
	if (!e->seal_us) {
		e->seal_us = e->now;
		e->seals = 2 + e->ld.own_prop; /* of before the last write, maybe */
	}
	if (e->now - e->seal_us > e->cfg.tun.evict_ms * 1000ull) {
		e->unsealed |= e->seals != 0;
		e->seals = 0;
	}
	return !e->seals;
}

static void slot_name(struct engine *e, uint32_t node, uint64_t inc)
{
	e->page[0].want.owner_node = node;
	e->page[0].want.owner_inc = inc;
	page_need(e, &e->page[0], true);
}

/* R4: somebody finds there whom to fence if this node dies. */
bool dlog_names_us(const struct engine *e)
{
	return e->slot_owned && e->page[0].want.owner_inc && !e->naming;
}

/* It had taken its name off, and leads by now, since others left after all: what it still has to
 * commit it may only under its name. */
static bool slot_again(const struct engine *e)
{
	return leading(e) && !e->left_sent && !dlog_names_us(e) &&
	       ((e->sb_names_us && e->map.epoch.inc == e->inc) || (last_here(e) && !e->seal_us));
}

/* ADMIN_STOP: nothing is dirty any more; take our name off, then leave. */
static void leave_advance(struct engine *e)
{
	e->leaving = false;
	if (!list_empty(&e->fios) || !list_empty(&e->regions) || e->phase != PH_READY)
		return;
	e->naming &= !dlog_settled(e);
	if (!e->naming && slot_again(e)) {
		e->naming = true;
		slot_name(e, e->cfg.node, e->inc);
	}
	if (e->naming)
		return;
	if (rebuild_keeps(e) || leave_held(e))
		return;
	/* A leader has more under way than its consumers' requests; it begins nothing new now. */
	e->leaving = true;
	if (!e->drained_us)
		e->drained_us = e->now;
	if (e->page[0].want.owner_inc) {
		/* What is under way was sent under its name (R4). */
		if (others_first(e) || !leave_sealed(e) || e->ld.sb_writing)
			return;
		slot_name(e, 0, 0);
		return;
	}
	if (!dlog_settled(e) || e->left_sent)
		return;
	if (under_way(e) || !use_given_back(e))
		return;
	left_send(e);
}

/* ADMIN_STOP of a node that serves: what keeps it here, NULL: nothing but its own next step. */
const char *leave_waits(const struct engine *e)
{
	if (!e->stopping || e->state != ENGINE_ACTIVE || !e->page)
		return NULL;
	if (!list_empty(&e->fios))
		return "what its users have sent to be done";
	if (!list_empty(&e->regions))
		return "what it has written to be flushed, and cleared from its dirty log";
	if (e->phase != PH_READY)
		return NULL; /* the round has its own reason */
	if (e->naming)
		return "its slot of the dirty log to name this node again, which leads by now";
	if (rebuild_keeps(e))
		return "the map to say how far the rebuild has come";
	if (leave_held(e))
		return zombies(e) ? "writes to end that were under way when a connection broke: "
				    "zombie_timeout"
		       : flush_error_untold(e)
			   ? "the map to say that a flush of a member has failed"
			   : "an epoch of the map that its slot stands in";
	if (!e->page[0].want.owner_inc)
		return "its slot of the dirty log to be given back";
	return others_first(e) ? "the nodes that are to stop, and were told so before it"
			       : "the members to be told that this run ends";
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

static bool written_any(const struct engine *e, const struct region *r)
{
	for (uint32_t i = 0; i < e->geo.region_stripes / 8 + 1; i++)
		if (r->written[i])
			return true;
	return false;
}

static bool idle(const struct engine *e, const struct region *r)
{
	uint64_t delay = e->stopping ? 0 : e->cfg.tun.release_delay_ms * 1000ull;

	return r->want_mark && !r->users && list_empty(&r->queue) && list_empty(&r->jobs) &&
	       e->now - r->last_us >= delay && dlog_marked(e, r->idx);
}

/* May it be flushed and cleared? If not, does what is needed to get there. */
static bool clearable(struct engine *e, struct region *r)
{
	if (r->resync_all || r->shared) {
		if (!r->check)
			check_start(e, r);
		return false;
	}
	if (!written_any(e, r) || alone(e) || r->ex_tested)
		return true;
	region_test_ex(e, r);
	return r->ex_tested;
}

static void flushed(struct engine *e, struct batch *b)
{
	bool good = !(write_musts(e) & ~b->ok) && e->flush.map_num == e->map.epoch.num;

	e->flush.busy = false;
	if (e->state == ENGINE_REMOVED)
		return;
	list_for_each(it, tmp, &e->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		if (!r->flushing)
			continue;
		r->flushing = false;
		/* R13: only what nobody wrote since the FLUSH was issued (admission takes the flag
		 * away), and only if every member that its writes went to has flushed. */
		if (good && idle(e, r) && !r->shared) {
			dlog_clear(e, r);
			region_kick(e, r);
		}
	}
}

static void release_advance(struct engine *e)
{
	uint64_t every = e->cfg.tun.release_delay_ms * 250ull;
	bool any = false;

	/* What was written to one that has entered may have gone elsewhere (member_entered). */
	if (e->flush.busy || !members_ready(e, write_musts(e) | write_targets(e)) ||
	    devs_entering(e) || e->phase != PH_READY || !gate_open(e) ||
	    (e->now < e->scan_us && !e->stopping))
		return;
	e->scan_us = e->now + (every > 1000 ? every : 1000);
	list_for_each(it, tmp, &e->regions)
	{
		struct region *r = list_entry(it, struct region, all);

		r->flushing = idle(e, r) && clearable(e, r);
		any |= r->flushing;
	}
	if (!any)
		return;
	e->flush.busy = true;
	e->flush.map_num = e->map.epoch.num;
	batch_init(&e->flush.batch, flushed);
	batch_open(&e->flush.batch);
	flush_members(e, &e->flush.batch, write_targets(e));
	batch_close(e, &e->flush.batch);
}

/* ---- the missed set ------------------------------------------------------------------------- */

/* Every member is in sync: nothing is missed any more. */
void dlog_release_missed(struct engine *e)
{
	for (uint32_t i = 0; e->slot_owned && e->own_missed && i < e->geo.log_pages; i++) {
		struct lpage *p = &e->page[i];
		uint32_t n = plane_count(p->want.missed);

		if (!n)
			continue;
		e->own_missed -= n;
		memset(p->want.missed, 0, LOG_PLANE_BYTES);
		page_need(e, p, false);
	}
}

/*
 * R15: a node that has been given a slot and has not read it yet says nothing about it. What stands
 * there may be all that is known of what a member missed; an answer of zeros would lose it for
 * ever. The leader waits for the answer (gathered), or for the round that begins when this node is
 * gone.
 */
static bool slot_unread(const struct engine *e)
{
	const struct peer *me = peer_find((struct engine *)e, e->cfg.node);

	if (e->slot == NO_SLOT)
		return me && me->member && me->slot != NO_SLOT;
	return e->slot_wanted;
}

/* For a partial rebuild: what the member may lack because of us. */
static void missed_send(struct engine *e)
{
	uint8_t plane[LOG_PLANE_BYTES];
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
	NODEMSG(m, b, MISSED, Missed, missed);

	ep.num = e->map.epoch.num;
	ep.inc = e->map.epoch.inc;
	b.epoch = &ep;
	b.plane.data = plane;
	b.plane.len = LOG_PLANE_BYTES;
	for (uint32_t i = 0; e->slot != NO_SLOT && e->page && i < e->geo.log_pages; i++) {
		const struct lpage *p = &e->page[i];

		for (uint32_t j = 0; j < LOG_PLANE_BYTES; j++)
			plane[j] = p->want.dirty[j] | p->want.missed[j] | p->durable[j] |
				   (p->writing ? p->inflight[j] : 0);
		b.page = i;
		msg_send(e, &m);
	}
	b.plane.len = 0;
	b.end = true;
	msg_send(e, &m);
}

/* A commit let a member in that is to be rebuilt from what all slots have missed. */
void dlog_tell_missed(struct engine *e)
{
	e->missed_due = true;
}

static void missed_advance(struct engine *e)
{
	if (!e->missed_due || e->phase < PH_STATE || slot_unread(e))
		return;
	e->missed_due = false;
	missed_send(e);
}

uint64_t dlog_count(const struct engine *e, bool missed)
{
	if (!e->slot_owned)
		return 0;
	return missed ? e->own_missed : e->own_dirty;
}

void dlog_advance(struct engine *e)
{
	struct peer *me = peer_find(e, e->cfg.node);

	if (e->state == ENGINE_JOINING && e->stopping)
		leave_unserved(e);
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || !e->have_map)
		return;
	if (e->page && e->slot == NO_SLOT && e->phase == PH_READY && me && me->member &&
	    !e->left_sent && me->slot < e->geo.p.slots)
		dlog_acquire(e, me->slot);
	if (e->page && e->slot != NO_SLOT)
		slot_advance(e);
	missed_advance(e);
	if (!e->page || e->slot == NO_SLOT)
		return;
	if (e->slot_wanted)
		return;
	pages_advance(e);
	if (e->slot_owned)
		release_advance(e);
	if (e->slot_owned && e->stopping)
		leave_advance(e);
}
