// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the engine says about this node's own incarnation, and what the array does about it. The
 * engine is the test: it answers each event with what was put into `says`.
 */
#include "daemon/runtime/array_int.h"
#include "daemon/runtime/failpoint.h"
#include "tests/lib/fake.h"
#include "tests/lib/test.h"

static struct array *a;
static struct config conf;
static struct {
	enum out_type says;
	bool speaks;
	unsigned renews, closes;
	char order[64]; /* of events: t taken, s stepped */
	uint32_t slot;
} fake;

void engine_step(struct engine *e, const struct event *ev, struct outq *q)
{
	(void)e;
	if (strlen(fake.order) < sizeof(fake.order) - 1)
		fake.order[strlen(fake.order)] = 's';
	if (ev->type == EV_RESTART)
		fake.slot = UINT32_MAX;
	if (!fake.speaks)
		return;
	q->v[q->count++] = (struct out){.type = fake.says};
	fake.speaks = false;
}

void engine_take(struct engine *e, const struct event *ev, struct outq *q)
{
	(void)e;
	(void)q;
	CHECK(ev->type == EV_IO || ev->type == EV_DEV_DONE);
	if (strlen(fake.order) < sizeof(fake.order) - 1)
		fake.order[strlen(fake.order)] = 't';
}

FAKE(void engine_status(const struct engine *e, struct engine_status *st),
     memset(st, 0, sizeof(*st)))
FAKE(const struct geo *engine_geo(const struct engine *e), return NULL)
FAKE(uint32_t engine_slot(const struct engine *e), return fake.slot)
FAKE(uint64_t engine_deadline_us(const struct engine *e), return 1)
FAKE(void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t us), t->deadline_us = us)
FAKE(uint64_t loop_now_us(const struct loop *l), return 77)
FAKE(uint64_t loop_clock_us(struct loop *l), return 77)
FAKE(void failpoint_event(const struct event *ev), NOTHING)
FAKE(void failpoint_out(const struct engine *e, const struct out *o), NOTHING)
FAKE(void failpoint_sent(const void *data, size_t bytes), NOTHING)
FAKE(void failpoint_asked(void), NOTHING)
FAKE(void engine_trace(struct engine *e, enum engine_trace trace), NOTHING)
FAKE(bool log_debugs(void), return false)
FAKE(void array_say(const struct array *x, int priority, const char *format, ...), NOTHING)
FAKE(void array_fail(struct array *x, const char *format, ...), CHECK_MSG(false, "%s", format))
FAKE(void array_close(struct array *x), fake.closes++; x->phase = ARRAY_PHASE_CLOSE)
FAKE(void life_renew(struct array *x), fake.renews++)
FAKE(void life_probe(struct array *x, const struct out *o), NOTHING)
FAKE(void life_record(struct array *x, const struct record *r), NOTHING)
FAKE(void life_fence(struct array *x, uint32_t node, uint64_t inc), NOTHING)
FAKE(void life_serving(struct array *x, bool yes), NOTHING)
FAKE(bool locks_kept(const struct array *x), return true)
FAKE(void locks_close(struct array *x, bool ended), NOTHING)
FAKE(void disk_step(struct array *x, const struct event *ev), NOTHING)
FAKE(void disk_advance(struct array *x), NOTHING)
FAKE(void disk_removed(struct array *x), NOTHING)
FAKE(void dev_io(struct array *x, const struct out *o), NOTHING)
FAKE(void dev_cancel(struct array *x, uint32_t dev), NOTHING)
FAKE(void dev_lease(struct array *x), NOTHING)
FAKE(void dev_settle(struct array *x), NOTHING)
FAKE(void dev_add(struct array *x, const char *uri), NOTHING)
FAKE(void status_map(struct array *x), NOTHING)

static void begin(enum array_phase phase)
{
	memset(&fake, 0, sizeof(fake));
	fake.slot = UINT32_MAX;
	a = calloc(1, sizeof(*a));
	CHECK(a);
	a->env.conf = &conf;
	a->e = (struct engine *)(void *)a; /* nobody here looks into it */
	a->phase = phase;
	a->q.v = calloc(4, sizeof(*a->q.v));
}

static void end(void)
{
	free(a->queue);
	free(a->q.v);
	free(a);
}

static void says(enum out_type type)
{
	struct event ev = {.type = EV_TICK};

	fake.says = type;
	fake.speaks = true;
	pump_push(a, &ev);
	pump_turn(a);
}

static void turn(void)
{
	struct event ev = {.type = EV_TICK};

	pump_push(a, &ev);
	pump_turn(a);
}

TEST(who_is_removed_begins_a_new_life_when_nothing_is_under_way)
{
	begin(ARRAY_PHASE_RUN);
	a->under_way = 1;
	says(OUT_REMOVED);
	CHECK_EQ_U64(fake.renews, 0);
	a->under_way = 0;
	turn();
	turn();
	CHECK_EQ_U64(fake.renews, 1);
	CHECK_EQ_U64(fake.closes, 0);
	end();
}

/* A new incarnation would know nothing of the stop. This one may have been fenced: that is no clean
 * end.
 */
TEST(who_is_removed_as_it_stops_ends_and_begins_no_other_life)
{
	begin(ARRAY_PHASE_STOP);
	a->under_way = 1;
	says(OUT_REMOVED);
	CHECK_EQ_U64(fake.closes, 0);
	a->under_way = 0;
	turn();
	CHECK_EQ_U64(fake.closes, 1);
	CHECK_EQ_U64(fake.renews, 0);
	CHECK(!a->stopped_cleanly);
	end();
}

TEST(who_has_left_ends_cleanly_when_nothing_is_under_way)
{
	begin(ARRAY_PHASE_STOP);
	a->under_way = 1;
	says(OUT_STOPPED);
	CHECK_EQ_U64(fake.closes, 0);
	a->under_way = 0;
	turn();
	CHECK_EQ_U64(fake.closes, 1);
	CHECK(a->stopped_cleanly);
	end();
}

/* What was in the queue before it is still the old one's, which had one. Else the new incarnation
 * would vouch for that at its end (life_end). */
TEST(a_new_life_has_had_no_slot)
{
	begin(ARRAY_PHASE_RUN);
	fake.slot = 3;
	turn();
	CHECK(a->had_slot);
	a->had_slot = false; /* life_ready */
	pump_push(a, &(struct event){.type = EV_TICK});
	pump_push(a, &(struct event){.type = EV_RESTART});
	turn();
	CHECK(!a->had_slot);
	fake.slot = 4;
	turn();
	CHECK(a->had_slot);
	end();
}

/* What can be done next is looked at once for all of the data path that has come; other events come
 * each by itself, and in their order. */
TEST(events_of_the_data_path_are_taken_together)
{
	static const enum ev_type types[] = {EV_IO,       EV_DEV_DONE, EV_IO, EV_TICK,
					     EV_DEV_DONE, EV_VIEW,     EV_IO, EV_IO};

	begin(ARRAY_PHASE_RUN);
	for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		pump_push(a, &(struct event){.type = types[i]});
	pump_turn(a);
	CHECK_MSG(!strcmp(fake.order, "ttssssts"), "%s", fake.order);
	CHECK_EQ_U64(a->q_count, 0);
	end();
}
