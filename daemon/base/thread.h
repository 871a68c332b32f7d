/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The daemon's threads: none takes a signal, which are the main thread's. Any thread. */
#ifndef DDRAID_BASE_THREAD_H
#define DDRAID_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* 0, or -errno. thread NULL: nobody joins it. */
static inline int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
			       void *arg)
{
	sigset_t all, before;
	pthread_t detached;
	pthread_attr_t attr;
	int err = -pthread_attr_init(&attr);

	if (err)
		return err;
	pthread_attr_setstacksize(&attr, stack_bytes);
	if (!thread)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(thread ? thread : &detached, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

#endif
