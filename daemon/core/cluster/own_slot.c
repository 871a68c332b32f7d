/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * This node's slot of the dirty log, as the cluster sees it: the leader gives it, this node reads
 * it, puts its name on it, says Joined, and tells what it has missed. What is written there is
 * data/dlog.c's.
 */
#include "daemon/core/cluster/msg.h"

/* The leader gave us a slot: read it (sequence numbers, missed set), put our name on it. */
static void slot_acquire(struct engine *e, uint32_t slot)
{
	TRACE(e, "is given slot %u of the dirty log", slot);
	e->view.slot = slot;
	e->view.slot_wanted = true;
	e->c->lead.slot[slot].known = false;
}

static void slot_take(struct engine *e)
{
	const struct slotinfo *s = &e->c->lead.slot[e->view.slot];
	/* Nothing is dirty (R16: the leader gives away only clean slots); were a bit set, no region
	 * of ours would ever clear it. What could not be read only counts as dirty, or what only
	 * some members say, and the leader knows better. */
	bool counts = !s->lost && !s->unlike;

	e->view.slot_wanted = false;
	for (uint32_t i = 0; i < e->geo.log_pages; i++) {
		back_forget(e, i);
		dlog_take_page(e, i, s->page[i].seq, i ? 0 : s->dead_below,
			       counts ? rset_plane(&s->dirty, i) : NULL, rset_plane(&s->missed, i));
	}
}

/* The slot is ours when its pages are durable; then, once in each round, everybody is told. */
static void slot_advance(struct engine *e)
{
	pb_inc me = pb_inc_of(e->cfg.node, e->inc, e->view.slot, true);
	NODEMSG(m, b, JOINED, Joined, joined);

	if (e->view.slot_wanted) {
		if (e->c->lead.reading)
			return;
		if (e->c->lead.slot[e->view.slot].known)
			slot_take(e);
		else
			slot_read(e, e->view.slot);
		return;
	}
	if (!e->view.slot_owned)
		e->view.slot_owned = dlog_settled(e);
	if (!e->view.slot_owned || e->state != ENGINE_JOINING || e->view.phase != PH_READY ||
	    e->c->own_slot.joined_sent)
		return;
	if (leader_differs(e) /* not the leader that assigned it */ || vouch_lacks(e))
		return;
	b.me = &me;
	e->c->own_slot.joined_sent = true;
	msg_send(e, &m);
}

/* R4: somebody finds there whom to fence if this node dies. */
bool slot_names_us(const struct engine *e)
{
	return e->view.slot_owned && dlog_named(e) && !e->c->leave.naming;
}

/* ---- the missed set ------------------------------------------------------------------------- */

/*
 * R15: a node that has been given a slot and has not read it yet says nothing about it. What stands
 * there may be all that is known of what a member missed; an answer of zeros would lose it for
 * ever. The leader waits for the answer (gathered), or for the round that begins when this node is
 * gone.
 */
static bool slot_unread(const struct engine *e)
{
	const struct peer *me = peer_find((struct engine *)e, e->cfg.node);

	if (e->view.slot == NO_SLOT)
		return me && me->member && me->slot != NO_SLOT;
	return e->view.slot_wanted;
}

/* For a partial rebuild: what the member may lack because of us. */
static void missed_send(struct engine *e)
{
	uint8_t plane[LOG_PLANE_BYTES];
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
	NODEMSG(m, b, MISSED, Missed, missed);

	ep.num = e->map.epoch.num;
	ep.inc = e->map.epoch.inc;
	b.epoch = &ep;
	b.plane.data = plane;
	b.plane.len = LOG_PLANE_BYTES;
	for (uint32_t i = 0; e->view.slot != NO_SLOT && dlog_ready(e) && i < e->geo.log_pages;
	     i++) {
		dlog_plane(e, i, plane);
		b.page = i;
		msg_send(e, &m);
	}
	b.plane.len = 0;
	b.end = true;
	msg_send(e, &m);
}

/* A commit let a member in that is to be rebuilt from what all slots have missed. */
void slot_tell_missed(struct engine *e)
{
	e->c->own_slot.missed_due = true;
}

static void missed_advance(struct engine *e)
{
	if (!e->c->own_slot.missed_due || e->view.phase < PH_STATE || slot_unread(e))
		return;
	e->c->own_slot.missed_due = false;
	missed_send(e);
}

void own_slot_advance(struct engine *e)
{
	struct peer *me = peer_find(e, e->cfg.node);

	if (e->state == ENGINE_JOINING && e->view.stopping)
		leave_unserved(e);
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || !e->view.have_map)
		return;
	if (dlog_ready(e) && e->view.slot == NO_SLOT && e->view.phase == PH_READY && me &&
	    me->member && !e->view.left_sent && me->slot < e->geo.p.slots)
		slot_acquire(e, me->slot);
	if (dlog_ready(e) && e->view.slot != NO_SLOT)
		slot_advance(e);
	missed_advance(e);
}
