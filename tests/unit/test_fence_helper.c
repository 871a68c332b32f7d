// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The process that runs fence commands: what it answers, and that it always does. A command is
 * called with a node, an incarnation and URIs, so sleep can be one: it sleeps for their sum.
 */
#include "daemon/runtime/fence/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/test.h"

static bool unkillable; /* the helper's commands */

/* Stands in for libc's: nothing else makes a process that SIGKILL does not end. */
int kill(pid_t pid, int sig)
{
	return unkillable ? 0 : (int)syscall(SYS_kill, pid, sig);
}

static int helper;

static void ask(uint64_t id, const char *command, uint32_t node, uint32_t timeout_ms)
{
	static struct fence_request r;

	memset(&r, 0, sizeof(r));
	r.id = id;
	r.node = node;
	r.timeout_ms = timeout_ms;
	snprintf(r.command, sizeof(r.command), "%s", command);
	CHECK(send(helper, &r, sizeof(r), 0) == sizeof(r));
}

static struct fence_answer answer(uint64_t id)
{
	struct pollfd p = {.events = POLLIN, .fd = helper};
	struct fence_answer a = {.err = 1};

	CHECK_MSG(poll(&p, 1, 8000) == 1, "no answer");
	CHECK(recv(helper, &a, sizeof(a), 0) == sizeof(a));
	CHECK_EQ_U64(a.id, id);
	return a;
}

static void begin(void)
{
	helper = fence_helper_fork();
	CHECK(helper >= 0);
}

static void end(void)
{
	CHECK(!close(helper));
	unkillable = false;
}

TEST(the_exit_status_is_the_answer)
{
	begin();
	ask(1, "/bin/true", 1, 5000);
	CHECK_EQ_INT(answer(1).err, 0);
	ask(2, "/bin/false", 1, 5000);
	CHECK_EQ_INT(answer(2).err, -EIO);
	ask(3, "/nonexistent", 1, 5000);
	CHECK_EQ_INT(answer(3).err, -ENOENT);
	end();
}

TEST(a_check_has_a_status_of_its_own)
{
	static struct fence_request r;
	static const struct {
		const char *script;
		int err;
		const char *says;
	} is[] = {
	    {"#!/bin/sh\necho \"$@\"\n", 0, "--check a b"},
	    {"#!/bin/sh\necho no $3\nexit 78\n", -ENXIO, "no b"},
	    {"#!/bin/sh\nexit 77\n", -EIO, ""},
	    {"#!/bin/sh\nexec /nonexistent/x 2>/dev/null\n", -ENXIO, ""},
	};
	char path[] = "/tmp/test_fence_helper-XXXXXX";
	struct fence_answer a;

	begin();
	for (unsigned i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
		int fd = i ? open(path, O_WRONLY | O_TRUNC) : mkstemp(path);

		CHECK(fd >= 0 && write(fd, is[i].script, strlen(is[i].script)) > 0);
		CHECK(!fchmod(fd, 0700) && !close(fd));
		memset(&r, 0, sizeof(r));
		r.id = i + 1;
		r.check = true;
		r.node = 7;
		r.timeout_ms = 5000;
		snprintf(r.command, sizeof(r.command), "%s", path);
		strcpy(r.uri[r.count++], "a");
		strcpy(r.uri[r.count++], "b");
		CHECK(send(helper, &r, sizeof(r), 0) == sizeof(r));
		a = answer(i + 1);
		CHECK_EQ_INT(a.err, is[i].err);
		CHECK_EQ_STR(a.output, is[i].says);
	}
	CHECK(!unlink(path));
	end();
}

TEST(what_takes_too_long_is_killed)
{
	struct fence_answer a;

	begin();
	ask(1, "/bin/sleep", 20, 100);
	a = answer(1);
	CHECK_EQ_INT(a.err, -ETIMEDOUT);
	CHECK(a.ms >= 100 && !strstr(a.output, "hangs"));
	end();
}

/* Its end is seen later, while others are asked for. */
TEST(what_cannot_be_killed_is_answered_all_the_same)
{
	struct fence_answer a;

	unkillable = true;
	begin();
	ask(1, "/bin/sleep", 4, 100);
	a = answer(1);
	CHECK_EQ_INT(a.err, -ETIMEDOUT);
	CHECK_MSG(a.ms < 3500, "only after %u ms", a.ms);
	CHECK(strstr(a.output, "does not end"));
	for (uint64_t id = 2; id < 6; id++) {
		ask(id, "/bin/sleep", 1, 5000);
		CHECK_EQ_INT(answer(id).err, 0);
	}
	end();
}

TEST(a_status_is_seen_although_the_daemon_was_started_with_sigchld_ignored)
{
	signal(SIGCHLD, SIG_IGN);
	begin();
	signal(SIGCHLD, SIG_DFL);
	ask(1, "/bin/true", 1, 1000);
	CHECK_EQ_INT(answer(1).err, 0);
	ask(2, "/bin/false", 1, 1000);
	CHECK_EQ_INT(answer(2).err, -EIO);
	end();
}
