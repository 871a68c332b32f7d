/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/format/choose.h"
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

/* What every geometry that geo_init accepts must satisfy, whatever the superblock says. */
static void check_stored(const struct geo *g)
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
	CHECK_EQ_U64(log_end, geo_log_end(&g->p));
	CHECK_EQ_U64(g->data_offset % DATA_ALIGN, 0);
	CHECK(g->data_offset >= log_end);
	CHECK((g->data_offset - log_end) / g->p.slots >= g->p.journal_bytes);
	CHECK(g->data_offset < g->p.member_bytes);
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

/* And what create chooses wastes no space, and is accepted as it is stored. */
static void check_sane(const struct geo *g)
{
	struct geo again;

	check_stored(g);
	CHECK(g->data_offset - geo_log_end(&g->p) < DATA_ALIGN);
	CHECK_EQ_INT(geo_init(&again, &g->p, NULL), 0);
	CHECK(geo_same(&again.p, &g->p));
	CHECK(again.stripes == g->stripes && again.regions == g->regions);
}

TEST(sizes_of_a_usual_array)
{
	struct geo_params p = usual;
	char why[FORMAT_WHY_BYTES] = "untouched";
	struct geo g;

	CHECK_EQ_INT(geo_choose(&g, &p, why), 0);
	CHECK_EQ_STR(why, "untouched");
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
	/* As stored; what stood there before is overwritten. */
	CHECK_EQ_U64(p.chunk_bytes, 1024);
	CHECK_EQ_U64(p.logical_block_bytes, 4096);
	CHECK_EQ_U64(p.log_pages, 1);
	CHECK_EQ_U64(p.journal_bytes, 0);
	CHECK_EQ_U64(p.data_offset, 1 << 20);
	p.chunk_bytes = p.logical_block_bytes = p.log_pages = 7;
	p.journal_bytes = p.data_offset = 7;
	CHECK_EQ_INT(geo_choose(&g, &p, why), 0);
	CHECK(geo_same(&p, &g.p));
	CHECK_EQ_U64(p.data_offset, 1 << 20);
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
					if (geo_choose(&g, &w.p, NULL) == 0) {
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
	CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 1);
	p.member_bytes += 1023; /* no further fragment fits */
	CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 1);
	p.member_bytes++;
	CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 2);
	check_sane(&g);
}

TEST(log_pages_have_a_bound)
{
	struct geo_params p = usual;
	char why[FORMAT_WHY_BYTES] = "";
	struct geo g;

	p.slots = 31;
	p.member_bytes = 1024ull * LOG_REGIONS_PER_PAGE * 1024 * 1024; /* a region: 1 MiB of it */
	CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 1024);
	check_sane(&g);
	p.member_bytes += 1024;
	CHECK_EQ_INT(geo_choose(&g, &p, why), -EINVAL);
	CHECK(strstr(why, "region size is too small"));
	/* And all slots together. */
	p.member_bytes -= 1024;
	p.slots = 32;
	CHECK_EQ_INT(geo_choose(&g, &p, why), -EINVAL);
	CHECK(strstr(why, "fewer slots"));
}

TEST(a_member_must_hold_one_whole_region)
{
	struct geo_params p = usual;
	char why[FORMAT_WHY_BYTES] = "";
	struct geo g;

	p.region_bytes = 65536; /* small regions are for the simulator, but legal */
	p.member_bytes = DATA_ALIGN + 16 * 1024;
	CHECK_EQ_INT(geo_choose(&g, &p, why), 0);
	CHECK_EQ_U64(g.stripes, 16);
	CHECK_EQ_U64(g.regions, 1);
	p.member_bytes--;
	CHECK_EQ_INT(geo_choose(&g, &p, why), -ENOSPC);
	CHECK(strstr(why, "too small"));
	for (uint64_t bytes = 0; bytes <= DATA_ALIGN; bytes += 65536) {
		p.member_bytes = bytes;
		CHECK_EQ_INT(geo_choose(&g, &p, NULL), -ENOSPC);
	}
}

static void refused(const struct geo_params *p, int err, const char *word)
{
	struct geo_params asked = *p;
	char why[FORMAT_WHY_BYTES] = "";
	struct geo g, before;

	memset(&g, 0x5a, sizeof(g));
	before = g;
	CHECK_EQ_INT(geo_choose(&g, &asked, why), err);
	CHECK_MSG(strstr(why, word), "\"%s\" in \"%s\"", word, why);
	CHECK_EQ_MEM(&g, &before, sizeof(g));
	CHECK(geo_same(&asked, p));
	CHECK_EQ_INT(geo_choose(&g, &asked, NULL), err);
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

/* As a superblock may have it: what create chose, and then one number of it changed. */
static void stored_refused(const struct geo_params *p, int err, const char *word)
{
	char why[FORMAT_WHY_BYTES] = "";
	struct geo g, before;

	memset(&g, 0x5a, sizeof(g));
	before = g;
	CHECK_EQ_INT(geo_init(&g, p, why), err);
	CHECK_MSG(strstr(why, word), "\"%s\" in \"%s\"", word, why);
	CHECK_EQ_MEM(&g, &before, sizeof(g));
	CHECK_EQ_INT(geo_init(&g, p, NULL), err);
}

static struct geo_params stored(void)
{
	struct geo_params p = usual;
	struct geo g;

	CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
	return p;
}

#define STORED_REFUSED(err_, word_, assign_)                                                       \
	do {                                                                                       \
		struct geo_params stored_p = stored();                                             \
		stored_p.assign_;                                                                  \
		stored_refused(&stored_p, err_, word_);                                            \
	} while (0)

TEST(each_stored_number_out_of_range_is_refused_by_name_and_value)
{
	const uint64_t most = 16128; /* regions of a page */
	struct geo_params p = stored();
	char why[FORMAT_WHY_BYTES] = "";
	struct geo g;

	STORED_REFUSED(-EINVAL, "order", order = 4);
	STORED_REFUSED(-EINVAL, "chunk has 0 bytes", chunk_bytes = 0);
	STORED_REFUSED(-EINVAL, "chunk has 2048 bytes", chunk_bytes = 2048);
	STORED_REFUSED(-EINVAL, "chunk has 4294967295 bytes", chunk_bytes = UINT32_MAX);
	STORED_REFUSED(-EINVAL, "logical block has 0 bytes", logical_block_bytes = 0);
	STORED_REFUSED(-EINVAL, "logical block has 512 bytes", logical_block_bytes = 512);
	STORED_REFUSED(-EINVAL, "logical block has 8192 bytes", logical_block_bytes = 8192);
	STORED_REFUSED(-EINVAL, "log_pages is 0", log_pages = 0);
	STORED_REFUSED(-EINVAL, "log_pages is 1025", log_pages = 1025);
	STORED_REFUSED(-EINVAL, "log_pages is 4294967295", log_pages = UINT32_MAX);
	/* 33 slots of 993 pages are one more than 32768 */
	STORED_REFUSED(-EINVAL, "log_pages is 993", log_pages = 993);
	STORED_REFUSED(-EINVAL, "data_offset is 1048576, and", log_pages = 4);
	STORED_REFUSED(-EINVAL, "data_offset is 0, and", data_offset = 0);
	STORED_REFUSED(-EINVAL, "data_offset is 1048575", data_offset = (1 << 20) - 1);
	STORED_REFUSED(-EINVAL, "data_offset is 1048577", data_offset = (1 << 20) + 1);
	STORED_REFUSED(-EINVAL, "data_offset is 1052672", data_offset = (1 << 20) + 4096);
	STORED_REFUSED(-EINVAL, "data_offset is 18446744073709551615", data_offset = UINT64_MAX);
	STORED_REFUSED(-ENOSPC, "data_offset 268435456", data_offset = 256 << 20);
	STORED_REFUSED(-ENOSPC, "data_offset 18446744073708503040",
		       data_offset = UINT64_MAX - DATA_ALIGN + 1);
	p.data_offset = 255ull << 20; /* 4 MiB of users are 1 MiB of each member */
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.regions, 1);
	/* One region more than the page has bits. */
	p = stored();
	p.region_bytes = 4096;
	p.member_bytes = p.data_offset + most * 1024;
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.regions, most);
	p.member_bytes += 1024;
	CHECK_EQ_INT(geo_init(&g, &p, why), -EINVAL);
	CHECK(strstr(why, "log_pages is 1: that is too few for the array's 16129 regions"));
}

/* Another build may leave more room before the data, or in the log. */
TEST(what_is_stored_counts_and_not_what_create_would_choose)
{
	struct geo_params p = stored();
	struct geo g;

	p.log_pages = 3;
	p.data_offset = 5 << 20;
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.log_pages, 3);
	CHECK_EQ_U64(g.data_offset, 5 << 20);
	CHECK_EQ_U64(g.stripes, 251 * 1024);
	CHECK_EQ_U64(g.regions, 251);
	CHECK_EQ_U64(geo_offset(&g, 7), (5 << 20) + 7 * 1024);
	CHECK_EQ_U64(geo_log_offset(&g, 1, 2, 1), LOG_OFFSET + ((3 + 2) * 2 + 1) * 4096);
	CHECK_EQ_U64(geo_end(&g), 256 << 20);
}

/* It lies between the log and the data, and takes no more than a sixteenth of the member. */
TEST(room_for_a_journal_is_room_before_the_data)
{
	struct geo_params p = stored();
	struct geo g;

	p.slots = 4; /* the log ends at 64 KiB + 5 * 2 * 4 KiB */
	p.journal_bytes = 4 << 20;
	p.data_offset = 17 << 20;
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	CHECK_EQ_U64(g.data_offset, 17 << 20);
	CHECK_EQ_U64(g.regions, 239);
	p.data_offset = 16 << 20;
	stored_refused(&p, -EINVAL, "data_offset is 16777216, and the log and the journal end at");
	p.data_offset = 17 << 20;
	p.journal_bytes = (4 << 20) + 1;
	stored_refused(&p, -EINVAL, "journal_bytes is 4194305");
	p.journal_bytes = (4 << 20) + 4096;
	stored_refused(&p, -EINVAL, "journal_bytes is 4198400"); /* 4 of 256 MiB / 64 at most */
	p.journal_bytes = UINT64_MAX - 4095;
	stored_refused(&p, -EINVAL, "journal_bytes is 18446744073709547520");
	p.journal_bytes = 36864; /* 4 * (1 KiB + 8 KiB) */
	CHECK_EQ_INT(geo_init(&g, &p, NULL), 0);
	p.journal_bytes -= 4096;
	stored_refused(&p, -EINVAL, "at least 36864");
}

/* Of what create or a superblock may say. */
static void any_params(struct prng *r, struct geo_params *p, bool near)
{
	prng_fill(r, p, sizeof(*p));
	if (!near)
		return;
	p->order &= 3;
	p->m = 1;
	p->layout &= 1;
	p->slots &= 127;
	p->stripe_bytes = 1u << prng_below(r, 32);
	p->band_bytes = 1u << prng_below(r, 32);
	p->region_bytes = 1u << prng_below(r, 32);
	p->member_bytes >>= prng_below(r, 64);
	p->chunk_bytes = p->stripe_bytes >> p->order;
	p->logical_block_bytes = p->stripe_bytes;
	p->log_pages = 1u << prng_below(r, 11);
	p->journal_bytes = prng_below(r, 2) ? 0 : 1ull << (12 + prng_below(r, 40));
	p->data_offset = (uint64_t)DATA_ALIGN << prng_below(r, 20);
}

TEST(any_bits_as_parameters_are_judged_without_overflow)
{
	unsigned chosen = 0, accepted = 0;
	struct prng r = {2005};

	for (unsigned i = 0; i < 300000; i++) {
		struct geo_params p;
		struct geo g;

		any_params(&r, &p, i & 1);
		if (geo_init(&g, &p, NULL) == 0) {
			check_stored(&g);
			accepted++;
		}
		if (geo_choose(&g, &p, NULL) == 0) {
			check_sane(&g);
			chosen++;
		}
	}
	CHECK_MSG(chosen > 1000 && accepted > 150, "%u, %u", chosen, accepted);
}

TEST(roles_of_a_stripe_are_a_permutation_of_the_members)
{
	struct geo g;

	for (struct sweep w = {0}; sweep_next(&w);) {
		CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
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
		CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
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

		CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
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

/* Small members with a large band: nothing rotates, or only once. */
TEST(a_band_may_be_larger_than_the_data)
{
	for (uint32_t band = 1u << 20; band; band <<= 1) {
		struct geo_params p = usual;
		struct geo g;

		p.band_bytes = band;
		p.region_bytes = 65536;
		p.member_bytes = DATA_ALIGN + (1 << 20);
		CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
		check_sane(&g);
		for (uint64_t s = 0; s < g.stripes; s++)
			CHECK_EQ_U64(geo_member_of(&g, s, g.k), g.k);
		CHECK_EQ_U64(geo_run(&g, 0, 1024), 1024);
		p.member_bytes += 1024;
		CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
		CHECK_EQ_U64(g.stripes, 1025);
		CHECK_EQ_U64(geo_member_of(&g, 1024, g.k), band == 1 << 20 ? 0 : g.k);
	}
}

TEST(regions_tile_the_stripes)
{
	struct geo g;

	for (struct sweep w = {0}; sweep_next(&w);) {
		uint64_t next = 0;

		CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
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
			CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
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
		CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
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
			CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
			CHECK(g.log_pages <= 4 || w.p.region_bytes >= 64 << 20);
			/* Just as well from the array's exact size. */
			region = geo_default_region_bytes(g.size_bytes, DDR_MAX_SLOTS);
			CHECK(region >= 4 << 20 && !(region & (region - 1)));
			w.p.region_bytes = region;
			CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
			CHECK(g.log_pages <= 4 || region >= 64 << 20);
			/* And no larger than need be. */
			CHECK(region == 4 << 20 ||
			      div_up(g.size_bytes + (32u << 20), region / 2) > most);
		}
}

/* Members of these sizes with what create takes by default, and what is used of them. */
TEST(members_from_64_GiB_to_100_TiB)
{
	static const struct {
		uint8_t order;
		uint64_t member_bytes;
		uint32_t stripe_bytes, region_bytes, log_pages;
		uint64_t data_offset;
	} row[] = {
	    /* disks with blocks of 4 KiB: the stripe follows them */
	    {1, 64ull << 30, 8192, 4 << 20, 3, 1 << 20},
	    {2, 64ull << 30, 16384, 8 << 20, 3, 1 << 20},
	    {3, 64ull << 30, 32768, 16 << 20, 3, 1 << 20},
	    {1, 100ull << 40, 8192, 64 << 20, 204, 53 << 20},
	    {2, 100ull << 40, 16384, 64 << 20, 407, 105 << 20},
	    {3, 100ull << 40, 32768, 64 << 20, 813, 210 << 20},
	    /* logical blocks of 4 KiB */
	    {1, 64ull << 30, 4096, 4 << 20, 3, 1 << 20},
	    {3, 64ull << 30, 4096, 16 << 20, 3, 1 << 20},
	    {1, 100ull << 40, 4096, 64 << 20, 204, 53 << 20},
	    {3, 100ull << 40, 4096, 64 << 20, 813, 210 << 20},
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct geo_params p = {.order = row[i].order,
				       .m = 1,
				       .slots = 32,
				       .stripe_bytes = row[i].stripe_bytes,
				       .band_bytes = 1 << 20,
				       .member_bytes = row[i].member_bytes};
		uint64_t last, user = p.member_bytes << p.order;
		struct geo g;

		p.region_bytes = geo_default_region_bytes(user, p.slots);
		CHECK_EQ_U64(p.region_bytes, row[i].region_bytes);
		CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
		check_sane(&g);
		CHECK_EQ_U64(p.log_pages, row[i].log_pages);
		CHECK_EQ_U64(p.data_offset, row[i].data_offset);
		/* All members but the MiBs in front are data, to the last byte. */
		CHECK_EQ_U64(g.size_bytes, user - (p.data_offset << p.order));
		last = g.stripes - 1;
		CHECK_EQ_U64(geo_offset(&g, last) + g.frag_bytes, p.member_bytes);
		CHECK_EQ_U64(geo_end(&g), p.member_bytes);
		CHECK_EQ_U64(geo_region_of(&g, last), g.regions - 1);
		/* Its parity is where the words of the design have it. */
		CHECK_EQ_U64(geo_rotation(&g, last),
			     (p.member_bytes - p.data_offset - 1) / p.band_bytes % g.n);
		/* The last copy of the log's last page ends before the data. */
		CHECK(geo_log_offset(&g, 32, p.log_pages - 1, 1) + 4096 <= p.data_offset);
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
		CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
		CHECK(g.data_offset < 300 << 20);
	}
}

TEST(a_lock_covers_a_region_if_whole_stripes_are_written)
{
	for (struct sweep w = {0}; sweep_next(&w);) {
		struct geo_params p = w.p;
		struct geo g;

		CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
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
	CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
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
