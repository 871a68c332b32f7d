/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which device is which member, when members are found at other addresses, are cut off, or are
 * copied, and when an exporter says that it is another's (core/cluster/devs.c).
 */
#include "tests/unit/engine_world.h"

#define AT (5ull * (256 << 10)) /* in region 5 */

static uint8_t out[4096], in[4096];

/* Members 0 and 1 break off, and each is found at the other's address. */
static void exchange(void)
{
	uint8_t *disk = w.disk[0];

	for (uint32_t m = 0; m < 2; m++) {
		dev_down(m);
		run_ms(20);
	}
	w.disk[0] = w.disk[1];
	w.disk[1] = disk;
}

static void exchanged(void)
{
	create(1);
	start();
	run_ms(20000);
	exchange();
	for (uint32_t m = 0; m < 2; m++) {
		dev_up(m);
		run_ms(20);
	}
	run_ms(70000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 1);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 1), 0);
}

/* Once both lead to a member, each has its own, and the loss of one is the loss of one. */
TEST(devices_that_were_exchanged_are_found)
{
	for (uint32_t lost = 0; lost < 3; lost++) {
		exchanged();
		CHECK(status().io_allowed);
		for (uint32_t m = 0; m < 3; m++)
			CHECK_EQ_INT(status().map.member[m].state, MEMBER_IN_SYNC);
		dev_down(lost);
		run_ms(60000);
		CHECK(status().io_allowed);
		finish();
	}
}

/* R5: what is on its way to the one says nothing of the other. */
TEST(a_member_comes_back_while_another_is_being_written)
{
	struct event ev = {.type = EV_DEV_DONE};
	enum member_state state;

	exchanged();
	w.slow = 1u << 0;
	fill(out, sizeof(out), 1);
	io(1, IO_WRITE, AT, sizeof(out), out);
	run_ms(5);
	CHECK_EQ_U64(w.slow_count, 1);
	dev_down(1);
	run_ms(1000);
	dev_up(1);
	run_ms(3000);
	state = status().map.member[0].state;
	CHECK(state == MEMBER_REBUILDING || state == MEMBER_IN_SYNC);
	w.slow = 0;
	ev.done.id = w.slow_id[0];
	step(ev);
	run_ms(3000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
	finish();
}

/* Member 0 has a new address, member 1 member 0's former one; later member 0 is lost. */
TEST(a_device_that_took_anothers_address_stays_its_member)
{
	create(1);
	start();
	run_ms(20000);
	exchange();
	w.disk[3] = w.disk[1];
	w.disk[1] = calloc(1, DISK_BYTES);
	CHECK(w.disk[1]);
	memset(w.disk[1], 0, DISK_BYTES);
	dev_up(3);
	run_ms(20);
	dev_up(0);
	run_ms(20000);
	for (uint32_t m = 0; m < 3; m++)
		CHECK_EQ_INT(status().map.member[m].state, MEMBER_IN_SYNC);
	dev_down(3);
	run_ms(60000);
	CHECK(status().io_allowed);
	finish();
}

/* They are exchanged back, and member 1 is dead by then: a device is what it was first, too. */
TEST(what_was_exchanged_and_is_set_right_is_found)
{
	create(1);
	start();
	run_ms(6000);
	exchange();
	dev_up(0);
	run_ms(20);
	dev_up(1);
	run_ms(15000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 1);
	exchange();
	dev_up(0);
	run_ms(60000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 0);
	CHECK(status().io_allowed);
	finish();
}

/* Member 1 is on device 3 by an `add`, and two ways lead to member 0: one of these poses as member
 * 1 while that is away. It leaves the place to the right one. */
TEST(who_poses_as_a_member_leaves_its_place_when_that_is_back)
{
	struct event ev = {.type = EV_ADMIN};

	create(1);
	start();
	run_ms(6000);
	dev_down(1);
	run_ms(5000);
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 1;
	step(ev);
	run_ms(3000);
	w.disk[3] = calloc(1, DISK_BYTES);
	CHECK(w.disk[3]);
	memset(w.disk[3], 0, DISK_BYTES);
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.uri = "mem:new";
	step(ev);
	run_ms(6000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 1);
	free(w.disk[1]);
	w.disk[1] = w.disk[0];
	w.uri[1] = "mem:way2";
	dev_up(1);
	run_ms(2000);
	dev_down(0);
	dev_down(3);
	w.disk[0] = image_of(3);
	for (uint64_t i = engine_geo(w.e)->data_offset; i < DISK_BYTES; i++)
		w.disk[0][i] ^= 0x55;
	dev_up(0);
	run_ms(300);
	dev_up(3);
	run_ms(15000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 1);
	fill(out, sizeof(out), 1);
	io(5, IO_WRITE, 300 << 10, sizeof(out), out);
	run_ms(3000);
	CHECK_EQ_U64(w.io_done[5], 1);
	dev_down(0);
	dev_down(1);
	run_ms(60000);
	io(6, IO_READ, 300 << 10, sizeof(in), in);
	run_ms(300);
	CHECK_EQ_U64(w.io_done[6], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* One of them was too small for a while there, and what lay in its end is gone. */
TEST(an_exchanged_device_that_was_cut_off_is_remembered)
{
	uint64_t size;

	for (uint32_t first = 0; first < 2; first++) {
		create(1);
		start();
		run_ms(20000);
		size = engine_geo(w.e)->size_bytes;
		fill(out, sizeof(out), 7);
		io(1, IO_WRITE, size - sizeof(out), sizeof(out), out);
		run_ms(5000);
		exchange();
		w.shrunk[0] = DISK_BYTES - 65536;
		if (first)
			dev_up(1);
		dev_up(0);
		run_ms(1000);
		dev_down(0);
		memset(w.disk[0] + DISK_BYTES - 65536, 0, 65536);
		w.shrunk[0] = 0;
		run_ms(20);
		dev_up(0);
		run_ms(1000);
		if (!first)
			dev_up(1);
		run_ms(30000);
		CHECK(!status().io_allowed || status().map.member[1].state != MEMBER_IN_SYNC);
		finish();
	}
}

static void put(uint8_t what)
{
	fill(out, sizeof(out), what);
	io(1, IO_WRITE, AT, sizeof(out), out);
	run_ms(20);
	CHECK_EQ_U64(w.io_done[1], 1);
}

static void is_read(void)
{
	memset(in, 0, sizeof(in));
	io(4, IO_READ, AT, sizeof(in), in);
	run_ms(20000);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

/* A copy of member 1 that was made while its region was marked, so that its log is the newest: on
 * device 3, which is nobody's, or on the one that is member 0. The device in use stays. */
TEST(a_copy_takes_no_place_after_an_exchange)
{
	for (uint32_t at = 1; at <= 3; at += 2)
		for (uint32_t marked = 0; marked < 2; marked++) {
			uint8_t *copy;

			exchanged();
			put(1);
			run_ms(marked ? 0 : 3000);
			copy = image_of(0);
			put(2);
			run_ms(marked ? 0 : 3000);
			if (at == 1) {
				dev_down(1);
				free(w.disk[1]);
			}
			w.disk[at] = copy;
			dev_up(at);
			run_ms(40);
			is_read();
			CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 1);
			CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
			CHECK(engine_dev_foreign(w.e, at));
			finish();
		}
}

/* The exporter of member 0 says that it is member 2, whose connection breaks for a moment. */
TEST(who_was_exchanged_does_not_pose_as_a_third)
{
	exchanged();
	put(1);
	run_ms(3000);
	dev_down(1);
	free(w.disk[1]);
	w.disk[1] = image_of(2);
	dev_up(1);
	run_ms(5000);
	put(2);
	dev_down(2);
	run_ms(300);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 1), 0xff);
	dev_up(2);
	run_ms(5000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 2), 2);
	is_read();
	finish();
}

/* Device 3 carries a copy of member 1 that ends early. */
TEST(a_short_copy_gives_up_no_member_after_an_exchange)
{
	exchanged();
	w.disk[3] = image_of(0);
	w.shrunk[3] = DISK_BYTES - 65536;
	dev_up(3);
	run_ms(20000);
	dev_down(0);
	run_ms(1000);
	dev_up(0);
	run_ms(20000);
	for (uint32_t m = 0; m < MEMBERS; m++)
		CHECK_EQ_INT(status().map.member[m].state, MEMBER_IN_SYNC);
	finish();
}

/* Two ways lead to member 2. It is cut off and extended, and one of them has the size of before all
 * the while. */
TEST(what_was_cut_off_is_so_whatever_another_way_says)
{
	create(1);
	start();
	run_ms(20000);
	w.disk[3] = w.disk[2];
	dev_up(3);
	run_ms(1000);
	memset(w.disk[2] + DISK_BYTES - 65536, 0, 65536);
	w.shrunk[2] = DISK_BYTES - 65536;
	dev_event(EV_DEV_DOWN, 2);
	dev_event(EV_DEV_UP, 2);
	run_ms(200);
	CHECK(engine_dev_misfit(w.e, 2));
	w.shrunk[2] = 0;
	dev_event(EV_DEV_DOWN, 3);
	dev_event(EV_DEV_DOWN, 2);
	dev_event(EV_DEV_UP, 2);
	dev_event(EV_DEV_UP, 3);
	run_ms(20000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_FAULTY);
	w.disk[3] = NULL;
	finish();
}

/* Member 1 has another address, is whole there, and has been for long; its former exporter is back
 * with an older copy that ends early. */
TEST(a_short_copy_at_its_former_address_gives_up_no_member)
{
	for (uint32_t missing = 0; missing < 2; missing++) {
		uint8_t *copy;

		create(1);
		w.uri[3] = "mem:elsewhere";
		start();
		run_ms(20000);
		put(1);
		run_ms(3000);
		copy = image_of(1);
		dev_down(1);
		run_ms(20);
		w.disk[3] = w.disk[1];
		w.disk[1] = copy;
		dev_up(3);
		run_ms(70000);
		CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 1);
		put(2);
		if (missing) {
			dev_down(2);
			run_ms(5000);
			put(3);
		}
		w.shrunk[1] = DISK_BYTES - 65536;
		dev_up(1);
		run_ms(10000);
		ring_changes();
		run_ms(60000);
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
		is_read();
		finish();
	}
}

/* Nor does an older copy on a third device keep the place of who is back. Member 2 is missing. */
TEST(an_older_copy_leaves_the_place_to_who_was_exchanged)
{
	uint8_t *copy;

	exchanged();
	dev_down(2);
	run_ms(3000);
	put(1);
	run_ms(3000);
	copy = image_of(0);
	put(2);
	run_ms(3000);
	w.disk[3] = copy;
	dev_up(3);
	run_ms(5000);
	dev_down(0);
	run_ms(1);
	dev_up(0);
	run_ms(60000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 1);
	is_read();
	finish();
}
