/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Why a member's state changes is the same on all nodes, whoever found it. */
#include "tests/unit/two_nodes_world.h"

static const struct member_cause *cause(uint32_t node, uint8_t member)
{
	static struct engine_status st;

	engine_status(w.node[node].e, &st);
	return &st.cause[member];
}

static void both_say(uint8_t member, enum member_state state, enum member_why why, uint32_t found)
{
	for (uint32_t i = 1; i <= NODES; i++) {
		CHECK_EQ_U64(status(i).map.member[member].state, state);
		CHECK_EQ_U64(cause(i, member)->why, why);
		CHECK_EQ_U64(cause(i, member)->node, found);
	}
}

TEST(an_error_is_told_with_its_request)
{
	create();
	start(1);
	start(2);
	run_ms(3000);
	for (uint8_t m = 0; m < MEMBERS; m++)
		both_say(m, MEMBER_IN_SYNC, WHY_NONE, 0);
	w.node[2].flush_fails = 1;
	write_block(2, 0);
	run_ms(5000); /* its mark is cleared, after a flush */
	both_say(1, MEMBER_FAULTY, WHY_ERROR, 2);
	for (uint32_t i = 1; i <= NODES; i++) {
		CHECK_EQ_INT(cause(i, 1)->error.op, DEV_FLUSH);
		CHECK_EQ_INT(cause(i, 1)->error.err, -EIO);
	}
	both_say(0, MEMBER_IN_SYNC, WHY_NONE, 0);
	finish();
}

TEST(a_member_that_breaks_off_comes_back_or_is_given_up)
{
	create();
	start(1);
	start(2);
	run_ms(3000);
	member_cut(2, 2, true);
	run_ms(500);
	both_say(2, MEMBER_SUSPECT, WHY_BROKE_OFF, 2);
	member_cut(2, 2, false);
	run_ms(8000);
	both_say(2, MEMBER_IN_SYNC, WHY_REBUILT, 0);
	member_cut(2, 2, true);
	run_ms(40000);
	both_say(2, MEMBER_MISSING, WHY_AWAY, 0);
	member_cut(2, 2, false);
	finish();
}

TEST(an_operator_is_named_by_the_node_that_was_asked)
{
	create();
	start(1);
	start(2);
	run_ms(3000);
	step(2, (struct event){.type = EV_ADMIN, .admin = {.cmd = ADMIN_FAIL, .member = 1}});
	run_ms(1000);
	CHECK_EQ_INT(w.admin_err, 0);
	both_say(1, MEMBER_FAULTY, WHY_OPERATOR, 2);
	finish();
}
