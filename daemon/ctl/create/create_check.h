/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `create`: may these devices become an array, and if so, make them one.
 *
 * The devices are reached through callbacks, so that this knows neither adapters nor loops. All
 * calls block: run it on a thread of its own, with callbacks that wait for the engine loop's
 * answer. Nothing here touches state outside its arguments.
 */
#ifndef DDRAID_CTL_CREATE_CREATE_CHECK_H
#define DDRAID_CTL_CREATE_CREATE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/engine.h"
#include "daemon/core/format/claim.h"
#include "daemon/state/store.h"

/* What `create` takes when nothing else is asked for. */
#define CREATE_STRIPE_BYTES 4096u           /* or more, as the members' blocks want it; */
#define CREATE_STRIPE_MAX_BYTES (64u << 10) /* no more than this unless it is asked for */
/* With 64 KiB a sequential read can't exceed 0.87 of the members: its runs on each, from one band
 * of parity to the next, are too short. An array whose data are within one band keeps its parity on
 * the last member. */
#define CREATE_BAND_BYTES (1u << 20)
#define CREATE_SLOTS 32u

#define CREATE_IO_BYTES                                                                            \
	(1u                                                                                        \
	 << 20) /* largest read or write; offsets and lengths are multiples of                  \
		    * DDR_BLOCK_BYTES, but at the device's end of 512 */

/*
 * A preferred block of more than this is no block of a disk that a power cut may tear, but a size
 * that suits the exporter (qcow2 clusters, a RAID's chunks, an object store): 4 KiB are assumed
 * then. What NBD servers say, and why that is believed, is in doc/design.md.
 */
#define CREATE_BLOCK_MAX_BYTES (16u << 10)

struct create_dev {
	const char *uri;
	uint64_t size_bytes;
	uint32_t min_block_bytes;       /* as struct member_info; 0 = not known */
	uint32_t preferred_block_bytes; /* as struct member_info; 0 = not known */
	bool read_only;
	int open_err;         /* 0, or -errno: can't be reached, and nothing else counts */
	const char *open_why; /* with open_err: the adapter's sentence, or NULL */
	/* 0 or -errno. `write` need not be durable before `flush`. Buffers are page aligned. */
	void *arg;
	int (*read)(void *arg, uint64_t offset, void *buf, uint32_t bytes);
	int (*write)(void *arg, uint64_t offset, const void *buf, uint32_t bytes);
	int (*flush)(void *arg);
};

/* What a device is to an array that is known here, and whose superblock it carries. */
enum create_standing {
	STANDING_MEMBER, /* its map has the device's UUID, whatever state that has */
	STANDING_UNSURE, /* the array does not serve here, or the device is newer: nobody can tell
			  */
	STANDING_ADDED,  /* an add has put its superblock there, and the map does not name it */
	STANDING_AWAY,   /* the map has another device in its place, which is not in sync */
	/* From here on the array needs it no more. */
	STANDING_REPLACED, /* the map has another device in its place, which is in sync */
	STANDING_DIFFERS,  /* the same, and somebody else has used it since they parted */
};

/*
 * `st`: of this array's engine here, NULL if it does not run. Data first: a device has been
 * replaced only if the map that the members of an array that serves have committed says so, the
 * device's own map is no newer, and the one that has its place is in sync. Then no assembly takes
 * it again: all the others exceed it.
 */
enum create_standing create_standing(const struct superblock *sb, const struct engine_status *st);

struct create_ask {
	const char *name;
	struct geo_params geo; /* 0 in stripe, band, region, slots, m = default; member_bytes is
				* found here */
	bool wipe;             /* over what others have written: file systems, RAID, partitions */
	bool old_member;       /* over superblocks and claims of ddraid that no array here needs */
	bool unaligned;        /* fragments may be smaller than the devices' blocks */
	bool zeroed;           /* the members are known to be zero */
	uint64_t inc;          /* creator's incarnation */
	void *arg;
	/* Optional. The name of a known array with this UUID, or NULL: its members are refused to
	 * old_member, too. Called on this thread. */
	const char *(*known)(void *arg, const uint8_t array_uuid[DDR_UUID_BYTES]);
	/* Optional: that array was forgotten for good, after the last known() of it. */
	bool (*forgotten)(void *arg);
	/* Of a device of a known array; STANDING_REPLACED alone may be overwritten, as an
	 * old_member. Without it each is a member. */
	enum create_standing (*standing)(void *arg, const struct superblock *sb);
	/* Optional, as all that follow. The name of a known array that names device `i` as its
	 * member, or NULL: if no superblock on it says what it is, that one needs it. */
	const char *(*listed)(void *arg, uint32_t i, uint32_t *member);
	/* Before the first write, with the array's UUID: what was
	 * begun can be undone from now on, whatever happens to this process. 0, or -errno and a
	 * sentence. */
	int (*begin)(void *arg, const struct create_params *p, char why[STORE_WHY_BYTES]);
	/* Before each write: may it go on? 0, or -errno and a sentence. */
	int (*allowed)(void *arg, char why[STORE_WHY_BYTES]);
	/* Time passes (claim.h): CLOCK_MONOTONIC, and a pause. */
	uint64_t (*now_us)(void *arg);
	void (*pause)(void *arg, uint32_t ms);
	/* "checking member 3 of 5". */
	void (*progress)(void *arg, const char *text, uint32_t done, uint32_t total);
};

#define CREATE_WHY_BYTES 640

struct create_result {
	struct create_params params; /* with fresh UUIDs */
	struct geo geo;
	char stripe_why[CREATE_WHY_BYTES]; /* why this stripe, or "" if it was asked for */
};

#define CREATE_ERROR_BYTES 1024

struct create_error {
	int err;                       /* -errno, as returned */
	int member;                    /* whose fault, or -1 */
	bool left;                     /* something of the new array may be on a device */
	char text[CREATE_ERROR_BYTES]; /* object, cause, remedy: one sentence */
};

/* Of a device with open_err: cause and remedy, to stand behind its name. */
void create_open_error(const struct create_dev *d, char text[CREATE_WHY_BYTES]);

/* The device's block: a smaller write makes it rewrite what lies beside. */
uint32_t create_block_bytes(const struct create_dev *d);

/*
 * Everything that can be said without writing. 0 and *r, or -errno and *e. Errors: -EINVAL
 * parameters, or preferred block (unaligned helps); -EEXIST data (wipe helps) or an array is there
 * (old_member helps, but for a known array: -ENOTUNIQ, as for one URI twice); -ENOSPC too small;
 * -EROFS; whatever open_err and the callbacks give.
 */
int create_check(const struct create_ask *ask, const struct create_dev *dev, uint32_t count,
		 struct create_result *r, struct create_error *e);

/*
 * create_check(), then writes, by the rules of claim.h: of two that want one device at most one
 * succeeds. On an error the devices are made what they were, or, once the log was written,
 * nobody's, where they still carry what this has put there; e->left: one could not be reached for
 * that. -ENOTUNIQ: another one has taken a device. -EBUSY: a claim is on it (old_member helps).
 */
int create_run(const struct create_ask *ask, const struct create_dev *dev, uint32_t count,
	       struct create_result *r, struct create_error *e);

/* Refuses, as create_check() does, a device with this superblock of the array `known`: 0, or -errno
 * and, for `text`, what stands behind its name. */
int create_refuse_known(const struct create_ask *ask, const struct superblock *sb,
			const char *known, char text[CREATE_WHY_BYTES]);

/* Likewise, a device without an intact superblock that a known array names as its member. */
bool create_refuse_listed(const struct create_ask *ask, uint32_t i, char text[CREATE_WHY_BYTES]);

/*
 * Makes one device nobody's that carries a superblock or claim which create_check() lets
 * --old-member overwrite. It is a create that gives up once it has the device, so claim.h's
 * argument holds for it. 0, or -errno and *e.
 */
int create_clear(const struct create_ask *ask, const struct create_dev *dev,
		 struct create_error *e);

/*
 * Makes devices nobody's again on which a create of this array was cut off: where they carry its
 * claim or superblock, and only there. 0, or -errno and *e. Of `ask` the UUID's array is asked for
 * by nothing; now_us, pause and allowed are used.
 */
int create_undo(const struct create_ask *ask, const struct create_dev *dev, uint32_t count,
		const uint8_t array_uuid[DDR_UUID_BYTES], struct create_error *e);

#endif
