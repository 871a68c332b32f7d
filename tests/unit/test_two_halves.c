/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two nodes: each alone in its ring, with quorum there (two_node); fences that only wait. */
#include "tests/unit/two_nodes_world.h"

/* They lose sight of each other, or see each other again. */
static void rings(bool split)
{
	w.split = split;
	w.ring += 4;
	for (uint32_t i = 1; i <= NODES; i++) {
		view(split ? i : 1, i, split ? i : NODES);
		quorum_of(i);
	}
}

/* Its daemon dies, and the next one comes with the record. */
static void start_again(uint32_t node, uint64_t inc)
{
	struct record record = w.node[node].record;
	uint32_t fence_ms = w.node[node].fence_ms;

	engine_free(w.node[node].e);
	w.node[node] = (struct node){.inc = inc, .record = record, .fence_ms = fence_ms};
	start(node);
}

static void start_two(void)
{
	create();
	w.two_node = true;
	start(1);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
}

/* R6: each half took the other for removed, and wrote that down. The fence chose one of them. */
TEST(what_a_fenced_half_took_for_removed_is_not_when_it_is_back)
{
	start_two();
	write_block(2, 0);
	run_ms(20);
	w.node[2].fences_nobody = true;
	rings(true);
	run_ms(3000);
	CHECK(w.node[2].fences > 0 && !status(2).io_allowed);
	CHECK(status(1).io_allowed);
	CHECK_EQ_U64(w.node[2].record.removed_count, 1);
	rings(true); /* its node was off */
	start_again(2, 300);
	run_ms(1000);
	CHECK(!status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].fences, 0);
	rings(false);
	run_ms(3000);
	CHECK(!w.node[1].stopped && w.node[1].lives == 0); /* not removed */
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(w.node[1].record.removed_count, 0);
	CHECK_EQ_U64(w.node[2].record.removed_count, 0);
	finish();
}

/* Else both would, and neither would know whom to fence. */
TEST(of_two_that_have_not_met_none_begins_alone)
{
	create();
	w.two_node = true;
	w.split = true;
	start(1);
	start(2);
	run_ms(20000);
	for (uint32_t i = 1; i <= NODES; i++) {
		CHECK(!status(i).io_allowed);
		CHECK(status(i).waits && strstr(status(i).waits, "two_node"));
		CHECK_EQ_U64(w.node[i].fences, 0);
	}
	/* To allow an older state says nothing of the other node. */
	step(1, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FORCE}});
	run_ms(3000);
	CHECK(!status(1).io_allowed);
	CHECK(strstr(status(1).waits, "--alone"));
	step(1, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_ALONE}});
	run_ms(8000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	rings(false);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* The other is off, and was fenced before; its node can't have come back without a new ring. */
TEST(a_daemon_that_is_restarted_where_its_node_is_alone_goes_on)
{
	start_two();
	rings(true);
	w.node[2].stopped = true;
	run_ms(3000);
	CHECK(status(1).io_allowed && w.node[1].fences > 0);
	start_again(1, 300);
	run_ms(8000); /* no other of its run may have the members */
	CHECK(status(1).io_allowed);
	rings(true);
	start_again(1, 400);
	run_ms(8000);
	CHECK(!status(1).io_allowed); /* the other may have met one of these lives meanwhile */
	finish();
}

/* Neither fence has worked. Each new incarnation could fence the other's dead one, and find no
 * more. */
TEST(of_two_halves_that_have_not_fenced_each_other_none_goes_on_as_another)
{
	start_two();
	w.node[1].fences_nobody = w.node[2].fences_nobody = true;
	rings(true);
	run_ms(3000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	start_again(1, 300);
	start_again(2, 400);
	run_ms(10000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	rings(false);
	run_ms(6000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* It takes the other for departed, hears nothing of it, and would have it evicted. */
static void fenced_and_lives(uint32_t winner, uint32_t loser)
{
	start_two();
	w.restarts = true;
	write_block(loser, 0);
	run_ms(20);
	w.node[loser].fences_nobody = true;
	rings(true);
	run_ms(3000);
	CHECK(status(winner).io_allowed && !status(loser).io_allowed);
	w.node[loser].fences_nobody = false;
	rings(false);
	run_ms(6000);
	CHECK_EQ_U64(w.node[winner].lives, 0);
	CHECK(w.node[loser].lives > 0);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

TEST(the_half_that_was_fenced_and_lives_removes_nobody)
{
	fenced_and_lives(1, 2);
}

TEST(nor_if_it_is_the_lower_one)
{
	fenced_and_lives(2, 1);
}

/* Each is alone with itself; one of them has quorum, with others that run no daemon. */
static void rings_apart(uint32_t quorate)
{
	struct event ev = {.type = EV_QUORUM};

	w.split = true;
	w.ring += 4;
	for (uint32_t i = 1; i <= NODES; i++) {
		view(i, i, i);
		if (i == quorate) {
			quorum_of(i);
			continue;
		}
		ev.view.ring = (struct ring){i, w.ring};
		push(i, ev);
	}
}

/*
 * R5: it was only waited for, while it joined, and has got a slot since, where nobody knew. So it
 * is waited for again: that a map was committed after it counts in the ring in which that was.
 */
TEST(who_was_waited_for_and_serves_since_is_waited_for_again)
{
	struct event done = {.type = EV_FENCE_DONE};

	create();
	w.restarts = w.fence_waits = true;
	start(1);
	run_ms(3000);
	CHECK(status(1).io_allowed);
	w.fence_hangs = true; /* of node 1's life before */
	start_again(1, 300);
	start(2);
	run_ms(500);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	w.fence_hangs = false;
	rings_apart(1);
	done.fence.node = 1; /* what it asked for in the ring before */
	done.fence.inc = 101;
	push(1, done);
	run_ms(8000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	CHECK_EQ_U64(w.node[1].record.removed_count, 0);
	rings_apart(2);
	run_ms(8000); /* it waits until node 1 has shown for a while that it is not there */
	CHECK(!status(1).io_allowed && status(2).io_allowed);
	write_block(2, 0);
	run_ms(20);
	CHECK_EQ_U64(w.node[1].lives + w.node[2].lives, 0);
	w.watched = 102;
	rings(false);
	run_ms(6000);
	CHECK_EQ_U64(w.node[1].lives, 1);
	CHECK_EQ_U64(w.node[2].lives, 1);
	CHECK(w.watched_fences > 0);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* R5: who stops writing later than the others wait for has to write nothing. */
TEST(who_waits_for_another_time_gets_no_slot)
{
	create();
	w.fence_waits = true;
	w.node[1].fence_ms = 10000;
	w.node[2].fence_ms = 30000;
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	CHECK(strstr(status(2).waits, "zombie_timeout") != NULL);
	w.node[2].fence_ms = 10000;
	start_again(2, 300);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* R4: its last incarnation may have needed a longer wait than the one that it had for itself. */
TEST(nor_is_its_fence_of_its_own_last_life_one)
{
	for (int differs = 0; differs < 2; differs++) {
		create();
		w.fence_waits = true;
		w.node[1].fence_ms = w.node[2].fence_ms = 10000;
		start(1);
		start(2);
		run_ms(3000);
		CHECK(status(1).io_allowed && status(2).io_allowed);
		write_block(2, 0);
		run_ms(20);
		w.watched = w.fenced_inc = 102;
		w.node[2].fence_ms = differs ? 0 : 10000;
		start_again(2, 300);
		run_ms(3000);
		CHECK(status(1).io_allowed && status(2).io_allowed == !differs);
		CHECK_EQ_INT(w.watched_fences > 0, differs);
		finish();
	}
}

/* Switched on while they run, by a reload of corosync.conf: both would wait, and go on. */
TEST(a_half_goes_on_by_no_fence_that_only_waits)
{
	create();
	w.fence_waits = true;
	start(1);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	w.two_node = true;
	rings(true);
	run_ms(10000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
	rings(false);
	run_ms(6000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}
