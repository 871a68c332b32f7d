// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fuzzes the NBD protocol machine. The first byte chooses how the rest is cut into pieces; each
 * input runs whole and cut, and both must do the same.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/lib/nbd_drive.h"

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
