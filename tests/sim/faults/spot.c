/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bad spots: a stretch of one member's data or log that can't be read for a while, or until it is
 * written. Nothing is lost of it: so a block that somebody reads with success must be right, also
 * after. Two members may have one at once.
 *
 * While a member is missing nothing can be decoded in its place. Such a read fails, and that must
 * be all: the array goes on, and no map has fewer than k members in sync (C6). While all are in
 * sync, it strikes like any other error, only when it puts no more than m members at risk.
 *
 * Two that strike at nearly the same time count as one: only one member can leave because of them.
 *
 * The draws are from a stream of their own: seeds in which none strikes are as without them.
 */
#include <errno.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define SPOT_STRIPES 48u /* at most */
#define SPOTS 2u         /* at once */
#define AT_ONCE_US (60 * MS)

static uint32_t spots(const struct sim *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->o.disks; i++)
		n += s->disk[i].spot;
	return n;
}

static void on_spot_heals(struct sim *s, struct hev *ev)
{
	if (s->disk[ev->a].spot_no == ev->b)
		s->disk[ev->a].spot = false;
}

static void spot_make(struct sim *s, uint64_t from, uint64_t bytes)
{
	uint32_t idx = s->checks.disk_of[rng_below(&s->spot.rng, s->geo.n)];
	uint64_t heals_us = rng_range(&s->spot.rng, 50 * MS, 2500 * MS);
	bool heals = rng_chance(&s->spot.rng, 500);
	struct disk *d = idx == NONE ? NULL : &s->disk[idx];

	/* Its last one is remembered for the answers that are still to come (spot_excuses). */
	if (!d || d->spot || (d->spot_no && s->now < d->spot_hit_us + 3000 * MS))
		return;
	d->spot = true;
	d->spot_no++;
	d->spot_hard = mix64(s->seed ^ s->now ^ 0x68617264ull) % 3 == 0;
	d->spot_from = from;
	d->spot_to = from + bytes;
	trace(s, "f  bad spot on disk %u: %lu to %lu", idx, d->spot_from, d->spot_to);
	if (heals)
		sim_at(s, heals_us, on_spot_heals, idx, d->spot_no, NULL);
}

static void on_spot(struct sim *s, struct hev *ev)
{
	uint64_t from = geo_offset(&s->geo, rng_range(&s->spot.rng, 0, s->geo.stripes - 1));
	uint64_t bytes = (1 + rng_below(&s->spot.rng, SPOT_STRIPES)) * s->geo.frag_bytes;

	if (rng_chance(&s->spot.rng, 250)) { /* or in the log */
		from = geo_log_offset(&s->geo, rng_below(&s->spot.rng, s->geo.p.slots + 1u), 0, 0);
		bytes = (1 + rng_below(&s->spot.rng, 4)) * (uint64_t)DDR_BLOCK_BYTES;
	}
	(void)ev;
	if (s->planner.healing)
		return;
	if (spots(s) < SPOTS && rng_chance(&s->spot.rng, s->checks.map_full ? 60 : 400)) {
		spot_make(s, from, bytes);
		if (rng_chance(&s->spot.rng, 400))
			spot_make(s, from, bytes); /* what the first spoils, the second does too */
	}
	sim_at(s, rng_range(&s->spot.rng, 20 * MS, 200 * MS), on_spot, 0, 0, NULL);
}

void spot_init(struct sim *s)
{
	rng_seed(&s->spot.rng, mix64(s->seed ^ 0x73706f74ull));
	if (s->o.faultless || (s->cli && (s->cli->nodes == 1 || s->cli->only)) ||
	    !rng_chance(&s->spot.rng, 400))
		return;
	sim_at(s, 300 * MS, on_spot, 0, 0, NULL);
}

void spot_heal(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		s->disk[i].spot = false;
}

static bool overlaps(const struct disk *d, uint64_t offset, uint64_t bytes)
{
	return offset < d->spot_to && d->spot_from < offset + bytes;
}

void spot_written(struct disk *d, uint64_t offset, uint64_t bytes)
{
	if (d->spot && bytes && overlaps(d, offset, bytes))
		d->spot = false; /* its sectors have been given others */
}

static uint32_t count_in_sync(const struct map *m)
{
	return (uint32_t)__builtin_popcount(map_insync_mask(m));
}

/* Everybody who has a map or a proposal can do without no member. */
static bool none_to_spare(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct engine_status *st = &s->node[i].st;

		if (s->node[i].proc && st->proposing && count_in_sync(&st->proposed) > s->geo.k)
			return false;
	}
	return count_in_sync(&s->checks.map) == s->geo.k;
}

/* A write of data fails, while no member can be spared. Not a durable one, which would be the end
 * of the member (R14). */
static bool refuses(struct sim *s, const struct req *r)
{
	struct disk *d = &s->disk[r->disk];
	uint32_t m = s->checks.member_of[r->disk];

	if (!d->spot || !d->spot_hard || (r->op != DEV_WRITE && r->op != DEV_ZEROES) ||
	    r->kind != KIND_DATA || r->orphan || r->flags & DEV_F_FUA || m == NONE ||
	    !overlaps(d, r->offset, r->bytes) || !none_to_spare(s) ||
	    s->checks.map.member[m].state != MEMBER_IN_SYNC)
		return false;
	stats_fault(s, F_BAD_SPOT_REFUSES);
	d->spot_hit_us = s->now;
	return true;
}

/* That member has to leave, so none may be about to leave for a spot. */
static bool flush_err_lately(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->disk[i].flush_err_us && s->now < s->disk[i].flush_err_us + 1000 * MS)
			return true;
	return false;
}

/* The read fails, or the write. */
bool spot_strikes(struct sim *s, const struct req *r)
{
	struct disk *d = &s->disk[r->disk];
	uint32_t m = s->checks.member_of[r->disk];
	bool drops;

	if (refuses(s, r))
		return true;
	if (!d->spot || r->op != DEV_READ || r->orphan || r->kind == KIND_SB ||
	    r->kind == KIND_USE || m == NONE || !overlaps(d, r->offset, r->bytes))
		return false;
	if (s->checks.map.member[m].state != MEMBER_IN_SYNC)
		return false;
	drops = !none_to_spare(s);
	if (drops && !fault_may_strike(s, r->disk) &&
	    (!s->spot.us || s->now - s->spot.us > AT_ONCE_US || flush_err_lately(s)))
		return false;
	stats_fault(s, drops ? F_BAD_SPOT : F_BAD_SPOT_DEGRADED);
	d->spot_hit_us = s->now;
	if (drops) {
		if (!s->spot.us || s->now - s->spot.us > AT_ONCE_US)
			s->spot.us = s->now;
		risk_harmed(s, r->disk);
	}
	return true;
}

/* As with a store without space, other writes may wait for the member meanwhile. */
bool spot_refuses_lately(const struct sim *s, uint64_t since_us)
{
	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (d->spot_hard && d->spot_hit_us && since_us < d->spot_hit_us + 3000 * MS)
			return true;
	}
	return false;
}

/* A front-end's request for these bytes may fail with EIO, if it began at `since_us`. */
bool spot_excuses(const struct sim *s, uint64_t offset, uint32_t bytes, uint64_t since_us)
{
	uint64_t from = geo_offset(&s->geo, offset / s->geo.p.stripe_bytes);

	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (d->spot_no && d->spot_hit_us >= since_us && overlaps(d, from, bytes / s->geo.k))
			return true;
	}
	return false;
}

/* R11: no member in sync may have been able to read this slot's pages as a whole; then all its
 * regions count as dirty. */
bool spot_hides_slot(const struct sim *s, uint32_t slot)
{
	uint64_t from = geo_log_offset(&s->geo, slot, 0, 0);
	uint64_t bytes = 2ull * s->geo.log_pages * DDR_BLOCK_BYTES;

	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t d = s->checks.disk_of[m];

		if (s->checks.map.member[m].state == MEMBER_IN_SYNC && d != NONE &&
		    (!s->disk[d].spot_no || !overlaps(&s->disk[d], from, bytes)))
			return false;
	}
	return true;
}

/* It has no connection there, and may never have had one: that is why. */
static bool reaches(const struct simnode *n, uint32_t disk)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (n->dev[i].used && n->dev[i].up && n->dev[i].disk == disk)
			return true;
	return false;
}

/* By an earlier incarnation of this daemon, which the next one tells. */
static bool lost_earlier(const struct simnode *n, uint32_t disk)
{
	return n->lost_gen[disk] == n->gen + 1 && n->lost_ii[disk] != n->ii;
}

/* A node has just acted. A bad spot alone is no reason to give up a member that must stay. */
void spot_check(struct sim *s, const struct simnode *n)
{
	if (!n->st.unusable || n->st.proposing || n->st.map.epoch.num != s->checks.map.epoch.num ||
	    n->cut_inc == n->ii + 1 || !none_to_spare(s))
		return; /* or it was cut off, and that is why */
	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t d = s->checks.disk_of[m];

		if (n->st.unusable >> m & 1 && d != NONE && s->disk[d].spot_hit_us &&
		    s->now < s->disk[d].spot_hit_us + 1000 * MS && !s->checks.lossy[d] &&
		    map_insync_mask(&s->checks.map) >> m & 1 && reaches(n, d) &&
		    !oldcopy_met(s, n, d) && !full_lately(s, d) && !s->disk[d].spot_hard &&
		    n->broke_gen[d] != n->gen + 1 && !lost_earlier(n, d))
			sim_fail(s, "C8",
				 "node %u gave up member %u for a bad spot, although no other can "
				 "stand in for it",
				 n->id, m);
	}
}
