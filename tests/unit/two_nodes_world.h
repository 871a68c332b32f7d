/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two engines (or NODES) on the same members in memory, one order of messages and views for all.
 * For what depends on a certain order; all else is the simulator's.
 *
 *   test_slot_unread.c three: a slot that changes hands before its new owner has read it
 *   test_cause.c       why a member leaves is the same on both
 *   test_losses.c      who alone knows that a member has lost something, and is removed
 *   test_stops.c       how they leave
 *   test_two_nodes.c   members that one of them does not reach, leaders that make way
 *   test_two_halves.c  each alone in its ring; fences that only wait
 */
#ifndef DDRAID_TESTS_UNIT_TWO_NODES_WORLD_H
#define DDRAID_TESTS_UNIT_TWO_NODES_WORLD_H

#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/engine.h"
#include "daemon/core/format/choose.h"
#include "tests/unit/kept_messages.h"

#ifndef NODES
#define NODES 2
#endif
#define MEMBERS 3
#define DISK_BYTES (8u << 20)
#define QUEUE 8192u
#define NONE_REACHED ((1u << MEMBERS) - 1)
#define ANY_DEV UINT32_MAX

struct node {
	struct engine *e;
	struct record record;
	bool stopped;
	bool unsealed; /* the members don't tell of its stop */
	uint32_t fences;
	bool fences_nobody;   /* it never hears of one that it asks for */
	uint32_t data_writes; /* of consumers' data, at the members */
	uint64_t rebuilt;     /* bytes that a rebuild wrote */
	uint32_t ios_done;
	uint32_t sent;            /* messages */
	uint32_t cut;             /* mask: members that it does not reach */
	struct event up[MEMBERS]; /* how each was connected last */
	uint32_t lives;
	uint64_t inc;           /* of its next daemon, 0 = the first */
	uint32_t pid;           /* of the present one */
	bool paused;            /* its daemon stands still */
	bool stopped_clock;     /* and so does its clock, as a virtual machine's */
	uint64_t behind_us;     /* which is so much behind by now */
	uint32_t use_writes_ms; /* so long a write of its use blocks takes */
	uint32_t use_slow_mask; /* and so long any request to them at these members */
	uint32_t use_slow_ms;
	uint32_t use_prompt_op; /* but not this one: a DEV_READ or DEV_WRITE, plus one */
	bool io_hangs;          /* nothing that it sends to a member is answered */
	bool writes_fail;       /* its writes do, at all members, */
	bool writes_hang;       /* or hang until its connections are given up: hung_give_up */
	bool record_hangs;      /* its state directory is full */
	bool alone;             /* it is in no cluster */
	bool take_over, force;
	uint32_t fence_ms;
	uint8_t *ways[MEMBERS]; /* where its way to a member leads instead */
	uint32_t flush_fails;   /* so many of its flushes of member 1 do */
	uint64_t machine;       /* that it runs on, 0 = its own */
	bool other_locks;       /* it takes them elsewhere, so it may not serve beside others */
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
	struct kept_messages msg;
	uint8_t array_uuid[DDR_UUID_BYTES];
	bool fence_hangs;
	uint64_t watched; /* an incarnation, and how often its fence was asked for */
	uint32_t watched_fences;
	bool io_may_fail;
	bool others_look;     /* who uses the members is found out as in life, with its waits */
	bool resync_hangs;    /* so a region stays dirty */
	bool rebuild_hangs;   /* what a rebuild writes is held back */
	uint32_t claim_hangs; /* a node whose writes of use blocks are held back */
	uint32_t log_hangs;   /* a node whose reads of log pages are held back */
	struct {
		uint32_t node, dev; /* ANY_DEV: all */
		enum dev_kind kind;
		enum dev_op op;
		bool on;
		bool of_active; /* once the node serves */
	} hold;                 /* requests that are held back */
	struct out held[64];
	uint32_t held_by[64];
	struct event hung[256]; /* answers to writes that hang */
	uint32_t hung_dev[256], hung_count;
	uint32_t held_count;
	uint32_t fence_after_ms; /* so long a fence takes */
	struct {
		uint64_t at;
		uint32_t node;
		struct event ev;
	} answer[64]; /* of fences */
	uint32_t answer_count;
	struct {
		uint64_t at;
		uint32_t node;
		struct out o;
	} late[64];
	uint32_t late_count;
	bool restarts; /* who is removed goes on as a new incarnation */
	bool two_node; /* one has quorum */
	bool fence_waits;
	struct {
		uint32_t member;
		uint64_t at; /* 0: there is none */
	} bad_log;           /* a page of the log that can't be read until it is written */
	uint32_t use_bad;    /* members whose use block can neither be read nor written */
	bool split;          /* each is alone with itself, in a ring of its own */
	uint64_t ring;
	uint32_t away; /* a node that is out of the group: it hears nobody, and nobody hears it */
	uint32_t reach_ms;
	int admin_err; /* the last one's answer */
	char admin_why[512];
	uint64_t fenced_inc; /* who starts has fenced its own incarnation up to here */
} w;

static inline void push(uint32_t to, struct event ev)
{
	CHECK(w.last - w.first < QUEUE);
	if (ev.type == EV_DEV_UP)
		w.node[to].up[ev.dev.dev] = ev;
	w.queue[w.last % QUEUE].to = to;
	w.queue[w.last++ % QUEUE].ev = ev;
}

static inline int place(void *arg, uint64_t offset, const uint8_t *block)
{
	memcpy((uint8_t *)arg + offset, block, DDR_BLOCK_BYTES);
	return 0;
}

/* The same memory for each world: a page fault takes longer than to clear the page. */
static inline uint8_t *disk_blank(uint32_t i)
{
	static uint8_t *disk[MEMBERS];

	if (!disk[i])
		disk[i] = malloc(DISK_BYTES);
	return memset(disk[i], 0, DISK_BYTES);
}

static inline void create(void)
{
	struct create_params p = {.inc = 7};
	struct geo g;

	memset(&w, 0, sizeof(w));
	w.now = w.ring = 1;
	w.queue = calloc(QUEUE, sizeof(*w.queue));
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
	CHECK_EQ_INT(geo_choose(&g, &p.geo, NULL), 0);
	for (uint8_t i = 0; i < MEMBERS; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < MEMBERS; i++) {
		w.disk[i] = disk_blank(i);
		CHECK_EQ_INT(create_member(&p, i, place, w.disk[i]), 0);
	}
}

static inline bool held_back(uint32_t node, const struct out *o)
{
	struct engine_status st;

	if (!w.hold.on || w.hold.node != node || o->io.kind != w.hold.kind ||
	    o->io.op != w.hold.op || (w.hold.dev != ANY_DEV && w.hold.dev != o->io.dev))
		return false;
	engine_status(w.node[node].e, &st);
	return !w.hold.of_active || st.state == ENGINE_ACTIVE;
}

static inline void do_io(uint32_t node, const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint8_t *way = w.node[node].ways[o->io.dev];
	uint8_t *p = (way ? way : w.disk[o->io.dev]) + o->io.offset;

	ev.done.id = o->io.id;
	if (w.node[node].io_hangs)
		return;
	if (o->io.op == DEV_WRITE && (w.node[node].writes_fail || w.node[node].writes_hang)) {
		ev.done.err = w.node[node].writes_fail ? -EIO : -ECONNRESET;
		if (w.node[node].writes_fail) {
			push(node, ev);
			return;
		}
		CHECK(w.hung_count < 256);
		w.hung_dev[w.hung_count] = o->io.dev;
		w.hung[w.hung_count++] = ev;
		return;
	}
	if (w.resync_hangs && o->io.kind == KIND_RESYNC)
		return;
	if (held_back(node, o) ||
	    (w.rebuild_hangs && o->io.kind == KIND_REBUILD && o->io.op != DEV_READ) ||
	    (w.log_hangs == node && o->io.kind == KIND_LOG && o->io.op == DEV_READ) ||
	    (w.claim_hangs == node && o->io.kind == KIND_USE && o->io.op == DEV_WRITE)) {
		CHECK(w.held_count < 64);
		w.held_by[w.held_count] = node;
		w.held[w.held_count++] = *o;
		return;
	}
	if (o->io.op == DEV_FLUSH && o->io.dev == 1 && w.node[node].flush_fails) {
		w.node[node].flush_fails--;
		ev.done.err = -EIO;
		push(node, ev);
		return;
	}
	if (o->io.kind == KIND_USE && w.use_bad >> o->io.dev & 1) {
		ev.done.err = -EIO;
		push(node, ev);
		return;
	}
	if (o->io.kind == KIND_LOG && w.bad_log.at >= o->io.offset && w.bad_log.at &&
	    w.bad_log.at < o->io.offset + o->io.bytes && w.bad_log.member == o->io.dev) {
		if (o->io.op == DEV_READ) {
			ev.done.err = -EIO;
			push(node, ev);
			return;
		}
		w.bad_log.at = 0;
	}
	if (w.node[node].cut >> o->io.dev & 1) {
		ev.done.err = -ECONNRESET;
		push(node, ev);
		return;
	}
	if (o->io.kind == KIND_REBUILD && o->io.op != DEV_READ)
		w.node[node].rebuilt += o->io.bytes;
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
static inline void view(uint32_t from, uint32_t to, uint32_t upto)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){w.split ? to : 1, w.ring};
	for (uint32_t i = from; i <= upto; i++)
		ev.view.node[ev.view.count++] = i;
	push(to, ev);
}

static inline void do_out(uint32_t node, const struct out *o)
{
	uint32_t delay_ms;
	bool late = false;
	struct event ev = {0};

	switch (o->type) {
	case OUT_DEV_IO:
		delay_ms = o->io.kind != KIND_USE ? 0
			   : w.node[node].use_slow_mask >> o->io.dev & 1 &&
				   w.node[node].use_prompt_op != o->io.op + 1u
			       ? w.node[node].use_slow_ms
			   : o->io.op == DEV_WRITE ? w.node[node].use_writes_ms
						   : 0;
		if (!delay_ms) {
			do_io(node, o);
			break;
		}
		CHECK(w.late_count < 64);
		w.late[w.late_count].at = w.now + delay_ms * 1000ull;
		w.late[w.late_count].node = node;
		w.late[w.late_count++].o = *o;
		break;
	case OUT_DEV_CANCEL:
		for (uint32_t i = 0; i < w.late_count; i++) {
			if (w.late[i].node != node || w.late[i].o.io.dev != o->cancel.dev)
				continue;
			ev.type = EV_DEV_DONE;
			ev.done.id = w.late[i].o.io.id;
			ev.done.err = -ECANCELED;
			push(node, ev);
			w.late[i--] = w.late[--w.late_count];
			late = true;
		}
		if (late || w.node[node].cut >> o->cancel.dev & 1)
			break; /* its test says when it is back */
		ev = (struct event){.type = EV_DEV_DOWN};
		ev.dev.dev = o->cancel.dev;
		push(node, ev);
		push(node, w.node[node].up[o->cancel.dev]);
		break;
	case OUT_SEND:
		w.node[node].sent++;
		ev.type = EV_MSG;
		ev.msg.from = node;
		ev.msg.data = message_keep(&w.msg, o->send.data, o->send.bytes);
		ev.msg.bytes = o->send.bytes;
		for (uint32_t i = 1; i <= NODES; i++)
			if ((!w.split || i == node) && w.away != i && w.away != node)
				push(i, ev);
		break;
	case OUT_FENCE:
		w.node[node].fences++;
		w.watched_fences += o->fence.inc == w.watched;
		ev.type = EV_FENCE_DONE;
		ev.fence.node = o->fence.node;
		ev.fence.inc = o->fence.inc;
		if (w.fence_after_ms) {
			CHECK(w.answer_count < 64);
			w.answer[w.answer_count].at = w.now + w.fence_after_ms * 1000ull;
			w.answer[w.answer_count].node = node;
			w.answer[w.answer_count++].ev = ev;
		} else if (!w.fence_hangs && !w.node[node].fences_nobody) {
			push(node, ev);
		}
		break;
	case OUT_PROBE:
		ev.type = EV_PROBED;
		ev.probed.claim = o->probe.claim;
		ev.probed.dead = true;
		for (uint32_t i = 1; i <= NODES; i++)
			if (w.node[i].e && !w.node[i].stopped &&
			    w.node[i].pid == o->probe.process.pid)
				ev.probed.dead = false;
		push(node, ev);
		break;
	case OUT_IO_DONE:
		CHECK(!o->io_done.err || w.io_may_fail);
		w.node[node].ios_done++;
		break;
	case OUT_RECORD:
		if (w.node[node].record_hangs)
			break;
		w.node[node].record = *o->record;
		ev.type = EV_RECORD_DONE;
		push(node, ev);
		break;
	case OUT_ADMIN_DONE:
		w.admin_err = o->admin_done.err;
		snprintf(w.admin_why, sizeof(w.admin_why), "%s",
			 o->admin_done.why ? o->admin_done.why : "");
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
		w.node[node].unsealed = o->type == OUT_STOPPED && o->stopped.unsealed;
		if (w.split)
			break;
		CHECK(node == 1 || node == NODES);
		for (uint32_t i = node == 1 ? 2 : 1; i <= NODES; i++)
			if (i != node)
				view(node == 1 ? 2 : 1, i, node == 1 ? NODES : NODES - 1);
		break;
	default:
		break;
	}
}

static inline void step(uint32_t node, struct event ev)
{
	if (!w.node[node].e || w.node[node].stopped)
		return;
	ev.now_us = w.now - w.node[node].behind_us;
	w.q.count = 0;
	engine_step(w.node[node].e, &ev, &w.q);
	for (uint32_t i = 0; i < w.q.count; i++)
		do_out(node, &w.q.v[i]);
}

/* What is left in the queue waits for a daemon that stands still. */
static inline bool only_paused(void)
{
	for (uint32_t i = w.first; i != w.last; i++)
		if (!w.node[w.queue[i % QUEUE].to].paused)
			return false;
	return true;
}

/* Also of one that stands still by now. */
static inline void late_land(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w.late_count; i++)
		if (w.late[i].at > w.now)
			w.late[n++] = w.late[i];
		else
			do_io(w.late[i].node, &w.late[i].o);
	w.late_count = n;
	n = 0;
	for (uint32_t i = 0; i < w.answer_count; i++)
		if (w.answer[i].at > w.now)
			w.answer[n++] = w.answer[i];
		else
			push(w.answer[i].node, w.answer[i].ev);
	w.answer_count = n;
}

static inline void run_ms(uint32_t ms)
{
	uint64_t end = w.now + ms * 1000ull;

	while (w.now < end) {
		late_land();
		for (uint32_t i = 1; i <= NODES; i++)
			if (!w.node[i].paused)
				step(i, (struct event){.type = EV_TICK});
		while (!only_paused()) {
			uint32_t at = w.first++ % QUEUE;

			if (!w.node[w.queue[at].to].paused)
				step(w.queue[at].to, w.queue[at].ev);
			else
				push(w.queue[at].to, w.queue[at].ev);
		}
		w.now += 1000;
		for (uint32_t i = 1; i <= NODES; i++)
			if (w.node[i].paused && w.node[i].stopped_clock)
				w.node[i].behind_us += 1000;
	}
}

static inline void connect(uint32_t node)
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

static inline void cut(uint32_t node)
{
	w.node[node].cut = NONE_REACHED;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct event down = {.type = EV_DEV_DOWN};

		down.dev.dev = i;
		push(node, down);
	}
}

static inline void quorum_of(uint32_t node)
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

static inline void start(uint32_t node)
{
	struct engine_cfg cfg;

	engine_cfg_init(&cfg);
	cfg.node = node;
	cfg.inc = w.node[node].inc ? w.node[node].inc : 100 + node;
	memcpy(cfg.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	cfg.tun.release_delay_ms = 100;
	if (!w.others_look)
		cfg.tun.claim_ms = 0;
	cfg.process.pid = w.node[node].pid = (uint32_t)cfg.inc;
	/* Each on a machine of its own, if it is not another one by now. */
	cfg.process.pid_space = w.node[node].machine ? w.node[node].machine
				: w.others_look      ? node
						     : 1;
	strcpy(cfg.cluster, w.node[node].alone ? "" : "two");
	snprintf(cfg.host, sizeof(cfg.host), "host%u", node);
	cfg.wall_s = 1000000;
	cfg.take_over = w.node[node].take_over;
	cfg.force = w.node[node].force;
	cfg.tun.reach_ms = w.reach_ms;
	cfg.two_node = w.two_node;
	if (w.node[node].other_locks)
		cfg.lock_backend = LOCK_EXTERNAL;
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

static inline struct engine_status status(uint32_t node)
{
	static struct engine_status st; /* `waits` may point into it */

	engine_status(w.node[node].e, &st);
	return st;
}

/* What was held back is answered. */
static inline void held_goes_on(void)
{
	w.log_hangs = w.claim_hangs = 0;
	w.rebuild_hangs = w.hold.on = false;
	for (uint32_t i = 0; i < w.held_count; i++)
		do_io(w.held_by[i], &w.held[i]);
	w.held_count = 0;
}

/* The member's connections break on this node, or are back. */
static inline void member_cut(uint32_t node, uint32_t m, bool gone)
{
	struct event ev = {.type = gone ? EV_DEV_DOWN : EV_DEV_UP};

	w.node[node].cut = gone ? w.node[node].cut | 1u << m : w.node[node].cut & ~(1u << m);
	ev.dev.dev = m;
	if (!gone) {
		ev.dev.bytes = DISK_BYTES;
		ev.dev.uri = "mem:";
	}
	push(node, ev);
}

static inline void io_block(uint32_t node, enum io_op op, uint64_t offset, void *data)
{
	struct event ev = {.type = EV_IO};

	ev.io.tag = w.now;
	ev.io.op = op;
	ev.io.offset = offset;
	ev.io.bytes = DDR_BLOCK_BYTES;
	ev.io.data = data;
	step(node, ev);
}

static inline bool serves(uint32_t node)
{
	return w.node[node].e && !w.node[node].stopped && status(node).io_allowed;
}

static inline void stop(uint32_t node)
{
	step(node, (struct event){.type = EV_ADMIN, .admin.cmd = ADMIN_STOP});
	run_ms(3000);
	CHECK(w.node[node].stopped);
}

/* Its next daemon starts, as this incarnation. */
static inline void again(uint32_t node, uint64_t inc)
{
	engine_free(w.node[node].e);
	w.node[node].stopped = false;
	w.node[node].inc = inc;
	start(node);
}

static inline void finish(void)
{
	for (uint32_t i = 1; i <= NODES; i++)
		engine_free(w.node[i].e);
	free(w.q.v);
	free(w.queue);
	messages_free(&w.msg);
}

static inline void start_both(void)
{
	create();
	start(1);
	run_ms(3000);
	start(2);
	run_ms(3000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
}

static inline void write_block(uint32_t node, uint64_t offset)
{
	static uint8_t data[DDR_BLOCK_BYTES];

	io_block(node, IO_WRITE, offset, data);
}

#endif
