/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is told of recoveries: one entry for each incarnation that was lost, the last
 * DDR_RECOVERIES of them. Nothing is decided by it.
 *
 *   LOST -> FENCED -> READ: the slot's dirty regions are known -> DONE: none of them is left
 *
 * All nodes see the same steps, by the leader's ordered messages (Fenced; Dirty and Ready; Dirty).
 * Regions and bytes are of this node's own work: the leader resyncs the slot, and any node
 * what it is asked to read first (R18). The cluster's sum is that over its nodes. A leader that
 * dies takes its count along. A node that was removed itself has not seen all; then times are 0.
 */
#include <assert.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

/*
 * LOST may be followed by READ: a node that was away when the fence answered learns from what the
 * leader tells that it has. No move goes back: if the fence is void after all (fences_void), the
 * leader has the node fenced anew, and what was told of the first one stays.
 */
static void recovery_move(struct engine *e, struct recovery *r, enum recovery_state to)
{
	static const uint8_t legal[] = {
	    [RECOVERY_LOST] = 1 << RECOVERY_FENCED | 1 << RECOVERY_READ,
	    [RECOVERY_FENCED] = 1 << RECOVERY_READ,
	    [RECOVERY_READ] = 1 << RECOVERY_DONE,
	    [RECOVERY_DONE] = 0,
	};

	assert(legal[r->state] >> to & 1);
	r->state = to;
	if (to == RECOVERY_FENCED)
		TRACE(e, "the recovery of node %u: it is fenced", r->node);
	else if (to == RECOVERY_DONE)
		TRACE(e, "the recovery of node %u is over", r->node);
	else if (r->slot == NO_SLOT)
		TRACE(e, "the recovery of node %u: it had no slot", r->node);
	else
		TRACE(e, "the recovery of node %u: %llu regions are dirty in its slot %u", r->node,
		      (unsigned long long)r->marked, r->slot);
}

static struct recovery *find(struct engine *e, uint32_t node, uint64_t inc)
{
	for (uint32_t i = 0; i < e->c->recoveries.count; i++)
		if (e->c->recoveries.list[i].node == node && e->c->recoveries.list[i].inc == inc)
			return &e->c->recoveries.list[i];
	return NULL;
}

/* A slot has one owner until it is clean, so one recovery under way at most. */
static struct recovery *find_slot(struct engine *e, uint32_t slot)
{
	for (uint32_t i = 0; i < e->c->recoveries.count; i++)
		if (e->c->recoveries.list[i].slot == slot &&
		    e->c->recoveries.list[i].state != RECOVERY_DONE)
			return &e->c->recoveries.list[i];
	return NULL;
}

/* The oldest that is through makes room, else the oldest. */
static void room_make(struct engine *e)
{
	uint32_t i = 0;

	while (i < e->c->recoveries.count && e->c->recoveries.list[i].state != RECOVERY_DONE)
		i++;
	if (i == e->c->recoveries.count)
		i = 0;
	e->c->recoveries.count--;
	memmove(&e->c->recoveries.list[i], &e->c->recoveries.list[i + 1],
		(e->c->recoveries.count - i) * sizeof(e->c->recoveries.list[0]));
}

void recovery_lost(struct engine *e, uint32_t node, uint64_t inc)
{
	const struct peer *p = peer_find(e, node);
	struct recovery *r;

	if (find(e, node, inc) || recently_fenced(e, node, inc))
		return;
	if (e->c->recoveries.count == DDR_RECOVERIES)
		room_make(e);
	r = &e->c->recoveries.list[e->c->recoveries.count++];
	*r = (struct recovery){.node = node, .inc = inc, .slot = NO_SLOT, .lost_us = e->now};
	r->fenced_before = fenced_by_itself(e, node, inc);
	if (p && (p->member_inc == inc || p->inc == inc))
		r->slot = p->slot;
}

/* The slot that it had, for those who did not see it: NO_SLOT = none, or not known. */
uint32_t recovery_slot(struct engine *e, uint32_t node, uint64_t inc)
{
	const struct recovery *r = find(e, node, inc);

	return r ? r->slot : NO_SLOT;
}

void recovery_slot_is(struct engine *e, uint32_t node, uint64_t inc, uint32_t slot)
{
	struct recovery *r = find(e, node, inc);

	if (r && slot != NO_SLOT && r->state != RECOVERY_DONE)
		r->slot = slot;
}

void recovery_fenced(struct engine *e, uint32_t node, uint64_t inc)
{
	struct recovery *r = find(e, node, inc);

	if (r && !r->fenced_us)
		r->fenced_us = e->now;
	if (r && r->state == RECOVERY_LOST)
		recovery_move(e, r, RECOVERY_FENCED);
}

static void dirty_known(struct engine *e, struct recovery *r, uint64_t dirty)
{
	r->read_us = e->now;
	r->marked = dirty;
	recovery_move(e, r, RECOVERY_READ);
}

/* The leader has read an orphan slot. What was read before the fence is read again. */
void recovery_read(struct engine *e, uint32_t slot)
{
	const struct slotinfo *s = &e->c->lead.slot[slot];
	struct recovery *r;

	recovery_slot_is(e, s->owner_node, s->owner_inc, slot);
	r = find_slot(e, slot);
	if (r && r->state == RECOVERY_FENCED)
		dirty_known(e, r, s->dirty.count);
}

/* Regions that are dirty in orphan slots, each counted once. */
static uint64_t foreign_count(const struct engine *e)
{
	uint64_t n = 0;

	for (uint32_t p = 0; p < e->geo.log_pages; p++) {
		const struct rset *only = NULL;
		bool several = false;

		for (uint32_t i = 0; i <= e->geo.p.slots; i++) {
			if (!e->c->orphans.dirty[i].page[p].count)
				continue;
			several |= only != NULL;
			only = &e->c->orphans.dirty[i];
		}
		if (only && !several)
			n += only->page[p].count;
		for (uint32_t k = 0; several && k < LOG_PLANE_BYTES; k++) {
			unsigned any = 0;

			for (uint32_t i = 0; i <= e->geo.p.slots; i++)
				any |= rset_plane(&e->c->orphans.dirty[i], p)[k];
			n += (unsigned)__builtin_popcount(any);
		}
	}
	return n;
}

/* Without those that the leader has resynced and not cleared yet. */
uint64_t regions_to_resync(const struct engine *e)
{
	uint64_t done = leading(e) ? e->c->resync.done.count : 0;

	return e->c->recoveries.to_resync > done ? e->c->recoveries.to_resync - done : 0;
}

/* What is dirty in orphan slots was told: at Ready, and at each Dirty after it. */
void recovery_told(struct engine *e)
{
	e->c->recoveries.to_resync = e->view.have_geo && e->c->orphans.dirty ? foreign_count(e) : 0;
	if (!e->c->recoveries.to_resync || e->c->recoveries.to_resync > e->c->recoveries.total)
		e->c->recoveries.total = e->c->recoveries.to_resync;
	for (uint32_t i = 0; i < e->c->recoveries.count; i++) {
		struct recovery *r = &e->c->recoveries.list[i];
		const struct departed *d = departed_find(e, r->node, r->inc);
		uint64_t dirty = 0;

		if (r->state == RECOVERY_DONE || (d && !d->fenced))
			continue;
		if (r->slot < e->geo.p.slots)
			dirty = e->c->orphans.dirty[r->slot].count;
		if (r->state != RECOVERY_READ)
			dirty_known(e, r, dirty);
		if (dirty)
			continue;
		r->done_us = e->now;
		recovery_move(e, r, RECOVERY_DONE);
	}
}

/* A window of a job is through. */
void recovery_window(struct engine *e, const struct job *j)
{
	uint64_t bytes = (uint64_t)j->s.count * e->geo.p.stripe_bytes;
	struct recovery *r = NULL;

	if (j->kind == JOB_RESYNC) {
		e->c->recoveries.bytes += bytes;
		r = find_slot(e, e->c->resync.of_slot);
		if (r)
			r->bytes += bytes;
	} else if (j->kind == JOB_READ) {
		e->c->recoveries.read_bytes += bytes;
		for (uint32_t i = 0; i < e->geo.p.slots && !r; i++)
			if (rset_has(&e->c->orphans.dirty[i], j->region))
				r = find_slot(e, i);
		if (r)
			r->read_bytes += bytes;
	}
}

/* The leader's resync of a whole region is through. */
void recovery_region(struct engine *e)
{
	struct recovery *r = find_slot(e, e->c->resync.of_slot);

	if (r)
		r->regions++;
}

bool region_foreign(const struct engine *e, uint64_t idx)
{
	for (uint32_t s = 0; s <= e->geo.p.slots; s++)
		if (rset_has(&e->c->orphans.dirty[s], idx))
			return true;
	return false;
}
