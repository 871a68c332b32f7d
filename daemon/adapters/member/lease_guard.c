// SPDX-License-Identifier: GPL-2.0-or-later
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/adapters/member/lease_guard.h"

#define GUARD_SIGNAL (SIGRTMIN + 3)

/* On the guard's own thread, between any two of its instructions: it finds a list at each moment.
 */
static void over(int number, siginfo_t *info, void *context)
{
	struct lease_guard *g = info->si_value.sival_ptr;
	int saved = errno;

	(void)number, (void)context;
	for (struct lease_cut *c = g->cuts; c; c = c->next)
		if (c->armed)
			shutdown(c->fd, SHUT_RDWR);
	errno = saved;
}

void lease_guard_add(struct lease_guard *g, struct lease_cut *c)
{
	c->armed = 0;
	c->next = g->cuts;
	atomic_signal_fence(memory_order_seq_cst);
	g->cuts = c;
}

void lease_guard_remove(struct lease_guard *g, struct lease_cut *c)
{
	struct lease_cut *before = NULL, *at;

	for (at = g->cuts; at != c; at = at->next)
		before = at;
	if (before)
		before->next = c->next;
	else
		g->cuts = c->next;
	atomic_signal_fence(memory_order_seq_cst);
}

static int timer_make(struct lease_guard *g)
{
	struct sigaction sa = {.sa_sigaction = over, .sa_flags = SA_RESTART | SA_SIGINFO};
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = GUARD_SIGNAL};
	sigset_t set;

	sigemptyset(&sa.sa_mask);
	ev.sigev_value.sival_ptr = g;
	ev._sigev_un._tid = gettid();
	if (sigaction(GUARD_SIGNAL, &sa, NULL) < 0 ||
	    timer_create(CLOCK_BOOTTIME, &ev, &g->timer) < 0)
		return -errno;
	g->has_timer = true;
	sigemptyset(&set);
	sigaddset(&set, GUARD_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return 0;
}

int lease_guard_until(struct lease_guard *g, uint64_t until_us)
{
	struct itimerspec when = {0};
	int err = g->has_timer ? 0 : timer_make(g);

	if (err)
		return err;
	if (until_us != UINT64_MAX) {
		when.it_value.tv_sec = (time_t)(until_us / 1000000);
		when.it_value.tv_nsec =
		    (long)(until_us % 1000000 * 1000) + 1; /* 0 would be never */
	}
	return timer_settime(g->timer, TIMER_ABSTIME, &when, NULL) < 0 ? -errno : 0;
}

/* What has fired is delivered by the end of timer_delete: the signal is this thread's, and not
 * blocked. */
void lease_guard_end(struct lease_guard *g)
{
	assert(!g->cuts);
	if (g->has_timer)
		timer_delete(g->timer);
	g->has_timer = false;
}
