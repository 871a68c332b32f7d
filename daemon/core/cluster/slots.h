/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Orphan slots: read, told (slots.c). */
#ifndef DDRAID_CORE_CLUSTER_SLOTS_H
#define DDRAID_CORE_CLUSTER_SLOTS_H

#include "daemon/core/door.h"
#include "daemon/core/rset.h"

#define RD_PAGES 32u        /* of a slot that are read at once: 256 KiB of each member */
#define DIRTY_BITS_MAX 512u /* regions that a Dirty message names one by one */

struct pageinfo {
	uint64_t seq;
	bool stale;            /* it is newer here than on some member */
	bool changed;          /* ... than what is being written */
	bool untold;           /* its dirty regions are others than the nodes were told */
	uint64_t told, before; /* its image that all members have, and the one before */
};

struct slotinfo { /* a slot, as the leader has read it */
	bool known;
	uint32_t owner_node;
	uint64_t owner_inc;
	uint32_t hear_node;  /* whom too few members name to be its owner, 0 = nobody: */
	uint64_t hear_inc;   /* it is not given away */
	uint64_t dead_below; /* R22: see dead_vote */
	uint32_t stale;      /* pages that are */
	bool cleared;        /* ... since bits were cleared */
	bool unlike;         /* members told different things of it */
	bool lost;           /* a page could not be read as a whole: see page_take */
	bool untold;         /* read or written, and no epoch above this one is committed since: */
	uint64_t untold_num; /* some members may have carried this one before */
	struct pageinfo *page;
	struct rset dirty, missed;
};

/* Orphan slots, as every node knows them. */
struct orphans {
	struct rset *dirty; /* slots + 1: dirty in orphan slots, as the leader told */
	bool untold;        /* the leader told of dirty regions, and the geometry was not known */
};

/* The geometry is known. 0, or -ENOMEM. */
int slots_alloc(struct engine *e);
/* One at a time; `known` is set at its end. */
void slot_read(struct engine *e, uint32_t slot);
/* One that was found to be an older copy may be the right one by now. */
void slots_lacking(struct engine *e);
/* The data can do without it. */
bool slots_lacking_may_leave(const struct engine *e, uint8_t lacking);
/* It leaves by the next proposal. */
bool slots_lacking_leaves(const struct engine *e, uint8_t lacking);
bool slots_read(struct engine *e); /* true: all orphan slots are known */
void hearsay_advance(struct engine *e, bool wanted);
/* What the leader told is old. */
void slots_forget(struct engine *e);
/* Leader: tells all what is dirty. */
void slots_announce(struct engine *e);
/* Leader: resyncs what is dirty (resync.c). */
void slots_advance(struct engine *e);
bool slots_rewrite(struct engine *e); /* true: all are on every member */
bool slot_is_owned(const struct engine *e, uint32_t slot);
/* May be given away. */
bool slot_clean(const struct engine *e, uint32_t slot);
bool slots_dirty(const struct engine *e); /* any orphan slot; on the leader */
uint32_t slots_unrecovered(const struct engine *e);
/* A round ends. */
void slots_reset(struct engine *e);
/* What was resynced and not cleared yet is resynced again. */
void slots_doubt(struct engine *e);
/* Another node led meanwhile: all are read again. */
void slots_unknow(struct engine *e);
void slots_dropped(struct engine *e); /* a member has left the map */
void slots_free(struct engine *e);

/* For resync.c. */
void page_stale(struct slotinfo *s, uint32_t page);
void page_announce(struct engine *e, uint32_t slot, uint32_t page);

#endif
