/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tests of the lock suite stand on (lock_conformance.c): handles, and what they were told;
 * requests that wait for their answers; CASE(), a test and the lock managers that it is for.
 */
#ifndef TESTS_PORT_LOCK_SUITE_H
#define TESTS_PORT_LOCK_SUITE_H

#include "tests/lib/test.h"

#include "tests/port/lock_conformance.h"

#define LIMIT_MS 20000u
#define QUIET_MS (subject->quiet_ms ? subject->quiet_ms : 3000u)
#define AT_ONCE_MS (subject->at_once_ms ? subject->at_once_ms : 1000u)
#define USER_LOCKS 2100u

struct entry {
	uint64_t id;
	enum lock_mode held, pend;
	bool try_only;
	uint32_t grants, refusals, callbacks;
	enum lock_mode wanted; /* of the last callback */
};

/* One handle, and what it was told. */
struct user {
	struct lockspace *ls;
	uint32_t node;
	bool alive, cut;
	bool leaves, lost; /* it may lose the lock space; it did */
	struct entry lock[USER_LOCKS];
	uint32_t count;
};

static const struct lock_subject *subject;
static struct user user[SUBJECT_NODES + 1]; /* by node */
static bool calling;
static char wrong[200]; /* the first promise that was seen broken in a callback */

_Noreturn void subject_fail(const char *file, int line, const char *what)
{
	printf("%s:%d: ", file, line);
	FAIL("%s", what);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

#define WRONG(...)                                                                                 \
	do {                                                                                       \
		if (!wrong[0])                                                                     \
			snprintf(wrong, sizeof(wrong), __VA_ARGS__);                               \
	} while (0)

static struct entry *entry_of(struct user *u, uint64_t id)
{
	for (uint32_t i = 0; i < u->count; i++)
		if (u->lock[i].id == id)
			return &u->lock[i];
	CHECK(u->count < USER_LOCKS);
	u->lock[u->count] = (struct entry){.id = id};
	return &u->lock[u->count++];
}

static struct entry *enter(struct user *u, uint64_t id, const char *what)
{
	if (calling)
		WRONG("node %u: %s from within a call", u->node, what);
	if (!u->alive)
		WRONG("node %u: %s after the handle's end", u->node, what);
	return entry_of(u, id);
}

static struct entry *answered(struct user *u, uint64_t id, enum lock_mode mode, const char *what)
{
	struct entry *l = enter(u, id, what);

	if (l->pend != mode)
		WRONG("node %u: lock %" PRIx64 " %s in mode %d, asked for is %d", u->node, id, what,
		      (int)mode, (int)l->pend);
	l->pend = LOCK_MODE_NONE;
	return l;
}

/* By themselves: not what the port's lock_compatible says. */
static bool go_together(enum lock_mode a, enum lock_mode b)
{
	return (a == LOCK_MODE_CW && b == LOCK_MODE_CW) || (a == LOCK_MODE_PR && b == LOCK_MODE_PR);
}

static void on_granted(void *arg, uint64_t id, enum lock_mode mode)
{
	struct user *u = arg;
	struct entry *l = answered(u, id, mode, "granted");

	if (u->cut && !(subject->traits & LOCKS_GRANT_ALONE))
		WRONG("node %u: lock %" PRIx64 " granted to who is cut off", u->node, id);
	l->held = mode;
	l->grants++;
	for (uint32_t i = 1; i <= subject->nodes; i++) {
		enum lock_mode other = entry_of(&user[i], id)->held;

		if (i == u->node || !user[i].alive || user[i].cut || other == LOCK_MODE_NONE)
			continue;
		if (!go_together(mode, other))
			WRONG("lock %" PRIx64 ": node %u is granted %d while node %u has %d", id,
			      u->node, (int)mode, i, (int)other);
	}
}

static void on_refused(void *arg, uint64_t id, enum lock_mode mode)
{
	struct user *u = arg;
	struct entry *l = answered(u, id, mode, "refused");

	if (!l->try_only)
		WRONG("node %u: lock %" PRIx64 " refused, which was no try", u->node, id);
	l->refusals++;
}

static void on_callback(void *arg, uint64_t id, enum lock_mode wanted)
{
	struct user *u = arg;
	struct entry *l = enter(u, id, "called back");

	if (!l->grants)
		WRONG("node %u: lock %" PRIx64 " called back before it was granted", u->node, id);
	l->callbacks++;
	l->wanted = wanted;
}

static void on_lost(void *arg, int err, const char *why)
{
	struct user *u = arg;

	if (!u->leaves)
		WRONG("node %u: the lock space is lost: %d, %s", u->node, err, why);
	u->lost = true;
}

static void on_up(void *arg)
{
	const struct user *u = arg;

	if (calling || !u->alive)
		WRONG("node %u: up from within a call, or after the handle's end", u->node);
}

static const struct lock_cb callbacks = {on_up, on_granted, on_refused, on_callback, on_lost};

/* ---- what the tests do ---------------------------------------------------------------------- */

static void run(uint32_t ms)
{
	subject->run(ms);
	if (wrong[0])
		FAIL("%s", wrong);
}

#define AWAIT(cond_)                                                                               \
	do {                                                                                       \
		for (uint32_t ms_ = 0; !(cond_) && ms_ < LIMIT_MS; ms_++)                          \
			run(1);                                                                    \
		CHECK(cond_);                                                                      \
	} while (0)

#define WITHIN(ms_most_, cond_)                                                                    \
	do {                                                                                       \
		for (uint32_t ms_ = 0; !(cond_) && ms_ < (ms_most_); ms_++)                        \
			run(1);                                                                    \
		CHECK(cond_);                                                                      \
	} while (0)

static void attach(uint32_t node)
{
	struct lock_cfg cfg = {.name = "conformance", .node = node, .cb = &callbacks};

	memset(&user[node], 0, sizeof(user[node]));
	user[node].node = node;
	user[node].alive = true;
	cfg.inc = subject->inc(node);
	cfg.arg = &user[node];
	calling = true;
	CHECK_EQ_INT(lock_open(subject->ops, &cfg, &user[node].ls), 0);
	calling = false;
}

static void begin_bare(void)
{
	subject->start();
	calling = false;
	wrong[0] = '\0';
	memset(user, 0, sizeof(user));
}

static void begin(void)
{
	begin_bare();
	for (uint32_t i = 1; i <= subject->nodes; i++)
		attach(i);
}

static void request(uint32_t node, uint64_t id, enum lock_mode mode, bool try_only)
{
	struct entry *l = entry_of(&user[node], id);

	CHECK(user[node].alive && l->pend == LOCK_MODE_NONE);
	l->pend = mode;
	l->try_only = try_only;
	if (l->held == LOCK_MODE_EX && mode == LOCK_MODE_PR)
		l->held = LOCK_MODE_PR; /* others may have been let in when the answer comes */
	calling = true;
	lock_request(user[node].ls, id, mode, try_only);
	calling = false;
}

static void ask(uint32_t node, uint64_t id, enum lock_mode mode)
{
	request(node, id, mode, false);
}

static void give_up(uint32_t node, uint64_t id)
{
	struct entry *l = entry_of(&user[node], id);

	CHECK(user[node].alive && l->held != LOCK_MODE_NONE && l->pend == LOCK_MODE_NONE);
	l->held = LOCK_MODE_NONE;
	calling = true;
	lock_release(user[node].ls, id);
	calling = false;
}

static enum lock_mode held(uint32_t node, uint64_t id)
{
	return entry_of(&user[node], id)->held;
}

/* The last callback was about a waiter of this mode, as far as this lock manager tells. */
static bool called_for(uint32_t node, uint64_t id, enum lock_mode mode)
{
	return entry_of(&user[node], id)->wanted ==
	       (subject->traits & LOCKS_CALL_FOR_EX ? LOCK_MODE_EX : mode);
}

static uint32_t called(uint32_t node, uint64_t id)
{
	return entry_of(&user[node], id)->callbacks;
}

/* EX to PR. */
static void convert_down(uint32_t node, uint64_t id)
{
	CHECK(held(node, id) == LOCK_MODE_EX);
	request(node, id, LOCK_MODE_PR, false);
	AWAIT(entry_of(&user[node], id)->pend == LOCK_MODE_NONE);
}

static void take(uint32_t node, uint64_t id, enum lock_mode mode)
{
	ask(node, id, mode);
	AWAIT(held(node, id) == mode);
}

/* True: granted. */
static bool try_it(uint32_t node, uint64_t id, enum lock_mode mode)
{
	request(node, id, mode, true);
	WITHIN(AT_ONCE_MS, entry_of(&user[node], id)->pend == LOCK_MODE_NONE);
	return held(node, id) == mode;
}

static void killed(uint32_t node, bool with_its_node)
{
	user[node].alive = false;
	if (with_its_node && subject->crash)
		subject->crash(node);
	else
		subject->kill(node);
}

static bool waits_for_fence(void)
{
	return subject->traits & LOCKS_WAIT_FOR_FENCE;
}

#define L(i_) LOCK_ID(LOCK_KIND_REGION, 1000u + (i_)) /* regions that the engines do not use */
#define PR LOCK_MODE_PR
#define CW LOCK_MODE_CW
#define EX LOCK_MODE_EX
#define NOTHING LOCK_MODE_NONE

/* Which lock managers a test is for: with so many nodes and these traits. */
struct suite_case {
	struct test test;
	uint32_t nodes, traits;
	struct suite_case *next;
};
static struct suite_case *case_first, **case_last = &case_first;

#define CASE(name_, nodes_, traits_)                                                               \
	static void name_(void);                                                                   \
	static void case_##name_(void)                                                             \
	{                                                                                          \
		subject->rewind();                                                                 \
		for (uint32_t i = 0; i < subject->worlds; i++) {                                   \
			name_();                                                                   \
			run(0);                                                                    \
		}                                                                                  \
	}                                                                                          \
	__attribute__((constructor)) static void case_reg_##name_(void)                            \
	{                                                                                          \
		static struct suite_case c = {                                                     \
		    .test = {#name_, case_##name_, NULL}, .nodes = nodes_, .traits = traits_};     \
		*case_last = &c;                                                                   \
		case_last = &c.next;                                                               \
	}                                                                                          \
	static void name_(void)

#endif
