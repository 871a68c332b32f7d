/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stripes under way: neighbouring whole stripes of one region, and what is read, computed and
 * written for them. A front-end request's part (io.c) and a window of a job (window.c) each own
 * one. A write of whole stripes is the case that reads nothing.
 *
 *   state     what is in memory                             next state
 *   EMPTY     nothing that counts                           READING, READY
 *   READING   a batch fetches `rows`                        READ, EMPTY if one of them failed
 *   READ      `rows`, or the user's data in full            READY, READING, EMPTY
 *   READY     all that there is to write, or to hand over   WRITING, EMPTY
 *   WRITING   a batch writes                                READY
 *
 * The owner decides what to read, what to compute and where to write, and calls one function for
 * each step; `done` is called when a batch has ended, and finds its masks in s->batch. What is
 * computed once stays: what goes out again, after a member was lost or a map has changed, are the
 * same bytes (R26).
 *
 * Memory has one of two layouts (plan.h): the user's data in order, with rows of parity beside it;
 * or a window, a row for each member. All run on the engine's thread.
 */
#ifndef DDRAID_CORE_DATA_STRIPE_H
#define DDRAID_CORE_DATA_STRIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/data/batch.h"
#include "daemon/core/data/plan.h"
#include "daemon/core/engine.h"

enum stripes_state { STRIPES_EMPTY, STRIPES_READING, STRIPES_READ, STRIPES_READY, STRIPES_WRITING };

struct stripes {
	uint64_t first;
	uint32_t count;
	enum stripes_state state; /* stripes_move() */
	bool consumer;            /* a consumer waits for it: struct batch */
	bool zeroes;              /* what is written is zeroes, and there is no memory for it */
	uint32_t rows;            /* by member: asked for, and from READ on in memory */
	uint8_t *user;            /* the owner's, stripe by stripe; NULL: it has a window */
	void *mem;                /* parity of `user`, or the window */
	size_t mem_bytes;
	struct plan plan;
	struct batch batch; /* its masks: of the batch that ended last */
	void (*done)(struct engine *e, struct stripes *s);
};

/* Others than those before, or the same anew: EMPTY. No batch is under way. */
void stripes_set(struct stripes *s, uint64_t first, uint32_t count);
/* As new, but for the memory that it has. */
void stripes_renew(struct stripes *s);
void stripes_free(struct stripes *s);

/* Memory, kept where there is enough. False: there is none. For `count` stripes: */
bool stripes_mem_user(struct stripes *s, const struct geo *g, uint32_t count, bool parity);
bool stripes_mem_window(struct stripes *s, const struct geo *g, uint32_t count);

bool stripes_busy(const struct stripes *s); /* a batch is under way */

/* EMPTY -> READY: parity of the user's data, and where all of it goes. */
void stripes_encode(struct engine *e, struct stripes *s);
/* EMPTY -> READY: zeroes, in any number of stripes. */
void stripes_zero(struct stripes *s);
/* -> READING. Of all members: the user's data, to where that is. Of fewer: a window. */
void stripes_read(struct engine *e, struct stripes *s, uint32_t members, enum dev_kind kind,
		  void (*done)(struct engine *, struct stripes *));
/* READ -> READY: the rows of those members, from the rows that are there, k or more. */
void stripes_decode(struct engine *e, struct stripes *s, uint32_t members);
/* READ -> READY: all rows are there, and parity is made true. Which rows changed; *wrong: in so
 * many stripes. */
uint32_t stripes_reparity(struct engine *e, struct stripes *s, uint32_t *wrong);
/* READY: what the window has of the user's data, stripe by stripe. */
void stripes_to_user(const struct engine *e, const struct stripes *s, uint8_t *user);
/* READY -> WRITING. flags: DEV_F_*. What is all zero in a window is written as zeroes, and unmaps:
 * where there is nothing a thin member needs no space, and a rebuild must not use up what its users
 * have trimmed, or never written. Those requests are writes like others, of the same batch, and
 * durable by the same flush. */
void stripes_write(struct engine *e, struct stripes *s, uint32_t members, enum dev_kind kind,
		   uint32_t flags, void (*done)(struct engine *, struct stripes *));

#endif
