/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Events in, outs out; devices and member requests.
 *
 * A member request ("dio") belongs to a batch; when the last request of a batch has ended, the
 * batch's owner is called. A request waits in dio_held while the gate is closed (R7: no I/O
 * unless quorate and the own heartbeat is fresh) and ends without being sent, from dio_gone, when
 * its member can't be used. So whoever makes requests needs to know neither of the gate nor of
 * connections: he looks at what the batch reached.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine_int.h"

#define SB_RETRY_US 500000ull
#define IDLE_TICK_US 10000ull

void engine_cfg_init(struct engine_cfg *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->max_ios = 256;
	cfg->tun = (struct tunables){
	    .release_delay_ms = 1000,
	    .heartbeat_ms = 200,
	    .heartbeat_limit_ms = 1500,
	    .evict_ms = 4000,
	    .member_retry_ms = 30000,
	    .checkpoint_regions = 64,
	    .mark_ahead = true,
	};
}

struct out *out_add(struct engine *e, enum out_type type)
{
	struct outq *q = e->q;

	if (q->count == q->cap) {
		uint32_t cap = q->cap ? 2 * q->cap : 64;
		struct out *v = realloc(q->v, cap * sizeof(*v));

		assert(v); /* an engine that can't speak must not go on */
		q->v = v;
		q->cap = cap;
	}
	memset(&q->v[q->count], 0, sizeof(q->v[0]));
	q->v[q->count].type = type;
	return &q->v[q->count++];
}

void *out_memory(struct engine *e, size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (e->garbage_count == e->garbage_cap) {
		e->garbage_cap = e->garbage_cap ? 2 * e->garbage_cap : 64;
		e->garbage = realloc(e->garbage, e->garbage_cap * sizeof(*e->garbage));
	}
	assert(p && e->garbage);
	e->garbage[e->garbage_count++] = p;
	return p;
}

static void garbage_free(struct engine *e)
{
	for (uint32_t i = 0; i < e->garbage_count; i++)
		free(e->garbage[i]);
	e->garbage_count = 0;
}

bool rings_agree(const struct engine *e)
{
	return e->view_known && ring_is(&e->view_ring, &e->quorum_ring);
}

/* R2, R7: group and quorum agree, we have it, and our own heartbeat came back lately. */
bool quorum_gate(const struct engine *e)
{
	return rings_agree(e) && e->quorate && e->hb_any &&
	       e->now - e->hb_sent_us < e->cfg.tun.heartbeat_limit_ms * 1000ull &&
	       (e->state == ENGINE_ACTIVE || e->state == ENGINE_JOINING);
}

/* And a State has named us since the ring last changed or quorum was lost: else the others may have
 * gone on without us meanwhile, and this view is only where we are going to hear of it (R6). */
bool gate_open(const struct engine *e)
{
	return e->confirmed && quorum_gate(e);
}

/* ---- batches and member requests ------------------------------------------------------------ */

void batch_init(struct batch *b, void (*done)(struct engine *, struct batch *))
{
	memset(b, 0, sizeof(*b));
	b->done = done;
}

void batch_open(struct batch *b)
{
	assert(!b->pending);
	b->pending = 1;
	b->ok = b->failed = b->unreadable = 0;
	b->err = 0;
}

static void batch_ref_drop(struct engine *e, struct batch *b)
{
	assert(b->pending);
	if (!--b->pending)
		b->done(e, b);
}

void batch_close(struct engine *e, struct batch *b)
{
	batch_ref_drop(e, b);
}

bool member_usable(const struct engine *e, uint8_t member)
{
	uint32_t d = e->dev_of[member];

	return d != NO_DEV && e->dev[d].up && !e->bad[member];
}

/* Whoever needs every member waits for this first, so that he does not try in vain over and over.
 */
bool members_ready(const struct engine *e, uint32_t mask)
{
	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		if (mask >> i & 1 && !member_usable(e, i))
			return false;
	return true;
}

uint32_t write_musts(const struct engine *e)
{
	return map_write_mask(&e->map);
}

/*
 * New writes go to the proposed map's members as soon as the proposal is seen: what it drops gets
 * nothing more, and what it adds gets everything before this node acknowledges (so that no write
 * that lacks it can start after the commit).
 */
uint32_t write_targets(const struct engine *e)
{
	return map_write_mask(e->proposing ? &e->prop : &e->map);
}

uint32_t read_mask(const struct engine *e)
{
	uint32_t mask = map_insync_mask(&e->map), usable = 0;

	if (e->proposing)
		mask &= map_insync_mask(&e->prop);
	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1 && member_usable(e, i))
			usable |= 1u << i;
	return usable;
}

uint32_t devs_up_mask(const struct engine *e)
{
	uint32_t mask = 0;

	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		if (e->dev_of[i] != NO_DEV && e->dev[e->dev_of[i]].up &&
		    (!e->bad[i] || !(map_write_mask(&e->map) >> i & 1)))
			mask |= 1u << i;
	return mask;
}

static void dio_send(struct engine *e, struct dio *d)
{
	struct out *o = out_add(e, OUT_DEV_IO);

	d->sent = true;
	e->dev[d->dev].under_way++;
	e->dio_under_way++;
	o->io.id = (uint64_t)d->gen << 32 | (uint64_t)(d - e->dio);
	o->io.dev = d->dev;
	o->io.op = d->op;
	o->io.kind = d->kind;
	o->io.flags = d->flags;
	o->io.offset = d->offset;
	o->io.bytes = d->bytes;
	o->io.iov = d->iov;
	o->io.iov_count = d->iov_count;
	o->io.region = d->region;
}

static struct dio *dio_get(struct engine *e, struct batch *b)
{
	struct dio *d;

	assert(!list_empty(&e->dio_free)); /* bounded by MAX_ACTIVE_OPS and the jobs */
	d = list_first(&e->dio_free, struct dio, link);
	list_del(&d->link);
	d->gen++;
	d->used = true;
	d->sent = false;
	d->err = 0;
	d->b = b;
	b->pending++;
	return d;
}

static void dio_gone(struct engine *e, struct dio *d, int err)
{
	d->err = err;
	list_del(&d->link);
	list_add_tail(&e->dio_gone, &d->link);
}

static bool dio_may_go(const struct engine *e, const struct dio *d)
{
	uint32_t mask = d->op == DEV_READ ? map_write_mask(&e->map) : write_targets(e);

	return member_usable(e, d->member) && mask >> d->member & 1 &&
	       e->dev_of[d->member] == d->dev && e->state != ENGINE_REMOVED;
}

void dio_start(struct engine *e, struct batch *b, uint8_t member, enum dev_op op,
	       enum dev_kind kind, uint32_t flags, uint64_t offset, uint32_t bytes,
	       const struct iovec *iov, uint32_t iov_count, uint64_t region)
{
	struct dio *d = dio_get(e, b);

	d->member = member;
	d->dev = e->dev_of[member];
	d->op = op;
	d->kind = kind;
	d->flags = flags;
	d->offset = offset;
	d->bytes = bytes;
	d->iov = iov;
	d->iov_count = iov_count;
	d->region = region;
	if (!dio_may_go(e, d))
		dio_gone(e, d, -ENXIO);
	else if (!gate_open(e))
		list_add_tail(&e->dio_held, &d->link);
	else
		dio_send(e, d);
}

void dio_start_raw(struct engine *e, struct batch *b, uint32_t dev, enum dev_op op, uint64_t offset,
		   uint32_t bytes, const struct iovec *iov, uint32_t iov_count)
{
	struct dio *d = dio_get(e, b);

	d->member = NO_MEMBER;
	d->dev = dev;
	d->op = op;
	d->kind = KIND_SB;
	d->flags = op == DEV_WRITE ? DEV_F_FUA : 0;
	d->offset = offset;
	d->bytes = bytes;
	d->iov = iov;
	d->iov_count = iov_count;
	d->region = 0;
	if (e->dev[dev].up)
		dio_send(e, d);
	else
		dio_gone(e, d, -ENXIO);
}

void dio_start_plan(struct engine *e, struct batch *b, const struct plan *p, enum dev_op op,
		    enum dev_kind kind, uint32_t flags, uint64_t region)
{
	for (uint32_t i = 0; i < p->req_count; i++) {
		const struct plan_req *r = &p->req[i];

		dio_start(e, b, r->member, op, kind, flags, r->offset, r->bytes,
			  p->iov + r->iov_first, r->iov_count, region);
	}
}

void flush_members(struct engine *e, struct batch *b, uint32_t mask)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1)
			dio_start(e, b, i, DEV_FLUSH, KIND_FLUSH, 0, 0, 0, NULL, 0, 0);
}

int plan_alloc(struct plan *p, const struct geo *g, uint32_t count)
{
	p->req_cap = plan_max_reqs(g, count);
	p->iov_cap = plan_max_iovs(g, count);
	p->req_count = p->iov_count = 0;
	p->req = malloc(p->req_cap * sizeof(*p->req) + p->iov_cap * sizeof(*p->iov));
	if (!p->req)
		return -ENOMEM;
	p->iov = (struct iovec *)(void *)(p->req + p->req_cap);
	return 0;
}

void plan_free(struct plan *p)
{
	free(p->req);
	p->req = NULL;
}

/*
 * What the member port says of a connection, no more: a local device may answer -ETIMEDOUT, -ENXIO
 * or the like, and then it is that request that failed (R14).
 */
static bool is_connection_error(int err)
{
	return err == -ECONNRESET || err == -ENOTCONN || err == -ESHUTDOWN;
}

const struct map *map_next(const struct engine *e)
{
	return e->proposing ? &e->prop : &e->map;
}

/* R3: the map can't do without it. */
bool member_indispensable(const struct engine *e, uint8_t member)
{
	const struct map *m = map_next(e);

	return map_insync_mask(m) >> member & 1 && map_count_insync(m) <= e->geo.k;
}

bool member_misread(const struct engine *e, uint8_t member)
{
	return e->bad[member] == MEMBER_MISSING && e->misread[member];
}

/* This node can't use `member` any more: it gets nothing until the map says otherwise. */
void member_bad(struct engine *e, uint8_t member, enum member_state want)
{
	if (member_misread(e, member))
		e->bad[member] = 0; /* whatever it is now weighs more */
	e->misread[member] = false;
	if (e->bad[member] == MEMBER_FAULTY || e->bad[member] == want)
		return;
	if (e->bad[member] == MEMBER_MISSING && want == MEMBER_SUSPECT)
		return;
	if (!e->bad[member])
		e->bad_instance[member] =
		    e->dev_of[member] != NO_DEV ? e->dev[e->dev_of[member]].instance : 0;
	e->bad[member] = (uint8_t)want;
	e->bad_us[member] = 0;
	if (e->dev_of[member] != NO_DEV && e->dev[e->dev_of[member]].under_way)
		out_add(e, OUT_DEV_CANCEL)->cancel.dev = e->dev_of[member];
}

/*
 * It answered a read with an error, but is there. As long as the others can do without it, it is
 * given up like any other. If they can't, the error is this read's alone: one bad sector is no
 * reason to stop the array. Nothing is cancelled: what it was sent, it may well carry out, and
 * it may be taken back.
 */
static void read_failed(struct engine *e, const struct dio *d)
{
	if (member_indispensable(e, d->member)) {
		d->b->unreadable |= 1u << d->member;
		return;
	}
	if (e->bad[d->member])
		return;
	e->bad[d->member] = MEMBER_MISSING;
	e->misread[d->member] = true;
	e->bad_us[d->member] = 0;
}

/* Another member left before the map could drop the one with a read error: so that one stays. */
static void misread_advance(struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (member_misread(e, i) && member_indispensable(e, i))
			e->bad[i] = 0;
}

static void dio_failed(struct engine *e, const struct dio *d)
{
	if (d->member == NO_MEMBER || d->err == -ECANCELED || !d->sent)
		return;
	if (!(map_write_mask(&e->map) >> d->member & 1) &&
	    !(e->proposing && map_write_mask(&e->prop) >> d->member & 1))
		return; /* it is out already */
	if (is_connection_error(d->err)) {
		member_bad(e, d->member, MEMBER_SUSPECT);
	} else if (d->op == DEV_FLUSH || d->flags & DEV_F_FUA) {
		e->dev[d->dev].flush_failed = true;
		e->bad_us[d->member] = 0;
		member_bad(e, d->member, MEMBER_FAULTY); /* R14 */
	} else if (d->op == DEV_READ) {
		read_failed(e, d);
	} else {
		member_bad(e, d->member, MEMBER_MISSING);
	}
}

static void dio_end(struct engine *e, struct dio *d)
{
	struct batch *b = d->b;
	uint32_t bit = 1u << (d->member == NO_MEMBER ? d->dev : d->member);

	if (d->err && d->sent && (d->op == DEV_WRITE || d->op == DEV_ZEROES))
		e->dev[d->dev].zombie = true;
	if (d->err) {
		dio_failed(e, d);
		b->failed |= bit;
		b->ok &= ~bit;
		b->err = d->err;
	} else if (!(b->failed & bit)) {
		b->ok |= bit;
	}
	d->used = false;
	list_add_tail(&e->dio_free, &d->link);
	batch_ref_drop(e, b);
}

static void dio_done(struct engine *e, const struct event *ev)
{
	uint32_t i = (uint32_t)ev->done.id;
	struct dio *d;

	assert(i < DIO_MAX);
	d = &e->dio[i];
	assert(d->used && d->sent && d->gen == ev->done.id >> 32);
	assert(e->dev[d->dev].under_way && e->dio_under_way);
	e->dev[d->dev].under_way--;
	e->dio_under_way--;
	d->err = ev->done.err;
	dio_end(e, d);
}

static void dio_advance(struct engine *e)
{
	list_for_each(it, tmp, &e->dio_held)
	{
		struct dio *d = list_entry(it, struct dio, link);

		if (!dio_may_go(e, d)) {
			dio_gone(e, d, -ECANCELED);
		} else if (gate_open(e)) {
			list_del(&d->link);
			dio_send(e, d);
		}
	}
	while (!list_empty(&e->dio_gone)) {
		struct dio *d = list_first(&e->dio_gone, struct dio, link);

		list_del(&d->link);
		dio_end(e, d);
	}
}

/* ---- devices -------------------------------------------------------------------------------- */

void devs_bind(struct engine *e)
{
	const struct map *map = e->proposing ? &e->prop : &e->map;

	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		e->dev_of[m] = NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &e->dev[i];

		d->member = NO_MEMBER;
		if (!d->up || !d->sb_ok)
			continue;
		for (uint8_t m = 0; m < map->n; m++) {
			if (memcmp(d->sb.member_uuid, map->member[m].uuid, DDR_UUID_BYTES) ||
			    e->dev_of[m] != NO_DEV)
				continue;
			d->member = m;
			e->dev_of[m] = i;
			if (!d->flush_failed || !(map_write_mask(map) >> m & 1) ||
			    e->bad[m] == MEMBER_FAULTY)
				continue;
			e->bad[m] = MEMBER_FAULTY;
			e->bad_us[m] = 0; /* told at once: before a proposal is acknowledged */
		}
	}
}

static void sb_read_done(struct engine *e, struct batch *b)
{
	struct dev *d = list_entry(b, struct dev, batch);
	struct superblock sb;
	bool any = false;

	d->reading = false;
	if (b->failed || d->stale_read) {
		d->retry_us = d->stale_read ? e->now : e->now + SB_RETRY_US;
		d->stale_read = false;
		return;
	}
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		if (sb_decode(&sb, d->buf[c], NULL) ||
		    memcmp(sb.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES))
			continue;
		if (!any || sb.seq > d->sb.seq)
			d->sb = sb;
		any = true;
	}
	d->sb_ok = d->fresh = any;
	if (any)
		geo_adopt(e, &d->sb);
	devs_bind(e);
}

static void sb_read(struct engine *e, uint32_t i)
{
	struct dev *d = &e->dev[i];

	d->reading = true;
	d->fresh = d->stale_read = false;
	d->retry_us = 0;
	batch_init(&d->batch, sb_read_done);
	batch_open(&d->batch);
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		d->iov[c] = (struct iovec){d->buf[c], DDR_BLOCK_BYTES};
		dio_start_raw(e, &d->batch, i, DEV_READ, geo_sb_offset(c), DDR_BLOCK_BYTES,
			      &d->iov[c], 1);
	}
	batch_close(e, &d->batch);
}

/* The fresh leader reads all superblocks anew: what was read at connecting may be old. */
void devs_reread(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->dev[i].up && e->dev[i].reading)
			e->dev[i].stale_read = true; /* that read may be from before */
		else if (e->dev[i].up)
			sb_read(e, i);
}

void dev_reread(struct engine *e, uint32_t dev)
{
	e->dev[dev].sb_ok = false; /* it has another one now */
	if (e->dev[dev].up && e->dev[dev].reading)
		e->dev[dev].stale_read = true;
	else if (e->dev[dev].up)
		sb_read(e, dev);
}

static void dev_up(struct engine *e, const struct event *ev)
{
	struct dev *d = &e->dev[ev->dev.dev];
	uint8_t m = 0;

	assert(ev->dev.dev < DDR_MAX_DEVS && !d->up);
	d->up = true;
	d->zombie = false;
	d->bytes = ev->dev.bytes;
	d->instance = ev->dev.instance;
	if (ev->dev.uri)
		strncpy(d->uri, ev->dev.uri, sizeof(d->uri) - 1);
	/* R17: an exporter that never went away has lost nothing. It is what it was when the member
	 * was lost first: the last connection may have been to another one already. */
	while (m < e->map.n && memcmp(d->sb.member_uuid, e->map.member[m].uuid, DDR_UUID_BYTES))
		m++;
	if (d->sb_ok && d->instance && m < e->map.n && d->instance == e->bad_instance[m] &&
	    e->bad[m] == MEMBER_SUSPECT && write_musts(e) & write_targets(e) & 1u << m)
		e->bad[m] = 0;
	d->sb_ok = d->fresh = false;
	if (!d->reading)
		sb_read(e, ev->dev.dev);
	else
		d->stale_read = true; /* the old connection's read is still ending */
}

static void dev_down(struct engine *e, const struct event *ev)
{
	struct dev *d = &e->dev[ev->dev.dev];
	uint8_t m = 0;

	d->up = false;
	/* Also one that is not bound just now, because its superblock is being read again. */
	while (m < e->map.n && memcmp(d->sb.member_uuid, e->map.member[m].uuid, DDR_UUID_BYTES))
		m++;
	if (d->member != NO_MEMBER)
		m = d->member;
	if (m >= DDR_MAX_MEMBERS || (m >= e->map.n && d->member == NO_MEMBER) ||
	    (e->dev_of[m] != NO_DEV && e->dev_of[m] != ev->dev.dev))
		return;
	if ((write_musts(e) | write_targets(e)) >> m & 1)
		member_bad(e, m, MEMBER_SUSPECT);
}

const char *engine_dev_stranger(const struct engine *e, uint32_t dev)
{
	const struct dev *d = &e->dev[dev];
	const struct map *map = e->proposing ? &e->prop : &e->map;

	if (!d->up || d->reading || d->retry_us || d->member != NO_MEMBER)
		return NULL;
	if (!d->sb_ok)
		return "it carries no superblock of this array";
	for (uint8_t m = 0; m < map->n; m++)
		if (!memcmp(d->sb.member_uuid, map->member[m].uuid, DDR_UUID_BYTES))
			return NULL; /* reached in another way, too */
	return map->n ? "it was a member of this array once, and is none now" : NULL;
}

static void devs_advance(struct engine *e)
{
	misread_advance(e);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &e->dev[i];

		/* A superblock that could not be read is tried again, now and then. */
		if (d->up && !d->reading && d->retry_us && e->now >= d->retry_us)
			sb_read(e, i);
	}
	/* A member that the map wants and this node has never reached. */
	for (uint8_t m = 0; e->have_map && m < e->map.n; m++)
		if (write_musts(e) >> m & 1 && !e->bad[m] && e->dev_of[m] == NO_DEV &&
		    e->phase == PH_READY && e->now - e->round_us > e->cfg.tun.evict_ms * 1000ull)
			member_bad(e, m, MEMBER_SUSPECT);
}

/* ---- life ----------------------------------------------------------------------------------- */

static int engine_setup(struct engine *e)
{
	struct record known = e->want_record; /* gone_add writes it anew */

	list_init(&e->dio_free);
	list_init(&e->dio_held);
	list_init(&e->dio_gone);
	list_init(&e->regions);
	list_init(&e->fios);
	list_init(&e->ops);
	list_init(&e->retry);
	list_init(&e->job_wait);
	list_init(&e->decoding);
	for (uint32_t i = 0; i < LOCK_BUCKETS; i++)
		list_init(&e->locks[i]);
	for (uint32_t i = 0; i < DIO_MAX; i++)
		list_add_tail(&e->dio_free, &e->dio[i].link);
	for (uint32_t i = 0; i < REGION_BUCKETS; i++)
		list_init(&e->region_hash[i]);
	for (uint8_t m = 0; m < DDR_MAX_MEMBERS; m++)
		e->dev_of[m] = NO_DEV;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		e->dev[i].member = NO_MEMBER;
	e->slot = NO_SLOT;
	e->state = ENGINE_JOINING;
	/* Whom an earlier incarnation of this node has seen removed, stays removed (R6). */
	for (uint32_t i = 0; i < known.removed_count && i < DDR_MAX_NODES; i++)
		gone_add(e, known.removed[i].node, known.removed[i].inc);
	return 0;
}

struct engine *engine_new(const struct engine_cfg *cfg)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->cfg = *cfg;
	e->inc = cfg->inc;
	e->record = e->sent_record = e->want_record = cfg->record;
	e->dio = calloc(DIO_MAX, sizeof(*e->dio));
	e->region_hash = calloc(REGION_BUCKETS, sizeof(*e->region_hash));
	e->ld.sb_buf = calloc(DDR_MAX_MEMBERS, DDR_BLOCK_BYTES);
	e->ld.rd_buf = calloc(2 * DDR_MAX_MEMBERS, DDR_BLOCK_BYTES);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		e->dev[i].buf = calloc(SB_COPIES, DDR_BLOCK_BYTES);
	assert(cfg->node && cfg->inc);
	if (!e->dio || !e->region_hash || !e->ld.sb_buf || !e->ld.rd_buf ||
	    !e->dev[DDR_MAX_DEVS - 1].buf || engine_setup(e)) {
		engine_free(e);
		return NULL;
	}
	e->recovery_count = 0; /* of an earlier life */
	return e;
}

static void engine_clear(struct engine *e)
{
	e->state = ENGINE_REMOVED; /* nothing is begun any more */
	rebuild_reset(e);
	slots_reset(e);
	io_free_all(e); /* before the regions, whose lists the ops are in */
	regions_drop_all(e);
	locktab_reset(e);
	dlog_reset(e);
	slots_free(e);
}

void engine_free(struct engine *e)
{
	struct outq q = {0};

	if (!e)
		return;
	e->q = &q;
	if (e->dio && e->region_hash)
		engine_clear(e);
	garbage_free(e);
	free(q.v);
	free(e->garbage);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		free(e->dev[i].buf);
	free(e->dio);
	free(e->region_hash);
	free(e->ld.sb_buf);
	free(e->ld.rd_buf);
	free(e);
}

/*
 * R6: begin again under a new incarnation. Devices stay open and known; all else is as new. No
 * request is under way any more.
 */
static void engine_restart(struct engine *e, uint64_t inc)
{
	struct engine *n, *old;

	assert(e->state == ENGINE_REMOVED && !e->dio_under_way && inc > e->inc);
	engine_clear(e);
	old = malloc(sizeof(*old));
	assert(old);
	*old = *e;
	n = e;
	memset(n, 0, sizeof(*n));
	n->cfg = old->cfg;
	n->inc = inc;
	n->now = old->now;
	n->q = old->q;
	n->record = old->record;
	n->sent_record = old->sent_record;
	n->want_record = old->want_record;
	n->record_busy = old->record_busy;
	n->garbage = old->garbage;
	n->garbage_count = old->garbage_count;
	n->garbage_cap = old->garbage_cap;
	memcpy(n->dev, old->dev, sizeof(n->dev));
	n->dio = old->dio;
	n->region_hash = old->region_hash;
	n->ld.sb_buf = old->ld.sb_buf;
	n->ld.rd_buf = old->ld.rd_buf;
	n->view_ring = old->view_ring;
	n->quorum_ring = old->quorum_ring;
	n->quorate = old->quorate;
	n->quorum_count = old->quorum_count;
	memcpy(n->quorum, old->quorum, sizeof(n->quorum));
	n->view_known = old->view_known;
	n->view_count = old->view_count;
	memcpy(n->view, old->view, sizeof(n->view));
	n->term_num = old->term_num;
	memcpy(n->buried, old->buried, sizeof(n->buried));
	memcpy(n->fence_ask, old->fence_ask, sizeof(n->fence_ask));
	n->buried_next = old->buried_next;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		n->dev[i].reading = n->dev[i].sb_ok = n->dev[i].fresh = false;
	engine_setup(n);
	memcpy(n->recovery, old->recovery, sizeof(n->recovery));
	n->recovery_count = old->recovery_count;
	for (uint32_t i = 0; i < n->view_count; i++)
		peer_get(n, n->view[i])->in_view = true;
	for (uint32_t i = 0; i < old->peer_count; i++) {
		struct peer *p = peer_get(n, old->peer[i].node);

		p->left = old->peer[i].left;
		p->dropped = old->peer[i].dropped;
	}
	free(old);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (n->dev[i].up)
			sb_read(n, i);
	nodemsg_join(n);
}

static void record_done(struct engine *e)
{
	assert(e->record_busy);
	e->record_busy = false;
	e->record = e->sent_record;
}

static void event_take(struct engine *e, const struct event *ev)
{
	switch (ev->type) {
	case EV_TICK:
		break;
	case EV_DEV_UP:
		dev_up(e, ev);
		break;
	case EV_DEV_DOWN:
		dev_down(e, ev);
		break;
	case EV_DEV_DONE:
		dio_done(e, ev);
		break;
	case EV_VIEW:
		round_view(e, ev);
		break;
	case EV_QUORUM:
		round_quorum(e, ev);
		break;
	case EV_MSG:
		msg_receive(e, ev);
		break;
	case EV_FENCE_DONE:
		leader_fence_done(e, ev);
		break;
	case EV_RECORD_DONE:
		record_done(e);
		break;
	case EV_IO:
		io_submit(e, ev);
		break;
	case EV_ADMIN:
		admin_submit(e, ev);
		break;
	case EV_LOCK_GRANTED:
		region_granted(e, ev->lock.id, ev->lock.mode, false);
		break;
	case EV_LOCK_REFUSED:
		region_granted(e, ev->lock.id, ev->lock.mode, true);
		break;
	case EV_LOCK_CALLBACK:
		region_called_back(e, ev->lock.id, ev->lock.mode);
		break;
	case EV_RESTART:
		engine_restart(e, ev->restart.inc);
		break;
	}
}

void engine_step(struct engine *e, const struct event *ev, struct outq *q)
{
	uint32_t before;

	assert(ev->now_us >= e->now);
	garbage_free(e);
	e->q = q;
	e->now = ev->now_us;
	event_take(e, ev);
	do {
		before = q->count;
		dio_advance(e);
		devs_advance(e);
		record_advance(e);
		round_advance(e);
		epoch_advance(e);
		leader_advance(e);
		dlog_advance(e);
		regions_advance(e);
		jobs_advance(e);
		io_advance(e);
		admin_look(e);
		if (e->state == ENGINE_STOPPED && !e->stopped && !e->dio_under_way) {
			e->stopped = true;
			out_add(e, OUT_STOPPED);
		}
	} while (q->count != before || !list_empty(&e->dio_gone));
	if (gate_open(e))
		e->heard_us = e->hb_sent_us;
}

uint64_t engine_heard_us(const struct engine *e)
{
	return e->heard_us;
}

uint64_t engine_deadline_us(const struct engine *e)
{
	uint64_t d = e->hb_next_us ? e->hb_next_us : e->now + IDLE_TICK_US;

	if (e->scan_us > e->now && e->scan_us < d)
		d = e->scan_us; /* one that is due waits for something else */
	return d > e->now ? d : e->now + 1000;
}

/* ---- looking in ----------------------------------------------------------------------------- */

const struct geo *engine_geo(const struct engine *e)
{
	return e->have_geo && e->have_map ? &e->geo : NULL;
}

uint32_t engine_slot(const struct engine *e)
{
	return e->slot_owned ? e->slot : NO_SLOT;
}

uint8_t engine_member_of_dev(const struct engine *e, uint32_t dev)
{
	return dev < DDR_MAX_DEVS ? e->dev[dev].member : NO_MEMBER;
}

enum lock_mode engine_lock_held(const struct engine *e, uint64_t id)
{
	const struct region *r;

	if (id >> 56 == LOCK_KIND_SLOT)
		return e->slot_owned && e->slot == (uint32_t)id ? LOCK_EX : LOCK_NONE;
	r = region_find(e, id & ((1ull << 56) - 1));
	return r ? r->held : LOCK_NONE;
}

const char *engine_state_name(enum engine_state s)
{
	static const char *const name[] = {
	    "waiting for quorum", "joining", "active", "removed", "refused", "stopped"};

	return (unsigned)s < sizeof(name) / sizeof(name[0]) ? name[s] : "?";
}

static void status_waits(const struct engine *e, struct engine_status *st)
{
	for (uint32_t i = 0; i < e->gone_count; i++) {
		if (e->gone[i].fenced)
			continue;
		st->waits = "the fence of a departed node";
		st->waits_node = e->gone[i].node;
		st->waits_since_us = e->gone[i].since_us;
		return;
	}
	st->waits_since_us = e->round_us ? e->round_us : e->now;
	if (e->ld.refused)
		st->waits = e->ld.why;
	else if (!e->view_known || !e->quorate)
		st->waits = "quorum";
	else if (!gate_open(e))
		st->waits = "the own heartbeat, or group and quorum to agree";
	else if (e->phase != PH_READY)
		st->waits = leading(e) && e->ld.why ? e->ld.why : "the leader's recovery";
	else if (!e->slot_owned)
		st->waits = "a free slot of the dirty log";
	else if (e->few_us) {
		st->waits = "members: fewer can be used than the data needs";
		st->waits_since_us = e->few_us;
	} else if (e->proposing) {
		st->waits = "a change of the map";
		st->waits_since_us = e->proposing_us;
	}
}

void engine_status(const struct engine *e, struct engine_status *st)
{
	memset(st, 0, sizeof(*st));
	st->state = e->state;
	if (e->state == ENGINE_JOINING && !(rings_agree(e) && e->quorate))
		st->state = ENGINE_WAIT_QUORUM;
	if (e->state == ENGINE_JOINING && e->ld.refused)
		st->state = ENGINE_REFUSED;
	st->io_allowed =
	    gate_open(e) && e->state == ENGINE_ACTIVE && e->phase == PH_READY && !e->few_us;
	st->leader = e->leader;
	st->leading = leading(e);
	st->map = e->map;
	st->proposing = e->proposing;
	st->proposed = e->prop;
	for (uint8_t i = 0; i < e->map.n; i++)
		if (e->bad[i] && map_write_mask(&e->map) >> i & 1)
			st->unusable |= 1u << i;
	for (uint32_t i = 0; i < e->peer_count; i++)
		st->nodes += e->peer[i].active && e->peer[i].in_view && !e->peer[i].evicted;
	st->unfenced = gone_unfenced(e);
	st->slots_unrecovered = slots_unrecovered(e);
	st->regions_dirty = dlog_count(e, false);
	st->regions_missed = dlog_count(e, true);
	st->regions_to_resync = regions_to_resync(e);
	st->resync_total = e->resync_total;
	st->rebuild_done = e->rb.done;
	st->rebuild_total = e->rb.total;
	st->ios = e->fio_count;
	st->dev_ios = e->dio_under_way;
	st->marks = e->n_marks;
	st->clears = e->n_clears;
	st->page_writes = e->n_page_writes;
	st->lock_requests = e->n_lock_requests;
	st->parity_fixed = e->n_parity_fixed;
	st->resync_bytes = e->n_resync_bytes;
	st->read_resync_bytes = e->n_read_resync_bytes;
	st->unreadable_reads = e->n_unreadable;
	st->unreadable = e->unreadable;
	st->unreadable_waits = e->rb.again_us > e->now || e->rec.again_us > e->now;
	st->recovery_count = e->recovery_count;
	memcpy(st->recovery, e->recovery, sizeof(st->recovery));
	if (!st->io_allowed || e->proposing)
		status_waits(e, st);
}
