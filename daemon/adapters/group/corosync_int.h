/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between corosync.c, which connects and sends, and corosync_views.c, which judges what CPG says.
 * All of it runs on the thread of the loop.
 */
#ifndef DDRAID_ADAPTERS_GROUP_COROSYNC_INT_H
#define DDRAID_ADAPTERS_GROUP_COROSYNC_INT_H

#include <corosync/cmap.h>
#include <corosync/cpg.h>
#include <corosync/quorum.h>

#include "daemon/adapters/group/queue.h"
#include "daemon/ports/group.h"

#define AGAIN_MAX_US 16000u
#define PREDECESSOR_US 5000000u /* for a dead daemon of this node to be out of the group */
#ifndef REGREET_US
#define REGREET_US 1000000u /* longer than messages of an older view keep coming */
#endif

enum { MSG_GREETING = 1, MSG_DATA = 2 };

enum state { DOWN, IDLE, JOINING, GREETING, MEMBER, LEAVING };

struct proc {
	uint32_t node, pid;
	uint64_t seq;  /* in cur: of its next message in this view */
	uint64_t came; /* in group: which change of it brought it */
	bool deaf;     /* in cur: to what it sends in this view */
	bool heard;    /* in group: something of its node has come since */
};

struct procs {
	uint32_t count;
	struct proc v[CPG_MEMBERS_MAX];
};

struct coro {
	struct group group_port; /* first */
	struct group_cfg cfg;
	enum state state;
	struct loop_timer work; /* the next attempt, or sending */
	uint64_t backoff_us;
	uint64_t give_up_us; /* GREETING, LEAVING: when waiting is over */

	cpg_handle_t cpg;
	quorum_handle_t quorum;
	cmap_handle_t cmap; /* kept: for each connection corosync maps and locks 3 MiB */
	bool cpg_open, cpg_watched, quorum_open, quorum_watched, cmap_open, cmap_watched;
	bool cpg_left;                             /* set within a dispatch, as lost_err */
	struct loop_fd cpg_fd, quorum_fd, cmap_fd; /* cmap_fd: if cb->token */
	struct group_self self;
	int lost_err; /* set within a dispatch */
	const char *lost_why;
	char said[GROUP_WHY_BYTES]; /* why we are down, as logged last */

	struct cpg_name name;
	struct ring ring;
	bool ring_known;
	bool ring_change; /* NODEDOWN or NODEUP came, the totem confchg has not */
	bool greeted;     /* our greeting was sent, or is due */
	bool crowded;     /* it was said that there are too many nodes */
	bool greeting_due;
	bool viewed;             /* cur and id are valid */
	struct procs group, cur; /* group: in the order of joining */
	uint64_t id;
	uint64_t seq;          /* of our next message in this view */
	uint64_t installed_us; /* when */
	uint64_t greeted_us;
	uint64_t regreet_us; /* how long other ids are borne with: doubles */
	uint32_t regreets;   /* in vain so far */
	uint64_t changes;    /* of group */
	uint64_t deaf_us;    /* since when to somebody of cur; 0: to nobody */
	uint64_t was_deaf_us, deaf_wait_us;
	uint64_t odd_said_us;

	/* Our messages, greetings included: handed to corosync, come back, to come back before
	 * the view's first may be handed over. */
	uint64_t handed, returned, barrier;
	uint64_t handed_bytes; /* not come back */
	struct group_queue queue;
	struct group_stats stats;
};

/* Before each message: magic (4 bytes), version, kind, 2 zero bytes, then little-endian, 8 bytes
 * each: */
struct header {
	uint8_t kind;
	uint64_t id;     /* greeting: the new view's; data: of the view in which it was sent */
	uint64_t seq;    /* data: counts the sender's messages in this view */
	uint64_t number; /* counts what the sender handed to corosync */
};
_Static_assert(GROUP_HEADER_BYTES == 8 + 3 * 8, "header");

/* ---- corosync.c ---- */

/* A line for the log, with a priority of syslog's. */
void coro_say(const struct coro *c, int priority, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the one timer of work() anew: it runs in so many microseconds. */
void coro_work_in(struct coro *c, uint64_t us);
/* The group is lost, with -errno and a string literal that says why. For use within a dispatch: the
 * loss is acted on after that has returned. The first one counts. */
void coro_lose_later(struct coro *c, int err, const char *why);
/* Reads what a message begins with. False: it is too short, none of ours, or of another version. */
bool coro_get_header(const uint8_t *p, size_t bytes, struct header *h);

/* ---- corosync_views.c ---- */

/* Our greeting is due once we are in the group, the ring is known, the view has room for us, and a
 * dead daemon of this node is out of the group. While one of the last two is missing, the timer of
 * work() is set to look again; a daemon that stays for too long is a loss (coro_lose_later). */
void coro_greet(struct coro *c);
/* For qsort of struct proc: by node, then by pid. */
int coro_by_node(const void *a, const void *b);
/* CPG's callbacks. They find their struct coro by the handle's context. */
void coro_on_deliver(cpg_handle_t handle, const struct cpg_name *name, uint32_t node, uint32_t pid,
		     void *data, size_t bytes);
void coro_on_confchg(cpg_handle_t h, const struct cpg_name *name, const struct cpg_address *members,
		     size_t member_count, const struct cpg_address *left, size_t left_count,
		     const struct cpg_address *joined, size_t joined_count);
void coro_on_totem(cpg_handle_t h, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes);

#endif
