/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The map of the array's members, and the superblock that carries it (doc/ondisk.md,
 * design section 3). Explicit little-endian encode and decode, crc32c over the whole
 * block, compat / ro-compat / incompat feature bits. Pure functions, any thread.
 */
#ifndef DDRAID_CORE_FORMAT_SUPERBLOCK_H
#define DDRAID_CORE_FORMAT_SUPERBLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/format/geometry.h"

/* An epoch is never reused: the number orders, the proposer's incarnation tells twins apart. */
struct epoch {
	uint64_t num;
	uint64_t inc;
};

/* The log's sequence numbers begin with the epoch's number in their upper 28 bits (slots.c), and
 * the next epoch's must not wrap. An array that changes its map each second lives for eight years.
 */
#define EPOCH_NUM_BITS 28
#define EPOCH_NUM_MAX ((1ull << EPOCH_NUM_BITS) - 2)

enum member_state {
	MEMBER_IN_SYNC = 1, /* read and written */
	MEMBER_SUSPECT = 2, /* connection broke: neither read nor written; comes back by itself */
	MEMBER_MISSING = 3, /* given up: comes back by re-add (partial) or add */
	MEMBER_FAULTY = 4,  /* failed a flush, or by an operator: comes back by a full rebuild */
	MEMBER_REBUILDING = 5, /* written everywhere, not read yet */
};

enum {
	MEMBER_F_PARTIAL = 1,    /* REBUILDING: only the regions of the missed and dirty sets */
	MEMBER_F_UNCOMPARED = 2, /* it has left since it was in sync, and orphan slots may tell
				  * of more that it lacks: back partially only if a node compares
				  * it (slots_told.c) */
};

struct map_member {
	uint8_t uuid[DDR_UUID_BYTES];
	uint8_t state; /* enum member_state */
	uint8_t flags;
	uint64_t rebuilt_upto; /* REBUILDING and not PARTIAL: first region not yet rebuilt */
	uint64_t left;         /* epoch number at which it last stopped being written, or 0 */
	/* R15: number of an epoch that its own superblock had reached when it left; 0 = unknown.
	 * One that comes back with an older one is an old copy. */
	uint64_t reached;
};

struct map {
	struct epoch epoch;
	uint64_t missed_from; /* first epoch of the present degraded time, 0 = none: R15 */
	uint8_t n;
	struct map_member member[DDR_MAX_MEMBERS];
};

/*
 * Where a map comes from: the epochs that were committed before it, as far as they are remembered,
 * newest first. Two superblocks that know one number with two incarnations are of two histories:
 * the array was run twice at once, and a larger number says nothing about which of them is right.
 */
#define LINEAGE_MAX 32u
struct lineage {
	uint32_t count;
	struct epoch epoch[LINEAGE_MAX];
};

struct superblock {
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint8_t member_uuid[DDR_UUID_BYTES];
	char name[DDR_NAME_BYTES];
	struct geo_params geo;
	uint8_t index;                /* which member of the map this device is */
	uint64_t seq;                 /* of the two copies on one member the newer wins */
	struct epoch committed;       /* the last epoch known committed when this was written */
	struct map map;               /* map.epoch is this superblock's epoch */
	bool clustered;               /* used by a cluster: a daemon alone keeps off */
	char cluster[DDR_NAME_BYTES]; /* its name, if clustered */
	struct lineage past;          /* epochs that were committed before */
	/* The node whose incarnation map.epoch.inc wrote this, if it had no slot of the dirty log
	 * then, else 0: nothing else on the members says whom to fence (R4). */
	uint32_t writer_node;
	/* 1 + the number of the copy that it was written as, 0 = not known: by an earlier build. */
	uint8_t place;
};

/* Read as this copy, it was written as the other one: what was one device begins elsewhere now. */
bool sb_misplaced(const struct superblock *sb, uint32_t copy);

/* Of two intact copies on one member: was a written after b? The numbers of two members say nothing
 * of each other. Where they are used up (nobody gets there but by a lie) the epoch says it. */
bool sb_newer(const struct superblock *a, const struct superblock *b);
#define SB_SEQ_NEXT(seq) ((seq) + ((seq) != UINT64_MAX))

/* In its place by number; the oldest makes room. One of that number that is there already stays. */
void lineage_add(struct lineage *l, const struct epoch *ep);
/* Does it know another epoch of this number? */
bool lineage_denies(const struct lineage *l, const struct epoch *ep);
/* Are these of two histories, whichever is newer? What a superblock only proposes counts for
 * nothing: many proposals come to nothing. */
bool lineage_differs(const struct lineage *l, const struct superblock *sb);

/* Has the superblock an epoch that was committed in this line, of this number or later? */
bool lineage_shares(const struct lineage *l, const struct superblock *sb, uint64_t num);

/* <0, 0, >0 as strcmp. */
int epoch_cmp(const struct epoch *a, const struct epoch *b);

void sb_encode(const struct superblock *sb, uint8_t out[DDR_BLOCK_BYTES]);
/*
 * 0; -ENOENT: no ddraid superblock here (magic); -EBADMSG: checksum; -EPROTONOSUPPORT: a
 * version or a feature that this build doesn't know; -EINVAL: a field out of its range. why
 * (FORMAT_WHY_BYTES, or NULL) gets a sentence.
 */
int sb_decode(struct superblock *sb, const uint8_t in[DDR_BLOCK_BYTES], char *why);

/*
 * What holds for every map that was ever proposed, wherever it comes from: a member or a message.
 * g is NULL if the geometry is not known. NULL, or what does not hold, in a static sentence. The
 * epoch's number is from 1 to EPOCH_NUM_MAX, n fits the geometry, no two members have one UUID, at
 * least k are in sync (R3), and nothing in it is newer than it is itself.
 */
const char *map_check(const struct map *m, const struct geo *g);

/* Members that a write must reach / may be read / of which the array consists at present. */
uint32_t map_write_mask(const struct map *m); /* IN_SYNC, REBUILDING */
uint32_t map_insync_mask(const struct map *m);
/* Of what a device carries where its two superblocks will be; never 0. */
uint64_t sb_place_sum(const uint8_t copy0[DDR_BLOCK_BYTES], const uint8_t copy1[DDR_BLOCK_BYTES]);
bool map_same(const struct map *a, const struct map *b);         /* in all that they say */
bool map_degraded(const struct map *m);                          /* any member not IN_SYNC */
bool map_promotes(const struct map *from, const struct map *to); /* one is in sync only in `to` */
bool map_move_legal(uint8_t from, uint8_t to);
const char *member_state_name(uint8_t state);

#endif
