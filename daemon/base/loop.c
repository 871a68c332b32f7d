// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The engine thread's event loop, on epoll. base/loop.h says what it promises.
 *
 * A descriptor watcher:
 *
 *   not added   mask 0, not polled                 -> added
 *   idle        added with mask 0, not in epoll    -> polled, not added
 *   polled      in epoll with its mask             -> idle, not added
 *
 * "Idle" is not in epoll at all, because epoll reports a hang-up even when nothing was asked for,
 * and a level-triggered loop would spin on it.
 *
 * Events of a turn lie in l->batch while they are delivered; removing a watcher blots its entries
 * out, so a callback may remove (and free) any watcher. Timers that are due are first moved to a
 * list of their own, so one that sets itself again to "now" waits for the next turn.
 *
 * Called by the runtime, the front-ends and the member adapters. It must not know any of them.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/loop.h"

struct loop {
	int epfd;
	bool stop;
	uint64_t now_us;
	struct loop_timer *timers; /* ascending by deadline */
	struct loop_hook *hooks;
	struct loop_hook *hook_next; /* where the walk over the hooks goes on */
	uint32_t watchers;
	int batch_count; /* entries of batch that are being delivered */
	struct epoll_event batch[LOOP_BATCH];
};

int loop_new(struct loop **out)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0) {
		int err = -errno;

		free(l);
		return err;
	}
	loop_clock_us(l);
	*out = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	assert(l->watchers == 0 && !l->timers && !l->hooks);
	close(l->epfd);
	free(l);
}

uint64_t loop_now_us(const struct loop *l)
{
	return l->now_us;
}

uint64_t loop_clock_us(struct loop *l)
{
	struct timespec ts;

	/* The time that a suspended machine slept counts: R7 and all time limits go by it. */
	clock_gettime(CLOCK_BOOTTIME, &ts);
	l->now_us = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
	return l->now_us;
}

/* --- descriptors --- */

static void blot_out(struct loop *l, const struct loop_fd *w)
{
	for (int i = 0; i < l->batch_count; i++) {
		if (l->batch[i].data.ptr == w)
			l->batch[i].data.ptr = NULL;
	}
}

static int poll_with(struct loop *l, struct loop_fd *w, uint32_t mask)
{
	struct epoll_event ev = {.data.ptr = w};
	int op = EPOLL_CTL_MOD;

	if (mask & LOOP_READ)
		ev.events |= EPOLLIN;
	if (mask & LOOP_WRITE)
		ev.events |= EPOLLOUT;
	if (!w->polled)
		op = EPOLL_CTL_ADD;
	else if (!mask)
		op = EPOLL_CTL_DEL;
	if (epoll_ctl(l->epfd, op, w->fd, &ev) < 0)
		return -errno;
	w->polled = mask != 0;
	w->mask = mask;
	return 0;
}

int loop_fd_add(struct loop *l, struct loop_fd *w, uint32_t mask)
{
	w->mask = 0;
	w->polled = false;
	if (mask) {
		int err = poll_with(l, w, mask);

		if (err)
			return err;
	}
	l->watchers++;
	return 0;
}

int loop_fd_mod(struct loop *l, struct loop_fd *w, uint32_t mask)
{
	return mask == w->mask ? 0 : poll_with(l, w, mask);
}

void loop_fd_del(struct loop *l, struct loop_fd *w)
{
	assert(l->watchers > 0);
	if (w->polled)
		epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL);
	w->polled = false;
	w->mask = 0;
	blot_out(l, w);
	l->watchers--;
}

static void deliver(const struct epoll_event *ev)
{
	struct loop_fd *w = ev->data.ptr;
	uint32_t events = 0;

	if (!w)
		return;
	if (ev->events & EPOLLIN)
		events |= LOOP_READ;
	if (ev->events & EPOLLOUT)
		events |= LOOP_WRITE;
	if (ev->events & (EPOLLERR | EPOLLHUP))
		events = w->mask;
	events &= w->mask; /* may have been narrowed earlier in this turn */
	if (events)
		w->ready(w->arg, events);
}

/* --- timers --- */

static void timer_link(struct loop_timer **at, struct loop_timer *t)
{
	t->next = *at;
	t->pprev = at;
	if (t->next)
		t->next->pprev = &t->next;
	*at = t;
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	(void)l;
	if (!t->pprev)
		return;
	*t->pprev = t->next;
	if (t->next)
		t->next->pprev = t->pprev;
	t->next = NULL;
	t->pprev = NULL;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t deadline_us)
{
	struct loop_timer **at = &l->timers;

	loop_timer_clear(l, t);
	while (*at && (*at)->deadline_us <= deadline_us)
		at = &(*at)->next;
	t->deadline_us = deadline_us;
	timer_link(at, t);
}

static void fire_timers(struct loop *l)
{
	struct loop_timer *due = NULL, **tail = &due;

	while (l->timers && l->timers->deadline_us <= l->now_us) {
		struct loop_timer *t = l->timers;

		loop_timer_clear(l, t);
		timer_link(tail, t);
		tail = &t->next;
	}
	while (due) {
		struct loop_timer *t = due;

		loop_timer_clear(l, t);
		t->fired(t->arg);
	}
}

/* --- hooks --- */

void loop_hook_add(struct loop *l, struct loop_hook *h)
{
	struct loop_hook **at = &l->hooks;

	while (*at)
		at = &(*at)->next;
	h->next = NULL;
	h->pprev = at;
	*at = h;
}

void loop_hook_del(struct loop *l, struct loop_hook *h)
{
	if (l->hook_next == h)
		l->hook_next = h->next;
	*h->pprev = h->next;
	if (h->next)
		h->next->pprev = h->pprev;
	h->next = NULL;
	h->pprev = NULL;
}

static bool run_hooks(struct loop *l)
{
	bool more = false;

	for (struct loop_hook *h = l->hooks; h; h = l->hook_next) {
		l->hook_next = h->next;
		more |= h->run(h->arg);
	}
	return more;
}

/* --- wake-ups --- */

static void wake_ready(void *arg, uint32_t events)
{
	struct loop_wake *w = arg;
	uint64_t kicks;

	(void)events;
	if (read(w->watch.fd, &kicks, sizeof(kicks)) == sizeof(kicks))
		w->woken(w->arg);
}

int loop_wake_add(struct loop *l, struct loop_wake *w)
{
	int err;

	w->watch = (struct loop_fd){.ready = wake_ready, .arg = w};
	w->watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (w->watch.fd < 0)
		return -errno;
	err = loop_fd_add(l, &w->watch, LOOP_READ);
	if (err)
		close(w->watch.fd);
	return err;
}

void loop_wake_del(struct loop *l, struct loop_wake *w)
{
	loop_fd_del(l, &w->watch);
	close(w->watch.fd);
	w->watch.fd = -1;
}

void loop_wake_kick(const struct loop_wake *w)
{
	uint64_t one = 1;
	int saved = errno;

	/* It fails only when the counter is full: then the loop is going to wake anyway. */
	if (write(w->watch.fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
	errno = saved;
}

/* --- turns --- */

static int wait_ms(const struct loop *l, uint64_t wait_us)
{
	if (l->timers) {
		uint64_t at = l->timers->deadline_us;
		uint64_t left = at > l->now_us ? at - l->now_us : 0;

		if (left < wait_us)
			wait_us = left;
	}
	if (wait_us == UINT64_MAX)
		return -1;
	if (wait_us / 1000 >= INT_MAX)
		return INT_MAX;
	return (int)((wait_us + 999) / 1000); /* never early */
}

static int turn(struct loop *l, uint64_t wait_us, bool *more)
{
	int timeout_ms, n;

	loop_clock_us(l);
	timeout_ms = wait_ms(l, wait_us);
	n = epoll_wait(l->epfd, l->batch, LOOP_BATCH, timeout_ms);
	if (n < 0 && errno != EINTR)
		return -errno;
	if (timeout_ms != 0)
		loop_clock_us(l);
	l->batch_count = n > 0 ? n : 0;
	for (int i = 0; i < l->batch_count; i++)
		deliver(&l->batch[i]);
	l->batch_count = 0;
	fire_timers(l);
	*more = run_hooks(l);
	return 0;
}

int loop_run(struct loop *l)
{
	bool more = true; /* the first turn doesn't block: hooks may have work already */
	int err = 0;

	l->stop = false;
	while (!err && !l->stop)
		err = turn(l, more ? 0 : UINT64_MAX, &more);
	return err;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}

int loop_turn(struct loop *l, uint64_t wait_us)
{
	bool more;

	return turn(l, wait_us, &more);
}
