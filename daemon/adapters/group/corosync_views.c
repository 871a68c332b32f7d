// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What CPG says: which view follows from it, and which messages are heard in it. CPG's callbacks
 * run within cpg_dispatch, which corosync.c calls. Nothing is sent here: `greeting_due` says that
 * corosync.c has a greeting to send.
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
 *    the sender's doing. All have got the same up to there and all see the gap: they are deaf to it
 *    at the same place in the order, and have it evicted (`broken`).
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
 * that was evicted for it is back by then, as a new incarnation.
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
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/adapters/group/corosync_int.h"

#define CROWDED_US 1000000u /* to look again whether there is room */
#define REGREET_TRIES 3u
#define REGREET_MAX_US (REGREET_US * 16u)
#define REGREET_CALM_US (REGREET_US * 60u)
#define DEAF_US (REGREET_US * 10u) /* doubles each time */
#define DEAF_MAX_US (DEAF_US * 64u)
#define ODD_SAY_US 10000000u

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

int coro_by_node(const void *a, const void *b)
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
	qsort(sorted.v, sorted.count, sizeof(sorted.v[0]), coro_by_node);
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

/* ---- greeting ---- */

static bool predecessor(const struct coro *c)
{
	for (uint32_t i = 0; i < c->group.count; i++)
		if (c->group.v[i].node == c->self.node && c->group.v[i].pid != (uint32_t)getpid())
			return true;
	return false;
}

void coro_greet(struct coro *c)
{
	if ((c->state != GREETING && c->state != MEMBER) || c->greeted || !c->ring_known)
		return;
	if (!has_room(c)) {
		if (!c->crowded)
			coro_say(
			    c, LOG_WARNING,
			    "%u nodes are in this group already, and an array can't have more: "
			    "this one waits until one of them has left",
			    DDR_MAX_NODES);
		c->crowded = true;
		c->give_up_us = loop_now_us(c->cfg.loop) + PREDECESSOR_US;
		coro_work_in(c, CROWDED_US);
		return;
	}
	c->crowded = false;
	if (!predecessor(c)) {
		c->greeted = c->greeting_due = true;
		coro_work_in(c, 0);
	} else if (loop_now_us(c->cfg.loop) > c->give_up_us) {
		coro_lose_later(c, -EEXIST,
				"another daemon of this node is in the group: stop it first");
	} else {
		coro_work_in(c, AGAIN_MAX_US);
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
		coro_lose_later(c, -EPROTO, "corosync lost a greeting: joining again");
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
			coro_say(c, LOG_ERR,
				 "node %" PRIu32 ", process %" PRIu32 ", sent a message %" PRIu64
				 " again, and %" PRIu64
				 " is the next: dropped; its ddraidd is broken, or its memory",
				 from->node, from->pid, seq, from->seq);
		}
		return;
	}
	if (our_loss(c, from)) {
		coro_say(c, LOG_ERR,
			 "corosync lost messages of node %" PRIu32 " (%" PRIu64
			 " came, not %" PRIu64 ")",
			 from->node, seq, from->seq);
		coro_lose_later(c, -EPROTO, "corosync lost messages: joining again");
		return;
	}
	coro_say(c, LOG_ERR,
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

void coro_on_deliver(cpg_handle_t handle, const struct cpg_name *name, uint32_t node, uint32_t pid,
		     void *data, size_t bytes)
{
	struct coro *c = coro_of_cpg(handle);
	struct header h;

	(void)name;
	if (c->lost_err)
		return;
	if (!coro_get_header(data, bytes, &h)) {
		if (c->stats.dropped++ == 0)
			coro_say(c, LOG_WARNING,
				 "node %" PRIu32 " sent what this version does not know: ignored",
				 node);
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
				coro_lose_later(c, -ECONNRESET,
						"corosync took us out of the group");
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
	qsort(all.v, all.count, sizeof(all.v[0]), coro_by_node);
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

void coro_on_confchg(cpg_handle_t h, const struct cpg_name *name, const struct cpg_address *members,
		     size_t member_count, const struct cpg_address *left, size_t left_count,
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
		qsort(c->group.v, c->group.count, sizeof(c->group.v[0]), coro_by_node);
	on_departures(c, left, left_count);
}

void coro_on_totem(cpg_handle_t h, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes)
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
