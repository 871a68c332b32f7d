/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two engines on the same members in memory, one order of messages and views for both. For what
 * depends on a certain order; all else is the simulator's.
 */
#include <errno.h>

#include "tests/lib/test.h"

#include "daemon/core/engine.h"
#include "daemon/core/geometry.h"

#define NODES 2
#define MEMBERS 3
#define DISK_BYTES (8u << 20)
#define QUEUE 65536u
#define NONE_REACHED ((1u << MEMBERS) - 1)
#define MSGS 4096u

struct node {
	struct engine *e;
	struct record record;
	bool stopped;
	uint32_t fences;
	bool fences_nobody;   /* it never hears of one that it asks for */
	uint32_t data_writes; /* of consumers' data, at the members */
	uint32_t ios_done;
	uint32_t cut; /* mask: members that it does not reach */
	uint32_t lives;
	uint64_t inc; /* of its next daemon, 0 = the first */
	uint32_t fence_ms;
};

static struct {
	struct node node[NODES + 1]; /* by id */
	uint64_t now;
	uint8_t *disk[MEMBERS];
	struct outq q;
	struct {
		uint32_t to;
		struct event ev;
	} * queue;
	uint32_t first, last;
	uint8_t (*msg)[65536];
	uint32_t msg_next;
	uint8_t array_uuid[DDR_UUID_BYTES];
	bool fence_hangs;
	uint64_t watched; /* an incarnation, and how often its fence was asked for */
	uint32_t watched_fences;
	bool resync_hangs; /* so a region stays dirty */
	bool restarts;     /* who is removed goes on as a new incarnation */
	bool two_node;     /* one has quorum */
	bool fence_waits;
	bool split; /* each is alone with itself, in a ring of its own */
	uint64_t ring;
	uint32_t reach_ms;
	uint64_t fenced_inc; /* who starts has fenced its own life up to here */
} w;

static void push(uint32_t to, struct event ev)
{
	w.queue[w.last % QUEUE].to = to;
	w.queue[w.last++ % QUEUE].ev = ev;
}

static int place(void *arg, uint64_t offset, const uint8_t *block)
{
	memcpy((uint8_t *)arg + offset, block, DDR_BLOCK_BYTES);
	return 0;
}

static void create(void)
{
	struct create_params p = {.inc = 7};

	memset(&w, 0, sizeof(w));
	w.now = w.ring = 1;
	w.queue = calloc(QUEUE, sizeof(*w.queue));
	w.msg = calloc(MSGS, sizeof(*w.msg));
	memset(w.array_uuid, 0x5a, DDR_UUID_BYTES);
	memcpy(p.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	strcpy(p.name, "two");
	p.geo = (struct geo_params){.order = 1,
				    .m = 1,
				    .layout = GEO_ROTATE,
				    .slots = 4,
				    .stripe_bytes = 4096,
				    .band_bytes = 65536,
				    .region_bytes = 256 << 10,
				    .member_bytes = DISK_BYTES};
	for (uint8_t i = 0; i < MEMBERS; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < MEMBERS; i++) {
		w.disk[i] = calloc(1, DISK_BYTES);
		CHECK_EQ_INT(create_member(&p, i, place, w.disk[i]), 0);
	}
}

static void do_io(uint32_t node, const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint8_t *p = w.disk[o->io.dev] + o->io.offset;

	ev.done.id = o->io.id;
	if (w.resync_hangs && o->io.kind == KIND_RESYNC)
		return;
	if (w.node[node].cut >> o->io.dev & 1) {
		ev.done.err = -ECONNRESET;
		push(node, ev);
		return;
	}
	w.node[node].data_writes += o->io.kind == KIND_DATA && o->io.op == DEV_WRITE;
	if (o->io.op == DEV_ZEROES)
		memset(p, 0, o->io.bytes);
	for (uint32_t i = 0; o->io.op != DEV_ZEROES && i < o->io.iov_count; i++) {
		if (o->io.op == DEV_READ)
			memcpy(o->io.iov[i].iov_base, p, o->io.iov[i].iov_len);
		else
			memcpy(p, o->io.iov[i].iov_base, o->io.iov[i].iov_len);
		p += o->io.iov[i].iov_len;
	}
	push(node, ev);
}

/* Nodes from..upto are in the group; corosync runs on all of them: the ring stays. */
static void view(uint32_t from, uint32_t to, uint32_t upto)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){w.split ? to : 1, w.ring};
	for (uint32_t i = from; i <= upto; i++)
		ev.view.node[ev.view.count++] = i;
	push(to, ev);
}

static void do_out(uint32_t node, const struct out *o)
{
	struct event ev = {0};

	switch (o->type) {
	case OUT_DEV_IO:
		do_io(node, o);
		break;
	case OUT_SEND:
		ev.type = EV_MSG;
		ev.msg.from = node;
		CHECK(o->send.bytes <= sizeof(w.msg[0]));
		memcpy(w.msg[w.msg_next % MSGS], o->send.data, o->send.bytes);
		ev.msg.data = w.msg[w.msg_next++ % MSGS];
		ev.msg.bytes = o->send.bytes;
		for (uint32_t i = 1; i <= NODES; i++)
			if (!w.split || i == node)
				push(i, ev);
		break;
	case OUT_FENCE:
		w.node[node].fences++;
		w.watched_fences += o->fence.inc == w.watched;
		ev.type = EV_FENCE_DONE;
		ev.fence.node = o->fence.node;
		ev.fence.inc = o->fence.inc;
		if (!w.fence_hangs && !w.node[node].fences_nobody)
			push(node, ev);
		break;
	case OUT_IO_DONE:
		CHECK_EQ_INT(o->io_done.err, 0);
		w.node[node].ios_done++;
		break;
	case OUT_RECORD:
		w.node[node].record = o->record;
		ev.type = EV_RECORD_DONE;
		push(node, ev);
		break;
	case OUT_REMOVED:
		if (w.restarts) {
			ev.type = EV_RESTART;
			ev.restart.inc = 1000 + node + 10ull * w.node[node].lives++;
			push(node, ev);
			break;
		}
		/* fallthrough */
	case OUT_STOPPED:
		/* Its daemon leaves the group at once, before anybody's answer to its Left. */
		w.node[node].stopped = true;
		CHECK_EQ_U64(node, 1);
		view(2, 2, 2);
		break;
	default:
		break;
	}
}

static void step(uint32_t node, struct event ev)
{
	if (!w.node[node].e || w.node[node].stopped)
		return;
	ev.now_us = w.now;
	w.q.count = 0;
	engine_step(w.node[node].e, &ev, &w.q);
	for (uint32_t i = 0; i < w.q.count; i++)
		do_out(node, &w.q.v[i]);
}

static void run_ms(uint32_t ms)
{
	uint64_t end = w.now + ms * 1000ull;

	while (w.now < end) {
		for (uint32_t i = 1; i <= NODES; i++)
			step(i, (struct event){.type = EV_TICK});
		while (w.first != w.last) {
			uint32_t at = w.first++ % QUEUE;

			step(w.queue[at].to, w.queue[at].ev);
		}
		w.now += 1000;
	}
}

static void connect(uint32_t node)
{
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct event up = {.type = EV_DEV_UP};

		if (w.node[node].cut >> i & 1)
			continue;
		up.dev.dev = i;
		up.dev.bytes = DISK_BYTES;
		up.dev.uri = "mem:";
		push(node, up);
	}
}

static void cut(uint32_t node)
{
	w.node[node].cut = NONE_REACHED;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct event down = {.type = EV_DEV_DOWN};

		down.dev.dev = i;
		push(node, down);
	}
}

static void quorum_of(uint32_t node)
{
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = (struct ring){w.split ? node : 1, w.ring};
	ev.view.quorate = true;
	ev.view.two_node = w.two_node;
	for (uint32_t i = 1; i <= NODES; i++)
		if (!w.split || i == node)
			ev.view.node[ev.view.count++] = i;
	push(node, ev);
}

static void start(uint32_t node)
{
	struct engine_cfg cfg;

	engine_cfg_init(&cfg);
	cfg.node = node;
	cfg.inc = w.node[node].inc ? w.node[node].inc : 100 + node;
	memcpy(cfg.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	cfg.tun.release_delay_ms = 100;
	cfg.tun.reach_ms = w.reach_ms;
	cfg.two_node = w.two_node;
	cfg.fenced_inc = w.fenced_inc;
	cfg.fence_waits = w.fence_waits;
	cfg.fence_ms = w.node[node].fence_ms;
	cfg.record = w.node[node].record;
	w.node[node].e = engine_new(&cfg);
	quorum_of(node);
	for (uint32_t i = w.split ? node : 1; i <= node; i++)
		view(w.split ? node : 1, i, node);
	connect(node);
}

static struct engine_status status(uint32_t node)
{
	struct engine_status st;

	engine_status(w.node[node].e, &st);
	return st;
}

static void finish(void)
{
	for (uint32_t i = 1; i <= NODES; i++)
		engine_free(w.node[i].e);
	for (uint32_t i = 0; i < MEMBERS; i++)
		free(w.disk[i]);
	free(w.q.v);
	free(w.queue);
	free(w.msg);
}

/* It has led, so its Hello names an epoch of its own; but nothing of it is under way any more. */
TEST(a_leader_that_left_cleanly_is_not_fenced)
{
	struct event ev = {.type = EV_ADMIN};

	create();
	start(1);
	run_ms(3000);
	CHECK(status(1).io_allowed);
	start(2);
	run_ms(3000);
	CHECK(status(2).io_allowed);
	CHECK(status(1).leading);
	ev.admin.cmd = ADMIN_STOP;
	step(1, ev);
	run_ms(3000);
	CHECK(w.node[1].stopped);
	CHECK(status(2).leading);
	CHECK(status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].fences, 0);
	finish();
}

static void start_both(void)
{
	create();
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
}

static void write_block(uint32_t node, uint64_t offset)
{
	static uint8_t data[4096];
	struct event ev = {.type = EV_IO};

	ev.io.tag = w.now;
	ev.io.op = IO_WRITE;
	ev.io.offset = offset;
	ev.io.bytes = sizeof(data);
	ev.io.data = data;
	step(node, ev);
}

/* R5: what the dead one has sent may land over it until the fence. Lock and mark are at hand. */
TEST(a_write_waits_for_the_fence_of_a_node_that_may_write_there)
{
	struct event done = {.type = EV_FENCE_DONE};
	uint32_t before;

	start_both();
	write_block(1, 0);
	write_block(2, 8192);
	run_ms(20);
	CHECK_EQ_U64(w.node[1].ios_done, 1);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	w.fence_hangs = true;
	w.node[1].stopped = true; /* dead */
	view(2, 2, 2);
	run_ms(1);
	before = w.node[2].data_writes;
	write_block(2, 0);
	run_ms(500);
	CHECK_EQ_U64(w.node[2].fences, 1);
	CHECK_EQ_U64(w.node[2].data_writes, before);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	done.fence.node = 1;
	done.fence.inc = 101;
	push(2, done);
	run_ms(500);
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	CHECK(status(2).io_allowed);
	finish();
}

static void quorum(bool quorate)
{
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = (struct ring){1, w.ring};
	ev.view.quorate = quorate;
	ev.view.count = NODES;
	for (uint32_t i = 0; i < NODES; i++)
		ev.view.node[i] = i + 1;
	for (uint32_t i = 1; i <= NODES; i++)
		push(i, ev);
}

/* Votes changed, or a quorum device: no view comes with it. */
TEST(quorum_that_is_lost_and_back_in_the_same_ring)
{
	start_both();
	quorum(false);
	run_ms(1000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	write_block(2, 0);
	run_ms(200);
	CHECK_EQ_U64(w.node[2].ios_done, 0);
	quorum(true);
	run_ms(200);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
	finish();
}

/* corosync forms a new ring of the same nodes, and all are told of both. */
static void new_ring(void)
{
	w.ring++;
	quorum(true);
	for (uint32_t i = 1; i <= NODES; i++)
		view(1, i, NODES);
}

/* R6, R7: whom it should ask whether the array is still its own, it can't; another could go on. It
 * has longer for that than a round may take. */
TEST(a_leader_that_no_member_answers_makes_way)
{
	create();
	w.reach_ms = 14000;
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).leading && status(2).io_allowed);
	write_block(2, 0);
	run_ms(20);
	cut(1);
	new_ring();
	run_ms(12000);
	CHECK(!w.node[1].stopped);
	write_block(2, 8192);
	run_ms(20000);
	CHECK(w.node[1].stopped);
	CHECK(status(2).leading && status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].fences, 1);
	CHECK_EQ_U64(w.node[2].ios_done, 2);
	finish();
}

/* Nobody could go on: the array waits, and nobody's consumers get an error. */
TEST(members_that_answer_nobody_remove_nobody)
{
	start_both();
	cut(1);
	cut(2);
	new_ring();
	run_ms(60000);
	CHECK(!w.node[1].stopped && !w.node[2].stopped);
	write_block(2, 0);
	w.node[1].cut = w.node[2].cut = 0;
	connect(1);
	connect(2);
	run_ms(10000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	finish();
}

/* The lowest node assembles the array, but for one that can't while another might. */
TEST(who_reaches_more_members_assembles_the_array)
{
	create();
	w.node[1].cut = NONE_REACHED;
	start(1);
	start(2);
	run_ms(20000);
	CHECK(status(2).leading && status(2).io_allowed);
	CHECK(!status(1).io_allowed);
	finish();
}

/* It yields for as long as no member has come. */
TEST(the_lowest_node_assembles_once_members_come)
{
	create();
	w.node[1].cut = w.node[2].cut = NONE_REACHED;
	start(1);
	start(2);
	run_ms(7000);
	CHECK(status(1).leading && !status(1).io_allowed);
	w.node[1].cut = w.node[2].cut = 0;
	connect(1);
	connect(2);
	run_ms(5000);
	CHECK(status(1).leading && status(1).io_allowed && status(2).io_allowed);
	finish();
}

static void fail_member(uint32_t node, uint8_t member)
{
	struct event ev = {.type = EV_ADMIN};

	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = member;
	step(node, ev);
}

/* R7: it is in nobody's way: not with what it can't reach, nor of a change of the map. */
TEST(a_node_that_joins_and_reaches_no_member_stays_aside)
{
	create();
	w.restarts = true;
	start(1);
	run_ms(3000);
	w.node[2].cut = NONE_REACHED;
	start(2);
	run_ms(15000);
	CHECK(status(1).io_allowed);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
	CHECK(strstr(status(2).waits, "this node reaches fewer"));
	fail_member(1, 2);
	run_ms(1000);
	CHECK_EQ_INT(status(1).map.member[2].state, MEMBER_FAULTY);
	CHECK(status(1).io_allowed);
	/* It may have been fenced, and not know. Its last life has written nothing, so nobody
	 * waits. */
	w.fence_hangs = true;
	run_ms(30000);
	CHECK(w.node[2].lives > 0);
	CHECK_EQ_U64(w.node[1].fences, 0);
	CHECK(status(1).io_allowed);
	w.node[2].cut = 0;
	connect(2);
	run_ms(3000);
	CHECK(status(2).io_allowed);
	write_block(2, 0);
	run_ms(100);
	CHECK_EQ_U64(w.node[2].ios_done, 1);
	finish();
}

/* One that has written is fenced when it goes on as another. */
TEST(a_removed_node_that_wrote_is_fenced)
{
	start_both();
	w.restarts = true;
	write_block(1, 0);
	run_ms(20);
	cut(1);
	new_ring();
	run_ms(10000);
	CHECK(w.node[1].lives > 0);
	CHECK(w.node[2].fences > 0);
	CHECK(status(2).leading && status(2).io_allowed);
	finish();
}

/* R18: what the leader tells of dead nodes' slots, it could not take, for it did not know how many
 * regions there are. So all is told again before it serves. */
TEST(who_learns_the_geometry_late_learns_what_is_dirty)
{
	start_both();
	write_block(2, 0);
	run_ms(20);
	w.resync_hangs = true;
	w.node[2].stopped = true; /* dead */
	view(1, 1, 1);
	run_ms(2000);
	CHECK_EQ_U64(status(1).slots_unrecovered, 1);
	engine_free(w.node[2].e);
	w.node[2] = (struct node){.cut = NONE_REACHED, .inc = 300};
	start(2);
	run_ms(2000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	w.node[2].cut = 0;
	connect(2);
	run_ms(3000);
	CHECK(status(2).io_allowed);
	CHECK_EQ_U64(status(1).slots_unrecovered, 1);
	CHECK(status(1).regions_to_resync > 0);
	CHECK_EQ_U64(status(2).regions_to_resync, status(1).regions_to_resync);
	finish();
}

/* Who has yielded and reaches more by now must not wait for whom it made way. */
TEST(the_turn_comes_back_to_who_has_yielded)
{
	create();
	w.node[1].cut = NONE_REACHED;
	w.node[2].cut = 6; /* all but one */
	start(1);
	start(2);
	run_ms(15000);
	CHECK(status(2).leading && !status(2).io_allowed);
	w.node[1].cut = 0;
	connect(1);
	run_ms(20000);
	CHECK(status(1).leading && status(1).io_allowed);
	finish();
}

/* All start anew, and the fence of one life takes longer than the one that yields holds its name.
 */
TEST(who_yields_does_so_under_a_new_name_too)
{
	struct event done = {.type = EV_FENCE_DONE};

	start_both();
	write_block(1, 0);
	run_ms(20);
	for (uint32_t n = 1; n <= NODES; n++) {
		engine_free(w.node[n].e);
		w.node[n] = (struct node){.inc = 300 + n};
	}
	w.first = w.last;
	w.restarts = w.fence_hangs = true;
	w.node[1].cut = NONE_REACHED;
	start(1);
	start(2);
	run_ms(12000);
	CHECK(status(2).leading && !status(2).io_allowed);
	for (uint32_t i = 0; i < 25000; i++) {
		run_ms(1);
		CHECK(!status(1).leading);
	}
	CHECK(w.node[1].lives > 0);
	w.fence_hangs = false;
	done.fence.node = 1;
	done.fence.inc = 101;
	push(2, done);
	done.fence.node = 2;
	done.fence.inc = 102;
	push(2, done);
	run_ms(5000);
	CHECK(status(2).io_allowed);
	finish();
}

/* A member that left and came back while this node could use none is as good as any when it can. */
TEST(who_was_aside_blames_no_member_for_it)
{
	uint64_t epoch;

	create();
	start(1);
	run_ms(3000);
	w.node[2].cut = NONE_REACHED;
	start(2);
	run_ms(3000);
	w.node[1].cut = 1;
	push(1, (struct event){.type = EV_DEV_DOWN});
	run_ms(1000);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_SUSPECT);
	w.node[1].cut = 0;
	push(1, (struct event){.type = EV_DEV_UP, .dev = {.bytes = DISK_BYTES, .uri = "mem:"}});
	run_ms(5000);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
	epoch = status(1).map.epoch.num;
	w.node[2].cut = 0;
	connect(2);
	run_ms(10000);
	CHECK(status(2).io_allowed);
	CHECK_EQ_U64(status(1).map.epoch.num, epoch);
	finish();
}

/* It has no slot before, but slots are not what it waits for. */
TEST(who_joins_without_a_member_waits_until_it_has_left_the_map)
{
	create();
	start(1);
	run_ms(3000);
	w.node[2].cut = 1u << 1;
	start(2);
	run_ms(1000);
	CHECK(status(1).io_allowed && !status(1).waits && !status(2).io_allowed);
	CHECK(strstr(status(2).waits, "a member that this node can't use"));
	run_ms(5000);
	CHECK_EQ_INT(status(1).map.member[1].state, MEMBER_SUSPECT);
	CHECK(status(1).io_allowed && status(2).io_allowed && !status(2).waits);
	finish();
}

/* What the node's last heartbeat said of the member does not bring it back at once. */
TEST(a_member_that_one_node_lost_leaves_once)
{
	uint64_t epoch;

	create();
	start(1);
	start(2);
	run_ms(5000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	epoch = status(1).map.epoch.num;
	w.node[2].cut = 1u << 1;
	push(2, (struct event){.type = EV_DEV_DOWN, .dev = {.dev = 1}});
	run_ms(1000);
	CHECK_EQ_INT(status(1).map.member[1].state, MEMBER_SUSPECT);
	CHECK_EQ_U64(status(1).map.epoch.num, epoch + 1);
	finish();
}

/* How long others reach more is not counted while there is no quorum to count in. */
TEST(a_leader_gets_its_time_after_an_outage)
{
	start_both();
	cut(1);
	new_ring();
	run_ms(1000);
	quorum(false);
	run_ms(60000);
	quorum(true);
	run_ms(1000);
	CHECK(!w.node[1].stopped);
	w.node[1].cut = 0;
	connect(1);
	run_ms(5000);
	CHECK(!w.node[1].stopped && status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* What breaks off from who can't use the array is the others' to judge: they have it. */
TEST(who_is_aside_takes_no_member_from_the_others)
{
	uint64_t epoch;

	create();
	start(1);
	run_ms(3000);
	fail_member(1, 2);
	w.node[2].cut = 6; /* all but one */
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	epoch = status(1).map.epoch.num;
	w.node[2].cut = NONE_REACHED;
	push(2, (struct event){.type = EV_DEV_DOWN});
	run_ms(10000);
	CHECK_EQ_U64(status(1).map.epoch.num, epoch);
	CHECK_EQ_INT(status(1).map.member[0].state, MEMBER_IN_SYNC);
	finish();
}

/* ---- two_node: each has quorum alone -------------------------------------------------------- */

/* They lose sight of each other, or see each other again. */
static void rings(bool split)
{
	w.split = split;
	w.ring += 4;
	for (uint32_t i = 1; i <= NODES; i++) {
		view(split ? i : 1, i, split ? i : NODES);
		quorum_of(i);
	}
}

/* Its daemon dies, and the next one comes with the record. */
static void start_again(uint32_t node, uint64_t inc)
{
	struct record record = w.node[node].record;
	uint32_t fence_ms = w.node[node].fence_ms;

	engine_free(w.node[node].e);
	w.node[node] = (struct node){.inc = inc, .record = record, .fence_ms = fence_ms};
	start(node);
}

static void start_two(void)
{
	create();
	w.two_node = true;
	start(1);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
}

/* R6: each half took the other for removed, and wrote that down. The fence chose one of them. */
TEST(what_a_fenced_half_took_for_removed_is_not_when_it_is_back)
{
	start_two();
	write_block(2, 0);
	run_ms(20);
	w.node[2].fences_nobody = true;
	rings(true);
	run_ms(3000);
	CHECK(w.node[2].fences > 0 && !status(2).io_allowed);
	CHECK(status(1).io_allowed);
	CHECK_EQ_U64(w.node[2].record.removed_count, 1);
	rings(true); /* its node was off */
	start_again(2, 300);
	run_ms(1000);
	CHECK(!status(2).io_allowed);
	CHECK_EQ_U64(w.node[2].fences, 0);
	rings(false);
	run_ms(3000);
	CHECK(!w.node[1].stopped && w.node[1].lives == 0); /* not removed */
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(w.node[1].record.removed_count, 0);
	CHECK_EQ_U64(w.node[2].record.removed_count, 0);
	finish();
}

/* Else both would, and neither would know whom to fence. */
TEST(of_two_that_have_not_met_none_begins_alone)
{
	create();
	w.two_node = true;
	w.split = true;
	start(1);
	start(2);
	run_ms(20000);
	for (uint32_t i = 1; i <= NODES; i++) {
		CHECK(!status(i).io_allowed);
		CHECK(status(i).waits && strstr(status(i).waits, "two_node"));
		CHECK_EQ_U64(w.node[i].fences, 0);
	}
	rings(false);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* The other is off, and was fenced before; its node can't have come back without a new ring. */
TEST(a_daemon_that_is_restarted_where_its_node_is_alone_goes_on)
{
	start_two();
	rings(true);
	w.node[2].stopped = true;
	run_ms(3000);
	CHECK(status(1).io_allowed && w.node[1].fences > 0);
	start_again(1, 300);
	run_ms(3000);
	CHECK(status(1).io_allowed);
	rings(true);
	start_again(1, 400);
	run_ms(3000);
	CHECK(!status(1).io_allowed); /* the other may have met one of these lives meanwhile */
	finish();
}

/* Neither fence has worked. Each new life could fence the other's dead one, and find no more. */
TEST(of_two_halves_that_have_not_fenced_each_other_none_goes_on_as_another)
{
	start_two();
	w.node[1].fences_nobody = w.node[2].fences_nobody = true;
	rings(true);
	run_ms(3000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	start_again(1, 300);
	start_again(2, 400);
	run_ms(10000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	rings(false);
	run_ms(6000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* It takes the other for departed, hears nothing of it, and would have it evicted. */
static void fenced_and_lives(uint32_t winner, uint32_t loser)
{
	start_two();
	w.restarts = true;
	write_block(loser, 0);
	run_ms(20);
	w.node[loser].fences_nobody = true;
	rings(true);
	run_ms(3000);
	CHECK(status(winner).io_allowed && !status(loser).io_allowed);
	w.node[loser].fences_nobody = false;
	rings(false);
	run_ms(6000);
	CHECK_EQ_U64(w.node[winner].lives, 0);
	CHECK(w.node[loser].lives > 0);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

TEST(the_half_that_was_fenced_and_lives_removes_nobody)
{
	fenced_and_lives(1, 2);
}

TEST(nor_if_it_is_the_lower_one)
{
	fenced_and_lives(2, 1);
}

/* Each is alone with itself; one of them has quorum, with others that run no daemon. */
static void rings_apart(uint32_t quorate)
{
	struct event ev = {.type = EV_QUORUM};

	w.split = true;
	w.ring += 4;
	for (uint32_t i = 1; i <= NODES; i++) {
		view(i, i, i);
		if (i == quorate) {
			quorum_of(i);
			continue;
		}
		ev.view.ring = (struct ring){i, w.ring};
		push(i, ev);
	}
}

/*
 * R5: it was only waited for, while it joined, and has got a slot since, where nobody knew. So it
 * is waited for again: that a map was committed after it counts in the ring in which that was.
 */
TEST(who_was_waited_for_and_serves_since_is_waited_for_again)
{
	struct event done = {.type = EV_FENCE_DONE};

	create();
	w.restarts = w.fence_waits = true;
	start(1);
	run_ms(3000);
	CHECK(status(1).io_allowed);
	w.fence_hangs = true; /* of node 1's life before */
	start_again(1, 300);
	start(2);
	run_ms(500);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	w.fence_hangs = false;
	rings_apart(1);
	done.fence.node = 1; /* what it asked for in the ring before */
	done.fence.inc = 101;
	push(1, done);
	run_ms(3000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	CHECK_EQ_U64(w.node[1].record.removed_count, 0);
	rings_apart(2);
	run_ms(3000);
	CHECK(!status(1).io_allowed && status(2).io_allowed);
	write_block(2, 0);
	run_ms(20);
	CHECK_EQ_U64(w.node[1].lives + w.node[2].lives, 0);
	w.watched = 102;
	rings(false);
	run_ms(6000);
	CHECK_EQ_U64(w.node[1].lives, 1);
	CHECK_EQ_U64(w.node[2].lives, 1);
	CHECK(w.watched_fences > 0);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* R5: who stops writing later than the others wait for has to write nothing. */
TEST(who_waits_for_another_time_gets_no_slot)
{
	create();
	w.fence_waits = true;
	w.node[1].fence_ms = 10000;
	w.node[2].fence_ms = 30000;
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && !status(2).io_allowed);
	CHECK(strstr(status(2).waits, "zombie_timeout") != NULL);
	w.node[2].fence_ms = 10000;
	start_again(2, 300);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}

/* R4: its last life may have needed a longer wait than the one that it had for itself. */
TEST(nor_is_its_fence_of_its_own_last_life_one)
{
	for (int differs = 0; differs < 2; differs++) {
		create();
		w.fence_waits = true;
		w.node[1].fence_ms = w.node[2].fence_ms = 10000;
		start(1);
		start(2);
		run_ms(3000);
		CHECK(status(1).io_allowed && status(2).io_allowed);
		write_block(2, 0);
		run_ms(20);
		w.watched = w.fenced_inc = 102;
		w.node[2].fence_ms = differs ? 0 : 10000;
		start_again(2, 300);
		run_ms(3000);
		CHECK(status(1).io_allowed && status(2).io_allowed == !differs);
		CHECK_EQ_INT(w.watched_fences > 0, differs);
		finish();
	}
}

/* Switched on while they run, by a reload of corosync.conf: both would wait, and go on. */
TEST(a_half_goes_on_by_no_fence_that_only_waits)
{
	create();
	w.fence_waits = true;
	start(1);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	w.two_node = true;
	rings(true);
	run_ms(10000);
	CHECK(!status(1).io_allowed && !status(2).io_allowed);
	CHECK_EQ_U64(w.node[1].fences + w.node[2].fences, 0);
	rings(false);
	run_ms(6000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	finish();
}
