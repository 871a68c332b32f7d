/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the state directory lacked when the daemon began, for the status: arrays of which a record
 * is there and no description, and a list of the forgotten that was damaged. The main thread's.
 */
#ifndef DDRAID_CATALOG_LOST_H
#define DDRAID_CATALOG_LOST_H

#include "daemon/state/store.h"

#define LOST_SHOWN 8u /* at once */

/* After manager_open. 0, or -errno with a sentence. */
int lost_open(char why[STORE_WHY_BYTES]);

/* The i-th that is so still, a sentence with the remedy; false: there are no more. */
bool lost_warning(uint32_t i, char why[STORE_WHY_BYTES]);

/* Likewise, if it is the array of that name. */
bool lost_array(const char *name, char why[STORE_WHY_BYTES]);

/* Likewise, and it is not the array `uuid`, or that is all zeros: a new one. Whoever took its name
 * would write over its record, which says what the newest map is. */
bool lost_other(const char *name, const uint8_t uuid[DDR_UUID_BYTES], char why[STORE_WHY_BYTES]);

#endif
