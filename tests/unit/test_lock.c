/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A lock of this node by itself: what it asks and gives up for what it is told, in each of its
 * states. The engine is none that serves, so what is let in gets no further: a job that has its
 * region waits for the gate.
 */
#include "tests/lib/test.h"

#include "daemon/core/data/data.h"
#include "daemon/core/format/choose.h"

#define REGIONS 4u
#define PR LOCK_MODE_PR
#define CW LOCK_MODE_CW
#define EX LOCK_MODE_EX
#define NOTHING LOCK_MODE_NONE

static struct engine *e;
static struct outq q;
static struct job job[REGIONS];

static void nothing(struct engine *of, struct job *j)
{
	(void)of;
	(void)j;
}

static void begin(void)
{
	struct geo_params p = {.order = 1,
			       .m = 1,
			       .layout = GEO_ROTATE,
			       .slots = 4,
			       .stripe_bytes = 4096,
			       .band_bytes = 65536,
			       .region_bytes = 65536,
			       .member_bytes = 4 << 20};
	struct engine_cfg cfg;

	engine_free(e);
	engine_cfg_init(&cfg);
	cfg.node = 1;
	cfg.inc = 101;
	cfg.lock_backend = LOCK_EXTERNAL;
	e = engine_new(&cfg);
	q.count = 0;
	e->q = &q;
	e->now = 1000;
	CHECK_EQ_INT(geo_choose(&e->geo, &p, NULL), 0);
	for (uint32_t i = 0; i < REGIONS; i++)
		job_init(&job[i], JOB_RESYNC, nothing, NULL);
}

/* What it asked the manager for since the last time: "EX0" of region 0, "EX0?" a try, "-0" a
 * release. */
static const char *asked(void)
{
	static char text[256];
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < q.count; i++) {
		const struct out *o = &q.v[i];
		unsigned n = (unsigned)(o->lock.id & LOCK_INDEX_MASK);
		const char *space = at ? " " : "";

		if (o->type == OUT_LOCK)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s%u%s", space,
					       lock_mode_name(o->lock.mode), n,
					       o->lock.try_only ? "?" : "");
		else if (o->type == OUT_UNLOCK)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s-%u", space, n);
	}
	q.count = 0;
	return text;
}

#define ASKS(want_) CHECK_EQ_STR(asked(), want_)

static uint64_t id_of(uint64_t region)
{
	return LOCK_ID(LOCK_KIND_REGION, region);
}

static struct lock *lock_at(uint64_t region)
{
	return lock_find(e, id_of(region));
}

static void want_alone(uint32_t region)
{
	uint64_t first = geo_region_first(&e->geo, region);

	job_start(e, &job[region], region, first, first + 4);
}

/* As if it had been granted some time ago, and nobody is in. A mark keeps the region. */
static struct lock *held(uint32_t region, enum lock_mode mode)
{
	struct region *r = region_get(e, region);

	r->want_mark = true;
	r->lock->state = LK_HELD;
	r->lock->held = mode;
	return r->lock;
}

TEST(a_job_asks_for_ex_once_and_a_grant_counts_when_others_have_answered)
{
	begin();
	want_alone(2);
	ASKS("EX2");
	CHECK(lock_at(2)->state == LK_ASKED && lock_at(2)->wanted == EX);
	lock_kick(e, lock_at(2));
	ASKS("");
	lock_granted(e, id_of(2), EX, false);
	CHECK(lock_at(2)->state == LK_EARLY && lock_at(2)->held == NOTHING);
	CHECK_EQ_INT(engine_lock_held(e, id_of(2)), NOTHING);
	lock_granted(e, id_of(2), EX, false); /* twice: that changes nothing */
	CHECK(lock_at(2)->state == LK_EARLY);
	ASKS("");
	CHECK(!job_busy(&job[2]) && !regions_writing(e));
}

TEST(what_is_granted_at_once_lets_the_job_in)
{
	uint64_t after = 0, id[4];
	uint32_t mode[4];

	begin();
	e->cfg.lock_backend = LOCK_TABLE;
	want_alone(1);
	lock_granted(e, id_of(1), EX, false);
	CHECK(lock_at(1)->state == LK_HELD && lock_at(1)->held == EX);
	CHECK(lock_at(1)->running == &job[1]);
	CHECK_EQ_U64(locks_held(e, &after, id, mode, 4), 1);
	CHECK(id[0] == id_of(1) && mode[0] == EX);
	CHECK_EQ_U64(locks_held(e, &after, id, mode, 4), 0);
	/* It goes on when it is called back, until it ends; then the lock is of no more use. */
	lock_called_back(e, id_of(1), PR);
	CHECK(lock_at(1)->called_back && lock_at(1)->held == EX);
	job_cancel(e, &job[1]);
	CHECK(!lock_at(1) && !regions_any(e));
}

TEST(who_is_refused_asks_again)
{
	begin();
	want_alone(0);
	ASKS("EX0");
	lock_granted(e, id_of(0), EX, true); /* as when memory is short there */
	CHECK(lock_at(0)->state == LK_ASKED);
	ASKS("EX0");
}

TEST(a_callback_is_heeded_if_what_is_wanted_does_not_go_with_what_is_held)
{
	static const enum lock_mode modes[] = {PR, CW, EX};

	for (uint32_t i = 0; i < 9; i++) {
		enum lock_mode has = modes[i / 3], wanted = modes[i % 3];

		begin();
		held(3, has);
		lock_called_back(e, id_of(3), wanted);
		CHECK((lock_at(3)->held == NOTHING) == (has != wanted || has == EX));
		CHECK(lock_at(3)->state == (lock_at(3)->held == NOTHING ? LK_IDLE : LK_HELD));
		ASKS(lock_at(3)->held == NOTHING ? "-3" : "");
		lock_called_back(e, id_of(3), EX); /* maybe stale */
		ASKS(lock_at(3)->held != NOTHING || (has == wanted && has != EX) ? "-3" : "");
	}
	begin();
	lock_called_back(e, id_of(0), EX); /* of nothing */
	ASKS("");
}

TEST(a_try_of_ex_stands_beside_what_is_held)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct region *r;
		struct lock *l;

		begin();
		l = held(0, CW);
		r = l->r;
		region_test_ex(e, r);
		ASKS("EX0?");
		CHECK(l->state == LK_TRIES && l->held == CW);
		region_test_ex(e, r); /* one at a time */
		lock_called_back(e, id_of(0), EX);
		ASKS("");
		lock_granted(e, id_of(0), EX, !i);
		if (i) {
			CHECK(l->state == LK_TRIED && l->held == CW && !r->ex_tested);
			continue;
		}
		/* Refused: another node is here, too; and what was called back is given up. */
		CHECK(r->shared && l->state == LK_IDLE);
		ASKS("-0");
	}
}

TEST(what_nobody_asked_for_is_given_back)
{
	begin();
	lock_granted(e, id_of(1), CW, false);
	ASKS("-1");
	held(2, EX);
	lock_granted(e, id_of(2), CW, false); /* it has as much */
	lock_granted(e, id_of(3), EX, true);
	ASKS("");
	held(3, PR);
	lock_granted(e, id_of(3), PR, false);
	ASKS("");
}

TEST(a_job_keeps_a_called_back_lock_for_as_long_as_it_has_waited)
{
	begin();
	e->cfg.lock_backend = LOCK_TABLE;
	want_alone(0);
	want_alone(1);
	e->now += 200000;
	lock_granted(e, id_of(1), EX, false);
	CHECK(lock_at(0)->state == LK_ASKED && lock_at(1)->running);
	e->now += 1000000;
	CHECK(!lock_yield(e, lock_at(1))); /* nobody has called it back */
	e->now -= 900000;
	lock_called_back(e, id_of(1), EX);
	CHECK(!lock_yield(e, lock_at(1)));
	e->now += 99999;
	CHECK(!lock_yield(e, lock_at(1)));
	e->now += 1;
	CHECK(lock_yield(e, lock_at(1)));
	CHECK(!lock_at(1)->running && lock_at(1)->state == LK_ASKED && lock_at(1)->wanted == EX);
}
