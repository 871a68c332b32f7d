/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The use blocks of the members (use.c): which devices count, the reads and writes of them, one by
 * one and in rounds, and how many members in sync have shown what.
 */
#include <errno.h>
#include <string.h>

#include "daemon/core/cluster/use_int.h"

#define TRIES_MAX 6u /* from then on a claim's time does not grow */

/* Of what the members tell: see newest_sb in assemble.c. */
const struct superblock *use_newest(const struct engine *e)
{
	const struct superblock *believed = sb_newest(e), *sb = believed;

	for (uint32_t i = 0; !believed && i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].up && e->c->devs.dev[i].sb_ok &&
		    (!sb || epoch_cmp(&e->c->devs.dev[i].sb.map.epoch, &sb->map.epoch) > 0))
			sb = &e->c->devs.dev[i].sb;
	return sb;
}

/* The round's leader has said that the array is assembled, and whose it is. */
bool use_told(const struct engine *e)
{
	return e->state == ENGINE_ACTIVE || e->view.phase == PH_READY;
}

/* What this node goes by: before the array is assembled, the newest map on the members. */
const struct map *use_map(const struct engine *e)
{
	const struct superblock *sb = use_told(e) ? NULL : use_newest(e);

	return sb ? &sb->map : map_next(e);
}

/*
 * Its member, if the map writes to that; else NO_MEMBER. One that this node has lost for a moment
 * counts once it is back (R17 needs the lease for that), an older copy of it does not.
 */
uint8_t use_member(const struct engine *e, uint32_t dev, const struct map *map)
{
	const struct dev *d = &e->c->devs.dev[dev];

	for (uint8_t m = 0; map && d->up && d->sb_ok && !d->misfit[0] && m < map->n; m++) {
		if (!(map_write_mask(map) >> m & 1) ||
		    memcmp(d->sb.member_uuid, map->member[m].uuid, DDR_UUID_BYTES))
			continue;
		if (use_told(e) && (e->view.dev_of[m] != dev || !member_back(e, m)))
			continue;
		return m;
	}
	return NO_MEMBER;
}

/* Members in sync, of those whose device satisfies `what`. */
uint32_t use_insync(const struct engine *e, bool (*what)(const struct use_dev *))
{
	const struct map *map = use_map(e);
	uint32_t mask = 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		uint8_t m = use_member(e, i, map);

		if (m != NO_MEMBER && what(&e->c->use.dev[i]))
			mask |= 1u << m;
	}
	return map ? (uint32_t)__builtin_popcount(mask & map_insync_mask(map)) : 0;
}

/* Whoever reaches k members in sync must meet the claim, so it has to be on all of them but k - 1.
 */
int use_needed(const struct engine *e, const struct map *map)
{
	return map ? __builtin_popcount(map_insync_mask(map)) - e->geo.k + 1 : 0;
}

/* Enough of them to meet any other's claim. */
bool use_enough(const struct engine *e, bool (*what)(const struct use_dev *))
{
	const struct map *map = use_map(e);
	int n = (int)use_insync(e, what);

	return n > 0 && n >= use_needed(e, map);
}

/* Those that are prompt were not enough: the next round asks all. */
void use_ask_all(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		e->c->use.dev[i].slow[0] = e->c->use.dev[i].slow[1] = false;
}

static bool enough_are_prompt(const struct engine *e)
{
	if (use_told(e))
		return use_enough(e, use_dev_prompt);
	return e->view.have_geo && use_insync(e, use_dev_prompt) >= e->geo.k;
}

uint64_t use_claim_us(const struct engine *e)
{
	uint32_t tries = e->c->use.tries < TRIES_MAX ? e->c->use.tries : TRIES_MAX;

	return (e->cfg.tun.claim_ms * 1000ull) << tries;
}

static void block_read(struct engine *e, struct use_dev *d)
{
	struct useblock *g = &d->got;
	int err = useblock_decode(g, (const uint8_t *)d->buf);

	if (err != -EBADMSG) {
		if (err || memcmp(g->array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES))
			memset(g, 0, sizeof(*g));
		return;
	}
	/* Somebody wrote it, and may be writing it. */
	memset(g, 0, sizeof(*g));
	g->claim = USE_UNKNOWN;
	memcpy(&g->seq, *d->buf + 8, sizeof(g->seq));
}

static void use_done(struct engine *e, struct batch *b)
{
	struct use *u = &e->c->use;
	struct use_dev *d = list_entry(b, struct use_dev, batch);
	bool gone = d->gone, late = d->late;

	d->busy = d->gone = d->late = false;
	if (!b->failed)
		d->answered_us = e->now;
	if (!b->failed || (b->sent && !is_connection_error(b->err) && b->err != -ECANCELED))
		d->asked_us = d->sent_us; /* also an error is an answer (R14) */
	d->failed = b->failed;
	if (use_claim_us(e) && e->now - d->sent_us > use_claim_us(e))
		d->slow[d->reading] = true;
	else if (!b->failed)
		d->slow[d->reading] = false;
	if (d->in_round && !--u->pending)
		u->round_over = true;
	if (!d->reading && !d->in_round) {
		d->lost = b->failed || gone;
		if (!use_lease_runs(e))
			u->late_us = e->now;
	}
	if (e->state == ENGINE_REMOVED)
		return;
	if (gone) {
		memset(&d->got, 0, sizeof(d->got));
		d->wrote = false;
		return;
	}
	if (late)
		return;
	if (!d->reading) {
		d->wrote &= !b->failed;
		if (d->wrote) {
			d->held_us = d->sent_us;
			u->lease_us = use_lease_end(e);
		}
		return;
	}
	if (!b->failed) {
		block_read(e, d);
	} else {
		/* A sector that can't be read says nothing. It counts like one that is damaged: the
		 * next write may mend it. */
		memset(&d->got, 0, sizeof(d->got));
		if (!is_connection_error(b->err) && b->err != -ECANCELED)
			d->got.claim = USE_UNKNOWN;
	}
	d->seen = !b->failed || d->got.claim;
	d->ours = d->seen && (use_ours(e, d->got.claim) || (u->given && !d->got.claim));
	d->taken = d->seen && !d->ours && d->got.claim != USE_UNKNOWN;
	if (!d->in_round && d->seen)
		use_renew_read(e, d);
}

void use_dev_start(struct engine *e, uint32_t i, bool read, bool in_round)
{
	struct use_dev *d = &e->c->use.dev[i];

	d->busy = true;
	d->in_round = in_round;
	d->reading = read;
	d->sent_us = e->now;
	d->iov = (struct iovec){d->buf, DDR_BLOCK_BYTES};
	if (in_round)
		e->c->use.pending++;
	if (read) {
		d->was = d->got;
		d->seen = d->ours = d->taken = false;
	}
	batch_init(&d->batch, use_done);
	batch_open(&d->batch);
	member_io_start_raw(e, &d->batch, i, read ? DEV_READ : DEV_WRITE, KIND_USE, USE_OFFSET,
			    &d->iov);
	batch_close(e, &d->batch);
}

/* Who claims renews nothing until it has read again: for so long it asks for more patience: see
 * again_late. */
void use_dev_write(struct engine *e, uint32_t i, uint64_t claim, bool in_round)
{
	uint32_t waits_ms = in_round ? (uint32_t)(5 * use_claim_us(e) / 1000) : 0;
	struct useblock u = {.claim = claim,
			     .seq = e->now + e->cfg.node,
			     .inc = e->inc,
			     .at_s = e->cfg.wall_s ? e->cfg.wall_s + e->now / 1000000 : 0,
			     .node = e->cfg.node,
			     .patience_ms = e->cfg.tun.patience_ms + waits_ms,
			     .process = e->cfg.process};
	struct use_dev *d = &e->c->use.dev[i];

	memcpy(u.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);
	memcpy(u.cluster, e->cfg.cluster, DDR_NAME_BYTES);
	memcpy(u.host, e->cfg.host, DDR_NAME_BYTES);
	useblock_encode(&u, *d->buf);
	d->wrote = claim != 0;
	use_dev_start(e, i, false, in_round);
}

/* Its read is under way for so long that a claim would be late by it. */
static bool is_late(const struct engine *e, const struct use_dev *d)
{
	return use_claim_us(e) && d->busy && d->reading &&
	       e->now - d->sent_us >= use_claim_us(e) / 2;
}

/* All at once. False: an earlier request of one is still under way. */
bool use_round_start(struct engine *e, bool reads, uint64_t claim)
{
	const struct map *map = use_map(e);
	struct use *u = &e->c->use;
	bool all;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].slow[1] |= is_late(e, &u->dev[i]);
	all = !enough_are_prompt(e);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct use_dev *d = &u->dev[i];

		if (d->busy && !d->late && (all || !is_late(e, d)))
			return false;
		d->late = d->busy;
	}
	u->reads = reads;
	u->round_us = e->now;
	u->round_over = false;
	u->pending = 1; /* until all are begun */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		bool member = use_member(e, i, map) != NO_MEMBER;

		if (reads)
			u->dev[i].seen = u->dev[i].ours = u->dev[i].taken = false;
		else
			u->dev[i].wrote = false;
		if (u->dev[i].busy || (!all && !use_dev_prompt(&u->dev[i])))
			continue;
		if (reads && member)
			use_dev_start(e, i, true, true);
		else if (!reads && member && (use_told(e) || !claim || u->dev[i].seen))
			use_dev_write(e, i, claim, true); /* over what was looked at */
	}
	if (!--u->pending)
		u->round_over = true;
	return true;
}

/* A round of reads has all that it needs, but for those that are late. */
void use_round_wait(struct engine *e)
{
	struct use *u = &e->c->use;

	if (!use_claim_us(e) || !u->pending || !u->reads ||
	    e->now - u->round_us < use_claim_us(e) / 2 ||
	    !(use_told(e) ? use_enough(e, use_dev_seen)
			  : e->view.have_geo && use_insync(e, use_dev_seen) >= e->geo.k))
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct use_dev *d = &u->dev[i];

		if (!d->busy || !d->in_round)
			continue;
		d->late = d->slow[1] = true;
		d->in_round = false;
		u->pending--;
	}
	u->round_over = !u->pending;
}
