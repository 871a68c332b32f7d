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

#include "daemon/clock.h"
#include "daemon/ctl.h"
#include "daemon/making.h"
#include "daemon/ports/lock.h"
#include "daemon/unmake.h"

#define LOOK_MS 200u
#define PROGRESS_MS 1000u
#define TAKE_PART_MS 60000u /* `start`, `create`: until the array is active here */
#define OTHERS_MS 20000u    /* and on the others, beyond that */
#define IN_USE_MS 2000u     /* `stop --all-nodes`: what others tell of their clients is that old */
#define COUNTED_MS 5000u    /* `create`: until the cluster has told whether it is quorate */
#define HEARD_MS 15000u     /* and until all daemons have told which arrays they know */
#define RESERVE_MS 20000u   /* how long "ask again" is asked again for a reservation */
#define ADMIN_AGAIN_MS 500u
#define ADMIN_REFUSED_MS 2000u   /* a refusal that is older is told */
#define ADMIN_PATIENCE_MS 15000u /* how long "ask again" is asked again */

enum job_kind { JOB_WATCH, JOB_CREATE, JOB_START, JOB_STOP, JOB_FORGET };

struct job {
	struct ipc_req *r;
	struct known *k; /* held */
	enum job_kind kind;
	Ddraid__Ctl__Until until; /* JOB_WATCH */
	bool all_nodes, force, take;
	bool was_running; /* JOB_START, when it was asked */
	bool forced;      /* JOB_START: it was not active, and was told to whoever leads */
	uint64_t began_ms, here_ms, told_ms, forced_ms;
	bool put;            /* JOB_START, JOB_STOP: what was asked for counts */
	uint64_t said;       /* JOB_STOP of all nodes: the version that says so */
	uint64_t size_bytes; /* JOB_CREATE, and the next two */
	uint32_t stripe_bytes;
	char stripe_why[CREATE_WHY_BYTES];
	struct asked *asked;          /* JOB_CREATE */
	struct manager_change change; /* JOB_START, JOB_STOP, JOB_FORGET */
	struct array_query q;
	qb_loop_timer_handle timer;
};

static void after(uint32_t ms, void (*fn)(void *data), void *data)
{
	qb_loop_timer_handle timer;

	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, ms * 1000000ull, data, fn, &timer);
}

/* ---- status --------------------------------------------------------------------------------- */

struct status_job {
	struct ipc_req *r;
	uint32_t at, count;
	struct known *k[STORE_MAX_ARRAYS]; /* held */
	struct array_query q;
};

static void status_next(struct status_job *j);

static void status_got(struct array_query *q, int err)
{
	struct status_job *j = q->arg;
	Reply reply = REPLY_INIT;
	struct known *k = j->k[j->at];
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
	struct known *one = all ? NULL : ctl_array_known(r, name);
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

/* ---- creates whose answer nobody heard ------------------------------------------------------ */

/*
 * Who asks for a create and is killed does not know what became of it, and asks once more for the
 * very same. So that goes on, or is answered, in the place of the first.
 */
struct asked {
	struct asked *next;
	struct ipc_req **r; /* of whoever works on it; NULL: it is made */
	size_t bytes;
	uint8_t *create; /* the request, but for `force` */
	/* the answer that nobody heard */
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t size_bytes;
	uint32_t stripe_bytes;
	char stripe_why[CREATE_WHY_BYTES];
};

#define ASKED_MAX 64u /* that are made; older ones are answered by what there is */

static struct asked *all_asked;

static void asked_free(struct asked *a)
{
	struct asked **at = &all_asked;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	free(a->create);
	free(a);
}

static struct asked *asked_find(const struct asked *like)
{
	struct asked *a = all_asked;

	while (a && (a->bytes != like->bytes || memcmp(a->create, like->create, a->bytes) ||
		     (a->r && !ipc_gone(*a->r))))
		a = a->next;
	return a;
}

static struct asked *asked_new(struct ipc_req **r)
{
	Ddraid__Ctl__Create c = *ipc_request(*r)->create;
	struct asked *a = calloc(1, sizeof(*a));

	assert(a);
	c.force = false;
	a->r = r;
	a->bytes = ddraid__ctl__create__get_packed_size(&c);
	a->create = malloc(a->bytes + 1);
	assert(a->create);
	ddraid__ctl__create__pack(&c, a->create);
	return a;
}

/* ---- waiting for an array ------------------------------------------------------------------- */

static void look(void *data);

/* Whoever asked has been answered, or has gone: then the next who asks the same is told. */
static void asked_end(struct job *j)
{
	struct asked *a = j->asked, *oldest = NULL;
	uint32_t n = 0;

	if (!a)
		return;
	if (!ipc_gone(j->r)) {
		asked_free(a);
		return;
	}
	a->r = NULL;
	memcpy(a->uuid, j->k->desc.uuid, DDR_UUID_BYTES);
	a->size_bytes = j->size_bytes;
	a->stripe_bytes = j->stripe_bytes;
	strcpy(a->stripe_why, j->stripe_why);
	for (struct asked *b = all_asked; b; b = b->next) {
		n += !b->r;
		oldest = b->r ? oldest : b;
	}
	if (n > ASKED_MAX)
		asked_free(oldest);
}

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
static bool lacks_members(const struct array_status *st, const Ddraid__Ctl__Progress *p)
{
	return st->phase == ARRAY_PHASE_RUN && st->engine.state != ENGINE_ACTIVE && p->waits[0] &&
	       (st->engine.state == ENGINE_REFUSED || p->waits_ms >= MEMBERS_MS);
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
			status_progress(&p, st);
		else
			p = (Ddraid__Ctl__Progress)DDRAID__CTL__PROGRESS__INIT;
		if (what)
			p.text = (char *)what;
		else if (!st)
			p.text = "starting";
		if (st && lacks_members(st, &p)) {
			snprintf(text, sizeof(text), "%s", p.waits);
			why_members(j->k, st, text);
			p.waits = text;
		}
		ipc_progress(j->r, &p);
	}
	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, LOOK_MS * 1000000ull, j, look, &j->timer);
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
 * --force, --alone and --take-over are for one that runs and is not active, as after a boot at
 * which it was refused: the engine of whoever leads is told, again and again, since a round may
 * swallow it.
 */
struct force {
	struct known *k; /* held */
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

static void start_force(struct job *j, const struct array_status *st)
{
	if ((!j->force && !j->take) || !st || st->phase != ARRAY_PHASE_RUN ||
	    st->engine.state == ENGINE_ACTIVE || now_ms() - j->forced_ms < FORCE_AGAIN_MS)
		return;
	if (!j->forced)
		say(LOG_WARNING, "%s: is assembled %s, as an operator says", j->k->desc.name,
		    j->force ? "by force" : "although it is another cluster's");
	j->forced = true;
	j->forced_ms = now_ms();
	if (j->force)
		force_send(j, ADMIN_FORCE);
	if (j->take)
		force_send(j, ADMIN_TAKE);
}

static void start_look(struct job *j, const struct array_status *st)
{
	uint64_t now = now_ms();
	bool here = st && st->phase == ARRAY_PHASE_RUN && st->engine.state == ENGINE_ACTIVE;
	uint32_t missing = j->all_nodes ? others_not(j, true) : 0;
	char text[WHY_NOT_BYTES + 512], why[WHY_NOT_BYTES];

	/* Also one whose client is gone: it must not force what is started next. */
	if (j->kind == JOB_START && j->put && !manager_to_run(j->k)) {
		snprintf(text, sizeof(text), "somebody has stopped %s meanwhile", j->k->desc.name);
		job_end(j, -ECANCELED, text);
		return;
	}
	if (!here && j->k->error[0]) {
		if (j->kind == JOB_CREATE)
			snprintf(text, sizeof(text),
				 "array %s is made, on all its members, but does not run on this "
				 "node: %s; mend that, then 'ddraidctl start %s', or give it up "
				 "with 'ddraidctl forget %s'",
				 j->k->desc.name, j->k->error, j->k->desc.name, j->k->desc.name);
		job_end(j, -EIO, j->kind == JOB_CREATE ? text : j->k->error);
		return;
	}
	if (!here && now - j->began_ms > TAKE_PART_MS) {
		why_not(j->k, st, why);
		snprintf(text, sizeof(text),
			 "%s is%s not active after %u s, and goes on trying: 'ddraidctl status' "
			 "tells how far it is; it %s",
			 j->k->desc.name,
			 j->kind == JOB_CREATE ? " made, on all its members, but is" : "",
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
	if ((j->force || j->take) && j->was_running && !j->forced)
		ipc_warn(j->r, j->force
				   ? "it was active, or became so by itself: nothing was forced"
				   : "it was active, or became so by itself: it is whose it was");
	if (j->kind == JOB_CREATE)
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
			 "again, or --force to end that",
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
		 "what uses it and try again, or --force to end that",
		 j->k->desc.name, nodes);
	job_end(j, -EBUSY, text);
	return true;
}

static void stop_look(struct job *j, const struct array_status *st)
{
	uint64_t limit =
	    ctl_env.conf->stop_ms + OTHERS_MS + (j->force ? config_heard_ms(ctl_env.conf) : 0);
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
	case JOB_START:
		start_look(j, st);
		break;
	case JOB_STOP:
	case JOB_FORGET:
		stop_look(j, st);
		break;
	}
}

static void look(void *data)
{
	struct job *j = data;

	j->q.done = look_got;
	j->q.arg = j;
	array_query(j->k->array, &j->q);
}

static struct job *job_new(struct ipc_req *r, struct known *k, enum job_kind kind)
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
	struct known *k = ctl_array(r, w->array);
	struct job *j;

	if (!k)
		return;
	j = job_new(r, k, JOB_WATCH);
	j->until = w->until;
	look(j);
}

/* ---- start, stop, forget -------------------------------------------------------------------- */

static void start_put(struct manager_change *c, int err, const char *why)
{
	struct job *j = c->arg;
	char text[STORE_WHY_BYTES + 128];

	if (!err) {
		j->put = true;
		look(j);
		return;
	}
	snprintf(text, sizeof(text), "%s is not started: %s", j->k->desc.name, why);
	job_end(j, err, text);
}

void request_start(struct ipc_req *r)
{
	const Ddraid__Ctl__Start *s = ipc_request(r)->start;
	struct known *k = ctl_array(r, s->array);
	struct job *j;

	if (!k)
		return;
	if (s->alone && strcmp(ctl_env.conf->cluster, "alone") != 0) {
		ipc_fail(r, -EINVAL,
			 "this daemon takes part in a cluster: --alone is for one with cluster = "
			 "alone in ddraid.conf; for an array of another cluster say --take-over");
		return;
	}
	if (s->take_over && !strcmp(ctl_env.conf->cluster, "alone")) {
		ipc_fail(
		    r, -EINVAL,
		    "this daemon is in no cluster (cluster = alone in ddraid.conf), so an array "
		    "can't be this cluster's from now on; to use it here say --alone");
		return;
	}
	j = job_new(r, k, JOB_START);
	j->all_nodes = s->all_nodes;
	j->force = s->force;
	j->take = s->alone || s->take_over;
	j->forced_ms = j->began_ms; /* one that starts by itself needs no force */
	j->was_running = array_running(k->array);
	j->change.what = CHANGE_START;
	j->change.all = s->all_nodes;
	j->change.force = s->force;
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
		look(j);
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
	j->change.force = j->force;
	j->change.done = stop_put;
	j->change.arg = j;
	if (j->kind == JOB_STOP) {
		j->change.what = CHANGE_STOP;
		manager_change(j->k, &j->change);
		return;
	}
	if (!array_running(j->k->array))
		err = attach_discard(&j->k->desc, j->force, ATTACH_LOOK_MS, why);
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

	if (j->kind != JOB_STOP || !j->all_nodes || j->force)
		return false;
	others_use(j, nodes, &silent);
	if (!nodes[0] && !silent)
		return false;
	if (now_ms() - j->began_ms < IN_USE_MS) {
		after(LOOK_MS, stop_begin, j);
		return true;
	}
	if (nodes[0]) {
		snprintf(text, sizeof(text),
			 "%s is in use on %s; close what uses it, or --force to end that",
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
	if (clients && !j->force && q->status.attach == ATTACH_NBD && !q->status.front.clients &&
	    now_ms() - j->began_ms < IN_USE_MS) {
		after(LOOK_MS, stop_begin, j);
		return;
	}
	if (clients && !j->force) {
		if (q->status.disk.clients)
			snprintf(device, sizeof(device), ", %u of them as %s",
				 q->status.disk.clients, q->status.device);
		snprintf(text, sizeof(text),
			 "%s is in use: %u client%s open%s; close what uses it, or --force to end "
			 "that",
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
	struct known *k = ctl_array(r, s->array);
	struct job *j;

	if (!k)
		return;
	j = job_new(r, k, JOB_STOP);
	j->all_nodes = s->all_nodes;
	j->force = s->force;
	stop_begin(j);
}

void request_forget(struct ipc_req *r)
{
	const Ddraid__Ctl__Forget *f = ipc_request(r)->forget;
	/* One that is being forgotten as well: it may not get on. */
	struct known *k = manager_find(f->array, true);
	struct job *j;

	if (!k || k->damaged)
		k = ctl_array(r, f->array);
	if (!k)
		return;
	j = job_new(r, k, JOB_FORGET);
	j->all_nodes = true;
	j->force = f->force;
	if (!f->force && (array_running(k->array) || others_not(j, false))) {
		job_end(j, -EBUSY, "the array runs; stop it on all nodes first, or --force");
		return;
	}
	stop_begin(j);
}

/* ---- fail, add, re-add ---------------------------------------------------------------------- */

struct admin_job {
	struct ipc_req *r;
	struct known *k; /* held */
	uint64_t began_ms;
	qb_loop_timer_handle tell;
	struct making_job *making; /* add: it has the device reserved; or NULL */
	struct manager_change change;
	struct array_admin q;
	int err; /* the answer, while `look` asks why */
	struct array_query look;
	struct array_query wait; /* why it takes so long */
	bool asks, over;         /* that is asked; the answer is for nobody any more */
};

static void making_free(struct making_job *j);

static void admin_free(struct admin_job *j)
{
	if (j->asks) {
		j->over = true;
		return;
	}
	manager_let_go(j->k);
	if (j->making)
		making_free(j->making);
	free(j);
}

static void admin_progress(struct admin_job *j, const char *why, const struct array_status *st)
{
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;

	if (st)
		status_progress(&p, st);
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
		after(ADMIN_AGAIN_MS, admin_again, j);
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

static bool member_there(struct ipc_req *r, const struct known *k, uint32_t member)
{
	if (member < k->desc.count)
		return true;
	ipc_fail(r, -EINVAL, "%s has members 0 to %u, and no member %u", k->desc.name,
		 k->desc.count - 1, member);
	return false;
}

static void admin_begin(struct ipc_req *r, struct known *k, enum admin_cmd cmd, uint32_t member,
			const char *uri, struct making_job *making, uint64_t before)
{
	struct admin_job *j = calloc(1, sizeof(*j));

	assert(j);
	j->making = making;
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

void request_admin(struct ipc_req *r, struct known *k, enum admin_cmd cmd, uint32_t member,
		   const char *uri)
{
	if (member_there(r, k, member))
		admin_begin(r, k, cmd, member, uri, NULL, 0);
}

/* ---- create, and the check of add ----------------------------------------------------------- */

struct making_job {
	struct making m;
	struct ipc_req *r;
	struct known *k; /* add; held */
	uint32_t member;
	bool locks_said; /* create: by --set locks= */
	uint64_t began_ms;
	bool asking;         /* for the reservation */
	struct asked *asked; /* create */
	struct manager_change change;
	struct fence_ask check;
	struct array_query q;    /* add: for its geometry */
	struct array_query look; /* for what a device is to its array, */
	struct known *asked_of;  /* held meanwhile */
};

static void making_progress(struct making *m)
{
	struct making_job *j = m->arg;
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;
	char text[sizeof(m->text)];

	pthread_mutex_lock(&m->lock);
	memcpy(text, m->text, sizeof(text));
	p.done = m->step;
	p.total = m->steps;
	pthread_mutex_unlock(&m->lock);
	p.text = text;
	p.unit = "members";
	ipc_progress(j->r, &p);
}

static const char *making_known(struct making *m, const uint8_t uuid[DDR_UUID_BYTES])
{
	struct known *k = manager_find_uuid(uuid);

	(void)m;
	return k && !k->desc.forgotten ? k->desc.name : NULL;
}

static void standing_got(struct array_query *q, int err)
{
	struct making_job *j = q->arg;
	bool runs = !err && q->status.phase == ARRAY_PHASE_RUN;

	manager_let_go(j->asked_of);
	making_standing(&j->m, create_standing(j->m.ask_sb, runs ? &q->status.engine : NULL));
}

/* Its array's engine has the map that counts, if it serves here. */
static void making_standing_ask(struct making *m)
{
	struct making_job *j = m->arg;
	struct known *k = manager_find_uuid(m->ask_sb->array_uuid);

	if (!k) {
		making_standing(m, STANDING_UNSURE);
		return;
	}
	j->asked_of = manager_hold(k);
	j->look.done = standing_got;
	j->look.arg = j;
	array_query(k->array, &j->look);
}

static void reserve_again(void *data)
{
	struct making_job *j = data;

	reserve_ask(&j->m.reserve);
}

/* Until it is known. */
static void reserve_look(void *data)
{
	struct making_job *j = data;

	if (!j->asking)
		return;
	after(LOOK_MS, reserve_look, j);
	reserve_tick();
}

static void reserve_done(struct reserve *r, int err, int key, const char *why)
{
	struct making_job *j = r->arg;
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;
	char text[RESERVE_WHY_BYTES + DDR_URI_BYTES + 64];

	if (key >= 0 && key < RESERVE_NAME)
		snprintf(text, sizeof(text), "member %u (%s) %s",
			 j->m.what == MAKING_ADD ? j->member : j->m.key_member[key],
			 j->m.desc.uri[j->m.key_member[key]], why);
	else
		snprintf(text, sizeof(text), "%s%s%s%s", key == RESERVE_NAME ? "the name " : "",
			 key == RESERVE_NAME ? r->name : "", key == RESERVE_NAME ? " " : "", why);
	if (err == -EAGAIN && now_ms() - j->began_ms < RESERVE_MS) {
		p.text = "waiting";
		p.waits = text;
		ipc_progress(j->r, &p);
		after(ADMIN_AGAIN_MS, reserve_again, j);
		return;
	}
	j->asking = false;
	making_go(&j->m, err, text);
}

static void reserve_lost(struct reserve *r, const char *why)
{
	struct making_job *j = r->arg;

	making_lost(&j->m, why);
}

static void making_reserving(struct making *m)
{
	struct making_job *j = m->arg;
	struct reserve *r = &m->reserve;

	if (m->what == MAKING_CREATE)
		strcpy(r->name, m->desc.name);
	snprintf(r->what, sizeof(r->what), "%s %.63s",
		 m->what == MAKING_CREATE ? "create of" : "add to", m->desc.name);
	r->done = reserve_done;
	r->lost = reserve_lost;
	r->arg = j;
	j->asking = true;
	reserve_ask(r);
	after(LOOK_MS, reserve_look, j);
}

static struct making_job *making_new(struct ipc_req *r)
{
	struct making_job *j = calloc(1, sizeof(*j));

	assert(j);
	j->r = r;
	j->began_ms = now_ms();
	j->m.conf = ctl_env.conf;
	j->m.main = ctl_env.main;
	j->m.node = announce_state()->self.node;
	j->m.arg = j;
	j->m.progress = making_progress;
	j->m.known = making_known;
	j->m.standing = making_standing_ask;
	j->m.reserving = making_reserving;
	options_init(&j->m.desc.options);
	return j;
}

static void making_free_later(void *data)
{
	free(data);
}

/* Once what it asked for is known to all, or undone. */
static void making_free(struct making_job *j)
{
	reserve_release(&j->m.reserve);
	free(j->m.others);
	if (j->asked)
		asked_free(j->asked);
	if (j->k)
		manager_let_go(j->k);
	after(2 * LOOK_MS, making_free_later, j); /* reserve_look looks once more */
}

static void making_refused(struct making_job *j, int err, const char *format, const char *why)
    __attribute__((format(printf, 3, 0)));
static void making_refused(struct making_job *j, int err, const char *format, const char *why)
{
	ipc_fail(j->r, err, format, why);
	making_free(j);
}

/* Their devices are not overwritten, also if nothing on these says whose they are. */
static void others_take(struct making *m)
{
	m->others = calloc(manager_count() + 1, sizeof(*m->others));
	assert(m->others);
	for (uint32_t i = 0; i < manager_count(); i++) {
		const struct known *k = manager_at(i);

		if (!k->damaged && !k->gone && !k->desc.forgotten &&
		    strcmp(k->desc.name, m->desc.name))
			m->others[m->other_count++] = k->desc;
	}
}

static void making_run(struct making_job *j)
{
	int err;

	others_take(&j->m);
	err = making_start(&j->m);

	if (err)
		making_refused(j, err, "no thread could be started for it: %s", strerror(-err));
}

static void making_checked(struct fence_ask *ask, int err, const char *why)
{
	struct making_job *j =
	    (struct making_job *)(void *)((char *)ask - offsetof(struct making_job, check));

	if (err == -ENXIO)
		making_refused(
		    j, err,
		    "if a node died, it could not be fenced at these members, and I/O would wait "
		    "for that for ever; the fence_command says: %s",
		    why);
	else
		making_run(j);
}

/* The members, of which it is better known now than at the first death that nothing can be fenced
 * there. */
static void making_begin(struct making_job *j)
{
	if (!fence_checks()) {
		making_run(j);
		return;
	}
	j->check.check = true;
	j->check.done = making_checked;
	for (uint32_t i = 0; i < j->m.desc.count; i++)
		fence_ask_uri(&j->check, j->m.desc.uri[i]);
	fence_run(&j->check);
}

/* `locks = dlm`: a node that lacks what that needs could never serve. */
static int dlm_refused(char why[OPTION_WHY_BYTES])
{
	const struct announce_state *s = announce_state();
	const struct lock_ops *ops = lock_manager_find("dlm");

	if (!strcmp(ctl_env.conf->cluster, "alone"))
		return 0;
	if (!announce_dlm()) {
		snprintf(why, OPTION_WHY_BYTES, "locks = dlm: %.200s; or take locks = cpg",
			 ops ? lock_missing(ops)
			     : "this ddraidd was built without the kernel's DLM");
		return -ENODEV;
	}
	for (uint32_t i = 0; i < s->count; i++) {
		if (!s->node[i].here || s->node[i].node == s->self.node || s->node[i].dlm)
			continue;
		snprintf(why, OPTION_WHY_BYTES,
			 "locks = dlm: node %u has no dlm_controld running, or its ddraidd was "
			 "built without libdlm; start it there; or take locks = cpg",
			 s->node[i].node);
		return -ENODEV;
	}
	return 0;
}

/* The kernel's DLM if all nodes that are there have it, unless it is said otherwise. As late as can
 * be: a daemon that has just started has told what it has by then. */
static void locks_choose(struct making_job *j)
{
	char unused[OPTION_WHY_BYTES];

	if (!j->locks_said)
		j->m.desc.options.dlm =
		    strcmp(ctl_env.conf->cluster, "alone") && !dlm_refused(unused);
}

struct making_file {
	struct task task;
	struct store_array desc;
};

static void making_file_done(struct task *t)
{
	free(t);
}

static void making_file_remove(struct task *t)
{
	struct making_file *f = (struct making_file *)(void *)t;
	char why[STORE_WHY_BYTES];

	if (store_remove_making(&f->desc, why))
		say(LOG_WARNING, "%s", why); /* the next start finds that it had come to its end */
	mailbox_post(ctl_env.main, t, making_file_done);
}

static void create_put(struct manager_change *c, int err, const char *why)
{
	struct making_job *j = c->arg;
	struct making_file *f;
	struct job *wait;

	if (err) {
		ipc_fail(j->r, err, "the array %s is not made, and its members are given back: %s",
			 j->m.desc.name, why);
		unmake_add(&j->m.desc);
		making_free(j);
		return;
	}
	say(LOG_NOTICE, "%s: created", c->k->desc.name);
	f = calloc(1, sizeof(*f));
	assert(f);
	f->desc = j->m.desc;
	mailbox_post(&ctl_env.worker->box, &f->task, making_file_remove);
	wait = job_new(j->r, c->k, JOB_CREATE);
	wait->all_nodes = true;
	wait->size_bytes = j->m.result.geo.size_bytes;
	wait->stripe_bytes = j->m.result.geo.p.stripe_bytes;
	strcpy(wait->stripe_why, j->m.result.stripe_why);
	wait->asked = j->asked;
	wait->asked->r = &wait->r;
	j->asked = NULL;
	making_free(j);
	look(wait);
}

static void create_done(struct making *m, int err, const char *why)
{
	struct making_job *j = m->arg;

	/* The members are this array's; but on this side of a cut nothing is told any more. */
	if (!err && m->lost) {
		err = -ECANCELED;
		why = m->lost_why;
		m->error.left = true;
	}
	if (err) {
		ipc_fail(j->r, err, "%s", why);
		if (m->error.left)
			unmake_add(&m->desc);
		making_free(j);
		return;
	}
	m->desc.started = true;
	locks_choose(j);
	j->change.what = CHANGE_CREATE;
	j->change.done = create_put;
	j->change.arg = j;
	manager_create(&m->desc, &j->change);
}

/* The message's numbers are wider than ours: what does not fit must not become another number. */
static int create_numbers(struct ipc_req *r, const Ddraid__Ctl__Create *c)
{
	const struct {
		const char *name;
		uint32_t value;
	} n[] = {{"order", c->order},
		 {"number of parity members", c->parity},
		 {"number of the layout", c->layout},
		 {"number of slots", c->slots}};

	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
		if (n[i].value <= UINT8_MAX)
			continue;
		ipc_fail(r, -EINVAL, "%s can't be made: %u is out of range for the %s", c->name,
			 n[i].value, n[i].name);
		return -EINVAL;
	}
	return 0;
}

static int create_options(struct making_job *j, const Ddraid__Ctl__Create *c, char *why)
{
	for (size_t i = 0; i < c->n_option; i++) {
		if (options_set(&j->m.desc.options, c->option[i]->key, c->option[i]->value, why))
			return -EINVAL;
		j->locks_said |= !strcmp(c->option[i]->key, "locks");
	}
	if (j->m.desc.options.dlm && dlm_refused(why))
		return -EINVAL;
	if (c->n_uri > DDR_MAX_MEMBERS) {
		snprintf(why, OPTION_WHY_BYTES, "an array has at most %d members", DDR_MAX_MEMBERS);
		return -EINVAL;
	}
	for (size_t i = 0; i < c->n_uri; i++) {
		if (!store_uri_ok(c->uri[i])) {
			snprintf(why, OPTION_WHY_BYTES,
				 "the URI of member %zu is empty, longer than %d characters, or "
				 "has control characters",
				 i, DDR_URI_BYTES - 1);
			return -EINVAL;
		}
		strcpy(j->m.desc.uri[j->m.desc.count++], c->uri[i]);
	}
	return 0;
}

/* What can be said against it at once. True: it was. */
static bool create_refused(struct ipc_req *r)
{
	const Ddraid__Ctl__Create *c = ipc_request(r)->create;
	const struct announce_state *s = announce_state();
	const char *why = NULL;
	char text[STORE_WHY_BYTES];

	if (array_name_check(c->name, &why))
		ipc_fail(r, -EINVAL, "%.80s can't be an array's name: %s", c->name, why);
	else if (store_run_fits(ctl_env.conf->run_dir, c->name, text))
		ipc_fail(r, -EINVAL, "array %s can't be made: %s", c->name, text);
	else if (manager_find(c->name, false))
		ipc_fail(r, -EEXIST, "there is an array %s already; take another name", c->name);
	else if (manager_find(c->name, true))
		ipc_fail(r, -EAGAIN, "the array that was named %s is still being forgotten",
			 c->name);
	else if (manager_count() == STORE_MAX_ARRAYS)
		ipc_fail(r, -ENOSPC,
			 "%u arrays are known here, and there is no room for more; forget one",
			 STORE_MAX_ARRAYS);
	else if (!s->quorate)
		ipc_fail(r, -EAGAIN, "%s",
			 s->counted
			     ? "the cluster has no quorum here; see that enough nodes run corosync"
			     : "corosync does not answer here; start it, or look into its log");
	else
		return false;
	return true;
}

static void create_begin(struct ipc_req *r, struct asked *asked)
{
	const Ddraid__Ctl__Create *c = ipc_request(r)->create;
	struct making_job *j;
	char text[OPTION_WHY_BYTES];

	if (create_refused(r) || create_numbers(r, c)) {
		asked_free(asked);
		return;
	}
	j = making_new(r);
	j->asked = asked;
	asked->r = &j->r;
	strcpy(j->m.desc.name, c->name);
	if (create_options(j, c, text)) {
		ipc_fail(r, -EINVAL, "%s", text);
		making_free(j);
		return;
	}
	j->m.ask.geo = (struct geo_params){.order = (uint8_t)c->order,
					   .m = (uint8_t)c->parity,
					   .layout = (uint8_t)c->layout,
					   .slots = (uint8_t)c->slots,
					   .stripe_bytes = c->stripe_bytes,
					   .band_bytes = c->band_bytes,
					   .region_bytes = c->region_bytes};
	j->m.ask.force = c->force;
	j->m.ask.zeroed = c->zeroed;
	j->m.done = create_done;
	making_begin(j);
}

struct early {
	struct ipc_req *r;
	struct asked *asked;
	uint64_t began_ms;
};

/*
 * What else this daemon has to hear before it can tell whose devices are: to take a member of an
 * array that the cluster has is refused to --force, too, and the word of quorum comes before those
 * of arrays. False: nothing. Without a quorum nothing is made, whatever the others know.
 */
static bool early_waits(char text[NODES_BYTES])
{
	const struct announce_state *s = announce_state();
	const struct announce_node *self = announce_find(s->self.node);

	text[0] = '\0';
	if (unmake_busy())
		snprintf(text, NODES_BYTES, "a create of %s that was cut off to be undone",
			 unmake_busy());
	if (!s->counted) {
		snprintf(text, NODES_BYTES, "corosync to tell whether there is a quorum");
	} else if (s->quorate && (!self || !self->here)) {
		snprintf(text, NODES_BYTES, "this daemon to join those of the other nodes");
	} else if (s->quorate) {
		for (uint32_t i = 0; !text[0] && i < s->count; i++)
			if (s->node[i].here && !s->node[i].all)
				snprintf(text, NODES_BYTES, "node %u to tell which arrays it knows",
					 s->node[i].node);
	}
	return text[0];
}

static void early_look(void *data)
{
	struct early *e = data;
	bool counted = announce_state()->counted;
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;
	char text[NODES_BYTES], line[NODES_BYTES + 32];

	if (!early_waits(text)) {
		create_begin(e->r, e->asked);
		free(e);
		return;
	}
	if (now_ms() - e->began_ms < (counted ? HEARD_MS : COUNTED_MS)) {
		snprintf(line, sizeof(line), "waiting for %s", text);
		p.text = line;
		ipc_progress(e->r, &p);
		after(LOOK_MS, early_look, e);
		return;
	}
	if (!counted) {
		create_begin(e->r, e->asked);
		free(e);
		return;
	}
	ipc_fail(e->r, -EAGAIN,
		 "nothing is made before it is known which arrays there are: this waits for "
		 "%s; look into the log of ddraidd there, and try again",
		 text);
	asked_free(e->asked);
	free(e);
}

/* A repeated one takes the place of the first, whose client is gone. True: it has. */
static bool create_repeated(struct ipc_req *r, struct asked *like)
{
	struct asked *a = asked_find(like);
	struct known *k = a && !a->r ? manager_find_uuid(a->uuid) : NULL;
	struct job *j;

	if (a && a->r) {
		ipc_final(*a->r, NULL);
		*a->r = r;
		return true;
	}
	if (a && (!k || k->desc.forgotten)) {
		asked_free(a);
		return false;
	}
	if (!a)
		return false;
	j = job_new(r, k, JOB_CREATE);
	j->all_nodes = true;
	j->size_bytes = a->size_bytes;
	j->stripe_bytes = a->stripe_bytes;
	strcpy(j->stripe_why, a->stripe_why);
	j->asked = a;
	a->r = &j->r;
	look(j);
	return true;
}

/* A daemon that has just started answers before the cluster has told it anything. */
/*
 * By force a device of an array that is known is not overwritten. Of one whose file is damaged only
 * the name is known, so any device may be its.
 */
static bool force_allowed(struct ipc_req *r, bool force)
{
	for (uint32_t i = 0; force && i < manager_count(); i++) {
		const struct known *k = manager_at(i);

		if (!k->damaged)
			continue;
		ipc_fail(r, -EBADMSG,
			 "nothing is overwritten by force while it can't be told which devices the "
			 "array %s has: %s",
			 k->desc.name, k->error);
		return false;
	}
	return true;
}

void request_create(struct ipc_req *r)
{
	struct early *e;

	if (!force_allowed(r, ipc_request(r)->create->force))
		return;
	e = calloc(1, sizeof(*e));
	assert(e);
	e->r = r;
	e->began_ms = now_ms();
	e->asked = asked_new(&e->r);
	if (create_repeated(r, e->asked)) {
		free(e->asked->create);
		free(e->asked);
		free(e);
		return;
	}
	e->asked->next = all_asked;
	all_asked = e->asked;
	early_look(e);
}

static void add_checked(struct making *m, int err, const char *why)
{
	struct making_job *j = m->arg;
	const char *own = j->k->desc.uri[j->member];

	if (!err) {
		admin_begin(j->r, j->k, ADMIN_ADD, j->member, m->desc.uri[0], j, m->before);
		return;
	}
	/* Repeated, it is done. A copy of the member is not it. */
	if (err == -EALREADY && !strcmp(own, m->desc.uri[0])) {
		char text[DDR_URI_BYTES + 2 * DDR_NAME_BYTES + 160];

		snprintf(text, sizeof(text),
			 "%s is member %u of %s already, and in use: nothing is done; to have it "
			 "written anew, first 'ddraidctl fail %s %u'",
			 own, j->member, j->k->desc.name, j->k->desc.name, j->member);
		ipc_warn(j->r, text);
		ipc_final(j->r, NULL);
	} else if (err == -EALREADY)
		ipc_fail(
		    j->r, -ENOTUNIQ,
		    "%s carries member %u of %s, which is in use at %s: it is that device, or a "
		    "copy of it. To have the member written anew there, first 'ddraidctl fail "
		    "%s %u'",
		    m->desc.uri[0], j->member, j->k->desc.name, own, j->k->desc.name, j->member);
	else
		ipc_fail(j->r, err, "%s", why);
	making_free(j);
}

static void add_asked(struct array_query *q, int err)
{
	struct making_job *j = q->arg;
	char why[WHY_NOT_BYTES];

	if (!err && q->status.have_geo) {
		j->m.geo = q->status.geo;
		j->m.map = q->status.engine.map;
		making_begin(j);
		return;
	}
	why_not(j->k, err ? NULL : &q->status, why);
	ipc_fail(j->r, -EAGAIN, "member %u of %s: nothing is changed, since the array %s",
		 j->member, j->k->desc.name, why);
	making_free(j);
}

void request_add(struct ipc_req *r)
{
	const Ddraid__Ctl__Add *a = ipc_request(r)->add;
	struct known *k = ctl_array(r, a->array);
	struct making_job *j;

	if (!k)
		return;
	if (!store_uri_ok(a->uri)) {
		ipc_fail(r, -EINVAL,
			 "the URI is empty, longer than %d characters, or has control characters",
			 DDR_URI_BYTES - 1);
		return;
	}
	if (!member_there(r, k, a->member) || !force_allowed(r, a->force))
		return;
	j = making_new(r);
	j->k = manager_hold(k);
	j->member = a->member;
	j->m.what = MAKING_ADD;
	j->m.member = a->member;
	j->m.ask.force = a->force;
	strcpy(j->m.desc.name, k->desc.name);
	j->m.desc.options = k->desc.options;
	strcpy(j->m.desc.uri[j->m.desc.count++], a->uri);
	j->m.done = add_checked;
	j->q.done = add_asked;
	j->q.arg = j;
	array_query(k->array, &j->q);
}
