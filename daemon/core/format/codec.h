/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the on-member formats share: little-endian fields at written-out offsets, and the
 * block checksum. Private to superblock.c and logpage.c.
 *
 * Every 4 KiB block starts with an 8-byte magic and the crc32c of the whole block, computed
 * with the four checksum bytes as zero. This stays so in all versions: a later version must
 * be told from damage.
 */
#ifndef DDRAID_CORE_FORMAT_CODEC_H
#define DDRAID_CORE_FORMAT_CODEC_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "daemon/base/limits.h"
#include "daemon/core/format/crc.h"

#define BLOCK_MAGIC_BYTES 8
#define BLOCK_OFF_CRC 8

static inline void put_le16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_le32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_le64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static inline uint16_t get_le16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t get_le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get_le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/* Fills in the checksum of a block that is otherwise complete. */
static inline void block_seal(uint8_t *block)
{
	put_le32(block + BLOCK_OFF_CRC, 0);
	put_le32(block + BLOCK_OFF_CRC, crc32c(block, DDR_BLOCK_BYTES));
}

static inline int block_intact(const uint8_t *block)
{
	uint8_t copy[DDR_BLOCK_BYTES];

	memcpy(copy, block, sizeof(copy));
	put_le32(copy + BLOCK_OFF_CRC, 0);
	return crc32c(copy, sizeof(copy)) == get_le32(block + BLOCK_OFF_CRC);
}

#endif
