// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Whose opens of a block device go on (R6): what an incarnation does with the device that an
 * earlier one left, by the note in the run directory, the ring and the epochs.
 */
#include "tests/unit/disk_world.h"

TEST(a_daemon_that_comes_back_goes_on_with_what_was_open)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.token, fake.first);
	killed();
	incarnation(102, false, 6); /* and so does the next */
	ring(7);
	map_is(6, 1);
	serves();
	CHECK_EQ_U64(fake.token, fake.first);
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(an_older_epoch_than_acknowledged_is_no_reason)
{
	first_life();
	killed();
	incarnation(101, false, 6); /* a proposal that nobody committed */
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(a_change_of_the_membership_that_no_life_saw_ends_what_was_open)
{
	first_life();
	killed();
	incarnation(101, true, 5);
	ring(8);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(fake.token != fake.first);
	end();
}

TEST(a_change_of_the_membership_that_it_has_served_in_does_not)
{
	first_life();
	ring(8);
	serves();
	killed();
	incarnation(101, false, 5);
	ring(8);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(a_ring_counts_only_when_io_was_allowed_in_it)
{
	first_life();
	ring(8);
	now.io_allowed = false;
	disk_advance(a);
	killed();
	incarnation(101, false, 5);
	ring(8);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(others_that_went_on_without_it_end_what_was_open)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	map_is(6, 2);
	CHECK(!note_there());
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(fake.token != fake.first);
	end();
}

TEST(an_epoch_of_the_same_number_and_another_leader_is_another_one)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	map_is(5, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* The one that found it out has acknowledged what the others did, and dies. */
TEST(what_one_life_has_found_out_holds_for_the_next)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	map_is(6, 2);
	killed();
	life_of(102, false, (struct epoch){6, 2});
	ring(7);
	map_is(6, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(fake.token != fake.first);
	end();
}

TEST(who_left_cleanly_was_not_missed)
{
	first_life();
	disk_stop(a, ARRAY_STOP_LEAVE, because);
	CHECK(fake.held && note_there());
	killed();
	incarnation(101, true, 5);
	ring(7);
	map_is(9, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	CHECK_EQ_U64(fake.token, fake.first);
	end();
}

/* Nobody served when it came; its first map is one that it has acknowledged itself. */
TEST(a_round_of_its_own_on_top_of_what_it_knew_is_none_without_it)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	now.proposing = true;
	now.proposed.epoch = (struct epoch){6, 3};
	tick();
	now.proposing = false;
	map_is(6, 3);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	killed();
	life_of(102, false, (struct epoch){6, 3});
	ring(7);
	now.proposing = true;
	now.proposed.epoch = (struct epoch){8, 3}; /* there was a 7 */
	tick();
	map_is(8, 3);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* It is killed when it has acknowledged a proposal that shows that there was another epoch. */
TEST(what_a_life_saw_proposed_counts_for_the_next_one)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	now.proposing = true;
	now.proposed.epoch = (struct epoch){7, 3};
	tick();
	killed();
	life_of(102, false, (struct epoch){7, 3});
	ring(7);
	now.proposing = false;
	map_is(7, 3);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(a_node_that_was_removed_opens_anew)
{
	first_life();
	disk_removed(a);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!fake.serving && !note_there());
	a->inc = 101;
	serves();
	CHECK(fake.token != fake.first);
	CHECK(note_there());
	killed();
	end();
}

/* Its consumers' requests wait in the kernel; they must not wait for a node that can't come back.
 */
TEST(what_waits_fails_when_the_others_have_gone_on_though_nobody_serves_yet)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	map_is(6, 2);
	CHECK(!now.io_allowed && !fake.serving);
	CHECK_EQ_U64(fake.ended, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(what_waits_fails_when_the_node_is_removed_before_it_has_served_it)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	disk_removed(a);
	CHECK(!note_there());
	CHECK_EQ_U64(fake.ended, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* The driver has taken its session from it: the front-end knows no device any more. */
TEST(what_waits_fails_when_the_node_is_removed_after_it_has_lost_it)
{
	first_life();
	fake.serving = false;
	fake.lost = true;
	disk_removed(a);
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(what_waits_and_can_not_be_failed_is_tried_again)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	fake.discard_err = -EBUSY;
	fake.discards = 0;
	map_is(6, 2);
	CHECK_EQ_U64(fake.ended, 0);
	CHECK_EQ_INT(fake.discards, 1);
	disk_advance(a); /* not at once */
	CHECK_EQ_INT(fake.discards, 1);
	a->disk.left_us = 0;
	fake.discard_err = 0;
	disk_advance(a);
	CHECK_EQ_U64(fake.ended, 1);
	a->disk.left_us = 0;
	disk_advance(a);
	CHECK_EQ_INT(fake.discards, 2);
	end();
}

/* The one that removed the note died before it had ended the device. */
TEST(a_device_without_a_note_is_ended_by_who_finds_it)
{
	first_life();
	killed();
	fake.discard_err = -EBUSY;
	incarnation(101, false, 5);
	ring(7);
	map_is(6, 2);
	killed();
	fake.discard_err = 0;
	life_of(102, false, (struct epoch){6, 2});
	ring(7);
	disk_advance(a);
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* Its incarnation is the one before and 1, and so was once the name of a second device. */
TEST(a_life_after_a_clock_set_back_does_not_go_on_with_a_fenced_one)
{
	first_life();
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, 0);
	ask(ATTACH_SHIM, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK(fake.serving && fake.token != fake.first);
	killed();
	incarnation(101, false, 5);
	ring(7);
	map_is(6, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(a_note_that_is_none_ends_what_was_open)
{
	char path[CONFIG_PATH_BYTES + 32];
	FILE *f;

	first_life();
	killed();
	snprintf(path, sizeof(path), "%s/vol0.takeover", conf.run_dir);
	f = fopen(path, "w");
	CHECK(f && fputs("100 1", f) >= 0 && !fclose(f));
	incarnation(101, true, 5);
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(a_stop_that_was_asked_for_leaves_what_is_open)
{
	first_life();
	fake.opens = 1;
	CHECK_EQ_INT(disk_stop(a, ARRAY_STOP_ASKED, because), -EBUSY);
	CHECK(fake.serving && note_there());
	fake.opens = 0;
	CHECK_EQ_INT(disk_stop(a, ARRAY_STOP_ASKED, because), 0);
	CHECK(!fake.serving && !note_there());
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

/* ---- --away, by the kernel's NBD client --------------------------------------------------------
 */

/* What it was attached with, in an incarnation that has served it for a while. */
static void first_by(enum attach_via via, uint32_t away_ms)
{
	begin();
	incarnation(100, true, 4);
	a->live.attach = via;
	a->live.away_ms = away_ms;
	ring(7);
	map_is(5, 1);
	serves();
	fake.first = fake.token;
}

/* The next incarnation: the note says that nobody has served for so long. */
static void back_by(enum attach_via via, uint64_t alone_ms)
{
	uint32_t away_ms = a->live.away_ms;

	killed();
	incarnation(101, false, 5);
	a->live.attach = via;
	a->live.away_ms = away_ms;
	a->disk.takeover.alone_us -= alone_ms * 1000;
	ring(7);
	map_is(5, 1);
}

static void next_by(enum attach_via via, uint64_t alone_ms)
{
	back_by(via, alone_ms);
	serves();
}

/* The kernel has failed some of what waited, and would send the rest again. */
TEST(alone_for_as_long_as_away_it_fails_all_that_waits)
{
	first_by(ATTACH_NBD, 5000);
	next_by(ATTACH_NBD, 5000);
	CHECK(fake.token != fake.first);
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(alone_for_less_it_goes_on_with_what_waits)
{
	first_by(ATTACH_NBD, 5000);
	next_by(ATTACH_NBD, 3000);
	CHECK_EQ_U64(fake.token, fake.first);
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(alone_for_ever_it_goes_on_where_nothing_fails)
{
	first_by(ATTACH_NBD, AWAY_HOLD);
	next_by(ATTACH_NBD, 50000000);
	CHECK_EQ_U64(fake.token, fake.first);
	end();
}

/* It fails all that waits by itself. */
TEST(alone_for_as_long_as_away_it_goes_on_with_our_own_driver)
{
	first_by(ATTACH_SHIM, 5000);
	next_by(ATTACH_SHIM, 6000);
	CHECK_EQ_U64(fake.token, fake.first);
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

/* What counts is what the kernel was told. */
TEST(the_away_that_counts_is_the_one_that_held)
{
	first_by(ATTACH_NBD, 5000);
	a->live.away_ms = 60000;
	next_by(ATTACH_NBD, 5000);
	CHECK(fake.token != fake.first);
	CHECK_EQ_U64(fake.ended, 1);
	end();
	first_by(ATTACH_NBD, AWAY_HOLD);
	ask_for((struct array_attach){.via = ATTACH_NBD, .patience = true, .away_ms = 5000});
	CHECK_EQ_INT(attach_err, 0);
	next_by(ATTACH_NBD, 5000);
	CHECK(fake.token != fake.first);
	end();
}

/* The kernel has ended the connection, and this incarnation gives it another one. */
TEST(a_life_that_has_lost_it_for_as_long_fails_all_that_waits_too)
{
	first_by(ATTACH_NBD, 5000);
	fake.lost = true;
	fake.serving = false;
	a->disk.takeover.alone_us -= 5000000;
	a->disk.retry_us = 0;
	serves();
	CHECK(fake.token != fake.first);
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* The time passes while the kernel is asked. */
TEST(what_it_is_too_late_for_is_ended_before_anything_is_taken_from_it)
{
	first_by(ATTACH_NBD, 5000);
	back_by(ATTACH_NBD, 0);
	fake.serve_takes_us = 6000000;
	now.io_allowed = true;
	disk_settles();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!fake.serving && !note_there());
	a->disk.retry_us = 0;
	serves();
	CHECK(fake.token != fake.first);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(note_there());
	end();
}

static void noted(uint64_t *away_ms, uint64_t *at_us)
{
	char path[CONFIG_PATH_BYTES + 32];
	FILE *f;

	snprintf(path, sizeof(path), "%s/vol0.takeover", conf.run_dir);
	f = fopen(path, "r");
	CHECK(f && fscanf(f, "%*u %*u %*u %" SCNu64 " %" SCNu64, away_ms, at_us) == 2);
	fclose(f);
}

static uint64_t noted_us(void)
{
	uint64_t away_ms, at_us;

	noted(&away_ms, &at_us);
	return at_us;
}

static uint64_t noted_away_ms(void)
{
	uint64_t away_ms, at_us;

	noted(&away_ms, &at_us);
	return away_ms;
}

TEST(the_note_says_when_there_was_a_connection_last)
{
	uint64_t at_us;

	first_by(ATTACH_NBD, 5000);
	a->disk.takeover.alone_us -= 2000000;
	now.io_allowed = false; /* it waits for something */
	disk_advance(a);
	at_us = noted_us();
	CHECK_EQ_U64(at_us, a->disk.takeover.alone_us);
	CHECK(loop_clock_us(a->loop) - at_us < 1000000);
	disk_advance(a); /* not each time */
	CHECK_EQ_U64(noted_us(), at_us);
	/* Held: as long as something is under way. */
	fake.inflight = 1;
	a->disk.takeover.alone_us -= 2000000;
	disk_hold(a);
	at_us = noted_us();
	CHECK_EQ_U64(at_us, a->disk.takeover.alone_us);
	/* Also while the array is being stopped. */
	a->phase = ARRAY_PHASE_STOP;
	a->disk.takeover.alone_us -= 2000000;
	disk_advance(a);
	CHECK(noted_us() >= at_us);
	CHECK_EQ_U64(noted_us(), a->disk.takeover.alone_us);
	at_us = noted_us();
	fake.inflight = 0;
	a->disk.takeover.alone_us -= 2000000;
	disk_hold(a);
	disk_advance(a);
	CHECK_EQ_U64(noted_us(), at_us);
	end();
}

/* `attach --away` came while nobody served it: the kernel hears of the time when it is served, and
 * the daemon dies there. */
TEST(the_note_has_a_shorter_time_before_the_kernel_has)
{
	first_by(ATTACH_NBD, AWAY_HOLD);
	back_by(ATTACH_NBD, 50000000);
	a->live.away_ms = 5000;
	fake.serve_err = -EIO;
	CHECK_EQ_U64(noted_away_ms(), AWAY_HOLD);
	now.io_allowed = true;
	a->disk.retry_us = 0;
	disk_settles();
	CHECK(!fake.serve_err);
	CHECK_EQ_U64(noted_away_ms(), 5000);
	CHECK(loop_clock_us(a->loop) - noted_us() < 4000000);
	CHECK_EQ_U64(fake.token, fake.first);
	a->live.away_ms = AWAY_HOLD;
	next_by(ATTACH_NBD, 5000);
	CHECK(fake.token != fake.first);
	end();
	/* The longer one that held until then counts for what waits. */
	first_by(ATTACH_NBD, 60000);
	back_by(ATTACH_NBD, 10000);
	a->live.away_ms = 5000;
	serves();
	CHECK_EQ_U64(fake.token, fake.first);
	CHECK_EQ_U64(noted_away_ms(), 5000);
	end();
	/* A longer one holds when the device is served. */
	first_by(ATTACH_NBD, 5000);
	back_by(ATTACH_NBD, 1000);
	a->live.away_ms = 9000;
	fake.serve_err = -EIO;
	now.io_allowed = true;
	a->disk.retry_us = 0;
	disk_settles();
	CHECK_EQ_U64(noted_away_ms(), 5000);
	a->disk.retry_us = 0;
	serves();
	CHECK_EQ_U64(noted_away_ms(), 9000);
	CHECK_EQ_U64(fake.token, fake.first);
	end();
}
