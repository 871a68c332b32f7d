// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/catalog/reserve.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_NEEDED 2u

typedef Ddraid__Announce__Message Message;
typedef Ddraid__Announce__Reserve Reserve;

/* What a node has asked for or holds; also this one. */
struct entry {
	struct entry *next;
	uint32_t node;
	uint64_t id;
	bool brief;
	bool unconfirmed;  /* not told again since the last view */
	uint64_t until_ms; /* its node has left: it lingers; 0: it has not */
	char name[DDR_NAME_BYTES];
	char what[RESERVE_WHAT_BYTES];
	uint32_t key_count;
	char **key;
};

struct peer {
	uint32_t node, version; /* 0: not told yet */
};

static struct reserve_env env;
static struct entry *entries;
static struct reserve *requests; /* this node's */
static struct peer peer[DDR_MAX_NODES];
static uint32_t peer_count, self;
static bool quorate, settled;

static void advance(void);

/* ---- the table ------------------------------------------------------------------------------ */

static void entry_free(struct entry *e)
{
	for (uint32_t i = 0; i < e->key_count; i++)
		free(e->key[i]);
	free(e->key);
	free(e);
}

static struct entry *entry_find(uint32_t node, uint64_t id)
{
	struct entry *e = entries;

	while (e && (e->node != node || e->id != id))
		e = e->next;
	return e;
}

static void entry_remove(uint32_t node, uint64_t id)
{
	for (struct entry **at = &entries; *at; at = &(*at)->next) {
		struct entry *e = *at;

		if (e->node != node || e->id != id)
			continue;
		*at = e->next;
		entry_free(e);
		return;
	}
}

static void expire(void)
{
	for (struct entry **at = &entries; *at;) {
		struct entry *e = *at;

		if (!e->until_ms || e->until_ms > env.now_ms()) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		entry_free(e);
	}
}

static bool well_formed(const Reserve *m)
{
	if (strlen(m->name) >= DDR_NAME_BYTES || strlen(m->what) >= RESERVE_WHAT_BYTES ||
	    m->n_key > RESERVE_KEYS || (m->uuid.len && m->uuid.len != DDR_UUID_BYTES))
		return false;
	for (size_t i = 0; i < m->n_key; i++)
		if (!m->key[i][0] || strlen(m->key[i]) >= RESERVE_KEY_BYTES)
			return false;
	return true;
}

/* Also those that it left behind when it was away. */
static uint32_t entries_of(uint32_t node)
{
	uint32_t n = 0;

	for (const struct entry *e = entries; e; e = e->next)
		n += e->node == node;
	return n;
}

static void entry_add(uint32_t node, const Reserve *m)
{
	struct entry *e = calloc(1, sizeof(*e));

	assert(e);
	e->node = node;
	e->id = m->id;
	e->brief = m->brief;
	strcpy(e->name, m->name);
	strcpy(e->what, m->what);
	e->key = calloc(m->n_key ? m->n_key : 1, sizeof(*e->key));
	assert(e->key);
	for (size_t i = 0; i < m->n_key; i++) {
		e->key[i] = strdup(m->key[i]);
		assert(e->key[i]);
	}
	e->key_count = (uint32_t)m->n_key;
	e->next = entries;
	entries = e;
}

/* The number of m's key that e has, + 1; 0: none. */
static uint32_t shared_key(const struct entry *e, const Reserve *m)
{
	for (uint32_t i = 0; i < m->n_key; i++)
		for (uint32_t k = 0; k < e->key_count; k++)
			if (!strcmp(e->key[k], m->key[i]))
				return i + 1;
	return 0;
}

static int taken(const struct entry *e, bool by_name, char why[RESERVE_WHY_BYTES])
{
	const char *verb = by_name ? "taken" : "wanted";

	if (e->until_ms) {
		snprintf(why, RESERVE_WHY_BYTES,
			 "was %s by the %s on node %u, which has left, and what it wrote last may "
			 "still land; try again in %" PRIu64 " s",
			 verb, e->what, e->node, (e->until_ms - env.now_ms()) / 1000 + 1);
		return -EAGAIN;
	}
	snprintf(why, RESERVE_WHY_BYTES, "is %s by the %s on node %u at this moment; wait for it",
		 verb, e->what, e->node);
	return e->brief ? -EAGAIN : -EBUSY;
}

/* 0, or what is against it. */
static int judge(uint32_t from, const Reserve *m, uint32_t *key, char why[RESERVE_WHY_BYTES])
{
	uint32_t of_node = entries_of(from);

	*key = 0;
	why[0] = '\0';
	if (!well_formed(m)) {
		snprintf(why, RESERVE_WHY_BYTES, "the request is not understood");
		return -EINVAL;
	}
	expire();
	for (const struct entry *e = entries; e; e = e->next) {
		/* A daemon that was started anew goes on with what it had left behind. */
		if (e->until_ms && e->node == from)
			continue;
		*key = shared_key(e, m);
		if (*key)
			return taken(e, false, why);
		if (!m->name[0] || strcmp(m->name, e->name))
			continue;
		*key = RESERVE_NAME + 1;
		return taken(e, true, why);
	}
	if (of_node >= RESERVE_PER_NODE) {
		snprintf(why, RESERVE_WHY_BYTES, "node %u has %u requests under way already", from,
			 of_node);
		return -EAGAIN;
	}
	if (!m->name[0])
		return 0;
	*key = RESERVE_NAME + 1;
	return env.name_free(m->name, m->uuid.len ? m->uuid.data : NULL, why);
}

/* ---- this node's requests ------------------------------------------------------------------- */

static void request_tell(const struct reserve *r)
{
	Reserve m = DDRAID__ANNOUNCE__RESERVE__INIT;
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	char *key[RESERVE_KEYS];

	m.id = r->id;
	m.held = r->state == RESERVE_HELD;
	m.name = (char *)r->name;
	m.what = (char *)r->what;
	m.brief = r->brief;
	m.uuid.data = (uint8_t *)r->uuid;
	m.uuid.len = r->makes ? DDR_UUID_BYTES : 0;
	for (uint32_t i = 0; i < r->key_count; i++)
		key[i] = (char *)r->key[i];
	m.key = key;
	m.n_key = r->key_count;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_RESERVE;
	w.reserve = &m;
	env.send(&w);
}

static void unlink_request(struct reserve *r)
{
	struct reserve **at = &requests;

	while (*at && *at != r)
		at = &(*at)->next;
	if (*at)
		*at = r->next;
	r->state = RESERVE_NONE;
}

void reserve_release(struct reserve *r)
{
	Ddraid__Announce__Release m = DDRAID__ANNOUNCE__RELEASE__INIT;
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;

	if (r->state == RESERVE_NONE)
		return;
	unlink_request(r);
	m.id = r->id;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_RELEASE;
	w.release = &m;
	env.send(&w);
}

static void refuse(struct reserve *r, int err, int key, const char *why)
{
	reserve_release(r);
	r->done(r, err, key, why);
}

void reserve_ask(struct reserve *r)
{
	r->state = RESERVE_ASKED;
	r->id = env.random();
	r->asked_ms = env.now_ms();
	r->yes_count = 0;
	r->next = requests;
	requests = r;
	if (peer_count)
		request_tell(r);
}

static bool said_yes(const struct reserve *r, uint32_t node)
{
	for (uint32_t i = 0; i < r->yes_count; i++)
		if (r->yes[i] == node)
			return true;
	return false;
}

/* The first node of the view that has not answered; NULL: all have. */
static const struct peer *missing(const struct reserve *r)
{
	for (uint32_t i = 0; i < peer_count; i++)
		if (!said_yes(r, peer[i].node))
			return &peer[i];
	return NULL;
}

static const struct peer *too_old(void)
{
	for (uint32_t i = 0; i < peer_count; i++)
		if (peer[i].version && peer[i].version < VERSION_NEEDED)
			return &peer[i];
	return NULL;
}

static bool advance_one(struct reserve *r)
{
	const struct peer *old = too_old();
	char why[RESERVE_WHY_BYTES];

	if (r->state != RESERVE_ASKED)
		return false;
	if (old) {
		snprintf(why, sizeof(why),
			 "node %u runs a version of ddraidd that knows no reservations, and might "
			 "take the same; bring it up to date",
			 old->node);
		refuse(r, -EPROTONOSUPPORT, -1, why);
		return true;
	}
	if (!quorate || !settled || !peer_count || missing(r))
		return false;
	r->state = RESERVE_HELD;
	r->done(r, 0, -1, "");
	return true;
}

/* `done` may ask for and release others. */
static void advance(void)
{
	struct reserve *r = requests;

	while (r)
		r = advance_one(r) ? requests : r->next;
}

void reserve_tick(void)
{
	char why[RESERVE_WHY_BYTES];

	expire();
	for (struct reserve *r = requests; r; r = r->next) {
		const struct peer *p = missing(r);

		if (r->state != RESERVE_ASKED || env.now_ms() - r->asked_ms < RESERVE_ANSWER_MS)
			continue;
		if (p)
			snprintf(why, sizeof(why),
				 "ddraidd on node %u does not answer whether something there is "
				 "against it; look into its log, and try again",
				 p->node);
		else
			snprintf(why, sizeof(why),
				 "the cluster has no quorum here, or settles; try again");
		refuse(r, -EAGAIN, -1, why);
		return;
	}
}

static void lose(struct reserve *r, const char *why)
{
	bool held = r->state == RESERVE_HELD;

	reserve_release(r);
	if (held)
		r->lost(r, why);
	else
		r->done(r, -EAGAIN, -1, why);
}

/* ---- what is heard -------------------------------------------------------------------------- */

static struct peer *peer_of(uint32_t node)
{
	for (uint32_t i = 0; i < peer_count; i++)
		if (peer[i].node == node)
			return &peer[i];
	return NULL;
}

static void node_left(uint32_t node)
{
	for (struct entry *e = entries; e; e = e->next)
		if (e->node == node && !e->until_ms)
			e->until_ms = env.now_ms() + env.linger_ms;
}

void reserve_view(uint32_t me, uint32_t count, const uint32_t *node, const bool *fresh)
{
	struct peer before[DDR_MAX_NODES];
	uint32_t n = peer_count;

	memcpy(before, peer, sizeof(before));
	self = me;
	peer_count = 0;
	for (uint32_t i = 0; i < count && i < DDR_MAX_NODES; i++) {
		struct peer *p = &peer[peer_count++];

		p->node = node[i];
		p->version = 0;
		for (uint32_t k = 0; k < n && !fresh[i]; k++)
			if (before[k].node == node[i])
				p->version = before[k].version;
		if (fresh[i] && node[i] != self)
			node_left(node[i]);
	}
	for (uint32_t k = 0; k < n; k++)
		if (!peer_of(before[k].node))
			node_left(before[k].node);
	for (struct entry *e = entries; e; e = e->next)
		e->unconfirmed = !e->until_ms;
}

/* After the view: so each node of it hears of all that goes on. */
void reserve_tell(void)
{
	for (struct reserve *r = requests; r; r = r->next) {
		r->yes_count = 0;
		request_tell(r);
	}
	advance();
}

void reserve_quorum(bool is_quorate, bool is_settled)
{
	quorate = is_quorate;
	settled = is_settled;
	while (!quorate && requests)
		lose(requests, "this node has lost the others or its quorum; see corosync, and try "
			       "again");
	advance();
}

void reserve_node(uint32_t node, uint32_t version, bool all)
{
	struct peer *p = peer_of(node);

	if (p)
		p->version = version;
	for (struct entry **at = &entries; all && *at;) {
		struct entry *e = *at;

		if (e->node != node || !e->unconfirmed) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		entry_free(e);
	}
	advance();
}

/* Both were granted while the nodes did not see each other: the same one goes on everywhere. */
static void held_twice(uint32_t from, const Reserve *m)
{
	const struct entry *e = entry_find(from, m->id);

	for (struct reserve *r = requests; r && from < self; r = r->next) {
		const struct entry *own = entry_find(self, r->id);
		bool same = own && own != e && m->name[0] && !strcmp(own->name, m->name);

		if (own && own != e && (same || shared_key(own, m))) {
			lose(r, "another node was granted the same while this one did not see it");
			return;
		}
	}
}

static void take_reserve(uint32_t from, const Reserve *m)
{
	Ddraid__Announce__Answer a = DDRAID__ANNOUNCE__ANSWER__INIT;
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	struct entry *e = entry_find(from, m->id);
	char why[RESERVE_WHY_BYTES] = "";

	if (e && e->until_ms && !m->held) { /* it was away, and asks once more */
		entry_remove(from, m->id);
		e = NULL;
	}
	if (e) {
		e->until_ms = 0;
		e->unconfirmed = false;
	}
	if (m->held) {
		/* No node that works has more: it refuses itself. And twice as many if it was away
		 * meanwhile. */
		if (!e && well_formed(m) && entries_of(from) < 2 * RESERVE_PER_NODE)
			entry_add(from, m);
		held_twice(from, m);
		return;
	}
	if (!e)
		a.err = judge(from, m, &a.key, why);
	if (!e && !a.err)
		entry_add(from, m);
	a.node = from;
	a.id = m->id;
	a.why = why;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_ANSWER;
	w.answer = &a;
	env.send(&w);
}

static void take_answer(uint32_t from, const Ddraid__Announce__Answer *a)
{
	struct reserve *r = requests;

	while (r && (r->id != a->id || r->state != RESERVE_ASKED))
		r = r->next;
	if (!r || a->node != self)
		return;
	if (a->err) {
		refuse(r, a->err < 0 && a->err >= -DDR_ERRNO_MAX ? a->err : -EINVAL,
		       a->key && (a->key <= r->key_count || a->key == RESERVE_NAME + 1)
			   ? (int)a->key - 1
			   : -1,
		       a->why);
		return;
	}
	if (!said_yes(r, from) && r->yes_count < DDR_MAX_NODES)
		r->yes[r->yes_count++] = from;
	advance();
}

void reserve_heard(uint32_t from, const Message *w)
{
	if (!peer_of(from))
		return;
	if (w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_RESERVE)
		take_reserve(from, w->reserve);
	else if (w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_ANSWER)
		take_answer(from, w->answer);
	else if (w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_RELEASE)
		entry_remove(from, w->release->id);
}

void reserve_init(const struct reserve_env *e)
{
	env = *e;
	while (entries) {
		struct entry *next = entries->next;

		entry_free(entries);
		entries = next;
	}
	requests = NULL;
	peer_count = 0;
	quorate = settled = false;
}
