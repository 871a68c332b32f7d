/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who is to assemble the array, or has just joined, and does not serve yet: what it knows of the
 * members is of a time at which it held them (core/cluster/use.c).
 */
#include "two_nodes_world.h"

#include "daemon/core/format/useblock.h"

#define BLOCKS 16u

static void begin(void)
{
	create();
	w.split = w.others_look = true;
	w.node[1].alone = w.node[2].alone = true;
	w.restarts = true;
}

static uint64_t claim_of(const uint8_t *disk)
{
	struct useblock u;

	return useblock_decode(&u, disk + USE_OFFSET) ? 0 : u.claim;
}

static uint64_t claim_on(uint32_t member)
{
	return claim_of(w.disk[member]);
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

/*
 * Node 1's ways lead to a copy of the members of before it died; node 2 has the members, and waits
 * for its fence. As node 1 reads the use blocks, one of its ways is set right: nobody has looked at
 * what that leads to.
 */
static void way_set_right_while_it(bool verifies, uint32_t at_ms)
{
	uint8_t *old[MEMBERS];

	begin();
	start(1);
	run_ms(3000);
	fill(1, 0x11);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		old[m] = malloc(DISK_BYTES);
		memcpy(old[m], w.disk[m], DISK_BYTES);
		w.node[1].ways[m] = old[m];
	}
	w.io_may_fail = true;
	w.fence_after_ms = 20000;
	start(2);
	w.node[1].machine = 77;
	again(1, 400);
	w.hold.node = 1;
	w.hold.dev = 2;
	w.hold.kind = KIND_USE;
	w.hold.op = DEV_READ;
	if (!verifies)
		run_ms(at_ms);
	for (uint32_t i = 0; verifies && claim_of(old[1]) != 400; i++) {
		CHECK(i < 30000);
		run_ms(1);
	}
	w.hold.on = true;
	while (!w.held_count)
		run_ms(1);
	run_ms(5);
	member_cut(1, 0, true);
	run_ms(50);
	w.node[1].ways[0] = NULL;
	member_cut(1, 0, false);
	run_ms(100);
	held_goes_on();
	run_ms(60000);
	CHECK(serves(2) && !serves(1));
	fill(2, 0x22);
	filled(2, 0x22);
	for (uint32_t m = 0; m < MEMBERS; m++)
		free(old[m]);
	finish();
}

TEST(a_way_that_is_set_right_while_the_claim_is_verified_is_not_verified)
{
	way_set_right_while_it(true, 0);
}

TEST(nor_is_it_claimed_unread)
{
	for (uint32_t at_ms = 4600; at_ms <= 5400; at_ms += 100)
		way_set_right_while_it(false, at_ms);
}

/* Node 2 has joined, and has its slot, when it stands still. Another one uses the array meanwhile.
 */
TEST(nor_does_what_a_slot_had_before_the_array_was_lost)
{
	create();
	w.others_look = w.restarts = true;
	start(1);
	run_ms(4000);
	write_block(1, 0);
	run_ms(20);
	again(1, 201);
	run_ms(12000);
	CHECK(serves(1));
	w.hold.node = 2;
	w.hold.dev = ANY_DEV;
	w.hold.kind = KIND_LOG;
	w.hold.op = DEV_WRITE;
	w.hold.on = true;
	start(2);
	for (uint32_t i = 0; i < 20000 && !w.held_count; i++)
		run_ms(1);
	CHECK(w.held_count);
	run_ms(20);
	w.node[2].fences_nobody = w.node[1].stopped = w.split = true;
	w.ring += 4;
	view(2, 2, 2);
	quorum_of(2);
	run_ms(100);
	held_goes_on();
	run_ms(200);
	w.node[2].paused = true;
	w.node[1].alone = w.node[1].take_over = true;
	again(1, 500);
	run_ms(15000);
	CHECK(serves(1));
	stop(1);
	again(1, 600);
	run_ms(6000);
	CHECK(serves(1));
	member_cut(1, 2, true);
	run_ms(500);
	fill(1, 0x22);
	run_ms(2000);
	stop(1);
	w.node[2].paused = w.node[2].fences_nobody = false;
	run_ms(3000);
	push(2, (struct event){.type = EV_FENCE_DONE, .fence.node = 1, .fence.inc = 201});
	run_ms(20000);
	CHECK(serves(2));
	filled(2, 0x22);
	finish();
}

/* One answers a use request after two seconds. */
TEST(a_slow_member_keeps_no_array_from_being_started)
{
	begin();
	w.node[1].use_slow_mask = 1;
	w.node[1].use_slow_ms = 2100;
	start(1);
	run_ms(80000);
	for (uint32_t i = 0; i < 40 && !serves(1); i++)
		run_ms(1000);
	CHECK(serves(1));
	finish();
}

/* Of one the use block can't be read, or can't be written, before request_timeout. */
TEST(nor_does_one_whose_use_block_hangs)
{
	for (uint32_t op = 0; op <= DEV_WRITE + 1u; op++) {
		begin();
		w.node[1].use_slow_mask = 1;
		w.node[1].use_slow_ms = 60000;
		w.node[1].use_prompt_op = op;
		start(1);
		run_ms(200000);
		CHECK_MSG(serves(1), "but %u: %s", op, status(1).waits ? status(1).waits : "");
		CHECK(engine_use_until_us(w.node[1].e) > w.now);
		finish();
	}
}

/* What it carries is a claim that somebody has left there, and no look waits for it. */
TEST(nor_does_one_that_is_slow_and_carries_another_s_claim)
{
	for (uint32_t op = 0; op <= DEV_WRITE + 1u; op++) {
		struct useblock left = {.claim = 77, .seq = 5, .node = 9, .patience_ms = 5000};

		begin();
		memcpy(left.array_uuid, w.array_uuid, DDR_UUID_BYTES);
		useblock_encode(&left, w.disk[0] + USE_OFFSET);
		w.node[1].use_slow_mask = 1;
		w.node[1].use_slow_ms = 2100;
		w.node[1].use_prompt_op = op;
		start(1);
		for (uint32_t i = 0; i < 120 && !serves(1); i++)
			run_ms(1000);
		CHECK_MSG(serves(1), "but %u: %s", op, status(1).waits ? status(1).waits : "");
		finish();
	}
}

/* It gets no lease, so it gets no slot: what was missed in that nobody else could tell. */
TEST(a_node_that_joins_and_may_not_write_holds_up_no_rebuild)
{
	create();
	w.others_look = true;
	start(1);
	run_ms(4000);
	CHECK(serves(1));
	w.node[2].use_slow_mask = 7;
	w.node[2].use_slow_ms = 3200;
	start(2);
	run_ms(10000);
	member_cut(1, 2, true);
	run_ms(300);
	write_block(1, 0);
	run_ms(1000);
	member_cut(1, 2, false);
	run_ms(15000);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_IN_SYNC);
	CHECK(serves(1));
	finish();
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
