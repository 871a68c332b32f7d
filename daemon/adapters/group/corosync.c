// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The group by corosync: CPG for membership and messages, the quorum service, cmap for who we are.
 *
 *	down       not connected; tries again                      -> idle
 *	idle       connected, quorum is followed                   -> joining, down
 *	joining    cpg_join is to be taken by corosync             -> greeting, leaving, down
 *	greeting   joined; our greeting has not come yet           -> member, leaving, down
 *	member     has a view                                      -> greeting, leaving, down
 *	leaving    sends what is queued, then waits for our leave  -> down
 *
 * What corosync 3.1 delivers, read in its exec/cpg.c, votequorum.c and vsf_quorum.c, and held true
 * by tests/port/group.sh:
 *
 *  - A ring change makes CPG call, in this order and with nothing between: the group's confchg
 *    with those that left (reason NODEDOWN), confchg with those that came (NODEUP) if the ring
 *    merged, the totem confchg with the new ring id. It does so where the last message of its
 *    synchronisation is delivered, hence at one place in the order for all nodes of the ring.
 *    The last of the three is where we install a view; the first two come under the old ring's
 *    id, and a minority that acted on them would still hold itself for quorate.
 *  - A daemon's join, leave or crash is an ordered message; confchg comes with reason JOIN,
 *    LEAVE or PROCDOWN and no totem confchg follows.
 *  - With CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF a newcomer gets one totem confchg with the
 *    present ring, at its own join at the latest. To others it isn't sent. So totem
 *    confchgs that come before our first view only tell the ring; all later ones are real.
 *  - The quorum service notifies once per ring, with the ring's id, when votes have been counted,
 *    and again if quorum changes within a ring. It does so before or after CPG. The ids are the
 *    same in both.
 *  - CPG drops messages of senders that are not in its list: of a node that merges in but whose
 *    merging was not yet told.
 *  - cpg_leave leaves the connection unusable (it stays "leaving"): we reconnect afterwards.
 *  - During synchronisation corosync takes no message (TRY_AGAIN). What it had taken before is sent
 *    under the new ring, after the view.
 *
 * What it does not keep. Small messages are packed into frames, and a message may begin in one
 * and end in the next. A node that was not in the sender's former ring throws such a chain away
 * until a frame ends with a message, that is until the sender's corosync has nothing more to
 * send for a moment (totempg_deliver_fn, throw_away_mode). The sender itself and the nodes of
 * its former ring get all of it: in one and the same view some members get messages that others
 * don't. Seen at about one merge in twenty under load, thousands of messages at a
 * time. Hence:
 *
 *  - Each message carries its view's id and comes in that view or nowhere, also at its sender.
 *    That takes care of what was in corosync when the ring changed.
 *  - After a view nothing is handed to corosync until all that was handed to it before has come
 *    back: then the chain has ended, and what is sent in the new view comes to all. To keep
 *    that short, and own heartbeats prompt, at most WINDOW_BYTES are in corosync at once.
 *  - Other programs of this node may keep a chain going. So each message carries its number
 *    within its sender's view.
 *  - A greeting may be lost in the same way; then two members have different ids for long. Who
 *    gets messages under another id than its own, REGREET_US after its view began (and later
 *    each time), greets again, and joins again if that does not help.
 *
 * A number that is not the next. Either corosync lost messages on the way to us, or the sender does
 * not count as it should, and the others see that as well: if all left for it, it would be alone in
 * the group, quorate, and would have them fenced. What tells the two apart:
 *
 *  - A number that has been is no loss. That message is dropped.
 *  - What gets lost is the beginning of what a node sends after its ring and ours have merged. Once
 *    anything of it has come, nothing of it gets lost any more (`heard`). So a gap after that is
 *the sender's doing. All have got the same up to there and all see the gap: they are deaf to it at
 *    the same place in the order, and have it evicted (`broken`).
 *  - A gap at the beginning may be either. All that were in our ring before it came have lost the
 *    same, and see the same. If they are more than half of the view, or half of it with its lowest
 *    node, it goes: they are deaf to it, as above. (Each of two halves may miss the other's
 *    beginning: were both deaf, both would go on, with one quorum.) What it said in this view
 *    then, some have heard that came with it, and others have not; as it is evicted, that is as if
 *    it had died in between: no round goes by what another node has heard, but by what that brings
 *    along itself (core/cluster/round.c). If they are fewer, or if we have just come, we leave and
 *    join again, as after any loss.
 *
 * Deaf lasts for the view, which numbers anew. So after DEAF_US somebody greets: an honest node
 *that was evicted for it is back by then, as a new incarnation.
 *
 * A view has DDR_MAX_NODES nodes at most. One more that joins waits without a greeting, and the
 * others go on as if it were not there. Who is one too many all see alike: `group` is in the order
 * in which its daemons joined. A daemon does not know in which order those before it did, but they
 * are all before it; so it is in exactly if no more than DDR_MAX_NODES are in the group up to it,
 * and then so are all of those. Two halves that merge have different orders. Should they be too
 * many together, all take the order of the node ids, and the last ones wait.
 *
 * ports/group.h says how a view gets its id. In short: `group` is CPG's list, greeted or not;
 * `cur` is the view; a greeting or a ring change makes cur = group, a departure takes one out
 * of cur.
 *
 * cpg_join, cpg_leave and connecting ask corosync and wait for its answer; it answers at once
 * or is stopped as a whole, and then this node is being given up by the others anyway. Sending and
 * dispatching never wait.
 *
 * Callbacks to the engine come from within cpg_dispatch. A loss that is noticed there is acted on
 * after it has returned (`lost_err`).
 */
#include <assert.h>
#include <corosync/cmap.h>
#include <corosync/cpg.h>
#include <corosync/quorum.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/adapters/group/queue.h"
#include "daemon/ports/group.h"

#define TOKEN_KEY "runtime.config.totem.token"
#define BATCH 64 /* messages sent or delivered per turn of the loop */
#define CONNECT_MIN_US 50000u
#define CONNECT_MAX_US 1000000u
#define AGAIN_MIN_US 1000u
#define AGAIN_MAX_US 16000u
#define LEAVE_US 5000000u       /* for corosync to confirm a leave */
#define PREDECESSOR_US 5000000u /* for a dead daemon of this node to be out of the group */
#define CROWDED_US 1000000u     /* to look again whether there is room */
#define WINDOW_BYTES (256u << 10)
#define WINDOW_MESSAGES 256u
#ifndef REGREET_US
#define REGREET_US 1000000u /* longer than messages of an older view keep coming */
#endif
#define REGREET_TRIES 3u
#define REGREET_MAX_US (REGREET_US * 16u)
#define REGREET_CALM_US (REGREET_US * 60u)
#define DEAF_US (REGREET_US * 10u) /* doubles each time */
#define DEAF_MAX_US (DEAF_US * 64u)
#define ODD_SAY_US 10000000u

#define HEADER_MAGIC "DDRG"
#define HEADER_VERSION 1
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

static struct coro *coro_of(struct group *g)
{
	return (struct coro *)g;
}

__attribute__((format(printf, 3, 4))) static void say(const struct coro *c, int priority,
						      const char *format, ...)
{
	char text[GROUP_WHY_BYTES];
	va_list ap;

	if (!c->cfg.cb->log)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	c->cfg.cb->log(c->cfg.arg, priority, text);
}

static void work_in(struct coro *c, uint64_t us)
{
	loop_timer_set(c->cfg.loop, &c->work, loop_now_us(c->cfg.loop) + us);
}

static int errno_of(cs_error_t err)
{
	switch (err) {
	case CS_OK:
		return 0;
	case CS_ERR_TRY_AGAIN:
		return -EAGAIN;
	case CS_ERR_ACCESS:
		return -EACCES;
	case CS_ERR_NO_MEMORY:
		return -ENOMEM;
	case CS_ERR_EXIST:
		return -EEXIST;
	default:
		return -ENOTCONN;
	}
}

/* ---- down ---- */

static void disconnect(struct coro *c)
{
	if (c->cpg_watched)
		loop_fd_del(c->cfg.loop, &c->cpg_fd);
	if (c->quorum_watched)
		loop_fd_del(c->cfg.loop, &c->quorum_fd);
	if (c->cmap_watched)
		loop_fd_del(c->cfg.loop, &c->cmap_fd);
	c->cpg_watched = c->quorum_watched = c->cmap_watched = false;
	if (c->cpg_open)
		cpg_finalize(c->cpg);
	if (c->quorum_open)
		quorum_finalize(c->quorum);
	if (c->cmap_open)
		cmap_finalize(c->cmap);
	c->cpg_open = c->quorum_open = c->cmap_open = c->cpg_left = false;
	c->ring_known = c->ring_change = c->greeted = c->greeting_due = c->viewed = false;
	c->handed = c->returned = c->barrier = c->handed_bytes = 0;
	c->regreets = 0;
	c->deaf_us = 0;
	c->group.count = c->cur.count = 0;
	c->lost_err = 0;
	group_queue_clear(&c->queue);
	c->state = DOWN;
	c->backoff_us = CONNECT_MIN_US;
	work_in(c, 0);
}

static void lose(struct coro *c, int err, const char *why)
{
	disconnect(c);
	work_in(c, CONNECT_MIN_US);
	c->stats.losses++;
	c->cfg.cb->lost(c->cfg.arg, err, why);
}

/* From within a dispatch. */
static void lose_later(struct coro *c, int err, const char *why)
{
	if (c->lost_err)
		return;
	c->lost_err = err;
	c->lost_why = why;
}

/* ---- views ---- */

static bool same(const struct proc *a, const struct proc *b)
{
	return a->node == b->node && a->pid == b->pid;
}

static struct proc *find(struct procs *p, uint32_t node, uint32_t pid)
{
	struct proc want = {.node = node, .pid = pid};

	for (uint32_t i = 0; i < p->count; i++)
		if (same(&p->v[i], &want))
			return &p->v[i];
	return NULL;
}

static bool take_out(struct procs *p, uint32_t node, uint32_t pid)
{
	const struct proc *gone = find(p, node, pid);

	if (!gone)
		return false;
	p->v[gone - p->v] = p->v[--p->count];
	return true;
}

static int by_node(const void *a, const void *b)
{
	const struct proc *p = a, *q = b;

	if (p->node != q->node)
		return p->node < q->node ? -1 : 1;
	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

/* Spreads a ring over 64 bits (the finaliser of splitmix64). Same ring, same id, on every node. */
static uint64_t id_of_ring(const struct ring *r)
{
	uint64_t x = r->seq * 0x9e3779b97f4a7c15u + r->rep;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/*
 * The view has another daemon of this node: a dead one that is still in the group, or one that was
 * started with another state directory. Or it has no room for this node. Once that is over we
 * greet, though we may have done so before.
 */
static void left_out(struct coro *c)
{
	bool was_in = c->viewed;

	c->viewed = c->greeted = c->greeting_due = false;
	if (c->state == LEAVING)
		return;
	c->state = GREETING;
	if (was_in)
		c->give_up_us = loop_now_us(c->cfg.loop) + PREDECESSOR_US;
}

/* Of the nodes in the order of p, the first that a view has room for. */
static void crowd_out(struct procs *p)
{
	uint32_t node[DDR_MAX_NODES], nodes = 0, n = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		uint32_t k = 0;

		while (k < nodes && node[k] != p->v[i].node)
			k++;
		if (k == DDR_MAX_NODES)
			continue;
		if (k == nodes)
			node[nodes++] = p->v[i].node;
		p->v[n++] = p->v[i];
	}
	p->count = n;
}

/* Does a view have room for us? */
static bool has_room(const struct coro *c)
{
	struct procs seniors = c->group;

	crowd_out(&seniors);
	return find(&seniors, c->self.node, (uint32_t)getpid());
}

static void install(struct coro *c, uint64_t id, const struct procs *members)
{
	struct group_view view = {.ring = c->ring, .id = id};
	struct procs next = {0};
	struct procs sorted = *members;
	bool was_full;

	crowd_out(&sorted);
	qsort(sorted.v, sorted.count, sizeof(sorted.v[0]), by_node);
	for (uint32_t i = 0; i < sorted.count; i++) {
		const struct proc *p = &sorted.v[i];

		/* A second daemon on a node is on its way out, or waits for the first to be. */
		if (next.count && next.v[next.count - 1].node == p->node)
			continue;
		view.node[view.count] = p->node;
		view.fresh[view.count] = !c->viewed || !find(&c->cur, p->node, p->pid);
		view.count++;
		next.v[next.count++] = (struct proc){.node = p->node, .pid = p->pid};
	}
	c->cur = next;
	c->id = id;
	c->seq = 0;
	c->deaf_us = 0;
	c->barrier = c->handed;
	c->installed_us = loop_now_us(c->cfg.loop);
	/* What was sent in the view before comes nowhere any more. */
	was_full = c->queue.was_full;
	group_queue_clear(&c->queue);
	c->queue.was_full = was_full;
	if (!find(&c->cur, c->self.node, (uint32_t)getpid())) {
		left_out(c);
		return;
	}
	c->viewed = true;
	if (c->state == GREETING)
		c->state = MEMBER;
	c->stats.views++;
	c->cfg.cb->view(c->cfg.arg, &view);
}

/* ---- messages ---- */

/* Before each message: magic (4 bytes), version, kind, 2 zero bytes, then little-endian, 8 bytes
 * each: */
struct header {
	uint8_t kind;
	uint64_t id;     /* greeting: the new view's; data: of the view in which it was sent */
	uint64_t seq;    /* data: counts the sender's messages in this view */
	uint64_t number; /* counts what the sender handed to corosync */
};
_Static_assert(GROUP_HEADER_BYTES == 8 + 3 * 8, "header");

static void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static void put_header(uint8_t p[GROUP_HEADER_BYTES], const struct header *h)
{
	memset(p, 0, GROUP_HEADER_BYTES);
	memcpy(p, HEADER_MAGIC, 4);
	p[4] = HEADER_VERSION;
	p[5] = h->kind;
	put_u64(p + 8, h->id);
	put_u64(p + 16, h->seq);
	put_u64(p + 24, h->number);
}

static bool get_header(const uint8_t *p, size_t bytes, struct header *h)
{
	if (bytes < GROUP_HEADER_BYTES || memcmp(p, HEADER_MAGIC, 4) != 0 || p[4] != HEADER_VERSION)
		return false;
	h->kind = p[5];
	h->id = get_u64(p + 8);
	h->seq = get_u64(p + 16);
	h->number = get_u64(p + 24);
	return true;
}

/* ---- greeting ---- */

static bool predecessor(const struct coro *c)
{
	for (uint32_t i = 0; i < c->group.count; i++)
		if (c->group.v[i].node == c->self.node && c->group.v[i].pid != (uint32_t)getpid())
			return true;
	return false;
}

/* Once we are in the group, the ring is known and a dead daemon of this node is out of it. */
static void greet(struct coro *c)
{
	if ((c->state != GREETING && c->state != MEMBER) || c->greeted || !c->ring_known)
		return;
	if (!has_room(c)) {
		if (!c->crowded)
			say(c, LOG_WARNING,
			    "%u nodes are in this group already, and an array can't have more: "
			    "this "
			    "one waits until one of them has left",
			    DDR_MAX_NODES);
		c->crowded = true;
		c->give_up_us = loop_now_us(c->cfg.loop) + PREDECESSOR_US;
		work_in(c, CROWDED_US);
		return;
	}
	c->crowded = false;
	if (!predecessor(c)) {
		c->greeted = c->greeting_due = true;
		work_in(c, 0);
	} else if (loop_now_us(c->cfg.loop) > c->give_up_us) {
		lose_later(c, -EEXIST,
			   "another daemon of this node is in the group: stop it first");
	} else {
		work_in(c, AGAIN_MAX_US);
	}
}

/* A member of the group sent in another view than ours. Normal for a moment after a view. */
static void came_apart(struct coro *c)
{
	uint64_t now = loop_now_us(c->cfg.loop);

	if (now - c->greeted_us > REGREET_CALM_US)
		c->regreet_us = REGREET_US;
	if (c->state != MEMBER || c->greeting_due || now - c->installed_us < c->regreet_us ||
	    now - c->greeted_us < c->regreet_us)
		return;
	/* It may be slow only, and our greeting makes it slower. */
	if (c->regreet_us < REGREET_MAX_US)
		c->regreet_us *= 2;
	if (c->regreets++ < REGREET_TRIES)
		c->greeting_due = true;
	else
		lose_later(c, -EPROTO, "corosync lost a greeting: joining again");
}

/* ---- what CPG says ---- */

static struct coro *coro_of_cpg(cpg_handle_t h)
{
	void *c = NULL;

	return cpg_context_get(h, &c) == CS_OK ? c : NULL;
}

/* A gap in what it sends: may corosync have lost that on the way to us, and is it us who go then?
 */
static bool our_loss(struct coro *c, const struct proc *from)
{
	const struct proc *p = find(&c->group, from->node, from->pid);
	bool lowest = false;
	uint32_t before = 0;

	if (from->node == c->self.node)
		return true;
	if (!p || p->heard)
		return false;
	for (uint32_t i = 0; i < c->cur.count; i++) {
		const struct proc *q = find(&c->group, c->cur.v[i].node, c->cur.v[i].pid);

		before += q && q->came < p->came;
		lowest |= !i && q && q->came < p->came;
	}
	return 2 * before < c->cur.count || (2 * before == c->cur.count && !lowest);
}

static void numbered_wrongly(struct coro *c, struct proc *from, uint64_t seq)
{
	uint64_t now = loop_now_us(c->cfg.loop);

	if (seq < from->seq) {
		if (!c->odd_said_us || now - c->odd_said_us >= ODD_SAY_US) {
			c->odd_said_us = now;
			say(c, LOG_ERR,
			    "node %" PRIu32 ", process %" PRIu32 ", sent a message %" PRIu64
			    " again, and %" PRIu64
			    " is the next: dropped; its ddraidd is broken, or its memory",
			    from->node, from->pid, seq, from->seq);
		}
		return;
	}
	if (our_loss(c, from)) {
		say(c, LOG_ERR,
		    "corosync lost messages of node %" PRIu32 " (%" PRIu64 " came, not %" PRIu64
		    ")",
		    from->node, seq, from->seq);
		lose_later(c, -EPROTO, "corosync lost messages: joining again");
		return;
	}
	say(c, LOG_ERR,
	    "node %" PRIu32 ", process %" PRIu32 ", left out messages (%" PRIu64
	    " came, not %" PRIu64 "): nothing that it sends counts, and it is to be evicted",
	    from->node, from->pid, seq, from->seq);
	from->deaf = true;
	if (!c->was_deaf_us || now - c->was_deaf_us > 2 * DEAF_MAX_US)
		c->deaf_wait_us = DEAF_US;
	else if (c->deaf_wait_us < DEAF_MAX_US)
		c->deaf_wait_us *= 2;
	c->deaf_us = c->was_deaf_us = now;
	if (c->cfg.cb->broken)
		c->cfg.cb->broken(c->cfg.arg, from->node, "leaves out numbers of its messages");
}

/* The lowest node greets first, and for all. */
static void hear_again(struct coro *c)
{
	const struct proc *me = find(&c->cur, c->self.node, (uint32_t)getpid());

	if (c->deaf_us && me &&
	    loop_now_us(c->cfg.loop) - c->deaf_us >=
		c->deaf_wait_us + (uint64_t)(me - c->cur.v) * REGREET_US)
		c->greeting_due = true;
}

static void on_data(struct coro *c, const struct header *h, uint32_t node, uint32_t pid,
		    const uint8_t *data, size_t bytes)
{
	struct proc *from = c->viewed ? find(&c->cur, node, pid) : NULL;

	if (!from || h->id != c->id) {
		c->stats.dropped++;
		if (c->viewed && h->id != c->id && node != c->self.node)
			came_apart(c);
		return;
	}
	if (from->deaf || h->seq != from->seq) {
		c->stats.dropped++;
		if (!from->deaf)
			numbered_wrongly(c, from, h->seq);
		return;
	}
	from->seq++;
	if (node != c->self.node)
		c->regreets = 0;
	hear_again(c);
	c->stats.received++;
	c->cfg.cb->msg(c->cfg.arg, node, data, bytes);
}

static void on_deliver(cpg_handle_t handle, const struct cpg_name *name, uint32_t node,
		       uint32_t pid, void *data, size_t bytes)
{
	struct coro *c = coro_of_cpg(handle);
	struct header h;

	(void)name;
	if (c->lost_err)
		return;
	if (!get_header(data, bytes, &h)) {
		if (c->stats.dropped++ == 0)
			say(c, LOG_WARNING,
			    "node %" PRIu32 " sent what this version does not know: ignored", node);
		return;
	}
	if (node == c->self.node && pid == (uint32_t)getpid() && h.number < c->handed) {
		c->returned = h.number + 1;
		c->handed_bytes -= bytes;
		if (c->returned == c->handed)
			c->handed_bytes = 0;
	}
	if (h.kind == MSG_GREETING && c->ring_known)
		install(c, h.id, &c->group);
	else if (h.kind == MSG_DATA)
		on_data(c, &h, node, pid, (uint8_t *)data + GROUP_HEADER_BYTES,
			bytes - GROUP_HEADER_BYTES);
	for (uint32_t i = 0; i < c->group.count; i++)
		c->group.v[i].heard |= c->group.v[i].node == node;
}

static void on_departures(struct coro *c, const struct cpg_address *left, size_t count)
{
	bool gone = false;

	for (size_t i = 0; i < count; i++) {
		if (left[i].reason == CPG_REASON_NODEDOWN)
			c->ring_change = true;
		if (take_out(&c->cur, left[i].nodeid, left[i].pid))
			gone = true;
		if (left[i].nodeid == c->self.node && left[i].pid == (uint32_t)getpid()) {
			if (c->state == LEAVING)
				c->cpg_left = true;
			else
				lose_later(c, -ECONNRESET, "corosync took us out of the group");
			c->viewed = false;
		}
	}
	if (gone && c->viewed && !c->ring_change) {
		struct procs rest = c->cur;

		install(c, c->id + 1, &rest);
	}
}

/* c->group becomes these: who was in it, in the order as it was, then who is new, we last. */
static void in_order(struct coro *c, const struct cpg_address *members, size_t count)
{
	struct procs all = {0}, next = {0};
	struct proc *me;

	c->changes++;
	for (size_t i = 0; i < count; i++)
		all.v[all.count++] = (struct proc){
		    .node = members[i].nodeid, .pid = members[i].pid, .came = c->changes};
	qsort(all.v, all.count, sizeof(all.v[0]), by_node);
	for (uint32_t i = 0; i < c->group.count; i++)
		if (find(&all, c->group.v[i].node, c->group.v[i].pid))
			next.v[next.count++] = c->group.v[i];
	me = find(&next, c->self.node, (uint32_t)getpid())
		 ? NULL
		 : find(&all, c->self.node, (uint32_t)getpid());
	for (uint32_t i = 0; i < all.count; i++)
		if (&all.v[i] != me && !find(&next, all.v[i].node, all.v[i].pid))
			next.v[next.count++] = all.v[i];
	if (me)
		next.v[next.count++] = *me;
	c->group = next;
}

static bool fits(const struct procs *p)
{
	struct procs seniors = *p;

	crowd_out(&seniors);
	return seniors.count == p->count;
}

static void on_confchg(cpg_handle_t h, const struct cpg_name *name,
		       const struct cpg_address *members, size_t member_count,
		       const struct cpg_address *left, size_t left_count,
		       const struct cpg_address *joined, size_t joined_count)
{
	struct coro *c = coro_of_cpg(h);
	bool merged = false;

	(void)name;
	assert(member_count <= CPG_MEMBERS_MAX);
	in_order(c, members, member_count);
	for (size_t i = 0; i < joined_count; i++) {
		if (joined[i].reason == CPG_REASON_NODEUP)
			c->ring_change = merged = true;
		if (c->state == JOINING && joined[i].nodeid == c->self.node &&
		    joined[i].pid == (uint32_t)getpid()) {
			c->state = GREETING;
			c->give_up_us = loop_now_us(c->cfg.loop) + PREDECESSOR_US;
		}
	}
	if (merged && !fits(&c->group))
		qsort(c->group.v, c->group.count, sizeof(c->group.v[0]), by_node);
	on_departures(c, left, left_count);
}

static void on_totem(cpg_handle_t h, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes)
{
	struct coro *c = coro_of_cpg(h);

	(void)count;
	(void)nodes;
	c->ring = (struct ring){ring.nodeid, ring.seq};
	c->ring_known = true;
	c->ring_change = false;
	if (c->viewed)
		install(c, id_of_ring(&c->ring), &c->group);
}

/* A reload of corosync.conf may change it. That it can't be read is not a no: of two nodes, each
 * half has quorum, and the engine must know before it takes a quorum for a majority. Who calls this
 * loses the group then. */
static cs_error_t read_two_node(struct coro *c)
{
	uint8_t on = 0;
	cs_error_t err = cmap_get_uint8(c->cmap, "runtime.votequorum.two_node", &on);

	if (err != CS_OK && err != CS_ERR_NOT_EXIST)
		return err;
	c->self.two_node = on != 0;
	return CS_OK;
}

static void on_quorum(quorum_handle_t h, uint32_t quorate, struct quorum_ring_id ring,
		      uint32_t count, const uint32_t *nodes)
{
	struct group_quorum q = {.ring = {ring.nodeid, ring.seq}, .quorate = quorate != 0};
	struct procs sorted = {0};
	const void *arg = NULL;
	struct coro *c;

	if (quorum_context_get(h, &arg) != CS_OK)
		return;
	c = (struct coro *)arg;
	if (read_two_node(c) != CS_OK) {
		lose_later(c, -ENOTCONN, "corosync's configuration can't be read");
		return;
	}
	q.two_node = c->self.two_node;
	for (uint32_t i = 0; i < count && i < CPG_MEMBERS_MAX; i++)
		sorted.v[sorted.count++] = (struct proc){.node = nodes[i]};
	qsort(sorted.v, sorted.count, sizeof(sorted.v[0]), by_node);
	/* Nodes beyond the 32nd can't have an array's daemon in the view. */
	for (uint32_t i = 0; i < sorted.count && i < DDR_MAX_NODES; i++)
		q.node[q.count++] = sorted.v[i].node;
	c->cfg.cb->quorum(c->cfg.arg, &q);
}

static void on_nodelist(quorum_handle_t h, struct quorum_ring_id ring, uint32_t members,
			const uint32_t *member_list, uint32_t joined, const uint32_t *joined_list,
			uint32_t left, const uint32_t *left_list)
{
	/* Comes at the start of the count of votes; on_quorum comes at its end. */
	(void)h, (void)ring, (void)members, (void)member_list;
	(void)joined, (void)joined_list, (void)left, (void)left_list;
}

/* ---- dispatch ---- */

static void act_on_loss(struct coro *c)
{
	if (c->lost_err)
		lose(c, c->lost_err, c->lost_why);
}

static void cpg_ready(void *arg, uint32_t events)
{
	struct coro *c = arg;

	(void)events;
	for (int i = 0; i < BATCH && !c->lost_err && !c->cpg_left; i++) {
		cs_error_t err = cpg_dispatch(c->cpg, CS_DISPATCH_ONE_NONBLOCKING);

		if (err == CS_ERR_TRY_AGAIN)
			break;
		if (err != CS_OK)
			lose_later(c, errno_of(err), "the connection to corosync broke");
	}
	greet(c);
	if (c->lost_err) {
		act_on_loss(c);
	} else if (c->cpg_left) {
		disconnect(c);
		c->cfg.cb->left(c->cfg.arg);
	} else if (c->queue.first || c->greeting_due || c->queue.was_full) {
		work_in(c, 0); /* something of ours may have come back */
	}
}

static void quorum_ready(void *arg, uint32_t events)
{
	struct coro *c = arg;

	(void)events;
	for (int i = 0; i < BATCH && !c->lost_err; i++) {
		cs_error_t err = quorum_dispatch(c->quorum, CS_DISPATCH_ONE_NONBLOCKING);

		if (err == CS_ERR_TRY_AGAIN)
			break;
		if (err != CS_OK)
			lose_later(c, errno_of(err), "the connection to corosync broke");
	}
	act_on_loss(c);
}

static void cmap_ready(void *arg, uint32_t events)
{
	struct coro *c = arg;

	(void)events;
	if (cmap_dispatch(c->cmap, CS_DISPATCH_ALL) != CS_OK)
		lose_later(c, -ENOTCONN, "the connection to corosync broke");
	act_on_loss(c);
}

/* corosync.conf was read anew. */
static void on_token(cmap_handle_t h, cmap_track_handle_t track, int32_t event, const char *key,
		     struct cmap_notify_value now, struct cmap_notify_value before, void *arg)
{
	struct coro *c = arg;
	uint32_t ms;

	(void)h, (void)track, (void)event, (void)key, (void)before;
	if (now.type != CMAP_VALUETYPE_UINT32 || now.len != sizeof(ms))
		return;
	memcpy(&ms, now.data, sizeof(ms));
	if (ms == c->self.token_ms)
		return;
	c->self.token_ms = ms;
	c->cfg.cb->token(c->cfg.arg, ms);
}

/* ---- connecting ---- */

static cs_error_t open_cpg(struct coro *c)
{
	cpg_model_v1_data_t model = {.model = CPG_MODEL_V1,
				     .cpg_deliver_fn = on_deliver,
				     .cpg_confchg_fn = on_confchg,
				     .cpg_totem_confchg_fn = on_totem,
				     .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF};
	cs_error_t err = cpg_model_initialize(&c->cpg, CPG_MODEL_V1, (cpg_model_data_t *)&model, c);

	if (err == CS_OK) {
		c->cpg_open = true;
		err = cpg_local_get(c->cpg, &c->self.node);
	}
	if (err == CS_OK)
		err = cpg_fd_get(c->cpg, &c->cpg_fd.fd);
	return err;
}

static cs_error_t open_quorum(struct coro *c, const char **why)
{
	quorum_model_v1_data_t model = {.model = QUORUM_MODEL_V1,
					.quorum_notify_fn = on_quorum,
					.nodelist_notify_fn = on_nodelist};
	uint32_t type = QUORUM_FREE;
	cs_error_t err = quorum_model_initialize(&c->quorum, QUORUM_MODEL_V1,
						 (quorum_model_data_t *)&model, &type, c);

	if (err == CS_OK) {
		c->quorum_open = true;
		err = quorum_fd_get(c->quorum, &c->quorum_fd.fd);
	}
	if (err == CS_OK && type == QUORUM_FREE) {
		*why = "corosync.conf has no quorum provider: set `provider: corosync_votequorum`";
		return CS_ERR_NOT_SUPPORTED;
	}
	if (err == CS_OK)
		err = quorum_trackstart(c->quorum, CS_TRACK_CURRENT | CS_TRACK_CHANGES);
	return err;
}

static void read_name(cmap_handle_t h, struct group_self *self)
{
	char key[64], *name;
	uint32_t node;

	for (unsigned i = 0; i < CPG_MEMBERS_MAX; i++) {
		snprintf(key, sizeof(key), "nodelist.node.%u.nodeid", i);
		if (cmap_get_uint32(h, key, &node) != CS_OK || node != self->node)
			continue;
		snprintf(key, sizeof(key), "nodelist.node.%u.name", i);
		if (cmap_get_string(h, key, &name) == CS_OK) {
			snprintf(self->name, sizeof(self->name), "%s", name);
			free(name);
			return;
		}
	}
	snprintf(self->name, sizeof(self->name), "node %" PRIu32, self->node);
}

static void read_cluster(cmap_handle_t h, struct group_self *self)
{
	char *name;

	snprintf(self->cluster, sizeof(self->cluster), "(without a name)");
	if (cmap_get_string(h, "totem.cluster_name", &name) != CS_OK)
		return;
	if (name[0])
		snprintf(self->cluster, sizeof(self->cluster), "%s", name);
	free(name);
}

static cs_error_t open_cmap(struct coro *c)
{
	cmap_track_handle_t track;
	cs_error_t err = cmap_initialize(&c->cmap);

	if (err != CS_OK)
		return err;
	c->cmap_open = true;
	err = cmap_get_uint32(c->cmap, TOKEN_KEY, &c->self.token_ms);
	if (err == CS_OK && c->cfg.cb->token)
		err = cmap_track_add(c->cmap, TOKEN_KEY, CMAP_TRACK_MODIFY, on_token, c, &track);
	if (err == CS_OK && c->cfg.cb->token)
		err = cmap_fd_get(c->cmap, &c->cmap_fd.fd);
	if (err != CS_OK)
		return err;
	read_name(c->cmap, &c->self);
	read_cluster(c->cmap, &c->self);
	return read_two_node(c);
}

/* 0 or -errno. */
static int watch(struct coro *c)
{
	int err = loop_fd_add(c->cfg.loop, &c->cpg_fd, LOOP_READ);

	if (err)
		return err;
	c->cpg_watched = true;
	err = loop_fd_add(c->cfg.loop, &c->quorum_fd, LOOP_READ);
	if (err)
		return err;
	c->quorum_watched = true;
	if (c->cfg.cb->token)
		err = loop_fd_add(c->cfg.loop, &c->cmap_fd, LOOP_READ);
	c->cmap_watched = !err && c->cfg.cb->token;
	return err;
}

static void connect_corosync(struct coro *c)
{
	const char *why = "corosync is not there: start it, or look into its log";
	uint64_t backoff_us = c->backoff_us * 2;
	cs_error_t cs = open_cpg(c);
	int err;

	if (cs == CS_OK)
		cs = open_quorum(c, &why);
	if (cs == CS_OK)
		cs = open_cmap(c);
	err = cs == CS_OK ? watch(c) : errno_of(cs);
	if (err) {
		if (strcmp(c->said, why) != 0)
			say(c, LOG_WARNING, "%s (%s)", why, strerror(-err));
		snprintf(c->said, sizeof(c->said), "%s", why);
		disconnect(c);
		c->backoff_us = backoff_us < CONNECT_MAX_US ? backoff_us : CONNECT_MAX_US;
		work_in(c, c->backoff_us);
		return;
	}
	c->said[0] = 0;
	c->state = IDLE;
	c->cfg.cb->up(c->cfg.arg, &c->self);
}

/* ---- sending ---- */

static void again_later(struct coro *c)
{
	c->stats.try_again++;
	work_in(c, c->backoff_us);
	c->backoff_us = c->backoff_us * 2 < AGAIN_MAX_US ? c->backoff_us * 2 : AGAIN_MAX_US;
}

/* 0, -EAGAIN: later, and work is set; other: it is lost. */
static int hand_over(struct coro *c, uint8_t *header, void *data, size_t bytes)
{
	struct iovec iov[2] = {{header, GROUP_HEADER_BYTES}, {data, bytes}};
	cs_error_t err;

	put_u64(header + 24, c->handed);
	err = cpg_mcast_joined(c->cpg, CPG_TYPE_AGREED, iov, 2);
	if (err == CS_ERR_TRY_AGAIN) {
		again_later(c);
		return -EAGAIN;
	}
	if (err != CS_OK) {
		lose(c, errno_of(err), "corosync refused a message");
		return -ENOTCONN;
	}
	c->backoff_us = AGAIN_MIN_US;
	c->handed++;
	c->handed_bytes += GROUP_HEADER_BYTES + bytes;
	return 0;
}

static int send_greeting(struct coro *c)
{
	struct header h = {.kind = MSG_GREETING};
	uint8_t header[GROUP_HEADER_BYTES];
	int err;

	if (getrandom(&h.id, sizeof(h.id), 0) != sizeof(h.id)) {
		lose(c, -EIO, "no random number");
		return -EIO;
	}
	put_header(header, &h);
	err = hand_over(c, header, NULL, 0);
	if (!err) {
		c->greeting_due = false;
		c->greeted_us = loop_now_us(c->cfg.loop);
	}
	return err;
}

static bool may_send(const struct coro *c)
{
	uint64_t out = c->handed - c->returned;

	return c->returned >= c->barrier && out < WINDOW_MESSAGES &&
	       (out == 0 || c->handed_bytes < WINDOW_BYTES);
}

/* False: not all of it, and it goes on by itself, or it is lost. */
static bool send_queue(struct coro *c)
{
	if (c->greeting_due && send_greeting(c))
		return false;
	for (int i = 0; c->queue.first; i++) {
		struct group_message *m = c->queue.first;

		if (!may_send(c))
			return false; /* cpg_ready goes on */
		if (i == BATCH) {
			work_in(c, 0);
			return false;
		}
		if (hand_over(c, m->header, m->data, m->bytes))
			return false;
		c->stats.sent++;
		free(group_queue_pop(&c->queue));
	}
	return true;
}

static void join_group(struct coro *c)
{
	cs_error_t err = cpg_join(c->cpg, &c->name);

	/* EXIST: our connection before this one is not cleared away yet. */
	if (err == CS_ERR_EXIST && loop_now_us(c->cfg.loop) > c->give_up_us)
		lose(c, -EEXIST, "this daemon has joined this group already");
	else if (err == CS_ERR_TRY_AGAIN || err == CS_ERR_EXIST)
		again_later(c);
	else if (err != CS_OK)
		lose(c, errno_of(err), "corosync refused to let us into the group");
}

static void leave_group(struct coro *c)
{
	cs_error_t err;

	if (loop_now_us(c->cfg.loop) > c->give_up_us) {
		lose(c, -ETIMEDOUT, "corosync did not confirm that we left the group");
		return;
	}
	if (!send_queue(c))
		return;
	err = cpg_leave(c->cpg, &c->name);
	if (err == CS_ERR_TRY_AGAIN) {
		again_later(c);
	} else if (err == CS_ERR_NOT_EXIST) {
		disconnect(c); /* the join was not through yet */
		c->cfg.cb->left(c->cfg.arg);
	} else {
		work_in(c, LEAVE_US); /* cpg_left is set before */
	}
}

static void work(void *arg)
{
	struct coro *c = arg;

	switch (c->state) {
	case DOWN:
		connect_corosync(c);
		break;
	case IDLE:
		break;
	case JOINING:
		join_group(c);
		break;
	case GREETING:
	case MEMBER:
		greet(c);
		act_on_loss(c);
		if (c->state != DOWN)
			send_queue(c);
		break;
	case LEAVING:
		leave_group(c);
		break;
	}
	if (c->state == MEMBER && group_queue_writable(&c->queue) && c->cfg.cb->writable)
		c->cfg.cb->writable(c->cfg.arg);
}

/* ---- the port ---- */

static struct group_ops coro_ops;

static int coro_open(const struct group_cfg *cfg, struct group **out)
{
	struct coro *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->group_port.ops = &coro_ops;
	c->cfg = *cfg;
	c->work.fired = work;
	c->work.arg = c;
	c->cpg_fd.ready = cpg_ready;
	c->cpg_fd.arg = c;
	c->quorum_fd.ready = quorum_ready;
	c->cmap_fd.ready = cmap_ready;
	c->cmap_fd.arg = c;
	c->quorum_fd.arg = c;
	c->backoff_us = CONNECT_MIN_US;
	c->regreet_us = REGREET_US;
	work_in(c, 0);
	*out = &c->group_port;
	return 0;
}

static int coro_join(struct group *g, const char *name)
{
	struct coro *c = coro_of(g);
	size_t bytes = strlen(name);

	if (!bytes || bytes >= GROUP_NAME_BYTES)
		return -EINVAL;
	if (c->state != IDLE)
		return c->state == DOWN ? -ENOTCONN : -EALREADY;
	c->name.length = (uint32_t)bytes;
	memcpy(c->name.value, name, bytes);
	c->state = JOINING;
	c->give_up_us = loop_now_us(c->cfg.loop) + PREDECESSOR_US;
	c->backoff_us = AGAIN_MIN_US;
	work_in(c, 0);
	return 0;
}

static int coro_send(struct group *g, const void *data, size_t bytes)
{
	struct coro *c = coro_of(g);
	struct header h = {.kind = MSG_DATA, .id = c->id, .seq = c->seq};
	struct group_message *m;
	int err;

	if (c->state != MEMBER || c->lost_err)
		return -ENOTCONN;
	err = group_queue_push(&c->queue, data, bytes, &m);
	if (err)
		return err;
	put_header(m->header, &h);
	c->seq++;
	if (!loop_timer_is_set(&c->work))
		work_in(c, 0);
	return 0;
}

static int coro_leave(struct group *g)
{
	struct coro *c = coro_of(g);

	if (c->state != JOINING && c->state != GREETING && c->state != MEMBER)
		return -ENOTCONN;
	c->state = LEAVING;
	c->give_up_us = loop_now_us(c->cfg.loop) + LEAVE_US;
	work_in(c, 0);
	return 0;
}

static void coro_close(struct group *g)
{
	struct coro *c = coro_of(g);

	disconnect(c);
	loop_timer_clear(c->cfg.loop, &c->work);
	free(c);
}

static void coro_stats(const struct group *g, struct group_stats *st)
{
	const struct coro *c = (const struct coro *)g;

	*st = c->stats;
	st->queued_messages = c->queue.count;
	st->queued_bytes = (uint32_t)c->queue.bytes;
}

static struct group_ops coro_ops = {
    .name = "corosync",
    .open = coro_open,
    .join = coro_join,
    .send = coro_send,
    .leave = coro_leave,
    .close = coro_close,
    .stats = coro_stats,
};
GROUP_REGISTER(coro_ops)
