// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of arrays, which description of each counts, and what follows from it. Two arrays never
 * have one name; one that is being forgotten gives its name up when another one takes it.
 *
 * What is wanted is desc.started and not desc.forgotten; what is, is array_running.
 * manager_follow() takes one step from what is towards what is wanted, and is called again whenever
 * something came to its end: a description was stored, a thread ended. Nothing is started before
 * its description is stored.
 */
#include "daemon/catalog/manager_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/base/units.h"

struct manager manager;

static struct array_entry *table[STORE_MAX_ARRAYS];
static uint32_t count;
static void (*all_stopped)(void);

/* ---- the table ------------------------------------------------------------------------------ */

struct array_entry *manager_find(const char *name, bool forgotten_too)
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

struct array_entry *manager_find_uuid(const uint8_t uuid[DDR_UUID_BYTES])
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

struct array_entry *manager_at(uint32_t i)
{
	return table[i];
}

static struct array_entry *entry_new(const struct store_array *desc)
{
	struct array_entry *k = count < STORE_MAX_ARRAYS ? calloc(1, sizeof(*k)) : NULL;
	uint32_t at = count;

	if (k)
		k->array = array_new(&manager.env, desc);
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

struct array_entry *manager_hold(struct array_entry *k)
{
	k->refs++;
	return k;
}

void manager_let_go(struct array_entry *k)
{
	assert(k->refs);
	if (--k->refs)
		return;
	array_free(k->array);
	free(k->refused);
	free(k);
}

void manager_table_remove(struct array_entry *k)
{
	uint32_t at = 0;

	while (table[at] != k)
		at++;
	memmove(&table[at], &table[at + 1], (--count - at) * sizeof(table[0]));
	k->gone = true;
	manager_let_go(k);
}

/* ---- which description counts --------------------------------------------------------------- */

static int name_taken(const struct store_array *desc, const struct array_entry *other)
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
static bool wrong_news(const struct array_entry *k, const struct store_array *desc)
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
	struct array_entry *k = manager_find_uuid(desc->uuid),
			   *same = manager_find(desc->name, true);

	if (manager_was_forgotten(desc->uuid))
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
		k = entry_new(desc);
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
	manager_altered(k);
	array_learn(k->array, &k->desc);
	manager_follow(k);
	return 1;
}

/* ---- following ------------------------------------------------------------------------------ */

/* What was said, for all nodes or for this one. */
bool manager_to_run(const struct array_entry *k)
{
	return k->desc.here == HERE_ON || (k->desc.here == HERE_FOLLOWS && k->desc.started);
}

static enum array_stop_how stop_how(const struct array_entry *k)
{
	bool force = k->desc.here == HERE_OFF ? k->stop_force : k->desc.stop_forced;

	if (k->desc.forgotten)
		return ARRAY_STOP_FORCED;
	if (manager.closing)
		return ARRAY_STOP_LEAVE;
	return force ? ARRAY_STOP_FORCED : ARRAY_STOP_ASKED;
}

void manager_follow(struct array_entry *k)
{
	bool want = manager_to_run(k);
	int err;

	if (k->damaged || k->gone)
		return; /* what is gone has no files: those of its name are another's */
	if (k->desc.forgotten || manager.closing)
		want = false;

	if (!want && array_running(k->array)) {
		array_stop(k->array, stop_how(k));
		return;
	}
	if (k->desc.forgotten) {
		manager_forget_step(k);
		return;
	}
	if (!k->stored)
		return; /* manager_put is called again until it is */
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
	manager.cb.moved();
}

/* ---- what arrays tell ----------------------------------------------------------------------- */

static struct array_entry *by_array(const struct array *a)
{
	for (uint32_t i = 0; i < count; i++) {
		if (table[i]->array == a)
			return table[i];
	}
	return NULL;
}

static void refused_is(struct array_entry *k, const char *why)
{
	free(k->refused);
	k->refused = why[0] ? strdup(why) : NULL;
}

static void on_refused(struct array *a, const char *why)
{
	refused_is(by_array(a), why);
	manager.cb.moved();
}

static void on_ended(struct array *a, const char *why)
{
	struct array_entry *k = by_array(a);

	say(LOG_INFO, "%s: stopped here", k->desc.name);
	if (why[0])
		strcpy(k->error, why);
	k->serving = false;
	k->clients = k->kept_clients = 0;
	refused_is(k, "");
	manager.cb.moved();
	manager_follow(k);
	if (manager.closing && !manager_running() && all_stopped) {
		void (*done)(void) = all_stopped;

		all_stopped = NULL;
		done();
	}
}

static void on_serving(struct array *a, bool yes, uint32_t clients)
{
	struct array_entry *k = by_array(a);

	k->serving = yes;
	k->used |= yes;
	k->clients = clients;
	manager.cb.moved();
}

/* It goes on as if it had been started here, until it is stopped again, here or on all nodes. */
static void on_kept(struct array *a, uint32_t clients)
{
	struct array_entry *k = by_array(a);

	if (k->desc.forgotten || manager.closing || manager_to_run(k))
		return; /* it was said otherwise meanwhile */
	k->desc.here = k->desc.started ? HERE_FOLLOWS : HERE_ON;
	k->kept_clients = k->clients = clients; /* the others hear of both in one word */
	manager_altered(k);
	say(LOG_WARNING,
	    "%s: not stopped here, %u client%s open; close what uses it and stop it here, or stop "
	    "it "
	    "with --disconnect",
	    k->desc.name, clients, clients == 1 ? " has it" : "s have it");
	manager.cb.moved();
}

/* The array's own thread has learnt something. */
static void on_changed(struct array *a, const struct store_array *live, uint32_t found,
		       uint32_t added)
{
	struct array_entry *k = by_array(a);
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
		manager.cb.news(&k->desc);
	}
	manager_altered(k);
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

/* ---- start and end of the daemon ------------------------------------------------------------ */

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
	struct array_entry *twin = damage ? NULL : manager_find_uuid(desc->uuid),
			   *k = entry_new(desc);
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
	k->used = was_used(desc);
	/* Its files were not removed any more, or an early build kept them. */
	if (desc->forgotten || manager_was_forgotten(desc->uuid))
		manager_forget_found(k);
}

int manager_open(const struct config *conf, struct mailbox *main_box, struct worker *worker,
		 const struct manager_cb *callbacks, char why[STORE_WHY_BYTES])
{
	int err;

	manager.env.conf = conf;
	manager.env.main = main_box;
	manager.env.worker = worker;
	manager.env.changed = on_changed;
	manager.env.ended = on_ended;
	manager.env.serving = on_serving;
	manager.env.refused = on_refused;
	manager.env.kept = on_kept;
	manager.env.adding = on_adding;
	manager.cb = *callbacks;
	err = manager_list_load(why);
	if (err)
		return err;
	err = store_scan(take_stored, NULL, why);
	for (uint32_t i = 0; i < count && !err; i++)
		manager_follow(table[i]);
	if (!err)
		manager_list_again();
	return err;
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
	manager.closing = true;
	all_stopped = done;
	for (uint32_t i = 0; i < count; i++)
		array_stop(table[i]->array, ARRAY_STOP_LEAVE);
	if (!manager_running()) {
		all_stopped = NULL;
		done();
	}
}
