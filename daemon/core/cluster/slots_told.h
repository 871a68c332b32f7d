/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a member must carry of orphan slots (slots_told.c). */
#ifndef DDRAID_CORE_CLUSTER_SLOTS_TOLD_H
#define DDRAID_CORE_CLUSTER_SLOTS_TOLD_H

#include "daemon/core/door.h"

struct slotinfo;

/* Of an orphan slot, and as a member had it when it left the map. */
struct told_page {
	uint32_t slot, page;
	uint64_t told, before;
};

struct slot_told {
	uint8_t uuid[DDR_UUID_BYTES];
	uint32_t count;
	struct told_page *page;
};

/* Leader: a map is committed, and drops these members. */
void slots_told_committed(struct engine *e, const struct map *old, uint32_t dropped);
/* Its page was written: no epoch tells of that yet. */
void slot_untold(const struct engine *e, struct slotinfo *s);
/* Nothing is known of member m any more. */
void slots_told_forget(struct engine *e, uint8_t m);
void slots_told_reset(struct engine *e);
/* What member m must carry of orphan slots; NULL = nothing that is known here. */
const struct slot_told *slots_told(const struct engine *e, uint8_t m);
/* Members of which something is known. */
uint32_t slots_told_mask(const struct engine *e);
/* Leader: one that leaves now has to be compared when it is back. */
bool slots_tell(const struct engine *e, uint8_t m);
/* Some node is going to do that; or once it has a slot. */
bool slots_compared(const struct engine *e, uint8_t m);
/* Somebody will, once it has a slot. */
bool slots_compare_waits(const struct engine *e, uint8_t m);

#endif
