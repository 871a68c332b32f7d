/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The dirty log's page codec. See logpage.h; doc/ondisk.md has the same offsets in words. */
#include "daemon/core/format/logpage.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/format/codec.h"

#define LOG_MAGIC "ddraidlg"
#define LOG_VERSION 1u

/* Offsets in the block; codec.h has the magic and the checksum, 0..11. */
enum {
	LOG_OFF_VERSION = 12,    /* u32 */
	LOG_OFF_ARRAY_UUID = 16, /* 16 bytes */
	LOG_OFF_SEQ = 32,        /* u64 */
	LOG_OFF_SLOT = 40,       /* u16 */
	LOG_OFF_PAGE = 42,       /* u16 */
	LOG_OFF_OWNER_NODE = 44, /* u32 */
	LOG_OFF_OWNER_INC = 48,  /* u64 */
	LOG_OFF_DEAD_BELOW = 56, /* u64 */
	LOG_OFF_DIRTY = 64,
	LOG_OFF_MISSED = LOG_OFF_DIRTY + LOG_PLANE_BYTES,
};

_Static_assert(LOG_OFF_MISSED + LOG_PLANE_BYTES <= DDR_BLOCK_BYTES, "log page");
_Static_assert(sizeof(LOG_MAGIC) == BLOCK_MAGIC_BYTES + 1, "log magic");

void logpage_encode(const struct logpage *lp, uint8_t out[DDR_BLOCK_BYTES])
{
	memset(out, 0, DDR_BLOCK_BYTES);
	memcpy(out, LOG_MAGIC, BLOCK_MAGIC_BYTES);
	put_le32(out + LOG_OFF_VERSION, LOG_VERSION);
	memcpy(out + LOG_OFF_ARRAY_UUID, lp->array_uuid, DDR_UUID_BYTES);
	put_le64(out + LOG_OFF_SEQ, lp->seq);
	put_le16(out + LOG_OFF_SLOT, lp->slot);
	put_le16(out + LOG_OFF_PAGE, lp->page);
	put_le32(out + LOG_OFF_OWNER_NODE, lp->owner_node);
	put_le64(out + LOG_OFF_OWNER_INC, lp->owner_inc);
	put_le64(out + LOG_OFF_DEAD_BELOW, lp->dead_below);
	memcpy(out + LOG_OFF_DIRTY, lp->dirty, LOG_PLANE_BYTES);
	memcpy(out + LOG_OFF_MISSED, lp->missed, LOG_PLANE_BYTES);
	block_seal(out);
}

static bool all_zero(const uint8_t *block)
{
	return block[0] == 0 && memcmp(block, block + 1, DDR_BLOCK_BYTES - 1) == 0;
}

int logpage_decode(struct logpage *lp, const uint8_t in[DDR_BLOCK_BYTES])
{
	if (all_zero(in))
		return -ENOENT;
	if (memcmp(in, LOG_MAGIC, BLOCK_MAGIC_BYTES) != 0 || !block_intact(in))
		return -EBADMSG;
	if (get_le32(in + LOG_OFF_VERSION) != LOG_VERSION)
		return -EPROTONOSUPPORT;
	memcpy(lp->array_uuid, in + LOG_OFF_ARRAY_UUID, DDR_UUID_BYTES);
	lp->seq = get_le64(in + LOG_OFF_SEQ);
	lp->slot = get_le16(in + LOG_OFF_SLOT);
	lp->page = get_le16(in + LOG_OFF_PAGE);
	lp->owner_node = get_le32(in + LOG_OFF_OWNER_NODE);
	lp->owner_inc = get_le64(in + LOG_OFF_OWNER_INC);
	lp->dead_below = get_le64(in + LOG_OFF_DEAD_BELOW);
	memcpy(lp->dirty, in + LOG_OFF_DIRTY, LOG_PLANE_BYTES);
	memcpy(lp->missed, in + LOG_OFF_MISSED, LOG_PLANE_BYTES);
	return 0;
}

/*
 * Who dies between the members leaves images on some of them that the next to write the page may
 * not see: such a member has left the map since, is being rebuilt, or can't be read now. It comes
 * back, and what was written to it since must be newer there. So numbers begin higher with each
 * epoch, and with a gap where a page was not read from all that are written. The copies take turns
 * nevertheless: a torn write leaves the image before.
 */
uint64_t logpage_seq_next(uint64_t epoch, uint64_t seq)
{
	uint64_t least = epoch << LOG_SEQ_EPOCH_SHIFT;

	return seq + 1 >= least ? seq + 1 : least + !(seq & 1);
}
