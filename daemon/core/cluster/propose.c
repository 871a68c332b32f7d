/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The leader: from what somebody wants of a member to a proposal, and on to its commit. What a
 * node does with a proposal is in epoch.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

/* ---- the leader: from a request to a commit -------------------------------------------------- */

static void member_leaves(const struct engine *e, struct map *next, uint8_t i, uint8_t want)
{
	struct map_member *mm = &next->member[i];

	/* R15: only a member that was in sync, or was being brought up from a missed set, can be
	 * brought up from what was missed since. R14: never after a failed flush. Nor an older copy
	 * that nobody knows anything of. */
	if (want == MEMBER_FAULTY || e->c->lead.lacks >> i & 1) {
		mm->left = mm->reached = 0;
	} else if (mm->state == MEMBER_IN_SYNC) {
		mm->left = next->epoch.num;
		mm->reached =
		    e->c->epochs.committed.num; /* a commit's superblocks are on all members */
	} else if (mm->state == MEMBER_REBUILDING && !(mm->flags & MEMBER_F_PARTIAL)) {
		mm->left = mm->reached = 0;
	}
	mm->state = want;
	mm->flags = mm->left && want != MEMBER_FAULTY ? mm->flags & MEMBER_F_UNCOMPARED : 0;
	mm->rebuilt_upto = 0;
}

static void member_enters(struct engine *e, struct map *next, uint8_t i)
{
	struct lead *ld = &e->c->lead;
	struct map_member *mm = &next->member[i];
	bool covered = mm->left && next->missed_from && mm->left >= next->missed_from;

	if (ld->full[i])
		memcpy(mm->uuid, ld->new_uuid[i], DDR_UUID_BYTES);
	mm->state = MEMBER_REBUILDING;
	mm->flags &= MEMBER_F_UNCOMPARED;
	mm->flags = covered && !ld->full[i] ? mm->flags | MEMBER_F_PARTIAL : 0;
	mm->rebuilt_upto = 0;
	if (!mm->flags)
		mm->left = mm->reached = 0;
}

/* One that lacks something counts for none (slots.c). */
static uint32_t in_sync_but(const struct engine *e, const struct map *next, uint8_t but)
{
	return (uint32_t)__builtin_popcount(map_insync_mask(next) & ~e->c->lead.lacked &
					    ~(1u << but));
}

/* The state that it leaves the map with, if it is wanted out; else what is wanted of it. */
static uint8_t leaves_with(const struct engine *e, uint8_t i)
{
	uint8_t want = e->c->lead.requested[i];

	if (want >= MEMBER_SUSPECT && want <= MEMBER_FAULTY && slots_lacking_leaves(e, i))
		return MEMBER_FAULTY;
	return want;
}

/* Applies one request to the next map; false if it can't be (now). */
static bool request_apply(struct engine *e, struct map *next, uint8_t i)
{
	struct map_member *mm = &next->member[i];
	uint8_t want = leaves_with(e, i);
	bool out = want == MEMBER_SUSPECT || want == MEMBER_MISSING || want == MEMBER_FAULTY;

	if (!map_move_legal(mm->state, want))
		return false;
	if (out && mm->state == MEMBER_IN_SYNC && in_sync_but(e, next, i) < e->geo.k)
		return false; /* R3: never fewer than k in sync */
	/* Nor an older copy in whose place the right one may come, before the others would do. */
	if (out && e->c->lead.lacked >> i & 1 && !slots_lacking_may_leave(e, i))
		return false;
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

static bool request_moot(const struct map *base, uint8_t i, uint8_t want)
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
	uint32_t d = e->view.dev_of[i];

	return e->c->lead.read_error[i] && d != NO_DEV && e->c->devs.dev[d].up && !use_fails(e, d);
}

/* All reach it. Nobody has lost it in an incarnation that goes on. */
static enum reach reached_by_all(const struct engine *e, uint8_t i)
{
	bool earlier = e->c->lead.requested[i] == MEMBER_SUSPECT && e->c->lead.earlier >> i & 1;

	return earlier ? REACH_EARLIER : REACH_ALL;
}

/* Of the nodes that could use the member. One that has no map yet names none. */
static enum reach member_reach(const struct engine *e, uint8_t i)
{
	uint32_t nodes = 0, lack = 0, use = 0;

	/* Its superblocks can't be read: it takes no map either, so none that keeps it is
	 * committed. */
	if (e->view.dev_of[i] != NO_DEV &&
	    e->c->devs.dev[e->view.dev_of[i]].unreadable == (1u << SB_COPIES) - 1)
		return REACH_AWAY;
	if (only_misread(e, i))
		return REACH_MISREAD;
	for (uint32_t j = 0; j < e->c->round.peer_count; j++) {
		const struct peer *p = &e->c->round.peer[j];

		if (!p->member || peer_is_observer(e, p) || !p->raw_mask)
			continue;
		nodes++;
		lack += !(p->raw_mask >> i & 1);
		use += p->up_mask >> i & 1;
	}
	if (!nodes) { /* just assembled: no heartbeat tells of the map's members yet */
		uint32_t d = e->view.dev_of[i];

		return d != NO_DEV && e->c->devs.dev[d].up ? reached_by_all(e, i) : REACH_AWAY;
	}
	if (use == nodes)
		return REACH_USED;
	if (!lack)
		return reached_by_all(e, i);
	return 2 * lack <= nodes ? REACH_MOST : REACH_AWAY;
}

static uint8_t leaves_in_turn(const struct engine *e, uint8_t i)
{
	return only_misread(e, i) ? MEMBER_SUSPECT : leaves_with(e, i);
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
static bool requests_apply(struct engine *e, struct map *next)
{
	bool any = false;

	for (uint8_t i = 0; i < next->n; i++)
		any |= e->c->lead.requested[i] != 0;
	if (!any)
		return false;
	any = false;
	for (uint8_t want = MEMBER_REBUILDING; want; want--)
		for (enum reach reach = REACH_AWAY; reach <= REACH_USED; reach++)
			for (uint8_t i = 0; i < next->n; i++)
				if (leaves_in_turn(e, i) == want && member_reach(e, i) == reach)
					any |= request_apply(e, next, i);
	return any;
}

/*
 * R15: member i comes back partially by this map, and is an older copy of itself, or one that
 * somebody else may have written, or has to be compared, and nobody is left who can (slots_told.c):
 * what it missed is not all that it lacks. Who proposes judges it, maybe another leader, of the
 * device that is there then; one that has gone since, and come back, may be another. So it is
 * judged once more before the proposal's superblocks are written, by what the connection has read
 * that takes them: of a copy that carries this epoch nothing could be told any more.
 */
static bool entry_older(const struct engine *e, const struct map *map, uint8_t i)
{
	const struct map_member *mm = &map->member[i];

	return mm->state == MEMBER_REBUILDING && mm->flags & MEMBER_F_PARTIAL &&
	       !(e->map.n && e->map.member[i].state == MEMBER_REBUILDING) &&
	       (member_older(e, i, mm->reached) || member_strange(e, i, mm->left) ||
		(mm->flags & MEMBER_F_UNCOMPARED && !slots_compared(e, i)));
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

/* Who has left has to be compared, if slots tell what it may lack. Each proposal looks anew, also
 * at what an earlier one dropped that it goes on from: a node may have died since, and only now its
 * slot tells. */
static void leavers_mark(const struct engine *e, struct map *next)
{
	uint32_t left = map_write_mask(&e->map) & ~map_write_mask(next);

	for (; left; left &= left - 1) {
		uint8_t i = (uint8_t)__builtin_ctz(left);
		struct map_member *mm = &next->member[i];

		if (mm->left && mm->state != MEMBER_FAULTY && slots_tell(e, i))
			mm->flags = MEMBER_F_UNCOMPARED;
	}
}

/* The number of the next epoch is above all that anybody in the round has acknowledged. What is too
 * far ahead of all that this node knows, none has. 0: no number is left. */
uint64_t epoch_next_num(const struct engine *e, const struct map *base)
{
	uint64_t num = e->c->lead.max_num, most;

	if (base->epoch.num > num)
		num = base->epoch.num;
	if (e->c->records.want.acked.num > num)
		num = e->c->records.want.acked.num;
	most = num + EPOCH_AHEAD_MAX;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		uint64_t told = e->c->round.peer[i].acked_epoch.num;

		if (e->c->round.peer[i].in_round && told <= most && told > num)
			num = told;
	}
	return num < EPOCH_NUM_MAX ? num + 1 : 0;
}

/*
 * R3: a proposal is not taken back, but for this one: what a leader that does not serve itself has
 * proposed, and written no superblock of. Nobody in the round serves then (leads_before), so nobody
 * has written without the member that it drops, and nobody else can learn of it.
 */
static bool proposal_fresh(const struct engine *e)
{
	return e->state == ENGINE_JOINING && e->view.phase == PH_STATE && e->c->lead.own_prop &&
	       e->c->lead.prop_fresh;
}

/* It drops an older copy, and the member that would do in its place is gone again. */
static bool proposal_rash(const struct engine *e)
{
	uint32_t drops =
	    map_insync_mask(&e->map) & ~map_insync_mask(&e->view.prop) & e->c->lead.lacked;

	for (; drops && proposal_fresh(e); drops &= drops - 1)
		if (!slots_lacking_may_leave(e, (uint8_t)__builtin_ctz(drops)))
			return true;
	return false;
}

/*
 * It needs a member that is away by now, and drops one that is back, with which the data would have
 * enough. But the log of that one may not have been read yet, and it takes more than m + 1 members
 * to tell an older copy (votes_lacking): where k are fewer, the one that is away is waited for.
 */
static bool proposal_superseded(const struct engine *e)
{
	bool away = false, back = false;

	if (!proposal_fresh(e) || map_count_insync(&e->view.prop) > e->geo.k ||
	    e->geo.k <= e->geo.p.m + 1u)
		return false;
	for (uint8_t i = 0; i < e->view.prop.n; i++) {
		bool was = e->map.member[i].state == MEMBER_IN_SYNC;
		bool is = e->view.prop.member[i].state == MEMBER_IN_SYNC;

		away |= is && e->c->lead.requested[i] == MEMBER_SUSPECT &&
			member_reach(e, i) == REACH_AWAY;
		back |= was && !is && !((e->c->lead.lacked | e->c->back.older) >> i & 1) &&
			member_log_readable(e, i);
	}
	return away && back;
}

static bool next_map(struct engine *e, struct map *next)
{
	struct lead *ld = &e->c->lead;
	bool proposed = e->view.proposing && epoch_cmp(&e->view.prop.epoch, &e->map.epoch) > 0;
	const struct map *base = proposed && !proposal_fresh(e) ? &e->view.prop : &e->map;
	bool any = ld->need_epoch || ld->reassemble || e->c->leave.seals;
	uint64_t num = epoch_next_num(e, base);

	if (!num) {
		ld->why = "nothing: the array has used up all epochs of its map; copy it to "
			  "another one";
		return false;
	}
	*next = *base;
	next->epoch = (struct epoch){num, e->inc};
	ld->prop_fresh = base == &e->map;
	for (uint8_t i = 0; i < next->n; i++) {
		if (ld->requested[i] == MEMBER_IN_SYNC &&
		    (e->c->rebuild.state != RB_PROMOTE || !e->c->quiesce.wanted ||
		     e->c->rebuild.map_num != e->map.epoch.num))
			ld->requested[i] = 0;
		if (ld->requested[i] && request_moot(base, i, ld->requested[i]))
			ld->requested[i] = 0;
		ld->read_error[i] &= ld->requested[i] == MEMBER_MISSING;
	}
	any |= requests_apply(e, next);
	any |= entries_judge(e, next);
	leavers_mark(e, next);
	if (e->c->rebuild.state == RB_COPY && !e->c->rebuild.partial && e->c->rebuild.checkpoint &&
	    next->member[e->c->rebuild.member].state == MEMBER_REBUILDING &&
	    e->c->rebuild.checkpoint > next->member[e->c->rebuild.member].rebuilt_upto) {
		next->member[e->c->rebuild.member].rebuilt_upto = e->c->rebuild.checkpoint;
		any = true;
	}
	if (!map_degraded(next))
		next->missed_from = 0;
	else if (!next->missed_from)
		next->missed_from = next->epoch.num;
	return any;
}

static bool newer_request(struct engine *e)
{
	for (uint8_t i = 0; i < e->view.prop.n; i++) {
		struct map next = e->view.prop;

		if (entry_older(e, &e->view.prop, i))
			return true;
		if (e->c->lead.requested[i] &&
		    !request_moot(&e->view.prop, i, e->c->lead.requested[i]) &&
		    request_apply(e, &next, i))
			return true;
	}
	return false;
}

static void sb_write(struct engine *e, bool second);

/* One copy of each is written. A device that has come back meanwhile reads both anew. */
static void sb_copies_written(struct engine *e, const struct batch *b)
{
	struct lead *ld = &e->c->lead;

	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++) {
		if (ld->sb_dev[i] == NO_DEV)
			continue;
		copy_written(&e->c->devs.dev[ld->sb_dev[i]], ld->sb_copy[i], ld->sb_seq[i],
			     b->ok >> i & 1);
		ld->sb_dev[i] = NO_DEV;
	}
}

static void sb_written(struct engine *e, struct batch *b)
{
	struct lead *ld = &e->c->lead;
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
	NODEMSG(m, c, COMMIT, Commit, commit);

	ld->sb_writing = false;
	sb_copies_written(e, b);
	if (!leading(e) || !ld->own_prop || !e->view.proposing ||
	    epoch_cmp(&e->view.prop.epoch, &ld->prop_epoch))
		return;
	if (b->failed) {
		for (uint8_t i = 0; i < e->view.prop.n; i++)
			if (b->failed >> i & 1 && !e->c->members.bad[i])
				member_bad(e, i, MEMBER_SUSPECT);
		ld->propose_us = e->now;
		return; /* written again, or superseded once the reports are in */
	}
	if (departed_unfenced(e) || !gate_open(e))
		return; /* R4; a round will take it up */
	if (!ld->sb_second) {
		sb_write(e, true);
		return;
	}
	ep.num = e->view.prop.epoch.num;
	ep.inc = e->view.prop.epoch.inc;
	c.epoch = &ep;
	msg_send(e, &m);
	ld->committing = true; /* nothing more until the commit comes back */
}

/* A node's write to it has failed, and it must stay: it is tried with that write first, for if a
 * superblock failed, the member would have failed for good (R14). */
static bool sb_too_early(const struct engine *e, uint8_t i)
{
	return e->c->lead.kept_us[i] && e->now - e->c->lead.kept_us[i] < 2 * REPORT_AGAIN_US &&
	       member_indispensable(e, i);
}

/*
 * Every member of the new map must take its superblock; one that this node can't reach is reported.
 * Of what enters the map, the connection that is there now must have read it: it may have been
 * another, or none, when it was proposed.
 */
static bool sb_targets_ready(struct engine *e)
{
	uint32_t mask = map_write_mask(&e->view.prop), enter = mask & ~map_write_mask(&e->map);
	bool reading = false;

	for (uint8_t i = 0; i < e->view.prop.n; i++) {
		uint32_t d = e->view.dev_of[i];
		bool unread;

		if (!(mask >> i & 1))
			continue;
		unread = d != NO_DEV && e->c->devs.dev[d].up &&
			 (!copies_known(e, d) || e->c->devs.dev[d].back.due ||
			  ((enter >> i & 1 || e->c->devs.dev[d].entered) && !member_sb_read(e, i)));
		if ((unread && dev_being_read(e, &e->c->devs.dev[d])) || sb_too_early(e, i))
			reading = true;
		else if ((unread || !member_usable(e, i)) && !e->c->members.bad[i])
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
	struct lead *ld = &e->c->lead;
	struct superblock sb = e->c->epochs.base;
	uint32_t mask = map_write_mask(&e->view.prop);

	sb.committed = e->c->epochs.committed;
	sb.map = e->view.prop;
	sb.past = e->c->assembly.past;
	if (e->cfg.cluster[0]) {
		sb.clustered = true;
		memcpy(sb.cluster, e->cfg.cluster, DDR_NAME_BYTES);
	}
	ld->prop_fresh = false;
	e->c->epochs.sb_names_us = !slot_names_us(e);
	sb.writer_node = e->c->epochs.sb_names_us ? e->cfg.node : 0;
	ld->sb_writing = true;
	ld->sb_second = second;
	batch_init(&ld->sb_batch, sb_written);
	batch_open(&ld->sb_batch);
	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		ld->sb_dev[i] = NO_DEV;
	for (uint8_t i = 0; i < e->view.prop.n; i++) {
		struct dev *d =
		    e->view.dev_of[i] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[i]];

		if (!(mask >> i & 1))
			continue;
		ld->sb_copy[i] = d ? copy_to_write(d) : 0;
		if (d) {
			ld->sb_dev[i] = e->view.dev_of[i];
			ld->sb_seq[i] = sb.seq = SB_SEQ_NEXT(d->newest_seq);
			copy_write_begins(d);
		}
		sb.index = i;
		sb.place = ld->sb_copy[i] + 1;
		memcpy(sb.member_uuid, e->view.prop.member[i].uuid, DDR_UUID_BYTES);
		sb_encode(&sb, ld->sb_buf[i]);
		ld->sb_iov[i] = (struct iovec){ld->sb_buf[i], DDR_BLOCK_BYTES};
		member_io_start(e, &ld->sb_batch, i, DEV_WRITE, KIND_SB, DEV_F_FUA,
				geo_sb_offset(ld->sb_copy[i]), DDR_BLOCK_BYTES, &ld->sb_iov[i], 1,
				0);
	}
	batch_close(e, &ld->sb_batch);
}

static bool all_acked(struct engine *e)
{
	bool all = true;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (!p->member || p->acked)
			continue;
		all = false;
		if (p->node == e->cfg.node && record_stuck(e) && !alone(e)) {
			round_give_up(e); /* another can lead */
			return false;
		}
		/* R7: who does not answer within the limit is evicted. */
		if (p->node != e->cfg.node &&
		    e->now - e->c->lead.propose_us > e->cfg.tun.evict_ms * 1000ull) {
			e->c->lead.propose_us = e->now;
			evict(e, p);
		}
	}
	return all;
}

/* What a map changes of the one that counts, in words. */
static void change_trace(struct engine *e, const struct map *next)
{
	unsigned long long num = next->epoch.num;
	bool any = false;

	for (uint8_t i = 0; i < next->n && i < e->map.n; i++) {
		if (next->member[i].state == e->map.member[i].state)
			continue;
		TRACE(e, "proposes epoch %llu: member %u is %s, it was %s", num, i,
		      member_state_name(next->member[i].state),
		      member_state_name(e->map.member[i].state));
		any = true;
	}
	if (!any)
		TRACE(e, "proposes epoch %llu: the members stay as they are", num);
}

/* Leader: proposes what is wanted, drives the proposal under way. True while one is under way. */
bool epoch_propose_wanted(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	struct pb_causes causes;
	struct pb_map pm;
	struct map next;
	NODEMSG(m, b, PROPOSE, Propose, propose);

	if (ld->sb_writing || ld->committing)
		return true;
	if (ld->own_prop) {
		bool delivered =
		    e->view.proposing && !epoch_cmp(&e->view.prop.epoch, &ld->prop_epoch);

		if (!delivered)
			return true;
		if (!ld->reassemble && !newer_request(e) && !proposal_rash(e) &&
		    !(proposal_superseded(e) && next_map(e, &next) &&
		      map_write_mask(&next) != map_write_mask(&e->view.prop))) {
			if (all_acked(e) && !departed_unfenced(e) && sb_targets_ready(e))
				sb_write(e, false);
			return true;
		}
	}
	if (!next_map(e, &next))
		return false;
	pb_map_fill(&pm, &next);
	b.map = &pm.map;
	causes_propose(e, &next, &causes);
	b.n_cause = causes.count;
	b.cause = causes.ptr;
	b.reassemble = ld->reassemble;
	ld->reassemble = false;
	ld->own_prop = true;
	ld->prop_epoch = next.epoch;
	ld->max_num = next.epoch.num;
	ld->propose_us = e->now;
	change_trace(e, &next);
	msg_send(e, &m);
	return true;
}
