/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Incarnations that are gone, until they are fenced (departed.c). */
#ifndef DDRAID_CORE_CLUSTER_DEPARTED_H
#define DDRAID_CORE_CLUSTER_DEPARTED_H

#include "daemon/core/door.h"

struct peer;

#define DEPARTED_MAX 512u /* departed incarnations between two commits; of these at most */
#define DEPARTED_TOLD (DEPARTED_MAX - 4 * DDR_MAX_NODES) /* when another tells of one more, */
#define DEPARTED_OF_NODE 16u                             /* that others tell of one node, */
#define DEPARTED_STRANGERS 64u                /* that they tell of nodes never seen here */
#define DEPARTED_JOINS (DEPARTED_OF_NODE / 2) /* a node with so many unfenced has to wait */
#define FENCE_ASKS_MAX (2 * DDR_MAX_NODES)

struct departed {
	uint32_t node, by_node; /* by: the incarnation that saw it left behind, 0 = not known */
	uint64_t inc, by_inc;
	bool fenced, asked;
	uint32_t failures; /* of its fence by this node, which leads */
	bool sure; /* seen, or told by who saw it or by a leader, since this incarnation began */
	uint64_t retry_us, since_us;
};

/* Fenced lately: such an incarnation never takes part again, though all else forgot it. */
#define RECENTLY_FENCED_MAX (DDR_MAX_NODES * 2)
struct recently_fenced {
	uint32_t node;
	uint64_t inc;
	struct ring settled; /* in which an epoch was committed since */
};

/* fence_waits: answers that are owed. */
struct fence_ask {
	uint32_t node, owed;
	uint64_t inc;
	struct ring ring; /* of the youngest */
	bool failed;
};

struct departures {
	struct departed list[DEPARTED_MAX];
	uint32_t count;
	bool full;        /* this node has seen one depart, and can't remember it */
	bool uncommitted; /* a node has left since the last commit */
};

struct fences {
	struct fence_ask ask[FENCE_ASKS_MAX];
	struct recently_fenced
	    settled[RECENTLY_FENCED_MAX]; /* a ring of them; those that are free come last */
	uint32_t next;                    /* of the ring */
};

/* R6: a quorate view without a node is here: that node is removed. */
void departed_note(struct engine *e);
/* A map was committed here, so whom a State named is fenced and gone for good. */
void departed_committed(struct engine *e);
/* What a State can't know better of one stays: since when, and that it was seen here. */
void departed_keep(const struct engine *e, struct departed *d, const struct departed *old);
/* two_node: may this node begin, and the other one not at the same moment? */
bool may_go_alone(const struct engine *e);
/* NULL: it is not among them. */
struct departed *departed_find(struct engine *e, uint32_t node, uint64_t inc);
/* This incarnation has seen it depart. */
void departed_add(struct engine *e, uint32_t node, uint64_t inc);
/* ... and these its earlier ones, by the record. */
void departed_recall(struct engine *e, const struct record *r);
/* How many are not fenced yet. */
uint32_t departed_unfenced(const struct engine *e);
/* So many incarnations of that node are not fenced that another one has to wait. */
bool departed_waits(const struct engine *e, uint32_t node);
/* Writes into the record who is removed. */
void record_removed(struct engine *e);
/* It is fenced: remembered, so that it never takes part again. */
void fenced_remember(struct engine *e, struct departed *d);
bool recently_fenced(const struct engine *e, uint32_t node, uint64_t inc);
/* Another ring: a fence that was only a wait holds no longer (R5). */
void fences_void(struct engine *e);
/* ... nor for one that is back in the view. */
void fences_void_of(struct engine *e, const struct peer *p);
/* A fence's answer that a wait was owed for. */
void fence_settled(struct engine *e, uint32_t node, uint64_t inc);
/* It was fenced, and needs no new fence. */
bool fence_stands(const struct engine *e, uint32_t node, uint64_t inc);

#endif
