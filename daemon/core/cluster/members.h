/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which members this node can use (members.c). */
#ifndef DDRAID_CORE_CLUSTER_MEMBERS_H
#define DDRAID_CORE_CLUSTER_MEMBERS_H

#include "daemon/core/door.h"

struct members {
	uint8_t bad[DDR_MAX_MEMBERS];     /* state that this node wants for a member, 0 = none */
	bool read_error[DDR_MAX_MEMBERS]; /* bad, but only for an error of a read, or of a write
					  without FUA: may be taken back */
	uint64_t refused_us[DDR_MAX_MEMBERS]; /* likewise: the first time */
	uint64_t
	    write_again_us[DDR_MAX_MEMBERS]; /* read_error: for a write, tried again then; 0: for
						     a read */
	struct member_error error[DDR_MAX_MEMBERS]; /* what it answered last */
	uint64_t bad_us[DDR_MAX_MEMBERS];           /* when it was last reported */
	uint64_t bad_since_us[DDR_MAX_MEMBERS];
	uint32_t lost_earlier; /* suspect, but only since the incarnation before this one lost it:
				  a member that this one has lost leaves first */
	uint64_t bad_instance[DDR_MAX_MEMBERS]; /* of its exporter, when it was lost (R17); 0 =
						   unknown */
};

/* This node can't use it any more: it gets nothing until the map says otherwise. */
void member_bad(struct engine *e, uint8_t member, enum member_state want);
/* Bad, but only by an error of a read, or of a write without FUA. */
bool member_read_error(const struct engine *e, uint8_t member);
/* R3: the map can't do without it. */
bool member_indispensable(const struct engine *e, uint8_t member);
/* Without this one, as many members in sync can be used here as the data needs. */
bool others_suffice(const struct engine *e, uint8_t member);
/* Members that this node reaches and can use. */
uint32_t devs_up_mask(const struct engine *e);
/* Only the incarnation before this one has lost it. */
bool member_lost_earlier(const struct engine *e, uint8_t member);
void misread_advance(struct engine *e); /* who was given up for an error, and is needed now */

#endif
