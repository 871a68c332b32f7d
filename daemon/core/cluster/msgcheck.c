/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What holds for every message of a node that works, before anybody looks at what it says.
 *
 * A node of the cluster may be broken. Whatever it sends, no other node may end of it, use it as
 * an index, or run out of a table. So each message passes here first, and the handlers count on
 * it: every field is in its range, every list has a bound, and what must be there is there. What
 * depends on what went before (is it the leader? is the slot another's?) the handlers look at.
 *
 * There are two kinds of broken rules. Some need nothing but the message: whoever broke one is
 * broken, for all nodes alike. Others need the array's geometry. That is read from a device, and
 * it may be ours that is wrong; `certain` says which kind it was (msg.c, rejected).
 *
 * A rule may be added only for what no node of this version sends, also not while it passes on what
 * it was told by another (the departed of a Hello). Lists that are passed on are therefore bounded
 * where they are taken (departed.c), and slots in them that can't be are no slots.
 */
#include <string.h>

#include "daemon/core/cluster/msg.h"

struct check {
	const struct geo *geo; /* NULL: not known */
	uint32_t from;
	uint64_t inc;
};

static const char *check_inc(const pb_inc *i, bool unnamed)
{
	if (!i || !i->node)
		return "names no node";
	if (!i->inc && !unnamed)
		return "names no incarnation";
	if (i->slot > DDR_MAX_SLOTS)
		return "names a slot that no array has";
	return NULL;
}

static const char *check_own(const struct check *c, const pb_inc *i)
{
	const char *bad = check_inc(i, false);

	if (!bad && (i->node != c->from || i->inc != c->inc))
		bad = "speaks for another than its sender";
	return bad;
}

static const char *check_epoch(const Ddraid__Epoch *p, bool needed)
{
	if (!p)
		return needed ? "names no epoch" : NULL;
	return p->num > EPOCH_NUM_MAX ? "has an epoch beyond the last" : NULL;
}

/* One that an array can go by: R3. */
static const char *check_map(const Ddraid__Map *p, const struct geo *g, bool needed)
{
	struct map map;

	if (!p)
		return needed ? "has no map" : NULL;
	if (!pb_map_read(&map, p))
		return "has a map that can't be read";
	return map_check(&map, g);
}

static const char *check_departed(Ddraid__Incarnation *const *d, size_t n, bool unnamed)
{
	if (n > DEPARTED_MAX)
		return "has too many departed";
	for (size_t i = 0; i < n; i++)
		if (!d[i]->node || (!d[i]->inc && !unnamed))
			return "has a departed one without a name";
	return NULL;
}

static const char *check_query(const struct check *c, const nodemsg *m)
{
	const Ddraid__Query *q = m->query;
	bool me = false;

	if (!m->term_inc || m->term_inc != c->inc)
		return "opens a round of another";
	if (!q->n_view || q->n_view > DDR_MAX_NODES || !q->n_group || q->n_group > DDR_MAX_NODES)
		return "asks no nodes, or too many";
	for (size_t i = 0; i < q->n_view; i++) {
		if (q->view[i] < c->from)
			return "opens a round although a lower node is in it";
		me |= q->view[i] == c->from;
		for (size_t j = 0; j < i; j++)
			if (q->view[i] == q->view[j])
				return "asks a node twice";
	}
	return me ? NULL : "opens a round without itself";
}

static const char *check_causes(size_t count, Ddraid__Cause *const *b)
{
	if (count > DDR_MAX_MEMBERS)
		return "has causes of more members than an array has";
	for (size_t i = 0; i < count; i++)
		if (b[i]->member >= DDR_MAX_MEMBERS || b[i]->op > DEV_ZEROES ||
		    b[i]->err > DDR_ERRNO_MAX)
			return "has a cause of no member, or by no error that there is";
	return NULL;
}

static const char *check_hello(const struct check *c, const Ddraid__Hello *h)
{
	const char *bad = check_own(c, h->me);

	if (!bad && h->me->active && !h->me->slot)
		bad = "serves without a slot";
	/* Only one that serves has told or may tell others a map. */
	if (!bad && h->me->active)
		bad = check_map(h->committed, NULL, true);
	if (!bad && h->me->active)
		bad = check_map(h->proposed, NULL, false);
	if (!bad)
		bad = check_epoch(h->acked, false);
	if (!bad)
		bad = check_epoch(h->known, false);
	if (!bad)
		bad = check_departed(h->departed, h->n_departed, true);
	if (!bad && (h->fenced_inc >= c->inc || h->idle_inc >= c->inc))
		bad = "has fenced the incarnation that it is";
	if (!bad && (h->n_bad > DDR_MAX_MEMBERS || h->reach > DDR_MAX_MEMBERS ||
		     h->earlier >> DDR_MAX_MEMBERS))
		bad = "has more members than an array";
	if (!bad)
		bad = check_causes(h->n_cause, h->cause);
	for (size_t i = 0; !bad && i < h->n_bad; i++)
		if (h->bad[i] > MEMBER_FAULTY)
			bad = "wants a state that a member can't leave with";
	if (!bad && h->n_failed > DDR_MAX_DEVS)
		bad = "has more members than an array";
	for (size_t i = 0; !bad && i < h->n_failed; i++)
		if (h->failed[i].len != DDR_UUID_BYTES)
			bad = "has no whole UUID";
	return bad;
}

static const char *check_state(const Ddraid__State *s)
{
	const char *bad = check_map(s->committed, NULL, false);

	if (!bad)
		bad = check_departed(s->departed, s->n_departed, false);
	if (!bad && (!s->n_node || s->n_node > DDR_MAX_NODES))
		bad = "names no nodes, or too many";
	if (!bad && s->n_dropped > DDR_MAX_MEMBERS)
		bad = "has more members than an array";
	for (size_t i = 0; !bad && i < s->n_node; i++) {
		bad = check_inc(s->node[i], false);
		for (size_t j = 0; !bad && j < i; j++)
			if (s->node[i]->node == s->node[j]->node)
				bad = "names a node twice";
	}
	return bad;
}

static const char *check_lock(uint64_t id, uint32_t mode)
{
	if (id >> 56 != LOCK_KIND_REGION)
		return "names a lock of no kind";
	if (mode != LOCK_MODE_CW && mode != LOCK_MODE_EX && mode != LOCK_MODE_PR)
		return "names a mode of no lock";
	return NULL;
}

static const char *check_claim(const Ddraid__Claim *m)
{
	const char *bad = NULL;

	if (m->n_id != m->n_mode || m->n_id > MSG_IDS)
		return "has more locks than modes, or too many";
	for (size_t i = 0; !bad && i < m->n_id; i++)
		bad = check_lock(m->id[i], m->mode[i]);
	return bad;
}

static const char *check_plane(size_t bytes, bool none, uint32_t page)
{
	if (bytes != LOG_PLANE_BYTES && !(none && !bytes))
		return "has no whole plane of a log page";
	return page > UINT16_MAX ? "names a log page that no array has" : NULL;
}

static const char *check_dirty(const Ddraid__Dirty *d)
{
	if (d->n_bit > DIRTY_BITS_MAX || (d->n_bit && d->plane.len))
		return "names more regions of a log page than that way";
	for (size_t i = 0; i < d->n_bit; i++)
		if (d->bit[i] >= LOG_REGIONS_PER_PAGE)
			return "names a region that no log page has";
	return check_plane(d->plane.len, true, d->page);
}

static const char *check_report(const Ddraid__Report *r)
{
	if (r->member >= DDR_MAX_MEMBERS)
		return "reports a member that no array has";
	if (r->state < MEMBER_SUSPECT || r->state > MEMBER_FAULTY)
		return "wants a state that a member can't leave with";
	if (r->earlier && r->state != MEMBER_SUSPECT)
		return "has lost in an earlier incarnation what it does not suspect";
	if (r->read_error && r->state != MEMBER_MISSING)
		return "has a read error that is none";
	return check_causes(r->n_cause, r->cause);
}

static const char *check_propose(const struct check *c, const Ddraid__Propose *p)
{
	const char *bad = check_map(p->map, NULL, true);

	if (!bad && p->map->epoch->inc != c->inc)
		bad = "proposes for another";
	return bad ? bad : check_causes(p->n_cause, p->cause);
}

static const char *check_commit(const struct check *c, const Ddraid__Commit *m)
{
	const char *bad = check_epoch(m->epoch, true);

	return !bad && m->epoch->inc != c->inc ? "commits for another" : bad;
}

static const char *check_ready(const Ddraid__Ready *r)
{
	const char *bad = r->n_past > LINEAGE_MAX ? "remembers too many epochs" : NULL;

	for (size_t i = 0; !bad && i < r->n_past; i++)
		bad = check_epoch(r->past[i], true);
	return bad;
}

static const char *check_admin(const Ddraid__Admin *a)
{
	if (a->cmd > ADMIN_READD && (a->cmd < CMD_OPEN || a->cmd > CMD_LANDS))
		return "asks for what nobody can do";
	if (a->member >= DDR_MAX_MEMBERS)
		return "names a member that no array has";
	if (strlen(a->uri) >= DDR_URI_BYTES)
		return "has a URI that is too long";
	return a->cmd >= CMD_OPEN && a->uuid.len != DDR_UUID_BYTES ? "has no whole UUID" : NULL;
}

static const char *check_heartbeat(const Ddraid__Heartbeat *h)
{
	if (h->n_vouches > DDR_MAX_NODES)
		return "vouches for members to more nodes than there may be";
	for (size_t i = 0; i < h->n_vouches; i++)
		if (h->vouches[i]->mask >> DDR_MAX_MEMBERS)
			return "vouches for more members than an array has";
	return (h->up_mask | h->raw_mask | h->older | h->looking | h->tells) >> DDR_MAX_MEMBERS ||
		       h->reach > DDR_MAX_MEMBERS
		   ? "reaches more members than an array has"
		   : NULL;
}

/* Who is told something by a node's name, and a round's dealings. */
static const char *check_more(const struct check *c, const nodemsg *m)
{
	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_REPORT:
		return check_report(m->report);
	case DDRAID__NODE_MSG__BODY_PROPOSE:
		return check_propose(c, m->propose);
	case DDRAID__NODE_MSG__BODY_READY:
		return check_ready(m->ready);
	case DDRAID__NODE_MSG__BODY_ACK:
		return check_epoch(m->ack->epoch, true);
	case DDRAID__NODE_MSG__BODY_COMMIT:
		return check_commit(c, m->commit);
	case DDRAID__NODE_MSG__BODY_MISSED:
		if (check_epoch(m->missed->epoch, true))
			return check_epoch(m->missed->epoch, true);
		return check_plane(m->missed->plane.len, m->missed->end, m->missed->page);
	case DDRAID__NODE_MSG__BODY_LOCK:
		return check_lock(m->lock->id, m->lock->mode);
	case DDRAID__NODE_MSG__BODY_UNLOCK:
		return check_lock(m->unlock->id, LOCK_MODE_EX);
	case DDRAID__NODE_MSG__BODY_GRANT:
		if (check_inc(m->grant->to, false))
			return check_inc(m->grant->to, false);
		return check_lock(m->grant->id, m->grant->mode);
	case DDRAID__NODE_MSG__BODY_CALLBACK:
		return check_lock(m->callback->id, m->callback->mode);
	case DDRAID__NODE_MSG__BODY_ADMIN:
		return check_admin(m->admin);
	case DDRAID__NODE_MSG__BODY_ADMIN_DONE:
		return m->admin_done->err > 0 || m->admin_done->err < -DDR_ERRNO_MAX
			   ? "has an error that is none"
			   : NULL;
	}
	return NULL;
}

static const char *check_always(const struct check *c, const nodemsg *m)
{
	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_HEARTBEAT:
		return check_heartbeat(m->heartbeat);
	case DDRAID__NODE_MSG__BODY_QUERY:
		return check_query(c, m);
	case DDRAID__NODE_MSG__BODY_HELLO:
		return check_hello(c, m->hello);
	case DDRAID__NODE_MSG__BODY_STATE:
		return check_state(m->state);
	case DDRAID__NODE_MSG__BODY_CLAIM:
		return check_claim(m->claim);
	case DDRAID__NODE_MSG__BODY_FENCED:
		return check_inc(m->fenced->who, false);
	case DDRAID__NODE_MSG__BODY_FENCE_ASK:
		return check_inc(m->fence_ask->who, false);
	case DDRAID__NODE_MSG__BODY_DIRTY:
		if (m->dirty->slot > DDR_MAX_SLOTS)
			return "names a slot that no array has";
		return check_dirty(m->dirty);
	case DDRAID__NODE_MSG__BODY_ASSIGN:
		if (!check_inc(m->assign->who, false) && !m->assign->who->slot)
			return "gives away no slot";
		return check_inc(m->assign->who, false);
	case DDRAID__NODE_MSG__BODY_JOINED:
		if (!check_own(c, m->joined->me) && !m->joined->me->slot)
			return "serves without a slot";
		return check_own(c, m->joined->me);
	case DDRAID__NODE_MSG__BODY_LEFT:
		return check_own(c, m->left->me);
	case DDRAID__NODE_MSG__BODY_EVICT:
		return check_inc(m->evict->who, true);
	}
	return check_more(c, m);
}

/* ---- what the geometry adds ----------------------------------------------------------------- */

static const char *geo_slot(const struct check *c, const pb_inc *i)
{
	return i->slot > c->geo->p.slots ? "names a slot that the array does not have" : NULL;
}

static const char *geo_lock(const struct check *c, uint64_t id)
{
	return (id & LOCK_INDEX_MASK) >= c->geo->regions ? "names a region beyond the last" : NULL;
}

static const char *geo_member(const struct check *c, uint32_t member)
{
	return member >= c->geo->n ? "names a member that the array does not have" : NULL;
}

static const char *geo_page(const struct check *c, uint32_t page)
{
	return page >= c->geo->log_pages ? "names a page that the log does not have" : NULL;
}

static const char *geo_hello(const struct check *c, const Ddraid__Hello *h)
{
	const char *bad = geo_slot(c, h->me);

	if (!bad && h->me->active)
		bad = check_map(h->committed, c->geo, true);
	if (!bad && h->me->active)
		bad = check_map(h->proposed, c->geo, false);
	return bad ? bad : h->n_bad > c->geo->n ? "has more members than the array" : NULL;
}

static const char *geo_state(const struct check *c, const Ddraid__State *s)
{
	const char *bad = check_map(s->committed, c->geo, false);

	for (size_t i = 0; !bad && i < s->n_node; i++)
		bad = geo_slot(c, s->node[i]);
	return bad;
}

static const char *geo_claim(const struct check *c, const Ddraid__Claim *m)
{
	const char *bad = NULL;

	for (size_t i = 0; !bad && i < m->n_id; i++)
		bad = geo_lock(c, m->id[i]);
	return bad;
}

static const char *check_by_geometry(const struct check *c, const nodemsg *m)
{
	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_HELLO:
		return geo_hello(c, m->hello);
	case DDRAID__NODE_MSG__BODY_STATE:
		return geo_state(c, m->state);
	case DDRAID__NODE_MSG__BODY_CLAIM:
		return geo_claim(c, m->claim);
	case DDRAID__NODE_MSG__BODY_DIRTY:
		if (m->dirty->slot > c->geo->p.slots)
			return "names a slot that the array does not have";
		return geo_page(c, m->dirty->page);
	case DDRAID__NODE_MSG__BODY_MISSED:
		return m->missed->plane.len ? geo_page(c, m->missed->page) : NULL;
	case DDRAID__NODE_MSG__BODY_ASSIGN:
		return geo_slot(c, m->assign->who);
	case DDRAID__NODE_MSG__BODY_JOINED:
		return geo_slot(c, m->joined->me);
	case DDRAID__NODE_MSG__BODY_REPORT:
		return geo_member(c, m->report->member);
	case DDRAID__NODE_MSG__BODY_PROPOSE:
		return check_map(m->propose->map, c->geo, true);
	case DDRAID__NODE_MSG__BODY_LOCK:
		return geo_lock(c, m->lock->id);
	case DDRAID__NODE_MSG__BODY_UNLOCK:
		return geo_lock(c, m->unlock->id);
	case DDRAID__NODE_MSG__BODY_GRANT:
		return geo_lock(c, m->grant->id);
	case DDRAID__NODE_MSG__BODY_CALLBACK:
		return geo_lock(c, m->callback->id);
	}
	return NULL;
}

const char *msg_check(const struct engine *e, uint32_t from, const nodemsg *m, bool *certain)
{
	struct check c = {.geo = e->view.have_geo ? &e->geo : NULL, .from = from, .inc = m->inc};
	const char *bad = m->inc ? check_always(&c, m) : "has no incarnation";

	*certain = bad != NULL;
	if (!bad && c.geo)
		bad = check_by_geometry(&c, m);
	return bad;
}
