/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arrays that this node knows, and what is to become of them. The description of an array has a
 * version; whatever changes it (ddraidctl here or elsewhere, a member that was replaced) makes a
 * higher one, and manager_apply follows the highest: it stores it, then starts or stops the array.
 * The main thread's.
 */
#ifndef DDRAID_MANAGER_H
#define DDRAID_MANAGER_H

#include "daemon/array.h"

struct known {
	struct store_array desc; /* newest */
	struct array *array;
	enum { HERE_FOLLOWS, HERE_ON, HERE_OFF } here; /* what was said for this node alone */
	bool force;                                    /* of the next start */
	bool stop_force;                               /* of the stop here alone */
	bool serving;                                  /* consumers are let in here */
	uint32_t clients;                              /* that have it open here */
	uint32_t kept_clients; /* it was to stop and runs on, since so many had; else 0 */
	bool stored;           /* desc is on disk */
	bool storing, again;
	bool damaged;                /* its file is; nothing but desc.name and error is known */
	bool removing;               /* forgotten: its files */
	bool gone;                   /* it was forgotten, and its place is another's */
	uint64_t forgotten_put;      /* desc.forgotten: the write of the list that has it */
	uint32_t refs;               /* of the table, and of those who hold it */
	char error[STORE_WHY_BYTES]; /* why it does not run although it is to, or "" */
};

struct manager_cb {
	/* This node itself made a newer description: the others should know. */
	void (*news)(const struct store_array *desc);
	/* This node itself was told to forget one. */
	void (*forgot)(const struct store_forgotten *f);
	/* An array started, ended, serves, or does not any more, has other clients, was kept. */
	void (*moved)(void);
};

/* Reads the state directory and starts what is to run. 0 or -errno with a sentence. */
int manager_open(const struct config *conf, struct mailbox *main_box, struct worker *worker,
		 const struct manager_cb *callbacks, char why[STORE_WHY_BYTES]);
/* By name or UUID's text; NULL. What is being forgotten is found only if asked for. */
struct known *manager_find(const char *name, bool forgotten_too);
struct known *manager_find_uuid(const uint8_t uuid[DDR_UUID_BYTES]);
uint32_t manager_count(void);
struct known *manager_at(uint32_t i); /* by name */

/*
 * Takes a description if it is newer than what is known. Of two with one version and different
 * content the same one is taken on all nodes. 1: taken, 0: not newer; -errno: there are too many,
 * or another array has the name.
 */
int manager_apply(const struct store_array *desc, bool force);
/* A change that begins here: desc->version is made the next one, then as manager_apply, and news.
 */
int manager_change(struct store_array *desc, bool force);
/* As what it is a block device here, and how long that waits for a ddraidd (AWAY_HOLD: for ever),
 * is kept over restarts of this node; others are not told. */
void manager_attach(struct known *k, enum attach_via via, uint32_t away_ms);
/*
 * Start or stop it on all nodes. A start is forced as in manager_start. A stop that is not forced
 * leaves it running where consumers have it open: each node decides that for itself
 * (k->kept_clients) and tells it with desc.said, which is the version that this makes.
 */
int manager_say(struct known *k, bool start, bool force);
/*
 * Forgetting is for good: the array's UUID goes on the list of the forgotten, which no description
 * gets past, whatever its version. Only when the list is on disk, and the array has stopped, its
 * files and its place in the table are given up; then k->gone. -ENOSPC: the list is full of
 * younger ones than FORGOTTEN_DAYS.
 */
int manager_forget(struct known *k, char why[STORE_WHY_BYTES]);
/* Others have forgotten these. */
void manager_forgotten(const struct store_forgotten *list, uint32_t n);
const struct store_forgotten *manager_forgotten_list(uint32_t *n);

/* k stays valid until it is let go as often, even when it is gone. */
struct known *manager_hold(struct known *k);
void manager_let_go(struct known *k);

/* Here only, until start or stop is said for all; the description stays as it is. */
void manager_start(struct known *k, bool force);
/* Not forced: it runs on if consumers have it open, see k->kept_clients. */
void manager_stop(struct known *k, bool force);

/* Stops all; calls done on the main thread when nothing runs any more. */
void manager_stop_all(void (*done)(void));
uint32_t manager_running(void);

#endif
