/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One page of a slot of the dirty log (doc/ondisk.md, design section 6): a header and two
 * planes of one bit per region, dirty and missed. Pure functions, any thread.
 */
#ifndef DDRAID_CORE_FORMAT_LOGPAGE_H
#define DDRAID_CORE_FORMAT_LOGPAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/format/geometry.h"

#define LOG_PLANE_BYTES (LOG_REGIONS_PER_PAGE / 8)

struct logpage {
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint16_t slot;
	uint16_t page;
	uint32_t owner_node; /* who holds the slot, 0 = nobody */
	uint64_t owner_inc;  /* its incarnation, 0 = nobody */
	uint64_t seq;        /* newer wins; copy = seq & 1 */
	/* R22, in page 0: the slot's journal entries below this number are dead. It never falls,
	 * whoever has the slot. 0 in other pages, and as long as there is no journal. */
	uint64_t dead_below;
	uint8_t dirty[LOG_PLANE_BYTES];
	uint8_t missed[LOG_PLANE_BYTES];
};

void logpage_encode(const struct logpage *lp, uint8_t out[DDR_BLOCK_BYTES]);
/* 0; -ENOENT: never written (all zero); -EBADMSG: torn or foreign: magic, checksum;
 * -EPROTONOSUPPORT: version. The caller compares uuid, slot and page. */
int logpage_decode(struct logpage *lp, const uint8_t in[DDR_BLOCK_BYTES]);

/* The number of the next image of a page, written under the epoch of that number. */
uint64_t logpage_seq_next(uint64_t epoch, uint64_t seq);
#define LOG_SEQ_EPOCH_SHIFT 36 /* the part of it that an epoch begins */

static inline bool bit_get(const uint8_t *plane, uint32_t i)
{
	return plane[i >> 3] >> (i & 7) & 1;
}
static inline void bit_set(uint8_t *plane, uint32_t i)
{
	plane[i >> 3] = (uint8_t)(plane[i >> 3] | 1u << (i & 7));
}
static inline void bit_clear(uint8_t *plane, uint32_t i)
{
	plane[i >> 3] = (uint8_t)(plane[i >> 3] & ~(1u << (i & 7)));
}

#endif
