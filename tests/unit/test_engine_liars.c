/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A member whose exporter returns anything: log pages and superblocks that nobody wrote. The others
 * are honest, and more than m. Nobody is fenced for it, nothing is taken from the redundancy. */
#include "tests/unit/engine_world.h"

#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"

#define EPOCH_SEQ(num) ((uint64_t)(num) << 36)

static struct geo geometry(void)
{
	return *engine_geo(w.e);
}

/* On member `dev`, with a number of its own. */
static void forge(const struct geo *g, uint32_t dev, uint16_t slot, uint64_t seq, uint32_t node,
		  uint64_t inc, uint8_t bits)
{
	struct logpage lp;

	memset(&lp, 0, sizeof(lp));
	memcpy(lp.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	lp.slot = slot;
	lp.seq = seq;
	lp.owner_node = node;
	lp.owner_inc = inc;
	memset(lp.dirty, bits, sizeof(lp.dirty));
	memset(lp.missed, bits, sizeof(lp.missed));
	logpage_encode(&lp, w.disk[dev] + geo_log_offset(g, slot, 0, (uint32_t)(seq & 1)));
}

static void stop_dead(void)
{
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	w.fences = 0;
}

/* An array that has served; the node is dead. */
static struct geo died(void)
{
	struct geo g;

	create(1);
	start();
	run_ms(3000);
	g = geometry();
	stop_dead();
	return g;
}

static void serves(void)
{
	static uint8_t in[4096], out[4096];

	CHECK(status().io_allowed);
	fill(out, sizeof(out), 9);
	io(900, IO_WRITE, 0, sizeof(out), out);
	run_ms(100);
	CHECK_EQ_INT(w.io_err[900], 0);
	io(901, IO_READ, 0, sizeof(in), in);
	run_ms(100);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

/* In each slot, by one member: of a node that never was, and of this one; with numbers that could
 * be, and with one that could not. */
TEST(names_that_one_member_tells_fence_nobody)
{
	static const uint64_t seqs[] = {UINT64_MAX, EPOCH_SEQ(4) + 5, EPOCH_SEQ(4) + 6};

	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t node = 1; node < 3; node++)
			for (uint32_t liar = 0; liar < MEMBERS; liar++) {
				const struct geo g = died();

				for (uint16_t s = 0; s < g.p.slots; s++)
					forge(&g, liar, s, seqs[i], node, 900000 + s, 0);
				start();
				run_ms(3000);
				serves();
				CHECK_EQ_U64(w.fences, 0);
				/* And after a further life. */
				stop_dead();
				start();
				run_ms(3000);
				serves();
				CHECK_EQ_U64(w.fences, 0);
				finish();
			}
}

/* Where only two can be read each counts, but for a number that nobody can have written. */
TEST(a_number_that_can_not_be_is_no_page)
{
	const struct geo g = died();

	w.dead[2] = true;
	for (uint16_t s = 0; s < g.p.slots; s++)
		forge(&g, 0, s, UINT64_MAX - s % 2, 2, 900000 + s, 0);
	start();
	run_ms(8000);
	serves();
	CHECK_EQ_U64(w.fences, 0);
	finish();
}

/* It may have been joining, and its pages may land: the slot stays free as long as there is
 * another, also for the next leader. */
TEST(a_slot_that_one_member_gives_a_name_is_not_given_away)
{
	struct geo g;
	uint8_t page[DDR_BLOCK_BYTES];

	create(1);
	start();
	run_ms(3000);
	CHECK_EQ_U64(engine_slot(w.e), 0);
	g = geometry();
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(3000);
	CHECK(w.stopped);
	forge(&g, 0, 0, EPOCH_SEQ(status().map.epoch.num + 1) + 1, 2, 77, 0);
	stop_dead();
	memcpy(page, w.disk[0] + geo_log_offset(&g, 0, 0, 1), sizeof(page));
	for (uint32_t life = 0; life < 3; life++) {
		w.stopped = false;
		start();
		run_ms(3000);
		serves();
		CHECK_EQ_U64(engine_slot(w.e), 1);
		CHECK_EQ_U64(w.fences, 0);
		CHECK_EQ_MEM(page, w.disk[0] + geo_log_offset(&g, 0, 0, 1), sizeof(page));
		step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
		run_ms(3000);
		CHECK(w.stopped);
		stop_dead();
	}
	start();
	finish();
}

/* As many as name each owner: he is fenced (R4). */
TEST(a_name_that_all_but_one_member_tell_is_the_owner)
{
	for (uint32_t other = 0; other < MEMBERS; other++) {
		const struct geo g = died();

		for (uint32_t i = 0; i < MEMBERS; i++)
			if (i != other)
				forge(&g, i, 2, EPOCH_SEQ(3) + 9, 5, 77, 0);
		start();
		run_ms(3000);
		serves();
		CHECK_EQ_U64(w.fences, 1);
		CHECK_EQ_U64(w.fence_node, 5);
		finish();
	}
}

/* What that owner sent before it was fenced is read: here a map without member 2, of which only its
 * fence tells that there is no more of it on its way. */
TEST(a_map_that_lands_before_the_fence_of_an_owner_that_nobody_knew)
{
	for (uint16_t slot = 0; slot < 4; slot++) {
		const struct geo g = died();

		for (uint32_t i = 0; i < MEMBERS; i++)
			forge(&g, i, slot, EPOCH_SEQ(3) + 9, 5, 77, 0);
		start_cold();
		for (uint32_t n = 0; !w.fences; n++) {
			CHECK(n < 10000);
			run_event();
		}
		for (uint32_t i = 0; i < 2; i++) {
			struct superblock sb = superblock_of(i);

			sb.map.epoch = (struct epoch){sb.map.epoch.num + 1, 77};
			sb.map.member[2].state = MEMBER_FAULTY;
			sb.writer_node = 5;
			superblock_put(i, &sb);
		}
		run_ms(3000);
		serves();
		CHECK_EQ_U64(w.fences, 1);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_FAULTY);
		finish();
	}
}

/* The redundancy: its page says that nothing is dirty, with a higher number than the others'. */
TEST(one_member_can_not_take_marks_away)
{
	static uint8_t out[65536];

	for (uint32_t liar = 0; liar < MEMBERS; liar++) {
		struct geo g;

		create(1);
		start();
		run_ms(3000);
		g = geometry();
		CHECK_EQ_U64(parity_wrong(1), 0);
		fill(out, sizeof(out), 3);
		io(1, IO_WRITE, 1 << 20, sizeof(out), out); /* marked, and not cleared yet */
		CHECK_EQ_U64(w.io_done[1], 1);
		stop_dead();
		/* What was under way at the death. */
		memset(w.disk[2] + geo_offset(&g, (1 << 20) / 4096), 0x77, 2048);
		forge(&g, liar, 0, EPOCH_SEQ(4) + 3, 0, 0, 0);
		start();
		run_ms(6000);
		CHECK(status().io_allowed);
		CHECK_EQ_U64(parity_wrong(1), 0);
		finish();
	}
}

/* Nor can it add any for ever. */
TEST(marks_that_one_member_adds_cost_a_resync_and_no_more)
{
	for (uint32_t liar = 0; liar < MEMBERS; liar++) {
		const struct geo g = died();

		for (uint16_t s = 0; s <= g.p.slots; s++)
			forge(&g, liar, s, EPOCH_SEQ(4) + 2, 0, 0, 0xff);
		start();
		run_ms(10000);
		serves();
		CHECK_EQ_U64(status().regions_to_resync, 0);
		run_ms(3000);
		CHECK_EQ_U64(status().regions_dirty, 0);
		CHECK_EQ_U64(w.fences, 0);
		finish();
	}
}

/* An array of which member 0 tells of a map `ahead` of the others', and maybe of its commit. */
static void tell(uint64_t ahead, bool committed, uint8_t second)
{
	struct superblock sb;

	create(1);
	start();
	run_ms(3000);
	stop_dead();
	sb = superblock_of(0);
	sb.map.epoch.num =
	    ahead < EPOCH_NUM_MAX - sb.map.epoch.num ? sb.map.epoch.num + ahead : EPOCH_NUM_MAX;
	sb.map.epoch.inc = 999999;
	sb.map.member[1].state = second;
	sb.map.missed_from = second == MEMBER_IN_SYNC ? 0 : sb.map.epoch.num;
	if (committed)
		sb.committed = sb.map.epoch;
	sb.writer_node = 7; /* whom nobody can fence */
	superblock_put(0, &sb);
}

/* It is not followed, whatever it says; numbers are not dragged up; nobody is fenced for it. */
TEST(a_map_that_one_member_tells_is_not_followed)
{
	static const uint64_t ahead[] = {1, 2, 5000, EPOCH_NUM_MAX};

	for (uint32_t i = 0; i < 4; i++)
		for (int committed = 0; committed < 2; committed++) {
			uint64_t num;

			tell(ahead[i], committed, MEMBER_IN_SYNC);
			num = superblock_of(1).map.epoch.num;
			start();
			run_ms(6000);
			serves();
			CHECK_EQ_U64(w.fences, 0);
			CHECK(status().map.epoch.num < num + 20);
			CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
			CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
			/* What tells of a commit that no other knows is no member in sync. */
			CHECK_EQ_INT(status().map.member[0].state,
				     committed ? MEMBER_FAULTY : MEMBER_IN_SYNC);
			finish();
		}
}

/* Nor when it has another member leave the map. */
TEST(one_member_can_not_put_another_out)
{
	for (uint8_t state = MEMBER_SUSPECT; state <= MEMBER_REBUILDING; state++) {
		tell(1, false, state);
		start();
		run_ms(6000);
		serves();
		for (uint32_t i = 0; i < MEMBERS; i++)
			CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
		finish();
	}
}

/* The same epoch, and another content than the others', which is as many members' word. */
TEST(one_member_can_not_tell_of_another_map_with_an_epoch_of_the_others)
{
	for (uint8_t state = MEMBER_SUSPECT; state <= MEMBER_REBUILDING; state++)
		for (uint32_t liar = 0; liar < MEMBERS; liar++) {
			struct superblock sb;

			create(1);
			start();
			run_ms(3000);
			stop_dead();
			sb = superblock_of(liar);
			sb.map.member[liar == 1 ? 2 : 1].state = state;
			superblock_put(liar, &sb);
			start();
			run_ms(6000);
			serves();
			for (uint32_t i = 0; i < MEMBERS; i++)
				CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
			finish();
		}
}

/* Where nothing can tell who is right, it does not start, and does with that member away. */
TEST(what_can_not_be_told_is_refused_until_the_member_is_away)
{
	tell(1, true, MEMBER_FAULTY);
	start();
	run_ms(8000);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	dev_down(0);
	run_ms(20000);
	serves();
	finish();
}

/* R3: one that a node's record knows is completed, and keeps its demotions. */
TEST(a_proposal_that_a_record_knows_is_completed)
{
	tell(1, false, MEMBER_FAULTY);
	w.record.acked = superblock_of(0).map.epoch;
	start();
	run_ms(6000);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	CHECK_EQ_U64(w.fence_node, 7);
	finish();
}

/* Of a map that all carry, as one member has it: nobody but this node's own lives is fenced. */
TEST(a_writer_that_one_member_names_is_not_fenced)
{
	for (uint32_t liar = 0; liar < MEMBERS; liar++) {
		struct superblock sb;

		create(1);
		start();
		run_ms(3000);
		stop_dead();
		sb = superblock_of(liar);
		sb.writer_node = 7;
		superblock_put(liar, &sb);
		start();
		run_ms(6000);
		serves();
		CHECK(!w.fences || w.fence_node == 1);
		for (uint32_t i = 0; i < MEMBERS; i++)
			CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
		finish();
	}
}

/* Member 2 was rolled back to before that, and no record knows of it. */
TEST(a_commit_that_one_member_conceals_counts)
{
	static uint8_t old[DISK_BYTES];

	for (uint32_t liar = 0; liar < 2; liar++) {
		struct superblock sb;

		create(1);
		start();
		run_ms(3000);
		stop_dead();
		memcpy(old, w.disk[2], DISK_BYTES);
		start();
		run_ms(3000);
		serves();
		stop_dead();
		memcpy(w.disk[2], old, DISK_BYTES);
		sb = superblock_of(liar);
		memset(&sb.committed, 0, sizeof(sb.committed));
		superblock_put(liar, &sb);
		memset(&w.record, 0, sizeof(w.record));
		start();
		run_ms(8000);
		CHECK(status().io_allowed);
		CHECK_EQ_INT(status().map.member[2].state, MEMBER_FAULTY);
		finish();
	}
}

/* Its exporter answers with another's superblocks, which it knows from its own: at the start, and
 * when it comes back. What the others carry is read and written. */
static void pass_for(uint32_t liar, uint32_t other)
{
	memcpy(w.disk[liar] + geo_sb_offset(0), w.disk[other] + geo_sb_offset(0),
	       SB_COPIES * DDR_BLOCK_BYTES);
}

static void reads_back(uint8_t seed)
{
	static uint8_t in[256 << 10], out[256 << 10];

	fill(out, sizeof(out), seed);
	io(700, IO_READ, 1 << 20, sizeof(in), in);
	run_ms(500);
	CHECK_EQ_INT(w.io_err[700], 0);
	CHECK_EQ_MEM(in, out, sizeof(in));
}

static void written(uint8_t seed)
{
	static uint8_t out[256 << 10];

	fill(out, sizeof(out), seed);
	io(701, IO_WRITE, 1 << 20, sizeof(out), out);
	run_ms(4000);
	CHECK_EQ_INT(w.io_err[701], 0);
}

TEST(one_member_can_not_pass_for_another)
{
	for (uint32_t i = 0; i < MEMBERS * MEMBERS; i++)
		for (int later = 0; later < 2; later++) {
			uint32_t liar = i / MEMBERS, other = i % MEMBERS;

			if (liar == other)
				continue;
			create(1);
			start();
			run_ms(3000);
			written(3);
			if (later) {
				dev_down(liar);
				pass_for(liar, other);
				dev_up(liar);
			} else {
				stop_dead();
				pass_for(liar, other);
				start();
			}
			run_ms(8000);
			CHECK(status().io_allowed);
			CHECK(strstr(engine_dev_foreign(w.e, liar), "in another way, too"));
			reads_back(3);
			written(4);
			/* The exporter that lied is away: nothing is lost. */
			stop_dead();
			w.dead[liar] = true;
			start();
			run_ms(8000);
			reads_back(4);
			w.dead[liar] = false;
			finish();
		}
}

static void written_and_dead(void)
{
	create(1);
	start();
	run_ms(3000);
	written(3);
	stop_dead();
}

/* The exporter that lied is away: nothing is lost. */
static void reads_back_without(uint32_t liar)
{
	stop_dead();
	w.dead[liar] = true;
	start();
	run_ms(8000);
	reads_back(4);
	w.dead[liar] = false;
}

static void lies_of_geometry(struct superblock *sb, int what)
{
	switch (what) {
	case 0:
		sb->geo.layout = GEO_DEDICATED;
		break;
	case 1:
		sb->geo.region_bytes *= 2;
		break;
	case 2:
		sb->geo.slots--;
		break;
	case 3:
		sb->geo.member_bytes -= sb->geo.band_bytes;
		break;
	case 4:
		sb->geo.data_offset += DATA_ALIGN;
		break;
	case 5:
		sb->geo.log_pages++;
		break;
	default:
		strcpy(sb->name, "other");
	}
}

static struct logpage newest_page(const struct geo *g, uint32_t dev, uint32_t slot)
{
	struct logpage lp = {0}, other = {0};
	int err = logpage_decode(&lp, w.disk[dev] + geo_log_offset(g, slot, 0, 0));

	if (!logpage_decode(&other, w.disk[dev] + geo_log_offset(g, slot, 0, 1)) &&
	    (err || other.seq > lp.seq))
		return other;
	CHECK_EQ_INT(err, 0);
	return lp;
}

static void number_put(const struct geo *g, uint32_t dev, uint32_t slot, uint64_t number)
{
	struct logpage lp = newest_page(g, dev, slot);

	lp.dead_below = number;
	logpage_encode(&lp, w.disk[dev] + geo_log_offset(g, slot, 0, (uint32_t)(lp.seq & 1)));
}

static void numbers_are(const struct geo *g, uint64_t number)
{
	for (uint32_t dev = 0; dev < MEMBERS; dev++)
		for (uint32_t slot = 0; slot <= g->p.slots; slot++)
			CHECK_EQ_U64(newest_page(g, dev, slot).dead_below, number);
}

/* R22: a build with a journal has left it in the pages. Whoever resyncs a slot, takes one, marks in
 * it and leaves it keeps the number, and one member alone neither raises nor lowers it. */
TEST(the_number_below_which_entries_are_dead_is_kept)
{
	static const uint64_t lie[] = {0, 76, 78, UINT64_MAX};

	for (uint32_t i = 0; i < 4 * MEMBERS + 1; i++) {
		struct event ev = {.type = EV_ADMIN};
		uint32_t liar = i / 4, before;
		struct geo g = died();

		for (uint32_t dev = 0; dev < MEMBERS; dev++)
			for (uint32_t slot = 0; slot <= g.p.slots; slot++)
				number_put(&g, dev, slot, dev == liar ? lie[i % 4] : 77);
		start();
		run_ms(3000);
		before = w.counts[KIND_LOG][DEV_WRITE];
		serves();
		CHECK(w.counts[KIND_LOG][DEV_WRITE] > before);
		numbers_are(&g, 77);
		ev.admin.cmd = ADMIN_STOP;
		step(ev);
		run_ms(500);
		CHECK(w.stopped);
		numbers_are(&g, 77);
		finish();
	}
}

/* What does not change in an array's life is as more than one member says, whoever is read first.
 */
TEST(one_member_can_not_change_the_geometry)
{
	for (uint32_t i = 0; i < MEMBERS * 7; i++) {
		uint32_t liar = i % MEMBERS;
		struct superblock sb;

		written_and_dead();
		sb = superblock_of(liar);
		lies_of_geometry(&sb, (int)(i / MEMBERS));
		superblock_put(liar, &sb);
		start();
		run_ms(8000);
		CHECK(status().io_allowed);
		CHECK(strstr(engine_dev_misfit(w.e, liar), "another layout, or name"));
		reads_back(3);
		written(4);
		reads_back_without(liar);
		CHECK_EQ_INT(superblock_of((liar + 1) % MEMBERS).geo.layout, GEO_ROTATE);
		finish();
	}
}

/* It may become a new member: what it says is written over. */
TEST(a_device_with_another_geometry_can_be_added)
{
	struct event ev = {.type = EV_DEV_UP};
	struct superblock sb;

	written_and_dead();
	sb = superblock_of(2);
	lies_of_geometry(&sb, 0);
	superblock_put(2, &sb);
	start();
	run_ms(8000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	dev_event(EV_DEV_DOWN, 2);
	ev.dev.dev = 2;
	ev.dev.bytes = DISK_BYTES;
	ev.dev.uri = "mem:2";
	step(ev);
	ev = (struct event){.type = EV_ADMIN};
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 2;
	step(ev);
	run_ms(1000);
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.uri = "mem:2";
	w.placed_at = 2;
	w.admin_done = false;
	step(ev);
	run_ms(8000);
	CHECK_MSG(w.admin_done && !w.admin_err, "%s", w.admin_why);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_INT(superblock_of(2).geo.layout, GEO_ROTATE);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}

/* Two that differ, and no third to tell who is right. */
TEST(two_members_that_differ_in_the_geometry_wait_for_the_third)
{
	struct superblock sb;

	written_and_dead();
	sb = superblock_of(1);
	lies_of_geometry(&sb, 0);
	superblock_put(1, &sb);
	w.dead[2] = true;
	start();
	run_ms(20000);
	CHECK(!status().io_allowed);
	CHECK(strstr(status().waits, "no two agree"));
	w.dead[2] = false;
	dev_up(2);
	run_ms(20000);
	reads_back(3);
	finish();
}

/* Somebody has written a copy of one over the other; the third is not there. */
TEST(copies_of_one_member_wait_for_the_others)
{
	written_and_dead();
	memcpy(w.disk[1], w.disk[0], DISK_BYTES);
	w.dead[2] = true;
	start();
	run_ms(20000);
	CHECK(!status().io_allowed);
	CHECK_MSG(strstr(status().waits, "copies of"), "%s", status().waits);
	finish();
}

/* In the newest epoch its map is the others' but for the name of one of them. */
TEST(one_member_can_not_give_another_a_new_name)
{
	for (uint32_t i = 0; i < MEMBERS; i++) {
		uint32_t victim = (i + 1) % MEMBERS;
		struct superblock sb;

		written_and_dead();
		sb = superblock_of(i);
		sb.map.member[victim].uuid[3] ^= 0xff;
		superblock_put(i, &sb);
		start();
		run_ms(8000);
		CHECK_EQ_INT(status().map.member[victim].state, MEMBER_IN_SYNC);
		reads_back(3);
		written(4);
		reads_back_without(i);
		finish();
	}
}

/* Member 2 returns an older log. The others' connections break for a moment, just as the
 * log is read: what that one says of it is not all that there is. */
TEST(the_log_is_not_taken_from_fewer_members_than_the_data_needs)
{
	static uint8_t old[DISK_BYTES], out[4096];
	struct geo g;

	create(1);
	start();
	run_ms(3000);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(3000);
	CHECK(w.stopped);
	w.stopped = false;
	memcpy(old, w.disk[2], DISK_BYTES);
	stop_dead();
	start();
	run_ms(3000);
	g = geometry();
	fill(out, sizeof(out), 9);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
	stop_dead();
	/* A write that reached member 0 only in part. */
	memset(w.disk[0] + geo_offset(&g, 75), 0x11, 100);
	memcpy(w.disk[2] + LOG_OFFSET, old + LOG_OFFSET, g.data_offset - LOG_OFFSET);
	w.cut_log = 3;
	start();
	run_ms(8000);
	CHECK_EQ_U64(w.cut_log, 0);
	CHECK(status().io_allowed);
	for (uint32_t m = 0; m < MEMBERS; m++)
		CHECK_EQ_INT(status().map.member[m].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}
