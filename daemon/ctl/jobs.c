// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests that take their time. A job that waits for an array looks at it every LOOK_MS:
 *
 *	look   a query is on its way to the engine thread    -> rest, or the end
 *	rest   a timer runs                                   -> look
 *
 * and the end is the final reply. If the client goes away, what was asked for goes on, but nobody
 * waits for it any more.
 */
#include <assert.h>
#include <errno.h>
#include <qb/qbloop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/ctl/ctl_int.h"

#define PROGRESS_MS 1000u
#define TAKE_PART_MS 60000u /* `start`, `create`: until the array is active here */
#define OTHERS_MS 20000u    /* and on the others, beyond that */
#define IN_USE_MS 2000u     /* `stop --all-nodes`: what others tell of their clients is that old */
#define ADMIN_REFUSED_MS 2000u   /* a refusal that is older is told */
#define ADMIN_PATIENCE_MS 15000u /* how long "ask again" is asked again */

void ctl_after(uint32_t ms, void (*fn)(void *data), void *data)
{
	qb_loop_timer_handle timer;

	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, ms * 1000000ull, data, fn, &timer);
}

/* ---- status --------------------------------------------------------------------------------- */

struct status_job {
	struct ipc_req *r;
	uint32_t at, count;
	struct array_entry *k[STORE_MAX_ARRAYS]; /* held */
	struct array_query q;
};

static void status_next(struct status_job *j);

static void status_got(struct array_query *q, int err)
{
	struct status_job *j = q->arg;
	Reply reply = REPLY_INIT;
	struct array_entry *k = j->k[j->at];
	bool last = ++j->at == j->count;
	struct status_msg m;

	status_make(&m, k, err ? NULL : &q->status);
	reply.body_case = DDRAID__CTL__REPLY__BODY_STATUS;
	reply.status = &m.msg;
	if (last)
		ipc_final(j->r, &reply);
	else
		ipc_send(j->r, &reply);
	status_release(&m);
	manager_let_go(k);
	if (last)
		free(j);
	else
		status_next(j);
}

static void status_next(struct status_job *j)
{
	j->q.done = status_got;
	j->q.arg = j;
	array_query(j->k[j->at]->array, &j->q);
}

void request_status(struct ipc_req *r)
{
	const char *name = ipc_request(r)->status->array;
	bool all = !name[0];
	struct array_entry *one = all ? NULL : ctl_array_known(r, name);
	char why[STORE_WHY_BYTES];
	struct status_job *j;

	if (!all && !one)
		return;
	j = calloc(1, sizeof(*j));
	assert(j);
	j->r = r;
	if (one)
		j->k[j->count++] = manager_hold(one);
	for (uint32_t i = 0; all && i < manager_count(); i++) {
		if (!manager_at(i)->desc.forgotten)
			j->k[j->count++] = manager_hold(manager_at(i));
	}
	if (j->count) {
		status_next(j);
		return;
	}
	free(j);
	for (uint32_t i = 0; status_warning(i, why); i++)
		ipc_warn(r, why);
	ipc_final(r, NULL);
}

/* ---- waiting for an array ------------------------------------------------------------------- */

static void job_free(struct job *j)
{
	manager_let_go(j->k);
	free(j);
}

static void job_end(struct job *j, int err, const char *why)
{
	asked_end(j);
	if (err)
		ipc_fail(j->r, err, "%s", why);
	else
		ipc_final(j->r, NULL);
	job_free(j);
}

static void created(struct job *j)
{
	Ddraid__Ctl__Created c = DDRAID__CTL__CREATED__INIT;
	const struct announce_state *s = announce_state();
	uint32_t node[DDR_MAX_NODES];
	Reply reply = REPLY_INIT;

	c.name = j->k->desc.name;
	c.uuid.data = j->k->desc.uuid;
	c.uuid.len = DDR_UUID_BYTES;
	c.size_bytes = j->size_bytes;
	c.stripe_bytes = j->stripe_bytes;
	c.stripe_why = j->stripe_why;
	c.lock_backend = (char *)(uintptr_t)locks_of(j->k, NULL);
	c.node = node;
	/* Once for each node, however often that names the array in what it tells. */
	for (uint32_t i = 0; i < s->count; i++) {
		if (announce_runs(&s->node[i], j->k->desc.uuid))
			node[c.n_node++] = s->node[i].node;
	}
	reply.body_case = DDRAID__CTL__REPLY__BODY_CREATED;
	reply.created = &c;
	asked_end(j);
	ipc_final(j->r, &reply);
	job_free(j);
}

#define MEMBERS_MS 2000u /* until then they may just be connecting */

/* Is it, maybe, because of a member that this does not serve? */
static bool lacks_members(const struct array_entry *k, const struct array_status *st,
			  const Ddraid__Ctl__Progress *p)
{
	return st->phase == ARRAY_PHASE_RUN && st->engine.state != ENGINE_ACTIVE && p->waits[0] &&
	       (status_refused(k, st) || p->waits_ms >= MEMBERS_MS);
}

static void rest(struct job *j, const struct array_status *st, const char *what)
{
	Ddraid__Ctl__Progress p;
	uint64_t now = now_ms();
	char text[WHY_NOT_BYTES];

	if (j->kind == JOB_WATCH && ipc_gone(j->r)) {
		job_end(j, 0, "");
		return;
	}
	if (now - j->told_ms >= PROGRESS_MS) {
		j->told_ms = now;
		if (st)
			status_progress(&p, j->k, st);
		else
			p = (Ddraid__Ctl__Progress)DDRAID__CTL__PROGRESS__INIT;
		if (what)
			p.text = (char *)what;
		else if (!st)
			p.text = "starting";
		if (st && lacks_members(j->k, st, &p)) {
			snprintf(text, sizeof(text), "%s", p.waits);
			why_members(j->k, st, text);
			p.waits = text;
		}
		ipc_progress(j->r, &p);
	}
	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, LOOK_MS * 1000000ull, j, job_look, &j->timer);
}

static void watch_look(struct job *j, const struct array_status *st)
{
	bool yes;

	if (j->until == DDRAID__CTL__UNTIL__UNTIL_STOPPED) {
		yes = !st;
	} else if (!st) {
		job_end(j, -ECANCELED,
			j->k->error[0] ? j->k->error : "the array does not run here; start it");
		return;
	} else if (j->until == DDRAID__CTL__UNTIL__UNTIL_SYNCED) {
		yes = status_synced(st);
	} else {
		yes = st->engine.io_allowed && st->engine.state == ENGINE_ACTIVE;
	}
	if (yes)
		job_end(j, 0, "");
	else
		rest(j, st, NULL);
}

/* Nodes whose daemon is in the group and does (not) run the array as wanted. */
static uint32_t others_not(const struct job *j, bool serving)
{
	const struct announce_state *s = announce_state();
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		const struct announce_running *r = announce_runs(&s->node[i], j->k->desc.uuid);

		if (s->node[i].here && (serving ? !r || !r->serving : r != NULL))
			n++;
	}
	return n;
}

/* The one with the next greater id; NULL: there is none. */
static const struct announce_node *node_after(uint32_t node)
{
	const struct announce_state *s = announce_state();
	const struct announce_node *next = NULL;

	for (uint32_t i = 0; i < s->count; i++) {
		if (s->node[i].node > node && (!next || s->node[i].node < next->node))
			next = &s->node[i];
	}
	return next;
}

#define NODES_BYTES 512

/* Appends "node 2 (n2)" and what more there is to say of it. */
static void nodes_add(char text[NODES_BYTES], const struct announce_node *n, uint32_t clients)
{
	size_t at = strlen(text);

	at += (size_t)snprintf(text + at, NODES_BYTES - at, "%snode %u", at ? ", " : "", n->node);
	if (n->name[0] && at < NODES_BYTES)
		at += (size_t)snprintf(text + at, NODES_BYTES - at, " (%s)", n->name);
	if (clients && at < NODES_BYTES)
		snprintf(text + at, NODES_BYTES - at, ": %u client%s", clients,
			 clients == 1 ? "" : "s");
}

/*
 * Names the other nodes that consumers use it on, or, once its stop was said, those that go on
 * because of them. *silent: one has not said yet what it runs.
 */
static void others_use(const struct job *j, char text[NODES_BYTES], bool *silent)
{
	text[0] = '\0';
	*silent = false;
	for (const struct announce_node *n = node_after(0); n; n = node_after(n->node)) {
		const struct announce_running *r = announce_runs(n, j->k->desc.uuid);

		if (n->node == announce_state()->self.node)
			continue;
		*silent |= n->here && !n->told;
		if (r && (j->said ? r->kept == j->said : r->clients > 0))
			nodes_add(text, n, r->clients);
	}
}

static void others_run(const struct job *j, char text[NODES_BYTES])
{
	text[0] = '\0';
	for (const struct announce_node *n = node_after(0); n; n = node_after(n->node)) {
		if (n->node != announce_state()->self.node && announce_runs(n, j->k->desc.uuid))
			nodes_add(text, n, 0);
	}
}

/*
 * --stale, --alone and --take-over are for one that runs and is not active, as after a boot at
 * which it was refused: the engine of whoever leads is told, again and again, since a round may
 * swallow it.
 */
struct force {
	struct array_entry *k; /* held */
	struct array_admin q;
};

#define FORCE_AGAIN_MS 1000u

static void force_done(struct array_admin *q, int err, const char *why)
{
	struct force *f = q->arg;

	if (err && err != -EALREADY && err != -ESHUTDOWN)
		say(LOG_WARNING, "%s: it can't be forced: %s", f->k->desc.name, why);
	manager_let_go(f->k);
	free(f);
}

static void force_send(struct job *j, enum admin_cmd cmd)
{
	struct force *f = calloc(1, sizeof(*f));

	assert(f);
	f->k = manager_hold(j->k);
	f->q.cmd = cmd;
	f->q.done = force_done;
	f->q.arg = f;
	array_admin(j->k->array, &f->q);
}

/* What was said beyond a plain start. */
static bool told_more(const struct job *j)
{
	return j->stale || j->alone || j->take;
}

static void start_force(struct job *j, const struct array_status *st)
{
	if (!told_more(j) || !st || st->phase != ARRAY_PHASE_RUN ||
	    st->engine.state == ENGINE_ACTIVE || now_ms() - j->forced_ms < FORCE_AGAIN_MS)
		return;
	if (!j->forced)
		say(LOG_WARNING, "%s: is assembled%s%s%s, as an operator says", j->k->desc.name,
		    j->stale ? " also in an older state" : "",
		    j->alone ? " although the other node is not there" : "",
		    j->take ? " although it is another cluster's" : "");
	j->forced = true;
	j->forced_ms = now_ms();
	if (j->stale)
		force_send(j, ADMIN_FORCE);
	if (j->alone)
		force_send(j, ADMIN_ALONE);
	if (j->take)
		force_send(j, ADMIN_TAKE);
}

static void start_look(struct job *j, const struct array_status *st)
{
	uint64_t now = now_ms();
	bool here = st && st->phase == ARRAY_PHASE_RUN && st->engine.state == ENGINE_ACTIVE;
	uint32_t missing = j->all_nodes ? others_not(j, true) : 0;
	const char *made = j->kind == JOB_CREATE   ? "made, on all its members"
			   : j->kind == JOB_IMPORT ? "imported"
						   : NULL;
	char text[WHY_NOT_BYTES + 512], why[WHY_NOT_BYTES];

	/* Also one whose client is gone: it must not force what is started next. */
	if (j->kind == JOB_START && j->put && !manager_to_run(j->k)) {
		snprintf(text, sizeof(text), "somebody has stopped %s meanwhile", j->k->desc.name);
		job_end(j, -ECANCELED, text);
		return;
	}
	if (!here && j->k->error[0]) {
		if (made)
			snprintf(
			    text, sizeof(text),
			    "array %s is %s, but does not run on this node: %s; mend that, then "
			    "'ddraidctl start %s', or give it up with 'ddraidctl forget %s'",
			    j->k->desc.name, made, j->k->error, j->k->desc.name, j->k->desc.name);
		job_end(j, -EIO, made ? text : j->k->error);
		return;
	}
	if (!here && now - j->began_ms > TAKE_PART_MS) {
		why_not(j->k, st, why);
		snprintf(
		    text, sizeof(text),
		    "%s is%s%s%s not active after %u s, and goes on trying: 'ddraidctl status' "
		    "tells how far it is; it %s",
		    j->k->desc.name, made ? " " : "", made ? made : "", made ? ", but is" : "",
		    TAKE_PART_MS / 1000, why);
		job_end(j, -ETIMEDOUT, text);
		return;
	}
	if (!here) {
		start_force(j, st);
		rest(j, st, NULL);
		return;
	}
	j->here_ms = j->here_ms ? j->here_ms : now;
	if (missing && now - j->here_ms < OTHERS_MS) {
		rest(j, st, "starting on the other nodes");
		return;
	}
	if (missing) {
		snprintf(text, sizeof(text),
			 "%u other node%s not serve it yet; see 'ddraidctl "
			 "status' there",
			 missing, missing == 1 ? " does" : "s do");
		ipc_warn(j->r, text);
	}
	if (st->have_geo)
		j->size_bytes = st->geo.size_bytes;
	if (told_more(j) && j->was_running && !j->forced)
		ipc_warn(j->r, !j->take
				   ? "it was active, or became so by itself: that was not needed"
				   : "it was active, or became so by itself: nothing of whose it "
				     "is was changed");
	if (made)
		created(j);
	else
		job_end(j, 0, "");
}

/* Someone opened it after it was asked about. */
static bool stop_kept(struct job *j, const struct array_status *st)
{
	char text[256 + NODES_BYTES], nodes[NODES_BYTES] = "";
	bool silent;

	if (j->kind != JOB_STOP)
		return false;
	if (st && j->k->kept_clients) {
		snprintf(text, sizeof(text),
			 "%s goes on here: %u client%s it meanwhile%s; close what uses it and try "
			 "again, or --disconnect to end that",
			 j->k->desc.name, j->k->kept_clients,
			 j->k->kept_clients == 1 ? " opened" : "s opened",
			 j->all_nodes ? ". Nodes without clients stop it" : "");
		job_end(j, -EBUSY, text);
		return true;
	}
	if (j->said)
		others_use(j, nodes, &silent);
	if (!nodes[0])
		return false;
	snprintf(text, sizeof(text),
		 "%s goes on where it was opened meanwhile, on %s; the other nodes stop it. Close "
		 "what uses it and try again, or --disconnect to end that",
		 j->k->desc.name, nodes);
	job_end(j, -EBUSY, text);
	return true;
}

static void stop_look(struct job *j, const struct array_status *st)
{
	uint64_t limit =
	    ctl_env.conf->stop_ms + OTHERS_MS + (j->disconnect ? config_heard_ms(ctl_env.conf) : 0);
	char text[256 + NODES_BYTES], nodes[NODES_BYTES];
	bool forgetting = j->kind == JOB_FORGET && j->k->desc.forgotten && !j->k->gone;

	if (!st && forgetting && j->k->error[0]) {
		job_end(j, -EIO, j->k->error);
		return;
	}
	if (stop_kept(j, st))
		return;
	if (j->put && manager_to_run(j->k)) {
		snprintf(
		    text, sizeof(text),
		    "somebody has started %s again meanwhile, so it goes on; stop it once more "
		    "if it is not to",
		    j->k->desc.name);
		job_end(j, -EAGAIN, text);
		return;
	}
	if (!st && !forgetting && (!j->all_nodes || !others_not(j, false))) {
		job_end(j, 0, "");
		return;
	}
	if (now_ms() - j->began_ms > limit) {
		others_run(j, nodes);
		snprintf(text, sizeof(text),
			 "it is still stopping%s%s; 'ddraidctl status' %s says what it waits for",
			 !st ? " on " : "", !st ? nodes : "", !st ? "there" : "here");
		job_end(j, -ETIMEDOUT, text);
		return;
	}
	rest(j, st, "stopping");
}

static void look_got(struct array_query *q, int err)
{
	struct job *j = q->arg;
	const struct array_status *st = err ? NULL : &q->status;

	switch (j->kind) {
	case JOB_WATCH:
		watch_look(j, st);
		break;
	case JOB_CREATE:
	case JOB_IMPORT:
	case JOB_START:
		start_look(j, st);
		break;
	case JOB_STOP:
	case JOB_FORGET:
		stop_look(j, st);
		break;
	}
}

void job_look(void *data)
{
	struct job *j = data;

	j->q.done = look_got;
	j->q.arg = j;
	array_query(j->k->array, &j->q);
}

struct job *job_new(struct ipc_req *r, struct array_entry *k, enum job_kind kind)
{
	struct job *j = calloc(1, sizeof(*j));

	assert(j);
	j->r = r;
	j->k = manager_hold(k);
	j->kind = kind;
	j->began_ms = now_ms();
	return j;
}

void request_watch(struct ipc_req *r)
{
	const Ddraid__Ctl__Watch *w = ipc_request(r)->watch;
	struct array_entry *k = ctl_array(r, w->array);
	struct job *j;

	if (!k)
		return;
	j = job_new(r, k, JOB_WATCH);
	j->until = w->until;
	job_look(j);
}

/* ---- start, stop, forget -------------------------------------------------------------------- */

static void start_put(struct manager_change *c, int err, const char *why)
{
	struct job *j = c->arg;
	char text[STORE_WHY_BYTES + 128];

	if (!err) {
		j->put = true;
		job_look(j);
		return;
	}
	snprintf(text, sizeof(text), "%s is not started: %s", j->k->desc.name, why);
	job_end(j, err, text);
}

void request_start(struct ipc_req *r)
{
	const Ddraid__Ctl__Start *s = ipc_request(r)->start;
	struct array_entry *k = ctl_array(r, s->array);
	struct job *j;
	bool lone;

	if (!k)
		return;
	lone = !strcmp(ctl_env.conf->cluster, "alone");
	if (s->alone && !lone && !announce_state()->self.two_node) {
		ipc_fail(
		    r, -EINVAL,
		    "this daemon takes part in a cluster of more than two nodes: --alone is for "
		    "one with cluster = alone in ddraid.conf, and for corosync's two_node; for "
		    "an array of another cluster say --take-over");
		return;
	}
	if (s->take_over && lone) {
		ipc_fail(
		    r, -EINVAL,
		    "this daemon is in no cluster (cluster = alone in ddraid.conf), so an array "
		    "can't be this cluster's from now on; to use it here say --alone");
		return;
	}
	j = job_new(r, k, JOB_START);
	j->all_nodes = s->all_nodes;
	j->stale = s->stale;
	j->alone = s->alone && !lone;
	j->take = s->take_over || (s->alone && lone);
	j->forced_ms = j->began_ms; /* one that starts by itself need not be told */
	j->was_running = array_running(k->array);
	j->change.what = CHANGE_START;
	j->change.all = s->all_nodes;
	j->change.force = s->stale;
	j->change.done = start_put;
	j->change.arg = j;
	manager_change(k, &j->change);
}

static void stop_put(struct manager_change *c, int err, const char *why)
{
	struct job *j = c->arg;
	char text[STORE_WHY_BYTES + 128];

	if (!err) {
		j->put = c->what == CHANGE_STOP;
		if (j->put && c->all)
			j->said = j->k->desc.said;
		job_look(j);
		return;
	}
	snprintf(text, sizeof(text), "%s is not %s: %s", j->k->desc.name,
		 c->what == CHANGE_STOP ? "stopped" : "forgotten", why);
	job_end(j, err, text);
}

static void stop_now(struct job *j)
{
	char why[STORE_WHY_BYTES];
	int err = 0;

	j->change.all = j->all_nodes;
	j->change.force = j->disconnect;
	j->change.done = stop_put;
	j->change.arg = j;
	if (j->kind == JOB_STOP) {
		j->change.what = CHANGE_STOP;
		manager_change(j->k, &j->change);
		return;
	}
	if (!array_running(j->k->array))
		err = attach_discard(&j->k->desc, j->disconnect, ATTACH_LOOK_MS, why);
	if (err) {
		job_end(j, err, why);
		return;
	}
	j->change.what = CHANGE_FORGET;
	manager_forget(j->k, &j->change);
}

static void stop_begin(void *data);

/* Is it in use elsewhere? What is told of that comes late; so it is believed only when it lasts. */
static bool stop_may_not(struct job *j)
{
	char text[256 + NODES_BYTES], nodes[NODES_BYTES];
	bool silent;

	if (j->kind != JOB_STOP || !j->all_nodes || j->disconnect)
		return false;
	others_use(j, nodes, &silent);
	if (!nodes[0] && !silent)
		return false;
	if (now_ms() - j->began_ms < IN_USE_MS) {
		ctl_after(LOOK_MS, stop_begin, j);
		return true;
	}
	if (nodes[0]) {
		snprintf(text, sizeof(text),
			 "%s is in use on %s; close what uses it, or --disconnect to end that",
			 j->k->desc.name, nodes);
		job_end(j, -EBUSY, text);
	} else {
		job_end(
		    j, -EAGAIN,
		    "a node has only just joined and has not said yet who uses the array there; "
		    "try again");
	}
	return true;
}

/* Is it in use here? */
static void stop_asked(struct array_query *q, int err)
{
	struct job *j = q->arg;
	uint32_t clients = err ? 0 : q->status.front.clients + q->status.disk.clients;
	char text[256], device[96] = "";

	/* Who has a device of the kernel's NBD client open is known a little later (dev_open.h). */
	if (clients && !j->disconnect && q->status.attach == ATTACH_NBD &&
	    !q->status.front.clients && now_ms() - j->began_ms < IN_USE_MS) {
		ctl_after(LOOK_MS, stop_begin, j);
		return;
	}
	if (clients && !j->disconnect) {
		if (q->status.disk.clients)
			snprintf(device, sizeof(device), ", %u of them as %s",
				 q->status.disk.clients, q->status.device);
		snprintf(text, sizeof(text),
			 "%s is in use: %u client%s open%s; close what uses it, or --disconnect to "
			 "end that",
			 j->k->desc.name, clients, clients == 1 ? " has it" : "s have it", device);
		job_end(j, -EBUSY, text);
		return;
	}
	if (!stop_may_not(j))
		stop_now(j);
}

static void stop_begin(void *data)
{
	struct job *j = data;

	j->q.done = stop_asked;
	j->q.arg = j;
	array_query(j->k->array, &j->q);
}

void request_stop(struct ipc_req *r)
{
	const Ddraid__Ctl__Stop *s = ipc_request(r)->stop;
	struct array_entry *k = ctl_array(r, s->array);
	struct job *j;

	if (!k)
		return;
	j = job_new(r, k, JOB_STOP);
	j->all_nodes = s->all_nodes;
	j->disconnect = s->disconnect;
	stop_begin(j);
}

void request_forget(struct ipc_req *r)
{
	const Ddraid__Ctl__Forget *f = ipc_request(r)->forget;
	/* One that is being forgotten as well: it may not get on. */
	struct array_entry *k = manager_find(f->array, true);
	struct job *j;

	if (!k || k->damaged)
		k = ctl_array(r, f->array);
	if (!k)
		return;
	j = job_new(r, k, JOB_FORGET);
	j->all_nodes = true;
	j->disconnect = f->disconnect;
	if (!f->disconnect && (array_running(k->array) || others_not(j, false))) {
		job_end(j, -EBUSY,
			"the array runs; stop it on all nodes first, or --disconnect to end "
			"what uses it");
		return;
	}
	stop_begin(j);
}

/* ---- fail, add, re-add ---------------------------------------------------------------------- */

struct admin_job {
	struct ipc_req *r;
	struct array_entry *k; /* held */
	uint64_t began_ms;
	qb_loop_timer_handle tell;
	struct make_job *make; /* add: it has the device reserved; or NULL */
	struct manager_change change;
	struct array_admin q;
	int err; /* the answer, while `look` asks why */
	struct array_query look;
	struct array_query wait; /* why it takes so long */
	bool asks, over;         /* that is asked; the answer is for nobody any more */
};

static void admin_free(struct admin_job *j)
{
	if (j->asks) {
		j->over = true;
		return;
	}
	manager_let_go(j->k);
	if (j->make)
		make_free(j->make);
	free(j);
}

static void admin_progress(struct admin_job *j, const char *why, const struct array_status *st)
{
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;

	if (st)
		status_progress(&p, j->k, st);
	else
		p.waits = (char *)(uintptr_t)why;
	p.text = "waiting for the change of the map";
	p.done = p.total = 0;
	ipc_progress(j->r, &p);
}

static void admin_waits(struct array_query *q, int err)
{
	struct admin_job *j = q->arg;

	j->asks = false;
	if (j->over)
		admin_free(j);
	else
		admin_progress(j, "", err ? NULL : &q->status);
}

/* Why it takes so long: the state directory of this node, or what the array waits for. */
static void admin_tell(void *data)
{
	struct admin_job *j = data;
	char why[STORE_WHY_BYTES];

	store_trouble(why);
	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, PROGRESS_MS * 1000000ull, j, admin_tell,
			  &j->tell);
	if (why[0] || j->asks) {
		admin_progress(j, why, NULL);
		return;
	}
	j->asks = true;
	j->wait.done = admin_waits;
	j->wait.arg = j;
	array_query(j->k->array, &j->wait);
}

static void admin_again(void *data)
{
	struct admin_job *j = data;

	array_admin(j->k->array, &j->q);
}

static void admin_synced(struct manager_change *c, int err, const char *why)
{
	struct admin_job *j = c->arg;

	if (err)
		ipc_fail(j->r, err,
			 "member %u of %s is replaced, but a restart of this node may not know yet "
			 "where it is: %s",
			 j->q.member, j->k->desc.name, why);
	else
		ipc_final(j->r, NULL);
	admin_free(j);
}

/* The new member's URI has come from the array's thread, and is to be on disk. */
static void admin_sync(struct admin_job *j)
{
	j->change.what = CHANGE_SYNC;
	j->change.done = admin_synced;
	j->change.arg = j;
	manager_change(j->k, &j->change);
}

static void admin_end(struct admin_job *j, int err, const char *why)
{
	char trouble[STORE_WHY_BYTES];

	qb_loop_timer_del(ctl_env.loop, j->tell);
	store_trouble(trouble);
	if (err)
		ipc_fail(j->r, err, "member %u of %s: %s%s%s", j->q.member, j->k->desc.name, why,
			 trouble[0] ? "; " : "", trouble);
	else
		ipc_final(j->r, NULL);
	admin_free(j);
}

/*
 * An array that is not active takes no such request, and its engine only knows that it can't now.
 * The array knows why: it is told at once, but what settles within ADMIN_PATIENCE_MS is waited for.
 */
static void admin_looked(struct array_query *q, int err)
{
	struct admin_job *j = q->arg;
	const struct array_status *st = err ? NULL : &q->status;
	uint64_t waited_ms = now_ms() - j->began_ms;
	bool runs = st && st->phase == ARRAY_PHASE_RUN;
	bool refused = runs && st->engine.state == ENGINE_REFUSED && waited_ms >= ADMIN_REFUSED_MS;
	char text[WHY_NOT_BYTES + 2 * DDR_NAME_BYTES], why[WHY_NOT_BYTES];

	if (runs && !refused && waited_ms < ADMIN_PATIENCE_MS) {
		ctl_after(ADMIN_AGAIN_MS, admin_again, j);
		return;
	}
	if (runs && st->engine.state == ENGINE_ACTIVE) {
		admin_end(j, j->err, j->q.why[0] ? j->q.why : strerror(-j->err));
		return;
	}
	why_not(j->k, st, why);
	snprintf(text, sizeof(text), "nothing is changed, since the array %s", why);
	admin_end(j, -EAGAIN, text);
}

static void admin_done(struct array_admin *q, int err, const char *why)
{
	struct admin_job *j = q->arg;

	if (err == -EAGAIN || err == -ESHUTDOWN) {
		j->err = err;
		j->look.done = admin_looked;
		j->look.arg = j;
		array_query(j->k->array, &j->look);
	} else if (!err && q->cmd == ADMIN_ADD) {
		qb_loop_timer_del(ctl_env.loop, j->tell);
		admin_sync(j);
	} else {
		admin_end(j, err, why[0] ? why : strerror(-err));
	}
}

/* A change of the map is in the record before it is acknowledged (R1): so nothing is begun while
 * that could not be written. */
static void admin_probed(void *arg, int err, const char *why)
{
	struct admin_job *j = arg;

	if (!err) {
		qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, PROGRESS_MS * 1000000ull, j,
				  admin_tell, &j->tell);
		array_admin(j->k->array, &j->q);
		return;
	}
	ipc_fail(j->r, err, "member %u of %s: nothing is changed: %s", j->q.member, j->k->desc.name,
		 why);
	admin_free(j);
}

bool member_there(struct ipc_req *r, const struct array_entry *k, uint32_t member)
{
	if (member < k->desc.count)
		return true;
	ipc_fail(r, -EINVAL, "%s has members 0 to %u, and no member %u", k->desc.name,
		 k->desc.count - 1, member);
	return false;
}

void admin_begin(struct ipc_req *r, struct array_entry *k, enum admin_cmd cmd, uint32_t member,
		 const char *uri, struct make_job *make, uint64_t before)
{
	struct admin_job *j = calloc(1, sizeof(*j));

	assert(j);
	j->make = make;
	j->r = r;
	j->k = manager_hold(k);
	j->began_ms = now_ms();
	j->q.done = admin_done;
	j->q.arg = j;
	j->q.cmd = cmd;
	j->q.member = (uint8_t)member;
	j->q.before = before;
	snprintf(j->q.uri, sizeof(j->q.uri), "%s", uri);
	manager_probe(admin_probed, j);
}

void request_admin(struct ipc_req *r, struct array_entry *k, enum admin_cmd cmd, uint32_t member,
		   const char *uri)
{
	if (member_there(r, k, member))
		admin_begin(r, k, cmd, member, uri, NULL, 0);
}
