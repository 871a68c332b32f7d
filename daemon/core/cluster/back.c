/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A member is back: is it what it was (R15, R17)? Its exporter may return an older copy of it, from
 * a snapshot, or a mirror that had stopped. If the map has changed since that was made, its
 * superblock tells. If not, this node's pages of the dirty log do: it knows which image of each the
 * member has acknowledged, by FUA, and no honest exporter forgets one.
 *
 * What this node wrote since the copy was made, and has not cleared, is dirty, and decoded anyway.
 * What it has cleared changed the page that the region is in; if the member had not acknowledged
 * that when it was dropped, the region counts as missed (dlog_dropped). So if the member carries an
 * older image of a page, all regions of that page count as missed; and if it carries none that is
 * older, it lacks nothing of this node's that is not known. That is in this node's slot before the
 * member can enter the map: until it has been read, the member is not back here, nor gets any
 * write.
 *
 *   dev_up -> due -> superblock read -> other way landed -> pages read -> back
 *
 * If this node had another way to the member, and a write was cut off there, that write may land
 * late. Until it can't any more, the member is not back either (R5): nothing is compared with, and
 * nothing is decoded onto, what it may write over.
 *
 * Likewise each time that the superblock of a member is read again which is out of the map.
 *
 * A member that the map still has in it is first lost, like one that stays away. If the data needs
 * it, that waits, until the right one is connected; the others hear by the heartbeat that it is not
 * this node that lacks it (stuck_member).
 *
 * What a node wrote that has left, or died, nobody compares, nor what the leader has resynced: an
 * epoch is committed after each of these, so that a superblock tells it from then on. If that is
 * the one which drops the member, who leads then compares these slots, too (slots_told.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

#define AGAIN_US 500000ull

int back_alloc(struct engine *e)
{
	e->c->back.page = calloc(e->geo.log_pages, sizeof(*e->c->back.page));
	return e->c->back.page ? 0 : -ENOMEM;
}

void back_free(struct engine *e)
{
	free(e->c->back.page);
	e->c->back.page = NULL;
}

void back_forget(struct engine *e, uint32_t page)
{
	memset(&e->c->back.page[page], 0, sizeof(e->c->back.page[page]));
}

/* An image is sent, by the connections that are there now. */
void back_sent(struct engine *e, uint32_t page, uint32_t members)
{
	struct back_page *p = &e->c->back.page[page];

	for (; members; members &= members - 1) {
		uint8_t m = (uint8_t)__builtin_ctz(members);

		p->sent_dev[m] = e->view.dev_of[m];
		p->sent_ups[m] =
		    e->view.dev_of[m] == NO_DEV ? 0 : e->c->devs.dev[e->view.dev_of[m]].ups;
	}
}

/* Every image that a member has acknowledged. Its exporter may be another one since. */
void back_told(struct engine *e, uint32_t page, uint64_t seq, uint32_t members)
{
	struct back_page *p = &e->c->back.page[page];
	const struct map *map = map_next(e);

	for (; members; members &= members - 1) {
		uint8_t m = (uint8_t)__builtin_ctz(members);
		uint32_t dev = p->sent_dev[m];
		bool same = dev != NO_DEV && e->c->devs.dev[dev].ups == p->sent_ups[m];

		if (memcmp(e->c->back.told[m].uuid, map->member[m].uuid, DDR_UUID_BYTES) != 0) {
			for (uint32_t i = 0; i < e->geo.log_pages; i++)
				e->c->back.page[i].told[m] = 0;
			memcpy(e->c->back.told[m].uuid, map->member[m].uuid, DDR_UUID_BYTES);
		}
		p->told[m] = seq;
		e->c->back.told[m].count++;
		e->c->back.told[m].instance = same ? e->c->devs.dev[dev].instance : 0;
	}
}

static bool was_told(const struct engine *e, uint8_t m)
{
	return e->view.slot_owned &&
	       !memcmp(e->c->back.told[m].uuid, map_next(e)->member[m].uuid, DDR_UUID_BYTES);
}

static void older_forget(struct engine *e, uint8_t m)
{
	for (uint32_t i = 0;
	     (e->c->back.older | e->c->back.unread) >> m & 1 && i < e->geo.log_pages; i++) {
		e->c->back.page[i].older &= ~(1u << m);
		e->c->back.page[i].unread &= ~(1u << m);
	}
	e->c->back.older &= ~(1u << m);
	e->c->back.unread &= ~(1u << m);
}

/* All that this node has written there since the copy was made may be gone. */
static void page_missed(struct engine *e, uint32_t page)
{
	uint64_t first = (uint64_t)page * LOG_REGIONS_PER_PAGE;

	for (uint64_t r = first; r < e->geo.regions && r - first < LOG_REGIONS_PER_PAGE; r++)
		dlog_miss(e, r);
}

/* The member is out of the map: what it lacks is looked up when it enters again. */
static void older_missed(struct engine *e, uint8_t m)
{
	for (uint32_t i = 0;
	     (e->c->back.older | e->c->back.unread) >> m & 1 && i < e->geo.log_pages; i++)
		if ((e->c->back.page[i].older | e->c->back.page[i].unread) >> m & 1)
			page_missed(e, i);
	older_forget(e, m);
}

void back_dropped(struct engine *e, uint8_t m)
{
	uint32_t dev = e->view.dev_of[m];

	if (!((e->c->back.older | e->c->back.unread) >> m & 1))
		return;
	older_missed(e, m);
	/* If it is still being read, the end of that settles it. */
	if (dev != NO_DEV && !e->c->devs.dev[dev].back.due)
		e->c->devs.dev[dev].back.due = e->c->devs.dev[dev].back.settles = true;
}

static bool image_fits(const struct engine *e, const struct dev *d, uint8_t m, uint32_t image)
{
	const struct back_page *p = &e->c->back.page[image / 2];
	struct logpage lp;

	return !logpage_decode(&lp, d->back.buf + (image - d->back.at) * DDR_BLOCK_BYTES) &&
	       lp.slot == e->view.slot && lp.page == image / 2 && lp.seq >= p->told[m] &&
	       !memcmp(lp.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);
}

/* Of an image that can't be read nobody knows whether it is older. That is no reason to have the
 * member leave; but once it is out of the map, it counts as one. */
static void images_judge(struct engine *e, struct dev *d, uint8_t m, bool read)
{
	for (uint32_t i = d->back.at; i < d->back.at + d->back.count; i++) {
		struct back_page *p = &e->c->back.page[i / 2];

		d->back.fits =
		    (i & 1 && d->back.fits) || !p->told[m] || (read && image_fits(e, d, m, i));
		d->back.unread = (i & 1 && d->back.unread) || !read;
		if (!(i & 1) || d->back.fits)
			continue;
		if (d->back.unread) {
			p->unread |= 1u << m;
			e->c->back.unread |= 1u << m;
			continue;
		}
		p->older |= 1u << m;
		e->c->back.older |= 1u << m;
		d->back.found = true;
	}
}

/* All have been read. */
static void judged(struct engine *e, struct dev *d, uint8_t m)
{
	bool in = map_write_mask(&e->map) >> m & 1;

	d->back.older = d->back.found;
	if (in && e->c->back.older >> m & 1)
		member_bad(e, m, MEMBER_SUSPECT);
	if (!in)
		older_missed(e, m);
	d->back.settles = !in;
	d->back.due = d->back.settles;
	if (d->back.older)
		devs_bind(e); /* another way may lead to the member itself */
}

/* The read was answered, and is still wanted; else it is begun anew, if that is to be known. */
static bool read_counts(struct engine *e, struct dev *d, const struct batch *b)
{
	d->back.reading = false;
	if (e->state == ENGINE_REMOVED || !d->up || d->back.ups != d->ups ||
	    d->member != d->back.member)
		return false;
	if (b->failed && (is_connection_error(b->err) || b->err == -ECANCELED)) {
		d->back.again_us = e->now + AGAIN_US;
		return false;
	}
	d->back.heard_us = e->now;
	return true;
}

static void images_read_done(struct engine *e, struct batch *b)
{
	struct dev *d = list_entry(b, struct dev, back.batch);
	uint8_t m = d->back.member;

	if (!read_counts(e, d, b) || !was_told(e, m))
		return;
	if (d->back.told != e->c->back.told[m].count)
		return; /* read again: an image that it has acknowledged since may not be in it */
	if (b->failed && d->back.count > 1) {
		d->back.singly = d->back.at + d->back.count; /* which of them is it? */
		return;
	}
	images_judge(e, d, m, !b->failed);
	d->back.at += d->back.count;
}

static void read_start(struct engine *e, struct dev *d, uint64_t offset,
		       void (*done)(struct engine *e, struct batch *b))
{
	d->back.reading = true;
	d->back.iov = (struct iovec){d->back.buf, (size_t)d->back.count * DDR_BLOCK_BYTES};
	batch_init(&d->back.batch, done);
	batch_open(&d->back.batch);
	member_io_start_raw(e, &d->back.batch, (uint32_t)(d - e->c->devs.dev), DEV_READ, KIND_BACK,
			    offset, &d->back.iov);
	batch_close(e, &d->back.batch);
}

static void images_read(struct engine *e, struct dev *d)
{
	uint32_t left = 2 * e->geo.log_pages - d->back.at;

	d->back.count = d->back.at < d->back.singly ? 1 : left < 2 * RD_PAGES ? left : 2 * RD_PAGES;
	d->back.told = e->c->back.told[d->back.member].count;
	read_start(e, d, geo_log_offset(&e->geo, e->view.slot, d->back.at / 2, d->back.at & 1),
		   images_read_done);
}

/* ---- orphan slots ------------------------------------------------------------------------- */

/* The newer image that it carries of this page; false: none that is intact. */
static bool newer_image(const struct engine *e, const struct dev *d, const struct told_page *t,
			struct logpage *lp)
{
	struct logpage other;
	bool any = false;

	for (uint32_t c = 0; c < 2; c++) {
		if (logpage_decode(&other, d->back.buf + c * DDR_BLOCK_BYTES) ||
		    other.slot != t->slot || other.page != t->page ||
		    memcmp(other.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES) ||
		    (any && other.seq <= lp->seq))
			continue;
		*lp = other;
		any = true;
	}
	return any;
}

/* What was cleared by an image that it may not have heard of is dirty in the one before. */
static void dirty_missed(struct engine *e, const struct logpage *lp)
{
	uint64_t first = (uint64_t)lp->page * LOG_REGIONS_PER_PAGE;

	for (uint64_t r = first; r < e->geo.regions && r - first < LOG_REGIONS_PER_PAGE; r++)
		if (bit_get(lp->dirty, (uint32_t)(r - first)))
			dlog_miss(e, r);
}

static void of_orphans_done(struct engine *e, struct batch *b)
{
	struct dev *d = list_entry(b, struct dev, back.batch);
	const struct slot_told *told = slots_told(e, d->back.member);
	const struct told_page *t;
	struct logpage lp;

	if (!read_counts(e, d, b) || !told || d->back.of_orphans >= told->count ||
	    !e->view.slot_owned)
		return;
	t = &told->page[d->back.of_orphans++];
	if (b->failed) { /* nobody knows */
		page_missed(e, t->page);
		return;
	}
	if (!newer_image(e, d, t, &lp) || lp.seq < t->before) {
		page_missed(e, t->page);
		d->back.found = true;
	} else if (lp.seq < t->told) {
		dirty_missed(e, &lp);
	}
}

/* True: one is being read. Whoever has noted what the member had compares, also if another leads by
 * now: what it had it has, and what it lacks is noted in this node's slot. */
static bool of_orphans_read(struct engine *e, struct dev *d)
{
	const struct slot_told *told = slots_told(e, d->back.member);
	const struct told_page *t;

	if (!told || d->back.of_orphans >= told->count || !e->view.slot_owned)
		return false;
	t = &told->page[d->back.of_orphans];
	d->back.count = 2;
	read_start(e, d, geo_log_offset(&e->geo, t->slot, t->page, 0), of_orphans_done);
	return true;
}

/* --------------------------------------------------------------------------------------------- */

/* What is connected is known by its superblock, and is member m. */
void back_bound(struct engine *e, struct dev *d, uint8_t m)
{
	if (!d->back.due || d->back.settles)
		return;
	d->back.lands = other_way_lands(e, d, m);
	if (d->back.lands ||
	    ((was_told(e, m) || slots_told(e, m)) &&
	     !(was_told(e, m) && d->instance && d->instance == e->c->back.told[m].instance)))
		return;
	d->back.due = d->back.older = false; /* R17: that exporter never went away */
	older_forget(e, m);
}

static void back_look(struct engine *e, struct dev *d)
{
	uint8_t m = d->member;

	if (!d->back.buf)
		d->back.buf = malloc((size_t)2 * RD_PAGES * DDR_BLOCK_BYTES);
	if (!d->back.buf)
		return; /* tried again at the next step */
	if (d->back.ups != d->ups || d->back.member != m) {
		older_forget(e, m); /* of another connection */
		d->back.member = m;
		d->back.ups = d->ups;
		d->back.at = d->back.singly = d->back.of_orphans = 0;
		d->back.found = false;
		d->back.heard_us = e->now;
	}
	if (slots_told(e, m) && !e->view.slot_owned)
		return; /* nowhere to note yet what it lacks */
	if (was_told(e, m) && d->back.at < 2 * e->geo.log_pages)
		images_read(e, d);
	else if (!of_orphans_read(e, d))
		judged(e, d, m);
}

void back_up(struct dev *d)
{
	d->back.due = true;
	d->back.settles = d->back.lands = false; /* older: until it is known */
	d->back.again_us = 0;
	d->back.ups = 0;
}

void back_lacks(struct engine *e, uint8_t m)
{
	e->c->devs.dev[e->view.dev_of[m]].back.older = true;
	e->c->back.older |= 1u << m;
}

bool engine_dev_older(const struct engine *e, uint32_t dev)
{
	return e->c->devs.dev[dev].up && e->c->devs.dev[dev].back.older;
}

bool engine_dev_lands(const struct engine *e, uint32_t dev)
{
	return e->c->devs.dev[dev].up && e->c->devs.dev[dev].back.lands;
}

/* Members of the map that are, or may be: as long as they answer. */
void back_tell(const struct engine *e, uint32_t *older, uint32_t *looking)
{
	*older = e->c->back.older;
	*looking = 0;
	for (uint8_t m = 0; m < e->map.n; m++) {
		const struct dev *d =
		    e->view.dev_of[m] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[m]];

		if (d && d->up && d->back.due &&
		    (d->back.lands || (d->back.ups == d->ups &&
				       e->now - d->back.heard_us < e->cfg.tun.evict_ms * 1000ull)))
			*looking |= 1u << m;
	}
}

static const struct peer *told_by(const struct engine *e, uint8_t member, bool older, bool looking)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->member && p->up_inc == p->inc &&
		    ((older ? p->older : 0) | (looking ? p->looking : 0)) >> member & 1)
			return p;
	}
	return NULL;
}

const struct peer *member_older_by(const struct engine *e, uint8_t member)
{
	return told_by(e, member, true, false);
}

const struct peer *member_looked_at_by(const struct engine *e, uint8_t member)
{
	return told_by(e, member, false, true);
}

/* Some node knows it for an older copy, or does not know yet. */
bool member_doubted(const struct engine *e, uint8_t member)
{
	return told_by(e, member, true, true);
}

void back_restart(struct dev *d)
{
	/* The next incarnation has told it nothing yet. */
	d->back.due = d->back.older = d->back.settles = d->back.lands = false;
}

/* What may land on it by another way is waited for. If that takes long, it counts as lost, as if
 * its connection had broken, and comes back later. */
static void other_way_advance(struct engine *e, struct dev *d)
{
	uint8_t m = d->member;

	if (!d->back.lands || !d->up || m == NO_MEMBER)
		return;
	back_bound(e, d, m); /* it may have landed by now */
	if (!d->back.lands)
		return;
	if (!d->reading && !d->retry_us && other_way_unanswered(e, d, m))
		dev_reread(e, (uint32_t)(d - e->c->devs.dev)); /* the time counts from its answer */
	if (map_write_mask(&e->map) >> m & 1 && !e->c->members.bad[m] &&
	    e->view.phase == PH_READY && others_suffice(e, m))
		member_bad(e, m, MEMBER_SUSPECT);
}

void back_advance(struct engine *e)
{
	cut_offs_advance(e);
	for (uint32_t i = 0; i < e->c->devs.count && e->state != ENGINE_REMOVED; i++) {
		struct dev *d = &e->c->devs.dev[i];

		other_way_advance(e, d);
		if (!d->back.due || !d->up || d->back.lands)
			continue;
		/* If it has entered the map meanwhile, the pages wait for it, and not it for them.
		 */
		if (d->back.settles)
			d->back.due = d->back.settles =
			    !dlog_missed_settled(e) &&
			    !(d->member != NO_MEMBER && map_write_mask(&e->map) >> d->member & 1);
		else if (d->member != NO_MEMBER && !d->back.reading && !d->reading &&
			 !d->retry_us && e->now >= d->back.again_us)
			back_look(e, d);
	}
}
