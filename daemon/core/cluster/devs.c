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
void dev_fit(const struct engine *e, struct dev *d)
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

bool uuid_is_none(const uint8_t uuid[DDR_UUID_BYTES])
{
	static const uint8_t none[DDR_UUID_BYTES];

	return !memcmp(uuid, none, sizeof(none));
}

bool map_names(const struct map *map, const uint8_t uuid[DDR_UUID_BYTES])
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
	if (uuid_is_none(uuid) || !map_names(map, uuid))
		return false;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (&e->c->devs.dev[i] != d && carries_whole(&e->c->devs.dev[i], uuid))
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
	if (uuid_is_none(d->bound_uuid) || !memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) ||
	    !memcmp(d->moved_uuid, uuid, DDR_UUID_BYTES))
		return false;
	return only_here(e, d, map, d->bound_uuid) || only_here(e, d, map, d->moved_uuid);
}

/* It has been this member in this daemon's life, and no other. */
static bool was_it(const struct dev *d, const uint8_t uuid[DDR_UUID_BYTES])
{
	return !memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) && uuid_is_none(d->moved_uuid);
}

/* It carries the superblock of the member that the other one is, or was when that broke off; and it
 * has been none itself. */
static bool stray(const struct dev *d, const struct dev *other)
{
	const uint8_t *uuid = d->sb.member_uuid;

	return uuid_is_none(d->bound_uuid) &&
	       !memcmp(other->sb.member_uuid, uuid, DDR_UUID_BYTES) &&
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
void cut_note(struct engine *e, struct dev *d)
{
	if (!d->sb_ok)
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *o = &e->c->devs.dev[i];

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
void dev_odd(const struct engine *e, struct dev *d)
{
	d->odd = e->view.have_geo && d->sb_ok && !same_array(&d->sb, &e->c->epochs.base);
	if (d->odd)
		d->sb_ok = d->fresh = false;
}

/* The geometry is known now. */
void devs_fit(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		dev_odd(e, &e->c->devs.dev[i]);
		dev_fit(e, &e->c->devs.dev[i]);
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		cut_note(e, &e->c->devs.dev[i]);
}

/* A superblock that another member's confirms; NULL: none does yet. There is no geometry with a
 * larger m than 1 (geo_init). */
const struct superblock *sb_confirmed(const struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		for (uint32_t j = 0; j < i && e->c->devs.dev[i].sb_ok; j++)
			if (e->c->devs.dev[j].sb_ok &&
			    same_array(&e->c->devs.dev[i].sb, &e->c->devs.dev[j].sb) &&
			    memcmp(e->c->devs.dev[i].sb.member_uuid,
				   e->c->devs.dev[j].sb.member_uuid, DDR_UUID_BYTES) != 0)
				return &e->c->devs.dev[i].sb;
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
		if (&e->c->devs.dev[i] != d && stray(d, &e->c->devs.dev[i]))
			return true;
	return false;
}

bool member_cut(const struct engine *e, const struct map_member *mm)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (dev_was_cut(&e->c->devs.dev[i], mm) && !is_stray(e, &e->c->devs.dev[i]) &&
		    !was_another(e, &e->c->devs.dev[i], &e->map, mm->uuid))
			return true;
	return false;
}

const char *engine_dev_misfit(const struct engine *e, uint32_t dev)
{
	return e->c->devs.dev[dev].misfit[0] ? e->c->devs.dev[dev].misfit : NULL;
}

bool engine_dev_unfit(const struct engine *e, uint32_t dev)
{
	return e->c->devs.dev[dev].misfit[0] || e->c->devs.dev[dev].no_sb;
}

/* It was in the member's place here, and lacks what that carries. */
static bool dev_is_copy(const struct engine *e, const struct dev *d, uint8_t m)
{
	return d->sb.map.epoch.num < e->c->devs.lacked[m];
}

/* Somebody else has used it, and it has a history of its own: nothing of it is ours, and nothing
 * of ours overwrites it before a person says so, by `add`. */
static bool dev_differs(const struct engine *e, const struct dev *d)
{
	return lineage_differs(&e->c->assembly.past, &d->sb);
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
		if (carries_whole(&e->c->devs.dev[i], uuid) && was_it(&e->c->devs.dev[i], uuid) &&
		    e->c->devs.dev[i].bound_no < other->moved_no)
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
	const struct dev *d = &e->c->devs.dev[i];
	bool serves = e->state == ENGINE_ACTIVE;
	bool before = !memcmp(d->bound_uuid, map->member[m].uuid, DDR_UUID_BYTES);
	bool moved = !before && !memcmp(d->moved_uuid, map->member[m].uuid, DDR_UUID_BYTES);
	bool used = was && serves && map_write_mask(&e->map) >> m & 1 && !e->c->members.bad[m];
	bool older = dev_older(d) || (d->back.older && !used); /* it has got since what it lacked */

	return 16u * !(moved && own_is_here(e, map->member[m].uuid, d)) + 8u * !older + 4u * used +
	       (serves ? 2u * before + (i == m) : 2u * (i == m) + before);
}

static uint32_t dev_to_bind(const struct engine *e, const struct map *map, uint8_t m,
			    const uint8_t was[DDR_MAX_DEVS])
{
	uint32_t best = NO_DEV, rank = 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct dev *d = &e->c->devs.dev[i];
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
	bool another = !uuid_is_none(d->bound_uuid) && map_names(map, d->bound_uuid) &&
		       memcmp(d->bound_uuid, uuid, DDR_UUID_BYTES) != 0;
	uint8_t *as = another ? d->moved_uuid : d->bound_uuid;

	if (!memcmp(as, uuid, DDR_UUID_BYTES))
		return;
	memcpy(as, uuid, DDR_UUID_BYTES);
	*(another ? &d->moved_no : &d->bound_no) = ++e->c->devs.bindings;
}

void devs_bind(struct engine *e)
{
	const struct map *map = e->view.proposing ? &e->view.prop : &e->map;
	uint8_t was[DDR_MAX_DEVS];

	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		e->view.dev_of[m] = NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		was[i] = e->c->devs.dev[i].member;
		e->c->devs.dev[i].member = NO_MEMBER;
	}
	for (uint8_t m = 0; m < map->n; m++) {
		uint32_t i = dev_to_bind(e, map, m, was);

		if (i == NO_DEV)
			continue;
		e->c->devs.dev[i].member = m;
		e->view.dev_of[m] = i;
		dev_bound(e, map, &e->c->devs.dev[i], map->member[m].uuid);
		if (was[i] != m)
			back_up(&e->c->devs.dev[i]); /* it was not, and nobody has compared it */
		if (!e->c->devs.dev[i].reading)
			back_bound(e, &e->c->devs.dev[i], m);
		if (!(dev_failed_flush(&e->c->devs.dev[i], &map->member[m]) ||
		      dev_was_cut(&e->c->devs.dev[i], &map->member[m])) ||
		    !(map_write_mask(map) >> m & 1) || e->c->members.bad[m] == MEMBER_FAULTY)
			continue;
		e->c->members.bad[m] = MEMBER_FAULTY;
		e->c->members.bad_us[m] = 0; /* told at once: before a proposal is acknowledged */
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
		if (e->c->devs.dev[i].up && !e->c->devs.dev[i].reading &&
		    e->c->devs.dev[i].member == NO_MEMBER &&
		    e->c->devs.dev[i].read_num != e->map.epoch.num) {
			e->c->devs.look_us = e->now;
			sb_read(e, i);
		}
}

bool devs_looking(const struct engine *e)
{
	if (!e->c->devs.look_us || e->now - e->c->devs.look_us >= e->cfg.tun.evict_ms * 1000ull)
		return false;
	for (uint32_t i = 0; i < e->c->devs.count; i++)
		if (e->c->devs.dev[i].reading && e->c->devs.dev[i].member == NO_MEMBER)
			return true;
	return false;
}

/* What else is connected under its UUID, and not used, was read when it was connected. */
static void ways_reread(struct engine *e, const struct dev *d)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (&e->c->devs.dev[i] != d && e->c->devs.dev[i].member == NO_MEMBER &&
		    e->c->devs.dev[i].up && e->c->devs.dev[i].sb_ok &&
		    !memcmp(e->c->devs.dev[i].sb.member_uuid, d->sb.member_uuid, DDR_UUID_BYTES))
			dev_reread(e, i);
}

/* It lacks an epoch that member m carries. */
void dev_lacks(struct engine *e, const struct dev *d, uint8_t m, uint64_t num)
{
	e->c->devs.lacked[m] = num;
	ways_reread(e, d);
}

/* The superblock of what is connected as a member that the map writes to has been read. */
void dev_judge(struct engine *e, struct dev *d, uint8_t m)
{
	if (!dev_older(d)) {
		/* R17: an exporter that never went away has lost nothing. It is what it was when
		 * the member was lost first: the last connection may have been to another one. */
		if (d->member == m && !d->back.lands && d->instance &&
		    d->instance == e->c->members.bad_instance[m] &&
		    e->c->members.bad[m] == MEMBER_SUSPECT && write_targets(e) >> m & 1)
			e->c->members.bad[m] = 0;
		return;
	}
	if (d->entered)
		dev_lacks(e, d, m, d->read_all);
	if (!e->c->members.bad[m])
		member_bad(e, m, MEMBER_SUSPECT);
}

/*
 * R1, R15: by this commit the member has entered the map, and carries the commit's superblock: it
 * took that by the leader's connection. If what is connected here lacks it, that is another device
 * under the same UUID, an older copy, and this node must not go on with it: it is given up here,
 * and is not the member any more, until a superblock says otherwise, or the member is not expected
 * back by itself (commit_effects). Nothing is read from the member before it is promoted, which
 * waits for this (quiesce_advance); what a node writes to a wrong one until then is brought up when
 * the member enters again, like all that it has missed.
 */
void member_entered(struct engine *e, uint8_t i)
{
	struct dev *d = e->view.dev_of[i] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[i]];

	for (uint32_t j = 0; j < DDR_MAX_DEVS; j++)
		e->c->devs.dev[j].stale_read |=
		    e->c->devs.dev[j].reading; /* may be it, as it was before */
	if (!d || !d->up)
		return; /* whatever connects is judged */
	d->entered = true;
	if (!d->reading)
		sb_read(e, e->view.dev_of[i]);
}

/* What a member that has entered carries here is not known yet. */
bool devs_entering(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->devs.count; i++)
		if (e->c->devs.dev[i].up && e->c->devs.dev[i].entered)
			return true;
	return false;
}

/* The superblock of the device that is the member was read by the connection that is there now; by
 * an earlier one it may have been another device's. */
bool member_sb_read(const struct engine *e, uint8_t i)
{
	const struct dev *d =
	    e->view.dev_of[i] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[i]];

	return d && d->up && d->sb_ok && !d->reading && !d->back.due;
}

bool dev_being_read(const struct engine *e, const struct dev *d)
{
	bool soon = !d->back.lands || (d->member != NO_MEMBER && !others_suffice(e, d->member));

	return d->reading || (d->back.due && soon && d->sb_ok && !d->retry_us);
}

/* Connected; and what this node had lost is what it was. */
bool member_back(const struct engine *e, uint8_t i)
{
	const struct dev *d =
	    e->view.dev_of[i] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[i]];

	if (!d || !d->up || d->back.due)
		return false;
	if (!(map_write_mask(&e->map) >> i & 1) || e->c->members.bad[i] != MEMBER_SUSPECT)
		return true;
	return member_sb_read(e, i) && !dev_older(d) && !(e->c->back.older >> i & 1);
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
	struct dev *d = e->view.dev_of[i] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[i]];

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
	return member_sb_read(e, i) && e->c->devs.dev[e->view.dev_of[i]].sb.map.epoch.num < reached;
}

/*
 * R15: the device carries an epoch from after the member left, and that is not known to be one of
 * this line. Either it had entered once more and that is long ago, or somebody else has used it. No
 * common epoch has to be left that would tell (dev_differs): only so many are remembered.
 */
bool member_strange(const struct engine *e, uint8_t i, uint64_t left)
{
	const struct superblock *sb =
	    member_sb_read(e, i) ? &e->c->devs.dev[e->view.dev_of[i]].sb : NULL;

	return sb && sb->map.epoch.num >= left && !lineage_shares(&e->c->assembly.past, sb, left);
}

void dev_up(struct engine *e, const struct event *ev)
{
	struct dev *d = &e->c->devs.dev[ev->dev.dev];

	assert(ev->dev.dev < DDR_MAX_DEVS && !d->up);
	if (ev->dev.dev >= e->c->devs.count)
		e->c->devs.count = ev->dev.dev + 1;
	d->up = true;
	d->ups++;
	d->entered = false;
	d->zombie = false;
	use_dev_up(e, ev->dev.dev);
	back_up(d);
	d->connected_here = true;
	d->connected_next = e->state == ENGINE_REMOVED;
	vouch_anew(e, d);
	e->c->choice.fenced_out = 0;
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
	struct dev *d = &e->c->devs.dev[ev->dev.dev];
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
		if (carries_whole(&e->c->devs.dev[i], mm->uuid) &&
		    !was_another(e, &e->c->devs.dev[i], &e->map, mm->uuid))
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

	for (uint32_t i = 0; i < e->c->devs.count; i++)
		n += e->c->devs.dev[i].up && e->c->devs.dev[i].sb_ok;
	return n;
}

static bool copies_of_one(const struct engine *e)
{
	const struct dev *first = NULL;

	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		const struct dev *d = &e->c->devs.dev[i];

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
		if (was_member(e, &e->c->devs.dev[i], map))
			was = &e->c->devs.dev[i];
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
bool is_observer(const struct engine *e)
{
	return e->state == ENGINE_JOINING && e->view.slot == NO_SLOT && !leading(e) &&
	       (!e->view.have_geo || members_reached(e) < e->geo.k);
}

/*
 * The leader's view of it. One that fences otherwise (peer_differs) is none: it may have led and
 * written a moment ago, and be the only one by which a leader learns that it is cut off from the
 * members.
 */
bool peer_is_observer(const struct engine *e, const struct peer *p)
{
	return p->slot == NO_SLOT && p->node != e->cfg.node && p->reach < e->geo.k;
}

/* Nobody has written a superblock there yet. */
static bool is_being_added(const struct engine *e, const struct dev *d)
{
	return (e->c->admin.job.used && e->c->admin.job.cmd == ADMIN_ADD &&
		!strcmp(e->c->admin.job.uri, d->uri)) ||
	       (e->c->admin.adding.used && !strcmp(e->c->admin.adding.uri, d->uri));
}

const char *engine_dev_foreign(const struct engine *e, uint32_t dev)
{
	const struct dev *d = &e->c->devs.dev[dev];
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
	struct dev *d = &e->c->devs.dev[i];
	bool older = d->member != NO_MEMBER && map_write_mask(&e->map) >> d->member & 1 &&
		     e->c->members.bad[d->member] == MEMBER_SUSPECT &&
		     member_sb_read(e, d->member) && !member_back(e, d->member);

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
	return e->cfg.tun.evict_ms * (epoch_promotes(e) && !e->c->epochs.acked ? 500ull : 1000ull);
}

void devs_restart(struct devs *devs)
{
	memset(devs->lacked, 0, sizeof(devs->lacked));
	devs->look_us = devs->observer_us = 0;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &devs->dev[i];

		d->reading = d->sb_ok = d->fresh = d->entered = false;
		back_restart(d);
		d->connected_here = d->connected_next;
		d->connected_next = false;
	}
}

void devs_advance(struct engine *e)
{
	uint64_t since;

	misread_advance(e);
	back_advance(e);
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		struct dev *d = &e->c->devs.dev[i];

		/* A superblock that could not be read is tried again, now and then. */
		if (d->up && !d->reading && d->retry_us && e->now >= d->retry_us)
			sb_read(e, i);
		misfit_look(e, i);
	}
	if (is_observer(e)) {
		e->c->devs.observer_us = e->now;
		return;
	}
	since = e->c->round.since_us > e->c->devs.observer_us ? e->c->round.since_us
							      : e->c->devs.observer_us;
	for (uint8_t m = 0; e->view.have_map && !devs_looking(e) && m < e->map.n; m++)
		if (write_musts(e) >> m & 1 && !e->c->members.bad[m] &&
		    e->view.dev_of[m] == NO_DEV && e->view.phase == PH_READY &&
		    e->now - since > unreached_us(e))
			member_bad(e, m, MEMBER_SUSPECT);
}

bool dev_connected(const struct engine *e, uint32_t dev)
{
	return e->c->devs.dev[dev].up;
}
