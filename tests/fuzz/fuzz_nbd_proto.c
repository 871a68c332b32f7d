// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fuzzes the NBD protocol machine. The first byte chooses how the rest is cut into pieces; each
 * input runs whole and cut, and both must do the same.
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DFUZZ_LIBFUZZER -D_GNU_SOURCE -I. \
 *		tests/fuzz/fuzz_nbd_proto.c daemon/adapters/nbd_proto.c -o fuzz_nbd_proto
 *	./fuzz_nbd_proto -max_len=20000 CORPUS/
 *
 * Without FUZZ_LIBFUZZER it has a main that replays the files it is given; `--seed DIRECTORY` makes
 * a first corpus.
 */
#include "tests/lib/nbd_drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const struct front_export ex = {
    .name = "tank",
    .description = "fuzzed",
    .size_bytes = UINT64_C(1) << 40,
    .preferred_bytes = 4096,
};

/* Most of what there is to find lies beyond the handshake: with bit 7 it is done already. */
static void begin(struct drive *d, uint8_t how)
{
	static const uint8_t go[] = "\0\0\0\3IHAVEOPT\0\0\0\7\0\0\0\6\0\0\0\0\0";

	drive_init(d, &ex);
	d->direct = how & 64;
	if (how & 128)
		drive_all(d, go, sizeof(go), sizeof(go), 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct drive whole, cut;

	if (!bytes)
		return 0;
	begin(&whole, data[0] & 128);
	drive_all(&whole, data + 1, bytes - 1, bytes - 1, 0);
	begin(&cut, data[0]);
	drive_all(&cut, data + 1, bytes - 1, data[0] & 31, data[0]);
	assert(whole.consumed == cut.consumed && whole.p.state == cut.p.state);
	assert(strcmp(whole.events, cut.events) == 0);
	assert(whole.out_bytes == cut.out_bytes);
	assert(memcmp(whole.out, cut.out, whole.out_bytes) == 0);
	drive_fini(&whole);
	drive_fini(&cut);
	return 0;
}

#ifndef FUZZ_LIBFUZZER
static int replay(const char *path)
{
	static uint8_t data[1 << 20];
	FILE *f = fopen(path, "rb");
	size_t bytes;

	if (!f) {
		perror(path);
		return 1;
	}
	bytes = fread(data, 1, sizeof(data), f);
	fclose(f);
	LLVMFuzzerTestOneInput(data, bytes);
	return 0;
}

/* One file per command, after the handshake, and one per option. */
static int seed(const char *dir)
{
	for (unsigned i = 0; i < 32; i++) {
		uint8_t b[1 + 28 + 4096] = {128 | 3, 0x25, 0x60, 0x95, 0x13};
		size_t bytes = sizeof(b);
		char path[512];
		FILE *f;

		if (i < 16) {
			b[8] = (uint8_t)i;
			b[27] = 0x10;
		} else {
			memcpy(b, "\3\0\0\0\3IHAVEOPT\0\0\0\0\0\0\0\x8\0\0\0\0\0\1\0\1", 29);
			b[16] = (uint8_t)(i - 16);
			bytes = 29;
		}
		snprintf(path, sizeof(path), "%s/seed-%u", dir, i);
		f = fopen(path, "wb");
		if (!f || fwrite(b, 1, bytes, f) != bytes || fclose(f)) {
			perror(path);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	int bad = 0;

	if (argc == 3 && strcmp(argv[1], "--seed") == 0)
		return seed(argv[2]);
	for (int i = 1; i < argc; i++)
		bad |= replay(argv[i]);
	return bad;
}
#endif
