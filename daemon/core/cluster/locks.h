/* SPDX-License-Identifier: GPL-2.0-or-later */
/* This node's side of the locks (locks.c). */
#ifndef DDRAID_CORE_CLUSTER_LOCKS_H
#define DDRAID_CORE_CLUSTER_LOCKS_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/door.h"

/* Settle is answered; Settled is counted. */
void settle_message(struct engine *e, uint32_t from, const nodemsg *m);

#endif
