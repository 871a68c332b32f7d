// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Looking into an array: copies for the main thread, requests of people, and what is logged by
 * itself when it changes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/runtime/array_int.h"

/* ---- copies --------------------------------------------------------------------------------- */

static void dev_fill(const struct array *a, uint32_t i, struct array_dev_status *s)
{
	const struct dev *d = &a->dev[i];

	s->used = d->used && !d->closing;
	if (!s->used)
		return;
	strcpy(s->uri, d->uri);
	s->up = d->up && !d->foreign;
	s->info = d->info;
	s->member = a->e ? engine_member_of_dev(a->e, i) : 0xff;
	s->down_ms = d->up || !d->down_us ? 0 : (loop_now_us(a->loop) - d->down_us) / 1000;
	strcpy(s->why, d->why);
}

static void locks_fill(const struct array *a, struct array_status *st)
{
	st->locks = locks_external(a) ? "dlm" : NULL;
	if (a->locks && a->locks_up)
		lock_waits(a->locks, st->locks_wait);
	if (a->locks_why[0]) {
		strcpy(st->locks_wait, a->locks_why);
		st->locks_us = a->locks_us;
	}
}

/*
 * Writes need all members of the map. What this node can't use has to come back, or a map without
 * it be committed; and while a member is promoted, no write begins (core/cluster/quiesce.c).
 */
static bool writes_wait(const struct engine_status *e)
{
	return e->state == ENGINE_ACTIVE && e->waits &&
	       (!e->io_allowed || e->unusable ||
		(e->proposing && map_promotes(&e->map, &e->proposed)));
}

/* A record that fails says so where something waits: whatever that is, it is behind this. */
static void record_fill(const struct array *a, struct array_status *st)
{
	if (!a->record_why[0] || (st->engine.state == ENGINE_ACTIVE && !st->engine.waits))
		return;
	snprintf(st->record_why, sizeof(st->record_why), "this node's record%s: %s",
		 st->writes_wait ? ", and writes wait for it" : "", a->record_why);
	st->record_us = a->record_us;
	if (st->engine.waits && st->engine.waits_since_us > st->record_us)
		st->record_us = st->engine.waits_since_us;
}

/*
 * This node's last incarnation is fenced before there is an engine, which takes it for lost when it
 * meets it, and for fenced at once. It was lost when that fence began, and the fence took its time.
 */
static void last_fence_fill(const struct array *a, struct engine_status *e)
{
	for (uint32_t i = 0; i < e->recovery_count && a->last_fence.ended_us; i++) {
		if (e->recovery[i].inc != a->last_fence.inc || !e->recovery[i].fenced_us)
			continue;
		e->recovery[i].lost_us = a->last_fence.began_us;
		e->recovery[i].fenced_us = a->last_fence.ended_us;
		e->recovery[i].fenced_before = false;
	}
}

void status_fill(struct array *a, struct array_status *st)
{
	struct timespec wall;
	const struct geo *g;

	memset(st, 0, sizeof(*st));
	st->phase = a->phase;
	st->now_us = loop_now_us(a->loop);
	clock_gettime(CLOCK_REALTIME, &wall);
	st->wall_ms = (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000;
	st->inc = a->inc;
	st->self = a->self;
	st->slot = UINT32_MAX;
	st->view_count = a->view_count;
	memcpy(st->view, a->view, sizeof(st->view));
	locks_fill(a, st);
	st->fence_node = a->fence_node;
	strcpy(st->fence_why, a->fence_why);
	strcpy(st->waits, a->waits);
	st->waits_us = a->waits_us;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		st->dev[i].member = 0xff;
		dev_fill(a, i, &st->dev[i]);
	}
	st->force_members = a->live.options.force_members;
	for (uint32_t i = 0, n = 0; a->front && i < OPTION_LISTEN_MAX; i++) {
		if (a->listens[i])
			strcpy(st->listen[n++], a->live.options.listen[i]);
		strcpy(st->listen_why[i], a->listen_why[i]);
	}
	if (a->front) {
		front_stats(a->front, &st->front);
		st->client_count = front_clients(a->front, st->client, ARRAY_STATUS_CLIENTS);
	}
	disk_status(a, st);
	if (!a->e)
		return;
	engine_status(a->e, &st->engine);
	st->token_ms = a->token_ms;
	memcpy(st->changed_us, a->changed_us, sizeof(st->changed_us));
	last_fence_fill(a, &st->engine);
	st->writes_wait = writes_wait(&st->engine);
	record_fill(a, st);
	g = engine_geo(a->e);
	st->have_geo = g;
	if (g)
		st->geo = *g;
	st->slot = engine_slot(a->e);
}

static void query_back(struct task *t)
{
	struct array_query *q = (struct array_query *)(void *)t;

	q->done(q, q->err);
}

static void query_run(struct task *t)
{
	struct array_query *q = (struct array_query *)(void *)t;
	struct array *a = q->array;

	q->err = a->running ? 0 : -ESHUTDOWN;
	if (!q->err)
		status_fill(a, &q->status);
	mailbox_post(a->env.main, &q->task, query_back);
}

void array_query(struct array *a, struct array_query *q)
{
	_Static_assert(offsetof(struct array_query, task) == 0, "found by its task");
	q->array = a;
	if (a->running) {
		mailbox_post(&a->box, &q->task, query_run);
		return;
	}
	q->err = -ESHUTDOWN;
	mailbox_post(a->env.main, &q->task, query_back);
}

/* ---- requests of people --------------------------------------------------------------------- */

static void admin_back(struct task *t)
{
	struct array_admin *q = (struct array_admin *)(void *)t;

	q->done(q, q->err, q->why);
}

static void admin_run(struct task *t)
{
	struct array_admin *q = (struct array_admin *)(void *)t;
	struct array *a = q->array;
	struct event ev = {.type = EV_ADMIN};

	if (!a->running || a->phase != ARRAY_PHASE_RUN) {
		q->err = -ESHUTDOWN;
		mailbox_post(a->env.main, &q->task, admin_back);
		return;
	}
	q->task.run = admin_back; /* where it goes when the engine has answered */
	q->tag = ++a->admin_tag;
	q->next = a->admins;
	a->admins = q;
	ev.admin.tag = q->tag;
	ev.admin.cmd = q->cmd;
	ev.admin.member = q->member;
	ev.admin.uri = strdup(q->uri);
	ev.admin.before = q->before;
	pump_push(a, &ev);
}

void array_admin(struct array *a, struct array_admin *q)
{
	_Static_assert(offsetof(struct array_admin, task) == 0, "found by its task");
	q->array = a;
	q->why[0] = '\0';
	if (a->running) {
		mailbox_post(&a->box, &q->task, admin_run);
		return;
	}
	q->err = -ESHUTDOWN;
	mailbox_post(a->env.main, &q->task, admin_back);
}

/* ---- the log -------------------------------------------------------------------------------- */

static void watch_members(struct array *a, const struct map *map)
{
	char why[192];

	for (uint8_t i = 0; i < map->n; i++) {
		const struct map_member *now = &map->member[i], *was = &a->logged.member[i];

		if (!a->logged.n || now->state == was->state)
			continue;
		a->changed_us[i] = loop_now_us(a->loop);
		member_cause_words(why, sizeof(why), engine_cause(a->e, i), a->self.node);
		array_say(a, now->state == MEMBER_IN_SYNC ? LOG_NOTICE : LOG_WARNING,
			  "member %u: %s -> %s (epoch %" PRIu64 ")%s%s", i,
			  member_state_name(was->state), member_state_name(now->state),
			  map->epoch.num, why[0] ? ": " : "", why);
	}
}

static void watch_waits(struct array *a, const struct engine_status *st)
{
	char text[sizeof(a->seen_waits)] = "";

	if (st->waits && st->waits_node)
		snprintf(text, sizeof(text), "%s, node %u", st->waits, st->waits_node);
	else if (st->waits)
		snprintf(text, sizeof(text), "%s", st->waits);
	/* What lasts over two looks. */
	if (!strcmp(text, a->seen_waits)) {
		if (text[0] && !a->waits_said) {
			array_say(a, LOG_NOTICE, "%s %s",
				  st->state == ENGINE_REFUSED ? "is refused:" : "waits for", text);
			a->waits_said = true;
		}
		return;
	}
	strcpy(a->seen_waits, text);
	a->waits_said = false;
}

static double seconds(uint64_t from_us, uint64_t to_us)
{
	return from_us && to_us > from_us ? (double)(to_us - from_us) / 1e6 : 0;
}

/* Nothing can set right what this node was writing when it died: a member was missing before the
 * resync had ended. */
static bool may_be_garbage(const struct engine_status *st, const struct recovery *r)
{
	return r->read_us && r->marked && map_degraded(&st->map);
}

/* What has come to pass in a recovery since `was`. */
static void watch_recovery(struct array *a, const struct engine_status *st,
			   const struct recovery *r, const struct recovery *was)
{
	if (!was->lost_us)
		array_say(a, LOG_INFO, "node %u (incarnation %016" PRIx64 ") was lost", r->node,
			  r->inc);
	if (r->fenced_us && !was->fenced_us && r->fenced_before)
		array_say(a, LOG_INFO, "node %u: it had been fenced by its own node before",
			  r->node);
	else if (r->fenced_us && !was->fenced_us)
		array_say(a, LOG_INFO, "node %u: its fence answered after %.1f s", r->node,
			  seconds(r->lost_us, r->fenced_us));
	if (r->read_us && !was->read_us && r->slot != UINT32_MAX)
		array_say(a, LOG_INFO, "node %u: its slot %u was read: %" PRIu64 " regions marked",
			  r->node, r->slot, r->marked);
	else if (r->read_us && !was->read_us)
		array_say(a, LOG_INFO, "node %u: it had no slot", r->node);
	if (may_be_garbage(st, r) && !may_be_garbage(&a->seen, was) && !was->done_us)
		array_say(a, LOG_WARNING,
			  "node %u died while a member is missing: what it was writing then, in "
			  "%" PRIu64 " marked regions, may be garbage",
			  r->node, r->marked);
	if (r->done_us && !was->done_us && r->marked)
		array_say(a, LOG_INFO,
			  "node %u: recovered; this node resynced %" PRIu64 " regions, %" PRIu64
			  " bytes, in %.1f s, and %" PRIu64 " bytes for reads",
			  r->node, r->regions, r->bytes, seconds(r->read_us, r->done_us),
			  r->read_bytes);
}

static void watch_recoveries(struct array *a, const struct engine_status *st)
{
	static const struct recovery none;

	for (uint32_t i = 0; i < st->recovery_count; i++) {
		const struct recovery *r = &st->recovery[i], *was = &none;

		for (uint32_t j = 0; j < a->seen.recovery_count; j++)
			if (a->seen.recovery[j].node == r->node &&
			    a->seen.recovery[j].inc == r->inc)
				was = &a->seen.recovery[j];
		watch_recovery(a, st, r, was);
	}
}

/* At most so often: a bad sector may be read over and over. */
#define UNREADABLE_SAY_US 10000000ull

static void watch_unreadable(struct array *a, struct engine_status *st)
{
	const struct unreadable *u = &st->unreadable;

	if (!u->us || u->us == a->seen.unreadable.us)
		return;
	if (a->seen.unreadable.us && u->us - a->seen.unreadable.us < UNREADABLE_SAY_US) {
		st->unreadable = a->seen.unreadable; /* what was logged last */
		return;
	}
	array_say(
	    a, LOG_ERR,
	    "a read error of the members %#x, and no other can stand in: %u bytes of the array "
	    "from byte %" PRIu64 "; write these blocks anew, or bring a member back",
	    u->members, u->bytes, u->offset);
}

/* Each is tried again and again: at most so often, unless it is another one. */
#define ERROR_SAY_US 60000000ull

static void watch_errors(struct array *a, struct engine_status *st)
{
	char text[160];

	for (uint8_t i = 0; i < st->map.n; i++) {
		const struct member_error *x = &st->error[i], *was = &a->seen.error[i];

		if (!x->err || x->count == was->count)
			continue;
		if (x->err == was->err && x->op == was->op && x->fua == was->fua &&
		    x->us - was->us < ERROR_SAY_US) {
			st->error[i] = *was; /* what was logged last */
			continue;
		}
		member_error_words(text, sizeof(text), x);
		array_say(a, LOG_ERR, "member %u: %s", i, text);
	}
}

/* A broken node may send any number of them. */
#define REJECTED_SAY_US 10000000ull

static void watch_rejected(struct array *a, const struct engine_status *st)
{
	uint64_t now_us = loop_now_us(a->loop);

	if (st->rejected == a->seen.rejected || now_us < a->rejected_say_us)
		return;
	a->rejected_say_us = now_us + REJECTED_SAY_US;
	array_say(
	    a, LOG_ERR,
	    "a message of node %u breaks a rule (%s), and is dropped: ddraidd of that node is "
	    "broken, or its memory; stop it, and look into its log; %" PRIu64
	    " such messages so far",
	    st->rejected_node, st->rejected_why, st->rejected);
}

/* A rebuild that is not under way any more may only stand still, while somebody who departed is
 * not fenced, or have ended because its member left. */
static bool rebuilt(const struct map *now, const struct map *was)
{
	bool through = false;

	for (uint8_t i = 0; i < now->n; i++) {
		if (now->member[i].state == MEMBER_REBUILDING)
			return false;
		through |= was->n && was->member[i].state == MEMBER_REBUILDING &&
			   now->member[i].state == MEMBER_IN_SYNC;
	}
	return through;
}

/* After each event: a member may leave, and be back, between two looks at the status. */
void status_map(struct array *a)
{
	const struct map *map = engine_map(a->e);

	if (!epoch_cmp(&map->epoch, &a->logged.epoch))
		return;
	watch_members(a, map);
	if (rebuilt(map, &a->logged))
		array_say(a, LOG_NOTICE, "the rebuild is through");
	a->logged = *map;
}

void status_watch(struct array *a)
{
	struct engine_status st;

	if (!a->e || a->phase == ARRAY_PHASE_CLOSE)
		return;
	engine_status(a->e, &st);
	last_fence_fill(a, &st);
	if (st.state != a->seen.state)
		array_say(a, LOG_INFO, "%s", engine_state_name(st.state));
	life_refused(a, st.state == ENGINE_REFUSED && st.waits ? st.waits : "");
	watch_errors(a, &st);
	watch_waits(a, &st);
	watch_recoveries(a, &st);
	watch_unreadable(a, &st);
	watch_rejected(a, &st);
	if (st.leading && !a->seen.leading)
		array_say(a, LOG_INFO, "this node leads");
	if (!st.slots_unrecovered && a->seen.slots_unrecovered)
		array_say(a, LOG_NOTICE,
			  "all dead slots are recovered; parity of %" PRIu64
			  " stripes was set right",
			  st.parity_fixed);
	a->seen = st;
	if (a->phase == ARRAY_PHASE_RUN)
		dev_settle(a);
}
