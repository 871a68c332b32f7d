/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The faults. Each one starts something and, where it ends by itself, plans its end.
 *
 * What the contract allows bounds what is done: never is the data of more than m members put at
 * risk at once (may_lose), but for F_CLUSTER_POWER, where the oracle knows what may come back.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/faults/halfopen.h"
#include "tests/sim/world.h"

static struct simnode *pick_node(struct sim *s, bool with_daemon)
{
	uint32_t i = rng_below(&s->rng, s->o.nodes);

	for (uint32_t k = 0; k < s->o.nodes; k++, i = (i + 1) % s->o.nodes) {
		struct simnode *n = &s->node[i];

		if (n->powered && !n->frozen && !n->stopped && (n->proc || !with_daemon))
			return n;
	}
	return NULL;
}

/* Every member is in sync and nothing threatens one, `but` aside. in_change: a proposal may be
 * under way, in which all are in sync as well. */
static bool all_well(const struct sim *s, uint32_t but, bool in_change)
{
	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (s->checks.member_of[i] == NONE || i == but)
			continue;
		if (d->spot_hit_us && s->now < d->spot_hit_us + 300 * MS)
			return false;
		if (d->full_hit_us && s->now < d->full_hit_us + 300 * MS)
			return false; /* it may be about to leave */
		if (s->checks.lossy[i] || d->cache_lost || d->read_errs || d->write_errs ||
		    d->flush_errs || d->dead || !d->powered || d->hidden)
			return false;
		/* Of a leader that died before anybody heard its commit: it may count. */
		if (d->sb_valid && epoch_cmp(&d->sb.map.epoch, &s->checks.map.epoch) > 0 &&
		    map_degraded(&d->sb.map))
			return false;
	}
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if ((s->node[i].st.proposing &&
		     (!in_change || map_degraded(&s->node[i].st.proposed))) ||
		    s->node[i].st.unusable)
			return false;
	return s->checks.map_full && s->now > s->planner.cluster_down_until &&
	       !operator_is_failing(s);
}

static bool others_well(const struct sim *s, uint32_t but)
{
	return all_well(s, but, false);
}

static bool may_lose(const struct sim *s)
{
	return others_well(s, NONE);
}

bool fault_may_lose_in_change(const struct sim *s)
{
	return all_well(s, NONE, true);
}

/* An error that waits for its request: another member may have gone meanwhile. */
bool fault_may_strike(const struct sim *s, uint32_t disk)
{
	if (s->checks.member_of[disk] == NONE)
		return true;
	if (s->disk[disk].err_in_change)
		return all_well(s, disk, true) && stats_in_state(s, CS_PROPOSING);
	return s->disk[disk].err_in_rebuild ? rebuild_may_err(s, disk) : others_well(s, disk);
}

static uint32_t member_disk(struct sim *s)
{
	return s->checks.disk_of[rng_below(&s->rng, s->geo.n)];
}

static uint32_t spare_disk(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->checks.member_of[i] == NONE && !s->disk[i].dead && !s->disk[i].sb_valid)
			return i;
	return NONE;
}

bool fault_fits(const struct sim *s, enum fault f)
{
	bool many = s->o.nodes > 2 || s->o.two_node;

	switch (f) {
	case F_PARTITION:
	case F_QUORUM_LOST:
	case F_SOLO_MSG:
	case F_SOLO_MSG_CRASH:
	case F_FREEZE_LONG:
	case F_STOPPED:
	case F_LEADER_IN_RECOVERY:
	case F_LEADER_IN_JOIN:
		return many;
	case F_PARTITION3:
		return s->o.nodes >= 3;
	case F_EXPORTER_POWER:
	case F_FLUSH_ERROR_LOST:
		return may_lose(s) && !s->copy.stands; /* that would be two faults */
	case F_READ_ERROR:
	case F_WRITE_ERROR:
	case F_FLUSH_ERROR_KEPT:
	case F_DISCONNECT_ONE:
	case F_DISCONNECT_ALL:
	case F_DISCONNECT_LONG:
	case F_ADMIN_FAIL:
	case F_LEADER_IN_CHANGE:
	case F_LEADER_IN_REBUILD:
	case F_POWER_IN_CHANGE:
		return may_lose(s);
	case F_LEADER_ALONE:
		return many && may_lose(s);
	case F_REBUILD_BREAK:
	case F_REBUILD_ERROR:
	case F_REBUILD_POWER:
	case F_REBUILD_DEATH: /* else it waits for the rebuild that is to come anyway */
		return s->planner.armed == F_COUNT && (may_lose(s) || !s->checks.map_full);
	case F_DISK_DEAD:
		return may_lose(s) && s->planner.deaths < 2 && spare_disk(s) != NONE;
	case F_SWITCH_FLAP:
		return may_lose(s);
	case F_STALE_START:
		return !s->checks.map_full && s->now > s->planner.cluster_down_until;
	case F_CLUSTER_CRASH:
	case F_CLUSTER_POWER:
		return s->now > s->planner.cluster_down_until;
	default:
		return true;
	}
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static bool crash_node(struct sim *s)
{
	struct simnode *n = pick_node(s, false);

	if (!n)
		return false;
	node_crash(s, n);
	node_power_on_later(s, n, rng_range(&s->rng, 30 * MS, 2500 * MS));
	return true;
}

static bool kill_daemon(struct sim *s)
{
	struct simnode *n = pick_node(s, true);

	if (!n)
		return false;
	node_kill_daemon(s, n);
	node_start_later(s, n, rng_range(&s->rng, 1 * MS, 600 * MS));
	return true;
}

static bool freeze(struct sim *s, uint64_t lo, uint64_t hi, bool daemon_only)
{
	struct simnode *n = pick_node(s, true);

	if (!n)
		return false;
	if (daemon_only)
		node_stop_daemon(s, n, rng_range(&s->rng, lo, hi));
	else
		node_freeze(s, n, rng_range(&s->rng, lo, hi));
	return true;
}

static bool partition(struct sim *s, uint32_t parts, bool no_majority)
{
	uint32_t comp[SIM_MAX_NODES] = {0}, count[SIM_MAX_NODES] = {0};

	for (uint32_t i = 0; i < s->o.nodes; i++) {
		do {
			comp[i] = rng_below(&s->rng, parts);
		} while (no_majority && (count[comp[i]] + 1) * 2 > s->o.nodes);
		count[comp[i]]++;
	}
	for (uint32_t i = 0; i < parts; i++)
		if (!count[i])
			return false;
	group_partition(s, comp);
	group_heal_later(s, rng_range(&s->rng, 100 * MS, 1500 * MS));
	return true;
}

static void crash_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];

		if (!n->powered)
			continue;
		node_crash(s, n);
		node_power_on_later(s, n, rng_range(&s->rng, 20 * MS, 800 * MS));
	}
	s->planner.cluster_down_until = s->now + 1500 * MS;
}

/* Now it is what it was at the last connection, but not what it was before it lost power. */
static void on_break_again(struct sim *s, struct hev *ev)
{
	uint32_t disk = (uint32_t)ev->a;

	if (s->planner.healing || s->disk[disk].hidden || !s->disk[disk].powered ||
	    !s->checks.lossy[disk])
		return;
	stats_fault(s, F_POWER_THEN_BREAK);
	fault_hide(s, disk, 1 * MS + mix64(s->seed ^ s->now) % (20 * MS));
}

static void on_exporter_up(struct sim *s, struct hev *ev)
{
	struct disk *d = &s->disk[ev->a];

	if (d->powered)
		return;
	d->powered = true;
	trace(s, "w  exporter %u is back", d->idx);
	dev_try_disk(s, d->idx);
	/* Of its own randomness: what else happens does not depend on it. */
	if (mix64(s->seed ^ s->now ^ 0x62616b) % 3 == 0)
		sim_at(s, mix64(s->seed + s->now) % (100 * MS), on_break_again, d->idx, 0, NULL);
}

void fault_exporter_power(struct sim *s, uint32_t disk, uint64_t off_us, bool trusted)
{
	dev_power_loss(s, disk, trusted);
	sim_at(s, off_us, on_exporter_up, disk, 0, NULL);
}

void fault_cluster_power(struct sim *s, bool exporters)
{
	crash_all(s);
	for (uint32_t i = 0; i < s->o.disks && exporters; i++)
		if (s->disk[i].powered)
			fault_exporter_power(s, i, rng_range(&s->rng, 5 * MS, 500 * MS), true);
}

/* All exporters lose power, the nodes go on. What was answered and not flushed may be gone. */
void fault_all_exporters(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->disk[i].powered)
			fault_exporter_power(
			    s, i, 5 * MS + mix64(s->seed ^ s->now ^ i) % (300 * MS), true);
	oracle_power(s);
}

/* Best while parts of a write are through. */
static void on_exporters(struct sim *s, struct hev *ev)
{
	bool fits = !s->planner.healing && may_lose(s) && s->now > s->planner.cluster_down_until;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		fits = fits && !s->node[i].st.proposing;
	if (fits && ev->a < 200 && !front_in_parts(s)) {
		sim_at(s, 1 * MS, on_exporters, ev->a + 1, 0, NULL);
	} else if (fits) {
		stats_fault(s, F_EXPORTERS_POWER);
		fault_all_exporters(s);
	} else {
		sim_at(s, 50 * MS, on_exporters, ev->a, 0, NULL);
	}
}

/* Of its own randomness. */
void faults_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x706f776572ull);

	if (s->o.faultless || (s->cli && (s->cli->nodes == 1 || s->cli->only)) || r % 100 >= 50)
		return;
	sim_at(s, (300 + r / 100 % 3000) * MS, on_exporters, 0, 0, NULL);
}

static void on_shown(struct sim *s, struct hev *ev)
{
	s->disk[ev->a].hidden = false;
	dev_try_disk(s, (uint32_t)ev->a);
}

void fault_hide(struct sim *s, uint32_t disk, uint64_t us)
{
	s->disk[disk].hidden = true;
	dev_break_disk(s, disk, -ECONNRESET);
	sim_at(s, us, on_shown, disk, 0, NULL);
}

/* At the start some of the members in sync are late, those left behind are there. */
static bool stale_start(struct sim *s)
{
	bool stale = false;

	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t d = s->checks.disk_of[m];

		stale = stale || (s->checks.map.member[m].state != MEMBER_IN_SYNC && d != NONE &&
				  s->disk[d].powered && !s->disk[d].dead && !s->disk[d].hidden);
	}
	if (!stale)
		return false;
	crash_all(s);
	for (uint8_t m = 0; m < s->geo.n; m++)
		if (s->checks.map.member[m].state == MEMBER_IN_SYNC &&
		    s->checks.disk_of[m] != NONE && rng_chance(&s->rng, 600))
			fault_hide(s, s->checks.disk_of[m],
				   rng_range(&s->rng, 200 * MS, 1500 * MS));
	return true;
}

/* ---- disks ---------------------------------------------------------------------------------- */

static bool die(struct sim *s)
{
	struct disk *d = &s->disk[member_disk(s)];

	d->dead = true;
	d->dead_silent = rng_chance(&s->rng, 500);
	s->planner.deaths++;
	risk_harmed(s, d->idx);
	if (d->dead_silent)
		dev_break_disk(s, d->idx, -ECONNRESET);
	return true;
}

bool fault_die_in_change(struct sim *s)
{
	return s->planner.deaths < 2 && spare_disk(s) != NONE && die(s);
}

static void on_uncut(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a >> 32];
	uint32_t dev = (uint32_t)ev->a;

	if (ev->b != n->gen || !n->proc)
		return;
	n->dev[dev].cut = false;
	dev_try(s, n, dev, 1 * MS);
}

static void disconnect(struct sim *s, struct simnode *n, uint32_t dev, uint64_t us)
{
	n->dev[dev].cut = true;
	dev_break(s, n, dev, -ECONNRESET);
	sim_at(s, us, on_uncut, (uint64_t)n->idx << 32 | dev, n->gen, NULL);
}

bool fault_disconnect_one(struct sim *s, uint32_t disk)
{
	struct simnode *n = pick_node(s, true);
	uint32_t dev = n ? dev_slot_of_disk(n, disk) : NONE;

	if (dev == NONE || !n->dev[dev].up)
		return false;
	disconnect(s, n, dev, rng_range(&s->rng, 1 * MS, 700 * MS));
	return true;
}

static bool disconnect_one(struct sim *s)
{
	return fault_disconnect_one(s, member_disk(s));
}

static void on_break_too(struct sim *s, struct hev *ev)
{
	uint32_t disk = (uint32_t)ev->a;

	if (s->planner.healing || s->disk[disk].hidden || !s->disk[disk].powered)
		return;
	stats_fault(s, F_FLUSH_ERROR_BREAK);
	if (rng_chance(&s->rng, 300) || !fault_disconnect_one(s, disk))
		fault_hide(s, disk, rng_range(&s->rng, 1 * MS, 200 * MS));
}

/* Who tells of the break may come before who tells of the error. */
void fault_break_too(struct sim *s, uint32_t disk)
{
	sim_at(s, rng_range(&s->rng, 0, 4 * MS), on_break_too, disk, 0, NULL);
}

static bool flap(struct sim *s)
{
	for (uint8_t m = 0; m < s->geo.n; m++)
		if (s->checks.disk_of[m] != NONE)
			fault_hide(s, s->checks.disk_of[m], rng_range(&s->rng, 1 * MS, 200 * MS));
	return true;
}

/* Counted when it happens. */
static bool inject(struct sim *s, enum fault f)
{
	struct disk *d = &s->disk[member_disk(s)];

	if (f == F_READ_ERROR)
		d->read_errs = 1;
	else if (f == F_WRITE_ERROR)
		d->write_errs = 1;
	else
		d->flush_errs = 1;
	d->flush_err_loses = f == F_FLUSH_ERROR_LOST;
	d->err_in_rebuild = false;
	return true;
}

/* ---- armed: strike when the cluster is in the middle of something --------------------------- */

/* Something that makes the state likely in which the armed fault strikes. */
static void provoke(struct sim *s, enum fault f)
{
	switch (f) {
	case F_LEADER_IN_CHANGE:
	case F_POWER_IN_CHANGE:
		if (rng_chance(&s->rng, 400) && operator_kick(s, ADMIN_FAIL))
			break;
		if (rng_chance(&s->rng, 500))
			disconnect_one(s);
		else
			fault_hide(s, member_disk(s), rng_range(&s->rng, 10 * MS, 900 * MS));
		break;
	case F_LEADER_IN_REBUILD:
		operator_kick(s, ADMIN_FAIL);
		break;
	case F_REBUILD_BREAK:
	case F_REBUILD_ERROR:
	case F_REBUILD_POWER:
	case F_REBUILD_DEATH:
		if (!may_lose(s) || (rng_chance(&s->rng, 500) && operator_kick(s, ADMIN_FAIL)))
			break;
		fault_hide(s, member_disk(s), rng_range(&s->rng, 5 * MS, 900 * MS));
		break;
	case F_LEADER_IN_RECOVERY:
		crash_node(s);
		break;
	case F_LEADER_IN_JOIN:
		kill_daemon(s);
		break;
	default:
		break;
	}
}

static bool arm(struct sim *s, enum fault f)
{
	struct planner *p = &s->planner;

	if (p->armed != F_COUNT)
		return false;
	p->armed = f;
	p->armed_until_us = s->now + 2500 * MS;
	p->armed_countdown = 1 + rng_below(&s->rng, rng_chance(&s->rng, 500) ? 10 : 200);
	if (f == F_CRASH_STEP)
		p->armed_countdown = 1 + rng_below(&s->rng, 3000);
	if (f == F_LEADER_IN_REBUILD)
		p->armed_until_us = s->now + 5000 * MS;
	if (f >= F_REBUILD_BREAK && f <= F_REBUILD_DEATH)
		rebuild_arm(s);
	provoke(s, f);
	return true;
}

static bool arm_solo(struct sim *s, enum fault f)
{
	s->group.solo_armed = 1 + rng_below(&s->rng, 30);
	s->group.solo_crash = f == F_SOLO_MSG_CRASH;
	s->group.solo_commit = false;
	return true;
}

/*
 * R3: the leader's connection to a member breaks, it takes the member out, and answers writes that
 * lack it; and then it dies, and nobody else has seen the commit. The others reach the member.
 */
static bool leader_alone(struct sim *s)
{
	struct simnode *n = node_leader(s);
	uint32_t dev = n ? dev_slot_of_disk(n, member_disk(s)) : NONE;

	if (dev == NONE || !n->dev[dev].up || n->frozen || n->stopped)
		return false;
	disconnect(s, n, dev, rng_range(&s->rng, 20 * MS, 400 * MS));
	s->group.solo_armed = 1;
	s->group.solo_crash = s->group.solo_commit = true;
	return true;
}

bool fault_counts_itself(enum fault f)
{
	return f == F_READ_ERROR || f == F_WRITE_ERROR || f == F_FLUSH_ERROR_LOST ||
	       f == F_FLUSH_ERROR_KEPT || f == F_SOLO_MSG || f == F_SOLO_MSG_CRASH ||
	       f == F_CRASH_STEP || (f >= F_LEADER_IN_CHANGE && f <= F_POWER_IN_CHANGE) ||
	       (f >= F_REBUILD_BREAK && f <= F_LEADER_ALONE);
}

bool fault_start(struct sim *s, enum fault f)
{
	const struct opts *o = &s->o;

	switch (f) {
	case F_NODE_CRASH:
		return crash_node(s);
	case F_DAEMON_CRASH:
		return kill_daemon(s);
	case F_FREEZE:
		return freeze(s, 10 * MS, o->token_us * 9 / 10, false);
	case F_FREEZE_LONG:
		return freeze(s, o->token_us * 11 / 10, 1500 * MS, false);
	case F_STOPPED:
		return freeze(s, o->tun.evict_ms * MS * 11 / 10, o->tun.evict_ms * MS * 4, true);
	case F_PARTITION:
		return partition(s, 2, false);
	case F_PARTITION3:
		return partition(s, 3, false);
	case F_QUORUM_LOST:
		return partition(s, 3, true);
	case F_SOLO_MSG:
	case F_SOLO_MSG_CRASH:
		return arm_solo(s, f);
	case F_LEADER_ALONE:
		return leader_alone(s);
	case F_CRASH_STEP:
	case F_LEADER_IN_CHANGE:
	case F_LEADER_IN_RECOVERY:
	case F_LEADER_IN_REBUILD:
	case F_LEADER_IN_JOIN:
	case F_POWER_IN_CHANGE:
	case F_REBUILD_BREAK:
	case F_REBUILD_ERROR:
	case F_REBUILD_POWER:
	case F_REBUILD_DEATH:
	case F_QUICK_RESTART:
		return arm(s, f);
	case F_CLUSTER_CRASH:
		fault_cluster_power(s, false);
		return true;
	case F_CLUSTER_POWER:
		fault_cluster_power(s, true);
		return true;
	case F_STALE_START:
		return stale_start(s);
	case F_READ_ERROR:
	case F_WRITE_ERROR:
	case F_FLUSH_ERROR_LOST:
	case F_FLUSH_ERROR_KEPT:
		return inject(s, f);
	case F_DISK_DEAD:
		return die(s);
	case F_DISK_SLOW:
		s->disk[member_disk(s)].slow_until_us =
		    s->now + rng_range(&s->rng, 50 * MS, 900 * MS);
		return true;
	case F_DISCONNECT_ONE:
		return disconnect_one(s);
	case F_DISCONNECT_ALL:
		fault_hide(s, member_disk(s),
			   rng_range(&s->rng, 1 * MS, o->tun.member_retry_ms * MS));
		return true;
	case F_DISCONNECT_LONG:
		fault_hide(s, member_disk(s),
			   rng_range(&s->rng, o->tun.member_retry_ms * MS * 12 / 10, 1800 * MS));
		return true;
	case F_EXPORTER_POWER:
		fault_exporter_power(s, member_disk(s), rng_range(&s->rng, 5 * MS, 900 * MS),
				     false);
		return true;
	case F_SWITCH_FLAP:
		return flap(s);
	case F_ADMIN_FAIL:
		return operator_kick(s, ADMIN_FAIL);
	case F_ADMIN_STOP:
		return operator_kick(s, ADMIN_STOP);
	default:
		return false;
	}
}

void faults_heal(struct sim *s)
{
	spot_heal(s);
	full_heal(s);
	halfopen_heal(s);
	for (uint32_t i = 0; i < s->o.disks; i++) {
		struct disk *d = &s->disk[i];

		d->powered = true;
		d->hidden = false;
		d->slow_until_us = 0;
		d->read_errs = d->write_errs = d->flush_errs = 0;
		d->err_in_rebuild = d->err_in_change = false;
		dev_try_disk(s, i);
	}
	for (uint32_t i = 0; i < s->o.nodes; i++)
		node_thaw(s, &s->node[i]);
	differs_heal(s);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];

		n->cut_off = 0;
		for (uint32_t k = 0; k < DDR_MAX_DEVS; k++)
			if (n->dev[k].used && n->dev[k].cut) {
				n->dev[k].cut = false;
				dev_try(s, n, k, 1 * MS);
			}
		if (!n->powered)
			node_power_on(s, n, rng_range(&s->rng, 1 * MS, 100 * MS));
		else if (!n->proc)
			node_start_later(s, n, rng_range(&s->rng, 1 * MS, 100 * MS));
	}
	group_heal(s);
}
