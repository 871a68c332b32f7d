// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What daemon/ports/group.h promises to one node, held true for the adapter that GROUP_ADAPTER
 * names
 * ("alone" by default; "corosync" wants a running one, see group.sh, which also runs what
 * takes several nodes, with group_agent.c).
 */
#include <errno.h>
#include <unistd.h>

#include "daemon/ports/group.h"
#include "tests/lib/test.h"

#define LIMIT_US 20000000u

struct node {
	struct loop *loop;
	struct group *group;
	struct group_self self;
	struct group_view view;
	struct group_quorum quorum;
	unsigned ups, views, quorums, losses, lefts, writables;
	uint32_t received;
	uint64_t received_bytes;
	uint32_t expect;      /* the number that the next message must begin with */
	uint32_t wrong;       /* messages out of order or damaged */
	bool calling, nested; /* a callback came from within a call */
	bool answer;          /* send one message from within each of the first ten */
};

static void enter(struct node *n)
{
	if (n->calling)
		n->nested = true;
}

static void on_up(void *arg, const struct group_self *self)
{
	struct node *n = arg;

	enter(n);
	n->self = *self;
	n->ups++;
}

static void on_view(void *arg, const struct group_view *view)
{
	struct node *n = arg;

	enter(n);
	n->view = *view;
	n->views++;
}

static void on_quorum(void *arg, const struct group_quorum *quorum)
{
	struct node *n = arg;

	enter(n);
	n->quorum = *quorum;
	n->quorums++;
}

/* A message: its number, then bytes that follow from it. */
static void fill(uint8_t *data, size_t bytes, uint32_t number)
{
	memcpy(data, &number, sizeof(number));
	for (size_t i = sizeof(number); i < bytes; i++)
		data[i] = (uint8_t)(number * 31u + i * 7u);
}

static int send_number(struct node *n, uint32_t number, size_t bytes)
{
	static uint8_t data[GROUP_MESSAGE_BYTES + 1];
	int err;

	fill(data, bytes, number);
	n->calling = true;
	err = group_send(n->group, data, bytes);
	n->calling = false;
	return err;
}

static void on_msg(void *arg, uint32_t from, const void *data, size_t bytes)
{
	static uint8_t want[GROUP_MESSAGE_BYTES];
	struct node *n = arg;

	enter(n);
	fill(want, bytes, n->expect);
	if (n->views == 0 || from != n->self.node || memcmp(want, data, bytes) != 0)
		n->wrong++;
	n->expect++;
	n->received++;
	n->received_bytes += bytes;
	if (n->answer && n->received <= 10)
		send_number(n, n->received, 100);
}

static void on_lost(void *arg, int err, const char *why)
{
	struct node *n = arg;

	enter(n);
	printf("lost: %d %s\n", err, why);
	n->losses++;
}

static void on_left(void *arg)
{
	struct node *n = arg;

	enter(n);
	n->lefts++;
}

static void on_writable(void *arg)
{
	struct node *n = arg;

	enter(n);
	n->writables++;
}

static const struct group_cb callbacks = {
    .up = on_up,
    .view = on_view,
    .quorum = on_quorum,
    .msg = on_msg,
    .lost = on_lost,
    .left = on_left,
    .writable = on_writable,
};

/* Turns the loop until *count >= want. */
#define AWAIT(n_, count_, want_)                                                                   \
	do {                                                                                       \
		uint64_t end = loop_clock_us((n_)->loop) + LIMIT_US;                               \
		while ((n_)->count_ < (want_) && loop_now_us((n_)->loop) < end)                    \
			CHECK_EQ_INT(loop_turn((n_)->loop, 100000), 0);                            \
		CHECK_EQ_U64((n_)->count_, want_);                                                 \
	} while (0)

static void turns(struct node *n, uint64_t us)
{
	uint64_t end = loop_clock_us(n->loop) + us;

	while (loop_clock_us(n->loop) < end)
		CHECK_EQ_INT(loop_turn(n->loop, 10000), 0);
}

static const char *adapter(void)
{
	const char *name = getenv("GROUP_ADAPTER");

	return name ? name : "alone";
}

static struct node *start(void)
{
	static struct node n;
	struct group_cfg cfg = {.cb = &callbacks, .arg = &n};

	memset(&n, 0, sizeof(n));
	CHECK_EQ_INT(loop_new(&n.loop), 0);
	cfg.loop = n.loop;
	n.calling = true;
	CHECK_EQ_INT(group_open(adapter(), &cfg, &n.group), 0);
	n.calling = false;
	return &n;
}

static const char *group_name(void)
{
	static char name[64];

	snprintf(name, sizeof(name), "conformance-%d", (int)getpid());
	return name;
}

static struct node *start_member(void)
{
	struct node *n = start();

	AWAIT(n, ups, 1);
	n->calling = true;
	CHECK_EQ_INT(group_join(n->group, group_name()), 0);
	n->calling = false;
	AWAIT(n, views, 1);
	return n;
}

static void stop(struct node *n)
{
	CHECK(!n->nested);
	CHECK_EQ_U64(n->losses, 0);
	group_close(n->group);
	loop_free(n->loop);
}

TEST(an_unknown_adapter_is_refused)
{
	struct group_cfg cfg = {0};
	struct group *g;

	CHECK_EQ_INT(group_open("no such", &cfg, &g), -ENOENT);
}

TEST(a_node_knows_itself_before_it_joins)
{
	struct node *n = start();

	CHECK_EQ_INT(group_join(n->group, "g"), -ENOTCONN);
	AWAIT(n, ups, 1);
	CHECK(n->self.node > 0);
	CHECK(n->self.name[0]);
	AWAIT(n, quorums, 1);
	CHECK(n->quorum.quorate);
	CHECK_EQ_U64(n->views, 0);
	stop(n);
}

TEST(the_first_view_has_the_node_itself)
{
	struct node *n = start_member();

	CHECK_EQ_U64(n->view.count, 1);
	CHECK_EQ_U64(n->view.node[0], n->self.node);
	CHECK(n->view.fresh[0]);
	AWAIT(n, quorums, 1);
	stop(n);
}

TEST(the_rings_of_view_and_quorum_agree)
{
	struct node *n = start_member();

	AWAIT(n, quorums, 1);
	CHECK_EQ_U64(n->view.ring.rep, n->quorum.ring.rep);
	CHECK_EQ_U64(n->view.ring.seq, n->quorum.ring.seq);
	stop(n);
}

TEST(calls_in_the_wrong_state_or_size_are_refused)
{
	char name[GROUP_NAME_BYTES + 1];
	struct node *n = start();

	CHECK_EQ_INT(send_number(n, 0, 100), -ENOTCONN);
	AWAIT(n, ups, 1);
	CHECK_EQ_INT(send_number(n, 0, 100), -ENOTCONN);
	CHECK_EQ_INT(group_leave(n->group), -ENOTCONN);
	CHECK_EQ_INT(group_join(n->group, ""), -EINVAL);
	memset(name, 'x', sizeof(name));
	name[GROUP_NAME_BYTES] = 0;
	CHECK_EQ_INT(group_join(n->group, name), -EINVAL);
	name[GROUP_NAME_BYTES - 1] = 0;
	CHECK_EQ_INT(group_join(n->group, name), 0);
	CHECK_EQ_INT(group_join(n->group, name), -EALREADY);
	CHECK_EQ_INT(send_number(n, 0, 100), -ENOTCONN);
	AWAIT(n, views, 1);
	CHECK_EQ_INT(send_number(n, 0, GROUP_MESSAGE_BYTES + 1), -EMSGSIZE);
	CHECK_EQ_INT(send_number(n, 0, 100), 0);
	AWAIT(n, received, 1);
	CHECK_EQ_U64(n->wrong, 0);
	stop(n);
}

TEST(own_messages_come_in_the_order_sent)
{
	struct node *n = start_member();
	uint64_t us = loop_clock_us(n->loop);
	struct group_stats st;

	for (uint32_t i = 0; i < 10000; i++) {
		while (send_number(n, i, 4 + i % 997) == -EAGAIN)
			CHECK_EQ_INT(loop_turn(n->loop, 10000), 0);
	}
	AWAIT(n, received, 10000);
	us = loop_clock_us(n->loop) - us;
	CHECK_EQ_U64(n->wrong, 0);
	group_stats(n->group, &st);
	CHECK_EQ_U64(st.sent, 10000);
	CHECK_EQ_U64(st.received, 10000);
	CHECK_EQ_U64(st.dropped, 0);
	CHECK_EQ_U64(st.queued_messages, 0);
	printf("10000 messages of 4..1000 bytes: %" PRIu64 " ms, %" PRIu64 " times 'try again'\n",
	       us / 1000, st.try_again);
	stop(n);
}

TEST(a_message_may_be_sent_from_within_a_message)
{
	struct node *n = start_member();

	n->answer = true;
	CHECK_EQ_INT(send_number(n, 0, 100), 0);
	AWAIT(n, received, 11);
	CHECK_EQ_U64(n->wrong, 0);
	turns(n, 50000);
	CHECK_EQ_U64(n->received, 11);
	stop(n);
}

TEST(the_largest_messages_come_whole)
{
	struct node *n = start_member();

	for (uint32_t i = 0; i < 20; i++) {
		while (send_number(n, i, GROUP_MESSAGE_BYTES - i) == -EAGAIN)
			CHECK_EQ_INT(loop_turn(n->loop, 10000), 0);
	}
	AWAIT(n, received, 20);
	CHECK_EQ_U64(n->wrong, 0);
	stop(n);
}

TEST(a_full_queue_says_so_and_says_when_it_is_not)
{
	struct node *n = start_member();
	uint32_t sent = 0;
	int err;

	do
		err = send_number(n, sent, 65536);
	while (!err && ++sent <= GROUP_QUEUE_BYTES / 65536);
	CHECK_EQ_INT(err, -EAGAIN);
	CHECK_EQ_U64(sent, GROUP_QUEUE_BYTES / 65536);
	CHECK_EQ_U64(n->writables, 0);
	AWAIT(n, writables, 1);
	AWAIT(n, received, sent);
	CHECK_EQ_U64(n->writables, 1);

	for (sent = 0; (err = send_number(n, n->expect + sent, 4)) == 0; sent++)
		;
	CHECK_EQ_INT(err, -EAGAIN);
	CHECK_EQ_U64(sent, GROUP_QUEUE_MESSAGES);
	AWAIT(n, received, GROUP_QUEUE_BYTES / 65536 + GROUP_QUEUE_MESSAGES);
	CHECK_EQ_U64(n->writables, 2);
	CHECK_EQ_U64(n->wrong, 0);
	stop(n);
}

TEST(leaving_delivers_what_was_sent_before)
{
	struct node *n = start_member();

	for (uint32_t i = 0; i < 200; i++)
		CHECK_EQ_INT(send_number(n, i, 1000), 0);
	CHECK_EQ_INT(group_leave(n->group), 0);
	CHECK_EQ_INT(send_number(n, 200, 1000), -ENOTCONN);
	AWAIT(n, lefts, 1);
	CHECK_EQ_U64(n->received, 200);
	CHECK_EQ_U64(n->wrong, 0);
	stop(n);
}

TEST(who_left_may_join_again_under_another_view_id)
{
	struct node *n = start_member();
	uint64_t first = n->view.id, second;

	CHECK_EQ_INT(group_leave(n->group), 0);
	AWAIT(n, lefts, 1);
	AWAIT(n, ups, 2);
	CHECK_EQ_INT(group_join(n->group, group_name()), 0);
	AWAIT(n, views, 2);
	second = n->view.id;
	CHECK(first != second);
	CHECK(n->view.fresh[0]);
	CHECK_EQ_INT(send_number(n, 0, 10), 0);
	AWAIT(n, received, 1);
	stop(n);
}

TEST(leaving_before_the_first_view_works)
{
	struct node *n = start();

	AWAIT(n, ups, 1);
	CHECK_EQ_INT(group_join(n->group, group_name()), 0);
	CHECK_EQ_INT(group_leave(n->group), 0);
	AWAIT(n, lefts, 1);
	AWAIT(n, ups, 2);
	stop(n);
}

TEST(closing_works_at_any_time)
{
	struct node *n = start();

	stop(n);
	n = start();
	AWAIT(n, ups, 1);
	CHECK_EQ_INT(group_join(n->group, group_name()), 0);
	stop(n);
	n = start_member();
	for (uint32_t i = 0; i < 100; i++)
		CHECK_EQ_INT(send_number(n, i, 1000), 0);
	stop(n);
	n = start_member();
	CHECK_EQ_INT(group_leave(n->group), 0);
	stop(n);
}
