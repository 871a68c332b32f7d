/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Incarnations, and the fence that ends them at the exporters. An incarnation is named by its index
 * `ii` in s->inc, and never reused; s->inc keeps those that are over, for the checks go by them.
 */
#ifndef TESTS_SIM_FENCE_H
#define TESTS_SIM_FENCE_H

#include "tests/sim/common.h"

struct incn {
	uint64_t inc;
	uint32_t node;
	bool live;    /* an engine runs under it */
	bool removed; /* its engine said OUT_REMOVED */
	/* Per node: the daemon that was told of a quorate view without it, 0 = none. */
	uint64_t left_told[SIM_MAX_NODES];
	bool gone_on;        /* an epoch that it did not propose was committed since */
	bool wrote;          /* to a member, anything */
	bool served;         /* consumers had it open */
	uint32_t known_to;   /* mask: nodes whose present daemon has heard from it */
	uint32_t left_known; /* of left_at: whose daemons had heard of it by then */
	uint32_t left_at;    /* mask: nodes that were told so */
	uint64_t told_stamp[SIM_MAX_NODES]; /* when */
	uint32_t fenced_by;                 /* its successor, if that fenced it by itself; else 0 */
	bool graceful;                      /* left by ADMIN_STOP */
	uint32_t left_heard;                /* mask: nodes that have heard its Left */
	bool left;                          /* its engine has, or others went on by it */
	bool stopping;                      /* is about to */
	bool joined;                        /* was ever in a view */
	bool fenced;
	uint64_t fenced_stamp;               /* NEVER: not yet */
	uint64_t fenced_epoch;               /* the newest committed then */
	uint32_t fence_known[SIM_MAX_NODES]; /* 1 + who may know of it, 0 = nobody */
	uint32_t fence_ring[SIM_MAX_NODES];  /* in which ring he was */
	uint16_t fence_void[SIM_MAX_NODES];  /* so often it came back into its view meanwhile */
	uint64_t forgot_us;                  /* when nobody could know any more; 0: not so */
	uint64_t wrote_us;                   /* when its engine last sent what changes a member */
	bool ended;                          /* not live, nothing outstanding */
	uint32_t outstanding;                /* requests that may still take effect */
	uint32_t fence_fails;
	uint32_t own_fence_fails; /* of its node's next daemon */
	uint64_t gen;             /* its daemon's life */
	uint32_t fences;
	uint64_t gave_up_us; /* by itself; 0: it did not */
	bool locks_left;     /* it has lost its locks, and hears that before the next message */
	uint64_t told_all;   /* stamp: since then all know that it is over; 0: not known */
};

uint32_t inc_new(struct sim *s, uint32_t node);       /* a new one of this node */
uint32_t inc_find(const struct sim *s, uint64_t inc); /* NONE: there never was one */
void inc_dead(struct sim *s, uint32_t ii);            /* its engine is gone */
/* Something of it has ended: if that was the last, its writes can change nothing any more. */
void inc_check_ended(struct sim *s, uint32_t ii);

/* OUT_FENCE of node n's engine: EV_FENCE_DONE follows. */
void fence_ask(struct sim *s, struct simnode *n, uint32_t node, uint64_t inc);
/* Before a daemon joins, it ends its node's earlier incarnations by itself. The first: true, that
 * fails this time, and it has to try again. The second does it: up to which incarnation; 0 = none.
 * */
bool fence_itself_fails(struct sim *s, struct simnode *n);
uint64_t fence_itself(struct sim *s, struct simnode *n);
/* Fences that only waited, and what becomes of them as rings break and form (fence.c). */
void fences_forgotten(struct sim *s);
void fences_back(struct sim *s, struct simnode *n, uint32_t node, uint32_t in_ii);
void fences_remembered(struct sim *s, const struct simnode *n);

#endif
