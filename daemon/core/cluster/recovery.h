/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is told of recoveries; decides nothing (recovery.c). */
#ifndef DDRAID_CORE_CLUSTER_RECOVERY_H
#define DDRAID_CORE_CLUSTER_RECOVERY_H

#include "daemon/core/door.h"

struct recoveries {
	struct recovery list[DDR_RECOVERIES];
	uint32_t count;
	uint64_t to_resync, total;  /* regions: in orphans.dirty now, and the most it was */
	uint64_t bytes, read_bytes; /* resynced; of these, since they were read */
};

/* It was found to have departed. */
void recovery_lost(struct engine *e, uint32_t node, uint64_t inc);
/* The slot that it had, NO_SLOT: none, or not known. */
uint32_t recovery_slot(struct engine *e, uint32_t node, uint64_t inc);
void recovery_slot_is(struct engine *e, uint32_t node, uint64_t inc, uint32_t slot);
void recovery_fenced(struct engine *e, uint32_t node, uint64_t inc);
/* The leader has read its slot. */
void recovery_read(struct engine *e, uint32_t slot);
/* What is dirty in orphan slots was told. */
void recovery_told(struct engine *e);
/* A whole region was resynced. */
void recovery_region(struct engine *e);
/* Of orphan slots, as far as known here. */
uint64_t regions_to_resync(const struct engine *e);

#endif
