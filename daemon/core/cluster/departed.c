/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who has departed: incarnations that a quorate view left behind (R6), and which are to be fenced
 * before anything goes on without them (R4).
 *
 *   departed         the fence not answered, or no epoch committed since; in the record
 *   recently_fenced  the fence was answered lately
 *
 * Corosync's two_node gives each of two nodes quorum alone. So each of two views may leave the
 * other's node behind, and only the fence says which of them goes on: who was fenced can fence
 * nobody. For that each of two that might go on has to know whom to fence:
 *
 *  - who does not serve yet begins nothing alone before a State of its present incarnation has
 *    named both nodes (met), or if its last incarnation committed a map alone in this very ring
 *    (record.alone);
 *  - whoever was heard of has departed with its node, also if no State has named it.
 *
 * Let two incarnations, Y and Z, go on alone. If Y has met Z, Z has heard of Y, since Y's State
 * answers what Z said in a round of Y's: Z fences Y first. If neither has met the other, Y has met
 * an incarnation before Z, and Z one before Y: then each began before the other, which can't be.
 * One that never met anybody, since it began beside a node whose daemon was down, has a slot by
 * then: that names it to all who begin later. One that goes on for its last incarnation
 * (record.alone) is that incarnation's heir: that had fenced whom it had to, and was not fenced
 * itself, before it committed; the other half can't have, and nobody can have met either without
 * another ring.
 */
#include <string.h>

#include "daemon/core/cluster/msg.h"

struct departed *departed_find(struct engine *e, uint32_t node, uint64_t inc)
{
	for (uint32_t i = 0; i < e->c->departures.count; i++)
		if (e->c->departures.list[i].node == node && e->c->departures.list[i].inc == inc)
			return &e->c->departures.list[i];
	return NULL;
}

uint32_t departed_unfenced(const struct engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->c->departures.count; i++)
		n += !e->c->departures.list[i].fenced;
	return n;
}

/* The record has not room for all. What one node alone tells of goes last. */
static uint32_t record_rank(const struct engine *e, const struct departed *d)
{
	if (d->by_node == e->cfg.node && d->by_inc == e->inc)
		return 0;
	return d->sure && peer_find((struct engine *)e, d->node) ? 1 : 2;
}

void record_removed(struct engine *e)
{
	struct record *r = &e->c->records.want;

	r->removed_count = 0;
	memset(r->removed, 0, sizeof(r->removed));
	for (uint32_t rank = 0; rank <= 2; rank++) {
		for (uint32_t i = 0; i < e->c->departures.count; i++) {
			const struct departed *d = &e->c->departures.list[i];

			if (r->removed_count == DDR_MAX_NODES)
				return;
			if (e->c->departures.count > DDR_MAX_NODES && record_rank(e, d) != rank)
				continue;
			r->removed[r->removed_count].node = d->node;
			r->removed[r->removed_count].inc = d->inc;
			r->removed[r->removed_count].by_node = d->by_node;
			r->removed[r->removed_count++].by_inc = d->by_inc;
		}
		if (e->c->departures.count <= DDR_MAX_NODES)
			return;
	}
}

/*
 * What others tell has bounds:
 *
 *  1. Whom a State has named departs. With DEPARTED_JOINS incarnations of a node that are not
 *     fenced no State names another (departed_waits). So no node that works tells of more than
 *     DEPARTED_OF_NODE incarnations of one node.
 *  2. Whom this node has never met, another knows from a slot of the log or from its own view.
 *     There are no more than DEPARTED_STRANGERS slots.
 *
 * What is beyond that a broken node has made up. It is not taken, and nobody waits for its fence.
 * The rest of the table is for what this node sees itself, and that it never forgets (R4): should
 * even that be too much, it ends its own incarnation (departures.full).
 */
static bool told_fits(struct engine *e, const struct departed *told)
{
	bool strange = !peer_find(e, told->node);
	uint32_t same = 0, strangers = 0;

	for (uint32_t i = 0; i < e->c->departures.count; i++) {
		same += e->c->departures.list[i].node == told->node;
		strangers += strange && !peer_find(e, e->c->departures.list[i].node);
	}
	return same < DEPARTED_OF_NODE && strangers < DEPARTED_STRANGERS &&
	       e->c->departures.count < DEPARTED_TOLD;
}

/* So many incarnations of it wait for their fence that another has to wait until some have it. */
bool departed_waits(const struct engine *e, uint32_t node)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->c->departures.count; i++)
		n += e->c->departures.list[i].node == node && !e->c->departures.list[i].fenced;
	return n >= DEPARTED_JOINS;
}

static void gone_put(struct engine *e, const struct departed *told)
{
	struct departed *d = departed_find(e, told->node, told->inc);
	bool own = told->by_node == e->cfg.node && told->by_inc == e->inc;

	if (!told->inc || (d && !own && (d->sure || !told->sure)))
		return;
	if (d) {
		d->by_node = told->by_node;
		d->by_inc = told->by_inc;
		d->sure = true;
	} else if (!own && !told_fits(e, told)) {
		return;
	} else if (e->c->departures.count == DEPARTED_MAX) {
		e->c->departures.full = true;
		return;
	} else {
		e->c->departures.list[e->c->departures.count] = *told;
		e->c->departures.list[e->c->departures.count++].since_us = e->now;
	}
	record_removed(e);
	recovery_lost(e, told->node, told->inc);
}

/* This incarnation has seen it. */
void departed_add(struct engine *e, uint32_t node, uint64_t inc)
{
	struct departed d = {
	    .node = node, .inc = inc, .by_node = e->cfg.node, .by_inc = e->inc, .sure = true};

	gone_put(e, &d);
}

/* Another has. From who saw it itself, or from a leader, there is no doubt about it. */
void departed_told(struct engine *e, const pb_inc *who, uint32_t from, uint64_t from_inc,
		   bool by_leader)
{
	struct departed d = {.node = who->node,
			     .inc = who->inc,
			     .by_node = who->by_inc ? who->by_node : from,
			     .by_inc = who->by_inc ? who->by_inc : from_inc};

	d.sure = by_leader || (d.by_node == from && d.by_inc == from_inc);
	gone_put(e, &d);
}

/* What a State can't know better: since when, and that this incarnation has seen it itself. */
void departed_keep(const struct engine *e, struct departed *d, const struct departed *old)
{
	d->since_us = old->since_us;
	if (old->by_node != e->cfg.node || old->by_inc != e->inc)
		return;
	d->by_node = old->by_node;
	d->by_inc = old->by_inc;
}

/*
 * R6: whom an earlier incarnation of this node has seen removed, stays removed; but for those who
 * have fenced that incarnation, and they only know whether they have. So such a one is listened to
 * until a round has settled it.
 */
void departed_recall(struct engine *e, const struct record *r)
{
	for (uint32_t i = 0; i < r->removed_count && i < DDR_MAX_NODES; i++) {
		struct departed d = {.node = r->removed[i].node,
				     .inc = r->removed[i].inc,
				     .by_node = r->removed[i].by_node,
				     .by_inc = r->removed[i].by_inc};

		gone_put(e, &d);
	}
}

static struct recently_fenced *buried_find(struct engine *e, uint32_t node, uint64_t inc)
{
	for (uint32_t i = 0; i < RECENTLY_FENCED_MAX && e->c->fences.settled[i].inc; i++)
		if (e->c->fences.settled[i].node == node && e->c->fences.settled[i].inc == inc)
			return &e->c->fences.settled[i];
	return NULL;
}

bool recently_fenced(const struct engine *e, uint32_t node, uint64_t inc)
{
	return buried_find((struct engine *)e, node, inc);
}

/* Free, else the oldest of a node that nobody here has met, else the oldest. */
static struct recently_fenced *buried_room(struct engine *e)
{
	for (uint32_t i = 0; i < RECENTLY_FENCED_MAX; i++)
		if (!e->c->fences.settled[i].inc)
			return &e->c->fences.settled[i];
	for (uint32_t i = 0; i < RECENTLY_FENCED_MAX; i++) {
		struct recently_fenced *b =
		    &e->c->fences.settled[(e->c->fences.next + i) % RECENTLY_FENCED_MAX];

		if (!peer_find(e, b->node))
			return b;
	}
	return &e->c->fences.settled[e->c->fences.next++ % RECENTLY_FENCED_MAX];
}

void fenced_remember(struct engine *e, struct departed *d)
{
	d->fenced = true;
	recovery_fenced(e, d->node, d->inc);
	if (recently_fenced(e, d->node, d->inc))
		return;
	*buried_room(e) = (struct recently_fenced){.node = d->node, .inc = d->inc};
}

/*
 * A fence that only waits (R5: zombie_timeout) holds for one that is dead, or that finds an epoch
 * on the members which it did not acknowledge. One that lives, and only slept, is quorate again
 * with others while this node is away; and as long as nobody has committed anything, it goes on as
 * itself. So until the commit such a fence counts in the ring alone in which it was asked for.
 */
void fences_void(struct engine *e)
{
	for (uint32_t i = 0; i < e->c->departures.count && e->cfg.fence_waits; i++) {
		struct departed *d = &e->c->departures.list[i];
		const struct peer *p = peer_find(e, d->node);

		if (!p || p->inc <= d->inc) /* a younger one is there: this one is dead */
			d->fenced = false;
	}
}

/* One of them is back in this view, in the same ring: its daemon had lost the group. Whatever was
 * waited for says nothing of what it sends from now on. */
void fences_void_of(struct engine *e, const struct peer *p)
{
	for (uint32_t i = 0; i < e->c->departures.count && e->cfg.fence_waits; i++)
		if (e->c->departures.list[i].node == p->node &&
		    p->inc <= e->c->departures.list[i].inc)
			e->c->departures.list[i].fenced = false;
	for (uint32_t i = 0; i < RECENTLY_FENCED_MAX && e->cfg.fence_waits; i++)
		if (e->c->fences.settled[i].node == p->node &&
		    p->inc <= e->c->fences.settled[i].inc)
			memset(&e->c->fences.settled[i].settled, 0,
			       sizeof(e->c->fences.settled[i].settled));
	for (uint32_t i = 0; i < FENCE_ASKS_MAX && e->cfg.fence_waits; i++)
		if (e->c->fences.ask[i].node == p->node && p->inc <= e->c->fences.ask[i].inc)
			memset(&e->c->fences.ask[i].ring, 0, sizeof(e->c->fences.ask[i].ring));
}

void fence_settled(struct engine *e, uint32_t node, uint64_t inc)
{
	struct recently_fenced *b = buried_find(e, node, inc);

	if (b)
		b->settled = e->c->group.view_ring;
}

/*
 * Fenced lately, and needs no new fence. One that only waited has proved something in the ring in
 * which a map was committed after it. In another ring who was joining may be back: without a slot
 * it has nothing to look at the epochs for, and may get one, and serve, where nobody knows of that
 * fence.
 */
bool fence_stands(const struct engine *e, uint32_t node, uint64_t inc)
{
	const struct recently_fenced *b = buried_find((struct engine *)e, node, inc);

	return b && (!e->cfg.fence_waits || ring_is(&b->settled, &e->c->group.view_ring));
}

/* The other of two nodes may have quorum as well. */
static bool half_alone(const struct engine *e)
{
	return e->cfg.two_node && e->c->group.quorum_count < 2;
}

/* As a leader that does not serve yet: if not, the other node may do the same at this moment. */
bool may_go_alone(const struct engine *e)
{
	return !half_alone(e) || e->state == ENGINE_ACTIVE || e->c->round.met || e->cfg.alone ||
	       ring_is(&e->c->records.durable.alone, &e->c->group.view_ring);
}

/* A map was committed here: whom this half had to fence for that is fenced, and this half is not.
 */
void departed_committed(struct engine *e)
{
	e->cfg.force = e->cfg.alone = e->cfg.take_over = false; /* said for this once */
	if (!half_alone(e))
		return;
	e->c->records.want.alone.rep = e->c->group.view_ring.rep;
	e->c->records.want.alone.seq = e->c->group.view_ring.seq;
}

/* R6: a quorate view without a node is installed: it is removed, also if the next one has it back.
 */
void departed_note(struct engine *e)
{
	if (!rings_agree(e) || !e->c->group.quorate)
		return;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (p->in_view)
			continue;
		if (p->member)
			departed_add(e, p->node, p->member_inc);
		else if (p->dropped && p->hello && p->acked_epoch.inc == p->inc)
			departed_add(e, p->node,
				     p->inc); /* R4: it has proposed, and written superblocks */
		else if (p->dropped)
			p->left = true;
		if (half_alone(e))
			departed_add(e, p->node, p->heard);
		p->heard = 0;
		p->member = p->active = p->dropped = false;
	}
}

/* Incarnation 0: whoever serves on that node was left out of a quorate view. */
bool departed_is_me(const struct engine *e, const pb_inc *who)
{
	return who->node == e->cfg.node &&
	       (who->inc == e->inc || (!who->inc && e->state == ENGINE_ACTIVE));
}

/*
 * two_node: whom a fenced incarnation took for removed means nothing, whoever tells it. It was one
 * half of two that both had quorum, and the fence chose the other.
 */
bool departed_void(const struct engine *e, const pb_inc *who)
{
	return e->cfg.two_node && who->by_inc && fence_stands(e, who->by_node, who->by_inc);
}

/*
 * Nothing that it says counts. Of two nodes one that this node knows of only from its record has to
 * be heard: it may have fenced the incarnation that wrote that down.
 */
bool is_deaf_to(struct engine *e, uint32_t node, uint64_t inc)
{
	const struct departed *d = departed_find(e, node, inc);

	return d && (d->sure || !e->cfg.two_node);
}

void departed_take(struct engine *e, const struct peer *from, const pb_inc *who)
{
	struct peer *p = peer_find(e, who->node);
	struct departed *d;

	departed_told(e, who, from->node, from->inc, false);
	recovery_slot_is(e, who->node, who->inc, pb_slot(e, who));
	d = departed_find(e, who->node, who->inc);
	/* Whether it is fenced, nobody takes from another's word but from its leader's: who led
	 * heard the answer, and who was there heard Fenced. Else one broken node could have a slot
	 * read that is still written. */
	if (d)
		d->fenced |= fence_stands(e, who->node, who->inc);
	if (who->inc || !p || p->node == e->cfg.node)
		return;
	if (!p->hello)
		p->left = true;
	else if (p->active)
		departed_add(e, p->node, p->inc);
}

/* Somebody who may have been writing is gone, or has said that it gives up, or is here as another
 * incarnation: if no round has settled that yet, the next one will. Or may be all that, and this
 * node has not heard of it, since its gate is closed. */
bool lost_unfenced(const struct engine *e)
{
	if (!gate_open(e))
		return true;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->member && p->node != e->cfg.node && (p->evicted || p->inc != p->member_inc))
			return true;
	}
	return departed_unfenced(e);
}
