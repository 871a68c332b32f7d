// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/adapters/member/lease_guard.h"
#include "tests/lib/test.h"

#define MS 1000ull /* in microseconds */

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void sleep_us(uint64_t us)
{
	struct timespec ts = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

	while (nanosleep(&ts, &ts) < 0)
		;
}

static int pair[2];
static struct lease_guard guard;
static struct lease_cut cut;

static bool sends(int fd)
{
	return send(fd, "x", 1, MSG_NOSIGNAL) == 1;
}

static void begin(void)
{
	CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	cut = (struct lease_cut){.fd = pair[0]};
	lease_guard_add(&guard, &cut);
	cut.armed = 1;
}

static void end(void)
{
	lease_guard_remove(&guard, &cut);
	lease_guard_end(&guard);
	close(pair[0]);
	close(pair[1]);
}

/* Waits until it has been cut, for a minute. */
static bool is_cut(int fd)
{
	uint64_t until = now_us() + 60000 * MS;

	while (now_us() < until) {
		if (!sends(fd))
			return true;
		sleep_us(MS);
	}
	return false;
}

TEST(it_cuts_at_the_end_of_the_lease)
{
	begin();
	CHECK_EQ_INT(lease_guard_until(&guard, now_us() + 20 * MS), 0);
	CHECK(is_cut(pair[0]));
	end();
}

TEST(a_lease_that_is_over_already_cuts_at_once)
{
	begin();
	CHECK_EQ_INT(lease_guard_until(&guard, 0), 0);
	CHECK(is_cut(pair[0]));
	end();
}

TEST(a_longer_lease_and_one_without_end_cut_nothing)
{
	begin();
	CHECK_EQ_INT(lease_guard_until(&guard, now_us() + 50 * MS), 0);
	CHECK_EQ_INT(lease_guard_until(&guard, now_us() + 3600000 * MS), 0);
	sleep_us(100 * MS);
	CHECK(sends(pair[0]));
	CHECK_EQ_INT(lease_guard_until(&guard, now_us() + 50 * MS), 0);
	CHECK_EQ_INT(lease_guard_until(&guard, UINT64_MAX), 0);
	sleep_us(100 * MS);
	CHECK(sends(pair[0]));
	end();
}

TEST(of_several_those_that_are_armed_are_cut)
{
	struct lease_cut more[3];
	int other[3][2];

	begin();
	for (int i = 0; i < 3; i++) {
		CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, other[i]), 0);
		more[i] = (struct lease_cut){.fd = other[i][0]};
		lease_guard_add(&guard, &more[i]);
		more[i].armed = i != 1;
	}
	CHECK_EQ_INT(lease_guard_until(&guard, 0), 0);
	CHECK(is_cut(pair[0]) && is_cut(other[0][0]) && is_cut(other[2][0]));
	CHECK(sends(other[1][0]));
	for (int i = 0; i < 3; i++) {
		lease_guard_remove(&guard, &more[i]);
		close(other[i][0]);
		close(other[i][1]);
	}
	end();
}

TEST(another_guard_s_connections_stay)
{
	struct lease_guard other = {0};

	begin();
	CHECK_EQ_INT(lease_guard_until(&guard, UINT64_MAX), 0);
	CHECK_EQ_INT(lease_guard_until(&other, 0), 0);
	sleep_us(50 * MS);
	lease_guard_end(&other);
	CHECK(sends(pair[0]));
	end();
}

/* As threads of the daemon begin: all signals blocked. It looks at the clock, stands still, and
 * sends. */
_Noreturn static void stands_still(void)
{
	uint64_t until = now_us() + 200 * MS;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	if (lease_guard_until(&guard, until))
		_exit(3);
	if (now_us() >= until)
		_exit(4);
	raise(SIGSTOP);
	_exit(now_us() < until ? 5 : sends(pair[0]) ? 1 : 0);
}

TEST(who_stood_still_between_the_look_at_the_clock_and_the_send_sends_nothing)
{
	int status;
	pid_t pid;

	begin();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		stands_still();
	CHECK_EQ_INT(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
	sleep_us(300 * MS);
	kill(pid, SIGCONT);
	CHECK_EQ_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ_INT(WEXITSTATUS(status), 0);
	end();
}
