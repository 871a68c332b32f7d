// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Life of an array's runtime: the thread, its phases, start and stop, the group's callbacks and the
 * front-end. array_int.h has the picture.
 *
 * The main thread makes the loop before the thread starts and frees it after the thread has ended,
 * so that a task can be posted at any time in between.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/base/units.h"
#include "daemon/runtime/array_int.h"
#include "daemon/runtime/process.h"

/* How long the end waits for the group. One that can't be left says after 5 s that it is lost. */
#define LEAVE_MS 5500u

void array_say(const struct array *a, int priority, const char *format, ...)
{
	char text[LOG_TEXT_BYTES];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	say(priority, "%s: %s", a->live.name, text);
}

void array_phase(struct array *a, enum array_phase phase)
{
	if (phase == ARRAY_PHASE_FENCE) {
		a->last_fence.inc = a->rec.inc;
		a->last_fence.began_us = loop_now_us(a->loop);
	} else if (a->phase == ARRAY_PHASE_FENCE && phase == ARRAY_PHASE_RECORD) {
		a->last_fence.ended_us = loop_now_us(a->loop);
	}
	a->phase = phase;
	a->waits[0] = '\0';
	a->waits_us = loop_now_us(a->loop);
}

void array_waits(struct array *a, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(a->waits, sizeof(a->waits), format, ap);
	va_end(ap);
}

void array_fail(struct array *a, const char *format, ...)
{
	va_list ap;

	if (!a->failure[0]) {
		va_start(ap, format);
		vsnprintf(a->failure, sizeof(a->failure), format, ap);
		va_end(ap);
		array_say(a, LOG_ERR, "%s", a->failure);
	}
	array_close(a);
}

static void again_fired(void *arg)
{
	struct array *a = arg;

	a->again_do(a);
}

void array_again(struct array *a, uint32_t ms, void (*do_it)(struct array *a))
{
	a->again_do = do_it;
	loop_timer_set(a->loop, &a->again, loop_now_us(a->loop) + ms * 1000ull);
}

static void limit_in(struct array *a, uint32_t ms)
{
	loop_timer_set(a->loop, &a->limit, loop_now_us(a->loop) + ms * 1000ull);
}

/*
 * In CLOSE, when the group is left. Unless that was a clean end, what this incarnation had sent may
 * still land: consumers are told when all others have heard, or do no I/O since they have heard
 * nothing (R7, R9), as with a node that gives up (core/cluster/round.c).
 */
static void tell_soon(struct array *a)
{
	if (!a->told)
		limit_in(a, a->stopped_cleanly ? 0 : a->tell_ms);
}

/* ---- the group ------------------------------------------------------------------------------ */

static const char two_node_waits[] =
    "corosync's two_node is on: two nodes that lose sight of each other both have quorum, and a "
    "wait fences neither; set a fence_command in [fence] of ddraid.conf, or give the cluster a "
    "third node or a quorum device";

static void group_up(void *arg, const struct group_self *self)
{
	struct array *a = arg;
	char name[GROUP_NAME_BYTES], uuid[UUID_TEXT_BYTES];

	if (a->phase >= ARRAY_PHASE_STOP)
		return;
	if (a->e && self->node != a->self.node) {
		array_fail(a, "this node's id changed from %u to %u; start the array again",
			   a->self.node, self->node);
		return;
	}
	if (self->two_node && a->env.conf->fence != FENCE_COMMAND) {
		array_fail(a, "%s", two_node_waits);
		return;
	}
	a->self = *self;
	a->group_up = true;
	if (a->phase == ARRAY_PHASE_GROUP) {
		a->alone = !strcmp(a->env.conf->cluster, "alone");
		life_load(a);
	} else if (a->e) {
		/* Not by name: a node that was away may still know another array by it. */
		snprintf(name, sizeof(name), "ddraid:%s", uuid_format(uuid, a->live.uuid));
		a->joined = group_join(a->group, name) == 0;
	}
}

static void group_view(void *arg, const struct group_view *v)
{
	struct array *a = arg;
	struct event ev = {.type = EV_VIEW};

	a->view_count = ev.view.count = v->count;
	ev.view.ring = v->ring;
	memcpy(a->view, v->node, sizeof(a->view));
	memcpy(ev.view.node, v->node, sizeof(ev.view.node));
	if (a->e)
		pump_push(a, &ev);
}

static void group_quorum(void *arg, const struct group_quorum *q)
{
	struct array *a = arg;
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = q->ring;
	ev.view.quorate = q->quorate;
	ev.view.two_node = q->two_node;
	if (q->two_node && q->quorate && q->count < 2 && a->env.conf->fence != FENCE_COMMAND)
		array_say(a, LOG_ERR, "%s", two_node_waits);
	ev.view.count = q->count;
	memcpy(ev.view.node, q->node, sizeof(ev.view.node));
	a->quorum = ev;
	if (a->e)
		pump_push(a, &ev);
}

static void group_msg(void *arg, uint32_t from, const void *data, size_t bytes)
{
	struct array *a = arg;
	struct event ev = {.type = EV_MSG};
	uint8_t *copy;

	if (!a->e || a->phase == ARRAY_PHASE_CLOSE)
		return;
	copy = malloc(bytes ? bytes : 1);
	assert(copy); /* a message that is lost would break the group's order */
	memcpy(copy, data, bytes);
	ev.msg.from = from;
	ev.msg.data = copy;
	ev.msg.bytes = bytes;
	pump_push(a, &ev);
}

static void group_broken(void *arg, uint32_t node, const char *why)
{
	struct array *a = arg;
	struct event ev = {.type = EV_MSG, .msg = {.from = node, .broken = why}};

	if (a->e && a->phase != ARRAY_PHASE_CLOSE)
		pump_push(a, &ev);
}

static void group_lost(void *arg, int err, const char *why)
{
	struct array *a = arg;
	struct event ev = {.type = EV_QUORUM};
	bool leaves = a->phase == ARRAY_PHASE_CLOSE && a->joined;

	array_say(a, LOG_ERR, "the cluster stack is lost: %s (%s)", why, strerror(-err));
	a->group_up = a->joined = false;
	a->view_count = 0;
	pump_drop_messages(a);
	/* Without quorum, and by a ring that no view has. */
	a->quorum = ev;
	if (a->e)
		pump_push(a, &ev);
	if (leaves)
		tell_soon(a);
}

static void group_left(void *arg)
{
	struct array *a = arg;
	bool leaves = a->phase == ARRAY_PHASE_CLOSE && a->joined;

	a->group_up = a->joined = false;
	if (leaves)
		tell_soon(a);
}

static void group_writable(void *arg)
{
	pump_writable(arg);
}

static void group_log(void *arg, int priority, const char *text)
{
	array_say(arg, priority, "group: %s", text);
}

static const struct group_cb group_cb = {
    .up = group_up,
    .view = group_view,
    .quorum = group_quorum,
    .msg = group_msg,
    .lost = group_lost,
    .left = group_left,
    .writable = group_writable,
    .broken = group_broken,
    .log = group_log,
};

/* ---- the front-end -------------------------------------------------------------------------- */

static void front_log(void *arg, int priority, const char *text)
{
	array_say(arg, priority, "%s", text);
}

static int front_start(struct array *a, char why[FRONT_WHY_BYTES])
{
	char path[CONFIG_PATH_BYTES + DDR_NAME_BYTES + 16];
	const struct front_ops *ops = front_find("nbd");
	struct front_cfg cfg = {.loop = a->loop};

	cfg.sink.submit = pump_submit;
	cfg.sink.log = front_log;
	cfg.sink.arg = a;
	snprintf(path, sizeof(path), "unix:%s/%s.nbd", a->env.conf->run_dir, a->live.name);
	cfg.listen[0] = path;
	cfg.socket_mode = a->env.conf->socket_mode;
	cfg.socket_group = a->env.conf->socket_gid;
	return ops->open(&cfg, &a->front, why);
}

/*
 * At the other addresses. One that can't be had, as it is another process's, is no reason not to
 * serve, nor to hide what else the array waits for: it is tried again and again.
 */
static void front_listen_all(struct array *a)
{
	for (int i = 0; i < OPTION_LISTEN_MAX && a->live.options.listen[i][0]; i++) {
		char why[FRONT_WHY_BYTES] = "";

		if (a->listens[i])
			continue;
		a->listens[i] = !front_listen(a->front, a->live.options.listen[i], why);
		if (a->listens[i] && a->listen_why[i][0])
			array_say(a, LOG_NOTICE, "is served on %s now", a->live.options.listen[i]);
		else if (!a->listens[i] && strcmp(why, a->listen_why[i]) != 0)
			array_say(a, LOG_ERR, "%s; it is tried again", why);
		strcpy(a->listen_why[i], why);
	}
}

/* ---- phases --------------------------------------------------------------------------------- */

/* Who this is, for others that would use the same members. */
static void use_cfg_fill(struct array *a, struct engine_cfg *cfg)
{
	uint64_t wall_us, now_us = loop_now_us(a->loop);
	struct timespec wall;

	/* Never less, of so few bytes. An incarnation is no nonce: a copied state directory has it
	 * too. */
	if (getrandom(&cfg->nonce, sizeof(cfg->nonce), 0) != sizeof(cfg->nonce))
		abort();
	snprintf(cfg->cluster, sizeof(cfg->cluster), "%.*s", DDR_NAME_BYTES - 1, a->self.cluster);
	snprintf(cfg->host, sizeof(cfg->host), "%.*s", DDR_NAME_BYTES - 1, a->self.name);
	process_self(&cfg->process);
	clock_gettime(CLOCK_REALTIME, &wall);
	wall_us = (uint64_t)wall.tv_sec * 1000000 + (uint64_t)wall.tv_nsec / 1000;
	/* Down, so that no time of it is in the future. */
	if (wall_us > now_us)
		cfg->wall_s = (wall_us - now_us) / 1000000;
	/* In a cluster nobody renews it before a lost leader was noticed: that takes the token and
	 * consensus time-outs, or `evict`. */
	if (a->self.cluster[0])
		cfg->tun.patience_ms += 3 * a->self.token_ms + a->env.conf->evict_ms;
}

/* R7: half of what it takes the others to give this node up. A daemon that falls silent they give
 * up after `evict`, whatever the token. */
uint32_t array_limit_ms(const struct config *c, uint32_t token_ms)
{
	struct engine_cfg cfg;

	if (c->heartbeat_limit_ms)
		return c->heartbeat_limit_ms;
	engine_cfg_init(&cfg);
	if (token_ms)
		cfg.tun.heartbeat_limit_ms = token_ms / 2;
	return cfg.tun.heartbeat_limit_ms < c->evict_ms / 2 ? cfg.tun.heartbeat_limit_ms
							    : c->evict_ms / 2;
}

static void engine_cfg_fill(struct array *a, struct engine_cfg *cfg)
{
	const struct config *c = a->env.conf;

	engine_cfg_init(cfg);
	cfg->node = a->self.node;
	cfg->inc = a->inc;
	memcpy(cfg->array_uuid, a->live.uuid, DDR_UUID_BYTES);
	cfg->record = a->rec.record;
	cfg->force = a->force;
	cfg->fenced_inc = a->alone ? 0 : a->fenced_inc; /* own_is_fenced goes by each */
	cfg->lock_backend = locks_external(a) ? LOCK_EXTERNAL : LOCK_TABLE;
	cfg->fence_waits = c->fence != FENCE_COMMAND;
	cfg->fence_ms = c->fence == FENCE_ZOMBIE_TIMEOUT ? c->zombie_timeout_ms : 0;
	cfg->two_node = a->self.two_node;
	use_cfg_fill(a, cfg);
	cfg->tun.restart_wait_ms = c->restart_wait_ms;
	options_apply(&a->live.options, &cfg->tun);
	cfg->tun.heartbeat_ms = c->heartbeat_ms;
	cfg->tun.evict_ms = c->evict_ms;
	/* Who had writes on a connection that broke waits before it uses the next one (R5). */
	cfg->tun.reach_ms = c->evict_ms + c->member_zombie_ms;
	a->token_ms = a->self.token_ms;
	cfg->tun.heartbeat_limit_ms = array_limit_ms(c, a->token_ms);
	if (cfg->tun.heartbeat_limit_ms > c->evict_ms / 2)
		array_say(a, LOG_WARNING,
			  "heartbeat_limit %u ms is more than half of evict, %u ms: lower it, or a "
			  "daemon that stood still may write too long",
			  cfg->tun.heartbeat_limit_ms, c->evict_ms);
	if (a->self.token_ms && cfg->tun.heartbeat_limit_ms > a->self.token_ms / 2)
		array_say(a, LOG_WARNING,
			  "heartbeat_limit %u ms is more than half of corosync's token time-out, "
			  "%u ms: lower it, or a node that was cut off may write too long",
			  cfg->tun.heartbeat_limit_ms, a->self.token_ms);
	if (a->lease_ms && a->lease_ms < 2 * cfg->tun.heartbeat_limit_ms)
		array_say(a, LOG_WARNING,
			  "zombie_timeout in [fence] is only %u ms longer than request_timeout: "
			  "raise it, or a heartbeat that is a little late breaks off all members",
			  2 * a->lease_ms);
	if (cfg->tun.heartbeat_ms * 4 > cfg->tun.heartbeat_limit_ms)
		cfg->tun.heartbeat_ms = cfg->tun.heartbeat_limit_ms / 4;
}

/*
 * How long after its last heartbeat that counts this node may hand writes to its kernel. The others
 * wait for zombie_timeout. Of that the kernel needs request_timeout to give up what it has; half of
 * the rest is the lease, and half is left to the exporters, for what came in at the very end. 0 =
 * without limit: there are no others, or the fence ends whatever it sends.
 */
static uint32_t lease_ms(const struct config *c)
{
	if (!strcmp(c->cluster, "alone") || c->fence == FENCE_COMMAND || !c->member_request_ms ||
	    c->zombie_timeout_ms <= c->member_request_ms)
		return 0;
	return (c->zombie_timeout_ms - c->member_request_ms + 1) / 2;
}

void array_run(struct array *a)
{
	struct engine_cfg cfg;

	a->lease_ms = lease_ms(a->env.conf);
	engine_cfg_fill(a, &cfg);
	a->tell_ms = cfg.tun.heartbeat_limit_ms;
	a->e = engine_new(&cfg);
	if (!a->e) {
		array_fail(a, "memory is short: the engine can't start");
		return;
	}
	a->engine_inc = a->inc;
	array_phase(a, ARRAY_PHASE_RUN);
	array_say(a, LOG_INFO, "node %u, incarnation %llu", a->self.node,
		  (unsigned long long)a->inc);
	if (a->quorum.type == EV_QUORUM)
		pump_push(a, &a->quorum);
	dev_open_all(a);
	if (a->group_up)
		group_up(a, &a->self);
	pump_tick(a);
}

static void revoke_device(struct array *a)
{
	char why[FRONT_WHY_BYTES] = "";

	if (disk_stop(a, ARRAY_STOP_FORCED, why))
		array_say(a, LOG_ERR, "stops, and its device stays: %s", why);
}

/* A device that is not revoked waits for the next daemon. */
static void tell(struct array *a)
{
	a->told = true;
	if (a->front)
		front_reset(a->front);
	if (a->revoke)
		revoke_device(a);
}

static void stop_late(struct array *a)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		if (a->dev[i].used && a->dev[i].zombie)
			array_say(a, LOG_WARNING,
				  "%s went away with writes under way and did not come back: they "
				  "may still land there",
				  a->dev[i].uri);
	}
	array_say(a, LOG_WARNING,
		  "not drained within %u ms: what is under way is dropped, and this incarnation is "
		  "fenced "
		  "at the next start",
		  a->env.conf->stop_ms);
	array_close(a);
}

static void limit_fired(void *arg)
{
	struct array *a = arg;

	if (a->phase == ARRAY_PHASE_STOP) {
		stop_late(a);
		return;
	}
	if (a->joined) {
		array_say(a, LOG_WARNING, "the group did not confirm that this node left");
		a->joined = false;
		tell_soon(a);
		return;
	}
	if (!a->told)
		tell(a);
	array_close_check(a);
}

struct stop {
	struct task task;
	struct array *a;
	enum array_stop_how how;
	uint32_t clients;
	/* Tried again until then, 0: not for that. */
	uint64_t drain_us; /* what is under way may end */
	uint64_t look_us;  /* it may be known who has the device open, or to all others that an
			      earlier daemon has ended */
};

static void stop_begin(struct array *a, enum array_stop_how how)
{
	struct event ev = {.type = EV_ADMIN};

	array_phase(a, ARRAY_PHASE_STOP);
	life_serving(a, false);
	if (how == ARRAY_STOP_LEAVE)
		front_hold(a->front);
	else
		front_reset(a->front);
	ev.admin.cmd = ADMIN_STOP;
	pump_push(a, &ev);
	limit_in(a, a->env.conf->stop_ms);
}

static void stop_kept(struct task *t)
{
	struct stop *s = (struct stop *)(void *)t;
	struct array *a = s->a;

	if (a->stop == ARRAY_STOP_ASKED) {
		a->stop = 0;
		a->env.kept(a, s->clients);
	}
	free(s);
}

static bool stop_again(struct stop *s, uint64_t *until_us, uint32_t within_ms)
{
	struct array *a = s->a;
	uint64_t now_us = loop_now_us(a->loop);

	if (!*until_us)
		*until_us = now_us + within_ms * 1000ull;
	if (now_us > *until_us || a->stop_waits || a->phase >= ARRAY_PHASE_STOP)
		return false;
	a->stop_waits = s;
	loop_timer_set(a->loop, &a->stop_timer, now_us + DISK_AGAIN_MS * 1000ull);
	return true;
}

/*
 * By force: consumers are told when nothing of theirs is under way, as with a forced detach
 * (disk.c, cut_off). What has not ended after stop_ms does not go on: the array is closed
 * without a step of the engine that could send it again, and consumers hear of it when the others
 * have (tell_soon): from then on these write nothing that it could come over before they have
 * fenced this incarnation (R5).
 */
static uint32_t stop_hold(struct array *a)
{
	struct front_stats st;

	front_hold(a->front);
	front_stats(a->front, &st);
	return st.inflight + disk_hold(a);
}

static void stop_run(struct task *t)
{
	struct stop *s = (struct stop *)(void *)t;
	struct array *a = s->a;
	struct front_stats front = {0};
	char why[FRONT_WHY_BYTES] = "it is open";
	int err = 0;

	/* It ends already, and tells its consumers when that harms nobody (tell_soon). */
	if (a->phase >= ARRAY_PHASE_STOP &&
	    (s->drain_us || s->look_us || s->how == ARRAY_STOP_FORCED)) {
		a->revoke |= s->how == ARRAY_STOP_FORCED;
		if (a->told && s->how == ARRAY_STOP_FORCED)
			revoke_device(a);
		free(s);
		return;
	}
	if (s->how == ARRAY_STOP_FORCED && a->stop_waits) {
		loop_timer_clear(a->loop, &a->stop_timer);
		free(a->stop_waits); /* one that was asked for */
		a->stop_waits = NULL;
	}
	if (a->phase == ARRAY_PHASE_RUN && s->how == ARRAY_STOP_FORCED && stop_hold(a)) {
		a->revoke = true;
		if (stop_again(s, &s->drain_us, a->env.conf->stop_ms))
			return;
		stop_late(a);
		free(s);
		return;
	}
	if (a->phase == ARRAY_PHASE_RUN && s->how == ARRAY_STOP_ASKED)
		front_stats(a->front, &front);
	/* Last, for it can't be taken back: a device that nobody has open goes away by it. */
	if (!front.clients)
		err = disk_stop(a, s->how, why);
	/* Who has it open is being found out, or an earlier daemon has not quite ended, or not all
	 * other nodes know of that. */
	if ((err == -EAGAIN || (err == -EBUSY && s->how == ARRAY_STOP_FORCED)) &&
	    stop_again(s, &s->look_us,
		       DISK_LOOK_MS +
			   (s->how == ARRAY_STOP_FORCED ? config_heard_ms(a->env.conf) : 0)))
		return;
	if (s->how == ARRAY_STOP_ASKED && a->phase < ARRAY_PHASE_STOP &&
	    (err == -EBUSY || err == -EAGAIN))
		front.clients = disk_opens(a) ? disk_opens(a) : 1;
	else if (err)
		array_say(a, LOG_ERR, "stops, and its device stays: %s", why);
	if (front.clients) {
		s->clients = a->clients = front.clients; /* so the main thread is told */
		mailbox_post(a->env.main, &s->task, stop_kept);
		return;
	}
	if (a->phase == ARRAY_PHASE_RUN)
		stop_begin(a, s->how);
	else if (a->phase < ARRAY_PHASE_STOP)
		array_close(a);
	free(s);
}

static void stop_fired(void *arg)
{
	struct array *a = arg;
	struct stop *s = a->stop_waits;

	a->stop_waits = NULL;
	stop_run(&s->task);
}

void array_close(struct array *a)
{
	char why[FRONT_WHY_BYTES];

	if (a->phase == ARRAY_PHASE_CLOSE)
		return;
	if (a->e)
		dev_settle(a);
	array_phase(a, ARRAY_PHASE_CLOSE);
	loop_timer_clear(a->loop, &a->again);
	loop_timer_clear(a->loop, &a->locks_again);
	locks_close(a, !a->e || (a->stopped_cleanly && !a->under_way));
	if (a->front)
		front_hold(a->front);
	disk_stop(a, ARRAY_STOP_LEAVE, why);
	life_serving(a, false);
	if (a->joined && group_leave(a->group))
		a->joined = false;
	alive_close(a);
	dev_close_all(a);
	if (a->joined)
		limit_in(a, LEAVE_MS);
	else
		tell_soon(a);
}

void array_close_check(struct array *a)
{
	if (a->joined || !a->told || a->alive || a->devs_open || a->under_way || a->tasks)
		return;
	if (a->stopped_cleanly && !a->end_written) {
		a->end_written = true;
		life_end(a);
		return;
	}
	loop_stop(a->loop);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void watch_fired(void *arg)
{
	struct array *a = arg;

	a->turned_ms = now_ms();
	status_watch(a);
	if (a->phase < ARRAY_PHASE_STOP)
		front_listen_all(a);
	disk_advance(a);
	life_clients(a);
	loop_timer_set(a->loop, &a->watch, loop_now_us(a->loop) + ARRAY_WATCH_US);
}

static void tick_fired(void *arg)
{
	struct event ev = {.type = EV_TICK};

	pump_push(arg, &ev);
}

static void thread_begin(struct array *a)
{
	struct group_cfg cfg = {.loop = a->loop, .cb = &group_cb, .arg = a};
	char why[FRONT_WHY_BYTES];
	int err;

	loop_clock_us(a->loop);
	array_phase(a, ARRAY_PHASE_GROUP);
	err = front_start(a, why);
	if (err) {
		array_fail(a, "%s", why);
		return;
	}
	err = group_open(a->env.conf->cluster, &cfg, &a->group);
	if (err) {
		array_fail(a, "the group adapter %s can't be opened: %s", a->env.conf->cluster,
			   strerror(-err));
		return;
	}
	array_waits(a, "the cluster stack (%s)", a->env.conf->cluster);
	watch_fired(a);
}

static void ended_run(struct task *t)
{
	struct array *a = (struct array *)((char *)t - offsetof(struct array, ended_task));

	pthread_join(a->thread, NULL);
	a->running = false;
	mailbox_run(&a->box); /* they see that there is no engine */
	life_ended(a);
	loop_wake_del(a->loop, &a->wake);
	loop_hook_del(a->loop, &a->hook);
	loop_free(a->loop);
	a->loop = NULL;
	snprintf(a->failed, sizeof(a->failed), "%s", a->failure);
	a->failed_ms = now_ms();
	a->env.ended(a, a->failed);
}

static void *thread_main(void *arg)
{
	struct array *a = arg;
	char name[16];

	snprintf(name, sizeof(name), "ddr:%.11s", a->live.name);
	prctl(PR_SET_NAME, name);
	thread_begin(a);
	if (a->phase == ARRAY_PHASE_CLOSE)
		loop_timer_set(a->loop, &a->limit,
			       0); /* loop_run doesn't know of a stop before it */
	if (loop_run(a->loop))
		abort();
	loop_timer_clear(a->loop, &a->tick);
	loop_timer_clear(a->loop, &a->watch);
	loop_timer_clear(a->loop, &a->limit);
	loop_timer_clear(a->loop, &a->again);
	loop_timer_clear(a->loop, &a->stop_timer);
	free(a->stop_waits);
	a->stop_waits = NULL;
	group_close(a->group);
	disk_close(a);
	front_close(a->front);
	if (a->e)
		engine_free(a->e);
	a->e = NULL;
	a->group = NULL;
	a->front = NULL;
	pump_free(a);
	dev_free(a);
	mailbox_post(a->env.main, &a->ended_task, ended_run);
	return NULL;
}

static void box_kick(void *arg)
{
	struct array *a = arg;

	loop_wake_kick(&a->wake);
}

static void woken(void *arg)
{
	struct array *a = arg;

	mailbox_run(&a->box);
}

/* ---- the main thread's side ----------------------------------------------------------------- */

struct array *array_new(const struct array_env *env, const struct store_array *desc)
{
	struct array *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->env = *env;
	a->desc = *desc;
	mailbox_init(&a->box, box_kick, a);
	return a;
}

void array_free(struct array *a)
{
	assert(!a->running);
	free(a);
}

const struct store_array *array_desc(const struct array *a)
{
	return &a->desc;
}

void array_set_desc(struct array *a, const struct store_array *desc)
{
	assert(!a->running);
	a->desc = *desc;
}

struct learn {
	struct task task;
	struct array *a;
	struct store_array desc;
};

static void tune(struct array *a, const struct options *o)
{
	struct tunables tun = {0};
	struct event ev = {.type = EV_TICK};

	options_tune(&a->live.options, o);
	if (!a->e)
		return; /* engine_cfg_fill has them */
	options_apply(&a->live.options, &tun);
	engine_tune(a->e, &tun);
	pump_push(a, &ev);
}

static void learn_run(struct task *t)
{
	struct learn *l = (struct learn *)(void *)t;

	if (l->a->running) {
		tune(l->a, &l->desc.options);
		dev_learn(l->a, &l->desc);
	}
	free(l);
}

void array_learn(struct array *a, const struct store_array *desc)
{
	struct learn *l;

	_Static_assert(offsetof(struct learn, task) == 0, "found by its task");
	if (!a->running)
		return; /* the next start has it */
	l = calloc(1, sizeof(*l));
	assert(l);
	l->a = a;
	l->desc = *desc;
	mailbox_post(&a->box, &l->task, learn_run);
}

bool array_running(const struct array *a)
{
	return a->running;
}

const char *array_failed(const struct array *a)
{
	return a->failed;
}

uint64_t array_failed_ms(const struct array *a)
{
	return a->failed[0] ? now_ms() - a->failed_ms : 0;
}

uint64_t array_still_ms(const struct array *a)
{
	return a->running ? now_ms() - a->turned_ms : 0;
}

/* Everything of the last run is gone. */
static void thread_state_clear(struct array *a)
{
	size_t from = offsetof(struct array, loop);

	memset((char *)a + from, 0, sizeof(*a) - from);
	a->live = a->desc;
	a->msg_last = &a->msg_first;
	a->tick = (struct loop_timer){.fired = tick_fired, .arg = a};
	a->watch = (struct loop_timer){.fired = watch_fired, .arg = a};
	a->limit = (struct loop_timer){.fired = limit_fired, .arg = a};
	a->again = (struct loop_timer){.fired = again_fired, .arg = a};
	a->stop_timer = (struct loop_timer){.fired = stop_fired, .arg = a};
	a->disk.detach_timer = (struct loop_timer){.fired = disk_detach_fired, .arg = a};
	a->locks_again = (struct loop_timer){.fired = locks_again, .arg = a};
	a->hook = (struct loop_hook){.run = pump_turn, .arg = a};
	a->wake = (struct loop_wake){.woken = woken, .arg = a};
}

int array_start(struct array *a, bool force)
{
	int err;

	assert(!a->running);
	thread_state_clear(a);
	a->failed[0] = '\0';
	a->force = force;
	a->stop = 0;
	a->turned_ms = now_ms();
	err = loop_new(&a->loop);
	if (err)
		return err;
	err = loop_wake_add(a->loop, &a->wake);
	if (err) {
		loop_free(a->loop);
		return err;
	}
	loop_hook_add(a->loop, &a->hook);
	a->running = true;
	err = thread_start(&a->thread, ARRAY_STACK_BYTES, thread_main, a);
	if (err) {
		a->running = false;
		loop_wake_del(a->loop, &a->wake);
		loop_hook_del(a->loop, &a->hook);
		loop_free(a->loop);
	}
	return err;
}

void array_stop(struct array *a, enum array_stop_how how)
{
	struct stop *s;

	_Static_assert(offsetof(struct stop, task) == 0, "found by its task");
	if (!a->running || a->stop >= how)
		return;
	a->stop = how;
	s = calloc(1, sizeof(*s));
	assert(s);
	s->a = a;
	s->how = how;
	mailbox_post(&a->box, &s->task, stop_run);
}
