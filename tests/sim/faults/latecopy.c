/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An older copy of a member in its place that no superblock tells: it was made after the last
 * change of the map before the member left that. What was written between the copy and its leaving
 * is in no missed set, if it was cleared meanwhile; only the nodes' own pages of the dirty log show
 * it.
 *
 * So each node that has served since has to live to when the member has entered the map again, but
 * one that is gone before the member leaves the map: if no epoch was committed since, who leads at
 * that moment compares its pages, also when another leads by then. If one does not live, the
 * exporter returns to what the member was.
 *
 * In other seeds these pages take their time to be read.
 *
 * Of its own randomness: what else happens does not depend on it.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define LOOK_US (10 * MS)

static bool serves(const struct simnode *n)
{
	return n->proc && n->st.state == ENGINE_ACTIVE && !n->stopped;
}

/* One that has given up, or was fenced, may go on for a while; nobody hears it. */
static bool lives(const struct sim *s, uint32_t i)
{
	const struct incn *inc = &s->inc[s->late_copy.ii[i]];

	return serves(&s->node[i]) && s->node[i].ii == s->late_copy.ii[i] && !inc->fenced &&
	       !inc->gave_up_us;
}

/* Those that served then still do. */
static bool lived(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->late_copy.served >> i & 1 && !lives(s, i))
			return false;
	return true;
}

static void serving_note(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (serves(&s->node[i])) {
			s->late_copy.served |= 1u << i;
			s->late_copy.ii[i] = s->node[i].ii;
		}
}

/* The member is in the map still: from now on nobody has to live that is gone by now, and each that
 * has begun to serve. */
static void gone_note(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->late_copy.served >> i & 1 && !lives(s, i)) {
			s->late_copy.served &= ~(1u << i);
			s->late_copy.gone = true;
		}
	serving_note(s);
}

/* It has just left the map, by one of these if a node is gone. */
static bool left(const struct sim *s)
{
	bool led = !s->late_copy.gone;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		led |= s->late_copy.served >> i & 1 && s->node[i].st.leading;
	return led && lived(s);
}

static bool changing(const struct sim *s)
{
	return stats_in_state(s, CS_PROPOSING) || stats_in_state(s, CS_RECOVERING) ||
	       stats_in_state(s, CS_FENCING);
}

static void drop(struct sim *s)
{
	free(s->late_copy.image);
	s->late_copy.image = NULL;
	s->late_copy.hidden = s->late_copy.there = false;
}

static void take(struct sim *s)
{
	uint8_t m = (uint8_t)(mix64(s->seed ^ s->now ^ 0x6c617465) % s->geo.n);
	uint32_t disk = s->checks.disk_of[m];
	struct disk *d = &s->disk[disk];

	if (disk == NONE || !s->checks.map_full || !d->powered || d->dead || d->hidden ||
	    changing(s) || d->sb.map.epoch.num != s->checks.map.epoch.num)
		return;
	s->late_copy.served = 0;
	s->late_copy.gone = false;
	serving_note(s);
	if (!s->late_copy.served)
		return;
	s->late_copy.image = xmalloc(d->bytes);
	memcpy(s->late_copy.image, d->durable, d->bytes);
	s->late_copy.disk = disk;
	s->late_copy.member = m;
	s->late_copy.epoch = s->checks.map.epoch.num;
	s->late_copy.until_us =
	    s->now + (1 + mix64(s->seed ^ s->now) % 8) * s->o.tun.release_delay_ms * MS;
}

/* What the disk holds now takes the copy's place. */
static void comes(struct sim *s)
{
	struct disk *d = &s->disk[s->late_copy.disk];
	uint64_t r = mix64(s->seed ^ s->now);
	uint8_t *was = xmalloc(d->bytes);

	if (d->powered)
		fault_exporter_power(s, d->idx, (1 + r % 40) * MS, false);
	memcpy(was, d->durable, d->bytes);
	disk_restore(s, d, s->late_copy.image);
	free(s->late_copy.image);
	s->late_copy.image = was;
	s->late_copy.there = !s->late_copy.there;
	trace(s, "w  disk %u is %s", d->idx,
	      s->late_copy.there ? "an older copy of itself, of the same epoch" : "itself again");
}

/* One machine had both. */
static void node_goes_too(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x746f6f);
	struct simnode *n = &s->node[r % s->o.nodes];

	if ((s->o.nodes < 3 && !s->o.two_node) || !n->powered ||
	    !(s->late_copy.served & ~(1u << (n - s->node))))
		return;
	trace(s, "f  n%u loses its power with disk %u", n->id, s->late_copy.disk);
	node_crash(s, n);
	node_power_on_later(s, n, 30 * MS + r / 65536 % (1500 * MS));
}

/* The member is in the map, and nothing tells yet. If a node is gone, it goes before an epoch does.
 */
static void may_hide(struct sim *s, const struct map_member *mm)
{
	struct disk *d = &s->disk[s->late_copy.disk];
	bool was_gone = s->late_copy.gone;

	gone_note(s);
	if (s->late_copy.gone && !was_gone)
		s->late_copy.until_us = s->now;
	if (s->late_copy.hidden || s->now < s->late_copy.until_us ||
	    !fault_may_strike(s, s->late_copy.disk) || mm->state != MEMBER_IN_SYNC || d->hidden ||
	    !d->powered || s->copy.stands)
		return;
	s->late_copy.hidden = true;
	fault_hide(s, s->late_copy.disk, (40 + mix64(s->seed ^ s->now) % 400) * MS);
	if (!s->late_copy.gone && mix64(s->seed ^ s->now ^ 0x676f6e65) % 4)
		node_goes_too(s);
}

static void look(struct sim *s)
{
	const struct map_member *mm = &s->checks.map.member[s->late_copy.member];
	struct disk *d = &s->disk[s->late_copy.disk];
	bool out = mm->state == MEMBER_SUSPECT || mm->state == MEMBER_MISSING;

	if (d->dead || s->checks.disk_of[s->late_copy.member] != s->late_copy.disk) {
		drop(s);
	} else if (s->late_copy.there) {
		if (out && !lived(s) && d->sb.map.epoch.num == s->late_copy.epoch)
			comes(s); /* at once, unless it has a superblock by which it enters */
		else if (out)
			return;
		drop(s); /* it has entered, or been given up, or is what it was */
	} else if (!out && s->checks.map.epoch.num == s->late_copy.epoch) {
		may_hide(s, mm);
	} else if (out && s->late_copy.hidden && mm->left && mm->reached == s->late_copy.epoch &&
		   left(s)) {
		stats_fault(s, s->late_copy.gone ? F_LATE_COPY_GONE : F_LATE_COPY);
		d->sb_bad = 0; /* it is another medium */
		comes(s);
	} else {
		drop(s);
	}
}

static void on_look(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (s->planner.healing) {
		if (!s->late_copy.there)
			drop(s);
		if (!s->late_copy.image)
			return;
	}
	sim_at(s, LOOK_US, on_look, 0, 0, NULL);
	if (s->late_copy.image)
		look(s);
	else
		take(s);
}

uint64_t latecopy_unread_us(const struct sim *s, const struct req *r)
{
	uint64_t dice = mix64(s->seed ^ s->now ^ 0x756e72656164);

	if (r->kind != KIND_BACK || s->planner.healing || mix64(s->seed ^ 0x6261636b) % 3)
		return 0;
	return dice % 4 ? dice / 4 % (20 * MS) : dice / 4 % (1500 * MS);
}

void latecopy_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x6c6174652d63ull);

	if (!s->o.faultless && !(s->cli && s->cli->only) && r % 100 < 80)
		sim_at(s, (50 + r / 100 % 500) * MS, on_look, 0, 0, NULL);
}
