/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Geometry: parameters -> sizes, and stripe <-> member arithmetic. See geometry.h.
 *
 * geo_init judges superblocks that were read from a device, so it takes any bits as parameters:
 * each is bounded before it is used in arithmetic.
 */
#include "daemon/core/format/geometry.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

/* Units of locks, see geo_lock_bytes. */
#define GEO_UNIT_BYTES (UINT64_C(4) << 20)
#define GEO_MAX_UNITS (UINT64_C(1) << 22)

_Static_assert(GEO_MAX_LOG_PAGES <= UINT16_MAX, "struct logpage numbers its page in 16 bits");
_Static_assert((1 << DDR_MAX_ORDER) + DDR_MAX_PARITY == DDR_MAX_MEMBERS, "limits.h");

static bool is_pow2(uint32_t v)
{
	return v && !(v & (v - 1));
}

static uint64_t div_up(uint64_t v, uint64_t by)
{
	return v / by + !!(v % by);
}

bool geo_same(const struct geo_params *a, const struct geo_params *b)
{
	return a->order == b->order && a->m == b->m && a->layout == b->layout &&
	       a->slots == b->slots && a->stripe_bytes == b->stripe_bytes &&
	       a->band_bytes == b->band_bytes && a->region_bytes == b->region_bytes &&
	       a->member_bytes == b->member_bytes && a->chunk_bytes == b->chunk_bytes &&
	       a->logical_block_bytes == b->logical_block_bytes && a->log_pages == b->log_pages &&
	       a->journal_bytes == b->journal_bytes && a->data_offset == b->data_offset;
}

int geo_check_asked(const struct geo_params *p, char *why)
{
	if (p->order > DDR_MAX_ORDER)
		return format_refuse(why, -EINVAL, "order is out of range: choose 1, 2 or 3");
	if (p->m < 1 || p->m > DDR_MAX_PARITY)
		return format_refuse(why, -EINVAL,
				     "the number of parity members is out of range: choose 1");
	if (!level_of(1u << p->order, p->m))
		return format_refuse(why, -EOPNOTSUPP, "%s",
				     p->order == 0
					 ? "order 0 (a mirror) is not supported yet: choose "
					   "order 1, 2 or 3"
					 : "two parity members are not supported yet: choose 1");
	if (p->layout != GEO_ROTATE && p->layout != GEO_DEDICATED)
		return format_refuse(why, -EINVAL,
				     "the layout is unknown: choose rotate or dedicated");
	if (p->slots < 2 || p->slots > DDR_MAX_SLOTS)
		return format_refuse(why, -EINVAL,
				     "the number of log slots is out of range: choose 2 to 64");
	/* A resync window holds at least one stripe. */
	if (!is_pow2(p->stripe_bytes) || p->stripe_bytes < DDR_BLOCK_BYTES ||
	    p->stripe_bytes > DDR_WINDOW_BYTES)
		return format_refuse(
		    why, -EINVAL, "the stripe size must be a power of two from 4 KiB to 128 KiB");
	if (!is_pow2(p->band_bytes) || p->band_bytes < p->stripe_bytes >> p->order)
		return format_refuse(why, -EINVAL,
				     "the band size must be a power of two, at least one fragment");
	if (!is_pow2(p->region_bytes) || p->region_bytes < p->stripe_bytes)
		return format_refuse(why, -EINVAL,
				     "the region size must be a power of two, at least one stripe");
	/* The array's size and every member offset fit in an off_t. */
	if (p->member_bytes > (uint64_t)INT64_MAX >> p->order)
		return format_refuse(
		    why, -EINVAL, "the member size is out of range: the array would exceed 8 EiB");
	return 0;
}

/* What a later build may have chosen otherwise, and this one can't serve. */
static int check_grain(const struct geo_params *p, char *why)
{
	if (p->chunk_bytes != p->stripe_bytes >> p->order)
		return format_refuse(why, -EINVAL,
				     "the chunk has %" PRIu32
				     " bytes: this build knows only chunk = stripe / k, %" PRIu32,
				     p->chunk_bytes, p->stripe_bytes >> p->order);
	if (p->logical_block_bytes != p->stripe_bytes)
		return format_refuse(
		    why, -EINVAL,
		    "the logical block has %" PRIu32
		    " bytes: this build knows only logical block = stripe, %" PRIu32,
		    p->logical_block_bytes, p->stripe_bytes);
	return 0;
}

static int check_log(const struct geo_params *p, char *why)
{
	if (!p->log_pages || p->log_pages > GEO_MAX_LOG_PAGES)
		return format_refuse(
		    why, -EINVAL, "log_pages is %" PRIu32 ": a slot of the log has 1 to %u pages",
		    p->log_pages, GEO_MAX_LOG_PAGES);
	if ((p->slots + 1u) * p->log_pages > GEO_MAX_LOG_ALL)
		return format_refuse(why, -EINVAL,
				     "log_pages is %" PRIu32
				     ": the log of %u slots has %u pages at most in all",
				     p->log_pages, p->slots, GEO_MAX_LOG_ALL);
	return 0;
}

/*
 * Room for a journal is room and nothing else, as long as no feature bit says that the journal is
 * used: then this build refuses the superblock (superblock.c). So a build that has a journal can
 * serve the array once it is made, and no data has to move for it.
 */
static int check_journal(const struct geo_params *p, char *why)
{
	if (!p->journal_bytes)
		return 0;
	if (p->journal_bytes % DDR_BLOCK_BYTES ||
	    p->journal_bytes < GEO_JOURNAL_LEAST(p->chunk_bytes))
		return format_refuse(
		    why, -EINVAL,
		    "journal_bytes is %" PRIu64
		    ": a ring has a multiple of %d bytes, and at least %llu with this chunk",
		    p->journal_bytes, DDR_BLOCK_BYTES, GEO_JOURNAL_LEAST(p->chunk_bytes));
	if (p->journal_bytes > p->member_bytes / GEO_JOURNAL_SHARE / p->slots)
		return format_refuse(why, -EINVAL,
				     "journal_bytes is %" PRIu64
				     ": the rings of %u slots take more than a %uth of the member",
				     p->journal_bytes, p->slots, GEO_JOURNAL_SHARE);
	return 0;
}

static int check_data_offset(const struct geo_params *p, char *why)
{
	uint64_t least = geo_log_end(p) + p->slots * p->journal_bytes;

	if (p->data_offset % DATA_ALIGN)
		return format_refuse(why, -EINVAL,
				     "data_offset is %" PRIu64 ": it is a multiple of %u",
				     p->data_offset, DATA_ALIGN);
	if (p->data_offset < least)
		return format_refuse(why, -EINVAL,
				     "data_offset is %" PRIu64
				     ", and the log and the journal end at %" PRIu64,
				     p->data_offset, least);
	return 0;
}

static int check_regions(const struct geo *g, char *why)
{
	if (g->stripes < g->region_stripes)
		return format_refuse(why, -ENOSPC,
				     "the member is too small: its %" PRIu64
				     " bytes hold no whole region from data_offset %" PRIu64
				     " on; use a larger one, or smaller regions",
				     g->p.member_bytes, g->data_offset);
	if (g->regions > (uint64_t)g->log_pages * LOG_REGIONS_PER_PAGE)
		return format_refuse(why, -EINVAL,
				     "log_pages is %" PRIu32
				     ": that is too few for the array's %" PRIu64 " regions",
				     g->log_pages, g->regions);
	return 0;
}

int geo_init(struct geo *g, const struct geo_params *p, char *why)
{
	int (*const check[])(const struct geo_params *, char *) = {
	    geo_check_asked, check_grain, check_log, check_journal, check_data_offset,
	};
	struct geo out = {.p = *p};
	int err = 0;

	for (unsigned i = 0; i < sizeof(check) / sizeof(*check) && !err; i++)
		err = check[i](p, why);
	if (err)
		return err;
	out.level = level_of(1u << p->order, p->m);
	out.k = (uint8_t)(1u << p->order);
	out.n = (uint8_t)(out.k + p->m);
	out.frag_bytes = p->chunk_bytes;
	out.log_pages = p->log_pages;
	out.region_stripes = p->region_bytes / p->stripe_bytes;
	out.data_offset = p->data_offset;
	if (p->member_bytes > p->data_offset)
		out.stripes = (p->member_bytes - p->data_offset) / out.frag_bytes;
	out.regions = div_up(out.stripes, out.region_stripes);
	out.size_bytes = out.stripes * p->stripe_bytes;
	/* The logical block is S, as long as partial stripes are refused. */
	out.lock_stripes =
	    (uint32_t)(geo_lock_bytes(&out, p->logical_block_bytes) / p->stripe_bytes);
	err = check_regions(&out, why);
	if (!err)
		*g = out;
	return err;
}

/* band and F are powers of two: no division but the one by n. */
static uint32_t band_stripes(const struct geo *g)
{
	return g->p.band_bytes >> __builtin_ctz(g->frag_bytes);
}

uint8_t geo_rotation(const struct geo *g, uint64_t stripe)
{
	assert(stripe < g->stripes);
	if (g->p.layout == GEO_DEDICATED)
		return 0;
	return (uint8_t)((stripe >> __builtin_ctz(band_stripes(g))) % g->n);
}

uint8_t geo_member_of(const struct geo *g, uint64_t stripe, uint8_t frag)
{
	uint32_t member = geo_rotation(g, stripe) + (uint32_t)frag;

	assert(frag < g->n);
	return (uint8_t)(member < g->n ? member : member - g->n);
}

uint8_t geo_frag_of(const struct geo *g, uint64_t stripe, uint8_t member)
{
	uint8_t rotation = geo_rotation(g, stripe);

	assert(member < g->n);
	return (uint8_t)(member >= rotation ? member - rotation : member + g->n - rotation);
}

uint64_t geo_offset(const struct geo *g, uint64_t stripe)
{
	assert(stripe < g->stripes);
	return g->data_offset + stripe * g->frag_bytes;
}

uint64_t geo_end(const struct geo *g)
{
	return g->data_offset + g->stripes * g->frag_bytes;
}

uint32_t geo_run(const struct geo *g, uint64_t stripe, uint32_t max)
{
	uint32_t band = band_stripes(g);
	uint32_t left = band - (uint32_t)(stripe & (band - 1));

	assert(stripe < g->stripes);
	return g->p.layout == GEO_DEDICATED || left > max ? max : left;
}

uint64_t geo_lock_bytes(const struct geo *g, uint32_t block_bytes)
{
	uint64_t unit = GEO_UNIT_BYTES;

	if (g->p.stripe_bytes == block_bytes)
		return g->p.region_bytes;
	while (div_up(g->size_bytes, unit) > GEO_MAX_UNITS)
		unit *= 2;
	return unit;
}

uint64_t geo_lock_of(const struct geo *g, uint64_t stripe)
{
	assert(stripe < g->stripes);
	return stripe >> __builtin_ctz(g->lock_stripes);
}

uint64_t geo_region_of(const struct geo *g, uint64_t stripe)
{
	assert(stripe < g->stripes);
	return stripe >> __builtin_ctz(g->region_stripes);
}

uint64_t geo_region_first(const struct geo *g, uint64_t region)
{
	assert(region < g->regions);
	return region << __builtin_ctz(g->region_stripes);
}

uint32_t geo_region_count(const struct geo *g, uint64_t region)
{
	uint64_t left = g->stripes - geo_region_first(g, region);

	return left < g->region_stripes ? (uint32_t)left : g->region_stripes;
}

uint64_t geo_log_offset(const struct geo *g, uint32_t slot, uint32_t page, uint32_t copy)
{
	assert(slot <= g->p.slots && page < g->log_pages && copy < 2);
	return LOG_OFFSET + (((uint64_t)slot * g->log_pages + page) * 2 + copy) * DDR_BLOCK_BYTES;
}

uint64_t geo_log_end(const struct geo_params *p)
{
	return LOG_OFFSET + (p->slots + 1ull) * p->log_pages * 2 * DDR_BLOCK_BYTES;
}

uint64_t geo_sb_offset(uint32_t copy)
{
	assert(copy < SB_COPIES);
	return SB_OFFSET + (uint64_t)copy * DDR_BLOCK_BYTES;
}
