/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two nodes, their members and their leader. */
#include "tests/unit/two_nodes_world.h"

#include "daemon/core/format/superblock.h"

/* It has led, so its Hello names an epoch of its own; but nothing of it is under way any more. */
TEST(a_leader_that_left_cleanly_is_not_fenced)
{
	struct event ev = {.type = EV_ADMIN};

	create();
	start(1);
	run_ms(3000);
	CHECK(status(1).io_allowed);
	start(2);
	run_ms(3000);
	CHECK(status(2).io_allowed);
	CHECK(status(1).leading);
	ev.admin.cmd = ADMIN_STOP;
	step(1, ev);
	run_ms(3000);
	CHECK(w.node[1].stopped);
	CHECK(status(2).leading);
	CHECK(status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].fences, 0);
	finish();
}

/* How long that took is not known to those who only hear of it. */
TEST(of_a_life_that_its_own_node_has_fenced_the_others_know_that_it_was_fenced_before)
{
	struct engine_status st;

	start_both();
	write_block(1, 0);
	write_block(2, 8192);
	run_ms(20);
	w.node[1].stopped = w.node[2].stopped = true; /* dead */
	w.fenced_inc = 102;
	again(1, 300);
	again(2, 301);
	run_ms(6000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK(!w.node[1].fences && !w.node[2].fences);
	st = status(status(1).leading ? 1 : 2);
	CHECK_EQ_U64(st.recovery_count, 2);
	for (uint32_t i = 0; i < st.recovery_count; i++)
		CHECK(st.recovery[i].fenced_us && st.recovery[i].fenced_before);
	finish();
}

/* R5: what the dead one has sent may land over it until the fence. Lock and mark are at hand. */
TEST(a_write_waits_for_the_fence_of_a_node_that_may_write_there)
{
	struct event done = {.type = EV_FENCE_DONE};
	uint32_t before;

	start_both();
	write_block(1, 0);
	write_block(2, 8192);
	run_ms(20);
	CHECK_EQ_U64(w.node[1].ios_done, 1);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	w.fence_hangs = true;
	w.node[1].stopped = true; /* dead */
	view(2, 2, 2);
	run_ms(1);
	before = w.node[2].data_writes;
	write_block(2, 0);
	run_ms(500);
	CHECK_EQ_U64(w.node[2].fences, 1);
	CHECK_EQ_U64(w.node[2].data_writes, before);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	done.fence.node = 1;
	done.fence.inc = 101;
	push(2, done);
	run_ms(500);
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	CHECK(status(2).io_allowed);
	CHECK(status(2).recovery[0].fenced_us - status(2).recovery[0].lost_us >= 500000);
	CHECK(!status(2).recovery[0].fenced_before);
	finish();
}

/* One that serves without its member 2, which comes back. */
static void member_comes_back(void)
{
	create();
	start(1);
	run_ms(3000);
	write_block(1, 0);
	member_cut(1, 2, true);
	run_ms(500);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_SUSPECT);
	write_block(1, 65536);
	run_ms(500);
	w.rebuild_hangs = true;
	member_cut(1, 2, false);
	run_ms(500);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_REBUILDING);
	CHECK(w.held_count > 0);
}

/*
 * It is about to be promoted, for which a node that has just joined has to write its log anew
 * (R11); that does not reach the member. It says so before the others take it for broken.
 */
TEST(who_joins_without_a_member_that_comes_back_is_not_evicted)
{
	for (uint32_t ms = 0; ms < 60; ms++) {
		member_comes_back();
		w.node[2].cut = 1u << 2;
		start(2);
		run_ms(ms);
		held_goes_on();
		run_ms(8000);
		CHECK(status(1).io_allowed);
		CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
		CHECK_MSG(status(2).io_allowed, "it waits for %s", status(2).waits);
		CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_SUSPECT);
		finish();
	}
}

/* As fast as the messages go, if only the last heartbeat of the one that joins was asked. */
TEST(a_member_that_a_node_does_not_reach_is_not_tried_over_and_over)
{
	for (uint32_t ms = 0; ms < 400; ms += 20) {
		uint64_t before;

		member_comes_back();
		before = status(1).map.epoch.num;
		held_goes_on();
		run_ms(ms);
		w.node[2].cut = 1u << 2;
		start(2);
		run_ms(10000);
		CHECK_MSG(status(2).map.epoch.num < before + 8, "%u epochs",
			  (unsigned)(status(2).map.epoch.num - before));
		finish();
	}
}

/* What it has in the member's place is an older copy, which it looks at once more when the member
 * enters. */
TEST(nor_one_that_joins_with_an_older_copy_of_it)
{
	for (uint32_t ms = 0; ms < 400; ms += 10) {
		uint8_t *copy = malloc(DISK_BYTES);

		create();
		start(1);
		run_ms(3000);
		memcpy(copy, w.disk[2], DISK_BYTES);
		write_block(1, 0);
		member_cut(1, 2, true);
		run_ms(500);
		write_block(1, 65536);
		member_cut(1, 2, false);
		run_ms(ms);
		w.node[2].ways[2] = copy;
		start(2);
		run_ms(8000);
		CHECK(status(1).io_allowed);
		CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
		CHECK_MSG(status(2).io_allowed, "it waits for %s", status(2).waits);
		CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_SUSPECT);
		finish();
		free(copy);
	}
}

static void stop_joining(uint32_t ms)
{
	step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(ms);
	CHECK_MSG(w.node[2].stopped, "it waits for %s", status(2).waits);
}

/* It can't take a slot, since it reaches none of the members. The other one does not fence it for
 * that. */
TEST(a_node_that_joins_and_is_stopped_leaves)
{
	for (uint32_t ms = 0; ms < 300; ms += 10) {
		create();
		start(1);
		run_ms(3000);
		w.node[2].cut = NONE_REACHED;
		start(2);
		run_ms(ms);
		stop_joining(300);
		run_ms(3000);
		CHECK(status(1).io_allowed);
		CHECK_EQ_U64(w.node[1].fences, 0);
		write_block(1, 0);
		run_ms(100);
		CHECK_EQ_U64(w.node[1].ios_done, 1);
		finish();
	}
}

static bool next_event(void)
{
	uint32_t at;

	if (w.first == w.last)
		return false;
	at = w.first++ % QUEUE;
	step(w.queue[at].to, w.queue[at].ev);
	return true;
}

/* Until so many events of its start are through; false: there are not so many. */
static bool start_until(uint32_t node, uint32_t events)
{
	start(node);
	for (uint32_t done = 0; done < events && w.now < 4000000;) {
		if (next_event()) {
			done++;
			continue;
		}
		w.now += 1000;
		for (uint32_t i = 1; i <= NODES; i++)
			step(i, (struct event){.type = EV_TICK});
	}
	return w.now < 4000000;
}

/* Also between two messages, so that others count it in at that moment. */
TEST(a_node_that_is_stopped_as_it_joins_is_not_fenced_for_it)
{
	for (uint32_t reach = 0; reach < 2; reach++) {
		bool more = true;

		for (uint32_t n = 1; more; n++) {
			create();
			start(1);
			run_ms(1500);
			w.node[2].cut = reach ? 0 : NONE_REACHED;
			more = start_until(2, n);
			step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
			run_ms(2500);
			CHECK_MSG(!w.node[1].fences, "after %u events", n);
			CHECK(w.node[2].stopped && status(1).io_allowed);
			finish();
		}
	}
}

static void by_events_until(bool (*done)(void))
{
	for (uint32_t ms = 0; !done() && ms < 20000; ms++) {
		while (!done() && next_event())
			;
		w.now += 1000;
		for (uint32_t i = 1; i <= NODES; i++)
			step(i, (struct event){.type = EV_TICK});
	}
	CHECK(done());
}

static bool lives_again(void)
{
	return w.node[2].lives != 0;
}

static uint64_t map_was;

static bool has_next_map(void)
{
	return status(1).map.epoch.num > map_was;
}

/*
 * R14: one of its flushes has failed, which it could not tell, and the others have gone on without
 * it. Its next incarnation knows of it, and not yet of which member.
 */
static void flush_fails_unheard(void)
{
	create();
	w.restarts = true;
	start(1);
	start(2);
	run_ms(3000);
	write_block(2, 0);
	run_ms(30);
	w.away = 2;
	w.node[2].flush_fails = 1;
	run_ms(1000);
	CHECK_EQ_U64(w.node[2].flush_fails, 0);
	view(1, 1, 1);
	run_ms(5000);
	CHECK(status(1).io_allowed);
}

static void is_heard_again(void)
{
	w.away = 0;
	view(1, 1, 2);
	view(1, 2, 2);
	by_events_until(lives_again);
}

static void flush_error_next_life(void)
{
	flush_fails_unheard();
	is_heard_again();
}

static void flush_error_untold(bool stops)
{
	flush_error_next_life();
	if (stops) {
		w.away = 2; /* nobody hears it yet */
		run_ms(300);
		step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
		run_ms(3000);
		CHECK_MSG(!w.node[2].stopped, "it alone knows that a flush of member 1 failed");
	} else {
		run_ms(4000);
		CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_FAULTY);
	}
	finish();
}

TEST(a_flush_error_is_told_by_the_next_life)
{
	flush_error_untold(false);
}

/* The others' daemons are new, too: no map comes before the round's first one, and by that nobody
 * may read from the member. */
TEST(a_flush_error_of_an_earlier_life_counts_before_the_first_map)
{
	flush_error_next_life();
	map_was = status(1).map.epoch.num;
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	w.node[1].stopped = true; /* dead */
	again(1, 300);
	view(1, 1, 2);
	view(1, 2, 2);
	by_events_until(has_next_map);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_FAULTY);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* Member 2 has left meanwhile, so member 1 must stay until that is back; and whoever brings it up
 * has to know what a joiner's slot says. */
TEST(a_joiner_that_knows_a_flush_error_holds_up_no_rebuild)
{
	flush_fails_unheard();
	w.io_may_fail = true;
	for (uint32_t i = 1; i <= NODES; i++)
		member_cut(i, 2, true);
	run_ms(1500);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_SUSPECT);
	is_heard_again();
	run_ms(4000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	for (uint32_t i = 1; i <= NODES; i++)
		member_cut(i, 2, false);
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_FAULTY);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

TEST(who_has_not_told_a_flush_error_does_not_stop_at_once)
{
	flush_error_untold(true);
}

TEST(a_node_without_a_group_or_quorum_stops_at_once)
{
	struct event lost = {.type = EV_QUORUM};

	create();
	w.away = 2;
	start(2);
	run_ms(20);
	push(2, lost);
	run_ms(200);
	stop_joining(20);
	finish();
}

static void quorum(bool quorate)
{
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = (struct ring){1, w.ring};
	ev.view.quorate = quorate;
	ev.view.count = NODES;
	for (uint32_t i = 0; i < NODES; i++)
		ev.view.node[i] = i + 1;
	for (uint32_t i = 1; i <= NODES; i++)
		push(i, ev);
}

/* Votes changed, or a quorum device: no view comes with it. */
TEST(quorum_that_is_lost_and_back_in_the_same_ring)
{
	start_both();
	quorum(false);
	run_ms(1000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	write_block(2, 0);
	run_ms(200);
	CHECK_EQ_U64(w.node[2].ios_done, 0);
	quorum(true);
	run_ms(200);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
	finish();
}

/* corosync forms a new ring of the same nodes, and all are told of both. */
static void new_ring(void)
{
	w.ring++;
	quorum(true);
	for (uint32_t i = 1; i <= NODES; i++)
		view(1, i, NODES);
}

/* Node 2's daemon and its corosync lose each other; node 1 sees it leave, and come back. */
static void loses_the_group(void)
{
	struct event lost = {.type = EV_QUORUM};

	push(2, lost);
	w.away = 2;
	view(1, 1, 1);
	run_ms(20);
	w.away = 0;
	quorum_of(2);
	view(1, 1, 2);
	view(1, 2, 2);
}

/* R9: node 1 says that it was away, and knows. A third node may hear of that a moment later. */
TEST(who_learns_that_it_was_put_out_tells_when_all_know)
{
	struct event fenced = {.type = EV_FENCE_DONE};

	start_both();
	w.restarts = w.fence_hangs = true;
	loses_the_group();
	run_ms(200);
	CHECK(status(2).waits && !status(2).io_allowed);
	CHECK_EQ_STR(status(2).waits, "the other nodes to know that this incarnation ends");
	CHECK_EQ_STR(status(1).waits, "the fence of a departed node");
	fenced.fence.node = 2;
	fenced.fence.inc = 102;
	push(1, fenced);
	run_ms(200);
	CHECK(status(1).io_allowed); /* it need not wait for that */
	run_ms(800);
	CHECK_EQ_U64(w.node[2].lives, 0);
	loses_the_group(); /* nor in a new view for its Hello */
	run_ms(200);
	CHECK(status(1).io_allowed);
	CHECK_EQ_U64(w.node[2].lives, 0);
	run_ms(1000);
	CHECK_EQ_U64(w.node[2].lives, 1);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

static void gives_up_alone(bool heard)
{
	struct event ev = {.type = EV_GIVE_UP};

	start_both();
	w.restarts = true;
	if (heard) {
		push(2, ev);
		run_ms(200);
	}
	view(2, 2, 2);
	if (!heard)
		push(2, ev);
	run_ms(1000);
	CHECK_EQ_U64(w.node[2].lives, 0);
	run_ms(700);
	CHECK_EQ_U64(w.node[2].lives, 1);
	finish();
}

/* R9. Whom its corosync has dropped from the group is gone from the view at once, and may not have
 * read that yet. */
TEST(who_gives_up_waits_in_a_view_of_one_too)
{
	gives_up_alone(true);
	gives_up_alone(false);
}

/* R6, R7: whom it should ask whether the array is still its own, it can't; another could go on. It
 * has longer for that than a round may take. */
TEST(a_leader_that_no_member_answers_makes_way)
{
	create();
	w.reach_ms = 14000;
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).leading && status(2).io_allowed);
	write_block(2, 0);
	run_ms(20);
	cut(1);
	new_ring();
	run_ms(12000);
	CHECK(!w.node[1].stopped);
	write_block(2, 8192);
	run_ms(20000);
	CHECK(w.node[1].stopped);
	CHECK(status(2).leading && status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].fences, 1);
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	finish();
}

/* R7: also for one that may not serve beside it, and serves instead. No round tells it to. */
TEST(and_for_one_that_fences_otherwise)
{
	create();
	w.reach_ms = 2000;
	w.fence_waits = true;
	w.node[1].fence_ms = 10000;
	w.node[2].fence_ms = 30000;
	start(1);
	start(2);
	run_ms(3000);
	CHECK(status(1).leading && status(1).io_allowed && !status(2).io_allowed);
	write_block(1, 0);
	run_ms(20);
	CHECK_EQ_U64(w.node[1].ios_done, 1);
	cut(1);
	run_ms(20000);
	CHECK(w.node[1].stopped);
	CHECK(status(2).leading && status(2).io_allowed);
	finish();
}

/* Nobody could go on: the array waits, and nobody's consumers get an error. */
TEST(members_that_answer_nobody_remove_nobody)
{
	start_both();
	cut(1);
	cut(2);
	new_ring();
	run_ms(60000);
	CHECK(!w.node[1].stopped && !w.node[2].stopped);
	write_block(2, 0);
	w.node[1].cut = w.node[2].cut = 0;
	connect(1);
	connect(2);
	run_ms(10000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	finish();
}

/* The lowest node assembles the array, but for one that can't while another might. */
TEST(who_reaches_more_members_assembles_the_array)
{
	create();
	w.node[1].cut = NONE_REACHED;
	start(1);
	start(2);
	run_ms(20000);
	CHECK(status(2).leading && status(2).io_allowed);
	CHECK(!status(1).io_allowed);
	finish();
}

/* It yields for as long as no member has come. */
TEST(the_lowest_node_assembles_once_members_come)
{
	create();
	w.node[1].cut = w.node[2].cut = NONE_REACHED;
	start(1);
	start(2);
	run_ms(7000);
	CHECK(status(1).leading && !status(1).io_allowed);
	w.node[1].cut = w.node[2].cut = 0;
	connect(1);
	connect(2);
	run_ms(5000);
	CHECK(status(1).leading && status(1).io_allowed && status(2).io_allowed);
	finish();
}

static void fail_member(uint32_t node, uint8_t member)
{
	struct event ev = {.type = EV_ADMIN};

	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = member;
	step(node, ev);
}

/* R7: it is in nobody's way: not with what it can't reach, nor of a change of the map. */
TEST(a_node_that_joins_and_reaches_no_member_stays_aside)
{
	create();
	w.restarts = true;
	start(1);
	run_ms(3000);
	w.node[2].cut = NONE_REACHED;
	start(2);
	run_ms(15000);
	CHECK(status(1).io_allowed);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
	CHECK(strstr(status(2).waits, "this node reaches fewer"));
	fail_member(1, 2);
	run_ms(1000);
	CHECK_EQ_INT(status(1).map.member[2].state, MEMBER_FAULTY);
	CHECK(status(1).io_allowed);
	/* It may have been fenced, and not know. Its last incarnation has written nothing, so
	 * nobody waits. */
	w.fence_hangs = true;
	run_ms(30000);
	CHECK(w.node[2].lives > 0);
	CHECK_EQ_U64(w.node[1].fences, 0);
	CHECK(status(1).io_allowed);
	w.node[2].cut = 0;
	connect(2);
	run_ms(3000);
	CHECK(status(2).io_allowed);
	write_block(2, 0);
	run_ms(100);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	finish();
}

/* One that has written is fenced when it goes on as another. */
TEST(a_removed_node_that_wrote_is_fenced)
{
	start_both();
	w.restarts = true;
	write_block(1, 0);
	run_ms(20);
	cut(1);
	new_ring();
	run_ms(10000);
	CHECK(w.node[1].lives > 0);
	CHECK(w.node[2].fences > 0);
	CHECK(status(2).leading && status(2).io_allowed);
	finish();
}

/* R18: what the leader tells of dead nodes' slots, it could not take, for it did not know how many
 * regions there are. So all is told again before it serves. */
TEST(who_learns_the_geometry_late_learns_what_is_dirty)
{
	start_both();
	write_block(2, 0);
	run_ms(20);
	w.resync_hangs = true;
	w.node[2].stopped = true; /* dead */
	view(1, 1, 1);
	run_ms(2000);
	CHECK_EQ_U64(status(1).slots_unrecovered, 1);
	engine_free(w.node[2].e);
	w.node[2] = (struct node){.cut = NONE_REACHED, .inc = 300};
	start(2);
	run_ms(2000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	w.node[2].cut = 0;
	connect(2);
	run_ms(3000);
	CHECK(status(2).io_allowed);
	CHECK_EQ_U64(status(1).slots_unrecovered, 1);
	CHECK(status(1).regions_to_resync > 0);
	CHECK_EQ_U64(status(2).regions_to_resync, status(1).regions_to_resync);
	finish();
}

/* Who has yielded and reaches more by now must not wait for whom it made way. */
TEST(the_turn_comes_back_to_who_has_yielded)
{
	create();
	w.node[1].cut = NONE_REACHED;
	w.node[2].cut = 6; /* all but one */
	start(1);
	start(2);
	run_ms(15000);
	CHECK(status(2).leading && !status(2).io_allowed);
	w.node[1].cut = 0;
	connect(1);
	run_ms(20000);
	CHECK(status(1).leading && status(1).io_allowed);
	finish();
}

/* All start anew, and the fence of one incarnation takes longer than the one that yields holds its
 * name.
 */
TEST(who_yields_does_so_under_a_new_name_too)
{
	struct event done = {.type = EV_FENCE_DONE};

	start_both();
	write_block(1, 0);
	run_ms(20);
	for (uint32_t n = 1; n <= NODES; n++) {
		engine_free(w.node[n].e);
		w.node[n] = (struct node){.inc = 300 + n};
	}
	w.first = w.last;
	w.restarts = w.fence_hangs = true;
	w.node[1].cut = NONE_REACHED;
	start(1);
	start(2);
	run_ms(12000);
	CHECK(status(2).leading && !status(2).io_allowed);
	for (uint32_t i = 0; i < 25000; i++) {
		run_ms(1);
		CHECK(!status(1).leading);
	}
	CHECK(w.node[1].lives > 0);
	w.fence_hangs = false;
	done.fence.node = 1;
	done.fence.inc = 101;
	push(2, done);
	done.fence.node = 2;
	done.fence.inc = 102;
	push(2, done);
	run_ms(5000);
	CHECK(status(2).io_allowed);
	finish();
}

/* A member that left and came back while this node could use none is as good as any when it can. */
TEST(who_was_aside_blames_no_member_for_it)
{
	uint64_t epoch;

	create();
	start(1);
	run_ms(3000);
	w.node[2].cut = NONE_REACHED;
	start(2);
	run_ms(3000);
	w.node[1].cut = 1;
	push(1, (struct event){.type = EV_DEV_DOWN});
	run_ms(1000);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_SUSPECT);
	w.node[1].cut = 0;
	push(1, (struct event){.type = EV_DEV_UP, .dev = {.bytes = DISK_BYTES, .uri = "mem:"}});
	run_ms(5000);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
	epoch = status(1).map.epoch.num;
	w.node[2].cut = 0;
	connect(2);
	run_ms(10000);
	CHECK(status(2).io_allowed);
	CHECK_EQ_U64(status(1).map.epoch.num, epoch);
	finish();
}

/* It has no slot before, but slots are not what it waits for. */
TEST(who_joins_without_a_member_waits_until_it_has_left_the_map)
{
	create();
	start(1);
	run_ms(3000);
	w.node[2].cut = 1u << 1;
	start(2);
	run_ms(1000);
	CHECK(status(1).io_allowed && !status(1).waits && !status(2).io_allowed);
	CHECK(strstr(status(2).waits, "a member that this node can't use"));
	run_ms(5000);
	CHECK_EQ_INT(status(1).map.member[1].state, MEMBER_SUSPECT);
	CHECK(status(1).io_allowed && status(2).io_allowed && !status(2).waits);
	finish();
}

/* What the node's last heartbeat said of the member does not bring it back at once. */
TEST(a_member_that_one_node_lost_leaves_once)
{
	uint64_t epoch;

	create();
	start(1);
	start(2);
	run_ms(5000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	epoch = status(1).map.epoch.num;
	w.node[2].cut = 1u << 1;
	push(2, (struct event){.type = EV_DEV_DOWN, .dev = {.dev = 1}});
	run_ms(1000);
	CHECK_EQ_INT(status(1).map.member[1].state, MEMBER_SUSPECT);
	CHECK_EQ_U64(status(1).map.epoch.num, epoch + 1);
	finish();
}

/* How long others reach more is not counted while there is no quorum to count in. */
TEST(a_leader_gets_its_time_after_an_outage)
{
	start_both();
	cut(1);
	new_ring();
	run_ms(1000);
	quorum(false);
	run_ms(60000);
	quorum(true);
	run_ms(1000);
	CHECK(!w.node[1].stopped);
	w.node[1].cut = 0;
	connect(1);
	run_ms(5000);
	CHECK(!w.node[1].stopped && status(1).io_allowed && status(2).io_allowed);
	finish();
}

static void members_lost(uint32_t node, uint32_t mask)
{
	w.node[node].cut = mask;
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (mask >> i & 1)
			push(node, (struct event){.type = EV_DEV_DOWN, .dev = {.dev = i}});
}

static void members_back(uint32_t node)
{
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (w.node[node].cut >> i & 1)
			push(node,
			     (struct event){.type = EV_DEV_UP,
					    .dev = {.dev = i, .bytes = DISK_BYTES, .uri = "mem:"}});
	w.node[node].cut = 0;
}

/* All have lost them, for long; to one node they come back a little sooner. */
TEST(who_reaches_a_member_a_little_later_than_others_is_not_evicted)
{
	for (uint32_t first = 1; first <= 2; first++) {
		create();
		start(1);
		start(2);
		run_ms(5000);
		CHECK(status(1).io_allowed && status(2).io_allowed);
		members_lost(1, 3);
		members_lost(2, 3);
		run_ms(20000);
		CHECK(!status(1).io_allowed && !status(2).io_allowed);
		members_back(first);
		run_ms(1000);
		members_back(3 - first);
		run_ms(10000);
		CHECK(!w.node[1].stopped && !w.node[2].stopped);
		CHECK(status(1).io_allowed && status(2).io_allowed);
		CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
		CHECK_EQ_INT(status(1).map.member[1].state, MEMBER_IN_SYNC);
		finish();
	}
}

/* What breaks off from who can't use the array is the others' to judge: they have it. */
TEST(who_is_aside_takes_no_member_from_the_others)
{
	uint64_t epoch;

	create();
	start(1);
	run_ms(3000);
	fail_member(1, 2);
	w.node[2].cut = 6; /* all but one */
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	epoch = status(1).map.epoch.num;
	w.node[2].cut = NONE_REACHED;
	push(2, (struct event){.type = EV_DEV_DOWN});
	run_ms(10000);
	CHECK_EQ_U64(status(1).map.epoch.num, epoch);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
	finish();
}

/* Each turn of the group's token wakes all nodes. */
TEST(heartbeats_go_together)
{
	uint32_t before, sent[NODES + 1];

	create();
	start(1);
	run_ms(3080);
	start(2);
	run_ms(10000);
	before = w.node[1].sent;
	for (uint32_t i = 0; i < 2000; i++) {
		sent[1] = w.node[1].sent;
		sent[2] = w.node[2].sent;
		run_ms(1);
		CHECK_EQ_U64(w.node[1].sent - sent[1], w.node[2].sent - sent[2]);
	}
	/* None late, and none twice. */
	CHECK_EQ_U64(w.node[1].sent - before, 10);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* The leader reaches it, and so does who was asked. */
TEST(a_re_add_that_fails_names_the_node_that_does_not_reach_the_device)
{
	struct event ev = {.type = EV_ADMIN};

	create();
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(serves(1) && serves(2));
	member_cut(2, 2, true);
	run_ms(32000);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_MISSING);
	ev.admin.cmd = ADMIN_READD;
	ev.admin.member = 2;
	push(1, ev);
	run_ms(10000);
	CHECK_EQ_INT(w.admin_err, -ETIMEDOUT);
	CHECK(!strncmp(w.admin_why, "node 2 does not reach", 21));
	finish();
}

/* Node's way to device 2 leads there from now on. */
static void way_to(uint32_t node, uint8_t *disk, uint64_t bytes, const char *uri)
{
	struct event up = {.type = EV_DEV_UP};

	member_cut(node, 2, true);
	run_ms(10);
	w.node[node].ways[2] = disk;
	w.node[node].cut &= ~(1u << 2);
	up.dev.dev = 2;
	up.dev.bytes = bytes;
	up.dev.uri = uri;
	push(node, up);
	run_ms(10);
}

/* The node that was asked has looked at its own /dev/sdc. The leader's is another disk. */
TEST(an_add_writes_to_no_device_but_the_one_that_was_checked)
{
	uint8_t *foreign = malloc(DISK_BYTES), *was = malloc(DISK_BYTES);
	uint8_t *empty = calloc(1, DISK_BYTES);
	struct event ev = {.type = EV_ADMIN};

	for (uint32_t i = 0; i < DISK_BYTES; i++)
		foreign[i] = (uint8_t)(i * 7 + (i >> 8));
	memcpy(was, foreign, DISK_BYTES);
	create();
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(serves(1) && serves(2) && status(1).leading);
	step(1, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 2}});
	run_ms(1000);
	way_to(1, foreign, DISK_BYTES, "/dev/sdc");
	way_to(2, empty, DISK_BYTES, "/dev/sdc");
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.member = 2;
	ev.admin.uri = "/dev/sdc";
	ev.admin.before = sb_place_sum(empty, empty);
	step(2, ev);
	run_ms(15000);
	CHECK_EQ_INT(w.admin_err, -EXDEV);
	CHECK_MSG(strstr(w.admin_why, "nothing was written there"), "%s", w.admin_why);
	CHECK_EQ_MEM(foreign, was, DISK_BYTES);
	/* It is set right. */
	way_to(1, empty, DISK_BYTES, "/dev/sdc");
	w.admin_err = 1;
	step(2, ev);
	run_ms(15000);
	CHECK_EQ_INT(w.admin_err, 0);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_IN_SYNC);
	w.node[1].ways[2] = w.node[2].ways[2] = NULL;
	free(foreign);
	free(was);
	free(empty);
	finish();
}

/* A node whose ways lead to copies of members that are cut off: it can't use the array, and says
 * nothing of the members. */
TEST(a_node_that_is_aside_and_finds_members_too_small_takes_none_from_the_others)
{
	uint8_t *copy = calloc(1, DISK_BYTES);

	create();
	start(1);
	run_ms(3000);
	step(1, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 0}});
	run_ms(1000);
	CHECK(serves(1));
	memcpy(copy, w.disk[2], DISK_BYTES);
	w.node[2].cut = 7;
	start(2);
	way_to(2, copy, DISK_BYTES / 2, "mem:");
	run_ms(10000);
	CHECK(serves(1) && !serves(2));
	for (uint32_t m = 1; m <= 2; m++) { /* a flap of each that is left */
		member_cut(1, m, true);
		run_ms(100);
		member_cut(1, m, false);
		run_ms(10000);
		CHECK(serves(1));
		CHECK_EQ_U64(status(1).map.member[m].state, MEMBER_IN_SYNC);
	}
	w.node[2].ways[2] = NULL;
	free(copy);
	finish();
}

static void ring_changes(void)
{
	w.ring++;
	for (uint32_t i = 1; i <= NODES; i++) {
		view(1, i, NODES);
		quorum_of(i);
	}
}

/* A member's exporter tells of a next epoch, which nobody has proposed. */
static void tells_of_next(uint32_t m)
{
	struct superblock sb, other;

	CHECK_EQ_INT(sb_decode(&sb, w.disk[m] + geo_sb_offset(0), NULL), 0);
	if (!sb_decode(&other, w.disk[m] + geo_sb_offset(1), NULL) && sb_newer(&other, &sb))
		sb = other;
	sb.map.epoch.num++;
	sb.map.epoch.inc = 4711;
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		sb.seq++;
		sb.place = (uint8_t)(c + 1);
		sb_encode(&sb, w.disk[m] + geo_sb_offset(c));
	}
}

/* A commit is on all members that it writes to: what one of three shows was none. If it is on two,
 * the array has gone on without these. */
TEST(a_next_epoch_on_one_member_ends_nobody_when_the_ring_changes)
{
	for (uint32_t on = 0; on <= 2; on++) {
		uint32_t fences;

		start_both();
		run_ms(17000);
		w.io_may_fail = w.restarts = true;
		fences = w.node[1].fences + w.node[2].fences;
		for (uint32_t m = 0; m < on; m++)
			tells_of_next(m);
		ring_changes();
		run_ms(30000);
		CHECK_EQ_INT(w.node[1].lives + w.node[2].lives > 0, on == 2);
		CHECK_EQ_INT(w.node[1].fences + w.node[2].fences > fences, on == 2);
		CHECK(on == 2 || (serves(1) && serves(2)));
		finish();
	}
}

/* As in life, with leases. Who joined last has had one only since after its Ready, and leads. */
TEST(nor_if_who_joined_last_leads)
{
	create();
	w.others_look = true;
	start(1);
	run_ms(20000);
	start(2);
	run_ms(20000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	w.io_may_fail = w.restarts = true;
	tells_of_next(0);
	engine_free(w.node[1].e);
	w.node[1].e = NULL;
	w.ring++;
	view(2, 2, 2);
	quorum_of(2);
	run_ms(30000);
	CHECK_EQ_U64(w.node[2].lives, 0);
	CHECK(serves(2));
	finish();
}
