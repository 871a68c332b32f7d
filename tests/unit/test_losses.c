/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who alone knows that a member has lost what was in its cache, and is removed before a map says so
 * (R17). The exporters of this world have no identity: who connects anew can't tell whether what
 * they had is still there.
 */
#include "tests/unit/two_nodes_world.h"

#define BLOCKS 8u

/* What was written is in the cache of member 1, if its exporter ends now, and nowhere else. */
static uint8_t cached[DDR_BLOCK_BYTES], media[DISK_BYTES];
static uint64_t data_offset;

static void write_cached(uint32_t node)
{
	data_offset = engine_geo(w.node[node].e)->data_offset;
	memcpy(media, w.disk[1], DISK_BYTES);
	memset(cached, 7, sizeof(cached));
	for (uint32_t i = 0; i < BLOCKS; i++) {
		io_block(node, IO_WRITE, (300 << 10) + i * 131072u, cached);
		run_ms(5);
	}
	run_ms(20);
	CHECK_EQ_U64(w.node[node].ios_done, BLOCKS);
}

static void cache_lost(void)
{
	memcpy(w.disk[1] + data_offset, media + data_offset, DISK_BYTES - data_offset);
}

static void reads_cached(uint32_t node)
{
	static uint8_t in[DDR_BLOCK_BYTES];

	for (uint32_t i = 0; i < BLOCKS; i++) {
		memset(in, 0, sizeof(in));
		io_block(node, IO_READ, (300 << 10) + i * 131072u, in);
		run_ms(50);
		CHECK_EQ_MEM(in, cached, sizeof(in));
	}
}

static void one_serves(void)
{
	create();
	w.io_may_fail = w.restarts = true;
	start(1);
	run_ms(3000);
	write_cached(1);
}

static void removed(void)
{
	step(1, (struct event){.type = EV_GIVE_UP});
	run_ms(6000);
	CHECK(!serves(1));
}

/* Node 1 loses member `m`, and its incarnation ends before a map says so. */
static void removed_after_loss(uint32_t m)
{
	w.node[1].record_hangs = true;
	member_cut(1, m, true);
	run_ms(50);
	CHECK(status(1).proposing);
	removed();
}

static void goes_on(void)
{
	w.node[1].record_hangs = false;
	push(1, (struct event){.type = EV_RECORD_DONE});
	run_ms(20000);
	CHECK(serves(1));
}

static void all_cut(bool gone)
{
	for (uint32_t m = 0; m < MEMBERS; m++)
		if (!gone || !(w.node[1].cut >> m & 1))
			member_cut(1, m, gone);
	run_ms(1);
}

TEST(a_loss_outlives_the_proposal_that_tells_it)
{
	one_serves();
	cache_lost();
	removed_after_loss(1);
	member_cut(1, 1, false);
	goes_on();
	reads_cached(1);
	finish();
}

/* In its next incarnation all of its connections break at once, which says nothing of the members.
 * */
TEST(a_loss_outlives_an_outage_of_the_own_network)
{
	one_serves();
	cache_lost();
	removed_after_loss(1);
	all_cut(true);
	all_cut(false);
	run_ms(50);
	all_cut(true);
	all_cut(false);
	run_ms(50);
	goes_on();
	reads_cached(1);
	finish();
}

/* The others' fence cuts its other connections, and then it hears that it was removed. */
TEST(a_loss_outlives_the_fence_of_who_knows)
{
	one_serves();
	cache_lost();
	w.node[1].record_hangs = true;
	member_cut(1, 1, true);
	run_ms(8000);
	all_cut(true);
	run_ms(100);
	removed();
	all_cut(false);
	goes_on();
	reads_cached(1);
	finish();
}

/* What the last incarnation took for lost may be what it was. Then another member is lost, and only
 * one of them can leave. */
TEST(what_the_life_before_lost_stays_if_another_has_been_lost_since)
{
	one_serves();
	removed_after_loss(0);
	member_cut(1, 1, true); /* connections of the new incarnation */
	run_ms(1);
	member_cut(1, 0, false);
	member_cut(1, 1, false);
	run_ms(50);
	cache_lost();
	member_cut(1, 1, true);
	run_ms(1);
	member_cut(1, 1, false);
	goes_on();
	reads_cached(1);
	finish();
}

/* Node 2 is alone with its loss of member 1 while it is out of the group. */
static void out_with_a_loss(void)
{
	create();
	w.io_may_fail = true;
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(serves(1) && serves(2) && status(1).leading);
	w.restarts = true;
	w.away = 2;
	view(1, 1, 1);
	member_cut(2, 1, true);
	run_ms(3000);
}

/* From here on member 1 stays in sync. */
static void comes_back(void)
{
	w.away = 0;
	view(1, 1, 2);
	view(1, 2, 2);
	for (uint32_t i = 0; i < 20000; i++) {
		run_ms(1);
		if (i == 3000 && w.node[2].cut)
			member_cut(2, 1, false);
		CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	}
	CHECK(serves(1) && serves(2));
	finish();
}

TEST(a_loss_that_the_map_has_settled_is_told_by_nobody)
{
	out_with_a_loss();
	member_cut(1, 1, true);
	run_ms(1000);
	member_cut(1, 1, false);
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	member_cut(2, 1, false);
	comes_back();
}

TEST(a_loss_that_nobody_else_has_seen_is_told)
{
	bool left = false;

	out_with_a_loss();
	member_cut(2, 1, false);
	w.away = 0;
	view(1, 1, 2);
	view(1, 2, 2);
	for (uint32_t i = 0; i < 20000; i++) {
		run_ms(1);
		left |= status(1).map.member[1].state != MEMBER_IN_SYNC;
	}
	CHECK(left);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	finish();
}

static void member_back_as(uint32_t m, const uint8_t *content)
{
	member_cut(1, m, true);
	member_cut(2, m, true);
	run_ms(600);
	memcpy(w.disk[m], content, DISK_BYTES);
	member_cut(1, m, false);
	member_cut(2, m, false);
}

/* The data needs the member, so the map can't drop it. The leader has not written since the copy
 * was made, and nothing tells it; the other node is right, and stays. */
TEST(who_alone_knows_an_older_copy_is_not_evicted_for_it)
{
	static uint8_t out[DDR_BLOCK_BYTES], in[DDR_BLOCK_BYTES], older[DISK_BYTES],
	    right[DISK_BYTES];
	uint32_t lives;

	start_both();
	CHECK(status(1).leading);
	member_cut(1, 2, true);
	member_cut(2, 2, true);
	run_ms(1000);
	memset(out, 1, sizeof(out));
	io_block(2, IO_WRITE, 300 << 10, out);
	run_ms(4000);
	memcpy(older, w.disk[1], DISK_BYTES);
	memset(out, 2, sizeof(out));
	io_block(2, IO_WRITE, 300 << 10, out);
	run_ms(4000);
	memcpy(right, w.disk[1], DISK_BYTES);
	lives = w.node[2].lives;

	member_back_as(1, older);
	run_ms(12000);
	CHECK(status(1).state == ENGINE_ACTIVE && status(2).state == ENGINE_ACTIVE);
	CHECK_EQ_U64(w.node[2].lives, lives);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	CHECK_MSG(strstr(status(1).waits, "as another node finds"), "%s", status(1).waits);
	CHECK_MSG(strstr(status(2).waits, "older copy"), "%s", status(2).waits);
	CHECK_EQ_MEM(w.disk[1] + engine_geo(w.node[1].e)->data_offset,
		     older + engine_geo(w.node[1].e)->data_offset,
		     DISK_BYTES - engine_geo(w.node[1].e)->data_offset);

	member_back_as(1, right);
	run_ms(5000);
	io_block(1, IO_READ, 300 << 10, in);
	run_ms(500);
	CHECK_EQ_MEM(in, out, sizeof(in));
	member_cut(1, 2, false);
	member_cut(2, 2, false);
	run_ms(10000);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_IN_SYNC);
	finish();
}

/* What happens next, but that messages to `node` are late. */
static void step_but_messages(uint32_t node)
{
	for (uint32_t n = w.last - w.first; n; n--) {
		uint32_t at = w.first++ % QUEUE, to = w.queue[at].to;

		if (to == node && w.queue[at].ev.type == EV_MSG)
			push(to, w.queue[at].ev);
		else
			step(to, w.queue[at].ev);
	}
}

/* The map takes it back while the page that says what it lacks is on its way, by a Commit that is
 * late. */
TEST(an_older_copy_that_the_map_takes_back_meanwhile_is_copied_again)
{
	static uint8_t out[DDR_BLOCK_BYTES], in[DDR_BLOCK_BYTES], older[DISK_BYTES];
	uint32_t i;

	start_both();
	run_ms(17000);
	for (uint32_t round = 1; round <= 2; round++) {
		if (round == 2)
			memcpy(older, w.disk[1], DISK_BYTES);
		memset(out, (int)round, sizeof(out));
		io_block(2, IO_WRITE, 300 << 10, out);
		run_ms(4000);
	}
	CHECK(status(1).leading);
	member_cut(2, 1, true);
	run_ms(600);
	CHECK_EQ_U64(status(2).map.member[1].state, MEMBER_SUSPECT);

	w.hold.node = 1;
	w.hold.kind = KIND_SB;
	w.hold.op = DEV_WRITE;
	w.hold.dev = 0;
	w.hold.on = true;
	member_cut(2, 1, false);
	for (i = 0; i < 2000 && !w.held_count; i++)
		run_ms(1);
	CHECK_EQ_U64(w.held_count, 1);
	w.hold.node = 2;
	w.hold.kind = KIND_LOG;
	do_io(w.held_by[0], &w.held[0]);
	w.held_count = 0;
	member_cut(2, 1, true);
	memcpy(w.disk[1], older, DISK_BYTES);
	member_cut(2, 1, false);
	for (i = 0; i < 20; i++)
		step_but_messages(2);
	CHECK_EQ_U64(w.held_count, 1);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_REBUILDING);
	CHECK_EQ_U64(status(2).map.member[1].state, MEMBER_SUSPECT);
	run_ms(1);
	held_goes_on();
	run_ms(10000);
	CHECK_EQ_U64(status(2).map.member[1].state, MEMBER_IN_SYNC);
	member_cut(2, 0, true);
	run_ms(600);
	io_block(2, IO_READ, 300 << 10, in);
	run_ms(600);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* Content whose fragments are unlike, so that the parity is of both. */
static void unlike(uint8_t block[DDR_BLOCK_BYTES], uint32_t tag)
{
	for (uint32_t i = 0; i < DDR_BLOCK_BYTES; i++)
		block[i] = (uint8_t)(i * (7 + 6 * tag) + i / (256 >> tag) + 99 * tag);
}

/* Each member does its part for what is read. */
static void all_read(uint32_t node, const uint8_t *want)
{
	static uint8_t in[DDR_BLOCK_BYTES];

	for (uint32_t gone = 0; gone < 3; gone++) {
		member_cut(node, gone, true);
		run_ms(600);
		memset(in, 0, sizeof(in));
		io_block(node, IO_READ, 300 << 10, in);
		run_ms(600);
		CHECK_EQ_MEM(in, want, sizeof(in));
		member_cut(node, gone, false);
		run_ms(3000);
	}
}

/* Its fence takes ten seconds. */
static void dies(uint32_t node)
{
	uint32_t other = 3 - node;

	w.fence_after_ms = 10000;
	engine_free(w.node[node].e);
	w.node[node].e = NULL;
	view(other, other, other);
	run_ms(3000);
	CHECK_EQ_U64(status(other).unfenced, 1);
}

static uint8_t copied[DISK_BYTES], written[DDR_BLOCK_BYTES];

/* It writes, member 1 is copied `after_ms` later, and it writes again. */
static void written_since_the_copy(uint32_t node, uint32_t after_ms)
{
	start_both();
	run_ms(17000);
	unlike(written, 0);
	io_block(node, IO_WRITE, 300 << 10, written);
	run_ms(after_ms);
	memcpy(copied, w.disk[1], DISK_BYTES);
	unlike(written, 1);
	io_block(node, IO_WRITE, 300 << 10, written);
}

/* Nobody compares what a node wrote that has left: it is told by an epoch from after that. */
TEST(what_a_node_wrote_that_has_left_is_told_by_an_epoch)
{
	for (uint32_t who = 1; who <= 2; who++) {
		uint32_t other = 3 - who;

		written_since_the_copy(who, 3000);
		run_ms(3000);
		stop(who);
		run_ms(3000);
		CHECK(w.node[who].stopped && status(other).leading);
		member_cut(other, 1, true);
		run_ms(600);
		memcpy(w.disk[1], copied, DISK_BYTES);
		member_cut(other, 1, false);
		run_ms(6000);
		CHECK_EQ_U64(status(other).map.member[1].state, MEMBER_IN_SYNC);
		all_read(other, written);
		finish();
	}
}

enum gone { DIES, LEAVES, DIES_WRITING };

/* That epoch is the one that drops the member, which breaks off before it is committed: the leader
 * compares the pages of who is gone. A member that is what it was is brought up from those alone
 * that were being written. */
static void gone_with_a_member(enum gone how, uint32_t is_older, bool back_before)
{
	uint64_t rebuilt;

	written_since_the_copy(2, is_older == 2 ? 20 : 3000); /* still marked, or cleared */
	run_ms(how == DIES_WRITING ? 20 : 3000);
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	CHECK_EQ_INT(status(2).regions_dirty > 0, how == DIES_WRITING);
	if (how == LEAVES) {
		w.node[1].record_hangs = true; /* so that nothing is committed meanwhile */
		step(2, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
		for (uint32_t n = 0; !w.node[2].stopped; n++) {
			run_ms(1);
			CHECK(n < 10000);
		}
		run_ms(50);
	} else {
		dies(2);
	}
	member_cut(1, 1, true);
	run_ms(600);
	if (is_older)
		memcpy(w.disk[1], copied, DISK_BYTES);
	if (back_before)
		member_cut(1, 1, false);
	if (w.node[1].record_hangs) {
		w.node[1].record_hangs = false;
		push(1, (struct event){.type = EV_RECORD_DONE});
	}
	run_ms(20000);
	if (!back_before)
		member_cut(1, 1, false);
	rebuilt = w.node[1].rebuilt;
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	if (!is_older && !back_before)
		CHECK(w.node[1].rebuilt - rebuilt <= engine_geo(w.node[1].e)->p.region_bytes);
	all_read(1, written);
	finish();
}

TEST(what_a_node_wrote_that_is_gone_when_a_member_breaks_off_is_compared)
{
	for (uint32_t how = 0; how < 3; how++)
		for (uint32_t older = 0; older < 3; older++)
			for (uint32_t before = 0; before < 2; before++)
				gone_with_a_member((enum gone)how, older, before);
}

/* Node 2 has written since the copy of member 1 was made, and dies with that; it is out of the map.
 */
static void gone_together(void)
{
	written_since_the_copy(2, 3000);
	run_ms(3000);
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	dies(2);
	member_cut(1, 1, true);
	run_ms(20600);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_SUSPECT);
	w.fence_after_ms = 0;
}

/* Node 2 has not acknowledged the proposal that drops the member when it dies: the next round goes
 * on from that, and the map says all the same that the member is to be compared. */
TEST(the_map_says_so_though_the_member_was_to_leave_before)
{
	written_since_the_copy(2, 3000);
	run_ms(3000);
	w.node[2].paused = true;
	member_cut(1, 1, true);
	run_ms(50);
	w.node[2].paused = false;
	dies(2);
	run_ms(20600);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_SUSPECT);
	CHECK_EQ_INT(status(1).map.member[1].flags, MEMBER_F_UNCOMPARED);
	finish();
}

static void ring_anew(void)
{
	w.ring++;
	view(1, 1, 1);
	quorum_of(1);
}

/* The leader remembers what it has to compare, whatever else comes with the member. */
TEST(a_round_meanwhile_does_not_skip_the_compare)
{
	enum { RING_BEFORE, AS_IT_BEGINS, WITHIN, CASES };

	for (uint32_t what = 0; what < CASES; what++) {
		gone_together();
		memcpy(w.disk[1], copied, DISK_BYTES);
		if (what == RING_BEFORE) {
			ring_anew();
			run_ms(3000);
			CHECK(status(1).leading && status(1).io_allowed);
		} else if (what == WITHIN) { /* node 2 joins, and takes its time to answer */
			w.node[2].inc = 302;
			w.node[2].cut = NONE_REACHED;
			start(2);
			w.node[2].paused = true;
			run_ms(50);
		}
		member_cut(1, 1, false);
		if (what == AS_IT_BEGINS)
			view(1, 1, 1);
		run_ms(200);
		w.node[2].paused = false;
		run_ms(20000);
		CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
		all_read(1, written);
		finish();
	}
}

/* It comes as it was, enters, and breaks off before it has any page from then; then it is the copy.
 */
TEST(what_is_to_be_compared_is_kept_until_the_member_is_in_sync)
{
	gone_together();
	w.hold.node = 1;
	w.hold.kind = KIND_LOG;
	w.hold.op = DEV_WRITE;
	w.hold.dev = 1;
	w.hold.on = true;
	member_cut(1, 1, false);
	for (uint32_t n = 0; n < 3000 && !w.held_count; n++)
		run_ms(1);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_REBUILDING);
	member_cut(1, 1, true);
	held_goes_on();
	run_ms(10000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_SUSPECT);
	memcpy(w.disk[1], copied, DISK_BYTES);
	member_cut(1, 1, false);
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	all_read(1, written);
	finish();
}

/* Node 1 led, wrote and died with member 1, and node 2 led then: it alone knows what that must
 * carry. Node 1 is back, and leads. */
static void another_leads(uint32_t round_ms)
{
	written_since_the_copy(1, 3000);
	run_ms(3000);
	dies(1);
	member_cut(2, 1, true);
	run_ms(20600);
	CHECK_EQ_U64(status(2).map.member[1].state, MEMBER_SUSPECT);
	w.fence_after_ms = 0;
	w.node[1].inc = 301;
	w.node[1].cut = 1u << 1;
	start(1);
	for (uint32_t round = 0; round < 2; round++) {
		w.ring += round;
		for (uint32_t i = 1; i <= NODES; i++) {
			view(1, i, NODES);
			quorum_of(i);
		}
		run_ms(round_ms);
	}
	CHECK(status(1).leading && serves(1) && serves(2));
}

static void reads_without_any(void)
{
	static uint8_t in[DDR_BLOCK_BYTES];

	for (uint32_t gone = 0; gone < 3; gone++) {
		for (uint32_t i = 1; i <= NODES; i++)
			member_cut(i, gone, true);
		run_ms(2000);
		memset(in, 0, sizeof(in));
		io_block(1, IO_READ, 300 << 10, in);
		run_ms(600);
		CHECK_EQ_MEM(in, written, sizeof(in));
		for (uint32_t i = 1; i <= NODES; i++)
			member_cut(i, gone, false);
		run_ms(3000);
	}
}

TEST(who_led_when_the_member_left_compares_it_though_another_leads)
{
	another_leads(10000);
	memcpy(w.disk[1], copied, DISK_BYTES);
	for (uint32_t i = 1; i <= NODES; i++)
		member_cut(i, 1, false);
	run_ms(20000);
	reads_without_any();
	finish();
}

/* It was what it had been when node 2 told that it reaches it. Now it is the copy, and node 2 takes
 * its time to read what that carries. */
TEST(it_is_compared_before_it_enters)
{
	another_leads(4000);
	member_cut(2, 1, false);
	run_ms(303);
	member_cut(2, 1, true);
	memcpy(w.disk[1], copied, DISK_BYTES);
	w.hold.node = 2;
	w.hold.kind = KIND_BACK;
	w.hold.op = DEV_READ;
	w.hold.dev = 1;
	w.hold.on = true;
	member_cut(1, 1, false);
	member_cut(2, 1, false);
	run_ms(1500);
	CHECK(w.held_count);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_SUSPECT);
	held_goes_on();
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	reads_without_any();
	finish();
}

/* It has missed pages while it was out, and gets them at the end of its rebuild: that makes it no
 * older copy. */
TEST(a_member_that_breaks_off_while_it_is_rebuilt_is_no_older_copy)
{
	static uint8_t other[DDR_BLOCK_BYTES];
	uint64_t rebuilt;

	gone_together();
	memset(other, 9, sizeof(other));
	io_block(1, IO_WRITE, 4 << 20, other);
	run_ms(3000);
	w.rebuild_hangs = true;
	member_cut(1, 1, false);
	run_ms(3000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_REBUILDING);
	ring_anew();
	member_cut(1, 1, true);
	held_goes_on();
	run_ms(10000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_SUSPECT);
	rebuilt = w.node[1].rebuilt;
	member_cut(1, 1, false);
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	CHECK(!engine_dev_older(w.node[1].e, 1));
	CHECK(w.node[1].rebuilt - rebuilt <= 4ull * engine_geo(w.node[1].e)->p.region_bytes);
	finish();
}

/* A copy from before a dead node's region was resynced; the page that clears it is on its way to
 * the member when that breaks off. */
TEST(a_clear_of_a_dead_nodes_region_that_is_on_its_way_is_copied_again)
{
	static uint8_t in[DDR_BLOCK_BYTES];
	uint64_t at = 300 << 10;

	start_both();
	run_ms(17000);
	while (geo_member_of(engine_geo(w.node[1].e), at / 4096, 2) != 1) /* it has the parity */
		at += 4096;
	unlike(written, 0);
	io_block(2, IO_WRITE, at, written);
	run_ms(3000);
	w.hold.node = 2;
	w.hold.kind = KIND_DATA;
	w.hold.op = DEV_WRITE;
	w.hold.dev = 1;
	w.hold.on = true;
	unlike(written, 1);
	io_block(2, IO_WRITE, at, written);
	run_ms(20);
	CHECK_EQ_U64(w.held_count, 1);
	w.held_count = 0; /* it never lands */
	w.hold.node = 1;
	w.hold.kind = KIND_RESYNC;
	w.hold.op = DEV_READ;
	w.hold.dev = ANY_DEV;
	engine_free(w.node[2].e);
	w.node[2].e = NULL;
	view(1, 1, 1);
	run_ms(3000);
	CHECK(w.held_count);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_IN_SYNC);
	memcpy(copied, w.disk[1], DISK_BYTES);
	w.hold.kind = KIND_LOG;
	w.hold.op = DEV_WRITE;
	w.hold.dev = 1;
	for (uint32_t i = 0, n = w.held_count; i < n; i++) {
		struct out o = w.held[i];

		if (!i)
			w.held_count = 0;
		do_io(1, &o);
	}
	for (uint32_t n = 0; n < 3000 && !w.held_count; n++)
		run_ms(1);
	CHECK(w.held_count);
	member_cut(1, 1, true);
	run_ms(1);
	held_goes_on();
	run_ms(20000);
	CHECK_EQ_U64(status(1).map.member[1].state, MEMBER_SUSPECT);
	memcpy(w.disk[1], copied, DISK_BYTES);
	member_cut(1, 1, false);
	run_ms(20000);
	for (uint32_t gone = 0; gone < 3; gone += 2) {
		member_cut(1, gone, true);
		run_ms(600);
		memset(in, 0, sizeof(in));
		io_block(1, IO_READ, at, in);
		run_ms(600);
		CHECK_EQ_MEM(in, written, sizeof(in));
		member_cut(1, gone, false);
		run_ms(3000);
	}
	finish();
}

/* Member 1 loses its cache, and long after that the connection to member 2 breaks; then life after
 * life ends before a map says so. */
TEST(losses_apart_stay_apart_over_two_lives)
{
	one_serves();
	w.node[1].record_hangs = true;
	cache_lost();
	member_cut(1, 1, true);
	run_ms(50);
	member_cut(1, 1, false);
	run_ms(6000);
	member_cut(1, 2, true);
	run_ms(50);
	member_cut(1, 2, false);
	run_ms(50);
	removed();
	w.node[1].record_hangs = false;
	push(1, (struct event){.type = EV_RECORD_DONE});
	for (uint32_t n = 0; !status(1).map.n; n++) {
		run_ms(1);
		CHECK(n < 20000);
	}
	step(1, (struct event){.type = EV_GIVE_UP});
	run_ms(26000);
	CHECK(serves(1) && w.node[1].lives == 2);
	reads_cached(1);
	finish();
}
