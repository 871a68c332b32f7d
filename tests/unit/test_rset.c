/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A set of regions against a plain array of them, and what finding costs: by the pages that have
 * any. */
#include "tests/lib/test.h"

#include <stdlib.h>

#include "daemon/core/rset.h"
#include "tests/unit/sweep.h"

static struct rset s;
static uint8_t *model; /* a byte per region */

static void begin(uint64_t regions)
{
	uint32_t pages = (uint32_t)((regions + LOG_REGIONS_PER_PAGE - 1) / LOG_REGIONS_PER_PAGE);

	CHECK_EQ_INT(rset_init(&s, regions, pages), 0);
	model = calloc(1, regions);
}

static void end(void)
{
	rset_free(&s);
	free(model);
}

static void same(void)
{
	uint64_t n = 0, next = s.regions;

	for (uint64_t r = s.regions; r--;) {
		n += model[r];
		if (model[r])
			next = r;
		CHECK_EQ_U64(rset_has(&s, r), model[r]);
		CHECK_EQ_U64(rset_next(&s, r), next);
	}
	CHECK_EQ_U64(s.count, n);
	CHECK_EQ_U64(rset_next(&s, s.regions), s.regions);
	for (uint32_t p = 0; p < s.pages; p++)
		for (uint32_t i = 0; i < LOG_REGIONS_PER_PAGE; i++) {
			uint64_t r = (uint64_t)p * LOG_REGIONS_PER_PAGE + i;

			CHECK_EQ_U64(bit_get(rset_plane(&s, p), i), r < s.regions && model[r]);
		}
}

static void plane_some(struct prng *rng, uint8_t *plane)
{
	memset(plane, prng_below(rng, 4) ? 0 : 0xff, LOG_PLANE_BYTES);
	for (uint32_t i = prng_below(rng, 4); i; i--)
		plane[prng_below(rng, LOG_PLANE_BYTES)] ^= (uint8_t)(1u << prng_below(rng, 8));
}

/* One change, to both. */
static void change(struct prng *rng)
{
	uint64_t r = prng_below(rng, (uint32_t)s.regions);
	uint32_t page = prng_below(rng, s.pages), how = prng_below(rng, 8);
	uint64_t first = (uint64_t)page * LOG_REGIONS_PER_PAGE;
	uint8_t plane[LOG_PLANE_BYTES];

	if (how == 7) {
		rset_clear(&s);
		memset(model, 0, s.regions);
		return;
	}
	if (how >= 4) {
		rset_put(&s, r, how > 4);
		model[r] = how > 4;
		return;
	}
	plane_some(rng, plane);
	if (how == 0)
		rset_plane_put(&s, page, plane);
	else if (how == 1)
		rset_plane_add(&s, page, plane);
	else
		rset_plane_fill(&s, page);
	for (uint32_t i = 0; i < LOG_REGIONS_PER_PAGE && first + i < s.regions; i++) {
		uint8_t *m = &model[first + i], bit = bit_get(plane, i);

		*m = how == 0 ? bit : how == 1 ? *m | bit : 1;
	}
}

TEST(it_is_what_a_plain_array_is)
{
	static const uint64_t regions[] = {1,
					   7,
					   64,
					   65,
					   LOG_REGIONS_PER_PAGE - 1,
					   LOG_REGIONS_PER_PAGE,
					   LOG_REGIONS_PER_PAGE + 1,
					   3 * LOG_REGIONS_PER_PAGE + 1000};
	struct prng rng = {1};

	for (size_t i = 0; i < sizeof(regions) / sizeof(*regions); i++) {
		begin(regions[i]);
		same();
		for (int n = 0; n < 60; n++) {
			change(&rng);
			same();
		}
		end();
	}
}

TEST(one_set_is_added_to_another)
{
	struct rset of = {0};
	struct prng rng = {2};

	begin(2 * LOG_REGIONS_PER_PAGE);
	CHECK_EQ_INT(rset_init(&of, s.regions, s.pages), 0);
	rset_add(&s, &of);
	same();
	for (int n = 0; n < 40; n++) {
		uint64_t a = prng_below(&rng, (uint32_t)s.regions);

		rset_put(&of, a, true);
		model[a] = 1;
	}
	rset_add(&s, &of);
	same();
	rset_free(&of);
	end();
}

TEST(pages_that_never_had_any_take_no_memory)
{
	begin(1000ull * LOG_REGIONS_PER_PAGE);
	rset_put(&s, 5, true);
	rset_put(&s, s.regions - 1, true);
	rset_put(&s, 7ull * LOG_REGIONS_PER_PAGE, false);
	rset_plane_put(&s, 10, rset_plane(&s, 3));
	rset_plane_add(&s, 11, rset_plane(&s, 3));
	for (uint32_t p = 0; p < s.pages; p++)
		CHECK_EQ_INT(s.page[p].bits != NULL, p == 0 || p == s.pages - 1);
	CHECK_EQ_U64(rset_next(&s, 6), s.regions - 1);
	end();
}
