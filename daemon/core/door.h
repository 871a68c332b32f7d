/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The door between the two planes of the core.
 *
 * core/cluster/ decides who takes part, which map counts, who is fenced, and what is recovered.
 * core/data/ turns requests into locks, marks and member requests. Neither sees the other's state:
 * struct cluster is known to core/cluster/ only, struct data to core/data/. What data may know of
 * the cluster is struct io_view, and what one asks of the other are the functions below.
 *
 * The view is no copy: its owners write it where it changes, since a proposal, or an error of a
 * member, changes what may be sent next within the same step (R3, R8). For the same reason the
 * masks of members are functions.
 *
 * Conventions: a function that ends in _advance is level-triggered: it looks at the state and does
 * what can be done next; calling it once too often is harmless. engine_step calls them all after
 * each event, so nothing else has to remember whom to wake. All run on the engine's thread.
 */
#ifndef DDRAID_CORE_DOOR_H
#define DDRAID_CORE_DOOR_H

#include "daemon/base/list.h"
#include "daemon/core/data/stripe.h"
#include "daemon/core/engine.h"
#include "daemon/core/format/geometry.h"
#include "daemon/core/format/logpage.h"

#define NO_SLOT UINT32_MAX
#define NO_MEMBER 0xff
#define NO_DEV UINT32_MAX

struct data;    /* data/data.h */
struct cluster; /* cluster/cluster.h */
struct region;

enum phase { PH_NONE, PH_HELLO, PH_STATE, PH_READY };

/* Cluster -> data: written by the files of core/cluster/ that are named, read by all. */
struct io_view {
	/* round.c: of the round. PH_READY: dead slots are known, and locks are claimed */
	enum phase phase;
	/* epoch.c: engine.geo counts; engine.map does; a map that is not committed yet is there */
	bool have_geo, have_map, proposing;
	struct map prop;
	/* own_slot.c: of the dirty log, NO_SLOT: none */
	uint32_t slot;
	bool slot_wanted; /* it is to be read first */
	bool slot_owned;  /* this node's name is on it, durably */
	/* admin.c: nothing new is begun, and what is idle is released at once */
	bool stopping;
	/* leave.c: this node has said that it leaves, and writes nothing any more */
	bool left_sent;
	/* devs.c: the device of each member, NO_DEV: none */
	uint32_t dev_of[DDR_MAX_MEMBERS];
};

struct engine {
	struct engine_cfg cfg;
	uint64_t now; /* of the event that is looked at */
	uint64_t inc; /* this incarnation */
	enum engine_state state;
	struct geo geo;
	struct map map; /* committed; from an assembly on, what the newest superblock says */
	struct io_view view;
	struct data *d;    /* the data plane's */
	struct cluster *c; /* the control plane's */

	/* engine.c */
	enum engine_trace trace;
	uint32_t said; /* so many OUT_SAY: they ask for nothing */
	struct outq *q;
	void **garbage; /* memory of the last step's outs */
	uint32_t garbage_count, garbage_cap;
	bool taken; /* since the last step, so that outs are there which have not been done */
	bool stopped;
	uint64_t heard_us;             /* as engine_heard_us() */
	uint64_t forced_us;            /* since when cfg.force, alone or take_over counts */
	uint64_t waits_hash, waits_us; /* what I/O waits for, 0 = nothing; since when */
};

struct dev_error { /* of a request that a member was sent */
	uint8_t member;
	uint32_t dev, flags;
	enum dev_op op;
	uint64_t offset;
	int err;
};

enum job_kind { JOB_RESYNC, JOB_CHECK, JOB_REBUILD, JOB_READ };

struct job {              /* something that works through a region under EX */
	struct list link; /* lock.jobs */
	struct list wait; /* data.job_wait: for a change of map or device */
	struct region *r;
	uint64_t region;
	enum job_kind kind;
	uint64_t stripe, end; /* next stripe, and where to stop */
	struct stripes s;     /* the window under way */
	uint64_t map_num;     /* epoch number at its start */
	uint32_t target;      /* members that the window is decoded for; 0: parity is checked */
	uint32_t wrote;       /* members that it is written to */
	uint8_t *data;        /* READ: where the user data goes */
	uint64_t first;       /* ... and the stripe that data[0] belongs to */
	bool cancelled;
	bool unreadable; /* ended before its end: a bad spot, and nothing to decode it from */
	void (*done)(struct engine *e, struct job *j);
	void *arg;
};

/* ==== engine.c ================================================================================ */

/* R2, R7: quorum, the group agrees, and the own heartbeat came back lately. */
bool quorum_gate(const struct engine *e);
/* ... and a State has named this node since: no round went on without it. */
bool gate_but_lease(const struct engine *e);
/* ... and this node's sign on the members is fresh: requests may go to members. */
bool gate_open(const struct engine *e);
bool rings_agree(const struct engine *e);           /* the group and quorum mean one membership */
const char *leader_differs(const struct engine *e); /* why this node may not serve, NULL: it may */

/* The next out, zeroed but for its type. */
struct out *out_add(struct engine *e, enum out_type type);
void *out_memory(struct engine *e, size_t bytes); /* lives until the next step */
void engine_say(struct engine *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A move or a decision, in words. */
#define TRACE(e, ...)                                                                              \
	do {                                                                                       \
		if ((e)->trace >= TRACE_CLUSTER)                                                   \
			engine_say(e, __VA_ARGS__);                                                \
	} while (0)
/* Of the data plane. */
#define TRACE_DATA(e, ...)                                                                         \
	do {                                                                                       \
		if ((e)->trace == TRACE_ALL)                                                       \
			engine_say(e, __VA_ARGS__);                                                \
	} while (0)
/* The only ways to another state: each move is checked, and traced. */
void engine_move(struct engine *e, enum engine_state to);
void phase_move(struct engine *e, enum phase to);

/* ==== cluster -> data ========================================================================= */

/* member_io.c: requests of a batch that is open (batch.h). */
/* To a member of the map. It waits while the gate is closed. offset: the member's bytes; iov: as
 * long as the request lasts; region: the array's, for traces. */
void member_io_start(struct engine *e, struct batch *b, uint8_t member, enum dev_op op,
		     enum dev_kind kind, uint32_t flags, uint64_t offset, uint32_t bytes,
		     const struct iovec *iov, uint32_t iov_count, uint64_t region);
/* To a device, whatever it is, and whether or not the gate is open. */
void member_io_start_raw(struct engine *e, struct batch *b, uint32_t dev, enum dev_op op,
			 enum dev_kind kind, uint64_t offset, const struct iovec *iov);
void flush_members(struct engine *e, struct batch *b, uint32_t members);
/* Room for `count` more requests of a consumer, or of a window or a mark? Whoever has none waits:
 * the end of any request lets him try again. */
bool member_io_room(const struct engine *e, uint32_t count, bool consumer);
bool member_io_any(const struct engine *e);             /* under way, or held */
uint32_t dev_ios(const struct engine *e, uint32_t dev); /* how many are under way there */
bool member_ios(const struct engine *e, uint8_t m);     /* are any under way to it? */
void member_ios_cancel(struct engine *e, uint8_t m);    /* the map drops it */
bool is_connection_error(int err);                      /* the connection's, not the request's */

/* logio.c: requests of a batch that is open. seq: the image's number, which says the copy. */
void log_write(struct engine *e, struct batch *b, uint32_t slot, uint32_t page, uint64_t seq,
	       uint32_t members, const struct iovec *image);
/* From that page on, as much as `to` has room for. */
void log_read(struct engine *e, struct batch *b, uint8_t member, uint32_t slot, uint32_t page,
	      uint32_t copy, const struct iovec *to);

/* lock.c. A lock's answer, from the leader's table or an external manager: */
void lock_granted(struct engine *e, uint64_t id, enum lock_mode mode, bool refused);
void lock_called_back(struct engine *e, uint64_t id, enum lock_mode wanted);
/* A round is Ready: what was asked for and not granted is asked again. */
void locks_resend(struct engine *e);
/* The locks that this node holds, `max` at a time: *after is 0 at first. 0: those were all. */
uint32_t locks_held(const struct engine *e, uint64_t *after, uint64_t id[], uint32_t mode[],
		    uint32_t max);

/* region.c */
/* R12, R17: the parity of any stripe may be wrong. All regions of this node are checked as a whole
 * before their marks are cleared. */
void regions_doubt(struct engine *e);
bool regions_any(const struct engine *e);     /* marked, locked or waited for */
bool regions_writing(const struct engine *e); /* a job has a window under way (lock.c) */

/* dlog.c: the pages of the own slot. */
int dlog_alloc(struct engine *e); /* the geometry is known; 0, or -1 without memory */
void dlog_reset(struct engine *e);
bool dlog_ready(const struct engine *e); /* there is memory for it */
/* The image of a page that the slot is taken with; dirty: NULL = none is. dead_below: as in struct
 * logpage. */
void dlog_take_page(struct engine *e, uint32_t page, uint64_t seq, uint64_t dead_below,
		    const uint8_t *dirty, const uint8_t *missed);
void dlog_name(struct engine *e, uint32_t node,
	       uint64_t inc); /* whose slot it is; 0, 0: nobody's */
bool dlog_named(const struct engine *e);
bool dlog_settled(const struct engine *e); /* what is wanted is on all members */
void dlog_rewrite_all(struct engine *e);   /* R11: a member was added */
bool dlog_rewritten(const struct engine *e);
/* R15: a member that is out of the map may lack what this node has written in that region. */
void dlog_miss(struct engine *e, uint64_t region);
bool dlog_missed_settled(const struct engine *e); /* all such is durable */
void dlog_dropped(struct engine *e);              /* a member has left the map */
void dlog_release_missed(struct engine *e);       /* all members are in sync */
/* Regions that a member may lack because of this node. */
void dlog_plane(const struct engine *e, uint32_t page, uint8_t plane[LOG_PLANE_BYTES]);

/* io.c: front-end requests. */
bool io_any(const struct engine *e);                   /* there are some */
bool io_writing(const struct engine *e);               /* a write is at the members */
bool io_tries(const struct engine *e, uint8_t member); /* a write waits that can try it */
void io_lost(struct engine *e, uint8_t member);        /* R17: what it had answered may be gone */
void io_abort_all(struct engine *e, int err);          /* R6: all that is not at the members ends */

/* window.c: a job has a region to itself, and goes through it window by window. */
#define UNREADABLE_AGAIN_US 2000000ull /* a job that met a bad spot tries again after so long */
void job_init(struct job *j, enum job_kind kind, void (*done)(struct engine *, struct job *),
	      void *arg);
/* From `stripe` to `end`, in that region. `done` is called when it is through, or met a bad spot
 * (j->unreadable), or had nothing to do any more. */
void job_start(struct engine *e, struct job *j, uint64_t region, uint64_t stripe, uint64_t end);
/* `done` is not called. It may be busy for a moment yet: look before starting it again. */
void job_cancel(struct engine *e, struct job *j);
bool job_busy(const struct job *j); /* a batch of it is under way */
void job_free(struct job *j);       /* the end: its memory, whatever it does */

/* ==== data -> cluster ========================================================================= */

/* members.c */
bool member_usable(const struct engine *e, uint8_t member); /* connected, and nothing against it */
bool members_ready(const struct engine *e, uint32_t mask);  /* all of them are */
const struct map *map_next(const struct engine *e);         /* the proposed, else the committed */
uint32_t read_mask(const struct engine *e);                 /* in sync, and usable */
uint32_t write_targets(const struct engine *e);             /* members that new writes go to */
uint32_t write_musts(const struct engine *e); /* without these no write is acknowledged */
/* A member has answered a request with an error. True: that is this read's alone, since the data
 * needs the member. */
bool member_failed(struct engine *e, const struct dev_error *f);
/* It refuses writes, and must stay: it is read, and now and then a write tries it. */
bool member_unwritable(const struct engine *e, uint8_t member);
bool member_on_trial(const struct engine *e, uint8_t member); /* now */
void member_wrote(struct engine *e, uint8_t member);          /* a write that tried it went well */
uint64_t member_refused_us(const struct engine *e, uint8_t member); /* the first time */
/* It takes writes of the use block that began after `us`. */
bool member_wrote_since(const struct engine *e, uint8_t member, uint64_t us);
/* Its log may be read although it was lost: it is back as what it was. */
bool member_log_readable(const struct engine *e, uint8_t member);

/* devs.c */
bool dev_connected(const struct engine *e, uint32_t dev);
bool devs_entering(const struct engine *e); /* one enters the map, and may be another */

/* cut_off.c: R5 */
/* What a write to it is for, now: the UUID of the member, or zeroes. */
void dev_sent_as(const struct engine *e, uint32_t dev, uint8_t uuid[DDR_UUID_BYTES]);
/* A write there, that was for that member, may still land; */
void dev_unanswered(struct engine *e, uint32_t dev, const uint8_t uuid[DDR_UUID_BYTES]);
bool devs_landed(const struct engine *e); /* and none can any more. */

/* back.c: an image of a page of the own slot goes to members, and is acknowledged by them. */
void back_sent(struct engine *e, uint32_t page, uint32_t members);
void back_told(struct engine *e, uint32_t page, uint64_t seq, uint32_t members);

/* Is nobody else in the array? */
bool alone(const struct engine *e);
/* R5: somebody who may have been writing is gone, and not fenced. */
bool lost_unfenced(const struct engine *e);
/* quiesce.c: no write begins now, since a member is being promoted. */
bool writes_held(const struct engine *e);
/* use.c: this node's sign on the members hangs. */
bool use_hangs(const struct engine *e);

/* locks.c: to the leader's table, or an external manager; lock_granted() answers. */
void lock_ask(struct engine *e, uint64_t id, enum lock_mode mode, bool try_only);
void lock_drop(struct engine *e, uint64_t id);
/* LOCK_EXTERNAL: a grant counts when all have answered the Settle of that number. */
uint64_t settle_want(struct engine *e);
void settle_void(struct engine *e, bool waits); /* another round; a grant waits for an answer */
bool settle_passed(struct engine *e, uint64_t *answered); /* all have, up to that one */

/* recovery.c */
bool region_foreign(const struct engine *e, uint64_t idx);   /* dirty in an orphan slot: R18 */
void recovery_window(struct engine *e, const struct job *j); /* counts it, for the status */

#endif
