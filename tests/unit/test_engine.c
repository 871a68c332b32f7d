/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine alone: one node, its group a loop back to itself, its members in memory and prompt.
 * What crashes, tears and reorders is the simulator's; here stands what a person who changes the
 * engine wants to see within a second.
 */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/engine.h"
#include "daemon/core/geometry.h"
#include "daemon/core/logpage.h"
#include "daemon/core/superblock.h"

#define MEMBERS 3
#define DISK_BYTES (8u << 20)
#define QUEUE 65536u

struct world {
	struct engine *e;
	uint64_t now;
	uint64_t next_inc;
	uint8_t *disk[MEMBERS + 1];
	bool dead[MEMBERS + 1];
	int flush_err;      /* of member 2 */
	uint32_t placed_at; /* what OUT_OPEN leads to, if it is open already */
	uint32_t hung;      /* members whose superblock writes don't land before land_hung() */
	struct out hung_out[16];
	uint32_t hung_count;
	bool mute;          /* what is sent is lost */
	uint32_t slow;      /* members whose answers to consumers' writes are held back */
	uint64_t slow_from; /* ... that lie there or above */
	uint64_t slow_id[64];
	uint32_t slow_count;
	uint64_t instance; /* of the exporters */
	struct outq q;
	struct record record;
	struct event *pending; /* events that outs have led to, in order */
	uint32_t first, last;
	uint8_t (*msg)[65536];
	uint32_t msg_next;
	uint64_t io_done[1024];
	int io_err[1024];
	uint32_t counts[KIND_COUNT][4];
	uint32_t fences;
	uint32_t fence_node, fence_writes; /* the last one; superblocks and pages written by then */
	uint64_t fenced_inc;               /* told to the next engine */
	bool force;                        /* likewise */
	bool removed, stopped;
	int admin_err;
	bool admin_done;
	uint8_t array_uuid[DDR_UUID_BYTES];
};

static struct world w;

static void push(struct event ev)
{
	w.pending[w.last++ % QUEUE] = ev;
}

static int place(void *arg, uint64_t offset, const uint8_t *block)
{
	memcpy((uint8_t *)arg + offset, block, DDR_BLOCK_BYTES);
	return 0;
}

static void create(uint8_t order)
{
	struct create_params p = {.inc = 7};
	uint8_t n = (uint8_t)((1u << order) + 1);

	memset(&w, 0, sizeof(w));
	w.now = 1;
	w.next_inc = 100;
	w.pending = calloc(QUEUE, sizeof(*w.pending));
	w.msg = calloc(1024, sizeof(*w.msg));
	memset(p.array_uuid, 0x5a, DDR_UUID_BYTES);
	memcpy(w.array_uuid, p.array_uuid, DDR_UUID_BYTES);
	strcpy(p.name, "unit");
	p.geo = (struct geo_params){.order = order,
				    .m = 1,
				    .layout = GEO_ROTATE,
				    .slots = 4,
				    .stripe_bytes = 4096,
				    .band_bytes = 65536,
				    .region_bytes = 256 << 10,
				    .member_bytes = DISK_BYTES};
	for (uint8_t i = 0; i < n; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < n; i++) {
		w.disk[i] = malloc(DISK_BYTES);
		memset(w.disk[i], 0xee + i, DISK_BYTES);
		CHECK_EQ_INT(create_member(&p, i, place, w.disk[i]), 0);
	}
}

static void do_io(const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint8_t *p = w.disk[o->io.dev] + o->io.offset;

	ev.done.id = o->io.id;
	if (o->io.kind == KIND_SB && o->io.op == DEV_WRITE && w.hung >> o->io.dev & 1) {
		CHECK(w.hung_count < 16);
		w.hung_out[w.hung_count++] = *o;
		return;
	}
	w.counts[o->io.kind][o->io.op]++;
	if (w.dead[o->io.dev]) {
		ev.done.err = -EIO;
	} else if (o->io.op == DEV_ZEROES) {
		memset(p, 0, o->io.bytes);
	} else if (o->io.op == DEV_FLUSH) {
		ev.done.err = o->io.dev == 2 ? w.flush_err : 0;
	} else {
		CHECK(o->io.offset + o->io.bytes <= DISK_BYTES);
		for (uint32_t i = 0; i < o->io.iov_count; i++) {
			if (o->io.op == DEV_READ)
				memcpy(o->io.iov[i].iov_base, p, o->io.iov[i].iov_len);
			else
				memcpy(p, o->io.iov[i].iov_base, o->io.iov[i].iov_len);
			p += o->io.iov[i].iov_len;
		}
	}
	if (o->io.kind == KIND_DATA && o->io.op == DEV_WRITE && w.slow >> o->io.dev & 1 &&
	    o->io.offset >= w.slow_from) {
		CHECK(w.slow_count < 64);
		w.slow_id[w.slow_count++] = o->io.id;
		return;
	}
	push(ev);
}

static void land_hung(void)
{
	w.hung = 0;
	for (uint32_t i = 0; i < w.hung_count; i++)
		do_io(&w.hung_out[i]);
	w.hung_count = 0;
}

static void do_out(const struct out *o)
{
	struct event ev = {0};

	switch (o->type) {
	case OUT_DEV_IO:
		do_io(o);
		break;
	case OUT_SEND:
		if (w.mute)
			break;
		ev.type = EV_MSG;
		ev.msg.from = 1;
		CHECK(o->send.bytes <= sizeof(w.msg[0]));
		memcpy(w.msg[w.msg_next % 1024], o->send.data, o->send.bytes);
		ev.msg.data = w.msg[w.msg_next++ % 1024];
		ev.msg.bytes = o->send.bytes;
		push(ev);
		break;
	case OUT_FENCE:
		w.fences++;
		w.fence_node = o->fence.node;
		w.fence_writes = w.counts[KIND_SB][DEV_WRITE] + w.counts[KIND_LOG][DEV_WRITE];
		ev.type = EV_FENCE_DONE;
		ev.fence.node = o->fence.node;
		ev.fence.inc = o->fence.inc;
		push(ev);
		break;
	case OUT_RECORD:
		w.record = o->record;
		ev.type = EV_RECORD_DONE;
		push(ev);
		break;
	case OUT_IO_DONE:
		w.io_done[o->io_done.tag]++;
		w.io_err[o->io_done.tag] = o->io_done.err;
		break;
	case OUT_ADMIN_DONE:
		w.admin_done = true;
		w.admin_err = o->admin_done.err;
		break;
	case OUT_OPEN:
		if (w.placed_at)
			break;
		ev.type = EV_DEV_UP;
		ev.dev.dev = MEMBERS;
		ev.dev.bytes = DISK_BYTES;
		ev.dev.uri = "mem:new";
		push(ev);
		break;
	case OUT_REMOVED:
		w.removed = true;
		break;
	case OUT_STOPPED:
		w.stopped = true;
		break;
	default:
		break;
	}
}

static void step(struct event ev)
{
	ev.now_us = w.now;
	w.q.count = 0;
	engine_step(w.e, &ev, &w.q);
	for (uint32_t i = 0; i < w.q.count; i++)
		do_out(&w.q.v[i]);
}

static void run_ms(uint32_t ms)
{
	uint64_t end = w.now + ms * 1000ull;

	while (w.now < end) {
		step((struct event){.type = EV_TICK});
		while (w.first != w.last)
			step(w.pending[w.first++ % QUEUE]);
		w.now += 1000;
	}
}

static struct engine_status status(void)
{
	struct engine_status st;

	engine_status(w.e, &st);
	return st;
}

static void quorum(bool quorate)
{
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = (struct ring){1, 1};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	ev.view.quorate = quorate;
	step(ev);
}

/* Nothing but what is told to it at once has happened. */
static void start_cold(void)
{
	struct engine_cfg cfg;
	struct event ev = {.type = EV_VIEW};

	engine_cfg_init(&cfg);
	cfg.node = 1;
	cfg.inc = w.next_inc++;
	cfg.record = w.record;
	cfg.fenced_inc = w.fenced_inc;
	cfg.force = w.force;
	memcpy(cfg.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	cfg.tun.release_delay_ms = 100;
	w.e = engine_new(&cfg);
	w.first = w.last = w.hung_count = 0;
	ev.view.ring = (struct ring){1, 1};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	step(ev);
	quorum(true);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct event up = {.type = EV_DEV_UP};

		if (w.dead[i])
			continue;
		up.dev.dev = i;
		up.dev.bytes = DISK_BYTES;
		up.dev.uri = "mem:";
		step(up);
	}
}

static void start(void)
{
	start_cold();
	run_ms(100);
}

static void run_event(void)
{
	if (w.first != w.last)
		step(w.pending[w.first++ % QUEUE]);
	else
		step((struct event){.type = EV_TICK});
	w.now += w.first == w.last ? 1000 : 0;
}

/* Event by event until users are served. */
static void run_until_served(void)
{
	for (uint32_t n = 0; !status().io_allowed; n++) {
		CHECK(n < 10000);
		run_event();
	}
}

static void io(uint64_t tag, enum io_op op, uint64_t offset, uint32_t bytes, void *data)
{
	struct event ev = {.type = EV_IO};

	w.io_done[tag] = 0;
	ev.io.tag = tag;
	ev.io.op = op;
	ev.io.offset = offset;
	ev.io.bytes = bytes;
	ev.io.data = data;
	step(ev);
	while (w.first != w.last)
		step(w.pending[w.first++ % QUEUE]);
}

static void finish(void)
{
	engine_free(w.e);
	for (uint32_t i = 0; i <= MEMBERS; i++)
		free(w.disk[i]);
	free(w.q.v);
	free(w.pending);
	free(w.msg);
}

static void fill(uint8_t *buf, size_t bytes, uint8_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		buf[i] = (uint8_t)(seed + i * 31 + (i >> 9));
}

TEST(what_is_written_is_read)
{
	static uint8_t out[1 << 20], in[1 << 20];

	create(1);
	start();
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	fill(out, sizeof(out), 3);
	io(1, IO_WRITE, 128 << 10, sizeof(out), out);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	io(2, IO_READ, 128 << 10, sizeof(in), in);
	run_ms(10);
	CHECK_EQ_U64(w.io_done[2], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	io(3, IO_FLUSH, 0, 0, NULL);
	CHECK_EQ_U64(w.io_done[3], 1);
	io(4, IO_READ, 4096, 100, in);
	CHECK_EQ_INT(w.io_err[4], -EINVAL);
	finish();
}

TEST(the_initial_sync_ends_and_marks_are_cleared)
{
	static uint8_t out[1 << 20];

	create(1);
	start();
	io(1, IO_WRITE, 0, sizeof(out), out);
	CHECK(status().regions_dirty >= 4);
	run_ms(3000);
	CHECK_EQ_U64(status().slots_unrecovered, 0);
	CHECK_EQ_U64(status().regions_dirty, 0);
	finish();
}

TEST(reads_cause_no_log_and_no_lock_traffic_and_a_hot_region_is_marked_once)
{
	static uint8_t buf[64 << 10];
	uint32_t log;
	uint64_t locks;

	create(1);
	start();
	run_ms(3000);
	io(1, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(20);
	log = w.counts[KIND_LOG][DEV_WRITE];
	locks = status().lock_requests;
	for (uint32_t i = 0; i < 100; i++) {
		io(2, IO_READ, i * 4096, 4096, buf);
		io(3, IO_WRITE, i % 16 * 4096, 4096, buf);
		CHECK_EQ_U64(w.io_done[2] + w.io_done[3], 2);
	}
	CHECK_EQ_U64(w.counts[KIND_LOG][DEV_WRITE], log);
	CHECK_EQ_U64(status().lock_requests, locks);
	finish();
}

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
		CHECK(life ? !w.fences : w.fences);
	}
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

/* Member 1 has left; what was member `from` is added. */
static int add_copy_of(uint32_t from)
{
	struct event ev = {.type = EV_ADMIN};
	int err;

	create(1);
	start();
	run_ms(2000);
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 1;
	step(ev);
	run_ms(500);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_FAULTY);
	w.disk[MEMBERS] = malloc(DISK_BYTES);
	memcpy(w.disk[MEMBERS], w.disk[from], DISK_BYTES);
	w.admin_done = false;
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.uri = "mem:new";
	step(ev);
	run_ms(3000);
	CHECK(w.admin_done);
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
	struct event up = {.type = EV_DEV_UP};

	create(1);
	start();
	w.disk[MEMBERS] = calloc(1, DISK_BYTES);
	up.dev.dev = MEMBERS;
	up.dev.bytes = DISK_BYTES;
	up.dev.uri = "mem:new";
	step(up);
	run_ms(100);
	CHECK(engine_dev_stranger(w.e, MEMBERS));
	for (uint32_t i = 0; i < 3; i++)
		CHECK(!engine_dev_stranger(w.e, i));
	finish();
}

TEST(a_member_fails_and_a_new_one_is_rebuilt)
{
	static uint8_t out[512 << 10], in[512 << 10];
	struct event ev = {.type = EV_ADMIN};

	create(1);
	start();
	run_ms(2000);
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
	w.disk[MEMBERS] = malloc(DISK_BYTES);
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
	/* Now the new one must carry the data: take another away. */
	w.dead[0] = true;
	memset(in, 0, sizeof(in));
	io(4, IO_READ, 0, sizeof(in), in);
	run_ms(200);
	CHECK_EQ_U64(w.io_done[4], 1);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

TEST(stop_leaves_a_clean_log)
{
	static uint8_t out[64 << 10];
	struct event ev = {.type = EV_ADMIN};
	struct logpage lp;
	struct geo g;

	create(1);
	start();
	run_ms(2000);
	io(1, IO_WRITE, 0, sizeof(out), out);
	g = *engine_geo(w.e);
	ev.admin.cmd = ADMIN_STOP;
	step(ev);
	run_ms(500);
	CHECK(w.stopped);
	for (uint32_t s = 0; s <= g.p.slots; s++) {
		struct logpage best = {0};

		for (uint32_t c = 0; c < 2; c++) {
			CHECK_EQ_INT(logpage_decode(&lp, w.disk[0] + geo_log_offset(&g, s, 0, c)),
				     0);
			if (lp.seq >= best.seq)
				best = lp;
		}
		CHECK_EQ_U64(best.owner_inc, 0);
		for (uint32_t i = 0; i < LOG_PLANE_BYTES; i++)
			CHECK_EQ_U64(best.dirty[i], 0);
	}
	finish();
}

static void dev_down(uint32_t dev)
{
	struct event ev = {.type = EV_DEV_DOWN};

	w.dead[dev] = true;
	ev.dev.dev = dev;
	ev.dev.err = -ECONNRESET;
	step(ev);
}

static void dev_up(uint32_t dev)
{
	struct event ev = {.type = EV_DEV_UP};

	w.dead[dev] = false;
	ev.dev.dev = dev;
	ev.dev.bytes = DISK_BYTES;
	ev.dev.uri = "mem:";
	step(ev);
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

/* A member leaves before it can be failed: the data needs the other now. */
TEST(a_fail_that_timed_out_is_not_carried_out_later_and_holds_nobody_up)
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
	CHECK_EQ_INT(w.admin_err, -ETIMEDOUT);
	CHECK(status().io_allowed && !status().unusable);
	dev_up(2);
	run_ms(6000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
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
	run_ms(6000); /* those that are absent might still connect */
}

TEST(members_that_were_rolled_back_are_refused_unless_forced)
{
	static uint8_t buf[4096];
	const uint8_t *old[MEMBERS], *one[MEMBERS] = {NULL}, *none[MEMBERS] = {NULL};
	uint64_t num;

	create(1);
	start();
	run_ms(2000);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		uint8_t *copy = malloc(DISK_BYTES);

		CHECK(copy);
		old[i] = memcpy(copy, w.disk[i], DISK_BYTES);
	}
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
	restart_with(none, true);
	CHECK_EQ_INT(status().state, ENGINE_ACTIVE);
	CHECK(status().io_allowed);
	for (uint32_t i = 0; i < MEMBERS; i++)
		free((void *)(uintptr_t)old[i]);
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

TEST(a_release_delay_that_is_set_while_it_runs_counts_at_once)
{
	static uint8_t buf[4096];
	struct tunables tun;
	struct engine_cfg def;

	create(1);
	start();
	run_ms(3000);
	engine_cfg_init(&def);
	tun = def.tun;
	tun.release_delay_ms = 600000;
	tun.mark_ahead = false;
	tun.heartbeat_limit_ms = tun.evict_ms = 1; /* nodes count on these: they stay */
	engine_tune(w.e, &tun);
	io(1, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(5000);
	CHECK_EQ_U64(status().regions_dirty, 1);
	tun.release_delay_ms = 2000;
	engine_tune(w.e, &tun);
	run_ms(50); /* it is idle for longer */
	CHECK_EQ_U64(status().regions_dirty, 0);
	io(2, IO_WRITE, 0, sizeof(buf), buf);
	run_ms(1900);
	CHECK_EQ_U64(status().regions_dirty, 1);
	run_ms(800); /* and a quarter, the interval at which it is looked for */
	CHECK_EQ_U64(status().regions_dirty, 0);
	CHECK(status().io_allowed);
	finish();
}

TEST(held_requests_fail_as_soon_as_that_is_set)
{
	static uint8_t buf[4096];
	struct tunables tun;
	struct engine_cfg def;

	create(1);
	start();
	run_ms(3000);
	dev_down(0);
	dev_down(1);
	io(1, IO_READ, 0, sizeof(buf), buf);
	run_ms(10000);
	CHECK_EQ_U64(w.io_done[1], 0);
	engine_cfg_init(&def);
	tun = def.tun;
	tun.eio_when_lost = true;
	engine_tune(w.e, &tun);
	run_ms(50);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], -EIO);
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

TEST(a_member_whose_connection_broke_comes_back_by_itself)
{
	struct event ev = {.type = EV_DEV_DOWN};

	create(1);
	start();
	run_ms(2000);
	ev.dev.dev = 2;
	ev.dev.err = -ECONNRESET;
	w.dead[2] = true;
	step(ev);
	run_ms(600);
	w.dead[2] = false;
	ev = (struct event){.type = EV_DEV_UP};
	ev.dev.dev = 2;
	ev.dev.bytes = DISK_BYTES;
	ev.dev.uri = "mem:";
	step(ev);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[2].state, MEMBER_IN_SYNC);
	finish();
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

static void dev_event(enum ev_type type, uint32_t dev)
{
	struct event ev = {.type = type};

	ev.dev.dev = dev;
	ev.dev.bytes = DISK_BYTES;
	ev.dev.uri = dev == MEMBERS ? "mem:new" : "mem:";
	ev.dev.err = type == EV_DEV_DOWN ? -ECONNRESET : 0;
	ev.dev.instance = w.instance;
	step(ev);
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

/* Stripes whose parity is wrong, if `dev` holds member 1. */
static uint32_t parity_wrong(uint32_t dev)
{
	const struct geo g = *engine_geo(w.e);
	uint32_t wrong = 0;

	for (uint64_t s = 0; s < g.stripes; s++) {
		uint64_t at = geo_offset(&g, s);
		bool bad = false;

		for (uint32_t i = 0; i < g.frag_bytes; i++)
			bad |= (w.disk[0][at + i] ^ w.disk[dev][at + i] ^ w.disk[2][at + i]) != 0;
		wrong += bad;
	}
	return wrong;
}

/* Member 2 has an older copy of itself in store, from before a change of the map that it was in. */
static uint8_t *copy_of_member_2(void)
{
	static uint8_t out[4096];
	uint8_t *copy = malloc(DISK_BYTES);

	create(1);
	start();
	run_ms(3000);
	memcpy(copy, w.disk[2], DISK_BYTES);
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

/* R17, while a member is rebuilt: what was resynced and not flushed is resynced again. */
TEST(a_resync_that_was_not_flushed_does_not_count_when_a_cache_was_lost)
{
	static uint8_t out[4096];
	struct event ev = {.type = EV_ADMIN};

	create(1);
	start();
	run_ms(3000);
	ev.admin.cmd = ADMIN_FAIL;
	ev.admin.member = 1;
	step(ev);
	run_ms(100);
	w.disk[MEMBERS] = malloc(DISK_BYTES);
	memset(w.disk[MEMBERS], 0x33, DISK_BYTES);
	ev.admin.cmd = ADMIN_ADD;
	ev.admin.uri = "mem:new";
	step(ev);
	while (status().map.member[1].state != MEMBER_REBUILDING)
		run_event();
	fill(out, sizeof(out), 9);
	for (uint32_t i = 0; i < 10; i++) {
		struct event write = {.type = EV_IO};

		write.io.tag = 1 + i;
		write.io.op = IO_WRITE;
		write.io.offset = i ? (20 + i) * (256 << 10) : 0;
		write.io.bytes = sizeof(out);
		write.io.data = out;
		step(write);
	}
	while (status().regions_dirty < 10 || !w.io_done[10])
		run_event();
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_REBUILDING);
	engine_free(w.e);
	w.dead[1] = true;
	start_cold();
	dev_event(EV_DEV_UP, MEMBERS);
	while (status().resync_bytes < 256 << 10 || status().rebuild_done < 2) {
		CHECK(status().map.member[1].state != MEMBER_IN_SYNC);
		run_event();
	}
	CHECK(status().regions_to_resync > 1);
	memset(w.disk[0] + geo_offset(engine_geo(w.e), 0), 0x77, 512);
	dev_event(EV_DEV_DOWN, 0);
	run_ms(600);
	CHECK(!status().io_allowed || status().unusable);
	dev_event(EV_DEV_UP, 0);
	run_ms(6000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(status().slots_unrecovered, 0);
	CHECK_EQ_U64(parity_wrong(MEMBERS), 0);
	finish();
}

static void break_off_and_return(uint32_t dev, uint64_t instance)
{
	w.instance = instance;
	dev_event(EV_DEV_DOWN, dev);
	dev_event(EV_DEV_UP, dev);
	run_ms(10);
}

/* R17: the exporter was another one already when the connection broke for the second time. */
TEST(a_lost_cache_is_not_waived_by_breaking_off_once_more)
{
	create(1);
	start();
	run_ms(3000);
	break_off_and_return(1, 7);
	run_ms(3000);
	CHECK_EQ_INT(status().map.member[1].state, MEMBER_IN_SYNC);
	w.mute = true; /* nobody hears of it, so nothing is proposed */
	break_off_and_return(1, 7);
	CHECK_EQ_INT(status().unusable, 0);
	break_off_and_return(1, 7);
	CHECK_EQ_INT(status().unusable, 0);
	break_off_and_return(1, 8);
	CHECK_EQ_INT(status().unusable, 1u << 1);
	break_off_and_return(1, 8);
	CHECK_EQ_INT(status().unusable, 1u << 1);
	finish();
}

static void answer_slow(void)
{
	w.slow = 0;
	for (uint32_t i = 0; i < w.slow_count; i++) {
		struct event done = {.type = EV_DEV_DONE};

		done.done.id = w.slow_id[i];
		step(done);
	}
	w.slow_count = 0;
}

/* Members 1 and 2 break off and return without the stripe at `at`. */
static void caches_lost(uint64_t at)
{
	dev_event(EV_DEV_DOWN, 1);
	dev_event(EV_DEV_DOWN, 2);
	memset(w.disk[1] + at, 0x11, 2048);
	memset(w.disk[2] + at, 0x22, 2048);
	run_ms(100);
	dev_event(EV_DEV_UP, 1);
	dev_event(EV_DEV_UP, 2);
	run_ms(300);
}

/* R17: one member has answered from a cache that it then lost, another is slow. The write is whole
 * when it is answered, also on that member. */
TEST(a_write_goes_again_to_a_member_that_lost_its_cache_meanwhile)
{
	static uint8_t out[4096], in[4096];
	struct event ev = {.type = EV_IO};
	uint64_t at;

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 5);
	w.slow = 1u << 0;
	at = geo_offset(engine_geo(w.e), 0);
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	run_ms(50);
	CHECK(w.slow_count > 0 && !w.io_done[1]);
	caches_lost(at);
	answer_slow();
	run_ms(6000);
	CHECK(w.io_done[1]);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK(status().io_allowed && !status().unusable);
	ev.io.tag = 2;
	ev.io.op = IO_READ;
	ev.io.data = in;
	step(ev);
	run_ms(50);
	CHECK(w.io_done[2]);
	CHECK(!memcmp(in, out, sizeof(in)));
	finish();
}

/* R17: as before, but the part that they lost had been through, and the other one was slow. */
TEST(a_write_in_parts_begins_anew_when_caches_are_lost)
{
	static uint8_t out[8192], in[8192];
	struct event ev = {.type = EV_IO};
	const struct geo *g;
	uint64_t second;

	create(1);
	start();
	run_ms(3000);
	g = engine_geo(w.e);
	second = geo_region_first(g, 1);
	fill(out, sizeof(out), 5);
	w.slow = 1u << 0;
	w.slow_from = geo_offset(g, second);
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.offset = (second - 1) * 4096;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	run_ms(50);
	CHECK_EQ_U64(w.slow_count, 1);
	CHECK(!w.io_done[1]);
	caches_lost(geo_offset(g, second - 1));
	answer_slow();
	run_ms(6000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK(status().io_allowed && !status().unusable);
	io(2, IO_READ, ev.io.offset, sizeof(in), in);
	run_ms(50);
	CHECK(w.io_done[2]);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}

/* R17: all of it had been through, and its answer waited for quorum. */
TEST(a_write_that_is_not_answered_yet_begins_anew_when_caches_are_lost)
{
	static uint8_t out[4096], in[4096];
	struct event ev = {.type = EV_IO};

	create(1);
	start();
	run_ms(3000);
	fill(out, sizeof(out), 5);
	w.slow = 1u << 0;
	ev.io.tag = 1;
	ev.io.op = IO_WRITE;
	ev.io.bytes = sizeof(out);
	ev.io.data = out;
	step(ev);
	run_ms(50);
	quorum(false);
	answer_slow();
	run_ms(50);
	CHECK(!w.io_done[1] && !status().io_allowed);
	caches_lost(geo_offset(engine_geo(w.e), 0));
	quorum(true);
	run_ms(6000);
	CHECK_EQ_U64(w.io_done[1], 1);
	CHECK_EQ_INT(w.io_err[1], 0);
	CHECK(status().io_allowed && !status().unusable);
	io(2, IO_READ, 0, sizeof(in), in);
	run_ms(50);
	CHECK(w.io_done[2]);
	CHECK_EQ_MEM(in, out, sizeof(in));
	finish();
}
