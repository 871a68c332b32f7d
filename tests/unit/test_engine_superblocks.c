/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The two superblock copies of each member: which is written, and what is left when one is torn,
 * can't be read, or says what nobody wrote. */
#include "tests/unit/engine_world.h"

#include "daemon/core/format/superblock.h"

static bool intact(uint32_t dev, uint32_t copy, struct superblock *sb)
{
	return !sb_decode(sb, w.disk[dev] + geo_sb_offset(copy), NULL);
}

static uint32_t intact_copies(uint32_t dev)
{
	struct superblock sb;

	return (uint32_t)intact(dev, 0, &sb) + (uint32_t)intact(dev, 1, &sb);
}

static void restart(void)
{
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	for (uint32_t i = 0; i < MEMBERS; i++)
		w.dead[i] = false;
	start();
	run_ms(6000);
}

static void all_in_sync(void)
{
	struct engine_status st = status();

	CHECK(st.io_allowed);
	CHECK_EQ_U64(map_insync_mask(&st.map), 7);
}

TEST(a_map_that_is_committed_is_on_both_copies_of_its_members)
{
	struct superblock sb;
	struct map map;

	create(1);
	start();
	run_ms(3000);
	map = status().map;
	for (uint32_t i = 0; i < MEMBERS; i++)
		for (uint32_t c = 0; c < SB_COPIES; c++) {
			CHECK(intact(i, c, &sb));
			CHECK_EQ_INT(epoch_cmp(&sb.map.epoch, &map.epoch), 0);
		}
	finish();
}

/* Power that flaps: whatever is torn, and how often, one copy of each member stays intact. */
TEST(torn_writes_never_hit_the_only_intact_copy)
{
	create(1);
	start();
	run_ms(3000);
	for (uint32_t cut = 0; cut < 6; cut++) {
		w.tear = 7;
		if (!cut)
			dev_down(2); /* else nothing would be written */
		for (uint32_t i = 0; i < MEMBERS && cut; i++)
			dev_up(i);
		for (uint32_t n = 0; w.tear & 3 && n < 8000; n++)
			run_ms(1);
		for (uint32_t i = 0; i < MEMBERS; i++) {
			if (!w.dead[i])
				dev_down(i);
			CHECK_MSG(intact_copies(i) >= 1, "cut %u: member %u has no superblock", cut,
				  i);
		}
	}
	w.tear = 0;
	restart();
	CHECK(status().io_allowed);
	finish();
}

/* Each copy of each set of members. */
TEST(a_copy_that_can_not_be_read_hides_no_member_and_is_healed)
{
	for (uint32_t set = 1; set < 64; set++) {
		struct map was;
		bool both = false;

		for (uint32_t i = 0; i < MEMBERS; i++)
			both |= (set >> (2 * i) & 3) == 3;
		if (both)
			continue;
		create(1);
		start();
		run_ms(1000);
		was = status().map;
		for (uint32_t i = 0; i < MEMBERS; i++)
			w.bad_copy[i] = set >> (2 * i) & 3;
		restart();
		all_in_sync();
		CHECK(status().map.epoch.num > was.epoch.num);
		CHECK_EQ_U64(rebuild_writes(), 0);
		for (uint32_t i = 0; i < MEMBERS; i++) {
			CHECK_EQ_U64(w.bad_copy[i], 0);
			CHECK_EQ_U64(intact_copies(i), 2);
		}
		finish();
	}
}

TEST(a_member_neither_of_whose_copies_can_be_read_is_told_of)
{
	create(1);
	start();
	run_ms(1000);
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	w.bad_copy[1] = 3;
	start();
	run_ms(6000);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_SUSPECT);
	CHECK_EQ_U64(engine_member_of_dev(w.e, 1), 0xff);
	CHECK(strstr(engine_dev_foreign(w.e, 1), "neither copy"));
	CHECK_EQ_U64(w.bad_copy[1], 3); /* nobody knows whose it is: nothing is written there */
	/* It can be read again. */
	w.bad_copy[1] = 0;
	run_ms(3000);
	CHECK(!engine_dev_foreign(w.e, 1));
	all_in_sync();
	finish();
}

TEST(one_copy_that_can_not_be_read_and_one_that_is_damaged)
{
	create(1);
	start();
	run_ms(1000);
	engine_free(w.e);
	w.fenced_inc = w.next_inc - 1;
	w.bad_copy[1] = 2;
	w.disk[1][geo_sb_offset(0) + 100] ^= 1;
	start();
	run_ms(6000);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_SUSPECT);
	CHECK(strstr(engine_dev_foreign(w.e, 1), "the other is damaged"));
	w.bad_copy[1] = 0;
	run_ms(3000);
	all_in_sync();
	CHECK_EQ_U64(intact_copies(1), 2);
	finish();
}

/* Numbers are each member's own: what one says drags no other up, and none begins again at 0. */
TEST(a_superblock_number_that_can_not_grow_harms_nobody)
{
	for (uint32_t copy = 0; copy < SB_COPIES; copy++) {
		struct superblock sb;

		create(1);
		start();
		run_ms(1000);
		CHECK(intact(0, copy, &sb));
		sb.seq = UINT64_MAX;
		sb_encode(&sb, w.disk[0] + geo_sb_offset(copy));
		for (uint32_t life = 0; life < 5; life++) {
			restart();
			all_in_sync();
			for (uint32_t i = 0; i < MEMBERS; i++) {
				uint64_t num;

				CHECK(intact(i, 0, &sb));
				num = sb.map.epoch.num;
				CHECK(intact(i, 1, &sb));
				CHECK_EQ_U64(num, sb.map.epoch.num);
				CHECK_EQ_U64(num, status().map.epoch.num);
				CHECK(!i || sb.seq < 1000);
			}
		}
		finish();
	}
}

/* Each is waited for once: of two that hang in turns, a member and a device of nobody, one is
 * always being read. */
TEST(devices_that_hang_in_turns_do_not_hold_up_a_start)
{
	create(1);
	start();
	run_ms(1000);
	engine_free(w.e);
	w.sb_hangs = 1u << 2 | 1u << MEMBERS;
	start_cold();
	dev_up(MEMBERS);
	run_ms(4000); /* the node's former incarnation is over */
	CHECK_EQ_STR(status().waits, "the superblocks of the members to be read");
	for (uint32_t turn = 0; turn < 10 && !status().io_allowed; turn++) {
		run_ms(2000);
		reads_fail(turn % 2 ? 2 : MEMBERS);
	}
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_SUSPECT);
	finish();
}
