/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Members that break off and may have lost what was in their caches: R17. */
#include "tests/unit/engine_world.h"

/* R17, while a member is rebuilt: what was resynced and not flushed is resynced again. */
TEST(a_resync_that_was_not_flushed_does_not_count_when_a_cache_was_lost)
{
	static uint8_t out[4096];
	struct event ev = {.type = EV_ADMIN};

	create(1);
	start();
	run_ms(3000);
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 1;
	step(ev);
	run_ms(100);
	w.disk[MEMBERS] = calloc(1, DISK_BYTES);
	memset(w.disk[MEMBERS], 0x33, DISK_BYTES);
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.uri = "mem:new";
	step(ev);
	while (status().map.member[1].state != MEMBER_REBUILDING)
		run_event();
	fill(out, sizeof(out), 9);
	for (uint32_t i = 0; i < 10; i++) {
		struct event write = {.type = EV_IO};

		write.io.tag = 1 + i;
		write.io.op = IO_WRITE;
		write.io.offset = i ? (20 + i) * (256 << 10) : 0;
		write.io.bytes = sizeof(out);
		write.io.data = out;
		step(write);
	}
	while (status().regions_dirty < 10 || !w.io_done[10])
		run_event();
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_REBUILDING);
	engine_free(w.e);
	w.dead[1] = true;
	start_cold();
	dev_event(EV_DEV_UP, MEMBERS);
	while (status().resync_bytes < 256 << 10 || status().rebuild_done < 2) {
		CHECK(status().map.member[1].state != MEMBER_IN_SYNC);
		run_event();
	}
	CHECK(status().regions_to_resync > 1);
	memset(w.disk[0] + geo_offset(engine_geo(w.e), 0), 0x77, 512);
	dev_event(EV_DEV_DOWN, 0);
	run_ms(600);
	CHECK(!status().io_allowed || status().unusable);
	dev_event(EV_DEV_UP, 0);
	run_ms(6000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(status().slots_unrecovered, 0);
	CHECK_EQ_U64(parity_wrong(MEMBERS), 0);
	finish();
}

static void break_off_and_return(uint32_t dev, uint64_t instance)
{
	w.instance = instance;
	dev_event(EV_DEV_DOWN, dev);
	dev_event(EV_DEV_UP, dev);
	run_ms(10);
}

/* R17: the exporter was another one already when the connection broke for the second time. */
TEST(a_lost_cache_is_not_waived_by_breaking_off_once_more)
{
	create(1);
	start();
	run_ms(3000);
	break_off_and_return(1, 7);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	w.mute = true; /* nobody hears of it, so nothing is proposed */
	break_off_and_return(1, 7);
	CHECK_EQ_INT(status().unusable, 0);
	break_off_and_return(1, 7);
	CHECK_EQ_INT(status().unusable, 0);
	break_off_and_return(1, 8);
	CHECK_EQ_INT(status().unusable, 1u << 1);
	break_off_and_return(1, 8);
	CHECK_EQ_INT(status().unusable, 1u << 1);
	finish();
}

static void answer_slow(void)
{
	w.slow = 0;
	for (uint32_t i = 0; i < w.slow_count; i++) {
		struct event done = {.type = EV_DEV_DONE};

		done.done.id = w.slow_id[i];
		step(done);
	}
	w.slow_count = 0;
}

/* Members 1 and 2 break off and return without the stripe at `at`. */
static void caches_lost(uint64_t at)
{
	dev_event(EV_DEV_DOWN, 1);
	dev_event(EV_DEV_DOWN, 2);
	memset(w.disk[1] + at, 0x11, 2048);
	memset(w.disk[2] + at, 0x22, 2048);
	run_ms(100);
	dev_event(EV_DEV_UP, 1);
	dev_event(EV_DEV_UP, 2);
	run_ms(300);
}

/* R17: one member has answered from a cache that it then lost, another is slow. The write is whole
 * when it is answered, also on that member. */
TEST(a_write_goes_again_to_a_member_that_lost_its_cache_meanwhile)
{
	static uint8_t out[4096], in[4096];
	struct event ev = {.type = EV_IO};
	uint64_t at;

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 5);
	w.slow = 1u << 0;
	at = geo_offset(engine_geo(w.e), 0);
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	run_ms(50);
	CHECK(w.slow_count > 0 && !w.io_done[1]);
	caches_lost(at);
	answer_slow();
	run_ms(6000);
	CHECK(w.io_done[1]);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK(status().io_allowed && !status().unusable);
	ev.io.tag = 2;
	ev.io.op = IO_READ;
	ev.io.data = in;
	step(ev);
	run_ms(50);
	CHECK(w.io_done[2]);
	CHECK(!memcmp(in, out, sizeof(in)));
	finish();
}

/* R17: as before, but the part that they lost had been through, and the other one was slow. */
TEST(a_write_in_parts_begins_anew_when_caches_are_lost)
{
	static uint8_t out[8192], in[8192];
	struct event ev = {.type = EV_IO};
	const struct geo *g;
	uint64_t second;

	create(1);
	start();
	run_ms(3000);
	g = engine_geo(w.e);
	second = geo_region_first(g, 1);
	fill(out, sizeof(out), 5);
	w.slow = 1u << 0;
	w.slow_from = geo_offset(g, second);
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.offset = (second - 1) * 4096;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	run_ms(50);
	CHECK_EQ_U64(w.slow_count, 1);
	CHECK(!w.io_done[1]);
	caches_lost(geo_offset(g, second - 1));
	answer_slow();
	run_ms(6000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK(status().io_allowed && !status().unusable);
	io(2, IO_READ, ev.io.offset, sizeof(in), in);
	run_ms(50);
	CHECK(w.io_done[2]);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* R17: all of it had been through, and its answer waited for quorum. */
TEST(a_write_that_is_not_answered_yet_begins_anew_when_caches_are_lost)
{
	static uint8_t out[4096], in[4096];
	struct event ev = {.type = EV_IO};

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 5);
	w.slow = 1u << 0;
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	run_ms(50);
	quorum(false);
	answer_slow();
	run_ms(50);
	CHECK(!w.io_done[1] && !status().io_allowed);
	caches_lost(geo_offset(engine_geo(w.e), 0));
	quorum(true);
	run_ms(6000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK(status().io_allowed && !status().unusable);
	io(2, IO_READ, 0, sizeof(in), in);
	run_ms(50);
	CHECK(w.io_done[2]);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}
