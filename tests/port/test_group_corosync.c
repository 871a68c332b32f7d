// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * adapters/group/corosync.c on a fake corosync: what a real one does too rarely to wait for. The
 * fake is the few functions of libcpg, libquorum and libcmap that the adapter calls; the test says
 * what they deliver.
 */
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

TEST(a_greeting_names_the_first_view)
{
	start_member();
	CHECK_EQ_U64(n.view.id, sent_id(0));
	CHECK_EQ_U64(n.view.ring.rep, 1);
	CHECK_EQ_U64(n.view.ring.seq, 8);
	CHECK_EQ_U64(n.view.count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ_U64(n.view.node[i], i + 1);
		CHECK(n.view.fresh[i]);
	}
	stop();
}

TEST(another_ones_greeting_makes_a_view_too)
{
	start();
	joined();
	turn();
	deliver_as(3, 33, 1, 0xabcdef, 0, "");
	turn();
	CHECK_EQ_INT(n.views, 1);
	CHECK_EQ_U64(n.view.id, 0xabcdef);
	deliver_sent(0);
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK(!n.view.fresh[0] && !n.view.fresh[1] && !n.view.fresh[2]);
	stop();
}

/* ---- more nodes than a view has room for ---- */

/* Node 2, which is us, joins when nodes from..upto are there; each has pid 10 times its id. */
static void joined_among(uint32_t from, uint32_t upto)
{
	struct fake_event *e = put_event();

	for (uint32_t i = from; i <= upto; i++)
		add(e->members, &e->member_count, i, 10 * i, 0);
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->joined, &e->joined_count, 2, ME, CPG_REASON_JOIN);
	ring(1, 8);
}

static struct fake_event *members_now(const uint32_t *node, uint32_t count)
{
	struct fake_event *e = put_event();

	for (uint32_t i = 0; i < count; i++)
		add(e->members, &e->member_count, node[i], node[i] == 2 ? ME : 10 * node[i], 0);
	return e;
}

static bool view_has(uint32_t node)
{
	for (uint32_t i = 0; i < n.view.count; i++)
		if (n.view.node[i] == node)
			return true;
	return false;
}

TEST(a_33rd_node_costs_nobody_but_itself)
{
	uint32_t node[64], count = 0;
	struct fake_event *e;

	start();
	joined_among(10, 40); /* 31, and us */
	turn();
	deliver_sent(0);
	turn();
	CHECK_EQ_INT(n.views, 1);
	CHECK_EQ_U64(n.view.count, 32);
	/* It has the lowest id of all, and is the last to come. It may even greet, as an older
	 * version does. */
	node[count++] = 1;
	node[count++] = 2;
	for (uint32_t i = 10; i <= 40; i++)
		node[count++] = i;
	e = members_now(node, count);
	add(e->joined, &e->joined_count, 1, 10, CPG_REASON_JOIN);
	deliver_as(1, 10, 1, 0xabcdef, 0, "");
	turn();
	CHECK_EQ_INT(n.losses, 0);
	CHECK_EQ_U64(n.view.count, 32);
	CHECK(!view_has(1) && view_has(2) && view_has(40));
	/* Nor does a new ring change that. */
	ring(2, 12);
	turn();
	CHECK_EQ_U64(n.view.ring.seq, 12);
	CHECK_EQ_U64(n.view.count, 32);
	CHECK(!view_has(1) && view_has(2));
	/* One of them leaves: there is room. */
	e = members_now(node, count - 1);
	add(e->left, &e->left_count, 40, 400, CPG_REASON_LEAVE);
	deliver_as(1, 10, 1, 0xabcd00, 0, "");
	turn();
	CHECK_EQ_U64(n.view.id, 0xabcd00);
	CHECK_EQ_U64(n.view.count, 32);
	CHECK(view_has(1) && view_has(2) && !view_has(40));
	CHECK_EQ_INT(n.losses, 0);
	stop();
}

TEST(who_is_the_33rd_waits_for_room)
{
	uint32_t node[64], count = 0;
	struct fake_event *e;

	start();
	joined_among(10, 41); /* 32 without us */
	turn();
	CHECK_EQ_INT(fake.sent_count, 0);
	deliver_as(10, 100, 1, 0xabcdef, 0, "");
	ring(1, 12);
	turn();
	CHECK_EQ_INT(n.views, 0);
	CHECK_EQ_INT(n.losses, 0);
	for (uint32_t i = 10; i <= 40; i++)
		node[count++] = i;
	node[count++] = 2;
	e = members_now(node, count);
	add(e->left, &e->left_count, 41, 410, CPG_REASON_LEAVE);
	turn();
	CHECK_EQ_INT(fake.sent_count, 1);
	deliver_sent(0);
	turn();
	CHECK_EQ_INT(n.views, 1);
	CHECK_EQ_U64(n.view.count, 32);
	CHECK(view_has(2));
	stop();
}

/* Each half has its own order; by the ids both leave out the same. */
TEST(two_halves_that_are_too_many_leave_out_the_same)
{
	struct fake_event *e;
	uint32_t node[64], count = 0;

	start();
	joined_among(30, 49); /* 20, and us */
	turn();
	deliver_sent(0);
	turn();
	CHECK_EQ_U64(n.view.count, 21);
	node[count++] = 2;
	for (uint32_t i = 10; i <= 49; i++)
		node[count++] = i;
	e = members_now(node, count);
	for (uint32_t i = 10; i <= 29; i++)
		add(e->joined, &e->joined_count, i, 10 * i, CPG_REASON_NODEUP);
	ring(1, 12);
	turn();
	CHECK_EQ_U64(n.view.count, 32);
	CHECK(view_has(2) && view_has(10) && view_has(40) && !view_has(41));
	stop();
}

TEST(a_departure_counts_the_id_up)
{
	struct fake_event *e;
	uint64_t id;

	start_member();
	id = n.view.id;
	e = put_event();
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->left, &e->left_count, 3, 33, CPG_REASON_PROCDOWN);
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK_EQ_U64(n.view.id, id + 1);
	CHECK_EQ_U64(n.view.count, 2);
	CHECK_EQ_U64(n.view.ring.seq, 8);
	stop();
}

TEST(a_nodes_death_is_told_with_the_new_ring_only)
{
	struct fake_event *e;

	start_member();
	e = put_event();
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->left, &e->left_count, 1, 11, CPG_REASON_NODEDOWN);
	add(e->left, &e->left_count, 3, 33, CPG_REASON_NODEDOWN);
	turn();
	CHECK_EQ_INT(n.views, 1);
	ring(2, 12);
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK_EQ_U64(n.view.count, 1);
	CHECK_EQ_U64(n.view.ring.rep, 2);
	CHECK_EQ_U64(n.view.ring.seq, 12);
	stop();
}

TEST(a_daemon_replaced_within_one_ring_change_is_fresh)
{
	struct fake_event *e;

	start_member();
	e = put_event();
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->left, &e->left_count, 3, 33, CPG_REASON_NODEDOWN);
	e = put_event();
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->members, &e->member_count, 3, 33, 0); /* pids repeat after a reboot */
	add(e->joined, &e->joined_count, 3, 33, CPG_REASON_NODEUP);
	ring(1, 12);
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK(!n.view.fresh[0] && !n.view.fresh[1] && n.view.fresh[2]);
	stop();
}

TEST(a_message_of_another_view_comes_nowhere)
{
	uint64_t id;

	start_member();
	id = n.view.id;
	CHECK_EQ_INT(group_send(n.group, "old", 3), 0);
	deliver_as(1, 11, 2, id, 0, "one");
	turn();
	CHECK_EQ_INT(n.msgs, 1);
	CHECK_EQ_U64(n.from, 1);
	CHECK_EQ_STR(n.text, "one");
	CHECK_EQ_INT(fake.sent_count, 2);
	ring(1, 12);
	deliver_as(1, 11, 2, id, 1, "two");
	deliver_sent(1); /* our own */
	deliver_as(9, 99, 2, id, 0, "stranger");
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK_EQ_INT(n.msgs, 1);
	deliver_as(1, 11, 2, n.view.id, 0, "three");
	turn();
	CHECK_EQ_STR(n.text, "three");
	CHECK_EQ_INT(n.losses, 0);
	stop();
}

TEST(a_new_views_messages_wait_until_the_old_ones_came_back)
{
	start_member();
	CHECK_EQ_INT(group_send(n.group, "old 1", 5), 0);
	CHECK_EQ_INT(group_send(n.group, "old 2", 5), 0);
	turn();
	CHECK_EQ_INT(fake.sent_count, 3);
	ring(1, 12);
	turn();
	CHECK_EQ_INT(group_send(n.group, "new", 3), 0);
	turn_for(20000);
	CHECK_EQ_INT(fake.sent_count, 3);
	deliver_sent(1);
	turn_for(20000);
	CHECK_EQ_INT(fake.sent_count, 3);
	deliver_sent(2);
	turn();
	CHECK_EQ_INT(fake.sent_count, 4);
	CHECK_EQ_U64(sent_id(3), n.view.id);
	CHECK_EQ_INT(n.msgs, 0);
	deliver_sent(3);
	turn();
	CHECK_EQ_STR(n.text, "new");
	stop();
}

TEST(what_was_not_handed_over_before_a_view_is_not_sent)
{
	start_member();
	fake.mcast_answer = CS_ERR_TRY_AGAIN;
	CHECK_EQ_INT(group_send(n.group, "old", 3), 0);
	turn_for(20000);
	ring(1, 12);
	turn();
	fake.mcast_answer = CS_OK;
	CHECK_EQ_INT(group_send(n.group, "new", 3), 0);
	turn_for(50000);
	CHECK_EQ_INT(fake.sent_count, 2);
	deliver_sent(1);
	turn();
	CHECK_EQ_STR(n.text, "new");
	CHECK_EQ_INT(n.losses, 0);
	stop();
}

TEST(at_most_a_window_is_in_corosync)
{
	int before;

	start_member();
	for (int i = 0; i < 1000; i++)
		CHECK_EQ_INT(group_send(n.group, "x", 1), 0);
	turn_for(20000);
	before = fake.sent_count;
	CHECK_EQ_INT(before, 1 + 256);
	deliver_sent(1);
	turn();
	CHECK_EQ_INT(fake.sent_count, before + 1);
	stop();
}

/* ---- numbers ---- */

static void went_again(void)
{
	CHECK_EQ_INT(n.losses, 1);
	CHECK_EQ_INT(n.lost_err, -EPROTO);
	CHECK_EQ_INT(n.broken, 0);
	CHECK_EQ_INT(group_send(n.group, "x", 1), -ENOTCONN);
	turn_for(200000);
	CHECK_EQ_INT(n.ups, 2);
	CHECK_EQ_INT(group_join(n.group, "g"), 0);
}

static void deaf_to(uint32_t node)
{
	CHECK_EQ_INT(n.losses, 0);
	CHECK_EQ_INT(n.broken, 1);
	CHECK_EQ_U64(n.broken_node, node);
}

/* It has just come, and nothing of node 1 has: it can't know better. */
TEST(who_misses_the_beginning_joins_again)
{
	start_member();
	deliver_as(3, 33, 2, n.view.id, 0, "zero");
	deliver_as(1, 11, 2, n.view.id, 2, "two");
	turn();
	CHECK_EQ_STR(n.text, "zero");
	went_again();
	stop();
}

TEST(who_misses_its_own_message_joins_again)
{
	start_member();
	CHECK_EQ_INT(group_send(n.group, "lost", 4), 0);
	CHECK_EQ_INT(group_send(n.group, "came", 4), 0);
	turn();
	deliver_sent(2);
	turn();
	went_again();
	stop();
}

/* All see what it does. If all left, it would be alone, and have them fenced. */
TEST(who_leaves_out_a_number_is_not_heard_and_nobody_leaves_for_it)
{
	uint64_t id;

	start_member();
	id = n.view.id;
	deliver_as(1, 11, 2, id, 0, "zero");
	deliver_as(1, 11, 2, id, 2, "two");
	deliver_as(1, 11, 2, id, 1, "one");
	deliver_as(1, 11, 2, id, UINT64_MAX, "any");
	deliver_as(1, 11, 2, id, 3, "three");
	turn();
	CHECK_EQ_INT(n.msgs, 1);
	deaf_to(1);
	deliver_as(3, 33, 2, id, 0, "of another");
	turn();
	CHECK_EQ_STR(n.text, "of another");
	CHECK_EQ_INT(group_send(n.group, "mine", 4), 0);
	turn();
	CHECK_EQ_INT(fake.sent_count, 2);
	/* Later they greet, and it is heard again, until it does that again. */
	turn_for(11 * REGREET_US + 1000);
	deliver_as(3, 33, 2, id, 1, "later");
	turn();
	CHECK_EQ_INT(fake.sent_count, 3);
	deliver_sent(2);
	turn();
	CHECK_EQ_INT(n.views, 2);
	deliver_as(1, 11, 2, n.view.id, 0, "anew");
	turn();
	CHECK_EQ_STR(n.text, "anew");
	CHECK_EQ_INT(n.broken, 1);
	deliver_as(1, 11, 2, n.view.id, 7, "seven");
	turn();
	CHECK_EQ_INT(n.broken, 2);
	CHECK_EQ_INT(n.losses, 0);
	/* It waits for longer the next time. */
	turn_for(11 * REGREET_US + 1000);
	deliver_as(3, 33, 2, n.view.id, 0, "later still");
	turn();
	CHECK_EQ_INT(fake.sent_count, 3);
	stop();
}

/* Also if its first message of this view is it: it has greeted, or spoken in another view. */
TEST(who_was_heard_in_an_earlier_view_can_not_be_missed)
{
	start_member();
	deliver_as(1, 11, 1, 0xabcdef, 0, "");
	deliver_as(1, 11, 2, 0xabcdef, 5, "five");
	turn();
	CHECK_EQ_U64(n.view.id, 0xabcdef);
	deaf_to(1);
	stop();
}

TEST(a_number_that_has_been_is_no_loss)
{
	start_member();
	for (uint64_t i = 0; i < 3; i++)
		deliver_as(1, 11, 2, n.view.id, i, "in order");
	deliver_as(1, 11, 2, n.view.id, 0, "again");
	deliver_as(1, 11, 2, n.view.id, 2, "again");
	turn();
	CHECK_EQ_INT(n.msgs, 3);
	CHECK_EQ_STR(n.text, "in order");
	deliver_as(1, 11, 2, n.view.id, 3, "next");
	turn();
	CHECK_EQ_STR(n.text, "next");
	CHECK_EQ_INT(n.losses, 0);
	CHECK_EQ_INT(n.broken, 0);
	stop();
}

/* Node 1 was cut off. Then these join us and node 3: another ring. Of the first, the beginning is
 * missed. */
static void merged(const uint32_t *node, uint32_t count)
{
	struct fake_event *e;

	start_member();
	deliver_as(1, 11, 2, n.view.id, 0, "before");
	deliver_as(3, 33, 2, n.view.id, 0, "before");
	e = put_event();
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->members, &e->member_count, 3, 33, 0);
	add(e->left, &e->left_count, 1, 11, CPG_REASON_NODEDOWN);
	ring(2, 12);
	e = put_event();
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->members, &e->member_count, 3, 33, 0);
	for (uint32_t i = 0; i < count; i++) {
		add(e->members, &e->member_count, node[i], 11 * node[i], 0);
		add(e->joined, &e->joined_count, node[i], 11 * node[i], CPG_REASON_NODEUP);
	}
	ring(1, 16);
	turn();
	CHECK_EQ_INT(n.views, 3);
	CHECK_EQ_U64(n.view.count, 2 + count);
	deliver_as(node[0], 11 * node[0], 2, n.view.id, 9, "nine");
	turn();
	CHECK_EQ_INT(n.msgs, 2);
}

TEST(of_two_rings_that_merge_the_lesser_goes_if_its_beginning_is_missed)
{
	static const uint32_t one[] = {1}, three[] = {1, 4, 5};

	merged(one, 1);
	deaf_to(1);
	deliver_as(3, 33, 2, n.view.id, 0, "as before");
	turn();
	CHECK_EQ_STR(n.text, "as before");
	stop();
	merged(three, 3);
	went_again();
	stop();
}

/* Each may miss the other's. Were both deaf, both would go on: they have one quorum. */
TEST(of_two_halves_that_merge_only_the_one_with_the_lowest_node_is_deaf_to_the_other)
{
	static const uint32_t lower[] = {1, 4}, higher[] = {4, 5};

	merged(lower, 2);
	went_again();
	stop();
	merged(higher, 2);
	deaf_to(4);
	stop();
}

TEST(views_that_came_apart_are_greeted_together)
{
	start_member();
	deliver_as(1, 11, 2, 4711, 0, "soon after");
	turn();
	CHECK_EQ_INT(fake.sent_count, 1);
	turn_for(REGREET_US + 1000);
	deliver_as(1, 11, 2, 4711, 1, "late");
	turn();
	CHECK_EQ_INT(fake.sent_count, 2);
	CHECK_EQ_U64(fake.sent[1].data[5], 1);
	CHECK(sent_id(1) != sent_id(0));
	deliver_sent(1);
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK_EQ_INT(n.losses, 0);
	CHECK_EQ_INT(n.msgs, 0);
	stop();
}

TEST(who_greets_in_vain_joins_again)
{
	start_member();
	for (uint64_t i = 0; i < 4; i++) {
		CHECK_EQ_INT(n.losses, 0);
		turn_for((REGREET_US << i) + 1000);
		deliver_as(1, 11, 2, 4711, i, "apart");
		turn();
		if (i < 3)
			deliver_sent(fake.sent_count - 1);
		turn();
	}
	CHECK_EQ_INT(n.views, 4);
	CHECK_EQ_INT(n.losses, 1);
	CHECK_EQ_INT(n.lost_err, -EPROTO);
	stop();
}

TEST(a_dead_daemon_of_the_node_is_waited_for)
{
	struct fake_event *e;

	start();
	e = put_event();
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->members, &e->member_count, 2, 1, 0); /* the predecessor */
	add(e->joined, &e->joined_count, 2, ME, CPG_REASON_JOIN);
	ring(1, 8);
	turn_for(50000);
	CHECK_EQ_INT(fake.sent_count, 0);
	ring(1, 12); /* now the others have one of us in their view */
	turn();
	CHECK_EQ_INT(n.views, 0);
	e = put_event();
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->left, &e->left_count, 2, 1, CPG_REASON_PROCDOWN);
	turn_for(50000);
	CHECK_EQ_INT(fake.sent_count, 1);
	deliver_sent(0);
	turn();
	CHECK_EQ_INT(n.views, 1);
	CHECK_EQ_U64(n.view.count, 1);
	CHECK_EQ_U64(n.view.ring.seq, 12);
	stop();
}

/* The ring changes meanwhile, and of two daemons of a node the lower pid is taken. */
TEST(another_daemon_of_the_node_that_came_and_went_is_got_over)
{
	struct fake_event *e;

	start_member();
	e = put_event();
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->members, &e->member_count, 2, 1, 0);
	add(e->joined, &e->joined_count, 2, 1, CPG_REASON_JOIN);
	add(e->left, &e->left_count, 3, 33, CPG_REASON_NODEDOWN);
	ring(1, 12);
	turn_for(50000);
	CHECK_EQ_INT(n.views, 1);
	CHECK_EQ_INT(fake.sent_count, 1);
	CHECK_EQ_INT(group_send(n.group, "x", 1), -ENOTCONN);
	e = put_event();
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->members, &e->member_count, 2, ME, 0);
	add(e->left, &e->left_count, 2, 1, CPG_REASON_PROCDOWN);
	turn_for(50000);
	CHECK_EQ_INT(fake.sent_count, 2);
	deliver_sent(1);
	turn();
	CHECK_EQ_INT(n.views, 2);
	CHECK_EQ_INT(n.losses, 0);
	CHECK_EQ_U64(n.view.id, sent_id(1));
	CHECK(n.view.count == 2 && n.view.node[1] == 2 && n.view.fresh[1]);
	CHECK_EQ_INT(group_send(n.group, "x", 1), 0);
	stop();
}

TEST(nonsense_is_ignored)
{
	uint8_t nonsense[HEADER] = "DDRG\2";

	start_member();
	deliver(1, 11, nonsense, sizeof(nonsense)); /* another version */
	deliver(1, 11, nonsense, 5);
	deliver_as(1, 11, 77, n.view.id, 0, "another kind");
	turn();
	CHECK_EQ_INT(n.msgs, 0);
	CHECK_EQ_INT(n.views, 1);
	CHECK_EQ_INT(n.losses, 0);
	stop();
}

TEST(corosync_that_goes_away_is_looked_for)
{
	uint64_t one = 1;

	start_member();
	fake.dispatch_answer = CS_ERR_LIBRARY;
	fake.init_answer = CS_ERR_LIBRARY;
	CHECK(write(fake.cpg_fd, &one, sizeof(one)) == sizeof(one));
	turn();
	CHECK_EQ_INT(n.losses, 1);
	turn_for(300000);
	CHECK_EQ_INT(n.ups, 1);
	fake.dispatch_answer = fake.init_answer = CS_OK;
	turn_for(1200000);
	CHECK_EQ_INT(n.ups, 2);
	CHECK_EQ_INT(n.losses, 1);
	stop();
}

TEST(being_thrown_out_is_a_loss)
{
	struct fake_event *e;

	start_member();
	e = put_event();
	add(e->members, &e->member_count, 1, 11, 0);
	add(e->left, &e->left_count, 2, ME, CPG_REASON_PROCDOWN);
	turn();
	CHECK_EQ_INT(n.losses, 1);
	CHECK_EQ_INT(n.views, 1);
	stop();
}

TEST(two_node_is_read_anew_with_each_quorum)
{
	start_member();
	tell_quorum();
	turn();
	CHECK_EQ_INT(n.quorums, 1);
	CHECK(n.quorum_two_node);
	fake.two_node_answer = CS_ERR_NOT_EXIST; /* off */
	tell_quorum();
	turn();
	CHECK_EQ_INT(n.quorums, 2);
	CHECK(!n.quorum_two_node);
	CHECK_EQ_INT(n.losses, 0);
	stop();
}

static void token_becomes(uint32_t ms)
{
	uint64_t one = 1;

	fake.token_ms = ms;
	CHECK(write(fake.cmap_fd, &one, sizeof(one)) == sizeof(one));
	turn();
}

TEST(another_token_is_told)
{
	start_member();
	CHECK_EQ_U64(n.self.token_ms, 1000);
	token_becomes(1000);
	CHECK_EQ_U64(n.token_ms, 0); /* no other */
	token_becomes(3000);
	CHECK_EQ_U64(n.token_ms, 3000);
	token_becomes(1000);
	CHECK_EQ_U64(n.token_ms, 1000);
	CHECK_EQ_INT(n.losses, 0);
	stop();
}

TEST(two_node_that_cannot_be_read_is_a_loss)
{
	start_member();
	fake.two_node_answer = CS_ERR_LIBRARY;
	tell_quorum();
	turn();
	CHECK_EQ_INT(n.quorums, 0);
	CHECK_EQ_INT(n.losses, 1);
	CHECK_EQ_INT(n.lost_err, -ENOTCONN);
	CHECK_EQ_INT(fake.cmaps, 0);
	fake.two_node_answer = CS_OK;
	turn_for(1200000);
	CHECK_EQ_INT(n.ups, 2);
	CHECK(n.self.two_node);
	stop();
}
