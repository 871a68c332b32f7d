/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/format/crc.h"
#include "daemon/core/format/logpage.h"
#include "tests/unit/golden.h"
#include "tests/unit/sweep.h"

static void seal(uint8_t *block)
{
	uint32_t crc;

	memset(block + 8, 0, 4);
	crc = crc32c(block, DDR_BLOCK_BYTES);
	for (unsigned i = 0; i < 4; i++)
		block[8 + i] = (uint8_t)(crc >> 8 * i);
}

static void sample(struct logpage *lp)
{
	memset(lp, 0, sizeof(*lp));
	for (unsigned i = 0; i < DDR_UUID_BYTES; i++)
		lp->array_uuid[i] = (uint8_t)(0xa0 + i);
	lp->slot = 0x0120;
	lp->page = 0x0345;
	lp->owner_node = 0x01020304;
	lp->owner_inc = 0x1112131415161718;
	lp->seq = 0x2122232425262728;
	lp->dead_below = 0x3132333435363738;
	bit_set(lp->dirty, 0);
	bit_set(lp->dirty, 9);
	bit_set(lp->dirty, LOG_REGIONS_PER_PAGE - 1);
	bit_set(lp->missed, 0);
	bit_set(lp->missed, 1);
	bit_set(lp->missed, LOG_REGIONS_PER_PAGE - 8);
}

TEST(a_log_page_of_version_1_looks_like_this)
{
	static const struct golden_row golden[] = {
#include "tests/unit/logpage-v1.golden"
	};
	uint8_t want[DDR_BLOCK_BYTES], got[DDR_BLOCK_BYTES];
	struct logpage lp, back;

	golden_expand(want, golden, sizeof(golden) / sizeof(*golden));
	sample(&lp);
	memset(got, 0xee, sizeof(got));
	logpage_encode(&lp, got);
	golden_print_if_asked(got);
	CHECK_EQ_MEM(got, want, DDR_BLOCK_BYTES);
	CHECK_EQ_INT(logpage_decode(&back, want), 0);
	CHECK_EQ_MEM(&back, &lp, sizeof(lp));
}

TEST(what_is_encoded_is_decoded)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct logpage lp, back;
	struct prng r = {3};

	for (unsigned i = 0; i < 2000; i++) {
		prng_fill(&r, &lp, sizeof(lp));
		memset(&back, 0xee, sizeof(back));
		logpage_encode(&lp, block);
		CHECK_EQ_INT(logpage_decode(&back, block), 0);
		CHECK_EQ_MEM(&back, &lp, sizeof(lp));
	}
}

TEST(any_single_wrong_bit_is_found)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct logpage lp, before;

	sample(&lp);
	logpage_encode(&lp, block);
	memset(&lp, 0x5a, sizeof(lp));
	before = lp;
	for (unsigned bit = 0; bit < 8 * DDR_BLOCK_BYTES; bit++) {
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK_EQ_INT(logpage_decode(&lp, block), -EBADMSG);
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	CHECK_EQ_MEM(&lp, &before, sizeof(lp));
	CHECK_EQ_INT(logpage_decode(&lp, block), 0);
}

TEST(a_page_never_written_is_told_from_a_torn_one)
{
	uint8_t block[DDR_BLOCK_BYTES] = {0}, old[DDR_BLOCK_BYTES], torn[DDR_BLOCK_BYTES];
	struct logpage lp;

	CHECK_EQ_INT(logpage_decode(&lp, block), -ENOENT);
	for (unsigned at = 0; at < DDR_BLOCK_BYTES; at++) {
		block[at] = 1;
		CHECK_EQ_INT(logpage_decode(&lp, block), -EBADMSG);
		block[at] = 0;
	}
	memset(block, 0xff, sizeof(block));
	CHECK_EQ_INT(logpage_decode(&lp, block), -EBADMSG);

	/* Two versions of a page, torn at every sector: both planes and the header differ. */
	sample(&lp);
	logpage_encode(&lp, old);
	memset(lp.dirty, 0x55, sizeof(lp.dirty));
	memset(lp.missed, 0x33, sizeof(lp.missed));
	lp.seq += 2;
	logpage_encode(&lp, block);
	for (unsigned mask = 1; mask < 255; mask++) {
		for (unsigned s = 0; s < 8; s++)
			memcpy(torn + s * 512, (mask >> s & 1 ? block : old) + s * 512, 512);
		CHECK_EQ_INT(logpage_decode(&lp, torn), -EBADMSG);
	}
}

TEST(foreign_blocks_and_unknown_versions_are_refused)
{
	uint8_t good[DDR_BLOCK_BYTES], block[DDR_BLOCK_BYTES];
	struct logpage lp;

	sample(&lp);
	logpage_encode(&lp, good);
	memcpy(block, good, sizeof(block));
	memcpy(block, "ddraidsb", 8); /* a superblock's magic */
	seal(block);
	CHECK_EQ_INT(logpage_decode(&lp, block), -EBADMSG);
	for (unsigned byte = 0; byte < 4; byte++)
		for (unsigned v = 0; v < 256; v++) {
			memcpy(block, good, sizeof(block));
			block[12 + byte] = (uint8_t)v;
			seal(block);
			CHECK_EQ_INT(logpage_decode(&lp, block),
				     v == (byte == 0) ? 0 : -EPROTONOSUPPORT);
		}
}

TEST(random_blocks_never_crash_the_decoder)
{
	uint8_t block[DDR_BLOCK_BYTES], again[DDR_BLOCK_BYTES];
	struct prng r = {4};
	struct logpage lp;

	for (unsigned i = 0; i < 5000; i++) {
		prng_fill(&r, block, sizeof(block));
		CHECK_EQ_INT(logpage_decode(&lp, block), -EBADMSG);
		memcpy(block, "ddraidlg", 8);
		seal(block);
		CHECK_EQ_INT(logpage_decode(&lp, block), -EPROTONOSUPPORT);
		memcpy(block + 12, "\1\0\0", 4);
		seal(block);
		/* Any bits are a legal page, and mean the same when written again. */
		CHECK_EQ_INT(logpage_decode(&lp, block), 0);
		logpage_encode(&lp, again);
		CHECK_EQ_MEM(again, block, sizeof(block));
	}
}

TEST(each_bit_of_a_plane_is_one_region)
{
	uint8_t plane[LOG_PLANE_BYTES], block[DDR_BLOCK_BYTES];
	struct logpage lp;

	CHECK_EQ_U64(LOG_PLANE_BYTES, 2016);
	memset(plane, 0, sizeof(plane));
	for (uint32_t i = 0; i < LOG_REGIONS_PER_PAGE; i++) {
		CHECK(!bit_get(plane, i));
		bit_set(plane, i);
		CHECK(bit_get(plane, i));
		CHECK_EQ_U64(plane[i / 8], 1u << i % 8);
		CHECK(i == 0 || plane[(i - 1) / 8] == (i % 8 ? 1u << i % 8 : 0));
		bit_clear(plane, i);
		CHECK(!bit_get(plane, i));
	}
	memset(plane, 0xff, sizeof(plane));
	for (uint32_t i = 0; i < LOG_REGIONS_PER_PAGE; i++) {
		bit_clear(plane, i);
		CHECK(!bit_get(plane, i) && plane[i / 8] == (uint8_t) ~(1u << i % 8));
		bit_set(plane, i);
	}
	/* Where a region's bits are in the block. */
	for (uint32_t i = 0; i < LOG_REGIONS_PER_PAGE; i += 61) {
		memset(&lp, 0, sizeof(lp));
		bit_set(lp.dirty, i);
		bit_set(lp.missed, LOG_REGIONS_PER_PAGE - 1 - i);
		logpage_encode(&lp, block);
		CHECK_EQ_U64(block[64 + i / 8], 1u << i % 8);
		i = LOG_REGIONS_PER_PAGE - 1 - i;
		CHECK_EQ_U64(block[2080 + i / 8], 1u << i % 8);
		i = LOG_REGIONS_PER_PAGE - 1 - i;
	}
}
