/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The superblocks of devices: how they are read, and which of the two copies is written next; and
 * devices that broke off before there was a map to name their members (R17).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

#define SB_RETRY_US 500000ull

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
		e->c->devs.dev[i].copies_known = false;
}

/* If not, they are read, unless that has just failed. */
bool copies_known(struct engine *e, uint32_t i)
{
	struct dev *d = &e->c->devs.dev[i];

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
		if (!e->c->members.bad[d->member])
			member_bad(e, d->member, MEMBER_SUSPECT);
	}
	d->entered &= d->stale_read;
	d->retry_us = d->stale_read ? e->now : e->now + SB_RETRY_US;
	if (!d->stale_read)
		d->failed_us = e->now;
	d->stale_read = false;
}

/* The newest map that this node has seen; NULL: none. `up`: only on what is connected now. */
const struct map *map_seen(const struct engine *e, bool up)
{
	const struct map *m = NULL;

	if (e->view.have_map || e->view.proposing)
		return map_next(e);
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		const struct dev *d = &e->c->devs.dev[i];

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
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		const struct dev *o = &e->c->devs.dev[i];

		if (!o->lost || o->lost_own || o->lost_us > d->lost_us + window ||
		    d->lost_us > o->lost_us + window)
			continue;
		if (!map || uuid_is_none(o->lost_uuid)) {
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

	for (uint32_t i = 0; i < e->c->devs.count; i++)
		own[i] = e->c->devs.dev[i].lost && lost_with_others(e, &e->c->devs.dev[i]);
	for (uint32_t i = 0; i < e->c->devs.count; i++)
		e->c->devs.dev[i].lost_own |= own[i];
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
void loss_note(struct engine *e, struct dev *d)
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
	if (uuid_is_none(uuid) || !map_names(&e->map, uuid)) {
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
		e->c->members.bad_instance[m] = d->lost_instance;
		e->c->members.bad_since_us[m] = d->lost_us;
	}
}

/* So many members broke at nearly the same time that it was this node's own way to them. */
static bool bad_with_others(const struct engine *e, uint8_t m, uint32_t suspects)
{
	uint64_t window = e->cfg.tun.evict_ms * 1000ull, t = e->c->members.bad_since_us[m];
	uint32_t n = 0;

	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		n += suspects >> i & 1 && e->c->members.bad_since_us[i] <= t + window &&
		     t <= e->c->members.bad_since_us[i] + window;
	return n > e->geo.p.m;
}

/* An incarnation that has lost a member ends before the map says so. It may be the only one that
 * knows, so the next one tells it. */
void devs_lost_keep(struct engine *e)
{
	/* A proposal that drops it may come to nothing. */
	const struct map *map = e->view.have_map ? &e->map : map_next(e);
	uint32_t suspects = 0;

	for (uint8_t m = 0; m < map->n && e->view.have_geo; m++)
		if (e->c->members.bad[m] == MEMBER_SUSPECT && map_write_mask(map) >> m & 1)
			suspects |= 1u << m;
	for (uint8_t m = 0; m < map->n; m++) {
		struct lost *l = &e->c->devs.kept[e->c->devs.kept_count];

		if (!(suspects >> m & 1) || bad_with_others(e, m, suspects) ||
		    e->c->devs.kept_count == DDR_MAX_MEMBERS)
			continue;
		memcpy(l->uuid, map->member[m].uuid, DDR_UUID_BYTES);
		l->instance = e->c->members.bad_instance[m];
		l->num = map->epoch.num;
		l->since_us = e->c->members.bad_since_us[m];
		e->c->devs.kept_count++;
	}
}

/*
 * What the incarnation before had lost. Not of one that a map has dropped since, or that has
 * another name now: what it lacks it has got again. And not of one whose exporter has not been
 * away.
 */
static void kept_tell(struct engine *e)
{
	for (uint32_t k = 0; k < e->c->devs.kept_count; k++) {
		const struct lost *l = &e->c->devs.kept[k];

		for (uint8_t m = 0; m < e->map.n; m++) {
			uint32_t d = e->view.dev_of[m];
			bool had = e->c->members.bad[m];

			if (!(map_write_mask(&e->map) >> m & 1) ||
			    e->c->epochs.dropped[m] > l->num ||
			    memcmp(l->uuid, e->map.member[m].uuid, DDR_UUID_BYTES) ||
			    (d != NO_DEV && e->c->devs.dev[d].up && l->instance &&
			     e->c->devs.dev[d].instance == l->instance))
				continue;
			member_bad(e, m, MEMBER_SUSPECT);
			e->c->members.bad_instance[m] = l->instance;
			e->c->members.bad_since_us[m] = l->since_us;
			if (!had)
				e->c->members.lost_earlier |= 1u << m;
		}
	}
	e->c->devs.kept_count = 0;
}

/* There is a map, which names the members. */
void devs_lost_tell(struct engine *e)
{
	losses_judge(e);
	for (uint32_t i = 0; i < e->c->devs.count; i++) {
		e->c->devs.dev[i].lost &= !e->c->devs.dev[i].lost_own;
		if (e->c->devs.dev[i].lost)
			loss_tell(e, &e->c->devs.dev[i]);
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
	cut_answered(e, d);
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
	struct dev *d = &e->c->devs.dev[i];

	if (d->member != NO_MEMBER &&
	    !((map_write_mask(&e->map) | write_targets(e)) >> d->member & 1))
		back_up(d); /* another medium may be there, though the connection is the same */
	d->reading = true;
	d->asked_num = e->map.epoch.num;
	d->asked_no = ++e->c->devs.reads;
	d->asked_all = e->c->epochs.committed.num;
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
		member_io_start_raw(e, &k->batch, i, DEV_READ, KIND_SB, geo_sb_offset(c), &k->iov);
		batch_close(e, &k->batch);
	}
}

/* This incarnation goes by its first map that is committed, and knew of no such epoch when it read
 * what they carry. Until it has done so again they are nobody's. */
void devs_judge(struct engine *e)
{
	e->c->epochs.judged = true;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &e->c->devs.dev[i];

		if (d->up && (d->reading || d->sb.map.epoch.num < e->c->epochs.committed.num))
			dev_reread(e, i);
	}
	devs_bind(e);
}

/* The fresh leader reads all superblocks anew: what was read at connecting may be old. */
void devs_reread(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].up && e->c->devs.dev[i].reading)
			e->c->devs.dev[i].stale_read = true; /* that read may be from before */
		else if (e->c->devs.dev[i].up)
			sb_read(e, i);
}

void dev_reread(struct engine *e, uint32_t dev)
{
	e->c->devs.dev[dev].sb_ok = false; /* it has another one now */
	if (e->c->devs.dev[dev].up && e->c->devs.dev[dev].reading)
		e->c->devs.dev[dev].stale_read = true;
	else if (e->c->devs.dev[dev].up)
		sb_read(e, dev);
}
