// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The way of a request: it waits in its queue, EXCHANGE hands it to the session and takes the
 * answer. ddraid.h has the locks.
 *
 *	 queue_rq	     EXCHANGE		DONE
 *	---------> WAITING ----------> HANDED ---------> completed (FREE)
 *		      ^			 |
 *		      +-- session ends --+	in the order in which they were handed out
 *
 * A disk without a session for longer than away_ms fails what is WAITING, and what comes, until
 * it has one again. A disk that was revoked fails all, HANDED or not, for ever.
 *
 * Who completes a request: whoever took it out of its queue's lists under queue->lock. HANDED ones
 * are taken by the session, under its mutex, or when there is no session any more; so between
 * finding a HANDED request and taking it out the session may copy its data without that lock.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "ddraid.h"

#define DD_TAG_BITS 16 /* of a request's tag: within its queue; the queue is above */

/* For all disks: an answer never fits another disk's request. */
static atomic64_t dd_pass;

/* ---- requests, from the block layer ---- */

void ddr_wake(struct dd_disk *disk)
{
	struct dd_session *s;

	rcu_read_lock();
	s = rcu_dereference(disk->session);
	if (s)
		wake_up_interruptible_poll(&s->wait, EPOLLIN | EPOLLRDNORM);
	rcu_read_unlock();
}

static bool dd_serves(const struct dd_disk *disk, struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
	case REQ_OP_FLUSH:
		return true;
	case REQ_OP_WRITE:
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		return !(disk->is.flags & DDRAID_READ_ONLY);
	default:
		return false;
	}
}

/* The block layer sees to it; a daemon may count in blocks, with buffers of that size. */
static bool dd_aligned(const struct dd_disk *disk, struct request *rq)
{
	u64 both = (u64)blk_rq_pos(rq) << SECTOR_SHIFT | blk_rq_bytes(rq);

	return req_op(rq) == REQ_OP_FLUSH || !(both & (disk->is.logical_block - 1));
}

static blk_status_t dd_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct dd_queue *q = hctx->driver_data;
	struct dd_disk *disk = hctx->queue->queuedata;
	struct request *rq = bd->rq;
	struct dd_rq *r = blk_mq_rq_to_pdu(rq);
	bool first;

	if (!dd_serves(disk, rq) || !dd_aligned(disk, rq))
		return BLK_STS_IOERR;
	spin_lock(&q->lock);
	if (q->failing || WARN_ON_ONCE(q->tag[rq->tag])) {
		spin_unlock(&q->lock);
		return BLK_STS_IOERR;
	}
	blk_mq_start_request(rq);
	first = list_empty(&q->waiting);
	list_add_tail(&r->entry, &q->waiting);
	r->state = DD_WAITING;
	q->tag[rq->tag] = rq;
	q->waiting_count++;
	q->requests++;
	spin_unlock(&q->lock);
	/* From here on rq may be completed, and another by now. */
	if (first)
		ddr_wake(disk);
	return BLK_STS_OK;
}

static void dd_complete(struct request *rq)
{
	struct dd_rq *r = blk_mq_rq_to_pdu(rq);

	blk_mq_end_request(rq, r->status);
}

/* The daemon may take as long as it has to: it holds I/O while a node is fenced. */
static enum blk_eh_timer_return dd_timeout(struct request *rq)
{
	return BLK_EH_RESET_TIMER;
}

static int dd_init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	struct dd_disk *disk = data;

	hctx->driver_data = &disk->queue[index];
	return 0;
}

const struct blk_mq_ops ddr_mq_ops = {
	.queue_rq = dd_queue_rq,
	.complete = dd_complete,
	.timeout = dd_timeout,
	.init_hctx = dd_init_hctx,
};

/* Under its queue's lock: it is in no list any more, and the caller's to complete. */
static void dd_take_out(struct dd_queue *q, struct dd_rq *r)
{
	list_del_init(&r->entry);
	if (r->state == DD_WAITING)
		q->waiting_count--;
	else
		q->handed_count--;
	r->state = DD_FREE;
	q->tag[blk_mq_rq_from_pdu(r)->tag] = NULL;
}

static void dd_answer(struct dd_rq *r, blk_status_t status)
{
	r->status = status;
	blk_mq_complete_request(blk_mq_rq_from_pdu(r));
}

void ddr_fail_all(struct dd_disk *disk, bool handed)
{
	unsigned int i;

	for (i = 0; i < disk->is.queues; i++) {
		struct dd_queue *q = &disk->queue[i];
		struct dd_rq *r;

		spin_lock(&q->lock);
		q->failing = true;
		for (;;) {
			r = list_first_entry_or_null(&q->waiting, struct dd_rq, entry);
			if (!r && handed)
				r = list_first_entry_or_null(&q->handed, struct dd_rq, entry);
			if (!r)
				break;
			dd_take_out(q, r);
			spin_unlock(&q->lock);
			dd_answer(r, BLK_STS_IOERR);
			spin_lock(&q->lock);
		}
		spin_unlock(&q->lock);
	}
}

void ddr_take_back(struct dd_disk *disk)
{
	unsigned int i;

	for (i = 0; i < disk->is.queues; i++) {
		struct dd_queue *q = &disk->queue[i];
		struct dd_rq *r;

		spin_lock(&q->lock);
		list_for_each_entry(r, &q->handed, entry)
			r->state = DD_WAITING;
		list_splice_init(&q->handed, &q->waiting);
		q->waiting_count += q->handed_count;
		q->handed_count = 0;
		spin_unlock(&q->lock);
	}
}

unsigned int ddr_waiting(const struct dd_disk *disk)
{
	unsigned int i, n = 0;

	for (i = 0; i < disk->is.queues; i++)
		n += READ_ONCE(disk->queue[i].waiting_count);
	return n;
}

unsigned int ddr_handed(const struct dd_disk *disk)
{
	unsigned int i, n = 0;

	for (i = 0; i < disk->is.queues; i++)
		n += READ_ONCE(disk->queue[i].handed_count);
	return n;
}

u64 ddr_requests(const struct dd_disk *disk)
{
	unsigned int i;
	u64 n = 0;

	for (i = 0; i < disk->is.queues; i++)
		n += READ_ONCE(disk->queue[i].requests);
	return n;
}

bool ddr_failing(const struct dd_disk *disk)
{
	return READ_ONCE(disk->queue[0].failing);
}

/* ---- EXCHANGE ---- */

static int dd_copy_data(struct request *rq, u64 at, bool to_user)
{
	struct iov_iter iter;
	struct iovec iov;
	struct req_iterator it;
	struct bio_vec bv;
	size_t n;
	int err;

	err = import_single_range(to_user ? READ : WRITE, u64_to_user_ptr(at), blk_rq_bytes(rq),
				  &iov, &iter);
	if (err)
		return err;
	rq_for_each_segment(bv, rq, it) {
		if (to_user)
			n = copy_page_to_iter(bv.bv_page, bv.bv_offset, bv.bv_len, &iter);
		else
			n = copy_page_from_iter(bv.bv_page, bv.bv_offset, bv.bv_len, &iter);
		if (!to_user)
			flush_dcache_page(bv.bv_page);
		if (n != bv.bv_len)
			return -EFAULT;
		cond_resched();
	}
	return 0;
}

/* What the session was handed under this tag and pass, or NULL. */
static struct request *dd_find_handed(struct dd_disk *disk, const struct ddraid_action *a,
				      struct dd_queue **in)
{
	unsigned int queue = a->tag >> DD_TAG_BITS, tag = a->tag & ((1u << DD_TAG_BITS) - 1);
	struct request *rq;
	struct dd_queue *q;
	struct dd_rq *r;

	if (queue >= disk->is.queues || tag >= disk->is.depth)
		return NULL;
	q = &disk->queue[queue];
	spin_lock(&q->lock);
	rq = q->tag[tag];
	if (rq) {
		r = blk_mq_rq_to_pdu(rq);
		if (r->state != DD_HANDED || r->pass != a->pass)
			rq = NULL;
	}
	spin_unlock(&q->lock);
	*in = q;
	return rq;
}

/* Those that mean something to who waits for the request. Others mean retrying, or nothing. */
static blk_status_t dd_result(int err)
{
	switch (err) {
	case 0:
	case -ENOSPC:
	case -EOPNOTSUPP:
	case -ETIMEDOUT:
		return errno_to_blk_status(err);
	default:
		return BLK_STS_IOERR;
	}
}

static int dd_act(struct dd_disk *disk, const struct ddraid_action *a)
{
	struct dd_queue *q;
	struct request *rq = dd_find_handed(disk, a, &q);
	struct dd_rq *r;
	int err = 0;

	if (!rq)
		return -ESTALE;
	if (a->what == DDRAID_PULL && !a->result && req_op(rq) == REQ_OP_WRITE)
		return dd_copy_data(rq, a->data, true);
	if (a->what != DDRAID_DONE || a->result > 0 || a->result < -MAX_ERRNO)
		return -EINVAL;
	if (req_op(rq) == REQ_OP_READ && !a->result)
		err = dd_copy_data(rq, a->data, false);
	if (err)
		return err;
	r = blk_mq_rq_to_pdu(rq);
	spin_lock(&q->lock);
	dd_take_out(q, r);
	spin_unlock(&q->lock);
	dd_answer(r, dd_result(a->result));
	return 0;
}

static int dd_actions(struct dd_session *s, const struct ddraid_exchange *x)
{
	size_t bytes = x->actions_count * sizeof(s->action[0]);
	u32 i;

	if (copy_from_user(s->action, u64_to_user_ptr(x->actions), bytes))
		return -EFAULT;
	for (i = 0; i < x->actions_count; i++) {
		s->action[i].status = dd_act(s->disk, &s->action[i]);
		if (s->action[i].status)
			atomic64_inc(&s->disk->rejected);
	}
	return copy_to_user(u64_to_user_ptr(x->actions), s->action, bytes) ? -EFAULT : 0;
}

static void dd_describe(struct request *rq, unsigned int queue, struct ddraid_request *out)
{
	struct dd_rq *r = blk_mq_rq_to_pdu(rq);
	u32 fua = rq->cmd_flags & REQ_FUA ? DDRAID_FUA : 0;

	*out = (struct ddraid_request){
		.tag = queue << DD_TAG_BITS | rq->tag,
		.pass = r->pass,
	};
	if (req_op(rq) == REQ_OP_FLUSH) {
		out->op = DDRAID_FLUSH;
		return;
	}
	out->offset = (u64)blk_rq_pos(rq) << SECTOR_SHIFT;
	out->bytes = blk_rq_bytes(rq);
	switch (req_op(rq)) {
	case REQ_OP_READ:
		out->op = DDRAID_READ;
		break;
	case REQ_OP_WRITE:
		out->op = DDRAID_WRITE;
		out->flags = fua;
		break;
	case REQ_OP_DISCARD:
		out->op = DDRAID_ZEROES;
		out->flags = fua | DDRAID_UNMAP;
		break;
	default:
		out->op = DDRAID_ZEROES;
		out->flags = fua | (rq->cmd_flags & REQ_NOUNMAP ? 0 : DDRAID_UNMAP);
		break;
	}
}

static u32 dd_hand_out(struct dd_disk *disk, struct ddraid_request *out, u32 room)
{
	unsigned int i, queue;
	u32 got = 0;

	for (i = 0; i < disk->is.queues && got < room; i++) {
		struct dd_queue *q;
		struct dd_rq *r;

		queue = (disk->next_queue + i) % disk->is.queues;
		q = &disk->queue[queue];
		spin_lock(&q->lock);
		while (got < room && !list_empty(&q->waiting)) {
			r = list_first_entry(&q->waiting, struct dd_rq, entry);
			list_move_tail(&r->entry, &q->handed);
			r->state = DD_HANDED;
			r->pass = atomic64_inc_return(&dd_pass);
			q->waiting_count--;
			q->handed_count++;
			dd_describe(blk_mq_rq_from_pdu(r), queue, &out[got++]);
		}
		spin_unlock(&q->lock);
	}
	disk->next_queue = (disk->next_queue + 1) % disk->is.queues;
	return got;
}

int ddr_exchange(struct dd_session *s, struct ddraid_exchange __user *arg)
{
	struct ddraid_exchange x;
	int err;

	if (!s->disk)
		return -ENOTCONN;
	if (copy_from_user(&x, arg, sizeof(x)))
		return -EFAULT;
	if (x.actions_count > DDRAID_BATCH_MAX || x.requests_room > DDRAID_BATCH_MAX)
		return -EINVAL;
	if (x.actions_count) {
		err = dd_actions(s, &x);
		if (err)
			return err;
	}
	x.requests_got = dd_hand_out(s->disk, s->request, x.requests_room);
	x.waiting = ddr_waiting(s->disk);
	if (copy_to_user(u64_to_user_ptr(x.requests), s->request,
			 x.requests_got * sizeof(s->request[0])))
		return -EFAULT;
	return copy_to_user(arg, &x, sizeof(x)) ? -EFAULT : 0;
}
