/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lock table, the leader's side (locktab.c). */
#ifndef DDRAID_CORE_CLUSTER_LOCKTAB_H
#define DDRAID_CORE_CLUSTER_LOCKTAB_H

#include "daemon/core/door.h"
#include "daemon/core/htable.h"

struct locktab { /* the leader's */
	struct htable table;
	struct list waiters;
};

/* A round: the table is filled anew by claims. */
void locktab_reset(struct engine *e);
/* A node holds that lock already. Two that can't both hold it are in dispute: it is granted to
 * nobody before all who claim it have released it. */
void locktab_claim(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode);
/* Granted, refused (try_only), or queued, and the holders called back. What the node holds already,
 * in that mode or a stronger one, is granted at once; it holds no more than that then. */
void locktab_request(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode,
		     bool try_only);
void locktab_release(struct engine *e, uint32_t node, uint64_t id);
/* A node that holds what another has waited for longest, since then; 0 = none. */
uint32_t locktab_held_by(const struct engine *e, uint64_t *since_us);

#endif
