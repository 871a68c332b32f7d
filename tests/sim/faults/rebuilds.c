/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The faults that meet a rebuild: the member that is being brought up breaks off, errs, or loses
 * its cache, at a drawn moment, in a full or a partial rebuild; and a node dies at the same time,
 * or in the rebuild that begins anew.
 *
 *   provoke   a member leaves: by a failure (full), or because its connection broke (partial)
 *   strike    a drawn number of events into its rebuild, or into the proposal that promotes it
 *   again     some of them once more, in the rebuild that follows
 *
 * The contract bounds it as all else: at that moment every other member is in sync and well.
 */
#include <errno.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define AGAIN_US (5000 * MS)

/* Nothing threatens another member than m, on the way or already there. */
static bool others_in_sync(const struct sim *s, uint32_t m)
{
	const struct checks *c = &s->checks;

	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (c->member_of[i] == NONE || c->member_of[i] == m)
			continue;
		if (c->map.member[c->member_of[i]].state != MEMBER_IN_SYNC || c->lossy[i] ||
		    d->cache_lost || d->read_errs || d->write_errs || d->flush_errs || d->dead ||
		    !d->powered || d->hidden)
			return false;
	}
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct engine_status *st = &s->node[i].st;

		if (st->unusable & ~(1u << m))
			return false;
		for (uint8_t k = 0; st->proposing && k < st->proposed.n; k++)
			if (k != m && st->proposed.member[k].state != MEMBER_IN_SYNC)
				return false;
	}
	return s->now > s->planner.cluster_down_until && !operator_is_failing(s);
}

/* The member that is being rebuilt, if it may be struck now; else NONE. */
static uint32_t struck_member(const struct sim *s)
{
	for (uint8_t m = 0; m < s->geo.n; m++)
		if (s->checks.map.member[m].state == MEMBER_REBUILDING &&
		    s->checks.disk_of[m] != NONE && others_in_sync(s, m))
			return m;
	return NONE;
}

bool rebuild_may_err(const struct sim *s, uint32_t disk)
{
	return others_in_sync(s, s->checks.member_of[disk]);
}

static bool promoting(const struct simnode *leader, uint32_t m)
{
	return leader && leader->st.proposing &&
	       leader->st.proposed.member[m].state == MEMBER_IN_SYNC;
}

bool rebuild_met(const struct sim *s, const struct simnode *leader)
{
	uint32_t m = struck_member(s);

	return m != NONE && (!s->planner.at_promotion || promoting(leader, m));
}

void rebuild_arm(struct sim *s)
{
	struct planner *p = &s->planner;
	uint32_t dice = rng_below(&s->rng, 3);

	p->armed_countdown = 1 + rng_below(&s->rng, dice == 0 ? 10 : dice == 1 ? 200 : 1500);
	p->armed_until_us = s->now + AGAIN_US;
	p->at_promotion = rng_chance(&s->rng, s->o.promotion_permille);
	if (p->at_promotion)
		p->armed_countdown = 1 + rng_below(&s->rng, 40);
}

static void on_death(struct sim *s, struct hev *ev)
{
	struct simnode *n = node_leader(s);

	if (s->planner.healing)
		return;
	if (!n || ev->a)
		n = &s->node[rng_below(&s->rng, s->o.nodes)];
	if (!n->powered)
		return;
	stats_fault(s, F_REBUILD_DEATH);
	s->planner.done++;
	if (rng_chance(&s->rng, 400)) {
		node_kill_daemon(s, n);
		node_start_later(s, n, rng_range(&s->rng, 1 * MS, 600 * MS));
	} else {
		node_crash(s, n);
		node_power_on_later(s, n, rng_range(&s->rng, 30 * MS, 2000 * MS));
	}
}

static void break_off(struct sim *s, uint32_t disk)
{
	uint64_t retry_us = s->o.tun.member_retry_ms * MS;
	uint32_t dice = rng_below(&s->rng, 100);

	if (dice < 35 && fault_disconnect_one(s, disk))
		return;
	if (dice < 80)
		fault_hide(s, disk, rng_range(&s->rng, 1 * MS, retry_us * 6 / 10));
	else
		fault_hide(s, disk, rng_range(&s->rng, retry_us * 12 / 10, 1800 * MS));
}

static void lose_power(struct sim *s, uint32_t disk)
{
	uint64_t most = rng_chance(&s->rng, 600) ? 30 * MS : 900 * MS;

	fault_exporter_power(s, disk, rng_range(&s->rng, 1 * MS, most), false);
}

/* Counted when its request comes; one that waits for nothing any more is forgotten. */
static void err(struct sim *s, struct disk *d)
{
	d->err_in_rebuild = true;
	if (rng_chance(&s->rng, 400)) {
		d->write_errs = 1;
		return;
	}
	d->flush_errs = 1;
	d->flush_err_loses = rng_chance(&s->rng, 600);
}

void rebuild_strike(struct sim *s, enum fault f)
{
	struct planner *p = &s->planner;
	uint32_t m = struck_member(s), disk = s->checks.disk_of[m];

	trace(s, "f  member %u is struck in its %s rebuild", m,
	      s->checks.map.member[m].flags & MEMBER_F_PARTIAL ? "partial" : "full");
	stats_fault(s, s->checks.map.member[m].flags & MEMBER_F_PARTIAL ? F_PARTIAL_STRUCK
									: F_FULL_STRUCK);
	if (f == F_REBUILD_ERROR)
		err(s, &s->disk[disk]);
	else if (f == F_REBUILD_POWER || (f == F_REBUILD_DEATH && rng_chance(&s->rng, 500)))
		lose_power(s, disk);
	else
		break_off(s, disk);
	if (f != F_REBUILD_ERROR && f != F_REBUILD_DEATH)
		stats_fault(s, f);
	if (f == F_REBUILD_DEATH)
		sim_at(s, rng_range(&s->rng, 0, rng_chance(&s->rng, 500) ? 8 * MS : 120 * MS),
		       on_death, rng_chance(&s->rng, p->at_promotion ? 600 : 250), 0, NULL);
	if (rng_chance(&s->rng, 300)) {
		p->armed = f;
		rebuild_arm(s);
	} else if (rng_chance(&s->rng, 300)) {
		p->armed = F_LEADER_IN_REBUILD;
		rebuild_arm(s);
		p->at_promotion = false;
	}
}
