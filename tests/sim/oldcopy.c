/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An older copy of a member in its place (R15): a snapshot, or a mirror that had stopped.
 *
 * The copy is made of a member in sync. Once a map has been committed with the member still in it,
 * its exporter goes away for so long that it leaves the map, and comes back with the copy. What was
 * written between the copy and its leaving is in no missed set.
 *
 * Of its own randomness: what else happens does not depend on it.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define LOOK_US (10 * MS)

static void on_look(struct sim *s, struct hev *ev);

static void look_again(struct sim *s)
{
	sim_at(s, LOOK_US, on_look, 0, 0, NULL);
}

static bool quiet(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].st.proposing)
			return false;
	return true;
}

static void copy_take(struct sim *s)
{
	uint8_t m = (uint8_t)(mix64(s->seed ^ 0x636f7079) % s->geo.n);
	uint32_t disk = s->checks.disk_of[m];
	struct disk *d = &s->disk[disk];

	if (disk == NONE || !s->checks.map_full || !d->powered || d->dead || !d->sb_valid)
		return;
	s->copy.image = xmalloc(d->bytes);
	memcpy(s->copy.image, d->durable, d->bytes);
	s->copy.disk = disk;
	s->copy.member = m;
	s->copy.epoch = d->sb.map.epoch.num;
	s->copy.until_us = s->now + 5 * s->o.tun.release_delay_ms * MS;
}

static void copy_drop(struct sim *s)
{
	free(s->copy.image);
	s->copy.image = NULL;
}

static void on_look(struct sim *s, struct hev *ev)
{
	struct disk *d = &s->disk[s->copy.disk];
	const struct map_member *mm = &s->checks.map.member[s->copy.member];

	(void)ev;
	if (s->planner.healing) {
		copy_drop(s);
		return;
	}
	look_again(s);
	if (!s->copy.image) {
		copy_take(s);
	} else if (s->checks.disk_of[s->copy.member] != s->copy.disk || d->dead) {
		copy_drop(s); /* another device is the member now */
	} else if (mm->left && mm->reached > s->copy.epoch && quiet(s) &&
		   (mm->state == MEMBER_SUSPECT || mm->state == MEMBER_MISSING)) {
		if (mix64(s->seed ^ s->now) % 8)
			return; /* at some moment while it is away */
		stats_fault(s, F_OLD_COPY);
		trace(s, "w  disk %u is an older copy of itself, of epoch %lu", d->idx,
		      s->copy.epoch);
		if (d->powered)
			fault_exporter_power(s, d->idx, 20 * MS, false);
		disk_restore(s, d, s->copy.image);
		copy_drop(s);
	} else if (s->checks.map.epoch.num > s->copy.epoch && !s->copy.hidden &&
		   s->now > s->copy.until_us && fault_may_strike(s, s->copy.disk) &&
		   mm->state == MEMBER_IN_SYNC && !d->hidden) {
		s->copy.hidden = true; /* once */
		/* It comes back by itself before member_retry, or is given up. */
		fault_hide(s, s->copy.disk, (mix64(s->seed) & 3 ? 350 : 700) * MS);
	}
}

void oldcopy_init(struct sim *s)
{
	if (!s->o.faultless && !(s->cli && s->cli->only) && mix64(s->seed ^ 0x6f6c64) % 100 < 50)
		sim_at(s, 300 * MS + mix64(s->seed) % (700 * MS), on_look, 0, 0, NULL);
}
