/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who is to assemble the array, or has just joined, and does not serve yet: what it knows of the
 * members is of a time at which it held them (core/use.c).
 */
#include "two_nodes_world.h"

#include "daemon/core/useblock.h"

#define BLOCKS 16u

static void begin(void)
{
	create();
	w.split = w.others_look = true;
	w.node[1].alone = w.node[2].alone = true;
	w.restarts = true;
}

static void stop(uint32_t node)
{
	step(node, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(3000);
	CHECK(w.node[node].stopped);
}

static bool serves(uint32_t node)
{
	return w.node[node].e && !w.node[node].stopped && status(node).io_allowed;
}

static void again(uint32_t node, uint64_t inc)
{
	engine_free(w.node[node].e);
	w.node[node].stopped = false;
	w.node[node].inc = inc;
	start(node);
}

static uint64_t claim_on(uint32_t member)
{
	struct useblock u;

	CHECK_EQ_INT(useblock_decode(&u, w.disk[member] + USE_OFFSET), 0);
	return u.claim;
}

static void fill(uint32_t node, uint8_t with)
{
	static uint8_t block[DDR_BLOCK_BYTES];
	uint32_t done = w.node[node].ios_done;

	memset(block, with, sizeof(block));
	for (uint32_t i = 0; i < BLOCKS; i++)
		io_block(node, IO_WRITE, i * 65536ull, block);
	run_ms(1000);
	CHECK_EQ_U64(w.node[node].ios_done, done + BLOCKS);
}

static void filled(uint32_t node, uint8_t with)
{
	static uint8_t block[DDR_BLOCK_BYTES];
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		memset(block, 0, sizeof(block));
		io_block(node, IO_READ, i * 65536ull, block);
		run_ms(50);
		wrong += block[0] != with || memcmp(block, block + 1, sizeof(block) - 1) != 0;
	}
	CHECK_MSG(!wrong, "%u of %u acknowledged blocks are lost", wrong, BLOCKS);
}

/* Node 1 has served and stopped. It starts again, and has assembled the array but for the slots. */
static void assembles(void)
{
	begin();
	start(1);
	run_ms(3000);
	fill(1, 0x11);
	stop(1);
	w.log_hangs = 1;
	again(1, 300);
	run_ms(2500);
	CHECK(!serves(1) && w.held_count);
}

/* Nothing is seen of node 1 for so long that node 2 may have the array; it loses a member, and
 * stops. */
static void another_uses_it(void)
{
	start(2);
	run_ms(12000);
	CHECK(serves(2));
	member_cut(2, 2, true);
	run_ms(1000);
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_SUSPECT);
	fill(2, 0x22);
	stop(2);
}

TEST(what_was_assembled_before_the_members_were_away_does_not_count)
{
	assembles();
	cut(1);
	held_goes_on();
	run_ms(100);
	another_uses_it();
	w.node[1].cut = 0;
	connect(1);
	run_ms(20000);
	CHECK(serves(1));
	filled(1, 0x22);
	finish();
}

TEST(nor_what_was_assembled_before_the_node_stood_still)
{
	assembles();
	w.node[1].paused = true;
	run_ms(100);
	another_uses_it();
	held_goes_on();
	w.node[1].paused = false;
	run_ms(20000);
	CHECK(serves(1));
	filled(1, 0x22);
	finish();
}

/* Its ways lead to old copies, which it has claimed. One after the other they are set right. */
static void ways_set_right(uint32_t gap_ms, uint32_t away_ms)
{
	uint8_t *old[MEMBERS];

	begin();
	start(1);
	run_ms(3000);
	stop(1);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		old[m] = malloc(DISK_BYTES);
		memcpy(old[m], w.disk[m], DISK_BYTES);
	}
	again(1, 300);
	run_ms(3000);
	write_block(1, 0);
	stop(1);
	for (uint32_t m = 0; m < MEMBERS; m++)
		w.node[1].ways[m] = old[m];
	again(1, 400);
	run_ms(6000);
	CHECK_EQ_INT(status(1).state, ENGINE_REFUSED);
	start(2);
	run_ms(3000);
	CHECK(serves(2));
	write_block(2, 65536);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		member_cut(1, m, true);
		run_ms(away_ms);
		w.node[1].ways[m] = NULL;
		member_cut(1, m, false);
		for (uint32_t ms = 0; ms < gap_ms; ms += 10) {
			run_ms(10);
			CHECK(serves(2) && !serves(1));
			CHECK_EQ_U64(w.node[1].fences, 0);
		}
	}
	run_ms(10000);
	CHECK(serves(2) && !serves(1));
	stop(2);
	run_ms(3000);
	CHECK(serves(1));
	for (uint32_t m = 0; m < MEMBERS; m++)
		free(old[m]);
	finish();
}

TEST(ways_that_are_set_right_one_by_one_are_looked_at)
{
	ways_set_right(700, 200);
	ways_set_right(1500, 1);
	ways_set_right(3000, 1);
	ways_set_right(5000, 2000);
}

/* One member's connections come and go all the time: the array starts nevertheless. */
TEST(a_member_that_comes_and_goes_keeps_no_array_from_being_started)
{
	begin();
	start(1);
	for (uint32_t i = 0; i < 100 && !serves(1); i++) {
		run_ms(70);
		member_cut(1, 1, i % 2 == 0);
	}
	CHECK(serves(1));
	finish();
}

static void split_rings(void)
{
	w.split = true;
	w.ring += 4;
	for (uint32_t i = 1; i <= NODES; i++) {
		view(i, i, i);
		quorum_of(i);
	}
}

/* Node 2 waits beside node 1, which serves: it takes its locks elsewhere. */
static void one_waits(void)
{
	create();
	w.others_look = true;
	w.node[2].other_locks = true;
	w.fence_hangs = true;
	start(1);
	start(2);
	run_ms(12000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	write_block(1, 0);
	run_ms(100);
}

/* Two halves that both have quorum: the other one's claim is not its own to give back. */
TEST(who_waits_and_stops_leaves_the_array_to_who_is_not_fenced)
{
	create();
	w.two_node = w.others_look = w.fence_hangs = true;
	w.node[2].other_locks = true;
	start(1);
	start(2);
	run_ms(12000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	split_rings();
	run_ms(50);
	step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	for (uint32_t i = 0; i < 30; i++) {
		run_ms(100);
		for (uint32_t m = 0; m < MEMBERS; m++)
			CHECK(claim_on(m));
	}
	CHECK(!w.node[1].stopped);
	CHECK_EQ_INT(status(1).state, ENGINE_ACTIVE);
	finish();
}

TEST(nor_does_it_give_back_what_a_dead_node_may_still_write_to)
{
	one_waits();
	w.node[1].stopped = true;
	view(2, 2, 2);
	run_ms(100);
	step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(300);
	for (uint32_t m = 0; m < MEMBERS; m++)
		CHECK(claim_on(m));
	finish();
}
