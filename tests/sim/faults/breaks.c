/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Faults of members in the midst of a change of the map, while one is missing, and while one is
 * rebuilt: where the planner strikes none (faults.c, may_lose).
 *
 *   lossless   connections break, of one node, of all, of all members; an administrator fails one.
 *              No member that the data needs has lost anything: it was only out of reach for a
 *              while, so the array waits, and goes on with all that was ever answered.
 *   lossy      a member dies, errs or loses its cache while a proposal is under way that has all
 *              members in sync: one is lost then, as at any other time; or all exporters lose
 *              power.
 *   nodes      the leader dies, or all nodes, with a proposal under way in the midst of a rebuild.
 *
 * The draws are from a stream of their own: what happens before the first strike is as without.
 */
#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define STRIKES 4u
#define ERROR_US (20 * MS) /* so long an injected error waits for its request */

static bool uses(const struct map *map, uint32_t m)
{
	return m < map->n && map->member[m].state == MEMBER_IN_SYNC;
}

/* Somebody reads from it, or is about to. */
static bool in_use(const struct sim *s, uint32_t m)
{
	if (uses(&s->checks.map, m))
		return true;
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct simnode *n = &s->node[i];

		if (n->proc &&
		    (uses(&n->st.map, m) || (n->st.proposing && uses(&n->st.proposed, m))))
			return true;
	}
	return false;
}

/* Nothing has befallen a member in use but a broken connection. */
bool breaks_unharmed(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (s->checks.member_of[i] == NONE || !in_use(s, s->checks.member_of[i]))
			continue;
		if (d->dead || !d->powered || d->cache_lost || s->checks.harmed[i] ||
		    d->read_errs || d->write_errs || d->flush_errs)
			return false;
	}
	return s->now > s->planner.cluster_down_until && !operator_is_failing(s);
}

static uint32_t disk_in_sync(struct sim *s)
{
	uint32_t m = rng_below(&s->rng, s->geo.n);

	for (uint32_t i = 0; i < s->geo.n && !uses(&s->checks.map, m); i++)
		m = (m + 1) % s->geo.n;
	return s->checks.disk_of[m];
}

static enum fault break_one(struct sim *s)
{
	uint64_t retry_us = s->o.tun.member_retry_ms * MS;
	uint32_t dice = rng_below(&s->rng, 100), disk = disk_in_sync(s);

	if (dice < 30)
		return fault_disconnect_one(s, disk) ? F_DISCONNECT_ONE : F_COUNT;
	if (dice < 55) {
		fault_hide(s, disk, rng_range(&s->rng, 1 * MS, retry_us));
		return F_DISCONNECT_ALL;
	}
	if (dice < 70) {
		fault_hide(s, disk, rng_range(&s->rng, retry_us * 12 / 10, 1800 * MS));
		return F_DISCONNECT_LONG;
	}
	if (dice < 85)
		return fault_start(s, F_SWITCH_FLAP) ? F_SWITCH_FLAP : F_COUNT;
	return fault_start(s, F_ADMIN_FAIL) ? F_ADMIN_FAIL : F_COUNT;
}

static void on_error_over(struct sim *s, struct hev *ev)
{
	struct disk *d = &s->disk[ev->a];

	if (d->err_in_change)
		d->read_errs = 0;
	d->err_in_change = false;
}

static enum fault lose_one(struct sim *s)
{
	uint32_t dice = rng_below(&s->rng, 100), disk = disk_in_sync(s);

	if (dice < 35) { /* counted when it happens */
		s->disk[disk].read_errs = 1;
		s->disk[disk].err_in_change = true;
		sim_at(s, ERROR_US, on_error_over, disk, 0, NULL);
		return F_COUNT;
	}
	if (dice < 65) {
		fault_exporter_power(s, disk, rng_range(&s->rng, 5 * MS, 900 * MS), false);
		return F_EXPORTER_POWER;
	}
	if (dice < 85) {
		fault_all_exporters(s);
		return F_EXPORTERS_POWER;
	}
	return fault_die_in_change(s) ? F_DISK_DEAD : F_COUNT;
}

static enum fault die_in_rebuild(struct sim *s)
{
	struct simnode *leader = node_leader(s);

	if (rng_chance(&s->rng, 500)) {
		fault_cluster_power(s, rng_chance(&s->rng, 500));
		return F_POWER_IN_CHANGE;
	}
	node_crash(s, leader);
	node_power_on_later(s, leader, rng_range(&s->rng, 30 * MS, 2000 * MS));
	return F_LEADER_IN_CHANGE;
}

static bool fits(struct sim *s, enum breaks_kind kind)
{
	const struct simnode *leader;

	if (kind == BREAKS_LOSSLESS)
		return breaks_unharmed(s);
	if (kind == BREAKS_LOSSY)
		return fault_may_lose_in_change(s) && !s->copy.stands; /* would be two */
	leader = node_leader(s);
	return leader && leader->st.proposing && stats_in_state(s, CS_REBUILDING) &&
	       s->now > s->planner.cluster_down_until;
}

static void draw(struct sim *s, struct breaks *b)
{
	static const enum cluster_state states[] = {CS_PROPOSING, CS_PROPOSING, CS_REBUILDING,
						    CS_DEGRADED};

	b->at_us = s->now + rng_range(&b->rng, 50 * MS, 1500 * MS);
	b->state = states[rng_below(&b->rng, 4)];
	b->kind = BREAKS_LOSSLESS;
	if (b->state == CS_PROPOSING && rng_chance(&b->rng, 600))
		b->kind = rng_chance(&b->rng, 600) ? BREAKS_LOSSY : BREAKS_NODES;
	b->countdown = 1 + rng_below(&b->rng, b->state == CS_PROPOSING ? 60 : 400);
}

void breaks_event(struct sim *s)
{
	struct breaks *b = &s->breaks;
	struct rng others;
	enum fault f;

	if (!b->left || s->now < b->at_us || s->planner.healing || !stats_in_state(s, b->state) ||
	    !fits(s, b->kind) || --b->countdown)
		return;
	b->left--;
	others = s->rng;
	s->rng = b->rng;
	stats_look(s);
	f = b->kind == BREAKS_LOSSLESS ? break_one(s)
	    : b->kind == BREAKS_LOSSY  ? lose_one(s)
				       : die_in_rebuild(s);
	if (f != F_COUNT) {
		trace(s, "f  %s", fault_name[f]);
		stats_fault(s, f);
		s->planner.done++;
	}
	stats_look_end(s);
	b->rng = s->rng;
	s->rng = others;
	draw(s, b);
}

void breaks_init(struct sim *s)
{
	struct breaks *b = &s->breaks;

	rng_seed(&b->rng, mix64(s->seed ^ 0x627265616bull));
	if (s->o.faultless || (s->cli && (s->cli->nodes == 1 || s->cli->only)) ||
	    !rng_chance(&b->rng, 400))
		return;
	b->left = 1 + rng_below(&b->rng, STRIKES);
	draw(s, b);
}
