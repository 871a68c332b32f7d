// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Forgetting an array, here or by word of another node, and the list of the forgotten on disk:
 *
 *	forgotten	on the list in memory: stops, is told nobody, no description gets past
 *	  the list is on disk, and it has stopped
 *	removing	the worker removes its files
 *	gone		not in the table; freed when nobody holds it
 *
 * The list is written whole, once at a time, in versions: k->forgotten_put is the first one that
 * has k. One that was asked for here is on the list in memory only after that is on disk.
 */
#include "daemon/catalog/manager_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/log.h"
#include "daemon/catalog/forgotten.h"

static struct forgotten forgotten;
static uint64_t list_version, list_put; /* in memory; on disk */
static bool list_storing;
/* From what was damaged, and is not any more: that goes when it is put. */
static bool list_restored;
static struct manager_change *forgets, **forgets_tail = &forgets;

/* ---- removing its files --------------------------------------------------------------------- */

struct remove_task {
	struct task task;
	struct array_entry *k;
	struct store_array desc;
	int err;
	char why[STORE_WHY_BYTES];
};

static void removed(struct task *t)
{
	struct remove_task *p = (struct remove_task *)(void *)t;
	struct array_entry *k = p->k;
	bool same = !memcmp(p->desc.uuid, k->desc.uuid, DDR_UUID_BYTES);

	if (p->err)
		say(LOG_WARNING, "%s: forgotten, but %s", p->desc.name, p->why);
	free(p);
	k->removing = false;
	if (k->desc.forgotten && same) {
		manager_table_remove(k);
	} else if (k->desc.forgotten) {
		manager_follow(k); /* the next array of that name was forgotten, too */
	} else {
		k->stored = false; /* it has a new array, and its file may be what was removed */
		manager_put(k);
	}
}

static void remove_work(struct task *t)
{
	struct remove_task *p = (struct remove_task *)(void *)t;

	p->err = store_remove(p->desc.name, p->why);
	mailbox_post(manager.env.main, &p->task, removed);
}

/* Its files are there until the list is on disk: else a power cut now would bring it back. */
void manager_forget_step(struct array_entry *k)
{
	struct remove_task *p;

	if (array_running(k->array) || k->storing || k->removing || list_put < k->forgotten_put)
		return;
	p = calloc(1, sizeof(*p));
	assert(p);
	k->removing = true;
	p->k = k;
	p->desc = k->desc;
	mailbox_post(&manager.env.worker->box, &p->task, remove_work);
}

/* It is on the list, or has been: then the list is written again. */
static void forget(struct array_entry *k, uint64_t version)
{
	k->desc.forgotten = true;
	k->forgotten_put = version;
	k->error[0] = '\0';
	manager_put(k); /* ends what was asked for */
	manager_follow(k);
}

/* ---- the list on disk ----------------------------------------------------------------------- */

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

static void list_store(void);

static uint64_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec;
}

/* The list with this one is on disk. */
static void forgotten_now(struct list_task *l)
{
	struct array_entry *k = l->change->k;

	if (forgotten_add(&forgotten, &l->entry, true))
		manager.cb.forgot(&l->entry);
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
		manager_again_soon();
	} else {
		list_put = l->version;
		list_restored &= !l->restored;
		if (c)
			forgotten_now(l);
	}
	for (uint32_t i = manager_count(); i-- && !l->err;) {
		struct array_entry *k = manager_at(i);

		if (k->desc.forgotten && k->forgotten_put <= l->version)
			manager_forget_step(k);
	}
	if (forgets || (list_version > l->version && !l->err))
		list_store();
	if (c) {
		struct array_entry *k = c->k;

		manager_change_end(c, l->err, l->why);
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
	mailbox_post(manager.env.main, &l->task, list_back);
}

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
	mailbox_post(&manager.env.worker->box, &l->task, list_work);
}

void manager_list_again(void)
{
	if (list_version > list_put)
		list_store();
}

/* The list, and what could be read of one that was damaged; or what an operator has put there. */
int manager_list_load(char why[STORE_WHY_BYTES])
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

void manager_forget_found(struct array_entry *k)
{
	struct store_forgotten f = {.at_s = now_s()};

	memcpy(f.uuid, k->desc.uuid, DDR_UUID_BYTES);
	if (forgotten_add(&forgotten, &f, true))
		list_version++;
	k->desc.forgotten = true;
	k->forgotten_put = list_version;
}

/* ---- what is asked for, here and by others -------------------------------------------------- */

void manager_forget(struct array_entry *k, struct manager_change *c)
{
	char why[STORE_WHY_BYTES];

	c->k = k;
	c->next = NULL;
	if (k->gone) {
		manager_change_end(c, 0, "");
		return;
	}
	if (!k->desc.forgotten && !forgotten_room(&forgotten, now_s())) {
		snprintf(why, STORE_WHY_BYTES,
			 "%d arrays were forgotten within the last %u days, and each is kept in "
			 "mind for so long, lest a node that was away brings it back; try again "
			 "later",
			 STORE_MAX_FORGOTTEN, FORGOTTEN_DAYS);
		manager_change_end(c, -ENOSPC, why);
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
		struct array_entry *k = manager_find_uuid(list[i].uuid);
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
