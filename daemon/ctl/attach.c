// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * attach and detach. An attach is kept over restarts of the node, before it is done: who is asked
 * for a device and dies has it after its restart. If it can't be done, it is given up again. A
 * detach is given up when the device is gone, for the same reason.
 */
#include <assert.h>
#include <errno.h>
#include <qb/qbloop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/units.h"
#include "daemon/ctl/ctl.h"

struct attach_job {
	struct task task;
	struct ipc_req *r;
	struct array_entry *k; /* held */
	bool given;            /* --via */
	enum attach_via via, was;
	uint32_t was_away_ms;
	int err;
	char why[FRONT_WHY_BYTES];
	struct manager_change change;
	struct array_query look;
	struct array_attach q;
	unsigned tries;
};

#define BUSY_TRIES 10u /* of a detach: udev may be looking at the device */
#define BUSY_MS 200u

static void job_end(struct attach_job *j, int err, const char *why)
{
	if (err)
		ipc_fail(j->r, err, "%s", why);
	else
		ipc_final(j->r, NULL);
	manager_let_go(j->k);
	free(j);
}

static struct attach_job *job_new(struct ipc_req *r, struct array_entry *k)
{
	struct attach_job *j = calloc(1, sizeof(*j));

	assert(j);
	j->r = r;
	j->k = manager_hold(k);
	j->look.arg = j->q.arg = j;
	return j;
}

/* ---- attach --------------------------------------------------------------------------------- */

static void attached(struct array_query *q, int err)
{
	struct attach_job *j = q->arg;
	Ddraid__Ctl__Attached at = DDRAID__CTL__ATTACHED__INIT;
	char link[DDR_NAME_BYTES + 32], away[UNITS_TEXT_BYTES];
	Reply reply = REPLY_INIT;

	if (err || !q->status.device[0]) {
		job_end(j, -EAGAIN, "the device was there and is gone again; see the status");
		return;
	}
	snprintf(link, sizeof(link), "/dev/ddraid/%s", j->k->desc.name);
	at.via = (char *)attach_via_name(j->via);
	at.device = q->status.device;
	at.link = link;
	at.away = away_format(away, q->status.away_ms);
	reply.body_case = DDRAID__CTL__REPLY__BODY_ATTACHED;
	reply.attached = &at;
	ipc_final(j->r, &reply);
	manager_let_go(j->k);
	free(j);
}

static void attach_done(struct array_attach *q, int err, const char *why)
{
	struct attach_job *j = q->arg;
	char text[FRONT_WHY_BYTES + DDR_NAME_BYTES + 64];

	if (!err) {
		manager_attach(j->k, j->via, q->away_ms); /* a detach before it may end just now */
		j->look.done = attached;
		array_query(j->k->array, &j->look);
		return;
	}
	/* A daemon that ends has it again. */
	if (err != -ESHUTDOWN)
		manager_attach(j->k, j->was, j->was_away_ms);
	snprintf(text, sizeof(text), "%s %s: %s", j->k->desc.name,
		 q->there ? "waits for ddraidd as long as before" : "is not attached", why);
	job_end(j, err == -ESHUTDOWN ? -EAGAIN : err, text);
}

static void change(struct attach_job *j, enum attach_via via, uint32_t away_ms,
		   void (*done)(struct manager_change *c, int err, const char *why))
{
	j->change.what = CHANGE_ATTACH;
	j->change.via = via;
	j->change.away_ms = away_ms;
	j->change.done = done;
	j->change.arg = j;
	manager_change(j->k, &j->change);
}

/* It is durable: now it is done. */
static void attach_put(struct manager_change *c, int err, const char *why)
{
	struct attach_job *j = c->arg;
	char text[STORE_WHY_BYTES + DDR_NAME_BYTES + 64];

	if (err) {
		snprintf(text, sizeof(text), "%s is not attached: %s", j->k->desc.name, why);
		job_end(j, err, text);
		return;
	}
	j->q.done = attach_done;
	j->q.via = j->via;
	array_attach(j->k->array, &j->q);
}

static void attach_begin(struct task *t)
{
	struct attach_job *j = (struct attach_job *)(void *)t;
	char text[FRONT_WHY_BYTES + DDR_NAME_BYTES + 64];

	_Static_assert(offsetof(struct attach_job, task) == 0, "found by its task");
	if (j->err) {
		snprintf(text, sizeof(text), "%s is not attached: %s", j->k->desc.name, j->why);
		job_end(j, j->err, text);
		return;
	}
	if (j->k->gone || j->k->desc.forgotten) {
		job_end(j, -ENODEV, "the array was forgotten meanwhile");
		return;
	}
	if (j->k->desc.attach && j->k->desc.attach != j->via) { /* while drivers were looked for */
		snprintf(text, sizeof(text), "%s was attached by %s meanwhile", j->k->desc.name,
			 attach_via_name(j->k->desc.attach));
		job_end(j, -EEXIST, text);
		return;
	}
	j->was = j->k->desc.attach;
	j->was_away_ms = j->k->desc.away_ms;
	if (!j->q.patience)
		j->q.away_ms = j->was ? j->was_away_ms : AWAY_HOLD;
	else if (j->via == ATTACH_NBD) /* whose kernel counts in seconds */
		j->q.away_ms = (j->q.away_ms + 999) / 1000 * 1000;
	change(j, j->via, j->q.away_ms, attach_put);
}

/* On the worker. */
static void attach_choose(struct task *t)
{
	struct attach_job *j = (struct attach_job *)(void *)t;

	j->err = attach_driver(j->via, j->why);
	if (j->err && !j->given) {
		j->via = ATTACH_NBD;
		j->err = attach_driver(j->via, j->why);
		if (j->err)
			snprintf(
			    j->why, sizeof(j->why),
			    "the kernel has neither of the drivers ddraid and nbd, and modprobe "
			    "loads none; install one, or use the NBD server that 'ddraidctl "
			    "status' names");
	}
	mailbox_post(ctl_env.main, &j->task, attach_begin);
}

void request_attach(struct ipc_req *r)
{
	const Ddraid__Ctl__Attach *a = ipc_request(r)->attach;
	struct array_entry *k = ctl_array(r, a->array);
	enum attach_via via = ATTACH_SHIM;
	uint32_t away_ms = AWAY_HOLD;
	struct attach_job *j;
	const char *why;

	if (!k)
		return;
	if (a->via[0] && attach_via_parse(a->via, &via)) {
		ipc_fail(r, -EINVAL, "%.40s is no way to attach an array: shim and nbd are",
			 a->via);
		return;
	}
	if (a->away[0] && away_parse(a->away, &away_ms, &why)) {
		ipc_fail(r, -EINVAL, "%s can't wait for ddraidd for \"%.40s\": %s", k->desc.name,
			 a->away, why);
		return;
	}
	if (k->desc.attach && a->via[0] && k->desc.attach != via) {
		ipc_fail(r, -EEXIST, "%s is attached by %s; 'ddraidctl detach' it first",
			 k->desc.name, attach_via_name(k->desc.attach));
		return;
	}
	if (!array_running(k->array)) {
		ipc_fail(r, -EAGAIN, "%s does not run here; start it first", k->desc.name);
		return;
	}
	j = job_new(r, k);
	j->given = a->via[0] || k->desc.attach;
	j->via = k->desc.attach ? k->desc.attach : via;
	j->q.patience = a->away[0] != '\0';
	j->q.away_ms = away_ms;
	mailbox_post(&ctl_env.worker->box, &j->task, attach_choose);
}

/* ---- detach --------------------------------------------------------------------------------- */

static void detach_again(void *data)
{
	struct attach_job *j = data;

	array_attach(j->k->array, &j->q);
}

/* The device is gone. */
static void detach_put(struct manager_change *c, int err, const char *why)
{
	struct attach_job *j = c->arg;
	char text[STORE_WHY_BYTES + DDR_NAME_BYTES + 128];

	if (!err) {
		job_end(j, 0, "");
		return;
	}
	if (err == -ENODEV) { /* j->k may be another array's by now */
		job_end(j, 0, "");
		return;
	}
	manager_attach(j->k, ATTACH_NONE, AWAY_HOLD);
	snprintf(text, sizeof(text),
		 "the device of %s is gone, but a restart of ddraidd may bring it back until this "
		 "is put right: %s",
		 j->k->desc.name, why);
	job_end(j, err, text);
}

static void detach_done(struct array_attach *q, int err, const char *why)
{
	struct attach_job *j = q->arg;
	qb_loop_timer_handle timer;

	/* What its engine has under way still goes to the members: nobody is told EIO before. */
	if (err == -ESHUTDOWN && array_running(j->k->array))
		err = -EAGAIN;
	if ((err == -EBUSY || err == -EAGAIN) && ++j->tries < BUSY_TRIES) {
		qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, BUSY_MS * 1000000ull, j, detach_again,
				  &timer);
		return;
	}
	/* Of an array that does not run there may still be one that waits for it. */
	if (err == -ESHUTDOWN)
		err = attach_discard(&j->k->desc, q->force, ATTACH_LOOK_MS, q->why);
	if (err)
		job_end(j, err, why);
	else
		change(j, ATTACH_NONE, AWAY_HOLD, detach_put);
}

static void detach_probed(void *arg, int err, const char *why)
{
	struct attach_job *j = arg;
	char text[STORE_WHY_BYTES + DDR_NAME_BYTES + 64];

	if (!err) {
		array_attach(j->k->array, &j->q);
		return;
	}
	snprintf(text, sizeof(text), "%s is not detached: %s", j->k->desc.name, why);
	job_end(j, err, text);
}

void request_detach(struct ipc_req *r)
{
	const Ddraid__Ctl__Detach *d = ipc_request(r)->detach;
	struct array_entry *k = ctl_array(r, d->array);
	struct attach_job *j;

	if (!k)
		return;
	if (!k->desc.attach) {
		ipc_fail(r, -ENOENT, "%s is not attached on this node", k->desc.name);
		return;
	}
	j = job_new(r, k);
	j->q.done = detach_done;
	j->q.via = ATTACH_NONE;
	j->q.force = d->disconnect;
	manager_probe(detach_probed, j);
}
