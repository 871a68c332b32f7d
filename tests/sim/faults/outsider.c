/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Somebody outside of the cluster wants the same members (core/cluster/use.c): a daemon that was
 * set to `cluster = alone`, or another cluster. It goes by the use blocks, as an engine does, and
 * reaches all members:
 *
 *	look	until no claim has changed for the patience that it asks for
 *	claim	on all members in sync, less than claim_ms after the last look
 *	trust	2 claim_ms later: is it still there, on k of them? then the outsider has the array
 *	renew	each renew_ms: reads first, and gives up if somebody else renews a claim, or
 *		has given it back
 *
 * From `trust` until it gives the array back nobody in the cluster may begin I/O, but for what
 * tells who has it. In some seeds it comes as the first node looks, so that both begin at once. In
 * others all nodes stand still for longer than the patience, and wake up while it has the array.
 *
 * Of its own randomness: seeds in which no outsider comes are as without it.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world.h"

#include "daemon/core/format/useblock.h"

#define SEEDS_ONE_IN 5u
#define TRIES 400u
#define CLAIM 0x0075747369646572ull

enum { OUTSIDER_NONE, OUTSIDER_LOOK, OUTSIDER_CLAIM, OUTSIDER_TRUST, OUTSIDER_HAS };

static void on_outsider(struct sim *s, struct hev *ev);

static uint64_t draw(struct sim *s, uint64_t lo, uint64_t hi)
{
	return rng_range(&s->outsider.rng, lo, hi);
}

static void next(struct sim *s, int state, uint64_t us)
{
	s->outsider.state = state;
	sim_at(s, us, on_outsider, 0, 0, NULL);
}

static bool readable(const struct disk *d)
{
	return d->powered && !d->dead && !d->hidden;
}

/* Where the map's members in sync are; false: not all of them can be reached. */
static bool members(struct sim *s, struct disk *disk[DDR_MAX_MEMBERS], uint32_t *count)
{
	const struct map *m = &s->checks.map;
	bool all = true;

	*count = 0;
	for (uint32_t i = 0; i < m->n; i++) {
		if (!(map_insync_mask(m) >> i & 1))
			continue;
		if (s->checks.disk_of[i] == NONE || !readable(&s->disk[s->checks.disk_of[i]])) {
			all = false;
			continue;
		}
		disk[(*count)++] = &s->disk[s->checks.disk_of[i]];
	}
	return all && *count;
}

/* Nobody's, if it is of no array of ours; a damaged one is somebody's who is writing it. */
static void block_read(const struct sim *s, const struct disk *d, struct useblock *u)
{
	uint8_t block[DDR_BLOCK_BYTES];
	int err;

	disk_read(d, USE_OFFSET, sizeof(block), block);
	err = useblock_decode(u, block);
	if (err)
		memset(u, 0, sizeof(*u));
	if (err == -EBADMSG) {
		u->claim = USE_UNKNOWN;
		u->seq = s->now;
	}
}

static void block_write(struct sim *s, struct disk *d, uint64_t claim)
{
	struct useblock u = {.claim = claim,
			     .seq = ++s->outsider.seq,
			     .patience_ms = s->o.tun.patience_ms,
			     .node = 1};
	uint8_t block[DDR_BLOCK_BYTES];

	memcpy(u.array_uuid, s->array_uuid, DDR_UUID_BYTES);
	strcpy(u.host, "outsider");
	useblock_encode(&u, block);
	disk_write(s, d, USE_OFFSET, sizeof(block), block, true);
}

static void gives_up(struct sim *s, const char *why)
{
	trace(s, "f  outsider gives up: %s", why);
	s->outsider.state = OUTSIDER_NONE;
}

static void gives_back(struct sim *s)
{
	trace(s, "f  outsider gives the array back");
	s->outsider.state = OUTSIDER_NONE;
	for (uint32_t i = 0; i < s->o.disks; i++) {
		struct useblock u;

		block_read(s, &s->disk[i], &u);
		if (readable(&s->disk[i]) && u.claim == CLAIM)
			block_write(s, &s->disk[i], 0);
	}
}

/* Whether each claim has been as it is for the time that it asks for. */
static bool all_gone(struct sim *s, struct disk *const disk[], uint32_t n)
{
	bool gone = true;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t d = disk[i]->idx;
		struct useblock u;

		block_read(s, disk[i], &u);
		if (u.claim != s->outsider.claim[d] || u.seq != s->outsider.seen[d]) {
			s->outsider.claim[d] = u.claim;
			s->outsider.seen[d] = u.seq;
			s->outsider.since_us[d] = s->now;
		}
		if (u.claim && u.claim != CLAIM)
			gone &=
			    s->now - s->outsider.since_us[d] >=
			    (u.claim == USE_UNKNOWN ? s->o.tun.patience_ms : u.patience_ms) * MS;
	}
	return gone;
}

static void look(struct sim *s, struct disk *const disk[], uint32_t n, bool all)
{
	if (s->outsider.tries++ > TRIES) {
		gives_up(s, "somebody has it");
		return;
	}
	if (!all || !all_gone(s, disk, n)) {
		next(s, OUTSIDER_LOOK, s->o.tun.renew_ms * MS / 4);
		return;
	}
	next(s, OUTSIDER_CLAIM, draw(s, 1, s->o.tun.claim_ms * MS - 1));
}

static uint32_t still_there(const struct sim *s, struct disk *const disk[], uint32_t n)
{
	uint32_t there = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct useblock u;

		block_read(s, disk[i], &u);
		there += u.claim == CLAIM;
	}
	return there;
}

/* As renew_read of use.c: what another wrote once may have landed late. */
static void renew(struct sim *s, struct disk *const disk[], uint32_t n)
{
	uint32_t odd = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t d = disk[i]->idx;
		struct useblock u;

		block_read(s, disk[i], &u);
		if (u.claim == CLAIM || u.claim == USE_UNKNOWN) {
			s->outsider.claim[d] = 0;
			continue;
		}
		odd +=
		    !u.claim || (u.claim == s->outsider.claim[d] && u.seq != s->outsider.seen[d]);
		s->outsider.claim[d] = u.claim;
		s->outsider.seen[d] = u.seq;
	}
	if (odd >= s->geo.k) {
		gives_up(s, "somebody else renews a claim");
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		block_write(s, disk[i], CLAIM);
	next(s, OUTSIDER_HAS, s->o.tun.renew_ms * MS);
}

static void has(struct sim *s)
{
	trace(s, "f  outsider has the array");
	stats_look(s);
	stats_fault(s, F_OUTSIDER);
	stats_look_end(s);
	s->outsider.until_us = s->now + draw(s, 200, 3000) * MS;
	memset(s->outsider.claim, 0, sizeof(s->outsider.claim));
	next(s, OUTSIDER_HAS, s->o.tun.renew_ms * MS / 2);
}

static void on_outsider(struct sim *s, struct hev *ev)
{
	struct disk *disk[DDR_MAX_MEMBERS];
	uint32_t n;
	bool all = members(s, disk, &n);

	(void)ev;
	if (s->outsider.state == OUTSIDER_NONE)
		return;
	if (s->planner.healing ||
	    (s->outsider.state == OUTSIDER_HAS && s->now >= s->outsider.until_us)) {
		gives_back(s);
		return;
	}
	/* An engine that loses so many of them does without; who plays one here does not. */
	if (!all && s->outsider.state != OUTSIDER_LOOK) {
		gives_back(s);
		return;
	}
	switch (s->outsider.state) {
	case OUTSIDER_LOOK:
		look(s, disk, n, all);
		break;
	case OUTSIDER_CLAIM:
		trace(s, "f  outsider claims the members");
		for (uint32_t i = 0; i < n; i++)
			block_write(s, disk[i], CLAIM);
		next(s, OUTSIDER_TRUST, 2 * s->o.tun.claim_ms * MS);
		break;
	case OUTSIDER_TRUST:
		if (still_there(s, disk, n) >= s->geo.k && all_gone(s, disk, n))
			has(s);
		else
			next(s, OUTSIDER_LOOK, draw(s, 1, 8 * s->o.tun.claim_ms * MS));
		break;
	default:
		renew(s, disk, n);
	}
}

/* All nodes at once, so that none renews. */
static void on_standstill(struct sim *s, struct hev *ev)
{
	uint64_t least = s->o.tun.patience_ms * MS;

	(void)ev;
	if (s->planner.healing)
		return;
	trace(s, "f  all nodes stand still, and an outsider comes");
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];

		if (n->powered && !n->frozen && !n->stopped)
			node_freeze(s, n, draw(s, least, 2 * least));
	}
	next(s, OUTSIDER_LOOK, 1);
}

void outsider_issue(struct sim *s, const struct simnode *n, const struct req *r)
{
	if (s->outsider.armed && r->kind == KIND_USE && r->op == DEV_READ) {
		s->outsider.armed = false;
		next(s, OUTSIDER_LOOK, draw(s, 1, MS)); /* before its claim is there */
	}
	if (s->outsider.state != OUTSIDER_HAS || r->kind == KIND_USE ||
	    (r->op == DEV_READ && r->kind != KIND_DATA))
		return;
	sim_fail(s, "C11", "node %u starts I/O (kind %d) while an outsider has the array", n->id,
		 (int)r->kind);
}

void outsider_init(struct sim *s)
{
	rng_seed(&s->outsider.rng, s->seed ^ 0x6f7574);
	if (s->o.faultless || !s->o.tun.claim_ms || draw(s, 1, SEEDS_ONE_IN) > 1)
		return;
	if (draw(s, 0, 2))
		sim_at(s, draw(s, 500, 5000) * MS, on_standstill, 0, 0, NULL);
	else
		s->outsider.armed = true;
}
