// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What makes it durable: a change that was asked for here, an array that is created here, and what
 * was heard from others. manager.h says what is promised for each.
 *
 * Of one array the worker has one write at a time (k->storing). It is of the first change that
 * waits, or of desc as memory has it; k->generation tells whether desc was altered meanwhile. What
 * could not be written is written again by manager_again. The files of the state directory that
 * others delete are looked for here, too.
 */
#include "daemon/catalog/manager_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"

#define AGAIN_MS 1000u

static bool again_asked;

struct put_task {
	struct task task;
	struct array_entry *k;         /* NULL: of an array that is being created */
	struct manager_change *change; /* NULL: desc is what memory has */
	uint64_t generation;
	struct store_array desc;
	int err;
	char why[STORE_WHY_BYTES];
};

void manager_again_soon(void)
{
	if (again_asked || manager.closing)
		return;
	again_asked = true;
	manager.cb.again(AGAIN_MS);
}

/* ---- a change ------------------------------------------------------------------------------- */

void manager_change_end(struct manager_change *c, int err, const char *why)
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
static void change_takes_effect(struct array_entry *k, const struct manager_change *c, bool news)
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
		manager.cb.news(&k->desc);
}

/* Its array is forgotten; its place may have another one since. */
static bool change_is_over(const struct array_entry *k, const struct manager_change *c)
{
	return k->desc.forgotten || memcmp(c->uuid, k->desc.uuid, DDR_UUID_BYTES) != 0;
}

/* ---- storing -------------------------------------------------------------------------------- */

static void put_work(struct task *t);
static void put_back(struct task *t);

void manager_put(struct array_entry *k)
{
	struct put_task *p;

	if (k->storing || k->damaged)
		return;
	while (k->changes && change_is_over(k, k->changes)) {
		struct manager_change *c = k->changes;

		k->changes = c->next;
		manager_change_end(c, -ENODEV, "the array was forgotten meanwhile");
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
		mailbox_post(manager.env.main, &p->task, put_back);
		return;
	}
	k->storing = true;
	mailbox_post(&manager.env.worker->box, &p->task, put_work);
}

static void put_changed(struct put_task *p)
{
	struct array_entry *k = p->k;
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
		manager_change_end(c, -ENODEV, "the array was forgotten meanwhile");
		return;
	}
	if (p->err) {
		/* The file may be the new one already, if only its directory could not be synced */
		k->stored = k->stored && p->err == -EINVAL;
		manager_change_end(c, p->err, p->why);
		return;
	}
	k->desc = p->desc;
	k->generation++;
	k->stored = true;
	change_takes_effect(k, c, news);
	manager_follow(k);
	manager_change_end(c, 0, "");
}

static void put_back(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct array_entry *k = p->k;

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
		manager_again_soon();
	/* After a failure it is only tried again at once for a change that waits behind it. */
	if (!k->gone && (!p->err || k->changes || k->stored))
		manager_put(k);
	if (!k->gone && (!p->change || k->desc.forgotten))
		manager_follow(k);
	manager_let_go(k);
	free(p);
}

static void put_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	p->err = store_put_array(&p->desc, p->why);
	mailbox_post(manager.env.main, &p->task, put_back);
}

void manager_change(struct array_entry *k, struct manager_change *c)
{
	c->k = k;
	c->next = NULL;
	if (k->gone || k->desc.forgotten || k->damaged) {
		manager_change_end(c, k->damaged ? -EBADMSG : -ENODEV,
				   k->damaged ? k->error : "the array was forgotten meanwhile");
		return;
	}
	memcpy(c->uuid, k->desc.uuid, DDR_UUID_BYTES);
	*k->changes_tail = c;
	k->changes_tail = &c->next;
	manager_put(k);
}

void manager_altered(struct array_entry *k)
{
	k->generation++;
	k->stored = false;
	manager_put(k);
}

void manager_attach(struct array_entry *k, enum attach_via via, uint32_t away_ms)
{
	if (k->desc.attach == via && k->desc.away_ms == away_ms)
		return;
	k->desc.attach = via;
	k->desc.away_ms = away_ms;
	manager_altered(k);
}

/* ---- a new one ------------------------------------------------------------------------------ */

static void unmade(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct array_entry *same = manager_find(p->desc.name, true);

	if (same) {
		same->stored = false;
		manager_put(same);
	}
	free(p);
}

static void unmake_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	store_remove(p->desc.name, p->why);
	mailbox_post(manager.env.main, &p->task, unmade);
}

static const char name_is_taken[] = "another node has made an array of that name";

/* A file that could not be written whole may be there all the same. */
static void created(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;
	struct manager_change *c = p->change;
	struct array_entry *same = manager_find(p->desc.name, true);
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
		manager.cb.news(&p->desc);
		manager_change_end(c, 0, "");
		free(p);
		return;
	}
	manager_again_soon();
	manager_change_end(c, err, p->why);
	if (same && !same->desc.forgotten) {
		/* It may run by now: its record stays, and its file is written anew. */
		same->stored = false;
		manager_put(same);
		free(p);
		return;
	}
	mailbox_post(&manager.env.worker->box, &p->task, unmake_work);
}

static void create_work(struct task *t)
{
	struct put_task *p = (struct put_task *)(void *)t;

	p->err = store_put_array(&p->desc, p->why);
	mailbox_post(manager.env.main, &p->task, created);
}

void manager_create(const struct store_array *desc, struct manager_change *c)
{
	const struct array_entry *same = manager_find(desc->name, true);
	struct put_task *p;

	if (same && !same->desc.forgotten) { /* a node that has joined meanwhile told of it */
		manager_change_end(c, -EEXIST, name_is_taken);
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
	mailbox_post(&manager.env.worker->box, &p->task, create_work);
}

/* ---- trying the state directory ------------------------------------------------------------- */

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
		manager_again_soon();
	if (p->done)
		p->done(p->arg, p->err, p->why);
	free(p);
}

static void probe_work(struct task *t)
{
	struct probe_task *p = (struct probe_task *)(void *)t;

	p->err = store_probe(p->why);
	mailbox_post(manager.env.main, &p->task, probe_back);
}

void manager_probe(void (*done)(void *arg, int err, const char *why), void *arg)
{
	struct probe_task *p = calloc(1, sizeof(*p));

	assert(p);
	p->done = done;
	p->arg = arg;
	mailbox_post(&manager.env.worker->box, &p->task, probe_work);
}

/* ---- looking after the files ---------------------------------------------------------------- */

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
		manager_again_soon();
	free(p);
}

static void look_work(struct task *t)
{
	struct probe_task *p = (struct probe_task *)(void *)t;

	p->err = store_look(p->why);
	mailbox_post(manager.env.main, &p->task, look_back);
}

void manager_look(void)
{
	struct probe_task *p;

	if (looking || manager.closing)
		return;
	p = calloc(1, sizeof(*p));
	assert(p);
	looking = true;
	mailbox_post(&manager.env.worker->box, &p->task, look_work);
}

/* ---- trying again --------------------------------------------------------------------------- */

/* Arrays' threads try their records again themselves. */
void manager_again(void)
{
	char why[STORE_WHY_BYTES];

	again_asked = false;
	for (uint32_t i = 0; i < manager_count(); i++)
		manager_put(manager_at(i));
	manager_list_again();
	store_trouble(why);
	if (why[0])
		manager_probe(NULL, NULL);
}
