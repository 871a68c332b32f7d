/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Threads for what may have to wait in the kernel, and must not be waited for. */
#ifndef DDRAID_BASE_ASIDE_H
#define DDRAID_BASE_ASIDE_H

#include <stdbool.h>

/* A thread that nobody joins, with all signals blocked. 0, or -errno: there is none. Any thread. */
int aside_start(void *(*run)(void *), void *arg);

/*
 * By such a thread: it has none of the program's descriptors from here on. One that hangs keeps
 * them from being closed else when the program dies, and others wait for that. false: it has them.
 */
bool aside_alone(void);

#endif
