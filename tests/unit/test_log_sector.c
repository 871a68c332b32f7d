/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A member in whose log a sector can't be read, when all nodes have died: it is right but for that.
 */
#include "tests/unit/two_nodes_world.h"

#define AT (5ull * (256 << 10))

static uint8_t now[DDR_BLOCK_BYTES], in[DDR_BLOCK_BYTES], copy[DISK_BYTES];

static void writes(uint32_t node, uint8_t what)
{
	memset(now, what, sizeof(now));
	io_block(node, IO_WRITE, AT, now);
	run_ms(3000);
}

static void is_read(void)
{
	uint32_t done = w.node[1].ios_done;

	memset(in, 9, sizeof(in));
	io_block(1, IO_READ, AT, in);
	run_ms(3000);
	CHECK(w.node[1].ios_done > done);
	CHECK_EQ_MEM(in, now, sizeof(in));
}

/* The log of node 2 tells that member c is an older copy. The bad sector is in a slot that is read
 * before that one: it must not be why the others can't be compared. */
TEST(an_older_copy_is_told_though_a_sector_of_another_members_log_is_bad)
{
	for (uint32_t image = 0; image < 2; image++)
		for (uint32_t c = 0; c < MEMBERS; c++)
			for (uint32_t y = (c + 1) % MEMBERS; y != c; y = (y + 1) % MEMBERS) {
				create();
				w.io_may_fail = w.restarts = true;
				start(1);
				run_ms(5000);
				start(2);
				run_ms(20000);
				CHECK_EQ_U64(engine_slot(w.node[2].e), 1);
				writes(2, 1);
				memcpy(copy, w.disk[c], DISK_BYTES);
				writes(2, 2);
				w.bad_log.member = y;
				w.bad_log.at = geo_log_offset(engine_geo(w.node[1].e), 0, 0, image);
				engine_free(w.node[1].e);
				engine_free(w.node[2].e);
				w.node[2].e = NULL;
				w.first = w.last = 0;
				memcpy(w.disk[c], copy, DISK_BYTES);
				w.fenced_inc = 400;
				w.ring++;
				w.node[1].inc = 500;
				start(1);
				view(1, 1, 1);
				run_ms(30000);
				CHECK_MSG(status(1).map.member[c].state != MEMBER_IN_SYNC,
					  "copy %u, bad sector of %u", c, y);
				is_read();
				finish();
			}
}
