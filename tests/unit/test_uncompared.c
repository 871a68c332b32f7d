/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of three members one is an older copy of itself after the death of all nodes, and the first map
 * of the start can do without it. What it lacks only the orphan slots tell, and whoever has
 * noted that; so it comes back as a whole if nobody has.
 */
#define MEMBERS 3
#include "tests/unit/copy_world.h"

/* Also with any other member left out. */
static void is_right(uint32_t but)
{
	is_read();
	for (uint32_t m = 0; m < MEMBERS; m++) {
		if (m == but)
			continue;
		dev_down(m);
		run_ms(2000);
		is_read();
		dev_up(m);
		run_ms(6000);
	}
}

/* It was lost before the slots were read, or comes late. */
static void start_without(uint32_t m, bool late)
{
	w.dead[m] = late;
	start_cold();
	if (late)
		return;
	run_ms(500);
	dev_down(m);
	run_ms(5);
	dev_up(m);
}

static void until_hung(void)
{
	for (uint32_t i = 0; !w.hung_count; i++) {
		CHECK(i < 20000);
		run_ms(1);
	}
}

/* A ring forms while the first map is being written: the same leader assembles the array once more,
 * by that. It compares the member all the same, and what lacks nothing is not rebuilt as a whole.
 */
TEST(a_round_crosses_the_first_map_of_a_start)
{
	for (uint32_t older = 0; older < 2; older++)
		for (uint32_t m = 0; m < MEMBERS; m++) {
			uint8_t *copy = crashed_with_copy_of(m);
			uint32_t moved;

			if (older)
				memcpy(w.disk[m], copy, DISK_BYTES);
			start_without(m, true);
			w.hung = 1u << (m + 1) % MEMBERS;
			until_hung();
			run_ms(3);
			ring_becomes(12);
			run_ms(10);
			land_hung();
			run_ms(20000);
			CHECK_EQ_INT(status().map.member[m].state, MEMBER_SUSPECT);
			CHECK(status().map.member[m].flags & MEMBER_F_UNCOMPARED);
			moved = rebuild_writes();
			dev_up(m);
			run_ms(30000);
			CHECK_EQ_INT(status().map.member[m].state, MEMBER_IN_SYNC);
			moved = rebuild_writes() - moved;
			CHECK_MSG(older ? moved : !moved, "%u", moved);
			is_right(m);
			finish();
			free(copy);
		}
}

/* At any moment of it. */
TEST(a_round_comes_with_the_first_map_of_a_start)
{
	for (uint32_t events = 0; events < 100; events += 3) {
		uint8_t *copy = crashed_with_copy_of(1);
		uint32_t reads = w.counts[KIND_LOG][DEV_READ];

		memcpy(w.disk[1], copy, DISK_BYTES);
		start_without(1, true);
		while (w.counts[KIND_LOG][DEV_READ] == reads)
			run_event();
		for (uint32_t i = 0; i < events; i++)
			run_event();
		ring_becomes(12);
		run_ms(20000);
		dev_up(1);
		run_ms(30000);
		is_right(1);
		finish();
		free(copy);
	}
}

/* Who has noted it dies, or the array is stopped, before the member is back. */
TEST(who_has_noted_what_it_lacks_is_gone)
{
	for (uint32_t stop = 0; stop < 2; stop++)
		for (uint32_t m = 0; m < MEMBERS; m++) {
			uint8_t *copy = crashed_with_copy_of(m);

			memcpy(w.disk[m], copy, DISK_BYTES);
			w.dead[m] = true;
			start_cold();
			run_ms(20000);
			is_read();
			if (stop)
				step(
				    (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
			run_ms(9000 * stop);
			CHECK_EQ_INT(w.stopped, (int)stop);
			crash();
			w.dead[m] = w.removed = false;
			start_cold();
			for (uint32_t i = 0; i < 20 && !w.removed; i++)
				run_ms(1000);
			if (w.removed) /* its last one may have claimed the array: it begins anew
					*/
				next_life();
			run_ms(30000);
			is_right(m);
			CHECK_EQ_INT(status().map.member[m].state, MEMBER_IN_SYNC);
			finish();
			free(copy);
		}
}

/* A member that is right has broken off once: it may not be needed, but its log says what it says.
 */
TEST(all_that_are_there_are_compared)
{
	for (uint32_t m = 0; m < MEMBERS; m++)
		for (uint32_t at_ms = 0; at_ms < 2400; at_ms += at_ms < 40 ? 20 : 300) {
			uint8_t *copy = crashed_with_copy_of(m);
			uint32_t other = (m + 1 + at_ms / 20 % 2) % MEMBERS;

			memcpy(w.disk[m], copy, DISK_BYTES);
			start_cold();
			run_ms(at_ms);
			dev_down(other);
			run_ms(5);
			dev_up(other);
			run_ms(20000);
			is_read();
			CHECK_EQ_INT(status().map.member[m].state, MEMBER_FAULTY);
			finish();
			free(copy);
		}
}

/* One that carries all comes back with what it missed, as ever. */
TEST(one_that_lacks_nothing_comes_back_partially)
{
	uint8_t *copy = crashed_with_copy_of(1);
	uint32_t moved;

	start_without(1, true);
	run_ms(20000);
	put(3);
	run_ms(3000);
	moved = rebuild_writes();
	dev_up(1);
	run_ms(20000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK(rebuild_writes() - moved <= 4);
	is_right(1);
	finish();
	free(copy);
}

/*
 * All three are there, and the log tells that one is an older copy. Before a map says so another
 * one breaks off: the two that are left could not tell it any more, but it is still the same copy.
 * It ends when the other one is back, or the right disk.
 */
TEST(a_copy_that_was_found_stays_one)
{
	for (uint32_t how = 0; how < 3; how++)
		for (uint32_t m = 0; m < 3; m++)
			for (uint32_t events = 0; events < 32; events += 6) {
				uint8_t *copy = crashed_with_copy_of(m), *right = w.disk[m];
				uint32_t other = (m + 1) % 3, n = 0;

				w.disk[m] = copy;
				start_cold();
				while (!engine_dev_older(w.e, m)) {
					CHECK(n++ < 100000);
					run_event();
				}
				for (uint32_t i = 0; i < events; i++)
					run_event();
				dev_down(other);
				run_ms(20000);
				CHECK(!status().io_allowed);
				if (how)
					w.disk[m] = right;
				if (how == 2)
					run_ms(7000);
				if (how != 1)
					dev_up(other);
				CHECK_MSG(served_within(60000), "%u %u %u: waits for %s", how, m,
					  events, status().waits);
				is_read();
				if (!how)
					CHECK_EQ_INT(status().map.member[m].state, MEMBER_FAULTY);
				finish();
				free(how ? copy : right);
			}
}

/*
 * Member x is an older copy, and has broken off before the log is read, so the map is to go on
 * without it. It is back before that is written, and another one breaks off: the two that are left
 * can't tell, so the right one is waited for.
 */
TEST(one_that_was_not_compared_takes_nobodys_place)
{
	for (uint32_t first = 0; first < 2; first++)
		for (uint32_t x = 0; x < 2; x++)
			for (uint32_t events = 0; events < 40; events += 6) {
				uint8_t *copy = crashed_with_copy_of(x);
				uint32_t n = 0, other = (x + 1) % 3;
				uint32_t reads = w.counts[KIND_LOG][DEV_READ];

				memcpy(w.disk[x], copy, DISK_BYTES);
				start_cold();
				run_ms(1);
				dev_down(x);
				while (w.counts[KIND_LOG][DEV_READ] == reads) {
					CHECK(n++ < 100000);
					run_event();
				}
				for (uint32_t i = 0; i < events; i++)
					run_event();
				if (first)
					dev_up(x);
				dev_down(other);
				if (!first)
					dev_up(x);
				run_ms(20000);
				CHECK_MSG(!status().io_allowed, "%u %u %u", first, x, events);
				dev_up(other);
				run_ms(60000);
				CHECK_MSG(status().io_allowed, "%u %u %u: waits for %s", first, x,
					  events, status().waits);
				is_read();
				finish();
				free(copy);
			}
}

/* Member 0 has been away for long, so the data needs both others. Of one a sector of the log can't
 * be read, so the slots are never read with it. It breaks off for a moment when the round is
 * announced: the slots are known, and nobody would read them again. */
TEST(one_without_a_sector_of_its_log_breaks_off_late_in_a_start)
{
	uint32_t until = UINT32_MAX;

	for (uint32_t back = 0; back < 24 && back < until; back++) {
		uint32_t n = 0;

		create(1);
		start();
		run_ms(20000);
		put(1);
		clean();
		dev_down(0);
		run_ms(5000);
		put(2);
		run_ms(3);
		w.bad_log_at = geo_log_offset(engine_geo(w.e), 2, 0, 0);
		crash();
		w.bad_log = 1u << 1;
		start_cold();
		for (; n < until - back && status().state != ENGINE_ACTIVE; n++)
			run_event();
		if (until == UINT32_MAX) {
			until = n;
			finish();
			continue;
		}
		dev_down(1);
		run_ms(5);
		dev_up(1);
		run_ms(15000);
		CHECK_MSG(status().io_allowed, "%u events before it: waits for %s", back,
			  status().waits);
		CHECK_EQ_U64(status().slots_unrecovered, 0);
		CHECK_EQ_U64(status().regions_to_resync, 0);
		dev_up(0);
		run_ms(10000);
		CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
		is_right(0);
		finish();
	}
}
