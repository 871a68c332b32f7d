// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sessions: each is an open of the control device, and serves at most one disk. ATTACH checks what
 * a daemon asks for and gives it a disk, new or there already; DETACH, REVOKE and the last close
 * take it away again. A session's calls run under its mutex; ddraid.h has the other locks.
 */
#include <linux/blkdev.h>
#include <linux/ctype.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "ddraid.h"

#define DD_ATTACH_FLAGS (DDRAID_FRESH | DDRAID_READ_ONLY)

/* ---- sessions ---- */

/* Under ddr_mutex. */
static void dd_bind(struct dd_session *s, struct dd_disk *disk, const struct ddraid_attach *is)
{
	s->disk = disk;
	disk->cookie = is->cookie;
	disk->pid = get_pid(task_tgid(current));
	WRITE_ONCE(disk->away_ms, is->away_ms);
	rcu_assign_pointer(disk->session, s);
}

enum dd_end { DD_LEAVE, DD_DETACH, DD_REVOKE };

/* The session has no disk any more. */
static int dd_unbind(struct dd_session *s, enum dd_end how)
{
	struct dd_disk *disk = s->disk;
	unsigned int openers;

	if (!disk)
		return -ENOTCONN;
	mutex_lock(&ddr_mutex);
	if (how == DD_DETACH) {
		/* None comes between the look and the end. */
		spin_lock(&disk->lock);
		if (disk->openers) {
			spin_unlock(&disk->lock);
			mutex_unlock(&ddr_mutex);
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
		ddr_take_back(disk);
		ddr_set_away(disk, disk->away_ms);
		pr_info("ddraid: %s: no daemon; %u have it open, %u requests wait\n", disk->is.name,
			openers, ddr_waiting(disk));
	} else {
		ddr_forget(disk);
	}
	mutex_unlock(&ddr_mutex);
	if (how == DD_LEAVE)
		return 0;
	if (how == DD_REVOKE)
		pr_warn("ddraid: %s: revoked; %u have it open\n", disk->is.name, openers);
	/* Nobody else needs a disk that was closed: waiting for its removal is short. */
	ddr_kill(disk, how == DD_DETACH);
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
 * Under ddr_mutex: the disk for this session, which is there, or is this fresh one, not yet added.
 * One that is there and is not wanted is *killed. NULL: a fresh one is needed.
 */
static struct dd_disk *dd_choose(const struct ddraid_attach *is, struct dd_disk *fresh,
				 struct dd_disk **killed)
{
	struct dd_disk *disk, *there = NULL;

	list_for_each_entry(disk, &ddr_disks, entry) {
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
		ddr_forget(there);
		*killed = there;
	}
	list_add_tail(&fresh->entry, &ddr_disks);
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
	mutex_lock(&ddr_mutex);
	disk = dd_choose(&is, NULL, &killed);
	if (!disk) {
		/* Not under the mutex: it may wait for memory that another disk's daemon frees. */
		mutex_unlock(&ddr_mutex);
		fresh = ddr_new(&is);
		if (IS_ERR(fresh))
			return PTR_ERR(fresh);
		mutex_lock(&ddr_mutex);
		disk = dd_choose(&is, fresh, &killed);
	}
	if (!IS_ERR(disk)) {
		cookie = disk->cookie;
		dd_bind(s, disk, &is);
	}
	mutex_unlock(&ddr_mutex);
	if (killed) {
		pr_warn("ddraid: %s: revoked\n", killed->is.name);
		ddr_kill(killed, false);
	}
	if (fresh && disk != fresh)
		ddr_free(fresh);
	if (IS_ERR(disk))
		return PTR_ERR(disk);

	if (disk == fresh) {
		err = ddr_add_disk(disk);
		if (err) {
			mutex_lock(&ddr_mutex);
			ddr_forget(disk);
			mutex_unlock(&ddr_mutex);
			s->disk = NULL;
			ddr_free(disk);
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
	out.waiting = ddr_waiting(disk);
	pr_info("ddraid: %s: ddraid%d, served by process %d; %u requests waited\n", disk->is.name,
		disk->index, task_tgid_nr(current), out.waiting);
	/* Who polled before it was attached has missed what has come. */
	ddr_wake(disk);
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
	mutex_lock(&ddr_mutex);
	list_for_each_entry(disk, &ddr_disks, entry)
		if (!memcmp(disk->is.uuid, st.uuid, sizeof(st.uuid)))
			found = disk;
	if (!found) {
		mutex_unlock(&ddr_mutex);
		return -ENOENT;
	}
	disk = found;
	memcpy(st.name, disk->is.name, sizeof(st.name));
	st.index = disk->index;
	st.flags = (rcu_access_pointer(disk->session) ? DDRAID_SERVED : 0) |
		   (ddr_failing(disk) ? DDRAID_FAILING : 0);
	st.openers = READ_ONCE(disk->openers);
	st.waiting = ddr_waiting(disk);
	st.handed = ddr_handed(disk);
	st.away_ms = disk->away_ms;
	st.pid = pid_vnr(disk->pid);
	st.reserved = 0;
	st.size = READ_ONCE(disk->is.size);
	st.cookie = disk->cookie;
	st.requests = ddr_requests(disk);
	st.rejected = atomic64_read(&disk->rejected);
	mutex_unlock(&ddr_mutex);
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
	if (s->disk && ddr_waiting(s->disk))
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
		return ddr_exchange(s, arg);
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

struct miscdevice ddr_control = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ddraid-control",
	.fops = &dd_control_fops,
	.mode = 0600,
};
