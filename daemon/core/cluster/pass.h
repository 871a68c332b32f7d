/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pass: the leader's work through the regions of the array, in the background. The resync of dead
 * nodes' regions (resync.c) and the rebuild of a member (rebuild.c) are passes.
 *
 *   state    what is under way            next state
 *   IDLE     nothing                      REGION, or FLUSH if one is due
 *   REGION   a job has a region           IDLE when it has ended, DRAIN if it is cancelled
 *   FLUSH    the members flush            IDLE when they have answered, DRAIN if it is cancelled
 *   DRAIN    what was cancelled ends      IDLE
 *
 * The order that keeps data safe is the pass's, not its user's (R13):
 *
 * 1. A job (window.c) has a region under EX, and writes what has to be written.
 * 2. A FLUSH goes to all members that the jobs write to. No job of the pass runs meanwhile, so it
 *    covers all that they have written.
 * 3. Only if all of these members have flushed is the user told (`flushed`): it clears bits, or
 *    moves its cursor. Else it is not, and flush_due() asks for the next one.
 * 4. Of what was under way at a pass_cancel() nothing is told.
 *
 * A user is a `struct pass`, a table of hooks, and its own notes: what is done and not flushed yet,
 * and where it stands. It calls pass_init at its setup, pass_advance while it leads, pass_cancel
 * when its notes are void (a round ends, or the members' caches are in doubt), pass_free at the
 * end. A hook is called within pass_advance, or when a job or a FLUSH ends; then nothing is under
 * way. It may call pass_cancel, but begin no job and no FLUSH. Those that only ask may be called as
 * often as the engine likes.
 *
 * A scrub, as an example (tests/unit/test_pass.c has a small one). `struct scrub` has a pass and a
 * cursor, and its place in struct cluster; its hooks are:
 *
 *   kind         JOB_SCRUB, new in window.c: reads all windows, compares, mends what it may
 *   may_run      no member is missing, and enough time has gone by since the last region. A pass
 *                has no rate of its own; it asks again at the next event, and ticks come often
 *   next         the cursor
 *   region_done  cursor = j->region + 1; counts what the job has found
 *   flush_due    something was mended since the last FLUSH, and that is many regions ago, or this
 *                is the end, or the node stops
 *   flushed      what was mended counts; the cursor may be written down
 *   rest         if the cursor is at the end: the scrub is over
 */
#ifndef DDRAID_CORE_CLUSTER_PASS_H
#define DDRAID_CORE_CLUSTER_PASS_H

#include "daemon/core/door.h"

enum pass_state { PASS_IDLE, PASS_REGION, PASS_FLUSH, PASS_DRAIN }; /* pass_move() */

struct pass_ops {
	const char *name;   /* for the trace: "the resync" */
	enum job_kind kind; /* what its jobs do with a region */
	/* A FLUSH counts only in the epoch in which it was sent. For a pass whose member may break
	 * off and be let in again, without what it had in its cache. Else it counts for as long as
	 * nothing cancels it, if all have flushed that the map writes to by then. */
	bool one_epoch;
	/* Asks: may it go on now? The members are there. May begin what has to come first, if that
	 * is no part of the pass. NULL: always. */
	bool (*may_run)(struct engine *e);
	/* Asks: which region is next? geo.regions: none, for now or for good. */
	uint64_t (*next)(struct engine *e);
	/* The job of a region has ended. j->stripe < j->end: before its end, since a change of the
	 * map has left it nothing to do. Not called if it met a bad spot: the pass waits then
	 * (again_us), and asks for the next region anew. */
	void (*region_done)(struct engine *e, const struct job *j);
	/* Asks: is a FLUSH due before anything else? next: as next() has just said. stops: this
	 * node leaves, so no region is begun any more. */
	bool (*flush_due)(struct engine *e, uint64_t next, bool stops);
	/* All members have flushed what was done before the FLUSH was sent; also after the user's
	 * own pass_flush(). */
	void (*flushed)(struct engine *e);
	/* No FLUSH is due, and no region begins: none is left, or the node stops. */
	void (*rest)(struct engine *e, uint64_t next);
};

struct pass {
	const struct pass_ops *ops;
	enum pass_state state;
	uint32_t target;    /* the user's: a mask of members that it writes to; 0: all of the map */
	uint64_t again_us;  /* a bad spot was in the way: not before this */
	uint64_t flush_num; /* epoch in which the FLUSH was sent */
	struct job job;
	struct batch batch; /* of the FLUSH */
};

/* Once in an incarnation, of one that is all zero. `ops` stays as it is for as long. */
void pass_init(struct pass *p, const struct pass_ops *ops);
/* The end: frees what a job that has not ended holds. Nothing calls back any more. */
void pass_free(struct pass *p);
/* Level-triggered, on the leader: begins the next region or a FLUSH, or has the user rest. */
void pass_advance(struct engine *e, struct pass *p);
/* Nothing of it is under way, no bad spot makes it wait, and the members that it writes to are
 * there. pass_advance looks itself; this is for steps of the user's before and after its loop. */
bool pass_ready(struct engine *e, struct pass *p);
/* A FLUSH for such a step; only if it is ready. */
void pass_flush(struct engine *e, struct pass *p);
/* A FLUSH is under way, whether or not it counts. */
bool pass_flushing(const struct pass *p);
/* What is under way counts no more: neither its region nor its FLUSH is told. The user drops its
 * notes of what was done and not flushed. */
void pass_cancel(struct engine *e, struct pass *p);

#endif
