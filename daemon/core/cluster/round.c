/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who takes part.
 *
 * Each change of the group (a view, an eviction, a node's new incarnation) begins a round:
 *
 *   NONE   nothing but heartbeats counts
 *   HELLO  the lowest node of the quorate view sent Query(view); each node answers Hello with all
 *          that it knows. A quorate view without a node is thereby installed: it is departed (R6).
 *          The leader is the lowest node among those that serve and hold the newest committed
 *          epoch, or, if none serves, the lowest that does not yield (it assembles the array).
 *   STATE  the leader said who takes part and who departed. Each node sends its lock claims.
 *   READY  all departed are fenced, their slots read, the map settled (leader.c): locks are granted
 *          and reads go on.
 *
 * A round is named by its Query (term); a message of another round is dropped wherever it arrives.
 * That, and claims that come from the holders, is what makes a multicast harmless that only its
 * sender saw delivered: nothing that was granted or committed in an old round counts in the next
 * but what its receiver brings along in Hello and Claim.
 *
 * A node learns of its own removal by Evict, by another's Hello (departed), or by State. One that
 * gives up, or was put out by the others, sends the Evict itself.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

#define MUTE_QUERIES 2u

struct peer *peer_find(struct engine *e, uint32_t node)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].node == node)
			return &e->c->round.peer[i];
	return NULL;
}

/*
 * More node ids than the table has have come and gone in this incarnation. Forgotten is who has
 * been gone for longest, and owes nothing: he is in no view, takes part in nothing, and
 * departed_note has seen to him. That a view left him behind (left) is forgotten too: if he serves
 * when he is back, he did not serve with us, and is taken for removed for that (state_send).
 */
static struct peer *peer_spare(struct engine *e)
{
	struct peer *spare = NULL;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (p->node == e->cfg.node || p->in_view || p->member || p->dropped)
			continue;
		if (!spare || p->left < spare->left ||
		    (p->left == spare->left && p->seen_us < spare->seen_us))
			spare = p;
	}
	return spare;
}

struct peer *peer_get(struct engine *e, uint32_t node)
{
	struct peer *p = peer_find(e, node);

	if (p)
		return p;
	p = e->c->round.peer_count < PEERS_MAX ? &e->c->round.peer[e->c->round.peer_count++]
					       : peer_spare(e);
	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->node = node;
	p->slot = NO_SLOT;
	p->seen_us = e->now;
	return p;
}

bool in_effective_view(const struct engine *e, const struct peer *p)
{
	(void)e;
	return p->in_view && !p->evicted;
}

bool leading(const struct engine *e)
{
	return e->view.phase >= PH_STATE && e->c->round.leader == e->cfg.node &&
	       (e->state == ENGINE_ACTIVE || e->state == ENGINE_JOINING);
}

bool alone(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && e->c->round.peer[i].node != e->cfg.node)
			return false;
	return true;
}

/* Its state directory is full, say. Who leads and can't write down what R4 and R6 need holds all.
 */
bool record_stuck(const struct engine *e)
{
	return e->c->records.busy &&
	       e->now - e->c->records.asked_us > 2000ull * e->cfg.tun.evict_ms;
}

void record_advance(struct engine *e)
{
	if (e->c->records.busy || e->state == ENGINE_STOPPED ||
	    !memcmp(&e->c->records.want, &e->c->records.durable, sizeof(e->c->records.durable)))
		return;
	e->c->records.sent = e->c->records.want;
	e->c->records.busy = true;
	e->c->records.asked_us = e->now;
	out_add(e, OUT_RECORD)->record = &e->c->records.sent;
}

/* R6: this incarnation is over. */
void round_removed(struct engine *e)
{
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED)
		return;
	devs_lost_keep(e);
	engine_move(e, ENGINE_REMOVED);
	phase_move(e, PH_NONE);
	e->c->round.id = (struct round_id){0, 0};
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (dev_ios(e, i))
			out_add(e, OUT_DEV_CANCEL)->cancel.dev = i;
	io_abort_all(e, -EIO);
	out_add(e, OUT_REMOVED);
}

/*
 * The others first: what is under way here may land until this incarnation is fenced, and a
 * consumer that is told EIO may go on elsewhere in the next moment. From Evict to the fence they
 * write nothing that ours could come over (departed.c, lost_unfenced). It is sent until it comes,
 * and in each new view, where its part in rounds would be waited for. That it came here does not
 * say that it came elsewhere (R9); but after heartbeat_limit it has, or who has not heard it does
 * no I/O (R7). Who can't be heard any more is given up anyway, after evict.
 */
static void evict_self(struct engine *e)
{
	pb_inc who = pb_inc_of(e->cfg.node, e->inc, NO_SLOT, false);
	NODEMSG(m, b, EVICT, Evict, evict);

	if (!e->c->round.give_up_us)
		return;
	b.who = &who;
	msg_send(e, &m);
}

void round_give_up(struct engine *e)
{
	if (e->c->round.give_up_us || e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED)
		return;
	e->c->round.give_up_us = e->now + e->cfg.tun.evict_ms * 1000ull;
	evict_self(e);
}

/* ---- views and rounds ----------------------------------------------------------------------- */

static void round_end(struct engine *e)
{
	e->c->round.id = (struct round_id){0, 0};
	phase_move(e, PH_NONE);
	e->c->round.queried = false;
	e->c->round.leader = 0;
	e->c->round.view_us = e->now;
	e->c->own_slot.joined_sent = e->view.left_sent = false;
	if (e->c->leave.seals)
		e->c->leave.seal_us = e->c->leave.seals = 0; /* begun anew, if it was not through */
	e->c->own_slot.missed_due = false; /* the next round commits, and asks, anew */
	leader_reset(e);
}

/*
 * Its own Evict came, or another's. In a view of one the others are waited for as well: whom its
 * corosync has dropped from the group is gone from the view, and may not have read that yet. Who
 * has met no other in this incarnation has nobody to wait for.
 */
static void evict_heard(struct engine *e)
{
	if (e->state != ENGINE_ACTIVE || !e->c->round.met) {
		round_removed(e);
		return;
	}
	round_end(e);
	if (!e->c->round.give_up_heard)
		e->c->round.give_up_us = e->now + e->cfg.tun.heartbeat_limit_ms * 1000ull;
	e->c->round.give_up_heard = true;
}

/*
 * Others went on without this incarnation, and say so: they were in a view without it. A third node
 * may not have seen that view yet; so consumers are told as when it gives up. With its Evict the
 * others need not wait for its part in their rounds.
 */
void round_put_out(struct engine *e)
{
	if (e->state != ENGINE_ACTIVE) {
		round_removed(e);
		return;
	}
	round_end(e);
	round_give_up(e);
}

/* Who has no entry has to wait until another's is free: for it nobody is asked, nor answered. */
static void view_peers(struct engine *e)
{
	for (uint32_t j = 0; j < e->c->group.view_count; j++) {
		struct peer *p = peer_get(e, e->c->group.view[j]);

		if (!p || p->in_view)
			continue;
		p->in_view = true;
		p->seen_us = e->now;
	}
}

void round_view(struct engine *e, const struct event *ev)
{
	assert(ev->view.count <= DDR_MAX_NODES);
	if (!ring_is(&e->c->group.view_ring, &ev->view.ring)) {
		e->c->round.confirmed = e->c->lead.knows = false;
		fences_void(e);
	}
	TRACE(e, "sees %u daemon%s in the group", ev->view.count, ev->view.count == 1 ? "" : "s");
	e->c->group.view_ring = ev->view.ring;
	e->c->group.view_known = true;
	e->c->group.view_count = ev->view.count;
	memcpy(e->c->group.view, ev->view.node, sizeof(e->c->group.view));
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];
		bool in = false;

		for (uint32_t j = 0; j < e->c->group.view_count; j++)
			in |= e->c->group.view[j] == p->node;
		if (!in)
			p->evicted = false;
		if (in && !p->in_view)
			fences_void_of(e, p);
		p->dropped = !in && (p->dropped || p->in_view);
		p->in_view = in;
		p->seen_us = in ? e->now : p->seen_us;
	}
	view_peers(e);
	departed_note(e);
	view_peers(e);
	if (e->state == ENGINE_ACTIVE || e->state == ENGINE_JOINING)
		round_end(e);
	if (e->c->round.give_up_us && !e->c->round.give_up_heard)
		e->c->round.give_up_us = e->now + e->cfg.tun.evict_ms * 1000ull;
	evict_self(e);
}

void round_quorum(struct engine *e, const struct event *ev)
{
	TRACE(e, "%s quorum: %u node%s up", ev->view.quorate ? "has" : "has no", ev->view.count,
	      ev->view.count == 1 ? " is" : "s are");
	e->c->group.quorum_ring = ev->view.ring;
	e->cfg.two_node = ev->view.two_node;
	/* A wait fences neither of two halves. */
	e->c->group.quorate =
	    ev->view.quorate && !(e->cfg.two_node && e->cfg.fence_waits && ev->view.count < 2);
	e->c->group.quorum_count = ev->view.count;
	memcpy(e->c->group.quorum, ev->view.node, sizeof(e->c->group.quorum));
	if (!e->c->group.quorate)
		e->c->round.confirmed = e->c->lead.knows = false;
	departed_note(e);
	view_peers(e);
	/* It came back without a view (votes, a quorum device): no round is going to say that we
	 * are still in, unless it is asked for. */
	if (e->c->group.quorate && rings_agree(e) && !e->c->round.confirmed &&
	    e->view.phase >= PH_STATE && (e->state == ENGINE_ACTIVE || e->state == ENGINE_JOINING))
		round_end(e);
}

static bool lowest(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (in_effective_view(e, &e->c->round.peer[i]) &&
		    e->c->round.peer[i].node < e->cfg.node)
			return false;
	return true;
}

static void query_send(struct engine *e)
{
	uint32_t view[DDR_MAX_NODES];
	NODEMSG(m, b, QUERY, Query, query);

	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (in_effective_view(e, &e->c->round.peer[i]))
			view[b.n_view++] = e->c->round.peer[i].node;
	b.view = view;
	b.group = e->c->group.view;
	b.n_group = e->c->group.view_count;
	m.term_inc = e->inc;
	m.term_num = ++e->c->round.last_num;
	e->c->round.queried = true;
	e->c->round.since_us = e->now;
	msg_send(e, &m);
}

/* It reaches no more than when it could not assemble the array. */
bool defers(const struct engine *e)
{
	return e->c->choice.defers && e->state == ENGINE_JOINING &&
	       members_reached(e) <= e->c->choice.defers_reach;
}

/* As Hello tells it. */
static uint32_t fence_kind(const struct engine *e)
{
	return e->cfg.fence_waits ? 2 + e->cfg.fence_ms : 1;
}

/* Who is to be fenced, as far as this node knows. */
static size_t departed_tell(struct engine *e, pb_inc gone[DEPARTED_MAX], pb_inc *ptr[DEPARTED_MAX])
{
	size_t n;

	for (uint32_t i = 0; i < e->c->departures.count; i++) {
		gone[i] = pb_departed(e, &e->c->departures.list[i]);
		ptr[i] = &gone[i];
	}
	n = e->c->departures.count;
	/* And who is here although it was fenced: it may not know, and may be about to lead. Or may
	 * be here: which incarnation that is, this node may not have heard yet. */
	for (uint32_t i = 0; i < RECENTLY_FENCED_MAX && n < DEPARTED_MAX; i++) {
		uint32_t node = e->c->fences.settled[i].node;
		uint64_t inc = e->c->fences.settled[i].inc;
		const struct peer *p = inc ? peer_find(e, node) : NULL;

		if (!p || !p->in_view || (p->inc && p->inc != inc) || departed_find(e, node, inc))
			continue;
		gone[n] = pb_inc_of(node, inc, NO_SLOT, fence_stands(e, node, inc));
		ptr[n] = &gone[n];
		n++;
	}
	for (uint32_t i = 0; i < e->c->round.peer_count && n < DEPARTED_MAX; i++) {
		if (!e->c->round.peer[i].left)
			continue;
		gone[n] = pb_inc_of(e->c->round.peer[i].node, 0, NO_SLOT, false);
		ptr[n] = &gone[n];
		n++;
	}
	return n;
}

static void hello_send(struct engine *e)
{
	struct pb_causes causes = {.count = 0};
	struct pb_map committed, proposed;
	struct member_cause cause;
	pb_inc me = pb_inc_of(e->cfg.node, e->inc, e->view.slot, e->state == ENGINE_ACTIVE);
	pb_inc gone[DEPARTED_MAX], *ptr[DEPARTED_MAX];
	uint32_t bad[DDR_MAX_MEMBERS];
	ProtobufCBinaryData failed[DDR_MAX_DEVS];
	Ddraid__Epoch acked = DDRAID__EPOCH__INIT, known = DDRAID__EPOCH__INIT;
	NODEMSG(m, b, HELLO, Hello, hello);

	b.me = &me;
	if (e->view.have_map && e->state == ENGINE_ACTIVE) {
		pb_map_fill(&committed, &e->map);
		b.committed = &committed.map;
	}
	if (e->view.proposing) {
		pb_map_fill(&proposed, &e->view.prop);
		b.proposed = &proposed.map;
	}
	acked.num = e->c->records.durable.acked.num;
	acked.inc = e->c->records.durable.acked.inc;
	b.acked = &acked;
	b.fenced_inc = e->cfg.fenced_inc;
	b.defers = defers(e);
	b.reach = members_reached(e);
	b.idle_inc = e->c->round.idle_inc;
	b.use_nonce = e->cfg.nonce ? e->cfg.nonce : e->cfg.inc;
	b.use_claim = e->c->use.claim;
	b.use_held = e->c->use.state == USE_HELD;
	b.locks = (uint32_t)e->cfg.lock_backend + 1;
	b.fence = fence_kind(e);
	known.num = e->c->records.durable.committed.num;
	known.inc = e->c->records.durable.committed.inc;
	b.known = &known;
	b.n_departed = departed_tell(e, gone, ptr);
	b.departed = ptr;
	for (uint8_t i = 0; i < e->map.n; i++) {
		bad[i] = map_write_mask(&e->map) >> i & 1 ? bad_told(e, &e->map, i) : 0;
		if (bad[i] == MEMBER_MISSING && member_read_error(e, i))
			bad[i] = 0; /* a read error may be told later, and taken back */
		if (bad[i] == MEMBER_SUSPECT && member_lost_earlier(e, i))
			b.earlier |= 1u << i;
		cause_own(e, i, (uint8_t)bad[i], &cause);
		if (bad[i])
			cause_tell(&causes, i, &cause);
	}
	b.n_cause = causes.count;
	b.cause = causes.ptr;
	b.n_bad = e->map.n;
	b.bad = bad;
	/* R14: which members those are, the map will tell. They count before anybody reads. */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (!e->view.have_map && e->c->devs.dev[i].flush_failed)
			failed[b.n_failed++] =
			    (ProtobufCBinaryData){DDR_UUID_BYTES, e->c->devs.dev[i].failed_uuid};
	b.failed = failed;
	msg_send(e, &m);
}

static void take_query(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__Query *q = m->query;
	struct peer *sender = peer_find(e, from);
	bool me = false;

	if (!sender || !in_effective_view(e, sender))
		return;
	/* Sent in an older view? All see a view at the same place in the order of messages. Who is
	 * evicted, only those know who were there; so view may lack whom we count in. */
	if (q->n_group != e->c->group.view_count ||
	    memcmp(q->group, e->c->group.view, q->n_group * sizeof(*q->group)))
		return;
	for (size_t i = 0; i < q->n_view; i++) {
		struct peer *p = peer_find(e, q->view[i]);

		if (!p || !in_effective_view(e, p))
			return; /* an older view's */
		me |= q->view[i] == e->cfg.node;
	}
	/* A round without us: the one that we were in is over; we ask for another. */
	round_end(e);
	if (!me || e->c->round.give_up_us)
		return;
	e->c->round.queried = true;
	e->c->round.id = (struct round_id){m->term_inc, m->term_num};
	phase_move(e, PH_HELLO);
	e->c->round.since_us = e->now;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		p->hello = p->claimed = p->acked = p->sent_missed = p->in_round = false;
		p->disputes = 0;
		p->quiesced = 0; /* another leader counts anew */
		for (size_t j = 0; j < q->n_view; j++)
			p->in_round |= q->view[j] == p->node;
		if (p->member && (!p->in_round || p->inc != p->member_inc)) {
			departed_add(e, p->node, p->member_inc);
			p->member = p->active = false;
		}
	}
	hello_send(e);
}

static bool leads_before(const struct peer *a, const struct peer *b)
{
	int c = 0;

	if (a->active != b->active)
		return a->active;
	if (a->active)
		c = epoch_cmp(&a->committed.epoch, &b->committed.epoch);
	else if (a->hello_defers != b->hello_defers)
		return b->hello_defers;
	return c > 0 || (!c && a->node < b->node);
}

static struct peer *choose_leader(struct engine *e)
{
	struct peer *best = NULL;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (!p->in_round)
			continue;
		if (!p->hello)
			return NULL;
		if (!best || leads_before(p, best))
			best = p;
	}
	return best;
}

static void take_hello(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__Hello *h = m->hello;
	struct peer *p = peer_find(e, from);

	if (e->view.phase != PH_HELLO || !p || !p->in_round || p->hello)
		return;
	p->hello = true;
	p->mute = 0;
	if (p->member && p->member_inc != h->me->inc) {
		departed_add(e, p->node, p->member_inc);
		p->member = false;
	}
	p->inc = h->me->inc;
	p->active = h->me->active;
	if (p->left && p->active)
		departed_add(e, p->node, p->inc);
	p->left = false;
	p->slot = pb_slot(e, h->me);
	/* Who does not serve may pass on a map that it could not check. */
	if (p->active)
		pb_map_read(&p->committed, h->committed);
	if (!p->active || !pb_map_read(&p->proposed, h->proposed))
		memset(&p->proposed, 0, sizeof(p->proposed));
	if (h->acked)
		p->acked_epoch = (struct epoch){h->acked->num, h->acked->inc};
	p->fenced_inc = h->fenced_inc;
	p->defers = p->hello_defers = h->defers;
	p->reach = h->reach;
	p->idle_inc = h->idle_inc;
	p->use_nonce = h->use_nonce;
	p->use_claim = h->use_claim;
	p->use_held = h->use_held;
	p->other_locks = h->locks && h->locks != (uint32_t)e->cfg.lock_backend + 1;
	p->other_fence = h->fence && h->fence != fence_kind(e);
	if (h->known)
		p->known_epoch = (struct epoch){h->known->num, h->known->inc};
	memset(p->bad, 0, sizeof(p->bad));
	p->bad_earlier = h->earlier;
	cause_hear(p->cause, h->n_cause, h->cause);
	for (size_t i = 0; i < h->n_bad && i < DDR_MAX_MEMBERS; i++)
		p->bad[i] = (uint8_t)h->bad[i];
	p->failed_count = 0;
	for (size_t i = 0; i < h->n_failed && i < DDR_MAX_DEVS; i++)
		memcpy(p->failed[p->failed_count++], h->failed[i].data, DDR_UUID_BYTES);
	for (uint32_t i = 0; i < DDR_MAX_MEMBERS; i++)
		if (p->bad[i])
			p->up_mask &= ~(1u << i); /* as in take_report */
	/* An epoch is committed that this node did not acknowledge: it was removed meanwhile, and
	 * is fenced. If that is so, the members carry it. */
	if (takes_part(e) && epoch_unknown(e, &p->known_epoch))
		epoch_doubt(e);
	/* Whom a fenced incarnation took for removed means nothing: it may only be late. */
	for (size_t i = 0; i < h->n_departed && !recently_fenced(e, p->node, p->inc); i++) {
		if (departed_void(e, h->departed[i]))
			continue;
		if (departed_is_me(e, h->departed[i])) {
			round_put_out(e);
			return;
		}
		departed_take(e, p, h->departed[i]);
	}
	p = choose_leader(e);
	if (p)
		e->c->round.leader = p->node;
}

/*
 * What this node holds. The end follows when nothing is under way any more that it wrote as leader
 * of an earlier round: a page of an orphan slot, or superblocks. The new leader reads and writes
 * those itself, and gives the slots away; nobody fences us, so nothing else would keep ours from
 * landing late.
 */
static void claims_send(struct engine *e)
{
	uint64_t id[MSG_IDS];
	uint32_t mode[MSG_IDS];
	uint64_t after = 0;
	NODEMSG(m, b, CLAIM, Claim, claim);

	b.id = id;
	b.mode = mode;
	while (e->cfg.lock_backend != LOCK_EXTERNAL &&
	       (b.n_id = locks_held(e, &after, id, mode, MSG_IDS))) {
		b.n_mode = b.n_id;
		msg_send(e, &m);
	}
	e->c->round.claim_due = true;
}

static void claims_end_advance(struct engine *e)
{
	NODEMSG(m, b, CLAIM, Claim, claim);

	if (!e->c->round.claim_due || e->view.phase != PH_STATE || e->c->resync.writing ||
	    e->c->lead.sb_writing)
		return;
	e->c->round.claim_due = false;
	b.end = true;
	msg_send(e, &m);
}

/* R1, R3: who takes the map from State knows its epoch as well as who acknowledged it. */
static void state_adopt(struct engine *e, const struct map *m)
{
	e->c->epochs.committed = m->epoch;
	lineage_add(&e->c->assembly.past, &m->epoch);
	epoch_adopt(e, m);
	if (!e->c->epochs.judged)
		devs_judge(e);
	if (epoch_cmp(&m->epoch, &e->c->records.want.acked) > 0)
		e->c->records.want.acked = m->epoch;
	if (epoch_cmp(&m->epoch, &e->c->records.want.committed) > 0)
		e->c->records.want.committed = m->epoch;
}

/* All have heard the same Hellos: who counts in what none of them said is broken. */
static const char *state_odd(struct engine *e, const Ddraid__State *s)
{
	for (size_t i = 0; i < s->n_node; i++) {
		const pb_inc *n = s->node[i];
		const struct peer *p = peer_find(e, n->node);

		if (!p || !p->in_round || !p->hello)
			return "counts in a node that is not in the round";
		if (p->inc != n->inc || p->active != n->active || p->slot != pb_slot(e, n))
			return "counts in another than the node said that it is";
	}
	/* Whoever serves has acknowledged each epoch: so far ahead nobody can be with it. */
	if (e->state == ENGINE_ACTIVE && s->committed &&
	    s->committed->epoch->num > epoch_seen(e) + EPOCH_AHEAD_MAX)
		return "has an epoch that nobody can have committed";
	return NULL;
}

static bool state_names(const struct engine *e, const Ddraid__State *s)
{
	bool me = false;

	for (size_t i = 0; i < s->n_node; i++)
		me |= s->node[i]->node == e->cfg.node && s->node[i]->inc == e->inc;
	return me;
}

static void take_state(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__State *s = m->state;
	struct departed old[DEPARTED_MAX], *d;
	uint32_t old_count = e->c->departures.count;
	bool me = state_names(e, s), gone = false;
	const char *odd;
	struct map map;

	if (e->view.phase != PH_HELLO || from != e->c->round.leader)
		return;
	odd = me ? state_odd(e, s) : NULL;
	if (odd) {
		msg_rejected(e, peer_find(e, from), m->inc, odd, true);
		return;
	}
	memcpy(old, e->c->departures.list, sizeof(old));
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		e->c->round.peer[i].member = e->c->round.peer[i].active = false;
	for (size_t i = 0; i < s->n_node; i++) {
		struct peer *p = peer_find(e, s->node[i]->node);

		if (!p || !p->in_round)
			continue;
		p->member = true;
		p->inc = p->member_inc = s->node[i]->inc;
		p->active = s->node[i]->active;
		p->slot = pb_slot(e, s->node[i]);
	}
	/* The leader's list holds everybody's (Hello), and is everybody's now. */
	e->c->departures.count = 0;
	for (size_t i = 0; i < s->n_departed && i < DEPARTED_MAX; i++) {
		gone |= s->departed[i]->node == e->cfg.node && s->departed[i]->inc == e->inc;
		departed_told(e, s->departed[i], from, m->inc, true);
		recovery_slot_is(e, s->departed[i]->node, s->departed[i]->inc,
				 pb_slot(e, s->departed[i]));
		d = departed_find(e, s->departed[i]->node, s->departed[i]->inc);
		for (uint32_t j = 0; d && j < old_count; j++)
			if (old[j].node == d->node && old[j].inc == d->inc)
				departed_keep(e, d, &old[j]);
		if (d && s->departed[i]->active)
			fenced_remember(e, d);
	}
	record_removed(e);
	if (gone || (!me && e->state == ENGINE_ACTIVE)) {
		round_put_out(e);
		return;
	}
	if (!me) { /* not yet (state_send); it asks again after a while */
		round_end(e);
		e->c->round.queried = true;
		return;
	}
	phase_move(e, PH_STATE);
	e->c->round.confirmed = true;
	e->c->round.met |= !alone(e);
	memset(e->c->members.bad_us, 0,
	       sizeof(e->c->members.bad_us)); /* this leader has to be told anew */
	if (pb_map_read(&map, s->committed)) {
		for (size_t i = 0; i < s->n_dropped && i < DDR_MAX_MEMBERS; i++)
			if (s->dropped[i] > e->c->epochs.dropped[i] &&
			    s->dropped[i] <= map.epoch.num)
				e->c->epochs.dropped[i] = s->dropped[i];
		if (!e->view.have_map || epoch_cmp(&map.epoch, &e->map.epoch) > 0)
			state_adopt(e, &map);
	}
	slots_forget(e);
	e->c->orphans.untold = false;
	claims_send(e);
}

/* Whether an eviction counts must be the same for all: what each thinks of its sender plays no
 * part. */
static void take_evict(struct engine *e, uint32_t from, const nodemsg *m)
{
	const pb_inc *who = m->evict->who;
	struct peer *p = who ? peer_find(e, who->node) : NULL, *s = peer_find(e, from);

	if (!p || !s || !in_effective_view(e, p) || !in_effective_view(e, s))
		return;
	/* Of our own last incarnation, which was evicted before it: for the others it did not
	 * count. If it did, whom it names is gone by itself, and says so. */
	if (from == e->cfg.node && m->inc != e->inc)
		return;
	/* Incarnation 0: whoever it is; nobody had heard of it when it was evicted. */
	if (who->node == e->cfg.node) {
		if (!who->inc || who->inc == e->inc)
			evict_heard(e);
		return;
	}
	if (who->inc && p->inc && who->inc != p->inc)
		return;
	p->evicted = true;
	p->evicted_inc = who->inc ? who->inc : p->inc;
	round_end(e);
}

static void take_join(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct peer *p = peer_find(e, from);

	/* Who was evicted unnamed asks under a new incarnation, or is going to hear of it yet. */
	if (p->evicted && p->evicted_inc == m->inc)
		return;
	p->inc = m->inc;
	p->evicted = false;
	round_end(e);
}

static void take_heartbeat(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct peer *p = peer_find(e, from);

	if (m->inc > p->inc && p->evicted && p->inc) {
		take_join(e, from, m); /* its daemon was replaced between two views */
	} else if (m->inc > p->inc && !p->hello && !p->member) {
		/* All know it by this one from here on: whoever is evicted now is this incarnation.
		 * */
		p->inc = m->inc;
		p->mute = 0;
	}
	if (from == e->cfg.node && m->inc == e->inc) {
		e->c->round.hb_any = true;
		e->c->round.hb_sent_us = m->heartbeat->sent_us;
	}
	p->up_mask = m->heartbeat->up_mask;
	p->raw_mask = m->heartbeat->raw_mask;
	p->older = m->heartbeat->older;
	p->looking = m->heartbeat->looking;
	p->tells = m->heartbeat->tells;
	p->leased = m->heartbeat->leased;
	p->up_inc = m->inc;
	p->up_us = e->now;
	p->reach = m->heartbeat->reach;
	p->defers = m->heartbeat->defers;
	if (!m->heartbeat->stops || m->inc != p->inc)
		p->stops = 0;
	else if (!p->stops)
		p->stops = ++e->c->leave.stops;
	vouch_asked(e, p, m->inc, m->heartbeat->asks);
	for (size_t i = 0; i < m->heartbeat->n_vouches; i++)
		vouch_told(e, p, m->heartbeat->vouches[i]);
	/* The group passes several messages in a row at the price of one, and each wakes all nodes:
	 * if the own is due soon, it goes along with this one. Never later than it was due, so that
	 * R7 and the others' patience stand as they do, nor twice within half its time. */
	if (from != e->cfg.node &&
	    e->c->round.hb_next_us < e->now + e->cfg.tun.heartbeat_ms * 500ull)
		e->c->round.hb_next_us = e->now;
}

static void take_joined(struct engine *e, uint32_t from, const pb_inc *who, bool joined)
{
	struct peer *p = peer_find(e, from);

	if (!p->member || who->inc != p->member_inc)
		return;
	if (joined && (p->slot == NO_SLOT || pb_slot(e, who) != p->slot)) {
		msg_rejected(e, p, who->inc, "takes a slot that it was not given", false);
		return;
	}
	p->active = joined;
	p->member = joined;
	p->slot = joined ? pb_slot(e, who) : NO_SLOT;
	if (from == e->cfg.node) {
		engine_move(e, joined ? ENGINE_ACTIVE : ENGINE_STOPPED);
		e->c->choice.defers = false;
	} else if (!joined) {
		/* Its slot is nobody's now, and what stands there (R15: what a member missed)
		 * nobody has read. So a round begins at once, without it: the group may have it for
		 * a while yet. What it wrote has ended, also if it led (departed_note). */
		p->hello = false;
		p->heard = 0;
		p->evicted = true;
		p->evicted_inc = who->inc;
		e->c->departures.uncommitted = true;
		round_end(e);
	}
}

static void take_fenced(struct engine *e, uint32_t from, const pb_inc *who)
{
	struct departed *d = who ? departed_find(e, who->node, who->inc) : NULL;

	if (d && from == e->c->round.leader)
		fenced_remember(e, d);
	else if (d)
		leader_fence_told(e, from, d);
}

static void take_ready(struct engine *e, uint32_t from, const nodemsg *m)
{
	const Ddraid__Ready *r = m->ready;

	if (from != e->c->round.leader || e->view.phase != PH_STATE)
		return;
	/* R4: all see the same Fenced. Here that is only State's departed; the leader may know
	 * more. */
	if (departed_unfenced(e)) {
		msg_rejected(e, peer_find(e, from), m->inc,
			     "goes on before all that departed are fenced", true);
		return;
	}
	phase_move(e, PH_READY);
	use_adopt(e, r->use_claim);
	e->c->assembly.sure_us = e->now;
	for (size_t i = 0; e->view.have_map && i < r->n_past; i++)
		if (r->past[i]->num <= e->map.epoch.num) /* else it is not past */
			lineage_add(&e->c->assembly.past,
				    &(struct epoch){r->past[i]->num, r->past[i]->inc});
	quiesce_end(e);
	recovery_told(e);
	locks_resend(e);
}

void round_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_HEARTBEAT:
		take_heartbeat(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_JOIN:
		take_join(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_QUERY:
		take_query(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_HELLO:
		take_hello(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_STATE:
		take_state(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_EVICT:
		take_evict(e, from, m);
		break;
	case DDRAID__NODE_MSG__BODY_FENCED:
		take_fenced(e, from, m->fenced->who);
		break;
	case DDRAID__NODE_MSG__BODY_FENCE_ASK:
		if (from == e->c->round.leader && m->fence_ask->who)
			leader_asks_fence(e, m->fence_ask->who->node, m->fence_ask->who->inc);
		break;
	case DDRAID__NODE_MSG__BODY_JOINED:
		take_joined(e, from, m->joined->me, true);
		break;
	case DDRAID__NODE_MSG__BODY_LEFT:
		take_joined(e, from, m->left->me, false);
		break;
	case DDRAID__NODE_MSG__BODY_READY:
		take_ready(e, from, m);
		break;
	}
}

static void heartbeat_advance(struct engine *e)
{
	NODEMSG(m, b, HEARTBEAT, Heartbeat, heartbeat);
	Ddraid__Vouch vouch[DDR_MAX_NODES], *vouches[DDR_MAX_NODES];

	/* Who has just got a lease waits for a slot. */
	if (!e->c->group.view_known ||
	    (e->now < e->c->round.hb_next_us && use_lease(e) <= e->c->round.hb_leased))
		return;
	e->c->round.hb_leased = use_lease(e);
	e->c->round.hb_next_us = e->now + e->cfg.tun.heartbeat_ms * 1000ull;
	b.sent_us = e->now;
	b.up_mask = devs_up_mask(e);
	b.reach = members_reached(e);
	b.defers = defers(e);
	b.leased = e->c->round.hb_leased;
	b.stops = e->view.stopping;
	b.asks = e->state == ENGINE_JOINING ? e->c->vouch.asks : 0;
	b.n_vouches = vouch_tell(e, vouch);
	for (size_t i = 0; i < b.n_vouches; i++)
		vouches[i] = &vouch[i];
	b.vouches = vouches;
	/* Bound by the proposed map, if there is one: a joiner may not have another. */
	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		if (member_back(e, i))
			b.raw_mask |= 1u << i;
	back_tell(e, &b.older, &b.looking);
	b.tells = slots_told_mask(e);
	msg_send(e, &m);
	if (!e->c->round.give_up_heard)
		evict_self(e);
}

static void silence_advance(struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];
		bool fenced = p->heard && fence_stands(e, p->node, p->heard);
		pb_inc who = pb_inc_of(p->node, fenced ? p->heard : p->inc, NO_SLOT, false);
		NODEMSG(m, b, EVICT, Evict, evict);

		/* One that was fenced is told so before it finds this node silent: it may take this
		 * one for departed, and listen to nothing else. */
		if (p->node == e->cfg.node || !in_effective_view(e, p) ||
		    (!fenced && e->now - p->seen_us < e->cfg.tun.evict_ms * 1000ull))
			continue;
		p->heard = 0;
		b.who = &who;
		p->seen_us = e->now; /* not again at once */
		msg_send(e, &m);
	}
}

/* Who lives, and has not answered so many Queries in a row, will not answer the next. One may get
 * lost, or come in a view that has ended since. */
static void mute_evict(struct engine *e)
{
	for (uint32_t i = 0; e->view.phase == PH_HELLO && i < e->c->round.peer_count; i++) {
		struct peer *p = &e->c->round.peer[i];

		if (p->node == e->cfg.node || !p->in_round || p->hello ||
		    !in_effective_view(e, p) || ++p->mute < MUTE_QUERIES)
			continue;
		p->mute = 0;
		evict(e, p);
	}
}

void round_advance(struct engine *e)
{
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED)
		return;
	/* R4: it must not go on with whom it would have to fence, and has forgotten. */
	if (e->c->departures.full || (e->c->round.give_up_us && e->now >= e->c->round.give_up_us)) {
		round_removed(e);
		return;
	}
	heartbeat_advance(e);
	claims_end_advance(e);
	if (!quorum_gate(e))
		return;
	silence_advance(e);
	/* No round takes this node along: it asks for one. The lowest too: the others may ignore
	 * it. */
	if (e->view.phase < PH_STATE &&
	    e->now - e->c->round.view_us > e->cfg.tun.evict_ms * 1000ull) {
		e->c->round.view_us = e->now;
		nodemsg_join(e);
	}
	if (!lowest(e))
		return;
	if (e->view.phase == PH_NONE && !e->c->round.queried)
		query_send(e);
	else if (e->view.phase < PH_STATE &&
		 e->now - e->c->round.since_us > e->cfg.tun.evict_ms * 1000ull) {
		mute_evict(e);
		query_send(e); /* the round was lost on the way */
	}
}
