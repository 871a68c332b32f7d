// SPDX-License-Identifier: GPL-2.0-or-later
/* An array is attached as a block device and detached; how long that waits for a daemon. */
#include "tests/unit/disk_world.h"

TEST(it_waits_at_least_until_all_others_know_of_the_daemons_end)
{
	heard_ms = 4000;
	first_life();
	CHECK_EQ_U64(fake.away_ms, 0); /* for ever */
	ask_patience(1000);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 4000);
	CHECK_EQ_U64(a->live.away_ms, 4000);
	ask_patience(4001);
	CHECK_EQ_U64(fake.away_ms, 4001);
	heard_ms = 5000; /* another configuration */
	killed();
	life_of(101, true, (struct epoch){5, 1});
	a->live.away_ms = 4001;
	ring(7);
	map_is(5, 1);
	serves();
	CHECK(fake.serving);
	CHECK_EQ_U64(fake.away_ms, 5000);
	heard_ms = 0;
	end();
}

TEST(how_long_it_waits_is_told_to_what_is_there_and_at_each_serve)
{
	first_life();
	CHECK_EQ_U64(fake.away_ms, 0);
	ask_patience(30000);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 30000);
	ask(ATTACH_SHIM, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 30000);
	fake.lost = true;
	fake.serving = false;
	fake.away_ms = 0; /* an operator's own doing */
	a->disk.retry_us = 0;
	disk_advance(a);
	CHECK(fake.serving);
	CHECK_EQ_U64(fake.away_ms, 30000);
	ask_patience(0);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 0);
	CHECK_EQ_U64(a->live.away_ms, 0);
	killed();
	life_of(101, true, (struct epoch){5, 1});
	a->live.away_ms = 7000; /* as it was kept */
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.away_ms, 7000);
	ask(ATTACH_NONE, false);
	CHECK_EQ_U64(a->live.away_ms, 0);
	end();
}

TEST(a_time_that_it_does_not_take_changes_nothing)
{
	first_life();
	ask_patience(30000);
	fake.patience_err = -EIO;
	ask_patience(40000);
	CHECK_EQ_INT(attach_err, -EIO);
	CHECK(strstr(attach_why, "it takes no other time; detach it first"));
	CHECK(fake.serving && a->live.attach == ATTACH_SHIM);
	CHECK_EQ_U64(fake.away_ms, 30000);
	CHECK_EQ_U64(a->live.away_ms, 30000);
	end();
}

/* Of a driver that can't be asked now, say: who detaches must not be told that it is gone. */
TEST(a_device_that_can_not_be_ended_is_not_detached)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	fake.discard_err = -EMFILE;
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, -EMFILE);
	CHECK_EQ_INT(a->live.attach, ATTACH_SHIM);
	fake.discard_err = 0;
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_INT(a->live.attach, ATTACH_NONE);
	end();
}

static struct array_attach detach_q;

/* A detach that has to wait; it is not answered. */
static void detach_waits(void)
{
	detach_q = (struct array_attach){.via = ATTACH_NONE, .done = attach_done};
	fake.remove_err = -EAGAIN;
	attach_err = 1;
	array_attach(a, &detach_q);
	answered();
	CHECK_EQ_INT(attach_err, 1);
	CHECK(a->disk.detach == &detach_q);
}

/* Its time has come. */
static void detach_fires(void)
{
	loop_timer_clear(a->loop, &a->disk.detach_timer);
	disk_detach_fired(a);
	answered();
}

TEST(what_is_not_known_yet_changes_nothing)
{
	first_life();
	fake.remove_err = -EAGAIN;
	CHECK_EQ_INT(disk_stop(a, ARRAY_STOP_ASKED, because), -EAGAIN);
	CHECK(fake.serving && note_there());
	detach_waits();
	CHECK(fake.serving && note_there() && a->live.attach == ATTACH_SHIM);
	detach_fires();
	CHECK_EQ_INT(attach_err, 1);
	a->disk.detach_until_us = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, -EAGAIN);
	CHECK(strstr(attach_why, "who has it open is not known yet"));
	CHECK(fake.serving && note_there() && a->live.attach == ATTACH_SHIM);
	fake.remove_err = 0;
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!fake.serving && !note_there());
	end();
}

TEST(a_detach_waits_until_it_is_known_who_has_it_open)
{
	first_life();
	detach_waits();
	ask(ATTACH_NONE, false); /* a second one meanwhile */
	CHECK_EQ_INT(attach_err, -EAGAIN);
	fake.remove_err = 0;
	fake.opens = 1;
	detach_fires();
	CHECK_EQ_INT(attach_err, -EBUSY);
	CHECK(fake.serving && note_there() && a->live.attach == ATTACH_SHIM);
	detach_waits();
	fake.remove_err = 0;
	fake.opens = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!fake.serving && !note_there() && a->live.attach == ATTACH_NONE);
	end();
}

TEST(a_detach_waits_for_that_of_what_an_earlier_life_left_too)
{
	first_life();
	killed();
	incarnation(101, false, 5);
	ring(7);
	fake.discard_err = -EAGAIN;
	detach_waits();
	fake.remove_err = 0;
	fake.discard_err = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	end();
}

TEST(a_detach_that_waits_is_answered_when_the_array_stops)
{
	first_life();
	detach_waits();
	a->phase = ARRAY_PHASE_STOP;
	detach_fires();
	CHECK_EQ_INT(attach_err, -ESHUTDOWN);
	a->phase = ARRAY_PHASE_RUN;
	detach_waits();
	disk_close(a);
	answered();
	CHECK_EQ_INT(attach_err, -ESHUTDOWN);
	CHECK(!a->disk.detach);
	end();
}

/* With requests under way, of somebody who has it open. */
static void detach_forced(bool hides)
{
	first_life();
	fake.hides = hides;
	fake.discards = 0;
	fake.opens = 1;
	fake.inflight = 3;
	give_ups = 0;
	detach_q = (struct array_attach){.via = ATTACH_NONE, .force = true, .done = attach_done};
	attach_err = 1;
	array_attach(a, &detach_q);
	answered();
	CHECK_EQ_INT(attach_err, 1);
	CHECK(fake.held && fake.serving && a->disk.detach == &detach_q);
	CHECK_EQ_U64(fake.ended, 0);
}

static void drained(bool hides)
{
	detach_forced(hides);
	fake.inflight = 1;
	detach_fires();
	CHECK_EQ_INT(attach_err, 1);
	CHECK_EQ_U64(fake.ended, 0);
	CHECK_EQ_INT(give_ups, 0);
	ask(ATTACH_SHIM, false); /* meanwhile */
	CHECK_EQ_INT(attach_err, -EAGAIN);
	attach_err = 1;
	fake.inflight = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!fake.serving && !note_there() && a->live.attach == ATTACH_NONE);
	CHECK_EQ_INT(fake.discards, 0);
	end();
}

TEST(who_has_it_open_is_told_only_when_nothing_of_theirs_is_under_way)
{
	drained(false);
	drained(true);
}

/* R6. Or else it would be written when the members are back. */
static void given_up(bool hides)
{
	detach_forced(hides);
	a->disk.cut_us = 1;
	detach_fires();
	CHECK_EQ_INT(give_ups, 1);
	CHECK_EQ_INT(attach_err, 1);
	CHECK_EQ_U64(fake.ended, 0);
	detach_fires(); /* once is enough */
	CHECK_EQ_INT(give_ups, 1);
	disk_removed(a);
	CHECK_EQ_U64(fake.ended, 1);
	fake.inflight = 0; /* the engine has dropped them */
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	CHECK(!a->disk.cut_us);
	end();
}

static void lose_device(void)
{
	fake.lost = true;
	fake.serving = false;
}

/* The driver refused a call, or the kernel's NBD client ended the connection: the device waits. */
TEST(what_a_lost_device_has_under_way_ends_before_its_consumers_are_told)
{
	first_life();
	fake.inflight = 3;
	lose_device();
	give_ups = 0;
	CHECK_EQ_INT(disk_hold(a), 3); /* a stop waits, too */
	detach_q = (struct array_attach){.via = ATTACH_NONE, .force = true, .done = attach_done};
	attach_err = 1;
	array_attach(a, &detach_q);
	answered();
	CHECK_EQ_INT(attach_err, 1);
	CHECK_EQ_U64(fake.ended, 0);
	a->disk.cut_us = 1;
	detach_fires();
	CHECK_EQ_INT(give_ups, 1);
	CHECK_EQ_U64(fake.ended, 0);
	fake.inflight = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	end();
}

static int second_err;

static void second_done(struct array_attach *q, int err, const char *why)
{
	(void)q;
	(void)why;
	second_err = err;
}

TEST(a_detach_by_force_does_not_wait_for_one_without)
{
	struct array_attach forced = {.via = ATTACH_NONE, .force = true, .done = second_done};

	first_life();
	detach_waits();
	fake.inflight = 2;
	second_err = 1;
	array_attach(a, &forced);
	answered();
	CHECK_EQ_INT(attach_err, -ECANCELED);
	CHECK_EQ_INT(second_err, 1);
	CHECK(a->disk.detach == &forced && fake.held);
	ask(ATTACH_NONE, true); /* a second one */
	CHECK_EQ_INT(attach_err, -EAGAIN);
	CHECK_EQ_INT(second_err, 1);
	fake.inflight = 0;
	detach_fires();
	CHECK_EQ_INT(second_err, 0);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	end();
}

TEST(what_does_not_end_when_it_is_cut_off_ends_with_the_incarnation)
{
	given_up(false);
	given_up(true);
}
