/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Member requests never run out, whatever the geometry makes of a read, of a window, or of the
 * pages of a slot: nine members, a band of one fragment, and as many log pages as there can be (of
 * 16 regions each: Makemodule.am).
 */
#include "tests/lib/test.h"

#include <sys/mman.h>

#define MEMBERS 9
#define DISK_BYTES (256u << 20)
#include "tests/unit/engine_world.h"

static void create_wide(uint32_t band_bytes, uint32_t region_bytes, uint64_t member_bytes)
{
	struct create_params p = {.inc = 7, .clean = true};
	struct geo g;

	memset(&w, 0, sizeof(w));
	w.now = 1;
	w.next_inc = 100;
	w.pending = calloc(QUEUE, sizeof(*w.pending));
	memset(p.array_uuid, 0x5a, DDR_UUID_BYTES);
	memcpy(w.array_uuid, p.array_uuid, DDR_UUID_BYTES);
	strcpy(p.name, "wide");
	p.geo = (struct geo_params){.order = 3,
				    .m = 1,
				    .layout = GEO_ROTATE,
				    .slots = 2,
				    .stripe_bytes = 4096,
				    .band_bytes = band_bytes,
				    .region_bytes = region_bytes,
				    .member_bytes = member_bytes};
	CHECK_EQ_INT(geo_choose(&g, &p.geo, NULL), 0);
	for (uint8_t i = 0; i < MEMBERS; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < MEMBERS; i++) {
		w.disk[i] = mmap(NULL, DISK_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(w.disk[i] != MAP_FAILED);
		CHECK_EQ_INT(create_member(&p, i, place, w.disk[i]), 0);
	}
}

static void end_wide(void)
{
	engine_free(w.e);
	for (uint32_t i = 0; i < MEMBERS; i++)
		munmap(w.disk[i], DISK_BYTES);
	free(w.q.v);
	free(w.pending);
	messages_free(&w.msg);
}

/* As many as are let in at once, of the greatest size, while no member answers. */
static void many_at_once(enum io_op op)
{
	static uint8_t buf[DDR_MAX_FRONT_IO_BYTES];
	uint32_t most = 0;

	for (uint32_t i = 0; i < 300; i++) {
		struct event ev = {.type = EV_IO};

		w.io_done[i] = 0;
		ev.io.tag = i;
		ev.io.op = op;
		ev.io.offset = (uint64_t)i * DDR_MAX_IO_BYTES;
		ev.io.bytes = DDR_MAX_IO_BYTES;
		ev.io.data = buf;
		step(ev);
		if (status().dev_ios > most)
			most = status().dev_ios;
	}
	printf("     %u requests of members at once\n", most);
	for (uint32_t n = 0; n < 20000; n++) {
		uint32_t left = 0;

		run_ms(1);
		for (uint32_t i = 0; i < 300; i++)
			left += !w.io_done[i];
		if (!left)
			break;
	}
	for (uint32_t i = 0; i < 300; i++) {
		CHECK_EQ_U64(w.io_done[i], 1);
		CHECK_EQ_INT(w.io_err[i], 0);
	}
}

TEST(reads_of_narrow_bands_wait_for_one_another)
{
	static const uint32_t band[] = {512, 4096, 65536};

	for (uint32_t i = 0; i < 3; i++) {
		create_wide(band[i], 4 << 20, 64 << 20);
		start();
		run_until_served();
		many_at_once(IO_READ);
		many_at_once(IO_WRITE);
		many_at_once(IO_ZEROES);
		end_wide();
	}
}

TEST(all_pages_of_the_largest_log_are_written)
{
	create_wide(65536, 65536, 1024ull * LOG_REGIONS_PER_PAGE * 16 * 512);
	start();
	run_until_served();
	CHECK_EQ_U64(engine_geo(w.e)->log_pages, 1024);
	many_at_once(IO_WRITE);
	end_wide();
}
