/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Group membership, ordered multicast and quorum, as corosync gives them.
 *
 * A ring is one membership of corosyncs: a log of items in total order, of which each node is
 * delivered a prefix, at its own pace. Items are messages and views: the first view of a ring, and
 * one more for each daemon that joins or leaves the group meanwhile; such a view bears the same
 * ring id.
 *
 *   operational -> broken    a member is lost, or another ring is met: nothing is ordered any more
 *   broken -> (new ring)     nodes that go together from one ring to the next first deliver the
 *                            same prefix, the longest that one of them has received; then the view
 *
 * What a node received and delivered before the break may be more than others ever deliver:
 * agreed, not safe delivery. A message comes in the view that its sender had been delivered when it
 * sent it, or nowhere.
 *
 * A ring without a member that is still up forms a token time-out after the break at the earliest:
 * R7 rests on that. Quorum events come by another way, in any order with the views.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

static void on_order(struct sim *s, struct hev *ev);
static void form(struct sim *s, uint32_t set);

static uint32_t reachable(const struct sim *s, uint32_t comp)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].powered && !s->group.lost[i] && s->group.comp[i] == comp)
			mask |= 1u << i;
	return mask;
}

static struct gring *ring_of(const struct sim *s, uint32_t node)
{
	uint32_t cur = s->group.cur[node];

	return cur == NONE ? NULL : s->group.ring[cur];
}

static bool operational(const struct sim *s, uint32_t node)
{
	const struct gring *r = ring_of(s, node);

	return r && !r->broken;
}

/* A frozen member holds the token up. */
static bool stalled(const struct sim *s, const struct gring *r)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (r->nodes >> i & 1 && s->node[i].powered && s->node[i].frozen)
			return true;
	return false;
}

/* ---- delivery ------------------------------------------------------------------------------- */

static void post_view(struct sim *s, uint32_t node, uint32_t ring, uint32_t idx)
{
	const struct gring *r = s->group.ring[ring];
	struct event ev = {.type = EV_VIEW, .view = {.ring = r->id}};
	struct nev *nev;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (r->item[idx].mask >> i & 1)
			ev.view.node[ev.view.count++] = s->node[i].id;
	nev = nev_new(&ev, NULL, 0);
	nev->aux = ring;
	nev->aux2 = idx;
	node_post_nev(s, &s->node[node], s->now, nev);
}

static void post_msg(struct sim *s, uint32_t node, const struct gitem *it)
{
	struct event ev = {.type = EV_MSG, .msg = {.from = s->node[it->from].id}};
	struct nev *nev = nev_new(&ev, it->data, it->bytes);

	nev->sent_us = it->sent_us;
	nev->aux = it->from_ii;
	node_post_nev(s, &s->node[node], s->now, nev);
}

/* Nobody but its sender has delivered this message, and nothing came after it. */
static bool is_solo(const struct sim *s, const struct gring *r, uint32_t node, uint32_t idx)
{
	if (r->broken || r->item[idx].view || r->item[idx].from != node || idx + 1 != r->count ||
	    !(r->nodes & ~(1u << node)))
		return false;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (i != node && r->nodes >> i & 1 && r->ptr[i] > idx)
			return false;
	return true;
}

static void on_forget(struct sim *s, struct hev *ev)
{
	(void)ev;
	fences_forgotten(s);
}

static void break_ring(struct sim *s, struct gring *r, uint32_t solo)
{
	if (r->broken)
		return;
	r->broken = true;
	trace(s, "g  ring %u.%lu breaks at item %u", r->id.rep, r->id.seq, r->count);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		uint32_t got = r->ptr[i];

		if (!(r->nodes >> i & 1))
			continue;
		/* Who sends has everything before it. */
		for (uint32_t k = r->count; k > got; k--)
			if (!r->item[k - 1].view && r->item[k - 1].from == i)
				got = k;
		if (solo == NONE && rng_chance(&s->rng, 500))
			got = (uint32_t)rng_range(&s->rng, got, r->count);
		r->got[i] = got;
		r->limit[i] = r->ptr[i];
	}
	/* Who has delivered something just now acts on it first. */
	sim_at(s, 0, on_forget, 0, 0, NULL);
}

static void on_solo(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	uint32_t comp[SIM_MAX_NODES] = {0};

	s->planner.done++;
	if (ev->b) {
		stats_fault(s, ev->b == 2 ? F_LEADER_ALONE : F_SOLO_MSG_CRASH);
		node_crash(s, n);
		node_power_on_later(s, n, rng_range(&s->rng, 50 * MS, 1500 * MS));
		return;
	}
	stats_fault(s, F_SOLO_MSG);
	comp[n->idx] = 1;
	group_partition(s, comp);
	group_heal_later(s, rng_range(&s->rng, 100 * MS, 1500 * MS));
}

static void check_solo(struct sim *s, struct gring *r, uint32_t node, uint32_t idx)
{
	struct simgroup *g = &s->group;

	if (!g->solo_armed || !is_solo(s, r, node, idx) || r->item[idx].bytes < 24 ||
	    (g->solo_commit && !trace_is_commit(r->item[idx].data, r->item[idx].bytes)))
		return;
	if (--g->solo_armed)
		return;
	break_ring(s, r, node);
	/* With the commit it has answers to give, which it gives. */
	sim_at(s, g->solo_commit ? 1 * MS + rng_below(&s->rng, 2000) : rng_below(&s->rng, 300),
	       on_solo, node, g->solo_commit ? 2 : g->solo_crash, NULL);
}

static void on_deliver(struct sim *s, struct hev *ev)
{
	uint32_t ring = (uint32_t)ev->a, node = (uint32_t)(ev->a >> 32), idx = (uint32_t)ev->b;
	struct gring *r = s->group.ring[ring];

	if (idx >= r->limit[node] || idx != r->ptr[node])
		return;
	r->ptr[node] = idx + 1;
	if (r->first[node] == NONE || idx < r->first[node] || !s->node[node].proc)
		return;
	if (r->item[idx].view) {
		s->group.seen_ring[node] = ring;
		s->group.seen_view[node] = idx;
		post_view(s, node, ring, idx);
	} else
		post_msg(s, node, &r->item[idx]);
	if (r->item[idx].evicts == s->node[node].id && s->o.nodes > 2)
		givesup_third_lags(s, &s->node[node], 1 * MS);
	check_solo(s, r, node, idx);
}

static void plan_delivery(struct sim *s, uint32_t ring, uint32_t node, uint32_t idx)
{
	uint64_t at = s->now + rng_range(&s->rng, s->o.net_lo_us, s->o.net_hi_us);

	if (rng_chance(&s->rng, 5))
		at += rng_range(&s->rng, 0, 20 * MS);
	if (at < s->group.last_us[node])
		at = s->group.last_us[node];
	s->group.last_us[node] = at;
	sim_at(s, at - s->now, on_deliver, (uint64_t)node << 32 | ring, idx, NULL);
}

static struct gitem *append(struct sim *s, uint32_t ring)
{
	struct gring *r = s->group.ring[ring];

	if (r->count == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 64;
		r->item = xrealloc(r->item, r->cap * sizeof(*r->item));
	}
	r->item[r->count] = (struct gitem){.from = NONE};
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (r->nodes >> i & 1)
			plan_delivery(s, ring, i, r->count);
	return &r->item[r->count++];
}

static void append_view(struct sim *s, uint32_t ring, uint32_t procs, const uint32_t *left,
			uint32_t left_count)
{
	struct gring *r = s->group.ring[ring];
	struct gitem *it = append(s, ring);

	it->view = true;
	r->view = r->count - 1;
	it->mask = r->procs = procs;
	memcpy(it->in_ii, s->group.member_ii, sizeof(it->in_ii));
	it->left_count = left_count;
	for (uint32_t i = 0; i < left_count; i++)
		it->left_ii[i] = left[i];
	trace(s, "g  ring %u.%lu item %u: view %x%s", r->id.rep, r->id.seq, r->count - 1, procs,
	      r->quorate ? "" : ", not quorate");
}

static void append_msg(struct sim *s, uint32_t node, struct gmsg *m)
{
	uint32_t ring = s->group.cur[node];
	struct gitem *it;

	if (m->ring != ring || m->view != s->group.ring[ring]->view) {
		stats_fault(s, F_MSG_LOST);
		return;
	}
	it = append(s, ring);
	it->from = node;
	it->sent_us = m->sent_us;
	it->from_ii = m->ii;
	it->evicts = trace_evicts(m->data, m->bytes);
	it->bytes = m->bytes;
	it->data = xmalloc(m->bytes + 1);
	memcpy(it->data, m->data, m->bytes);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void kick(struct sim *s, uint32_t node)
{
	if (!s->group.head[node] || s->group.ordering[node])
		return;
	s->group.ordering[node] = true;
	sim_at(s, rng_range(&s->rng, s->o.net_lo_us / 2, s->o.net_hi_us / 2), on_order, node, 0,
	       NULL);
}

static struct gmsg *take_msg(struct simgroup *g, uint32_t node)
{
	struct gmsg *m = g->head[node];

	g->head[node] = m->next;
	if (!m->next)
		g->tail[node] = NULL;
	return m;
}

static void on_order(struct sim *s, struct hev *ev)
{
	uint32_t node = (uint32_t)ev->a, n = 1 + rng_below(&s->rng, 8);
	struct simgroup *g = &s->group;

	g->ordering[node] = false;
	if (!operational(s, node) || !g->joined[node])
		return; /* kicked again when there is a ring, and it is in the group */
	if (stalled(s, ring_of(s, node))) {
		g->ordering[node] = true;
		sim_at(s, 1 * MS, on_order, node, 0, NULL);
		return;
	}
	while (n-- && g->head[node]) {
		struct gmsg *m = take_msg(g, node);

		append_msg(s, node, m);
		free(m);
	}
	kick(s, node);
}

void group_send(struct sim *s, struct simnode *n, const uint8_t *data, size_t bytes)
{
	struct simgroup *g = &s->group;
	struct gmsg *m = xmalloc(sizeof(*m) + bytes);

	*m = (struct gmsg){.ii = n->ii,
			   .ring = g->seen_ring[n->idx],
			   .view = g->seen_view[n->idx],
			   .sent_us = s->now,
			   .bytes = bytes};
	memcpy(m->data, data, bytes);
	*(g->tail[n->idx] ? &g->tail[n->idx]->next : &g->head[n->idx]) = m;
	g->tail[n->idx] = m;
	kick(s, n->idx);
}

/* ---- daemons join and leave ----------------------------------------------------------------- */

static void post_quorum(struct sim *s, uint32_t node)
{
	const struct gring *r = ring_of(s, node);
	struct event ev = {.type = EV_QUORUM};
	uint64_t at = s->now + rng_range(&s->rng, 0, 6 * MS);

	if (!r || !s->node[node].proc)
		return;
	ev.view.ring = r->id;
	ev.view.quorate = r->quorate;
	ev.view.two_node = s->o.two_node;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (r->nodes >> i & 1)
			ev.view.node[ev.view.count++] = s->node[i].id;
	if (at < s->group.quorum_us[node])
		at = s->group.quorum_us[node];
	s->group.quorum_us[node] = at;
	node_post_nev(s, &s->node[node], at, nev_new(&ev, NULL, 0));
}

static void on_join(struct sim *s, struct hev *ev)
{
	uint32_t node = (uint32_t)ev->a;
	struct simgroup *g = &s->group;
	struct gring *r = ring_of(s, node);

	if (!s->node[node].proc || s->node[node].gen != ev->b || g->joined[node] || !r || r->broken)
		return; /* form() asks again */
	if (stalled(s, r)) {
		sim_at(s, 1 * MS, on_join, node, ev->b, NULL);
		return;
	}
	g->joined[node] = true;
	r->first[node] = r->count;
	g->member_ii[node] = s->node[node].ii;
	s->inc[s->node[node].ii].joined = true;
	append_view(s, g->cur[node], r->procs | 1u << node, NULL, 0);
	kick(s, node);
}

void group_join(struct sim *s, uint32_t node)
{
	s->group.wants[node] = true;
	post_quorum(s, node);
	sim_at(s, rng_range(&s->rng, 1 * MS, 20 * MS), on_join, node, s->node[node].gen, NULL);
}

static void forget_daemon(struct sim *s, uint32_t node, bool killed)
{
	struct simgroup *g = &s->group;

	/* What it had handed over may still go out, up to some message. */
	while (g->head[node]) {
		struct gmsg *m = take_msg(g, node);

		if (killed && operational(s, node) && g->joined[node] &&
		    !stalled(s, ring_of(s, node)) && rng_chance(&s->rng, 500))
			append_msg(s, node, m);
		else
			killed = false;
		free(m);
	}
	g->wants[node] = false;
	for (uint32_t i = 0; i < g->count; i++)
		g->ring[i]->first[node] = NONE;
}

static void left(struct sim *s, uint32_t node, uint32_t ii)
{
	append_view(s, s->group.cur[node], ring_of(s, node)->procs & ~(1u << node), &ii, 1);
}

/* A new ring may have said so meanwhile. */
static void on_left(struct sim *s, struct hev *ev)
{
	uint32_t node = (uint32_t)ev->a;

	if (operational(s, node) && !s->group.joined[node] && ring_of(s, node)->procs >> node & 1)
		left(s, node, (uint32_t)ev->b);
}

void group_leave(struct sim *s, uint32_t node)
{
	struct simgroup *g = &s->group;
	bool was = g->joined[node];

	forget_daemon(s, node, true);
	g->joined[node] = false;
	if (!was || !operational(s, node))
		return;
	/* The cluster stack sees that a process is gone, and says so: a moment after the DLM. */
	if (s->o.late_leave)
		sim_at(s, rng_range(&s->rng, 0, 5 * MS), on_left, node, g->member_ii[node], NULL);
	else
		left(s, node, g->member_ii[node]);
}

/* ---- membership ----------------------------------------------------------------------------- */

static void on_form(struct sim *s, struct hev *ev)
{
	uint32_t comp = (uint32_t)ev->a, set = reachable(s, comp);

	if (s->now < s->group.not_before) {
		sim_at(s, s->group.not_before - s->now, on_form, comp, 0, NULL);
		return;
	}
	if (set)
		form(s, set);
}

static void plan_form(struct sim *s, uint64_t lo, uint64_t hi)
{
	for (uint32_t comp = 0; comp < SIM_MAX_NODES; comp++)
		if (reachable(s, comp))
			sim_at(s, rng_range(&s->rng, lo, hi), on_form, comp, 0, NULL);
}

/* Those of `set` that come from ring `old` deliver the same rest of it. */
static void transition(struct sim *s, uint32_t old, uint32_t set)
{
	struct gring *r = s->group.ring[old];
	uint32_t cut = 0, least = UINT32_MAX;

	for (uint32_t i = 0; i < s->o.nodes; i++) {
		if (!(r->nodes >> i & 1))
			continue;
		if (set >> i & 1 && r->got[i] > cut)
			cut = r->got[i];
		if (r->got[i] < least)
			least = r->got[i];
	}
	if (cut < r->count)
		stats_fault(s, F_MSG_LOST);
	if (least < cut)
		stats_fault(s, F_MSG_TAIL);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		if (!(set >> i & 1))
			continue;
		r->limit[i] = cut;
		for (uint32_t k = r->ptr[i]; k < cut; k++)
			plan_delivery(s, old, i, k);
	}
}

static uint32_t ring_new(struct sim *s, uint32_t set)
{
	struct simgroup *g = &s->group;
	struct gring *r = xcalloc(1, sizeof(*r));

	if (g->count == g->cap) {
		g->cap = g->cap ? 2 * g->cap : 16;
		g->ring = xrealloc(g->ring, g->cap * sizeof(*g->ring));
	}
	g->next_seq += 4;
	r->id.seq = g->next_seq;
	r->id.rep = s->node[__builtin_ctz(set)].id;
	r->nodes = set;
	r->quorate = (uint32_t)__builtin_popcount(set) * 2 > s->o.nodes;
	for (uint32_t i = 0; i < s->o.nodes && s->o.two_node; i++)
		if (set >> i & 1) {
			g->met_all[i] |= r->quorate;
			r->quorate |= g->met_all[i];
		}
	for (uint32_t i = 0; i < SIM_MAX_NODES; i++) {
		r->limit[i] = UINT32_MAX;
		r->first[i] = g->joined[i] && s->node[i].proc ? 0 : NONE;
	}
	g->ring[g->count] = r;
	return g->count++;
}

static void start_ring(struct sim *s, uint32_t ring, uint32_t before)
{
	struct gring *r = s->group.ring[ring];
	uint32_t procs = 0, left[SIM_MAX_NODES], left_count = 0;

	for (uint32_t i = 0; i < s->o.nodes; i++) {
		if (r->nodes >> i & 1 && r->first[i] == 0)
			procs |= 1u << i;
		else if (before >> i & 1)
			left[left_count++] = s->group.member_ii[i];
	}
	append_view(s, ring, procs, left, left_count);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		if (!(r->nodes >> i & 1))
			continue;
		post_quorum(s, i);
		if (s->group.wants[i] && !s->group.joined[i])
			sim_at(s, rng_range(&s->rng, 1 * MS, 20 * MS), on_join, i, s->node[i].gen,
			       NULL);
		kick(s, i);
	}
	if (r->quorate)
		dlm_quorate(s, ring);
}

/* ---- votes ---------------------------------------------------------------------------------- */

static void quorum_set(struct sim *s, uint32_t ring, bool quorate)
{
	struct gring *r = s->group.ring[ring];

	r->quorate = quorate;
	trace(s, "g  ring %u.%lu is %squorate", r->id.rep, r->id.seq, quorate ? "" : "not ");
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (r->nodes >> i & 1)
			post_quorum(s, i);
	if (quorate)
		dlm_quorate(s, ring);
}

static void on_votes_back(struct sim *s, struct hev *ev)
{
	if (!s->group.ring[ev->a]->broken)
		quorum_set(s, (uint32_t)ev->a, true);
}

/* Quorum is lost and comes back with no change of the ring: votes, or a quorum device. */
static void on_votes_lost(struct sim *s, struct hev *ev)
{
	uint32_t ring = s->group.cur[ev->a];

	if (s->planner.healing)
		return;
	if (ring == NONE || s->group.ring[ring]->broken || !s->group.ring[ring]->quorate) {
		sim_at(s, 50 * MS, on_votes_lost, ev->a, 0, NULL);
		return;
	}
	stats_fault(s, F_VOTES_LOST);
	quorum_set(s, ring, false);
	sim_at(s, 5 * MS + mix64(s->seed ^ s->now) % (1500 * MS), on_votes_back, ring, 0, NULL);
}

/* Of its own randomness. */
void votes_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x766f746573ull);

	if (s->o.faultless || s->o.nodes == 1 || (s->cli && s->cli->only) || r % 100 >= 20)
		return;
	sim_at(s, (300 + r / 100 % 3000) * MS, on_votes_lost, r / 1000000 % s->o.nodes, 0, NULL);
}

/* ---- a daemon's connection ------------------------------------------------------------------ */

static void on_regroup(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (!n->proc || n->gen != ev->b)
		return;
	if (n->frozen || n->stopped)
		sim_at(s, 2 * MS, on_regroup, ev->a, ev->b, NULL);
	else
		group_join(s, n->idx);
}

/*
 * A daemon and its corosync lose each other, and it is back soon after, as the same incarnation and
 * in the same ring: nothing that takes a token time-out lies between what the others see, and it.
 */
static void on_group_lost(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x6c6f7374);
	struct simnode *n = &s->node[r % s->o.nodes];
	struct event lost = {.type = EV_QUORUM};

	if (s->planner.healing)
		return;
	if (!n->proc || n->frozen || n->stopped || n->removing || n->stopped_itself ||
	    !operational(s, n->idx) || !s->group.joined[n->idx] || stalled(s, ring_of(s, n->idx)) ||
	    s->group.quorum_us[n->idx] >= s->now || (r / 8 % 4 && !dev_writes_at(s, n))) {
		sim_at(s, 1 * MS + r / 32 % (5 * MS), on_group_lost, ev->a, 0, NULL);
		return;
	}
	stats_look(s);
	stats_fault(s, F_GROUP_LOST);
	trace(s, "f  n%u loses the group", n->id);
	if (s->o.nodes > 2)
		givesup_third_lags(s, n, 80 * MS);
	group_leave(s, n->idx);
	node_post(s, n, 0, &lost);
	sim_at(s, 50 * MS + r / 32 % (r / 256 % 4 ? 5 * MS : 300 * MS), on_regroup, n->idx, n->gen,
	       NULL);
	stats_look_end(s);
	if (ev->a)
		sim_at(s, 10 * MS + r / 512 % (900 * MS), on_group_lost, ev->a - 1, 0, NULL);
}

/* Of its own randomness. */
void group_loss_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x67726f75706c6f73ull);

	if (s->o.faultless || (s->cli && s->cli->only) || r % 100 >= 30)
		return;
	sim_at(s, (200 + r / 100 % 3000) * MS, on_group_lost, r / 1000000 % 3, 0, NULL);
}

/* A new ring of exactly these nodes. */
static void form(struct sim *s, uint32_t set)
{
	struct simgroup *g = &s->group;
	uint32_t ring, before = 0, first = g->cur[__builtin_ctz(set)];
	bool same = first != NONE && !g->ring[first]->broken && g->ring[first]->nodes == set;

	if (same)
		return;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (set >> i & 1 && operational(s, i))
			break_ring(s, ring_of(s, i), NONE);
	for (uint32_t old = 0; old < g->count; old++) {
		uint32_t from = 0;

		for (uint32_t i = 0; i < s->o.nodes; i++)
			if (set >> i & 1 && g->cur[i] == old)
				from |= 1u << i;
		if (!from)
			continue;
		transition(s, old, from);
		before |= g->ring[old]->procs;
	}
	ring = ring_new(s, set);
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (set >> i & 1)
			g->cur[i] = ring;
	start_ring(s, ring, before);
}

static void lose(struct sim *s, uint64_t now_plus_us)
{
	if (s->group.not_before < s->now + now_plus_us)
		s->group.not_before = s->now + now_plus_us;
	plan_form(s, now_plus_us, now_plus_us + 60 * MS);
}

static void meet(struct sim *s)
{
	plan_form(s, 15 * MS, 80 * MS);
}

void group_node_up(struct sim *s, uint32_t node)
{
	s->group.lost[node] = s->group.met_all[node] = false;
	s->group.cur[node] = NONE;
	meet(s);
}

void group_node_down(struct sim *s, uint32_t node)
{
	struct gring *r = ring_of(s, node);

	if (r)
		break_ring(s, r, NONE);
	forget_daemon(s, node, false);
	s->group.joined[node] = false;
	s->group.cur[node] = NONE;
	lose(s, s->o.token_us);
}

void group_partition(struct sim *s, const uint32_t comp[SIM_MAX_NODES])
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		s->group.comp[i] = comp[i];
	for (uint32_t i = 0; i < s->o.nodes; i++)
		for (uint32_t k = 0; k < s->o.nodes; k++)
			if (operational(s, i) && ring_of(s, i)->nodes >> k & 1 &&
			    comp[i] != comp[k])
				break_ring(s, ring_of(s, i), NONE);
	lose(s, s->o.token_us);
}

void group_heal(struct sim *s)
{
	memset(s->group.comp, 0, sizeof(s->group.comp));
	meet(s);
}

static void on_heal(struct sim *s, struct hev *ev)
{
	if (ev->b == s->group.heal_no)
		group_heal(s);
}

void group_heal_later(struct sim *s, uint64_t delay_us)
{
	sim_at(s, delay_us, on_heal, 0, ++s->group.heal_no, NULL);
}

void group_frozen_out(struct sim *s, uint32_t node)
{
	struct gring *r = ring_of(s, node);

	s->group.lost[node] = true;
	if (r)
		break_ring(s, r, NONE);
	plan_form(s, 5 * MS, 60 * MS);
}

void group_thawed(struct sim *s, uint32_t node)
{
	if (!s->group.lost[node])
		return;
	s->group.lost[node] = false;
	if (rng_chance(&s->rng, 500))
		form(s, 1u << node); /* it finds itself alone first */
	meet(s);
}

bool group_in_ring(const struct sim *s, uint32_t node, uint32_t ring)
{
	return s->group.cur[node] == ring && operational(s, node);
}

bool group_whole(const struct sim *s)
{
	uint32_t up = 0;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		up |= (uint32_t)s->node[i].powered << i;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (!operational(s, i) || ring_of(s, i)->nodes != up)
			return false;
	return true;
}

void group_init(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_MAX_NODES; i++)
		s->group.cur[i] = s->group.member_ii[i] = NONE;
}

void group_free(struct sim *s)
{
	struct simgroup *g = &s->group;

	for (uint32_t i = 0; i < g->count; i++) {
		for (uint32_t k = 0; k < g->ring[i]->count; k++)
			free(g->ring[i]->item[k].data);
		free(g->ring[i]->item);
		free(g->ring[i]);
	}
	free(g->ring);
	for (uint32_t i = 0; i < SIM_MAX_NODES; i++)
		while (g->head[i])
			free(take_msg(g, i));
}
