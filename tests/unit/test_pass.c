/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a pass promises to its user (core/cluster/pass.h), with a user of this test's own: a scrub
 * that computes the parity of all regions anew. It has what its head says that a user has: hooks,
 * its notes, and four calls.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/pass.h"
#include "tests/unit/engine_world.h"

#define BATCH 4u

static struct scrub {
	struct pass pass;
	uint64_t cursor;      /* the next region */
	uint64_t through;     /* below this all is flushed */
	uint32_t asked;       /* flush_due */
	uint32_t flushes;     /* of all members, when a region ended last */
	uint32_t told, rests; /* flushed, rest */
	uint64_t next_us;     /* its rate */
	uint32_t pause_ms;
	bool hold; /* FLUSHes are held back */
	struct out held[MEMBERS];
	uint32_t held_count;
} s;

static uint32_t flushes(void)
{
	return w.counts[KIND_FLUSH][DEV_FLUSH];
}

static bool scrub_may_run(struct engine *e)
{
	return e->now >= s.next_us;
}

static uint64_t scrub_next(struct engine *e)
{
	(void)e;
	return s.cursor;
}

static void scrub_region_done(struct engine *e, const struct job *j)
{
	CHECK_EQ_U64(j->region, s.cursor);
	s.cursor++;
	s.flushes = flushes();
	s.next_us = e->now + s.pause_ms * 1000ull;
}

static bool scrub_flush_due(struct engine *e, uint64_t next, bool stops)
{
	uint64_t unflushed = s.cursor - s.through;

	s.asked++;
	return unflushed && (unflushed >= BATCH || next >= e->geo.regions || stops);
}

static void scrub_flushed(struct engine *e)
{
	uint32_t members = (uint32_t)__builtin_popcount(map_write_mask(&e->map));

	/* Each of them has, and since the last region was through. */
	CHECK(flushes() >= s.flushes + members);
	s.through = s.cursor;
	s.told++;
}

static void scrub_rest(struct engine *e, uint64_t next)
{
	CHECK(next >= e->geo.regions || e->view.stopping);
	CHECK_EQ_U64(s.through, s.cursor);
	s.rests++;
}

static void scrub_start(bool one_epoch)
{
	static struct pass_ops ops = {
	    .name = "the scrub",
	    .kind = JOB_RESYNC,
	    .may_run = scrub_may_run,
	    .next = scrub_next,
	    .region_done = scrub_region_done,
	    .flush_due = scrub_flush_due,
	    .flushed = scrub_flushed,
	    .rest = scrub_rest,
	};

	create(1);
	start();
	run_ms(3000);
	CHECK_EQ_U64(status().regions_to_resync, 0);
	CHECK(engine_geo(w.e)->regions > 2 * BATCH);
	memset(&s, 0, sizeof(s));
	ops.one_epoch = one_epoch;
	pass_init(&s.pass, &ops);
}

/* As the engine would call it, with the rest of the leader's work. */
static void scrub_advance(void)
{
	w.q.count = 0;
	pass_advance(w.e, &s.pass);
	for (uint32_t i = 0; i < w.q.count; i++) {
		const struct out *o = &w.q.v[i];

		if (!s.hold || o->type != OUT_DEV_IO || o->io.kind != KIND_FLUSH) {
			do_out(o);
			continue;
		}
		CHECK(s.held_count < MEMBERS);
		s.held[s.held_count++] = *o;
	}
}

static void scrub_event(void)
{
	run_event();
	scrub_advance();
}

/* Until it says that it has nothing to do. */
static void scrub_run(void)
{
	for (uint32_t n = 0; !s.rests; n++) {
		CHECK(n < 100000);
		scrub_event();
	}
}

static void until_flush_is_held(void)
{
	s.hold = true;
	for (uint32_t n = 0; s.held_count < MEMBERS; n++) {
		CHECK(n < 10000);
		scrub_event();
	}
	CHECK_EQ_INT(s.pass.state, PASS_FLUSH);
	CHECK(pass_flushing(&s.pass));
}

static void held_land_last(void)
{
	do_io(&s.held[--s.held_count]);
}

static void held_land(void)
{
	s.hold = false;
	while (s.held_count)
		held_land_last();
	while (w.first != w.last)
		run_event();
}

static void scrub_end(void)
{
	pass_cancel(w.e, &s.pass);
	run_ms(10);
	pass_free(&s.pass);
	finish();
}

TEST(all_regions_are_gone_through_and_told_when_they_are_flushed)
{
	uint64_t fixed, regions;

	scrub_start(false);
	regions = engine_geo(w.e)->regions;
	fixed = status().parity_fixed;
	w.disk[1][geo_offset(engine_geo(w.e), geo_region_first(engine_geo(w.e), 3))] ^= 0xff;
	CHECK_EQ_U64(parity_wrong(1), 1);
	scrub_run();
	CHECK_EQ_U64(s.through, regions);
	CHECK_EQ_U64(s.told, (regions + BATCH - 1) / BATCH);
	CHECK_EQ_U64(status().parity_fixed, fixed + 1);
	CHECK_EQ_U64(parity_wrong(1), 0);
	CHECK_EQ_INT(s.pass.state, PASS_IDLE);
	/* Level-triggered: nothing comes of it as long as nothing is new. */
	s.rests = 0;
	run_ms(100);
	scrub_advance();
	CHECK_EQ_U64(w.q.count, 0);
	CHECK_EQ_U64(s.rests, 1);
	scrub_end();
}

TEST(its_user_sets_the_pace)
{
	uint64_t began;

	scrub_start(false);
	s.pause_ms = 50;
	began = w.now;
	scrub_run();
	CHECK(w.now - began >= (s.cursor - 1) * 50000ull);
	scrub_end();
}

TEST(a_flush_that_a_member_fails_tells_nothing)
{
	scrub_start(false);
	until_flush_is_held();
	w.flush_err = -EIO;
	held_land();
	CHECK_EQ_U64(s.told, 0);
	CHECK_EQ_U64(s.cursor, BATCH);
	/* It is out of the map for that (R14), and the others flush what they got. */
	for (uint32_t n = 0; !s.told; n++) {
		CHECK(n < 10000);
		scrub_event();
	}
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_FAULTY);
	CHECK_EQ_U64(s.through, BATCH);
	scrub_run();
	CHECK_EQ_U64(s.through, engine_geo(w.e)->regions);
	scrub_end();
}

TEST(a_flush_that_was_under_way_when_it_was_cancelled_does_not_count)
{
	scrub_start(false);
	until_flush_is_held();
	pass_cancel(w.e, &s.pass);
	s.cursor = s.through; /* the user's notes */
	CHECK_EQ_INT(s.pass.state, PASS_DRAIN);
	for (uint32_t i = 0; i < 100; i++)
		scrub_event();
	CHECK_EQ_U64(s.cursor, 0); /* nothing is begun before it has ended */
	held_land();
	CHECK_EQ_U64(s.told, 0);
	CHECK(!pass_flushing(&s.pass));
	CHECK_EQ_INT(s.pass.state, PASS_IDLE);
	scrub_run();
	CHECK_EQ_U64(s.through, engine_geo(w.e)->regions);
	scrub_end();
}

TEST(nor_does_a_region)
{
	scrub_start(false);
	while (!job_busy(&s.pass.job))
		scrub_event();
	pass_cancel(w.e, &s.pass);
	CHECK_EQ_INT(s.pass.state, PASS_DRAIN);
	while (s.pass.job.r) {
		CHECK(!pass_ready(w.e, &s.pass));
		run_event();
	}
	CHECK_EQ_U64(s.cursor, 0);
	/* One that waits for its lock is over at once. */
	scrub_advance();
	CHECK_EQ_INT(s.pass.state, PASS_REGION);
	CHECK(!job_busy(&s.pass.job));
	pass_cancel(w.e, &s.pass);
	CHECK_EQ_INT(s.pass.state, PASS_IDLE);
	CHECK_EQ_U64(s.cursor, 0);
	scrub_run();
	CHECK_EQ_U64(s.through, engine_geo(w.e)->regions);
	scrub_end();
}

/* A member leaves the map while the FLUSH is under way: the others have flushed. */
TEST(a_flush_counts_in_its_epoch_only_if_the_user_says_so)
{
	for (uint32_t one_epoch = 0; one_epoch < 2; one_epoch++) {
		struct event ev = {.type = EV_ADMIN};

		scrub_start(one_epoch);
		until_flush_is_held();
		ev.admin.cmd = ADMIN_FAIL;
		ev.admin.member = 2;
		step(ev);
		CHECK_EQ_U64(s.held[s.held_count - 1].io.dev, 2);
		held_land_last(); /* the commit waits for what it has under way */
		for (uint32_t n = 0; status().map.member[2].state != MEMBER_FAULTY; n++) {
			CHECK(n < 10000);
			run_event();
		}
		CHECK_EQ_U64(s.told, 0);
		held_land();
		CHECK_EQ_U64(s.told, !one_epoch);
		scrub_run();
		CHECK_EQ_U64(s.through, engine_geo(w.e)->regions);
		scrub_end();
	}
}

TEST(of_a_node_that_leaves_no_region_is_begun_and_what_is_done_is_flushed)
{
	scrub_start(false);
	while (s.cursor < BATCH + 2 || s.pass.state != PASS_REGION)
		scrub_event();
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	scrub_run();
	CHECK_EQ_U64(s.cursor, BATCH + 3);
	CHECK_EQ_U64(s.through, BATCH + 3);
	CHECK_EQ_U64(s.told, 2);
	scrub_end();
}
