/* SPDX-License-Identifier: GPL-2.0-or-later */
/* This node's side of the locks (locks.c). */
#ifndef DDRAID_CORE_CLUSTER_LOCKS_H
#define DDRAID_CORE_CLUSTER_LOCKS_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/door.h"

struct locks {
	uint64_t settle_num, settle_floor; /* LOCK_EXTERNAL, see locks.c */
	uint64_t settle_us; /* when that was asked, or somebody was evicted for not answering */
	bool settle_due;
	uint64_t requests; /* so many were asked for */
};

/* Settle is answered; Settled is counted. */
void settle_message(struct engine *e, uint32_t from, const nodemsg *m);

#endif
