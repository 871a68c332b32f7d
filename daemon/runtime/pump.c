// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Events into the engine, outs out of it. Events wait in a ring that grows up to ARRAY_QUEUE_MAX;
 * what an event points to (a message, a URI) is a copy that is freed after its step.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/array_int.h"
#include "daemon/runtime/failpoint.h"

static void queue_grow(struct array *a)
{
	uint32_t cap = a->q_cap ? 2 * a->q_cap : 1024;
	struct event *v = malloc(cap * sizeof(*v));

	assert(v && cap <= ARRAY_QUEUE_MAX);
	for (uint32_t i = 0; i < a->q_count; i++)
		v[i] = a->queue[(a->q_first + i) & (a->q_cap - 1)];
	free(a->queue);
	a->queue = v;
	a->q_cap = cap;
	a->q_first = 0;
}

void pump_push(struct array *a, const struct event *ev)
{
	if (a->q_count == a->q_cap)
		queue_grow(a);
	a->queue[(a->q_first + a->q_count++) & (a->q_cap - 1)] = *ev;
}

/* The sink of both front-ends; their tags differ. */
void pump_submit(void *arg, const struct front_req *req)
{
	struct event ev = {.type = EV_IO};

	ev.io.tag = req->tag;
	ev.io.op = (enum io_op)req->op;
	ev.io.flags = req->flags;
	ev.io.offset = req->offset;
	ev.io.bytes = req->bytes;
	ev.io.data = req->data;
	pump_push(arg, &ev);
}

static void event_release(struct event *ev)
{
	if (ev->type == EV_MSG)
		free((void *)ev->msg.data);
	else if (ev->type == EV_ADMIN)
		free((void *)ev->admin.uri);
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool message_send(struct array *a, const void *data, size_t bytes)
{
	int err = group_send(a->group, data, bytes);

	if (err == -EAGAIN)
		return false;
	if (!err)
		failpoint_sent(data, bytes);
	/* -ENOTCONN: without a view nobody hears us, and none of it would count later. */
	if (err && err != -ENOTCONN)
		array_say(a, LOG_ERR, "a message of %zu bytes can't be sent: %s", bytes,
			  strerror(-err));
	return true;
}

static void send_out(struct array *a, const struct out *o)
{
	struct waiting_msg *m;

	if (!a->joined)
		return;
	if (!a->msg_first && message_send(a, o->send.data, o->send.bytes))
		return;
	m = malloc(sizeof(*m) + o->send.bytes);
	/* Not sent for so long: the node is as good as dead, and must not send half of it. */
	assert(m && a->msg_bytes + o->send.bytes <= ARRAY_SEND_MAX);
	m->next = NULL;
	m->bytes = o->send.bytes;
	memcpy(m->data, o->send.data, o->send.bytes);
	*a->msg_last = m;
	a->msg_last = &m->next;
	a->msg_bytes += m->bytes;
}

void pump_writable(struct array *a)
{
	struct waiting_msg *m;

	while ((m = a->msg_first) && message_send(a, m->data, m->bytes)) {
		a->msg_first = m->next;
		if (!a->msg_first)
			a->msg_last = &a->msg_first;
		a->msg_bytes -= m->bytes;
		free(m);
	}
}

void pump_drop_messages(struct array *a)
{
	while (a->msg_first) {
		struct waiting_msg *m = a->msg_first;

		a->msg_first = m->next;
		free(m);
	}
	a->msg_last = &a->msg_first;
	a->msg_bytes = 0;
}

/* ---- outs ----------------------------------------------------------------------------------- */

static void admin_answer(struct array *a, const struct out *o)
{
	struct array_admin **at = &a->admins, *q;

	while (*at && (*at)->tag != o->admin_done.tag)
		at = &(*at)->next;
	q = *at;
	if (!q)
		return; /* ADMIN_STOP is the runtime's own */
	*at = q->next;
	q->err = o->admin_done.err;
	if (!q->err && q->cmd == ADMIN_ADD)
		dev_settle(a); /* the new URI is on its way to the disk before the answer is */
	if (o->admin_done.why) {
		strncpy(q->why, o->admin_done.why, sizeof(q->why) - 1);
		q->why[sizeof(q->why) - 1] = '\0';
	}
	mailbox_post(a->env.main, &q->task, q->task.run);
}

static void out_removed(struct array *a)
{
	if (a->phase == ARRAY_PHASE_STOP)
		array_say(a, LOG_WARNING,
			  "this node was removed from the array as it stopped: this incarnation is "
			  "fenced "
			  "at the next start");
	else if (a->serving)
		array_say(
		    a, LOG_ERR,
		    "this node was removed from the array: every open is ended, requests under way "
		    "fail; it joins again as a new incarnation");
	else
		array_say(
		    a, LOG_WARNING,
		    "this node was removed as it joined, or no member lets it in: it joins again "
		    "as a new incarnation");
	a->removed = true;
	locks_close(a, false);
	if (a->serving)
		front_reset(a->front);
	disk_removed(a);
	life_serving(a, false);
}

static void do_out(struct array *a, const struct out *o)
{
	failpoint_out(a->e, o);
	switch (o->type) {
	case OUT_DEV_IO:
		dev_io(a, o);
		break;
	case OUT_DEV_CANCEL:
		dev_cancel(a, o->cancel.dev);
		break;
	case OUT_SEND:
		send_out(a, o);
		break;
	case OUT_FENCE:
		life_fence(a, o->fence.node, o->fence.inc);
		failpoint_asked();
		break;
	case OUT_RECORD:
		life_record(a, o->record);
		break;
	case OUT_IO_DONE:
		front_complete(o->io_done.tag >> 56 == DISK_FRONT_ID ? a->disk.front : a->front,
			       o->io_done.tag, o->io_done.err);
		break;
	case OUT_ADMIN_DONE:
		admin_answer(a, o);
		break;
	case OUT_OPEN:
		dev_add(a, o->open.uri);
		break;
	case OUT_LOCK:
		if (a->locks)
			lock_request(a->locks, o->lock.id, o->lock.mode, o->lock.try_only);
		break;
	case OUT_UNLOCK:
		if (a->locks)
			lock_release(a->locks, o->lock.id);
		break;
	case OUT_REMOVED:
		out_removed(a);
		break;
	case OUT_SAY:
		array_say(a, LOG_DEBUG, "%s", o->say);
		break;
	case OUT_PROBE:
		life_probe(a, o);
		break;
	case OUT_STOPPED:
		a->stopped_cleanly = a->phase == ARRAY_PHASE_STOP;
		if (o->stopped.unsealed)
			array_say(
			    a, LOG_WARNING,
			    "the members do not tell that it was stopped, since one of them, or "
			    "the state directory, takes too long to write: do not give a member "
			    "back from a copy or a snapshot that was made before");
		break;
	}
}

static bool is_data(const struct event *ev)
{
	return ev->type == EV_IO || ev->type == EV_DEV_DONE;
}

/* False: it is not one of the data path, of which another follows. */
static bool take(struct array *a, struct event *ev)
{
	if (!a->e || a->phase == ARRAY_PHASE_CLOSE || !a->q_count || !is_data(ev) ||
	    !is_data(&a->queue[a->q_first]))
		return false;
	failpoint_event(ev);
	ev->now_us = loop_clock_us(a->loop);
	engine_take(a->e, ev, &a->q);
	return true;
}

static void step(struct array *a, struct event *ev)
{
	if (!a->e || a->phase == ARRAY_PHASE_CLOSE) {
		event_release(ev);
		return;
	}
	failpoint_event(ev);
	ev->now_us = loop_clock_us(a->loop);
	engine_trace(a->e, log_debugs() ? TRACE_CLUSTER : TRACE_NOTHING);
	engine_step(a->e, ev, &a->q);
	status_map(a);
	if (ev->type == EV_RESTART)
		a->had_slot = false; /* until here the engine was that of the last incarnation */
	a->had_slot |= engine_slot(a->e) != UINT32_MAX;
	disk_step(a, ev);
	dev_lease(a);
	for (uint32_t i = 0; i < a->q.count; i++)
		do_out(a, &a->q.v[i]);
	a->q.count = 0;
	event_release(ev);
}

/* ---- turns ---------------------------------------------------------------------------------- */

void pump_export(const struct array *a, const struct geo *g, struct front_export *ex)
{
	memset(ex, 0, sizeof(*ex));
	strcpy(ex->name, a->live.name);
	strcpy(ex->description, "ddraid array");
	ex->size_bytes = g->size_bytes;
	/* Writes of less than a stripe are not there yet (R20). */
	ex->block_bytes = g->p.logical_block_bytes;
	ex->preferred_bytes = g->p.stripe_bytes;
	/* All data members once, before the parity moves on. */
	ex->row_bytes = g->p.layout == GEO_ROTATE ? g->k * g->p.band_bytes : 0;
	memcpy(ex->uuid, a->live.uuid, DDR_UUID_BYTES);
}

static void serve_check(struct array *a)
{
	struct front_export ex = {0};
	char why[FRONT_WHY_BYTES];
	struct engine_status st;
	const struct geo *g;

	engine_status(a->e, &st);
	g = engine_geo(a->e);
	if (st.state != ENGINE_ACTIVE || !g)
		return;
	pump_export(a, g, &ex);
	if (front_serve(a->front, &ex, why)) {
		array_fail(a, "%s", why);
		return;
	}
	life_serving(a, true);
	array_say(a, LOG_NOTICE, "active, serves %llu bytes", (unsigned long long)g->size_bytes);
}

void pump_tick(struct array *a)
{
	uint64_t at = engine_deadline_us(a->e);

	if (!loop_timer_is_set(&a->tick) || a->tick.deadline_us != at)
		loop_timer_set(a->loop, &a->tick, at);
}

static void pump_end(struct array *a)
{
	/* A stop begins no other incarnation. */
	if (a->removed && a->phase == ARRAY_PHASE_STOP && !a->under_way) {
		array_close(a);
		return;
	}
	if (a->removed && !a->under_way && !a->restarting && a->inc == a->engine_inc &&
	    loop_now_us(a->loop) >= a->renew_us) {
		a->restarting = true;
		life_renew(a);
	}
	if (!a->serving && !a->removed && a->phase == ARRAY_PHASE_RUN)
		serve_check(a);
	disk_advance(a);
	if (a->stopped_cleanly && !a->under_way)
		array_close(a);
	if (a->phase != ARRAY_PHASE_CLOSE)
		pump_tick(a);
}

bool pump_turn(void *arg)
{
	struct array *a = arg;
	uint32_t n = 0;

	if (!a->q_count)
		return false;
	while (a->q_count && n++ < ARRAY_PUMP_BATCH) {
		struct event ev = a->queue[a->q_first];

		a->q_first = (a->q_first + 1) & (a->q_cap - 1);
		a->q_count--;
		if (n < ARRAY_PUMP_BATCH && take(a, &ev))
			continue;
		if (ev.type == EV_MSG && !locks_kept(a))
			step(a, &(struct event){.type = EV_GIVE_UP});
		step(a, &ev);
	}
	if (a->e && a->phase != ARRAY_PHASE_CLOSE)
		pump_end(a);
	return true;
}

void pump_free(struct array *a)
{
	while (a->q_count) {
		event_release(&a->queue[a->q_first]);
		a->q_first = (a->q_first + 1) & (a->q_cap - 1);
		a->q_count--;
	}
	while (a->admins) {
		struct array_admin *q = a->admins;

		a->admins = q->next;
		q->err = -ESHUTDOWN;
		mailbox_post(a->env.main, &q->task, q->task.run);
	}
	free(a->queue);
	free(a->q.v);
	pump_drop_messages(a);
}
