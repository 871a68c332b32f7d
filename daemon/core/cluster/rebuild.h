/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The rebuild of a member, by the leader (rebuild.c). */
#ifndef DDRAID_CORE_CLUSTER_REBUILD_H
#define DDRAID_CORE_CLUSTER_REBUILD_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/cluster/pass.h"
#include "daemon/core/door.h"
#include "daemon/core/rset.h"

enum rebuild_state { RB_IDLE, RB_GATHER, RB_COPY, RB_FLUSH, RB_LOG, RB_QUIESCE, RB_PROMOTE };

struct rebuild {
	enum rebuild_state state;
	uint8_t member;
	bool partial;
	struct pass pass; /* copies, and flushes the member */
	struct rset set;  /* regions to copy: partial */
	uint64_t next, done, total;
	uint64_t checkpoint;
	uint64_t map_num;
	uint64_t gather_us;  /* GATHER, or LOG, since */
	uint64_t quiesce_us; /* a Quiesce was taken back: not before this */
	uint32_t quiesce_tries;
	uint32_t quiesce_node; /* who had not answered then */
};

/* Once in an incarnation. */
void rebuild_setup(struct engine *e);
/* Leader. */
void rebuild_advance(struct engine *e);
/* What is under way is given up. */
void rebuild_reset(struct engine *e);
/* Missed messages: what a node has missed. */
void rebuild_missed(struct engine *e, uint32_t from, const nodemsg *m);
/* A full copy has come further than the map says. */
bool rebuild_keeps(const struct engine *e);
/* A node that has not told what is missed, or has not read its slot yet; 0: none. */
uint32_t rebuild_waits(const struct engine *e, const char **why);

#endif
