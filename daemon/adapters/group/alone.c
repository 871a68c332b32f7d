// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The group of one: a single machine without a cluster stack, for the lock back end `local`.
 *
 *	down -> idle -> joining -> member -> leaving -> down
 *
 * Everything happens in a timer that is set to now, so that no callback is made from within a
 * call, as with a real group. Node id 1, always quorate; the one ring is (1, 1). Messages are
 * delivered in the order sent, at most BATCH of them per turn of the loop.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/adapters/group/queue.h"
#include "daemon/ports/group.h"

#define BATCH 64
#define ALONE_NODE 1u

enum alone_state { ALONE_DOWN, ALONE_IDLE, ALONE_JOINING, ALONE_MEMBER, ALONE_LEAVING };

struct alone {
	struct group group;
	struct group_cfg cfg;
	enum alone_state state;
	struct loop_timer turn;
	struct group_queue queue;
	struct group_stats stats;
};

static struct alone *alone_of(struct group *g)
{
	return (struct alone *)g;
}

static void again(struct alone *a)
{
	loop_timer_set(a->cfg.loop, &a->turn, loop_now_us(a->cfg.loop));
}

static void come_up(struct alone *a)
{
	struct group_quorum quorum = {
	    .ring = {ALONE_NODE, 1}, .quorate = true, .count = 1, .node = {ALONE_NODE}};
	struct group_self self = {.node = ALONE_NODE};

	if (gethostname(self.name, sizeof(self.name) - 1))
		strcpy(self.name, "localhost");
	a->state = ALONE_IDLE;
	a->cfg.cb->up(a->cfg.arg, &self);
	a->cfg.cb->quorum(a->cfg.arg, &quorum);
}

static void install_view(struct alone *a)
{
	struct group_view view = {
	    .ring = {ALONE_NODE, 1}, .count = 1, .node = {ALONE_NODE}, .fresh = {true}};

	if (getrandom(&view.id, sizeof(view.id), 0) != sizeof(view.id))
		abort();
	a->state = ALONE_MEMBER;
	a->stats.views++;
	a->cfg.cb->view(a->cfg.arg, &view);
}

static void deliver(struct alone *a)
{
	for (int i = 0; i < BATCH && a->queue.first; i++) {
		struct group_message *m = group_queue_pop(&a->queue);

		a->stats.sent++;
		a->stats.received++;
		a->cfg.cb->msg(a->cfg.arg, ALONE_NODE, m->data, m->bytes);
		free(m);
	}
	if (group_queue_writable(&a->queue) && a->cfg.cb->writable)
		a->cfg.cb->writable(a->cfg.arg);
	if (a->queue.first) {
		again(a);
	} else if (a->state == ALONE_LEAVING) {
		a->state = ALONE_DOWN;
		again(a);
		a->cfg.cb->left(a->cfg.arg);
	}
}

static void turn(void *arg)
{
	struct alone *a = arg;

	switch (a->state) {
	case ALONE_DOWN:
		come_up(a);
		break;
	case ALONE_JOINING:
		install_view(a);
		break;
	case ALONE_MEMBER:
	case ALONE_LEAVING:
		deliver(a);
		break;
	case ALONE_IDLE:
		break;
	}
}

static struct group_ops alone_ops;

static int alone_open(const struct group_cfg *cfg, struct group **out)
{
	struct alone *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->group.ops = &alone_ops;
	a->cfg = *cfg;
	a->turn.fired = turn;
	a->turn.arg = a;
	again(a);
	*out = &a->group;
	return 0;
}

static int alone_join(struct group *g, const char *name)
{
	struct alone *a = alone_of(g);

	if (!name[0] || strlen(name) >= GROUP_NAME_BYTES)
		return -EINVAL;
	if (a->state != ALONE_IDLE)
		return a->state == ALONE_DOWN ? -ENOTCONN : -EALREADY;
	a->state = ALONE_JOINING;
	again(a);
	return 0;
}

static int alone_send(struct group *g, const void *data, size_t bytes)
{
	struct alone *a = alone_of(g);
	struct group_message *m;
	int err;

	if (a->state != ALONE_MEMBER)
		return -ENOTCONN;
	err = group_queue_push(&a->queue, data, bytes, &m);
	if (!err && !loop_timer_is_set(&a->turn))
		again(a);
	return err;
}

static int alone_leave(struct group *g)
{
	struct alone *a = alone_of(g);

	if (a->state != ALONE_MEMBER && a->state != ALONE_JOINING)
		return -ENOTCONN;
	a->state = ALONE_LEAVING;
	again(a);
	return 0;
}

static void alone_close(struct group *g)
{
	struct alone *a = alone_of(g);

	loop_timer_clear(a->cfg.loop, &a->turn);
	group_queue_clear(&a->queue);
	free(a);
}

static void alone_stats(const struct group *g, struct group_stats *st)
{
	const struct alone *a = (const struct alone *)g;

	*st = a->stats;
	st->queued_messages = a->queue.count;
	st->queued_bytes = (uint32_t)a->queue.bytes;
}

static struct group_ops alone_ops = {
    .name = "alone",
    .open = alone_open,
    .join = alone_join,
    .send = alone_send,
    .leave = alone_leave,
    .close = alone_close,
    .stats = alone_stats,
};
GROUP_REGISTER(alone_ops)
