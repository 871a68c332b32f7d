// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The daemon's side of fencing, with a helper that the test plays. An ask is its owner's when it is
 * answered: here it is unmapped then, so that whoever looks at it once more does not get far.
 */
#include "daemon/runtime/fence/fence.h"

#include <errno.h>
#include <qb/qbloop.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/runtime/fence/helper.h"
#include "tests/lib/test.h"

static struct qb_loop *loop;
static struct config conf;
static int helper; /* its end of the socket pair */
static unsigned answers;
static int last_err;
static char last_why[FENCE_WHY_BYTES];
static bool checks; /* the next one */

void say(int priority, const char *format, ...)
{
	(void)priority;
	(void)format;
}

int fence_helper_fork(void)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) < 0)
		return -errno;
	helper = fd[1];
	return fd[0];
}

static void done(struct fence_ask *ask, int err, const char *why)
{
	CHECK(why[0]);
	answers++;
	last_err = err;
	snprintf(last_why, sizeof(last_why), "%s", why);
	CHECK(!munmap(ask, sizeof(*ask)));
}

static void ask(void)
{
	struct fence_ask *f =
	    mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(f != MAP_FAILED);
	f->node = 2;
	f->inc = 3;
	f->done = done;
	f->check = checks;
	if (checks) {
		fence_ask_uri(f, "a");
		fence_ask_uri(f, "b");
		fence_ask_uri(f, "a");
	}
	fence_run(f);
}

static void stop(void *data)
{
	(void)data;
	qb_loop_stop(loop);
}

static void run(uint64_t ms)
{
	qb_loop_timer_handle timer;

	qb_loop_timer_add(loop, QB_LOOP_LOW, ms * 1000000, NULL, stop, &timer);
	qb_loop_run(loop);
}

static void begin(enum fence_policy policy)
{
	memset(&conf, 0, sizeof(conf));
	conf.fence = policy;
	conf.fence_timeout_ms = 60000;
	answers = 0;
	last_err = 1;
	loop = qb_loop_create();
	CHECK(loop && !fence_helper_start(&conf) && !fence_open(loop, &conf));
}

static void end(void)
{
	fence_close();
	qb_loop_destroy(loop);
}

TEST(each_policy_answers)
{
	begin(FENCE_NONE);
	ask();
	CHECK(!answers); /* never from within fence_run */
	run(20);
	CHECK(answers == 1 && !last_err);
	end();
	begin(FENCE_ZOMBIE_TIMEOUT);
	conf.zombie_timeout_ms = 30;
	ask();
	run(10);
	CHECK(!answers);
	run(100);
	CHECK(answers == 1 && !last_err);
	end();
}

TEST(the_helper_answers)
{
	static struct fence_request r;
	struct fence_answer a = {.err = -EIO};

	begin(FENCE_COMMAND);
	ask();
	CHECK(recv(helper, &r, sizeof(r), 0) == sizeof(r) && r.node == 2 && r.inc == 3);
	a.id = r.id;
	CHECK(send(helper, &a, sizeof(a), 0) == sizeof(a));
	run(20);
	CHECK(answers == 1 && last_err == -EIO);
	close(helper);
	end();
}

TEST(a_check_is_answered_in_the_words_of_the_command)
{
	static struct fence_request r;
	struct fence_answer a = {.err = -ENXIO, .output = "not there"};

	begin(FENCE_COMMAND);
	CHECK(fence_checks());
	checks = true;
	ask();
	checks = false;
	CHECK(recv(helper, &r, sizeof(r), 0) == sizeof(r) && r.check && r.timeout_ms <= 15000);
	CHECK(r.count == 2 && !strcmp(r.uri[0], "a") && !strcmp(r.uri[1], "b"));
	a.id = r.id;
	CHECK(send(helper, &a, sizeof(a), 0) == sizeof(a));
	run(20);
	CHECK(answers == 1 && last_err == -ENXIO && !strcmp(last_why, "not there"));
	ask();
	CHECK(recv(helper, &r, sizeof(r), 0) == sizeof(r) && !r.check);
	a.id = r.id;
	CHECK(send(helper, &a, sizeof(a), 0) == sizeof(a));
	run(20);
	CHECK(answers == 2 && strstr(last_why, "failed after"));
	end();
	begin(FENCE_ZOMBIE_TIMEOUT);
	CHECK(!fence_checks());
	end();
}

/* What was asked, what could not be asked any more, and what is asked after that. */
TEST(a_helper_that_is_gone_answers_each_ask_once)
{
	begin(FENCE_COMMAND);
	ask();
	close(helper);
	ask();
	run(50);
	CHECK(answers == 2 && last_err == -EPIPE);
	ask();
	run(50);
	CHECK(answers == 3 && last_err == -EPIPE);
	end();
}
