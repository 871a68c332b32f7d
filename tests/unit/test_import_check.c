/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `import` takes the devices for, by superblocks in memory: which member each is, what it
 * refuses and with which words, and that it never writes.
 */
#include "daemon/ctl/create/import_check.h"

#include <errno.h>

#include "daemon/core/format/choose.h"
#include "tests/lib/test.h"

#define DEVS 4
#define BYTES (LOG_OFFSET)

static struct {
	uint8_t disk[DEVS][BYTES];
	bool bad[DEVS][SB_COPIES]; /* can't be read */
	struct superblock sb[DEVS];
	struct create_dev dev[DEVS];
	struct import_ask ask;
	struct import_result r;
	struct create_error e;
} fx;

static int disk_read(void *arg, uint64_t offset, void *buf, uint32_t bytes)
{
	size_t i = (size_t)((uint8_t(*)[BYTES])arg - fx.disk);

	CHECK(offset + bytes <= BYTES && ((uintptr_t)buf & 4095) == 0);
	for (uint32_t c = 0; c < SB_COPIES; c++)
		if (fx.bad[i][c] && offset == geo_sb_offset(c))
			return -EIO;
	memcpy(buf, fx.disk[i] + offset, bytes);
	return 0;
}

static int disk_write(void *arg, uint64_t offset, const void *buf, uint32_t bytes)
{
	(void)arg;
	(void)offset;
	(void)buf;
	(void)bytes;
	CHECK(false);
	return -EIO;
}

static int disk_flush(void *arg)
{
	return disk_write(arg, 0, NULL, 0);
}

static void put(uint32_t i, uint32_t copy)
{
	sb_encode(&fx.sb[i], fx.disk[i] + geo_sb_offset(copy));
}

/* Three members of one array, in epoch 9, and a device that is none. */
static void setup(void)
{
	static const char *const uris[] = {"/a", "/b", "/c", "/d"};

	memset(&fx, 0, sizeof(fx));
	for (uint32_t i = 0; i < DEVS; i++) {
		struct superblock *sb = &fx.sb[i];
		struct geo g;

		fx.dev[i] = (struct create_dev){.uri = uris[i],
						.size_bytes = 64 << 20,
						.arg = &fx.disk[i],
						.read = disk_read,
						.write = disk_write,
						.flush = disk_flush};
		memset(sb->array_uuid, 0x5a, DDR_UUID_BYTES);
		memset(sb->member_uuid, (int)i + 1, DDR_UUID_BYTES);
		strcpy(sb->name, "vol0");
		sb->geo = (struct geo_params){.order = 1,
					      .m = 1,
					      .slots = 4,
					      .stripe_bytes = 8192,
					      .band_bytes = 65536,
					      .region_bytes = 4 << 20,
					      .member_bytes = 64 << 20};
		CHECK_EQ_INT(geo_choose(&g, &sb->geo, NULL), 0);
		sb->index = (uint8_t)i;
		sb->seq = 5;
		sb->committed = (struct epoch){8, 77};
		sb->map.epoch = (struct epoch){9, 77};
		sb->map.n = 3;
		for (uint8_t m = 0; m < 3; m++) {
			memset(sb->map.member[m].uuid, m + 1, DDR_UUID_BYTES);
			sb->map.member[m].state = MEMBER_IN_SYNC;
		}
		if (i < 3)
			put(i, 0);
	}
}

static int import(uint32_t count)
{
	return import_check(&fx.ask, fx.dev, count, &fx.r, &fx.e);
}

static void refused(uint32_t count, int err, const char *words)
{
	CHECK_EQ_INT(import(count), err);
	CHECK_EQ_INT(fx.e.err, err);
	if (!strstr(fx.e.text, words))
		printf("said: %s\n", fx.e.text);
	CHECK(strstr(fx.e.text, words));
}

static void swap(uint32_t a, uint32_t b)
{
	struct create_dev dev = fx.dev[a];

	fx.dev[a] = fx.dev[b];
	fx.dev[b] = dev;
}

TEST(members_are_found_in_any_order)
{
	setup();
	swap(0, 2);
	CHECK_EQ_INT(import(3), 0);
	CHECK(!strcmp(fx.r.name, "vol0"));
	CHECK_EQ_INT(fx.r.geo.n, 3);
	CHECK_EQ_INT(fx.r.dev_of[0], 2);
	CHECK_EQ_INT(fx.r.dev_of[1], 1);
	CHECK_EQ_INT(fx.r.dev_of[2], 0);
}

TEST(fewer_will_do_if_the_newest_map_has_enough_in_sync)
{
	setup();
	CHECK_EQ_INT(import(2), 0);
	CHECK_EQ_INT(fx.r.dev_of[2], IMPORT_NOWHERE);
	refused(1, -EINVAL, "needs 2 of its 3 members, and 1 is there");
	for (uint32_t i = 0; i < 2; i++) {
		fx.sb[i].map.member[1].state = MEMBER_FAULTY;
		put(i, 0);
	}
	refused(2, -EINVAL, "1 of those that are there is; not there: 2: ");
	CHECK(strstr(fx.e.text, "--stale does not help"));
	fx.ask.stale = true;
	refused(2, -EINVAL, "--stale does not help");
}

TEST(an_older_state_counts_only_if_it_is_asked_for)
{
	setup();
	fx.sb[0].map.epoch = (struct epoch){12, 77};
	fx.sb[0].committed = (struct epoch){11, 77};
	fx.sb[0].map.member[2].state = MEMBER_FAULTY;
	put(0, 0);
	refused(3, -EINVAL, "an older copy: 1: ");
	CHECK(strstr(fx.e.text, "--stale goes on with an older state"));
	fx.ask.stale = true;
	CHECK_EQ_INT(import(3), 0);
	/* These two alone know nothing of it. */
	fx.ask.stale = false;
	swap(0, 2);
	CHECK_EQ_INT(import(2), 0);
}

TEST(the_newer_intact_copy_counts)
{
	setup();
	fx.sb[1].seq = 6;
	put(1, 1);
	fx.disk[1][geo_sb_offset(0) + 100] ^= 1;
	CHECK_EQ_INT(import(3), 0);
	fx.bad[1][0] = true;
	CHECK_EQ_INT(import(3), 0);
	fx.bad[1][1] = true;
	refused(3, -EIO, "/b can't be read");
	fx.bad[1][0] = fx.bad[1][1] = false;
	fx.disk[1][geo_sb_offset(1) + 100] ^= 1;
	refused(3, -EBADMSG, "/b carries no intact superblock");
}

TEST(what_begins_elsewhere_is_no_member)
{
	setup();
	fx.sb[1].place = 2; /* written as copy 1, read as copy 0 */
	put(1, 0);
	refused(3, -EBADMSG, "/b carries no intact superblock");
}

TEST(what_is_no_member_is_refused)
{
	struct claim claim = {.name = "other"};

	setup();
	refused(4, -EINVAL, "/d carries no superblock of ddraid");
	claim_encode(&claim, fx.disk[3] + geo_sb_offset(0));
	refused(4, -EBUSY, "/d is being made a member of an array other");
	fx.sb[3].index = 0;
	memset(fx.sb[3].map.member[0].uuid, 4, DDR_UUID_BYTES);
	fx.sb[3].map.epoch = (struct epoch){5, 77};
	fx.sb[3].committed = (struct epoch){4, 77};
	put(3, 0);
	refused(4, -ENOTUNIQ, "/d was member 0 of the array, and has another device in that place");
	memset(fx.sb[3].array_uuid, 0x11, DDR_UUID_BYTES);
	put(3, 0);
	refused(4, -EINVAL, "/d is a member of the array vol0 (11111111-");
}

TEST(one_member_twice_is_refused)
{
	setup();
	memcpy(fx.disk[3], fx.disk[1], BYTES);
	refused(4, -EINVAL, "/d is member 1 of the array, and so is /b");
}

TEST(a_member_with_another_layout_is_refused)
{
	struct geo g;

	setup();
	fx.sb[1].geo.stripe_bytes = 16384;
	CHECK_EQ_INT(geo_choose(&g, &fx.sb[1].geo, NULL), 0);
	put(1, 0);
	refused(3, -EINVAL, "/b tells of another name or layout");
}

TEST(what_cant_be_reached_has_to_be_said)
{
	setup();
	fx.dev[1].open_err = -ECONNREFUSED;
	refused(3, -ECONNREFUSED, "/b ");
	CHECK(strstr(fx.e.text, "--degraded"));
	fx.ask.degraded = true;
	CHECK_EQ_INT(import(3), 0);
	CHECK_EQ_INT(fx.r.dev_of[1], 1);
	/* It has no place that is free. */
	swap(1, 3);
	memcpy(fx.disk[3], fx.disk[1], BYTES);
	fx.dev[1].open_err = 0;
	refused(4, -EINVAL, "/b can't be reached, and all members are there without it");
	for (uint32_t i = 0; i < DEVS; i++)
		fx.dev[i].open_err = -ECONNREFUSED;
	refused(4, -EINVAL, "none of these devices can be reached");
}

TEST(members_of_two_histories_are_refused)
{
	setup();
	fx.sb[2].map.epoch = (struct epoch){9, 66};
	fx.sb[2].committed = (struct epoch){8, 66};
	lineage_add(&fx.sb[0].past, &fx.sb[0].committed);
	lineage_add(&fx.sb[2].past, &fx.sb[2].committed);
	put(0, 0);
	put(2, 0);
	refused(3, -EINVAL, "the array was run twice at once");
	fx.ask.stale = true;
	CHECK_EQ_INT(import(3), 0);
}
