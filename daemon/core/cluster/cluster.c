/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The control plane's memory, and its beginning anew with each incarnation. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

static void cluster_setup(struct engine *e)
{
	struct cluster *c = e->c;
	struct record known = c->records.want; /* departed_add writes it anew */

	list_init(&c->locktab.waiters);
	resync_setup(e);
	rebuild_setup(e);
	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		e->view.dev_of[m] = NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		c->devs.dev[i].member = NO_MEMBER;
	e->view.slot = NO_SLOT;
	/* Whom an earlier incarnation of this node has seen removed, stays removed (R6). */
	departed_recall(e, &known);
}

static int buffers_alloc(struct engine *e)
{
	struct cluster *c = e->c;

	c->lead.sb_buf = calloc(DDR_MAX_MEMBERS, DDR_BLOCK_BYTES);
	c->resync.block = calloc(WR_PAGES, DDR_BLOCK_BYTES);
	c->lead.rd_buf = calloc(2 * RD_PAGES * DDR_MAX_MEMBERS, DDR_BLOCK_BYTES);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		c->devs.dev[i].buf = calloc(SB_COPIES, DDR_BLOCK_BYTES);
		if (!c->devs.dev[i].buf)
			return -ENOMEM;
	}
	return c->lead.sb_buf && c->lead.rd_buf && c->resync.block ? use_alloc(e) : -ENOMEM;
}

int cluster_new(struct engine *e)
{
	struct cluster *c = calloc(1, sizeof(*c));

	if (!c || htable_init(&c->locktab.table)) {
		free(c);
		return -ENOMEM;
	}
	e->c = c;
	c->vouch.asks = c->vouch.first = 1;
	c->records.durable = c->records.sent = c->records.want = e->cfg.record;
	cluster_setup(e);
	c->recoveries.count = 0; /* of an earlier incarnation */
	return buffers_alloc(e);
}

void cluster_free(struct engine *e)
{
	struct cluster *c = e->c;

	if (!c)
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		free(c->devs.dev[i].buf);
		free(c->devs.dev[i].back.buf);
	}
	use_free(e);
	htable_free(&c->locktab.table);
	free(c->lead.sb_buf);
	free(c->lead.rd_buf);
	free(c->resync.block);
	free(c);
}

void cluster_end(struct engine *e)
{
	rebuild_reset(e);
	slots_reset(e);
}

void cluster_clear(struct engine *e)
{
	locktab_reset(e);
	back_free(e);
	slots_free(e);
}

static void keep_memory(struct cluster *c, const struct cluster *old)
{
	c->locktab.table = old->locktab.table;
	c->lead.sb_buf = old->lead.sb_buf;
	c->lead.rd_buf = old->lead.rd_buf;
	c->resync.block = old->resync.block;
}

/* What is so whatever incarnation this is. */
static void keep(struct cluster *c, const struct cluster *old)
{
	c->group = old->group;
	c->records = old->records;
	c->fences = old->fences;
	c->devs = old->devs;
	devs_restart(&c->devs);
	memcpy(c->epochs.dropped, old->epochs.dropped, sizeof(c->epochs.dropped));
	c->vouch.asks = c->vouch.first = old->vouch.asks + 1;
	c->choice.defers = old->choice.defers;
	c->choice.defers_reach = old->choice.defers_reach;
	c->choice.fenced_out = old->choice.fenced_out;
	c->round.last_num = old->round.last_num;
}

static void keep_peers(struct engine *e, const struct cluster *old)
{
	struct cluster *c = e->c;

	for (uint32_t i = 0; i < c->group.view_count; i++)
		peer_get(e, c->group.view[i])->in_view = true;
	for (uint32_t i = 0; i < old->round.peer_count; i++) {
		struct peer *p = peer_get(e, old->round.peer[i].node);

		p->left = old->round.peer[i].left;
		p->dropped = old->round.peer[i].dropped;
	}
}

void cluster_restart(struct engine *e, uint64_t idle_inc)
{
	struct cluster *c = e->c, *old = malloc(sizeof(*old));

	assert(old);
	*old = *c;
	memset(c, 0, sizeof(*c));
	c->round.idle_inc = idle_inc;
	keep_memory(c, old);
	keep(c, old);
	use_restart(e, &old->use);
	cluster_setup(e);
	memcpy(c->recoveries.list, old->recoveries.list, sizeof(c->recoveries.list));
	c->recoveries.count = old->recoveries.count;
	keep_peers(e, old);
	free(old);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (c->devs.dev[i].up)
			sb_read(e, i);
	nodemsg_join(e);
}
