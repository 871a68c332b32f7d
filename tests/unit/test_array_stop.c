// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When an array's consumers hear of its end (R7, R9), and when the end comes. The engine thread is
 * array.c's own, but it sleeps in its loop from begin() to end(): what it would do there the test
 * does, one thing after another, and the time is what the test says.
 */
#include <errno.h>
#include <semaphore.h>

#include "daemon/base/units.h"
#include "daemon/runtime/array_int.h"
#include "tests/lib/fake.h"
#include "tests/lib/test.h"

#define TELL_MS 200u
#define STOP_MS 300u
#define HEARD_MS (2 * TELL_MS)
#define LEAVE_MS 5500u /* array.c's */

static struct array *a;
static struct mailbox main_box;
static sem_t mail;
static const struct group_cb *group_cb;
static struct front front;
static struct group group;
static struct {
	uint32_t clients, inflight, disk_inflight, opens; /* what the front-ends say */
	int disk_err, leave_err;
	unsigned resets, holds, disk_holds, leaves, drains, ends;
	unsigned disk_stops[ARRAY_STOP_FORCED + 1];
	uint32_t kept;
	bool ended;
} fake;

/* ---- a loop --------------------------------------------------------------------------------- */

struct loop {
	uint64_t now_us;
	bool stopped;
	struct loop_timer *timers;
	sem_t runs, over;
};

int loop_new(struct loop **out)
{
	struct loop *l = *out = calloc(1, sizeof(*l));

	l->now_us = 1000000;
	return sem_init(&l->runs, 0, 0) | sem_init(&l->over, 0, 0);
}

int loop_run(struct loop *l)
{
	sem_post(&l->runs);
	return sem_wait(&l->over); /* the thread has all signals blocked */
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	struct loop_timer **at = &l->timers;

	while (*at && *at != t)
		at = &(*at)->next;
	if (*at)
		*at = t->next;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t deadline_us)
{
	loop_timer_clear(l, t);
	t->deadline_us = deadline_us;
	t->next = l->timers;
	l->timers = t;
}

FAKE(void loop_free(struct loop *l), free(l))
FAKE(void loop_stop(struct loop *l), l->stopped = true)
FAKE(uint64_t loop_now_us(const struct loop *l), return l->now_us)
FAKE(uint64_t loop_clock_us(struct loop *l), return l->now_us)
FAKE(int loop_wake_add(struct loop *l, struct loop_wake *w), return 0)
FAKE(void loop_wake_del(struct loop *l, struct loop_wake *w), NOTHING)
FAKE(void loop_wake_kick(const struct loop_wake *w), NOTHING)
FAKE(void loop_hook_add(struct loop *l, struct loop_hook *h), NOTHING)
FAKE(void loop_hook_del(struct loop *l, struct loop_hook *h), NOTHING)

/* ---- what is not here ----------------------------------------------------------------------- */

static int front_open(const struct front_cfg *cfg, struct front **out, char *why)
{
	*out = &front;
	return 0;
}

static void stats(const struct front *f, struct front_stats *st)
{
	st->clients = fake.clients;
	st->inflight = fake.inflight;
}

FAKE(static void reset(struct front *f), fake.resets++)
FAKE(static void hold(struct front *f), fake.holds++)
FAKE(static void shut(struct front *f), NOTHING)

static const struct front_ops front_ops = {
    .open = front_open, .reset = reset, .hold = hold, .close = shut, .stats = stats};
static struct front front = {&front_ops};

FAKE(const struct front_ops *front_find(const char *name), return &front_ops)

int disk_stop(struct array *x, enum array_stop_how how, char why[FRONT_WHY_BYTES])
{
	why[0] = '\0';
	fake.disk_stops[how]++;
	return how == ARRAY_STOP_LEAVE ? 0 : fake.disk_err;
}

int group_open(const char *adapter, const struct group_cfg *cfg, struct group **out)
{
	group_cb = cfg->cb;
	*out = &group;
	return 0;
}

FAKE(uint32_t config_heard_ms(const struct config *c), return HEARD_MS)
FAKE(static int join(struct group *g, const char *name), return 0)
FAKE(static int leave(struct group *g), fake.leaves++; return fake.leave_err)
FAKE(static void let_go(struct group *g), NOTHING)

static const struct group_ops group_ops = {.join = join, .leave = leave, .close = let_go};
static struct group group = {&group_ops};

FAKE(uint32_t disk_hold(struct array *x), fake.disk_holds++; return fake.disk_inflight)
FAKE(uint32_t disk_opens(const struct array *x), return fake.opens)
FAKE(void disk_advance(struct array *x), NOTHING)
FAKE(void disk_close(struct array *x), NOTHING)
FAKE(void disk_detach_fired(void *x), NOTHING)
FAKE(void pump_tick(struct array *x), NOTHING)
FAKE(void pump_writable(struct array *x), NOTHING)
FAKE(void pump_drop_messages(struct array *x), NOTHING)
FAKE(void pump_free(struct array *x), NOTHING)
FAKE(bool pump_turn(void *x), return false)
FAKE(void pump_submit(void *x, const struct front_req *req), NOTHING)
FAKE(void pump_push(struct array *x, const struct event *ev),
     fake.drains += ev->type == EV_ADMIN && ev->admin.cmd == ADMIN_STOP)
FAKE(void dev_open_all(struct array *x), NOTHING)
FAKE(bool dev_open_added(struct array *x, const char *uri), return true)
FAKE(void dev_close_all(struct array *x), NOTHING)
FAKE(void alive_close(struct array *x), NOTHING)
FAKE(void dev_settle(struct array *x), NOTHING)
FAKE(void dev_learn(struct array *x, const struct store_array *desc), NOTHING)
FAKE(void dev_free(struct array *x), NOTHING)
FAKE(void life_load(struct array *x), array_run(x))
FAKE(void life_end(struct array *x), fake.ends++; array_close_check(x))
FAKE(void life_ended(struct array *x), NOTHING)
FAKE(void life_clients(struct array *x), NOTHING)
FAKE(void life_serving(struct array *x, bool yes), NOTHING)
FAKE(bool locks_external(const struct array *x), return false)
FAKE(void locks_again(void *x), NOTHING)
FAKE(void locks_close(struct array *x, bool ended), NOTHING)
FAKE(void status_watch(struct array *x), NOTHING)
FAKE(void options_apply(const struct options *o, struct tunables *t), NOTHING)
FAKE(void options_tune(struct options *o, const struct options *from), NOTHING)
FAKE(void engine_cfg_init(struct engine_cfg *cfg), memset(cfg, 0, sizeof(*cfg)))
FAKE(struct engine *engine_new(const struct engine_cfg *cfg), return (void *)&fake)
FAKE(void engine_free(struct engine *e), NOTHING)
FAKE(void engine_tune(struct engine *e, const struct tunables *t), NOTHING)
FAKE(char *uuid_format(char text[UUID_TEXT_BYTES], const uint8_t uuid[DDR_UUID_BYTES]), return text)
FAKE(void say(int priority, const char *format, ...), NOTHING)

/* ---- an array ------------------------------------------------------------------------------- */

FAKE(static void kick(void *arg), sem_post(&mail))
FAKE(static void kept(struct array *x, uint32_t clients), fake.kept = clients)
FAKE(static void ended(struct array *x, const char *why), fake.ended = true)

static const struct config conf = {
    .run_dir = "/tmp",
    .fence = FENCE_NONE,
    .heartbeat_limit_ms = TELL_MS,
    .evict_ms = 2 * TELL_MS,
    .stop_ms = STOP_MS,
};

static void begin(void)
{
	static const struct array_env env = {
	    .conf = &conf, .main = &main_box, .kept = kept, .ended = ended};
	static const struct store_array desc = {.name = "vol0"};
	static const struct group_self self = {.node = 1};

	memset(&fake, 0, sizeof(fake));
	sem_init(&mail, 0, 0);
	mailbox_init(&main_box, kick, NULL);
	a = array_new(&env, &desc);
	CHECK_EQ_INT(array_start(a, false), 0);
	sem_wait(&a->loop->runs);
	group_cb->up(a, &self);
	CHECK(a->phase == ARRAY_PHASE_RUN && a->joined);
}

static void end(void)
{
	CHECK(a->loop->stopped);
	sem_post(&a->loop->over);
	while (!fake.ended) {
		sem_wait(&mail);
		mailbox_run(&main_box);
	}
	array_free(a);
}

/* Timers that are due by then fire, each at its time. */
static void pass(uint32_t ms)
{
	struct loop *l = a->loop;
	uint64_t until_us = l->now_us + ms * 1000ull;

	while (!l->stopped) {
		struct loop_timer *first = NULL;

		for (struct loop_timer *t = l->timers; t; t = t->next) {
			if (t->deadline_us <= (first ? first->deadline_us : until_us))
				first = t;
		}
		if (!first)
			break;
		if (l->now_us < first->deadline_us)
			l->now_us = first->deadline_us;
		loop_timer_clear(l, first);
		first->fired(first->arg);
	}
	l->now_us = until_us;
	mailbox_run(&main_box);
}

static void stop(enum array_stop_how how)
{
	array_stop(a, how);
	mailbox_run(&a->box);
	mailbox_run(&main_box);
}

static void fail(void)
{
	array_fail(a, "it can't go on");
	CHECK(a->phase == ARRAY_PHASE_CLOSE);
	CHECK(fake.holds && fake.disk_stops[ARRAY_STOP_LEAVE] == 1);
}

/* As runtime/pump.c has it, at OUT_STOPPED. */
static void drained(void)
{
	CHECK(a->phase == ARRAY_PHASE_STOP);
	a->stopped_cleanly = true;
	array_close(a);
}

static void untold(void)
{
	CHECK_EQ_U64(fake.resets, 0);
	CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_FORCED], 0);
	CHECK(!a->loop->stopped);
}

/* Neither earlier nor later; then nothing else is waited for. */
static void told_in(uint32_t ms, bool revoked)
{
	CHECK(a->phase == ARRAY_PHASE_CLOSE);
	array_close_check(a); /* as whoever lets go of something last */
	untold();
	if (ms) {
		pass(ms - 1);
		array_close_check(a);
		untold();
	}
	pass(ms ? 1 : 0);
	CHECK_EQ_U64(fake.resets, 1);
	CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_FORCED], revoked);
	CHECK_EQ_U64(fake.ends, a->stopped_cleanly);
	end();
}

/* ---- ends ----------------------------------------------------------------------------------- */

TEST(who_fails_tells_when_the_others_have_heard)
{
	begin();
	fail();
	CHECK_EQ_U64(fake.leaves, 1);
	pass(LEAVE_MS - 1);
	untold();
	group_cb->left(a);
	told_in(TELL_MS, false);
}

TEST(a_group_that_does_not_confirm_counts_as_left_after_its_time)
{
	begin();
	fail();
	pass(LEAVE_MS - 1);
	CHECK(a->joined);
	pass(1);
	CHECK(!a->joined);
	told_in(TELL_MS, false);
}

TEST(a_group_that_is_lost_counts_as_left)
{
	begin();
	fail();
	pass(1000);
	group_cb->lost(a, -EIO, "it went away");
	told_in(TELL_MS, false);
	begin(); /* what it says after that puts the end off no further */
	fail();
	group_cb->lost(a, -EIO, "it went away");
	pass(TELL_MS / 2);
	group_cb->lost(a, -EIO, "it went away again");
	told_in(TELL_MS / 2, false);
	begin(); /* it was lost before */
	group_cb->lost(a, -EIO, "it went away");
	pass(1000);
	fail();
	told_in(TELL_MS, false);
	begin(); /* or the adapter knows of no group to leave */
	fake.leave_err = -ENOTCONN;
	fail();
	told_in(TELL_MS, false);
}

TEST(who_has_drained_tells_when_the_group_is_left)
{
	begin();
	stop(ARRAY_STOP_LEAVE);
	CHECK_EQ_U64(fake.drains, 1);
	drained();
	pass(LEAVE_MS - 1);
	untold();
	group_cb->left(a);
	told_in(0, false);
}

TEST(who_does_not_drain_in_time_tells_as_who_fails)
{
	begin();
	stop(ARRAY_STOP_LEAVE);
	pass(STOP_MS - 1);
	CHECK(a->phase == ARRAY_PHASE_STOP);
	pass(1);
	CHECK(a->phase == ARRAY_PHASE_CLOSE);
	pass(1000);
	untold();
	group_cb->left(a);
	told_in(TELL_MS, false);
}

TEST(the_end_waits_for_what_takes_longer_than_the_telling)
{
	for (int i = 0; i < 3; i++) {
		uint32_t *of;

		begin();
		of = i == 0 ? &a->devs_open : i == 1 ? &a->under_way : &a->tasks;
		*of = 1;
		fail();
		group_cb->left(a);
		pass(TELL_MS);
		CHECK_EQ_U64(fake.resets, 1);
		group_cb->lost(a, -EIO, "it went away"); /* is nothing new */
		pass(2 * TELL_MS);
		CHECK(!a->loop->stopped);
		*of = 0;
		array_close_check(a);
		CHECK_EQ_U64(fake.resets, 1);
		end();
	}
}

/* ---- stops by force ------------------------------------------------------------------------- */

TEST(a_forced_stop_of_one_that_failed_tells_no_earlier_but_revokes)
{
	begin();
	fail();
	stop(ARRAY_STOP_FORCED);
	untold();
	pass(1000);
	untold();
	group_cb->left(a);
	told_in(TELL_MS, true);
	begin(); /* or when the group is left */
	fail();
	group_cb->left(a);
	pass(TELL_MS / 2);
	stop(ARRAY_STOP_FORCED);
	told_in(TELL_MS / 2, true);
}

TEST(a_forced_stop_of_one_that_drains_tells_no_earlier_but_revokes)
{
	begin();
	stop(ARRAY_STOP_LEAVE);
	pass(STOP_MS / 2);
	stop(ARRAY_STOP_FORCED);
	untold();
	pass(STOP_MS / 2);
	CHECK(a->phase == ARRAY_PHASE_CLOSE);
	untold();
	group_cb->left(a);
	told_in(TELL_MS, true);
	begin(); /* or it drains in time */
	stop(ARRAY_STOP_LEAVE);
	stop(ARRAY_STOP_FORCED);
	pass(STOP_MS / 2);
	drained();
	group_cb->left(a);
	told_in(0, true);
}

TEST(a_forced_stop_waits_for_what_is_under_way)
{
	for (int disk = 0; disk < 2; disk++) {
		begin();
		fake.inflight = disk ? 0 : 3;
		fake.disk_inflight = disk ? 3 : 0;
		stop(ARRAY_STOP_FORCED);
		CHECK(fake.holds && fake.disk_holds);
		pass(STOP_MS - DISK_AGAIN_MS);
		CHECK(a->phase == ARRAY_PHASE_RUN);
		untold();
		fake.inflight = fake.disk_inflight = 0;
		pass(DISK_AGAIN_MS);
		CHECK(a->phase == ARRAY_PHASE_STOP);
		CHECK(fake.resets == 1 && fake.drains == 1);
		CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_FORCED], 1);
		drained();
		group_cb->left(a);
		pass(0);
		end();
	}
}

/* Not one step of the engine that could send it again. */
TEST(what_a_forced_stop_can_not_wait_for_is_dropped_before_it_is_told)
{
	begin();
	fake.inflight = 3;
	stop(ARRAY_STOP_FORCED);
	pass(STOP_MS);
	CHECK(a->phase == ARRAY_PHASE_RUN);
	pass(DISK_AGAIN_MS);
	CHECK_EQ_U64(fake.drains, 0);
	group_cb->left(a);
	told_in(TELL_MS, true);
}

TEST(a_stop_that_waits_leaves_the_telling_to_who_fails)
{
	begin();
	fake.inflight = 3;
	stop(ARRAY_STOP_FORCED);
	fail();
	fake.inflight = 0;
	pass(DISK_AGAIN_MS);
	untold();
	group_cb->left(a);
	told_in(TELL_MS, true);
	begin();
	fake.disk_err = -EAGAIN;
	stop(ARRAY_STOP_ASKED);
	fail();
	fake.disk_err = 0;
	pass(DISK_AGAIN_MS);
	CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_ASKED], 1);
	group_cb->left(a);
	told_in(TELL_MS, false);
}

/* ---- stops that were asked for -------------------------------------------------------------- */

static void refused(uint32_t clients)
{
	CHECK_EQ_U64(fake.kept, clients);
	CHECK(a->phase == ARRAY_PHASE_RUN && !fake.holds && !fake.drains);
	untold();
	fake.kept = 0;
}

TEST(who_only_asked_is_refused_with_the_number_of_clients)
{
	begin();
	fake.clients = 2;
	stop(ARRAY_STOP_ASKED);
	CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_ASKED], 0); /* it can't be taken back */
	refused(2);
	fake.clients = 0;
	fake.disk_err = -EBUSY;
	fake.opens = 3;
	stop(ARRAY_STOP_ASKED);
	refused(3);
	fake.opens = 0; /* the kernel knows of one that we don't */
	stop(ARRAY_STOP_ASKED);
	refused(1);
	fake.disk_err = -EAGAIN;
	stop(ARRAY_STOP_ASKED);
	pass(DISK_LOOK_MS);
	refused(0);
	pass(DISK_AGAIN_MS);
	refused(1);
	fake.disk_err = 0;
	stop(ARRAY_STOP_ASKED);
	CHECK(fake.drains == 1 && fake.resets == 1 && !fake.kept);
	drained();
	group_cb->left(a);
	pass(0);
	end();
}

TEST(who_fails_refuses_no_stop)
{
	begin();
	fake.opens = 1;
	fail();
	fake.disk_err = -EBUSY;
	stop(ARRAY_STOP_ASKED);
	CHECK_EQ_U64(fake.kept, 0);
	fake.disk_err = 0;
	group_cb->left(a);
	told_in(TELL_MS, false);
}

TEST(a_forced_stop_overtakes_one_that_was_asked_for)
{
	begin();
	fake.clients = 2;
	array_stop(a, ARRAY_STOP_ASKED);
	mailbox_run(&a->box);
	stop(ARRAY_STOP_FORCED); /* before the refusal is heard */
	CHECK_EQ_U64(fake.kept, 0);
	CHECK(a->phase == ARRAY_PHASE_STOP && fake.resets == 1);
	drained();
	group_cb->left(a);
	pass(0);
	end();
	begin();
	fake.disk_err = -EAGAIN;
	stop(ARRAY_STOP_ASKED);
	fake.inflight = 3;
	stop(ARRAY_STOP_FORCED); /* while that waits */
	fake.disk_err = 0;
	pass(STOP_MS);
	CHECK(a->phase == ARRAY_PHASE_RUN);
	CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_ASKED], 1);
	pass(DISK_AGAIN_MS);
	group_cb->left(a);
	told_in(TELL_MS, true);
}

/* An earlier daemon's device is open, and not all other nodes may know of its end. */
TEST(a_forced_stop_waits_until_all_know_of_an_earlier_end)
{
	begin();
	fake.disk_err = -EAGAIN;
	stop(ARRAY_STOP_FORCED);
	pass(DISK_LOOK_MS + HEARD_MS - DISK_AGAIN_MS);
	CHECK(a->phase == ARRAY_PHASE_RUN && fake.disk_stops[ARRAY_STOP_FORCED] > 1);
	fake.inflight = 1; /* served meanwhile: it has its whole time to drain */
	pass(DISK_AGAIN_MS);
	pass(STOP_MS - DISK_AGAIN_MS);
	CHECK(a->phase == ARRAY_PHASE_RUN);
	fake.inflight = 0;
	fake.disk_err = 0;
	pass(DISK_AGAIN_MS);
	CHECK(a->phase == ARRAY_PHASE_STOP && fake.drains == 1);
	drained();
	group_cb->left(a);
	pass(0);
	end();
}

/* Its consumers have been told, but members take their time; or the thread has ended already. */
TEST(a_forced_stop_that_comes_after_the_telling_revokes_at_once)
{
	for (int ends = 0; ends < 2; ends++) {
		begin();
		a->devs_open = !ends;
		fail();
		group_cb->left(a);
		pass(TELL_MS);
		CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_FORCED], 0);
		array_stop(a, ARRAY_STOP_FORCED);
		if (!ends)
			mailbox_run(&a->box);
		a->devs_open = 0;
		array_close_check(a);
		CHECK(a->loop->stopped);
		sem_post(&a->loop->over);
		while (!fake.ended) {
			sem_wait(&mail);
			mailbox_run(&main_box);
		}
		CHECK_EQ_U64(fake.disk_stops[ARRAY_STOP_FORCED], 1);
		array_free(a);
	}
}
