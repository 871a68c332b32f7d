// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Creating an array, once nothing speaks against it: claims, logs, superblocks; and what is put
 * back if that comes to nothing. The order and its reasons are at the head of create_check.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/units.h"
#include "daemon/ctl/create/create_int.h"

/* --- claims: read before write, wait before trust (claim.h) --- */

static uint64_t now_us(const struct job *j)
{
	return j->ask->now_us ? j->ask->now_us(j->ask->arg) : 0;
}

static void settle(struct job *j)
{
	if (j->ask->pause)
		j->ask->pause(j->ask->arg, j->settle_ms);
}

static uint8_t *mine(const struct job *j, uint32_t i)
{
	return j->mine + (size_t)i * AREA_BYTES;
}

/* Who has it now, for a person. */
#define WHOSE_BYTES 256
static void whose(const uint8_t *area, char text[WHOSE_BYTES])
{
	char name[DDR_NAME_BYTES];
	char user[USE_NAME_BYTES];
	struct superblock sb;
	struct useblock u;
	struct claim c;

	strcpy(text, "something else");
	if (!useblock_decode(&u, area + USE_AT) && u.claim) {
		useblock_name(&u, user);
		snprintf(text, WHOSE_BYTES, "%s", user);
	}
	for (uint32_t n = 0; n < SB_COPIES; n++) {
		if (!claim_decode(&c, area + n * DDR_BLOCK_BYTES))
			snprintf(text, WHOSE_BYTES, "another create, of an array %s",
				 text_clean(name, sizeof(name), c.name));
		else if (!sb_decode(&sb, area + n * DDR_BLOCK_BYTES, NULL))
			snprintf(text, WHOSE_BYTES, "the array %s",
				 text_clean(name, sizeof(name), sb.name));
	}
}

/* Does it show what was put there? */
static int holds(struct job *j, uint32_t i)
{
	const struct create_dev *d = &j->dev[i];
	int err = d->read(d->arg, SB_OFFSET, j->look, AREA_BYTES);
	char text[WHOSE_BYTES];

	if (err)
		return refuse_io(j, err, i, "read");
	if (!memcmp(j->look, mine(j, i), AREA_BYTES))
		return 0;
	if (!memcmp(j->look, mine(j, i), USE_AT))
		memset(j->look, 0, USE_AT); /* only the use block is another's */
	for (uint32_t n = 0; n < SB_COPIES; n++) {
		err = check_claim(j, i, j->look + n * DDR_BLOCK_BYTES);
		if (err == -ENOTUNIQ)
			return err; /* this create's, of another member */
	}
	whose(j->look, text);
	return create_refuse(
	    j, -ENOTUNIQ, (int)i,
	    "was taken at the same time by %s: name another device; or, if nothing else "
	    "uses it, see whether its exporter really writes",
	    text);
}

static int hold_all(struct job *j)
{
	int err = 0;

	for (uint32_t i = 0; i < j->count && !err; i++)
		err = holds(j, i);
	return err;
}

/* A write that followed a read of `began_us`. */
static int write_in_time(struct job *j, uint32_t i, uint64_t began_us, uint64_t offset,
			 const void *data, uint32_t bytes)
{
	const struct create_dev *d = &j->dev[i];
	char why[STORE_WHY_BYTES];
	uint64_t took_ms;
	int err;

	err = j->ask->allowed && !j->backing_out ? j->ask->allowed(j->ask->arg, why) : 0;
	if (err)
		return create_refuse(j, err, -1, "%s", why);
	err = d->write(d->arg, offset, data, bytes);
	if (err)
		return refuse_io(j, err, i, "written");
	took_ms = (now_us(j) - began_us) / 1000;
	if (took_ms < j->settle_ms)
		return 0;
	return create_refuse(j, -ETIMEDOUT, (int)i,
			     "took %" PRIu64
			     " ms to be written, and another create or add of it would not "
			     "have waited for that long: see to it, then create again",
			     took_ms);
}

static int guarded(struct job *j, uint32_t i, uint64_t offset, const void *data, uint32_t bytes)
{
	uint64_t began_us = now_us(j);
	int err = holds(j, i);

	return err ? err : write_in_time(j, i, began_us, offset, data, bytes);
}

/* The new content of the superblocks' place, by a guarded write; once it was sent, either is there.
 */
static int put_area(struct job *j, uint32_t i, const uint8_t *area)
{
	const struct create_dev *d = &j->dev[i];
	int err = guarded(j, i, SB_OFFSET, area, AREA_BYTES);

	if (err)
		return err;
	memcpy(mine(j, i), area, AREA_BYTES);
	err = d->flush(d->arg);
	return err ? refuse_io(j, err, i, "written") : 0;
}

/* The device is looked at once more: since the checks it may have been taken. */
static int claim(struct job *j, uint32_t i)
{
	const struct create_dev *d = &j->dev[i];
	uint8_t *old = j->old + (size_t)i * AREA_BYTES;
	uint64_t began_us = now_us(j), took_ms;
	struct claim c = {.index = i};
	struct useblock u;
	int err = check_superblock(j, i);

	if (err)
		return err;
	err = d->read(d->arg, USE_OFFSET, j->buf + USE_AT, DDR_BLOCK_BYTES);
	if (err)
		return refuse_io(j, err, i, "read");
	if (memcmp(old + USE_AT, j->buf + USE_AT, DDR_BLOCK_BYTES) != 0 &&
	    patience_ms(j->buf + USE_AT, &u))
		return in_use(j, i, &u);
	memcpy(old, j->buf, AREA_BYTES);
	memset(mine(j, i), 0, AREA_BYTES);
	memcpy(c.array_uuid, j->r->params.array_uuid, DDR_UUID_BYTES);
	memcpy(c.member_uuid, j->r->params.member_uuid[i], DDR_UUID_BYTES);
	memcpy(c.name, j->r->params.name, DDR_NAME_BYTES);
	for (uint32_t n = 0; n < SB_COPIES; n++)
		claim_encode(&c, mine(j, i) + n * DDR_BLOCK_BYTES);
	j->claimed = i + 1;
	err = write_in_time(j, i, began_us, SB_OFFSET, mine(j, i), AREA_BYTES);
	took_ms = (now_us(j) - began_us) / 1000;
	if (!err && d->flush(d->arg))
		err = refuse_io(j, -EIO, i, "flushed");
	/* A slow device may be as slow for whoever else wants it. */
	if (took_ms * 8 > j->settle_ms)
		j->settle_ms =
		    took_ms * 8 < CLAIM_SETTLE_MAX_MS ? (uint32_t)took_ms * 8 : CLAIM_SETTLE_MAX_MS;
	return err;
}

/* Case 5 of claim.h: as asked, over an array that was nobody's, and is known by now. */
static int replaced_is_known(struct job *j)
{
	struct superblock sb;
	const char *known;

	for (uint32_t n = 0; n < j->count * SB_COPIES && j->ask->known; n++) {
		const uint8_t *area = j->old + (size_t)(n / SB_COPIES) * AREA_BYTES;

		if (sb_decode(&sb, area + n % SB_COPIES * DDR_BLOCK_BYTES, NULL))
			continue;
		known = j->ask->known(j->ask->arg, sb.array_uuid);
		if (known && standing_of(j->ask, &sb) < STANDING_REPLACED)
			return create_refuse(
			    j, -ENOTUNIQ, (int)(n / SB_COPIES),
			    "was made a member of the array %s at the same time: name "
			    "another device",
			    known);
	}
	return 0;
}

static int claim_all(struct job *j)
{
	int err = 0;

	j->settle_ms = CLAIM_SETTLE_MS;
	for (uint32_t i = 0; i < j->count && !err; i++) {
		tell(j, "claiming member", i);
		err = claim(j, i);
	}
	if (err)
		return err;
	settle(j);
	err = hold_all(j);
	return err ? err : replaced_is_known(j);
}

/* --- writing --- */

static int run_write(struct job *j)
{
	uint32_t bytes = j->bytes;

	j->bytes = 0;
	if (!bytes)
		return 0;
	return guarded(j, j->at, j->from, j->buf, bytes);
}

/* create_member's emit: neighbouring blocks of the log become one write. */
static int collect(void *arg, uint64_t offset, const uint8_t *block)
{
	struct job *j = arg;
	int err = 0;

	if (offset < LOG_OFFSET)
		return 0;
	if (j->bytes && (offset != j->from + j->bytes || j->bytes == CREATE_IO_BYTES))
		err = run_write(j);
	if (!j->bytes)
		j->from = offset;
	memcpy(j->buf + j->bytes, block, DDR_BLOCK_BYTES);
	j->bytes += DDR_BLOCK_BYTES;
	return err;
}

/* Likewise: the superblocks, into the front of buf. */
static int collect_sb(void *arg, uint64_t offset, const uint8_t *block)
{
	struct job *j = arg;

	if (offset < LOG_OFFSET)
		memcpy(j->buf + (offset - SB_OFFSET), block, DDR_BLOCK_BYTES);
	return 0;
}

static int write_logs(struct job *j)
{
	int err = 0;

	for (j->at = 0; j->at < j->count && !err; j->at++) {
		const struct create_dev *d = &j->dev[j->at];

		tell(j, "writing the log of member", j->at);
		j->bytes = 0;
		j->logs = j->at + 1;
		err = create_member(&j->r->params, (uint8_t)j->at, collect, j);
		if (!err)
			err = run_write(j);
		if (!err && d->flush(d->arg))
			err = refuse_io(j, -EIO, j->at, "flushed");
	}
	return err;
}

static int write_all(struct job *j)
{
	int err = write_logs(j);

	for (uint32_t i = 0; i < j->count && !err; i++) {
		tell(j, "writing the superblock of member", i);
		memset(j->buf, 0, AREA_BYTES);
		err = create_member(&j->r->params, (uint8_t)i, collect_sb, j);
		if (!err)
			err = put_area(j, i, j->buf);
	}
	if (err)
		return err;
	settle(j);
	return hold_all(j);
}

/* --- giving up --- */

/* As `create` makes it: once the array was assembled, both copies have a later epoch. */
#define EPOCH_OF_CREATE 1u

static bool of_array(const uint8_t *block, const uint8_t array_uuid[DDR_UUID_BYTES], bool *used)
{
	struct superblock sb;
	struct claim c;

	if (!claim_decode(&c, block))
		return !memcmp(c.array_uuid, array_uuid, DDR_UUID_BYTES);
	if (sb_decode(&sb, block, NULL) || memcmp(sb.array_uuid, array_uuid, DDR_UUID_BYTES))
		return false;
	*used |= sb.map.epoch.num > EPOCH_OF_CREATE;
	return true;
}

/*
 * If it carries this array's claim or superblock, and only then, it gets that area back; NULL:
 * nothing. A write that failed may have been done all the same.
 *
 * An array that was assembled since is nobody's to undo, whatever a file in the state directory
 * says: that may have stayed there, or be in a copy of the directory that was made at that moment.
 */
static int give_back(struct job *j, uint32_t i, const uint8_t *area)
{
	const struct create_dev *d = &j->dev[i];
	bool ours = false, used = false;
	struct claim c;
	int err;

	if (d->open_err)
		return create_refuse(j, d->open_err, (int)i, "can't be reached: %s",
				     strerror(-d->open_err));
	err = d->read(d->arg, SB_OFFSET, mine(j, i), AREA_BYTES);
	if (err)
		return refuse_io(j, err, i, "read");
	for (uint32_t n = 0; n < SB_COPIES; n++)
		ours |= of_array(mine(j, i) + n * DDR_BLOCK_BYTES, j->r->params.array_uuid, &used);
	if (!ours || used)
		return 0;
	memset(j->buf, 0, AREA_BYTES);
	for (uint32_t n = 0; area && n < AREA_BLOCKS; n++, area += DDR_BLOCK_BYTES)
		if (claim_decode(&c, area)) /* whose claim that was may have given up since */
			memcpy(j->buf + n * DDR_BLOCK_BYTES, area, DDR_BLOCK_BYTES);
	err = put_area(j, i, j->buf);
	return err == -ENOTUNIQ ? 0 : err; /* it was taken in this moment */
}

/* The error that led here stays; e->left says whether anything may be left. */
static void back_out(struct job *j)
{
	struct create_error why = *j->e;

	j->backing_out = true;
	for (uint32_t i = 0; i < j->claimed; i++)
		why.left |=
		    give_back(j, i, i < j->logs ? NULL : j->old + (size_t)i * AREA_BYTES) != 0;
	*j->e = why;
}

/* --- the way in --- */

static int job_open(struct job *j)
{
	size_t area = (size_t)DDR_MAX_MEMBERS * AREA_BYTES;

	memset(j->r, 0, sizeof(*j->r));
	memset(j->e, 0, sizeof(*j->e));
	j->e->member = -1;
	if (!j->count || j->count > DDR_MAX_MEMBERS)
		return create_refuse(j, -EINVAL, -1,
				     "an array has 3 to %d members, and %u were given",
				     DDR_MAX_MEMBERS, j->count);
	j->buf = aligned_alloc(DDR_BLOCK_BYTES, CREATE_IO_BYTES);
	j->old = aligned_alloc(DDR_BLOCK_BYTES, area);
	j->mine = aligned_alloc(DDR_BLOCK_BYTES, area);
	j->look = aligned_alloc(DDR_BLOCK_BYTES, AREA_BYTES);
	if (!j->buf || !j->old || !j->mine || !j->look)
		return create_refuse(j, -ENOMEM, -1, "there is no memory left to create the array");
	return 0;
}

static void job_close(struct job *j)
{
	free(j->buf);
	free(j->old);
	free(j->mine);
	free(j->look);
}

int create_check(const struct create_ask *ask, const struct create_dev *dev, uint32_t count,
		 struct create_result *r, struct create_error *e)
{
	struct job j = {.ask = ask, .dev = dev, .count = count, .r = r, .e = e};
	int err = job_open(&j);

	if (!err)
		err = check_all(&j);
	job_close(&j);
	return err;
}

int create_run(const struct create_ask *ask, const struct create_dev *dev, uint32_t count,
	       struct create_result *r, struct create_error *e)
{
	struct job j = {.ask = ask, .dev = dev, .count = count, .r = r, .e = e};
	int err = job_open(&j);

	if (!err)
		err = check_all(&j);
	if (!err && ask->begin) {
		char why[STORE_WHY_BYTES];

		err = ask->begin(ask->arg, &r->params, why);
		if (err)
			create_refuse(&j, err, -1, "%s", why);
	}
	if (!err)
		err = claim_all(&j);
	if (!err)
		err = write_all(&j);
	if (err && j.claimed)
		back_out(&j);
	job_close(&j);
	return err;
}

/* --- what is somebody else's --- */

int create_clear(const struct create_ask *ask, const struct create_dev *dev, struct create_error *e)
{
	struct create_result r;
	struct job j = {.ask = ask, .dev = dev, .count = 1, .r = &r, .e = e};
	int err = job_open(&j);

	if (!err) {
		strncpy(r.params.name, ask->name, DDR_NAME_BYTES - 1);
		err = uuid_fresh(r.params.array_uuid);
		err = err ? err : uuid_fresh(r.params.member_uuid[0]);
		if (err)
			create_refuse(&j, err, -1, "no random numbers for UUIDs: %s",
				      strerror(-err));
	}
	if (!err)
		err = check_use(&j);
	if (!err)
		err = claim_all(&j);
	if (err && j.claimed)
		back_out(&j);
	else if (!err)
		err = give_back(&j, 0, NULL);
	job_close(&j);
	return err;
}

/* --- what was cut off --- */

/* Twice: a write of the process that was cut off may land in between. */
int create_undo(const struct create_ask *ask, const struct create_dev *dev, uint32_t count,
		const uint8_t array_uuid[DDR_UUID_BYTES], struct create_error *e)
{
	struct create_result r;
	struct job j = {.ask = ask, .dev = dev, .count = count, .r = &r, .e = e};
	int err = job_open(&j);

	memcpy(r.params.array_uuid, array_uuid, DDR_UUID_BYTES);
	j.settle_ms = CLAIM_SETTLE_MS;
	for (int pass = 0; pass < 2 && !err; pass++) {
		if (pass)
			settle(&j);
		for (uint32_t i = 0; i < count; i++) {
			int one = give_back(&j, i, NULL);

			err = err ? err : one;
		}
	}
	job_close(&j);
	return err;
}
