/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `create` chooses. See choose.h.
 *
 * How many pages a log slot needs depends on the number of regions, which depends on where the data
 * starts, which depends on the size of the log. The circle is cut on the safe side: the log is
 * sized as if the data started at offset 0 of the member,
 *
 *	log_pages = ceil(ceil(member_bytes / F / region_stripes) / LOG_REGIONS_PER_PAGE)
 *
 * which is never too small, and at most one page more than needed except for tiny members.
 */
#include "daemon/core/format/choose.h"

#include <errno.h>

/*
 * By default a region has 4 MiB as long as four pages are enough for a slot, and then more. But no
 * more than 64 MiB, so that a node's death costs no more than that for each region which it was
 * writing, and a write waits for no longer than the resync of that takes; then a slot has more
 * pages, up to what the bounds in geometry.h allow.
 */
#define GEO_DEFAULT_LOG_PAGES 4u
#define GEO_DEFAULT_REGION_MIN (4u << 20)
#define GEO_DEFAULT_REGION_MOST (64u << 20)
#define GEO_REGION_MAX (1u << 31)

static uint64_t div_up(uint64_t v, uint64_t by)
{
	return v / by + !!(v % by);
}

static int choose_log(struct geo_params *p, char *why)
{
	uint32_t region_stripes = p->region_bytes / p->stripe_bytes;
	uint64_t regions = div_up(p->member_bytes / p->chunk_bytes, region_stripes);
	uint64_t pages = div_up(regions, LOG_REGIONS_PER_PAGE);

	if (pages > GEO_MAX_LOG_PAGES)
		return format_refuse(
		    why, -EINVAL,
		    "the region size is too small for these members: choose a larger");
	p->log_pages = pages ? (uint32_t)pages : 1;
	if ((p->slots + 1u) * p->log_pages > GEO_MAX_LOG_ALL)
		return format_refuse(
		    why, -EINVAL,
		    "the region size is too small for these members and so many log "
		    "slots: choose larger regions, or fewer slots");
	return 0;
}

int geo_choose(struct geo *g, struct geo_params *p, char *why)
{
	struct geo_params out = *p;
	int err = geo_check_asked(p, why);

	if (err)
		return err;
	out.chunk_bytes = p->stripe_bytes >> p->order;
	out.logical_block_bytes = p->stripe_bytes;
	err = choose_log(&out, why);
	if (err)
		return err;
	out.journal_bytes = 0;
	out.data_offset = div_up(geo_log_end(&out), DATA_ALIGN) * DATA_ALIGN;
	err = geo_init(g, &out, why);
	if (!err)
		*p = out;
	return err;
}

/*
 * user_bytes may be the exact size of the array, in which case geo_choose will see up to
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
