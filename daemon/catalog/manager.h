/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arrays that this node knows, and what is to become of them. The description of an array has a
 * version; whatever changes it (ddraidctl here or elsewhere, a member that was replaced) makes a
 * higher one, and manager_apply follows the highest: it stores it, then starts or stops the array.
 * The main thread's.
 */
#ifndef DDRAID_CATALOG_MANAGER_H
#define DDRAID_CATALOG_MANAGER_H

#include "daemon/runtime/array.h"

struct array_entry {
	struct store_array desc; /* newest */
	struct array *array;
	bool force;            /* of the next start */
	bool stop_force;       /* of the stop here alone */
	bool serving;          /* consumers are let in here */
	uint32_t clients;      /* that have it open here */
	char *refused;         /* why this node, which leads, can't assemble it, or NULL */
	uint32_t kept_clients; /* it was to stop and runs on, since so many had; else 0 */
	bool stored;           /* desc is on disk */
	bool storing;          /* the worker writes it, or a change of it */
	uint64_t generation;   /* of desc: counts what has altered it */
	struct manager_change *changes, **changes_tail; /* asked for, and not durable yet */
	bool used;     /* it was made here, or has served here: no other node has made it up */
	bool damaged;  /* its file is; nothing but desc.name and error is known */
	bool removing; /* forgotten: its files */
	bool gone;     /* it was forgotten, and its place is another's */
	uint64_t forgotten_put;         /* desc.forgotten: the write of the list that has it */
	uint32_t refs;                  /* of the table, and of those who hold it */
	char error[STORE_WHY_BYTES];    /* why it does not run although it is to, or "" */
	char put_said[STORE_WHY_BYTES]; /* logged once */
};

struct manager_cb {
	/* This node itself made a newer description: the others should know. */
	void (*news)(const struct store_array *desc);
	/* This node itself was told to forget one. */
	void (*forgot)(const struct store_forgotten *f);
	/* An array started, ended, serves, or does not any more, has other clients, was kept. */
	void (*moved)(void);
	/* The state directory could not be written: call manager_again in ms. */
	void (*again)(uint32_t ms);
};

/*
 * A change that is asked for here. It is made durable first, then it counts in memory, then the
 * others are told, then `done` is called. If it can't be made durable, nothing has changed
 * anywhere, and `why` says what is the matter with the state directory. So what was answered
 * outlives a restart, and what was refused does not come to pass later.
 *
 * What is heard from other nodes, or learnt from members, counts at once; it is written again and
 * again until it is on disk, and the status warns meanwhile.
 */
struct manager_change {
	enum {
		CHANGE_OPTION, /* key, value; all nodes */
		CHANGE_START,  /* force: assemble although R1 says no */
		/* Not forced: it runs on where consumers have it open, see k->kept_clients. */
		CHANGE_STOP,
		CHANGE_ATTACH, /* via, away_ms; this node's own */
		CHANGE_ADDING, /* value: store_array.adding; force: not any more. This node's own */
		CHANGE_CREATE,
		CHANGE_FOUND,  /* found: members of which nobody knew where they are; all nodes */
		CHANGE_FORGET, /* for good */
		CHANGE_SYNC,   /* nothing: what has been learnt so far is durable when it is done */
	} what;
	bool all; /* START, STOP: on all nodes; else here, until one of them is said for all */
	bool force;
	const char *key, *value;
	enum attach_via via;
	uint32_t away_ms;
	const struct store_array *found;
	/* On the main thread, maybe from within the call that begins it. */
	void (*done)(struct manager_change *c, int err, const char *why);
	void *arg;
	struct array_entry *k; /* filled in */
	/* the manager's */
	struct manager_change *next;
	uint8_t uuid[DDR_UUID_BYTES]; /* for this array: k may be another's place by now */
};

/* Reads the state directory and starts what is to run. 0 or -errno with a sentence. */
int manager_open(const struct config *conf, struct mailbox *main_box, struct worker *worker,
		 const struct manager_cb *callbacks, char why[STORE_WHY_BYTES]);
/* By name or UUID's text; NULL. What is being forgotten is found only if asked for. */
struct array_entry *manager_find(const char *name, bool forgotten_too);
struct array_entry *manager_find_uuid(const uint8_t uuid[DDR_UUID_BYTES]);
bool manager_to_run(const struct array_entry *k); /* on this node, as was said last */
uint32_t manager_count(void);
struct array_entry *manager_at(uint32_t i); /* by name */

/*
 * Takes a description if it is newer than what is known. Of two with one version and different
 * content the same one is taken on all nodes. 1: taken, 0: not newer; -errno: there are too many,
 * or another array has the name.
 */
int manager_apply(const struct store_array *desc, bool force);
/* `c` is the caller's until done; what it points to, too. */
void manager_change(struct array_entry *k, struct manager_change *c);
/* A new array, in version 1 if none is said. *desc may go when this returns. -EEXIST: the name was
 * taken meanwhile. */
void manager_create(const struct store_array *desc, struct manager_change *c);
/*
 * As what it is a block device here, in memory at once: to take back an attach that could not be
 * done.
 */
void manager_attach(struct array_entry *k, enum attach_via via, uint32_t away_ms);
/*
 * Forgetting is for good: the array's UUID goes on the list of the forgotten, which no description
 * gets past, whatever its version. When the list is on disk, it counts; when the array has stopped,
 * its files and its place in the table are given up; then k->gone. -ENOSPC: the list is full of
 * younger ones than FORGOTTEN_DAYS.
 */
void manager_forget(struct array_entry *k, struct manager_change *c);
/* Can anything be made durable now? 0, or -errno with a sentence; on the main thread, later. */
void manager_probe(void (*done)(void *arg, int err, const char *why), void *arg);
/* To be called now and then: writes anew what others have deleted from the state directory. */
void manager_look(void);
/* Writes again what could not be written. */
void manager_again(void);
/* That node has forgotten these. */
void manager_forgotten(uint32_t from, const struct store_forgotten *list, uint32_t n);
const struct store_forgotten *manager_forgotten_list(uint32_t *n);
bool manager_was_forgotten(const uint8_t uuid[DDR_UUID_BYTES]);

/* k stays valid until it is let go as often, even when it is gone. */
struct array_entry *manager_hold(struct array_entry *k);
void manager_let_go(struct array_entry *k);

/* Stops all; calls done on the main thread when nothing runs any more. */
void manager_stop_all(void (*done)(void));
uint32_t manager_running(void);

#endif
