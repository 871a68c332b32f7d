/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the daemons of a cluster tell each other: which arrays there are, and where they run. They
 * form a group of their own, "ddraid", beside those of the arrays, through the same port.
 *
 * The group has a thread with a loop of its own; what it hears becomes tasks of the main thread.
 * Everything below is the main thread's.
 */
#ifndef DDRAID_CATALOG_ANNOUNCE_H
#define DDRAID_CATALOG_ANNOUNCE_H

#include "daemon/base/mailbox.h"
#include "daemon/ports/group.h"
#include "daemon/state/store.h"
#include "proto/announce.pb-c.h"

#define ANNOUNCE_VERSION 2u

struct announce_running {
	uint8_t uuid[DDR_UUID_BYTES];
	bool serving;
	uint32_t clients; /* consumers that have it open there */
	uint64_t kept;    /* its `said` whose stop was not followed because of them, 0 = none */
	char *refused;    /* why the array can't be assembled, as it finds, NULL = it can */
};

struct announce_node {
	uint32_t node;
	bool here; /* its daemon is in the group */
	bool told; /* it said what follows */
	bool all;  /* and which arrays it knows */
	bool dlm;  /* had what `locks = dlm` needs, when it was told */
	char name[GROUP_NAME_BYTES];
	uint32_t count;
	struct announce_running running[STORE_MAX_ARRAYS];
	uint64_t since_ms; /* here or not, CLOCK_MONOTONIC */
};

/* A picture of the cluster, kept up to date. */
struct announce_state {
	bool up; /* the cluster stack is there */
	struct group_self self;
	bool counted; /* the cluster has told, since it is up, whether it is quorate */
	bool quorate;
	struct ring view_ring, quorum_ring;           /* R2: they fit together if they are equal */
	uint32_t quorum_count, quorum[DDR_MAX_NODES]; /* nodes, with a daemon or not */
	uint32_t count;
	struct announce_node node[DDR_MAX_NODES];
};

struct announce_cb {
	/* What others say. */
	void (*array)(const struct store_array *desc);
	void (*forgotten)(uint32_t from, const struct store_forgotten *list, uint32_t count);
	/* There are new listeners: tell them all. The forgotten first: an array may have the name
	 * of one of them. */
	void (*fresh)(void);
};

int announce_start(const char *cluster, struct mailbox *main_box, const struct announce_cb *cb);
void announce_array(const struct store_array *desc);
void announce_forgotten(const struct store_forgotten *list, uint32_t count);
/* This node has what `locks = dlm` needs, now. */
bool announce_dlm(void);
/* all: this is the end of what a new view is told. The caller keeps what `refused` points to. */
void announce_running(const struct announce_running *r, uint32_t count, bool all);
const struct announce_state *announce_state(void);
/* NULL: no such node. */
const struct announce_node *announce_find(uint32_t node);
/* What that node said of the array; NULL: it does not run there, as far as it is known here. */
const struct announce_running *announce_runs(const struct announce_node *n,
					     const uint8_t uuid[DDR_UUID_BYTES]);
/* What a node that leads the array said of why it can't be assembled, and which one; NULL: none. */
const char *announce_refused(const uint8_t uuid[DDR_UUID_BYTES], uint32_t leader, uint32_t *node);
/* A message of reserve.c. */
void announce_message(const Ddraid__Announce__Message *w);
void announce_stop(void);

#endif
