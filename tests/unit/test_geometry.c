/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/format/geometry.h"
#include "tests/unit/sweep.h"

static const struct geo_params usual = {
    .order = 2,
    .m = 1,
    .layout = GEO_ROTATE,
    .slots = 32,
    .stripe_bytes = 4096,
    .band_bytes = 65536,
    .region_bytes = 4 << 20,
    .member_bytes = 256 << 20,
};

static uint64_t div_up(uint64_t v, uint64_t by)
{
	return v / by + !!(v % by);
}

/* What every geometry that geo_init accepts must satisfy, whatever it was asked for. */
static void check_sane(const struct geo *g)
{
	uint64_t log_end = geo_log_offset(g, g->p.slots, g->log_pages - 1, 1) + DDR_BLOCK_BYTES;

	CHECK_EQ_U64(g->k, 1u << g->p.order);
	CHECK_EQ_U64(g->n, g->k + g->p.m);
	CHECK(g->n <= DDR_MAX_MEMBERS);
	/* R1: k members in sync and k absent ones are more than there are, so no set that was left
	 * behind can be taken for the whole. A geometry without that needs to ask a majority of the
	 * cluster's nodes at assembly: see records_agree() in assemble.c. */
	CHECK(2 * g->k > g->n);
	CHECK_EQ_U64((uint64_t)g->frag_bytes * g->k, g->p.stripe_bytes);
	CHECK_EQ_U64((uint64_t)g->region_stripes * g->p.stripe_bytes, g->p.region_bytes);
	CHECK_EQ_U64(g->data_offset % DATA_ALIGN, 0);
	CHECK(g->data_offset >= log_end && g->data_offset - log_end < DATA_ALIGN);
	CHECK(g->stripes >= g->region_stripes);
	CHECK(g->stripes <= (g->p.member_bytes - g->data_offset) / g->frag_bytes);
	CHECK(g->stripes + 1 > (g->p.member_bytes - g->data_offset) / g->frag_bytes);
	CHECK_EQ_U64(g->regions, div_up(g->stripes, g->region_stripes));
	CHECK(g->regions <= (uint64_t)g->log_pages * LOG_REGIONS_PER_PAGE);
	CHECK_EQ_U64(g->size_bytes / g->p.stripe_bytes, g->stripes);
	CHECK(g->size_bytes <= INT64_MAX);
	CHECK(geo_region_first(g, g->regions - 1) < g->stripes);
	CHECK(geo_offset(g, g->stripes - 1) + g->frag_bytes <= g->p.member_bytes);
}

TEST(sizes_of_a_usual_array)
{
	struct geo g;
	const char *why = NULL;

	CHECK_EQ_INT(geo_init(&g, &usual, &why), 0);
	CHECK(!why);
	check_sane(&g);
	CHECK_EQ_U64(g.k, 4);
	CHECK_EQ_U64(g.n, 5);
	CHECK_EQ_U64(g.frag_bytes, 1024);
	CHECK_EQ_U64(g.log_pages, 1);
	CHECK_EQ_U64(g.region_stripes, 1024);
	CHECK_EQ_U64(g.data_offset, 1 << 20); /* 64 KiB + 33 * 2 * 4 KiB, rounded up */
	CHECK_EQ_U64(g.stripes, 255 * 1024);
	CHECK_EQ_U64(g.regions, 255);
	CHECK_EQ_U64(g.size_bytes, 4 * 255ull << 20);
}

TEST(sizes_hold_for_every_combination_of_parameters)
{
	static const uint64_t member[] = {4ull << 20,  (4ull << 20) + 12345, 100ull << 20,
					  1ull << 30,  (1ull << 40) - 1,     1ull << 44,
					  15ull << 50, INT64_MAX >> 3};
	static const uint8_t slots[] = {2, 3, 32, DDR_MAX_SLOTS};
	unsigned accepted = 0;
	struct geo g;

	for (unsigned i = 0; i < sizeof(member) / sizeof(*member); i++)
		for (unsigned s = 0; s < sizeof(slots); s++)
			for (unsigned region = 12; region < 32; region++)
				for (struct sweep w = {0}; sweep_next(&w);) {
					w.p.member_bytes = member[i];
					w.p.slots = slots[s];
					w.p.region_bytes = 1u << region;
					if (geo_init(&g, &w.p, NULL) == 0) {
						check_sane(&g);
						accepted++;
					}
				}
	CHECK(accepted > 50000);
}

TEST(log_pages_grow_with_the_regions)
{
	struct geo_params p = usual;
	struct geo g;

	/* As if data began at 0: just as many fragments as one page has bits for. */
	p.region_bytes = p.stripe_bytes = 4096;
	p.member_bytes = (uint64_t)LOG_REGIONS_PER_PAGE * 1024;
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 1);
	p.member_bytes += 1023; /* no further fragment fits */
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 1);
	p.member_bytes++;
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 2);
	check_sane(&g);
}

TEST(log_pages_have_a_bound)
{
	struct geo_params p = usual;
	const char *why = NULL;
	struct geo g;

	p.slots = 31;
	p.member_bytes = 1024ull * LOG_REGIONS_PER_PAGE * 1024 * 1024; /* a region: 1 MiB of it */
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 1024);
	check_sane(&g);
	p.member_bytes += 1024;
	CHECK_EQ_INT(geo_init(&g, &p, &why), -EINVAL);
	CHECK(why && strstr(why, "region size is too small"));
	/* And all slots together. */
	p.member_bytes -= 1024;
	p.slots = 32;
	CHECK_EQ_INT(geo_init(&g, &p, &why), -EINVAL);
	CHECK(why && strstr(why, "fewer slots"));
}

TEST(a_member_must_hold_one_whole_region)
{
	struct geo_params p = usual;
	const char *why = NULL;
	struct geo g;

	p.region_bytes = 65536; /* small regions are for the simulator, but legal */
	p.member_bytes = DATA_ALIGN + 16 * 1024;
	CHECK_EQ_INT(geo_init(&g, &p, &why), 0);
	CHECK_EQ_U64(g.stripes, 16);
	CHECK_EQ_U64(g.regions, 1);
	p.member_bytes--;
	CHECK_EQ_INT(geo_init(&g, &p, &why), -ENOSPC);
	CHECK(why && strstr(why, "too small"));
	for (uint64_t bytes = 0; bytes <= DATA_ALIGN; bytes += 65536) {
		p.member_bytes = bytes;
		CHECK_EQ_INT(geo_init(&g, &p, NULL), -ENOSPC);
	}
}

static void refused(const struct geo_params *p, int err, const char *word)
{
	struct geo g, before;
	const char *why = NULL;

	memset(&g, 0x5a, sizeof(g));
	before = g;
	CHECK_EQ_INT(geo_init(&g, p, &why), err);
	CHECK_MSG(why && strstr(why, word), "\"%s\" in \"%s\"", word, why ? why : "");
	CHECK_EQ_MEM(&g, &before, sizeof(g));
	CHECK_EQ_INT(geo_init(&g, p, NULL), err);
}

#define REFUSED(err_, word_, assign_)                                                              \
	do {                                                                                       \
		struct geo_params refused_p = usual;                                               \
		refused_p.assign_;                                                                 \
		refused(&refused_p, err_, word_);                                                  \
	} while (0)

TEST(each_parameter_out_of_range_is_refused_by_name)
{
	REFUSED(-EOPNOTSUPP, "order 0", order = 0);
	REFUSED(-EINVAL, "order", order = 4);
	REFUSED(-EINVAL, "order", order = 255);
	REFUSED(-EINVAL, "parity", m = 0);
	REFUSED(-EOPNOTSUPP, "two parity", m = 2);
	REFUSED(-EINVAL, "parity", m = 3);
	REFUSED(-EINVAL, "layout", layout = 2);
	REFUSED(-EINVAL, "slots", slots = 0);
	REFUSED(-EINVAL, "slots", slots = 1);
	REFUSED(-EINVAL, "slots", slots = DDR_MAX_SLOTS + 1);
	REFUSED(-EINVAL, "stripe", stripe_bytes = 0);
	REFUSED(-EINVAL, "stripe", stripe_bytes = 2048);
	REFUSED(-EINVAL, "stripe", stripe_bytes = 4097);
	REFUSED(-EINVAL, "stripe", stripe_bytes = 6144);
	REFUSED(-EINVAL, "stripe", stripe_bytes = 2 * DDR_WINDOW_BYTES);
	REFUSED(-EINVAL, "stripe", stripe_bytes = 1u << 31);
	REFUSED(-EINVAL, "band", band_bytes = 0);
	REFUSED(-EINVAL, "band", band_bytes = 512); /* F is 1024 */
	REFUSED(-EINVAL, "band", band_bytes = 3 * 1024);
	REFUSED(-EINVAL, "region", region_bytes = 0);
	REFUSED(-EINVAL, "region", region_bytes = 2048);
	REFUSED(-EINVAL, "region", region_bytes = 3 << 20);
	REFUSED(-EINVAL, "8 EiB", member_bytes = UINT64_MAX);
	REFUSED(-EINVAL, "8 EiB", member_bytes = ((uint64_t)INT64_MAX >> 2) + 1);
	REFUSED(-EINVAL, "region size is too small", member_bytes = (uint64_t)INT64_MAX >> 2);
	REFUSED(-EINVAL, "region size is too small", member_bytes = 1ull << 46);
	REFUSED(-ENOSPC, "too small", member_bytes = 1 << 20);
}

TEST(any_bits_as_parameters_are_judged_without_overflow)
{
	struct prng r = {2005};
	unsigned accepted = 0;

	for (unsigned i = 0; i < 300000; i++) {
		struct geo_params p;
		struct geo g;

		prng_fill(&r, &p, sizeof(p));
		if (i & 1) { /* near enough to what is legal to get far */
			p.order &= 3;
			p.m = 1;
			p.layout &= 1;
			p.slots &= 127;
			p.stripe_bytes = 1u << prng_below(&r, 32);
			p.band_bytes = 1u << prng_below(&r, 32);
			p.region_bytes = 1u << prng_below(&r, 32);
			p.member_bytes >>= prng_below(&r, 64);
		}
		if (geo_init(&g, &p, NULL) == 0) {
			check_sane(&g);
			accepted++;
		}
	}
	CHECK(accepted > 1000);
}

TEST(roles_of_a_stripe_are_a_permutation_of_the_members)
{
	struct geo g;

	for (struct sweep w = {0}; sweep_next(&w);) {
		CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		check_sane(&g);
		CHECK_EQ_U64(g.stripes, w.stripes);
		for (uint64_t s = 0; s < g.stripes; s++) {
			uint32_t seen = 0;
			/* The design's words, without the code's shifts. */
			uint64_t rotation = s * g.frag_bytes / g.p.band_bytes % g.n;

			if (g.p.layout == GEO_DEDICATED)
				rotation = 0;
			CHECK_EQ_U64(geo_rotation(&g, s), rotation);
			CHECK_EQ_U64(geo_offset(&g, s), g.data_offset + s * g.frag_bytes);
			for (uint8_t f = 0; f < g.n; f++) {
				uint8_t member = geo_member_of(&g, s, f);

				CHECK_EQ_U64(member, (f + rotation) % g.n);
				CHECK_EQ_U64(geo_frag_of(&g, s, member), f);
				seen |= 1u << member;
			}
			CHECK_EQ_U64(seen, (1u << g.n) - 1);
		}
	}
}

TEST(a_run_ends_where_the_rotation_changes)
{
	struct geo g;

	for (struct sweep w = {.stripes = 150}; sweep_next(&w);) {
		CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		for (uint64_t s = 0; s < g.stripes; s++) {
			uint32_t run = 1;

			while (s + run < g.stripes &&
			       geo_rotation(&g, s + run) == geo_rotation(&g, s))
				run++;
			for (uint32_t max = 0; max <= run; max++)
				CHECK_EQ_U64(geo_run(&g, s, max), max);
			if (s + run < g.stripes)
				for (uint32_t max = run; max < run + 3; max++)
					CHECK_EQ_U64(geo_run(&g, s, max), run);
		}
	}
}

TEST(every_member_has_its_share_of_the_parity)
{
	struct geo g;

	for (struct sweep w = {0}; sweep_next(&w);) {
		uint64_t count[DDR_MAX_MEMBERS] = {0};
		uint64_t turn;

		CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		turn = (uint64_t)g.p.band_bytes / g.frag_bytes * g.n;
		if (turn > g.stripes)
			continue;
		for (uint64_t s = 0; s < turn; s++)
			count[geo_member_of(&g, s, g.k)]++;
		for (unsigned i = 0; i < g.n; i++)
			if (g.p.layout == GEO_ROTATE)
				CHECK_EQ_U64(count[i], turn / g.n);
			else
				CHECK_EQ_U64(count[i], i == g.k ? turn : 0);
	}
}

TEST(regions_tile_the_stripes)
{
	struct geo g;

	for (struct sweep w = {0}; sweep_next(&w);) {
		uint64_t next = 0;

		CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		for (uint64_t r = 0; r < g.regions; r++) {
			uint32_t count = geo_region_count(&g, r);

			CHECK_EQ_U64(geo_region_first(&g, r), next);
			CHECK(count >= 1 && count <= g.region_stripes);
			CHECK(count == g.region_stripes || r == g.regions - 1);
			for (uint32_t i = 0; i < count; i++)
				CHECK_EQ_U64(geo_region_of(&g, next + i), r);
			next += count;
		}
		CHECK_EQ_U64(next, g.stripes);
	}
}

TEST(superblocks_log_pages_and_data_do_not_overlap)
{
	static const uint64_t member[] = {64ull << 20, 1ull << 35, 1ull << 40};
	struct geo_params p = usual;
	struct geo g;

	CHECK_EQ_U64(geo_sb_offset(0), 4096);
	CHECK_EQ_U64(geo_sb_offset(1), 8192);
	CHECK(geo_sb_offset(1) + DDR_BLOCK_BYTES <= LOG_OFFSET);
	for (unsigned i = 0; i < 3; i++)
		for (p.slots = 2; p.slots <= DDR_MAX_SLOTS; p.slots++) {
			uint64_t next = LOG_OFFSET;

			p.member_bytes = member[i];
			CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
			/* slots + 1: the last one is the array's own */
			for (uint32_t slot = 0; slot <= g.p.slots; slot++)
				for (uint32_t page = 0; page < g.log_pages; page++)
					for (uint32_t copy = 0; copy < 2; copy++) {
						CHECK_EQ_U64(geo_log_offset(&g, slot, page, copy),
							     next);
						next += DDR_BLOCK_BYTES;
					}
			CHECK(next <= g.data_offset);
		}
}

/* The log is sized as if data began at 0, the array's size is what remains of it. */
TEST(the_default_region_of_an_exact_fit_leaves_room_for_the_log)
{
	const uint64_t fit = (4ull * LOG_REGIONS_PER_PAGE) << 22;

	for (struct sweep w = {0}; sweep_next(&w);) {
		struct geo g;

		w.p.slots = DDR_MAX_SLOTS;
		w.p.member_bytes = (3 << 20) + (fit >> w.p.order);
		w.p.region_bytes = geo_default_region_bytes(fit, w.p.slots);
		CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		CHECK(g.size_bytes >= fit && g.log_pages <= 4);
	}
}

TEST(the_default_region_keeps_a_slot_within_four_pages_up_to_64_MiB)
{
	const uint64_t most = 4 * (uint64_t)LOG_REGIONS_PER_PAGE;

	CHECK_EQ_U64(geo_default_region_bytes(0, 32), 4 << 20);
	CHECK_EQ_U64(geo_default_region_bytes(1ull << 37, 32), 4 << 20);
	CHECK_EQ_U64(geo_default_region_bytes(UINT64_MAX, 32), 1u << 31);
	for (uint64_t bytes = 8 << 20; bytes < 1ull << 47; bytes += bytes / 97)
		for (struct sweep w = {0}; sweep_next(&w);) {
			struct geo g;
			uint32_t region;

			w.p.member_bytes = bytes;
			w.p.slots = DDR_MAX_SLOTS;
			w.p.region_bytes =
			    geo_default_region_bytes(bytes << w.p.order, DDR_MAX_SLOTS);
			CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
			CHECK(g.log_pages <= 4 || w.p.region_bytes >= 64 << 20);
			/* Just as well from the array's exact size. */
			region = geo_default_region_bytes(g.size_bytes, DDR_MAX_SLOTS);
			CHECK(region >= 4 << 20 && !(region & (region - 1)));
			w.p.region_bytes = region;
			CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
			CHECK(g.log_pages <= 4 || region >= 64 << 20);
			/* And no larger than need be. */
			CHECK(region == 4 << 20 ||
			      div_up(g.size_bytes + (32u << 20), region / 2) > most);
		}
}

/* With members of 100 TiB, in each order, with the slots that are made by default. */
TEST(a_region_is_no_larger_than_64_MiB_up_to_100_TiB)
{
	for (uint8_t order = 1; order <= 3; order++) {
		struct geo_params p = {.order = order,
				       .m = 1,
				       .slots = 32,
				       .stripe_bytes = 4096,
				       .band_bytes = 65536,
				       .member_bytes = 100ull << 40};
		struct geo g;

		p.region_bytes = geo_default_region_bytes(p.member_bytes << order, p.slots);
		CHECK_EQ_U64(p.region_bytes, 64 << 20);
		CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
		CHECK(g.data_offset < 300 << 20);
	}
}

TEST(a_lock_covers_a_region_if_whole_stripes_are_written)
{
	for (struct sweep w = {0}; sweep_next(&w);) {
		struct geo g;

		CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		CHECK_EQ_U64(geo_lock_bytes(&g, w.p.stripe_bytes), w.p.region_bytes);
		CHECK_EQ_U64(g.lock_stripes, g.region_stripes);
		for (uint64_t s = 0; s < g.stripes; s += 1 + g.stripes / 1000)
			CHECK_EQ_U64(geo_lock_of(&g, s), geo_region_of(&g, s));
		CHECK_EQ_U64(geo_lock_of(&g, g.stripes - 1), g.regions - 1);
	}
}

TEST(a_lock_covers_a_unit_if_parts_of_stripes_are_written)
{
	struct geo_params p = usual;
	struct geo g;

	p.stripe_bytes = 65536;
	p.region_bytes = 16 << 20;
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(geo_lock_bytes(&g, 4096), 4 << 20);
	g.lock_stripes = 64; /* as much */
	CHECK_EQ_U64(geo_lock_of(&g, 63), 0);
	CHECK_EQ_U64(geo_lock_of(&g, 64), 1);
	CHECK_EQ_U64(geo_lock_of(&g, g.stripes - 1), (g.size_bytes - 1) >> 22);
	/* No more than 2^22 of them, 16 TiB of the smallest, and no fewer than need be. */
	g.size_bytes = UINT64_C(16) << 40;
	CHECK_EQ_U64(geo_lock_bytes(&g, 4096), 4 << 20);
	g.size_bytes += 65536;
	CHECK_EQ_U64(geo_lock_bytes(&g, 4096), 8 << 20);
	g.size_bytes = UINT64_C(32) << 40;
	CHECK_EQ_U64(geo_lock_bytes(&g, 512), 8 << 20);
	g.size_bytes = INT64_MAX;
	CHECK_EQ_U64(geo_lock_bytes(&g, 512), UINT64_C(1) << 41);
}
