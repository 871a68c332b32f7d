/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The administrator: fails members, and sees to it that lost ones come back or are replaced. One
 * command at a time.
 */
#ifndef TESTS_SIM_OPERATOR_H
#define TESTS_SIM_OPERATOR_H

#include "tests/sim/common.h"

struct operator
{
	uint64_t tag, last; /* of the command under way, 0 = none; of the one before */
	uint64_t busy_us;   /* until then it waits for the answer */
	uint64_t gen;
	uint32_t node;
	bool adds, fails; /* the one under way is ADMIN_ADD, ADMIN_FAIL */
	bool refused;     /* the last one was */
};

void operator_init(struct sim *s);
/* A command to some node; disk: for ADMIN_ADD, else NONE. False: no node takes it. */
bool operator_ask(struct sim *s, enum admin_cmd cmd, uint8_t member, uint32_t disk);
/* Likewise, of some member; false: it fits none. */
bool operator_kick(struct sim *s, enum admin_cmd cmd);
void operator_answer(struct sim *s, struct simnode *n, uint64_t tag, int err, const char *why);
bool operator_is_failing(const struct sim *s); /* a member; it may take effect any time */
void operator_started(struct sim *s, const struct simnode *n); /* a daemon has */

#endif
