/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reservations: who makes something new out of a name and of devices, in the whole cluster. A
 * request asks for them at its first moment, and has them until it is done or undone.
 *
 *	asked	Reserve is on its way, or answers are missing    -> held, refused
 *	held	all nodes of a view have said yes                -> released, lost
 *
 * All nodes hear Reserve and Release in one order, keep the same table, and answer by it. So of two
 * that want the same thing everybody says yes to the one that came first, and no to the other. A
 * newcomer to the group has not heard what came before; that does no harm, since nothing is granted
 * without a yes of all, and whoever holds it says no. After each view everybody tells again what it
 * holds, before it says that this was all (Node.all); what it held before and does not name then,
 * it has released.
 *
 * A node without a quorum loses what it holds (`lost`), and is granted nothing. So two parts of a
 * cluster don't both grant. A node that left takes its reservations with it. But what it wrote last
 * may still land, and it may need a moment to see that it is out: for `linger_ms` its devices are
 * refused with -EAGAIN, after which who was refused asks again. What remains is decided by the
 * devices themselves (claim.h).
 *
 * A node whose ddraidd knows no reservations (announce version 1) would answer nothing, and might
 * take what it was not asked for: while one is there, nothing is granted, and the refusal names it.
 *
 * No system call is made here. The main thread's.
 */
#ifndef DDRAID_CATALOG_RESERVE_H
#define DDRAID_CATALOG_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/limits.h"
#include "proto/announce.pb-c.h"

#define RESERVE_KEY_BYTES 640u
#define RESERVE_KEYS 64u
#define RESERVE_NAME ((int)RESERVE_KEYS) /* in place of a key */
#define RESERVE_WHAT_BYTES 96u
#define RESERVE_WHY_BYTES 768u
#define RESERVE_PER_NODE 64u /* more of one node are refused */
#define RESERVE_ANSWER_MS 15000u

struct reserve {
	/* the asker's; until it is released, or lost */
	char name[DDR_NAME_BYTES];
	char what[RESERVE_WHAT_BYTES];
	bool brief;
	bool makes;                   /* an array is to have that name: */
	uint8_t uuid[DDR_UUID_BYTES]; /* this one, zeros: a new one */
	uint32_t key_count;
	char key[RESERVE_KEYS][RESERVE_KEY_BYTES];
	/* Maybe from within reserve_ask. -EBUSY: another request has it; -EEXIST: there is such an
	 * array; -EAGAIN: ask again in a moment. `key`: which of them it is about, RESERVE_NAME,
	 * or -1. */
	void (*done)(struct reserve *r, int err, int key, const char *why);
	void (*lost)(struct reserve *r, const char *why);
	void *arg;
	/* reserve.c's */
	enum { RESERVE_NONE, RESERVE_ASKED, RESERVE_HELD } state;
	uint64_t id, asked_ms;
	uint32_t yes_count, yes[DDR_MAX_NODES];
	struct reserve *next;
};

struct reserve_env {
	void (*send)(const Ddraid__Announce__Message *w);
	uint64_t (*now_ms)(void);
	uint64_t (*random)(void);
	/* 0; or -EEXIST or -EAGAIN and why: this node has, has lost or forgets an array of that
	 * name. uuid: of the array that is to have it, zeros: a new one, NULL: none is. */
	int (*name_free)(const char *name, const uint8_t *uuid, char why[RESERVE_WHY_BYTES]);
	uint32_t linger_ms;
};

void reserve_init(const struct reserve_env *env);
void reserve_ask(struct reserve *r);
/* Also of one that was refused or lost; then nothing happens. */
void reserve_release(struct reserve *r);
/* Gives up what nobody answers. To be called now and then while something is asked for. */
void reserve_tick(void);

/* What announce.c hears. */
void reserve_view(uint32_t self, uint32_t count, const uint32_t *node, const bool *fresh);
/* settled: the view and the quorum speak of one ring. */
void reserve_quorum(bool quorate, bool settled);
/* The version of the protocol that the node speaks; and all that it has to tell is told. */
void reserve_node(uint32_t node, uint32_t version, bool all);
void reserve_heard(uint32_t from, const Ddraid__Announce__Message *w);
/* There are new listeners. */
void reserve_tell(void);

#endif
