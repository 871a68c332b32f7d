/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the leader does, step by step, each waiting for the one before:
 *
 *   State sent -> record of the removed durable -> nobody else uses the members (use.c; whoever
 *   assembles the array) -> all departed fenced (R4) -> lock claims in ->
 *   superblocks read, map known (R1, R3) -> orphan slots read (their unknown owners are departed
 *   too: back to the fence) -> an epoch of this round's own, if anybody left or the leader is new
 * -> dirty sets of dead slots told (R18) -> Ready
 *
 * and after Ready: requests for the map, slots for joiners, recovery of dead slots, rebuilds.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

#define FENCE_AGAIN_US 1000000ull
#define FENCE_FAILURES 3u /* then the other nodes are asked as well */

/* A new round: nothing of the last one's dealings counts. */
void leader_reset(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	ld->begun = ld->announced = ld->rereading = ld->refused = false;
	ld->assembled = ld->gathered = false;
	ld->waits_us = 0;
	ld->why = NULL;
	memset(ld->assigned, 0, sizeof(ld->assigned));
	for (uint32_t i = 0; i < e->c->departures.count; i++)
		e->c->departures.list[i].asked = false;
	epoch_reset(e);
	rebuild_reset(e);
	slots_reset(e);
	locktab_reset(e);
	admin_reset(e);
}

static void state_send(struct engine *e)
{
	pb_inc node[DDR_MAX_NODES], *np[DDR_MAX_NODES];
	pb_inc gone[DEPARTED_MAX], *gp[DEPARTED_MAX];
	struct pb_map pm;
	NODEMSG(m, b, STATE, State, state);

	b.node = np;
	b.departed = gp;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (!p->in_round)
			continue;
		/* Somebody who says that it serves, but did not serve with us: it was removed. */
		if (p->active && p->node != e->cfg.node && !p->member)
			departed_add(e, p->node, p->inc);
		if (recently_fenced(e, p->node, p->inc))
			departed_add(e, p->node, p->inc);
		if (departed_find(e, p->node, p->inc))
			continue;
		if (!p->active && p->node != e->cfg.node && departed_waits(e, p->node))
			continue;
		node[b.n_node] = pb_inc_of(p->node, p->inc, p->slot, p->active);
		np[b.n_node] = &node[b.n_node];
		b.n_node++;
	}
	for (uint32_t i = 0; i < e->c->departures.count; i++) {
		gone[i] = pb_departed(e, &e->c->departures.list[i]);
		gp[i] = &gone[i];
	}
	b.n_departed = e->c->departures.count;
	if (e->state == ENGINE_ACTIVE) {
		pb_map_fill(&pm, &e->map);
		b.committed = &pm.map;
		b.dropped = e->c->epochs.dropped;
		b.n_dropped = e->map.n;
	}
	msg_send(e, &m);
}

/*
 * R3: the newest proposal that anybody in the round has seen is the base of the next. But for those
 * that State counts out: others went on without them, and may have committed since what of these
 * proposals they had seen. One that nobody else saw was written nowhere; of two with the same
 * number nothing says that it is the older one, and what it takes for in sync may have missed all
 * writes since.
 */
static void proposal_inherit(struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (!p->in_round || !p->proposed.n || !p->active ||
		    departed_find(e, p->node, p->inc))
			continue;
		if (epoch_cmp(&p->proposed.epoch, &e->map.epoch) <= 0)
			continue;
		if (e->view.proposing && epoch_cmp(&p->proposed.epoch, &e->view.prop.epoch) <= 0)
			continue;
		e->view.prop = p->proposed;
		if (!e->view.proposing)
			e->c->epochs.proposing_us = e->now;
		e->view.proposing = true;
		e->c->epochs.acked = true; /* of no round */
	}
	if (e->view.proposing)
		e->c->lead.need_epoch = true;
}

/*
 * What a node wrote that has left, or this one into the regions of a dead one, tells nobody an
 * older copy of a member: an epoch from after that does (back.c). If all stop, the last one seals
 * the array (leave_sealed).
 */
static bool written_untold(const struct engine *e)
{
	bool go_on = false;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		go_on |= e->c->round.peer[i].member && !e->c->round.peer[i].stops;
	return go_on && (e->c->departures.uncommitted ||
			 (e->c->lead.cleared_num && e->map.epoch.num <= e->c->lead.cleared_num));
}

static void leader_begin(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	ld->begun = true;
	ld->state_us = e->now;
	use_begin(e);
	copies_forget(e); /* another leader may have written them */
	memset(ld->rd_fails, 0, sizeof(ld->rd_fails));
	/* Who does not serve yet has told nobody a map: it assembles, and commits, anew. */
	if (e->state != ENGINE_ACTIVE)
		ld->knows = ld->rereading = false; /* and reads them after the fences */
	if (!ld->knows)
		slots_unknow(e);
	ld->need_epoch = !ld->knows || e->c->departures.count || written_untold(e);
	/* A rebuild begins anew: what a partial one must copy is gathered after a commit. */
	for (uint8_t i = 0; i < e->map.n; i++)
		ld->need_epoch |= e->map.member[i].state == MEMBER_REBUILDING;
	state_send(e); /* who has departed is known by then */
	if (e->state == ENGINE_ACTIVE)
		proposal_inherit(e);
}

static void fenced_send(struct engine *e, uint32_t node, uint64_t inc)
{
	pb_inc who = pb_inc_of(node, inc, NO_SLOT, false);
	NODEMSG(m, b, FENCED, Fenced, fenced);

	b.who = &who;
	msg_send(e, &m);
}

/*
 * R4: a dead daemon on a living node may be recovered by its own restart, which fences its last
 * incarnation before it joins, and says so in Hello. So it gets a while, as long as its node lives.
 */
static bool restart_awaited(const struct engine *e, const struct departed *d)
{
	const struct peer *p = peer_find((struct engine *)e, d->node);

	if ((p && p->in_view) || e->now - d->since_us >= e->cfg.tun.restart_wait_ms * 1000ull)
		return false;
	for (uint32_t i = 0; i < e->c->group.quorum_count; i++)
		if (e->c->group.quorum[i] == d->node)
			return true;
	return false;
}

bool fenced_by_itself(const struct engine *e, uint32_t node, uint64_t inc)
{
	const struct peer *p = peer_find((struct engine *)e, node);

	/* Another fence than ours may be no fence of an incarnation that had ours. */
	return p && p->in_round && p->inc > inc &&
	       ((inc <= p->fenced_inc && !p->other_fence) || inc == p->idle_inc);
}

static struct fence_ask *ask_find(struct engine *e, uint32_t node, uint64_t inc)
{
	for (uint32_t i = 0; i < FENCE_ASKS_MAX; i++)
		if (e->c->fences.ask[i].node == node && e->c->fences.ask[i].inc == inc)
			return &e->c->fences.ask[i];
	return NULL;
}

/* False: not now. One that this ring has asked for already is still waited for. */
static bool ask_begin(struct engine *e, const struct departed *d, bool *again)
{
	struct fence_ask *a = ask_find(e, d->node, d->inc);

	*again = true;
	if (!e->cfg.fence_waits)
		return true;
	if (a && ring_is(&a->ring, &e->c->group.view_ring)) {
		*again = false;
		return true;
	}
	if (!a)
		a = ask_find(e, 0, 0);
	if (!a)
		return false;
	a->node = d->node;
	a->inc = d->inc;
	a->ring = e->c->group.view_ring;
	a->owed++;
	return true;
}

/* -EAGAIN: it says nothing, one asked for later is still owed. -ESTALE: of another ring. */
static int ask_end(struct engine *e, uint32_t node, uint64_t inc, int err)
{
	struct fence_ask *a = ask_find(e, node, inc), done;

	if (!a)
		return err;
	a->failed |= err != 0;
	if (--a->owed)
		return -EAGAIN;
	done = *a;
	memset(a, 0, sizeof(*a));
	return done.failed ? -EIO : ring_is(&done.ring, &e->c->group.view_ring) ? 0 : -ESTALE;
}

static bool fences_done(struct engine *e)
{
	bool all = true;

	for (uint32_t i = 0; i < e->c->departures.count; i++) {
		struct departed *d = &e->c->departures.list[i];
		struct out *o;
		bool again;

		if (d->fenced)
			continue;
		all = false;
		if (d->asked || e->now < d->retry_us || restart_awaited(e, d))
			continue;
		d->asked = true;
		if (fenced_by_itself(e, d->node, d->inc)) {
			fenced_send(e, d->node, d->inc);
			continue;
		}
		d->asked = ask_begin(e, d, &again);
		if (!d->asked || !again)
			continue;
		TRACE(e, "has node %u fenced, for it has departed", d->node);
		o = out_add(e, OUT_FENCE);
		o->fence.node = d->node;
		o->fence.inc = d->inc;
	}
	return all;
}

/*
 * R4, R7: the fence command of the node that leads may be the one that does not work: no key for
 * the machines of the disks, no way to them. A command that cuts off says the same wherever it
 * runs, so one that succeeds on any node of the round will do. A fence that only waits is as good
 * as anybody's.
 */
static void fence_ask_others(struct engine *e, struct departed *d)
{
	pb_inc who = pb_inc_of(d->node, d->inc, NO_SLOT, false);
	NODEMSG(m, b, FENCE_ASK, FenceAsk, fence_ask);

	d->failures++;
	if (e->cfg.fence_waits || d->failures < FENCE_FAILURES)
		return;
	b.who = &who;
	msg_send(e, &m);
}

void leader_asks_fence(struct engine *e, uint32_t node, uint64_t inc)
{
	struct departed *d = departed_find(e, node, inc);
	struct out *o;

	if (!d || d->fenced || d->asked || leading(e) || e->cfg.fence_waits ||
	    (d->node == e->cfg.node && d->inc == e->inc))
		return;
	d->asked = true;
	TRACE(e, "has node %u fenced, as the leader asked", d->node);
	o = out_add(e, OUT_FENCE);
	o->fence.node = d->node;
	o->fence.inc = d->inc;
}

/* Another node has done it, since this one asked. */
void leader_fence_told(struct engine *e, uint32_t from, struct departed *d)
{
	const struct peer *p = peer_find(e, from);

	if (leading(e) && !d->fenced && d->failures >= FENCE_FAILURES && p && p->in_round &&
	    !p->other_fence)
		fenced_send(e, d->node, d->inc);
}

void leader_fence_done(struct engine *e, const struct event *ev)
{
	struct departed *d = departed_find(e, ev->fence.node, ev->fence.inc);
	int err = ask_end(e, ev->fence.node, ev->fence.inc, ev->fence.err);

	if (!d || d->fenced || err == -EAGAIN)
		return;
	if (err) {
		d->asked = false;
		d->retry_us = err == -ESTALE ? 0 : e->now + FENCE_AGAIN_US;
		if (leading(e))
			fence_ask_others(e, d);
		return;
	}
	if (leading(e) || !e->cfg.fence_waits)
		fenced_send(e, d->node, d->inc);
}

void evict(struct engine *e, const struct peer *p)
{
	pb_inc who = pb_inc_of(p->node, p->inc, NO_SLOT, false);
	NODEMSG(m, b, EVICT, Evict, evict);

	TRACE(e, "asks all to evict node %u", p->node);
	b.who = &who;
	msg_send(e, &m);
}

/* A node whose writes as an earlier leader don't end is evicted: fenced, they have ended (R7). */
static bool claims_in(struct engine *e)
{
	bool all = true;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (!p->member || p->claimed)
			continue;
		all = false;
		if (p->node != e->cfg.node &&
		    e->now - e->c->lead.state_us > 2 * e->cfg.tun.evict_ms * 1000ull) {
			e->c->lead.state_us = e->now;
			evict(e, p);
		}
	}
	return all;
}

/* What the node has said of the member in its Hello, 0 = nothing. */
static uint8_t hello_bad(const struct peer *p, const struct map *m, uint8_t i)
{
	for (uint32_t f = 0; f < p->failed_count; f++)
		if (!memcmp(p->failed[f], m->member[i].uuid, DDR_UUID_BYTES))
			return MEMBER_FAULTY;
	return p->bad[i];
}

/* Who of the round can't use a member has said so in Hello; it counts before anybody reads. */
static void bad_gather(struct engine *e)
{
	const struct map *m = map_next(e);

	for (uint32_t j = 0; j < e->c->round.peer_count; j++) {
		const struct peer *p = &e->c->round.peer[j];

		for (uint8_t i = 0; p->in_round && i < m->n; i++) {
			uint8_t bad = hello_bad(p, m, i);

			if (!bad || !(map_write_mask(m) >> i & 1))
				continue;
			epoch_want_out(e, i, bad, false, p->bad_earlier >> i & 1, &p->cause[i]);
			e->c->lead.need_epoch = true;
		}
	}
}

static void stuck_advance(struct engine *e);

/*
 * No device lets in this node, which joins. It may have been fenced as it joined, by nodes that
 * have died since: they can't tell it, and the exporters go by its incarnation. Under a new one it
 * is welcome; it has promised nobody anything. But each time all others have a round for it, so it
 * does so less and less often.
 */
static void outcast_advance(struct engine *e)
{
	uint64_t wait_us = 5000ull * e->cfg.tun.evict_ms
			   << (e->c->choice.fenced_out < 7 ? e->c->choice.fenced_out : 7);
	bool up = e->state != ENGINE_JOINING;
	bool round = e->view.phase >= PH_STATE ||
		     (e->view.phase == PH_HELLO && e->c->round.leader == e->cfg.node);

	for (uint32_t i = 0; i < DDR_MAX_DEVS && !up; i++)
		up = e->c->devs.dev[i].up;
	if (up)
		e->c->choice.no_dev_us = 0;
	else if (!e->c->choice.no_dev_us)
		e->c->choice.no_dev_us = e->now;
	else if (round && e->now - e->c->choice.no_dev_us >= wait_us) {
		e->c->choice.fenced_out++;
		round_removed(e);
	}
}

/*
 * This node is to lead and reaches too few members, to assemble the array or to serve; or it can't
 * claim them; or its record can't be written. Is there another that could? Rounds come and go
 * meanwhile.
 */
static void better_leader_look(struct engine *e)
{
	bool joins = e->state == ENGINE_JOINING, by_one = false;
	uint32_t own = members_reached(e);
	bool can_not = record_stuck(e) || (joins && (e->c->lead.refused || e->c->use.unclaimed));
	uint32_t least = !joins ? e->geo.k : can_not ? own : own + 1;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		by_one |= in_effective_view(e, p) && p->node != e->cfg.node && !p->defers &&
			  p->reach >= least;
	}
	if (e->view.have_geo && own >= e->geo.k && !can_not)
		by_one = false;
	if (!by_one)
		e->c->choice.better_us = 0;
	else if (!e->c->choice.better_us ||
		 e->now - e->c->choice.better_seen_us > 2000ull * e->cfg.tun.evict_ms)
		e->c->choice.better_us = e->now;
	e->c->choice.better_seen_us = e->now;
}

/*
 * R7: who is to assemble the array defers to a node that reaches more of it. One that serves
 * gives up: it is the one whose network is broken, or nobody is left to tell it that it was
 * fenced. Its consumers have no array here; the others' shall.
 */
static void better_leader_advance(struct engine *e)
{
	bool leads = e->c->round.leader == e->cfg.node &&
		     (e->view.phase == PH_HELLO || e->view.phase == PH_STATE);

	if (!quorum_gate(e) || e->view.phase == PH_NONE ||
	    (e->view.phase == PH_HELLO && !e->c->round.leader))
		return; /* between two rounds, which does not count if it takes long */
	if (leads)
		better_leader_look(e);
	else
		e->c->choice.better_us = 0;
	if (!e->c->choice.better_us)
		return;
	if (e->state == ENGINE_ACTIVE && e->now - e->c->choice.better_us >= reach_us(e))
		round_give_up(e);
	if (e->state == ENGINE_JOINING &&
	    e->now - e->c->choice.better_us >= e->cfg.tun.evict_ms * 1000ull) {
		e->c->choice.defers = true;
		e->c->choice.defers_reach = members_reached(e);
		e->c->choice.better_us = 0;
		nodemsg_join(e); /* begins a round */
	}
}

/* The round is through. Whoever takes part learns by which claim the array runs, and where its map
 * comes from. */
static void ready_send(struct engine *e)
{
	Ddraid__Epoch past[LINEAGE_MAX], *pp[LINEAGE_MAX];
	NODEMSG(m, b, READY, Ready, ready);

	b.use_claim = e->c->use.claim;
	b.past = pp;
	for (; b.n_past < e->c->assembly.past.count; b.n_past++) {
		Ddraid__Epoch *ep = pp[b.n_past] = &past[b.n_past];

		*ep = (Ddraid__Epoch)DDRAID__EPOCH__INIT;
		ep->num = e->c->assembly.past.epoch[b.n_past].num;
		ep->inc = e->c->assembly.past.epoch[b.n_past].inc;
	}
	msg_send(e, &m);
}

static void leader_recover(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	if (memcmp(&e->c->records.want, &e->c->records.durable, sizeof(e->c->records.durable)))
		return;
	/* Before the fence: it would hit those who use the array rightly. */
	ld->why = e->c->use.why;
	if (e->state == ENGINE_JOINING && !use_taken(e))
		return;
	ld->why = "the fence of a departed node";
	if (!fences_done(e))
		return;
	ld->why = "the lock claims of the nodes";
	if (!claims_in(e))
		return;
	if (!ld->knows && !ld->assembled && !assemble(e))
		return;
	ld->assembled = true;
	if (!ld->gathered)
		bad_gather(e);
	ld->gathered = true;
	slots_lacking(e);
	/* Too few members to read from: they may be back, and a new epoch may say so (R17). */
	if (__builtin_popcount(read_mask(e)) < e->geo.k) {
		ld->why = members_older(e) ? MEMBER_NEEDED_OLDER ", or stop the array, and start "
								 "it with --stale to use that one"
					   : "members to come back";
		stuck_advance(e);
		epoch_propose_wanted(e);
		return;
	}
	ld->why = "the dirty log of dead nodes to be read";
	if (!slots_read(e))
		return;
	ld->why = "the map to be committed";
	if (!fences_done(e))
		return; /* slots named owners that nobody knew */
	if (ld->need_epoch) {
		stuck_advance(e);
		epoch_propose_wanted(e);
		return;
	}
	if (ld->announced)
		return;
	ld->announced = ld->knows = true;
	slots_announce(e);
	ready_send(e);
}

/* ---- after Ready ---------------------------------------------------------------------------- */

/* It has told that a flush of a member failed which the data needs: as long as that can't leave, it
 * can't read a slot, and who rebuilds another member would wait for that. */
static bool lacks_failed(const struct engine *e, const struct peer *p)
{
	uint32_t lacks = map_insync_mask(&e->map) & ~p->up_mask;

	for (; lacks; lacks &= lacks - 1)
		if (e->c->lead.requested[__builtin_ctz(lacks)] == MEMBER_FAULTY)
			return true;
	return false;
}

static void slots_assign(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	bool waits = false;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];
		NODEMSG(m, b, ASSIGN, Assign, assign);

		/* Who locks by another manager locks nothing against us: it never serves. Nor who
		 * stops writing later than we wait for, or waits for less than we need. Who may not
		 * write yet could not take it, nor say what was missed in it. */
		if (!p->member || p->active || p->slot != NO_SLOT || peer_is_observer(e, p) ||
		    peer_differs(p) || !p->leased || p->up_inc != p->inc || lacks_failed(e, p))
			continue;
		waits = true;
		for (uint32_t s = 0; s < e->geo.p.slots; s++) {
			pb_inc who = pb_inc_of(p->node, p->inc, s, false);

			/* R16: never a slot that still has somebody's bits. */
			if (slot_is_owned(e, s) || ld->assigned[s] || !slot_clean(e, s))
				continue;
			ld->assigned[s] = true;
			ld->slot[s].known = false;
			p->slot = s;
			b.who = &who;
			msg_send(e, &m);
			waits = false;
			break;
		}
	}
	hearsay_advance(e, waits);
}

/* What a node, or its last incarnation, told before the member was lost says nothing about it now:
 * by that it would come back, and leave again by the node's report, as fast as messages go. */
static bool all_reach(const struct engine *e, uint8_t member)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (!p->member)
			continue;
		if (p->up_inc != p->inc || p->up_us <= e->c->epochs.lost_us[member])
			return false;
		if (!peer_is_observer(e, p) && !(p->up_mask >> member & 1))
			return false;
	}
	return true;
}

/*
 * A member that is lost again and again as soon as it is back, since its data hang or break its
 * connection, while superblock and log answer: each time all that it was sent waits until that is
 * found out. So it is let in less and less often, and if it is not let in for `member_retry`, it is
 * missing. For so long it is kept out still.
 */
uint64_t member_kept_out_us(const struct engine *e, uint8_t i)
{
	uint32_t more = e->c->epochs.flaps[i] < 6 ? e->c->epochs.flaps[i] : 6;
	uint64_t out = e->now - e->c->epochs.lost_us[i], us;

	if (more < 3 || e->map.member[i].state != MEMBER_SUSPECT)
		return 0;
	us = e->cfg.tun.evict_ms * 1000ull << (more - 3);
	return out < us ? us - out : 0;
}

/* Suspects come back by themselves once all reach them, or are given up. */
static void suspects_advance(struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++) {
		if (e->map.member[i].state != MEMBER_SUSPECT || e->c->lead.requested[i])
			continue;
		e->c->lead.read_error[i] = false;
		if (!member_kept_out_us(e, i) && all_reach(e, i) && member_sb_current(e, i) &&
		    !slots_compare_waits(e, i))
			request_state(e, i, MEMBER_REBUILDING, WHY_BACK, 0);
		else if (e->now - e->c->epochs.lost_us[i] > e->cfg.tun.member_retry_ms * 1000ull)
			request_state(e, i, MEMBER_MISSING, WHY_AWAY, 0);
	}
}

/*
 * A request that would leave fewer than k members in sync is not granted; it waits. If only some
 * nodes have lost the member, those nodes are the problem: after a while they are evicted (R7). It
 * counts from when they became unlike: of a member that comes back to all one hears first. If all
 * of them reach it again, what it had in its cache may be gone on more than m members: parity of
 * all dirty regions is computed anew (R17). A member that answers with errors stays out of use. So
 * does one that a node knows for an older copy of itself, or is still comparing (back.c): that node
 * is right, and the only one that knows.
 */
static void stuck_member(struct engine *e, uint8_t i, bool *all_back)
{
	struct lead *ld = &e->c->lead;
	bool some = false, all = true;

	for (uint32_t j = 0; j < e->c->round.peer_count; j++) {
		const struct peer *p = &e->c->round.peer[j];

		if (!p->member || peer_is_observer(e, p))
			continue;
		some |= p->raw_mask >> i & 1;
		all &= p->raw_mask >> i & 1;
	}
	*all_back &= all;
	if (!some || all || member_doubted(e, i))
		ld->unlike_us[i] = 0;
	else if (!ld->unlike_us[i] ||
		 e->now - ld->unlike_seen_us[i] > 2000ull * e->cfg.tun.evict_ms)
		ld->unlike_us[i] = e->now;
	ld->unlike_seen_us[i] = e->now;
	if (!ld->unlike_us[i] || e->now - ld->unlike_us[i] < reach_us(e))
		return;
	ld->unlike_us[i] = e->now;
	for (uint32_t j = 0; j < e->c->round.peer_count; j++) {
		const struct peer *p = &e->c->round.peer[j];

		if (!p->member || peer_is_observer(e, p) || p->raw_mask >> i & 1)
			continue;
		if (p->node == e->cfg.node)
			round_give_up(e);
		else
			evict(e, p);
	}
}

static void stuck_advance(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	const struct map *m = map_next(e);
	uint32_t stuck = 0;
	/* The slots are read with it once more, if it is back. */
	uint32_t read_anew = e->view.phase == PH_STATE ? ld->lacked : 0;
	bool back = true;

	for (uint8_t i = 0; i < m->n; i++) {
		if (ld->read_error[i] && member_indispensable(e, i)) {
			/* Its node takes it back as well. */
			ld->requested[i] = 0;
			ld->read_error[i] = false;
		}
		if (ld->requested[i] < MEMBER_SUSPECT || ld->requested[i] > MEMBER_FAULTY ||
		    m->member[i].state != MEMBER_IN_SYNC || slots_lacking_leaves(e, i) ||
		    (map_count_insync(m) > e->geo.k && !(read_anew >> i & 1))) {
			ld->unlike_us[i] = 0;
			continue;
		}
		stuck |= 1u << i;
		back &= ld->requested[i] == MEMBER_SUSPECT;
		stuck_member(e, i, &back);
	}
	if (!stuck || !back)
		return;
	/* What is wanted of the others stands: one that is being rebuilt begins anew. */
	for (uint8_t i = 0; i < m->n; i++)
		if (stuck >> i & 1)
			ld->requested[i] = 0;
	ld->reassemble = true;
	/* Once the round is announced its map is committed with them, and nobody reads slots before
	 * the next one. */
	if (!ld->announced && stuck & (read_anew | (e->state == ENGINE_JOINING ? ~ld->rd_rows : 0)))
		slots_unknow(e);
}

static void ack_ticks(struct engine *e)
{
	/* Its slot names it now. The superblocks need not any more; else the next to assemble the
	 * array would have to fence this node, also when it has long been stopped. */
	e->c->lead.need_epoch |=
	    e->c->epochs.sb_names_us && slot_names_us(e) && e->map.epoch.inc == e->inc;
	e->c->lead.need_epoch |= written_untold(e);
	suspects_advance(e);
	stuck_advance(e);
	epoch_propose_wanted(e);
}

static bool may_begin(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	if (!may_go_alone(e)) {
		ld->why = "the other node: with corosync's two_node both must have met before "
			  "one begins alone; start ddraidd there, or start the array with "
			  "--alone if that node is off";
		return false;
	}
	if (e->c->assembly.doubt) {
		ld->why = "enough members to see whether the other nodes went on without this "
			  "one, as one of them says";
		return false;
	}
	return !takes_part(e) || ld->knows || array_still_ours(e);
}

void leader_advance(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	outcast_advance(e);
	better_leader_advance(e);
	if (e->view.phase == PH_HELLO && e->c->round.leader == e->cfg.node && !ld->begun &&
	    quorum_gate(e) && may_begin(e))
		leader_begin(e);
	if (e->view.phase >= PH_STATE && e->c->round.leader != e->cfg.node) {
		ld->knows = ld->assembled = false;
		return;
	}
	if (!leading(e) || e->view.left_sent)
		return;
	/* Who assembles the array has no lease yet: use_taken is the first that it waits for. */
	if (!gate_open(e) && !(e->view.phase == PH_STATE && e->state == ENGINE_JOINING &&
			       e->c->round.confirmed && quorum_gate(e) && !use_taken(e))) {
		/* One that has no lease since it reaches too few members has to find out whether it
		 * is alone with that (R7). What it proposes no member gets before it has one. */
		if (e->view.phase == PH_READY && e->c->round.confirmed && quorum_gate(e))
			ack_ticks(e);
		return;
	}
	if (e->view.phase == PH_STATE) {
		leader_recover(e);
		return;
	}
	slots_assign(e);
	if (!e->c->leave.leaving) {
		slots_advance(e);
		rebuild_advance(e);
	}
	admin_advance(e);
	ack_ticks(e);
}

/* R9: whoever asks before Ready, or while somebody is not fenced, asks again at the next Ready. */
static void take_lock(struct engine *e, uint32_t from, const nodemsg *m)
{
	if (e->view.phase == PH_READY && !departed_unfenced(e) && e->view.have_geo)
		locktab_request(e, from, m->lock->id, (enum lock_mode)m->lock->mode,
				m->lock->try_only);
}

/* What is claimed after the end, or after Ready, nobody has been granted. */
static void take_claim(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct peer *p = peer_find(e, from);

	if (e->view.phase != PH_STATE || p->claimed)
		return;
	for (size_t i = 0; i < m->claim->n_id && e->view.have_geo; i++)
		locktab_claim(e, from, m->claim->id[i], (enum lock_mode)m->claim->mode[i]);
	p->claimed = m->claim->end;
}

static void take_dirty(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__Dirty *d = m->dirty;
	uint8_t few[LOG_PLANE_BYTES];

	e->c->orphans.untold |= from == e->c->round.leader && !e->view.have_geo;
	if (from != e->c->round.leader || !e->view.have_geo)
		return;
	memset(few, 0, sizeof(few));
	for (size_t i = 0; i < d->n_bit; i++)
		few[d->bit[i] / 8] = (uint8_t)(few[d->bit[i] / 8] | 1u << d->bit[i] % 8);
	rset_plane_put(&e->c->orphans.dirty[d->slot], d->page, d->plane.len ? d->plane.data : few);
	if (e->view.phase == PH_READY)
		recovery_told(e);
}

static void take_assign(struct engine *e, uint32_t from, const pb_inc *who)
{
	struct peer *p = from == e->c->round.leader ? peer_find(e, who->node) : NULL;
	uint32_t slot = pb_slot(e, who);

	if (!p || !p->member || p->inc != who->inc)
		return;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (&e->c->round.peer[i] != p && e->c->round.peer[i].member &&
		    e->c->round.peer[i].slot == slot)
			return;    /* a broken leader: two would write one log */
	p->slot = pb_slot(e, who); /* dlog_advance takes it, once the geometry is known */
}

void leader_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__Grant *g = m->grant;

	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_CLAIM:
		if (leading(e))
			take_claim(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_DIRTY:
		take_dirty(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_ASSIGN:
		take_assign(e, from, m->assign->who);
		break;
	case DDRAID__NODE_MSG__BODY_LOCK:
		if (leading(e))
			take_lock(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_UNLOCK:
		if (leading(e) && e->view.phase >= PH_STATE)
			locktab_release(e, from, m->unlock->id);
		break;
	case DDRAID__NODE_MSG__BODY_GRANT:
		if (from == e->c->round.leader && g->to->node == e->cfg.node &&
		    g->to->inc == e->inc)
			lock_granted(e, g->id, (enum lock_mode)g->mode, g->refused);
		break;
	case DDRAID__NODE_MSG__BODY_CALLBACK:
		if (from == e->c->round.leader && m->callback->wanted_by != e->cfg.node)
			lock_called_back(e, m->callback->id, (enum lock_mode)m->callback->mode);
		break;
	case DDRAID__NODE_MSG__BODY_SETTLE:
	case DDRAID__NODE_MSG__BODY_SETTLED:
		settle_message(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_QUIESCE:
	case DDRAID__NODE_MSG__BODY_QUIESCED:
		quiesce_message(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_MISSED:
		if (leading(e))
			rebuild_missed(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_ADMIN:
	case DDRAID__NODE_MSG__BODY_ADMIN_DONE:
		admin_message(e, from, m);
		break;
	}
}
