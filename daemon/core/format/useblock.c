/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The use block's codec. See useblock.h; doc/ondisk.md has the same offsets in words. */
#include "daemon/core/format/useblock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/format/codec.h"

#define USE_MAGIC "ddraidus"
#define USE_VERSION 1u

/* Offsets in the block; codec.h has the magic and the checksum, 0..11. */
enum {
	USE_OFF_VERSION = 12,    /* u32 */
	USE_OFF_ARRAY_UUID = 16, /* 16 bytes */
	USE_OFF_CLAIM = 32,      /* u64 */
	USE_OFF_SEQ = 40,        /* u64 */
	USE_OFF_INC = 48,        /* u64 */
	USE_OFF_AT = 56,         /* u64 */
	USE_OFF_NODE = 64,       /* u32 */
	USE_OFF_PATIENCE = 68,   /* u32 */
	USE_OFF_BOOT = 72,       /* 16 bytes */
	USE_OFF_PID_SPACE = 88,  /* u64 */
	USE_OFF_START = 96,      /* u64 */
	USE_OFF_PID = 104,       /* u32; 108..127 reserved */
	USE_OFF_CLUSTER = 128,   /* 64 bytes, padded with NUL */
	USE_OFF_HOST = 192,      /* 64 bytes, padded with NUL */
};

_Static_assert(USE_OFF_HOST + DDR_NAME_BYTES <= DDR_BLOCK_BYTES, "use block");
_Static_assert(sizeof(USE_MAGIC) == BLOCK_MAGIC_BYTES + 1, "use magic");

void useblock_encode(const struct useblock *u, uint8_t out[DDR_BLOCK_BYTES])
{
	memset(out, 0, DDR_BLOCK_BYTES);
	memcpy(out, USE_MAGIC, BLOCK_MAGIC_BYTES);
	put_le32(out + USE_OFF_VERSION, USE_VERSION);
	memcpy(out + USE_OFF_ARRAY_UUID, u->array_uuid, DDR_UUID_BYTES);
	put_le64(out + USE_OFF_CLAIM, u->claim);
	put_le64(out + USE_OFF_SEQ, u->seq);
	put_le64(out + USE_OFF_INC, u->inc);
	put_le64(out + USE_OFF_AT, u->at_s);
	put_le32(out + USE_OFF_NODE, u->node);
	put_le32(out + USE_OFF_PATIENCE, u->patience_ms);
	memcpy(out + USE_OFF_BOOT, u->process.boot, USE_BOOT_BYTES);
	put_le64(out + USE_OFF_PID_SPACE, u->process.pid_space);
	put_le64(out + USE_OFF_START, u->process.start);
	put_le32(out + USE_OFF_PID, u->process.pid);
	memcpy(out + USE_OFF_CLUSTER, u->cluster, strnlen(u->cluster, DDR_NAME_BYTES - 1));
	memcpy(out + USE_OFF_HOST, u->host, strnlen(u->host, DDR_NAME_BYTES - 1));
	block_seal(out);
}

static void get_text(char to[DDR_NAME_BYTES], const uint8_t *in)
{
	memcpy(to, in, DDR_NAME_BYTES - 1);
	to[DDR_NAME_BYTES - 1] = '\0';
	for (char *c = to; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

int useblock_decode(struct useblock *u, const uint8_t in[DDR_BLOCK_BYTES])
{
	if (memcmp(in, USE_MAGIC, BLOCK_MAGIC_BYTES))
		return -ENOENT;
	if (!block_intact(in) || get_le32(in + USE_OFF_VERSION) != USE_VERSION)
		return -EBADMSG;
	memset(u, 0, sizeof(*u));
	memcpy(u->array_uuid, in + USE_OFF_ARRAY_UUID, DDR_UUID_BYTES);
	u->claim = get_le64(in + USE_OFF_CLAIM);
	u->seq = get_le64(in + USE_OFF_SEQ);
	u->inc = get_le64(in + USE_OFF_INC);
	u->at_s = get_le64(in + USE_OFF_AT);
	u->node = get_le32(in + USE_OFF_NODE);
	u->patience_ms = get_le32(in + USE_OFF_PATIENCE);
	memcpy(u->process.boot, in + USE_OFF_BOOT, USE_BOOT_BYTES);
	u->process.pid_space = get_le64(in + USE_OFF_PID_SPACE);
	u->process.start = get_le64(in + USE_OFF_START);
	u->process.pid = get_le32(in + USE_OFF_PID);
	get_text(u->cluster, in + USE_OFF_CLUSTER);
	get_text(u->host, in + USE_OFF_HOST);
	return 0;
}

void useblock_name(const struct useblock *u, char text[USE_NAME_BYTES])
{
	if (u->claim == USE_UNKNOWN)
		snprintf(text, USE_NAME_BYTES, "somebody whose use block can't be read");
	else if (u->cluster[0])
		snprintf(text, USE_NAME_BYTES, "node %u (%s) of cluster %s", u->node, u->host,
			 u->cluster);
	else
		snprintf(text, USE_NAME_BYTES, "a daemon by itself on %s, process %u", u->host,
			 u->process.pid);
}
