/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between the files of the manager (manager.h):
 *
 *	manager.c		the table, which description counts, and what follows from it
 *	manager_change.c	storing: what is asked for here, and what was heard
 *	manager_forget.c	forgetting, and the list of the forgotten on disk
 *
 * All on the main thread, but for what goes to the worker and comes back.
 */
#ifndef DDRAID_CATALOG_MANAGER_INT_H
#define DDRAID_CATALOG_MANAGER_INT_H

#include "daemon/catalog/manager.h"

struct manager {
	struct array_env env; /* also what all arrays get */
	struct manager_cb cb;
	bool closing; /* manager_stop_all was called: nothing is started or tried again */
};

extern struct manager manager; /* manager.c */

/* manager.c */
/* Takes one step towards what is wanted: starts it, stops it, or has its files removed. */
void manager_follow(struct array_entry *k);
/* Its files are removed: it leaves the table, and is freed when nobody holds it. */
void manager_table_remove(struct array_entry *k);

/* manager_change.c */
/* Writes what is to be written next, if anything. */
void manager_put(struct array_entry *k);
/* k->desc has changed in memory, and that counts: it is to be written. */
void manager_altered(struct array_entry *k);
/* Tells whoever asked for it how it ended; after that *c may be gone. */
void manager_change_end(struct manager_change *c, int err, const char *why);
/* The state directory could not be written: manager_again is called after a while. */
void manager_again_soon(void);

/* manager_forget.c */
/* Has its files removed, if it has stopped and the list with it is on disk; else nothing. */
void manager_forget_step(struct array_entry *k);
/* Reads the list, before any array. 0, or -errno with a sentence: the daemon must not start. */
int manager_list_load(char why[STORE_WHY_BYTES]);
/* Writes the list if that on disk is not the newest. */
void manager_list_again(void);
/* At the start there are files of it, though it is forgotten: they go. */
void manager_forget_found(struct array_entry *k);

#endif
