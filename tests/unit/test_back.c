/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Members that come back as older copies of themselves, made after the last change of the map: no
 * superblock tells, but this node's pages of the dirty log do (core/cluster/back.c).
 */
#include "tests/unit/engine_world.h"

#define AT (5ull * (256 << 10)) /* in region 5 */

static uint8_t out[4096], in[4096];

static void put(uint8_t what)
{
	fill(out, sizeof(out), what);
	io(1, IO_WRITE, AT, sizeof(out), out);
}

static void clean(void)
{
	run_ms(3000);
	CHECK_EQ_U64(status().regions_dirty, 0);
}

/* Whatever is on members 0 and 1, member 2 has to do its part. */
static void all_reads(uint64_t at, uint8_t *want, uint32_t bytes)
{
	uint8_t *got = malloc(bytes);

	CHECK(got);
	for (uint32_t gone = 0; gone < 2; gone++) {
		memset(got, 0, bytes);
		dev_down(gone);
		run_ms(600);
		w.io_done[5 + gone] = 0;
		io(5 + gone, IO_READ, at, bytes, got);
		run_ms(600);
		CHECK(w.io_done[5 + gone]);
		CHECK_EQ_MEM(got, want, bytes);
		dev_up(gone);
		run_ms(3000);
	}
	free(got);
}

static void whole(void)
{
	run_ms(5000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	all_reads(AT, out, sizeof(out));
}

/* Member 2 is away for so long that it leaves the map, and comes back with that content. */
static void away_and_back(const uint8_t *content)
{
	dev_event(EV_DEV_DOWN, 2);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	if (content)
		memcpy(w.disk[2], content, DISK_BYTES);
	dev_event(EV_DEV_UP, 2);
}

/* The exporters have this identity; 0 = none. */
static uint8_t *older_than_a_clear(uint64_t instance)
{
	uint8_t *copy;

	create(1);
	w.instance = instance;
	start();
	run_ms(20000);
	put(1);
	clean();
	copy = image_of(2);
	put(2);
	clean();
	return copy;
}

TEST(what_was_cleared_since_the_copy_is_copied_again)
{
	for (uint32_t old = 0; old < 2; old++) {
		uint8_t *copy = older_than_a_clear(0);

		away_and_back(old ? copy : NULL);
		run_ms(3000);
		CHECK_EQ_INT(engine_dev_older(w.e, 2), old);
		whole();
		finish();
		free(copy);
	}
}

/* Its connection never broke: it had answered with an error. */
TEST(also_at_a_re_add)
{
	for (uint32_t old = 0; old < 2; old++) {
		uint8_t *copy = older_than_a_clear(0);
		struct event ev = {.type = EV_ADMIN};

		io(3, IO_WRITE, 6 * (256 << 10), sizeof(in), in);
		w.dead[2] = true;
		io(4, IO_WRITE, 6 * (256 << 10), sizeof(in), in);
		run_ms(20);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_MISSING);
		w.dead[2] = false;
		if (old)
			memcpy(w.disk[2], copy, DISK_BYTES);
		ev.admin.cmd = ADMIN_READD;
		ev.admin.member = 2;
		step(ev);
		run_ms(3000);
		CHECK_EQ_INT(engine_dev_older(w.e, 2), old);
		whole();
		finish();
		free(copy);
	}
}

/* It says nothing, but for all others. */
TEST(a_page_that_cant_be_read_makes_no_older_copy)
{
	uint8_t *copy = older_than_a_clear(0);

	w.back_errs = DDR_BLOCK_BYTES;
	away_and_back(NULL);
	run_ms(3000);
	CHECK(!engine_dev_older(w.e, 2));
	whole();
	finish();
	free(copy);
}

/* The clear is decided, and the page that says so is not on the member when that is lost. */
TEST(a_clear_that_the_member_has_not_heard_of_is_copied_again)
{
	static const uint32_t late_ms[] = {5, 100};

	for (uint32_t t = 0; t < 2; t++) {
		uint8_t *copy;

		create(1);
		start();
		run_ms(20000);
		put(1);
		run_ms(20);
		CHECK_EQ_U64(status().regions_dirty, 1);
		copy = image_of(2);
		put(2);
		while (status().regions_dirty)
			run_ms(1);
		run_ms(late_ms[t]);
		away_and_back(copy);
		whole();
		finish();
		free(copy);
	}
}

/* The images are read one by one, the first is older, and the map drops the member before the next.
 */
TEST(a_commit_within_the_compare_does_not_end_it)
{
	uint8_t *copy = older_than_a_clear(0);

	w.hung = 1; /* superblock writes to member 0 take a while */
	dev_event(EV_DEV_DOWN, 2);
	run_ms(100);
	CHECK_EQ_U64(w.hung_count, 1);
	memcpy(w.disk[2], copy, DISK_BYTES);
	w.back_errs = 2 * DDR_BLOCK_BYTES;
	w.back_hold = true;
	w.back_pass = 2; /* the two together, which fails, and the first */
	dev_event(EV_DEV_UP, 2);
	run_ms(100);
	CHECK_EQ_U64(w.hung_count, 2);
	w.hung = 0;
	w.hung_count = 1;
	do_io(&w.hung_out[0]);
	w.hung_out[0] = w.hung_out[1];
	run_ms(100);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	land_hung();
	run_ms(3000);
	CHECK(engine_dev_older(w.e, 2));
	whole();
	finish();
	free(copy);
}

/* A page that it had acknowledged is through when another exporter is in its place. */
TEST(an_exporter_is_the_one_that_has_acknowledged)
{
	uint8_t *copy = older_than_a_clear(5);

	w.log_hold = true;
	io(2, IO_WRITE, 9 * (256 << 10), sizeof(in), in);
	dev_event(EV_DEV_DOWN, 2);
	memcpy(w.disk[2], copy, DISK_BYTES);
	w.instance = 6;
	land_hung();
	dev_event(EV_DEV_UP, 2);
	run_ms(5000);
	CHECK(engine_dev_older(w.e, 2));
	whole();
	finish();
	free(copy);
}

/* Of pages that can't be read nobody knows whether they are older. */
TEST(an_older_copy_with_a_bad_sector_in_its_log_is_brought_up)
{
	uint8_t *copy = older_than_a_clear(0);

	w.back_errs = DDR_BLOCK_BYTES;
	away_and_back(copy);
	run_ms(5000);
	w.back_errs = 0;
	whole();
	finish();
	free(copy);
}

/* It is compared while the map has the member still, and then dropped by it. */
TEST(also_if_it_is_back_before_it_has_left)
{
	for (uint32_t held = 0; held < 2; held++) {
		uint8_t *copy = older_than_a_clear(0);

		w.back_errs = DDR_BLOCK_BYTES;
		w.hung = held; /* a superblock write of member 0 keeps the commit off */
		dev_event(EV_DEV_DOWN, 2);
		memcpy(w.disk[2], copy, DISK_BYTES);
		dev_event(EV_DEV_UP, 2);
		run_ms(100);
		land_hung();
		run_ms(5000);
		CHECK(!engine_dev_older(w.e, 2));
		w.back_errs = 0;
		whole();
		finish();
		free(copy);
	}
}

/* A second way to the member is connected while that is, and leads to the copy. */
TEST(what_takes_a_members_place_is_compared_then)
{
	for (uint32_t before = 0; before < 2; before++) {
		create(1);
		start();
		run_ms(20000);
		put(1);
		clean();
		w.disk[3] = image_of(2);
		if (before)
			dev_event(EV_DEV_UP, 3);
		run_ms(100);
		put(2);
		clean();
		dev_down(2);
		if (!before)
			dev_event(EV_DEV_UP, 3);
		run_ms(5000);
		CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 2);
		CHECK(engine_dev_older(w.e, 3));
		whole();
		finish();
	}
}

static void is_waited_for(void)
{
	run_ms(5000);
	CHECK(!status().io_allowed);
	CHECK(strstr(status().waits, "older copy"));
	w.io_done[4] = 0;
	io(4, IO_READ, AT, sizeof(in), in);
	run_ms(1000);
	CHECK(!w.io_done[4]);
}

static void is_right(void)
{
	run_ms(60000);
	CHECK(status().io_allowed);
	CHECK(w.io_done[4]);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

/* Another member is away, so the map can't drop it. The right one comes by the same way, once the
 * connection has ended by itself, or is connected anew; or it has been connected by another way all
 * along, and there is nothing to wait for. */
TEST(an_older_copy_that_the_data_needs_is_waited_out)
{
	for (uint32_t by = 1; by < 4; by++) {
		uint8_t *copy, *right;

		create(1);
		start();
		run_ms(20000);
		dev_down(1);
		run_ms(600);
		put(1);
		clean();
		copy = image_of(2);
		put(2);
		clean();
		right = w.disk[2];
		if (by == 3) {
			w.disk[3] = right;
			dev_event(EV_DEV_UP, 3);
			run_ms(100);
		}
		dev_down(2);
		run_ms(by == 3 ? 0 : 600);
		w.disk[2] = copy;
		dev_up(2);
		if (by < 3) {
			is_waited_for();
			if (by == 2)
				dev_down(2);
			w.disk[2] = right;
			if (by == 2)
				dev_up(2);
		} else {
			w.io_done[4] = 0;
			io(4, IO_READ, AT, sizeof(in), in);
		}
		is_right();
		CHECK_EQ_INT(engine_member_of_dev(w.e, by == 3 ? 3 : 2), 2);
		if (by == 3)
			w.disk[2] = NULL; /* one of the two is freed */
		finish();
		free(copy);
	}
}

/* Member 2 got nothing of the last writes of an incarnation that is dead. The next one resyncs
 * their regions, which takes its time. */
static void half_written_by_the_dead(void)
{
	static uint8_t data[256 << 10];
	uint8_t *before = NULL;
	uint64_t offset;

	create(1);
	start();
	run_ms(20000);
	for (uint32_t old = 0; old < 2; old++) {
		for (uint32_t r = 0; r < 40; r++) {
			fill(data, sizeof(data), (uint8_t)(r + 1 + 100 * old));
			io(1, IO_WRITE, r * (256ull << 10), sizeof(data), data);
		}
		if (old)
			break;
		run_ms(3000);
		before = image_of(2);
	}
	offset = engine_geo(w.e)->data_offset;
	memcpy(w.disk[2] + offset, before + offset, DISK_BYTES - offset);
	free(before);
	engine_free(w.e);
	w.window_kind = KIND_RESYNC;
	w.window_us = 20000;
	start_cold();
}

/* A dead incarnation's regions are resynced after the copy was made. That life has written nothing
 * since. Once the map is changed for another reason meanwhile, by superblocks that the copy has
 * already.
 */
TEST(what_was_resynced_since_the_copy_is_told_by_an_epoch)
{
	static uint8_t was[256 << 10];

	for (uint32_t changes = 0; changes < 2; changes++) {
		uint8_t *copy;

		half_written_by_the_dead();
		while (status().map.epoch.num < 5 || (!changes && status().regions_dirty))
			run_event();
		w.hung = changes; /* superblocks take their time to member 0 */
		while (changes && superblock_of(2).map.epoch.num < 6)
			run_event();
		CHECK(parity_wrong(1) > 0);
		copy = image_of(2);
		w.window_us = 0;
		run_ms(4000);
		land_hung();
		run_ms(20000);
		CHECK_EQ_U64(parity_wrong(1), 0);
		io(2, IO_READ, 39 * (256ull << 10), sizeof(was), was);
		run_ms(100);
		away_and_back(copy);
		run_ms(5000);
		CHECK_EQ_U64(parity_wrong(1), 0);
		all_reads(39 * (256ull << 10), was, sizeof(was));
		finish();
		free(copy);
	}
}

/* The same, but an epoch that was proposed before is committed only after the page, and the one
 * that is to tell drops the member: the copy carries the first. */
TEST(what_was_resynced_is_told_by_no_epoch_that_was_on_its_way)
{
	static uint8_t was[256 << 10];
	uint8_t *copy;

	half_written_by_the_dead();
	while (status().map.epoch.num < 5)
		run_event();
	w.hung = 1; /* superblocks take their time to member 0 */
	while (superblock_of(2).map.epoch.num < 6)
		run_event();
	CHECK_EQ_U64(status().map.epoch.num, 5);
	CHECK(parity_wrong(1));
	copy = image_of(2);
	w.window_us = 0;
	run_ms(4000);
	CHECK_EQ_U64(parity_wrong(1), 0);
	land_hung();
	while (status().map.epoch.num < 6)
		run_event();
	dev_event(EV_DEV_DOWN, 2);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	io(2, IO_READ, 39 * (256ull << 10), sizeof(was), was);
	run_ms(100);
	memcpy(w.disk[2], copy, DISK_BYTES);
	dev_event(EV_DEV_UP, 2);
	run_ms(8000);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_U64(parity_wrong(1), 0);
	all_reads(39 * (256ull << 10), was, sizeof(was));
	finish();
	free(copy);
}

/* Two ways lead to member 0, and the one that is in use answers a read with an error. A page is on
 * its way by that when the other is compared, and lands between the compare's read and its answer.
 */
TEST(an_image_that_lands_within_the_compare_makes_no_older_copy)
{
	static uint8_t all[256 << 10];

	create(1);
	start();
	run_ms(6000);
	w.disk[3] = w.disk[0];
	dev_event(EV_DEV_UP, 3);
	run_ms(1000);
	dev_event(EV_DEV_DOWN, 0);
	run_ms(20000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 0);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
	put(1);
	clean();
	w.log_hold = true;
	w.log_hold_dev = 3;
	put(2);
	CHECK_EQ_U64(w.hung_count, 1);
	w.dead[3] = true;
	io(2, IO_READ, 0, sizeof(all), all); /* also of member 0 */
	w.back_late = true;
	dev_event(EV_DEV_UP, 0);
	while (w.first != w.last)
		step(w.pending[w.first++ % QUEUE]);
	CHECK(w.back_answers > 0);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 0);
	run_ms(600);
	CHECK_MSG(status().map.member[0].state == MEMBER_IN_SYNC, "a page is on its way to it");
	w.dead[3] = false;
	land_hung();
	while (w.first != w.last)
		step(w.pending[w.first++ % QUEUE]);
	w.back_late = false;
	for (uint32_t i = 0; i < w.back_answers; i++)
		push(w.back_answer[i]);
	run_ms(20000);
	CHECK(!engine_dev_older(w.e, 0));
	CHECK(status().io_allowed);
	w.disk[3] = NULL;
	finish();
}
