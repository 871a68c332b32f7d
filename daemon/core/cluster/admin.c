/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests from ddraidctl. The node that was asked multicasts the request; the leader does it and
 * answers with AdminDone when the map says that it is done. A request is of one round: a new round
 * ends it with -EAGAIN on the node that was asked, and the person asks again.
 *
 * A new member comes in three steps, so that each node is known to reach the same device: OPEN (all
 * open the URI), CHECK (the leader has put a superblock with a fresh UUID on it; all read it back),
 * SEEN from every node; then it is proposed as REBUILDING.
 *
 * Another array may want the same device at the same time, and `create` too. core/format/claim.h
 * has the rules by which one of them at most gets it, and the argument. Here they are: the leader
 * reads the superblocks anew just before it writes, and does not write over those of another array;
 * it gives up if read and write took `settle_ms` or longer; it says CHECK only so long after the
 * write is durable; and then every node reads the device anew, whatever it has read before.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

static uint64_t settle_us(const struct engine *e)
{
	return e->cfg.tun.settle_ms * 1000ull;
}

static void admin_tell(struct engine *e, uint32_t node, uint64_t tag, int err, const char *why)
{
	NODEMSG(m, b, ADMIN_DONE, AdminDone, admin_done);

	b.node = node;
	b.tag = tag;
	b.err = err;
	b.why = (char *)(why ? why : "");
	msg_send(e, &m);
}

static void admin_answer(struct engine *e, uint64_t tag, int err, const char *why)
{
	struct out *o = out_add(e, OUT_ADMIN_DONE);

	o->admin_done.tag = tag;
	o->admin_done.err = err;
	if (why) {
		char *copy = out_memory(e, strlen(why) + 1);

		memcpy(copy, why, strlen(why) + 1);
		o->admin_done.why = copy;
	}
}

static void step_send(struct engine *e, uint32_t cmd, const char *uri, const uint8_t *uuid)
{
	NODEMSG(m, b, ADMIN, Admin, admin);

	b.cmd = cmd;
	b.uri = (char *)uri;
	b.uuid.data = (uint8_t *)uuid;
	b.uuid.len = DDR_UUID_BYTES;
	msg_send(e, &m);
}

/*
 * Who leads decides whether the array may be assembled (R1), and that may be another node. It looks
 * again whenever something happens, so it is enough that it knows. Nobody keeps that beyond the
 * next commit (departed_committed). A message that a round swallows is sent again by who asked.
 */
static void admin_force(struct engine *e, const struct event *ev)
{
	if (e->state == ENGINE_ACTIVE || e->state == ENGINE_STOPPED) {
		admin_answer(e, ev->admin.tag, -EALREADY, "there is nothing to be forced");
		return;
	}
	e->cfg.take_over |= ev->admin.cmd == ADMIN_TAKE;
	e->cfg.force |= ev->admin.cmd == ADMIN_FORCE;
	e->cfg.alone |= ev->admin.cmd == ADMIN_ALONE; /* nobody else is there to be told */
	e->forced_us = e->now;
	if (ev->admin.cmd != ADMIN_ALONE && e->view.phase >= PH_STATE && e->state != ENGINE_REMOVED)
		step_send(e, ev->admin.cmd == ADMIN_TAKE ? CMD_TAKE : CMD_FORCE, "",
			  e->cfg.array_uuid);
	admin_answer(e, ev->admin.tag, 0, NULL);
}

void admin_submit(struct engine *e, const struct event *ev)
{
	NODEMSG(m, b, ADMIN, Admin, admin);

	if (ev->admin.cmd >= ADMIN_TAKE && ev->admin.cmd <= ADMIN_ALONE) {
		admin_force(e, ev);
		return;
	}
	if (ev->admin.cmd == ADMIN_STOP) {
		e->view.stopping = true;
		e->c->round.hb_next_us = e->now; /* the others are told at once */
		e->c->admin.stop_tag = ev->admin.tag;
		admin_answer(e, ev->admin.tag, 0, NULL);
		return;
	}
	if (e->view.phase != PH_READY || e->c->admin.asked.used) {
		admin_answer(e, ev->admin.tag, -EAGAIN,
			     e->c->admin.asked.used
				 ? "another request is under way on this node; wait for it"
				 : "the cluster is settling; ask again");
		return;
	}
	/* What the others would take for the message of a broken node is not sent. */
	if (ev->admin.cmd > ADMIN_READD || ev->admin.member >= e->map.n) {
		admin_answer(e, ev->admin.tag, -EINVAL,
			     ev->admin.cmd > ADMIN_READD ? "unknown" : "there is no such member");
		return;
	}
	if (ev->admin.uri && strlen(ev->admin.uri) >= DDR_URI_BYTES) {
		admin_answer(e, ev->admin.tag, -EINVAL, "the URI is too long");
		return;
	}
	e->c->admin.asked.used = true;
	e->c->admin.asked.tag = ev->admin.tag;
	e->c->admin.asked.term = e->c->round.id;
	b.tag = ev->admin.tag;
	b.cmd = (uint32_t)ev->admin.cmd;
	b.member = ev->admin.member;
	b.uri = (char *)(ev->admin.uri ? ev->admin.uri : "");
	b.before = ev->admin.before;
	msg_send(e, &m);
}

#define WHY_BYTES (DDR_NAME_BYTES + 256)
#define AS_NEW_BYTES (DDR_NAME_BYTES + 64)

/* What is left if the member can't come back as what it was. */
static const char *as_new(const struct engine *e, uint32_t member, char text[AS_NEW_BYTES])
{
	snprintf(text, AS_NEW_BYTES, "as a new one by 'ddraidctl add %.63s %u URI'",
		 e->c->epochs.base.name, member);
	return text;
}

/* Why a member in that state is not re-added, or "". */
static void readd_possible(const struct engine *e, uint32_t member, char why[WHY_BYTES])
{
	const struct map_member *mm = &e->map.member[member];
	char add[AS_NEW_BYTES];

	why[0] = '\0';
	if (mm->state == MEMBER_FAULTY)
		snprintf(why, WHY_BYTES,
			 "only a missing member can be re-added, and this one is faulty; add its "
			 "device or another %s",
			 as_new(e, member, add));
	else if (mm->state != MEMBER_MISSING && mm->state != MEMBER_SUSPECT)
		snprintf(why, WHY_BYTES,
			 "only a missing member can be re-added, and this one is %s; nothing is to "
			 "be done",
			 member_state_name(mm->state));
	else if (!(mm->left && e->map.missed_from && mm->left >= e->map.missed_from))
		snprintf(why, WHY_BYTES, "what the member missed is not known; add it %s",
			 as_new(e, member, add));
}

/* False: why not. */
static bool admin_possible(struct engine *e, const Ddraid__Admin *a, char why[WHY_BYTES])
{
	uint8_t s = a->member < e->map.n ? e->map.member[a->member].state : 0;
	const char *text = "";

	if (!s)
		text = "there is no such member";
	else if (a->cmd == ADMIN_FAIL && s == MEMBER_IN_SYNC &&
		 map_count_insync(&e->map) <= e->geo.k)
		text = "no more members may fail: the data needs all that are left";
	else if (a->cmd == ADMIN_ADD && s != MEMBER_MISSING && s != MEMBER_FAULTY)
		text = "the member is in use; fail it first";
	else if (a->cmd == ADMIN_ADD && strlen(a->uri) >= DDR_URI_BYTES)
		text = "the URI is too long";
	snprintf(why, WHY_BYTES, "%s", text);
	if (s && a->cmd == ADMIN_READD)
		readd_possible(e, a->member, why);
	return !why[0];
}

static void take_admin(struct engine *e, uint32_t from, const Ddraid__Admin *a)
{
	char why[WHY_BYTES];

	if (e->c->admin.job.used || (a->cmd == ADMIN_ADD && e->c->admin.placing.busy)) {
		admin_tell(e, from, a->tag, -EBUSY, "another change is under way; wait for it");
		return;
	}
	if (a->cmd > ADMIN_READD || !admin_possible(e, a, why)) {
		admin_tell(e, from, a->tag, -EINVAL, a->cmd > ADMIN_READD ? "unknown" : why);
		return;
	}
	/* Without as many no map can be committed: the request would wait for them, and come to
	 * pass when nobody thinks of it any more. */
	if (!others_suffice(e, (uint8_t)a->member)) {
		admin_tell(
		    e, from, a->tag, -EAGAIN,
		    "fewer of the other members can be used now than the data needs, so that "
		    "the map can't be changed; see the status, and ask again");
		return;
	}
	memset(&e->c->admin.job, 0, sizeof(e->c->admin.job));
	e->c->admin.job.used = true;
	e->c->admin.job.node = from;
	e->c->admin.job.tag = a->tag;
	e->c->admin.job.cmd = (uint8_t)a->cmd;
	e->c->admin.job.member = (uint8_t)a->member;
	e->c->admin.job.since = e->now;
	if (a->cmd == ADMIN_FAIL)
		request_state(e, a->member, MEMBER_FAULTY, WHY_OPERATOR, from);
	if (a->cmd != ADMIN_ADD)
		return;
	strncpy(e->c->admin.job.uri, a->uri, DDR_URI_BYTES - 1);
	e->c->admin.job.before = a->before;
	/* Unique: an incarnation never comes twice, and counts its uses. An attempt that came to
	 * nothing has left its UUID on a device, so it must not come again. */
	e->c->admin.uuid_count++;
	for (uint8_t i = 0; i < 8; i++) {
		e->c->admin.job.uuid[i] = (uint8_t)(e->inc >> (8 * i));
		e->c->admin.job.uuid[8 + i] = (uint8_t)(e->c->admin.uuid_count >> (8 * i));
	}
}

static uint32_t dev_of_uri(const struct engine *e, const char *uri)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].up && !strcmp(e->c->devs.dev[i].uri, uri))
			return i;
	return NO_DEV;
}

static void admin_end(struct engine *e, int err, const char *why);

static void sb_placed(struct engine *e, struct batch *b)
{
	struct admin_job *a = &e->c->admin.job;
	char why[DDR_URI_BYTES + 160];

	e->c->admin.placing.busy = false;
	if (e->state == ENGINE_REMOVED || !leading(e) || !a->used || !a->placed || a->written)
		return;
	if (!b->failed) {
		a->written = true;
		a->written_us = e->now;
		return;
	}
	snprintf(why, sizeof(why),
		 "node %u could not write to %s: its connection broke, or it answered with an "
		 "error; see to its exporter, and ask again",
		 e->cfg.node, a->uri);
	admin_end(e, -EIO, why);
}

/* The new device gets both superblocks, of epoch 0: no assembly takes it for anything until a
 * proposal that names it has been written there. */
static void sb_place(struct engine *e, uint32_t dev)
{
	struct superblock sb = e->c->epochs.base;

	memset(&sb.committed, 0, sizeof(sb.committed));
	memset(&sb.past, 0, sizeof(sb.past));
	memset(&sb.map, 0, sizeof(sb.map));
	sb.map.n = e->map.n;
	for (uint8_t i = 0; i < sb.map.n; i++) {
		sb.map.member[i] = e->map.member[i];
		sb.map.member[i].state = MEMBER_MISSING;
		sb.map.member[i].flags = 0;
		sb.map.member[i].rebuilt_upto = 0;
		sb.map.member[i].left = sb.map.member[i].reached = 0;
	}
	sb.index = e->c->admin.job.member;
	memcpy(sb.map.member[sb.index].uuid, e->c->admin.job.uuid, DDR_UUID_BYTES);
	memcpy(sb.member_uuid, e->c->admin.job.uuid, DDR_UUID_BYTES);
	e->c->admin.placing.busy = true;
	e->c->devs.dev[dev].copies_known = false;
	batch_init(&e->c->admin.placing.batch, sb_placed);
	batch_open(&e->c->admin.placing.batch);
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		sb.seq = c;
		sb.place = (uint8_t)(c + 1);
		sb_encode(&sb, e->c->admin.placing.block[c]);
		e->c->admin.placing.iov[c] =
		    (struct iovec){e->c->admin.placing.block[c], DDR_BLOCK_BYTES};
		member_io_start_raw(e, &e->c->admin.placing.batch, dev, DEV_WRITE, KIND_SB,
				    geo_sb_offset(c), &e->c->admin.placing.iov[c]);
	}
	batch_close(e, &e->c->admin.placing.batch);
}

static void admin_end(struct engine *e, int err, const char *why)
{
	admin_tell(e, e->c->admin.job.node, e->c->admin.job.tag, err, why);
	e->c->admin.job.used = false;
}

/* Also under another URI. */
static bool dev_in_use(const struct engine *e, uint32_t dev)
{
	for (uint8_t i = 0; e->c->devs.dev[dev].sb_ok && i < e->map.n; i++) {
		uint8_t s = e->map.member[i].state;

		if (s != MEMBER_MISSING && s != MEMBER_FAULTY &&
		    !memcmp(e->c->devs.dev[dev].sb.member_uuid, e->map.member[i].uuid,
			    DDR_UUID_BYTES))
			return true;
	}
	return false;
}

static bool dev_of_another(const struct engine *e, uint32_t dev)
{
	struct superblock sb;

	for (uint32_t c = 0; c < SB_COPIES; c++)
		if (!sb_decode(&sb, e->c->devs.dev[dev].buf[c], NULL) &&
		    memcmp(sb.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES))
			return true;
	return false;
}

/* Here that URI leads elsewhere than on the node that was asked: nobody has looked at that device.
 */
static bool dev_unlike(const struct engine *e, uint32_t dev)
{
	return e->c->admin.job.before &&
	       sb_place_sum(e->c->devs.dev[dev].buf[0], e->c->devs.dev[dev].buf[1]) !=
		   e->c->admin.job.before;
}

/* Read before write. */
static void add_place(struct engine *e, uint32_t dev)
{
	char why[160];

	if (!e->c->admin.job.looked) {
		e->c->admin.job.looked = true;
		e->c->admin.job.looked_us = e->now;
		dev_reread(e, dev);
	} else if (e->c->devs.dev[dev].retry_us) {
		return; /* it could not be read; it is tried again */
	} else if (dev_in_use(e, dev)) {
		admin_end(e, -ENOTUNIQ, "the device is a member of this array already");
	} else if (dev_of_another(e, dev)) {
		admin_end(e, -ENOTUNIQ,
			  "the device is a member of another array, maybe since this moment; name "
			  "another one");
	} else if (dev_unlike(e, dev)) {
		snprintf(
		    why, sizeof(why),
		    "it is not the device that was checked on node %u: on node %u, which leads, "
		    "that URI leads to another one; nothing was written there",
		    e->c->admin.job.node, e->cfg.node);
		admin_end(e, -EXDEV, why);
	} else {
		e->c->admin.job.placed = true;
		sb_place(e, dev);
	}
}

/* Wait before trust. */
static void add_check(struct engine *e)
{
	if (e->c->admin.job.written_us - e->c->admin.job.looked_us >= settle_us(e)) {
		admin_end(e, -ETIMEDOUT,
			  "the device took a second or longer to be written: somebody else may "
			  "have taken it meanwhile; see to it, and ask again");
	} else if (e->now - e->c->admin.job.written_us >= settle_us(e)) {
		e->c->admin.job.checked = true;
		step_send(e, CMD_CHECK, e->c->admin.job.uri, e->c->admin.job.uuid);
	}
}

static void misfit_end(struct engine *e, int err, uint32_t dev, const char *remedy)
{
	char why[256];

	snprintf(why, sizeof(why), "the device can't be a member: %s; %s",
		 e->c->devs.dev[dev].misfit, remedy);
	admin_end(e, err, why);
}

/* What carries the member's superblock is connected, and is no such device any more. */
static uint32_t misfit_of(const struct engine *e, uint8_t member)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].up && e->c->devs.dev[i].sb_ok &&
		    e->c->devs.dev[i].misfit[0] &&
		    !memcmp(e->c->devs.dev[i].sb.member_uuid, e->map.member[member].uuid,
			    DDR_UUID_BYTES))
			return i;
	return NO_DEV;
}

/*
 * A device's size is what it was when it was connected. So one that is to come back is connected
 * anew, when nothing is under way there: it may have become too small, and what it lost by that is
 * in no missed set. One that was too small may have been set right. True: it has been.
 */
static bool connected_anew(struct engine *e, uint32_t dev)
{
	struct admin_job *a = &e->c->admin.job;

	if (a->anew)
		return a->dev == NO_DEV || e->c->devs.dev[a->dev].ups != a->ups;
	if (dev != NO_DEV && dev_ios(e, dev))
		return false;
	a->anew = true;
	a->dev = dev;
	if (dev == NO_DEV)
		return true;
	a->ups = e->c->devs.dev[dev].ups;
	out_add(e, OUT_DEV_CANCEL)->cancel.dev = dev;
	return false;
}

/* Nothing goes by what is connected there, and its URI may lead to another device by now. */
static bool dev_is_idle(const struct engine *e, uint32_t dev)
{
	uint8_t m = e->c->devs.dev[dev].member;

	return !dev_in_use(e, dev) &&
	       (m == NO_MEMBER || !((map_write_mask(&e->map) | write_targets(e)) >> m & 1));
}

static void add_advance(struct engine *e)
{
	struct admin_job *a = &e->c->admin.job;
	uint32_t dev = dev_of_uri(e, a->uri);
	bool misfit;

	if (!a->opened) {
		if (dev != NO_DEV && dev_is_idle(e, dev) && !connected_anew(e, dev))
			return;
		a->opened = true;
		step_send(e, CMD_OPEN, a->uri, a->uuid);
		return;
	}
	misfit =
	    dev != NO_DEV && e->c->devs.dev[dev].misfit[0] && !e->c->devs.dev[dev].carries_misfit;
	if (misfit && !connected_anew(e, dev))
		return;
	if (misfit) {
		misfit_end(e, -ENOSPC, dev, "use another device");
		return;
	}
	if (dev != NO_DEV && !a->placed && !e->c->devs.dev[dev].reading)
		add_place(e, dev);
	if (a->used && a->written && !a->checked)
		add_check(e);
	if (!a->used || !a->checked || a->entered)
		return;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && !peer_is_observer(e, &e->c->round.peer[i]) &&
		    !(a->seen >> i & 1ull))
			return;
	a->entered = true;
	memcpy(e->c->lead.new_uuid[a->member], a->uuid, DDR_UUID_BYTES);
	e->c->lead.full[a->member] = true;
	request_state(e, a->member, MEMBER_REBUILDING, WHY_OPERATOR, a->node);
}

static bool all_reach_it(const struct engine *e, uint8_t member)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && !peer_is_observer(e, &e->c->round.peer[i]) &&
		    !(e->c->round.peer[i].raw_mask >> member & 1))
			return false;
	return true;
}

/*
 * What was asked for is part of the proposal under way. Nothing proposed is dropped (R3), so it
 * comes to pass, however long the nodes' records take to become durable: whoever asked is not told
 * that it failed.
 */
static bool admin_proposed(const struct engine *e)
{
	return e->view.proposing &&
	       e->view.prop.member[e->c->admin.job.member].state ==
		   (e->c->admin.job.cmd == ADMIN_FAIL ? MEMBER_FAULTY : MEMBER_REBUILDING);
}

static uint64_t admin_limit_us(const struct engine *e)
{
	return 2000ull * e->cfg.tun.evict_ms +
	       (e->c->admin.job.cmd == ADMIN_ADD ? settle_us(e) : 0) +
	       (e->c->admin.job.lands ? reach_us(e) : 0);
}

/* Of the member, whether it can be that now or not. Else what is in its place, and no member. */
static uint32_t device_of(const struct engine *e, uint8_t member)
{
	uint32_t dev =
	    e->view.dev_of[member] != NO_DEV ? e->view.dev_of[member] : misfit_of(e, member);

	if (dev == NO_DEV && e->c->devs.dev[member].up &&
	    e->c->devs.dev[member].member == NO_MEMBER)
		dev = member;
	return dev;
}

static bool lacks_member(const struct engine *e, uint32_t peer, uint8_t member)
{
	return !(e->c->round.peer[peer].raw_mask >> member & 1);
}

static bool lacks_added(const struct engine *e, uint32_t peer, uint8_t member)
{
	(void)member;
	return !(e->c->admin.job.seen >> peer & 1ull);
}

/* "node 2, node 3 and this node", which is the one that was asked; "" = none. */
static const char *nodes_lack(const struct engine *e, char *text, size_t bytes,
			      bool (*lacks)(const struct engine *, uint32_t, uint8_t))
{
	uint32_t who[PEERS_MAX], count = 0;
	size_t at = 0;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && !peer_is_observer(e, &e->c->round.peer[i]) &&
		    lacks(e, i, e->c->admin.job.member))
			who[count++] = e->c->round.peer[i].node;
	text[0] = '\0';
	for (uint32_t i = 0; i < count && at + 32 < bytes; i++) {
		const char *sep = !i ? "" : i + 1 == count ? " and " : ", ";

		at += (size_t)snprintf(text + at, bytes - at, "%snode %u%s", sep, who[i],
				       who[i] == e->c->admin.job.node ? " (this one)" : "");
	}
	return text;
}

/* The device that may be meant to be it: the only one that is no member, and never was one. */
static uint32_t dev_unknown(const struct engine *e)
{
	uint32_t found = NO_DEV;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct dev *d = &e->c->devs.dev[i];

		if (!d->up || d->member != NO_MEMBER || d->sb_ok)
			continue;
		if (found != NO_DEV)
			return NO_DEV;
		found = i;
	}
	return found;
}

/* What is there, as this node sees it; NULL = nothing is connected. */
static const char *seen_at(const struct engine *e, uint32_t dev)
{
	const char *why;

	if (dev == NO_DEV)
		return NULL;
	why = engine_dev_foreign(e, dev);
	return why ? why
	       : e->c->devs.dev[dev].reading || e->c->devs.dev[dev].retry_us
		   ? "its superblock can't be read"
		   : "it is not the member's";
}

/* What keeps a re-add. Of the other nodes the leader knows only that they have not got the member.
 */
static void readd_why(const struct engine *e, char *text, size_t bytes)
{
	uint8_t m = e->c->admin.job.member;
	char nodes[160], add[AS_NEW_BYTES];
	uint32_t dev = e->view.dev_of[m] == NO_DEV ? dev_unknown(e) : NO_DEV;
	const char *here = seen_at(e, dev);
	const struct peer *looks = member_looked_at_by(e, m);

	nodes_lack(e, nodes, sizeof(nodes), lacks_member);
	if (!nodes[0])
		snprintf(text, bytes, "%s",
			 member_sb_read(e, m)
			     ? "the map could not be changed in time; see what it "
			       "waits for, and ask again"
			     : "the superblock of the member can't be read; see to "
			       "its device");
	else if (looks)
		snprintf(text, bytes,
			 "node %u does not use the member yet: it compares what is on it, or waits "
			 "until nothing can land any more that it sent there in another way; ask "
			 "again",
			 looks->node);
	else if (here)
		snprintf(text, bytes,
			 "%s does not reach the member: what node %u finds at %s is not it: %s; "
			 "connect the right device, or add this one %s",
			 nodes, e->cfg.node, e->c->devs.dev[dev].uri, here, as_new(e, m, add));
	else
		snprintf(text, bytes,
			 "%s does not reach the member's device: the status there says why", nodes);
}

static void add_why(const struct engine *e, char *text, size_t bytes)
{
	const struct admin_job *a = &e->c->admin.job;
	uint32_t dev = dev_of_uri(e, a->uri);
	char nodes[160];

	if (dev == NO_DEV)
		snprintf(text, bytes,
			 "node %u%s, which leads, does not reach %s; see that all nodes do",
			 e->cfg.node, e->cfg.node == a->node ? " (this one)" : "", a->uri);
	else if (!a->placed)
		snprintf(text, bytes, "node %u can't read what is on %s", e->cfg.node, a->uri);
	else if (!a->written)
		snprintf(text, bytes, "node %u can't write to %s", e->cfg.node, a->uri);
	else if (a->checked && nodes_lack(e, nodes, sizeof(nodes), lacks_added)[0])
		snprintf(text, bytes,
			 "%s does not find at %s what node %u has written there: it does not reach "
			 "it, or that URI leads to another device there",
			 nodes, a->uri, e->cfg.node);
	else
		snprintf(text, bytes,
			 "the map could not be changed in time; see what it waits for, "
			 "and ask again");
}

static void admin_late(struct engine *e)
{
	char why[DDR_URI_BYTES + 512];

	if (e->c->admin.job.cmd == ADMIN_FAIL)
		snprintf(why, sizeof(why),
			 "another member has left, and the data needs all others");
	else if (e->c->admin.job.cmd == ADMIN_READD)
		readd_why(e, why, sizeof(why));
	else
		add_why(e, why, sizeof(why));
	admin_end(e, -ETIMEDOUT, why);
}

static void older_end(struct engine *e)
{
	char why[WHY_BYTES], add[AS_NEW_BYTES];

	snprintf(why, sizeof(why),
		 "the device's superblock is older than the member was when it left, so this is an "
		 "old copy of it; add it %s",
		 as_new(e, e->c->admin.job.member, add));
	admin_end(e, -EINVAL, why);
}

/* A node that waits for what may land on the member, as adding_lands does, gets the time. */
static void readd_lands(struct engine *e)
{
	struct admin_job *a = &e->c->admin.job;
	const struct peer *p = member_looked_at_by(e, a->member);

	if (a->cmd == ADMIN_READD && p)
		a->lands = p->node;
}

void admin_advance(struct engine *e)
{
	struct admin_job *a = &e->c->admin.job;
	uint8_t m = a->member, s;

	if (!a->used)
		return;
	s = e->map.member[m].state;
	readd_lands(e);
	if (a->cmd == ADMIN_FAIL && s == MEMBER_FAULTY) {
		admin_end(e, 0, NULL);
	} else if (a->cmd != ADMIN_FAIL && (s == MEMBER_REBUILDING || s == MEMBER_IN_SYNC) &&
		   (a->cmd == ADMIN_READD || a->entered)) {
		e->c->lead.full[m] = false;
		admin_end(e, 0, NULL);
	} else if (e->now - a->since > admin_limit_us(e) && !admin_proposed(e)) {
		e->c->lead.full[m] = false;
		/* Who was told that it came to nothing can rely on it. One whose flush failed is
		 * reported again. */
		if (e->c->lead.requested[m] == MEMBER_REBUILDING ||
		    (a->cmd == ADMIN_FAIL && e->c->lead.requested[m] == MEMBER_FAULTY))
			e->c->lead.requested[m] = 0;
		admin_late(e);
	} else if (a->cmd == ADMIN_ADD) {
		add_advance(e);
	} else if (a->cmd == ADMIN_READD && !connected_anew(e, device_of(e, m))) {
		return;
	} else if (a->cmd == ADMIN_READD && e->view.dev_of[m] == NO_DEV &&
		   misfit_of(e, m) != NO_DEV) {
		misfit_end(e, -ENOSPC, misfit_of(e, m), "connect the right one, or add another");
	} else if (a->cmd == ADMIN_READD && !e->c->lead.requested[m] && all_reach_it(e, m) &&
		   member_sb_current(e, m)) {
		if (member_older(e, m, e->map.member[m].reached))
			older_end(e);
		else
			request_state(e, m, MEMBER_REBUILDING, WHY_OPERATOR, a->node);
	}
}

/*
 * CHECK: the device may be a disk that was a member under another URI. So a node waits until
 * nothing can land any more of what was cut off on its way to any member (R5): from the device's
 * answer on, see cut_off.c. Then it reads the superblock again. True: that is not so yet.
 */
static bool adding_lands(struct engine *e, uint32_t dev)
{
	struct adding *a = &e->c->admin.adding;
	bool read = a->reread && a->ups == e->c->devs.dev[dev].ups;

	if (read && e->c->devs.dev[dev].retry_us)
		return true; /* that was no answer; it is read again */
	a->ups = e->c->devs.dev[dev].ups;
	if (!read)
		a->answered_us = 0;
	else if (!a->answered_us)
		a->answered_us = e->now;
	if (any_cut_off(e, dev, a->answered_us)) {
		if (!a->waits)
			step_send(e, CMD_LANDS, a->uri, a->uuid);
		a->waits = true;
		if (read)
			return true;
	} else if (read && a->waits) {
		a->waits = read = false;
	}
	a->reread = true;
	if (!read)
		dev_reread(e, dev);
	return !read;
}

void admin_cut_off(struct engine *e)
{
	e->c->admin.adding.reread = false;
	e->c->admin.adding.answered_us = 0;
}

/* CHECK: is what we opened under this URI the device on which the leader put the superblock? */
void admin_look(struct engine *e)
{
	struct admin_job *a = &e->c->admin.job;
	uint32_t dev = e->c->admin.adding.used ? dev_of_uri(e, e->c->admin.adding.uri) : NO_DEV;

	/* What this node placed itself, as a leader before, is to have landed or failed. */
	if (dev == NO_DEV || e->c->devs.dev[dev].reading || e->c->admin.placing.busy ||
	    e->c->admin.adding.term.inc != e->c->round.id.inc ||
	    e->c->admin.adding.term.num != e->c->round.id.num)
		return;
	if (adding_lands(e, dev)) {
		return;
	} else if (e->c->devs.dev[dev].sb_ok && !memcmp(e->c->devs.dev[dev].sb.member_uuid,
							e->c->admin.adding.uuid, DDR_UUID_BYTES)) {
		e->c->admin.adding.used = false;
		step_send(e, CMD_SEEN, e->c->admin.adding.uri, e->c->admin.adding.uuid);
	} else if (leading(e) && a->used && a->checked && !a->entered &&
		   !memcmp(a->uuid, e->c->admin.adding.uuid, DDR_UUID_BYTES)) {
		e->c->admin.adding.used = false;
		admin_end(e, -ENOTUNIQ,
			  "the device does not carry any more what was written to it: somebody "
			  "else has taken it at the same time, or its exporter does not really "
			  "write; name another one");
	}
}

static void take_step(struct engine *e, uint32_t from, const Ddraid__Admin *a)
{
	size_t len = strlen(a->uri);
	uint32_t dev;

	if (a->uuid.len != DDR_UUID_BYTES || len >= DDR_URI_BYTES)
		return;
	if (a->cmd == CMD_FORCE || a->cmd == CMD_TAKE) {
		e->cfg.force |= e->state == ENGINE_JOINING && a->cmd == CMD_FORCE;
		e->cfg.take_over |= e->state == ENGINE_JOINING && a->cmd == CMD_TAKE;
		e->forced_us = e->now;
		return;
	}
	if (a->cmd == CMD_SEEN) {
		struct peer *p = peer_find(e, from);

		if (leading(e) && e->c->admin.job.used &&
		    !memcmp(a->uuid.data, e->c->admin.job.uuid, DDR_UUID_BYTES))
			e->c->admin.job.seen |= 1ull << (p - e->c->round.peer);
		return;
	}
	if (a->cmd == CMD_LANDS && leading(e) && e->c->admin.job.used &&
	    !memcmp(a->uuid.data, e->c->admin.job.uuid, DDR_UUID_BYTES))
		e->c->admin.job.lands = from;
	if (from != e->c->round.leader)
		return;
	dev = dev_of_uri(e, a->uri);
	if (a->cmd == CMD_OPEN && dev != NO_DEV && !leading(e) && dev_is_idle(e, dev)) {
		out_add(e, OUT_DEV_CANCEL)->cancel.dev = dev; /* as connected_anew */
	} else if (a->cmd == CMD_OPEN && dev == NO_DEV) {
		memcpy(e->c->admin.open_uri, a->uri, len + 1);
		out_add(e, OUT_OPEN)->open.uri = e->c->admin.open_uri;
	} else if (a->cmd == CMD_CHECK) {
		memset(&e->c->admin.adding, 0, sizeof(e->c->admin.adding));
		e->c->admin.adding.used = true;
		e->c->admin.adding.term = e->c->round.id;
		memcpy(e->c->admin.adding.uri, a->uri, len + 1);
		memcpy(e->c->admin.adding.uuid, a->uuid.data, DDR_UUID_BYTES);
	}
}

void admin_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	if (m->body_case == DDRAID__NODE_MSG__BODY_ADMIN_DONE) {
		const Ddraid__AdminDone *d = m->admin_done;

		if (from != e->c->round.leader || d->node != e->cfg.node ||
		    !e->c->admin.asked.used || d->tag != e->c->admin.asked.tag)
			return;
		e->c->admin.asked.used = false;
		admin_answer(e, d->tag, d->err, d->why[0] ? d->why : NULL);
		return;
	}
	if (m->admin->cmd >= CMD_OPEN)
		take_step(e, from, m->admin);
	else if (leading(e))
		take_admin(e, from, m->admin);
}

/* A round has ended: so have the requests of it. */
void admin_reset(struct engine *e)
{
	e->c->admin.job.used = e->c->admin.adding.used = false;
	if (!e->c->admin.asked.used)
		return;
	e->c->admin.asked.used = false;
	admin_answer(e, e->c->admin.asked.tag, -EAGAIN,
		     "the cluster changed meanwhile; look and ask again");
}
