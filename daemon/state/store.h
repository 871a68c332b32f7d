/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state directory: what this node knows over its own restarts.
 *
 *	NAME.array	the array as the cluster agreed on it: UUID, members, options; text
 *	NAME.record	what the engine must not forget (struct record), and this node's
 *			incarnation in the array; binary, crc32c
 *	NAME.making	a create that goes on, or was cut off; text, as NAME.array
 *	forgotten	UUIDs of arrays that the cluster has forgotten, and when; text
 *	forgotten.damaged	likewise, as it was found damaged; an operator's
 *	incarnation	the last incarnation given out; text
 *	lock		held by the daemon that uses the directory
 *
 * Every file is written anew beside the old one, fsynced, renamed over it, and then the directory
 * is fsynced: after a power cut it is the old or the new one. So a file that can't be decoded is
 * damage and never taken for an empty one. A record may be missing only as long as `ran` is false.
 * What others delete is written anew (store_look).
 *
 * Functions block on the disk: they are for the main thread at its start, and the worker; but
 * store_lost and store_has_damaged only look whether a file is there.
 */
#ifndef DDRAID_STATE_STORE_H
#define DDRAID_STATE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/engine.h"
#include "daemon/state/options.h"

#define STORE_PATH_BYTES 512
#define STORE_WHY_BYTES 768
#define STORE_MAX_ARRAYS 64
#define STORE_MAX_FORGOTTEN 1024

/* What was said of an array for this node alone. */
enum here { HERE_FOLLOWS, HERE_ON, HERE_OFF };

/* How an array is a block device of this node. */
enum attach_via { ATTACH_NONE, ATTACH_SHIM, ATTACH_NBD };

/* "shim"; "" for ATTACH_NONE. */
const char *attach_via_name(enum attach_via via);
/* -EINVAL: there is no such way. */
int attach_via_parse(const char *name, enum attach_via *via);

struct store_array {
	char name[DDR_NAME_BYTES];
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t version; /* of what all nodes share: newest wins */
	bool started;     /* is to run when the daemon does */
	bool stop_forced; /* not started: its consumers are cut off */
	uint64_t said;    /* the version in which an operator last said `started`, for all nodes */
	bool forgotten;   /* never again: its UUID is in the list of the forgotten. Not written */
	bool ran;         /* was started on this node: there must be a record */
	bool guessed;     /* its file has no `agreed`, which is what this node has. Not written */
	enum here here;   /* for this node; told nobody */
	enum attach_via attach; /* likewise: as what it is a block device here */
	uint32_t away_ms;       /* likewise: how long that waits for a ddraidd, or AWAY_HOLD */
	/* Likewise: where the device is that `add` makes a member just now, or made one; "" = none.
	 * Durable before it is opened for that, so that it is found again after a restart. */
	char adding[DDR_URI_BYTES];
	uint32_t count;
	/* By index of the member: where this node reaches it, and where the cluster says it is.
	 * They differ if somebody gave this node a URI of its own. Only the second is told to
	 * others. */
	char uri[DDR_MAX_MEMBERS][DDR_URI_BYTES];
	char agreed[DDR_MAX_MEMBERS][DDR_URI_BYTES];
	struct options options;
};

/* A later version of an array may be so many changes ahead of the one that is known: a number
 * beyond that, which could never be exceeded again, is no count of changes. */
#define STORE_VERSION_STEP (UINT64_C(1) << 32)
#define STORE_VERSION_MAX (UINT64_C(1) << 62)

/* In place of a member's URI: nobody has said where it is (`import` without it). */
#define STORE_NOWHERE "none"

/* One line of 1 to DDR_URI_BYTES - 1 bytes, without control characters. */
bool store_uri_ok(const char *uri);
/* Why there can be no such array, as a phrase, or NULL. Whatever another node tells, and whatever a
 * file says, passes through this. */
const char *store_array_wrong(const struct store_array *a);

struct store_forgotten {
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t at_s; /* since 1970, by the node that was asked to forget it */
	uint32_t by;   /* the node that told so of an array that was never used here; 0: it was */
};

struct store_record {
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t inc; /* this node's last incarnation in the array, 0 = none */
	/* By which node id the cluster knew it; 0 = it ran alone, or it is not written down. */
	uint32_t node;
	bool clean; /* that incarnation ended with everything answered and its slot free */
	/* Of its incarnations, the newest that needs no fence: it ended with nothing under way.
	 * 0 = none */
	uint64_t fenced;
	struct use_process process; /* whose incarnation it was; all zero: not written down */
	struct record record;
};

/* Creates the directory if need be, and locks it. 0, or -errno with a sentence. -EBUSY: another
 * daemon has it. */
int store_open(const char *dir, char why[STORE_WHY_BYTES]);
/*
 * The directory of the sockets, likewise: two daemons would be in each other's way there. It is
 * refused if no array's socket fits. store_close lets go of both.
 */
int store_run_open(const char *dir, const char *ipc_name, char why[STORE_WHY_BYTES]);
/* Locks it anew if others removed the lock, or the directory: at each tick, before what makes the
 * sockets again. While that fails, or another daemon has the lock, the next call tries again. */
void store_run_look(void);
/* Does the socket of an array of that name fit there? 0, or -ENAMETOOLONG with a sentence. */
int store_run_fits(const char *dir, const char *name, char why[STORE_WHY_BYTES]);
void store_close(void);

/* Calls take for each array, in the order of names. `damage` is NULL, or a sentence: then its file
 * can't be read or decoded, and only a->name counts, which is the file's. */
int store_scan(void (*take)(void *arg, const struct store_array *a, const char *damage), void *arg,
	       char why[STORE_WHY_BYTES]);
int store_put_array(const struct store_array *a, char why[STORE_WHY_BYTES]);
int store_put_record(const char *name, const struct store_record *r, char why[STORE_WHY_BYTES]);
/* -ENOENT: there is none; -EBADMSG: damaged; -EPROTONOSUPPORT: of another version. */
int store_get_record(const char *name, struct store_record *r, char why[STORE_WHY_BYTES]);
/*
 * A create that goes on: its name, UUID and members. It is there from before the first write to a
 * member until the array's own file is, or nothing of it is left on the members. What is found at
 * the daemon's start was cut off.
 */
int store_put_making(const struct store_array *a, char why[STORE_WHY_BYTES]);
int store_scan_making(void (*take)(void *arg, const struct store_array *a, const char *damage),
		      void *arg, char why[STORE_WHY_BYTES]);
/* But not that of another create of the same name. */
int store_remove_making(const struct store_array *a, char why[STORE_WHY_BYTES]);
/* Both files. */
int store_remove(const char *name, char why[STORE_WHY_BYTES]);

int store_put_forgotten(const struct store_forgotten *list, uint32_t count,
			char why[STORE_WHY_BYTES]);
/* No file is an empty list. -EBADMSG: part of it is damaged; the list has the rest. */
int store_get_forgotten(struct store_forgotten list[STORE_MAX_FORGOTTEN], uint32_t *count,
			char why[STORE_WHY_BYTES]);
/*
 * A damaged one is set aside, before another is written: it is kept until an operator has put a
 * whole one in its place, or removed it. Likewise, but -ENOENT: there is none.
 */
int store_keep_damaged(char why[STORE_WHY_BYTES]);
int store_get_damaged(struct store_forgotten list[STORE_MAX_FORGOTTEN], uint32_t *count,
		      char why[STORE_WHY_BYTES]);
int store_remove_damaged(char why[STORE_WHY_BYTES]);
/* It is there: the sentence that says so, with the remedy. */
bool store_has_damaged(char why[STORE_WHY_BYTES]);

/* Calls take for the name of each record. */
int store_scan_records(void (*take)(void *arg, const char *name), void *arg,
		       char why[STORE_WHY_BYTES]);
/* Of an array of which the daemon found no description: its record is still there, and the sentence
 * that says so, with the remedy. */
bool store_lost(const char *name, const uint8_t uuid[DDR_UUID_BYTES], char why[STORE_WHY_BYTES]);

/*
 * Whether what was written last got to the disk. "": it did; else the sentence that said why not.
 * Any thread.
 */
void store_trouble(char why[STORE_WHY_BYTES]);
/* Writes a file as large as the one that failed last, or as a record, and removes it: so it is
 * known whether the next change can be made durable. */
int store_probe(char why[STORE_WHY_BYTES]);

/*
 * What each file held that was written, or read and found whole, is kept in memory. This writes
 * anew what is not there any more: others have deleted it. What store_remove and its like remove
 * stays away, and what others have put in its place is left alone. 0, or -errno with a sentence,
 * which store_trouble has, too; -EBUSY: another daemon has locked the directory since, and nothing
 * is written there as long as it has.
 */
int store_look(char why[STORE_WHY_BYTES]);
/* What others deleted within the last hour: the sentence that says so, for the status. `news`: only
 * if that was not asked since it was found, for the log. Any thread. */
bool store_deleted(bool news, char why[STORE_WHY_BYTES]);

/*
 * A new incarnation: greater than every one before in this directory, durable before it is given
 * out, and the wall clock's nanoseconds since 1970 where that does not contradict.
 */
int store_incarnation(uint64_t *inc, char why[STORE_WHY_BYTES]);

#endif
