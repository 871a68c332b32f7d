/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `create` writes on a member: every log page in both copies, then the superblocks; so a
 * member that was interrupted on the way carries no superblock and is nobody's.
 */
#include <string.h>

#include "daemon/core/engine.h"
#include "daemon/core/format/logpage.h"

static int pages_emit(const struct create_params *p, const struct geo *g,
		      int (*emit)(void *, uint64_t, const uint8_t *), void *arg)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct logpage lp;

	for (uint32_t s = 0; s <= g->p.slots; s++) {
		for (uint32_t i = 0; i < g->log_pages; i++) {
			uint64_t first = (uint64_t)i * LOG_REGIONS_PER_PAGE;

			memset(&lp, 0, sizeof(lp));
			memcpy(lp.array_uuid, p->array_uuid, DDR_UUID_BYTES);
			lp.slot = (uint16_t)s;
			lp.page = (uint16_t)i;
			/* The array's own slot: nothing has been synced yet. */
			for (uint32_t r = 0; s == g->p.slots && !p->clean &&
					     r < LOG_REGIONS_PER_PAGE && first + r < g->regions;
			     r++)
				bit_set(lp.dirty, r);
			for (uint32_t c = 0; c < 2; c++) {
				int err;

				lp.seq = c;
				logpage_encode(&lp, block);
				err = emit(arg, geo_log_offset(g, s, i, c), block);
				if (err)
					return err;
			}
		}
	}
	return 0;
}

int create_member(const struct create_params *p, uint8_t index,
		  int (*emit)(void *arg, uint64_t offset, const uint8_t *block), void *arg)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb;
	struct geo g;
	int err = geo_init(&g, &p->geo, NULL);

	if (!err)
		err = pages_emit(p, &g, emit, arg);
	if (err)
		return err;
	memset(&sb, 0, sizeof(sb));
	memcpy(sb.array_uuid, p->array_uuid, DDR_UUID_BYTES);
	memcpy(sb.member_uuid, p->member_uuid[index], DDR_UUID_BYTES);
	memcpy(sb.name, p->name, DDR_NAME_BYTES);
	sb.geo = p->geo;
	sb.index = index;
	sb.map.epoch = sb.committed = (struct epoch){1, p->inc};
	sb.map.n = g.n;
	for (uint8_t i = 0; i < g.n; i++) {
		memcpy(sb.map.member[i].uuid, p->member_uuid[i], DDR_UUID_BYTES);
		sb.map.member[i].state = MEMBER_IN_SYNC;
	}
	for (uint32_t c = 0; c < SB_COPIES && !err; c++) {
		sb.seq = c;
		sb.place = (uint8_t)(c + 1);
		sb_encode(&sb, block);
		err = emit(arg, geo_sb_offset(c), block);
	}
	return err;
}
