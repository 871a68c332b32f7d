// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/core/format/claim.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/format/codec.h"

/* magic 8 | crc32c 4 | version 4 | index 4 | array UUID 16 | member UUID 16 | name 64 | zero */
#define CLAIM_VERSION 1u

enum {
	OFF_VERSION = BLOCK_OFF_CRC + 4,
	OFF_INDEX = OFF_VERSION + 4,
	OFF_ARRAY = OFF_INDEX + 4,
	OFF_MEMBER = OFF_ARRAY + DDR_UUID_BYTES,
	OFF_NAME = OFF_MEMBER + DDR_UUID_BYTES,
	OFF_END = OFF_NAME + DDR_NAME_BYTES
};

_Static_assert(OFF_END <= DDR_BLOCK_BYTES, "a claim fits");

static const char magic[BLOCK_MAGIC_BYTES] = "ddraidcl";

void claim_encode(const struct claim *c, uint8_t block[DDR_BLOCK_BYTES])
{
	memset(block, 0, DDR_BLOCK_BYTES);
	memcpy(block, magic, BLOCK_MAGIC_BYTES);
	put_le32(block + OFF_VERSION, CLAIM_VERSION);
	put_le32(block + OFF_INDEX, c->index);
	memcpy(block + OFF_ARRAY, c->array_uuid, DDR_UUID_BYTES);
	memcpy(block + OFF_MEMBER, c->member_uuid, DDR_UUID_BYTES);
	memcpy(block + OFF_NAME, c->name, DDR_NAME_BYTES);
	block_seal(block);
}

int claim_decode(struct claim *c, const uint8_t block[DDR_BLOCK_BYTES])
{
	if (memcmp(block, magic, BLOCK_MAGIC_BYTES))
		return -ENOENT;
	if (!block_intact(block))
		return -EBADMSG;
	if (get_le32(block + OFF_VERSION) != CLAIM_VERSION)
		return -EPROTONOSUPPORT;
	c->index = get_le32(block + OFF_INDEX);
	memcpy(c->array_uuid, block + OFF_ARRAY, DDR_UUID_BYTES);
	memcpy(c->member_uuid, block + OFF_MEMBER, DDR_UUID_BYTES);
	memcpy(c->name, block + OFF_NAME, DDR_NAME_BYTES);
	c->name[DDR_NAME_BYTES - 1] = '\0';
	return 0;
}
