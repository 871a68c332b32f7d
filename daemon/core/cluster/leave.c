/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ADMIN_STOP: this node leaves the array in good order. It drains what its users have sent, flushes
 * and clears all that it marked, takes its name off its slot, and says that it has left: then
 * nobody fences it, so nothing of it may be on its way any more (R5). The last one seals the array
 * first.
 */
#include "daemon/core/cluster/msg.h"

static void left_send(struct engine *e)
{
	pb_inc me = pb_inc_of(e->cfg.node, e->inc, e->view.slot, false);
	NODEMSG(m, b, LEFT, Left, left);

	b.me = &me;
	TRACE(e, "has nothing under way, and leaves");
	e->view.left_sent = true;
	msg_send(e, &m);
}

/*
 * ADMIN_STOP of a node that does not serve: it waits for quorum or for others, or is refused. Who
 * has been in no round yet has nobody to tell. Whose name stands in superblocks is going to be
 * fenced for it by the next to assemble the array (R4), so it does not say that it has left.
 */
void leave_unserved(struct engine *e)
{
	const struct peer *me = peer_find(e, e->cfg.node);
	bool known = me && me->member_inc == e->inc;

	e->c->leave.leaving = false;
	if (e->view.left_sent || e->view.slot != NO_SLOT || (known && me->slot != NO_SLOT) ||
	    e->c->epochs.sb_names_us || writes_may_land(e) || flush_error_untold(e))
		return;
	e->c->leave.leaving = true;
	if (member_io_any(e))
		return;
	if (!known && e->view.phase == PH_HELLO &&
	    !(e->c->round.leader == e->cfg.node && !e->c->lead.begun))
		return; /* a State may be on its way that counts this node in */
	/* Whoever is not fenced yet may use the array by this claim. */
	if (known && e->view.phase >= PH_STATE && !departed_unfenced(e) && !use_given_back(e))
		return;
	if (!known)
		engine_move(e, ENGINE_STOPPED);
	else if (me->member && e->view.phase >= PH_STATE)
		left_send(e);
}

/* What no end of requests changes keeps this node from leaving. */
bool leave_held(const struct engine *e)
{
	/* The next to assemble the array would have to fence us for it (R4). */
	if (leading(e) && e->c->epochs.sb_names_us && e->map.epoch.inc == e->inc)
		return true;
	return writes_may_land(e) || flush_error_untold(e); /* R14: until the map says it */
}

/*
 * If the whole array is stopped, somebody has to see that he is the last one, to seal the array and
 * to give its use block back. So each node says first that it is to leave, and waits for those that
 * have said so before it: all nodes hear them in the same order.
 */
static bool others_first(const struct engine *e)
{
	const struct peer *me = peer_find((struct engine *)e, e->cfg.node);

	if (alone(e) || e->now - e->c->leave.drained_us > e->cfg.tun.evict_ms * 1000ull)
		return false;
	if (!me->stops)
		return true;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && e->c->round.peer[i].stops &&
		    e->c->round.peer[i].stops < me->stops)
			return true;
	return false;
}

/* No other node serves, or may before long. One that reaches no member, say, joins for ever. */
static bool last_here(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->member && p->node != e->cfg.node && (p->active || p->slot != NO_SLOT))
			return false;
	}
	return true;
}

/*
 * Nothing is written to the array any more. The last node commits its map twice more as it is: then
 * each member tells of an epoch that was committed after the last write (R1), and one that comes
 * back as a copy of what it was during this run is told by that. While its name is on the slot
 * (R4). What keeps it from that does not keep it from leaving.
 */
static bool leave_sealed(struct engine *e)
{
	if (!leading(e) || !last_here(e))
		return true;
	if (!e->c->leave.seal_us) {
		e->c->leave.seal_us = e->now;
		e->c->leave.seals = 2 + e->c->lead.own_prop; /* of before the last write, maybe */
	}
	if (e->now - e->c->leave.seal_us > e->cfg.tun.evict_ms * 1000ull) {
		e->c->leave.unsealed |= e->c->leave.seals != 0;
		e->c->leave.seals = 0;
	}
	return !e->c->leave.seals;
}

/* It had taken its name off, and leads by now, since others left after all: what it still has to
 * commit it may only under its name. */
static bool slot_again(const struct engine *e)
{
	return leading(e) && !e->view.left_sent && !slot_names_us(e) &&
	       ((e->c->epochs.sb_names_us && e->map.epoch.inc == e->inc) ||
		(last_here(e) && !e->c->leave.seal_us));
}

/* ADMIN_STOP: nothing is dirty any more; take our name off, then leave. */
static void leave_served(struct engine *e)
{
	e->c->leave.leaving = false;
	if (io_any(e) || regions_any(e) || e->view.phase != PH_READY)
		return;
	e->c->leave.naming &= !dlog_settled(e);
	if (!e->c->leave.naming && slot_again(e)) {
		e->c->leave.naming = true;
		dlog_name(e, e->cfg.node, e->inc);
	}
	if (e->c->leave.naming)
		return;
	if (rebuild_keeps(e) || leave_held(e))
		return;
	/* A leader has more under way than its consumers' requests; it begins nothing new now. */
	e->c->leave.leaving = true;
	if (!e->c->leave.drained_us)
		e->c->leave.drained_us = e->now;
	if (dlog_named(e)) {
		/* What is under way was sent under its name (R4). */
		if (others_first(e) || !leave_sealed(e) || e->c->lead.sb_writing)
			return;
		dlog_name(e, 0, 0);
		return;
	}
	if (!dlog_settled(e) || e->view.left_sent)
		return;
	if (member_io_any(e) || !use_given_back(e))
		return;
	left_send(e);
}

/* ADMIN_STOP of a node that serves: what keeps it here, NULL: nothing but its own next step. */
const char *leave_waits(const struct engine *e)
{
	if (!e->view.stopping || e->state != ENGINE_ACTIVE || !dlog_ready(e))
		return NULL;
	if (io_any(e))
		return "what its users have sent to be done";
	if (regions_any(e))
		return "what it has written to be flushed, and cleared from its dirty log";
	if (e->view.phase != PH_READY)
		return NULL; /* the round has its own reason */
	if (e->c->leave.naming)
		return "its slot of the dirty log to name this node again, which leads by now";
	if (rebuild_keeps(e))
		return "the map to say how far the rebuild has come";
	if (leave_held(e))
		return writes_may_land(e)
			   ? "writes to end that were under way when a connection broke: "
			     "zombie_timeout"
		       : flush_error_untold(e)
			   ? "the map to say that a flush of a member has failed"
			   : "an epoch of the map that its slot stands in";
	if (!dlog_named(e))
		return "its slot of the dirty log to be given back";
	return others_first(e) ? "the nodes that are to stop, and were told so before it"
			       : "the members to be told that this run ends";
}

void leave_advance(struct engine *e)
{
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || !e->view.have_map)
		return;
	if (dlog_ready(e) && e->view.slot_owned && !e->view.slot_wanted && e->view.stopping)
		leave_served(e);
}
