/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * R15: a slot of the dirty log with missed bits changes hands. Its new owner is slow to read it,
 * and a member that had missed writes comes back meanwhile. Whoever has not read the slot says
 * nothing about it; so the member is not rebuilt from less than all that it has missed.
 */
#define NODES 3
#include "two_nodes_world.h"

#define AT (5ull * (256 << 10)) /* of a region */
#define BLOCKS 64u              /* all of it */

static uint8_t pattern[DDR_BLOCK_BYTES];

static void member_2(bool gone)
{
	for (uint32_t i = 1; i <= NODES; i++)
		if (!w.node[i].stopped)
			member_cut(i, 2, gone);
}

/* Node 3 has written while member 2 was away, has stopped, and is given its slot again. */
static void slot_with_missed_bits(void)
{
	struct event ev = {.type = EV_ADMIN};

	memset(pattern, 0xab, sizeof(pattern));
	create();
	for (uint32_t i = 1; i <= NODES; i++) {
		start(i);
		run_ms(3000);
	}
	member_2(true);
	run_ms(1000);
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_SUSPECT);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		io_block(3, IO_WRITE, AT + i * DDR_BLOCK_BYTES, pattern);
		run_ms(2);
	}
	run_ms(2000);
	CHECK_EQ_U64(w.node[3].ios_done, BLOCKS);
	CHECK(status(3).regions_missed > 0);
	ev.admin.cmd = ADMIN_STOP;
	step(3, ev);
	run_ms(2000);
	CHECK(w.node[3].stopped);

	w.log_hangs = 3;
	engine_free(w.node[3].e);
	w.node[3].stopped = false;
	w.node[3].inc = 500;
	w.node[3].cut = 1u << 2;
	start(3);
	run_ms(2000);
	CHECK_EQ_INT(status(3).state, ENGINE_JOINING);
	CHECK(w.held_count > 0);
}

static uint32_t blocks_old(uint32_t node)
{
	uint8_t got[DDR_BLOCK_BYTES];
	uint32_t old = 0;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		memset(got, 0, sizeof(got));
		io_block(node, IO_READ, AT + i * DDR_BLOCK_BYTES, got);
		run_ms(3);
		old += memcmp(got, pattern, sizeof(pattern)) != 0;
	}
	return old;
}

static void member_2_is_back_whole(uint32_t node)
{
	CHECK_EQ_U64(status(node).map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(blocks_old(node), 0);
	/* Only from member 2 and one other: it must have all of it itself. */
	member_cut(node, 0, true);
	run_ms(1000);
	CHECK_EQ_U64(blocks_old(node), 0);
	finish();
}

TEST(the_leader_changes_before_the_slot_is_read)
{
	slot_with_missed_bits();
	w.node[1].stopped = true;
	view(2, 2, 3);
	view(2, 3, 3);
	run_ms(2000);
	member_2(false);
	run_ms(6000);
	/* The rebuild waits for what stands in the slot, and I/O goes on. */
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_REBUILDING);
	CHECK_EQ_U64(status(2).rebuild_waits_node, 3);
	CHECK(w.now - status(2).rebuild_waits_us > 1000000);
	CHECK_EQ_U64(blocks_old(2), 0);
	held_goes_on();
	run_ms(6000);
	CHECK_EQ_INT(status(3).state, ENGINE_ACTIVE);
	CHECK_EQ_U64(status(2).rebuild_waits_node, 0);
	member_2_is_back_whole(2);
}

TEST(the_leader_that_gave_it_away_still_knows)
{
	slot_with_missed_bits();
	member_2(false);
	run_ms(6000);
	held_goes_on();
	run_ms(6000);
	member_2_is_back_whole(1);
}

TEST(the_new_owner_dies_before_it_has_read_the_slot)
{
	slot_with_missed_bits();
	w.node[1].stopped = true;
	view(2, 2, 3);
	view(2, 3, 3);
	run_ms(2000);
	member_2(false);
	run_ms(3000);
	w.node[3].stopped = true;
	view(2, 2, 2);
	run_ms(6000);
	member_2_is_back_whole(2);
}
