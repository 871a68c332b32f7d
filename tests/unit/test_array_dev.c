// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When the engine hears of a connection. Where this node's fence is only a wait, a machine that was
 * paused may take its last heartbeat for fresh: nothing is sent on a connection before a
 * heartbeat came back that is younger.
 */
#include <errno.h>

#include "daemon/runtime/array_int.h"
#include "tests/lib/fake.h"
#include "tests/lib/test.h"

#define LIMIT_MS 500u

static struct array *a;
static struct config conf;
static const struct member_cb *cb;
static void *cb_arg;
static struct {
	uint64_t now_us, heartbeat_us, lease_us, use_until_us;
	unsigned ups, downs;
	uint64_t bytes;
} fake;

int member_open(const char *uri, struct loop *loop, const struct member_cfg *cfg,
		const struct member_cb *callbacks, void *arg, struct member **m, const char **why)
{
	static struct member one;

	(void)uri, (void)loop, (void)cfg, (void)why;
	cb = callbacks;
	cb_arg = arg;
	*m = &one;
	return 0;
}

void pump_push(struct array *x, const struct event *ev)
{
	(void)x;
	fake.ups += ev->type == EV_DEV_UP;
	fake.downs += ev->type == EV_DEV_DOWN;
	if (ev->type == EV_DEV_UP)
		fake.bytes = ev->dev.bytes;
}

FAKE(void member_lease(struct member *m, uint64_t until_us), fake.lease_us = until_us)
FAKE(uint64_t loop_now_us(const struct loop *l), return fake.now_us)
FAKE(uint64_t engine_heartbeat_us(const struct engine *e), return fake.heartbeat_us)
FAKE(uint64_t engine_heard_us(const struct engine *e), return fake.heartbeat_us)
FAKE(uint64_t engine_use_until_us(const struct engine *e), return fake.use_until_us)
FAKE(void member_cfg_init(struct member_cfg *cfg), NOTHING)
FAKE(void member_submit(struct member *m, struct member_req *req), NOTHING)
FAKE(void member_cancel(struct member *m), NOTHING)
FAKE(void member_close(struct member *m), NOTHING)
FAKE(void array_close_check(struct array *x), NOTHING)
FAKE(void array_say(const struct array *x, int priority, const char *format, ...), NOTHING)
FAKE(void life_changed(struct array *x, uint32_t found, uint32_t added), NOTHING)
FAKE(void life_adding(struct array *x, const char *uri), NOTHING)
FAKE(void life_not_added(struct array *x, const char *uri), NOTHING)
FAKE(uint8_t engine_member_of_dev(const struct engine *e, uint32_t dev), return 0xff)
FAKE(bool engine_dev_busy(const struct engine *e, uint32_t dev), return false)
FAKE(const char *engine_dev_foreign(const struct engine *e, uint32_t dev), return NULL)
FAKE(const char *engine_dev_misfit(const struct engine *e, uint32_t dev), return NULL)
FAKE(bool engine_dev_unfit(const struct engine *e, uint32_t dev), return false)
FAKE(bool store_uri_ok(const char *uri), return true)
FAKE(bool engine_dev_older(const struct engine *e, uint32_t dev), return false)
FAKE(bool engine_dev_lands(const struct engine *e, uint32_t dev), return false)
FAKE(const struct map *engine_map(const struct engine *e), return NULL)
FAKE(void engine_status(const struct engine *e, struct engine_status *st), NOTHING)

static void begin(uint32_t lease_ms)
{
	memset(&fake, 0, sizeof(fake));
	fake.now_us = 10000000;
	fake.heartbeat_us = fake.now_us - 100000;
	strcpy(conf.cluster, "corosync");
	a = calloc(1, sizeof(*a));
	CHECK(a);
	a->env.conf = &conf;
	a->e = (struct engine *)(void *)a;
	a->phase = ARRAY_PHASE_RUN;
	a->lease_ms = lease_ms;
	a->tell_ms = LIMIT_MS;
	a->live.count = 1;
	strcpy(a->live.uri[0], "nbd://s1");
	dev_open_all(a);
	CHECK(cb && cb_arg == &a->dev[0]);
}

static void end(void)
{
	CHECK_EQ_U64(a->devs_held, 0);
	free(a);
}

static void up(void)
{
	struct member_info info = {.size_bytes = 4096};

	cb->up(cb_arg, &info);
}

/* As the pump does in each step. */
static void step(uint64_t us)
{
	fake.now_us += us;
	dev_lease(a);
}

TEST(without_a_lease_a_connection_is_there_at_once)
{
	begin(0);
	up();
	CHECK(fake.ups == 1 && a->dev[0].up && fake.bytes == 4096);
	end();
}

TEST(with_one_it_waits_for_a_heartbeat_that_was_sent_after_it)
{
	begin(5000);
	up();
	step(0);
	CHECK(!fake.ups && !a->dev[0].up);
	fake.heartbeat_us = fake.now_us; /* was sent before it came up */
	step(200000);
	CHECK(!fake.ups);
	fake.heartbeat_us = 10000001;
	step(0);
	CHECK(fake.ups == 1 && a->dev[0].up && fake.bytes == 4096);
	step(1000000);
	CHECK_EQ_U64(fake.ups, 1);
	cb->down(cb_arg, -ECONNRESET, "cut");
	CHECK(fake.downs == 1 && !a->dev[0].up);
	up(); /* the next one waits as well */
	step(0);
	CHECK_EQ_U64(fake.ups, 1);
	fake.heartbeat_us = fake.now_us + 1;
	step(1);
	CHECK_EQ_U64(fake.ups, 2);
	end();
}

/* The gate is shut by then, or open by a younger heartbeat. */
TEST(it_waits_for_no_longer_than_a_heartbeat_counts)
{
	begin(5000);
	fake.heartbeat_us = 0; /* not in the group yet */
	up();
	step(LIMIT_MS * 1000 - 1);
	CHECK(!fake.ups);
	step(1);
	CHECK_EQ_U64(fake.ups, 1);
	end();
}

TEST(one_that_breaks_meanwhile_was_never_there)
{
	begin(5000);
	up();
	step(1000);
	cb->down(cb_arg, -ECONNRESET, "cut");
	fake.heartbeat_us = fake.now_us;
	step(LIMIT_MS * 1000);
	CHECK(!fake.ups && !fake.downs);
	up();
	cb->closed(cb_arg);
	step(LIMIT_MS * 1000);
	CHECK(!fake.ups && !fake.downs);
	end();
}

/* Nobody fences it: its lease of the array is all that ends what it has not sent. */
TEST(a_daemon_alone_writes_as_long_as_its_sign_is_on_the_members)
{
	begin(0);
	a->alone = true;
	up();
	CHECK_EQ_U64(fake.ups, 1); /* it waits for no heartbeat */
	fake.use_until_us = fake.now_us + 3000000;
	step(1000);
	CHECK_EQ_U64(fake.lease_us, fake.use_until_us);
	fake.use_until_us += 1000000; /* renewed */
	step(1000);
	CHECK_EQ_U64(fake.lease_us, fake.use_until_us);
	fake.use_until_us = 0; /* it has to look first */
	step(1000);
	CHECK_EQ_U64(fake.lease_us, 0);
	end();
}
