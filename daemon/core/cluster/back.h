/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a member that is back has of this node's slot (back.c). */
#ifndef DDRAID_CORE_CLUSTER_BACK_H
#define DDRAID_CORE_CLUSTER_BACK_H

#include "daemon/core/door.h"

struct dev;
struct peer;

struct back_page {                      /* of a page of the own slot */
	uint64_t told[DDR_MAX_MEMBERS]; /* the newest image that each has acknowledged */
	uint32_t sent_dev[DDR_MAX_MEMBERS], sent_ups[DDR_MAX_MEMBERS]; /* by these connections */
	uint32_t older;  /* members in the map that have come back with an older one, */
	uint32_t unread; /* ... or with one that can't be read */
};

struct back {
	struct {
		uint8_t uuid[DDR_UUID_BYTES]; /* the member that page[].told is about */
		uint64_t instance;            /* of its exporter */
		uint64_t count;               /* of images that it has acknowledged */
	} told[DDR_MAX_MEMBERS];
	struct back_page *page; /* log_pages */
	uint32_t older, unread; /* members with page[].older, page[].unread */
};

const struct peer *member_older_by(const struct engine *e, uint8_t member); /* NULL: nobody */
/* It compares what the member carries, or waits for what may land there (R5). NULL: nobody does. */
const struct peer *member_looked_at_by(const struct engine *e, uint8_t member);
bool member_doubted(const struct engine *e, uint8_t member);
/* The geometry is known. 0, or -ENOMEM. */
int back_alloc(struct engine *e);
void back_free(struct engine *e);
void back_forget(struct engine *e, uint32_t page); /* the slot is taken anew */
void back_tell(const struct engine *e, uint32_t *older, uint32_t *looking);
/* The map has dropped it: what it may lack counts as missed. */
void back_dropped(struct engine *e, uint8_t member);
void back_lacks(struct engine *e, uint8_t member); /* others' pages tell that it is older */
void back_up(struct dev *d);
/* What is connected there is known by its superblock, and is that member. */
void back_bound(struct engine *e, struct dev *d, uint8_t member);
/* Another incarnation: all is to be looked at anew. */
void back_restart(struct dev *d);
void back_advance(struct engine *e);

#endif
