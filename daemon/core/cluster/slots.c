/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Orphan slots: those of dead nodes, free ones, and the array's own (the last; at create all of
 * its regions are dirty, so the initial sync is a recovery like any other). The leader reads them
 * once their owners are fenced, and tells all what is dirty in them (R18). Then resync.c has that
 * resynced.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

int slots_alloc(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	uint32_t n = e->geo.p.slots + 1u, pages = e->geo.log_pages;
	uint64_t regions = e->geo.regions;

	ld->slot = calloc(n, sizeof(*ld->slot));
	e->c->orphans.dirty = calloc(n, sizeof(*e->c->orphans.dirty));
	if (!ld->slot || !e->c->orphans.dirty || rset_init(&e->c->resync.done, regions, pages) ||
	    rset_init(&e->c->resync.clearing, regions, pages) ||
	    rset_init(&e->c->rebuild.set, regions, pages))
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct slotinfo *s = &ld->slot[i];

		s->page = calloc(pages, sizeof(*s->page));
		if (!s->page || rset_init(&s->dirty, regions, pages) ||
		    rset_init(&s->missed, regions, pages) ||
		    rset_init(&e->c->orphans.dirty[i], regions, pages))
			return -ENOMEM;
	}
	return 0;
}

void slots_free(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	slots_told_reset(e);
	for (uint32_t i = 0; i < e->geo.p.slots + 1u; i++) {
		if (ld->slot) {
			free(ld->slot[i].page);
			rset_free(&ld->slot[i].dirty);
			rset_free(&ld->slot[i].missed);
		}
		if (e->c->orphans.dirty)
			rset_free(&e->c->orphans.dirty[i]);
	}
	free(ld->slot);
	free(e->c->orphans.dirty);
	rset_free(&e->c->resync.done);
	rset_free(&e->c->resync.clearing);
	rset_free(&e->c->rebuild.set);
	pass_free(&e->c->resync.pass);
	pass_free(&e->c->rebuild.pass);
	ld->slot = NULL;
	e->c->orphans.dirty = NULL;
}

bool slot_is_owned(const struct engine *e, uint32_t slot)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && e->c->round.peer[i].slot == slot)
			return true;
	return false;
}

bool slot_clean(const struct engine *e, uint32_t slot)
{
	const struct slotinfo *s = &e->c->lead.slot[slot];

	/* A page of it under way would land on the new owner's. */
	return s->known && !s->owner_inc && !s->hear_inc && !s->dirty.count && !s->stale &&
	       !(e->c->resync.writing && e->c->resync.slot == slot);
}

bool slots_dirty(const struct engine *e)
{
	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		if (!slot_is_owned(e, i) && e->c->lead.slot[i].dirty.count)
			return true;
	return false;
}

/* One that is only kept, on the word of a few members (name_vote), has nothing to recover. */
static bool slot_kept(const struct slotinfo *s)
{
	return s->known && s->hear_inc && !s->dirty.count;
}

uint32_t slots_unrecovered(const struct engine *e)
{
	uint32_t n = 0;

	if (!e->view.have_geo || !e->c->lead.slot)
		return 0;
	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		n += !slot_is_owned(e, i) &&
		     (leading(e) ? !slot_clean(e, i) && !slot_kept(&e->c->lead.slot[i])
				 : e->c->orphans.dirty[i].count > 0);
	return n;
}

/* ---- reading -------------------------------------------------------------------------------- */

#define SEQ_UNREAD (1ull << 20) /* more than one writer's images that are not on all members */
#define SEQ_LOST (1ull << (LOG_SEQ_EPOCH_SHIFT - 1)) /* of an epoch's: above all that were seen */

/* What the members say of one page of a slot. */
struct votes {
	uint32_t valid;                /* mask: members with an intact image of it */
	uint32_t top;                  /* of those whose images count: see page_vote */
	uint8_t copy[DDR_MAX_MEMBERS]; /* the newer one of each */
	uint64_t seq[DDR_MAX_MEMBERS];
	uint64_t other[DDR_MAX_MEMBERS]; /* the older one's number; 0 = it is not intact */
	uint64_t newest, least;          /* of the numbers of these */
	uint64_t before;                 /* the newest of the other copies; 0 = none is intact */
	bool unlike;                     /* they differ */
};

/* No page has a number beyond the newest epoch's that this node can know of, and the next one's
 * (SEQ_UNREAD may have used up the first's). One that has was written by nobody. */
static bool seq_possible(const struct engine *e, uint64_t seq)
{
	uint64_t num = e->map.epoch.num;

	if (e->view.proposing && e->view.prop.epoch.num > num)
		num = e->view.prop.epoch.num;
	if (e->c->lead.max_num > num)
		num = e->c->lead.max_num;
	if (e->c->records.want.acked.num > num)
		num = e->c->records.want.acked.num;
	return seq >> LOG_SEQ_EPOCH_SHIFT <= num + 1;
}

/* Where a copy of a page of the run is read to: each member's run is there as it is on the member.
 */
static uint8_t *image_at(const struct engine *e, uint8_t member, uint32_t page, uint32_t copy)
{
	return e->c->lead.rd_buf[2 * (member * RD_PAGES + page - e->c->lead.rd_page) + copy];
}

static bool image_of(const struct engine *e, uint8_t i, uint32_t c, uint32_t slot, uint32_t page,
		     struct logpage *lp)
{
	return !logpage_decode(lp, image_at(e, i, page, c)) && lp->slot == slot &&
	       lp->page == page && !memcmp(lp->array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES) &&
	       !lp->owner_node == !lp->owner_inc && seq_possible(e, lp->seq);
}

/*
 * Which images count. A member's exporter may return anything; no more than m do, else the data is
 * lost as well. So one image alone never decides, if there are m + 1 that do not agree with it:
 *
 * 1. What was durable is on every member in sync (R11). So each honest one has that image, or one
 *    that was written after it and is not durable: that has no mark on which a write relies, and
 *    lacks only bits whose regions are in order. Either will do.
 * 2. Of the m + 1 members with the highest numbers one is honest. Its number is not below the
 *    (m + 1)th highest. So the bits that are set in any image with such a number or a higher one
 *    are all that must count. What a liar adds costs a resync; it can take nothing away.
 * 3. A node is named on all members before it serves, until the leader has recovered its slot. So
 *    it must be named by all honest ones, all but m of those that were read: see name_vote.
 *
 * With no more than m members to read, since the others have bad spots there, what they say counts.
 */
static void page_vote(struct engine *e, uint32_t slot, uint32_t page, uint32_t rows,
		      struct votes *v)
{
	struct logpage lp;

	memset(v, 0, sizeof(*v));
	for (uint8_t i = 0; i < e->map.n; i++) {
		for (uint8_t c = 0; c < 2 && rows >> i & 1; c++) {
			if (!image_of(e, i, c, slot, page, &lp))
				continue;
			if (v->valid >> i & 1 && lp.seq <= v->seq[i]) {
				v->other[i] = lp.seq;
				continue;
			}
			v->other[i] = v->seq[i];
			v->valid |= 1u << i;
			v->copy[i] = c;
			v->seq[i] = lp.seq;
		}
	}
	v->least = UINT64_MAX;
	for (uint8_t i = 0; i < e->map.n; i++) {
		uint32_t higher = 0;

		if (!(v->valid >> i & 1))
			continue;
		for (uint8_t j = 0; j < e->map.n; j++)
			higher += v->valid >> j & 1 && v->seq[j] > v->seq[i];
		if (v->seq[i] > v->newest)
			v->newest = v->seq[i];
		if (higher > e->geo.p.m)
			continue;
		v->top |= 1u << i;
		if (v->seq[i] < v->least)
			v->least = v->seq[i];
		if (v->other[i] > v->before)
			v->before = v->other[i];
	}
}

/* Of a page's images those count that were written in the newest epoch that was committed, or
 * later. A page has an epoch's numbers only once that is committed; this node may not know that
 * yet. */
static uint64_t written_since(const struct engine *e, const struct votes *v)
{
	uint64_t since = e->c->epochs.committed.num < e->map.epoch.num ? e->c->epochs.committed.num
								       : e->map.epoch.num;

	for (uint8_t i = 0; i < e->map.n; i++) {
		uint64_t epoch = v->valid >> i & 1 ? v->seq[i] >> LOG_SEQ_EPOCH_SHIFT : 0;
		uint32_t same = 0;

		for (uint8_t j = 0; j < e->map.n; j++)
			same += v->valid >> j & 1 && v->seq[j] >> LOG_SEQ_EPOCH_SHIFT >= epoch;
		if (same > e->geo.p.m && epoch > since && epoch <= e->map.epoch.num)
			since = epoch;
	}
	return since;
}

/*
 * R15: members that carry an older copy of themselves, from the same epoch, when all nodes have
 * died that could tell (back.c). Before an image of a page is written, all members of the map have
 * acknowledged the one before. So a member in sync is one image behind the others at most, of
 * those that were written since it entered. If both copies of all others are newer, and these are
 * more than may lie, it lacks what it was sent. Two who wrote the page, and died between the
 * members, did so in different epochs, and say nothing.
 */
static uint32_t votes_lacking(const struct engine *e, const struct votes *v, uint32_t rows)
{
	uint32_t all = map_insync_mask(&e->map) & rows, lacking = 0;
	uint64_t since = written_since(e, v);

	for (uint8_t i = 0; i < e->map.n; i++) {
		uint64_t has = v->valid >> i & 1 ? v->seq[i] : 0;
		uint32_t newer = 0;

		for (uint8_t j = 0; j < e->map.n && all >> i & 1; j++)
			newer += j != i && all >> j & 1 && v->other[j] > has &&
				 v->other[j] >> LOG_SEQ_EPOCH_SHIFT >= since;
		if (newer > e->geo.p.m && newer + 1 == (uint32_t)__builtin_popcount(all))
			lacking |= 1u << i;
	}
	return lacking;
}

/* The data can do without it. A member that was only lost for a moment can be taken back (R17), and
 * has more than an older copy. */
bool slots_lacking_may_leave(const struct engine *e, uint8_t lacking)
{
	uint32_t there = 0, mask = map_insync_mask(&e->map) & map_insync_mask(map_next(e));

	for (uint8_t i = 0; i < e->map.n; i++)
		there += i != lacking && mask >> i & 1 && e->view.dev_of[i] != NO_DEV &&
			 e->c->devs.dev[e->view.dev_of[i]].up &&
			 e->c->members.bad[i] != MEMBER_FAULTY && !(e->c->back.older >> i & 1);
	return there >= e->geo.k && !member_indispensable(e, lacking);
}

/* Nothing of it counts. At a start the slots are read before the map of the round is proposed
 * (leader_recover), and nobody is served before that is committed: so it leaves before any data are
 * taken from it, as faulty (leaves_with). If the data needs it, that waits for the right one, or
 * for a member that is away: neither leaves the map before one of them is there (request_apply). Or
 * an operator goes on with what is there. */
static void lacking_lose(struct engine *e, uint32_t lacking)
{
	struct lead *ld = &e->c->lead;
	const struct member_cause older = {.why = WHY_OLDER, .node = e->cfg.node};

	for (; lacking; lacking &= lacking - 1) {
		uint8_t i = (uint8_t)__builtin_ctz(lacking);

		if (e->view.dev_of[i] == NO_DEV || (e->cfg.force && !slots_lacking_may_leave(e, i)))
			continue;
		ld->lacks |= 1u << i;
		ld->lacked |= 1u << i;
		ld->lacks_dev[i] = e->view.dev_of[i];
		ld->lacks_ups[i] = e->c->devs.dev[e->view.dev_of[i]].ups;
		back_lacks(e, i);
		member_bad(e, i, MEMBER_SUSPECT);
		epoch_want_out(e, i, MEMBER_SUSPECT, false, false,
			       &older); /* by the next proposal */
	}
}

/*
 * Members that were found to lack something, and have no later image of the page that told it than
 * they had then: so it is the same copy, and fewer others are enough to say so than to find it.
 */
static uint32_t lacking_still(const struct engine *e, const struct votes *v, uint32_t rows,
			      uint32_t slot, uint32_t page)
{
	const struct lead *ld = &e->c->lead;
	uint32_t still = 0;

	for (uint8_t i = 0; i < e->map.n; i++)
		if (ld->lacked & rows & 1u << i && ld->lacks_by[i].slot == slot &&
		    ld->lacks_by[i].page == page &&
		    (v->valid >> i & 1 ? v->seq[i] : 0) < ld->lacks_by[i].seq)
			still |= 1u << i;
	return still;
}

static void lacking_look(struct engine *e, const struct votes *v, uint32_t rows, uint32_t slot,
			 uint32_t page)
{
	struct lead *ld = &e->c->lead;
	uint32_t still = lacking_still(e, v, rows, slot, page);
	uint32_t found = votes_lacking(e, v, rows) & ~still;
	uint32_t all = map_insync_mask(&e->map) & rows;

	for (uint8_t i = 0; i < e->map.n; i++) {
		uint64_t least = UINT64_MAX;

		if (!(found & ~ld->lacked & 1u << i))
			continue;
		for (uint8_t j = 0; j < e->map.n; j++)
			if (j != i && all >> j & 1 && v->other[j] < least)
				least = v->other[j];
		ld->lacks_by[i].slot = slot;
		ld->lacks_by[i].page = page;
		ld->lacks_by[i].seq = least;
	}
	lacking_lose(e, found | still);
}

/* It is to leave by the next proposal, if nothing else comes in its place. */
bool slots_lacking_leaves(const struct engine *e, uint8_t lacking)
{
	return e->c->lead.lacks >> lacking & 1 && slots_lacking_may_leave(e, lacking);
}

/* One that the data needs may be the right one by now. */
void slots_lacking(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	ld->lacked &= map_insync_mask(&e->map);
	ld->lacks &= ld->lacked;
	for (uint8_t i = 0; i < e->map.n; i++) {
		if (!(ld->lacks >> i & 1) || e->view.dev_of[i] == NO_DEV)
			continue;
		if (e->view.dev_of[i] != ld->lacks_dev[i] ||
		    e->c->devs.dev[e->view.dev_of[i]].ups != ld->lacks_ups[i]) {
			ld->lacks = 0;
			slots_unknow(e);
		}
	}
}

/* Ors their planes; the images are looked at once more, being large. */
static void votes_merge(struct engine *e, struct slotinfo *s, uint32_t slot, uint32_t page,
			struct votes *v)
{
	uint8_t dirty[LOG_PLANE_BYTES] = {0}, missed[LOG_PLANE_BYTES] = {0};
	const uint8_t *first = NULL;
	struct logpage lp;

	for (uint8_t i = 0; i < e->map.n; i++) {
		const uint8_t *image = image_at(e, i, page, v->copy[i]);

		if (!(v->top >> i & 1) || !image_of(e, i, v->copy[i], slot, page, &lp))
			continue;
		if (!first)
			first = image;
		v->unlike |= memcmp(first, image, DDR_BLOCK_BYTES) != 0;
		for (uint32_t k = 0; k < LOG_PLANE_BYTES; k++) {
			dirty[k] |= lp.dirty[k];
			missed[k] |= lp.missed[k];
		}
	}
	rset_plane_put(&s->dirty, page, dirty);
	rset_plane_put(&s->missed, page, missed);
}

/*
 * Whom the slot belongs to. R4: whoever is named by as many as must name an owner is the owner, and
 * is fenced before anything else. A name that fewer tell is hearsay: of a node that was joining and
 * had not served when it was lost, or of nobody. On that word nobody is fenced. But pages of a
 * joining node may still land, over those of whoever has the slot by then. So it is not given away:
 * see hearsay_over.
 */
static void name_vote(struct engine *e, struct slotinfo *s, uint32_t slot, const struct votes *v)
{
	uint32_t most = 0, read = (uint32_t)__builtin_popcount(v->valid);
	struct logpage lp, other;

	s->owner_node = s->hear_node = 0;
	s->owner_inc = s->hear_inc = 0;
	for (uint8_t i = 0; i < e->map.n; i++) {
		uint32_t same = 0;

		if (!(v->top >> i & 1) || !image_of(e, i, v->copy[i], slot, 0, &lp) ||
		    !lp.owner_inc)
			continue;
		for (uint8_t j = 0; j < e->map.n; j++)
			same += v->valid >> j & 1 && image_of(e, j, v->copy[j], slot, 0, &other) &&
				other.owner_node == lp.owner_node &&
				other.owner_inc == lp.owner_inc;
		if (same <= most)
			continue;
		most = same;
		s->hear_node = lp.owner_node;
		s->hear_inc = lp.owner_inc;
	}
	if (!most || most + e->geo.p.m < read)
		return;
	s->owner_node = s->hear_node;
	s->owner_inc = s->hear_inc;
	s->hear_node = 0;
	s->hear_inc = 0;
}

/*
 * R22: which of the slot's journal entries are dead. There is no journal yet, so this is 0. Where a
 * build with a journal has left another number, it is kept by all who write the page: were it lost,
 * dead entries would be redone over what was written since.
 *
 * What a holder relies on is durable on all members in sync, so each honest one has that number or
 * a later one, which is as good. Of the m + 1 highest numbers one is an honest member's, so the
 * lowest of these kills no entry that lives. And it brings none back, since no more than m members
 * lie and 2m + 1 are read; while members are out, those that are left are trusted, as their data
 * are.
 */
static uint64_t dead_vote(struct engine *e, uint32_t slot, const struct votes *v)
{
	uint64_t number[DDR_MAX_MEMBERS];
	uint32_t count = 0;
	struct logpage lp;

	for (uint8_t i = 0; i < e->map.n; i++) {
		uint32_t at = count;

		if (!(v->valid >> i & 1) || !image_of(e, i, v->copy[i], slot, 0, &lp))
			continue;
		for (; at && number[at - 1] < lp.dead_below; at--)
			number[at] = number[at - 1];
		number[at] = lp.dead_below;
		count++;
	}
	if (!count)
		return 0;
	return number[count > e->geo.p.m ? e->geo.p.m : count - 1];
}

/* It is to be written. */
void page_stale(struct slotinfo *s, uint32_t page)
{
	struct pageinfo *p = &s->page[page];

	s->stale += !p->stale;
	p->stale = p->changed = p->untold = true;
}

/* If none could be read as a whole, the newest page may be one that can't be read: all its regions
 * are dirty (R11), and what the others say is looked at for the owner. */
static void page_take(struct engine *e, struct slotinfo *s, uint32_t slot, uint32_t page,
		      const struct batch *b)
{
	uint32_t rows = b->ok ? b->ok : b->unreadable, newest = 0;
	uint64_t gap = write_musts(e) & ~b->ok ? SEQ_UNREAD : 0;
	bool lost = !b->ok;
	struct pageinfo *p = &s->page[page];
	struct votes v;

	e->c->lead.rd_rows &= rows;
	page_vote(e, slot, page, rows, &v);
	if (leading(e) && !(e->view.slot_wanted && e->view.slot == slot))
		lacking_look(e, &v, b->ok, slot, page);
	for (uint8_t i = 0; i < e->map.n; i++)
		if (v.valid >> i & 1 && v.seq[i] == v.newest)
			newest |= 1u << i;
	if (v.valid && !lost) {
		bool liar = v.newest - v.least >= 2 * SEQ_UNREAD;

		votes_merge(e, s, slot, page, &v);
		/* A liar's number is not gone on from: see logpage_seq_next for the others'. */
		p->seq = (liar ? v.least : v.newest) + gap;
		/* What only some have was not durable. The next image goes where that is, not where
		 * the others have the newest one of theirs: if power fails, it may be torn. */
		p->seq += !liar && (v.newest - v.least) & 1;
	} else {
		/* R11: a page readable nowhere means that all its regions are dirty. */
		rset_plane_fill(&s->dirty, page);
		rset_plane_fill(&s->missed, page);
		p->seq = lost ? (e->map.epoch.num << LOG_SEQ_EPOCH_SHIFT) + SEQ_LOST : gap;
	}
	p->told = v.valid && !lost ? v.least : 0;
	p->before = v.before && v.before < p->told ? v.before : p->told;
	/* A leader died between its members: who takes the slot may read another of them (R16), or
	 * one that can't be read now. So it is written to all, in a Ready round: whoever had it is
	 * fenced by then, and if this leader dies first, the older page marks more, and is resynced
	 * once more. A member that is being rebuilt gets all pages at the end of that (R11). */
	if ((rows | map_insync_mask(&e->map)) & ~newest || v.unlike)
		page_stale(s, page);
	s->unlike = v.unlike || (page && s->unlike);
	s->lost = lost || (page && s->lost);
	if (page == 0) {
		name_vote(e, s, slot, &v);
		s->dead_below = dead_vote(e, slot, &v);
	}
}

/*
 * Members whose log is read. At a start that includes those whose connection to this node has
 * broken since it began. Such a member may have lost its cache (R17), but no page of the log: those
 * are written with FUA. The more members are read, the surer an older copy is found. But one that
 * breaks off, or hangs, again and again while it is read is left out: else each page would wait for
 * it.
 */
#define RD_FAILS 3u
static uint32_t log_rows(const struct engine *e)
{
	uint32_t mask = map_insync_mask(&e->map) & map_insync_mask(map_next(e));
	uint32_t rows = read_mask(e);

	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1 && member_log_readable(e, i) && e->c->lead.rd_fails[i] < RD_FAILS)
			rows |= 1u << i;
	return rows;
}

/* No more than m members may be all that is heard of a page, for as long as it takes others to
 * connect anew. */
static bool enough_read(const struct engine *e, uint32_t members)
{
	return (uint32_t)__builtin_popcount(members) >= e->geo.k;
}

static void pages_read_start(struct engine *e);

static void pages_read(struct engine *e, struct batch *b)
{
	struct lead *ld = &e->c->lead;
	uint32_t failed = b->failed & ~b->unreadable;
	struct slotinfo *s;

	for (; failed; failed &= failed - 1) {
		uint8_t *fails = &ld->rd_fails[__builtin_ctz(failed)];

		if (*fails < RD_FAILS)
			++*fails;
	}
	ld->reading = false;
	if (e->state == ENGINE_REMOVED || !enough_read(e, b->ok | b->unreadable) || ld->rd_stale)
		return; /* begun again by whoever wants it */
	if (b->unreadable && ld->rd_singly <= ld->rd_page) {
		ld->rd_singly = ld->rd_page + ld->rd_count;
		pages_read_start(e); /* which of them is it? */
		return;
	}
	s = &ld->slot[ld->rd_slot];
	for (uint32_t i = 0; i < ld->rd_count; i++)
		page_take(e, s, ld->rd_slot, ld->rd_page + i, b);
	ld->rd_page += ld->rd_count;
	if (ld->rd_page < e->geo.log_pages) {
		pages_read_start(e);
		return;
	}
	s->known = true;
	slot_untold(e, s);
	recovery_read(e, ld->rd_slot);
}

static void pages_read_start(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	uint32_t page = ld->rd_page, left = e->geo.log_pages - page;
	bool singly = page < ld->rd_singly;
	uint32_t pieces = singly ? 2 : 1;
	uint32_t bytes;

	ld->rd_count = singly ? 1 : left < RD_PAGES ? left : RD_PAGES;
	bytes = 2 * ld->rd_count * DDR_BLOCK_BYTES / pieces;
	ld->reading = true;
	batch_init(&ld->rd_batch, pages_read);
	batch_open(&ld->rd_batch);
	for (uint8_t i = 0; i < e->map.n; i++) {
		memset(image_at(e, i, page, 0), 0, (size_t)bytes * pieces); /* what fails is none */
		for (uint32_t c = 0; c < pieces && log_rows(e) >> i & 1; c++) {
			ld->rd_iov[2 * i + c] = (struct iovec){image_at(e, i, page, c), bytes};
			log_read(e, &ld->rd_batch, i, ld->rd_slot, page, c, &ld->rd_iov[2 * i + c]);
		}
	}
	batch_close(e, &ld->rd_batch);
}

/* One slot at a time; known is set at its end. */
void slot_read(struct engine *e, uint32_t slot)
{
	struct lead *ld = &e->c->lead;

	if (ld->reading || !enough_read(e, log_rows(e)))
		return;
	ld->rd_slot = slot;
	ld->rd_page = ld->rd_singly = 0;
	ld->rd_stale = false;
	pages_read_start(e);
}

/*
 * An incarnation that takes part knows itself which slot it has, and none of its node's is younger:
 * whatever else a member says of it is not so. But who is alone has its node id for itself only: in
 * the cluster whose array it may have taken over that is another machine's.
 */
static bool name_false(const struct engine *e, uint32_t node, uint64_t inc)
{
	const struct peer *p = peer_find((struct engine *)e, node);

	if (!e->cfg.cluster[0] && node == e->cfg.node && inc != e->inc)
		return false;
	return p && p->in_round && p->hello && inc >= p->inc;
}

/* Nothing of whom only few members name lands in this slot any more. */
static bool hearsay_over(struct engine *e, const struct slotinfo *s)
{
	const struct departed *d = departed_find(e, s->hear_node, s->hear_inc);

	return name_false(e, s->hear_node, s->hear_inc) || (d && d->fenced) ||
	       fence_stands(e, s->hear_node, s->hear_inc) ||
	       fenced_by_itself(e, s->hear_node, s->hear_inc);
}

/*
 * Slots that may be given away again. If somebody waits for a slot, and nothing but hearsay keeps
 * all those that nobody has, then it is a lie: with as many slots as nodes there is one for each
 * that is here, beside one for each that was joining when it was lost.
 */
void hearsay_advance(struct engine *e, bool wanted)
{
	struct lead *ld = &e->c->lead;
	bool all = wanted;

	for (uint32_t i = 0; i < e->geo.p.slots; i++) {
		struct slotinfo *s = &ld->slot[i];

		if (slot_is_owned(e, i) || ld->assigned[i])
			continue;
		if (s->hear_inc && hearsay_over(e, s)) {
			s->hear_inc = 0;
			page_stale(s, 0);
		}
		all &= s->hear_inc != 0;
	}
	for (uint32_t i = 0; i < e->geo.p.slots && all; i++) {
		struct slotinfo *s = &ld->slot[i];

		if (!s->hear_inc || slot_is_owned(e, i) || ld->assigned[i])
			continue;
		s->hear_inc = 0;
		page_stale(s, 0);
	}
}

bool slots_read(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	bool all = true, unknown = false;

	for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
		struct slotinfo *s = &ld->slot[i];

		if (slot_is_owned(e, i))
			s->known = false;
		else if (!s->known) {
			slot_read(e, i);
			return false;
		}
	}
	for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
		struct slotinfo *s = &ld->slot[i];
		struct departed *d;

		if (!s->known)
			continue;
		if (s->owner_inc && name_false(e, s->owner_node, s->owner_inc)) {
			s->owner_node = 0;
			s->owner_inc = 0;
			page_stale(s, 0);
		}
		if (!s->owner_inc)
			continue;
		/* Read again after the fence, if the owner was not known to have departed. */
		d = departed_find(e, s->owner_node, s->owner_inc);
		if (!d && (ld->knows || fence_stands(e, s->owner_node, s->owner_inc)))
			continue; /* fenced in an earlier round, which committed since */
		if (!d)
			departed_add(e, s->owner_node, s->owner_inc);
		unknown |= !d;
		if (!d || !d->fenced) {
			s->known = false;
			all = false;
		}
	}
	/* It may have led, and a newer map of its may land until it is fenced. */
	if (unknown && e->state == ENGINE_JOINING) {
		ld->assembled = ld->rereading = ld->gathered = false;
		slots_unknow(e);
	}
	if (all)
		ld->lacked &= ~(ld->rd_rows & log_rows(e)); /* compared, and they lack nothing */
	return all;
}

/* ---- telling -------------------------------------------------------------------------------- */

/* Mostly of few regions: so that those of ten thousand pages are told in a moment. */
void page_announce(struct engine *e, uint32_t slot, uint32_t page)
{
	const struct rset *dirty = &e->c->lead.slot[slot].dirty;
	uint64_t first = (uint64_t)page * LOG_REGIONS_PER_PAGE, r = first;
	uint32_t bit[DIRTY_BITS_MAX];
	NODEMSG(m, b, DIRTY, Dirty, dirty);

	b.slot = slot;
	b.page = page;
	b.bit = bit;
	if (dirty->page[page].count > DIRTY_BITS_MAX) {
		b.plane.data = (uint8_t *)(uintptr_t)rset_plane(dirty, page); /* read */
		b.plane.len = LOG_PLANE_BYTES;
	} else {
		while (b.n_bit < dirty->page[page].count) {
			r = rset_next(dirty, r);
			bit[b.n_bit++] = (uint32_t)(r++ - first);
		}
	}
	msg_send(e, &m);
}

void slots_announce(struct engine *e)
{
	for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
		const struct slotinfo *s = &e->c->lead.slot[i];

		for (uint32_t p = 0; p < e->geo.log_pages && !slot_is_owned(e, i); p++)
			if (s->dirty.page[p].count)
				page_announce(e, i, p);
	}
}

/* Another node led meanwhile: whatever this one has read of the slots is old, or is about to be. */
void slots_unknow(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	ld->rd_stale = true;
	ld->rd_rows = UINT32_MAX;
	for (uint32_t i = 0; ld->slot && i <= e->geo.p.slots; i++) {
		struct slotinfo *s = &ld->slot[i];

		s->known = s->cleared = false;
		for (uint32_t p = 0; p < e->geo.log_pages && s->stale; p++) {
			s->stale -= s->page[p].stale;
			s->page[p].stale = false;
		}
	}
}

void slots_forget(struct engine *e)
{
	for (uint32_t i = 0; e->c->orphans.dirty && i <= e->geo.p.slots; i++)
		rset_clear(&e->c->orphans.dirty[i]);
}
