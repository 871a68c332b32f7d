/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an operator asks for: fail, add, re-add, stop (admin.c). */
#ifndef DDRAID_CORE_CLUSTER_ADMIN_H
#define DDRAID_CORE_CLUSTER_ADMIN_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/cluster/round.h"
#include "daemon/core/door.h"

/* the leader's: what somebody asked for */
struct admin_job {
	uint64_t tag, since, seen; /* seen: mask by index in peer */
	uint32_t node;
	bool used, opened, anew, looked, placed, written, checked, entered;
	uint32_t lands;    /* a node that waits for what may land (admin_look); 0 = none */
	uint32_t dev, ups; /* anew: which one is, and the connection before that */
	uint64_t looked_us, written_us;
	uint64_t before; /* see EV_ADMIN */
	uint8_t member, cmd;
	char uri[DDR_URI_BYTES];
	uint8_t uuid[DDR_UUID_BYTES];
};

/* leader: the superblocks of an `add`, also of one that a new round has ended */
struct placing {
	bool busy;
	uint8_t block[SB_COPIES][DDR_BLOCK_BYTES];
	struct iovec iov[SB_COPIES];
	struct batch batch;
};

/* every node's: a device to look at */
struct adding {
	bool used, reread;
	bool waits;           /* for what may land */
	uint64_t answered_us; /* by the connection of that number */
	uint32_t ups;
	struct round_id term;
	char uri[DDR_URI_BYTES];
	uint8_t uuid[DDR_UUID_BYTES];
};

/* the node's that was asked */
struct asked {
	bool used;
	uint64_t tag;
	struct round_id term;
};

struct admin {
	struct admin_job job;
	struct placing placing;
	struct adding adding;
	struct asked asked;
	uint64_t stop_tag;
	uint64_t uuid_count;          /* of members added by this incarnation */
	char open_uri[DDR_URI_BYTES]; /* what OUT_OPEN points to */
};

/* EV_ADMIN: on the node that was asked. */
void admin_submit(struct engine *e, const struct event *ev);
/* The leader's steps of what was asked. */
void admin_advance(struct engine *e);
/* Every node: a device that the leader asks about. */
void admin_look(struct engine *e);
/* A write was cut off: what a device had answered before that tells nothing of it. */
void admin_cut_off(struct engine *e);
/* A round has ended, and with it what was asked in it. */
void admin_reset(struct engine *e);
/* Admin messages. */
void admin_message(struct engine *e, uint32_t from, const nodemsg *m);

#endif
