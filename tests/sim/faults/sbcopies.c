/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Superblock copies that are torn, or can't be read.
 *
 * Power that flaps: while superblocks are written all nodes and all exporters lose power, and again
 * as soon as they are back and write them anew. Of the writes under way some are torn, some are
 * through, some never began. Whatever the order, no member may be left without an intact copy.
 *
 * A copy that can't be read: on some members, until it is written. It hides neither the member nor
 * a map that was committed, since that is on both copies by then. The only copy of a map that was
 * not is hidden on m members at most: on more it would be as if nobody had written it. Together
 * with a write of the other copy that is torn it would be two faults of one member; then its
 * sector is well again.
 *
 * Of its own randomness.
 */
#include <errno.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define CUTS_MOST 5u

/* It goes to an older copy of the member. */
static bool elsewhere(const struct sim *s, const struct req *r)
{
	return r->way || (s->copy.stands && s->copy.disk == r->disk);
}

static bool is_sb_write(const struct req *r)
{
	return r->kind == KIND_SB && r->op == DEV_WRITE && !r->orphan;
}

/* The sector under the head is neither old nor new. */
static void tear(struct sim *s, struct req *r)
{
	struct disk *d = &s->disk[r->disk];
	uint8_t junk[SECTOR];

	for (uint32_t i = 0; i < SECTOR; i++)
		junk[i] = (uint8_t)rng_u64(&s->sb.rng);
	d->sb_bad = 0;
	disk_answered(s, d, disk_write(s, d, r->offset, SECTOR, junk, true));
	trace(s, "f  superblock write on disk %u is torn", r->disk);
}

static void on_cut(struct sim *s, struct hev *ev)
{
	(void)ev;
	s->sb.due = false;
	if (s->planner.healing)
		return;
	for (uint32_t i = 0; i < s->reqs; i++)
		if (s->req[i]->used && is_sb_write(s->req[i]) && s->req[i]->exec == EXEC_NOT &&
		    !elsewhere(s, s->req[i]) && rng_chance(&s->sb.rng, 400))
			tear(s, s->req[i]); /* the rest of it never comes */
	fault_cluster_power(s, true);
}

/* A superblock write is about to take effect. True: it is torn, and power fails. */
bool sbcopies_torn(struct sim *s, struct req *r)
{
	if (!is_sb_write(r) || !s->sb.cuts || s->sb.due || s->planner.healing ||
	    s->now < s->sb.from_us || s->now <= s->planner.cluster_down_until ||
	    !s->checks.commits || elsewhere(s, r) || !rng_chance(&s->sb.rng, 500))
		return false;
	stats_look(s);
	stats_fault(s, F_SB_TORN);
	stats_look_end(s);
	s->sb.cuts--;
	s->sb.due = true;
	tear(s, r);
	r->err = -ECONNRESET;
	sim_at(s, 0, on_cut, 0, 0, NULL);
	return true;
}

static int copy_at(uint64_t offset)
{
	for (uint32_t c = 0; c < SB_COPIES; c++)
		if (offset == geo_sb_offset(c))
			return (int)c;
	return -1;
}

/* The read fails. */
bool sbcopies_unreadable(struct sim *s, const struct req *r)
{
	int c = r->kind == KIND_SB && r->op == DEV_READ && !r->orphan ? copy_at(r->offset) : -1;

	if (c < 0 || !(s->disk[r->disk].sb_bad >> c & 1) || elsewhere(s, r))
		return false;
	stats_look(s);
	stats_fault(s, F_SB_UNREADABLE);
	stats_look_end(s);
	return true;
}

/* `half` of a write, or all of it, has taken effect. */
void sbcopies_written(struct sim *s, const struct req *r, bool half)
{
	struct disk *d = &s->disk[r->disk];
	int c = copy_at(r->offset);

	if (c >= 0 && r->op == DEV_WRITE)
		d->sb_bad = (uint8_t)(half ? 0 : d->sb_bad & ~(1u << c));
}

/* Both copies of this disk are intact. `differ`: and they carry different maps. */
static bool both_intact(const struct disk *d, bool *differ)
{
	struct superblock sb[SB_COPIES];

	for (uint32_t c = 0; c < SB_COPIES; c++)
		if (sb_decode(&sb[c], d->cached + geo_sb_offset(c), NULL))
			return false;
	*differ = epoch_cmp(&sb[0].map.epoch, &sb[1].map.epoch) != 0;
	return true;
}

/* Members of which a copy can't be read that is not the same as the other. */
static uint32_t hidden(const struct sim *s)
{
	uint32_t n = 0;

	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t i = s->checks.disk_of[m];
		bool differ;

		n += i != NONE && s->disk[i].sb_bad && both_intact(&s->disk[i], &differ) && differ;
	}
	return n;
}

static bool half_written(const struct sim *s, uint32_t disk)
{
	for (uint32_t i = 0; i < s->reqs; i++)
		if (s->req[i]->used && s->req[i]->disk == disk && s->req[i]->exec == EXEC_HALF &&
		    copy_at(s->req[i]->offset) >= 0)
			return true;
	return false;
}

static void on_bad(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (s->planner.healing)
		return;
	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t i = s->checks.disk_of[m];
		uint8_t copy = (uint8_t)(1u << rng_below(&s->sb.rng, SB_COPIES));
		bool differ;

		if (i == NONE || !rng_chance(&s->sb.rng, 500) || s->disk[i].sb_bad ||
		    !both_intact(&s->disk[i], &differ) || half_written(s, i) ||
		    (differ && hidden(s) >= s->geo.p.m))
			continue;
		s->disk[i].sb_bad = copy;
		trace(s, "f  superblock copy %u of disk %u can't be read", copy >> 1, i);
	}
	sim_at(s, rng_range(&s->sb.rng, 100 * MS, 1500 * MS), on_bad, 0, 0, NULL);
}

void sbcopies_init(struct sim *s)
{
	rng_seed(&s->sb.rng, mix64(s->seed ^ 0x7362636f70696573ull));
	if (s->o.faultless || (s->cli && s->cli->only))
		return;
	if (rng_chance(&s->sb.rng, 250)) {
		s->sb.cuts = 2 + rng_below(&s->sb.rng, CUTS_MOST - 1);
		s->sb.from_us = rng_range(&s->sb.rng, 100 * MS, 2500 * MS);
	}
	if (rng_chance(&s->sb.rng, 300))
		sim_at(s, rng_range(&s->sb.rng, 50 * MS, 1500 * MS), on_bad, 0, 0, NULL);
}
