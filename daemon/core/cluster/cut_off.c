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
 * nothing of what was cut off on the first. The time counts from the disk's first answer on the
 * other way after the break, as the port's does: an exporter that was frozen carries out what it
 * holds when it thaws. What is under way still may be cut off next, so it counts, too.
 */
#include <string.h>

#include "daemon/core/cluster/cluster.h"

void dev_unanswered(struct engine *e, uint32_t dev)
{
	struct dev *d = &e->c->devs.dev[dev];

	d->zombie = true;
	d->zombie_us = e->now;
	d->cut_off.any = true;
	d->cut_off.answered_us = 0;
	memcpy(d->cut_off.uuid,
	       d->member != NO_MEMBER ? map_next(e)->member[d->member].uuid : d->bound_uuid,
	       DDR_UUID_BYTES);
	admin_cut_off(e);
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

bool cut_off_landed(const struct engine *e, const struct dev *d)
{
	return d->cut_off.answered_us && e->now - d->cut_off.answered_us > reach_us(e);
}

/* What is connected there is that member, or was it when it was looked at last. */
static bool may_be(const struct dev *d, const uint8_t uuid[DDR_UUID_BYTES])
{
	return !memcmp(d->sb.member_uuid, uuid, DDR_UUID_BYTES) ||
	       !memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) ||
	       !memcmp(d->moved_uuid, uuid, DDR_UUID_BYTES);
}

bool other_way_lands(const struct engine *e, const struct dev *d, uint8_t m)
{
	const uint8_t *uuid = map_next(e)->member[m].uuid;

	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		const struct dev *o = &e->c->devs.dev[i];

		if (o == d)
			continue;
		if (o->cut_off.any && !memcmp(o->cut_off.uuid, uuid, DDR_UUID_BYTES) &&
		    !cut_off_landed(e, o))
			return true;
		if (dev_writes(e, i) && may_be(o, uuid)) /* they may yet be cut off */
			return true;
	}
	return false;
}

bool other_way_unanswered(const struct engine *e, const struct dev *d, uint8_t m)
{
	const uint8_t *uuid = map_next(e)->member[m].uuid;

	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		const struct dev *o = &e->c->devs.dev[i];

		if (o != d && o->cut_off.any && !o->cut_off.answered_us &&
		    !memcmp(o->cut_off.uuid, uuid, DDR_UUID_BYTES))
			return true;
	}
	return false;
}

/* To what the map has dropped: they are being cancelled. `dev` itself waits for its own. */
static bool writes_ending(const struct engine *e, uint32_t dev)
{
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		uint8_t m = e->c->devs.dev[i].member;

		if (i != dev && dev_writes(e, i) &&
		    (m == NO_MEMBER || !((map_write_mask(&e->map) | write_targets(e)) >> m & 1)))
			return true;
	}
	return false;
}

bool any_cut_off(const struct engine *e, uint32_t dev, uint64_t answered_us)
{
	if (writes_ending(e, dev))
		return true;
	for (uint32_t i = 0; i < e->c->devs.count; i++)
		if (e->c->devs.dev[i].cut_off.any)
			return !answered_us || e->now - answered_us <= reach_us(e);
	return false;
}

bool writes_may_land(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].zombie && !cut_off_landed(e, &e->c->devs.dev[i]))
			return true;
	return false;
}

void cut_answered(struct engine *e, struct dev *d)
{
	if (!d->up || !d->sb_ok)
		return;
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		struct dev *o = &e->c->devs.dev[i];

		if (!o->cut_off.any ||
		    memcmp(o->cut_off.uuid, d->sb.member_uuid, DDR_UUID_BYTES) != 0)
			continue;
		if (o == d)
			o->cut_off.any = false; /* its port has waited */
		else if (!o->cut_off.answered_us)
			o->cut_off.answered_us = e->now;
	}
}
