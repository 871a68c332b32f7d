/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of the array runtime share. Everything below `thread` is the engine thread's.
 *
 *	array.c		life: thread, phases, start and stop
 *	pump.c	events into the engine, outs out of it
 *	dev.c	members
 *	disk.c	the array as a block device of this node
 *	alive.c	whether this node's last incarnation has ended, before it is fenced
 *	life.c	incarnations, the record, fences: what goes by way of other threads
 *	locks.c	the lock manager, where it is none of the core's
 *	status.c	looking in, and what is logged by itself
 *
 * Events: every callback (member, front-end, group, timers, other threads) only appends an event
 * to a queue. At the end of each turn of the loop `pump` steps the engine with one event after the
 * other and does what each step gave before the next one. So the engine is never entered twice,
 * events keep their order, and what an out points to is valid while it is done.
 *
 * Phases: GROUP -(up)-> RECORD -(loaded)-> FENCE, if the last incarnation did not end cleanly ->
 * RECORD (a new incarnation is made durable) -> RUN -(array_stop)-> STOP -(OUT_STOPPED or out of
 * time)-> CLOSE -(group left, consumers told, members closed)-> the thread ends. Stop and errors
 * lead from everywhere to CLOSE. The members are opened in RUN, not before: then nothing of the
 * last incarnation can land any more, and the fence command may end all of this node's connections.
 */
#ifndef DDRAID_RUNTIME_ARRAY_INT_H
#define DDRAID_RUNTIME_ARRAY_INT_H

#include <pthread.h>

#include "daemon/base/log.h"
#include "daemon/ports/lock.h"
#include "daemon/runtime/array.h"
#include "daemon/runtime/fence/fence.h"

#define ARRAY_QUEUE_MAX (64u << 10) /* events: bounded by front-end, MEMBER_IO_MAX and batches */
#define ARRAY_PUMP_BATCH 512u       /* events per turn, so that descriptors are looked at */
/* Bytes that wait for the group to take them; more than what all pages of the largest log say, and
 * the claims of all locks that a node can hold. */
#define ARRAY_SEND_MAX (128u << 20)
#define ARRAY_WATCH_US 500000ull /* how often changes are looked for */
#define DISK_LOOK_MS 5000u /* how long a stop or detach waits to know who has the device open */
#define DISK_AGAIN_MS 20u
#define DISK_CUT_MS 5000u /* how long a forced detach waits for what is under way */
/* libcpg takes a megabyte of it for each dispatch; only what was touched is locked. */
#define ARRAY_STACK_BYTES (8u << 20)

struct dev {
	struct array *a;
	uint32_t index;
	bool used, up, closing;
	bool held;    /* connected, and the engine is not told yet: dev_lease */
	bool zombie;  /* a write of ours was cut off and may still land: R5 */
	bool foreign; /* it is not what its URI says */
	bool told;    /* as one that can't be the member: connected anew without a word */
	bool added;   /* `add` opened it: as a member it is news for all nodes */
	struct member *m;
	char uri[DDR_URI_BYTES];
	struct member_info info;
	uint64_t opened_us, down_us, held_us;
	bool older; /* engine_dev_older, and said so */
	bool lands; /* engine_dev_lands, likewise */
	char why[256];
};

/* A member request; of a pool that grows and is kept. */
struct dev_io {
	struct member_req req;
	struct dev *d;
	struct dev_io *next;
};

/* A message that the group did not take at once. */
struct waiting_msg {
	struct waiting_msg *next;
	size_t bytes;
	uint8_t data[];
};

/* The array as a block device of this node; disk.c. */
struct disk {
	/* Of live.attach; or of the last one, until the sink has nothing of it. */
	struct front *front;
	bool loading; /* the worker sees to the driver */
	uint64_t retry_us;
	char why[FRONT_WHY_BYTES]; /* why there is no device, "" = it is not known yet */
	struct array_attach *asked;
	uint64_t asked_us;
	struct array_attach *detach; /* one that waits to know who has it open */
	uint64_t detach_until_us;
	struct loop_timer detach_timer;
	bool held;             /* takes in nothing more: it is about to be cut off */
	uint64_t cut_us;       /* when that has had its time, with a forced detach; 0: not begun */
	bool undo;             /* it was not attached before that was asked */
	uint32_t undo_away_ms; /* what live.away_ms was then */
	struct ring ring, noted; /* the group's; the one that the note has */
	/* Whose opens may go on, and what must be true for that. */
	struct {
		uint64_t token; /* front_export's; 0: nobody's */
		struct ring ring;
		struct epoch acked, proposed;
		uint32_t away_ms;  /* what fails then is not all that waits; or AWAY_HOLD */
		uint64_t alone_us; /* since when at the earliest nobody serves it */
		bool clean, judged;
		bool ours; /* this incarnation has decided */
	} takeover;
	bool left; /* what an earlier incarnation left, if anything, is yet to be ended */
	uint64_t left_us;
	char left_why[FRONT_WHY_BYTES];
};

struct array {
	/* the main thread's */
	struct array_env env;
	struct store_array desc;
	bool running;
	bool force;
	enum array_stop_how stop; /* 0: was not told to */
	char failed[ARRAY_WHY_BYTES];
	uint64_t failed_ms;         /* when, by CLOCK_MONOTONIC */
	_Atomic uint64_t turned_ms; /* when the engine thread's loop did, likewise */
	struct mailbox box;         /* to the engine thread */
	struct task ended_task;
	struct life_fence *fences; /* asked for and not answered */
	pthread_t thread;

	/* the engine thread's */
	struct loop *loop;
	struct loop_wake wake;
	struct loop_hook hook;
	struct loop_timer tick, watch, limit, again, stop_timer;
	struct stop *stop_waits; /* for stop_timer */
	void (*again_do)(struct array *a);
	enum array_phase phase;
	struct store_array live; /* desc, as the members turn out */
	char waits[ARRAY_WHY_BYTES];
	uint64_t waits_us;
	char failure[ARRAY_WHY_BYTES];

	struct engine *e;
	struct outq q;
	struct event *queue;
	uint32_t q_first, q_count, q_cap;

	struct dev dev[DDR_MAX_DEVS];
	uint32_t devs_open, devs_held;
	uint64_t no_map_us; /* when there was no map yet, by which a device is a member */
	uint32_t lease_ms;  /* 0: none */
	bool alone;         /* no cluster: the lease is that of the array's use */
	uint64_t lease_us;  /* writes may be sent until then */
	struct dev_io *io_free;
	struct dev_io **io_chunk;
	uint32_t io_chunks;
	uint32_t under_way; /* at members */

	struct front *front;             /* NBD */
	bool listens[OPTION_LISTEN_MAX]; /* at live.options.listen, beside its Unix socket */
	char listen_why[OPTION_LISTEN_MAX][FRONT_WHY_BYTES]; /* why not */
	struct disk disk;
	bool serving;
	char refused[STORE_WHY_BYTES]; /* as the main thread was told */
	bool revoke;                   /* what has the device open fails at the end */
	bool told;                     /* consumers were, of the end */
	uint32_t tell_ms;              /* how long until all others have heard of it */
	uint32_t clients;              /* as the main thread was told */
	bool removed;                  /* OUT_REMOVED came, EV_RESTART has not gone */
	bool restarting, record_waits;
	bool had_slot;       /* this incarnation, at any time */
	bool began_clean;    /* it is the process's first, and the one before ended cleanly */
	bool own_fence;      /* its own is asked for */
	bool before_fenced;  /* this node's lives before it need no fence any more */
	uint64_t renew_us;   /* its successor is asked for again then */
	uint32_t fence_node; /* whose fence failed, here where the leader is */
	char fence_why[FENCE_WHY_BYTES];

	struct group *group;
	bool group_up, joined;
	struct group_self self;
	struct event quorum; /* the last one; type EV_QUORUM once known */
	struct waiting_msg *msg_first, **msg_last;
	size_t msg_bytes;
	uint32_t view_count, view[DDR_MAX_NODES];

	struct store_record rec;
	struct alive *alive;     /* alive.c; NULL: nothing is watched */
	struct lockspace *locks; /* this incarnation's, if the manager is none of the core's */
	bool locks_up;
	char locks_why[ARRAY_WHY_BYTES]; /* why there is none, or "" */
	uint64_t locks_us;               /* since when */
	struct loop_timer locks_again;

	char record_why[STORE_WHY_BYTES]; /* why it can't be made durable; "" = it can */
	uint64_t record_us;
	uint64_t inc;
	uint64_t engine_inc; /* the engine's; behind `inc` while the next one waits for its locks */
	uint64_t fenced_inc; /* this node's lives up to here are fenced */
	struct {
		uint64_t inc, began_us, ended_us;
	} last_fence;   /* of the phase FENCE, 0 = not yet, or there was none */
	uint32_t tasks; /* under way on other threads; but for fences */
	bool stopped_cleanly, end_written;

	struct array_admin *admins;
	uint64_t admin_tag;
	struct engine_status seen;            /* what was logged last */
	struct map logged;                    /* of its map */
	uint32_t token_ms;                    /* that the engine's waits are for */
	uint64_t changed_us[DDR_MAX_MEMBERS]; /* the state of each in it, 0: as at the start */
	uint64_t rejected_say_us;             /* a broken node is not logged before */
	char seen_waits[512];
	bool waits_said;
	char life_said[STORE_WHY_BYTES]; /* what is tried again and again is logged once */
};

/* array.c */
void array_phase(struct array *a, enum array_phase phase);
void array_waits(struct array *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The array can't run: closes, and ended() says why. */
void array_fail(struct array *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void array_say(const struct array *a, int priority, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Calls do_it in ms, on the loop; one at a time. */
void array_again(struct array *a, uint32_t ms, void (*do_it)(struct array *a));
void array_run(struct array *a); /* RECORD -> RUN */
void array_close(struct array *a);
/* Looks whether CLOSE is through. */
void array_close_check(struct array *a);

/* pump.c */
void pump_push(struct array *a, const struct event *ev);
void pump_submit(void *arg, const struct front_req *req);
bool pump_turn(void *arg);
void pump_tick(struct array *a);
void pump_writable(struct array *a);
void pump_drop_messages(struct array *a);
void pump_free(struct array *a);
/* What is served; its incarnation is left 0. */
void pump_export(const struct array *a, const struct geo *g, struct front_export *ex);

/* dev.c */
void dev_open_all(struct array *a);
void dev_add(struct array *a, const char *uri);
bool dev_open_added(struct array *a, const char *uri); /* false: it can't be opened */
void dev_io(struct array *a, const struct out *o);
void dev_cancel(struct array *a, uint32_t dev);
void dev_close_all(struct array *a);
/* The cluster says where members are. */
void dev_learn(struct array *a, const struct store_array *desc);
/* Members that came and went: keeps `live` and what is open up to date. */
void dev_settle(struct array *a);
void dev_lease(struct array *a);
void dev_cfg_fill(const struct array *a, struct member_cfg *cfg);
void dev_free(struct array *a);

/* alive.c: answers with life_watched(), maybe at once. */
void alive_watch(struct array *a);
void alive_close(struct array *a);

/* life.c */
void life_load(struct array *a);
void life_watched(struct array *a, const char *who); /* NULL: its last incarnation may be fenced */
void life_renew(struct array *a); /* a new incarnation for an engine that was removed */
void life_record(struct array *a, const struct record *r);
void life_fence(struct array *a, uint32_t node, uint64_t inc);
void life_probe(struct array *a, const struct out *o);
void life_end(struct array *a); /* cleanly: with nothing under way, known to those it was with */
/* All that the new incarnation needs is there. */
void life_ready(struct array *a);
void life_say_once(struct array *a, const char *why);
/* On the main thread, when the engine thread has ended. */
void life_ended(struct array *a);
/* `add` wants this device: it is opened once it would be found again after a restart. */
void life_adding(struct array *a, const char *uri);
void life_not_added(struct array *a, const char *uri); /* it came to nothing */
void life_changed(struct array *a, uint32_t found, uint32_t added);
void life_serving(struct array *a, bool yes);
/* Why this node, which leads, can't assemble the array; "": it can, or does not lead. */
void life_refused(struct array *a, const char *why);
void life_clients(struct array *a); /* looks whether their number is another one */

/* disk.c */
void disk_loaded(struct array *a); /* the record is read, and not yet written anew */
/* After each step of the engine, before its outs are done. */
void disk_step(struct array *a, const struct event *ev);
void disk_advance(struct array *a);
void disk_removed(struct array *a);  /* R6 */
uint32_t disk_hold(struct array *a); /* takes in nothing more; how much is under way */
/* -EBUSY: it is open, and was only asked; -EAGAIN: ask again soon; -errno: it is there still for
 * another reason. But for EBUSY, why. */
int disk_stop(struct array *a, enum array_stop_how how, char why[FRONT_WHY_BYTES]);
void disk_close(struct array *a);  /* the thread ends */
void disk_detach_fired(void *arg); /* of disk.detach_timer */
uint32_t disk_opens(const struct array *a);
void disk_status(const struct array *a, struct array_status *st);
#define DISK_FRONT_ID 1u /* in its tags; the NBD front-end's is 0 */

/* locks.c */
bool locks_external(const struct array *a);
/* False: this incarnation has lost what it holds, and is to give up before it hears a message. */
bool locks_kept(const struct array *a);
/* For a new incarnation; life_ready when it is there. */
void locks_open(struct array *a);
void locks_close(struct array *a, bool ended);
void locks_again(void *arg); /* of the timer */

/* status.c */
void status_fill(struct array *a, struct array_status *st);
void status_map(struct array *a); /* after each event */
void status_watch(struct array *a);

#endif
