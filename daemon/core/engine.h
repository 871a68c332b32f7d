/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine: one array on one node, control plane and data plane, without I/O.
 *
 * Whatever happens comes in as a struct event, with the time. Whatever is to be done comes
 * out as a struct out, in order. The engine makes no system call, knows no clock and no
 * randomness, and never calls back. One thread drives one engine.
 *
 * Ownership: memory that an event points to belongs to the caller and is valid during the call,
 * but for the buffer of EV_IO, which is the engine's until its OUT_IO_DONE. Memory that an
 * OUT_DEV_IO points to is valid until the EV_DEV_DONE with its id; all other memory that an
 * out points to is valid until the next engine_step (but see engine_take).
 */
#ifndef DDRAID_CORE_ENGINE_H
#define DDRAID_CORE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/base/limits.h"
#include "daemon/core/format/superblock.h"
#include "daemon/core/format/useblock.h"
#include "daemon/ports/lock.h" /* modes and names of locks */
#include "daemon/ports/types.h"

struct engine;

/* What a node must remember over its own restarts (R1, R6). */
struct record {
	struct epoch acked;     /* newest epoch that it acknowledged */
	struct epoch committed; /* newest epoch that it knows committed */
	struct ring alone;      /* two_node: in which it last committed a map alone */
	uint32_t removed_count; /* incarnations that a quorate view left behind */
	struct {
		uint32_t node, by_node; /* by: the incarnation that saw it, 0 = not known */
		uint64_t inc, by_inc;
	} removed[DDR_MAX_NODES];
};

enum lock_backend {
	LOCK_TABLE = 0,   /* own table: `cpg`, and `local` when alone */
	LOCK_EXTERNAL = 1 /* through daemon/ports/lock.h: OUT_LOCK, OUT_UNLOCK, EV_LOCK_* */
};

struct tunables {
	uint32_t release_delay_ms;   /* idle time before a region is flushed and cleared (1000) */
	uint32_t heartbeat_ms;       /* at least so often a node multicasts that it lives (200) */
	uint32_t heartbeat_limit_ms; /* no I/O when the own heartbeat was sent longer ago (1500):
				      * half a token time-out, R7 */
	uint32_t evict_ms;           /* silence, or no answer to the leader, that evicts (4000) */
	uint32_t settle_ms;          /* how long `add` waits to see whether another array took
				      * the device; the same on all nodes, CLAIM_SETTLE_MS (1000) */
	uint32_t reach_ms;           /* if longer than evict_ms: how long what was cut off may land,
				      * and a node may take to reach again a member that no other
				      * can stand in for (0) */
	uint32_t member_retry_ms;    /* how long a suspect member may come back by itself (30000) */
	uint32_t restart_wait_ms;    /* how long a node that lost its daemon only is not fenced: its
				      * restart may see to it (0) */
	uint32_t checkpoint_regions; /* a rebuild's cursor goes into the map every so many (64) */
	uint32_t renew_ms;           /* so often the use block is written (1000) */
	uint32_t patience_ms; /* a user whose use block did not change for so long is gone (5000);
			       * more than it takes to notice a lost leader */
	uint32_t claim_ms;    /* how long a claim may take: who claims at the same time is
			       * waited for twice as long (250). 0: nobody else can, in tests */
	bool eio_when_lost;   /* fewer than k fragments: EIO, else hold */
	bool mark_ahead;      /* mark the next region of a sequential writer (true) */
};

struct engine_cfg {
	uint32_t node;       /* > 0 */
	uint64_t inc;        /* unique per start; the engine never reuses it. On removal it asks
			      * for a new one with OUT_REMOVED and gets it with EV_RESTART */
	uint64_t fenced_inc; /* this node's up to here are fenced, 0 = not known of any */
	bool fence_waits;    /* OUT_FENCE cuts nothing, it only waits (zombie_timeout), */
	uint32_t fence_ms;   /* for so long. A leader with other values gives no slot */
	bool two_node;       /* of two nodes each has quorum alone: the fence decides who goes on.
			      * Until EV_QUORUM says */
	uint8_t array_uuid[DDR_UUID_BYTES];
	struct record record; /* as last persisted, zero at first */
	enum lock_backend lock_backend;
	bool force; /* assemble although R1 says no */
	bool alone; /* two_node: begin although the other node has not been met */
	/* Who this is, for others that would use the same members (use.c). */
	uint64_t nonce;               /* random, another one in each daemon; 0: inc */
	char cluster[DDR_NAME_BYTES]; /* name of the cluster, "" = a daemon alone */
	char host[DDR_NAME_BYTES];    /* of this node */
	struct use_process process;
	/* Seconds since 1970 when the engine's time was 0, by this node's clock: for people who
	 * look at a use block. 0: not said. */
	uint64_t wall_s;
	/* Assemble an array of a cluster although this is another one, or a daemon alone. */
	bool take_over;
	uint32_t max_ios; /* front-end requests at once (256); more wait in the engine's queue */
	struct tunables tun;
};

enum ev_type {
	EV_TICK,     /* time passed */
	EV_DEV_UP,   /* a device is connected, and nothing sent before by us still runs there
		      * (R5: fenced, or waited for). Also after a reconnect */
	EV_DEV_DOWN, /* its connection broke. EV_DEV_DONE(-ECONNRESET or the like) for all that was
		      * under way comes before or after this, but comes */
	EV_DEV_DONE, /* one OUT_DEV_IO is done */
	EV_VIEW,     /* group membership */
	EV_QUORUM,   /* quorum's view */
	EV_MSG,      /* an ordered multicast, own ones too */
	EV_FENCE_DONE,   /* OUT_FENCE answered: err 0 = nothing of it lands any more */
	EV_RECORD_DONE,  /* OUT_RECORD is durable */
	EV_IO,           /* front-end request */
	EV_ADMIN,        /* from ddraidctl */
	EV_LOCK_GRANTED, /* LOCK_EXTERNAL only, as the two that follow */
	EV_LOCK_REFUSED,
	EV_LOCK_CALLBACK,
	EV_GIVE_UP, /* this incarnation ends: nothing is known of what its LOCK_EXTERNAL holds, or
		     * a consumer is cut off whose requests don't end. From now on no request is
		     * begun; OUT_REMOVED follows when the others have been told */
	EV_PROBED,  /* OUT_PROBE answered */
	EV_RESTART, /* after OUT_REMOVED: go on under the new incarnation */
};

enum io_op { IO_READ, IO_WRITE, IO_FLUSH, IO_ZEROES };
enum { IO_F_FUA = 1, IO_F_UNMAP = 2 };

enum admin_cmd {
	ADMIN_FAIL,  /* member -> FAULTY */
	ADMIN_ADD,   /* device `uri` becomes member `member` (MISSING or FAULTY), full rebuild */
	ADMIN_READD, /* member's own device is back: partial if R15 allows, else refused */
	ADMIN_STOP,  /* stop the array on this node: drain, clear, leave */
	ADMIN_TAKE,  /* as engine_cfg.take_over, likewise */
	ADMIN_FORCE, /* as engine_cfg.force, of one that is not active; for whoever leads */
	ADMIN_ALONE, /* as engine_cfg.alone, likewise: this node leads, if it is alone */
};

struct event {
	enum ev_type type;
	uint64_t now_us; /* monotonic; never goes back */
	union {
		struct {
			uint32_t dev;      /* 0..DDR_MAX_DEVS-1, the runtime's number for it */
			uint64_t bytes;    /* DEV_UP: its size */
			uint32_t multiple; /* DEV_UP: of what offsets and lengths must be multiples,
					    * 0 = of what sectors are */
			uint64_t instance; /* DEV_UP: exporter instance id, 0 = unknown */
			const char *uri;   /* DEV_UP: as configured, valid during the call */
			int err;           /* DEV_DOWN: why, -errno */
		} dev;
		struct {
			uint64_t id;
			int err; /* 0 or -errno */
		} done;
		struct {
			struct ring ring;
			uint32_t count;
			uint32_t node[DDR_MAX_NODES]; /* ascending */
			bool quorate;                 /* EV_QUORUM only */
			bool two_node;                /* EV_QUORUM only: as in engine_cfg */
		} view;
		struct {
			uint32_t from; /* node id of the sender */
			const uint8_t *data;
			size_t bytes;
			const char *broken; /* in place of a message: what the group says is
					     * wrong with the sender, static */
		} msg;
		struct {
			uint32_t node;
			uint64_t inc;
			int err;
		} fence;
		struct {
			uint64_t tag; /* the front-end's; comes back in OUT_IO_DONE */
			enum io_op op;
			uint32_t flags;
			uint64_t offset; /* bytes, multiple of the block */
			uint32_t bytes;  /* multiple of the block, <= DDR_MAX_FRONT_IO_BYTES */
			void *data;
		} io;
		struct {
			uint64_t tag;
			enum admin_cmd cmd;
			uint8_t member;
			const char *uri; /* ADMIN_ADD */
			uint64_t before; /* ADMIN_ADD: sb_place_sum() of the device as it was
					  * checked: no other is written to. 0: it was not */
		} admin;
		struct {
			uint64_t id;
			enum lock_mode mode; /* CALLBACK: what somebody else wants */
		} lock;
		struct {
			uint64_t claim;
			bool dead; /* for certain; else it is not known */
		} probed;
		struct {
			uint64_t inc;
		} restart;
	};
};

/* Why a member request was made; for traces, statistics and the simulator's checks. */
enum dev_kind {
	KIND_DATA,
	KIND_LOG,
	KIND_SB,
	KIND_RESYNC,
	KIND_REBUILD,
	KIND_CHECK,
	KIND_FLUSH,
	KIND_BACK, /* the own log's pages, of a member that is back: read only */
	KIND_USE,  /* use block: R4 and R5 are not for it, late ones only make somebody wait */
	KIND_COUNT
};

enum out_type {
	OUT_DEV_IO,     /* send to a device; EV_DEV_DONE must follow */
	OUT_DEV_CANCEL, /* finish what is under way there soon, with -ECANCELED: the map no longer
			 * holds this member; EV_DEV_DONE still comes for each */
	OUT_SEND,       /* multicast to the group, ordered, own delivery included */
	OUT_FENCE,   /* see that nothing of (node, inc) lands any more; EV_FENCE_DONE must follow.
		      * Asked again after a failure */
	OUT_RECORD,  /* make this record durable, then EV_RECORD_DONE */
	OUT_IO_DONE, /* answer a front-end request */
	OUT_ADMIN_DONE,
	OUT_OPEN,    /* open `uri` as a further device; EV_DEV_UP when it is there */
	OUT_LOCK,    /* LOCK_EXTERNAL: request id in mode; try_only = refuse rather than queue */
	OUT_UNLOCK,  /* LOCK_EXTERNAL */
	OUT_REMOVED, /* this incarnation was removed (R6): drop every front-end open, and come
		      * back with EV_RESTART, any time after no request of it is under way at a
		      * device: none is begun until then */
	OUT_PROBE,   /* has this process ended, for certain? EV_PROBED must follow */
	OUT_STOPPED, /* ADMIN_STOP is through, the slot is free */
	OUT_SAY,     /* engine_trace(): a move or a decision, in words */
};

struct out {
	enum out_type type;
	union {
		struct {
			uint64_t id;
			uint32_t dev;
			enum dev_op op;
			enum dev_kind kind;
			uint32_t flags;
			uint64_t offset; /* member bytes */
			uint32_t bytes;
			const struct iovec *iov; /* READ, WRITE: sum = bytes */
			uint32_t iov_count;
			uint64_t region; /* DATA, RESYNC, REBUILD, CHECK: the array's region */
		} io;
		struct {
			uint32_t dev;
		} cancel;
		struct {
			const uint8_t *data;
			size_t bytes;
		} send;
		struct {
			uint32_t node;
			uint64_t inc;
		} fence;
		const struct record *record; /* until EV_RECORD_DONE */
		struct {
			uint64_t claim;
			struct use_process process;
		} probe;
		struct {
			uint64_t tag;
			int err;
		} io_done;
		struct {
			uint64_t tag;
			int err;
			const char *why; /* static sentence or NULL */
		} admin_done;
		struct {
			const char *uri; /* until the next step */
		} open;
		struct {
			bool unsealed; /* the members don't tell that this run has ended */
		} stopped;
		struct {
			uint64_t id;
			enum lock_mode mode;
			bool try_only;
		} lock;
		const char *say; /* a line, until the next step */
	};
};

struct outq {
	struct out *v;
	uint32_t count, cap;
};

enum engine_state {
	ENGINE_WAIT_QUORUM, /* no quorum, or group and quorum disagree */
	ENGINE_JOINING,     /* waits for the leader, or assembles as leader */
	ENGINE_ACTIVE,      /* serves */
	ENGINE_REMOVED,     /* waits for EV_RESTART */
	ENGINE_REFUSED,     /* assembly refused: R1, or others use the array; status says why */
	ENGINE_STOPPED,
};

enum recovery_state {
	RECOVERY_LOST,   /* it was found to have departed */
	RECOVERY_FENCED, /* nothing of it lands any more */
	RECOVERY_READ,   /* what it may have been writing is known */
	RECOVERY_DONE,   /* none of that is left */
};

/*
 * A lost incarnation and what became of its slot, as this node saw it. Times are those of events,
 * 0 = not yet. regions, bytes and read_bytes are this node's own work; the cluster's is the sum
 * over its nodes. Bytes are the users', of all stripes looked at, whether they had to be changed or
 * not. With a member missing there is nothing to resync: the region is only written down as missed.
 */
struct recovery {
	uint32_t node;
	uint64_t inc;
	enum recovery_state state;
	uint32_t slot;       /* UINT32_MAX = it had none, or not known here */
	uint64_t lost_us;    /* it was found to have departed */
	uint64_t fenced_us;  /* its fence answered, or was heard of */
	bool fenced_before;  /* by its own node, before lost_us: how long that took is not known */
	uint64_t read_us;    /* its slot was read (on the leader), or told (elsewhere) */
	uint64_t marked;     /* regions that were dirty in it */
	uint64_t done_us;    /* none of them is left */
	uint64_t regions;    /* resynced as a whole, by the leader */
	uint64_t bytes;      /* of these */
	uint64_t read_bytes; /* resynced first because they were read here: R18 */
};

/*
 * A read error of a member that the map can't do without: what lies there can't be decoded either.
 * A front-end's read is answered with EIO then, a resync or a rebuild waits. A write of these
 * blocks, or a member that comes back, mends it.
 */
struct unreadable {
	uint32_t members; /* mask */
	uint64_t
	    offset; /* of the user's bytes, where it was met; the request's, not the sector's */
	uint32_t bytes;
	uint64_t us; /* when, 0 = never */
};

/* An error that a member answered, for which this node can't use it or could not. */
struct member_error {
	int err; /* -errno, 0 = none */
	enum dev_op op;
	bool fua;        /* a write that had to be durable: R14 */
	uint64_t offset; /* of the member's bytes */
	uint64_t us;     /* when */
	uint64_t count;  /* of all of them so far, so that each is seen to be another */
};

/* Why a member's state is what it is. */
enum member_why {
	WHY_NONE,          /* not known: it was so when the array was assembled */
	WHY_BROKE_OFF,     /* its connection */
	WHY_ERROR,         /* it answered a request with one */
	WHY_ERROR_EARLIER, /* a flush failed, in an earlier incarnation of the daemon */
	WHY_SHRANK,
	WHY_OLDER,    /* an older copy of itself: its log tells */
	WHY_ABSENT,   /* when the array was assembled */
	WHY_STALE,    /* its superblock was older than the others', or of another history */
	WHY_AWAY,     /* not back within member_retry */
	WHY_OPERATOR, /* fail, add, re-add */
	WHY_BACK,
	WHY_REBUILT,
	WHY_COUNT
};

struct member_cause {
	enum member_why why;
	uint32_t node;             /* who found it */
	struct member_error error; /* WHY_ERROR; without us and count */
};

/* A picture for status, tests and the simulator; a copy. */
struct engine_status {
	enum engine_state state;
	bool io_allowed;     /* quorate, own heartbeat fresh, enough members, not held */
	const char *waits;   /* why I/O waits, or NULL: a static sentence, or waits_text here */
	uint32_t waits_node; /* the node it speaks of, or 0 */
	uint64_t waits_since_us;
	char waits_text[1024];
	uint32_t leader;
	bool leading;
	struct map map;      /* committed */
	struct lineage past; /* the epochs that were committed before, as far as remembered */
	bool proposing;
	struct map proposed; /* valid if proposing */
	uint32_t unusable;   /* mask of members that the map has and this node can't use */
	struct member_error error[DDR_MAX_MEMBERS]; /* the last, until it has come back */
	struct member_cause cause[DDR_MAX_MEMBERS]; /* of the last change of state in `map` */
	uint32_t flaps[DDR_MAX_MEMBERS]; /* so often in a row it broke off soon after it was back */
	uint64_t
	    kept_out_us[DDR_MAX_MEMBERS]; /* ... so it is not let in for so long, 0 = it may come */
	uint32_t nodes;                   /* active incarnations */
	uint32_t unfenced;                /* departed and not yet fenced */
	uint32_t slots_unrecovered;       /* dead slots, the array's own included */
	uint64_t regions_dirty;           /* marked in the own slot */
	uint64_t regions_missed;
	uint64_t regions_to_resync;           /* in dead slots, as far as known here */
	uint64_t resync_total;                /* the most that these were; 0 when none is left */
	uint64_t rebuild_done, rebuild_total; /* regions; 0, 0 when none runs */
	uint32_t rebuild_waits_node;          /* a rebuild waits for this node, 0 = for none */
	const char *rebuild_waits;            /* ... to do what */
	uint64_t rebuild_waits_us;            /* since */
	uint32_t ios;                         /* front-end requests under way or queued */
	uint32_t dev_ios;                     /* member requests under way */
	uint64_t marks, clears, page_writes, lock_requests; /* counters since start */
	uint64_t parity_fixed; /* stripes whose parity a resync or check changed */
	uint64_t resync_bytes, read_resync_bytes; /* all of this node: of dead slots, for reads */
	uint64_t unreadable_reads;                /* front-end reads answered with EIO, see there */
	struct unreadable unreadable;             /* the last one that this node met */
	uint64_t rejected;        /* messages of nodes that are broken; the last one: */
	uint32_t rejected_node;   /* whose */
	const char *rejected_why; /* what was wrong with it, "names a member ..."; static */
	bool unreadable_waits;    /* this node's resync or rebuild waits for it */
	uint32_t recovery_count;  /* oldest first */
	struct recovery recovery[DDR_RECOVERIES];
};

/* Fills in the defaults above. */
void engine_cfg_init(struct engine_cfg *cfg);
/* NULL: out of memory. Nothing happens before the first event. */
struct engine *engine_new(const struct engine_cfg *cfg);
void engine_free(struct engine *e);
/* Appends to *q. q's array is grown with realloc; the caller frees it. */
void engine_step(struct engine *e, const struct event *ev, struct outq *q);
/*
 * The same for an EV_IO or EV_DEV_DONE that others follow at once: what can be done next is looked
 * at once for all of them, by the next engine_step, which must come before any other call but this.
 * What these outs point to is valid until the engine_step or engine_take after that one.
 */
void engine_take(struct engine *e, const struct event *ev, struct outq *q);
/*
 * Between two steps: takes over those tunables that may change while the array runs, and differ
 * between nodes meanwhile: release_delay_ms, member_retry_ms, checkpoint_regions, eio_when_lost,
 * mark_ahead. The others keep the value that they were started with, for the nodes count on one
 * another's. The next step goes by them, so an EV_TICK should follow at once.
 */
void engine_tune(struct engine *e, const struct tunables *tun);
enum engine_trace { TRACE_NOTHING, TRACE_CLUSTER, TRACE_ALL };
/*
 * Between two steps: from now on OUT_SAY tells each move and decision of the control plane, or of
 * the data plane, too, which has many. Nothing else goes by it. TRACE_NOTHING at first.
 */
void engine_trace(struct engine *e, enum engine_trace trace);
/* When an EV_TICK is wanted at the latest, in the time of the events. */
uint64_t engine_deadline_us(const struct engine *e);
/*
 * R7, for what is submitted and not sent yet: when this node sent the newest heartbeat that came
 * back to it in a round that counts it in; 0 = none. The others begin to wait for what it may still
 * send after that, never before.
 */
uint64_t engine_heard_us(const struct engine *e);
/* Until when this node's own sign on the members keeps others from using them (use.c); 0: it has
 * none, UINT64_MAX: for ever. */
uint64_t engine_use_until_us(const struct engine *e);
/* When this node sent the newest heartbeat that came back to it at all; 0 = none did. */
uint64_t engine_heartbeat_us(const struct engine *e);

void engine_status(const struct engine *e, struct engine_status *st);
/* The geometry, or NULL before the array is assembled. */
const struct geo *engine_geo(const struct engine *e);
/* Of the last change of its state in that map. */
const struct member_cause *engine_cause(const struct engine *e, uint8_t member);
const struct map *engine_map(const struct engine *e); /* the engine's; none yet: no members */
/* For the simulator's checks: what this engine believes that it holds. */
enum lock_mode engine_lock_held(const struct engine *e, uint64_t lock_id);
uint32_t engine_slot(const struct engine *e);                       /* UINT32_MAX = none */
uint8_t engine_member_of_dev(const struct engine *e, uint32_t dev); /* 0xff = none */
bool engine_dev_busy(const struct engine *e, uint32_t dev); /* requests are under way there */
/* Why a device that was read is no member, in words. NULL: it is one, or it is not known yet. */
const char *engine_dev_foreign(const struct engine *e, uint32_t dev);
/* What is connected there came back as an older copy of the member that it is: it lacks what this
 * node has written to its dirty log. So all that this node may have written to it is copied anew.
 */
bool engine_dev_older(const struct engine *e, uint32_t dev);
/* It is another way to its member than the one on which this node's writes were cut off: it is not
 * used before these can't land any more (R5). */
bool engine_dev_lands(const struct engine *e, uint32_t dev);
/* Why a device can't be a member of this array: its size, or the requests that it takes, with the
 * numbers; or its superblock belongs to another layout, or another place. NULL: it can, or the
 * geometry is not known yet. */
const char *engine_dev_misfit(const struct engine *e, uint32_t dev);
/* It has a misfit, or carries no superblock of this array: it is connected anew now and then, and
 * this holds on until the new connection's superblock has been read. */
bool engine_dev_unfit(const struct engine *e, uint32_t dev);
const char *engine_state_name(enum engine_state s);

/*
 * What `create` writes: superblock and log images of one member, as (offset, block) pairs through
 * `emit`. The array's own slot has every region dirty (initial sync) unless `clean`.
 */
struct create_params {
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint8_t member_uuid[DDR_MAX_MEMBERS][DDR_UUID_BYTES];
	char name[DDR_NAME_BYTES];
	struct geo_params geo;
	uint64_t inc; /* creator's incarnation: epoch (1, inc) */
	bool clean;   /* the members are known to be all zero */
};
int create_member(const struct create_params *p, uint8_t index,
		  int (*emit)(void *arg, uint64_t offset, const uint8_t *block), void *arg);

#endif
