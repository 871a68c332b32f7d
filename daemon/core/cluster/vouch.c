/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The members as a node finds them that joins.
 *
 * An exporter that is back after a power loss takes new connections at once, and a node that joins
 * may make the first one. The others may hold connections from before, and not know yet that these
 * are dead: that what was written there and not flushed is gone (R17). What the new node reads
 * there is old. So it neither serves nor recovers nor rebuilds before each node of the round has
 * had an answer from each member, to a request that it sent after the new node had connected them:
 *
 *   new node: `asks` in its heartbeat, another number after each connection
 *   -> each other node: renews its use blocks at once (use.c)
 *   -> `vouches` in its heartbeat: that number, and the members that have answered since
 *
 * Who finds a connection dead instead reports the member, and the map says what becomes of it. Also
 * a node that does not serve yet may be the only one that was connected: who wrote has died.
 */
#include "daemon/core/cluster/msg.h"

/* An error of a request (R14) says nothing of the connection. */
static bool answers(const struct engine *e, uint8_t i, uint64_t since_us)
{
	uint32_t d = e->view.dev_of[i];

	return d != NO_DEV && e->c->devs.dev[d].up &&
	       (!e->c->members.bad[i] || member_read_error(e, i)) &&
	       (use_answered_us(e, d) >= since_us || !e->cfg.tun.claim_ms);
}

static uint32_t vouched(const struct engine *e, const struct peer *p)
{
	uint32_t mask = 0;

	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_write_mask(&e->map) >> i & 1 && answers(e, i, p->asks_us))
			mask |= 1u << i;
	return mask;
}

/* Has the map, and so asks the members that are in it. */
static bool knows(const struct engine *e)
{
	return e->view.have_map && (e->state == ENGINE_ACTIVE || e->view.phase == PH_READY);
}

void vouch_asked(struct engine *e, struct peer *p, uint64_t inc, uint32_t asks)
{
	if (p->asks == asks && p->asks_inc == inc)
		return;
	p->asks = asks;
	p->asks_inc = inc;
	p->asks_us = e->now;
	p->vouched = 0;
	if (asks && knows(e))
		use_hurry(e);
}

void vouch_told(struct engine *e, struct peer *p, const Ddraid__Vouch *v)
{
	for (uint8_t i = 0; v->inc == e->inc && v->asks <= e->c->vouch.asks && i < DDR_MAX_MEMBERS;
	     i++)
		if (v->mask >> i & 1 && v->asks > p->vouches[i])
			p->vouches[i] = v->asks;
}

/* Fills `v`, of DDR_MAX_NODES; how many there are. Told as long as the other asks: it may have
 * forgotten who this node is meanwhile. */
uint32_t vouch_tell(struct engine *e, Ddraid__Vouch *v)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->c->round.peer_count && n < DDR_MAX_NODES && knows(e); i++) {
		struct peer *p = &e->c->round.peer[i];
		uint32_t mask = p->asks && p->node != e->cfg.node ? vouched(e, p) : 0;

		p->vouched = mask;
		if (!mask)
			continue;
		v[n] = (Ddraid__Vouch)DDRAID__VOUCH__INIT;
		v[n].inc = p->asks_inc;
		v[n].asks = p->asks;
		v[n++].mask = mask;
	}
	return n;
}

/* For what is connected here now. What is not, no slot can be taken without. */
static bool vouches_for_all(const struct engine *e, const struct peer *p)
{
	for (uint8_t i = 0; i < e->map.n; i++) {
		uint32_t d = e->view.dev_of[i];

		if (!(map_write_mask(&e->map) >> i & 1) || d == NO_DEV)
			continue;
		if (p->vouches[i] < e->c->devs.dev[d].asks || p->vouches[i] < e->c->vouch.first)
			return false;
	}
	return true;
}

/* The first of those that have not vouched for all; NULL: there is none. */
const struct peer *vouch_lacks(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count && e->state == ENGINE_JOINING; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->node != e->cfg.node && p->member && !peer_is_observer(e, p) &&
		    !vouches_for_all(e, p))
			return p;
	}
	return NULL;
}

/* What was vouched for was so before this connection. */
void vouch_anew(struct engine *e, struct dev *d)
{
	if (e->state != ENGINE_JOINING)
		return;
	d->asks = ++e->c->vouch.asks;
	e->c->round.hb_next_us = e->now;
}

/* Who joins waits for it: it is told at once. */
void vouch_advance(struct engine *e)
{
	uint32_t mask = map_write_mask(&e->map);

	for (uint32_t i = 0; i < e->c->round.peer_count && knows(e); i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->asks && p->node != e->cfg.node && mask & ~p->vouched &&
		    !(mask & ~vouched(e, p)))
			e->c->round.hb_next_us = e->now;
	}
}
