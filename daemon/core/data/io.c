/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Front-end requests. Each is split at region boundaries into ops; an op is under way at the
 * members as one batch. What a member could not take waits in the list `retry` until the map says
 * that it need not, or the member is back: so a request never fails because a member did.
 *
 *   write  region (lock, mark) -> members -> every member of the committed map has it -> done
 *   read   data fragments, or decode; in a dead node's dirty region by way of a resync job (R18)
 *   flush  FLUSH on every member of the committed map
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

#define WRITE_TRIES 3u          /* of a write that a member refuses which takes others */
#define READ_AGAIN_US 500000ull /* a read that met a bad spot, while a member may come back */

void op_move(struct op *op, enum op_state to)
{
	static const uint8_t legal[] = {
	    [OPS_WAIT_REGION] = 1 << OPS_WAIT_REGION | 1 << OPS_WAIT_MARK | 1 << OPS_RETRY,
	    [OPS_WAIT_MARK] = 1 << OPS_IO,
	    [OPS_IO] = 1 << OPS_IO | 1 << OPS_RETRY,
	    [OPS_RETRY] = 1 << OPS_IO | 1 << OPS_RETRY,
	};

	assert(legal[op->state] >> to & 1);
	op->state = to;
}

static void front_request_check(struct engine *e, struct front_request *f)
{
	struct out *o;

	if (!f->split_done || f->parts)
		return;
	/* R6, R7: a node that may have been removed meanwhile answers nothing with success. */
	if (!f->err && e->state == ENGINE_ACTIVE && !gate_open(e)) {
		f->held = true;
		return;
	}
	if (!f->err && f->again && e->state == ENGINE_ACTIVE) {
		/* Marks and locks anew, for its regions may have been given up meanwhile. A write
		 * of the same blocks that was answered since was concurrent: either may be last. */
		f->next = f->offset;
		f->split_done = f->held = f->again = false;
		f->ended = 0;
		return;
	}
	o = out_add(e, OUT_IO_DONE);
	o->io_done.tag = f->tag;
	o->io_done.err = f->err;
	list_del(&f->link);
	e->d->front_request_count--;
	front_request_put(e, f);
}

static void op_job_free(struct op *op)
{
	if (!op->job)
		return;
	list_del(&op->job->link);
	list_del(&op->job->wait);
	job_free(op->job);
	free(op->job);
	op->job = NULL;
}

static void op_release(struct engine *e, struct op *op)
{
	list_del(&op->link);
	list_del(&op->all);
	e->d->op_count--;
	op_job_free(op);
	op_put(e, op);
}

/* The op is through; its region already knows. */
void op_done(struct engine *e, struct op *op, int err)
{
	struct front_request *f = op->f;

	if (err)
		f->err = err;
	op_release(e, op);
	f->parts--;
	f->ended++;
	front_request_check(e, f);
}

static void op_retry(struct engine *e, struct op *op)
{
	if (op->kind == OP_READ) {
		list_del(&op->link);
		list_add_tail(&e->d->retry, &op->link);
	}
	op_move(op, OPS_RETRY);
}

static bool is_write(const struct op *op)
{
	return op->kind == OP_WRITE || op->kind == OP_ZEROES;
}

/* ---- writes --------------------------------------------------------------------------------- */

static void write_finish(struct engine *e, struct op *op, int err)
{
	if (err)
		region_doubt(op->r); /* R12: release never clears it unchecked */
	region_op_done(e, op);
	op_done(e, op, err);
}

static void refusals_count(struct engine *e, struct op *op, uint32_t failed)
{
	uint32_t refused = 0;

	for (uint8_t i = 0; i < e->map.n; i++)
		if (failed >> i & 1 && member_unwritable(e, i))
			refused |= 1u << i;
	if (!refused)
		return;
	if (!op->refusals++)
		op->refused_us = e->now;
	op->refused = refused;
}

/*
 * The member must stay, and takes other writes: its use block at least. So these blocks are bad,
 * and waiting does not help: nothing durable would go there meanwhile, so that no round ended, and
 * no other member could come back. The error is this write's alone, as it is a disk's. For space it
 * is worth to wait.
 */
static bool write_is_lost(const struct engine *e, const struct op *op, uint32_t missing)
{
	if (op->refusals < WRITE_TRIES)
		return false;
	for (uint8_t i = 0; i < e->map.n; i++)
		if (op->refused & missing & 1u << i && member_unwritable(e, i) &&
		    member_wrote_since(e, i, op->refused_us))
			return true;
	return false;
}

static void write_ended(struct engine *e, struct stripes *s)
{
	struct op *op = list_entry(s, struct op, s);
	const struct batch *b = &s->batch;

	refusals_count(e, op, b->failed & ~b->full);
	op->ok |= b->ok;
	op->sent |= b->sent;
	if (e->state == ENGINE_REMOVED)
		op_done(e, op, -EIO);
	else if (write_musts(e) & ~op->ok)
		op_move(op, OPS_RETRY);
	else
		write_finish(e, op, 0);
}

static bool is_fua(const struct op *op)
{
	return op->f->flags & IO_F_FUA;
}

static void write_send(struct engine *e, struct op *op, uint32_t mask)
{
	uint32_t flags = is_fua(op) ? DEV_F_FUA : 0;

	if (op->kind == OP_ZEROES && op->f->flags & IO_F_UNMAP)
		flags |= DEV_F_UNMAP;
	if (!member_io_room(e, e->geo.n, true)) {
		op_move(op, OPS_RETRY);
		return;
	}
	op_move(op, OPS_IO);
	stripes_write(e, &op->s, mask, KIND_DATA, flags, write_ended);
}

/* Policy EIO: fewer than k members have been usable for so long that no change of the map is going
 * to help. Nor is a round: it can't end without them. Where quorum is what lacks, requests wait. */
static bool members_lost(const struct engine *e)
{
	return e->cfg.tun.eio_when_lost && e->d->few_us && e->view.phase >= PH_STATE &&
	       e->now - e->d->few_us > e->cfg.tun.evict_ms * 1000ull;
}

/* A member that must stay has refused writes for so long. A round ends only when none waits. */
static bool writes_refused(const struct engine *e, uint32_t missing)
{
	bool refused = false;

	for (uint8_t i = 0; i < e->map.n; i++)
		refused |= missing >> i & 1 && member_unwritable(e, i) &&
			   e->now - member_refused_us(e, i) > e->cfg.tun.evict_ms * 1000ull;
	return e->cfg.tun.eio_when_lost && refused && e->d->lacks_us && e->view.phase >= PH_STATE;
}

static void write_try(struct engine *e, struct op *op)
{
	uint32_t missing = write_musts(e) & ~op->ok, now = 0;

	if (!missing) {
		write_finish(e, op, 0);
		return;
	}
	if ((members_lost(e) && (!op->sent || devs_landed(e))) ||
	    (write_is_lost(e, op, missing) && devs_landed(e))) {
		write_finish(e, op, -EIO);
		return;
	}
	if (members_lost(e) && !gate_open(e))
		return;
	for (uint8_t i = 0; i < e->map.n; i++)
		if (missing & write_targets(e) & 1u << i &&
		    (member_usable(e, i) || (!is_fua(op) && member_on_trial(e, i))))
			now |= 1u << i;
	if (now)
		write_send(e, op, now);
	else if (writes_refused(e, missing) && devs_landed(e))
		write_finish(e, op, -EIO);
}

/* A read that decodes must not see half of a write: it is read again when the write is through. */
static void reads_spoil(struct engine *e, const struct op *w)
{
	list_for_each(it, tmp, &e->d->decoding)
	{
		struct op *op = list_entry(it, struct op, link);

		op->spoiled |=
		    op->s.first < w->s.first + w->s.count && w->s.first < op->s.first + op->s.count;
	}
}

/* What this member has answered may be gone from its cache (R17): writes that nobody has been told
 * of yet go to it again, unless it leaves the map. One of which parts are through begins anew. */
void io_lost(struct engine *e, uint8_t member)
{
	list_for_each(it, tmp, &e->d->ops)
	{
		struct op *op = list_entry(it, struct op, all);

		if (!is_write(op))
			continue;
		op->ok &= ~(1u << member);
		if (op->state == OPS_IO)
			op->s.batch.ok &= ~(1u << member);
	}
	list_for_each(it, tmp, &e->d->front_requests)
	{
		struct front_request *f = list_entry(it, struct front_request, link);

		f->again |= f->ended && (f->op == IO_WRITE || f->op == IO_ZEROES);
	}
}

bool io_writing(const struct engine *e)
{
	list_for_each(it, tmp, &e->d->ops)
	{
		const struct op *op = list_entry(it, struct op, all);

		if (is_write(op) && (op->state == OPS_IO || op->state == OPS_RETRY))
			return true;
	}
	return false;
}

bool io_tries(const struct engine *e, uint8_t member)
{
	list_for_each(it, tmp, &e->d->ops)
	{
		const struct op *op = list_entry(it, struct op, all);

		if (is_write(op) && !is_fua(op) && !(op->ok >> member & 1) &&
		    (op->state == OPS_IO || op->state == OPS_RETRY))
			return true;
	}
	return false;
}

/* Called by the region: lock held, mark durable. */
void io_start_op(struct engine *e, struct op *op)
{
	if (op->kind == OP_WRITE)
		stripes_encode(e, &op->s);
	else
		stripes_zero(&op->s);
	reads_spoil(e, op);
	write_send(e, op, write_targets(e));
}

/* ---- reads ---------------------------------------------------------------------------------- */

/*
 * A bad spot of a member, and none to decode it from: EIO, for this read only. But a member whose
 * connection broke, or that is being brought up to date after that, may bring it back: so wait for
 * it, as long as one waits for a member.
 */
static bool read_is_lost(struct engine *e, struct op *op)
{
	const struct map *m = map_next(e);
	bool returns = false;

	unreadable_met(e, op->s.batch.unreadable, op->s.first, op->s.count);
	if (!op->unreadable_us)
		op->unreadable_us = e->now;
	op->again_us = e->now + READ_AGAIN_US;
	for (uint8_t i = 0; i < m->n; i++)
		returns |= m->member[i].state == MEMBER_SUSPECT ||
			   (m->member[i].state == MEMBER_REBUILDING &&
			    m->member[i].flags & MEMBER_F_PARTIAL);
	return !returns || e->now - op->unreadable_us >= e->cfg.tun.member_retry_ms * 1000ull;
}

/* With a member missing. */
static bool is_decoded(const struct engine *e, const struct op *op)
{
	return op->s.rows != geo_all(&e->geo);
}

/* A proposal has a member in sync that is not so in the committed map. */
static bool promotes(const struct engine *e)
{
	return e->view.proposing && map_insync_mask(&e->view.prop) & ~map_insync_mask(&e->map);
}

static void read_ended(struct engine *e, struct stripes *s)
{
	struct op *op = list_entry(s, struct op, s);
	const struct batch *b = &s->batch;

	if (e->state == ENGINE_REMOVED) {
		op_done(e, op, -EIO);
		return;
	}
	if (b->unreadable && b->failed == b->unreadable && !op->spoiled && read_is_lost(e, op)) {
		e->d->n_unreadable++;
		op_done(e, op, -EIO);
		return;
	}
	if (b->failed || op->spoiled ||
	    (is_decoded(e, op) && (promotes(e) || map_insync_mask(&e->map) & ~op->insync))) {
		op_retry(e, op);
		return;
	}
	if (is_decoded(e, op)) {
		stripes_decode(e, s, geo_all(&e->geo) & ~s->rows);
		stripes_to_user(e, s, s->user);
	}
	op_done(e, op, 0);
}

static void repair_done(struct engine *e, struct job *j)
{
	struct op *op = j->arg;

	if (j->unreadable && e->state != ENGINE_REMOVED) {
		op_job_free(op); /* what is under way from now on is the op's own batch */
		op_retry(e, op); /* a member has left: as any degraded read */
	} else {
		op_done(e, op, e->state == ENGINE_REMOVED ? -EIO : 0);
	}
}

static void read_repair(struct engine *e, struct op *op)
{
	if (!op->job)
		op->job = malloc(sizeof(*op->job));
	if (!op->job)
		return;
	list_del(&op->link);
	op_move(op, OPS_IO);
	job_init(op->job, JOB_READ, repair_done, op);
	op->job->data = op->s.user;
	op->job->first = op->s.first;
	job_start(e, op->job, geo_region_of(&e->geo, op->s.first), op->s.first,
		  op->s.first + op->s.count);
}

/* Also those that take no writes now. */
static uint32_t data_mask(const struct engine *e)
{
	uint32_t mask = read_mask(e);

	for (uint8_t i = 0; i < e->map.n; i++)
		if (map_insync_mask(&e->map) >> i & 1 && member_unwritable(e, i))
			mask |= 1u << i;
	return mask;
}

static void read_try(struct engine *e, struct op *op)
{
	uint32_t rows = data_mask(e);

	if (e->view.phase != PH_READY || !gate_open(e) || e->now < op->again_us ||
	    region_read_waits(e, op))
		return; /* R18: until the dead slots are read */
	if (!map_degraded(&e->map) && region_foreign(e, geo_region_of(&e->geo, op->s.first))) {
		read_repair(e, op);
		return;
	}
	if (__builtin_popcount(rows) < e->geo.k)
		return;
	/*
	 * Only what a committed map has out is decoded around. Of a write whose node dies others
	 * may have the new content, and this member the old: if all nodes die, too, it is in sync
	 * again, and the old content would be read after the new one. The map is about to drop it.
	 * For the same reason nothing is decoded around a member that a proposal has in sync:
	 * others may know of the commit, and of a write whose node dies it may have the old.
	 */
	if (map_insync_mask(&e->map) & ~rows || promotes(e) ||
	    !member_io_room(e, plan_max_reqs(&e->geo, op->s.count), true))
		return;
	while (rows != geo_all(&e->geo) && __builtin_popcount(rows) > e->geo.k)
		rows &= rows - 1; /* k rows are enough */
	if (rows != geo_all(&e->geo) && !stripes_mem_window(&op->s, &e->geo, op->s.count))
		return; /* tried again at the next step */
	op->spoiled = false;
	op->insync = map_insync_mask(&e->map);
	list_del(&op->link);
	if (rows != geo_all(&e->geo))
		list_add_tail(&e->d->decoding, &op->link);
	op_move(op, OPS_IO);
	stripes_read(e, &op->s, rows, KIND_DATA, read_ended);
}

/* ---- flush ---------------------------------------------------------------------------------- */

static void flush_ended(struct engine *e, struct batch *b)
{
	struct front_request *f = list_entry(b, struct front_request, batch);

	f->flushing = false;
	f->flushed |= b->ok;
	if (e->state == ENGINE_REMOVED) {
		f->err = -EIO;
		front_request_check(e, f);
	}
}

static void flush_try(struct engine *e, struct front_request *f)
{
	uint32_t missing = write_musts(e) & ~f->flushed, now = 0;

	if (f->flushing || e->state != ENGINE_ACTIVE)
		return;
	if (members_lost(e) || writes_refused(e, missing)) {
		f->err = -EIO;
		f->split_done = true;
		front_request_check(e, f);
		return;
	}
	if (!missing) {
		f->split_done = true;
		front_request_check(e, f);
		return;
	}
	for (uint8_t i = 0; i < e->map.n; i++)
		if (missing & write_targets(e) & 1u << i && member_usable(e, i))
			now |= 1u << i;
	if (!now || !member_io_room(e, e->geo.n, true))
		return;
	f->flushing = true;
	batch_init(&f->batch, flush_ended);
	f->batch.consumer = true;
	batch_open(&f->batch);
	flush_members(e, &f->batch, now);
	batch_close(e, &f->batch);
}

/* ---- in and out ----------------------------------------------------------------------------- */

static int op_new(struct engine *e, struct front_request *f, uint64_t stripe, uint32_t count)
{
	struct op *op = op_get(e);

	if (!op)
		return -ENOMEM;
	op->kind = f->op == IO_READ ? OP_READ : f->op == IO_WRITE ? OP_WRITE : OP_ZEROES;
	op->f = f;
	stripes_set(&op->s, stripe, count);
	op->s.consumer = true;
	list_init(&op->link);
	op->s.user = f->data ? f->data + (stripe * e->geo.p.stripe_bytes - f->offset) : NULL;
	if (op->kind != OP_ZEROES &&
	    !stripes_mem_user(&op->s, &e->geo, count, op->kind == OP_WRITE)) {
		op_put(e, op);
		return -ENOMEM;
	}
	list_add_tail(&e->d->ops, &op->all);
	e->d->op_count++;
	f->parts++;
	if (!is_write(op)) {
		op_retry(e, op);
		return 0;
	}
	op->r = region_get(e, geo_region_of(&e->geo, stripe));
	region_op_add(e, op);
	return 0;
}

/* The next region of a sequential writer is marked while this one is being written. */
static void mark_ahead(struct engine *e, const struct front_request *f)
{
	uint64_t end = f->offset + f->bytes;
	uint64_t region = geo_region_of(&e->geo, (end - 1) / e->geo.p.stripe_bytes) + 1;
	struct region *r;

	if (!e->cfg.tun.mark_ahead || f->offset != e->d->last_end || region >= e->geo.regions)
		return;
	r = region_find(e, region);
	if (r && r->want_mark)
		return;
	r = region_get(e, region);
	r->last_us = e->now;
	dlog_mark(e, r);
}

static void front_request_split(struct engine *e, struct front_request *f)
{
	uint64_t end = f->offset + f->bytes;

	while (f->next < end && e->d->op_count < MAX_ACTIVE_OPS) {
		uint32_t s = e->geo.p.stripe_bytes;
		uint64_t stripe = f->next / s;
		uint64_t region = geo_region_of(&e->geo, stripe);
		uint64_t stop =
		    geo_region_first(&e->geo, region) + geo_region_count(&e->geo, region);
		uint64_t count = (end - f->next) / s;

		if (count > stop - stripe)
			count = stop - stripe;
		if (count > DDR_MAX_IO_BYTES / s)
			count = DDR_MAX_IO_BYTES / s;
		f->next += count * s;
		if (f->next == end)
			f->split_done = true;
		if (op_new(e, f, stripe, (uint32_t)count)) {
			f->err = -ENOMEM;
			f->split_done = true;
			front_request_check(e, f);
			return;
		}
		if (f->op != IO_READ && f->next == end) {
			/* f may be gone already, if its ops ended at once: they can't, a write
			 * waits for at least one answer. */
			mark_ahead(e, f);
			e->d->last_end = end;
			return;
		}
	}
}

static bool front_request_bad(const struct engine *e, const struct front_request *f)
{
	uint32_t s = e->geo.p.stripe_bytes;

	return (!f->data && f->op != IO_ZEROES) || !f->bytes || f->offset % s || f->bytes % s ||
	       f->bytes > DDR_MAX_FRONT_IO_BYTES || f->offset > e->geo.size_bytes ||
	       f->bytes > e->geo.size_bytes - f->offset;
}

void io_submit(struct engine *e, const struct event *ev)
{
	struct front_request *f = front_request_get(e);

	assert(f);
	f->tag = ev->io.tag;
	f->op = ev->io.op;
	f->flags = ev->io.flags;
	f->offset = f->next = ev->io.offset;
	f->bytes = ev->io.bytes;
	f->data = ev->io.data;
	list_add_tail(&e->d->front_requests, &f->link);
	e->d->front_request_count++;
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || e->view.stopping)
		f->err = e->state == ENGINE_REMOVED ? -EIO : -ESHUTDOWN;
	else if ((unsigned)f->op > IO_ZEROES ||
		 (e->view.have_geo && f->op != IO_FLUSH && front_request_bad(e, f)))
		f->err = -EINVAL;
	if (f->err) {
		f->split_done = true;
		front_request_check(e, f);
	}
}

static void front_requests_advance(struct engine *e)
{
	uint32_t n = 0;

	list_for_each(it, tmp, &e->d->front_requests)
	{
		struct front_request *f = list_entry(it, struct front_request, link);

		if (n++ >= e->cfg.max_ios)
			return;
		if (f->held) {
			if (members_lost(e))
				f->err = -EIO;
			if (f->err || gate_open(e))
				front_request_check(e, f);
		} else if (f->op == IO_FLUSH) {
			flush_try(e, f);
		} else if (!f->split_done) {
			if (front_request_bad(e, f)) {
				f->err = -EINVAL;
				f->split_done = true;
				front_request_check(e, f);
			} else {
				front_request_split(e, f);
			}
		}
	}
}

/* Of what no member has been sent. False: nothing more. */
static bool lost_one(struct engine *e)
{
	list_for_each(it, tmp, &e->d->ops)
	{
		struct op *op = list_entry(it, struct op, all);

		if (is_write(op)) {
			if (op->state != OPS_WAIT_REGION && op->state != OPS_WAIT_MARK)
				continue;
			region_op_cancel(e, op);
		} else if (op->job && op->state == OPS_IO) {
			if (job_busy(op->job))
				continue;
			job_cancel(e, op->job);
		} else if (op->state != OPS_RETRY) {
			continue;
		}
		op_done(e, op, -EIO);
		return true; /* the list may have changed */
	}
	return false;
}

/* A mark must be durable, and is not tried at a member that refuses writes. The others get to
 * their turn, or read. */
static bool unmarkable_one(struct engine *e)
{
	list_for_each(it, tmp, &e->d->ops)
	{
		struct op *op = list_entry(it, struct op, all);

		if (op->state != OPS_WAIT_MARK)
			continue;
		region_op_cancel(e, op);
		op_done(e, op, -EIO);
		return true;
	}
	return false;
}

/* What is at the members is waited for; what has been, see write_try. */
static void lost_advance(struct engine *e)
{
	if (e->state != ENGINE_ACTIVE)
		return;
	if (members_lost(e)) {
		if (!gate_open(e))
			member_io_held_end(e);
		while (lost_one(e))
			;
	} else if (writes_refused(e, write_musts(e))) {
		while (unmarkable_one(e))
			;
	}
}

/* Who does not serve yet renews no lease, however long its round takes. */
static bool lease_lacks(const struct engine *e)
{
	return e->state == ENGINE_ACTIVE && use_hangs(e);
}

void io_advance(struct engine *e)
{
	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || !e->view.have_map)
		return;
	if ((__builtin_popcount(data_mask(e)) >= e->geo.k && !lease_lacks(e)) || !gate_but_lease(e))
		e->d->few_us = 0;
	else if (!e->d->few_us)
		e->d->few_us = e->now;
	if (members_ready(e, write_musts(e) & write_targets(e)) || !gate_open(e))
		e->d->lacks_us = 0;
	else if (!e->d->lacks_us)
		e->d->lacks_us = e->now;
	lost_advance(e);
	if (e->state == ENGINE_ACTIVE)
		front_requests_advance(e);
	list_for_each(it, tmp, &e->d->ops)
	{
		struct op *op = list_entry(it, struct op, all);

		if (op->state == OPS_RETRY && is_write(op))
			write_try(e, op);
	}
	list_for_each(it, tmp, &e->d->retry)
	{
		read_try(e, list_entry(it, struct op, link));
	}
}

/* R6: everything that is not at the members ends now, the rest when they have answered. */
void io_abort_all(struct engine *e, int err)
{
	list_for_each(it, tmp, &e->d->front_requests)
	{
		struct front_request *f = list_entry(it, struct front_request, link);

		f->err = err;
		f->split_done = true;
		if (!f->flushing)
			front_request_check(e, f);
	}
	list_for_each(it, tmp, &e->d->ops)
	{
		struct op *op = list_entry(it, struct op, all);

		if (op->job && op->state == OPS_IO) {
			if (job_busy(op->job))
				continue;
			list_del(&op->job->link);
			list_del(&op->job->wait);
		} else if (op->state == OPS_IO && op->s.batch.pending) {
			continue;
		}
		op_done(e, op, err);
	}
}

void io_free_all(struct engine *e)
{
	while (!list_empty(&e->d->ops))
		op_release(e, list_first(&e->d->ops, struct op, all));
	while (!list_empty(&e->d->front_requests)) {
		struct front_request *f =
		    list_first(&e->d->front_requests, struct front_request, link);

		list_del(&f->link);
		free(f);
	}
	e->d->front_request_count = 0;
	pool_free(e);
}

bool io_any(const struct engine *e)
{
	return !list_empty(&e->d->front_requests);
}
