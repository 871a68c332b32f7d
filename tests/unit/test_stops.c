/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A node that is told to stop, and what the last one leaves on the members (leave_sealed). */
#include "tests/unit/two_nodes_world.h"

/* Node 2 reaches no member, so it never serves: node 1 is the last one. */
TEST(the_last_that_serves_seals_the_array_beside_one_that_joins)
{
	uint64_t num;

	create();
	w.io_may_fail = true;
	start(1);
	run_ms(3000);
	w.node[2].cut = 7;
	start(2);
	run_ms(6000);
	num = status(1).map.epoch.num;
	step(1, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(5000);
	CHECK(w.node[1].stopped);
	CHECK(status(1).map.epoch.num >= num + 2);
	finish();
}

/* It says so, for a copy of a member from that run would not be known. */
TEST(a_stop_whose_seal_takes_too_long_goes_on_without)
{
	for (int hangs = 0; hangs <= 1; hangs++) {
		create();
		start(1);
		run_ms(3000);
		write_block(1, 0);
		run_ms(1000);
		w.node[1].record_hangs = hangs;
		step(1, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
		run_ms(100);
		CHECK_EQ_INT(w.node[1].stopped, !hangs);
		if (hangs)
			CHECK_EQ_STR(status(1).waits, "a change of the map");
		run_ms(20000);
		CHECK(w.node[1].stopped);
		CHECK_EQ_INT(w.node[1].unsealed, hangs);
		finish();
	}
}

/* A copy of member 0 carries what it commits, so that counts for nothing. Node 2 has no record. */
TEST(a_commit_that_is_under_way_when_the_array_is_sealed_is_no_seal)
{
	static uint8_t copy[DISK_BYTES];

	create();
	w.hold.on = w.hold.of_active = true;
	w.hold.node = w.hold.dev = 1;
	w.hold.kind = KIND_SB;
	w.hold.op = DEV_WRITE;
	start(1);
	for (uint32_t i = 0; i < 5000 && !w.held_count; i++)
		run_ms(1);
	CHECK(w.held_count && serves(1));
	memcpy(copy, w.disk[0], DISK_BYTES);
	write_block(1, 0);
	run_ms(1500);
	CHECK_EQ_U64(w.node[1].ios_done, 1);
	step(1, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(1500);
	held_goes_on();
	run_ms(3000);
	CHECK(w.node[1].stopped && !w.node[1].unsealed);
	memcpy(w.disk[0], copy, DISK_BYTES);
	start(2);
	run_ms(15000);
	CHECK(serves(2));
	CHECK_EQ_U64(status(2).map.member[0].state, MEMBER_FAULTY);
	finish();
}

TEST(a_stop_says_what_it_waits_for)
{
	static const char *const waits[] = {
	    "what its users have sent to be done",
	    "what it has written to be flushed, and cleared from its dirty log",
	};

	for (int written = 0; written <= 1; written++) {
		start_both();
		w.node[1].io_hangs = !written;
		write_block(1, 0);
		run_ms(20);
		w.node[1].io_hangs = true;
		step(1, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
		run_ms(20);
		CHECK(!w.node[1].stopped);
		CHECK_EQ_STR(status(1).waits, waits[written]);
		finish();
	}
}
