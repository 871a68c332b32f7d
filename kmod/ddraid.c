// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Disks that a daemon serves: /dev/ddraid<N>. This driver knows nothing of RAID. It hands requests
 * to the daemon that has the disk's session, holds them while there is none, and lets the next
 * session go on with them. The interface is ddraid_uapi.h; doc/kmod.md tells of both sides.
 *
 * One request:
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
 *
 * Locks, outer first:
 *
 *	session->mutex	the calls of a session, one at a time; session->disk
 *	dd_mutex	the list of disks; which session each has; whether it is gone
 *	disk->lock	openers, and whether there may be more
 *	queue->lock	a queue's lists and tags. Taken in queue_rq: no sleep under it
 *
 * dd_mutex is not held over adding or deleting a gendisk, which wait for others. disk->session is
 * read under RCU by queue_rq, to wake the daemon.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/ctype.h>
#include <linux/highmem.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "ddraid_uapi.h"

#define DD_TAG_BITS 16 /* of a request's tag: within its queue; the queue is above */
#define DD_ATTACH_FLAGS (DDRAID_FRESH | DDRAID_READ_ONLY)

enum dd_state { DD_FREE, DD_WAITING, DD_HANDED };

/* The driver's part of a request. */
struct dd_rq {
	struct list_head entry; /* of its queue's waiting or handed; under queue->lock */
	u64 pass;
	enum dd_state state;
	blk_status_t status;
};

struct dd_queue {
	spinlock_t lock;	  /* all of this */
	struct list_head waiting; /* in the order of arrival */
	struct list_head handed;  /* in the order of handing out */
	struct request *tag[DDRAID_DEPTH_MAX];
	unsigned int waiting_count, handed_count;
	bool failing; /* what comes fails */
	u64 requests;
} ____cacheline_aligned_in_smp;

struct dd_disk {
	struct list_head entry;		  /* of dd_disks; under dd_mutex */
	struct dd_session __rcu *session; /* written under dd_mutex */
	struct pid *pid;		  /* of the session's process; under dd_mutex */
	bool gone;			  /* not in dd_disks any more; under dd_mutex and lock */
	unsigned int away_ms;		  /* under dd_mutex */
	u64 cookie;			  /* under dd_mutex */
	struct ddraid_attach is;	  /* as it was made; size may grow */
	int index;
	struct gendisk *gd;
	struct blk_mq_tag_set set;
	struct dd_queue *queue;	 /* [is.queues] */
	unsigned int next_queue; /* to be asked first; the session's */
	atomic64_t rejected;
	struct delayed_work away; /* away_ms are over */
	struct work_struct removal;
	spinlock_t lock; /* openers, gone */
	unsigned int openers;
};

/* One open of the control device. */
struct dd_session {
	struct mutex mutex; /* all but wait */
	wait_queue_head_t wait;
	struct dd_disk *disk; /* or NULL */
	struct rcu_head rcu;
	struct ddraid_action action[DDRAID_BATCH_MAX];
	struct ddraid_request request[DDRAID_BATCH_MAX];
};

static DEFINE_MUTEX(dd_mutex);
static LIST_HEAD(dd_disks);
static DEFINE_IDA(dd_indexes);
static int dd_major;
static struct workqueue_struct *dd_wq;	    /* removals, which may wait for other disks' I/O */
static struct workqueue_struct *dd_away_wq; /* ends of patience, which must not wait for them */
/* For all disks: an answer never fits another disk's request. */
static atomic64_t dd_pass;
static atomic_t dd_live; /* disks whose memory is not freed */
static DECLARE_WAIT_QUEUE_HEAD(dd_freed);

/* ---- requests, from the block layer ---- */

static void dd_wake(struct dd_disk *disk)
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
		dd_wake(disk);
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

static const struct blk_mq_ops dd_mq_ops = {
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

/* Fails what waits and what comes; and what was handed out, if there is no session. */
static void dd_fail_all(struct dd_disk *disk, bool handed)
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

/* The session is over: what it was handed goes before what has come since. */
static void dd_take_back(struct dd_disk *disk)
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

static unsigned int dd_waiting(const struct dd_disk *disk)
{
	unsigned int i, n = 0;

	for (i = 0; i < disk->is.queues; i++)
		n += READ_ONCE(disk->queue[i].waiting_count);
	return n;
}

static unsigned int dd_handed(const struct dd_disk *disk)
{
	unsigned int i, n = 0;

	for (i = 0; i < disk->is.queues; i++)
		n += READ_ONCE(disk->queue[i].handed_count);
	return n;
}

static u64 dd_requests(const struct dd_disk *disk)
{
	unsigned int i;
	u64 n = 0;

	for (i = 0; i < disk->is.queues; i++)
		n += READ_ONCE(disk->queue[i].requests);
	return n;
}

static bool dd_failing(const struct dd_disk *disk)
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

static int dd_exchange(struct dd_session *s, struct ddraid_exchange __user *arg)
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
	x.waiting = dd_waiting(s->disk);
	if (copy_to_user(u64_to_user_ptr(x.requests), s->request,
			 x.requests_got * sizeof(s->request[0])))
		return -EFAULT;
	return copy_to_user(arg, &x, sizeof(x)) ? -EFAULT : 0;
}

/* ---- the block device ---- */

static int dd_open(struct block_device *bdev, fmode_t mode)
{
	struct dd_disk *disk = bdev->bd_disk->private_data;
	int err = 0;

	spin_lock(&disk->lock);
	if (disk->gone)
		err = -ENXIO;
	else
		disk->openers++;
	spin_unlock(&disk->lock);
	return err;
}

static void dd_release(struct gendisk *gd, fmode_t mode)
{
	struct dd_disk *disk = gd->private_data;

	spin_lock(&disk->lock);
	disk->openers--;
	spin_unlock(&disk->lock);
}

static int dd_set_read_only(struct block_device *bdev, bool on)
{
	struct dd_disk *disk = bdev->bd_disk->private_data;

	return !on && disk->is.flags & DDRAID_READ_ONLY ? -EACCES : 0;
}

static void dd_free(struct dd_disk *disk)
{
	put_pid(disk->pid);
	ida_free(&dd_indexes, disk->index);
	kvfree(disk->queue);
	kfree(disk);
	if (atomic_dec_and_test(&dd_live))
		wake_up_all(&dd_freed);
}

static void dd_free_disk(struct gendisk *gd)
{
	dd_free(gd->private_data);
}

static const struct block_device_operations dd_fops = {
	.owner = THIS_MODULE,
	.open = dd_open,
	.release = dd_release,
	.set_read_only = dd_set_read_only,
	.free_disk = dd_free_disk,
};

static void dd_away(struct work_struct *work)
{
	struct dd_disk *disk = container_of(to_delayed_work(work), struct dd_disk, away);

	pr_warn("ddraid: %s: still no daemon: requests fail until there is one\n", disk->is.name);
	dd_fail_all(disk, false);
}

/* Under dd_mutex: counts from now if there is no session, and from its end if there is one. */
static void dd_set_away(struct dd_disk *disk, unsigned int ms)
{
	WRITE_ONCE(disk->away_ms, ms);
	if (rcu_access_pointer(disk->session) || disk->gone)
		return;
	if (ms)
		mod_delayed_work(dd_away_wq, &disk->away, msecs_to_jiffies(ms));
	else
		cancel_delayed_work(&disk->away);
}

/* ---- sysfs: /sys/block/ddraid<N>/ddraid/ ---- */

static struct dd_disk *dd_of(struct device *dev)
{
	return dev_to_disk(dev)->private_data;
}

static ssize_t name_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", dd_of(dev)->is.name);
}

static ssize_t uuid_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%pU\n", dd_of(dev)->is.uuid);
}

static ssize_t daemon_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	pid_t pid;

	mutex_lock(&dd_mutex);
	pid = pid_vnr(dd_of(dev)->pid);
	mutex_unlock(&dd_mutex);
	return sysfs_emit(buf, "%d\n", pid);
}

static ssize_t openers_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(dd_of(dev)->openers));
}

static ssize_t waiting_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", dd_waiting(dd_of(dev)));
}

static ssize_t handed_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", dd_handed(dd_of(dev)));
}

static ssize_t requests_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", dd_requests(dd_of(dev)));
}

static ssize_t rejected_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", atomic64_read(&dd_of(dev)->rejected));
}

static ssize_t failing_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", dd_failing(dd_of(dev)));
}

static ssize_t away_ms_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(dd_of(dev)->away_ms));
}

static ssize_t away_ms_store(struct device *dev, struct device_attribute *attr, const char *buf,
			     size_t count)
{
	unsigned int ms;
	int err = kstrtouint(buf, 10, &ms);

	if (err)
		return err;
	mutex_lock(&dd_mutex);
	dd_set_away(dd_of(dev), ms);
	mutex_unlock(&dd_mutex);
	return count;
}

static DEVICE_ATTR_RO(name);
static DEVICE_ATTR_RO(uuid);
static DEVICE_ATTR_RO(daemon);
static DEVICE_ATTR_RO(openers);
static DEVICE_ATTR_RO(waiting);
static DEVICE_ATTR_RO(handed);
static DEVICE_ATTR_RO(requests);
static DEVICE_ATTR_RO(rejected);
static DEVICE_ATTR_RO(failing);
static DEVICE_ATTR_RW(away_ms);

static struct attribute *dd_attrs[] = {
	&dev_attr_name.attr,
	&dev_attr_uuid.attr,
	&dev_attr_daemon.attr,
	&dev_attr_openers.attr,
	&dev_attr_waiting.attr,
	&dev_attr_handed.attr,
	&dev_attr_requests.attr,
	&dev_attr_rejected.attr,
	&dev_attr_failing.attr,
	&dev_attr_away_ms.attr,
	NULL,
};

static const struct attribute_group dd_group = { .name = "ddraid", .attrs = dd_attrs };
static const struct attribute_group *dd_groups[] = { &dd_group, NULL };

/* ---- disks ---- */

static void dd_limits(struct request_queue *q, const struct ddraid_attach *is)
{
	blk_queue_logical_block_size(q, is->logical_block);
	blk_queue_physical_block_size(q, is->physical_block);
	blk_queue_io_min(q, is->physical_block);
	blk_queue_io_opt(q, is->io_opt);
	blk_queue_max_hw_sectors(q, is->io_max >> SECTOR_SHIFT);
	/* Data is copied segment by segment: any number, of any size. */
	blk_queue_max_segments(q, USHRT_MAX);
	blk_queue_max_segment_size(q, UINT_MAX);
	blk_queue_max_write_zeroes_sectors(q, is->zeroes_max >> SECTOR_SHIFT);
	blk_queue_max_discard_sectors(q, is->zeroes_max >> SECTOR_SHIFT);
	q->limits.discard_granularity = is->zeroes_max ? is->physical_block : 0;
	blk_queue_write_cache(q, true, true);
	blk_queue_flag_set(QUEUE_FLAG_NONROT, q);
	blk_queue_flag_clear(QUEUE_FLAG_ADD_RANDOM, q);
}

static int dd_add_disk(struct dd_disk *disk)
{
	struct blk_mq_tag_set *set = &disk->set;
	struct gendisk *gd;
	int err;

	set->ops = &dd_mq_ops;
	set->nr_hw_queues = disk->is.queues;
	set->queue_depth = disk->is.depth;
	set->numa_node = NUMA_NO_NODE;
	set->cmd_size = sizeof(struct dd_rq);
	/* The daemon orders and merges. A CPU that goes offline doesn't wait for the daemon. */
	set->flags = BLK_MQ_F_SHOULD_MERGE | BLK_MQ_F_NO_SCHED_BY_DEFAULT | BLK_MQ_F_STACKING;
	set->driver_data = disk;
	err = blk_mq_alloc_tag_set(set);
	if (err)
		return err;
	disk->is.queues = set->nr_hw_queues;
	disk->is.depth = set->queue_depth;
	gd = blk_mq_alloc_disk(set, disk);
	if (IS_ERR(gd)) {
		err = PTR_ERR(gd);
		goto no_disk;
	}
	disk->gd = gd;
	gd->major = dd_major;
	gd->first_minor = disk->index;
	gd->minors = 1;
	/*
	 * Not only for want of partitions: to look for them is to read, in this ATTACH, whose
	 * caller is who would have to answer.
	 */
	gd->flags |= GENHD_FL_NO_PART;
	gd->fops = &dd_fops;
	gd->private_data = disk;
	snprintf(gd->disk_name, DISK_NAME_LEN, "ddraid%d", disk->index);
	dd_limits(gd->queue, &disk->is);
	set_capacity(gd, disk->is.size >> SECTOR_SHIFT);
	set_disk_ro(gd, disk->is.flags & DDRAID_READ_ONLY);
	err = device_add_disk(NULL, gd, dd_groups);
	if (!err)
		return 0;
	put_disk(gd);
no_disk:
	blk_mq_free_tag_set(set);
	return err;
}

/* Waits for whoever uses the disk. Opens that there are still keep its memory. */
static void dd_removal(struct work_struct *work)
{
	struct dd_disk *disk = container_of(work, struct dd_disk, removal);
	struct gendisk *gd = disk->gd;

	cancel_delayed_work_sync(&disk->away);
	del_gendisk(gd);
	blk_mq_free_tag_set(&disk->set);
	put_disk(gd);
}

/*
 * The disk is gone, without a session and not in the list. Deleting it may have to wait, say for a
 * filesystem with a journal on another disk, which the caller may be the one to serve: so not here.
 */
static void dd_kill(struct dd_disk *disk, bool wait)
{
	struct gendisk *gd = disk->gd;

	/* The removal drops the disk, and with it itself. */
	get_device(disk_to_dev(gd));
	blk_mark_disk_dead(gd);
	dd_fail_all(disk, true);
	queue_work(dd_wq, &disk->removal);
	if (wait)
		flush_work(&disk->removal);
	put_device(disk_to_dev(gd));
}

static struct dd_disk *dd_new(const struct ddraid_attach *is)
{
	struct dd_disk *disk = kzalloc(sizeof(*disk), GFP_KERNEL);
	unsigned int i;
	int err = -ENOMEM;

	if (!disk)
		return ERR_PTR(-ENOMEM);
	disk->queue = kvcalloc(is->queues, sizeof(*disk->queue), GFP_KERNEL);
	if (!disk->queue)
		goto no_queue;
	disk->index = ida_alloc_max(&dd_indexes, MINORMASK, GFP_KERNEL);
	if (disk->index < 0) {
		err = disk->index;
		goto no_index;
	}
	disk->is = *is;
	for (i = 0; i < is->queues; i++) {
		spin_lock_init(&disk->queue[i].lock);
		INIT_LIST_HEAD(&disk->queue[i].waiting);
		INIT_LIST_HEAD(&disk->queue[i].handed);
	}
	spin_lock_init(&disk->lock);
	INIT_DELAYED_WORK(&disk->away, dd_away);
	INIT_WORK(&disk->removal, dd_removal);
	atomic_inc(&dd_live);
	return disk;

no_index:
	kvfree(disk->queue);
no_queue:
	kfree(disk);
	return ERR_PTR(err);
}

/* ---- sessions ---- */

/* Under dd_mutex. */
static void dd_bind(struct dd_session *s, struct dd_disk *disk, const struct ddraid_attach *is)
{
	s->disk = disk;
	disk->cookie = is->cookie;
	disk->pid = get_pid(task_tgid(current));
	WRITE_ONCE(disk->away_ms, is->away_ms);
	rcu_assign_pointer(disk->session, s);
}

/* Under dd_mutex: nobody finds or opens the disk any more. */
static void dd_forget(struct dd_disk *disk)
{
	spin_lock(&disk->lock);
	disk->gone = true;
	spin_unlock(&disk->lock);
	list_del(&disk->entry);
}

enum dd_end { DD_LEAVE, DD_DETACH, DD_REVOKE };

/* The session has no disk any more. */
static int dd_unbind(struct dd_session *s, enum dd_end how)
{
	struct dd_disk *disk = s->disk;
	unsigned int openers;

	if (!disk)
		return -ENOTCONN;
	mutex_lock(&dd_mutex);
	if (how == DD_DETACH) {
		/* None comes between the look and the end. */
		spin_lock(&disk->lock);
		if (disk->openers) {
			spin_unlock(&disk->lock);
			mutex_unlock(&dd_mutex);
			return -EBUSY;
		}
		disk->gone = true;
		spin_unlock(&disk->lock);
	}
	rcu_assign_pointer(disk->session, NULL);
	put_pid(disk->pid);
	disk->pid = NULL;
	s->disk = NULL;
	openers = READ_ONCE(disk->openers);
	if (how == DD_LEAVE) {
		dd_take_back(disk);
		dd_set_away(disk, disk->away_ms);
		pr_info("ddraid: %s: no daemon; %u have it open, %u requests wait\n", disk->is.name,
			openers, dd_waiting(disk));
	} else {
		dd_forget(disk);
	}
	mutex_unlock(&dd_mutex);
	if (how == DD_LEAVE)
		return 0;
	if (how == DD_REVOKE)
		pr_warn("ddraid: %s: revoked; %u have it open\n", disk->is.name, openers);
	/* Nobody else needs a disk that was closed: waiting for its removal is short. */
	dd_kill(disk, how == DD_DETACH);
	return 0;
}

static bool dd_is_multiple(u32 bytes, u32 unit)
{
	return bytes && !(bytes % unit);
}

static int dd_check_name(struct ddraid_attach *is)
{
	size_t n = strnlen(is->name, sizeof(is->name)), i;

	if (!n || n == sizeof(is->name) || is->name[0] == '.')
		return -EINVAL;
	for (i = 0; i < n; i++)
		if (!isascii(is->name[i]) || !(isalnum(is->name[i]) || strchr("-_.", is->name[i])))
			return -EINVAL;
	memset(is->name + n, 0, sizeof(is->name) - n);
	return 0;
}

/*
 * zeroes_max is a multiple of the physical block since this is the granularity of discards: the
 * block layer doesn't split a discard at all when the limit is less.
 */
static int dd_check(struct ddraid_attach *is)
{
	if (is->api != DDRAID_API_VERSION)
		return -EPROTO;
	if (dd_check_name(is) || !memchr_inv(is->uuid, 0, sizeof(is->uuid)) ||
	    is->flags & ~DD_ATTACH_FLAGS)
		return -EINVAL;
	if (!is_power_of_2(is->logical_block) || is->logical_block < DDRAID_BLOCK_MIN ||
	    is->logical_block > PAGE_SIZE || !is_power_of_2(is->physical_block) ||
	    is->physical_block < is->logical_block || is->physical_block > DDRAID_IO_MAX)
		return -EINVAL;
	if ((is->io_opt && !dd_is_multiple(is->io_opt, is->logical_block)) ||
	    !dd_is_multiple(is->io_max, is->logical_block) || is->io_max > DDRAID_IO_MAX ||
	    (is->zeroes_max && !dd_is_multiple(is->zeroes_max, is->physical_block)))
		return -EINVAL;
	if (!is->size || is->size % is->logical_block || is->size > LLONG_MAX || !is->depth ||
	    is->depth > DDRAID_DEPTH_MAX)
		return -EINVAL;
	if (!is->queues || is->queues > nr_cpu_ids)
		is->queues = nr_cpu_ids;
	return 0;
}

/* May a daemon that asks for this serve that disk, whose requests may be as large as it allows? */
static bool dd_fits(const struct dd_disk *disk, const struct ddraid_attach *is)
{
	const struct ddraid_attach *old = &disk->is;

	return !strcmp(is->name, old->name) && is->logical_block == old->logical_block &&
	       !((is->flags ^ old->flags) & DDRAID_READ_ONLY) && is->size >= old->size &&
	       is->io_max >= old->io_max && is->zeroes_max >= old->zeroes_max;
}

/*
 * Under dd_mutex: the disk for this session, which is there, or is this fresh one, not yet added.
 * One that is there and is not wanted is *killed. NULL: a fresh one is needed.
 */
static struct dd_disk *dd_choose(const struct ddraid_attach *is, struct dd_disk *fresh,
				 struct dd_disk **killed)
{
	struct dd_disk *disk, *there = NULL;

	list_for_each_entry(disk, &dd_disks, entry) {
		if (!memcmp(disk->is.uuid, is->uuid, DDRAID_UUID_BYTES))
			there = disk;
		else if (!strcmp(disk->is.name, is->name))
			return ERR_PTR(-EEXIST);
	}
	if (there && rcu_access_pointer(there->session))
		return ERR_PTR(-EBUSY);
	if (there && !(is->flags & DDRAID_FRESH))
		return dd_fits(there, is) ? there : ERR_PTR(-EINVAL);
	if (!fresh)
		return NULL;
	if (there) {
		dd_forget(there);
		*killed = there;
	}
	list_add_tail(&fresh->entry, &dd_disks);
	return fresh;
}

static void dd_go_on(struct dd_disk *disk, const struct ddraid_attach *is)
{
	unsigned int i;

	cancel_delayed_work_sync(&disk->away);
	for (i = 0; i < disk->is.queues; i++) {
		spin_lock(&disk->queue[i].lock);
		disk->queue[i].failing = false;
		spin_unlock(&disk->queue[i].lock);
	}
	if (is->size != disk->is.size) {
		WRITE_ONCE(disk->is.size, is->size);
		set_capacity_and_notify(disk->gd, is->size >> SECTOR_SHIFT);
	}
}

static int dd_attach(struct dd_session *s, struct ddraid_attach __user *arg)
{
	struct dd_disk *disk, *fresh = NULL, *killed = NULL;
	struct ddraid_attach is, out;
	u64 cookie = 0;
	int err;

	if (copy_from_user(&is, arg, sizeof(is)))
		return -EFAULT;
	if (s->disk)
		return -EISCONN;
	err = dd_check(&is);
	if (err)
		return err;
	mutex_lock(&dd_mutex);
	disk = dd_choose(&is, NULL, &killed);
	if (!disk) {
		/* Not under the mutex: it may wait for memory that another disk's daemon frees. */
		mutex_unlock(&dd_mutex);
		fresh = dd_new(&is);
		if (IS_ERR(fresh))
			return PTR_ERR(fresh);
		mutex_lock(&dd_mutex);
		disk = dd_choose(&is, fresh, &killed);
	}
	if (!IS_ERR(disk)) {
		cookie = disk->cookie;
		dd_bind(s, disk, &is);
	}
	mutex_unlock(&dd_mutex);
	if (killed) {
		pr_warn("ddraid: %s: revoked\n", killed->is.name);
		dd_kill(killed, false);
	}
	if (fresh && disk != fresh)
		dd_free(fresh);
	if (IS_ERR(disk))
		return PTR_ERR(disk);

	if (disk == fresh) {
		err = dd_add_disk(disk);
		if (err) {
			mutex_lock(&dd_mutex);
			dd_forget(disk);
			mutex_unlock(&dd_mutex);
			s->disk = NULL;
			dd_free(disk);
			return err;
		}
	} else {
		dd_go_on(disk, &is);
	}
	out = disk->is;
	out.flags = is.flags;
	out.away_ms = is.away_ms;
	out.cookie = cookie;
	out.index = disk->index;
	out.waiting = dd_waiting(disk);
	pr_info("ddraid: %s: ddraid%d, served by process %d; %u requests waited\n", disk->is.name,
		disk->index, task_tgid_nr(current), out.waiting);
	/* Who polled before it was attached has missed what has come. */
	dd_wake(disk);
	/* EFAULT: attached nonetheless; DETACH or the end of the session undo it. */
	return copy_to_user(arg, &out, sizeof(out)) ? -EFAULT : 0;
}

static int dd_status(struct dd_session *s, struct ddraid_status __user *arg)
{
	struct dd_disk *disk, *found = NULL;
	struct ddraid_status st;

	if (copy_from_user(&st, arg, sizeof(st)))
		return -EFAULT;
	if (!memchr_inv(st.uuid, 0, sizeof(st.uuid))) {
		if (!s->disk)
			return -ENOTCONN;
		memcpy(st.uuid, s->disk->is.uuid, sizeof(st.uuid));
	}
	mutex_lock(&dd_mutex);
	list_for_each_entry(disk, &dd_disks, entry)
		if (!memcmp(disk->is.uuid, st.uuid, sizeof(st.uuid)))
			found = disk;
	if (!found) {
		mutex_unlock(&dd_mutex);
		return -ENOENT;
	}
	disk = found;
	memcpy(st.name, disk->is.name, sizeof(st.name));
	st.index = disk->index;
	st.flags = (rcu_access_pointer(disk->session) ? DDRAID_SERVED : 0) |
		   (dd_failing(disk) ? DDRAID_FAILING : 0);
	st.openers = READ_ONCE(disk->openers);
	st.waiting = dd_waiting(disk);
	st.handed = dd_handed(disk);
	st.away_ms = disk->away_ms;
	st.pid = pid_vnr(disk->pid);
	st.reserved = 0;
	st.size = READ_ONCE(disk->is.size);
	st.cookie = disk->cookie;
	st.requests = dd_requests(disk);
	st.rejected = atomic64_read(&disk->rejected);
	mutex_unlock(&dd_mutex);
	return copy_to_user(arg, &st, sizeof(st)) ? -EFAULT : 0;
}

/* ---- the control device ---- */

static int dd_control_open(struct inode *inode, struct file *file)
{
	struct dd_session *s;
	unsigned int noio;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	/* Under misc_mtx, for which the open of a disk's next daemon may have to wait. */
	noio = memalloc_noio_save();
	s = kvzalloc(sizeof(*s), GFP_KERNEL);
	memalloc_noio_restore(noio);
	if (!s)
		return -ENOMEM;
	mutex_init(&s->mutex);
	init_waitqueue_head(&s->wait);
	file->private_data = s;
	return 0;
}

static int dd_control_release(struct inode *inode, struct file *file)
{
	struct dd_session *s = file->private_data;

	mutex_lock(&s->mutex);
	dd_unbind(s, DD_LEAVE);
	mutex_unlock(&s->mutex);
	/* queue_rq may still be waking it. */
	kvfree_rcu(s, rcu);
	return 0;
}

static __poll_t dd_control_poll(struct file *file, poll_table *wait)
{
	struct dd_session *s = file->private_data;
	__poll_t ready = 0;

	poll_wait(file, &s->wait, wait);
	mutex_lock(&s->mutex);
	if (s->disk && dd_waiting(s->disk))
		ready = EPOLLIN | EPOLLRDNORM;
	mutex_unlock(&s->mutex);
	return ready;
}

static long dd_call(struct dd_session *s, unsigned int command, void __user *arg)
{
	static const struct ddraid_version version = { .api = DDRAID_API_VERSION };

	switch (command) {
	case DDRAID_IOC_VERSION:
		return copy_to_user(arg, &version, sizeof(version)) ? -EFAULT : 0;
	case DDRAID_IOC_ATTACH:
		return dd_attach(s, arg);
	case DDRAID_IOC_EXCHANGE:
		return dd_exchange(s, arg);
	case DDRAID_IOC_DETACH:
		return dd_unbind(s, DD_DETACH);
	case DDRAID_IOC_REVOKE:
		return dd_unbind(s, DD_REVOKE);
	case DDRAID_IOC_STATUS:
		return dd_status(s, arg);
	default:
		return -ENOTTY;
	}
}

static long dd_control_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct dd_session *s = file->private_data;
	unsigned int noio;
	long err;

	if (mutex_lock_killable(&s->mutex))
		return -EINTR;
	/* No memory that only this daemon's disks can free. */
	noio = memalloc_noio_save();
	err = dd_call(s, command, (void __user *)arg);
	memalloc_noio_restore(noio);
	mutex_unlock(&s->mutex);
	return err;
}

static const struct file_operations dd_control_fops = {
	.owner = THIS_MODULE,
	.open = dd_control_open,
	.release = dd_control_release,
	.poll = dd_control_poll,
	.unlocked_ioctl = dd_control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice dd_control = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ddraid-control",
	.fops = &dd_control_fops,
	.mode = 0600,
};

static int __init dd_init(void)
{
	int err;

	/* The same for 32 and 64 bits. */
	BUILD_BUG_ON(sizeof(struct ddraid_attach) != 144);
	BUILD_BUG_ON(sizeof(struct ddraid_status) != 144);
	BUILD_BUG_ON(sizeof(struct ddraid_request) != 32);
	BUILD_BUG_ON(sizeof(struct ddraid_action) != 32);
	BUILD_BUG_ON(sizeof(struct ddraid_exchange) != 32);

	dd_wq = alloc_workqueue("ddraid", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	dd_away_wq = alloc_workqueue("ddraid-away", WQ_MEM_RECLAIM, 0);
	if (!dd_wq || !dd_away_wq) {
		err = -ENOMEM;
		goto no_queues;
	}
	dd_major = register_blkdev(0, "ddraid");
	if (dd_major < 0) {
		err = dd_major;
		goto no_major;
	}
	err = misc_register(&dd_control);
	if (!err)
		return 0;
	unregister_blkdev(dd_major, "ddraid");
no_major:
no_queues:
	if (dd_away_wq)
		destroy_workqueue(dd_away_wq);
	if (dd_wq)
		destroy_workqueue(dd_wq);
	return err;
}

/* No session and no open is left, else the module would be in use. */
static void __exit dd_exit(void)
{
	struct dd_disk *disk, *next;

	misc_deregister(&dd_control);
	mutex_lock(&dd_mutex);
	list_for_each_entry_safe(disk, next, &dd_disks, entry) {
		dd_forget(disk);
		dd_kill(disk, false);
	}
	mutex_unlock(&dd_mutex);
	/* Does all removals first. */
	destroy_workqueue(dd_wq);
	destroy_workqueue(dd_away_wq);
	wait_event(dd_freed, !atomic_read(&dd_live));
	/* Who has freed the last one may still be in dd_free, on its way out, or wake us there. */
	synchronize_rcu_tasks();
	unregister_blkdev(dd_major, "ddraid");
	ida_destroy(&dd_indexes);
}

module_init(dd_init);
module_exit(dd_exit);

MODULE_DESCRIPTION("Disks of ddraid arrays, served by ddraidd");
MODULE_AUTHOR("The ddraid developers");
MODULE_LICENSE("GPL");
