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
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "msg.h"

#define REPORT_AGAIN_US 300000ull

void geo_adopt(struct engine *e)
{
	const struct superblock *sb = e->have_geo ? NULL : sb_confirmed(e);

	if (!sb || geo_init(&e->geo, &sb->geo, NULL))
		return;
	e->base = *sb;
	e->have_geo = true;
	devs_fit(e);
	if (dlog_alloc(e) || slots_alloc(e)) {
		e->have_geo = false;
		return;
	}
	/* A map that was told before anybody here could judge it. In another round it is told
	 * again, and judged. */
	if ((e->have_map && map_check(&e->map, &e->geo)) ||
	    (e->proposing && map_check(&e->prop, &e->geo))) {
		memset(&e->map, 0, sizeof(e->map));
		e->have_map = e->proposing = false;
		e->dirty_untold = true;
	}
	if (e->dirty_untold)
		nodemsg_join(e); /* R18: in another round all is told again */
	e->dirty_untold = false;
}

uint32_t map_count_insync(const struct map *m)
{
	return (uint32_t)__builtin_popcount(map_insync_mask(m));
}

void epoch_reset(struct engine *e)
{
	e->ld.own_prop = e->ld.revive = e->ld.committing = false;
	memset(e->ld.wanted, 0, sizeof(e->ld.wanted));
	memset(e->ld.misread, 0, sizeof(e->ld.misread));
	memset(e->ld.kept_us, 0, sizeof(e->ld.kept_us));
	memset(e->ld.full, 0, sizeof(e->ld.full));
	e->ld.earlier = 0;
	e->acked_proposal = false;
}

/* R14: only what has to be rebuilt as a whole may forget a failed flush. Also a device that is not
 * there: when it comes back, it may be another one. */
static void flush_forget(struct engine *e, const struct map_member *mm)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		e->dev[i].flush_failed &= !dev_failed_flush(&e->dev[i], mm);
		e->dev[i].was_cut &= !dev_was_cut(&e->dev[i], mm);
	}
}

static void commit_effects(struct engine *e, const struct map *old)
{
	bool added = false, partial = false;

	for (uint8_t i = 0; i < e->map.n; i++) {
		bool was = i < old->n && map_write_mask(old) >> i & 1;
		bool is = map_write_mask(&e->map) >> i & 1;

		if (!is && !e->map.member[i].left)
			flush_forget(e, &e->map.member[i]);
		/* It answered with errors. Connected anew, it shows whether it has shrunk; it may
		 * have been extended when somebody brings it back (cut_note). */
		if (was && !is && member_misread(e, i) && e->dev_of[i] != NO_DEV &&
		    e->dev[e->dev_of[i]].up)
			out_add(e, OUT_DEV_CANCEL)->cancel.dev = e->dev_of[i];
		if (!is || (!was && old->n))
			e->bad[i] = 0;
		if (is && !was)
			e->error[i].err = 0;
		if (was && !is)
			e->dropped[i] = e->map.epoch.num;
		if (!is && e->map.member[i].state != MEMBER_SUSPECT)
			e->lacked[i] = 0; /* an operator is going to see to it */
		/* Its rebuild ends at once: nobody may look after it before the next one begins. */
		if (!is && e->rb.state != RB_IDLE && e->rb.member == i)
			rebuild_reset(e);
		if (is && !was)
			added = true;
		if (e->map.member[i].state == MEMBER_REBUILDING)
			partial |= e->map.member[i].flags & MEMBER_F_PARTIAL;
		if (e->map.member[i].state != MEMBER_SUSPECT)
			e->lost_us[i] = 0;
		else if (!e->lost_us[i])
			e->lost_us[i] = e->now;
	}
	devs_bind(e);
	devs_look_again(e);
	/* What was in before and isn't reached yet, devs_advance gives some time. */
	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_write_mask(&e->map) >> i & 1 && old->n && !(map_write_mask(old) >> i & 1) &&
		    !member_usable(e, i) && !aside(e) &&
		    !(e->dev_of[i] == NO_DEV && devs_looking(e)))
			member_bad(e, i, MEMBER_SUSPECT);
	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_write_mask(&e->map) >> i & 1 && old->n && !(map_write_mask(old) >> i & 1))
			member_entered(e, i);
	if (!map_degraded(&e->map))
		dlog_release_missed(e);
	if (added)
		dlog_rewrite_all(e);
	if (partial)
		dlog_tell_missed(e);
}

/* This node goes by the map from now on. */
void epoch_adopt(struct engine *e, const struct map *m)
{
	struct map old = e->map;

	e->map = *m;
	e->have_map = true;
	if (e->proposing && epoch_cmp(&e->prop.epoch, &m->epoch) <= 0)
		e->proposing = false;
	commit_effects(e, &old);
	if (!old.n)
		devs_lost_tell(e);
}

static void gone_prune(struct engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->gone_count; i++)
		if (!e->gone[i].fenced)
			e->gone[n++] = e->gone[i];
		else
			fence_settled(e, e->gone[i].node, e->gone[i].inc);
	e->gone_count = n;
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
static void revive(struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (e->bad[i] == MEMBER_SUSPECT && member_back(e, i) &&
		    e->prop.member[i].state == MEMBER_IN_SYNC)
			e->bad[i] = 0; /* R14: not what answered with an error */
	list_for_each(it, tmp, &e->regions) region_doubt(list_entry(it, struct region, all));
	slots_doubt(e);
	if (e->rb.state != RB_PROMOTE || e->prop.member[e->rb.member].state != MEMBER_IN_SYNC)
		rebuild_reset(e);
}

uint64_t epoch_seen(const struct engine *e)
{
	uint64_t num = e->have_map ? e->map.epoch.num : 0;

	if (e->want_record.acked.num > num)
		num = e->want_record.acked.num;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->dev[i].sb_ok && e->dev[i].sb.map.epoch.num > num)
			num = e->dev[i].sb.map.epoch.num;
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

static void take_propose(struct engine *e, uint32_t from, const nodemsg *m)
{
	const char *odd;
	struct map map;

	if (from != e->leader || !pb_map_read(&map, m->propose->map) ||
	    (e->have_map && epoch_cmp(&map.epoch, &e->map.epoch) <= 0))
		return;
	odd = propose_odd(e, &map);
	if (odd) {
		msg_rejected(e, peer_find(e, from), m->inc, odd, true);
		return;
	}
	e->prop = map;
	if (!e->proposing)
		e->proposing_us = e->now;
	e->proposing = true;
	e->acked_proposal = false;
	e->want_record.acked = map.epoch;
	devs_bind(e);
	if (m->propose->revive)
		revive(e);
	for (uint8_t i = 0; i < map.n; i++)
		if (!(map_write_mask(&map) >> i & 1) && e->dev_of[i] != NO_DEV &&
		    e->dev[e->dev_of[i]].under_way)
			out_add(e, OUT_DEV_CANCEL)->cancel.dev = e->dev_of[i];
	for (uint32_t i = 0; i < e->peer_count; i++)
		e->peer[i].acked = false;
}

static void take_commit(struct engine *e, uint32_t from, const nodemsg *m)
{
	if (from != e->leader || !e->proposing || !epoch_is(m->commit->epoch, &e->prop.epoch))
		return;
	/* All see each Ack, and the leader saw them before it sent this. */
	for (uint32_t i = 0; i < e->peer_count; i++) {
		if (!e->peer[i].member || e->peer[i].acked)
			continue;
		msg_rejected(e, peer_find(e, from), m->inc,
			     "commits what a node has not acknowledged", true);
		return;
	}
	e->committed = e->want_record.committed = e->prop.epoch;
	lineage_add(&e->past, &e->committed);
	epoch_adopt(e, &e->prop);
	quiet_end(e);
	if (from == e->cfg.node)
		e->judged = true; /* when it assembled the array */
	else if (!e->judged)
		devs_judge(e);
	gone_prune(e);
	departed_committed(e);
	if (from == e->cfg.node) {
		e->ld.own_prop = e->ld.need_epoch = e->ld.committing = false;
		e->seals -= e->seals > 0;
	}
}

/* Leader: a node can't use member i; the worst that anybody says counts. A read error is the least
 * of all, and no reason at all if the map can't do without the member. */
void epoch_want_out(struct engine *e, uint32_t i, uint32_t want, bool misread, bool earlier)
{
	uint8_t had = e->ld.misread[i] ? 0 : e->ld.wanted[i];

	if (want >= MEMBER_SUSPECT && !misread && !earlier)
		e->ld.earlier &= ~(1u << i);
	if (want < MEMBER_SUSPECT || want > MEMBER_FAULTY ||
	    (misread && (e->ld.wanted[i] || member_indispensable(e, (uint8_t)i))) ||
	    (want <= had && had != MEMBER_REBUILDING))
		return;
	e->ld.misread[i] = misread;
	e->ld.earlier = (e->ld.earlier & ~(1u << i)) | (uint32_t)earlier << i;
	e->ld.wanted[i] = (uint8_t)want;
}

static void take_report(struct engine *e, struct peer *p, const nodemsg *m)
{
	uint32_t i = m->report->member;

	if (!leading(e) || i >= e->map.n)
		return;
	p->up_mask &= ~(1u << i); /* its next heartbeat says what has become of it */
	if (m->report->misread && member_indispensable(e, (uint8_t)i))
		e->ld.kept_us[i] = e->now;
	epoch_want_out(e, i, m->report->state, m->report->misread, m->report->earlier);
}

void epoch_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct peer *p = peer_find(e, from);

	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_PROPOSE:
		take_propose(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_ACK:
		if (e->proposing && epoch_is(m->ack->epoch, &e->prop.epoch))
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
	uint32_t drops = map_write_mask(&e->map) & ~map_write_mask(&e->prop);

	if (epoch_cmp(&e->record.acked, &e->prop.epoch))
		return false;
	for (uint8_t i = 0; i < e->prop.n; i++)
		if (drops >> i & 1 && e->dev_of[i] != NO_DEV && e->dev[e->dev_of[i]].under_way)
			return false;                   /* cancelled, but not yet ended */
	return !epoch_promotes(e) || dlog_rewritten(e); /* R11 */
}

static bool flush_failed(const struct engine *e, const struct map_member *mm)
{
	for (uint32_t d = 0; d < e->devs; d++)
		if (dev_failed_flush(&e->dev[d], mm)) /* also while it is away */
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
	return aside(e) && !flush_failed(e, mm);
}

/* The state that this node wants for a member of the map, 0 = it can use it. */
uint8_t bad_told(const struct engine *e, const struct map *m, uint8_t i)
{
	if (!flush_failed_or_cut(e, &m->member[i]))
		return e->bad[i];
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
		if (e->dev[i].flush_failed && !e->have_map)
			return true; /* of a former life; of which member only a map can tell */
	for (uint8_t i = 0; i < e->map.n; i++)
		if (flush_failed(e, &e->map.member[i]) && to_report(e, &e->map, i) == MEMBER_FAULTY)
			return true;
	return false;
}

static void report_advance(struct engine *e)
{
	const struct map *m = e->proposing ? &e->prop : &e->map;

	for (uint8_t i = 0; i < e->map.n; i++) {
		uint8_t state = to_report(e, m, i);
		NODEMSG(msg, b, REPORT, Report, report);

		/* Who can't use the array does not take it from the others; what it alone has seen
		 * it tells in Hello, where they may all be gone (R17). */
		if (!state || (state == MEMBER_SUSPECT && aside(e)) ||
		    (e->bad_us[i] && e->now - e->bad_us[i] < REPORT_AGAIN_US))
			continue;
		e->bad_us[i] = e->now;
		b.member = i;
		b.state = state;
		b.misread = state == MEMBER_MISSING && member_misread(e, i);
		b.earlier = state == MEMBER_SUSPECT && member_lost_earlier(e, i);
		msg_send(e, &msg);
	}
}

void epoch_advance(struct engine *e)
{
	if (e->phase < PH_STATE || e->state == ENGINE_REMOVED)
		return;
	report_advance(e);
	if (e->proposing && !e->acked_proposal && ack_ready(e)) {
		Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
		NODEMSG(m, b, ACK, Ack, ack);

		ep.num = e->prop.epoch.num;
		ep.inc = e->prop.epoch.inc;
		b.epoch = &ep;
		e->acked_proposal = true;
		msg_send(e, &m);
	}
}

/* ---- the leader: from a wish to a commit ---------------------------------------------------- */

static void member_leaves(const struct engine *e, struct map *next, uint8_t i, uint8_t want)
{
	struct map_member *mm = &next->member[i];

	/* R15: only a member that was in sync, or was being brought up from a missed set, can be
	 * brought up from what was missed since. R14: never after a failed flush. */
	if (want == MEMBER_FAULTY) {
		mm->left = mm->reached = 0;
	} else if (mm->state == MEMBER_IN_SYNC) {
		mm->left = next->epoch.num;
		mm->reached = e->committed.num; /* a commit's superblocks are on all members */
	} else if (mm->state == MEMBER_REBUILDING && !(mm->flags & MEMBER_F_PARTIAL)) {
		mm->left = mm->reached = 0;
	}
	mm->state = want;
	mm->flags = 0;
	mm->rebuilt_upto = 0;
}

static void member_enters(struct engine *e, struct map *next, uint8_t i)
{
	struct map_member *mm = &next->member[i];
	bool covered = mm->left && next->missed_from && mm->left >= next->missed_from;

	if (e->ld.full[i])
		memcpy(mm->uuid, e->ld.new_uuid[i], DDR_UUID_BYTES);
	mm->state = MEMBER_REBUILDING;
	mm->flags = covered && !e->ld.full[i] ? MEMBER_F_PARTIAL : 0;
	mm->rebuilt_upto = 0;
	if (!mm->flags)
		mm->left = mm->reached = 0;
}

/* Applies one wish to the next map; false if it can't be (now). */
static bool wish_apply(struct engine *e, struct map *next, uint8_t i)
{
	struct map_member *mm = &next->member[i];
	uint8_t want = e->ld.wanted[i];
	bool out = want == MEMBER_SUSPECT || want == MEMBER_MISSING || want == MEMBER_FAULTY;

	if (!map_move_legal(mm->state, want))
		return false;
	if (out && mm->state == MEMBER_IN_SYNC && map_count_insync(next) <= e->geo.k)
		return false; /* R3: never fewer than k in sync */
	if (out)
		member_leaves(e, next, i, want);
	else if (want == MEMBER_REBUILDING)
		member_enters(e, next, i);
	else {
		mm->state = MEMBER_IN_SYNC;
		mm->flags = 0;
		mm->left = mm->reached = mm->rebuilt_upto = 0;
	}
	return true;
}

static bool wish_moot(const struct map *base, uint8_t i, uint8_t want)
{
	uint8_t s = base->member[i].state;

	return s == want || !map_move_legal(s, want) ||
	       (want == MEMBER_SUSPECT && s == MEMBER_MISSING);
}

/* In the order in which members that are wanted out leave, if not all of them can. */
enum reach { REACH_AWAY, REACH_ALL, REACH_MOST, REACH_MISREAD, REACH_EARLIER, REACH_USED };

/* It answered some request with an error, and goes on answering others. */
static bool only_misread(const struct engine *e, uint8_t i)
{
	uint32_t d = e->dev_of[i];

	return e->ld.misread[i] && d != NO_DEV && e->dev[d].up && !use_fails(e, d);
}

/* All reach it. Nobody has lost it in a life that goes on. */
static enum reach reached_by_all(const struct engine *e, uint8_t i)
{
	bool earlier = e->ld.wanted[i] == MEMBER_SUSPECT && e->ld.earlier >> i & 1;

	return earlier ? REACH_EARLIER : REACH_ALL;
}

/* Of the nodes that could use the member. One that has no map yet names none. */
static enum reach member_reach(const struct engine *e, uint8_t i)
{
	uint32_t nodes = 0, lack = 0, use = 0;

	/* Its superblocks can't be read: it takes no map either, so none that keeps it is
	 * committed. */
	if (e->dev_of[i] != NO_DEV && e->dev[e->dev_of[i]].unreadable == (1u << SB_COPIES) - 1)
		return REACH_AWAY;
	if (only_misread(e, i))
		return REACH_MISREAD;
	for (uint32_t j = 0; j < e->peer_count; j++) {
		const struct peer *p = &e->peer[j];

		if (!p->member || peer_aside(e, p) || !p->raw_mask)
			continue;
		nodes++;
		lack += !(p->raw_mask >> i & 1);
		use += p->up_mask >> i & 1;
	}
	if (!nodes) { /* just assembled: no heartbeat tells of the map's members yet */
		uint32_t d = e->dev_of[i];

		return d != NO_DEV && e->dev[d].up ? reached_by_all(e, i) : REACH_AWAY;
	}
	if (use == nodes)
		return REACH_USED;
	if (!lack)
		return reached_by_all(e, i);
	return 2 * lack <= nodes ? REACH_MOST : REACH_AWAY;
}

static uint8_t leaves_with(const struct engine *e, uint8_t i)
{
	return only_misread(e, i) ? MEMBER_SUSPECT : e->ld.wanted[i];
}

/*
 * If not all can leave: first who failed a flush, or answers nothing but errors; then who is still
 * away. A suspect that is back may be unharmed (R14, R17), and the map may not be able to do
 * without it.
 *
 * Then those that have lost nothing, for if they left, one that has lost its cache might have to
 * stay: one that half of the nodes reach, or more, and the others don't (those are the problem, see
 * stuck_member); one that answered a read or a write with an error. Last one that all nodes use by
 * now: who had missed it has found that it is what it was.
 */
static bool wishes_apply(struct engine *e, struct map *next)
{
	bool any = false;

	for (uint8_t i = 0; i < next->n; i++)
		any |= leaves_with(e, i) != 0;
	if (!any)
		return false;
	any = false;
	for (uint8_t want = MEMBER_REBUILDING; want; want--)
		for (enum reach reach = REACH_AWAY; reach <= REACH_USED; reach++)
			for (uint8_t i = 0; i < next->n; i++)
				if (leaves_with(e, i) == want && member_reach(e, i) == reach)
					any |= wish_apply(e, next, i);
	return any;
}

/*
 * R15: member i comes back partially by this map, and is an older copy of itself, or one that
 * somebody else may have written: what it missed is not all that it lacks. Who proposes
 * judges it, maybe another leader, of the device that is there then; one that has gone since, and
 * come back, may be another. So it is judged once more before the proposal's superblocks are
 * written, by what the connection has read that takes them: of a copy that carries this epoch
 * nothing could be told any more.
 */
static bool entry_older(const struct engine *e, const struct map *map, uint8_t i)
{
	const struct map_member *mm = &map->member[i];

	return mm->state == MEMBER_REBUILDING && mm->flags & MEMBER_F_PARTIAL &&
	       !(e->map.n && e->map.member[i].state == MEMBER_REBUILDING) &&
	       (member_older(e, i, mm->reached) || member_strange(e, i, mm->left));
}

static bool entries_judge(const struct engine *e, struct map *next)
{
	bool any = false;

	for (uint8_t i = 0; i < next->n; i++) {
		struct map_member *mm = &next->member[i];

		if (!entry_older(e, next, i))
			continue;
		mm->flags = 0;
		mm->left = mm->reached = mm->rebuilt_upto = 0;
		any = true;
	}
	return any;
}

/* The number of the next epoch is above all that anybody in the round has acknowledged. What is too
 * far ahead of all that this node knows, none has. 0: no number is left. */
static uint64_t next_num(const struct engine *e, const struct map *base)
{
	uint64_t num = e->ld.max_num, most;

	if (base->epoch.num > num)
		num = base->epoch.num;
	if (e->want_record.acked.num > num)
		num = e->want_record.acked.num;
	most = num + EPOCH_AHEAD_MAX;
	for (uint32_t i = 0; i < e->peer_count; i++) {
		uint64_t told = e->peer[i].acked_epoch.num;

		if (e->peer[i].in_round && told <= most && told > num)
			num = told;
	}
	return num < EPOCH_NUM_MAX ? num + 1 : 0;
}

static bool next_map(struct engine *e, struct map *next)
{
	const struct map *base =
	    e->proposing && epoch_cmp(&e->prop.epoch, &e->map.epoch) > 0 ? &e->prop : &e->map;
	bool any = e->ld.need_epoch || e->ld.revive || e->seals;
	uint64_t num = next_num(e, base);

	if (!num) {
		e->ld.why = "nothing: the array has used up all epochs of its map; copy it to "
			    "another one";
		return false;
	}
	*next = *base;
	next->epoch = (struct epoch){num, e->inc};
	for (uint8_t i = 0; i < next->n; i++) {
		if (e->ld.wanted[i] == MEMBER_IN_SYNC &&
		    (e->rb.state != RB_PROMOTE || !e->quiet.wanted ||
		     e->rb.map_num != e->map.epoch.num))
			e->ld.wanted[i] = 0;
		if (e->ld.wanted[i] && wish_moot(base, i, e->ld.wanted[i]))
			e->ld.wanted[i] = 0;
		e->ld.misread[i] &= e->ld.wanted[i] == MEMBER_MISSING;
	}
	any |= wishes_apply(e, next);
	any |= entries_judge(e, next);
	if (e->rb.state == RB_COPY && !e->rb.partial && e->rb.checkpoint &&
	    next->member[e->rb.member].state == MEMBER_REBUILDING &&
	    e->rb.checkpoint > next->member[e->rb.member].rebuilt_upto) {
		next->member[e->rb.member].rebuilt_upto = e->rb.checkpoint;
		any = true;
	}
	if (!map_degraded(next))
		next->missed_from = 0;
	else if (!next->missed_from)
		next->missed_from = next->epoch.num;
	return any;
}

static bool newer_wish(struct engine *e)
{
	for (uint8_t i = 0; i < e->prop.n; i++) {
		struct map next = e->prop;

		if (entry_older(e, &e->prop, i))
			return true;
		if (e->ld.wanted[i] && !wish_moot(&e->prop, i, e->ld.wanted[i]) &&
		    wish_apply(e, &next, i))
			return true;
	}
	return false;
}

static void sb_write(struct engine *e, bool second);

/* One copy of each is written. A device that has come back meanwhile reads both anew. */
static void sb_copies_written(struct engine *e, const struct batch *b)
{
	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++) {
		if (e->ld.sb_dev[i] == NO_DEV)
			continue;
		copy_written(&e->dev[e->ld.sb_dev[i]], e->ld.sb_copy[i], e->ld.sb_seq[i],
			     b->ok >> i & 1);
		e->ld.sb_dev[i] = NO_DEV;
	}
}

static void sb_written(struct engine *e, struct batch *b)
{
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
	NODEMSG(m, c, COMMIT, Commit, commit);

	e->ld.sb_writing = false;
	sb_copies_written(e, b);
	if (!leading(e) || !e->ld.own_prop || !e->proposing ||
	    epoch_cmp(&e->prop.epoch, &e->ld.prop_epoch))
		return;
	if (b->failed) {
		for (uint8_t i = 0; i < e->prop.n; i++)
			if (b->failed >> i & 1 && !e->bad[i])
				member_bad(e, i, MEMBER_SUSPECT);
		e->ld.propose_us = e->now;
		return; /* written again, or superseded once the reports are in */
	}
	if (gone_unfenced(e) || !gate_open(e))
		return; /* R4; a round will take it up */
	if (!e->ld.sb_second) {
		sb_write(e, true);
		return;
	}
	ep.num = e->prop.epoch.num;
	ep.inc = e->prop.epoch.inc;
	c.epoch = &ep;
	msg_send(e, &m);
	e->ld.committing = true; /* nothing more until the commit comes back */
}

/* A node's write to it has failed, and it must stay: it is tried with that write first, for if a
 * superblock failed, the member would have failed for good (R14). */
static bool sb_too_early(const struct engine *e, uint8_t i)
{
	return e->ld.kept_us[i] && e->now - e->ld.kept_us[i] < 2 * REPORT_AGAIN_US &&
	       member_indispensable(e, i);
}

/*
 * Every member of the new map must take its superblock; one that this node can't reach is reported.
 * Of what enters the map, the connection that is there now must have read it: it may have been
 * another, or none, when it was proposed.
 */
static bool sb_targets_ready(struct engine *e)
{
	uint32_t mask = map_write_mask(&e->prop), enter = mask & ~map_write_mask(&e->map);
	bool reading = false;

	for (uint8_t i = 0; i < e->prop.n; i++) {
		uint32_t d = e->dev_of[i];
		bool unread;

		if (!(mask >> i & 1))
			continue;
		unread = d != NO_DEV && e->dev[d].up &&
			 (!copies_known(e, d) ||
			  ((enter >> i & 1 || e->dev[d].entered) && !member_sb_read(e, i)));
		if ((unread && e->dev[d].reading) || sb_too_early(e, i))
			reading = true;
		else if ((unread || !member_usable(e, i)) && !e->bad[i])
			member_bad(e, i, MEMBER_SUSPECT);
	}
	return !reading && members_ready(e, mask);
}

/*
 * A map is on both copies of each of its members before it is committed: first on the one that is
 * not the newest intact one, and when all members have that, on the other.
 *
 * 1. No write hits the newest copy that is known to be intact. If it is torn, that one is left; if
 *    it fails, nobody knows what it did, and the next goes to the same copy again. So the copies
 *    don't take turns by their number: what was written last is known for each member alone, and a
 *    new connection, or a new leader, learns it by reading.
 * 2. After the commit either copy tells of it. So a sector that can't be read, or has rotted, makes
 *    no member look older than it is; and R1, which goes by what the members that are there do not
 *    carry, need not ask whether one of them hides a newer map in the copy that can't be read.
 */
static void sb_write(struct engine *e, bool second)
{
	struct superblock sb = e->base;
	uint32_t mask = map_write_mask(&e->prop);

	sb.committed = e->committed;
	sb.map = e->prop;
	sb.past = e->past;
	if (e->cfg.cluster[0]) {
		sb.clustered = true;
		memcpy(sb.cluster, e->cfg.cluster, DDR_NAME_BYTES);
	}
	e->sb_names_us = !dlog_names_us(e);
	sb.writer_node = e->sb_names_us ? e->cfg.node : 0;
	e->ld.sb_writing = true;
	e->ld.sb_second = second;
	batch_init(&e->ld.sb_batch, sb_written);
	batch_open(&e->ld.sb_batch);
	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		e->ld.sb_dev[i] = NO_DEV;
	for (uint8_t i = 0; i < e->prop.n; i++) {
		struct dev *d = e->dev_of[i] == NO_DEV ? NULL : &e->dev[e->dev_of[i]];

		if (!(mask >> i & 1))
			continue;
		e->ld.sb_copy[i] = d ? copy_to_write(d) : 0;
		if (d) {
			e->ld.sb_dev[i] = e->dev_of[i];
			e->ld.sb_seq[i] = sb.seq = SB_SEQ_NEXT(d->newest_seq);
			copy_write_begins(d);
		}
		sb.index = i;
		memcpy(sb.member_uuid, e->prop.member[i].uuid, DDR_UUID_BYTES);
		sb_encode(&sb, e->ld.sb_buf[i]);
		e->ld.sb_iov[i] = (struct iovec){e->ld.sb_buf[i], DDR_BLOCK_BYTES};
		dio_start(e, &e->ld.sb_batch, i, DEV_WRITE, KIND_SB, DEV_F_FUA,
			  geo_sb_offset(e->ld.sb_copy[i]), DDR_BLOCK_BYTES, &e->ld.sb_iov[i], 1, 0);
	}
	batch_close(e, &e->ld.sb_batch);
}

static bool all_acked(struct engine *e)
{
	bool all = true;

	for (uint32_t i = 0; i < e->peer_count; i++) {
		struct peer *p = &e->peer[i];
		pb_inc who = pb_inc_of(p->node, p->inc, NO_SLOT, false);
		NODEMSG(m, b, EVICT, Evict, evict);

		if (!p->member || p->acked)
			continue;
		all = false;
		if (p->node == e->cfg.node && record_stuck(e) && !alone(e)) {
			round_give_up(e); /* another can lead */
			return false;
		}
		/* R7: who does not answer within the limit is evicted. */
		if (p->node != e->cfg.node &&
		    e->now - e->ld.propose_us > e->cfg.tun.evict_ms * 1000ull) {
			e->ld.propose_us = e->now;
			b.who = &who;
			msg_send(e, &m);
		}
	}
	return all;
}

/* Leader: proposes what is wanted, drives the proposal under way. True while one is under way. */
bool epoch_propose_wanted(struct engine *e)
{
	struct pb_map pm;
	struct map next;
	NODEMSG(m, b, PROPOSE, Propose, propose);

	if (e->ld.sb_writing || e->ld.committing)
		return true;
	if (e->ld.own_prop) {
		bool delivered = e->proposing && !epoch_cmp(&e->prop.epoch, &e->ld.prop_epoch);

		if (!delivered)
			return true;
		if (!e->ld.revive && !newer_wish(e)) {
			if (all_acked(e) && !gone_unfenced(e) && sb_targets_ready(e))
				sb_write(e, false);
			return true;
		}
	}
	if (!next_map(e, &next))
		return false;
	pb_map_fill(&pm, &next);
	b.map = &pm.map;
	b.revive = e->ld.revive;
	e->ld.revive = false;
	e->ld.own_prop = true;
	e->ld.prop_epoch = next.epoch;
	e->ld.max_num = next.epoch.num;
	e->ld.propose_us = e->now;
	msg_send(e, &m);
	return true;
}

/* ---- assembly: R1 --------------------------------------------------------------------------- */

static bool refuse(struct engine *e, const char *why)
{
	e->ld.why = why;
	e->ld.refused = true;
	return false;
}

static uint32_t sb_device(const struct engine *e, const struct superblock *sb)
{
	uint32_t i = 0;

	while (&e->dev[i].sb != sb)
		i++;
	return i;
}

/* A member may say any epoch. What nobody else confirms does not drag the array's own numbers up by
 * more than this, and is no sign that others went on without this node if it is beyond that. */
#define EPOCH_DRAG 1024ull
#define EPOCH_AHEAD (1ull << 20)

/* Of several that call themselves so, the one that is opened as this member: see devs_bind. */
static const struct superblock *sb_of_member(const struct engine *e, const struct map *m, uint8_t i)
{
	for (uint32_t k = 0; k < DDR_MAX_DEVS; k++) {
		const struct dev *d = &e->dev[(i + k) % DDR_MAX_DEVS];

		if (d->up && d->fresh && !d->misfit[0] &&
		    !memcmp(d->sb.member_uuid, m->member[i].uuid, DDR_UUID_BYTES))
			return &d->sb;
	}
	return NULL;
}

/* A node's record says that this was proposed, or something later. */
static bool epoch_recorded(const struct engine *e, const struct epoch *ep)
{
	if (epoch_cmp(&e->want_record.acked, ep) >= 0 ||
	    epoch_cmp(&e->want_record.committed, ep) >= 0)
		return true;
	for (uint32_t i = 0; i < e->peer_count; i++) {
		const struct peer *p = &e->peer[i];

		if (p->in_round && p->hello &&
		    (epoch_cmp(&p->acked_epoch, ep) >= 0 || epoch_cmp(&p->known_epoch, ep) >= 0))
			return true;
	}
	return false;
}

/* Members that carry the epoch of this map, and another content. Who they are is what they say
 * themselves: the map in question may name others. */
static uint32_t twins_of(const struct engine *e, const struct map *m)
{
	uint32_t mask = 0, twins = 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct dev *d = &e->dev[i];
		bool again = false;

		if (!d->up || !d->fresh || d->misfit[0] || epoch_cmp(&d->sb.map.epoch, &m->epoch) ||
		    map_same(&d->sb.map, m))
			continue;
		for (uint32_t j = 0; j < i; j++)
			again |= mask >> j & 1 && !memcmp(e->dev[j].sb.member_uuid,
							  d->sb.member_uuid, DDR_UUID_BYTES);
		mask |= 1u << i;
		twins += !again;
	}
	return twins;
}

/*
 * Whether a map that a member carries was ever proposed. Its exporter may return anything; no more
 * than m do (and no more than m members are rolled back), else the data is lost as well.
 *
 * 1. More than m carry it, or a later one: one of them is honest.
 * 2. All that are here of those to which it was to be written carry it: nobody contradicts.
 * 3. Some of these do not carry it. So it was not committed (sb_write), or they were rolled back.
 *    Before the leader wrote it anywhere every node of its round had acknowledged it, durably. A
 *    node's record knows it: it is completed, and keeps its demotions (R3).
 * 4. No record knows it, and more than m do not carry it: it was not committed. Nobody who could
 *    have seen it is here, and no write was answered by it. It is a lie, or as good as none.
 *    The same of one that carries a map's epoch with another content than more members carry, or as
 *    many, also if a record knows the epoch.
 * 5. No record knows it, and those few that do not carry it carry what it calls committed: it was
 *    not committed, unless they were rolled back to the moment before it, which nothing can tell.
 *    If they lack that, they may well be rolled back: it counts, and they don't.
 */
static bool map_believed(const struct engine *e, const struct superblock *sb)
{
	const struct map *m = &sb->map;
	uint32_t same = 0, later = 0, twins = twins_of(e, m), lack = 0, old = 0;

	for (uint8_t i = 0; i < m->n; i++) {
		const struct superblock *own = sb_of_member(e, m, i);
		int cmp = own ? epoch_cmp(&own->map.epoch, &m->epoch) : 0;

		if (!own)
			continue;
		if (!(map_write_mask(m) >> i & 1))
			continue;
		same += !cmp && map_same(&own->map, m);
		later += cmp > 0;
		lack += cmp < 0;
		old += epoch_cmp(&own->map.epoch, &sb->committed) < 0;
	}
	if (twins && twins >= same)
		return false;
	if (same + later > e->geo.p.m || !(lack + twins) || epoch_recorded(e, &m->epoch))
		return true;
	return lack + twins <= e->geo.p.m && old;
}

/* The newest map that counts; and, if asked for, the newest that any member tells. */
static const struct superblock *newest_sb(const struct engine *e, const struct superblock **told)
{
	const struct superblock *best;
	uint32_t out = 0, at = 0;

	if (told)
		*told = NULL;
	do {
		best = NULL;
		for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
			const struct dev *d = &e->dev[i];

			if (!d->up || !d->fresh || out >> i & 1 ||
			    (best && epoch_cmp(&d->sb.map.epoch, &best->map.epoch) <= 0))
				continue;
			best = &d->sb;
			at = i;
		}
		if (best && told && !*told)
			*told = best;
		out |= 1u << at;
	} while (best && e->have_geo && !map_believed(e, best));
	return best;
}

/* By what the members tell so far. */
const struct superblock *sb_newest(const struct engine *e)
{
	return newest_sb(e, NULL);
}

/* Numbers go on from what any member tells, within reason. */
static void max_num_raise(struct engine *e, const struct superblock *told, uint64_t known)
{
	if (told->map.epoch.num > e->ld.max_num && told->map.epoch.num <= known + EPOCH_DRAG)
		e->ld.max_num = told->map.epoch.num;
}

/*
 * R1: is this set of members the newest one? Whatever came after its map has k members in sync at
 * least, all of them among those that this map writes to, and each carries that later map. So with
 * fewer than k of these absent, one of them would be here and show it.
 *
 * With k > m, as in every geometry that there is, the members don't suffice for k that are in sync
 * and k that are absent; so the refusal for these says that something else is wrong. A mirror, or
 * k = 2 with m = 2, could get there. For such R1 has the records of a majority of the *cluster's*
 * nodes decide; those in the round may be fewer, and the engine knows of no others.
 *
 * What this can't see is that members were rolled back, all of them. A node's record can.
 */
static bool records_agree(struct engine *e, const struct map *map, uint32_t absent)
{
	bool behind_known = false, other_line = false;

	for (uint32_t i = 0; i < e->peer_count; i++) {
		const struct peer *p = &e->peer[i];

		behind_known |= p->member && epoch_cmp(&p->known_epoch, &map->epoch) > 0;
		other_line |=
		    p->member && p->known_epoch.num && lineage_denies(&e->past, &p->known_epoch);
	}
	e->ld.forced = e->cfg.force && (other_line || behind_known || absent >= e->geo.k);
	if (e->cfg.force)
		return true;
	if (other_line)
		return refuse(e, "these members have another history than a node that takes part: "
				 "the array was run twice at once; connect the members that this "
				 "node used last, or start with --force to go on with these");
	if (behind_known)
		return refuse(e,
			      "only stale members are reachable: a node knows a newer epoch than "
			      "they carry; connect the newer members, or start with --force");
	if (absent >= e->geo.k)
		return refuse(e, "so many members are absent that a newer set could exist; connect "
				 "more of them, or start with --force");
	return true;
}

static bool carries(const struct superblock *own, const struct superblock *sb)
{
	return own && !epoch_cmp(&own->map.epoch, &sb->map.epoch) && map_same(&own->map, &sb->map);
}

/*
 * Whether a commit that a superblock tells of took place. More than m that tell of it, or of a
 * later one, are not all lies, however many members lack it. Of fewer, the others' word counts: no
 * more than m members are rolled back, so what more than m lack was not committed.
 */
static bool commit_believed(const struct engine *e, const struct superblock *sb,
			    const struct epoch *ep)
{
	const struct map *m = &sb->map;
	uint32_t told = 0, lack = 0;

	for (uint8_t i = 0; i < m->n; i++) {
		const struct superblock *own = sb_of_member(e, m, i);

		told += carries(own, sb) && epoch_cmp(&own->committed, ep) >= 0;
		lack += own && map_write_mask(m) >> i & 1 && epoch_cmp(&own->map.epoch, ep) < 0;
	}
	return told > e->geo.p.m || lack <= e->geo.p.m;
}

/* The last commit that this map's superblocks know: an exporter that conceals it would otherwise
 * have members pass that were rolled back to before it. */
static struct epoch committed_told(const struct engine *e, const struct superblock *sb)
{
	struct epoch best = {0, 0};

	for (uint8_t i = 0; i < sb->map.n; i++) {
		const struct superblock *own = sb_of_member(e, &sb->map, i);

		if (carries(own, sb) && epoch_cmp(&own->committed, &best) > 0 &&
		    epoch_cmp(&own->committed, &sb->map.epoch) <= 0 &&
		    commit_believed(e, sb, &own->committed))
			best = own->committed;
	}
	return best;
}

/*
 * An epoch that was committed for certain, so that all members of this superblock's map that were
 * in that epoch's carry it or a later one. A superblock was written before its own map's commit, so
 * what it names may be several lives old; records know better (R1). What they know beyond the map,
 * records_agree refuses, or --force sets aside.
 */
static struct epoch committed_once(const struct engine *e, const struct superblock *sb)
{
	struct epoch best = committed_told(e, sb);

	for (uint32_t i = 0; i < e->peer_count; i++) {
		const struct peer *p = &e->peer[i];

		if (p->member && epoch_cmp(&p->known_epoch, &best) > 0 &&
		    epoch_cmp(&p->known_epoch, &sb->map.epoch) <= 0)
			best = p->known_epoch;
	}
	return best;
}

/*
 * The members are of two histories: the array was run twice at once, once by each of two parties
 * that knew nothing of one another. A higher number says only which of them changed its map more
 * often. So neither is taken for newer than the other, and an operator has to say which one counts;
 * what is of the other is rebuilt as a whole then.
 */
static bool histories_agree(struct engine *e, const struct superblock *sb)
{
	e->past = sb->past;
	lineage_add(&e->past, &sb->committed);
	for (uint32_t i = 0; i < DDR_MAX_DEVS && !e->cfg.force; i++) {
		const struct dev *d = &e->dev[i];

		if (!d->up || !d->fresh || !lineage_differs(&e->past, &d->sb))
			continue;
		snprintf(
		    e->ld.text, sizeof(e->ld.text),
		    "the members are of two histories: the array was run twice at once, and "
		    "%s has changes that %s knows nothing of; disconnect those that are not to "
		    "count, start the array, then add them as new ones",
		    d->uri, e->dev[sb_device(e, sb)].uri);
		return refuse(e, e->ld.text);
	}
	return true;
}

/* True: all superblocks have been read since the round began, or can't be. */
static bool superblocks_read(struct engine *e)
{
	if (!e->ld.rereading) {
		e->ld.rereading = true;
		e->ld.assemble_us = e->now;
		devs_reread(e);
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->dev[i].reading)
			return false;
	return true;
}

/*
 * An epoch that this node has neither acknowledged nor goes by, and not an older one: the others
 * went on without it. Where the numbers are equal nothing says which of two incarnations proposed
 * first.
 */
bool epoch_unknown(const struct engine *e, const struct epoch *ep)
{
	return ep->num >= e->want_record.acked.num && ep->num >= e->map.epoch.num &&
	       epoch_cmp(ep, &e->want_record.acked) && epoch_cmp(ep, &e->map.epoch);
}

/* The newest number that this node has heard of for certain. */
static uint64_t epoch_known(const struct engine *e)
{
	return e->want_record.acked.num > e->map.epoch.num ? e->want_record.acked.num
							   : e->map.epoch.num;
}

/* What others do without this node concerns it: it serves, or has a slot to do so. */
bool takes_part(const struct engine *e)
{
	return e->state == ENGINE_ACTIVE || (e->state == ENGINE_JOINING && e->slot != NO_SLOT);
}

/*
 * R6: a leader that serves, but may have slept through a view, looks whether the array went on
 * without it, before it tells anybody anything: an epoch on disk that it did not acknowledge. Every
 * epoch is on k members or more; so m + 1 of them tell.
 */
bool array_still_ours(struct engine *e)
{
	const struct superblock *sb, *told;
	uint64_t known = epoch_known(e);
	uint32_t n = 0;

	e->ld.why = "enough members to see that no other node went on without this one";
	superblocks_read(e); /* not all of them: one may hang */
	for (uint8_t i = 0; i < e->map.n; i++)
		n += sb_of_member(e, &e->map, i) != NULL;
	sb = newest_sb(e, &told);
	if (n <= e->geo.p.m || !sb)
		return false;
	max_num_raise(e, told, known);
	if (epoch_unknown(e, &sb->map.epoch) ||
	    (epoch_unknown(e, &told->map.epoch) && told->map.epoch.num <= known + EPOCH_AHEAD))
		round_removed(e);
	e->ld.assembled = e->state == ENGINE_ACTIVE;
	return e->state != ENGINE_REMOVED;
}

/*
 * R6, on the word of one node: the others went on without this one. A commit is on all members of
 * its map that are written to, so more than m members that are read now show it, or it is not so.
 * As long as that is not known this node uses nothing.
 */
void epoch_doubt(struct engine *e)
{
	if (e->doubt)
		return;
	e->doubt = true;
	devs_reread(e);
}

void doubt_advance(struct engine *e)
{
	bool removed = false;
	uint32_t n = 0;

	if (!e->doubt || e->state == ENGINE_REMOVED)
		return;
	for (uint8_t i = 0; i < e->map.n; i++) {
		const struct superblock *own = sb_of_member(e, &e->map, i);

		n += own != NULL;
		removed |= own && epoch_unknown(e, &own->map.epoch) &&
			   own->map.epoch.num <= epoch_known(e) + EPOCH_AHEAD;
	}
	if (removed)
		round_removed(e);
	else if (n > e->geo.p.m)
		e->doubt = false;
}

/* Its exporter may return anything: more than m members that carry this map name another. */
static bool writer_denied(const struct engine *e, const struct superblock *sb, uint32_t node)
{
	const struct map *map = &sb->map;

	for (uint8_t i = 0; i < map->n; i++) {
		const struct superblock *own = sb_of_member(e, map, i);
		uint32_t told = 0;

		if (!carries(own, sb) || own->writer_node == node)
			continue;
		for (uint8_t k = 0; k < map->n; k++) {
			const struct superblock *other = sb_of_member(e, map, k);

			told += carries(other, sb) && other->writer_node == own->writer_node;
		}
		if (told > e->geo.p.m)
			return true;
	}
	return false;
}

static bool writer_departed(struct engine *e, const struct superblock *sb, uint32_t node)
{
	const struct peer *p = peer_find(e, node);
	uint64_t inc = sb->map.epoch.inc;

	if (!node || (p && p->member && p->inc == inc) || gone_find(e, node, inc) ||
	    fence_stands(e, node, inc) || writer_denied(e, sb, node))
		return false;
	gone_add(e, node, inc);
	e->ld.rereading = false;
	return true;
}

/*
 * R4: whoever wrote this map had no slot yet whose pages would name it. What else it sent may still
 * land, also a newer map: so all is read again after its fence. Where the few members that carry
 * the map differ, each that they name is fenced.
 */
static bool writers_departed(struct engine *e, const struct superblock *sb)
{
	const struct map *map = &sb->map;
	bool any = writer_departed(e, sb, sb->writer_node);

	for (uint8_t i = 0; i < map->n; i++) {
		const struct superblock *own = sb_of_member(e, map, i);

		if (carries(own, sb))
			any |= writer_departed(e, sb, own->writer_node);
	}
	return any;
}

/*
 * By force this array goes on from a map that is not the newest. The numbers that it leaves out may
 * be those of epochs that others have committed: here they are of this life, so that whoever
 * carries one of them as another's is of another history (lineage_denies).
 */
static void lineage_fork(struct engine *e, const struct map *from)
{
	uint64_t top = next_num(e, from), num = from->epoch.num + 1;

	if (top > num + LINEAGE_MAX)
		num = top - LINEAGE_MAX;
	for (; num < top; num++)
		lineage_add(&e->past, &(struct epoch){num, e->inc});
}

/* What the members carry, by one of their superblocks. */
struct judged {
	struct epoch committed;
	uint32_t absent, insync;
	bool extended;  /* one that was too small for a while */
	uint32_t older; /* device of one that lacks that commit, or NO_DEV */
	uint8_t wanted[DDR_MAX_MEMBERS];
};

static void members_judge(const struct engine *e, const struct superblock *sb, struct judged *j)
{
	const struct map *map = &sb->map;

	*j = (struct judged){.older = NO_DEV};
	j->committed = committed_once(e, sb);
	for (uint8_t i = 0; i < map->n; i++) {
		const struct superblock *own = sb_of_member(e, map, i);
		bool needed = map_write_mask(map) >> i & 1;
		/* Not either what tells of a commit that no other has seen: of another history,
		 * or of none. */
		bool cut = member_cut(e, &map->member[i]);
		bool lacks = own && epoch_cmp(&own->map.epoch, &j->committed) < 0;
		bool fresh = own && !cut && !lacks &&
			     epoch_cmp(&own->committed, &map->epoch) <= 0 &&
			     !lineage_differs(&e->past, own);

		if (needed && !own && !cut)
			j->wanted[i] = MEMBER_SUSPECT;
		else if (needed && !fresh)
			j->wanted[i] = MEMBER_FAULTY; /* rolled back: only a full rebuild */
		j->absent += needed && !fresh;
		j->insync += map->member[i].state == MEMBER_IN_SYNC && fresh;
		j->extended |= needed && own && cut;
		if (needed && lacks)
			j->older = sb_device(e, own);
	}
}

/*
 * Too few members are what they were last: the others have been rolled back, say. The newest state
 * of the array before that of which enough are left; never some members of one state and some of
 * another. NULL: there is none, and e->past is as it was.
 */
static const struct superblock *older_sb(struct engine *e, const struct superblock *newest,
					 struct judged *j)
{
	struct lineage past = e->past;
	const struct superblock *sb = newest;

	while (sb) {
		const struct superblock *next = NULL;

		for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
			const struct dev *d = &e->dev[i];

			if (d->up && d->fresh && epoch_cmp(&d->sb.map.epoch, &sb->map.epoch) < 0 &&
			    (!next || epoch_cmp(&d->sb.map.epoch, &next->map.epoch) > 0))
				next = &d->sb;
		}
		sb = next;
		if (!sb)
			break;
		e->past = sb->past;
		lineage_add(&e->past, &sb->committed);
		members_judge(e, sb, j);
		if (j->insync >= e->geo.k)
			return sb;
	}
	e->past = past;
	return NULL;
}

/* Refused, since fewer than k are in sync by the newest map. */
static bool too_few(struct engine *e, const struct superblock *sb, const struct judged *j)
{
	struct judged o;
	struct lineage past = e->past;
	bool older;

	if (j->extended)
		return refuse(e, EXTENDED_INSYNC);
	fewer_insync(e, &sb->map, e->ld.text, sizeof(e->ld.text));
	if (j->older == NO_DEV)
		return refuse(e, e->ld.text);
	older = older_sb(e, sb, &o);
	e->past = past;
	snprintf(e->ld.text, sizeof(e->ld.text),
		 "fewer members in sync are reachable than the data needs: %.160s is as it was in "
		 "epoch %" PRIu64 ", and epoch %" PRIu64 " was committed; %s",
		 e->dev[j->older].uri, e->dev[j->older].sb.map.epoch.num, j->committed.num,
		 older ? "connect the others as they were last, or start with --force to go on "
			 "with an older state of the array"
		       : "connect the others as they were last; --force does not help, since too "
			 "few members are of any one state");
	return refuse(e, e->ld.text);
}

/*
 * The fresh leader looks at what the members carry. True: e->map is what the array was last, and
 * ld.wanted names what must leave it.
 */
bool assemble(struct engine *e)
{
	const struct superblock *sb, *told, *older = NULL;
	struct judged j, o;
	struct map map;

	if (!superblocks_read(e))
		return false;
	sb = newest_sb(e, &told);
	e->ld.refused = false;
	e->ld.why = "members to assemble the array from";
	if (!sb || !e->have_geo)
		return false;
	if (sb->map.epoch.num > e->ld.max_num)
		e->ld.max_num = sb->map.epoch.num;
	max_num_raise(e, told, sb->map.epoch.num);
	if (writers_departed(e, sb))
		return false;
	if (!histories_agree(e, sb))
		return false;
	members_judge(e, sb, &j);
	if (j.absent && e->now - e->ld.assemble_us < e->cfg.tun.evict_ms * 1000ull)
		return false; /* they may still be connecting */
	if (j.insync < e->geo.k) {
		older = e->cfg.force ? older_sb(e, sb, &o) : NULL;
		if (!older)
			return too_few(e, sb, &j);
		if (writers_departed(e, older))
			return false;
		sb = older;
		j = o;
	}
	map = sb->map;
	if (!records_agree(e, &map, j.absent))
		return false;
	e->ld.forced |= older != NULL;
	for (uint8_t i = 0; i < map.n; i++) {
		e->ld.wanted[i] = j.wanted[i];
		e->ld.misread[i] = false;
		e->ld.earlier &= ~(1u << i);
		/* Of one that is absent nobody knows by which line it went. */
		if (e->ld.forced && e->ld.wanted[i])
			e->ld.wanted[i] = MEMBER_FAULTY;
	}
	e->ld.refused = false;
	/* Not the map's own epoch: that may be a proposal which some members have never got. Called
	 * committed, it would make them stale if this leader died while it wrote the next one. */
	e->committed = j.committed;
	lineage_add(&e->past, &j.committed);
	if (e->ld.forced)
		lineage_fork(e, &map);
	e->base.clustered = sb->clustered;
	memcpy(e->base.cluster, sb->cluster, DDR_NAME_BYTES);
	epoch_adopt(e, &map);
	/* Also what failed a flush, at once: no proposal that drops another can be taken back. */
	for (uint8_t i = 0; i < map.n; i++) {
		uint8_t bad = bad_told(e, &map, i);

		if ((bad == MEMBER_SUSPECT || bad == MEMBER_FAULTY) &&
		    map_write_mask(&map) >> i & 1)
			epoch_want_out(e, i, bad, false,
				       bad == MEMBER_SUSPECT && member_lost_earlier(e, i));
	}
	return true;
}
