/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a member must carry of orphan slots, if it leaves the map before an epoch tells.
 *
 * A node's own pages of the log tell it whether a member that is back is an older copy of itself
 * (back.c). Those of a node that has left or died, and of one whose regions the leader has resynced
 * since, nobody compares: the next epoch that is committed tells, since only members which are
 * there then carry it. But if it is that very epoch which drops the member, as when a machine with
 * a node and an exporter loses its power, it tells nothing of that member. So the leader keeps then
 * which images of these slots that had acknowledged, and compares them when it comes back.
 *
 * The last image may have been on its way to the member when that broke off. Then it carries the
 * one before, and what had been cleared by the last one is dirty in that.
 *
 * It is kept until the member is in sync again, whoever leads meanwhile. A node that did not lead
 * then knows nothing of it. So the map says that the member is to be compared (UNCOMPARED): if no
 * node is there any more that can, the member is rebuilt as a whole.
 *
 * A node notes what the member lacks in its own slot. As long as it has none, the member waits
 * outside the map. If the member enters all the same, it is rebuilt as a whole, or another node
 * compares it: then this node forgets what it has kept.
 *
 * What a node wrote after the member had left the map is not known here.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

void slot_untold(const struct engine *e, struct slotinfo *s)
{
	s->untold = true;
	s->untold_num = map_next(e)->epoch.num;
}

void slots_told_forget(struct engine *e, uint8_t m)
{
	free(e->c->lead.told[m].page);
	memset(&e->c->lead.told[m], 0, sizeof(e->c->lead.told[m]));
}

void slots_told_reset(struct engine *e)
{
	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		slots_told_forget(e, m);
}

static bool counts(const struct engine *e, uint32_t slot)
{
	const struct slotinfo *s = &e->c->lead.slot[slot];

	return s->untold && s->known && !slot_is_owned(e, slot);
}

/* The leader has not read all orphan slots. */
static bool unread(const struct engine *e)
{
	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		if (!slot_is_owned(e, i) && !e->c->lead.slot[i].known)
			return true;
	return false;
}

static void keep(struct engine *e, uint8_t m)
{
	struct slot_told *t = &e->c->lead.told[m];
	uint32_t slots = 0;

	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		slots += counts(e, i);
	if (!slots || unread(e))
		return;
	t->page = calloc((size_t)slots * e->geo.log_pages, sizeof(*t->page));
	if (!t->page)
		return; /* as for another leader */
	memcpy(t->uuid, e->map.member[m].uuid, DDR_UUID_BYTES);
	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		for (uint32_t p = 0; counts(e, i) && p < e->geo.log_pages; p++) {
			const struct pageinfo *page = &e->c->lead.slot[i].page[p];

			if (page->told)
				t->page[t->count++] =
				    (struct told_page){i, p, page->told, page->before};
		}
	if (!t->count)
		slots_told_forget(e, m);
}

/*
 * Dropped by a map of this node's own that it assembled the array from: a round came before that
 * was committed, or before anybody served by it. So the slots are still what they were then.
 */
static bool dropped_unserved(const struct engine *e, const struct map *old, uint8_t m)
{
	const struct map_member *mm = &old->member[m];

	return e->state == ENGINE_JOINING && old->epoch.inc == e->inc &&
	       mm->left == old->epoch.num && mm->flags & MEMBER_F_UNCOMPARED &&
	       e->map.member[m].flags & MEMBER_F_UNCOMPARED && !e->c->lead.told[m].count;
}

/* Leader: a map is committed, which drops these members. One may be back already. */
void slots_told_committed(struct engine *e, const struct map *old, uint32_t dropped)
{
	for (uint32_t all = dropped; all; all &= all - 1)
		slots_told_forget(e, (uint8_t)__builtin_ctz(all));
	for (uint8_t m = 0; m < old->n; m++)
		if (dropped_unserved(e, old, m))
			dropped |= 1u << m;
	for (; dropped; dropped &= dropped - 1) {
		uint8_t m = (uint8_t)__builtin_ctz(dropped);

		keep(e, m);
		if (e->c->lead.told[m].count && e->view.dev_of[m] != NO_DEV)
			back_up(&e->c->devs.dev[e->view.dev_of[m]]);
	}
	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		e->c->lead.slot[i].untold &= e->map.epoch.num <= e->c->lead.slot[i].untold_num;
}

const struct slot_told *slots_told(const struct engine *e, uint8_t m)
{
	const struct slot_told *t = &e->c->lead.told[m];

	return t->count && !memcmp(t->uuid, map_next(e)->member[m].uuid, DDR_UUID_BYTES) ? t : NULL;
}

uint32_t slots_told_mask(const struct engine *e)
{
	uint32_t mask = 0;

	for (uint8_t m = 0; m < e->map.n; m++)
		mask |= (uint32_t)(slots_told(e, m) != NULL) << m;
	return mask;
}

bool slots_tell(const struct engine *e, uint8_t m)
{
	if (slots_told(e, m) || unread(e))
		return true;
	for (uint32_t i = 0; i <= e->geo.p.slots; i++)
		for (uint32_t p = 0; counts(e, i) && p < e->geo.log_pages; p++)
			if (e->c->lead.slot[i].page[p].told)
				return true;
	return false;
}

/* A node that tells it has somewhere to note what the member lacks, or will have. */
static bool comparer(const struct engine *e, uint8_t m, bool waits)
{
	bool any = slots_told(e, m) && e->view.slot_owned != waits;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		any |= p->member && p->node != e->cfg.node && p->up_inc == p->inc &&
		       p->tells >> m & 1 && p->active != waits && !peer_is_observer(e, p);
	}
	return any;
}

bool slots_compared(const struct engine *e, uint8_t m)
{
	return comparer(e, m, false);
}

bool slots_compare_waits(const struct engine *e, uint8_t m)
{
	return e->map.member[m].flags & MEMBER_F_UNCOMPARED && !comparer(e, m, false) &&
	       comparer(e, m, true);
}
