/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Locks of this node: what it holds, what it has asked for, who waits for it, and who is in.
 *
 * A lock says who may be somewhere; marks say what is to be recovered there. They are two things,
 * and not of the same size in every array: a lock covers a *grain*, which the geometry says
 * (geo_lock_of). Today the grain is the region, in every array, so each region has a lock of its
 * own, which lives as long as the region does.
 *
 *	state	held	wanted		the manager, or the leader's table,
 *	IDLE	none	none		owes nothing
 *	ASKED	none	a mode		owes an answer
 *	EARLY	none	a mode		has granted it, and that does not count yet (LOCK_EXTERNAL)
 *	HELD	a mode	none		owes nothing; cached until called back, or given up
 *	TRIES	CW	EX		owes the answer to a try
 *	TRIED	CW	EX		has granted the try, and that does not count yet
 *
 *	IDLE  -> ASKED			it is asked for
 *	ASKED -> HELD, EARLY, IDLE	granted; granted, and does not count yet; refused
 *	EARLY -> HELD			it counts
 *	HELD  -> IDLE, TRIES		given up; EX is tried
 *	TRIES -> HELD, TRIED		granted, or refused; granted, and does not count yet
 *	TRIED -> HELD			it counts
 *
 * One request at a time, and never an upward conversion that waits: CW is released before EX is
 * queued for. Only a *try* stands beside CW.
 *
 * A called back lock lets nobody in but those who waited when it came (else two busy nodes would
 * pass it to and fro without either doing anything), and is given up when the last of them is done.
 * Its jobs have their turn first, see turn_over().
 *
 * What happens to a lock touches its own region, the lists that it is in, and the dirty log's page,
 * never another lock. Only a round goes through all locks, once, for its claims and what it asks
 * again.
 */
#ifndef DDRAID_CORE_DATA_LOCK_H
#define DDRAID_CORE_DATA_LOCK_H

#include "daemon/core/door.h"
#include "daemon/core/htable.h"

enum lock_state { LK_IDLE, LK_ASKED, LK_EARLY, LK_HELD, LK_TRIES, LK_TRIED };

struct op;

struct lock {
	struct hentry hash; /* data.lock_of, by id */
	struct list all;    /* data.locks, in the order in which they came to be */
	struct list early;  /* data.locks_early */
	struct list busy;   /* data.locks_busy: it has a job running */
	uint64_t id;        /* LOCK_ID() */
	uint64_t serial;    /* so many locks came to be before it */
	struct region *r;   /* what it covers */
	enum lock_state state;
	enum lock_mode held, wanted;
	bool called_back;
	struct list queue;   /* ops that wait for it, or for an overlapping op */
	struct list jobs;    /* jobs that want EX, the first one may be running */
	struct job *running; /* the job that has it to itself */
	uint32_t users;      /* ops that are in */
	uint32_t admit;      /* ops of the queue that a fresh grant lets in although called back */
	uint64_t asked_us;   /* since when `wanted` is wanted */
	uint64_t turn_us;    /* what its jobs may take of EX although it is called back */
	uint64_t turn_end;   /* of that; 0: no job has begun since the grant */
	uint64_t settle_num; /* EARLY, TRIED: it counts when this Settle is answered by all */
};

/* The lock's name that covers a stripe. */
uint64_t lock_id_of(const struct engine *e, uint64_t stripe);
/* NULL: this node has nothing to do with it. */
struct lock *lock_find(const struct engine *e, uint64_t id);
/* Of a region that has none yet. */
struct lock *lock_new(struct engine *e, struct region *r, uint64_t id);
/* Nothing may be held or asked for, unless the incarnation ends. Jobs that wait are let go. */
void lock_free(struct engine *e, struct lock *l);
/* Is an answer due, or does one not count yet? */
bool lock_asks(const struct lock *l);
/* Asks for EX, if nobody else holds it. It is HELD, in CW or PR. region_tried() has the answer. */
void lock_try_ex(struct engine *e, struct lock *l);
/* It is HELD, and nobody is in. */
void lock_give_up(struct engine *e, struct lock *l);
/* R5: may a write that has the lock not begin now? It is remembered that one waits (see
 * regions_advance). */
bool lock_writes_wait(struct engine *e, const struct lock *l);
/* Level-triggered: lets in who may come, asks, gives up. The region may be gone after it. */
void lock_kick(struct engine *e, struct lock *l);
/* A grant of an external manager counts when all have answered. */
void locks_advance(struct engine *e);

/* Jobs: each has its region to itself, in turns. */
void lock_job_add(struct engine *e, struct job *j);
void lock_job_done(struct engine *e, struct job *j);
/* Between two windows of the running job; true: it has lost the lock, and comes again. */
bool lock_yield(struct engine *e, struct lock *l);

#endif
