// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reservations on three nodes. The module has one state; each node has a copy of it, which is
 * swapped in when the node runs. The group is a list of messages that all get in one order.
 */
#include "daemon/catalog/reserve.c"

#include "tests/lib/test.h"

#define NODES 3
#define MESSAGES 4096

struct state {
	struct entry *entries;
	struct reserve *requests;
	struct peer peer[DDR_MAX_NODES];
	uint32_t peer_count, self;
	bool quorate, settled;
};

struct ask {
	struct reserve r;
	int err, key, lost; /* err 1: not answered */
	char why[RESERVE_WHY_BYTES];
};

static struct {
	struct state node[NODES + 1];
	bool in_view[NODES + 1];
	uint32_t version[NODES + 1];
	const char *has[NODES + 1]; /* a name that the node knows */
	uint32_t runs;
	struct {
		uint32_t from;
		uint8_t *data;
		size_t bytes;
	} message[MESSAGES];
	uint32_t first, count;
	uint64_t now_ms, drawn;
} g;

static void swap_out(void)
{
	struct state *s = &g.node[g.runs];

	s->entries = entries;
	s->requests = requests;
	memcpy(s->peer, peer, sizeof(peer));
	s->peer_count = peer_count;
	s->self = self;
	s->quorate = quorate;
	s->settled = settled;
}

static void swap_in(uint32_t n)
{
	const struct state *s = &g.node[n];

	if (g.runs)
		swap_out();
	g.runs = n;
	entries = s->entries;
	requests = s->requests;
	memcpy(peer, s->peer, sizeof(peer));
	peer_count = s->peer_count;
	self = s->self;
	quorate = s->quorate;
	settled = s->settled;
}

static void send(const Message *w)
{
	CHECK(g.count < MESSAGES);
	if (!g.in_view[g.runs])
		return; /* no group */
	g.message[g.count].from = g.runs;
	g.message[g.count].bytes = ddraid__announce__message__get_packed_size(w);
	g.message[g.count].data = malloc(g.message[g.count].bytes + 1);
	ddraid__announce__message__pack(w, g.message[g.count].data);
	g.count++;
}

static uint64_t now_ms(void)
{
	return g.now_ms;
}

static uint64_t draw(void)
{
	return ++g.drawn * 0x9e3779b97f4a7c15ull;
}

static int name_free(const char *name, const uint8_t *uuid, char why[RESERVE_WHY_BYTES])
{
	(void)uuid;
	if (!g.has[g.runs] || strcmp(g.has[g.runs], name))
		return 0;
	strcpy(why, "is known");
	return -EEXIST;
}

/* One message to all that are in the view. */
static void deliver_one(void)
{
	uint32_t i = g.first++, from = g.message[i].from;

	for (uint32_t n = 1; n <= NODES && g.in_view[from]; n++) {
		Message *w =
		    ddraid__announce__message__unpack(NULL, g.message[i].bytes, g.message[i].data);

		CHECK(w);
		if (g.in_view[n]) {
			swap_in(n);
			reserve_heard(from, w);
		}
		ddraid__announce__message__free_unpacked(w, NULL);
	}
	free(g.message[i].data);
}

static void deliver(void)
{
	while (g.first < g.count)
		deliver_one();
}

static void drop(void)
{
	while (g.first < g.count)
		free(g.message[g.first++].data);
}

/* All in the view hear of it; those in `fresh` have a new daemon. As announce.c does it. */
static void view(uint32_t fresh)
{
	uint32_t node[NODES], count = 0;
	bool is_fresh[NODES];

	for (uint32_t n = 1; n <= NODES; n++) {
		if (!g.in_view[n])
			continue;
		node[count] = n;
		is_fresh[count++] = fresh >> n & 1;
	}
	for (uint32_t n = 1; n <= NODES; n++) {
		if (!g.in_view[n])
			continue;
		swap_in(n);
		reserve_view(n, count, node, is_fresh);
		reserve_tell();
		reserve_quorum(count * 2 > NODES, true);
	}
	deliver();
	for (uint32_t n = 1; n <= NODES; n++) {
		for (uint32_t from = 1; from <= NODES && g.in_view[n]; from++) {
			swap_in(n);
			if (g.in_view[from])
				reserve_node(from, g.version[from], true);
		}
	}
	deliver();
}

static void leaves(uint32_t n)
{
	g.in_view[n] = false;
	swap_in(n);
	reserve_view(n, 0, NULL, NULL);
	reserve_quorum(false, false);
	view(0);
}

/* A process ends, and its memory with it. */
static void forgets(uint32_t n)
{
	struct entry **list = n == g.runs ? &entries : &g.node[n].entries;

	while (*list) {
		struct entry *e = *list;

		*list = e->next;
		entry_free(e);
	}
}

static void begin(void)
{
	static const struct reserve_env e = {.send = send,
					     .now_ms = now_ms,
					     .random = draw,
					     .name_free = name_free,
					     .linger_ms = 3000};

	drop();
	for (uint32_t n = 1; n <= NODES; n++)
		forgets(n);
	memset(&g, 0, sizeof(g));
	g.now_ms = 1000;
	entries = NULL;
	reserve_init(&e);
	for (uint32_t n = 1; n <= NODES; n++) {
		g.in_view[n] = true;
		g.version[n] = 2;
	}
	view(0xe);
}

static void done(struct reserve *r, int err, int key, const char *why)
{
	struct ask *a = r->arg;

	CHECK_EQ_INT(a->err, 1);
	a->err = err;
	a->key = key;
	snprintf(a->why, sizeof(a->why), "%s", why);
}

static void lost(struct reserve *r, const char *why)
{
	struct ask *a = r->arg;

	a->lost++;
	snprintf(a->why, sizeof(a->why), "%s", why);
}

static void ask(uint32_t node, struct ask *a, const char *name, const char *key)
{
	memset(a, 0, sizeof(*a));
	a->err = 1;
	a->r.done = done;
	a->r.lost = lost;
	a->r.arg = a;
	strcpy(a->r.name, name);
	snprintf(a->r.what, sizeof(a->r.what), "create of %s", name);
	snprintf(a->r.key[a->r.key_count++], RESERVE_KEY_BYTES, "uri:own%llu",
		 (unsigned long long)g.drawn);
	strcpy(a->r.key[a->r.key_count++], key);
	swap_in(node);
	reserve_ask(&a->r);
}

static void release(uint32_t node, struct ask *a)
{
	swap_in(node);
	reserve_release(&a->r);
	deliver();
}

static struct ask a, b, c;

TEST(what_nobody_has_is_granted_and_can_be_had_again)
{
	begin();
	ask(1, &a, "vol0", "uri:m0");
	CHECK_EQ_INT(a.err, 1);
	deliver();
	CHECK_EQ_INT(a.err, 0);
	release(1, &a);
	ask(2, &b, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(b.err, 0);
	release(2, &b);
	for (uint32_t n = 1; n <= NODES; n++) {
		swap_in(n);
		CHECK(!entries && !requests);
	}
}

/* By name, by device, on one node or on two, at once: the order of the messages decides. */
TEST(of_two_at_once_the_first_message_wins)
{
	for (uint32_t second = 1; second <= 2; second++) {
		begin();
		ask(1, &a, "vol0", "uri:m0");
		ask(second, &b, "vol0", "uri:m1");
		ask(3, &c, "vol1", "uri:m0");
		deliver();
		CHECK_EQ_INT(a.err, 0);
		CHECK(b.err == -EBUSY && b.key == RESERVE_NAME);
		CHECK(strstr(b.why, "by the create of vol0 on node 1"));
		CHECK(c.err == -EBUSY && c.key == 1);
		CHECK(strstr(c.why, "is wanted by the create of vol0 on node 1"));
		release(1, &a);
		ask(second, &b, "vol0", "uri:m0");
		deliver();
		CHECK_EQ_INT(b.err, 0);
	}
}

TEST(a_name_that_any_node_knows_is_refused)
{
	begin();
	g.has[3] = "vol0";
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK(a.err == -EEXIST && a.key == RESERVE_NAME);
	ask(1, &a, "vol1", "uri:m0"); /* nothing of the first is left */
	deliver();
	CHECK_EQ_INT(a.err, 0);
}

TEST(a_node_that_left_takes_its_reservations_with_it_after_a_while)
{
	begin();
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	leaves(1);
	CHECK(a.lost == 1 && strstr(a.why, "quorum"));
	ask(2, &b, "vol1", "uri:m0");
	deliver();
	CHECK(b.err == -EAGAIN && b.key == 1);
	CHECK(strstr(b.why, "on node 1, which has left"));
	g.now_ms += 2999;
	ask(2, &b, "vol0", "uri:m1");
	deliver();
	CHECK(b.err == -EAGAIN && b.key == RESERVE_NAME);
	g.now_ms += 1;
	ask(2, &b, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(b.err, 0);
	/* Who comes back hears of it before it can be granted anything. */
	g.in_view[1] = true;
	view(1u << 1);
	ask(1, &a, "vol0", "uri:m1");
	deliver();
	CHECK(a.err == -EBUSY && a.key == RESERVE_NAME);
}

/* A new daemon on the node may go on with what the last one had, others may not. */
TEST(a_daemon_that_was_started_anew_is_not_kept_from_what_it_had)
{
	begin();
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	leaves(1);
	g.in_view[1] = true;
	forgets(1);
	memset(&g.node[1], 0, sizeof(g.node[1])); /* a process that died */
	g.runs = g.runs == 1 ? 0 : g.runs;
	view(1u << 1);
	ask(2, &b, "vol1", "uri:m0");
	deliver();
	CHECK_EQ_INT(b.err, -EAGAIN);
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(a.err, 0);
}

/* The newcomer has not heard of it; that it is asked before it is told does no harm. */
TEST(a_newcomer_is_not_granted_what_it_has_not_heard_of)
{
	begin();
	leaves(3);
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(a.err, 0);
	g.in_view[3] = true;
	forgets(3);
	memset(&g.node[3], 0, sizeof(g.node[3]));
	g.runs = g.runs == 3 ? 0 : g.runs;
	swap_in(3);
	ask(3, &c, "vol1", "uri:m0"); /* in the first moment of its view */
	view(1u << 3);
	CHECK(c.err == -EBUSY && strstr(c.why, "on node 1"));
}

TEST(without_quorum_nothing_is_granted_and_what_was_is_lost)
{
	begin();
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(a.err, 0);
	g.in_view[2] = g.in_view[3] = false;
	view(0);
	CHECK_EQ_INT(a.lost, 1);
	ask(1, &b, "vol1", "uri:m1");
	deliver();
	CHECK_EQ_INT(b.err, 1);
	g.now_ms += RESERVE_ANSWER_MS;
	swap_in(1);
	reserve_tick();
	CHECK(b.err == -EAGAIN && strstr(b.why, "no quorum"));
}

TEST(a_view_whose_ring_is_not_the_quorums_grants_nothing)
{
	begin();
	swap_in(1);
	reserve_quorum(true, false);
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(a.err, 1);
	swap_in(1);
	reserve_quorum(true, true);
	CHECK_EQ_INT(a.err, 0);
}

TEST(a_node_that_knows_no_reservations_is_named)
{
	begin();
	leaves(2);
	g.in_view[2] = true;
	g.version[2] = 1;
	view(1u << 2);
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK(a.err == -EPROTONOSUPPORT && strstr(a.why, "node 2 runs a version"));
}

TEST(a_node_that_does_not_answer_is_named)
{
	begin();
	ask(1, &a, "vol0", "uri:m0");
	g.in_view[3] = false; /* frozen: it is in the view of the others, and hears nothing */
	deliver();
	CHECK_EQ_INT(a.err, 1);
	g.now_ms += RESERVE_ANSWER_MS;
	swap_in(1);
	reserve_tick();
	CHECK(a.err == -EAGAIN && strstr(a.why, "node 3 does not answer"));
}

/* A view comes between: neither the question, nor an answer, nor a release comes any more. */
TEST(what_a_view_swallows_is_said_again)
{
	for (int upto = 0; upto < 5; upto++) {
		begin();
		ask(1, &a, "vol0", "uri:m0");
		for (int i = 0; i < upto && g.first < g.count; i++)
			deliver_one();
		drop();
		view(0);
		CHECK_EQ_INT(a.err, 0);
		swap_in(1);
		reserve_release(&a.r);
		drop(); /* nobody hears of it */
		view(0);
		ask(2, &b, "vol0", "uri:m0");
		deliver();
		CHECK_EQ_INT(b.err, 0);
	}
}

/* Both halves had a quorum (two_node): when they see each other, one goes on. */
TEST(of_two_that_were_granted_apart_one_goes_on)
{
	begin();
	g.in_view[2] = g.in_view[3] = false;
	view(0);
	swap_in(1);
	reserve_quorum(true, true);
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(a.err, 0);
	g.in_view[1] = false;
	g.in_view[2] = g.in_view[3] = true;
	view(0);
	ask(2, &b, "vol0", "uri:m1");
	deliver();
	CHECK_EQ_INT(b.err, 0);
	g.in_view[1] = true;
	view(0);
	CHECK(a.lost == 0 && b.lost == 1);
	ask(3, &c, "vol0", "uri:m2");
	deliver();
	CHECK_EQ_INT(c.err, -EBUSY);
}

/* Whoever asks, leaves, comes back and releases, in any order: nothing is granted twice, and in the
 * end nothing is left. */
static void storm(uint64_t seed)
{
	struct ask *all[NODES + 1] = {NULL, &a, &b, &c};
	bool asked[NODES + 1] = {false};
	uint64_t x = seed * 0x2545f4914f6cdd1dull + 1;

	begin();
	for (int step = 0; step < 60; step++) {
		uint32_t n, held = 0;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		n = 1 + (uint32_t)(x >> 8) % NODES;
		g.now_ms += x >> 20 & 1023;
		if (x % 8 < 3 && g.in_view[n] && (!asked[n] || all[n]->err != 1)) {
			if (asked[n])
				release(n, all[n]);
			ask(n, all[n], "vol0", "uri:m0");
			asked[n] = true;
		} else if (x % 8 < 6) {
			for (uint32_t i = 0; i < (x >> 30) % 6 && g.first < g.count; i++)
				deliver_one();
		} else if (g.in_view[n] && g.in_view[1] + g.in_view[2] + g.in_view[3] == 3) {
			drop();
			leaves(n);
		} else if (!g.in_view[n]) {
			drop();
			g.in_view[n] = true;
			view(0);
		}
		for (uint32_t i = 1; i <= NODES; i++)
			held += asked[i] && all[i]->r.state == RESERVE_HELD;
		CHECK_MSG(held <= 1, "seed %llu step %d", (unsigned long long)seed, step);
	}
	for (uint32_t n = 1; n <= NODES; n++)
		g.in_view[n] = true;
	drop();
	view(0);
	for (uint32_t n = 1; n <= NODES; n++)
		if (asked[n])
			release(n, all[n]);
	g.now_ms += 3000;
	ask(1, &a, "vol0", "uri:m0");
	deliver();
	CHECK_EQ_INT(a.err, 0);
}

TEST(nothing_is_granted_twice_whatever_happens)
{
	for (uint64_t seed = 1; seed <= 3000; seed++)
		storm(seed);
}

/* Of one that says that it holds more than it may, what fits is kept, and nothing else. */
TEST(a_node_that_makes_reservations_up_fills_nobodys_memory)
{
	Ddraid__Announce__Reserve m = DDRAID__ANNOUNCE__RESERVE__INIT;
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;

	begin();
	ask(3, &c, "vol9", "uri:m9");
	deliver();
	m.held = true;
	m.what = "create of vol0";
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_RESERVE;
	w.reserve = &m;
	swap_in(1);
	for (uint64_t i = 1; i <= 10000; i++) {
		m.id = i;
		reserve_heard(2, &w);
	}
	CHECK_EQ_U64(entries_of(2), 2 * RESERVE_PER_NODE);
	CHECK_EQ_U64(entries_of(3), 1);
}
