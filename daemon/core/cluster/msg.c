/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Node messages <-> bytes. What comes in is checked as a whole (msgcheck.c) before any handler sees
 * it; a message that doesn't pass is dropped, and is no sign of life. A sender that is broken for
 * certain is evicted: else the others would wait for its answers for ever.
 */
#include <assert.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

#define MSG_VERSION 1
#define REJECT_AGAIN_US 1000000ull

void pb_map_fill(struct pb_map *p, const struct map *m)
{
	p->map = (Ddraid__Map)DDRAID__MAP__INIT;
	p->epoch = (Ddraid__Epoch)DDRAID__EPOCH__INIT;
	p->epoch.num = m->epoch.num;
	p->epoch.inc = m->epoch.inc;
	p->map.epoch = &p->epoch;
	p->map.missed_from = m->missed_from;
	p->map.n_member = m->n;
	p->map.member = p->ptr;
	for (uint8_t i = 0; i < m->n; i++) {
		Ddraid__MapMember *mm = &p->member[i];

		*mm = (Ddraid__MapMember)DDRAID__MAP_MEMBER__INIT;
		mm->uuid.len = DDR_UUID_BYTES;
		mm->uuid.data = (uint8_t *)m->member[i].uuid;
		mm->state = m->member[i].state;
		mm->flags = m->member[i].flags;
		mm->rebuilt_upto = m->member[i].rebuilt_upto;
		mm->left = m->member[i].left;
		mm->reached = m->member[i].reached;
		p->ptr[i] = mm;
	}
}

bool pb_map_read(struct map *m, const Ddraid__Map *p)
{
	memset(m, 0, sizeof(*m));
	if (!p || !p->epoch || !p->n_member || p->n_member > DDR_MAX_MEMBERS)
		return false;
	m->epoch = (struct epoch){p->epoch->num, p->epoch->inc};
	m->missed_from = p->missed_from;
	m->n = (uint8_t)p->n_member;
	for (uint8_t i = 0; i < m->n; i++) {
		const Ddraid__MapMember *mm = p->member[i];

		if (mm->uuid.len != DDR_UUID_BYTES || mm->state > UINT8_MAX ||
		    mm->flags > UINT8_MAX)
			return false;
		memcpy(m->member[i].uuid, mm->uuid.data, DDR_UUID_BYTES);
		m->member[i].state = (uint8_t)mm->state;
		m->member[i].flags = (uint8_t)mm->flags;
		m->member[i].rebuilt_upto = mm->rebuilt_upto;
		m->member[i].left = mm->left;
		m->member[i].reached = mm->reached;
	}
	return true;
}

pb_inc pb_inc_of(uint32_t node, uint64_t inc, uint32_t slot, bool active)
{
	pb_inc i = DDRAID__INCARNATION__INIT;

	i.node = node;
	i.inc = inc;
	i.slot = slot == NO_SLOT ? 0 : slot + 1;
	i.active = active;
	return i;
}

pb_inc pb_departed(struct engine *e, const struct departed *d)
{
	pb_inc i = pb_inc_of(d->node, d->inc, recovery_slot(e, d->node, d->inc), d->fenced);

	i.by_node = d->by_node;
	i.by_inc = d->by_inc;
	return i;
}

uint32_t pb_slot(const struct engine *e, const pb_inc *i)
{
	uint32_t slots = e->view.have_geo ? e->geo.p.slots : DDR_MAX_SLOTS;

	return i->slot && i->slot <= slots ? i->slot - 1 : NO_SLOT;
}

bool epoch_is(const Ddraid__Epoch *p, const struct epoch *e)
{
	return p && p->num == e->num && p->inc == e->inc;
}

void msg_send(struct engine *e, nodemsg *m)
{
	struct out *o;
	uint8_t *data;
	size_t bytes;

	m->version = MSG_VERSION;
	m->inc = e->inc;
	if (m->body_case != DDRAID__NODE_MSG__BODY_QUERY) {
		m->term_inc = e->c->round.id.inc;
		m->term_num = e->c->round.id.num;
	}
	bytes = ddraid__node_msg__get_packed_size(m);
	data = out_memory(e, bytes);
	ddraid__node_msg__pack(m, data);
	o = out_add(e, OUT_SEND);
	o->send.data = data;
	o->send.bytes = bytes;
}

void nodemsg_join(struct engine *e)
{
	NODEMSG(m, b, JOIN, Join, join);

	msg_send(e, &m);
}

static bool of_any_term(const nodemsg *m)
{
	return m->body_case == DDRAID__NODE_MSG__BODY_HEARTBEAT ||
	       m->body_case == DDRAID__NODE_MSG__BODY_JOIN ||
	       m->body_case == DDRAID__NODE_MSG__BODY_QUERY ||
	       m->body_case == DDRAID__NODE_MSG__BODY_EVICT;
}

static bool names_me(const struct engine *e, const nodemsg *m)
{
	bool hello = m->body_case == DDRAID__NODE_MSG__BODY_HELLO;
	pb_inc *const *d;
	size_t n;

	if (!hello && m->body_case != DDRAID__NODE_MSG__BODY_STATE)
		return false;
	n = hello ? m->hello->n_departed : m->state->n_departed;
	d = hello ? m->hello->departed : m->state->departed;
	for (size_t i = 0; i < n; i++)
		if (departed_is_me(e, d[i]) && !departed_void(e, d[i]))
			return true;
	return false;
}

/*
 * Who breaks a rule that holds for all is evicted at once: it would keep the others waiting for a
 * Hello or an Ack that counts, and they would not find it silent. What is only wrong for an array
 * of this geometry is so for certain where this node serves: it has led or followed rounds by it.
 */
void msg_rejected(struct engine *e, struct peer *p, uint64_t inc, const char *why, bool certain)
{
	pb_inc who = pb_inc_of(p->node, inc, NO_SLOT, false);
	NODEMSG(m, b, EVICT, Evict, evict);

	e->c->rejected.count++;
	e->c->rejected.node = p->node;
	e->c->rejected.why = why;
	if (p->node == e->cfg.node || (!certain && e->state != ENGINE_ACTIVE) ||
	    !in_effective_view(e, p) || !quorum_gate(e) || e->now < p->reject_us)
		return;
	p->reject_us = e->now + REJECT_AGAIN_US;
	b.who = &who;
	msg_send(e, &m);
}

/* A message of a round counts from those who are in it, as who they are in it. */
static bool of_a_member(struct engine *e, uint32_t from, const nodemsg *m)
{
	const struct peer *p = peer_find(e, from);

	return p->member && p->member_inc == m->inc;
}

static void msg_dispatch(struct engine *e, uint32_t from, const nodemsg *m)
{
	if (!of_any_term(m) && (!e->c->round.id.inc || m->term_inc != e->c->round.id.inc ||
				m->term_num != e->c->round.id.num)) {
		/* Of a round that is over, or that goes on without us. Nobody has counted us in
		 * since the view changed, and somebody knows why: R6. */
		if (!e->c->round.confirmed && names_me(e, m))
			round_put_out(e);
		return;
	}
	round_message(e, from, m);
	if (of_any_term(m) || e->view.phase < PH_STATE || e->state == ENGINE_REMOVED ||
	    !of_a_member(e, from, m))
		return;
	epoch_message(e, from, m);
	leader_message(e, from, m);
}

void msg_receive(struct engine *e, const struct event *ev)
{
	struct peer *p = peer_find(e, ev->msg.from);
	const char *bad;
	bool certain;
	nodemsg *m;

	if (!p || e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED)
		return;
	if (ev->msg.broken) {
		msg_rejected(e, p, p->inc, ev->msg.broken, true);
		return;
	}
	m = ddraid__node_msg__unpack(NULL, ev->msg.bytes, ev->msg.data);
	if (!m)
		return;
	bad = m->version == MSG_VERSION ? msg_check(e, p->node, m, &certain) : NULL;
	if (m->version != MSG_VERSION) {
		/* A later one, which says nothing that this one could understand. */
	} else if (bad) {
		msg_rejected(e, p, m->inc, bad, certain);
	} else if (!is_deaf_to(e, p->node, m->inc)) {
		p->seen_us = e->now;
		p->heard = m->inc;
		msg_dispatch(e, ev->msg.from, m);
	} else {
		/* Not listened to, but it is who is there: whom an eviction has to name. */
		if (m->inc > p->inc)
			p->inc = m->inc;
		/* Two may have each other for removed, each by a view that the other slept through.
		 * The order of messages says who goes: else both would lead. */
		if (m->body_case == DDRAID__NODE_MSG__BODY_EVICT)
			round_message(e, ev->msg.from, m);
	}
	ddraid__node_msg__free_unpacked(m, NULL);
}
