// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/ctl/create/unmake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qb/qbloop.h>

#include "daemon/base/clock.h"
#include "daemon/base/warnings.h"
#include "daemon/ctl/create/create_job.h"
#include "daemon/ctl/ctl.h"

#define AGAIN_MS 5000u
#define RESERVE_AGAIN_MS 500u
#define RESERVE_MS 15000u /* how long "ask again" is asked again before the status warns */

struct unmake {
	struct unmake *next;
	struct store_array desc;
	struct create_job *m; /* while it is tried */
	uint64_t began_ms;
	char why[STORE_WHY_BYTES];
};

static struct unmake *all;
static bool ticking;

static void attempt(void *data);

static void later(uint32_t ms, void (*fn)(void *data), void *data)
{
	qb_loop_timer_handle timer;

	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, ms * 1000000ull, data, fn, &timer);
}

static void unmake_free(struct unmake *u)
{
	struct unmake **at = &all;

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	free(u);
}

static void failed(struct unmake *u, const char *why)
{
	char text[STORE_WHY_BYTES];

	snprintf(text, sizeof(text),
		 "a create of %s was cut off, and not all of it is undone yet: %.600s; it is tried "
		 "again",
		 u->desc.name, why);
	if (strcmp(text, u->why))
		say(LOG_WARNING, "%s", text);
	strcpy(u->why, text);
	later(AGAIN_MS, attempt, u);
}

static void done(struct create_job *m, int err, const char *why)
{
	struct unmake *u = m->arg;

	reserve_release(&m->reserve);
	u->m = NULL;
	if (err) {
		failed(u, why);
	} else {
		say(LOG_NOTICE, "%s: a create that was cut off is undone", u->desc.name);
		unmake_free(u);
	}
	free(m);
}

/* As long as one asks: it may be that nobody answers. */
static void tick(void *data)
{
	ticking = false;
	for (const struct unmake *u = all; u; u = u->next)
		ticking |= u->m && u->m->reserve.state == RESERVE_ASKED;
	if (!ticking)
		return;
	later(RESERVE_AGAIN_MS, tick, data);
	reserve_tick();
}

static void ask(void *data)
{
	reserve_ask(data);
	if (!ticking)
		later(RESERVE_AGAIN_MS, tick, NULL);
	ticking = true;
}

static void reserve_done(struct reserve *r, int err, int key, const char *why)
{
	struct unmake *u = r->arg;

	(void)key;
	if (err == -EAGAIN && now_ms() - u->began_ms < RESERVE_MS)
		later(RESERVE_AGAIN_MS, ask, r);
	else
		create_job_go(u->m, err, why);
}

static void reserve_lost(struct reserve *r, const char *why)
{
	struct unmake *u = r->arg;

	create_job_lost(u->m, why);
}

/* Only the devices: whoever takes the name harms nothing here. */
static void reserving(struct create_job *m)
{
	struct reserve *r = &m->reserve;

	snprintf(r->what, sizeof(r->what), "undoing of a create of %.60s", m->desc.name);
	r->brief = true;
	r->done = reserve_done;
	r->lost = reserve_lost;
	r->arg = m->arg;
	ask(r);
}

static void attempt(void *data)
{
	struct unmake *u = data;
	struct create_job *m;
	int err;

	if (!announce_state()->up) { /* this node's id is part of what a device is known by */
		later(RESERVE_AGAIN_MS, attempt, u);
		return;
	}
	m = calloc(1, sizeof(*m));
	assert(m);
	m->conf = ctl_env.conf;
	m->main = ctl_env.main;
	m->what = CREATE_JOB_UNDO;
	m->node = announce_state()->self.node;
	m->desc = u->desc;
	m->reserving = reserving;
	m->done = done;
	m->arg = u;
	u->m = m;
	u->began_ms = now_ms();
	err = create_job_start(m);
	if (!err)
		return;
	u->m = NULL;
	free(m);
	failed(u, strerror(-err));
}

void unmake_add(const struct store_array *desc)
{
	struct unmake *u = calloc(1, sizeof(*u));

	assert(u);
	u->desc = *desc;
	u->next = all;
	all = u;
	attempt(u);
}

static void found(void *arg, const struct store_array *desc, const char *damage)
{
	char why[STORE_WHY_BYTES];

	(void)arg;
	if (damage) {
		warnings_add("a create was cut off, and %s", damage);
		return;
	}
	if (!manager_find_uuid(desc->uuid)) {
		unmake_add(desc);
		return;
	}
	if (store_remove_making(desc, why)) /* it had come to its end */
		say(LOG_WARNING, "%s", why);
}

int unmake_open(char why[STORE_WHY_BYTES])
{
	return store_scan_making(found, NULL, why);
}

const char *unmake_busy(void)
{
	for (const struct unmake *u = all; u; u = u->next)
		if (!u->why[0] || (u->m && u->m->reserve.state == RESERVE_HELD))
			return u->desc.name;
	return NULL;
}

const char *unmake_warning(uint32_t i)
{
	for (const struct unmake *u = all; u; u = u->next)
		if (u->why[0] && !i--)
			return u->why;
	return NULL;
}
