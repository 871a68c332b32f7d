/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The list of the forgotten: UUIDs of arrays that must not come back, by whatever a node that was
 * away while they were forgotten tells of them. An array's UUID is drawn at `create` and never
 * used again, so being on the list is final.
 *
 * It holds the newest STORE_MAX_FORGOTTEN, by the time that the first node gave; those of arrays
 * that were used here before all others, which a broken node may have made up (`by`: who told it).
 *
 *  - An array that was used here always finds room. It takes the place of a stranger, else of the
 *    oldest. To forget a further one is refused rather than to drop one that is younger than
 *    FORGOTTEN_DAYS.
 *  - Strangers have the room that is left, and of one node no more than FORGOTTEN_OF_NODE. Where
 *    there is no room, who has told most of them loses his oldest.
 *
 * An entry that was dropped does not come back and drop another: in its own class it is older than
 * all that are there. What an entry's end means: a node that was away all the time since, may bring
 * that array's description back, as long as no other node that has the entry is there.
 *
 * In memory only; manager_forget.c writes it down. The main thread's.
 */
#ifndef DDRAID_CATALOG_FORGOTTEN_H
#define DDRAID_CATALOG_FORGOTTEN_H

#include "daemon/state/store.h"

#define FORGOTTEN_DAYS 30u
#define FORGOTTEN_OF_NODE (STORE_MAX_FORGOTTEN / 2u)

struct forgotten {
	uint32_t count;
	struct store_forgotten entry[STORE_MAX_FORGOTTEN]; /* oldest first */
};

bool forgotten_has(const struct forgotten *f, const uint8_t uuid[DDR_UUID_BYTES]);
/* True if it is on the list now and was not before. `keep`: though it is the oldest of its kind. */
bool forgotten_add(struct forgotten *f, const struct store_forgotten *e, bool keep);
/* A further one that was used here can be added at now_s without dropping a young one. */
bool forgotten_room(const struct forgotten *f, uint64_t now_s);

#endif
