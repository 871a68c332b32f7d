/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who joins reads no member that has lost its cache unknown to others (vouch.c). */
#ifndef DDRAID_CORE_CLUSTER_VOUCH_H
#define DDRAID_CORE_CLUSTER_VOUCH_H

#include "daemon/core/door.h"

struct dev;
struct peer;

struct vouch {
	uint32_t asks, first; /* this node's questions: the newest, this incarnation's first */
};

const struct peer *vouch_lacks(const struct engine *e); /* this node waits for it; NULL: for none */
void vouch_anew(struct engine *e, struct dev *d);       /* was connected */
void vouch_advance(struct engine *e);

#endif
