/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The engine in one incarnation that is well: requests, marks, settings, stop. */
#include "tests/unit/engine_world.h"

#include "daemon/core/format/logpage.h"

TEST(what_is_written_is_read)
{
	static uint8_t out[1 << 20], in[1 << 20];

	create(1);
	start();
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	fill(out, sizeof(out), 3);
	io(1, IO_WRITE, 128 << 10, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	io(2, IO_READ, 128 << 10, sizeof(in), in);
	run_ms(10);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	io(3, IO_FLUSH, 0, 0, NULL);
	CHECK_EQ_U64(w.io_done[3], 1);
	io(4, IO_READ, 4096, 100, in);
	CHECK_EQ_INT(w.io_err[4], -EINVAL);
	finish();
}

TEST(the_initial_sync_ends_and_marks_are_cleared)
{
	static uint8_t out[1 << 20];

	create(1);
	start();
	io(1, IO_WRITE, 0, sizeof(out), out);
	CHECK(status().regions_dirty >= 4);
	run_ms(3000);
	CHECK_EQ_U64(status().slots_unrecovered, 0);
	CHECK_EQ_U64(status().regions_dirty, 0);
	finish();
}

TEST(reads_cause_no_log_and_no_lock_traffic_and_a_hot_region_is_marked_once)
{
	static uint8_t buf[64 << 10];
	uint32_t log;
	uint64_t locks;

	create(1);
	start();
	run_ms(3000);
	io(1, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(20);
	log = w.counts[KIND_LOG][DEV_WRITE];
	locks = status().lock_requests;
	for (uint32_t i = 0; i < 100; i++) {
		io(2, IO_READ, i * 4096, 4096, buf);
		io(3, IO_WRITE, i % 16 * 4096, 4096, buf);
		CHECK_EQ_U64(w.io_done[2] + w.io_done[3], 2);
	}
	CHECK_EQ_U64(w.counts[KIND_LOG][DEV_WRITE], log);
	CHECK_EQ_U64(status().lock_requests, locks);
	finish();
}

TEST(a_release_delay_that_is_set_while_it_runs_counts_at_once)
{
	static uint8_t buf[4096];
	struct tunables tun;
	struct engine_cfg def;

	create(1);
	start();
	run_ms(3000);
	engine_cfg_init(&def);
	tun = def.tun;
	tun.release_delay_ms = 600000;
	tun.mark_ahead = false;
	tun.heartbeat_limit_ms = tun.evict_ms = 1; /* nodes count on these: they stay */
	engine_tune(w.e, &tun);
	io(1, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(5000);
	CHECK_EQ_U64(status().regions_dirty, 1);
	tun.release_delay_ms = 2000;
	engine_tune(w.e, &tun);
	run_ms(50); /* it is idle for longer */
	CHECK_EQ_U64(status().regions_dirty, 0);
	io(2, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(1900);
	CHECK_EQ_U64(status().regions_dirty, 1);
	run_ms(800); /* and a quarter, the interval at which it is looked for */
	CHECK_EQ_U64(status().regions_dirty, 0);
	CHECK(status().io_allowed);
	finish();
}

TEST(held_requests_fail_as_soon_as_that_is_set)
{
	static uint8_t buf[4096];
	struct tunables tun;
	struct engine_cfg def;

	create(1);
	start();
	run_ms(3000);
	dev_down(0);
	dev_down(1);
	io(1, IO_READ, 0, sizeof(buf), buf);
	run_ms(10000);
	CHECK_EQ_U64(w.io_done[1], 0);
	engine_cfg_init(&def);
	tun = def.tun;
	tun.eio_when_lost = true;
	engine_tune(w.e, &tun);
	run_ms(50);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], -EIO);
	finish();
}

TEST(stop_leaves_a_clean_log)
{
	static uint8_t out[64 << 10];
	struct event ev = {.type = EV_ADMIN};
	struct logpage lp;
	struct geo g;

	create(1);
	start();
	run_ms(2000);
	io(1, IO_WRITE, 0, sizeof(out), out);
	g = *engine_geo(w.e);
	ev.admin.cmd = ADMIN_STOP;
	step(ev);
	run_ms(500);
	CHECK(w.stopped);
	for (uint32_t s = 0; s <= g.p.slots; s++) {
		struct logpage best = {0};

		for (uint32_t c = 0; c < 2; c++) {
			CHECK_EQ_INT(logpage_decode(&lp, w.disk[0] + geo_log_offset(&g, s, 0, c)),
				     0);
			if (lp.seq >= best.seq)
				best = lp;
		}
		CHECK_EQ_U64(best.owner_inc, 0);
		for (uint32_t i = 0; i < LOG_PLANE_BYTES; i++)
			CHECK_EQ_U64(best.dirty[i], 0);
	}
	finish();
}
