/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The runtime of one array on this node: an engine thread that joins engine, members, front-end
 * and group. All calls are the main thread's, and all answers come on it, later.
 *
 *	idle       no thread                                     -> running (array_start)
 *	running    the thread is there                           -> ending (array_stop, an error)
 *	ending     leaves the group, lets members and front go   -> idle
 *
 * What the thread does, step by step, is in array_int.h.
 */
#ifndef DDRAID_RUNTIME_ARRAY_H
#define DDRAID_RUNTIME_ARRAY_H

#include "daemon/base/mailbox.h"
#include "daemon/core/engine.h"
#include "daemon/ports/front.h"
#include "daemon/ports/group.h"
#include "daemon/ports/member.h"
#include "daemon/runtime/fence/fence.h"
#include "daemon/state/config.h"
#include "daemon/state/store.h"

struct array;

#define ARRAY_WHY_BYTES STORE_WHY_BYTES

/* What all arrays share. */
struct array_env {
	const struct config *conf;
	struct mailbox *main;
	struct worker *worker;
	/* On the main thread: what is on disk is out of date. Masks of members: `found` says whose
	 * URIs of this node, `added` whose are news for all. */
	void (*changed)(struct array *a, const struct store_array *desc, uint32_t found,
			uint32_t added);
	/* On the main thread: `add` is about to open this device, or it has come to nothing, and is
	 * forgotten if it is still what is remembered; done() when store_array.adding is durable,
	 * or can't be, there as well. */
	void (*adding)(struct array *a, const char *uri, bool over,
		       void (*done)(void *arg, int err, const char *why), void *arg);
	/* On the main thread: consumers are let in, or not any more; and how many have it open. The
	 * number may be half a second old. */
	void (*serving)(struct array *a, bool yes, uint32_t clients);
	/* On the main thread: why this node, which leads, can't assemble it, or "": another reason
	 * than before. */
	void (*refused)(struct array *a, const char *why);
	/* On the main thread: it was to stop, but runs on, since so many have it open. */
	void (*kept)(struct array *a, uint32_t clients);
	/* On the main thread: the thread has ended; why is "" after a stop. */
	void (*ended)(struct array *a, const char *why);
};

enum array_stop_how {
	ARRAY_STOP_ASKED = 1, /* not if it is open */
	ARRAY_STOP_LEAVE,     /* the daemon ends: opens that can outlive it wait for the next */
	ARRAY_STOP_FORCED,    /* cuts off whoever has it open */
};

enum array_phase {
	ARRAY_PHASE_IDLE,
	ARRAY_PHASE_GROUP,  /* waits for the cluster stack */
	ARRAY_PHASE_RECORD, /* reads its record, or waits for a new incarnation */
	ARRAY_PHASE_FENCE,  /* this node's former incarnation in the array is to be fenced */
	ARRAY_PHASE_RUN,    /* the engine works */
	ARRAY_PHASE_STOP,   /* the engine drains */
	ARRAY_PHASE_CLOSE,  /* lets go of group, members, front-end */
};

#define ARRAY_STATUS_CLIENTS 64u /* listed; front.clients counts them all */

struct array_dev_status {
	char uri[DDR_URI_BYTES];
	uint8_t member; /* index, 0xff = none */
	bool used, up;
	struct member_info info; /* of the last time it was up */
	uint64_t down_ms;
	char why[256]; /* of the last time it went down, "" = never */
};

struct array_status {
	enum array_phase phase;
	struct engine_status engine; /* phase RUN and STOP */
	uint32_t token_ms;           /* what the engine goes by, 0 = there is no such thing */
	uint64_t changed_us[DDR_MAX_MEMBERS]; /* a member's state, 0: as when this node began */
	bool have_geo;
	struct geo geo;
	uint32_t slot; /* UINT32_MAX = none */
	uint64_t inc, now_us;
	uint64_t wall_ms; /* now_us by the clock on the wall, since 1970 */
	struct group_self self;
	uint32_t view_count, view[DDR_MAX_NODES];
	struct array_dev_status dev[DDR_MAX_DEVS];
	struct front_stats front;
	enum attach_via attach;         /* as it is to be */
	uint32_t away_ms;               /* likewise */
	char device[64];                /* "" = there is none (yet) */
	char disk_why[FRONT_WHY_BYTES]; /* why not */
	struct front_stats disk;        /* its clients are its opens */
	struct front_client client[ARRAY_STATUS_CLIENTS];
	uint32_t client_count;
	char listen[OPTION_LISTEN_MAX][OPTION_LISTEN_BYTES]; /* where it does, then "" */
	char listen_why[OPTION_LISTEN_MAX][FRONT_WHY_BYTES]; /* why not elsewhere, or "" */
	bool force_members;                                  /* as it was started with */
	const char *locks;                                   /* the lock manager */
	uint32_t fence_node; /* on the leader: whose fence failed last, 0 = none */
	char fence_why[FENCE_WHY_BYTES];
	char locks_wait[ARRAY_WHY_BYTES]; /* what that waits for, or lacks; "" = nothing */
	uint64_t locks_us;                /* since when, 0 = it says so itself */
	/* RUN: something waits for its record, and why that can't be made durable; or "" */
	char record_why[ARRAY_WHY_BYTES + 64];
	uint64_t record_us;          /* since when */
	bool writes_wait;            /* users' writes do, for what engine.waits or record_why say */
	char waits[ARRAY_WHY_BYTES]; /* before RUN, or before the next incarnation: what for */
	uint64_t waits_us;           /* since when */
};
/* What a member answered, in words. */
void member_error_words(char *text, size_t bytes, const struct member_error *x);
void member_cause_words(char *text, size_t bytes, const struct member_cause *c, uint32_t self);

/* NULL: out of memory. */
struct array *array_new(const struct array_env *env, const struct store_array *desc);
/* Only when idle. */
void array_free(struct array *a);

/* What the main thread knows. */
const struct store_array *array_desc(const struct array *a);
/* Only when idle. */
void array_set_desc(struct array *a, const struct store_array *desc);
/* There is a newer one: an array that runs takes over the options that can change while it does,
 * and looks for members that have moved. */
void array_learn(struct array *a, const struct store_array *desc);
bool array_running(const struct array *a);
/* Why the last run ended, "" = it was stopped or never ran. */
const char *array_failed(const struct array *a);
/* How long ago that was, if it has not been started since. */
uint64_t array_failed_ms(const struct array *a);
/* heartbeat_limit as it is in force with corosync's token time-out; 0: there is none. */
uint32_t array_limit_ms(const struct config *c, uint32_t token_ms);
/* How long its thread has stood still: less than a second, if it works. */
uint64_t array_still_ms(const struct array *a);

/* force: assemble although R1 says no, take a missing record for an empty one. 0 or -errno. */
int array_start(struct array *a, bool force);
/*
 * env.ended follows, within the configuration's stop_timeout and a little. But if a consumer has it
 * open and it was only asked: env.kept. That is decided on the engine's thread, and of a block
 * device by the kernel, so that nobody who opened it a moment ago is cut off.
 */
void array_stop(struct array *a, enum array_stop_how how);

/* Requests to the engine's thread. `done` comes on the main thread, when the array has ended
 * with -ESHUTDOWN. The struct is the caller's until then. */
struct array_query {
	struct task task;
	struct array *array;
	void (*done)(struct array_query *q, int err);
	void *arg;
	int err;
	struct array_status status;
};
void array_query(struct array *a, struct array_query *q);

struct array_admin {
	struct task task;
	struct array *array;
	void (*done)(struct array_admin *q, int err, const char *why);
	void *arg;
	enum admin_cmd cmd;
	uint8_t member;
	char uri[DDR_URI_BYTES];
	uint64_t before; /* as EV_ADMIN has it */
	uint64_t tag;
	int err;
	char why[DDR_URI_BYTES + 512];
	struct array_admin *next;
};
void array_admin(struct array *a, struct array_admin *q);

/*
 * As what it is a block device of this node from now on; ATTACH_NONE: as none. Answered when the
 * device is there, or gone. -EBUSY: it is open and force was not said, or it is there in another
 * way. What is to be kept over restarts is the caller's business. One that is there already waits
 * so long for a ddraidd from now on, if that was asked for.
 */
struct array_attach {
	struct task task;
	struct array *array;
	void (*done)(struct array_attach *q, int err, const char *why);
	void *arg;
	enum attach_via via;
	bool force;
	bool patience;    /* away_ms was asked for */
	uint32_t away_ms; /* or AWAY_HOLD */
	bool there;       /* answered: the device was, and is */
	int err;
	char why[FRONT_WHY_BYTES];
};
void array_attach(struct array *a, struct array_attach *q);

/* Once, when no other daemon of this node can be there any more: how long it may take until all
 * other nodes know of the end of the last one (config_heard_ms). */
void attach_daemon_began(uint32_t ms);

#define ATTACH_LOOK_MS 1000u /* wait_ms of the main thread; an engine's says 0, and asks again */
/*
 * Ends what is left of a device of an array that does not run; as front_ops.discard. By force, one
 * that is open stays, -EAGAIN, until the others know that the daemon is gone whose writes may still
 * land.
 */
int attach_discard(const struct store_array *desc, bool force, uint32_t wait_ms,
		   char why[FRONT_WHY_BYTES]);

/* Loads what the kernel needs for it. Blocks: the worker's. 0, or -errno with a sentence. */
int attach_driver(enum attach_via via, char why[FRONT_WHY_BYTES]);

#endif
