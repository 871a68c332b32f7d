/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine thread's event loop: descriptors, timers, wake-ups from other threads, hooks.
 *
 * There is one loop per array, run by its engine thread; front-ends and member adapters put what
 * they wait for into it. Every watcher is a struct of its owner; the loop allocates nothing after
 * loop_new. But for loop_wake_kick all functions belong to the thread that runs the loop, and may
 * be called from within any callback: a watcher that was removed or whose mask was narrowed is
 * not called any more, not even for an event that the kernel had already reported in this turn.
 *
 * One turn: wait -> descriptors -> timers that are due -> hooks. Callbacks must not block.
 */
#ifndef DDRAID_BASE_LOOP_H
#define DDRAID_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#define LOOP_BATCH 64 /* descriptor events taken from the kernel per turn */

struct loop;

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

/*
 * A descriptor. The owner fills in fd, ready and arg and zeroes the rest. Level-triggered: called
 * in each turn as long as it is ready. An error or hang-up is reported as whatever was asked for,
 * so that the owner's next read or write meets it. With an empty mask nothing is reported, not
 * even a hang-up.
 */
struct loop_fd {
	int fd;
	void (*ready)(void *arg, uint32_t events); /* a subset of the mask, not empty */
	void *arg;
	/* the loop's */
	uint32_t mask;
	bool polled;
};

/* A one-shot timer; the owner fills in fired and arg and zeroes the rest. */
struct loop_timer {
	void (*fired)(void *arg); /* not before the deadline; the timer is unset by then */
	void *arg;
	/* the loop's */
	uint64_t deadline_us;
	struct loop_timer *next, **pprev;
};

/*
 * Work to be done once at the end of each turn, before the thread may block: sending what has
 * gathered. True = there is more to do at once (also by a hook that ran before), so don't block.
 * Called in the order added.
 */
struct loop_hook {
	bool (*run)(void *arg);
	void *arg;
	/* the loop's */
	struct loop_hook *next, **pprev;
};

/* A wake-up from another thread or a signal handler. Several kicks may come as one call. */
struct loop_wake {
	void (*woken)(void *arg);
	void *arg;
	/* the loop's */
	struct loop_fd watch;
};

/* 0, or -errno of epoll_create1 or -ENOMEM. */
int loop_new(struct loop **out);
/* All watchers must have been removed. NULL is fine. */
void loop_free(struct loop *l);

/*
 * Adds w with a mask of LOOP_READ and LOOP_WRITE, which may be 0. The descriptor must be open
 * until loop_fd_del, and belongs to one watcher only. 0 or -errno of epoll_ctl (-EPERM: it can't
 * be polled, as a regular file).
 */
int loop_fd_add(struct loop *l, struct loop_fd *w, uint32_t mask);
/* Costs a system call only if the mask changes. 0 or -errno, as above. */
int loop_fd_mod(struct loop *l, struct loop_fd *w, uint32_t mask);
/* Before the descriptor is closed. */
void loop_fd_del(struct loop *l, struct loop_fd *w);

/*
 * Sets or moves the deadline, in the time of loop_now_us; one that has passed fires in the next
 * turn. The grain is a millisecond. O(timers): meant for tens of them.
 */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t deadline_us);
/* Nothing happens if it isn't set. */
void loop_timer_clear(struct loop *l, struct loop_timer *t);
static inline bool loop_timer_is_set(const struct loop_timer *t)
{
	return t->pprev != 0;
}

void loop_hook_add(struct loop *l, struct loop_hook *h);
void loop_hook_del(struct loop *l, struct loop_hook *h);

/* Opens an eventfd for w, of which woken and arg are filled in. 0 or -errno. */
int loop_wake_add(struct loop *l, struct loop_wake *w);
/* No kick may come any more. */
void loop_wake_del(struct loop *l, struct loop_wake *w);
/* From any thread and from signal handlers, between add and del. Keeps errno. */
void loop_wake_kick(const struct loop_wake *w);

/* CLOCK_BOOTTIME in microseconds, as of this turn's return from waiting. */
uint64_t loop_now_us(const struct loop *l);
/* The same, read now; refreshes what loop_now_us says. */
uint64_t loop_clock_us(struct loop *l);

/* Turns until loop_stop; 0, or -errno of epoll_wait. */
int loop_run(struct loop *l);
/* loop_run returns after this turn. From another thread: through a wake. */
void loop_stop(struct loop *l);
/* One turn that blocks for at most wait_us. For tests; not from within a callback. */
int loop_turn(struct loop *l, uint64_t wait_us);

#endif
