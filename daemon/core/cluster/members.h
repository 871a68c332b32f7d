/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which members this node can use (members.c). */
#ifndef DDRAID_CORE_CLUSTER_MEMBERS_H
#define DDRAID_CORE_CLUSTER_MEMBERS_H

#include "daemon/core/door.h"

/* This node can't use it any more: it gets nothing until the map says otherwise. */
void member_bad(struct engine *e, uint8_t member, enum member_state want);
/* Bad, but only by an error of a read, or of a write without FUA. */
bool member_misread(const struct engine *e, uint8_t member);
/* R3: the map can't do without it. */
bool member_indispensable(const struct engine *e, uint8_t member);
/* Members that this node reaches and can use. */
uint32_t devs_up_mask(const struct engine *e);
/* Only the life before this one has lost it. */
bool member_lost_earlier(const struct engine *e, uint8_t member);
void misread_advance(struct engine *e); /* who was given up for an error, and is needed now */

#endif
