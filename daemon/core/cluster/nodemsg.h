/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Messages between nodes, as protobuf-c has them (proto/node.proto): in and out (msg.c). */
#ifndef DDRAID_CORE_CLUSTER_NODEMSG_H
#define DDRAID_CORE_CLUSTER_NODEMSG_H

#include "daemon/core/door.h"

struct peer;

typedef struct Ddraid__NodeMsg nodemsg;

struct rejected { /* messages that broke a rule */
	uint64_t count;
	uint32_t node; /* that sent the last one, */
	const char *why;
};

/* Asks for a round. */
void nodemsg_join(struct engine *e);
/* To all, this node included, in one order. */
void msg_send(struct engine *e, nodemsg *m);
/* EV_MSG: checked (msgcheck.c), then taken. */
void msg_receive(struct engine *e, const struct event *ev);
/* It broke a rule. certain: whatever this node knows; then its sender is evicted. */
void msg_rejected(struct engine *e, struct peer *p, uint64_t inc, const char *why, bool certain);

#endif
