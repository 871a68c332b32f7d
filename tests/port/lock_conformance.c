/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What daemon/ports/lock.h promises, held true for each lock manager that there is:
 *
 *	lock_conformance [SUBJECT] [PART-OF-A-TEST'S-NAME]
 *
 * lock_conformance.h tells of the subjects. A test says how many nodes it needs and which traits;
 * the first line of each subject's output says how many are for it.
 *
 * Besides what each test looks for, every grant is held against what all the others hold, every
 * answer against what was asked, and no callback may come from within a call (lock_suite.h).
 */
#define TEST_NO_MAIN
#include "tests/port/lock_suite.h"

/* ---- requests ------------------------------------------------------------------------------- */

CASE(a_free_lock_is_granted_in_each_mode, 1, 0)
{
	begin();
	take(1, L(0), CW);
	take(1, L(1), EX);
	CHECK(held(1, L(0)) == CW);
	give_up(1, L(0));
	give_up(1, L(1));
	take(1, L(0), EX);
	CHECK(try_it(1, L(1), EX));
	CHECK(try_it(1, L(2), CW));
	take(1, L(3), PR);
	CHECK(try_it(1, L(4), PR));
	run(QUIET_MS);
	CHECK_EQ_U64(entry_of(&user[1], L(0))->grants, 2);
	for (uint32_t i = 0; i < 5; i++)
		CHECK_EQ_U64(called(1, L(i)), 0);
}

CASE(a_lone_holder_of_cw_or_pr_gets_ex_when_it_tries, 1, 0)
{
	begin();
	for (uint32_t i = 0; i < 2; i++) {
		take(1, L(i), i ? PR : CW);
		CHECK(try_it(1, L(i), EX));
		give_up(1, L(i));
		take(1, L(i), i ? PR : CW);
	}
}

CASE(a_thousand_locks_are_held_at_once, 1, 0)
{
	begin();
	for (uint32_t i = 0; i < 1000; i++)
		ask(1, L(i), i % 2 ? EX : CW);
	for (uint32_t i = 0; i < 1000; i++)
		AWAIT(held(1, L(i)) != NOTHING);
	for (uint32_t i = 0; i < 1000; i++)
		give_up(1, L(i));
	for (uint32_t i = 0; i < 1000; i++)
		ask(1, L(i), EX);
	for (uint32_t i = 0; i < 1000; i++)
		AWAIT(held(1, L(i)) == EX);
	if (subject->nodes == 1)
		return;
	for (uint32_t i = 1000; i < 2000; i++) /* other locks, of somebody else */
		ask(2, L(i), EX);
	for (uint32_t i = 1000; i < 2000; i++)
		AWAIT(held(2, L(i)) == EX);
	for (uint32_t i = 0; i < 2000; i += 37)
		CHECK(!try_it(3, L(i), CW));
}

static void many_hold(enum lock_mode mode)
{
	begin();
	for (uint32_t i = 0; i < 100; i++)
		for (uint32_t n = 1; n <= subject->nodes; n++)
			ask(n, L(i), mode);
	for (uint32_t i = 0; i < 100; i++)
		for (uint32_t n = 1; n <= subject->nodes; n++) {
			AWAIT(held(n, L(i)) == mode);
			CHECK_EQ_U64(called(n, L(i)), 0);
		}
	for (uint32_t n = 1; n < subject->nodes; n++)
		give_up(n, L(0));
	take(1, L(0), mode);
}

CASE(many_hold_cw_at_once, 2, 0)
{
	many_hold(CW);
}

CASE(many_hold_pr_at_once, 2, 0)
{
	many_hold(PR);
}

/* Of one lock: readers and writers take turns, and either calls the other back. */
CASE(pr_and_cw_exclude_each_other, 3, 0)
{
	for (uint32_t i = 0; i < 2; i++) {
		enum lock_mode first = i ? CW : PR, then = i ? PR : CW;

		begin();
		take(1, L(0), first);
		ask(2, L(0), then);
		AWAIT(called(1, L(0)));
		CHECK(called_for(1, L(0), then));
		ask(3, L(0), first); /* goes with what 1 has, and waits for its turn */
		run(QUIET_MS);
		CHECK(held(2, L(0)) == NOTHING && held(3, L(0)) == NOTHING);
		CHECK_EQ_U64(called(1, L(0)), 1);
		give_up(1, L(0));
		AWAIT(held(2, L(0)) == then);
		AWAIT(called(2, L(0)));
		CHECK(called_for(2, L(0), first));
		CHECK(held(3, L(0)) == NOTHING);
		give_up(2, L(0));
		AWAIT(held(3, L(0)) == first);
		take(1, L(0), first);
		CHECK(!try_it(2, L(0), then));
	}
}

CASE(pr_and_ex_exclude_each_other, 3, 0)
{
	begin();
	take(2, L(0), EX);
	ask(1, L(0), PR);
	ask(3, L(0), PR);
	AWAIT(called(2, L(0)));
	CHECK(called_for(2, L(0), PR));
	run(QUIET_MS);
	CHECK(held(1, L(0)) == NOTHING && held(3, L(0)) == NOTHING);
	give_up(2, L(0));
	AWAIT(held(1, L(0)) == PR && held(3, L(0)) == PR); /* both */
	ask(2, L(0), EX);
	AWAIT(called(1, L(0)) && called(3, L(0)));
	CHECK(called_for(1, L(0), EX) && called_for(3, L(0), EX));
	give_up(1, L(0));
	run(QUIET_MS);
	CHECK(held(2, L(0)) == NOTHING);
	give_up(3, L(0));
	AWAIT(held(2, L(0)) == EX);
	take(3, L(1), PR); /* of this lock only */
	CHECK_EQ_U64(called(2, L(0)), 1);
}

CASE(ex_excludes_everybody, 3, 0)
{
	begin();
	take(2, L(0), EX);
	ask(1, L(0), CW);
	ask(3, L(0), CW);
	run(QUIET_MS);
	CHECK(held(1, L(0)) == NOTHING && held(3, L(0)) == NOTHING);
	give_up(2, L(0));
	AWAIT(held(1, L(0)) == CW &&
	      held(3, L(0)) == CW); /* both, one doesn't wait for the other */
	ask(2, L(0), EX);
	run(QUIET_MS);
	give_up(1, L(0));
	run(QUIET_MS);
	CHECK(held(2, L(0)) == NOTHING);
	give_up(3, L(0));
	AWAIT(held(2, L(0)) == EX);
	ask(3, L(0), EX);
	run(QUIET_MS);
	CHECK(held(3, L(0)) == NOTHING);
	take(1, L(1), EX); /* of this lock only */
	give_up(2, L(0));
	AWAIT(held(3, L(0)) == EX);
}

static void starved_by(enum lock_mode mode)
{
	begin();
	take(1, L(0), mode);
	ask(2, L(0), EX);
	AWAIT(called(1, L(0)));
	ask(3, L(0), mode);
	run(QUIET_MS);
	CHECK(held(3, L(0)) == NOTHING);
	give_up(1, L(0));
	ask(1, L(0), mode);
	AWAIT(held(2, L(0)) == EX);
	run(QUIET_MS);
	CHECK(held(1, L(0)) == NOTHING && held(3, L(0)) == NOTHING);
	give_up(2, L(0));
	AWAIT(held(1, L(0)) == mode && held(3, L(0)) == mode);
}

CASE(a_waiting_ex_is_not_starved_by_later_cw, 3, 0)
{
	starved_by(CW);
}

CASE(a_waiting_ex_is_not_starved_by_later_pr, 3, 0)
{
	starved_by(PR);
}

/* Readers that never stop: two that take turns, so that there would always be one. */
CASE(a_stream_of_readers_lets_each_writer_in, 3, 0)
{
	begin();
	take(1, L(0), PR);
	for (uint32_t turn = 0; turn < 10; turn++) {
		uint32_t reads = turn % 2 ? 3 : 1, next = 4 - reads;
		uint32_t before;

		entry_of(&user[reads], L(0))->callbacks = 0;
		ask(2, L(0), EX);
		AWAIT(called(reads, L(0)));
		before = entry_of(&user[next], L(0))->grants;
		ask(next, L(0), PR);
		run(QUIET_MS);
		CHECK_EQ_U64(entry_of(&user[next], L(0))->grants, before);
		give_up(reads, L(0));
		AWAIT(held(2, L(0)) == EX);
		CHECK_EQ_U64(entry_of(&user[next], L(0))->grants, before);
		give_up(2, L(0));
		AWAIT(held(next, L(0)) == PR);
	}
}

CASE(requests_of_a_lock_are_served_in_order, 3, 0)
{
	begin();
	take(1, L(0), EX);
	for (uint32_t i = 0; i < 10; i++) {
		uint32_t holder = 1 + i % 3, next = 1 + (i + 1) % 3, last = 1 + (i + 2) % 3;

		if (!i) {
			ask(next, L(0), EX);
			run(QUIET_MS);
		}
		ask(last, L(0), EX);
		run(QUIET_MS);
		give_up(holder, L(0));
		AWAIT(held(next, L(0)) == EX);
		CHECK(held(last, L(0)) == NOTHING);
	}
}

/* ---- tries ---------------------------------------------------------------------------------- */

CASE(a_try_is_refused_at_once_and_never_queued, 2, 0)
{
	begin();
	take(1, L(0), EX);
	CHECK(!try_it(2, L(0), CW));
	CHECK(!try_it(2, L(0), EX));
	take(1, L(1), CW);
	CHECK(!try_it(2, L(1), EX));
	run(QUIET_MS);
	CHECK_EQ_U64(called(1, L(0)) + called(1, L(1)), 0);
	give_up(1, L(0));
	give_up(1, L(1));
	run(QUIET_MS);
	CHECK(held(2, L(0)) == NOTHING && held(2, L(1)) == NOTHING);
	CHECK(try_it(2, L(0), CW));
	CHECK(try_it(2, L(1), EX));
}

CASE(a_try_of_pr_is_refused_by_writers_and_goes_with_readers, 3, 0)
{
	begin();
	take(1, L(0), EX);
	take(1, L(1), CW);
	take(1, L(2), PR);
	CHECK(!try_it(2, L(0), PR));
	CHECK(!try_it(2, L(1), PR));
	CHECK(try_it(2, L(2), PR));
	CHECK(!try_it(3, L(2), CW));
	CHECK(!try_it(3, L(2), EX));
	run(QUIET_MS);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ_U64(called(1, L(i)) + called(2, L(i)), 0);
	give_up(1, L(0));
	give_up(1, L(1));
	run(QUIET_MS);
	CHECK(held(2, L(0)) == NOTHING && held(2, L(1)) == NOTHING);
	CHECK(try_it(2, L(0), PR));
	CHECK(try_it(2, L(1), PR));
}

CASE(a_refused_try_leaves_what_is_held, 3, 0)
{
	for (uint32_t i = 0; i < 2; i++) {
		enum lock_mode mode = i ? PR : CW;

		begin();
		take(1, L(0), mode);
		take(2, L(0), mode);
		CHECK(!try_it(2, L(0), EX));
		CHECK(held(2, L(0)) == mode);
		ask(3, L(0), EX);
		AWAIT(called(1, L(0)));
		give_up(1, L(0));
		run(QUIET_MS);
		CHECK(held(3, L(0)) == NOTHING); /* 2 has it yet */
		give_up(2, L(0));
		AWAIT(held(3, L(0)) == EX);
	}
}

CASE(a_granted_try_shuts_the_others_out, 2, 0)
{
	begin();
	take(1, L(0), CW);
	CHECK(try_it(1, L(0), EX));
	ask(2, L(0), CW);
	AWAIT(called(1, L(0)));
	run(QUIET_MS);
	CHECK(held(2, L(0)) == NOTHING);
	give_up(1, L(0));
	AWAIT(held(2, L(0)) == CW);
}

/* ---- EX to PR ------------------------------------------------------------------------------- */

CASE(ex_becomes_pr_whoever_waits, 3, 0)
{
	begin();
	take(1, L(0), EX);
	ask(2, L(0), EX);
	AWAIT(called(1, L(0)) == 1);
	convert_down(1, L(0));
	AWAIT(called(1, L(0)) == 2); /* PR is in the way as well */
	ask(3, L(0), PR);
	run(QUIET_MS);
	CHECK(held(1, L(0)) == PR && held(2, L(0)) == NOTHING && held(3, L(0)) == NOTHING);
	give_up(1, L(0));
	AWAIT(held(2, L(0)) == EX);
	CHECK(held(3, L(0)) == NOTHING);
	convert_down(2, L(0)); /* the next goes with it */
	AWAIT(held(3, L(0)) == PR);
	CHECK(held(2, L(0)) == PR);
	CHECK(!try_it(1, L(0), CW));
}

CASE(ex_that_becomes_pr_lets_readers_in_and_no_writer, 3, 0)
{
	begin();
	take(1, L(0), EX);
	ask(2, L(0), PR);
	run(QUIET_MS);
	ask(3, L(0), CW);
	run(QUIET_MS);
	convert_down(1, L(0));
	AWAIT(held(2, L(0)) == PR);
	run(QUIET_MS);
	CHECK(held(1, L(0)) == PR && held(3, L(0)) == NOTHING);
	give_up(1, L(0));
	run(QUIET_MS);
	CHECK(held(3, L(0)) == NOTHING);
	give_up(2, L(0));
	AWAIT(held(3, L(0)) == CW);
}

CASE(a_lone_reader_that_was_the_writer_may_be_it_again, 1, 0)
{
	begin();
	take(1, L(0), EX);
	for (uint32_t i = 0; i < 5; i++) {
		convert_down(1, L(0));
		CHECK(try_it(1, L(0), EX));
	}
	give_up(1, L(0));
	take(1, L(0), CW);
}

/* Who has it again by a table that is built anew has claimed PR, and asks for that. */
CASE(ex_becomes_pr_around_a_loss, 3, 0)
{
	for (uint32_t before = 0; before < 12; before++) {
		begin();
		for (uint32_t i = 0; i < 3; i++) {
			take(2, L(i), EX);
			ask(3, L(i), i ? PR : EX);
		}
		request(2, L(0), PR, false);
		request(2, L(1), PR, false);
		run(before * 4);
		killed(1, before & 1);
		run(before * 4);
		request(2, L(2), PR, false);
		for (uint32_t i = 0; i < 3; i++)
			AWAIT(entry_of(&user[2], L(i))->pend == NOTHING);
		AWAIT(held(3, L(1)) == PR && held(3, L(2)) == PR);
		run(QUIET_MS);
		CHECK(held(3, L(0)) == NOTHING);
		CHECK(!try_it(3, L(1), EX));
		give_up(2, L(0));
		AWAIT(held(3, L(0)) == EX);
		for (uint32_t i = 0; i < 3; i++)
			CHECK_EQ_U64(entry_of(&user[2], L(i))->grants, 2);
	}
}

/* ---- callbacks ------------------------------------------------------------------------------ */

CASE(every_holder_in_the_way_is_called_back, 3, 0)
{
	begin();
	take(1, L(0), CW);
	take(2, L(0), CW);
	take(1, L(1), CW);
	ask(3, L(0), EX);
	AWAIT(called(1, L(0)) && called(2, L(0)));
	CHECK(entry_of(&user[1], L(0))->wanted == EX && entry_of(&user[2], L(0))->wanted == EX);
	ask(2, L(1), CW); /* goes with what 1 has */
	AWAIT(held(2, L(1)) == CW);
	run(QUIET_MS);
	CHECK_EQ_U64(called(1, L(0)), 1);
	CHECK_EQ_U64(called(2, L(0)), 1);
	CHECK_EQ_U64(called(3, L(0)) + called(1, L(1)), 0);
}

CASE(a_new_waiter_calls_back_again, 3, 0)
{
	begin();
	take(1, L(0), CW);
	for (uint32_t i = 1; i <= 5; i++) {
		ask(2, L(0), EX);
		AWAIT(called(1, L(0)) == i);
		give_up(1, L(0));
		AWAIT(held(2, L(0)) == EX);
		ask(1, L(0), CW);
		AWAIT(called(2, L(0)) == i);
		CHECK(called_for(2, L(0), CW));
		give_up(2, L(0));
		AWAIT(held(1, L(0)) == CW);
	}
	/* Who was granted while others waited is called back for the next of them, after its grant:
	 * before, it would have had no reason to give anything up. */
	ask(2, L(0), EX);
	AWAIT(called(1, L(0)) == 6);
	ask(3, L(0), EX);
	run(QUIET_MS);
	CHECK_EQ_U64(called(2, L(0)), 5);
	give_up(1, L(0));
	AWAIT(held(2, L(0)) == EX);
	AWAIT(called(2, L(0)) == 6);
	give_up(2, L(0));
	AWAIT(held(3, L(0)) == EX);
}

#define TURNS 60u
#define TURNS_EACH 15u

static bool all_had_their_turns(void)
{
	for (uint32_t n = 1; n <= subject->nodes; n++)
		if (entry_of(&user[n], L(0))->grants < TURNS_EACH)
			return false;
	return true;
}

/* Nobody who only listens to callbacks starves another: as the engine's regions do it. While a
 * machine stands still the others go on; it has fewer of the first turns then, but has them. */
static void all_have_their_turn(const enum lock_mode mode[SUBJECT_NODES])
{
	uint32_t turns = 0, most = subject->traits & LOCKS_IN_REAL_TIME ? 10 * TURNS : TURNS;

	begin();
	for (uint32_t n = 1; n <= subject->nodes; n++)
		ask(n, L(0), mode[n - 1]);
	for (uint32_t ms = 0; ms < LIMIT_MS; ms++) {
		if (turns >= most || (turns >= TURNS && all_had_their_turns()))
			break;
		run(1);
		for (uint32_t n = 1; n <= subject->nodes; n++) {
			if (held(n, L(0)) == NOTHING || !called(n, L(0)))
				continue;
			entry_of(&user[n], L(0))->callbacks = 0;
			give_up(n, L(0));
			ask(n, L(0), mode[n - 1]);
			turns++;
		}
	}
	CHECK(turns >= TURNS);
	for (uint32_t n = 1; n <= subject->nodes; n++) {
		uint32_t grants = entry_of(&user[n], L(0))->grants;

		if (grants < TURNS_EACH)
			FAIL("node %u: %u grants in %u turns", n, grants, turns);
	}
}

CASE(who_gives_up_when_called_back_lets_all_have_their_turn, 2, 0)
{
	all_have_their_turn((enum lock_mode[]){EX, EX, EX});
}

CASE(readers_and_writers_have_their_turns, 3, 0)
{
	all_have_their_turn((enum lock_mode[]){PR, CW, EX});
	all_have_their_turn((enum lock_mode[]){PR, EX, PR});
}

/* ---- ends and losses ------------------------------------------------------------------------ */

CASE(a_closed_handle_holds_nothing_and_hears_nothing, 2, 0)
{
	begin();
	take(2, L(0), EX);
	take(2, L(1), CW);
	ask(1, L(0), CW);
	AWAIT(called(2, L(0)));
	take(1, L(2), EX);
	ask(2, L(2), EX);
	AWAIT(called(1, L(2)));
	user[2].alive = false;
	calling = true;
	lock_close(user[2].ls, true);
	calling = false;
	AWAIT(held(1, L(0)) == CW);
	take(1, L(1), EX);
	give_up(1, L(2));
	run(QUIET_MS);
	take(1, L(2), EX);
}

/* Waiting to be granted what nobody holds, and what the one that is gone held. */
static void free_when_they_may_be(uint32_t other, bool with_its_node)
{
	ask(other, L(0), EX); /* it held EX */
	ask(other, L(1), EX); /* it held CW */
	ask(other, L(2), CW); /* nobody holds it */
	request(other, L(3), CW, true);
	ask(other, L(4), EX); /* it held PR */
	ask(other, L(5), PR); /* it held EX */
	if (waits_for_fence()) {
		run(2 * QUIET_MS);
		for (uint32_t i = 0; i < 6; i++)
			CHECK(held(other, L(i)) == NOTHING);
		CHECK(engines_fences_asked());
		subject->fences(true);
	}
	WITHIN(with_its_node ? LIMIT_MS : AT_ONCE_MS,
	       held(other, L(0)) == EX && held(other, L(1)) == EX && held(other, L(2)) == CW &&
		   held(other, L(3)) == CW && held(other, L(4)) == EX && held(other, L(5)) == PR);
}

/* R9, or R10. Node 1 keeps the table where there is one. */
static void lost(bool with_its_node)
{
	for (uint32_t victim = 1; victim <= 3; victim += 2) {
		begin();
		take(victim, L(0), EX);
		take(victim, L(1), CW);
		take(2, L(1), CW);
		give_up(2, L(1));
		take(victim, L(4), PR);
		take(victim, L(5), EX);
		subject->fences(false);
		killed(victim, with_its_node);
		free_when_they_may_be(2, with_its_node);
	}
}

CASE(the_locks_of_a_crashed_node_are_free_when_they_may_be, 3, LOCKS_LOSE_NODES)
{
	lost(true);
}

CASE(the_locks_of_a_killed_daemon_on_a_living_node_are_free_when_they_may_be, 3, 0)
{
	lost(false);
}

CASE(a_node_that_is_cut_off_is_granted_nothing, 3, LOCKS_LOSE_NODES)
{
	for (uint32_t victim = 1; victim <= 3; victim += 2) {
		begin();
		take(victim, L(0), EX);
		user[victim].cut = true;
		subject->cut(victim);
		ask(victim, L(1), CW);
		request(victim, L(2), CW, true);
		ask(2, L(0), CW);
		AWAIT(held(2, L(0)) == CW);
		take(2, L(1), CW);
		ask(victim, L(3), EX);
		run(2 * QUIET_MS);
	}
}

/* Whoever has been granted what it held may ask it at once whether it knows. */
CASE(a_node_made_to_leave_knows_before_others_have_its_locks, 3, LOCKS_LEFT_BY_HAND)
{
	begin();
	take(3, L(0), CW);
	ask(1, L(0), EX);
	ask(1, L(1), CW);
	AWAIT(held(1, L(1)) == CW);
	CHECK(held(1, L(0)) == NOTHING && lock_kept(user[3].ls));
	user[3].cut = user[3].leaves = true;
	subject->leave(3);
	AWAIT(held(1, L(0)) == EX);
	CHECK(!lock_kept(user[3].ls));
	AWAIT(user[3].lost);
}

CASE(what_the_living_hold_survives_a_loss, 3, 0)
{
	for (uint32_t victim = 1; victim <= 3; victim++) {
		uint32_t a = victim % 3 + 1, b = a % 3 + 1;

		begin();
		for (uint32_t i = 0; i < 20; i++) {
			take(a, L(i), i % 2 ? EX : CW);
			take(b, L(100 + i), i % 2 ? CW : EX);
		}
		take(a, L(300), CW);
		take(b, L(300), CW);
		take(a, L(301), PR);
		take(b, L(301), PR);
		take(a, L(302), PR);
		ask(b, L(1), CW);
		ask(a, L(100), CW);
		run(100);
		killed(victim, victim == 2);
		run(2 * QUIET_MS);
		CHECK(held(b, L(1)) == NOTHING && held(a, L(100)) == NOTHING);
		for (uint32_t i = 2; i < 20; i++) {
			CHECK(!try_it(b, L(i), EX));
			CHECK(!try_it(a, L(100 + i), EX));
			CHECK_EQ_U64(entry_of(&user[a], L(i))->grants, 1);
		}
		CHECK(!try_it(a, L(300), EX));
		CHECK(!try_it(a, L(301), EX));
		CHECK(!try_it(b, L(302), CW));
		CHECK(try_it(b, L(302), PR));
		AWAIT(called(a, L(1)) && called(b, L(100)));
		give_up(a, L(1));
		AWAIT(held(b, L(1)) == CW);
		give_up(b, L(300));
		run(QUIET_MS);
		CHECK(try_it(a, L(300), EX));
	}
}

/* Nobody is lost; but the table is built anew, out of what the nodes claim. */
CASE(what_is_held_survives_a_moment_without_quorum, 3, LOCKS_BY_MESSAGES)
{
	for (uint32_t a = 1; a <= 3; a++) {
		uint32_t b = a % 3 + 1, c = b % 3 + 1;

		begin();
		for (uint32_t i = 0; i < 20; i++) {
			take(a, L(i), (enum lock_mode[]){CW, EX, PR}[i % 3]);
			ask(b, L(i), EX);
		}
		take(c, L(20), CW);
		give_up(c, L(20));
		run(200);
		subject->quorum(false);
		run(200);
		ask(c, L(20), CW);
		give_up(a, L(0));
		run(QUIET_MS);
		subject->quorum(true);
		AWAIT(held(b, L(0)) == EX && held(c, L(20)) == CW);
		for (uint32_t i = 1; i < 20; i++) {
			CHECK(held(b, L(i)) == NOTHING);
			give_up(a, L(i));
			AWAIT(held(b, L(i)) == EX);
		}
	}
}

CASE(what_the_living_hold_survives_a_newcomer, 3, 0)
{
	for (uint32_t comer = 1; comer <= 3; comer++) {
		uint32_t a = comer % 3 + 1, b = a % 3 + 1;

		begin();
		killed(comer, false);
		run(2 * QUIET_MS);
		for (uint32_t i = 0; i < 20; i += 2) {
			take(a, L(i), EX);
			take(b, L(i + 1), CW);
			ask(b, L(i), EX);
			ask(a, L(i + 1), EX);
		}
		run(100);
		subject->restart(comer);
		run(2 * QUIET_MS);
		attach(comer);
		ask(comer, L(0), CW);
		run(QUIET_MS);
		CHECK(held(comer, L(0)) == NOTHING);
		for (uint32_t i = 0; i < 20; i += 2) {
			CHECK(held(b, L(i)) == NOTHING && held(a, L(i + 1)) == NOTHING);
			give_up(a, L(i));
			give_up(b, L(i + 1));
			AWAIT(held(b, L(i)) == EX && held(a, L(i + 1)) == EX);
		}
		give_up(b, L(0));
		AWAIT(held(comer, L(0)) == CW);
	}
}

/* Released while the table is built anew, or its message is lost with who kept the table. */
CASE(what_was_given_up_around_a_loss_is_free, 3, 0)
{
	for (uint32_t before = 0; before < 12; before++) {
		begin();
		for (uint32_t i = 0; i < 3; i++)
			take(2, L(i), EX);
		give_up(2, L(0));
		run(before * 4);
		killed(1, before & 1);
		give_up(2, L(1));
		run(before * 4);
		give_up(2, L(2));
		for (uint32_t i = 0; i < 3; i++)
			take(3, L(i), EX);
	}
}

CASE(requests_around_a_loss_are_answered_once, 3, 0)
{
	for (uint32_t before = 0; before < 12; before++) {
		begin();
		for (uint32_t i = 0; i < 20; i++)
			ask(2, L(i), EX);
		run(before * 4);
		killed(1, before & 1);
		for (uint32_t i = 20; i < 40; i++)
			ask(2, L(i), EX);
		run(before * 4);
		for (uint32_t i = 40; i < 60; i++)
			ask(2, L(i), EX);
		for (uint32_t i = 0; i < 60; i++)
			AWAIT(held(2, L(i)) == EX);
		run(QUIET_MS);
		for (uint32_t i = 0; i < 60; i++)
			CHECK_EQ_U64(entry_of(&user[2], L(i))->grants, 1);
	}
}

CASE(a_waiter_that_is_gone_stands_in_nobodys_way, 3, 0)
{
	for (uint32_t with_its_node = 0; with_its_node < 2; with_its_node++) {
		begin();
		take(2, L(0), CW);
		ask(3, L(0), EX);
		AWAIT(called(2, L(0)) == 1);
		killed(3, with_its_node);
		take(1, L(0), CW);
		give_up(1, L(0));
		ask(1, L(0), EX);
		/* Its own callback, not the dead one's; where that stands for both, it is heeded.
		 */
		if (!(subject->traits & LOCKS_CALL_ONCE))
			AWAIT(called(2, L(0)) == 2);
		CHECK(called(2, L(0)));
		give_up(2, L(0));
		AWAIT(held(1, L(0)) == EX);
	}
}

CASE(a_daemon_that_is_back_holds_nothing, 1, 0)
{
	uint32_t node = subject->nodes;

	begin();
	take(node, L(0), EX);
	take(node, L(1), CW);
	subject->fences(false);
	killed(node, false);
	run(200);
	subject->restart(node);
	run(200);
	attach(node);
	ask(node, L(2), CW);
	if (waits_for_fence()) {
		run(QUIET_MS);
		CHECK(engines_fences_asked());
		CHECK(held(node, L(2)) == NOTHING);
		subject->fences(true);
	}
	AWAIT(held(node, L(2)) == CW);
	take(1, L(0), EX);
	take(1, L(1), EX);
	CHECK_EQ_U64(called(node, L(0)) + called(node, L(1)), 0);
	give_up(1, L(0));
	take(node, L(0), EX);
}

/* R9: the grant is delivered where it was made, and nowhere else, before that node is cut off. */
CASE(a_grant_that_nobody_else_saw_does_not_exist, 3, LOCKS_BY_MESSAGES)
{
	begin();
	subject->unsafe_grants(true);
	ask(2, L(0), EX);
	ask(3, L(1), CW);
	run(QUIET_MS);
	CHECK(held(2, L(0)) == NOTHING && held(3, L(1)) == NOTHING);
	subject->unsafe_grants(false);
	killed(1, true);
	ask(3, L(0), EX);
	AWAIT(held(2, L(0)) == EX || held(3, L(0)) == EX);
	AWAIT(held(3, L(1)) == CW);
	give_up(3, L(1));
	take(2, L(1), EX);
	if (held(2, L(0)) == EX)
		give_up(2, L(0));
	else
		give_up(3, L(0));
	AWAIT(entry_of(&user[2], L(0))->grants + entry_of(&user[3], L(0))->grants == 2);
}

/* ---- the engine as user --------------------------------------------------------------------- */

CASE(an_engine_gives_a_region_up_after_its_members_have_answered, 3, LOCKS_TAKE_ENGINES)
{
	uint64_t id = LOCK_ID(LOCK_KIND_REGION, 0);

	begin_bare();
	attach(3);
	subject->start_engines();
	engines_hold_writes(2, true);
	engines_write(2, 0);
	AWAIT(engines_writes_sent(2));
	CHECK(engines_held(2, id) == CW);
	CHECK(!try_it(3, id, EX));
	ask(3, id, EX);
	run(QUIET_MS);
	CHECK(held(3, id) == NOTHING);
	engines_hold_writes(2, false);
	AWAIT(held(3, id) == EX);
	CHECK_EQ_U64(engines_writes_done(2), 1);
	CHECK(engines_held(2, id) == NOTHING);
	engines_write(2, 0);
	AWAIT(called(3, id));
	CHECK_EQ_U64(engines_writes_done(2), 1);
	give_up(3, id);
	AWAIT(engines_writes_done(2) == 2);
}

/* Who writes in a region lets a reader have it, and waits for the end of that. */
CASE(an_engine_gives_a_region_up_to_a_reader_and_waits_for_it, 3, LOCKS_TAKE_ENGINES)
{
	uint64_t id = LOCK_ID(LOCK_KIND_REGION, 0);
	uint32_t sent;

	begin_bare();
	attach(3);
	subject->start_engines();
	engines_hold_writes(2, true);
	engines_write(2, 0);
	AWAIT(engines_writes_sent(2));
	CHECK(engines_held(2, id) == CW);
	CHECK(!try_it(3, id, PR));
	ask(3, id, PR);
	run(QUIET_MS);
	CHECK(held(3, id) == NOTHING);
	engines_hold_writes(2, false);
	AWAIT(held(3, id) == PR);
	CHECK(engines_held(2, id) == NOTHING);
	CHECK_EQ_U64(engines_writes_done(2), 1);
	sent = engines_writes_sent(2);
	engines_write(2, 0);
	AWAIT(called(3, id));
	CHECK(called_for(3, id, CW));
	run(QUIET_MS);
	CHECK_EQ_U64(engines_writes_sent(2), sent);
	give_up(3, id);
	AWAIT(engines_writes_done(2) == 2);
}

/*
 * R4, R5, R10: node 3 dies with writes under way. Whatever the lock manager does with its locks,
 * and whether its node lives, nobody writes where it may be writing before the fence: neither where
 * node 2 has the lock and the mark already, nor where it gets them only now.
 */
CASE(users_of_a_region_wait_for_the_fence_whatever_becomes_of_the_lock, 3, LOCKS_TAKE_ENGINES)
{
	for (uint32_t with_its_node = 0; with_its_node < 2; with_its_node++) {
		uint32_t sent, grants;

		begin_bare();
		subject->start_engines();
		engines_write(2, 0);
		AWAIT(engines_writes_done(2) == 1);
		engines_hold_writes(3, true);
		engines_write(3, 0);
		engines_write(3, 1);
		AWAIT(engines_writes_sent(3) >= 4);
		sent = engines_writes_sent(2);
		grants = engines_grants(2);
		subject->fences(false);
		killed(3, with_its_node);
		engines_write(2, 0);
		engines_write(2, 1);
		run(QUIET_MS);
		CHECK(engines_fences_asked());
		CHECK_EQ_U64(engines_status(2).unfenced, 1);
		CHECK_EQ_U64(engines_writes_sent(2), sent);
		CHECK_EQ_U64(engines_writes_done(2), 1);
		if (!waits_for_fence())
			CHECK(engines_grants(2) > grants); /* it was early */
		CHECK(engines_held(2, LOCK_ID(LOCK_KIND_REGION, 1)) == NOTHING);
		subject->fences(true);
		AWAIT(engines_writes_done(2) == 3);
	}
}

/* The tests for this lock manager. */
static void choose(const struct lock_subject *of)
{
	uint32_t count = 0;

	subject = of;
	test_first = NULL;
	test_last = &test_first;
	for (struct suite_case *c = case_first; c; c = c->next) {
		if (of->nodes < c->nodes || c->traits & ~of->traits)
			continue;
		c->test.next = NULL;
		test_register(&c->test);
		count++;
	}
	printf("== %s, of %u node%s: %u tests are for it\n", of->name, of->nodes,
	       of->nodes == 1 ? "" : "s", count);
}

int main(int argc, char **argv)
{
	static const struct lock_subject *const all[] = {&lock_local, &lock_cpg, &lock_dlm,
							 &lock_remote, &lock_remote_nodes};
	const struct lock_subject *only = NULL;
	int err = TEST_EXIT_SKIP;

	for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (argc > 1 && !strcmp(argv[1], all[i]->name))
			only = all[i];
	if (only) {
		argc--;
		argv++;
	}
	for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (only ? all[i] != only : all[i]->by_name)
			continue;
		choose(all[i]);
		err = test_run(argc, argv); /* of all that were run till now */
		subject->end();
	}
	return err;
}
