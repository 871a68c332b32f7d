// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One array is asked about at a time. Every LOOK_NS, and when an answer came, the first one is
 * looked for that has members which this command was not asked about, or refused AGAIN_MS ago.
 */
#include "daemon/catalog/fence_members.h"

#include <errno.h>
#include <qb/qbloop.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/catalog/manager.h"
#include "daemon/runtime/fence/fence.h"

#define LOOK_NS 2000000000ull
#define AGAIN_MS 10000u

struct verdict {
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t members; /* what command and URIs were, as a hash; 0 = the entry is free */
	uint64_t at_ms;
	char why[FENCE_WHY_BYTES + 160]; /* "" = it could */
};

static struct verdict verdicts[STORE_MAX_ARRAYS];
static struct verdict asked; /* what is asked about; members 0 = nothing */
static struct fence_ask ask;
static struct qb_loop *loop;
static qb_loop_timer_handle timer;
static bool unknown_said, stopped;

/* FNV-1a, of a string with its end. */
static uint64_t hash(uint64_t h, const char *c)
{
	do {
		h = (h ^ (unsigned char)*c) * 1099511628211ull;
	} while (*c++);
	return h;
}

/* What an answer depends on: the command, too. Never 0. */
static uint64_t members_of(const struct store_array *d)
{
	uint64_t h = hash(14695981039346656037ull, fence_describe());

	for (uint32_t i = 0; i < d->count; i++)
		h = hash(h, d->uri[i]);
	return h | 1;
}

static struct verdict *verdict_of(const uint8_t uuid[DDR_UUID_BYTES])
{
	for (uint32_t i = 0; i < STORE_MAX_ARRAYS; i++)
		if (verdicts[i].members && !memcmp(verdicts[i].uuid, uuid, DDR_UUID_BYTES))
			return &verdicts[i];
	return NULL;
}

static const struct array_entry *array_of(const uint8_t uuid[DDR_UUID_BYTES])
{
	const struct array_entry *k = manager_find_uuid(uuid);

	return k && !k->damaged && !k->desc.forgotten ? k : NULL;
}

/* There are no more arrays than entries: one is free when those of arrays that are gone are. */
static struct verdict *verdict_new(const uint8_t uuid[DDR_UUID_BYTES])
{
	struct verdict *v = verdicts;

	for (uint32_t i = 0; i < STORE_MAX_ARRAYS; i++)
		if (verdicts[i].members && !array_of(verdicts[i].uuid))
			verdicts[i].members = 0;
	while (v->members && v < verdicts + STORE_MAX_ARRAYS - 1)
		v++;
	memset(v, 0, sizeof(*v));
	memcpy(v->uuid, uuid, DDR_UUID_BYTES);
	return v;
}

static void look(void);

static void answered(struct fence_ask *a, int err, const char *why)
{
	const struct array_entry *k = array_of(asked.uuid);
	struct verdict *v;
	bool was_bad;

	(void)a;
	if (err && err != -ENXIO && !unknown_said) {
		unknown_said = true;
		say(LOG_NOTICE,
		    "whether the fence_command can fence at all members is not known before it has "
		    "to: it does not answer --check (%s)",
		    why);
	}
	if (k) {
		v = verdict_of(asked.uuid);
		was_bad = v && v->why[0];
		if (!v)
			v = verdict_new(asked.uuid);
		v->members = asked.members;
		v->at_ms = now_ms();
		v->why[0] = '\0';
		if (err == -ENXIO)
			snprintf(v->why, sizeof(v->why),
				 "if a node died, it could not be fenced at all members, and I/O "
				 "would wait for that; the fence_command says: %s",
				 why);
		if (v->why[0] && !was_bad)
			say(LOG_ERR, "%s: %s", k->desc.name, v->why);
		else if (!v->why[0] && was_bad)
			say(LOG_NOTICE, "%s: a node could be fenced at all members now",
			    k->desc.name);
	}
	asked.members = 0;
	if (!stopped)
		look();
}

static void begin(const struct array_entry *k)
{
	memset(&ask, 0, sizeof(ask));
	memcpy(asked.uuid, k->desc.uuid, DDR_UUID_BYTES);
	asked.members = members_of(&k->desc);
	ask.check = true;
	ask.done = answered;
	for (uint32_t i = 0; i < k->desc.count; i++)
		fence_ask_uri(&ask, k->desc.uri[i]);
	fence_run(&ask);
}

static bool is_due(const struct array_entry *k)
{
	const struct verdict *v = verdict_of(k->desc.uuid);

	return !v || v->members != members_of(&k->desc) ||
	       (v->why[0] && now_ms() - v->at_ms >= AGAIN_MS);
}

static void look(void)
{
	for (uint32_t i = 0; !asked.members && i < manager_count(); i++) {
		const struct array_entry *k = array_of(manager_at(i)->desc.uuid);

		if (k && is_due(k))
			begin(k);
	}
}

static void look_again(void *data)
{
	(void)data;
	look();
	qb_loop_timer_add(loop, QB_LOOP_LOW, LOOK_NS, NULL, look_again, &timer);
}

void fence_members_start(struct qb_loop *l)
{
	loop = l;
	if (fence_checks())
		look_again(NULL);
}

void fence_members_stop(void)
{
	stopped = true;
	if (timer)
		qb_loop_timer_del(loop, timer);
}

const char *fence_members_why(const uint8_t uuid[DDR_UUID_BYTES])
{
	const struct verdict *v = verdict_of(uuid);

	return v && v->why[0] ? v->why : NULL;
}
