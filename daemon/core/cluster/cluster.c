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
	struct record known = c->want_record; /* gone_add writes it anew */

	list_init(&c->lock_waiters);
	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		e->view.dev_of[m] = NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		c->dev[i].member = NO_MEMBER;
	e->view.slot = NO_SLOT;
	/* Whom an earlier incarnation of this node has seen removed, stays removed (R6). */
	gone_recall(e, &known);
}

static int buffers_alloc(struct engine *e)
{
	struct cluster *c = e->c;

	c->ld.sb_buf = calloc(DDR_MAX_MEMBERS, DDR_BLOCK_BYTES);
	c->rec.block = calloc(WR_PAGES, DDR_BLOCK_BYTES);
	c->ld.rd_buf = calloc(2 * RD_PAGES * DDR_MAX_MEMBERS, DDR_BLOCK_BYTES);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		c->dev[i].buf = calloc(SB_COPIES, DDR_BLOCK_BYTES);
		if (!c->dev[i].buf)
			return -ENOMEM;
	}
	return c->ld.sb_buf && c->ld.rd_buf && c->rec.block ? use_alloc(e) : -ENOMEM;
}

int cluster_new(struct engine *e)
{
	struct cluster *c = calloc(1, sizeof(*c));

	if (!c || htable_init(&c->locks)) {
		free(c);
		return -ENOMEM;
	}
	e->c = c;
	c->asks = c->asks_first = 1;
	c->record = c->sent_record = c->want_record = e->cfg.record;
	cluster_setup(e);
	c->recovery_count = 0; /* of an earlier life */
	return buffers_alloc(e);
}

void cluster_free(struct engine *e)
{
	struct cluster *c = e->c;

	if (!c)
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		free(c->dev[i].buf);
		free(c->dev[i].back.buf);
	}
	use_free(e);
	htable_free(&c->locks);
	free(c->ld.sb_buf);
	free(c->ld.rd_buf);
	free(c->rec.block);
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
	c->locks = old->locks;
	c->ld.sb_buf = old->ld.sb_buf;
	c->ld.rd_buf = old->ld.rd_buf;
	c->rec.block = old->rec.block;
}

/* What of the devices and members is so whatever incarnation this is. */
static void keep_devs(struct cluster *c, const struct cluster *old)
{
	memcpy(c->dev, old->dev, sizeof(c->dev));
	c->devs = old->devs;
	c->bindings = old->bindings;
	memcpy(c->kept, old->kept, sizeof(c->kept));
	c->kept_count = old->kept_count;
	memcpy(c->dropped, old->dropped, sizeof(c->dropped));
	c->asks = c->asks_first = old->asks + 1;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &c->dev[i];

		d->reading = d->sb_ok = d->fresh = d->entered = false;
		back_restart(d);
		d->connected_here = d->connected_next;
		d->connected_next = false;
	}
}

/* Likewise of the other nodes. */
static void keep_nodes(struct cluster *c, const struct cluster *old)
{
	c->yields = old->yields;
	c->yield_reach = old->yield_reach;
	c->outcasts = old->outcasts;
	c->record = old->record;
	c->sent_record = old->sent_record;
	c->want_record = old->want_record;
	c->record_busy = old->record_busy;
	c->record_us = old->record_us;
	c->view_ring = old->view_ring;
	c->quorum_ring = old->quorum_ring;
	c->quorate = old->quorate;
	c->quorum_count = old->quorum_count;
	memcpy(c->quorum, old->quorum, sizeof(c->quorum));
	c->view_known = old->view_known;
	c->view_count = old->view_count;
	memcpy(c->view, old->view, sizeof(c->view));
	c->term_num = old->term_num;
	memcpy(c->buried, old->buried, sizeof(c->buried));
	memcpy(c->fence_ask, old->fence_ask, sizeof(c->fence_ask));
	c->buried_next = old->buried_next;
}

static void keep_peers(struct engine *e, const struct cluster *old)
{
	struct cluster *c = e->c;

	for (uint32_t i = 0; i < c->view_count; i++)
		peer_get(e, c->view[i])->in_view = true;
	for (uint32_t i = 0; i < old->peer_count; i++) {
		struct peer *p = peer_get(e, old->peer[i].node);

		p->left = old->peer[i].left;
		p->dropped = old->peer[i].dropped;
	}
}

void cluster_restart(struct engine *e, uint64_t idle_inc)
{
	struct cluster *c = e->c, *old = malloc(sizeof(*old));

	assert(old);
	*old = *c;
	memset(c, 0, sizeof(*c));
	c->idle_inc = idle_inc;
	keep_memory(c, old);
	keep_devs(c, old);
	keep_nodes(c, old);
	use_restart(e, &old->use);
	cluster_setup(e);
	memcpy(c->recovery, old->recovery, sizeof(c->recovery));
	c->recovery_count = old->recovery_count;
	keep_peers(e, old);
	free(old);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (c->dev[i].up)
			sb_read(e, i);
	nodemsg_join(e);
}
