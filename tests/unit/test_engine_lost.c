/* SPDX-License-Identifier: GPL-2.0-or-later */
/* when_lost=eio: what requests get when fewer members are left than the data needs. And connections
 * that broke before there was a map. */
#include "tests/unit/engine_world.h"

static uint8_t buf[4096];

static void served(bool eio)
{
	create(1);
	w.claim_ms = 250;
	w.reach_ms = 14000;
	w.eio = eio;
	start();
	run_ms(6000);
	CHECK(status().io_allowed);
	io(1, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(20);
	CHECK_EQ_U64(w.io_done[1], 1);
}

/* A write in a marked region, two that need a mark, a read, a flush. */
static void ask(void)
{
	io(2, IO_WRITE, 0, sizeof(buf), buf);
	io(3, IO_WRITE, 2 << 20, sizeof(buf), buf);
	io(4, IO_ZEROES, 3 << 20, sizeof(buf), NULL);
	io(5, IO_READ, 0, sizeof(buf), buf);
	io(6, IO_FLUSH, 0, 0, NULL);
}

static void all_end(int err)
{
	for (uint64_t tag = 2; tag <= 6; tag++) {
		CHECK_EQ_U64(w.io_done[tag], 1);
		CHECK_EQ_INT(w.io_err[tag], err);
	}
}

static void none_ends(void)
{
	for (uint64_t tag = 2; tag <= 6; tag++)
		CHECK_EQ_U64(w.io_done[tag], 0);
}

/* Nothing was under way to those that are lost: so nothing has to be waited for. */
TEST(all_that_waits_for_lost_members_fails_after_evict)
{
	for (uint32_t held = 0; held < 2; held++) {
		served(!held);
		dev_down(0);
		dev_down(1);
		ask();
		run_ms(3500);
		CHECK_EQ_U64(w.io_done[5], 0);
		run_ms(900);
		if (held)
			none_ends();
		else
			all_end(-EIO);
		io(7, IO_WRITE, 0, sizeof(buf), buf); /* from then on at once */
		io(8, IO_FLUSH, 0, 0, NULL);
		run_ms(5);
		CHECK_EQ_U64(w.io_done[7], held ? 0 : 1);
		CHECK_EQ_U64(w.io_done[8], held ? 0 : 1);
		run_ms(20000);
		dev_up(0);
		dev_up(1);
		run_ms(6000);
		CHECK(status().io_allowed);
		if (held)
			all_end(0);
		io(9, IO_WRITE, 0, sizeof(buf), buf);
		io(10, IO_READ, 0, sizeof(buf), buf);
		run_ms(100);
		CHECK_EQ_U64(w.io_done[9], 1);
		CHECK_EQ_INT(w.io_err[9], 0);
		CHECK_EQ_U64(w.io_done[10], 1);
		CHECK_EQ_INT(w.io_err[10], 0);
		run_ms(4000);
		CHECK_EQ_U64(status().regions_dirty, 0);
		CHECK_EQ_U64(parity_wrong(1), 0);
		finish();
	}
}

/* Connected, but they answer nothing: the sign that this node uses them is not taken. */
TEST(members_that_hang_are_lost_when_the_lease_is_over)
{
	served(true);
	w.use_hangs = true;
	run_ms(4000);
	CHECK(!status().io_allowed);
	ask();
	run_ms(500);
	none_ends();
	run_ms(4000);
	all_end(-EIO);
	land_hung();
	run_ms(6000);
	CHECK(status().io_allowed);
	io(7, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(50);
	CHECK_EQ_U64(w.io_done[7], 1);
	CHECK_EQ_INT(w.io_err[7], 0);
	finish();
}

/* Its parts were on their way: they may land until then (R5). */
TEST(a_write_that_was_sent_fails_when_nothing_of_it_lands_any_more)
{
	served(true);
	w.slow = 3;
	io(2, IO_WRITE, 0, sizeof(buf), buf);
	CHECK_EQ_U64(w.slow_count, 2);
	for (uint32_t i = 0; i < 2; i++) {
		struct event ev = {.type = EV_DEV_DONE};

		ev.done.id = w.slow_id[i];
		ev.done.err = -ECONNRESET;
		step(ev);
		dev_down(i);
	}
	run_ms(5000);
	io(3, IO_WRITE, 2 << 20, sizeof(buf), buf);
	run_ms(8900);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_U64(w.io_done[2], 0);
	run_ms(200);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_INT(w.io_err[2], -EIO);
	finish();
}

/*
 * A read in a dead node's region meets a bad spot of a member, which leaves for it, and then one of
 * a member that must stay: so it goes on as a degraded read. Members are written to its buffers
 * until they answer; so it does not fail before.
 */
TEST(a_read_that_has_been_a_resync_is_waited_for_while_it_is_under_way)
{
	struct event ev = {.type = EV_DEV_DONE};

	served(true);
	for (uint64_t r = 0; r < 8; r++)
		io(10 + r, IO_WRITE, r << 19, sizeof(buf), buf);
	run_ms(20);
	engine_free(w.e);
	start_cold();
	for (uint32_t n = 0; !status().io_allowed; n++) {
		CHECK(n < 200000);
		run_event();
	}
	w.bad_from = geo_offset(engine_geo(w.e), (7u << 19) / 4096);
	w.bad_resync = 1u << 1;
	w.bad_next = w.slow_reads = 1u << 2;
	io(2, IO_READ, 7u << 19, sizeof(buf), buf);
	run_ms(200);
	CHECK(status().map.member[1].state != MEMBER_IN_SYNC);
	CHECK_EQ_U64(w.slow_count, 1);
	w.use_hangs = true;
	run_ms(9000);
	io(3, IO_READ, 0, sizeof(buf), buf); /* they are lost */
	run_ms(5);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_INT(w.io_err[3], -EIO);
	CHECK_EQ_U64(w.io_done[2], 0);
	ev.done.id = w.slow_id[0];
	step(ev);
	run_ms(5);
	CHECK_EQ_U64(w.io_done[2], 1);
	finish();
}

TEST(without_quorum_requests_wait)
{
	served(true);
	quorum(false);
	ask();
	run_ms(20000);
	none_ends();
	quorum(true);
	run_ms(8000);
	all_end(0);
	finish();
}

/* A full store is not lost, but its writes are not to hang either. */
TEST(a_write_that_is_refused_fails_after_evict_and_reads_go_on)
{
	served(true);
	dev_down(2);
	run_ms(600);
	io(2, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(20);
	CHECK_EQ_U64(w.io_done[2], 1);
	w.write_err[1] = -ENOSPC;
	io(3, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(3500);
	CHECK_EQ_U64(w.io_done[3], 0);
	io(4, IO_READ, 65536, sizeof(buf), buf);
	run_ms(1000);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_INT(w.io_err[3], -EIO);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_INT(w.io_err[4], 0);
	w.write_err[1] = 0;
	run_ms(2000);
	dev_up(2);
	run_ms(4000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

static void round_anew(void)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){1, 1};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	step(ev);
}

/* It can't end: it reads the members, and has an epoch to commit. */
TEST(what_waits_in_a_round_for_lost_members_fails_as_well)
{
	served(true);
	dev_down(0);
	dev_down(1);
	run_ms(100);
	round_anew();
	ask();
	run_ms(3500);
	none_ends();
	run_ms(1500);
	all_end(-EIO);
	run_ms(20000);
	dev_up(0);
	dev_up(1);
	run_ms(6000);
	CHECK(status().io_allowed);
	io(9, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(100);
	CHECK_EQ_U64(w.io_done[9], 1);
	CHECK_EQ_INT(w.io_err[9], 0);
	run_ms(4000);
	CHECK_EQ_U64(status().regions_dirty, 0);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

TEST(a_write_that_is_refused_in_a_round_fails_and_the_round_ends)
{
	served(true);
	dev_down(2);
	run_ms(600);
	w.write_err[1] = -ENOSPC;
	io(2, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(500);
	round_anew();
	io(3, IO_READ, 65536, sizeof(buf), buf);
	run_ms(3000);
	CHECK_EQ_U64(w.io_done[2], 0);
	CHECK_EQ_U64(w.io_done[3], 0);
	run_ms(4000);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_INT(w.io_err[2], -EIO);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_INT(w.io_err[3], 0);
	w.write_err[1] = 0;
	dev_up(2);
	run_ms(6000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

static uint64_t waits_ms(const char *what)
{
	CHECK(status().waits && strstr(status().waits, what));
	return (w.now - status().waits_since_us) / 1000;
}

TEST(each_reason_to_wait_counts_from_its_own_begin)
{
	uint64_t ms;

	served(false);
	run_ms(60000);
	quorum(false);
	run_ms(3000);
	ms = waits_ms("quorum");
	CHECK(ms >= 2990 && ms <= 3010);
	quorum(true);
	run_ms(20000);
	CHECK(!status().waits);
	w.use_hangs = true;
	while (status().io_allowed)
		run_ms(1);
	run_ms(2000);
	ms = waits_ms("sign");
	CHECK(ms >= 1990 && ms <= 2010);
	land_hung();
	run_ms(9000);
	CHECK(!status().waits);
	w.use_hangs = true;
	while (status().io_allowed)
		run_ms(1);
	run_ms(1000);
	ms = waits_ms("sign");
	CHECK(ms >= 990 && ms <= 1010);
	finish();
}

static uint8_t member_before[DISK_BYTES];
static uint64_t data_at;

/* A write was answered, and is in no FLUSH. Then the daemon is killed; the next one has no map yet.
 */
static void killed_after_a_write(void)
{
	create(1);
	w.claim_ms = 250;
	start();
	run_ms(12000);
	CHECK(status().io_allowed);
	fill(buf, sizeof(buf), 3);
	io(1, IO_WRITE, 0, 4096, buf);
	run_ms(3000);
	CHECK_EQ_U64(status().regions_dirty, 0);
	data_at = engine_geo(w.e)->data_offset;
	memcpy(member_before, w.disk[0], DISK_BYTES);
	fill(buf, sizeof(buf), 99);
	io(2, IO_WRITE, 0, 4096, buf);
	while (!w.io_done[2])
		run_event();
	CHECK_EQ_INT(w.io_err[2], 0);
	engine_free(w.e); /* the daemon is killed */
	w.fenced_inc = w.next_inc - 1;
	start();
	run_ms(300);
	CHECK(!status().io_allowed);
}

/* Its exporter's cache, with that write. */
static void member_0_loses_its_cache(void)
{
	dev_down(0);
	memcpy(w.disk[0] + data_at, member_before + data_at, DISK_BYTES - data_at);
	run_ms(200);
	dev_up(0);
}

static void the_write_is_there(void)
{
	uint8_t in[4096] = {0};

	CHECK(status().io_allowed);
	io(3, IO_READ, 0, sizeof(in), in);
	run_ms(50);
	CHECK_EQ_INT(w.io_err[3], 0);
	CHECK_EQ_MEM(in, buf, sizeof(in));
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

/* R17: nobody else knows it. */
TEST(a_member_that_breaks_off_while_its_node_has_no_map_yet_is_not_trusted)
{
	killed_after_a_write();
	member_0_loses_its_cache();
	run_ms(20000);
	the_write_is_there();
}

/* `flap`: a while before, all of the node's connections had broken for a moment, by which nothing
 * was lost. */
static void breaks_unseen(bool flap)
{
	killed_after_a_write();
	quorum(false); /* it waits for quorum, say */
	for (uint32_t i = 0; i < 3 && flap; i++)
		dev_down(i);
	run_ms(200);
	for (uint32_t i = 0; i < 3 && flap; i++)
		dev_up(i);
	run_ms(60000);
	CHECK(!status().map.n);
	member_0_loses_its_cache();
	run_ms(200);
	quorum(true);
	run_ms(20000);
	the_write_is_there();
}

TEST(a_loss_is_not_put_down_to_the_node_s_own_network_of_a_minute_before)
{
	breaks_unseen(false);
	breaks_unseen(true);
}

/* A node waits. Its connection to one member breaks for a moment, harmlessly. Minutes later another
 * member's disk dies: it answers with errors. Then the array is assembled, which all but the dead
 * one suffice for. */
static void dies_after_a_flap(uint32_t flaps, uint32_t dies)
{
	create(1);
	w.claim_ms = 250;
	start();
	run_ms(12000);
	CHECK(status().io_allowed);
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	start();
	run_ms(300);
	quorum(false);
	if (flaps != dies) {
		dev_down(flaps);
		run_ms(200);
		dev_up(flaps);
	}
	run_ms(60000);
	w.dead[dies] = true; /* connected, and nothing but EIO */
	run_ms(60000);
	quorum(true);
	run_ms(120000);
	CHECK(status().io_allowed);
	finish();
}

TEST(a_member_that_is_dead_leaves_before_one_whose_connection_broke_once)
{
	dies_after_a_flap(2, 2);
	dies_after_a_flap(0, 2);
	dies_after_a_flap(2, 0);
}

/* As ddraidd does: when something has happened, or at the deadline. */
static void run_by_deadline_ms(uint32_t ms)
{
	uint64_t end = w.now + ms * 1000ull;

	while (w.now < end) {
		run_event();
		while (w.first != w.last)
			run_event();
		if (engine_deadline_us(w.e) > w.now)
			w.now = engine_deadline_us(w.e);
	}
}

/* Nothing else wakes it up to read its claim again. */
TEST(one_that_stood_still_gets_its_lease_back_however_seldom_it_beats)
{
	static const uint32_t beat_ms[] = {200, 900, 1100, 2000, 3000};

	for (uint32_t i = 0; i < sizeof(beat_ms) / sizeof(beat_ms[0]); i++) {
		create(1);
		w.claim_ms = 250;
		w.beat_ms = beat_ms[i];
		start();
		run_ms(20000);
		run_by_deadline_ms(20000);
		CHECK(status().io_allowed);
		w.now += 4000000 + 4000 * beat_ms[i];
		run_by_deadline_ms(12000);
		CHECK_MSG(status().io_allowed, "%u ms: %s", beat_ms[i], status().waits);
		finish();
	}
}
