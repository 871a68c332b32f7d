// SPDX-License-Identifier: GPL-2.0-or-later
/* The event loop: what base/loop.h promises. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/loop.h"
#include "tests/lib/test.h"

static struct loop *l;
static unsigned calls, order[8];

static void setup(void)
{
	CHECK_EQ_INT(loop_new(&l), 0);
	calls = 0;
}

/* A watcher on one end of a socket pair. */
struct end {
	struct loop_fd w;
	int peer;
	uint32_t events;
	unsigned calls;
	struct end *del, *narrow;
	bool drain;
};

static void end_ready(void *arg, uint32_t events)
{
	struct end *e = arg;
	char c;

	e->calls++;
	e->events = events;
	if (e->drain)
		CHECK(read(e->w.fd, &c, 1) >= 0);
	if (e->del)
		loop_fd_del(l, &e->del->w);
	if (e->narrow)
		CHECK_EQ_INT(loop_fd_mod(l, &e->narrow->w, 0), 0);
}

static void end_open(struct end *e, uint32_t mask)
{
	int fd[2];

	memset(e, 0, sizeof(*e));
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
	e->w = (struct loop_fd){.fd = fd[0], .ready = end_ready, .arg = e};
	e->peer = fd[1];
	CHECK_EQ_INT(loop_fd_add(l, &e->w, mask), 0);
}

static void end_close(struct end *e, bool del)
{
	if (del)
		loop_fd_del(l, &e->w);
	close(e->w.fd);
	if (e->peer >= 0)
		close(e->peer);
}

static void turns(int count)
{
	while (count--)
		CHECK_EQ_INT(loop_turn(l, 0), 0);
}

TEST(a_descriptor_is_reported_as_long_as_it_is_ready_and_asked_for)
{
	struct end e;

	setup();
	end_open(&e, LOOP_READ);
	turns(2);
	CHECK_EQ_U64(e.calls, 0);
	CHECK(write(e.peer, "x", 1) == 1);
	turns(2);
	CHECK_EQ_U64(e.calls, 2);
	CHECK_EQ_U64(e.events, LOOP_READ);
	CHECK_EQ_INT(loop_fd_mod(l, &e.w, LOOP_READ | LOOP_WRITE), 0);
	turns(1);
	CHECK_EQ_U64(e.events, LOOP_READ | LOOP_WRITE);
	CHECK_EQ_INT(loop_fd_mod(l, &e.w, LOOP_WRITE), 0);
	turns(1);
	CHECK_EQ_U64(e.events, LOOP_WRITE);
	CHECK_EQ_INT(loop_fd_mod(l, &e.w, 0), 0);
	turns(2);
	CHECK_EQ_U64(e.calls, 4);
	end_close(&e, true);
	loop_free(l);
}

TEST(a_hang_up_comes_as_what_was_asked_for_and_not_at_all_if_nothing_was)
{
	struct end e;

	setup();
	end_open(&e, 0);
	close(e.peer);
	e.peer = -1;
	turns(2);
	CHECK_EQ_U64(e.calls, 0);
	CHECK_EQ_INT(loop_fd_mod(l, &e.w, LOOP_READ), 0);
	turns(1);
	CHECK_EQ_U64(e.calls, 1);
	CHECK_EQ_U64(e.events, LOOP_READ);
	end_close(&e, true);
	loop_free(l);
}

TEST(a_watcher_that_was_removed_in_this_turn_is_not_called)
{
	struct end a, b;

	setup();
	end_open(&a, LOOP_READ);
	end_open(&b, LOOP_READ);
	a.del = &b;
	b.del = &a;
	CHECK(write(a.peer, "x", 1) == 1 && write(b.peer, "x", 1) == 1);
	turns(1);
	CHECK_EQ_U64(a.calls + b.calls, 1);
	if (a.calls)
		a.del = NULL;
	else
		b.del = NULL;
	turns(1);
	CHECK_EQ_U64(a.calls + b.calls, 2);
	end_close(&a, a.calls > 0);
	end_close(&b, b.calls > 0);
	loop_free(l);
}

TEST(a_watcher_that_was_narrowed_in_this_turn_is_not_called)
{
	struct end a, b;

	setup();
	end_open(&a, LOOP_READ);
	end_open(&b, LOOP_READ);
	a.narrow = &b;
	b.narrow = &a;
	CHECK(write(a.peer, "x", 1) == 1 && write(b.peer, "x", 1) == 1);
	turns(1);
	CHECK_EQ_U64(a.calls + b.calls, 1);
	end_close(&a, true);
	end_close(&b, true);
	loop_free(l);
}

TEST(what_cannot_be_polled_is_an_error)
{
	FILE *f = tmpfile();
	struct loop_fd w = {.ready = end_ready};

	setup();
	CHECK(f);
	w.fd = fileno(f);
	CHECK_EQ_INT(loop_fd_add(l, &w, LOOP_READ), -EPERM);
	fclose(f);
	loop_free(l);
}

/* --- timers --- */

static struct loop_timer timers[4];

static void fired(void *arg)
{
	struct loop_timer *t = arg;

	CHECK(!loop_timer_is_set(t));
	CHECK(loop_now_us(l) >= t->deadline_us);
	order[calls++ % 8] = (unsigned)(t - timers);
}

static void fired_sets_itself(void *arg)
{
	calls++;
	loop_timer_set(l, arg, 0);
}

static void fired_clears_the_next(void *arg)
{
	fired(arg);
	loop_timer_clear(l, (struct loop_timer *)arg + 1);
}

TEST(timers_fire_in_order_and_not_early)
{
	uint64_t now;

	setup();
	now = loop_now_us(l);
	for (unsigned i = 0; i < 4; i++) {
		timers[i] = (struct loop_timer){.fired = fired, .arg = &timers[i]};
		loop_timer_set(l, &timers[i], now + 4000 - 1000 * i);
	}
	loop_timer_clear(l, &timers[2]);
	loop_timer_clear(l, &timers[2]);
	loop_timer_set(l, &timers[0], now + 2500); /* moved */
	while (calls < 3)
		CHECK_EQ_INT(loop_turn(l, UINT64_MAX), 0);
	CHECK_EQ_U64(order[0], 3);
	CHECK_EQ_U64(order[1], 0);
	CHECK_EQ_U64(order[2], 1);
	loop_free(l);
}

TEST(a_timer_that_sets_itself_to_the_past_fires_once_per_turn)
{
	setup();
	timers[0] = (struct loop_timer){.fired = fired_sets_itself, .arg = &timers[0]};
	loop_timer_set(l, &timers[0], 0);
	turns(3);
	CHECK_EQ_U64(calls, 3);
	loop_timer_clear(l, &timers[0]);
	loop_free(l);
}

TEST(a_timer_that_was_cleared_by_one_before_it_does_not_fire)
{
	setup();
	timers[0] = (struct loop_timer){.fired = fired_clears_the_next, .arg = &timers[0]};
	timers[1] = (struct loop_timer){.fired = fired, .arg = &timers[1]};
	timers[2] = (struct loop_timer){.fired = fired, .arg = &timers[2]};
	for (unsigned i = 0; i < 3; i++)
		loop_timer_set(l, &timers[i], i);
	turns(2);
	CHECK_EQ_U64(calls, 2);
	CHECK_EQ_U64(order[1], 2);
	loop_free(l);
}

/* --- hooks, wake-ups --- */

static struct loop_hook hooks[3];

static bool hook_run(void *arg)
{
	order[calls++ % 8] = (unsigned)((struct loop_hook *)arg - hooks);
	return false;
}

static bool hook_removes_the_next(void *arg)
{
	hook_run(arg);
	loop_hook_del(l, &hooks[1]);
	return false;
}

static bool hook_stops(void *arg)
{
	(void)arg;
	if (++calls == 3)
		loop_stop(l);
	return true;
}

TEST(hooks_run_in_order_once_per_turn_and_may_remove_each_other)
{
	setup();
	for (int i = 0; i < 3; i++) {
		hooks[i] = (struct loop_hook){.run = hook_run, .arg = &hooks[i]};
		loop_hook_add(l, &hooks[i]);
	}
	turns(1);
	CHECK(calls == 3 && order[0] == 0 && order[1] == 1 && order[2] == 2);
	hooks[0].run = hook_removes_the_next;
	calls = 0;
	turns(1);
	CHECK(calls == 2 && order[1] == 2);
	loop_hook_del(l, &hooks[0]);
	loop_hook_del(l, &hooks[2]);
	loop_free(l);
}

TEST(the_loop_does_not_block_while_a_hook_has_more_to_do)
{
	setup();
	hooks[0] = (struct loop_hook){.run = hook_stops};
	loop_hook_add(l, &hooks[0]);
	CHECK_EQ_INT(loop_run(l), 0);
	CHECK_EQ_U64(calls, 3);
	loop_hook_del(l, &hooks[0]);
	loop_free(l);
}

static struct loop_wake wake;

static void woken(void *arg)
{
	(void)arg;
	if (++calls == 3)
		loop_stop(l);
}

static void *kicker(void *arg)
{
	for (int i = 0; i < 3; i++) {
		unsigned before = __atomic_load_n(&calls, __ATOMIC_RELAXED);

		loop_wake_kick(arg);
		while (__atomic_load_n(&calls, __ATOMIC_RELAXED) == before)
			usleep(100);
	}
	return NULL;
}

TEST(another_thread_wakes_the_loop)
{
	pthread_t thread;

	setup();
	wake = (struct loop_wake){.woken = woken};
	CHECK_EQ_INT(loop_wake_add(l, &wake), 0);
	CHECK(pthread_create(&thread, NULL, kicker, &wake) == 0);
	CHECK_EQ_INT(loop_run(l), 0);
	pthread_join(thread, NULL);
	CHECK_EQ_U64(calls, 3);
	loop_wake_kick(&wake);
	loop_wake_kick(&wake);
	turns(2); /* two kicks, one call */
	CHECK_EQ_U64(calls, 4);
	loop_wake_del(l, &wake);
	loop_free(l);
}
