/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A member whose exporter returns anything for its superblocks and its log: one node's engine on
 * three members in memory. It writes, dies in the middle of it, and begins again and again, while
 * the liar's blocks are changed between two incarnations, or at each read. The others are honest.
 *
 * Then: nothing crashes; the array serves, or says why not; nobody but its own earlier incarnations
 * is fenced; what was acknowledged is read; and without the liar the array starts, with parity as
 * far as that was true before, and serves the same.
 *
 * An input is a list of steps (one byte each, with what it takes): see step_one.
 */
#include "tests/fuzz/fuzz.h"

/* The world's harness has a main of its own, which runs no test here. */
int world_main(int argc, char **argv);
#define main world_main
#define TICK_US 20000u
#define DISK_BYTES ((1u << 20) + (128u << 10))
#include "tests/unit/engine_world.h"
#undef main

#include "daemon/core/format/codec.h"
#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"

#define LIAR 0u
#define BLOCKS 16u /* that are written, of the array's 64 */
#define STEPS_MOST 24u

static struct geo geo;
static uint8_t written[BLOCKS]; /* what was acknowledged there */
static uint64_t tags;

static bool engine_serves(void)
{
	return status().io_allowed;
}

static void die(void)
{
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
}

static void live(uint32_t ms)
{
	struct engine_status st;

	start();
	run_ms(ms);
	st = status();
	assert(st.io_allowed || (st.waits && *st.waits) || w.removed);
	if (w.removed) {
		struct event restart = {.type = EV_RESTART};

		w.removed = false;
		restart.restart.inc = w.next_inc++;
		step(restart);
		run_ms(ms);
	}
}

static void write_block(uint32_t block, uint8_t with)
{
	static uint8_t buf[DDR_BLOCK_BYTES];
	uint64_t tag = tags++ % 512;

	if (!engine_serves())
		return;
	memset(buf, with, sizeof(buf));
	io(tag, IO_WRITE, (uint64_t)block * DDR_BLOCK_BYTES, sizeof(buf), buf);
	run_ms(50);
	if (w.io_done[tag] && !w.io_err[tag])
		written[block] = with;
}

static void read_all(void)
{
	static uint8_t buf[DDR_BLOCK_BYTES];

	for (uint32_t b = 0; b < BLOCKS && engine_serves(); b++) {
		uint64_t tag = 512 + b;

		io(tag, IO_READ, (uint64_t)b * DDR_BLOCK_BYTES, sizeof(buf), buf);
		run_ms(50);
		if (!w.io_done[tag] || w.io_err[tag])
			continue;
		for (uint32_t i = 0; i < sizeof(buf); i++)
			assert(buf[i] == written[b]);
	}
}

/* Where the liar's block `which` is: superblock copies, then pages. */
static uint8_t *block_at(uint16_t which)
{
	uint32_t pages = (geo.p.slots + 1u) * 2;

	which %= (uint16_t)(SB_COPIES + pages);
	if (which < SB_COPIES)
		return w.disk[LIAR] + geo_sb_offset(which);
	which = (uint16_t)(which - SB_COPIES);
	return w.disk[LIAR] + geo_log_offset(&geo, which / 2u, 0, which % 2u);
}

/* Up to eight bytes of it become others; its checksum is right, or it is not. */
static void forge(struct fuzz_in *in)
{
	uint8_t *block = block_at(fuzz_u8(in));
	uint8_t how = fuzz_u8(in);
	uint32_t at = fuzz_u16(in) % (DDR_BLOCK_BYTES - 8);
	uint64_t v = fuzz_number(in, 1u + (how & 7));

	if (how & 8) /* the numbers live there */
		at %= 600;
	for (uint32_t i = 0; i <= (how & 7u); i++)
		block[at + i] = (uint8_t)(v >> (8 * i));
	if (how & 16) /* one number more or less */
		put_le64(block + at, get_le64(block + at) + (v & 0xff) - 128);
	if (!(how & 32))
		block_seal(block);
}

/* The other copy becomes what this one is, or another slot's page. */
static void copy(struct fuzz_in *in)
{
	uint8_t *to = block_at(fuzz_u8(in)), *from = block_at(fuzz_u8(in));

	if (to != from)
		memcpy(to, from, DDR_BLOCK_BYTES);
}

static void step_one(struct fuzz_in *in)
{
	switch (fuzz_u8(in) % 8) {
	case 0:
		write_block(fuzz_u8(in) % BLOCKS, fuzz_u8(in));
		break;
	case 1:
	case 2:
		forge(in);
		break;
	case 3:
		copy(in);
		break;
	case 4:
		read_all();
		break;
	case 5:
		if (!w.dead[LIAR])
			dev_down(LIAR);
		run_ms(1u + fuzz_u8(in));
		dev_up(LIAR);
		run_ms(200);
		break;
	case 6:
		die();
		live(500);
		break;
	case 7:
		w.bad_copy[LIAR] = fuzz_u8(in) & 3;
		break;
	}
}

static void begin(void)
{
	static uint8_t zeroes[BLOCKS * DDR_BLOCK_BYTES];

	create_regions(1, 64 << 10);
	start();
	run_ms(1500);
	assert(engine_serves());
	geo = *engine_geo(w.e);
	memset(written, 0, sizeof(written));
	tags = 0;
	io(tags++, IO_WRITE, 0, sizeof(zeroes), zeroes);
	run_ms(500);
	assert(w.io_done[0] && !w.io_err[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};

	begin();
	for (uint32_t i = 0; i < STEPS_MOST && in.left; i++)
		step_one(&in);
	die();
	live(1500);
	read_all();
	assert(!w.fences || w.fence_node == 1);
	/* Without the liar. */
	die();
	w.dead[LIAR] = true;
	live(8000);
	assert(engine_serves());
	read_all();
	finish();
	return 0;
}
