// SPDX-License-Identifier: GPL-2.0-or-later
/* The daemon's parts, in the order in which they start and end. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <qb/qbloop.h>

#include "daemon/daemon.h"
#include "daemon/base/clock.h"
#include "daemon/catalog/fence_members.h"
#include "daemon/catalog/lost.h"
#include "daemon/catalog/reserve.h"
#include "daemon/ctl/create/unmake.h"
#include "daemon/ctl/ctl.h"
#include "daemon/state/store.h"

/* ---- what the daemons tell each other ------------------------------------------------------- */

#define LOOK_NS 2000000000ull
static qb_loop_timer_handle look_timer;
static bool dlm_told;

static void tell_node(bool all)
{
	static struct announce_running r[STORE_MAX_ARRAYS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < manager_count(); i++) {
		struct array_entry *k = manager_at(i);

		if (!array_running(k->array))
			continue;
		memcpy(r[n].uuid, k->desc.uuid, DDR_UUID_BYTES);
		r[n].clients = k->clients;
		r[n].kept = k->kept_clients ? k->desc.said : 0;
		r[n].refused = k->refused;
		r[n++].serving = k->serving;
	}
	announce_running(r, n, all);
	dlm_told = announce_dlm();
}

static void tell_running(void)
{
	tell_node(false);
}

/* What nobody tells of. Files of the state directory may be deleted, and ddraidctl's socket;
 * dlm_controld may be started, or end, at any time, and `create` on another node goes by what is
 * told. */
static void look(void *arg)
{
	(void)arg;
	store_run_look();
	ipc_look();
	manager_look();
	if (strcmp(ctl_env.conf->cluster, "alone") != 0 && announce_dlm() != dlm_told)
		tell_running();
	qb_loop_timer_add(ctl_env.loop, QB_LOOP_LOW, LOOK_NS, NULL, look, &look_timer);
}

static void tell_all(void)
{
	const struct store_forgotten *list;
	uint32_t n;

	list = manager_forgotten_list(&n);
	announce_forgotten(list, n);
	for (uint32_t i = 0; i < manager_count(); i++) {
		const struct array_entry *k = manager_at(i);

		if (!k->desc.forgotten && !k->damaged && !k->desc.guessed)
			announce_array(&k->desc);
	}
	reserve_tell();
	tell_node(true);
}

/* ---- reservations --------------------------------------------------------------------------- */

static uint64_t draw(void)
{
	uint64_t n;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		abort();
	return n;
}

static int name_free(const char *name, const uint8_t *uuid, char why[RESERVE_WHY_BYTES])
{
	const struct array_entry *k = manager_find(name, true);
	uint32_t self = announce_state()->self.node;
	char lost[STORE_WHY_BYTES];

	if (!k && uuid && lost_other(name, uuid, lost)) {
		snprintf(why, RESERVE_WHY_BYTES,
			 "is that of an array which node %u has lost; take another name, or see to "
			 "that one: %.600s",
			 self, lost);
		return -EEXIST;
	}
	if (!k)
		return 0;
	if (k->desc.forgotten)
		snprintf(why, RESERVE_WHY_BYTES, "is still being forgotten on node %u; try again",
			 self);
	else
		snprintf(why, RESERVE_WHY_BYTES,
			 "is that of an array which node %u knows already; take another name",
			 self);
	return k->desc.forgotten ? -EAGAIN : -EEXIST;
}

/* What a node that left may still do: until it sees that it is out, and then in its sockets. */
static void reserve_begin(const struct config *conf)
{
	struct reserve_env r = {
	    .send = announce_message, .now_ms = now_ms, .random = draw, .name_free = name_free};

	r.linger_ms = config_heard_ms(conf) + conf->member_zombie_ms;
	reserve_init(&r);
}

static void heard(const struct store_array *desc)
{
	if (manager_apply(desc, false) > 0)
		say(LOG_NOTICE, "%s: version %llu was told by another node", desc->name,
		    (unsigned long long)desc->version);
}

static void forgot(const struct store_forgotten *f)
{
	announce_forgotten(f, 1);
}

static void again_fired(void *arg)
{
	(void)arg;
	manager_again();
}

static void again(uint32_t ms)
{
	qb_loop_timer_handle timer;

	qb_loop_timer_add(ctl_env.loop, QB_LOOP_MED, ms * 1000000ull, NULL, again_fired, &timer);
}

static const struct manager_cb manager_cb = {
    .news = announce_array, .forgot = forgot, .moved = tell_running, .again = again};
static const struct announce_cb announce_cb = {
    .array = heard, .forgotten = manager_forgotten, .fresh = tell_all};

/* ---- start and end -------------------------------------------------------------------------- */

int daemon_start(const struct daemon_env *env, char why[STORE_WHY_BYTES])
{
	int err;

	ctl_env = *env;
	err = ipc_open(env->loop, env->conf->run_dir, env->conf->ipc_name, why, STORE_WHY_BYTES);
	reserve_begin(env->conf);
	if (!err)
		err = manager_open(env->conf, env->main, env->worker, &manager_cb, why);
	if (!err)
		err = lost_open(why);
	if (!err)
		err = unmake_open(why);
	if (err) {
		ipc_close();
		return err;
	}
	fence_members_start(env->loop);
	err = announce_start(env->conf->cluster, env->main, &announce_cb);
	if (err)
		snprintf(why, STORE_WHY_BYTES, "the daemons' group can't be started: %s",
			 strerror(-err));
	else
		look(NULL);
	return err;
}

void daemon_stop(void (*done)(void))
{
	manager_stop_all(done);
}

void daemon_end(void)
{
	if (look_timer)
		qb_loop_timer_del(ctl_env.loop, look_timer);
	fence_members_stop();
	announce_stop();
	ipc_close();
}
