// SPDX-License-Identifier: GPL-2.0-or-later
/* Mailboxes and the worker thread; see mailbox.h. */
#include <signal.h>
#include <stddef.h>

#include "daemon/base/mailbox.h"
#include "daemon/base/thread.h"

#define WORKER_STACK_BYTES (256u << 10)

void mailbox_init(struct mailbox *m, void (*kick)(void *arg), void *arg)
{
	pthread_mutex_init(&m->lock, NULL);
	m->head = NULL;
	m->tail = &m->head;
	m->kick = kick;
	m->arg = arg;
}

void mailbox_post(struct mailbox *m, struct task *t, void (*run)(struct task *t))
{
	t->run = run;
	t->next = NULL;
	pthread_mutex_lock(&m->lock);
	*m->tail = t;
	m->tail = &t->next;
	pthread_mutex_unlock(&m->lock);
	m->kick(m->arg);
}

bool mailbox_run(struct mailbox *m)
{
	struct task *t, *next;
	bool any;

	pthread_mutex_lock(&m->lock);
	t = m->head;
	m->head = NULL;
	m->tail = &m->head;
	pthread_mutex_unlock(&m->lock);
	any = t;
	for (; t; t = next) {
		next = t->next;
		t->run(t);
	}
	return any;
}

static void worker_kick(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->lock);
	w->kicked = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	bool stop = false;

	while (!stop) {
		pthread_mutex_lock(&w->lock);
		while (!w->kicked && !w->stop)
			pthread_cond_wait(&w->wake, &w->lock);
		stop = w->stop && !w->kicked;
		w->kicked = false;
		pthread_mutex_unlock(&w->lock);
		mailbox_run(&w->box);
	}
	return NULL;
}

int worker_start(struct worker *w)
{
	mailbox_init(&w->box, worker_kick, w);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	w->kicked = w->stop = false;
	return thread_start(&w->thread, WORKER_STACK_BYTES, worker_main, w);
}

void worker_stop(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
}
