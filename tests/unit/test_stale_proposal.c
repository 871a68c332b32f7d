/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A leader is cut off with one of the members in the moment in which it proposes a map: only itself
 * sees that. The others go on without it and without that member, and have it fenced. When it is
 * back, it tells of its proposal as it tells of all that it knows, and nobody takes that for the
 * newest.
 */
#define NODES 3
#include "two_nodes_world.h"

#define BLOCKS 16u

static uint8_t pattern[DDR_BLOCK_BYTES];

static void views(uint32_t rep, uint32_t from, uint32_t upto)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){rep, w.ring};
	for (uint32_t i = from; i <= upto; i++)
		ev.view.node[ev.view.count++] = i;
	for (uint32_t i = from; i <= upto; i++)
		push(i, ev);
	ev.type = EV_QUORUM;
	ev.view.quorate = ev.view.count > 1;
	for (uint32_t i = from; i <= upto; i++)
		push(i, ev);
}

static uint32_t blocks_old(uint32_t node)
{
	uint8_t got[DDR_BLOCK_BYTES];
	uint32_t old = 0;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		memset(got, 0, sizeof(got));
		io_block(node, IO_READ, i * DDR_BLOCK_BYTES, got);
		run_ms(20);
		old += memcmp(got, pattern, sizeof(pattern)) != 0;
	}
	return old;
}

static void one_that_only_its_leader_saw(bool fence_waits)
{
	uint32_t done;

	memset(pattern, 0xab, sizeof(pattern));
	create();
	w.fence_waits = fence_waits;
	w.restarts = true;
	w.node[1].inc = 900; /* the numbers of two maps are equal, so this makes it the newer one */
	for (uint32_t i = 1; i <= NODES; i++) {
		start(i);
		run_ms(3000);
	}
	CHECK(serves(1) && serves(2) && serves(3));
	CHECK(status(1).leading);

	/* The token is lost: each hears itself only, and the leader misses member 2. */
	w.split = true;
	member_cut(1, 2, true);
	run_ms(100);
	CHECK(status(1).proposing);
	CHECK(!status(2).proposing);

	w.split = false;
	w.away = 1;
	w.ring++;
	member_cut(2, 0, true);
	member_cut(3, 0, true);
	views(1, 1, 1);
	views(2, 2, 3);
	run_ms(1000);
	CHECK(serves(2) && serves(3));
	CHECK_EQ_U64(status(2).unfenced, 0);
	CHECK_EQ_U64(status(2).map.member[0].state, MEMBER_SUSPECT);
	CHECK_EQ_U64(status(2).map.epoch.num, status(1).proposed.epoch.num);
	done = w.node[3].ios_done;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		io_block(3, IO_WRITE, i * DDR_BLOCK_BYTES, pattern);
		run_ms(2);
	}
	run_ms(1000);
	CHECK_EQ_U64(w.node[3].ios_done, done + BLOCKS);

	/* All are back, members and nodes. */
	w.away = 0;
	w.ring++;
	views(1, 1, 3);
	member_cut(1, 2, false);
	member_cut(2, 0, false);
	member_cut(3, 0, false);
	run_ms(10000);
	CHECK(serves(2) && serves(3));
	for (uint32_t m = 0; m < MEMBERS; m++)
		CHECK_EQ_U64(status(2).map.member[m].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(blocks_old(2), 0);
	/* Each with one of the others. */
	for (uint32_t m = 0; m < MEMBERS; m++) {
		member_cut(2, m, true);
		run_ms(500);
		CHECK_EQ_U64(blocks_old(2), 0);
		member_cut(2, m, false);
		run_ms(3000);
	}
	finish();
}

TEST(one_that_was_fenced_by_a_wait_proposes_nothing)
{
	one_that_only_its_leader_saw(true);
}

TEST(one_that_was_fenced_by_a_command_proposes_nothing)
{
	one_that_only_its_leader_saw(false);
}
