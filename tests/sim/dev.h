/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Member requests and the connections that carry them: the fake adapter behind ports/member.h. It
 * has latency, reorders requests, and carries out what a broken connection had under way late, or
 * not at all. Its discipline (C9) is checked here.
 */
#ifndef TESTS_SIM_DEV_H
#define TESTS_SIM_DEV_H

#include "tests/sim/common.h"

enum exec_state { EXEC_NOT, EXEC_HALF, EXEC_DONE, EXEC_NEVER };
struct req {
	bool used;
	bool orphan;   /* nobody waits for its answer any more */
	bool answered; /* the answer is on its way to the engine, or was given */
	bool given;    /* EV_DEV_DONE was delivered, or never will be */
	bool late;     /* counted as a late one */
	enum exec_state exec;
	uint32_t node, ii, dev, disk;
	uint64_t uid, gen;
	uint64_t id;
	enum dev_op op;
	enum dev_kind kind;
	uint32_t flags, bytes, half;
	uint64_t offset, region;
	const struct iovec *iov;
	uint32_t iov_count;
	uint8_t *buf;
	uint64_t issued_us, lingers_until_us, wseq[2];
	uint32_t way; /* to an older copy, 0 = not (oldcopy.c) */
	int err;
};
struct devslot { /* the runtime's number for a device, on one node */
	bool used, up;
	uint32_t disk;
	bool cut; /* no network between this node and this exporter */
	bool trying;
	bool down_due;  /* EV_DEV_DOWN was not delivered yet */
	uint32_t up_ii; /* the incarnation that connected it */
	bool half_open; /* the exporter was off since, and the node does not know */
};

/* OUT_DEV_IO, OUT_DEV_CANCEL of node n's engine. */
void dev_submit(struct sim *s, struct simnode *n, const struct out *o);
void dev_cancel(struct sim *s, struct simnode *n, uint32_t dev);
/* EV_DEV_DONE is being given to its engine: moves data, checks buffers. */
void dev_give(struct sim *s, uint32_t req, int *err);
void dev_drop_given(struct sim *s, uint32_t req); /* the engine is gone */

/* The node's number for this disk; NONE: it has none. */
uint32_t dev_slot_of_disk(const struct simnode *n, uint32_t disk);
/* The node shall use this disk: it gets a number, and connects after delay_us. */
void dev_open(struct sim *s, struct simnode *n, uint32_t disk, uint64_t delay_us);
/* It connects then, if the exporter can be reached; else when that changes, by another call. */
void dev_try(struct sim *s, struct simnode *n, uint32_t dev, uint64_t delay_us);
void dev_try_disk(struct sim *s, uint32_t disk); /* all nodes, soon */
/* The connection breaks now. What was under way ends with `err`, and may take effect late. */
void dev_break(struct sim *s, struct simnode *n, uint32_t dev, int err);
void dev_break_disk(struct sim *s, uint32_t disk, int err); /* of all nodes */
/* `trusted`: of all members at once, with all nodes: what is left counts as true. */
void dev_power_loss(struct sim *s, uint32_t disk, bool trusted);

/* What node n has under way when its daemon ends: nobody waits for it any more. */
void dev_orphan_all(struct sim *s, struct simnode *n);
void dev_unsent(struct sim *s, struct simnode *n); /* what has not arrived never will */
void dev_finish_inc(struct sim *s, uint32_t ii);   /* the fence: nothing of it is left */
void dev_linger(struct sim *s, const struct simnode *n, uint64_t us); /* what it writes now */
uint32_t dev_writes_at(const struct sim *s, const struct simnode *n); /* not on the medium yet */
bool dev_under_way(const struct sim *s, const struct simnode *n);     /* EV_DEV_DONE is owed */

#endif
