/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data plane's inside: for the files of core/data/ that need it, and engine.c.
 *
 *   member_io.c  member requests
 *   logio.c      pages of the dirty log, to and from members
 *   lock.c       locks of this node, their queues and jobs; lock.h
 *   region.c     regions: marks, and what is at the members
 *   dlog.c       own slot of the dirty log: marks, clears, release
 *   io.c         front-end requests
 *   stripe.c     stripes under way: read, compute, write; stripe.h
 *   window.c     windows: resync, check, rebuild
 *   pool.c       memory of requests that are through
 */
#ifndef DDRAID_CORE_DATA_DATA_H
#define DDRAID_CORE_DATA_DATA_H

#include "daemon/core/data/lock.h"
#include "daemon/core/door.h"
#include "daemon/core/htable.h"

#define MEMBER_IO_MAX 8192u
/*
 * Member requests that anybody may make without asking for room (member_io_room): each kind has one
 * batch under way. At most 2 reads of each device's superblocks and one of its use block, 2
 * superblocks of an `add`, and of each member: a superblock, 2 copies of a page that is read, a
 * page or FLUSH of an orphan slot, a FLUSH of a rebuild, a FLUSH of a release. And of each device,
 * its images of own pages.
 */
#define MEMBER_IO_SINGLE (4u * DDR_MAX_DEVS + 2u + 6u * DDR_MAX_MEMBERS)
/* Consumers leave so much to windows and marks: what they wait for. */
#define MEMBER_IO_NOT_CONSUMERS 1024u
#define MAX_ACTIVE_OPS 256u /* writes and reads under way at the members at once */

struct member_io {
	struct list link; /* free, held or gone list */
	struct batch *b;
	const struct iovec *iov;
	uint64_t offset, region;
	uint32_t iov_count, bytes, dev, flags, gen;
	enum dev_op op;
	enum dev_kind kind;
	uint8_t member; /* NO_MEMBER: raw */
	bool used, sent;
	bool trial;                   /* a write that tells whether its member takes writes again */
	uint8_t uuid[DDR_UUID_BYTES]; /* a write: of the member that it was sent for */
	int err;                      /* of a request that ends without having been sent */
};

/* A region that this node has a lock on, a mark in, or somebody waiting for. */
struct region {
	struct hentry hash; /* by idx */
	struct list all;
	struct lock *lock;
	struct list marking; /* admitted ops that wait for the mark */
	struct list active;  /* ops at the members */
	struct list readers; /* reads that wait for overlapping own writes */
	uint64_t idx;
	uint64_t test_writes; /* value of writes when EX was tried */
	bool want_mark;       /* the bit is wanted or set in the page image */
	bool shared;          /* another node may have been in here since the last clear: R19 */
	bool ex_tested;       /* EX was granted without queueing since the last write */
	bool resync_all; /* check every stripe, not only the written ones, before the clear: R12 */
	bool doubted;    /* resync_all was asked for while the check ran: check once more */
	struct job *check; /* while a check job is queued or running: R19, R12 */
	bool flushing;     /* part of the flush batch under way */
	uint64_t last_us;  /* end of the last write */
	uint8_t *written;  /* one bit per stripe, since the last clear */
	uint64_t writes;   /* ops admitted, ever */
};

enum op_kind { OP_WRITE, OP_ZEROES, OP_READ };
enum op_state { OPS_WAIT_REGION, OPS_WAIT_MARK, OPS_IO, OPS_RETRY }; /* op_move() */

struct front_request;

struct op {               /* a front-end request's share in one region */
	struct list link; /* region list or engine list */
	struct list all;
	struct front_request *f;
	struct region *r;
	enum op_kind kind;
	enum op_state state;
	struct stripes s;
	uint32_t ok;     /* members that have the write */
	bool sent;       /* a member may have it */
	uint32_t insync; /* a decoding read: the members in sync when it began */
	bool spoiled;    /* a decoding read: own write of the same blocks has begun since */
	uint64_t unreadable_us, again_us; /* a read that met a bad spot: since when, when again */
	uint32_t refused, refusals;       /* a write: by these members, so often */
	uint64_t refused_us;              /* for the first time */
	struct job *job;
};

struct front_request { /* a front-end request */
	struct list link;
	uint64_t tag, offset, next;
	uint32_t bytes, flags, parts; /* parts under way */
	uint32_t ended;               /* parts that are through */
	enum io_op op;
	bool split_done, flushing;
	bool held;  /* through, but not to be answered while the gate is closed */
	bool again; /* a write: a member may have lost parts that were through */
	int err;
	uint8_t *data;
	struct batch batch;
	uint32_t flushed; /* members */
};

struct lpage {                            /* one page of the own slot */
	struct list link;                 /* of those that are to be written, or are */
	struct logpage want;              /* the image that goes out next */
	uint8_t durable[LOG_PLANE_BYTES]; /* dirty plane that is durable for certain */
	uint8_t inflight[LOG_PLANE_BYTES];
	uint8_t block[DDR_BLOCK_BYTES];
	struct iovec iov;
	struct batch batch;
	uint32_t ok;
	bool writing, waiting, need; /* need: want differs from what was last written */
	bool urgent;                 /* a mark waits for it */
	bool rewrite;                /* not written since a member was added: R11 */
	bool misses, misses_sent;    /* dlog_miss: not durable yet */
	uint64_t need_us;
};

struct data {
	/* member_io.c */
	struct member_io *member_io;
	struct list member_io_free, member_io_held, member_io_gone;
	uint32_t member_io_free_count;
	uint32_t member_io_under_way;
	uint32_t dev_ios[DDR_MAX_DEVS];       /* of these, to each device */
	uint32_t member_ios[DDR_MAX_MEMBERS]; /* to each member, by whichever device */
	bool wrote;                           /* this incarnation, to a member */

	/* dlog.c */
	struct lpage *page;             /* log_pages */
	struct list pages_due;          /* in need of a write, or under way */
	uint64_t own_dirty, own_missed; /* regions: bits of the wanted images */
	struct {
		bool busy;
		struct batch batch;
		uint64_t map_num;
	} flush;
	uint64_t scan_us;
	uint64_t n_marks, n_clears, n_page_writes;

	/* region.c */
	struct htable region_of;
	struct list regions;
	bool writes_waited; /* a write waits for a fence */

	/* lock.c */
	struct htable lock_of;
	struct list locks;
	struct list locks_early; /* LOCK_EXTERNAL: these grants do not count yet */
	struct list locks_busy;
	uint64_t n_locks; /* so many came to be */

	/* window.c */
	struct list job_wait;
	uint64_t n_parity_fixed;
	struct unreadable unreadable; /* the last */

	/* io.c */
	struct list front_requests, ops,
	    retry;            /* retry: ops that wait for a change of map or device */
	struct list decoding; /* reads under way that will decode */
	uint32_t front_request_count, op_count;
	uint64_t few_us;   /* since when fewer than k members can be read, or take this node's sign
			    * that it uses them; 0 = enough do */
	uint64_t lacks_us; /* since when one can't be used that no proposal drops, 0 = all can */
	uint64_t last_end; /* where the last write ended: sequential writers */
	uint64_t n_unreadable;

	/* pool.c */
	struct list front_requests_kept, ops_kept;
	uint32_t front_requests_kept_count, ops_kept_count;
};

/* data.c: -ENOMEM, or 0. */
int data_new(struct engine *e);
void data_free(struct engine *e);
void data_clear(struct engine *e);   /* the end of an incarnation; no request is under way */
void data_restart(struct engine *e); /* as new */

/* member_io.c */
void member_io_done(struct engine *e, const struct event *ev);
void member_io_advance(struct engine *e);
/* Consumers' requests that wait for the gate end without being sent. */
void member_io_held_end(struct engine *e);

/* pool.c */
/* NULL without memory. What op_get returns may have memory for stripes. */
struct front_request *front_request_get(struct engine *e);
void front_request_put(struct engine *e, struct front_request *f);
struct op *op_get(struct engine *e);
void op_put(struct engine *e, struct op *op);
void pool_free(struct engine *e);

/* region.c */
struct region *region_find(const struct engine *e, uint64_t idx);
struct region *region_get(struct engine *e, uint64_t idx);
void region_op_add(struct engine *e, struct op *op);
void region_op_done(struct engine *e, struct op *op);
void region_op_cancel(struct engine *e, struct op *op); /* no member has been sent it */
bool region_read_waits(struct engine *e, struct op *op);
void region_marked(struct engine *e, struct region *r);
void regions_advance(struct engine *e);
void region_doubt(struct region *r);
/* By this node, since the last clear. */
bool region_written(const struct engine *e, const struct region *r);
/* R19: is anybody else in here? Asked of the lock manager, where it is not known. */
void region_test_ex(struct engine *e, struct region *r);
/* For lock.c: the answer to that; */
void region_tried(struct region *r, bool alone);
/* R19: the lock is given up, and another node may write what we wrote; */
void region_left(const struct engine *e, struct region *r);
/* is the op of a block that another is about? It is let in, and gets a mark; */
bool region_overlaps(const struct region *r, const struct op *op);
void region_enter(struct engine *e, struct op *op);
/* the region is of no more use, unless somebody has one. */
void region_put(struct engine *e, struct region *r);
void regions_drop_all(struct engine *e);

/* dlog.c */
bool dlog_marked(const struct engine *e, uint64_t region);
void dlog_mark(struct engine *e, struct region *r);
void dlog_advance(struct engine *e);
uint64_t dlog_count(const struct engine *e, bool missed);

/* io.c */
void io_submit(struct engine *e, const struct event *ev);
void io_advance(struct engine *e);
void io_start_op(struct engine *e, struct op *op);
void op_done(struct engine *e, struct op *op, int err);
void op_move(struct op *op, enum op_state to);
void io_free_all(struct engine *e);

/* window.c */
void unreadable_met(struct engine *e, uint32_t members, uint64_t stripe, uint32_t count);
void window_start(struct engine *e, struct job *j);
void jobs_advance(struct engine *e);

#endif
