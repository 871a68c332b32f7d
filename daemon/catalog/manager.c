// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of arrays. Two arrays never have one name; one that is being forgotten gives its name
 * up when another one takes it.
 *
 * What is wanted is desc.started and not desc.forgotten; what is, is array_running. follow() takes
 * one step from what is towards what is wanted, and is called again whenever something came to its
 * end: a description was stored, a thread ended. Nothing is started before its description is
 * stored.
 *
 *	forgotten	on the list in memory: stops, is told nobody, no description gets past
 *	  the list is on disk, and it has stopped
 *	removing	the worker removes its files
 *	gone		not in the table; freed when nobody holds it
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/catalog/manager.h"
#include "daemon/base/log.h"
#include "daemon/base/units.h"
#include "daemon/catalog/forgotten.h"
#include "daemon/state/env.h"

static struct known *table[STORE_MAX_ARRAYS];
static uint32_t count;
static struct array_env env;
static struct manager_cb cb;
static void (*all_stopped)(void);
static bool closing;
static struct forgotten forgotten;
static uint64_t list_version, list_put; /* in memory; on disk */
static bool list_storing, again_asked;
static bool
    list_restored; /* from what was damaged, and is not any more: that goes when it is put */
static struct manager_change *forgets, **forgets_tail = &forgets;

struct put_task {
	struct task task;
	struct known *k;               /* NULL: of an array that is being created */
	struct manager_change *change; /* NULL: desc is what memory has */
	uint64_t generation;
	struct store_array desc;
	int err;
	char why[STORE_WHY_BYTES];
};

struct list_task {
	struct task task;
	uint64_t version;
	struct manager_change *change; /* NULL: the list is what memory has */
	struct store_forgotten entry;
	struct forgotten list;
	bool restored;
	int err;
	char why[STORE_WHY_BYTES];
};

static void follow(struct known *k);

/* ---- storing -------------------------------------------------------------------------------- */

#define AGAIN_MS 1000u

static void again(void)
{
	if (again_asked || closing)
		return;
	again_asked = true;
	cb.again(AGAIN_MS);
}

static void put_work(struct task *t);
static void put_back(struct task *t);

static void change_end(struct manager_change *c, int err, const char *why)
{
	c->done(c, err, why);
}

/* What desc becomes. False: `why` says that it can't. */
static bool change_edit(struct store_array *desc, const struct manager_change *c, char *why)
{
	bool start = c->what == CHANGE_START;

	switch (c->what) {
	case CHANGE_OPTION:
		if (options_set(&desc->options, c->key, c->value, why))
			return false;
		break;
	case CHANGE_START:
	case CHANGE_STOP:
		desc->here = start ? HERE_ON : HERE_OFF;
		if (!c->all)
			return true;
		desc->started = start;
		desc->stop_forced = !start && c->force;
		desc->said = desc->version + 1;
		break;
	case CHANGE_ATTACH:
		desc->attach = c->via;
		desc->away_ms = c->away_ms;
		return true;
	case CHANGE_ADDING:
		if (!c->force)
			strcpy(desc->adding, c->value);
		else if (!strcmp(desc->adding, c->value))
			desc->adding[0] = '\0';
		return true;
	case CHANGE_FOUND:
		for (uint32_t i = 0; i < desc->count && i < c->found->count; i++)
			if (!strcmp(desc->agreed[i], STORE_NOWHERE)) {
				strcpy(desc->agreed[i], c->found->uri[i]);
				strcpy(desc->uri[i], c->found->uri[i]);
			}
		break;
	default:
		return true;
	}
	desc->version++;
	desc->guessed = false;
	return true;
}

/* It is durable, and k->desc has it. */
static void change_takes_effect(struct known *k, const struct manager_change *c, bool news)
{
	if (c->what == CHANGE_START) {
		k->kept_clients = 0;
		k->force = c->force;
		k->error[0] = '\0';
	} else if (c->what == CHANGE_STOP) {
		k->kept_clients = 0;
		k->stop_force = c->force;
	}
	if (c->what != CHANGE_ATTACH && c->what != CHANGE_ADDING)
		array_learn(k->array, &k->desc);
	if (news)
		cb.news(&k->desc);
}

/* Its array is forgotten; its place may have another one since. */
static bool change_is_over(const struct known *k, const struct manager_change *c)
{
	return k->desc.forgotten || memcmp(c->uuid, k->desc.uuid, DDR_UUID_BYTES) != 0;
}

/* Writes what is to be written next, if anything. */
static void put(struct known *k)
{
	struct put_task *p;

	if (k->storing || k->damaged)
		return;
	while (k->changes && change_is_over(k, k->changes)) {
		struct manager_change *c = k->changes;

		k->changes = c->next;
		change_end(c, -ENODEV, "the array was forgotten meanwhile");
	}
	if (!k->changes)
		k->changes_tail = &k->changes;
	if (k->desc.forgotten || (k->stored && !k->changes))
		return;
	p = calloc(1, sizeof(*p));
	assert(p);
	p->k = manager_hold(k);
	p->generation = k->generation;
	p->desc = k->desc;
	p->change = k->changes;
	if (p->change && !change_edit(&p->desc, p->change, p->why)) {
		p->err = -EINVAL;
		k->storing = true;
		mailbox_post(env.main, &p->task, put_back);
		return;
	}
	k->storing = true;
	mailbox_post(&env.worker->box, &p->task, put_work);
}

static void put_changed(struct put_task *p)
{
	struct known *k = p->k;
	struct manager_change *c = p->change;
	bool news = p->desc.version != k->desc.version;

	if (!p->err && p->generation != k->generation) {
		k->stored = false; /* what was heard meanwhile is not in it: once more */
		return;
	}
	k->changes = c->next;
	if (!k->changes)
		k->changes_tail = &k->changes;
	if (change_is_over(k, c)) {
		change_end(c, -ENODEV, "the array was forgotten meanwhile");
		return;
	}
	if (p->err) {
		/* The file may be the new one already, if only its directory could not be synced */
		k->stored = k->stored && p->err == -EINVAL;
		change_end(c, p->err, p->why);
		return;
	}
	k->desc = p->desc;
	k->generation++;
	k->stored = true;
	change_takes_effect(k, c, news);
	follow(k);
	change_end(c, 0, "");
}

static void put_back(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct known *k = p->k;

	k->storing = false;
	if (p->change) {
		put_changed(p);
	} else if (p->err) {
		if (strcmp(k->put_said, p->why))
			say(LOG_ERR, "%s: %s; it is tried again", k->desc.name, p->why);
		strcpy(k->put_said, p->why);
	} else if (p->generation == k->generation) {
		k->stored = true;
		k->put_said[0] = '\0';
	}
	if (p->err && p->err != -EINVAL)
		again();
	/* After a failure it is only tried again at once for a change that waits behind it. */
	if (!k->gone && (!p->err || k->changes || k->stored))
		put(k);
	if (!k->gone && (!p->change || k->desc.forgotten))
		follow(k);
	manager_let_go(k);
	free(p);
}

static void put_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	p->err = store_put_array(&p->desc, p->why);
	mailbox_post(env.main, &p->task, put_back);
}

void manager_change(struct known *k, struct manager_change *c)
{
	c->k = k;
	c->next = NULL;
	if (k->gone || k->desc.forgotten || k->damaged) {
		change_end(c, k->damaged ? -EBADMSG : -ENODEV,
			   k->damaged ? k->error : "the array was forgotten meanwhile");
		return;
	}
	memcpy(c->uuid, k->desc.uuid, DDR_UUID_BYTES);
	*k->changes_tail = c;
	k->changes_tail = &c->next;
	put(k);
}

/* k->desc has changed in memory, and that counts. */
static void altered(struct known *k)
{
	k->generation++;
	k->stored = false;
	put(k);
}

/* ---- trying it ------------------------------------------------------------------------------ */

struct probe_task {
	struct task task;
	void (*done)(void *arg, int err, const char *why);
	void *arg;
	int err;
	char why[STORE_WHY_BYTES];
};

static void probe_back(struct task *t)
{
	struct probe_task *p = (struct probe_task *)(void *)t;

	if (p->err)
		again();
	if (p->done)
		p->done(p->arg, p->err, p->why);
	free(p);
}

static void probe_work(struct task *t)
{
	struct probe_task *p = (struct probe_task *)(void *)t;

	p->err = store_probe(p->why);
	mailbox_post(env.main, &p->task, probe_back);
}

void manager_probe(void (*done)(void *arg, int err, const char *why), void *arg)
{
	struct probe_task *p = calloc(1, sizeof(*p));

	assert(p);
	p->done = done;
	p->arg = arg;
	mailbox_post(&env.worker->box, &p->task, probe_work);
}

/* ---- looking after the files ------------------------------------------------------------------
 */

static bool looking;
static char look_said[STORE_WHY_BYTES]; /* logged once */

static void look_back(struct task *t)
{
	struct probe_task *p = (struct probe_task *)(void *)t;
	char why[STORE_WHY_BYTES];

	looking = false;
	if (p->err && strcmp(look_said, p->why) != 0)
		say(LOG_ERR, "%s", p->why);
	strcpy(look_said, p->err ? p->why : "");
	if (store_deleted(true, why))
		say(LOG_WARNING, "%s", why);
	if (p->err)
		again();
	free(p);
}

static void look_work(struct task *t)
{
	struct probe_task *p = (struct probe_task *)(void *)t;

	p->err = store_look(p->why);
	mailbox_post(env.main, &p->task, look_back);
}

void manager_look(void)
{
	struct probe_task *p;

	if (looking || closing)
		return;
	p = calloc(1, sizeof(*p));
	assert(p);
	looking = true;
	mailbox_post(&env.worker->box, &p->task, look_work);
}

static void list_store(void);

/* Arrays' threads try their records again themselves. */
void manager_again(void)
{
	char why[STORE_WHY_BYTES];

	again_asked = false;
	for (uint32_t i = 0; i < count; i++)
		put(table[i]);
	if (list_version > list_put)
		list_store();
	store_trouble(why);
	if (why[0])
		manager_probe(NULL, NULL);
}

/* ---- forgetting ----------------------------------------------------------------------------- */

struct known *manager_hold(struct known *k)
{
	k->refs++;
	return k;
}

void manager_let_go(struct known *k)
{
	assert(k->refs);
	if (--k->refs)
		return;
	array_free(k->array);
	free(k->refused);
	free(k);
}

static void table_remove(struct known *k)
{
	uint32_t at = 0;

	while (table[at] != k)
		at++;
	memmove(&table[at], &table[at + 1], (--count - at) * sizeof(table[0]));
	k->gone = true;
	manager_let_go(k);
}

static void removed(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct known *k = p->k;
	bool same = !memcmp(p->desc.uuid, k->desc.uuid, DDR_UUID_BYTES);

	if (p->err)
		say(LOG_WARNING, "%s: forgotten, but %s", p->desc.name, p->why);
	free(p);
	k->removing = false;
	if (k->desc.forgotten && same) {
		table_remove(k);
	} else if (k->desc.forgotten) {
		follow(k); /* the next array of that name was forgotten, too */
	} else {
		k->stored = false; /* it has a new array, and its file may be what was removed */
		put(k);
	}
}

static void remove_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	p->err = store_remove(p->desc.name, p->why);
	mailbox_post(env.main, &p->task, removed);
}

/* Its files are there until the list is on disk: else a power cut now would bring it back. */
static void forget_step(struct known *k)
{
	struct put_task *p;

	if (array_running(k->array) || k->storing || k->removing || list_put < k->forgotten_put)
		return;
	p = calloc(1, sizeof(*p));
	assert(p);
	k->removing = true;
	p->k = k;
	p->desc = k->desc;
	mailbox_post(&env.worker->box, &p->task, remove_work);
}

/* It is on the list, or has been: then the list is written again. */
static void forget(struct known *k, uint64_t version)
{
	k->desc.forgotten = true;
	k->forgotten_put = version;
	k->error[0] = '\0';
	put(k); /* ends what was asked for */
	follow(k);
}

/* The list with this one is on disk. */
static void forgotten_now(struct list_task *l)
{
	struct known *k = l->change->k;

	if (forgotten_add(&forgotten, &l->entry, true))
		cb.forgot(&l->entry);
	/* Its place may be another's by now: others have forgotten it, too, and made that one. */
	if (!k->gone && !k->desc.forgotten && !memcmp(k->desc.uuid, l->entry.uuid, DDR_UUID_BYTES))
		forget(k, l->version);
}

static void list_back(struct task *t)
{
	struct list_task *l = (struct list_task *)(void *)t;
	struct manager_change *c = l->change;

	list_storing = false;
	if (l->err) {
		say(LOG_ERR, "%s", l->why);
		/* The file may be the new one already, if only its directory could not be synced:
		 * what was refused must not stay there. */
		list_version += c != NULL;
		again();
	} else {
		list_put = l->version;
		list_restored &= !l->restored;
		if (c)
			forgotten_now(l);
	}
	for (uint32_t i = count; i-- && !l->err;) {
		if (table[i]->desc.forgotten && table[i]->forgotten_put <= l->version)
			forget_step(table[i]);
	}
	if (forgets || (list_version > l->version && !l->err))
		list_store();
	if (c) {
		struct known *k = c->k;

		change_end(c, l->err, l->why);
		manager_let_go(k);
	}
	free(l);
}

static void list_work(struct task *t)
{
	struct list_task *l = (struct list_task *)(void *)t;

	l->err = store_put_forgotten(l->list.entry, l->list.count, l->why);
	if (!l->err && l->restored)
		l->err = store_remove_damaged(l->why);
	mailbox_post(env.main, &l->task, list_back);
}

static uint64_t now_s(void);

static void list_store(void)
{
	struct list_task *l;

	if (list_storing)
		return;
	l = calloc(1, sizeof(*l));
	assert(l);
	list_storing = true;
	l->version = list_version;
	l->list = forgotten;
	l->restored = list_restored;
	l->change = forgets;
	if (l->change) {
		forgets = l->change->next;
		if (!forgets)
			forgets_tail = &forgets;
		l->entry.at_s = now_s();
		memcpy(l->entry.uuid, l->change->k->desc.uuid, DDR_UUID_BYTES);
		forgotten_add(&l->list, &l->entry, true);
	}
	mailbox_post(&env.worker->box, &l->task, list_work);
}

static uint64_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec;
}

void manager_forget(struct known *k, struct manager_change *c)
{
	char why[STORE_WHY_BYTES];

	c->k = k;
	c->next = NULL;
	if (k->gone) {
		change_end(c, 0, "");
		return;
	}
	if (!k->desc.forgotten && !forgotten_room(&forgotten, now_s())) {
		snprintf(why, STORE_WHY_BYTES,
			 "%d arrays were forgotten within the last %u days, and each is kept in "
			 "mind for so long, lest a node that was away brings it back; try again "
			 "later",
			 STORE_MAX_FORGOTTEN, FORGOTTEN_DAYS);
		change_end(c, -ENOSPC, why);
		return;
	}
	manager_hold(k);
	*forgets_tail = c;
	forgets_tail = &c->next;
	list_store();
}

void manager_forgotten(uint32_t from, const struct store_forgotten *list, uint32_t n)
{
	uint64_t before = list_version, now = now_s();

	for (uint32_t i = 0; i < n; i++) {
		struct known *k = manager_find_uuid(list[i].uuid);
		struct store_forgotten f = list[i];

		/* From a clock that is ahead: it would be on the list after all others are gone. */
		if (f.at_s > now)
			f.at_s = now;
		/* What this node knows of only since others have told it, they may have made up,
		 * and may forget, any number of times. */
		f.by = k && k->used ? 0 : from;
		if (!forgotten_add(&forgotten, &f, k))
			continue;
		list_version++;
		if (!k)
			continue;
		say(LOG_NOTICE, "%s: another node has forgotten it", k->desc.name);
		forget(k, list_version);
	}
	if (list_version > before)
		list_store();
}

bool manager_was_forgotten(const uint8_t uuid[DDR_UUID_BYTES])
{
	return forgotten_has(&forgotten, uuid);
}

const struct store_forgotten *manager_forgotten_list(uint32_t *n)
{
	*n = forgotten.count;
	return forgotten.entry;
}

/* ---- following ------------------------------------------------------------------------------ */

/* What was said, for all nodes or for this one. */
bool manager_to_run(const struct known *k)
{
	return k->desc.here == HERE_ON || (k->desc.here == HERE_FOLLOWS && k->desc.started);
}

static enum array_stop_how stop_how(const struct known *k)
{
	bool force = k->desc.here == HERE_OFF ? k->stop_force : k->desc.stop_forced;

	if (k->desc.forgotten)
		return ARRAY_STOP_FORCED;
	if (closing)
		return ARRAY_STOP_LEAVE;
	return force ? ARRAY_STOP_FORCED : ARRAY_STOP_ASKED;
}

static void follow(struct known *k)
{
	bool want = manager_to_run(k);
	int err;

	if (k->damaged || k->gone)
		return; /* what is gone has no files: those of its name are another's */
	if (k->desc.forgotten || closing)
		want = false;

	if (!want && array_running(k->array)) {
		array_stop(k->array, stop_how(k));
		return;
	}
	if (k->desc.forgotten) {
		forget_step(k);
		return;
	}
	if (!k->stored)
		return; /* put is called again until it is */
	if (!want || array_running(k->array) || k->error[0])
		return;
	array_set_desc(k->array, &k->desc);
	err = array_start(k->array, k->force);
	k->force = false;
	if (err) {
		snprintf(k->error, sizeof(k->error), "array %s can't be started: %s", k->desc.name,
			 strerror(-err));
		say(LOG_ERR, "%s", k->error);
	}
	cb.moved();
}

static struct known *by_array(const struct array *a)
{
	for (uint32_t i = 0; i < count; i++) {
		if (table[i]->array == a)
			return table[i];
	}
	return NULL;
}

static void refused_is(struct known *k, const char *why)
{
	free(k->refused);
	k->refused = why[0] ? strdup(why) : NULL;
}

static void on_refused(struct array *a, const char *why)
{
	refused_is(by_array(a), why);
	cb.moved();
}

static void on_ended(struct array *a, const char *why)
{
	struct known *k = by_array(a);

	say(LOG_INFO, "%s: stopped here", k->desc.name);
	if (why[0])
		strcpy(k->error, why);
	k->serving = false;
	k->clients = k->kept_clients = 0;
	refused_is(k, "");
	cb.moved();
	follow(k);
	if (closing && !manager_running() && all_stopped) {
		void (*done)(void) = all_stopped;

		all_stopped = NULL;
		done();
	}
}

static void on_serving(struct array *a, bool yes, uint32_t clients)
{
	struct known *k = by_array(a);

	k->serving = yes;
	k->used |= yes;
	k->clients = clients;
	cb.moved();
}

/* It goes on as if it had been started here, until it is stopped again, here or on all nodes. */
static void on_kept(struct array *a, uint32_t clients)
{
	struct known *k = by_array(a);

	if (k->desc.forgotten || closing || manager_to_run(k))
		return; /* it was said otherwise meanwhile */
	k->desc.here = k->desc.started ? HERE_FOLLOWS : HERE_ON;
	k->kept_clients = k->clients = clients; /* the others hear of both in one word */
	altered(k);
	say(LOG_WARNING,
	    "%s: not stopped here, %u client%s open; close what uses it and stop it here, or stop "
	    "it "
	    "with --disconnect",
	    k->desc.name, clients, clients == 1 ? " has it" : "s have it");
	cb.moved();
}

/* The array's own thread has learnt something. */
static void on_changed(struct array *a, const struct store_array *live, uint32_t found,
		       uint32_t added)
{
	struct known *k = by_array(a);
	bool shared = false;

	if (memcmp(live->uuid, k->desc.uuid, DDR_UUID_BYTES))
		return; /* the name has another array by now */
	/* Of the others it may know less than was told here meanwhile. */
	for (uint32_t i = 0; i < live->count && i < k->desc.count; i++) {
		if (!(found >> i & 1))
			continue;
		strcpy(k->desc.uri[i], live->uri[i]);
		if (!(added >> i & 1) || !strcmp(live->uri[i], k->desc.agreed[i]))
			continue;
		strcpy(k->desc.agreed[i], live->uri[i]);
		shared = true;
	}
	k->desc.ran = live->ran;
	for (uint32_t i = 0; i < k->desc.count; i++)
		if (!strcmp(k->desc.uri[i], k->desc.adding))
			k->desc.adding[0] = '\0'; /* it is a member */
	if (shared) {
		k->desc.version++;
		k->desc.guessed = false;
		cb.news(&k->desc);
	}
	altered(k);
}

struct adding {
	struct manager_change change;
	char uri[DDR_URI_BYTES];
	void (*done)(void *arg, int err, const char *why);
	void *arg;
};

static void adding_done(struct manager_change *c, int err, const char *why)
{
	struct adding *x = c->arg;

	x->done(x->arg, err, why);
	free(x);
}

static void on_adding(struct array *a, const char *uri, bool over,
		      void (*done)(void *arg, int err, const char *why), void *arg)
{
	struct adding *x = calloc(1, sizeof(*x));

	assert(x);
	strcpy(x->uri, uri);
	x->done = done;
	x->arg = arg;
	x->change.what = CHANGE_ADDING;
	x->change.value = x->uri;
	x->change.force = over;
	x->change.done = adding_done;
	x->change.arg = x;
	manager_change(by_array(a), &x->change);
}

/* ---- the table ------------------------------------------------------------------------------ */

struct known *manager_find(const char *name, bool forgotten_too)
{
	uint8_t uuid[DDR_UUID_BYTES];
	bool by_uuid = !uuid_parse(name, uuid);

	for (uint32_t i = 0; i < count; i++) {
		if (table[i]->desc.forgotten && !forgotten_too)
			continue;
		if (by_uuid ? !memcmp(table[i]->desc.uuid, uuid, DDR_UUID_BYTES)
			    : !strcmp(table[i]->desc.name, name))
			return table[i];
	}
	return NULL;
}

struct known *manager_find_uuid(const uint8_t uuid[DDR_UUID_BYTES])
{
	for (uint32_t i = 0; i < count; i++) {
		if (!table[i]->damaged && !memcmp(table[i]->desc.uuid, uuid, DDR_UUID_BYTES))
			return table[i];
	}
	return NULL;
}

uint32_t manager_count(void)
{
	return count;
}

struct known *manager_at(uint32_t i)
{
	return table[i];
}

static struct known *known_new(const struct store_array *desc)
{
	struct known *k = count < STORE_MAX_ARRAYS ? calloc(1, sizeof(*k)) : NULL;
	uint32_t at = count;

	if (k)
		k->array = array_new(&env, desc);
	if (!k || !k->array) {
		free(k);
		return NULL;
	}
	k->desc = *desc;
	k->refs = 1;
	k->changes_tail = &k->changes;
	while (at && strcmp(table[at - 1]->desc.name, desc->name) > 0) {
		table[at] = table[at - 1];
		at--;
	}
	table[at] = k;
	count++;
	return k;
}

static int name_taken(const struct store_array *desc, const struct known *other)
{
	char uuid[UUID_TEXT_BYTES], own[UUID_TEXT_BYTES];

	if (other->damaged) {
		say(LOG_ERR, "%s: another node tells of it, but %s", desc->name, other->error);
		return -EBADMSG;
	}
	say(LOG_ERR, "there are two arrays named %s, %s here and %s elsewhere; forget one of them",
	    desc->name, uuid_format(own, other->desc.uuid), uuid_format(uuid, desc->uuid));
	return -EEXIST;
}

static int options_order(const struct options *a, const struct options *b)
{
	char of_a[OPTION_VALUE_BYTES], of_b[OPTION_VALUE_BYTES];
	int order = 0;

	for (uint32_t i = 0; !order && options_get(a, i, of_a, NULL); i++) {
		options_get(b, i, of_b, NULL);
		order = strcmp(of_a, of_b);
	}
	return order;
}

/*
 * Which of two descriptions counts: the greater one. Where two operators, or two halves of a
 * cluster, have made the same version, all nodes must come to the same result, whatever they heard
 * first; which one it is does not matter. Only what is told takes part.
 */
static int desc_order(const struct store_array *a, const struct store_array *b)
{
	int order = 0;

	if (a->version != b->version)
		return a->version > b->version ? 1 : -1;
	if (a->guessed != b->guessed)
		return b->guessed ? 1 : -1;
	if (a->count != b->count)
		return a->count > b->count ? 1 : -1;
	for (uint32_t i = 0; !order && i < a->count; i++)
		order = strcmp(a->agreed[i], b->agreed[i]);
	if (!order)
		order = options_order(&a->options, &b->options);
	if (!order)
		order = a->started - b->started;
	if (!order)
		order = a->stop_forced - b->stop_forced;
	return order || a->said == b->said ? order : a->said > b->said ? 1 : -1;
}

/* Where this node reaches a member is its own matter, until the cluster has it elsewhere. */
static void desc_take(struct store_array *known, const struct store_array *desc)
{
	struct store_array was = *known;

	*known = *desc;
	known->ran = was.ran;
	known->here = was.here;
	known->attach = was.attach;
	known->away_ms = was.away_ms;
	strcpy(known->adding, was.adding);
	for (uint32_t i = 0; i < desc->count && i < was.count; i++) {
		bool moved = !was.guessed && strcmp(desc->agreed[i], was.agreed[i]) != 0;

		strcpy(known->uri[i], moved ? desc->agreed[i] : was.uri[i]);
	}
}

/* What can't be, or would stay for ever if it were taken: another node tells nonsense. */
static bool wrong_news(const struct known *k, const struct store_array *desc)
{
	const char *wrong = store_array_wrong(desc);

	if (!wrong && desc->version - (k ? k->desc.version : 0) > STORE_VERSION_STEP)
		wrong = "its version is too far ahead of what is known here";
	if (!wrong && k && desc->count != k->desc.count)
		wrong = "the number of its members never changes";
	if (!wrong && k && strcmp(desc->name, k->desc.name) != 0)
		wrong = "its UUID is that of an array with another name";
	if (wrong)
		say(LOG_ERR, "%.63s: version %llu of it is ignored: %s; see to who tells it",
		    desc->name, (unsigned long long)desc->version, wrong);
	return wrong;
}

int manager_apply(const struct store_array *desc, bool force)
{
	struct known *k = manager_find_uuid(desc->uuid), *same = manager_find(desc->name, true);

	if (forgotten_has(&forgotten, desc->uuid))
		return 0;
	if (k && desc_order(desc, &k->desc) <= 0)
		return 0;
	if (wrong_news(k, desc))
		return -EINVAL;
	if (k && desc->version == k->desc.version && !k->desc.guessed)
		say(LOG_WARNING,
		    "%s: version %llu was made here and elsewhere, with different content; that of "
		    "elsewhere counts: see whether the last change made here is to be made again",
		    k->desc.name, (unsigned long long)desc->version);
	if (!k && same && !same->desc.forgotten)
		return name_taken(desc, same);
	if (!k && same) {
		/* The name is free again: the new array gets the place and the file. */
		same->desc = *desc;
		same->desc.ran = false;
		same->desc.here = HERE_FOLLOWS; /* not what was said of the old one */
		same->kept_clients = 0;
		same->used = false;
		k = same;
	} else if (!k) {
		k = known_new(desc);
		if (!k)
			return -ENOMEM;
		k->desc.ran = false;
	} else {
		bool said = k->desc.started != desc->started || k->desc.said != desc->said;

		desc_take(&k->desc, desc);
		if (said) {
			k->desc.here = HERE_FOLLOWS;
			k->kept_clients = 0;
		}
	}
	k->force = force;
	k->error[0] = '\0';
	altered(k);
	array_learn(k->array, &k->desc);
	follow(k);
	return 1;
}

/* ---- a new one ------------------------------------------------------------------------------ */

static void unmade(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct known *same = manager_find(p->desc.name, true);

	if (same) {
		same->stored = false;
		put(same);
	}
	free(p);
}

static void unmake_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	store_remove(p->desc.name, p->why);
	mailbox_post(env.main, &p->task, unmade);
}

static const char name_is_taken[] = "another node has made an array of that name";

/* A file that could not be written whole may be there all the same. */
static void created(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct manager_change *c = p->change;
	struct known *same = manager_find(p->desc.name, true);
	int err = p->err;

	if (!err && same && !same->desc.forgotten) {
		err = -EEXIST;
		strcpy(p->why, name_is_taken);
	}
	if (!err) {
		err = manager_apply(&p->desc, false);
		err = err ? err : -ENODEV; /* it is forgotten already */
	}
	if (err < 0 && !p->why[0])
		snprintf(p->why, sizeof(p->why), "%s", strerror(-err));
	if (err >= 0) {
		c->k = manager_find_uuid(p->desc.uuid);
		c->k->used = true;
		cb.news(&p->desc);
		change_end(c, 0, "");
		free(p);
		return;
	}
	again();
	change_end(c, err, p->why);
	if (same && !same->desc.forgotten) {
		/* It may run by now: its record stays, and its file is written anew. */
		same->stored = false;
		put(same);
		free(p);
		return;
	}
	mailbox_post(&env.worker->box, &p->task, unmake_work);
}

static void create_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	p->err = store_put_array(&p->desc, p->why);
	mailbox_post(env.main, &p->task, created);
}

void manager_create(const struct store_array *desc, struct manager_change *c)
{
	const struct known *same = manager_find(desc->name, true);
	struct put_task *p;

	if (same && !same->desc.forgotten) { /* a node that has joined meanwhile told of it */
		change_end(c, -EEXIST, name_is_taken);
		return;
	}
	p = calloc(1, sizeof(*p));
	assert(p);
	p->change = c;
	p->desc = *desc;
	if (!p->desc.version)
		p->desc.version = 1;
	p->desc.guessed = false;
	memcpy(p->desc.agreed, p->desc.uri, sizeof(p->desc.agreed));
	mailbox_post(&env.worker->box, &p->task, create_work);
}

void manager_attach(struct known *k, enum attach_via via, uint32_t away_ms)
{
	if (k->desc.attach == via && k->desc.away_ms == away_ms)
		return;
	k->desc.attach = via;
	k->desc.away_ms = away_ms;
	altered(k);
}

uint32_t manager_running(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		n += array_running(table[i]->array);
	return n;
}

void manager_stop_all(void (*done)(void))
{
	closing = true;
	all_stopped = done;
	for (uint32_t i = 0; i < count; i++)
		array_stop(table[i]->array, ARRAY_STOP_LEAVE);
	if (!manager_running()) {
		all_stopped = NULL;
		done();
	}
}

/* The members of one that was made up commit nothing. */
static bool was_used(const struct store_array *desc)
{
	struct store_record r;
	char why[STORE_WHY_BYTES];

	return desc->ran && (store_get_record(desc->name, &r, why) || r.record.acked.num ||
			     r.record.committed.num);
}

static void take_stored(void *arg, const struct store_array *desc, const char *damage)
{
	struct store_forgotten f = {.at_s = now_s()};
	struct known *twin = damage ? NULL : manager_find_uuid(desc->uuid), *k = known_new(desc);
	char copy[STORE_WHY_BYTES];

	(void)arg;
	if (!k)
		return;
	k->stored = true;
	if (twin) {
		snprintf(copy, sizeof(copy),
			 "its file has the UUID of array %s: it is a copy; remove the wrong one of "
			 "the two while ddraidd is stopped",
			 twin->desc.name);
		damage = copy;
	}
	if (damage) {
		k->damaged = true;
		snprintf(k->error, sizeof(k->error), "%s", damage);
		say(LOG_ERR, "%s: %s", desc->name, damage);
		return;
	}
	memcpy(f.uuid, desc->uuid, DDR_UUID_BYTES);
	k->used = was_used(desc);
	if (!desc->forgotten && !forgotten_has(&forgotten, f.uuid))
		return;
	/* Its files were not removed any more, or an early build kept them. */
	if (forgotten_add(&forgotten, &f, true))
		list_version++;
	k->desc.forgotten = true;
	k->forgotten_put = list_version;
}

/* The list, and what could be read of one that was damaged; or what an operator has put there. */
static int list_load(char why[STORE_WHY_BYTES])
{
	static struct store_forgotten more[STORE_MAX_FORGOTTEN];
	int err = store_get_forgotten(forgotten.entry, &forgotten.count, why);
	uint32_t n = 0;

	if (err && err != -EBADMSG)
		return err;
	if (err) {
		say(LOG_ERR, "%s", why);
		list_version++;
		err = store_keep_damaged(why);
		if (err)
			return err; /* or it would be written over */
	}
	err = store_get_damaged(more, &n, why);
	if (err == -ENOENT)
		return 0;
	if (err && err != -EBADMSG)
		return err;
	list_restored = !err;
	list_version += list_restored;
	if (list_restored)
		say(LOG_NOTICE, "the list of the forgotten is whole again");
	for (uint32_t i = 0; i < n; i++)
		list_version += forgotten_add(&forgotten, &more[i], false);
	if (!list_restored && store_has_damaged(why))
		say(LOG_WARNING, "%s", why);
	return 0;
}

int manager_open(const struct config *conf, struct mailbox *main_box, struct worker *worker,
		 const struct manager_cb *callbacks, char why[STORE_WHY_BYTES])
{
	int err;

	env.conf = conf;
	env.main = main_box;
	env.worker = worker;
	env.changed = on_changed;
	env.ended = on_ended;
	env.serving = on_serving;
	env.refused = on_refused;
	env.kept = on_kept;
	env.adding = on_adding;
	cb = *callbacks;
	err = list_load(why);
	if (err)
		return err;
	err = store_scan(take_stored, NULL, why);
	for (uint32_t i = 0; i < count && !err; i++)
		follow(table[i]);
	if (!err && list_version > list_put)
		list_store();
	return err;
}
