/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which commits count of those that members tell: five members, of which one may lie. */
#define MEMBERS 5
#include "tests/unit/engine_world.h"

/* A leader died as it wrote a proposal: three of five carry it, and one of these says that it was
 * committed. Believed, that would have the other two out, and the array refused. */
TEST(one_member_makes_up_no_commit)
{
	for (uint32_t liar = 0; liar < 3; liar++) {
		struct epoch ep;

		create(2);
		start();
		run_ms(3000);
		engine_free(w.e);
		w.fenced_inc = w.next_inc - 1;
		ep = superblock_of(0).map.epoch;
		ep.num++;
		for (uint32_t i = 0; i < 3; i++) {
			struct superblock sb = superblock_of(i);

			sb.committed = i == liar ? ep : sb.map.epoch;
			sb.map.epoch = ep;
			superblock_put(i, &sb);
		}
		w.record.acked = ep;
		start();
		run_ms(8000);
		CHECK(status().io_allowed);
		finish();
	}
}

/* More than the data can do without were rolled back, and no record knows better. What all others
 * call committed was, however many lack it: or the stale ones would pass for members in sync. */
TEST(what_more_than_m_call_committed_was)
{
	static uint8_t old[2][DISK_BYTES];

	create(2);
	start();
	run_ms(3000);
	for (uint32_t i = 0; i < 2; i++)
		memcpy(old[i], w.disk[3 + i], DISK_BYTES);
	for (uint32_t life = 0; life < 3; life++) {
		engine_free(w.e);
		w.fenced_inc = w.next_inc - 1;
		start();
		run_ms(3000);
		CHECK(status().io_allowed);
	}
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	for (uint32_t i = 0; i < 2; i++)
		memcpy(w.disk[3 + i], old[i], DISK_BYTES);
	memset(&w.record, 0, sizeof(w.record));
	start();
	run_ms(9000);
	CHECK(!status().io_allowed);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	finish();
}
