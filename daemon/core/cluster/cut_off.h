/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Writes that nobody heard the end of, and that may still land (cut_off.c). */
#ifndef DDRAID_CORE_CLUSTER_CUT_OFF_H
#define DDRAID_CORE_CLUSTER_CUT_OFF_H

#include "daemon/core/cluster/devs.h"

/* For so long may land what was cut off, and a node may take to reach a member again. */
uint64_t reach_us(const struct engine *e);
/* What was cut off on its way to member m by other ways than d may still land. */
bool other_way_lands(const struct engine *e, const struct dev *d, uint8_t m);
/* ... and d was not read since it was cut off: its exporter may be frozen. */
bool other_way_unanswered(const struct engine *e, const struct dev *d, uint8_t m);
/* What is at `dev` may be any member that a write was on its way to, and it may still land. It has
 * answered first at that time; 0: not yet. */
bool any_cut_off(const struct engine *e, uint32_t dev, uint64_t answered_us);
/* What this node has sent may land anywhere. */
bool writes_may_land(const struct engine *e);
/* Its superblock was read: has what was cut off there landed, or is it the other way? */
void cut_answered(struct engine *e, struct dev *d);
/* Forgets what has landed. */
void cut_offs_advance(struct engine *e);

#endif
