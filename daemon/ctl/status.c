// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What is known of an array and of the cluster, as messages. Small pieces of memory that a message
 * points to are kept in a list and freed together.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/units.h"
#include "daemon/base/warnings.h"
#include "daemon/catalog/fence_members.h"
#include "daemon/catalog/lost.h"
#include "daemon/ctl/create/unmake.h"
#include "daemon/ctl/ctl.h"
#include "daemon/runtime/fence/fence.h"

static void *keep(struct status_msg *m, void *p)
{
	if (m->count == m->cap) {
		m->cap = m->cap ? 2 * m->cap : 64;
		m->memory = realloc(m->memory, m->cap * sizeof(*m->memory));
	}
	assert(p && m->memory);
	m->memory[m->count++] = p;
	return p;
}

static char *keep_text(struct status_msg *m, const char *text)
{
	return keep(m, strdup(text));
}

void status_release(struct status_msg *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->memory[i]);
	free(m->memory);
}

static uint64_t wall_ms(const struct array_status *st, uint64_t us)
{
	return us ? st->wall_ms - (st->now_us - us) / 1000 : 0;
}

/* ---- members -------------------------------------------------------------------------------- */

/* The device that is the member, or the one that would be by its URI: not another member's, that
 * has taken that place since. */
static const struct array_dev_status *dev_of(const struct array_status *st, uint32_t member,
					     const char *uri)
{
	for (uint32_t i = 0; st && i < DDR_MAX_DEVS; i++) {
		if (st->dev[i].used && st->dev[i].member == member)
			return &st->dev[i];
	}
	for (uint32_t i = 0; st && i < DDR_MAX_DEVS; i++) {
		if (st->dev[i].used && st->dev[i].member == 0xff && !strcmp(st->dev[i].uri, uri))
			return &st->dev[i];
	}
	return NULL;
}

static void member_map(Ddraid__Ctl__Member *p, const struct array_status *st, uint32_t i)
{
	const struct map_member *mm = &st->engine.map.member[i];

	p->uuid.data = (uint8_t *)mm->uuid;
	p->uuid.len = DDR_UUID_BYTES;
	p->state = mm->state;
	p->partial = mm->flags & MEMBER_F_PARTIAL;
	p->rebuilt_upto = mm->rebuilt_upto;
	p->left = mm->left;
	if (mm->state == MEMBER_REBUILDING && st->engine.rebuild_total)
		p->rebuilt_permille =
		    (uint32_t)(st->engine.rebuild_done * 1000 / st->engine.rebuild_total);
}

/* What it answered last, if it is connected: else that is why it is not used. */
static void member_error(struct status_msg *m, Ddraid__Ctl__Member *p,
			 const struct array_status *st, uint32_t i)
{
	const struct member_error *x = &st->engine.error[i];
	char text[160], said[192], ago[UNITS_TEXT_BYTES];

	if (!x->err || p->error[0])
		return;
	member_error_words(text, sizeof(text), x);
	snprintf(said, sizeof(said), "%s, %s ago", text,
		 time_format(ago, st->now_us > x->us ? (st->now_us - x->us) / 1000 : 0));
	p->error = keep_text(m, said);
}

/* When and why its state has changed last. */
static void member_reason(struct status_msg *m, Ddraid__Ctl__Member *p,
			  const struct array_status *st, uint32_t i)
{
	char text[192];

	if (!st->changed_us[i])
		return;
	member_cause_words(text, sizeof(text), &st->engine.cause[i], st->self.node);
	p->reason = keep_text(m, text);
	p->changed_at_ms = wall_ms(st, st->changed_us[i]);
}

/* Why a member that is connected is not let in: with the time, and what was the matter last. */
static void member_kept_out(struct status_msg *m, Ddraid__Ctl__Member *p,
			    const struct array_status *st, uint32_t i)
{
	char said[512], wait[UNITS_TEXT_BYTES];

	if (!st->engine.kept_out_us[i])
		return;
	snprintf(said, sizeof(said),
		 "it broke off %u times in a row soon after it was back, and is let in again in "
		 "%s at the earliest%s%.300s",
		 st->engine.flaps[i], time_format(wait, st->engine.kept_out_us[i] / 1000),
		 p->error[0] ? "; last: " : "", p->error);
	p->error = keep_text(m, said);
}

static void members(struct status_msg *m, const struct array_entry *k,
		    const struct array_status *st)
{
	uint32_t n = k->desc.count;

	m->msg.member = keep(m, calloc(n ? n : 1, sizeof(Ddraid__Ctl__Member *)));
	for (uint32_t i = 0; i < n; i++) {
		Ddraid__Ctl__Member *p = keep(m, malloc(sizeof(*p)));
		const struct array_dev_status *d;

		*p = (Ddraid__Ctl__Member)DDRAID__CTL__MEMBER__INIT;
		p->index = i;
		p->uri = (char *)k->desc.uri[i];
		d = dev_of(st, i, p->uri);
		if (d) {
			p->uri = keep_text(m, d->uri);
			p->connected = d->up;
			p->size_bytes = d->info.size_bytes;
			p->down_ms = d->down_ms;
			p->error = keep_text(m, d->why);
		} else if (!strcmp(p->uri, STORE_NOWHERE)) {
			p->error = "nobody has said where it is since the array was imported: "
				   "'ddraidctl import' with all members does; or 'ddraidctl fail' "
				   "and 'add' put a new one in its place";
		}
		if (st && i < st->engine.map.n) {
			member_map(p, st, i);
			member_error(m, p, st, i);
			member_reason(m, p, st, i);
			member_kept_out(m, p, st, i);
		}
		m->msg.member[m->msg.n_member++] = p;
	}
}

/* ---- geometry, counters, progress ----------------------------------------------------------- */

static void geometry(struct status_msg *m, const struct geo *g)
{
	Ddraid__Ctl__Geometry *p = keep(m, malloc(sizeof(*p)));

	*p = (Ddraid__Ctl__Geometry)DDRAID__CTL__GEOMETRY__INIT;
	p->order = g->p.order;
	p->parity = g->p.m;
	p->layout = g->p.layout;
	p->slots = g->p.slots;
	p->stripe_bytes = g->p.stripe_bytes;
	p->band_bytes = g->p.band_bytes;
	p->region_bytes = g->p.region_bytes;
	p->member_bytes = g->p.member_bytes;
	p->size_bytes = g->size_bytes;
	p->regions = g->regions;
	m->msg.geometry = p;
}

static void counters(struct status_msg *m, const struct array_status *st)
{
	Ddraid__Ctl__Counters *p = keep(m, malloc(sizeof(*p)));

	*p = (Ddraid__Ctl__Counters)DDRAID__CTL__COUNTERS__INIT;
	p->marks = st->engine.marks;
	p->clears = st->engine.clears;
	p->page_writes = st->engine.page_writes;
	p->lock_requests = st->engine.lock_requests;
	p->parity_fixed = st->engine.parity_fixed;
	p->reads = st->front.requests[FRONT_READ] + st->disk.requests[FRONT_READ];
	p->writes = st->front.requests[FRONT_WRITE] + st->disk.requests[FRONT_WRITE];
	p->read_bytes = st->front.read_bytes + st->disk.read_bytes;
	p->write_bytes = st->front.write_bytes + st->disk.write_bytes;
	p->resync_bytes = st->engine.resync_bytes;
	p->read_resync_bytes = st->engine.read_resync_bytes;
	p->unreadable_reads = st->engine.unreadable_reads;
	m->msg.counters = p;
}

static void recoveries(struct status_msg *m, const struct array_status *st)
{
	uint32_t n = st->engine.recovery_count;

	m->msg.recovery = keep(m, calloc(n ? n : 1, sizeof(Ddraid__Ctl__Recovery *)));
	for (uint32_t i = 0; i < n; i++) {
		const struct recovery *r = &st->engine.recovery[i];
		Ddraid__Ctl__Recovery *p = keep(m, malloc(sizeof(*p)));

		*p = (Ddraid__Ctl__Recovery)DDRAID__CTL__RECOVERY__INIT;
		p->node = r->node;
		p->inc = r->inc;
		p->slot = r->slot == UINT32_MAX ? 0 : r->slot + 1;
		p->lost_at_ms = wall_ms(st, r->lost_us);
		p->fenced_at_ms = wall_ms(st, r->fenced_us);
		p->fenced_before = r->fenced_before;
		p->read_at_ms = wall_ms(st, r->read_us);
		p->done_at_ms = wall_ms(st, r->done_us);
		p->marked = r->marked;
		p->regions = r->regions;
		p->bytes = r->bytes;
		p->read_bytes = r->read_bytes;
		m->msg.recovery[m->msg.n_recovery++] = p;
	}
}

bool status_synced(const struct array_status *st)
{
	const struct engine_status *e = &st->engine;

	if (!e->io_allowed || e->proposing || e->rebuild_total || e->slots_unrecovered ||
	    e->regions_to_resync || e->unfenced)
		return false;
	for (uint8_t i = 0; i < e->map.n; i++) {
		if (e->map.member[i].state == MEMBER_REBUILDING ||
		    e->map.member[i].state == MEMBER_SUSPECT)
			return false;
	}
	return true;
}

/* What the node says that leads, or NULL: this one joins, and is not refused itself. */
static const char *refused_there(const struct array_entry *k, const struct array_status *st,
				 uint32_t *node)
{
	const char *why = NULL;

	*node = 0;
	if (st->phase == ARRAY_PHASE_RUN && st->engine.state == ENGINE_JOINING &&
	    !st->engine.leading)
		why = announce_refused(k->desc.uuid, st->engine.leader, node);
	return why && *node != announce_state()->self.node ? why : NULL;
}

bool status_refused(const struct array_entry *k, const struct array_status *st)
{
	uint32_t node;

	return (st->phase == ARRAY_PHASE_RUN && st->engine.state == ENGINE_REFUSED) ||
	       refused_there(k, st, &node);
}

static char *words_of(const struct array_entry *k, const struct array_status *st)
{
	const struct engine_status *e = &st->engine;

	if (st->phase == ARRAY_PHASE_STOP || st->phase == ARRAY_PHASE_CLOSE)
		return "stopping";
	if (status_refused(k, st))
		return PROGRESS_REFUSED;
	if (st->phase != ARRAY_PHASE_RUN || e->state != ENGINE_ACTIVE)
		return "starting";
	if (e->rebuild_total)
		return "rebuild";
	if (e->slots_unrecovered)
		return "resync of dirty regions";
	for (uint8_t i = 0; i < e->map.n; i++) {
		if (e->map.member[i].state == MEMBER_REBUILDING)
			return "rebuild";
		if (e->map.member[i].state == MEMBER_SUSPECT)
			return "waiting for a member to come back";
	}
	return "settling";
}

/* Why nothing moves, or "". */
static const char *waits_of(const struct array_entry *k, const struct array_status *st,
			    uint32_t *node, uint64_t *ms)
{
	const char *why = st->waits, *there = refused_there(k, st, node);
	uint64_t since = st->waits_us;

	*ms = 0;
	if (there)
		return there;
	*node = 0;
	if (st->phase == ARRAY_PHASE_RUN || st->phase == ARRAY_PHASE_STOP) {
		why = st->engine.waits ? st->engine.waits : st->locks_wait;
		*node = st->engine.waits_node;
		since = st->engine.waits ? st->engine.waits_since_us : st->now_us;
		if (st->engine.state == ENGINE_REMOVED && st->locks_us) {
			why = st->locks_wait;
			*node = 0;
			since = st->locks_us;
		} else if (st->record_why[0]) {
			why = st->record_why;
			*node = 0;
			since = st->record_us;
		} else if (st->engine.state == ENGINE_REMOVED && st->waits[0]) {
			why = st->waits; /* the fence of that incarnation */
			*node = 0;
			since = st->waits_us;
		}
	}
	*ms = why[0] && st->now_us > since ? (st->now_us - since) / 1000 : 0;
	return why;
}

/* Users are served meanwhile. */
static void rebuild_waits_fill(Ddraid__Ctl__Progress *p, const struct array_status *st)
{
	const struct engine_status *e = &st->engine;

	p->waits = "";
	p->waits_node = e->rebuild_waits_node;
	p->waits_ms = 0;
	if (!p->waits_node)
		return;
	p->waits = (char *)(uintptr_t)e->rebuild_waits;
	if (st->now_us > e->rebuild_waits_us)
		p->waits_ms = (st->now_us - e->rebuild_waits_us) / 1000;
}

void status_progress(Ddraid__Ctl__Progress *p, const struct array_entry *k,
		     const struct array_status *st)
{
	const struct engine_status *e = &st->engine;

	*p = (Ddraid__Ctl__Progress)DDRAID__CTL__PROGRESS__INIT;
	p->text = words_of(k, st);
	p->unit = "regions";
	if (st->have_geo)
		p->unit_bytes = st->geo.p.region_bytes;
	if (e->rebuild_total) {
		p->done = e->rebuild_done;
		p->total = e->rebuild_total;
	} else if (e->resync_total && e->regions_to_resync <= e->resync_total) {
		p->done = e->resync_total - e->regions_to_resync;
		p->total = e->resync_total;
	}
	p->waits = (char *)waits_of(k, st, &p->waits_node, &p->waits_ms);
	if (!p->waits[0])
		rebuild_waits_fill(p, st);
}

static void progress(struct status_msg *m, const struct array_entry *k,
		     const struct array_status *st)
{
	Ddraid__Ctl__Progress *p;

	if (st->engine.state != ENGINE_ACTIVE || status_synced(st))
		return;
	if (!st->engine.rebuild_total && !st->engine.slots_unrecovered)
		return;
	p = keep(m, malloc(sizeof(*p)));
	status_progress(p, k, st);
	rebuild_waits_fill(p, st); /* what users wait for is a line of its own */
	m->msg.progress = keep(m, malloc(sizeof(p)));
	m->msg.progress[0] = p;
	m->msg.n_progress = 1;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static Ddraid__Ctl__Node *node_make(struct status_msg *m, uint32_t id)
{
	const struct announce_state *s = announce_state();
	const struct announce_node *a = announce_find(id);
	Ddraid__Ctl__Node *p = keep(m, malloc(sizeof(*p)));
	char trouble[STORE_WHY_BYTES];

	*p = (Ddraid__Ctl__Node)DDRAID__CTL__NODE__INIT;
	p->id = id;
	p->self = id == s->self.node;
	p->state = DDRAID__CTL__NODE_STATE__NODE_OFFLINE;
	for (uint32_t i = 0; i < s->quorum_count; i++) {
		if (s->quorum[i] == id)
			p->state = DDRAID__CTL__NODE_STATE__NODE_ONLINE;
	}
	if ((!a || !a->here) && p->state == DDRAID__CTL__NODE_STATE__NODE_ONLINE)
		p->detail = "without ddraidd";
	if (!a)
		return p;
	p->name = (char *)a->name;
	p->since_ms = now_ms() - a->since_ms;
	store_trouble(trouble);
	if (p->self && trouble[0])
		p->detail = keep_text(m, trouble);
	return p;
}

static void nodes(struct status_msg *m, const struct array_entry *k, const struct array_status *st)
{
	const struct announce_state *s = announce_state();

	m->msg.node = keep(m, calloc(DDR_MAX_NODES, sizeof(Ddraid__Ctl__Node *)));
	for (uint32_t i = 0; i < s->count; i++) {
		const struct announce_running *r = announce_runs(&s->node[i], k->desc.uuid);
		Ddraid__Ctl__Node *p = node_make(m, s->node[i].node);

		/* Of itself it need not be told. */
		if (p->self ? st->engine.state == ENGINE_ACTIVE : r && r->serving)
			p->state = DDRAID__CTL__NODE_STATE__NODE_ACTIVE;
		else if (r && !p->detail[0])
			p->detail = "does not serve it now";
		if (st->engine.waits_node == p->id && st->engine.unfenced) {
			p->state = DDRAID__CTL__NODE_STATE__NODE_UNFENCED;
			if (st->fence_node == p->id && st->engine.leader == s->self.node)
				p->detail = keep_text(m, st->fence_why);
		}
		p->leader = st->engine.leader == p->id;
		if (p->self) {
			p->inc = st->inc;
			p->slot = st->slot == UINT32_MAX ? 0 : st->slot + 1;
		}
		m->msg.node[m->msg.n_node++] = p;
	}
}

void status_nodes(struct ipc_req *r)
{
	const struct announce_state *s = announce_state();
	Ddraid__Ctl__Nodes msg = DDRAID__CTL__NODES__INIT;
	struct status_msg m = {0};
	Reply reply = REPLY_INIT;

	msg.quorate = s->quorate;
	msg.cluster = (char *)ctl_env.conf->cluster;
	msg.node = keep(&m, calloc(2 * DDR_MAX_NODES, sizeof(Ddraid__Ctl__Node *)));
	for (uint32_t i = 0; i < s->count; i++) {
		const struct announce_node *a = &s->node[i];
		Ddraid__Ctl__Node *p = node_make(&m, a->node);

		p->array = keep(&m, calloc(a->count + 1, sizeof(char *)));
		for (uint32_t j = 0; j < a->count; j++) {
			struct array_entry *k = manager_find_uuid(a->running[j].uuid);

			if (k)
				p->array[p->n_array++] = k->desc.name;
		}
		if (a->count)
			p->state = DDRAID__CTL__NODE_STATE__NODE_ACTIVE;
		msg.node[msg.n_node++] = p;
	}
	for (uint32_t i = 0; i < s->quorum_count; i++) {
		if (!announce_find(s->quorum[i]))
			msg.node[msg.n_node++] = node_make(&m, s->quorum[i]);
	}
	reply.body_case = DDRAID__CTL__REPLY__BODY_NODES;
	reply.nodes = &msg;
	ipc_final(r, &reply);
	status_release(&m);
}

/* ---- an array ------------------------------------------------------------------------------- */

static Ddraid__Ctl__ArrayState state_of(const struct array_entry *k, const struct array_status *st)
{
	static const Ddraid__Ctl__ArrayState of[] = {
	    [ENGINE_WAIT_QUORUM] = DDRAID__CTL__ARRAY_STATE__ARRAY_WAIT_QUORUM,
	    [ENGINE_JOINING] = DDRAID__CTL__ARRAY_STATE__ARRAY_JOINING,
	    [ENGINE_ACTIVE] = DDRAID__CTL__ARRAY_STATE__ARRAY_ACTIVE,
	    [ENGINE_REMOVED] = DDRAID__CTL__ARRAY_STATE__ARRAY_REMOVED,
	    [ENGINE_REFUSED] = DDRAID__CTL__ARRAY_STATE__ARRAY_REFUSED,
	    [ENGINE_STOPPED] = DDRAID__CTL__ARRAY_STATE__ARRAY_STOPPED};

	if (!st)
		return k->error[0]   ? DDRAID__CTL__ARRAY_STATE__ARRAY_REFUSED
		       : k->desc.ran ? DDRAID__CTL__ARRAY_STATE__ARRAY_STOPPED
				     : DDRAID__CTL__ARRAY_STATE__ARRAY_CONFIGURED;
	if (st->phase != ARRAY_PHASE_RUN && st->phase != ARRAY_PHASE_STOP)
		return DDRAID__CTL__ARRAY_STATE__ARRAY_OPENING;
	if (status_refused(k, st))
		return DDRAID__CTL__ARRAY_STATE__ARRAY_REFUSED;
	return of[st->engine.state];
}

/* A bad sector that nothing could stand in for. */
static char *unreadable(struct status_msg *m, const struct array_status *st)
{
	const struct unreadable *u = &st->engine.unreadable;
	char text[400], members[64] = "";
	char ago[UNITS_TEXT_BYTES], bytes[UNITS_TEXT_BYTES];
	size_t at = 0;

	for (uint32_t i = 0; i < DDR_MAX_MEMBERS && at < sizeof(members) - 4; i++)
		if (u->members >> i & 1)
			at += (size_t)snprintf(members + at, sizeof(members) - at, "%s%u",
					       at ? ", " : "", i);
	snprintf(text, sizeof(text),
		 "member %s could not be read, and no other could stand in: %s of the array from "
		 "byte %" PRIu64 ", %s ago; %" PRIu64 " reads failed%s; write these blocks anew, "
		 "or bring a member back",
		 members, size_format(bytes, u->bytes), u->offset,
		 time_format(ago, (st->now_us - u->us) / 1000), st->engine.unreadable_reads,
		 st->engine.unreadable_waits ? ", and the rebuild or resync waits for it" : "");
	return keep(m, strdup(text));
}

/* A node that is broken. */
static char *rejected(struct status_msg *m, const struct array_status *st)
{
	char text[400];

	snprintf(text, sizeof(text),
		 "%" PRIu64
		 " messages were dropped that no node may send, the last of node %u (%s): "
		 "ddraidd of that node is broken, or its memory; stop it, and look into its log",
		 st->engine.rejected, st->engine.rejected_node, st->engine.rejected_why);
	return keep(m, strdup(text));
}

bool status_warning(uint32_t i, char text[STORE_WHY_BYTES])
{
	uint32_t undone = 0;

	while (undone < i && unmake_warning(undone))
		undone++;
	if (unmake_warning(undone)) {
		snprintf(text, STORE_WHY_BYTES, "%s", unmake_warning(undone));
		return true;
	}
	i -= undone;
	store_trouble(text);
	if (text[0] && !i--)
		return true;
	if (log_lost() && !i--) {
		snprintf(text, STORE_WHY_BYTES,
			 "the log can't be written, %" PRIu64
			 " lines are lost so far: whoever reads it (a pipe, a terminal, journald, "
			 "syslog) stands still",
			 log_lost());
		return true;
	}
	return (store_deleted(false, text) && !i--) || lost_warning(i, text);
}

/* corosync.conf was changed, and the engine goes by what it was when the array was started. */
static char *token_differs(struct status_msg *m, const struct array_status *st)
{
	uint32_t now_ms = announce_state()->self.token_ms;
	char text[400];

	if (!st->token_ms || !now_ms || now_ms == st->token_ms)
		return NULL;
	snprintf(text, sizeof(text),
		 "corosync's token time-out is %u ms now, and was %u ms when the array was started "
		 "here: heartbeat_limit and the waits for a lost node are made for that; restart "
		 "ddraidd on all nodes, one after the other",
		 now_ms, st->token_ms);
	return keep_text(m, text);
}

static void warnings(struct status_msg *m, const struct array_entry *k,
		     const struct array_status *st)
{
	char general[STORE_WHY_BYTES];
	uint32_t count = 0;
	const char *text;

	while (status_warning(count, general))
		count++;
	m->msg.warning =
	    keep(m, calloc(WARNINGS_MAX + 9 + OPTION_LISTEN_MAX + count, sizeof(char *)));
	for (uint32_t i = 0; i < count && status_warning(i, general); i++)
		m->msg.warning[m->msg.n_warning++] = keep_text(m, general);
	for (uint32_t i = 0; (text = warnings_get(i)); i++)
		m->msg.warning[m->msg.n_warning++] = (char *)text;
	if (k->error[0])
		m->msg.warning[m->msg.n_warning++] = (char *)k->error;
	text = fence_members_why(k->desc.uuid);
	if (text)
		m->msg.warning[m->msg.n_warning++] = keep_text(m, text);
	if (st && k->kept_clients)
		m->msg.warning[m->msg.n_warning++] =
		    "it was to be stopped and goes on here, since clients had it open; stop it "
		    "again, here or on all nodes";
	for (uint32_t i = 0; st && i < OPTION_LISTEN_MAX; i++)
		if (st->listen_why[i][0])
			m->msg.warning[m->msg.n_warning++] = keep_text(m, st->listen_why[i]);
	if (st && st->front.lost[0])
		m->msg.warning[m->msg.n_warning++] = keep_text(m, st->front.lost);
	if (st && st->force_members)
		m->msg.warning[m->msg.n_warning++] =
		    "force_members is on: members may lack both FLUSH and FUA, or MULTI_CONN";
	text = st ? token_differs(m, st) : NULL;
	if (text)
		m->msg.warning[m->msg.n_warning++] = (char *)text;
	if (st && st->engine.unreadable.us)
		m->msg.warning[m->msg.n_warning++] = unreadable(m, st);
	if (st && st->engine.rejected)
		m->msg.warning[m->msg.n_warning++] = rejected(m, st);
}

static void front_end(struct status_msg *m, const struct array_entry *k,
		      const struct array_status *st)
{
	Ddraid__Ctl__FrontEnd *p = keep(m, malloc(sizeof(*p)));
	char text[3 * CONFIG_PATH_BYTES + 2 * DDR_NAME_BYTES + 64];
	char run_dir[3 * CONFIG_PATH_BYTES];

	*p = (Ddraid__Ctl__FrontEnd)DDRAID__CTL__FRONT_END__INIT;
	uri_encode(run_dir, sizeof(run_dir), ctl_env.conf->run_dir);
	snprintf(text, sizeof(text), "nbd+unix:///%s?socket=%s/%s.nbd", k->desc.name, run_dir,
		 k->desc.name);
	p->kind = "nbd";
	p->address = keep_text(m, text);
	p->also = keep(m, calloc(OPTION_LISTEN_MAX, sizeof(char *)));
	for (uint32_t i = 0; i < OPTION_LISTEN_MAX && st->listen[i][0]; i++) {
		snprintf(text, sizeof(text), "nbd://%s/%s", st->listen[i] + strlen("tcp:"),
			 k->desc.name);
		p->also[p->n_also++] = keep_text(m, text);
	}
	_Static_assert(ARRAY_STATUS_CLIENTS <= CTL_MAX_CLIENTS, "all are told");
	p->client = keep(m, calloc(ARRAY_STATUS_CLIENTS, sizeof(Ddraid__Ctl__Client *)));
	for (uint32_t i = 0; i < st->client_count; i++) {
		const struct front_client *from = &st->client[i];
		Ddraid__Ctl__Client *c = keep(m, malloc(sizeof(*c)));

		*c = (Ddraid__Ctl__Client)DDRAID__CTL__CLIENT__INIT;
		c->peer = keep_text(m, from->peer);
		c->since_ms = (st->now_us - from->since_us) / 1000;
		c->ios = from->requests < UINT32_MAX ? (uint32_t)from->requests : UINT32_MAX;
		p->client[p->n_client++] = c;
	}
	m->msg.front_end[m->msg.n_front_end++] = p;
}

static void block_device(struct status_msg *m, const struct array_entry *k,
			 const struct array_status *st)
{
	Ddraid__Ctl__FrontEnd *p;
	char text[DDR_NAME_BYTES + 32], away[UNITS_TEXT_BYTES];

	if (!st->attach)
		return;
	p = keep(m, malloc(sizeof(*p)));
	*p = (Ddraid__Ctl__FrontEnd)DDRAID__CTL__FRONT_END__INIT;
	snprintf(text, sizeof(text), "/dev/ddraid/%s", k->desc.name);
	p->kind = st->attach == ATTACH_SHIM ? "shim" : "nbd device";
	p->address = keep_text(m, text);
	p->device = keep_text(m, st->device);
	p->error = keep_text(m, st->disk_why);
	p->away = keep_text(m, away_format(away, st->away_ms));
	p->opens = st->disk.clients;
	p->waiting = st->disk.waiting;
	p->inflight = st->disk.inflight;
	m->msg.front_end[m->msg.n_front_end++] = p;
}

static void engine_part(struct status_msg *m, const struct array_entry *k,
			const struct array_status *st)
{
	Ddraid__Ctl__ArrayStatus *p = &m->msg;
	const struct engine_status *e = &st->engine;

	p->waits = keep_text(m, waits_of(k, st, &p->waits_node, &p->waits_ms));
	p->io_allowed = e->io_allowed && !st->writes_wait;
	p->leader = e->leader;
	p->leading = e->leading;
	p->epoch_num = e->map.epoch.num;
	p->epoch_inc = e->map.epoch.inc;
	p->proposing = e->proposing;
	p->degraded =
	    e->map.n && (map_degraded(&e->map) || (e->state == ENGINE_ACTIVE && e->unusable));
	p->missed_from = e->map.missed_from;
	p->nodes = e->nodes;
	p->unfenced = e->unfenced;
	p->slots_unrecovered = e->slots_unrecovered;
	p->slot = st->slot == UINT32_MAX ? 0 : st->slot + 1;
	p->regions_dirty = e->regions_dirty;
	p->regions_missed = e->regions_missed;
	p->regions_to_resync = e->regions_to_resync;
	p->rebuild_done = e->rebuild_done;
	p->rebuild_total = e->rebuild_total;
	p->ios = e->ios;
	p->dev_ios = e->dev_ios;
	p->incarnation = st->inc;
	if (st->have_geo)
		geometry(m, &st->geo);
	counters(m, st);
	recoveries(m, st);
	progress(m, k, st);
}

/* What it has, if it runs: an option counts from the next start on. */
const char *locks_of(const struct array_entry *k, const struct array_status *st)
{
	if (!strcmp(ctl_env.conf->cluster, "alone"))
		return "local";
	if (st)
		return st->locks ? st->locks : "cpg";
	return k->desc.options.dlm ? "dlm" : "cpg";
}

void status_make(struct status_msg *m, const struct array_entry *k, const struct array_status *st)
{
	memset(m, 0, sizeof(*m));
	m->msg = (Ddraid__Ctl__ArrayStatus)DDRAID__CTL__ARRAY_STATUS__INIT;
	m->msg.name = (char *)k->desc.name;
	m->msg.uuid.data = (uint8_t *)k->desc.uuid;
	m->msg.uuid.len = DDR_UUID_BYTES;
	m->msg.state = state_of(k, st);
	m->msg.lock_backend = (char *)locks_of(k, st);
	m->msg.fence = (char *)fence_describe();
	members(m, k, st);
	warnings(m, k, st);
	if (!st) {
		m->msg.waits = (char *)k->error;
		if (k->error[0] && !strcmp(k->error, array_failed(k->array)))
			m->msg.waits_ms = array_failed_ms(k->array);
		return;
	}
	m->msg.lock_waits = keep_text(m, st->locks_wait);
	engine_part(m, k, st);
	nodes(m, k, st);
	m->msg.front_end = keep(m, calloc(2, sizeof(Ddraid__Ctl__FrontEnd *)));
	front_end(m, k, st);
	block_device(m, k, st);
}
