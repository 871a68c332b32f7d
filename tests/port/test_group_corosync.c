// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The adapter `corosync` on a fake corosync: what a real one does too rarely to wait for. The test
 * says what the fake delivers (corosync_world.h).
 */
#include "tests/port/corosync_world.h"

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
