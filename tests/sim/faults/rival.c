/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Another array that wants a disk at the moment at which the administrator adds it to ours, by a
 * name that tells nobody that it is one and the same. Whoever makes it goes by the rules of
 * daemon/core/format/claim.h, with --old-member, as daemon/ctl/create/create_check.c does:
 *
 *	look	ours, if it is a member of ours already: gives up
 *	claim	lands less than settle_ms after the look
 *	trust	settle_ms later: is the claim still there? if not, gives up
 *	look	once more, then the superblock, which lands less than settle_ms later
 *	trust	settle_ms later: is it still there? then it has won, and says so
 *
 * The two must not both be told that they have the disk. Who has won has it for a while, and an
 * `add` of it is refused meanwhile; then that array is given up and the disk wiped.
 *
 * The draws are from a stream of their own: seeds in which no rival comes are as without it.
 */
#include <string.h>

#include "tests/sim/world.h"

#define AREA_BYTES (SB_COPIES * DDR_BLOCK_BYTES)

enum {
	RIVAL_NONE,
	RIVAL_LOOK,
	RIVAL_CLAIM,
	RIVAL_TRUST_CLAIM,
	RIVAL_SB,
	RIVAL_TRUST_SB,
	RIVAL_HAS
};

static void on_rival(struct sim *s, struct hev *ev);

/* Quick, or nearly as slow as is allowed. */
static uint64_t lands_us(struct sim *s)
{
	uint64_t most = s->o.tun.settle_ms * MS * 9 / 10;

	return rng_chance(&s->rival.rng, 500) ? rng_range(&s->rival.rng, 1, MS)
					      : rng_range(&s->rival.rng, 1, most);
}

static void rival_next(struct sim *s, struct disk *d, int state, uint64_t us)
{
	d->rival.state = state;
	sim_at(s, us, on_rival, d->idx, d->rival.no, NULL);
}

static void area_write(struct sim *s, struct disk *d, const uint8_t area[AREA_BYTES])
{
	memcpy(d->rival.area, area, AREA_BYTES);
	disk_write(s, d, SB_OFFSET, AREA_BYTES, area, true);
}

static bool holds(const struct disk *d)
{
	uint8_t area[AREA_BYTES];

	disk_read(d, SB_OFFSET, AREA_BYTES, area);
	return !memcmp(area, d->rival.area, AREA_BYTES);
}

/* Any superblock that is not of our array. */
static void area_fill(struct sim *s, struct disk *d, uint8_t area[AREA_BYTES])
{
	struct superblock sb = s->disk[s->checks.disk_of[0]].sb;

	for (uint32_t i = 0; i < DDR_UUID_BYTES; i++)
		sb.array_uuid[i] = (uint8_t)(d->rival.no + 17 * i + d->idx);
	memset(sb.name, 0, sizeof(sb.name));
	strcpy(sb.name, "rival");
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		sb.place = (uint8_t)(c + 1);
		sb_encode(&sb, area + c * DDR_BLOCK_BYTES);
	}
}

static void gives_up(struct sim *s, struct disk *d)
{
	uint8_t area[AREA_BYTES] = {0};

	trace(s, "f  rival on disk %u gives up", d->idx);
	if (d->rival.state > RIVAL_CLAIM && holds(d))
		area_write(s, d, area);
	d->rival.state = RIVAL_NONE;
}

static void both(struct sim *s, const struct disk *d)
{
	if (d->rival.state == RIVAL_HAS && d->rival.added)
		sim_fail(s, "C10", "disk %u is in our array and in another one", d->idx);
}

static void claims(struct sim *s, struct disk *d)
{
	uint8_t area[AREA_BYTES];

	memset(area, 0xc1, sizeof(area));
	memcpy(area, &d->rival.no, sizeof(d->rival.no));
	area_write(s, d, area);
	rival_next(s, d, RIVAL_TRUST_CLAIM, s->o.tun.settle_ms * MS);
}

static void on_rival(struct sim *s, struct hev *ev)
{
	struct disk *d = &s->disk[ev->a];
	uint8_t area[AREA_BYTES];

	if (ev->b != d->rival.no || d->rival.state == RIVAL_NONE)
		return;
	if (!d->powered || d->dead || d->hidden) {
		d->rival.state = RIVAL_NONE; /* it has lost it, too */
		return;
	}
	switch (d->rival.state) {
	case RIVAL_LOOK:
		if (d->sb_valid || s->checks.disk_of[0] == NONE)
			gives_up(s, d);
		else
			rival_next(s, d, RIVAL_CLAIM, lands_us(s));
		break;
	case RIVAL_CLAIM:
		trace(s, "f  rival claims disk %u", d->idx);
		stats_look(s);
		stats_fault(s, F_RIVAL);
		stats_look_end(s);
		claims(s, d);
		break;
	case RIVAL_TRUST_CLAIM:
		if (holds(d))
			rival_next(s, d, RIVAL_SB, lands_us(s));
		else
			gives_up(s, d);
		break;
	case RIVAL_SB: /* its look was the one of the state before */
		if (s->checks.disk_of[0] == NONE) {
			gives_up(s, d);
			break;
		}
		area_fill(s, d, area);
		area_write(s, d, area);
		rival_next(s, d, RIVAL_TRUST_SB, s->o.tun.settle_ms * MS);
		break;
	case RIVAL_TRUST_SB:
		if (!holds(d)) {
			gives_up(s, d);
			break;
		}
		trace(s, "f  rival has disk %u", d->idx);
		rival_next(s, d, RIVAL_HAS, 600 * MS);
		both(s, d);
		break;
	default:
		memset(area, 0, sizeof(area));
		area_write(s, d, area);
		d->rival.state = RIVAL_NONE;
	}
}

void rival_add_asked(struct sim *s, uint32_t disk)
{
	struct disk *d = &s->disk[disk];

	s->rival.disk = disk;
	if (d->rival.state != RIVAL_NONE)
		return;
	d->rival.added = false;
	if (s->scripted || d->sb_valid || !rng_chance(&s->rival.rng, 600))
		return;
	d->rival.no++;
	rival_next(s, d, RIVAL_LOOK, rng_range(&s->rival.rng, 1, s->o.tun.settle_ms * MS / 2));
}

void rival_add_answered(struct sim *s, int err)
{
	struct disk *d = &s->disk[s->rival.disk];

	d->rival.added = !err;
	both(s, d);
}

void rival_init(struct sim *s)
{
	rng_seed(&s->rival.rng, s->seed ^ 0x717a1);
}
