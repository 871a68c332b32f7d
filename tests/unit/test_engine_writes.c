/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Members that answer writes with an error, of which the data needs each. */
#include "tests/unit/engine_world.h"

static uint8_t out[16384], in[16384];
static uint32_t claim_ms;

static void served(void)
{
	create(1);
	w.claim_ms = claim_ms;
	start();
	run_ms(claim_ms ? 12000 : 3000);
	fill(out, sizeof(out), 3);
	io(1, IO_WRITE, 0, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
}

/* Member 2 is away, so that the data needs the others; region 0 is marked. */
static struct tunables served_degraded(bool eio)
{
	struct engine_cfg def;

	served();
	dev_down(2);
	run_ms(600);
	engine_cfg_init(&def);
	def.tun.claim_ms = claim_ms;
	def.tun.eio_when_lost = eio;
	engine_tune(w.e, &def.tun);
	io(2, IO_WRITE, 0, 4096, out);
	run_ms(50);
	CHECK_EQ_U64(w.io_done[2], 1);
	return def.tun;
}

/* What is there now can be read, and decoded. */
static void reads_right(uint64_t tag)
{
	memset(in, 0, sizeof(in));
	io(tag, IO_READ, 0, sizeof(in), in);
	run_ms(20);
	CHECK_EQ_U64(w.io_done[tag], 1);
	CHECK_EQ_INT(w.io_err[tag], 0);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

/* The map can drop one of the two, and not both; the other one has space again in time, or sooner
 * than the one that is dropped, or never before that. */
TEST(a_write_that_more_members_refuse_than_may_be_lost_goes_on_when_they_take_it)
{
	static const uint32_t pair[][2] = {{0, 1}, {1, 0}, {0, 2}, {2, 1}};

	for (uint32_t p = 0; p < 4; p++) {
		for (uint32_t ms = 200; ms <= 7000; ms += 3400) {
			uint32_t a = pair[p][0], b = pair[p][1], here = 0;

			served();
			w.write_err[a] = w.write_err[b] = -ENOSPC;
			w.mark_errs = true;
			fill(out, 4096, 40);
			io(2, IO_WRITE, 0, 4096, out);
			run_ms(ms);
			CHECK_EQ_U64(w.io_done[2], 0);
			CHECK(status().regions_dirty);
			CHECK(status().waits);
			w.write_err[a] = 0;
			run_ms(ms == 200 ? 1 : 50); /* whichever comes first */
			w.write_err[b] = 0;
			run_ms(9000);
			CHECK_EQ_U64(w.io_done[2], 1);
			CHECK_EQ_INT(w.io_err[2], 0);
			for (uint8_t i = 0; i < 3; i++) {
				CHECK(status().map.member[i].state != MEMBER_FAULTY);
				here += status().map.member[i].state == MEMBER_IN_SYNC;
			}
			CHECK(here >= 2);
			CHECK(status().io_allowed && !status().unusable && !status().waits);
			reads_right(3);
			run_ms(1000); /* nor is it wanted out any more */
			CHECK_EQ_U64(status().regions_dirty, 0);
			finish();
		}
	}
}

/* Two that fail one after the other: the first is dropped, the second must stay. */
TEST(a_member_that_must_stay_is_tried_each_second_and_read_meanwhile)
{
	uint32_t before;

	served();
	dev_down(2);
	run_ms(600);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	io(2, IO_WRITE, 8192, 4096, out + 8192); /* its region has a mark */
	run_ms(20);
	w.write_err[1] = -ENOSPC;
	fill(out, 4096, 41);
	before = w.counts[KIND_DATA][DEV_WRITE];
	io(3, IO_WRITE, 0, 4096, out);
	run_ms(4500);
	CHECK_EQ_U64(w.io_done[3], 0);
	CHECK(strstr(status().waits, "each second"));
	CHECK_EQ_INT(status().error[1].err, -ENOSPC);
	CHECK_EQ_INT(status().error[1].op, DEV_WRITE);
	CHECK_EQ_INT(status().error[0].err, 0);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK(w.counts[KIND_DATA][DEV_WRITE] - before >= 5);
	CHECK(w.counts[KIND_DATA][DEV_WRITE] - before <= 8);
	io(4, IO_READ, 8192, 4096, in); /* other blocks */
	run_ms(20);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_MEM(in, out + 8192, 4096);
	io(5, IO_READ, 0, 4096, in);         /* these wait for their write */
	io(6, IO_WRITE, 4 << 20, 4096, out); /* and so does what needs a mark */
	run_ms(20);
	CHECK_EQ_U64(w.io_done[5], 0);
	CHECK_EQ_U64(w.io_done[6], 0);
	w.write_err[1] = 0;
	run_ms(1100);
	CHECK_EQ_U64(w.io_done[3], 1);
	CHECK_EQ_U64(w.io_done[5], 1);
	CHECK_EQ_MEM(in, out, 4096);
	CHECK_EQ_U64(w.io_done[6], 1);
	CHECK_EQ_INT(status().error[1].err, 0);
	dev_up(2);
	run_ms(4000);
	for (uint8_t i = 0; i < 3; i++) /* it is not dropped for what is over */
		CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
	reads_right(7);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

/* A round commits an epoch, and that is durable on each member: it waits for the write, too. */
TEST(a_round_in_which_a_member_refuses_a_write_ends_when_it_takes_it_and_the_status_says_so)
{
	served();
	dev_down(2);
	run_ms(600);
	w.write_err[1] = -ENOSPC;
	fill(out, 4096, 42);
	io(2, IO_WRITE, 0, 4096, out);
	run_ms(50);
	ring_changes();
	run_ms(9000);
	CHECK_EQ_U64(w.io_done[2], 0);
	CHECK(strstr(status().waits, "each second"));
	w.write_err[1] = 0;
	run_ms(2000);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_INT(w.io_err[2], 0);
	CHECK(!status().unusable && !status().waits);
	reads_right(3);
	finish();
}

/* A bad spot, and another member is away. If the write waited, no round would end, and the other
 * one could not come back. */
TEST(a_write_that_a_member_refuses_again_and_again_fails_if_the_member_takes_others)
{
	for (int looks = 0; looks < 2; looks++) {
		claim_ms = looks ? 250 : 0;
		served();
		dev_down(2);
		run_ms(600);
		io(2, IO_WRITE, 0, 4096, out);
		run_ms(50);
		w.write_err[1] = -EIO;
		fill(out, 4096, 42);
		io(3, IO_WRITE, 0, 4096, out);
		run_ms(1500);
		CHECK_EQ_U64(w.io_done[3], 0);
		run_ms(3000);
		CHECK_EQ_U64(w.io_done[3], 1);
		CHECK_EQ_INT(w.io_err[3], -EIO);
		w.write_err[1] = 0;
		run_ms(1500);
		io(4, IO_WRITE, 4096, 4096, out);
		io(5, IO_FLUSH, 0, 0, NULL);
		run_ms(100);
		CHECK_EQ_U64(w.io_done[4] + w.io_done[5], 2);
		CHECK(!w.io_err[4] && !w.io_err[5]);
		CHECK(!status().unusable && !status().waits);
		dev_up(2);
		run_ms(6000);
		for (uint8_t i = 0; i < 3; i++)
			CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
		CHECK_EQ_U64(parity_wrong(1), 0);
		finish();
	}
	claim_ms = 0;
}

/* Also what waits for a mark, which must be durable and is not tried there; and a flush. */
TEST(with_when_lost_eio_nothing_waits_for_a_member_that_refuses_writes)
{
	struct tunables tun = served_degraded(true);

	w.write_err[1] = -ENOSPC;
	io(3, IO_WRITE, 0, 4096, out);
	io(4, IO_WRITE, engine_geo(w.e)->size_bytes - 4096, 4096, out);
	run_ms(50);
	io(5, IO_FLUSH, 0, 0, NULL);
	run_ms(500);
	CHECK_EQ_U64(w.io_done[3] + w.io_done[4] + w.io_done[5], 0);
	run_ms(tun.evict_ms + 1000);
	for (uint64_t tag = 3; tag <= 5; tag++) {
		CHECK_EQ_U64(w.io_done[tag], 1);
		CHECK_EQ_INT(w.io_err[tag], -EIO);
	}
	w.write_err[1] = 0;
	run_ms(1500);
	io(6, IO_WRITE, engine_geo(w.e)->size_bytes - 4096, 4096, out);
	io(7, IO_FLUSH, 0, 0, NULL);
	run_ms(500);
	CHECK_EQ_INT(w.io_err[6], 0);
	CHECK_EQ_U64(w.io_done[6] + w.io_done[7], 2);
	CHECK_EQ_INT(w.io_err[7], 0);
	finish();
}

/* With when_lost=eio no write waits that could try the member: a mark must not be the first. */
TEST(a_member_that_refused_writes_is_given_nothing_durable_before_it_takes_its_use_block)
{
	for (int eio = 0; eio < 2; eio++) {
		struct tunables tun;

		claim_ms = 250;
		tun = served_degraded(eio);
		w.write_err[1] = -ENOSPC;
		w.mark_errs = true;
		io(3, IO_WRITE, 0, 4096, out);
		run_ms(20);
		io(4, IO_WRITE, engine_geo(w.e)->size_bytes - 4096, 4096, out);
		run_ms(tun.evict_ms + 5000);
		CHECK_EQ_U64(w.io_done[3] + w.io_done[4], eio ? 2 : 0);
		w.write_err[1] = 0;
		w.mark_errs = false;
		run_ms(3000);
		io(6, IO_WRITE, engine_geo(w.e)->size_bytes - 4096, 4096, out);
		run_ms(1000);
		CHECK_EQ_U64(w.io_done[6], 1);
		CHECK_EQ_INT(w.io_err[6], 0);
		CHECK(!status().unusable && !status().waits);
		finish();
	}
	claim_ms = 0;
}

/* R14: what it had acknowledged may be lost with it. */
TEST(a_mark_that_failed_on_a_member_that_must_stay_is_not_tried_again_and_the_status_says_so)
{
	served();
	run_ms(2000);
	w.write_err[0] = w.write_err[1] = -ENOSPC;
	w.mark_errs = true;
	io(2, IO_WRITE, 0, 4096, out);
	run_ms(200);
	w.write_err[0] = w.write_err[1] = 0;
	run_ms(5000);
	CHECK_EQ_U64(w.io_done[2], 0);
	CHECK(strstr(status().waits, "--disconnect"));
	CHECK(status().error[1].fua);
	CHECK_EQ_INT(status().error[1].err, -ENOSPC);
	finish();
}

/* It takes writes again before anybody asks it for a durable one. */
TEST(an_error_that_passes_leaves_a_node_that_can_be_stopped)
{
	struct event ev = {.type = EV_ADMIN};

	served();
	dev_down(2);
	run_ms(600);
	io(2, IO_WRITE, 0, 4096, out);
	run_ms(20);
	w.write_err[1] = -ENOSPC;
	io(3, IO_WRITE, 0, 4096, out);
	run_ms(500);
	w.write_err[1] = 0;
	run_ms(1500);
	CHECK_EQ_U64(w.io_done[3], 1);
	ev.admin.cmd = ADMIN_STOP;
	step(ev);
	run_ms(3000);
	CHECK(w.stopped);
	finish();
}
