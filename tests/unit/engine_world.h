/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine alone: one node, its group a loop back to itself, its members in memory and prompt.
 * What crashes, tears and reorders is the simulator's; the tests on this world are what a person
 * who changes the engine wants to see within a second:
 *
 *   test_engine.c          requests, marks, settings, stop, in an incarnation that is well
 *   test_engine_lives.c    what it finds of earlier incarnations
 *   test_engine_members.c  members that leave, come back, are replaced
 *   test_engine_caches.c   members that may have lost their caches
 *   test_engine_superblocks.c  copies that are torn, or can't be read
 *   test_engine_misfits.c  members whose device has changed while it was away
 *   test_engine_writes.c   members that answer writes with an error
 *   test_engine_lost.c     fewer members than the data needs, with when_lost=eio; connections that
 *                          broke while nobody could say which member that was
 */
#ifndef DDRAID_TESTS_UNIT_ENGINE_WORLD_H
#define DDRAID_TESTS_UNIT_ENGINE_WORLD_H

#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/engine.h"
#include "daemon/core/format/choose.h"
#include "daemon/core/format/superblock.h"
#include "tests/unit/kept_messages.h"

#ifndef MEMBERS /* a test that makes its own array may have others */
#define MEMBERS 3
#endif
#ifndef DISK_BYTES /* fuzz_members has smaller ones */
#define DISK_BYTES (8u << 20)
#endif
#ifndef DISK_NEW /* of DISK_BYTES; and whether it is known to be all zero */
#define DISK_NEW(i) memset(malloc(DISK_BYTES), 0xee + (i), DISK_BYTES)
#define DISK_FREE(disk) free(disk)
#define DISK_CLEAN false
#endif
#ifndef STRIPE_BYTES
#define STRIPE_BYTES 4096u
#endif
#ifndef TICK_US
#define TICK_US 1000u
#endif
#define QUEUE 8192u

struct world {
	struct engine *e;
	uint64_t now;
	uint64_t next_inc;
	uint8_t *disk[MEMBERS + 1];
	bool dead[MEMBERS + 1];
	int flush_err;              /* of member 2 */
	int write_err[MEMBERS + 1]; /* what it answers to writes of data, */
	bool mark_errs;             /* ... and of the log and the superblocks */
	uint32_t back_errs; /* reads of so many bytes or more of the own log, of a member that is
			     * back, fail; 0 = none */
	bool back_hold;     /* they are held back until land_hung, but for the first */
	uint32_t back_pass; /* ... so many */

	bool log_hold; /* so are writes of log pages to this device */
	uint32_t log_hold_dev;
	bool log_read_hold; /* and so are reads of the first slot's log */
	bool back_late;     /* they are done at once, and answered by the test */
	struct event back_answer[16];
	uint32_t back_answers;
	uint32_t placed_at; /* what OUT_OPEN leads to, if it is open already */
	uint32_t reach_ms;  /* how long what was cut off may land */
	bool eio;           /* when_lost=eio */
	uint32_t beat_ms;   /* 0: as usual */
	uint32_t claim_ms;  /* 0: who uses the members is not asked, and no lease ends */
	bool use_hangs;     /* what is sent to the use blocks does not land before land_hung() */
	uint32_t hung;      /* members whose superblock writes don't land before land_hung() */
	uint32_t sb_hangs;  /* ... whose superblocks are not read before reads_fail() */
	struct out hung_out[16];
	uint32_t hung_count;
	uint32_t cut_log;  /* members whose connection breaks at the next read of the log */
	uint32_t cut_page; /* ... at the next write of the first slot's log */
	uint32_t tear;     /* members whose next superblock write is torn, and cuts them off */
	uint8_t bad_copy[MEMBERS + 1]; /* masks of superblock copies that can't be read until they
					* are written */
	uint32_t bad_log; /* members whose log can't be read at bad_log_at until it is written */
	uint64_t bad_log_at;
	uint64_t shrunk[MEMBERS + 1];   /* a device's size, 0 = DISK_BYTES */
	uint32_t multiple[MEMBERS + 1]; /* of what its requests must be multiples */
	const char *uri[DDR_MAX_DEVS];  /* as each was connected last */
	bool mute;                      /* what is sent is lost */
	uint8_t *elsewhere;             /* where superblock writes to member 2 land, NULL = there */
	uint32_t slow;      /* members whose answers to consumers' writes are held back */
	uint64_t slow_from; /* ... that lie there or above */
	uint64_t slow_id[64];
	uint32_t slow_dev[64];
	uint32_t slow_count;
	uint32_t bad_resync;   /* a member whose reads for a resync fail, */
	uint64_t bad_from;     /* ... of what lies there or above */
	uint32_t bad_next;     /* ... and from then on those of this one */
	uint32_t slow_reads;   /* members whose answers to consumers' reads are held back */
	uint64_t instance;     /* of the exporters */
	bool external;         /* locks are those of a manager */
	bool contended;        /* ... who grants them after lock_wait_us, and calls them back */
	uint64_t lock_wait_us; /* at once */
	uint32_t lock_never;   /* regions that somebody else keeps */
	struct {
		uint64_t at;
		enum lock_mode mode;
	} lock[8];            /* by region: what was asked for; at = 0: nothing */
	uint32_t window_kind; /* KIND_REBUILD or KIND_RESYNC: these windows are counted */
	uint64_t window_us;   /* and take so long */
	uint32_t windows;     /* of these with the lock that was granted last */
	uint32_t unlocks;
	struct outq q;
	struct record record;
	struct event *pending; /* events that outs have led to, in order */
	uint32_t first, last;
	struct kept_messages msg;
	uint64_t io_done[1024];
	int io_err[1024];
	uint32_t counts[KIND_COUNT][4];
	uint64_t zeroed, written; /* bytes, by a rebuild */
	uint32_t fences;
	uint32_t fence_node, fence_writes; /* the last one; superblocks and pages written by then */
	uint64_t fenced_inc;               /* told to the next engine */
	bool force;                        /* likewise */
	bool removed, stopped;
	int admin_err;
	bool admin_done;
	char admin_why[512];
	uint8_t array_uuid[DDR_UUID_BYTES];
};

static struct world w;

static inline void push(struct event ev)
{
	CHECK(w.last - w.first < QUEUE);
	w.pending[w.last++ % QUEUE] = ev;
}

static inline int place(void *arg, uint64_t offset, const uint8_t *block)
{
	memcpy((uint8_t *)arg + offset, block, DDR_BLOCK_BYTES);
	return 0;
}

static inline void create_regions(uint8_t order, uint32_t region_bytes)
{
	struct create_params p = {.inc = 7, .clean = DISK_CLEAN};
	struct geo g;
	uint8_t n = (uint8_t)((1u << order) + 1);

	memset(&w, 0, sizeof(w));
	w.now = 1;
	w.next_inc = 100;
	w.pending = calloc(QUEUE, sizeof(*w.pending));
	memset(p.array_uuid, 0x5a, DDR_UUID_BYTES);
	memcpy(w.array_uuid, p.array_uuid, DDR_UUID_BYTES);
	strcpy(p.name, "unit");
	p.geo = (struct geo_params){.order = order,
				    .m = 1,
				    .layout = GEO_ROTATE,
				    .slots = 4,
				    .stripe_bytes = STRIPE_BYTES,
				    .band_bytes = 65536,
				    .region_bytes = region_bytes,
				    .member_bytes = DISK_BYTES};
	CHECK_EQ_INT(geo_choose(&g, &p.geo, NULL), 0);
	for (uint8_t i = 0; i < n; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < n; i++) {
		w.disk[i] = DISK_NEW(i);
		CHECK_EQ_INT(create_member(&p, i, place, w.disk[i]), 0);
	}
}

static inline void create(uint8_t order)
{
	create_regions(order, 256 << 10);
}

/* Its power fails within the write: some sectors are new, one is neither. */
static inline void torn(const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint32_t dev = o->io.dev;

	memcpy(w.disk[dev] + o->io.offset, o->io.iov[0].iov_base, 512);
	memset(w.disk[dev] + o->io.offset + 512, 0x5a, 512);
	w.tear &= ~(1u << dev);
	w.dead[dev] = true;
	ev.done.id = o->io.id;
	ev.done.err = -ECONNRESET;
	push(ev);
	ev = (struct event){.type = EV_DEV_DOWN};
	ev.dev.dev = dev;
	ev.dev.err = -ECONNRESET;
	push(ev);
}

/* The newest copy. */
static inline struct superblock superblock_of(uint32_t dev)
{
	struct superblock sb, other;

	CHECK_EQ_INT(sb_decode(&sb, w.disk[dev] + geo_sb_offset(0), NULL), 0);
	if (!sb_decode(&other, w.disk[dev] + geo_sb_offset(1), NULL) && sb_newer(&other, &sb))
		sb = other;
	return sb;
}

static inline void superblock_put(uint32_t dev, struct superblock *sb)
{
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		sb->seq++;
		sb->place = (uint8_t)(c + 1);
		sb_encode(sb, w.disk[dev] + geo_sb_offset(c));
	}
}

static inline struct event dev_event_of(enum ev_type type, uint32_t dev)
{
	struct event ev = {.type = type};

	ev.dev.dev = dev;
	ev.dev.bytes = w.shrunk[dev] ? w.shrunk[dev] : DISK_BYTES;
	ev.dev.multiple = w.multiple[dev];
	ev.dev.uri = w.uri[dev] ? w.uri[dev] : dev == MEMBERS ? "mem:new" : "mem:";
	ev.dev.err = type == EV_DEV_DOWN ? -ECONNRESET : 0;
	ev.dev.instance = w.instance;
	return ev;
}

/* True: the request ends with an error. */
static inline bool bad_copy(const struct out *o)
{
	uint8_t *bad = &w.bad_copy[o->io.dev], bit = 0;

	for (uint8_t c = 0; c < SB_COPIES; c++)
		if (o->io.kind == KIND_SB && o->io.offset == geo_sb_offset(c))
			bit = (uint8_t)(1u << c);
	if (o->io.op == DEV_WRITE)
		*bad &= (uint8_t)~bit;
	return *bad & bit;
}

static inline bool bad_log(const struct out *o)
{
	if (o->io.kind != KIND_LOG || !(w.bad_log >> o->io.dev & 1) ||
	    w.bad_log_at < o->io.offset || w.bad_log_at >= o->io.offset + o->io.bytes)
		return false;
	if (o->io.op == DEV_WRITE)
		w.bad_log &= ~(1u << o->io.dev);
	return o->io.op == DEV_READ;
}

static inline bool bad_spot(const struct out *o)
{
	if (o->io.kind != KIND_RESYNC || o->io.op != DEV_READ || !(w.bad_resync >> o->io.dev & 1) ||
	    o->io.offset < w.bad_from)
		return false;
	w.bad_resync = w.bad_next;
	return true;
}

static inline void do_io(const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint8_t *p = w.disk[o->io.dev] + o->io.offset;

	ev.done.id = o->io.id;
	if ((o->io.kind == KIND_SB && o->io.op == DEV_WRITE && w.hung >> o->io.dev & 1) ||
	    (o->io.kind == KIND_SB && o->io.op == DEV_READ && w.sb_hangs >> o->io.dev & 1) ||
	    (o->io.kind == KIND_USE && w.use_hangs) ||
	    (o->io.kind == KIND_LOG && o->io.op == DEV_WRITE && o->io.dev == w.log_hold_dev &&
	     w.log_hold) ||
	    (o->io.kind == KIND_LOG && o->io.op == DEV_READ && w.log_read_hold &&
	     o->io.offset < geo_log_offset(engine_geo(w.e), 1, 0, 0)) ||
	    (o->io.kind == KIND_BACK && w.back_hold && !w.back_pass)) {
		CHECK(w.hung_count < 16);
		w.hung_out[w.hung_count++] = *o;
		return;
	}
	if (o->io.kind == KIND_SB && o->io.op == DEV_WRITE && o->io.dev == 2 && w.elsewhere)
		p = w.elsewhere + o->io.offset;
	if (o->io.kind == KIND_SB && o->io.op == DEV_WRITE && w.tear >> o->io.dev & 1) {
		torn(o);
		return;
	}
	if (o->io.kind == KIND_LOG && o->io.op == DEV_READ && w.cut_log >> o->io.dev & 1) {
		w.cut_log &= ~(1u << o->io.dev);
		ev.done.err = -ECONNRESET;
		push(ev);
		push(dev_event_of(EV_DEV_DOWN, o->io.dev));
		push(dev_event_of(EV_DEV_UP, o->io.dev));
		return;
	}
	w.counts[o->io.kind][o->io.op]++;
	if (o->io.kind == KIND_REBUILD && o->io.op == DEV_ZEROES) {
		CHECK(o->io.flags & DEV_F_UNMAP);
		w.zeroed += o->io.bytes;
	}
	if (o->io.kind == KIND_REBUILD && o->io.op == DEV_WRITE)
		w.written += o->io.bytes;
	w.back_pass -= o->io.kind == KIND_BACK && w.back_pass;
	if (o->io.kind == KIND_LOG && o->io.op == DEV_WRITE && w.cut_page >> o->io.dev & 1 &&
	    o->io.offset < geo_log_offset(engine_geo(w.e), 1, 0, 0)) {
		w.cut_page = 0;
		push(dev_event_of(EV_DEV_DOWN, o->io.dev));
		ev.done.err = -ECONNRESET;
		push(ev);
		return;
	}
	if (w.window_kind && o->io.kind == w.window_kind &&
	    (o->io.kind == KIND_REBUILD ? o->io.op != DEV_READ
					: o->io.op == DEV_READ && o->io.dev == 0)) {
		w.windows++;
		w.now += w.window_us;
	}
	if (w.dead[o->io.dev] || bad_copy(o) || bad_spot(o) || bad_log(o) ||
	    (o->io.kind == KIND_BACK && w.back_errs && o->io.bytes >= w.back_errs)) {
		ev.done.err = -EIO;
	} else if ((o->io.op == DEV_WRITE || o->io.op == DEV_ZEROES) && w.write_err[o->io.dev] &&
		   (o->io.kind == KIND_DATA || w.mark_errs)) {
		ev.done.err = w.write_err[o->io.dev];
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
	if (o->io.kind == KIND_DATA && o->io.offset >= w.slow_from &&
	    ((o->io.op == DEV_WRITE && w.slow >> o->io.dev & 1) ||
	     (o->io.op == DEV_READ && w.slow_reads >> o->io.dev & 1))) {
		CHECK(w.slow_count < 64);
		w.slow_dev[w.slow_count] = o->io.dev;
		w.slow_id[w.slow_count++] = o->io.id;
		return;
	}
	if (o->io.kind == KIND_BACK && w.back_late) {
		CHECK(w.back_answers < 16);
		w.back_answer[w.back_answers++] = ev;
		return;
	}
	push(ev);
}

static inline void land_hung(void)
{
	w.hung = 0;
	w.use_hangs = w.back_hold = w.log_hold = w.log_read_hold = false;
	for (uint32_t i = 0; i < w.hung_count; i++)
		do_io(&w.hung_out[i]);
	w.hung_count = 0;
}

static inline void lock_asked(const struct out *o)
{
	uint64_t r = o->lock.id & 7;

	w.lock[r].mode = o->lock.mode;
	w.lock[r].at = w.now + (w.contended ? w.lock_wait_us : 0);
}

static inline void locks_grant(void)
{
	for (uint64_t r = 0; r < 8; r++) {
		struct event ev = {.type = EV_LOCK_GRANTED};

		if (!w.lock[r].at || w.now < w.lock[r].at || w.lock_never >> r & 1)
			continue;
		w.lock[r].at = 0;
		w.windows = 0;
		ev.lock.id = LOCK_ID(LOCK_KIND_REGION, r);
		ev.lock.mode = w.lock[r].mode;
		push(ev);
		ev.type = EV_LOCK_CALLBACK;
		ev.lock.mode = LOCK_MODE_CW;
		if (w.contended)
			push(ev);
	}
}

/* What it has not answered ends before the connection does. */
static inline void slow_end(uint32_t dev)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w.slow_count; i++) {
		struct event ev = {.type = EV_DEV_DONE};

		ev.done.id = w.slow_id[i];
		ev.done.err = -ECANCELED;
		if (w.slow_dev[i] == dev) {
			push(ev);
			continue;
		}
		w.slow_dev[n] = w.slow_dev[i];
		w.slow_id[n++] = w.slow_id[i];
	}
	w.slow_count = n;
}

static inline void do_out(const struct out *o)
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
		ev.msg.data = message_keep(&w.msg, o->send.data, o->send.bytes);
		ev.msg.bytes = o->send.bytes;
		push(ev);
		break;
	case OUT_LOCK:
		lock_asked(o);
		break;
	case OUT_UNLOCK:
		w.unlocks++;
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
	case OUT_PROBE: /* of the engine before */
		ev.type = EV_PROBED;
		ev.probed.claim = o->probe.claim;
		ev.probed.dead = true;
		push(ev);
		break;
	case OUT_RECORD:
		w.record = *o->record;
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
		snprintf(w.admin_why, sizeof(w.admin_why), "%s",
			 o->admin_done.why ? o->admin_done.why : "");
		break;
	case OUT_OPEN:
		if (w.placed_at)
			break;
		ev.type = EV_DEV_UP;
		ev.dev.dev = MEMBERS;
		ev.dev.bytes = w.shrunk[MEMBERS] ? w.shrunk[MEMBERS] : DISK_BYTES;
		ev.dev.uri = "mem:new";
		push(ev);
		break;
	case OUT_DEV_CANCEL:
		if (w.dead[o->cancel.dev] || w.hung >> o->cancel.dev & 1)
			break;
		slow_end(o->cancel.dev);
		push(dev_event_of(EV_DEV_DOWN, o->cancel.dev));
		push(dev_event_of(EV_DEV_UP, o->cancel.dev));
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

static inline void step(struct event ev)
{
	ev.now_us = w.now;
	w.q.count = 0;
	if (ev.type == EV_DEV_UP)
		w.uri[ev.dev.dev] = ev.dev.uri; /* connected anew it is the same */
	engine_step(w.e, &ev, &w.q);
	for (uint32_t i = 0; i < w.q.count; i++)
		do_out(&w.q.v[i]);
}

static inline void run_ms(uint32_t ms)
{
	uint64_t end = w.now + ms * 1000ull;

	while (w.now < end) {
		locks_grant();
		step((struct event){.type = EV_TICK});
		while (w.first != w.last)
			step(w.pending[w.first++ % QUEUE]);
		w.now += TICK_US;
	}
}

static inline uint32_t rebuild_writes(void)
{
	return w.counts[KIND_REBUILD][DEV_WRITE] + w.counts[KIND_REBUILD][DEV_ZEROES];
}

static inline struct engine_status status(void)
{
	static struct engine_status st; /* `waits` may point into it */

	engine_status(w.e, &st);
	return st;
}

static inline void quorum(bool quorate)
{
	struct event ev = {.type = EV_QUORUM};

	ev.view.ring = (struct ring){1, 1};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	ev.view.quorate = quorate;
	step(ev);
}

/* corosync's ring is this one, of the same node. */
static inline void ring_becomes(uint64_t ring)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){1, ring};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	step(ev);
	ev.type = EV_QUORUM;
	ev.view.quorate = true;
	step(ev);
}

static inline void ring_changes(void)
{
	ring_becomes(2);
}

static inline void dev_event(enum ev_type type, uint32_t dev)
{
	step(dev_event_of(type, dev));
}

/* A copy of what it holds, the caller's to free. */
static inline uint8_t *image_of(uint32_t dev)
{
	uint8_t *image = malloc(DISK_BYTES);

	CHECK(image);
	memcpy(image, w.disk[dev], DISK_BYTES);
	return image;
}

/* It breaks off, and answers nothing until it is back. */
static inline void dev_down(uint32_t dev)
{
	w.dead[dev] = true;
	dev_event(EV_DEV_DOWN, dev);
}

static inline void dev_up(uint32_t dev)
{
	w.dead[dev] = false;
	dev_event(EV_DEV_UP, dev);
}

/* What was sent to this one has taken too long; it is connected anew. */
static inline void reads_fail(uint32_t dev)
{
	uint32_t held = w.hung_count;

	dev_event(EV_DEV_DOWN, dev);
	w.hung_count = 0;
	for (uint32_t i = 0; i < held; i++) {
		struct event ev = {.type = EV_DEV_DONE};

		ev.done.id = w.hung_out[i].io.id;
		ev.done.err = -ETIMEDOUT;
		if (w.hung_out[i].io.dev == dev)
			step(ev);
		else
			w.hung_out[w.hung_count++] = w.hung_out[i];
	}
	dev_event(EV_DEV_UP, dev);
}

/* Nothing but what is told to it at once has happened. */
static inline void start_cold(void)
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
	cfg.tun.claim_ms = w.claim_ms;
	if (w.beat_ms) {
		cfg.tun.heartbeat_ms = w.beat_ms;
		cfg.tun.heartbeat_limit_ms = 4 * w.beat_ms;
	}
	cfg.tun.reach_ms = w.reach_ms;
	cfg.tun.eio_when_lost = w.eio;
	cfg.process.pid = (uint32_t)cfg.inc;
	if (w.external)
		cfg.lock_backend = LOCK_EXTERNAL;
	w.e = engine_new(&cfg);
	w.first = w.last = w.hung_count = 0;
	ev.view.ring = (struct ring){1, 1};
	ev.view.count = 1;
	ev.view.node[0] = 1;
	step(ev);
	quorum(true);
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (!w.dead[i])
			dev_event(EV_DEV_UP, i);
}

static inline void start(void)
{
	start_cold();
	run_ms(100);
}

static inline void run_event(void)
{
	locks_grant();
	if (w.first != w.last)
		step(w.pending[w.first++ % QUEUE]);
	else
		step((struct event){.type = EV_TICK});
	w.now += w.first == w.last ? 1000 : 0;
}

/* Event by event until users are served. */
static inline void run_until_served(void)
{
	for (uint32_t n = 0; !status().io_allowed; n++) {
		CHECK(n < 10000);
		run_event();
	}
}

static inline void io(uint64_t tag, enum io_op op, uint64_t offset, uint32_t bytes, void *data)
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

static inline void finish(void)
{
	engine_free(w.e);
	for (uint32_t i = 0; i <= MEMBERS; i++)
		DISK_FREE(w.disk[i]);
	free(w.q.v);
	free(w.pending);
	messages_free(&w.msg);
}

static inline void fill(uint8_t *buf, size_t bytes, uint8_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		buf[i] = (uint8_t)(seed + i * 31 + (i >> 9));
}

/* Stripes whose parity is wrong, if `dev` holds member 1. */
static inline uint32_t parity_wrong(uint32_t dev)
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

#endif
