/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Geometry: parameters -> sizes, and stripe <-> member arithmetic. See geometry.h.
 *
 * geo_init also judges superblocks that were read from a device, so it takes any bits as
 * parameters: each is bounded before it is used in arithmetic.
 *
 * How many pages a log slot has depends on the number of regions, which depends on where
 * the data starts, which depends on the size of the log. The circle is cut on the safe side:
 * the log is sized as if the data started at offset 0 of the member,
 *
 *	log_pages = ceil(ceil(member_bytes / F / region_stripes) / LOG_REGIONS_PER_PAGE)
 *
 * which is never too small, at most one page more than needed except for tiny members, and
 * depends on nothing but the stored parameters.
 */
#include "daemon/core/format/geometry.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

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

/* Units of locks, see geo_lock_bytes. */
#define GEO_UNIT_BYTES (UINT64_C(4) << 20)
#define GEO_MAX_UNITS (UINT64_C(1) << 22)

/*
 * By default a region has 4 MiB as long as four pages are enough for a slot, and then more. But no
 * more than 64 MiB, so that a node's death costs no more than that for each region which it was
 * writing, and a write waits for no longer than the resync of that takes; then a slot has more
 * pages, up to what the bounds above allow.
 */
#define GEO_DEFAULT_LOG_PAGES 4u
#define GEO_DEFAULT_REGION_MIN (4u << 20)
#define GEO_DEFAULT_REGION_MOST (64u << 20)
#define GEO_REGION_MAX (1u << 31)

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

static int refuse(const char **why, int err, const char *text)
{
	if (why)
		*why = text;
	return err;
}

bool geo_same(const struct geo_params *a, const struct geo_params *b)
{
	return a->order == b->order && a->m == b->m && a->layout == b->layout &&
	       a->slots == b->slots && a->stripe_bytes == b->stripe_bytes &&
	       a->band_bytes == b->band_bytes && a->region_bytes == b->region_bytes &&
	       a->member_bytes == b->member_bytes;
}

/* What can be said about each parameter alone. */
static int check_ranges(const struct geo_params *p, const char **why)
{
	if (p->order > DDR_MAX_ORDER)
		return refuse(why, -EINVAL, "order is out of range: choose 1, 2 or 3");
	if (p->m < 1 || p->m > DDR_MAX_PARITY)
		return refuse(why, -EINVAL,
			      "the number of parity members is out of range: choose 1");
	if (!level_of(1u << p->order, p->m))
		return refuse(why, -EOPNOTSUPP,
			      p->order == 0 ? "order 0 (a mirror) is not supported yet: choose "
					      "order 1, 2 or 3"
					    : "two parity members are not supported yet: choose 1");
	if (p->layout != GEO_ROTATE && p->layout != GEO_DEDICATED)
		return refuse(why, -EINVAL, "the layout is unknown: choose rotate or dedicated");
	if (p->slots < 2 || p->slots > DDR_MAX_SLOTS)
		return refuse(why, -EINVAL,
			      "the number of log slots is out of range: choose 2 to 64");
	/* A resync window holds at least one stripe. */
	if (!is_pow2(p->stripe_bytes) || p->stripe_bytes < DDR_BLOCK_BYTES ||
	    p->stripe_bytes > DDR_WINDOW_BYTES)
		return refuse(why, -EINVAL,
			      "the stripe size must be a power of two from 4 KiB to 128 KiB");
	if (!is_pow2(p->band_bytes) || p->band_bytes < p->stripe_bytes >> p->order)
		return refuse(why, -EINVAL,
			      "the band size must be a power of two, at least one fragment");
	if (!is_pow2(p->region_bytes) || p->region_bytes < p->stripe_bytes)
		return refuse(why, -EINVAL,
			      "the region size must be a power of two, at least one stripe");
	/* The array's size and every member offset fit in an off_t. */
	if (p->member_bytes > (uint64_t)INT64_MAX >> p->order)
		return refuse(why, -EINVAL,
			      "the member size is out of range: the array would exceed 8 EiB");
	return 0;
}

int geo_init(struct geo *g, const struct geo_params *p, const char **why)
{
	int err = check_ranges(p, why);
	uint64_t pages, log_bytes, regions_most;
	struct geo out = {.p = *p};

	if (err)
		return err;
	out.level = level_of(1u << p->order, p->m);
	out.k = (uint8_t)(1u << p->order);
	out.n = (uint8_t)(out.k + p->m);
	out.frag_bytes = p->stripe_bytes >> p->order;
	out.region_stripes = p->region_bytes / p->stripe_bytes;

	regions_most = div_up(p->member_bytes / out.frag_bytes, out.region_stripes);
	pages = div_up(regions_most, LOG_REGIONS_PER_PAGE);
	if (pages > GEO_MAX_LOG_PAGES)
		return refuse(why, -EINVAL,
			      "the region size is too small for these members: choose a larger");
	out.log_pages = pages ? (uint32_t)pages : 1;
	if ((p->slots + 1u) * out.log_pages > GEO_MAX_LOG_ALL)
		return refuse(why, -EINVAL,
			      "the region size is too small for these members and so many log "
			      "slots: choose larger regions, or fewer slots");
	log_bytes = (uint64_t)(p->slots + 1u) * out.log_pages * 2 * DDR_BLOCK_BYTES;
	out.data_offset = div_up(LOG_OFFSET + log_bytes, DATA_ALIGN) * DATA_ALIGN;

	if (p->member_bytes > out.data_offset)
		out.stripes = (p->member_bytes - out.data_offset) / out.frag_bytes;
	if (out.stripes < out.region_stripes)
		return refuse(why, -ENOSPC,
			      "the member is too small: use a larger one, or smaller regions");
	out.regions = div_up(out.stripes, out.region_stripes);
	out.size_bytes = out.stripes * p->stripe_bytes;
	/* The logical block is S, as long as partial stripes are refused. */
	out.lock_stripes = (uint32_t)(geo_lock_bytes(&out, p->stripe_bytes) / p->stripe_bytes);
	*g = out;
	return 0;
}

/*
 * user_bytes may be the exact size of the array, in which case geo_init will see up to
 * k * data_offset + S bytes more: 8 * (3 MiB for 64 slots of 4 pages) + 128 KiB.
 */
uint32_t geo_default_region_bytes(uint64_t user_bytes, uint32_t slots)
{
	const uint64_t slack = 32u << 20;
	uint64_t few = (uint64_t)GEO_DEFAULT_LOG_PAGES * LOG_REGIONS_PER_PAGE;
	uint64_t pages = GEO_MAX_LOG_ALL / (slots + 1), most;
	uint32_t region = GEO_DEFAULT_REGION_MIN;

	if (pages > GEO_MAX_LOG_PAGES)
		pages = GEO_MAX_LOG_PAGES;
	most = (pages > 1 ? pages - 1 : 1) * LOG_REGIONS_PER_PAGE;
	user_bytes = user_bytes > UINT64_MAX - slack ? UINT64_MAX : user_bytes + slack;
	while (region < GEO_DEFAULT_REGION_MOST && div_up(user_bytes, region) > few)
		region <<= 1;
	while (region < GEO_REGION_MAX && div_up(user_bytes, region) > most)
		region <<= 1;
	return region;
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

uint64_t geo_sb_offset(uint32_t copy)
{
	assert(copy < SB_COPIES);
	return SB_OFFSET + (uint64_t)copy * DDR_BLOCK_BYTES;
}
