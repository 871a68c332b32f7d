/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `create` refuses, with which sentence, and that it writes nothing before it has refused;
 * on sparse files, with images made by mke2fs, or by hand from the formats' descriptions.
 */
#include "daemon/core/format/choose.h"
#include "daemon/core/format/logpage.h"
#include "daemon/ctl/create/create_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include "daemon/ctl/create/signature.h"
#include "tests/lib/test.h"

#define MEMBERS 5
#define MEMBER_BYTES (16ull << 20)

struct file {
	int fd;
	char path[64];
	char uri[80];
	unsigned reads, writes, flushes;
	int fail_write_at; /* the write of this number fails, 0 = none */
	int fail_read;
	uint64_t fail_read_at; /* 0: everywhere */
};

static struct {
	char dir[40];
	struct file file[MEMBERS];
	struct create_dev dev[MEMBERS];
	struct create_ask ask;
	struct create_result r;
	struct create_error e;
	uint64_t events; /* one per write and flush, over all members */
	uint64_t last_log[MEMBERS], first_sb[MEMBERS], first_flush_after_log[MEMBERS];
} fx;

static void may_all(struct create_ask *ask, bool may)
{
	ask->wipe = ask->old_member = ask->unaligned = may;
}

static int file_read(void *arg, uint64_t offset, void *buf, uint32_t bytes)
{
	struct file *f = arg;

	CHECK(bytes <= CREATE_IO_BYTES && ((uintptr_t)buf & 4095) == 0);
	f->reads++;
	if (f->fail_read && (!f->fail_read_at || f->fail_read_at == offset))
		return -f->fail_read;
	return pread(f->fd, buf, bytes, (off_t)offset) == (ssize_t)bytes ? 0 : -EIO;
}

static int file_write(void *arg, uint64_t offset, const void *buf, uint32_t bytes)
{
	struct file *f = arg;
	size_t i = (size_t)(f - fx.file);

	CHECK(bytes <= CREATE_IO_BYTES && offset >= SB_OFFSET);
	fx.events++;
	f->writes++;
	if (f->fail_write_at && (int)f->writes == f->fail_write_at)
		return -EIO;
	if (offset >= LOG_OFFSET)
		fx.last_log[i] = fx.events;
	else if (fx.last_log[i] && !fx.first_sb[i])
		fx.first_sb[i] = fx.events;
	return pwrite(f->fd, buf, bytes, (off_t)offset) == (ssize_t)bytes ? 0 : -EIO;
}

static int file_flush(void *arg)
{
	struct file *f = arg;
	size_t i = (size_t)(f - fx.file);

	fx.events++;
	f->flushes++;
	if (fx.last_log[i] && !fx.first_flush_after_log[i])
		fx.first_flush_after_log[i] = fx.events;
	return 0;
}

static void clean_up(void)
{
	char command[64];

	if (!fx.dir[0])
		return;
	for (unsigned i = 0; i < MEMBERS; i++)
		close(fx.file[i].fd);
	snprintf(command, sizeof(command), "rm -rf %s", fx.dir);
	if (system(command))
		printf("left behind: %s\n", fx.dir);
	fx.dir[0] = '\0';
}

static void file_open(unsigned i)
{
	struct file *f = &fx.file[i];
	struct stat st;

	f->fd = open(f->path, O_RDWR | O_CREAT, 0600);
	CHECK(f->fd >= 0 && fstat(f->fd, &st) == 0);
	if (!st.st_size)
		CHECK(ftruncate(f->fd, (off_t)MEMBER_BYTES) == 0 && fstat(f->fd, &st) == 0);
	fx.dev[i] = (struct create_dev){.uri = f->uri,
					.size_bytes = (uint64_t)st.st_size,
					.min_block_bytes = 512,
					.preferred_block_bytes = 1024,
					.arg = f,
					.read = file_read,
					.write = file_write,
					.flush = file_flush};
}

static void setup(void)
{
	static bool registered;

	if (!registered)
		atexit(clean_up);
	registered = true;
	clean_up();
	memset(&fx, 0, sizeof(fx));
	strcpy(fx.dir, "/tmp/ddraid-create.XXXXXX");
	CHECK(mkdtemp(fx.dir) != NULL);
	for (unsigned i = 0; i < MEMBERS; i++) {
		snprintf(fx.file[i].path, sizeof(fx.file[i].path), "%s/m%u", fx.dir, i);
		snprintf(fx.file[i].uri, sizeof(fx.file[i].uri), "file://%s", fx.file[i].path);
		file_open(i);
	}
	fx.ask.name = "vol0";
	fx.ask.geo.order = 2;
	fx.ask.inc = 77;
}

static int create(void)
{
	int err = create_run(&fx.ask, fx.dev, MEMBERS, &fx.r, &fx.e);

	if (err)
		printf("  %s\n", fx.e.text);
	CHECK_EQ_INT(fx.e.err, err);
	CHECK(!err == !fx.e.text[0]);
	return err;
}

/* Refused, by reading only, with these words in the sentence. */
static void refused(int err, int member, const char *words)
{
	CHECK_EQ_INT(create(), err);
	CHECK_EQ_INT(fx.e.member, member);
	CHECK_MSG(strstr(fx.e.text, words), "%s", words);
	for (unsigned i = 0; i < MEMBERS; i++)
		CHECK_EQ_U64(fx.file[i].writes, 0);
}

static void is_member(unsigned i, const uint8_t array_uuid[DDR_UUID_BYTES])
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb;
	struct logpage lp;

	for (uint32_t c = 0; c < SB_COPIES; c++) {
		CHECK(pread(fx.file[i].fd, block, sizeof(block), (off_t)geo_sb_offset(c)) ==
		      sizeof(block));
		CHECK_EQ_INT(sb_decode(&sb, block, NULL), 0);
		CHECK_EQ_MEM(sb.array_uuid, array_uuid, DDR_UUID_BYTES);
		CHECK_EQ_U64(sb.index, i);
		CHECK_EQ_STR(sb.name, "vol0");
	}
	for (uint32_t s = 0; s <= fx.r.geo.p.slots; s++)
		for (uint32_t p = 0; p < fx.r.geo.log_pages; p++)
			for (uint32_t c = 0; c < 2; c++) {
				CHECK(pread(fx.file[i].fd, block, sizeof(block),
					    (off_t)geo_log_offset(&fx.r.geo, s, p, c)) ==
				      sizeof(block));
				CHECK_EQ_INT(logpage_decode(&lp, block), 0);
				CHECK_EQ_MEM(lp.array_uuid, array_uuid, DDR_UUID_BYTES);
			}
}

static void created(void)
{
	CHECK_EQ_INT(create(), 0);
	for (unsigned i = 0; i < MEMBERS; i++)
		is_member(i, fx.r.params.array_uuid);
}

TEST(empty_devices_become_an_array)
{
	setup();
	created();
	CHECK_EQ_U64(fx.r.geo.p.stripe_bytes, 4096);
	CHECK_EQ_U64(fx.r.geo.p.band_bytes, 1 << 20);
	CHECK_EQ_U64(fx.r.geo.p.slots, 32);
	CHECK_EQ_U64(fx.r.geo.p.region_bytes, 4 << 20);
	CHECK_EQ_U64(fx.r.geo.p.member_bytes, MEMBER_BYTES);
	CHECK(memcmp(fx.r.params.member_uuid[0], fx.r.params.member_uuid[1], DDR_UUID_BYTES));
	CHECK_EQ_U64(fx.r.params.array_uuid[6] >> 4, 4);
}

/* The new array's first superblock comes when every member's log is written and flushed. */
TEST(superblocks_are_written_after_all_logs_are_flushed)
{
	setup();
	created();
	for (unsigned i = 0; i < MEMBERS; i++)
		for (unsigned k = 0; k < MEMBERS; k++) {
			CHECK(fx.first_flush_after_log[i] > fx.last_log[i]);
			CHECK(fx.first_sb[k] > fx.first_flush_after_log[i]);
		}
	/* Neighbouring blocks went out together: claim, log, superblocks. */
	CHECK_EQ_U64(fx.file[0].writes, 3);
}

TEST(the_smallest_member_decides)
{
	setup();
	fx.dev[3].size_bytes = MEMBER_BYTES - (1 << 20);
	created();
	CHECK_EQ_U64(fx.r.geo.p.member_bytes, MEMBER_BYTES - (1 << 20));
}

TEST(an_ext4_image_is_refused)
{
	char command[128];

	setup();
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext4 -L 'home\a' %s", fx.file[2].path);
	if (system(command))
		SKIP("mke2fs does not work here");
	refused(-EEXIST, 2, "a file system (ext4, label \"home?\")");
	CHECK(strstr(fx.e.text, "--wipe"));
	fx.ask.old_member = fx.ask.unaligned = true; /* they are for other things */
	refused(-EEXIST, 2, "a file system (ext4, label \"home?\")");
	fx.ask.old_member = fx.ask.unaligned = false;
	fx.ask.wipe = true;
	created();
}

static void place(unsigned member, const void *bytes, size_t count, uint64_t offset)
{
	CHECK(pwrite(fx.file[member].fd, bytes, count, (off_t)offset) == (ssize_t)count);
}

static uint32_t crc32_le(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	while (bytes--) {
		crc ^= *at++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return crc;
}

static void put32(uint8_t *at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

TEST(swap_is_refused)
{
	uint8_t head[16] = {1, 0, 0, 0, 0xff}; /* version 1, last page */

	setup();
	place(0, head, sizeof(head), 1024);
	place(0, "SWAPSPACE2", 10, 4086);
	refused(-EEXIST, 0, "swap space");
	may_all(&fx.ask, true);
	created();
}

TEST(an_lvm_physical_volume_is_refused)
{
	uint8_t label[512] = "LABELONE";

	setup();
	label[8] = 1;   /* sector */
	label[20] = 32; /* offset of the body */
	memcpy(label + 24, "LVM2 001", 8);
	memcpy(label + 32, "0123456789abcdef0123456789abcdef", 32);
	put32(label + 16, crc32_le(0xf597a6cfu, label + 20, 512 - 20));
	place(4, label, sizeof(label), 512);
	refused(-EEXIST, 4, "LVM2_member");
	may_all(&fx.ask, true);
	created();
}

TEST(a_partition_table_is_refused)
{
	uint8_t mbr[512] = {0};

	setup();
	mbr[446 + 4] = 0x83;
	put32(mbr + 446 + 8, 2048);
	put32(mbr + 446 + 12, 4096);
	mbr[510] = 0x55;
	mbr[511] = 0xaa;
	place(1, mbr, sizeof(mbr), 0);
	refused(-EEXIST, 1, "a partition table (dos)");
	may_all(&fx.ask, true);
	created();
}

/* As a disk with sectors of 4 KiB has it: an older libblkid does not find it by sectors of 512
 * bytes, a newer one finds only the protective MBR. */
TEST(a_gpt_of_4k_sectors_is_refused)
{
	const uint32_t sector = 4096;
	const uint64_t last = MEMBER_BYTES / sector - 1;
	static uint8_t gpt[4096], entries[4 * 4096];
	uint8_t mbr[512] = {0};

	setup();
	memset(entries, 0, sizeof(entries));
	memset(entries, 0x11, 32);
	put32(entries + 32, 100);
	put32(entries + 40, 200);
	memset(gpt, 0, sizeof(gpt));
	memcpy(gpt, "EFI PART\0\0\1\0", 12);
	put32(gpt + 12, 92);
	put32(gpt + 24, 1);
	put32(gpt + 32, (uint32_t)last);
	put32(gpt + 40, 6);
	put32(gpt + 48, (uint32_t)last - 5);
	memset(gpt + 56, 0x22, 16);
	put32(gpt + 72, 2);
	put32(gpt + 80, 128);
	put32(gpt + 84, 128);
	put32(gpt + 88, ~crc32_le(~0u, entries, sizeof(entries)));
	put32(gpt + 16, ~crc32_le(~0u, gpt, 92));
	place(3, gpt, sizeof(gpt), sector);
	place(3, entries, sizeof(entries), 2 * sector);
	mbr[446 + 4] = 0xee;
	put32(mbr + 446 + 8, 1);
	put32(mbr + 446 + 12, (uint32_t)last);
	mbr[510] = 0x55;
	mbr[511] = 0xaa;
	place(3, mbr, sizeof(mbr), 0);
	refused(-EEXIST, 3, "a partition table (");
}

/* md's format 1.0, in the last 8 KiB: found in the copy of the tail. */
TEST(a_signature_at_the_end_is_found)
{
	uint8_t sb[256] = {0xfc, 0x4e, 0x2b, 0xa9, 1};
	uint64_t offset = ((MEMBER_BYTES / 512 - 16) & ~7ull) * 512;

	setup();
	put32(sb + 144, (uint32_t)(offset / 512));
	place(2, sb, sizeof(sb), offset);
	refused(-EEXIST, 2, "linux_raid_member");
}

/* Its file table is in the middle, where nothing was copied. */
TEST(ntfs_is_known_by_its_boot_sector)
{
	setup();
	place(2, "NTFS    ", 8, 3);
	refused(-EEXIST, 2, "an NTFS file system");
}

static uint64_t bytes_read;

static int hole_read(void *arg, uint64_t offset, void *buf, uint32_t bytes)
{
	(void)arg;
	(void)offset;
	bytes_read += bytes;
	memset(buf, 0, bytes);
	return 0;
}

TEST(a_huge_member_costs_little)
{
	char what[64];

	bytes_read = 0;
	CHECK_EQ_INT(signature_find(1ull << 50, hole_read, NULL, what, sizeof(what)), 0);
	CHECK(bytes_read <= SIGNATURE_HEAD_BYTES + SIGNATURE_TAIL_BYTES + SIGNATURE_READ_BYTES);
	CHECK_EQ_INT(signature_find(512, hole_read, NULL, what, sizeof(what)), 0);
}

TEST(a_member_of_another_array_is_refused)
{
	uint8_t first[DDR_UUID_BYTES];

	setup();
	created();
	memcpy(first, fx.r.params.array_uuid, sizeof(first));
	for (unsigned i = 0; i < MEMBERS; i++) {
		fx.file[i].writes = 0;
		if (i != 3)
			CHECK(ftruncate(fx.file[i].fd, 0) == 0 &&
			      ftruncate(fx.file[i].fd, (off_t)MEMBER_BYTES) == 0);
	}
	refused(-EEXIST, 3, "is member 3 of the ddraid array vol0");
	may_all(&fx.ask, true);
	created();
	CHECK(memcmp(first, fx.r.params.array_uuid, sizeof(first)));
}

static const char *knows_all(void *arg, const uint8_t uuid[DDR_UUID_BYTES])
{
	(void)arg;
	(void)uuid;
	return "production";
}

static void empty(unsigned i)
{
	CHECK(ftruncate(fx.file[i].fd, 0) == 0 &&
	      ftruncate(fx.file[i].fd, (off_t)MEMBER_BYTES) == 0);
}

/* The copy that can be read says whose it is. */
TEST(a_member_of_another_array_is_known_by_either_copy)
{
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		setup();
		created();
		for (unsigned i = 0; i < MEMBERS; i++) {
			fx.file[i].writes = 0;
			if (i != 3)
				empty(i);
		}
		fx.file[3].fail_read = EIO;
		fx.file[3].fail_read_at = geo_sb_offset(c);
		refused(-EEXIST, 3, "is member 3 of the ddraid array vol0");
	}
	/* Of an empty device with a bad sector there nobody knows. */
	empty(3);
	refused(-EIO, 3, "can't be read");
}

TEST(a_known_arrays_member_is_refused_by_force_too)
{
	setup();
	created();
	for (unsigned i = 0; i < MEMBERS; i++)
		fx.file[i].writes = 0;
	fx.ask.known = knows_all;
	refused(-ENOTUNIQ, 0, "'ddraidctl forget production'");
	may_all(&fx.ask, true);
	refused(-ENOTUNIQ, 0, "'ddraidctl forget production'");
	/* One good copy is enough to be known. */
	place(0, "x", 1, SB_OFFSET + 100);
	refused(-ENOTUNIQ, 0, "'ddraidctl forget production'");
}

static enum create_standing told;

static enum create_standing tells(void *arg, const struct superblock *sb)
{
	(void)arg;
	CHECK(!strcmp(sb->name, "vol0"));
	return told;
}

TEST(a_device_that_was_replaced_in_a_known_array_is_taken_by_force_alone)
{
	static const struct {
		enum create_standing standing;
		const char *what;
	} refusal[] = {{STANDING_MEMBER, "'ddraidctl forget production'"},
		       {STANDING_UNSURE, "'ddraidctl start production' and try again"},
		       {STANDING_ADDED, "'ddraidctl add production 0'"},
		       {STANDING_AWAY, "not in sync yet"}};

	for (int force = 0; force < 2; force++) {
		setup();
		created();
		for (unsigned i = 0; i < MEMBERS; i++)
			fx.file[i].writes = 0;
		fx.ask.known = knows_all;
		fx.ask.standing = tells;
		may_all(&fx.ask, force);
		for (size_t i = 0; i < sizeof(refusal) / sizeof(refusal[0]); i++) {
			told = refusal[i].standing;
			refused(-ENOTUNIQ, 0, refusal[i].what);
		}
		told = STANDING_REPLACED;
		if (!force)
			refused(-EEXIST, 0, "or --old-member to overwrite what is left on it");
		told = STANDING_DIFFERS;
		if (!force)
			refused(-EEXIST, 0, "it has a history of its own");
	}
	created();
}

/* Who is away may hold what nobody else has. */
TEST(only_a_map_that_serves_says_that_a_device_was_replaced)
{
	struct engine_status st = {.state = ENGINE_ACTIVE, .io_allowed = true};
	struct superblock sb = {.index = 2};

	st.map.n = 3;
	st.map.epoch = (struct epoch){7, 1};
	for (uint8_t i = 0; i < st.map.n; i++) {
		st.map.member[i].state = MEMBER_IN_SYNC;
		memset(st.map.member[i].uuid, 10 + i, DDR_UUID_BYTES);
	}
	memset(sb.member_uuid, 99, DDR_UUID_BYTES);
	sb.map.epoch = (struct epoch){6, 1};
	CHECK(create_standing(&sb, NULL) == STANDING_UNSURE);
	CHECK(create_standing(&sb, &st) == STANDING_REPLACED);
	for (int state = ENGINE_WAIT_QUORUM; state <= ENGINE_STOPPED; state++) {
		st.state = (enum engine_state)state;
		CHECK(create_standing(&sb, &st) ==
		      (state == ENGINE_ACTIVE ? STANDING_REPLACED : STANDING_UNSURE));
	}
	st.state = ENGINE_ACTIVE;
	st.io_allowed = false;
	CHECK(create_standing(&sb, &st) == STANDING_UNSURE);
	st.io_allowed = st.proposing = true;
	CHECK(create_standing(&sb, &st) == STANDING_UNSURE);
	st.proposing = false;
	for (int state = MEMBER_MISSING; state <= MEMBER_REBUILDING; state++) {
		st.map.member[2].state = (uint8_t)state;
		CHECK(create_standing(&sb, &st) ==
		      (state == MEMBER_IN_SYNC ? STANDING_REPLACED : STANDING_AWAY));
	}
	st.map.member[2].state = MEMBER_IN_SYNC;
	/* Run apart from the array: what was written there then is nowhere else. */
	st.past.count = 1;
	st.past.epoch[0] = sb.committed = (struct epoch){5, 1};
	CHECK(create_standing(&sb, &st) == STANDING_REPLACED);
	sb.committed.inc = 2;
	CHECK(create_standing(&sb, &st) == STANDING_DIFFERS);
	sb.committed = (struct epoch){0};
	sb.map.epoch.num = 8; /* newer than all that is known here */
	CHECK(create_standing(&sb, &st) == STANDING_UNSURE);
	sb.map.epoch.num = 0;
	CHECK(create_standing(&sb, &st) == STANDING_ADDED);
	sb.map.epoch.num = 6;
	sb.index = 3;
	CHECK(create_standing(&sb, &st) == STANDING_UNSURE);
	sb.index = 2;
	memset(sb.member_uuid, 11, DDR_UUID_BYTES); /* it has another place */
	CHECK(create_standing(&sb, &st) == STANDING_MEMBER);
}

/* And nothing else of the device is touched. */
TEST(what_is_cleared_by_force_is_nobodys)
{
	struct create_error e;
	uint8_t block[SB_COPIES * DDR_BLOCK_BYTES];

	setup();
	created();
	may_all(&fx.ask, true);
	fx.ask.known = knows_all;
	fx.ask.standing = tells;
	told = STANDING_MEMBER;
	CHECK(create_clear(&fx.ask, &fx.dev[1], &e) == -ENOTUNIQ);
	told = STANDING_REPLACED;
	CHECK_MSG(!create_clear(&fx.ask, &fx.dev[1], &e), "%s", e.text);
	CHECK(pread(fx.file[1].fd, block, sizeof(block), SB_OFFSET) == sizeof(block));
	for (size_t i = 0; i < sizeof(block); i++)
		CHECK(!block[i]);
	fx.file[2].writes = 0;
	fx.file[2].fail_write_at = 1;
	CHECK(create_clear(&fx.ask, &fx.dev[2], &e) == -EIO);
}

TEST(a_damaged_superblock_is_refused)
{
	setup();
	created();
	for (unsigned i = 0; i < MEMBERS; i++)
		fx.file[i].writes = 0;
	place(0, "x", 1, SB_OFFSET + 100);
	place(0, "x", 1, SB_OFFSET + DDR_BLOCK_BYTES + 100);
	refused(-EEXIST, 0, "a superblock of ddraid that is damaged");
	may_all(&fx.ask, true);
	created();
}

static uint64_t smallest(void)
{
	struct geo g;
	struct geo_params p = {.order = 2,
			       .m = 1,
			       .slots = 32,
			       .stripe_bytes = 4096,
			       .band_bytes = 1 << 20,
			       .region_bytes = 4 << 20};

	p.member_bytes = 1 << 20;
	while (geo_choose(&g, &p, NULL))
		p.member_bytes += 1024;
	return p.member_bytes;
}

TEST(too_small_by_one_byte_is_refused)
{
	char words[64];
	uint64_t bytes = smallest();

	setup();
	fx.ask.geo.region_bytes = 4 << 20;
	fx.dev[1].size_bytes = bytes - 1;
	snprintf(words, sizeof(words), "it has %" PRIu64 " bytes", bytes - 1);
	refused(-ENOSPC, 1, words);
	snprintf(words, sizeof(words), "needs at least %" PRIu64 ";", bytes);
	CHECK(strstr(fx.e.text, words));
	may_all(&fx.ask, true);
	refused(-ENOSPC, 1, words);
	fx.dev[1].size_bytes = 0;
	refused(-ENOSPC, 1, "too small");
	fx.dev[1].size_bytes = bytes;
	created();
}

/* What a member had where the claims went is there again. */
static void duplicate_is_refused(bool force)
{
	static uint8_t before[SB_OFFSET * 4], after[SB_OFFSET * 4];

	may_all(&fx.ask, force);
	if (force)
		place(1, "something that --wipe overwrites", 33, SB_OFFSET);
	CHECK(pread(fx.file[1].fd, before, sizeof(before), 0) == sizeof(before));
	CHECK_EQ_INT(create(), -ENOTUNIQ);
	CHECK(strstr(fx.e.text, "one and the same device"));
	CHECK(strstr(fx.e.text, fx.file[1].uri) && strstr(fx.e.text, fx.file[4].uri));
	CHECK(pread(fx.file[1].fd, after, sizeof(after), 0) == sizeof(after));
	CHECK_EQ_MEM(after, before, sizeof(before));
}

TEST(one_device_by_two_uris_is_refused_by_force_too)
{
	for (int hard = 0; hard < 2; hard++)
		for (int force = 0; force < 2; force++) {
			setup();
			close(fx.file[4].fd);
			CHECK(unlink(fx.file[4].path) == 0);
			CHECK((hard ? link : symlink)(fx.file[1].path, fx.file[4].path) == 0);
			file_open(4);
			duplicate_is_refused(force);
		}
}

TEST(one_uri_twice_is_refused_without_a_look)
{
	setup();
	fx.dev[3].uri = fx.dev[0].uri;
	may_all(&fx.ask, true);
	refused(-ENOTUNIQ, 3, "already named as member 0");
	CHECK_EQ_U64(fx.file[0].reads, 0);
}

TEST(unreachable_and_read_only_members_are_refused)
{
	setup();
	may_all(&fx.ask, true);
	fx.dev[2].open_err = -ECONNREFUSED;
	refused(-ECONNREFUSED, 2, "can't be used: Connection refused; correct its path");
	fx.dev[2].uri = "nbd://host/x";
	fx.dev[2].open_why = "nbd://host/x: nobody listens";
	refused(-ECONNREFUSED, 2,
		"member 2 (nbd://host/x) can't be reached: nobody listens; start its exporter, or "
		"correct the URI");
	fx.dev[2].open_err = -EROFS;
	fx.dev[2].open_why = "nbd://host/x: the export is read-only; export it writable";
	refused(
	    -EROFS, 2,
	    "member 2 (nbd://host/x) is of no use: the export is read-only; export it writable");
	CHECK(!strstr(fx.e.text, "start its exporter"));
	fx.dev[2].open_err = -EOPNOTSUPP;
	fx.dev[2].open_why = "nbd://host/x: no flush";
	refused(-EOPNOTSUPP, 2, "is of no use: no flush; name another device");
	fx.dev[2].open_err = 0;
	fx.dev[2].read_only = true;
	refused(-EROFS, 2, "read-only");
}

static void stripe_is(uint32_t bytes, const char *why)
{
	created();
	CHECK_EQ_U64(fx.r.geo.p.stripe_bytes, bytes);
	CHECK_MSG(strstr(fx.r.stripe_why, why) && (why[0] || !fx.r.stripe_why[0]), "%s: %s", why,
		  fx.r.stripe_why);
}

TEST(the_stripe_fits_the_members_blocks)
{
	setup();
	stripe_is(4096, "stripe 4 KiB: the smallest");
	setup();
	fx.dev[2].preferred_block_bytes = 0; /* it doesn't say */
	fx.dev[3].preferred_block_bytes = 4096;
	stripe_is(16384, "stripe 16 KiB: member 3 (file:///");
	CHECK(strstr(fx.r.stripe_why, "m3) has blocks of 4 KiB"));
	setup();
	fx.dev[1].min_block_bytes = 2048;
	stripe_is(8192, "stripe 8 KiB: member 1");
	setup();
	fx.dev[1].preferred_block_bytes = 16384;
	stripe_is(65536, "has blocks of 16 KiB");
	setup();
	fx.dev[1].preferred_block_bytes = 4096;
	fx.ask.geo.stripe_bytes = 32768;
	stripe_is(32768, "");
	/* The largest: a band has 32 of its fragments. */
	setup();
	fx.ask.geo.stripe_bytes = 131072;
	stripe_is(131072, "");
	CHECK_EQ_U64(fx.r.geo.p.band_bytes, 1 << 20);
}

TEST(a_large_preferred_size_is_no_block)
{
	setup();
	fx.dev[4].preferred_block_bytes = 2 << 20;
	stripe_is(16384, "stripe 16 KiB: member 4");
	CHECK(strstr(fx.r.stripe_why,
		     "; member 4 prefers 2 MiB, which is no disk's block, so 4 KiB"));
	setup();
	fx.dev[4].preferred_block_bytes = 65536;
	fx.ask.geo.stripe_bytes = 16384;
	stripe_is(16384, "");
	setup();
	fx.dev[4].preferred_block_bytes = 65536;
	fx.ask.geo.stripe_bytes = 8192;
	refused(-EINVAL, 4, "has blocks of 4 KiB");
}

TEST(blocks_above_the_fragment_have_to_be_allowed)
{
	uint8_t head[16] = {1, 0, 0, 0, 0xff}, none[16] = {0};

	setup();
	fx.dev[2].preferred_block_bytes = 4096;
	fx.ask.geo.stripe_bytes = 4096;
	refused(-EINVAL, 2, "choose --stripe 16K, or --unaligned");
	/* Who says it for the blocks must know by then that nothing is overwritten. */
	place(3, head, sizeof(head), 1024);
	place(3, "SWAPSPACE2", 10, 4086);
	refused(-EEXIST, 3, "swap space");
	place(3, none, 10, 4086);
	refused(-EINVAL, 2, "choose --stripe 16K, or --unaligned");
	fx.ask.geo.stripe_bytes = 16384;
	created();
	setup();
	fx.dev[2].preferred_block_bytes = 4096;
	fx.ask.geo.stripe_bytes = 4096;
	fx.ask.wipe = fx.ask.old_member = true;
	refused(-EINVAL, 2, "choose --stripe 16K, or --unaligned");
	fx.ask.wipe = fx.ask.old_member = false;
	fx.ask.unaligned = true;
	place(3, "SWAPSPACE2", 10, 4086);
	place(3, head, sizeof(head), 1024);
	refused(-EEXIST, 3, "swap space");
	place(3, none, 10, 4086);
	created();
}

TEST(requests_that_a_member_can_not_take_are_not_forced)
{
	setup();
	fx.dev[2].min_block_bytes = 4096;
	fx.ask.geo.stripe_bytes = 4096;
	may_all(&fx.ask, true);
	refused(-EINVAL, 2, "choose --stripe 16K");
	fx.dev[2].min_block_bytes = 8192; /* no stripe helps that */
	refused(-EINVAL, 2, "with smaller blocks");
}

TEST(parameters_are_judged_before_devices)
{
	setup();
	fx.dev[0].open_err = -ECONNREFUSED;
	fx.ask.name = "a/b";
	refused(-EINVAL, -1, "the array's name \"a/b\" can't be used");
	fx.ask.name = "vol0";
	fx.ask.geo.order = 9;
	refused(-EINVAL, -1, "choose 1, 2 or 3");
	fx.ask.geo.order = 0;
	refused(-EOPNOTSUPP, -1, "mirror");
	fx.ask.geo.order = 3;
	refused(-EINVAL, -1, "has 9 members (8 for data, 1 for parity) and 5 were given");
	fx.ask.geo.order = 2;
	fx.ask.geo.stripe_bytes = 5000;
	refused(-EINVAL, -1, "stripe");
	fx.ask.geo.stripe_bytes = 0;
	fx.ask.geo.region_bytes = 4097;
	refused(-EINVAL, -1, "region");
	fx.ask.geo.region_bytes = 0;
	fx.ask.geo.slots = 1;
	refused(-EINVAL, -1, "slots");
	fx.ask.geo.slots = 0;
	CHECK_EQ_INT(create_run(&fx.ask, fx.dev, 0, &fx.r, &fx.e), -EINVAL);
	CHECK_EQ_INT(create_run(&fx.ask, fx.dev, 11, &fx.r, &fx.e), -EINVAL);
}

TEST(a_member_that_can_not_be_read_is_refused)
{
	setup();
	fx.file[3].fail_read = EIO;
	refused(-EIO, 3, "can't be read: Input/output error");
	may_all(&fx.ask, true);
	refused(-EIO, 3, "can't be read");
}

/* Wherever a write fails, no member carries a superblock afterwards that wasn't there before. */
TEST(a_write_that_fails_leaves_no_array)
{
	for (int at = 1; at <= 3; at++) {
		uint8_t block[DDR_BLOCK_BYTES];
		struct superblock sb;

		setup();
		fx.file[2].fail_write_at = at;
		CHECK_EQ_INT(create(), -EIO);
		CHECK_EQ_INT(fx.e.member, 2);
		for (unsigned i = 0; i < MEMBERS; i++)
			for (uint32_t c = 0; c < SB_COPIES; c++) {
				CHECK(pread(fx.file[i].fd, block, sizeof(block),
					    (off_t)geo_sb_offset(c)) == sizeof(block));
				CHECK_EQ_INT(sb_decode(&sb, block, NULL), -ENOENT);
			}
	}
}

/* By force: whose log was not reached yet is again what it was. */
TEST(a_create_by_force_that_fails_gives_back_what_it_has_not_spoilt)
{
	uint8_t first[DDR_UUID_BYTES], block[DDR_BLOCK_BYTES];
	struct superblock sb;

	setup();
	created();
	memcpy(first, fx.r.params.array_uuid, sizeof(first));
	for (unsigned i = 0; i < MEMBERS; i++)
		fx.file[i].writes = 0;
	may_all(&fx.ask, true);
	fx.file[2].fail_write_at = 2; /* after the claim */
	CHECK_EQ_INT(create(), -EIO);
	CHECK_EQ_INT(fx.e.member, 2);
	for (unsigned i = 3; i < MEMBERS; i++)
		is_member(i, first);
	for (unsigned i = 0; i < 3; i++)
		for (uint32_t c = 0; c < SB_COPIES; c++) {
			CHECK(pread(fx.file[i].fd, block, sizeof(block), (off_t)geo_sb_offset(c)) ==
			      sizeof(block));
			CHECK_EQ_INT(sb_decode(&sb, block, NULL), -ENOENT);
		}
}

TEST(create_check_writes_nothing)
{
	setup();
	CHECK_EQ_INT(create_check(&fx.ask, fx.dev, MEMBERS, &fx.r, &fx.e), 0);
	for (unsigned i = 0; i < MEMBERS; i++)
		CHECK_EQ_U64(fx.file[i].writes, 0);
}

/* ---- two at once ---------------------------------------------------------------------------- */

/*
 * Creates that want the same devices, each under names of its own, in virtual time: whoever does
 * I/O or pauses hands over to the other, and each request lands at a moment drawn from the seed.
 */
#define RACERS 2
#define RACE_MEMBERS 3
#define RACE_STACK_BYTES (1u << 20)

struct racer {
	ucontext_t context;
	uint8_t *stack;
	uint64_t at_us;   /* goes on then */
	uint64_t dies_us; /* never after this; 0 = lives */
	bool over, forced;
	int err;
	int file[RACE_MEMBERS];
	char uri[RACE_MEMBERS][32];
	struct create_dev dev[RACE_MEMBERS];
	struct create_ask ask;
	struct create_result r;
	struct create_error e;
};

static struct {
	struct racer racer[RACERS];
	ucontext_t main;
	struct racer *runs;
	uint64_t now_us, seed;
	bool hasty; /* nobody waits before trust */
} race;

static uint64_t drawn(uint64_t below)
{
	race.seed ^= race.seed << 13;
	race.seed ^= race.seed >> 7;
	race.seed ^= race.seed << 17;
	return race.seed % below;
}

static void wait_us(uint64_t us)
{
	struct racer *x = race.runs;

	x->at_us = race.now_us + us;
	swapcontext(&x->context, &race.main);
}

/* Half of a request: most are quick, some take as long as can be, if read and write together are to
 * take less than the others wait. */
static void half_a_request(void)
{
	wait_us(1 + drawn(drawn(40) ? 1000 : 200000));
}

static int race_read(void *arg, uint64_t offset, void *buf, uint32_t bytes)
{
	int err;

	half_a_request();
	err = file_read(&fx.file[*(int *)arg], offset, buf, bytes);
	half_a_request();
	return err;
}

static int race_write(void *arg, uint64_t offset, const void *buf, uint32_t bytes)
{
	int err;

	half_a_request();
	err = file_write(&fx.file[*(int *)arg], offset, buf, bytes);
	half_a_request();
	return err;
}

static int race_flush(void *arg)
{
	(void)arg;
	half_a_request();
	return 0;
}

static uint64_t race_now(void *arg)
{
	(void)arg;
	return race.now_us;
}

static void race_pause(void *arg, uint32_t ms)
{
	(void)arg;
	if (!race.hasty)
		wait_us(ms * 1000ull);
}

/* An array is told to all as soon as it is made. */
static const char *race_known(void *arg, const uint8_t uuid[DDR_UUID_BYTES])
{
	(void)arg;
	for (int i = 0; i < RACERS; i++)
		if (race.racer[i].over && !race.racer[i].err &&
		    !memcmp(race.racer[i].r.params.array_uuid, uuid, DDR_UUID_BYTES))
			return "won";
	return NULL;
}

static void racer_runs(void)
{
	struct racer *x = race.runs;

	x->err = create_run(&x->ask, x->dev, RACE_MEMBERS, &x->r, &x->e);
	x->over = true;
	swapcontext(&x->context, &race.main);
}

static void racer_init(int i, int first, bool force)
{
	struct racer *x = &race.racer[i];
	uint8_t *stack = x->stack ? x->stack : malloc(RACE_STACK_BYTES);

	CHECK(stack);
	memset(x, 0, sizeof(*x));
	x->stack = stack;
	x->forced = force;
	for (int m = 0; m < RACE_MEMBERS; m++) {
		x->file[m] = (first + m) % MEMBERS;
		x->dev[m] = fx.dev[x->file[m]];
		snprintf(x->uri[m], sizeof(x->uri[m]), "nbd://host%d/%d", i, x->file[m]);
		x->dev[m].uri = x->uri[m];
		x->dev[m].arg = &x->file[m];
		x->dev[m].read = race_read;
		x->dev[m].write = race_write;
		x->dev[m].flush = race_flush;
	}
	x->ask.name = i ? "two" : "one";
	x->ask.geo.order = 1;
	x->ask.inc = 77 + (uint64_t)i;
	may_all(&x->ask, force);
	x->ask.known = race_known;
	x->ask.now_us = race_now;
	x->ask.pause = race_pause;
	x->at_us = drawn(100000);
	x->ask.geo.slots = 2;
	CHECK(!getcontext(&x->context));
	x->context.uc_stack.ss_sp = x->stack;
	x->context.uc_stack.ss_size = RACE_STACK_BYTES;
	makecontext(&x->context, racer_runs, 0);
}

static bool dead(const struct racer *x)
{
	return x->dies_us && x->at_us > x->dies_us;
}

static void race_run(void)
{
	race.now_us = 0;
	for (;;) {
		struct racer *next = NULL;

		for (int i = 0; i < RACERS; i++) {
			struct racer *x = &race.racer[i];

			if (!x->over && !dead(x) && (!next || x->at_us < next->at_us))
				next = x;
		}
		if (!next)
			return;
		race.now_us = next->at_us;
		race.runs = next;
		swapcontext(&race.main, &next->context);
	}
}

/* Whoever was told that it has an array has it: superblocks and logs, on all of its members. */
static bool racer_has_all(const struct racer *x)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb;
	struct logpage lp;

	for (int m = 0; m < RACE_MEMBERS; m++) {
		int fd = fx.file[x->file[m]].fd;

		for (uint32_t c = 0; c < SB_COPIES; c++) {
			CHECK(pread(fd, block, sizeof(block), (off_t)geo_sb_offset(c)) ==
			      sizeof(block));
			if (sb_decode(&sb, block, NULL) ||
			    memcmp(sb.array_uuid, x->r.params.array_uuid, DDR_UUID_BYTES))
				return false;
		}
		for (uint32_t s = 0; s <= x->r.geo.p.slots; s++) {
			CHECK(pread(fd, block, sizeof(block),
				    (off_t)geo_log_offset(&x->r.geo, s, 0, 0)) == sizeof(block));
			if (logpage_decode(&lp, block) ||
			    memcmp(lp.array_uuid, x->r.params.array_uuid, DDR_UUID_BYTES))
				return false;
		}
	}
	return true;
}

/* Nothing of an array that its maker gave up is left anywhere. */
static bool racer_has_nothing(const struct racer *x)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct superblock sb;
	struct claim c;

	for (int m = 0; m < RACE_MEMBERS; m++)
		for (uint32_t n = 0; n < SB_COPIES; n++) {
			CHECK(pread(fx.file[x->file[m]].fd, block, sizeof(block),
				    (off_t)geo_sb_offset(n)) == sizeof(block));
			if ((!sb_decode(&sb, block, NULL) &&
			     !memcmp(sb.array_uuid, x->r.params.array_uuid, DDR_UUID_BYTES)) ||
			    (!claim_decode(&c, block) &&
			     !memcmp(c.array_uuid, x->r.params.array_uuid, DDR_UUID_BYTES)))
				return false;
		}
	return true;
}

static void race_setup(uint64_t seed, int apart)
{
	race.seed = seed * 0x9e3779b97f4a7c15ull + 1;
	for (int i = 0; i < 3; i++)
		drawn(2);
	racer_init(0, 0, drawn(2));
	racer_init(1, apart, drawn(2));
}

static void files_empty(void)
{
	for (int i = 0; i < MEMBERS; i++)
		CHECK(ftruncate(fx.file[i].fd, 0) == 0 &&
		      ftruncate(fx.file[i].fd, (off_t)MEMBER_BYTES) == 0);
}

static unsigned both_won, one_won, none_won;

static bool race_once(uint64_t seed)
{
	struct racer *a = &race.racer[0], *b = &race.racer[1];
	bool good = true;

	files_empty();
	race_setup(seed, (int)(seed % 3)); /* they share three, two or one */
	race_run();
	CHECK(a->over && b->over);
	for (int i = 0; i < RACERS; i++) {
		const struct racer *x = &race.racer[i];

		good &=
		    x->err ? x->e.text[0] && !x->e.left && racer_has_nothing(x) : racer_has_all(x);
	}
	both_won += !a->err && !b->err;
	one_won += !a->err != !b->err;
	none_won += a->err && b->err;
	return good && (a->err || b->err);
}

/* Each is another order of two creates. More of them with `tools/check --all`. */
static uint64_t races(uint64_t n)
{
	const char *rounds = getenv("DDRAID_TEST_ROUNDS");

	return n * (rounds ? strtoul(rounds, NULL, 10) : 1);
}

TEST(of_two_creates_of_one_device_at_most_one_has_it)
{
	setup();
	race.hasty = false;
	both_won = one_won = none_won = 0;
	for (uint64_t seed = 1; seed <= races(70); seed++)
		CHECK_MSG(race_once(seed), "seed %llu", (unsigned long long)seed);
	printf("  one has it: %u, nobody: %u\n", one_won, none_won);
	CHECK(one_won > races(50) && !both_won);
}

/* The world above can tell: without the wait before trust it finds what goes wrong. */
TEST(without_the_wait_two_creates_get_one_device)
{
	unsigned bad = 0;

	setup();
	race.hasty = true;
	for (uint64_t seed = 1; seed <= races(100); seed++)
		bad += !race_once(seed);
	race.hasty = false;
	printf("  %u runs went wrong, in %u both believe to have it\n", bad, both_won);
	CHECK(bad > 0);
}

/* A create dies at any moment; what it has left is undone, and then it is created anew. */
TEST(a_create_that_dies_is_undone_and_can_be_repeated)
{
	setup();
	for (uint64_t seed = 1; seed <= races(40); seed++) {
		struct racer *a = &race.racer[0];
		struct create_dev dev[RACE_MEMBERS];
		struct create_ask ask = {.name = "one", .inc = 77};
		uint8_t first[DDR_UUID_BYTES];

		files_empty();
		race_setup(seed, 0);
		race.racer[1].over = true;
		race.racer[1].err = -ECANCELED;
		a->at_us = 0;
		a->dies_us = 1 + drawn(6000000);
		race_run();
		if (a->over) {
			CHECK_EQ_INT(a->err, 0);
			continue;
		}
		memcpy(first, a->r.params.array_uuid, sizeof(first));
		for (int m = 0; m < RACE_MEMBERS; m++) {
			dev[m] = fx.dev[m];
			dev[m].uri = a->uri[m];
		}
		CHECK_EQ_INT(create_undo(&ask, dev, RACE_MEMBERS, first, &fx.e), 0);
		CHECK(racer_has_nothing(a));
		race_setup(seed, 0);
		race.racer[1].over = true;
		race.racer[1].err = -ECANCELED;
		may_all(&a->ask, false);
		race_run();
		CHECK_MSG(!a->err, "%s", a->e.text);
		CHECK(racer_has_all(a));
		/* What is whole, and another's, is not touched. */
		CHECK_EQ_INT(create_undo(&ask, dev, RACE_MEMBERS, first, &fx.e), 0);
		CHECK(racer_has_all(a));
	}
}

/* The file that says so stayed, or is in a copy of the state directory. */
TEST(an_array_that_was_assembled_is_not_undone)
{
	struct racer *a = &race.racer[0];
	struct create_ask ask = {.name = "one", .inc = 77};
	struct create_dev dev[RACE_MEMBERS];
	static uint8_t block[DDR_BLOCK_BYTES] __attribute__((aligned(DDR_BLOCK_BYTES)));
	struct superblock sb;

	setup();
	files_empty();
	race_setup(1, 0);
	race.racer[1].over = true;
	race.racer[1].err = -ECANCELED;
	a->at_us = 0;
	race_run();
	CHECK_EQ_INT(a->err, 0);
	for (int m = 0; m < RACE_MEMBERS; m++) {
		dev[m] = fx.dev[m];
		dev[m].uri = a->uri[m];
		/* Its first leader has come as far as to one copy. */
		CHECK_EQ_INT(dev[m].read(dev[m].arg, SB_OFFSET, block, sizeof(block)), 0);
		CHECK_EQ_INT(sb_decode(&sb, block, NULL), 0);
		CHECK_EQ_U64(sb.map.epoch.num, 1);
		sb.map.epoch.num = 2;
		sb.seq++;
		sb_encode(&sb, block);
		CHECK_EQ_INT(dev[m].write(dev[m].arg, SB_OFFSET, block, sizeof(block)), 0);
	}
	CHECK_EQ_INT(create_undo(&ask, dev, RACE_MEMBERS, a->r.params.array_uuid, &fx.e), 0);
	for (int m = 0; m < RACE_MEMBERS; m++) {
		CHECK_EQ_INT(dev[m].read(dev[m].arg, SB_OFFSET, block, sizeof(block)), 0);
		CHECK_EQ_INT(sb_decode(&sb, block, NULL), 0);
		CHECK_EQ_U64(sb.map.epoch.num, 2);
	}
}

static int not_any_more(void *arg, char why[STORE_WHY_BYTES])
{
	int *left = arg;

	if ((*left)--)
		return 0;
	strcpy(why, "this node lost its reservation");
	return -ECANCELED;
}

/* At whatever write that is: what was there is there again, or nothing. */
TEST(who_loses_its_reservation_stops_before_the_next_write)
{
	for (int after = 0; after < 12; after++) {
		int left = after;

		setup();
		fx.ask.allowed = not_any_more;
		fx.ask.arg = &left;
		CHECK_EQ_INT(create(), -ECANCELED);
		CHECK(strstr(fx.e.text, "lost its reservation") && !fx.e.left);
		for (unsigned i = 0; i < MEMBERS; i++) {
			uint8_t area[SB_COPIES * DDR_BLOCK_BYTES], none[sizeof(area)] = {0};

			CHECK(pread(fx.file[i].fd, area, sizeof(area), SB_OFFSET) == sizeof(area));
			CHECK_EQ_MEM(area, none, sizeof(area));
		}
	}
}

static uint64_t slow_us;

static uint64_t slow_clock(void *arg)
{
	(void)arg;
	return slow_us += 3000000; /* each look at the clock: a read and a write take 3 s */
}

TEST(a_device_that_is_too_slow_to_be_trusted_is_refused)
{
	setup();
	fx.ask.now_us = slow_clock;
	CHECK_EQ_INT(create(), -ETIMEDOUT);
	CHECK(strstr(fx.e.text, "took 3000 ms to be written"));
}

/* ---- who uses it ---------------------------------------------------------------------------- */

static struct {
	struct useblock block;
	unsigned member;
	uint32_t waited_ms;
	bool renews;       /* while it is watched */
	uint32_t comes_ms; /* somebody begins to use it at that time, 0 = nobody does */
} user;

static void use_put(void)
{
	uint8_t block[DDR_BLOCK_BYTES];

	user.block.seq++;
	useblock_encode(&user.block, block);
	CHECK(pwrite(fx.file[user.member].fd, block, sizeof(block), USE_OFFSET) == sizeof(block));
}

static void user_pause(void *arg, uint32_t ms)
{
	(void)arg;
	user.waited_ms += ms;
	if (user.renews && user.waited_ms % 1000 == 0)
		use_put();
	if (user.comes_ms && user.waited_ms >= user.comes_ms) {
		user.comes_ms = 0;
		use_put();
	}
}

static void used_array(unsigned member, uint64_t claim, uint32_t patience_ms)
{
	setup();
	created();
	memset(&user, 0, sizeof(user));
	user.member = member;
	user.block = (struct useblock){.claim = claim,
				       .node = 2,
				       .patience_ms = patience_ms,
				       .cluster = "prod",
				       .host = "alpha"};
	memcpy(user.block.array_uuid, fx.r.params.array_uuid, DDR_UUID_BYTES);
	use_put();
	for (unsigned i = 0; i < MEMBERS; i++)
		fx.file[i].writes = 0;
	fx.ask.pause = user_pause;
	may_all(&fx.ask, true);
}

static bool use_is_clear(unsigned member)
{
	uint8_t block[DDR_BLOCK_BYTES], none[DDR_BLOCK_BYTES] = {0};

	CHECK(pread(fx.file[member].fd, block, sizeof(block), USE_OFFSET) == sizeof(block));
	return !memcmp(block, none, sizeof(none));
}

TEST(a_device_that_somebody_uses_is_not_taken_by_force)
{
	struct create_error e;

	for (unsigned member = 0; member < MEMBERS; member += MEMBERS - 1) {
		used_array(member, 7, 12000);
		user.renews = true;
		refused(-EBUSY, (int)member, "is in use, by node 2 (alpha) of cluster prod: stop");
		CHECK(user.waited_ms <= 2000);
		CHECK_EQ_INT(create_clear(&fx.ask, &fx.dev[member], &e), -EBUSY);
		CHECK(!strstr(e.text, "--")); /* nothing helps */
		CHECK_EQ_U64(fx.file[member].writes, 0);
		/* Nor is it said that an option would help, without who uses it. */
		may_all(&fx.ask, false);
		refused(-EEXIST, 0,
			member ? "): name another device"
			       : "), which node 2 (alpha) of cluster prod uses, or has not given");
	}
}

TEST(one_that_is_silent_for_as_long_as_it_said_is_gone)
{
	used_array(1, 7, 12000);
	created();
	CHECK(user.waited_ms >= 12000 && user.waited_ms < 20000);
	for (unsigned i = 0; i < MEMBERS; i++)
		CHECK(use_is_clear(i)); /* who was silent finds that when it comes back */
	used_array(1, 7, 3);            /* no user is that hasty */
	created();
	CHECK(user.waited_ms >= 5000);
	used_array(1, 0, 12000); /* given back */
	created();
	CHECK(user.waited_ms < 5000);
}

TEST(a_use_block_that_is_damaged_and_changes_is_somebodys)
{
	used_array(1, 7, 12000);
	CHECK(pwrite(fx.file[1].fd, "x", 1, USE_OFFSET + 100) == 1);
	created();
	CHECK(user.waited_ms >= 5000);
	used_array(1, 7, 12000);
	CHECK(pwrite(fx.file[1].fd, "x", 1, USE_OFFSET + 100) == 1);
	user.renews = true;
	refused(-EBUSY, 1, "is in use, by");
}

/* Somebody starts the array just as it is being overwritten: it gets its superblocks back. */
TEST(who_begins_to_use_it_meanwhile_keeps_it)
{
	uint8_t before[MEMBERS][SB_COPIES * DDR_BLOCK_BYTES], now[sizeof(before[0])];

	for (uint32_t at_ms = 100; at_ms <= 2000; at_ms += 950) {
		used_array(1, 0, 12000);
		user.block.claim = 9;
		user.comes_ms = at_ms; /* within what a create waits before it trusts a claim */
		for (unsigned i = 0; i < MEMBERS; i++)
			CHECK(pread(fx.file[i].fd, before[i], sizeof(before[i]), SB_OFFSET) ==
			      sizeof(before[i]));
		CHECK_EQ_INT(create(), -ENOTUNIQ);
		CHECK(strstr(fx.e.text, "at the same time by node 2 (alpha) of cluster prod"));
		CHECK_EQ_INT(fx.e.member, 1);
		for (unsigned i = 0; i < MEMBERS && at_ms <= 1000; i++) {
			CHECK(pread(fx.file[i].fd, now, sizeof(now), SB_OFFSET) == sizeof(now));
			CHECK(i == 1 || !memcmp(now, before[i], sizeof(now)));
		}
	}
}
