// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The group by corosync: CPG for membership and messages, the quorum service, cmap for who we are.
 *
 *	down       not connected; tries again                      -> idle
 *	idle       connected, quorum is followed                   -> joining, down
 *	joining    cpg_join is to be taken by corosync             -> greeting, leaving, down
 *	greeting   joined; our greeting has not come yet           -> member, leaving, down
 *	member     has a view                                      -> greeting, leaving, down
 *	leaving    sends what is queued, then waits for our leave  -> down
 *
 * This file has the port, the connections to corosync, and sending. corosync_views.c has what CPG
 * delivers: which view follows from it, and which messages are heard. The moves to greeting and to
 * member are made there. Its head also says why a window bounds what is in corosync, and why the
 * messages of a new view wait until those of the old one have come back (`barrier`).
 *
 * cpg_join, cpg_leave and connecting ask corosync and wait for its answer; it answers at once
 * or is stopped as a whole, and then this node is being given up by the others anyway. Sending and
 * dispatching never wait.
 *
 * Callbacks to the engine come from within cpg_dispatch. A loss that is noticed there is acted on
 * after it has returned (`lost_err`).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <syslog.h>

#include "daemon/adapters/group/corosync_int.h"

#define TOKEN_KEY "runtime.config.totem.token"
#define BATCH 64 /* messages sent or delivered per turn of the loop */
#define CONNECT_MIN_US 50000u
#define CONNECT_MAX_US 1000000u
#define AGAIN_MIN_US 1000u
#define LEAVE_US 5000000u /* for corosync to confirm a leave */
#define WINDOW_BYTES (256u << 10)
#define WINDOW_MESSAGES 256u

#define HEADER_MAGIC "DDRG"
#define HEADER_VERSION 1

static struct coro *coro_of(struct group *g)
{
	return (struct coro *)g;
}

void coro_say(const struct coro *c, int priority, const char *format, ...)
{
	char text[GROUP_WHY_BYTES];
	va_list ap;

	if (!c->cfg.cb->log)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	c->cfg.cb->log(c->cfg.arg, priority, text);
}

void coro_work_in(struct coro *c, uint64_t us)
{
	loop_timer_set(c->cfg.loop, &c->work, loop_now_us(c->cfg.loop) + us);
}

static int errno_of(cs_error_t err)
{
	switch (err) {
	case CS_OK:
		return 0;
	case CS_ERR_TRY_AGAIN:
		return -EAGAIN;
	case CS_ERR_ACCESS:
		return -EACCES;
	case CS_ERR_NO_MEMORY:
		return -ENOMEM;
	case CS_ERR_EXIST:
		return -EEXIST;
	default:
		return -ENOTCONN;
	}
}

/* ---- down ---- */

static void disconnect(struct coro *c)
{
	if (c->cpg_watched)
		loop_fd_del(c->cfg.loop, &c->cpg_fd);
	if (c->quorum_watched)
		loop_fd_del(c->cfg.loop, &c->quorum_fd);
	if (c->cmap_watched)
		loop_fd_del(c->cfg.loop, &c->cmap_fd);
	c->cpg_watched = c->quorum_watched = c->cmap_watched = false;
	if (c->cpg_open)
		cpg_finalize(c->cpg);
	if (c->quorum_open)
		quorum_finalize(c->quorum);
	if (c->cmap_open)
		cmap_finalize(c->cmap);
	c->cpg_open = c->quorum_open = c->cmap_open = c->cpg_left = false;
	c->ring_known = c->ring_change = c->greeted = c->greeting_due = c->viewed = false;
	c->handed = c->returned = c->barrier = c->handed_bytes = 0;
	c->regreets = 0;
	c->deaf_us = 0;
	c->group.count = c->cur.count = 0;
	c->lost_err = 0;
	group_queue_clear(&c->queue);
	c->state = DOWN;
	c->backoff_us = CONNECT_MIN_US;
	coro_work_in(c, 0);
}

static void lose(struct coro *c, int err, const char *why)
{
	disconnect(c);
	coro_work_in(c, CONNECT_MIN_US);
	c->stats.losses++;
	c->cfg.cb->lost(c->cfg.arg, err, why);
}

void coro_lose_later(struct coro *c, int err, const char *why)
{
	if (c->lost_err)
		return;
	c->lost_err = err;
	c->lost_why = why;
}

/* ---- what the quorum service says ---- */

/* A reload of corosync.conf may change it. That it can't be read is not a no: of two nodes, each
 * half has quorum, and the engine must know before it takes a quorum for a majority. Who calls this
 * loses the group then. */
static cs_error_t read_two_node(struct coro *c)
{
	uint8_t on = 0;
	cs_error_t err = cmap_get_uint8(c->cmap, "runtime.votequorum.two_node", &on);

	if (err != CS_OK && err != CS_ERR_NOT_EXIST)
		return err;
	c->self.two_node = on != 0;
	return CS_OK;
}

static void on_quorum(quorum_handle_t h, uint32_t quorate, struct quorum_ring_id ring,
		      uint32_t count, const uint32_t *nodes)
{
	struct group_quorum q = {.ring = {ring.nodeid, ring.seq}, .quorate = quorate != 0};
	struct procs sorted = {0};
	const void *arg = NULL;
	struct coro *c;

	if (quorum_context_get(h, &arg) != CS_OK)
		return;
	c = (struct coro *)arg;
	if (read_two_node(c) != CS_OK) {
		coro_lose_later(c, -ENOTCONN, "corosync's configuration can't be read");
		return;
	}
	q.two_node = c->self.two_node;
	for (uint32_t i = 0; i < count && i < CPG_MEMBERS_MAX; i++)
		sorted.v[sorted.count++] = (struct proc){.node = nodes[i]};
	qsort(sorted.v, sorted.count, sizeof(sorted.v[0]), coro_by_node);
	/* Nodes beyond the 32nd can't have an array's daemon in the view. */
	for (uint32_t i = 0; i < sorted.count && i < DDR_MAX_NODES; i++)
		q.node[q.count++] = sorted.v[i].node;
	c->cfg.cb->quorum(c->cfg.arg, &q);
}

static void on_nodelist(quorum_handle_t h, struct quorum_ring_id ring, uint32_t members,
			const uint32_t *member_list, uint32_t joined, const uint32_t *joined_list,
			uint32_t left, const uint32_t *left_list)
{
	/* Comes at the start of the count of votes; on_quorum comes at its end. */
	(void)h, (void)ring, (void)members, (void)member_list;
	(void)joined, (void)joined_list, (void)left, (void)left_list;
}

/* ---- dispatch ---- */

static void act_on_loss(struct coro *c)
{
	if (c->lost_err)
		lose(c, c->lost_err, c->lost_why);
}

static void cpg_ready(void *arg, uint32_t events)
{
	struct coro *c = arg;

	(void)events;
	for (int i = 0; i < BATCH && !c->lost_err && !c->cpg_left; i++) {
		cs_error_t err = cpg_dispatch(c->cpg, CS_DISPATCH_ONE_NONBLOCKING);

		if (err == CS_ERR_TRY_AGAIN)
			break;
		if (err != CS_OK)
			coro_lose_later(c, errno_of(err), "the connection to corosync broke");
	}
	coro_greet(c);
	if (c->lost_err) {
		act_on_loss(c);
	} else if (c->cpg_left) {
		disconnect(c);
		c->cfg.cb->left(c->cfg.arg);
	} else if (c->queue.first || c->greeting_due || c->queue.was_full) {
		coro_work_in(c, 0); /* something of ours may have come back */
	}
}

static void quorum_ready(void *arg, uint32_t events)
{
	struct coro *c = arg;

	(void)events;
	for (int i = 0; i < BATCH && !c->lost_err; i++) {
		cs_error_t err = quorum_dispatch(c->quorum, CS_DISPATCH_ONE_NONBLOCKING);

		if (err == CS_ERR_TRY_AGAIN)
			break;
		if (err != CS_OK)
			coro_lose_later(c, errno_of(err), "the connection to corosync broke");
	}
	act_on_loss(c);
}

static void cmap_ready(void *arg, uint32_t events)
{
	struct coro *c = arg;

	(void)events;
	if (cmap_dispatch(c->cmap, CS_DISPATCH_ALL) != CS_OK)
		coro_lose_later(c, -ENOTCONN, "the connection to corosync broke");
	act_on_loss(c);
}

/* corosync.conf was read anew. */
static void on_token(cmap_handle_t h, cmap_track_handle_t track, int32_t event, const char *key,
		     struct cmap_notify_value now, struct cmap_notify_value before, void *arg)
{
	struct coro *c = arg;
	uint32_t ms;

	(void)h, (void)track, (void)event, (void)key, (void)before;
	if (now.type != CMAP_VALUETYPE_UINT32 || now.len != sizeof(ms))
		return;
	memcpy(&ms, now.data, sizeof(ms));
	if (ms == c->self.token_ms)
		return;
	c->self.token_ms = ms;
	c->cfg.cb->token(c->cfg.arg, ms);
}

/* ---- connecting ---- */

static cs_error_t open_cpg(struct coro *c)
{
	cpg_model_v1_data_t model = {.model = CPG_MODEL_V1,
				     .cpg_deliver_fn = coro_on_deliver,
				     .cpg_confchg_fn = coro_on_confchg,
				     .cpg_totem_confchg_fn = coro_on_totem,
				     .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF};
	cs_error_t err = cpg_model_initialize(&c->cpg, CPG_MODEL_V1, (cpg_model_data_t *)&model, c);

	if (err == CS_OK) {
		c->cpg_open = true;
		err = cpg_local_get(c->cpg, &c->self.node);
	}
	if (err == CS_OK)
		err = cpg_fd_get(c->cpg, &c->cpg_fd.fd);
	return err;
}

static cs_error_t open_quorum(struct coro *c, const char **why)
{
	quorum_model_v1_data_t model = {.model = QUORUM_MODEL_V1,
					.quorum_notify_fn = on_quorum,
					.nodelist_notify_fn = on_nodelist};
	uint32_t type = QUORUM_FREE;
	cs_error_t err = quorum_model_initialize(&c->quorum, QUORUM_MODEL_V1,
						 (quorum_model_data_t *)&model, &type, c);

	if (err == CS_OK) {
		c->quorum_open = true;
		err = quorum_fd_get(c->quorum, &c->quorum_fd.fd);
	}
	if (err == CS_OK && type == QUORUM_FREE) {
		*why = "corosync.conf has no quorum provider: set `provider: corosync_votequorum`";
		return CS_ERR_NOT_SUPPORTED;
	}
	if (err == CS_OK)
		err = quorum_trackstart(c->quorum, CS_TRACK_CURRENT | CS_TRACK_CHANGES);
	return err;
}

static void read_name(cmap_handle_t h, struct group_self *self)
{
	char key[64], *name;
	uint32_t node;

	for (unsigned i = 0; i < CPG_MEMBERS_MAX; i++) {
		snprintf(key, sizeof(key), "nodelist.node.%u.nodeid", i);
		if (cmap_get_uint32(h, key, &node) != CS_OK || node != self->node)
			continue;
		snprintf(key, sizeof(key), "nodelist.node.%u.name", i);
		if (cmap_get_string(h, key, &name) == CS_OK) {
			snprintf(self->name, sizeof(self->name), "%s", name);
			free(name);
			return;
		}
	}
	snprintf(self->name, sizeof(self->name), "node %" PRIu32, self->node);
}

static void read_cluster(cmap_handle_t h, struct group_self *self)
{
	char *name;

	snprintf(self->cluster, sizeof(self->cluster), "(without a name)");
	if (cmap_get_string(h, "totem.cluster_name", &name) != CS_OK)
		return;
	if (name[0])
		snprintf(self->cluster, sizeof(self->cluster), "%s", name);
	free(name);
}

static cs_error_t open_cmap(struct coro *c)
{
	cmap_track_handle_t track;
	cs_error_t err = cmap_initialize(&c->cmap);

	if (err != CS_OK)
		return err;
	c->cmap_open = true;
	err = cmap_get_uint32(c->cmap, TOKEN_KEY, &c->self.token_ms);
	if (err == CS_OK && c->cfg.cb->token)
		err = cmap_track_add(c->cmap, TOKEN_KEY, CMAP_TRACK_MODIFY, on_token, c, &track);
	if (err == CS_OK && c->cfg.cb->token)
		err = cmap_fd_get(c->cmap, &c->cmap_fd.fd);
	if (err != CS_OK)
		return err;
	read_name(c->cmap, &c->self);
	read_cluster(c->cmap, &c->self);
	return read_two_node(c);
}

/* 0 or -errno. */
static int watch(struct coro *c)
{
	int err = loop_fd_add(c->cfg.loop, &c->cpg_fd, LOOP_READ);

	if (err)
		return err;
	c->cpg_watched = true;
	err = loop_fd_add(c->cfg.loop, &c->quorum_fd, LOOP_READ);
	if (err)
		return err;
	c->quorum_watched = true;
	if (c->cfg.cb->token)
		err = loop_fd_add(c->cfg.loop, &c->cmap_fd, LOOP_READ);
	c->cmap_watched = !err && c->cfg.cb->token;
	return err;
}

static void connect_corosync(struct coro *c)
{
	const char *why = "corosync is not there: start it, or look into its log";
	uint64_t backoff_us = c->backoff_us * 2;
	cs_error_t cs = open_cpg(c);
	int err;

	if (cs == CS_OK)
		cs = open_quorum(c, &why);
	if (cs == CS_OK)
		cs = open_cmap(c);
	err = cs == CS_OK ? watch(c) : errno_of(cs);
	if (err) {
		if (strcmp(c->said, why) != 0)
			coro_say(c, LOG_WARNING, "%s (%s)", why, strerror(-err));
		snprintf(c->said, sizeof(c->said), "%s", why);
		disconnect(c);
		c->backoff_us = backoff_us < CONNECT_MAX_US ? backoff_us : CONNECT_MAX_US;
		coro_work_in(c, c->backoff_us);
		return;
	}
	c->said[0] = 0;
	c->state = IDLE;
	c->cfg.cb->up(c->cfg.arg, &c->self);
}

/* ---- messages ---- */

static void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static void put_header(uint8_t p[GROUP_HEADER_BYTES], const struct header *h)
{
	memset(p, 0, GROUP_HEADER_BYTES);
	memcpy(p, HEADER_MAGIC, 4);
	p[4] = HEADER_VERSION;
	p[5] = h->kind;
	put_u64(p + 8, h->id);
	put_u64(p + 16, h->seq);
	put_u64(p + 24, h->number);
}

bool coro_get_header(const uint8_t *p, size_t bytes, struct header *h)
{
	if (bytes < GROUP_HEADER_BYTES || memcmp(p, HEADER_MAGIC, 4) != 0 || p[4] != HEADER_VERSION)
		return false;
	h->kind = p[5];
	h->id = get_u64(p + 8);
	h->seq = get_u64(p + 16);
	h->number = get_u64(p + 24);
	return true;
}

/* ---- sending ---- */

static void again_later(struct coro *c)
{
	c->stats.try_again++;
	coro_work_in(c, c->backoff_us);
	c->backoff_us = c->backoff_us * 2 < AGAIN_MAX_US ? c->backoff_us * 2 : AGAIN_MAX_US;
}

/* 0, -EAGAIN: later, and work is set; other: it is lost. */
static int hand_over(struct coro *c, uint8_t *header, void *data, size_t bytes)
{
	struct iovec iov[2] = {{header, GROUP_HEADER_BYTES}, {data, bytes}};
	cs_error_t err;

	put_u64(header + 24, c->handed);
	err = cpg_mcast_joined(c->cpg, CPG_TYPE_AGREED, iov, 2);
	if (err == CS_ERR_TRY_AGAIN) {
		again_later(c);
		return -EAGAIN;
	}
	if (err != CS_OK) {
		lose(c, errno_of(err), "corosync refused a message");
		return -ENOTCONN;
	}
	c->backoff_us = AGAIN_MIN_US;
	c->handed++;
	c->handed_bytes += GROUP_HEADER_BYTES + bytes;
	return 0;
}

static int send_greeting(struct coro *c)
{
	struct header h = {.kind = MSG_GREETING};
	uint8_t header[GROUP_HEADER_BYTES];
	int err;

	if (getrandom(&h.id, sizeof(h.id), 0) != sizeof(h.id)) {
		lose(c, -EIO, "no random number");
		return -EIO;
	}
	put_header(header, &h);
	err = hand_over(c, header, NULL, 0);
	if (!err) {
		c->greeting_due = false;
		c->greeted_us = loop_now_us(c->cfg.loop);
	}
	return err;
}

static bool may_send(const struct coro *c)
{
	uint64_t out = c->handed - c->returned;

	return c->returned >= c->barrier && out < WINDOW_MESSAGES &&
	       (out == 0 || c->handed_bytes < WINDOW_BYTES);
}

/* False: not all of it, and it goes on by itself, or it is lost. */
static bool send_queue(struct coro *c)
{
	if (c->greeting_due && send_greeting(c))
		return false;
	for (int i = 0; c->queue.first; i++) {
		struct group_message *m = c->queue.first;

		if (!may_send(c))
			return false; /* cpg_ready goes on */
		if (i == BATCH) {
			coro_work_in(c, 0);
			return false;
		}
		if (hand_over(c, m->header, m->data, m->bytes))
			return false;
		c->stats.sent++;
		free(group_queue_pop(&c->queue));
	}
	return true;
}

static void join_group(struct coro *c)
{
	cs_error_t err = cpg_join(c->cpg, &c->name);

	/* EXIST: our connection before this one is not cleared away yet. */
	if (err == CS_ERR_EXIST && loop_now_us(c->cfg.loop) > c->give_up_us)
		lose(c, -EEXIST, "this daemon has joined this group already");
	else if (err == CS_ERR_TRY_AGAIN || err == CS_ERR_EXIST)
		again_later(c);
	else if (err != CS_OK)
		lose(c, errno_of(err), "corosync refused to let us into the group");
}

static void leave_group(struct coro *c)
{
	cs_error_t err;

	if (loop_now_us(c->cfg.loop) > c->give_up_us) {
		lose(c, -ETIMEDOUT, "corosync did not confirm that we left the group");
		return;
	}
	if (!send_queue(c))
		return;
	err = cpg_leave(c->cpg, &c->name);
	if (err == CS_ERR_TRY_AGAIN) {
		again_later(c);
	} else if (err == CS_ERR_NOT_EXIST) {
		disconnect(c); /* the join was not through yet */
		c->cfg.cb->left(c->cfg.arg);
	} else {
		coro_work_in(c, LEAVE_US); /* cpg_left is set before */
	}
}

static void work(void *arg)
{
	struct coro *c = arg;

	switch (c->state) {
	case DOWN:
		connect_corosync(c);
		break;
	case IDLE:
		break;
	case JOINING:
		join_group(c);
		break;
	case GREETING:
	case MEMBER:
		coro_greet(c);
		act_on_loss(c);
		if (c->state != DOWN)
			send_queue(c);
		break;
	case LEAVING:
		leave_group(c);
		break;
	}
	if (c->state == MEMBER && group_queue_writable(&c->queue) && c->cfg.cb->writable)
		c->cfg.cb->writable(c->cfg.arg);
}

/* ---- the port ---- */

static struct group_ops coro_ops;

static int coro_open(const struct group_cfg *cfg, struct group **out)
{
	struct coro *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->group_port.ops = &coro_ops;
	c->cfg = *cfg;
	c->work.fired = work;
	c->work.arg = c;
	c->cpg_fd.ready = cpg_ready;
	c->cpg_fd.arg = c;
	c->quorum_fd.ready = quorum_ready;
	c->cmap_fd.ready = cmap_ready;
	c->cmap_fd.arg = c;
	c->quorum_fd.arg = c;
	c->backoff_us = CONNECT_MIN_US;
	c->regreet_us = REGREET_US;
	coro_work_in(c, 0);
	*out = &c->group_port;
	return 0;
}

static int coro_join(struct group *g, const char *name)
{
	struct coro *c = coro_of(g);
	size_t bytes = strlen(name);

	if (!bytes || bytes >= GROUP_NAME_BYTES)
		return -EINVAL;
	if (c->state != IDLE)
		return c->state == DOWN ? -ENOTCONN : -EALREADY;
	c->name.length = (uint32_t)bytes;
	memcpy(c->name.value, name, bytes);
	c->state = JOINING;
	c->give_up_us = loop_now_us(c->cfg.loop) + PREDECESSOR_US;
	c->backoff_us = AGAIN_MIN_US;
	coro_work_in(c, 0);
	return 0;
}

static int coro_send(struct group *g, const void *data, size_t bytes)
{
	struct coro *c = coro_of(g);
	struct header h = {.kind = MSG_DATA, .id = c->id, .seq = c->seq};
	struct group_message *m;
	int err;

	if (c->state != MEMBER || c->lost_err)
		return -ENOTCONN;
	err = group_queue_push(&c->queue, data, bytes, &m);
	if (err)
		return err;
	put_header(m->header, &h);
	c->seq++;
	if (!loop_timer_is_set(&c->work))
		coro_work_in(c, 0);
	return 0;
}

static int coro_leave(struct group *g)
{
	struct coro *c = coro_of(g);

	if (c->state != JOINING && c->state != GREETING && c->state != MEMBER)
		return -ENOTCONN;
	c->state = LEAVING;
	c->give_up_us = loop_now_us(c->cfg.loop) + LEAVE_US;
	coro_work_in(c, 0);
	return 0;
}

static void coro_close(struct group *g)
{
	struct coro *c = coro_of(g);

	disconnect(c);
	loop_timer_clear(c->cfg.loop, &c->work);
	free(c);
}

static void coro_stats(const struct group *g, struct group_stats *st)
{
	const struct coro *c = (const struct coro *)g;

	*st = c->stats;
	st->queued_messages = c->queue.count;
	st->queued_bytes = (uint32_t)c->queue.bytes;
}

static struct group_ops coro_ops = {
    .name = "corosync",
    .open = coro_open,
    .join = coro_join,
    .send = coro_send,
    .leave = coro_leave,
    .close = coro_close,
    .stats = coro_stats,
};
GROUP_REGISTER(coro_ops)
