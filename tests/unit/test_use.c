/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nobody else uses the members (core/cluster/use.c): two daemons that know nothing of each other,
 * each in a group of its own, on the same members.
 */
#include "two_nodes_world.h"

#include "daemon/core/format/superblock.h"
#include "daemon/core/format/useblock.h"

static uint8_t data[DDR_BLOCK_BYTES];

/* Both alone, with real waits. */
static void begin(bool alone)
{
	create();
	w.split = w.others_look = true;
	w.node[1].alone = w.node[2].alone = alone;
	memset(data, 0x5a, sizeof(data));
}

/* All that is not renewed anyway. */
static uint64_t sum(void)
{
	uint64_t h = 0;

	for (uint32_t m = 0; m < MEMBERS; m++)
		for (uint32_t i = 0; i < DISK_BYTES; i++)
			if (i / DDR_BLOCK_BYTES != USE_OFFSET / DDR_BLOCK_BYTES)
				h = (h ^ w.disk[m][i]) * 0x100000001b3u;
	return h;
}

static const char *waits(uint32_t node)
{
	static struct engine_status st;

	engine_status(w.node[node].e, &st);
	return st.waits ? st.waits : "nothing";
}

static void refused(uint32_t node, const char *why)
{
	CHECK_EQ_INT(status(node).state, ENGINE_REFUSED);
	CHECK_MSG(strstr(waits(node), why), "\"%s\" in \"%s\"", why, waits(node));
}

static uint64_t age_s(uint32_t member)
{
	struct useblock u;

	CHECK_EQ_INT(useblock_decode(&u, w.disk[member] + USE_OFFSET), 0);
	return 1000000 + w.now / 1000000 - u.at_s;
}

TEST(a_second_daemon_is_refused_and_writes_nothing)
{
	uint64_t before;

	begin(true);
	start(1);
	run_ms(3000);
	CHECK(serves(1));
	write_block(1, 0);
	run_ms(3000);
	before = sum();
	start(2);
	run_ms(30000);
	for (uint32_t m = 0; m < MEMBERS; m++)
		CHECK(age_s(m) <= 2); /* renewed, with the time */
	refused(2, "in use by a daemon by itself on host1");
	CHECK(serves(1) && !serves(2));
	CHECK_EQ_U64(sum(), before);
	CHECK_EQ_U64(w.node[2].fences, 0);
	/* It is the second's once the first has given it back, and at once. */
	stop(1);
	run_ms(1500);
	CHECK(serves(2));
	finish();
}

/* Whatever it waits for: nothing of it is under way, so it needs no time, and nobody fences it. */
TEST(one_that_is_refused_stops_at_once)
{
	uint64_t before;

	for (uint32_t ms = 500; ms < 9000; ms += 130) {
		begin(true);
		start(1);
		run_ms(3000);
		before = sum();
		start(2);
		run_ms(ms);
		CHECK(!serves(2));
		step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
		run_ms(700);
		CHECK_MSG(w.node[2].stopped, "after %u ms: it waits for %s", ms, waits(2));
		CHECK(serves(1));
		CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
		CHECK_EQ_U64(sum(), before);
		finish();
	}
}

/* It has claimed the members, and nobody serves: the next one need not wait for it. */
TEST(one_that_has_claimed_and_stops_gives_it_back)
{
	struct useblock u;

	begin(true);
	start(1);
	run_ms(3000);
	stop(1);
	w.node[2].record.acked.num = w.node[2].record.committed.num = 1000; /* so they are stale */
	start(2);
	run_ms(4000);
	refused(2, "stale");
	CHECK(age_s(0) <= 2);
	step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(1500);
	CHECK(w.node[2].stopped);
	CHECK_EQ_INT(useblock_decode(&u, w.disk[0] + USE_OFFSET), 0);
	CHECK_EQ_U64(u.claim, 0);
	again(1, 300);
	run_ms(1500);
	CHECK(serves(1));
	finish();
}

/* Names, numbers and configuration are all the same: the clusters are two nevertheless. */
TEST(so_is_a_cluster_of_the_same_name)
{
	uint64_t before;

	begin(false);
	start(1);
	run_ms(3000);
	CHECK(serves(1));
	run_ms(3000);
	before = sum();
	start(2);
	run_ms(30000);
	refused(2, "in use by node 1 (host1) of cluster two");
	CHECK(serves(1));
	CHECK_EQ_U64(w.node[2].fences, 0);
	CHECK_EQ_U64(sum(), before);
	finish();
}

TEST(one_that_is_gone_is_waited_for)
{
	begin(true);
	start(1);
	run_ms(3000);
	w.node[1].stopped = true; /* its machine has lost its power */
	start(2);
	run_ms(3000);
	CHECK(!serves(2));
	CHECK_MSG(strstr(waits(2), "to be gone"), "%s", waits(2));
	run_ms(5000);
	CHECK(serves(2));
	finish();
}

TEST(a_process_that_has_ended_is_waited_for_only_until_what_it_sent_has_landed)
{
	begin(true);
	start(1);
	run_ms(3000);
	w.node[1].stopped = true;
	again(1, 200); /* on the same machine */
	run_ms(1500);
	CHECK(!serves(1));
	CHECK_MSG(strstr(waits(1), "has ended"), "%s", waits(1));
	run_ms(1500);
	CHECK(serves(1));
	finish();
}

static uint64_t claim_on(uint32_t member)
{
	struct useblock u;

	CHECK_EQ_INT(useblock_decode(&u, w.disk[member] + USE_OFFSET), 0);
	return u.claim;
}

/* That a process has ended is known only when nobody waits for it any more, but for whoever may
 * claim the array just now. */
TEST(a_late_word_of_a_process_does_not_shorten_that_wait)
{
	struct event ev = {.type = EV_PROBED};

	begin(true);
	start(1);
	run_ms(3000);
	w.node[1].stopped = true;
	ev.probed.claim = claim_on(0);
	ev.probed.dead = true;
	start(2);
	for (uint32_t i = 0; claim_on(0) == ev.probed.claim; i++) {
		CHECK(i < 1000);
		run_ms(10);
	}
	CHECK(!serves(2));
	step(2, ev);
	run_ms(300);
	CHECK(!serves(2));
	run_ms(1000);
	CHECK(serves(2));
	finish();
}

TEST(of_two_that_begin_at_once_one_gets_it)
{
	for (uint32_t ms = 0; ms < 1200; ms += 50) {
		begin(true);
		start(1);
		run_ms(ms);
		start(2);
		for (uint32_t i = 0; i < 40; i++) {
			run_ms(500);
			CHECK(!serves(1) || !serves(2));
		}
		CHECK(serves(1) || serves(2));
		finish();
	}
}

/* Its claim has been under way for so long that another one was through with it meanwhile. */
TEST(a_claim_that_took_long_is_made_anew)
{
	for (uint32_t ms = 700; ms < 2700; ms += 100) {
		begin(true);
		w.claim_hangs = 2;
		start(2);
		run_ms(400);
		CHECK(w.held_count > 0);
		start(1);
		run_ms(ms);
		held_goes_on();
		for (uint32_t i = 0; i < 40; i++) {
			run_ms(250);
			CHECK(!serves(1) || !serves(2));
		}
		CHECK(serves(1) && !serves(2));
		finish();
	}
}

/* Its claim has run out, and another one has the array: it finds that before it writes. */
TEST(one_that_stood_still_writes_nothing_when_it_wakes_up)
{
	uint32_t writes;

	begin(true);
	w.restarts = true;
	start(1);
	run_ms(3000);
	CHECK(serves(1));
	write_block(1, 0);
	run_ms(20);
	w.node[1].paused = true;
	start(2);
	run_ms(10000);
	CHECK(serves(2));
	writes = w.node[1].data_writes;
	w.node[1].paused = false;
	for (uint32_t i = 0; i < 8; i++) /* while it wakes up */
		push(1, (struct event){.type = EV_IO,
				       .io = {.tag = 7 + i,
					      .op = IO_WRITE,
					      .offset = i * 4096ull,
					      .bytes = 4096,
					      .data = data}});
	w.io_may_fail = true;
	run_ms(10000);
	CHECK_EQ_U64(w.node[1].data_writes, writes);
	CHECK(serves(2) && !serves(1));
	refused(1, "in use by a daemon by itself on host2");
	finish();
}

TEST(an_array_of_a_cluster_is_not_started_by_a_daemon_alone)
{
	begin(false);
	w.node[2].alone = true;
	start(1);
	run_ms(3000);
	CHECK(serves(1));
	start(2);
	run_ms(8000);
	refused(2, "belongs to cluster two");
	stop(1);
	run_ms(8000);
	refused(2, "belongs to cluster two");
	/* It was said that it may. */
	w.node[2].take_over = true;
	again(2, 300);
	run_ms(3000);
	CHECK(serves(2));
	/* It is the cluster's still. */
	stop(2);
	w.node[2].take_over = false;
	again(2, 400);
	run_ms(8000);
	refused(2, "belongs to cluster two");
	finish();
}

TEST(nor_is_it_taken_over_while_it_is_used)
{
	begin(false);
	w.node[2].alone = w.node[2].take_over = true;
	start(1);
	run_ms(3000);
	start(2);
	run_ms(20000);
	refused(2, "in use by node 1 (host1) of cluster two");
	CHECK(serves(1));
	finish();
}

/* The members were copied, or each half was used by itself: both went on from one map. */
static void two_histories(void)
{
	uint8_t *before[MEMBERS], *other = malloc(DISK_BYTES);

	begin(true);
	start(1);
	run_ms(3000);
	stop(1);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		before[m] = malloc(DISK_BYTES);
		memcpy(before[m], w.disk[m], DISK_BYTES);
	}
	again(1, 300);
	run_ms(3000);
	stop(1);
	memcpy(other, w.disk[2], DISK_BYTES);
	for (uint32_t m = 0; m < MEMBERS; m++)
		memcpy(w.disk[m], before[m], DISK_BYTES);
	/* This one changes its map more often: its numbers are higher. */
	for (uint32_t i = 0; i < 3; i++) {
		start(2);
		run_ms(3000);
		CHECK(serves(2));
		stop(2);
		engine_free(w.node[2].e);
		w.node[2].e = NULL;
		w.node[2].stopped = false;
		w.node[2].inc = 400 + i;
	}
	memcpy(w.disk[2], other, DISK_BYTES);
	for (uint32_t m = 0; m < MEMBERS; m++)
		free(before[m]);
	free(other);
	memset(&w.node[2].record, 0, sizeof(w.node[2].record));
	w.node[2].inc = 500;
}

TEST(members_of_two_histories_are_not_merged)
{
	two_histories();
	start(2);
	run_ms(8000);
	refused(2, "two histories");
	CHECK_EQ_U64(w.node[2].data_writes, 0);
	/* Who says that he knows it keeps the newer one; the other is rebuilt as a whole. */
	w.node[2].force = true;
	again(2, 600);
	run_ms(8000);
	CHECK_MSG(serves(2), "%s", waits(2));
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_FAULTY);
	finish();
}

/* One of them comes when the array runs. */
TEST(a_member_of_another_history_does_not_come_back_by_itself)
{
	two_histories();
	w.node[2].cut = 1u << 2;
	start(2);
	run_ms(6000);
	CHECK(serves(2));
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_SUSPECT);
	member_cut(2, 2, false);
	run_ms(8000);
	CHECK(serves(2));
	CHECK(status(2).map.member[2].state != MEMBER_IN_SYNC);
	finish();
}

/* So long after that neither remembers an epoch that the other has. */
TEST(nor_does_it_come_back_partially_when_the_fork_is_forgotten)
{
	uint8_t *before[MEMBERS], *other = malloc(DISK_BYTES);

	begin(true);
	start(1);
	run_ms(3000);
	stop(1);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		before[m] = malloc(DISK_BYTES);
		memcpy(before[m], w.disk[m], DISK_BYTES);
	}
	for (uint32_t i = 0; i < 40; i++) {
		again(1, 300 + i);
		run_ms(3000);
		write_block(1, 65536);
		stop(1);
	}
	memcpy(other, w.disk[2], DISK_BYTES);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		memcpy(w.disk[m], before[m], DISK_BYTES);
		free(before[m]);
	}
	w.node[2].cut = 1u << 2;
	w.node[2].inc = 500;
	start(2);
	for (uint32_t i = 0; i < 20; i++) {
		run_ms(6000);
		stop(2);
		again(2, 501 + i);
	}
	run_ms(6000);
	CHECK(serves(2));
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_SUSPECT);
	CHECK(status(2).map.member[2].left);
	memcpy(w.disk[2], other, DISK_BYTES);
	free(other);
	member_cut(2, 2, false);
	run_ms(8000);
	CHECK(serves(2));
	CHECK_EQ_U64(status(2).map.member[2].state, MEMBER_IN_SYNC);
	CHECK_MSG(w.node[2].rebuilt > DISK_BYTES / 2, "only %u bytes were copied",
		  (unsigned)w.node[2].rebuilt);
	finish();
}

/* The map does not have it any more, so nobody gives the claim on it back: the next start does not
 * wait for it. If it is the newer copy, it is looked at. */
TEST(what_a_member_carries_that_has_left_the_map_is_nobody_s_concern)
{
	struct useblock u;

	begin(true);
	start(1);
	run_ms(3000);
	CHECK(serves(1));
	step(1, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 2}});
	run_ms(3000);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_FAULTY);
	stop(1);
	CHECK_EQ_INT(useblock_decode(&u, w.disk[2] + USE_OFFSET), 0);
	CHECK(u.claim);
	again(1, 300);
	for (uint32_t i = 0; i < 150 && !serves(1); i++) {
		run_ms(10);
		CHECK_MSG(!strstr(waits(1), "to be gone"), "%s", waits(1));
	}
	CHECK(serves(1));
	finish();
}

/* It has claimed old copies of the members, which don't start. Then the right ones come in their
 * place. */
TEST(members_that_come_in_the_place_of_others_are_looked_at)
{
	uint8_t *old[MEMBERS];
	uint64_t before;

	begin(true);
	start(1);
	run_ms(3000);
	stop(1);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		old[m] = malloc(DISK_BYTES);
		memcpy(old[m], w.disk[m], DISK_BYTES);
	}
	again(1, 300);
	run_ms(3000);
	CHECK(serves(1));
	write_block(1, 0);
	stop(1);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		uint8_t *now = malloc(DISK_BYTES);

		memcpy(now, w.disk[m], DISK_BYTES);
		memcpy(w.disk[m], old[m], DISK_BYTES);
		free(old[m]);
		old[m] = now;
	}
	again(1, 400);
	run_ms(6000);
	refused(1, "stale");
	for (uint32_t m = 0; m < MEMBERS; m++)
		CHECK(age_s(m) <= 2);
	cut(1);
	run_ms(1);
	for (uint32_t m = 0; m < MEMBERS; m++) {
		memcpy(w.disk[m], old[m], DISK_BYTES);
		free(old[m]);
	}
	/* Somebody else is the first to use them. */
	start(2);
	run_ms(1500);
	CHECK(serves(2));
	before = sum();
	w.node[1].cut = 0;
	connect(1);
	for (uint32_t i = 0; i < 40; i++) {
		run_ms(250);
		CHECK(serves(2) && !serves(1));
	}
	refused(1, "in use by a daemon by itself on host2");
	CHECK_EQ_U64(sum(), before);
	stop(2);
	run_ms(3000);
	CHECK(serves(1));
	finish();
}

/* A run of a cluster has a process per node. Node 1's wrote this block last, and has ended. */
static void written_by_a_process_that_ended(uint32_t m)
{
	struct useblock u;

	CHECK_EQ_INT(useblock_decode(&u, w.disk[m] + USE_OFFSET), 0);
	u.process.pid = 77;
	u.process.pid_space = 1;
	u.node = 1;
	u.seq++;
	useblock_encode(&u, w.disk[m] + USE_OFFSET);
}

/* Node 2 serves on, whose renewals node 1 sees. `left`: the block is on a member that the map does
 * not have any more, and is there for ever. */
static void starts_beside_the_others_of_a_run(bool left)
{
	for (uint32_t ms = 0; ms < 1000; ms += 100) {
		create();
		w.split = w.others_look = true;
		w.node[1].alone = w.node[1].take_over = true;
		start(2);
		run_ms(3000 + ms);
		CHECK(serves(2));
		for (uint32_t m = 0; m < (left ? 1 : MEMBERS); m++)
			written_by_a_process_that_ended(m);
		if (left) {
			member_cut(2, 0, true);
			run_ms(5000);
		}
		start(1);
		for (uint32_t i = 0; i < 400; i++) {
			run_ms(20);
			CHECK(!serves(1) || !serves(2));
		}
		CHECK(serves(2));
		finish();
	}
}

TEST(a_process_of_a_cluster_that_has_ended_says_nothing_of_the_others)
{
	starts_beside_the_others_of_a_run(false);
}

TEST(nor_does_its_block_on_a_member_that_has_left_the_map)
{
	starts_beside_the_others_of_a_run(true);
}

/* It is over the claim of who has the array by now, until that is renewed. */
TEST(the_last_block_of_a_process_that_has_ended_hides_nobody)
{
	for (uint32_t ms = 0; ms < 1000; ms += 50) {
		begin(true);
		start(2);
		run_ms(3000 + ms);
		CHECK(serves(2));
		for (uint32_t m = 0; m < MEMBERS; m++) {
			struct useblock u;

			CHECK_EQ_INT(useblock_decode(&u, w.disk[m] + USE_OFFSET), 0);
			u.claim = 4711;
			u.process.pid = 77;
			u.process.pid_space = 1;
			useblock_encode(&u, w.disk[m] + USE_OFFSET);
		}
		start(1);
		for (uint32_t i = 0; i < 200; i++) {
			run_ms(20);
			CHECK(!serves(1) || !serves(2));
		}
		CHECK(serves(2));
		finish();
	}
}

TEST(the_use_block_is_what_doc_ondisk_says)
{
	struct useblock u = {.claim = 0x1112131415161718,
			     .seq = 2,
			     .inc = 3,
			     .at_s = 4,
			     .node = 5,
			     .patience_ms = 6,
			     .cluster = "c",
			     .host = "h"};
	uint8_t block[DDR_BLOCK_BYTES], zero[DDR_BLOCK_BYTES] = {0};
	struct useblock out;

	memset(u.array_uuid, 0x77, sizeof(u.array_uuid));
	u.process = (struct use_process){.pid_space = 7, .start = 8, .pid = 9};
	memset(u.process.boot, 0x66, sizeof(u.process.boot));
	useblock_encode(&u, block);
	CHECK_EQ_MEM(block, "ddraidus", 8);
	CHECK_EQ_INT(block[12], 1);
	CHECK_EQ_INT(block[32], 0x18);
	CHECK_EQ_INT(block[40], 2);
	CHECK_EQ_INT(block[64], 5);
	CHECK_EQ_INT(block[68], 6);
	CHECK_EQ_INT(block[104], 9);
	CHECK_EQ_INT(block[128], 'c');
	CHECK_EQ_INT(block[192], 'h');
	CHECK_EQ_INT(useblock_decode(&out, block), 0);
	CHECK_EQ_MEM(&out, &u, sizeof(u));
	block[200] ^= 1;
	CHECK_EQ_INT(useblock_decode(&out, block), -EBADMSG);
	CHECK_EQ_INT(useblock_decode(&out, zero), -ENOENT);
}

/* Alone, a daemon is node 1 for itself. In the cluster whose array it takes over that is another
 * machine, and the slot of its last incarnation needs a fence like any other's. */
TEST(node_1_of_a_cluster_is_fenced_by_who_is_alone)
{
	for (uint64_t inc = 300; inc <= 700; inc += 400) {
		begin(false);
		w.node[1].inc = 500;
		start(1);
		run_ms(3000);
		CHECK(serves(1));
		write_block(1, 0);
		run_ms(20);
		w.node[1].stopped = true; /* its machine has lost its power */
		memset(&w.node[1].record, 0, sizeof(w.node[1].record));
		w.node[1].alone = w.node[1].take_over = true;
		w.node[1].machine = 2;
		w.watched = 500;
		again(1, inc);
		run_ms(12000);
		CHECK(serves(1));
		CHECK_MSG(w.watched_fences, "by %u", (unsigned)inc);
		finish();
	}
}
