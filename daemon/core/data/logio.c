/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Pages of the dirty log, to and from members: of the own slot, and of orphan slots. Which image
 * goes where is their owners' to know (dlog.c; cluster/slots.c, cluster/resync.c).
 */
#include "daemon/core/data/data.h"

void log_write(struct engine *e, struct batch *b, uint32_t slot, uint32_t page, uint64_t seq,
	       uint32_t members, const struct iovec *image)
{
	uint64_t offset = geo_log_offset(&e->geo, slot, page, (uint32_t)(seq & 1));

	for (uint8_t i = 0; i < e->map.n; i++)
		if (members >> i & 1)
			member_io_start(e, b, i, DEV_WRITE, KIND_LOG, DEV_F_FUA, offset,
					DDR_BLOCK_BYTES, image, 1, 0);
}

void log_read(struct engine *e, struct batch *b, uint8_t member, uint32_t slot, uint32_t page,
	      uint32_t copy, const struct iovec *to)
{
	member_io_start(e, b, member, DEV_READ, KIND_LOG, 0,
			geo_log_offset(&e->geo, slot, page, copy), (uint32_t)to->iov_len, to, 1, 0);
}
