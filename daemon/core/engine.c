/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Events in, outs out: one step of everything, the gate (R2, R7), the incarnation of an
 * incarnation, and what is shown of it.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"
#include "daemon/core/data/data.h"

#define FORCE_US 300000000ull /* how long `start --stale`, `--alone` and `--take-over` count */

#define IDLE_TICK_US 10000ull

void engine_cfg_init(struct engine_cfg *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->max_ios = 256;
	cfg->tun = (struct tunables){
	    .release_delay_ms = 1000,
	    .heartbeat_ms = 200,
	    .heartbeat_limit_ms = 1500,
	    .evict_ms = 4000,
	    .settle_ms = 1000,
	    .member_retry_ms = 30000,
	    .checkpoint_regions = 64,
	    .renew_ms = 1000,
	    .patience_ms = 5000,
	    .claim_ms = 250,
	    .mark_ahead = true,
	};
}

struct out *out_add(struct engine *e, enum out_type type)
{
	struct outq *q = e->q;

	if (q->count == q->cap) {
		uint32_t cap = q->cap ? 2 * q->cap : 64;
		struct out *v = realloc(q->v, cap * sizeof(*v));

		assert(v); /* an engine that can't speak must not go on */
		q->v = v;
		q->cap = cap;
	}
	memset(&q->v[q->count], 0, sizeof(q->v[0]));
	q->v[q->count].type = type;
	return &q->v[q->count++];
}

void *out_memory(struct engine *e, size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (e->garbage_count == e->garbage_cap) {
		e->garbage_cap = e->garbage_cap ? 2 * e->garbage_cap : 64;
		e->garbage = realloc(e->garbage, e->garbage_cap * sizeof(*e->garbage));
	}
	assert(p && e->garbage);
	e->garbage[e->garbage_count++] = p;
	return p;
}

void engine_say(struct engine *e, const char *format, ...)
{
	char text[256];
	size_t bytes;
	va_list ap;
	char *say;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	bytes = strlen(text) + 1;
	say = out_memory(e, bytes);
	memcpy(say, text, bytes);
	out_add(e, OUT_SAY)->say = say;
	e->said++;
}

void engine_trace(struct engine *e, enum engine_trace trace)
{
	e->trace = trace;
}

void engine_move(struct engine *e, enum engine_state to)
{
	static const uint8_t legal[] = {
	    [ENGINE_JOINING] = 1 << ENGINE_ACTIVE | 1 << ENGINE_REMOVED | 1 << ENGINE_STOPPED,
	    [ENGINE_ACTIVE] = 1 << ENGINE_ACTIVE | 1 << ENGINE_REMOVED | 1 << ENGINE_STOPPED,
	    [ENGINE_REMOVED] = 1 << ENGINE_JOINING,
	    [ENGINE_STOPPED] = 0,
	};

	assert(legal[e->state] >> to & 1);
	if (e->state != to)
		TRACE(e, "is %s: it was %s", engine_state_name(to), engine_state_name(e->state));
	e->state = to;
}

void phase_move(struct engine *e, enum phase to)
{
	static const char *const name[] = {
	    [PH_NONE] = "no round: who takes part has to be agreed anew",
	    [PH_HELLO] = "a round begins: each node says who it is, and what it knows",
	    [PH_STATE] = "the round: all know who takes part, and who has departed",
	    [PH_READY] = "the round: the array goes on",
	};
	static const uint8_t legal[] = {
	    [PH_NONE] = 1 << PH_NONE | 1 << PH_HELLO,
	    [PH_HELLO] = 1 << PH_NONE | 1 << PH_STATE,
	    [PH_STATE] = 1 << PH_NONE | 1 << PH_READY,
	    [PH_READY] = 1 << PH_NONE,
	};

	assert(legal[e->view.phase] >> to & 1);
	if (e->view.phase != to)
		TRACE(e, "%s", name[to]);
	e->view.phase = to;
}

static void garbage_free(struct engine *e)
{
	for (uint32_t i = 0; i < e->garbage_count; i++)
		free(e->garbage[i]);
	e->garbage_count = 0;
}

bool rings_agree(const struct engine *e)
{
	return e->c->group.view_known && ring_is(&e->c->group.view_ring, &e->c->group.quorum_ring);
}

/* R2, R7: group and quorum agree, we have it, and our own heartbeat came back lately. */
bool quorum_gate(const struct engine *e)
{
	return rings_agree(e) && e->c->group.quorate && e->c->round.hb_any &&
	       !e->c->round.give_up_us &&
	       e->now - e->c->round.hb_sent_us < e->cfg.tun.heartbeat_limit_ms * 1000ull &&
	       (e->state == ENGINE_ACTIVE || e->state == ENGINE_JOINING);
}

/* And a State has named us since the ring last changed or quorum was lost: else the others may have
 * gone on without us meanwhile, and this view is only where we are going to hear of it (R6). And
 * who renews the use blocks has done so lately: else others may have taken the members (use.c). */
bool gate_open(const struct engine *e)
{
	return gate_but_lease(e) && use_lease(e);
}

bool gate_but_lease(const struct engine *e)
{
	return e->c->round.confirmed && quorum_gate(e) && !e->c->assembly.doubt;
}

/* ---- incarnations --------------------------------------------------------------------------- */

struct engine *engine_new(const struct engine_cfg *cfg)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	assert(cfg->node && cfg->inc);
	e->cfg = *cfg;
	e->inc = cfg->inc;
	e->state = ENGINE_JOINING;
	if (data_new(e) || cluster_new(e)) {
		engine_free(e);
		return NULL;
	}
	return e;
}

static void engine_clear(struct engine *e)
{
	e->state = ENGINE_REMOVED; /* nothing is begun any more */
	cluster_end(e);
	data_clear(e);
	cluster_clear(e);
}

void engine_free(struct engine *e)
{
	struct outq q = {0};

	if (!e)
		return;
	e->q = &q;
	if (e->d && e->c)
		engine_clear(e);
	garbage_free(e);
	free(q.v);
	free(e->garbage);
	cluster_free(e);
	data_free(e);
	free(e);
}

/*
 * R6: begin again under a new incarnation. Devices stay open and known; all else is as new. No
 * request is under way any more.
 */
static void engine_restart(struct engine *e, uint64_t inc)
{
	uint64_t idle = e->d->wrote ? 0 : e->inc;

	assert(e->state == ENGINE_REMOVED && !e->d->member_io_under_way && inc > e->inc);
	engine_clear(e);
	memset(&e->geo, 0, sizeof(e->geo));
	memset(&e->map, 0, sizeof(e->map));
	memset(&e->view, 0, sizeof(e->view));
	e->inc = inc;
	engine_move(e, ENGINE_JOINING);
	e->stopped = false;
	e->heard_us = e->forced_us = e->waits_hash = e->waits_us = 0;
	data_restart(e);
	cluster_restart(e, idle);
}

void engine_tune(struct engine *e, const struct tunables *tun)
{
	struct tunables *t = &e->cfg.tun;

	t->release_delay_ms = tun->release_delay_ms;
	t->member_retry_ms = tun->member_retry_ms;
	t->checkpoint_regions = tun->checkpoint_regions;
	t->eio_when_lost = tun->eio_when_lost;
	t->mark_ahead = tun->mark_ahead;
	e->d->scan_us = 0; /* it was set by the old delay */
}

static void record_done(struct engine *e)
{
	assert(e->c->records.busy);
	e->c->records.busy = false;
	e->c->records.durable = e->c->records.sent;
}

static void event_take(struct engine *e, const struct event *ev)
{
	switch (ev->type) {
	case EV_TICK:
		break;
	case EV_DEV_UP:
		dev_up(e, ev);
		break;
	case EV_DEV_DOWN:
		dev_down(e, ev);
		break;
	case EV_DEV_DONE:
		member_io_done(e, ev);
		break;
	case EV_VIEW:
		round_view(e, ev);
		break;
	case EV_QUORUM:
		round_quorum(e, ev);
		break;
	case EV_MSG:
		msg_receive(e, ev);
		break;
	case EV_FENCE_DONE:
		leader_fence_done(e, ev);
		break;
	case EV_RECORD_DONE:
		record_done(e);
		break;
	case EV_IO:
		io_submit(e, ev);
		break;
	case EV_ADMIN:
		admin_submit(e, ev);
		break;
	case EV_LOCK_GRANTED:
		lock_granted(e, ev->lock.id, ev->lock.mode, false);
		break;
	case EV_LOCK_REFUSED:
		lock_granted(e, ev->lock.id, ev->lock.mode, true);
		break;
	case EV_LOCK_CALLBACK:
		lock_called_back(e, ev->lock.id, ev->lock.mode);
		break;
	case EV_GIVE_UP:
		round_give_up(e);
		break;
	case EV_PROBED:
		use_probed(e, ev);
		break;
	case EV_RESTART:
		engine_restart(e, ev->restart.inc);
		break;
	}
}

static void waits_note(struct engine *e);

void engine_take(struct engine *e, const struct event *ev, struct outq *q)
{
	assert(ev->type == EV_IO || ev->type == EV_DEV_DONE);
	assert(e->now && ev->now_us >= e->now);
	if (!e->taken)
		garbage_free(e);
	e->taken = true;
	e->q = q;
	e->now = ev->now_us;
	event_take(e, ev);
}

void engine_step(struct engine *e, const struct event *ev, struct outq *q)
{
	uint32_t before, said;

	assert(ev->now_us >= e->now);
	if (!e->taken)
		garbage_free(e);
	e->taken = false;
	/* R4: whom the record names may be about to start again, like this node. */
	for (uint32_t i = 0; !e->now && i < e->c->departures.count; i++)
		e->c->departures.list[i].since_us = ev->now_us;
	if (!e->now)
		e->forced_us = ev->now_us;
	e->q = q;
	e->now = ev->now_us;
	/* What an operator allowed is meant for what is there at that moment, not for whatever
	 * turns up hours later. */
	if (e->now - e->forced_us > FORCE_US)
		e->cfg.force = e->cfg.alone = e->cfg.take_over = false;
	event_take(e, ev);
	do {
		before = q->count;
		said = e->said;
		member_io_advance(e);
		devs_advance(e);
		record_advance(e);
		round_advance(e);
		use_advance(e);
		vouch_advance(e);
		doubt_advance(e);
		epoch_advance(e);
		leader_advance(e);
		own_slot_advance(e);
		dlog_advance(e);
		leave_advance(e);
		regions_advance(e);
		quiesce_advance(e);
		jobs_advance(e);
		io_advance(e);
		admin_look(e);
		if (e->state == ENGINE_STOPPED && !e->stopped && !e->d->member_io_under_way) {
			e->stopped = true;
			out_add(e, OUT_STOPPED)->stopped.unsealed = e->c->leave.unsealed;
		}
	} while (q->count - before != e->said - said || !list_empty(&e->d->member_io_gone));
	if (gate_open(e))
		e->heard_us = e->c->round.hb_sent_us;
	waits_note(e);
}

uint64_t engine_heard_us(const struct engine *e)
{
	return e->heard_us;
}

uint64_t engine_heartbeat_us(const struct engine *e)
{
	return e->c->round.hb_any ? e->c->round.hb_sent_us : 0;
}

uint64_t engine_deadline_us(const struct engine *e)
{
	uint64_t d = e->c->round.hb_next_us ? e->c->round.hb_next_us : e->now + IDLE_TICK_US;

	if (e->d->scan_us > e->now && e->d->scan_us < d)
		d = e->d->scan_us; /* one that is due waits for something else */
	return d > e->now ? d : e->now + 1000;
}

/* ---- looking in ----------------------------------------------------------------------------- */

const struct geo *engine_geo(const struct engine *e)
{
	return e->view.have_geo && e->view.have_map ? &e->geo : NULL;
}

const struct member_cause *engine_cause(const struct engine *e, uint8_t member)
{
	return &e->c->epochs.cause[member];
}

const struct map *engine_map(const struct engine *e)
{
	return &e->map;
}

uint32_t engine_slot(const struct engine *e)
{
	return e->view.slot_owned ? e->view.slot : NO_SLOT;
}

bool engine_dev_busy(const struct engine *e, uint32_t dev)
{
	return dev_ios(e, dev);
}

uint8_t engine_member_of_dev(const struct engine *e, uint32_t dev)
{
	return dev < DDR_MAX_DEVS ? e->c->devs.dev[dev].member : NO_MEMBER;
}

enum lock_mode engine_lock_held(const struct engine *e, uint64_t id)
{
	const struct lock *l = lock_find(e, id);

	return l ? l->held : LOCK_MODE_NONE;
}

const char *engine_state_name(enum engine_state s)
{
	static const char *const name[] = {
	    "waiting for quorum", "joining", "active", "removed", "refused", "stopped"};

	return (unsigned)s < sizeof(name) / sizeof(name[0]) ? name[s] : "?";
}

/* Why the leader lets this node not serve, whatever else there is. */
const char *leader_differs(const struct engine *e)
{
	const struct peer *p = peer_find((struct engine *)e, e->c->round.leader);

	if (!p || !peer_differs(p))
		return NULL;
	if (p->other_locks)
		return "all nodes to use one lock manager: those that serve use another than "
		       "this one; stop the array on all nodes, then start it";
	return "all nodes to fence alike: fence or zombie_timeout in [fence] of ddraid.conf is "
	       "another here than on the leader's node; make it the same on all nodes while "
	       "ddraidd is stopped on all";
}

/* The data needs it, and what it was sent to be durable failed: nothing tries that again (R14). */
static bool flush_stuck(const struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (e->c->members.bad[i] == MEMBER_FAULTY && member_indispensable(e, i))
			return true;
	return false;
}

/* Likewise: it was too small for a while. */
static bool cut_stuck(const struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (e->c->members.bad[i] == MEMBER_FAULTY && member_indispensable(e, i) &&
		    member_cut(e, &e->map.member[i]))
			return true;
	return false;
}

static bool write_stuck(const struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (member_unwritable(e, i))
			return true;
	return false;
}

struct waits {
	const char *why;
	uint32_t node;
	uint64_t since_us; /* 0: since it is the reason */
};

/* A member that the data needs does not take what it is sent. */
static bool status_stuck(const struct engine *e, struct waits *w)
{
	if (cut_stuck(e)) {
		w->why = "members: one that the data needs was too small for a while, and what lay "
			 "beyond its end may be gone; connect the others, or stop the array on all "
			 "nodes with --disconnect, start it, and check the data";
		w->since_us = e->d->few_us ? e->d->few_us : e->d->lacks_us;
		return true;
	}
	if (flush_stuck(e)) {
		w->why = "members: a flush, or a write that had to be durable, failed on one "
			 "that the data needs, and what it had acknowledged may be lost, so "
			 "that is not tried again; set right what its error says, then stop "
			 "the array on all nodes with --disconnect, start it, and check the data";
		w->since_us = e->d->lacks_us ? e->d->lacks_us : e->d->few_us;
		return true;
	}
	if (!write_stuck(e))
		return false;
	w->why = "members: writes fail on one that the data needs, and are tried again "
		 "each second; set right what its error says";
	w->since_us = e->d->lacks_us;
	return true;
}

/* Another node that knows a member which the data needs for an older copy. */
static const struct peer *needed_older(const struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++) {
		const struct peer *p = member_older_by(e, i);

		if (p && p->node != e->cfg.node && map_write_mask(&e->map) >> i & 1)
			return p;
	}
	return NULL;
}

static void status_waits(const struct engine *e, struct waits *w)
{
	bool gives_up = e->c->round.give_up_us && e->state != ENGINE_REMOVED;

	if (e->view.phase == PH_HELLO && e->c->round.leader == e->cfg.node && !e->c->lead.begun &&
	    quorum_gate(e) && e->c->lead.why) {
		w->why = e->c->lead.why;
		return;
	}
	for (uint32_t i = 0;
	     i < e->c->departures.count && !gives_up && e->c->lead.why != e->c->use.why; i++) {
		if (e->c->departures.list[i].fenced)
			continue;
		w->why = "the fence of a departed node";
		w->node = e->c->departures.list[i].node;
		w->since_us = e->c->departures.list[i].since_us;
		return;
	}
	if (e->c->use.refused || e->c->lead.refused)
		w->why = e->c->use.refused ? e->c->use.why : e->c->lead.why;
	else if (gives_up)
		w->why = "the other nodes to know that this incarnation ends";
	else if (!e->c->group.view_known || !e->c->group.quorate)
		w->why = e->cfg.two_node
			     ? "quorum: corosync's two_node waits for the other node when "
			       "this one has started (wait_for_all); if that node stays "
			       "off, 'corosync-cmapctl -s quorum.cancel_wait_for_all u8 1' "
			       "gives this one quorum, and then the array has to be started "
			       "with --alone"
			     : "quorum";
	else if (e->view.phase == PH_READY && !is_observer(e) && e->c->round.confirmed &&
		 quorum_gate(e) && !use_lease(e) && members_reached(e) >= e->geo.k)
		w->why = "the members to take this node's sign that it uses them";
	else if (!(e->c->round.confirmed && quorum_gate(e)))
		w->why = "the own heartbeat, or group and quorum to agree";
	else if (e->view.phase != PH_READY && leading(e) && status_stuck(e, w))
		return; /* the round can't end before that */
	else if (e->view.phase != PH_READY)
		w->why = leading(e) && e->c->lead.why ? e->c->lead.why : "the leader's recovery";
	else if (is_observer(e))
		w->why = "members: this node reaches fewer than the data needs";
	else if (leader_differs(e))
		w->why = leader_differs(e);
	else if (status_stuck(e, w))
		return;
	else if (e->d->few_us && needed_older(e)) {
		w->why = "members: one that the data needs is an older copy of itself, as "
			 "another node finds; connect the right one";
		w->node = needed_older(e)->node;
		w->since_us = e->d->few_us;
	} else if (e->d->few_us) {
		w->why = members_older(e) ? MEMBER_NEEDED_OLDER
					  : "members: fewer can be used than the data needs";
		w->since_us = e->d->few_us;
	} else if (e->view.proposing) {
		w->why = "a change of the map";
		w->since_us = e->c->epochs.proposing_us;
	} else if (e->d->lacks_us) {
		w->why = "a change of the map: I/O waits until a member that this node can't "
			 "use is back or has left; bring it back, or fail it";
		w->since_us = e->d->lacks_us;
	} else if (!e->view.slot_owned) {
		w->why = "a free slot of the dirty log"; /* which waits for all the above, too */
	} else if (vouch_lacks(e)) {
		w->why = "another node to have an answer from each member, to what it asks since "
			 "this node connected it";
		w->node = vouch_lacks(e)->node;
	}
}

/* Service goes on, but for the region of that lock. It takes as long as the holder's requests do.
 */
static void lock_held(const struct engine *e, struct waits *w)
{
	uint32_t node = locktab_held_by(e, &w->since_us);

	if (!node || e->now - w->since_us < 2000ull * e->cfg.tun.evict_ms) {
		w->since_us = 0;
		return;
	}
	w->why = "a node to end what it does in a region, which another wants to itself";
	w->node = node;
}

static bool io_allowed(const struct engine *e)
{
	return gate_open(e) && e->state == ENGINE_ACTIVE && e->view.phase == PH_READY &&
	       !e->d->few_us;
}

static struct waits waits_of(const struct engine *e)
{
	struct waits w = {0};

	if (!io_allowed(e) || e->view.proposing || e->d->lacks_us)
		status_waits(e, &w);
	if (!w.why)
		w.why = leave_waits(e);
	if (!w.why)
		lock_held(e, &w);
	return w;
}

/* By its words, which may be others at the same place; FNV-1a. */
static uint64_t waits_hash(const struct waits *w)
{
	uint64_t hash = 14695981039346656037ull;

	for (const char *c = w->why; c && *c; c++)
		hash = (hash ^ (uint8_t)*c) * 1099511628211ull;
	return w->why ? hash | 1 : 0;
}

static void waits_note(struct engine *e)
{
	struct waits w = waits_of(e);
	uint64_t hash = waits_hash(&w);

	if (hash != e->waits_hash)
		e->waits_us = e->now;
	e->waits_hash = hash;
}

void engine_status(const struct engine *e, struct engine_status *st)
{
	struct waits w;

	memset(st, 0, sizeof(*st));
	st->state = e->state;
	if (e->state == ENGINE_JOINING && !(rings_agree(e) && e->c->group.quorate))
		st->state = ENGINE_WAIT_QUORUM;
	if (e->state == ENGINE_JOINING && (e->c->lead.refused || e->c->use.refused))
		st->state = ENGINE_REFUSED;
	st->io_allowed = io_allowed(e);
	st->leader = e->c->round.leader;
	st->leading = leading(e);
	st->map = e->map;
	st->past = e->c->assembly.past;
	st->proposing = e->view.proposing;
	st->proposed = e->view.prop;
	for (uint8_t i = 0; i < e->map.n; i++)
		if (e->c->members.bad[i] && map_write_mask(&e->map) >> i & 1)
			st->unusable |= 1u << i;
	memcpy(st->error, e->c->members.error, sizeof(st->error));
	memcpy(st->cause, e->c->epochs.cause, sizeof(st->cause));
	for (uint8_t i = 0; i < e->map.n; i++) {
		st->flaps[i] = e->c->epochs.flaps[i];
		st->kept_out_us[i] = member_kept_out_us(e, i);
	}
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		st->nodes += e->c->round.peer[i].active && e->c->round.peer[i].in_view &&
			     !e->c->round.peer[i].evicted;
	st->unfenced = departed_unfenced(e);
	st->slots_unrecovered = slots_unrecovered(e);
	st->regions_dirty = dlog_count(e, false);
	st->regions_missed = dlog_count(e, true);
	st->regions_to_resync = regions_to_resync(e);
	st->resync_total = e->c->recoveries.total;
	st->rebuild_done = e->c->rebuild.done;
	st->rebuild_total = e->c->rebuild.total;
	st->rebuild_waits_node = rebuild_waits(e, &st->rebuild_waits);
	st->rebuild_waits_us = e->c->rebuild.gather_us;
	st->ios = e->d->front_request_count;
	st->dev_ios = e->d->member_io_under_way;
	st->marks = e->d->n_marks;
	st->clears = e->d->n_clears;
	st->page_writes = e->d->n_page_writes;
	st->lock_requests = e->c->locks.requests;
	st->parity_fixed = e->d->n_parity_fixed;
	st->resync_bytes = e->c->recoveries.bytes;
	st->read_resync_bytes = e->c->recoveries.read_bytes;
	st->unreadable_reads = e->d->n_unreadable;
	st->unreadable = e->d->unreadable;
	st->rejected = e->c->rejected.count;
	st->rejected_node = e->c->rejected.node;
	st->rejected_why = e->c->rejected.why;
	st->unreadable_waits =
	    e->c->rebuild.pass.again_us > e->now || e->c->resync.pass.again_us > e->now;
	st->recovery_count = e->c->recoveries.count;
	memcpy(st->recovery, e->c->recoveries.list, sizeof(st->recovery));
	w = waits_of(e);
	st->waits = w.why;
	st->waits_node = w.node;
	if (w.why)
		st->waits_since_us = w.since_us ? w.since_us : e->waits_us ? e->waits_us : e->now;
	if (st->waits == e->c->use.why || st->waits == e->c->lead.text) { /* which go on changing */
		strncpy(st->waits_text, st->waits, sizeof(st->waits_text) - 1);
		st->waits = st->waits_text;
	}
}
