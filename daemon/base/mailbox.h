/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How the daemon's threads talk: a task is posted to a thread's mailbox and run there. Whoever runs
 * it may post it on, so "do this on that thread and tell me" is a task that travels there and
 * back. There are no other locks between the main thread, the arrays' engine threads and the
 * worker, which does what blocks (fsync).
 */
#ifndef DDRAID_BASE_MAILBOX_H
#define DDRAID_BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>

struct task {
	void (*run)(struct task *t); /* on the mailbox's thread; may free t or post it again */
	/* the mailbox's */
	struct task *next;
};

struct mailbox {
	pthread_mutex_t lock;
	struct task *head, **tail;
	void (*kick)(void *arg); /* wakes the thread; any thread calls it, with no lock held */
	void *arg;
};

void mailbox_init(struct mailbox *m, void (*kick)(void *arg), void *arg);
/* Any thread. In order. */
void mailbox_post(struct mailbox *m, struct task *t, void (*run)(struct task *t));
/* Runs what is there now, on the caller's thread. True if there was anything. */
bool mailbox_run(struct mailbox *m);

/* A thread that does nothing but run its mailbox. */
struct worker {
	struct mailbox box;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool kicked, stop;
};

int worker_start(struct worker *w); /* 0 or -errno */
void worker_stop(struct worker *w); /* after what was posted is done */

#endif
