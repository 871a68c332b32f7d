/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Orphan slots: resynced, written (resync.c). */
#ifndef DDRAID_CORE_CLUSTER_RESYNC_H
#define DDRAID_CORE_CLUSTER_RESYNC_H

#include "daemon/core/cluster/pass.h"
#include "daemon/core/door.h"
#include "daemon/core/rset.h"

#define WR_PAGES 16u /* ... and written at once */

struct pagewrite { /* a page of an orphan slot, on its way to the members */
	struct batch batch;
	struct iovec iov;
	uint32_t page;
	bool durable;
};

struct resync {
	struct pass pass;
	bool writing, rewriting;
	bool doubted;         /* a round has ended since what is being written was begun */
	bool again;           /* what was written is not on all members, and is written again */
	struct rset done;     /* resynced, not yet cleared */
	struct rset clearing; /* cleared in pages that are on their way */
	uint32_t of_slot;     /* where the pass's region is dirty */
	uint32_t slot, count; /* a run of pages of it is written, */
	uint32_t pending;     /* so many of them not yet */
	struct pagewrite run[WR_PAGES];
	uint8_t (*block)[DDR_BLOCK_BYTES];
	struct logpage image;
};

/* Once in an incarnation. The rest is declared in slots.h. */
void resync_setup(struct engine *e);

#endif
