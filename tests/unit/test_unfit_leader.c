/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who leads, or is to, and can't do what a leader must: it can't write to the members, or not to
 * its own state directory. Another one can, and does.
 */
#define NODES 3
#include "two_nodes_world.h"

/* request_timeout: what hangs is given up, and the connection made anew a second later. */
static void hung_give_up(uint32_t node)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < w.hung_count; i++) {
		push(node, w.hung[i]);
		mask |= 1u << w.hung_dev[i];
	}
	w.hung_count = 0;
	for (uint32_t m = 0; m < MEMBERS; m++)
		if (mask >> m & 1)
			member_cut(node, m, true);
	run_ms(1000);
	for (uint32_t m = 0; m < MEMBERS; m++)
		if (mask >> m & 1)
			member_cut(node, m, false);
}

/* It reads all members: its reservation key is gone, or large packets do not get through. */
static void starts_unable_to_write(uint32_t node, bool hang)
{
	create();
	w.others_look = w.io_may_fail = w.restarts = true;
	w.reach_ms = 14000;
	w.node[node].writes_hang = hang;
	w.node[node].writes_fail = !hang;
	start(1);
	start(2);
	for (uint32_t i = 0; i < 12 && !serves(3 - node); i++) {
		run_ms(10000);
		if (hang)
			hung_give_up(node);
	}
	CHECK(serves(3 - node));
	finish();
}

TEST(a_node_that_can_t_write_to_the_members_leaves_the_array_to_another)
{
	starts_unable_to_write(1, false);
	starts_unable_to_write(1, true);
	starts_unable_to_write(2, false);
	starts_unable_to_write(2, true);
}

/* A member is lost. */
static void can_t_write_its_record(uint32_t node)
{
	create();
	for (uint32_t i = 1; i <= 3; i++) {
		start(i);
		run_ms(4000);
	}
	CHECK(serves(1) && serves(2) && serves(3));
	w.io_may_fail = w.restarts = true;
	w.node[node].record_hangs = true;
	for (uint32_t i = 1; i <= 3; i++)
		member_cut(i, 1, true);
	run_ms(10);
	write_block(2, 0);
	run_ms(120000);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	CHECK(serves(2));
	finish();
}

TEST(nor_does_one_hold_all_whose_record_can_t_be_written)
{
	can_t_write_its_record(3);
	can_t_write_its_record(1);
}

/* Node 3 dies. The command of one of the others fails each time, within the second. */
static void fence_fails(uint32_t node)
{
	create();
	for (uint32_t i = 1; i <= 3; i++) {
		start(i);
		run_ms(4000);
	}
	CHECK(serves(1) && serves(2) && serves(3) && status(1).leading);
	write_block(2, 0);
	run_ms(100);
	w.node[node].fences_nobody = true;
	w.node[3].stopped = true;
	view(1, 1, 2);
	view(1, 2, 2);
	run_ms(100);
	write_block(2, 8192 * 40);
	for (uint32_t i = 0; i < 150; i++) {
		struct event ev = {.type = EV_FENCE_DONE,
				   .fence = {.node = 3, .inc = 103, .err = -EIO}};

		push(node, ev);
		run_ms(200);
	}
	CHECK(serves(1) && serves(2));
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	CHECK_EQ_U64(status(1).unfenced, 0);
	finish();
}

TEST(nor_one_whose_fence_fails)
{
	fence_fails(2);
	fence_fails(1);
}
