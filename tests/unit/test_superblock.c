/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/format/crc.h"
#include "daemon/core/format/superblock.h"
#include "tests/unit/golden.h"
#include "tests/unit/sweep.h"

/* Written out here once more: the test must not take its offsets from the code. */
enum {
	AT_CRC = 8,
	AT_VERSION = 12,
	AT_COMPAT = 16,
	AT_RO_COMPAT = 24,
	AT_INCOMPAT = 32,
	AT_NAME = 80,
	AT_ORDER = 144,
	AT_M = 145,
	AT_LAYOUT = 146,
	AT_SLOTS = 147,
	AT_STRIPE = 148,
	AT_BAND = 152,
	AT_REGION = 156,
	AT_MEMBER_BYTES = 160,
	AT_DATA_OFFSET = 168,
	AT_LOG_PAGES = 176,
	AT_INDEX = 180,
	AT_N = 181,
	AT_COMMITTED = 184,
	AT_EPOCH = 200,
	AT_MISSED_FROM = 216,
	AT_JOURNAL = 232,
	AT_CHUNK = 240,
	AT_LOGICAL_BLOCK = 244,
	AT_MEMBER = 256,
	MEMBER_BYTES = 64,
};

static void fill_uuid(uint8_t *uuid, uint8_t first)
{
	for (unsigned i = 0; i < DDR_UUID_BYTES; i++)
		uuid[i] = (uint8_t)(first + i);
}

/* Five members, the last is being rebuilt. */
static void sample(struct superblock *sb)
{
	struct geo g;

	memset(sb, 0, sizeof(*sb));
	fill_uuid(sb->array_uuid, 0xa0);
	strcpy(sb->name, "golden");
	sb->geo = (struct geo_params){.order = 2,
				      .m = 1,
				      .layout = GEO_ROTATE,
				      .slots = 32,
				      .stripe_bytes = 4096,
				      .band_bytes = 65536,
				      .region_bytes = 4 << 20,
				      .member_bytes = (256 << 20) + 4096};
	CHECK_EQ_INT(geo_choose(&g, &sb->geo, NULL), 0);
	sb->index = 1;
	sb->seq = 0x0102030405060708;
	sb->committed = (struct epoch){41, 0x1111222233334444};
	sb->map.epoch = (struct epoch){42, 0x5555666677778888};
	sb->map.missed_from = 40;
	sb->map.n = 5;
	for (uint8_t i = 0; i < 5; i++) {
		struct map_member *mm = &sb->map.member[i];

		fill_uuid(mm->uuid, (uint8_t)(0x10 * (i + 1)));
		mm->state = i < 4 ? MEMBER_IN_SYNC : MEMBER_REBUILDING;
		mm->left = i ? 37u + i : 0;
		mm->reached = i ? 35u + i : 0;
	}
	sb->map.member[4].flags = MEMBER_F_PARTIAL;
	sb->map.member[4].rebuilt_upto = 0xfe;
	memcpy(sb->member_uuid, sb->map.member[1].uuid, DDR_UUID_BYTES);
}

static void seal(uint8_t *block)
{
	uint32_t crc;

	memset(block + AT_CRC, 0, 4);
	crc = crc32c(block, DDR_BLOCK_BYTES);
	for (unsigned i = 0; i < 4; i++)
		block[AT_CRC + i] = (uint8_t)(crc >> 8 * i);
}

TEST(a_superblock_of_version_1_looks_like_this)
{
	static const struct golden_row golden[] = {
#include "tests/unit/superblock-v1.golden"
	};
	uint8_t want[DDR_BLOCK_BYTES], got[DDR_BLOCK_BYTES];
	struct superblock sb, back;

	golden_expand(want, golden, sizeof(golden) / sizeof(*golden));
	sample(&sb);
	/* Each number is another one than those beside it. */
	sb.geo.log_pages = 2;
	sb.geo.journal_bytes = 256 << 10;
	sb.geo.data_offset = 10 << 20;
	sb.map.member[4].rebuilt_upto = 0xf0;
	sb_encode(&sb, got);
	golden_print_if_asked(got);
	CHECK_EQ_MEM(got, want, DDR_BLOCK_BYTES);
	CHECK_EQ_INT(sb_decode(&back, want, NULL), 0);
	CHECK_EQ_MEM(&back, &sb, sizeof(sb));
}

TEST(what_is_encoded_is_decoded_for_every_geometry)
{
	struct prng r = {1};

	for (struct sweep w = {0}; sweep_next(&w);) {
		uint8_t block[DDR_BLOCK_BYTES];
		struct superblock sb, back;
		char why[FORMAT_WHY_BYTES] = "untouched";
		struct geo g;

		CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
		if (w.at & 1) { /* otherwise than create chooses */
			w.p.log_pages = 9;
			w.p.journal_bytes = 1 << 20;
			w.p.data_offset = 5ull << 20;
			w.p.member_bytes += 60ull << 20;
			CHECK_EQ_INT(geo_init(&g, &w.p, NULL), 0);
		}
		memset(&sb, 0, sizeof(sb));
		prng_fill(&r, sb.array_uuid, DDR_UUID_BYTES);
		memset(sb.name, 'n', prng_below(&r, DDR_NAME_BYTES));
		sb.geo = w.p;
		sb.seq = prng_next(&r);
		sb.map.n = g.n;
		sb.map.epoch =
		    (struct epoch){EPOCH_NUM_MAX - (prng_next(&r) & 0xffff), prng_next(&r) | 1};
		sb.committed = (struct epoch){prng_next(&r) >> 38, prng_next(&r)};
		sb.map.missed_from = prng_next(&r) >> 38;
		sb.writer_node = (uint32_t)prng_next(&r);
		for (unsigned i = 0; i < g.n; i++) {
			struct map_member *mm = &sb.map.member[i];

			prng_fill(&r, mm->uuid, DDR_UUID_BYTES);
			mm->state = (uint8_t)(i ? 1 : 1 + prng_below(&r, MEMBER_REBUILDING));
			mm->flags = mm->state == MEMBER_REBUILDING ? (uint8_t)prng_below(&r, 2) : 0;
			mm->rebuilt_upto = prng_below(&r, (uint32_t)g.regions + 1);
			mm->left = prng_next(&r) >> 38;
			mm->reached = prng_next(&r) >> 38;
		}
		sb.place = (uint8_t)prng_below(&r, SB_COPIES + 1);
		for (sb.index = 0; sb.index < g.n; sb.index++) {
			memcpy(sb.member_uuid, sb.map.member[sb.index].uuid, DDR_UUID_BYTES);
			memset(block, 0xee, sizeof(block));
			memset(&back, 0xee, sizeof(back));
			sb_encode(&sb, block);
			CHECK_EQ_INT(sb_decode(&back, block, why), 0);
			CHECK_EQ_MEM(&back, &sb, sizeof(sb));
		}
		CHECK_EQ_STR(why, "untouched");
	}
}

TEST(any_single_wrong_bit_is_found)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb, out, before;

	sample(&sb);
	sb_encode(&sb, block);
	memset(&out, 0x5a, sizeof(out));
	before = out;
	for (unsigned bit = 0; bit < 8 * DDR_BLOCK_BYTES; bit++) {
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
		/* The magic is its first 8 bytes. */
		CHECK_EQ_INT(sb_decode(&out, block, NULL), bit < 64 ? -ENOENT : -EBADMSG);
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	CHECK_EQ_MEM(&out, &before, sizeof(out));
	CHECK_EQ_INT(sb_decode(&out, block, NULL), 0);
}

/* A block whose checksum is right, with `bytes` of `value` (little-endian) at `at`. */
static void refused(unsigned at, unsigned bytes, uint64_t value, int err, const char *word)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb, out, before;
	char why[FORMAT_WHY_BYTES] = "";

	sample(&sb);
	sb_encode(&sb, block);
	for (unsigned i = 0; i < bytes; i++)
		block[at + i] = (uint8_t)(value >> 8 * i);
	seal(block);
	memset(&out, 0x5a, sizeof(out));
	before = out;
	CHECK_MSG(sb_decode(&out, block, why) == err, "offset %u value %" PRIu64, at, value);
	CHECK_MSG(strstr(why, word), "\"%s\" in \"%s\"", word, why);
	CHECK_EQ_INT(sb_decode(&out, block, NULL), err);
	CHECK_EQ_MEM(&out, &before, sizeof(out));
}

static void accepted(unsigned at, unsigned bytes, uint64_t value)
{
	uint8_t block[DDR_BLOCK_BYTES];
	char why[FORMAT_WHY_BYTES] = "";
	struct superblock sb;

	sample(&sb);
	sb_encode(&sb, block);
	for (unsigned i = 0; i < bytes; i++)
		block[at + i] = (uint8_t)(value >> 8 * i);
	seal(block);
	CHECK_MSG(sb_decode(&sb, block, why) == 0, "offset %u value %" PRIu64 ": %s", at, value,
		  why);
}

TEST(no_superblock_is_told_from_a_damaged_one)
{
	uint8_t block[DDR_BLOCK_BYTES] = {0};
	char why[FORMAT_WHY_BYTES] = "";
	struct superblock sb;

	CHECK_EQ_INT(sb_decode(&sb, block, why), -ENOENT);
	CHECK(strstr(why, "no ddraid superblock"));
	memset(block, 0xff, sizeof(block));
	CHECK_EQ_INT(sb_decode(&sb, block, NULL), -ENOENT);
	memcpy(block, "ddraidsb", 8);
	CHECK_EQ_INT(sb_decode(&sb, block, why), -EBADMSG);
	CHECK(strstr(why, "checksum"));
	/* The log's magic is another one. */
	refused(0, 8, 0x676c646961726464, -ENOENT, "no ddraid superblock");
}

TEST(unknown_versions_and_features_are_refused)
{
	static const char *const name[] = {"partial-stripes", "journal", "p+q", "mirror",
					   "external-log"};
	char word[64];

	refused(AT_VERSION, 4, 0, -EPROTONOSUPPORT, "version 0");
	refused(AT_VERSION, 4, 2, -EPROTONOSUPPORT, "version 2");
	refused(AT_VERSION, 4, 0xffffffff, -EPROTONOSUPPORT, "version 4294967295");
	for (unsigned bit = 0; bit < 64; bit++) {
		if (bit < sizeof(name) / sizeof(*name))
			snprintf(word, sizeof(word), "the feature %s,", name[bit]);
		else
			snprintf(word, sizeof(word), "the incompat feature %u,", bit);
		refused(AT_INCOMPAT, 8, 1ull << bit, -EPROTONOSUPPORT, word);
		/* The lowest is told, and one that forbids all use before one for writers. */
		refused(AT_INCOMPAT, 8, ~0ull << bit, -EPROTONOSUPPORT, word);
		snprintf(word, sizeof(word), "the ro-compat feature %u,", bit);
		refused(AT_RO_COMPAT, 8, 1ull << bit, -EPROTONOSUPPORT, word);
		accepted(AT_COMPAT, 8, 1ull << bit);
	}
	/* What stops us first is what is told: the version may have moved everything else. */
	refused(AT_VERSION, 8, ~0ull, -EPROTONOSUPPORT, "version");
}

TEST(each_field_out_of_range_is_refused)
{
	const unsigned last = AT_MEMBER + 4 * MEMBER_BYTES;

	refused(AT_NAME, 8, 0x202020202020200a, -EINVAL, "control characters");
	refused(AT_NAME + 3, 1, 0x7f, -EINVAL, "control characters");
	refused(AT_ORDER, 1, 0, -EINVAL, "order 0");
	refused(AT_ORDER, 1, 3, -EINVAL, "stripe / k, 512");
	refused(AT_ORDER, 1, 9, -EINVAL, "order");
	refused(AT_M, 1, 0, -EINVAL, "parity");
	refused(AT_M, 1, 2, -EINVAL, "two parity");
	refused(AT_LAYOUT, 1, 2, -EINVAL, "layout");
	refused(AT_SLOTS, 1, 1, -EINVAL, "slots");
	refused(AT_SLOTS, 1, 65, -EINVAL, "slots");
	refused(AT_STRIPE, 4, 4095, -EINVAL, "stripe");
	refused(AT_BAND, 4, 0, -EINVAL, "band");
	refused(AT_REGION, 4, 2048, -EINVAL, "region");
	refused(AT_MEMBER_BYTES, 8, 0, -EINVAL, "too small");
	refused(AT_MEMBER_BYTES, 8, ~0ull, -EINVAL, "member size");
	refused(AT_INDEX, 1, 5, -EINVAL, "index");
	refused(AT_INDEX, 1, 255, -EINVAL, "index");
	refused(AT_INDEX, 1, 0, -EINVAL, "own UUID");
	refused(AT_N, 1, 0, -EINVAL, "number of members");
	refused(AT_N, 1, 4, -EINVAL, "number of members");
	refused(AT_N, 1, 255, -EINVAL, "number of members");
	refused(AT_COMMITTED, 8, 43, -EINVAL, "committed");
	refused(AT_MISSED_FROM, 8, 43, -EINVAL, "missed");
	refused(AT_EPOCH, 8, EPOCH_NUM_MAX + 1, -EINVAL, "epoch");
	refused(AT_EPOCH, 8, ~0ull, -EINVAL, "epoch");
	refused(AT_EPOCH, 8, 0, -EINVAL, "committed");
	refused(AT_EPOCH + 8, 8, 0, -EINVAL, "no epoch");
	for (unsigned i = 0; i < 5; i++) {
		unsigned at = AT_MEMBER + i * MEMBER_BYTES;

		refused(at + 16, 1, 0, -EINVAL, "state");
		refused(at + 16, 1, 6, -EINVAL, "state");
		refused(at + 16, 1, 255, -EINVAL, "state");
		refused(at + 17, 1, 2, -EINVAL, "flags");
		refused(at + 17, 1, 128, -EINVAL, "flags");
		refused(at + 32, 8, 43, -EINVAL, "left");
		refused(at + 40, 8, 43, -EINVAL, "reached");
	}
	for (uint64_t state = MEMBER_SUSPECT; state <= MEMBER_REBUILDING; state++)
		refused(AT_MEMBER + 16, 1, state, -EINVAL, "fewer members in sync");
	refused(AT_MEMBER + 17, 1, 1, -EINVAL, "flags"); /* it is in sync, not rebuilt partially */
	refused(AT_MEMBER + MEMBER_BYTES, 1, 0, -EINVAL, "own UUID");
	/* 256 regions; the cursor may stand behind the last one. */
	accepted(last + 24, 8, 256);
	refused(last + 24, 8, 257, -EINVAL, "rebuilt");
	accepted(AT_MEMBER + 24, 8, 257); /* means nothing for a member that is in sync */
	accepted(AT_COMMITTED, 8, 42);
	accepted(AT_MISSED_FROM, 8, 42);
	accepted(AT_MEMBER + 32, 8, 42);
	accepted(AT_NAME, 8, 0);
}

TEST(a_layout_out_of_bounds_is_refused_by_name_and_value)
{
	refused(AT_DATA_OFFSET, 8, 0, -EINVAL, "data_offset is 0, ");
	refused(AT_DATA_OFFSET, 8, (2 << 20) + 4096, -EINVAL, "data_offset is 2101248: ");
	refused(AT_DATA_OFFSET, 8, 1ull << 60, -EINVAL, "data_offset 1152921504606846976 ");
	refused(AT_LOG_PAGES, 4, 0, -EINVAL, "log_pages is 0: ");
	refused(AT_LOG_PAGES, 4, 1025, -EINVAL, "log_pages is 1025: ");
	refused(AT_LOG_PAGES, 4, 4, -EINVAL, "data_offset is 1048576, and the log");
	refused(AT_JOURNAL, 8, 1, -EINVAL, "journal_bytes is 1: ");
	refused(AT_JOURNAL, 8, 4 << 20, -EINVAL, "journal_bytes is 4194304: ");
	refused(AT_JOURNAL, 8, 36864, -EINVAL, "data_offset is 1048576, and the log and the");
	refused(AT_CHUNK, 4, 0, -EINVAL, "chunk has 0 bytes");
	refused(AT_CHUNK, 4, 4096, -EINVAL, "chunk has 4096 bytes: this build knows only");
	refused(AT_LOGICAL_BLOCK, 4, 0, -EINVAL, "logical block has 0 bytes");
	refused(AT_LOGICAL_BLOCK, 4, 512, -EINVAL, "logical block has 512 bytes: this build");
	/* Whoever made it chose otherwise than this build would. */
	accepted(AT_DATA_OFFSET, 8, 2 << 20);
	accepted(AT_LOG_PAGES, 4, 2);
}

static void same_uuid(struct map *m, unsigned a, unsigned b)
{
	memcpy(m->member[a].uuid, m->member[b].uuid, DDR_UUID_BYTES);
}

/* The same check for what a member and what a message says. */
TEST(a_map_is_checked_as_a_whole)
{
	struct superblock sb;
	struct geo g;

	sample(&sb);
	CHECK_EQ_INT(geo_init(&g, &sb.geo, NULL), 0);
	CHECK(!map_check(&sb.map, &g));
	for (unsigned a = 0; a < 5; a++)
		for (unsigned b = 0; b < 5; b++) {
			sample(&sb);
			same_uuid(&sb.map, a, b);
			CHECK_EQ_INT(!map_check(&sb.map, &g), a == b);
		}
	sample(&sb);
	sb.map.n = 4;
	CHECK(map_check(&sb.map, &g));
	sample(&sb);
	sb.map.member[2].state = MEMBER_FAULTY;
	CHECK(strstr(map_check(&sb.map, &g), "fewer members in sync"));
	sample(&sb);
	sb.map.epoch.num = 0;
	sb.map.missed_from = 0;
	for (unsigned i = 0; i < 5; i++)
		sb.map.member[i].left = sb.map.member[i].reached = 0;
	CHECK(strstr(map_check(&sb.map, &g), "no epoch"));
}

/* What `add` puts on a device before a map names it. */
TEST(a_placeholder_has_epoch_0_and_nobody_in_use)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb, back;
	char why[FORMAT_WHY_BYTES] = "";

	sample(&sb);
	memset(&sb.committed, 0, sizeof(sb.committed));
	memset(&sb.map.epoch, 0, sizeof(sb.map.epoch));
	sb.map.missed_from = 0;
	for (unsigned i = 0; i < 5; i++) {
		struct map_member *mm = &sb.map.member[i];

		mm->state = MEMBER_MISSING;
		mm->flags = 0;
		mm->left = mm->reached = mm->rebuilt_upto = 0;
	}
	sb_encode(&sb, block);
	CHECK_EQ_INT(sb_decode(&back, block, NULL), 0);
	CHECK_EQ_MEM(&back, &sb, sizeof(sb));
	block[AT_MEMBER + 16] = MEMBER_IN_SYNC;
	seal(block);
	CHECK_EQ_INT(sb_decode(&back, block, why), -EINVAL);
	CHECK(strstr(why, "in use"));
	block[AT_MEMBER + 16] = MEMBER_MISSING;
	block[AT_EPOCH + 8] = 1;
	seal(block);
	CHECK_EQ_INT(sb_decode(&back, block, NULL), -EINVAL);
}

TEST(a_name_without_an_end_is_refused)
{
	uint8_t block[DDR_BLOCK_BYTES];
	char why[FORMAT_WHY_BYTES] = "";
	struct superblock sb;

	sample(&sb);
	memset(sb.name, 'x', DDR_NAME_BYTES - 1);
	sb_encode(&sb, block);
	CHECK_EQ_INT(sb_decode(&sb, block, NULL), 0);
	CHECK_EQ_U64(strlen(sb.name), DDR_NAME_BYTES - 1);
	block[AT_NAME + DDR_NAME_BYTES - 1] = 'x';
	seal(block);
	CHECK_EQ_INT(sb_decode(&sb, block, why), -EINVAL);
	CHECK(strstr(why, "no end"));
}

TEST(what_follows_a_names_end_is_neither_written_nor_read)
{
	uint8_t block[DDR_BLOCK_BYTES], again[DDR_BLOCK_BYTES];
	struct superblock sb, clean;

	sample(&sb);
	sb_encode(&sb, block);
	strcpy(sb.name + 10, "secret");
	sb_encode(&sb, again);
	CHECK_EQ_MEM(again, block, DDR_BLOCK_BYTES);
	strcpy((char *)block + AT_NAME + 10, "secret");
	seal(block);
	CHECK_EQ_INT(sb_decode(&clean, block, NULL), 0);
	sample(&sb);
	CHECK_EQ_MEM(&clean, &sb, sizeof(sb));
}

/* What a later build keeps in reserved bytes, under a compat bit, is none of our business. */
TEST(reserved_bytes_are_ignored)
{
	static const struct {
		unsigned at, bytes;
	} reserved[] = {{183, 1},      {229, 3},       {248, 8},
			{256 + 18, 6}, {256 + 48, 16}, {256 + 5 * 64, 448},
			{1092, 12},    {1616, 2480}};

	for (unsigned i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
		for (unsigned b = 0; b < reserved[i].bytes; b++)
			accepted(reserved[i].at + b, 1, 0xff);
}

TEST(it_says_which_copy_it_is)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb, back;

	for (uint8_t place = 0; place <= SB_COPIES; place++) {
		accepted(228, 1, place);
		sample(&sb);
		sb.place = place;
		sb_encode(&sb, block);
		CHECK_EQ_INT(sb_decode(&back, block, NULL), 0);
		for (uint32_t copy = 0; copy < SB_COPIES; copy++)
			CHECK_EQ_INT(sb_misplaced(&back, copy), place && copy != place - 1u);
	}
	refused(228, 1, SB_COPIES + 1, -EINVAL, "place");
	refused(228, 1, 255, -EINVAL, "place");
}

/* A superblock that was accepted keeps every promise that its users rely on. */
static void check_accepted(const struct superblock *sb)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock back;
	struct geo g;

	CHECK_EQ_INT(geo_init(&g, &sb->geo, NULL), 0);
	CHECK_EQ_U64(sb->map.n, g.n);
	CHECK(sb->index < g.n);
	CHECK(memchr(sb->name, 0, DDR_NAME_BYTES));
	for (unsigned i = 0; i < g.n; i++)
		CHECK(strcmp(member_state_name(sb->map.member[i].state), "unknown") != 0);
	sb_encode(sb, block); /* asserts the rest */
	CHECK_EQ_INT(sb_decode(&back, block, NULL), 0);
	CHECK_EQ_MEM(&back, sb, sizeof(back));
}

TEST(random_blocks_never_crash_the_decoder)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct prng r = {7};
	struct superblock sb;

	for (unsigned i = 0; i < 20000; i++) {
		prng_fill(&r, block, i % 8 ? 1024 : DDR_BLOCK_BYTES);
		CHECK_EQ_INT(sb_decode(&sb, block, NULL), -ENOENT);
		memcpy(block, "ddraidsb", 8);
		CHECK_EQ_INT(sb_decode(&sb, block, NULL), -EBADMSG);
		memcpy(block + AT_VERSION, "\1\0\0", 4);
		memset(block + AT_RO_COMPAT, 0, 16);
		seal(block);
		CHECK_EQ_INT(sb_decode(&sb, block, NULL), -EINVAL);
	}
}

TEST(mutated_blocks_are_refused_or_sane)
{
	uint8_t good[DDR_BLOCK_BYTES], block[DDR_BLOCK_BYTES];
	unsigned count[2] = {0, 0};
	struct prng r = {8};
	struct superblock sb;

	sample(&sb);
	sb_encode(&sb, good);
	for (unsigned i = 0; i < 100000; i++) {
		unsigned changes = 1 + prng_below(&r, 4);
		int err;

		memcpy(block, good, sizeof(block));
		while (changes--) {
			uint32_t at = AT_COMPAT + prng_below(&r, AT_MEMBER + 5 * MEMBER_BYTES - 16);

			switch (prng_below(&r, 3)) {
			case 0:
				block[at] ^= (uint8_t)(1u << prng_below(&r, 8));
				break;
			case 1:
				block[at] = (uint8_t)prng_next(&r);
				break;
			default: /* the numbers live here: shift one left or right */
				at = AT_STRIPE + prng_below(&r, 28);
				block[at] = (uint8_t)(1u << prng_below(&r, 9));
				break;
			}
		}
		seal(block);
		err = sb_decode(&sb, block, NULL);
		CHECK(err == 0 || err == -EINVAL || err == -EPROTONOSUPPORT);
		count[!err]++;
		if (!err)
			check_accepted(&sb);
	}
	CHECK(count[0] > 20000 && count[1] > 20000);
}

TEST(epochs_are_ordered_by_number_then_incarnation)
{
	static const struct epoch order[] = {
	    {0, 0},          {0, 9}, {1, 0},          {1, 1},
	    {1, UINT64_MAX}, {2, 0}, {UINT64_MAX, 0}, {UINT64_MAX, UINT64_MAX}};

	for (int a = 0; a < 8; a++)
		for (int b = 0; b < 8; b++)
			CHECK_EQ_INT(epoch_cmp(&order[a], &order[b]), (a > b) - (a < b));
}

/* All of n members are in sync, but one. */
static void check_masks(uint8_t n, uint8_t odd, uint8_t state)
{
	uint32_t others = ((1u << n) - 1) & ~(1u << odd);
	struct map m = {.n = n};

	for (unsigned i = 0; i < DDR_MAX_MEMBERS; i++)
		m.member[i].state = MEMBER_IN_SYNC; /* beyond n: not part of this map */
	m.member[odd].state = state;
	CHECK_EQ_U64(map_degraded(&m), state != MEMBER_IN_SYNC);
	CHECK_EQ_U64(map_insync_mask(&m), others | (uint32_t)(state == MEMBER_IN_SYNC) << odd);
	if (state == MEMBER_IN_SYNC || state == MEMBER_REBUILDING)
		CHECK_EQ_U64(map_write_mask(&m), (1u << n) - 1);
	else
		CHECK_EQ_U64(map_write_mask(&m), others);
}

TEST(masks_of_the_map)
{
	struct superblock sb;

	sample(&sb);
	CHECK_EQ_U64(map_insync_mask(&sb.map), 0xf);
	CHECK_EQ_U64(map_write_mask(&sb.map), 0x1f);
	for (uint8_t n = 3; n <= DDR_MAX_MEMBERS; n++)
		for (uint8_t odd = 0; odd < n; odd++)
			for (uint8_t s = MEMBER_IN_SYNC; s <= MEMBER_REBUILDING; s++)
				check_masks(n, odd, s);
}

TEST(only_the_listed_moves_are_legal)
{
	/* Rows: from; columns: to in-sync, suspect, missing, faulty, rebuilding. */
	static const char *const legal[] = {
	    [MEMBER_IN_SYNC] = "yyyy-", [MEMBER_SUSPECT] = "yyyyy",    [MEMBER_MISSING] = "--yyy",
	    [MEMBER_FAULTY] = "---yy",  [MEMBER_REBUILDING] = "yyyyy",
	};

	for (unsigned from = 0; from < 256; from++)
		for (unsigned to = 0; to < 256; to++) {
			bool want = from >= 1 && from <= 5 && to >= 1 && to <= 5 &&
				    legal[from][to - 1] == 'y';

			CHECK_MSG(map_move_legal((uint8_t)from, (uint8_t)to) == want,
				  "from %u to %u", from, to);
		}
}

TEST(states_have_names)
{
	CHECK_EQ_STR(member_state_name(MEMBER_IN_SYNC), "in-sync");
	CHECK_EQ_STR(member_state_name(MEMBER_SUSPECT), "suspect");
	CHECK_EQ_STR(member_state_name(MEMBER_MISSING), "missing");
	CHECK_EQ_STR(member_state_name(MEMBER_FAULTY), "faulty");
	CHECK_EQ_STR(member_state_name(MEMBER_REBUILDING), "rebuilding");
	CHECK_EQ_STR(member_state_name(0), "unknown");
	CHECK_EQ_STR(member_state_name(6), "unknown");
	CHECK_EQ_STR(member_state_name(255), "unknown");
}
