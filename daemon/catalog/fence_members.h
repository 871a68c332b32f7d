/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whether the fence command could fence at all members of the arrays that this node knows. It is
 * asked at the daemon's start, and for an array whose members changed; while it says no, again and
 * again. All calls are the main thread's, after manager_open.
 */
#ifndef DDRAID_CATALOG_FENCE_MEMBERS_H
#define DDRAID_CATALOG_FENCE_MEMBERS_H

#include <stdint.h>

#include "daemon/base/limits.h"

struct qb_loop;

void fence_members_start(struct qb_loop *loop);
void fence_members_stop(void);
/* A sentence for the status if it could not, until it is asked again; else NULL. */
const char *fence_members_why(const uint8_t uuid[DDR_UUID_BYTES]);

#endif
