/* SPDX-License-Identifier: GPL-2.0-or-later */
/* This node leaves in good order (leave.c). */
#ifndef DDRAID_CORE_CLUSTER_LEAVE_H
#define DDRAID_CORE_CLUSTER_LEAVE_H

#include "daemon/core/door.h"

struct leave {
	bool leaving;        /* ADMIN_STOP: only what is under way as leader is waited for */
	uint64_t stops;      /* so many nodes have said that they leave */
	uint64_t drained_us; /* ADMIN_STOP: nothing is dirty any more, since then; */
	uint64_t seal_us;    /* it began to seal the array then; 0 = not yet */
	uint32_t seals;      /* epochs that it is still to commit for that: leave_sealed; */
	bool unsealed;       /* it took too long */
	bool naming;         /* its slot is to name it again: slot_again */
};

/* ADMIN_STOP of a node that does not serve. */
void leave_unserved(struct engine *e);
/* ... of one that serves. */
void leave_advance(struct engine *e);
/* What no end of requests changes keeps it here. */
bool leave_held(const struct engine *e);
/* What keeps it here, NULL: nothing but its own next step. */
const char *leave_waits(const struct engine *e);

#endif
