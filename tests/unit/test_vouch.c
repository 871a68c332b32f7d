/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who joins serves when each other node has had an answer from each member since. */
#include "tests/unit/two_nodes_world.h"

static void hold(uint32_t node, uint32_t dev)
{
	w.hold.node = node;
	w.hold.dev = dev;
	w.hold.kind = KIND_USE;
	w.hold.op = DEV_READ;
	w.hold.on = true;
}

static void one_serves(void)
{
	create();
	w.others_look = true;
	start(1);
	run_ms(6000);
	CHECK(status(1).io_allowed);
}

TEST(a_node_joins_at_once_when_all_members_answer_the_other)
{
	one_serves();
	start(2);
	run_ms(1000);
	CHECK(status(2).io_allowed);
	finish();
}

/* The exporter was off, and node 1 does not know it yet: its request is never answered. */
TEST(a_node_waits_until_the_other_has_had_an_answer_from_each_member_and_says_so)
{
	one_serves();
	hold(1, 1);
	start(2);
	run_ms(3000);
	CHECK_EQ_INT(status(2).state, ENGINE_JOINING);
	CHECK(strstr(status(2).waits, "an answer from each member"));
	CHECK_EQ_U64(status(2).waits_node, 1);
	CHECK(status(1).io_allowed);
	held_goes_on();
	run_ms(500);
	CHECK(status(2).io_allowed);
	finish();
}

/* The map goes on without the member, and so does the node. */
TEST(a_connection_that_is_found_dead_takes_the_member_from_the_map_before_the_node_serves)
{
	one_serves();
	hold(1, 1);
	start(2);
	run_ms(3000);
	CHECK_EQ_INT(status(2).state, ENGINE_JOINING);
	w.hold.on = false;
	w.held_count = 0;
	member_cut(1, 1, true);
	run_ms(100);
	CHECK(status(1).map.member[1].state != MEMBER_IN_SYNC);
	run_ms(900);
	CHECK(status(2).io_allowed);
	finish();
}

/* What node 1 had an answer from may have been off since. */
TEST(a_member_that_is_connected_anew_before_the_node_serves_is_asked_for_anew)
{
	one_serves();
	hold(1, ANY_DEV);
	start(2);
	run_ms(1000);
	CHECK_EQ_INT(status(2).state, ENGINE_JOINING);
	member_cut(2, 2, true);
	run_ms(20);
	member_cut(2, 2, false);
	run_ms(20);
	held_goes_on(); /* it was sent before that */
	hold(1, 2);
	w.claim_hangs = 1;
	run_ms(1000);
	CHECK_EQ_INT(status(2).state, ENGINE_JOINING);
	held_goes_on();
	run_ms(1500);
	CHECK(status(2).io_allowed);
	finish();
}

/* An error is an answer. */
TEST(a_bad_sector_at_a_use_block_keeps_no_node_out)
{
	one_serves();
	w.use_bad = 1u << 1;
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
	create();
	w.others_look = true;
	w.use_bad = 1u << 1;
	start(1);
	start(2);
	run_ms(10000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}
