/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The leader's lock table by itself: what it sends for what it is asked.
 *
 * What it said is a text: "2:PR" a grant to node 2, "2:-EX" a refusal, "?3:CW" a callback since
 * node 3 wants CW.
 */
#include "tests/lib/test.h"

#include "daemon/core/cluster/msg.h"
#include "proto/node.pb-c.h"

#define ID LOCK_ID(LOCK_KIND_REGION, 7)
#define NODES 5u
#define NOTHING LOCK_MODE_NONE
#define PR LOCK_MODE_PR
#define CW LOCK_MODE_CW
#define EX LOCK_MODE_EX

static struct engine *e;
static struct outq q;

static void begin(void)
{
	struct engine_cfg cfg;

	engine_free(e);
	engine_cfg_init(&cfg);
	cfg.node = 1;
	cfg.inc = 101;
	e = engine_new(&cfg);
	q.count = 0;
	e->q = &q;
	for (uint32_t i = 1; i <= NODES; i++)
		peer_get(e, i)->inc = 100 + i;
}

static Ddraid__NodeMsg *message(const struct out *o)
{
	Ddraid__NodeMsg *m;

	CHECK(o->type == OUT_SEND);
	m = ddraid__node_msg__unpack(NULL, o->send.bytes, o->send.data);
	CHECK(m);
	return m;
}

/* Since it was last asked. */
static const char *said(void)
{
	static char text[1024];
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < q.count && at < sizeof(text) - 32; i++) {
		Ddraid__NodeMsg *m = message(&q.v[i]);
		const char *space = at ? " " : "";

		if (m->body_case == DDRAID__NODE_MSG__BODY_GRANT) {
			CHECK_EQ_U64(m->grant->to->inc, 100 + m->grant->to->node);
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u:%s%s", space,
					       m->grant->to->node, m->grant->refused ? "-" : "",
					       lock_mode_name((enum lock_mode)m->grant->mode));
		} else {
			CHECK(m->body_case == DDRAID__NODE_MSG__BODY_CALLBACK);
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s?%u:%s", space,
					       m->callback->wanted_by,
					       lock_mode_name((enum lock_mode)m->callback->mode));
		}
		ddraid__node_msg__free_unpacked(m, NULL);
	}
	q.count = 0;
	return text;
}

static const char *ask(uint32_t node, enum lock_mode mode)
{
	locktab_request(e, node, ID, mode, false);
	return said();
}

static const char *try_it(uint32_t node, enum lock_mode mode)
{
	locktab_request(e, node, ID, mode, true);
	return said();
}

static const char *release(uint32_t node)
{
	locktab_release(e, node, ID);
	return said();
}

static const char *claim(uint32_t node, enum lock_mode mode)
{
	locktab_claim(e, node, ID, mode);
	return said();
}

#define SAYS(what_, want_) CHECK_EQ_STR(what_, want_)

static const enum lock_mode modes[] = {PR, CW, EX};

/* Of the kernel's DLM, by hand: not what lock_compatible says. */
static bool together(enum lock_mode a, enum lock_mode b)
{
	return a == b && a != EX;
}

TEST(two_nodes_hold_what_goes_together)
{
	for (uint32_t i = 0; i < 9; i++) {
		enum lock_mode a = modes[i / 3], b = modes[i % 3];
		char granted[8], refused[8], asks[8];

		snprintf(granted, sizeof(granted), "2:%s", lock_mode_name(b));
		snprintf(refused, sizeof(refused), "2:-%s", lock_mode_name(b));
		snprintf(asks, sizeof(asks), "?2:%s", lock_mode_name(b));
		begin();
		ask(1, a);
		SAYS(try_it(2, b), together(a, b) ? granted : refused);
		begin();
		ask(1, a);
		SAYS(ask(2, b), together(a, b) ? granted : asks);
		SAYS(release(1), together(a, b) ? "" : granted);
		/* ... and the same with what is claimed. */
		begin();
		claim(1, a);
		SAYS(try_it(2, b), together(a, b) ? granted : refused);
		CHECK(lock_compatible(a, b) == together(a, b));
		CHECK(lock_compatible(a, NOTHING) && lock_compatible(NOTHING, b));
	}
}

TEST(readers_wait_for_the_writers_and_these_for_them)
{
	begin();
	SAYS(ask(1, PR), "1:PR");
	SAYS(ask(2, PR), "2:PR");
	SAYS(ask(3, CW), "?3:CW");
	SAYS(ask(4, CW), "");
	SAYS(ask(5, PR), "");
	SAYS(release(1), "?3:CW"); /* 2 has it yet */
	SAYS(release(2), "3:CW 4:CW ?5:PR");
	SAYS(release(4), "?5:PR");
	SAYS(release(3), "5:PR");
	SAYS(ask(1, EX), "?1:EX");
	SAYS(release(5), "1:EX");
}

/* A stream of readers would keep it out for ever, if they were let in beside each other. */
TEST(ex_is_served_before_readers_that_came_later)
{
	begin();
	SAYS(ask(1, PR), "1:PR");
	SAYS(ask(2, EX), "?2:EX");
	for (uint32_t n = 3; n <= 5; n++)
		SAYS(ask(n, PR), "");
	SAYS(try_it(3, PR), ""); /* it has a request under way */
	SAYS(release(1), "2:EX ?3:PR");
	SAYS(ask(1, PR), "");
	SAYS(release(2), "3:PR 4:PR 5:PR 1:PR");
}

TEST(a_try_goes_past_nobody_who_waits)
{
	begin();
	ask(1, PR);
	ask(2, EX);
	SAYS(try_it(3, PR), "3:-PR");
	SAYS(try_it(1, EX), "1:-EX");
	SAYS(release(1), "2:EX");
}

TEST(the_only_holder_gets_ex_by_a_try)
{
	for (uint32_t i = 0; i < 2; i++) {
		begin();
		ask(1, modes[i]);
		ask(2, modes[i]);
		SAYS(try_it(1, EX), "1:-EX");
		release(2);
		SAYS(try_it(1, EX), "1:EX");
		SAYS(try_it(2, modes[i]), i ? "2:-CW" : "2:-PR");
	}
}

TEST(ex_to_pr_goes_first_and_lets_in_who_goes_with_it)
{
	begin();
	SAYS(ask(1, EX), "1:EX");
	SAYS(ask(2, PR), "?2:PR");
	SAYS(ask(3, PR), "");
	SAYS(ask(4, CW), "");
	SAYS(ask(1, PR), "1:PR 2:PR 3:PR ?4:CW");
	SAYS(ask(1, PR), "1:PR ?4:CW"); /* once more, as in a new round */
	release(1);
	release(2);
	SAYS(release(3), "4:CW");
}

/* What a node claims counts, and what it asks for again, though others wait. */
TEST(claims_of_readers)
{
	begin();
	SAYS(claim(1, PR), "");
	SAYS(claim(2, PR), "");
	SAYS(ask(3, EX), "?3:EX");
	SAYS(ask(1, PR), "1:PR ?3:EX");
	SAYS(ask(4, PR), "");
	release(1);
	SAYS(release(2), "3:EX ?4:PR");
	locktab_reset(e); /* 3 has died: nobody claims for it, and 4 asks anew */
	SAYS(ask(4, PR), "4:PR");
}

/* Of two claims that can't be one is wrong, and nothing says which. */
TEST(a_reader_and_a_writer_that_both_claim_it_keep_it)
{
	uint64_t since;

	for (uint32_t i = 0; i < 9; i++) {
		enum lock_mode a = modes[i / 3], b = modes[i % 3];

		if (together(a, b))
			continue;
		begin();
		claim(2, a);
		claim(3, b);
		for (uint32_t k = 0; k < 3; k++)
			CHECK(strchr(try_it(4, modes[k]), '-'));
		ask(5, PR);
		CHECK_EQ_U64(locktab_held_by(e, &since), 2);
		SAYS(release(2), "?5:PR");
		CHECK_EQ_U64(locktab_held_by(e, &since), 3);
		SAYS(release(3), "5:PR");
		CHECK_EQ_U64(locktab_held_by(e, &since), 0);
		CHECK(q.count == 0);
	}
}

/* ---- many, at random ------------------------------------------------------------------------ */

static struct user {
	enum lock_mode held, pend; /* pend: waits */
	uint64_t place;            /* in the order of those who wait */
} user[NODES + 1];
static uint64_t places;
static uint64_t called; /* the place of who the last callback was for */
static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 33) % n;
}

static uint32_t first_waiter(void)
{
	uint32_t first = 0;

	for (uint32_t i = 1; i <= NODES; i++)
		if (user[i].pend != NOTHING && (!first || user[i].place < user[first].place))
			first = i;
	return first;
}

static bool fits(uint32_t node, enum lock_mode mode)
{
	for (uint32_t i = 1; i <= NODES; i++)
		if (i != node && user[i].held != NOTHING && !together(user[i].held, mode))
			return false;
	return true;
}

/* Grants to who waited: in their order, and of what fits. */
static void hear(void)
{
	for (uint32_t i = 0; i < q.count; i++) {
		Ddraid__NodeMsg *m = message(&q.v[i]);

		if (m->body_case == DDRAID__NODE_MSG__BODY_CALLBACK) {
			called = user[m->callback->wanted_by].place;
		} else {
			struct user *u = &user[m->grant->to->node];

			CHECK(!m->grant->refused && first_waiter() == m->grant->to->node);
			CHECK(u->pend == (enum lock_mode)m->grant->mode);
			CHECK(fits(m->grant->to->node, u->pend));
			u->held = u->pend;
			u->pend = NOTHING;
		}
		ddraid__node_msg__free_unpacked(m, NULL);
	}
	q.count = 0;
}

/* The first that it says is the answer to that node; the rest is to be heard. */
static void answered_first(uint32_t node)
{
	Ddraid__NodeMsg *m;

	CHECK(q.count);
	m = message(&q.v[0]);
	CHECK_EQ_U64(m->grant->to->node, node);
	ddraid__node_msg__free_unpacked(m, NULL);
	memmove(q.v, q.v + 1, --q.count * sizeof(*q.v));
}

static void random_request(uint32_t node)
{
	struct user *u = &user[node];
	enum lock_mode mode = modes[random_below(3)];
	bool waits = first_waiter();

	if (u->held == NOTHING && random_below(3)) {
		u->pend = mode;
		u->place = ++places;
		locktab_request(e, node, ID, mode, false);
	} else if (u->held == NOTHING || (u->held != EX && mode == EX)) {
		const char *got = try_it(node, mode);

		CHECK(got[0] && got[1] == ':');
		CHECK((got[2] == '-') == (waits || !fits(node, mode)));
		if (got[2] != '-')
			u->held = mode;
	} else if (u->held == EX && mode == PR) {
		u->held = PR;
		locktab_request(e, node, ID, PR, false);
		answered_first(node);
	} else {
		u->held = NOTHING;
		locktab_release(e, node, ID);
	}
}

TEST(whatever_is_asked_is_served_in_order_and_nobody_waits_for_nothing)
{
	random_state = 4711;
	for (uint32_t run = 0; run < 200; run++) {
		begin();
		memset(user, 0, sizeof(user));
		for (uint32_t i = 0; i < 500; i++) {
			uint32_t node = 1 + random_below(NODES), first;

			if (user[node].pend != NOTHING)
				continue;
			random_request(node);
			hear();
			first = first_waiter();
			if (!first)
				continue;
			CHECK(!fits(first, user[first].pend));
			CHECK_EQ_U64(called, user[first].place); /* who is in its way was told */
		}
	}
}
