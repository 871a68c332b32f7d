/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes that nobody heard the end of (R5): a connection broke, or was given up, and they may still
 * land. What they would hit must not be decoded, used or handed over before none of them can.
 *
 *   by the same way    the port waits (ports/member.h): dev_up says that nothing can land any more
 *   by another way     the member is not back before that (back.c, other_way_lands)
 *   as a new member    an `add` is not confirmed before that (admin.c, any_cut_off)
 *   this node leaves   not before that; it would not be fenced (leave.c, writes_may_land)
 *
 * A member can be reached in two ways, say by two addresses of its exporter, and the second knows
 * nothing of what was cut off on the first.
 *
 * 1. The time counts from the disk's first answer on the other way after the break, as the port's
 *    does: an exporter that was frozen carries out what it holds when it thaws.
 * 2. It counts for that connection only, and from a read that was sent after the break. What
 *    answers may be a copy of the disk, and then it tells nothing of the disk. So a cut-off is
 *    forgotten, and this node may leave, only if the way was found to be the member: its superblock
 *    and pages are no older (back.c).
 * 3. A member that is used by another way already is not from the cut-off on. What is under way
 *    and may be cut off yet needs no wait before that: nothing is decoded onto a member that the
 *    map has, and what is under way keeps its region, page or job until it has ended.
 * 4. A write is for the member that its device was when it was sent (dev_sent_as), whatever that is
 *    bound to when it ends.
 */
#include <string.h>

#include "daemon/core/cluster/cluster.h"

static uint32_t index_of(const struct engine *e, const struct dev *d)
{
	return (uint32_t)(d - e->c->devs.dev);
}

void dev_sent_as(const struct engine *e, uint32_t dev, uint8_t uuid[DDR_UUID_BYTES])
{
	uint8_t m = e->c->devs.dev[dev].member;

	memset(uuid, 0, DDR_UUID_BYTES);
	if (m == NO_MEMBER && e->c->devs.dev[dev].sb_ok) /* as it was found, before an `add` */
		memcpy(uuid, e->c->devs.dev[dev].sb.member_uuid, DDR_UUID_BYTES);
	else if (m != NO_MEMBER)
		memcpy(uuid, map_next(e)->member[m].uuid, DDR_UUID_BYTES);
}

/* Where it is noted. There is a place for each device and member that are about; if they are not
 * enough, the one that was cut off first has had the most time. */
static struct cut_off *cut_off_of(struct engine *e, uint32_t dev,
				  const uint8_t uuid[DDR_UUID_BYTES])
{
	struct cut_off *free = NULL;

	for (uint32_t i = 0; i < CUT_OFFS; i++) {
		struct cut_off *c = &e->c->devs.cut_off[i];

		if (c->used && c->dev == dev && !memcmp(c->uuid, uuid, DDR_UUID_BYTES))
			return c;
		if (!free || (free->used && (!c->used || c->us < free->us)))
			free = c;
	}
	return free;
}

void dev_unanswered(struct engine *e, uint32_t dev, const uint8_t uuid[DDR_UUID_BYTES])
{
	struct dev *d = &e->c->devs.dev[dev];
	struct cut_off *c = cut_off_of(e, dev, uuid);

	d->zombie = true;
	d->zombie_us = e->now;
	e->c->devs.cut_offs += !c->used;
	*c = (struct cut_off){.used = true, .dev = dev, .ups = d->ups, .by = NO_DEV};
	c->us = e->now;
	c->reads = e->c->devs.reads;
	memcpy(c->uuid, uuid, DDR_UUID_BYTES);
	admin_cut_off(e);
	/* One that is used by another way already is not, from now on. */
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		uint8_t m = e->c->devs.dev[i].member;

		if (i == dev || m == NO_MEMBER ||
		    memcmp(map_next(e)->member[m].uuid, c->uuid, DDR_UUID_BYTES) != 0)
			continue;
		back_up(&e->c->devs.dev[i]);
		back_bound(e, &e->c->devs.dev[i], m);
	}
}

uint64_t reach_us(const struct engine *e)
{
	uint32_t ms = e->cfg.tun.reach_ms;

	return (ms > e->cfg.tun.evict_ms ? ms : e->cfg.tun.evict_ms) * 1000ull;
}

/* Nothing lands any more of what was on its way to members that are lost (R5). */
bool devs_landed(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].zombie && e->now - e->c->devs.dev[i].zombie_us <= reach_us(e))
			return false;
	return true;
}

/* By the connection that is there now. */
static bool has_answered(const struct engine *e, const struct cut_off *c, uint32_t by)
{
	return by != NO_DEV && c->by == by && c->by_ups == e->c->devs.dev[by].ups;
}

static bool landed(const struct engine *e, const struct cut_off *c, uint32_t by)
{
	return has_answered(e, c, by) && e->now - c->answered_us > reach_us(e);
}

bool other_way_lands(const struct engine *e, const struct dev *d, uint8_t m)
{
	const uint8_t *uuid = map_next(e)->member[m].uuid;
	uint32_t dev = index_of(e, d);

	for (uint32_t i = 0; i < CUT_OFFS; i++) {
		const struct cut_off *c = &e->c->devs.cut_off[i];

		if (c->used && c->dev != dev && !memcmp(c->uuid, uuid, DDR_UUID_BYTES) &&
		    !landed(e, c, dev))
			return true;
	}
	return false;
}

bool other_way_unanswered(const struct engine *e, const struct dev *d, uint8_t m)
{
	const uint8_t *uuid = map_next(e)->member[m].uuid;
	uint32_t dev = index_of(e, d);

	for (uint32_t i = 0; i < CUT_OFFS; i++) {
		const struct cut_off *c = &e->c->devs.cut_off[i];

		if (c->used && c->dev != dev && !has_answered(e, c, dev) &&
		    !memcmp(c->uuid, uuid, DDR_UUID_BYTES))
			return true;
	}
	return false;
}

bool any_cut_off(const struct engine *e, uint32_t dev, uint64_t answered_us)
{
	for (uint32_t i = 0; i < CUT_OFFS; i++)
		if (e->c->devs.cut_off[i].used && e->c->devs.cut_off[i].dev != dev)
			return !answered_us || e->now - answered_us <= reach_us(e);
	return false;
}

bool writes_may_land(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].zombie)
			return true;
	return false;
}

static void forget(struct engine *e, struct cut_off *c)
{
	c->used = false;
	e->c->devs.cut_offs--;
}

void cut_answered(struct engine *e, struct dev *d)
{
	uint32_t dev = index_of(e, d);

	for (uint32_t i = 0; d->up && d->sb_ok && i < CUT_OFFS; i++) {
		struct cut_off *c = &e->c->devs.cut_off[i];
		bool same = !memcmp(c->uuid, d->sb.member_uuid, DDR_UUID_BYTES);

		if (!c->used)
			continue;
		if (c->dev == dev) { /* connected since: its port has waited */
			if (d->ups != c->ups && (same || !map_names(map_next(e), c->uuid)))
				forget(e, c);
		} else if (same && d->member != NO_MEMBER && !has_answered(e, c, dev) &&
			   d->asked_no > c->reads) {
			c->by = dev;
			c->by_ups = d->ups;
			c->answered_us = e->now;
		}
	}
}

/* What answered is the member itself. */
static bool is_member(const struct engine *e, const struct cut_off *c)
{
	uint8_t m = e->c->devs.dev[c->by].member;

	return m != NO_MEMBER && !memcmp(map_next(e)->member[m].uuid, c->uuid, DDR_UUID_BYTES) &&
	       member_sb_read(e, m) && member_back(e, m) && !e->c->devs.dev[c->by].back.older;
}

/* The last one that was noted of a device is over: nothing of it may land. */
static void zombie_over(struct engine *e, uint32_t dev)
{
	for (uint32_t i = 0; i < CUT_OFFS; i++)
		if (e->c->devs.cut_off[i].used && e->c->devs.cut_off[i].dev == dev)
			return;
	e->c->devs.dev[dev].zombie = false;
}

void cut_offs_advance(struct engine *e)
{
	for (uint32_t i = 0; e->c->devs.cut_offs && i < CUT_OFFS; i++) {
		struct cut_off *c = &e->c->devs.cut_off[i];

		if (!c->used || !landed(e, c, c->by) || !is_member(e, c))
			continue;
		forget(e, c);
		zombie_over(e, c->dev);
	}
}
