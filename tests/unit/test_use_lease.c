/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lease that comes with the use blocks (core/cluster/use.c): it is never in the way of those
 * that could go on, and two never hold the array at once, whenever one of them stood still.
 */
#include "two_nodes_world.h"

#include "daemon/core/format/useblock.h"

/* Nodes 1 and 2 of one cluster, with real waits. */
static void both_up(void)
{
	create();
	w.others_look = w.restarts = w.io_may_fail = true;
	start(1);
	run_ms(3000);
	view(1, 1, 2);
	start(2);
	run_ms(6000);
	CHECK(serves(1) && serves(2));
	CHECK_EQ_U64(status(2).leader, 1);
}

/* R7: it is the leader, and its lease is over before it is sure that it alone has lost them. */
TEST(a_leader_that_reaches_no_member_makes_way)
{
	both_up();
	cut(1);
	run_ms(20000);
	CHECK(!serves(1));
	CHECK(serves(2));
	CHECK_EQ_U64(status(2).leader, 2);
	finish();
}

static void use_block(uint32_t member, struct useblock *u)
{
	CHECK_EQ_INT(useblock_decode(u, w.disk[member] + USE_OFFSET), 0);
}

/* What somebody wrote there once, and nobody renews. */
static void claim_put(uint32_t member)
{
	struct useblock u = {.claim = 77, .seq = 1, .node = 9, .patience_ms = 5000};

	memcpy(u.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	useblock_encode(&u, w.disk[member] + USE_OFFSET);
}

/* A follower writes as long as the array is in use for all who look, also if the leader's way to
 * the members hangs. */
TEST(each_node_that_serves_renews)
{
	struct useblock before, after;

	both_up();
	w.node[1].io_hangs = true;
	run_ms(8000);
	for (uint32_t i = 0; i < 10; i++) {
		use_block(0, &before);
		run_ms(3000);
		use_block(0, &after);
		CHECK(!serves(2) || before.seq != after.seq);
	}
	CHECK(serves(2));
	finish();
}

/* It carries the claim of an earlier run, and the next leader sees it. */
TEST(a_device_that_left_long_ago_takes_the_array_from_nobody)
{
	both_up();
	step(1, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 2}});
	run_ms(3000);
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_FAULTY);
	claim_put(2);
	stop(1);
	run_ms(5000);
	CHECK(serves(2));
	CHECK_EQ_U64(w.node[2].lives, 0);
	finish();
}

/* Its exporter returns anything, or it has just come back. */
TEST(nor_does_one_member)
{
	both_up();
	for (uint32_t i = 0; i < 20; i++) {
		claim_put(1);
		run_ms(100);
	}
	claim_put(1);
	stop(1);
	run_ms(5000);
	CHECK(serves(2));
	CHECK_EQ_U64(w.node[2].lives, 0);
	finish();
}

/* Each by itself: 1 has stood still, and 2 takes the array. Returns with 1 awake. */
static void asleep(bool stopped_clock, uint32_t ms)
{
	create();
	w.split = w.others_look = w.restarts = w.io_may_fail = true;
	w.node[1].alone = w.node[2].alone = true;
	start(1);
	run_ms(3000);
	CHECK(serves(1));
	w.node[1].stopped_clock = stopped_clock;
	w.node[1].paused = true;
	start(2);
	run_ms(ms);
	w.node[1].paused = false;
}

/* In all moments: before 2 has claimed, while it does, and after. */
TEST(one_that_wakes_up_while_its_members_are_taken_is_not_the_second)
{
	for (uint32_t late = 0; late <= 200; late += 100)
		for (uint32_t ms = 4900 + late / 10; ms < 6200; ms += 30) {
			asleep(false, 0);
			w.node[1].paused = true;
			w.node[2].use_writes_ms = late;
			run_ms(ms);
			w.node[1].paused = false;
			for (uint32_t i = 0; i < 60; i++) {
				run_ms(50);
				CHECK_MSG(!serves(1) || !serves(2), "%u ms, write %u ms", ms, late);
			}
			finish();
		}
}

static void loses_quorum(uint32_t node)
{
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = (struct ring){node, w.ring};
	push(node, ev);
}

static void never_both(uint32_t ms)
{
	for (uint32_t i = 0; i < 60; i++) {
		run_ms(20);
		CHECK_MSG(!serves(1) || !serves(2), "%u ms", ms);
	}
}

/* It has stood still, and claimed the array anew. Before it has read that again it has no quorum
 * for so long that the other takes its claim for one that was left. */
TEST(a_claim_that_is_read_again_late_is_made_anew)
{
	for (uint32_t ms = 9000; ms < 10600; ms += 50) {
		asleep(false, 3500);
		run_ms(100);
		w.node[2].use_writes_ms = 200;
		loses_quorum(1);
		run_ms(ms - 3500);
		quorum_of(1);
		never_both(ms);
		finish();
	}
}

/* So is its first claim, before it serves: it has stood still since that was written. */
TEST(a_first_claim_that_is_read_again_late_is_made_anew)
{
	for (uint32_t ms = 5500; ms < 6500; ms += 50) {
		create();
		w.split = w.others_look = w.restarts = w.io_may_fail = true;
		w.node[1].alone = w.node[2].alone = true;
		w.node[2].use_writes_ms = 200;
		start(1);
		run_ms(100);
		w.node[1].paused = true;
		start(2);
		run_ms(ms);
		w.node[1].paused = false;
		never_both(ms);
		finish();
	}
}

/* It believes for a while that it holds the array: nothing here says otherwise but the members. */
TEST(two_that_hold_it_find_each_other)
{
	for (uint32_t ms = 7000; ms < 9000; ms += 100) {
		asleep(true, ms);
		CHECK(serves(2));
		run_ms(4000);
		CHECK_MSG(!serves(1) || !serves(2), "%u ms", ms);
		run_ms(30000);
		CHECK_MSG(serves(1) != serves(2), "%u ms", ms);
		finish();
	}
}

/* Another has had it, and has given it back: what this one knows of the array is old. */
TEST(one_that_was_taken_and_given_back_is_looked_at_anew)
{
	asleep(true, 8000);
	w.node[1].paused = true;
	stop(2);
	w.node[1].paused = false;
	run_ms(2500);
	CHECK(w.node[1].lives > 0);
	run_ms(10000);
	CHECK(serves(1));
	finish();
}

/* All members are gone for longer than the lease, and than the patience, for all nodes. */
TEST(members_that_are_back_are_used_again)
{
	for (uint32_t ms = 1000; ms <= 31000; ms += 5000) {
		both_up();
		for (uint32_t n = 1; n <= 2; n++)
			for (uint32_t m = 0; m < MEMBERS; m++)
				member_cut(n, m, true);
		run_ms(ms);
		for (uint32_t n = 1; n <= 2; n++)
			for (uint32_t m = 0; m < MEMBERS; m++)
				member_cut(n, m, false);
		run_ms(8000);
		CHECK_MSG(serves(1) && serves(2), "%u ms: %s", ms,
			  status(1).waits ? status(1).waits : "");
		CHECK_EQ_U64(w.node[1].lives + w.node[2].lives, 0);
		write_block(1, 0);
		run_ms(2000);
		CHECK(w.node[1].ios_done > 0);
		finish();
	}
}

/* They only answer late, and healthy nodes stay. */
TEST(slow_members_cost_time_and_no_node)
{
	for (uint32_t ms = 1000; ms <= 6000; ms += 500) {
		both_up();
		w.node[1].use_writes_ms = w.node[2].use_writes_ms = ms;
		run_ms(40000);
		CHECK_EQ_U64(w.node[1].lives + w.node[2].lives, 0);
		w.node[1].use_writes_ms = w.node[2].use_writes_ms = 0;
		run_ms(40000); /* 2 T of a claim that such members were given */
		CHECK_MSG(serves(1) && serves(2), "%u ms", ms);
		CHECK_EQ_U64(w.node[1].lives + w.node[2].lives, 0);
		finish();
	}
}

/* Its renewals hang on the way to the members for so long that another one has them by then, and
 * hide that one's claim when they land: until its next renewal. */
TEST(renewals_that_land_late_hide_nobody)
{
	for (uint32_t ms = 6000; ms < 8000; ms += 50) {
		create();
		w.split = w.others_look = w.restarts = w.io_may_fail = true;
		w.node[1].alone = w.node[2].alone = true;
		start(1);
		run_ms(3000);
		CHECK(serves(1));
		w.claim_hangs = 1;
		run_ms(1100);
		start(2);
		run_ms(ms);
		CHECK(!serves(1) && serves(2));
		held_goes_on();
		for (uint32_t i = 0; i < 200; i++) {
			run_ms(20);
			CHECK_MSG(!serves(1) || !serves(2), "%u ms, then %u ms", ms, 20 * i);
		}
		finish();
	}
}

/* All exporters are away for longer than the lease, while renewals are on their way. One of them
 * comes back again and again afterwards, and never for long. */
TEST(one_that_comes_and_goes_keeps_nobody_from_a_lease)
{
	for (uint32_t ms = 0; ms < 1000; ms += 100) {
		both_up();
		for (uint32_t n = 1; n <= 2; n++)
			w.node[n].use_writes_ms = 150;
		run_ms(3000 + ms);
		for (uint32_t n = 1; n <= 2; n++)
			for (uint32_t m = 0; m < MEMBERS; m++)
				member_cut(n, m, true);
		run_ms(8000);
		for (uint32_t n = 1; n <= 2; n++)
			for (uint32_t m = 0; m < MEMBERS; m++)
				member_cut(n, m, false);
		for (uint32_t i = 0; i < 20; i++) {
			run_ms(500);
			member_cut(1, 0, true);
			member_cut(2, 0, true);
			run_ms(500);
			member_cut(1, 0, false);
			member_cut(2, 0, false);
		}
		CHECK_MSG(serves(1) && serves(2), "%u ms: %s", ms,
			  status(1).waits ? status(1).waits : "");
		write_block(1, 0);
		run_ms(200);
		CHECK_MSG(w.node[1].ios_done > 0, "%u ms: I/O waits", ms);
		finish();
	}
}

/* Of one exporter the use block can't be read, or can't be written, for as long as request_timeout
 * lets it, and all else of it is prompt. */
static void use_block_hangs(uint32_t prompt_op)
{
	for (uint32_t n = 1; n <= 2; n++) {
		w.node[n].use_slow_mask = 1;
		w.node[n].use_slow_ms = 60000;
		w.node[n].use_prompt_op = prompt_op;
	}
}

static void both_have_leases(uint32_t prompt_op, uint32_t after_ms)
{
	run_ms(after_ms);
	for (uint32_t i = 0; i < 70; i++) {
		run_ms(1000);
		for (uint32_t n = 1; n <= 2; n++)
			CHECK_MSG(engine_use_until_us(w.node[n].e) > w.now,
				  "all but %u hang: node %u has no lease after %u s", prompt_op, n,
				  after_ms / 1000 + i);
	}
	CHECK(serves(1) && serves(2));
	CHECK_EQ_U64(w.node[1].lives + w.node[2].lives, 0);
}

TEST(one_whose_use_block_hangs_keeps_nobody_from_a_lease)
{
	for (uint32_t op = 0; op <= DEV_WRITE + 1u; op += DEV_WRITE + 1u)
		for (uint32_t before_ms = 0; before_ms <= 2000; before_ms += 2000) {
			both_up();
			use_block_hangs(op);
			run_ms(before_ms);
			for (uint32_t n = 1; n <= 2; n++)
				for (uint32_t m = 0; m < MEMBERS; m++)
					member_cut(n, m, true);
			for (uint32_t i = 0; i < w.late_count; i++)
				w.late[i].at = w.now; /* its connection breaks */
			run_ms(8000);
			for (uint32_t n = 1; n <= 2; n++)
				for (uint32_t m = 0; m < MEMBERS; m++)
					member_cut(n, m, false);
			both_have_leases(op, 4000);
			finish();
		}
}

TEST(nor_from_its_first_one)
{
	for (uint32_t op = 0; op <= DEV_WRITE + 1u; op++) {
		create();
		w.others_look = w.restarts = w.io_may_fail = true;
		start(1);
		run_ms(3000);
		view(1, 1, 2);
		use_block_hangs(op);
		start(2);
		/* A write is waited for once. */
		both_have_leases(op, op == DEV_READ + 1u ? 130000 : 10000);
		finish();
	}
}
