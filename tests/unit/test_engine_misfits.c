/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Members whose device has changed while it was away: it has shrunk, or takes only larger requests.
 * Such a one is never used, and is told of with its numbers. */
#include "tests/unit/engine_world.h"

#include "daemon/core/format/superblock.h"

#define SHRUNK (4u << 20)

static uint32_t writes(void)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < KIND_COUNT; k++)
		n += w.counts[k][DEV_WRITE];
	return n;
}

/* Nothing was written to it since. */
static void untouched(uint32_t dev, const uint8_t *image)
{
	CHECK_EQ_MEM(w.disk[dev], image, DISK_BYTES);
}

static void change(uint32_t dev, bool shrinks)
{
	w.shrunk[dev] = shrinks ? SHRUNK : 0;
	w.multiple[dev] = shrinks ? 0 : 8192;
}

static void told(uint32_t dev, bool shrinks)
{
	const char *why = engine_dev_misfit(w.e, dev);

	CHECK(why);
	CHECK_EQ_STR(engine_dev_foreign(w.e, dev), why);
	if (shrinks)
		CHECK(strstr(why, "4194304 bytes") && strstr(why, "8388608"));
	else
		CHECK(strstr(why, "multiples of 8192") && strstr(why, "some of 2048"));
	CHECK_EQ_U64(engine_member_of_dev(w.e, dev), 0xff);
}

static void start_again(void)
{
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	start();
	run_ms(6000);
}

static void write_some(uint64_t tag)
{
	static uint8_t buf[65536];

	fill(buf, sizeof(buf), (uint8_t)tag);
	io(tag, IO_WRITE, 4u << 20, sizeof(buf), buf);
	run_ms(500);
	CHECK_EQ_U64(w.io_done[tag], 1);
	CHECK_EQ_INT(w.io_err[tag], 0);
}

/* What was cut off is lost: its end reads as zeroes, and no log of what it has missed says so. */
static void extended_is_not_taken(uint32_t m)
{
	uint32_t rebuilds;

	dev_down(m);
	memset(w.disk[m] + SHRUNK, 0, DISK_BYTES - SHRUNK);
	w.shrunk[m] = 0;
	dev_up(m);
	run_ms(10000);
	CHECK_EQ_INT(status().map.member[m].state, MEMBER_FAULTY);
	CHECK(!engine_dev_misfit(w.e, m));
	w.admin_done = false;
	rebuilds = rebuild_writes();
	step((struct event){.type = EV_ADMIN,
			    .admin = {.tag = 9, .cmd = ADMIN_READD, .member = (uint8_t)m}});
	run_ms(1000);
	CHECK(w.admin_done && w.admin_err);
	CHECK_EQ_U64(rebuild_writes(), rebuilds);
	CHECK_EQ_INT(status().map.member[m].state, MEMBER_FAULTY);
}

/* While the array was stopped. */
TEST(a_device_that_has_changed_is_not_the_member_at_the_start)
{
	for (int shrinks = 0; shrinks < 2; shrinks++) {
		struct engine_status st;
		uint8_t *image;

		create(1);
		start();
		run_ms(3000);
		change(1, shrinks);
		image = image_of(1);
		start_again();
		st = status();
		CHECK(st.io_allowed);
		CHECK_EQ_INT(st.map.member[1].state, shrinks ? MEMBER_FAULTY : MEMBER_SUSPECT);
		told(1, shrinks);
		write_some(1);
		run_ms(40000); /* longer than member_retry */
		CHECK_EQ_INT(status().map.member[1].state,
			     shrinks ? MEMBER_FAULTY : MEMBER_MISSING);
		CHECK_EQ_U64(status().rebuild_total, 0);
		untouched(1, image);
		/* Nor by hand. */
		step((struct event){.type = EV_ADMIN,
				    .admin = {.tag = 1, .cmd = ADMIN_READD, .member = 1}});
		run_ms(1000);
		CHECK(w.admin_done);
		CHECK_EQ_INT(w.admin_err, shrinks ? -EINVAL : -ENOSPC);
		CHECK(shrinks || strstr(w.admin_why, engine_dev_misfit(w.e, 1)));
		untouched(1, image);
		if (shrinks) {
			extended_is_not_taken(1);
			free(image);
			finish();
			continue;
		}
		/* The right one is taken. */
		dev_down(1);
		w.shrunk[1] = w.multiple[1] = 0;
		dev_up(1);
		w.admin_done = false;
		step((struct event){.type = EV_ADMIN,
				    .admin = {.tag = 2, .cmd = ADMIN_READD, .member = 1}});
		run_ms(10000);
		CHECK_EQ_INT(w.admin_err, 0);
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
		CHECK(!engine_dev_misfit(w.e, 1));
		CHECK_EQ_U64(parity_wrong(1), 0);
		free(image);
		finish();
	}
}

/* Nothing says so but a new connection: its exporter goes on with the size of before. */
TEST(a_device_that_shrank_while_it_was_connected_does_not_come_back)
{
	create(1);
	start();
	run_ms(3000);
	dev_down(1);
	run_ms(40000); /* longer than member_retry */
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_MISSING);
	dev_up(1);
	run_ms(1000);
	w.shrunk[1] = SHRUNK;
	step(
	    (struct event){.type = EV_ADMIN, .admin = {.tag = 1, .cmd = ADMIN_READD, .member = 1}});
	run_ms(10000);
	CHECK(w.admin_done && w.admin_err);
	CHECK(status().map.member[1].state != MEMBER_IN_SYNC);
	CHECK(engine_dev_misfit(w.e, 1));
	finish();
}

/* While the array serves: one that was never cut off comes back by itself. */
TEST(a_device_that_has_changed_is_not_the_member_when_it_is_back)
{
	for (int shrinks = 0; shrinks < 2; shrinks++) {
		uint8_t *image;

		create(1);
		start();
		run_ms(3000);
		dev_down(2);
		run_ms(50);
		image = image_of(2);
		change(2, shrinks);
		dev_up(2);
		run_ms(3000);
		CHECK_EQ_INT(status().map.member[2].state,
			     shrinks ? MEMBER_FAULTY : MEMBER_SUSPECT);
		told(2, shrinks);
		write_some(1);
		CHECK_EQ_U64(status().rebuild_total, 0);
		untouched(2, image);
		if (shrinks) {
			extended_is_not_taken(2);
			free(image);
			finish();
			continue;
		}
		dev_down(2);
		w.shrunk[2] = w.multiple[2] = 0;
		dev_up(2);
		run_ms(3000);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
		CHECK_EQ_U64(parity_wrong(1), 0);
		free(image);
		finish();
	}
}

/* Its exporter goes on with what the device was when it was connected. */
TEST(a_device_that_was_set_right_is_looked_at_again)
{
	create(1);
	start();
	run_ms(3000);
	dev_down(2);
	run_ms(50);
	change(2, false);
	dev_up(2);
	run_ms(3000);
	told(2, false);
	w.multiple[2] = 0;
	run_ms(6000);
	CHECK(!engine_dev_misfit(w.e, 2));
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

/* More than the redundancy: nothing is served, and nothing is written. */
TEST(two_devices_that_have_changed_stop_the_array)
{
	uint8_t *image[2];
	uint32_t before;

	create(1);
	start();
	run_ms(3000);
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	for (uint32_t i = 0; i < 2; i++) {
		change(i, true);
		image[i] = image_of(i);
	}
	before = writes();
	start();
	run_ms(6000);
	CHECK(!status().io_allowed);
	for (uint32_t i = 0; i < 2; i++) {
		told(i, true);
		untouched(i, image[i]);
	}
	CHECK_EQ_U64(writes(), before);
	/* What lay beyond its end may be gone, and no other member can stand in for it. */
	dev_down(0);
	w.shrunk[0] = 0;
	dev_up(0);
	run_ms(20000);
	CHECK(!status().io_allowed);
	CHECK(strstr(status().waits, "too small for a while"));
	/* Who knows better starts it anew. */
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	start();
	run_ms(6000);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	free(image[0]);
	free(image[1]);
	finish();
}

/* In the place of member 2 is a copy of member 0 that is too small: that says nothing of member 0,
 * in whatever order they come. */
TEST(a_short_copy_of_another_member_takes_that_from_nobody)
{
	for (uint32_t late = 0; late < 2; late++) {
		uint8_t *own = malloc(DISK_BYTES);

		create(1);
		start();
		run_ms(3000);
		step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
		run_ms(2000);
		CHECK(w.stopped);
		w.stopped = false;
		engine_free(w.e);
		memcpy(own, w.disk[2], DISK_BYTES);
		memcpy(w.disk[2], w.disk[0], DISK_BYTES);
		w.shrunk[2] = SHRUNK;
		w.dead[0] = late;
		start();
		run_ms(500);
		if (late)
			dev_up(0);
		run_ms(8000);
		CHECK(status().io_allowed);
		CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
		dev_down(2);
		memcpy(w.disk[2], own, DISK_BYTES);
		w.shrunk[2] = 0;
		dev_up(2);
		run_ms(8000);
		for (uint32_t i = 0; i < MEMBERS; i++)
			CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
		dev_down(0);
		run_ms(500);
		dev_up(0);
		run_ms(8000);
		CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
		free(own);
		finish();
	}
}

TEST(a_device_that_is_too_small_is_not_added)
{
	create(1);
	start();
	run_ms(3000);
	w.disk[MEMBERS] = calloc(1, DISK_BYTES);
	w.shrunk[MEMBERS] = SHRUNK;
	step((struct event){.type = EV_ADMIN, .admin = {.tag = 1, .cmd = ADMIN_FAIL, .member = 1}});
	run_ms(1000);
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.tag = 2, .cmd = ADMIN_ADD, .member = 1, .uri = "mem:new"}});
	run_ms(1000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, -ENOSPC);
	CHECK(strstr(w.admin_why, "4194304 bytes"));
	for (uint32_t i = 0; i < DISK_BYTES; i++)
		CHECK(!w.disk[MEMBERS][i]);
	/* Who has made it larger need not wait for the next look at it. */
	w.shrunk[MEMBERS] = 0;
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.tag = 3, .cmd = ADMIN_ADD, .member = 1, .uri = "mem:new"}});
	run_ms(10000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
	finish();
}

/* Device 3, or that of a member which is away, leads to a short copy of member 0, that breaks off
 * for a moment. */
TEST(a_short_copy_somewhere_is_no_reason_to_give_up_the_member)
{
	for (uint32_t at = 1; at <= MEMBERS; at += 2) {
		create(1);
		start();
		run_ms(20000);
		if (at == 1) {
			step((struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
			run_ms(5000);
			CHECK(w.stopped);
			w.stopped = false;
			engine_free(w.e);
			w.fenced_inc = w.next_inc - 1;
			free(w.disk[at]);
		}
		w.disk[at] = image_of(0);
		w.shrunk[at] = DISK_BYTES - 65536;
		if (at == 1)
			start();
		else
			dev_up(at);
		run_ms(20000);
		CHECK(status().io_allowed);
		dev_down(0);
		run_ms(1000);
		dev_up(0);
		run_ms(20000);
		CHECK(status().io_allowed);
		CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 0);
		CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
		w.shrunk[at] = 0;
		finish();
	}
}

static void extended(uint32_t dev)
{
	dev_event(EV_DEV_DOWN, dev);
	memset(w.disk[dev] + SHRUNK, 0, DISK_BYTES - SHRUNK);
	w.shrunk[dev] = 0;
	dev_event(EV_DEV_UP, dev);
}

/* Member 1 has another address since, or the exporter of member 2 says for a moment that it is
 * member 1. */
TEST(what_was_cut_off_and_extended_is_faulty_though_it_was_none_or_another_says_it_is_whole)
{
	static uint8_t own[1 << 20];

	for (uint32_t lies = 0; lies < 2; lies++) {
		uint32_t at = lies ? 1 : 3;

		create(1);
		w.uri[1] = "mem:1";
		w.uri[3] = "mem:3";
		start();
		run_ms(20000);
		dev_event(EV_DEV_DOWN, 1);
		run_ms(2000);
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_SUSPECT);
		memcpy(own, w.disk[2], sizeof(own));
		if (lies) {
			dev_event(EV_DEV_DOWN, 2);
			memcpy(w.disk[2] + geo_sb_offset(0), w.disk[1] + geo_sb_offset(0),
			       SB_COPIES * DDR_BLOCK_BYTES);
			dev_event(EV_DEV_UP, 2);
			run_ms(300);
		} else {
			w.disk[3] = image_of(1);
		}
		w.shrunk[at] = SHRUNK;
		dev_event(EV_DEV_UP, at);
		run_ms(1000);
		CHECK(engine_dev_misfit(w.e, at));
		extended(at);
		run_ms(100);
		if (lies) {
			dev_event(EV_DEV_DOWN, 2);
			memcpy(w.disk[2] + geo_sb_offset(0), own + geo_sb_offset(0),
			       SB_COPIES * DDR_BLOCK_BYTES);
			dev_event(EV_DEV_UP, 2);
		}
		run_ms(12000);
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
		finish();
	}
}

/* What was at byte 0 of it is at this one now; the device is as long as before. */
static void begins_elsewhere(uint32_t dev, int bytes)
{
	uint32_t from = bytes < 0 ? (uint32_t)-bytes : 0, to = bytes > 0 ? (uint32_t)bytes : 0;

	memmove(w.disk[dev] + to, w.disk[dev] + from, DISK_BYTES - (uint32_t)abs(bytes));
	memset(w.disk[dev] + (to ? 0 : DISK_BYTES - from), 0, (uint32_t)abs(bytes));
}

/* Its superblocks lie one block apart: one of them is at the other's place. */
TEST(a_device_that_begins_elsewhere_is_not_the_member)
{
	for (uint32_t running = 0; running < 2; running++)
		for (int bytes = -8192; bytes <= 8192; bytes += 4096) {
			uint8_t *whole, *as_found;
			const char *text;

			create(1);
			start();
			run_ms(20000);
			if (running) {
				dev_event(EV_DEV_DOWN, 1);
				run_ms(20);
			}
			whole = image_of(1);
			begins_elsewhere(1, bytes);
			as_found = image_of(1);
			if (running)
				dev_event(EV_DEV_UP, 1);
			else
				start_again();
			run_ms(20000);
			CHECK(status().io_allowed);
			CHECK_EQ_INT(status().map.member[1].state == MEMBER_IN_SYNC, !bytes);
			if (bytes) {
				text = engine_dev_foreign(w.e, 1);
				CHECK(text && strstr(text, abs(bytes) == 4096 ? "begins elsewhere"
									      : "no superblock"));
				CHECK_EQ_MEM(w.disk[1], as_found, DISK_BYTES);
				dev_event(EV_DEV_DOWN, 1);
				memcpy(w.disk[1], whole, DISK_BYTES);
				dev_event(EV_DEV_UP, 1);
				run_ms(20000);
				CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
			}
			finish();
			free(whole);
			free(as_found);
		}
}

/* Nothing says so but a new connection. By 8192 bytes both superblocks lie where nobody looks. */
TEST(a_device_that_begins_where_it_did_again_is_the_member_by_itself)
{
	uint64_t epoch[5];

	for (int bytes = -8192; bytes <= 8192; bytes += 4096) {
		uint8_t *whole;

		create(1);
		start();
		run_ms(20000);
		w.dead[2] = true;
		dev_event(EV_DEV_DOWN, 2);
		run_ms(20000);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
		whole = image_of(1);
		begins_elsewhere(1, bytes);
		start_again();
		run_ms(20000);
		CHECK_EQ_INT(status().io_allowed, !bytes);
		CHECK_EQ_INT(engine_dev_unfit(w.e, 1), bytes != 0);
		if (bytes) {
			memcpy(w.disk[1], whole, DISK_BYTES);
			run_ms(12000);
		}
		CHECK(status().io_allowed);
		CHECK(!engine_dev_unfit(w.e, 1));
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
		epoch[bytes / 4096 + 2] = status().map.epoch.num;
		write_some(1);
		finish();
		free(whole);
	}
	/* That this node ended its connections is no loss of what was written (R17): the member
	 * has not left the map for it. */
	for (uint32_t i = 0; i < 5; i++)
		CHECK_EQ_U64(epoch[i], epoch[2]);
}

/* It need not wait for the next look. */
TEST(a_readd_looks_at_a_device_that_begins_elsewhere)
{
	for (int bytes = 4096; bytes <= 8192; bytes += 4096) {
		uint8_t *whole;

		create(1);
		start();
		run_ms(20000);
		dev_event(EV_DEV_DOWN, 1);
		run_ms(20);
		whole = image_of(1);
		begins_elsewhere(1, bytes);
		dev_event(EV_DEV_UP, 1);
		run_ms(60000); /* longer than member_retry */
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_MISSING);
		dev_event(EV_DEV_DOWN, 1);
		dev_event(EV_DEV_UP, 1);
		run_ms(100);
		CHECK(engine_dev_unfit(w.e, 1));
		memcpy(w.disk[1], whole, DISK_BYTES);
		step((struct event){.type = EV_ADMIN,
				    .admin = {.tag = 1, .cmd = ADMIN_READD, .member = 1}});
		run_ms(2000);
		CHECK(w.admin_done);
		CHECK_EQ_INT(w.admin_err, 0);
		run_ms(10000);
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
		CHECK_EQ_U64(parity_wrong(1), 0);
		finish();
		free(whole);
	}
}

/* What it is to be a member for is written there: it is not taken away meanwhile. */
TEST(a_device_that_begins_elsewhere_can_be_added)
{
	create(1);
	start();
	run_ms(20000);
	w.disk[MEMBERS] = image_of(1);
	begins_elsewhere(MEMBERS, 4096);
	step((struct event){.type = EV_ADMIN, .admin = {.tag = 1, .cmd = ADMIN_FAIL, .member = 1}});
	run_ms(1000);
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.tag = 2, .cmd = ADMIN_ADD, .member = 1, .uri = "mem:new"}});
	run_ms(20000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	finish();
}
