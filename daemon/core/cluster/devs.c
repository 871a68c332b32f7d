/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices: what the runtime has opened, and which member of the map each of them is.
 *
 *   up -> superblock read -> bound to the member whose UUID it carries -> down, or another map
 *
 * Only what a device carries says which member it is; its URI says nothing.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

#define SB_RETRY_US 500000ull
#define MISFIT_LOOK_US 5000000ull /* between two looks whether the device has been set right */

/* R14: of this member; whatever the device may be by now. */
bool dev_failed_flush(const struct dev *d, const struct map_member *mm)
{
	return d->flush_failed && !memcmp(d->failed_uuid, mm->uuid, DDR_UUID_BYTES);
}

/*
 * A device that has shrunk, or takes only larger requests than ours, is no member, though it
 * carries a member's superblock: what lies beyond its end is lost, and what is written there would
 * be, too. It counts as a member that is not there. What it carries it tells nevertheless
 * (newest_sb).
 */
static void size_fit(const struct engine *e, struct dev *d)
{
	const struct geo *g = &e->geo;
	uint32_t least = g->frag_bytes < DDR_BLOCK_BYTES ? g->frag_bytes : DDR_BLOCK_BYTES;
	uint64_t need = geo_end(g);

	d->cut = d->bytes < need;
	if (d->cut)
		snprintf(d->misfit, sizeof(d->misfit),
			 "it has %" PRIu64 " bytes, and the array needs %" PRIu64 " of each member",
			 d->bytes, need);
	else if (d->multiple > least)
		snprintf(d->misfit, sizeof(d->misfit),
			 "it takes only requests in multiples of %u bytes, and the array makes "
			 "some of %u",
			 d->multiple, least);
}

/* Nor is one whose superblock says that it belongs elsewhere; dev_odd, and copies_take. */
static void dev_fit(const struct engine *e, struct dev *d)
{
	d->misfit[0] = '\0';
	d->cut = d->carries_misfit = false;
	if (!d->up)
		return;
	if (e->view.have_geo && d->odd)
		snprintf(d->misfit, sizeof(d->misfit),
			 "its superblock gives the array another layout, or name, than the other "
			 "members' do");
	else if (e->view.have_geo)
		size_fit(e, d);
	d->carries_misfit = d->odd || (d->misplaced && !d->misfit[0]);
	if (!d->misfit[0] && d->misplaced)
		snprintf(d->misfit, sizeof(d->misfit),
			 "its superblock was written at another byte of it: its partition, or "
			 "what its exporter offers, begins elsewhere than before; set that right");
}

static bool carries_whole(const struct dev *d, const uint8_t uuid[DDR_UUID_BYTES])
{
	return d->up && d->sb_ok && !d->misfit[0] &&
	       !memcmp(d->sb.member_uuid, uuid, DDR_UUID_BYTES);
}

static bool is_none(const uint8_t uuid[DDR_UUID_BYTES])
{
	static const uint8_t none[DDR_UUID_BYTES];

	return !memcmp(uuid, none, sizeof(none));
}

static bool names(const struct map *map, const uint8_t uuid[DDR_UUID_BYTES])
{
	for (uint8_t m = 0; m < map->n; m++)
		if (!memcmp(uuid, map->member[m].uuid, DDR_UUID_BYTES))
			return true;
	return false;
}

/* A member of the map that no other device is. */
static bool only_here(const struct engine *e, const struct dev *d, const struct map *map,
		      const uint8_t uuid[DDR_UUID_BYTES])
{
	if (is_none(uuid) || !names(map, uuid))
		return false;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (&e->c->dev[i] != d && carries_whole(&e->c->dev[i], uuid))
			return false;
	return true;
}

/*
 * It is another member's device in this daemon's life, and carries this one's superblock now: its
 * exporter leads elsewhere, or returns what it likes. It gets no member's place for that, unless
 * what it was is found elsewhere at the same time, as after addresses were exchanged.
 */
static bool was_another(const struct engine *e, const struct dev *d, const struct map *map,
			const uint8_t uuid[DDR_UUID_BYTES])
{
	if (is_none(d->bound_uuid) || !memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) ||
	    !memcmp(d->moved_uuid, uuid, DDR_UUID_BYTES))
		return false;
	return only_here(e, d, map, d->bound_uuid) || only_here(e, d, map, d->moved_uuid);
}

/* It has been this member in this daemon's life, and no other. */
static bool was_it(const struct dev *d, const uint8_t uuid[DDR_UUID_BYTES])
{
	return !memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) && is_none(d->moved_uuid);
}

/* It carries the superblock of the member that the other one is, or was when that broke off; and it
 * has been none itself. */
static bool stray(const struct dev *d, const struct dev *other)
{
	const uint8_t *uuid = d->sb.member_uuid;

	return is_none(d->bound_uuid) && !memcmp(other->sb.member_uuid, uuid, DDR_UUID_BYTES) &&
	       (!memcmp(other->bound_uuid, uuid, DDR_UUID_BYTES) ||
		!memcmp(other->moved_uuid, uuid, DDR_UUID_BYTES));
}

static bool is_whole(const struct engine *e, const struct dev *d,
		     const uint8_t uuid[DDR_UUID_BYTES])
{
	return carries_whole(d, uuid) && !was_another(e, d, &e->map, uuid);
}

/*
 * It ends before the member that it carries. If it is extended again, what lay there reads as
 * zeroes: as after a failed flush, only a rebuild of the whole brings that back. Unless another
 * device is that member, as a whole: then this one is a copy, or its exporter lies. But not one
 * that has been the member itself, and carries the other's superblock: that may be a way to it, and
 * know of an older size.
 */
static void cut_note(struct engine *e, struct dev *d)
{
	if (!d->sb_ok)
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *o = &e->c->dev[i];

		if (o != d && d->cut && is_whole(e, o, d->sb.member_uuid) &&
		    (!was_it(d, d->sb.member_uuid) ||
		     epoch_cmp(&o->sb.map.epoch, &d->sb.map.epoch) > 0))
			return;
		if (o != d && o->was_cut && !was_it(o, o->cut_uuid) && is_whole(e, d, o->cut_uuid))
			o->was_cut = false;
	}
	if (!d->cut)
		return;
	d->was_cut = true;
	memcpy(d->cut_uuid, d->sb.member_uuid, DDR_UUID_BYTES);
}

static bool same_array(const struct superblock *a, const struct superblock *b)
{
	return geo_same(&a->geo, &b->geo) && !memcmp(a->name, b->name, DDR_NAME_BYTES);
}

/* What does not change in an array's life is as more than m members say (geo_adopt). Of one that
 * says otherwise nothing counts. */
static void dev_odd(const struct engine *e, struct dev *d)
{
	d->odd = e->view.have_geo && d->sb_ok && !same_array(&d->sb, &e->c->base);
	if (d->odd)
		d->sb_ok = d->fresh = false;
}

/* The geometry is known now. */
void devs_fit(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		dev_odd(e, &e->c->dev[i]);
		dev_fit(e, &e->c->dev[i]);
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		cut_note(e, &e->c->dev[i]);
}

/* A superblock that another member's confirms; NULL: none does yet. There is no geometry with a
 * larger m than 1 (geo_init). */
const struct superblock *sb_confirmed(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		for (uint32_t j = 0; j < i && e->c->dev[i].sb_ok; j++)
			if (e->c->dev[j].sb_ok && same_array(&e->c->dev[i].sb, &e->c->dev[j].sb) &&
			    memcmp(e->c->dev[i].sb.member_uuid, e->c->dev[j].sb.member_uuid,
				   DDR_UUID_BYTES) != 0)
				return &e->c->dev[i].sb;
	return NULL;
}

/* Its device ended before the member does, and may do so still. */
bool dev_was_cut(const struct dev *d, const struct map_member *mm)
{
	return d->was_cut && !memcmp(d->cut_uuid, mm->uuid, DDR_UUID_BYTES);
}

/* It may become the member, if it is found whole one day; then it lacks its end. */
static bool is_stray(const struct engine *e, const struct dev *d)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (&e->c->dev[i] != d && stray(d, &e->c->dev[i]))
			return true;
	return false;
}

bool member_cut(const struct engine *e, const struct map_member *mm)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (dev_was_cut(&e->c->dev[i], mm) && !is_stray(e, &e->c->dev[i]) &&
		    !was_another(e, &e->c->dev[i], &e->map, mm->uuid))
			return true;
	return false;
}

const char *engine_dev_misfit(const struct engine *e, uint32_t dev)
{
	return e->c->dev[dev].misfit[0] ? e->c->dev[dev].misfit : NULL;
}

bool engine_dev_unfit(const struct engine *e, uint32_t dev)
{
	return e->c->dev[dev].misfit[0] || e->c->dev[dev].no_sb;
}

/* It was in the member's place here, and lacks what that carries. */
static bool dev_is_copy(const struct engine *e, const struct dev *d, uint8_t m)
{
	return d->sb.map.epoch.num < e->c->lacked[m];
}

/* Somebody else has used it, and it has a history of its own: nothing of it is ours, and nothing
 * of ours overwrites it before a person says so, by `add`. */
static bool dev_differs(const struct engine *e, const struct dev *d)
{
	return lineage_differs(&e->c->past, &d->sb);
}

/*
 * R1, R15: what is connected as a member that the map writes to may be an older copy of it: one
 * whose epoch is from before what had been committed when it was read, which all such members
 * carry.
 */
static bool dev_older(const struct dev *d)
{
	return d->sb.map.epoch.num < d->read_all;
}

/* A device that has only been this member, since before the other one was found to be. */
static bool own_is_here(const struct engine *e, const uint8_t uuid[DDR_UUID_BYTES],
			const struct dev *other)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (carries_whole(&e->c->dev[i], uuid) && was_it(&e->c->dev[i], uuid) &&
		    e->c->dev[i].bound_no < other->moved_no)
			return true;
	return false;
}

/*
 * Of several devices with one member's UUID: two ways to it, or an exporter returns another's
 * superblock, which it knows from its own, or an older copy of the member is somewhere. Last comes
 * one that has been another member, if one is there that has only been this; then one that is known
 * for an older copy. Of the others the one that is in use stays. Else it is one that was the member
 * before in this daemon's life, as after an `add`. Before this node serves there is a better one:
 * the runtime opens member m's URI as device m, and keeps URIs in the order in which members were
 * found.
 */
static uint32_t dev_rank(const struct engine *e, uint32_t i, const struct map *map, uint8_t m,
			 bool was)
{
	const struct dev *d = &e->c->dev[i];
	bool serves = e->state == ENGINE_ACTIVE;
	bool before = !memcmp(d->bound_uuid, map->member[m].uuid, DDR_UUID_BYTES);
	bool moved = !before && !memcmp(d->moved_uuid, map->member[m].uuid, DDR_UUID_BYTES);
	bool used = was && serves && map_write_mask(&e->map) >> m & 1 && !e->c->bad[m];
	bool older = dev_older(d) || (d->back.older && !used); /* it has got since what it lacked */

	return 16u * !(moved && own_is_here(e, map->member[m].uuid, d)) + 8u * !older + 4u * used +
	       (serves ? 2u * before + (i == m) : 2u * (i == m) + before);
}

static uint32_t dev_to_bind(const struct engine *e, const struct map *map, uint8_t m,
			    const uint8_t was[DDR_MAX_DEVS])
{
	uint32_t best = NO_DEV, rank = 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct dev *d = &e->c->dev[i];
		uint32_t r = dev_rank(e, i, map, m, was[i] == m);

		if (!d->up || !d->sb_ok || d->misfit[0] ||
		    memcmp(d->sb.member_uuid, map->member[m].uuid, DDR_UUID_BYTES) ||
		    was_another(e, d, map, map->member[m].uuid))
			continue;
		/* What it was sent is waited for first, like a member's (ack_ready). */
		if ((dev_is_copy(e, d, m) || dev_differs(e, d)) && !(was[i] == m && dev_ios(e, i)))
			continue;
		if (best != NO_DEV && r <= rank)
			continue;
		best = i;
		rank = r;
	}
	return best;
}

/* One that is another member by now (was_another) may be both from then on, as long as the map has
 * both. */
static void dev_bound(struct engine *e, const struct map *map, struct dev *d,
		      const uint8_t uuid[DDR_UUID_BYTES])
{
	bool another = !is_none(d->bound_uuid) && names(map, d->bound_uuid) &&
		       memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) != 0;
	uint8_t *as = another ? d->moved_uuid : d->bound_uuid;

	if (!memcmp(as, uuid, DDR_UUID_BYTES))
		return;
	memcpy(as, uuid, DDR_UUID_BYTES);
	*(another ? &d->moved_no : &d->bound_no) = ++e->c->bindings;
}

void devs_bind(struct engine *e)
{
	const struct map *map = e->view.proposing ? &e->view.prop : &e->map;
	uint8_t was[DDR_MAX_DEVS];

	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		e->view.dev_of[m] = NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		was[i] = e->c->dev[i].member;
		e->c->dev[i].member = NO_MEMBER;
	}
	for (uint8_t m = 0; m < map->n; m++) {
		uint32_t i = dev_to_bind(e, map, m, was);

		if (i == NO_DEV)
			continue;
		e->c->dev[i].member = m;
		e->view.dev_of[m] = i;
		dev_bound(e, map, &e->c->dev[i], map->member[m].uuid);
		if (was[i] != m)
			back_up(&e->c->dev[i]); /* it was not, and nobody has compared it */
		if (!e->c->dev[i].reading)
			back_bound(e, &e->c->dev[i], m);
		if (!(dev_failed_flush(&e->c->dev[i], &map->member[m]) ||
		      dev_was_cut(&e->c->dev[i], &map->member[m])) ||
		    !(map_write_mask(map) >> m & 1) || e->c->bad[m] == MEMBER_FAULTY)
			continue;
		e->c->bad[m] = MEMBER_FAULTY;
		e->c->bad_us[m] = 0; /* told at once: before a proposal is acknowledged */
	}
}

/* A member is nowhere here: what was read before this map was may have been made that member since,
 * while this node was away. */
void devs_look_again(struct engine *e)
{
	bool lacks = false;

	for (uint8_t m = 0; m < e->map.n; m++)
		lacks |= map_write_mask(&e->map) >> m & 1 && e->view.dev_of[m] == NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS && lacks; i++)
		if (e->c->dev[i].up && !e->c->dev[i].reading && e->c->dev[i].member == NO_MEMBER &&
		    e->c->dev[i].read_num != e->map.epoch.num) {
			e->c->look_us = e->now;
			sb_read(e, i);
		}
}

bool devs_looking(const struct engine *e)
{
	if (!e->c->look_us || e->now - e->c->look_us >= e->cfg.tun.evict_ms * 1000ull)
		return false;
	for (uint32_t i = 0; i < e->c->devs; i++)
		if (e->c->dev[i].reading && e->c->dev[i].member == NO_MEMBER)
			return true;
	return false;
}

/* What else is connected under its UUID, and not used, was read when it was connected. */
static void ways_reread(struct engine *e, const struct dev *d)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (&e->c->dev[i] != d && e->c->dev[i].member == NO_MEMBER && e->c->dev[i].up &&
		    e->c->dev[i].sb_ok &&
		    !memcmp(e->c->dev[i].sb.member_uuid, d->sb.member_uuid, DDR_UUID_BYTES))
			dev_reread(e, i);
}

/* It lacks an epoch that member m carries. */
static void dev_lacks(struct engine *e, const struct dev *d, uint8_t m, uint64_t num)
{
	e->c->lacked[m] = num;
	ways_reread(e, d);
}

/* The superblock of what is connected as a member that the map writes to has been read. */
static void dev_judge(struct engine *e, struct dev *d, uint8_t m)
{
	if (!dev_older(d)) {
		/* R17: an exporter that never went away has lost nothing. It is what it was when
		 * the member was lost first: the last connection may have been to another one. */
		if (d->member == m && d->instance && d->instance == e->c->bad_instance[m] &&
		    e->c->bad[m] == MEMBER_SUSPECT && write_targets(e) >> m & 1)
			e->c->bad[m] = 0;
		return;
	}
	if (d->entered)
		dev_lacks(e, d, m, d->read_all);
	if (!e->c->bad[m])
		member_bad(e, m, MEMBER_SUSPECT);
}

/*
 * R1, R15: by this commit the member has entered the map, and carries the commit's superblock: it
 * took that by the leader's connection. If what is connected here lacks it, that is another device
 * under the same UUID, an older copy, and this node must not go on with it: it is given up here,
 * and is not the member any more, until a superblock says otherwise, or the member is not expected
 * back by itself (commit_effects). Nothing is read from the member before it is promoted, which
 * waits for this (quiet_advance); what a node writes to a wrong one until then is brought up when
 * the member enters again, like all that it has missed.
 */
void member_entered(struct engine *e, uint8_t i)
{
	struct dev *d = e->view.dev_of[i] == NO_DEV ? NULL : &e->c->dev[e->view.dev_of[i]];

	for (uint32_t j = 0; j < DDR_MAX_DEVS; j++)
		e->c->dev[j].stale_read |= e->c->dev[j].reading; /* may be it, as it was before */
	if (!d || !d->up)
		return; /* whatever connects is judged */
	d->entered = true;
	if (!d->reading)
		sb_read(e, e->view.dev_of[i]);
}

/* What a member that has entered carries here is not known yet. */
bool devs_entering(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->devs; i++)
		if (e->c->dev[i].up && e->c->dev[i].entered)
			return true;
	return false;
}

/*
 * Both copies can be told apart only by reading them: which is the newest intact one, so that the
 * next write goes to the other. A copy that answers with an error is one that is not intact: the
 * next write mends it. So one bad sector, or a torn write, takes nothing from a member.
 *
 * A read that was under way at the same time as a write of ours may have seen the copy before or
 * after it. Then they are read once more.
 */
static bool copy_usable(const struct engine *e, struct dev *d, uint32_t c, struct superblock *sb)
{
	bool ours = !d->copy[c].err && !sb_decode(sb, d->buf[c], NULL) &&
		    !memcmp(sb->array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);

	d->misplaced |= ours && sb_misplaced(sb, c);
	return ours && !sb_misplaced(sb, c);
}

static bool copies_take(struct engine *e, struct dev *d)
{
	struct superblock sb;

	d->newest_copy = NO_COPY;
	d->newest_seq = 0;
	d->misplaced = false;
	for (uint8_t c = 0; c < SB_COPIES; c++) {
		if (!copy_usable(e, d, c, &sb) ||
		    (d->newest_copy != NO_COPY && !sb_newer(&sb, &d->sb)))
			continue;
		d->sb = sb;
		d->newest_copy = c;
		d->newest_seq = sb.seq;
	}
	d->copies_known = !d->copies_raced;
	d->misplaced &= d->newest_copy == NO_COPY;
	d->no_sb = d->newest_copy == NO_COPY && !d->unreadable;
	return d->newest_copy != NO_COPY;
}

void copies_forget(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		e->c->dev[i].copies_known = false;
}

/* If not, they are read, unless that has just failed. */
bool copies_known(struct engine *e, uint32_t i)
{
	struct dev *d = &e->c->dev[i];

	if (!d->copies_known && !d->reading && !d->retry_us)
		sb_read(e, i);
	return d->copies_known && !d->reading;
}

uint8_t copy_to_write(const struct dev *d)
{
	return d->newest_copy == 0 ? 1 : 0;
}

void copy_write_begins(struct dev *d)
{
	d->sb_writing = true;
	d->copies_raced |= d->reading;
}

/* After a write that failed, that copy may be anything: the other one is still the newest that is
 * known to be intact, and the next write goes to the same copy again. */
void copy_written(struct dev *d, uint8_t copy, uint64_t seq, bool ok)
{
	d->sb_writing = false;
	if (!ok || !d->copies_known)
		return;
	d->newest_copy = copy;
	d->newest_seq = seq;
}

/* The read says nothing of what the device carries. */
static void sb_read_failed(struct engine *e, struct dev *d)
{
	if (!d->stale_read && d->entered && d->member != NO_MEMBER &&
	    map_write_mask(&e->map) >> d->member & 1) {
		dev_lacks(e, d, d->member, d->asked_all); /* for all that is known */
		if (!e->c->bad[d->member])
			member_bad(e, d->member, MEMBER_SUSPECT);
	}
	d->entered &= d->stale_read;
	d->retry_us = d->stale_read ? e->now : e->now + SB_RETRY_US;
	if (!d->stale_read)
		d->failed_us = e->now;
	d->stale_read = false;
}

/* The newest map that this node has seen; NULL: none. `up`: only on what is connected now. */
static const struct map *map_seen(const struct engine *e, bool up)
{
	const struct map *m = NULL;

	if (e->view.have_map || e->view.proposing)
		return map_next(e);
	for (uint32_t i = 0; i < e->c->devs; i++) {
		const struct dev *d = &e->c->dev[i];

		if (d->sb_ok && (d->up || !up) &&
		    (!m || epoch_cmp(&d->sb.map.epoch, &m->epoch) > 0))
			m = &d->sb.map;
	}
	return m;
}

/*
 * More than m members at nearly the same time: that was this node's own way to them (R7). And if it
 * was not, nothing can stand in for them. Two ways to one member are one; what is no member any
 * more says nothing.
 */
static bool lost_with_others(const struct engine *e, const struct dev *d)
{
	uint64_t window = e->cfg.tun.evict_ms * 1000ull;
	const struct map *map = map_seen(e, false);
	uint32_t n = 0, members = 0;

	if (!e->view.have_geo)
		return false;
	for (uint32_t i = 0; i < e->c->devs; i++) {
		const struct dev *o = &e->c->dev[i];

		if (!o->lost || o->lost_own || o->lost_us > d->lost_us + window ||
		    d->lost_us > o->lost_us + window)
			continue;
		if (!map || is_none(o->lost_uuid)) {
			n++; /* may be one */
			continue;
		}
		for (uint8_t m = 0; m < map->n; m++)
			if (map_write_mask(map) >> m & 1 &&
			    !memcmp(o->lost_uuid, map->member[m].uuid, DDR_UUID_BYTES))
				members |= 1u << m;
	}
	return n + (uint32_t)__builtin_popcount(members) > e->geo.p.m;
}

static void losses_judge(struct engine *e)
{
	bool own[DDR_MAX_DEVS];

	for (uint32_t i = 0; i < e->c->devs; i++)
		own[i] = e->c->dev[i].lost && lost_with_others(e, &e->c->dev[i]);
	for (uint32_t i = 0; i < e->c->devs; i++)
		e->c->dev[i].lost_own |= own[i];
}

/*
 * R17: a node that joins has nothing to lose there, but it may be the only one that had a
 * connection: who wrote has died, and the others were started with this one. Nor does a node that
 * has a map already know of which member that was, if it broke before its superblock was read. Not
 * of a connection from before this incarnation: that breaks by its fence, unless that only waits.
 *
 * One that was put down to this node's own network stands for nothing that comes later. Nor does
 * one that this node ended itself, of a device that is not used.
 */
static void loss_note(struct engine *e, struct dev *d)
{
	bool removed = e->state == ENGINE_REMOVED;

	if (d->asked_anew || (!removed && e->view.have_map && d->sb_ok) ||
	    !(e->cfg.fence_waits || (removed ? d->connected_next : d->connected_here)))
		return;
	if (d->lost && !d->lost_own)
		losses_judge(e);
	if (d->lost && !d->lost_own)
		return;
	d->lost = true;
	d->lost_own = false;
	d->lost_us = e->now;
	d->lost_instance = d->instance;
	memset(d->lost_uuid, 0, DDR_UUID_BYTES);
	if (d->sb_ok) /* of this connection */
		memcpy(d->lost_uuid, d->sb.member_uuid, DDR_UUID_BYTES);
}

static void loss_tell(struct engine *e, struct dev *d)
{
	bool same = d->up && d->instance && d->instance == d->lost_instance;
	const uint8_t *uuid = d->lost_uuid;

	/* It broke before it was read, or had been added anew since. */
	if (is_none(uuid) || !names(&e->map, uuid)) {
		if (!d->sb_ok)
			return;
		uuid = d->sb.member_uuid;
	}
	d->lost = false;
	for (uint8_t m = 0; !same && m < e->map.n; m++) {
		if (!(map_write_mask(&e->map) >> m & 1) ||
		    memcmp(uuid, e->map.member[m].uuid, DDR_UUID_BYTES))
			continue;
		member_bad(e, m, MEMBER_SUSPECT);
		e->c->bad_instance[m] = d->lost_instance;
		e->c->bad_since_us[m] = d->lost_us;
	}
}

/* So many members broke at nearly the same time that it was this node's own way to them. */
static bool bad_with_others(const struct engine *e, uint8_t m, uint32_t suspects)
{
	uint64_t window = e->cfg.tun.evict_ms * 1000ull, t = e->c->bad_since_us[m];
	uint32_t n = 0;

	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		n += suspects >> i & 1 && e->c->bad_since_us[i] <= t + window &&
		     t <= e->c->bad_since_us[i] + window;
	return n > e->geo.p.m;
}

/* A life that has lost a member ends before the map says so. It may be the only one that knows, so
 * the next one tells it. */
void devs_lost_keep(struct engine *e)
{
	/* A proposal that drops it may come to nothing. */
	const struct map *map = e->view.have_map ? &e->map : map_next(e);
	uint32_t suspects = 0;

	for (uint8_t m = 0; m < map->n && e->view.have_geo; m++)
		if (e->c->bad[m] == MEMBER_SUSPECT && map_write_mask(map) >> m & 1)
			suspects |= 1u << m;
	for (uint8_t m = 0; m < map->n; m++) {
		struct lost *l = &e->c->kept[e->c->kept_count];

		if (!(suspects >> m & 1) || bad_with_others(e, m, suspects) ||
		    e->c->kept_count == DDR_MAX_MEMBERS)
			continue;
		memcpy(l->uuid, map->member[m].uuid, DDR_UUID_BYTES);
		l->instance = e->c->bad_instance[m];
		l->num = map->epoch.num;
		l->since_us = e->c->bad_since_us[m];
		e->c->kept_count++;
	}
}

/*
 * What the life before had lost. Not of one that a map has dropped since, or that has another name
 * now: what it lacks it has got again. And not of one whose exporter has not been away.
 */
static void kept_tell(struct engine *e)
{
	for (uint32_t k = 0; k < e->c->kept_count; k++) {
		const struct lost *l = &e->c->kept[k];

		for (uint8_t m = 0; m < e->map.n; m++) {
			uint32_t d = e->view.dev_of[m];
			bool had = e->c->bad[m];

			if (!(map_write_mask(&e->map) >> m & 1) || e->c->dropped[m] > l->num ||
			    memcmp(l->uuid, e->map.member[m].uuid, DDR_UUID_BYTES) ||
			    (d != NO_DEV && e->c->dev[d].up && l->instance &&
			     e->c->dev[d].instance == l->instance))
				continue;
			member_bad(e, m, MEMBER_SUSPECT);
			e->c->bad_instance[m] = l->instance;
			e->c->bad_since_us[m] = l->since_us;
			if (!had)
				e->c->lost_earlier |= 1u << m;
		}
	}
	e->c->kept_count = 0;
}

/* There is a map, which names the members. */
void devs_lost_tell(struct engine *e)
{
	losses_judge(e);
	for (uint32_t i = 0; i < e->c->devs; i++) {
		e->c->dev[i].lost &= !e->c->dev[i].lost_own;
		if (e->c->dev[i].lost)
			loss_tell(e, &e->c->dev[i]);
	}
	kept_tell(e);
	for (uint8_t m = 0; m < e->map.n; m++)
		if (map_write_mask(&e->map) >> m & 1 && member_cut(e, &e->map.member[m]))
			member_bad(e, m, MEMBER_FAULTY);
}

/* What an earlier read found there is no reason any more. */
static void sb_unknown(const struct engine *e, struct dev *d)
{
	d->odd = d->misplaced = d->no_sb = false;
	dev_fit(e, d);
}

static void sb_read_done(struct engine *e, struct dev *d)
{
	bool failed = !d->up || e->state == ENGINE_REMOVED, any;

	d->reading = false;
	d->unreadable = 0;
	for (uint8_t c = 0; c < SB_COPIES; c++) {
		int err = d->copy[c].err;

		failed |= is_connection_error(err) || err == -ECANCELED;
		if (err)
			d->unreadable |= (uint8_t)(1u << c);
	}
	if (failed || d->stale_read || d->unreadable == (1u << SB_COPIES) - 1) {
		if (failed || d->stale_read)
			d->unreadable = 0;
		else
			sb_unknown(e, d);
		sb_read_failed(e, d);
		return;
	}
	d->read_num = d->asked_num;
	d->read_all = d->asked_all;
	any = copies_take(e, d);
	d->sb_ok = d->fresh = any;
	dev_odd(e, d);
	dev_fit(e, d);
	if (any)
		geo_adopt(e);
	else if (d->unreadable) /* maybe only for now */
		d->retry_us = e->now + SB_RETRY_US;
	cut_note(e, d);
	devs_bind(e);
	devs_look_again(e);
	/* Also one that this node has not lost, since it had never reached it. */
	for (uint8_t m = 0; m < e->map.n; m++)
		if (map_write_mask(&e->map) >> m & 1 && (d->member == m || d->entered) &&
		    !memcmp(d->sb.member_uuid, e->map.member[m].uuid, DDR_UUID_BYTES)) {
			if (member_cut(e, &e->map.member[m]))
				member_bad(e, m, MEMBER_FAULTY);
			else
				dev_judge(e, d, m);
		}
	d->entered = false;
	if (d->lost && e->view.have_map) {
		losses_judge(e);
		d->lost &= !d->lost_own;
		if (d->lost)
			loss_tell(e, d);
	}
}

static void sb_copy_read(struct engine *e, struct batch *b)
{
	struct sb_copy *c = list_entry(b, struct sb_copy, batch);

	c->err = b->failed ? b->err : 0;
	if (c->err) /* what an earlier read left there is not what it carries */
		memset(c->dev->buf[c - c->dev->copy], 0, DDR_BLOCK_BYTES);
	if (!--c->dev->to_read)
		sb_read_done(e, c->dev);
}

void sb_read(struct engine *e, uint32_t i)
{
	struct dev *d = &e->c->dev[i];

	if (d->member != NO_MEMBER &&
	    !((map_write_mask(&e->map) | write_targets(e)) >> d->member & 1))
		back_up(d); /* another medium may be there, though the connection is the same */
	d->reading = true;
	d->asked_num = e->map.epoch.num;
	d->asked_all = e->c->committed.num;
	d->fresh = d->stale_read = false;
	d->retry_us = 0;
	d->copies_known = false;
	d->copies_raced = d->sb_writing;
	d->to_read = SB_COPIES;
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		struct sb_copy *k = &d->copy[c];

		k->dev = d;
		k->iov = (struct iovec){d->buf[c], DDR_BLOCK_BYTES};
		batch_init(&k->batch, sb_copy_read);
		batch_open(&k->batch);
		dio_start_raw(e, &k->batch, i, DEV_READ, KIND_SB, geo_sb_offset(c), &k->iov);
		batch_close(e, &k->batch);
	}
}

/* This life goes by its first map that is committed, and knew of no such epoch when it read what
 * they carry. Until it has done so again they are nobody's. */
void devs_judge(struct engine *e)
{
	e->c->judged = true;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &e->c->dev[i];

		if (d->up && (d->reading || d->sb.map.epoch.num < e->c->committed.num))
			dev_reread(e, i);
	}
	devs_bind(e);
}

/* The fresh leader reads all superblocks anew: what was read at connecting may be old. */
void devs_reread(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->dev[i].up && e->c->dev[i].reading)
			e->c->dev[i].stale_read = true; /* that read may be from before */
		else if (e->c->dev[i].up)
			sb_read(e, i);
}

void dev_reread(struct engine *e, uint32_t dev)
{
	e->c->dev[dev].sb_ok = false; /* it has another one now */
	if (e->c->dev[dev].up && e->c->dev[dev].reading)
		e->c->dev[dev].stale_read = true;
	else if (e->c->dev[dev].up)
		sb_read(e, dev);
}

/* The superblock of the device that is the member was read by the connection that is there now; by
 * an earlier one it may have been another device's. */
bool member_sb_read(const struct engine *e, uint8_t i)
{
	const struct dev *d = e->view.dev_of[i] == NO_DEV ? NULL : &e->c->dev[e->view.dev_of[i]];

	return d && d->up && d->sb_ok && !d->reading && !d->back.due;
}

/* What is to be known of it before it counts will be before long. */
bool dev_being_read(const struct dev *d)
{
	return d->reading || (d->back.due && d->sb_ok && !d->retry_us);
}

/* Connected; and what this node had lost is what it was. */
bool member_back(const struct engine *e, uint8_t i)
{
	const struct dev *d = e->view.dev_of[i] == NO_DEV ? NULL : &e->c->dev[e->view.dev_of[i]];

	if (!d || !d->up || d->back.due)
		return false;
	if (!(map_write_mask(&e->map) >> i & 1) || e->c->bad[i] != MEMBER_SUSPECT)
		return true;
	return member_sb_read(e, i) && !dev_older(d) && !(e->c->older >> i & 1);
}

/* One that the map writes to is connected, and is an older copy of itself. */
bool members_older(const struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_write_mask(&e->map) >> i & 1 && member_sb_read(e, i) && !member_back(e, i))
			return true;
	return false;
}

/* R15: member i, which is not in the map, is connected here, and what is known of its superblock is
 * from after it left. Else that is read again. */
bool member_sb_current(struct engine *e, uint8_t i)
{
	const struct map_member *mm = &e->map.member[i];
	struct dev *d = e->view.dev_of[i] == NO_DEV ? NULL : &e->c->dev[e->view.dev_of[i]];

	if (!d || !d->up || d->back.due)
		return false;
	if (member_sb_read(e, i) && (d->read_num >= mm->left || d->sb.map.epoch.num >= mm->reached))
		return true;
	if (!d->reading && !d->retry_us)
		sb_read(e, e->view.dev_of[i]);
	return false;
}

/* R15: the device is an older copy of what the member was when it left. Known for certain only as
 * long as member_sb_read. */
bool member_older(const struct engine *e, uint8_t i, uint64_t reached)
{
	return member_sb_read(e, i) && e->c->dev[e->view.dev_of[i]].sb.map.epoch.num < reached;
}

/*
 * R15: the device carries an epoch from after the member left, and that is not known to be one of
 * this line. Either it had entered once more and that is long ago, or somebody else has used it. No
 * common epoch has to be left that would tell (dev_differs): only so many are remembered.
 */
bool member_strange(const struct engine *e, uint8_t i, uint64_t left)
{
	const struct superblock *sb =
	    member_sb_read(e, i) ? &e->c->dev[e->view.dev_of[i]].sb : NULL;

	return sb && sb->map.epoch.num >= left && !lineage_shares(&e->c->past, sb, left);
}

void dev_up(struct engine *e, const struct event *ev)
{
	struct dev *d = &e->c->dev[ev->dev.dev];

	assert(ev->dev.dev < DDR_MAX_DEVS && !d->up);
	if (ev->dev.dev >= e->c->devs)
		e->c->devs = ev->dev.dev + 1;
	d->up = true;
	d->ups++;
	d->entered = false;
	d->zombie = false;
	use_dev_up(e, ev->dev.dev);
	back_up(d);
	d->connected_here = true;
	d->connected_next = e->state == ENGINE_REMOVED;
	vouch_anew(e, d);
	e->c->outcasts = 0;
	d->bytes = ev->dev.bytes;
	d->multiple = ev->dev.multiple;
	d->up_us = e->now;
	d->instance = ev->dev.instance;
	if (ev->dev.uri && strcmp(d->uri, ev->dev.uri) != 0) {
		memset(d->bound_uuid, 0, DDR_UUID_BYTES);
		memset(d->moved_uuid, 0, DDR_UUID_BYTES);
		d->odd = d->misplaced = d->no_sb = false;
	}
	if (ev->dev.uri)
		strncpy(d->uri, ev->dev.uri, sizeof(d->uri) - 1);
	d->asked_anew = false;
	d->sb_ok = d->fresh = d->copies_known = false;
	d->unreadable = 0;
	dev_fit(e, d);
	if (d->misfit[0])
		devs_bind(e); /* it may be in a member's place, from its last connection */
	if (!d->reading)
		sb_read(e, ev->dev.dev);
	else
		d->stale_read = true; /* the old connection's read is still ending */
}

void dev_down(struct engine *e, const struct event *ev)
{
	struct dev *d = &e->c->dev[ev->dev.dev];
	uint8_t m = 0;

	d->up = false;
	ways_reread(e, d);
	/* Also one that is not bound just now, because its superblock is being read again. */
	while (m < e->map.n && memcmp(d->sb.member_uuid, e->map.member[m].uuid, DDR_UUID_BYTES))
		m++;
	if (d->member != NO_MEMBER)
		m = d->member;
	loss_note(e, d);
	if (m >= DDR_MAX_MEMBERS || (m >= e->map.n && d->member == NO_MEMBER) ||
	    (e->view.dev_of[m] != NO_DEV && e->view.dev_of[m] != ev->dev.dev))
		return;
	if ((write_musts(e) | write_targets(e)) >> m & 1) {
		member_bad(e, m, MEMBER_SUSPECT);
		io_lost(e, m);
	}
}

static bool member_connected(const struct engine *e, const struct map_member *mm)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (carries_whole(&e->c->dev[i], mm->uuid) &&
		    !was_another(e, &e->c->dev[i], &e->map, mm->uuid))
			return true;
	return false;
}

/* How many members are connected that the newest map which this node knows has in sync. */
uint32_t members_reached(const struct engine *e)
{
	const struct map *m = map_seen(e, true);
	uint32_t n = 0;

	for (uint8_t i = 0; m && i < m->n; i++)
		n += m->member[i].state == MEMBER_IN_SYNC && member_connected(e, &m->member[i]);
	return n;
}

/* Carries a member that `map` does not have. */
static bool was_member(const struct engine *e, const struct dev *d, const struct map *map)
{
	if (!d->up || !d->sb_ok || memcmp(d->sb.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES))
		return false;
	for (uint8_t i = 0; i < map->n; i++)
		if (!memcmp(d->sb.member_uuid, map->member[i].uuid, DDR_UUID_BYTES))
			return false;
	return true;
}

/* How many devices are connected whose superblocks are this array's. */
uint32_t members_read(const struct engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->c->devs; i++)
		n += e->c->dev[i].up && e->c->dev[i].sb_ok;
	return n;
}

static bool copies_of_one(const struct engine *e)
{
	const struct dev *first = NULL;

	for (uint32_t i = 0; i < e->c->devs; i++) {
		const struct dev *d = &e->c->dev[i];

		if (!d->up || !d->sb_ok)
			continue;
		if (!first)
			first = d;
		if (memcmp(d->sb.member_uuid, first->sb.member_uuid, DDR_UUID_BYTES) != 0)
			return false;
	}
	return true;
}

void fewer_insync(const struct engine *e, const struct map *map, char *text, size_t size)
{
	const struct dev *was = NULL;

	if (!e->view.have_geo && members_read(e) > 1 && copies_of_one(e)) {
		snprintf(text, size,
			 "the reachable devices all carry the superblock of one member, so they "
			 "are copies of that; connect the others");
		return;
	}
	if (!e->view.have_geo && members_read(e) > 1) { /* and none confirms another (geo_adopt) */
		snprintf(text, size,
			 "what the reachable members' superblocks say of the array's layout or "
			 "name differs, and no two agree; connect the others");
		return;
	}
	for (uint32_t i = 0; map && !was && i < DDR_MAX_DEVS; i++)
		if (was_member(e, &e->c->dev[i], map))
			was = &e->c->dev[i];
	snprintf(text, size,
		 "fewer members in sync are reachable than the data needs; connect the others");
	if (was)
		snprintf(
		    text, size,
		    "fewer members in sync are reachable than the data needs, and %.160s was a "
		    "member once and is none now: connect the others; if this node's "
		    "description of the array is an old one (NAME.array in its state "
		    "directory, restored from a backup), stop ddraidd and set its member = "
		    "lines right",
		    was->uri);
}

/*
 * R7: a node that joins and reaches fewer members than the data needs is no use to anybody yet. It
 * takes part in rounds and gets no slot; and what it can't reach is no reason for the others
 * not to use it.
 */
bool aside(const struct engine *e)
{
	return e->state == ENGINE_JOINING && e->view.slot == NO_SLOT && !leading(e) &&
	       (!e->view.have_geo || members_reached(e) < e->geo.k);
}

/*
 * The leader's view of it. One that fences otherwise (peer_differs) is none: it may have led and
 * written a moment ago, and be the only one by which a leader learns that it is cut off from the
 * members.
 */
bool peer_aside(const struct engine *e, const struct peer *p)
{
	return p->slot == NO_SLOT && p->node != e->cfg.node && p->reach < e->geo.k;
}

/* Nobody has written a superblock there yet. */
static bool is_being_added(const struct engine *e, const struct dev *d)
{
	return (e->c->admin.used && e->c->admin.cmd == ADMIN_ADD &&
		!strcmp(e->c->admin.uri, d->uri)) ||
	       (e->c->adding.used && !strcmp(e->c->adding.uri, d->uri));
}

const char *engine_dev_stranger(const struct engine *e, uint32_t dev)
{
	const struct dev *d = &e->c->dev[dev];
	const struct map *map = e->view.proposing ? &e->view.prop : &e->map;

	if (!d->up || d->member != NO_MEMBER)
		return NULL;
	if (is_being_added(e, d))
		return NULL;
	if (d->misfit[0])
		return d->misfit;
	if (d->unreadable && !d->sb_ok) /* also while it is tried again */
		return d->unreadable == (1u << SB_COPIES) - 1
			   ? "neither copy of its superblock can be read"
			   : "one copy of its superblock can't be read, and the other is damaged";
	if (d->reading || d->retry_us)
		return NULL;
	if (!d->sb_ok)
		return "it carries no superblock of this array";
	for (uint8_t m = 0; m < map->n; m++)
		if (!memcmp(d->sb.member_uuid, map->member[m].uuid, DDR_UUID_BYTES))
			return dev_differs(e, d)
				   ? "it has another history than the array: it was used by "
				     "somebody else; add it as a new member if that does not count"
			       : dev_is_copy(e, d, m)
				   ? "it is an older copy of the member: it lacks what another "
				     "node wrote to that when it came back"
			       : e->view.dev_of[m] != NO_DEV
				   ? "it carries the superblock of a member that is reached in "
				     "another way, too"
			       : was_another(e, d, map, map->member[m].uuid)
				   ? "it was another member, and carries this one's superblock "
				     "now; set its exporter right, or, if the two were exchanged, "
				     "stop the array on this node and start it"
				   : NULL;
	return map->n ? "it was a member of this array once, and is none now" : NULL;
}

/*
 * What a device offers is known from when it was connected, and an exporter goes on with that after
 * the device was set right. A file that was put in another's place is open under its name only from
 * then on. So what can't be a member, or carries no superblock, is connected anew now and then. So
 * is an older copy that the data needs: its exporter may wait for its last connection to end.
 */
static void misfit_look(struct engine *e, uint32_t i)
{
	struct dev *d = &e->c->dev[i];
	bool older = d->member != NO_MEMBER && map_write_mask(&e->map) >> d->member & 1 &&
		     e->c->bad[d->member] == MEMBER_SUSPECT && member_sb_read(e, d->member) &&
		     !member_back(e, d->member);

	if (!d->up || !(engine_dev_unfit(e, i) || older) || d->reading || dev_ios(e, i) ||
	    is_being_added(e, d) || e->now - d->up_us < MISFIT_LOOK_US)
		return;
	d->up_us = e->now; /* once, however long it takes to go down */
	d->asked_anew = !older;
	out_add(e, OUT_DEV_CANCEL)->cancel.dev = i;
}

/*
 * How long a member that the map wants, and this node has never reached, may take. If a proposal
 * waits for that (R11: the log can't be written anew), the leader must hear of it before its
 * patience with this node ends, which began no sooner than the round.
 */
static uint64_t unreached_us(const struct engine *e)
{
	return e->cfg.tun.evict_ms *
	       (epoch_promotes(e) && !e->c->acked_proposal ? 500ull : 1000ull);
}

void devs_advance(struct engine *e)
{
	uint64_t since;

	misread_advance(e);
	back_advance(e);
	for (uint32_t i = 0; i < e->c->devs; i++) {
		struct dev *d = &e->c->dev[i];

		/* A superblock that could not be read is tried again, now and then. */
		if (d->up && !d->reading && d->retry_us && e->now >= d->retry_us)
			sb_read(e, i);
		misfit_look(e, i);
	}
	if (aside(e)) {
		e->c->aside_us = e->now;
		return;
	}
	since = e->c->round_us > e->c->aside_us ? e->c->round_us : e->c->aside_us;
	for (uint8_t m = 0; e->view.have_map && !devs_looking(e) && m < e->map.n; m++)
		if (write_musts(e) >> m & 1 && !e->c->bad[m] && e->view.dev_of[m] == NO_DEV &&
		    e->view.phase == PH_READY && e->now - since > unreached_us(e))
			member_bad(e, m, MEMBER_SUSPECT);
}

bool dev_connected(const struct engine *e, uint32_t dev)
{
	return e->c->dev[dev].up;
}

void dev_unanswered(struct engine *e, uint32_t dev)
{
	e->c->dev[dev].zombie = true;
	e->c->dev[dev].zombie_us = e->now;
}

/* Nothing lands any more of what was on its way to members that are lost (R5). */
bool devs_landed(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->dev[i].zombie &&
		    e->now - e->c->dev[i].zombie_us <= e->cfg.tun.reach_ms * 1000ull)
			return false;
	return true;
}
