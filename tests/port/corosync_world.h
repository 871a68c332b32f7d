/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world around the adapter `corosync`, for test_group_corosync.c: a fake corosync, that is, the
 * few functions of libcpg, libquorum and libcmap that the adapter calls; node 2, which runs the
 * adapter; and what the fake's cluster does to it.
 */
#ifndef TESTS_PORT_COROSYNC_WORLD_H
#define TESTS_PORT_COROSYNC_WORLD_H

#include <corosync/cmap.h>
#include <corosync/cpg.h>
#include <corosync/quorum.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/ports/group.h"
#include "tests/lib/test.h"

#define HEADER 32
#define SENT_MAX 1024

/* ---- the fake ---- */

struct fake_event {
	enum { CONFCHG, TOTEM, DELIVER } kind;
	uint32_t node, pid; /* DELIVER: from; TOTEM: ring */
	size_t bytes;
	uint8_t *data;
	struct cpg_address members[64], left[4], joined[64];
	size_t member_count, left_count, joined_count;
};

static struct {
	cpg_model_v1_data_t cpg;
	quorum_model_v1_data_t quorum;
	void *cpg_context, *quorum_context;
	int cpg_fd, quorum_fd;
	struct fake_event event[64];
	int first, count;
	cs_error_t mcast_answer, dispatch_answer, init_answer, two_node_answer;
	bool quorum_told; /* quorum_notify_fn is due */
	int cmaps;        /* open */
	cmap_notify_fn_t token;
	void *token_arg;
	int cmap_fd;
	uint32_t token_ms; /* since corosync.conf was read anew */
	/* what the adapter sent */
	struct {
		uint8_t data[256];
		size_t bytes;
	} sent[SENT_MAX];
	int sent_count;
} fake;

static struct fake_event *put_event(void)
{
	uint64_t one = 1;
	struct fake_event *e = &fake.event[(fake.first + fake.count++) % 64];

	CHECK(fake.count <= 64);
	memset(e, 0, sizeof(*e));
	CHECK(write(fake.cpg_fd, &one, sizeof(one)) == sizeof(one));
	return e;
}

cs_error_t cpg_model_initialize(cpg_handle_t *h, cpg_model_t model, cpg_model_data_t *data, void *c)
{
	(void)model;
	*h = 1;
	memcpy(&fake.cpg, data, sizeof(fake.cpg));
	fake.cpg_context = c;
	fake.cpg_fd = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	return fake.init_answer;
}

cs_error_t cpg_finalize(cpg_handle_t h)
{
	(void)h;
	close(fake.cpg_fd);
	fake.first = fake.count = 0;
	return CS_OK;
}

cs_error_t cpg_fd_get(cpg_handle_t h, int *fd)
{
	(void)h;
	*fd = fake.cpg_fd;
	return CS_OK;
}

cs_error_t cpg_context_get(cpg_handle_t h, void **c)
{
	(void)h;
	*c = fake.cpg_context;
	return CS_OK;
}

cs_error_t cpg_local_get(cpg_handle_t h, unsigned int *node)
{
	(void)h;
	*node = 2;
	return CS_OK;
}

cs_error_t cpg_join(cpg_handle_t h, const struct cpg_name *name)
{
	(void)h;
	(void)name;
	return CS_OK;
}

cs_error_t cpg_leave(cpg_handle_t h, const struct cpg_name *name)
{
	(void)h;
	(void)name;
	return CS_OK;
}

cs_error_t cpg_mcast_joined(cpg_handle_t h, cpg_guarantee_t g, const struct iovec *iov, unsigned n)
{
	uint8_t *p = fake.sent[fake.sent_count].data;

	(void)h;
	(void)g;
	if (fake.mcast_answer != CS_OK)
		return fake.mcast_answer;
	fake.sent[fake.sent_count].bytes = 0;
	for (unsigned i = 0; i < n; i++) {
		if (iov[i].iov_len)
			memcpy(p + fake.sent[fake.sent_count].bytes, iov[i].iov_base,
			       iov[i].iov_len);
		fake.sent[fake.sent_count].bytes += iov[i].iov_len;
	}
	fake.sent_count++;
	return CS_OK;
}

cs_error_t cpg_dispatch(cpg_handle_t h, cs_dispatch_flags_t flags)
{
	struct cpg_name name = {.length = 1, .value = "g"};
	struct fake_event e;
	uint64_t one;

	CHECK_EQ_INT(flags, CS_DISPATCH_ONE_NONBLOCKING);
	if (fake.dispatch_answer != CS_OK)
		return fake.dispatch_answer;
	if (fake.count == 0)
		return CS_ERR_TRY_AGAIN;
	e = fake.event[fake.first];
	fake.first = (fake.first + 1) % 64;
	fake.count--;
	CHECK(read(fake.cpg_fd, &one, sizeof(one)) == sizeof(one));
	if (e.kind == DELIVER)
		fake.cpg.cpg_deliver_fn(h, &name, e.node, e.pid, e.data, e.bytes);
	else if (e.kind == TOTEM)
		fake.cpg.cpg_totem_confchg_fn(h, (struct cpg_ring_id){e.node, e.pid}, 0, NULL);
	else
		fake.cpg.cpg_confchg_fn(h, &name, e.members, e.member_count, e.left, e.left_count,
					e.joined, e.joined_count);
	free(e.data);
	return CS_OK;
}

cs_error_t quorum_model_initialize(quorum_handle_t *h, quorum_model_t model,
				   quorum_model_data_t *data, uint32_t *type, void *c)
{
	(void)model;
	*h = 1;
	*type = QUORUM_SET;
	memcpy(&fake.quorum, data, sizeof(fake.quorum));
	fake.quorum_context = c;
	fake.quorum_fd = eventfd(0, EFD_NONBLOCK);
	return CS_OK;
}

cs_error_t quorum_finalize(quorum_handle_t h)
{
	(void)h;
	close(fake.quorum_fd);
	return CS_OK;
}

cs_error_t quorum_fd_get(quorum_handle_t h, int *fd)
{
	(void)h;
	*fd = fake.quorum_fd;
	return CS_OK;
}

cs_error_t quorum_context_get(quorum_handle_t h, const void **c)
{
	(void)h;
	*c = fake.quorum_context;
	return CS_OK;
}

cs_error_t quorum_trackstart(quorum_handle_t h, unsigned int flags)
{
	(void)h;
	(void)flags;
	return CS_OK;
}

cs_error_t quorum_dispatch(quorum_handle_t h, cs_dispatch_flags_t flags)
{
	const uint32_t nodes[] = {1, 2};
	uint64_t told;

	(void)flags;
	if (!fake.quorum_told)
		return CS_ERR_TRY_AGAIN;
	fake.quorum_told = false;
	CHECK(read(fake.quorum_fd, &told, sizeof(told)) == sizeof(told));
	fake.quorum.quorum_notify_fn(h, 1, (struct quorum_ring_id){1, 8}, 2, nodes);
	return CS_OK;
}

static void tell_quorum(void)
{
	uint64_t one = 1;

	fake.quorum_told = true;
	CHECK(write(fake.quorum_fd, &one, sizeof(one)) == sizeof(one));
}

cs_error_t cmap_initialize(cmap_handle_t *h)
{
	*h = 1;
	fake.cmaps++;
	return CS_OK;
}

cs_error_t cmap_finalize(cmap_handle_t h)
{
	(void)h;
	fake.cmaps--;
	close(fake.cmap_fd);
	return CS_OK;
}

cs_error_t cmap_get_uint32(cmap_handle_t h, const char *key, uint32_t *v)
{
	(void)h;
	*v = strcmp(key, "nodelist.node.1.nodeid") == 0 ? 2 : 1000;
	return CS_OK;
}

cs_error_t cmap_get_uint8(cmap_handle_t h, const char *key, uint8_t *v)
{
	(void)h;
	CHECK_EQ_STR(key, "runtime.votequorum.two_node");
	CHECK_EQ_INT(fake.cmaps, 1);
	if (fake.two_node_answer != CS_OK)
		return fake.two_node_answer;
	*v = 1;
	return CS_OK;
}

cs_error_t cmap_track_add(cmap_handle_t h, const char *key, int32_t type, cmap_notify_fn_t notify,
			  void *arg, cmap_track_handle_t *track)
{
	(void)h;
	CHECK_EQ_STR(key, "runtime.config.totem.token");
	CHECK(type & CMAP_TRACK_MODIFY);
	fake.token = notify;
	fake.token_arg = arg;
	*track = 1;
	return CS_OK;
}

cs_error_t cmap_fd_get(cmap_handle_t h, int *fd)
{
	(void)h;
	fake.cmap_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*fd = fake.cmap_fd;
	return CS_OK;
}

cs_error_t cmap_dispatch(cmap_handle_t h, cs_dispatch_flags_t flags)
{
	struct cmap_notify_value now = {CMAP_VALUETYPE_UINT32, sizeof(fake.token_ms),
					&fake.token_ms};
	uint64_t n;

	CHECK_EQ_INT(flags, CS_DISPATCH_ALL);
	CHECK(read(fake.cmap_fd, &n, sizeof(n)) == sizeof(n));
	fake.token(h, 1, CMAP_TRACK_MODIFY, "runtime.config.totem.token", now,
		   (struct cmap_notify_value){0}, fake.token_arg);
	return CS_OK;
}

cs_error_t cmap_get_string(cmap_handle_t h, const char *key, char **v)
{
	(void)h;
	if (!strcmp(key, "totem.cluster_name")) {
		*v = strdup("alpha");
		return CS_OK;
	}
	CHECK_EQ_STR(key, "nodelist.node.1.name");
	*v = strdup("two");
	return CS_OK;
}

/* ---- the node under test: node 2 ---- */

static struct {
	struct loop *loop;
	struct group *group;
	struct group_self self;
	struct group_view view;
	int ups, views, msgs, losses, writables, lost_err, quorums, broken;
	bool quorum_two_node;
	uint32_t from, broken_node, token_ms;
	char text[64];
} n;

static void on_up(void *arg, const struct group_self *self)
{
	(void)arg;
	n.self = *self;
	n.ups++;
}

static void on_view(void *arg, const struct group_view *view)
{
	(void)arg;
	n.view = *view;
	n.views++;
}

static void on_quorum(void *arg, const struct group_quorum *q)
{
	(void)arg;
	n.quorums++;
	n.quorum_two_node = q->two_node;
}

static void on_msg(void *arg, uint32_t from, const void *data, size_t bytes)
{
	(void)arg;
	n.from = from;
	snprintf(n.text, sizeof(n.text), "%.*s", (int)bytes, (const char *)data);
	n.msgs++;
}

static void on_lost(void *arg, int err, const char *why)
{
	(void)arg;
	CHECK(why[0]);
	n.lost_err = err;
	n.losses++;
}

static void on_left(void *arg)
{
	(void)arg;
}

static void on_writable(void *arg)
{
	(void)arg;
	n.writables++;
}

static void on_broken(void *arg, uint32_t node, const char *why)
{
	(void)arg;
	CHECK(why[0]);
	n.broken_node = node;
	n.broken++;
}

static void on_token(void *arg, uint32_t token_ms)
{
	(void)arg;
	n.token_ms = token_ms;
}

static const struct group_cb callbacks = {
    .up = on_up,
    .view = on_view,
    .quorum = on_quorum,
    .msg = on_msg,
    .lost = on_lost,
    .left = on_left,
    .writable = on_writable,
    .broken = on_broken,
    .token = on_token,
};

static void turn(void)
{
	for (int i = 0; i < 5; i++)
		CHECK_EQ_INT(loop_turn(n.loop, 0), 0);
}

static void turn_for(uint64_t us)
{
	uint64_t end = loop_clock_us(n.loop) + us;

	while (loop_clock_us(n.loop) < end)
		CHECK_EQ_INT(loop_turn(n.loop, 1000), 0);
	turn();
}

/* ---- what the fake's cluster does ---- */

#define ME ((uint32_t)getpid())

static void add(struct cpg_address *list, size_t *count, uint32_t node, uint32_t pid,
		uint32_t reason)
{
	list[(*count)++] = (struct cpg_address){node, pid, reason};
}

static void ring(uint32_t rep, uint32_t seq)
{
	struct fake_event *e = put_event();

	e->kind = TOTEM;
	e->node = rep;
	e->pid = seq;
}

/* A message of `node`, header included. */
static void deliver(uint32_t node, uint32_t pid, const uint8_t *data, size_t bytes)
{
	struct fake_event *e = put_event();

	e->kind = DELIVER;
	e->node = node;
	e->pid = pid;
	e->bytes = bytes;
	e->data = malloc(bytes);
	memcpy(e->data, data, bytes);
}

static void deliver_sent(int i)
{
	CHECK_MSG(i < fake.sent_count, "sent %d of %d", i, fake.sent_count);
	deliver(2, ME, fake.sent[i].data, fake.sent[i].bytes);
}

static void deliver_as(uint32_t node, uint32_t pid, uint8_t kind, uint64_t id, uint64_t seq,
		       const char *text)
{
	uint8_t data[HEADER + 64] = {'D', 'D', 'R', 'G', 1, kind};

	memcpy(data + 8, &id, 8);
	memcpy(data + 16, &seq, 8);
	memcpy(data + HEADER, text, strlen(text));
	deliver(node, pid, data, HEADER + strlen(text));
}

static uint64_t sent_id(int i)
{
	uint64_t id;

	CHECK_MSG(i < fake.sent_count, "sent %d of %d", i, fake.sent_count);
	memcpy(&id, fake.sent[i].data + 8, 8);
	return id;
}

static void start(void)
{
	struct group_cfg cfg = {.cb = &callbacks};

	memset(&n, 0, sizeof(n));
	memset(&fake, 0, sizeof(fake));
	fake.mcast_answer = fake.dispatch_answer = fake.init_answer = fake.two_node_answer = CS_OK;
	CHECK_EQ_INT(loop_new(&n.loop), 0);
	cfg.loop = n.loop;
	CHECK_EQ_INT(group_open("corosync", &cfg, &n.group), 0);
	turn();
	CHECK_EQ_INT(n.ups, 1);
	CHECK_EQ_STR(n.self.name, "two");
	CHECK_EQ_STR(n.self.cluster, "alpha");
	CHECK(n.self.two_node);
	CHECK_EQ_INT(group_join(n.group, "g"), 0);
	turn();
}

/* We join a group of node 1 pid 11 and node 3 pid 33. */
static void joined(void)
{
	struct fake_event *e = put_event();

	add(e->members, &e->member_count, 3, 33, 0);
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->joined, &e->joined_count, 2, ME, CPG_REASON_JOIN);
	ring(1, 8);
}

/* ... and greet, and have a view. */
static void start_member(void)
{
	start();
	joined();
	turn();
	CHECK_EQ_INT(fake.sent_count, 1);
	CHECK_EQ_INT(n.views, 0);
	deliver_sent(0);
	turn();
	CHECK_EQ_INT(n.views, 1);
}

static void stop(void)
{
	group_close(n.group);
	CHECK_EQ_INT(fake.cmaps, 0);
	while (fake.count) {
		free(fake.event[fake.first].data);
		fake.first = (fake.first + 1) % 64;
		fake.count--;
	}
	loop_free(n.loop);
}

#endif
