/* SPDX-License-Identifier: GPL-2.0-or-later */
/* This node leaves in good order (leave.c). */
#ifndef DDRAID_CORE_CLUSTER_LEAVE_H
#define DDRAID_CORE_CLUSTER_LEAVE_H

#include "daemon/core/door.h"

/* ADMIN_STOP of a node that does not serve. */
void leave_unserved(struct engine *e);
/* ... of one that serves. */
void leave_advance(struct engine *e);
/* What no end of requests changes keeps it here. */
bool leave_held(const struct engine *e);
/* What keeps it here, NULL: nothing but its own next step. */
const char *leave_waits(const struct engine *e);

#endif
