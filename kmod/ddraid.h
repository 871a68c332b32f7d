/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Disks that a daemon serves: /dev/ddraid<N>. This driver knows nothing of RAID. It hands requests
 * to the daemon that has the disk's session, holds them while there is none, and lets the next
 * session go on with them. The interface is ddraid_uapi.h; doc/kmod.md tells of both sides.
 *
 * Its parts; each calls only those above it:
 *
 *	request.c	the way of a request, from the block layer to the daemon and back
 *	disk.c		a disk, from making it to freeing it; loading and unloading the module
 *	session.c	the control device: which session serves which disk
 *
 * What they share is here and begins with ddr_. Types, and what one file has for itself, begin
 * with dd_.
 *
 * Locks, outer first:
 *
 *	session->mutex	the calls of a session, one at a time; session->disk
 *	ddr_mutex	the list of disks; which session each has; whether it is gone
 *	disk->lock	openers, and whether there may be more
 *	queue->lock	a queue's lists and tags. Taken in queue_rq: no sleep under it
 *
 * ddr_mutex is not held over adding or deleting a gendisk, which wait for others. disk->session is
 * read under RCU by queue_rq, to wake the daemon.
 */
#ifndef DDRAID_H
#define DDRAID_H

#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "ddraid_uapi.h"

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
	struct list_head entry;		  /* of ddr_disks; under ddr_mutex */
	struct dd_session __rcu *session; /* written under ddr_mutex */
	struct pid *pid;		  /* of the session's process; under ddr_mutex */
	bool gone;			  /* not in ddr_disks any more; under ddr_mutex and lock */
	unsigned int away_ms;		  /* under ddr_mutex */
	u64 cookie;			  /* under ddr_mutex */
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

/* request.c */

/* Of each disk's tag set, whose driver_data is the disk. */
extern const struct blk_mq_ops ddr_mq_ops;

/* Wakes the daemon that polls the disk's session, if it has one. Any locks. Doesn't sleep. */
void ddr_wake(struct dd_disk *disk);

/*
 * Fails what waits and what comes; with `handed`, for a disk that has no session, also what was
 * handed out. Not under queue->lock, which it takes. Doesn't sleep.
 */
void ddr_fail_all(struct dd_disk *disk, bool handed);

/*
 * The session is over: what it was handed goes before what has come since. Under ddr_mutex, so
 * that no other session comes meanwhile, and not under queue->lock. Doesn't sleep.
 */
void ddr_take_back(struct dd_disk *disk);

/* Numbers of the moment, over all queues. Any locks, or none. They don't sleep. */
unsigned int ddr_waiting(const struct dd_disk *disk);
unsigned int ddr_handed(const struct dd_disk *disk);
u64 ddr_requests(const struct dd_disk *disk);
/* Whether what comes fails; as these. */
bool ddr_failing(const struct dd_disk *disk);

/* EXCHANGE. Under session->mutex and no other. May sleep: it copies from and to the daemon. */
int ddr_exchange(struct dd_session *s, struct ddraid_exchange __user *arg);

/* disk.c */

extern struct mutex ddr_mutex;
extern struct list_head ddr_disks; /* under ddr_mutex */

/*
 * A disk as `is` wants it, or ERR_PTR. It is in no list and has no gendisk. Not under ddr_mutex:
 * may sleep, and wait for memory that another disk's daemon frees.
 */
struct dd_disk *ddr_new(const struct ddraid_attach *is);

/*
 * Frees a disk that is in no list, and whose gendisk is gone or was never added. Not under a
 * spinlock: may sleep.
 */
void ddr_free(struct dd_disk *disk);

/*
 * Makes the gendisk of what ddr_new made. 0: from here on ddr_kill ends the disk. -errno: it is
 * without one, and the caller's to free. Not under ddr_mutex: may sleep, and wait for others.
 */
int ddr_add_disk(struct dd_disk *disk);

/*
 * Sets the patience: it counts from now if there is no session, and from its end if there is one.
 * Under ddr_mutex. Doesn't sleep.
 */
void ddr_set_away(struct dd_disk *disk, unsigned int ms);

/* Nobody finds or opens the disk any more. Under ddr_mutex. Doesn't sleep. */
void ddr_forget(struct dd_disk *disk);

/*
 * Ends a disk that is gone, without a session and not in the list. Deleting it may have to wait,
 * say for a filesystem with a journal on another disk, which the caller may be the one to serve: so
 * a worker does that. With `wait` it is done on return; not under ddr_mutex then, since a reader of
 * sysfs may wait for that, and deleting waits for the reader. May sleep.
 */
void ddr_kill(struct dd_disk *disk, bool wait);

/* session.c */

/* DDRAID_CONTROL. dd_init in disk.c registers it. */
extern struct miscdevice ddr_control;

#endif
