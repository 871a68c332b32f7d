/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzzes the superblock's decoder. The first byte says what is made right: magic, version and
 * features, the checksum. What is accepted holds the map's rules, and encodes to a block that
 * decodes to the same.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "daemon/core/format/codec.h"
#include "daemon/core/format/superblock.h"

static void accepted(const struct superblock *sb)
{
	uint8_t block[DDR_BLOCK_BYTES], again[DDR_BLOCK_BYTES];
	struct superblock back;
	struct geo g;

	assert(!geo_init(&g, &sb->geo, NULL));
	assert(sb->map.n == g.n && sb->index < g.n);
	assert(sb->committed.num <= sb->map.epoch.num);
	assert(memchr(sb->name, 0, DDR_NAME_BYTES));
	if (sb->map.epoch.num)
		assert(!map_check(&sb->map, &g) &&
		       __builtin_popcount(map_insync_mask(&sb->map)) >= g.k);
	else
		assert(!map_write_mask(&sb->map));
	sb_encode(sb, block);
	assert(!sb_decode(&back, block, NULL));
	assert(!sb_newer(&back, sb) && !sb_newer(sb, &back));
	sb_encode(&back, again);
	assert(!memcmp(block, again, sizeof(block)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};
	uint8_t block[DDR_BLOCK_BYTES] = {0};
	char why[FORMAT_WHY_BYTES] = "";
	uint8_t how = fuzz_u8(&in);
	struct superblock sb;
	const uint8_t *from;
	size_t got;
	int err;

	from = fuzz_take(&in, sizeof(block), &got);
	memcpy(block, from, got);
	if (how & 1)
		memcpy(block, "ddraidsb", BLOCK_MAGIC_BYTES);
	if (how & 2) {
		put_le32(block + 12, 1);
		memset(block + 24, 0, 16);
	}
	if (how & 4)
		block_seal(block);
	err = sb_decode(&sb, block, why);
	assert(err == 0 || *why);
	assert(err == 0 || err == -ENOENT || err == -EBADMSG || err == -EPROTONOSUPPORT ||
	       err == -EINVAL);
	if (!err)
		accepted(&sb);
	return 0;
}
