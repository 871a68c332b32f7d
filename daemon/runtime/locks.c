// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The lock manager of an array, where that is none of the core's: a handle on its lock space for
 * each incarnation, opened before the engine hears of the incarnation, and closed when it ends.
 *
 *	none -(locks_open)-> joining -(up: life_ready)-> up -(OUT_REMOVED, the end)-> none
 *	  ^			|			 |
 *	  |			+-- lost: again soon	 +-- lost: EV_GIVE_UP, so that the
 *	  +---- what it needs is missing: again soon	     incarnation ends: OUT_REMOVED;
 *							     so before a message, if not kept
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/units.h"
#include "daemon/runtime/array_int.h"

#define LOCKS_AGAIN_MS 2000u

/* A lone node has nobody to lock anything against. */
bool locks_external(const struct array *a)
{
	return a->live.options.dlm && strcmp(a->env.conf->cluster, "alone") != 0;
}

static void locks_wait(struct array *a, const char *why)
{
	if (!a->locks_why[0])
		a->locks_us = loop_now_us(a->loop);
	snprintf(a->locks_why, sizeof(a->locks_why), "%s", why);
	if (!a->e)
		array_waits(a, "%s", why);
}

static void locks_up(void *arg)
{
	struct array *a = arg;

	a->locks_up = true;
	a->locks_why[0] = a->life_said[0] = '\0';
	life_ready(a);
}

static void locks_event(struct array *a, enum ev_type type, uint64_t id, enum lock_mode mode)
{
	struct event ev = {.type = type, .lock = {.id = id, .mode = mode}};

	if (a->e)
		pump_push(a, &ev);
}

static void locks_granted(void *arg, uint64_t id, enum lock_mode mode)
{
	locks_event(arg, EV_LOCK_GRANTED, id, mode);
}

static void locks_refused(void *arg, uint64_t id, enum lock_mode mode)
{
	locks_event(arg, EV_LOCK_REFUSED, id, mode);
}

static void locks_callback(void *arg, uint64_t id, enum lock_mode wanted)
{
	locks_event(arg, EV_LOCK_CALLBACK, id, wanted);
}

/* One that served is removed, and pump_end asks for the next; one that never was there is opened
 * again. */
static void locks_lost(void *arg, int err, const char *why)
{
	struct array *a = arg;

	(void)err;
	life_say_once(a, why);
	locks_wait(a, why);
	if (a->locks_up)
		locks_event(a, EV_GIVE_UP, 0, LOCK_MODE_NONE);
	else
		loop_timer_set(a->loop, &a->locks_again,
			       loop_now_us(a->loop) + LOCKS_AGAIN_MS * 1000ull);
}

static const struct lock_cb locks_cb = {
    .up = locks_up,
    .granted = locks_granted,
    .refused = locks_refused,
    .callback = locks_callback,
    .lost = locks_lost,
};

/* Else others may be granted what this node holds, and ask about it. */
bool locks_kept(const struct array *a)
{
	return !a->locks_up || lock_kept(a->locks);
}

/* Of the array's UUID: a node that was away may still know another array by its name. */
void locks_open(struct array *a)
{
	const struct lock_ops *ops = lock_manager_find("dlm");
	char name[LOCK_SPACE_BYTES], uuid[UUID_TEXT_BYTES];
	struct lock_cfg cfg = {
	    .loop = a->loop, .name = name, .node = a->self.node, .cb = &locks_cb, .arg = a};
	const char *missing;

	locks_close(a, true); /* nothing was granted by it, or it is closed */
	if (!locks_external(a)) {
		life_ready(a);
		return;
	}
	missing = ops ? lock_missing(ops)
		      : "its locks are the kernel's DLM's, and this ddraidd was "
			"built without that; build it with libdlm";
	snprintf(name, sizeof(name), "ddraid-%s", uuid_format(uuid, a->live.uuid));
	cfg.inc = a->inc;
	if (!missing && lock_open(ops, &cfg, &a->locks))
		missing = "no thread for the lock space could be started: memory is short";
	if (missing) {
		locks_lost(a, -ENODEV, missing);
		return;
	}
	if (!a->locks_why[0])
		locks_wait(a, "the lock space of the kernel's DLM");
}

void locks_again(void *arg)
{
	struct array *a = arg;

	if (a->phase < ARRAY_PHASE_STOP)
		locks_open(a);
}

void locks_close(struct array *a, bool ended)
{
	lock_close(a->locks, ended);
	a->locks = NULL;
	a->locks_up = false;
	loop_timer_clear(a->loop, &a->locks_again);
}
