/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A node and its daemon: life and death, events in, outs out.
 *
 *   powered         corosync and the kernel run
 *   proc            the daemon runs, with an engine
 *   frozen          nothing on the node runs; its events wait in the backlog
 *   stopped         only the daemon doesn't; the group goes on having it as a member
 *   removing        OUT_REMOVED was said, EV_RESTART comes some time after nothing is under way
 *   drained         in between: the new incarnation is made durable; devices come up meanwhile
 *
 * `gen` counts the daemon's lives; what was meant for an earlier one is dropped.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

static void node_out(struct sim *s, struct simnode *n, const struct out *o);
static void plan_tick(struct sim *s, struct simnode *n);
static void step_soon(struct sim *s, struct simnode *n);

struct nev *nev_new(const struct event *ev, const void *data, size_t bytes)
{
	struct nev *nev = xmalloc(sizeof(*nev) + bytes);

	*nev = (struct nev){.ev = *ev, .req = NONE, .aux = NONE, .bytes = bytes};
	if (bytes)
		memcpy(nev->data, data, bytes);
	return nev;
}

static void nev_free(struct sim *s, struct nev *nev)
{
	if (nev->req != NONE)
		dev_drop_given(s, nev->req);
	memset(nev->data, 0xdd, nev->bytes); /* who kept a pointer shall notice */
	free(nev);
}

/* ---- events in ------------------------------------------------------------------------------ */

/* The others' daemons tell where the members are by now: what was added while this one stood
 * still, or was not among them. */
static void opened_learn(struct sim *s, struct simnode *n)
{
	for (uint32_t i = 0; i < s->o.disks && n->proc && n->powered; i++)
		if (s->opened >> i & 1 && dev_slot_of_disk(n, i) == NONE)
			dev_open(s, n, i, 5 * MS);
}

static void complete_event(struct sim *s, struct simnode *n, struct nev *nev)
{
	struct event *ev = &nev->ev;

	ev->now_us = s->now + n->clock_us;
	switch (ev->type) {
	case EV_DEV_UP:
		ev->dev.uri = (const char *)nev->data;
		break;
	case EV_DEV_DOWN:
		n->dev[ev->dev.dev].down_due = false;
		break;
	case EV_DEV_DONE:
		dev_give(s, nev->req, &ev->done.err);
		nev->req = NONE;
		break;
	case EV_MSG:
		ev->msg.data = nev->data;
		ev->msg.bytes = nev->bytes;
		s->inc[nev->aux].known_to |= 1u << n->idx;
		if (s->inc[nev->aux].stopping && trace_is_left(nev->data, nev->bytes))
			s->inc[nev->aux].left_heard |= 1u << n->idx;
		if (ev->msg.from == n->id && (!n->own_msg || nev->sent_us > n->own_msg_sent_us)) {
			n->own_msg = true;
			n->own_msg_sent_us = nev->sent_us;
		}
		break;
	case EV_VIEW:
		if (ev->view.ring.seq != n->view_seq && s->o.nodes > 1)
			stats_fault(s, n->quorum_seq == ev->view.ring.seq ? F_QUORUM_FIRST
									  : F_VIEW_FIRST);
		n->view_seq = ev->view.ring.seq;
		checks_view(s, n, nev->aux, nev->aux2);
		if (ev->view.count > 1)
			opened_learn(s, n);
		break;
	case EV_QUORUM:
		n->quorate = ev->view.quorate;
		n->quorum_seq = ev->view.ring.seq;
		checks_quorum(s, n);
		break;
	case EV_IO:
		front_given(n, ev->io.tag);
		break;
	case EV_GIVE_UP:
		givesup_heard(s, n);
		break;
	case EV_ADMIN:
		s->inc[n->ii].stopping |= ev->admin.cmd == ADMIN_STOP;
		ev->admin.uri = nev->bytes ? (const char *)nev->data : NULL;
		break;
	default:
		break;
	}
}

static void take_outs(struct sim *s, struct simnode *n)
{
	uint64_t gen = n->gen;

	for (uint32_t i = 0; i < s->outq.count && n->gen == gen && n->proc; i++) {
		trace_out(s, n, &s->outq.v[i]);
		node_out(s, n, &s->outq.v[i]);
	}
}

/* ADMIN_STOP is through. Somebody starts it again before long. */
static void end_stopped(struct sim *s, struct simnode *n)
{
	uint32_t ii = n->ii;

	node_end_daemon(s, n);
	dlm_left(s, ii);
	group_leave(s, n->idx);
	node_start_later(s, n, rng_range(&s->rng, 5 * MS, 800 * MS));
}

/* It is through, but the group has it as a member for a while yet, and hears nothing of it. */
static void on_left(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (n->proc && n->gen == ev->b)
		end_stopped(s, n);
}

/* As the runtime does before it lets the engine hear a message. */
static bool locks_kept(const struct sim *s, const struct simnode *n)
{
	return !s->inc[n->ii].locks_left || s->inc[n->ii].gave_up_us;
}

static void outs_append(struct outq *q, struct outq *more)
{
	while (q->cap < q->count + more->count) {
		q->cap = q->cap ? 2 * q->cap : 64;
		q->v = realloc(q->v, q->cap * sizeof(*q->v));
		assert(q->v);
	}
	if (more->count)
		memcpy(q->v + q->count, more->v, more->count * sizeof(*q->v));
	q->count += more->count;
	more->count = 0;
}

static bool is_data(const struct nev *nev)
{
	return nev->ev.type == EV_IO || nev->ev.type == EV_DEV_DONE;
}

static bool is_taken(const struct sim *s, const struct nev *nev)
{
	return s->cli->batch && is_data(nev) && mix64(s->seed ^ s->now ^ nev->ev.type) % 4;
}

static void node_step(struct sim *s, struct simnode *n, struct nev *nev)
{
	bool taken = is_taken(s, nev);

	complete_event(s, n, nev);
	trace_event(s, n, nev);
	if (n->stopped_itself)
		return;
	if (s->hook) {
		s->hook(s, n, nev);
		return;
	}
	s->outq.count = 0;
	if (taken) { /* what it wants done waits for the step, as in ddraidd */
		engine_take(n->e, &nev->ev, &n->taken);
		n->took = true;
		step_soon(s, n);
		return;
	}
	outs_append(&s->outq, &n->taken);
	n->took = false;
	engine_step(n->e, &nev->ev, &s->outq);
	engine_status(n->e, &n->st);
	s->inc[n->ii].left |= n->st.state == ENGINE_STOPPED;
	if (n->st.rejected)
		sim_fail(s, "C10", "n%u takes n%u for broken, whose message %s", n->id,
			 n->st.rejected_node, n->st.rejected_why);
	checks_map(s, n);
	take_outs(s, n);
	if (n->stopped_itself) {
		sim_at(s, rng_range(&s->rng, 0, 500 * MS), on_left, n->idx, n->gen, NULL);
		return;
	}
	if (!n->proc)
		return;
	checks_step(s, n);
	if (n->st.state == ENGINE_ACTIVE && !n->front.open && !n->removing)
		front_open(s, n);
	plan_tick(s, n);
}

static void node_take(struct sim *s, struct simnode *n, struct nev *nev)
{
	if (!n->proc || nev->gen != n->gen) {
		nev_free(s, nev);
	} else if (n->frozen || n->stopped) {
		nev->next = NULL;
		*(n->bl_tail ? &n->bl_tail->next : &n->bl_head) = nev;
		n->bl_tail = nev;
	} else {
		/* What comes otherwise is never taken together with them. */
		if (n->took && !is_data(nev) && nev->ev.type != EV_TICK)
			node_step(s, n, &(struct nev){.ev.type = EV_TICK, .req = NONE});
		if (nev->ev.type == EV_MSG && !locks_kept(s, n))
			node_step(s, n, &(struct nev){.ev.type = EV_GIVE_UP, .req = NONE});
		if (n->proc && nev->gen == n->gen)
			node_step(s, n, nev);
		nev_free(s, nev);
	}
}

static void on_event(struct sim *s, struct hev *ev)
{
	struct nev *nev = ev->p;

	ev->p = NULL;
	node_take(s, &s->node[ev->a], nev);
}

void node_post_nev(struct sim *s, struct simnode *n, uint64_t at_us, struct nev *nev)
{
	nev->gen = n->gen;
	sim_at(s, at_us - s->now, on_event, n->idx, 0, nev);
}

void node_post(struct sim *s, struct simnode *n, uint64_t delay_us, const struct event *ev)
{
	node_post_nev(s, n, s->now + delay_us, nev_new(ev, NULL, 0));
}

/* ---- time ----------------------------------------------------------------------------------- */

static void on_tick(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	struct event tick = {.type = EV_TICK};
	struct nev *nev;

	if (!n->proc || ev->b != n->gen || n->tick_at > s->now)
		return;
	n->tick_at = NEVER;
	nev = nev_new(&tick, NULL, 0);
	nev->gen = n->gen;
	node_take(s, n, nev);
}

/* Its next step comes in a moment. */
static void step_soon(struct sim *s, struct simnode *n)
{
	n->tick_at = s->now + 1 + mix64(s->seed ^ s->now) % STEP_SOON_US;
	sim_at(s, n->tick_at - s->now, on_tick, n->idx, n->gen, NULL);
}

static void plan_tick(struct sim *s, struct simnode *n)
{
	uint64_t at = engine_deadline_us(n->e);

	if (at == NEVER)
		return;
	at = at > n->clock_us ? at - n->clock_us : 0;
	if (at <= s->now)
		at = s->now + 1;
	at += rng_below(&s->rng, 200); /* a loop is never on time */
	if (n->tick_at != NEVER && n->tick_at > s->now && n->tick_at <= at)
		return;
	n->tick_at = at;
	sim_at(s, at - s->now, on_tick, n->idx, n->gen, NULL);
}

/* ---- outs ----------------------------------------------------------------------------------- */

/* A process of this node, since it was booted. */
static void answer_probe(struct sim *s, struct simnode *n, const struct out *o)
{
	struct event ev = {.type = EV_PROBED};
	uint32_t ii = o->probe.process.pid - 1;

	ev.probed.claim = o->probe.claim;
	ev.probed.dead = ii < s->incs && ii < n->ii && s->inc[ii].node == n->idx;
	node_post(s, n, rng_range(&s->rng, 1, MS), &ev);
}

static void on_record(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	struct event done = {.type = EV_RECORD_DONE};

	if (ev->b != n->gen || !n->proc)
		return; /* it crashed before */
	memcpy(&n->record, ev->p, sizeof(n->record));
	node_post(s, n, 0, &done);
}

/* The node's state directory is full for a while. Of its own randomness: seeds in which that never
 * happens are as without it. */
static uint64_t record_hangs_us(struct sim *s, const struct simnode *n)
{
	uint64_t r = mix64(s->seed ^ s->now << 8 ^ n->id ^ 0x66756c6cull);

	if (!s->o.record_hangs || s->planner.healing || r % 8)
		return 0;
	stats_look(s);
	stats_fault(s, F_RECORD_HANGS);
	trace(s, "f  n%u can't write its record", n->id);
	stats_look_end(s);
	return (200 + r / 8 % 4000) * MS;
}

static void out_record(struct sim *s, struct simnode *n, const struct record *r)
{
	struct record *copy = xmalloc(sizeof(*copy));

	*copy = *r;
	sim_at(s,
	       rng_range(&s->rng, 100, 8 * MS) + oldcopy_late_us(s) + record_hangs_us(s, n) +
		   rollback_record_us(s),
	       on_record, n->idx, n->gen, copy);
}

static void on_renewed(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	struct event restart = {.type = EV_RESTART};

	if (!n->proc || ev->b != n->gen || !n->drained)
		return;
	n->removing = n->drained = false;
	restart.restart.inc = s->inc[n->ii].inc;
	node_post(s, n, 0, &restart);
}

static void on_drained(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (!n->proc || ev->b != n->gen || !n->removing)
		return;
	if (n->frozen || n->stopped || n->took || s->inc[n->ii].outstanding ||
	    dev_under_way(s, n)) {
		sim_at(s, 2 * MS, on_drained, n->idx, n->gen, NULL);
		return;
	}
	front_removed(s, n);
	inc_dead(s, n->ii);
	n->ii = inc_new(s, n->idx);
	n->drained = true;
	s->group.member_ii[n->idx] = n->ii;
	s->inc[n->ii].joined = true;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (n->dev[i].used && !n->dev[i].up)
			dev_try(s, n, i, rng_range(&s->rng, 1 * MS, 30 * MS));
	sim_at(s, rng_chance(&s->rng, 500) ? 0 : rng_range(&s->rng, 1 * MS, 60 * MS), on_renewed,
	       n->idx, n->gen, NULL);
}

/* Exporters know a login by its incarnation: a new one needs new connections, where they look. */
static void out_removed(struct sim *s, struct simnode *n)
{
	if (n->removing)
		sim_fail(s, "C8", "node %u was removed twice as one incarnation", n->id);
	stats_fault(s, F_EVICTED);
	n->removing = true;
	s->inc[n->ii].removed = true;
	givesup_removed(s, n->ii);
	n->front.open = false;
	for (uint32_t i = 0; i < DDR_MAX_DEVS && s->o.fence_cuts; i++)
		dev_break(s, n, i, -ESHUTDOWN);
	dlm_ended(s, n->ii, rng_range(&s->rng, 1 * MS, 10 * MS));
	inc_check_ended(s, n->ii);
	checks_engine_gone(s);
	sim_at(s, 2 * MS, on_drained, n->idx, n->gen, NULL);
}

static void out_open(struct sim *s, struct simnode *n, const char *uri)
{
	for (uint32_t i = 0; i < s->o.disks; i++) {
		if (strcmp(s->disk[i].uri, uri))
			continue;
		s->opened |= 1u << i;
		dev_open(s, n, i, rng_range(&s->rng, 1 * MS, 40 * MS));
		return;
	}
	sim_fail(s, "C9", "node %u opens %s, which nobody named", n->id, uri);
}

uint32_t node_under_way(const struct sim *s, uint32_t ii)
{
	uint32_t n = s->inc[ii].outstanding;

	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *r = s->req[i];

		n -= r->used && r->ii == ii && r->orphan && r->op == DEV_FLUSH &&
		     r->exec != EXEC_DONE && r->exec != EXEC_NEVER;
	}
	return n;
}

static void out_stopped(struct sim *s, struct simnode *n, bool unsealed)
{
	if (node_under_way(s, n->ii) || front_unanswered(n))
		sim_fail(s, "C8", "node %u stopped with %u requests under way, %u unanswered",
			 n->id, node_under_way(s, n->ii), front_unanswered(n));
	s->inc[n->ii].graceful = true;
	n->stopped_itself = true;
	rollback_stopped(s, unsealed);
}

static void node_out(struct sim *s, struct simnode *n, const struct out *o)
{
	switch (o->type) {
	case OUT_DEV_IO:
		dev_submit(s, n, o);
		break;
	case OUT_DEV_CANCEL:
		dev_cancel(s, n, o->cancel.dev);
		break;
	case OUT_SEND:
		oldcopy_sent(s, o->send.data, o->send.bytes);
		group_send(s, n, o->send.data, o->send.bytes);
		break;
	case OUT_FENCE:
		checks_acts(s, n, "has somebody fenced");
		fence_ask(s, n, o->fence.node, o->fence.inc);
		break;
	case OUT_PROBE:
		answer_probe(s, n, o);
		break;
	case OUT_RECORD:
		out_record(s, n, o->record);
		break;
	case OUT_IO_DONE:
		front_done(s, n, o->io_done.tag, o->io_done.err);
		break;
	case OUT_ADMIN_DONE:
		operator_answer(s, n, o->admin_done.tag, o->admin_done.err, o->admin_done.why);
		break;
	case OUT_OPEN:
		out_open(s, n, o->open.uri);
		break;
	case OUT_LOCK:
		dlm_lock(s, n, o->lock.id, o->lock.mode, o->lock.try_only);
		break;
	case OUT_UNLOCK:
		dlm_unlock(s, n, o->lock.id);
		break;
	case OUT_REMOVED:
		out_removed(s, n);
		break;
	case OUT_SAY:
		break;
	case OUT_STOPPED:
		out_stopped(s, n, o->stopped.unsealed);
		break;
	}
}

/* ---- life and death ------------------------------------------------------------------------- */

static void backlog_drop(struct sim *s, struct simnode *n)
{
	while (n->bl_head) {
		struct nev *nev = n->bl_head;

		n->bl_head = nev->next;
		nev_free(s, nev);
	}
	n->bl_tail = NULL;
}

void node_end_daemon(struct sim *s, struct simnode *n)
{
	if (!n->proc)
		return;
	trace(s, "n%u daemon of inc %lu ends", n->id, s->inc[n->ii].inc);
	n->proc = false;
	dev_orphan_all(s, n);
	n->gen++;
	backlog_drop(s, n);
	engine_free(n->e);
	n->taken.count = 0;
	n->took = false;
	n->e = NULL;
	front_abort(s, n);
	n->removing = n->drained = n->stopped = n->stopped_itself = n->lags = false;
	memset(n->dev, 0, sizeof(n->dev));
	memset(&n->st, 0, sizeof(n->st));
	n->map_degraded = false;
	inc_dead(s, n->ii);
	checks_engine_gone(s);
}

void node_kill_daemon(struct sim *s, struct simnode *n)
{
	uint32_t ii = n->ii;

	if (!n->proc)
		return;
	node_end_daemon(s, n);
	dlm_ended(s, ii, rng_range(&s->rng, 0, 5 * MS));
	group_leave(s, n->idx);
}

void node_crash(struct sim *s, struct simnode *n)
{
	if (!n->powered)
		return;
	world_tell(s, n, "loses power");
	if (n->proc || s->o.locks == LOCK_EXTERNAL) {
		if (n->proc)
			node_end_daemon(s, n);
		if (n->ii < s->incs && s->inc[n->ii].node == n->idx) /* else it never started */
			dlm_node_gone(s, n->ii, rng_range(&s->rng, 300 * MS, 900 * MS));
	}
	n->powered = false;
	n->frozen = false;
	group_node_down(s, n->idx);
}

static void on_start(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (!n->powered || n->proc || ev->b != n->gen || s->failed)
		return;
	if (rollback_holds(s))
		node_start_later(s, n, 20 * MS);
	else if (s->o.fences_itself && fence_itself_fails(s, n))
		node_start_later(s, n, rng_range(&s->rng, 10 * MS, 150 * MS));
	else
		node_start(s, n);
}

void node_start_later(struct sim *s, struct simnode *n, uint64_t delay_us)
{
	sim_at(s, delay_us, on_start, n->idx, n->gen, NULL);
}

void node_power_on(struct sim *s, struct simnode *n, uint64_t daemon_delay_us)
{
	if (n->powered)
		return;
	n->powered = true;
	n->clock_us = rng_range(&s->rng, 0, 1000000 * MS);
	n->frozen = false;
	group_node_up(s, n->idx);
	node_start_later(s, n, daemon_delay_us);
}

static void on_power_on(struct sim *s, struct hev *ev)
{
	if (ev->b == s->node[ev->a].gen)
		node_power_on(s, &s->node[ev->a], rng_range(&s->rng, 1 * MS, 150 * MS));
}

void node_power_on_later(struct sim *s, struct simnode *n, uint64_t delay_us)
{
	sim_at(s, delay_us, on_power_on, n->idx, n->gen, NULL);
}

static void engine_make(struct sim *s, struct simnode *n)
{
	struct engine_cfg cfg;

	engine_cfg_init(&cfg);
	cfg.node = n->id;
	cfg.inc = s->inc[n->ii].inc;
	cfg.fenced_inc = fence_itself(s, n);
	/* How it is told to fence. What the world's fence does is the same for all. */
	cfg.fence_waits = !s->o.fence_cuts || n->fences_otherwise;
	cfg.fence_ms = n->fences_otherwise ? 30000 : 10000;
	cfg.two_node = s->o.two_node;
	memcpy(cfg.array_uuid, s->array_uuid, DDR_UUID_BYTES);
	cfg.record = n->record;
	strcpy(cfg.cluster, s->o.nodes > 1 ? "sim" : "");
	cfg.process.pid = n->ii + 1;
	cfg.process.pid_space = n->id;
	memcpy(cfg.process.boot, &n->clock_us, sizeof(n->clock_us)); /* each boot has another */
	cfg.lock_backend = s->o.locks;
	cfg.max_ios = s->o.max_ios;
	cfg.tun = s->o.tun;
	n->e = engine_new(&cfg);
	assert(n->e);
	engine_trace(n->e, s->tracing ? TRACE_ALL : s->hear_what);
}

void node_start(struct sim *s, struct simnode *n)
{
	uint32_t disk = rng_below(&s->rng, s->o.disks);

	n->gen++;
	n->ii = inc_new(s, n->idx);
	n->proc = true;
	n->tick_at = NEVER;
	n->own_msg = false;
	n->view_ring = NONE;
	n->view_seq = n->quorum_seq = 0;
	n->epoch_seen = 0;
	n->fences_otherwise = n->conf_differs;
	if (!s->hook)
		engine_make(s, n);
	trace(s, "n%u daemon starts as inc %lu", n->id, s->inc[n->ii].inc);
	world_tell(s, n, "its daemon starts");
	for (uint32_t i = 0; i < s->o.disks; i++, disk = (disk + 1) % s->o.disks)
		if (disk < s->o.members || s->opened >> disk & 1)
			dev_open(
			    s, n, disk,
			    rng_range(&s->rng, 0, rng_chance(&s->rng, 50) ? 400 * MS : 40 * MS));
	group_join(s, n->idx);
	operator_started(s, n);
}

/* ---- freeze, stop --------------------------------------------------------------------------- */

/* What clients sent comes by other sockets than what the group says, and may be read before it. */
static void clients_first(struct simnode *n)
{
	struct nev *io = NULL, **last = &io, **at = &n->bl_head;

	while (*at) {
		struct nev *nev = *at;

		if (nev->ev.type != EV_IO) {
			at = &nev->next;
			continue;
		}
		*at = nev->next;
		nev->next = NULL;
		*last = nev;
		last = &nev->next;
	}
	*last = n->bl_head;
	n->bl_head = n->bl_tail = io;
	while (n->bl_tail && n->bl_tail->next)
		n->bl_tail = n->bl_tail->next;
}

void node_thaw(struct sim *s, struct simnode *n)
{
	uint64_t gen = n->gen;

	if (!n->frozen && !n->stopped)
		return;
	trace(s, "n%u goes on", n->id);
	if (n->frozen) {
		n->frozen = false;
		group_thawed(s, n->idx);
	}
	n->stopped = false;
	if (n->bl_head)
		stats_fault(s, F_BACKLOG);
	if (n->lags || mix64(s->seed ^ s->now ^ 0x636c69656e7473ull) % 2)
		clients_first(n);
	n->lags = false;
	while (n->bl_head && n->proc && n->gen == gen && !s->failed) {
		struct nev *nev = n->bl_head;

		n->bl_head = nev->next;
		if (!n->bl_head)
			n->bl_tail = NULL;
		node_take(s, n, nev);
	}
	opened_learn(s, n);
}

static void on_thaw(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (ev->b == n->gen)
		node_thaw(s, n);
}

/* The machine: its daemon may have been killed, and started again, meanwhile. */
static void on_machine_thaws(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (n->frozen && ev->b == n->frozen_no)
		node_thaw(s, n);
}

static void on_token_lost(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (n->powered && n->frozen && ev->b == n->frozen_no)
		group_frozen_out(s, n->idx);
}

static void on_still(struct sim *s, struct hev *ev);

/* A step is a moment. What was decided when events were taken is done before the node stands still,
 * or, in the daemon, comes nowhere if it is late (lease_guard.c). */
static bool still_later(struct sim *s, struct simnode *n, bool machine, uint64_t us)
{
	if (n->took)
		sim_at(s, 0, on_still, (uint64_t)machine << 32 | n->idx, us, NULL);
	return n->took;
}

void node_freeze(struct sim *s, struct simnode *n, uint64_t us)
{
	if (still_later(s, n, true, us))
		return;
	n->frozen = true;
	n->frozen_no++;
	sim_at(s, s->o.token_us, on_token_lost, n->idx, n->frozen_no, NULL);
	sim_at(s, us, on_machine_thaws, n->idx, n->frozen_no, NULL);
}

void node_stop_daemon(struct sim *s, struct simnode *n, uint64_t us)
{
	if (still_later(s, n, false, us))
		return;
	n->stopped = true;
	sim_at(s, us, on_thaw, n->idx, n->gen, NULL);
}

static void on_still(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[(uint32_t)ev->a];

	if (n->took)
		node_step(s, n, &(struct nev){.ev.type = EV_TICK, .req = NONE});
	if (!n->proc || n->frozen || n->stopped)
		return;
	if (ev->a >> 32)
		node_freeze(s, n, ev->b);
	else
		node_stop_daemon(s, n, ev->b);
}

struct simnode *node_leader(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];

		if (n->proc && n->st.leading && n->quorate && !n->frozen && !n->stopped)
			return n;
	}
	return NULL;
}
