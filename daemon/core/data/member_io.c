/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Member requests.
 *
 * A member request belongs to a batch; when the last request of a batch has ended, the
 * batch's owner is called. A request waits in member_io_held while the gate is closed (R7: no I/O
 * unless quorate and the own heartbeat is fresh) and ends without being sent, from member_io_gone,
 * when its member can't be used. So whoever makes requests needs to know neither of the gate nor of
 * connections: he looks at what the batch reached.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

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

/* R5: if nobody hears how it ended. */
static bool harms_late(const struct member_io *d)
{
	return (d->op == DEV_WRITE || d->op == DEV_ZEROES) && !(d->flags & DEV_F_LATE);
}

static void member_io_send(struct engine *e, struct member_io *d)
{
	struct out *o = out_add(e, OUT_DEV_IO);

	d->sent = d->b->sent = true;
	d->trial = d->member != NO_MEMBER && d->op != DEV_READ &&
		   !member_usable(e, d->member); /* see member_io_tries */
	e->d->wrote |= d->op != DEV_READ && d->kind != KIND_USE;
	e->d->dev_ios[d->dev]++;
	if (harms_late(d))
		dev_sent_as(e, d->dev, d->uuid);
	e->d->member_io_under_way++;
	if (d->member != NO_MEMBER)
		e->d->member_ios[d->member]++;
	o->io.id = (uint64_t)d->gen << 32 | (uint64_t)(d - e->d->member_io);
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
_Static_assert(MEMBER_IO_MAX > MEMBER_IO_SINGLE + MEMBER_IO_NOT_CONSUMERS + DDR_MAX_MEMBERS +
				   DDR_MAX_PARITY * (DDR_MAX_IO_BYTES / DDR_BLOCK_BYTES),
	       "the largest request of a consumer finds room, if it is alone");

/*
 * How many requests a read, a window or the pages of a slot come to depends on the geometry: on
 * the band (a read has a request for each band and member), on the number of log pages and of
 * regions with a job. No product of these is small enough to have them all, so they are counted.
 */
bool member_io_room(const struct engine *e, uint32_t count, bool consumer)
{
	return e->d->member_io_free_count >=
	       count + MEMBER_IO_SINGLE + (consumer ? MEMBER_IO_NOT_CONSUMERS : 0);
}

static struct member_io *member_io_get(struct engine *e, struct batch *b)
{
	struct member_io *d;

	/* What is not bounded by MEMBER_IO_SINGLE has asked member_io_room. */
	assert(!list_empty(&e->d->member_io_free));
	d = list_first(&e->d->member_io_free, struct member_io, link);
	list_del(&d->link);
	e->d->member_io_free_count--;
	d->gen++;
	d->used = true;
	d->sent = false;
	d->err = 0;
	d->b = b;
	b->pending++;
	return d;
}

static void member_io_gone(struct engine *e, struct member_io *d, int err)
{
	d->err = err;
	list_del(&d->link);
	list_add_tail(&e->d->member_io_gone, &d->link);
}

/* A member that answers writes with an error, and must stay: it is read, and writes try it. */
static bool member_io_tries(const struct engine *e, const struct member_io *d)
{
	if (d->kind == KIND_LOG && d->op == DEV_READ)
		return member_log_readable(e, d->member);
	if (d->kind != KIND_DATA)
		return false;
	if (d->op == DEV_READ)
		return member_unwritable(e, d->member);
	return !(d->flags & DEV_F_FUA) && member_on_trial(e, d->member);
}

static bool member_io_may_go(const struct engine *e, const struct member_io *d)
{
	uint32_t mask = d->op == DEV_READ ? map_write_mask(&e->map) : write_targets(e);

	return (member_usable(e, d->member) || member_io_tries(e, d)) && mask >> d->member & 1 &&
	       e->view.dev_of[d->member] == d->dev && e->state != ENGINE_REMOVED;
}

void member_io_start(struct engine *e, struct batch *b, uint8_t member, enum dev_op op,
		     enum dev_kind kind, uint32_t flags, uint64_t offset, uint32_t bytes,
		     const struct iovec *iov, uint32_t iov_count, uint64_t region)
{
	struct member_io *d = member_io_get(e, b);

	d->member = member;
	d->dev = e->view.dev_of[member];
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
	if (!member_io_may_go(e, d))
		member_io_gone(e, d, -ENXIO);
	else if (!gate_open(e))
		list_add_tail(&e->d->member_io_held, &d->link);
	else
		member_io_send(e, d);
}

/* One block, whatever the device is, and whether or not the gate is open. */
void member_io_start_raw(struct engine *e, struct batch *b, uint32_t dev, enum dev_op op,
			 enum dev_kind kind, uint64_t offset, const struct iovec *iov)
{
	struct member_io *d = member_io_get(e, b);

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
	/* R6: between two incarnations nothing is sent, though devices come up: when this one's
	 * last request has ended, the next one is on its way, and it reads all superblocks. */
	if (dev_connected(e, dev) && e->state != ENGINE_REMOVED)
		member_io_send(e, d);
	else
		member_io_gone(e, d, -ENXIO);
}

void flush_members(struct engine *e, struct batch *b, uint32_t mask)
{
	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1)
			member_io_start(e, b, i, DEV_FLUSH, KIND_FLUSH, 0, 0, 0, NULL, 0, 0);
}

/*
 * What the member port says of a connection, no more: a local device may answer -ETIMEDOUT, -ENXIO
 * or the like, and then it is that request that failed (R14).
 */
bool is_connection_error(int err)
{
	return err == -ECONNRESET || err == -ENOTCONN || err == -ESHUTDOWN;
}

static void member_io_failed(struct engine *e, struct member_io *d)
{
	struct dev_error f = {.member = d->member,
			      .dev = d->dev,
			      .op = d->op,
			      .flags = d->flags,
			      .offset = d->offset,
			      .err = d->err};

	if (d->member == NO_MEMBER || d->err == -ECANCELED || !d->sent)
		return;
	if (member_failed(e, &f))
		d->b->unreadable |= 1u << d->member;
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

static void member_io_end(struct engine *e, struct member_io *d)
{
	struct batch *b = d->b;
	uint32_t bit = 1u << (d->member == NO_MEMBER ? d->dev : d->member);

	if (d->err && d->sent && !is_answer(d->err) && harms_late(d))
		dev_unanswered(e, d->dev, d->uuid);
	if (d->err) {
		member_io_failed(e, d);
		b->failed |= bit;
		b->full |= no_space(d->err) ? bit : 0;
		b->ok &= ~bit;
		b->err = d->err;
	} else if (!(b->failed & bit)) {
		b->ok |= bit;
	}
	if (!d->err && d->sent && d->trial)
		member_wrote(e, d->member);
	d->used = false;
	list_add_tail(&e->d->member_io_free, &d->link);
	e->d->member_io_free_count++;
	batch_ref_drop(e, b);
}

void member_io_done(struct engine *e, const struct event *ev)
{
	uint32_t i = (uint32_t)ev->done.id;
	struct member_io *d;

	assert(i < MEMBER_IO_MAX);
	d = &e->d->member_io[i];
	assert(d->used && d->sent && d->gen == ev->done.id >> 32);
	assert(e->d->dev_ios[d->dev] && e->d->member_io_under_way);
	e->d->dev_ios[d->dev]--;
	e->d->member_io_under_way--;
	if (d->member != NO_MEMBER)
		e->d->member_ios[d->member]--;
	d->err = ev->done.err;
	member_io_end(e, d);
}

/* Ends what the member was sent, by whichever device. */
void member_ios_cancel(struct engine *e, uint8_t m)
{
	uint32_t devs = 0;

	for (uint32_t i = 0; e->d->member_ios[m] && i < MEMBER_IO_MAX; i++)
		if (e->d->member_io[i].used && e->d->member_io[i].sent &&
		    e->d->member_io[i].member == m)
			devs |= 1u << e->d->member_io[i].dev;
	for (; devs; devs &= devs - 1)
		out_add(e, OUT_DEV_CANCEL)->cancel.dev = (uint32_t)__builtin_ctz(devs);
}

void member_io_advance(struct engine *e)
{
	list_for_each(it, tmp, &e->d->member_io_held)
	{
		struct member_io *d = list_entry(it, struct member_io, link);

		if (!member_io_may_go(e, d)) {
			member_io_gone(e, d, -ECANCELED);
		} else if (gate_open(e)) {
			list_del(&d->link);
			member_io_send(e, d);
		}
	}
	while (!list_empty(&e->d->member_io_gone)) {
		struct member_io *d = list_first(&e->d->member_io_gone, struct member_io, link);

		list_del(&d->link);
		member_io_end(e, d);
	}
}

void member_io_held_end(struct engine *e)
{
	list_for_each(it, tmp, &e->d->member_io_held)
	{
		struct member_io *d = list_entry(it, struct member_io, link);

		if (d->b->consumer)
			member_io_gone(e, d, -ECANCELED);
	}
}

bool member_io_any(const struct engine *e)
{
	return e->d->member_io_under_way || !list_empty(&e->d->member_io_held);
}

uint32_t dev_ios(const struct engine *e, uint32_t dev)
{
	return e->d->dev_ios[dev];
}

bool member_ios(const struct engine *e, uint8_t m)
{
	return e->d->member_ios[m];
}
