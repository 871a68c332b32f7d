/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Engines on members in memory, one order of messages and views for all of them.
 *
 * As subject `cpg` and `local` of the lock suite: the table is the leader's, and what a handle
 * does here is what region.c does in a node: it sends Lock and Unlock in the present round, adds
 * what it holds to its engine's claims, and asks again, when a round is Ready, for what it has no
 * answer to. An engine and a handle of one node are one holder to the table; a grant goes to the
 * handle if that has asked for it.
 *
 * With an external lock manager the engines' OUT_LOCK and OUT_UNLOCK go to that, by a handle of
 * their own per node: as the daemon's pump is to do it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/format/choose.h"
#include "proto/node.pb-c.h"
#include "tests/port/lock_conformance.h"

#define MEMBERS 3
#define DISK_BYTES (8u << 20)
#define REGION_BYTES 4096u /* so that there are enough of them for the suite */
#define QUEUE (1u << 13)   /* events on their way to a node */
#define HANDLE_LOCKS 2100u
/* How late a node gets what is sent to it: each world has other fast and slow nodes. */
#define FAST_MS 1u
#define SLOW_MS 60u

struct tlock {
	uint64_t id;
	enum lock_mode held, pend;
	bool try_only;
};

/* A node's handle on the table. */
struct tspace {
	struct lockspace ls;
	uint32_t node;
	bool open;
	const struct lock_cb *cb;
	void *arg;
	uint32_t leader;
	uint64_t term_inc, term_num;
	bool stated, ready; /* State, Ready of the present round were delivered */
	struct tlock lock[HANDLE_LOCKS];
	uint32_t count;
};

struct node {
	struct engine *e;
	uint64_t inc;
	bool alive; /* corosync; the daemon if e */
	bool cut;
	struct record record;
	bool hold_writes;
	uint32_t writes_sent, writes_done, grants;
	struct event held[64];
	uint32_t held_count;
	struct lockspace *ext;
	struct tspace space;
};

struct item {
	uint64_t due, no; /* no: of a message, else 0 */
	uint32_t from;
	struct event ev;
	uint8_t *data;
};

/* What is on its way to a node, in order. Each node gets it later or earlier than the others. */
struct queue {
	struct item item[QUEUE];
	uint32_t first, last;
	uint32_t delay_ms;
	uint64_t seen[SUBJECT_NODES + 1]; /* the newest message of each that was delivered */
};

static struct {
	uint32_t nodes;
	const struct lock_ops *external;
	struct node node[SUBJECT_NODES + 1]; /* by id */
	uint64_t now, next_inc;
	uint64_t ring;
	uint8_t *disk[MEMBERS];
	struct outq q;
	struct queue queue[SUBJECT_NODES + 1];
	uint64_t messages;
	uint8_t array_uuid[DDR_UUID_BYTES];
	bool fences_hang, unsafe, votes_lost;
	uint32_t fences;
	struct {
		uint32_t to;
		struct event ev;
	} fence[64];
	uint32_t fence_count;
} w;
static uint32_t worlds; /* since the last rewind */

/* ---- the group ------------------------------------------------------------------------------ */

static void push_item(uint32_t to, struct item it)
{
	struct queue *q = &w.queue[to];

	HOLDS(q->last - q->first < QUEUE);
	it.due = w.now + q->delay_ms * 1000ull;
	q->item[q->last++ % QUEUE] = it;
}

static void push(uint32_t to, struct event ev)
{
	push_item(to, (struct item){.ev = ev});
}

static void multicast(uint32_t from, const uint8_t *data, size_t bytes, bool alone)
{
	w.messages++;
	for (uint32_t i = 1; i <= w.nodes; i++) {
		struct item it = {.from = from, .no = w.messages, .ev.type = EV_MSG};

		if ((alone || w.node[from].cut || w.node[i].cut) && i != from)
			continue;
		it.data = malloc(bytes);
		HOLDS(it.data);
		memcpy(it.data, data, bytes);
		it.ev.msg.from = from;
		it.ev.msg.data = it.data;
		it.ev.msg.bytes = bytes;
		push_item(i, it);
	}
}

/* Who is there: to all that are not cut off, or to the one that is. */
static void tell_side(bool cut, bool votes_only)
{
	struct event view = {.type = EV_VIEW}, quorum = {.type = EV_QUORUM};

	view.view.ring = quorum.view.ring = (struct ring){1 + cut, w.ring};
	for (uint32_t i = 1; i <= w.nodes; i++) {
		if (w.node[i].cut != cut)
			continue;
		if (w.node[i].alive)
			quorum.view.node[quorum.view.count++] = i;
		if (w.node[i].e)
			view.view.node[view.view.count++] = i;
	}
	quorum.view.quorate = quorum.view.count * 2 > w.nodes && !w.votes_lost;
	for (uint32_t i = 1; i <= w.nodes; i++) {
		if (w.node[i].cut != cut)
			continue;
		push(i, quorum);
		if (!votes_only)
			push(i, view);
	}
}

static void tell_view(bool new_ring)
{
	w.ring += new_ring;
	tell_side(false, false);
	tell_side(true, false);
}

/* What somebody who is gone has sent, and none of the others was given yet, nobody is given. */
static void drop_messages(uint32_t from)
{
	uint64_t seen = 0;

	for (uint32_t i = 1; i <= w.nodes; i++)
		if (i != from && w.node[i].e && w.queue[i].seen[from] > seen)
			seen = w.queue[i].seen[from];
	for (uint32_t i = 1; i <= w.nodes; i++)
		for (uint32_t k = w.queue[i].first; i != from && k != w.queue[i].last; k++) {
			struct item *it = &w.queue[i].item[k % QUEUE];

			it->ev.type = it->from == from && it->no > seen ? EV_TICK : it->ev.type;
		}
}

/* ---- a handle on the table ------------------------------------------------------------------ */

static struct tspace *space_of(struct lockspace *ls)
{
	return (struct tspace *)(void *)ls;
}

static struct tlock *lock_of(struct tspace *t, uint64_t id)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (t->lock[i].id == id)
			return &t->lock[i];
	HOLDS(t->count < HANDLE_LOCKS);
	t->lock[t->count] = (struct tlock){.id = id};
	return &t->lock[t->count++];
}

static void space_send(const struct tspace *t, Ddraid__NodeMsg *m)
{
	uint8_t data[65536];

	m->version = 1;
	m->inc = w.node[t->node].inc;
	m->term_inc = t->term_inc;
	m->term_num = t->term_num;
	HOLDS(ddraid__node_msg__get_packed_size(m) <= sizeof(data));
	multicast(t->node, data, ddraid__node_msg__pack(m, data), false);
}

static void space_ask(const struct tspace *t, const struct tlock *l)
{
	Ddraid__NodeMsg m = DDRAID__NODE_MSG__INIT;
	Ddraid__Lock b = DDRAID__LOCK__INIT;

	if (!t->ready)
		return; /* at Ready */
	m.body_case = DDRAID__NODE_MSG__BODY_LOCK;
	m.lock = &b;
	b.id = l->id;
	b.mode = (uint32_t)l->pend;
	b.try_only = l->try_only;
	space_send(t, &m);
}

static void space_drop(const struct tspace *t, uint64_t id)
{
	Ddraid__NodeMsg m = DDRAID__NODE_MSG__INIT;
	Ddraid__Unlock b = DDRAID__UNLOCK__INIT;

	if (!t->stated)
		return; /* the claims of the coming round don't name it */
	m.body_case = DDRAID__NODE_MSG__BODY_UNLOCK;
	m.unlock = &b;
	b.id = id;
	space_send(t, &m);
}

static int table_open(const struct lock_cfg *cfg, struct lockspace **out)
{
	struct tspace *t;

	if (!cfg->node || cfg->node > w.nodes || !cfg->name[0] ||
	    strlen(cfg->name) >= LOCK_SPACE_BYTES)
		return -EINVAL;
	t = &w.node[cfg->node].space;
	HOLDS(!t->open && cfg->inc == w.node[cfg->node].inc);
	t->count = 0;
	t->open = true;
	t->cb = cfg->cb;
	t->arg = cfg->arg;
	*out = &t->ls;
	return 0;
}

static void table_request(struct lockspace *ls, uint64_t id, enum lock_mode mode, bool try_only)
{
	struct tspace *t = space_of(ls);
	struct tlock *l = lock_of(t, id);

	HOLDS(t->open && l->pend == LOCK_MODE_NONE);
	if (l->held == LOCK_MODE_EX && mode == LOCK_MODE_PR)
		l->held = mode; /* what it claims, if the table is built anew before the answer */
	l->pend = mode;
	l->try_only = try_only;
	space_ask(t, l);
}

static void table_release(struct lockspace *ls, uint64_t id)
{
	struct tspace *t = space_of(ls);

	HOLDS(t->open);
	lock_of(t, id)->held = LOCK_MODE_NONE;
	space_drop(t, id);
}

static void table_close(struct lockspace *ls, bool ended)
{
	struct tspace *t = space_of(ls);

	(void)ended;
	t->open = false; /* what is granted yet goes to the engine, which has no use for it */
	for (uint32_t i = 0; i < t->count; i++)
		if (t->lock[i].held != LOCK_MODE_NONE)
			space_drop(t, t->lock[i].id);
	t->count = 0;
}

static const struct lock_ops table_ops = {
    .name = "table",
    .open = table_open,
    .request = table_request,
    .release = table_release,
    .close = table_close,
};

/* Before the end of its engine's claims. */
static void space_claim(const struct tspace *t)
{
	static uint64_t id[HANDLE_LOCKS];
	static uint32_t mode[HANDLE_LOCKS];
	Ddraid__NodeMsg m = DDRAID__NODE_MSG__INIT;
	Ddraid__Claim b = DDRAID__CLAIM__INIT;

	for (uint32_t i = 0; t->open && i < t->count; i++) {
		if (t->lock[i].held == LOCK_MODE_NONE)
			continue;
		id[b.n_id++] = t->lock[i].id;
		mode[b.n_mode++] = (uint32_t)t->lock[i].held;
	}
	if (!b.n_id)
		return;
	m.body_case = DDRAID__NODE_MSG__BODY_CLAIM;
	m.claim = &b;
	b.id = id;
	b.mode = mode;
	space_send(t, &m);
}

static void space_ready(struct tspace *t)
{
	t->ready = true;
	for (uint32_t i = 0; t->open && i < t->count; i++)
		if (t->lock[i].pend != LOCK_MODE_NONE)
			space_ask(t, &t->lock[i]);
}

/* True: it was the handle's. */
static bool space_grant(struct tspace *t, const Ddraid__Grant *g)
{
	struct tlock *l;

	if (!t->open || !g->to || g->to->node != t->node || g->to->inc != w.node[t->node].inc)
		return false;
	l = lock_of(t, g->id);
	if (l->pend != (enum lock_mode)g->mode)
		return false;
	l->pend = LOCK_MODE_NONE;
	if (g->refused) {
		t->cb->refused(t->arg, g->id, (enum lock_mode)g->mode);
	} else {
		l->held = (enum lock_mode)g->mode;
		t->cb->granted(t->arg, g->id, l->held);
	}
	return true;
}

static void space_callback(struct tspace *t, const Ddraid__Callback *c)
{
	enum lock_mode wanted = (enum lock_mode)c->mode;

	if (!t->open || c->wanted_by == t->node)
		return;
	if (!lock_compatible(lock_of(t, c->id)->held, wanted))
		t->cb->callback(t->arg, c->id, wanted);
}

static bool of_round(const struct tspace *t, const Ddraid__NodeMsg *m)
{
	return t->stated && m->term_inc == t->term_inc && m->term_num == t->term_num;
}

/* True: it is none of the engine's business. */
static bool space_message(struct tspace *t, uint32_t from, const Ddraid__NodeMsg *m)
{
	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_QUERY:
	case DDRAID__NODE_MSG__BODY_EVICT:
		t->stated = t->ready = false;
		break;
	case DDRAID__NODE_MSG__BODY_STATE:
		t->stated = true;
		t->leader = from;
		t->term_inc = m->term_inc;
		t->term_num = m->term_num;
		break;
	case DDRAID__NODE_MSG__BODY_READY:
		if (of_round(t, m) && from == t->leader && !t->ready)
			space_ready(t);
		break;
	case DDRAID__NODE_MSG__BODY_GRANT:
		return of_round(t, m) && from == t->leader && space_grant(t, m->grant);
	case DDRAID__NODE_MSG__BODY_CALLBACK:
		if (of_round(t, m) && from == t->leader)
			space_callback(t, m->callback);
		break;
	}
	return false;
}

/* ---- an engine's handle on an external lock manager ----------------------------------------- */

static void ext_event(void *arg, enum ev_type type, uint64_t id, enum lock_mode mode)
{
	struct node *n = arg;
	struct event ev = {.type = type, .lock = {.id = id, .mode = mode}};

	n->grants += type == EV_LOCK_GRANTED;
	push((uint32_t)(n - w.node), ev);
}

static void ext_granted(void *arg, uint64_t id, enum lock_mode mode)
{
	ext_event(arg, EV_LOCK_GRANTED, id, mode);
}

static void ext_refused(void *arg, uint64_t id, enum lock_mode mode)
{
	ext_event(arg, EV_LOCK_REFUSED, id, mode);
}

static void ext_callback(void *arg, uint64_t id, enum lock_mode wanted)
{
	ext_event(arg, EV_LOCK_CALLBACK, id, wanted);
}

static void ext_lost(void *arg, int err, const char *why)
{
	(void)arg;
	(void)err;
	subject_fail(__FILE__, __LINE__, why);
}

static void ext_up(void *arg)
{
	(void)arg;
}

static const struct lock_cb ext_cb = {ext_up, ext_granted, ext_refused, ext_callback, ext_lost};

/* Opened when it is first needed: till then the suite may have the node's handle. */
static struct lockspace *ext_of(uint32_t node)
{
	struct node *n = &w.node[node];
	struct lock_cfg cfg = {.name = "engines", .cb = &ext_cb, .arg = n, .node = node};

	HOLDS(w.external);
	cfg.inc = n->inc;
	if (!n->ext)
		HOLDS(!lock_open(w.external, &cfg, &n->ext));
	return n->ext;
}

/* ---- outs ----------------------------------------------------------------------------------- */

static int place(void *arg, uint64_t offset, const uint8_t *block)
{
	memcpy((uint8_t *)arg + offset, block, DDR_BLOCK_BYTES);
	return 0;
}

static void do_io(struct node *n, uint32_t node, const struct out *o)
{
	struct event ev = {.type = EV_DEV_DONE, .done.id = o->io.id};
	uint8_t *p = w.disk[o->io.dev] + o->io.offset;
	bool write = o->io.kind == KIND_DATA && o->io.op == DEV_WRITE;

	n->writes_sent += write;
	if (o->io.op == DEV_ZEROES)
		memset(p, 0, o->io.bytes);
	for (uint32_t i = 0; o->io.op != DEV_ZEROES && i < o->io.iov_count; i++) {
		if (o->io.op == DEV_READ)
			memcpy(o->io.iov[i].iov_base, p, o->io.iov[i].iov_len);
		else
			memcpy(p, o->io.iov[i].iov_base, o->io.iov[i].iov_len);
		p += o->io.iov[i].iov_len;
	}
	if (!write || !n->hold_writes) {
		push(node, ev);
		return;
	}
	HOLDS(n->held_count < sizeof(n->held) / sizeof(n->held[0]));
	n->held[n->held_count++] = ev;
}

static void do_send(uint32_t node, const struct out *o)
{
	struct tspace *t = &w.node[node].space;
	Ddraid__NodeMsg *m = ddraid__node_msg__unpack(NULL, o->send.bytes, o->send.data);
	bool alone;

	HOLDS(m);
	if (m->body_case == DDRAID__NODE_MSG__BODY_CLAIM && m->claim->end)
		space_claim(t);
	alone = w.unsafe && m->body_case == DDRAID__NODE_MSG__BODY_GRANT;
	ddraid__node_msg__free_unpacked(m, NULL);
	multicast(node, o->send.data, o->send.bytes, alone);
}

/* Did the daemon of this incarnation end? */
static void do_probe(uint32_t node, const struct out *o)
{
	struct event ev = {.type = EV_PROBED};

	ev.probed.claim = o->probe.claim;
	ev.probed.dead = true;
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		if (w.node[i].e && w.node[i].alive && w.node[i].inc == o->probe.process.pid)
			ev.probed.dead = false;
	push(node, ev);
}

static void do_fence(uint32_t node, const struct out *o)
{
	struct event ev = {.type = EV_FENCE_DONE};

	w.fences++;
	ev.fence.node = o->fence.node;
	ev.fence.inc = o->fence.inc;
	if (!w.fences_hang) {
		push(node, ev);
		return;
	}
	HOLDS(w.fence_count < sizeof(w.fence) / sizeof(w.fence[0]));
	w.fence[w.fence_count].to = node;
	w.fence[w.fence_count++].ev = ev;
}

static void do_out(uint32_t node, const struct out *o)
{
	struct node *n = &w.node[node];

	switch (o->type) {
	case OUT_DEV_IO:
		do_io(n, node, o);
		break;
	case OUT_SEND:
		do_send(node, o);
		break;
	case OUT_FENCE:
		do_fence(node, o);
		break;
	case OUT_IO_DONE:
		HOLDS(!o->io_done.err);
		n->writes_done++;
		break;
	case OUT_PROBE:
		do_probe(node, o);
		break;
	case OUT_RECORD:
		n->record = *o->record;
		push(node, (struct event){.type = EV_RECORD_DONE});
		break;
	case OUT_LOCK:
		lock_request(ext_of(node), o->lock.id, o->lock.mode, o->lock.try_only);
		break;
	case OUT_UNLOCK:
		lock_release(ext_of(node), o->lock.id);
		break;
	default:
		subject_fail(__FILE__, __LINE__, "an out that nothing here gives cause for");
	}
}

static void step(uint32_t node, struct event ev)
{
	struct node *n = &w.node[node];

	ev.now_us = w.now;
	w.q.count = 0;
	engine_step(n->e, &ev, &w.q);
	for (uint32_t i = 0; i < w.q.count; i++)
		do_out(node, &w.q.v[i]);
}

static void deliver(uint32_t node, struct item *it)
{
	struct node *n = &w.node[node];
	bool taken = false;

	if (it->ev.type == EV_VIEW)
		n->space.stated = n->space.ready = false;
	if (it->ev.type == EV_MSG) {
		Ddraid__NodeMsg *m =
		    ddraid__node_msg__unpack(NULL, it->ev.msg.bytes, it->ev.msg.data);

		HOLDS(m);
		w.queue[node].seen[it->from] = it->no;
		taken = space_message(&n->space, it->from, m);
		ddraid__node_msg__free_unpacked(m, NULL);
	}
	if (!taken)
		step(node, it->ev);
}

static void queue_empty(struct queue *q)
{
	while (q->first != q->last)
		free(q->item[q->first++ % QUEUE].data);
}

void engines_ms(void)
{
	w.now += 1000;
	for (uint32_t i = 1; i <= w.nodes; i++) {
		struct queue *q = &w.queue[i];

		if (!w.node[i].e) {
			queue_empty(q);
			continue;
		}
		step(i, (struct event){.type = EV_TICK});
		while (q->first != q->last && q->item[q->first % QUEUE].due <= w.now) {
			struct item it = q->item[q->first++ % QUEUE];

			deliver(i, &it);
			free(it.data);
		}
	}
}

/* ---- life and death ------------------------------------------------------------------------- */

static void create(void)
{
	struct create_params p = {.inc = 7, .name = "locks", .clean = true};
	struct geo g;

	memset(w.array_uuid, 0x5a, DDR_UUID_BYTES);
	memcpy(p.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	p.geo = (struct geo_params){.order = 1,
				    .m = 1,
				    .layout = GEO_ROTATE,
				    .slots = 4,
				    .stripe_bytes = 4096,
				    .band_bytes = 65536,
				    .region_bytes = REGION_BYTES,
				    .member_bytes = DISK_BYTES};
	HOLDS(!geo_choose(&g, &p.geo, NULL));
	for (uint8_t i = 0; i < MEMBERS; i++)
		memset(p.member_uuid[i], i + 1, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < MEMBERS; i++) {
		w.disk[i] = calloc(1, DISK_BYTES);
		HOLDS(w.disk[i]);
		HOLDS(!create_member(&p, i, place, w.disk[i]));
	}
}

static void boot(uint32_t node)
{
	struct node *n = &w.node[node];
	struct record record = n->record;
	struct engine_cfg cfg;

	*n = (struct node){.alive = true, .record = record, .inc = ++w.next_inc};
	n->space.node = node;
	n->space.ls.ops = &table_ops;
	engine_cfg_init(&cfg);
	cfg.node = node;
	cfg.inc = n->inc;
	cfg.record = record;
	memcpy(cfg.array_uuid, w.array_uuid, DDR_UUID_BYTES);
	cfg.tun.claim_ms = 0;
	cfg.process.pid = (uint32_t)n->inc;
	cfg.tun.release_delay_ms = 60000; /* a region's lock is given up when called back only */
	cfg.lock_backend = w.external ? LOCK_EXTERNAL : LOCK_TABLE;
	n->e = engine_new(&cfg);
	HOLDS(n->e);
	for (uint32_t i = 0; i < MEMBERS; i++)
		push(node, (struct event){.type = EV_DEV_UP,
					  .dev = {.dev = i, .bytes = DISK_BYTES, .uri = "mem:"}});
}

void engines_start(uint32_t nodes, const struct lock_ops *external)
{
	engines_end();
	w.now = 1;
	w.nodes = nodes;
	w.external = external;
	w.next_inc = 100;
	create();
	worlds++;
	for (uint32_t i = 1; i <= nodes; i++)
		w.queue[i].delay_ms = worlds >> (i - 1) & 1 ? FAST_MS : SLOW_MS;
	for (uint32_t i = 1; i <= nodes; i++)
		boot(i);
	tell_view(true);
	for (uint32_t i = 0; i < 3000; i++)
		engines_ms();
	for (uint32_t i = 1; i <= nodes; i++)
		HOLDS(engines_status(i).io_allowed);
	HOLDS(engines_status(1).leading);
}

void engines_end(void)
{
	for (uint32_t i = 1; i <= w.nodes; i++) {
		queue_empty(&w.queue[i]);
		engine_free(w.node[i].e);
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		free(w.disk[i]);
	free(w.q.v);
	memset(&w, 0, sizeof(w));
}

static void gone(uint32_t node)
{
	struct node *n = &w.node[node];

	HOLDS(n->e);
	engine_free(n->e);
	n->e = NULL;
	n->ext = NULL;
	n->space.open = false;
	queue_empty(&w.queue[node]);
	drop_messages(node);
}

void engines_kill(uint32_t node)
{
	gone(node);
	tell_view(false);
}

void engines_crash(uint32_t node)
{
	gone(node);
	w.node[node].alive = false;
	tell_view(true);
}

static void table_cut(uint32_t node)
{
	drop_messages(node);
	w.node[node].cut = true;
	tell_view(true);
}

static void table_restart(uint32_t node)
{
	HOLDS(w.node[node].alive && !w.node[node].e);
	boot(node);
	tell_view(false);
}

void engines_fences(bool answered)
{
	w.fences_hang = !answered;
	for (uint32_t i = 0; answered && i < w.fence_count; i++)
		push(w.fence[i].to, w.fence[i].ev);
	if (answered)
		w.fence_count = 0;
}

/* ---- users of the regions ------------------------------------------------------------------- */

void engines_write(uint32_t node, uint64_t region)
{
	static uint8_t data[DDR_BLOCK_BYTES];
	struct event ev = {.type = EV_IO};

	ev.io.tag = w.now;
	ev.io.op = IO_WRITE;
	ev.io.offset = region * REGION_BYTES;
	ev.io.bytes = sizeof(data);
	ev.io.data = data;
	push(node, ev);
}

void engines_hold_writes(uint32_t node, bool on)
{
	struct node *n = &w.node[node];

	n->hold_writes = on;
	for (uint32_t i = 0; !on && i < n->held_count; i++)
		push(node, n->held[i]);
	if (!on)
		n->held_count = 0;
}

uint32_t engines_writes_sent(uint32_t node)
{
	return w.node[node].writes_sent;
}

uint32_t engines_writes_done(uint32_t node)
{
	return w.node[node].writes_done;
}

uint32_t engines_grants(uint32_t node)
{
	return w.node[node].grants;
}

uint32_t engines_fences_asked(void)
{
	return w.fences;
}

struct engine_status engines_status(uint32_t node)
{
	struct engine_status st;

	engine_status(w.node[node].e, &st);
	return st;
}

enum lock_mode engines_held(uint32_t node, uint64_t id)
{
	return engine_lock_held(w.node[node].e, id);
}

/* ---- subjects ------------------------------------------------------------------------------- */

static void start_one(void)
{
	engines_start(1, NULL);
}

static void start_three(void)
{
	engines_start(SUBJECT_NODES, NULL);
}

static void run(uint32_t ms)
{
	while (ms--)
		engines_ms();
}

static uint64_t inc_of(uint32_t node)
{
	return w.node[node].inc;
}

static void unsafe_grants(bool on)
{
	w.unsafe = on;
}

static void rewind_worlds(void)
{
	worlds = 0;
}

static void quorum(bool quorate)
{
	w.votes_lost = !quorate;
	tell_side(false, true);
}

static void nothing(void)
{
}

#define TABLE(name_, nodes_, start_)                                                               \
	{                                                                                          \
		.name = name_, .ops = &table_ops, .nodes = nodes_, .worlds = 8,                    \
		.traits = LOCKS_WAIT_FOR_FENCE | LOCKS_BY_MESSAGES | LOCKS_LOSE_NODES |            \
			  LOCKS_TAKE_ENGINES,                                                      \
		.rewind = rewind_worlds, .start = start_, .end = engines_end, .run = run,          \
		.inc = inc_of, .kill = engines_kill, .crash = engines_crash, .cut = table_cut,     \
		.restart = table_restart, .fences = engines_fences,                                \
		.unsafe_grants = unsafe_grants, .quorum = quorum, .start_engines = nothing,        \
	}

const struct lock_subject lock_local = TABLE("local", 1, start_one);
const struct lock_subject lock_cpg = TABLE("cpg", SUBJECT_NODES, start_three);
