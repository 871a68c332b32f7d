/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All nodes have died, and one member is an older copy of itself when they start again, from the
 * same epoch: no superblock tells, but the pages of the dirty log on the others do (slots.c).
 */
#define MEMBERS 5
#include "tests/unit/copy_world.h"

TEST(an_older_copy_is_no_member_after_a_crash)
{
	for (uint32_t m = 0; m < MEMBERS; m++)
		for (uint32_t force = 0; force < 2; force++) {
			uint8_t *copy = crashed_with_copy_of(m);

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

/* While the array starts, the connection to the copy breaks for a moment, or to another member. */
TEST(nor_is_one_whose_connection_breaks_at_the_start)
{
	for (uint32_t m = 1; m < 3; m++)
		for (uint32_t at_ms = 0; at_ms < 7; at_ms++) {
			uint8_t *copy = crashed_with_copy_of(2);

			memcpy(w.disk[2], copy, DISK_BYTES);
			start_cold();
			run_ms(at_ms);
			dev_down(m);
			run_ms(5);
			dev_up(m);
			run_ms(60000);
			is_read();
			CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
			finish();
			free(copy);
		}
}

/* The map has dropped it when it comes. */
TEST(nor_is_one_that_comes_late)
{
	uint8_t *copy = crashed_with_copy_of(2);

	memcpy(w.disk[2], copy, DISK_BYTES);
	w.dead[2] = true;
	start_cold();
	run_ms(20000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	dev_up(2);
	run_ms(30000);
	is_read();
	dev_down(1);
	run_ms(5000);
	is_read(); /* with what it has of it */
	finish();
	free(copy);
}

/* It was lost, or found out, and the incarnation ends before the map drops it. */
TEST(nor_is_one_in_the_next_life)
{
	for (uint32_t found = 0; found < 2; found++) {
		struct event ev = {.type = EV_GIVE_UP};
		uint8_t *copy;

		create(2);
		start();
		run_ms(20000);
		copy = copy_of(2);
		if (found) {
			crash();
			memcpy(w.disk[2], copy, DISK_BYTES);
			w.dead[1] = true;
			start_cold();
			run_ms(20000);
			CHECK(strstr(status().waits, "older copy"));
			dev_up(1);
			run_ms(100);
		} else {
			dev_down(2);
			memcpy(w.disk[2], copy, DISK_BYTES);
		}
		step(ev);
		run_ms(10000);
		CHECK(w.removed);
		if (!found) {
			dev_up(2);
			run_ms(10);
		}
		next_life();
		is_read();
		finish();
		free(copy);
	}
}

/* Member 1's address leads to it as well. */
TEST(nor_is_one_to_which_two_ways_lead)
{
	for (uint32_t missing = 0; missing < 2; missing++)
		for (uint32_t late = 0; late < 2; late++) {
			uint8_t *copy, *right, *one;

			create(2);
			one = w.disk[1];
			start();
			run_ms(20000);
			if (missing) {
				dev_down(1);
				run_ms(600);
			}
			copy = copy_of(2);
			right = w.disk[2];
			crash();
			w.disk[1] = w.disk[2] = copy;
			w.dead[1] = late;
			start_cold();
			run_ms(20000);
			if (late)
				dev_up(1);
			run_ms(30000);
			CHECK(!status().io_allowed);
			CHECK(strstr(status().waits, "older copy"));
			w.disk[1] = one;
			w.disk[2] = right;
			run_ms(60000); /* each is connected anew now and then */
			is_read();
			finish();
			free(copy);
		}
}

/* Both would do: the right one, or the other one. Neither has left the map meanwhile. */
TEST(the_one_that_is_away_ends_the_wait_as_well)
{
	uint8_t *copy = crashed_with_copy_of(2);

	memcpy(w.disk[2], copy, DISK_BYTES);
	w.dead[1] = true;
	start_cold();
	run_ms(60000);
	CHECK(!status().io_allowed);
	CHECK(strstr(status().waits, "older copy"));
	CHECK_EQ_U64(superblock_of(0).map.epoch.num, superblock_of(2).map.epoch.num);
	dev_up(1);
	run_ms(30000);
	is_read();
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	finish();
	free(copy);
}

static void log_reads_wait(void)
{
	w.log_read_hold = true;
	for (uint32_t i = 0; !w.hung_count; i++) {
		CHECK(i < 9000);
		run_ms(1);
	}
}

/* Another ring forms. So many events later what was asked of the log is answered, before all else
 * that is under way. */
static void round_crosses(uint64_t ring, uint32_t events)
{
	struct event kept[64];
	uint32_t n = 0;

	ring_becomes(ring);
	for (uint32_t i = 0; i < events && w.first != w.last; i++)
		run_event();
	for (; w.first != w.last; w.first++) {
		CHECK(n < 64);
		kept[n++] = w.pending[w.first % QUEUE];
	}
	land_hung();
	for (; w.first != w.last;)
		step(w.pending[w.first++ % QUEUE]);
	for (uint32_t i = 0; i < n; i++)
		push(kept[i]);
}

/* The log is read while rounds come and go: what a former one has asked counts for none. */
TEST(nor_is_one_whose_log_is_read_over_a_round)
{
	for (uint32_t first = 0; first < 4; first++)
		for (uint32_t second = 0; second < 4; second++) {
			uint8_t *copy = crashed_with_copy_of(2);

			memcpy(w.disk[2], copy, DISK_BYTES);
			start_cold();
			log_reads_wait();
			round_crosses(12, first);
			log_reads_wait();
			run_ms(20);
			round_crosses(13, second);
			run_ms(30000);
			is_read();
			finish();
			free(copy);
		}
}

/* It has been an older copy, and was rebuilt. A copy that connects at another address is not
 * preferred for that. */
TEST(what_was_an_older_copy_keeps_its_place)
{
	uint8_t *copy;

	create(2);
	start();
	run_ms(20000);
	copy = copy_of(2);
	dev_down(2);
	memcpy(w.disk[2], copy, DISK_BYTES);
	run_ms(600);
	dev_up(2);
	run_ms(60000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	put(3); /* its region is marked: the pages are alike */
	w.disk[5] = image_of(2);
	put(4);
	w.uri[5] = "mem:5";
	dev_up(5);
	run_ms(5000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 2), 2);
	is_read();
	finish();
	free(copy);
}

/* Member 1 comes, and goes again before the map is written that drops the copy in its favour. The
 * right one is taken nevertheless. */
TEST(the_one_that_is_away_comes_for_a_moment)
{
	for (uint32_t events = 0; events < 40; events += 2) {
		uint8_t *copy = crashed_with_copy_of(2), *right = w.disk[2];
		uint32_t before;
		bool written;

		w.disk[2] = copy;
		w.dead[1] = true;
		start_cold();
		run_ms(20000);
		CHECK(!status().io_allowed);
		before = w.counts[KIND_SB][DEV_WRITE];
		dev_up(1);
		for (uint32_t i = 0; i < events; i++)
			run_event();
		written = w.counts[KIND_SB][DEV_WRITE] > before;
		dev_down(1);
		run_ms(20000);
		CHECK(!status().io_allowed);
		w.disk[2] = right;
		/* It is connected anew now and then. */
		CHECK_MSG(served_within(60000) || written, "after %u events: %s", events,
			  status().waits);
		if (!written)
			is_read();
		finish();
		free(copy);
		if (written)
			break;
	}
}

/*
 * Member 2 breaks off before the log is read, and is back when member 1 goes for good: the map that
 * was to go on without member 2 is not written, and the array starts without member 1. If it is
 * written already, or member 2 is an older copy, the data needs member 1, and that is waited for.
 */
TEST(one_is_back_when_another_one_goes)
{
	for (uint32_t older = 0; older < 2; older++)
		for (uint32_t events = 0; events < 256; events += 24)
			for (uint32_t first = 0; first < 2; first++) {
				uint8_t *copy = crashed_with_copy_of(2);
				uint32_t n = 0, reads = w.counts[KIND_LOG][DEV_READ];
				uint32_t written = w.counts[KIND_SB][DEV_WRITE];

				if (older)
					memcpy(w.disk[2], copy, DISK_BYTES);
				start_cold();
				run_ms(1);
				dev_down(2);
				while (w.counts[KIND_LOG][DEV_READ] == reads) {
					CHECK(n++ < 100000);
					run_event();
				}
				for (uint32_t i = 0; i < events; i++)
					run_event();
				written = w.counts[KIND_SB][DEV_WRITE] - written;
				if (first)
					dev_up(2);
				dev_down(1);
				if (!first)
					dev_up(2);
				CHECK_MSG(served_within(older || written ? 20000 : 60000) ==
					      (!older && !written),
					  "%u %u %u: waits for %s", older, events, first,
					  status().waits);
				if (status().io_allowed)
					is_read();
				finish();
				free(copy);
			}
}

/* A member that answers, but breaks off whenever its log is read, holds a start up three times, and
 * not once for each page. */
TEST(one_whose_log_breaks_off_is_left_out)
{
	uint32_t cuts = 0, n = 0;

	create(2);
	start();
	run_ms(20000);
	put(1);
	clean();
	crash();
	start_cold();
	while (!status().io_allowed) {
		CHECK(n++ < 100000);
		cuts += !(w.cut_log & 4);
		w.cut_log |= 4;
		run_event();
	}
	CHECK(cuts > 1 && cuts <= 4);
	is_read();
	finish();
}
