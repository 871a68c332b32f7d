// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What an array asks of other threads: the record and incarnations (worker: it fsyncs), fences
 * (main thread: it has the helper). Each is a task that travels there and comes back; a->tasks
 * counts them, and the runtime does not end before they are back.
 *
 * But it ends without the answers of fences, which may take longer than a stop. The main thread has
 * those that are asked for in a->fences; from those that are left at the end the array is taken
 * away (life_ended), and their answers go nowhere.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/units.h"
#include "daemon/runtime/array_int.h"
#include "daemon/runtime/process.h"

#define AGAIN_MS 1000u

struct life_task {
	struct task task;
	struct array *a;
	struct store_record rec;
	struct store_array desc;
	bool load, new_inc, put, force, serving, over;
	uint32_t clients;
	uint32_t found, added; /* as in array_env.changed */
	int err;
	char why[STORE_WHY_BYTES];
	void (*back)(struct array *a, struct life_task *t); /* on the engine thread */
};

static struct life_task *task_new(struct array *a, void (*back)(struct array *, struct life_task *))
{
	struct life_task *t = calloc(1, sizeof(*t));

	assert(t);
	t->a = a;
	t->back = back;
	t->rec = a->rec;
	t->desc = a->live;
	t->force = a->force;
	a->tasks++;
	return t;
}

static void task_back(struct task *task)
{
	struct life_task *t = (struct life_task *)(void *)task;
	struct array *a = t->a;

	a->tasks--;
	t->back(a, t);
	free(t);
	if (a->phase == ARRAY_PHASE_CLOSE)
		array_close_check(a);
}

/* ---- on the worker -------------------------------------------------------------------------- */

static void record_load(struct life_task *t)
{
	t->err = store_get_record(t->desc.name, &t->rec, t->why);
	/* Of an array that had the name before. */
	if (!t->err && !t->desc.ran && memcmp(t->rec.uuid, t->desc.uuid, DDR_UUID_BYTES))
		t->err = -ENOENT;
	if (t->err == -ENOENT && (!t->desc.ran || t->force)) {
		memset(&t->rec, 0, sizeof(t->rec));
		memcpy(t->rec.uuid, t->desc.uuid, DDR_UUID_BYTES);
		t->rec.clean = true;
		t->err = store_put_record(t->desc.name, &t->rec, t->why);
	} else if (t->err == -ENOENT) {
		snprintf(t->why, sizeof(t->why),
			 "the record of array %s is missing although it ran here: what this node "
			 "has acknowledged is not known; restore %s.record, or start with --stale",
			 t->desc.name, t->desc.name);
	}
	if (!t->err && memcmp(t->rec.uuid, t->desc.uuid, DDR_UUID_BYTES)) {
		char uuid[2][UUID_TEXT_BYTES];

		t->err = -EBADMSG;
		snprintf(
		    t->why, sizeof(t->why),
		    "%s.array and %s.record are of two arrays, %s and %s: restore the one that "
		    "is not of this, or remove the record if the second is gone for good",
		    t->desc.name, t->desc.name, uuid_format(uuid[0], t->desc.uuid),
		    uuid_format(uuid[1], t->rec.uuid));
	}
}

static void work(struct task *task)
{
	struct life_task *t = (struct life_task *)(void *)task;

	t->err = 0;
	if (t->load)
		record_load(t);
	if (!t->err && t->new_inc) {
		t->err = store_incarnation(&t->rec.inc, t->why);
		t->rec.clean = false;
		process_self(&t->rec.process);
	}
	if (!t->err && t->put)
		t->err = store_put_record(t->desc.name, &t->rec, t->why);
	mailbox_post(&t->a->box, &t->task, task_back);
}

static void send_work(struct array *a, struct life_task *t)
{
	mailbox_post(&a->env.worker->box, &t->task, work);
}

void life_say_once(struct array *a, const char *why)
{
	if (strcmp(a->life_said, why) != 0)
		array_say(a, LOG_ERR, "%s; it is tried again", why);
	snprintf(a->life_said, sizeof(a->life_said), "%s", why);
}

/* ---- start: the record, the last incarnation's fence, a new incarnation
 * -------------------------------------
 */

static void ran_changed(struct task *task)
{
	struct life_task *t = (struct life_task *)(void *)task;

	t->a->desc = t->desc;
	t->a->env.changed(t->a, &t->desc, t->found, t->added);
	mailbox_post(&t->a->box, &t->task, task_back);
}

static void nothing(struct array *a, struct life_task *t)
{
	(void)a;
	(void)t;
}

/* What was learnt goes to the main thread, which writes it down. */
void life_changed(struct array *a, uint32_t found, uint32_t added)
{
	struct life_task *t = task_new(a, nothing);

	t->found = found;
	t->added = added;
	mailbox_post(a->env.main, &t->task, ran_changed);
}

static void adding_known(struct array *a, struct life_task *t)
{
	if (t->err) {
		array_say(a, LOG_ERR, "%s is not opened for 'add': %s", t->desc.adding, t->why);
		return;
	}
	strcpy(a->live.adding, t->desc.adding);
	if (a->phase < ARRAY_PHASE_STOP && !dev_open_added(a, a->live.adding))
		life_not_added(a, t->desc.adding);
}

static void adding_stored(void *arg, int err, const char *why)
{
	struct life_task *t = arg;

	t->err = err;
	snprintf(t->why, sizeof(t->why), "%s", why);
	mailbox_post(&t->a->box, &t->task, task_back);
}

static void ran_adding(struct task *task)
{
	struct life_task *t = (struct life_task *)(void *)task;

	t->a->env.adding(t->a, t->desc.adding, t->over, adding_stored, t);
}

void life_adding(struct array *a, const char *uri)
{
	struct life_task *t = task_new(a, adding_known);

	strcpy(t->desc.adding, uri);
	mailbox_post(a->env.main, &t->task, ran_adding);
}

void life_not_added(struct array *a, const char *uri)
{
	struct life_task *t = task_new(a, nothing);

	t->over = true;
	strcpy(t->desc.adding, uri);
	if (!strcmp(a->live.adding, uri))
		a->live.adding[0] = '\0';
	mailbox_post(a->env.main, &t->task, ran_adding);
}

static void serving_told(struct task *task)
{
	struct life_task *t = (struct life_task *)(void *)task;

	t->a->env.serving(t->a, t->serving, t->clients);
	mailbox_post(&t->a->box, &t->task, task_back);
}

static void serving_tell(struct array *a)
{
	struct life_task *t = task_new(a, nothing);

	t->serving = a->serving;
	t->clients = a->clients;
	mailbox_post(a->env.main, &t->task, serving_told);
}

void life_serving(struct array *a, bool yes)
{
	if (a->serving == yes)
		return;
	a->serving = yes;
	serving_tell(a);
}

static void refused_told(struct task *task)
{
	struct life_task *t = (struct life_task *)(void *)task;

	t->a->env.refused(t->a, t->why);
	mailbox_post(&t->a->box, &t->task, task_back);
}

void life_refused(struct array *a, const char *why)
{
	struct life_task *t;

	if (!strncmp(a->refused, why, sizeof(a->refused) - 1))
		return;
	snprintf(a->refused, sizeof(a->refused), "%s", why);
	t = task_new(a, nothing);
	strcpy(t->why, a->refused);
	mailbox_post(a->env.main, &t->task, refused_told);
}

void life_clients(struct array *a)
{
	struct front_stats front;

	if (!a->front || a->phase == ARRAY_PHASE_CLOSE)
		return;
	front_stats(a->front, &front);
	front.clients += disk_opens(a);
	if (front.clients == a->clients)
		return;
	a->clients = front.clients;
	serving_tell(a);
}

/* This life may begin: all it needs is there. */
void life_ready(struct array *a)
{
	struct event ev = {.type = EV_RESTART};

	if (a->phase < ARRAY_PHASE_RUN) {
		array_run(a);
		return;
	}
	if (a->phase >= ARRAY_PHASE_STOP)
		return; /* the engine has been told to stop, and would forget it: see pump_end */
	a->removed = a->had_slot = false;
	a->waits[0] = '\0';
	ev.restart.inc = a->engine_inc = a->inc;
	pump_push(a, &ev);
	array_say(a, LOG_NOTICE, "joins again as incarnation %llu", (unsigned long long)a->inc);
}

static void renew_again(struct array *a);

static void begun(struct array *a, struct life_task *t)
{
	if (a->phase == ARRAY_PHASE_CLOSE)
		return;
	if (t->err) {
		array_waits(a, "%s", t->why);
		life_say_once(a, t->why);
		array_again(a, AGAIN_MS, renew_again);
		return;
	}
	a->life_said[0] = '\0';
	a->rec = t->rec;
	a->inc = t->rec.inc;
	locks_open(a);
}

/*
 * The id by which the cluster knows the incarnation that begins. Alone, a node is node 1 for itself
 * only: that id is written down as none, and the incarnation is fenced by the id that this machine
 * has when it is.
 */
static uint32_t known_as(const struct array *a)
{
	return a->alone ? 0 : a->self.node;
}

static void renew_again(struct array *a)
{
	struct life_task *t = task_new(a, begun);

	t->new_inc = t->put = true;
	t->rec.node = known_as(a);
	send_work(a, t);
}

static void ran_told(struct array *a, struct life_task *t)
{
	(void)t;
	if (a->phase != ARRAY_PHASE_CLOSE)
		renew_again(a);
}

static void life_begin(struct array *a)
{
	struct life_task *t;

	array_phase(a, ARRAY_PHASE_RECORD);
	array_waits(a, "a new incarnation to be made durable");
	if (a->live.ran) {
		renew_again(a);
		return;
	}
	/* `ran` is durable before anything is done that the record must not forget. */
	a->live.ran = true;
	t = task_new(a, ran_told);
	mailbox_post(a->env.main, &t->task, ran_changed);
}

/*
 * By the node id that this incarnation had: a node that is set to `cluster = alone` is node 1 for
 * itself only, and node 1 of its cluster is another one, which serves.
 */
static void fence_last(struct array *a)
{
	life_fence(a, a->rec.node ? a->rec.node : a->self.node, a->rec.inc);
}

static void loaded(struct array *a, struct life_task *t)
{
	if (a->phase == ARRAY_PHASE_CLOSE)
		return;
	if (t->err) {
		array_fail(a, "%s", t->why);
		return;
	}
	a->rec = t->rec;
	disk_loaded(a);
	a->began_clean = a->rec.clean || !a->rec.inc;
	a->before_fenced = true; /* or it does not begin */
	if (a->began_clean || a->rec.fenced == a->rec.inc) {
		a->fenced_inc = a->rec.inc;
		life_begin(a);
		return;
	}
	array_phase(a, ARRAY_PHASE_FENCE);
	array_waits(a, "a sign that this node's last incarnation in the array has ended");
	alive_watch(a);
}

void life_watched(struct array *a, const char *who)
{
	char why[ARRAY_WHY_BYTES];

	if (!who) {
		a->life_said[0] = '\0';
		array_waits(a, "the fence of this node's last incarnation in the array");
		fence_last(a);
		return;
	}
	snprintf(
	    why, sizeof(why),
	    "this node's last incarnation in the array has not ended: its members are in use by "
	    "it, "
	    "%s; this state directory is a copy of that one's, so stop ddraidd there, or give "
	    "it a state directory of its own here, without %s.array and %s.record",
	    who, a->live.name, a->live.name);
	array_waits(a, "%s", why);
	life_say_once(a, why);
	array_again(a, AGAIN_MS, alive_watch);
}

void life_load(struct array *a)
{
	struct life_task *t = task_new(a, loaded);

	array_phase(a, ARRAY_PHASE_RECORD);
	array_waits(a, "its record to be read");
	t->load = true;
	send_work(a, t);
}

/* ---- fences --------------------------------------------------------------------------------- */

struct life_fence {
	struct fence_ask ask;
	struct task task;
	struct array *a;         /* NULL: it has ended */
	struct life_fence *next; /* of a->fences */
	int err;
	char why[FENCE_WHY_BYTES];
};

static void own_fenced(struct array *a, int err, const char *why);

static void fence_answer(struct array *a, uint32_t node, uint64_t inc, int err, const char *why)
{
	struct event ev = {.type = EV_FENCE_DONE};

	if (a->own_fence && node == a->self.node && inc == a->inc) {
		own_fenced(a, err, why);
		return;
	}
	if (a->phase == ARRAY_PHASE_FENCE) {
		if (err) {
			array_waits(a, "the fence of this node's last incarnation in the array: %s",
				    why);
			array_again(a, AGAIN_MS, fence_last);
			return;
		}
		a->fenced_inc = inc;
		life_begin(a);
		return;
	}
	if (!a->e)
		return;
	if (err) {
		a->fence_node = node;
		snprintf(a->fence_why, sizeof(a->fence_why), "%s", why);
	} else if (a->fence_node == node) {
		a->fence_node = 0;
	}
	ev.fence.node = node;
	ev.fence.inc = inc;
	ev.fence.err = err;
	pump_push(a, &ev);
}

static void fence_back(struct task *task)
{
	struct life_fence *f =
	    (struct life_fence *)(void *)((char *)task - offsetof(struct life_fence, task));
	struct array *a = f->a;

	if (a->phase != ARRAY_PHASE_CLOSE)
		fence_answer(a, f->ask.node, f->ask.inc, f->err, f->why);
	free(f);
}

static void fence_done(struct fence_ask *ask, int err, const char *why)
{
	struct life_fence *f = (struct life_fence *)(void *)ask, **at;

	if (!f->a) {
		free(f);
		return;
	}
	for (at = &f->a->fences; *at != f;)
		at = &(*at)->next;
	*at = f->next;
	f->err = err;
	strncpy(f->why, why, sizeof(f->why) - 1);
	mailbox_post(&f->a->box, &f->task, fence_back);
}

static void fence_main(struct task *task)
{
	struct life_fence *f =
	    (struct life_fence *)(void *)((char *)task - offsetof(struct life_fence, task));

	f->next = f->a->fences;
	f->a->fences = f;
	fence_run(&f->ask);
}

void life_ended(struct array *a)
{
	for (struct life_fence *f = a->fences; f; f = f->next)
		f->a = NULL;
	a->fences = NULL;
}

/*
 * A life of this node whose fence was answered. Alone, a node is node 1 for itself only: what an
 * array that was a cluster's names so is another machine's, unless it is the very last incarnation.
 */
static bool own_is_fenced(const struct array *a, uint32_t node, uint64_t inc)
{
	return node == a->self.node && (a->alone ? inc == a->fenced_inc : inc <= a->fenced_inc);
}

void life_fence(struct array *a, uint32_t node, uint64_t inc)
{
	struct life_fence *f;

	if (own_is_fenced(a, node, inc)) {
		fence_answer(a, node, inc, 0, "");
		return;
	}
	f = calloc(1, sizeof(*f));
	assert(f);
	f->a = a;
	f->ask.node = node;
	f->ask.inc = inc;
	f->ask.done = fence_done;
	for (uint32_t i = 0; i < a->live.count; i++)
		fence_ask_uri(&f->ask, a->live.uri[i]);
	/* A member that was added a moment ago is not among these yet. */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (a->dev[i].used && a->e && engine_member_of_dev(a->e, i) != 0xff)
			fence_ask_uri(&f->ask, a->dev[i].uri);
	mailbox_post(a->env.main, &f->task, fence_main);
}

/* ---- while it runs -------------------------------------------------------------------------- */

static void record_put(struct array *a);

/* Whatever the engine waits for then, the status says this. */
static void record_fails(struct array *a, const char *why)
{
	life_say_once(a, why);
	if (!a->record_why[0])
		a->record_us = loop_now_us(a->loop);
	strcpy(a->record_why, why);
}

static void recorded(struct array *a, struct life_task *t)
{
	struct event ev = {.type = EV_RECORD_DONE};

	if (t->err) {
		record_fails(a, t->why);
		if (a->phase < ARRAY_PHASE_CLOSE)
			array_again(a, AGAIN_MS, record_put);
		return;
	}
	a->life_said[0] = a->record_why[0] = '\0';
	pump_push(a, &ev);
}

/* Never an old incarnation over a new one, nor when it is tried again. */
static void record_put(struct array *a)
{
	struct life_task *t;

	if (a->restarting) {
		a->record_waits = true;
		return;
	}
	t = task_new(a, recorded);
	t->put = true;
	send_work(a, t);
}

void life_probe(struct array *a, const struct out *o)
{
	struct event ev = {.type = EV_PROBED};

	ev.probed.claim = o->probe.claim;
	ev.probed.dead = process_ended(&o->probe.process);
	pump_push(a, &ev);
}

void life_record(struct array *a, const struct record *r)
{
	a->rec.record = *r;
	record_put(a);
}

static void renewed(struct array *a, struct life_task *t)
{
	a->restarting = false;
	if (!t->err) {
		a->rec.inc = a->inc = t->rec.inc;
		a->rec.node = t->rec.node;
	}
	if (a->record_waits)
		record_put(a);
	a->record_waits = false;
	if (t->err) {
		record_fails(a, t->why);
		return; /* pump_end asks again */
	}
	a->life_said[0] = a->record_why[0] = '\0';
	if (a->phase != ARRAY_PHASE_CLOSE)
		locks_open(a);
}

static void renew(struct array *a)
{
	struct life_task *t = task_new(a, renewed);

	t->new_inc = t->put = true;
	t->rec.node = known_as(a);
	send_work(a, t);
}

/* Others may have fenced this incarnation, or may do so yet: it was part of the array, or has
 * proposed a map. */
static bool life_was_in(const struct array *a)
{
	return a->had_slot || a->rec.record.acked.inc == a->inc;
}

static bool any_dev_up(const struct array *a)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (a->dev[i].used && a->dev[i].up)
			return true;
	return false;
}

/*
 * An incarnation that was removed has its own fence run before the next one joins, as a daemon that
 * starts does: exporters refuse this node for the incarnation that the others fenced, until the
 * node itself says there that it has ended. The command ends the connections of all arrays of this
 * node. So one that was never let in, which nobody fences, asks for that only if no exporter has it
 * connected: then they may refuse it. It does not depend on the answer.
 */
void life_renew(struct array *a)
{
	a->began_clean = a->before_fenced = false;
	if (a->env.conf->fence != FENCE_COMMAND || (!life_was_in(a) && any_dev_up(a))) {
		renew(a);
		return;
	}
	a->own_fence = true;
	if (!a->waits[0]) {
		a->waits_us = loop_now_us(a->loop);
		array_waits(a, "the fence of this node's last incarnation in the array");
	}
	life_fence(a, a->self.node, a->inc);
}

static void own_fenced(struct array *a, int err, const char *why)
{
	a->own_fence = false;
	if (!err) {
		a->fenced_inc = a->inc;
		a->before_fenced = true;
	}
	if (!err || !life_was_in(a)) {
		renew(a);
		return;
	}
	array_waits(a, "the fence of this node's last incarnation in the array: %s", why);
	a->restarting = false; /* pump_end asks again */
	a->renew_us = loop_now_us(a->loop) + AGAIN_MS * 1000ull;
	if (a->record_waits)
		record_put(a);
	a->record_waits = false;
}

static void ended(struct array *a, struct life_task *t)
{
	if (t->err)
		array_say(a, LOG_WARNING, "%s", t->why);
}

/*
 * A clean record vouches for all earlier incarnations: they are fenced, and nobody has gone on
 * without them. A life that served knows that (R4); one that never had a slot knows no more than
 * the record that it began with, and what it has fenced itself.
 */
void life_end(struct array *a)
{
	struct life_task *t = task_new(a, ended);

	t->rec.clean = a->had_slot || a->began_clean;
	if (t->rec.clean || a->before_fenced)
		t->rec.fenced = t->rec.inc;
	t->put = true;
	send_work(a, t);
}
