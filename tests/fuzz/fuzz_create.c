// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * `create` on devices that say anything of themselves: sizes, blocks, names, what they carry,
 * errors at any read or write, two names for one device. What libblkid finds is a stub.
 *
 * It is refused with a sentence, and the devices carry what they did before, unless a write failed;
 * or each carries a good superblock, and no device was taken twice.
 */
#include <errno.h>
#include <sys/random.h>

#include "daemon/core/format/codec.h"
#include "daemon/core/format/superblock.h"
#include "daemon/ctl/create/import_check.h"
#include "daemon/ctl/create/signature.h"
#include "tests/fuzz/fuzz.h"

#define DEVICES DDR_MAX_MEMBERS
#define KEPT_BYTES (1u << 20) /* of a device; what lies behind reads as zeros */

static struct fuzz_in in;

/* ---- what is not create's ------------------------------------------------------------------- */

static uint64_t random_state;

ssize_t fuzz_getrandom(void *to, size_t bytes, unsigned flags)
{
	uint8_t *at = to;

	(void)flags;
	for (size_t i = 0; i < bytes; i++) {
		random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
		at[i] = (uint8_t)(random_state >> 56);
	}
	return (ssize_t)bytes;
}

static uint8_t signatures; /* how the next devices are found: two bits each */

int signature_find(uint64_t size_bytes, signature_read_fn read, void *arg, char *what,
		   size_t what_bytes)
{
	uint8_t how = signatures & 3;

	(void)size_bytes, (void)read, (void)arg;
	signatures >>= 2;
	snprintf(what, what_bytes, "a file system");
	return how == 3 ? 1 : how == 2 ? -EIO : 0;
}

/* ---- devices -------------------------------------------------------------------------------- */

#define AREA_BLOCKS (SB_COPIES + 1u) /* with the use block */

struct disk {
	uint8_t data[KEPT_BYTES];
	uint8_t before[AREA_BLOCKS * DDR_BLOCK_BYTES];
	uint64_t used; /* of data: beyond, all are zeros */
};

static struct disk disk[DEVICES];
static struct create_dev dev[DEVICES];
static uint32_t disk_of[DEVICES];
static uint32_t fails_at, calls;
static bool write_failed;

static int call_fails(void)
{
	return ++calls == fails_at ? -EIO : 0;
}

static int dev_read(void *arg, uint64_t offset, void *buf, uint32_t bytes)
{
	struct disk *d = &disk[disk_of[(struct create_dev *)arg - dev]];

	memset(buf, 0, bytes);
	if (offset < d->used)
		memcpy(buf, d->data + offset, d->used - offset < bytes ? d->used - offset : bytes);
	return call_fails();
}

static int dev_write(void *arg, uint64_t offset, const void *buf, uint32_t bytes)
{
	struct create_dev *c = arg;
	struct disk *d = &disk[disk_of[c - dev]];
	int err = call_fails();

	assert(!c->read_only && !c->open_err);
	assert(offset >= SB_OFFSET && offset + bytes <= c->size_bytes);
	if (c->min_block_bytes)
		assert(offset % c->min_block_bytes == 0 && bytes % c->min_block_bytes == 0);
	write_failed |= err;
	if (err || offset >= KEPT_BYTES)
		return err;
	if (bytes > KEPT_BYTES - offset)
		bytes = (uint32_t)(KEPT_BYTES - offset);
	memcpy(d->data + offset, buf, bytes);
	if (offset + bytes > d->used)
		d->used = offset + bytes;
	return 0;
}

static int dev_flush(void *arg)
{
	int err = call_fails();

	(void)arg;
	write_failed |= err;
	return err;
}

/* A superblock of something, or bytes. */
static void carry(struct disk *d, uint8_t how)
{
	uint8_t *b = d->data + SB_OFFSET;
	const uint8_t *from;
	size_t n;

	from = fuzz_take(&in, fuzz_u8(&in), &n);
	if (n)
		memcpy(b + (how & 1 ? DDR_BLOCK_BYTES : 0), from, n);
	if (how & 2)
		memcpy(b, "ddraidsb", BLOCK_MAGIC_BYTES);
	if (how & 4)
		block_seal(b);
	if (how & 8) {
		uint8_t *use = d->data + USE_OFFSET;

		memcpy(use + 12, b + 12, DDR_BLOCK_BYTES - 12);
		memcpy(use, "ddraidus", BLOCK_MAGIC_BYTES);
		if (how & 16)
			block_seal(use);
	}
	d->used = SB_OFFSET + AREA_BLOCKS * DDR_BLOCK_BYTES;
}

static char uris[DEVICES][DDR_URI_BYTES + 8];

static void device(uint32_t i)
{
	static const uint32_t blocks[] = {0, 512, 4096, 8192, 16384, 65536, 1 << 20, 1 << 30};
	uint8_t how = fuzz_u8(&in), size = fuzz_u8(&in);
	size_t uri = how & 1 ? (size_t)fuzz_u8(&in) * 2 + 3 : 8;

	memset(uris[i], 'u', uri);
	uris[i][uri] = '\0';
	uris[i][0] = (char)('a' + i);
	if (size == 255)
		uris[i][0] = '\0';
	dev[i] = (struct create_dev){.uri = uris[i],
				     .arg = &dev[i],
				     .read = dev_read,
				     .write = dev_write,
				     .flush = dev_flush};
	dev[i].size_bytes = how & 2 ? fuzz_u64(&in) : (uint64_t)(size + 1) << 20;
	/* A power of two: the members' adapters see to that. */
	dev[i].min_block_bytes = blocks[how >> 2 & (how & 128 ? 7 : 1)];
	dev[i].preferred_block_bytes = how & 64 ? fuzz_u32(&in) : blocks[how >> 5 & 3];
	if (size == 254)
		dev[i].read_only = true;
	if (size == 253) {
		dev[i].open_err = -(int)(fuzz_u8(&in) % 100 + 1);
		dev[i].open_why = fuzz_u8(&in) & 1 ? uris[i] : NULL;
	}
	disk_of[i] = size == 252 ? 0 : i;
	if (size % 16 == 11)
		carry(&disk[disk_of[i]], fuzz_u8(&in));
}

static const char *known(void *arg, const uint8_t array_uuid[DDR_UUID_BYTES])
{
	(void)arg;
	return array_uuid[0] == 'k' ? "tank" : NULL;
}

static void progress(void *arg, const char *text, uint32_t done, uint32_t total)
{
	(void)arg;
	assert(text[0] && done <= total);
}

static uint64_t now_us;

static uint64_t now(void *arg)
{
	(void)arg;
	return now_us;
}

static void wait_ms(void *arg, uint32_t ms)
{
	(void)arg;
	now_us += (uint64_t)ms * 1000;
}

static uint32_t allowed_until; /* calls; then it is reserved no more */

static int allowed(void *arg, char why[STORE_WHY_BYTES])
{
	(void)arg;
	snprintf(why, STORE_WHY_BYTES, "the reservation is lost");
	if (calls < allowed_until)
		return 0;
	write_failed = true;
	return -ECANCELED;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static bool one_twice(uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		for (uint32_t k = 0; k < i; k++) {
			if (disk_of[i] == disk_of[k])
				return true;
		}
	}
	return false;
}

static void check_made(const struct create_result *r, uint32_t count)
{
	assert(!one_twice(count) && !write_failed);
	assert(memchr(r->stripe_why, '\0', sizeof(r->stripe_why)));
	for (uint32_t i = 0; i < count; i++) {
		struct superblock sb;
		int err = sb_decode(&sb, disk[i].data + SB_OFFSET, NULL);

		assert(!err && sb.index == i);
		assert(!memcmp(sb.array_uuid, r->params.array_uuid, DDR_UUID_BYTES));
		assert(sb.geo.member_bytes <= dev[i].size_bytes);
	}
}

/* Where its log was written before something else failed: what was there was nobody's, or is
 * overwritten by force. */
static bool cleared(const struct disk *d)
{
	for (size_t i = 0; i < sizeof(d->before); i++)
		if (d->data[SB_OFFSET + i])
			return false;
	return true;
}

static void check_refused(const struct create_error *e, int err, uint32_t count)
{
	assert(e->err == err && e->text[0] && memchr(e->text, '\0', sizeof(e->text)));
	assert(e->member < (int)count);
	for (uint32_t i = 0; i < DEVICES && !write_failed && !e->left; i++)
		assert(!memcmp(disk[i].data + SB_OFFSET, disk[i].before, sizeof(disk[i].before)) ||
		       cleared(&disk[i]));
}

/* What `import` says of the same devices: of an array that was just made, that it is this one. */
static void look_import(uint32_t count, uint8_t how, bool made)
{
	struct import_ask ask = {.degraded = how & 1, .stale = how & 2};
	static struct import_result r;
	static struct create_error e;
	uint32_t were = calls;
	int err;

	if (made)
		calls = fails_at; /* that was once */
	count = count < DEVICES ? count : DEVICES;
	err = import_check(&ask, dev, count, &r, &e);
	if (err)
		assert(e.err == err && e.text[0] && memchr(e.text, '\0', sizeof(e.text)));
	for (uint32_t i = 0; i < r.geo.n && !err; i++)
		assert(made ? r.dev_of[i] == i
			    : r.dev_of[i] < count || r.dev_of[i] == IMPORT_NOWHERE);
	assert(!made || !err);
	assert(err || !strcmp(made ? "vol0" : r.name, r.name));
	calls = were;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct create_ask ask = {.name = "vol0",
				 .known = known,
				 .progress = progress,
				 .inc = 1,
				 .now_us = now,
				 .pause = wait_ms,
				 .allowed = allowed};
	static struct create_result r;
	static struct create_error e;
	uint32_t count;
	uint8_t how;
	int err;

	in = (struct fuzz_in){data, bytes};
	random_state = 1;
	write_failed = false;
	calls = 0;
	now_us = 1;
	for (uint32_t i = 0; i < DEVICES; i++) {
		memset(disk[i].data, 0, disk[i].used);
		disk[i].used = 0;
	}
	how = fuzz_u8(&in);
	count = fuzz_u8(&in) % (DEVICES + 2);
	ask.wipe = how & 1;
	ask.old_member = ask.wipe != (how >> 5 & 1);
	ask.unaligned = ask.wipe != (how >> 6 & 1);
	ask.zeroed = how & 2;
	fails_at = how & 4 ? fuzz_u8(&in) : 2000; /* the log of a huge device takes its time */
	allowed_until = how & 4 && fails_at & 1 ? fails_at / 2 : UINT32_MAX;
	signatures = how & 8 ? fuzz_u8(&in) : 0;
	ask.geo.order = fuzz_u8(&in);
	ask.geo.m = how & 16 ? fuzz_u8(&in) : 0;
	ask.geo.layout = how & 32 ? fuzz_u8(&in) : 0;
	ask.geo.slots = how & 64 ? fuzz_u8(&in) : 4;
	ask.geo.stripe_bytes = how & 128 ? fuzz_u32(&in) : 0;
	ask.geo.band_bytes = how & 128 ? fuzz_u32(&in) : 0;
	ask.geo.region_bytes = how & 128 ? fuzz_u32(&in) : 0;
	for (uint32_t i = 0; i < DEVICES; i++)
		device(i);
	for (uint32_t i = 0; i < DEVICES; i++)
		memcpy(disk[i].before, disk[i].data + SB_OFFSET, sizeof(disk[i].before));
	look_import(count, how, false);
	err = create_run(&ask, dev, count, &r, &e);
	if (!err)
		look_import(count, how, true);
	if (err)
		check_refused(&e, err, count ? count : 1);
	else
		check_made(&r, count);
	return 0;
}
