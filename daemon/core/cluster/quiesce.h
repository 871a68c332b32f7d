/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A moment without writes, before a member is promoted (quiesce.c). */
#ifndef DDRAID_CORE_CLUSTER_QUIESCE_H
#define DDRAID_CORE_CLUSTER_QUIESCE_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/door.h"

struct quiesce {
	bool on, answered; /* every node's: begins no write; has said that none is left */
	uint64_t num;
	bool wanted;              /* leader: */
	uint64_t asked, asked_us; /* the newest that it has sent */
};

bool epoch_promotes(const struct engine *e); /* the proposal under way does */
void quiesce_ask(struct engine *e);
void quiesce_take_back(struct engine *e);
/* A node that has not answered yet, 0: all have. */
uint32_t quiesce_lacks(const struct engine *e);
/* An epoch was committed, or another round is Ready. */
void quiesce_end(struct engine *e);
/* Quiesce, Quiesced. */
void quiesce_message(struct engine *e, uint32_t from, const nodemsg *m);
void quiesce_advance(struct engine *e);

#endif
