/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How far a member has been rebuilt counts for that rebuild only. One that leaves begins from
 * nothing when it is back, also if the leader could not look after the rebuild in between.
 */
#include "tests/unit/engine_world.h"

#include "proto/node.pb-c.h"

#define NEW MEMBERS /* the device */
#define CHECKPOINT 8u

static uint8_t out[128 << 10], in[128 << 10];

static void new_member_half_way(void)
{
	struct event ev = {.type = EV_ADMIN};
	struct engine_cfg def;
	struct tunables tun;

	create(1);
	w.claim_ms = 250;
	start();
	run_ms(3000);
	CHECK(status().io_allowed);
	engine_cfg_init(&def);
	tun = def.tun;
	tun.checkpoint_regions = CHECKPOINT;
	tun.release_delay_ms = 600000; /* so nothing is marked anew */
	engine_tune(w.e, &tun);
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 1;
	step(ev);
	run_ms(500);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	io(3, IO_WRITE, 0, sizeof(out), out);
	run_ms(50);
	CHECK_EQ_U64(w.io_done[3], 1);
	w.disk[NEW] = calloc(1, DISK_BYTES);
	memset(w.disk[NEW], 0x33, DISK_BYTES);
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.uri = "mem:new";
	step(ev);
	w.window_kind = KIND_REBUILD;
	w.window_us = 10000;
	for (uint32_t n = 0; status().map.member[1].rebuilt_upto < CHECKPOINT; n++) {
		CHECK(n < 100000);
		run_event();
	}
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_REBUILDING);
}

static bool commit_is_next(void)
{
	const struct event *ev = &w.pending[w.first % QUEUE];
	Ddraid__NodeMsg *m;
	bool commit;

	if (w.first == w.last || ev->type != EV_MSG)
		return false;
	m = ddraid__node_msg__unpack(NULL, ev->msg.bytes, ev->msg.data);
	commit = m->body_case == DDRAID__NODE_MSG__BODY_COMMIT;
	ddraid__node_msg__free_unpacked(m, NULL);
	return commit;
}

TEST(who_left_while_it_was_rebuilt_begins_from_nothing)
{
	struct event ev = {.type = EV_IO};

	new_member_half_way();
	dev_event(EV_DEV_DOWN, NEW);
	fill(out, sizeof(out), 77);
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	for (uint32_t n = 0; !commit_is_next(); n++) {
		CHECK(n < 100000);
		run_event();
	}
	/* The machine stands still, so the lease is over; and it takes a while to get it anew. */
	w.now += 4000000;
	w.use_hangs = true;
	dev_event(EV_DEV_UP, NEW);
	run_ms(800);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_SUSPECT);
	land_hung();
	run_ms(8000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(NEW), 0);
	dev_down(0);
	run_ms(500);
	io(2, IO_READ, 0, sizeof(in), in);
	run_ms(100);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* However large the regions are: the one at hand is copied, and the map says how far it came. */
TEST(a_stop_begins_no_further_region_and_keeps_what_was_copied)
{
	struct event ev = {.type = EV_ADMIN, .admin.cmd = ADMIN_STOP};
	uint64_t upto;
	uint32_t windows, ms = 0;

	new_member_half_way();
	windows = w.windows;
	while (w.windows < windows + 5) /* past the checkpoint, and within a region */
		run_event();
	upto = status().map.member[1].rebuilt_upto;
	windows = w.windows;
	step(ev);
	for (; !w.stopped; ms += 20) {
		CHECK_MSG(ms < 10000, "it does not stop");
		run_ms(20);
	}
	CHECK_MSG(w.windows - windows <= 2, "%u windows were copied after the stop",
		  (unsigned)(w.windows - windows));
	engine_free(w.e);
	w.window_kind = 0;
	memcpy(w.disk[1], w.disk[NEW], DISK_BYTES); /* where it is connected from now on */
	start_cold();
	for (uint32_t n = 0; !status().map.n; n++) {
		CHECK(n < 10000);
		run_event();
	}
	CHECK_MSG(status().map.member[1].rebuilt_upto > upto, "it begins again from %u",
		  (unsigned)status().map.member[1].rebuilt_upto);
	run_ms(20000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}
