// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An array whose locks are those of an external manager: a node that has lost them gives up before
 * it hears the next message, which may ask about what others were granted (Settle).
 */
#include <errno.h>

#include "daemon/ports/lock.h"
#include "daemon/runtime/array_int.h"
#include "daemon/runtime/failpoint.h"
#include "tests/lib/fake.h"
#include "tests/lib/test.h"

static struct array *a;
static struct config conf;
static struct lockspace space;
static const struct lock_cb *lock_cb;
static struct {
	bool left;    /* the lock space, behind the handle's back */
	bool removes; /* the engine, when it is told to give up */
	unsigned asked, closed, ready;
	char heard[16]; /* by the engine: a letter for each event */
} fake;

/* ---- a lock manager ------------------------------------------------------------------------- */

static int manager_open(const struct lock_cfg *cfg, struct lockspace **out)
{
	lock_cb = cfg->cb;
	space.ops = lock_manager_find("dlm");
	*out = &space;
	return 0;
}

static bool manager_kept(struct lockspace *ls)
{
	CHECK(ls == &space && !fake.closed);
	fake.asked++;
	return !fake.left;
}

FAKE(static void manager_close(struct lockspace *ls, bool ended), fake.closed++)

FAKE(static void manager_request(struct lockspace *ls, uint64_t id, enum lock_mode mode, bool try),
     NOTHING)
FAKE(static void manager_release(struct lockspace *ls, uint64_t id), NOTHING)

static struct lock_ops manager = {
    .name = "dlm",
    .open = manager_open,
    .request = manager_request,
    .release = manager_release,
    .close = manager_close,
    .kept = manager_kept,
};
LOCK_REGISTER(manager)

/* ---- an engine ------------------------------------------------------------------------------ */

void engine_step(struct engine *e, const struct event *ev, struct outq *q)
{
	size_t n = strlen(fake.heard);

	CHECK(n + 1 < sizeof(fake.heard));
	fake.heard[n] = ev->type == EV_GIVE_UP ? 'G' : ev->type == EV_MSG ? 'M' : 'o';
	if (ev->type == EV_GIVE_UP && fake.removes) {
		q->v = calloc(1, sizeof(*q->v));
		q->v[0].type = OUT_REMOVED;
		q->count = 1;
	}
}

void engine_take(struct engine *e, const struct event *ev, struct outq *q)
{
	engine_step(e, ev, q);
}

FAKE(const struct geo *engine_geo(const struct engine *e), return NULL)
FAKE(uint64_t engine_deadline_us(const struct engine *e), return 0)
FAKE(uint32_t engine_slot(const struct engine *e), return UINT32_MAX)
FAKE(void engine_status(const struct engine *e, struct engine_status *st), NOTHING)

/* ---- what is not here ----------------------------------------------------------------------- */

FAKE(void life_ready(struct array *x), fake.ready++)
FAKE(void life_say_once(struct array *x, const char *why), NOTHING)
FAKE(void life_renew(struct array *x), NOTHING)
FAKE(void life_serving(struct array *x, bool yes), NOTHING)
FAKE(void life_fence(struct array *x, uint32_t node, uint64_t inc), NOTHING)
FAKE(void life_probe(struct array *x, const struct out *o), NOTHING)
FAKE(void life_record(struct array *x, const struct record *r), NOTHING)
FAKE(void array_waits(struct array *x, const char *format, ...), NOTHING)
FAKE(void array_fail(struct array *x, const char *format, ...), NOTHING)
FAKE(void engine_trace(struct engine *e, enum engine_trace trace), NOTHING)
FAKE(bool log_debugs(void), return false)
FAKE(void array_say(const struct array *x, int priority, const char *format, ...), NOTHING)
FAKE(void array_close(struct array *x), NOTHING)
FAKE(void status_map(struct array *x), NOTHING)
FAKE(void dev_io(struct array *x, const struct out *o), NOTHING)
FAKE(void dev_cancel(struct array *x, uint32_t dev), NOTHING)
FAKE(void dev_lease(struct array *x), NOTHING)
FAKE(void dev_add(struct array *x, const char *uri), NOTHING)
FAKE(void dev_settle(struct array *x), NOTHING)
FAKE(void disk_advance(struct array *x), NOTHING)
FAKE(void disk_removed(struct array *x), NOTHING)
FAKE(void disk_step(struct array *x, const struct event *ev), NOTHING)
FAKE(void failpoint_asked(void), NOTHING)
FAKE(void failpoint_event(const struct event *ev), NOTHING)
FAKE(void failpoint_out(const struct engine *e, const struct out *o), NOTHING)
FAKE(void failpoint_sent(const void *data, size_t bytes), NOTHING)
FAKE(void mailbox_post(struct mailbox *m, struct task *t, void (*run)(struct task *t)), NOTHING)
FAKE(uint64_t loop_now_us(const struct loop *l), return 1)
FAKE(uint64_t loop_clock_us(struct loop *l), return 1)
FAKE(void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_us), NOTHING)
FAKE(void loop_timer_clear(struct loop *l, struct loop_timer *t), NOTHING)

/* ---- tests ---------------------------------------------------------------------------------- */

static void begin(void)
{
	memset(&fake, 0, sizeof(fake));
	a = calloc(1, sizeof(*a));
	strcpy(conf.cluster, "c");
	a->env.conf = &conf;
	a->live.options.dlm = true;
	a->e = (struct engine *)(void *)a; /* is given to fakes only */
	a->phase = ARRAY_PHASE_RUN;
	a->msg_last = &a->msg_first;
	locks_open(a);
	CHECK(a->locks == &space);
}

static void end(void)
{
	pump_free(a);
	free(a);
}

static void push(enum ev_type type)
{
	struct event ev = {.type = type};

	if (type == EV_MSG)
		ev.msg.data = malloc(1);
	pump_push(a, &ev);
}

TEST(messages_are_heard_while_the_locks_are_kept)
{
	begin();
	lock_cb->up(a);
	CHECK_EQ_INT(fake.ready, 1);
	push(EV_MSG);
	push(EV_TICK);
	push(EV_MSG);
	CHECK(pump_turn(a));
	CHECK_EQ_STR(fake.heard, "MoM");
	CHECK_EQ_INT(fake.asked, 2);
	end();
}

TEST(who_has_lost_them_gives_up_before_the_next_message)
{
	begin();
	lock_cb->up(a);
	push(EV_MSG);
	pump_turn(a);
	push(EV_TICK);
	push(EV_MSG); /* comes in before, and is heard after */
	fake.left = true;
	pump_turn(a);
	CHECK_EQ_STR(fake.heard, "MoGM");
	lock_cb->lost(a, -ENOLCK, "somebody made it leave");
	CHECK_EQ_STR(a->locks_why, "somebody made it leave");
	pump_turn(a);
	CHECK_EQ_STR(fake.heard, "MoGMG");
	end();
}

TEST(a_closed_handle_is_not_asked)
{
	begin();
	lock_cb->up(a);
	fake.left = fake.removes = true;
	push(EV_MSG);
	push(EV_MSG);
	pump_turn(a);
	CHECK_EQ_STR(fake.heard, "GMM");
	CHECK_EQ_INT(fake.closed, 1);
	CHECK_EQ_INT(fake.asked, 1);
	end();
}

TEST(nor_is_one_that_is_not_there_yet)
{
	begin();
	fake.left = true;
	push(EV_MSG);
	pump_turn(a);
	CHECK_EQ_STR(fake.heard, "M");
	CHECK_EQ_INT(fake.asked, 0);
	end();
}
