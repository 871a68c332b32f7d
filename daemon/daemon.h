/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What main.c puts together: the daemon beyond process and loop. The main thread's. */
#ifndef DDRAID_DAEMON_H
#define DDRAID_DAEMON_H

#include "daemon/state/env.h"
#include "daemon/state/store.h"

/* 0, or -errno with a sentence. */
int daemon_start(const struct daemon_env *env, char why[STORE_WHY_BYTES]);
/* Takes no more requests, stops the arrays, then calls done. */
void daemon_stop(void (*done)(void));
void daemon_end(void);

#endif
