// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of arrays. Two arrays never have one name; a forgotten one gives its name up when
 * another one takes it.
 *
 * What is wanted is desc.started and not desc.forgotten; what is, is array_running. follow() takes
 * one step from what is towards what is wanted, and is called again whenever something came to its
 * end: a description was stored, a thread ended. Nothing is started before its description is
 * stored.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/units.h"

static struct known *table[STORE_MAX_ARRAYS];
static uint32_t count;
static struct array_env env;
static struct manager_cb cb;
static void (*all_stopped)(void);
static bool closing;

struct put_task {
	struct task task;
	struct known *k;
	struct store_array desc;
	int err;
	char why[STORE_WHY_BYTES];
};

static void follow(struct known *k);

/* ---- storing -------------------------------------------------------------------------------- */

static void put_back(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct known *k = p->k;

	k->storing = false;
	if (p->err) {
		say(LOG_ERR, "%s: %s", k->desc.name, p->why);
		strcpy(k->error, p->why);
	} else if (k->desc.version == p->desc.version && !k->again) {
		k->stored = true;
	}
	free(p);
	if (!k->stored && k->again) {
		k->again = false;
		follow(k);
	} else if (k->stored) {
		follow(k);
	}
}

static void put_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	p->err = store_put_array(&p->desc, p->why);
	mailbox_post(env.main, &p->task, put_back);
}

static void put(struct known *k)
{
	struct put_task *p;

	if (k->storing) {
		k->again = true;
		return;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		strcpy(k->error, "memory is short");
		return;
	}
	k->storing = true;
	k->again = false;
	p->k = k;
	p->desc = k->desc;
	mailbox_post(&env.worker->box, &p->task, put_work);
}

/* ---- following ------------------------------------------------------------------------------ */

static void follow(struct known *k)
{
	bool want = k->here == HERE_ON || (k->here == HERE_FOLLOWS && k->desc.started);
	int err;

	if (k->desc.forgotten || closing)
		want = false;

	if (!want && array_running(k->array)) {
		array_stop(k->array);
		return;
	}
	if (!k->stored) {
		if (!k->storing)
			put(k);
		return;
	}
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

static void on_ended(struct array *a, const char *why)
{
	struct known *k = by_array(a);

	say(LOG_INFO, "%s: stopped here", k->desc.name);
	if (why[0])
		strcpy(k->error, why);
	k->serving = false;
	cb.moved();
	follow(k);
	if (closing && !manager_running() && all_stopped) {
		void (*done)(void) = all_stopped;

		all_stopped = NULL;
		done();
	}
}

static void on_serving(struct array *a, bool yes)
{
	by_array(a)->serving = yes;
	cb.moved();
}

/* The array's own thread has learnt something. */
static void on_changed(struct array *a, const struct store_array *live, uint32_t found)
{
	struct known *k = by_array(a);
	bool shared = false;

	if (memcmp(live->uuid, k->desc.uuid, DDR_UUID_BYTES))
		return; /* the name has another array by now */
	/* Of the others it may know less than was told here meanwhile. */
	for (uint32_t i = 0; i < live->count && i < k->desc.count; i++) {
		if (!(found >> i & 1) || !strcmp(live->uri[i], k->desc.uri[i]))
			continue;
		strcpy(k->desc.uri[i], live->uri[i]);
		shared = true;
	}
	k->desc.ran = live->ran;
	k->stored = false;
	if (shared) {
		k->desc.version++;
		cb.news(&k->desc);
		array_learn(a, &k->desc);
	}
	put(k);
}

/* ---- the table ------------------------------------------------------------------------------ */

struct known *manager_find(const char *name, bool forgotten)
{
	uint8_t uuid[DDR_UUID_BYTES];
	bool by_uuid = !uuid_parse(name, uuid);

	for (uint32_t i = 0; i < count; i++) {
		if (table[i]->desc.forgotten && !forgotten)
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
		if (!memcmp(table[i]->desc.uuid, uuid, DDR_UUID_BYTES))
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

	say(LOG_ERR, "there are two arrays named %s, %s here and %s elsewhere; forget one of them",
	    desc->name, uuid_format(own, other->desc.uuid), uuid_format(uuid, desc->uuid));
	return -EEXIST;
}

int manager_apply(const struct store_array *desc, bool force)
{
	struct known *k = manager_find_uuid(desc->uuid), *same = manager_find(desc->name, true);
	bool ran;

	if (k && desc->version <= k->desc.version)
		return 0;
	if (!k && same && !same->desc.forgotten)
		return desc->forgotten ? 0 : name_taken(desc, same);
	if (!k && same) {
		/* The name is free again: the new array gets the place and the file. */
		same->desc = *desc;
		same->desc.ran = false;
		same->here = HERE_FOLLOWS; /* not what was said of the old one */
		k = same;
	} else if (!k) {
		k = known_new(desc);
		if (!k)
			return -ENOMEM;
		k->desc.ran = false;
	} else {
		ran = k->desc.ran;
		if (k->desc.started != desc->started)
			k->here = HERE_FOLLOWS;
		k->desc = *desc;
		k->desc.ran = ran;
	}
	k->stored = false;
	k->force = force;
	k->error[0] = '\0';
	put(k);
	array_learn(k->array, &k->desc);
	follow(k);
	array_told(k->array, &k->desc);
	return 1;
}

int manager_change(struct store_array *desc, bool force)
{
	struct known *k = manager_find_uuid(desc->uuid);
	int err;

	desc->version = k ? k->desc.version + 1 : 1;
	err = manager_apply(desc, force);
	if (err > 0)
		cb.news(desc);
	return err < 0 ? err : 0;
}

void manager_start(struct known *k, bool force)
{
	k->here = HERE_ON;
	k->force = force;
	k->error[0] = '\0';
	follow(k);
}

void manager_stop(struct known *k)
{
	k->here = HERE_OFF;
	follow(k);
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
		array_stop(table[i]->array);
	if (!manager_running()) {
		all_stopped = NULL;
		done();
	}
}

static void take_stored(void *arg, const struct store_array *desc)
{
	struct known *k = known_new(desc);

	(void)arg;
	if (k)
		k->stored = true;
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
	cb = *callbacks;
	err = store_scan(take_stored, NULL, why);
	for (uint32_t i = 0; i < count && !err; i++)
		follow(table[i]);
	return err;
}
