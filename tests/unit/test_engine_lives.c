/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the engine finds of earlier incarnations: dirty slots, whom to fence, which members count.
 * */
#include "tests/unit/engine_world.h"

#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"

TEST(after_a_crash_only_the_marked_regions_are_resynced)
{
	static uint8_t out[4096], in[4096];
	struct geo g;
	uint32_t resync;

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 9);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	g = *engine_geo(w.e);
	engine_free(w.e);
	/* A write that reached the parity member only in part. */
	memset(w.disk[geo_member_of(&g, 75, g.k)] + geo_offset(&g, 75), 0x11, 100);
	memset(w.counts, 0, sizeof(w.counts));
	start();
	run_ms(3000);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	CHECK_EQ_U64(status().slots_unrecovered, 0);
	CHECK_EQ_U64(status().parity_fixed, 1);
	resync = w.counts[KIND_RESYNC][DEV_READ];
	CHECK_EQ_U64(resync, 3 * (256 / 128)); /* one region, in windows of 128 KiB */
	io(2, IO_READ, 300 << 10, sizeof(in), in);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

TEST(a_life_that_was_fenced_before_its_restart_is_not_fenced_again)
{
	static uint8_t out[4096];
	struct engine_status st;

	create(1);
	start();
	run_ms(3000);
	for (uint32_t life = 0; life < 2; life++) {
		io(1, IO_WRITE, 300 << 10, sizeof(out), out);
		engine_free(w.e);
		w.fences = 0;
		w.fenced_inc = life ? w.next_inc - 1 : 0;
		start();
		run_ms(3000);
		CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
		st = status();
		CHECK_EQ_U64(st.recovery[st.recovery_count - 1].inc, w.next_inc - 2);
		CHECK_EQ_U64(st.recovery[st.recovery_count - 1].marked, 1);
		CHECK_EQ_INT(st.recovery[st.recovery_count - 1].fenced_before, life);
		CHECK(life ? !w.fences : w.fences);
	}
	finish();
}

/* R6. The runtime may take its time: a new incarnation has to be durable, its lock space to be
 * open. */
TEST(between_two_lives_nothing_is_sent_though_a_device_comes_up)
{
	static uint8_t out[4096], in[4096];
	struct event restart = {.type = EV_RESTART};

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 5);
	io(1, IO_WRITE, 0, sizeof(out), out);
	CHECK_EQ_INT(w.io_err[1], 0);
	dev_down(1);
	step((struct event){.type = EV_GIVE_UP});
	run_ms(1);
	CHECK(w.removed);
	memset(w.counts, 0, sizeof(w.counts));
	dev_up(1);
	run_ms(2000);
	for (uint32_t kind = 0; kind < KIND_COUNT; kind++)
		for (uint32_t op = 0; op < 4; op++)
			CHECK_EQ_U64(w.counts[kind][op], 0);
	restart.restart.inc = w.next_inc++;
	step(restart);
	run_ms(3000);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	io(2, IO_READ, 0, sizeof(in), in);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

static struct superblock newest_superblock(uint32_t disk)
{
	struct superblock sb[SB_COPIES] = {0};

	for (uint32_t c = 0; c < SB_COPIES; c++)
		if (sb_decode(&sb[c], w.disk[disk] + geo_sb_offset(c), NULL))
			sb[c].seq = 0;
	return sb[sb[1].seq > sb[0].seq];
}

/* R4: its slot would name it, but it had none; and one that had is not fenced for a map. */
TEST(a_leader_that_died_before_it_had_a_slot_is_fenced)
{
	create(1);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct superblock sb = newest_superblock(i);

		sb.seq++;
		sb.map.epoch = (struct epoch){2, 55};
		sb.writer_node = 9;
		sb.place = (uint8_t)(1 + (sb.seq & 1));
		sb_encode(&sb, w.disk[i] + geo_sb_offset((uint32_t)(sb.seq & 1)));
	}
	start();
	CHECK(status().io_allowed);
	CHECK_EQ_U64(w.fences, 1);
	CHECK_EQ_U64(w.fence_node, 9);
	CHECK_EQ_U64(w.fence_writes, 0);
	CHECK(status().map.epoch.num > 2);
	for (uint32_t i = 0; i < MEMBERS; i++)
		CHECK_EQ_U64(newest_superblock(i).writer_node, 0);
	finish();
}

TEST(the_status_tells_what_a_recovery_did)
{
	static uint8_t out[4096];
	struct engine_status st;
	const struct recovery *r = &st.recovery[0];

	create(1);
	start_cold();
	run_until_served();
	st = status();
	CHECK_EQ_U64(st.recovery_count, 0);
	CHECK_EQ_U64(st.resync_total, engine_geo(w.e)->regions);
	CHECK_EQ_U64(st.regions_to_resync, engine_geo(w.e)->regions);
	run_ms(3000);
	st = status();
	CHECK_EQ_U64(st.regions_to_resync, 0);
	CHECK_EQ_U64(st.resync_total, 0);
	CHECK_EQ_U64(st.resync_bytes, engine_geo(w.e)->size_bytes);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	io(2, IO_WRITE, 900 << 10, sizeof(out), out);
	CHECK_EQ_U64(status().regions_dirty, 2);
	engine_free(w.e);
	start();
	run_ms(3000);
	st = status();
	CHECK_EQ_U64(st.recovery_count, 1);
	CHECK_EQ_U64(r->node, 1);
	CHECK_EQ_U64(r->inc, 100);
	CHECK_EQ_U64(r->slot, 0);
	CHECK_EQ_INT(r->state, RECOVERY_DONE);
	CHECK(r->lost_us && r->lost_us <= r->fenced_us && r->fenced_us <= r->read_us &&
	      r->read_us <= r->done_us);
	CHECK_EQ_U64(r->marked, 2);
	CHECK_EQ_U64(r->regions, 2);
	CHECK_EQ_U64(r->bytes, 512 << 10);
	CHECK_EQ_U64(r->read_bytes, 0);
	CHECK_EQ_U64(st.resync_bytes, 512 << 10);
	finish();
}

TEST(a_region_resynced_for_a_read_is_told_apart)
{
	static uint8_t out[4096], in[4096];
	struct engine_status st;

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 5);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	io(2, IO_WRITE, 900 << 10, sizeof(out), out);
	engine_free(w.e);
	start_cold();
	run_until_served();
	io(3, IO_READ, 900 << 10, sizeof(in), in);
	run_ms(3000);
	CHECK_EQ_MEM(in, out, sizeof(in));
	st = status();
	CHECK_EQ_U64(st.recovery_count, 1);
	CHECK_EQ_U64(st.recovery[0].bytes, 512 << 10);
	CHECK_EQ_U64(st.recovery[0].read_bytes, 4096);
	CHECK_EQ_U64(st.read_resync_bytes, 4096);
	finish();
}

/*
 * R18: its consumer always has two reads in a region that an incarnation before left in doubt, and
 * each has it resynced first. Whoever else wants the lock, as the resync itself on another node,
 * gets it.
 */
TEST(reads_that_never_end_do_not_keep_a_region_in_doubt_from_others)
{
	static const struct {
		uint32_t wait_ms, window_ms, kib;
		uint32_t windows; /* of a turn at most */
	} t[] = {
	    {0, 1, 128, 1}, {0, 1, 256, 1}, {20, 10, 128, 2}, {20, 10, 256, 2}, {3000, 50, 64, 10}};
	static uint8_t out[4096], in[2][256 << 10];

	for (uint32_t i = 0; i < 5; i++) {
		uint32_t reads = 0;

		create_regions(1, 2 << 20);
		w.external = true;
		start();
		run_ms(3000);
		io(1, IO_WRITE, 0, sizeof(out), out);
		io(2, IO_WRITE, 2 << 20, sizeof(out), out);
		run_ms(10);
		CHECK_EQ_U64(w.io_done[1] + w.io_done[2], 2);
		engine_free(w.e);
		w.contended = true;
		w.lock_wait_us = t[i].wait_ms * 1000ull;
		w.lock_never = 1u << 0; /* so the resync does not get to region 1 */
		start();
		w.window_kind = KIND_RESYNC;
		w.window_us = t[i].window_ms * 1000ull;
		w.unlocks = w.windows = 0;
		w.io_done[3] = w.io_done[4] = 1;
		for (uint32_t n = 0; w.unlocks < 8; n++) {
			CHECK(n < 100000);
			for (uint64_t tag = 3; tag <= 4; tag++) {
				if (!w.io_done[tag])
					continue;
				CHECK_EQ_INT(w.io_err[tag], 0);
				io(tag, IO_READ, 2 << 20, t[i].kib << 10, in[tag - 3]);
				reads++;
			}
			run_event();
			CHECK(w.windows <= t[i].windows);
		}
		CHECK(reads >= 4);
		w.lock_never = 0;
		run_ms(20000);
		CHECK_EQ_U64(status().slots_unrecovered, 0);
		CHECK_EQ_U64(w.io_done[3] + w.io_done[4], 2);
		finish();
	}
}

/* A crash while the superblocks are written leaves the proposal on some of the members. */
TEST(two_crashes_in_the_midst_of_a_change_leave_no_member_behind)
{
	static uint8_t out[4096], in[4096];

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 9);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	for (uint32_t crash = 0; crash < 2; crash++) {
		engine_free(w.e);
		w.hung = 1u << 1 | 1u << 2;
		start();
		CHECK(status().state != ENGINE_ACTIVE);
	}
	engine_free(w.e);
	w.hung = 0;
	start();
	run_ms(6000);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	for (uint8_t i = 0; i < MEMBERS; i++)
		CHECK_EQ_INT(status().map.member[i].state, MEMBER_IN_SYNC);
	io(2, IO_READ, 300 << 10, sizeof(in), in);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

static void restart_with(const uint8_t *old[MEMBERS], bool force)
{
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (old[i])
			memcpy(w.disk[i], old[i], DISK_BYTES);
	engine_free(w.e);
	w.force = force;
	start_cold();
	run_ms(
	    9000); /* those that are absent might still connect; who used them last is waited for */
}

/* Of the members from `first` on, as they are now. */
static void disks_copy(const uint8_t *old[MEMBERS], uint32_t first)
{
	for (uint32_t i = first; i < MEMBERS; i++) {
		uint8_t *copy = malloc(DISK_BYTES);

		CHECK(copy);
		old[i] = memcpy(copy, w.disk[i], DISK_BYTES);
	}
}

static void copies_free(const uint8_t *old[MEMBERS])
{
	for (uint32_t i = 0; i < MEMBERS; i++)
		free((void *)(uintptr_t)old[i]);
}

TEST(members_that_were_rolled_back_are_refused_unless_forced)
{
	static uint8_t buf[4096];
	const uint8_t *old[MEMBERS], *one[MEMBERS] = {NULL}, *none[MEMBERS] = {NULL};
	uint64_t num;

	create(1);
	start();
	run_ms(2000);
	disks_copy(old, 0);
	num = status().map.epoch.num;
	dev_down(2);
	run_ms(500);
	dev_up(2);
	run_ms(2000);
	CHECK(status().map.epoch.num > num + 2);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	one[1] = old[1];
	restart_with(one, false); /* one that is old is out, whatever it says */
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	fill(buf, sizeof(buf), 9);
	io(1, IO_WRITE, 0, sizeof(buf), buf);
	CHECK_EQ_INT(w.io_err[1], 0);
	restart_with(old, false);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	CHECK(!status().io_allowed && strstr(status().waits, "a node knows a newer epoch"));
	/* What was forced while no member was there is not meant for what comes an hour later. */
	engine_free(w.e);
	for (uint32_t i = 0; i < MEMBERS; i++)
		w.dead[i] = true;
	w.force = true;
	start_cold();
	run_ms(3600000);
	for (uint32_t i = 0; i < MEMBERS; i++)
		dev_up(i);
	if (w.removed)
		step((struct event){.type = EV_RESTART, .restart = {.inc = w.next_inc++}});
	w.removed = false;
	run_ms(9000);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	restart_with(none, true);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	CHECK(status().io_allowed);
	copies_free(old);
	finish();
}

/* Members 1 and 2 are older, and the newest one is away: by force the array goes on without what
 * that has, on a node whose record knows of it or is older as well. When it is back, what it missed
 * is not all that it lacks. */
static void forced_without_the_newest(bool known)
{
	const uint8_t *old[MEMBERS] = {NULL};
	const char *stranger;
	struct record was;

	create(1);
	start();
	run_ms(2000);
	disks_copy(old, 1);
	was = w.record;
	for (uint32_t i = 0; i < 3; i++) {
		dev_down(2);
		run_ms(500);
		dev_up(2);
		run_ms(2000);
	}
	w.dead[0] = true;
	if (!known)
		w.record = was;
	restart_with(old, true);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	dev_up(0);
	run_ms(5000);
	stranger = engine_dev_foreign(w.e, 0);
	CHECK(stranger && strstr(stranger, "another history"));
	copies_free(old);
}

TEST(a_newer_member_that_a_forced_start_left_out_is_of_another_history)
{
	forced_without_the_newest(true);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_FAULTY);
	finish();
}

/* What it tells has not gone on without this node. */
TEST(a_member_of_another_history_ends_nobody_when_the_ring_changes)
{
	forced_without_the_newest(false);
	CHECK(status().map.epoch.num < superblock_of(0).map.epoch.num);
	for (uint32_t quorum_lost = 0; quorum_lost < 2; quorum_lost++) {
		if (quorum_lost) {
			quorum(false);
			run_ms(100);
		}
		ring_changes();
		run_ms(10000);
		CHECK(status().io_allowed && !w.removed);
	}
	finish();
}

/* As above, and the newest one is there: alone it is no use. */
TEST(a_forced_start_goes_on_with_the_newest_state_that_enough_members_are_of)
{
	static uint8_t old_data[4096], new_data[4096], in[4096];
	const uint8_t *old[MEMBERS] = {NULL}, *none[MEMBERS] = {NULL};
	const char *stranger;

	create(1);
	start();
	run_ms(2000);
	fill(old_data, sizeof(old_data), 3);
	io(1, IO_WRITE, 300 << 10, sizeof(old_data), old_data);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(1000);
	disks_copy(old, 1);
	restart_with(none, false);
	fill(new_data, sizeof(new_data), 9);
	io(2, IO_WRITE, 300 << 10, sizeof(new_data), new_data);
	CHECK_EQ_INT(w.io_err[2], 0);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(1000);
	restart_with(old, false);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	CHECK(strstr(status().waits, "is as it was in epoch"));
	CHECK(strstr(status().waits, "--stale"));
	restart_with(none, true);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_FAULTY);
	stranger = engine_dev_foreign(w.e, 0);
	CHECK(stranger && strstr(stranger, "another history"));
	io(3, IO_READ, 300 << 10, sizeof(in), in);
	CHECK_EQ_MEM(in, old_data, sizeof(in));
	copies_free(old);
	finish();
}

/* Member 1 is as it was two incarnations ago, member 2 as one incarnation ago: no two are of one
 * state. */
TEST(a_forced_start_mixes_no_members_of_different_states)
{
	const uint8_t *old[MEMBERS] = {NULL}, *older[MEMBERS] = {NULL}, *none[MEMBERS] = {NULL};

	create(1);
	start();
	run_ms(2000);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(1000);
	disks_copy(older, 1);
	restart_with(none, false);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(1000);
	disks_copy(old, 2);
	restart_with(none, false);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(1000);
	old[1] = older[1];
	restart_with(old, true);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	CHECK(strstr(status().waits, "--stale does not help"));
	old[1] = NULL;
	copies_free(old);
	copies_free(older);
	finish();
}

/* No member has left, so the map was the same from the start on. No record is needed to see it. */
TEST(a_member_that_was_rolled_back_while_the_array_was_stopped_is_out)
{
	static uint8_t out[4096], in[4096];
	const uint8_t *old[MEMBERS] = {NULL};
	uint8_t *copy = malloc(DISK_BYTES);

	create(1);
	start();
	run_ms(2000);
	CHECK(copy);
	old[1] = memcpy(copy, w.disk[1], DISK_BYTES);
	fill(out, sizeof(out), 9);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	CHECK_EQ_INT(w.io_err[1], 0);
	step((struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_STOP}});
	run_ms(1000);
	CHECK_EQ_INT(status().state, ENGINE_STOPPED);
	w.record = (struct record){0};
	restart_with(old, false);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	io(2, IO_READ, 300 << 10, sizeof(in), in);
	CHECK_EQ_MEM(in, out, sizeof(in));
	free(copy);
	finish();
}

/* Lives that make one epoch each: the superblock never hears that it was committed. */
TEST(a_member_of_several_lives_ago_is_out)
{
	const uint8_t *old[MEMBERS] = {NULL}, *none[MEMBERS] = {NULL};
	uint8_t *copy = malloc(DISK_BYTES);

	create(1);
	start();
	run_ms(2000);
	memcpy(copy, w.disk[1], DISK_BYTES);
	for (uint32_t i = 0; i < 3; i++) {
		restart_with(none, false);
		CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	}
	old[1] = copy;
	restart_with(old, false);
	CHECK(status().io_allowed);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	free(copy);
	finish();
}

TEST(a_set_that_was_left_behind_is_refused)
{
	create(1);
	start();
	run_ms(2000);
	w.dead[0] = true;
	dev_down(0);
	run_ms(500);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_SUSPECT);
	/* The one that was left, and one of the two that went on. */
	memset(&w.record, 0, sizeof(w.record)); /* and this node remembers nothing */
	engine_free(w.e);
	w.dead[0] = false;
	w.dead[1] = true;
	start_cold();
	run_ms(6000);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	CHECK(strstr(status().waits, "fewer members in sync are reachable"));
	/* The one that was left, alone. */
	engine_free(w.e);
	w.dead[2] = true;
	start_cold();
	run_ms(6000);
	CHECK_EQ_INT(status().state, ENGINE_REFUSED);
	/* The two that went on. */
	engine_free(w.e);
	w.dead[0] = true;
	w.dead[1] = w.dead[2] = false;
	start_cold();
	run_ms(6000);
	CHECK(status().io_allowed);
	finish();
}

/* Of slot 0 on a member, the newest image. */
static struct logpage page_of(const struct geo *g, uint32_t dev)
{
	struct logpage lp, other;
	int err = logpage_decode(&lp, w.disk[dev] + geo_log_offset(g, 0, 0, 0));

	if (!logpage_decode(&other, w.disk[dev] + geo_log_offset(g, 0, 0, 1)) &&
	    (err || other.seq > lp.seq))
		lp = other;
	return lp;
}

static uint32_t copies_changed(const struct geo *g, uint32_t dev, uint8_t was[2][DDR_BLOCK_BYTES])
{
	uint32_t changed = 0;

	for (uint32_t c = 0; c < 2; c++) {
		const uint8_t *now = w.disk[dev] + geo_log_offset(g, 0, 0, c);

		changed |= memcmp(now, was[c], DDR_BLOCK_BYTES) ? 1u << c : 0;
		memcpy(was[c], now, DDR_BLOCK_BYTES);
	}
	return changed;
}

/* The ring is what it was: a daemon has come or gone. */
static void round_anew(void)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){1, 1};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	step(ev);
}

/* The other copy may be the newest that the member which lacks this one has: torn, it would have an
 * older one only. */
TEST(a_page_that_a_member_lacks_goes_to_the_same_copy_also_if_the_round_ends)
{
	static uint8_t out[4096], was[2][DDR_BLOCK_BYTES];
	uint32_t lacks, next;
	struct event ev;
	struct geo g;

	create(1);
	start();
	run_ms(3000);
	g = *engine_geo(w.e);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
	engine_free(w.e);
	start_cold();
	run_until_served();
	copies_changed(&g, 0, was);
	w.cut_page = 1u << 1;
	for (uint32_t n = 0; w.cut_page; n++) {
		CHECK(n < 100000);
		run_event();
	}
	lacks = copies_changed(&g, 0, was);
	CHECK(lacks == 1 || lacks == 2);
	do {
		ev = w.pending[w.first++ % QUEUE];
		step(ev);
	} while (ev.type != EV_DEV_DONE || !ev.done.err);
	while (w.pending[w.first % QUEUE].type == EV_DEV_DONE)
		step(w.pending[w.first++ % QUEUE]);
	round_anew();
	dev_event(EV_DEV_UP, 1);
	do {
		run_event();
		next = copies_changed(&g, 0, was);
	} while (!next);
	CHECK_EQ_U64(next, lacks);
	run_ms(8000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(status().slots_unrecovered, 0);
	finish();
}

/*
 * A node died while it wrote a page of its slot: one member has an image that the others lack. The
 * leader writes that page anew, and power fails everywhere: what it was writing is torn, and the
 * member that was ahead is gone. What the others were told last is still there, with the region
 * in which a write had not reached that member.
 */
TEST(a_page_that_not_all_members_have_is_never_the_only_one)
{
	static uint8_t out[4096], was[MEMBERS][2][DDR_BLOCK_BYTES];
	bool cut = false;
	struct logpage lp;
	struct geo g;

	create(1);
	start();
	run_ms(3000);
	g = *engine_geo(w.e);
	fill(out, sizeof(out), 9);
	io(1, IO_WRITE, 300 << 10, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
	engine_free(w.e);
	memset(w.disk[0] + geo_offset(&g, 75), 0x11, 100);
	lp = page_of(&g, 0);
	CHECK(bit_get(lp.dirty, 1));
	lp.seq++;
	bit_set(lp.dirty, 5);
	logpage_encode(&lp, w.disk[0] + geo_log_offset(&g, 0, 0, (uint32_t)(lp.seq & 1)));
	for (uint32_t i = 0; i < MEMBERS; i++)
		for (uint32_t c = 0; c < 2; c++)
			memcpy(was[i][c], w.disk[i] + geo_log_offset(&g, 0, 0, c), DDR_BLOCK_BYTES);
	start_cold();
	for (uint32_t n = 0; !cut; n++) {
		CHECK(n < 10000);
		run_event();
		for (uint32_t i = 1; i < MEMBERS; i++)
			for (uint32_t c = 0; c < 2; c++) {
				uint8_t *now = w.disk[i] + geo_log_offset(&g, 0, 0, c);

				if (!memcmp(now, was[i][c], DDR_BLOCK_BYTES))
					continue;
				memset(now + 512, 0x5a, 512);
				cut = true;
			}
	}
	engine_free(w.e);
	w.dead[0] = true;
	start();
	run_ms(8000);
	CHECK(status().io_allowed);
	dev_up(0);
	run_ms(8000);
	CHECK_EQ_INT(status().map.member[0].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(parity_wrong(1), 0);
	finish();
}
