/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What main.c gives to all parts of the daemon. */
#ifndef DDRAID_STATE_ENV_H
#define DDRAID_STATE_ENV_H

#include <time.h>

struct config;
struct mailbox;
struct qb_loop;
struct worker;

struct daemon_env {
	const struct config *conf;
	struct qb_loop *loop;
	struct mailbox *main;
	struct worker *worker;
	struct timespec began; /* CLOCK_MONOTONIC */
};

#endif
