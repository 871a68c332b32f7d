/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A member of which there is an older copy, from the same epoch, and all nodes have died. With
 * three members or with five.
 */
#ifndef DDRAID_TESTS_UNIT_COPY_WORLD_H
#define DDRAID_TESTS_UNIT_COPY_WORLD_H

#include "tests/unit/engine_world.h"

#define AT (5ull * (256 << 10)) /* in region 5 */

static uint8_t out[4096], in[4096];

static inline void put(uint8_t what)
{
	fill(out, sizeof(out), what);
	w.io_done[1] = 0;
	io(1, IO_WRITE, AT, sizeof(out), out);
	run_ms(20);
}

static inline void clean(void)
{
	run_ms(3000);
	CHECK_EQ_U64(status().regions_dirty, 0);
}

static inline void crash(void)
{
	engine_free(w.e);
	w.hung_count = 0;
	w.log_hold = false;
	w.fenced_inc = w.next_inc - 1;
}

static inline void starts(void)
{
	start();
	run_ms(9000);
}

/* And has gone on for a while by then. */
static inline bool served_within(uint32_t ms)
{
	for (; ms && !status().io_allowed; ms -= 100)
		run_ms(100);
	run_ms(3000);
	return status().io_allowed;
}

static inline void next_life(void)
{
	struct event ev = {.type = EV_RESTART};

	ev.restart.inc = w.next_inc++;
	step(ev);
	run_ms(30000);
}

static inline void is_read(void)
{
	memset(in, 0, sizeof(in));
	w.io_done[4] = 0;
	io(4, IO_READ, AT, sizeof(in), in);
	run_ms(2000);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_INT(w.io_err[4], 0);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

/* Of this member, before the last write, whose region is clean again. */
static inline uint8_t *copy_of(uint32_t m)
{
	uint8_t *copy;

	put(1);
	clean();
	copy = image_of(m);
	put(2);
	clean();
	return copy;
}

/* An array with copy_of(m) made, whose nodes have died. */
static inline uint8_t *crashed_with_copy_of(uint32_t m)
{
	uint8_t *copy;

	create(MEMBERS == 5 ? 2 : 1);
	start();
	run_ms(20000);
	copy = copy_of(m);
	crash();
	return copy;
}

#endif
