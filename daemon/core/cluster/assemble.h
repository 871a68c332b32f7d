/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The map that a start goes on with (assemble.c). */
#ifndef DDRAID_CORE_CLUSTER_ASSEMBLE_H
#define DDRAID_CORE_CLUSTER_ASSEMBLE_H

#include "daemon/core/door.h"

#define EXTENDED_INSYNC                                                                            \
	"fewer members in sync are reachable than the data needs, but for one that was too small " \
	"for a while, and what lay beyond its end may be gone; connect the others, or stop the "   \
	"array on all nodes, start it, and check the data"

#define MEMBER_NEEDED_OLDER                                                                        \
	"members: one that the data needs is an older copy of itself; connect the right one"

struct assembly {
	bool doubt;        /* another node says that an epoch was committed without this one, */
	uint64_t doubt_us; /* since then */
	struct lineage
	    past;         /* epochs that were committed: what the members carry is of this line */
	uint64_t sure_us; /* when this node knew last that the array had not gone on without it */
};

/* The fresh leader. True: e->map is what the array was last, and lead.requested names what must
 * leave it. */
bool assemble(struct engine *e);
/* The leader serves, and may have slept: did the others go on without it? True: no. */
bool array_still_ours(struct engine *e);
/* One node says that they did (R6). Until that is settled nothing is used here. */
void epoch_doubt(struct engine *e);
/* ... settles it, by what the members carry. */
void doubt_advance(struct engine *e);
/* It serves, or has a slot to do so. */
bool takes_part(const struct engine *e);
/* It is newer than what this node goes by, and this node has not acknowledged it. */
bool epoch_unknown(const struct engine *e, const struct epoch *ep);
/* The newest that is believed, or NULL. */
const struct superblock *sb_newest(const struct engine *e);

#endif
