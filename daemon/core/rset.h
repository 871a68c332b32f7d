/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A set of an array's regions, kept in pages as the log has them (logpage.h), with counts: whoever
 * looks for something pays for what is there, not for the size of the array. A page that never had
 * a region takes no memory. Regions that the array does not have are never in it, whatever a plane
 * says that is put there.
 *
 * Memory for a page is taken when its first region is put; that there is none is a broken
 * invariant, as for a region itself (region.c).
 */
#ifndef DDRAID_CORE_RSET_H
#define DDRAID_CORE_RSET_H

#include "daemon/core/format/logpage.h"

struct rset_page {
	uint8_t *bits; /* a plane; NULL: none was ever set */
	uint32_t count;
};

struct rset {
	uint64_t regions; /* of the array */
	uint64_t count;   /* of the set */
	uint32_t pages;
	struct rset_page *page;
};

/* 0, or -ENOMEM. Of an array with these regions and log pages; empty. */
int rset_init(struct rset *s, uint64_t regions, uint32_t pages);
void rset_free(struct rset *s); /* also of one that is all zero */
bool rset_has(const struct rset *s, uint64_t region);
void rset_put(struct rset *s, uint64_t region, bool on);
/* The first one from `from` on; s->regions if there is none. */
uint64_t rset_next(const struct rset *s, uint64_t from);
void rset_clear(struct rset *s);

uint32_t plane_count(const uint8_t *plane); /* of its bits */

/* By pages: planes of LOG_PLANE_BYTES. */
const uint8_t *rset_plane(const struct rset *s, uint32_t page); /* valid until the set changes */
void rset_plane_put(struct rset *s, uint32_t page, const uint8_t *plane);
void rset_plane_add(struct rset *s, uint32_t page, const uint8_t *plane);
void rset_plane_fill(struct rset *s, uint32_t page);
/* All that `of` has. */
void rset_add(struct rset *s, const struct rset *of);

#endif
