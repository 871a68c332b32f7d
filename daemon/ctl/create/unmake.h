/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Creates that were cut off: by the daemon's end, its node's, or a member that could not be reached
 * to undo what had been written. NAME.making tells of each. What its array has left on the members
 * is taken away as soon as they can be reached; until then the status warns. The main thread's.
 */
#ifndef DDRAID_CTL_CREATE_UNMAKE_H
#define DDRAID_CTL_CREATE_UNMAKE_H

#include <stdint.h>

#include "daemon/state/store.h"

/* At the daemon's start: those that the state directory tells of. 0 or -errno with a sentence. */
int unmake_open(char why[STORE_WHY_BYTES]);
/* One that has just failed and left something. */
void unmake_add(const struct store_array *desc);
/* The name of one that is being undone at this moment, or soon is for the first time; NULL: none.
 */
const char *unmake_busy(void);
/* What can't be undone yet; NULL: there are no more. */
const char *unmake_warning(uint32_t i);

#endif
