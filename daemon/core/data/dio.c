/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Member requests, and what their errors say of the member.
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

#include "daemon/core/engine_int.h"

#define WRITE_AGAIN_US 1000000ull /* a member that must stay is tried again after so long */

void batch_init(struct batch *b, void (*done)(struct engine *, struct batch *))
{
	memset(b, 0, sizeof(*b));
	b->done = done;
}

void batch_open(struct batch *b)
{
	assert(!b->pending);
	b->pending = 1;
	b->ok = b->failed = b->unreadable = b->full = 0;
	b->sent = false;
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

	return d != NO_DEV && e->dev[d].up && !e->dev[d].back.due && !e->bad[member];
}

/* Whoever needs every member waits for this first, so that he does not try in vain over and over.
 */
bool members_ready(const struct engine *e, uint32_t mask)
{
	for (; mask; mask &= mask - 1)
		if (!member_usable(e, (uint8_t)__builtin_ctz(mask)))
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
		    !e->dev[e->dev_of[i]].back.due &&
		    (!e->bad[i] || !(map_write_mask(&e->map) >> i & 1)))
			mask |= 1u << i;
	return mask;
}

static void dio_send(struct engine *e, struct dio *d)
{
	struct out *o = out_add(e, OUT_DEV_IO);

	d->sent = d->b->sent = true;
	d->trial = d->member != NO_MEMBER && d->op != DEV_READ && e->bad[d->member];
	e->wrote |= d->op != DEV_READ && d->kind != KIND_USE;
	e->dev[d->dev].under_way++;
	e->dio_under_way++;
	if (d->member != NO_MEMBER)
		e->member_ios[d->member]++;
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

/* A plan has at most one request for each band and member beside one for each member. */
_Static_assert(DIO_MAX > DIO_SINGLE + DIO_NOT_CONSUMERS + DDR_MAX_MEMBERS +
			     DDR_MAX_PARITY * (DDR_MAX_IO_BYTES / DDR_BLOCK_BYTES),
	       "the largest request of a consumer finds room, if it is alone");

/*
 * How many requests a read, a window or the pages of a slot come to depends on the geometry: on
 * the band (a read has a request for each band and member), on the number of log pages and of
 * regions with a job. No product of these is small enough to have them all, so they are counted.
 */
bool dio_room(const struct engine *e, uint32_t count, bool consumer)
{
	return e->dio_free_count >= count + DIO_SINGLE + (consumer ? DIO_NOT_CONSUMERS : 0);
}

static struct dio *dio_get(struct engine *e, struct batch *b)
{
	struct dio *d;

	/* What is not bounded by DIO_SINGLE has asked dio_room. */
	assert(!list_empty(&e->dio_free));
	d = list_first(&e->dio_free, struct dio, link);
	list_del(&d->link);
	e->dio_free_count--;
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

/* It was lost in this life, and is back as what it was; see log_rows in slots.c. */
bool member_log_readable(const struct engine *e, uint8_t member)
{
	uint32_t d = e->dev_of[member];

	return e->state == ENGINE_JOINING && leading(e) &&
	       (e->bad[member] == MEMBER_SUSPECT || member_misread(e, member)) && d != NO_DEV &&
	       e->dev[d].sb_ok && member_back(e, member);
}

/* A member that answers writes with an error, and must stay: it is read, and writes try it. */
static bool dio_tries(const struct engine *e, const struct dio *d)
{
	if (d->kind == KIND_LOG && d->op == DEV_READ)
		return member_log_readable(e, d->member);
	if (d->kind != KIND_DATA)
		return false;
	if (d->op == DEV_READ)
		return member_unwritable(e, d->member);
	return !(d->flags & DEV_F_FUA) && member_on_trial(e, d->member);
}

static bool dio_may_go(const struct engine *e, const struct dio *d)
{
	uint32_t mask = d->op == DEV_READ ? map_write_mask(&e->map) : write_targets(e);

	return (member_usable(e, d->member) || dio_tries(e, d)) && mask >> d->member & 1 &&
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
	if ((op == DEV_WRITE || op == DEV_ZEROES) && offset + bytes == geo_end(&e->geo))
		d->flags |= DEV_F_END;
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

/* One block, whatever the device is, and whether or not the gate is open. */
void dio_start_raw(struct engine *e, struct batch *b, uint32_t dev, enum dev_op op,
		   enum dev_kind kind, uint64_t offset, const struct iovec *iov)
{
	struct dio *d = dio_get(e, b);

	d->member = NO_MEMBER;
	d->dev = dev;
	d->op = op;
	d->kind = kind;
	d->flags = 0;
	if (op == DEV_WRITE)
		d->flags = kind == KIND_USE ? DEV_F_LATE : DEV_F_FUA;
	d->offset = offset;
	d->bytes = (uint32_t)iov->iov_len;
	d->iov = iov;
	d->iov_count = 1;
	d->region = 0;
	/* R6: between two lives nothing is sent, though devices come up: when this one's last
	 * request has ended, the next life is on its way, and it reads all superblocks. */
	if (e->dev[dev].up && e->state != ENGINE_REMOVED)
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
	size_t bytes;

	p->req_cap = plan_max_reqs(g, count);
	p->iov_cap = plan_max_iovs(g, count);
	p->req_count = p->iov_count = 0;
	bytes = p->req_cap * sizeof(*p->req) + p->iov_cap * sizeof(*p->iov);
	if (!p->req || p->bytes < bytes) {
		plan_free(p);
		p->req = malloc(bytes);
		if (!p->req)
			return -ENOMEM;
		p->bytes = bytes;
	}
	p->iov = (struct iovec *)(void *)(p->req + p->req_cap);
	return 0;
}

void plan_free(struct plan *p)
{
	free(p->req);
	p->req = NULL;
	p->bytes = 0;
}

/*
 * What the member port says of a connection, no more: a local device may answer -ETIMEDOUT, -ENXIO
 * or the like, and then it is that request that failed (R14).
 */
bool is_connection_error(int err)
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

/* It is the life before that lost it, and no other reason is known; nor that its exporter has been
 * away. */
bool member_lost_earlier(const struct engine *e, uint8_t member)
{
	const struct dev *d = e->dev_of[member] == NO_DEV ? NULL : &e->dev[e->dev_of[member]];

	return e->bad[member] == MEMBER_SUSPECT && e->lost_earlier >> member & 1 &&
	       !(d && d->up && d->instance && e->bad_instance[member] &&
		 d->instance != e->bad_instance[member]);
}

/* This node can't use `member` any more: it gets nothing until the map says otherwise. */
void member_bad(struct engine *e, uint8_t member, enum member_state want)
{
	if (member_misread(e, member))
		e->bad[member] = 0; /* whatever it is now weighs more */
	e->misread[member] = false;
	e->write_again_us[member] = 0;
	if (e->lost_earlier >> member & 1)
		e->bad_us[member] = 0; /* told anew */
	e->lost_earlier &= ~(1u << member);
	if (e->bad[member] == MEMBER_FAULTY || e->bad[member] == want)
		return;
	if (e->bad[member] == MEMBER_MISSING && want == MEMBER_SUSPECT)
		return;
	if (!e->bad[member]) {
		e->bad_since_us[member] = e->now;
		e->bad_instance[member] =
		    e->dev_of[member] != NO_DEV ? e->dev[e->dev_of[member]].instance : 0;
	}
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
	e->write_again_us[d->member] = 0;
	e->bad_us[d->member] = 0;
}

/*
 * It answered a write with an error: it has no space, say. As long as the others can do without it,
 * it is given up. If they can't, the write waits, its region marked and under its lock, and is
 * tried again now and then, with all others that wait: until one has gone through the member gets
 * nothing else. For what must be durable is not tried (R14): a mark that failed, or a superblock,
 * would end the member for good. Nothing is lost meanwhile: what it had it has, but for these
 * blocks, and they are read when their write is through. So reads go on.
 */
static void write_failed(struct engine *e, const struct dio *d)
{
	if (!(map_insync_mask(map_next(e)) >> d->member & 1)) {
		member_bad(e, d->member, MEMBER_MISSING);
		return;
	}
	if (e->bad[d->member] && !member_misread(e, d->member))
		return;
	if (!e->bad[d->member])
		e->bad_us[d->member] = 0;
	if (!e->write_again_us[d->member])
		e->refused_us[d->member] = e->now;
	e->bad[d->member] = MEMBER_MISSING;
	e->misread[d->member] = true;
	e->write_again_us[d->member] = e->now + WRITE_AGAIN_US;
}

bool member_unwritable(const struct engine *e, uint8_t member)
{
	uint32_t d = e->dev_of[member];

	return d != NO_DEV && e->dev[d].up && member_misread(e, member) &&
	       e->write_again_us[member] && member_indispensable(e, member);
}

bool member_on_trial(const struct engine *e, uint8_t member)
{
	return member_unwritable(e, member) && e->now >= e->write_again_us[member];
}

static void member_taken_back(struct engine *e, uint8_t member)
{
	e->bad[member] = 0;
	e->misread[member] = false;
	e->write_again_us[member] = 0;
	e->error[member].err = 0;
}

/* A write of this node's use block, which need not be durable, began after the last refusal. */
static bool writes_again(const struct engine *e, uint8_t member)
{
	return !e->cfg.tun.claim_ms ||
	       use_wrote_us(e, e->dev_of[member]) > e->write_again_us[member] - WRITE_AGAIN_US;
}

/* Another member left before the map could drop the one with an error: so that one stays. Of one
 * that a write tries, the write says whether it can be used; if none waits, the use block does:
 * were a mark the first to try, its error would end the member for good. */
void misread_advance(struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++) {
		if (!member_misread(e, i) || !member_indispensable(e, i))
			continue;
		if (!e->write_again_us[i])
			e->bad[i] = 0;
		else if (member_on_trial(e, i) && !io_tries(e, i) && writes_again(e, i))
			member_taken_back(e, i);
	}
}

static void error_note(struct engine *e, const struct dio *d)
{
	struct member_error *x = &e->error[d->member];

	x->err = d->err;
	x->op = d->op;
	x->fua = d->flags & DEV_F_FUA;
	x->offset = d->offset;
	x->us = e->now;
	x->count++;
}

static void dio_failed(struct engine *e, const struct dio *d)
{
	if (d->member == NO_MEMBER || d->err == -ECANCELED || !d->sent)
		return;
	if (!(map_write_mask(&e->map) >> d->member & 1) &&
	    !(e->proposing && map_write_mask(&e->prop) >> d->member & 1))
		return; /* it is out already */
	if (!is_connection_error(d->err) &&
	    !(d->op == DEV_READ && member_indispensable(e, d->member)))
		error_note(e, d); /* unreadable_met() tells of the rest */
	if (is_connection_error(d->err)) {
		member_bad(e, d->member, MEMBER_SUSPECT);
	} else if (d->op == DEV_FLUSH || d->flags & DEV_F_FUA) {
		e->dev[d->dev].flush_failed = true;
		memcpy(e->dev[d->dev].failed_uuid, e->dev[d->dev].sb.member_uuid, DDR_UUID_BYTES);
		e->bad_us[d->member] = 0;
		member_bad(e, d->member, MEMBER_FAULTY); /* R14 */
	} else if (d->op == DEV_READ) {
		read_failed(e, d);
	} else {
		write_failed(e, d);
	}
}

static bool no_space(int err)
{
	return err == -ENOSPC || err == -EDQUOT;
}

/* Its answer says that it is over: nothing of it lands any more. */
static bool is_answer(int err)
{
	return !is_connection_error(err) && err != -ECANCELED;
}

static void dio_end(struct engine *e, struct dio *d)
{
	struct batch *b = d->b;
	uint32_t bit = 1u << (d->member == NO_MEMBER ? d->dev : d->member);

	if (d->err && d->sent && !is_answer(d->err) &&
	    (d->op == DEV_WRITE || d->op == DEV_ZEROES) && !(d->flags & DEV_F_LATE)) {
		e->dev[d->dev].zombie = true;
		e->dev[d->dev].zombie_us = e->now;
	}
	if (d->err) {
		dio_failed(e, d);
		b->failed |= bit;
		b->full |= no_space(d->err) ? bit : 0;
		b->ok &= ~bit;
		b->err = d->err;
	} else if (!(b->failed & bit)) {
		b->ok |= bit;
	}
	if (!d->err && d->sent && d->trial && member_unwritable(e, d->member))
		member_taken_back(e, d->member);
	d->used = false;
	list_add_tail(&e->dio_free, &d->link);
	e->dio_free_count++;
	batch_ref_drop(e, b);
}

void dio_done(struct engine *e, const struct event *ev)
{
	uint32_t i = (uint32_t)ev->done.id;
	struct dio *d;

	assert(i < DIO_MAX);
	d = &e->dio[i];
	assert(d->used && d->sent && d->gen == ev->done.id >> 32);
	assert(e->dev[d->dev].under_way && e->dio_under_way);
	e->dev[d->dev].under_way--;
	e->dio_under_way--;
	if (d->member != NO_MEMBER)
		e->member_ios[d->member]--;
	d->err = ev->done.err;
	dio_end(e, d);
}

/* Ends what the member was sent, by whichever device. */
void member_ios_cancel(struct engine *e, uint8_t m)
{
	uint32_t devs = 0;

	for (uint32_t i = 0; e->member_ios[m] && i < DIO_MAX; i++)
		if (e->dio[i].used && e->dio[i].sent && e->dio[i].member == m)
			devs |= 1u << e->dio[i].dev;
	for (; devs; devs &= devs - 1)
		out_add(e, OUT_DEV_CANCEL)->cancel.dev = (uint32_t)__builtin_ctz(devs);
}

void dio_advance(struct engine *e)
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

void dio_held_end(struct engine *e, void (*done)(struct engine *e, struct batch *b))
{
	list_for_each(it, tmp, &e->dio_held)
	{
		struct dio *d = list_entry(it, struct dio, link);

		if (d->b->done == done)
			dio_gone(e, d, -ECANCELED);
	}
}
