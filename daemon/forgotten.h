/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The list of the forgotten: UUIDs of arrays that must not come back, by whatever a node that was
 * away while they were forgotten tells of them. An array's UUID is drawn at `create` and never
 * used again, so being on the list is final.
 *
 * It holds the newest STORE_MAX_FORGOTTEN, by the time that the first node gave. Every node has the
 * same list once all have heard each other, whatever the order: a union, cut at the old end. So an
 * entry that was dropped does not come back and drop another. What an entry's end means: a node
 * that was away all the time since, may bring that array's description back. To forget a further
 * one is refused rather than to drop one that is younger than FORGOTTEN_DAYS.
 *
 * In memory only; manager.c writes it down. The main thread's.
 */
#ifndef DDRAID_FORGOTTEN_H
#define DDRAID_FORGOTTEN_H

#include "daemon/store.h"

#define FORGOTTEN_DAYS 30u

struct forgotten {
	uint32_t count;
	struct store_forgotten entry[STORE_MAX_FORGOTTEN]; /* oldest first */
};

bool forgotten_has(const struct forgotten *f, const uint8_t uuid[DDR_UUID_BYTES]);
/* True if it is on the list now and was not before. `keep`: though it is the oldest. */
bool forgotten_add(struct forgotten *f, const struct store_forgotten *e, bool keep);
/* A further one can be added at now_s without dropping a young one. */
bool forgotten_room(const struct forgotten *f, uint64_t now_s);

#endif
