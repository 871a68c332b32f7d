/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores without space: for a while one member or several answer writes of data with ENOSPC, but
 * for those with FUA (the log and the superblocks have their space). Nothing is lost of them.
 *
 * The map drops one while it can do without; the others, and all while a member is missing, must
 * stay, and be tried until they have space again: then the array goes on by itself. That it does is
 * what every seed ends with.
 *
 * The draws are from a stream of their own: seeds in which none strikes are as without them.
 */
#include <errno.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define AT_ONCE_US (60 * MS)

static bool any_full(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->disk[i].full)
			return true;
	return false;
}

static void on_space(struct sim *s, struct hev *ev)
{
	struct disk *d = &s->disk[ev->a];

	if (d->full)
		trace(s, "f  disk %u has space again", d->idx);
	d->full = false;
}

static void fill_up(struct sim *s, uint32_t disk)
{
	if (disk == NONE)
		return;
	s->disk[disk].full = true;
	trace(s, "f  disk %u is full", disk);
	sim_at(s, rng_range(&s->full.rng, 20 * MS, 2500 * MS), on_space, disk, 0, NULL);
}

static void on_full(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (s->planner.healing)
		return;
	if (!any_full(s)) {
		uint32_t first = rng_below(&s->full.rng, s->geo.n);
		uint32_t count = (uint32_t)rng_range(&s->full.rng, 1, s->geo.n);

		for (uint32_t i = 0; i < count; i++)
			fill_up(s, s->checks.disk_of[(first + i) % s->geo.n]);
	}
	sim_at(s, rng_range(&s->full.rng, 500 * MS, 4000 * MS), on_full, 0, 0, NULL);
}

void full_init(struct sim *s)
{
	rng_seed(&s->full.rng, mix64(s->seed ^ 0x66756c6cull));
	if (s->o.faultless || (s->cli && (s->cli->nodes == 1 || s->cli->only)) ||
	    !rng_chance(&s->full.rng, 300))
		return;
	sim_at(s, rng_range(&s->full.rng, 300 * MS, 2000 * MS), on_full, 0, 0, NULL);
}

void full_heal(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		s->disk[i].full = false;
}

/* Nobody's map or proposal can do without it. */
static bool must_stay(const struct sim *s, uint32_t member)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct engine_status *st = &s->node[i].st;

		if (s->node[i].proc && st->proposing &&
		    (uint32_t)__builtin_popcount(map_insync_mask(&st->proposed)) > s->geo.k)
			return false;
	}
	return s->checks.map.member[member].state == MEMBER_IN_SYNC &&
	       (uint32_t)__builtin_popcount(map_insync_mask(&s->checks.map)) == s->geo.k;
}

/* The write fails. */
bool full_strikes(struct sim *s, const struct req *r)
{
	uint32_t m = s->checks.member_of[r->disk];
	bool stays;

	if (!s->disk[r->disk].full || r->op != DEV_WRITE || r->kind != KIND_DATA ||
	    r->flags & DEV_F_FUA || r->orphan || m == NONE)
		return false;
	stays = must_stay(s, m);
	if (!stays && (!s->full.us || s->now - s->full.us > AT_ONCE_US)) {
		/* The others follow at once, so this one must not be about to leave, either. */
		if (!fault_may_strike(s, r->disk) || s->checks.lossy[r->disk])
			return false;
		s->full.us = s->now;
	}
	s->disk[r->disk].full_hit_us = s->now;
	stats_fault(s, stays ? F_STORE_FULL_KEPT : F_STORE_FULL);
	return true;
}

/* A node may not be able to use it for that: it tries it each second. */
bool full_lately(const struct sim *s, uint32_t disk)
{
	uint64_t us = s->disk[disk].full_hit_us;

	return us && s->now < us + 3000 * MS;
}

/* With when_lost=eio a write may have been refused for too long; or a part of it, at any time since
 * then, and it waited for the others. */
bool full_excuses(const struct sim *s, uint64_t since_us)
{
	for (uint32_t i = 0; i < s->o.disks; i++) {
		uint64_t us = s->disk[i].full_hit_us;

		if (us && since_us < us + 3000 * MS)
			return true;
	}
	return false;
}
