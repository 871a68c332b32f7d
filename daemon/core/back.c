/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A member is back: is it what it was (R15, R17)? Its exporter may return an older copy of it, from
 * a snapshot, or a mirror that had stopped. If the map has changed since that was made, its
 * superblock tells. If not, this node's pages of the dirty log do: it knows which image of each the
 * member has acknowledged, by FUA, and no honest exporter forgets one.
 *
 * What this node wrote since the copy was made, and has not cleared, is dirty, and decoded anyway.
 * What it has cleared changed the page that the region is in. So if the member carries an older
 * image of a page, all regions of that page count as missed; and if it carries none that is older,
 * it lacks nothing of this node's that is not known. That is in this node's slot before the member
 * can enter the map: until it has been read, the member is not back here, nor gets any write.
 *
 *   dev_up -> due -> superblock read -> pages read -> back
 *
 * Likewise each time that the superblock of a member is read again which is out of the map.
 *
 * A member that the map still has in it is first lost, like one that stays away. If the data needs
 * it, that waits, until the right one is connected; the others hear by the heartbeat that it is not
 * this node that lacks it (stuck_member).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine_int.h"

#define AGAIN_US 500000ull
#define PAGE_BYTES (2 * DDR_BLOCK_BYTES) /* both images */

/* Every image that a member has acknowledged. */
void back_told(struct engine *e, struct lpage *p, uint32_t members)
{
	const struct map *map = map_next(e);

	for (; members; members &= members - 1) {
		uint8_t m = (uint8_t)__builtin_ctz(members);
		uint32_t dev = e->dev_of[m];

		if (memcmp(e->told[m].uuid, map->member[m].uuid, DDR_UUID_BYTES) != 0) {
			for (uint32_t i = 0; i < e->geo.log_pages; i++)
				e->page[i].told[m] = 0;
			memcpy(e->told[m].uuid, map->member[m].uuid, DDR_UUID_BYTES);
		}
		p->told[m] = p->want.seq;
		e->told[m].instance = dev == NO_DEV ? 0 : e->dev[dev].instance;
	}
}

static bool was_told(const struct engine *e, uint8_t m)
{
	return e->slot_owned &&
	       !memcmp(e->told[m].uuid, map_next(e)->member[m].uuid, DDR_UUID_BYTES);
}

static void older_forget(struct engine *e, uint8_t m)
{
	for (uint32_t i = 0; e->older >> m & 1 && i < e->geo.log_pages; i++)
		e->page[i].older &= ~(1u << m);
	e->older &= ~(1u << m);
}

/* All that this node has written there since the copy was made may be gone. */
static void page_missed(struct engine *e, struct lpage *p)
{
	uint64_t first = (uint64_t)(p - e->page) * LOG_REGIONS_PER_PAGE;
	uint64_t n = e->geo.regions - first;

	for (uint32_t i = 0; i < LOG_REGIONS_PER_PAGE && i < n; i++)
		dlog_miss(e, first + i);
}

/* The member is out of the map: what it lacks is looked up when it enters again. */
void back_dropped(struct engine *e, uint8_t m)
{
	uint32_t dev = e->dev_of[m];

	if (!(e->older >> m & 1))
		return;
	for (uint32_t i = 0; i < e->geo.log_pages; i++)
		if (e->page[i].older >> m & 1)
			page_missed(e, &e->page[i]);
	older_forget(e, m);
	if (dev != NO_DEV)
		e->dev[dev].back.due = e->dev[dev].back.settles = true;
}

static void pages_judge(struct engine *e, struct dev *d, uint8_t m)
{
	for (uint32_t i = 0; i < d->back.count; i++) {
		struct lpage *p = &e->page[d->back.page + i];
		bool older = p->told[m] != 0;

		for (uint32_t c = 0; c < 2; c++) {
			const uint8_t *image =
			    d->back.buf + i * PAGE_BYTES + (size_t)c * DDR_BLOCK_BYTES;
			struct logpage lp;

			if (!logpage_decode(&lp, image) && lp.slot == e->slot &&
			    lp.page == d->back.page + i && lp.seq >= p->told[m] &&
			    !memcmp(lp.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES))
				older = false;
		}
		if (!older)
			continue;
		p->older |= 1u << m;
		e->older |= 1u << m;
	}
}

static void pages_read_done(struct engine *e, struct batch *b)
{
	struct dev *d = list_entry(b, struct dev, back.batch);
	uint8_t m = d->back.member;

	d->back.reading = false;
	if (e->state == ENGINE_REMOVED || !d->up || d->back.ups != d->ups || d->member != m ||
	    !was_told(e, m))
		return; /* begun anew, if it is still to be known */
	if (b->failed && (is_connection_error(b->err) || b->err == -ECANCELED)) {
		d->back.again_us = e->now + AGAIN_US;
		return;
	}
	if (b->failed && d->back.count > 1) {
		d->back.singly = d->back.page + d->back.count; /* which of them is it? */
	} else {
		/* A page that can't be read says nothing. */
		if (!b->failed)
			pages_judge(e, d, m);
		d->back.page += d->back.count;
	}
	if (d->back.page < e->geo.log_pages)
		return;
	d->back.due = false;
	if (!(e->older >> m & 1))
		return;
	d->back.older = true;
	if (map_write_mask(&e->map) >> m & 1)
		member_bad(e, m, MEMBER_SUSPECT);
	else
		back_dropped(e, m);
}

static void pages_read(struct engine *e, struct dev *d)
{
	uint32_t left = e->geo.log_pages - d->back.page;

	d->back.count = d->back.page < d->back.singly ? 1 : left < RD_PAGES ? left : RD_PAGES;
	d->back.reading = true;
	d->back.iov = (struct iovec){d->back.buf, (size_t)d->back.count * PAGE_BYTES};
	batch_init(&d->back.batch, pages_read_done);
	batch_open(&d->back.batch);
	dio_start_raw(e, &d->back.batch, (uint32_t)(d - e->dev), DEV_READ, KIND_BACK,
		      geo_log_offset(&e->geo, e->slot, d->back.page, 0), &d->back.iov);
	batch_close(e, &d->back.batch);
}

/* What is connected is known by its superblock, and is member m. */
void back_bound(const struct engine *e, struct dev *d, uint8_t m)
{
	if (!was_told(e, m) || (d->instance && d->instance == e->told[m].instance))
		d->back.due = d->back.settles; /* R17: that exporter never went away */
}

static void back_look(struct engine *e, struct dev *d)
{
	uint8_t m = d->member;

	if (!d->back.buf)
		d->back.buf = malloc((size_t)RD_PAGES * PAGE_BYTES);
	if (!d->back.buf)
		return; /* tried again at the next step */
	if (d->back.ups != d->ups || d->back.member != m) {
		older_forget(e, m); /* of another connection */
		d->back.member = m;
		d->back.ups = d->ups;
		d->back.page = d->back.singly = 0;
	}
	pages_read(e, d);
}

void back_up(struct dev *d)
{
	d->back.due = true;
	d->back.older = d->back.settles = false;
	d->back.again_us = 0;
	d->back.ups = 0;
}

const struct peer *member_older_by(const struct engine *e, uint8_t member)
{
	for (uint32_t i = 0; i < e->peer_count; i++)
		if (e->peer[i].member && e->peer[i].up_inc == e->peer[i].inc &&
		    e->peer[i].older >> member & 1)
			return &e->peer[i];
	return NULL;
}

bool engine_dev_older(const struct engine *e, uint32_t dev)
{
	return e->dev[dev].up && e->dev[dev].back.older;
}

void back_restart(struct dev *d)
{
	d->back.due = d->back.older = d->back.settles =
	    false; /* the next life has told it nothing yet */
}

void back_advance(struct engine *e)
{
	for (uint32_t i = 0; i < e->devs; i++) {
		struct dev *d = &e->dev[i];

		if (!d->back.due || !d->up)
			continue;
		if (d->back.settles)
			d->back.due = d->back.settles = !dlog_missed_settled(e);
		else if (d->member != NO_MEMBER && !d->back.reading && !d->reading &&
			 !d->retry_us && e->now >= d->back.again_us)
			back_look(e, d);
	}
}
