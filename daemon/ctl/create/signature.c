/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Signatures by libblkid, which wants a file, on members, which are URIs.
 *
 * What libblkid looks at lies at the head and the tail of a device. Both are copied into a memfd of
 * the device's size; the rest stays a hole. How much that must be follows from libblkid's tables:
 *
 *	head 5 MiB	LUKS2's last second header is at 4 MiB, VMFS at 2 MiB, all others below
 *	tail 2 MiB	Promise's RAID superblock is 1.5 MiB before the end, all others after that
 *
 * It is asked twice, for sectors of 512 and of 4096 bytes: a GPT made on a disk with 4 KiB sectors
 * starts at byte 4096.
 *
 * libblkid takes some for what they are only after it has followed a pointer into the middle of the
 * device, which is a hole here: NTFS's file table, BitLocker's metadata, UDF's descriptors. For
 * those the magic at the head is enough for us. To refuse one device too many costs a --wipe; to
 * accept one too many costs somebody's data.
 */
#include "daemon/ctl/create/signature.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/units.h"

static const struct {
	uint32_t offset;
	const char *magic;
	const char *what;
} head_magic[] = {
    {3, "NTFS    ", "an NTFS file system"},
    {3, "-FVE-FS-", "a BitLocker volume"},
    {32769, "BEA01", "a UDF file system"},
};

/* Copies [from, to) and leaves zeroes out, so that the memfd stays as small as it can. */
static int copy(int fd, uint64_t from, uint64_t to, signature_read_fn read_fn, void *arg,
		uint8_t *buf)
{
	while (from < to) {
		uint64_t left = to - from;
		uint32_t bytes =
		    left < SIGNATURE_READ_BYTES ? (uint32_t)left : SIGNATURE_READ_BYTES;
		int err = read_fn(arg, from, buf, bytes);

		if (err)
			return err;
		if (buf[0] || memcmp(buf, buf + 1, bytes - 1))
			for (uint32_t done = 0; done < bytes;) {
				ssize_t n =
				    pwrite(fd, buf + done, bytes - done, (off_t)(from + done));

				if (n < 0)
					return -errno;
				done += (uint32_t)n;
			}
		from += bytes;
	}
	return 0;
}

static int copy_ends(int fd, uint64_t size, signature_read_fn read_fn, void *arg, uint8_t *buf)
{
	uint64_t head = size < SIGNATURE_HEAD_BYTES ? size : SIGNATURE_HEAD_BYTES;
	uint64_t tail = size < SIGNATURE_TAIL_BYTES ? 0 : size - SIGNATURE_TAIL_BYTES;
	int err;

	/* Aligned for any block that a member may ask for. */
	tail -= tail % SIGNATURE_READ_BYTES;
	if (ftruncate(fd, (off_t)size) < 0)
		return -errno;
	err = copy(fd, 0, head, read_fn, arg, buf);
	return err ? err : copy(fd, tail > head ? tail : head, size, read_fn, arg, buf);
}

static const char *value(blkid_probe pr, const char *name)
{
	const char *text;

	return blkid_probe_lookup_value(pr, name, &text, NULL) ? NULL : text;
}

static const char *usage_words(const char *usage)
{
	if (usage && !strcmp(usage, "filesystem"))
		return "a file system";
	if (usage && !strcmp(usage, "raid"))
		return "a member of a volume group or a RAID";
	if (usage && !strcmp(usage, "crypto"))
		return "an encrypted volume";
	return "data of a known kind";
}

static void describe(blkid_probe pr, char *what, size_t what_bytes)
{
	const char *type = value(pr, "TYPE"), *table = value(pr, "PTTYPE");
	const char *label = value(pr, "LABEL");
	char clean_label[64], clean_type[32];

	text_clean(clean_type, sizeof(clean_type), type ? type : table ? table : "unknown");
	if (!type)
		snprintf(what, what_bytes, "a partition table (%s)", clean_type);
	else if (!strcmp(type, "swap"))
		snprintf(what, what_bytes, "swap space (swap)");
	else if (label)
		snprintf(what, what_bytes, "%s (%s, label \"%s\")", usage_words(value(pr, "USAGE")),
			 clean_type, text_clean(clean_label, sizeof(clean_label), label));
	else
		snprintf(what, what_bytes, "%s (%s)", usage_words(value(pr, "USAGE")), clean_type);
}

/* 1, 0 or -errno. */
static int probe(int fd, uint32_t sector_bytes, char *what, size_t what_bytes)
{
	blkid_probe pr = blkid_new_probe();
	int found = -ENOMEM;

	if (!pr)
		return -ENOMEM;
	if (blkid_probe_set_device(pr, fd, 0, 0) || blkid_probe_set_sectorsize(pr, sector_bytes) ||
	    blkid_probe_enable_superblocks(pr, 1) ||
	    blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_LABEL | BLKID_SUBLKS_TYPE |
						      BLKID_SUBLKS_USAGE | BLKID_SUBLKS_BADCSUM) ||
	    blkid_probe_enable_partitions(pr, 1))
		goto out;
	errno = 0;
	switch (blkid_do_safeprobe(pr)) {
	case 0:
		found = 1;
		describe(pr, what, what_bytes);
		break;
	case 1:
		found = 0;
		break;
	case -2:
		found = 1;
		snprintf(what, what_bytes, "signatures of more than one kind");
		break;
	default:
		found = errno ? -errno : -EIO;
	}
out:
	blkid_free_probe(pr);
	return found;
}

static int probe_magic(int fd, char *what, size_t what_bytes)
{
	char buf[16];

	for (size_t i = 0; i < sizeof(head_magic) / sizeof(head_magic[0]); i++) {
		size_t n = strlen(head_magic[i].magic);

		if (pread(fd, buf, n, (off_t)head_magic[i].offset) != (ssize_t)n ||
		    memcmp(buf, head_magic[i].magic, n))
			continue;
		snprintf(what, what_bytes, "%s", head_magic[i].what);
		return 1;
	}
	return 0;
}

int signature_find(uint64_t size_bytes, signature_read_fn read, void *arg, char *what,
		   size_t what_bytes)
{
	uint8_t *buf = aligned_alloc(DDR_BLOCK_BYTES, SIGNATURE_READ_BYTES);
	int fd = memfd_create("ddraid-signature", MFD_CLOEXEC);
	int found = !buf ? -ENOMEM : fd < 0 ? -errno : 0;

	if (!found)
		found = copy_ends(fd, size_bytes, read, arg, buf);
	if (!found)
		found = probe(fd, 512, what, what_bytes);
	if (!found)
		found = probe(fd, 4096, what, what_bytes);
	if (!found)
		found = probe_magic(fd, what, what_bytes);
	if (fd >= 0)
		close(fd);
	free(buf);
	return found;
}
