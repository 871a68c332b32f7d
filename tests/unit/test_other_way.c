/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * R5 where one disk has two addresses: a write was cut off on its way by the one, and the disk is
 * used by the other before the write lands. The write lands as late as it may.
 */
#include "tests/unit/engine_world.h"

#define REACH_MS 14000u

static uint8_t out[4096], in[4096];
static uint8_t cut[4096]; /* what lands late */
static uint64_t cut_at;
static uint32_t frag;

/* A write to member 1 is cut off, and goes on without it. Its disk has a second address. */
static void cut_off(void)
{
	struct event ev = {.type = EV_DEV_DONE};

	create(1);
	w.claim_ms = 250;
	w.reach_ms = REACH_MS;
	w.uri[1] = "mem:1";
	start();
	run_ms(6000);
	frag = engine_geo(w.e)->frag_bytes;
	cut_at = geo_offset(engine_geo(w.e), 0);
	w.slow = 1u << 1;
	fill(out, sizeof(out), 1);
	io(1, IO_WRITE, 0, sizeof(out), out);
	run_ms(5);
	CHECK_EQ_U64(w.slow_count, 1);
	memcpy(cut, w.disk[1] + cut_at, frag);
	ev.done.id = w.slow_id[0];
	ev.done.err = -ECONNRESET;
	step(ev);
	w.slow = 0;
	dev_down(1);
	w.disk[MEMBERS] = w.disk[1];
	w.disk[1] = calloc(1, DISK_BYTES);
	CHECK(w.disk[1]);
	run_ms(1000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
}

/* Something newer is there, and the old write lands. */
static void lands(uint32_t after_ms)
{
	fill(out, sizeof(out), 2);
	io(2, IO_WRITE, 0, sizeof(out), out);
	run_ms(after_ms);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_INT(w.io_err[2], 0);
	CHECK_EQ_U64(status().regions_dirty, 0);
	CHECK(status().map.member[1].state != MEMBER_IN_SYNC);
	CHECK(status().map.member[1].state != MEMBER_REBUILDING);
	memcpy(w.disk[MEMBERS] + cut_at, cut, frag);
}

/* Another member is lost, at that device. */
static void all_is_well_without(uint32_t other)
{
	uint8_t *disk = w.disk[0];

	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_INT(engine_member_of_dev(w.e, MEMBERS), 1);
	w.disk[0] = w.disk[other];
	CHECK_EQ_U64(parity_wrong(MEMBERS), 0);
	w.disk[0] = disk;
	dev_down(other);
	io(3, IO_READ, 0, sizeof(in), in);
	run_ms(2000);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_MEM(in, out, sizeof(out));
	finish();
}

static void all_is_well(void)
{
	all_is_well_without(0);
}

TEST(a_member_is_back_by_another_way_once_nothing_lands_on_the_first)
{
	cut_off();
	dev_up(MEMBERS);
	run_ms(1000);
	lands(REACH_MS - 2500);
	run_ms(8000);
	all_is_well();
}

TEST(nor_is_its_disk_added_as_another_before_that)
{
	cut_off();
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 1}});
	run_ms(500);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.cmd = ADMIN_ADD, .member = 1, .uri = "mem:new"}});
	run_ms(500);
	lands(REACH_MS - 500);
	CHECK(!w.admin_done);
	run_ms(8000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
	all_is_well();
}

/* Its exporter was frozen, and holds the write still: it may carry it out after it has thawed. */
TEST(the_time_counts_from_the_first_answer_and_not_from_the_break)
{
	cut_off();
	run_ms(2 * REACH_MS);
	dev_up(MEMBERS);
	run_ms(1000);
	lands(REACH_MS - 2000);
	run_ms(2000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_MISSING); /* it was away for too long */
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_READD, .member = 1}});
	run_ms(8000);
	all_is_well();
}

/* An operator who asks for the member in the meantime gets it once nothing lands. */
TEST(a_readd_has_the_time_that_it_takes)
{
	cut_off();
	run_ms(3 * REACH_MS);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_MISSING);
	dev_up(MEMBERS);
	run_ms(1000);
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_READD, .member = 1}});
	lands(REACH_MS - 2000);
	CHECK(!w.admin_done);
	run_ms(8000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
	all_is_well();
}

/* A write to member 1, whose device is `first`, is under way while its superblock is not found
 * there any more: it is used by its second address. Then the write is cut off. */
static void replaced_under_a_write(uint32_t first)
{
	struct event ev = {.type = EV_DEV_DONE};

	w.slow = 1u << first;
	fill(out, sizeof(out), 1);
	io(1, IO_WRITE, 0, sizeof(out), out);
	run_ms(5);
	CHECK_EQ_U64(w.slow_count, 1);
	memcpy(cut, w.disk[first] + cut_at, frag);
	w.disk[MEMBERS] = w.disk[first];
	dev_up(MEMBERS);
	run_ms(100);
	CHECK_EQ_INT(engine_member_of_dev(w.e, first), 1);
	w.disk[first] = calloc(1, DISK_BYTES);
	CHECK(w.disk[first]);
	w.hung = 1u << first; /* and so is no wish to connect it anew */
	ring_changes();
	run_ms(500);
	CHECK_EQ_INT(engine_member_of_dev(w.e, MEMBERS), 1);
	ev.done.id = w.slow_id[0];
	ev.done.err = -ECONNRESET;
	step(ev);
	w.slow = w.hung = 0;
	dev_down(first);
	run_ms(1000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	lands(REACH_MS - 2500);
	run_ms(8000);
	all_is_well_without(first ? 0 : 1);
}

static void served(void)
{
	create(1);
	w.claim_ms = 250;
	w.reach_ms = REACH_MS;
	w.uri[1] = "mem:1";
	start();
	run_ms(6000);
	frag = engine_geo(w.e)->frag_bytes;
	cut_at = geo_offset(engine_geo(w.e), 0);
}

TEST(what_is_under_way_on_the_first_is_waited_for)
{
	served();
	replaced_under_a_write(1);
}

/* The device was another member before. What was sent was for the one that it was then. */
TEST(it_was_for_the_member_that_the_device_was_when_it_was_sent)
{
	uint8_t *disk;

	served();
	for (uint32_t m = 0; m < 2; m++) {
		dev_down(m);
		run_ms(20);
	}
	disk = w.disk[0];
	w.disk[0] = w.disk[1];
	w.disk[1] = disk;
	for (uint32_t m = 0; m < 2; m++) {
		dev_up(m);
		run_ms(20);
	}
	run_ms(70000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 1);
	replaced_under_a_write(0);
}

/* Its exporter stands still when it is to be looked at, and the connection breaks. */
TEST(a_read_that_failed_is_no_answer)
{
	struct event ev = {.type = EV_DEV_DONE};

	cut_off();
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 1}});
	run_ms(500);
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.cmd = ADMIN_ADD, .member = 1, .uri = "mem:new"}});
	run_ms(800);
	w.sb_hangs = 1u << MEMBERS;
	run_ms(1000);
	CHECK(w.hung_count);
	for (; w.hung_count; w.hung_count--) {
		ev.done.id = w.hung_out[w.hung_count - 1].io.id;
		ev.done.err = -ECONNRESET;
		step(ev);
	}
	run_ms(10);
	w.sb_hangs = 0;
	dev_down(MEMBERS);
	run_ms(4000);
	dev_up(MEMBERS);
	lands(REACH_MS - 1000);
	CHECK(!w.admin_done);
	run_ms(8000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
	all_is_well();
}

/* It is in use by the second already, and compared, when the write on the first is cut off; and the
 * data can't do without it, so it does not leave the map. */
TEST(a_member_that_is_in_use_by_another_way_is_not_from_a_cut_off_on)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint8_t late[4096];

	served();
	dev_down(2);
	run_ms(60000);
	CHECK(status().map.member[2].state != MEMBER_IN_SYNC);
	w.slow = 1u << 1;
	fill(out, sizeof(out), 1);
	io(1, IO_WRITE, 0, sizeof(out), out);
	run_ms(5);
	CHECK_EQ_U64(w.slow_count, 1);
	memcpy(late, w.disk[1] + cut_at, frag);
	w.disk[MEMBERS] = w.disk[1];
	w.sb_hangs = 1u << 1;
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.cmd = ADMIN_ADD, .member = 2, .uri = "mem:1"}});
	run_ms(100);
	dev_up(MEMBERS);
	run_ms(100);
	CHECK_EQ_INT(engine_member_of_dev(w.e, MEMBERS), 1);
	w.disk[1] = calloc(1, DISK_BYTES);
	CHECK(w.disk[1]);
	ev.done.id = w.slow_id[0];
	ev.done.err = -ECONNRESET;
	step(ev);
	w.slow = w.sb_hangs = 0;
	dev_down(1);
	fill(out, sizeof(out), 2);
	io(2, IO_WRITE, 0, sizeof(out), out);
	run_ms(REACH_MS - 2000);
	CHECK_EQ_U64(w.io_done[2], 0);
	memcpy(w.disk[MEMBERS] + cut_at, late, frag);
	run_ms(20000);
	CHECK_EQ_U64(w.io_done[2], 1);
	io(3, IO_READ, 0, sizeof(in), in);
	run_ms(2000);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_MEM(in, out, sizeof(out));
	finish();
}

/* The first way is dead for good: what was cut off there does not keep this node for ever. */
TEST(a_node_leaves_once_nothing_lands_though_the_first_way_is_dead)
{
	cut_off();
	dev_up(MEMBERS);
	run_ms(1000);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(REACH_MS - 2500);
	CHECK(!w.stopped);
	run_ms(8000);
	CHECK(w.stopped);
	finish();
}

/* Nobody waits where nothing was cut off. */
TEST(a_member_that_had_nothing_under_way_is_back_at_once)
{
	create(1);
	w.reach_ms = REACH_MS;
	w.uri[1] = "mem:1";
	start();
	run_ms(6000);
	dev_down(1);
	w.disk[MEMBERS] = w.disk[1];
	w.disk[1] = calloc(1, DISK_BYTES);
	CHECK(w.disk[1]);
	run_ms(100);
	dev_up(MEMBERS);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_INT(engine_member_of_dev(w.e, MEMBERS), 1);
	finish();
}
