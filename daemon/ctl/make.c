// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * `create`, `add` and `import`: requests that open devices outside of a running array. create_job.c
 * does that on a thread of its own, one make_job for each; what follows, the wait until the array
 * serves or the member is taken, is a job of jobs.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/ctl/create/create_job.h"
#include "daemon/ctl/create/unmake.h"
#include "daemon/ctl/ctl_int.h"
#include "daemon/ports/lock.h"

#define COUNTED_MS 5000u /* until the cluster has told whether it is quorate */
#define HEARD_MS 15000u  /* and until all daemons have told which arrays they know */
#define EARLY_BYTES 512
#define RESERVE_MS 20000u /* how long "ask again" is asked again for a reservation */

/* ---- creates whose answer nobody heard ------------------------------------------------------ */

/*
 * Who asks for a create and is killed does not know what became of it, and asks once more for the
 * very same. So that goes on, or is answered, in the place of the first.
 */
struct asked {
	struct asked *next;
	struct ipc_req **r; /* of whoever works on it; NULL: it is made */
	size_t bytes;
	uint8_t *create; /* the request, but for what it may overwrite */
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
	c.wipe = c.old_member = c.unaligned = false;
	a->r = r;
	a->bytes = ddraid__ctl__create__get_packed_size(&c);
	a->create = malloc(a->bytes + 1);
	assert(a->create);
	ddraid__ctl__create__pack(&c, a->create);
	return a;
}

void asked_end(struct job *j)
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

/* ---- create, and the check of add ----------------------------------------------------------- */

struct make_job {
	struct create_job m;
	struct ipc_req *r;
	struct array_entry *k; /* add; held */
	uint32_t member;
	bool locks_said; /* create: by --set locks= */
	uint64_t began_ms;
	bool asking;         /* for the reservation */
	struct asked *asked; /* create */
	struct manager_change change;
	struct fence_ask check;
	struct array_query q;         /* add: for its geometry */
	struct array_query look;      /* for what a device is to its array, */
	struct array_entry *asked_of; /* held meanwhile */
};

static void make_progress(struct create_job *m)
{
	struct make_job *j = m->arg;
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

static const char *make_known(struct create_job *m, const uint8_t uuid[DDR_UUID_BYTES])
{
	struct array_entry *k = manager_find_uuid(uuid);

	m->ask_forgotten = manager_was_forgotten(uuid);
	return k && !k->desc.forgotten ? k->desc.name : NULL;
}

static void standing_got(struct array_query *q, int err)
{
	struct make_job *j = q->arg;
	bool runs = !err && q->status.phase == ARRAY_PHASE_RUN;

	manager_let_go(j->asked_of);
	create_job_standing(&j->m, create_standing(j->m.ask_sb, runs ? &q->status.engine : NULL));
}

/* Its array's engine has the map that counts, if it serves here. */
static void make_standing_ask(struct create_job *m)
{
	struct make_job *j = m->arg;
	struct array_entry *k = manager_find_uuid(m->ask_sb->array_uuid);

	if (!k) {
		create_job_standing(m, STANDING_UNSURE);
		return;
	}
	j->asked_of = manager_hold(k);
	j->look.done = standing_got;
	j->look.arg = j;
	array_query(k->array, &j->look);
}

static void reserve_again(void *data)
{
	struct make_job *j = data;

	reserve_ask(&j->m.reserve);
}

/* Until it is known. */
static void reserve_look(void *data)
{
	struct make_job *j = data;

	if (!j->asking)
		return;
	ctl_after(LOOK_MS, reserve_look, j);
	reserve_tick();
}

static void reserve_done(struct reserve *r, int err, int key, const char *why)
{
	struct make_job *j = r->arg;
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;
	char text[RESERVE_WHY_BYTES + DDR_URI_BYTES + 64];

	if (key >= 0 && key < RESERVE_NAME)
		snprintf(text, sizeof(text), "member %u (%s) %s",
			 j->m.what == CREATE_JOB_ADD ? j->member : j->m.key_member[key],
			 j->m.desc.uri[j->m.key_member[key]], why);
	else
		snprintf(text, sizeof(text), "%s%s%s%s", key == RESERVE_NAME ? "the name " : "",
			 key == RESERVE_NAME ? r->name : "", key == RESERVE_NAME ? " " : "", why);
	if (err == -EAGAIN && now_ms() - j->began_ms < RESERVE_MS) {
		p.text = "waiting";
		p.waits = text;
		ipc_progress(j->r, &p);
		ctl_after(ADMIN_AGAIN_MS, reserve_again, j);
		return;
	}
	j->asking = false;
	create_job_go(&j->m, err, text);
}

static void reserve_lost(struct reserve *r, const char *why)
{
	struct make_job *j = r->arg;

	create_job_lost(&j->m, why);
}

static void make_reserving(struct create_job *m)
{
	struct make_job *j = m->arg;
	struct reserve *r = &m->reserve;

	if (m->what != CREATE_JOB_ADD)
		strcpy(r->name, m->desc.name);
	r->makes = m->what != CREATE_JOB_ADD;
	if (m->what == CREATE_JOB_IMPORT)
		memcpy(r->uuid, m->imported.uuid, DDR_UUID_BYTES);
	snprintf(r->what, sizeof(r->what), "%s %.63s",
		 m->what == CREATE_JOB_CREATE   ? "create of"
		 : m->what == CREATE_JOB_IMPORT ? "import of"
						: "add to",
		 m->desc.name);
	r->done = reserve_done;
	r->lost = reserve_lost;
	r->arg = j;
	j->asking = true;
	reserve_ask(r);
	ctl_after(LOOK_MS, reserve_look, j);
}

static struct make_job *make_new(struct ipc_req *r)
{
	struct make_job *j = calloc(1, sizeof(*j));

	assert(j);
	j->r = r;
	j->began_ms = now_ms();
	j->m.conf = ctl_env.conf;
	j->m.main = ctl_env.main;
	j->m.node = announce_state()->self.node;
	j->m.arg = j;
	j->m.progress = make_progress;
	j->m.known = make_known;
	j->m.standing = make_standing_ask;
	j->m.reserving = make_reserving;
	options_init(&j->m.desc.options);
	return j;
}

static void make_free_later(void *data)
{
	free(data);
}

/* Once what it asked for is known to all, or undone. */
void make_free(struct make_job *j)
{
	reserve_release(&j->m.reserve);
	free(j->m.others);
	if (j->asked)
		asked_free(j->asked);
	if (j->k)
		manager_let_go(j->k);
	ctl_after(2 * LOOK_MS, make_free_later, j); /* reserve_look looks once more */
}

static void make_refused(struct make_job *j, int err, const char *format, const char *why)
    __attribute__((format(printf, 3, 0)));
static void make_refused(struct make_job *j, int err, const char *format, const char *why)
{
	ipc_fail(j->r, err, format, why);
	make_free(j);
}

/* Their devices are not overwritten, also if nothing on these says whose they are. */
static void others_take(struct create_job *m)
{
	m->others = calloc(manager_count() + 1, sizeof(*m->others));
	assert(m->others);
	for (uint32_t i = 0; i < manager_count(); i++) {
		const struct array_entry *k = manager_at(i);

		if (!k->damaged && !k->gone && !k->desc.forgotten &&
		    strcmp(k->desc.name, m->desc.name))
			m->others[m->other_count++] = k->desc;
	}
}

static void create_job_run(struct make_job *j)
{
	int err;

	others_take(&j->m);
	err = create_job_start(&j->m);

	if (err)
		make_refused(j, err, "no thread could be started for it: %s", strerror(-err));
}

static void make_checked(struct fence_ask *ask, int err, const char *why)
{
	struct make_job *j =
	    (struct make_job *)(void *)((char *)ask - offsetof(struct make_job, check));

	if (err == -ENXIO)
		make_refused(
		    j, err,
		    "if a node died, it could not be fenced at these members, and I/O would wait "
		    "for that for ever; the fence_command says: %s",
		    why);
	else
		create_job_run(j);
}

/* The members, of which it is better known now than at the first death that nothing can be fenced
 * there. */
static void make_begin(struct make_job *j)
{
	if (!fence_checks()) {
		create_job_run(j);
		return;
	}
	j->check.check = true;
	j->check.done = make_checked;
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
static void locks_choose(struct make_job *j)
{
	char unused[OPTION_WHY_BYTES];

	if (!j->locks_said)
		j->m.desc.options.dlm =
		    strcmp(ctl_env.conf->cluster, "alone") && !dlm_refused(unused);
}

struct create_file {
	struct task task;
	struct store_array desc;
};

static void create_file_done(struct task *t)
{
	free(t);
}

static void create_file_remove(struct task *t)
{
	struct create_file *f = (struct create_file *)(void *)t;
	char why[STORE_WHY_BYTES];

	if (store_remove_making(&f->desc, why))
		say(LOG_WARNING, "%s", why); /* the next start finds that it had come to its end */
	mailbox_post(ctl_env.main, t, create_file_done);
}

static void create_put(struct manager_change *c, int err, const char *why)
{
	struct make_job *j = c->arg;
	struct create_file *f;
	struct job *wait;

	if (err) {
		ipc_fail(j->r, err, "the array %s is not made, and its members are given back: %s",
			 j->m.desc.name, why);
		unmake_add(&j->m.desc);
		make_free(j);
		return;
	}
	say(LOG_NOTICE, "%s: created", c->k->desc.name);
	f = calloc(1, sizeof(*f));
	assert(f);
	f->desc = j->m.desc;
	mailbox_post(&ctl_env.worker->box, &f->task, create_file_remove);
	wait = job_new(j->r, c->k, JOB_CREATE);
	wait->all_nodes = true;
	wait->size_bytes = j->m.result.geo.size_bytes;
	wait->stripe_bytes = j->m.result.geo.p.stripe_bytes;
	strcpy(wait->stripe_why, j->m.result.stripe_why);
	wait->asked = j->asked;
	wait->asked->r = &wait->r;
	j->asked = NULL;
	make_free(j);
	job_look(wait);
}

static void create_done(struct create_job *m, int err, const char *why)
{
	struct make_job *j = m->arg;

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
		make_free(j);
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

static int uris_take(struct make_job *j, char *const *uri, size_t n, char *why)
{
	if (n > DDR_MAX_MEMBERS) {
		snprintf(why, OPTION_WHY_BYTES, "an array has at most %d members", DDR_MAX_MEMBERS);
		return -EINVAL;
	}
	for (size_t i = 0; i < n; i++) {
		if (!store_uri_ok(uri[i])) {
			snprintf(why, OPTION_WHY_BYTES,
				 "the URI of member %zu is empty, longer than %d characters, or "
				 "has control characters",
				 i, DDR_URI_BYTES - 1);
			return -EINVAL;
		}
		strcpy(j->m.desc.uri[j->m.desc.count++], uri[i]);
	}
	return 0;
}

static int create_options(struct make_job *j, const Ddraid__Ctl__Create *c, char *why)
{
	for (size_t i = 0; i < c->n_option; i++) {
		if (options_set(&j->m.desc.options, c->option[i]->key, c->option[i]->value, why))
			return -EINVAL;
		j->locks_said |= !strcmp(c->option[i]->key, "locks");
	}
	if (j->m.desc.options.dlm && dlm_refused(why))
		return -EINVAL;
	return uris_take(j, c->uri, c->n_uri, why);
}

/* A further array can't be known here now, whatever it is. True: that was answered. */
static bool more_refused(struct ipc_req *r)
{
	const struct announce_state *s = announce_state();

	if (manager_count() == STORE_MAX_ARRAYS)
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

/* What can be said against it at once. True: it was. */
static bool create_refused(struct ipc_req *r)
{
	const Ddraid__Ctl__Create *c = ipc_request(r)->create;
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
	else
		return more_refused(r);
	return true;
}

static void create_begin(struct ipc_req *r, struct asked *asked)
{
	const Ddraid__Ctl__Create *c = ipc_request(r)->create;
	struct make_job *j;
	char text[OPTION_WHY_BYTES];

	if (create_refused(r) || create_numbers(r, c)) {
		asked_free(asked);
		return;
	}
	j = make_new(r);
	j->asked = asked;
	asked->r = &j->r;
	strcpy(j->m.desc.name, c->name);
	if (create_options(j, c, text)) {
		ipc_fail(r, -EINVAL, "%s", text);
		make_free(j);
		return;
	}
	j->m.ask.geo = (struct geo_params){.order = (uint8_t)c->order,
					   .m = (uint8_t)c->parity,
					   .layout = (uint8_t)c->layout,
					   .slots = (uint8_t)c->slots,
					   .stripe_bytes = c->stripe_bytes,
					   .band_bytes = c->band_bytes,
					   .region_bytes = c->region_bytes};
	j->m.ask.wipe = c->wipe;
	j->m.ask.old_member = c->old_member;
	j->m.ask.unaligned = c->unaligned;
	j->m.ask.zeroed = c->zeroed;
	j->m.done = create_done;
	make_begin(j);
}

struct early {
	struct ipc_req *r;
	struct asked *asked; /* create, or NULL */
	void (*begin)(struct ipc_req *r, struct asked *asked);
	uint64_t began_ms;
};

/*
 * What else this daemon has to hear before it can tell whose devices are: to take a member of an
 * array that the cluster has is refused in any case, and the word of quorum comes before those
 * of arrays. False: nothing. Without a quorum nothing is made, whatever the others know.
 */
static bool early_waits(char text[EARLY_BYTES])
{
	const struct announce_state *s = announce_state();
	const struct announce_node *self = announce_find(s->self.node);

	text[0] = '\0';
	if (unmake_busy())
		snprintf(text, EARLY_BYTES, "a create of %s that was cut off to be undone",
			 unmake_busy());
	if (!s->counted) {
		snprintf(text, EARLY_BYTES, "corosync to tell whether there is a quorum");
	} else if (s->quorate && (!self || !self->here)) {
		snprintf(text, EARLY_BYTES, "this daemon to join those of the other nodes");
	} else if (s->quorate) {
		for (uint32_t i = 0; !text[0] && i < s->count; i++)
			if (s->node[i].here && !s->node[i].all)
				snprintf(text, EARLY_BYTES, "node %u to tell which arrays it knows",
					 s->node[i].node);
	}
	return text[0];
}

static void early_look(void *data)
{
	struct early *e = data;
	bool counted = announce_state()->counted;
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;
	char text[EARLY_BYTES], line[EARLY_BYTES + 32];

	if (!early_waits(text)) {
		e->begin(e->r, e->asked);
		free(e);
		return;
	}
	if (now_ms() - e->began_ms < (counted ? HEARD_MS : COUNTED_MS)) {
		snprintf(line, sizeof(line), "waiting for %s", text);
		p.text = line;
		ipc_progress(e->r, &p);
		ctl_after(LOOK_MS, early_look, e);
		return;
	}
	if (!counted) {
		e->begin(e->r, e->asked);
		free(e);
		return;
	}
	ipc_fail(e->r, -EAGAIN,
		 "nothing is made before it is known which arrays there are: this waits for "
		 "%s; look into the log of ddraidd there, and try again",
		 text);
	if (e->asked)
		asked_free(e->asked);
	free(e);
}

/* A repeated one takes the place of the first, whose client is gone. True: it has. */
static bool create_repeated(struct ipc_req *r, struct asked *like)
{
	struct asked *a = asked_find(like);
	struct array_entry *k = a && !a->r ? manager_find_uuid(a->uuid) : NULL;
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
	job_look(j);
	return true;
}

/* A daemon that has just started answers before the cluster has told it anything. */
/*
 * A device of an array that is known is not overwritten. Of one whose file is damaged only the name
 * is known, so any device may be its.
 */
static bool may_overwrite(struct ipc_req *r, bool wanted)
{
	for (uint32_t i = 0; wanted && i < manager_count(); i++) {
		const struct array_entry *k = manager_at(i);

		if (!k->damaged)
			continue;
		ipc_fail(r, -EBADMSG,
			 "nothing is overwritten while it can't be told which devices the "
			 "array %s has: %s",
			 k->desc.name, k->error);
		return false;
	}
	return true;
}

void request_create(struct ipc_req *r)
{
	const Ddraid__Ctl__Create *c = ipc_request(r)->create;
	struct early *e;

	if (!may_overwrite(r, c->wipe || c->old_member))
		return;
	e = calloc(1, sizeof(*e));
	assert(e);
	e->r = r;
	e->began_ms = now_ms();
	e->begin = create_begin;
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

static void add_checked(struct create_job *m, int err, const char *why)
{
	struct make_job *j = m->arg;
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
	make_free(j);
}

static void add_asked(struct array_query *q, int err)
{
	struct make_job *j = q->arg;
	char why[WHY_NOT_BYTES];

	if (!err && q->status.have_geo) {
		j->m.geo = q->status.geo;
		j->m.map = q->status.engine.map;
		make_begin(j);
		return;
	}
	why_not(j->k, err ? NULL : &q->status, why);
	ipc_fail(j->r, -EAGAIN, "member %u of %s: nothing is changed, since the array %s",
		 j->member, j->k->desc.name, why);
	make_free(j);
}

void request_add(struct ipc_req *r)
{
	const Ddraid__Ctl__Add *a = ipc_request(r)->add;
	struct array_entry *k = ctl_array(r, a->array);
	struct make_job *j;

	if (!k)
		return;
	if (!store_uri_ok(a->uri)) {
		ipc_fail(r, -EINVAL,
			 "the URI is empty, longer than %d characters, or has control characters",
			 DDR_URI_BYTES - 1);
		return;
	}
	if (!member_there(r, k, a->member) || !may_overwrite(r, a->wipe || a->old_member))
		return;
	j = make_new(r);
	j->k = manager_hold(k);
	j->member = a->member;
	j->m.what = CREATE_JOB_ADD;
	j->m.member = a->member;
	j->m.ask.wipe = a->wipe;
	j->m.ask.old_member = a->old_member;
	j->m.ask.unaligned = a->unaligned;
	strcpy(j->m.desc.name, k->desc.name);
	j->m.desc.options = k->desc.options;
	strcpy(j->m.desc.uri[j->m.desc.count++], a->uri);
	j->m.done = add_checked;
	j->q.done = add_asked;
	j->q.arg = j;
	array_query(k->array, &j->q);
}

/* ---- import --------------------------------------------------------------------------------- */

/* Members of which it was not said where they are, when the array was imported without them. */
static bool places_known_now(const struct create_job *m, const struct array_entry *k)
{
	for (uint32_t i = 0; i < k->desc.count; i++)
		if (!strcmp(k->desc.agreed[i], STORE_NOWHERE) &&
		    m->imported.dev_of[i] != IMPORT_NOWHERE)
			return true;
	return false;
}

/* The name is the array's own, so a second one of that name can't be known beside it. */
static int import_possible(struct create_job *m, const uint8_t uuid[DDR_UUID_BYTES],
			   const char *name, char why[STORE_WHY_BYTES])
{
	const struct array_entry *same = manager_find(name, true);
	struct make_job *j = m->arg;
	struct array_entry *k = manager_find_uuid(uuid);
	char fits[STORE_WHY_BYTES];

	if (k && !k->desc.forgotten && places_known_now(m, k)) {
		j->k = manager_hold(k);
		m->joins = true;
		return 0;
	}
	if (k && !k->desc.forgotten) {
		snprintf(why, STORE_WHY_BYTES,
			 "they are members of the array %s, which is known here: 'ddraidctl start "
			 "%s' starts it, and 'ddraidctl status %s' says what it lacks",
			 k->desc.name, k->desc.name, k->desc.name);
		return -EEXIST;
	}
	if (manager_was_forgotten(uuid)) {
		snprintf(why, STORE_WHY_BYTES,
			 "they are members of the array %s, which was forgotten: that is for good, "
			 "in this cluster",
			 name);
		return -EINVAL;
	}
	if (same && same->damaged) {
		snprintf(why, STORE_WHY_BYTES, "they are members of an array %s; %.600s", name,
			 same->error);
		return -EBADMSG;
	}
	if (same) {
		snprintf(why, STORE_WHY_BYTES,
			 "they are members of an array %s, and another array of that name is known "
			 "here: forget that one first, or import this one in another cluster",
			 name);
		return -EEXIST;
	}
	if (store_run_fits(ctl_env.conf->run_dir, name, fits)) {
		snprintf(why, STORE_WHY_BYTES, "array %s can't be imported: %.600s", name, fits);
		return -EINVAL;
	}
	return 0;
}

static void import_put(struct manager_change *c, int err, const char *why)
{
	struct make_job *j = c->arg;
	struct job *wait;

	if (err) {
		ipc_fail(j->r, err, "the array %s is not imported: %s", j->m.desc.name, why);
		make_free(j);
		return;
	}
	say(LOG_NOTICE, "%s: imported", c->k->desc.name);
	wait = job_new(j->r, c->k, JOB_IMPORT);
	wait->all_nodes = !j->m.joins;
	wait->stale = j->m.import.stale;
	wait->forced_ms = wait->began_ms; /* if it starts by itself, it need not be told */
	wait->size_bytes = j->m.imported.geo.size_bytes;
	wait->stripe_bytes = j->m.imported.geo.p.stripe_bytes;
	make_free(j);
	job_look(wait);
}

static void import_done(struct create_job *m, int err, const char *why)
{
	struct make_job *j = m->arg;

	if (!err && m->lost) {
		err = -ECANCELED;
		why = m->lost_why;
	}
	if (err) {
		ipc_fail(j->r, err, "%s", why);
		make_free(j);
		return;
	}
	j->change.done = import_put;
	j->change.arg = j;
	if (m->joins) {
		j->change.what = CHANGE_FOUND;
		j->change.found = &m->desc;
		manager_change(j->k, &j->change);
		return;
	}
	m->desc.started = true;
	/* A node that is away may know it as it was before. No array has been changed as often as
	 * there are seconds since 1970. */
	m->desc.version = m->desc.said = (uint64_t)time(NULL);
	locks_choose(j);
	j->change.what = CHANGE_CREATE;
	manager_create(&m->desc, &j->change);
}

static void import_begin(struct ipc_req *r, struct asked *none)
{
	const Ddraid__Ctl__Import *i = ipc_request(r)->import;
	char text[OPTION_WHY_BYTES];
	struct make_job *j;

	(void)none;
	if (more_refused(r))
		return;
	j = make_new(r);
	if (uris_take(j, i->uri, i->n_uri, text)) {
		ipc_fail(r, -EINVAL, "%s", text);
		make_free(j);
		return;
	}
	j->m.what = CREATE_JOB_IMPORT;
	j->m.import = (struct import_ask){.degraded = i->degraded, .stale = i->stale};
	j->m.importable = import_possible;
	j->m.done = import_done;
	make_begin(j);
}

void request_import(struct ipc_req *r)
{
	struct early *e = calloc(1, sizeof(*e));

	assert(e);
	e->r = r;
	e->began_ms = now_ms();
	e->begin = import_begin;
	early_look(e);
}
