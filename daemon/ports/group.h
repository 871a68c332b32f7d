/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The group port: which nodes serve an array now, whether they have quorum, and messages among
 * them in one order for all.
 *
 *	         up()            group_join()            view()
 *	[down] --------> [idle] -------------> [joining] -------> [member] --+ view() again
 *	   ^               |                       |               |  |   ^--+
 *	   +--- lost() ----+-----------------------+---------------+  |
 *	   +--- left() ----------------------------------------------+ group_leave()
 *
 * group_open starts in [down] and connects; it goes on trying, from [down], for ever. After
 * lost() and left() nothing is delivered before the next up(), which comes by itself, and then
 * group_join is to be called again. What was queued is gone with lost().
 *
 * What an adapter promises to the engine:
 *
 *  - Every member of a view sees the view under the same id, and no other view ever has that
 *    id. A node is in a view by one daemon only.
 *  - Messages come in one order to all, the sender included. A message comes in the view in
 *    which it was sent, or nowhere: what was sent and has not come by the next view() never
 *    comes, here or elsewhere, and what still matters is to be sent again. Two nodes that are
 *    both in view A and both in the view B that follows have got the same messages in A.
 *  - That a message came here does not say that it came elsewhere (no safe delivery, R9): the
 *    node may be about to be cut off, with this message seen by itself alone.
 *  - A view has DDR_MAX_NODES nodes at most. One more that joins waits in [joining] until there is
 *    room; the others do not notice it.
 *  - view() and quorum() each follow a ring of their own pace. Both name the ring that they speak
 *    of, and only when these are equal the two fit together (R2).
 *
 * Rings and view ids. A ring (struct ring, corosync's ring id) is a membership of *nodes*. A
 * view is a membership of *daemons*, and it changes within a ring too, when a daemon starts,
 * ends or crashes on a node that lives. The ring alone is therefore no name for a view. The id
 * is:
 *
 *	ring changed			a hash of the new ring (node id, sequence)
 *	a daemon came			the random number in its greeting
 *	a daemon went			the id before, plus one
 *
 * and each of the three happens for all members at the same place in the order of messages. The
 * middle line is why this can be the same for a newcomer, which cannot know what happened
 * before it: a daemon that joins corosync's group is not yet in the view. It multicasts a
 * greeting with a new random number; where that is delivered, everybody, the newcomer included,
 * installs a view of all that are in the group by then. (Counting changes since the ring began
 * would leave the newcomer to ask others for the count, and to wait for one that is frozen.) So
 * a ring change gives one view, a daemon's end one, its start one; two that start at once may
 * come in one or in two. A daemon that is between its joining and its greeting when the ring
 * changes is taken into the view of the others by the change, and into its own by the greeting,
 * which gives all of them a further view.
 *
 * A node may be in two views in a row though its daemon was replaced in between: both changes
 * came with one ring, as after a quick reboot. `fresh` tells; the engine has the incarnation
 * besides.
 *
 * All calls and all callbacks are made on the thread that runs the loop. No callback is made from
 * within a call. A callback may call everything but group_close.
 */
#ifndef DDRAID_PORTS_GROUP_H
#define DDRAID_PORTS_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/loop.h"
#include "daemon/ports/types.h"

#define GROUP_NAME_BYTES 128 /* with its NUL */
#define GROUP_WHY_BYTES 320  /* a sentence for a person, with its NUL */
/* Largest message. Corosync takes 1 MiB at once, its own headers included; a bitmap is never
 * sent as one message, so there is no need to come near. */
#define GROUP_MESSAGE_BYTES (512u << 10)
/* What may wait for corosync to take it, for as long as it forms a membership. */
#define GROUP_QUEUE_BYTES (4u << 20)
#define GROUP_QUEUE_MESSAGES 4096u

struct group;

/* Who we are; from up() on. */
struct group_self {
	uint32_t node;     /* node id, > 0; never another while the daemon runs, or it is lost() */
	uint32_t token_ms; /* the token time-out in force: silence that costs membership; 0: there
			    * is no such thing here */
	bool two_node;     /* one node has quorum: two that lose sight of each other both do */
	char name[GROUP_NAME_BYTES];    /* of the node, for people */
	char cluster[GROUP_NAME_BYTES]; /* of the cluster; "" = there is none */
};

struct group_view {
	struct ring ring;
	uint64_t id;
	uint32_t count;
	uint32_t node[DDR_MAX_NODES]; /* ascending; this node is among them */
	bool
	    fresh[DDR_MAX_NODES]; /* its daemon was not in the view before; in the first view all */
};

struct group_quorum {
	struct ring ring;
	bool quorate;
	bool two_node; /* as in group_self, now */
	uint32_t count;
	uint32_t node[DDR_MAX_NODES]; /* ascending: nodes, whether or not a daemon runs there */
};

/* All Required but the last three. What is pointed to is valid during the call. */
struct group_cb {
	void (*up)(void *arg, const struct group_self *self);
	void (*view)(void *arg, const struct group_view *view);
	/* From up() on, also without a join. Comes at least once per ring. */
	void (*quorum)(void *arg, const struct group_quorum *quorum);
	void (*msg)(void *arg, uint32_t from, const void *data, size_t bytes);
	/* Optional. The token time-out in force is another one than in up(). */
	void (*token)(void *arg, uint32_t token_ms);
	/* The cluster stack went away, or threw us out; `why` is a sentence. From now on nothing is
	 * known: no view, no quorum. */
	void (*lost)(void *arg, int err, const char *why);
	/* group_leave is through: all that was sent before was delivered, unless a view came
	 * between, and the group has us no more. */
	void (*left)(void *arg);
	/* Optional. After group_send said -EAGAIN: half of the queue is free. */
	void (*writable)(void *arg);
	/* Optional. What this node sends breaks the order, and comes nowhere from here on: it is
	 * broken. `why` is static: "leaves out ...". It is still in the view. */
	void (*broken)(void *arg, uint32_t node, const char *why);
	/* Optional. `priority` is syslog's; `text` one sentence without a newline. */
	void (*log)(void *arg, int priority, const char *text);
};

struct group_cfg {
	struct loop *loop;
	const struct group_cb *cb; /* not copied */
	void *arg;
};

/* A picture for status; a copy. Counters count from group_open. */
struct group_stats {
	uint32_t queued_messages;
	uint32_t queued_bytes;
	uint64_t sent;      /* handed to the stack, without greetings */
	uint64_t received;  /* delivered, own ones included */
	uint64_t try_again; /* how often the stack did not take a message at once */
	uint64_t dropped;   /* came from a sender outside of the view, or malformed */
	uint64_t views, losses;
};

/* One adapter. Registered by GROUP_REGISTER in its own source. */
struct group_ops {
	const char *name; /* "corosync", "alone" */
	/* All Required; as the functions below of the same names. */
	int (*open)(const struct group_cfg *cfg, struct group **out);
	int (*join)(struct group *g, const char *name);
	int (*send)(struct group *g, const void *data, size_t bytes);
	int (*leave)(struct group *g);
	void (*close)(struct group *g);
	void (*stats)(const struct group *g, struct group_stats *st);
	struct group_ops *next; /* the registry's */
};

/* What each adapter's own struct begins with. */
struct group {
	const struct group_ops *ops;
};

/* List the adapter's source in the program's own sources: the linker drops self-registering objects
 * from static libraries. */
void group_register(struct group_ops *ops);
#define GROUP_REGISTER(ops_)                                                                       \
	__attribute__((constructor)) static void register_##ops_(void)                             \
	{                                                                                          \
		group_register(&ops_);                                                             \
	}

/* Adapter by name. 0, -ENOENT: no such adapter is built in, -ENOMEM. up() follows. */
int group_open(const char *adapter, const struct group_cfg *cfg, struct group **out);

/* From up() on: becomes a member of the group of that name, one per array. view() follows.
 * -EINVAL: no name or too long; -ENOTCONN: not up; -EALREADY: joined already. */
static inline int group_join(struct group *g, const char *name)
{
	return g->ops->join(g, name);
}

/*
 * To all members, this one included, in one order. The message is copied; it is sent at the end
 * of the loop's turn, or when corosync takes it. 0; -ENOTCONN: no view yet, or leaving; -EMSGSIZE;
 * -EAGAIN: the queue is full, and writable() follows; -ENOMEM.
 */
static inline int group_send(struct group *g, const void *data, size_t bytes)
{
	return g->ops->send(g, data, bytes);
}

/* Sends what is queued, then leaves; left() follows, or lost(). Nothing is delivered any more after
 * left(). -ENOTCONN: not joined. */
static inline int group_leave(struct group *g)
{
	return g->ops->leave(g);
}

/* At once, and without a callback. The others see us go. NULL is fine. */
static inline void group_close(struct group *g)
{
	if (g)
		g->ops->close(g);
}

static inline void group_stats(const struct group *g, struct group_stats *st)
{
	g->ops->stats(g, st);
}

#endif
