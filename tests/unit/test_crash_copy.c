/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All nodes have died, and one member is an older copy of itself when they start again, from the
 * same epoch: no superblock tells, but the pages of the dirty log on the others do (slots.c).
 */
#define MEMBERS 5
#include "tests/unit/engine_world.h"

#define AT (5ull * (256 << 10)) /* in region 5 */

static uint8_t out[4096], in[4096];

static void put(uint8_t what)
{
	fill(out, sizeof(out), what);
	w.io_done[1] = 0;
	io(1, IO_WRITE, AT, sizeof(out), out);
	run_ms(20);
}

static void clean(void)
{
	run_ms(3000);
	CHECK_EQ_U64(status().regions_dirty, 0);
}

static void crash(void)
{
	engine_free(w.e);
	w.hung_count = 0;
	w.log_hold = false;
	w.fenced_inc = w.next_inc - 1;
}

static void starts(void)
{
	start();
	run_ms(9000);
}

static void is_read(void)
{
	memset(in, 0, sizeof(in));
	w.io_done[4] = 0;
	io(4, IO_READ, AT, sizeof(in), in);
	run_ms(2000);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_INT(w.io_err[4], 0);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

/* Of this member, before the last write, whose region is clean again. */
static uint8_t *copy_of(uint32_t m)
{
	uint8_t *copy;

	put(1);
	clean();
	copy = image_of(m);
	put(2);
	clean();
	return copy;
}

TEST(an_older_copy_is_no_member_after_a_crash)
{
	for (uint32_t m = 0; m < MEMBERS; m++)
		for (uint32_t force = 0; force < 2; force++) {
			uint8_t *copy;

			create(2);
			start();
			run_ms(20000);
			copy = copy_of(m);
			crash();
			memcpy(w.disk[m], copy, DISK_BYTES);
			w.force = force;
			starts();
			CHECK(status().io_allowed);
			CHECK_EQ_INT(status().map.member[m].state, MEMBER_FAULTY);
			CHECK(engine_dev_older(w.e, m));
			is_read();
			put(3);
			is_read();
			finish();
			free(copy);
		}
}

/* Both images of each page are gone, but not its superblock. */
TEST(nor_is_one_without_a_log)
{
	const struct geo *g;

	create(2);
	start();
	run_ms(20000);
	free(copy_of(0));
	g = engine_geo(w.e);
	memset(w.disk[3] + geo_log_offset(g, 0, 0, 0), 0,
	       g->data_offset - geo_log_offset(g, 0, 0, 0));
	crash();
	starts();
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[3].state, MEMBER_FAULTY);
	is_read();
	finish();
}

/* What was on its way to it when all died was not acknowledged. */
TEST(one_that_is_an_image_behind_is_a_member)
{
	for (uint32_t m = 0; m < MEMBERS; m++) {
		create(2);
		start();
		run_ms(20000);
		put(1);
		clean();
		w.log_hold = true;
		w.log_hold_dev = m;
		put(2);
		CHECK(!w.io_done[1] && w.hung_count == 1);
		fill(out, sizeof(out), 1);
		crash();
		starts();
		CHECK(status().io_allowed);
		for (uint32_t i = 0; i < MEMBERS; i++)
			CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
		is_read();
		finish();
	}
}

/* Another one is missing. The right one is used as soon as it is there; or an operator goes on. */
TEST(an_older_copy_that_the_data_needs_is_waited_out_after_a_crash)
{
	for (uint32_t force = 0; force < 2; force++) {
		uint8_t *copy, *right;

		create(2);
		start();
		run_ms(20000);
		dev_down(1);
		run_ms(600);
		copy = copy_of(2);
		right = w.disk[2];
		crash();
		w.disk[2] = copy;
		w.force = force;
		starts();
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
		if (!force) {
			CHECK(!status().io_allowed);
			CHECK(strstr(status().waits, "older copy"));
			run_ms(60000); /* it is connected anew now and then */
			CHECK(!status().io_allowed);
			w.disk[2] = right;
			run_ms(20000);
			is_read();
		}
		CHECK(status().io_allowed);
		finish();
		free(force ? right : copy);
	}
}

/* Member 1 was lost in the same moment: both can't leave the map. As soon as the right one is there
 * the array goes on; or an operator does. */
TEST(also_if_the_map_has_the_other_one_still)
{
	for (uint32_t force = 0; force < 2; force++) {
		uint8_t *copy, *right;

		create(2);
		start();
		run_ms(20000);
		copy = copy_of(2);
		right = w.disk[2];
		crash();
		w.disk[2] = copy;
		w.dead[1] = true;
		w.force = force;
		start_cold();
		run_ms(20000);
		if (!force) {
			CHECK(!status().io_allowed);
			CHECK_MSG(strstr(status().waits, "older copy"), "%s", status().waits);
			w.disk[2] = right;
			run_ms(60000);
			is_read();
		}
		CHECK(status().io_allowed);
		finish();
		free(force ? right : copy);
	}
}

/* Its log is slow: twice all die while a page is on its way to this member alone. The record of
 * what was acknowledged is of before, or lost. */
TEST(one_that_two_writers_have_not_reached_is_a_member)
{
	for (uint32_t lost = 0; lost < 3; lost++)
		for (uint32_t missing = 0; missing < 2; missing++) {
			struct record before;

			create(2);
			start();
			run_ms(20000);
			if (missing) {
				dev_down(1);
				run_ms(600);
			}
			put(1);
			clean();
			before = w.record;
			w.log_hold = true;
			w.log_hold_dev = 2;
			put(2);
			CHECK(!w.io_done[1] && w.hung_count == 1);
			fill(out, sizeof(out), 1);
			crash();
			start_cold();
			for (uint32_t i = 0; !w.hung_count; i++) {
				CHECK(i < 9000);
				w.log_hold = true;
				w.log_hold_dev = 2;
				run_ms(1);
			}
			run_ms(20);
			crash();
			if (lost)
				w.record = before;
			if (lost == 2)
				memset(&w.record, 0, sizeof(w.record));
			start_cold();
			run_ms(30000);
			CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
			CHECK(!engine_dev_older(w.e, 2));
			is_read();
			finish();
		}
}
