/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What main.c puts together: the daemon beyond process and loop. The main thread's. */
#ifndef DDRAID_DAEMON_H
#define DDRAID_DAEMON_H

#include <time.h>

#include "daemon/manager.h"

#define DAEMON_WARNINGS 8

struct qb_loop;

struct daemon_env {
	const struct config *conf;
	struct qb_loop *loop;
	struct mailbox *main;
	struct worker *worker;
	struct timespec began; /* CLOCK_MONOTONIC */
};

/* 0, or -errno with a sentence. */
int daemon_start(const struct daemon_env *env, char why[STORE_WHY_BYTES]);
/* Takes no more requests, stops the arrays, then calls done. */
void daemon_stop(void (*done)(void));
void daemon_end(void);

/* Logged, and in every status from then on. */
void daemon_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* NULL: there are no more. */
const char *daemon_warning(uint32_t i);

#endif
