// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "daemon/base/aside.h"

#define STACK_BYTES (256u << 10)

int aside_start(void *(*run)(void *), void *arg)
{
	sigset_t block, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	sigfillset(&block);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &block, &old);
	err = pthread_create(&thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

bool aside_alone(void)
{
	return !close_range(3, ~0u, CLOSE_RANGE_UNSHARE);
}
