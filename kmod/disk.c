// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A disk, from making it to freeing it: the block device and who has it open, its patience without
 * a session, what sysfs tells of it, its removal. And loading and unloading the module, which makes
 * and ends what all disks share. ddraid.h has the locks.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "ddraid.h"

DEFINE_MUTEX(ddr_mutex); /* see Locks in ddraid.h */
LIST_HEAD(ddr_disks);
static DEFINE_IDA(dd_indexes);
static int dd_major;
static struct workqueue_struct *dd_wq;	    /* removals, which may wait for other disks' I/O */
static struct workqueue_struct *dd_away_wq; /* ends of patience, which must not wait for them */
static atomic_t dd_live;		    /* disks whose memory is not freed */
static DECLARE_WAIT_QUEUE_HEAD(dd_freed);

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

void ddr_free(struct dd_disk *disk)
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
	ddr_free(gd->private_data);
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
	ddr_fail_all(disk, false);
}

void ddr_set_away(struct dd_disk *disk, unsigned int ms)
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

	mutex_lock(&ddr_mutex);
	pid = pid_vnr(dd_of(dev)->pid);
	mutex_unlock(&ddr_mutex);
	return sysfs_emit(buf, "%d\n", pid);
}

static ssize_t openers_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(dd_of(dev)->openers));
}

static ssize_t waiting_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", ddr_waiting(dd_of(dev)));
}

static ssize_t handed_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", ddr_handed(dd_of(dev)));
}

static ssize_t requests_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", ddr_requests(dd_of(dev)));
}

static ssize_t rejected_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", atomic64_read(&dd_of(dev)->rejected));
}

static ssize_t failing_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", ddr_failing(dd_of(dev)));
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
	mutex_lock(&ddr_mutex);
	ddr_set_away(dd_of(dev), ms);
	mutex_unlock(&ddr_mutex);
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

int ddr_add_disk(struct dd_disk *disk)
{
	struct blk_mq_tag_set *set = &disk->set;
	struct gendisk *gd;
	int err;

	set->ops = &ddr_mq_ops;
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

void ddr_forget(struct dd_disk *disk)
{
	spin_lock(&disk->lock);
	disk->gone = true;
	spin_unlock(&disk->lock);
	list_del(&disk->entry);
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

void ddr_kill(struct dd_disk *disk, bool wait)
{
	struct gendisk *gd = disk->gd;

	/* The removal drops the disk, and with it itself. */
	get_device(disk_to_dev(gd));
	blk_mark_disk_dead(gd);
	ddr_fail_all(disk, true);
	queue_work(dd_wq, &disk->removal);
	if (wait)
		flush_work(&disk->removal);
	put_device(disk_to_dev(gd));
}

struct dd_disk *ddr_new(const struct ddraid_attach *is)
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

/* ---- the module ---- */

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
	err = misc_register(&ddr_control);
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

	misc_deregister(&ddr_control);
	mutex_lock(&ddr_mutex);
	list_for_each_entry_safe(disk, next, &ddr_disks, entry) {
		ddr_forget(disk);
		ddr_kill(disk, false);
	}
	mutex_unlock(&ddr_mutex);
	/* Does all removals first. */
	destroy_workqueue(dd_wq);
	destroy_workqueue(dd_away_wq);
	wait_event(dd_freed, !atomic_read(&dd_live));
	/* Who has freed the last one may still be in ddr_free, on its way out, or wake us there. */
	synchronize_rcu_tasks();
	unregister_blkdev(dd_major, "ddraid");
	ida_destroy(&dd_indexes);
}

module_init(dd_init);
module_exit(dd_exit);

MODULE_DESCRIPTION("Disks of ddraid arrays, served by ddraidd");
MODULE_AUTHOR("The ddraid developers");
MODULE_LICENSE("GPL");
