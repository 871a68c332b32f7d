/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A batch: member requests whose owner is called once, when all of them have ended (member_io.c).
 *
 * batch_init once; then for each use batch_open, requests, batch_close. When the last request has
 * ended, `done` is called, maybe within batch_close, and b->ok and b->failed say which members were
 * reached. A request whose member can't be used ends later in the same step, never inside the call.
 */
#ifndef DDRAID_CORE_DATA_BATCH_H
#define DDRAID_CORE_DATA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct engine;

struct batch {
	uint32_t pending;
	uint32_t ok, failed; /* masks by member (by device for raw requests) */
	uint32_t unreadable; /* of those that failed: a bad spot of a member that must stay; */
	uint32_t full;       /* no space there */
	bool sent;           /* a request of it went to a member */
	bool consumer;       /* a consumer waits for it, and may be told of an error instead */
	int err;             /* of the last failure */
	void (*done)(struct engine *e, struct batch *b);
};

void batch_init(struct batch *b, void (*done)(struct engine *, struct batch *));
void batch_open(struct batch *b);
void batch_close(struct engine *e, struct batch *b);

#endif
