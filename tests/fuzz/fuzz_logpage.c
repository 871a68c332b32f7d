/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzzes the log page's decoder. The first byte says what is made right: magic, version, the
 * checksum. What is accepted encodes to a block that decodes to the same.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "daemon/core/format/codec.h"
#include "daemon/core/format/logpage.h"

static void accepted(const struct logpage *lp)
{
	uint8_t block[DDR_BLOCK_BYTES], again[DDR_BLOCK_BYTES];
	struct logpage back;

	memset(&back, 0, sizeof(back));
	logpage_encode(lp, block);
	assert(!logpage_decode(&back, block));
	assert(back.seq == lp->seq && back.slot == lp->slot && back.page == lp->page &&
	       back.owner_node == lp->owner_node && back.owner_inc == lp->owner_inc);
	assert(!memcmp(back.dirty, lp->dirty, sizeof(back.dirty)) &&
	       !memcmp(back.missed, lp->missed, sizeof(back.missed)));
	logpage_encode(&back, again);
	assert(!memcmp(block, again, sizeof(block)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};
	uint8_t block[DDR_BLOCK_BYTES] = {0};
	uint8_t how = fuzz_u8(&in);
	struct logpage lp;
	const uint8_t *from;
	size_t got;
	int err;

	from = fuzz_take(&in, sizeof(block), &got);
	memcpy(block, from, got);
	if (how & 1)
		memcpy(block, "ddraidlg", BLOCK_MAGIC_BYTES);
	if (how & 2)
		put_le32(block + 12, 1);
	if (how & 4)
		block_seal(block);
	err = logpage_decode(&lp, block);
	assert(err == 0 || err == -ENOENT || err == -EBADMSG || err == -EPROTONOSUPPORT);
	if (!err)
		accepted(&lp);
	return 0;
}
