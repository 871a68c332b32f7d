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

/* A node is aside, and knows the map. It connects its members; then a node and an exporter lose
 * power together, and it is the only one that was connected. `read`: it had read the superblock. */
static void power_fails_as_it_connects(bool read)
{
	static uint8_t before[DISK_BYTES], data[DDR_BLOCK_BYTES], in[DDR_BLOCK_BYTES];
	uint64_t at;

	create();
	start(1);
	run_ms(3000);
	w.node[2].cut = 7;
	start(2);
	run_ms(3000);
	CHECK(serves(1) && !serves(2) && status(2).map.n == 3);
	memset(data, 3, sizeof(data));
	io_block(1, IO_WRITE, 0, data);
	run_ms(3000);
	CHECK_EQ_U64(status(1).regions_dirty, 0);
	at = engine_geo(w.node[1].e)->data_offset;
	memcpy(before, w.disk[0], DISK_BYTES);
	memset(data, 99, sizeof(data));
	io_block(1, IO_WRITE, 0, data);
	run_ms(5);
	CHECK_EQ_U64(w.node[1].ios_done, 2);              /* answered */
	CHECK(memcmp(before + at, w.disk[0] + at, 2048)); /* in the cache of member 0 */
	/* Node 2 reaches the members again. */
	if (!read) {
		w.hold.node = 2;
		w.hold.dev = 0;
		w.hold.kind = KIND_SB;
		w.hold.op = DEV_READ;
		w.hold.on = true;
	}
	member_cut(2, 0, false);
	run_ms(5);
	/* Node 1 and exporter 0 lose power. */
	w.node[1].stopped = true;
	w.node[1].cut = 7;
	memcpy(w.disk[0] + at, before + at, DISK_BYTES - at);
	member_cut(2, 0, true);
	run_ms(1);
	w.hold.on = false;
	for (uint32_t i = 0; i < w.held_count; i++)
		push(2, (struct event){.type = EV_DEV_DONE,
				       .done = {.id = w.held[i].io.id, .err = -ECONNRESET}});
	w.held_count = 0;
	run_ms(50);
	member_cut(2, 0, false);
	member_cut(2, 1, false);
	member_cut(2, 2, false);
	run_ms(50);
	view(2, 2, 2);
	run_ms(15000);
	CHECK(serves(2));
	io_block(2, IO_READ, 0, in);
	run_ms(500);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	CHECK_EQ_MEM(in, data, sizeof(in));
	finish();
}

TEST(a_connection_that_breaks_before_its_superblock_was_read_counts)
{
	power_fails_as_it_connects(true);
	power_fails_as_it_connects(false);
}
