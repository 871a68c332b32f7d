/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Members that leave the map, come back into it, or are replaced, and who waits for that. */
#include "tests/unit/engine_world.h"

TEST(a_member_whose_connection_broke_comes_back_by_itself)
{
	create(1);
	start();
	run_ms(2000);
	dev_down(2);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	dev_up(2);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	finish();
}

TEST(with_too_few_members_the_status_says_that_io_is_held)
{
	uint64_t down_us;

	create(1);
	start();
	run_ms(2000);
	dev_down(2);
	run_ms(600);
	CHECK(status().io_allowed);
	down_us = w.now;
	dev_down(0);
	run_ms(600);
	CHECK(!status().io_allowed);
	CHECK(strstr(status().waits, "members"));
	CHECK(status().waits_since_us >= down_us);
	dev_up(0);
	dev_up(2);
	run_ms(3000);
	CHECK(status().io_allowed);
	finish();
}

TEST(a_change_of_the_map_is_waited_for_since_it_was_proposed)
{
	uint64_t down_us;

	create(1);
	start();
	run_ms(2000);
	w.hung = 1;
	down_us = w.now;
	dev_down(2);
	run_ms(200);
	CHECK(status().proposing);
	CHECK_EQ_STR(status().waits, "a change of the map");
	CHECK(status().waits_since_us >= down_us && status().waits_since_us < w.now);
	finish();
}

TEST(who_can_not_use_a_member_waits_for_a_change_of_the_map_before_it_is_proposed)
{
	static uint8_t out[4096], in[4096];
	uint64_t down_us;

	create(1);
	start();
	run_ms(2000);
	fill(out, sizeof(out), 9);
	io(1, IO_WRITE, 0, sizeof(out), out);
	CHECK(!status().waits);
	w.mute = true; /* nobody hears of it, so nothing is proposed */
	down_us = w.now;
	dev_down(2);
	io(2, IO_READ, 0, sizeof(in), in);
	io(3, IO_WRITE, 0, sizeof(out), out);
	run_ms(500);
	CHECK(!status().proposing && status().io_allowed);
	CHECK(!w.io_done[2] && !w.io_done[3]);
	CHECK(status().waits && strstr(status().waits, "a member that this node can't use"));
	CHECK(status().waits_since_us >= down_us && status().waits_since_us < w.now);
	w.mute = false;
	run_ms(500);
	CHECK(w.io_done[2] && w.io_done[3]);
	CHECK_EQ_MEM(in, out, sizeof(in));
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	CHECK(!status().waits);
	finish();
}

/* The proposal may be lost with all nodes that know it. Then the member is in sync again, with the
 * old content of what was in flight, and a read that had decoded the new one would flip. */
TEST(a_read_decodes_around_no_member_before_the_commit_that_drops_it)
{
	static uint8_t out[64 << 10], in[64 << 10];

	for (uint32_t broken = 0; broken < 2; broken++) {
		struct event ev = {.type = EV_ADMIN};

		create(1);
		start();
		run_ms(3000);
		fill(out, sizeof(out), 9);
		io(1, IO_WRITE, 0, sizeof(out), out);
		CHECK_EQ_U64(w.io_done[1], 1);
		w.hung = 1u << 0;
		if (broken) {
			dev_down(2);
		} else {
			ev.admin.cmd = ADMIN_FAIL;
			ev.admin.member = 2;
			step(ev);
		}
		run_ms(100);
		CHECK(status().proposing && w.hung_count);
		CHECK(status().proposed.member[2].state != MEMBER_IN_SYNC);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
		io(2, IO_READ, 0, sizeof(in), in);
		run_ms(500);
		CHECK(status().proposing && status().io_allowed);
		CHECK_EQ_U64(w.io_done[2], 0);
		CHECK_EQ_U64(w.counts[KIND_DATA][DEV_READ], 0);
		land_hung();
		run_ms(20);
		CHECK(status().map.member[2].state != MEMBER_IN_SYNC);
		CHECK_EQ_U64(w.io_done[2], 1);
		CHECK_EQ_INT(w.io_err[2], 0);
		CHECK_EQ_MEM(in, out, sizeof(in));
		finish();
	}
}

/* A member leaves before it can be failed: the data needs the other now. */
TEST(a_fail_that_comes_to_nothing_is_not_carried_out_later_and_holds_nobody_up)
{
	struct event ev = {.type = EV_ADMIN};

	create(1);
	start();
	run_ms(2000);
	dev_down(2);
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 1;
	step(ev);
	run_ms(1000);
	CHECK(status().map.member[2].state != MEMBER_IN_SYNC);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	dev_down(0);
	run_ms(100);
	dev_up(0);
	run_ms(12000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, -EAGAIN);
	CHECK(status().io_allowed && !status().unusable);
	dev_up(2);
	run_ms(6000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	finish();
}

/* A block device of the kernel's names its troubles as a network does. */
TEST(a_flush_that_failed_makes_a_member_faulty_whatever_the_error)
{
	static const int err[] = {-EIO, -ETIMEDOUT, -ENXIO};
	static uint8_t out[4096];

	for (uint32_t i = 0; i < 3; i++) {
		create(1);
		start();
		run_ms(2000);
		w.flush_err = err[i];
		io(1, IO_WRITE, 0, sizeof(out), out);
		io(2, IO_FLUSH, 0, 0, NULL);
		run_ms(1000);
		CHECK_EQ_U64(w.io_done[2], 1);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_FAULTY);
		finish();
	}
}

/* R14: that failure was the old device's; what a member is rebuilt onto has not failed. */
TEST(a_failed_flush_is_forgotten_with_its_member_also_if_that_broke_off)
{
	static uint8_t out[4096];
	struct event ev = {.type = EV_ADMIN}, flush = {.type = EV_IO};

	create(1);
	start();
	run_ms(2000);
	w.flush_err = -EIO;
	io(1, IO_WRITE, 0, sizeof(out), out);
	flush.io.tag = 2;
	flush.io.op = IO_FLUSH;
	step(flush);
	while (!(status().unusable >> 2 & 1))
		run_event();
	dev_event(EV_DEV_DOWN, 2);
	run_ms(1000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_FAULTY);
	w.flush_err = 0;
	w.dead[2] = false;
	ev.dev.dev = 2;
	ev.type = EV_DEV_UP;
	ev.dev.bytes = DISK_BYTES;
	ev.dev.uri = "mem:2";
	step(ev);
	run_ms(100);
	ev = (struct event){.type = EV_ADMIN};
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.member = 2;
	ev.admin.uri = "mem:2";
	w.placed_at = 2;
	step(ev);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	finish();
}

TEST(a_member_fails_and_a_new_one_is_rebuilt)
{
	static uint8_t out[512 << 10], in[512 << 10];
	struct event ev = {.type = EV_ADMIN};
	uint64_t size;

	create(1);
	start();
	run_ms(2000);
	size = engine_geo(w.e)->size_bytes;
	io(9, IO_ZEROES, 0, (uint32_t)size, NULL);
	fill(out, sizeof(out), 77);
	io(1, IO_WRITE, 0, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
	w.dead[1] = true;
	fill(out, sizeof(out), 78);
	io(2, IO_WRITE, 0, sizeof(out), out);
	run_ms(100);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_INT(w.io_err[2], 0);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_MISSING);
	io(3, IO_READ, 0, sizeof(in), in);
	run_ms(10);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	w.disk[MEMBERS] = calloc(1, DISK_BYTES);
	memset(w.disk[MEMBERS], 0x33, DISK_BYTES);
	ev.admin.tag = 5;
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.member = 1;
	ev.admin.uri = "mem:new";
	step(ev);
	run_ms(3000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	/* A thin member needs no space where there is nothing. */
	CHECK_EQ_U64(w.written, sizeof(out) / 2);
	CHECK_EQ_U64(w.zeroed, size / 2 - w.written);
	/* Now the new one must carry the data: take another away. */
	w.dead[0] = true;
	memset(in, 0, sizeof(in));
	io(4, IO_READ, 0, sizeof(in), in);
	run_ms(200);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* Member 1 has failed, and there is another device. */
static void failed_and_another(void)
{
	create(1);
	start();
	run_ms(2000);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 1}});
	run_ms(500);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	w.disk[MEMBERS] = calloc(1, DISK_BYTES);
	CHECK(w.disk[MEMBERS]);
}

/* R8: its requests are cancelled, and not waited for. */
TEST(a_member_that_answers_nothing_is_failed_at_once)
{
	static uint8_t out[4096];

	create(1);
	start();
	run_ms(2000);
	w.slow = 1u << 1;
	io(1, IO_WRITE, 0, sizeof(out), out);
	run_ms(5);
	CHECK_EQ_U64(w.slow_count, 1);
	CHECK_EQ_U64(w.io_done[1], 0);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 1}});
	run_ms(500);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	finish();
}

static void another_is_added(void)
{
	w.admin_done = false;
	step((struct event){.type = EV_ADMIN,
			    .admin = {.cmd = ADMIN_ADD, .member = 1, .uri = "mem:new"}});
	run_ms(3000);
	CHECK(w.admin_done);
}

TEST(an_add_whose_device_breaks_off_as_it_is_written_says_so_at_once)
{
	failed_and_another();
	w.tear = 1u << MEMBERS;
	another_is_added();
	CHECK_EQ_U64(w.tear, 0);
	CHECK_EQ_INT(w.admin_err, -EIO);
	CHECK_MSG(strstr(w.admin_why, "mem:new"), "%s", w.admin_why);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	finish();
}

/* Another device, opened before the new one, says that it is that member. */
TEST(a_device_that_was_added_stays_the_member)
{
	struct superblock sb;

	failed_and_another();
	another_is_added();
	CHECK_EQ_INT(engine_member_of_dev(w.e, MEMBERS), 1);
	dev_down(0);
	sb = superblock_of(MEMBERS);
	superblock_put(0, &sb);
	dev_up(0);
	run_ms(3000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, MEMBERS), 1);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 0xff);
	finish();
}

/* Member 1 has left; what was member `from` is added. */
static int add_copy_of(uint32_t from)
{
	int err;

	failed_and_another();
	memcpy(w.disk[MEMBERS], w.disk[from], DISK_BYTES);
	another_is_added();
	err = w.admin_err;
	CHECK_EQ_INT(status().map.member[1].state, err ? MEMBER_FAULTY : MEMBER_IN_SYNC);
	finish();
	return err;
}

TEST(a_device_in_use_is_not_added_under_another_uri)
{
	CHECK_EQ_INT(add_copy_of(0), -ENOTUNIQ);
	CHECK_EQ_INT(add_copy_of(1), 0);
}

TEST(a_device_that_is_no_member_is_told_of)
{
	create(1);
	start();
	w.disk[MEMBERS] = calloc(1, DISK_BYTES);
	dev_event(EV_DEV_UP, MEMBERS);
	run_ms(100);
	CHECK(engine_dev_foreign(w.e, MEMBERS));
	for (uint32_t i = 0; i < 3; i++)
		CHECK(!engine_dev_foreign(w.e, i));
	finish();
}

/* Member 2 has an older copy of itself in store, from before a change of the map that it was in. */
static uint8_t *copy_of_member_2(void)
{
	static uint8_t out[4096];
	uint8_t *copy;

	create(1);
	start();
	run_ms(3000);
	copy = image_of(2);
	fill(out, sizeof(out), 21);
	io(1, IO_WRITE, 5 * (256 << 10), sizeof(out), out);
	dev_event(EV_DEV_DOWN, 1);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_SUSPECT);
	dev_event(EV_DEV_UP, 1);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	return copy;
}

/* Others write where a member is rebuilt, so its lock passes to and fro. */
TEST(a_rebuild_keeps_a_lock_for_as_long_as_it_has_waited_for_it)
{
	static const struct {
		uint32_t wait_ms, window_ms;
		uint32_t windows, full; /* of a turn at most, and turns that had so many */
	} t[] = {{0, 1, 1, 112}, {5, 10, 1, 112}, {40, 10, 4, 28}, {3000, 50, 10, 10}};

	for (uint32_t i = 0; i < 4; i++) {
		struct event add = {.type = EV_ADMIN};
		uint32_t full = 0, had = 0;

		create_regions(1, 4 << 20);
		w.external = true;
		start();
		run_ms(2000);
		dev_down(1);
		while (status().map.member[1].state != MEMBER_MISSING)
			run_event();
		run_ms(100);
		w.disk[MEMBERS] = calloc(1, DISK_BYTES);
		add.admin.cmd = ADMIN_ADD;
		add.admin.member = 1;
		add.admin.uri = "mem:new";
		w.contended = true;
		w.lock_wait_us = t[i].wait_ms * 1000ull;
		w.window_kind = KIND_REBUILD;
		w.window_us = t[i].window_ms * 1000ull;
		step(add);
		for (uint32_t n = 0; status().map.member[1].state != MEMBER_IN_SYNC; n++) {
			CHECK(n < 100000);
			run_event();
			full += w.windows > had && w.windows == t[i].windows;
			had = w.windows;
			CHECK(had <= t[i].windows);
		}
		CHECK_EQ_U64(full, t[i].full);
		finish();
	}
}

static void rebuilt(bool partial)
{
	for (uint32_t n = 0; status().map.member[2].state != MEMBER_REBUILDING; n++) {
		CHECK(n < 10000);
		run_event();
	}
	CHECK_EQ_INT(status().map.member[2].flags & MEMBER_F_PARTIAL, partial ? 1 : 0);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
}

/* R15: what it missed is known, but not what this copy of it had. */
TEST(an_old_copy_of_a_member_is_rebuilt_as_a_whole)
{
	for (uint32_t old = 0; old < 2; old++) {
		uint8_t *copy = copy_of_member_2();

		dev_event(EV_DEV_DOWN, 2);
		run_ms(600);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
		if (old)
			memcpy(w.disk[2], copy, DISK_BYTES);
		dev_event(EV_DEV_UP, 2);
		rebuilt(!old);
		finish();
		free(copy);
	}
}

/* R15: also where this node's connection has never broken, so that it has read the superblock long
 * before the member left. */
TEST(an_old_copy_of_a_member_is_not_re_added)
{
	for (uint32_t old = 0; old < 2; old++) {
		static uint8_t out[4096];
		uint8_t *copy = copy_of_member_2();
		struct event ev = {.type = EV_ADMIN};

		io(2, IO_WRITE, 6 * (256 << 10), sizeof(out), out);
		w.dead[2] = true; /* for a write: a log page or a FLUSH would make it faulty */
		io(3, IO_WRITE, 6 * (256 << 10), sizeof(out), out);
		run_ms(20);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_MISSING);
		w.dead[2] = false;
		if (old)
			memcpy(w.disk[2], copy, DISK_BYTES);
		ev.admin.cmd = ADMIN_READD;
		ev.admin.member = 2;
		step(ev);
		if (old) {
			run_ms(600);
			CHECK(w.admin_done);
			CHECK_EQ_INT(w.admin_err, -EINVAL);
			CHECK_EQ_INT(status().map.member[2].state, MEMBER_MISSING);
		} else {
			rebuilt(true);
			CHECK(w.admin_done);
			CHECK_EQ_INT(w.admin_err, 0);
		}
		finish();
		free(copy);
	}
}

/* R1, R15: another member is away, so the data needs this one, and the map can't drop it. */
TEST(an_old_copy_of_a_member_that_the_data_needs_is_not_used)
{
	static uint8_t out[4096], in[4096];
	uint8_t *copy, *right;

	create(1);
	start();
	run_ms(2000);
	fill(out, sizeof(out), 1);
	io(2, IO_WRITE, 0, sizeof(out), out);
	run_ms(1000);
	copy = image_of(1);
	dev_down(2);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	fill(out, sizeof(out), 2);
	io(3, IO_WRITE, 0, sizeof(out), out);
	run_ms(1000);
	CHECK_EQ_INT(w.io_err[3], 0);
	CHECK(w.io_done[3]);
	right = image_of(1);

	dev_down(1);
	run_ms(600);
	CHECK(!status().io_allowed);
	memcpy(w.disk[1], copy, DISK_BYTES);
	dev_up(1);
	run_ms(5000);
	CHECK(!status().io_allowed);
	CHECK(strstr(status().waits, "older copy"));
	CHECK(!memcmp(w.disk[1], copy, DISK_BYTES));
	io(4, IO_READ, 0, sizeof(in), in);
	run_ms(1000);
	CHECK(!w.io_done[4]);

	dev_down(1);
	memcpy(w.disk[1], right, DISK_BYTES);
	dev_up(1);
	run_ms(3000);
	CHECK(status().io_allowed);
	CHECK(w.io_done[4]);
	CHECK(!memcmp(in, out, sizeof(in)));
	dev_up(2);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	finish();
	free(copy);
	free(right);
}

/* R1, R15: what the leader's connection takes must be on the device that this node reaches. */
TEST(a_device_that_lacks_what_the_leader_wrote_when_the_member_entered_is_another)
{
	for (uint32_t again = 0; again < 2; again++) {
		struct event ev = {.type = EV_ADMIN};
		uint64_t num;

		create(1);
		start();
		run_ms(2000);
		dev_down(2);
		run_ms(600);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
		w.elsewhere = image_of(2);
		dev_up(2);
		run_ms(1000);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
		CHECK(strstr(engine_dev_foreign(w.e, 2), "older copy"));
		num = status().map.epoch.num;
		run_ms(500); /* it is not tried over and over, nor when it is connected anew */
		dev_down(2);
		dev_up(2);
		run_ms(500);
		CHECK_EQ_U64(status().map.epoch.num, num);
		CHECK(strstr(engine_dev_foreign(w.e, 2), "older copy"));
		CHECK_EQ_INT(engine_member_of_dev(w.e, 2), 0xff);
		if (again) { /* the right one */
			dev_down(2);
			free(w.disk[2]);
			w.disk[2] = w.elsewhere;
			w.elsewhere = NULL;
			dev_up(2);
		} else {
			for (uint32_t n = 0; status().map.member[2].state != MEMBER_MISSING; n++) {
				CHECK(n < 100000);
				run_event();
			}
			CHECK(!engine_dev_foreign(w.e, 2));
			free(w.elsewhere);
			w.elsewhere = NULL;
			ev.admin.cmd = ADMIN_READD;
			ev.admin.member = 2;
			step(ev);
		}
		rebuilt(true);
		CHECK(!engine_dev_foreign(w.e, 2));
		finish();
	}
}

static void admin_fails(enum admin_cmd cmd, const char *uri, int err, const char *who,
			const char *what)
{
	struct event ev = {.type = EV_ADMIN};

	w.admin_done = false;
	ev.admin.cmd = cmd;
	ev.admin.member = 2;
	ev.admin.uri = uri;
	step(ev);
	run_ms(10000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, err);
	CHECK(strstr(w.admin_why, who));
	CHECK(strstr(w.admin_why, what));
}

TEST(an_add_or_re_add_that_fails_says_which_node_lacks_the_device_and_what_is_there)
{
	uint8_t *right;

	create(1);
	start();
	run_ms(2000);
	dev_down(2);
	while (status().map.member[2].state != MEMBER_MISSING)
		run_event();
	admin_fails(ADMIN_READD, NULL, -ETIMEDOUT, "node 1 (this one) does not reach",
		    "the member's device: the status there says why");
	right = image_of(2);
	memset(w.disk[2], 0, DISK_BYTES);
	dev_up(2);
	run_ms(100);
	admin_fails(ADMIN_READD, NULL, -ETIMEDOUT,
		    "node 1 (this one) does not reach the member: what node 1",
		    "it carries no superblock of this array; connect the right device, or add this "
		    "one as a new one by 'ddraidctl add unit 2 URI'");
	dev_down(2);
	memcpy(w.disk[2], right, DISK_BYTES);
	free(right);
	dev_up(2);
	run_ms(100);
	w.placed_at = 1; /* nothing is opened */
	admin_fails(ADMIN_ADD, "mem:nowhere", -ETIMEDOUT,
		    "node 1 (this one), which leads, does not reach", "mem:nowhere");
	finish();
}

/* The exporter of member 0 returns member 1's superblocks and log by now. */
static void poses_as_another(bool shrunk)
{
	memcpy(w.disk[0], w.disk[1], engine_geo(w.e)->data_offset);
	w.shrunk[0] = shrunk ? DISK_BYTES - 65536 : 0;
}

TEST(another_members_device_takes_no_members_place)
{
	static uint8_t out[4096], in[4096];

	for (uint32_t shrunk = 0; shrunk < 2; shrunk++) {
		create(1);
		start();
		run_ms(20000);
		fill(out, sizeof(out), 1);
		io(1, IO_WRITE, 5 * (256 << 10), sizeof(out), out);
		run_ms(3000);
		dev_down(0);
		run_ms(2000);
		CHECK_EQ_INT(status().map.member[0].state, MEMBER_SUSPECT);
		poses_as_another(shrunk);
		dev_up(0);
		run_ms(1000);

		poses_as_another(shrunk);
		dev_event(EV_DEV_DOWN, 1);
		run_ms(600);
		CHECK_EQ_INT(engine_member_of_dev(w.e, 0), 0xff);
		CHECK(shrunk || strstr(engine_dev_foreign(w.e, 0), "was another member"));
		CHECK(!status().io_allowed);
		dev_event(EV_DEV_UP, 1);
		run_ms(20000);
		CHECK_EQ_INT(engine_member_of_dev(w.e, 1), 1);
		CHECK(status().io_allowed);
		io(3, IO_READ, 5 * (256 << 10), sizeof(in), in);
		run_ms(100);
		CHECK_EQ_MEM(in, out, sizeof(in));
		finish();
	}
}

static void admin(enum admin_cmd cmd, uint32_t member, const char *uri)
{
	struct event ev = {.type = EV_ADMIN};

	ev.admin.cmd = cmd;
	ev.admin.member = (uint8_t)member;
	ev.admin.uri = uri;
	w.admin_done = false;
	step(ev);
	run_ms(20000);
	CHECK(w.admin_done);
	CHECK_EQ_INT(w.admin_err, 0);
}

TEST(a_re_add_of_a_member_that_is_not_missing_says_what_to_do)
{
	create(1);
	start();
	run_ms(2000);
	admin_fails(ADMIN_READD, NULL, -EINVAL, "only a missing member can be re-added",
		    "this one is in-sync; nothing is to be done");
	admin(ADMIN_FAIL, 2, NULL);
	admin_fails(ADMIN_READD, NULL, -EINVAL, "only a missing member can be re-added",
		    "this one is faulty; add its device or another as a new one by 'ddraidctl add "
		    "unit 2 URI'");
	finish();
}

/* A new disk at member 0's address took its place. */
static void replaced_at_its_address(void)
{
	dev_down(0);
	run_ms(3000);
	admin(ADMIN_FAIL, 0, NULL);
	memset(w.disk[0], 0, DISK_BYTES);
	dev_up(0);
	run_ms(1000);
	admin(ADMIN_ADD, 0, "mem:0");
}

/* Member 0's exporter has another address, device 3. */
static void moved(void)
{
	dev_down(0);
	run_ms(100);
	w.disk[3] = w.disk[0];
	w.disk[0] = calloc(1, DISK_BYTES);
	CHECK(w.disk[0]);
	dev_up(3);
	run_ms(20000);
}

TEST(nor_does_one_that_was_added_at_its_address_or_found_at_another)
{
	static uint8_t out[4096], in[4096];

	for (uint32_t at = 0; at <= 3; at += 3) {
		create(1);
		w.uri[0] = "mem:0";
		w.uri[3] = "mem:3";
		start();
		run_ms(20000);
		if (at)
			moved();
		else
			replaced_at_its_address();
		CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
		CHECK_EQ_INT(engine_member_of_dev(w.e, at), 0);
		fill(out, sizeof(out), 1);
		io(1, IO_WRITE, 5 * (256 << 10), sizeof(out), out);
		run_ms(3000);
		dev_down(at);
		run_ms(2000);
		for (uint32_t i = 0; i < 2; i++) {
			memcpy(w.disk[at], w.disk[1], engine_geo(w.e)->data_offset);
			if (!i)
				dev_up(at);
			run_ms(1000);
		}
		dev_down(1);
		run_ms(6000);
		CHECK_EQ_INT(engine_member_of_dev(w.e, at), 0xff);
		CHECK(strstr(engine_dev_foreign(w.e, at), "was another member"));
		CHECK(!status().io_allowed);
		dev_up(1);
		run_ms(20000);
		io(3, IO_READ, 5 * (256 << 10), sizeof(in), in);
		run_ms(100);
		CHECK_EQ_U64(w.io_done[3], 1);
		CHECK_EQ_MEM(in, out, sizeof(in));
		finish();
	}
}

/* Member 1 is on device 3 by an `add`, and its old device's number is free: somebody opens a
 * snapshot of the new device, and what was written since is marked still. */
TEST(a_device_that_is_opened_takes_the_place_of_none_that_is_in_use)
{
	static uint8_t out[4096], in[4096];

	create(1);
	start();
	run_ms(6000);
	dev_down(1);
	run_ms(3000);
	admin(ADMIN_FAIL, 1, NULL);
	w.disk[3] = calloc(1, DISK_BYTES);
	CHECK(w.disk[3]);
	admin(ADMIN_ADD, 1, "mem:new");
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 1);
	fill(out, sizeof(out), 1);
	io(1, IO_WRITE, 5 * (256 << 10), sizeof(out), out);
	run_ms(20);
	free(w.disk[1]);
	w.disk[1] = image_of(3);
	w.uri[1] = "mem:snapshot";
	fill(out, sizeof(out), 77);
	io(1, IO_WRITE, 5 * (256 << 10), sizeof(out), out);
	run_ms(20);
	CHECK(status().regions_dirty);
	dev_up(1);
	run_ms(500);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 1);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 1), 0xff);
	io(3, IO_READ, 5 * (256 << 10), sizeof(in), in);
	run_ms(10000);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	CHECK_EQ_U64(parity_wrong(3), 0);
	finish();
}

/* Member 0 has moved, and its old disk is connected, too. The new way breaks for a moment while the
 * data needs the member. */
TEST(where_a_member_has_moved_from_takes_its_place_no_more)
{
	static uint8_t out[4096], in[4096];

	create(1);
	w.uri[0] = "mem:0";
	w.uri[3] = "mem:3";
	start();
	run_ms(20000);
	dev_down(0);
	run_ms(100);
	w.disk[3] = image_of(0);
	dev_up(3);
	run_ms(20000);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
	fill(out, sizeof(out), 99);
	io(1, IO_WRITE, 5 << 18, sizeof(out), out);
	run_ms(3000);
	dev_up(0);
	run_ms(2000);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 0);
	dev_down(2);
	run_ms(2000);
	dev_down(3);
	run_ms(200);
	dev_up(3);
	run_ms(10000);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(engine_member_of_dev(w.e, 3), 0);
	io(3, IO_READ, 5 << 18, sizeof(in), in);
	run_ms(100);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* Its superblock and log answer; what follows breaks the connection. */
TEST(a_member_that_breaks_off_whenever_it_is_back_comes_back_less_and_less_often)
{
	uint32_t breaks = 0;

	create(1);
	start();
	run_ms(20000);
	for (uint32_t s = 0; s < 300 && status().map.member[2].state != MEMBER_MISSING; s++) {
		if (status().map.member[2].state == MEMBER_IN_SYNC) {
			dev_event(EV_DEV_DOWN, 2);
			run_ms(300);
			dev_event(EV_DEV_UP, 2);
			breaks++;
		}
		run_ms(700);
		CHECK_EQ_INT(status().map.member[2].state == MEMBER_SUSPECT && breaks > 3,
			     status().kept_out_us[2] > 0);
	}
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_MISSING);
	CHECK_MSG(breaks > 3 && breaks < 9, "%u breaks", breaks);
	/* Once an operator has seen to it, it is one like any other. */
	admin(ADMIN_READD, 2, NULL);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	run_ms(1000);
	dev_event(EV_DEV_DOWN, 2);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	dev_event(EV_DEV_UP, 2);
	run_ms(2000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	finish();
}

/* A change of the map would wait for them, and come to pass when nobody thinks of it any more. */
TEST(nothing_is_asked_of_the_map_while_the_others_do_not_suffice)
{
	static const enum admin_cmd cmds[] = {ADMIN_FAIL, ADMIN_READD};

	for (uint32_t c = 0; c < 2; c++) {
		struct event ev = {.type = EV_ADMIN};

		create(1);
		start();
		run_ms(3000);
		dev_down(1);
		if (cmds[c] == ADMIN_READD)
			run_ms(10000);
		dev_down(2);
		run_ms(cmds[c] == ADMIN_READD ? 100 : 10000);
		CHECK(strstr(status().waits, "fewer can be used"));
		ev.admin.cmd = cmds[c];
		ev.admin.member = 1;
		step(ev);
		run_ms(20);
		CHECK(w.admin_done);
		CHECK_EQ_INT(w.admin_err, -EAGAIN);
		CHECK(strstr(w.admin_why, "fewer of the other members"));
		dev_up(1);
		dev_up(2);
		run_ms(10000);
		for (uint32_t m = 0; m < 3; m++)
			CHECK(status().map.member[m].state != MEMBER_FAULTY);
		finish();
	}
}

/* R18: others may have heard of the commit, and then the member counts: also where it lacks what a
 * node that dies was writing. */
TEST(no_read_decodes_around_a_member_that_a_proposal_has_in_sync)
{
	static uint8_t out[4096], in[4096];

	create(1);
	start();
	run_ms(6000);
	fill(out, sizeof(out), 1);
	io(1, IO_WRITE, 0, sizeof(out), out);
	run_ms(2000);
	dev_down(1);
	run_ms(1000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_SUSPECT);
	dev_up(1);
	for (uint32_t n = 0;
	     status().map.member[1].state != MEMBER_REBUILDING || !status().proposing ||
	     status().proposed.member[1].state != MEMBER_IN_SYNC;
	     n++) {
		CHECK(n < 100000);
		w.hung = 0;
		run_event();
		w.hung = status().proposing ? 1u << 2 : 0; /* nothing is committed */
	}
	io(2, IO_READ, 0, sizeof(in), in);
	run_ms(20);
	CHECK(status().proposing);
	CHECK_EQ_U64(w.io_done[2], 0);
	land_hung();
	run_ms(500);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_MEM(in, out, sizeof(out));
	finish();
}
