/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a byte of the array lies on its members (design section 2).
 *
 * Stripe s holds user bytes [s * S, (s + 1) * S). It lies on every member at
 * data_offset + s * F, F = S / k. Which fragment a member carries follows from
 * the band: rotation = (s * F / band) mod n. Fragment f of stripe s is on member
 * (f + rotation) mod n for ROTATE, on member f for DEDICATED; fragments
 * 0..k-1 are data, k..n-1 parity.
 *
 * On a member (bytes): 0 untouched | SB_OFFSET two superblock copies of 4 KiB |
 * LOG_OFFSET the dirty log: slots + 1 slots (the last is the array's own), each
 * log_pages pages of 4 KiB in two copies | journal: slots rings of journal_bytes | data_offset.
 *
 * `create` chooses where these areas lie (choose.h), and the superblock stores it. All else goes by
 * what is stored: another build may choose otherwise, and has to read what this one made.
 *
 * Pure functions: no state, any thread.
 */
#ifndef DDRAID_CORE_FORMAT_GEOMETRY_H
#define DDRAID_CORE_FORMAT_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/limits.h"
#include "daemon/core/format/why.h"
#include "daemon/core/level/level.h"

#define SB_OFFSET 4096u
#define SB_COPIES 2u
#define LOG_OFFSET 65536u
#define DATA_ALIGN (1u << 20)
/* Two planes of 2016 bytes, see logpage.h. Only a simulator for logs of many pages has another. */
#ifndef LOG_REGIONS_PER_PAGE
#define LOG_REGIONS_PER_PAGE 16128u
#endif

enum geo_layout { GEO_ROTATE = 0, GEO_DEDICATED = 1 };

/*
 * Bound on log_pages, hence on what an array's start has to read and allocate: 16.5 million
 * regions, or 63 TiB of user data with the smallest region that ddraidctl offers.
 */
#define GEO_MAX_LOG_PAGES 1024u
/*
 * And on the pages of all slots, the array's own included: 256 MiB of log on each member. An engine
 * reads all of them before it serves; in memory it has only those that have something in them.
 */
#define GEO_MAX_LOG_ALL 32768u
/* A ring of the journal holds four entries of a chunk with their headers; all rings together take
 * no more than this part of a member. */
#define GEO_JOURNAL_LEAST(chunk_bytes) (4ull * ((chunk_bytes) + 8192ull))
#define GEO_JOURNAL_SHARE 16u

/* What the superblock stores of the array's shape. */
struct geo_params {
	/* What a person chooses at create. */
	uint8_t order;         /* 0..3 */
	uint8_t m;             /* parity fragments, 1 or 2 */
	uint8_t layout;        /* enum geo_layout */
	uint8_t slots;         /* slots of the dirty log, 2..DDR_MAX_SLOTS */
	uint32_t stripe_bytes; /* S, a power of two >= DDR_BLOCK_BYTES */
	uint32_t band_bytes;   /* member bytes between rotations, a power of two >= F */
	uint32_t region_bytes; /* user bytes, a power of two >= S */
	uint64_t member_bytes; /* bytes of the smallest member that are used */
	/* What follows from that at create (choose.h), and stays as it was chosen. */
	uint32_t chunk_bytes;         /* one member's part of a stripe; this build knows S / k */
	uint32_t logical_block_bytes; /* what the array's users see; this build knows S */
	uint32_t log_pages;           /* pages per slot */
	uint64_t journal_bytes;       /* of each slot's ring; 0 = no journal */
	uint64_t data_offset;         /* member byte offset of stripe 0 */
};

struct geo {
	struct geo_params p;
	const struct level *level;
	uint8_t k;               /* data fragments = members that must be readable */
	uint8_t n;               /* k + m members */
	uint32_t frag_bytes;     /* F = chunk_bytes */
	uint32_t log_pages;      /* as stored */
	uint32_t region_stripes; /* stripes per region; the last region may have fewer */
	uint32_t lock_stripes;   /* stripes that one lock covers, a power of two: the grain */
	uint64_t data_offset;    /* as stored */
	uint64_t stripes;        /* whole stripes that fit */
	uint64_t regions;        /* ceil(stripes / region_stripes) */
	uint64_t size_bytes;     /* user bytes = stripes * S */
};

/*
 * Fills *g from *p, which may be any bits: what was read from a device is judged here. -EINVAL: a
 * parameter is out of its range. -ENOSPC: the member is too small for one region. -EOPNOTSUPP:
 * there is no level for that order and m (level.h). On an error *g is as before, and why
 * (FORMAT_WHY_BYTES, or NULL) has a sentence with the parameter and the remedy.
 */
int geo_init(struct geo *g, const struct geo_params *p, char *why);
/* The part of that which is about what a person chooses, each parameter alone. Errors likewise. */
int geo_check_asked(const struct geo_params *p, char *why);
/* Are two superblocks of one shape? */
bool geo_same(const struct geo_params *a, const struct geo_params *b);

uint8_t geo_rotation(const struct geo *g, uint64_t stripe);
uint8_t geo_member_of(const struct geo *g, uint64_t stripe, uint8_t frag);
uint8_t geo_frag_of(const struct geo *g, uint64_t stripe, uint8_t member);
/* Member byte offset of a stripe's fragment (the same on every member). */
uint64_t geo_offset(const struct geo *g, uint64_t stripe);
/* How many bytes of each member the array uses. */
uint64_t geo_end(const struct geo *g);
/* How many stripes from `stripe` on share its rotation, at most `max`. */
uint32_t geo_run(const struct geo *g, uint64_t stripe, uint32_t max);
/* A mask of all members. */
static inline uint32_t geo_all(const struct geo *g)
{
	return (1u << g->n) - 1;
}

uint64_t geo_region_of(const struct geo *g, uint64_t stripe);
/* First stripe of a region, and how many stripes it has. */
uint64_t geo_region_first(const struct geo *g, uint64_t region);
uint32_t geo_region_count(const struct geo *g, uint64_t region);
/* The number of the lock that covers a stripe. */
uint64_t geo_lock_of(const struct geo *g, uint64_t stripe);
/*
 * The grain of locks, in user bytes, of an array with that logical block. If each write is of whole
 * stripes (S = block), many write under one lock, and it is the region, whose mark they need. If
 * not, who writes has the lock alone (R20), so it is smaller: the unit, of 4 MiB, or of as much as
 * makes no more than 2^22 of them.
 */
uint64_t geo_lock_bytes(const struct geo *g, uint32_t block_bytes);
/* Member byte offset of one copy (0 or 1) of a log page. */
uint64_t geo_log_offset(const struct geo *g, uint32_t slot, uint32_t page, uint32_t copy);
/* Where the log of this shape ends, and the journal begins. log_pages is in its range. */
uint64_t geo_log_end(const struct geo_params *p);
uint64_t geo_sb_offset(uint32_t copy);

#endif
