/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The map and its epoch.
 *
 *   leader: Propose(map) -> every node of the round: gives up what the map drops, makes the epoch
 *   durable in its record, Ack -> leader: superblocks of the members in the new map, FUA -> Commit
 *
 * A proposal is never dropped (R3): each node keeps it until a newer one or its commit, tells it in
 * Hello, and the next leader proposes it again under a number of its own. A write that lost a
 * member is acknowledged only after the commit that took the member out (io.c looks at
 * write_musts).
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

void geo_adopt(struct engine *e)
{
	const struct superblock *sb = e->view.have_geo ? NULL : sb_confirmed(e);

	if (!sb || geo_init(&e->geo, &sb->geo, NULL))
		return;
	e->c->epochs.base = *sb;
	e->view.have_geo = true;
	devs_fit(e);
	if (dlog_alloc(e) || back_alloc(e) || slots_alloc(e)) {
		dlog_reset(e);
		back_free(e);
		e->view.have_geo = false;
		return;
	}
	/* A map that was told before anybody here could judge it. In another round it is told
	 * again, and judged. */
	if ((e->view.have_map && map_check(&e->map, &e->geo)) ||
	    (e->view.proposing && map_check(&e->view.prop, &e->geo))) {
		memset(&e->map, 0, sizeof(e->map));
		e->view.have_map = e->view.proposing = false;
		e->c->orphans.untold = true;
	}
	if (e->c->orphans.untold)
		nodemsg_join(e); /* R18: in another round all is told again */
	e->c->orphans.untold = false;
}

uint32_t map_count_insync(const struct map *m)
{
	return (uint32_t)__builtin_popcount(map_insync_mask(m));
}

void epoch_reset(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	ld->own_prop = ld->reassemble = ld->committing = false;
	memset(ld->requested, 0, sizeof(ld->requested));
	memset(ld->read_error, 0, sizeof(ld->read_error));
	memset(ld->kept_us, 0, sizeof(ld->kept_us));
	memset(ld->full, 0, sizeof(ld->full));
	ld->earlier = 0;
	e->c->epochs.acked = false;
}

/* R14: only what has to be rebuilt as a whole may forget a failed flush. Also a device that is not
 * there: when it comes back, it may be another one. */
static void flush_forget(struct engine *e, const struct map_member *mm)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		e->c->devs.dev[i].flush_failed &= !dev_failed_flush(&e->c->devs.dev[i], mm);
		e->c->devs.dev[i].was_cut &= !dev_was_cut(&e->c->devs.dev[i], mm);
	}
}

/* Who is lost within this time after it came back has not stayed. */
static uint64_t flap_us(const struct engine *e)
{
	return 15000ull * e->cfg.tun.evict_ms;
}

static void commit_drops(struct engine *e, uint8_t i)
{
	bool soon = e->c->epochs.entered_us[i] && e->now - e->c->epochs.entered_us[i] < flap_us(e);

	e->c->epochs.flaps[i] = soon ? e->c->epochs.flaps[i] + 1 : 0;
	e->c->epochs.dropped[i] = e->map.epoch.num;
	dlog_dropped(e);
	slots_dropped(e);
}

/* Whether it is here will be known before long. */
static bool member_is_looked_for(const struct engine *e, uint8_t i)
{
	uint32_t dev = e->view.dev_of[i];

	if (dev == NO_DEV)
		return devs_looking(e);
	return e->c->devs.dev[dev].up && dev_being_read(e, &e->c->devs.dev[dev]);
}

static void commit_effects(struct engine *e, const struct map *old)
{
	bool added = false, partial = false;
	uint32_t dropped = 0;

	causes_commit(e, old);
	for (uint8_t i = 0; i < e->map.n; i++) {
		bool was = i < old->n && map_write_mask(old) >> i & 1;
		bool is = map_write_mask(&e->map) >> i & 1;

		if (!is && !e->map.member[i].left)
			flush_forget(e, &e->map.member[i]);
		/* It answered with errors. Connected anew, it shows whether it has shrunk; it may
		 * have been extended when somebody brings it back (cut_note). */
		if (was && !is && member_read_error(e, i) && e->view.dev_of[i] != NO_DEV &&
		    e->c->devs.dev[e->view.dev_of[i]].up)
			out_add(e, OUT_DEV_CANCEL)->cancel.dev = e->view.dev_of[i];
		if (!is || (!was && old->n))
			e->c->members.bad[i] = 0;
		if (is && !was)
			e->c->members.error[i].err = 0;
		if (is && !was && old->n)
			e->c->epochs.entered_us[i] = e->now;
		if (is && !was && i < old->n && old->member[i].state != MEMBER_SUSPECT)
			e->c->epochs.flaps[i] = 0; /* an operator has seen to it */
		if (was && !is) {
			commit_drops(e, i);
			/* One that was being rebuilt has not got all pages yet (R11). */
			dropped |= (uint32_t)(old->member[i].state == MEMBER_IN_SYNC) << i;
		}
		if (e->map.member[i].state == MEMBER_IN_SYNC || (is && !was && !e->view.slot_owned))
			slots_told_forget(
			    e, i); /* not before: it may break off, and come back as it was */
		if (!is)
			back_dropped(e, i);
		if (!is && e->map.member[i].state != MEMBER_SUSPECT)
			e->c->devs.lacked[i] = 0; /* an operator is going to see to it */
		/* Its rebuild ends at once: nobody may look after it before the next one begins. */
		if (!is && e->c->rebuild.state != RB_IDLE && e->c->rebuild.member == i)
			rebuild_reset(e);
		if (is && !was)
			added = true;
		if (e->map.member[i].state == MEMBER_REBUILDING)
			partial |= e->map.member[i].flags & MEMBER_F_PARTIAL;
		if (e->map.member[i].state != MEMBER_SUSPECT)
			e->c->epochs.lost_us[i] = 0;
		else if (!e->c->epochs.lost_us[i])
			e->c->epochs.lost_us[i] = e->now;
	}
	if (leading(e) && e->c->lead.slot)
		slots_told_committed(e, old, dropped);
	devs_bind(e);
	devs_look_again(e);
	/* What was in before and isn't reached yet, devs_advance gives some time. */
	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_write_mask(&e->map) >> i & 1 && old->n && !(map_write_mask(old) >> i & 1) &&
		    !member_usable(e, i) && !is_observer(e) && !member_is_looked_for(e, i))
			member_bad(e, i, MEMBER_SUSPECT);
	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_write_mask(&e->map) >> i & 1 && old->n && !(map_write_mask(old) >> i & 1))
			member_entered(e, i);
	if (!map_degraded(&e->map))
		dlog_release_missed(e);
	if (added)
		dlog_rewrite_all(e);
	if (partial)
		slot_tell_missed(e);
}

/* This node goes by the map from now on. */
void epoch_adopt(struct engine *e, const struct map *m)
{
	struct map old = e->map;

	e->map = *m;
	e->view.have_map = true;
	if (e->view.proposing && epoch_cmp(&e->view.prop.epoch, &m->epoch) <= 0)
		e->view.proposing = false;
	commit_effects(e, &old);
	if (!old.n)
		devs_lost_tell(e);
}

static void gone_prune(struct engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->c->departures.count; i++)
		if (!e->c->departures.list[i].fenced)
			e->c->departures.list[n++] = e->c->departures.list[i];
		else
			fence_settled(e, e->c->departures.list[i].node,
				      e->c->departures.list[i].inc);
	e->c->departures.count = n;
	record_removed(e);
}

/*
 * R17: more than m members were lost for a while, and are back. Those in sync are used again from
 * the proposal on (its superblocks go to them), and what each may have lost from its cache is
 * parity again once all regions that are dirty here have been checked, and those of dead slots
 * resynced, also where that was done and not flushed yet. One that is being rebuilt begins anew
 * from its last checkpoint: what was copied since is in no FLUSH. But for one that the proposal
 * promotes: that has flushed all of it, and is one of those in sync.
 */
void reassemble(struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (e->c->members.bad[i] == MEMBER_SUSPECT && member_back(e, i) &&
		    e->view.prop.member[i].state == MEMBER_IN_SYNC)
			e->c->members.bad[i] = 0; /* R14: not what answered with an error */
	regions_doubt(e);
	slots_doubt(e);
	if (e->c->rebuild.state != RB_PROMOTE ||
	    e->view.prop.member[e->c->rebuild.member].state != MEMBER_IN_SYNC)
		rebuild_reset(e);
}

uint64_t epoch_seen(const struct engine *e)
{
	uint64_t num = e->view.have_map ? e->map.epoch.num : 0;

	if (e->c->records.want.acked.num > num)
		num = e->c->records.want.acked.num;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].sb_ok && e->c->devs.dev[i].sb.map.epoch.num > num)
			num = e->c->devs.dev[i].sb.map.epoch.num;
	return num;
}

/*
 * What no leader proposes to a node that serves, for that has seen the map before. A member that
 * was given up has to be rebuilt, and that be committed, before it is in sync; and so has a device
 * that takes a member's place. Several proposals may have been superseded in between, so other
 * moves may be two in one.
 */
static const char *propose_odd(const struct engine *e, const struct map *map)
{
	if (e->state != ENGINE_ACTIVE)
		return NULL;
	if (map->epoch.num > epoch_seen(e) + 2 * EPOCH_AHEAD_MAX)
		return "proposes an epoch that is far ahead";
	for (uint8_t i = 0; i < map->n && i < e->map.n; i++) {
		const struct map_member *was = &e->map.member[i], *is = &map->member[i];

		if (is->state == MEMBER_IN_SYNC &&
		    (was->state == MEMBER_MISSING || was->state == MEMBER_FAULTY))
			return "takes a member for in sync that was not rebuilt";
		if (memcmp(is->uuid, was->uuid, DDR_UUID_BYTES) &&
		    (is->state == MEMBER_IN_SYNC || is->flags & MEMBER_F_PARTIAL))
			return "takes another device for a member";
	}
	return NULL;
}

/*
 * A member that is to enter has broken off since this node told that it reaches it, and this node
 * is the one that knows what the member must carry of orphan slots. It is compared first: from
 * its entry on the leader writes these slots there, and nothing tells any more.
 */
static void entries_hold(struct engine *e)
{
	uint32_t enter = map_write_mask(&e->view.prop) & ~map_write_mask(&e->map);

	for (; enter; enter &= enter - 1) {
		uint8_t m = (uint8_t)__builtin_ctz(enter);
		const struct dev *d =
		    e->view.dev_of[m] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[m]];

		if (slots_told(e, m) && !(d && d->up && !d->back.due))
			member_bad(e, m, MEMBER_SUSPECT);
	}
}

static void take_propose(struct engine *e, uint32_t from, const nodemsg *m)
{
	const char *odd;
	struct map map;

	if (from != e->c->round.leader || !pb_map_read(&map, m->propose->map) ||
	    (e->view.have_map && epoch_cmp(&map.epoch, &e->map.epoch) <= 0))
		return;
	odd = propose_odd(e, &map);
	if (odd) {
		msg_rejected(e, peer_find(e, from), m->inc, odd, true);
		return;
	}
	if (from != e->cfg.node)
		TRACE(e, "hears that node %u proposes epoch %llu", from,
		      (unsigned long long)map.epoch.num);
	e->view.prop = map;
	cause_hear(e->c->epochs.prop_cause, m->propose->n_cause, m->propose->cause);
	if (!e->view.proposing)
		e->c->epochs.proposing_us = e->now;
	e->view.proposing = true;
	e->c->epochs.acked = false;
	e->c->records.want.acked = map.epoch;
	devs_bind(e);
	entries_hold(e);
	if (m->propose->reassemble)
		reassemble(e);
	for (uint8_t i = 0; i < map.n; i++)
		if (!(map_write_mask(&map) >> i & 1))
			member_ios_cancel(e, i);
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		e->c->round.peer[i].acked = false;
}

static void take_commit(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct lead *ld = &e->c->lead;

	if (from != e->c->round.leader || !e->view.proposing ||
	    !epoch_is(m->commit->epoch, &e->view.prop.epoch))
		return;
	/* All see each Ack, and the leader saw them before it sent this. */
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		if (!e->c->round.peer[i].member || e->c->round.peer[i].acked)
			continue;
		msg_rejected(e, peer_find(e, from), m->inc,
			     "commits what a node has not acknowledged", true);
		return;
	}
	TRACE(e, "epoch %llu is committed: its map counts from now on",
	      (unsigned long long)e->view.prop.epoch.num);
	e->c->epochs.committed = e->c->records.want.committed = e->view.prop.epoch;
	lineage_add(&e->c->assembly.past, &e->c->epochs.committed);
	epoch_adopt(e, &e->view.prop);
	quiesce_end(e);
	if (from == e->cfg.node)
		e->c->epochs.judged = true; /* when it assembled the array */
	else if (!e->c->epochs.judged)
		devs_judge(e);
	e->c->departures.uncommitted = false;
	gone_prune(e);
	departed_committed(e);
	if (from == e->cfg.node) {
		ld->own_prop = ld->need_epoch = ld->committing = false;
		e->c->leave.seals -= e->c->leave.seals > 0;
	}
}

/* Leader: a node can't use member i; the worst that anybody says counts. A read error is the least
 * of all, and no reason at all if the map can't do without the member. */
void epoch_want_out(struct engine *e, uint32_t i, uint32_t want, bool read_error, bool earlier,
		    const struct member_cause *c)
{
	struct lead *ld = &e->c->lead;
	uint8_t had = ld->read_error[i] ? 0 : ld->requested[i];

	if (want >= MEMBER_SUSPECT && !read_error && !earlier)
		ld->earlier &= ~(1u << i);
	if (want < MEMBER_SUSPECT || want > MEMBER_FAULTY ||
	    (read_error && (ld->requested[i] || member_indispensable(e, (uint8_t)i))) ||
	    (want <= had && had != MEMBER_REBUILDING))
		return;
	ld->read_error[i] = read_error;
	ld->earlier = (ld->earlier & ~(1u << i)) | (uint32_t)earlier << i;
	want_set(e, i, (enum member_state)want, c);
}

static void take_report(struct engine *e, struct peer *p, const nodemsg *m)
{
	struct member_cause cause[DDR_MAX_MEMBERS];
	uint32_t i = m->report->member;

	if (!leading(e) || i >= e->map.n)
		return;
	p->up_mask &= ~(1u << i); /* its next heartbeat says what has become of it */
	if (m->report->read_error && member_indispensable(e, (uint8_t)i))
		e->c->lead.kept_us[i] = e->now;
	cause_hear(cause, m->report->n_cause, m->report->cause);
	epoch_want_out(e, i, m->report->state, m->report->read_error, m->report->earlier,
		       &cause[i]);
}

void epoch_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct peer *p = peer_find(e, from);

	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_PROPOSE:
		take_propose(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_ACK:
		if (e->view.proposing && epoch_is(m->ack->epoch, &e->view.prop.epoch))
			p->acked = true;
		break;
	case DDRAID__NODE_MSG__BODY_COMMIT:
		take_commit(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_REPORT:
		take_report(e, p, m);
		break;
	}
}

/* ---- every node ----------------------------------------------------------------------------- */

static bool ack_ready(struct engine *e)
{
	uint32_t drops = map_write_mask(&e->map) & ~map_write_mask(&e->view.prop);

	if (epoch_cmp(&e->c->records.durable.acked, &e->view.prop.epoch))
		return false;
	for (uint8_t i = 0; i < e->view.prop.n; i++)
		if (drops >> i & 1 && member_ios(e, i))
			return false;                   /* cancelled, but not yet ended */
	return !epoch_promotes(e) || dlog_rewritten(e); /* R11 */
}

static bool flush_failed(const struct engine *e, const struct map_member *mm)
{
	for (uint32_t d = 0; d < e->c->devs.count; d++)
		if (dev_failed_flush(&e->c->devs.dev[d], mm)) /* also while it is away */
			return true;
	return false;
}

static bool flush_failed_or_cut(const struct engine *e, const struct map_member *mm)
{
	return flush_failed(e, mm) || member_cut(e, mm);
}

/* What is too small may as well be another device, to which this node's way leads: who can't use
 * the array says nothing of it. The others see the member themselves. */
static bool cut_untold(const struct engine *e, const struct map_member *mm)
{
	return is_observer(e) && !flush_failed(e, mm);
}

/* The state that this node wants for a member of the map, 0 = it can use it. */
uint8_t bad_told(const struct engine *e, const struct map *m, uint8_t i)
{
	if (!flush_failed_or_cut(e, &m->member[i]))
		return e->c->members.bad[i];
	return cut_untold(e, &m->member[i]) ? MEMBER_SUSPECT : MEMBER_FAULTY;
}

/*
 * What this node has to say of a member, 0 = nothing. R14: one that failed a flush here may have
 * left the map for another reason before that was told; it must not come back partially. The same
 * goes for one whose device was cut off: if it is extended again, what lay there reads as zeroes,
 * and no missed set knows of it. It has left the map by then, so this takes nothing from anybody.
 */
static uint8_t to_report(const struct engine *e, const struct map *m, uint8_t i)
{
	const struct map_member *mm = &m->member[i];

	if (map_write_mask(m) >> i & 1)
		return bad_told(e, m, i);
	if (mm->left && mm->state != MEMBER_FAULTY && flush_failed_or_cut(e, mm) &&
	    !cut_untold(e, mm))
		return MEMBER_FAULTY;
	return 0;
}

/* Somebody must know it before this node leaves. */
bool flush_error_untold(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].flush_failed && !e->view.have_map)
			return true; /* of which member only a map can tell */
	for (uint8_t i = 0; i < e->map.n; i++)
		if (flush_failed(e, &e->map.member[i]) && to_report(e, &e->map, i) == MEMBER_FAULTY)
			return true;
	return false;
}

static void report_advance(struct engine *e)
{
	const struct map *m = e->view.proposing ? &e->view.prop : &e->map;

	for (uint8_t i = 0; i < m->n; i++) {
		uint8_t state = to_report(e, m, i);
		NODEMSG(msg, b, REPORT, Report, report);
		struct pb_causes causes = {.count = 0};
		struct member_cause cause;

		/* Who can't use the array does not take it from the others; what it alone has seen
		 * it tells in Hello, where they may all be gone (R17). */
		if (!state || (state == MEMBER_SUSPECT && is_observer(e)) ||
		    (e->c->members.bad_us[i] && e->now - e->c->members.bad_us[i] < REPORT_AGAIN_US))
			continue;
		e->c->members.bad_us[i] = e->now;
		b.member = i;
		b.state = state;
		b.read_error = state == MEMBER_MISSING && member_read_error(e, i);
		b.earlier = state == MEMBER_SUSPECT && member_lost_earlier(e, i);
		cause_own(e, i, state, &cause);
		cause_tell(&causes, i, &cause);
		b.n_cause = causes.count;
		b.cause = causes.ptr;
		msg_send(e, &msg);
	}
}

void epoch_advance(struct engine *e)
{
	if (e->view.phase < PH_STATE || e->state == ENGINE_REMOVED)
		return;
	report_advance(e);
	if (e->view.proposing && !e->c->epochs.acked && ack_ready(e)) {
		Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
		NODEMSG(m, b, ACK, Ack, ack);

		ep.num = e->view.prop.epoch.num;
		ep.inc = e->view.prop.epoch.inc;
		b.epoch = &ep;
		e->c->epochs.acked = true;
		msg_send(e, &m);
	}
}
