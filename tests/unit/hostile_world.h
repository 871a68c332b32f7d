/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two nodes that work and a third that is broken, on the same members in memory, one order of
 * messages for all. The third runs an engine, too, and beside what that sends, whatever a test says
 * in its name. Members are prompt, and fences are answered at once, but for those that can't be.
 *
 *   test_hostile.c          what a broken node may say
 *   ../fuzz/fuzz_node_msg.c whatever it may say
 */
#ifndef DDRAID_TESTS_UNIT_HOSTILE_WORLD_H
#define DDRAID_TESTS_UNIT_HOSTILE_WORLD_H

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"
#include "daemon/core/format/choose.h"
#include "proto/node.pb-c.h"

#define NODES 3u
#define BAD h.bad /* the broken one */
#define MEMBERS 3u
#define DISK_BYTES (2u << 20)
#define QUEUE 16384u
#define MSG_BYTES 65536u
#define BLOCKS 512u /* of the array that are compared */
#define HEARD 64u   /* more than the greatest number of a body */

struct hnode {
	struct engine *e;
	struct record record;
	uint64_t next_inc;
	bool deaf;                /* it is out of the group's view */
	bool removed, mute, ends; /* ends: it has only one incarnation */
	uint32_t fences;          /* how often it asked for one */
	uint32_t fenced_works;    /* ... of a node that works, and lives as that */
	uint32_t removals;
	uint32_t led_by_bad; /* steps */
};

static struct {
	struct hnode node[NODES + 1];
	uint32_t bad;
	uint64_t now, ring;
	uint8_t *disk[MEMBERS];
	struct outq q;
	struct {
		uint32_t to;
		uint64_t life;
		struct event ev;
		uint8_t *data; /* of a message */
	} queue[QUEUE];
	uint32_t first, last;
	uint64_t life[NODES + 1]; /* events of an earlier one are dropped */
	struct {
		uint8_t *data;
		size_t bytes;
	} heard[HEARD];       /* the last that was sent, by its body */
	uint32_t unfenceable; /* a node whose fence fails */
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint8_t told[BLOCKS]; /* what block was acknowledged to hold, 0 = nothing yet */
	uint8_t trying[BLOCKS];
	uint8_t buf[BLOCKS][DDR_BLOCK_BYTES];
	bool busy[BLOCKS];
	uint32_t io_done, io_failed;
	uint8_t *got; /* a read */
	int read_err;
	bool read_done;
	int admin_err;
	uint32_t admin_done;
} h;

#define READ_TAG 1000000u

/* What the broken node's engine sends, as it says it instead; it may be NULL. */
static void (*h_twist)(nodemsg *m);
static bool h_other_locks; /* from elsewhere: granted to all at once */

static inline void h_push(uint32_t to, struct event ev, uint8_t *data)
{
	assert(h.last - h.first < QUEUE);
	h.queue[h.last % QUEUE].to = to;
	h.queue[h.last % QUEUE].life = h.life[to];
	h.queue[h.last % QUEUE].data = data;
	h.queue[h.last++ % QUEUE].ev = ev;
}

static inline int h_place(void *arg, uint64_t offset, const uint8_t *block)
{
	memcpy((uint8_t *)arg + offset, block, DDR_BLOCK_BYTES);
	return 0;
}

static inline void h_create(void)
{
	struct create_params p = {.inc = 7};
	struct geo g;
	int err;

	memset(&h, 0, sizeof(h));
	h.now = h.ring = 1;
	memset(h.array_uuid, 0x5a, DDR_UUID_BYTES);
	memcpy(p.array_uuid, h.array_uuid, DDR_UUID_BYTES);
	strcpy(p.name, "hostile");
	p.clean = true;
	p.geo = (struct geo_params){.order = 1,
				    .m = 1,
				    .layout = GEO_ROTATE,
				    .slots = 4,
				    .stripe_bytes = 4096,
				    .band_bytes = 16384,
				    .region_bytes = 256 << 10,
				    .member_bytes = DISK_BYTES};
	err = geo_choose(&g, &p.geo, NULL);
	assert(!err);
	for (uint8_t i = 0; i < MEMBERS; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < MEMBERS; i++) {
		h.disk[i] = calloc(1, DISK_BYTES);
		err = create_member(&p, i, h_place, h.disk[i]);
		assert(!err);
	}
}

static inline void h_multicast(uint32_t from, const uint8_t *data, size_t bytes)
{
	struct event ev = {.type = EV_MSG};

	for (uint32_t i = 1; i <= NODES; i++) {
		uint8_t *copy;

		if (!h.node[i].e || h.node[i].deaf)
			continue;
		copy = malloc(bytes + 1); /* its own, so that a read beyond its end is seen */
		memcpy(copy, data, bytes);
		ev.msg.from = from;
		ev.msg.data = copy;
		ev.msg.bytes = bytes;
		h_push(i, ev, copy);
	}
}

static inline void h_send(uint32_t node, const nodemsg *m)
{
	size_t bytes = ddraid__node_msg__get_packed_size(m);
	uint8_t *data = malloc(bytes + 1);

	ddraid__node_msg__pack(m, data);
	h_multicast(node, data, bytes);
	free(data);
}

static inline void h_sent(uint32_t node, const struct out *o)
{
	nodemsg *m = ddraid__node_msg__unpack(NULL, o->send.bytes, o->send.data);
	uint32_t at = m->body_case;

	assert(o->send.bytes <= MSG_BYTES && at < HEARD);
	free(h.heard[at].data);
	h.heard[at].data = malloc(o->send.bytes + 1);
	h.heard[at].bytes = o->send.bytes;
	memcpy(h.heard[at].data, o->send.data, o->send.bytes);
	if (!h.node[node].mute && !h.node[node].deaf) {
		if (node == BAD && h_twist)
			h_twist(m);
		h_send(node, m);
	}
	ddraid__node_msg__free_unpacked(m, NULL);
}

static inline void h_io(uint32_t node, const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE};
	uint8_t *p = h.disk[o->io.dev] + o->io.offset;

	ev.done.id = o->io.id;
	assert(o->io.op == DEV_FLUSH || o->io.offset + o->io.bytes <= DISK_BYTES);
	if (o->io.op == DEV_ZEROES)
		memset(p, 0, o->io.bytes);
	for (uint32_t i = 0; o->io.op != DEV_ZEROES && i < o->io.iov_count; i++) {
		if (o->io.op == DEV_READ)
			memcpy(o->io.iov[i].iov_base, p, o->io.iov[i].iov_len);
		else
			memcpy(p, o->io.iov[i].iov_base, o->io.iov[i].iov_len);
		p += o->io.iov[i].iov_len;
	}
	h_push(node, ev, NULL);
}

static inline void h_io_done(const struct out *o)
{
	uint32_t b = (uint32_t)(o->io_done.tag % READ_TAG);

	if (o->io_done.tag >= READ_TAG) {
		h.read_done = true;
		h.read_err = o->io_done.err;
		return;
	}
	h.busy[b] = false;
	h.io_done++;
	h.io_failed += o->io_done.err != 0;
	h.told[b] = o->io_done.err ? 0 : h.trying[b]; /* else it may be either */
}

static inline void h_out(uint32_t node, const struct out *o)
{
	struct hnode *n = &h.node[node];
	struct event ev = {0};

	switch (o->type) {
	case OUT_DEV_IO:
		h_io(node, o);
		break;
	case OUT_SEND:
		h_sent(node, o);
		break;
	case OUT_FENCE:
		n->fences++;
		n->fenced_works += node != BAD && o->fence.node && o->fence.node != BAD &&
				   o->fence.node <= NODES && h.node[o->fence.node].e &&
				   h.node[o->fence.node].e->inc == o->fence.inc;
		ev.type = EV_FENCE_DONE;
		ev.fence.node = o->fence.node;
		ev.fence.inc = o->fence.inc;
		ev.fence.err = o->fence.node == h.unfenceable ? -EIO : 0;
		h_push(node, ev, NULL);
		break;
	case OUT_LOCK:
		ev.type = EV_LOCK_GRANTED;
		ev.lock.id = o->lock.id;
		ev.lock.mode = o->lock.mode;
		h_push(node, ev, NULL);
		break;
	case OUT_RECORD:
		n->record = *o->record;
		ev.type = EV_RECORD_DONE;
		h_push(node, ev, NULL);
		break;
	case OUT_IO_DONE:
		h_io_done(o);
		break;
	case OUT_ADMIN_DONE:
		h.admin_done++;
		h.admin_err = o->admin_done.err;
		break;
	case OUT_REMOVED:
		n->removals++;
		if (n->ends) {
			n->removed = true;
			break;
		}
		ev.type = EV_RESTART;
		ev.restart.inc = n->next_inc++;
		h_push(node, ev, NULL);
		break;
	case OUT_STOPPED:
		n->removed = true;
		break;
	default:
		break;
	}
}

static inline void h_step(uint32_t node, struct event ev)
{
	struct hnode *n = &h.node[node];

	if (!n->e || n->removed)
		return;
	ev.now_us = h.now;
	h.q.count = 0;
	engine_step(n->e, &ev, &h.q);
	n->led_by_bad += node != BAD && n->e->c->round.leader == BAD;
	for (uint32_t i = 0; i < h.q.count; i++)
		h_out(node, &h.q.v[i]);
}

static inline void h_drain(void)
{
	while (h.first != h.last) {
		uint32_t at = h.first++ % QUEUE;

		if (h.queue[at].life == h.life[h.queue[at].to])
			h_step(h.queue[at].to, h.queue[at].ev);
		free(h.queue[at].data);
	}
}

static inline void h_run_ms(uint32_t ms)
{
	uint64_t end = h.now + ms * 1000ull;

	while (h.now < end) {
		for (uint32_t i = 1; i <= NODES; i++)
			h_step(i, (struct event){.type = EV_TICK});
		h_drain();
		h.now += 10000;
	}
}

/* To every node that is in it: a view of all that run and are not deaf, in a new ring. */
static inline void h_view(void)
{
	struct event ev = {.type = EV_VIEW};

	h.ring++;
	ev.view.ring = (struct ring){1, h.ring};
	for (uint32_t i = 1; i <= NODES; i++)
		if (h.node[i].e && !h.node[i].deaf)
			ev.view.node[ev.view.count++] = i;
	for (uint32_t i = 1; i <= NODES; i++) {
		if (!h.node[i].e || h.node[i].deaf)
			continue;
		ev.type = EV_VIEW;
		h_push(i, ev, NULL);
		ev.type = EV_QUORUM;
		ev.view.quorate = ev.view.count > NODES / 2;
		h_push(i, ev, NULL);
	}
}

static inline void h_start(uint32_t node)
{
	struct hnode *n = &h.node[node];
	struct engine_cfg cfg;

	if (n->e) {
		engine_free(n->e);
		h.life[node]++;
	}
	engine_cfg_init(&cfg);
	cfg.node = node;
	n->next_inc = n->next_inc ? n->next_inc : 1000 * node;
	cfg.inc = n->next_inc++;
	memcpy(cfg.array_uuid, h.array_uuid, DDR_UUID_BYTES);
	cfg.tun.release_delay_ms = 100;
	cfg.record = n->record;
	if (h_other_locks)
		cfg.lock_backend = LOCK_EXTERNAL;
	n->e = engine_new(&cfg);
	n->removed = n->deaf = n->mute = false;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct event up = {.type = EV_DEV_UP};

		up.dev.dev = i;
		up.dev.bytes = DISK_BYTES;
		up.dev.uri = "mem:";
		h_push(node, up, NULL);
	}
}

static inline struct engine_status h_status(uint32_t node)
{
	struct engine_status st;

	engine_status(h.node[node].e, &st);
	return st;
}

static inline bool h_serves(uint32_t node)
{
	return h_status(node).io_allowed;
}

/* All three serve. The lowest leads. */
static inline void h_begin(uint32_t bad)
{
	h_create();
	BAD = bad;
	for (uint32_t i = 1; i <= NODES; i++)
		h_start(i);
	h_view();
	for (uint32_t n = 0; n < 500 && !(h_serves(1) && h_serves(2) && h_serves(BAD)); n++)
		h_run_ms(10);
	assert(h_serves(1) && h_serves(2) && h_serves(BAD));
}

static inline void h_end(void)
{
	for (uint32_t i = 1; i <= NODES; i++)
		engine_free(h.node[i].e);
	for (; h.first != h.last; h.first++)
		free(h.queue[h.first % QUEUE].data);
	for (uint32_t i = 0; i < MEMBERS; i++)
		free(h.disk[i]);
	for (uint32_t i = 0; i < HEARD; i++)
		free(h.heard[i].data);
	free(h.q.v);
}

/* One block, all of whose bytes are `value`. */
static inline void h_write(uint32_t node, uint32_t block, uint8_t value)
{
	struct event ev = {.type = EV_IO};

	if (h.busy[block] || !h.node[node].e)
		return;
	h.busy[block] = true;
	h.trying[block] = value;
	h.told[block] = 0;
	memset(h.buf[block], value, DDR_BLOCK_BYTES);
	ev.io.tag = block;
	ev.io.op = IO_WRITE;
	ev.io.offset = (uint64_t)block * DDR_BLOCK_BYTES;
	ev.io.bytes = DDR_BLOCK_BYTES;
	ev.io.data = h.buf[block];
	h_step(node, ev);
	h_drain();
}

/* As the broken node, in its present incarnation and in the round that the nodes which work are in.
 * */
static inline void h_say(Ddraid__NodeMsg *m)
{
	const struct engine *e = h.node[BAD == 1 ? 2 : 1].e;

	m->version = 1;
	if (!m->inc)
		m->inc = h.node[BAD].e->inc;
	if (m->body_case != DDRAID__NODE_MSG__BODY_QUERY) {
		m->term_inc = e->c->round.id.inc;
		m->term_num = e->c->round.id.num;
	}
	h_send(BAD, m);
	h_drain();
}

/* The nodes that work go on, and hold what they have acknowledged. 0: they do. */
static inline const char *h_verify(void)
{
	static uint8_t got[DDR_BLOCK_BYTES];
	uint32_t by = 1;

	while (by == BAD || (by <= NODES && !h_serves(by)))
		by++;
	if (by > NODES)
		return "no node serves";
	for (uint32_t b = 0; b < BLOCKS / 2; b++) {
		struct event ev = {.type = EV_IO};

		if (!h.told[b] || h.busy[b])
			continue;
		memset(got, 0, sizeof(got));
		h.read_done = false;
		ev.io.tag = READ_TAG + b;
		ev.io.op = IO_READ;
		ev.io.offset = (uint64_t)b * DDR_BLOCK_BYTES;
		ev.io.bytes = DDR_BLOCK_BYTES;
		ev.io.data = got;
		h_step(by, ev);
		for (uint32_t n = 0; n < 3000 && !h.read_done; n++)
			h_run_ms(10);
		if (!h.read_done || h.read_err)
			return "a block can't be read";
		for (uint32_t i = 0; i < DDR_BLOCK_BYTES; i++)
			if (got[i] != h.told[b])
				return "a block does not hold what was acknowledged";
	}
	return NULL;
}

#endif
