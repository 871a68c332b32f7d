/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The own slot of the dirty log, as the cluster sees it (own_slot.c). */
#ifndef DDRAID_CORE_CLUSTER_OWN_SLOT_H
#define DDRAID_CORE_CLUSTER_OWN_SLOT_H

#include "daemon/core/door.h"

struct own_slot {
	bool joined_sent;
	bool missed_due; /* the leader waits for what this node's slot has missed: R15 */
};

void own_slot_advance(struct engine *e);
bool slot_names_us(
    const struct engine *e); /* R4: there they find whom to fence if this node dies */
void slot_tell_missed(struct engine *e);

#endif
