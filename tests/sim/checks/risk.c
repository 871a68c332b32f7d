/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The crash contract (C7): where garbage is allowed.
 *
 *   RISK_NONE   parity is true, whichever member goes
 *   RISK_CUT    a write of this block was in flight when its writer died
 *   RISK_RACE   two nodes wrote this block at once; or it was never in sync; or more than m
 *               members lost what was not flushed
 *
 * A stripe leaves the risk when its parity is true over all members, all of which are well, and
 * nothing can land there any more. If a member is lost before, its data fragment may be garbage:
 * but for sectors that somebody has read since the writer's fence (R18: a read comes after the
 * resync), unless two nodes raced.
 */
#include <stdlib.h>

#include "tests/sim/world.h"

#define WELL_AFTER_US (300 * MS) /* a member counts as well again after so long without trouble */

void risk_init(struct sim *s)
{
	s->risk = xcalloc(s->geo.stripes, 1);
	s->pinned = xcalloc(s->geo.stripes, 1);
}

void risk_set_all(struct sim *s)
{
	for (uint64_t i = 0; i < s->geo.stripes; i++)
		s->risk[i] = RISK_RACE;
	s->at_risk = (uint32_t)s->geo.stripes;
}

void risk_free(struct sim *s)
{
	free(s->risk);
	free(s->pinned);
	s->risk = s->pinned = NULL;
}

/* The stripe is at risk and this member is not well. */
static void any_on(struct sim *s, uint64_t stripe, uint8_t member)
{
	uint32_t frag = geo_frag_of(&s->geo, stripe, member), sectors = BLOCK_SECTORS / s->geo.k;

	if (frag >= s->geo.k)
		return;
	for (uint32_t i = frag * sectors; i < (frag + 1) * sectors; i++) {
		if (s->risk[stripe] == RISK_CUT && s->pinned[stripe] >> i & 1)
			continue;
		stats_fault(s, F_GARBAGE_ALLOWED);
		oracle_any(s, stripe * BLOCK_SECTORS + i);
	}
}

void risk_raise(struct sim *s, uint64_t stripe, enum risk r, uint64_t since)
{
	const struct checks *c = &s->checks;

	if (!s->risk[stripe])
		s->at_risk++;
	if (s->risk[stripe] < r)
		s->risk[stripe] = (uint8_t)r;
	s->pinned[stripe] = 0; /* what was read before is not what is in doubt now */
	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t d = c->disk_of[m];

		if (d == NONE || c->map.member[m].state != MEMBER_IN_SYNC || c->lossy[d] ||
		    c->lost_stamp[d] >= since)
			any_on(s, stripe, m);
	}
}

void risk_lost(struct sim *s, uint32_t disk)
{
	struct checks *c = &s->checks;
	uint32_t m = c->member_of[disk];

	c->lossy[disk] = true;
	c->lost_us[disk] = s->now;
	c->lost_stamp[disk] = c->degraded_stamp = sim_stamp(s);
	if (m == NONE || !s->at_risk)
		return;
	for (uint64_t i = 0; i < s->geo.stripes; i++)
		if (s->risk[i])
			any_on(s, i, (uint8_t)m);
}

void risk_harmed(struct sim *s, uint32_t disk)
{
	s->checks.harmed[disk] = true;
	risk_lost(s, disk);
}

static bool all_well(const struct sim *s)
{
	for (uint8_t m = 0; m < s->geo.n; m++)
		if (s->checks.disk_of[m] == NONE || s->checks.lossy[s->checks.disk_of[m]])
			return false;
	return s->checks.map_full;
}

static void settle(struct sim *s, uint64_t stripe)
{
	if (s->checks.bad[stripe] || s->checks.writes[stripe] ||
	    oracle_pending(s, stripe, s->stamp))
		return;
	s->risk[stripe] = RISK_NONE;
	s->pinned[stripe] = 0;
	s->at_risk--;
}

void risk_settle(struct sim *s, uint64_t stripe)
{
	if (s->risk[stripe] && all_well(s))
		settle(s, stripe);
}

void risk_settle_all(struct sim *s)
{
	if (!s->at_risk || !all_well(s))
		return;
	for (uint64_t i = 0; i < s->geo.stripes; i++)
		if (s->risk[i])
			settle(s, i);
}

void risk_pinned(struct sim *s, uint64_t sector)
{
	uint64_t stripe = sector / BLOCK_SECTORS;

	if (s->risk[stripe])
		s->pinned[stripe] = (uint8_t)(s->pinned[stripe] | 1u << sector % BLOCK_SECTORS);
}

static bool connected(const struct sim *s, uint32_t disk)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		uint32_t dev = dev_slot_of_disk(&s->node[i], disk);

		if (s->node[i].proc &&
		    (dev == NONE || !s->node[i].dev[dev].up || s->node[i].dev[dev].half_open))
			return false;
	}
	return s->disk[disk].powered && !s->disk[disk].dead;
}

/* Everybody who knows of the loss has a newer map, which says what became of it. */
static bool loss_settled(const struct sim *s, const struct disk *d)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct simnode *n = &s->node[i];

		/* Its daemon tells it in its next incarnation as well. */
		if (d->witness_ii[i] != NONE && n->proc && s->inc[d->witness_ii[i]].gen == n->gen &&
		    n->st.map.epoch.num <= d->cache_lost_epoch)
			return false;
	}
	return s->checks.map.epoch.num != d->cache_lost_epoch;
}

/* A node that has no map says so as soon as it has one. What its member lost, it can't know. */
static bool break_untold(const struct sim *s, uint32_t disk)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct simnode *n = &s->node[i];

		if (n->proc && n->broke_gen[disk] == n->gen + 1 && !n->st.map.epoch.num)
			return true;
	}
	return false;
}

/* Who was told of a flush error knows it as long as its daemon runs, also when its incarnation was
 * removed; and it is going to say so. */
static bool flush_error_open(const struct sim *s, const struct disk *d)
{
	const struct simnode *n;

	if (!d->flush_err_us)
		return false;
	n = &s->node[s->inc[d->flush_err_ii].node];
	return n->proc && n->gen == d->flush_err_gen && n->st.map.epoch.num <= d->flush_err_epoch;
}

static bool well_again(const struct sim *s, uint32_t disk)
{
	const struct checks *c = &s->checks;
	const struct disk *d = &s->disk[disk];

	if (c->member_of[disk] == NONE || s->now - c->lost_us[disk] < WELL_AFTER_US ||
	    c->map.member[c->member_of[disk]].state != MEMBER_IN_SYNC || !connected(s, disk))
		return false;
	if ((d->cache_lost && !loss_settled(s, d)) || flush_error_open(s, d) ||
	    break_untold(s, disk))
		return false;
	/* Who can't use it yet will not before the map says so, however long it takes to tell. */
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].st.proposing || s->node[i].st.unusable >> c->member_of[disk] & 1)
			return false;
	return true;
}

/* From the proposal that drops a member on, its fragments are decoded: what was in doubt may read
 * otherwise from there, not only from the commit. A proposal's demotions are never taken back (R3).
 */
static void proposals_look(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct engine_status *st = &s->node[i].st;

		for (uint8_t m = 0; st->proposing && m < st->proposed.n; m++) {
			uint32_t d = s->checks.disk_of[m];

			if (st->proposed.member[m].state != MEMBER_IN_SYNC && d != NONE &&
			    !s->checks.lossy[d])
				risk_lost(s, d);
		}
	}
}

void risk_advance(struct sim *s)
{
	struct checks *c = &s->checks;
	bool degraded = !c->map_full, again = false;
	uint32_t well = 0;

	proposals_look(s);
	for (uint32_t i = 0; i < s->o.disks; i++) {
		struct disk *d = &s->disk[i];

		if (!c->lossy[i])
			continue;
		if (well_again(s, i)) {
			c->lossy[i] = c->harmed[i] = d->cache_lost = false;
			again = true;
		} else if (c->member_of[i] != NONE) {
			degraded = true;
		}
	}
	/* A node may not have heard yet that the member is back; it decodes from the proposal on.
	 */
	for (uint32_t i = 0; i < s->o.nodes; i++)
		degraded = degraded || s->node[i].map_degraded ||
			   (s->node[i].st.proposing && map_degraded(&s->node[i].st.proposed));
	for (uint8_t m = 0; m < s->geo.n; m++)
		well += c->disk_of[m] != NONE && !c->lossy[c->disk_of[m]] &&
			c->map.member[m].state == MEMBER_IN_SYNC;
	if (well < s->geo.k)
		c->too_few_us = s->now;
	if (degraded)
		c->degraded_stamp = s->stamp;
	if (again)
		risk_settle_all(s);
}
